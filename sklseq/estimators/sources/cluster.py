"""Shards on the workers of a Dask cluster.

Each worker keeps its shards in the layout of the compiled functions. An evaluation of the objective
sends w to all workers; values and gradients of the shards are added in groups, in an order that
depends on the number of shards alone:

    (f_0 + f_1 + …) + (f_8 + f_9 + …) + …

Dask computes the shards of a lost worker again from their source on another one; data that only the
lost worker had is sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
from dask import delayed
from dask.bag import Bag
from dask.delayed import Delayed

from sklseq._lib.threads import Threads
from sklseq.data.labels import cut_rows
from sklseq.data.types import LabelsLike, SequencesLike
from sklseq.estimators.sources.shard_source import ShardSource
from sklseq.estimators.sources.shards import named, read_content, split_content
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.likelihood.sharded import (
    add_sums,
    likelihood_of,
    sum_of_shard,
    triples_of_shard,
)
from sklseq.objectives.likelihood.summary import LabelledRows, Summary, summarise_shard
from sklseq.objectives.scores.score_map import ScoreMap

# Attempts of an evaluation if workers are lost; seconds before the second attempt, doubled each
# time, as the scheduler has to notice the loss; and the time to wait for a worker, as clusters
# need minutes to replace a lost machine.
ATTEMPTS, PAUSE, PATIENCE = 6, 0.2, "300s"
# Number of terms of a sum that one task adds.
FAN_IN = 8


class ClusterError(RuntimeError):
    """The Dask cluster failed or was closed; nothing was fitted."""


class _NotSent(Exception):
    """Data did not reach a worker."""


def partitions(X: SequencesLike, y: LabelsLike | None = None) -> list[Delayed]:
    """Return the delayed shards of a bag, of two bags, or of a list."""
    if isinstance(X, Bag):
        if y is None:
            return [delayed(_of_pairs)(part) for part in X.to_delayed()]
        if not isinstance(y, Bag) or y.npartitions != X.npartitions:
            raise ValueError(
                f"With X a bag of {X.npartitions} partitions, y must be a bag of as many; got "
                f"{y.npartitions if isinstance(y, Bag) else type(y).__name__}."
            )
        pairs = zip(X.to_delayed(), y.to_delayed())
        return [delayed(_of_two)(rows, labels) for rows, labels in pairs]
    if y is not None:
        raise ValueError("Delayed shards are (X, y); leave y out.")
    if not isinstance(X, (list, tuple)) or not all(isinstance(x, Delayed) for x in X):
        raise TypeError(
            "On a Dask cluster, X must be a bag of (sequence, labels) or a list of delayed "
            f"(X, y); got {type(X).__name__}."
        )
    return list(X)


def _of_pairs(pairs: Any) -> tuple[list, list]:
    pairs = list(pairs)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise ValueError(
                "a bag without y must hold pairs (sequence, labels); got "
                f"{type(pair).__name__}. Pass the labels as a second bag."
            )
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def _of_two(rows: Any, labels: Any) -> tuple[list, list]:
    return list(rows), list(labels)


# ---------------------------------------------------------------------- functions on workers


def _read(content: Any, k: int) -> LabelledRows:
    with named(k):
        return read_content(content)


def _summarise(rows: LabelledRows, k: int) -> Summary:
    with named(k):
        return summarise_shard(rows)


def _triples(rows: LabelledRows, k: int, layout: tuple, columns: np.ndarray) -> np.ndarray:
    classes, column, checksums, n_features = layout
    with named(k):
        return triples_of_shard(rows.again(checksums[k], column, n_features), classes, columns)


def _prepare(rows: LabelledRows, k: int, layout: tuple) -> LogLikelihood | None:
    scores, classes, column, checksums = layout
    with named(k):
        rows = rows.again(checksums[k], column, scores.n_features)
        return likelihood_of(scores, rows, classes, Threads(1)) if rows.X.n_rows else None


def _evaluate(part: LogLikelihood | None, k: int, w: np.ndarray) -> tuple[float, np.ndarray]:
    with named(k):
        return (0.0, np.zeros_like(w)) if part is None else sum_of_shard(part, w)


# ---------------------------------------------------------------------------- training


class ClusterSource(ShardSource):
    """Shards read by the workers of the current Dask client."""

    lacks = ShardSource.lacks | {
        "adagrad": "solver='adagrad' goes from one shard to the next, and the workers of a cluster "
        "work at the same time; use solver='auto' or 'lbfgs', or Shards on one machine.",
        "early_stopping": "early_stopping=True keeps the sequences that it sets aside in this "
        "process; on a cluster, use early_stopping=False, or Shards on one machine.",
    }

    def __init__(self, X: Any, y: Any = None):
        self.parts = partitions(X, y)
        if not self.parts:
            raise ValueError("X must hold at least one shard; got none.")
        self.client = current_client()
        self.rows = self.futures = None

    def __exit__(self, *_: object) -> None:
        self.rows = self.futures = self.sent = None  # workers free data without references

    def each_summary(self) -> list[Summary]:
        return self._insist(self._summarise)

    def _summarise(self) -> list[Summary]:
        self._read()
        found = self.client.map(_summarise, self.rows, range(len(self.rows)), pure=False)
        return self.client.gather(found)

    def each_triples(self, columns: np.ndarray) -> list[np.ndarray]:
        return self._insist(lambda: self._each_triples(columns))

    def _each_triples(self, columns: np.ndarray) -> list[np.ndarray]:
        if self.rows is None:
            self._read()
        checksums = [part.checksum for part in self.summary.parts]
        given = self.summary.classes, self.column, checksums, self.summary.n_features
        [layout, columns] = self._send([given, columns], broadcast=True)
        found = self.client.map(
            _triples, self.rows, range(len(self.rows)), layout=layout, columns=columns, pure=False
        )
        return self.client.gather(found)

    def _read(self) -> None:
        read = [delayed(_read, pure=False)(part, k) for k, part in enumerate(self.parts)]
        self.rows = self.client.compute(read)

    def likelihood(self, scores: ScoreMap, l2: float, threads: Threads) -> ClusterLogLikelihood:
        checksums = [part.checksum for part in self.summary.parts]
        self.to_send = scores, self.summary.classes, self.column, checksums
        self._insist(self._prepare)
        return ClusterLogLikelihood(self, scores, l2)

    def _prepare(self) -> None:
        # Scattered data can be lost and is sent again; Dask itself computes lost rows again.
        if self.rows is None:
            self._read()
        [self.sent] = self._send([self.to_send], broadcast=True)
        self.futures = self.client.map(
            _prepare, self.rows, range(len(self.rows)), layout=self.sent, pure=False
        )
        self.rows = None  # each is released as soon as it is prepared

    def evaluate(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        """Sum of values and gradients of all shards."""
        return self._insist(lambda: self._evaluate(w))

    def _evaluate(self, w: np.ndarray) -> tuple[float, np.ndarray]:
        if self.futures is None:
            self._prepare()
        client = self.client
        sent = self._send(w)  # workers copy it from each other
        sums = client.map(_evaluate, self.futures, range(len(self.futures)), w=sent, pure=False)
        while len(sums) > 1:
            groups = (sums[a : a + FAN_IN] for a in range(0, len(sums), FAN_IN))
            sums = [client.submit(add_sums, *group, pure=False) for group in groups]
        return sums[0].result()

    def _send(self, data: Any, **options: Any) -> Any:
        # Only code of Dask runs here: any error (a KeyError, if a worker dies before the scheduler
        # has registered its data) is the loss of a worker.
        try:
            return self.client.scatter(data, hash=False, **options)
        except Exception as error:
            raise _NotSent(f"{type(error).__name__}: {error}") from error

    def _insist(self, ask: Any) -> Any:
        # If workers were lost, send all data again and repeat the call.
        for k in range(ATTEMPTS):
            try:
                return ask()
            except Exception as error:
                # Calls on a client that was closed meanwhile raise various errors.
                if not isinstance(error, LOST) and self.client.status == "running":
                    raise
                self.rows = self.futures = self.sent = None
                lost = error
                time.sleep(PAUSE * 2**k)
                self._wait_for_workers(error)
        raise ClusterError(
            f"Workers of the Dask cluster were lost {ATTEMPTS} times in one evaluation "
            f"({type(lost).__name__}: {lost}); nothing was fitted. Give them more memory, or cut "
            "the data into smaller shards."
        ) from lost

    def _wait_for_workers(self, error: BaseException) -> None:
        try:
            if self.client.status == "running":
                self.client.wait_for_workers(1, timeout=PATIENCE)
                return
        except (OSError, TimeoutError, *LOST):
            pass
        raise ClusterError(
            f"The Dask client is {self.client.status}, or has no worker left "
            f"({type(error).__name__}: {error}); nothing was fitted. Start a cluster and fit again."
        ) from error


def current_client() -> Any:
    from distributed import get_client

    try:
        client = get_client()
    except ValueError as error:
        raise ClusterError(
            "Training on Dask bags and delayed shards needs a client; start one first: "
            "distributed.Client(…)."
        ) from error
    if client.status != "running":
        raise ClusterError(
            f"The Dask client is {client.status}; nothing was fitted. Start another one."
        )
    return client


def _lost() -> tuple:
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    return (_NotSent, CancelledError, CommClosedError, KilledWorker, TimeoutError, ConnectionError)


LOST = _lost()


class ClusterLogLikelihood:
    """f(w) = Σ_k f_k(w) + l2 · ‖w‖²₂, where f_k is the negative log-likelihood of shard k.

    Parameters
    ----------
    shards : object with ``evaluate(w)``
        Returns Σ_k f_k(w) and its gradient.
    scores : ScoreMap
    l2 : float
    """

    def __init__(self, shards: ClusterSource, scores: ScoreMap, l2: float):
        self.shards, self.scores, self.l2 = shards, scores, float(l2)

    def value_and_gradient(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """Return f(w) and write its gradient into ``gradient``."""
        value, total = self.shards.evaluate(w)
        np.multiply(w, 2 * self.l2, out=gradient)
        gradient += total
        return value + self.l2 * float(np.square(w, dtype=np.float64).sum())


# ---------------------------------------------------------------------------- predictions


def predict_lazily(predict: Callable, X: SequencesLike) -> Any:
    """Return a bag of labels for a bag of sequences; delayed answers for delayed X or (X, y)."""
    model = delayed(predict)
    if isinstance(X, Bag):
        return X.map_partitions(_predict_list, model)
    return [delayed(_predict)(part, model) for part in partitions(X)]


def _predict_list(sequences: Any, predict: Callable) -> list:
    return list(predict(list(sequences)))


def _predict(content: Any, predict: Callable) -> Any:
    if isinstance(content, LabelledRows):
        return predict(content.X)
    return predict(content[0] if isinstance(content, tuple) else content)


def count_on_workers(count: Callable, X: SequencesLike, y: LabelsLike) -> list[tuple[float, float]]:
    """``count(X, y, sample_weight)`` of each shard."""
    from dask import compute

    model = delayed(count)
    parts = [delayed(_count)(part, k, model) for k, part in enumerate(partitions(X, y))]
    return list(compute(*parts))


def _count(content: Any, k: int, count: Callable) -> tuple[float, float]:
    with named(k):
        if isinstance(content, LabelledRows):
            labels = list(cut_rows(content.classes[content.codes], content.X.offsets))
            return count(content.X, labels, content.weights)
        return count(*split_content(content))

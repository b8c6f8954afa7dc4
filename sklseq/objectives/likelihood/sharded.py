"""Log-likelihood of data in shards, few of which are in memory at a time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sklseq._lib.threads import Threads
from sklseq.data.constraints import PathCheck
from sklseq.data.labels import cut_rows
from sklseq.inference.chain.linear_chain import batch_rows
from sklseq.objectives.likelihood.likelihood import (
    Hessian,
    LogLikelihood,
    SumOfParts,
    ThreadBuffers,
)
from sklseq.objectives.likelihood.partial import PartialLogLikelihood
from sklseq.objectives.likelihood.summary import LabelledRows
from sklseq.objectives.scores.score_map import ScoreMap
from sklseq.objectives.scores.transition_features import allowed_triples, observed_triples


def likelihood_of(
    scores: ScoreMap, rows: LabelledRows, classes: np.ndarray, threads: Threads, buffers=None
) -> LogLikelihood:
    """Negative log-likelihood of one shard, without penalty; ``scores`` is of the whole data.

    Raises a ValueError if constraints forbid all labelings that partial labels allow.
    """
    X = rows.X
    if X.dtype != scores.dtype:
        X = X.with_rows(X.rows.astype(scores.dtype))
    args = X.offsets, rows.weights, 0.0, threads, buffers
    if rows.table is None:
        return LogLikelihood(scores.for_rows(X), rows.labelled_by(classes), *args)
    labels = rows.allowed_by(classes)
    check = PathCheck(scores.allowed, classes, labels.table)
    for codes in cut_rows(labels.codes, X.offsets):
        check.follow(codes, lambda row: f"row {row} of a sequence")
    return PartialLogLikelihood(scores.for_rows(X), labels, *args)


def sum_of_shard(part: LogLikelihood, w: np.ndarray) -> tuple[float, np.ndarray]:
    """Value and gradient of one shard; several threads may call this at once."""
    mine = part.alone()
    gradient = mine.scores.new_vector()
    value = mine.value_and_gradient(w, gradient)
    if part.scores.features is not None:  # the scale of the next evaluation
        part.scores.features.highest = mine.scores.features.highest
    return value, gradient


def triples_of_shard(rows: LabelledRows, classes: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Weights (column, label, next label) that occur in one shard, see ``Support.triples``.

    ``rows`` has the columns of the whole data, and ``classes`` are its labels.
    """
    if rows.table is None:
        return observed_triples(rows.X, columns, rows.labelled_by(classes), len(classes))
    return allowed_triples(rows.X, columns, rows.allowed_by(classes))


def add_sums(*sums: tuple[float, np.ndarray]) -> tuple[float, np.ndarray]:
    """Sum of (value, gradient) pairs, in the given order."""
    gradient = sums[0][1].copy()
    for _, other in sums[1:]:
        gradient += other
    return sum(value for value, _ in sums), gradient


class ShardedLogLikelihood(SumOfParts):
    """f(w) = Σ_k f_k(w) + l2 · ‖w‖²₂, where f_k is the negative log-likelihood of shard k.

    Value and gradient are those of ``LogLikelihood`` on all sequences. Shards are added up one
    after the other into the same buffers, so the cost of a shard is that of its rows.

    Parameters
    ----------
    scores : ScoreMap
        Of ``Summary.layout()``: the layout of w, no rows.
    shards : object
        ``shards.load(k) -> LabelledRows`` reads shard k again, ``shards.named(k)`` is a context
        manager that names shard k in errors, ``shards.filled`` lists the shards that have rows, and
        ``shards.summary`` is the summary of all shards.
    max_bytes : float
        Bytes for shards that stay in memory; the others are read again for each evaluation.
    l2 : float
    threads : Threads

    Notes
    -----
    Memory beside ``max_bytes``: one shard, and for each thread a buffer of the gradient's size.
    """

    def __init__(
        self, scores: ScoreMap, shards: Any, max_bytes: float, l2: float, threads: Threads
    ):
        super().__init__(scores, l2, threads)
        self.shards, self.max_bytes = shards, max_bytes
        most = batch_rows(scores.width, shards.summary.n_rows, threads.n)
        n_rows = max(shards.summary.longest, most)
        self.buffers = [ThreadBuffers(n_rows, scores) for _ in range(threads.n)]
        self.kept: dict[int, LogLikelihood] = {}
        self.n_reads = 0

    def keep_nothing(self) -> None:
        """Read shards again for each evaluation, from now on."""
        self.kept, self.max_bytes = {}, 0

    def hessian(self, w: np.ndarray, max_bytes: float = 0.0) -> Hessian:
        """Products with the Hessian at w; no results of forward-backward are kept."""
        return Hessian(self, w, 0.0)

    def each_part(self, work: Callable[[LogLikelihood], Any]) -> list:
        """``work(part)`` of all shards; beside those kept, one is in memory at a time."""
        found = []
        for k in self.shards.filled:
            with self.part(k) as part:
                found.append(work(part))
        return found

    @contextmanager
    def part(self, k: int) -> Iterator[LogLikelihood]:
        """One shard, kept or read again; errors in the context name it."""
        with self.shards.named(k):
            yield self.kept.get(k) or self._read(k)

    def _read(self, k: int) -> LogLikelihood:
        self.n_reads += 1
        part = self.read(k)
        n = part.scores.nbytes + part.y.nbytes + 4 * part.offsets.nbytes
        if n <= self.max_bytes:
            self.kept[k] = part
            self.max_bytes -= n
        return part

    def read(self, k: int) -> LogLikelihood:
        """One shard, read again."""
        rows, classes = self.shards.load(k), self.shards.summary.classes
        return likelihood_of(self.scores, rows, classes, self.threads, self.buffers)

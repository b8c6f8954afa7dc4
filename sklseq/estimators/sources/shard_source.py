"""Training data in shards, on this machine or on the workers of a cluster."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from sklseq._lib.threads import Threads
from sklseq.data.constraints import Constraints, check_seen
from sklseq.data.sequences import Sequences
from sklseq.estimators.sources.shards import ShardError, Shards, named, shard_name
from sklseq.estimators.sources.source import Source
from sklseq.features import DictFeatures
from sklseq.objectives.likelihood.gradient_plan import Plan
from sklseq.objectives.likelihood.label_curvature import diagonal_of_parts
from sklseq.objectives.likelihood.sharded import ShardedLogLikelihood, triples_of_shard
from sklseq.objectives.likelihood.stochastic import ShardedStochasticLikelihood
from sklseq.objectives.likelihood.summary import (
    LabelledRows,
    Summary,
    merge_summaries,
    summarise_shard,
)
from sklseq.objectives.scores.design import DenseRows
from sklseq.objectives.scores.score_map import ScoreMap

# Bytes of a stored value of a CSR matrix in float64.
CSR_BYTES = 12
# Bytes of transition features for each row, and for each of its values.
ENTRY_BYTES = 20, 12


class ShardSource(Source):
    """Base class of sources in shards, which are summarised one by one; subclasses read them.

    Attributes
    ----------
    summaries : list of Summary
        Summary of each shard, with its own columns and labels.
    summary : Summary
        Summary of all shards.
    """

    error = ShardError
    plan = Plan("forward-backward", None, 0, "data in shards")
    lacks: ClassVar[dict[str, str]] = {
        "dual": "solver={solver!r} keeps the state of every row in memory, 8 bytes for each row "
        "and label; with shards, use solver='auto', 'adagrad' or 'lbfgs'.",
        "gradient": "gradient={gradient!r} is for single long sequences; with shards, use 'auto'.",
    }

    def name(self, k: int) -> str:
        """Name of shard k in messages."""
        return f"Shard {k}"

    def each_summary(self) -> list[Summary]:
        raise NotImplementedError

    def summarise(self) -> Summary:
        self.summaries = self.each_summary()
        self.summary = merge_summaries(
            self.summaries, lambda k, why: ShardError(f"{self.name(k)}: {why}.")
        )
        if self.summary.attributes is not None:
            self.vectorizer = dict_features(self.summary.attributes)
        self.roles = self.summary.roles
        return self.summary

    def seen_triples(self, columns: np.ndarray) -> np.ndarray:
        """See ``Source``; reads all shards once more."""
        return np.unique(np.concatenate(self.each_triples(columns)))

    def each_triples(self, columns: np.ndarray) -> list[np.ndarray]:
        raise NotImplementedError

    @property
    def column(self) -> dict | None:
        return None if self.vectorizer is None else self.vectorizer.vocabulary_

    def check_constraints(self, allowed: Constraints) -> None:
        for k, one in enumerate(self.summaries):
            if one.n_rows and one.table is None:  # else `likelihood_of` checks
                at = np.searchsorted(self.summary.classes, one.classes)
                transition = allowed.transition[np.ix_(at, at)]
                mine = Constraints(transition, allowed.start[at], allowed.end[at])
                check_seen(one.support, mine, one.classes, f", in {self.name(k)}")

    def convexity(self, l2: float) -> float:
        known = all(one.table is None for one in self.summaries)
        return super().convexity(l2) if known else 0.0


def dict_features(attributes: list) -> DictFeatures:
    """Return a transformer of dicts and attribute lists with these columns."""
    features = DictFeatures()
    features.vocabulary_ = dict(zip(attributes, range(len(attributes))))
    features.n_features_out_ = len(attributes)
    return features


class LocalShardSource(ShardSource):
    """Shards read by this process."""

    as_csr = False
    split = "shards"
    made: ShardedLogLikelihood | None = None

    def __init__(self, shards: Shards):
        self.shards = shards
        self.aside: dict[int, np.ndarray] = {}  # sequences of each shard that are set aside
        self.n_bytes_aside = 0

    def name(self, k: int) -> str:
        return shard_name(k, self.shards.sources[k])

    def named(self, k: int) -> Any:
        """Context manager that adds the name of shard k to errors."""
        return named(k, self.shards.sources[k])

    @property
    def can_grow(self) -> bool:
        return self.summary.is_sparse

    def each_summary(self) -> list[Summary]:
        shards = self.shards
        for k in range(shards.n_shards):
            self._check_size(k, shards.file_size(k), shards.max_memory, "")
        summaries = []
        for k in range(shards.n_shards):
            rows = shards.labelled(k)
            with self.named(k):
                summaries.append(summarise_shard(rows))
            del rows
        return summaries

    def each_triples(self, columns: np.ndarray) -> list[np.ndarray]:
        found = []
        for k in self.filled:
            with self.named(k):
                found.append(triples_of_shard(self.load(k), self.summary.classes, columns))
        return found

    def _check_size(self, k: int, n_bytes: float, allowed: float, beside: str) -> None:
        if n_bytes > allowed:
            raise ValueError(
                f"{self.name(k)} takes about {n_bytes / 1e6:.3g} MB{beside}, and max_memory "
                f"allows {self.shards.max_memory / 1e6:.3g} MB; cut it into smaller shards, or "
                "raise max_memory."
            )

    def likelihood(self, scores: ScoreMap, l2: float, threads: Threads) -> ShardedLogLikelihood:
        n_features, beside = self.summary.n_features, ", weights and solver"
        fixed = solver_bytes(scores, threads.n) + self.n_bytes_aside
        if self.aside:
            beside = ", weights, solver and sequences set aside"
        allowed = self.shards.max_memory - fixed
        self.as_csr = not self.summary.is_sparse and not isinstance(scores.design, DenseRows)
        per_row = self.as_csr * CSR_BYTES * n_features + entry_bytes(scores, self.summary)
        sizes = [part.n_bytes + per_row * part.n_rows for part in self.summary.parts]
        for k, size in enumerate(sizes):
            self._check_size(k, size, allowed, f"{beside} {fixed / 1e6:.3g} MB")
        if self.made is not None:  # of all weights, and a set of them is trained now
            self.made.keep_nothing()
        self.made = ShardedLogLikelihood(scores, self, allowed - max(sizes), l2, threads)
        return self.made

    def diagonal_of(self, likelihood: ShardedLogLikelihood) -> Callable[[np.ndarray], np.ndarray]:
        return partial(diagonal_of_parts, likelihood)

    @property
    def filled(self) -> list[int]:
        """Shards that have rows."""
        return [k for k, part in enumerate(self.summary.parts) if part.n_rows]

    def load(self, k: int) -> LabelledRows:
        """Shard k, read again, with the columns of all shards."""
        checksum, n_features = self.summary.parts[k].checksum, self.summary.n_features
        rows = self.shards.labelled(k).again(checksum, self.column, n_features)
        if k in self.aside:
            weights = rows.weights.copy()
            weights[self.aside[k]] = 0
            rows = rows._replace(weights=weights)
        if self.as_csr:
            return rows._replace(X=Sequences(sparse.csr_matrix(rows.X.rows), rows.X.offsets))
        return rows

    @property
    def lengths(self) -> np.ndarray:
        """Rows of each sequence, through all shards."""
        return np.concatenate([part.lengths for part in self.summary.parts])

    @property
    def weights(self) -> np.ndarray:
        """Weight of each sequence, through all shards."""
        return np.concatenate([part.weights for part in self.summary.parts])

    @property
    def numbers(self) -> np.ndarray:
        """The shard of each sequence: a splitter sets shards aside."""
        return np.repeat(np.arange(self.n_given), [len(x.weights) for x in self.summary.parts])

    @property
    def n_given(self) -> int:
        """Number of shards."""
        return self.shards.n_shards

    def set_aside(self, numbers: np.ndarray) -> tuple[Sequences, list]:
        """As in ``RowSource``; the rows that are set aside are kept in memory."""
        ends, X, y = np.cumsum([len(part.weights) for part in self.summary.parts]), [], []
        for k, mine in enumerate(np.split(numbers, np.searchsorted(numbers, ends[:-1]))):
            if len(mine):
                self.aside[k] = mine - (ends[k] - len(self.summary.parts[k].weights))
                rows, part = self.load(k), self.summary.parts[k]
                X += list(rows.X[self.aside[k]])
                y += rows.labels_of(self.aside[k])
                n_rows = part.lengths[self.aside[k]].sum()
                self.n_bytes_aside += part.n_bytes * n_rows / part.n_rows
        return Sequences.from_list(X), y

    def stochastic(
        self, likelihood: ShardedLogLikelihood, l1: float, start
    ) -> ShardedStochasticLikelihood:
        return ShardedStochasticLikelihood(likelihood, l1, start)


def entry_bytes(scores: ScoreMap, summary: Summary) -> float:
    """Bytes of the transition features of a row, on average if rows are sparse."""
    if scores.features is None:
        return 0
    columns = scores.features.columns
    per_row = len(columns)
    if summary.counts is not None:
        per_row = summary.counts[columns].sum() / summary.n_rows
    return ENTRY_BYTES[0] + ENTRY_BYTES[1] * per_row


def solver_bytes(scores: ScoreMap, n_threads: int) -> float:
    """Estimated bytes of weights, ten vectors of the solver, its pairs and buffers."""
    n = scores.n_weights
    pairs = 20 * (4 if n > 1 << 18 else scores.dtype.itemsize)
    buffers = (n_threads + 1) * scores.design.new_buffer().nbytes
    return n * (10 * scores.dtype.itemsize + pairs + 8) + buffers

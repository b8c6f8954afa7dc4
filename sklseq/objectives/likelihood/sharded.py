"""The log-likelihood of data in shards: a sum, of which few terms are in memory at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.checksums import array_checksum, label_checksum, row_checksum
from sklseq._lib.threads import Threads
from sklseq.data.labels import encode_labels
from sklseq.data.sequences import Sequences
from sklseq.inference.chain.linear_chain import BLOCK_ROWS
from sklseq.objectives.likelihood.likelihood import (
    LogLikelihood,
    Share,
    clear,
    squared_norm,
    store_gradient,
)
from sklseq.objectives.scores.score_map import ScoreMap, Support, magnitudes, observed_support

__all__ = [
    "DataSurvey",
    "LabelledRows",
    "ShardSurvey",
    "ShardedLogLikelihood",
    "add_sums",
    "likelihood_of",
    "merge_surveys",
    "sum_of_shard",
    "survey_shard",
]


class LabelledRows(NamedTuple):
    """One shard as it was read, without sequences of weight 0.

    Attributes
    ----------
    X : Sequences
    attributes : list of str, or None
        Names of the columns, if rows came as dicts or attribute lists.
    classes : ndarray
        Labels that occur in it, sorted.
    codes : integer ndarray of shape (n_rows,)
        ``classes[codes]`` are the labels.
    weights : ndarray of shape (n_sequences,)
    """

    X: Sequences
    attributes: list | None
    classes: np.ndarray
    codes: np.ndarray
    weights: np.ndarray

    def labelled_by(self, classes: np.ndarray) -> np.ndarray:
        """Label codes of the whole data."""
        return encode_labels(self.classes, classes)[self.codes]

    def checksum(self) -> int:
        """Of all that it holds, the same in every process."""
        seed = row_checksum(self.X.rows, self.X.shape[1])
        for names in (self.classes, np.array(self.attributes or [], dtype=np.str_)):
            seed = label_checksum(names, seed)
        for numbers in (self.X.offsets, self.codes.astype(np.int32), self.weights):
            seed = array_checksum(numbers, seed)
        return seed

    def again(self, checksum: int, column: dict | None, n_features: int) -> LabelledRows:
        """With the columns of the whole data, if it is what it was when its checksum was taken."""
        if self.checksum() != checksum:
            raise ValueError(
                f"it holds other rows, labels or weights than when it was first read (now "
                f"{self.X.n_rows} rows, {self.X.shape[1]} features); a shard must hold the same "
                "each time."
            )
        if column is None or self.attributes is None:  # no rows, if the others have names
            return self
        return self._renamed(column, n_features)

    def _renamed(self, column: dict, n_features: int) -> LabelledRows:
        at = np.array([column[name] for name in self.attributes], dtype=np.int64)
        matrix = self.X.rows
        other = type(matrix)((matrix.shape[0], n_features), dtype=matrix.dtype)
        other.indptr, other.data = matrix.indptr, matrix.data
        other.indices = at.astype(matrix.indices.dtype)[matrix.indices]
        return self._replace(X=self.X.with_rows(other))


class ShardSurvey(NamedTuple):
    """What one shard says by itself, with its own columns and labels.

    Attributes
    ----------
    attributes, classes : as of ``LabelledRows``
    n_rows, longest, n_bytes : int
        Rows, rows of the longest sequence, bytes that working on it takes: as it is read, and
        again as it is worked on.
    n_features : int
    is_sparse, single : bool
        ``single``: float32 values.
    counts : ndarray of shape (n_features,), or None if dense
        How often each feature occurs.
    support : Support
    largest : ndarray of shape (n_features,), or None
        Largest magnitude of each feature; None: none is far from 1.
    checksum : int
        Of all that it holds.
    """

    attributes: list | None
    classes: np.ndarray
    n_rows: int
    longest: int
    n_bytes: int
    n_features: int
    is_sparse: bool
    single: bool
    counts: np.ndarray | None
    support: Support
    largest: np.ndarray | None
    checksum: int


def survey_shard(shard: LabelledRows) -> ShardSurvey:
    """Look at a shard once."""
    X = shard.X
    counts = np.bincount(X.rows.indices, minlength=X.shape[1]) if X.is_sparse else None
    support = observed_support(X, shard.codes.astype(np.int32), len(shard.classes))
    return ShardSurvey(
        shard.attributes, shard.classes, X.n_rows, int(X.lengths.max(initial=0)),
        _n_bytes(X), X.shape[1], X.is_sparse,
        X.dtype == np.float32, counts, support, magnitudes(X.rows),
        shard.checksum(),
    )  # fmt: skip


def _n_bytes(X: Sequences) -> int:
    rows = X.rows
    if not X.is_sparse:
        return rows.nbytes
    return 2 * (rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes)


class DataSurvey(NamedTuple):
    """What all shards say together; fields as in ``ShardSurvey``."""

    attributes: list | None
    classes: np.ndarray
    n_rows: int
    longest: int
    n_features: int
    is_sparse: bool
    dtype: np.dtype
    counts: np.ndarray | None
    support: Support
    largest: np.ndarray | None

    def layout(self) -> Sequences:
        """No rows, but as wide as the data: all that the layout of w depends on."""
        make = sparse.csr_matrix if self.is_sparse else np.zeros
        return Sequences(make((0, self.n_features), dtype=self.dtype), [0])

    def as_visited(self) -> DataSurvey:
        """The same of CSR rows in float64, as which single sequences are visited."""
        counts = np.zeros(self.n_features, np.int64) if self.counts is None else self.counts
        return self._replace(is_sparse=True, dtype=np.dtype(np.float64), counts=counts)


def merge_surveys(surveys: list[ShardSurvey], wrong: Callable[[int, str], Exception]) -> DataSurvey:
    """Put the surveys of all shards together.

    Parameters
    ----------
    surveys : list of ShardSurvey
    wrong : callable(k, why) -> exception
        What to raise if shard k does not fit to those before.
    """
    filled = [(k, one) for k, one in enumerate(surveys) if one.n_rows]
    if not filled:
        raise ValueError(
            f"X must hold at least one row of positive weight; got {len(surveys)} shards with 0 "
            "such rows in all."
        )
    _check_alike(filled, wrong)
    classes, first = filled[0][1].classes, filled[0][1]
    for _, one in filled[1:]:
        classes = np.union1d(classes, one.classes)
    names = None
    if first.attributes is not None:
        names = list(dict.fromkeys(name for _, one in filled for name in one.attributes))
    n_features = first.n_features if names is None else len(names)
    if n_features == 0:
        raise ValueError("X must have at least one feature; got 0.")
    counts, support, largest = _add_up([one for _, one in filled], names, classes, n_features)
    single = all(one.single for _, one in filled)
    return DataSurvey(
        names, classes, sum(one.n_rows for _, one in filled),
        max(one.longest for _, one in filled), n_features, first.is_sparse,
        np.dtype(np.float32 if single else np.float64), counts, support, largest,
    )  # fmt: skip


def _check_alike(filled: list, wrong: Callable[[int, str], Exception]) -> None:
    k0, first = filled[0]
    for k, one in filled[1:]:
        if (one.attributes is None) != (first.attributes is None):
            raise wrong(k, f"only one of shards {k0} and {k} holds dicts or attribute lists")
        if one.attributes is None and one.n_features != first.n_features:
            raise wrong(
                k, f"it has {one.n_features} features, shard {k0} has {first.n_features}; all "
                "shards must have the same columns",
            )  # fmt: skip
        if one.is_sparse != first.is_sparse:
            raise wrong(k, f"only one of shards {k0} and {k} is sparse; make both so")
        if one.classes.dtype.kind != first.classes.dtype.kind:
            raise wrong(
                k, f"its labels are of another kind than those of shard {k0}; labels must be all "
                "strings or all integers",
            )  # fmt: skip


def _add_up(surveys: list[ShardSurvey], names, classes, n_features: int):
    # Counts, support and magnitudes, with the columns and labels of the whole data.
    L = len(classes)
    column = None if names is None else dict(zip(names, range(n_features)))
    counts = np.zeros(n_features, dtype=np.int64) if surveys[0].is_sparse else None
    seen, transition = np.zeros((n_features, L), dtype=bool), np.zeros((L, L), dtype=bool)
    start, end = np.zeros((2, L), dtype=bool)
    largest = None if all(one.largest is None for one in surveys) else np.zeros(n_features)
    for one in surveys:
        j = encode_labels(one.classes, classes)
        at = np.arange(n_features)
        if column is not None:
            at = np.array([column[name] for name in one.attributes], dtype=np.intp)
        if counts is not None:
            counts[at] += one.counts
        if largest is not None:
            found = one.counts > 0 if one.largest is None else one.largest
            largest[at] = np.maximum(largest[at], found)
        feature, label = np.divmod(one.support.pairs, len(one.classes))
        seen[at[feature], j[label]] = True
        transition[np.ix_(j, j)] |= one.support.transition
        start[j] |= one.support.start
        end[j] |= one.support.end
    return counts, Support(np.flatnonzero(seen), transition, start, end), largest


# ------------------------------------------------------------------------------------ the sum


def likelihood_of(
    scores: ScoreMap, rows: LabelledRows, classes: np.ndarray, threads: Threads, work=None
) -> LogLikelihood:
    """-log-likelihood of one shard, without penalty; ``scores`` is of the whole data."""
    X = rows.X
    if X.dtype != scores.dtype:
        X = X.with_rows(X.rows.astype(scores.dtype))
    codes = rows.labelled_by(classes)
    return LogLikelihood(scores.for_rows(X), codes, X.offsets, rows.weights, 0.0, threads, work)


def sum_of_shard(part: LogLikelihood, w: np.ndarray) -> tuple[float, np.ndarray]:
    """Value and gradient of one shard; several threads may ask for them at once."""
    scores, chain = part.scores.unshared(), part.scores.chain(w)
    largest = max(block.last - block.first for share in part.shares for block in share)
    work = [Share(largest, scores)]
    mine = LogLikelihood(
        scores, part.y, part.offsets, part.weights, 0.0, Threads(1), work
    )  # fmt: skip
    log_p = mine.add_up(scores.design.weights(scores.state(w)), chain)
    gradient = scores.new_vector()
    store_gradient(scores, work, chain, mine.observed[0], w, gradient, 0.0, mine.threads)
    return -log_p, gradient


def add_sums(*sums: tuple[float, np.ndarray]) -> tuple[float, np.ndarray]:
    """The sum of values and gradients, from the first to the last."""
    gradient = sums[0][1].copy()
    for _, other in sums[1:]:
        gradient += other
    return sum(value for value, _ in sums), gradient


class ShardedLogLikelihood:
    """f(w) = Σ_k f_k(w) + l2 · ‖w‖²₂, f_k being the negative log-likelihood of shard k.

    Value and gradient are those of ``LogLikelihood`` on all sequences together. Shards are added
    up one after the other into the same buffers, so the cost of a shard is that of its rows.

    Parameters
    ----------
    scores : ScoreMap
        Of ``DataSurvey.layout()``: the layout of w, no rows.
    classes : ndarray
    load : callable(k) -> LabelledRows
        Read shard k again.
    filled : list of int
        Shards that have rows.
    longest : int
        Rows of the longest sequence.
    budget, reserve : float
        Bytes for shards as they are worked on. As many of them as leave ``reserve`` for one of
        the others are kept, the others are read again each time.
    l2 : float
    threads : Threads
    named : callable(k) -> context manager
        Turns errors into such that name shard k.

    Notes
    -----
    Memory beside the budget: a buffer as large as the gradient for each thread.
    """

    def __init__(
        self, scores: ScoreMap, classes, load: Callable[[int], LabelledRows], filled: list[int],
        longest: int, budget: float, reserve: float, l2: float, threads: Threads,
        named: Callable[[int], Any],
    ):  # fmt: skip
        self.scores, self.classes, self.load, self.filled = scores, classes, load, filled
        self.room, self.l2, self.threads, self.named = budget - reserve, float(l2), threads, named
        self.longest = longest
        self.work = [Share(max(longest, BLOCK_ROWS), scores) for _ in range(threads.n)]
        self.kept: dict[int, LogLikelihood] = {}
        self.n_evaluations = self.n_reads = 0

    def value_and_gradient(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """f(w); its gradient is written into ``gradient``."""
        scores, chain = self.scores, self.scores.chain(w)
        W, log_p, observed = scores.design.weights(scores.state(w)), 0.0, 0.0
        clear(self.work, self.threads)
        for k in self.filled:
            with self.part(k) as part:
                log_p += part.add_up(W, chain)
                observed = observed + part.observed[0]
            del part
        self.n_evaluations += 1
        ridge = store_gradient(
            scores, self.work, chain, observed, w, gradient, self.l2, self.threads
        )
        return ridge - log_p

    def value(self, w: np.ndarray) -> float:
        """f(w) alone."""
        chain, log_p = self.scores.chain(w), 0.0
        W = self.scores.design.weights(self.scores.state(w))
        for k in self.filled:
            with self.part(k) as part:
                log_p += part.add_up(W, chain, counts=False)
            del part
        self.n_evaluations += 1
        return self.l2 * squared_norm(w) - log_p

    @contextmanager
    def part(self, k: int) -> Iterator[LogLikelihood]:
        """One shard, kept or read; errors inside name it."""
        with self.named(k):
            yield self.kept.get(k) or self._read(k)

    def _read(self, k: int) -> LogLikelihood:
        self.n_reads += 1
        part = likelihood_of(self.scores, self.load(k), self.classes, self.threads, self.work)
        n = part.scores.design.nbytes + part.y.nbytes + 4 * part.offsets.nbytes
        if n <= self.room:
            self.kept[k] = part
            self.room -= n
        return part

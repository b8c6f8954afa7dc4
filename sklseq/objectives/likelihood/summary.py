"""Summary of training data (labels, columns, magnitudes), and the merge of several summaries."""

from collections.abc import Callable
from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from sklseq._lib.checksums import array_checksum, label_checksum, row_checksum
from sklseq.data.labels import encode_labels
from sklseq.data.partial_labels import AllowedLabels
from sklseq.data.sequences import STATE, Sequences
from sklseq.objectives.scores.score_map import (
    Support,
    largest_and_logs,
    observed_support,
    support_of_codes,
)


class LabelledRows(NamedTuple):
    """Labelled rows in memory, without sequences of weight 0.

    Attributes
    ----------
    X : Sequences
    attributes : list of str, or None
        Names of the columns, if rows came as dicts or attribute lists.
    classes : ndarray
        Labels that occur, sorted.
    codes : integer ndarray of shape (n_rows,)
        ``classes[codes]`` are the labels, or the rows of ``table``.
    weights : ndarray of shape (n_sequences,)
    table : bool ndarray of shape (n_codes, n_labels), or None
        See ``AllowedLabels``, if some labels are unknown; sequences with all labels known come
        first.
    """

    X: Sequences
    attributes: list | None
    classes: np.ndarray
    codes: np.ndarray
    weights: np.ndarray
    table: np.ndarray | None = None

    def labelled_by(self, classes: np.ndarray) -> np.ndarray:
        """Label codes with respect to ``classes``, the labels of the whole data."""
        return encode_labels(self.classes, classes)[self.codes]

    def allowed_by(self, classes: np.ndarray) -> AllowedLabels:
        """Codes and table with respect to ``classes``; only if ``table`` is given."""
        n, L = len(self.classes), len(classes)
        table = np.concatenate(
            [np.eye(L, dtype=bool), widen(self.table, self.classes, classes)[n:]]
        )
        code = np.append(encode_labels(self.classes, classes), np.arange(L, len(table)))
        return AllowedLabels(code[self.codes].astype(np.int32), table).join_any()

    def labels_of(self, numbers: np.ndarray) -> list:
        """Labels of some sequences, as in y."""
        choices, at = self.classes, self.X.offsets
        if self.table is not None:
            choices = AllowedLabels(self.codes, self.table).choices(self.classes)
        return [choices[self.codes[at[s] : at[s + 1]]] for s in numbers]

    def checksum(self) -> int:
        """Checksum of all fields, the same in every process."""
        seed = row_checksum(self.X.rows, self.X.shape[1])
        for names in (self.classes, np.array(self.attributes or [], dtype=np.str_)):
            seed = label_checksum(names, seed)
        table = np.zeros(0) if self.table is None else self.table.astype(np.uint8)
        roles = np.zeros(0, np.uint8) if self.X.roles is None else self.X.roles
        for numbers in (self.X.offsets, self.codes.astype(np.int32), self.weights, table, roles):
            seed = array_checksum(numbers, seed)
        return seed

    def again(self, checksum: int, column: dict | None, n_features: int) -> Self:
        """These rows with the columns of the whole data; ValueError if the checksum differs."""
        if self.checksum() != checksum:
            raise ValueError(
                f"it holds other rows, labels or weights than at the first reading (now "
                f"{self.X.n_rows} rows, {self.X.shape[1]} features); a shard must not change."
            )
        if column is None or self.attributes is None:  # or a shard without rows
            return self
        at = np.array([column[name] for name in self.attributes], dtype=np.int64)
        matrix = self.X.rows
        other = type(matrix)((matrix.shape[0], n_features), dtype=matrix.dtype)
        other.indptr, other.data = matrix.indptr, matrix.data
        other.indices = at.astype(matrix.indices.dtype)[matrix.indices]
        return self._replace(X=self.X.with_rows(other))


class Part(NamedTuple):
    """Size and checksum of one part of the data.

    Attributes
    ----------
    n_rows : int
    n_bytes : int
        Memory for work on the part: the rows as read, and in the layout for kernels.
    checksum : int
    lengths, weights : ndarray of shape (n_sequences,)
    """

    n_rows: int
    n_bytes: int
    checksum: int
    lengths: np.ndarray
    weights: np.ndarray


class Summary(NamedTuple):
    """Properties of the training data that determine the layout of w.

    Attributes
    ----------
    classes : ndarray of shape (n_labels,)
    n_rows, longest : int
        Total number of rows, and rows of the longest sequence.
    n_features : int
    is_sparse : bool
        Whether w is laid out for sparse rows.
    single : bool
        Whether all values are float32.
    support : Support
        Observed (feature, label) pairs, transitions, starts and ends; in a shard with unknown
        labels, with codes in place of labels.
    largest : ndarray of shape (n_features,), or None
        Largest magnitude of each feature; None if all are near 1.
    logs : ndarray of shape (2, n_features), or None
        Usual magnitudes of features, see :func:`largest_and_logs`; None without ``largest``.
    counts : ndarray of shape (n_features,), or None
        Occurrences of each feature in sparse rows that are not all in memory.
    attributes : list of str, or None
        Names of the columns, if rows came as dicts or attribute lists.
    parts : tuple of Part
        The shards, if the data are in shards.
    table : ndarray, or None
        ``LabelledRows.table`` of a shard.
    roles : ndarray of shape (n_features,), or None
        ``Sequences.roles`` of the columns of shards.
    """

    classes: np.ndarray
    n_rows: int
    longest: int
    n_features: int
    is_sparse: bool
    single: bool
    support: Support
    largest: np.ndarray | None
    logs: np.ndarray | None = None
    counts: np.ndarray | None = None
    attributes: list | None = None
    parts: tuple[Part, ...] = ()
    table: np.ndarray | None = None
    roles: np.ndarray | None = None

    @property
    def dtype(self) -> np.dtype:
        """Type of the weights."""
        return np.dtype(np.float32 if self.single else np.float64)

    def layout(self) -> Sequences:
        """Sequences without rows that have the columns and type of the data."""
        make = sparse.csr_matrix if self.is_sparse else np.zeros
        return Sequences(make((0, self.n_features), dtype=self.dtype), [0])

    def for_single_sequences(self) -> Self:
        """Summary for CSR rows in float64, the form for solvers that update per sequence."""
        counts = np.zeros(self.n_features, np.int64) if self.counts is None else self.counts
        return self._replace(is_sparse=True, single=False, counts=counts)


def summarise_rows(X: Sequences, classes: np.ndarray, support: Support) -> Summary:
    return Summary(
        classes, X.n_rows, int(X.lengths.max(initial=0)), X.shape[1], X.is_sparse,
        X.dtype == np.float32, support, *largest_and_logs(X.rows),
    )  # fmt: skip


def summarise_shard(shard: LabelledRows) -> Summary:
    """Summary of one shard, with its own columns and labels."""
    X, rows = shard.X, shard.X.rows
    n_bytes, counts = rows.nbytes if not X.is_sparse else 0, None
    if X.is_sparse:
        n_bytes = 2 * (rows.data.nbytes + rows.indices.nbytes + rows.indptr.nbytes)
        counts = np.bincount(rows.indices, minlength=X.shape[1])
    part = Part(X.n_rows, n_bytes, shard.checksum(), X.lengths, shard.weights)
    n_codes = len(shard.classes if shard.table is None else shard.table)
    support = observed_support(X, shard.codes, n_codes)
    return summarise_rows(X, shard.classes, support)._replace(
        counts=counts, attributes=shard.attributes, parts=(part,), table=shard.table, roles=X.roles
    )


def widen(table: np.ndarray, classes: np.ndarray, every: np.ndarray) -> np.ndarray:
    """``table``, with columns for ``classes``, extended to columns for ``every`` class."""
    wide = np.zeros((len(table), len(every)), dtype=bool)
    wide[:, encode_labels(classes, every)] = table
    wide[len(classes) : len(classes) + 1] = True
    return wide


def merge_summaries(summaries: list[Summary], wrong: Callable[[int, str], Exception]) -> Summary:
    """Merge the summaries of all shards.

    Parameters
    ----------
    summaries : list of Summary
    wrong : callable(k, why) -> exception
        Error to raise if shard k does not fit the shards before it.
    """
    filled = [(k, one) for k, one in enumerate(summaries) if one.n_rows]
    if not filled:
        raise ValueError(
            f"X must hold at least one row of positive weight; got {len(summaries)} shards with 0 "
            "such rows in all."
        )
    _check_alike(filled, wrong)
    used, names = [one for _, one in filled], None
    classes = used[0].classes
    for one in used[1:]:
        classes = np.union1d(classes, one.classes)
    if used[0].attributes is not None:
        names = list(dict.fromkeys(name for one in used for name in one.attributes))
    n_features = used[0].n_features if names is None else len(names)
    if n_features == 0:
        raise ValueError("X must have at least one feature; got 0.")
    counts, support, largest, logs = _add_up(used, names, classes, n_features)
    return Summary(
        classes, sum(one.n_rows for one in used), max(one.longest for one in used), n_features,
        used[0].is_sparse, all(one.single for one in used), support, largest, logs, counts, names,
        tuple(part for one in summaries for part in one.parts), roles=used[0].roles,
    )  # fmt: skip


def _check_alike(filled: list, wrong: Callable[[int, str], Exception]) -> None:
    k0, first = filled[0]
    for k, one in filled[1:]:
        if (one.attributes is None) != (first.attributes is None):
            raise wrong(k, f"only one of shards {k0} and {k} holds dicts or attribute lists")
        if one.attributes is None and one.n_features != first.n_features:
            raise wrong(
                k,
                f"it has {one.n_features} features, shard {k0} has {first.n_features}; all "
                "shards must have the same columns",
            )
        if not _same_roles(one, first):
            raise wrong(
                k,
                f"its columns have other roles than those of shard {k0}; make all shards with the "
                "same templates or transition_features",
            )
        if one.is_sparse != first.is_sparse:
            raise wrong(k, f"only one of shards {k0} and {k} is sparse; make both so")
        if one.classes.dtype.kind != first.classes.dtype.kind:
            raise wrong(
                k,
                f"its labels are of another kind than those of shard {k0}; labels must be all "
                "strings or all integers",
            )


def _same_roles(one: Summary, other: Summary) -> bool:
    # No roles at all are those of state weights.
    a, b = (STATE if x.roles is None else x.roles for x in (one, other))
    return bool(np.all(a == b))


def _add_up(summaries: list[Summary], names, classes, n_features: int):
    # Counts, support and magnitudes, with the columns and labels of the whole data.
    L = len(classes)
    column = None if names is None else dict(zip(names, range(n_features)))
    counts = np.zeros(n_features, dtype=np.int64) if summaries[0].is_sparse else None
    seen, transition = np.zeros((n_features, L), dtype=bool), np.zeros((L, L), dtype=bool)
    start, end = np.zeros((2, L), dtype=bool)
    alike = all(one.largest is None for one in summaries)
    largest, logs = (None, None) if alike else (np.zeros(n_features), np.zeros((2, n_features)))
    for one in summaries:
        at = np.arange(n_features)
        if column is not None:
            at = np.array([column[name] for name in one.attributes], dtype=np.intp)
        if counts is not None:
            counts[at] += one.counts
        if largest is not None:
            own = one.counts > 0 if one.largest is None else one.largest
            largest[at] = np.maximum(largest[at], own)
            logs[:, at] += [0 * one.counts, one.counts] if one.logs is None else one.logs
        n = len(one.classes)
        table = np.eye(n, dtype=bool) if one.table is None else one.table
        found = support_of_codes(one.support, widen(table, one.classes, classes), n)
        feature, label = np.divmod(found.pairs, L)
        seen[at[feature], label] = True
        transition |= found.transition
        start |= found.start
        end |= found.end
    return counts, Support(np.flatnonzero(seen), transition, start, end), largest, logs

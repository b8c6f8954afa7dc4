"""Transition features: weights of (feature, label, next label), and transition scores of rows.

``_entries.pyx`` has the formulas.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import offsets_of, ranges
from sklseq.data.partial_labels import AllowedLabels
from sklseq.data.sequences import Sequences, row_positions
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.objectives.scores.row_entries import (
    EntryBuffers,
    RowEntries,
    ranked_columns,
    triple_support,
)

if TYPE_CHECKING:
    from sklseq.inference.chain.linear_chain import Transitions

# Multipliers of a hash of rows: odd random numbers of 64 bits.
MIXERS = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)


def select_columns(
    X: Sequences, columns: np.ndarray, zeros: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(indptr, indices, data) of some columns, renumbered in their order.

    ``zeros``: whether zeros that sparse rows store are kept.
    """
    rows = X.rows
    if X.n_rows == 0:  # X may have no columns then
        return np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0)
    if not X.is_sparse:
        return dense_columns(rows, columns)
    rank = np.full(rows.shape[1], -1, dtype=np.int32)
    rank[columns] = np.arange(len(columns))
    return ranked_columns(rows.indptr, rows.indices, rows.data, rank, zeros)


def dense_columns(
    rows: np.ndarray, columns: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """:func:`select_columns` for a dense array."""
    part = sparse.csr_matrix(np.asarray(rows[:, columns], dtype=np.float64))
    return part.indptr.astype(np.int64), part.indices.astype(np.int32), part.data


def row_kinds(indptr: np.ndarray, indices: np.ndarray, data: np.ndarray) -> np.ndarray:
    """A number for each row, from 0 on; rows with equal entries have the same number."""
    lengths, n = np.diff(indptr), len(indptr) - 1
    filled = np.flatnonzero(lengths)
    mixed = (data.view(np.uint64) + indices.astype(np.uint64) * MIXERS[0]) * MIXERS[1]
    mixed = (mixed ^ (mixed >> np.uint64(31))) * MIXERS[2]
    keys = np.zeros(n, dtype=np.uint64)
    keys[filled] = np.add.reduceat(mixed, indptr[filled]) if len(filled) else 0
    _, first, kinds = np.unique(keys, return_index=True, return_inverse=True)
    like = first[kinds]
    if (lengths == lengths[like]).all():
        at = ranges(indptr[like], lengths)
        if (indices == indices[at]).all() and (data == data[at]).all():
            return kinds.astype(np.int32)
    return np.arange(n, dtype=np.int32)  # two different rows have the same hash


def observed_triples(X: Sequences, columns: np.ndarray, y: np.ndarray, L: int) -> np.ndarray:
    """The triples (column · L + i) · L + j of the training data, sorted.

    Parameters
    ----------
    X : Sequences
    columns : ndarray, sorted
        Columns of transition features.
    y : ndarray of shape (n_rows,)
    L : int
        Number of labels.
    """
    return triples_of_pairs(X, columns, _pairs_before(X.offsets, y, L), L)


def triples_of_pairs(X: Sequences, columns: np.ndarray, pairs: np.ndarray, L: int) -> np.ndarray:
    """The triples of columns and of the pair i · L + j of each row (-1: none), sorted."""
    indptr, indices, _ = select_columns(X, columns, zeros=True)
    return np.unique(_triples_of(indptr, indices, pairs, columns, L)[1])


def triples_of(coef: sparse.csr_matrix) -> np.ndarray:
    """The triples of the entries of ``transition_coef_``."""
    feature = np.repeat(np.arange(coef.shape[0]), np.diff(coef.indptr))
    return feature * coef.shape[1] + coef.indices


def possible_triples(columns: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """The triples of the columns with all transitions of a mask (L, L), sorted."""
    pairs = np.flatnonzero(transition)
    return (columns.astype(np.int64)[:, None] * transition.size + pairs).reshape(-1)


def allowed_triples(X: Sequences, columns: np.ndarray, labels: AllowedLabels) -> np.ndarray:
    """The triples that partial labels allow, sorted."""
    keys = observed_triples(X, columns, labels.codes, len(labels.table))
    return triples_of_codes(keys, labels.table)


def triples_of_codes(keys: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The triples that (column · n_codes + code) · n_codes + next code allow, sorted.

    Rows of unknown label, whose code is ``n_labels``, add none.
    """
    (n, L), found = table.shape, [np.zeros(0, dtype=np.int64)]
    column, pair = np.divmod(keys, n**2)
    order = np.argsort(pair, kind="stable")
    pairs, first = np.unique(pair[order], return_index=True)
    for codes, columns in zip(pairs.tolist(), np.split(column[order], first[1:])):
        before, after = divmod(codes, n)
        if L not in (before, after):
            found.append(possible_triples(columns, np.outer(table[before], table[after])))
    return np.unique(np.concatenate(found))


def _pairs_before(offsets: np.ndarray, y: np.ndarray, L: int) -> np.ndarray:
    # i · L + j where a row has label j and the row before it label i; -1 at first rows.
    pairs = np.full(len(y), -1, dtype=np.int64)
    _, _, after = row_positions(offsets)
    pairs[after] = y[after - 1].astype(np.int64) * L + y[after]
    return pairs


def _triples_of(indptr, indices, pairs, columns, L: int) -> tuple[np.ndarray, np.ndarray]:
    # (mask of the entries of rows with a pair, triples of these entries).
    pair = np.repeat(pairs, np.diff(indptr))
    kept = pair >= 0
    return kept, columns[indices[kept]].astype(np.int64) * (L * L) + pair[kept]


class TransitionFeatures:
    """A and its transpose for the weights v of (feature, label, next label).

    Parameters
    ----------
    X : Sequences
    triples : int64 ndarray of (feature · L + label) · L + next label, sorted
    n_labels : int
    dtype : numpy dtype
        Type of v.
    sets : bool, default=True
        Whether rows with equal features share their entries, which are then computed once.

    Attributes
    ----------
    n_weights : int
        Length of v, which is in the order of ``triples``.
    columns : ndarray
        Columns that have weights, sorted.
    highest : float
        Largest score of an entry in the previous evaluation, which scales the factors of the next.
    """

    def __init__(
        self, X: Sequences, triples: np.ndarray, n_labels: int, dtype: Any, sets: bool = True
    ):
        self.triples, self.n_labels, self.dtype = triples, n_labels, np.dtype(dtype)
        self.sets = sets
        self.n_weights, self.highest = len(triples), -np.inf
        self.columns, self.support = triple_support(triples, n_labels)
        self._set_rows(select_columns(X, self.columns))

    @classmethod
    def of_coef(cls, X: Sequences, coef: sparse.csr_matrix, n_labels: int) -> TransitionFeatures:
        """Features of ``transition_coef_`` of a fitted model; v is ``coef.data``."""
        return cls(X, triples_of(coef), n_labels, coef.dtype, False)

    def entries(
        self, v: np.ndarray, shared: np.ndarray, first: int, offsets: np.ndarray
    ) -> tuple[RowTransitions | None, float]:
        """Transition scores as from :meth:`fill`, in new memory, and the largest of them."""
        buffers = self.buffers([(first, first + int(offsets[-1]))], sums=False)
        return self.fill(v, shared, first, offsets, buffers), buffers.highest

    def entries_of_parts(
        self, v: np.ndarray, shared: np.ndarray, offsets: np.ndarray, continued: np.ndarray
    ) -> tuple[RowTransitions | None, float]:
        """:meth:`entries` of parts of sequences.

        The first row of a part that is ``continued`` has a row before it, so it has entries too.
        """
        starts = offsets[:-1][continued]
        indptr, indices, data = self.rows
        # Rows without features stand for the rows before the parts.
        other = self.for_columns((np.insert(indptr, starts, indptr[starts]), indices, data))
        offsets = offsets + offsets_of(continued)
        rows, top = other.entries(v, shared, 0, offsets)
        if rows is not None:
            rows.indptr = np.delete(rows.indptr, offsets[:-1][continued])
        return rows, top

    def _set_rows(self, rows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
        self.rows = rows
        kind = row_kinds(*rows) if self.sets else None
        self.row_entries = RowEntries(rows, self.support, self.n_labels, kind)

    @property
    def feature(self) -> np.ndarray:
        """Column of each weight."""
        return np.repeat(self.columns, np.diff(self.support[0]))

    @property
    def before(self) -> np.ndarray:
        """Upper bound of the number of entries before each row."""
        return self.row_entries.before

    def for_rows(self, X: Sequences) -> TransitionFeatures:
        """A copy with the same weights for other rows."""
        return self.for_columns(select_columns(X, self.columns))

    def in_double(self) -> TransitionFeatures:
        """A copy that computes in float64."""
        other = copy(self)
        other.dtype = np.dtype(np.float64)
        return other

    def for_columns(self, rows: tuple[np.ndarray, np.ndarray, np.ndarray]) -> TransitionFeatures:
        """A copy for other rows, given as by :func:`select_columns`."""
        other = copy(self)
        other._set_rows(rows)
        return other

    def buffers(self, blocks: list[tuple[int, int]], sums: bool = True) -> EntryBuffers:
        """Buffers for the entries of any of these runs of rows, and for sums of weights."""
        return self.row_entries.buffers(blocks, self.dtype, self.n_weights if sums else 0)

    def reserve(self, blocks: list[tuple[int, int]], buffers: EntryBuffers) -> None:
        """Make room in ``buffers``, which other rows use too, for these runs of rows."""
        self.row_entries.reserve(blocks, buffers)

    @property
    def nbytes(self) -> int:
        """Memory of the rows."""
        arrays = *self.rows, self.before
        return sum(x.nbytes for x in arrays) + 4 * self.sets * len(self.before)

    def fill(
        self, v: np.ndarray, shared: np.ndarray, first: int, offsets: np.ndarray,
        buffers: EntryBuffers, chain: Transitions | None = None,
    ) -> RowTransitions | None:  # fmt: skip
        """Transition scores of sequences that begin at row ``first``; see ``RowEntries.fill``."""
        return self.row_entries.fill(v, shared, first, offsets, buffers, chain)

    def collect(self, rows: RowTransitions, buffers: EntryBuffers) -> None:
        """Add ``rows.expected``, times features, to ``buffers.sums``."""
        self.row_entries.collect(rows, rows.expected, buffers, buffers.sums)

    def observed(
        self, offsets: np.ndarray, y: np.ndarray, weights: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(numbers of weights, Σ_t weight · x_t(f) over rows with label j after label i), where the
        sum of (f, i, j) is not empty.

        ``offsets``, ``y`` and ``weights`` are those of the first sequences.
        """
        row, weight, value = self.of_labels(offsets, y)
        of_row = np.repeat(weights, np.diff(offsets))
        at, group = np.unique(weight, return_inverse=True)
        return at, np.bincount(group, value * of_row[row], minlength=len(at))

    def of_labels(
        self, offsets: np.ndarray, y: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(row, number of a weight, x_t(f)) for each weight that labels y of the first rows use."""
        n_rows = int(offsets[-1])
        pairs = _pairs_before(offsets, y[:n_rows], self.n_labels)
        return self.of_pairs(np.arange(n_rows), pairs)

    def of_pairs(
        self, rows: np.ndarray, pairs: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(k, number of a weight, x(f)) for each weight of row ``rows[k]`` and ``pairs[k]``.

        Pairs are i · n_labels + j, or -1 for none.
        """
        start, indices, data = self.rows
        counts = np.diff(start)[rows]
        entries, k = ranges(start[rows], counts), np.repeat(np.arange(len(rows)), counts)
        of_rows = offsets_of(counts), indices[entries]
        kept, triples = _triples_of(*of_rows, pairs, self.columns, self.n_labels)
        at, found = self.places_of(triples)
        return k[kept][found], at[found], data[entries[kept][found]]

    def places_of(self, triples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(number of the weight of each triple, or any number; whether it has a weight)."""
        at = np.minimum(np.searchsorted(self.triples, triples), max(self.n_weights - 1, 0))
        if not self.n_weights:
            return at, np.zeros(len(triples), dtype=bool)
        return at, self.triples[at] == triples

    def unpack(self, v: np.ndarray, n_features: int) -> sparse.csr_matrix:
        """v as a matrix (n_features, n_labels²), without zeros."""
        start, i, j = self.support
        kept = np.flatnonzero(v)
        counts = np.zeros(n_features, dtype=np.intp)
        counts[self.columns] = np.diff(np.searchsorted(kept, start))
        pair = i[kept].astype(np.int64) * self.n_labels + j[kept]
        shape = n_features, self.n_labels**2
        return sparse.csr_matrix((v[kept], pair, offsets_of(counts)), shape=shape)

    def pack(self, coef: sparse.csr_matrix) -> np.ndarray:
        """The inverse of :meth:`unpack`; weights that are not trained are dropped."""
        v = np.zeros(self.n_weights, dtype=self.dtype)
        at, found = self.places_of(triples_of(coef))
        v[at[found]] = coef.data[found]
        return v


class BlockFeatures:
    """Transition features with weights v, for rows in blocks (``block_sequence.py``).

    Parameters
    ----------
    features : TransitionFeatures
        With dtype float64; its rows are not used.
    v : ndarray of shape (n_weights,)
    shared : float64 ndarray of shape (>= L, >= L)
        A.
    n_features : int

    Attributes
    ----------
    highest : float
        Largest score of the entries computed so far.
    """

    def __init__(
        self, features: TransitionFeatures, v: np.ndarray, shared: np.ndarray, n_features: int
    ):
        self.features, self.v, self.shared = features, v.astype(np.float64), shared
        self.highest = -np.inf
        self.rank = np.full(n_features, -1, dtype=np.int32)
        self.rank[features.columns] = np.arange(len(features.columns))

    def of_block(self, block: Any, first: bool) -> EntriesOfBlock:
        """Entries of a part of a sequence; ``first``: whether it begins the sequence."""
        indptr, indices, data = block.select(self.features.columns, self.rank)
        if not first:  # a row without features stands for the row before
            indptr = np.append(0, indptr)
        return self._entries((indptr, indices, data), np.array([0, len(indptr) - 1]), not first)

    def of_sequences(self, block: Any, offsets: np.ndarray) -> EntriesOfBlock:
        return self._entries(block.select(self.features.columns, self.rank), offsets, False)

    def _entries(self, rows: tuple, offsets: np.ndarray, skip: int) -> EntriesOfBlock:
        return EntriesOfBlock(self, self.features.for_columns(rows), offsets, skip)


class EntriesOfBlock:
    """Entries of the rows of a block; implements ``BlockEntries``.

    Parameters
    ----------
    model : BlockFeatures
    features : TransitionFeatures
        Features of the rows.
    offsets : int64 ndarray
        Limits of the sequences in the rows.
    skip : int
        Number of rows to leave out at the beginning.
    """

    expected: np.ndarray

    def __init__(
        self, model: BlockFeatures, features: TransitionFeatures, offsets: np.ndarray, skip: int
    ):
        self.model, self.features, self.offsets, self.skip = model, features, offsets, skip
        self.clear()

    def clear(self) -> None:
        """Free the arrays that :meth:`fill` makes."""
        self.rows: RowTransitions | None = None
        self.buffers: EntryBuffers | None = None

    def fill(self) -> None:
        """Make ``rows``, None if there are no entries."""
        model, n = self.model, int(self.offsets[-1])
        self.buffers = self.features.buffers([(0, n)], sums=False)
        rows = self.features.fill(model.v, model.shared, 0, self.offsets, self.buffers)
        self.rows = None if rows is None else rows.part(self.skip, n)
        model.highest = max(model.highest, self.buffers.highest)

    def with_expected(self, R: int = 1) -> RowTransitions | None:
        """``rows``, with zeros in ``expected``."""
        if self.rows is not None:
            self.expected = np.zeros((R, len(self.rows.score)))
            self.rows.expected = self.expected.reshape(-1)
        return self.rows

    def collect(self, out: np.ndarray) -> None:
        """Add ``expected``, (R, n_entries), times features, to ``out``, (R, n_weights)."""
        if (rows := self.rows) is not None:
            for expected, sums in zip(self.expected, out):
                self.features.row_entries.collect(rows, expected, self.buffers, sums)

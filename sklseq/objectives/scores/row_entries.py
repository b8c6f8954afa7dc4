"""Transition scores of rows with transition features, for training and for exported models.

Needs NumPy only. ``_entries.pyx`` has the formulas.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from sklseq._lib.cpu import load_kernel
from sklseq._lib.ragged import offsets_of
from sklseq.inference.chain.row_transitions import RowTransitions, SetFactors

if TYPE_CHECKING:
    from sklseq.inference.chain.linear_chain import Transitions

_entries = load_kernel("sklseq.objectives.scores._entries")


def ranked_columns(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, rank: np.ndarray,
    zeros: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """(indptr, indices, data) of selected columns of CSR rows, without stored zeros by default.

    ``rank``: the new number of each column, or -1 if it is not selected.
    """
    indices = rank[indices]
    kept = indices >= 0
    if not zeros:
        kept &= data != 0
    indptr = offsets_of(kept)[indptr]
    return indptr, indices[kept], data[kept].astype(np.float64)


def quotients(numbers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """np.divmod of integers >= 0 by one number; NumPy divides alone several times as fast."""
    found = numbers // size
    rest = found * size
    return found, np.subtract(numbers, rest, out=rest)


def pair_support(counts: np.ndarray, pairs: np.ndarray, n_labels: int) -> tuple:
    """(start, label, next label) of the weights of each column, as ``_entries.Links`` reads them.

    ``counts``: weights of each column; ``pairs``: label · n_labels + next label of each weight.
    """
    start = offsets_of(counts)
    return start, *(x.astype(np.uint16) for x in quotients(pairs, n_labels))


def triple_support(triples: np.ndarray, n_labels: int) -> tuple[np.ndarray, tuple]:
    """Columns f of sorted triples (f · n_labels + i) · n_labels + j, and their `pair_support`."""
    n = len(triples)
    most = min(n, int(triples[-1]) // n_labels**2 + 1) if n else 0
    columns, start = np.empty(most, np.int64), np.empty(most + 1, np.int64)
    labels = np.empty(n, np.uint16), np.empty(n, np.uint16)
    n_columns = _entries.split_triples(triples, n_labels, columns, start, *labels)
    return columns[:n_columns], (start[: n_columns + 1], *labels)


def set_zero(x: np.ndarray) -> None:
    """Fill a contiguous array with zeros: byte by byte, which takes NumPy half the time."""
    x.view(np.uint8)[:] = 0


class EntryBuffers:
    """Memory of one thread for the entries of a block of rows, and for sums of its weights.

    Parameters
    ----------
    n_labels : int
    dtype : numpy dtype
        Type of scores.
    n_sums : int
        Number of weights whose sums are kept; 0: no expectations of entries are computed.
    """

    def __init__(self, n_labels: int, dtype: Any, n_sums: int = 0):
        self.dtype = dtype
        self.place = np.empty(n_labels**2, dtype=np.int32)
        self.sums = np.zeros(n_sums)
        self.highest = -np.inf
        self._allocate(0, 0, 0)

    def _allocate(self, n_rows: int, n_entries: int, n_kinds: int) -> None:
        self.sizes = n_rows, n_entries, n_kinds
        self.indptr = np.zeros(n_rows + 2, dtype=np.int64)
        self.row_of_set = np.zeros(n_rows + 1, dtype=np.int64)
        self.of_row = np.empty(n_rows, dtype=np.int32)
        self.set_of_kind = np.full(n_kinds, -1, dtype=np.int32)
        self.i, self.j = np.empty((2, n_entries), dtype=np.int32)
        self.n_matrices = 0  # of the last call of `Links.fill`
        self.score = np.empty(n_entries, dtype=self.dtype)
        self.expected = np.empty(n_entries if len(self.sums) else 0)
        self.matrices = np.empty(0, dtype=self.dtype)  # of sets, see `RowEntries.fill`

    def reserve(self, *sizes: int) -> None:
        """Make room for blocks of so many rows, entries and kinds of rows; sums are kept."""
        if any(new > old for new, old in zip(sizes, self.sizes)):
            self._allocate(*map(max, sizes, self.sizes))

    def clear(self) -> None:
        """Reset the sums for another evaluation."""
        set_zero(self.sums)
        self.highest = -np.inf


class RowEntries:
    """Features of rows, linked to the pairs of labels for which each feature has a weight.

    Parameters
    ----------
    rows : (indptr, indices, data)
        As :func:`ranked_columns` returns them.
    support : tuple
        As :func:`pair_support` returns it.
    n_labels : int
    kind : int32 ndarray of shape (n_rows,), optional
        A number for each row. Rows of one number have equal features; their entries are computed
        once in a call of :meth:`fill`.

    Attributes
    ----------
    links : Links
    n_kinds : int
    before : ndarray of shape (n_rows + 1,)
        Upper bound of the number of entries before each row.
    """

    def __init__(self, rows: tuple, support: tuple, n_labels: int, kind: Any = None):
        self.given = rows, support, n_labels, kind
        self.n_labels, self.shares = n_labels, kind is not None
        self.links = _entries.Links(rows, kind, support, n_labels)
        self.n_kinds = 0 if kind is None or not len(kind) else int(kind.max()) + 1
        indptr, indices, _ = rows
        most, pairs = np.diff(support[0]), n_labels**2
        counts = np.diff(offsets_of(most[indices])[indptr])
        self.whole = self.shares and bool((most == pairs).all())
        # A row with half of the pairs gets all of them.
        self.before = offsets_of(np.where(2 * counts < pairs, counts, pairs))

    def __reduce__(self):
        return RowEntries, self.given  # compiled links cannot be pickled

    def buffers(self, blocks: list[tuple[int, int]], dtype: Any, n_sums: int = 0) -> EntryBuffers:
        """Buffers for the entries of any of these runs of rows, and for sums of weights."""
        buffers = EntryBuffers(self.n_labels, dtype, n_sums)
        self.reserve(blocks, buffers)
        return buffers

    def reserve(self, blocks: list[tuple[int, int]], buffers: EntryBuffers) -> None:
        """Make room in ``buffers`` for the entries of any of these runs of rows."""
        n_rows = max((b - a for a, b in blocks), default=0)
        n_entries = max((int(self.before[b] - self.before[a]) for a, b in blocks), default=0)
        buffers.reserve(n_rows, n_entries, self.n_kinds)

    def fill(
        self, v: np.ndarray, shared: np.ndarray, first: int, offsets: np.ndarray,
        buffers: EntryBuffers, chain: Transitions | None = None,
    ) -> RowTransitions | None:  # fmt: skip
        """Transition scores of sequences that begin at row ``first``; None: no entries.

        ``offsets`` cut the rows into sequences and are counted from ``first``. If ``chain``, with
        the scores ``shared``, is given and each feature has weights for all pairs, factors are
        computed at once, and scores when they are asked for.
        """
        last, L = first + int(offsets[-1]), self.n_labels
        if self.before[first] == self.before[last]:
            return None
        given, factors = (first, offsets, v, shared), None
        if chain is not None and self.whole and chain.width >= 8:
            n = min(self.n_kinds, last - first) + 1
            if len(buffers.matrices) < n:
                buffers.matrices = np.empty((n, L, chain.width), dtype=buffers.dtype)
            n_sets, n, top, *bounds = self.links.fill_matrices(*given, chain.E, chain.top, buffers)
            fill = partial(self.links.fill, *given, buffers)
            factors = SetFactors(buffers.matrices[:n_sets], chain.top, *bounds, fill)
        else:
            n_sets, n, top = self.links.fill(*given, buffers)
        if n == 0:
            return None
        buffers.highest = max(buffers.highest, top)
        entries, expected = (buffers.i[:n], buffers.j[:n], buffers.score[:n]), None
        if len(buffers.expected):
            expected = buffers.expected[:n]
            set_zero(expected)
        rows = RowTransitions.unchecked(
            shared[:L, :L], buffers.indptr[: n_sets + 1], *entries, expected
        )
        rows.of_row, rows.ordered = buffers.of_row[: last - first] if self.shares else None, True
        rows.factors = factors
        return rows

    def collect(
        self, rows: RowTransitions, expected: np.ndarray, buffers: EntryBuffers, out: np.ndarray
    ) -> None:
        """Add ``expected`` of the entries from :meth:`fill`, times their features, to ``out``."""
        self.links.collect(rows.indptr, rows.i, rows.j, expected, buffers, out)

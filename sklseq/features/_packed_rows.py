"""Sparse rows of features of all sequences in NumPy arrays, without SciPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklseq.data import _row_join


class PackedRows(NamedTuple):
    """Sparse rows of several sequences, one after the other.

    Attributes
    ----------
    indptr : ndarray of int64, of shape (n_rows + 1,)
    indices : ndarray of int32, of shape (n_entries,)
        Columns, in the order in which an extractor gives them.
    values : ndarray of shape (n_entries,), or None
        None: all are 1.
    n_columns : int
    offsets : ndarray of int64, of shape (n_sequences + 1,)
        Sequence s is rows ``offsets[s]`` to ``offsets[s + 1]``.
    lists : PackedRows or None
        Lists of columns that many rows share: entries of ``indices`` are numbers of these lists,
        whose columns take their place, and all values are 1.
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray | None
    n_columns: int
    offsets: np.ndarray
    lists: PackedRows | None = None

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    def plain(self) -> PackedRows:
        """Return the same rows without ``lists``."""
        if (lists := self.lists) is None:
            return self
        indices, indptr = _row_join.multiply_ones(
            self.indptr, self.indices, lists.indptr, lists.indices
        )
        return PackedRows(indptr, indices, None, self.n_columns, self.offsets)

    def beside(self, other: PackedRows) -> PackedRows:
        """Return rows with the columns of both, those of ``other`` last."""
        a, b = self.plain(), other.plain()
        indptr, indices = join_rows(a.indptr, a.indices, b.indptr, b.indices, a.n_columns)
        values = a.values
        if values is not None or b.values is not None:
            mine, others = (
                np.ones(len(x.indices)) if x.values is None else x.values for x in (a, b)
            )
            values = join_values(mine, a.indptr, others, b.indptr)
        return PackedRows(indptr, indices, values, a.n_columns + b.n_columns, a.offsets)


def join_rows(
    a_ends: np.ndarray, a: np.ndarray, b_ends: np.ndarray, b: np.ndarray, shift: int
) -> tuple[np.ndarray, np.ndarray]:
    """Join each row of a and the same row of b, whose columns are raised by ``shift``."""
    indptr, indices = a_ends + b_ends, np.empty(len(a) + len(b), dtype=np.int32)
    at = indptr[:-1].copy()
    _row_join.place_rows(a_ends, a, 0, at, indices)
    _row_join.place_rows(b_ends, b.astype(np.int32, copy=False), shift, at, indices)
    return indptr, indices


def join_values(a: np.ndarray, a_ends: np.ndarray, b: np.ndarray, b_ends: np.ndarray) -> np.ndarray:
    """Return the values of the rows that ``join_rows`` joins."""
    out = np.empty(len(a) + len(b), dtype=np.result_type(a, b))
    out[np.arange(len(a)) + np.repeat(b_ends[:-1], np.diff(a_ends))] = a
    out[np.arange(len(b)) + np.repeat(a_ends[1:], np.diff(b_ends))] = b
    return out

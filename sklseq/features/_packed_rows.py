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
    """

    indptr: np.ndarray
    indices: np.ndarray
    values: np.ndarray | None
    n_columns: int
    offsets: np.ndarray

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1

    def times(self, lists: PackedRows) -> PackedRows:
        """Return rows of ones with the columns of those rows of ``lists`` that are columns here."""
        indices, indptr = _row_join.multiply_ones(
            self.indptr, self.indices, lists.indptr, lists.indices
        )
        return PackedRows(indptr, indices, None, lists.n_columns, self.offsets)

    def beside(self, other: PackedRows) -> PackedRows:
        """Return rows with the columns of both, those of ``other`` last."""
        indptr, indices = join_rows(
            self.indptr, self.indices, other.indptr, other.indices, self.n_columns
        )
        values = self.values
        if values is not None or other.values is not None:
            mine, others = (
                np.ones(len(r.indices)) if r.values is None else r.values for r in (self, other)
            )
            values = join_values(mine, self.indptr, others, other.indptr)
        return PackedRows(indptr, indices, values, self.n_columns + other.n_columns, self.offsets)


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

"""CSR rows whose values are all 1, as views of one shared array."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from scipy import sparse

from sklseq.data import _row_join

# Arrays up to this length are kept for later calls; longer ones only while rows refer to them.
KEPT = 1 << 20
_kept: dict[np.dtype, np.ndarray] = {}
_borrowed: WeakValueDictionary[np.dtype, np.ndarray] = WeakValueDictionary()


def _ones(n: int, dtype: np.dtype) -> np.ndarray:
    for store in (_kept, _borrowed):
        ones = store.get(dtype)
        if ones is not None and len(ones) >= n:
            return ones[:n]
    ones = np.ones(max(n, min(KEPT, 2 * n)), dtype=dtype)
    ones.flags.writeable = False
    (_kept if len(ones) <= KEPT else _borrowed)[dtype] = ones
    return ones[:n]


class OnesMatrix(sparse.csr_matrix):
    """CSR matrix with read-only values; methods that work in place copy them first."""

    def _own(self) -> None:
        if not self.data.flags.writeable:
            self.data = self.data.copy()

    def sort_indices(self) -> None:
        """Sort the column numbers of each row, in place."""
        if not self.has_sorted_indices:
            self._own()
            super().sort_indices()

    def sum_duplicates(self) -> None:
        """Add up values of equal column numbers, in place."""
        if not self.has_canonical_format:
            self._own()
            super().sum_duplicates()

    def eliminate_zeros(self) -> None:
        """Drop stored zeros, in place."""
        self._own()
        super().eliminate_zeros()


def rows_of_ones(
    indices: np.ndarray, indptr: np.ndarray, n_columns: int, dtype: Any
) -> sparse.csr_matrix:
    """CSR rows whose stored values are all one, as a view of a shared array.

    Writing a float for every attribute would take as long as finding the attributes.
    """
    # SciPy requires indices and indptr of one type, int32 if possible.
    kind = np.int32 if indptr[-1] <= np.iinfo(np.int32).max else np.int64
    rows = OnesMatrix((len(indptr) - 1, n_columns), dtype=dtype)
    # Set as attributes: the constructor would copy a short view of a long array.
    rows.indptr, rows.indices = indptr.astype(kind), indices.astype(kind, copy=False)
    rows.data = _ones(len(indices), rows.dtype)
    return rows


def all_ones(rows: sparse.csr_matrix) -> bool:
    """Whether rows are an ``OnesMatrix`` of ones; its multiples have the same class."""
    if not isinstance(rows, OnesMatrix):
        return False
    shared = rows.data.base is not None and rows.data.base is _kept.get(rows.dtype)
    return shared or bool((rows.data == 1).all())


def ones_beside(blocks: list) -> sparse.csr_matrix:
    """Join matrices of ones by columns."""
    indptr = sum(block.indptr.astype(np.int64) for block in blocks)
    indices, at, n_columns = np.empty(indptr[-1], dtype=np.int32), indptr[:-1].copy(), 0
    for block in blocks:
        ends, columns = block.indptr.astype(np.int64), block.indices.astype(np.int32, copy=False)
        _row_join.place_rows(ends, columns, n_columns, at, indices)
        n_columns += block.shape[1]
    return rows_of_ones(indices, indptr, n_columns, np.result_type(*(b.dtype for b in blocks)))

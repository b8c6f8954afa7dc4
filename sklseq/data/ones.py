"""The values of rows that hold nothing but ones, shared by all of them."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from scipy import sparse

__all__ = ["rows_of_ones"]

# Up to this many stay for the next call; a longer array lives as long as rows that use it.
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
    """CSR matrix whose values are a read-only view; SciPy's tidying in place copies it first."""

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
    """CSR rows whose stored values are all one, as a view of an array that others share.

    Writing a float for every attribute would take as long as finding the attributes.
    """
    # SciPy wants indices and indptr of one type, the small one where it will do.
    small = indptr[-1] <= np.iinfo(np.int32).max
    kind = np.int32 if small else np.int64
    rows = OnesMatrix((len(indptr) - 1, n_columns), dtype=dtype)
    # Set one by one: the constructor would copy a short view of a long array.
    rows.indptr, rows.indices = indptr.astype(kind), indices.astype(kind, copy=False)
    rows.data = _ones(len(indices), rows.dtype)
    return rows

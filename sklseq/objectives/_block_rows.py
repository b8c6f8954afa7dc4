"""A on one block of rows and its transpose, in the user's order of features, float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from sklseq.objectives._design import _linear

__all__ = ["DenseBlock", "SparseBlock", "as_block"]


def as_block(rows: Any) -> DenseBlock | SparseBlock:
    """Rows as they are worked on."""
    return SparseBlock(rows) if sparse.issparse(rows) else DenseBlock(rows)


class DenseBlock:
    """A block of an array: BLAS does it best."""

    columns = None  # all of them

    def __init__(self, rows: np.ndarray):
        self.rows = np.ascontiguousarray(rows, dtype=np.float64)

    def __len__(self) -> int:
        return len(self.rows)

    def scores(self, W: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """X · W."""
        return np.matmul(self.rows, W, out=out)

    def collect(self, residual: np.ndarray, first: int, out: np.ndarray) -> None:
        """out[r] += X[first:first + n]' · residual[r], (R, n, width) to (R, n_features, width)."""
        R, n, width = residual.shape
        beside = residual.transpose(1, 0, 2).reshape(n, R * width)  # one product, not R thin ones
        product = self.rows[first : first + n].T @ beside
        out += product.reshape(-1, R, width).transpose(1, 0, 2)

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def columns_of(self, first: int, last: int) -> None:
        """Columns in use, sorted; None: all."""
        return None


class SparseBlock:
    """A block of a CSR matrix.

    Parameters
    ----------
    rows : CSR matrix
    """

    def __init__(self, rows: sparse.csr_matrix):
        wide = rows.nnz > np.iinfo(np.int32).max
        self.indptr = np.ascontiguousarray(rows.indptr, dtype=np.int64 if wide else np.int32)
        self.indices = np.ascontiguousarray(rows.indices, dtype=self.indptr.dtype)
        pieces = range(0, len(rows.data), 1 << 16)  # no temporary as long as the data
        ones = all((rows.data[a : a + (1 << 16)] == 1).all() for a in pieces)
        self.data = np.zeros(0) if ones else np.ascontiguousarray(rows.data, dtype=np.float64)

    def part(self, first: int, last: int) -> SparseBlock:
        """Some of the rows: a view."""
        part = object.__new__(SparseBlock)
        part.indptr, part.indices, part.data = (
            self.indptr[first : last + 1],
            self.indices,
            self.data,
        )
        return part

    @property
    def nbytes(self) -> int:
        return int(self.indptr[-1] - self.indptr[0]) * (self.indices.itemsize + 8)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def scores(self, W: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        out = np.empty((len(self), W.shape[1])) if out is None else out
        _linear.gather_rows(self.indptr, self.indices, self.data, W, out, 0, len(self))
        return out

    def collect(self, residual: np.ndarray, first: int, out: np.ndarray, columns=None) -> None:
        """As above; ``columns``: those that ``out`` has, sorted."""
        last = first + residual.shape[1]
        indptr, indices, data = self.indptr[first : last + 1], self.indices, self.data
        if columns is not None:
            entries = slice(indptr[0], indptr[-1])
            indices = np.searchsorted(columns, indices[entries]).astype(indptr.dtype)
            indptr, data = indptr - indptr[0], data[entries] if len(data) else data
        for r in range(len(residual)):
            _linear.scatter_rows(indptr[:-1], indptr[1:], indices, data, residual[r], out[r])

    def columns_of(self, first: int, last: int) -> np.ndarray:
        return np.unique(self.indices[self.indptr[first] : self.indptr[last]])

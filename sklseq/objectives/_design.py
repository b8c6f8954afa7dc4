"""Feature rows arranged for the kernels: A(w) on a block of rows, and its transpose.

Features are renumbered from the most to the least frequent, so that the rows of weights that are
needed all the time lie together; nobody outside this file and ``_scores.py`` sees the new numbers.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from sklseq._cpu import load_kernel
from sklseq._sequences import Sequences
from sklseq._threads import Threads, spans

_linear = load_kernel("sklseq.objectives._linear")

__all__ = ["DenseRows", "SparseRows", "arrange"]

# Features that occur more often than this are scattered, the rest gathered: see _linear.pyx.
HOT_COUNT = 8


def arrange(X: Sequences, dtype: np.dtype, *, for_training: bool):
    """Rows of ``X`` in the form that suits them."""
    if X.is_sparse:
        return SparseRows(X, dtype, for_training=for_training)
    return DenseRows(X, dtype)


class DenseRows:
    """A and its transpose for a dense matrix: BLAS does it best."""

    def __init__(self, X: Sequences, dtype: np.dtype):
        self.rows = np.ascontiguousarray(X.rows, dtype=dtype)
        self.n_features = self.rows.shape[1]
        self.order = np.arange(self.n_features)

    def scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> None:
        """out = X[first:last] @ W."""
        np.matmul(self.rows[first:last], W, out=out)

    def new_buffer(self, width: int) -> np.ndarray:
        return np.zeros((self.n_features, width), dtype=self.rows.dtype)

    def collect(self, residual: np.ndarray, first: int, buffer: np.ndarray) -> None:
        """Add the transpose's share of a block of residuals to a thread's buffer."""
        buffer += self.rows[first : first + len(residual)].T @ residual

    def finish(
        self, residual: np.ndarray, buffers: list, W: np.ndarray, ridge: float, out: np.ndarray,
        threads: Threads,
    ) -> float:  # fmt: skip
        """out = X' residual + ridge · W; returns Σ W²."""
        np.multiply(W, ridge, out=out)
        for buffer in buffers:
            out += buffer
        return float(np.square(W, dtype=np.float64).sum())


class SparseRows:
    """A and its transpose for CSR rows."""

    def __init__(self, X: Sequences, dtype: np.dtype, *, for_training: bool):
        rows = X.rows
        n_rows, self.n_features = rows.shape
        self.indptr, indices = rows.indptr, rows.indices
        ones = bool((rows.data == 1).all())
        self.data = np.zeros(0, dtype) if ones else np.ascontiguousarray(rows.data, dtype)
        self.order = np.arange(self.n_features)
        if for_training:
            counts = np.bincount(indices, minlength=self.n_features)
            self.order = np.argsort(-counts, kind="stable")
            rank = np.empty(self.n_features, dtype=indices.dtype)
            rank[self.order] = np.arange(self.n_features, dtype=indices.dtype)
            self.n_hot = int((counts > HOT_COUNT).sum())
            indices = self._hot_first(rank[indices], n_rows)
        self.indices = np.ascontiguousarray(indices)

    def _hot_first(self, indices: np.ndarray, n_rows: int) -> np.ndarray:
        # Sort each row by the new numbers; what is not hot goes into columns of its own.
        data = self.data if len(self.data) else np.ones(len(indices), np.int8)
        rows = sparse.csr_matrix(
            (data.copy(), indices, self.indptr), shape=(n_rows, self.n_features), copy=False
        )
        rows.sort_indices()
        if not rows.has_canonical_format:  # equal entries of a row add up, on both ways alike
            rows = rows.astype(self.data.dtype)
            rows.sum_duplicates()
            self.indptr, self.data = rows.indptr, rows.data
        hot = rows.indices < self.n_hot
        before = np.concatenate([[0], np.cumsum(hot, dtype=self.indptr.dtype)])
        self.stop = (self.indptr[:-1] + np.diff(before[self.indptr])).astype(self.indptr.dtype)
        owners = np.repeat(np.arange(n_rows, dtype=rows.indices.dtype), np.diff(self.indptr))
        rare = sparse.coo_matrix(
            (rows.data[~hot], (rows.indices[~hot] - self.n_hot, owners[~hot])),
            shape=(self.n_features - self.n_hot, n_rows),
        ).tocsr()
        kind = np.int32 if rare.indices.dtype == np.int32 else np.int64
        self.rare_indptr, self.rare_rows = rare.indptr.astype(kind), rare.indices
        self.rare_data = self.data
        if len(self.data):
            self.data, self.rare_data = rows.data, rare.data
        return rows.indices

    def scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> None:
        """out = X[first:last] @ W."""
        indptr = self.indptr[first : last + 1]
        _linear.gather_rows(indptr, self.indices, self.data, W, out, 0, last - first)

    def new_buffer(self, width: int) -> np.ndarray:
        return np.zeros((self.n_hot, width), dtype=self.data.dtype)

    def collect(self, residual: np.ndarray, first: int, buffer: np.ndarray) -> None:
        """Add the hot features' share of a block of residuals to a thread's buffer."""
        last = first + len(residual)
        _linear.scatter_rows(
            self.indptr[first:last], self.stop[first:last], self.indices, self.data, residual,
            buffer,
        )  # fmt: skip

    def finish(
        self, residual: np.ndarray, buffers: list, W: np.ndarray, ridge: float, out: np.ndarray,
        threads: Threads,
    ) -> float:  # fmt: skip
        """out = X' residual + ridge · W; returns Σ W²."""
        hot = self.n_hot
        np.multiply(W[:hot], ridge, out=out[:hot])
        for buffer in buffers:
            out[:hot] += buffer
        # In more pieces than threads, so that none waits long for another; in fixed order.
        pieces = spans(self.n_features - hot, 4 * threads.n)

        def gather(piece: tuple[int, int]) -> float:
            return _linear.gather_rows(
                self.rare_indptr, self.rare_rows, self.rare_data, residual, out[hot:], *piece,
                W[hot:], ridge,
            )  # fmt: skip

        squares = threads.map(gather, pieces)
        return float(np.square(W[:hot], dtype=np.float64).sum()) + sum(squares)

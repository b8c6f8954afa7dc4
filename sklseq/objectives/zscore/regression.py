"""Ridge regression of label indicators on rows: the linear system behind the z-score."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from sklseq._lib.threads import Threads, spans
from sklseq.data.sequences import Sequences
from sklseq.inference.chain.linear_chain import _chain
from sklseq.objectives.scores.design import SparseRows, aligned_zeros
from sklseq.objectives.zscore.moments import Products, label_sums, score_products

__all__ = ["RidgeSystem"]

BLOCK = 4_096  # rows whose scores stay in the cache between A and its transpose


class RidgeSystem:
    """(Xᵀ diag(weights) X + ridge) V = Xᵀ diag(weights) Y, for label codes y.

    Parameters
    ----------
    rows : ndarray or CSR matrix of shape (n_rows, n_columns)
    y : int32 ndarray of shape (n_rows,)
    weights : ndarray of shape (n_rows,)
    n_labels : int
    ridge : float
    threads : Threads

    Attributes
    ----------
    gradient : ndarray of shape (n_columns, n_labels)
        Right-hand side.
    order : ndarray of shape (n_columns,)
        Which column each row of V stands for.
    squares : ndarray of shape (n_columns,)
        Diagonal of Xᵀ diag(weights) X.
    preconditioner : ndarray of shape (n_columns,), or None
        Inverse of the diagonal. None without a ridge, so that the solution found is that of
        minimum norm.
    """

    def __init__(self, rows, y, weights, n_labels: int, ridge: float, threads: Threads):
        self.y, self.n_labels, self.ridge, self.threads = y, n_labels, ridge, threads
        self.n_columns, self.is_sparse = rows.shape[1], sparse.issparse(rows)
        self.rows, self.d, self.order = rows, weights, np.arange(self.n_columns)
        if self.is_sparse:
            self._arrange(rows)
        else:
            self.gradient = label_sums(rows, y, self.d, n_labels)
        self.squares = self._squares()
        self.preconditioner = 1 / (self.squares + ridge) if ridge > 0 else None

    def _arrange(self, rows) -> None:
        # The kernels' layout, with the columns by frequency.
        self.width = _chain.padded_width(self.n_labels)
        sequences = Sequences(rows, np.array([0, rows.shape[0]], dtype=np.int64))
        self.design = SparseRows(sequences, self.width, np.dtype(np.float64))
        self.order = self.design.order
        self.residual = aligned_zeros(rows.shape[0] * self.width, np.dtype(np.float64))
        self.padded, self.product = np.split(
            aligned_zeros(2 * self.design.n_weights, np.float64), 2
        )
        self.scale = self.d[:, None]
        self.pieces = spans(rows.shape[0], self.threads.n)
        residual = self.residual.reshape(-1, self.width)
        residual[np.arange(len(self.y)), self.y] = self.d
        self.gradient = self._transposed(lambda a, b: None)[:, : self.n_labels].copy()

    def _squares(self) -> np.ndarray:
        if not self.is_sparse:
            return np.square(self.rows).T @ self.d
        squares = self.rows.power(2) if len(self.design.data) else self.rows
        return (squares.T @ self.d)[self.design.order]

    def hessian_product(self, V: np.ndarray) -> np.ndarray:
        """(Xᵀ diag(d) X + ridge) V, until the next product."""
        if not self.is_sparse:
            return self.rows.T @ (self.d[:, None] * (self.rows @ V)) + self.ridge * V
        starts = range(0, V.shape[1], self.width)
        if len(starts) == 1:
            return self._sparse_product(V)
        return np.hstack([self._sparse_product(V[:, k : k + self.width]).copy() for k in starts])

    def _sparse_product(self, V: np.ndarray) -> np.ndarray:
        W = self.padded.reshape(-1, self.width)
        W[:, : V.shape[1]], W[:, V.shape[1] :] = V, 0

        def scores(a: int, b: int) -> None:
            residual = self.residual.reshape(-1, self.width)[a:b]
            self.design.scores(W, a, b, residual)
            residual *= self.scale[a:b]

        return self._transposed(scores)[:, : V.shape[1]]

    def _transposed(self, fill) -> np.ndarray:
        # Xᵀ residual + ridge · padded, where fill(a, b) writes the residual of these rows.
        design, residual = self.design, self.residual.reshape(-1, self.width)

        def through(piece: tuple[int, int]) -> np.ndarray:
            buffer = design.new_buffer()
            for a in range(*piece, BLOCK):
                b = min(a + BLOCK, piece[1])
                fill(a, b)
                design.collect(residual[a:b], a, buffer)
            return buffer

        buffers = self.threads.map(through, self.pieces)
        design.finish(residual, buffers, self.padded, self.ridge, self.product, self.threads)
        return self.product.reshape(-1, self.width)

    def finish(self, V: np.ndarray) -> None:
        """Take V as the solution."""
        self.solution = np.empty((self.n_columns, self.n_labels))
        self.solution[self.order] = V

    def products(self, weights: np.ndarray) -> Products:
        """What :func:`~sklseq.objectives.zscore.moments.combine` needs of the solution."""
        return score_products(np.asarray(self.rows @ self.solution), self.y, weights)

    def weights(self, mix: np.ndarray) -> np.ndarray:
        """The solution times an (n_labels, n_labels) matrix."""
        return self.solution @ mix

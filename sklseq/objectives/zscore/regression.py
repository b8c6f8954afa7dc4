"""Ridge regression of label indicators on rows: the linear system behind the z-score."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from sklseq._lib.column_sizes import column_sizes
from sklseq._lib.threads import Threads, spans
from sklseq.data.sequences import Sequences
from sklseq.inference.chain.linear_chain import _chain
from sklseq.objectives.scores.design import SparseRows, aligned_zeros
from sklseq.objectives.zscore.factorised import CentredRows
from sklseq.objectives.zscore.moments import Products, score_products

__all__ = ["RidgeSystem"]

BLOCK = 4_096  # rows whose scores stay in the cache between A and its transpose


class RidgeSystem:
    """(Xᵀ diag(weights) X + ridge) V = Xᵀ diag(weights) Y, for label codes y.

    Means of dense columns may exceed their spreads by any factor: with the means m, n = Σ weights,
    the centred rows Z and D, the diagonal of ZᵀdZ + ridge, the matrix is ZᵀdZ + ridge + n m mᵀ, and
    is solved for U in

        V = T U,   T = I + D⁻¹ m mᵀ ((1 + n h)^-½ - 1) / h,   h = mᵀD⁻¹m,

    which makes D of D + n m mᵀ: Tᵀ(D + n m mᵀ)T = D. In these terms n m mᵀ is n / (1 + n h) m mᵀ,
    so no large numbers are left. Without a ridge, any D gives the solution of minimum norm, as all
    solutions have the same mᵀV.

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
        Right-hand side, in terms of U.
    order : ndarray of shape (n_columns,)
        Which column each row of U stands for, of sparse rows.
    preconditioner : ndarray of shape (n_columns,)
        Inverse of D. Without a ridge, sizes of columns if these differ much: so that the solution
        found is that of minimum norm.
    """

    def __init__(self, rows, y, weights, n_labels: int, ridge: float, threads: Threads):
        self.y, self.n_labels, self.ridge, self.threads = y, n_labels, ridge, threads
        self.n_columns, self.is_sparse = rows.shape[1], sparse.issparse(rows)
        self.rows, self.d, self.order = rows, weights, np.arange(self.n_columns)
        if self.is_sparse:
            self._arrange(rows)
            self.preconditioner = 1 / self._diagonal(self._squares())
        else:
            self._centre(rows)

    def _diagonal(self, squares: np.ndarray) -> np.ndarray:
        return squares + self.ridge if self.ridge > 0 else np.square(column_sizes(squares))

    def _centre(self, rows) -> None:
        self.centred = centred = CentredRows(rows, self.d)
        self.means, self.total = centred.means, centred.total
        squares = np.square(centred.rows).T @ self.d
        diagonal = self._diagonal(
            squares if self.ridge > 0 else squares + self.total * self.means**2
        )
        self.preconditioner = 1 / diagonal
        if not self.ridge:  # of the size of squares
            diagonal *= np.mean(squares / diagonal) or 1.0
        across = self.means / diagonal
        square = float(self.means @ across)
        self.across = across / (square or 1.0)
        self.shrunk = (1 + self.total * square) ** -0.5
        labels = np.bincount(self.y, self.d, self.n_labels)
        self.gradient = self._across(centred.label_sums(self.y, self.n_labels))
        self.gradient += self.shrunk * np.outer(self.means, labels)

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
        squares = self.rows.power(2) if len(self.design.data) else self.rows
        return (squares.T @ self.d)[self.order]

    def _across(self, B: np.ndarray) -> np.ndarray:
        # TᵀB
        return B - np.outer(self.means, (1 - self.shrunk) * (self.across @ B))

    def right_hand_side(self, B: np.ndarray) -> np.ndarray:
        """In terms of U, of one in terms of V."""
        return B[self.order] if self.is_sparse else self._across(B)

    def solution_of(self, U: np.ndarray) -> np.ndarray:
        """V."""
        if self.is_sparse:
            V = np.empty_like(U)
            V[self.order] = U
            return V
        # mᵀV = shrunk · mᵀU may be less than the rounding of U, so it is added to nothing.
        of_means = self.means @ U
        V = U - np.outer(self.across, of_means)
        return V + np.outer(self.across, self.shrunk * of_means - self.means @ V)

    def hessian_product(self, V: np.ndarray) -> np.ndarray:
        """Tᵀ(Xᵀ diag(d) X + ridge)T times a block, until the next product."""
        if not self.is_sparse:
            return self._dense_product(V)
        starts = range(0, V.shape[1], self.width)
        if len(starts) == 1:
            return self._sparse_product(V)
        return np.hstack([self._sparse_product(V[:, k : k + self.width]).copy() for k in starts])

    def _dense_product(self, U: np.ndarray) -> np.ndarray:
        V = self.solution_of(U)
        product = self._across(self.centred.product(V) + self.ridge * V)
        return product + np.outer(self.means, self.total * self.shrunk**2 * (self.means @ U))

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

    def finish(self, U: np.ndarray) -> None:
        """Take U as the solution."""
        self.solution = self.solution_of(U)
        if self.is_sparse:
            self.scores = np.asarray(self.rows @ self.solution)
        else:
            self.scores = self.centred.times(self.solution) + self.shrunk * (self.means @ U)

    def products(self, weights: np.ndarray) -> Products:
        """What :func:`~sklseq.objectives.zscore.moments.combine` needs of the solution."""
        return score_products(self.scores, self.y, weights)

    def weights(self, mix: np.ndarray) -> np.ndarray:
        """The solution times an (n_labels, n_labels) matrix."""
        return self.solution @ mix

"""Ridge regression of label indicators on rows: the linear system behind the z-score."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from sklseq._sequences import Sequences
from sklseq._threads import Threads, spans
from sklseq.inference.chain import _chain
from sklseq.objectives._design import SparseRows, aligned_zeros
from sklseq.objectives._moments import label_sums

__all__ = ["RidgeSystem"]

BLOCK = 4_096  # rows whose scores stay in the cache between A and its transpose


class RidgeSystem:
    """(Xᵀ diag(weights) X + ridge) V = Xᵀ diag(weights) Y, for label codes y.

    A column that occurs in one row only is eliminated: given the other weights it is fitted to
    what is left of that row, which leaves the row a weight of

        d = weights · ridge / (ridge + weights · Σ x²),      x being the row's such entries,

    in the system of the other columns. In text, most columns are of this kind.

    Parameters
    ----------
    rows : ndarray or CSR matrix of shape (n_rows, n_columns)
    y : int32 ndarray of shape (n_rows,)
    weights : ndarray of shape (n_rows,)
    n_labels : int
    ridge : float
    threads : Threads
    eliminate : bool, default=True
        False keeps all columns, for right-hand sides other than ``gradient``.
    dtype : numpy dtype, default=float64
        Of products with sparse rows, and of ``gradient``; float32 halves the memory that moves.

    Attributes
    ----------
    gradient : ndarray of shape (n_kept, n_labels)
        Right-hand side.
    preconditioner : ndarray of shape (n_kept,), or None
        Inverse of the diagonal. None without a ridge, so that the solution found is that of
        minimum norm.
    """

    def __init__(
        self, rows, y, weights, n_labels: int, ridge: float, threads: Threads,
        eliminate: bool = True, dtype=np.float64,
    ):  # fmt: skip
        self.y, self.n_labels, self.ridge, self.threads = y, n_labels, ridge, threads
        self.n_columns, self.is_sparse = rows.shape[1], sparse.issparse(rows)
        self.dtype = np.dtype(dtype if self.is_sparse else np.float64)
        self.kept, self.once = np.arange(self.n_columns), None
        if self.is_sparse and eliminate:
            rows = self._without_rare(rows)
        self.rows = rows
        self.d = weights if self.once is None else self._reduced(weights)
        if self.is_sparse:
            self._arrange(rows)
        else:
            self.gradient = label_sums(rows, y, self.d, n_labels)
        self.preconditioner = None
        if ridge > 0:
            self.preconditioner = (1 / (self._squares() + ridge)).astype(self.dtype)

    def _without_rare(self, rows):
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        counts = np.bincount(rows.indices, minlength=self.n_columns)
        keep = counts > (1 if self.ridge > 0 else 0)
        self.kept = np.flatnonzero(keep)
        number = np.cumsum(keep, dtype=rows.indices.dtype) - 1
        stays, before = keep[rows.indices], np.zeros(rows.nnz + 1, dtype=rows.indptr.dtype)
        np.cumsum(stays, out=before[1:])
        if self.ridge > 0:
            once = np.flatnonzero(~stays)
            owner = np.searchsorted(rows.indptr, once, side="right") - 1
            self.once = (rows.indices[once], owner, rows.data[once])
        return sparse.csr_matrix(
            (rows.data[stays], number[rows.indices[stays]], before[rows.indptr]),
            shape=(rows.shape[0], len(self.kept)),
        )

    def _reduced(self, weights: np.ndarray) -> np.ndarray:
        _, owner, x = self.once
        squares = np.bincount(owner, np.square(x), minlength=len(weights))
        return weights * self.ridge / (self.ridge + weights * squares)

    def _arrange(self, rows) -> None:
        # The kernels' layout, with the columns by frequency; V has their order until all_columns.
        self.width = _chain.padded_width(self.n_labels)
        sequences = Sequences(rows, np.array([0, rows.shape[0]], dtype=np.int64))
        self.design = SparseRows(sequences, self.width, self.dtype)
        self.kept = self.kept[self.design.order]
        self.residual = aligned_zeros(rows.shape[0] * self.width, self.dtype)
        self.padded, self.product = np.split(
            aligned_zeros(2 * self.design.n_weights, self.dtype), 2
        )
        self.scale = self.d.astype(self.dtype)[:, None]
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

    def relative_residual(self, V: np.ndarray) -> float:
        """Length of the longest column of the residual over that of ``gradient``."""
        residual = self.gradient - self.hessian_product(V)
        longest = [np.linalg.norm(block, axis=0).max() for block in (residual, self.gradient)]
        return float(longest[0] / longest[1]) if longest[1] > 0 else 0.0

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

    def _scores(self, V: np.ndarray) -> np.ndarray:
        # X V, in the kernels' precision.
        self.padded.reshape(-1, self.width)[:, : V.shape[1]] = V
        scores = self.residual.reshape(-1, self.width)
        self.design.scores(self.padded.reshape(-1, self.width), 0, len(scores), scores)
        return scores[:, : V.shape[1]]

    def all_columns(self, V: np.ndarray) -> np.ndarray:
        """The solution with the eliminated columns back: shape (n_columns, n_labels)."""
        solution = np.zeros((self.n_columns, self.n_labels))
        solution[self.kept] = V
        if self.once is not None and len(self.once[0]):
            column, owner, x = self.once
            left = -self._scores(V)[owner].astype(np.float64)
            left[np.arange(len(owner)), self.y[owner]] += 1
            solution[column] = left * (x * self.d[owner] / self.ridge)[:, None]
        return solution

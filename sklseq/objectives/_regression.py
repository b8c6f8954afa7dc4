"""Ridge regression of label indicators on rows: the linear system behind the z-score."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from sklseq._threads import Threads
from sklseq.objectives._moments import one_hot

__all__ = ["RidgeSystem"]


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
        eliminate: bool = True,
    ):  # fmt: skip
        self.y, self.n_labels, self.ridge, self.threads = y, n_labels, ridge, threads
        self.n_columns = rows.shape[1]
        self.kept, self.once = np.arange(self.n_columns), None
        if sparse.issparse(rows) and eliminate:
            rows = self._without_rare(rows)
        self.d = weights if self.once is None else self._reduced(weights)
        self.rows = rows
        self.blocks = _cut(rows, self.threads.n)
        labels = one_hot(y, self.d, n_labels)
        self.gradient = self._map_blocks(lambda block, a, b: block.T @ labels[a:b].toarray())
        self.preconditioner = None if ridge == 0 else 1 / (self._squares() + ridge)

    def _without_rare(self, rows):
        # Columns by frequency, so that weights that are often needed lie together.
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        counts = np.bincount(rows.indices, minlength=self.n_columns)
        order = np.argsort(-counts, kind="stable")
        n_kept = int((counts > (1 if self.ridge > 0 else 0)).sum())
        rank = np.empty(self.n_columns, dtype=rows.indices.dtype)
        rank[order] = np.arange(self.n_columns, dtype=rows.indices.dtype)
        self.kept = order[:n_kept]
        new, before = rank[rows.indices], np.zeros(rows.nnz + 1, dtype=rows.indptr.dtype)
        stays = new < n_kept
        np.cumsum(stays, out=before[1:])
        if self.ridge > 0:
            owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))[~stays]
            self.once = (rows.indices[~stays], owner, rows.data[~stays])
        return sparse.csr_matrix(
            (rows.data[stays], new[stays], before[rows.indptr]), shape=(rows.shape[0], n_kept)
        )

    def _reduced(self, weights: np.ndarray) -> np.ndarray:
        _, owner, x = self.once
        squares = np.bincount(owner, np.square(x), minlength=len(weights))
        return weights * self.ridge / (self.ridge + weights * squares)

    def _map_blocks(self, work) -> np.ndarray:
        # Sum, in a fixed order, of what threads make of their rows.
        parts = self.threads.map(lambda cut: work(self.rows[cut[0] : cut[1]], *cut), self.blocks)
        for part in parts[1:]:
            parts[0] += part
        return parts[0]

    def _squares(self) -> np.ndarray:
        if sparse.issparse(self.rows):
            owner = np.repeat(self.d, np.diff(self.rows.indptr))
            values = np.square(self.rows.data) * owner
            return np.bincount(self.rows.indices, values, minlength=self.rows.shape[1])
        return np.square(self.rows).T @ self.d

    def hessian_product(self, V: np.ndarray) -> np.ndarray:
        """(Xᵀ diag(d) X + ridge) V."""

        def through(rows, a: int, b: int) -> np.ndarray:
            residual = rows @ V
            residual *= self.d[a:b, None]
            # SciPy scatters: columns go from the most to the least frequent, and so fit the cache.
            return rows.T @ residual

        product = self._map_blocks(through)
        if self.ridge:
            product += self.ridge * V
        return product

    def all_columns(self, V: np.ndarray) -> np.ndarray:
        """The solution with the eliminated columns back: shape (n_columns, n_labels)."""
        solution = np.zeros((self.n_columns, self.n_labels))
        solution[self.kept] = V
        if self.once is not None and len(self.once[0]):
            column, owner, x = self.once
            left = -(self.rows[owner] @ V)
            left[np.arange(len(owner)), self.y[owner]] += 1
            solution[column] = left * (x * self.d[owner] / self.ridge)[:, None]
        return solution


def _cut(rows, parts: int) -> list[tuple[int, int]]:
    # Runs of rows with about the same number of entries.
    entries = rows.indptr if sparse.issparse(rows) else np.arange(len(rows) + 1)
    cuts = np.searchsorted(entries, np.linspace(0, entries[-1], parts + 1)[1:-1]).tolist()
    cuts = [0, *cuts, rows.shape[0]]
    return [(a, b) for a, b in zip(cuts[:-1], cuts[1:]) if b > a] or [(0, rows.shape[0])]

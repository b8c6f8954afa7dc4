"""Factors of XᵀX + ridge that do not lose what its entries lose."""

from __future__ import annotations

import numpy as np
from scipy import linalg

__all__ = ["InverseRoot"]

# Share of the largest eigenvalue down to which entries of a matrix determine the others.
TRUSTED = 1e-10
# Share of a column's squared size below which a sum over rows is rounding of zero.
NOISE = 1e-26


class InverseRoot:
    """T with T Tᵀ = A⁻¹ for A = XᵀX + diag(ridges), which may be singular up to rounding.

    The entries of A determine what A is along a direction only down to ``TRUSTED`` of its largest
    eigenvalue. Smaller eigenvalues are computed from products with X, in which columns that are
    equal but for 1e-12 differ. Directions that X does not see are left out.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        A; its lower triangle is read.
    ridges : float or ndarray of shape (n,)
    product : callable(P) -> XᵀX P
        From the rows of X.

    Attributes
    ----------
    rank : int
        Columns of T.
    least : float
        The least squared sine of the angle between a column and others, up to a factor; 0 where
        the entries of A do not determine it.
    """

    def __init__(self, gram, ridges, product):
        squares = gram.diagonal()
        size = np.sqrt(np.where(squares > 0, squares, 1))
        self.size = size[:, None]
        unit = gram / self.size / size
        self.factor, self.rank = None, len(unit)
        try:
            factor = linalg.cholesky(unit, lower=True, check_finite=False)
            self.least = float(np.square(factor.diagonal()).min(initial=1))
            if self.least > TRUSTED * unit.diagonal().max(initial=0):
                self.factor = factor
                return
        except linalg.LinAlgError:
            pass
        self._resolve(unit, np.broadcast_to(ridges, len(gram))[:, None], product)

    def _resolve(self, unit: np.ndarray, ridges: np.ndarray, product) -> None:
        value, Q = np.linalg.eigh(unit)
        floor, T, Q = NOISE * value[-1], np.empty((len(value), 0)), Q / self.size
        self.least = 0.0
        while Q.shape[1] and value[-1] > 0:
            large = value > TRUSTED * value[-1]
            T, Q = np.hstack([T, Q[:, large] / np.sqrt(value[large])]), Q[:, ~large]
            Q = Q - T @ (T.T @ (product(Q) + ridges * Q))
            seen, vectors = np.linalg.eigh(Q.T @ product(Q))
            Q = Q @ vectors[:, seen > floor]
            value, vectors = np.linalg.eigh(Q.T @ (product(Q) + ridges * Q))
            Q = Q @ vectors
        self.T, self.rank = T, T.shape[1]

    def times(self, U: np.ndarray) -> np.ndarray:
        """T U."""
        if self.factor is None:
            return self.T @ U
        return (
            linalg.solve_triangular(self.factor, U, lower=True, trans=1, check_finite=False)
            / self.size
        )

    def transposed_times(self, B: np.ndarray) -> np.ndarray:
        """TᵀB."""
        if self.factor is None:
            return self.T.T @ B
        return linalg.solve_triangular(self.factor, B / self.size, lower=True, check_finite=False)

    def solve(self, B: np.ndarray) -> np.ndarray:
        """T TᵀB, the solution of A W = B."""
        return self.times(self.transposed_times(B))

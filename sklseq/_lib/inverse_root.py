"""Factors of the inverse of XᵀX + ridge that keep directions lost to rounding in XᵀX."""

import numpy as np
from scipy import linalg

# Fraction of the largest eigenvalue down to which the entries of XᵀX determine eigenvalues.
TRUSTED = 1e-10
# Reciprocal condition below which a matrix is singular up to rounding.
SINGULAR = 1e-12
# Error of the directions N that X maps to 0, as a fraction of their length.
CANCELLED = 1e-12
# Fraction of the largest eigenvalue below which an eigenvalue is rounding of zero.
NOISE = 1e-26
# Squared length, instead of 1, below which a normalised direction is a combination of others.
DEPENDENT = 0.5


class InverseRoot:
    """T with T Tᵀ = A⁻¹ for A = XᵀX + diag(ridges), which may be singular up to rounding.

    The entries of XᵀX determine it along a direction only down to ``TRUSTED`` of its largest
    eigenvalue. Smaller eigenvalues are computed from products with X, which separate columns that
    differ by 1e-12. In this case T leaves out the directions N that X maps to 0, where NᵀRN = I for
    the ridges ridge · R: A⁻¹ = T Tᵀ + N Nᵀ / ridge.

    Parameters
    ----------
    gram : ndarray of shape (n, n)
        XᵀX.
    ridges : float or ndarray of shape (n,)
        All above 0, or all 0.
    product : callable(P) -> XᵀX P
        Computed from the rows of X.
    noise : float, default=1e-26
        Fraction of the largest eigenvalue that is rounding in ``product``.

    Attributes
    ----------
    ridge : float
        The largest of ``ridges``.
    N : ndarray of shape (n, n_unseen)
    least : float
        The least squared sine of the angle between a column and the span of others, up to a factor;
        0 if the entries of A do not determine it.
    """

    def __init__(self, gram, ridges, product, noise: float = NOISE):
        self.ridge = float(np.max(ridges, initial=0))
        self.factor, self.N, self.least = None, np.empty((len(gram), 0)), 0.0
        unit = self._unit(gram, ridges)
        try:
            factor = linalg.cholesky(unit, lower=True, check_finite=False)
            self.least = float(np.square(factor.diagonal()).min(initial=1))
            # A small pivot may be a ratio of two rounding errors, so the inverse is tested too.
            size = np.abs(unit).sum(axis=0).max(initial=0)
            within = linalg.lapack.dpocon(factor, size, uplo="L")[0] * size
            if self.least > TRUSTED * unit.diagonal().max(initial=0) and within > SINGULAR:
                self.factor = factor
                return
        except linalg.LinAlgError:
            pass
        self.least = 0.0
        G, unseen = self._whiten(self._unit(gram, 0.0), product, noise)
        self._shrink(G, unseen, np.broadcast_to(ridges, len(gram))[:, None])

    def _unit(self, gram: np.ndarray, ridges) -> np.ndarray:
        # The matrix scaled to diagonal 1, or 0 for columns of zeros.
        squares = np.maximum(gram.diagonal(), 0) + ridges
        size = np.sqrt(np.where(squares > 0, squares, 1))
        self.size = size[:, None]
        unit = gram / self.size / size
        unit[np.diag_indices(len(unit))] = squares > 0
        return unit

    def _whiten(self, unit: np.ndarray, product, noise: float) -> tuple[np.ndarray, np.ndarray]:
        # G with (XG)ᵀXG = I, and the directions that X maps to 0.
        value, Q = np.linalg.eigh(unit)
        floor, G, Q = noise * value.max(initial=0), np.empty((len(value), 0)), Q / self.size
        while Q.shape[1] and value[-1] > floor:
            # The rounding error of Qᵀ product(Q) grows with the root of its largest eigenvalue.
            large = value > max(TRUSTED * value[-1], np.sqrt(floor * value[-1]))
            G, Q = np.hstack([G, Q[:, large] / np.sqrt(value[large])]), Q[:, ~large]
            Q = Q - G @ (G.T @ product(Q))
            value, vectors = np.linalg.eigh(Q.T @ product(Q))
            Q = Q @ vectors
        # (XG)ᵀXG is I up to rounding / TRUSTED; the Cholesky factor corrects this.
        square = G.T @ product(G)
        try:
            F = linalg.cholesky(square, lower=True, check_finite=False)
        except linalg.LinAlgError:  # directions near the floor equal others up to rounding
            value, vectors = np.linalg.eigh(square)
            kept = value > DEPENDENT
            return G @ (vectors[:, kept] / np.sqrt(value[kept])) @ vectors[:, kept].T, Q
        return linalg.solve_triangular(F, G.T, lower=True, check_finite=False).T, Q

    def _shrink(self, G: np.ndarray, unseen: np.ndarray, ridges: np.ndarray) -> None:
        # Only the ridge acts on the directions N that X maps to 0: they are removed from G. Then
        # T = G F⁻¹ with FᵀF = I + Gᵀ diag(ridges) G. QR stays accurate for small rows below large.
        metric = np.sqrt(ridges / self.ridge) if self.ridge > 0 else np.ones_like(ridges)
        order, basis = np.argsort(self.size[:, 0]), np.empty_like(unseen)
        if unseen.shape[1]:
            basis[order] = linalg.qr((metric * unseen)[order], mode="economic", pivoting=True)[0]
        self.N = basis / metric
        G = G - self.N @ (basis.T @ (metric * G))
        stacked = np.vstack([np.sqrt(ridges) * G, np.eye(G.shape[1])])
        stacked = stacked[np.argsort(-np.abs(stacked).max(axis=1, initial=0))]
        F, order = linalg.qr(stacked, mode="r", pivoting=True)[:2] if G.shape[1] else (stacked, [])
        F = F[: G.shape[1]]
        self.T = linalg.solve_triangular(F, G[:, order].T, trans=1, check_finite=False).T

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

    def unseen(self, means: np.ndarray) -> np.ndarray:
        """N Nᵀm, with 0 for parts that are within the rounding error of N."""
        parts = self.N.T @ means
        known = (self.N != 0).any(axis=1)
        level = np.max(np.abs(means[known]) / self.size[known], initial=0)
        rounding = CANCELLED * level * np.linalg.norm(self.size * self.N, axis=0)
        return self.N @ np.where(np.abs(parts) > rounding[:, None], parts, 0)

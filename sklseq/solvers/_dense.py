"""Linear systems and small quadratic programs with a dense matrix."""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.optimize import nnls

from sklseq._lib.column_sizes import column_sizes
from sklseq.solvers._result import SolverResult

__all__ = ["least_distance", "solve_dense"]

# Eigenvalues below this fraction of the largest are treated as zero.
RANK = 1e-12
# A ridge below this fraction of the largest diagonal entry is within the rounding error.
TRUSTED = 1e-10


def solve_dense(A: np.ndarray, B: np.ndarray, ridge: float) -> SolverResult:
    """(A + ridge) W = B for a positive semidefinite A; without a ridge, of minimum norm.

    Parameters
    ----------
    A : ndarray of shape (n, n)
    B : ndarray of shape (n, k)
    ridge : float

    Returns
    -------
    SolverResult
        ``value`` is ½ tr Wᵀ(A + ridge)W - tr WᵀB.
    """
    W = None
    if ridge > TRUSTED * max(A.diagonal(), default=0):
        try:
            factor = linalg.cho_factor(A + ridge * np.eye(len(A)), lower=True, check_finite=False)
            W = linalg.cho_solve(factor, B, check_finite=False)
        except linalg.LinAlgError:
            W = None
    if W is None:
        size = column_sizes(np.diag(A))
        value, vectors = np.linalg.eigh((A + ridge * np.eye(len(A))) / size / size[:, None])
        kept = value > RANK * max(value[-1], 0)
        W = (vectors[:, kept] / value[kept]) @ (vectors[:, kept].T @ (B / size[:, None]))
        W /= size[:, None]
    return SolverResult(W, -0.5 * float(np.vdot(W, B)), 1, True, [1.0, 0.0], "direct")


def least_distance(K: np.ndarray, h: np.ndarray) -> np.ndarray | None:
    """min ½ aᵀKa - hᵀa over a ≥ 0: the dual of min ½ ‖x‖² subject to F x ≥ h, where K = F Fᵀ.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Positive semidefinite.
    h : ndarray of shape (n,)

    Returns
    -------
    ndarray of shape (n,), or None
        None if no x satisfies all constraints.

    References
    ----------
    C. L. Lawson, R. J. Hanson (1974), *Solving Least Squares Problems*, §23.4, LDP.
    """
    size = np.sqrt(np.maximum(np.diag(K), 1e-300))
    value, vectors = np.linalg.eigh(K / np.outer(size, size))
    kept = value > RANK * max(value[-1], 0)
    F = vectors[:, kept] * np.sqrt(value[kept])
    scaled = h / size
    top = max(float(np.abs(scaled).max()), 1e-300)
    # Constraints of equal size, so that the test of consistency does not depend on units.
    E = np.vstack([F.T, scaled / top])
    f = np.zeros(len(E))
    f[-1] = 1
    u, distance = nnls(E, f, maxiter=30 * E.shape[1] + 100)
    if distance < 1e-7:
        return None
    return u / (distance**2) * top / size

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
PIVOTS = 30  # sets of active constraints that are tried
SLACK = 1e-10  # by which a constraint may be missed, as a share of the largest


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


def least_distance(
    K: np.ndarray, h: np.ndarray, active: np.ndarray | None = None
) -> np.ndarray | None:
    """min ½ aᵀKa - hᵀa over a ≥ 0: the dual of min ½ ‖x‖² subject to F x ≥ h, where K = F Fᵀ.

    Sets of active constraints are tried first, each by one Cholesky factor. Where these do not end,
    or are dependent, an eigendecomposition and nonnegative least squares find the answer.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Positive semidefinite.
    h : ndarray of shape (n,)
    active : bool ndarray of shape (n,), optional
        The constraints that may be active: where to begin.

    Returns
    -------
    ndarray of shape (n,), or None
        None if no x satisfies all constraints.

    References
    ----------
    C. L. Lawson, R. J. Hanson (1974), *Solving Least Squares Problems*, §23.4, LDP.
    L. F. Portugal, J. J. Júdice, L. N. Vicente (1994), "A comparison of block pivoting and
    interior-point algorithms for linear least squares problems with nonnegative variables",
    Mathematics of Computation 63.
    """
    size = np.sqrt(np.maximum(np.diag(K), 1e-300))
    K, scaled = K / np.outer(size, size), h / size
    a = _pivot(K, scaled, np.ones(len(h), dtype=bool) if active is None else active)
    if a is None:
        a = _nonnegative(K, scaled)
    return a if a is None else a / size


def _pivot(K: np.ndarray, h: np.ndarray, active: np.ndarray) -> np.ndarray | None:
    # Block pivoting: all constraints of the wrong sign change sides together.
    a, least = np.zeros(len(h)), SLACK * float(np.abs(h).max(initial=0))
    for _ in range(PIVOTS):
        a[:] = 0
        try:
            factor = linalg.cho_factor(K[np.ix_(active, active)], check_finite=False)
        except linalg.LinAlgError:
            return None
        a[active] = linalg.cho_solve(factor, h[active], check_finite=False)
        slack = K @ a - h
        wrong = np.where(active, a < 0, slack < -least)
        if not wrong.any():
            return a if np.abs(slack[active]).max(initial=0) <= least else None
        active = active ^ wrong
    return None


def _nonnegative(K: np.ndarray, scaled: np.ndarray) -> np.ndarray | None:
    value, vectors = np.linalg.eigh(K)
    kept = value > RANK * max(value[-1], 0)
    F = vectors[:, kept] * np.sqrt(value[kept])
    top = max(float(np.abs(scaled).max()), 1e-300)
    # Constraints of equal size, so that the test of consistency does not depend on units.
    E = np.vstack([F.T, scaled / top])
    f = np.zeros(len(E))
    f[-1] = 1
    u, distance = nnls(E, f, maxiter=30 * E.shape[1] + 100)
    if distance < 1e-7:
        return None
    return u / (distance**2) * top

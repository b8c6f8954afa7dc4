"""Conjugate gradients for many right-hand sides at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sklseq.solvers._result import SolverResult

__all__ = ["cg"]

# Squared length, relative to the longest, below which a direction counts as dependent on others:
# so many roundings.
DEPENDENT = 50


def cg(
    objective,
    gradient: np.ndarray,
    *,
    preconditioner: np.ndarray | None = None,
    tol: float = 1e-6,
    max_iter: int = 500,
    callback: Callable[[int, float, np.ndarray], bool] | None = None,
) -> SolverResult:
    """Solve A W = B, A being positive semidefinite, for all columns of B together.

    Block conjugate gradients: each iteration applies A once, to a block P of directions, and
    minimises ½ tr WᵀAW - tr WᵀB over W + span P for every column, so that columns profit from each
    other's directions:

        W ← W + P a,   a = (PᵀAP)⁻¹ PᵀR,   R ← R - A P a,   P ← Z - P (PᵀAP)⁻¹ (AP)ᵀ Z,   Z = D R.

    Directions that have come to depend on others are dropped, so that neither equal columns nor
    those solved before the rest do harm.

    Parameters
    ----------
    objective : object with ``hessian_product(P) -> ndarray``
        A times a block of columns; must not keep P.
    gradient : ndarray of shape (n, k)
        B: what the steepest ascent from zero follows. If float32, so are all large arrays; matrices
        of k² are float64 in any case.
    preconditioner : ndarray of shape (n,), optional
        D, about the inverse of the diagonal of A. Without it, a singular but consistent system is
        given its solution of minimum norm.
    tol : float
        Stops when each column's residual is at most ``tol`` times as long as the longest of B.
    max_iter : int
    callback : callable(iteration, residual, W) -> bool
        Called after each iteration with the relative residual; True stops.

    Returns
    -------
    SolverResult
        ``value`` is ½ tr WᵀAW - tr WᵀB; ``history`` holds relative residuals.

    Notes
    -----
    Four blocks of n · k numbers are held. Beside the product, an iteration costs O(n · k²).

    References
    ----------
    D. P. O'Leary (1980), "The block conjugate gradient algorithm and related methods", Linear
    Algebra and its Applications 29, §2.

    H. Ji, Y. Li (2017), "A breakdown-free block conjugate gradient method", BIT 57, Algorithm 1.
    """
    W, R = np.zeros_like(gradient), gradient.copy()
    scale = _longest(gradient)
    history, message = [1.0 if scale else 0.0], "" if scale else "residual"
    P = None if message else _independent(_precondition(preconditioner, R))
    for k in range(1, max_iter + 1):
        if message:
            break
        AP = objective.hessian_product(P)
        inverse = _pseudo_inverse(P.T @ AP)
        step = (inverse @ (P.T @ R)).astype(R.dtype)
        W += P @ step
        R -= AP @ step
        history.append(_longest(R) / scale)
        if history[-1] <= tol:
            message = "residual"
        elif callback is not None and callback(k, history[-1], W):
            message = "callback"
        else:
            Z = _precondition(preconditioner, R)
            Z -= P @ (inverse @ (AP.T @ Z)).astype(R.dtype)
            P = _independent(Z)
            message = "" if P.shape[1] else "precision"
    value = -0.5 * float(np.vdot(W, gradient + R))
    converged = message in ("residual", "callback")
    return SolverResult(W, value, len(history) - 1, converged, history, message or "max_iter")


def _longest(R: np.ndarray) -> float:
    return float(np.sqrt(np.einsum("ij,ij->j", R, R).max(initial=0.0)))


def _precondition(preconditioner: np.ndarray | None, R: np.ndarray) -> np.ndarray:
    return R.copy() if preconditioner is None else preconditioner[:, None] * R


def _independent(Z: np.ndarray) -> np.ndarray:
    # Orthonormal directions that span those of Z, columns first brought to equal length.
    products = (Z.T @ Z).astype(np.float64)
    length = np.sqrt(np.diag(products))
    scale = np.where(length > 0, 1 / np.where(length > 0, length, 1), 0)
    square, vectors = np.linalg.eigh(products * np.outer(scale, scale))
    kept = square > DEPENDENT * np.finfo(Z.dtype).eps * max(square[-1], 0)
    return Z @ (scale[:, None] * vectors[:, kept] / np.sqrt(square[kept])).astype(Z.dtype)


def _pseudo_inverse(S: np.ndarray) -> np.ndarray:
    # Of PᵀAP: directions along which A is zero up to rounding are left alone.
    value, vectors = np.linalg.eigh((S + S.T).astype(np.float64) / 2)
    kept = value > DEPENDENT * np.finfo(S.dtype).eps * max(value[-1], 0)
    return (vectors[:, kept] / value[kept]) @ vectors[:, kept].T

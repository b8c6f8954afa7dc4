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
        A times a block of columns; must not keep P, and may use its answer's memory again.
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
    Z, change = np.empty_like(R), np.empty_like(R)  # memory that all iterations share
    scale = _longest(gradient)
    history, message = [1.0 if scale else 0.0], "" if scale else "residual"
    P = None if message else _independent(_precondition(preconditioner, R, Z), None)
    for k in range(1, max_iter + 1):
        if message:
            break
        AP = objective.hessian_product(P)
        inverse = _pseudo_inverse(P.T @ AP)
        step = (inverse @ (P.T @ R)).astype(R.dtype)
        W += np.matmul(P, step, out=change)
        R -= np.matmul(AP, step, out=change)
        history.append(_longest(R) / scale)
        if history[-1] <= tol:
            message = "residual"
        elif callback is not None and callback(k, history[-1], W):
            message = "callback"
        else:
            _precondition(preconditioner, R, Z)
            Z -= np.matmul(P, (inverse @ (AP.T @ Z)).astype(R.dtype), out=change)
            P = _independent(Z, P)
            message = "" if P.shape[1] else "precision"
    value = -0.5 * float(np.vdot(W, gradient + R))
    converged = message in ("residual", "callback")
    return SolverResult(W, value, len(history) - 1, converged, history, message or "max_iter")


def _longest(R: np.ndarray) -> float:
    return float(np.sqrt(np.einsum("ij,ij->j", R, R).max(initial=0.0)))


def _precondition(preconditioner: np.ndarray | None, R: np.ndarray, out: np.ndarray) -> np.ndarray:
    return np.multiply(R, 1 if preconditioner is None else preconditioner[:, None], out=out)


def _independent(Z: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    # Orthonormal directions that span those of Z, columns first brought to equal length; in the
    # memory of ``out`` if they are as many.
    products = (Z.T @ Z).astype(np.float64)
    length = np.sqrt(np.diag(products))
    scale = np.where(length > 0, 1 / np.where(length > 0, length, 1), 0)
    square, vectors = np.linalg.eigh(products * np.outer(scale, scale))
    kept = square > DEPENDENT * np.finfo(Z.dtype).eps * max(square[-1], 0)
    basis = (scale[:, None] * vectors[:, kept] / np.sqrt(square[kept])).astype(Z.dtype)
    return np.matmul(Z, basis, out=out if out is not None and kept.sum() == out.shape[1] else None)


def _pseudo_inverse(S: np.ndarray) -> np.ndarray:
    # Of PᵀAP: directions along which A is zero up to rounding are left alone.
    value, vectors = np.linalg.eigh((S + S.T).astype(np.float64) / 2)
    kept = value > DEPENDENT * np.finfo(S.dtype).eps * max(value[-1], 0)
    return (vectors[:, kept] / value[kept]) @ vectors[:, kept].T

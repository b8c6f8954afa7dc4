"""Conjugate gradients for many right-hand sides at once."""

from collections.abc import Callable

import numpy as np

from sklseq.solvers._result import SolverResult

BLOCK = 2_048  # rows processed at a time, so that they stay in the cache

# A direction counts as dependent on others if its squared length, relative to the longest, is below
# this many units of rounding.
DEPENDENT = 50
# Residual, as a multiple of the first, that only rounding errors can produce.
DIVERGED = 1e4


def cg(
    objective,
    gradient: np.ndarray,
    *,
    preconditioner: np.ndarray | None = None,
    tol: float = 1e-6,
    max_iter: int = 500,
    callback: Callable[[int, float, np.ndarray], bool] | None = None,
    start: np.ndarray | None = None,
) -> SolverResult:
    """Solve A W = B for all columns of B, where A is positive semidefinite.

    Block conjugate gradients: each iteration applies A once, to a block P of directions, and
    minimises ½ tr WᵀAW - tr WᵀB over W + span P for every column, so that each column uses the
    directions of all:

        W ← W + P a,   a = (PᵀAP)⁻¹ PᵀR,   R ← R - A P a,   P ← R - P (PᵀAP)⁻¹ (AP)ᵀ R.

    With a preconditioner D, the system is √D A √D and √D B, whose solution is W / √D. If D is the
    inverse of the diagonal of A, the iterates, the choice of dependent directions and the stopping
    rule do not depend on the units of the rows of W.

    Directions that depend linearly on others are dropped, as they arise from equal columns and from
    columns that are solved before the rest.

    Parameters
    ----------
    objective : object with ``hessian_product(P) -> ndarray``
        A times a block of columns. It must not keep P; it may reuse the memory of its result.
    gradient : ndarray of shape (n, k)
        B, minus the gradient at W = 0. Large arrays have its type; k × k matrices are float64.
    preconditioner : ndarray of shape (n,), optional
        D. Without it, the solution of a singular but consistent system has minimum norm.
    tol : float
        Stops when two numbers of each column are at most ``tol``: the length of its residual √D R
        as a fraction of that of √D B, and the root of the gain of the iteration as a fraction of
        the whole gain. The gain is the squared error, in the norm of A, that was removed.
    max_iter : int
    callback : callable(iteration, error, W √D⁻¹) -> bool
        Called after each iteration with the largest of these numbers; True stops.
    start : ndarray of shape (n, k), optional
        First W, by default 0; one application of A more. The stopping rule is the same: gains
        include that of ``start`` over 0.

    Returns
    -------
    SolverResult
        ``value`` is ½ tr WᵀAW - tr WᵀB; ``history`` holds the largest of these numbers.

    Notes
    -----
    Five blocks of n · k numbers are held. Beside the product, an iteration costs O(n · k²).

    References
    ----------
    D. P. O'Leary (1980), "The block conjugate gradient algorithm and related methods", Linear
    Algebra and its Applications 29, §2.

    H. Ji, Y. Li (2017), "A breakdown-free block conjugate gradient method", BIT 57, Algorithm 1.
    """
    root = np.ones((len(gradient), 1), gradient.dtype)
    if preconditioner is not None:
        root = np.sqrt(preconditioner).astype(gradient.dtype)[:, None]
    W, R = np.zeros_like(gradient), gradient * root
    first, products = _first_directions(R)
    total = np.zeros(len(first))
    if start is not None:
        total = _move_to(start, W, R, objective, root)
        products = _first_directions(R)[1]
    Z, scaled = R.copy(), np.empty_like(R)
    history = [float(first.any())]
    message = "" if first.any() else "residual"
    P = _independent(Z, products, None)
    for k in range(1, max_iter + 1):
        if message:
            break
        AP = objective.hessian_product(_times(P, root, scaled))
        AP = _times(AP, root, AP)
        inverse, PR = _products(P, AP, R)
        step = inverse @ PR
        gain = np.einsum("ij,ij->j", PR, step)
        total += gain
        squares, APZ = _step(P, AP, step.astype(R.dtype), W, R, Z)
        history.append(float(np.sqrt(max(_share(squares, first), _share(gain, total)))))
        if not history[-1] < DIVERGED:  # A is not positive semidefinite up to rounding
            message = "precision"
        elif history[-1] <= tol:
            message = "residual"
        elif callback is not None and callback(k, history[-1], W):
            message = "callback"
        else:
            products = _conjugate(Z, P, (inverse @ APZ).astype(R.dtype))
            P = _independent(Z, products, P)
            message = "" if P.shape[1] else "residual"  # no independent direction is left
    value = -0.5 * float(np.vdot(W, gradient * root + R))
    W *= root
    converged = message in ("residual", "callback")
    return SolverResult(W, value, len(history) - 1, converged, history, message or "max_iter")


def _move_to(start, W, R, objective, root) -> np.ndarray:
    # Set W and R, 0 and B so far, to those of the start; return its gain over 0.
    W += start / root
    before = _column_products(W, R)
    R -= objective.hessian_product(np.ascontiguousarray(start, dtype=R.dtype)) * root
    return np.maximum(before + _column_products(W, R), 0)  # 2 tr WᵀB - tr WᵀAW


def _share(parts: np.ndarray, wholes: np.ndarray) -> float:
    # Largest part / whole, where 0 / 0 is 0.
    return float(np.max(parts / np.where(wholes > 0, wholes, 1), initial=0.0))


# Each function reads its arrays once, in blocks of rows that stay in the cache: beside the product,
# the cost of an iteration is memory traffic. Sums over blocks are float64.


def _blocks(n: int) -> list[slice]:
    return [slice(a, min(a + BLOCK, n)) for a in range(0, n, BLOCK)]


def _times(P: np.ndarray, root: np.ndarray, out: np.ndarray) -> np.ndarray:
    out = out[:, : P.shape[1]]
    return np.multiply(P, root, out=out)


def _column_products(W, R) -> np.ndarray:
    return np.einsum("ij,ij->j", W, R, dtype=np.float64)


def _first_directions(R) -> tuple[np.ndarray, np.ndarray]:
    # Squared lengths of columns of R, and RᵀR.
    products = np.zeros((R.shape[1],) * 2)
    for rows in _blocks(len(R)):
        products += R[rows].T @ R[rows]
    return products.diagonal().copy(), products


def _products(P, AP, R) -> tuple[np.ndarray, np.ndarray]:
    # (PᵀAP)⁻¹ and PᵀR.
    PAP, PR = np.zeros((P.shape[1],) * 2), np.zeros((P.shape[1], R.shape[1]))
    for rows in _blocks(len(P)):
        PAP += P[rows].T @ AP[rows]
        PR += P[rows].T @ R[rows]
    return _pseudo_inverse(PAP, P.dtype), PR


def _step(P, AP, step, W, R, Z) -> tuple[np.ndarray, np.ndarray]:
    # Update W and R, and set Z = R; return squared lengths of the columns of R, and (AP)ᵀR.
    squares, APR = np.zeros(R.shape[1]), np.zeros(step.shape)
    for rows in _blocks(len(P)):
        W[rows] += P[rows] @ step
        R[rows] -= AP[rows] @ step
        squares += np.einsum("ij,ij->j", R[rows], R[rows])
        Z[rows] = R[rows]
        APR += AP[rows].T @ R[rows]
    return squares, APR


def _conjugate(Z, P, factor) -> np.ndarray:
    # Make Z conjugate to P with respect to A; return ZᵀZ.
    products = np.zeros((Z.shape[1],) * 2)
    for rows in _blocks(len(Z)):
        Z[rows] -= P[rows] @ factor
        products += Z[rows].T @ Z[rows]
    return products


def _independent(Z: np.ndarray, products: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    # Orthonormal basis of the span of the columns of Z, scaled to equal length first; written into
    # ``out`` if the shape agrees.
    length = np.sqrt(np.diag(products))
    scale = np.where(length > 0, 1 / np.where(length > 0, length, 1), 0)
    square, vectors = np.linalg.eigh(products * np.outer(scale, scale))
    kept = square > DEPENDENT * np.finfo(Z.dtype).eps * square.max(initial=0)
    basis = (scale[:, None] * vectors[:, kept] / np.sqrt(square[kept])).astype(Z.dtype)
    if out is None or out.shape[1] != basis.shape[1]:
        out = np.empty((len(Z), basis.shape[1]), Z.dtype)
    for rows in _blocks(len(Z)):
        np.matmul(Z[rows], basis, out=out[rows])
    return out


def _pseudo_inverse(S: np.ndarray, dtype: np.dtype) -> np.ndarray:
    # Pseudo-inverse of S = PᵀAP; directions along which A is zero up to rounding are ignored.
    value, vectors = np.linalg.eigh((S + S.T) / 2)
    kept = value > DEPENDENT * np.finfo(dtype).eps * max(value[-1], 0)
    return (vectors[:, kept] / value[kept]) @ vectors[:, kept].T

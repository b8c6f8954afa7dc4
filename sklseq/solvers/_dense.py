"""Linear systems and small quadratic programs with a dense matrix."""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.optimize import nnls

from sklseq._lib.column_sizes import column_sizes
from sklseq.solvers._result import SolverResult

# Eigenvalues below this fraction of the largest are treated as zero.
RANK = 1e-12
# A ridge below this fraction of the largest diagonal entry is within the rounding error.
TRUSTED = 1e-10
PIVOTS = 30  # sets of active constraints tried by block pivoting
SLACK = 1e-10  # allowed violation of a constraint, as a fraction of the largest right-hand side
DEPENDENT = 1e-10  # squared distance of a row of length 1 from the span of others that counts as 0
EXCHANGES = 20  # steps of the dual method per constraint; more show that rounding prevents an end


def solve_dense(A: np.ndarray, B: np.ndarray, ridge: float) -> SolverResult:
    """Solve (A + ridge) W = B for a positive semidefinite A; without a ridge, W of minimum norm.

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
    K: np.ndarray,
    h: np.ndarray,
    active: np.ndarray | None = None,
    start: np.ndarray | None = None,
) -> np.ndarray | None:
    """Minimise ½ aᵀKa - hᵀa over a ≥ 0: the dual of min ½ ‖x‖² with F x ≥ h, where K = F Fᵀ.

    Block pivoting comes first: one Cholesky factor for each set of active constraints. If it does
    not end, or the constraints are dependent, violated constraints are added one by one to those of
    ``start``; if this fails too, an eigendecomposition and nonnegative least squares are used.

    Parameters
    ----------
    K : ndarray of shape (n, n)
        Positive semidefinite.
    h : ndarray of shape (n,)
    active : bool ndarray of shape (n,), optional
        The first set of active constraints; by default all.
    start : ndarray of shape (n,), optional
        The solution without some of the constraints, 0 for these.

    Returns
    -------
    ndarray of shape (n,), or None
        None if no x satisfies all constraints.

    References
    ----------
    D. Goldfarb, A. Idnani (1983), "A numerically stable dual method for solving strictly convex
    quadratic programs", Mathematical Programming 27.
    C. L. Lawson, R. J. Hanson (1974), *Solving Least Squares Problems*, §23.4, LDP.
    L. F. Portugal, J. J. Júdice, L. N. Vicente (1994), "A comparison of block pivoting and
    interior-point algorithms for linear least squares problems with nonnegative variables",
    Mathematics of Computation 63.
    """
    size = np.sqrt(np.maximum(np.diag(K), 1e-300))
    K, scaled = K / np.outer(size, size), h / size
    a = _pivot(K, scaled, np.ones(len(h), dtype=bool) if active is None else active)
    if a is None:
        a = _exchange(K, scaled, np.zeros(len(h)) if start is None else start * size)
    if a is None:
        a = _nonnegative(K, scaled)
    return a if a is None else a / size


def _pivot(K: np.ndarray, h: np.ndarray, active: np.ndarray) -> np.ndarray | None:
    # Block pivoting: all constraints of the wrong sign become active or inactive at once.
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


def _exchange(K: np.ndarray, h: np.ndarray, start: np.ndarray) -> np.ndarray | None:
    # Dual method of Goldfarb and Idnani: the most violated constraint becomes active. A step ends
    # when it is satisfied, or when the multiplier of another constraint is 0, which then becomes
    # inactive. At most as many constraints are active as x has components.
    a, active = start.copy(), np.flatnonzero(start)
    try:
        inverse = linalg.inv(K[np.ix_(active, active)], check_finite=False)
    except linalg.LinAlgError:
        return None
    slack, least, new = K @ a - h, SLACK * float(np.abs(h).max(initial=0)), -1
    for _ in range(EXCHANGES * len(h)):
        if new < 0:
            new = int(slack.argmin())
            if slack[new] >= -least:
                break
        r = inverse @ K[active, new]
        left = K[new, new] - K[active, new] @ r
        ratios = np.divide(a[active], r, out=np.full(len(r), np.inf), where=r > 0)
        full = -slack[new] / left if left > DEPENDENT else np.inf
        step = min(float(ratios.min(initial=np.inf)), full)
        if step == np.inf:
            return None  # it contradicts a combination of the active constraints
        a[active] = np.maximum(a[active] - step * r, 0)
        a[new] += step
        if left > DEPENDENT:
            move = np.zeros(len(h))
            move[active], move[new] = -r, 1
            slack += step * (K @ move)
        if step == full:
            edge = np.append(-r, 1.0)
            inverse = np.pad(inverse, (0, 1)) + np.outer(edge, edge / left)
            active, new = np.append(active, new), -1
            continue
        last = int(ratios.argmin())
        a[active[last]] = 0
        rest = np.arange(len(active)) != last
        column = inverse[rest, last]
        inverse = inverse[np.ix_(rest, rest)] - np.outer(column, column / inverse[last, last])
        active = active[rest]
    slack = K @ a - h
    is_right = slack.min(initial=0) >= -least and np.abs(slack[a > 0]).max(initial=0) <= least
    return a if is_right else None


def _nonnegative(K: np.ndarray, scaled: np.ndarray) -> np.ndarray | None:
    value, vectors = np.linalg.eigh(K)
    kept = value > RANK * max(value[-1], 0)
    F = vectors[:, kept] * np.sqrt(value[kept])
    top = max(float(np.abs(scaled).max()), 1e-300)
    # Equal scale of constraints makes the test of consistency independent of units.
    E = np.vstack([F.T, scaled / top])
    f = np.zeros(len(E))
    f[-1] = 1
    u, distance = nnls(E, f, maxiter=30 * E.shape[1] + 100)
    if distance < 1e-7:
        return None
    return u / (distance**2) * top

"""Linear systems and small quadratic programs with a dense matrix."""

import numpy as np
from scipy import linalg
from scipy.optimize import nnls

from sklseq._lib.column_sizes import column_sizes
from sklseq._lib.cpu import load_kernel
from sklseq._lib.tiny import TINY
from sklseq.solvers._result import SolverResult

_exchange = load_kernel("sklseq.solvers._exchange")

# Eigenvalues below this fraction of the largest are treated as zero.
RANK = 1e-12
# A ridge below this fraction of the largest diagonal entry is within the rounding error.
TRUSTED = 1e-10
UNIT = 1e-12  # difference from 1 of the diagonal of K that is rounding
PIVOTS = 30  # sets of active constraints tried by block pivoting
SLACK = 1e-10  # allowed violation of a constraint, as a fraction of the largest right-hand side
DEPENDENT = 1e-10  # squared distance of a row of length 1 from the span of others that counts as 0
# Multipliers above this multiple of the largest right-hand side grow without limit: the rows have
# length 1 and distances above DEPENDENT, and constraints that contradict each other are not always
# dependent by then.
UNBOUNDED = 1e30
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
    size = np.sqrt(np.maximum(np.diag(K), TINY))
    if np.abs(size - 1).max(initial=0) > UNIT:
        K = K / np.outer(size, size)
    scaled = h / size
    a = _pivot(K, scaled, np.ones(len(h), dtype=bool) if active is None else active)
    if a is None:
        a = _exchanges(K, scaled, np.zeros(len(h)) if start is None else start * size)
    if a is None:
        a = _nonnegative(K, scaled)
    return a if a is None else a / size


def _pivot(K: np.ndarray, h: np.ndarray, active: np.ndarray) -> np.ndarray | None:
    # Block pivoting: all constraints of the wrong sign become active or inactive at once.
    a, least = np.zeros(len(h)), SLACK * float(np.abs(h).max(initial=0))
    for _ in range(PIVOTS):
        a[:] = 0
        try:
            block = K[np.ix_(active, active)].T  # in LAPACK's order, of which SciPy makes no copy
            factor = linalg.cho_factor(block, check_finite=False, overwrite_a=True)
        except linalg.LinAlgError:
            return None
        a[active] = linalg.cho_solve(factor, h[active], check_finite=False)
        slack = K @ a - h
        wrong = np.where(active, a < 0, slack < -least)
        if not wrong.any():
            return a if np.abs(slack[active]).max(initial=0) <= least else None
        active = active ^ wrong
    return None


def _exchanges(K: np.ndarray, h: np.ndarray, start: np.ndarray) -> np.ndarray | None:
    # Dual method of Goldfarb and Idnani. At most as many constraints are active as x has
    # components.
    n, a, which = len(h), start.copy(), np.flatnonzero(start)
    m, numbers, inverse = len(which), np.zeros(n, dtype=np.intp), np.zeros((n, n))
    numbers[:m] = which
    try:
        inverse[:m, :m] = np.linalg.inv(K[np.ix_(which, which)])
    except linalg.LinAlgError:
        return None
    largest = float(np.abs(h).max(initial=0))
    least, most = SLACK * largest, UNBOUNDED * largest
    limits = least, most, DEPENDENT, EXCHANGES * n
    K = np.ascontiguousarray(K)
    if not _exchange.exchange(K, h, a, numbers, inverse, m, np.empty((2, n)), *limits):
        return None
    slack = K @ a - h
    is_right = slack.min(initial=0) >= -least and np.abs(slack[a > 0]).max(initial=0) <= least
    return a if is_right else None


def _nonnegative(K: np.ndarray, scaled: np.ndarray) -> np.ndarray | None:
    value, vectors = np.linalg.eigh(K)
    kept = value > RANK * max(value[-1], 0)
    F = vectors[:, kept] * np.sqrt(value[kept])
    top = max(float(np.abs(scaled).max()), TINY)
    # Equal scale of constraints makes the test of consistency independent of units.
    E = np.vstack([F.T, scaled / top])
    f = np.zeros(len(E))
    f[-1] = 1
    u, distance = nnls(E, f, maxiter=30 * E.shape[1] + 100)
    if distance < 1e-7:
        return None
    return u / (distance**2) * top

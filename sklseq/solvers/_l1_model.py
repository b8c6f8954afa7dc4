"""Minimum of a quadratic function with an L1 penalty, for few weights."""

import numpy as np
from scipy import linalg

from sklseq._lib.cpu import load_kernel

_vectors = load_kernel("sklseq.solvers._vectors")

# A round is N_SWEEPS sweeps of coordinate descent and a Newton step. At most N_ROUNDS are run, and
# fewer, at least two, if the cubes of the number of weights sum to more than MOST_WORK.
N_SWEEPS, N_ROUNDS, MOST_WORK = 10, 32, 3e8


def minimise_with_l1(
    H: np.ndarray, g: np.ndarray, w: np.ndarray, l1: np.ndarray, least: float
) -> tuple[np.ndarray, float]:
    """argmin_u m(u) = g · d + d · H d / 2 + Σ l1 (|u| - |w|), d = u - w, and -m(u), approximately.

    Coordinate descent finds the signs; a Newton step of the weights that are not zero, up to the
    first that becomes zero, finds their values. No round increases m. Ends when a round gains at
    most ``least``.

    Parameters
    ----------
    H : ndarray of shape (n, n)
        Positive definite.
    g, w, l1 : ndarray of shape (n,)
    least : float
    """
    u, slope, gain = w.copy(), g.copy(), 0.0
    for _ in range(int(np.clip(MOST_WORK / len(w) ** 3, 2, N_ROUNDS))):
        before = gain
        _vectors.descend_coordinates(H, slope, u, l1, N_SWEEPS)
        _newton_step(H, slope, u, l1)
        change = H @ (u - w)
        slope = g + change
        gain = float((w - u) @ (g + change / 2) + l1 @ (np.abs(w) - np.abs(u)))
        if not gain > before + least:
            break
    return u, gain


def _newton_step(H: np.ndarray, slope: np.ndarray, u: np.ndarray, l1: np.ndarray) -> None:
    # Changes u; the matrix is scaled to a diagonal of ones.
    at = np.flatnonzero(u)
    signs, scale = np.sign(u[at]), np.sqrt(H[at, at])
    v = (slope[at] + l1[at] * signs) / scale
    factor = linalg.cho_factor(H[np.ix_(at, at)] / scale / scale[:, None], check_finite=False)
    step = linalg.cho_solve(factor, -v, check_finite=False) / scale
    to_zero = np.full(len(at), np.inf)
    np.divide(-u[at], step, out=to_zero, where=step * signs < 0)
    t = min(1.0, to_zero.min(initial=np.inf))
    u[at] = np.where(to_zero <= t, 0.0, u[at] + t * step)

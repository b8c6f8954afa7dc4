"""Margin training with a softened maximum that is sharpened until the duality gap is small."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sklseq._lib.threads import Threads
from sklseq._lib.tiny import TINY
from sklseq.solvers._lbfgs import lbfgs
from sklseq.solvers._result import ROUNDING, SolverResult

FIRST = 0.25  # first temperature, as a fraction of the typical loss of a row
# Fractions of the allowed gap: ACCURACY may remain after L-BFGS, AIM is what the next temperature
# should leave as the rest of the gap, which grows about with its 1.5th power, 1 / POWER. One step
# multiplies the temperature by a factor within FACTORS.
ACCURACY, AIM, POWER, FACTORS = 0.2, 0.6, 0.65, (0.1, 0.5)
STEPS = 40  # maximum number of temperatures; the last is far below rounding


def smoothing(
    objective: Any,
    *,
    tol: float = 1e-2,
    max_iter: int = 1000,
    threads: Threads | None = None,
    callback: Callable[[int, float, Any], bool] | None = None,
) -> SolverResult:
    """Minimise a softened objective by L-BFGS, at lower and lower temperatures.

    Parameters
    ----------
    objective : object with typical_loss, cool, value_and_gradient, measure, slope, rounding
    tol : float
        Training stops when the duality gap is at most this fraction of the primal objective.
    max_iter : int
        Total number of L-BFGS iterations at all temperatures.
    threads : Threads, optional
    callback : callable(iteration, primal, objective) -> bool, optional
        Called after each temperature; True stops.

    Returns
    -------
    SolverResult
        ``w`` is the objective, which holds the best weights; ``history`` has rows (iteration,
        primal, dual, gap), one for each temperature.

    References
    ----------
    B. Taskar, C. Guestrin, D. Koller (2003), "Max-margin Markov networks", NIPS (dual of a chain).

    Y. Nesterov (2005), "Smooth minimization of non-smooth functions", Mathematical Programming 103.
    """
    temperature, accuracy = FIRST * objective.typical_loss, ACCURACY * tol
    history, k, message = [], 0, "max_iter reached"

    def is_accurate(step: int, value: float, v: np.ndarray) -> bool:
        return objective.slope <= accuracy * value

    for _ in range(STEPS):
        v, left = objective.cool(temperature), max_iter - k
        result = lbfgs(objective, v, tol=0.0, max_iter=left, threads=threads, callback=is_accurate)
        k += result.n_iter
        primal, dual, rest = objective.measure(result.w)
        gap = primal - dual
        history.append((k, primal, dual, gap))
        if gap <= tol * primal:
            message = "gap within tol"
        elif callback is not None and callback(k, primal, objective):
            message = "stopped by the callback"
        elif k < max_iter and 2 * objective.rounding >= gap:
            message = ROUNDING  # rounding errors at least double at the next temperature
        elif k < max_iter:
            factor = (AIM * tol * primal / max(gap - rest, TINY)) ** POWER
            temperature *= float(np.clip(factor, *FACTORS))
            continue
        break
    converged = message == "gap within tol"
    if converged and callback is not None:
        callback(k, primal, objective)
    return SolverResult(objective, primal, k, converged, history, message)

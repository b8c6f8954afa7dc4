"""L-BFGS, with or without an L1 penalty: one loop and one stopping rule.

With l1 = 0, a weak-Wolfe line search (Nocedal, Wright 2006, §7.2); with l1 > 0, see ``_owlqn.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from sklseq._lib.threads import Threads
from sklseq.solvers._block_metric import BlockMetric
from sklseq.solvers._owlqn import OrthantSearch
from sklseq.solvers._result import SolverResult
from sklseq.solvers._search import Search

__all__ = ["estimated_rest", "lbfgs"]

# Decreases are compared over a fifth of all iterations, at least so many, and the estimate is so
# many times the rest of a geometric series: without a metric, and with one, which converges faster.
PERIODS, FACTORS = (10, 5), (2, 1)
# With a metric, decreases may fall off more slowly than a geometric series: d over five iterations
# of n counts d · SLOW · √(n / 5) at least. (61 traces of six corpora, or parts: with tol = 0.01, 32
# iterations and no excess above tol; five iterations and 2.5 times the series: 37 and none. With
# 0.001, 71 and 5 of 57 above, up to 1.7 tol; 79 and 5, up to 2.4.)
SLOW = 2.5
# A metric is dropped where the objective falls below this fraction of its first value: few rows are
# as uncertain as where it was taken (on citations of 10,000 tokens with l2 = 0.1, seven
# iterations of 53 were due to the blocks, and a fifth of the time of each).
STALE = 0.5
# Fraction of what tol allows that a step along the other direction must gain for the run to go on
# (such a step gains between a quarter and nine tenths of what is left).
OTHER = 0.1
# Ratio of scales above which the objective along the gradient without scales checks an estimate.
UNEQUAL = 1e4


def lbfgs(
    objective,
    w: np.ndarray,
    *,
    l1: float = 0.0,
    tol: float = 1e-5,
    max_iter: int = 500,
    threads: Threads | None = None,
    callback: Callable[[int, float, np.ndarray], bool] | None = None,
    scale: np.ndarray | None = None,
    metric: BlockMetric | None = None,
    convexity: float = 0.0,
    slack: float = 1.0,
    pairs: list | None = None,
    other_direction: Callable[[np.ndarray], np.ndarray] | None = None,
) -> SolverResult:
    """Minimise ``objective`` + l1 · ‖w‖₁ to a relative accuracy of ``tol``.

    A bound proves it if the objective is strongly convex and its slope small enough; otherwise the
    distance is estimated from the decreases of the last iterations, see :func:`estimated_rest`.

    Parameters
    ----------
    objective : object with ``value_and_gradient(w, gradient) -> float``
        Smooth and convex; writes its gradient into the second argument.
    w : ndarray
        Starting point; overwritten.
    l1 : float
    tol : float
    max_iter : int
    threads : Threads
    callback : callable(iteration, value, w) -> bool
        Called after each iteration; True stops.
    scale : ndarray, optional
        Positive; the recursion works on ``scale · w``. If the curvatures of weights differ very
        much, it stops far from the minimum without a scale.
    metric : BlockMetric, optional
        First guess of the Hessian in ``scale · w``, in place of the identity, until the objective
        is half of its first value.
    convexity : float
        m such that objective - m/2 · ‖w‖² is convex too: with v the subgradient of least norm, the
        objective exceeds its minimum by ‖v‖² / 2m at most.
    slack : float
        So many times ``tol`` is what the estimated distance may be; the bound keeps to ``tol``.
    pairs : list of (ndarray, ndarray), optional
        Changes of w and of the gradient, from the oldest: from those of a run on an objective with
        about the same Hessian. Replaced by those of this run.
    other_direction : callable(v) -> ndarray, optional
        A positive semidefinite matrix times the subgradient. An estimate ends the run only if a
        search along minus this direction gains at most a tenth of what ``tol`` allows; otherwise
        the run goes on from the best point of this search.

    Returns
    -------
    SolverResult
        ``message`` is "bound", "estimate", "gradient" (it is zero), "precision" (rounding allows
        no further step), "callback" or "max_iter"; "flat" if the scales of weights differ much and
        a long step along the gradient without scales refutes the estimate.

    Notes
    -----
    Memory: four vectors besides ``w`` and ten pairs of vectors (60 up to 4096 weights), in float32
    if they are long, of a sixteenth of 2²⁰ weights or more (``_reduced_history.py``); a few more
    vectors with ``l1`` or ``scale``.
    """
    threads = threads or Threads(1)
    if scale is not None:
        objective, w = Scaled(objective, scale), scale * w
        l1 = l1 / scale if l1 else 0.0
    if np.any(l1):
        search = OrthantSearch(objective, w, l1, threads, metric)
    else:
        search = Search(objective, w, threads, metric)
    units = 1.0 if scale is None else scale
    search.history.take_over(((units * s, y / units) for s, y in pairs or []), search.v)
    history = [search.value]
    why_stop = partial(_why_stop, search, history, tol, convexity, slack, scale, metric is not None)
    message = why_stop()
    for _ in range(max_iter):
        if message:
            break
        if not search.advance():
            message = "precision"
            break
        history.append(search.value)
        if search.value < STALE * history[0]:
            search.history.metric = None
        message = why_stop()
        if message == "estimate" and scale is not None and scale.max() > UNEQUAL * scale.min():
            # One outlier in a column gives it a scale at which the other rows hardly count.
            message = "flat" if search.is_flat(scale, tol * abs(search.value)) else message
        if message == "estimate" and other_direction is not None:
            p = units * other_direction((units * search.v).astype(w.dtype))
            if search.gains_along(p, OTHER * tol * abs(search.value)):
                message, history[-1] = "", search.value
        now = search.w if scale is None else search.w / scale
        if callback is not None and callback(len(history) - 1, search.value, now):
            message = message or "callback"
    if pairs is not None:
        found = search.history.oldest_first()
        pairs[:] = [((s / units).astype(s.dtype), (y * units).astype(y.dtype)) for s, y in found]
    w = search.w if scale is None else search.w / scale
    return SolverResult(
        w,
        search.value,
        len(history) - 1,
        message not in ("", "flat"),
        history,
        message or "max_iter",
    )


def estimated_rest(history: list, has_metric: bool = False) -> float:
    """Estimated distance of the last value from the limit of the sequence, by a geometric series.

    If each period of n iterations lowers the objective by r times the decrease of the one before,
    and the last one by d, it will fall by d · r / (1 - r) more. n is a fifth of all iterations,
    at least ten. r is unknown: it is taken to be the largest of the last three ratios, and the
    estimate is 2 · d / (1 - r). Infinite for fewer than 20 iterations, and for r >= 1. With a
    metric, n is five at least, and the estimate is d / (1 - r), or e · 2.5 · √(k / 5) if that is
    more, with e the decrease in the last five of k iterations; infinite for fewer than 10.
    """
    period = max(PERIODS[has_metric], (len(history) - 1) // 5)
    falls = np.diff(history[: -4 * period - 2 : -period])  # the last period first
    if len(falls) < 2:
        return np.inf
    r = np.max(falls[:-1] / np.maximum(falls[1:], 1e-300))
    rest = FACTORS[has_metric] * falls[0] / (1 - r) if r < 1 else np.inf
    if has_metric:
        rest = max(rest, SLOW * (history[-6] - history[-1]) * np.sqrt((len(history) - 1) / 5))
    return float(rest)


def _why_stop(
    search: Search, history: list, tol: float, convexity: float, slack: float, scale,
    has_metric: bool,
) -> str:  # fmt: skip
    # Name of the stopping rule that is met, or "".
    allowed = tol * abs(search.value)
    if search.history.with_v[-1] == 0:
        return "gradient"
    if convexity > 0 and search.squared_slope(scale) <= 2 * convexity * allowed:
        return "bound"
    return "estimate" if estimated_rest(history, has_metric) <= slack * allowed else ""


class Scaled:
    """An objective as a function of u = scale · w."""

    def __init__(self, objective, scale: np.ndarray):
        self.objective, self.scale = objective, scale

    def value_and_gradient(self, u: np.ndarray, gradient: np.ndarray) -> float:
        """Value; its gradient in u is written into the second argument."""
        value = self.objective.value_and_gradient(u / self.scale, gradient)
        gradient /= self.scale
        return value

"""L-BFGS, with or without an L1 penalty: one loop and one stopping rule.

With l1 = 0, a weak-Wolfe line search (Nocedal, Wright 2006, §7.2); with l1 > 0, see ``_owlqn.py``.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from sklseq._lib.threads import Threads
from sklseq._lib.tiny import TINY
from sklseq.solvers._block_metric import BlockMetric
from sklseq.solvers._cutting_planes import proved_excess
from sklseq.solvers._owlqn import OrthantSearch
from sklseq.solvers._result import SolverResult
from sklseq.solvers._search import Search

# `estimated_rest` compares decreases over periods of a fifth of all iterations, at least PERIODS,
# and multiplies the rest of a geometric series by FACTORS; the values are for runs (without, with)
# a metric, which speeds up convergence.
PERIODS, FACTORS = (10, 5), (2, 1)
# With a metric, decreases may fall off more slowly than a geometric series, so the estimate is at
# least SLOW · √(n / 5) · d, where d is the decrease in the last five of n iterations. (61 traces of
# six corpora or parts of them, with 2.5. tol = 0.01: 32 iterations on average, no excess above tol;
# 2.5 times the series alone: 37, none above. tol = 0.001: 71 iterations, 5 of 57 excesses above
# tol, up to 1.7 tol; 2.5 times the series alone: 79, 5 above, up to 2.4 tol. With ten pairs, a
# tenth of CoNLL-2000, l2 = 0.001: 1.14 tol with 2.5, 0.56 with 3; the same of NCBI disease, l1 = 1:
# 1.02 and 0.49.)
SLOW = 3.0
# Factor of the estimate in a run with the pairs of another run. (Paths of 13 values of l2 on parts
# of six corpora, l1 = 0 or 0.1, tol = 0.01: 8 iterations for a point on average, largest excess
# 0.82 tol; with 6 in place of NEAR · √(n / 5), up to 1.13 tol.)
NEAR = 3
# An estimate is rejected if a step along the other direction gains more than this fraction of what
# tol allows (such a step gains between a quarter and nine tenths of the remaining excess).
OTHER = 0.1
# An estimate is rejected if a quadratic model can fall by more than this fraction of what tol
# allows. (The excess is up to three times what the model says, mostly less than 1.5 times.)
REMAINS = 0.25
# Ratio of the largest to the smallest scale above which `Search.is_flat` checks an estimate. (Four
# times as much or a quarter changed none of 37 generated fits with columns in all units.)
UNEQUAL = 1e4
# A run whose step fails ends with "rounding" if this many times its last decrease exceeds what tol
# allows, but not if only the last digits of the objective changed: for tol below these, weights in
# float32 end at "precision". (Of an objective of 0.037 in float32, which is the difference of much
# larger sums, the last decrease was a quarter of the remaining excess, 1.4 tol.)
FALLING, DIGITS = 10, 1e3
# Smaller decreases are rounding even of an objective that is 0 at its minimum.
NOTHING = 1e-10
# `proved_excess` is computed when the bound by the gradient is at most this many times as large as
# allowed. (It is met at 0.2 to 17 times: six corpora.)
BOUND_NEAR = 32


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
    metric: BlockMetric | Callable[[], BlockMetric | None] | None = None,
    convexity: float = 0.0,
    gap: float = 0.0,
    pairs: list | None = None,
    n_before: int = 0,
    other_directions: Sequence[Callable[[np.ndarray], np.ndarray]] = (),
    second_derivatives: Sequence[Callable[[np.ndarray], BlockMetric]] = (),
) -> SolverResult:
    """Minimise ``objective`` + l1 · ‖w‖₁ to a relative accuracy of ``tol``.

    For a strongly convex objective the norm of the gradient bounds the excess over the minimum.
    The run stops when this bound, or the estimate from the last decreases of the objective
    (:func:`estimated_rest`), is within ``tol``.

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
        Positive; the recursion works on ``scale · w``. Without it, the run stops far from the
        minimum if the curvatures of weights differ very much.
    metric : BlockMetric or callable() -> BlockMetric or None, optional
        Initial Hessian in ``scale · w``, in place of the identity, until the objective is half of
        its first value. The callable is called at the starting point if no stopping rule is met.
    convexity : float
        m such that objective - m/2 · ‖w‖² is convex too: the objective exceeds its minimum by at
        most ‖v‖² / 2m, where v is the subgradient of least norm.
    gap : float
        The run also stops when :func:`proved_excess`, a sharper bound that needs ``convexity``, is
        within ``gap · tol``; within ``tol`` if it is not at most half of the first bound, which
        shows that the term m/2 · ‖w‖² has most of the curvature and both bounds are close. Not with
        ``pairs`` or ``other_directions``; ignored for ``l1`` and for more than 2²⁰ weights.
    pairs : list of (ndarray, ndarray), optional
        Changes of w and of the gradient, oldest first, from a run on an objective with about the
        same Hessian. Replaced by the pairs of this run.
    n_before : int
        Number of iterations that led to ``pairs`` and w; 0 if w is not near the minimum.
    other_directions : sequence of callable(v) -> ndarray
        Positive semidefinite matrices times the subgradient. An estimate ends the run only if a
        search along minus each of these gains at most a tenth of what ``tol`` allows; otherwise
        the run goes on from the best point of this search.
    second_derivatives : sequence of callable(w) -> BlockMetric
        The Hessian at w with respect to ``scale · w``, as a single block. An estimate ends the run
        only if a model with it can fall by at most a quarter of what ``tol`` allows; otherwise the
        run goes on from the minimum of this model, with the Hessian as metric. If the objective
        does not fall towards this minimum, the run goes on as it was, and the next function takes
        the place of the first.

    Returns
    -------
    SolverResult
        ``message`` is "bound", "estimate", "gradient" (it is zero), "precision" (rounding allows
        no further step), "callback" or "max_iter"; "flat" if the scales of weights differ much and
        a long step along the gradient without scales refutes the estimate; "rounding" if no further
        step is found while the objective still falls by much of what ``tol`` allows.

    Notes
    -----
    Memory: four vectors besides ``w`` and 20 pairs of vectors (60 up to 4096 weights, ten with a
    ``metric`` or above 2¹⁹ weights), in float32 if they are long. From 2²⁰ weights on, pairs have
    entries for a sixteenth of the weights or more (``_reduced_history.py``). ``l1`` and ``scale``
    need a few more vectors.
    """
    threads = threads or Threads(1)
    if scale is not None:
        objective, w = Scaled(objective, scale), scale * w
        l1 = l1 / scale if l1 else 0.0
    if np.any(l1):
        search = OrthantSearch(objective, w, l1, threads, metric is not None)
    else:
        search = Search(objective, w, threads, metric is not None)
    units = 1.0 if scale is None else scale
    search.history.take_over(((units * s, y / units) for s, y in pairs or []), search.v)
    history = [search.value]
    if np.any(l1) or not search.history.has_whole_pairs:
        gap = 0.0
    why_stop = partial(_why_stop, search, history, tol, convexity, gap, scale, n_before)
    message, next_check, models = why_stop(), 0, list(second_derivatives)
    if not message:
        search.use(metric() if callable(metric) else metric)
    for _ in range(max_iter):
        if message:
            break
        if not search.advance():
            message = "rounding" if _still_falls(history, tol, w.dtype) else "precision"
            break
        history.append(search.value)
        search.drop_stale_metric()
        message = why_stop()
        if message == "estimate":
            message = ""
            if len(history) >= next_check:
                allowed, next_check = tol * abs(search.value), len(history) + PERIODS[1]
                message = _verdict(search, allowed, scale, other_directions, convexity, models)
                history[-1] = search.value
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
        message not in ("", "flat", "rounding"),
        history,
        message or "max_iter",
    )


def estimated_rest(history: list, has_metric: bool = False, n_before: int = 0) -> float:
    """Estimate of the last value minus the limit of the sequence, by a geometric series.

    If each period of n iterations lowers the objective by r times the decrease of the one before,
    and the last period by d, it will fall by d · r / (1 - r) more. n is a fifth of all iterations,
    at least ten. r is unknown; the largest of the last three ratios is used, and the estimate is
    2 · d / (1 - r), infinite for fewer than 20 iterations or r >= 1. With a metric, n is at least
    five, and the estimate is d / (1 - r) or 3 · √(k / 5) · e, whichever is larger, where e is the
    decrease in the last five of k iterations; infinite for fewer than 10.

    After ``n_before`` iterations on other objectives, whose solutions and pairs led to the start,
    only the slow part of the decrease is left, and the estimate is 3 · √(k / 5) · e, where e is the
    decrease in the last two of all k iterations; infinite for fewer than 3.
    """
    if n_before and len(history) > 3:
        return float(
            NEAR * (history[-3] - history[-1]) * np.sqrt((n_before + len(history) - 1) / 5)
        )
    period = max(PERIODS[has_metric], (len(history) - 1) // 5)
    falls = np.diff(history[: -4 * period - 2 : -period])  # the last period first
    if len(falls) < 2:
        return np.inf
    r = np.max(falls[:-1] / np.maximum(falls[1:], TINY))
    rest = FACTORS[has_metric] * falls[0] / (1 - r) if r < 1 else np.inf
    if has_metric:
        rest = max(rest, SLOW * (history[-6] - history[-1]) * np.sqrt((len(history) - 1) / 5))
    return float(rest)


def _why_stop(
    search: Search, history: list, tol: float, convexity: float, gap: float, scale,
    n_before: int,
) -> str:  # fmt: skip
    # Name of the stopping rule that is met, or "".
    allowed = tol * abs(search.value)
    if search.history.with_v[-1] == 0:
        return "gradient"
    bound = search.squared_slope(scale) / (2 * convexity) if convexity > 0 else np.inf
    if bound <= allowed:
        return "bound"
    if bound <= BOUND_NEAR * gap * allowed:
        proved = proved_excess(search.history, history, search.v, convexity, scale)
        if proved <= (gap if 2 * proved <= bound else 1) * allowed:
            return "bound"
    rest = estimated_rest(history, search.had_metric, n_before)
    return "estimate" if rest <= allowed else ""


def _still_falls(history: list, tol: float, dtype: np.dtype) -> bool:
    # Whether the last decrease is too large for a run that is done.
    first, last = abs(history[0]), abs(history[-1])
    digits = DIGITS * max(np.finfo(dtype).eps * last, np.finfo(np.float64).eps * first)
    return FALLING * (max(history[-2:]) - history[-1]) > max(tol * last, digits, NOTHING)


def _verdict(
    search: Search, allowed: float, scale: np.ndarray | None, other_directions: Sequence,
    convexity: float, models: list,
) -> str:  # fmt: skip
    # "estimate" if nothing refutes it, "flat", or "" if the run goes on, from another point.
    units = 1.0 if scale is None else scale
    # An outlier in a column makes its scale so large that the other rows hardly count.
    if scale is not None and scale.max() > UNEQUAL * scale.min() and search.is_flat(scale, allowed):
        return "flat"
    for direction in other_directions:
        p = direction((units * search.v).astype(search.w.dtype))
        curvature = convexity * float(np.square(p, dtype=np.float64).sum())
        if search.gains_along(units * p, OTHER * allowed, curvature):
            return ""
    before = search.value
    while models and search.is_refuted(models[0](search.w / units), REMAINS * allowed):
        if search.value < before or len(models) == 1:
            return ""
        del models[0]  # the model is wrong
    return "estimate"


class Scaled:
    """An objective as a function of u = scale · w."""

    def __init__(self, objective, scale: np.ndarray):
        self.objective, self.scale, self.w = objective, scale, np.empty_like(scale)

    def value_and_gradient(self, u: np.ndarray, gradient: np.ndarray) -> float:
        """Return the value at u; write the gradient in u into the second argument."""
        np.divide(u, self.scale, out=self.w)
        value = self.objective.value_and_gradient(self.w, gradient)
        gradient /= self.scale
        return value

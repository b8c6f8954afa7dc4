"""L-BFGS, with or without an L1 penalty: one loop and one stopping rule.

With l1 = 0, a weak-Wolfe line search (Nocedal, Wright 2006, §7.2); with l1 > 0, see ``_owlqn.py``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
# Factors of the estimate in a run with the pairs of another run, for all iterations and for those
# of this run, and the least number of iterations whose mean decrease it takes. (408 traces of paths
# of ten or four values of l2 with a scale, parts of nine corpora, 1,700 to 9,700 rows, l1 = 0 or
# 0.1, tol = 0.01: 15.8 iterations for a point, largest excess 1.00 tol, 95 % below 0.60; with
# 3 · √(k / 5) times the decrease in the last two iterations 11.9, 1.43 and 0.74.)
NEAR, OWN, LAST = 4, 0.5, 3
# An estimate is rejected if a step along the other direction gains more than this fraction of what
# tol allows (such a step gains between a quarter and nine tenths of the remaining excess).
OTHER = 0.1
# The same for steps towards the minimum of a separable model, which gain less. (Sparse columns of
# log-normal values, σ = 1.5, 2 and 2.5, three seeds and two solvers: 11 of 18 fits ended up to 2.9
# tol above the minimum without a warning; 5 with 0.1 and lengths four times as long each; 2 with
# 0.03 and lengths twice as long each, up to 2.1 tol.)
SEPARATE = 0.03
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
    of_constants: Callable[[np.ndarray], np.ndarray] | None = None,
    diagonal: Callable[[np.ndarray], np.ndarray] | None = None,
    second_derivatives: Sequence[Callable[[np.ndarray], BlockMetric]] = (),
    known: tuple[float, np.ndarray] | None = None,
    usual_roots: np.ndarray | None = None,
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
    of_constants : callable(w) -> ndarray, optional
        With ``l1``, the step p to the point w - p of least penalty among those with the same
        likelihood. If it gains more than a tenth of what ``tol`` allows, it is taken before an
        estimate is checked.
    diagonal : callable(w) -> ndarray, optional
        Second derivatives at w in each weight, positive or infinite. An estimate ends the run only
        if a search towards the minimum of the separable model with these, the L1 term included,
        gains at most a thirtieth of what ``tol`` allows.
    second_derivatives : sequence of callable(w) -> BlockMetric
        The Hessian at w with respect to ``scale · w``, as a single block. An estimate ends the run
        only if a model with it can fall by at most a quarter of what ``tol`` allows; otherwise the
        run goes on from the minimum of this model, with the Hessian as metric. If the objective
        does not fall towards this minimum, the run goes on as it was, and the next function takes
        the place of the first.
    known : (float, ndarray), optional
        Value of the objective and the L1 term at the starting point, and the gradient of the
        objective, which is overwritten; by default, they are computed.
    usual_roots : ndarray, optional
        Inverse roots of the second derivatives h that are left in each weight where a few rows of
        large values have become certain; 0 where all rows count alike. An estimate ends the run
        only if a separable model with them, Σ v² / 2h, can fall by at most what ``tol`` allows, and
        if it can fall by more, a run that ends by "precision" ends by "rounding".

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
    given = threads or Threads(1), metric is not None, known
    search = _new_search(objective, w, l1, scale, *given)
    units = 1.0 if scale is None else scale
    search.history.take_over(((units * s, y / units) for s, y in pairs or []), search.v)
    if l1 or not search.history.has_whole_pairs:
        gap = 0.0
    rules = _StoppingRules(
        search, tol, convexity, gap, scale, n_before, other_directions, of_constants, diagonal,
        list(second_derivatives), usual_roots,
    )  # fmt: skip
    history, message = rules.history, rules.met()
    if not message:
        search.use(metric() if callable(metric) else metric)
    while not message and len(history) <= max_iter:
        if not search.advance():
            message = rules.met_without_step()
            break
        message = rules.met_by_step()
        now = search.w if scale is None else search.w / scale
        if callback is not None and callback(len(history) - 1, search.value, now):
            message = message or "callback"
    if pairs is not None:
        found = search.history.oldest_first()
        pairs[:] = [((s / units).astype(s.dtype), (y * units).astype(y.dtype)) for s, y in found]
    w = search.w if scale is None else search.w / scale
    converged = message not in ("", "flat", "rounding")
    n_iter, message = len(history) - 1, message or "max_iter"
    return SolverResult(w, search.value, n_iter, converged, history, message)


def _new_search(
    objective, w: np.ndarray, l1: float, scale: np.ndarray | None, threads: Threads,
    has_metric: bool, known: tuple[float, np.ndarray] | None,
) -> Search:  # fmt: skip
    # The state at w of a run in ``scale · w``.
    if scale is not None:
        objective, w = Scaled(objective, scale), scale * w
        if known is not None:
            np.divide(known[1], scale, out=known[1])
    given = threads, has_metric, known
    if l1:
        return OrthantSearch(objective, w, l1 if scale is None else l1 / scale, *given)
    return Search(objective, w, *given)


def estimated_rest(history: list, has_metric: bool = False, n_before: int = 0) -> float:
    """Estimate of the last value minus the limit of the sequence, by a geometric series.

    If each period of n iterations lowers the objective by r times the decrease of the one before,
    and the last period by d, it will fall by d · r / (1 - r) more. n is a fifth of all iterations,
    at least ten. r is unknown; the largest of the last three ratios is used, and the estimate is
    2 · d / (1 - r), infinite for fewer than 20 iterations or r >= 1. With a metric, n is at least
    five, and the estimate is d / (1 - r) or 3 · √(k / 5) · e, whichever is larger, where e is the
    decrease in the last five of k iterations; infinite for fewer than 10.

    After ``n_before`` iterations on other objectives, whose solutions and pairs led to the start,
    only the slow part of the decrease is left. The estimate is 4 · √(k / 5) · e or n / 2 · e,
    whichever is larger, where k counts all iterations, n those of this run, and e is the decrease
    in two iterations, the mean over the last third of the run and at least three; infinite for
    fewer than 4. (If the excess falls with 1 / n, it is n / 3 · e.)
    """
    n = len(history) - 1
    if n_before and n > LAST:
        period = max(LAST, n // 3)
        e = 2 * (history[-1 - period] - history[-1]) / period
        return float(max(NEAR * np.sqrt((n_before + n) / 5), OWN * n) * e)
    period = max(PERIODS[has_metric], n // 5)
    falls = np.diff(history[: -4 * period - 2 : -period])  # the last period first
    if len(falls) < 2:
        return np.inf
    r = np.max(falls[:-1] / np.maximum(falls[1:], TINY))
    rest = FACTORS[has_metric] * falls[0] / (1 - r) if r < 1 else np.inf
    if has_metric:
        rest = max(rest, SLOW * (history[-6] - history[-1]) * np.sqrt(n / 5))
    return float(rest)


@dataclass
class _StoppingRules:
    # The rules by which a run ends; parameters as in `lbfgs`. ``models`` are the second derivatives
    # that have not been found wrong; estimates are checked from iteration ``next_check`` on.

    search: Search
    tol: float
    convexity: float
    gap: float
    scale: np.ndarray | None
    n_before: int
    other_directions: Sequence[Callable[[np.ndarray], np.ndarray]]
    of_constants: Callable[[np.ndarray], np.ndarray] | None
    diagonal: Callable[[np.ndarray], np.ndarray] | None
    models: list[Callable[[np.ndarray], BlockMetric]]
    usual_roots: np.ndarray | None
    next_check: int = 0

    def __post_init__(self):
        self.history = [self.search.value]

    @property
    def allowed(self) -> float:
        # The excess over the minimum that tol allows.
        return self.tol * abs(self.search.value)

    def met(self) -> str:
        # Name of the rule that is met, or "".
        search, allowed = self.search, self.allowed
        if search.history.with_v[-1] == 0:
            return "gradient"
        bound = np.inf
        if self.convexity > 0:
            bound = search.squared_slope(self.scale) / (2 * self.convexity)
        if bound <= allowed or self._is_proved(bound):
            return "bound"
        rest = estimated_rest(self.history, search.had_metric, self.n_before)
        return "estimate" if rest <= allowed else ""

    def _is_proved(self, bound: float) -> bool:
        # Whether the bound is near what is allowed, and the sharper bound below it.
        search, gap = self.search, self.gap
        if not bound <= BOUND_NEAR * gap * self.allowed:
            return False
        proved = proved_excess(search.history, self.history, search.v, self.convexity, self.scale)
        return proved <= (gap if 2 * proved <= bound else 1) * self.allowed

    def met_by_step(self) -> str:
        # Name of the rule that is met after a step, or "" if the run goes on, perhaps from another
        # point.
        search, history = self.search, self.history
        history.append(search.value)
        search.drop_stale_metric()
        message = self.met()
        if message != "estimate":
            return message
        if len(history) < self.next_check:
            return ""
        self.next_check = len(history) + PERIODS[1]
        message = self._verdict(self.allowed)
        history[-1] = search.value
        return message

    def met_without_step(self) -> str:
        # "rounding" if the last decrease is too large for a run that is done.
        first, last, dtype = abs(self.history[0]), abs(self.history[-1]), self.search.w.dtype
        digits = DIGITS * max(np.finfo(dtype).eps * last, np.finfo(np.float64).eps * first)
        falls = FALLING * (max(self.history[-2:]) - self.history[-1])
        is_falling = falls > max(self.tol * last, digits, NOTHING)
        return "rounding" if is_falling or self._may_gain_far_away() else "precision"

    def _verdict(self, allowed: float) -> str:
        # "estimate" if nothing refutes it, "flat", or "" if the run goes on, from another point.
        search, scale, units = self.search, self.scale, 1.0
        if scale is not None:
            # An outlier in a column makes its scale so large that the other rows hardly count.
            if scale.max() > UNEQUAL * scale.min() and search.is_flat(scale, allowed):
                return "flat"
            units = scale
        if self.of_constants is not None:
            step = units * self.of_constants(search.w / units)
            search.move_to_less_penalty(step, OTHER * allowed)
        refuted = (
            self._gains_elsewhere(allowed, units)
            or self._is_refuted_by_a_model(allowed, units)
            or self._may_gain_far_away()
        )
        return "" if refuted else "estimate"

    def _gains_elsewhere(self, allowed: float, units: float | np.ndarray) -> bool:
        # Whether a search along another direction gains too much; if so, it has moved the point.
        search = self.search
        for direction in self.other_directions:
            p = direction((units * search.v).astype(search.w.dtype))
            curvature = self.convexity * float(np.square(p, dtype=np.float64).sum())
            if search.gains_along(units * p, OTHER * allowed, curvature):
                return True
        if self.diagonal is None:
            return False
        p = search.step_of_diagonal(self.diagonal(search.w / units) / np.square(units))
        return search.gains_along(p, SEPARATE * allowed, factor=2)

    def _is_refuted_by_a_model(self, allowed: float, units: float | np.ndarray) -> bool:
        search, models, before = self.search, self.models, self.search.value
        while models and search.is_refuted(models[0](search.w / units), REMAINS * allowed):
            if search.value < before or len(models) == 1:
                return True
            del models[0]  # the model is wrong
        return False

    def _may_gain_far_away(self) -> bool:
        # Whether much is to be gained where rows of large values have no curvature any more.
        if self.usual_roots is None:
            return False
        v = self.search.v if self.scale is None else self.scale * self.search.v
        gain = np.square(v * self.usual_roots, dtype=np.float64).sum() / 2
        return not gain <= self.allowed


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

"""State of an L-BFGS run on a smooth objective, with its line search (weak Wolfe conditions)."""

import numpy as np

from sklseq._lib.threads import Threads
from sklseq._lib.tiny import TINY
from sklseq.solvers._block_metric import BlockMetric
from sklseq.solvers._history import History, _vectors
from sklseq.solvers._reduced_history import ReducedHistory

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9
MAX_TRIALS = 40  # step lengths tried in one iteration
# Largest change of a scaled weight in a trial; some score changes about as much. And the relative
# increase of the objective that shows that a step was too long. (Four times as much or a quarter
# changed neither iterations nor warnings of 37 generated fits, 13 of which met the check.)
LONG, RISE = 1e5, 1e-5
# The metric is dropped when the objective falls below this fraction of its value at the point of
# the metric: by then few rows are as uncertain as there. (On citations of 10,000 tokens with
# l2 = 0.1, keeping it cost seven of 53 iterations, and a fifth of the time of each.)
STALE = 0.5
# First length of the step to the minimum of a model that is tried.
FIRST_OF_MODEL = 1 / 16
# Number of pairs; more up to FEW weights, where pairs cost little beside an evaluation. With ten,
# the objective of protein chains (2,400 weights) falls so slowly at the end that `estimated_rest`
# is too small; with 60, half as many iterations reach an excess of 1e-3. With 20, zones of e-mails
# (56,000 weights) need 75 iterations to 1e-2 in place of 91. After a start with a metric, ten do:
# with 20, text takes as many iterations and up to 1.14 times as long. Above 2¹⁹ weights, 20 pairs
# would take more than 80 MiB.
MEMORY, MEMORY_OF_FEW, LEAST_MEMORY, FEW = 20, 60, 10, 1 << 12
# Number of weights from which `ReducedHistory` is used; ten whole pairs take 80 MiB there.
MANY = 1 << 20


class Search:
    """State of L-BFGS: w, value and gradient g of the objective, subgradient v, and the pairs.

    Parameters
    ----------
    objective : object with ``value_and_gradient(w, gradient) -> float``
    w : ndarray
        Starting point; overwritten.
    threads : Threads
    with_metric : bool
        Whether there is a first guess of the Hessian, so that fewer pairs do.
    known : (float, ndarray), optional
        Value of the whole objective, and gradient of its smooth part, which is overwritten, at w.
    """

    free_only = False  # whether steps are of free weights only

    def __init__(
        self, objective, w: np.ndarray, threads: Threads, with_metric: bool = False,
        known: tuple[float, np.ndarray] | None = None,
    ):  # fmt: skip
        self.objective, self.w = objective, w
        self.trial, self.g_old, self.p = (np.zeros_like(w) for _ in range(3))
        kind = ReducedHistory if len(w) >= MANY else History
        memory = n_pairs(len(w), with_metric)
        self.history = kind(len(w), memory, w.dtype, threads, self.free_only)
        if known is None:
            g = np.zeros_like(w)
            known = self.evaluate(w, g), g
        self.value, self.g = known
        if not np.isfinite(self.value):
            raise ValueError(
                f"The objective is {self.value} at the starting point; "
                "rescale the features so that scores stay below about 1e300."
            )
        self.had_metric, self.stale = False, STALE * self.value
        self.v = self.steepest()
        self.history.with_v[-1] = self.history.dot(self.v, self.v)

    def use(self, metric: BlockMetric | None) -> None:
        """Take the metric as first guess of the Hessian here, in place of the identity."""
        self.had_metric, self.stale = metric is not None, STALE * self.value
        if metric is not None:
            self.history.use(metric)

    def drop_stale_metric(self) -> None:
        """Drop the metric if the objective has fallen far below its value at the metric's point."""
        if self.value < self.stale:
            self.history.metric = None

    def evaluate(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """Value of the whole objective; writes the gradient of its smooth part."""
        return self.objective.value_and_gradient(w, gradient)

    def steepest(self) -> np.ndarray:
        """v, the subgradient of least norm at w."""
        return self.g

    def squared_slope(self, scale: np.ndarray | None) -> float:
        """‖v‖², or ‖v · scale‖²."""
        if scale is None:
            return float(self.history.with_v[-1])
        return sum(self.history.in_spans(_vectors.scaled_square, self.v, scale))

    def is_flat(self, scale: np.ndarray, allowed: float) -> bool:
        """Whether steps along the gradient without scales refute an estimate of ``allowed``.

        True if one lowers the objective by more than ``allowed``, or if even a very long one hardly
        raises it, so that the scales do not reflect the curvature. Steps shorter than
        allowed / ‖v · scale‖² are not tried: they cannot gain ``allowed``, by convexity.
        """
        slope = self.squared_slope(scale)
        if not slope < np.inf:
            return True
        p = self.v * np.square(scale, dtype=np.float64)
        farthest = LONG / np.abs(p).max()
        t = min(allowed / slope, farthest)  # near the minimum, the longest step alone is tried
        while t <= farthest:
            self.trial[:] = self.w - t * p
            change = self.evaluate(self.trial, self.g_old) - self.value
            if change > min(allowed, RISE * abs(self.value)):
                return False
            if not change >= -allowed:
                return True
            t *= 4
        return True

    def gains_along(
        self, p: np.ndarray, least: float, curvature: float = 0.0, factor: float = 4.0
    ) -> bool:
        """Step along -p to the best of several lengths; False if it gains at most ``least``.

        ``curvature`` is a lower bound of the second derivative along p, ``factor`` the ratio of
        two lengths.
        """
        slope = self.history.dot(self.v, p.astype(self.v.dtype, copy=False))
        if slope * slope <= 2 * curvature * least:  # no step gains more
            return False
        # Shorter steps cannot gain ``least``, by convexity.
        best = self._best_along(p, least / slope, least, factor) if 0 < slope < np.inf else 0.0
        if best > 0:
            self.move_along(p, best)
        return best > 0

    def move_along(self, p: np.ndarray, t: float) -> None:
        """Make w - t · p the current point."""
        self.trial[:] = self.w - t * p
        self.accept(self.evaluate(self.trial, self.g_old))

    def is_refuted(self, metric: BlockMetric, least: float) -> bool:
        """Whether a quadratic model of the objective can fall by more than ``least``.

        If so, w moves towards the minimum of the model, and the metric replaces all pairs. If the
        objective does not fall that way, the model is wrong, and pairs and w stay.
        """
        p, gain = self.step_of_model(metric, least)
        if not gain > least:
            return False
        best = self._best_along(p, FIRST_OF_MODEL, 0.0)
        if best > 0:
            self.history.forget()
            self.history.use(metric)
            self.had_metric, self.stale = True, STALE * self.value
            self.move_along(p, best)
        return True

    def step_of_model(self, metric: BlockMetric, least: float) -> tuple[np.ndarray, float]:
        """Step p to w - p, the minimum of a model with the metric as Hessian, and its gain.

        The metric is a single block. ``least`` is the gain that matters.
        """
        p = self.v.astype(np.float64)
        p[metric.at] += metric.change(p[metric.at][None])[0]
        return p, 0.5 * float(self.v @ p)

    def step_of_diagonal(self, curvatures: np.ndarray) -> np.ndarray:
        """Step p to w - p, the minimum of a model with a diagonal Hessian."""
        return self.v / curvatures

    def _best_along(self, p: np.ndarray, t: float, least: float, factor: float = 4.0) -> float:
        # The best of the step lengths t, factor · t, ... along -p, up to the first that is worse; 0
        # if it gains at most ``least``. Very long steps are not tried.
        lowest, best, farthest = self.value, 0.0, LONG / np.abs(p).max()
        while t < farthest:
            self.trial[:] = self.w - t * p
            value = self.evaluate(self.trial, self.g_old)
            if not value < lowest:
                break
            lowest, best, t = value, t, factor * t
        return best if lowest < self.value - least else 0.0

    def accept(self, value: float) -> None:
        """Make ``trial``, whose gradient is in ``g_old``, the current point."""
        self.history.step_from(self.trial, -1.0, self.w, self.p)
        self.w, self.trial = self.trial, self.w
        self.g, self.g_old = self.g_old, self.g
        self.value, self.v = value, self.steepest()
        self.history.push(self.p, 1.0, self.g, self.g_old, self.v)

    def advance(self) -> bool:
        """Run one iteration; False if no step lowers the objective by more than rounding."""
        step = self._try_direction()
        if step is None and self.history.used:
            self.history.forget()  # steepest descent is the last resort
            step = self._try_direction()
        if step is None:
            return False
        self.w, self.trial = self.trial, self.w
        self.v = self.g
        self.history.push(self.p, step, self.g, self.g_old, self.v)
        return True

    def _try_direction(self) -> float | None:
        self.history.direction(self.v, self.p)
        slope = self.history.dot(self.v, self.p)
        if not slope < 0:
            return None
        self.g, self.g_old = self.g_old, self.g
        step = self._weak_wolfe(slope)
        if step is None:
            self.g, self.g_old = self.g_old, self.g
        return step

    def _weak_wolfe(self, slope: float) -> float | None:
        # Bracket between a step too long (too little decrease) and one too short (slope still
        # steep): Lewis, Overton (2013), Algorithm 2.6, with interpolation in place of bisection.
        t, low, high = 1.0, 0.0, np.inf
        for _ in range(MAX_TRIALS):
            self.history.step_from(self.w, t, self.p, self.trial)
            value = self.evaluate(self.trial, self.g)
            if not value <= self.value + SUFFICIENT_DECREASE * t * slope:
                if self.is_rounding(value, t * slope):
                    return None
                high = t
                t = max(interpolate(t, self.value, slope, value), low + 0.1 * (high - low))
            elif (steep := self.history.dot(self.g, self.p)) < CURVATURE * slope:
                low = t
                # Zero of the slope, extrapolated linearly from the slopes at 0 and t.
                ahead = t * np.clip(slope / min(slope - steep, -TINY), 2, 10)
                t = ahead if high == np.inf else (low + high) / 2
            else:
                break
        else:
            return None
        self.value = value
        return t

    def is_rounding(self, value: float, predicted: float) -> bool:
        """Whether both the predicted and the actual change are below the rounding error."""
        epsilon = np.finfo(self.w.dtype).eps * max(abs(self.value), TINY)
        return abs(predicted) < 10 * epsilon and abs(value - self.value) < 100 * epsilon


def n_pairs(n_weights: int, with_metric: bool) -> int:
    """Number of pairs that are kept."""
    if n_weights <= FEW:
        return MEMORY_OF_FEW
    return LEAST_MEMORY if with_metric or 2 * n_weights > MANY else MEMORY


def interpolate(t: float, before: float, slope: float, after: float) -> float:
    # Minimiser of the parabola with both values and the slope at 0, clipped to [t / 10, t / 2].
    if not np.isfinite(after):
        return t / 10
    best = -slope * t * t / (2 * (after - before - slope * t))
    return float(np.clip(best, t / 10, t / 2))

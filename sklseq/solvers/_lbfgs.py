"""L-BFGS, and OWL-QN for an L1 penalty: one recursion.

With l1 = 0 this is L-BFGS with a weak-Wolfe line search (Nocedal, Wright 2006, §7.2). With l1 > 0
it is OWL-QN (Andrew, Gao 2007): the gradient is replaced by the pseudo-gradient of the penalised
objective, the direction is kept within its orthant, and the search is projected (``_owlqn.py``).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sklseq._threads import Threads
from sklseq.solvers import _owlqn
from sklseq.solvers._history import History
from sklseq.solvers._result import SolverResult

__all__ = ["lbfgs"]

SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9
MAX_TRIALS = 40
PERIOD = 10  # iterations over which the decrease is judged, as CRFsuite does


def lbfgs(
    objective,
    w: np.ndarray,
    *,
    l1: float = 0.0,
    tol: float = 1e-5,
    max_iter: int = 500,
    memory: int = 6,
    threads: Threads | None = None,
    callback: Callable[[int, float, np.ndarray], bool] | None = None,
    scale: np.ndarray | None = None,
) -> SolverResult:
    """Minimise ``objective`` + l1 · ‖w‖₁.

    Parameters
    ----------
    objective : object with ``value_and_gradient(w, gradient) -> float``
        Smooth and convex; writes its gradient into the second argument.
    w : ndarray
        Where to start; overwritten.
    l1 : float
    tol : float
        Stops when an iteration lowered the objective by a share of at most ``tol`` and the
        (pseudo-)gradient's norm is at most ``tol · max(1, ‖w‖)``, or when ten iterations together
        lowered it by no more.
    max_iter : int
    memory : int
        Pairs kept.
    threads : Threads
    callback : callable(iteration, value, w) -> bool
        Called after each iteration; True stops.
    scale : ndarray, optional
        Positive; the recursion works on ``scale · w``. Where weights of very different curvature
        meet, it stops far from the minimum without it.

    Returns
    -------
    SolverResult

    Notes
    -----
    Beside ``w``: three vectors and 2 · memory rows of pairs, in float32 if they are long.
    """
    if scale is not None:
        objective, w = Scaled(objective, scale), scale * w
        l1 = l1 / scale if l1 else 0.0
    search = _Search(objective, w, l1, threads or Threads(1), memory)
    history = [search.value]
    message = search.why_stop(history, tol)
    for _ in range(max_iter):
        if message:
            break
        if not search.advance():
            message = "precision"
            break
        history.append(search.value)
        message = search.why_stop(history, tol)
        now = search.w if scale is None else search.w / scale
        if callback is not None and callback(len(history) - 1, search.value, now):
            message = message or "callback"
    w = search.w if scale is None else search.w / scale
    return SolverResult(
        w, search.value, len(history) - 1, bool(message), history, message or "max_iter"
    )


class Scaled:
    """An objective as a function of u = scale · w."""

    def __init__(self, objective, scale: np.ndarray):
        self.objective, self.scale = objective, scale

    def value_and_gradient(self, u: np.ndarray, gradient: np.ndarray) -> float:
        """Its value; its gradient in u is written into the second argument."""
        value = self.objective.value_and_gradient(u / self.scale, gradient)
        gradient /= self.scale
        return value


class _Search:
    """The moving state: w, gradient g, (pseudo-)gradient v, direction p, and the pairs."""

    def __init__(self, objective, w: np.ndarray, l1, threads: Threads, memory: int):
        self.objective, self.l1, self.w = objective, l1, w
        self.l1_penalty = bool(np.any(l1))  # l1 may be an array, one value a weight
        self.trial, self.g, self.g_old, self.p = (np.zeros_like(w) for _ in range(4))
        self.history = History(len(w), memory, w.dtype, threads)
        self.value = self._evaluate(w, self.g)
        if not np.isfinite(self.value):
            raise ValueError(
                f"The objective is {self.value} at the starting point; "
                "rescale the features so that scores stay below about 1e300."
            )
        self.v = self._pseudo_gradient()
        self.history.with_v[-1] = self.history.dot(self.v, self.v)

    def _evaluate(self, w: np.ndarray, gradient: np.ndarray) -> float:
        value = self.objective.value_and_gradient(w, gradient)
        return value + _owlqn.l1_norm(w, self.l1) if self.l1_penalty else value

    def _pseudo_gradient(self) -> np.ndarray:
        return _owlqn.pseudo_gradient(self.w, self.g, self.l1) if self.l1_penalty else self.g

    def why_stop(self, history: list, tol: float) -> str:
        """The stopping rule that is met, or ""."""
        norm_v = np.sqrt(self.history.with_v[-1])
        if norm_v == 0:
            return "gradient"
        # Gradients are also small where features are: only together with the decrease do they tell.
        if len(history) > 1 and history[-2] - history[-1] <= tol * max(abs(history[-1]), 1e-300):
            norm_w = np.sqrt(self.history.dot(self.w, self.w))
            if norm_v <= tol * max(1.0, norm_w):
                return "gradient"
        if len(history) > PERIOD:
            before, now = history[-1 - PERIOD], history[-1]
            if before - now <= tol * max(abs(now), 1e-300):
                return "decrease"
        return ""

    def advance(self) -> bool:
        """One iteration; False if rounding lets no step lower the objective any more."""
        step = self._try_direction()
        if step is None and self.history.used:
            self.history.used, self.history.slot = 0, -1  # steepest descent is the last resort
            step = self._try_direction()
        if step is None:
            return False
        # s = trial - w: as t · p, or for OWL-QN, whose steps are projected, as it is.
        if self.l1_penalty:
            np.subtract(self.trial, self.w, out=self.p)
            step = 1.0
        self.w, self.trial = self.trial, self.w
        self.v = self._pseudo_gradient()
        self.history.push(self.p, step, self.g, self.g_old, self.v)
        return True

    def _try_direction(self) -> float | None:
        self.history.direction(self.v, self.p)
        if self.l1_penalty:
            _owlqn.keep_descent(self.p, self.v)
        slope = self.history.dot(self.v, self.p)
        if not slope < 0:
            return None
        self.g, self.g_old = self.g_old, self.g
        if self.v is self.g:
            self.v = self.g_old
        find = self._projected_backtracking if self.l1_penalty else self._weak_wolfe
        step = find(slope)
        if step is None:
            self.g, self.g_old = self.g_old, self.g
            if not self.l1_penalty:
                self.v = self.g
        return step

    def _weak_wolfe(self, slope: float) -> float | None:
        # Between a step too long (too little decrease) and one too short (slope still steep):
        # Lewis, Overton (2013), Algorithm 2.6, interpolating instead of halving and doubling.
        t, low, high = 1.0, 0.0, np.inf
        for _ in range(MAX_TRIALS):
            self.history.step_from(self.w, t, self.p, self.trial)
            value = self._evaluate(self.trial, self.g)
            if not value <= self.value + SUFFICIENT_DECREASE * t * slope:
                if self._is_rounding(value, t * slope):
                    return None
                high = t
                t = max(_interpolate(t, self.value, slope, value), low + 0.1 * (high - low))
            elif (steep := self.history.dot(self.g, self.p)) < CURVATURE * slope:
                low = t
                # Where a straight line through both slopes meets zero.
                ahead = t * np.clip(slope / min(slope - steep, -1e-300), 2, 10)
                t = ahead if high == np.inf else (low + high) / 2
            else:
                break
        else:
            return None
        self.value = value
        return t

    def _projected_backtracking(self, slope: float) -> float | None:
        # Andrew, Gao (2007), §3.2: w + t p, with weights that would change sign set to zero.
        orthant = _owlqn.orthant(self.w, self.v)
        t = 1.0
        for _ in range(MAX_TRIALS):
            self.history.step_from(self.w, t, self.p, self.trial)
            _owlqn.project(self.trial, orthant)
            value = self._evaluate(self.trial, self.g)
            gain = self.history.dot(self.v, self.trial) - self.history.dot(self.v, self.w)
            if value <= self.value + SUFFICIENT_DECREASE * gain and gain < 0:
                self.value = value
                return t
            if self._is_rounding(value, gain):
                return None
            t /= 2
        return None

    def _is_rounding(self, value: float, predicted: float) -> bool:
        # Neither the predicted nor the seen change stands out of the value's own rounding.
        epsilon = np.finfo(self.w.dtype).eps * max(abs(self.value), 1e-300)
        return abs(predicted) < 10 * epsilon and abs(value - self.value) < 100 * epsilon


def _interpolate(t: float, before: float, slope: float, after: float) -> float:
    # The minimum of the parabola through both values with the slope at 0, within [t / 10, t / 2].
    if not np.isfinite(after):
        return t / 10
    best = -slope * t * t / (2 * (after - before - slope * t))
    return float(np.clip(best, t / 10, t / 2))

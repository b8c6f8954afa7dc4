"""L-BFGS on the free weights, for f(w) + l1 · ‖w‖₁.

An iteration starts with a step of proximal gradient descent,

    u = soft(w - g / σ, l1 / σ),

in which weights that would change sign become zero. Weights that are zero in u are set to zero.
The others are free: the objective is smooth in them while no sign changes, and they take the
L-BFGS step, computed from the entries of the pairs for the free weights alone. Free weights that
would change sign stop at zero. (OWL-QN, Andrew, Gao 2007, computes the L-BFGS step from all
weights and then sets to zero those that point uphill: it needs several times as many evaluations,
and may stall above the minimum.)

A step has to lower the objective by a tenth of its own first-order decrease, and by a fixed
fraction of that of u,

    Δ = -g · (u - w) - l1 (‖u‖₁ - ‖w‖₁) >= σ ‖u - w‖²;

otherwise it is halved a few times; then the pairs are dropped and the step to u is taken, with σ
increased until the decrease is sufficient. So every iteration gains a fraction of σ ‖u - w‖², which
is 0 at the minimum only, and the iterations converge to it for any pairs (Tseng, Yun 2009,
Theorem 1).

References
----------
G. Andrew, J. Gao (2007), "Scalable training of L1-regularized log-linear models", ICML, §3.

P. Tseng, S. Yun (2009), "A coordinate gradient descent method for nonsmooth separable
minimization", Mathematical Programming 117.
"""

import numpy as np

from sklseq._lib.threads import Threads
from sklseq._lib.tiny import TINY
from sklseq.solvers._block_metric import BlockMetric
from sklseq.solvers._history import _vectors
from sklseq.solvers._l1_model import minimise_with_l1
from sklseq.solvers._search import MAX_TRIALS, SUFFICIENT_DECREASE, Search

N_HALVINGS = 6  # lengths of an L-BFGS step that are tried before the step to u
# Fraction of its first-order decrease by which an L-BFGS step has to lower the objective. A step to
# the minimum of a parabola has half of that decrease, a step twice as long almost none. (A third of
# letters with l1 = 1 and l2 = 0.001, six seeds: 46 to 54 evaluations. With 1e-4 51 to 70, and one
# run of six stopped 5 % above the minimum, as eleven steps that were too long gained little. No
# difference on text.)
LEAST_GAIN = 0.1
# A model is minimised until a round gains less than this fraction of what is asked for.
ROUGHLY = 1e-3


def l1_norm(w: np.ndarray, l1: float) -> float:
    """l1 · ‖w‖₁, in float64."""
    return l1 * float(np.abs(w).sum(dtype=np.float64)) if l1 else 0.0


class OrthantSearch(Search):
    """A :class:`Search` by the method above; ``l1`` is a number, or one number per weight."""

    free_only = True

    def __init__(
        self, objective, w: np.ndarray, l1, threads: Threads, with_metric: bool = False,
        known: tuple[float, np.ndarray] | None = None,
    ):  # fmt: skip
        self.l1 = np.ascontiguousarray(np.broadcast_to(l1, w.shape), dtype=np.float64)
        self.u, self.v = np.empty_like(w), np.empty_like(w)
        super().__init__(objective, w, threads, with_metric, known)
        self.sigma = max(float(np.sqrt(self.history.with_v[-1])), TINY)  # a step of length 1

    def evaluate(self, w: np.ndarray, gradient: np.ndarray) -> float:
        norms = self.history.in_spans(_vectors.weighted_norm, w, self.l1)
        return self.objective.value_and_gradient(w, gradient) + sum(norms)

    def steepest(self) -> np.ndarray:
        """The subgradient of f + l1 · ‖w‖₁ of least norm (Andrew, Gao 2007, Equation 4)."""
        self.history.in_spans(_vectors.pseudo_gradient, self.w, self.g, self.l1, self.v)
        return self.v

    def advance(self) -> bool:
        """Run one iteration; False if no step lowers the objective by more than rounding."""
        for _ in range(MAX_TRIALS):
            u, given = self.u, (self.w, self.g, self.l1, self.sigma)
            promise = sum(self.history.in_spans(_vectors.proximal_step, *given, u))  # Δ
            if not promise > 0:
                return False
            if self.history.used:
                if self._try_free(u, promise):
                    return True
                self.history.forget()  # the pairs of other free weights misled the step
            value = self.evaluate(u, self.g_old)
            if value <= self.value - SUFFICIENT_DECREASE * promise:
                self.trial[:] = u
                self.accept(value)
                return True
            if self.is_rounding(value, promise):
                return False
            self.sigma *= 4
        return False

    def step_of_model(self, metric: BlockMetric, least: float) -> tuple[np.ndarray, float]:
        at = metric.at
        g, w = self.g[at].astype(np.float64), self.w[at].astype(np.float64)
        u, gain = minimise_with_l1(metric.matrix(), g, w, self.l1[at], ROUGHLY * least)
        p = np.zeros_like(self.w)
        p[at] = w - u
        return p, gain

    def step_of_diagonal(self, curvatures: np.ndarray) -> np.ndarray:
        u = self.w - self.g / curvatures
        u -= np.clip(u, -self.l1 / curvatures, self.l1 / curvatures)
        return self.w - np.where(u * self.w < 0, 0, u)

    def move_to_less_penalty(self, p: np.ndarray, least: float) -> None:
        """Move to w - p if this lowers the objective; not if it gains at most ``least``.

        The step is no pair: it says nothing about the curvature of the likelihood.
        """
        if not self.history.dot(self.v, p.astype(self.v.dtype, copy=False)) > least:
            return  # by convexity, it gains no more
        self.trial[:] = self.w - p
        value = self.evaluate(self.trial, self.g_old)
        if value < self.value:
            self.w, self.trial = self.trial, self.w
            self.g, self.g_old = self.g_old, self.g
            self.value, self.v = value, self.steepest()
            self.history.with_v[-1] = self.history.dot(self.v, self.v)

    def _try_free(self, u: np.ndarray, promise: float) -> bool:
        # The L-BFGS step on the free weights; the others become zero.
        self.history.direction(self.v, self.p, u != 0)
        t = 1.0
        for _ in range(N_HALVINGS):
            step = self.w, t, self.p, u, self.v, self.trial
            gain = sum(self.history.in_spans(_vectors.orthant_step, *step))
            if not gain < 0:
                return False
            value = self.evaluate(self.trial, self.g_old)
            if value <= self.value + min(LEAST_GAIN * gain, -SUFFICIENT_DECREASE * t * promise):
                self.accept(value)
                return True
            t /= 2
        return False

    def accept(self, value: float) -> None:
        super().accept(value)
        if self.history.used:
            self.sigma = 1 / self.history.unit_step()

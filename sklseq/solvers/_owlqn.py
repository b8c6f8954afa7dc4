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

from __future__ import annotations

import numpy as np

from sklseq._lib.threads import Threads
from sklseq.solvers._block_metric import BlockMetric
from sklseq.solvers._search import MAX_TRIALS, SUFFICIENT_DECREASE, Search

N_HALVINGS = 6  # lengths of an L-BFGS step that are tried before the step to u
# Fraction of its first-order decrease by which an L-BFGS step has to lower the objective. A step to
# the minimum of a parabola has half of that decrease, a step twice as long almost none. (A third of
# letters with l1 = 1 and l2 = 0.001, six seeds: 46 to 54 evaluations. With 1e-4 51 to 70, and one
# run of six stopped 5 % above the minimum, as eleven steps that were too long gained little. No
# difference on text.)
LEAST_GAIN = 0.1


def l1_norm(w: np.ndarray, l1) -> float:
    """l1 · ‖w‖₁, in float64; ``l1`` may have one value per weight."""
    if np.ndim(l1):  # not by BLAS, whose threads take longer to start than this takes
        return float(np.multiply(np.abs(w), l1, dtype=np.float64).sum())
    return l1 * float(np.abs(w).sum(dtype=np.float64))


def pseudo_gradient(w: np.ndarray, g: np.ndarray, l1) -> np.ndarray:
    """The subgradient of f + l1 · ‖w‖₁ of least norm (Andrew, Gao 2007, Equation 4).

    It is g + l1 · sign(w) where w ≠ 0, and g shrunk towards 0 by l1 elsewhere.
    """
    shrunk = g - np.clip(g, -l1, l1)
    return np.where(w != 0, g + l1 * np.sign(w), shrunk).astype(g.dtype, copy=False)


def proximal_step(w: np.ndarray, g: np.ndarray, l1, sigma: float) -> np.ndarray:
    """argmin_u g · u + σ/2 ‖u - w‖² + l1 · ‖u‖₁, with zero for weights that change sign."""
    u = w - g / sigma
    u -= np.clip(u, -l1 / sigma, l1 / sigma)
    u[u * w < 0] = 0
    return u.astype(w.dtype, copy=False)


class OrthantSearch(Search):
    """A :class:`Search` by the method above; ``l1`` is a number, or one number per weight."""

    def __init__(
        self, objective, w: np.ndarray, l1, threads: Threads, metric: BlockMetric | None = None
    ):
        self.l1 = l1
        super().__init__(objective, w, threads, metric)
        self.sigma = max(float(np.sqrt(self.history.with_v[-1])), 1e-300)  # a step of length 1

    def evaluate(self, w: np.ndarray, gradient: np.ndarray) -> float:
        return self.objective.value_and_gradient(w, gradient) + l1_norm(w, self.l1)

    def steepest(self) -> np.ndarray:
        return pseudo_gradient(self.w, self.g, self.l1)

    def advance(self) -> bool:
        """Run one iteration; False if no step lowers the objective by more than rounding."""
        for _ in range(MAX_TRIALS):
            u = proximal_step(self.w, self.g, self.l1, self.sigma)
            promise = self._promise(u)
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

    def _promise(self, u: np.ndarray) -> float:
        # Δ in the module docstring.
        slope = self.history.dot(self.g, u) - self.history.dot(self.g, self.w)
        return -slope - l1_norm(u, self.l1) + l1_norm(self.w, self.l1)

    def _try_free(self, u: np.ndarray, promise: float) -> bool:
        # The L-BFGS step on the free weights; the others become zero.
        free, signs = u != 0, np.sign(u)
        self.history.direction(self.v, self.p, free)
        np.copyto(self.p, -self.w, where=~free)
        t = 1.0
        for _ in range(N_HALVINGS):
            self.history.step_from(self.w, t, self.p, self.trial)
            self.trial[self.trial * signs < 0] = 0
            gain = self.history.dot(self.v, self.trial) - self.history.dot(self.v, self.w)
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

"""Stochastic gradient descent with a step for each weight, until passes stop paying."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sklseq.solvers._result import SolverResult

__all__ = ["adagrad"]

# A pass has to lower the objective by this share, or the next ones take half the step.
ENOUGH, HALVINGS = 0.02, 5


def adagrad(
    stochastic, primal, *, l1: float = 0.0, rate: float = 1.0, tol: float, max_iter: int,
    random_state=0, callback: Callable[[int, float, np.ndarray], bool] | None = None,
) -> SolverResult:  # fmt: skip
    """Minimise ``primal`` + l1 · ‖w‖₁ roughly, in few passes over the data.

    Parameters
    ----------
    stochastic : object with ``descend(order, rate)``, ``restart(w)``, ``visited`` and ``w``
    primal : object with ``value_and_gradient(w, gradient)``
        Evaluated after each pass.
    l1 : float
    rate : float
        The first step. It is halved when a pass lowers the objective by less than 2 %; a pass
        that raises it is taken back.
    tol : float
        Converged when a pass lowers the objective by a share of at most ``tol``, after the step
        was halved.
    max_iter : int
        Passes over the data.
    random_state : int or numpy Generator
        Order of visits.
    callback : callable(k, value, w) -> bool, optional
        Called after each pass; True stops.

    Returns
    -------
    SolverResult
        Of the best pass. ``message`` is "decrease", "slow" (5 halvings), "callback" or "max_iter".
    """
    rng = np.random.default_rng(random_state)
    w, gradient = stochastic.w.copy(), np.zeros_like(stochastic.w)

    def objective(w: np.ndarray) -> float:
        return primal.value_and_gradient(w, gradient) + l1 * float(np.abs(w).sum())

    history, message, halved, k = [objective(w)], "", 0, 0
    while k < max_iter and not message:
        stochastic.descend(rng.permutation(stochastic.visited), rate * 0.5**halved)
        value = objective(stochastic.w) if np.isfinite(stochastic.w).all() else np.inf
        k += 1
        gain = (history[-1] - value) / max(abs(history[-1]), 1e-300)
        if gain > 0:
            w[:] = stochastic.w
            history.append(value)
        else:
            stochastic.restart(w)
        if callback is not None and callback(k, history[-1], w):
            message = "callback"
        elif halved and 0 < gain <= tol:
            message = "decrease"
        elif gain < ENOUGH:
            halved += 1
            message = "slow" if halved > HALVINGS else ""
    converged = message in ("decrease", "callback")
    return SolverResult(w, history[-1], k, converged, history, message or "max_iter")

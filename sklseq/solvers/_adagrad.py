"""AdaGrad: stochastic gradient descent with a step size for each weight, for a few passes."""

from collections.abc import Callable

import numpy as np

from sklseq.solvers._result import SolverResult

# A pass is undone if its losses sum to more than this many times those of the best pass so far.
OVERSHOT = 2.0


def adagrad(
    stochastic, primal, *, rate: float = 1.0, n_passes: int, random_state=0,
    callback: Callable[[int, float | None, np.ndarray], bool] | None = None,
) -> SolverResult:  # fmt: skip
    """Minimise ``primal`` roughly, in ``n_passes`` over the data.

    Steps decrease linearly from ``rate`` to 0, which averages the noise of single sequences. The
    sums of squared gradients, which set the step sizes, are reduced between passes. A pass whose
    losses sum to more than the objective at the start, to more than twice those of an earlier pass,
    or are not finite, is undone, and the steps of later passes are divided by 4.

    Parameters
    ----------
    stochastic : object with ``descend(order, rate)``, ``forget()``, ``restart(w)``, ``sequences``
        and ``w``
    primal : object with ``value(w)`` and ``value_and_gradient(w, gradient)``
        The objective, penalties included, at the start, and with its gradient at the end.
    rate : float
    n_passes : int
    random_state : int or numpy Generator
        Order of updates.
    callback : callable(k, None, w) -> bool, optional
        Called after each pass; True stops. The objective is not evaluated for it.

    Returns
    -------
    SolverResult
        ``message`` is "passes", "callback", or "worse" if the end is no better than the start; then
        ``w`` is the start. ``converged`` is True only if the callback stopped the run, as nothing
        is known about the distance from the minimum. ``history`` is the objective at the start and
        at the end.
    """
    rng = np.random.default_rng(random_state)
    start = stochastic.w.copy()
    history, message, before = [primal.value(start)], "passes", start
    highest = history[0]
    for k in range(n_passes):
        order = rng.permutation(stochastic.sequences)
        loss = stochastic.descend(order, rate * (1 - k / n_passes))
        if not loss <= highest or not np.isfinite(stochastic.w).all():
            stochastic.restart(before)
            rate /= 4
        else:
            highest = min(highest, OVERSHOT * loss)
        if k < n_passes - 1:
            stochastic.forget()
        before = stochastic.w.copy()
        if callback is not None and callback(k + 1, None, stochastic.w):
            message = "callback"
            break
    gradient = np.empty_like(stochastic.w)
    history.append(primal.value_and_gradient(stochastic.w, gradient))
    if not history[-1] <= history[0]:
        history[-1] = history[0]
        return SolverResult(start, history[0], k + 1, message == "callback", history, "worse")
    stopped = message == "callback"
    return SolverResult(stochastic.w, history[-1], k + 1, stopped, history, message, gradient)

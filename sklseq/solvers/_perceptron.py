"""Perceptron for label sequences."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sklseq.solvers._result import SolverResult


class Mistakes(NamedTuple):
    """Mistakes of a perceptron during training.

    Attributes
    ----------
    total : int
        Mistakes in all passes; at most (radius / margin)² times the squared ratio of the largest to
        the smallest weight of a sequence.
    radius : float
        Largest ‖φ(x, y) - φ(x, ŷ)‖ among them.
    """

    total: int
    radius: float


def perceptron(
    objective: Any,
    *,
    rng: Any,
    max_iter: int = 10,
    callback: Callable[[int, float, Any], bool] | None = None,
) -> tuple[SolverResult, Mistakes]:
    """w += weight · (φ(x, y) - φ(x, ŷ)) for each sequence whose best other path ŷ scores ≥ y.

    Parameters
    ----------
    objective : object with ``blocks``, ``mistakes`` and ``settle``
    rng : Generator or RandomState
        Shuffles the sequences.
    max_iter : int
        Passes; fewer if one has no mistakes. An average of all iterates then counts further passes
        of this kind, until the average makes no mistake either.
    callback : callable(pass, mistakes, objective) -> bool, optional

    Returns
    -------
    (SolverResult, Mistakes)
        ``history`` has the mistakes of each pass.

    References
    ----------
    M. Collins (2002), "Discriminative training methods for hidden Markov models", EMNLP, Figure 1,
    Theorem 1. In dual form: Y. Altun et al. (2003), ICML, Algorithm 1.
    """
    history, blocks = [], objective.blocks
    squares = np.zeros(int(blocks.max(initial=-1)) + 1)
    radius, converged, message = 0.0, False, "max_iter reached"
    for k in range(1, max_iter + 1):
        history.append(int(objective.mistakes(rng.permutation(blocks), squares)))
        radius = max(radius, float(squares.max(initial=0)))
        if history[-1] == 0:
            converged, message = True, "a pass without mistakes"
            objective.settle(last_is_right=True)
        stops = callback is not None and callback(k, history[-1], objective)
        if converged or stops:
            message = message if converged else "stopped by the callback"
            break
    result = SolverResult(objective, history[-1], k, converged, history, message)
    return result, Mistakes(sum(history), radius**0.5)

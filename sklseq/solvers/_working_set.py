"""Working sets, one sequence after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sklseq.solvers._bcfw import PATIENCE
from sklseq.solvers._result import SolverResult

__all__ = ["working_set"]

# The QP of a sequence is solved by so many pairs of paths at most, or until the spread of
# violations has fallen to a share ACCURACY: the next visit brings another path anyway, and goes on.
# (To a share of 0.01, passes are as many, and take two to four times as long.)
MAX_STEPS, ACCURACY = 1000, 0.1


def working_set(
    objective: Any,
    *,
    rng: Any,
    tol: float = 1e-2,
    max_iter: int = 1000,
    callback: Callable[[int, float, Any], bool] | None = None,
) -> SolverResult:
    """Coordinate ascent over sequences: each adds its most violated path, and solves its QP.

    The QP of a sequence is over the paths in its working set, starts from the α it has (α-seeding)
    and is solved by pairs of paths; those whose α became 0 leave the set. The order of sequences is
    drawn anew for each pass: in a fixed one, ten times as many passes are needed.

    Parameters
    ----------
    objective, rng, tol, max_iter, callback
        As for :func:`bcfw`.

    Returns
    -------
    SolverResult
        As of :func:`bcfw`.

    References
    ----------
    Y. Altun, I. Tsochantaridis, T. Hofmann (2003), "Hidden Markov support vector machines", ICML,
    Algorithm 2, Propositions 1 and 2.
    """
    history, blocks = [], objective.blocks
    gaps = np.full(int(blocks.max(initial=-1)) + 1, np.inf)
    converged, message, primal, looked_for = False, "max_iter reached", np.inf, PATIENCE
    for k in range(1, max_iter + 1):
        objective.optimize(rng.permutation(blocks), gaps, MAX_STEPS, ACCURACY)
        if len(objective.inseparable):
            return SolverResult(objective, np.inf, k, False, history, "not separable")
        primal, dual = objective.certificate()
        history.append((k, primal, dual, primal - dual))
        converged = bool(np.isfinite(primal) and primal - dual <= tol * primal)
        if not converged and np.isinf(primal) and k >= looked_for:
            looked_for = 2 * k
            if objective.find_contradiction():
                return SolverResult(objective, np.inf, k, False, history, "not separable")
        stops = callback is not None and callback(k, primal, objective)
        if converged or stops:
            message = "gap within tol" if converged else "stopped by the callback"
            break
    return SolverResult(objective, primal, k, converged, history, message)

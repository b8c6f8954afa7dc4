"""Block-coordinate Frank–Wolfe for margin training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sklseq.solvers._result import SolverResult

__all__ = ["bcfw"]

# One pass in EVERY visits all sequences. The others visit those whose share of the gap was above
# BUSY times the mean: the rest have, for the time being, nothing to give.
EVERY, BUSY = 4, 0.3
# Steps on one sequence before the next. Its scores are at hand; its most violated path is not
# looked for again. They end when the spread of violations has fallen to ACCURACY.
ACCURACY = 0.1
# Sequences are revisited until what the paths at hand could still give is a share ENOUGH of the
# gap: then only new paths help.
ENOUGH = 0.1
# Passes without any separating weights before a hard margin is doubted; then twice as many, ….
PATIENCE = 8


def bcfw(
    objective: Any,
    *,
    rng: Any,
    tol: float = 1e-2,
    max_iter: int = 1000,
    n_steps: int = 3,
    n_searches: int = 1,
    n_revisits: int = 0,
    callback: Callable[[int, float, Any], bool] | None = None,
) -> SolverResult:
    """Maximise the dual one sequence at a time, in random order, by exact steps.

    A visit finds the sequence's most violated path, and moves mass to it from its path of least
    violation: the pairwise variant of the Frank–Wolfe step, which can take paths out again and so
    converges linearly. With one step a visit and from the truth, it is that of Lacoste-Julien et
    al., Algorithm 4.

    Parameters
    ----------
    objective : object with blocks, optimize, revisit, certificate, inseparable, find_contradiction
    rng : Generator or RandomState
        Shuffles the sequences.
    tol : float
        Training stops when primal minus dual is at most this share of the primal objective; of the
        average of all iterates, if the objective averages.
    max_iter : int
        Passes.
    n_steps : int
        Steps after each search for the most violated path, at most.
    n_searches : int
        Searches a visit, at most.
    n_revisits : int
        After each pass, at most so many others that search for no paths, and step among those with
        α > 0.
    callback : callable(pass, primal, objective) -> bool, optional
        Called after each pass, with NaN for the primal where the gap is not measured; True stops.

    Returns
    -------
    SolverResult
        ``w`` is the objective, which holds the weights; ``history`` has rows (pass, primal, dual,
        gap).

    References
    ----------
    S. Lacoste-Julien, M. Jaggi, M. Schmidt, P. Pletscher (2013), "Block-coordinate Frank-Wolfe
    optimization for structural SVMs", ICML, Algorithm 4.

    N. Shah, V. Kolmogorov, C. Lampert (2015), "A multi-plane block-coordinate Frank-Wolfe algorithm
    for training structural SVMs with a costly max-oracle", CVPR (passes over the paths at hand).

    A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016), "Minding the
    gaps for block Frank-Wolfe optimization of structured SVMs", ICML, §3 (pairwise steps, gaps).
    """
    history, blocks = [], objective.blocks
    gaps = np.full(int(blocks.max(initial=-1)) + 1, np.inf)
    converged, message, primal, measured = False, "max_iter reached", np.inf, 0
    looked_for = PATIENCE
    for k in range(1, max_iter + 1):
        full = k % EVERY == 1 or k == max_iter
        order = rng.permutation(_chosen(blocks, gaps, full))
        objective.optimize(order, gaps, n_steps, ACCURACY, n_searches)
        if n_revisits:
            _revisit(objective, gaps, rng, n_steps, n_revisits)
        if len(objective.inseparable):
            return SolverResult(objective, np.inf, k, False, history, "not separable")
        # The gap as met on the way costs nothing; it is measured when it may be small enough, and
        # at growing intervals for the record.
        promising = gaps[blocks].sum() <= 1.5 * tol * primal
        due = promising or k >= 2 * measured or k == max_iter
        if due:
            measured = k
            primal, dual = objective.certificate()
            history.append((k, primal, dual, primal - dual))
            converged = bool(np.isfinite(primal) and primal - dual <= tol * primal)
            if not converged and np.isinf(primal) and k >= looked_for:
                looked_for = 2 * k
                if objective.find_contradiction():
                    return SolverResult(objective, np.inf, k, False, history, "not separable")
        stops = callback is not None and callback(k, primal if due else np.nan, objective)
        if stops and not due:
            primal, dual = objective.certificate()
            history.append((k, primal, dual, primal - dual))
        if converged or stops:
            message = "gap within tol" if converged else "stopped by the callback"
            break
    return SolverResult(objective, primal, k, converged, history, message)


def _revisit(objective: Any, gaps: np.ndarray, rng: Any, n_steps: int, n_revisits: int) -> None:
    blocks, known = objective.blocks, np.full(len(gaps), np.inf)
    for k in range(n_revisits):
        if len(objective.inseparable):
            return
        order = rng.permutation(_chosen(blocks, known, k == 0))
        objective.revisit(order, known, n_steps, ACCURACY)
        if known[blocks].sum() <= ENOUGH * gaps[blocks].sum():
            return


def _chosen(blocks: np.ndarray, gaps: np.ndarray, full: bool) -> np.ndarray:
    if full or not len(blocks):
        return blocks
    known = gaps[blocks]
    busy = blocks[known > BUSY * known.mean()]
    return busy if len(busy) else blocks

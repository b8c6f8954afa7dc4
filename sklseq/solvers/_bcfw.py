"""Block-coordinate Frank–Wolfe for margin training."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sklseq.solvers._result import ROUNDING, SolverResult

# One pass in FULL_EVERY updates all sequences. The others update those whose part of the gap was
# above LARGE_GAP times the mean; updates of the rest would hardly change the objective.
FULL_EVERY, LARGE_GAP = 4, 0.3
# Steps on one sequence stop when the spread of violations among its known paths has fallen to this
# fraction.
ACCURACY = 0.1
# Passes over known paths stop when the gap among them is this fraction of the whole gap: then
# only new paths reduce it. Their updates make up to KNOWN_STEPS steps, which cost little.
KNOWN_PATHS_GAP, KNOWN_STEPS = 0.1, 10
# If sequences are divided into pieces: at most PASSES passes are made over the same pieces, fewer
# if their gap has fallen to REST of the whole; the first are cut to SHORT free rows, those of each
# later round to twice as many.
PASSES, REST, SHORT = 4, 0.3, 8
# Passes without separating weights before the first proof of inseparability is tried; the number
# doubles after each attempt.
PATIENCE = 8


class GapMonitor:
    """Duality gap of a margin objective: its history and the stopping rules."""

    def __init__(self, objective: Any, tol: float):
        self.objective, self.tol = objective, tol
        self.history: list[tuple] = []
        self.primal, self.converged, self.next_proof = np.inf, False, PATIENCE
        self.gap = np.inf
        self.is_exhausted = False  # whether rounding may hide more than tol allows

    def measure(self, k: int) -> None:
        """Evaluate primal and dual after pass k."""
        self.primal, dual = self.objective.certificate()
        self.gap = self.primal - dual
        self.history.append((k, self.primal, dual, self.gap))
        if np.isfinite(self.primal) and self.gap <= self.tol * self.primal:
            self._allow_for_rounding()
            self.converged = self.gap <= self.tol * self.primal
            self.is_exhausted = not self.converged

    def _allow_for_rounding(self) -> None:
        # The gap is at least what rounding errors of the last measurement may hide.
        self.gap = max(self.gap, self.objective.rounding())
        self.history[-1] = self.history[-1][0], self.primal, self.primal - self.gap, self.gap

    def is_inseparable(self, k: int) -> bool:
        """Whether it is proved after pass k that no weights meet a hard margin."""
        if len(self.objective.inseparable):
            return True
        if np.isfinite(self.primal) or k < self.next_proof:
            return False
        self.next_proof = 2 * k
        return bool(self.objective.find_contradiction())

    def result(self, k: int, message: str = "max_iter reached") -> SolverResult:
        if np.isfinite(self.primal) and not (self.converged or self.is_exhausted):
            self._allow_for_rounding()
        message = ROUNDING if self.is_exhausted else message
        message = "gap within tol" if self.converged else message
        primal, history = self.primal, self.history
        return SolverResult(self.objective, primal, k, self.converged, history, message)

    def inseparable_result(self, k: int) -> SolverResult:
        """Result after k passes if no weights meet a hard margin."""
        return SolverResult(self.objective, np.inf, k, False, self.history, "not separable")


def bcfw(
    objective: Any,
    *,
    rng: Any,
    tol: float = 1e-2,
    max_iter: int = 1000,
    n_steps: int = 3,
    n_searches: int = 1,
    n_known_passes: int = 0,
    callback: Callable[[int, float, Any], bool] | None = None,
) -> SolverResult:
    """Maximise the dual one sequence at a time, in random order, by exact steps.

    An update finds the most violated path of a sequence, and moves mass to it from its path with
    the least violation: the pairwise variant of the Frank–Wolfe step, which can remove paths and so
    converges linearly. With one step per update and a start at the true paths, it is Algorithm 4 of
    Lacoste-Julien et al.

    If slacks add up over pieces of sequences, the blocks are pieces around the rows that some path
    gets wrong, chosen anew when the gap is measured: other rows cost nothing between, and a step
    need not fit all errors of a sequence.

    Parameters
    ----------
    objective : object with blocks, optimize, known_paths, prepared, certificate, rounding, \
            inseparable, find_contradiction, can_divide; if that is true, divide
    rng : Generator or RandomState
        Shuffles the sequences.
    tol : float
        Training stops when the duality gap is at most this fraction of the primal objective. If the
        objective averages, both are evaluated at the average of all iterates.
    max_iter : int
        Passes.
    n_steps : int
        Maximum number of steps after each search for the most violated path.
    n_searches : int
        Maximum number of searches per update.
    n_known_passes : int
        Maximum number of passes, after each pass, over the known paths (α > 0), without a search;
        of :class:`StructuredHinge`, for the linear kernel only.
    callback : callable(pass, primal, objective) -> bool, optional
        Called after each pass, with NaN for the primal if the gap is not measured; True stops.

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
    for training structural SVMs with a costly max-oracle", CVPR (passes over known paths).

    A. Osokin, J.-B. Alayrac, I. Lukasewitz, P. Dokania, S. Lacoste-Julien (2016), "Minding the
    gaps for block Frank-Wolfe optimization of structured SVMs", ICML, §3 (pairwise steps, gaps).
    """
    monitor, measured, divides = GapMonitor(objective, tol), 0, objective.can_divide
    gaps, due, n_rounds = _no_gaps(objective), divides, 0
    for k in range(1, max_iter + 1):
        full = due if divides else k % FULL_EVERY == 1 or k == max_iter
        if divides and due:
            objective.divide(SHORT << min(n_rounds, 20), k)
            gaps, n_rounds = _no_gaps(objective), n_rounds + 1
        order = rng.permutation(_chosen(objective.blocks, gaps, full))
        with objective.prepared():
            objective.optimize(order, gaps, n_steps, ACCURACY, n_searches)
            if n_known_passes:
                _known_passes(objective, gaps, rng, n_known_passes, max(n_steps, KNOWN_STEPS))
        # The estimate from the updates is free. The gap itself is measured if it may be within
        # tol, and at growing intervals for the history.
        left = gaps[objective.blocks].sum()
        is_old = k >= measured + PASSES or left <= REST * monitor.gap
        due = is_old if divides else k >= 2 * measured
        due = due or left <= 1.5 * tol * monitor.primal or k == max_iter
        if due and not len(objective.inseparable):
            measured = k
            monitor.measure(k)
        if (due or len(objective.inseparable)) and monitor.is_inseparable(k):
            return monitor.inseparable_result(k)
        stops = callback is not None and callback(k, monitor.primal if due else np.nan, objective)
        if stops and not due:
            monitor.measure(k)
        if stops or monitor.converged or monitor.is_exhausted:
            break
    return monitor.result(k, "stopped by the callback" if stops else "max_iter reached")


def _no_gaps(objective: Any) -> np.ndarray:
    return np.full(int(objective.blocks.max(initial=-1)) + 1, np.inf)


def _known_passes(objective: Any, gaps: np.ndarray, rng: Any, n_passes: int, n_steps: int) -> None:
    # After the first, a pass updates the blocks of a gap among known paths above the mean, in the
    # same order.
    blocks, known, above = objective.blocks, np.zeros(len(gaps)), -np.inf
    with objective.known_paths(rng.permutation(blocks)) as paths:
        for _ in range(n_passes):
            if len(objective.inseparable):
                return
            paths.update(known, above, n_steps, ACCURACY)
            gap = known[blocks].sum()
            if gap <= KNOWN_PATHS_GAP * gaps[blocks].sum():
                return
            above = gap / len(blocks)


def _chosen(blocks: np.ndarray, gaps: np.ndarray, full: bool) -> np.ndarray:
    if full or not len(blocks):
        return blocks
    known = gaps[blocks]
    large = blocks[known > LARGE_GAP * known.mean()]
    return large if len(large) else blocks

"""Regression of labels on rows, for one ridge or several: the choice of a linear solver."""

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib.callbacks import iteration_hook
from sklseq._lib.threads import Threads
from sklseq.objectives.zscore.elimination import ColumnKinds, EliminatedRidge
from sklseq.objectives.zscore.factorised import CentredRows, FactorisedRidge, centred_statistics
from sklseq.objectives.zscore.moments import Sample, Statistics, extended_rows
from sklseq.objectives.zscore.regression import RidgeSystem
from sklseq.solvers import SolverResult, cg

FACTORISED = 2_000  # largest number of dense columns for which a factorisation may replace "cg"
# Least ridge, as a fraction of the largest column, for which the stopping rule of conjugate
# gradients is reliable: their error is at most tol times the root of the condition number.
WELL_CONDITIONED = 1e-3
DIRECT = 1_000  # features up to which solver="auto" factorises
ATTAINABLE = 1e-8  # least relative residual that is tested in float64
TOL_OF_FLOAT32 = 1e-4  # least tol for which conjugate gradients on sparse rows use float32
# Result reported for a factorisation.
DIRECTLY = SolverResult(np.zeros(0), 0.0, 1, True, [1.0, 0.0], "direct")


class RidgeSystems:
    """(X̃ᵀ diag(weights) X̃ + ridge) V = X̃ᵀ diag(weights) Y, for ridges in descending order.

    What does not depend on the ridge is computed once, and conjugate gradients start from the
    solutions with the ridges before.

    Parameters
    ----------
    tagger : ZScoreTagger
        Its ``solver``, ``tol`` and ``max_iter``.
    sample : Sample
    several : bool
        Whether further ridges may follow.
    kept : ndarray, optional
        Columns whose weights are needed; by default all.
    """

    def __init__(
        self, tagger: Any, sample: Sample, *, several: bool = False, kept: np.ndarray | None = None
    ):
        self.tagger, self.sample, self.several, self.kept = tagger, sample, several, kept
        self.kinds: ColumnKinds | None = None
        self.solved: list[tuple[float, np.ndarray]] = []  # the last two (log ridge, solution)

    def solve(self, ridge: float, threads: Threads) -> tuple[Any, SolverResult]:
        """Return the solved system and the solver's result."""
        sample = self.sample
        if is_direct(self.tagger, sample.rows.shape[1]):
            return self._factorise(ridge), DIRECTLY
        if ridge > 0 and sparse.issparse(sample.rows):
            return self._solve_eliminated(ridge, threads)
        system = RidgeSystem(self.rows, sample.y, sample.n_labels, ridge)
        # Conjugate gradients do not separate nearly equal columns.
        alike = ridge * system.preconditioner.min() < WELL_CONDITIONED
        if alike and sample.rows.shape[1] + 2 <= FACTORISED:
            return self._factorise(ridge), DIRECTLY
        result = conjugate_gradients(self.tagger, system, system.gradient)
        system.finish(result.w)
        return system, result

    @cached_property
    def rows(self) -> CentredRows:
        """X̃ less its means."""
        sample = self.sample
        extended = extended_rows(sample.rows, sample.offsets, sample.n_labels)
        return CentredRows(extended, sample.row_weights)

    @cached_property
    def statistics(self) -> Statistics:
        """Sums over these."""
        return centred_statistics(self.rows, self.sample)

    def _factorise(self, ridge: float) -> FactorisedRidge:
        return FactorisedRidge(self.rows, self.sample, ridge, self.statistics)

    def _solve_eliminated(
        self, ridge: float, threads: Threads
    ) -> tuple[EliminatedRidge, SolverResult]:
        # Use float32 if it is precise enough. The residual is then recomputed from the solution, as
        # iterations only update it.
        tol = float(self.tagger.tol)
        for dtype in [np.float32, np.float64] if tol >= TOL_OF_FLOAT32 else [np.float64]:
            system = self._eliminated(ridge, threads, dtype)
            if dtype == np.float32 and system.inverse.least < (np.finfo(dtype).eps / tol) ** 2:
                continue
            start = self._start(ridge)
            result = conjugate_gradients(self.tagger, system, system.gradient, start)
            left = system.finish(result.w)
            if result.message in ("max_iter", "callback") or left <= 2 * tol:
                break
        self.solved = [*self.solved[-1:], (float(np.log(ridge)), result.w)]
        if result.message == "residual" and not left <= 2 * max(tol, ATTAINABLE):
            history = [*result.history, left]
            result = result._replace(converged=False, message="precision", history=history)
        return system, result

    def _eliminated(self, ridge: float, threads: Threads, dtype) -> EliminatedRidge:
        if self.several and not (self.kinds and self.kinds.serve(ridge, dtype)):
            self.kinds = ColumnKinds(self.sample, ridge, dtype)
        system = EliminatedRidge(self.sample, ridge, threads, dtype, kinds=self.kinds)
        self.solved = [one for one in self.solved if len(one[1]) == len(system.gradient)]
        return system

    def _start(self, ridge: float) -> np.ndarray | None:
        # On the line through the last two solutions, over the logarithm of the ridge, but no
        # further from the last one than these two are from each other.
        if len(self.solved) < 2:
            return self.solved[0][1] if self.solved else None
        (before, V), (last, W) = self.solved
        step = (last - np.log(ridge)) / (before - last) if before > last else 0.0
        return W + np.float32(min(max(step, 0.0), 1.0)) * (W - V)


def is_direct(tagger: Any, n_columns: int) -> bool:
    """Whether a system of so many columns is factorised."""
    return tagger.solver == "direct" or (tagger.solver == "auto" and n_columns <= DIRECT)


def conjugate_gradients(
    tagger: Any, system: Any, sides: np.ndarray, start: np.ndarray | None = None
) -> SolverResult:
    """Solve for all right-hand sides, with the tagger's limits, output and callbacks."""

    def report(k: int, error: float, _: np.ndarray) -> bool:
        if tagger.verbose:
            print(f"[{type(tagger).__name__}] iteration {k}: error {error:.2e}")
        return after_iteration(k, error, None)

    after_iteration = iteration_hook(tagger)

    return cg(
        system, sides, preconditioner=system.preconditioner, tol=float(tagger.tol),
        max_iter=int(tagger.max_iter), callback=report, start=start,
    )  # fmt: skip

"""What :class:`~sklseq.ZScoreTagger` solves: which system, by which solver, in which precision."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.callbacks import iteration_hook
from sklseq._lib.threads import Threads
from sklseq.data.labels import Constraints
from sklseq.data.sequences import row_positions
from sklseq.estimators.zscore.separate import FreeSystem, PathSystem, Separation, separate
from sklseq.inference.chain.linear_chain import as_generator
from sklseq.objectives.zscore.elimination import EliminatedRidge
from sklseq.objectives.zscore.factorised import CentredRows, FactorisedRidge
from sklseq.objectives.zscore.moments import (
    ChainWeights,
    Sample,
    Statistics,
    combine,
    count_chain,
    extended_rows,
    loss_multiplier,
    score_moments,
    stack_weights,
    unstack_weights,
)
from sklseq.objectives.zscore.path_moments import AllowedMoments, AllowedPaths, SampledMoments
from sklseq.objectives.zscore.programs import DynamicPrograms, count_programs
from sklseq.objectives.zscore.regression import RidgeSystem
from sklseq.solvers import SolverResult, cg, solve_dense

__all__ = [
    "MAX_WEIGHTS",
    "Solution",
    "check_programs",
    "is_free",
    "labeling_scores",
    "separate_zscore",
    "solve_zscore",
    "training_zscore",
]

FACTORISED = 2_000  # columns of dense rows up to which conjugate gradients may give way
# Share of the largest column that the ridge must be for the stop of conjugate gradients to be
# trusted: their error is at most tol times the root of the condition number.
WELL = 1e-3
DIRECT = 1_000  # features up to which solver="auto" factorises
ATTAINABLE = 1e-8  # share of the right-hand side down to which a residual is tested in float64
SINGLE = 1e-4  # the least tol for which conjugate gradients on sparse rows are done in float32
MAX_PROGRAMS, MAX_WEIGHTS = 20_000, 4_000  # of moments="dp"


class Solution(NamedTuple):
    """Weights of the largest z-score.

    Attributes
    ----------
    weights : ChainWeights
    multiplier : float
        α of C⁻¹(α b - c).
    zscore : float
    result : SolverResult
        Of the linear system.
    """

    weights: ChainWeights
    multiplier: float
    zscore: float
    result: SolverResult


def solve_zscore(tagger, sample: Sample, allowed: Constraints, cost) -> Solution:
    """Solve with the parameters of a :class:`ZScoreTagger`."""
    if sample.n_labels == 1:  # one labeling, no variance: C = 0 and, but for rounding, b = 0
        zeros = ChainWeights(np.zeros((sample.rows.shape[1], 1)), np.zeros((1, 1)))
        result = SolverResult(zeros.coef, 0.0, 0, True, [0.0], "residual")
        return Solution(zeros, 1.0, 0.0, result)
    if tagger.moments == "exact" and is_free(allowed):
        return _solve_free(tagger, sample, cost)
    return _solve_paths(tagger, sample, allowed, cost)


def is_free(allowed: Constraints) -> bool:
    """Whether any labeling may occur."""
    return all(mask.all() for mask in allowed)


def _is_direct(tagger, n_columns: int) -> bool:
    return tagger.solver == "direct" or (tagger.solver == "auto" and n_columns <= DIRECT)


# ------------------------------------------------------------------ free labels


def _solve_free(tagger, sample: Sample, cost) -> Solution:
    L, l2 = sample.n_labels, float(tagger.l2)
    with Threads(tagger.n_jobs) as threads:
        solve = _factorise if _is_direct(tagger, sample.rows.shape[1]) else _solve_rows
        system, result = solve(tagger, sample, 2 * L * l2, threads)
        statistics = Statistics(None, None, None, *count_chain(sample))
        maximum = combine(system.products(sample.row_weights), statistics, cost, l2)
        weights = stack_weights(system.weights(maximum.mix), maximum.pairs)
    return Solution(weights, maximum.multiplier, maximum.zscore, result)


def _factorise(_, sample: Sample, ridge: float, threads: Threads):
    extended = extended_rows(sample.rows, sample.offsets, sample.n_labels)
    system = FactorisedRidge(CentredRows(extended, sample.row_weights), sample, ridge)
    return system, SolverResult(system.solution, 0.0, 1, True, [1.0, 0.0], "direct")


def _solve_rows(tagger, sample: Sample, ridge: float, threads: Threads):
    if ridge > 0 and sparse.issparse(sample.rows):
        return _solve_eliminated(tagger, sample, ridge, threads)
    extended = extended_rows(sample.rows, sample.offsets, sample.n_labels)
    system = RidgeSystem(extended, sample.y, sample.row_weights, sample.n_labels, ridge, threads)
    # Conjugate gradients do not see what tells columns apart that are nearly equal.
    alike = ridge * system.preconditioner.min() < WELL
    if alike and extended.shape[1] <= FACTORISED:
        return _factorise(tagger, sample, ridge, threads)
    result = _conjugate_gradients(tagger, system, system.gradient)
    system.finish(result.w)
    return system, result


def _solve_eliminated(tagger, sample: Sample, ridge: float, threads: Threads):
    # In float32 if that is precise enough: the residual that iterations update is then computed
    # anew.
    tol = float(tagger.tol)
    for dtype in [np.float32, np.float64] if tol >= SINGLE else [np.float64]:
        system = EliminatedRidge(sample, ridge, threads, dtype)
        if dtype == np.float32 and system.inverse.least < (np.finfo(dtype).eps / tol) ** 2:
            continue
        result = _conjugate_gradients(tagger, system, system.gradient)
        left = system.finish(result.w)
        if result.message == "max_iter" or left <= 2 * tol:
            break
    if result.converged and not left <= 2 * max(tol, ATTAINABLE):
        history = [*result.history, left]
        result = result._replace(converged=False, message="precision", history=history)
    return system, result


# ------------------------------------------------------------------ other paths


def _solve_paths(tagger, sample: Sample, allowed: Constraints, cost) -> Solution:
    moments = _path_moments(tagger, sample, allowed)
    sides = [moments.b]
    if cost is not None:
        sides.append(moments.loss_covariance(cost))
    result = _solve_moments(tagger, moments, np.stack(sides, axis=1))
    w, multiplier = result.w[:, 0], 1.0
    if cost is not None:
        with_loss = result.w[:, 1]
        bb, bc = float(moments.b @ w), float(moments.b @ with_loss)
        multiplier = loss_multiplier(moments.mean_loss(cost), bb, bc)
        w = multiplier * w - with_loss
    chain = unstack_weights(w, sample.rows.shape[1], sample.n_labels)
    z = training_zscore(sample, allowed, cost, chain)
    return Solution(chain, multiplier, z, result)


def _path_moments(tagger, sample: Sample, allowed: Constraints):
    ridge = 2 * float(tagger.l2)
    if tagger.moments == "dp":
        return DynamicPrograms(sample, ridge, allowed)
    if tagger.moments == "sampling":
        rng = as_generator(tagger.random_state)
        return SampledMoments(sample, ridge, allowed, int(tagger.n_paths), rng)
    return AllowedMoments(sample, ridge, allowed)


def _solve_moments(tagger, moments, sides: np.ndarray) -> SolverResult:
    if tagger.moments == "dp":
        return solve_dense(moments.matrix, sides, moments.ridge)
    if _is_direct(tagger, len(sides)):
        if tagger.moments == "sampling":
            return solve_dense(moments.matrix(), sides, moments.ridge)
        with_ridge = moments.hessian_product(np.eye(len(sides)))
        return solve_dense(with_ridge, sides, 0.0)
    return _conjugate_gradients(tagger, moments, sides)


def _conjugate_gradients(tagger, system, sides: np.ndarray) -> SolverResult:
    def report(k: int, error: float, _: np.ndarray) -> bool:
        if tagger.verbose:
            print(f"[{type(tagger).__name__}] iteration {k}: error {error:.2e}")
        return after_iteration(k, error, None)

    after_iteration = iteration_hook(tagger)

    return cg(
        system, sides, preconditioner=system.preconditioner, tol=float(tagger.tol),
        max_iter=int(tagger.max_iter), callback=report,
    )  # fmt: skip


def separate_zscore(
    tagger, sample: Sample, allowed: Constraints, cost, weights: ChainWeights
) -> Separation:
    """Go on from ``weights`` until every training sequence is decoded right."""
    if tagger.moments == "exact" and is_free(allowed):
        system = FreeSystem(sample, float(tagger.l2))
    else:
        system = PathSystem(_path_moments(tagger, sample, allowed))
    return separate(system, sample, allowed, cost, weights, int(tagger.max_iter))


def check_programs(sample: Sample, allowed: Constraints, cost) -> None:
    """Raise ValueError if moments="dp" would take too long."""
    M, L = sample.rows.shape[1], sample.n_labels
    n_weights = M * L + L * L
    n = count_programs(sample.rows, L, free=is_free(allowed), with_loss=cost is not None)
    if n > MAX_PROGRAMS or n_weights > MAX_WEIGHTS:
        raise ValueError(
            f"moments='dp' would run {n:,} dynamic programs over {len(sample.y):,} rows for a "
            f"matrix of {n_weights:,}² (at most {MAX_PROGRAMS:,} and {MAX_WEIGHTS:,}²); use "
            "moments='exact', which has the same answer, or 'sampling'."
        )


# ------------------------------------------------------------------ scores


def training_zscore(sample: Sample, allowed: Constraints, cost, chain: ChainWeights) -> float:
    """The z-score of the true labels under given weights."""
    rows = np.asarray(sample.rows @ chain.coef)
    truth, mean, variance = labeling_scores(
        rows, chain.transition, sample.offsets, sample.y, allowed, cost
    )
    total = float(sample.weights @ variance)
    gap = float(sample.weights @ (truth - mean))
    return gap / np.sqrt(total) if total > 0 else 0.0


def labeling_scores(emission, transition, offsets, y, allowed: Constraints, cost=None):
    """(score of y, mean, variance) of each sequence, a loss added to the scores of the others."""
    n = len(offsets) - 1
    after = row_positions(offsets)[2]
    owner = np.repeat(np.arange(n), np.diff(offsets))
    truth = np.bincount(owner, emission[np.arange(len(y)), y], minlength=n)
    truth += np.bincount(owner[after], transition[y[after - 1], y[after]], minlength=n)
    if not is_free(allowed):
        first, last, _ = row_positions(offsets)
        truth[owner[first]] += np.where(allowed.start[y[first]], 0, -np.inf)
        truth[owner[last]] += np.where(allowed.end[y[last]], 0, -np.inf)
    raised = emission if cost is None else emission + cost[y]
    if is_free(allowed):
        return truth, *score_moments(raised, transition, offsets)
    return truth, *AllowedPaths(allowed, offsets).score_moments(raised, transition)

"""Training of a z-score tagger: linear system, solver and fitted attributes."""

from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.callbacks import is_stopped
from sklseq._lib.threads import Threads
from sklseq.data.constraints import Constraints, resolve_constraints
from sklseq.estimators.column_units import warn_columns
from sklseq.estimators.label_losses import resolve_loss
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.validation import check_magnitude, read_class_weight
from sklseq.estimators.zscore.kernel_space import KernelSpace
from sklseq.estimators.zscore.ridge_systems import (
    DIRECTLY,
    RidgeSystems,
    conjugate_gradients,
    is_direct,
)
from sklseq.estimators.zscore.separate import FreeSystem, PathSystem, separate
from sklseq.inference.chain.linear_chain import as_generator
from sklseq.inference.chain.path_scores import path_scores
from sklseq.objectives.scores.score_map import padded_view
from sklseq.objectives.zscore.factorised import SolvedRows, solve_sums, sum_products
from sklseq.objectives.zscore.kernel_ridge import KernelRidge
from sklseq.objectives.zscore.moments import (
    ChainWeights,
    PairRule,
    Sample,
    Statistics,
    chain_columns,
    combine,
    count_chain,
    decompose,
    loss_multiplier,
    score_moments,
    score_products,
    stack_weights,
    unstack_weights,
    zscore_of,
)
from sklseq.objectives.zscore.path_moments import AllowedMoments, AllowedPaths, SampledMoments
from sklseq.objectives.zscore.programs import DynamicPrograms, count_programs
from sklseq.solvers import SolverResult, solve_dense

# The default ridge is l2 = min(1, FEW_LABELS / n_labels): that of the regression of labels on rows,
# 2 · n_labels · l2, is then 8 for any number of labels from 4.
FEW_LABELS = 4
MAX_PROGRAMS, MAX_WEIGHTS = 20_000, 4_000  # limits of moments="dp"


class Solution(NamedTuple):
    """Weights that maximise the z-score, and details of their computation.

    Attributes
    ----------
    weights : ChainWeights
    multiplier : float
        α of C⁻¹(α b - c).
    zscore : float
    result : SolverResult
        Result of the linear solver.
    transition_weight : float or None
        κ; None where it has no meaning.
    n_constraints : int or None
        Number of constraints with ``separate``.
    message : str
        Reason why the weights do not satisfy ``separate``; empty if they do.
    """

    weights: ChainWeights
    multiplier: float
    zscore: float
    result: SolverResult
    transition_weight: float | None = None
    n_constraints: int | None = None
    message: str = ""


class ZScoreProblem:
    """The z-score of one training set, and its maximisation.

    Parameters
    ----------
    tagger : ZScoreTagger
    source : RowSource
    gram : ndarray of shape (n_rows, n_rows), optional
        Kernel between rows, if it was computed before.

    Attributes
    ----------
    space : KernelSpace or None
        None for the linear kernel.
    sample : Sample
    allowed, trained : Constraints
        Constraints of predictions, and of the labelings that moments are computed over.
    cost : ndarray of shape (n_labels, n_labels), or None
    rule : PairRule
        Transitions.
    systems : RidgeSystems or None
        Linear systems, if several solutions share them.
    """

    systems: RidgeSystems | None = None

    def __init__(self, tagger: Any, source: RowSource, gram: np.ndarray | None = None):
        X, classes = source.X, source.classes
        check_magnitude(X, "Z-score training")
        self.tagger, self.source = tagger, source
        self.space = None if tagger.kernel == "linear" else KernelSpace(tagger, source, gram)
        self.allowed = self.trained = source.allowed(tagger.constraints, classes)
        if tagger.constrained == "decoding":
            self.trained = resolve_constraints(None, classes)
        self.cost = resolve_loss(tagger.loss, classes)
        codes, weights = source.codes, source.weights
        of_rows = np.repeat(weights, X.lengths)
        factors = read_class_weight(tagger.class_weight, classes, codes, of_rows, True)
        self.sample = Sample(X.rows, X.offsets, codes, weights, len(classes), factors)
        self.is_closed_form = tagger.moments == "exact" and is_free(self.trained)
        if tagger.moments == "dp":
            check_programs(self.sample, self.trained, self.cost)
        self.rule = pair_rule(tagger)
        if not self.is_closed_form or tagger.separate:
            check_closed_form(tagger)
            self.rule = PairRule()
        if tagger.separate:
            self.systems = RidgeSystems(tagger, self.sample)

    @property
    def chooses_transitions(self) -> bool:
        """Whether transitions are to be chosen by sequences left out."""
        tagger = self.tagger
        is_auto = tagger.transitions == "auto" and tagger.transition_weight is None
        return is_auto and self.is_closed_form and not (tagger.separate or tagger.refine)

    def solve(self) -> Solution:
        """Solve the linear system, and add constraints if ``separate`` asks for it."""
        tagger, sample = self.tagger, self.sample
        if sample.n_labels == 1:  # one labeling: C = 0 and b = 0 up to rounding
            n = sample.rows.shape[1] if self.space is None else len(self.space.support)
            zeros = ChainWeights(np.zeros((n, 1)), np.zeros((1, 1)))
            result = SolverResult(zeros.coef, 0.0, 0, True, [0.0], "residual")
            solution = Solution(zeros, 1.0, 0.0, result, 1.0)
        elif self.space is not None:
            solution = _solve_kernel(tagger, sample, self.cost, self.rule, self.space)
        elif self.is_closed_form:
            solution = _solve_free(tagger, sample, self.cost, self.rule, self.systems)
        else:
            solution = _solve_paths(tagger, sample, self.trained, self.cost)
        if tagger.separate and is_stopped(tagger):
            return solution._replace(n_constraints=0)
        return self._separate(solution) if tagger.separate else solution

    def _separate(self, solution: Solution) -> Solution:
        tagger, sample = self.tagger, self.sample
        if self.is_closed_form:
            system = FreeSystem(self.systems, resolve_l2(tagger, sample.n_labels))
        else:
            system = PathSystem(_path_moments(tagger, sample, self.trained))
        start, rounds = solution.weights, int(tagger.max_iter)
        found = separate(system, sample, self.trained, self.cost, start, rounds)
        z = training_zscore(sample, self.trained, self.cost, found.weights)
        return solution._replace(zscore=z, **found._asdict())

    def attributes(self, solution: Solution) -> dict[str, Any]:
        """All attributes of the fitted tagger."""
        fitted = chain_attributes(
            solution.weights, self.allowed, self.source.classes, self.source.vectorizer,
            self.source.X.dtype,
        )  # fmt: skip
        fitted |= {"multiplier_": solution.multiplier, "zscore_": solution.zscore}
        fitted["l2_"] = resolve_l2(self.tagger, self.sample.n_labels)
        fitted["n_iter_"] = solution.result.n_iter
        if self.space is not None:
            del fitted["coef_"]
            fitted |= self.space.attributes(solution.weights.coef)
        if solution.transition_weight is not None:
            fitted["transition_weight_"] = float(solution.transition_weight)
        fitted["transitions_"] = self.rule.kind
        if solution.n_constraints is not None:
            fitted["n_constraints_"] = solution.n_constraints
        return fitted


def chain_attributes(
    weights: ChainWeights, allowed: Constraints, classes: np.ndarray, vectorizer: Any, dtype
) -> dict[str, Any]:
    """Fitted attributes of a chain with these weights, in the precision of the rows."""
    dtype = np.float32 if dtype == np.float32 else np.float64
    fitted = {
        "classes_": classes,
        "vectorizer_": vectorizer,
        "coef_": padded_view(np.asarray(weights.coef, dtype=dtype)),
        "transition_": np.where(allowed.transition, weights.transition, -np.inf).astype(dtype),
        "start_": np.where(allowed.start, 0, -np.inf).astype(dtype),
        "end_": np.where(allowed.end, 0, -np.inf).astype(dtype),
        "n_features_in_": len(weights.coef),
    }
    if vectorizer is not None:
        fitted["feature_names_in_"] = vectorizer.get_feature_names_out()
    return fitted


def resolve_l2(tagger: Any, n_labels: int) -> float:
    """Return ``l2``, or its default for so many labels.

    A feature of n rows, all of one of L labels, has a score of n / (n + 2 · L · l2): with many
    labels, a constant l2 lets scores of rare features vanish beside those of transitions.
    """
    return min(1.0, FEW_LABELS / n_labels) if tagger.l2 is None else float(tagger.l2)


def warn_columns_without_effect(tagger: Any, source: RowSource) -> None:
    """Warn of columns that the ridge leaves without an effect, see ``warn_columns``."""
    if tagger.kernel == "linear":
        n_labels = len(source.classes)
        l2 = resolve_l2(tagger, n_labels)
        # Without weights of the first label, no intercepts make up for an offset of all rows.
        offset_cost = l2 * n_labels**2 + source.weights.sum() / 4
        warn_columns(source.X.rows, source.weights, 2 * n_labels * l2, f"l2={l2:.3g}", offset_cost)


def pair_rule(tagger: Any) -> PairRule:
    """Return the rule by which ``transitions`` and ``transition_weight`` score pairs of labels.

    "auto" without sequences to leave out is "information", where a choice could be made. Iterations
    of a CRF start from "covariance", and a given weight is one of "covariance".
    """
    kind = tagger.transitions
    if kind == "auto":
        is_free = tagger.transition_weight is None and not tagger.refine
        kind = "information" if is_free else "covariance"
    return PairRule(kind, tagger.transition_weight)


def check_closed_form(tagger: Any) -> None:
    """Raise ValueError if a parameter needs weights in closed form, which this model has not."""
    kind, weight = tagger.transitions, tagger.transition_weight
    natural = "transitions='covariance' and transition_weight=None"
    for wrong, given, instead in (
        (kind == "information", f"transitions={kind!r}", natural),
        (weight is not None, f"transition_weight={weight}", natural),
        (tagger.kernel != "linear", f"kernel={tagger.kernel!r}", "kernel='linear'"),
        (tagger.class_weight is not None, "class_weight", "class_weight=None"),
    ):
        if wrong:
            raise ValueError(
                f"{given} needs weights in closed form: moments='exact', separate=False and "
                f"constrained='decoding'; otherwise use {instead}."
            )


def is_free(allowed: Constraints) -> bool:
    """Whether every labeling is allowed."""
    return all(mask.all() for mask in allowed)


# ------------------------------------------------------------------ free labels


def _solve_free(
    tagger, sample: Sample, cost, rule: PairRule, systems: RidgeSystems | None = None
) -> Solution:
    L, l2 = sample.n_labels, resolve_l2(tagger, sample.n_labels)
    systems = systems or RidgeSystems(tagger, sample)
    with Threads(tagger.n_jobs) as threads:
        system, result = systems.solve(2 * L * l2, threads)
        return _solution(system, result, sample, cost, l2, rule, systems.kept)


def _solve_kernel(tagger, sample: Sample, cost, rule: PairRule, space: KernelSpace) -> Solution:
    l2 = resolve_l2(tagger, sample.n_labels)
    if not space.is_exact:
        found = solve_statistics(space.statistics(sample), cost, l2, rule)
        coef, transition = found.weights
        return found._replace(weights=ChainWeights(space.of_landmarks(coef), transition))
    system = KernelRidge(space.gram, sample, 2 * sample.n_labels * l2, solve_dense)
    return _solution(system, DIRECTLY, sample, cost, l2, rule)


def _solution(
    system: SolvedRows, result: SolverResult, sample: Sample, cost, l2: float, rule: PairRule,
    kept: np.ndarray | None = None,
) -> Solution:  # fmt: skip
    # From the scores of a solved system; ``kept``: the columns whose weights are needed.
    statistics = Statistics(None, None, None, *count_chain(sample))
    scores = system.training_scores(sample.row_weights)
    products = score_products(scores, sample.y, sample.row_weights)
    maximum = combine(products, statistics, cost, l2, rule)
    weights, z = stack_weights(system.weights(maximum.mix, kept), maximum.pairs), maximum.zscore
    if rule.kind != "covariance":
        z = free_zscore(sample, statistics, cost, scores @ maximum.mix, maximum.pairs)
    return Solution(weights, maximum.multiplier, z, result, maximum.transition_weight)


def solve_statistics(
    statistics: Statistics, cost: np.ndarray | None, l2: float, rule: PairRule
) -> Solution:
    """Return the solution from sufficient statistics, without the rows."""
    L = len(statistics.labels)
    V, products = solve_sums(statistics, 2 * L * l2)
    maximum = combine(products, statistics, cost, l2, rule)
    weights, z = stack_weights(V @ maximum.mix, maximum.pairs), maximum.zscore
    if rule.kind != "covariance":
        main, pairs = decompose(weights)
        z = zscore_of(np.eye(L), pairs, sum_products(main, statistics), statistics, cost)
    return Solution(weights, maximum.multiplier, z, DIRECTLY, maximum.transition_weight)


# ------------------------------------------------------------------ other paths


def _solve_paths(tagger, sample: Sample, allowed: Constraints, cost) -> Solution:
    moments = _path_moments(tagger, sample, allowed)
    sides = [moments.b]
    if cost is not None:
        sides.append(moments.loss_covariance(cost))
    B = np.stack(sides, axis=1)
    if tagger.moments == "dp" or is_direct(tagger, len(B)):
        result = solve_dense(moments.matrix(), B, moments.ridge)
    else:
        result = conjugate_gradients(tagger, moments, B)
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
    ridge = 2 * resolve_l2(tagger, sample.n_labels)
    if tagger.moments == "dp":
        return DynamicPrograms(sample, ridge, allowed)
    if tagger.moments == "sampling":
        rng = as_generator(tagger.random_state)
        return SampledMoments(sample, ridge, allowed, int(tagger.n_paths), rng)
    return AllowedMoments(sample, ridge, allowed)


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


def free_zscore(sample: Sample, statistics: Statistics, cost, scores, pairs) -> float:
    """The z-score of the true labels, where every labeling is allowed, from scores of rows and any
    scores of pairs; the sums of the latter, which depend on one label only, belong to the rows."""
    L = sample.n_labels
    sums, pairs = decompose(ChainWeights(np.empty((0, L)), pairs))
    scores = scores + chain_columns(sample.offsets, L) @ sums
    products = score_products(scores, sample.y, sample.row_weights)
    return zscore_of(np.eye(L), pairs, products, statistics, cost)


def labeling_scores(emission, transition, offsets, y, allowed: Constraints, cost=None):
    """Return (score of y, mean, variance) for each sequence; ``cost`` is added to wrong labels."""
    start, end = (np.where(possible, 0, -np.inf) for possible in (allowed.start, allowed.end))
    truth = path_scores(emission, transition, start, end, offsets, y)
    raised = emission if cost is None else emission + cost[y]
    if is_free(allowed):
        return truth, *score_moments(raised, transition, offsets)
    return truth, *AllowedPaths(allowed, offsets).score_moments(raised, transition)

"""Training of a CRF: choice of the solver, its run, and the fitted attributes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn import get_config

from sklseq._lib.threads import Threads, one_blas_thread
from sklseq.data.sequences import TRANSITION, Sequences
from sklseq.estimators.crf.early_stopping import EarlyStopping
from sklseq.estimators.crf.growing import Growth, first_set, solve_growing
from sklseq.estimators.crf.monitor import Monitor
from sklseq.estimators.sources.partial_source import PartialSource, Unlabelled
from sklseq.estimators.sources.source import RowSource, Source
from sklseq.estimators.trained_weights import (
    fitted_attributes,
    previous_weights,
    trained_support,
)
from sklseq.estimators.validation import check_magnitude
from sklseq.inference.chain.linear_chain import repeatable_generator
from sklseq.objectives.likelihood.dual import DualLikelihood, dual_bytes
from sklseq.objectives.likelihood.label_curvature import LabelCurvature
from sklseq.objectives.likelihood.row_curvature import has_few_weights
from sklseq.objectives.likelihood.summary import Summary
from sklseq.objectives.scores.score_map import ScoreMap, Support
from sklseq.solvers import (
    BlockMetric,
    SolverResult,
    adagrad,
    exponentiated_gradient,
    l1_norm,
    lbfgs,
)

# Passes of "adagrad" before L-BFGS; a pass takes the time of one to two and a half evaluations. (To
# an excess of 1e-2, CoNLL-2002 needs 10 passes and 21 iterations, or 20 and 12.) Fewer if all
# features have blocks of second derivatives, with which L-BFGS is faster. (Protein chains and
# letters, four penalties each: training takes 0.77 to 1.0 times as long with 7 passes as with 10.)
PASSES, PASSES_BEFORE_BLOCKS = 10, 7
# Upper limit of the scales of transition, start and end weights after "adagrad", as a multiple of
# the smallest scale of all weights, unless these weights have a block of second derivatives. Their
# gradient is a sum over the rows of a sequence, so its squares, which AdaGrad sums, grow with the
# square of the length, but their curvature grows with the length. (Iterations of four fits to
# sequences of 1,000 rows with labels that last: 236; with 1.5 267, with 24 307, without limit 308.)
CHAIN_SCALE = 6
# AdaGrad's metric to the power POWER is the scale of weights in L-BFGS. (On thirds of three corpora
# with four penalties, 10 % fewer iterations than with its root; without it, the last iterations are
# slower.) Where labels last, it is POWER_OF_LASTING: gradients of a sequence are sums over runs of
# rows that are wrong together, so their squares grow with the square of the length.
POWER, POWER_OF_LASTING = 2 / 3, 1 / 3
# Smallest relative gap that "dual" can prove, as its marginals are float32.
SMALLEST_GAP = 1e-5
# "auto" allows the variables of "dual" this many times scikit-learn's working_memory.
DUAL_SHARE = 4
# Least number of rows for which "auto" takes "adagrad", and least l2 for "dual" from then on, as a
# multiple of the mean squared norm ‖x‖² of a row: steps of "dual" are long if the curvature of the
# penalty, 2 · l2, is at least that of a loss, which is at most ‖x‖² / 4. (CoNLL-2002: "dual" was
# faster at l2 = ‖x‖² / 9, slower at ‖x‖² / 27.)
MANY_ROWS, STRONG_L2 = 10_000, 1 / 8
# The same for "dual" with fewer rows, where a failed start costs more. (1,000 to 9,000 rows of five
# corpora, l1 = 0 or 0.1: 0.30 to 0.67 of the time of "lbfgs" at ‖x‖² / 4; at ‖x‖² / 8, 0.26 to
# 1.5.) Not for long sequences: on seven sets of documents and proteins "dual" gave up every time.
SOME_ROWS, STRONGER_L2 = 1_000, 1 / 4

ALIASES = {"eg": "dual", "owlqn": "lbfgs"}


class CRFProblem:
    """min_w f(w) + l1 · ‖w‖₁, where f is the sum of negative log-likelihood and L2 penalty.

    Parameters
    ----------
    tagger : CRFTagger
    source : Source
    summary : Summary
        Summary of the source.
    before : CRFProblem, optional
        Solved problem of the same source with other penalties: L-BFGS starts with its scale,
        second derivatives and pairs.
    start : ndarray, optional
        Starting point in the layout of ``before``; by default, the weights of the tagger if it has
        ``warm_start``, otherwise 0.

    Attributes
    ----------
    support : Support
        The trained weights.
    scores : ScoreMap
    tol, max_iter
        Parameters of the solver; for a part of the weights, not those of the tagger.
    scale : ndarray or None
        Scale of the weights in L-BFGS, found by AdaGrad.
    curvature : LabelCurvature or None
        Second derivatives of the likelihood where AdaGrad ended.
    pairs : list or None
        Changes of w and of the gradient in L-BFGS; None if they are not kept.
    growth : Growth or None
        The last set of weights, if not all were trained at once.
    n_before, n_iter : int
        Iterations that led to ``pairs`` before this problem, and with its own once it is solved.
    start : ndarray
        Starting point of the solver, which overwrites it.
    ran : list of str
        Names of the solvers that ran so far.
    f : object with ``value_and_gradient(w, gradient)``
        The smooth part; exists while :meth:`solve` runs. Has ``value(w)`` for local data.
    """

    def __init__(
        self, tagger: Any, source: Source, summary: Summary, before: CRFProblem | None = None,
        start: np.ndarray | None = None,
    ):  # fmt: skip
        self.tagger, self.source, self.classes = tagger, source, summary.classes
        self.l1, self.l2 = float(tagger.l1), float(tagger.l2)
        self.scale: np.ndarray | None = None if before is None else before.scale
        self.curvature: LabelCurvature | None = None if before is None else before.curvature
        self.pairs: list | None = None if before is None else before.pairs_for(self.l2)
        self.n_before = 0 if before is None or not self.pairs else before.n_iter
        self.growth: Growth | None = None if before is None else before.growth
        name, self.why = choose_solver(tagger, source)
        if self.scale is not None or self.growth is not None:
            name, self.why = "lbfgs", "it starts from weights and scales for other penalties"
        self.solver, self.ran = SOLVERS[name], []
        if tagger.verbose:
            print(f"[CRFTagger] solver {name!r}: {self.why}")
        self.tol, self.max_iter = float(tagger.tol), int(tagger.max_iter)
        self.summary = summary
        self.support = before.support if before else trained_weights(tagger, source, summary)
        self.scores = before.scores if before else self.map_of(self.support)
        self.start = self.scores.new_vector()
        if self.solver.warm_start and start is not None:
            self.start = start
        elif self.solver.warm_start and tagger.warm_start and hasattr(tagger, "coef_"):
            self.start = previous_weights(tagger, self.scores, self.classes, source.vectorizer)
        self.validation = EarlyStopping.of_source(tagger, source) if tagger.early_stopping else None
        self.report = Monitor(tagger, self.attributes, self.value, self.validation, source.error)

    def value(self, w: np.ndarray) -> float:
        """The objective, with all penalties."""
        return self.f.value(w) + l1_norm(w, self.l1)

    def value_and_gradient(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """The same; writes the gradient of the smooth part into ``gradient``."""
        return self.f.value_and_gradient(w, gradient) + l1_norm(w, self.l1)

    def pairs_for(self, l2: float) -> list | None:
        """``pairs`` adjusted to another l2, which changes the Hessian by a multiple of I."""
        if self.pairs is None:
            return None
        change = np.float32(2 * (l2 - self.l2))
        return [(s, y + change * s) for s, y in self.pairs]

    def forget_pairs(self) -> None:
        """Drop the pairs, which are of no use for another objective."""
        self.pairs = []
        if self.growth is not None:
            self.growth.part.pairs = []

    @property
    def seen(self) -> Support:
        """The trained weights of what occurs in training."""
        seen = self.support._replace(pairs=self.summary.support.pairs)
        if self.support.triples is None:
            return seen
        chosen, n_features = self.tagger.transition_features, self.summary.n_features
        return self.source.with_triples(seen, chosen, False, n_features)

    def map_of(self, support: Support) -> ScoreMap:
        """The map of a set of weights to scores, in the layout for the solver."""
        given = self.tagger, self.source, self.summary, self.solver.single_sequences
        return score_map(*given, support)

    def solve(self) -> SolverResult:
        with Threads(self.tagger.n_jobs) as self.threads:
            self.f = self.source.likelihood(self.scores, self.l2, self.threads)
            kept = first_set(self)
            result = self.solver.run(self) if kept is None else solve_growing(self, kept)
            self.n_iter = self.n_before + result.n_iter
            if self.validation is not None and self.validation.best is not None:
                best = self.validation.best
                result = result._replace(w=best, value=self.value(best))
        return result

    def go_on(self) -> SolverResult:
        """Run L-BFGS from the start, with scale, second derivatives and pairs."""
        return run_lbfgs(self)

    def attributes(self, w: np.ndarray) -> dict:
        """The attributes of a fitted tagger with weights w."""
        return fitted_attributes(self.scores, w, self.classes, self.source.vectorizer)


def check_source(tagger: Any, source: Source) -> None:
    """Raise a ValueError if the source does not support some parameter."""
    names = [ALIASES.get(tagger.solver, tagger.solver)]
    names += ["early_stopping"] * tagger.early_stopping
    names += ["gradient"] * (tagger.gradient not in ("auto", "forward-backward"))
    for name in names:
        if name in source.lacks:
            message = source.lacks[name]
            given = {"solver": tagger.solver, "gradient": tagger.gradient}
            raise ValueError(message.format(**given, cause=source.cause))


def has_transition_features(tagger: Any, source: Source) -> bool:
    """Whether some columns of the data have weights for pairs of labels."""
    marked = source.roles is not None and bool((source.roles & TRANSITION).any())
    return marked or tagger.transition_features is not None


def choose_solver(tagger: Any, source: Source, many_rows: int | None = None) -> tuple[str, str]:
    """Key of ``SOLVERS`` for the parameter ``solver`` and this data, and the reason.

    From ``many_rows`` on, by default ``MANY_ROWS``, "auto" takes "adagrad".
    """
    name = ALIASES.get(tagger.solver, tagger.solver)
    if name == "dual":
        check_magnitude(source.X, f"solver={tagger.solver!r}", 1e100)
    by_row = has_transition_features(tagger, source)
    if by_row and (parameter := Unlabelled.of(tagger).parameter):
        raise ValueError(
            f"{parameter} cannot be combined with transition features, given by X or "
            f"transition_features; leave these out, or {parameter}."
        )
    if name != "auto":
        return name, "as given"
    if not isinstance(source, RowSource):
        return "lbfgs", "the data are not in memory as rows"
    if isinstance(source, PartialSource):
        return "lbfgs", "some labels are unknown"
    if not source.X.is_sparse or source.X.n_rows < SOME_ROWS:
        return "lbfgs", f"rows are dense, or fewer than {SOME_ROWS}"
    if tagger.warm_start and hasattr(tagger, "coef_"):
        return "lbfgs", "it starts from the weights of the previous fit"
    takes_dual, why = _dual_choice(tagger, source, by_row)
    if takes_dual:
        return "dual", why
    if source.X.n_rows < (many_rows := many_rows or MANY_ROWS):
        return "lbfgs", f"rows are fewer than {many_rows}, and {why}"
    return "adagrad", why


def _dual_choice(tagger: Any, source: RowSource, by_row: bool) -> tuple[bool, str]:
    # Whether "auto" takes "dual", and the reason.
    all_pairs = tagger.all_possible_transitions
    if by_row and all_pairs:
        return False, "transition features have weights for all pairs of labels"
    if source.has_long_sequences:
        return False, "sequences are long"
    share = STRONG_L2 if source.X.n_rows >= MANY_ROWS else STRONGER_L2
    enough = share * _squared_norm(source.X)
    limit = f"{enough:.3g}, {share:g} of the mean squared norm of a row"
    if not tagger.l2 >= enough:
        return False, f"l2 is below {limit}"
    n_labels = len(source.classes)
    needed = dual_bytes(source.codes, source.X.offsets, n_labels, all_pairs, by_row)
    budget = DUAL_SHARE * get_config()["working_memory"] * 2.0**20
    if needed > budget:
        return False, f'"dual" would need {needed / 1e6:.3g} MB, of {budget / 1e6:.3g} allowed'
    return True, f"l2 is at least {limit}"


def _squared_norm(X: Sequences) -> float:
    # Mean squared norm of a sparse row.
    values = X.rows.data
    with np.errstate(over="ignore"):
        return float(np.einsum("i,i->", values, values, dtype=np.float64)) / X.n_rows


# ------------------------------------------------------------------------------------- weights


def trained_weights(tagger: Any, source: Source, summary: Summary) -> Support:
    """The weights that the parameters of a tagger ask for."""
    support = trained_support(tagger, summary.support, len(summary.classes), tagger.boundaries)
    if has_transition_features(tagger, source):
        chosen, all_pairs = tagger.transition_features, tagger.all_possible_transitions
        support = source.with_triples(support, chosen, all_pairs, summary.n_features)
    return support


def score_map(
    tagger: Any, source: Source, summary: Summary, single_sequences: bool = False,
    support: Support | None = None,
) -> ScoreMap:  # fmt: skip
    """The layout of w, and the map from w to scores; ``support``: by default all weights."""
    allowed = source.allowed(tagger.constraints, summary.classes)
    support = support or trained_weights(tagger, source, summary)
    X, laid_out = source.layout(summary, single_sequences)
    n_labels, user_dtype = len(summary.classes), summary.dtype
    with Threads(tagger.n_jobs) as threads:
        return ScoreMap(
            X, n_labels, support, allowed, laid_out.dtype, user_dtype, laid_out, threads=threads
        )


# ------------------------------------------------------------------------------------- solvers


# Part of `tol` that L-BFGS aims at where an estimate that no model checks would end the run: of 190
# generated fits with L1 and transition features, 14 ended up to 11 tol above the minimum.
UNCHECKED = 0.1


def is_unchecked(problem: CRFProblem) -> bool:
    """Whether no model checks the estimate of few weights with an L1 penalty."""
    scores = problem.scores
    return problem.l1 > 0 and scores.features is not None and has_few_weights(scores)


def descend(
    problem: CRFProblem, w=None, done: int = 0, scale: Any = 1.0,
    curvature: Callable[[], LabelCurvature | None] | None = None,
    known: tuple[float, np.ndarray] | None = None,
) -> SolverResult:  # fmt: skip
    """L-BFGS on all data, from ``w`` after ``done`` iterations of another solver.

    ``scale`` multiplies the scale for the units of the features. ``curvature`` returns second
    derivatives at w, without the penalty, with respect to some of the weights, or None. ``known``:
    as in :func:`lbfgs`.
    """
    if "lbfgs" not in problem.ran:
        problem.ran.append("lbfgs")
    units = problem.scores.scale(problem.l2)
    if units is not None or np.ndim(scale):
        scale = scale * (1.0 if units is None else units)

    def metric() -> BlockMetric | None:
        if curvature is None or (found := curvature()) is None:
            return None
        stack.enter_context(one_blas_thread())
        return _block_metric(found, scale, 2 * problem.l2)

    hessians = problem.source.row_curvature(problem.f)
    centred = None if hessians else problem.source.centred(problem.scores, problem.l2)
    directions = [problem.scores.constants] if problem.scores.constant_parts else []
    directions += [] if centred is None else [centred.direction]
    # On matrices of 200 rows, BLAS threads took up to fifteen times the processor time of one.
    with ExitStack() as stack:
        if hessians:
            stack.enter_context(one_blas_thread())
        return lbfgs(
            problem.f, problem.start if w is None else w, l1=problem.l1,
            tol=problem.tol * (UNCHECKED if is_unchecked(problem) else 1),
            max_iter=problem.max_iter - done, threads=problem.threads,
            callback=lambda k, value, w: problem.report("lbfgs", done + k, value, w),
            scale=scale if np.ndim(scale) else None, metric=curvature and metric,
            convexity=problem.source.convexity(problem.l2), pairs=problem.pairs,
            n_before=problem.n_before,
            other_directions=directions,
            diagonal=None if hessians else problem.source.diagonal(problem.f),
            second_derivatives=[
                lambda w, of=of: _block_metric(of(w), scale, 2 * problem.l2) for of in hessians
            ],
            known=known,
            usual_roots=problem.scores.usual_roots(problem.l2),
        )  # fmt: skip


def run_lbfgs(problem: CRFProblem) -> SolverResult:
    """L-BFGS from the start, with scale and second derivatives if the problem has them."""
    if problem.scale is None:
        return descend(problem)
    known = None if problem.curvature is None else lambda: problem.curvature
    return descend(problem, scale=problem.scale, curvature=known)


def _block_metric(curvature: LabelCurvature, scale: Any, ridge: float) -> BlockMetric:
    # The metric for weights times scale: second derivatives are divided by both scales.
    at, slots, sizes, blocks, least = curvature
    of_weights = np.asarray(scale[at] if np.ndim(scale) else np.full(len(at), scale), np.float64)
    inverse, penalty = np.zeros((2, *blocks.shape[:2]))
    inverse.reshape(-1)[slots] = sizes / of_weights
    penalty.reshape(-1)[slots] = ridge / np.square(of_weights)
    blocks = blocks * inverse[:, :, None]
    blocks *= inverse[:, None, :]
    diagonal = np.einsum("kii->ki", blocks)
    diagonal += least[:, None] + penalty
    return BlockMetric(at, slots, blocks)


def run_dual(problem: CRFProblem) -> SolverResult:
    """Exponentiated gradient ascent in the dual, then L-BFGS if the gap stays too large.

    If the first passes end far from the maximum, AdaGrad starts anew before L-BFGS.
    """
    tagger = problem.tagger
    problem.ran.append("dual")
    result = exponentiated_gradient(
        DualLikelihood(problem.f, problem.l1, problem.start),
        problem,
        tol=max(float(tagger.tol), SMALLEST_GAP),
        max_iter=int(tagger.max_iter),
        random_state=repeatable_generator(tagger.random_state),
        callback=partial(problem.report, "dual"),
    )
    if problem.report.is_stopped:
        return result
    if result.message == "far" and result.n_iter < problem.max_iter:
        problem.start[:] = 0  # the dual's weights are there
        return run_adagrad(problem, result.n_iter)
    imprecise = _rounding(problem, result.w) > SMALLEST_GAP * abs(result.value)
    if result.message != "gap" or imprecise:
        # Slow ascent can end at weights with a larger objective than zeros.
        zeros = problem.scores.new_vector()
        value = problem.value(zeros)
        if result.value > value or imprecise:
            result = result._replace(w=zeros, value=value, converged=False, history=[value])
    elif tagger.tol < SMALLEST_GAP:
        result = result._replace(converged=False)
    return _refine(problem, result)


def _rounding(problem: CRFProblem, w: np.ndarray) -> float:
    # Magnitude of the rounding error of the objective, from that of the largest score.
    units = problem.scores.scale(problem.l2, problem.scores.largest)
    return 0.0 if units is None else float(np.finfo(w.dtype).eps * np.abs(w * units).max())


def run_adagrad(problem: CRFProblem, done: int = 0) -> SolverResult:
    """Passes of AdaGrad over single sequences, after ``done`` iterations, then L-BFGS."""
    tagger = problem.tagger
    problem.ran.append("adagrad")
    stochastic = problem.source.stochastic(problem.f, problem.l1, problem.start)
    has_blocks = problem.source.has_curvature_of_all(problem.scores)
    result = adagrad(
        stochastic,
        problem,
        n_passes=min(problem.max_iter - done, PASSES_BEFORE_BLOCKS if has_blocks else PASSES),
        random_state=repeatable_generator(tagger.random_state),
        callback=lambda k, value, w: problem.report("adagrad", done + k, value, w),
    )
    result = result._replace(n_iter=done + result.n_iter)
    # Blocks neglect covariances between rows, which are large where labels last.
    is_lasting = problem.source.has_lasting_labels and not has_blocks
    problem.scale = stochastic.metric() ** (POWER_OF_LASTING if is_lasting else POWER)
    del stochastic
    if is_lasting or not problem.source.has_curvature_of_chain(problem.scores):
        chain = problem.scores.chain_part(problem.scale)
        np.minimum(chain, CHAIN_SCALE * problem.scale.min(), out=chain)

    def curvature() -> LabelCurvature | None:
        problem.curvature = problem.source.curvature(problem.f, result.w)
        return problem.curvature

    return _refine(problem, result, problem.scale, None if is_lasting else curvature)


def _refine(
    problem: CRFProblem, result: SolverResult, scale: Any = 1.0,
    curvature: Callable[[], LabelCurvature | None] | None = None,
) -> SolverResult:  # fmt: skip
    # Continue from an approximate result by L-BFGS until it is within tol.
    if result.converged or result.n_iter >= problem.max_iter or problem.report.is_stopped:
        return result
    known = None if result.gradient is None else (result.value, result.gradient)
    rest = descend(problem, result.w, result.n_iter, scale, curvature, known)
    return rest._replace(
        n_iter=result.n_iter + rest.n_iter, history=result.history + rest.history[1:]
    )


class Solver(NamedTuple):
    """Function that runs a solver, and its requirements.

    Attributes
    ----------
    run : callable(problem) -> SolverResult
    single_sequences : bool
        Whether weights are updated after each sequence. Such a solver needs CSR rows in float64,
        and a source that does not list it in ``lacks``.
    warm_start : bool
        Whether the solver can start from given weights.
    """

    run: Callable[[CRFProblem], SolverResult]
    single_sequences: bool
    warm_start: bool


SOLVERS = {
    "lbfgs": Solver(run_lbfgs, single_sequences=False, warm_start=True),
    "adagrad": Solver(run_adagrad, single_sequences=True, warm_start=True),
    "dual": Solver(run_dual, single_sequences=True, warm_start=False),
}

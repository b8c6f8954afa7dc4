"""Linear-chain conditional random fields."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn import get_config
from sklearn.exceptions import ConvergenceWarning

from sklseq._lib.callbacks import CallbackSupportMixin, iteration_hook, with_callbacks
from sklseq._lib.estimator import check_plain_parameters
from sklseq._lib.threads import Threads
from sklseq.data.labels import (
    check_constraints,
    encode_labels,
    find_codes,
    resolve_constraints,
    unique_labels,
)
from sklseq.data.row_blocks import BlockError, blocks_of, holds_rows, in_blocks
from sklseq.data.sequences import Sequences, read_labels, row_positions, weighted_only
from sklseq.data.types import ArrayLike, LabelsLike, MatrixLike, RandomState, SequencesLike
from sklseq.estimators.base import BaseTagger
from sklseq.estimators.crf.early_stopping import EarlyStopping, check_early_stopping
from sklseq.estimators.crf.partial_fit import PartialFitMixin
from sklseq.estimators.sparsify import SlimMixin, dense_weights
from sklseq.estimators.top_weights import WeightsMixin
from sklseq.estimators.validation import (
    ATTRIBUTES_WARNED,
    check_magnitude,
    check_n_jobs,
    check_not_empty,
    in_shards,
    read_sequences,
    training_weights,
    warn_one_label,
)
from sklseq.inference import nbest, sample
from sklseq.inference.chain.linear_chain import as_generator, repeatable_generator
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.likelihood.long import (
    GRADIENTS,
    LongData,
    LongLogLikelihood,
    Plan,
    memory_told,
    plan_gradient,
)
from sklseq.objectives.scores.score_map import (
    ScoreMap,
    Support,
    Weights,
    full_support,
    observed_support,
)

if TYPE_CHECKING:
    from sklseq.solvers import SolverResult

__all__ = ["CRFTagger", "TokenExplanation"]

SOLVERS = ("auto", "eg", "adagrad", "lbfgs", "owlqn")
# Passes of "adagrad" before L-BFGS (measured on CoNLL-2000 and -2002, l1 and l2 from 0 to 1: with 6
# or 20 instead, as many evaluations and passes together; with 36, more).
PASSES = 12
# "eg" proves no smaller gap: it keeps marginals in float32.
SMALLEST_GAP = 1e-5

# "auto" gives the dual variables of "eg" this many times scikit-learn's working_memory.
DUAL_SHARE = 4


class TokenExplanation(NamedTuple):
    """Why one row got its label; see :meth:`CRFTagger.explain`.

    Attributes
    ----------
    label : label
        The predicted one.
    probability : float
        Its marginal probability.
    contributions : list of (name, score)
        Terms of the best path's score that belong to this row, largest magnitude first. They add
        up, over all rows, to the score of the path.
    """

    label: Any
    probability: float
    contributions: list


class CRFTagger(CallbackSupportMixin, WeightsMixin, PartialFitMixin, SlimMixin, BaseTagger):
    """Linear-chain conditional random field.

    Trains by minimising

        -Σ_s weight_s · log p(y_s | x_s) + l1 · ‖w‖₁ + l2 · ‖w‖²₂,

        p(y | x) = exp(s(y)) / Z,   s(y) = start(y_1) + Σ_t x_t · coef(:, y_t)
                                           + Σ_t transition(y_{t-1}, y_t) + end(y_T),

    over all weights w = (coef, transition, start, end). ``l1`` and ``l2`` are the c1 and c2 of
    CRFsuite, on the same scale.

    Parameters
    ----------
    l1 : float, default=0.0
        Weight of the L1 penalty; above 0, many weights become exactly 0.
    l2 : float, default=1.0
        Weight of the squared L2 penalty.
    solver : {"auto", "eg", "adagrad", "lbfgs", "owlqn"}, default="auto"
        "eg": exponentiated gradient ascent in the dual, one sequence at a time, with a duality gap
        as certificate; ``l2 > 0`` only; several times faster on large data. "adagrad": 12 passes
        of stochastic gradient steps, one sequence at a time, from which one of the following goes
        on: in half the time that it needs alone, and less. "lbfgs": all data at once, ``l1 = 0``
        only. "owlqn": the same for ``l1 > 0``, on the weights that are not held at zero. "auto":
        for sparse data of 10,000 rows or more, unless ``warm_start`` gives weights to start from,
        "eg", or where ``l2`` is below 0.3, "adagrad"; else "owlqn" or "lbfgs". These also where
        "eg" would need more than four times ``sklearn.get_config()["working_memory"]`` MiB: it
        keeps 8 bytes for each row and label, and for each sequence and transition that has a
        weight.
    gradient : {"auto", "forward-backward", "checkpoint", "emp"}, default="auto"
        How gradients are computed; all give the same numbers.

        - "forward-backward" keeps a few numbers for each row and label of a sequence.
        - "checkpoint" keeps O(√T) rows of T and computes the others twice. Reads rows in any order:
          from memory, memory maps and ``.npy`` files.
        - "emp" reads rows once an evaluation, from any source, in memory that does not depend on T:
          block by block it goes forward, and back over those rows of a block whose counts its last
          label does not decide. Up to n_labels times as slow where labels hardly ever change.
        - "auto" is forward-backward where that fits into ``sklearn.get_config()
          ["working_memory"]`` MiB, else EMP, and checkpoint instead where rows can be read in any
          order and EMP would need more time or memory; ``verbose`` tells.
    all_possible_states : bool, default=False
        Whether every (feature, label) pair has a weight, or only those seen in training.
    all_possible_transitions : bool, default=False
        The same for transitions, starts and ends. A transition without a weight scores 0; only
        ``constraints`` forbid.
    constraints : {"iob2", "iobes"}, bool array-like (n_labels, n_labels) or None, default=None
        Transitions that may occur, in training and in every answer: rows from, columns to, in
        the order of the sorted labels. The schemes also constrain the first and last label.
    boundaries : bool, default=True
        Whether first and last labels have weights of their own. False gives exactly the model of
        CRFsuite.
    max_iter : int, default=500
        Iterations of the solver; passes over the data for "eg" and "adagrad". Those of a solver
        that goes on from another's weights are counted on.
    tol : float, default=1e-5
        Share of the objective by which it may exceed its minimum. "eg" stops when that is proved
        by the duality gap; below 1e-5, and where the proof comes slowly (weak penalties), "lbfgs"
        or "owlqn" goes on. These stop when it is proved by the gradient's norm, ‖v‖² / (4 · l2) at
        most ``tol`` of the objective, v being the subgradient of least norm; or when it is
        estimated: if ten iterations lower the objective by r times what the ten before did, at
        worst, and the last ten by d, 2 · d / (1 - r) is to be gained yet, at most. (On three
        corpora and 30 penalties, that was never less than what there was to gain.)
    warm_start : bool, default=False
        Whether ``fit`` starts from the weights of the previous one.
    early_stopping : bool, default=False
        Whether to set sequences aside, stop when their score no longer rises, and keep the
        weights with which it was highest.
    validation_fraction : float, default=0.1
        Share of the sequences set aside.
    n_iter_no_change : int, default=5
        Iterations without a higher score after which training stops.
    n_jobs : int or None, default=None
        Threads, in training and prediction. Sequences in blocks are worked on by one.
    verbose : int, default=0
        Above 0, the choice of the gradient is printed, and after each iteration the solver's name
        and the objective. "eg" and "adagrad" have to evaluate it for that.
    random_state : int, RandomState instance or None, default=None
        Seed of :meth:`sample`, and of the order in which sequences are visited (None: always the
        same).

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        Labels, sorted; of a model of CRFsuite, in its own order.
    coef_ : ndarray of shape (n_features, n_labels)
        State weights.
    transition_ : ndarray of shape (n_labels, n_labels)
        Weights of label i followed by j; -inf where forbidden.
    start_, end_ : ndarray of shape (n_labels,)
        Weights of the first and of the last label.
    n_iter_ : int
        Iterations done.
    objective_ : float
        Objective of the fitted weights. After :meth:`partial_fit`, Σ_s weight_s · -log p(y_s | x_s)
        of the sequences of the last call, each before its own step, without penalties.
    loss_curve_ : list of float
        Objective at the start and after each iteration; "eg" evaluates it where its gap may be
        small enough, "adagrad" before and after its passes. After :meth:`partial_fit`, of each
        call what ``objective_`` says.
    validation_scores_ : list of float
        Only with ``early_stopping``: score of the sequences set aside, after each iteration.
    n_seen_ : int
        Only after :meth:`partial_fit`: sequences seen so far.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when fitted on feature dicts or attributes.
    vectorizer_ : DictFeatures or None
        What turns dicts into rows.

    Raises
    ------
    ValueError
        On bad parameters or data, before any work: see the message.

    Notes
    -----
    An iteration costs O(nnz · L + n_rows · L²), nnz being the number of feature values. float32
    input trains float32 weights; the objective is summed in float64.

    References
    ----------
    J. Lafferty, A. McCallum, F. Pereira (2001), "Conditional random fields", ICML.

    C. Sutton, A. McCallum (2012), "An introduction to conditional random fields", Foundations and
    Trends in Machine Learning 4(4), §4.1, §5.1.

    Examples
    --------
    >>> from sklseq import CRFTagger
    >>> X = [[{"w": "the"}, {"w": "cat"}, {"w": "sleeps"}], [{"w": "a"}, {"w": "dog"}]]
    >>> y = [["D", "N", "V"], ["D", "N"]]
    >>> tagger = CRFTagger(l2=0.1).fit(X, y)
    >>> tagger.predict([[{"w": "the"}, {"w": "dog"}, {"w": "sleeps"}]])[0]
    array(['D', 'N', 'V'], dtype='<U1')
    >>> tagger.score(X, y)
    1.0
    """

    def __init__(
        self,
        *,
        l1: float = 0.0,
        l2: float = 1.0,
        solver: str = "auto",
        gradient: str = "auto",
        all_possible_states: bool = False,
        all_possible_transitions: bool = False,
        constraints: str | ArrayLike | None = None,
        boundaries: bool = True,
        max_iter: int = 500,
        tol: float = 1e-5,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: RandomState = None,
    ):
        self.l1 = l1
        self.l2 = l2
        self.solver = solver
        self.gradient = gradient
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.constraints = constraints
        self.boundaries = boundaries
        self.max_iter = max_iter
        self.tol = tol
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # ------------------------------------------------------------------ training

    @with_callbacks(max_subtasks=lambda tagger: tagger.max_iter)
    def fit(
        self, X: SequencesLike, y: LabelsLike | None = None, sample_weight: ArrayLike | None = None
    ) -> CRFTagger:
        """Train on labelled sequences.

        Parameters
        ----------
        X : list of sequences
            Lists of feature dicts (read as python-crfsuite reads them), lists of collections of
            attribute strings, 2-D arrays, CSR matrices, or ``Sequences``. A sequence too long for
            memory: :class:`RowBlocks`, a memory map, or a function that yields blocks of rows.
            Too many for memory: :class:`Shards`; on a Dask cluster, a bag of sequences or of
            pairs (sequence, labels), or a list of delayed (X, y).
        y : list of label sequences
            Or, for a long one, a function that yields blocks of labels; beside a Dask bag of
            sequences, a bag of labels. Shards and pairs have their own.
        sample_weight : array-like of shape (n_sequences,), optional
            0 leaves a sequence out, with labels, pairs and transitions that only it has.

        Returns
        -------
        CRFTagger
            The estimator itself.
        """
        self._check_parameters()
        if in_shards(X):
            from sklseq.estimators.shards.fit_shards import fit_shards

            return fit_shards(self, X, y, sample_weight)
        if in_blocks(X) or (self.gradient in ("checkpoint", "emp") and holds_rows(X)):
            weights = training_weights(sample_weight, len(X))
            data = LongData.read(blocks_of(X), y, weights, self._plan)
            return self._fit_long(data)
        rows, vectorizer = read_sequences(X, fit=True)
        check_not_empty(rows)
        labels = read_labels(y, rows)
        weights = training_weights(sample_weight, len(rows))
        rows, labels, weights = weighted_only(rows, labels, weights)
        check_not_empty(rows)
        classes = unique_labels(labels)
        plan = self._plan(rows.lengths.max(), len(classes), packed=True, random_access=True)
        if plan.passes is not None:
            data = LongData.packed(rows, labels, weights, plan)
            return self._fit_long(data, vectorizer)
        codes = encode_labels(labels, classes, rows.offsets)
        del labels  # strings take more room than anything else that is small
        if self.solver == "eg":
            check_magnitude(rows, "solver='eg'", 1e100)
        solve = self._choose_solver(rows, codes, len(classes))
        scores = self._score_map(rows, codes, classes, solve != self._descend)
        start = scores.new_vector()
        if solve != self._ascend:
            start = self._starting_point(scores, classes, vectorizer)
        validation = None
        if self.early_stopping:
            validation = EarlyStopping(self, rows, codes, classes, weights)
            weights = validation.weights

        def likelihood(threads: Threads) -> LogLikelihood:
            return LogLikelihood(scores, codes, rows.offsets, weights, self.l2, threads)

        told = (classes, vectorizer)
        with memory_told(plan):
            result = self._solve(solve, scores, likelihood, start, told, validation)
        self._finish(scores, result, classes, vectorizer)
        if validation is not None:
            self.validation_scores_ = validation.scores
        return self

    def _fit_long(self, data: LongData, vectorizer=None) -> CRFTagger:
        # The same steps on sequences in blocks: see objectives/likelihood/long.py.
        if self.solver in ("eg", "adagrad"):
            raise ValueError(
                f"solver={self.solver!r} visits single sequences in memory; with sequences in "
                "blocks, or another gradient than 'forward-backward', use solver='lbfgs' or 'auto'."
            )
        if self.early_stopping:
            raise ValueError(
                "early_stopping=True sets single sequences aside, in memory; with sequences in "
                "blocks, or another gradient than 'forward-backward', use early_stopping=False."
            )
        from sklseq.estimators.progress import Progress

        survey, classes = data.survey, data.survey.classes
        allowed = resolve_constraints(self.constraints, classes)
        survey.check_constraints(allowed)
        scores = self._long_score_map(survey, allowed)
        start = self._starting_point(scores, classes, vectorizer)

        def likelihood(threads: Threads) -> LongLogLikelihood:
            return LongLogLikelihood(scores, data, self.l2)

        def finish(result: SolverResult) -> CRFTagger:
            return self._finish(scores, result, classes, vectorizer)

        told, progress = (classes, vectorizer), Progress(self)
        with memory_told(data.plan), progress.kept_on(BlockError, finish):
            result = self._solve(progress.descend, scores, likelihood, start, told)
        return self._finish(scores, result, classes, vectorizer)

    def _plan(self, n_rows: int, n_labels: int, **source: bool) -> Plan:
        budget = get_config()["working_memory"] * 2.0**20
        plan = plan_gradient(self.gradient, int(n_rows), n_labels, budget=budget, **source)
        if self.verbose:
            print(f"[CRFTagger] gradient {plan.gradient!r}: {plan.why}")
        return plan

    def _finish(self, scores: ScoreMap, result: SolverResult, classes, vectorizer) -> CRFTagger:
        scores.design.release()  # so that its memory can hold the weights
        self._warn(result, classes)
        # In one step: whoever interrupts finds the estimator as it was, or fitted.
        trained = {"n_iter_": result.n_iter, "objective_": result.value}
        trained["loss_curve_"] = result.history
        vars(self).update(self._attributes(scores, result.w, classes, vectorizer) | trained)
        stale = [
            "validation_scores_",
            "n_seen_",
            "_squares",
            ATTRIBUTES_WARNED,
        ]  # of another way of training
        for name in stale + ["feature_names_in_"] * (vectorizer is None):
            self.__dict__.pop(name, None)
        return self

    def _check_parameters(self) -> None:
        check_plain_parameters(self)
        for name in ("l1", "l2", "tol"):
            value = getattr(self, name)
            if not isinstance(value, numbers.Real) or not 0 <= value < np.inf:
                raise ValueError(f"{name} must be a finite number of at least 0; got {value!r}.")
        if not isinstance(self.max_iter, numbers.Integral) or self.max_iter < 1:
            raise ValueError(f"max_iter must be an integer of at least 1; got {self.max_iter!r}.")
        for name, allowed in (
            ("solver", SOLVERS),
            ("gradient", GRADIENTS),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} must be one of {allowed}; got {getattr(self, name)!r}.")
        check_n_jobs(self.n_jobs)
        check_early_stopping(self)
        if self.solver == "lbfgs" and self.l1 > 0:
            raise ValueError(
                f"solver='lbfgs' cannot minimise an L1 penalty (l1={self.l1}); "
                "use solver='owlqn' or 'auto', or l1=0."
            )
        if self.solver == "eg" and self.l2 == 0:
            raise ValueError("solver='eg' needs l2 > 0; got 0. Raise l2, or use solver='lbfgs'.")
        if self.solver == "eg" and self.warm_start:
            raise ValueError(
                "solver='eg' cannot start from given weights (warm_start=True); use "
                "solver='adagrad', 'lbfgs' or 'owlqn', or warm_start=False."
            )

    def _choose_solver(
        self, X: Sequences, codes: np.ndarray, n_labels: int
    ) -> Callable[..., SolverResult]:
        chosen = {"eg": self._ascend, "adagrad": self._step}
        if self.solver != "auto":
            return chosen.get(self.solver, self._descend)
        if (self.warm_start and hasattr(self, "coef_")) or not X.is_sparse or X.n_rows < 10_000:
            return self._descend
        if self.l2 < 0.3:
            return self._step
        from sklseq.objectives.likelihood.dual import dual_bytes

        needed = dual_bytes(codes, X.offsets, n_labels, self.all_possible_transitions)
        budget = DUAL_SHARE * get_config()["working_memory"] * 2.0**20
        return self._ascend if needed <= budget else self._descend

    def _score_map(
        self, X, codes: np.ndarray, classes: np.ndarray, visits: bool = False
    ) -> ScoreMap:
        allowed = resolve_constraints(self.constraints, classes)
        check_constraints(codes, X.offsets, *allowed, classes)
        seen = None
        if not (self.all_possible_states and self.all_possible_transitions):
            seen = observed_support(X, codes, len(classes))
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        support = self._support(seen, len(classes))
        if not visits:
            return ScoreMap(X, len(classes), support, allowed, dtype)
        X = Sequences(sparse.csr_matrix(X.rows), X.offsets)  # visited row by row, in float64
        return ScoreMap(X, len(classes), support, allowed, np.dtype(np.float64), dtype)

    def _long_score_map(self, survey, allowed) -> ScoreMap:
        L = len(survey.classes)
        support = self._support(survey.support, L)
        scores = ScoreMap(survey.layout(), L, support, allowed, survey.dtype)
        scores.largest, scores.n_rows = survey.largest, int(survey.lengths.sum())
        return scores

    def _support(self, seen: Support | None, n_labels: int) -> Support:
        # Which weights there are, given what was seen.
        support = full_support(n_labels)
        pairs = support.pairs if self.all_possible_states else seen.pairs
        if not self.all_possible_transitions:
            support = seen
        ends = (support.start & self.boundaries, support.end & self.boundaries)
        return Support(pairs, support.transition, *ends)

    def _starting_point(self, scores: ScoreMap, classes: np.ndarray, vectorizer) -> np.ndarray:
        if not self.warm_start or not hasattr(self, "coef_"):
            return scores.new_vector()
        before = None if self.vectorizer_ is None else self.vectorizer_.vocabulary_
        if before != (None if vectorizer is None else vectorizer.vocabulary_):
            raise ValueError(
                "warm_start=True needs the attributes of the previous fit, in the same order of "
                "first occurrence; vectorise X once with DictFeatures, or use warm_start=False."
            )
        order = np.argsort(self.classes_)  # a model of CRFsuite has its own
        same = np.array_equal(self.classes_[order], classes)
        if not same or self.coef_.shape[0] != scores.n_features:
            raise ValueError(
                f"warm_start=True needs the labels and features of the previous fit "
                f"({len(self.classes_)} labels, {self.coef_.shape[0]} features); got "
                f"{len(classes)} labels and {scores.n_features} features. Use warm_start=False."
            )
        before = (dense_weights(self.coef_)[:, order], self.transition_[np.ix_(order, order)])
        return scores.pack(Weights(*before, self.start_[order], self.end_[order]))

    def _solve(
        self, solve, scores, likelihood, start, told, validation: EarlyStopping | None = None
    ) -> SolverResult:
        classes, vectorizer = told

        def fitted(w: np.ndarray) -> dict:
            return self._attributes(scores, w, classes, vectorizer)

        after_iteration = iteration_hook(self, fitted)

        def report(solver: str, k: int, value: float | None, w: np.ndarray) -> bool:
            if self.verbose:
                if value is None:  # the solver had no need of it
                    value = objective.value(w) + self.l1 * float(np.abs(w).sum())
                print(f"[CRFTagger] iteration {k} ({solver}): objective {value:.6f}")
            stops = validation is not None and validation.stops(w, fitted(w))
            return after_iteration(k, value, w) or stops

        with Threads(self.n_jobs) as threads:
            objective = likelihood(threads)
            result = solve(objective, start, threads, report)
            if validation is not None and validation.best is not None:
                result = self._best(objective, result, validation.best)
        return result

    def _best(self, objective, result: SolverResult, w: np.ndarray) -> SolverResult:
        # The weights that labelled best, and their objective.
        value = objective.value_and_gradient(w, np.zeros_like(w))
        return result._replace(w=w, value=value + self.l1 * float(np.abs(w).sum()))

    def _descend(
        self, likelihood: LogLikelihood, start, threads, report, done: int = 0, scale=1.0
    ) -> SolverResult:
        # ``scale``: what weights are to be multiplied by beside what the features' units ask for.
        from sklseq.solvers import lbfgs  # a model that only predicts does not load solvers

        solver, units = "owlqn" if self.l1 else "lbfgs", likelihood.scores.scale(float(self.l2))
        if units is not None or np.ndim(scale):
            scale = scale * (1.0 if units is None else units)
        return lbfgs(
            likelihood, start, l1=float(self.l1), tol=float(self.tol),
            max_iter=int(self.max_iter) - done, threads=threads,
            callback=lambda k, value, w: report(solver, done + k, value, w),
            scale=scale if np.ndim(scale) else None, convexity=2 * float(self.l2),
        )  # fmt: skip

    def _ascend(self, likelihood: LogLikelihood, start, threads, report) -> SolverResult:
        from sklseq.objectives.likelihood.dual import DualLikelihood
        from sklseq.solvers import exponentiated_gradient

        l1 = float(self.l1)
        result = exponentiated_gradient(
            DualLikelihood(likelihood, l1, start), likelihood, l1=l1,
            tol=max(float(self.tol), SMALLEST_GAP), max_iter=int(self.max_iter),
            random_state=repeatable_generator(self.random_state), callback=partial(report, "eg"),
        )  # fmt: skip
        if result.message != "gap":  # slow ascent can leave weights that are worse than none
            zeros = likelihood.scores.new_vector()
            value = likelihood.value(zeros)
            if result.value > value:
                history = [*result.history, value]
                result = result._replace(w=zeros, value=value, history=history)
        elif self.tol < SMALLEST_GAP:
            result = result._replace(converged=False)
        return self._go_on(likelihood, result, threads, report)

    def _step(self, likelihood, start, threads, report, visits=None) -> SolverResult:
        from sklseq.objectives.likelihood.stochastic import StochasticLikelihood
        from sklseq.solvers import adagrad

        l1 = float(self.l1)
        visits = (visits or StochasticLikelihood)(likelihood, l1, start)
        result = adagrad(
            visits, likelihood, l1=l1, n_passes=min(int(self.max_iter), PASSES),
            random_state=repeatable_generator(self.random_state),
            callback=partial(report, "adagrad"),
        )  # fmt: skip
        # AdaGrad's metric is L-BFGS's first guess of the Hessian's diagonal; its square root where
        # all weights move (on CoNLL-2000 and -2002, 10 to 20 % slower the other way round).
        scale = visits.metric() ** (1 / 2 if l1 else 1 / 4)
        del visits
        return self._go_on(likelihood, result, threads, report, scale)

    def _go_on(self, likelihood, result: SolverResult, threads, report, scale=1.0) -> SolverResult:
        # What visits to single sequences give, made as exact as tol asks for.
        if result.converged or result.n_iter >= self.max_iter:
            return result
        rest = self._descend(likelihood, result.w, threads, report, result.n_iter, scale)
        return rest._replace(
            n_iter=result.n_iter + rest.n_iter, history=result.history + rest.history[1:]
        )

    def _attributes(self, scores: ScoreMap, w, classes, vectorizer) -> dict:
        # What makes a fitted tagger of weights.
        weights = scores.unpack(w)
        attributes = {
            "classes_": classes,
            "coef_": weights.coef,
            "transition_": weights.transition,
            "start_": weights.start,
            "end_": weights.end,
            "n_features_in_": scores.n_features,
            "vectorizer_": vectorizer,
        }
        if vectorizer is not None:
            attributes["feature_names_in_"] = vectorizer.get_feature_names_out()
        return attributes

    def _warn(self, result: SolverResult, classes: np.ndarray) -> None:
        warn_one_label(classes)
        if not result.converged:
            warnings.warn(
                f"CRFTagger did not converge in max_iter={self.max_iter} iterations: nothing shows "
                f"that the objective, {result.value:.6g}, is within a share tol={self.tol} of its "
                "minimum; raise max_iter, tol or l2, or scale features of very different or large "
                "magnitude.",
                ConvergenceWarning,
                stacklevel=4,
            )

    # ------------------------------------------------------------------ probabilities

    def predict_proba(self, X: SequencesLike) -> list[np.ndarray]:
        """Marginal probability of each label at each row.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of ndarray of shape (n_steps, n_labels)
        """
        X = self._read(X, finite=False)
        marginals = np.empty((X.n_rows, len(self.classes_)), dtype=self.coef_.dtype)
        of_sequences = [None] * len(X)
        self._marginals(X, marginals, of_sequences)
        return of_sequences

    def predict_log_proba_sequence(self, X: SequencesLike, y: LabelsLike) -> np.ndarray:
        """log p(y_s | x_s) of whole label sequences.

        -inf where ``constraints`` forbid one, or a label was not in training.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences

        Returns
        -------
        ndarray of shape (n_sequences,)
        """
        X = self._read(X)
        codes = find_codes(read_labels(y, X), self.classes_)
        emission, transition, start, end, offsets = self.potentials(X)
        unseen, codes = codes < 0, np.maximum(codes, 0)
        score = emission[np.arange(X.n_rows), codes].astype(np.float64)
        first, last, after = row_positions(offsets)
        score[first] += start[codes[first]]
        score[last] += end[codes[last]]
        score[after] += transition[codes[after - 1], codes[after]]
        score[unseen] = -np.inf
        total = np.bincount(np.repeat(np.arange(len(X)), X.lengths), score, minlength=len(X))
        return total - self._marginals(X)

    def predict_nbest(self, X: SequencesLike, n: int = 10) -> list:
        """The ``n`` best label paths of each sequence, with their log-probabilities.

        Parameters
        ----------
        X : list of sequences
        n : int, default=10

        Returns
        -------
        list of (labels, log_proba)
            ``labels`` of shape (k, n_steps) and ``log_proba`` of shape (k,), best first; k is n,
            or the number of allowed paths if that is smaller.
        """
        X = self._read(X)
        emission, transition, start, end, offsets = self.potentials(X)
        paths = nbest(emission, transition, offsets, n, start=start, end=end)
        log_z = self._marginals(X)
        return [(self.classes_[codes], s - z) for (codes, s), z in zip(paths, log_z)]

    def sample(
        self, X: SequencesLike, n_samples: int = 1, random_state: RandomState = None
    ) -> list[np.ndarray]:
        """Label paths drawn from p(y | x).

        Parameters
        ----------
        X : list of sequences
        n_samples : int, default=1
            Paths a sequence.
        random_state : int, RandomState, Generator or None
            None: that of the estimator.

        Returns
        -------
        list of ndarray of shape (n_samples, n_steps)
        """
        emission, transition, start, end, offsets = self.potentials(X)
        rng = as_generator(self.random_state if random_state is None else random_state)
        codes = sample(
            emission, transition, offsets, n_samples, start=start, end=end, random_state=rng
        )
        return [self.classes_[codes[:, a:b]] for a, b in zip(offsets[:-1], offsets[1:])]

    # ------------------------------------------------------------------ inspection

    def explain(
        self, x: MatrixLike, *, feature_names: Iterable[str] | None = None
    ) -> list[TokenExplanation]:
        """Why each row of one sequence gets its label.

        Parameters
        ----------
        x : one sequence, in any form that :meth:`predict` takes in a list
        feature_names : array-like of str, optional

        Returns
        -------
        list of TokenExplanation
            One a row: label, its probability, and the terms of the path's score.
        """
        names, X = self._names(feature_names), self._read([x])
        codes = encode_labels(self.predict(X)[0], self.classes_)
        proba = self.predict_proba(X)[0]
        rows = []
        for t, j in enumerate(codes):
            terms = self._emission_terms(X, t, j, names) + self._chain_terms(codes, t)
            terms.sort(key=lambda term: -abs(term[1]))
            rows.append(TokenExplanation(self.classes_[j], float(proba[t, j]), terms))
        return rows

    def _emission_terms(self, X, t: int, j: int, names: np.ndarray) -> list[tuple[str, float]]:
        if X.is_sparse:
            entries = slice(X.rows.indptr[t], X.rows.indptr[t + 1])
            columns, values = X.rows.indices[entries], X.rows.data[entries]
        else:
            columns, values = np.flatnonzero(X.rows[t]), X.rows[t][np.flatnonzero(X.rows[t])]
        scores = values * dense_weights(self.coef_[columns])[:, j]
        return [(str(names[c]), float(s)) for c, s in zip(columns, scores) if s != 0]

    def _chain_terms(self, codes: np.ndarray, t: int) -> list[tuple[str, float]]:
        j, terms = codes[t], []
        if t == 0:
            terms.append((f"start → {self.classes_[j]}", float(self.start_[j])))
        else:
            i = codes[t - 1]
            name = f"{self.classes_[i]} → {self.classes_[j]}"
            terms.append((name, float(self.transition_[i, j])))
        if t == len(codes) - 1:
            terms.append((f"{self.classes_[j]} → end", float(self.end_[j])))
        return [term for term in terms if term[1] != 0]

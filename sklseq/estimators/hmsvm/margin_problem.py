"""Training of a hidden Markov SVM: its problem, solvers, and the fitted attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular

from sklseq._lib.callbacks import iteration_hook
from sklseq._lib.threads import Threads
from sklseq.data.constraints import Constraints
from sklseq.data.sequences import TRANSITION, Sequences, canonical
from sklseq.estimators.hmsvm.solver_choice import Outlook, choose_solver, may_change
from sklseq.estimators.kernel_functions import (
    KernelRows,
    fits,
    gram_factor,
    gram_matrix,
    row_kernel,
)
from sklseq.estimators.label_losses import resolve_loss
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.validation import check_magnitude, read_class_weight
from sklseq.inference.chain.linear_chain import as_generator
from sklseq.objectives.margin.hinge import (
    Margin,
    PathLoss,
    StructuredHinge,
    linear_rows,
)
from sklseq.objectives.margin.pieces import SupportPaths
from sklseq.objectives.margin.smoothed import SmoothedHinge
from sklseq.objectives.scores.score_map import (
    ScoreMap,
    Support,
    TriangularScoreMap,
    full_support,
    padded_view,
    state_rows,
)
from sklseq.objectives.scores.transition_features import TransitionFeatures
from sklseq.solvers import SolverResult, bcfw, perceptron, smoothing, working_set

PASSES = {"bcfw": 1000, "working_set": 1000, "smoothing": 1000, "perceptron": 10}
WORTH_GRAM = 1e8  # entries of the Gram matrix, times labels, from which threads train by "bcfw"
WITHOUT_DUAL = ("perceptron", "smoothing")  # solvers without α of labelings
# Effort of "bcfw" on each sequence, and on all sequences between two passes. With the linear kernel
# most time goes into reading the scores of a sequence: several searches pay, and so do further
# passes over known paths, which are wrong in few rows. With other kernels most time goes into the
# update of the scores of all rows, so more steps are made for each update. Pieces of sequences have
# few paths, so passes over these pay more.
EFFORT = {
    "linear": {"n_steps": 3, "n_searches": 3, "n_known_passes": 12},
    "pieces": {"n_steps": 3, "n_searches": 2, "n_known_passes": 16},
    "other": {"n_steps": 20, "n_searches": 1, "n_known_passes": 0},
}


class MarginProblem:
    """The structured hinge loss of one training set, with its solver and the fitted attributes.

    Parameters
    ----------
    tagger : HMSVMTagger
    source : RowSource
    gram : ndarray, optional
        Checked Gram matrix of all rows; by default it is computed if the kernel needs it.
    threads : Threads, optional
        Threads for training; by default one.
    triples : ndarray, optional
        Weights of transition features of earlier batches, in the form of ``Support``.

    Attributes
    ----------
    objective : StructuredHinge
        Problem of all sequences, including those of weight 0, so that ``support_`` counts all rows.
    """

    def __init__(
        self,
        tagger: Any,
        source: RowSource,
        gram: np.ndarray | None = None,
        threads: Threads | None = None,
        triples: np.ndarray | None = None,
    ):
        self.tagger, self.source, self.gram = tagger, source, gram
        check_kernel_of_roles(tagger, source.roles)
        self.rows, weights = source.given
        check_magnitude(self.rows, "HMSVMTagger")
        allowed = source.allowed(tagger.constraints, source.classes)
        self.solver = choose_solver(tagger, source.X, len(source.classes))
        loss = path_loss(tagger, source)
        if self.solver == "perceptron":
            loss = PathLoss(np.zeros_like(loss.cost), 0.0)
        self.kernel = row_kernel(tagger, source.X.rows)
        self.n_passes, self.threads = 0, threads or Threads(1)
        self.support = self._support(triples)
        self.smoothed = lambda: self._smoothed(loss, allowed)
        if self.solver == "smoothing":
            self.objective = self.smoothed()
            return
        codes = np.zeros(self.rows.n_rows, dtype=source.codes.dtype)
        codes[np.repeat(weights > 0, self.rows.lengths)] = source.codes
        self.objective = self._objective(codes, weights, loss, allowed)
        if tagger.warm_start and hasattr(tagger, "support_index_"):
            self.objective.start_from(self._previous_paths(), allowed)

    @property
    def averaging(self) -> int:
        """The code of ``StructuredHinge`` for the average of iterates."""
        if self.solver == "perceptron":
            return int(self.tagger.average in ("auto", True))
        return 2 if self.tagger.average is True else 0

    def _support(self, before: np.ndarray | None) -> Support:
        # All weights; for transition features those of label pairs seen before or in this batch.
        tagger, source, L = self.tagger, self.source, len(self.source.classes)
        ends = np.full(L, bool(tagger.boundaries))
        support = full_support(L)._replace(start=ends, end=ends)
        support = source.with_triples(
            support, tagger.transition_features, all_pairs=False, n_features=source.X.shape[1]
        )
        if before is not None and support.triples is not None:
            support = support._replace(triples=np.union1d(before, support.triples))
        return support

    def _objective(self, codes, weights, loss: PathLoss, allowed) -> StructuredHinge:
        tagger, X = self.tagger, self.rows
        C = np.where(weights > 0, 1.0, 0.0)
        unit = 1.0 if self.solver == "perceptron" else tagger.C
        C[weights > 0] *= unit * weights[weights > 0]
        L = len(self.source.classes)
        if tagger.kernel == "linear":
            source = linear_rows(state_rows(X, self.support.pairs, L).rows)
        else:
            source = self._kernels()
        scale = float(tagger.transition_scale)
        slack = "hard" if np.isinf(float(tagger.C)) else tagger.slack
        margin = Margin(loss, slack, allowed, scale, scale * bool(tagger.boundaries))
        n_own = 0 if self.solver == "perceptron" else int(tagger.cache_size * 1e6 / 8)
        features, triples = None, self.support.triples
        if triples is not None:
            features = TransitionFeatures(X, triples, L, np.float64)
        data = source, X.offsets, codes, C
        threads = self.threads if self.solver == "bcfw" and _is_worth_threads(source, L) else None
        return StructuredHinge(*data, margin, self.averaging, n_own, features, threads)

    def _gram_matrix(self) -> np.ndarray:
        if self.gram is not None:
            return self.gram
        return gram_matrix(self.kernel, self.rows.rows, float(self.tagger.cache_size), self.threads)

    def _kernels(self) -> np.ndarray | KernelRows:
        # The Gram matrix, or its rows on demand.
        n, megabytes = self.rows.n_rows, float(self.tagger.cache_size)
        if self.gram is not None or fits(n, megabytes):
            return self._gram_matrix()
        return KernelRows(self.kernel, self.rows.rows, megabytes)

    def _kernel_rows(self) -> Sequences:
        # Rows whose inner products are the kernels, for sequences of positive weight.
        gram, used = self._gram_matrix(), self._used_rows()
        self.factor = gram_factor(gram if len(used) == len(gram) else gram[np.ix_(used, used)])
        return self.source.X.with_rows(self.factor)

    def _used_rows(self) -> np.ndarray:
        rows, weights = self.source.given
        return np.flatnonzero(np.repeat(weights > 0, rows.lengths))

    def _support_rows(self) -> tuple[np.ndarray, np.ndarray]:
        if self.solver != "smoothing":
            return self.objective.support_rows()
        weights = self.objective.as_weights().coef
        coef = solve_triangular(self.factor, weights, trans="T", lower=True)
        used = (coef != 0).any(axis=1)
        return self._used_rows()[used], coef[used]

    def _smoothed(self, loss: PathLoss, allowed: Constraints) -> SmoothedHinge:
        tagger, source, L = self.tagger, self.source, len(self.source.classes)
        is_linear = tagger.kernel == "linear"
        X, kind = (source.X, ScoreMap) if is_linear else (self._kernel_rows(), TriangularScoreMap)
        scores = kind(X, L, self.support, allowed, np.dtype(np.float64))
        return SmoothedHinge(
            scores, source.codes, X.offsets, source.weights, float(tagger.C), loss.cost,
            float(tagger.transition_scale), tagger.slack == "l2", self.threads,
        )  # fmt: skip

    def _previous_paths(self) -> SupportPaths:
        # The wrong labelings of the tagger's last fit, which must have been to sequences as long.
        tagger, offsets, n = self.tagger, self.rows.offsets, len(self.rows)
        number, before = tagger.support_index_, np.diff(tagger.truth_offsets_)
        known = number.max(initial=0) < n and (before[number] == np.diff(offsets)[number]).all()
        if not known or not np.array_equal(tagger.classes_, self.source.classes):
            raise ValueError(
                "warm_start=True needs the sequences and labels of the previous fit, whose dual "
                f"variables start the next; got {n} sequences of other lengths, or labels other "
                f"than {tagger.classes_.tolist()[:8]}. Use warm_start=False."
            )
        paths = kept_paths(tagger)
        first = paths.first - tagger.truth_offsets_[number] + offsets[number]
        return paths._replace(first=first)

    def reached(self) -> SolverResult:
        """Return the result of the passes so far, after an interrupt."""
        self.objective.settle()
        primal, dual = self.objective.last_certificate()
        history = [(self.n_passes, primal, dual, primal - dual)]
        return SolverResult(self.objective, primal, self.n_passes, False, history, "interrupted")

    def solve(self) -> SolverResult:
        """Run the solver, and average the iterates if requested."""
        report = _Report(self, iteration_hook(self.tagger, self._attributes_so_far))
        result = self._run(report)
        if report.gives_up and not result.converged:
            self.solver, self.objective = "smoothing", self.smoothed()
            return self.solve()
        if self.solver == "smoothing":
            return result
        if len(self.objective.inseparable):
            raise ValueError(_inseparable(self.objective.inseparable))
        self.objective.settle()
        return result

    def _run(self, report: _Report) -> SolverResult:
        tagger, objective, solver, tol = self.tagger, self.objective, self.solver, self.tagger.tol
        options = {"callback": report, "max_iter": int(tagger.max_iter or PASSES[solver])}
        if solver == "smoothing":
            return smoothing(objective, tol=float(tol), threads=self.threads, **options)
        options["rng"] = as_generator(tagger.random_state)
        if solver == "perceptron":
            result, self.mistakes = perceptron(objective, **options)
            return result
        if solver == "working_set":
            return working_set(objective, tol=float(tol), **options)
        linear = "pieces" if objective.can_divide else "linear"
        effort = EFFORT[linear if tagger.kernel == "linear" else "other"]
        return bcfw(objective, tol=float(tol), **effort, **options)

    def _attributes_so_far(self, objective: StructuredHinge) -> dict:
        if self.solver == "smoothing":
            return self.attributes()
        with objective.as_settled():
            return self.attributes()

    def attributes(self) -> dict:
        """The attributes of a fitted tagger with the present weights."""
        tagger, X, vectorizer = self.tagger, self.rows, self.source.vectorizer
        dtype = np.float32 if X.dtype == np.float32 else np.float64
        is_smoothed = self.solver == "smoothing"
        weights = self.objective.as_weights() if is_smoothed else self.objective.weights()
        triples = self.objective.triples()
        attributes = {
            "classes_": self.source.classes,
            "transition_": weights.transition.astype(dtype),
            "start_": weights.start.astype(dtype),
            "end_": weights.end.astype(dtype),
            "transition_coef_": None if triples is None else triples.astype(dtype),
            "_roles": self.support.roles,
            "n_features_in_": X.shape[1],
            "vectorizer_": vectorizer,
            "_fitted_parameters": {
                name: getattr(tagger, name) for name in ("kernel", "degree", "coef0")
            },
        }
        if vectorizer is not None:
            attributes["feature_names_in_"] = vectorizer.get_feature_names_out()
        if tagger.kernel == "linear":
            attributes["coef_"] = padded_view(weights.coef.astype(dtype, copy=False))
        if tagger.kernel in ("poly", "rbf"):
            attributes["gamma_"] = self.kernel.gamma
        if tagger.kernel != "linear" or not (self.averaging or self.solver in WITHOUT_DUAL):
            attributes |= self._dual_attributes(dtype)
        return attributes

    def _dual_attributes(self, dtype: type) -> dict:
        support, coef = self._support_rows()
        attributes = {
            "support_": support,
            "n_support_": len(support),
            "dual_coef_": coef.astype(dtype, copy=False),
        }
        if self.tagger.kernel not in ("linear", "precomputed"):
            attributes["support_vectors_"] = canonical(self.rows.rows[support])
        return attributes

    def outcome(self, result: SolverResult) -> dict:
        """The attributes that describe the solver's result."""
        curve = np.array(result.history)
        outcome = {"n_iter_": result.n_iter, "loss_curve_": curve, "solver_": self.solver}
        if self.solver == "perceptron":
            return outcome | {"n_mistakes_": self.mistakes.total, "radius_": self.mistakes.radius}
        primal, dual = result.history[-1][1:3]  # of these weights
        outcome |= {"objective_": primal, "dual_gap_": primal - dual}
        if self.solver == "smoothing":
            return outcome
        paths = self.objective.support_paths()
        return outcome | {
            "support_index_": paths.sequence,
            "support_first_": paths.first,
            "support_alpha_": paths.alpha,
            "support_offsets_": paths.bounds,
            "support_labels_": paths.labels,
            "truth_labels_": self.objective.y.astype(np.int16),
            "truth_offsets_": self.objective.offsets,
        }


class _Report:
    # The callback of a solver, called after each pass; True stops.

    def __init__(self, problem: MarginProblem, run_callbacks: Callable):
        self.problem, self.run_callbacks = problem, run_callbacks
        self.outlook, self.gives_up = None, False  # whether another solver is better
        tagger, objective = problem.tagger, problem.objective
        if problem.solver == "bcfw" and may_change(tagger, problem.rows, objective.n_labels):
            self.outlook = Outlook(objective, float(tagger.tol))

    def __call__(self, k: int, value: float, w: StructuredHinge) -> bool:
        problem, is_known = self.problem, not np.isnan(value)
        problem.n_passes = k
        if problem.tagger.verbose and is_known:
            what = "mistakes" if problem.solver == "perceptron" else "objective"
            print(f"[HMSVMTagger] pass {k}: {what} {value:.6g}")
        stops = self.run_callbacks(k, value, w)
        if self.outlook is not None:
            self.outlook.note()
            self.gives_up = not stops and is_known and self.outlook.is_bad()
        return stops or self.gives_up


def _is_worth_threads(source: Any, L: int) -> bool:
    # Whether passes take long enough for several threads. (With the linear kernel, an update takes
    # 1 µs, and changes weights that most others read: threads gain nothing.)
    return isinstance(source, np.ndarray) and source.size * L >= WORTH_GRAM


def check_kernel_of_roles(tagger: Any, roles: np.ndarray | None) -> None:
    """Raise if transition features are given to a kernel other than "linear"."""
    marked = roles is not None and bool((roles & TRANSITION).any())
    if tagger.kernel != "linear" and (marked or tagger.transition_features is not None):
        raise ValueError(
            "Transition features, which X or transition_features gives, have weights of their own "
            f"and need kernel='linear'; got kernel={tagger.kernel!r:.40}."
        )


def kept_paths(tagger: Any) -> SupportPaths:
    """The paths with α > 0 of a fitted tagger, without their loss."""
    alpha = tagger.support_alpha_
    of_paths = tagger.support_index_, tagger.support_first_, alpha, np.zeros_like(alpha)
    return SupportPaths(*of_paths, tagger.support_offsets_, tagger.support_labels_)


def _inseparable(sequences: np.ndarray) -> str:
    if len(sequences) == 1:
        which = f"sequence {sequences[0]} cannot score above its wrong labelings, all of them"
    else:
        shown = ", ".join(map(str, sequences[:5])) + (", …" if len(sequences) > 5 else "")
        which = f"sequences {shown} cannot all score above their wrong labelings"
    return (
        f"A hard margin (C=inf) needs separable data, but {which}, whatever the weights: their "
        "labels contradict each other. Give a finite C, or correct or leave out these sequences."
    )


def path_loss(tagger: Any, source: RowSource) -> PathLoss:
    """The loss of ``loss`` and ``class_weight`` for the labels of the training data."""
    classes = source.classes
    zero_one = isinstance(tagger.loss, str) and tagger.loss == "zero_one"
    if zero_one and tagger.class_weight is not None:
        raise ValueError(
            "class_weight weighs wrong labels, which loss='zero_one' does not count; use "
            "loss='hamming' or a matrix, or sample_weight."
        )
    if zero_one:
        return PathLoss(np.zeros((len(classes), len(classes))), 1.0)
    of_rows = np.repeat(source.weights, source.X.lengths)
    by_class = read_class_weight(tagger.class_weight, classes, source.codes, of_rows)
    if by_class is None:
        by_class = np.ones(len(classes))
    loss = PathLoss(by_class[:, None] * resolve_loss(tagger.loss, classes, "zero_one"), 0.0)
    if np.isinf(float(tagger.C)) and loss.least == 0:
        raise ValueError(
            "A hard margin (C=inf) needs a loss above 0 for every wrong labeling; got a matrix or "
            "class_weight with 0 between different labels. Give a finite C."
        )
    return loss

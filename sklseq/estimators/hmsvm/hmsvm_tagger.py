"""Hidden Markov support vector machines."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.callbacks import CallbackSupportMixin, iteration_hook, with_callbacks
from sklseq._lib.threads import Threads
from sklseq.data.labels import (
    check_constraints,
    encode_labels,
    resolve_constraints,
    unique_labels,
)
from sklseq.data.sequences import check_finite, read_labels, weighted_only
from sklseq.data.types import ArrayLike, LabelsLike, RandomState, SequencesLike
from sklseq.estimators.base import BaseTagger
from sklseq.estimators.hmsvm.hmsvm_parameters import (
    PASSES,
    check_parameters,
    choose_solver,
    path_loss,
)
from sklseq.estimators.hmsvm.kernel_functions import RowKernel, gram_matrix, resolve_gamma
from sklseq.estimators.validation import (
    check_magnitude,
    check_not_empty,
    read_sequences,
    training_weights,
    warn_one_label,
)
from sklseq.inference.chain.linear_chain import as_generator, row_blocks
from sklseq.objectives.margin.hinge import PathLoss, StructuredHinge, linear_rows
from sklseq.solvers import bcfw, perceptron, working_set

__all__ = ["HMSVMTagger", "SupportSequence"]


class SupportSequence(NamedTuple):
    """A wrong labeling that holds the margin; see :attr:`HMSVMTagger.support_sequences_`.

    Attributes
    ----------
    sequence : int
        Number of the training sequence.
    labels : ndarray of shape (n_steps,)
    alpha : float
    """

    sequence: int
    labels: np.ndarray
    alpha: float


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


class HMSVMTagger(CallbackSupportMixin, BaseTagger):
    """Hidden Markov support vector machine: a tagger of maximum margin, with kernels.

    Trains by minimising, with F(x, y) the score of a labeling as in :class:`CRFTagger`,

        ½‖w‖² + C · Σ_i weight_i · ξ_i          (slack "l1"; "l2" has ξ_i²)

        ξ_i = max(0, max_{y ≠ y_i} loss(y_i, y) + F(x_i, y) - F(x_i, y_i)),

    so that every true labeling scores higher than any other by as much as the other is wrong.
    Training also finds the dual problem's value, so that it is known how far the objective is from
    its minimum: ``dual_gap_``.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the slacks; their sum is not divided by the number n of sequences, as in
        scikit-learn's LinearSVC. SVM^struct and SVM^hmm do divide: theirs is n · C.
        ``np.inf`` is a hard margin, for separable data.
    loss : {"hamming", "zero_one"} or array-like of shape (n_labels, n_labels), default="hamming"
        What a wrong labeling costs: 1 for each wrong label (margin rescaling), 1 in all (the
        paper's), or the matrix entries of its wrong labels, true labels in rows.
    slack : {"l1", "l2"}, default="l1"
        Whether slacks are summed or their squares.
    kernel : {"linear", "poly", "rbf", "precomputed"} or callable, default="linear"
        Kernel between rows. A callable takes two matrices of rows and returns that of their
        kernels. With "precomputed", rows of X hold their kernel with each training row.
    gamma : {"scale", "auto"} or float, default="scale"
        Of "poly", (gamma · x·z + coef0)^degree, and "rbf", exp(-gamma · ‖x - z‖²); names as in
        scikit-learn's SVC.
    degree : int, default=3
    coef0 : float, default=0.0
    transition_scale : float, default=1.0
        η of the paper: value of the features of transitions, and of the first and last label.
        Above 1, the chain counts more against the rows; 0 leaves it out.
    boundaries : bool, default=True
        Whether first and last labels have weights of their own.
    class_weight : dict, "balanced" or None, default=None
        What the loss of a row is multiplied by, by its true label. Not for ``loss="zero_one"``.
    constraints : {"iob2", "iobes", "bilou"}, bool array-like (n_labels, n_labels) or None
        Transitions that may occur, in training and in every answer, as in :class:`CRFTagger`.
    solver : {"auto", "bcfw", "working_set", "perceptron"}, default="auto"
        "bcfw": block-coordinate Frank–Wolfe, on w for the linear kernel and on the dual for
        others. "working_set": the paper's Algorithm 2, which solves
        the problem of one sequence after the other. "perceptron": the
        paper's Algorithm 1; has no margin, so no ``C``, ``loss`` or ``slack``; ends early on
        separable data, with weights that make no mistake. "auto" is "bcfw", in all that was
        measured the fastest to a small gap, see the user guide.
    average : bool or "auto", default="auto"
        Whether weights are the average of all iterates (for "bcfw", of later ones more); "auto":
        for the perceptron. Not for "working_set".
    max_iter : int or None, default=None
        Passes over the data; None: 10 for the perceptron, else 1000.
    tol : float, default=0.01
        Training stops when ``dual_gap_`` is at most this share of the objective.
    cache_size : float, default=1000
        Megabytes that the Gram matrix of kernels other than "linear" may take: 8 · n_rows². For the
        linear kernel, those of single sequences, 8 · Σ T²; the longest do without where it ends.
    n_jobs : int or None, default=None
        Threads, in prediction.
    verbose : int, default=0
        Above 0, progress is printed.
    random_state : int, RandomState instance or None, default=None
        Order of sequences.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        Labels, sorted.
    coef_ : ndarray of shape (n_features, n_labels)
        State weights; for the linear kernel only.
    transition_ : ndarray of shape (n_labels, n_labels)
        Scores of label i followed by j; -inf where forbidden.
    start_, end_ : ndarray of shape (n_labels,)
        Scores of the first and of the last label.
    dual_coef_ : ndarray of shape (n_support, n_labels)
        Coefficients of the support rows. For the linear kernel, only where the solver is not the
        perceptron and nothing is averaged.
    support_ : ndarray of shape (n_support,)
        Training rows, counted over all sequences, with coefficients other than 0.
    n_support_ : int
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        These rows; for kernels other than "linear" and "precomputed".
    support_sequences_ : list of SupportSequence
        Wrong labelings with α > 0, the largest α of a sequence first. With ``average=True``, those
        of the last iterate.
    objective_, dual_gap_ : float
        Objective, and an upper bound of its distance from the minimum. Not for the perceptron.
    loss_curve_ : ndarray of shape (n_points, 4), for the perceptron (n_iter_,)
        Rows (pass, primal objective, dual objective, gap), with ``average=True`` of the average so
        far. For the perceptron, the number of mistakes of each pass.
    n_mistakes_, radius_ : int, float
        Of the perceptron: mistakes made, at most (``radius_`` / margin)² of them on separable data.
    n_iter_ : int
        Passes done.
    gamma_ : float
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when fitted on feature dicts or attributes.
    vectorizer_ : DictFeatures or None
        What turns dicts into rows.

    Raises
    ------
    ValueError
        On bad parameters or data, before any work: see the message. Also if a hard margin is asked
        of data that prove to have none: the message names sequences that contradict each other.

    Warns
    -----
    ConvergenceWarning
        If ``tol`` was not reached in ``max_iter`` passes; for a hard margin, also if it was neither
        found nor proved not to exist.

    Notes
    -----
    A pass costs O(nnz · L + n_rows · L²) for the linear kernel; for others, of every row whose
    label is moved, O(n_rows), with 8 · n_rows² bytes. For more rows than that allows, approximate
    the kernel: ``X.with_rows(Nystroem().fit_transform(X.rows))`` and ``kernel="linear"``.

    References
    ----------
    Y. Altun, I. Tsochantaridis, T. Hofmann (2003), "Hidden Markov support vector machines", ICML.

    S. Lacoste-Julien, M. Jaggi, M. Schmidt, P. Pletscher (2013), "Block-coordinate Frank-Wolfe
    optimization for structural SVMs", ICML.

    Examples
    --------
    >>> from sklseq import HMSVMTagger
    >>> X = [[{"w": "the"}, {"w": "cat"}, {"w": "sleeps"}], [{"w": "a"}, {"w": "dog"}]]
    >>> y = [["D", "N", "V"], ["D", "N"]]
    >>> tagger = HMSVMTagger(random_state=0).fit(X, y)
    >>> tagger.predict([[{"w": "the"}, {"w": "dog"}, {"w": "sleeps"}]])[0]
    array(['D', 'N', 'V'], dtype='<U1')
    >>> bool(tagger.dual_gap_ <= 0.01 * tagger.objective_)
    True
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        loss: str | ArrayLike = "hamming",
        slack: str = "l1",
        kernel: str | Callable[..., Any] = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        transition_scale: float = 1.0,
        boundaries: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        constraints: str | ArrayLike | None = None,
        solver: str = "auto",
        average: bool | str = "auto",
        max_iter: int | None = None,
        tol: float = 1e-2,
        cache_size: float = 1000,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: RandomState = None,
    ):
        self.C = C
        self.loss = loss
        self.slack = slack
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.transition_scale = transition_scale
        self.boundaries = boundaries
        self.class_weight = class_weight
        self.constraints = constraints
        self.solver = solver
        self.average = average
        self.max_iter = max_iter
        self.tol = tol
        self.cache_size = cache_size
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # ------------------------------------------------------------------ training

    @with_callbacks(max_subtasks=lambda tagger: tagger.max_iter)
    def fit(
        self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None
    ) -> HMSVMTagger:
        """Train on labelled sequences.

        Parameters
        ----------
        X : list of sequences
            In any form that :class:`CRFTagger` takes, but neither blocks of rows nor shards.
        y : list of label sequences
        sample_weight : array-like of shape (n_sequences,), optional
            What ``C`` is multiplied by; 0 leaves a sequence out.

        Returns
        -------
        HMSVMTagger
            The estimator itself.
        """
        check_parameters(self)
        rows, vectorizer = read_sequences(X, fit=True)
        check_not_empty(rows)
        check_magnitude(rows, "HMSVMTagger")
        labels = read_labels(y, rows)
        weights = training_weights(sample_weight, len(rows))
        # Rows of weight 0 stay, so that support_ counts all; nothing is learnt from them.
        used, labels, _ = weighted_only(rows, labels, weights)
        check_not_empty(used)
        classes = unique_labels(labels)
        codes = encode_labels(labels, classes, used.offsets)
        allowed = resolve_constraints(self.constraints, classes)
        check_constraints(codes, used.offsets, *allowed, classes)
        loss = path_loss(self, classes, labels)
        kernel = self._row_kernel(used.rows)
        of_all = np.zeros(rows.n_rows, dtype=codes.dtype)
        of_all[np.repeat(weights > 0, rows.lengths)] = codes
        objective = self._objective(rows, of_all, weights, loss, allowed, kernel)
        told = (classes, vectorizer, rows, kernel)
        result, mistakes = self._solve(objective, told)
        objective.settle()
        warn_one_label(classes)
        self._forget()
        vars(self).update(self._attributes(objective, told))
        self._record(objective, result, mistakes)
        self._warn_convergence(result, objective)
        return self

    def _averaging(self) -> int:
        # How StructuredHinge names the kinds of averages.
        if self.solver == "perceptron":
            return 1 if self.average in ("auto", True) else 0
        return 2 if self.average is True else 0

    def _row_kernel(self, rows: Any) -> RowKernel:
        gamma = 1.0
        if self.kernel in ("poly", "rbf"):
            gamma = resolve_gamma(self.gamma, rows)
        return RowKernel(self.kernel, gamma, int(self.degree), float(self.coef0))

    def _objective(self, rows, codes, weights, loss, allowed, kernel) -> StructuredHinge:
        if self.solver == "perceptron":
            loss = PathLoss(np.zeros_like(loss.cost), 0.0)
        C = np.where(weights > 0, 1.0, 0.0)
        C[weights > 0] *= self.C * weights[weights > 0]
        if self.kernel == "linear":
            source = linear_rows(rows.rows)
        else:
            source = gram_matrix(kernel, rows.rows, float(self.cache_size))
        scale = float(self.transition_scale)
        return StructuredHinge(
            source, rows.offsets, codes, loss, C, "hard" if np.isinf(self.C) else self.slack,
            allowed, scale, scale * bool(self.boundaries), self._averaging(),
            0 if self.solver == "perceptron" else int(self.cache_size * 1e6 / 8),
        )  # fmt: skip

    def _solve(self, objective: StructuredHinge, told: tuple):
        solver, effort = choose_solver(self.solver, self.kernel)
        rng = as_generator(self.random_state)

        def fitted(objective: StructuredHinge) -> dict:
            with objective.as_settled():
                return self._attributes(objective, told)

        after_iteration = iteration_hook(self, fitted)

        def report(k: int, value: float, w: StructuredHinge) -> bool:
            if self.verbose and not np.isnan(value):
                what = "mistakes" if solver == "perceptron" else "objective"
                print(f"[HMSVMTagger] pass {k}: {what} {value:.6g}")
            return after_iteration(k, value, w)

        max_iter, mistakes = int(self.max_iter or PASSES[solver]), None
        options = {"tol": float(self.tol), "max_iter": max_iter, "callback": report}
        if solver == "perceptron":
            result, mistakes = perceptron(objective, rng=rng, max_iter=max_iter, callback=report)
        elif solver == "bcfw":
            result = bcfw(objective, rng=rng, **effort, **options)
        else:
            result = working_set(objective, rng=rng, **options)
        if len(objective.inseparable):
            raise ValueError(_inseparable(objective.inseparable))
        return result, mistakes

    # ------------------------------------------------------------------ fitted attributes

    def _forget(self) -> None:
        for name in (
            "coef_", "dual_coef_", "support_", "n_support_", "support_vectors_", "gamma_",
            "feature_names_in_", "objective_", "dual_gap_", "n_mistakes_", "radius_",
            "support_index_", "support_alpha_", "support_labels_", "support_offsets_",
        ):  # fmt: skip
            self.__dict__.pop(name, None)

    def _attributes(self, objective: StructuredHinge, told: tuple) -> dict:
        # What makes a fitted tagger of the state of a solver.
        classes, vectorizer, rows, kernel = told
        dtype = np.float32 if rows.dtype == np.float32 else np.float64
        weights = objective.weights()
        attributes = {
            "classes_": classes,
            "transition_": weights.transition.astype(dtype),
            "start_": weights.start.astype(dtype),
            "end_": weights.end.astype(dtype),
            "n_features_in_": rows.shape[1],
            "vectorizer_": vectorizer,
        }
        if vectorizer is not None:
            attributes["feature_names_in_"] = vectorizer.get_feature_names_out()
        if self.kernel == "linear":
            attributes["coef_"] = weights.coef.astype(dtype, copy=False)
        if self.kernel in ("poly", "rbf"):
            attributes["gamma_"] = kernel.gamma
        if self.kernel != "linear" or not (self._averaging() or self.solver == "perceptron"):
            attributes |= self._support(objective, rows, dtype)
        return attributes

    def _support(self, objective: StructuredHinge, rows, dtype) -> dict:
        coef = objective.row_coefficients()
        support = np.flatnonzero((coef != 0).any(axis=1))
        attributes = {
            "dual_coef_": coef[support].astype(dtype),
            "support_": support,
            "n_support_": len(support),
        }
        if self.kernel not in ("linear", "precomputed"):
            attributes["support_vectors_"] = rows.rows[support]
        return attributes

    def _record(self, objective: StructuredHinge, result, mistakes) -> None:
        self.n_iter_, self.loss_curve_ = result.n_iter, np.array(result.history)
        if mistakes is not None:
            self.n_mistakes_, self.radius_ = mistakes
            return
        primal, dual = result.history[-1][1:3]  # measured last, of these weights
        self.objective_, self.dual_gap_ = primal, primal - dual
        paths = objective.support_paths()
        self.support_index_, self.support_alpha_ = paths.sequence, paths.alpha
        self.support_labels_ = paths.labels
        lengths = np.diff(objective.offsets)[paths.sequence]
        self.support_offsets_ = np.concatenate([[0], np.cumsum(lengths)])

    def _warn_convergence(self, result, objective: StructuredHinge) -> None:
        if result.converged or self.solver == "perceptron" or "callback" in result.message:
            return
        if np.isinf(self.C):
            advice = (
                "a hard margin needs separable data: if these are not, no number of passes will "
                "do; give a finite C (such as 100), or raise max_iter"
            )
        else:
            advice = "raise max_iter or tol, or lower C"
        warnings.warn(
            f"HMSVMTagger did not converge in {result.n_iter} passes (objective "
            f"{self.objective_:.6g}, duality gap {self.dual_gap_:.3g}, tol={self.tol}); {advice}.",
            ConvergenceWarning,
            stacklevel=3,
        )

    @property
    def support_sequences_(self) -> list[SupportSequence]:
        """Wrong labelings with α > 0, by training sequence, the largest α first."""
        check_is_fitted(self, "classes_")
        if not hasattr(self, "support_index_"):
            raise AttributeError(
                "solver='perceptron' keeps coefficients of rows, and no support_sequences_; use "
                "'bcfw' or 'working_set'."
            )
        order = np.lexsort([-self.support_alpha_, self.support_index_])
        bounds = self.support_offsets_
        return [
            SupportSequence(
                int(self.support_index_[k]),
                self.classes_[self.support_labels_[bounds[k] : bounds[k + 1]]],
                float(self.support_alpha_[k]),
            )
            for k in order
        ]

    # ------------------------------------------------------------------ prediction

    def _blocks(self, X, work) -> list:
        # As BaseTagger has it for coef_; other kernels score rows by the support rows.
        if hasattr(self, "coef_"):
            return super()._blocks(X, work)
        check_finite(X)
        chain, L = self._chain(), len(self.classes_)
        kernel = RowKernel(
            self.kernel, getattr(self, "gamma_", 1.0), int(self.degree), float(self.coef0)
        )

        def run(block: tuple[int, int]):
            a, b = block
            first, last = X.offsets[a], X.offsets[b]
            psi = np.zeros((last - first, chain.width), dtype=chain.dtype)
            if last > first and len(self.support_):
                psi[:, :L] = self._support_kernel(kernel, X.rows[first:last]) @ self.dual_coef_
            return work(a, b, psi, X.offsets[a : b + 1] - first)

        with Threads(self.n_jobs) as threads:
            return threads.map(run, row_blocks(X.offsets))

    def _support_kernel(self, kernel: RowKernel, rows) -> np.ndarray:
        if self.kernel == "precomputed":
            chosen = rows[:, self.support_]
            return chosen.toarray() if sparse.issparse(chosen) else chosen
        return kernel(rows, self.support_vectors_)

"""Linear-chain tagger trained by one linear solve, which maximises the z-score."""

from __future__ import annotations

import warnings
from collections.abc import Sized
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning

from sklseq._lib.available import missing_if
from sklseq._lib.callbacks import CallbackSupportMixin, with_callbacks
from sklseq._lib.checks import check_number, is_number
from sklseq._lib.estimator import check_plain_parameters, set_fitted
from sklseq._lib.threads import check_n_jobs
from sklseq.data.constraints import Constraints, resolve_constraints
from sklseq.data.labels import classes_of_parts, encode_labels, read_labels
from sklseq.data.sequences import (
    check_not_empty,
    read_form,
    row_positions,
    training_weights,
)
from sklseq.data.types import (
    ArrayLike,
    ClassWeightLike,
    ConstraintsLike,
    KernelLike,
    LabelsLike,
    LossLike,
    RandomState,
    SequencesLike,
)
from sklseq.estimators.kernel_functions import check_kernel
from sklseq.estimators.kernel_model import KernelTagger
from sklseq.estimators.label_losses import resolve_loss
from sklseq.estimators.label_output import gives_lists
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.validation import (
    ATTRIBUTES_WARNED,
    LARGEST_PENALTY,
    check_choices,
    check_magnitude,
    check_numbers,
    other_width,
    read_class_weight,
    read_sequences,
    refuse_roles,
    warn_new_attributes,
    warn_one_label,
)
from sklseq.estimators.weights import WeightsMixin, no_weights
from sklseq.estimators.zscore.transition_choice import choose_rule
from sklseq.estimators.zscore.zscore_problem import (
    MAX_WEIGHTS,
    Solution,
    ZScoreProblem,
    chain_attributes,
    labeling_scores,
    pair_rule,
    resolve_l2,
    solve_statistics,
    warn_columns_without_effect,
)
from sklseq.objectives.zscore.factorised import CentredRows, centred_statistics
from sklseq.objectives.zscore.moments import (
    Sample,
    Statistics,
    extended_rows,
)
from sklseq.solvers import SolverResult

if TYPE_CHECKING:
    from sklseq.estimators.crf.crf_tagger import CRFTagger
    from sklseq.features import DictFeatures

# Attributes of the sums of partial_fit, in the order of the fields of Statistics.
STATISTICS = ("gram_", "observed_", "means_", "transition_counts_", "label_counts_")
# Relative rounding of sums of scores: standard deviations below it count as 0.
ROUNDING = 16 * np.finfo(float).eps
# Attributes that only some fits set; deleted before each fit.
STALE = {
    *STATISTICS,
    "n_constraints_",
    "transition_weight_",
    "transitions_",
    "feature_names_in_",
    "_fitted_parameters",
    "coef_",
    "dual_coef_",
    "support_",
    "n_support_",
    "support_vectors_",
    "gamma_",
    "scale_",
    ATTRIBUTES_WARNED,
}


def _no_probabilities(tagger: Any) -> str | None:
    # Why the tagger has no probabilities, or None.
    fitted = hasattr(tagger, "classes_")
    if hasattr(tagger, "scale_") or (not fitted and (tagger.probability or tagger.refine)):
        return None
    return "it needs a fit with probability=True or refine; see also to_crf(X, y)."


def _not_in_parts(tagger: Any) -> str | None:
    # Why the tagger cannot be trained by sums over batches, or None.
    if tagger.kernel != "linear":
        return (
            f"it needs kernel='linear', whose sums do not grow with the data; got "
            f"{tagger.kernel!r}. Use fit."
        )
    if tagger.moments != "exact" or tagger.constraints is not None or tagger.separate:
        return (
            "it needs moments='exact', constraints=None and separate=False, as other settings "
            "need the sequences; use fit."
        )
    if isinstance(tagger.class_weight, str):
        return (
            "it cannot have class_weight='balanced', as it does not know the labels to come; "
            "give a dict of weights."
        )
    if tagger.refine or tagger.probability:
        return (
            "it keeps sums only, and refine and probability=True need sequences; use fit, or "
            "to_crf(X, y) afterwards."
        )
    return None


class SequenceZScores(NamedTuple):
    """Z-scores of labelings; see :meth:`ZScoreTagger.sequence_zscore`.

    Attributes
    ----------
    zscore : ndarray of shape (n_sequences,)
        Standard deviations above the mean score of all labelings.
    p_value : ndarray of shape (n_sequences,)
        Fraction of labelings that score higher, if scores were normally distributed.
    """

    zscore: np.ndarray
    p_value: np.ndarray


class ZScoreTagger(WeightsMixin, CallbackSupportMixin, KernelTagger):
    """Linear-chain tagger trained by one linear solve, which maximises the z-score.

    If all labelings of a sequence were equally likely, their scores w · φ_s(y) would have a mean
    and a variance. Training finds the weights with which the true labels ȳ score as many standard
    deviations as possible above that mean,

        max_w  w·b / √(wᵀCw),   b = Σ_s ω_s (φ_s(ȳ_s) - E φ_s),   C = Σ_s ω_s Cov φ_s,

    by w = (C + 2 · l2)⁻¹ b: the Newton step, from zero, of :class:`CRFTagger` with the same ``l2``,
    all states and transitions, and no boundary weights. With a loss ℓ, which is added to the
    scores of wrong labelings, the problem is

        min_w  ½ wᵀCw + wᵀc + l2 · ‖w‖²   subject to   w·b - E ℓ ≥ 1,      c = Cov(φ, ℓ).

    Neither problem needs a learning rate or a line search, and none needs the data after C⁻¹b is
    computed.

    Parameters
    ----------
    loss : {"hamming"}, array-like, dict, callable or None, default="hamming"
        None: Equation (4) of the paper; "hamming": its §5.1. A matrix (n_labels, n_labels) gives
        the loss of predicting a label (column) for a true label (row), in the order of the sorted
        labels. A dict has losses by (true label, wrong label), 1 for missing pairs, and may have
        labels that do not occur in y. A callable takes both labels and returns the loss.
    l2 : float or None, default=None
        Ridge. 0 is the paper's parameter-free form, with the solution of minimum norm. None:
        min(1, 4 / n_labels). The ridge of the regression of labels on rows is 2 · n_labels · l2: a
        feature of n rows with one label keeps n / (n + 2 · n_labels · l2) of its score, so that
        with many labels a constant ``l2`` would leave almost nothing of the scores.
    transitions : {"auto", "covariance", "information"}, default="auto"
        Scores of pairs of successive labels. "covariance": the part D of ``docs/maths``, which
        maximises the z-score: the method of the paper. It compares counts with those of uniform
        labels, so that a frequent label outweighs all others. "information": the pointwise mutual
        information log(n_ij n / (n_i n_j)) of counts in y, with 1/2 added. It compares counts with
        those of independent labels of the same frequencies, and was more accurate on all text
        measured. "auto": the kind, and its κ, with which sequences left out have the least loss
        (Hamming loss for ``loss=None``); ``transitions_`` and ``transition_weight_`` are what was
        chosen. With more than 10,000 rows (4,000 rows of more than 1,000 columns; 1,250 rows with a
        kernel), one part is left out, and another is trained on: an eighth of all rows, at least
        6,000 (2,400; 750). ``partial_fit`` leaves nothing out, and has "information". "auto" is
        "covariance" where ``transition_weight`` is given, with ``refine``, and where weights are
        not in closed form: with ``separate``, ``constrained="training"`` and other ``moments``.
    transition_weight : float or None, default=None
        κ, by which these scores are multiplied. With "covariance", κ = 1 is the problem without a
        loss; with "information", κ = 1 adds the scores as they are to the regression of label
        indicators. None: with "auto" it is chosen; with "covariance" κ = α / (α + 1 / n_labels) for
        the Hamming loss, which maximises the z-score but may decode far worse than another value;
        with "information" 0.07. :class:`ZScoreTaggerCV` chooses it together with the ridge.
    class_weight : dict, "balanced" or None, default=None
        Weight of a row by its true label, times that of its sequence, in the regression of labels
        on rows; "balanced" gives all labels the same sum of these products. Transitions have the
        weight of their sequence. For entities, a weight of ``O`` below 1 helps.
    kernel : {"linear", "poly", "rbf", "precomputed"} or callable, default="linear"
        Kernel between rows, as in :class:`HMSVMTagger`: the ridge regression of labels on rows is
        solved in its space, in closed form, with one coefficient for each training row and label. A
        callable takes two matrices of rows; with "precomputed", rows of X hold their kernel with
        each training row.
    gamma : {"scale", "auto"} or float, default="scale"
        Parameter of "poly", (gamma · x·z + coef0)^degree, and "rbf", exp(-gamma · ‖x - z‖²).
    degree : int, default=3
    coef0 : float, default=0.0
    n_landmarks : int or None, default=None
        Number of training rows, drawn at random, whose kernels represent all rows (Nyström's
        approximation), for data whose Gram matrix is too large. Not for "linear"
        and "precomputed".
    cache_size : float, default=1000
        Megabytes that the Gram matrix may take: 8 · n_rows², or 8 · n_landmarks².
    moments : {"exact", "dp", "sampling"}, default="exact"
        How b and C are found. "exact": in closed form, or with constraints by products with C.
        "dp": by the paper's dynamic programs, one for each pair of features; slow, with the same
        result. "sampling": from random labelings.
    n_paths : int, default=100
        Labelings drawn of each sequence, for ``moments="sampling"``.
    constraints : {"iob2", "iobes", "bilou"}, list of tuple, mask (n_labels, n_labels) or None
        Transitions that may occur in predictions, as in :class:`CRFTagger`.
    constrained : {"decoding", "training"}, default="decoding"
        Where ``constraints`` hold. "training": b and C are sums over allowed labelings only, too.
        This takes tens of times as long as the closed form over all labelings and rarely improves
        accuracy.
    separate : bool, default=False
        Whether every true labeling must also have the highest score of its sequence. Violated
        constraints of this kind are added until there are none, as §6 of the paper proposes for
        separable data. On other data they are dropped, with a warning.
    solver : {"auto", "direct", "cg"}, default="auto"
        "direct" factorises a matrix of n_features², "cg" is conjugate gradients on the rows;
        "auto" is "direct" up to 1000 features.
    max_iter : int, default=500
        Iterations of conjugate gradients, or rounds of constraints with ``separate``.
    tol : float, default=1e-3
        Conjugate gradients stop when, for every label, an iteration changes the scores of the
        training rows by at most this fraction of their size, and the residual is at most this
        fraction of the right-hand side (after the elimination of columns, in units in which
        features are of equal size). At 1e-3, at most one label in a thousand of held-out text
        differs from that of the exact solution; with a ridge below 0.01, a few do.
    refine : int, default=0
        Iterations of L-BFGS on the likelihood of a :class:`CRFTagger` with the same ``l2`` (1, the
        default of CRFs, if it is None) and ``constraints`` and all states and transitions, from the
        best multiple of the weights of largest z-score; no iteration raises its objective. About 20
        come near the CRF's accuracy. The first and the last label then have weights too. Only for
        the linear kernel: with other kernels, an iteration would read all kernels between rows.
    probability : bool, default=False
        Whether to multiply the weights by the factor that minimises a CRF's objective on the
        training data, which makes ``predict_proba`` available. Predicted labels stay the same.
        With a kernel, that CRF has its weights in the kernel's space.
        ``refine`` includes this.
    n_jobs : int or None, default=None
        Threads. Scores of float32 models may differ in the last digits, as those of
        :class:`CRFTagger`.
    verbose : int, default=0
        Above 0, residuals are printed.
    random_state : int, RandomState instance or None, default=None
        Seed of ``moments="sampling"`` and of the draw of ``n_landmarks``.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        Labels, sorted.
    coef_ : ndarray of shape (n_features, n_labels)
        State weights; for the linear kernel only.
    dual_coef_ : ndarray of shape (n_support, n_labels)
        For other kernels: a row has as scores its kernels with the support rows, times these.
    support_ : ndarray of shape (n_support,)
        Training rows, counted over all sequences, that have coefficients: all, or the landmarks.
    n_support_ : int
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        These rows; not for "precomputed".
    gamma_ : float
        For "poly" and "rbf": the number that ``gamma`` stands for.
    transition_ : ndarray of shape (n_labels, n_labels)
        Weights of label i followed by j; -inf where forbidden.
    start_, end_ : ndarray of shape (n_labels,)
        0, or -inf where forbidden; with ``refine``, weights.
    scale_ : float
        With ``probability`` or ``refine``: the factor by which weights were multiplied.
    zscore_ : float
        The z-score of the training labels, including the loss.
    l2_ : float
        The ridge: ``l2``, or the number that None stands for.
    multiplier_ : float
        α in w = C⁻¹(α b - c); 1 without a loss.
    transition_weight_ : float
        κ. Only with moments in closed form: "exact", and over free labelings.
    transitions_ : {"covariance", "information"}
        The kind of transitions.
    n_iter_ : int
        Iterations of conjugate gradients; 1 for a direct solution.
    n_constraints_ : int
        Constraints added, with ``separate``.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when fitted on feature dicts or attributes.
    vectorizer_ : DictFeatures or None
        The extractor of rows from dicts, if the model was fitted on dicts or attributes.

    Raises
    ------
    ValueError
        On bad parameters or data, before any work: see the message.

    Notes
    -----
    A linear regression rarely predicts a label whose values lie between those of other labels: for
    measurements in few dense columns, the accuracy may be 10 to 30 points below that of
    :class:`CRFTagger`. ``refine=20`` makes up for it, and so does ``kernel="rbf"``: see
    :doc:`/zscore`.

    With a kernel, the cost is n_rows³ / 3 operations and 24 · n_rows² bytes; with landmarks,
    O(n_rows · n_landmarks²) and O(n_landmarks²).

    Without constraints, labels are independent under the uniform distribution, and the problem
    separates into ridge regression of label indicators on the rows and a closed form for
    transitions: see ``docs/maths``. Cost of "exact": O(n_features³) once; with many sparse
    features O(nnz · n_labels) for each iteration and O(k³) once, for the k ≤ 2000 most frequent.
    With ``constrained="training"`` an iteration is O(nnz · n_labels + n_rows · n_labels²).

    References
    ----------
    E. Ricci, T. De Bie, N. Cristianini (2007), "Discriminative sequence labeling by z-score
    optimization", ECML, LNCS 4701.

    Examples
    --------
    >>> from sklseq import ZScoreTagger
    >>> X = [[{"w": "the"}, {"w": "cat"}, {"w": "sleeps"}], [{"w": "a"}, {"w": "dog"}]]
    >>> y = [["D", "N", "V"], ["D", "N"]]
    >>> tagger = ZScoreTagger(l2=0.1).fit(X, y)
    >>> tagger.predict([[{"w": "the"}, {"w": "dog"}, {"w": "sleeps"}]])[0]
    ['D', 'N', 'V']
    >>> tagger.sequence_zscore(X, y).zscore.round(1)
    array([2.6, 2.1])
    """

    def __init__(
        self,
        *,
        loss: LossLike | None = "hamming",
        l2: float | None = None,
        transitions: str = "auto",
        transition_weight: float | None = None,
        class_weight: ClassWeightLike = None,
        kernel: KernelLike = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        n_landmarks: int | None = None,
        cache_size: float = 1000,
        moments: str = "exact",
        n_paths: int = 100,
        constraints: ConstraintsLike | None = None,
        constrained: str = "decoding",
        separate: bool = False,
        solver: str = "auto",
        max_iter: int = 500,
        tol: float = 1e-3,
        refine: int = 0,
        probability: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: RandomState = None,
    ):
        self.loss = loss
        self.l2 = l2
        self.transitions = transitions
        self.transition_weight = transition_weight
        self.class_weight = class_weight
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.n_landmarks = n_landmarks
        self.cache_size = cache_size
        self.moments = moments
        self.n_paths = n_paths
        self.constraints = constraints
        self.constrained = constrained
        self.separate = separate
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.refine = refine
        self.probability = probability
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # ------------------------------------------------------------------ training

    @with_callbacks(max_subtasks=lambda tagger: None)
    def fit(
        self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None
    ) -> ZScoreTagger:
        """Train on labelled sequences.

        Parameters
        ----------
        X : list of sequences
            In any form that :class:`CRFTagger` takes, but neither blocks of rows nor shards.
        y : list of label sequences
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        ZScoreTagger
            The estimator itself.
        """
        self._check_parameters()
        source = RowSource.read(X, y, sample_weight)
        refuse_roles(source.X)
        warn_columns_without_effect(self, source)
        problem = ZScoreProblem(self, source)
        if problem.chooses_transitions:
            problem.rule = choose_rule(problem)
        return self._set(problem, problem.solve())

    def _set(
        self, problem: ZScoreProblem, solution: Solution, searched: dict[str, Any] | None = None
    ) -> Self:
        tagger, fitted = problem.tagger, problem.attributes(solution) | (searched or {})
        if tagger.refine or tagger.probability:
            from sklseq.estimators.zscore.warm_start import as_crf  # not to predict

            fitted |= as_crf(tagger, problem.source, fitted, problem.space)
        warn_one_label(problem.source.classes)
        set_fitted(self, fitted, STALE)
        if solution.message:
            warnings.warn(solution.message, ConvergenceWarning, stacklevel=3)
        self._warn_convergence(tagger, solution.result)
        return self

    def _warn_convergence(self, tagger: ZScoreTagger, result: SolverResult) -> None:
        if result.converged:
            return
        why, remedy = f"did not converge in max_iter={tagger.max_iter} iterations", "max_iter, "
        if result.message == "precision":
            why, remedy = "could not solve its linear system within rounding", ""
        remedy = f"{remedy}tol or l2" if tagger is self else "the least of l2s"
        warnings.warn(
            f"{type(self).__name__} {why} (error {result.history[-1]:.2g}, tol={tagger.tol}); "
            f"raise {remedy}.",
            ConvergenceWarning,
            stacklevel=4,
        )

    def _check_parameters(self) -> None:
        check_plain_parameters(self)
        check_numbers(self, *([] if self.l2 is None else ["l2"]), most=LARGEST_PENALTY)
        check_numbers(self, "tol")
        check_numbers(self, "max_iter", least=1, whole=True)
        check_numbers(self, "n_paths", least=2, whole=True)
        check_number("transition_weight", self.transition_weight, optional=True)
        check_choices(
            self,
            transitions=("auto", "covariance", "information"),
            moments=("exact", "dp", "sampling"),
            solver=("auto", "direct", "cg"),
            constrained=("decoding", "training"),
        )
        check_n_jobs(self.n_jobs)
        self._check_kernel()
        self._check_refine()

    def _check_refine(self) -> None:
        check_numbers(self, "refine", whole=True)
        if self.kernel != "linear" and self.refine:
            raise ValueError(
                "refine needs weights of features, which kernel="
                f"{self.kernel!r} does not have; use refine=0, or kernel='linear'."
            )

    def _check_kernel(self) -> None:
        check_kernel(self)
        check_numbers(self, "cache_size")
        if self.n_landmarks is None:
            return
        check_numbers(self, "n_landmarks", least=1, whole=True)
        if self.kernel in ("linear", "precomputed"):
            raise ValueError(
                f"n_landmarks={self.n_landmarks} needs a kernel between rows that can be computed, "
                f"not kernel={self.kernel!r}; use 'rbf', 'poly' or a callable, or n_landmarks=None."
            )

    # ------------------------------------------------------------------ training in parts

    @missing_if(_not_in_parts)
    def partial_fit(
        self,
        X: SequencesLike,
        y: LabelsLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> ZScoreTagger:
        """Train on further sequences; after all parts, the weights equal those of one ``fit``.

        Only sums of products of features are kept, O(n_features²) numbers, so there must be few
        features. To change ``l2``, the loss or ``transition_weight``, no data are needed:
        ``tagger.set_params(l2=0.3).partial_fit([], [])`` solves the system of the sums again. Every
        call does one factorisation of O(n_features³).

        Parameters
        ----------
        X : list of sequences
            Arrays of columns that stay the same. New attributes of dicts and attribute lists become
            further columns, as if they had been 0 before. If there were more than 4000 columns, all
            new attributes of the call are left out, with one warning. A later call without rows, or
            with weights of 0 only, changes nothing.
        y : list of label sequences
        classes : array-like of shape (n_labels,), optional
            All labels of this and later calls; required in the first call.
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        ZScoreTagger
            The estimator itself.

        Raises
        ------
        ValueError
            If the first call has more than 4000 features; with ``constraints``, ``separate`` or
            moments other than "exact"; or after ``fit``, which keeps no sums.
        """
        self._check_parameters()
        known = getattr(self, "classes_", None)
        self._check_partial(known)
        classes = classes_of_parts(classes, known)
        if known is not None and _is_empty(X) and _is_empty(y):
            return self._solve_anew(known)
        before = None if known is None else self._extended(X)
        rows, vectorizer = read_sequences(X, before, fit=known is None)
        if known is None:
            check_not_empty(rows)
        check_magnitude(rows, "Z-score training")
        n_new = 0 if before is None else before.n_features_out_ - self.n_features_in_
        self._check_columns(rows.shape[1] - n_new, known is None)
        labels = read_labels(y, rows)
        weights = training_weights(sample_weight, len(rows), zeros=known is not None)
        cost = resolve_loss(self.loss, classes)
        codes = encode_labels(labels, classes, rows.offsets)
        if not weights @ rows.lengths:  # only in a later call
            return self._solve_anew(classes)
        factors = read_class_weight(
            self.class_weight, classes, codes, np.repeat(weights, rows.lengths), True
        )
        sample = Sample(rows.rows, rows.offsets, codes, weights, len(classes), factors)
        extended = extended_rows(sample.rows, sample.offsets, len(classes))
        part = centred_statistics(CentredRows(extended, sample.row_weights), sample)
        if known is not None:
            part, vectorizer = self._sums().padded(n_new).merged(part), before
        self._fit_statistics(part, cost, classes, vectorizer, rows.dtype)
        return self

    def _sums(self) -> Statistics:
        return Statistics(*(getattr(self, name) for name in STATISTICS))

    def _solve_anew(self, classes: np.ndarray) -> ZScoreTagger:
        cost = resolve_loss(self.loss, classes)
        self._fit_statistics(self._sums(), cost, classes, self.vectorizer_, self.coef_.dtype)
        return self

    def _check_partial(self, known: Any) -> None:
        if known is not None and not hasattr(self, STATISTICS[0]):
            raise ValueError(
                "partial_fit cannot go on from fit, which keeps no sums; train with partial_fit "
                "from the start, on a clone of this estimator."
            )

    def _extended(self, X: SequencesLike) -> DictFeatures | None:
        # The transformer of dicts with the new attributes of X, unless there are too many columns.
        if self.vectorizer_ is None or read_form(X)[0] not in ("dicts", "attributes"):
            return self.vectorizer_
        extended = copy(self.vectorizer_).extend(X)
        if extended.n_features_out_ <= MAX_WEIGHTS:
            return extended
        warn_new_attributes(self, X, f"that would make more than {MAX_WEIGHTS} columns")
        return self.vectorizer_

    def _check_columns(self, n_features: int, is_first: bool) -> None:
        if not is_first and n_features != self.n_features_in_:
            origin = "the first call of partial_fit had"
            raise other_width(n_features, self.n_features_in_, origin)
        if n_features > MAX_WEIGHTS:
            raise ValueError(
                f"partial_fit keeps sums of n_features² numbers, for at most {MAX_WEIGHTS} "
                f"features; got {n_features}. Use fit, or fewer features."
            )

    def _fit_statistics(self, statistics: Statistics, cost, classes, vectorizer, dtype) -> None:
        l2 = resolve_l2(self, len(classes))
        rule = pair_rule(self)
        found = solve_statistics(statistics, cost, l2, rule)
        free = resolve_constraints(None, classes)
        vars(self).update(
            zip(STATISTICS, statistics),
            multiplier_=found.multiplier, zscore_=found.zscore, n_iter_=1, l2_=l2,
            transition_weight_=float(found.transition_weight), transitions_=rule.kind,
            **chain_attributes(found.weights, free, classes, vectorizer, dtype),
        )  # fmt: skip

    # ------------------------------------------------------------------ scores

    @missing_if(_no_probabilities)
    def predict_proba(self, X: SequencesLike, known: LabelsLike | None = None) -> list[np.ndarray]:
        """Marginal probability of each label at each row, of the CRF with these weights.

        Only after ``fit`` with ``probability=True`` or ``refine``.

        Parameters
        ----------
        X : list of sequences
        known : list of label sequences, optional
            As in :meth:`predict`: probabilities are conditional on the known labels.

        Returns
        -------
        list of ndarray of shape (n_steps, n_labels)
        """
        return self._probabilities(X, known)

    def sequence_zscore(self, X: SequencesLike, y: LabelsLike) -> SequenceZScores:
        """Z-score of each labeling: standard deviations of its score above the mean.

        Mean and variance are over all allowed labelings of the sequence with equal probabilities.
        The p-value assumes normally distributed scores, which is nearly true for long sequences.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences

        Returns
        -------
        SequenceZScores
            Named tuple ``(zscore, p_value)``; NaN where all labelings score the same but for
            rounding. A labeling that ``constraints`` forbid has the z-score -inf.
        """
        rows = self._read(X)
        codes = self._encode(y, rows)
        emission, transition, start, end, offsets = self._relative_potentials(rows)
        allowed = Constraints(*(np.isfinite(scores) for scores in (transition, start, end)))
        first, last, _ = row_positions(offsets)
        emission = emission.astype(np.float64)
        emission[first] += np.where(allowed.start, start, 0)
        emission[last] += np.where(allowed.end, end, 0)
        truth, mean, variance = labeling_scores(
            emission, transition.astype(np.float64), offsets, codes, allowed
        )
        largest = np.abs(emission).max(axis=1) + np.abs(transition[allowed.transition]).max(
            initial=0
        )
        rounding = ROUNDING * np.diff(np.append(0, np.cumsum(largest))[offsets])
        deviation = np.sqrt(np.where(variance > rounding**2, variance, np.nan))
        z = np.where(np.isnan(deviation), np.nan, (truth - mean) / deviation)
        return SequenceZScores(z, ndtr(-z))

    @missing_if(no_weights)
    def to_crf(
        self,
        X: SequencesLike | None = None,
        y: LabelsLike | None = None,
        *,
        scale: float | None = None,
        sample_weight: ArrayLike | None = None,
        **parameters: Any,
    ) -> CRFTagger:
        """Return a :class:`CRFTagger` with these weights, whose ``fit`` starts from them.

        Weights of the z-score have no scale, but weights of a CRF have one. With training data, the
        multiple with the least CRF objective is used. Train both with the same ``l2``.

        Parameters
        ----------
        X : list of sequences, optional
        y : list of label sequences, optional
        scale : float, optional
            Factor of the weights, above 0; by default found on X and y, or 1 without them.
            Predictions do not change; larger factors give sharper probabilities.
        sample_weight : array-like of shape (n_sequences,), optional
        **parameters
            Parameters of the new tagger; ``warm_start``, ``all_possible_states`` and
            ``all_possible_transitions`` are True unless given. If one of the last two is False,
            ``fit`` drops the weights of states or transitions that do not occur in y, and the
            factor is the best one for the remaining weights: call ``fit`` before
            ``predict_proba``.

        Returns
        -------
        CRFTagger

        Raises
        ------
        ValueError
            If ``scale`` is not a number above 0, one of X and y is missing, or they are empty.

        Examples
        --------
        >>> from sklseq import ZScoreTagger
        >>> X = [[{"w": "the"}, {"w": "cat"}, {"w": "sleeps"}], [{"w": "a"}, {"w": "dog"}]]
        >>> y = [["D", "N", "V"], ["D", "N"]]
        >>> tagger = ZScoreTagger(l2=0.1).fit(X, y)
        >>> crf = tagger.to_crf(X, y, l2=0.1).fit(X, y)
        >>> crf.loss_curve_[0] < tagger.to_crf(l2=0.1).fit(X, y).loss_curve_[0]
        True
        """
        self._check_start(X, y, scale)
        # Not to predict.
        from sklseq.estimators.crf.crf_tagger import CRFTagger
        from sklseq.estimators.zscore.warm_start import ALL_WEIGHTS, best_scale

        self._check_weights()
        constraints = getattr(self, "constraints", None)
        defaults = {"warm_start": True, "constraints": constraints, **ALL_WEIGHTS}
        crf = CRFTagger(**{**defaults, **parameters})
        names = ("classes_", "coef_", "transition_", "start_", "end_", "n_features_in_")
        for name in (*names, "vectorizer_", "feature_names_in_"):
            if hasattr(self, name):
                value = getattr(self, name)
                setattr(crf, name, value.copy() if isinstance(value, np.ndarray) else value)
        if scale is None:
            scale = 1.0
            if X is not None:
                rows = self._read(X)
                check_not_empty(rows)
                scale = best_scale(crf, rows, y, training_weights(sample_weight, len(rows)))
        for name in ("coef_", "transition_", "start_", "end_"):
            setattr(crf, name, scale * getattr(crf, name))
        return crf.set_output(predict="list" if gives_lists(self) else "array")

    def _check_start(self, X: Any, y: Any, scale: Any) -> None:
        if (X is None) != (y is None):
            raise ValueError("to_crf finds a scale from both X and y, or neither; one is missing.")
        if scale is not None and not (is_number(scale) and 0 < scale < np.inf):
            raise ValueError(f"scale must be None or a finite number above 0; got {scale!r}.")


def _is_empty(items: Any) -> bool:
    return isinstance(items, Sized) and not len(items)

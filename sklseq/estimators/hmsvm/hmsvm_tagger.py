"""Hidden Markov support vector machines."""

import warnings
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.available import missing_if
from sklseq._lib.callbacks import CallbackSupportMixin, with_callbacks
from sklseq._lib.checks import check_number, is_number
from sklseq._lib.estimator import check_plain_parameters, set_fitted
from sklseq._lib.threads import Threads, check_n_jobs
from sklseq.data.column_roles import check_choice_of_columns
from sklseq.data.types import (
    ArrayLike,
    ChoiceLike,
    ClassWeightLike,
    ConstraintsLike,
    KernelLike,
    LabelsLike,
    LossLike,
    RandomState,
    SequencesLike,
)
from sklseq.estimators.column_units import scaling_advice, warn_columns
from sklseq.estimators.hmsvm.margin_problem import PASSES, MarginProblem, kept_paths
from sklseq.estimators.hmsvm.perceptron_batch import UPDATES, fit_batch
from sklseq.estimators.kernel_functions import check_kernel
from sklseq.estimators.kernel_model import KernelTagger
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.token_explanation import ExplainMixin
from sklseq.estimators.validation import (
    check_choices,
    check_numbers,
    warn_one_label,
)
from sklseq.solvers import ROUNDING, SolverResult


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


# Attributes that only some fits set.
FITTED = {
    "coef_", "dual_coef_", "support_", "n_support_", "support_vectors_", "gamma_",
    "feature_names_in_", "objective_", "dual_gap_", "n_mistakes_", "radius_",
    "support_index_", "support_first_", "support_alpha_", "support_offsets_", "support_labels_",
    "truth_labels_", "truth_offsets_", UPDATES,
}  # fmt: skip

# Why a fitted tagger may be without some of them, and what to do.
DUAL = (
    "with the linear kernel, the solvers 'perceptron' and 'smoothing' (see solver_) and averages "
    "keep no dual variables; use solver='bcfw' and average=False"
)
LACKING = {
    "coef_": "only kernel='linear' has weights of features; other kernels have dual_coef_ and, but "
    "for 'precomputed', support_vectors_",
    "dual_coef_": DUAL, "support_": DUAL, "n_support_": DUAL,
    "support_vectors_": "only kernels other than 'linear' and 'precomputed' keep rows; support_ "
    "has the numbers of others, if it is there",
    "gamma_": "only kernel='poly' and 'rbf' have gamma",
    "objective_": "solver='perceptron' minimises no objective; use another solver",
    "dual_gap_": "solver='perceptron' has no dual; use another solver",
    "n_mistakes_": "only solver='perceptron' counts mistakes",
    "radius_": "only solver='perceptron' has a bound of its mistakes",
}  # fmt: skip


def _not_in_parts(tagger: Any) -> str | None:
    # Why the tagger cannot be trained on one batch after another, or None.
    if tagger.solver == "perceptron" and tagger.kernel == "linear":
        return None
    return (
        "it needs solver='perceptron' and kernel='linear', which keep no sequences; got "
        f"{tagger.solver!r} and {tagger.kernel!r}. Set these, or use fit."
    )


class HMSVMTagger(CallbackSupportMixin, ExplainMixin, KernelTagger):
    """Hidden Markov support vector machine: a tagger of maximum margin, with kernels.

    Trains by minimising, with F(x, y) the score of a labeling as in :class:`CRFTagger`,

        ½‖w‖² + C · Σ_i weight_i · ξ_i          (slack "l1"; "l2" has ξ_i²)

        ξ_i = max(0, max_{y ≠ y_i} loss(y_i, y) + F(x_i, y) - F(x_i, y_i)),

    so that every true labeling scores higher than any other by at least the loss of the other.
    Training also gives the value of the dual problem, so ``dual_gap_`` bounds the distance of the
    objective from its minimum.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the slacks; their sum is not divided by the number n of sequences, as in
        scikit-learn's LinearSVC. SVM^struct and SVM^hmm do divide: theirs is n · C.
        ``np.inf`` is a hard margin, for separable data.
    loss : {"hamming", "zero_one"}, array-like, dict or callable, default="hamming"
        Loss of a wrong labeling: 1 for each wrong label (margin rescaling), 1 in all (the
        paper's), or the sum of the costs of its wrong labels: entries of a matrix (n_labels,
        n_labels), true labels in rows; of a dict by (true label, wrong label), 1 where it has
        none; or returned by a callable of these two. Labels that y lacks may be in a dict.
    slack : {"l1", "l2"}, default="l1"
        Whether slacks are summed or their squares.
    kernel : {"linear", "poly", "rbf", "precomputed"} or callable, default="linear"
        Kernel between rows. A callable takes two matrices of rows and returns that of their
        kernels. With "precomputed", rows of X hold their kernel with each training row; after
        ``fit`` also with those of ``support_`` only, in its order.
    gamma : {"scale", "auto"} or float, default="scale"
        Of "poly", (gamma · x·z + coef0)^degree, and "rbf", exp(-gamma · ‖x - z‖²); names as in
        scikit-learn's SVC.
    degree : int, default=3
    coef0 : float, default=0.0
    transition_scale : float, default=1.0
        η of the paper: value of the features of transitions, and of the first and last label.
        Above 1, the chain counts more against the rows; 0 leaves it out.
    boundaries : bool, default=True
        Whether first and last labels have weights of their own; the paper has none.
    class_weight : dict, "balanced" or None, default=None
        Factor of the loss of a row, by its true label; "balanced" gives all labels the same sum
        over rows of this factor times ``sample_weight``. Not for ``loss="zero_one"`` and the
        perceptron.
    transition_features : None, list, array, str, re.Pattern or callable, default=None
        Columns with a weight for each pair of successive labels that occurs at them, as in
        :class:`CRFTagger`; for the linear kernel only. Their values are multiplied by
        ``transition_scale``. None: those that ``X.roles`` says, as templates with ``B`` lines set
        it.
    constraints : {"iob2", "iobes", "bilou"}, list of tuple, mask (n_labels, n_labels) or None
        Transitions that may occur, in training and in every answer, as in :class:`CRFTagger`.
    solver : {"auto", "bcfw", "working_set", "smoothing", "perceptron"}, default="auto"
        "bcfw": block-coordinate Frank–Wolfe, on w for the linear kernel and on the dual for
        others; with the linear kernel, slack "l1" and a loss that adds up over rows, the blocks
        are the pieces of sequences that some path gets wrong.
        "working_set": the paper's Algorithm 2, which solves the problem of one sequence after
        the other, with one new path an update where the paper stays until none is left.
        "perceptron": the paper's Algorithm 1 (there without the average); a wrong path that ties
        with the truth is a mistake; has no margin, so no ``C``, ``loss`` or ``slack``; ends early
        on separable data, with weights that make no mistake. "smoothing": L-BFGS on a softened
        maximum, sharpened until the gap is small; its cost is linear in the length of sequences
        (with kernels, n_rows² · L an iteration, and twice the memory of the Gram matrix); needs
        a finite ``C``, a loss that adds up over rows, and ``transition_scale`` above 0.
        "auto" is "smoothing" where it can be and the sequence of a row has 200 rows on average
        (1,000 if rows are sparse, of more than 1,000 columns, and the kernel is linear, and then
        only if slacks are squared), or the kernel is linear and there are at least 1,000 rows of
        columns that, times labels, are at most 40 (400 if rows are sparse), or ``C`` (at most 1 for
        more than 1,000 columns) times the largest mean square of a column is at least 100, as of
        columns that were not scaled; else "bcfw", which with the linear kernel, at least 1,000 rows
        and at most 100 dense columns or 2,000 columns times labels gives way to "smoothing" if its
        duality gap falls slowly.
        Each was the fastest to a small gap there, or nearly so, see the user guide.
    average : bool or "auto", default="auto"
        Whether weights are the average of all iterates (for "bcfw", of later ones more); "auto":
        for the perceptron. Not for "working_set" and "smoothing".
    max_iter : int or None, default=None
        Passes over the data, or iterations of L-BFGS; None: 10 for the perceptron, else 1000.
    tol : float, default=0.01
        Training stops when ``dual_gap_`` is at most this fraction of the objective.
    cache_size : float, default=1000
        Megabytes that the Gram matrix of kernels other than "linear" may take: 8 · n_rows². Where
        it would take more, kernels are computed on demand, in single precision, in each pass: of
        √(62,500 · cache_size) rows with each other, 7,900 by default, and of those whose
        coefficients change with all; not with "smoothing". For the linear kernel, those of single
        sequences, 8 · Σ T²; the longest do without where it ends.
    warm_start : bool, default=False
        Whether ``fit`` starts from the dual variables of the previous fit, which must have had
        sequences of the same lengths and the same labels; C, loss and weights may differ. An
        interrupt (Ctrl-C) then leaves the model of the passes made. Not for "perceptron" and
        "smoothing".
    n_jobs : int or None, default=None
        Threads, no more than there are free cores: in prediction, in training by "smoothing", and
        by "bcfw" with a large stored Gram matrix, without a hard margin and ``average=True``.
        These update different sequences at the same time and wait for one another; the weights
        depend on their number within ``tol``. With the linear kernel, "bcfw" has one thread. Of
        kernels that are computed on demand, most time is spent in BLAS, which has threads of its
        own. Scores of float32 models may differ in the last digits, as those of
        :class:`CRFTagger`.
    verbose : int, default=0
        Above 0, the objective or the mistakes of passes are printed.
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
    transition_coef_ : CSR matrix of shape (n_features, n_labels²), or None
        With transition features: score of a value 1 of feature f for label i followed by j at row
        f and column ``i * n_labels + j``.
    dual_coef_ : ndarray of shape (n_support, n_labels)
        Coefficients of the support rows. For the linear kernel, only where the solver is not the
        perceptron or "smoothing" and nothing is averaged.
    support_ : ndarray of shape (n_support,)
        Training rows, counted over all sequences, with coefficients other than 0; where there is
        ``dual_coef_``.
    n_support_ : int
        Number of these rows.
    support_vectors_ : ndarray or CSR matrix of shape (n_support, n_features)
        These rows; for kernels other than "linear" and "precomputed".
    support_sequences_ : list of SupportSequence
        Wrong labelings with α > 0, the largest α of a sequence first; of "bcfw" and "working_set"
        only. With ``average=True``, those of the last iterate. Made from their wrong parts at each
        access: a long sequence may have as many as rows.
    objective_, dual_gap_ : float
        Objective, and an upper bound of its distance from the minimum, which is at least what
        rounding errors may hide. Not for the perceptron.
    loss_curve_ : ndarray of shape (n_points, 4), for the perceptron (n_iter,)
        Rows (pass, primal objective, dual objective, gap), with ``average=True`` of the average so
        far. For the perceptron, the number of mistakes of each pass.
    n_mistakes_, radius_ : int, float
        Of the perceptron: mistakes made, at most (``radius_`` / margin)² of them on separable
        data, times (largest / smallest weight)² with ``sample_weight``.
    n_iter_ : int
        Passes done, or iterations; of ``solver_``.
    solver_ : str
        The solver that trained: what "auto" chose, else ``solver``.
    gamma_ : float
        Of "poly" and "rbf": the number that ``gamma`` stands for.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when fitted on feature dicts or attributes.
    vectorizer_ : DictFeatures or None
        Transformer of dicts into rows.

    Raises
    ------
    ValueError
        On bad parameters or data, before any work: see the message. Also if a hard margin is asked
        of data that prove to have none: the message names sequences that contradict each other.

    Warns
    -----
    ConvergenceWarning
        If ``tol`` was not reached in ``max_iter`` passes, or rounding hides whether it was; for a
        hard margin, also if it was neither found nor proved not to exist.

    Notes
    -----
    A pass costs O(nnz · L + n_rows · L²) for the linear kernel; for others, of every row whose
    label is moved, O(n_rows), with 8 · n_rows² bytes or, where these are more than ``cache_size``,
    with the kernels of its rows computed again. For many rows, approximate the kernel by
    scikit-learn's Nystroem before the linear kernel, see the user guide.

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
    ['D', 'N', 'V']
    >>> bool(tagger.dual_gap_ <= 0.01 * tagger.objective_)
    True
    """

    def __init__(
        self,
        *,
        C: float = 1.0,
        loss: LossLike = "hamming",
        slack: str = "l1",
        kernel: KernelLike = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        transition_scale: float = 1.0,
        boundaries: bool = True,
        class_weight: ClassWeightLike = None,
        transition_features: ChoiceLike | None = None,
        constraints: ConstraintsLike | None = None,
        solver: str = "auto",
        average: bool | str = "auto",
        max_iter: int | None = None,
        tol: float = 1e-2,
        cache_size: float = 1000,
        warm_start: bool = False,
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
        self.transition_features = transition_features
        self.constraints = constraints
        self.solver = solver
        self.average = average
        self.max_iter = max_iter
        self.tol = tol
        self.cache_size = cache_size
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    def __getattr__(self, name: str) -> Any:
        # Called for what is missing; vars() is empty while a pickle is read.
        member = next((vars(c)[name] for c in type(self).__mro__ if name in vars(c)), None)
        if hasattr(member, "__get__"):
            return member.__get__(self, type(self))  # raises again what brought us here
        if "classes_" in vars(self) and name in LACKING:
            raise AttributeError(
                f"This {type(self).__name__} has no {name}: {LACKING[name]}.", name=name, obj=self
            )
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
        )

    # ------------------------------------------------------------------ training

    @with_callbacks(max_subtasks=lambda tagger: tagger.max_iter)
    def fit(self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train on labelled sequences.

        Parameters
        ----------
        X : list of sequences
            In any form that :class:`CRFTagger` takes, but neither blocks of rows nor shards.
        y : list of label sequences
        sample_weight : array-like of shape (n_sequences,), optional
            Factor of ``C``, and of the updates of the perceptron; 0 leaves a sequence out.

        Returns
        -------
        HMSVMTagger
            The estimator itself.
        """
        self._check_parameters()
        source = RowSource.read(X, y, sample_weight)
        if self.kernel == "linear" and self.solver != "perceptron":
            offset_cost = len(source.classes) ** 2 / (2 * self.C)
            warn_columns(source.X.rows, source.weights, 1 / self.C, f"C={self.C}", offset_cost)
        with Threads(self.n_jobs) as threads:
            problem = MarginProblem(self, source, threads=threads)
            try:
                result = problem.solve()
            except KeyboardInterrupt:
                if self.warm_start and problem.n_passes:
                    self._set(problem, problem.reached())
                raise
        return self._set(problem, result)

    def _set(self, problem: MarginProblem, result: SolverResult) -> Self:
        warn_one_label(problem.source.classes)
        set_fitted(self, problem.attributes() | problem.outcome(result), FITTED)
        self._warn_convergence(result, problem.source.X.rows)
        return self

    def _warn_convergence(self, result: SolverResult, rows: Any) -> None:
        stopped = "callback" in result.message or result.message == "interrupted"
        if result.converged or self.solver == "perceptron" or stopped:
            return
        advice = "raise max_iter or tol, or lower C"
        if result.message == ROUNDING:
            advice = "rounding keeps the gap from getting smaller: raise tol, or lower C"
        elif self.kernel == "linear":
            other = "bcfw" if self.solver_ == "smoothing" else "smoothing"
            advice += scaling_advice(rows) + f", or take solver={other!r}"
        if np.isinf(float(self.C)):
            advice = (
                "a hard margin needs separable data: if these are not, no number of passes is "
                "enough; give a finite C (such as 100), or raise max_iter"
            )
        warnings.warn(
            f"HMSVMTagger did not converge in {result.n_iter} passes (objective "
            f"{self.objective_:.6g}, duality gap {self.dual_gap_:.3g}, tol={self.tol}); {advice}.",
            ConvergenceWarning,
            stacklevel=4,
        )

    def _check_parameters(self) -> None:
        check_plain_parameters(self)
        cost = self.C
        if not is_number(cost) or not (0 < cost <= 1e100 or cost == np.inf):
            raise ValueError(
                "C must be a number above 0 and at most 1e100 (np.inf for a hard margin); got "
                f"{cost!r:.60}."
            )
        check_numbers(self, "tol", "transition_scale", "cache_size")
        check_number("max_iter", self.max_iter, 1, whole=True, optional=True)
        check_choices(
            self, slack=("l1", "l2"), solver=("auto", *PASSES), average=("auto", True, False)
        )
        check_choice_of_columns(self.transition_features)
        if self.solver == "working_set" and self.average is True:
            raise ValueError(
                "average=True needs solver='bcfw' or 'perceptron'; got 'working_set', whose last "
                "weights are its best."
            )
        if self.solver == "perceptron" and self.class_weight is not None:
            raise ValueError(
                "class_weight weighs the loss, which solver='perceptron' does not have; use "
                "another solver, or sample_weight."
            )
        if self.solver == "perceptron" and self.warm_start:
            raise ValueError(
                "warm_start=True needs dual variables, which solver='perceptron' does not keep; "
                "use another solver, or warm_start=False."
            )
        check_n_jobs(self.n_jobs)
        check_kernel(self)

    @missing_if(_not_in_parts)
    def partial_fit(
        self,
        X: SequencesLike,
        y: LabelsLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """One pass of the perceptron over a batch of sequences; for the linear kernel.

        The weights after P calls with the same data are those of ``fit`` after P passes over them
        in the same orders: with ``random_state`` a RandomState, orders are the same. (``fit`` ends
        after a pass without mistakes.)

        Parameters
        ----------
        X : list of sequences
            Of columns that stay the same. Dicts and attribute lists have the columns of the first
            call: attributes that come later are left out, with one warning. Later calls may have
            no rows, or only weights of 0; these change nothing.
        y : list of label sequences
        classes : array-like of shape (n_labels,), optional
            All labels there will be; needed in the first call.
        sample_weight : array-like of shape (n_sequences,), optional
            Factor of the updates; 0 leaves a sequence out.

        Returns
        -------
        HMSVMTagger
            The estimator itself.

        Raises
        ------
        ValueError
            After ``fit``, or if labels or columns are new; nothing has changed then.
        AttributeError
            If the solver is not "perceptron" or the kernel not "linear".

        Notes
        -----
        Costs O(nnz · L + n_rows · L²), and O(n_features · L) a call: batches of a few hundred
        sequences make that small. Beside the weights, the last ones and their sums are kept.

        Examples
        --------
        >>> import numpy as np
        >>> from sklseq import HMSVMTagger
        >>> X, y = [np.eye(3), np.eye(3)[:2]], [["a", "b", "c"], ["a", "b"]]
        >>> tagger = HMSVMTagger(solver="perceptron", random_state=0)
        >>> for _ in range(5):
        ...     tagger = tagger.partial_fit(X, y, classes=["a", "b", "c"])
        >>> tagger.score(X, y)
        1.0
        """
        self._check_parameters()
        vars(self).update(fit_batch(self, X, y, classes, sample_weight))
        return self

    @property
    def support_sequences_(self) -> list[SupportSequence]:
        """Wrong labelings with α > 0, by training sequence, the largest α first."""
        check_is_fitted(self, "classes_")
        if not hasattr(self, "support_index_"):
            raise AttributeError(
                "solver='perceptron' and 'smoothing', which 'auto' may be, see solver_, have no "
                "support_sequences_; use 'bcfw' or 'working_set'."
            )
        paths = kept_paths(self)
        return [
            SupportSequence(s, self.classes_[labels], alpha)
            for s, labels, alpha in paths.labelings(self.truth_offsets_, self.truth_labels_)
        ]

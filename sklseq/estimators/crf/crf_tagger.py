"""Linear-chain conditional random fields."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklseq._lib.available import missing_if
from sklseq._lib.callbacks import CallbackSupportMixin, with_callbacks
from sklseq._lib.checks import check_choice, check_number, is_number
from sklseq._lib.estimator import check_plain_parameters, set_fitted
from sklseq._lib.threads import check_n_jobs
from sklseq.data.column_roles import check_choice_of_columns
from sklseq.data.input_kinds import in_blocks
from sklseq.data.labels import cut_rows, find_codes, read_labels
from sklseq.data.segment_labels import read_queries
from sklseq.data.sequences import Sequences
from sklseq.data.span_rules import SpanRules, span_rules
from sklseq.data.types import (
    ArrayLike,
    ChoiceLike,
    ConstraintsLike,
    LabelsLike,
    RandomState,
    SequencesLike,
    ValidLike,
)
from sklseq.estimators.base import BaseTagger
from sklseq.estimators.column_units import scaling_advice, warn_columns
from sklseq.estimators.token_explanation import ExplainMixin
from sklseq.estimators.validation import (
    ATTRIBUTES_WARNED,
    LARGEST_PENALTY,
    check_choices,
    check_numbers,
    check_room,
    refuse_options,
    warn_new_attributes,
    warn_one_label,
)
from sklseq.estimators.weights import check_weights, dense_weights
from sklseq.inference import entropy, sample
from sklseq.inference.chain.linear_chain import as_generator
from sklseq.inference.chain.path_scores import path_scores
from sklseq.inference.chain.span_sums import span_probabilities
from sklseq.objectives.scores.scored_rows import Potentials, ScoredRows

if TYPE_CHECKING:  # importing it takes as long as importing the tagger
    from sklearn.model_selection import BaseCrossValidator

# Aliases from the papers: "eg" is "dual", "emp" is "streaming", "owlqn" is "lbfgs" with l1 > 0.
SOLVERS = ("auto", "dual", "eg", "adagrad", "lbfgs", "owlqn")
GRADIENTS = ("auto", "forward-backward", "checkpoint", "streaming", "emp")
DECODINGS = ("path", "marginal")


# Attributes that only some ways of training set; `fit` removes those of an earlier fit.
STALE = {"validation_scores_", "n_seen_", "_squares", ATTRIBUTES_WARNED, "feature_names_in_"}


def _not_in_parts(tagger: Any) -> str | None:
    # Why the tagger cannot be trained on one batch after another, or None.
    if not tagger.early_stopping:
        return None
    return "it cannot set sequences aside (early_stopping=True); use early_stopping=False, or fit."


class CRFTagger(CallbackSupportMixin, ExplainMixin, BaseTagger):
    """Linear-chain conditional random field.

    Trains by minimising

        -Σ_s weight_s · log p(y_s | x_s) + l1 · ‖w‖₁ + l2 · ‖w‖²₂,

        p(y | x) = exp(s(y)) / Z,   s(y) = start(y_1) + Σ_t x_t · coef(:, y_t)
                                           + Σ_t transition(y_{t-1}, y_t) + end(y_T),

    over all weights w = (coef, transition, start, end). ``l1`` and ``l2`` are the c1 and c2 of
    CRFsuite, on the same scale. With ``transition_features``, s(y) also has
    Σ_t x_t · transition_coef(:, y_{t-1}, y_t), t > 1, see :doc:`/transitions`.

    Parameters
    ----------
    l1 : float, default=0.0
        Weight of the L1 penalty; above 0, many weights become exactly 0.
    l2 : float, default=0.1
        Weight of the squared L2 penalty. CRFsuite's default is 1, which is often too much for
        training sets of a few hundred sequences (:ref:`measurements <bench-l2>`).
    solver : {"auto", "dual", "adagrad", "lbfgs"}, default="auto"
        "dual": exponentiated gradient ascent in the dual (alias "eg"), one sequence at a time, with
        a duality gap as certificate; ``l2 > 0`` only; the fastest with strong penalties. "adagrad":
        10 passes of stochastic gradient steps, one sequence at a time (7 with few features), then
        "lbfgs" with second derivatives for frequent features as its initial Hessian: half the time
        of "lbfgs" alone, or less. "lbfgs": all data at once; with ``l1 > 0``, on the weights that
        are not held at zero (alias "owlqn"). "auto": "lbfgs" for dense data, fewer than 1,000 rows,
        or a start from earlier weights (``warm_start``); otherwise "dual" if ``l2`` is at least an
        eighth of the mean squared norm of a row (the number of its features, if all values are
        one), a quarter for fewer than 10,000 rows, unless half of the rows are in sequences of more
        than 100; otherwise "adagrad", or "lbfgs" for fewer than 10,000 rows. "dual" keeps 8 bytes
        for each row and label, for each sequence and transition that has a weight, and for each row
        and pair of labels that has one with a transition feature of the row; "auto" does not take
        it if that is more than four times ``sklearn.get_config()["working_memory"]`` MiB, nor for
        transition features with ``all_possible_transitions``. "dual" and "adagrad" need the
        gradients "auto" or "forward-backward".
    gradient : {"auto", "forward-backward", "checkpoint", "streaming"}, default="auto"
        Computation of gradients; all give the same numbers.

        - "forward-backward" keeps a few numbers for each row and label of a sequence.
        - "checkpoint" keeps O(√T) rows of T and computes the others twice. Reads rows in any order:
          from memory, memory maps and ``.npy`` files.
        - "streaming" (alias "emp", for entropy message passing) reads rows once per evaluation
          from any source, in memory that does not depend on T: block by block it runs the forward
          recursion, then the backward one over those rows of a block whose counts its last label
          does not determine. Up to n_labels times as slow where labels rarely change.
        - "auto" is forward-backward where that fits into ``sklearn.get_config()
          ["working_memory"]`` MiB, for rows in blocks 128 MiB at most, else streaming, and
          checkpoint instead where rows can be read in any order and streaming would need more time
          or memory; ``verbose`` prints the choice.
    all_possible_states : bool, default=False
        Whether every (feature, label) pair has a weight, or only those seen in training: as in
        CRFsuite, a dict has its attributes of value 0 or False too. So do sparse rows with the
        zeros that they store; dense rows have the features that are not 0. With all pairs
        and ``l2 > 0``, weights that cannot lower the objective by a part of ``tol`` may stay 0.
    all_possible_transitions : bool, default=False
        The same for transitions, starts and ends, and transition features. A transition without a
        weight scores 0; only ``constraints`` forbid.
    transition_features : None, list, array, str, re.Pattern or callable, default=None
        Columns with a weight for each pair of successive labels, beside those for labels: numbers
        or names of columns, a mask, a regular expression that is searched for in names, or a
        function of a name. Names are those of dicts and attribute lists. None: the columns marked
        in ``X.roles``, which templates with ``B`` lines set; the chosen columns are added to these.
    constraints : {"iob2", "iobes", "bilou"}, list of tuple, mask (n_labels, n_labels) or None
        Transitions that may occur, in training and in predictions. The schemes also constrain the
        first and last label. A list has the forbidden pairs (label, next label); (None, label)
        forbids a first label, (label, None) a last one. A mask, of booleans or of 0 and 1, is true
        for allowed transitions: from rows to columns, in the order of the sorted labels.
    boundaries : bool, default=True
        Whether first and last labels have weights of their own. False gives exactly the model of
        CRFsuite.
    entropy_weight : float, default=0.0
        Weight of Σ_s weight_s · H(p(· | x_s)), the entropy of the labelings of the sequences of
        which no label is known (sets of all labels count as not known), in the objective, so that
        the model labels them with confidence. 0 leaves these sequences out. On text, it lowers F1:
        see the manual. Above 0, only with ``label_proportions=None``, sequences in memory,
        ``gradient`` "auto" or "forward-backward" and, where labels are unknown, the solver "lbfgs".
    label_proportions : dict, or None, default=None
        Proportions of labels among the rows of X whose label is unknown in y (expectation
        constraints). The objective gets proportions_weight · N · KL(p̃ ‖ q): p̃ are these
        proportions, q is the mean label distribution of the model over the N rows, weighted by
        ``sample_weight``. Labels that are not in the dict are pooled: their total is the remaining
        proportion. Rows with sets of labels do not count, unless these are all labels; without
        unknown labels, nothing changes. A value may itself be such a dict: its key is a column of X
        (its name if fit reads dicts, otherwise its number), and it applies to the rows where this
        column is not 0. Only with ``entropy_weight=0``, and the limits of ``entropy_weight``.
    proportions_weight : float, default=1.0
        Weight of this term; with 1, it counts as much as N labels drawn with these proportions.
    decode : {"path", "marginal"}, default="path"
        How ``predict``, ``score`` and ``predict_spans`` find labels; used after training, so that
        ``set_params`` changes it at once. "path": the best label path (Viterbi). "marginal": at
        each row the label with the largest probability in :meth:`predict_proba`, the first of equal
        ones, so that the fewest rows are expected to be wrong. ``constraints`` then hold for each
        label, but not for their sequence: an I-PER may follow an O. No ``valid``. Labels of a
        sequence in blocks are known once all of it is read; until then, temporary files hold
        8 · n_labels bytes a row. :class:`OnlineDecoder`, n best paths and the sets of
        :class:`ConformalTagger` do not depend on it.
    max_iter : int, default=500
        Iterations of the solver. Passes over the data by "dual" and "adagrad" count, together with
        the iterations of "lbfgs" after them.
    tol : float, default=1e-2
        Fraction of the objective by which it may exceed its minimum. 1e-2 is enough for prediction:
        on seven corpora with six penalties each, smaller gaps change F1 or accuracy by 0.00 points
        on average, with a standard deviation of 0.25. "dual" stops when the duality gap proves the
        tolerance; below 1e-5, and if the proof takes long (weak penalties), "lbfgs" continues.
        "lbfgs" stops when the gradient proves the tolerance, if ‖v‖² / (4 · l2) is at most ``tol``
        of the objective, where v is the subgradient of least norm; or by an estimate: if each
        period of ten iterations, or of a fifth of all, lowers the objective by at most r times as
        much as the period before, and the last one by d, the estimate is 2 · d / (1 - r). After
        "adagrad", periods have at least five iterations, and the estimate is d / (1 - r), or the
        rest of a decrease by a power of the number of iterations, if that is more. (In 61 runs on
        six corpora after "adagrad", no excess was above ``tol`` at 1e-2, and 5 at 1e-3, 1.7 times
        ``tol`` at most.) With at most 512 weights and 30 labels, and rows in memory, a quadratic
        model of the objective checks the estimate. It proves nothing, and for more weights, with
        columns of very different units, estimates can be too low: scale these columns.
    warm_start : bool, default=False
        Whether ``fit`` starts from the weights of the previous one. Weights that its
        constraints forbade start at 0.
    early_stopping : bool, default=False
        Whether to set sequences aside, stop when their score no longer rises, and keep the
        weights with which it was highest.
    validation_fraction : float or splitter, default=0.1
        Fraction of the sequences set aside; or a splitter of scikit-learn, such as
        ``PredefinedSplit`` for a given development set, whose first test part is set aside. Of
        ``Shards``, a splitter sets whole shards aside.
    n_iter_no_change : int, default=5
        Iterations without a higher score after which training stops.
    n_jobs : int or None, default=None
        Threads, in training and prediction; sequences in blocks use one. With "adagrad" and "dual",
        weights depend on their number, within ``tol``: rows with hardly informative features may
        get other labels. With float32, scores and probabilities of long dense sequences may differ
        in the last digits with the number of threads, and of sequences in one call; predicted
        labels are the same.
    verbose : int, default=0
        Above 0, the choices of gradient and solver are printed with their reasons, and after each
        iteration the solver's name and the objective, at the cost of an evaluation per pass of
        "dual" and "adagrad".
    random_state : int, RandomState instance or None, default=None
        Seed of :meth:`sample`, and of the order of sequences in training (None: always the same).

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        Labels, sorted; in the order of the file for a model of CRFsuite.
    coef_ : ndarray of shape (n_features, n_labels)
        State weights.
    transition_ : ndarray of shape (n_labels, n_labels)
        Weights of label i followed by j; -inf where forbidden.
    start_, end_ : ndarray of shape (n_labels,)
        Weights of the first and of the last label.
    transition_coef_ : CSR matrix of shape (n_features, n_labels²), or None
        With transition features: weight of feature f for label i followed by j at row f and column
        ``i * n_labels + j``.
    n_iter_ : int
        Iterations done.
    solver_ : str
        The solvers that ran, e.g. "adagrad+lbfgs"; "adagrad" after :meth:`partial_fit`.
    objective_ : float
        Objective of the fitted weights. After :meth:`partial_fit`, Σ_s weight_s · -log p(y_s | x_s)
        over the sequences of the last call, each before its own update, without penalties.
    loss_curve_ : list of float
        Objective at the start and after each iteration; "dual" evaluates it where its gap may be
        small enough, "adagrad" before and after its passes. After :meth:`partial_fit`,
        ``objective_`` of each call.
    validation_scores_ : list of float
        Only with ``early_stopping``: score of the sequences set aside, after each iteration.
    n_seen_ : int
        Only after :meth:`partial_fit`: number of updates so far, one for each sequence, or piece of
        a sequence in blocks, that has rows and a positive weight.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only when fitted on feature dicts or attributes.
    vectorizer_ : DictFeatures or None
        Transformer of dicts into rows.

    Raises
    ------
    ValueError
        On bad parameters or data, before any work: see the message.

    Notes
    -----
    An iteration costs O(nnz · L + n_rows · L²), where nnz is the number of feature values. float32
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
    ['D', 'N', 'V']
    >>> tagger.score(X, y)
    1.0
    """

    def __init__(
        self,
        *,
        l1: float = 0.0,
        l2: float = 0.1,
        solver: str = "auto",
        gradient: str = "auto",
        all_possible_states: bool = False,
        all_possible_transitions: bool = False,
        transition_features: ChoiceLike | None = None,
        constraints: ConstraintsLike | None = None,
        boundaries: bool = True,
        entropy_weight: float = 0.0,
        label_proportions: Mapping[Any, Any] | None = None,
        proportions_weight: float = 1.0,
        decode: str = "path",
        max_iter: int = 500,
        tol: float = 1e-2,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float | BaseCrossValidator = 0.1,
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
        self.transition_features = transition_features
        self.constraints = constraints
        self.boundaries = boundaries
        self.entropy_weight = entropy_weight
        self.label_proportions = label_proportions
        self.proportions_weight = proportions_weight
        self.decode = decode
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
            sequences, a bag of labels. Shards and pairs have their own. Labels may be unknown: None
            or NaN, or a set of possible labels. -log p(y_s | x_s) is then -log of the probability
            of all labelings that agree with y_s; the minimum is a local one, and "dual" does not
            find it.
        sample_weight : array-like of shape (n_sequences,), optional
            0 leaves a sequence out, with labels, pairs and transitions that only it has.

        Returns
        -------
        CRFTagger
            The estimator itself.
        """
        self._check_parameters()
        # A model that only predicts loads neither sources nor solvers.
        from sklseq.estimators.crf.crf_problem import CRFProblem, check_source
        from sklseq.estimators.sources.open_source import open_source
        from sklseq.estimators.sources.partial_source import Unlabelled
        from sklseq.estimators.sources.source import RowSource
        from sklseq.objectives.likelihood.gradient_plan import explain_memory_error

        source = open_source(X, y, sample_weight, self.gradient, Unlabelled.of(self))
        check_source(self, source)
        with source:
            summary = source.summarise()
            if isinstance(source, RowSource):
                rows, weights = source.X.rows, source.weights
                offset_cost = self.l2 * len(summary.classes) ** 2
                warn_columns(rows, weights, 2 * self.l2, f"l2={self.l2}", offset_cost)
            if self.verbose:
                print(f"[CRFTagger] gradient {source.plan.gradient!r}: {source.plan.why}")
            problem = CRFProblem(self, source, summary)
            with (
                explain_memory_error(source.plan),
                problem.report.last_kept(lambda result: self._set(problem, result)),
            ):
                result = problem.solve()
        return self._set(problem, result)

    def _set(self, problem, result) -> CRFTagger:
        problem.scores.design.release()  # so that its memory can hold the weights
        self._warn(result, problem)
        trained = {"n_iter_": result.n_iter, "objective_": result.value}
        trained |= {"loss_curve_": result.history, "solver_": "+".join(problem.ran)}
        if problem.validation is not None:
            trained["validation_scores_"] = problem.validation.scores
        fitted = problem.attributes(result.w) | trained
        set_fitted(self, fitted, STALE)
        return self

    def _warn(self, result, problem) -> None:
        warn_one_label(problem.classes)
        if not result.converged:
            X = getattr(problem.source, "X", None)  # None: rows are not in memory
            scaling = scaling_advice(X.rows) if isinstance(X, Sequences) else ""
            advice = "raise max_iter, tol or l2"
            if result.message == "rounding":
                wider = "give X as float64, " if result.w.dtype == np.float32 else ""
                advice = f"rounding prevents further steps: {wider}raise tol or l2"
            warnings.warn(
                f"CRFTagger did not converge in {result.n_iter} iterations of at most "
                f"max_iter={self.max_iter}: nothing shows that the objective, {result.value:.6g}, "
                f"is within a fraction tol={self.tol} of its minimum; {advice}{scaling}.",
                ConvergenceWarning,
                stacklevel=4,
            )

    def _check_parameters(self) -> None:
        check_plain_parameters(self)
        check_numbers(self, "l1", "l2", most=LARGEST_PENALTY)
        check_numbers(self, "tol", "entropy_weight", "proportions_weight")
        check_numbers(self, "max_iter", "n_iter_no_change", least=1, whole=True)
        check_choices(self, solver=SOLVERS, gradient=GRADIENTS, decode=DECODINGS)
        check_choice_of_columns(self.transition_features)
        check_n_jobs(self.n_jobs)
        fraction = self.validation_fraction
        is_splitter = hasattr(fraction, "split") and not isinstance(fraction, str)
        if not is_splitter and not (is_number(fraction) and 0 < fraction < 1):
            raise ValueError(
                "validation_fraction must lie between 0 and 1, or be a splitter such as "
                f"PredefinedSplit; got {fraction!r}."
            )
        if self.solver in ("dual", "eg") and self.l2 == 0:
            raise ValueError(
                f"solver={self.solver!r} needs l2 > 0; got 0. Raise l2, or use solver='lbfgs'."
            )
        if self.solver in ("dual", "eg") and self.warm_start:
            raise ValueError(
                f"solver={self.solver!r} cannot start from given weights (warm_start=True); use "
                "solver='adagrad' or 'lbfgs', or warm_start=False."
            )

    @missing_if(_not_in_parts)
    def partial_fit(
        self,
        X: SequencesLike,
        y: LabelsLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Train on one batch of sequences, by one pass of ``solver="adagrad"``.

        All states and transitions get weights, whatever ``all_possible_states`` is, because those
        of later batches are unknown. Transition features get weights for the label pairs seen so
        far, or for all with ``all_possible_transitions``. Starts from the weights of the previous
        call, or of :meth:`fit`. The penalties count once for all sequences seen so far.

        Parameters
        ----------
        X : list of sequences
            Arrays, CSR matrices or ``Sequences`` with the same columns in each call, as from
            extractors with ``n_features=2**k``. Dicts and attribute lists only after :meth:`fit`,
            which learns their columns: new attributes are ignored, with one warning. A sequence in
            blocks, see :class:`RowBlocks`, is read once and cut into pieces of 256 rows, each of
            which is one update; transitions between pieces, starts and ends must satisfy
            ``constraints``, but are not trained.
        y : list of label sequences
            Labels may be unknown, as in :meth:`fit`.
        classes : array-like, optional
            All labels that can ever occur; needed in the first call.
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If labels or columns are new. The estimator is unchanged.

        Notes
        -----
        Costs O(nnz · L + n_rows · L²), and O(n_features · L) per call, which is small beside the
        rest for batches of a few hundred sequences. Weights are float64, sums of squares float32.

        Examples
        --------
        >>> import numpy as np
        >>> from sklseq import CRFTagger
        >>> X, y = [np.eye(3), np.eye(3)[:2]], [["a", "b", "c"], ["a", "b"]]
        >>> tagger = CRFTagger()
        >>> for _ in range(20):
        ...     tagger = tagger.partial_fit(X, y, classes=["a", "b", "c"])
        >>> tagger.score(X, y)
        1.0
        """
        self._check_parameters()
        from sklseq.estimators.crf.partial_fit import fit_batch, fit_blocks  # not to predict

        if in_blocks(X):
            vars(self).update(fit_blocks(self, X, y, classes, sample_weight))
            return self
        rows = None
        if hasattr(self, "coef_"):
            rows = self._read(X)
            warn_new_attributes(self, X)
        squares = getattr(self, "_squares", None)
        vars(self).update(fit_batch(self, rows, X, y, classes, sample_weight, squares))
        return self

    # ------------------------------------------------------------------ labels

    def _decoding(self, valid: ValidLike | None = None) -> str:
        check_choice("decode", self.decode, DECODINGS)
        if valid is not None and self.decode == "marginal":
            raise ValueError(
                "valid needs decode='path': label paths can be ranked until one is valid, labels "
                "of rows cannot; got decode='marginal'."
            )
        return self.decode

    def _block_decoder(self):
        decoder = super()._block_decoder()
        if self._decoding() == "path":
            return decoder
        from sklseq.estimators.block_sums import MarginalDecoder  # not needed to predict labels

        return MarginalDecoder(*decoder)

    # ------------------------------------------------------------------ probabilities

    def predict_proba(
        self, X: SequencesLike, known: LabelsLike | None = None, *, out: np.ndarray | None = None
    ) -> list[np.ndarray]:
        """Marginal probability of each label at each row.

        Parameters
        ----------
        X : list of sequences
            Also in blocks of rows, see :class:`RowBlocks`, each of which is read once.
        known : list of label sequences, optional
            As in :meth:`predict`: probabilities are conditional on these labels.
        out : float64 array or memory map of shape (n_rows, n_labels), optional
            Array for the probabilities of the rows of all sequences, one sequence after the other.
            With sequences in blocks, memory then holds one block. After an error, the contents of
            ``out`` are undefined.

        Returns
        -------
        list of ndarray of shape (n_steps, n_labels)
            Views of ``out`` if it is given.
        """
        if in_blocks(X):
            check_weights(self)
            check_room(out, len(self.classes_))
            refuse_options("predict_proba", known=known)
            return self._block_sums().predict_proba(X, out, self.coef_.dtype)
        return self._probabilities(X, known, out)

    def path_entropy(self, X: SequencesLike) -> np.ndarray:
        """Entropy of the label paths of each sequence, in nats.

        Parameters
        ----------
        X : list of sequences
            Also in blocks of rows, each of which is read once.

        Returns
        -------
        ndarray of shape (n_sequences,)
            See :func:`sklseq.inference.entropy`.
        """
        if in_blocks(X):
            return self._block_sums().entropy(X)
        emission, transition, start, end, offsets = self.potentials(X)
        return entropy(emission, transition, offsets, start=start, end=end)

    def _block_sums(self):
        from sklseq.estimators.block_sums import BlockSums  # not needed to predict labels

        return BlockSums(super()._block_decoder())

    def _span_probabilities(
        self, potentials: Potentials, spans: tuple, rules: SpanRules
    ) -> np.ndarray | None:
        return span_probabilities(potentials, spans, rules)

    def predict_segment_proba(
        self, X: SequencesLike, segments: LabelsLike | None = None, *, scheme: str | None = None
    ) -> list[np.ndarray]:
        """Probability that each of given segments is a span, with its label and both its ends.

        It is the sum of p(y | x) over all label paths y that contain the span under ``scheme``: a
        span as in the metrics, with both ends and the type correct.

        Parameters
        ----------
        X : list of sequences
        segments : list of lists of (start, stop, label), optional
            They may overlap; a segment with a label that was not in training has probability 0. By
            default, the spans of :meth:`predict_spans`.
        scheme : str or None, default=None
            As in :meth:`predict_spans`.

        Returns
        -------
        list of ndarray of shape (n_segments,)

        Raises
        ------
        ValueError
            If a segment is not inside its sequence, or a label of the model does not belong to the
            scheme.

        Notes
        -----
        Sums over constrained paths, not products of marginals. Costs O(n_rows · n_labels²), as
        :meth:`predict_proba`, and O(n_labels · m + m² · length) per segment, where m is the number
        of labels of its type.
        """
        if segments is None:
            found = self.predict_spans(X, scheme=scheme)
            return [np.array([span.probability for span in one], dtype=float) for one in found]
        potentials, rules = self.potentials(X), span_rules(self.classes_, scheme)
        offsets = potentials.offsets
        sequence, start, stop, type_ = read_queries(segments, np.diff(offsets), rules.types)
        spans = start + offsets[sequence], stop + offsets[sequence], type_
        proba = span_probabilities(potentials, spans, rules)
        return list(cut_rows(proba, np.searchsorted(sequence, np.arange(len(offsets)))))

    def predict_log_proba_sequence(self, X: SequencesLike, y: LabelsLike) -> np.ndarray:
        """log p(y_s | x_s) of whole label sequences.

        It is -inf if ``constraints`` forbid a sequence, or a label was not in training.

        Parameters
        ----------
        X : list of sequences
            Also in blocks of rows, each of which is read once.
        y : list of label sequences

        Returns
        -------
        ndarray of shape (n_sequences,)
        """
        if in_blocks(X):
            return self._block_sums().log_proba(X, y)
        X = self._read(X)
        codes = find_codes(read_labels(y, X), self.classes_)
        rows = self._scored(X)
        rows.relative = True
        scores = path_scores(*rows.potentials(), codes)
        return np.minimum(scores - rows.sums(), 0)  # a sum above 0 is rounding

    _scores_are_relative = True  # log-probabilities

    def _log_normalisers(self, rows: ScoredRows) -> np.ndarray:
        return rows.sums()

    def sample(
        self, X: SequencesLike, n_samples: int = 1, random_state: RandomState = None
    ) -> list[np.ndarray]:
        """Label paths drawn from p(y | x).

        Parameters
        ----------
        X : list of sequences
        n_samples : int, default=1
            Number of paths per sequence.
        random_state : int, RandomState, Generator or None
            None: the ``random_state`` of the estimator.

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

    # ------------------------------------------------------------------ size

    def sparsify(self) -> Self:
        """Store ``coef_`` as a CSR matrix: smaller files for models with many zeros.

        Predictions stay bitwise equal; the first one after loading unpacks the weights.
        With ``l1 > 0``, or observed states only, most weights are zero.

        Returns
        -------
        self : estimator
        """
        check_weights(self)
        if not sparse.issparse(self.coef_):
            self.coef_ = sparse.csr_matrix(self.coef_)
        return self

    def densify(self) -> Self:
        """Store ``coef_`` as an array again.

        Returns
        -------
        self : estimator
        """
        check_weights(self)
        self.coef_ = dense_weights(self.coef_)
        return self

    def prune(self, threshold: float = 0.0) -> Self:
        """Set state weights of magnitude ``threshold`` or less to 0.

        If the tagger itself reads dicts or attribute lists, attributes without a nonzero weight are
        removed. Transitions, starts, ends and the weights of transition features do not change.

        Parameters
        ----------
        threshold : float, default=0.0
            0 changes no prediction.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If the threshold is negative or not a number.
        """
        check_weights(self)
        check_number("threshold", threshold)
        was_sparse = sparse.issparse(self.coef_)
        coef = dense_weights(self.coef_)
        coef = np.where(np.abs(coef) > threshold, coef, np.zeros((), dtype=coef.dtype))
        if getattr(self, "vectorizer_", None) is not None:
            kept = coef.any(axis=1)
            if self.transition_coef_ is not None:
                kept |= np.diff(self.transition_coef_.indptr) > 0
            kept[0] |= not kept.any()  # a model needs a feature
            self.vectorizer_ = copy(self.vectorizer_).restrict(kept)  # copies of this tagger use it
            self.feature_names_in_ = self.vectorizer_.get_feature_names_out()
            self.n_features_in_ = len(self.feature_names_in_)
            coef = coef[kept]
            if self.transition_coef_ is not None:
                self.transition_coef_ = self.transition_coef_[kept]
                self._roles = self._roles[kept]
            if hasattr(self, "_squares"):
                from sklseq.estimators.crf.partial_fit import squares_of_columns  # not to predict

                self._squares = squares_of_columns(self._squares, kept, len(self.classes_))
        self.coef_ = coef
        return self.sparsify() if was_sparse else self

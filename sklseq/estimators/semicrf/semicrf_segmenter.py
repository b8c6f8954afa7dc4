"""Semi-Markov conditional random field, an estimator that labels segments."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from sklseq._lib.available import missing_if
from sklseq._lib.callbacks import CallbackSupportMixin, is_stopped, with_callbacks
from sklseq._lib.checks import check_number, is_number
from sklseq._lib.estimator import (
    LabellerBase,
    check_plain_parameters,
    fitted_parameter,
    set_fitted,
)
from sklseq._lib.ragged import offsets_of
from sklseq._lib.threads import check_n_jobs
from sklseq.data.column_roles import check_choice_of_columns
from sklseq.data.input_kinds import check_one_sequence
from sklseq.data.labels import cut_rows, find_codes
from sklseq.data.segment_labels import (
    Span,
    iob2_codes,
    iob2_names,
    labels_of_segments,
    read_queries,
    read_segments,
    write_segments,
)
from sklseq.data.segment_potentials import SegmentPotentials, SequencePotentials
from sklseq.data.sequences import check_sample_weight
from sklseq.data.types import (
    ArrayLike,
    ChoiceLike,
    LabelsLike,
    MatrixLike,
    RandomState,
    SequencesLike,
    TokensLike,
    ValidLike,
)
from sklseq.estimators.column_units import warn_columns
from sklseq.estimators.label_output import LabelOutputMixin, as_chosen, cut_labels
from sklseq.estimators.semicrf.segment_explanation import SegmentExplanation, segment_terms
from sklseq.estimators.semicrf.segment_program import (
    asked_cells,
    label_limits,
    limits_of,
    map_blocks,
    potentials_of,
    program_of,
    scores_of,
    segment_sums,
)
from sklseq.estimators.semicrf.segment_source import (
    SegmentSource,
    divided_weights,
)
from sklseq.estimators.validation import (
    LARGEST_PENALTY,
    check_choices,
    check_handle_invalid,
    check_numbers,
    nothing_to_score,
    warn_one_label,
)
from sklseq.estimators.weights import WeightsMixin
from sklseq.inference.chain.linear_chain import (
    as_generator,
)
from sklseq.inference.chain.row_transitions import pair_scores
from sklseq.inference.segment.segment_closure import (
    SegmentRule,
    StepScores,
    check_max_span,
    closures,
)
from sklseq.inference.segment.segmentations import (
    best_segments,
    check_segmentations,
    nbest_of_sequence,
    samples_of_sequence,
)
from sklseq.metrics import span_f1
from sklseq.objectives.segment.segment_likelihood import (
    GoldSegments,
    SegmentData,
)

LOSSES = ("log", "softmax-margin", "hinge")


def _not_of_likelihood(segmenter: Any) -> str | None:
    # Why the segmenter has no probabilities, or None.
    if fitted_parameter(segmenter, "loss") != "hinge":
        return None
    return "scores of loss='hinge' are not probabilities; use loss='log' or 'softmax-margin'."


class SemiCRFSegmenter(
    LabelOutputMixin, CallbackSupportMixin, WeightsMixin, LabellerBase, BaseEstimator
):
    """Semi-Markov conditional random field: labels segments, with features of whole segments.

    Trains by minimising

        -Σ_s weight_s · log p(segments_s | x_s) + l1 · ‖w‖₁ + l2 · ‖w‖²₂,

        p(segments | x) = exp(s(segments)) / Z,   s = start(y_1) + Σ_k transition(y_{k-1}, y_k)
                + Σ_k (Σ_p rows[p] · coef(:, y_k) + length_k · intercept(y_k)) + end(y_last),

    where k runs over the segments, p over the potentials that are active for segment k, and Z over
    all segmentations. Segments may have any length, at the cost of a linear chain (Sarawagi 2006).

    Parameters
    ----------
    l1 : float, default=0.0
        Weight of the L1 penalty; above 0, many weights become exactly 0.
    l2 : float, default=0.1
        Weight of the squared L2 penalty.
    loss : {"log", "softmax-margin", "hinge"}, default="log"
        "log" is the objective above. The others count errors(y), the number of steps whose IOB2
        label is wrong. "softmax-margin" replaces -log p by

            log Σ_y exp(errors(y) + s(y)) - s(segments_s)

        (Gimpel and Smith 2010): probabilities are still p above, but their likelihood is not
        maximised. "hinge" replaces it by

            max_y (errors(y) + s(y)) - s(segments_s),

        a support vector machine with C = 1 / (2 · l2), for ``l1=0`` and ``l2 > 0``. It has no
        probabilities.
    max_segment_length : int or None, default=None
        Longest segment. None: any length.
    outside : str or None, default="O"
        Label of steps outside of segments. They are segments of length one that may be omitted in
        ``y`` and that ``predict`` omits. None: every step is in a segment.
    all_possible_states : bool, default=True
        Whether every (feature, label) pair has a weight, or only pairs seen in training. False is
        suitable for features of tokens, since each token has a label. Most features of whole
        segments occur on wrong segments only: without a weight, a model cannot learn that they are
        evidence against a segment.
    all_possible_transitions : bool, default=True
        The same for transitions between segments, starts and ends. Without a weight, splitting a
        segment in two of the same label would often cost nothing.
    transition_features : None, list, array, str, re.Pattern or callable, default=None
        Columns that also have weights for pairs of labels: if a segment of label j starts at step
        t, after a segment of label i, they add x_t · transition_coef(:, i, j) to s, where x_t is
        the sum of the potentials of step t alone that are active for all segments starting there.
        Columns are given by number or mask or, if X has names, by name, by a regular expression
        searched for in names, or by a function of a name; columns in ``X.roles``, as set by
        ``SegmentFeatures(transition_features=)``, are added. Pairs that do not occur with the
        column in training have no weight.
    constraints : list of tuple or None, default=None
        Pairs (label, next label) of neighbouring segments that cannot occur, in training and
        prediction; (None, label) forbids a label at the start, (label, None) at the end. For rules
        on segments that are not neighbours use ``predict(valid=)``. Not with unknown segments.
    max_iter : int, default=500
        Iterations of L-BFGS; for the hinge loss, passes of block-coordinate Frank-Wolfe.
    tol : float, default=1e-3
        Largest relative excess of the objective over its minimum, proved or estimated as by "lbfgs"
        of :class:`CRFTagger`. For the hinge loss the bound is ``50 · tol`` of the value reached,
        and proved. For the softmax-margin a bound of ``2 · tol`` is proved, which is two to five
        times the excess on text. On few rows of few numbers the excess was up to ``1.5 · tol`` (3
        of 1,300 fits; at most ``tol`` in the others).
        Smaller values take longer and change F1 by less than 0.2 points (references, addresses).
    calibrate : int, "loo" or None, default=None
        Calibration of probabilities: weights are divided by the temperature, between exp(-8) and
        exp(8), that minimises the log loss of the segments predicted for left-out sequences (Guo et
        al. 2017). This changes no prediction. "loo" leaves out one sequence at a time (equal ones
        together), without further fits: the weights without it are those of a Newton step with a
        diagonal Hessian. It mostly takes a tenth to a fifth of the time of ``fit`` alone, and needs
        ``l2 > 0``. A number is that of folds; the fit of a fold starts from the weights of all
        sequences, so that two folds take about as long again as ``fit`` alone, and five about twice
        as long. Not for the hinge loss. Sequences are shuffled into folds in an order that does not
        depend on ``random_state``. If a callback stops training, nothing is calibrated.
    warm_start : bool, default=False
        Whether ``fit`` starts from the weights of the previous one. Weights that its
        constraints forbade start at 0. Not for the hinge loss.
    n_jobs : int or None, default=None
        Threads, in training and prediction.
    verbose : int, default=0
        Above 0, the objective is printed after each iteration.
    random_state : int, RandomState instance or None, default=None
        Seed of :meth:`sample`, and of the order of sequences for the hinge loss.

    Attributes
    ----------
    classes_ : ndarray of shape (n_labels,)
        Labels of segments, sorted; with the outside label if training data has it.
    coef_ : ndarray of shape (n_features, n_labels)
    intercept_ : ndarray of shape (n_labels,)
        Weight of each row of a segment of each label; zeros if ``X`` was SegmentPotentials.
    transition_ : ndarray of shape (n_labels, n_labels)
        Weights of a segment of label i followed by one of label j.
    start_, end_ : ndarray of shape (n_labels,)
        Weights of the first and of the last segment's label.
    transition_coef_ : CSR matrix of shape (n_features, n_labels²), or None
        Weights of transition features, in column ``i * n_labels + j``; None without such.
    max_span_ : int
        Largest number of steps that a potential of the training data spans.
    max_segment_length_ : int
        The longest segment that is predicted; 0: any.
    temperature_ : float
        Divisor of the trained weights; 1 without ``calibrate``.
    n_potentials_ : int
        Potentials of the training data: H of Sarawagi (2006, §3.3).
    n_iter_ : int
    objective_ : float
        Objective of the fitted weights.
    loss_curve_ : list of float
        Objective at the start and after each iteration; for the hinge loss, at each evaluation.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Names of the columns, if X has names.
    vectorizer_ : DictFeatures or None

    Raises
    ------
    ValueError
        On bad parameters or data, before any work: see the message.

    Notes
    -----
    A transition scores once for a segment, whatever its length. ``intercept_`` scores for each row,
    as transitions of a chain do: rows of numbers need it if states are rare. It is trained as the
    weights of a column of ones, with their penalties. SegmentPotentials define all features
    themselves: there, ``SegmentPotentials.from_tokens`` of a column of ones does the same.

    An iteration costs O(nnz · L + V · L + n_steps · L²) for nnz feature values and L labels, where
    V ≤ n_steps · m and m is the longest span of a potential. Weights are float64.

    References
    ----------
    C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger (2017), "On calibration of modern neural networks",
    ICML.

    K. Gimpel, N. A. Smith (2010), "Softmax-margin CRFs: training log-linear models with cost
    functions", NAACL.

    S. Sarawagi, W. W. Cohen (2004), "Semi-Markov conditional random fields for information
    extraction", NIPS 17.

    S. Sarawagi (2006), "Efficient inference on sequence segmentation models", Proc. 23rd ICML.

    Examples
    --------
    >>> from sklseq import SemiCRFSegmenter
    >>> X = [[["in"], ["New"], ["York"], ["now"]], [["New"], ["Delhi"]]]
    >>> y = [[(1, 3, "city")], [(0, 2, "city")]]
    >>> segmenter = SemiCRFSegmenter().fit(X, y)
    >>> segmenter.predict([[["now"], ["in"], ["New"], ["Delhi"]]])[0]
    [(2, 4, 'city')]
    >>> segmenter.score(X, y)
    1.0
    """

    # No ClassifierMixin: with it, GridSearchCV stratifies ragged labels and fails.

    transition_coef_: Any = None  # None without transition features
    intercept_: Any = np.zeros(1)  # of models stored by versions without it

    def __init__(
        self,
        *,
        l1: float = 0.0,
        l2: float = 0.1,
        loss: str = "log",
        max_segment_length: int | None = None,
        outside: str | None = "O",
        all_possible_states: bool = True,
        all_possible_transitions: bool = True,
        transition_features: ChoiceLike | None = None,
        constraints: Sequence[tuple] | None = None,
        max_iter: int = 500,
        tol: float = 1e-3,
        calibrate: int | str | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
        random_state: RandomState = None,
    ):
        self.l1 = l1
        self.l2 = l2
        self.loss = loss
        self.max_segment_length = max_segment_length
        self.outside = outside
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.transition_features = transition_features
        self.constraints = constraints
        self.max_iter = max_iter
        self.tol = tol
        self.calibrate = calibrate
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.random_state = random_state

    # ------------------------------------------------------------------ training

    @with_callbacks(max_subtasks=lambda segmenter: segmenter.max_iter)
    def fit(
        self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None
    ) -> SemiCRFSegmenter:
        """Train on segmented sequences.

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences
            Rows of tokens, in any form that CRFTagger takes, are features of every segment that
            contains the token; for features of first and last tokens and of whole segments, make
            SegmentPotentials.
        y : list of lists of (start, stop, label), or of IOB2 label sequences
            Half-open segments in order. Steps without a segment are ``outside``. The label None
            (or NaN, pandas.NA) marks a range of steps whose segments are unknown: -log
            p(segments_s | x_s) is then -log of the probability of all segmentations with the known
            segments. This needs ``loss="log"``, and the minimum is a local one.
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        SemiCRFSegmenter
            The estimator itself.
        """
        self._check_parameters()
        # Imported here, as a model that only predicts needs neither objectives nor solvers.
        from sklseq.estimators.semicrf.segment_problem import SegmentProblem

        source = SegmentSource.read(X, y, sample_weight, self.outside)
        potentials = source.potentials
        # An intercept of rows makes up for an offset; without, it is the transitions.
        offset_cost = self.l2 * len(source.classes) ** (1 if source.of_tokens else 2)
        warn_columns(
            potentials.rows, source.weights, 2 * self.l2, f"l2={self.l2}", offset_cost,
            potentials.n_potentials,
        )  # fmt: skip
        problem = SegmentProblem(self, source)
        self._check_folds(len(source.potentials))
        result = problem.solve()
        return self._set(problem, result, self._temperature(problem, result.w))

    def _temperature(self, problem, w) -> float:
        if self.calibrate is None or is_stopped(self):
            return 1.0
        if self.calibrate == "loo":
            from sklseq.estimators.semicrf.left_out import temperature_of_left_out  # not to predict

            return temperature_of_left_out(self, problem, w)
        from sklseq.estimators.semicrf.temperature import temperature_of_folds  # not to predict

        return temperature_of_folds(self, problem.source, problem.attributes(w))

    def _set(self, problem, result, temperature: float) -> SemiCRFSegmenter:
        self._warn(result, problem)
        fitted = problem.attributes(result.w)
        if temperature != 1:
            fitted = divided_weights(fitted, temperature)
        fitted |= {"n_iter_": result.n_iter, "objective_": result.value}
        fitted |= {"loss_curve_": result.history, "temperature_": temperature}
        set_fitted(self, fitted, {"feature_names_in_"})
        return self

    def _check_parameters(self) -> None:
        check_plain_parameters(self)
        check_numbers(self, "l1", "l2", most=LARGEST_PENALTY)
        check_numbers(self, "tol")
        check_numbers(self, "max_iter", least=1, whole=True)
        check_choices(self, loss=LOSSES)
        check_choice_of_columns(self.transition_features)
        self._check_hinge()
        self._check_calibrate()
        longest = self.max_segment_length
        check_number("max_segment_length", longest, 1, whole=True, optional=True)
        pairs = self.constraints
        if pairs is not None and (
            isinstance(pairs, (str, bytes, Mapping)) or not isinstance(pairs, Collection)
        ):
            raise ValueError(
                "constraints must be None or a list of forbidden pairs (label, next label); got "
                f"{pairs!r:.60}."
            )
        if self.outside is not None and not isinstance(self.outside, str):
            raise ValueError(f"outside must be a string or None; got {self.outside!r}.")
        if self.outside is not None and self.outside.endswith("\0"):
            raise ValueError(
                f"outside ends in a NUL character, which arrays of strings drop; got "
                f"{self.outside!r}: rename it."
            )
        check_n_jobs(self.n_jobs)

    def _check_hinge(self) -> None:
        if self.loss != "hinge":
            return
        if self.l1 > 0 or self.l2 == 0:
            raise ValueError(
                f"loss='hinge' needs l1=0 and l2 > 0; got l1={self.l1} and l2={self.l2}. Use "
                "loss='log', or other penalties."
            )
        if self.calibrate is not None:
            raise ValueError(
                f"loss='hinge' has no probabilities to calibrate (calibrate={self.calibrate!r}); "
                "use calibrate=None, or loss='softmax-margin'."
            )
        if self.warm_start:
            raise ValueError(
                "loss='hinge' cannot start from given weights (warm_start=True); use "
                "warm_start=False."
            )

    def _check_calibrate(self) -> None:
        way = self.calibrate
        if way is None or (is_number(way, whole=True) and way >= 2):
            return
        if not isinstance(way, str) or way != "loo":
            raise ValueError(
                f"calibrate must be None, 'loo' or a number of folds of at least 2; got {way!r}."
            )
        if self.l2 == 0:
            raise ValueError(
                "calibrate='loo' needs l2 > 0; got l2=0. Raise l2, or use a number of folds."
            )

    def _check_folds(self, n: int) -> None:
        if self.calibrate == "loo" and n < 2:
            raise ValueError(
                "calibrate='loo' needs at least 2 sequences of a weight above 0; got "
                f"{n}. Add sequences, or use None."
            )
        if is_number(self.calibrate) and self.calibrate > n:
            raise ValueError(
                f"calibrate={self.calibrate} folds need as many sequences of a weight above 0; got "
                f"{n}. Use fewer folds, or None."
            )

    def _warn(self, result, problem) -> None:
        # One label is enough where segments of it differ in length, as words of a text do.
        if (label_limits(problem.classes, problem.longest, self.outside) == 1).all():
            warn_one_label(problem.classes)
        if not result.converged and "callback" not in result.message:
            warnings.warn(
                f"SemiCRFSegmenter did not converge in max_iter={self.max_iter} iterations "
                f"(objective {result.value:.6g}); raise max_iter, tol or l2.",
                ConvergenceWarning,
                stacklevel=3,
            )

    # ------------------------------------------------------------------ answers

    @property
    def _outside(self) -> str | None:
        return fitted_parameter(self, "outside")

    def _read(self, X: Any) -> SegmentPotentials:
        return potentials_of(self, X)

    def _segments(self, X: SegmentPotentials) -> list[np.ndarray]:
        plan, psi, chain = program_of(self, X)

        def decode(a: int, b: int) -> list[np.ndarray]:
            found, scores = best_segments(plan, psi[plan.cells[a] : plan.cells[b]], chain, a, b)
            check_segmentations(scores, a)
            return found

        return [rows for found in map_blocks(plan, decode, self.n_jobs) for rows in found]

    def predict(
        self,
        X: SequencesLike,
        *,
        valid: ValidLike | None = None,
        handle_invalid: str = "error",
    ) -> list[list[tuple[int, int, Any]]]:
        """The best segmentation of each sequence.

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences
        valid : "once", collection of labels, callable or None, default=None
            Which segmentations are valid; the best valid one of each sequence is found exactly.
            "once": each label except ``outside`` occurs at most once. A collection: each of these
            labels occurs at most once. A function: called with the segments (start, stop, label)
            of one sequence as a list, the best segmentation first, until it returns True.
        handle_invalid : {"error", "best"}, default="error"
            Result for a sequence without a valid segmentation: an error for all of X, or its best
            segmentation, which is not valid.

        Returns
        -------
        list of list of (start, stop, label)
            Segments of the outside label are left out. After ``set_output(predict="array")`` an
            object array of these lists.

        Raises
        ------
        ValueError
            If ``valid`` has another form. If ``handle_invalid`` is "error", and a sequence has no
            valid segmentation (a function: none among its 4,096 best), or k labels repeat and
            n_labels · 2^k exceeds 1,024.
        """
        check_handle_invalid(handle_invalid)
        X = self._read(X)
        found = self._written(self._segments(X))
        if valid is not None:
            self._make_valid(X, found, valid, handle_invalid)
        return as_chosen(self, found)

    def _make_valid(
        self, X: SegmentPotentials, found: list[list], valid: ValidLike, handle_invalid: str
    ) -> None:
        # Replace the best segmentations ``found`` by the best valid ones.
        from sklseq.estimators.valid_paths import unless_invalid  # not for a deployed model

        unless = unless_invalid(handle_invalid)
        if callable(valid):
            self._replace_invalid(X, found, valid, unless)
            return
        search = self._once_search(valid)
        for s, segments in enumerate(found):
            with unless:
                found[s] = search.best(X, s, segments)

    def _once_search(self, valid: Any) -> Any:
        # Only for ``valid``.
        from sklseq.estimators.semicrf.segments_once import OnceSearch
        from sklseq.estimators.valid_paths import types_once

        types = [label for label in self.classes_.tolist() if label != self._outside]
        return OnceSearch(
            types_once(valid, types), self.classes_, self.coef_, self.intercept_, self.transition_,
            self.start_, self.end_, self.transition_coef_, limits_of(self), self._outside,
        )  # fmt: skip

    def _replace_invalid(
        self, X: SegmentPotentials, found: list[list], valid: Any, unless: Any
    ) -> None:
        from sklseq.estimators.valid_paths import check_valid, first_valid  # only for ``valid``

        valid = check_valid(valid)
        broken = [s for s, segments in enumerate(found) if not valid(segments, s)]
        if broken:
            plan, psi, chain = program_of(self, X)

            def nbest(n: int, s: int) -> list[list]:
                return self._written(nbest_of_sequence(plan, s, psi, chain, n)[0])

        for s in broken:
            with unless:
                found[s] = first_valid(
                    found[s],
                    partial(nbest, s=s),
                    lambda segments, s=s: valid(segments, s),
                    f"segmentations of sequence {s}",
                )

    def _written(self, segments: list[np.ndarray]) -> list[list]:
        return [write_segments(rows, self.classes_, self._outside) for rows in segments]

    def predict_labels(self, X: SequencesLike) -> list[list[str]]:
        """The best segmentation of each sequence, as IOB2 labels.

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences

        Returns
        -------
        list of list of str
            After ``set_output(predict="array")`` an object array of arrays.
        """
        X = self._read(X)
        rows = np.concatenate([np.zeros((0, 3), dtype=np.int64), *self._segments(X)])
        codes = iob2_codes(rows, self.classes_, self._outside)
        labels = iob2_names(self.classes_, self._outside)
        return cut_labels(self, codes, offsets_of(X.lengths), labels=labels)

    @missing_if(_not_of_likelihood)
    def predict_proba(self, X: SequencesLike) -> list[np.ndarray]:
        """Probability that each step lies in a segment of each label.

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences

        Returns
        -------
        list of ndarray of shape (n_steps, n_labels)
        """
        plan, _, _, tokens = segment_sums(*program_of(self, self._read(X)), self.n_jobs)
        return [tokens[a:b] for a, b in zip(plan.steps[:-1], plan.steps[1:])]

    @missing_if(_not_of_likelihood)
    def predict_segment_proba(self, X: SequencesLike, segments: Any = None) -> list[np.ndarray]:
        """Probability that each of given segments is one, with its label and both its ends.

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences
        segments : list of lists of (start, stop, label), optional
            Segments, which may overlap; labels that were not in training have probability 0. By
            default the segments of :meth:`predict`.

        Returns
        -------
        list of ndarray of shape (n_segments,)

        Raises
        ------
        ValueError
            If a segment is not one of its sequence.
        """
        X = self._read(X)
        segments = self._written(self._segments(X)) if segments is None else segments
        asked = read_queries(segments, X.lengths, self.classes_.tolist())
        sequence, code = asked[0], asked[3]
        plan, _, marginals, _ = segment_sums(*program_of(self, X, asked), self.n_jobs)
        cells = asked_cells(plan, X.offsets, sequence)
        proba = marginals[cells, code] if len(cells) else np.zeros(0)
        proba[code < 0] = 0
        return list(cut_rows(proba, np.searchsorted(sequence, np.arange(len(X) + 1))))

    def predict_spans(
        self,
        X: SequencesLike,
        *,
        valid: ValidLike | None = None,
        handle_invalid: str = "error",
    ) -> list[list[Span]]:
        """The segments of :meth:`predict`, with the probability of each.

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences
        valid, handle_invalid
            As in :meth:`predict`.

        Returns
        -------
        list of list of Span
            (start, stop, label, probability), without segments of the outside label. The
            probability is that of :meth:`predict_segment_proba`; None for the hinge loss.
        """
        X = self._read(X)
        segments = self.predict(X, valid=valid, handle_invalid=handle_invalid)
        if fitted_parameter(self, "loss") == "hinge":
            return [[Span(*segment, None) for segment in one] for one in segments]
        proba = [p.tolist() for p in self.predict_segment_proba(X, segments)]
        return [[Span(*s, min(p, 1.0)) for s, p in zip(*pair)] for pair in zip(segments, proba)]

    def explain(
        self,
        x: SequencePotentials | MatrixLike | TokensLike,
        *,
        feature_names: Iterable[str] | None = None,
    ) -> list[SegmentExplanation]:
        """Explain the predicted segments of one sequence by the terms of their scores.

        Parameters
        ----------
        x : SequencePotentials, or one sequence in any form that :meth:`predict` takes in a list
        feature_names : array-like of str, optional
            Names of the columns, e.g. ``pipeline[:-1].get_feature_names_out()``.

        Returns
        -------
        list of SegmentExplanation
            For each segment of the best segmentation, including the outside label: its label, its
            probability, and the terms of its score.
        """
        check_one_sequence(x)
        names = self._names(feature_names)
        one = isinstance(x, SequencePotentials)
        X = self._read(SegmentPotentials.from_list([x]) if one else [x])
        segments = self._segments(X)[0]
        terms = segment_terms(self, X, segments, names)
        written = write_segments(segments, self.classes_, None)
        proba: list = [None] * len(written)
        if fitted_parameter(self, "loss") != "hinge":
            proba = self.predict_segment_proba(X, [written])[0].tolist()
        parts = zip(written, proba, terms)
        return [SegmentExplanation(*segment, p, found) for segment, p, found in parts]

    @missing_if(_not_of_likelihood)
    def predict_log_proba_sequence(self, X: SequencesLike, y: LabelsLike) -> np.ndarray:
        """log p(segments_s | x_s) of whole segmentations.

        -inf where a segment is too long, or has a label that was not in training.

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences
        y : as in :meth:`fit`, without unknown segments

        Returns
        -------
        ndarray of shape (n_sequences,)
        """
        X = self._read(X)
        segments = read_segments(y, X.lengths, self._outside)
        codes = find_codes(segments.label, self.classes_)
        unseen, codes = codes < 0, np.maximum(codes, 0)
        gold = GoldSegments(*segments[:3], codes)
        limits = limits_of(self)
        data = SegmentData(X, gold, len(self.classes_), limits)
        fired = np.flatnonzero(data.label >= 0)
        of = np.repeat(np.arange(len(X)), np.diff(data.plan.cells))[fired]
        program = program_of(self, X)
        score = -segment_sums(*program, self.n_jobs)[1]
        np.add.at(score, of, program[1][fired, data.label[fired]])
        first = np.ones(len(codes), dtype=bool)
        first[1:] = gold.sequence[1:] != gold.sequence[:-1]
        last = np.append(first[1:], True)[: len(codes)]
        terms = np.where(first, self.start_[codes], 0) + np.where(last, self.end_[codes], 0)
        later = np.flatnonzero(~first)
        terms[later] += pair_scores(
            self.transition_ if (rows := program[2].rows) is None else rows,
            data.plan.steps[gold.sequence[later]] + gold.start[later],
            codes[later - 1],
            codes[later],
        )
        size = gold.stop - gold.start
        terms[unseen | (limits[codes] > 0) & (size > limits[codes])] = -np.inf
        np.add.at(score, gold.sequence, terms)
        return np.minimum(score, 0)  # a sum above 0 is rounding

    def predict_nbest(self, X: SequencesLike, n: int = 10) -> list:
        """The ``n`` best segmentations of each sequence, with their log-probabilities.

        For the hinge loss, with their scores.

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences
        n : int, default=10

        Returns
        -------
        list of (segmentations, log_proba)
            k lists of (start, stop, label), and an array of shape (k,), best first; k is n, or the
            number of segmentations if that is smaller.
        """
        check_number("n", n, least=1, whole=True)
        X = self._read(X)
        plan, psi, chain = program_of(self, X)
        best = [nbest_of_sequence(plan, s, psi, chain, int(n)) for s in range(len(X))]
        log_z = -plan.lost_in_all()  # of scores; probabilities need no constants
        if fitted_parameter(self, "loss") != "hinge":
            log_z = segment_sums(plan, psi, chain, self.n_jobs)[1]
        return [(self._written(found), scores - z) for (found, scores), z in zip(best, log_z)]

    @missing_if(_not_of_likelihood)
    def sample(
        self, X: SequencesLike, n_samples: int = 1, random_state: RandomState = None
    ) -> list:
        """Segmentations drawn from p(segments | x).

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences
        n_samples : int, default=1
            Draws a sequence.
        random_state : int, RandomState, Generator or None
            None: that of the estimator.

        Returns
        -------
        list of n_samples lists of (start, stop, label), one a sequence
        """
        check_number("n_samples", n_samples, whole=True)
        plan, psi, chain = program_of(self, self._read(X))
        rng = as_generator(self.random_state if random_state is None else random_state)
        return [
            self._written(samples_of_sequence(plan, s, psi, chain, n_samples, rng.random))
            for s in range(plan.n_sequences)
        ]

    def decode_closure(self, X: SequencesLike, max_span: int | None = None) -> list:
        """Segments in the order of a stream: each is final when all survivor paths share it.

        They are the segments of :meth:`predict`, or others of the same score up to rounding.

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences
        max_span : int, optional
            Largest number of steps that a potential can span: no segment is final while later
            potentials can change it. By default ``max_span_`` of the training data.

        Returns
        -------
        list of (segments, times)
            Lists of (start, stop, label), and for each segment the newest step when it became
            final. At step t, potentials that stop at t + 1 or before are known.

        Raises
        ------
        ValueError
            If a potential spans more than ``max_span`` steps.
        """
        X, answers = self._read(X), []
        steps, rule = scores_of_steps(self, X, max_span), rule_of_segments(self, max_span)
        for rows, times in closures(rule, steps, X.lengths):
            kept = self.classes_[rows[:, 2]] != self._outside
            answers.append((write_segments(rows, self.classes_, self._outside), times[kept]))
        return answers

    def score(
        self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """F1 of the predicted segments, micro-averaged.

        Parameters
        ----------
        X : SegmentPotentials, or list of sequences
        y : as in :meth:`fit`, without unknown segments
            Segments whose label was not in training count as missed.
        sample_weight : array-like of shape (n_sequences,), optional
            Weights of the segments of each sequence.

        Returns
        -------
        float
        """
        X = self._read(X)
        return segment_f1(y, self.predict(X), X.lengths, self._outside, sample_weight)


def segment_f1(
    y: Any, predicted: Any, lengths: np.ndarray, outside: str | None, sample_weight: Any
) -> float:
    """F1 of predicted segments; steps outside of segments do not count, whatever their label."""
    true, found = (labels_of_segments(each, lengths, outside, "O") for each in (y, predicted))
    if not check_sample_weight(sample_weight, len(true)) @ lengths > 0:
        raise nothing_to_score()
    return float(span_f1(true, found, sample_weight=sample_weight))


def labels_of_rows(segmenter: SemiCRFSegmenter, answers: Iterable) -> tuple[list, list]:
    """Convert segments (start, stop, code) and their times to IOB2 labels and their times."""
    labels, times = [], []
    types, outside = segmenter.classes_, segmenter._outside
    names = iob2_names(types, outside)
    for rows, certain in answers:
        labels.append(names[iob2_codes(rows, types, outside)])
        times.append(np.repeat(certain, rows[:, 1] - rows[:, 0]))
    return labels, times


def scores_of_steps(
    segmenter: SemiCRFSegmenter, X: SegmentPotentials, max_span: int | None, continued: bool = False
) -> StepScores:
    """Return the scores of all steps; raise a ValueError if a potential is longer than max_span.

    ``continued``: whether each sequence has steps before it, so that its first step has transition
    scores too.
    """
    check_max_span(X, segmenter.max_span_ if max_span is None else max_span)
    return StepScores.of(X, *scores_of(segmenter, X, continued))


def rule_of_segments(
    segmenter: SemiCRFSegmenter, max_span: int | None, closes: bool = True, most: int = -1
) -> SegmentRule:
    """Return the rule by which the segments of a model leave."""
    return SegmentRule(
        segmenter.transition_, segmenter.start_, segmenter.end_, limits_of(segmenter),
        segmenter.max_span_ if max_span is None else max_span, closes, most,
        by_step=segmenter.transition_coef_ is not None,
    )  # fmt: skip

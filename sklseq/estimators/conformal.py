"""Conformal prediction: sets of labels that contain the true label with a given probability."""

import warnings
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.available import missing_if
from sklseq._lib.checks import check_choice
from sklseq._lib.estimator import LabellerBase, check_plain_parameters, clone_part
from sklseq._lib.ragged import offsets_of
from sklseq._lib.signatures import taken_options
from sklseq.data.labels import (
    as_label_sequences,
    check_counts,
    check_lengths,
    find_codes,
    list_of_sequences,
)
from sklseq.data.sequences import check_sample_weight, training_weights
from sklseq.data.span_rules import check_scheme, find_by_rules, span_rules
from sklseq.data.types import ArrayLike, LabelsLike, RandomState, SequencesLike, ValidLike
from sklseq.estimators.folds import as_list, of_positive_weight, take
from sklseq.estimators.label_output import LabelOutputMixin, as_chosen, gives_lists
from sklseq.estimators.unwrap import fit_weighted
from sklseq.estimators.validation import check_handle_invalid
from sklseq.inference.chain.linear_chain import repeatable_generator

UNITS = ("token", "span", "sequence")


class CoverageReport(NamedTuple):
    """Answer of :meth:`ConformalTagger.coverage_report`.

    Attributes
    ----------
    coverage : float
        Fraction of the units whose labels are all in their sets.
    mean_size : float
        Labels in the set of a row, on average over all rows.
    empty : float
        Fraction of the rows with an empty set.
    n_units : int
    """

    coverage: float
    mean_size: float
    empty: float
    n_units: int


def _no_probabilities(tagger: Any) -> str | None:
    # Why the tagger has no probabilities, or None.
    estimator = getattr(tagger, "estimator_", tagger.estimator)
    if estimator is None or hasattr(estimator, "predict_proba"):
        return None
    return f"{type(estimator).__name__} has none; use a CRFTagger, or a pipeline that ends in one."


class ConformalTagger(LabelOutputMixin, MetaEstimatorMixin, LabellerBase, BaseEstimator):
    """Label sets with marginal coverage, by split conformal calibration of a tagger.

    With p_t(j) the probability of label j at row t, the set of the row is

        C_t = {j : 1 - p_t(j) ≤ q}.

    A unit (a row, a true span or a sequence) is missed if a set of its rows lacks the true label.
    The score of a row is 1 - p of its true label, and that of a unit the largest of its rows. Of n
    sequences that were not trained on, sequence s has the weight ω_s and n_s units, of which m_s(q)
    are missed. q is the smallest score of a unit for which

        Σ_s ω_s (m_s(q) - α n_s) + max_s ω_s (m_s(q⁻) - α n_s) ≤ 0,

    where q⁻ is just below q: a new sequence is counted like the worst calibration sequence.

    Parameters
    ----------
    estimator : estimator, default=None
        A tagger with ``predict_proba``, a pipeline that ends in one, or a search over one. Default:
        ``CRFTagger()``. In ``FrozenEstimator`` it is used as it is, and ``fit`` calibrates on all
        sequences, which must not be those of its training.
    alpha : float, default=0.1
        Fraction of the units that may be missed.
    by : {"token", "span", "sequence"}, default="token"
        The unit. "span": the rows of a span, as ``scheme`` reads the true labels (None: I-x that
        no span of x precedes begins one); other rows do not count. "sequence": all rows of a
        sequence at once; sequences without rows are not units.
    calibration : float or splitter, default=0.2
        Fraction of the sequences that are used for calibration and not for training, chosen at
        random. Or a splitter of scikit-learn, whose first test part is used for calibration.
    scheme : str or None, default=None
        Labelling scheme of "span", as in :meth:`CRFTagger.predict_spans`.
    allow_empty : bool, default=True
        Whether sets may be empty, where no label is probable enough. This happens if the most
        probable label is right more often than 1 - ``alpha``. False adds that label, so that
        coverage rises to at least the accuracy.
    random_state : int, RandomState instance or None, default=None
        Choice of the sequences to calibrate with (None: always the same).

    Attributes
    ----------
    estimator_ : estimator
        Fitted on the sequences that are not used for calibration.
    classes_ : ndarray of shape (n_labels,)
    threshold_ : float
        q; infinite if there are too few sequences, so that sets hold all labels.
    n_calibration_ : int
        Sequences that q was computed from, including sequences without units. Without any unit q
        is infinite.

    Raises
    ------
    ValueError
        If a parameter is wrong, or no sequence is left to train or to calibrate on.
    TypeError
        If the estimator has no probabilities.

    Notes
    -----
    Sequences have to be exchangeable (for example independent and of one distribution); the rows of
    a sequence may depend on each other in any way. A new sequence, with N units of which M are
    missed, then has E[M] ≤ α · E[N]. This is conformal risk control with the loss M - α · N of a
    sequence. Its largest value at q is estimated by the calibration sequences; a new sequence
    exceeds all n of them with a probability of about 1 / (n + 1). For "sequence", q is the ordinary
    conformal quantile, P(missed) ≤ α. With weights, no new sequence may have a larger weight than
    the calibration sequences. The guarantee is marginal: over all draws of calibration and new
    sequences, not for each label, each length or each single corpus. It holds for any model; a
    better model has smaller sets. It does not hold for text of another kind, nor for pieces of one
    long sequence.

    References
    ----------
    A. N. Angelopoulos, S. Bates, A. Fisch, L. Lei, T. Schuster (2024), "Conformal risk control",
    ICLR, Theorem 1.

    M. Sadinle, J. Lei, L. Wasserman (2019), "Least ambiguous set-valued classifiers with bounded
    error levels", Journal of the American Statistical Association 114(525).

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import ConformalTagger, CRFTagger
    >>> from sklseq.datasets import make_contacts
    >>> from sklseq.features import TemplateFeatures
    >>> X, y = make_contacts(300, random_state=0)
    >>> model = make_pipeline(TemplateFeatures(["w[-1]", "w[0]"]), CRFTagger())
    >>> tagger = ConformalTagger(model, alpha=0.1, calibration=0.5).fit(X[:200], y[:200])
    >>> tagger.predict_sets(X[200:])[0].shape == (len(y[200]), len(tagger.classes_))
    True
    >>> report = tagger.coverage_report(X[200:], y[200:])
    >>> abs(report.coverage - 0.9) < 0.05
    True
    """

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        alpha: float = 0.1,
        by: str = "token",
        calibration: float | BaseCrossValidator = 0.2,
        scheme: str | None = None,
        allow_empty: bool = True,
        random_state: RandomState = None,
    ):
        self.estimator = estimator
        self.alpha = alpha
        self.by = by
        self.calibration = calibration
        self.scheme = scheme
        self.allow_empty = allow_empty
        self.random_state = random_state

    def fit(self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None) -> Self:
        """Train the estimator on one part of the sequences, and calibrate with the other.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences
        sample_weight : array-like of shape (n_sequences,), optional
            Weights for training and, as ω_s, for calibration; for example the probability of a
            sequence among new data, divided by that among these data. Their scale does not change
            the threshold; sequences of weight 0 do not count.

        Returns
        -------
        ConformalTagger
            The estimator itself.
        """
        from sklseq.estimators.crf.crf_tagger import CRFTagger  # not to load a model

        self._check_parameters()
        y = list_of_sequences(y)
        if isinstance(self.estimator, FrozenEstimator):
            check_is_fitted(self.estimator)
            return self._calibrate(self.estimator, X, y, sample_weight)
        estimator = CRFTagger() if self.estimator is None else clone_part(self, "estimator")
        X = as_list(X)
        check_counts(len(X), len(y))
        given = None if sample_weight is None else training_weights(sample_weight, len(y))
        X, y, weights = of_positive_weight(X, y, given)
        train, aside = self._parts(len(y))
        of_train, of_aside = (None, None) if weights is None else (weights[train], weights[aside])
        fit_weighted(estimator, take(X, train), take(y, train), of_train)
        return self._calibrate(estimator, take(X, aside), take(y, aside), of_aside)

    def _check_parameters(self) -> None:
        check_plain_parameters(self)
        for name, more in (("alpha", ""), ("calibration", ", or a splitter such as KFold")):
            value = getattr(self, name)
            if more and hasattr(value, "split") and not isinstance(value, str):
                continue
            if not isinstance(value, (int, float, np.number)) or not 0 < value < 1:
                raise ValueError(
                    f"{name} must be a number between 0 and 1{more}; got {value!r:.60}."
                )
        check_choice("by", self.by, UNITS)
        check_scheme(self.scheme)

    def _parts(self, n: int) -> tuple[list[int], list[int]]:
        # Numbers of the sequences to train on and to calibrate with.
        if hasattr(self.calibration, "split"):
            train, aside = next(iter(self.calibration.split(np.zeros((n, 1)))))
        else:
            order = repeatable_generator(self.random_state).permutation(n)
            k = int(np.ceil(self.calibration * n))
            train, aside = np.sort(order[k:]), np.sort(order[:k])
        if not len(train) or not len(aside):
            raise ValueError(
                f"calibration={self.calibration!r} leaves {len(train)} of {n} sequences to train "
                f"on and {len(aside)} to calibrate with; pass more sequences, or a FrozenEstimator."
            )
        return np.asarray(train).tolist(), np.asarray(aside).tolist()

    def _calibrate(self, estimator: Any, X: Any, y: Any, sample_weight: ArrayLike | None) -> Self:
        if not hasattr(estimator, "predict_proba"):
            raise TypeError(
                f"{type(estimator).__name__} has no predict_proba; use a CRFTagger, or a pipeline "
                "that ends in one."
            )
        if not len(y):
            raise ValueError("X holds no sequences to calibrate with; pass at least one.")
        weights = check_sample_weight(sample_weight, len(y))
        if not weights.any():
            raise ValueError(
                "sample_weight of the sequences to calibrate with must have a positive entry; got "
                "zeros only."
            )
        X, y, weights = of_positive_weight(X, y, weights)
        scores, owner = self._scores(estimator, X, y)
        threshold = self._threshold(scores, owner, weights)
        if threshold == np.inf:
            self._warn(scores)
        # In one step: after an interrupt, the estimator is as before, or fitted.
        vars(self).update(estimator_=estimator, threshold_=threshold, n_calibration_=len(y))
        return self

    def _threshold(self, scores: np.ndarray, owner: np.ndarray, weights: np.ndarray) -> float:
        # The smallest score for which the inequality holds, or infinity. Scores are tried from the
        # largest down; each threshold misses the units of all larger scores.
        n_units = np.bincount(owner, minlength=len(weights))
        weights = np.where(n_units > 0, weights, 0.0)
        if not weights.any():
            return np.inf
        weights /= weights.max()  # their scale does not change the threshold
        order = np.argsort(-scores)
        of = owner[order]
        missed = np.empty(len(of), dtype=np.int64)  # units of the same sequence up to this one
        missed[np.argsort(of, kind="stable")] = 1 + np.concatenate(
            [np.arange(0), *(np.arange(n) for n in n_units)]
        )
        worst = np.maximum.accumulate(weights[of] * (missed - self.alpha * n_units[of]))
        before = np.cumsum(weights[of]) - weights[of]
        total = self.alpha * float(weights @ n_units)
        fits = np.flatnonzero(before + worst <= total * (1 + 1e-12) + 1e-9)
        return float(scores[order[fits[-1]]]) if len(fits) else np.inf

    def _warn(self, scores: np.ndarray) -> None:
        n_new = int(np.isinf(scores).sum())
        why = f"{len(scores)} units are too few for alpha={self.alpha}"
        if n_new:
            why = f"{n_new} of {len(scores)} units have a label that training did not have"
        warnings.warn(
            f"All label sets hold all labels: {why}; calibrate with more sequences, or raise "
            "alpha.",
            UserWarning,
            stacklevel=4,
        )

    def _scores(self, estimator: Any, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        # Largest 1 - p of the true labels of each unit, and the number of its sequence.
        labels, offsets = as_label_sequences(y)
        proba = _flat(estimator.predict_proba(X), offsets, len(estimator.classes_))
        codes = find_codes(labels, estimator.classes_)
        scores = 1 - np.where(codes >= 0, proba[np.arange(len(codes)), codes], -np.inf)
        start, stop = self._units(labels, offsets)
        owner = np.searchsorted(offsets, start, side="right") - 1
        bounds = np.column_stack([start, stop]).ravel()
        if not len(bounds):
            return np.zeros(0), owner
        return np.maximum.reduceat(np.append(scores, -np.inf), bounds)[::2], owner

    def _units(self, labels: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # (first row, row after the last) of each unit.
        if self.by == "token":
            return np.arange(len(labels)), np.arange(len(labels)) + 1
        if self.by == "sequence":
            some = offsets[1:] > offsets[:-1]
            return offsets[:-1][some], offsets[1:][some]
        if not len(labels):
            return offsets[:0], offsets[:0]
        classes, codes = np.unique(labels, return_inverse=True)
        start, stop, _ = find_by_rules(codes, offsets, span_rules(classes, self.scheme))
        return start, stop

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "threshold_")

    @property
    def classes_(self) -> np.ndarray:
        check_is_fitted(self)
        return self.estimator_.classes_

    @property
    def n_features_in_(self) -> int:
        check_is_fitted(self)
        return self.estimator_.n_features_in_

    def predict_sets(self, X: SequencesLike) -> list[np.ndarray]:
        """Whether each label is in the set of each row.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of bool ndarray of shape (n_steps, n_labels)
            Columns in the order of ``classes_``: the labels of a row are
            ``classes_[predict_sets(X)[s][t]]``.
        """
        check_is_fitted(self)
        return [self._sets(proba) for proba in self.estimator_.predict_proba(X)]

    def _sets(self, proba: np.ndarray) -> np.ndarray:
        sets = 1 - proba.astype(np.float64) <= self.threshold_
        if not self.allow_empty and len(proba):
            sets[np.arange(len(proba)), proba.argmax(axis=1)] = True
        return sets

    def coverage_report(self, X: SequencesLike, y: LabelsLike) -> CoverageReport:
        """Coverage and size of the sets of labelled sequences.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences

        Returns
        -------
        CoverageReport
            Named tuple ``(coverage, mean_size, empty, n_units)``.
        """
        labels, offsets = as_label_sequences(y)
        sets = _flat(self.predict_sets(X), offsets, len(self.classes_))
        codes = find_codes(labels, self.classes_)
        right = (codes >= 0) & sets[np.arange(len(codes)), codes].astype(bool)
        start, stop = self._units(labels, offsets)
        if not len(start):
            raise ValueError(f"y holds no {self.by}; a coverage needs at least one.")
        missed = offsets_of(~right)
        sizes = sets.sum(axis=1)
        return CoverageReport(
            float((missed[stop] == missed[start]).mean()),
            float(sizes.mean()), float((sizes == 0).mean()), len(start),
        )  # fmt: skip

    def predict(
        self, X: SequencesLike, *, valid: ValidLike | None = None, handle_invalid: str = "error"
    ) -> list[list[Any]]:
        """Labels that the estimator predicts.

        Parameters
        ----------
        X : list of sequences
        valid, handle_invalid
            Passed to ``predict`` of the estimator, which must accept them.

        Returns
        -------
        list of list
            After ``set_output(predict="array")`` of this object an object array of arrays; the
            output form of the inner estimator does not matter.
        """
        check_is_fitted(self)
        check_handle_invalid(handle_invalid)
        way = None if handle_invalid == "error" else handle_invalid
        rule = taken_options(self.estimator_.predict, valid=valid, handle_invalid=way)
        with config_context(enable_metadata_routing=False):
            labels = self.estimator_.predict(X, **rule)
        if not gives_lists(self):
            labels = (np.asarray(found, dtype=self.classes_.dtype) for found in labels)
        return as_chosen(self, labels)

    @missing_if(_no_probabilities)
    def predict_proba(self, X: SequencesLike) -> list[np.ndarray]:
        """Label probabilities that the estimator predicts.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of ndarray of shape (n_steps, n_labels)
        """
        check_is_fitted(self)
        return self.estimator_.predict_proba(X)

    def score(
        self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Score of the estimator; for a tagger, the fraction of rows that it labels right.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        float
        """
        check_is_fitted(self)
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        with config_context(enable_metadata_routing=False):
            return self.estimator_.score(X, y, **given)


def _flat(rows: list, offsets: np.ndarray, n_labels: int) -> np.ndarray:
    # The rows of all sequences, checked against the labels.
    check_lengths(np.array([len(x) for x in rows], dtype=int), np.diff(offsets))
    return np.concatenate([np.zeros((0, n_labels)), *rows])

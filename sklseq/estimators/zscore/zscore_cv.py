"""The z-score tagger that finds its ridge and transition weight."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import BaseCrossValidator

from sklseq._lib.callbacks import with_callbacks
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.folds import check_finite, read_folds, read_scorer, scorer_weights
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.validation import check_choices, check_n_jobs
from sklseq.estimators.zscore.leave_out_search import LeaveOutSearch, n_entries
from sklseq.estimators.zscore.zscore_problem import ZScoreProblem
from sklseq.estimators.zscore.zscore_tagger import ZScoreTagger

__all__ = ["ZScoreTaggerCV"]

FEW_ENTRIES = 4_000_000  # of a matrix, up to which each sequence is left out by default


class ZScoreTaggerCV(ZScoreTagger):
    """:class:`ZScoreTagger` that finds its ridge and transition weight by leaving out sequences.

    A ridge costs one linear solve a fold, and a transition weight only decoding: scores of rows
    do not depend on it. With few rows or features each sequence is left out in turn, and nothing
    is fitted anew: one eigendecomposition gives, for every ridge, what weights trained on the
    other sequences score each sequence.

    Parameters
    ----------
    l2s : array-like of float, default=(0.001, 0.01, 0.1, 1.0, 10.0)
        Ridges to try, above 0.
    transition_weights : iterable, default=(None, 0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
        Values of ``transition_weight`` to try, None being its default.
    cv : int, splitter, iterable, "leave-one-out" or None, default=None
        How sequences are left out: folds as in scikit-learn, or each in turn, in closed form. None:
        the latter if n_rows · min(n_rows, n_features) is at most 4 million, else 5 folds.
    scoring : str, callable or None, default="token_accuracy"
        Scorer of predicted labels, or the name of one in ``sklseq.metrics``, such as "span_f1";
        None is "token_accuracy". A scorer is called as ``scorer(answers, X, y)``, where ``answers``
        only has the method ``predict``.
        "gcv": generalised cross-validation of the regression of labels on rows,
        without decoding or folds (``cv`` must be None); the transition weight is then the first.
    loss : {"hamming"}, array-like, dict, callable or None, default="hamming"
        As in :class:`ZScoreTagger`.
    transitions : {"information", "covariance"}, default="information"
        As in :class:`ZScoreTagger`, where the default is the paper's.
    constraints : {"iob2", "iobes", "bilou"}, bool array-like (n_labels, n_labels) or None
        Transitions that may occur in answers, those scored here included.
    n_jobs : int or None, default=None
        Threads.

    Attributes
    ----------
    l2_, transition_weight_ : float
        The best. Of equally good ones, the largest ridge and the first transition weight.
    best_score_ : float
        Their score, or minus their criterion for "gcv".
    cv_scores_ : ndarray of shape (n_l2s, n_transition_weights)
        All scores: with folds their mean over folds, otherwise that of all sequences together.
    classes_, coef_, transition_, zscore_, ...
        As in :class:`ZScoreTagger`, trained with the best on all sequences.

    Raises
    ------
    ValueError
        If n_rows · min(n_rows, n_features) exceeds 100 million with ``cv="leave-one-out"`` or
        ``scoring="gcv"``.

    Notes
    -----
    Leaving out each sequence costs O(n_rows · n_features · min(n_rows, n_features)) once, and
    O(n_rows · min(...)) a ridge. Labels are those of fitting anew, but where two labelings
    score the same to the last digits, of which rounding then chooses. That holds from an ``l2`` of
    about 1e-10 times the largest squared size of a column on; below, some labels differ.

    Examples
    --------
    >>> from sklseq import ZScoreTaggerCV
    >>> X = [[{"w": "the"}, {"w": "cat"}], [{"w": "a"}, {"w": "dog"}], [{"w": "the"}, {"w": "dog"}]]
    >>> tagger = ZScoreTaggerCV(l2s=[0.1, 1.0]).fit(X, [["D", "N"]] * 3)
    >>> tagger.l2_, tagger.best_score_
    (1.0, 1.0)
    """

    def __init__(
        self,
        *,
        l2s: ArrayLike = (0.001, 0.01, 0.1, 1.0, 10.0),
        transition_weights: Iterable[float | None] = (
            None,
            0.0,
            0.01,
            0.02,
            0.05,
            0.1,
            0.2,
            0.5,
            1.0,
        ),
        cv: int | str | BaseCrossValidator | Iterable | None = None,
        scoring: str | Callable[..., float] | None = "token_accuracy",
        loss: str | ArrayLike | Mapping[Any, float] | Callable[..., float] | None = "hamming",
        transitions: str = "information",
        constraints: str | ArrayLike | None = None,
        n_jobs: int | None = None,
    ):
        self.l2s = l2s
        self.transition_weights = transition_weights
        self.cv = cv
        self.scoring = scoring
        self.loss = loss
        self.transitions = transitions
        self.constraints = constraints
        self.n_jobs = n_jobs

    @with_callbacks(max_subtasks=lambda tagger: None)
    def fit(
        self,
        X: SequencesLike,
        y: LabelsLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> ZScoreTaggerCV:
        """Choose the ridge and the transition weight, then train on all sequences.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences
        sample_weight : array-like of shape (n_sequences,), optional
            Of sequences in training, and in scores, if the scorer has an argument sample_weight.
        groups : array-like of shape (n_sequences,), optional
            For the splitter.

        Returns
        -------
        ZScoreTaggerCV
            The estimator itself.
        """
        l2s, weights = self._check_grid()
        scorer = self._scorer()
        check_n_jobs(self.n_jobs)
        check_choices(self, transitions=("information", "covariance"))
        source = RowSource.read(X, y, sample_weight)
        tagger = ZScoreTagger(
            loss=self.loss, transitions=self.transitions, constraints=self.constraints,
            n_jobs=self.n_jobs,
        )  # fmt: skip
        problem = ZScoreProblem(tagger, source)
        weighted = {} if sample_weight is None else {"sample_weight": source.weights}
        weighted = scorer_weights(scorer, weighted)
        search = LeaveOutSearch(problem, l2s, weights, scorer, bool(weighted))
        if scorer is None or self._leaves_out_each(source):
            scores = search.each_sequence()
        else:
            scores = search.folds(self._folds(source, groups))
        if search.unconverged:
            warnings.warn(
                "ZScoreTaggerCV did not solve the linear systems of l2="
                f"{sorted(search.unconverged)} within max_iter and tol of ZScoreTagger, so their "
                "scores may be too low; leave these out of l2s.",
                ConvergenceWarning,
                stacklevel=2,
            )
        finite = {at: bool(np.isfinite(scores[at])) for at in np.ndindex(scores.shape)}
        names = {at: f"l2={l2s[at[0]]:.6g}, transition_weight={weights[at[1]]}" for at in finite}
        check_finite(
            "ZScoreTaggerCV",
            {names[at]: float(scores[at]) for at in finite},
            {names[at]: finite[at] for at in finite},
        )
        i, j = max(
            (at for at in finite if finite[at]),
            key=lambda at: (scores[at], l2s[at[0]], -at[1]),
        )
        tagger.set_params(l2=float(l2s[i]), transition_weight=weights[j])
        self._set(problem, problem.solve())
        self.l2_, self.cv_scores_, self.best_score_ = float(l2s[i]), scores, float(scores[i, j])
        return self

    def partial_fit(
        self,
        X: SequencesLike,
        y: LabelsLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> ZScoreTaggerCV:
        """Not possible: leaving sequences out needs them all.

        Parameters
        ----------
        X, y, classes, sample_weight : ignored

        Raises
        ------
        ValueError
            Always.
        """
        raise ValueError(
            "ZScoreTaggerCV cannot be trained in parts, as it leaves out sequences; use fit, or "
            "ZScoreTagger's partial_fit with the l2 found."
        )

    def _check_grid(self) -> tuple[np.ndarray, list[float | None]]:
        l2s, weights = _as_numbers(self.l2s), self.transition_weights
        if not len(l2s) or not (np.isfinite(l2s) & (l2s > 0)).all():
            raise ValueError(f"l2s must be a list of finite numbers above 0; got {self.l2s!r}.")
        weights = list(weights) if np.iterable(weights) and not isinstance(weights, str) else []
        numbers = _as_numbers([0.0 if w is None else w for w in weights])
        if any(isinstance(w, (bool, np.bool_)) for w in weights):
            numbers = np.zeros(0)
        if not len(numbers) or not (np.isfinite(numbers) & (numbers >= 0)).all():
            raise ValueError(
                "transition_weights must be a list of finite numbers of at least 0, or None; got "
                f"{self.transition_weights!r}."
            )
        return l2s, [None if w is None else float(w) for w in weights]

    def _scorer(self) -> Callable[..., float] | None:
        scorer = read_scorer("token_accuracy" if self.scoring is None else self.scoring, "gcv")
        if scorer is None and self.cv is not None:
            raise ValueError(
                f"scoring='gcv' leaves out no sequences, so cv must be None; got cv={self.cv!r}."
            )
        return scorer

    def _folds(self, source: RowSource, groups: ArrayLike | None) -> list:
        X, weights = source.given
        rows = (X.lengths > 0) & (weights > 0)
        params = {} if groups is None else {"groups": groups}
        return read_folds(5 if self.cv is None else self.cv, np.zeros(len(X)), rows, rows, **params)

    def _leaves_out_each(self, source: RowSource) -> bool:
        if self.cv is None:
            return n_entries(source.X) <= FEW_ENTRIES
        return isinstance(self.cv, str) and self.cv == "leave-one-out"


def _as_numbers(values: Any) -> np.ndarray:
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.zeros(0)
    return numbers if numbers.ndim == 1 else np.zeros(0)

"""The z-score tagger that finds its own ridge."""

from __future__ import annotations

import numpy as np

from sklseq._lib.callbacks import with_callbacks
from sklseq.data.labels import encode_labels, resolve_loss, split_labels, unique_labels
from sklseq.data.sequences import read_labels, weighted_only
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.validation import (
    check_magnitude,
    check_n_jobs,
    check_not_empty,
    read_sequences,
    training_weights,
)
from sklseq.estimators.zscore.zscore_tagger import ZScoreTagger
from sklseq.inference import viterbi
from sklseq.objectives.zscore.leave_out import LeaveOut
from sklseq.objectives.zscore.moments import Sample
from sklseq.solvers import solve_dense

__all__ = ["ZScoreTaggerCV"]

MAX_ENTRIES = 100_000_000  # of the matrix that is held


class ZScoreTaggerCV(ZScoreTagger):
    """:class:`ZScoreTagger` that finds its ridge by leaving out each sequence in turn.

    Nothing is fitted anew: one eigendecomposition gives, for every ridge, what weights trained on
    the other sequences score each sequence: the labels of fitting anew, but where two labelings
    score the same to the last digits, of which rounding then chooses. That holds from an ``l2`` of
    about 1e-10 times the largest squared size of a column on; below, some labels differ.

    Parameters
    ----------
    l2s : array-like of float, default=(0.001, 0.01, 0.1, 1.0, 10.0)
        Ridges to try, above 0. Of equally good ones the largest wins.
    scoring : {"token_accuracy", "gcv"}, default="token_accuracy"
        "token_accuracy": the share of labels right when each sequence is decoded with what the
        others taught. "gcv": generalised cross-validation of the regression of labels on rows,
        without decoding.
    loss : {"hamming"}, array-like of shape (n_labels, n_labels) or None, default="hamming"
        As in :class:`ZScoreTagger`.
    n_jobs : int or None, default=None
        Threads of prediction.

    Attributes
    ----------
    l2_ : float
        The best ridge.
    best_score_ : float
        Its token accuracy, or minus its criterion for "gcv".
    cv_scores_ : ndarray of shape (n_l2s,)
        Those of all ridges.
    classes_, coef_, transition_, zscore_, ...
        As in :class:`ZScoreTagger`, trained with ``l2_`` on all sequences.

    Raises
    ------
    ValueError
        If n_rows · min(n_rows, n_features) exceeds 100 million; search with GridSearchCV then.

    Notes
    -----
    Cost O(n_rows · n_features · min(n_rows, n_features)) once, and O(n_rows · min(...)) a ridge.

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
        scoring: str = "token_accuracy",
        loss: str | ArrayLike | None = "hamming",
        n_jobs: int | None = None,
    ):
        self.l2s = l2s
        self.scoring = scoring
        self.loss = loss
        self.n_jobs = n_jobs

    @with_callbacks(max_subtasks=lambda tagger: None)
    def fit(
        self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None
    ) -> ZScoreTaggerCV:
        """Choose the ridge, then train on all sequences.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        ZScoreTaggerCV
            The estimator itself.
        """
        ridges = self._check_ridges()
        inner = ZScoreTagger(loss=self.loss, n_jobs=self.n_jobs, tol=1e-8, max_iter=5_000)
        check_n_jobs(self.n_jobs)
        rows, vectorizer = read_sequences(X, fit=True)
        check_not_empty(rows)
        check_magnitude(rows, "Z-score training")
        labels = read_labels(y, rows)
        weights = training_weights(sample_weight, len(rows))
        rows, labels, weights = weighted_only(rows, labels, weights)
        check_not_empty(rows)
        _check_entries(rows)
        classes = unique_labels(labels)
        codes = encode_labels(labels, classes, rows.offsets)
        cost = resolve_loss(self.loss, classes)
        used = np.flatnonzero((weights > 0) & (rows.lengths > 0))
        part, kept = rows[used], np.repeat(np.isin(np.arange(len(rows)), used), rows.lengths)
        sample = Sample(part.rows, part.offsets, codes[kept], weights[used], len(classes))
        leave_out = LeaveOut(sample, cost, solve_dense)
        score = self._accuracy if self.scoring == "token_accuracy" else self._minus_gcv
        scores = np.array([score(leave_out, l2) for l2 in ridges])
        best = max(range(len(ridges)), key=lambda k: (scores[k], ridges[k]))
        inner.set_params(l2=float(ridges[best])).fit(
            rows, split_labels(labels, rows.offsets), weights
        )
        self._forget()
        fitted = {name: value for name, value in vars(inner).items() if name.endswith("_")}
        vars(self).update(fitted)
        self.vectorizer_ = vectorizer
        if vectorizer is not None:
            self.feature_names_in_ = vectorizer.get_feature_names_out()
        self.l2_, self.cv_scores_ = float(ridges[best]), scores
        self.best_score_ = float(scores[best])
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

    def _check_ridges(self) -> np.ndarray:
        try:
            ridges = np.array(self.l2s, dtype=np.float64)
        except (TypeError, ValueError):
            ridges = np.zeros(0)
        if ridges.ndim != 1 or not len(ridges) or not (np.isfinite(ridges) & (ridges > 0)).all():
            raise ValueError(f"l2s must be a list of finite numbers above 0; got {self.l2s!r}.")
        if self.scoring not in ("token_accuracy", "gcv"):
            raise ValueError(f"scoring must be 'token_accuracy' or 'gcv'; got {self.scoring!r}.")
        return ridges

    def _accuracy(self, leave_out: LeaveOut, l2: float) -> float:
        sample, right = leave_out.sample, 0.0
        for s, scores in enumerate(leave_out.scores(l2)):
            path, _ = viterbi(scores.emission, scores.transition)
            truth = sample.y[slice(*sample.offsets[s : s + 2])]
            right += sample.weights[s] * (path == truth).sum()
        return right / sample.row_weights.sum()

    def _minus_gcv(self, leave_out: LeaveOut, l2: float) -> float:
        return -leave_out.gcv(l2)


def _check_entries(rows) -> None:
    n_rows, n_columns = rows.rows.shape
    if n_rows * min(n_rows, n_columns) > MAX_ENTRIES:
        raise ValueError(
            f"ZScoreTaggerCV would hold {n_rows * min(n_rows, n_columns):,} numbers for {n_rows:,} "
            f"rows and {n_columns:,} features (at most {MAX_ENTRIES:,}); use "
            "GridSearchCV(ZScoreTagger(), {'l2': [...]})."
        )

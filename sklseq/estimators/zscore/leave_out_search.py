"""Search for a ridge and a transition weight by leave-one-out or folds."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from sklseq.data.labels import cut_rows
from sklseq.data.sequences import Sequences
from sklseq.estimators.folds import read_number
from sklseq.estimators.zscore.part import Part, decode, rows_of
from sklseq.estimators.zscore.zscore_problem import ZScoreProblem
from sklseq.objectives.zscore.leave_out import LeaveOut
from sklseq.objectives.zscore.moments import PairRule
from sklseq.solvers import solve_dense

MAX_ENTRIES = 100_000_000  # largest matrix of leave-one-out, in entries


def n_entries(X: Sequences, kernel: Any = "linear") -> int:
    """Number of entries of the matrix that leave-one-out needs."""
    return X.n_rows * (min(X.n_rows, X.shape[1]) if kernel == "linear" else X.n_rows)


class Answers(BaseEstimator):
    """Estimator that predicts given labels, for scorers."""

    def __init__(self, labels: list):
        self.labels = labels

    def predict(self, X: Any) -> list:
        return self.labels

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"A scorer of ZScoreTaggerCV can use predict only, not {name!r}; for other methods "
            "use GridSearchCV(ZScoreTagger(), ...)."
        )


class LeaveOutSearch:
    """Scores of ridges and transitions on sequences that the model was not trained on.

    State weights depend on the ridge only, so all transitions share one linear solve.

    Parameters
    ----------
    problem : ZScoreProblem
        Problem of all sequences.
    l2s : ndarray
    rules : list of PairRule
        Transitions to try.
    scorer : callable(estimator, X, y) or None
        None: generalised cross-validation.
    weighted : bool
        Whether the scorer takes weights of sequences.
    plain : bool
        Whether the scorer is that of the fraction of rows with the right label.

    Attributes
    ----------
    unconverged : set of float
        Ridges whose linear system was not solved in some fold.
    """

    def __init__(
        self, problem: ZScoreProblem, l2s: np.ndarray, rules: list[PairRule],
        scorer: Callable[..., float] | None, weighted: bool, plain: bool,
    ):  # fmt: skip
        self.problem, self.source = problem, problem.source
        self.l2s, self.rules = l2s, rules
        self.scorer, self.weighted, self.unconverged = scorer, weighted, set()
        self.plain = plain

    def _score_of(self, sequences: np.ndarray) -> Callable[[np.ndarray], float]:
        # Function from label codes of the rows of these sequences to the score.
        source, X = self.source, self.source.X[sequences]
        truth = source.codes[rows_of(source.X, sequences)]
        weights = source.weights[sequences] if self.weighted else np.ones(len(sequences))
        of_rows = np.repeat(weights, X.lengths)
        if self.plain:
            return lambda codes: float(np.average(codes == truth, weights=of_rows))

        def labels(codes: np.ndarray) -> list[list]:
            return list(cut_rows(source.classes[codes].tolist(), X.offsets))

        given = {"sample_weight": weights} if self.weighted else {}
        right = labels(truth)
        return lambda codes: read_number(self.scorer(Answers(labels(codes)), X, right, **given))

    def each_sequence(self) -> np.ndarray:
        """Scores of shape (n_l2s, n_rules), each sequence left out, in closed form."""
        X, sample, space = self.source.X, self.problem.sample, self.problem.space
        size = n_entries(X, self.problem.tagger.kernel)
        if size > MAX_ENTRIES:
            raise ValueError(
                f"ZScoreTaggerCV would hold {size:,} numbers for {X.n_rows:,} rows and "
                f"{X.shape[1]:,} features (at most {MAX_ENTRIES:,}) to leave out each sequence; "
                "use folds (cv=5), and a scoring other than 'gcv'."
            )
        used = np.flatnonzero(X.lengths)
        if self.scorer is not None and len(used) < 2:
            raise ValueError(
                "ZScoreTaggerCV trains on the sequences that it does not leave out: X must hold at "
                f"least 2 with rows and a weight above 0; got {len(used)}. Use ZScoreTagger."
            )
        offsets = np.append(0, X.offsets[1:][used])
        leave_out = LeaveOut(
            sample._replace(offsets=offsets, weights=sample.weights[used]), self.problem.cost,
            solve_dense, None if space is None else space.gram,
        )  # fmt: skip
        scores, score = np.empty((len(self.l2s), len(self.rules))), self._score_of(used)
        for i, l2 in enumerate(self.l2s):
            if self.scorer is None:
                scores[i] = -leave_out.gcv(l2)
                continue
            left = list(leave_out.scores(l2))
            for j, rule in enumerate(self.rules):
                found = [decode(self.problem, one, rule) for one in left]
                scores[i, j] = score(np.concatenate(found))
        return scores

    def folds(self, folds: list) -> np.ndarray:
        """Mean scores over folds (train, test) of numbers of sequences, of the same shape."""
        given = self.source.given[1] > 0  # folds also number sequences of weight 0
        number, scores = np.cumsum(given) - 1, []
        for train, test in folds:
            train, test = (number[which[given[which]]] for which in (train, test))
            scores.append(self._fold(train, test))
        return np.mean(scores, axis=0)

    def _fold(self, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        part, score = Part(self.problem, train, test), self._score_of(test)
        scores = np.empty((len(self.l2s), len(self.rules)))
        for i in np.argsort(-self.l2s, kind="stable"):
            l2 = self.l2s[i]
            left = part.left_out(l2)
            if not part.converged:
                self.unconverged.add(float(l2))
            for j, rule in enumerate(self.rules):
                scores[i, j] = score(part.decode(left, rule))
        return scores

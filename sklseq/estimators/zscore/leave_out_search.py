"""Search for a ridge and a transition weight by leave-one-out or folds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from sklseq.data.constraints import constraints_of_part
from sklseq.data.labels import cut_rows
from sklseq.data.sequences import Sequences
from sklseq.estimators.folds import read_number
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.zscore.zscore_problem import ZScoreProblem
from sklseq.inference import viterbi
from sklseq.objectives.zscore.leave_out import LeaveOut, LeftOut
from sklseq.objectives.zscore.moments import PairRule, Statistics, count_chain, loss_scale
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
    """Scores of ridges and transition weights on sequences that the model was not trained on.

    State weights and scores of pairs depend on the ridge only, so all transition weights share one
    linear solve.

    Parameters
    ----------
    problem : ZScoreProblem
        Problem of all sequences.
    l2s : ndarray
    transition_weights : list of float or None
    scorer : callable(estimator, X, y) or None
        None: generalised cross-validation.
    weighted : bool
        Whether the scorer takes weights of sequences.

    Attributes
    ----------
    unconverged : set of float
        Ridges whose linear system was not solved in some fold.
    """

    def __init__(
        self, problem: ZScoreProblem, l2s: np.ndarray, transition_weights: list,
        scorer: Callable[..., float] | None, weighted: bool,
    ):  # fmt: skip
        self.problem, self.source = problem, problem.source
        self.l2s, self.transition_weights = l2s, transition_weights
        self.scorer, self.weighted, self.unconverged = scorer, weighted, set()
        cuts = self.source.X.offsets[1:-1]
        self.codes = np.split(self.source.codes, cuts)

    def _score(self, found: list[list], sequences: np.ndarray) -> float:
        source = self.source
        truth = [source.classes[self.codes[s]].tolist() for s in sequences]
        weights = {"sample_weight": source.weights[sequences]} if self.weighted else {}
        return read_number(self.scorer(Answers(found), source.X[sequences], truth, **weights))

    # ------------------------------------------------------------------ each sequence in turn

    def each_sequence(self) -> np.ndarray:
        """Scores of shape (n_l2s, n_transition_weights), each sequence left out, in closed form."""
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
            solve_dense, PairRule(self.problem.tagger.transitions),
            None if space is None else space.gram,
        )  # fmt: skip
        scores = np.empty((len(self.l2s), len(self.transition_weights)))
        for i, l2 in enumerate(self.l2s):
            if self.scorer is None:
                scores[i] = -leave_out.gcv(l2)
                continue
            left = list(leave_out.scores(l2))
            for j, weight in enumerate(self.transition_weights):
                found = [decode(self.problem, one, weight).tolist() for one in left]
                scores[i, j] = self._score(found, used)
        return scores

    # ------------------------------------------------------------------ folds

    def folds(self, folds: list) -> np.ndarray:
        """Mean scores over folds (train, test) of numbers of sequences, of the same shape."""
        given = self.source.given[1] > 0  # folds also number sequences of weight 0
        number, scores = np.cumsum(given) - 1, []
        for train, test in folds:
            train, test = (number[which[given[which]]] for which in (train, test))
            scores.append(self._fold(train, test))
        return np.mean(scores, axis=0)

    def _fold(self, train: np.ndarray, test: np.ndarray) -> np.ndarray:
        problem, X = self._without(train), self.source.X[test]
        score = self._scores_of(problem, train, test)
        scores = np.empty((len(self.l2s), len(self.transition_weights)))
        for i, l2 in enumerate(self.l2s):
            problem.tagger.l2 = l2
            left = self._left_out(problem, score)
            for j, weight in enumerate(self.transition_weights):
                labels = decode(problem, left, weight, X.offsets)
                scores[i, j] = self._score(list(cut_rows(labels.tolist(), X.offsets)), test)
        return scores

    def _without(self, train: np.ndarray) -> ZScoreProblem:
        # The problem of a fold, with the labels that occur in it.
        source, codes = self.source, np.concatenate([self.codes[s] for s in train])
        seen, codes = np.unique(codes, return_inverse=True)

        def of_seen(matrix: Any) -> Any:
            named = matrix is None or isinstance(matrix, (str, Mapping)) or callable(matrix)
            return matrix if named else np.asarray(matrix)[np.ix_(seen, seen)]

        tagger = clone(self.problem.tagger).set_params(transition_weight=0.0)
        tagger.loss = of_seen(tagger.loss)
        present = np.isin(np.arange(len(source.classes)), seen)
        tagger.constraints = constraints_of_part(tagger.constraints, source.classes, present)
        codes, classes = codes.astype(np.int32), source.classes[seen]
        if isinstance(tagger.class_weight, Mapping):
            known = {label: tagger.class_weight.get(label, 1.0) for label in classes.tolist()}
            tagger.class_weight = known
        part = RowSource(source.X[train], codes, classes, source.weights[train])
        gram, space = None, self.problem.space
        if space is not None:
            tagger.gamma = space.kernel.gamma
            if space.is_exact:
                rows = self._rows(train)
                gram = space.gram[np.ix_(rows, rows)]
        return ZScoreProblem(tagger, part, gram)

    def _scores_of(self, problem: ZScoreProblem, train: np.ndarray, test: np.ndarray) -> Callable:
        # Function from state weights to scores of the sequences left out.
        X, whole, space = self.source.X[test], self.problem.space, problem.space
        if space is None:
            return lambda coef: np.asarray(X.rows @ coef, dtype=np.float64)
        if not space.is_exact:
            return lambda coef: space.scores(coef, X.rows)
        across = whole.gram[np.ix_(self._rows(test), self._rows(train))]
        return lambda coef: across @ coef

    def _rows(self, sequences: np.ndarray) -> np.ndarray:
        bounds = self.source.X.offsets
        return np.concatenate([np.arange(bounds[s], bounds[s + 1]) for s in sequences])

    def _left_out(self, problem: ZScoreProblem, score: Callable) -> LeftOut:
        solution, sample, cost = problem.solve(), problem.sample, problem.cost
        if not solution.result.converged:
            self.unconverged.add(float(problem.tagger.l2))
        emission = score(solution.weights.coef)
        rule = PairRule(problem.tagger.transitions)
        table = rule.table(Statistics(None, None, None, *count_chain(sample)), problem.tagger.l2)
        scale, natural = loss_scale(solution.multiplier, cost, sample.n_labels)
        return LeftOut(emission, solution.weights.transition, scale * table, rule.kappa(natural))


def decode(
    problem: ZScoreProblem, left: LeftOut, weight: float | None, offsets: np.ndarray | None = None
) -> np.ndarray:
    """Decode rows with these scores; ``offsets`` may be omitted for a single sequence."""
    allowed = problem.allowed
    transition = np.where(allowed.transition, left.transition(weight), -np.inf)
    start, end = (np.where(mask, 0.0, -np.inf) for mask in (allowed.start, allowed.end))
    codes, _ = viterbi(left.emission, transition, offsets, start=start, end=end)
    return problem.source.classes[codes]

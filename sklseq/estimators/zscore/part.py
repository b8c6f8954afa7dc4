"""A z-score problem of some sequences, and its scores of others."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import clone

from sklseq.data.constraints import constraints_of_part
from sklseq.data.sequences import Sequences
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.zscore.ridge_systems import RidgeSystems
from sklseq.estimators.zscore.zscore_problem import ZScoreProblem
from sklseq.inference import viterbi
from sklseq.objectives.zscore.leave_out import LeftOut
from sklseq.objectives.zscore.moments import PairRule, Statistics, count_chain, loss_scale


class Part:
    """The problem of some sequences of a problem, with the labels that occur in them.

    Parameters
    ----------
    whole : ZScoreProblem
    train, test : ndarray
        Numbers of the sequences to solve the problem of, and of those to score.

    Attributes
    ----------
    problem : ZScoreProblem
    converged : bool
        Whether the last linear system was solved.
    """

    def __init__(self, whole: ZScoreProblem, train: np.ndarray, test: np.ndarray):
        self.whole, self.train, self.test = whole, train, test
        self.held = whole.source.X[test]
        self.problem, self.converged = self._problem(), True
        self._score = self._scores()

    def _problem(self) -> ZScoreProblem:
        source, space, train = self.whole.source, self.whole.space, self.train
        self.seen, codes = np.unique(source.codes[self.rows(train)], return_inverse=True)
        seen = self.seen

        def of_seen(matrix: Any) -> Any:
            named = matrix is None or isinstance(matrix, (str, Mapping)) or callable(matrix)
            return matrix if named else np.asarray(matrix)[np.ix_(seen, seen)]

        tagger = clone(self.whole.tagger)
        tagger.set_params(transitions="covariance", transition_weight=0.0, verbose=0)
        tagger.loss = of_seen(tagger.loss)
        present = np.isin(np.arange(len(source.classes)), seen)
        tagger.constraints = constraints_of_part(tagger.constraints, source.classes, present)
        codes, classes = codes.astype(np.int32), source.classes[seen]
        if isinstance(tagger.class_weight, Mapping):
            known = {label: tagger.class_weight.get(label, 1.0) for label in classes.tolist()}
            tagger.class_weight = known
        part = RowSource(source.X[train], codes, classes, source.weights[train])
        gram = None
        if space is not None:
            tagger.gamma = space.kernel.gamma
            if space.is_exact:
                rows = self.rows(train)
                gram = space.gram[np.ix_(rows, rows)]
        return ZScoreProblem(tagger, part, gram)

    def rows(self, sequences: np.ndarray) -> np.ndarray:
        """Numbers of the rows of sequences of the whole problem."""
        return rows_of(self.whole.source.X, sequences)

    def _scores(self) -> Callable[[np.ndarray], np.ndarray]:
        # Function from state weights to scores of the rows left out.
        rows, space, whole = self.held.rows, self.problem.space, self.whole.space
        if space is None:
            return self._linear_scores(rows)
        if not space.is_exact:
            return lambda coef: space.scores(coef, rows)
        across = whole.gram[np.ix_(self.rows(self.test), self.rows(self.train))]
        return lambda coef: across @ coef

    def _linear_scores(self, rows) -> Callable[[np.ndarray], np.ndarray]:
        kept = None
        if sparse.issparse(rows):  # the other columns need no weights
            kept = np.unique(rows.indices)
            rows = rows[:, kept]
        tagger, sample = self.problem.tagger, self.problem.sample
        self.problem.systems = RidgeSystems(tagger, sample, several=True, kept=kept)
        return lambda coef: np.asarray(rows @ coef, dtype=np.float64)

    def decode(self, left: LeftOut, rule: PairRule) -> np.ndarray:
        """Label codes of the rows left out, in the whole problem."""
        return self.seen[decode(self.problem, left, rule, self.held.offsets)]

    def left_out(self, l2: float) -> LeftOut:
        """Scores of the rows left out by weights with this ridge, and all of their transitions.

        Conjugate gradients start from the solutions with the ridges before: take the largest first.
        """
        problem, sample = self.problem, self.problem.sample
        problem.tagger.l2 = l2
        solution = problem.solve()
        self.converged = solution.result.converged
        statistics = Statistics(None, None, None, *count_chain(sample))
        sizes = loss_scale(solution.multiplier, problem.cost, sample.n_labels)
        emission = self._score(solution.weights.coef)
        return LeftOut(emission, solution.weights.transition, statistics, l2, *sizes)


def rows_of(X: Sequences, sequences: np.ndarray) -> np.ndarray:
    """Numbers of the rows of these sequences."""
    bounds = X.offsets
    return np.concatenate([np.arange(bounds[s], bounds[s + 1]) for s in sequences])


def decode(
    problem: ZScoreProblem, left: LeftOut, rule: PairRule, offsets: np.ndarray | None = None
) -> np.ndarray:
    """Label codes of rows with these scores; ``offsets`` may be omitted for a single sequence."""
    allowed = problem.allowed
    transition = np.where(allowed.transition, left.transition(rule), -np.inf)
    start, end = (np.where(mask, 0.0, -np.inf) for mask in (allowed.start, allowed.end))
    return viterbi(left.emission, transition, offsets, start=start, end=end)[0]

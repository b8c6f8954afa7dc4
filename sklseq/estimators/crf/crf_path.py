"""CRFs of one training set along a path of penalties, each started from the previous ones."""

from typing import Any

import numpy as np

from sklseq.data.sequences import Sequences
from sklseq.estimators.crf.crf_problem import CRFProblem, check_source, choose_solver
from sklseq.estimators.penalty_search import Data
from sklseq.estimators.sources.open_source import open_source
from sklseq.estimators.sources.partial_source import Unlabelled

# Fraction of tol that is passed to the solver: near the minimum the objective falls slowly, and the
# estimate of the excess is too small (on three parts of CoNLL-2002 at ten values of l2, the excess
# with tol itself was 1.35 tol once).
FRACTION_OF_TOL = 0.7
# Number of rows from which "auto" takes "adagrad" for a path, whose later models gain by its scale.
# (A quarter of letters, 9,400 rows, paths of ten and four penalties, l1 = 0 and 0.1, evaluations:
# 372, 583, 218, 271 without a scale, 110, 147, 94, 89 with one.)
MANY_ROWS = 2_000


class CRFPath:
    """CRFs of one training set for penalties from the strongest to the weakest.

    Weights change about evenly with log l2, so the solver starts from their linear extrapolation

        w(k) ≈ w(k-1) + r · (w(k-1) - w(k-2)),   r = log(l2(k) / l2(k-1)) / log(l2(k-1) / l2(k-2)),

    with r ≤ 1, or, at a new ``l1``, from the first weights of the previous ``l1``. Weights that are
    0 stay 0 in the start. L-BFGS keeps its pairs and, if AdaGrad solved the first problem, its
    scale and second derivatives; its estimates of the remaining excess need only four iterations
    then (a sixth of the iterations of cold starts on CoNLL-2002).

    Parameters
    ----------
    tagger : CRFTagger
    data : Data
    train, test : ndarray
        Numbers of sequences.
    """

    def __init__(self, tagger: Any, data: Data, train: np.ndarray, test: np.ndarray):
        rows, labels, weights = data.rows[train], data.y[train], data.weights[train]
        self.tagger, self.test = tagger, data.rows[test]
        data.restrict(tagger, labels[weights > 0])
        data.number_columns(tagger)
        unlabelled = Unlabelled.of(tagger)
        self.source = open_source(rows, labels, weights, tagger.gradient, unlabelled)
        check_source(tagger, self.source)
        with self.source:
            self.summary = self.source.summarise()
        is_auto = tagger.solver == "auto"
        if is_auto and choose_solver(tagger, self.source, MANY_ROWS)[0] != "lbfgs":
            tagger.solver = "adagrad"  # "dual" leaves no scale
        tagger.tol *= FRACTION_OF_TOL
        self.problem: CRFProblem | None = None  # the last one solved
        # (l2, weights) of the last two points with the present l1, and of the first one.
        self.l1 = np.nan
        self.last: list[tuple[float, np.ndarray]] = []
        self.first: tuple[float, np.ndarray] | None = None

    test: Sequences

    def fit(self, point: dict[str, float]) -> tuple[Any, bool]:
        """Fit with these penalties; return (fitted tagger, whether its solver converged)."""
        tagger = self.tagger.set_params(**point)
        if point["l1"] != self.l1:
            self.l1, self.last = point["l1"], [] if self.first is None else [self.first]
            self.first = None
            if self.problem is not None:
                self.problem.forget_pairs()
        start = self._start(point["l2"]) if self.last else None
        with self.source:
            self.problem = problem = CRFProblem(
                tagger, self.source, self.summary, self.problem, start
            )
            problem.pairs = problem.pairs or []
            result = problem.solve()
        vars(tagger).update(problem.attributes(result.w))
        here = point["l2"], result.w.copy()
        self.first = self.first or here
        self.last = [*self.last[-1:], here]
        return tagger, bool(result.converged)

    def _start(self, l2: float) -> np.ndarray:
        (l2_a, a), (l2_b, b) = self.last[-1], self.last[0]
        if min(l2, l2_a) <= 0 or l2_a >= l2_b:
            return a.copy()
        r = min(1.0, np.log(l2 / l2_a) / np.log(l2_a / l2_b))
        return a + np.where(a != 0, r * (a - b), 0).astype(a.dtype)

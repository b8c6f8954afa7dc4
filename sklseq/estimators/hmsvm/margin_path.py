"""Hidden Markov SVMs along a path of C, each started from the previous one."""

from threading import Lock
from typing import Any

import numpy as np

from sklseq.data.sequences import Sequences
from sklseq.estimators.hmsvm.margin_problem import MarginProblem, check_kernel_of_roles
from sklseq.estimators.hmsvm.solver_choice import choose_solver
from sklseq.estimators.kernel_functions import RowKernel, gram_matrix, row_kernel
from sklseq.estimators.penalty_search import Data
from sklseq.estimators.sources.source import RowSource


class GramMatrices:
    """Gram matrices of all rows, shared by folds: the last one is kept."""

    def __init__(self, tagger: Any, rows: Any):
        self.tagger, self.rows = tagger, rows
        self.lock, self.kernel, self.matrix = Lock(), None, None

    def of_kernel(self, kernel: RowKernel) -> np.ndarray:
        with self.lock:
            if self.kernel is None or self.kernel.gamma != kernel.gamma:
                self.matrix = None  # frees its memory before the next one is computed
                self.matrix = gram_matrix(kernel, self.rows, float(self.tagger.cache_size))
                self.kernel = kernel
            return self.matrix


class MarginPath:
    """Hidden Markov SVMs of one training set for C from the smallest to the largest.

    The dual variables of one C, multiplied by a number, start the training with the next C, see
    ``StructuredHinge.rescale``; if iterates are averaged, each training starts from zero. All rows
    stay, and sequences outside of the training set have the weight 0, so that one Gram matrix
    serves all folds, which train with ``kernel="precomputed"``.

    Parameters
    ----------
    tagger : HMSVMTagger
    data : Data
    train, test : ndarray
        Numbers of sequences.
    grams : GramMatrices
    """

    test: Sequences

    def __init__(self, tagger: Any, data: Data, train: np.ndarray, test: np.ndarray, grams: Any):
        weights = np.bincount(train, minlength=len(data.y)) * data.weights
        self.tagger, rows = tagger, data.rows
        data.restrict(tagger, data.y[weights > 0])
        self.source = RowSource.read(rows, data.y, weights)
        check_kernel_of_roles(tagger, rows.roles)
        self.gram = None
        if tagger.kernel != "linear":
            self.gram = grams.of_kernel(row_kernel(tagger, self.source.X.rows))
            rows = rows.with_rows(self.gram)
            self.source.given = rows, weights
            tagger.kernel = "precomputed"
        self.test, self.problem = rows[test], None

    def fit(self, point: dict[str, float]) -> tuple[Any, bool]:
        """(fitted tagger, whether its solver converged) with this C."""
        tagger, before = self.tagger, self.tagger.C
        tagger.set_params(**point)
        solver = choose_solver(tagger, self.source.X, len(self.source.classes))
        if self.problem is None or self.problem.averaging or self.problem.solver != solver:
            self.problem = MarginProblem(tagger, self.source, self.gram)
        else:
            self.problem.objective.rescale(tagger.C / before)
        result = self.problem.solve()
        vars(tagger).update(self.problem.attributes())
        return tagger, result.converged

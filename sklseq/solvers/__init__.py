"""Solvers: iterations and stopping rules that reach an objective only through its methods.

Imports: _lib; never sklearn.
"""

from sklseq.solvers._adagrad import adagrad
from sklseq.solvers._bcfw import bcfw
from sklseq.solvers._block_metric import BlockMetric
from sklseq.solvers._cg import cg
from sklseq.solvers._dense import least_distance, solve_dense
from sklseq.solvers._eg import exponentiated_gradient
from sklseq.solvers._lbfgs import lbfgs
from sklseq.solvers._owlqn import l1_norm
from sklseq.solvers._perceptron import perceptron
from sklseq.solvers._result import SolverResult
from sklseq.solvers._smoothing import ROUNDING, smoothing
from sklseq.solvers._working_set import working_set

__all__ = [
    "ROUNDING",
    "BlockMetric",
    "SolverResult",
    "adagrad",
    "bcfw",
    "cg",
    "exponentiated_gradient",
    "l1_norm",
    "lbfgs",
    "least_distance",
    "perceptron",
    "smoothing",
    "solve_dense",
    "working_set",
]

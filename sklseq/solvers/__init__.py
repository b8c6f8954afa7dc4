"""Solvers: they see an objective's named methods and nothing else."""

from sklseq.solvers._cg import cg
from sklseq.solvers._dense import least_distance, solve_dense
from sklseq.solvers._eg import exponentiated_gradient
from sklseq.solvers._lbfgs import lbfgs
from sklseq.solvers._result import SolverResult

__all__ = ["SolverResult", "cg", "exponentiated_gradient", "lbfgs", "least_distance", "solve_dense"]

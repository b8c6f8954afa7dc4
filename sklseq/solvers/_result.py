"""Result of a solver."""

from typing import NamedTuple

import numpy as np

ROUNDING = "rounding reached"  # message if more iterations cannot reduce the gap


class SolverResult(NamedTuple):
    """Result of a solver.

    Attributes
    ----------
    w : ndarray
        The best weights found.
    value : float
        Objective at ``w``, penalties included.
    n_iter : int
        Number of iterations.
    converged : bool
        Whether a stopping rule was met before ``max_iter``.
    history : list of float
        Objective after each iteration; ``history[0]`` is at the start.
    message : str
        Reason for the stop.
    gradient : ndarray or None
        Gradient of the smooth part of the objective at ``w``, if the solver has it.
    """

    w: np.ndarray
    value: float
    n_iter: int
    converged: bool
    history: list
    message: str
    gradient: np.ndarray | None = None

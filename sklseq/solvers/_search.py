"""State of L-BFGS, common to smooth objectives and those with an L1 penalty."""

from __future__ import annotations

import numpy as np

from sklseq._lib.threads import Threads
from sklseq.solvers._history import History

__all__ = ["MAX_TRIALS", "SUFFICIENT_DECREASE", "Search"]

SUFFICIENT_DECREASE = 1e-4
MAX_TRIALS = 40


class Search:
    """State of a search: w, its value, gradient g, (pseudo-)gradient v, and the pairs.

    Parameters
    ----------
    objective : object with ``value_and_gradient(w, gradient) -> float``
    w : ndarray
        Starting point; overwritten.
    threads : Threads
    memory : int
        Number of pairs.
    """

    def __init__(self, objective, w: np.ndarray, threads: Threads, memory: int):
        self.objective, self.w = objective, w
        self.trial, self.g, self.g_old, self.p = (np.zeros_like(w) for _ in range(4))
        self.history = History(len(w), memory, w.dtype, threads)
        self.value = self.evaluate(w, self.g)
        if not np.isfinite(self.value):
            raise ValueError(
                f"The objective is {self.value} at the starting point; "
                "rescale the features so that scores stay below about 1e300."
            )
        self.v = self.steepest()
        self.history.with_v[-1] = self.history.dot(self.v, self.v)

    def evaluate(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """Value of the whole objective; writes the gradient of its smooth part."""
        return self.objective.value_and_gradient(w, gradient)

    def steepest(self) -> np.ndarray:
        """v, the subgradient of least norm at w."""
        return self.g

    def squared_slope(self, scale: np.ndarray | None) -> float:
        """‖v‖², or ‖v · scale‖²."""
        if scale is None:
            return float(self.history.with_v[-1])
        return float(np.square(self.v * scale, dtype=np.float64).sum())

    def advance(self) -> bool:
        """One iteration; False if, within rounding, no step lowers the objective."""
        raise NotImplementedError

    def is_rounding(self, value: float, predicted: float) -> bool:
        """Whether both the predicted and the actual change are below the rounding error."""
        epsilon = np.finfo(self.w.dtype).eps * max(abs(self.value), 1e-300)
        return abs(predicted) < 10 * epsilon and abs(value - self.value) < 100 * epsilon

"""The regularised conditional likelihood, descended one sequence at a time."""

from __future__ import annotations

import numpy as np

from sklseq._cpu import load_kernel
from sklseq.objectives._likelihood import LogLikelihood
from sklseq.objectives._visits import Visits

_descent = load_kernel("sklseq.objectives._descent")

__all__ = ["StochasticLikelihood"]

# Where the sums of squared gradients begin. With less, the first steps are rate · sign(gradient).
FIRST_SQUARE = 1.0


class StochasticLikelihood(Visits):
    """f(w) of `LogLikelihood` with its penalties, in steps of AdaGrad.

    Each weight has a step of its own, rate / √(sum of its squared gradients so far), so that rare
    features move as far as frequent ones; both penalties are applied in closed form, shared out
    evenly among the visits (Duchi, Hazan, Singer 2011, §1.2, §5.1).

    Parameters
    ----------
    primal : LogLikelihood
        Of sparse rows, in float64.
    l1 : float, default=0.0
        Of the penalty l1 · ‖w‖₁, which ``primal`` does not have.
    w : ndarray, optional
        Where to start; overwritten.

    Notes
    -----
    A visit costs O(nnz · L + T · L²), and two square roots a feature value and label. Memory:
    as much as w beside w.
    """

    def __init__(self, primal: LogLikelihood, l1: float = 0.0, w: np.ndarray | None = None):
        super().__init__(primal, w)
        self.y = primal.y
        W, narrow = self.wide_and_narrow()
        self.squares = [np.full_like(x, FIRST_SQUARE) for x in (W, narrow, self.chain)]
        self.stamps = np.zeros(len(W), np.int64), np.zeros(len(narrow), np.int64)
        share = 1 / max(len(self.visited), 1)
        self.penalties = l1 * share, 2 * primal.l2 * share
        self.scratch = self.new_scratch(4, 3 * self.scores.width + self.scores.n_labels)
        self.n_visits = 0

    def descend(self, order: np.ndarray, rate: float) -> float:
        """Visit sequences in this order; returns Σ weight · -log p, each before its step."""
        arguments = self.arguments()
        loss = _descent.descend(
            order, self.offsets, self.y, self.weights, *arguments, *self.squares, *self.stamps,
            self.n_visits, rate, *self.penalties, self.scratch, self.inverse_c,
        )  # fmt: skip
        self.n_visits += len(order)
        self.store(arguments[2])
        return loss

    def restart(self, w: np.ndarray) -> None:
        """Go on from these weights."""
        self.w[:] = w
        self.chain = self.scores.padded_chain(w)

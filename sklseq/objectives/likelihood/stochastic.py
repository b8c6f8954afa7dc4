"""The regularised conditional likelihood, descended one sequence at a time."""

from __future__ import annotations

from copy import copy

import numpy as np

from sklseq._lib.cpu import load_kernel
from sklseq.objectives.likelihood.lattice import Visits
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.scores.score_map import largest_at

_descent = load_kernel("sklseq.objectives.likelihood._descent")

__all__ = ["StochasticLikelihood"]

# Where the sums of squared gradients begin. With less, the first steps are rate · sign(gradient).
FIRST_SQUARE = 1.0
# Residuals below this are sampled (measured on CoNLL-2002: halves the time, changes nothing else).
ALMOST = 0.05
SEED = 88172645463325252


class StochasticLikelihood(Visits):
    """f(w) of `LogLikelihood` with its penalties, in steps of AdaGrad.

    Each weight has a step of its own, rate / √(sum of its squared gradients so far), so that rare
    features move as far as frequent ones, whatever their scale; both penalties are applied in
    closed form, shared out evenly among the visits (Duchi, Hazan, Singer 2011, §1.2, §5.1).

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
    A visit costs O(nnz · L + T · L²), and a square root a feature value and label. Memory:
    half as much as w beside w.
    """

    def __init__(self, primal: LogLikelihood, l1: float = 0.0, w: np.ndarray | None = None):
        super().__init__(primal, w)
        self.y = primal.y
        W, narrow = self.wide_and_narrow()
        self.squares = [np.full(x.shape, FIRST_SQUARE, np.float32) for x in (W, narrow, self.chain)]
        self.stamps = np.zeros(len(W), np.int64), np.zeros(len(narrow), np.int64)
        self.scale = self._scales(len(W), len(narrow))
        self.l1, self.l2 = l1, primal.l2
        self.losses = np.zeros(len(self.weights))
        self.make_room(self.longest)
        self.n_visits = 0

    def make_room(self, longest: int) -> None:
        """Scratch for sequences of so many rows."""
        self.longest, self.inverse_c = longest, np.zeros(longest)
        self.scratch = self.new_scratch(4, 3 * self.scores.width + self.scores.n_labels)

    def on_rows_of(self, part: LogLikelihood) -> StochasticLikelihood:
        """The same weights and sums, to visit the sequences of a shard: they change for both."""
        other = copy(self)
        other.y, other.offsets, other.weights = part.y, part.offsets, part.weights
        other.rows, other.narrow, _ = part.scores.design.entries()
        other.losses = np.zeros(len(part.weights))
        return other

    def _scales(self, n_wide: int, n_narrow: int) -> tuple[np.ndarray, np.ndarray] | None:
        # 1 / largest magnitude of each row's feature, and of each narrow pair's.
        _, pair, _, data = self.narrow or (None, np.zeros(0, np.int32), None, np.zeros(0))
        if not len(self.rows[2]) and not len(data):
            return None
        pairs = ((n_wide, self.rows[1], self.rows[2]), (n_narrow, pair, data))
        return tuple(_inverse_scale(*entries) for entries in pairs)

    def descend(
        self, order: np.ndarray, rate: float, boost: np.ndarray | float = 1.0,
        n_sequences: int | None = None,
    ) -> float:  # fmt: skip
        """Visit sequences in this order, with their weights times ``boost``.

        The penalties are those of ``n_sequences``, or as many as are visited.

        Returns Σ weight · boost · -log p, each before its step, without penalties; -log p itself is
        in ``losses``. Where scores are too far apart for scaled arithmetic, steps follow the
        marginals of flatter scores, but these are still -log p of the scores themselves.
        """
        arguments = self.arguments()
        share = 1 / max(n_sequences or len(order), 1)
        loss = _descent.descend(
            order, self.offsets, self.y, self.weights * boost, *arguments, *self.squares,
            self.scale, *self.stamps, self.losses, self.n_visits, SEED + self.n_visits, ALMOST,
            rate, self.l1 * share, 2 * self.l2 * share, self.listed, self.scratch, self.inverse_c,
        )  # fmt: skip
        self.n_visits += len(order)
        self.store(arguments[2])
        return loss

    def metric(self) -> np.ndarray:
        """√(1 + Σ g²) of each weight, in the places of w: what its steps were divided by.

        g is what the gradient would be were the weight's feature at most 1.
        """
        other = copy(self)
        other.w = self.scores.new_vector()
        W, narrow = other.wide_and_narrow()
        # W may be the design's own, in which untrained places have to stay 0.
        W[:] = self.squares[0] if self.mask is None else self.squares[0] * self.mask
        narrow[:] = self.squares[1]
        other.chain = self.squares[2].astype(np.float64)
        other.store(W)
        return np.sqrt(np.maximum(other.w, 1))

    def restart(self, w: np.ndarray) -> None:
        """Go on from these weights."""
        self.w[:] = w
        self.chain = self.scores.padded_chain(w)


def _inverse_scale(n: int, index: np.ndarray, values: np.ndarray) -> np.ndarray:
    largest = largest_at(index, np.abs(values), n)
    return 1 / np.where(largest > 0, largest, 1.0)

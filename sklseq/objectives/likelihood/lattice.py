"""Rows and weights as the kernels that visit one sequence at a time want them."""

from __future__ import annotations

import numpy as np

from sklseq.inference.chain.sparse_transitions import PairLists
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.scores.design import aligned_zeros

__all__ = ["Visits"]


class Visits:
    """Weights that change with each sequence that is visited.

    Parameters
    ----------
    primal : LogLikelihood
        Of sparse rows, in float64.
    w : ndarray, optional
        Where to work, and to start.

    Attributes
    ----------
    w : ndarray
        The weights, up to date between passes.
    visited : ndarray
        Sequences that have rows and a weight.
    """

    def __init__(self, primal: LogLikelihood, w: np.ndarray | None = None):
        scores, offsets, weights = primal.scores, primal.offsets, primal.weights
        self.scores, self.offsets, self.weights = scores, offsets, weights
        self.w = scores.new_vector() if w is None else w
        self.visited = np.flatnonzero((weights > 0) & (np.diff(offsets) > 0))
        self.rows, self.narrow, self.mask = scores.design.entries()
        self.longest = int(np.diff(offsets).max(initial=1))
        self.inverse_c = np.zeros(self.longest)
        self.chain = scores.padded_chain(self.w)
        self.chain_mask, self.allowed = scores.chain_masks()
        self.pairs = scores.pairs_for("visits") or None  # without any, the matrix of zeros
        self.listed = None if self.pairs is None else self._lists(self.pairs)

    def _lists(self, pairs: PairLists) -> tuple:
        # As `sparse_lattice.pxd` reads them, and room for six numbers each.
        L = self.scores.n_labels
        numbers, room = np.empty((6, len(pairs))), np.empty(81 * L)
        return (
            pairs.columns, pairs.rows, pairs.by_column.astype(np.int32), pairs.rows[1],
            pairs.i * self.scores.width + pairs.j, pairs.free.astype(np.float64), numbers, room,
        )  # fmt: skip

    def new_scratch(self, per_row: int, others: int) -> np.ndarray:
        """Padded rows: ``per_row`` for each row of the longest sequence, and ``others``.

        These are for matrices of pairs, which are not needed where pairs are listed.
        """
        width, others = self.scores.width, others if self.listed is None else 0
        rows = per_row * self.longest + others
        return aligned_zeros(rows * width, np.float64).reshape(-1, width)

    def wide_and_narrow(self) -> tuple[np.ndarray, np.ndarray]:
        """State weights as padded rows, and those of narrow features."""
        state = self.scores.state(self.w)
        W = self.scores.design.weights(state)
        return (W, state[:0]) if self.narrow is None else W

    def arguments(self) -> tuple:
        """Rows and weights in the order in which the kernels take them."""
        W, w = self.wide_and_narrow()
        return (self.rows, self.narrow, W, self.mask, w, self.chain, self.chain_mask, self.allowed)

    def store(self, W: np.ndarray) -> None:
        """Bring w up to date with what a kernel left in its arguments."""
        self.scores.design.store(W, self.scores.state(self.w))
        self.scores.store_chain(self.w, *self.scores.split_chain(self.chain))

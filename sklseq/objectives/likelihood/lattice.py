"""Rows and weights of solvers that update after each sequence, in the form of their kernels."""

from __future__ import annotations

import numpy as np

from sklseq.inference.chain.sparse_transitions import PairLists
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.scores.design import aligned_zeros

__all__ = ["LatticeState"]


class LatticeState:
    """Weights that change after each sequence.

    Parameters
    ----------
    primal : LogLikelihood
        Of sparse rows, in float64.
    w : ndarray, optional
        Start; overwritten.

    Attributes
    ----------
    w : ndarray
        The weights, up to date between passes.
    sequences : ndarray
        Numbers of those that have rows and a weight.
    """

    def __init__(self, primal: LogLikelihood, w: np.ndarray | None = None):
        scores, offsets, weights = primal.scores, primal.offsets, primal.weights
        self.scores, self.offsets, self.weights = scores, offsets, weights
        self.w = scores.new_vector() if w is None else w
        self.sequences = np.flatnonzero((weights > 0) & (np.diff(offsets) > 0))
        self.rows, self.narrow, self.mask = scores.design.entries()
        self.longest = int(np.diff(offsets).max(initial=1))
        self.inverse_c = np.zeros(self.longest)
        self.chain = scores.padded_chain(self.w)
        self.chain_mask, self.allowed = scores.chain_masks()
        self.pairs = scores.pairs_for("visits") or None  # without any, the matrix of zeros
        self.listed = None if self.pairs is None else self._lists(self.pairs)

    def _lists(self, pairs: PairLists) -> tuple:
        # In the form of `sparse_lattice.pxd`, with scratch for six numbers each.
        L = self.scores.n_labels
        numbers, scratch = np.empty((6, len(pairs))), np.empty(81 * L)
        return (
            pairs.columns, pairs.rows, pairs.by_column.astype(np.int32), pairs.rows[1],
            pairs.i * self.scores.width + pairs.j, pairs.free.astype(np.float64), numbers, scratch,
        )  # fmt: skip

    def new_scratch(self, per_row: int, others: int) -> np.ndarray:
        """Padded rows: ``per_row`` for each row of the longest sequence, and ``others``.

        ``others`` are for matrices of transitions, which sparse transitions do not need.
        """
        width, others = self.scores.width, others if self.listed is None else 0
        rows = per_row * self.longest + others
        return aligned_zeros(rows * width, np.float64).reshape(-1, width)

    def dense_and_sparse(self) -> tuple[np.ndarray, np.ndarray]:
        """State weights in padded rows, and those of single (feature, label) pairs."""
        state = self.scores.state(self.w)
        W = self.scores.design.weights(state)
        return (W, state[:0]) if self.narrow is None else W

    def store(self, W: np.ndarray) -> None:
        """Store the padded weights that a kernel changed in w."""
        self.scores.design.store(W, self.scores.state(self.w))
        self.scores.store_chain(self.w, *self.scores.split_chain(self.chain))

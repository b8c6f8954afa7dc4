"""Rows and weights of solvers that update after each sequence, in the form of their kernels."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from sklseq._lib.threads import Threads, spans
from sklseq.inference.chain.sparse_transitions import PairLists
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.scores.design import aligned_zeros

__all__ = ["LatticeState", "in_pieces"]

# A thread takes at least so many sequences of a pass: weights trained on few are worth little.
LEAST = 100
# Numbers of an array that are merged at once, so that temporaries stay in the cache.
PIECE = 1 << 14


class LatticeState:
    """Weights that change after each sequence.

    Several threads train copies of the weights, each on sequences of its own; at the end of a pass,
    or several times in it, these are merged. So threads seldom wait for each other, and answers
    depend on how many there are, but not on which is faster.

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
        self.threads, self.thread_buffers = primal.threads, []
        self.w = scores.new_vector() if w is None else w
        self.sequences = np.flatnonzero((weights > 0) & (np.diff(offsets) > 0))
        self.rows, self.sparse, self.mask = scores.design.entries()
        self.longest = int(np.diff(offsets).max(initial=1))
        self.inverse_c = np.zeros(self.longest)
        self.chain = scores.padded_chain(self.w)
        self.chain_mask, self.allowed = scores.chain_masks()
        self.pairs = scores.pairs_for("updates") or None  # without any, the matrix of zeros
        self.listed = None if self.pairs is None else self._lists(self.pairs)
        self.v, self.links = scores.triples(self.w), self._links()

    def _links(self) -> tuple | None:
        # Entries of rows in the form of `lattice.pxd`, with buffers for those of one sequence.
        features, L = self.scores.features, self.scores.n_labels
        if features is None or not features.n_weights:
            return None
        n = int(np.diff(features.before[self.offsets]).max(initial=0))
        matrices = np.zeros((3, self.scores.width, self.scores.width))
        place, start = np.zeros(L * L, np.int32), np.zeros(self.longest + 1, np.int64)
        numbers = np.zeros((2, max(n, 1)), np.int32), np.zeros((4, max(n, 1)))
        return features.rows, features.support, place, start, *numbers, matrices

    def _lists(self, pairs: PairLists) -> tuple:
        # In the form of `sparse_lattice.pxd`, with scratch for seven numbers each.
        L = self.scores.n_labels
        numbers, scratch = np.empty((7, len(pairs))), np.empty(81 * L)
        return (
            pairs.columns, pairs.rows, pairs.by_column.astype(np.int32), pairs.rows[1],
            pairs.i * self.scores.width + pairs.j, pairs.free.astype(np.float64), numbers, scratch,
        )  # fmt: skip

    def shares(self, order: np.ndarray) -> list[np.ndarray]:
        """Runs of ``order``, one for each thread, with about as many rows."""
        n = min(self.threads.n, len(order) // LEAST)
        if n < 2:
            return [order]
        self.thread_buffers += [None] * (n - len(self.thread_buffers))
        rows = np.cumsum(np.diff(self.offsets)[order])
        return np.split(order, np.searchsorted(rows, rows[-1] * np.arange(1, n) / n))

    def member(self, k: int, arrays: dict[str, Any]) -> Any:
        """The same state for thread k, with scratch and copies of ``arrays`` of its own.

        The memory of the copies, lists of arrays, is used again in the next pass.
        """
        if self.thread_buffers[k] is None:
            listed = None if self.pairs is None else self._lists(self.pairs)
            copies = {name: [_aligned_like(x) for x in given] for name, given in arrays.items()}
            scratch, inverse_c = _aligned_like(self.scratch), np.zeros_like(self.inverse_c)
            own = {"scratch": scratch, "inverse_c": inverse_c, "listed": listed}
            own["links"] = self._links()
            self.thread_buffers[k] = copies | own
        other = copy(self)
        vars(other).update(self.thread_buffers[k])
        for name, given in arrays.items():
            for x, own in zip(given, self.thread_buffers[k][name]):
                np.copyto(own, x)
        return other

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
        return (W, state[:0]) if self.sparse is None else W

    def store(self, W: np.ndarray) -> None:
        """Store the padded weights that a kernel changed in w."""
        self.scores.design.store(W, self.scores.state(self.w))
        self.scores.store_chain(self.w, *self.scores.split_chain(self.chain))


def _aligned_like(x: np.ndarray) -> np.ndarray:
    return aligned_zeros(x.size, x.dtype).reshape(x.shape)


def in_pieces(threads: Threads, work: Any, *arrays: np.ndarray) -> list:
    """``work`` of the same pieces of all arrays, each contiguous, in the threads."""
    flat = [x.reshape(-1) for x in arrays]
    pieces = spans(flat[0].size, 1 + flat[0].size // PIECE)
    return threads.map(lambda piece: work(*(x[slice(*piece)] for x in flat)), pieces)

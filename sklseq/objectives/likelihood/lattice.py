"""State of solvers that update after each sequence, in the form of their kernels."""

from copy import copy
from typing import Any

import numpy as np

from sklseq._lib.aligned import aligned_zeros
from sklseq._lib.threads import Threads, spans
from sklseq.inference.chain.sparse_transitions import PairLists
from sklseq.objectives.likelihood.likelihood import LogLikelihood

# Least number of sequences for each thread: weights trained on fewer are of little use in a merge.
LEAST = 100
# Entries of an array merged at a time, so that temporaries stay in the cache.
PIECE = 1 << 14


class LatticeState:
    """Weights that change after each sequence.

    Base of `StochasticLikelihood` and `DualLikelihood`. Several threads train copies of the
    weights, each on different sequences; the copies are merged at the end of a pass, or several
    times in it. Results depend on the number of threads, but not on their speed.

    Parameters
    ----------
    primal : LogLikelihood
        With sparse rows, in float64.
    w : ndarray, optional
        Start; overwritten.

    Attributes
    ----------
    w : ndarray
        The weights, up to date between passes.
    sequences : ndarray
        Numbers of the sequences that have rows and a positive weight.
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
        self.pairs = scores.pairs_for("updates") or None  # an empty list: dense
        self.listed = None if self.pairs is None else self._lists(self.pairs)
        self.v, self.features = scores.triples(self.w), scores.features
        self.links = self.new_links()

    def new_links(self) -> tuple | None:
        # Transition features in the form of `lattice.pxd`, with buffers for one sequence.
        features, L = self.features, self.scores.n_labels
        if features is None or not features.n_weights:
            return None
        n = int(np.diff(features.before[self.offsets]).max(initial=0))
        matrices = np.zeros((3, self.scores.width, self.scores.width))
        place, start = np.zeros(L * L, np.int32), np.zeros(self.longest + 1, np.int64)
        numbers = np.zeros((3, max(n, 1)), np.int32), np.zeros((4, max(n, 1)))
        return features.rows, features.support, place, start, *numbers, matrices

    def _lists(self, pairs: PairLists) -> tuple:
        # Sparse transitions in the form of `sparse_lattice.pxd`, with 8 numbers of scratch each.
        L = self.scores.n_labels
        numbers, scratch = np.empty((8, len(pairs))), np.empty(81 * L)
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
        """Copy of this state for thread k, with its own scratch and copies of ``arrays``.

        The memory of the copies is reused in the next pass.
        """
        if self.thread_buffers[k] is None:
            listed = None if self.pairs is None else self._lists(self.pairs)
            copies = {name: [_aligned_like(x) for x in given] for name, given in arrays.items()}
            scratch, inverse_c = _aligned_like(self.scratch), np.zeros_like(self.inverse_c)
            own = {"scratch": scratch, "inverse_c": inverse_c, "listed": listed}
            self.thread_buffers[k] = copies | own
        other = copy(self)
        vars(other).update(self.thread_buffers[k])
        other.links = self.new_links()  # of these rows: shards share the memory
        for name, given in arrays.items():
            for x, own in zip(given, self.thread_buffers[k][name]):
                np.copyto(own, x)
        return other

    def new_scratch(self) -> np.ndarray:
        """Padded rows: five for each row of the longest sequence, and matrices of transitions."""
        width, rows = self.scores.width, 5 * self.longest
        if self.listed is None:
            rows += 3 * width + 2 * self.scores.n_labels
        return aligned_zeros(rows * width, np.float64).reshape(-1, width)

    def dense_and_sparse(self) -> tuple[np.ndarray, np.ndarray]:
        """State weights: dense rows, padded, and sparse entries."""
        state = self.scores.state(self.w)
        W = self.scores.design.weights(state)
        return (W, state[:0]) if self.sparse is None else W

    def store(self, W: np.ndarray) -> None:
        """Copy the padded weights, which a kernel has changed, into w."""
        self.scores.design.store(W, self.scores.state(self.w))
        self.scores.store_chain(self.w, *self.scores.split_chain(self.chain))


def _aligned_like(x: np.ndarray) -> np.ndarray:
    return aligned_zeros(x.size, x.dtype).reshape(x.shape)


def in_pieces(threads: Threads, work: Any, *arrays: np.ndarray) -> list:
    """Call ``work`` on corresponding pieces of all arrays, contiguous ones, in threads."""
    flat = [x.reshape(-1) for x in arrays]
    pieces = spans(flat[0].size, 1 + flat[0].size // PIECE)
    return threads.map(lambda piece: work(*(x[slice(*piece)] for x in flat)), pieces)

"""State of solvers that update after each sequence, in the form of their kernels."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.aligned import aligned_zeros
from sklseq.inference.chain.sparse_transitions import PairLists
from sklseq.objectives.likelihood.batches import GROUP, SPARSE_GROUP, BatchPlan, owners
from sklseq.objectives.likelihood.likelihood import LogLikelihood


class Slots(NamedTuple):
    """Residuals of the sequences of a batch, one after the other.

    Attributes
    ----------
    place : ndarray of shape (n_sequences,)
        First row of each sequence, in the order of updates.
    residuals : ndarray of shape (n_rows, width)
    moves : ndarray of shape (n_rows, n_blocks)
        Whether a block of lanes changes weights.
    pairs : ndarray of shape (n_slots, n_pairs + 2 * width)
        Residuals of transitions, first and last rows.
    entries : tuple or None
        Of transition features: first entry of each row, labels, residuals, and first entry of each
        sequence, in the order of updates.
    """

    place: np.ndarray
    residuals: np.ndarray
    moves: np.ndarray
    pairs: np.ndarray
    entries: tuple | None


class LatticeState:
    """Weights that change after each sequence.

    Base of `StochasticLikelihood` and `DualLikelihood`. Several threads work on batches of
    sequences, see `batches.pxd`. Results depend on the number of threads, but not on their speed.

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
        numbers = np.zeros((2, max(n, 1)), np.int32), np.zeros((4, max(n, 1)))
        return features.rows, features.support, place, start, *numbers, matrices

    def _lists(self, pairs: PairLists) -> tuple:
        # Sparse transitions in the form of `sparse_lattice.pxd`, with 7 numbers of scratch each.
        L = self.scores.n_labels
        numbers, scratch = np.empty((7, len(pairs))), np.empty(81 * L)
        return (
            pairs.columns, pairs.rows, pairs.by_column.astype(np.int32), pairs.rows[1],
            pairs.i * self.scores.width + pairs.j, pairs.free.astype(np.float64), numbers, scratch,
        )  # fmt: skip

    def members(self, plan: BatchPlan) -> list[Any]:
        """This state for each thread, with its own scratch, which the next call uses again."""
        for _ in range(len(self.thread_buffers), plan.n_parts - 1):
            listed = None if self.pairs is None else self._lists(self.pairs)
            scratch, inverse_c = _aligned_like(self.scratch), np.zeros_like(self.inverse_c)
            own = {"scratch": scratch, "inverse_c": inverse_c, "listed": listed}
            self.thread_buffers.append(own)
        self.slots = self._slots(plan)
        if plan.n_parts > 1:
            self.owners = self._owners(plan.n_parts)
        members = [self]
        for own in self.thread_buffers[: plan.n_parts - 1]:
            members.append(copy(self))
            vars(members[-1]).update(own, links=self.new_links())
        return members

    def _slots(self, plan: BatchPlan) -> Slots:
        width, L, n_slots = self.scores.width, self.scores.n_labels, plan.n_slots
        place, n_rows = plan.places(plan.lengths)
        residuals = aligned_zeros(n_rows * width, np.float64).reshape(-1, width)
        moves = np.empty((n_rows, max(width // 8, 1)), np.uint8)
        n_pairs = (L * width if self.pairs is None else len(self.pairs)) + 2 * width
        pairs = aligned_zeros(n_slots * n_pairs, np.float64).reshape(n_slots, -1)
        if self.links is None:
            return Slots(place, residuals, moves, pairs, None)
        before = self.features.before
        first, n = plan.places(
            before[self.offsets[plan.order + 1]] - before[self.offsets[plan.order]]
        )
        start, labels = np.zeros(n_rows + n_slots, np.int64), np.zeros((2, n), np.int32)
        return Slots(place, residuals, moves, pairs, (start, labels, np.zeros(n), first))

    def _owners(self, n_parts: int) -> tuple[np.ndarray, ...]:
        # Parts of dense rows, sparse entries and transition features.
        dense, sparse = self.dense_and_sparse()
        pair = np.zeros(0, np.int32) if self.sparse is None else self.sparse[1]
        link = np.zeros(0, np.int32) if self.links is None else self.features.rows[1]
        n_links = 0 if self.links is None else len(self.features.columns)
        return (
            owners(self.rows[1], len(dense), GROUP, n_parts),
            owners(pair, len(sparse), SPARSE_GROUP, n_parts),
            owners(link, n_links, 0, n_parts),
        )

    def new_scratch(self, per_row: int, others: int) -> np.ndarray:
        """Padded rows: ``per_row`` for each row of the longest sequence, and ``others``.

        ``others`` are for matrices of transitions, which sparse transitions do not need.
        """
        width, others = self.scores.width, others if self.listed is None else 0
        rows = per_row * self.longest + others
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

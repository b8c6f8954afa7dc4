"""Conditional log-likelihood of a linear-chain CRF, and its gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.threads import Threads, runs_of, spans
from sklseq.data.sequences import row_positions
from sklseq.inference.chain.linear_chain import (
    Transitions,
    Workspace,
    batch_rows,
    check_paths,
    row_blocks,
)
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.inference.chain.tangent import Direction, Filtered, TangentWorkspace, tangent_rows
from sklseq.objectives.scores.design import _linear
from sklseq.objectives.scores.row_entries import EntryBuffers
from sklseq.objectives.scores.score_map import ScoreMap, neighbours

# Weights whose squares are summed at a time, in the cache. (64 pieces of whatever length took a
# third of an evaluation of 1,000 rows.)
PIECE = 1 << 15


class ThreadBuffers(Workspace):
    """Buffers of one thread for blocks of rows, and its sums of counts."""

    def __init__(self, n_rows: int, scores: ScoreMap):
        super().__init__(n_rows, scores.width, scores.dtype, scores.pairs)
        self.buffer = scores.design.new_buffer()
        self.ends = np.zeros((2, scores.width))
        self.psi = np.empty_like(self.e)
        self.entries: EntryBuffers | None = None
        if scores.features is not None:
            self.entries = scores.features.buffers([])

    def clear(self) -> None:
        """Set all sums to zero."""
        self.forget()
        self.buffer[:] = 0
        self.ends[:] = 0
        if self.entries is not None:
            self.entries.clear()

    def add_ends(self, rows: np.ndarray, offsets: np.ndarray) -> None:
        """Add the first and the last row of each sequence to ``ends``."""
        _linear.add_ends(rows, offsets, self.ends)

    def rows(self, residual: np.ndarray | None, first: int, last: int) -> np.ndarray:
        """Buffer for the scores and residuals of some rows: part of ``residual`` if given."""
        return self.psi[: last - first] if residual is None else residual[first:last]


class Block(NamedTuple):
    """A run of sequences that fits into the cache, as views of the data."""

    first: int
    last: int
    sequences: slice
    offsets: np.ndarray  # of these sequences, from 0
    weights: np.ndarray
    y: np.ndarray


class SumOfParts:
    """Σ_k f_k(w) + l2 · ‖w‖²₂: value and gradient, from the sums over all parts.

    Subclasses set ``buffers``, a ``ThreadBuffers`` for each thread, and call ``work`` on each part
    in :meth:`each_part`.
    """

    residual: np.ndarray | None = None
    buffers: list[ThreadBuffers]
    observed_triples: Sequence[tuple[np.ndarray, np.ndarray]] = ()  # of each part

    def __init__(self, scores: ScoreMap, l2: float, threads: Threads):
        self.scores, self.l2, self.threads = scores, float(l2), threads

    def each_part(self, work: Callable[[LogLikelihood], Any]) -> list:
        """``work(part)`` of all parts."""
        raise NotImplementedError

    def value_and_gradient(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """Return f(w); write its gradient into ``gradient``."""
        chain, W = self.scores.chain(w), self.scores.design.weights(self.scores.state(w))
        self.threads.map(ThreadBuffers.clear, self.buffers)
        sums = self.each_part(
            lambda part: (part.add_up(W, chain), part.observed[0], part.observed_triples)
        )
        log_p, observed, triples = zip(*sums)
        log_p, observed = sum(log_p), sum(observed)
        self._after_evaluation()
        if self.scores.features is not None:
            self.observed_triples = [one for part in triples for one in part]
        expected = sum(one.pairwise_sum(chain) for one in self.buffers)
        return self.store_gradient(expected - observed, w, gradient) - log_p

    def value(self, w: np.ndarray) -> float:
        """f(w) without gradient; memory of one block of rows."""
        chain, W = self.scores.chain(w), self.scores.design.weights(self.scores.state(w))
        log_p = sum(self.each_part(lambda part: part.add_up(W, chain, counts=False)))
        self._after_evaluation()
        return self.l2 * squared_norm(w) - log_p

    def _after_evaluation(self) -> None:
        if self.scores.features is not None:
            self.scores.features.highest = max(one.entries.highest for one in self.buffers)

    def hessian(self, w: np.ndarray, max_bytes: float = 0.0) -> Hessian:
        """Products with the Hessian at w; ``max_bytes``: bytes that may be kept between them."""
        return Hessian(self, w, max_bytes)

    def store_gradient(self, transition, w: np.ndarray, gradient: np.ndarray) -> float:
        """Write the gradient from the sums of all threads; return l2 · ‖w‖²."""
        scores, buffers = self.scores, self.buffers
        squares = scores.design.finish(
            self.residual, [one.buffer for one in buffers], scores.state(w), 2 * self.l2,
            scores.state(gradient), self.threads,
        )  # fmt: skip
        start, end = sum(one.ends for one in buffers)[:, : scores.n_labels]
        scores.store_chain(gradient, transition, start, end)
        # `finish` has added the gradient of the L2 penalty for state weights; the rest follows.
        chain = scores.chain_part(gradient)
        squares += self._penalised(scores.chain_part(w), chain, chain)
        if scores.features is not None:
            sums, *others = (one.entries.sums for one in buffers)
            for one in others:
                sums += one
            for at, counts in self.observed_triples:
                sums[at] -= counts
            squares += self._penalised(scores.triples(w), sums, scores.triples(gradient))
        return self.l2 * squares

    def _penalised(self, w: np.ndarray, sums: np.ndarray, out: np.ndarray) -> float:
        # out = sums + 2 · l2 · w; returns ‖w‖².
        squares = 0.0
        for a, b in spans(len(w), 1 + len(w) // PIECE):
            part = w[a:b].astype(np.float64, copy=False)
            np.add(sums[a:b], 2 * self.l2 * part, out=out[a:b], casting="same_kind")
            squares += float(part @ part)
        return squares


def squared_norm(w: np.ndarray) -> float:
    """‖w‖²₂, without a temporary of the length of w."""
    pieces = spans(len(w), 1 + len(w) // PIECE)
    return float(sum(np.square(w[a:b], dtype=np.float64).sum() for a, b in pieces))


def observed_part(psi: np.ndarray, y: np.ndarray, at: slice) -> float:
    """Score of the observed labels of some rows of a sequence."""
    score, offsets = np.zeros(1), np.array([0, at.stop - at.start])
    _linear.observed_scores(psi[at], y[at], offsets, score)
    return float(score[0])


def residual_part(psi: np.ndarray, y: np.ndarray, weights: np.ndarray, at: slice) -> None:
    """Turn marginals of some rows of a sequence into residuals."""
    offsets, ends = np.array([0, at.stop - at.start]), np.zeros((2, psi.shape[1]))
    _linear.to_residuals(psi[at], y[at], offsets, weights, ends)


class Hessian:
    """Products with ∇²f(w): covariances of all features under the model, and the penalty.

        ∇²f(w) v = Σ_s weight_s Cov_s(φ, vᵀφ) + 2 · l2 · v,

    by the tangent of forward-backward in the direction v, in the type of f: the rows are scored
    with v, and derivatives of marginals are collected like residuals in the gradient.

    Parameters
    ----------
    f : SumOfParts
    w : ndarray
    max_bytes : float
        Bytes of results of forward-backward that may be kept, 32 for each row and label (padded),
        in float32 16; the rest is computed again for each product.
    """

    def __init__(self, f: SumOfParts, w: np.ndarray, max_bytes: float):
        self.f, self.max_bytes, scores = f, max_bytes, f.scores
        self.chain = Transitions(*scores.chain_weights(w), dtype=scores.dtype).exponentiate()
        # Copied, because the design may reuse the memory of its result.
        self.W = deepcopy(scores.design.weights(scores.state(w)))
        self.kept: dict[int, list[Filtered]] = {}
        self.works = [TangentWorkspace(len(one.e), scores.width, scores.dtype) for one in f.buffers]
        # As in ``works``; the first product sums them.
        self.pairs: np.ndarray | None = None

    def keep(self, first: int, rows: list[Filtered]) -> list[Filtered]:
        """Keep a copy of a block's rows if memory allows."""
        n_bytes = sum(one.nbytes for one in rows)
        if n_bytes <= self.max_bytes:
            self.max_bytes -= n_bytes
            self.kept[first] = rows = [one.copy() for one in rows]
        return rows

    def product(self, v: np.ndarray, product: np.ndarray) -> None:
        """Write ∇²f(w) v into ``product``."""
        f, scores = self.f, self.f.scores
        direction = Direction(self.chain, *scores.trained_chain(v))
        V = scores.design.weights(scores.state(v))
        f.threads.map(ThreadBuffers.clear, f.buffers)
        for work in self.works:
            work.products[:] = work.exact_tangents[:] = 0
        f.each_part(lambda part: part.add_tangents(self, V, direction))
        if self.pairs is None:
            self.pairs = sum(work.pairs for work in self.works)
            for work in self.works:
                work.pairs = None
        first, *others = self.works
        pairs = first.pair_tangents(direction, self.pairs)
        for work in others:
            pairs += work.pair_tangents(direction, 0)
        f.store_gradient(pairs[: scores.n_labels, : scores.n_labels], v, product)


def hessian_rows(hessian: Any, at: np.ndarray, units: np.ndarray, n: int) -> np.ndarray:
    """Rows and columns ``at`` of a Hessian of n weights, its k-th row times ``units[k]``.

    By one product for each row.
    """
    H, unit, product = np.empty((len(at), len(at))), np.zeros(n), np.zeros(n)
    for k, place in enumerate(at):
        unit[place] = units[k]
        hessian.product(unit, product)
        unit[place], H[k] = 0, product[at]
    return H


class LogLikelihood(SumOfParts):
    """f(w) = -Σ_s weight_s · log p(y_s | x_s) + l2 · ‖w‖²₂.

    With log p(y | x) = s(y) - log Z, the gradient is expected minus observed counts,

        ∂f/∂coef       = Σ_t x_t (μ_t - 1[y_t])ᵀ   + 2 · l2 · coef
        ∂f/∂transition = ξ - counts of observed transitions + 2 · l2 · transition
        ∂f/∂v(f, i, j) = Σ_t x_t(f) (ξ_t(i, j) - 1[y_{t-1} = i, y_t = j]) + 2 · l2 · v(f, i, j)

    (Lafferty, McCallum, Pereira 2001; Sutton, McCallum 2012, §5.1; with the opposite sign Ilić et
    al. 2010, Equation 17). Rows are processed in blocks that stay in the cache: scores,
    forward-backward and transpose, then the next block.

    Parameters
    ----------
    scores : ScoreMap
    y : int32 ndarray of shape (n_rows,)
        Label codes.
    offsets : int64 ndarray of shape (n_sequences + 1,)
    weights : float64 ndarray of shape (n_sequences,)
    l2 : float
    threads : Threads
    buffers : list of ThreadBuffers, optional
        One for each thread, shared with other shards; by default, new ones.

    Notes
    -----
    An evaluation costs O(nnz · L + n_rows · L²). Memory beside the rows: n_rows · width numbers
    with all states, otherwise a block of rows and a buffer for each thread.
    """

    penalties: np.ndarray | None = None  # see `PartialLogLikelihood`

    def __init__(
        self, scores: ScoreMap, y, offsets, weights, l2: float, threads: Threads, buffers=None
    ):
        super().__init__(scores, l2, threads)
        self.y, self.offsets, self.weights = y, offsets, weights
        self.log_z, self.observed_score = np.zeros((2, len(weights)))
        blocks = self.blocks(batch_rows(scores.width, len(y), threads.n))
        plain = scores.features is None and scores.pairs is None
        cuts = ((x.sequences.start, x.sequences.stop) for x in blocks)
        shared = [plain and threads.share(offsets, cut) for cut in cuts]
        self.runs = self._runs(blocks, threads.n)
        self.shared = [block for block, several in zip(blocks, shared) if several]
        unshared = [x for x, several in zip(blocks, shared) if not several]
        self.unshared = self._runs(unshared, threads.n)
        if buffers is None:
            # Buffers that a thread does not use take no physical memory.
            largest = max(block.last - block.first for block in blocks)
            n = threads.n if self.shared else len(self.runs)
            buffers = [ThreadBuffers(largest, scores) for _ in range(n)]
        self.buffers = buffers
        if scores.features is not None:
            rows = [(block.first, block.last) for block in blocks]
            for one in buffers:
                scores.features.reserve(rows, one.entries)
        if scores.design.needs_all_residuals:
            self.residual = np.empty((len(y), scores.width), dtype=scores.dtype)
        self._count_observed()

    def _runs(self, blocks: list[Block], n: int) -> list[list[Block]]:
        return runs_of(blocks, [block.last - block.first for block in blocks], n)

    def blocks(self, n_rows: int) -> list[Block]:
        """The sequences in blocks of about ``n_rows``."""
        return [self._block(a, b) for a, b in row_blocks(self.offsets, n_rows)]

    def _block(self, a: int, b: int) -> Block:
        first, last = int(self.offsets[a]), int(self.offsets[b])
        offsets = self.offsets[a : b + 1] - first
        return Block(first, last, slice(a, b), offsets, self.weights[a:b], self.y[first:last])

    @property
    def n_labelled(self) -> int:
        """Number of sequences with all labels observed; these come first."""
        return len(self.weights)

    def _count_observed(self) -> None:
        self.observed, features, n = self._observed_counts(), self.scores.features, self.n_labelled
        places = [np.nonzero(counts) for counts in self.observed]
        self.observed_at = [(at, counts[at]) for at, counts in zip(places, self.observed)]
        if features is not None:
            given = self.offsets[: n + 1], self.y, self.weights[:n]
            self.observed_triples = [features.observed(*given)]

    def _observed_counts(self):
        n, y, L = self.n_labelled, self.y, self.scores.n_labels
        offsets, weights = self.offsets[: n + 1], self.weights[:n]
        first, last, after = row_positions(offsets)
        of_first = weights[np.diff(offsets) > 0]
        of_pairs = None if n == 1 else np.repeat(weights, np.diff(offsets))[after]
        transition = np.bincount(neighbours(y, after, L), weights=of_pairs, minlength=L * L)
        if n == 1:
            transition = weights[0] * transition
        start = np.bincount(y[first], weights=of_first, minlength=L)
        end = np.bincount(y[last], weights=of_first, minlength=L)
        return transition.reshape(L, L), start, end

    def value(self, w: np.ndarray) -> float:
        """f(w) without gradient; where w = 0 and all paths are allowed, log Z = n_rows · log L."""
        allowed = self.scores.allowed
        if self.penalties is None and not w.any() and all(map(np.all, allowed)):
            return math.log(self.scores.n_labels) * float(self.weights @ np.diff(self.offsets))
        return super().value(w)

    def alone(self) -> LogLikelihood:
        """Copy without penalty, with its own scores, buffers and a single thread."""
        scores = self.scores.unshared()
        return LogLikelihood(scores, self.y, self.offsets, self.weights, 0.0, Threads(1))

    def each_part(self, work: Callable[[LogLikelihood], Any]) -> list:
        """``work`` of all sequences, the only part."""
        return [work(self)]

    def add_up(self, W, chain, counts: bool = True) -> float:
        """Return Σ_s weight_s · log p(y_s | x_s); add expected counts to ``buffers``.

        Parameters
        ----------
        W : ndarray
            ``design.weights`` of w.
        chain : Transitions
        counts : bool
            Whether expected counts of state features are added.
        """
        jobs = zip(self.unshared, self.buffers)
        self.threads.map(lambda job: self._add_run(W, chain, *job, counts), jobs)
        for block in self.shared:
            self._add_shared(W, chain, block, counts)
        check_paths(self.log_z)
        return float(self.weights @ (self.observed_score - self.log_z)) + self._chain_score(chain)

    def _add_run(self, W, chain, blocks: list[Block], work: ThreadBuffers, counts: bool) -> None:
        # For each block: observed score, log Z and residuals; expected counts go to the buffers.
        for block in blocks:
            psi, entries = self.residuals(W, chain, block, work, counts)
            if counts:
                self.scores.design.collect(psi, block.first, work.buffer)
            if counts and entries is not None:
                self.scores.features.collect(entries, work.entries)

    def residuals(
        self, W, chain, block: Block, work: ThreadBuffers, counts: bool = True
    ) -> tuple[np.ndarray, RowTransitions | None]:
        """(residuals of the rows of a block, scores of its transition features), see
        :meth:`compare`; without ``counts``, the residuals are undefined."""
        features, entries = self.scores.features, None
        psi = work.rows(self.residual if counts else None, block.first, block.last)
        self.scores.design.scores(W, block.first, block.last, psi)
        if features is not None:
            entries = features.fill(
                chain.v, chain.score, block.first, block.offsets, work.entries, chain
            )
        self.compare(psi, block, chain, work, counts, entries)
        return psi, entries

    def _add_shared(self, W, chain, block: Block, counts: bool) -> None:
        # Like `_add_run` for one block, whose rows all threads work on.
        design, work = self.scores.design, self.buffers[0]
        psi = work.rows(self.residual if counts else None, block.first, block.last)
        parts = self._parts(psi)
        self.threads.map(
            lambda at: design.scores(W, block.first + at.start, block.first + at.stop, psi[at]),
            parts,
        )
        work.threads = self.threads
        try:
            self.compare(psi, block, chain, work, counts)
        finally:
            work.threads = None
        if counts:
            self.threads.map(
                lambda job: design.collect(psi[job[0]], block.first + job[0].start, job[1].buffer),
                zip(parts, self.buffers),
            )

    def _parts(self, psi: np.ndarray) -> list[slice]:
        # Rows of a shared block for each thread.
        return [slice(a, b) for a, b in spans(len(psi), self.threads.n)]

    def add_tangents(self, hessian: Hessian, V, direction: Direction) -> None:
        """Add the product of the Hessian and v to ``buffers`` and ``hessian.works``.

        V: ``design.weights`` of v.
        """
        jobs = zip(self.tangent_runs, self.buffers, hessian.works)
        self.threads.map(lambda job: self._add_tangents(hessian, V, direction, *job), jobs)

    @cached_property
    def tangent_runs(self) -> list[list[Block]]:
        """Blocks for products with the Hessian, those of each thread."""
        n_rows = tangent_rows(self.scores.width, self.scores.dtype)
        return self._runs(self.blocks(min(n_rows, len(self.buffers[0].e))), len(self.buffers))

    def _add_tangents(self, hessian, V, direction, blocks, sums: ThreadBuffers, work) -> None:
        design = self.scores.design
        for block in blocks:
            rows = hessian.kept.get(block.first) or self._filter(hessian, block, work)
            dpsi = sums.rows(self.residual, block.first, block.last)
            design.scores(V, block.first, block.last, dpsi)
            self.tangents(rows, dpsi, block, direction, work)
            sums.add_ends(dpsi, block.offsets)
            design.collect(dpsi, block.first, sums.buffer)

    def _filter(self, hessian: Hessian, block: Block, work: TangentWorkspace) -> list[Filtered]:
        # Forward-backward at w, kept if memory allows.
        psi = work.psi[: block.last - block.first]
        self.scores.design.scores(hessian.W, block.first, block.last, psi)
        return hessian.keep(block.first, self.filtered(psi, block, hessian.chain, work))

    def filtered(self, psi: np.ndarray, block: Block, chain: Transitions, work) -> list[Filtered]:
        """Forward-backward of a block, for :meth:`tangents`."""
        return [work.filter(psi, block.offsets, chain, self.log_z[block.sequences])]

    def tangents(
        self, rows: list[Filtered], dpsi: np.ndarray, block: Block, direction, work
    ) -> None:
        """Turn a change of scores into that of residuals; pair tangents go to ``work``."""
        work.tangents(*rows, dpsi, block.offsets, block.weights, direction)

    def compare(
        self, psi: np.ndarray, block: Block, chain: Transitions, work: ThreadBuffers, counts: bool,
        entries: RowTransitions | None = None,
    ) -> None:  # fmt: skip
        """Compute observed scores and log Z of a block; turn its scores into residuals.

        ``entries``: transition scores of rows with transition features.
        """
        _, _, sequences, offsets, weights, y = block
        wanted, observed = weights if counts else None, self.observed_score[sequences]
        if work.threads is None:
            _linear.observed_scores(psi, y, offsets, observed)
        else:
            observed[0] = sum(self.threads.map(partial(observed_part, psi, y), self._parts(psi)))
        work.forward_backward(psi, offsets, wanted, chain, self.log_z[sequences], entries)
        if counts and work.threads is None:
            _linear.to_residuals(psi, y, offsets, weights, work.ends)
        elif counts:
            self.threads.map(partial(residual_part, psi, y, weights), self._parts(psi))
            work.add_ends(psi, offsets)

    def _chain_score(self, chain) -> float:
        # Score of the observed transitions, starts and ends: counts times weights.
        total = 0.0
        for (at, counts), score in zip(self.observed_at, (chain.score, chain.start, chain.end)):
            total += float(counts @ score[at].astype(np.float64))
        for at, counts in self.observed_triples:
            total += float(counts @ chain.v[at].astype(np.float64, copy=False))
        return total

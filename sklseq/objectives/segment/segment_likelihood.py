"""The conditional log-likelihood of a semi-Markov CRF, and its gradient."""

from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.cpu import load_kernel
from sklseq._lib.threads import Threads, runs_of
from sklseq._lib.tiny import TINY
from sklseq.data.sequences import Sequences
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.inference.segment.segmentations import (
    SegmentPlan,
    SegmentTransitions,
    SegmentWorkspace,
    check_segmentations,
)
from sklseq.objectives.scores.score_map import (
    ScoreMap,
    Support,
    Weights,
    full_support,
    largest_at,
    magnitudes,
    observed_support,
    rows_of_columns,
)
from sklseq.objectives.scores.transition_features import TransitionFeatures
from sklseq.objectives.segment.segment_starts import pairs_of_starts, rows_of_starts

_linear = load_kernel("sklseq.objectives.scores._linear")

# Power of bounds of second derivatives that is the scale of weights in L-BFGS. (Four corpora, l2 =
# 0.1: 0.72 to 1.19 times the iterations without a scale, as many or fewer except for addresses.
# With 0.1 as many as with 1/8; with 0.16 to 0.18 a few more; with 1/4 about as many as without, and
# with 1/2, the scale of equal bounds, up to three times as many.)
POWER = 1 / 8
# The least weight of a cell in units of features is 2^-MOST_HALVINGS.
MOST_HALVINGS = 63


class GoldSegments(NamedTuple):
    """The true segments of a set of sequences: they cover every step.

    Attributes
    ----------
    sequence, start, stop, label : ndarray of int64, shape (n_segments,)
        In order; ``label`` is a code, or -1 for steps whose segments are unknown.
    """

    sequence: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    label: np.ndarray


class SegmentData:
    """Potentials joined into cells, their features, and the cells active for true segments.

    Parameters
    ----------
    X : SegmentPotentials
    gold : GoldSegments
    n_labels : int
    max_length : int, array of shape (n_labels,) or None
    basis : CSR matrix of shape (n_features, n_directions), optional
        Matrix that multiplies the features: see ``parallel_columns.py``.
    columns : ndarray, optional
        Columns of X that are transition features, numbered without ``basis``.

    Attributes
    ----------
    plan : SegmentPlan
    rows : Sequences
        Features of cells, cut by sequence.
    largest : ndarray of shape (n_features,) or None
        Largest magnitude of each feature of a potential, see ``magnitudes``.
    starts : Sequences or None
        Transition features of steps at which segments start; with ``columns`` only.
    shares : ndarray of shape (n_cells,)
        2^(1 - n) for a cell of n steps: weights of cells in scales of L-BFGS. If all segmentations
        are equally likely, long segments have small probabilities; written out, sums of features of
        tokens are large in these only. (60 references of *cora* on all segments of up to 20 tokens:
        39 iterations, as with all features stored once; 77 with powers of 1.5, 38 to 41 with powers
        of 3 or 4, 96 with equal weights, 139 with largest values as units.)
    units : ndarray of shape (n_features,) or None
        Root mean square of the nonzero values of each feature of cells, weighted with ``shares``; 1
        for features without values. None if ``largest`` is.
    label : int64 ndarray of shape (n_cells,)
        Label of the true segment for which a cell is active, at most one; -1: none.
    """

    def __init__(
        self, X: Any, gold: GoldSegments, n_labels: int, max_length: Any, basis: Any = None,
        columns: np.ndarray | None = None,
    ):  # fmt: skip
        rows = X.rows if basis is None else X.rows @ basis
        self.largest = magnitudes(rows)
        self.plan = SegmentPlan(X, n_labels, max_length)
        rows = self.plan.cell_matrix(rows.shape[0], X.row) @ rows
        rows = rows.astype(np.float64, copy=False).tocsr()
        rows.sort_indices()
        self.rows = Sequences(rows, self.plan.cells)
        steps = self.plan.stop - self.plan.start
        self.shares = np.ldexp(1.0, -np.minimum(steps - 1, MOST_HALVINGS))
        self.units = None if self.largest is None else self._units()
        self.gold, self.basis = gold, basis
        self.starts = None if columns is None else rows_of_starts(X, columns)
        self.label = self._true_labels(gold)

    @property
    def pairs(self) -> np.ndarray:
        """Labels of true segments and of those before them, see :func:`pairs_of_starts`."""
        return pairs_of_starts(self.gold, self.plan.steps, self.plan.n_labels)

    def _units(self) -> np.ndarray:
        rows, largest = self.rows.rows, np.where(self.largest > 0, self.largest, 1)
        squares = np.square(rows.data / largest[rows.indices])  # do not overflow
        shares, n = np.repeat(self.shares, np.diff(rows.indptr)), len(largest)
        sums = np.bincount(rows.indices, shares * squares, minlength=n)
        counts = np.bincount(rows.indices, shares * (squares > 0), minlength=n)
        return np.where(sums > 0, largest * np.sqrt(sums / np.where(sums > 0, counts, 1)), 1)

    def _true_labels(self, gold: GoldSegments) -> np.ndarray:
        plan = self.plan
        first = plan.steps[:-1]
        segment_at = np.repeat(np.arange(len(gold.start)), gold.stop - gold.start)
        sequence = np.repeat(np.arange(plan.n_sequences), np.diff(plan.cells))
        g = segment_at[first[sequence] + plan.start]
        starts = np.where(plan.kind & 2, gold.start[g] <= plan.start, gold.start[g] == plan.start)
        stops = np.where(plan.kind & 1, gold.stop[g] >= plan.stop, gold.stop[g] == plan.stop)
        return np.where(starts & stops, gold.label[g], -1)


def segment_support(data: SegmentData, n_labels: int) -> Support:
    """Pairs (feature, label), transitions and ends that occur in the training data."""
    active = np.flatnonzero(data.label >= 0)
    rows = data.rows.rows[active]
    seen = observed_support(Sequences(rows, [0, rows.shape[0]]), data.label[active], n_labels)
    counts = observed_chain(data.gold, np.ones(data.plan.n_sequences), n_labels)
    return Support(seen.pairs, *(c > 0 for c in counts))


def observed_chain(gold: GoldSegments, weights: np.ndarray, n_labels: int):
    """Weighted counts of transitions between true segments, of first labels and of last labels."""
    L, label = n_labels, gold.label
    new = np.ones(len(label) + 1, dtype=bool)
    new[1:-1] = gold.sequence[1:] != gold.sequence[:-1]
    after = np.flatnonzero(~new[:-1] & (label >= 0) & (np.roll(label, 1) >= 0))
    first, last = np.flatnonzero(new[:-1] & (label >= 0)), np.flatnonzero(new[1:] & (label >= 0))
    of = weights[gold.sequence]
    pairs = np.bincount(label[after - 1] * L + label[after], of[after], minlength=L * L)
    start = np.bincount(label[first], of[first], minlength=L)
    end = np.bincount(label[last], of[last], minlength=L)
    return pairs.reshape(L, L), start, end


class SegmentScores(ScoreMap):
    """Score map of the cells of segmentations; features are multiplied by ``data.basis``.

    Parameters
    ----------
    data : SegmentData
    support : Support
        Pairs refer to columns of ``data.rows``, triples to columns of ``data.starts``.
    allowed : Support or Constraints, optional
        The allowed transitions, starts and ends; by default, all.
    """

    shares_entries = False  # threads write expectations of their sequences into one array

    def __init__(self, data: SegmentData, support: Support, allowed: Any = None):
        n_labels, self.starts = data.plan.n_labels, data.starts
        allowed = full_support(n_labels) if allowed is None else allowed
        super().__init__(data.rows, n_labels, support, allowed, np.float64)
        self.largest, self.units = data.largest, data.units  # largest of potentials, not of cells
        self.n_stored = rows_of_columns(data.rows, data.largest)
        self.basis = data.basis
        if self.basis is not None:
            self.n_features = self.basis.shape[0]

    def _transition_features(self, X, triples: np.ndarray | None) -> TransitionFeatures | None:
        return super()._transition_features(self.starts, triples)

    def _columns_of_triples(self, units: np.ndarray) -> tuple[np.ndarray, Any]:
        rows = self.starts.rows  # columns in the user's numbers, without the basis
        largest = largest_at(rows.indices, np.abs(rows.data), rows.shape[1])
        return largest, rows_of_columns(self.starts, largest)

    def unpack(self, w: np.ndarray) -> Weights:
        weights = super().unpack(w)
        if self.basis is None:
            return weights
        return weights._replace(coef=self.basis @ weights.coef)

    def pack(self, weights: Weights, of_triples: Any = None) -> np.ndarray:
        if self.basis is not None:
            weights = weights._replace(coef=self.basis.T @ weights.coef)
        return super().pack(weights, of_triples)


class Block(NamedTuple):
    """A run of sequences that is evaluated in one call, and its constant arrays.

    Attributes
    ----------
    a, b : int
        Sequences a to b - 1.
    first, last : int
        Cells ``first`` to ``last - 1``.
    active, weight : ndarray
        Flat positions (cell, label) of the cells that are active for true segments, in the padded
        scores of the block, and the weights of their sequences.
    kept : ndarray of intp
        Cells, counted from ``first``, whose residuals are needed after the pass.
    rows : slice
        Rows of these cells in ``residual``.
    costly : ndarray of intp
        Cells, counted from ``first``, that add a loss.
    costs : slice
        Rows of these cells in ``loss``.
    """

    a: int
    b: int
    first: int
    last: int
    active: np.ndarray
    weight: np.ndarray
    kept: np.ndarray
    rows: slice
    costly: np.ndarray
    costs: slice


class ThreadWorkspace(SegmentWorkspace):
    """Arrays of one thread for its blocks, and sums over the blocks."""

    def __init__(self, data: SegmentData, blocks: list, scores: ScoreMap):
        super().__init__(data.plan, blocks)
        self.buffer = scores.design.new_buffer()
        self.observed = 0.0

    def clear(self) -> None:
        super().clear()
        self.buffer[:] = 0
        self.observed = 0.0


class SegmentLogLikelihood:
    """f(w) = -Σ_s weight_s · log p(segments_s | x_s) + l2 · ‖w‖²₂.

    If x_c are the features of cell c, and μ_c(j) is the probability that it is active for a segment
    of label j,

        ∂f/∂coef       = Σ_c x_c (μ_c - 1[c active for a true segment of j])ᵀ + 2 · l2 · coef
        ∂f/∂transition = expected minus observed transitions between segments + 2 · l2 · transition
        ∂f/∂v(f, i, j) = Σ_t x_t(f) (ξ_t(i, j) - 1[j starts at t, after i]) + 2 · l2 · v(f, i, j),

    where x_t(f) is as in ``segment_starts.py``, and ξ_t(i, j) is the probability of a segment of j
    that starts at t, after one of i
    (Sarawagi, Cohen 2004, §3; the expectations as in Sarawagi 2006, §3.2).

    Parameters
    ----------
    scores : ScoreMap
        Made from ``data.rows``.
    data : SegmentData
    weights : float64 ndarray of shape (n_sequences,)
    l2 : float
    threads : Threads
    loss : ndarray of shape (n_cells, width), optional
        Scores that cells add inside Z, as from ``token_loss``. f is then the softmax-margin,
        f(w) = Σ_s weight_s · (log Σ_y exp(loss(y_s, y) + w·φ(x_s, y))
        - w·φ(x_s, y_s)) + l2 · ‖w‖² (Gimpel, Smith 2010, eq. 5). Its gradient is the same with the
        probabilities of the larger scores.

    Notes
    -----
    An evaluation costs O(nnz · L + V · L + n_steps · L²) for V states (see ``SegmentPlan``).
    """

    def __init__(
        self, scores: ScoreMap, data: SegmentData, weights: np.ndarray, l2: float, threads: Threads,
        loss: np.ndarray | None = None,
    ):  # fmt: skip
        self.scores, self.data, self.weights = scores, data, weights
        self.l2, self.threads, self.loss = float(l2), threads, loss
        self.costly = np.zeros(0, np.intp)
        if loss is not None:  # few cells of whole segments add one
            self.costly = np.flatnonzero(loss.any(axis=1))
            self.loss = loss[self.costly]
        self.one_each = np.arange(len(self.costly) + 1)  # row pointers: an entry for each row
        self.log_z = np.zeros(len(weights))
        blocks, states = data.plan.blocks(threads.n), data.plan.states
        parts = runs_of(blocks, [states[b] - states[a] for a, b in blocks], threads.n)
        self.work = [ThreadWorkspace(data, blocks, scores) for blocks in parts]
        self.design, self.residual, self.kept = scores.design, None, np.zeros(0, np.intp)
        if self.design.needs_all_residuals:
            # Few cells have rare features: most are of whole segments and have only frequent ones.
            self.design, self.kept = self.design.of_rows_with_rare()
            self.residual = np.empty((len(self.kept), scores.width))
        self.cell_weights = np.repeat(weights, np.diff(data.plan.cells))
        self.weighted = bool((weights != 1).any())
        self.parts = [[self._block(a, b) for a, b in blocks] for blocks in parts]
        self.observed = observed_chain(data.gold, weights, scores.n_labels)
        steps, self.entries = data.plan.steps, None
        if scores.features is not None:
            self.entries = scores.features.buffers([(0, int(steps[-1]))])
            self.observed_triples = self._observed_triples(np.repeat(weights, np.diff(steps)))

    def value_and_gradient(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """f(w); its gradient is written into ``gradient``."""
        scores, design = self.scores, self.design
        W = design.weights(scores.state(w))
        weights = scores.chain_weights(w)
        chain = SegmentTransitions(*weights, rows=self._rows(w, weights[0]))
        self.prepare(chain)
        jobs = zip(self.parts, self.work)
        self.threads.map(lambda job: self._run_part(W, chain, *job), jobs)
        check_segmentations(self.log_z)
        squares = design.finish(
            self.residual, [work.buffer for work in self.work], scores.state(w), 2 * self.l2,
            scores.state(gradient), self.threads,
        )  # fmt: skip
        pairwise, start, end = self.expected_chain(chain)
        observed = self.observed
        scores.store_chain(gradient, pairwise - observed[0], start - observed[1], end - observed[2])
        true_score = sum(work.observed for work in self.work)
        for counts, score in zip(observed, weights):
            true_score += float((counts * np.where(counts > 0, score, 0)).sum())
        true_score += self._store_triples(w, gradient, chain.rows)
        return self._add_ridge(w, gradient, squares) - true_score + float(self.weights @ self.log_z)

    def solver_scale(self) -> np.ndarray:
        """Factors of w with which L-BFGS takes fewer iterations.

        If h is the sum of the squares of a feature of cells, relative to its unit u and weighted
        with ``data.shares``, the second derivative at 0 is at most about u² · (h + 2 · l2). The
        factor is u · (h + 2 · l2)^``POWER``, where u is that of :meth:`ScoreMap.scale`. For weights
        of transitions, h is the number of true segments divided by the number of labels.
        """
        scores, data, L = self.scores, self.data, self.scores.n_labels
        rows, units = data.rows.rows, scores.scale(self.l2)
        values = rows.data
        if data.units is not None:
            values = values / data.units[rows.indices]
        counts = np.repeat(self.cell_weights * data.shares, np.diff(rows.indptr)) * values**2
        h = np.bincount(rows.indices, counts, minlength=rows.shape[1])
        pairs = self.weights[data.gold.sequence].sum() / L
        chain = np.full((L, L), pairs), *np.full((2, L), self.weights.sum())
        packed = ScoreMap.pack(scores, Weights(np.repeat(h[:, None], L, axis=1), *chain))
        scores.triples(packed)[:] = pairs
        packed += 2 * self.l2
        packed[packed == 0] = 1  # padding, and features without a value
        return packed**POWER if units is None else units * packed**POWER

    def diagonal(self, w: np.ndarray) -> np.ndarray:
        """Second derivatives Σ_c x_c(f)² μ_c(j) (1 - μ_c(j)) + 2 · l2 in each state weight at w.

        Covariances between cells are neglected; other weights have infinity.
        """
        scores, design = self.scores, self.design.squared()
        W, weights = design.weights(scores.state(w)), scores.chain_weights(w)
        chain = SegmentTransitions(*weights, rows=self._rows(w, weights[0]))
        jobs = zip(self.parts, self.work)
        self.threads.map(lambda job: self._run_part(W, chain, *job, squared=design), jobs)
        buffers = [work.buffer for work in self.work]
        return scores.diagonal(design, self.residual, buffers, 2 * self.l2, self.threads)

    def _observed_triples(self, step_weights: np.ndarray) -> np.ndarray:
        features, pairs = self.scores.features, self.data.pairs
        step, weight, value = features.of_pairs(np.arange(len(pairs)), pairs)
        return np.bincount(weight, value * step_weights[step], minlength=features.n_weights)

    def _rows(self, w: np.ndarray, shared: np.ndarray) -> RowTransitions | None:
        # Scores of transitions into single steps of all sequences; None without such features.
        if self.entries is None:
            return None
        self.entries.clear()
        v, steps = self.scores.triples(w), self.data.plan.steps
        return self.scores.features.fill(v, shared, 0, steps, self.entries)

    def _store_triples(self, w: np.ndarray, gradient: np.ndarray, rows) -> float:
        # Store the gradient in the weights of transition features. Returns the part of the score of
        # the true segments that is due to these weights.
        if self.entries is None:
            return 0.0
        if rows is not None:
            self.scores.features.collect(rows, self.entries)
        self.scores.triples(gradient)[:] = self.entries.sums - self.observed_triples
        return float(self.observed_triples @ self.scores.triples(w))

    def _run_part(self, W, chain, blocks: list, work: ThreadWorkspace, squared=None) -> None:
        # Compute scores of cells, log Z and residuals; add the gradient to the buffer. With a
        # design of squares, variances of cells and second derivatives in their place.
        work.clear()
        design = self.design if squared is None else squared
        for block in blocks:
            a, b, first = block.a, block.b, block.first
            psi = work.psi[: block.last - first]
            self.design.scores(W, first, block.last, psi)
            work.observed += float(block.weight @ psi.reshape(-1)[block.active])
            self.change_scores(psi, block)
            F, _ = work.forward_backward(psi, a, b, chain, self.weights[a:b], self.log_z[a:b])
            if self.weighted:
                F *= self.cell_weights[first : block.last, None]
            if squared is None:
                self.keep_marginals(F, block)
                F.reshape(-1)[block.active] -= block.weight
            else:
                F *= 1 - F / np.maximum(self.cell_weights[first : block.last, None], TINY)
            design.collect(F, first, work.buffer)
            if self.residual is not None:
                # "clip": by default, numpy would first make a copy to check the indices.
                F.take(block.kept, axis=0, out=self.residual[block.rows], mode="clip")

    def prepare(self, chain: SegmentTransitions) -> None:
        """Called before an evaluation; for subclasses."""

    def change_scores(self, psi: np.ndarray, block: Block) -> None:
        """Add to the scores of cells inside Z."""
        if self.loss is not None:  # the loss of the true segmentation is 0
            n, loss, values = len(block.costly), self.loss[block.costs], np.zeros(0)  # all 1
            ends = self.one_each[: n + 1]
            _linear.scatter_rows(ends[:-1], ends[1:], block.costly, values, loss, psi)

    def keep_marginals(self, F: np.ndarray, block: Block) -> None:
        """Called with the weighted marginals of cells; for subclasses."""

    def expected_chain(self, chain) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Weighted expected counts of transitions, first and last segments."""
        start, end = sum(work.ends for work in self.work)[:, : self.scores.n_labels]
        return sum(work.transition_sum(chain) for work in self.work), start, end

    def _block(self, a: int, b: int) -> Block:
        first, last = self.data.plan.cells[[a, b]].tolist()
        label = self.data.label[first:last]
        cells = np.flatnonzero(label >= 0)
        active = cells * self.data.plan.width + label[cells]
        weight, chosen = self.cell_weights[first:last][cells], []
        for some in (self.kept, self.costly):
            i, j = np.searchsorted(some, (first, last))
            chosen += [some[i:j].astype(np.intp) - first, slice(i, j)]
        return Block(a, b, first, last, active, weight, *chosen)

    def _add_ridge(self, w: np.ndarray, gradient: np.ndarray, squares: float) -> float:
        # l2 · ‖w‖²: `design.finish` has added the part of state weights; this adds the others.
        n = self.scores.n_state
        rest = w[n:]
        gradient[n:] += 2 * self.l2 * rest
        return self.l2 * (squares + float(rest @ rest))

"""The structured hinge loss of segmentations, its dual, and their gap, for margin training."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import offsets_of, ranges
from sklseq.data.segment_potentials import OPEN_BOTH, OPEN_END, SegmentPotentials
from sklseq.inference.segment.segmentations import (
    SegmentTransitions,
    best_segments,
    check_segmentations,
)
from sklseq.objectives.margin.hinge import Certificate
from sklseq.objectives.scores.score_map import ScoreMap, Weights
from sklseq.objectives.segment._known_segments import Cells, Mixture
from sklseq.objectives.segment.segment_likelihood import SegmentData, SegmentScores


def with_token_cells(X: SegmentPotentials) -> SegmentPotentials:
    """X with two potentials without features added to each step.

    One is active for segments that start at the step, the other for segments that contain it.
    """
    n, lengths = X.n_steps, np.asarray(X.lengths)
    of = np.repeat(np.arange(len(lengths)), lengths)
    step = ranges(0, lengths)
    kind = np.repeat([OPEN_END, OPEN_BOTH], n)
    old = np.repeat(np.arange(len(lengths)), np.diff(X.offsets))
    order = np.argsort(np.concatenate([old, of, of]), kind="stable")
    empty = np.full(2 * n, X.rows.shape[0])  # the last row has no features
    columns = [
        np.concatenate(pair)[order]
        for pair in (
            (X.kind, kind),
            (X.start, np.tile(step, 2)),
            (X.stop, np.tile(step, 2) + 1),
            (X.row, empty),
        )
    ]
    offsets = X.offsets + 2 * offsets_of(lengths)
    rows = sparse.vstack([sparse.csr_matrix(X.rows), sparse.csr_matrix((1, X.rows.shape[1]))])
    return SegmentPotentials(lengths, offsets, *columns[:3], rows.tocsr(), row=columns[3])


def token_loss(data: SegmentData, n_labels: int) -> np.ndarray:
    """Loss that each cell adds if it is active for a label, shape (n_cells, width).

    The loss of a segmentation is the number of steps with a wrong IOB2 label (B-y or I-y). A
    segment of label y that contains step t costs 1[true label of t is not I-y]; a segment that
    starts at t costs 1[true label of t is not B-y] instead.
    """
    plan, gold = data.plan, data.gold
    n = int(plan.steps[-1])
    begins, goes_on = np.ones((2, n, n_labels))
    label = np.repeat(gold.label, gold.stop - gold.start)
    is_first = np.zeros(n, dtype=bool)
    is_first[plan.steps[gold.sequence] + gold.start] = True
    steps = np.arange(n)
    begins[steps[is_first], label[is_first]] = 0
    goes_on[steps[~is_first], label[~is_first]] = 0
    loss = np.zeros((plan.n_cells, plan.width))
    sequence = np.repeat(np.arange(plan.n_sequences), np.diff(plan.cells))
    at, single = plan.steps[sequence] + plan.start, plan.stop - plan.start == 1
    for kind, cost in ((OPEN_BOTH, goes_on), (OPEN_END, begins - goes_on)):
        cells = np.flatnonzero(single & (plan.kind == kind))
        loss[cells, :n_labels] = cost[at[cells]]
    return loss


class SegmentHinge:
    """P(w) = Σ_s weight_s · max_y (loss(y_s, y) + w·φ(x_s, y) - w·φ(x_s, y_s)) + l2 · ‖w‖².

    The variables of the dual are a mixture μ_s of segmentations for each sequence. With
    w = Σ_s weight_s (φ(x_s, y_s) - φ(x_s, μ_s)) / (2 · l2), where φ of a mixture is its mean,

        D(μ) = Σ_s weight_s · loss(y_s, μ_s) - l2 · ‖w‖²  ≤  P(w).

    A pass first finds the most violated segmentation of every sequence, all at the same w. Then it
    takes pairwise steps among the segmentations found so far, one sequence after the other. A step
    moves mass from the segmentation of smallest loss(y) + w·φ(x_s, y) to that of the largest. The
    amount that maximises D is γ = 2 · l2 · (difference of these values) / (weight_s ‖Δ‖²), at most
    all of the mass, where Δ is the difference of their features (Osokin et al. 2016, §3.2).

    Parameters
    ----------
    scores : SegmentScores
    data : SegmentData
        Made from the potentials that :func:`with_token_cells` returns.
    weights : ndarray of shape (n_sequences,)
    l2 : float, above 0

    Attributes
    ----------
    blocks : ndarray
        Numbers of the sequences with positive weight and at least one step.

    Notes
    -----
    Segmentations with mass, and a few others, are kept with their inner products (``Mixture``), as
    differences from the true segmentation. An update without a search costs the features of the
    distinct differences of the sequence, their number in each segmentation, and O(k) for each step
    among k segmentations.
    """

    inseparable = ()  # slack is allowed: weights always exist
    can_divide = False

    def __init__(self, scores: SegmentScores, data: SegmentData, weights: np.ndarray, l2: float):
        self.scores, self.data, self.plan = scores, data, data.plan
        self.weights, self.l2 = weights, float(l2)
        self.loss, self.entries = token_loss(data, scores.n_labels), None
        # -inf for forbidden transitions, starts and ends, which have no weights; 0 for the others.
        self.limits = np.vstack(scores.chain_weights(np.zeros(scores.n_weights)))
        gold = data.gold
        cuts = np.searchsorted(gold.sequence, np.arange(len(weights) + 1))
        columns = np.stack(gold[1:], axis=1)
        gold = [columns[a:b] for a, b in zip(cuts[:-1], cuts[1:])]
        rows, mask = self._lay_out()
        self.cells = Cells(rows, data, self.loss, mask.ravel(), self.w)
        self.latest: list | None = None  # result of the last search, if w has not changed since
        self.sets = [
            Mixture(self.cells, s, *known, l2) for s, known in enumerate(zip(gold, weights))
        ]
        self.blocks = np.flatnonzero((weights > 0) & (np.diff(data.plan.steps) > 0))

    def _lay_out(self) -> tuple[sparse.csr_matrix, np.ndarray]:
        # Allocate w and views of its parts. Returns the rows and the mask that Cells takes.
        scores, rows, features = self.scores, self.data.rows.rows, self.scores.features
        L, n = scores.n_labels, rows.shape[1]
        state = scores.design.unpack(np.ones(scores.n_state))[:, :L]
        masks = [state, scores.padded_chain(np.ones(scores.n_weights))[:, :L]]
        parts = [rows, sparse.identity(L + 2)]
        if features is not None and features.n_weights:
            starts = self.data.starts.rows
            order = np.searchsorted(features.columns, features.feature)
            of_pairs = np.zeros((len(features.columns) * L, L))
            of_pairs.ravel()[order * L**2 + features.triples % L**2] = 1
            masks.append(of_pairs)
            parts.append(sparse.kron(starts[:, features.columns], sparse.identity(L)))
            self.entries = features.buffers([(0, starts.shape[0])], sums=False)
        mask = np.vstack(masks)
        self.w = np.zeros(mask.size)
        self.coef, self.chain, _ = np.split(self.w.reshape(-1, L), [n, n + L + 2])
        # Positions in w of the weights of ``scores.triples``, in their order.
        self.triples = (n + L + 2) * L + np.flatnonzero(mask[n + L + 2 :])
        return sparse.block_diag(parts, format="csr"), mask

    def optimize(
        self, order: np.ndarray, gaps: np.ndarray, n_steps: int, accuracy: float,
        n_searches: int = 1,
    ) -> None:  # fmt: skip
        """Search on each sequence of ``order`` with the same w, then take steps.

        This is done ``n_searches`` times. The contribution of each sequence to the gap before the
        first step is written into ``gaps``.
        """
        known = np.zeros(len(gaps))
        for k in range(n_searches):
            for s, found in self.searches(order):
                part = self.sets[s].admit(found)
                if k == 0:
                    gaps[s] = part
            self._update(order, known, n_steps, accuracy)

    def searches(self, order: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """Each s of ``order`` with its segmentation of largest loss + score.

        All sequences are searched in one call if ``order`` has at least a quarter of them.
        """
        plan, chosen, found = self.plan, order.tolist(), self.latest
        if found is not None or 4 * len(chosen) >= plan.n_sequences:
            found = self._search(0, plan.n_sequences) if found is None else found
            yield from ((s, found[s]) for s in chosen)
            return
        chain = self._transitions()
        for s in chosen:
            yield s, self._search(s, s + 1, chain)[0]

    def _transitions(self) -> SegmentTransitions:
        L, rows, chain = self.scores.n_labels, None, self.chain + self.limits
        if self.entries is not None:
            self.entries.clear()
            steps, v = self.plan.steps, self.w[self.triples]
            rows = self.scores.features.fill(v, chain[:L], 0, steps, self.entries)
        return SegmentTransitions(chain[:L], chain[L], chain[L + 1], sums=False, rows=rows)

    def _search(self, a: int, b: int, chain: SegmentTransitions | None = None) -> list[np.ndarray]:
        L, rows = self.scores.n_labels, self.data.rows.rows
        cells = slice(*self.plan.cells[[a, b]].tolist())
        psi = self.loss[cells].copy()
        psi[:, :L] += (rows[cells] if b - a < self.plan.n_sequences else rows) @ self.coef
        chain = self._transitions() if chain is None else chain
        found, best = best_segments(self.plan, psi, chain, a, b)
        check_segmentations(best, a)
        return found

    def prepared(self) -> AbstractContextManager:
        """Context of the calls of a pass; one thread needs none."""
        return nullcontext()

    @contextmanager
    def known_paths(self, order: np.ndarray) -> Iterator["KnownSegmentations"]:
        """Context of updates without searches, of these sequences in this order."""
        yield KnownSegmentations(self, order)

    def _update(self, order: np.ndarray, gaps: np.ndarray, n_steps: int, accuracy: float) -> None:
        # Steps among the segmentations found so far
        self.latest = None
        for s in order.tolist():
            gaps[s] = self.sets[s].update(n_steps, accuracy)

    def certificate(self) -> Certificate:
        """Primal and dual objective at the current w."""
        ridge = self.l2 * float(np.einsum("i,i", self.w, self.w))  # BLAS would start threads
        primal, dual = ridge, -ridge
        self.latest = self._search(0, self.plan.n_sequences)
        for s in self.blocks.tolist():
            known = self.sets[s]
            primal += self.weights[s] * max(known.violation(self.latest[s]), 0.0)
            dual += self.weights[s] * known.mean_loss()
        return Certificate(primal, dual)

    def rounding(self) -> float:
        """Rounding errors that ``certificate`` allows for: none."""
        return 0.0

    def vector(self) -> np.ndarray:
        """The weights in the layout of ``scores``."""
        L = self.scores.n_labels
        weights = Weights(self.coef, self.chain[:L], self.chain[L], self.chain[L + 1])
        w = ScoreMap.pack(self.scores, weights)
        self.scores.triples(w)[:] = self.w[self.triples]
        return w


class KnownSegmentations(NamedTuple):
    """Updates of sequences among the segmentations found so far, in a fixed order."""

    hinge: SegmentHinge
    order: np.ndarray

    def update(self, gaps: np.ndarray, above: float, n_steps: int, accuracy: float) -> None:
        """Take steps on each sequence whose entry of ``gaps`` is larger than ``above``."""
        self.hinge._update(self.order[gaps[self.order] > above], gaps, n_steps, accuracy)

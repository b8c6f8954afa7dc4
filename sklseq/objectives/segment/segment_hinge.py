"""Margin training of segmentations: the structured hinge loss, its dual, and their gap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from sklseq.data.segment_potentials import SegmentPotentials
from sklseq.inference.segment.segmentations import (
    SegmentTransitions,
    best_segments,
    check_segmentations,
)
from sklseq.objectives.margin.hinge import Certificate
from sklseq.objectives.margin.violators import WorkingSet
from sklseq.objectives.scores.score_map import ScoreMap, Weights
from sklseq.objectives.segment._known_segments import Known
from sklseq.objectives.segment.segment_likelihood import SegmentData, SegmentScores

__all__ = ["SegmentHinge", "token_loss", "with_token_cells"]

EXACT, OPEN_END, OPEN_START, OPEN_BOTH = range(4)


def with_token_cells(X: SegmentPotentials) -> SegmentPotentials:
    """X with two more potentials a step, of no feature: starts here, and lies here."""
    n, lengths = X.n_steps, np.asarray(X.lengths)
    of = np.repeat(np.arange(len(lengths)), lengths)
    step = np.arange(n) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    kind = np.repeat([OPEN_END, OPEN_BOTH], n)
    old = np.repeat(np.arange(len(lengths)), np.diff(X.offsets))
    order = np.argsort(np.concatenate([old, of, of]), kind="stable")
    empty = np.full(2 * n, X.rows.shape[0])  # the row behind all others has no feature
    columns = [
        np.concatenate(pair)[order]
        for pair in (
            (X.kind, kind),
            (X.start, np.tile(step, 2)),
            (X.stop, np.tile(step, 2) + 1),
            (X.row, empty),
        )
    ]
    offsets = X.offsets + 2 * np.concatenate([[0], np.cumsum(lengths)])
    rows = sparse.vstack([sparse.csr_matrix(X.rows), sparse.csr_matrix((1, X.rows.shape[1]))])
    return SegmentPotentials(lengths, offsets, *columns[:3], rows.tocsr(), row=columns[3])


def token_loss(data: SegmentData, n_labels: int) -> np.ndarray:
    """Loss that each cell adds if it is active for a label, shape (n_cells, width).

    The loss of a segmentation is the number of steps whose IOB2 label, which says "begins" or "goes
    on" and of what, is wrong. A segment of y that lies at t costs 1[t does not go on with y]; one
    that begins there, 1[t does not begin y] in its place.
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

    For each sequence the dual has a mixture μ_s of segmentations. With
    w = Σ_s weight_s (φ(x_s, y_s) - φ(x_s, μ_s)) / (2 · l2), φ of a mixture being the mean,

        D(μ) = Σ_s weight_s · loss(y_s, μ_s) - l2 · ‖w‖²  ≤  P(w).

    A pass finds the most violated segmentation of each sequence at the same w, all in one call.
    Then it steps among those found so far on each sequence, one by one: it moves mass from the one
    of smallest loss(y) + w·φ(x_s, y) to the one of largest, by the γ that maximises D,
    γ = 2 · l2 · (their difference) / (weight_s ‖Δ‖²) or all there is, Δ being the difference of
    their features (Osokin et al. 2016, §3.2).

    Parameters
    ----------
    scores : SegmentScores
    data : SegmentData
        Of potentials :func:`with_token_cells`.
    weights : ndarray of shape (n_sequences,)
    l2 : float, above 0

    Attributes
    ----------
    blocks : ndarray
        Sequences that take part.

    Notes
    -----
    Segmentations with mass, and a few others, are kept with their inner products (``WorkingSet``).
    A new segmentation costs a few products with its sequence's features; a visit without a search,
    the features of the segmentations found that the truth does not have, and O(k) a step for k
    segmentations (``Known``).
    """

    inseparable = ()  # slack is allowed: weights always exist

    def __init__(self, scores: SegmentScores, data: SegmentData, weights: np.ndarray, l2: float):
        self.scores, self.data, self.plan = scores, data, data.plan
        self.weights, self.l2, L = weights, float(l2), scores.n_labels
        self.loss = token_loss(data, L)
        self.chain_mask = scores.padded_chain(np.ones(scores.n_weights))[:, :L]
        mask = scores.design.unpack(np.ones(scores.n_state))[:, :L]
        self.mask = None if mask.all() else mask
        n = data.rows.shape[1]
        self.w = np.zeros((n + L + 2) * L)
        self.coef = self.w[: n * L].reshape(n, L)
        self.chain = self.w[n * L :].reshape(L + 2, L)  # transitions, start and end
        self.known = None  # the working sets in arrays for `revisit`; None: they have changed
        self.rows = [
            _local(data.rows.rows[slice(*data.plan.cells[[s, s + 1]])]) for s in range(len(weights))
        ]
        gold = data.gold
        cuts = np.searchsorted(gold.sequence, np.arange(len(weights) + 1))
        columns = np.stack(gold[1:], axis=1)
        self.gold = [columns[a:b] for a, b in zip(cuts[:-1], cuts[1:])]
        self.sets = [WorkingSet(*self._true(s)) for s in range(len(weights))]
        self.blocks = np.flatnonzero((weights > 0) & (np.diff(data.plan.steps) > 0))

    def _counts(self, s: int, segments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Active cells of sequence s with their labels, and transitions, first and last label.
        plan, L = self.plan, self.scores.n_labels
        cells = slice(*plan.cells[[s, s + 1]])
        chain = np.zeros((L + 2, L))
        if not len(segments):
            return np.zeros(0, dtype=np.int64), chain
        start, stop, label = segments.T
        kind, i, j = plan.kind[cells], plan.start[cells], plan.stop[cells]
        g = np.repeat(np.arange(len(start)), stop - start)[i]
        right = np.where(kind & 2, start[g] <= i, start[g] == i)
        right &= np.where(kind & 1, stop[g] >= j, stop[g] == j)
        fired = np.flatnonzero(right)
        np.add.at(chain, (label[:-1], label[1:]), 1)
        chain[L, label[0]] = chain[L + 1, label[-1]] = 1
        return fired * L + label[g[fired]], chain

    def _true(self, s: int) -> tuple[np.ndarray, np.ndarray, float]:
        fired, chain = self._counts(s, self.gold[s])
        return fired, chain, float(self._features(s, fired, np.ones(len(fired)), chain)[2])

    def _features(self, s, fired, weight, chain):
        # Trained features of active cells, with weights: for each local feature and label, for
        # transitions, and the squared length of both.
        columns, transposed = self.rows[s][0], self.rows[s][2]
        L = self.scores.n_labels
        dense = np.bincount(fired, weight, minlength=transposed.shape[1] * L).reshape(-1, L)
        of_cells, of_chain = transposed @ dense, chain * self.chain_mask
        if self.mask is not None:
            of_cells *= self.mask[columns]
        square = np.vdot(of_cells, of_cells) + np.vdot(of_chain, of_chain)
        return of_cells, of_chain, square

    @property
    def mixture(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Mean activity of each cell for each label, and transitions and ends, by sequence."""
        out = []
        for s, known in enumerate(self.sets):
            fired = np.zeros((self.rows[s][1].shape[0], self.scores.n_labels))
            for alpha, pairs in zip(known.alpha, known.fired):
                fired.ravel()[pairs] += alpha
            out.append((fired, np.tensordot(known.alpha, known.chain, 1)))
        return out

    def most_violated(self, s: int) -> tuple[np.ndarray, float]:
        """The segmentation of largest loss + score, as rows (start, stop, label), and that sum."""
        return self._search(s, self._cell_scores(s))

    def _cell_scores(self, s: int) -> np.ndarray:
        columns, rows, _ = self.rows[s]
        return rows @ self.coef[columns]

    def _search(self, s: int, scores: np.ndarray) -> tuple[np.ndarray, float]:
        psi = self._own_loss(s).copy()
        psi[:, : self.scores.n_labels] += scores
        found, best = best_segments(self.plan, psi, self._transitions(), s, s + 1)
        check_segmentations(best, s)
        return found[0], float(best[0])

    def _own_loss(self, s: int) -> np.ndarray:
        return self.loss[slice(*self.plan.cells[[s, s + 1]])]

    def _transitions(self) -> SegmentTransitions:
        L = self.scores.n_labels
        return SegmentTransitions(self.chain[:L], self.chain[L], self.chain[L + 1], sums=False)

    def _gains(self, s: int, scores: np.ndarray) -> np.ndarray:
        # loss + score of all segmentations found so far.
        known = self.sets[s]
        of_chain = known.chain.reshape(len(known.alpha), -1) @ self.chain.ravel()
        return known.loss + known.values(scores) + of_chain

    def optimize(
        self, order: np.ndarray, gaps: np.ndarray, n_steps: int, accuracy: float,
        n_searches: int = 1,
    ) -> None:  # fmt: skip
        """A search on each sequence of ``order`` with the same w, then steps; ``n_searches`` times.

        The sequence's part of the gap before the first step goes into ``gaps``.
        """
        known = np.zeros(len(gaps))
        for k in range(n_searches):
            for s, *found in self._searches(order):
                part = self._admit_violation(s, *found)
                if k == 0:
                    gaps[s] = part
            self.known = None
            self.revisit(order, known, n_steps, accuracy)

    def _searches(self, order: np.ndarray) -> Iterator[tuple]:
        # (s, scores of its cells, most violated segmentation, its loss + score); most at once.
        plan, chosen = self.plan, order.tolist()
        if 4 * len(chosen) < plan.n_sequences:
            for s in chosen:
                scores = self._cell_scores(s)
                yield s, scores, *self._search(s, scores)
            return
        scores, psi = self.data.rows.rows @ self.coef, self.loss.copy()
        psi[:, : self.scores.n_labels] += scores
        found, best = best_segments(plan, psi, self._transitions())
        check_segmentations(best)
        for s in chosen:
            yield s, scores[slice(*plan.cells[[s, s + 1]])], found[s], float(best[s])

    def revisit(self, order: np.ndarray, gaps: np.ndarray, n_steps: int, accuracy: float) -> None:
        """The same among the segmentations found so far, without a search."""
        if self.known is None:
            self.known = self._gather()
        self.known.exchange(order, self.w, gaps, n_steps, accuracy, self.l2)

    def _gather(self) -> Known:
        # The working sets in arrays; their alpha are parts of its own.
        sets = self.sets
        features = [one for known in sets for one in known.features]
        alpha = np.concatenate([known.alpha for known in sets])
        first = np.cumsum([0, *(len(known.alpha) for known in sets)])
        for known, a, b in zip(sets, first[:-1].tolist(), first[1:].tolist()):
            known.alpha = alpha[a:b]
        squares = np.cumsum([0, *(known.gram.size for known in sets)])
        bounds = np.cumsum([0, *(len(value) for _, value in features)])
        index, value = (np.concatenate(part) for part in zip(*features))
        gram = np.concatenate([known.gram.ravel() for known in sets])
        loss = np.concatenate([known.loss for known in sets])
        places = [first, squares, bounds, index]
        return Known(places, [value, gram, loss], alpha, self.weights)

    def _admit_violation(self, s, scores, segments, best) -> float:
        # The sequence's part of the gap.
        known = self.sets[s]
        gap = best - float(known.alpha @ self._gains(s, scores))
        if gap <= 0:
            return 0.0
        fired, chain = self._counts(s, segments)
        if known.find(fired) < 0:
            known.forget()
            self._admit(s, fired, chain)
        return self.weights[s] * gap

    def _admit(self, s: int, fired: np.ndarray, chain: np.ndarray) -> None:
        # Its inner products with all others: scores of their cells with its features as weights.
        of_cells, of_chain, square = self._features(s, fired, np.ones(len(fired)), chain)
        known = self.sets[s]
        products = known.values(self.rows[s][1] @ of_cells)
        products += known.chain.reshape(len(products), -1) @ of_chain.ravel()
        loss = self._own_loss(s)[:, : self.scores.n_labels].ravel()[fired].sum()
        apart = self._apart(s, fired, chain)
        known.add(fired, chain, float(loss), np.append(products, square), apart)

    def _apart(self, s: int, fired: np.ndarray, chain: np.ndarray):
        # Places in w of the features that are not those of the truth, and their values minus these.
        known = self.sets[s]
        true = known.fired[0]
        weight = np.repeat([1.0, -1.0], [len(fired), len(true)])
        of_cells, of_chain, _ = self._features(
            s, np.concatenate([fired, true]), weight, chain - known.chain[0]
        )
        L, columns = self.scores.n_labels, self.rows[s][0]
        i, j = np.nonzero(of_cells)
        other = np.flatnonzero(of_chain)
        places = np.concatenate([columns[i].astype(np.int64) * L + j, self.coef.size + other])
        return places, np.concatenate([of_cells[i, j], of_chain.ravel()[other]])

    def certificate(self) -> Certificate:
        """Primal and dual objective now."""
        ridge = self.l2 * float(np.vdot(self.coef, self.coef) + np.vdot(self.chain, self.chain))
        primal, dual = ridge, -ridge
        for s, scores, _, best in self._searches(self.blocks):
            known = self.sets[s]
            slack = best - self._gains(s, scores)[0]  # the truth is the first
            primal += self.weights[s] * max(slack, 0.0)
            dual += self.weights[s] * float(known.alpha @ known.loss)
        return Certificate(primal, dual)

    def vector(self) -> np.ndarray:
        """The weights as ``scores`` lays them out."""
        L = self.scores.n_labels
        weights = Weights(self.coef, self.chain[:L], self.chain[L], self.chain[L + 1])
        return ScoreMap.pack(self.scores, weights)


def _local(rows: Any) -> tuple[np.ndarray, sparse.csr_matrix, sparse.csc_matrix]:
    # The features of some rows, and the rows in these columns only, also transposed.
    columns, indices = np.unique(rows.indices, return_inverse=True)
    shape = (rows.shape[0], len(columns))
    local = sparse.csr_matrix((rows.data, indices.reshape(-1), rows.indptr), shape)
    return columns, local, local.T

"""Margin training of segmentations: the structured hinge loss, its dual, and their gap."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from sklseq._segments import SegmentPotentials
from sklseq.inference.segments import SegmentTransitions, best_segments, check_segmentations
from sklseq.objectives._hinge import Certificate
from sklseq.objectives._scores import ScoreMap, Weights
from sklseq.objectives._segment_likelihood import SegmentData, SegmentScores

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
            (X.kind, kind), (X.start, np.tile(step, 2)), (X.stop, np.tile(step, 2) + 1),
            (X.row, empty),
        )
    ]  # fmt: skip
    offsets = X.offsets + 2 * np.concatenate([[0], np.cumsum(lengths)])
    rows = sparse.vstack([sparse.csr_matrix(X.rows), sparse.csr_matrix((1, X.rows.shape[1]))])
    return SegmentPotentials(lengths, offsets, *columns[:3], rows.tocsr(), row=columns[3])


def token_loss(data: SegmentData, n_labels: int) -> np.ndarray:
    """What each cell adds to the loss if it fires for a label, shape (n_cells, width).

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

    A step on s finds the most violated segmentation y and moves μ_s towards it by the γ in [0, 1]
    that maximises D: γ = 2 · l2 · (loss(y) - loss(μ_s) + w·Δ) / (weight_s ‖Δ‖²), with
    Δ = φ(x_s, y) - φ(x_s, μ_s) (Lacoste-Julien et al. 2013, Algorithm 4).

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
    A mixture is kept as how much each cell fires for each label, and transitions, starts and ends:
    memory O(n_cells · L). A visit costs one Viterbi search, and its sequence's features.
    """

    inseparable = ()  # slack is allowed: weights always exist

    def __init__(self, scores: SegmentScores, data: SegmentData, weights: np.ndarray, l2: float):
        self.scores, self.data, self.plan = scores, data, data.plan
        self.weights, self.l2, L = weights, float(l2), scores.n_labels
        self.loss = token_loss(data, L)
        self.chain_mask = scores.padded_chain(np.ones(scores.n_weights))[:, :L]
        mask = scores.design.unpack(np.ones(scores.n_state))[:, :L]
        self.mask = None if mask.all() else mask
        self.coef = np.zeros((data.rows.shape[1], L))
        self.chain = np.zeros((L + 2, L))  # transitions, then start and end, as in ScoreMap
        self.rows = [_local(data.rows.rows[slice(*data.plan.cells[[s, s + 1]])])
                     for s in range(len(weights))]  # fmt: skip
        gold = data.gold
        cuts = np.searchsorted(gold.sequence, np.arange(len(weights) + 1))
        columns = np.stack(gold[1:], axis=1)
        self.gold = [columns[a:b] for a, b in zip(cuts[:-1], cuts[1:])]
        self.mixture = [self._counts(s, segments) for s, segments in enumerate(self.gold)]
        self.blocks = np.flatnonzero((weights > 0) & (np.diff(data.plan.steps) > 0))

    def _counts(self, s: int, segments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Which cells of sequence s fire for which label, and transitions, first and last label.
        plan, L = self.plan, self.scores.n_labels
        cells = slice(*plan.cells[[s, s + 1]])
        fired = np.zeros((cells.stop - cells.start, L))
        chain = np.zeros((L + 2, L))
        if len(segments):
            start, stop, label = segments.T
            kind, i, j = plan.kind[cells], plan.start[cells], plan.stop[cells]
            g = np.repeat(np.arange(len(start)), stop - start)[i]
            right = np.where(kind & 2, start[g] <= i, start[g] == i)
            right &= np.where(kind & 1, stop[g] >= j, stop[g] == j)
            fired[np.flatnonzero(right), label[g[right]]] = 1
            np.add.at(chain, (label[:-1], label[1:]), 1)
            chain[L, label[0]] = chain[L + 1, label[-1]] = 1
        return fired, chain

    def most_violated(self, s: int) -> tuple[np.ndarray, float]:
        """The segmentation of largest loss + score, as rows (start, stop, label), and that sum."""
        psi = self.loss[slice(*self.plan.cells[[s, s + 1]])].copy()
        columns, rows = self.rows[s]
        psi[:, : self.scores.n_labels] += rows @ self.coef[columns]
        found, best = best_segments(self.plan, psi, self._transitions(), s, s + 1)
        check_segmentations(best, s)
        return found[0], float(best[0])

    def _transitions(self) -> SegmentTransitions:
        L = self.scores.n_labels
        return SegmentTransitions(self.chain[:L], self.chain[L], self.chain[L + 1])

    def _value(self, s: int, fired: np.ndarray, chain: np.ndarray) -> float:
        # loss + score of counts.
        columns, rows = self.rows[s]
        loss = self.loss[slice(*self.plan.cells[[s, s + 1]]), : self.scores.n_labels]
        psi = loss + rows @ self.coef[columns]
        return float(np.vdot(psi, fired) + np.vdot(self.chain, chain))

    def optimize(
        self, order: np.ndarray, gaps: np.ndarray, n_steps: int, accuracy: float,
        n_searches: int = 1,
    ) -> None:  # fmt: skip
        """Up to ``n_searches`` exact steps on each sequence of ``order``.

        Its share before the first step goes into ``gaps``. There are no paths at hand to make
        ``n_steps`` among.
        """
        for s in order.tolist():
            gaps[s] = self._step(s)
            for _ in range(1, n_searches):
                if self._step(s) <= accuracy * gaps[s]:
                    break

    def _step(self, s: int) -> float:
        segments, best = self.most_violated(s)
        fired, chain = self.mixture[s]
        gain = best - self._value(s, fired, chain)
        new_fired, new_chain = self._counts(s, segments)
        columns, rows = self.rows[s]
        delta, of_chain = rows.T @ (new_fired - fired), new_chain - chain
        if self.mask is not None:
            delta *= self.mask[columns]
        trained = of_chain * self.chain_mask
        square = float(np.vdot(delta, delta) + np.vdot(trained, trained))
        weight = self.weights[s]
        if gain <= 0:
            return 0.0
        step = 1.0 if square == 0 else min(1.0, 2 * self.l2 * gain / (weight * square))
        self.coef[columns] -= step * weight / (2 * self.l2) * delta
        self.chain -= step * weight / (2 * self.l2) * trained
        self.mixture[s] = fired + step * (new_fired - fired), chain + step * of_chain
        return weight * gain

    def certificate(self) -> Certificate:
        """Primal and dual objective now."""
        L = self.scores.n_labels
        ridge = self.l2 * float(np.vdot(self.coef, self.coef) + np.vdot(self.chain, self.chain))
        primal, dual = ridge, -ridge
        for s in self.blocks.tolist():
            slack = self.most_violated(s)[1] - self._value(s, *self._counts(s, self.gold[s]))
            loss = self.loss[slice(*self.plan.cells[[s, s + 1]]), :L]
            primal += self.weights[s] * max(slack, 0.0)
            dual += self.weights[s] * float(np.vdot(loss, self.mixture[s][0]))
        return Certificate(primal, dual)

    def vector(self) -> np.ndarray:
        """The weights as ``scores`` lays them out."""
        L = self.scores.n_labels
        weights = Weights(self.coef, self.chain[:L], self.chain[L], self.chain[L + 1])
        return ScoreMap.pack(self.scores, weights)


def _local(rows: Any) -> tuple[np.ndarray, sparse.csr_matrix]:
    # The features of some rows, and the rows in these columns only.
    columns, indices = np.unique(rows.indices, return_inverse=True)
    shape = (rows.shape[0], len(columns))
    return columns, sparse.csr_matrix((rows.data, indices.reshape(-1), rows.indptr), shape)

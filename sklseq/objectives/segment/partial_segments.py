"""Likelihood of partly known segments: probability of all segmentations that contain them."""

from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import offsets_of, ranges
from sklseq._lib.threads import Threads
from sklseq.data.segment_potentials import OPEN_BOTH, OPEN_END, OPEN_START, SegmentPotentials
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.inference.segment.segmentations import SegmentTransitions
from sklseq.objectives.scores.score_map import ScoreMap, Support
from sklseq.objectives.segment.segment_likelihood import (
    Block,
    GoldSegments,
    SegmentData,
    SegmentLogLikelihood,
)


class Stretches(NamedTuple):
    """Runs of steps whose segments are unknown, between known segments.

    Adjacent segments of label -1 are one stretch. No segment may cross the borders between them.

    Attributes
    ----------
    sequence, start, stop : ndarray of int64, shape (n_stretches,)
    before, after : ndarray of int64, shape (n_stretches,)
        Label of the segment on either side; -1: the sequence begins or ends there.
    potential : ndarray of int64, shape (n_stretches,)
        The first of the two potentials that :func:`with_stretches` adds at the end of a stretch.
    border, border_of : ndarray of int64, shape (n_borders,)
        The first step after each border, counted from the start of its stretch, and the stretch.
    closed : ndarray of int64, shape (n_borders,)
        The potential of each border, active for the segments that cross it.
    """

    sequence: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    before: np.ndarray
    after: np.ndarray
    potential: np.ndarray
    border: np.ndarray
    border_of: np.ndarray
    closed: np.ndarray

    @classmethod
    def of(cls, gold: GoldSegments) -> Self:
        """Stretches of segments, of which the unknown ones have label -1."""
        at = np.flatnonzero(gold.label < 0)
        joined = (np.diff(at) == 1) & (np.diff(gold.sequence[at]) == 0)
        first = np.delete(at, np.flatnonzero(joined) + 1)
        last = np.delete(at, np.flatnonzero(joined))
        label = np.concatenate([[-1], gold.label, [-1]])
        number = np.concatenate([[-1], gold.sequence, [-1]])
        before, after = (
            np.where(number[one + k] == gold.sequence[one], label[one + k], -1)
            for one, k in ((first, 0), (last, 2))
        )
        where = gold.sequence[first], gold.start[first], gold.stop[last]
        border = gold.start[at[1:][joined]]
        of = np.searchsorted(first, at[1:][joined]) - 1  # last stretch that begins before
        none = np.full(len(first), -1)
        return cls(*where, before, after, none, border - where[1][of], of, np.full(len(of), -1))

    def support(self, seen: Support) -> Support:
        """The observed support plus the transitions and ends that these stretches allow."""
        transition, start, end = (x.copy() for x in seen[1:4])
        transition[self.before[self.before >= 0]] = True
        transition[:, self.after[self.after >= 0]] = True
        transition |= bool((self.stop - self.start > 1).any())
        start |= bool((self.before < 0).any())
        end |= bool((self.after < 0).any())
        return Support(seen.pairs, transition, start, end)


def with_stretches(
    X: SegmentPotentials, gold: GoldSegments
) -> tuple[SegmentPotentials, GoldSegments, Stretches]:
    """X and its segments with each stretch as an additional sequence, and the stretches.

    The sequence of a stretch has the potentials of X inside the stretch, followed by one for each
    border, active for the segments that cross it, one for the first segment and one for the last.
    """
    stretches = Stretches.of(gold)
    empty = X.rows.shape[0]
    rows = sparse.vstack([sparse.csr_matrix(X.rows), sparse.csr_matrix((1, X.rows.shape[1]))])
    columns: list[list] = [[X.kind], [X.start], [X.stop], [X.row]]
    counts = [np.diff(X.offsets)]
    for k, (s, a, b) in enumerate(zip(*stretches[:3])):
        own = slice(X.offsets[s], X.offsets[s + 1])
        start, stop = X.start[own], X.stop[own]
        kept = np.flatnonzero((start >= a) & (stop <= b))
        border = stretches.border[stretches.border_of == k]
        m = len(border)
        first, last = np.append(border - 1, [0, b - a - 1]), np.append(border + 1, [1, b - a])
        new = (
            [X.kind[own][kept], [OPEN_BOTH] * m + [OPEN_END, OPEN_START]], [start[kept] - a, first],
            [stop[kept] - a, last], [X.row[own][kept], [empty] * (m + 2)],
        )  # fmt: skip
        for column, parts in zip(columns, new):
            column.extend(parts)
        counts.append([len(kept) + m + 2])
    lengths, n = np.append(X.lengths, stretches.stop - stretches.start), len(X.lengths)
    kind, start, stop, row = (np.concatenate(column) for column in columns)
    offsets = offsets_of(np.concatenate(counts))
    joined = SegmentPotentials(lengths, offsets, kind, start, stop, rows.tocsr(), row=row)
    m = len(stretches.start)
    more = GoldSegments(np.arange(n, n + m), np.zeros(m, int), lengths[n:], np.full(m, -1))
    gold = GoldSegments(*(np.concatenate(pair) for pair in zip(gold, more)))
    potential = joined.offsets[n + 1 :] - 2
    # The potentials of borders are in order, just before the last two potentials of their stretch.
    after = np.searchsorted(stretches.border_of, stretches.border_of, side="right")
    closed = potential[stretches.border_of] - after + np.arange(len(after))
    return joined, gold, stretches._replace(potential=potential, closed=closed)


class PartialSegmentLogLikelihood(SegmentLogLikelihood):
    """f(w) = -Σ_s weight_s · log p(Y_s | x_s) + l2 · ‖w‖²₂, where Y_s is a set of segmentations.

    Y is the set of segmentations that contain the known segments, with any segments in the
    stretches [a, b) between them:

        log p(Y | x) = score of the known segments + Σ_stretches log Z(a, b | y, y') - log Z,

    where Z(a, b | y, y') is the sum over segmentations of the stretch of exp(score + transition
    from the label y before the stretch + transition to the label y' after it). So a stretch is an
    additional sequence of weight -weight_s. The two transitions are scores of its first and its
    last segment; segments that cross a border inside it have the score -inf. f is not convex.

    Parameters
    ----------
    scores : SegmentScores
    data : SegmentData
        Made from the potentials that :func:`with_stretches` returns.
    stretches : Stretches
    weights : ndarray of shape (n_sequences,)
        Weights of the original sequences, not of the stretches.
    l2, threads
        As in ``SegmentLogLikelihood``.

    References
    ----------
    Y. Tsuboi, H. Kashima, H. Oda, S. Mori, Y. Matsumoto (2008), "Training conditional random fields
    using incomplete annotations", COLING, §4.
    """

    def __init__(
        self, scores: ScoreMap, data: SegmentData, stretches: Stretches, weights: np.ndarray,
        l2: float, threads: Threads,
    ):  # fmt: skip
        every = np.append(weights, -weights[stretches.sequence])
        # Cells of the first and last segments of stretches. `label` is the row or column of the
        # transitions into `step` that a cell gets; there is none at the ends of a sequence.
        plan, borders = data.plan, []
        first = plan.steps[stretches.sequence]
        sides = (stretches.before, stretches.start), (stretches.after, stretches.stop)
        for side, (label, step) in enumerate(sides):
            inner = np.flatnonzero(label >= 0)
            cell = plan.cell_of[stretches.potential[inner] + side]
            step = (first + step)[inner]
            borders.append(np.stack([cell, np.full(len(inner), side), label[inner], step]))
        table = np.concatenate(borders, axis=1)
        table = table[:, np.argsort(table[0], kind="stable")]
        self.border, self.side, self.label, self.step = table
        self.closed = np.sort(data.plan.cell_of[stretches.closed])
        super().__init__(scores, data, every, l2, threads)
        self.expected = np.zeros((len(self.border), data.plan.width))

    def prepare(self, chain: SegmentTransitions) -> None:
        """Compute the scores of border cells: transitions that replace start and end scores."""
        (start, end), number = chain.boundary[:, : chain.n_labels], np.arange(len(self.step))
        matrices = chain.into(self.step)
        first, last = matrices[number, self.label] - start, matrices[number, :, self.label] - end
        self.border_scores = np.where(self.side[:, None] == 0, first, last)

    def _borders(self, block: Block) -> slice:
        return slice(*np.searchsorted(self.border, (block.first, block.last)))

    def change_scores(self, psi: np.ndarray, block: Block) -> None:
        at = self._borders(block)
        np.add.at(
            psi[:, : self.scores.n_labels], self.border[at] - block.first, self.border_scores[at]
        )

        a, b = np.searchsorted(self.closed, (block.first, block.last))
        psi[self.closed[a:b] - block.first] = -np.inf

    def keep_marginals(self, F: np.ndarray, block: Block) -> None:
        at = self._borders(block)
        self.expected[at] = F[self.border[at] - block.first]

    def expected_chain(self, chain) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        transition, start, end = super().expected_chain(chain)
        mu, first = self.expected[:, : self.scores.n_labels], self.side == 0
        np.add.at(transition, self.label[first], mu[first])
        np.add.at(transition.T, self.label[~first], mu[~first])
        if chain.rows is not None:
            self._expect_entries(chain.rows)
        return transition, start - mu[first].sum(axis=0), end - mu[~first].sum(axis=0)

    def _expect_entries(self, rows: RowTransitions) -> None:
        # Add the marginals of border cells to the expected transitions of single steps.
        first = rows.indptr[self.step]
        counts = rows.indptr[self.step + 1] - first
        border = np.repeat(np.arange(len(counts)), counts)
        entry = ranges(first, counts)
        i, j = rows.i[entry], rows.j[entry]
        before = self.side[border] == 0
        kept = np.where(before, i, j) == self.label[border]
        inner = np.where(before, j, i)[kept]
        np.add.at(rows.expected, entry[kept], self.expected[border[kept], inner])

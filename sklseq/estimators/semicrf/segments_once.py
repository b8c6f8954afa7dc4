"""Search for the best segmentation in which some labels occur at most once.

``SemiCRFSegmenter.predict`` uses it for ``valid="once"`` and lists of labels.
"""

from typing import NamedTuple

import numpy as np

from sklseq._lib.checks import counted
from sklseq.data.labels import find_codes
from sklseq.data.segment_labels import write_segments
from sklseq.data.segment_potentials import SegmentPotentials
from sklseq.estimators.semicrf.segment_program import scores_of_rows
from sklseq.estimators.valid_paths import repeated_labels
from sklseq.inference.chain.once import NoValidAnswerError
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.inference.segment.segmentations import (
    SegmentPlan,
    SegmentTransitions,
    best_segments,
    check_segmentations,
)
from sklseq.objectives.segment.segment_starts import transitions_of_starts

# Largest number of states (set of labels that have occurred, label) of a search, whose cost grows
# with their square.
MOST_STATES = 1024


class OnceSearch(NamedTuple):
    """The model of a segmenter, and the labels that may occur once.

    Attributes
    ----------
    once : list
    classes, coef, intercept, transition, start, end, transition_coef
        Fitted attributes of the segmenter.
    limits : ndarray of shape (n_labels,)
        Largest number of steps of a segment of each label; 0: any.
    outside : str or None
    """

    once: list
    classes: np.ndarray
    coef: np.ndarray
    intercept: np.ndarray
    transition: np.ndarray
    start: np.ndarray
    end: np.ndarray
    transition_coef: object
    limits: np.ndarray
    outside: str | None

    def best(self, X: SegmentPotentials, s: int, segments: list) -> list:
        """Return the best segmentation of sequence s that repeats no label of ``once``.

        ``segments``: the best segmentation without the rule. As in ``best_paths_once``, a search
        only enforces the rule for labels that were repeated in earlier results.
        """
        repeated: list = []
        while more := repeated_labels(segments, self.once):
            repeated += more
            if len(self.classes) << len(repeated) > MOST_STATES:
                raise NoValidAnswerError(
                    f"The best segmentations of sequence {s} repeat "
                    f"{counted(len(repeated), 'label')}, too many for a search; name fewer labels "
                    "in valid, or use handle_invalid='best'."
                )
            rows = self._search(X[[s]], find_codes(np.array(repeated), self.classes))
            if rows is None:
                raise NoValidAnswerError(
                    f"Sequence {s} has no segmentation in which each label that valid names occurs "
                    "at most once; name fewer labels in valid, allow longer segments, or use "
                    "handle_invalid='best'."
                )
            segments = write_segments(rows, self.classes, self.outside)
        return segments

    def _search(self, x: SegmentPotentials, codes: np.ndarray) -> np.ndarray | None:
        # States are (set of the labels in ``codes`` that have occurred, label). Returns None if
        # there is no segmentation.
        L, n = len(self.classes), 1 << len(codes)
        bit = np.zeros(L, dtype=np.int64)
        bit[codes] = 1 << np.arange(len(codes))
        transition, start = np.full((n, L, n, L), -np.inf), np.full((n, L), -np.inf)
        rows = transitions_of_starts(x, self.transition, self.transition_coef)
        start[bit, np.arange(L)] = self.start
        for begun in range(n):
            free = np.flatnonzero(begun & bit == 0)
            transition[begun][:, begun | bit[free], free] = self.transition[:, free]
        plan = SegmentPlan(x, n * L, np.tile(self.limits, n))
        scores, row = scores_of_rows(x, self.coef, self.intercept)
        chain = SegmentTransitions(
            transition.reshape(n * L, n * L), start.ravel(), np.tile(self.end, n), sums=False,
            rows=None if rows is None else _entries(rows, transition, bit),
        )  # fmt: skip
        found, best = best_segments(plan, plan.cell_scores(np.tile(scores, n), row), chain)
        if best[0] == -np.inf:
            return None
        check_segmentations(best)
        found[0][:, 2] %= L
        return found[0]


def _entries(rows: RowTransitions, transition: np.ndarray, bit: np.ndarray) -> RowTransitions:
    # Transition scores of rows for the states (set of labels that have occurred, label).
    n, L = transition.shape[:2]
    row = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
    begun = np.repeat(np.arange(n), len(row))
    row, i, j, score = (np.tile(x, n) for x in (row, rows.i, rows.j, rows.score))
    free = np.flatnonzero(begun & bit[j] == 0)
    free = free[np.argsort(row[free], kind="stable")]
    row, i, j, begun = row[free], i[free], j[free], begun[free]
    indptr = np.searchsorted(row, np.arange(len(rows) + 1))
    labels = begun * L + i, (begun | bit[j]) * L + j
    return RowTransitions(transition.reshape(n * L, n * L), indptr, *labels, score[free])

"""Terms of the score of a segmentation, by name."""

from typing import Any, NamedTuple

import numpy as np

from sklseq.data.segment_potentials import SegmentPotentials
from sklseq.objectives.segment.segment_starts import rows_of_starts


class SegmentExplanation(NamedTuple):
    """Score terms of one predicted segment; see :meth:`SemiCRFSegmenter.explain`.

    Attributes
    ----------
    start, stop : int
    label : label
    probability : float or None
        Probability of a segment with this label and these ends; None for the hinge loss.
    contributions : list of (name, score)
        Terms of the segmentation's score that belong to the segment, largest magnitude first. They
        add up, over all segments, to that score.
    """

    start: int
    stop: int
    label: Any
    probability: float | None
    contributions: list


def segment_terms(
    segmenter: Any, X: SegmentPotentials, segments: np.ndarray, names: np.ndarray
) -> list[list[tuple[str, float]]]:
    """Return (name, score) of the nonzero terms of each segment (start, stop, code) of X[0]."""
    L, labels, starts = len(segmenter.classes_), segmenter.classes_.tolist(), None
    if (coef := segmenter.transition_coef_) is not None:
        starts = rows_of_starts(X, np.flatnonzero(np.diff(coef.indptr))).rows
    found, before = [], None
    for i, j, k in segments.tolist():
        sums = _features_of(X, i, j)
        columns = np.flatnonzero(sums)
        terms = list(zip(names[columns], sums[columns] * segmenter.coef_[columns, k]))
        if segmenter.intercept_.any():
            terms.append(("intercept", (j - i) * segmenter.intercept_[k]))
        if before is None:
            terms.append((f"start → {labels[k]}", segmenter.start_[k]))
        else:
            pair = f"{labels[before]} → {labels[k]}"
            terms.append((pair, segmenter.transition_[before, k]))
            if starts is not None:
                scores = starts[[i]].toarray()[0] * coef[:, [before * L + k]].toarray()[:, 0]
                terms += [(f"{names[c]}, {pair}", scores[c]) for c in np.flatnonzero(scores)]
        if j == X.lengths[0]:
            terms.append((f"{labels[k]} → end", segmenter.end_[k]))
        kept = [(str(name), float(score)) for name, score in terms if score != 0]
        found.append(sorted(kept, key=lambda term: -abs(term[1])))
        before = k
    return found


def _features_of(X: SegmentPotentials, i: int, j: int) -> np.ndarray:
    # Sums of features over the potentials that are active for the segment [i, j).
    starts = np.where(X.kind & 2, X.start >= i, X.start == i)
    stops = np.where(X.kind & 1, X.stop <= j, X.stop == j)
    return np.asarray(X.rows[X.row[starts & stops]].sum(axis=0)).ravel()

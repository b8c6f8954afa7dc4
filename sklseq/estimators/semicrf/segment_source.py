"""Training data of a semi-Markov CRF, and checks of its constraints and lengths."""

from typing import Any, Self

import numpy as np
from scipy import sparse

from sklseq.data.column_roles import with_transition_features
from sklseq.data.constraints import Constraints, forbid_pairs
from sklseq.data.segment_labels import UNKNOWN, Segments, read_segments
from sklseq.data.segment_potentials import SegmentPotentials
from sklseq.data.sequences import STATE, TRANSITION, Sequences, check_not_empty, training_weights
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.semicrf.segment_program import read_potentials

# Fitted attributes whose entries are weights: scores are linear in them.
WEIGHTS = "coef_", "intercept_", "transition_", "start_", "end_", "transition_coef_"


class SegmentSource:
    """Segmented training sequences, without sequences of weight 0.

    Attributes
    ----------
    potentials : SegmentPotentials
    segments : Segments
    weights : ndarray of shape (n_sequences,)
    classes : ndarray of shape (n_labels,)
    codes : ndarray of shape (n_segments,)
        Label of each segment; -1: the segments of these steps are unknown.
    vectorizer : DictFeatures or None
    has_unknown : bool
        Whether ``y`` has unknown segments, also in sequences left out because all is unknown.
    of_tokens : bool
        Whether X was rows of tokens, which have an intercept.
    """

    def __init__(
        self, potentials: SegmentPotentials, segments: Segments, weights, vectorizer,
        has_unknown: bool, of_tokens: bool,
    ):  # fmt: skip
        self.has_unknown, self.of_tokens = has_unknown, of_tokens
        if not weights.all():
            kept = np.flatnonzero(weights)
            potentials, segments = potentials[kept], _segments_of(segments, kept)
            weights = weights[kept]
            check_not_empty(potentials, "step")
        self.potentials, self.segments, self.weights = potentials, segments, weights
        self.vectorizer = vectorizer
        known = segments.label != UNKNOWN
        self.classes, codes = np.unique(segments.label[known], return_inverse=True)
        self.codes = np.full(len(known), -1)
        self.codes[known] = codes.reshape(-1)

    @classmethod
    def read(
        cls,
        X: SequencesLike,
        y: LabelsLike,
        sample_weight: ArrayLike | None,
        outside: str | None,
    ) -> Self:
        """Read and check the arguments of ``fit``."""
        potentials, vectorizer = read_potentials(X, fit=True)
        check_not_empty(potentials, "step")
        segments = read_segments(y, potentials.lengths, outside, unknown=True)
        weights = training_weights(sample_weight, len(potentials))
        known = np.bincount(segments.sequence, segments.label != UNKNOWN, minlength=len(potentials))
        if not (weights * known).any():
            raise ValueError(
                "y must hold a known segment in a sequence of positive weight; all are unknown "
                "(None)."
            )
        has_unknown = bool(weights[segments.sequence[segments.label == UNKNOWN]].any())
        # One unknown stretch allows every segmentation; a border between two forbids some.
        silent = (known == 0) & (np.bincount(segments.sequence, minlength=len(potentials)) == 1)
        weights, of_tokens = np.where(silent, 0, weights), not isinstance(X, SegmentPotentials)
        return cls(potentials, segments, weights, vectorizer, has_unknown, of_tokens)

    @property
    def given(self) -> SegmentPotentials | Sequences:
        """X in a form that trains the same model."""
        X = self.potentials
        return Sequences(X.rows, X.offsets) if self.of_tokens else X

    @property
    def trained(self) -> SegmentPotentials:
        """X, with a last column of ones if the model has an intercept."""
        X = self.potentials
        if not self.of_tokens:
            return X
        ones = np.ones((X.n_potentials, 1), X.rows.dtype)
        rows = sparse.hstack([X.rows, ones], format="csr")
        return SegmentPotentials(X.lengths, X.offsets, X.kind, X.start, X.stop, rows)

    def transition_columns(self, chosen: Any) -> np.ndarray | None:
        """Columns of transition features, as the parameter ``transition_features`` chooses them."""
        potentials, names = self.potentials, None
        if self.vectorizer is not None:
            names = self.vectorizer.get_feature_names_out
        elif potentials.feature_names is not None:
            names = lambda: potentials.feature_names  # noqa: E731
        roles = with_transition_features(chosen, potentials.shape[1], potentials.roles, names)
        if roles is not None and not (roles & STATE).all():
            raise ValueError(
                "X has columns with weights for pairs of labels only, such as B lines of a "
                "template, which SemiCRFSegmenter does not train; use '*' lines instead."
            )
        return None if roles is None else np.flatnonzero(roles & TRANSITION)

    def allowed(self, forbidden: Any) -> Constraints:
        """Return masks of the parameter ``constraints``; raise if y violates them."""
        allowed = forbid_pairs(forbidden, self.classes)
        segments, codes = self.segments, self.codes
        first = np.append(True, segments.sequence[1:] != segments.sequence[:-1])
        last = np.append(first[1:], True)
        wrong = first & ~allowed.start[codes] | last & ~allowed.end[codes]
        wrong[1:] |= ~first[1:] & ~allowed.transition[codes[:-1], codes[1:]]
        if wrong.any():
            k = int(np.argmax(wrong))
            one = (int(segments.start[k]), int(segments.stop[k]), str(segments.label[k]))
            raise ValueError(
                f"Segment {one!r} of sequence {segments.sequence[k]} of y makes the pair "
                f"{self._forbidden_pair(k, allowed, first)!r}, which constraints forbid; correct "
                "the labels, or loosen constraints."
            )
        return allowed

    def _forbidden_pair(self, k: int, allowed: Constraints, first: np.ndarray) -> tuple:
        # The pair in the form of the parameter: (label before k, label k), or (label k, None).
        labels, code, before = self.classes.tolist(), self.codes[k], None
        if first[k]:
            forbidden = not allowed.start[code]
        else:
            before = labels[self.codes[k - 1]]
            forbidden = not allowed.transition[self.codes[k - 1], code]
        return (before, labels[code]) if forbidden else (labels[code], None)

    @property
    def is_partial(self) -> bool:
        return bool((self.codes < 0).any())

    def longest(self, limit: int | None) -> int:
        """Largest number of steps of a segment, 0: any; raise if training segments are longer."""
        if limit is None:
            return 0
        segments = self.segments
        size = segments.stop - segments.start
        wrong = np.flatnonzero((size > limit) & (self.codes >= 0))
        if wrong.size:
            k = wrong[0]
            s = segments.sequence[k]
            one = (int(segments.start[k]), int(segments.stop[k]), str(segments.label[k]))
            raise ValueError(
                f"Segment {one!r} of sequence {s} of y has {size[k]} steps, more than "
                f"max_segment_length={limit}. Raise it, or use None for any length."
            )
        return min(int(limit), np.iinfo(np.int64).max)


def divided_weights(fitted: dict[str, Any], divisor: float) -> dict[str, Any]:
    """Return the attributes of a fitted segmenter, with all weights divided."""
    weights = {name: fitted[name] for name in WEIGHTS if fitted[name] is not None}
    return fitted | {name: weight / divisor for name, weight in weights.items()}


def _segments_of(segments: Segments, kept: np.ndarray) -> Segments:
    # Segments of the sequences ``kept``, which are renumbered.
    chosen = np.isin(segments.sequence, kept)
    columns = [column[chosen] for column in segments[1:]]
    return Segments(np.searchsorted(kept, segments.sequence[chosen]), *columns)

"""Stream of segments of a sequence whose tokens arrive one by one."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.estimator import fitted_parameter
from sklseq.data.segment_potentials import SegmentPotentials
from sklseq.estimators.online.items import check_items, numbered_from, one_sequence
from sklseq.estimators.online.pipelines import tagger_of
from sklseq.estimators.online.stream import StreamModel
from sklseq.estimators.semicrf.segment_source import label_limits
from sklseq.estimators.semicrf.semicrf_segmenter import (
    SemiCRFSegmenter,
    labels_of_rows,
    span_scores,
)
from sklseq.inference.chain.online_rules import OnlineRule
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.inference.segment.segment_closure import check_max_span, closure_of_sequence
from sklseq.inference.segment.segmentations import SegmentPlan, SegmentSpans, SegmentTransitions


class SegmentEmission(NamedTuple):
    """A segment that became final.

    Attributes
    ----------
    start, stop : int
        Positions of its first token and of the token after its last one, counted from 0.
    label : label
    latency : int
        Number of tokens after its last token that had arrived when it became final.
    """

    start: int
    stop: int
    label: Any
    latency: int


class _Spans(NamedTuple):
    # Known potentials of one sequence: kind, start, stop and scores of each; and the transition
    # scores of its steps from ``base`` on, None if the model has no transition features.
    kind: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    scores: np.ndarray
    base: int
    rows: RowTransitions | None

    def transitions(self, first: int, n: int, further: int) -> RowTransitions | None:
        # Those of steps ``first`` to n - 1 and of ``further`` unknown ones.
        if self.rows is None:
            return None
        rows = self.rows.part(first - self.base, n - self.base)
        none, empty = np.zeros(0, np.int32), np.zeros(further + 1, np.int64)
        return rows.followed_by(
            RowTransitions.unchecked(rows.shared, empty, none, none, rows.score[:0])
        )

    def into(self, step: int, transition: np.ndarray) -> np.ndarray:
        # Scores (n_labels, n_labels) of transitions into segments that start at a step.
        if self.rows is None:
            return transition
        return self.rows.take(np.array([step - self.base]))[0]


class SegmentBeam:
    """Pending steps of one sequence, from step ``first`` after a segment of ``label``.

    The steps after a final segment are decoded as a sequence of their own, whose start scores are
    the transition scores from the label of that segment.
    """

    def __init__(self, segmenter: SemiCRFSegmenter, max_span: int | None, rule: OnlineRule):
        self._weights = segmenter.transition_, segmenter.start_, segmenter.end_
        longest, outside = segmenter.max_segment_length_, fitted_parameter(segmenter, "outside")
        self._limits = label_limits(segmenter.classes_, longest, outside)
        self._max_span = segmenter.max_span_ if max_span is None else max_span
        self._closes = rule.strategy == "closure"
        self._most = np.inf if rule.max_latency is None else rule.max_latency
        self.first, self.label = 0, -1

    def settle(self, spans: _Spans, n: int) -> list[tuple[int, int, int]]:
        """Return the segments that become final when n steps are known."""
        found = []
        if self._closes and n > self.first:
            # An additional step without potentials represents the continuation of the sequence.
            rows, times = self._best(spans, n, 1, np.zeros_like(self._weights[2]))
            found += self._leave(rows[times < n - self.first])
        while n - self.first > self._most:
            found += self._leave(self._best(spans, n, 0, np.zeros_like(self._weights[2]))[0][:1])
        return found

    def leave_all(self, spans: _Spans, n: int, ended: bool) -> list[tuple[int, int, int]]:
        """Return the best segmentation of all pending steps; ``ended``: the sequence ends here."""
        if n == self.first:
            return []
        end = self._weights[2] if ended else np.zeros_like(self._weights[2])
        return self._leave(self._best(spans, n, 0, end)[0])

    def _leave(self, rows: np.ndarray) -> list[tuple[int, int, int]]:
        if len(rows):
            self.first, self.label = int(rows[-1, 1]), int(rows[-1, 2])
        return [(i, j, k) for i, j, k in rows.tolist()]

    def _best(
        self, spans: _Spans, n: int, further: int, end: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        # The best segmentation of the pending steps, and the step at which each segment was
        # certain.
        transition, start, _ = self._weights
        first, L = self.first, len(transition)
        known = (spans.start >= first) & (spans.stop <= n)
        lengths, offsets = np.array([n - first + further]), np.array([0, known.sum()])
        part = spans.kind[known], spans.start[known] - first, spans.stop[known] - first
        max_span = self._max_span if self._closes else 0
        plan = SegmentPlan(SegmentSpans(lengths, offsets, *part), L, self._limits, max_span)
        start = start if self.label < 0 else spans.into(first, transition)[self.label]
        rows = spans.transitions(first, n, further)
        chain = SegmentTransitions(transition, start, end, rows=rows)
        rows, times = closure_of_sequence(plan, 0, plan.cell_scores(spans.scores[known]), chain)
        rows[:, :2] += first
        return rows, times


def _known_spans(
    segmenter: SemiCRFSegmenter, X: Any, max_span: int | None, base: int = 0
) -> tuple[SegmentPotentials, list[_Spans]]:
    # Potentials of sequences whose first step has the number ``base``; and, for each sequence, with
    # their scores. Lengths of potentials are checked by max_span.
    X, scores, rows = span_scores(segmenter, X, continued=base > 0)
    check_max_span(X, segmenter.max_span_ if max_span is None else max_span)
    steps, found = np.concatenate([[0], np.cumsum(X.lengths)]), []
    for s in range(len(X)):
        part = slice(X.offsets[s], X.offsets[s + 1])
        ends = X.start[part] + base, X.stop[part] + base
        of_steps = None if rows is None else rows.part(int(steps[s]), int(steps[s + 1]))
        found.append(_Spans(X.kind[part], *ends, scores[part], base, of_steps))
    return X, found


def labels_in_time(
    segmenter: SemiCRFSegmenter, X: Any, max_span: int | None, rule: OnlineRule, held: int
) -> tuple[list, list]:
    """Return IOB2 labels of whole sequences, and the newest known step when each was emitted.

    ``held``: number of last steps that become known only at the end of the sequence.
    """
    potentials, known = _known_spans(segmenter, X, max_span)
    answers = []
    for spans, n in zip(known, potentials.lengths.tolist()):
        beam, rows, times = SegmentBeam(segmenter, max_span, rule), [], []
        for t in range(1, n + 1 - held):
            found = beam.settle(spans, t)
            rows += found
            times += [t - 1] * len(found)
        rows += beam.leave_all(spans, n, ended=True)
        times += [n - 1] * (len(rows) - len(times))
        answers.append((np.array(rows, dtype=np.int64).reshape(-1, 3), np.array(times, dtype=int)))
    return labels_of_rows(segmenter, potentials.lengths, answers)


class SegmentStream:
    """Stream of tokens to segments; made by :meth:`~sklseq.OnlineDecoder.segment_stream`.

    With ``strategy="closure"`` a segment is emitted when no continuation can change it. If a token
    is pending after ``max_latency`` or ``lag`` further tokens, the first segment of the best
    segmentation so far is emitted; it ends at the newest token at the latest. The following steps
    are decoded given its label. Segments of the outside label are left out. A failed call changes
    nothing. It can be pickled.

    Parameters
    ----------
    model : StreamModel

    Attributes
    ----------
    n_seen : int
        Number of tokens pushed.
    n_pending : int
        Number of tokens without a final segment.

    Notes
    -----
    Each push recomputes the features of the pending tokens and their best segmentation.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import OnlineDecoder, SemiCRFSegmenter
    >>> from sklseq.features import SegmentFeatures
    >>> X = [["by", "Ann", "Lee"], ["Ann", "said"]] * 3
    >>> y = [[(1, 3, "name")], [(0, 1, "name")]] * 3
    >>> model = make_pipeline(SegmentFeatures(length=False), SemiCRFSegmenter(l2=0.1))
    >>> decoder = OnlineDecoder(model, strategy="closure", max_latency=4).fit(X, y)
    >>> stream = decoder.segment_stream()
    >>> for token in ["by", "Ann", "Lee"]:
    ...     print(token, [(e.start, e.stop, e.label) for e in stream.push(token)])
    by []
    Ann []
    Lee []
    >>> [(e.start, e.stop, e.label) for e in stream.flush()]
    [(1, 3, 'name')]
    """

    def __init__(self, model: StreamModel):
        self._model = model
        self._transformers, self._segmenter = tagger_of(model.estimator)
        last = self._transformers[-1][1] if self._transformers else None
        self._max_span = getattr(last, "max_span", None)
        self.reset()

    def reset(self) -> None:
        """Forget the sequence; the next token is the first of another sequence."""
        self._beam = SegmentBeam(self._segmenter, self._max_span, self._model.rule)
        self._tokens: list = []  # tokens that features look back at, then pending tokens
        self.n_seen = 0

    @property
    def n_pending(self) -> int:
        return self.n_seen - self._beam.first

    def __repr__(self) -> str:
        return f"<SegmentStream: {self.n_seen} tokens, {self.n_pending} pending>"

    def push(self, item: Any) -> list[SegmentEmission]:
        """Take one token; return the segments that became final.

        Parameters
        ----------
        item : token, dict or tuple

        Returns
        -------
        list of SegmentEmission
        """
        return self.push_many([item])

    def push_many(self, items: Any) -> list[SegmentEmission]:
        """Take several tokens at once: the same segments, faster.

        Parameters
        ----------
        items : list of tokens

        Returns
        -------
        list of SegmentEmission
        """
        check_items(items, "push_many")
        tokens = [x.copy() if isinstance(x, (dict, list, np.ndarray)) else x for x in items]
        if not tokens:
            return []
        beam, window, n_seen = copy(self._beam), self._tokens + tokens, self.n_seen + len(tokens)
        spans, found = self._spans(window, n_seen), []
        for n in range(self.n_seen + 1, n_seen + 1):
            rows = beam.settle(spans, max(0, n - self._model.after))
            found += self._emissions(rows, n)
        self._beam, self.n_seen = beam, n_seen
        self._tokens = window[max(0, len(window) - self.n_pending - self._model.before) :]
        return found

    def commit(self) -> list[SegmentEmission]:
        """Make all pending segments final now, those of the best segmentation so far.

        Returns
        -------
        list of SegmentEmission
        """
        return self._all(ended=False)

    def flush(self) -> list[SegmentEmission]:
        """End the sequence; return its pending segments. The next token begins another sequence.

        Returns
        -------
        list of SegmentEmission
        """
        found = self._all(ended=True)
        self.reset()
        return found

    @property
    def provisional(self) -> list[SegmentEmission]:
        """List of :class:`SegmentEmission` of the pending tokens, as ``flush`` would return now."""
        return copy(self)._all(ended=True)

    def _all(self, ended: bool) -> list[SegmentEmission]:
        if self.n_pending == 0:
            return []
        beam, spans = copy(self._beam), self._spans(self._tokens, self.n_seen)
        rows = beam.leave_all(spans, self.n_seen, ended)
        self._beam = beam
        self._tokens = self._tokens[max(0, len(self._tokens) - self._model.before) :]
        return self._emissions(rows, self.n_seen)

    def _emissions(self, rows: list[tuple[int, int, int]], n: int) -> list[SegmentEmission]:
        labels = self._segmenter.classes_.tolist()
        outside = fitted_parameter(self._segmenter, "outside")
        return [SegmentEmission(i, j, labels[k], n - j) for i, j, k in rows if labels[k] != outside]

    def _spans(self, window: list, n_seen: int) -> _Spans:
        # Potentials of the window, which ends with the newest token.
        base, X = n_seen - len(window), one_sequence(window)
        with numbered_from(lambda s, t: f"{base + t} of the stream"):
            for _, transformer in self._transformers:
                X = transformer.transform(X)
            return _known_spans(self._segmenter, X, self._max_span, base)[1][0]

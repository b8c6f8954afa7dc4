"""Online segmentation: the step at which each segment of the best segmentation is certain."""

from collections.abc import Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from sklseq._lib.checks import check_number
from sklseq._lib.cpu import load_kernel
from sklseq._lib.ragged import offsets_of
from sklseq.data.segment_potentials import SegmentPotentials
from sklseq.data.types import ArrayLike
from sklseq.inference.chain.online_rules import lasting_labels
from sklseq.inference.chain.row_transitions import RowTransitions, TransitionLike
from sklseq.inference.segment.segmentations import (
    SegmentSpans,
    as_spans,
    best_segments,
    check_segmentations,
    checked_scores,
    planned,
)

_online = load_kernel("sklseq.inference.kernels._segment_online")

BLOCK = 1024  # steps that a beam takes at once: it holds these and the pending ones


def segment_closure(
    spans: SegmentSpans | SegmentPotentials,
    scores: ArrayLike,
    transition: TransitionLike,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    max_length: int | ArrayLike | None = None,
    max_span: int | None = None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Best segmentations, and the step at which each of their segments became certain.

    At step t, all potentials that stop at t + 1 or before are known. A segment of the best
    segmentation is certain at step t if no later potential can change it. This holds as soon as
    all survivors contain it. The survivors at step t are the best segmentations of the steps so
    far, one for each way in which the sequence may go on: the last segment ends here, with each
    label, or stays open. Labels of the next step are not compared, as with ``early=False`` of
    :func:`decode_online`. Potentials that stop later span at most ``max_span``
    steps. They therefore add the same score to all segments that began more than ``max_span``
    steps before they stop, and only the starts within ``max_span`` steps have to be kept apart.

    Parameters
    ----------
    spans, scores, transition, start, end, max_length
        As in :func:`segment_forward_backward`.
    max_span : int, optional
        The largest number of steps that any potential spans, including those not yet known. If it
        is None and ``max_length`` does not limit all labels, a later potential could favour a
        segment that began at the first step: then nothing is certain before the end.

    Returns
    -------
    segments : list of ndarray of shape (n_segments, 3)
        Those of :func:`segment_viterbi`; among segmentations of equal score (up to rounding) it
        may choose another one.
    times : list of ndarray of shape (n_segments,)
        The step, counted from 0, at which each segment became certain.

    Raises
    ------
    ValueError
        As in :func:`segment_forward_backward`, or if a potential spans more than ``max_span``.

    Notes
    -----
    Cost O(n · max_span · n_labels + n · n_labels²) for n steps. A count of the survivors after each
    segment gives their last common ancestor, in O(n_labels) a step on average.

    References
    ----------
    M. Narasimhan, P. Viola, M. Shilman (2006), "Online decoding of Markov models under latency
    constraints", ICML, §3 (closure, for labels).

    Examples
    --------
    The first segment is certain at step 3, before the end: later potentials span at most two steps,
    so none of them can favour a segment that has been open since step 0 or 1.

    >>> import numpy as np
    >>> from sklseq.inference import SegmentSpans, segment_closure
    >>> spans = SegmentSpans(*map(np.array, ([5], [0, 2], [0, 3], [0, 2], [2, 4])))
    >>> segment_closure(spans, [[9.0, 0.0], [0.0, 1.0]], np.zeros((2, 2)), max_span=2)
    ([array([[0, 2, 0],
           [2, 4, 1],
           [4, 5, 0]])], [array([3, 4, 4])])
    """
    spans = as_spans(spans)
    check_max_span(spans, max_span)
    scores, transition, ends, rows, limits = checked_scores(
        spans, scores, transition, start, end, max_length
    )
    rule = SegmentRule(transition, *ends, limits, max_span, by_step=rows is not None)
    if max_span is None and not limits.all():
        plan, psi, chain = planned(spans, scores, transition, ends, rows, limits)
        segments, best = best_segments(plan, psi, chain)
        check_segmentations(best)
        return segments, [np.full(len(x), n - 1) for x, n in zip(segments, spans.lengths)]
    answers = list(closures(rule, StepScores.of(spans, scores, rows=rows), spans.lengths))
    return [a for a, _ in answers], [t for _, t in answers]


def check_max_span(spans: Any, max_span: int | None) -> None:
    """Raise a ValueError if a potential spans more than ``max_span`` steps."""
    if max_span is None:
        return
    check_number("max_span", max_span, 1, whole=True)
    length = np.asarray(spans.stop) - np.asarray(spans.start)
    if length.max(initial=0) <= max_span:
        return
    h = int(np.argmax(length > max_span))
    s = int(np.searchsorted(spans.offsets, h, side="right")) - 1
    raise ValueError(
        f"Potential {h - spans.offsets[s]} of sequence {s} spans {length[h]} steps, but none may "
        f"span more than max_span={max_span}: give a larger max_span (for a fitted segmenter, set "
        "max_span_)."
    )


class SegmentRule(NamedTuple):
    """Scores of transitions, and the rule by which segments leave.

    Attributes
    ----------
    transition, start, end : ndarray
    limits : ndarray of shape (n_labels,)
        The longest segment of each label; 0: any length.
    max_span : int or None
        The most steps that a potential spans; None only if all labels have a limit.
    closes : bool
        Whether segments leave when all survivors contain them.
    most : int
        The most steps that may be pending: then the first segment of the best segmentation leaves.
        -1: any number.
    by_step : bool
        Whether steps have transition scores of their own.
    """

    transition: np.ndarray
    start: np.ndarray
    end: np.ndarray
    limits: np.ndarray
    max_span: int | None
    closes: bool = True
    most: int = -1
    by_step: bool = False

    def beam(self):
        longest = int(self.limits.max())
        apart = longest if self.limits.all() else max(longest, self.max_span)
        scores = (np.ascontiguousarray(x, dtype=np.float64) for x in (self.transition, self.start))
        # A segment of any length can last for ever, unless it is cut after so many steps.
        endless = (self.limits == 0) & (self.most < 0)
        lasting = lasting_labels(self.transition, endless)
        return _online.SegmentBeam(
            *scores, self.limits, lasting, apart, self.closes, self.most, self.by_step
        )


class StepScores(NamedTuple):
    """Potentials of all steps in order: by the step at which they stop, then by falling start.

    Attributes
    ----------
    cuts : ndarray of shape (n_steps + 1,)
        Potentials of each step.
    kind, start, row : ndarray of shape (n_potentials,)
    scores : ndarray of shape (n_rows, n_labels)
        Potential p has the scores ``scores[row[p]]``.
    rows : RowTransitions or None
        Scores of transitions into segments that start at each step.
    """

    cuts: np.ndarray
    kind: np.ndarray
    start: np.ndarray
    row: np.ndarray
    scores: np.ndarray
    rows: RowTransitions | None

    @classmethod
    def of(
        cls, spans: Any, scores: np.ndarray, row: np.ndarray | None = None,
        rows: RowTransitions | None = None,
    ) -> Self:  # fmt: skip
        """Those of potentials with ``scores[row]``; by default, ``scores``."""
        first = np.cumsum(spans.lengths) - spans.lengths
        step = np.repeat(first, np.diff(spans.offsets)) + spans.stop - 1
        length = spans.stop - spans.start
        order = np.argsort(step * (length.max(initial=0) + 1) + length, kind="stable")
        counts = np.bincount(step, minlength=int(spans.lengths.sum()))
        return cls(
            offsets_of(counts), spans.kind.astype(np.int8)[order],
            spans.start[order], order if row is None else row[order], scores, rows,
        )  # fmt: skip

    def part(self, a: int, b: int, base: int = 0) -> tuple:
        """Steps a to b - 1, as arguments of ``SegmentBeam.push``; ``base`` is added to starts."""
        cells = slice(self.cuts[a], self.cuts[b])
        into = None if self.rows is None else self.rows.take(np.arange(a, b))
        scores = self.scores[self.row[cells]].astype(np.float64, copy=False)
        return self.kind[cells], self.start[cells] + base, scores, self.cuts[a : b + 1], into


def closures(
    rule: SegmentRule, steps: StepScores, lengths: np.ndarray, held: int = 0
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Segments of each sequence, and the newest known step when each of them left.

    ``held``: number of last steps that become known only at the end of their sequence.
    """
    beam, first = rule.beam(), 0
    for s, n in enumerate(lengths.tolist()):
        beam.reset()
        left, known = [np.zeros((0, 4), dtype=np.int64)], max(0, n - held)
        for a in range(0, known, BLOCK):
            part = steps.part(first + a, first + min(a + BLOCK, known))
            left.append(allowed(beam.push(*part, True), s))
        allowed(beam.push(*steps.part(first + known, first + n), False), s)
        left, rest = np.concatenate(left), allowed(beam.best(rule.end, False), s)
        if rule.most < 0 and n and not len(rest) and rule.end[left[-1, 2]] == -np.inf:
            allowed(None, s)  # all segments were certain before the end, which forbids the last
        times = np.append(left[:, 3], np.full(len(rest), n - 1))
        yield np.concatenate([left[:, :3], rest]), times
        first += n


def allowed(segments: np.ndarray | None, s: int = 0) -> np.ndarray:
    """Return the answer of a beam of sequence s; raise if no segmentation is allowed."""
    if segments is None:
        check_segmentations(np.array([-np.inf]), s)
    return segments

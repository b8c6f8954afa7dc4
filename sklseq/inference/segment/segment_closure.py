"""Online segmentation: the step at which each segment of the best segmentation is certain."""

from __future__ import annotations

import heapq
import numbers
from typing import Any

import numpy as np

from sklseq.data.segment_potentials import SegmentPotentials
from sklseq.data.types import ArrayLike
from sklseq.inference.chain.row_transitions import TransitionLike
from sklseq.inference.segment.segmentations import (
    BestPrefixes,
    SegmentSpans,
    as_spans,
    check_segmentations,
    checked_input,
)


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
    far, one for each way in which the sequence may go on: the last segment ends here or stays
    open, and the sequence ends or continues. Potentials that stop later span at most ``max_span``
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
    Cost O(n · max_span · n_labels + n · n_labels²) for n steps, and O(survivors) for each step to
    find their last common ancestor.

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
    plan, psi, chain = checked_input(spans, scores, transition, start, end, max_length, max_span)
    answers = [closure_of_sequence(plan, s, psi, chain) for s in range(plan.n_sequences)]
    return [a for a, _ in answers], [t for _, t in answers]


def check_max_span(spans: Any, max_span: int | None) -> None:
    """Raise a ValueError if a potential spans more than ``max_span`` steps."""
    if max_span is None:
        return
    if not isinstance(max_span, numbers.Integral) or max_span < 1:
        raise ValueError(f"max_span must be an integer of at least 1; got {max_span!r}.")
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


def closure_of_sequence(plan, s: int, psi: np.ndarray, chain) -> tuple[np.ndarray, np.ndarray]:
    """Best segmentation of sequence s and the steps at which its segments are certain.

    ``psi`` are the scores of all cells of ``plan``.
    """
    n, L = int(plan.steps[s + 1] - plan.steps[s]), plan.n_labels
    if n == 0:
        return np.zeros((0, 3), dtype=np.int64), np.zeros(0, dtype=np.int64)
    best = BestPrefixes(plan, psi[plan.cells[s] : plan.cells[s + 1]], chain, s, s + 1)
    check_segmentations(best.scores, s)
    alpha, origin = best.alpha, best.origin
    segments = best.as_list()[0][::-1].copy()
    # before[e, y]: best label of the segment that ends at e if a segment of label y follows.
    before = np.zeros((n + 1, L), dtype=np.int64)
    first = int(plan.steps[s])
    for e in range(1, n):
        before[e] = (alpha[e - 1, :L, None] + chain.into(np.array([first + e]))[0]).argmax(axis=0)
    starts = best.best_start[:, :L].astype(np.int64)

    def parent(node: int) -> int:
        # Node e · L + y is the best prefix whose last segment ends at e with label y. Its parent is
        # the prefix without that segment, or 0 if the prefix is empty.
        e, y = divmod(node, L)
        start = int(starts[e - 1, y])
        return start * L + int(before[start, y]) if start else 0

    times = np.full(len(segments), n - 1)
    if not plan.apart:
        return segments, times
    done, shared = 0, 0
    steps = plan.step_states[plan.steps[s] : plan.steps[s + 1] + 1] - plan.states[s]
    for e in range(1, n):
        # Survivors of step e: prefixes with an open segment, and those whose segment ends here.
        a, b = steps[e], steps[e + 1]
        v, y = np.nonzero(best.G[a:b, :L] > -np.inf)
        begun = origin[a + v, y].astype(np.int64)
        nodes = set(np.where(begun > 0, begun * L + before[begun, y], 0)[begun < e].tolist())
        nodes.update((e * L + np.flatnonzero(alpha[e - 1, :L] > -np.inf)).tolist())
        shared = max(shared, _common_ancestor(nodes, parent))
        while done < len(segments) and segments[done, 1] <= shared // L:
            times[done] = e - 1
            done += 1
    return segments, times


def _common_ancestor(nodes: set[int], parent) -> int:
    # Last common ancestor: the latest node is replaced by its parent until one node is left.
    heap = [-node for node in nodes]
    heapq.heapify(heap)
    while len(heap) > 1:
        node = -heapq.heappop(heap)
        if -heap[0] != node:
            heapq.heappush(heap, -parent(node))
    return -heap[0]

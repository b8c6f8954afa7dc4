"""Reference recursions over segmentations: specification and test oracle of the kernels.

They follow the published equations or brute force, for one sequence in float64 and in the log
domain. ``spans`` is (kind, start, stop), ``scores`` has shape (n_potentials, n_labels).
``_segments.pyx`` must agree with these functions, and these with enumeration.

S. Sarawagi (2006), "Efficient inference on sequence segmentation models", Proc. 23rd ICML.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy import sparse

from sklseq.data.segment_potentials import SegmentPotentials
from tests.reference import can_go_on, log_sum

NEVER = 1 << 60  # the stop of a segment that has not ended


def is_active(kind, start, stop, i: int, j: int) -> np.ndarray:
    """Mask of the potentials that are active for the segment [i, j)."""
    begins = np.where(kind & 2, i <= start, i == start)
    ends = np.where(kind & 1, j >= stop, j == stop)
    return begins & ends


def every_segment(X: SegmentPotentials, max_length: int) -> SegmentPotentials:
    """X in the form used before this paper: one potential for each segment.

    Every segment [i, j) of up to ``max_length`` steps becomes one exact potential. Its features are
    the sum of those of all potentials that are active for it: in Equation 2,
    θ(i, j, y) = rows(i, j) · W(:, y). A segmenter with ``max_segment_length=max_length`` is the
    same model on X and on the result.
    """
    sequences = []
    for x in X:
        ends = [(i, j) for j in range(1, x.n_steps + 1) for i in range(max(0, j - max_length), j)]
        start, stop = np.array(ends, dtype=np.int64).reshape(-1, 2).T
        active = is_active(x.kind, x.start, x.stop, start[:, None], stop[:, None])
        rows = sparse.csr_matrix(active, dtype=np.float64) @ x.rows
        sequences.append((x.n_steps, np.zeros_like(start), start, stop, rows))
    return SegmentPotentials.from_list(sequences, X.feature_names)


def reach_back(start, stop, n: int) -> np.ndarray:
    """A(0), …, A(n) of §3.1, Equation 4, as in the paper: positions from 1, 0 for none.

    A(i) is the largest j <= i such that all potentials that start at or before j end at or before
    i; the paper's words, not its equation, exclude j = i. In the paper a potential of span [start,
    stop) runs from ``start + 1`` to ``stop``.
    """
    A = np.zeros(n + 1, dtype=int)
    for i in range(1, n + 1):
        late = start[stop > i] + 1
        A[i] = min(i, late.min(initial=n + 1) - 1)
    return A


def reach_forward(start, stop, n: int) -> np.ndarray:
    """B(1), …, B(n + 1) of §3.1, Equation 7, at their indices; n + 1 where there is none.

    B(i) is the smallest j >= i such that all potentials that end at or after j start at or after i.
    Kernels need neither B nor Equations 6 and 8: they differentiate the forward recursion.
    """
    B = np.zeros(n + 2, dtype=int)
    for i in range(1, n + 2):
        B[i] = max(i, stop[start + 1 < i].max(initial=0) + 1)
    return B


def forward_full(n, kind, start, stop, scores, transition, first, max_length=None) -> np.ndarray:
    """log α of Equations 1 and 2 by the plain recursion in O(n L), shape (n + 1, n_labels).

    log α_e(y) = log Σ_{e - L <= s < e} exp(log α^_s(y) + θ(s, e, y)), α^_s = α_s · exp(transition).
    """
    log_alpha = np.full((n + 1, len(transition)), -np.inf)
    for e in range(1, n + 1):
        terms = []
        for s in range(0 if max_length is None else max(0, e - max_length), e):
            theta = scores[is_active(kind, start, stop, s, e)].sum(axis=0)
            terms.append(_entered(log_alpha, s, transition, first) + theta)
        log_alpha[e] = log_sum(terms, axis=0)
    return log_alpha


def _entered(log_alpha, s: int, transition, first) -> np.ndarray:
    if s == 0:
        return np.asarray(first, dtype=float)
    return log_sum(log_alpha[s][:, None] + transition, axis=0)


def forward_succinct(n, kind, start, stop, scores, transition, first):
    """(log α, log αᴾ) of Equation 5 and Algorithm 1, shape (n + 1, n_labels) each.

    Indices are those of the paper. By Equations 3 and 4 a segment's potentials are a product of
    those that it has got before i and of those that it gets at i:

    α_i = αᴾ_{i-1} a_i + Σ_{A(i-1) < i' <= i} α^_{i'} θ_{i':i}, where a_i is what all starts up to
    A(i - 1) get at i alike: the potentials that stop at i with an open start beyond A(i - 1).
    """
    A, L = reach_back(start, stop, n), len(transition)
    log_alpha, log_p = np.full((2, n + 1, L), -np.inf)
    for i in range(1, n + 1):
        new = (stop == i) & (kind & 2 > 0)  # none that starts at A(i - 1) or before stops at i
        a = scores[new].sum(axis=0)
        a_on = scores[new & (kind & 1 > 0)].sum(axis=0)
        terms, on = [log_p[i - 1] + a], [log_p[i - 1] + a_on]
        for i1 in range(A[i - 1] + 1, i + 1):  # segments from position i1, half-open from i1 - 1
            enter = _entered(log_alpha, i1 - 1, transition, first)
            active = is_active(kind, start, stop, i1 - 1, i)
            terms.append(enter + scores[active].sum(axis=0))
            if i1 <= A[i]:
                # θ_{i1:>i}: all that are open at the end and stop at or before i.
                on.append(enter + scores[active & (kind & 1 > 0)].sum(axis=0))
        log_alpha[i] = log_sum(terms, axis=0)
        log_p[i] = log_sum(on, axis=0)
    return log_alpha, log_p


def online_segments(n, spans, scores, transition, rule, held=0) -> tuple[np.ndarray, list[int]]:
    """Segments of a sequence whose steps become known one by one, and when each of them left.

    After each step all survivors are found anew. If ``rule.closes``, the segments that all of them
    begin with leave (Narasimhan et al. 2006, §3). While more than ``rule.most`` steps are pending,
    the first segment of the best segmentation that can go on leaves. The steps after a segment that
    left are a sequence of their own. ``transition`` has shape (n, n_labels, n_labels), ``rule`` is
    a ``SegmentRule``, and the last ``held`` steps become known together.
    """
    left, times = [], []
    first, end, limits, max_span = rule.start, rule.end, rule.limits, rule.max_span
    apart = max(limits) if all(limits) else max(*limits, max_span)

    def position():
        return left[-1][1] if left else 0

    def survivors(stop):
        initial = transition[left[-1][1], left[-1][2]] if left else first
        opened, complete = _prefixes(position(), stop, spans, scores, transition, initial, limits)
        ways = _ways(opened, stop, spans, scores, limits, apart)
        if not complete and not ways:
            raise ValueError("no segmentation is allowed")
        return complete, [path for _, path in [*complete.values(), *ways.values()]]

    def leave(segments, now):
        left.extend(segments)
        times.extend([now] * len(segments))

    for stop in range(1, n + 1 - held):
        together = itertools.takewhile(lambda ways: len(set(ways)) == 1, zip(*survivors(stop)[1]))
        leave([ways[0] for ways in together] if rule.closes else [], stop - 1)
        while 0 <= rule.most < stop - position():
            complete = going_on(survivors(stop)[0], rule.transition)
            leave(_best(complete, np.zeros_like(end))[:1], stop - 1)
    if n > position():
        leave(_best(survivors(n)[0], end), n - 1)
    return np.array(left, dtype=np.int64).reshape(-1, 3), times


def going_on(complete: dict, transition) -> dict:
    """Those after whose last label others can follow for ever; all of them if there is none."""
    goes_on = can_go_on(transition)
    return {y: found for y, found in complete.items() if goes_on[y]} or complete


def _prefixes(first, stop, spans, scores, transition, initial, limits):
    # Best segmentations (score, segments) of steps from ``first`` on: before an open segment, by
    # its start and label; and of all steps up to ``stop``, by the label of the last segment.
    L, complete = len(limits), {}
    opened = {(first, y): (initial[y], ()) for y in range(L)}
    for e in range(first + 1, stop + 1):
        complete = {}
        for (s, y), (score, path) in opened.items():
            score = score + scores[is_active(*spans, s, e), y].sum()
            allowed = score > -np.inf and (limits[y] == 0 or e - s <= limits[y])
            if allowed and (y not in complete or score >= complete[y][0]):  # later start
                complete[y] = score, (*path, (s, e, y))
        for y in range(L if e < stop else 0):
            for i in sorted(complete):
                score = complete[i][0] + transition[e][i, y]
                if (e, y) not in opened or score > opened[e, y][0]:
                    opened[e, y] = score, complete[i][1]
    return opened, complete


def _ways(opened, stop, spans, scores, limits, apart) -> dict:
    # The best prefixes with an open segment: later potentials distinguish starts of the last
    # ``apart`` steps only.
    ways: dict = {}
    for (s, y), (score, path) in opened.items():
        score = score + scores[is_active(*spans, s, NEVER) & (spans[2] <= stop), y].sum()
        way = y, s if stop - s < apart else None
        allowed = score > -np.inf and (limits[y] == 0 or stop - s < limits[y])
        if allowed and (way not in ways or score >= ways[way][0]):
            ways[way] = score, path
    return ways


def _best(complete, end) -> tuple:
    ways = [(score + end[y], -y) for y, (score, _) in complete.items()]
    score, label = max(ways, default=(-np.inf, 0))
    if score == -np.inf:
        raise ValueError("no segmentation is allowed")
    return complete[-label][1]

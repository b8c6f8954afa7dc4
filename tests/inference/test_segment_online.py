"""Segments that leave while steps become known: against survivors found anew after each step."""

import pickle
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklseq.inference import segment_closure, segment_viterbi
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.inference.segment.segment_closure import SegmentRule, StepScores, closures
from sklseq.inference.segment.segmentations import SegmentSpans
from tests.segment_reference import online_segments

CASES = range(200)


def problem(seed):
    """(spans, scores, transitions, rule, held); scores are small integers: ties are frequent."""
    rng = np.random.default_rng(seed)
    L, S, longest = int(rng.integers(1, 4)), int(rng.integers(1, 4)), int(rng.integers(1, 5))
    lengths = rng.integers(0, 16, S)
    largest, forbid = rng.choice([1, 3, 30]), rng.choice([0, 0, 0.1])

    def draw(*shape):
        drawn = rng.integers(-largest, largest + 1, shape).astype(float)
        return np.where(rng.random(shape) < forbid, -np.inf, drawn)

    sequences = []
    for n in lengths.tolist():
        start = rng.integers(0, max(n, 1), rng.integers(0, 4 * n + 1))
        stop = np.minimum(start + rng.integers(1, longest + 1, len(start)), n)
        sequences.append((rng.integers(0, 4, len(start)), start, stop))
    counts = [len(kind) for kind, _, _ in sequences]
    columns = map(np.concatenate, zip(*sequences))
    spans = SegmentSpans(lengths, np.cumsum([0, *counts]), *columns)
    by_step = bool(rng.random() < 0.4)
    shared, rows = draw(L, L), draw(int(lengths.sum()), L, L)
    if not by_step:
        rows[:] = shared
    limits = rng.integers(0, 5, L) * rng.integers(0, 2) + rng.integers(0, 2)
    most = int(rng.choice([-1, 0, 1, 2, 5, 9]))
    closes = bool(rng.random() < 0.7) or most < 0
    rule = SegmentRule(shared, draw(L), draw(L), limits, longest, closes, most, by_step)
    return spans, draw(len(spans.kind), L), rows, rule, int(rng.integers(0, 3))


def problem_with_a_dead_end(seed):
    """A problem of finite scores, with a label that nothing follows, and one that it alone may."""
    spans, scores, rows, rule, held = problem(seed)
    L = len(rule.start)
    dead, (shared, start, end) = seed % L, (np.nan_to_num(x, neginf=-9) for x in rule[:3])
    shared[dead, : L if L > 1 else 0] = -np.inf
    shared[dead - 1, np.arange(L) != dead if L > 2 else []] = -np.inf
    rows = np.tile(shared, (len(rows), 1, 1))
    rule = rule._replace(
        transition=shared, start=start, end=end, limits=0 * rule.limits, by_step=seed % 2 == 0
    )
    return spans, np.nan_to_num(scores, neginf=-9), rows, rule, held


def steps_of(spans, scores, rows):
    return StepScores.of(spans, scores, rows=RowTransitions.from_dense(rows))


def expected_of(spans, scores, rows, rule, held):
    """The answer of the reference for each sequence, or None."""
    first = np.cumsum(spans.lengths) - spans.lengths
    answers = []
    for s, n in enumerate(spans.lengths.tolist()):
        own = slice(spans.offsets[s], spans.offsets[s + 1])
        args = n, [x[own] for x in spans[2:]], scores[own], rows[first[s] :]
        try:
            answers.append(online_segments(*args, rule, held))
        except ValueError:
            return [*answers, None]
    return answers


@pytest.mark.parametrize("block", range(8))
def test_segments_and_times_are_those_of_the_reference(block):
    found, failed = 0, 0
    for seed in CASES[block::8]:
        spans, scores, rows, rule, held = problem(seed)
        answers = closures(rule, steps_of(spans, scores, rows), spans.lengths, held)
        for s, expected in enumerate(expected_of(spans, scores, rows, rule, held)):
            if expected is None:
                failed += 1
                with pytest.raises(ValueError, match=f"Sequence {s} has no allowed segmentation"):
                    next(answers)
                break
            segments, times = next(answers)
            assert_array_equal(segments, expected[0], str(seed))
            assert_array_equal(times, expected[1], str(seed))
            found += len(times)
    assert found > 100
    assert failed > 0


def test_a_segment_that_has_to_leave_can_be_followed():
    found = 0
    for seed in CASES:
        spans, scores, rows, rule, held = problem_with_a_dead_end(seed)
        answers = closures(rule, steps_of(spans, scores, rows), spans.lengths, held)
        expected = expected_of(spans, scores, rows, rule, held)
        for (segments, times), (path, left) in zip(answers, expected, strict=True):
            assert_array_equal(segments, path, str(seed))
            assert_array_equal(times, left, str(seed))
            found += len(times)
    assert found > 1000


def test_segments_that_are_committed_can_be_followed():
    rule = SegmentRule(
        np.array([[0.0, 0.0], [-np.inf, -np.inf]]), np.array([0.0, 1.0]), np.zeros(2),
        np.ones(2, dtype=np.int64), 1,
    )  # fmt: skip
    beam = rule.beam()
    none = np.zeros(0, dtype=np.int64)
    beam.push(none.astype(np.int8), none, np.zeros((0, 2)), np.zeros(2, dtype=np.int64), None, True)
    assert beam.best(rule.end, False).tolist() == [[0, 1, 1]]
    assert beam.best(None, False).tolist() == [[0, 1, 0]]


def pushes(beam, steps, n, rng):
    """Push steps 0 to n - 1 in parts of random size; return what left, None if a part fails."""
    left, a = [], 0
    while a < n:
        b = int(rng.integers(a, n + 1))
        found = beam.push(*steps.part(a, b), True)
        if found is None:
            return None
        left += found.tolist()
        a = b
    return left


def test_parts_of_any_size_and_pickled_states_give_the_same():
    found = 0
    for seed in CASES:
        spans, scores, rows, rule, _ = problem(seed)
        steps, n, rng = (
            steps_of(spans, scores, rows),
            int(spans.lengths[0]),
            np.random.default_rng(0),
        )
        whole = rule.beam().push(*steps.part(0, n), True)
        beam, half = rule.beam(), n // 2
        first = pushes(beam, steps, half, rng)
        if whole is None or first is None:
            continue
        other = rule.beam()
        other.restore(pickle.loads(pickle.dumps(beam.state())))
        for twin in (beam, other):
            rest = twin.push(*steps.part(half, n), True)
            assert [*first, *rest.tolist()] == whole.tolist()
            found += len(rest)
    assert found > 200


def test_a_part_without_a_segmentation_changes_nothing():
    failures = later = 0
    for seed in CASES:
        spans, scores, rows, rule, _ = problem(seed)
        steps, n = steps_of(spans, scores, rows), int(spans.lengths[0])
        beam, half, none = rule.beam(), n // 2, np.zeros(0, dtype=np.int64)
        if beam.push(*steps.part(0, half), True) is None:
            continue
        twin = rule.beam()
        twin.restore(beam.state())
        # The steps to come as they are, then one that no segment contains, begins in or ends in.
        L, at = len(rule.start), np.full(2, n)
        kind, start, psi, cuts, into = steps.part(half, n)
        part = (
            np.append(kind, [2, 3]).astype(np.int8), np.append(start, at),
            np.append(psi, np.full((2, L), -np.inf), axis=0), np.append(cuts, cuts[-1] + 2),
            np.append(into, np.zeros((1, L, L)), axis=0),
        )  # fmt: skip
        failures += beam.push(*part, True) is None
        free = none.astype(np.int8), none, np.zeros((0, L)), np.zeros(9, dtype=np.int64)
        for known in (steps.part(half, n), (*free, np.zeros((8, L, L)))):
            one, other = beam.push(*known, True), twin.push(*known, True)
            assert (one is None) == (other is None)
            if one is not None:
                assert_array_equal(one, other)
                later += len(one)
        zero = np.zeros(L)
        assert_array_equal(beam.best(zero, True), twin.best(zero, True))
    assert failures > 100
    assert later > 200


def test_a_long_sequence_loses_no_digits():
    rng, n, L = np.random.default_rng(0), 5000, 2
    steps, zero = np.arange(n), np.zeros(L)
    spans = SegmentSpans(np.array([n]), np.array([0, n]), np.full(n, 3), steps, steps + 1)
    scores = rng.integers(-9, 10, (n, L)) * 2.0**-10
    rule = SegmentRule(-4 * np.eye(L)[::-1] * 2.0**-10, zero, zero, np.zeros(L, dtype=int), 1)
    answers = [
        next(closures(rule, StepScores.of(spans, scores + all_labels), spans.lengths))
        for all_labels in (0.0, 2.0**40)
    ]
    assert len(answers[0][0]) > 1000
    for one, other in zip(*answers):
        assert_array_equal(one, other)


@pytest.mark.parametrize("most", [-1, 50])
def test_memory_is_that_of_the_pending_steps(most):
    rng = np.random.default_rng(0)
    L, n, longest = 3, 6000, 4
    start = np.repeat(np.arange(n), 2)
    stop = np.minimum(start + rng.integers(1, longest + 1, 2 * n), n)
    kind = rng.integers(0, 4, 2 * n)
    spans = SegmentSpans(np.array([n]), np.array([0, 2 * n]), kind, start, stop)
    steps = StepScores.of(spans, 3 * rng.normal(size=(2 * n, L)))
    zero = np.zeros(L)
    beam = SegmentRule(np.zeros((L, L)), zero, zero, np.zeros(L, int), longest, most=most).beam()
    sizes = [beam.nbytes for k in range(n) if beam.push(*steps.part(k, k + 1), True) is not None]
    assert len(sizes) == n
    assert max(sizes) < 100_000


@pytest.mark.thread_unsafe(reason="measures processor time")
def test_the_cost_of_a_push_does_not_grow_with_the_steps_that_wait():
    n, L = 20_000, 8
    steps, zero = np.arange(n), np.zeros(L)
    spans = SegmentSpans(np.array([n]), np.array([0, n]), np.ones(n, int), steps, steps + 1)
    steps = StepScores.of(spans, np.zeros((n, L)))
    apart = np.where(np.eye(L), 0.0, -np.inf)  # segmentations that never meet
    beam, least = SegmentRule(apart, zero, zero, np.zeros(L, int), 3, most=n).beam(), []
    for pending in (100, n - 100):
        beam.push(*steps.part(beam.n, pending), True)
        times = []
        for k in range(pending, pending + 30):
            start = time.process_time_ns()
            beam.push(*steps.part(k, k + 1), True)
            times.append(time.process_time_ns() - start)
        least.append(min(times))
    # A copy of 20,000 pending steps takes thirty times as long as a push.
    assert least[1] < 6 * least[0]


def test_sequences_without_a_segmentation_are_refused():
    """Also if all their segments are certain before the end, whose scores forbid the last one."""
    rng, n_refused = np.random.default_rng(0), 0
    for _ in range(200):
        L, n = int(rng.integers(1, 4)), int(rng.integers(1, 6))
        scores = [np.where(rng.random(shape) < 0.4, -np.inf, 0.0) for shape in ((L, L), L, L)]
        none = np.zeros(0, dtype=int)
        spans = SegmentSpans(np.array([n]), np.array([0, 0]), none, none, none)
        args = spans, np.zeros((0, L)), scores[0]
        rest = {"start": scores[1], "end": scores[2], "max_length": 1}
        try:
            expected = segment_viterbi(*args, **rest)[0]
        except ValueError:
            n_refused += 1
            with pytest.raises(ValueError, match="Sequence 0 has no allowed segmentation"):
                segment_closure(*args, **rest)
        else:
            assert len(segment_closure(*args, **rest)[0][0]) == len(expected[0])
    assert 20 < n_refused < 180

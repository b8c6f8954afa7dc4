"""Segmentations whose transitions depend on the step where a segment starts, by enumeration."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq.inference import (
    RowTransitions,
    SegmentSpans,
    segment_closure,
    segment_forward_backward,
    segment_nbest,
    segment_sample,
    segment_viterbi,
)
from sklseq.inference.segment import segmentations as programs
from tests.inference.test_row_transitions import random_rows
from tests.inference.test_segment_inference import (
    EXACT,
    check_all,
    enumerate_segmentations,
    one,
    random_problem,
    spans_of,
)


def problem_of_rows(seed, forbid=0.0, unit=1.0, dtype="float64", **options):
    """A problem of `random_problem` with entries at most steps."""
    n, spans, scores, transition, start, end = random_problem(seed, forbid=forbid, **options)
    rng = np.random.default_rng(seed)
    rows = random_rows(rng, n, len(transition), dtype, unit, forbid)
    return n, spans, unit * scores, rows, unit * start, end


def check_expectations(problem, limits=None, weight=1.5):
    """Expected transitions of all entries, times the weight of the sequence."""
    n, spans, scores, rows, start, end = problem
    every, values, log_z, _ = enumerate_segmentations(*problem, limits=limits)
    if log_z == -np.inf:
        return
    wanted = np.zeros(rows.shape)
    for segments, p in zip(every, np.exp(values - log_z)):
        for (_, _, y), (i, _, z) in itertools.pairwise(segments):
            wanted[i, y, z] += weight * p
    rows = rows.with_expected()
    options = {"start": start, "end": end, "max_length": limits, "weights": [weight]}
    answer = segment_forward_backward(one(n, spans), scores, rows, **options)
    row = np.repeat(np.arange(n), np.diff(rows.indptr))
    assert_allclose(rows.expected, wanted[row, rows.i, rows.j], rtol=1e-9, atol=1e-9)
    assert_allclose(answer.transition, wanted.sum(axis=0), rtol=1e-9, atol=1e-9)


FORMS = {
    "all kinds": {},
    "tokens": {"token_level": True},
    "long": {"n": 5, "L": 2, "n_potentials": 30},
}


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("forbid", [0, 0.15])
@pytest.mark.parametrize("form", FORMS)
def test_every_question_equals_enumeration(form, forbid, dense):
    for seed in range(5):
        check_rows(seed, form, forbid, ("float64", "float32")[seed % 2], dense)


def check_rows(seed, form, forbid, dtype, dense):
    """Every question, and the expectation of every entry."""
    problem = problem_of_rows(seed, forbid, dtype=dtype, **FORMS[form])
    check_expectations(problem)
    if dense:
        problem = (*problem[:3], problem[3].toarray(), *problem[4:])
    check_all(problem)


@pytest.mark.parametrize("seed", range(4))
def test_longest_lengths(seed):
    problem = problem_of_rows(seed, L=2, n=5)
    limits = np.array([(1, 0), (0, 3), (2, 1), (3, 3)][seed % 4])
    check_all(problem, limits=limits)
    check_expectations(problem, limits)


@pytest.mark.parametrize("unit", [30, 900])
def test_log_domain(unit):
    # Exponentials of scores of 900 do not exist.
    for seed in range(6):
        n, spans, scores, rows, start, end = problem = problem_of_rows(seed, unit=unit, n=4)
        check_expectations(problem)
        ends = {"start": start, "end": end}
        _, values, log_z, (marginals, _, _, _) = enumerate_segmentations(*problem)
        answer = segment_forward_backward(one(n, spans), scores, rows, **ends)
        assert_allclose(answer.log_z, [log_z], rtol=1e-12)
        assert_allclose(answer.potentials, marginals, atol=1e-9)
        assert_allclose(segment_viterbi(one(n, spans), scores, rows, **ends)[1], [values.max()])


def random_set(seed, L, lengths, unit=1.0, tokens=False):
    rng = np.random.default_rng(seed)
    sequences = []
    for n in lengths:
        potentials = [(int(k), t, t + 1) for t in range(n) for k in rng.permutation(4)[:2]]
        if not tokens:
            potentials += [(0, t, t + 2) for t in range(n - 1)]
        sequences.append((n, potentials))
    spans = spans_of(*sequences)
    rows = random_rows(rng, int(np.sum(lengths)), L, "float64", unit, 0.05 if L > 2 else 0)
    return spans, unit * rng.normal(size=(len(spans.kind), L)), rows


@pytest.mark.parametrize("unit", [1, 40, 800])
@pytest.mark.parametrize("L", [2, 4, 9, 17])
def test_scaled_arithmetic_equals_logarithms(L, unit, monkeypatch):
    spans, scores, rows = random_set(L, L, [30, 0, 1, 12], unit)
    weights, scaled = np.array([1, 2, 0.5, 3]), rows.with_expected()
    answer = segment_forward_backward(spans, scores, scaled, weights=weights)
    monkeypatch.setattr(
        programs.SegmentTransitions, "_exponentiate", lambda self: setattr(self, "is_normal", False)
    )
    monkeypatch.setattr(programs.SegmentTransitions, "E", 0, raising=False)
    logs = rows.with_expected()
    exact = segment_forward_backward(spans, scores, logs, weights=weights)
    for a, b in zip(answer, exact):
        assert_allclose(a, b, rtol=1e-9, atol=1e-10)
    assert_allclose(scaled.expected, logs.expected, rtol=1e-8, atol=1e-10)
    assert logs.expected.any()


@pytest.mark.parametrize("tokens", [False, True])
def test_steps_without_entries_have_the_shared_scores(tokens):
    spans, scores, rows = random_set(0, 4, [9, 3, 0, 14], tokens=tokens)
    none = RowTransitions(rows.shared, np.zeros(len(rows) + 1), [], [], np.zeros(0))
    one_way, other = (segment_forward_backward(spans, scores, x) for x in (none, rows.shared))
    for a, b in zip(one_way, other):
        assert_allclose(a, b, **EXACT)
    for a, b in zip(*(segment_viterbi(spans, scores, x)[0] for x in (none, rows.shared))):
        assert_array_equal(a, b)


def test_each_sequence_is_answered_as_alone():
    lengths = [5, 0, 1, 7]
    spans, scores, rows = random_set(3, 3, lengths)
    first = np.concatenate([[0], np.cumsum(lengths)])
    rows = rows.with_expected()
    answer, expected = segment_forward_backward(spans, scores, rows), np.zeros(0)
    best, nbest = segment_viterbi(spans, scores, rows), segment_nbest(spans, scores, rows, 3)
    for s, n in enumerate(lengths):
        own = slice(*spans.offsets[s : s + 2])
        part = rows.part(first[s], first[s + 1]).with_expected()
        alone = (one(n, [x[own] for x in spans[2:]]), scores[own])
        assert_allclose(answer.log_z[s], segment_forward_backward(*alone, part).log_z[0], **EXACT)
        expected = np.concatenate([expected, part.expected])
        assert_array_equal(best[0][s], segment_viterbi(*alone, part)[0][0])
        assert_allclose(nbest[s][1], segment_nbest(*alone, part, 3)[0][1], **EXACT)
    assert_allclose(rows.expected, expected, **EXACT)


def test_gradient_by_differences():
    n, spans, scores, rows, start, end = problem_of_rows(5, n=5, L=3, n_potentials=12)
    rows, step = rows.with_expected(), 1e-5
    ends = {"start": start, "end": end}
    segment_forward_backward(one(n, spans), scores, rows, **ends)
    for p in range(len(rows.i)):
        values = []
        for sign in (-1, 1):
            moved = rows.score.copy()
            moved[p] += sign * step
            given = RowTransitions(rows.shared, rows.indptr, rows.i, rows.j, moved)
            values.append(segment_forward_backward(one(n, spans), scores, given, **ends).log_z[0])
        assert_allclose(rows.expected[p], (values[1] - values[0]) / (2 * step), atol=1e-8)


def test_samples_have_the_right_frequencies():
    n, spans, scores, _, start, end = random_problem(3, n=4, L=2, n_potentials=12)
    rows = RowTransitions.from_dense(2 * np.random.default_rng(3).normal(size=(n, 2, 2)))
    every, values, log_z, _ = enumerate_segmentations(n, spans, scores, rows, start, end)
    N, p = 20_000, np.exp(values - log_z)
    drawn = segment_sample(one(n, spans), scores, rows, N, start=start, end=end, random_state=0)[0]
    index = {tuple(s): k for k, s in enumerate(every)}
    counts = np.bincount(
        [index[tuple(map(tuple, s.tolist()))] for s in drawn], minlength=len(every)
    )
    # Five standard deviations of each count, for 54 of them: fails by chance less than 1e-4.
    assert (np.abs(counts - N * p) <= 5 * np.sqrt(N * p * (1 - p)) + 1).all()


@pytest.mark.parametrize("seed", range(12))
def test_certain_segments_do_not_depend_on_what_follows(seed):
    rng = np.random.default_rng(seed)
    spans, scores, rows = random_set(seed, 3, [3, 8], unit=3)
    segments, times = segment_closure(spans, scores, rows, max_span=2)
    for one_way, other in zip(segments, segment_viterbi(spans, scores, rows)[0]):
        assert_array_equal(one_way, other)
    row = np.repeat(np.arange(len(rows)), np.diff(rows.indptr))
    for segment, t in zip(segments[1].tolist(), times[1]):
        later = (spans.stop > t + 1)[:, None] * rng.normal(0, 9, scores.shape)
        score = rows.score + (row > t + 3) * rng.normal(0, 9, len(row))
        other = RowTransitions(rows.shared, rows.indptr, rows.i, rows.j, score)
        assert segment in segment_viterbi(spans, scores + later, other)[0][1].tolist()


@pytest.mark.parametrize(
    ("transition", "message"),
    [
        (np.zeros((2, 2, 2)), r"transition must have shape \(3, 2, 2\); got \(2, 2, 2\)"),
        (np.full((3, 2, 2), np.nan), "transition must be finite or -inf"),
        (np.zeros(3), r"or \(n_steps, n_labels, n_labels\)"),
        (RowTransitions(np.zeros((2, 2)), [0, 1], [0], [0], [0.0]), r"got \(1, 2, 2\)"),
        (RowTransitions(np.zeros((2, 2)), [0, 0, 1, 1], [0], [0], [1e308]), "entries has"),
    ],
)
def test_messages(transition, message):
    spans = SegmentSpans(*map(np.array, ([3], [0, 1], [0], [0], [2])))
    for ask in (segment_forward_backward, segment_viterbi, segment_nbest, segment_sample):
        with pytest.raises(ValueError, match=message):
            ask(spans, np.zeros((1, 2)), transition)

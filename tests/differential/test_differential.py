"""All questions about some chains and segmentations; more of them: make trials."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from tests.inference.test_segment_inference import segmentations
from tests.oracles import all_paths
from tests.reference import log_sum

from . import estimator_questions, questions, segment_questions
from .reference import Chain, Segmentation
from .run import Tally, ask
from .structures import POTENTIALS, SCORES, SUPPORTS, chain, long_chain, segmentation

# Cases patch what decides between lists of transitions and the matrix.
pytestmark = pytest.mark.thread_unsafe

# All supports with all recipes of scores; of a second round the chains of few scores: 298 of the
# 302 pairs of labels, lengths, precision, boundaries, lists and blocks of two whole rounds.
N_PAIRS, FEW_SCORES = len(SUPPORTS) * len(SCORES), 500
N_SEGMENTATIONS = 2 * len(POTENTIALS) * len(SCORES)
# Lists and the matrix, scores of 1, 30 and 1000; of many rows, and of some around the 64th;
# filters that underflow to 0 for a label that is allowed.
LONG_CHAINS = [0, 4, 14, 16, 22, 23]


@pytest.fixture
def compare(record_property):
    """Ask, count for the summary of the run, and fail if an answer differs."""

    def compare(cases, table):
        tally = Tally()
        for case in cases:
            ask(case, table, tally)
        counts = (tally.cases, sum(tally.comparisons.values()), len(tally.differences))
        record_property("differential", counts)
        assert not tally.differences, "\n".join(map(str, tally.differences[:20]))

    return compare


def of_one(name, table, n):
    """Numbers of the cases of one entry of a table."""
    return range(list(table).index(name), n, len(table))


@pytest.mark.parametrize("support", SUPPORTS)
def test_chains(support, compare):
    table = questions.QUESTIONS | estimator_questions.QUESTIONS
    second = map(chain, of_one(support, SUPPORTS, 2 * N_PAIRS)[len(SCORES) :])
    few = [case for case in second if case.emission.size <= FEW_SCORES]
    compare([*map(chain, of_one(support, SUPPORTS, N_PAIRS)), *few], table)


@pytest.mark.parametrize("k", LONG_CHAINS)
def test_long_chains(k, compare):
    compare([long_chain(k)], questions.LONG_QUESTIONS | estimator_questions.LONG_QUESTIONS)


@pytest.mark.parametrize("potentials", POTENTIALS)
def test_segmentations(potentials, compare):
    numbers = of_one(potentials, POTENTIALS, N_SEGMENTATIONS)
    compare(map(segmentation, numbers), segment_questions.QUESTIONS)


# ---------------------------------------------------------------------- the slow answers

# Of np.longdouble where it is no more than float64.
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def small(rng, *shape, ties=False, forbid=0.3):
    scores = rng.integers(-1, 2, shape).astype(float) if ties else rng.normal(size=shape)
    scores[rng.random(shape) < forbid] = -np.inf
    return scores


@pytest.mark.parametrize("seed", range(12))
def test_the_slow_answers_about_a_chain_are_those_of_enumeration(seed):
    rng, ties = np.random.default_rng(seed), seed % 3 == 0
    T, L = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    emission, transition = small(rng, T, L, forbid=0.1, ties=ties), small(rng, L, L, ties=ties)
    np.fill_diagonal(transition, 0)
    emission[:, 0] = 0
    start, end = rng.integers(-1, 2, (2, L)).astype(float)
    slow, paths = Chain(emission, transition, start, end), all_paths(T, L)
    scores = np.array([_score(path, emission, transition, start, end) for path in paths])
    p = np.exp(scores - log_sum(scores))
    is_label = paths[:, :, None] == np.arange(L)
    both = is_label[:, :-1, :, None] & is_label[:, 1:, None, :]
    row, pair = rng.normal(size=(T, L, 2)), rng.normal(size=(L, L, 2))
    F = np.array([row[range(T), y].sum(0) + pair[y[:-1], y[1:]].sum(0) for y in paths])
    mean, covariance = slow.moments(row, pair)
    assert_allclose(slow.log_z, log_sum(scores), **CLOSE)
    assert_allclose(slow.marginals, np.tensordot(p, is_label, 1), **CLOSE)
    assert_allclose(slow.pairs, np.tensordot(p, both, 1), **CLOSE)
    assert_allclose(slow.entropy, -(p[p > 0] @ np.log(p[p > 0])), **CLOSE)
    assert_allclose(mean, p @ F, **CLOSE)
    assert_allclose(covariance, (F - p @ F).T @ (p[:, None] * (F - p @ F)), **CLOSE)
    allowed = np.sort(scores[scores > -np.inf])[::-1]
    assert_allclose(slow.best_scores(5), allowed[:5], **CLOSE)
    assert_allclose(slow.score(slow.best), allowed[0], **CLOSE)
    if ties:  # of equal paths, the first when read from the last row
        assert_array_equal(slow.best, min(paths[scores == allowed[0]], key=lambda y: [*y[::-1]]))


def _score(path, emission, transition, start, end) -> float:
    total = start[path[0]] + end[path[-1]] + sum(emission[t, j] for t, j in enumerate(path))
    return total + sum(transition[i, j] for i, j in itertools.pairwise(path))


def test_the_slow_answers_about_no_rows():
    slow, none = Chain(np.zeros((0, 2)), np.zeros((2, 2))), (np.zeros(0, dtype=int),) * 3
    assert (slow.log_z, slow.entropy, slow.best_scores(3).tolist()) == (0, 0, [0])
    slow = Segmentation(0, none, np.zeros((0, 2)), np.zeros((2, 2)))
    assert (slow.log_z, slow.best, slow.best_scores(3).tolist()) == (0, [], [0])


@pytest.mark.parametrize("seed", range(12))
def test_the_slow_answers_about_segmentations_are_those_of_enumeration(seed):
    rng, ties = np.random.default_rng(seed), seed % 3 == 0
    n, L, H = int(rng.integers(1, 6)), int(rng.integers(1, 4)), int(rng.integers(0, 12))
    start = rng.integers(0, n, H)
    spans = (rng.integers(0, 4, H), start, rng.integers(start, n) + 1)
    scores, transition = small(rng, H, L, forbid=0, ties=ties), small(rng, L, L, ties=ties)
    transition[:, 0] = 0
    first, last = rng.integers(-1, 2, (2, L)).astype(float)
    limits = rng.integers(0, 3, L)
    slow = Segmentation(n, spans, scores, transition, first, last, limits)
    every = list(segmentations(n, L, limits))
    values = np.array([_score_of(x, spans, scores, transition, first, last) for x in every])
    p = np.exp(values - log_sum(values))
    is_segment = np.zeros((len(every), *slow.theta.shape))
    moves, ends = np.zeros((len(every), L, L)), np.zeros((len(every), 2, L))
    for k, rows in enumerate(every):
        for i, j, y in rows:
            is_segment[k, i, j, y] = 1
        for one, other in itertools.pairwise(rows):
            moves[k, one[2], other[2]] += 1
        ends[k, [0, 1], [rows[0][2], rows[-1][2]]] = 1
    assert_allclose(slow.log_z, log_sum(values), **CLOSE)
    assert_allclose(slow.segments, np.tensordot(p, is_segment, 1), **CLOSE)
    assert_allclose(slow.moves, np.tensordot(p, moves, 1), **CLOSE)
    assert_allclose(slow.ends, np.tensordot(p, ends, 1), **CLOSE)
    assert_allclose(slow.tokens.sum(axis=1), 1, **CLOSE)
    allowed = np.sort(values[values > -np.inf])[::-1]
    assert_allclose(slow.best_scores(5), allowed[:5], **CLOSE)
    assert_allclose(slow.score(slow.best), allowed[0], **CLOSE)
    if ties:  # from the end: lowest labels, then latest starts
        tied = [x for x, value in zip(every, values, strict=True) if value == allowed[0]]
        assert slow.best == min(tied, key=lambda x: [(y, -i) for i, _, y in reversed(x)])


def _score_of(rows, spans, scores, transition, first, last) -> float:
    total = first[rows[0][2]] + last[rows[-1][2]]
    for kind, start, stop, values in zip(*spans, scores, strict=True):
        for i, j, y in rows:
            begins = i <= start if kind & 2 else i == start
            if begins and (j >= stop if kind & 1 else j == stop):
                total += values[y]
    return total + sum(transition[a[2], b[2]] for a, b in itertools.pairwise(rows))

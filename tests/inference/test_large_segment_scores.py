"""One constant of 10^3 to 10^300 in a step of a segmentation: other answers keep their digits.

The answers are those of enumeration in exact arithmetic.
"""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklseq.inference import (
    SegmentSpans,
    segment_forward_backward,
    segment_nbest,
    segment_sample,
    segment_viterbi,
)
from tests.inference.test_segment_inference import enumerate_segmentations, one, random_problem
from tests.segment_reference import is_active

POWERS = [3, 8, 12, 15, 17, 20, 100, 300]
N, L = 4, 2


class Exact:
    """Potentials of one sequence, each step among them, and all segmentations, best first."""

    def __init__(self, seed, power):
        rng = np.random.default_rng([seed, power])
        start = rng.integers(0, N, 3)
        stop = np.array([rng.integers(a + 1, N + 1) for a in start])
        kind = np.append(np.full(N, 3), rng.integers(0, 4, 3))
        start, stop = np.append(np.arange(N), start), np.append(np.arange(N) + 1, stop)
        scores, transition = rng.normal(size=(N + 3, L)), rng.normal(size=(L, L))
        ends = rng.normal(size=(2, L))
        t, y = rng.integers(N), rng.integers(L)
        places = [scores[t], scores[t, y : y + 1], scores[:N, y], *ends]
        if seed % 6 < 5:
            places[seed % 6][...] += rng.choice([-1, 1]) * 10.0**power
        else:  # a potential that is not active for all segmentations
            kind[N:], stop[N:] = rng.integers(0, 3), start[N:] + 1
            scores[N] -= 10.0**power
        spans = SegmentSpans(np.array([N]), np.array([0, N + 3]), kind, start, stop)
        self.arguments = spans, scores, transition
        self.ends = {"start": ends[0], "end": ends[1]}
        self.counts = {}  # of each segmentation, how often it has each potential of each label
        exact = {}
        for cuts in itertools.product([False, True], repeat=N - 1):
            at = [0, *(i + 1 for i in range(N - 1) if cuts[i]), N]
            for labels in itertools.product(range(L), repeat=len(at) - 1):
                rows = tuple(zip(at[:-1], at[1:], labels))
                active = np.zeros((N + 3, L), dtype=bool)
                for a, b, y in rows:
                    active[:, y] |= is_active(kind, start, stop, a, b)
                terms = [*scores[active], ends[0][labels[0]], ends[1][labels[-1]]]
                terms += [transition[i, j] for i, j in itertools.pairwise(labels)]
                exact[rows], self.counts[rows] = sum(map(Fraction, map(float, terms))), active
        self.all = sorted(exact, key=exact.__getitem__, reverse=True)
        self.apart = {rows: float(exact[self.all[0]] - exact[rows]) for rows in self.all}
        self.scores = np.array([float(exact[rows]) for rows in self.all])
        p = np.exp(-np.array(list(self.apart.values())))
        self.log_z, self.p = self.scores[0] + np.log(p.sum()), p / p.sum()
        own = self.counts[self.all[0]][:N]
        avoided = seed % 6 < 5 or not self.counts[self.all[0]][N].any()
        self.is_moderate = avoided and (scores[:N].max(axis=1) - scores[:N][own] < 1e4).all()


@pytest.mark.parametrize("power", POWERS)
def test_answers_are_those_of_exact_arithmetic(power):
    cases = [x for seed in range(18) if (x := Exact(seed, power)).is_moderate]
    assert len(cases) >= 13
    for exact in cases:
        answer = segment_forward_backward(*exact.arguments, **exact.ends)
        assert_allclose(answer.log_z, exact.log_z, rtol=1e-12)
        counts = np.array([exact.counts[rows] for rows in exact.all])
        wanted = np.einsum("s,spy->py", exact.p, counts)
        assert_allclose(answer.potentials, wanted, atol=1e-10)
        pairs = sum(p * (len(rows) - 1) for p, rows in zip(exact.p, exact.all))
        assert_allclose(answer.transition.sum(), pairs, atol=1e-10)
        (best,), score = segment_viterbi(*exact.arguments, **exact.ends)
        assert exact.apart[tuple(map(tuple, best))] < 1e-10
        assert_allclose(score, exact.scores[0], rtol=1e-13)
        found, scores = segment_nbest(*exact.arguments, 5, **exact.ends)[0]
        apart = [exact.apart[tuple(map(tuple, rows))] for rows in found]
        assert_allclose(apart, list(exact.apart.values())[:5], rtol=1e-12, atol=1e-10)
        assert_allclose(scores, exact.scores[:5], rtol=1e-12, atol=1e-12 + 1e-15 * apart[-1])
        drawn = segment_sample(*exact.arguments, 300, **exact.ends, random_state=0)
        tokens = np.mean(
            [np.repeat(r[:, 2], r[:, 1] - r[:, 0]) for r in map(np.asarray, flat(drawn))], axis=0
        )
        p = answer.tokens[:, 1]
        assert (np.abs(tokens - p) <= 0.01 + 0.3 * np.sqrt(p)).all()


def flat(drawn):
    return [rows for one in drawn for rows in one]


@pytest.mark.parametrize("size", [17, 18, 22, 100, 290])
@pytest.mark.parametrize("seed", range(40))
def test_large_scores_anywhere_give_probabilities(seed, size):
    """Potentials, transitions, starts and ends of 10^size, of which no constant can be taken out.

    Sums are those of one segmentation, and all its own if no other has nearly the best score.
    """
    problem, rng = random_problem([seed, size], n_potentials=5), np.random.default_rng(seed)
    limits = rng.choice([None, 1, 2])
    n, spans, *scores = problem
    for x in scores:
        x[rng.random(x.shape) < 0.3] *= 10.0**size
        x[rng.random(x.shape) < 0.1 * (seed % 2)] = -np.inf
    L = len(scores[1])
    every, values, _, _ = enumerate_segmentations(
        *problem, limits=None if limits is None else [limits] * L
    )
    if values.max() == -np.inf:
        return
    start, end = scores[2:]
    options = {"start": start, "end": end, "max_length": limits}
    answer = segment_forward_backward(one(n, spans), *scores[:2], **options)
    assert_allclose(answer.tokens.sum(axis=1), 1, atol=1e-10)
    assert_allclose([answer.start.sum(), answer.end.sum()], 1, atol=1e-10)
    assert answer.potentials.min() >= 0
    assert answer.potentials.max() <= n + 1e-10
    near = np.flatnonzero(values >= values.max() - 1e-13 * 10.0**size)
    if len(near) == 1:
        best = every[near[0]]
        assert_allclose(
            answer.tokens, np.eye(L)[[y for i, j, y in best for _ in range(i, j)]], atol=1e-10
        )
        counts = [is_active(*spans, i, j)[:, None] * np.eye(L)[y] for i, j, y in best]
        assert_allclose(answer.potentials, sum(counts), atol=1e-10)

"""One constant of 10^3 to 10^300 in a chain: answers about the other rows keep their digits.

The answers are those of enumeration in exact arithmetic.
"""

from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq.inference import (
    decode_online,
    entropy,
    expected_features,
    forward_backward,
    max_marginals,
    nbest,
    sample,
    viterbi,
)
from tests.oracles import ExactChain

POWERS = [3, 8, 12, 15, 17, 20, 40, 100, 300]


@cache
def chain(seed, power):
    """A random chain of 4 rows with one constant; None where all paths have large differences."""
    rng = np.random.default_rng([seed, power])
    T, L, c = 4, 3, rng.choice([-1, 1]) * 10.0**power
    emission, transition = rng.normal(size=(T, L)), rng.normal(size=(L, L))
    start, end = rng.normal(size=(2, L))
    if seed % 3 == 1:
        emission[rng.random((T, L)) < 0.2] = -np.inf
        transition[rng.random((L, L)) < 0.3] = -np.inf
        end[0] = -np.inf
    if seed % 4 == 3:
        transition = rng.normal(size=(T, L, L))
    t, j = rng.integers(T), rng.integers(L)
    place = [emission[t], emission[t, j : j + 1], emission[:, j], start, end]
    place += [transition, transition[t]] if transition.ndim == 3 else [transition]
    place[rng.integers(len(place))][...] += c
    if seed % 5 == 4:
        emission[rng.integers(T)] -= c
    exact = ExactChain(emission, transition, start, end)
    return exact if exact.is_moderate() else None


def assert_close(got, wanted, best):
    # Digits of a score far below the best one are those of their difference.
    with np.errstate(invalid="ignore"):
        apart = np.nan_to_num(np.abs(got - wanted))
    far = np.where(wanted > -np.inf, best - wanted, 0)
    assert (apart <= 1e-12 + 1e-15 * (np.abs(best) + far)).all()
    assert_array_equal(got > -np.inf, wanted > -np.inf)


def test_most_chains_are_moderate():
    assert sum(chain(seed, 17) is not None for seed in range(20)) >= 12


@pytest.mark.parametrize("power", POWERS)
def test_answers_are_those_of_exact_arithmetic(power):
    for exact in (x for seed in range(20) if (x := chain(seed, power)) is not None):
        args, ends = exact.arguments
        answer = forward_backward(*args, **ends)
        assert_allclose(answer.log_z, exact.log_z, rtol=1e-12)
        assert_allclose(answer.marginals, exact.marginals, atol=1e-10)
        assert_allclose(answer.pairwise, exact.pairs, atol=1e-10)
        labels, scores = viterbi(*args, **ends)
        assert exact.apart_of[tuple(labels)] < 1e-10
        assert_close(scores, exact.scores[0], best=exact.scores[0])
        paths, scores = nbest(*args, **ends, n=6)[0]
        apart = [exact.apart_of[tuple(path)] for path in paths]
        assert_allclose(apart, exact.apart[: len(paths)], atol=1e-10, rtol=1e-14)
        assert_close(scores, exact.scores[: len(paths)], best=exact.scores[0])
        assert_allclose(entropy(*args, **ends), exact.entropy, atol=1e-10)
        features = np.random.default_rng(0).random((*args[0].shape, 2))
        found = expected_features(*args, **ends, row_features=features, order=2)
        assert_allclose(found.log_z, exact.log_z, rtol=1e-12)
        mean = np.einsum("tj,tjm->m", exact.marginals, features)
        assert_allclose(found.mean[0], mean, atol=1e-10)
        assert_close(max_marginals(*args, **ends), exact.max_marginals, best=exact.scores[0])
        drawn = sample(*args, **ends, n_samples=400, random_state=0)
        for j in range(3):
            p = exact.marginals[:, j]
            assert (np.abs((drawn == j).mean(axis=0) - p) <= 0.01 + 0.25 * np.sqrt(p)).all()


def has_dead_ends(exact):
    """Whether later rows rule out a label that the rows up to it allow."""
    (emission, transition), ends = exact.arguments
    alive = emission > -np.inf
    alive[0] &= ends["start"] > -np.inf
    for t in range(1, len(alive)):
        alive[t] &= (transition[alive[t - 1]] > -np.inf).any(axis=0)
    return any(set(np.flatnonzero(a)) != set(y) for a, y in zip(alive, exact.paths.T))


@pytest.mark.parametrize("power", [12, 17, 100, 300])
def test_rows_in_blocks(power):
    for exact in filter(None, (chain(seed, power) for seed in range(100))):
        (emission, transition), ends = exact.arguments
        if transition.ndim > 2 or has_dead_ends(exact):
            continue
        for cut in (1, 2, 3):
            blocks = expected_features(iter([emission[:cut], emission[cut:]]), transition, **ends)
            assert_allclose(blocks.log_z, exact.log_z, rtol=1e-12)
            assert_allclose(blocks.entropy, exact.entropy, atol=1e-10)


@pytest.mark.parametrize("power", [8, 17, 300])
@pytest.mark.parametrize("strategy", ["closure", "step"])
def test_online_labels_of_a_row_with_a_constant(power, strategy):
    rng = np.random.default_rng(power)
    emission, transition = rng.normal(size=(30, 3)), rng.normal(size=(3, 3))
    emission[7] = np.round(emission[7])  # differences that a constant leaves
    wanted = decode_online(emission, transition, strategy=strategy).labels
    if power == 8:
        emission[7] += 10.0**power
        assert_array_equal(decode_online(emission, transition, strategy=strategy).labels, wanted)
    emission[7, 1] = 10.0**power
    best = decode_online(emission, transition, strategy="closure").labels
    assert_array_equal(best, viterbi(emission, transition)[0])


@pytest.mark.parametrize("power", [17, 22, 100, 290])
def test_pairs_of_large_scores_anywhere_are_probabilities(power):
    """Scores whose constants cannot be taken out: pair marginals add up to those of labels."""
    for seed in range(100):
        rng = np.random.default_rng([seed, power])
        T, L = rng.integers(2, 6), rng.integers(2, 4)
        given = [rng.normal(size=shape) for shape in ((T, L), (T, L, L)[seed % 2 :], L, L)]
        for x in given:
            x[rng.random(x.shape) < 0.25] *= 10.0**power
        emission, transition, start, end = given
        answer = forward_backward(emission, transition, start=start, end=end)
        assert_allclose(answer.marginals.sum(axis=1), 1, atol=1e-10)
        assert_allclose(answer.pairwise.sum(), T - 1, atol=1e-10)
        assert_allclose(answer.pairwise.sum(axis=1), answer.marginals[:-1].sum(axis=0), atol=1e-10)

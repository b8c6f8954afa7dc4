"""Scores of any magnitude, many labels and a million rows: kernels against the log domain."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq.inference import (
    decode_online,
    forward_backward,
    nbest,
    sample,
    viterbi,
)
from sklseq.inference.kernels import _chain
from tests import reference


def close(scale):
    # Sums of T scores of this size are known to T · scale · 2⁻⁵³, a few of these are lost.
    return {"rtol": 1e-11, "atol": 1e-11 + 3e-14 * scale}


def problem(seed, T, L, scale, forbid):
    rng = np.random.default_rng(seed)
    emission = rng.choice([-scale, scale, 0.0, 1.0], size=(T, L)) + rng.normal(size=(T, L))
    transition = rng.choice([-scale, scale, 0.0], size=(L, L)) + rng.normal(size=(L, L))
    if forbid:
        mask = rng.random((T, L)) < 0.3
        mask[:, 0] = False  # one path is always left
        emission[mask] = -np.inf
        transition[rng.random((L, L)) < 0.3] = -np.inf
        transition[0, 0] = 0.0
    return emission, transition, rng.normal(size=L) * scale, rng.normal(size=L) * scale


@pytest.mark.parametrize("scale", [1e-30, 1e4, 1e8, 1e30, 1e300])
@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("L", [1, 2, 9])
def test_extreme_scores_equal_the_log_domain(scale, forbid, L):
    for seed in range(3):
        emission, transition, start, end = problem(seed, 12, L, scale, forbid)
        ends = {"start": start, "end": end}
        log_z, marginals, pairwise = reference.forward_backward(emission, transition, start, end)
        ours = forward_backward(emission, transition, **ends)
        assert_allclose(ours.log_z, [log_z], **close(scale))
        path, best = reference.viterbi(emission, transition, start, end)
        labels, score = viterbi(emission, transition, **ends)
        assert_allclose(score, [best], **close(scale))
        if scale <= 1e8:  # above, sums are rounded so much that many paths score the same
            assert_array_equal(labels, path)
        found, scores = nbest(emission, transition, n=3, **ends)[0]
        assert_allclose(scores[0], best, **close(scale))
        assert_allclose(
            [reference.score_path(p, emission, transition, start, end) for p in found],
            scores,
            **close(scale),
        )
        if scale <= 1e8:
            assert_allclose(ours.marginals, marginals, atol=1e-10 + 1e-14 * scale)
            assert_allclose(ours.pairwise, pairwise, atol=1e-10 + 1e-13 * scale)
        drawn = sample(emission, transition, random_state=seed, **ends)[0]
        assert np.isfinite(reference.score_path(drawn, emission, transition, start, end))


@pytest.mark.parametrize("spread", [1.0, 60.0, 400.0, 800.0])
def test_the_log_domain_keeps_the_digits_of_small_probabilities(spread):
    # Sums leave out terms below exp(-52), which must not show in probabilities of any size.
    rng = np.random.default_rng(int(spread))
    T, L = 9, 8
    emission, transition = rng.uniform(-spread, 0, (T, L)), rng.uniform(-spread, 0, (L, L))
    log_z, marginals, pairwise = reference.forward_backward(emission, transition)
    psi, sums, log_alpha = emission.copy(), np.zeros((L, L)), np.empty((T, L))
    found = _chain.forward_backward_log(psi, transition, 1.0, sums, log_alpha)
    # Scores of paths, up to 2 · T · spread, are known to 2e-12; subnormal numbers have few digits.
    assert found == pytest.approx(log_z, rel=1e-13)
    assert_allclose(psi, marginals, rtol=1e-10, atol=1e-300)
    assert_allclose(sums, pairwise, rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("scale", [1e4, 1e8])
@pytest.mark.parametrize("strategy", ["step", "window", "closure", "chunk", "viterbi"])
@pytest.mark.parametrize("belief", ["viterbi", "forward"])
def test_extreme_scores_online(scale, strategy, belief):
    window = {"window_size": 3} if strategy == "chunk" else {}
    rule = {"strategy": strategy, "belief": belief, **window}
    for seed in range(3):
        emission, transition, start, end = problem(seed, 15, 4, scale, seed == 1)
        ours = decode_online(emission, transition, start=start, end=end, **rule)
        labels, times = reference.decode_online(emission, transition, start, end, **rule)
        assert_array_equal(ours.labels, labels)
        assert_array_equal(ours.latency + np.arange(15), times)
        if strategy in ("viterbi", "closure"):
            assert_array_equal(ours.labels, viterbi(emission, transition, start=start, end=end)[0])


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_scores_that_are_no_numbers_are_refused(value):
    emission = np.zeros((3, 2))
    emission[1, 1] = value
    for question in (forward_backward, viterbi, nbest, sample, decode_online):
        with pytest.raises(ValueError, match="emission"):
            question(emission, np.zeros((2, 2)))


def test_a_thousand_labels():
    rng = np.random.default_rng(0)
    emission, transition = rng.normal(size=(9, 1000)), rng.normal(size=(1000, 1000))
    log_z, marginals, pairwise = reference.forward_backward(emission, transition)
    ours = forward_backward(emission, transition)
    assert_allclose(ours.log_z, [log_z], rtol=1e-12)
    assert_allclose(ours.marginals, marginals, atol=1e-13)
    assert_allclose(ours.pairwise, pairwise, atol=1e-13)
    path, best = reference.viterbi(emission, transition)
    assert_array_equal(viterbi(emission, transition)[0], path)
    assert_array_equal(decode_online(emission, transition, strategy="closure").labels, path)
    assert_allclose(nbest(emission, transition, n=2)[0][1][0], best, rtol=1e-13)


def test_a_million_rows_decode_as_the_reference():
    # Blocks of a problem that forgets: what is far away decides nothing.
    rng = np.random.default_rng(0)
    emission = rng.normal(size=(1_000_000, 2)) * 1e4
    transition = np.array([[0.0, -3.0], [-2.0, 0.0]])
    labels = viterbi(emission, transition)[0]
    for a in rng.integers(0, 999_000, 5):
        path, _ = reference.viterbi(emission[a : a + 60], transition)
        assert_array_equal(labels[a + 20 : a + 40], path[20:40])
    assert_array_equal(decode_online(emission, transition, strategy="closure").labels, labels)
    log_z, marginals, _ = forward_backward(emission, transition)
    assert np.isfinite(log_z).all()
    assert_allclose(marginals.sum(axis=1), 1, rtol=1e-12)

"""The sequences of a block in step, as for many labels, and where that begins.

The oracle is the NumPy reference, sequence by sequence; the recursions over single sequences,
which ``test_inference.py`` compares with enumeration, are a second one.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq.inference import forward_backward, viterbi
from sklseq.inference.chain import linear_chain as chain
from tests import reference
from tests.oracles import enumerate_chain

# Around the switches, at and beside whole blocks of eight lanes, and well beyond.
LABELS = [4, 5, 8, 9, 15, 16, 17, 22, 41, 50, 64, 101]
MANY = 33
# Sums of up to 101 terms a row over 60 rows, each of rounding error 1e-16 or 6e-8.
TOLERANCE = {
    np.float64: dict(rtol=1e-12, atol=1e-12),
    np.float32: dict(rtol=2e-4, atol=2e-5),
}
RAGGED = [0, 1, 7, 60, 0, 2, 33, 33, 1, 12, 5, 59, 0]


def batch(seed, L, lengths=RAGGED, dtype=np.float64, forbid=0.0, scale=2.0):
    """emission, transition, start, end, offsets; the diagonal is always allowed."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    transition = scale * rng.normal(size=(L, L))
    transition[(rng.random((L, L)) < forbid) & ~np.eye(L, dtype=bool)] = -np.inf
    emission = scale * rng.normal(size=(offsets[-1], L))
    start, end = scale * rng.normal(size=(2, L))
    return [a.astype(dtype) for a in (emission, transition, start, end)] + [offsets]


def by_reference(emission, transition, start, end, offsets, weights):
    log_z, marginals, pairwise = [], [], 0
    for weight, a, b in zip(weights, offsets[:-1], offsets[1:]):
        answer = reference.forward_backward(emission[a:b], transition, start, end)
        log_z.append(answer[0])
        marginals.append(answer[1])
        pairwise = pairwise + weight * answer[2]
    return np.array(log_z), np.concatenate(marginals), pairwise


def check_forward_backward(problem, tolerance, weights=None):
    emission, transition, start, end, offsets = problem
    ours = forward_backward(emission, transition, offsets, start=start, end=end, weights=weights)
    weights = np.ones(len(offsets) - 1) if weights is None else weights
    exact = [np.asarray(a, dtype=np.float64) for a in problem[:4]]
    log_z, marginals, pairwise = by_reference(*exact, offsets, weights)
    assert_allclose(ours.log_z, log_z, **tolerance)
    assert_allclose(ours.marginals, marginals, **tolerance)
    assert_allclose(ours.pairwise, pairwise, **tolerance)


@pytest.mark.parametrize("L", LABELS)
@pytest.mark.parametrize("forbid", [0.0, 0.7])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_forward_backward_equals_the_reference(L, forbid, dtype):
    problem = batch(L, L, dtype=dtype, forbid=forbid)
    weights = np.random.default_rng(L).choice([0.0, 0.3, 1.0, 2.5, 40.0], len(RAGGED))
    check_forward_backward(problem, TOLERANCE[dtype], weights)


@pytest.mark.parametrize("L", LABELS)
@pytest.mark.parametrize("forbid", [0.0, 0.7])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_best_paths_equal_the_reference(L, forbid, dtype):
    # Scores are multiples of 1/4: sums are exact in both types, and ties are frequent.
    problem = [np.round(2 * a) / 4 for a in batch(L, L, forbid=forbid)[:4]]
    offsets = np.concatenate([[0], np.cumsum(RAGGED)])
    emission, transition, start, end = (a.astype(dtype) for a in problem)
    labels, scores = viterbi(emission, transition, offsets, start=start, end=end)
    for s, (a, b) in enumerate(zip(offsets[:-1], offsets[1:])):
        path, score = reference.viterbi(emission[a:b], transition, start, end)
        assert_array_equal(labels[a:b], path)
        assert scores[s] == score


@pytest.mark.parametrize("L", [5, 16, MANY])
@pytest.mark.parametrize("forbid", [0.0, 0.6])
def test_two_rows_equal_enumeration(L, forbid):
    lengths = [2, 1, 2, 2, 0, 2]
    problem = batch(1, L, lengths, forbid=forbid)
    emission, transition, start, end, offsets = problem
    ours = forward_backward(emission, transition, offsets, start=start, end=end)
    labels, best = viterbi(emission, transition, offsets, start=start, end=end)
    total = np.zeros((L, L))
    for s, (a, b) in enumerate(zip(offsets[:-1], offsets[1:])):
        if a == b:
            continue
        paths, scores, log_z, marginals, pairwise = enumerate_chain(
            emission[a:b], transition, start, end
        )
        assert_allclose(ours.log_z[s], log_z, rtol=1e-12)
        assert_allclose(ours.marginals[a:b], marginals, rtol=1e-12, atol=1e-12)
        assert_array_equal(labels[a:b], paths[scores.argmax()])
        assert_allclose(best[s], scores.max(), rtol=1e-12)
        total += pairwise
    assert_allclose(ours.pairwise, total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("n", range(1, 18))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_any_number_of_sequences_in_step(n, dtype):
    # Whole groups of four or eight rows, and every remainder.
    problem = batch(n, MANY + 3, np.random.default_rng(n).integers(0, 9, n), dtype)
    check_forward_backward(problem, TOLERANCE[dtype])
    emission, transition, start, end, offsets = problem
    labels, scores = viterbi(emission, transition, offsets, start=start, end=end)
    for s, (a, b) in enumerate(zip(offsets[:-1], offsets[1:])):
        alone = viterbi(emission[a:b], transition, start=start, end=end)
        assert_array_equal(labels[a:b], alone[0])
        assert scores[s] == alone[1][0]


@pytest.mark.parametrize("L", [6, 22, 40, 67])
@pytest.mark.parametrize("forbid", [0.0, 0.5])
def test_in_step_equals_one_by_one(monkeypatch, L, forbid):
    # More rows than a block, so that the sums of blocks are added, and long sequences.
    lengths = np.random.default_rng(L).integers(0, 200, 40)
    emission, transition, start, end, offsets = batch(L, L, lengths, forbid=forbid)
    weights = np.random.default_rng(1).random(len(lengths))
    answers = []
    for switch in (1, 1000):
        monkeypatch.setattr(chain, "BATCHED_LABELS", switch)
        monkeypatch.setattr(chain, "MANY_LABELS", switch)
        answers.append(
            (
                *forward_backward(
                    emission, transition, offsets, start=start, end=end, weights=weights
                ),
                *viterbi(emission, transition, offsets, start=start, end=end),
            )
        )
    for together, single in zip(*answers):
        assert_allclose(together, single, rtol=1e-11, atol=1e-12)
    assert_array_equal(answers[0][3], answers[1][3])
    assert_array_equal(answers[0][4], answers[1][4])


@pytest.mark.parametrize("forbid", [0.0, 0.5])
def test_sequences_that_underflow_among_others(forbid):
    # Rows times 3000 leave the range of scaled arithmetic: some sequences are redone in the log
    # domain. Neither they nor their neighbours may lose or add a pair.
    problem = batch(3, MANY + 5, np.full(24, 6), forbid=forbid)
    rows = np.random.default_rng(0).choice(len(problem[0]), 20, replace=False)
    problem[0][rows] *= 3e3
    weights = np.random.default_rng(2).random(24) * 3
    # Scores of 1e4 carry rounding errors of 1e-12 into exponents.
    check_forward_backward(problem, dict(rtol=1e-10, atol=1e-10), weights)


@pytest.mark.parametrize("place", range(5))
def test_losing_a_label_that_wins_later_is_noticed(place):
    # As in test_inference.py: label 2 starts 1e-345 behind and carries all of Z in the end.
    L = MANY + 2
    transition = np.full((L, L), -np.inf)
    transition[:2, :2] = 0
    transition[2, 2] = 0
    transition[range(3, L), range(3, L)] = 0
    emission = np.random.default_rng(0).normal(size=(25, L))
    offsets = np.arange(0, 26, 5)
    bad = slice(offsets[place], offsets[place + 1])
    emission[bad] = -np.inf
    emission[bad, :3] = 0
    emission[bad.start, 2] = -345 * np.log(10)
    emission[bad.start + 1 : bad.stop, :2] = -150 * np.log(10)
    ours = forward_backward(emission, transition, offsets)
    log_z, marginals, pairwise = by_reference(emission, transition, None, None, offsets, np.ones(5))
    assert marginals[bad][-1, 2] > 0.999
    assert_allclose(ours.log_z, log_z, rtol=1e-12)
    assert_allclose(ours.marginals, marginals, rtol=1e-12, atol=1e-12)
    assert_allclose(ours.pairwise, pairwise, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("question", [forward_backward, viterbi])
@pytest.mark.parametrize("place", [0, 3, 7])
def test_no_allowed_path_names_the_sequence(question, place):
    emission, transition, start, end, offsets = batch(0, MANY, np.arange(1, 10), forbid=0.5)
    emission[offsets[place + 1] - 1] = -np.inf
    with pytest.raises(ValueError, match=rf"Sequence {place} has no allowed label path"):
        question(emission, transition, offsets, start=start, end=end)


@pytest.mark.parametrize("L", [5, 22, MANY, 50])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_ties_go_to_the_lowest_label(L, dtype):
    labels, scores = viterbi(np.zeros((30, L), dtype), np.zeros((L, L)), [0, 9, 10, 10, 18, 30])
    assert_array_equal(labels, 0)
    assert_array_equal(scores, 0)


@pytest.mark.parametrize("weight", [1e200, 1e-200, -3.0])
def test_weights_of_any_size(weight):
    emission, transition, start, end, offsets = batch(5, MANY, scale=20.0)
    weights = np.full(len(RAGGED), weight)
    ours = forward_backward(emission, transition, offsets, start=start, end=end, weights=weights)
    once = forward_backward(emission, transition, offsets, start=start, end=end)
    assert_allclose(ours.pairwise, weight * once.pairwise, rtol=1e-11, atol=1e-12 * abs(weight))


def test_same_bits_every_time():
    emission, transition, start, end, offsets = batch(8, 50)
    first, again = (
        forward_backward(emission, transition, offsets, start=start, end=end) for _ in range(2)
    )
    for a, b in zip(first, again):
        assert_array_equal(a, b)


def test_empty_batches():
    for offsets in ([0], [0, 0, 0]):
        ours = forward_backward(np.zeros((0, 50)), np.zeros((50, 50)), offsets)
        assert_array_equal(ours.log_z, np.zeros(len(offsets) - 1))
        assert_array_equal(ours.pairwise, 0)
        assert_array_equal(viterbi(np.zeros((0, 50)), np.zeros((50, 50)), offsets)[1], ours.log_z)

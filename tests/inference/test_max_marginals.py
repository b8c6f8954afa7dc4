"""Max-marginals against the best of all paths, one label of one row at a time."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq.inference import max_marginals, viterbi
from sklseq.inference.chain import max_marginals as module
from tests.oracles import enumerate_chain


def by_enumeration(emission, transition, start, end):
    paths, scores, *_ = enumerate_chain(emission, transition, start, end)
    best = np.full(emission.shape, -np.inf)
    for path, score in zip(paths, scores):
        rows = np.arange(len(path))
        best[rows, path] = np.maximum(best[rows, path], score)
    return best


@pytest.mark.parametrize("most", [1, 2**18])  # one sequence at a time, or all
@pytest.mark.parametrize("of_rows", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_max_marginals_equal_enumeration(seed, of_rows, most, monkeypatch):
    monkeypatch.setattr(module, "MOST", most)
    rng = np.random.default_rng(seed)
    lengths, L = [3, 0, 1, 5, 3], 1 + seed
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    emission, start, end = rng.normal(size=(12, L)), rng.normal(size=L), rng.normal(size=L)
    transition = rng.normal(size=(12, L, L) if of_rows else (L, L))
    if seed > 1:
        emission[2, 0], start[1], transition[..., 0, 1] = -np.inf, -np.inf, -np.inf
    found = max_marginals(emission, transition, offsets, start=start, end=end)
    for a, b in zip(offsets[:-1], offsets[1:]):
        if a < b:
            steps = transition[a:b] if of_rows else transition
            expected = by_enumeration(emission[a:b], steps, start, end)
            assert_allclose(found[a:b], expected, rtol=1e-12, atol=1e-12)


def test_the_largest_of_each_row_is_the_best_path():
    rng = np.random.default_rng(0)
    emission, transition = rng.normal(size=(3000, 7)), rng.normal(size=(7, 7))
    labels, scores = viterbi(emission, transition, [0, 1000, 3000])
    found = max_marginals(emission, transition, [0, 1000, 3000])
    assert_array_equal(found.argmax(axis=1), labels)
    assert_allclose(found.max(axis=1), np.repeat(scores, [1000, 2000]), rtol=1e-12)


def test_a_sequence_without_a_path_is_named():
    with pytest.raises(ValueError, match="Sequence 1 has no allowed label path"):
        max_marginals(np.zeros((3, 2)), np.full((2, 2), -np.inf), [0, 1, 3])


def test_no_rows():
    assert max_marginals(np.zeros((0, 2)), np.zeros((2, 2))).shape == (0, 2)

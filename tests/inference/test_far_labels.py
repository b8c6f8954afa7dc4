"""Labels up to 30,000 nats below the best one where blocks are cut, against exact arithmetic.

Later scores and forbidden transitions often leave only such labels.
"""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklseq.estimators.block_sums import KeptEntries
from sklseq.inference import RowTransitions, entropy, expected_features
from sklseq.inference.chain.expectation import BlockChain
from sklseq.inference.chain.linear_chain import Transitions
from tests.oracles import ExactChain

# Scores of up to 1e5 are rounded to 1e-11, and a path adds up 13 of them.
CLOSE = {"rtol": 1e-12, "atol": 1e-9}


def scores(rng, shape, share):
    """Scores with large ones and -inf among them."""
    x = rng.normal(size=shape)
    x[rng.random(shape) < share] *= 10 ** rng.uniform(0, 4)
    x[rng.random(shape) < share * rng.integers(2) / 2] = -np.inf
    return x


def far_chains(seed, n, transitions=lambda rng, T, L: scores(rng, (L, L), 0.4)):
    """Up to n chains, and where each is cut."""
    rng = np.random.default_rng(seed)
    for _ in range(n):
        T, L = rng.integers(2, 7), rng.integers(2, 4)
        exact = ExactChain(
            scores(rng, (T, L), 0.4), transitions(rng, T, L), *scores(rng, (2, L), 0.2)
        )
        if len(exact.paths):
            yield exact, np.flatnonzero(rng.random(T - 1) < 0.6) + 1, rng


@pytest.mark.parametrize("seed", range(5))
def test_iterators_of_blocks_and_arrays(seed):
    for exact, cuts, rng in far_chains(seed, 40):
        (emission, transition), ends = exact.arguments
        T, L = emission.shape
        row, pair = rng.normal(size=(T, L, 2)), rng.normal(size=(L, L, 2))
        mean = np.einsum("tj,tjm->m", exact.marginals, row)
        mean += np.einsum("ij,ijm->m", exact.pairs, pair)
        for given in (lambda x: x), (lambda x, cuts=cuts: iter(np.split(x, cuts))):
            features = {"row_features": given(row), "pair_features": pair}
            answer = expected_features(given(emission), transition, **features, **ends)
            assert_allclose(answer.log_z, exact.log_z, **CLOSE)
            assert_allclose(answer.mean[0], mean, **CLOSE)
            assert_allclose(answer.entropy, exact.entropy, **CLOSE)
            assert_allclose(entropy(given(emission), transition, **ends), exact.entropy, **CLOSE)


def entries(rng, T, L):
    """Transition scores of some rows; shared ones often forbid nothing."""
    some = np.flatnonzero(rng.random(T * L * L) < rng.choice([0, 0.4, 1], T).repeat(L * L))
    row, i, j = np.unravel_index(some, (T, L, L))
    indptr = np.searchsorted(row, np.arange(T + 1))
    return RowTransitions(rng.normal(size=(L, L)), indptr, i, j, scores(rng, len(i), 0.8))


@pytest.mark.parametrize("seed", range(5))
def test_recursions_over_blocks_with_transitions_of_their_own(seed):
    given = []

    def dense(*args):
        given[:] = [entries(*args)]
        return given[0].toarray()

    for exact, cuts, _ in far_chains(seed, 200, dense):
        (emission, _), ends = exact.arguments
        (rows,), (T, L) = given, emission.shape
        chain = BlockChain(Transitions(rows.shared), rows.score.max(initial=-np.inf))
        psi = np.pad(emission, ((0, 0), (0, chain.width - L)))
        psi[0, :L] += ends["start"]
        psi[-1, :L] += ends["end"]
        blocks, before, log_z, found = [], None, 0.0, []
        for a, b in pairwise([0, *cuts, T]):
            block, part = chain.filter(psi[a:b], before, entries=KeptEntries(rows.part(a, b)))
            before, log_z = block.last(L), log_z + part
            blocks.append(block)
        assert_allclose(log_z, exact.log_z[0], **CLOSE)
        S = block.probabilities(L)[None]
        for block in reversed(blocks):
            _, marginals, pairs = chain.backward(block, S, 0, len(block.alpha) - 1, np.ones(1))
            found.append((marginals[:, 0, :L].copy(), pairs[:L, 0, :L]))
        marginals, pairs = zip(*reversed(found))
        assert_allclose(np.concatenate(marginals), exact.marginals, **CLOSE)
        assert_allclose(sum(pairs), exact.pairs, **CLOSE)

"""What decides is the support, scores above -inf, not whether an exponential underflows."""

import numpy as np
import pytest

from sklseq.inference import entropy, forward_backward
from sklseq.inference.chain.linear_chain import Transitions, Workspace
from sklseq.inference.chain.sparse_transitions import PairLists
from tests.differential.reference import Chain
from tests.objectives.test_long import PASSES, run
from tests.trials.supports import SUPPORTS, check

# The first seeds of `make trials`.
N_CHAINS = 120


@pytest.mark.parametrize("kind", SUPPORTS)
def test_labels_that_do_not_all_reach_each_other(kind):
    for seed in range(list(SUPPORTS).index(kind), N_CHAINS, len(SUPPORTS)):
        check(seed)


@pytest.mark.parametrize("passes", PASSES)
def test_a_label_that_underflows_in_one_block_wins_later(passes):
    # 0.3 nats a row against label 1 in the first block, e^-1200 in all, and for it in two more.
    evidence = np.repeat([-0.3, 0.3], [4096, 8192])
    emission = np.stack([-evidence, evidence], axis=1) / 2
    never = np.where(np.eye(2), 0.0, -np.inf)
    _, rows, pairs, _ = run(passes, emission, never, None, None, block_rows=4096)
    np.testing.assert_allclose(rows.sum(axis=0), [0, 12_288], atol=1e-9)
    np.testing.assert_allclose(pairs, [[0, 0], [0, 12_287]], atol=1e-9)


def rare_transition(score, T, L, dtype):
    """Label 0, where all begin, to the others, which fall behind first and win in the end."""
    emission, transition = np.zeros((T, L), dtype), np.zeros((L, L), dtype)
    emission[:, 1:] = np.repeat([-3.0, 20.0], T // 2)[:, None]
    emission[0, 1:], transition[0, 1:] = -np.inf, score
    return emission, transition


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_sequences", [1, 8], ids=["one", "in step"])
@pytest.mark.parametrize("L", [2, 10])
@pytest.mark.parametrize("score", [-60.0, -150.0, -600.0, -800.0])
def test_a_transition_whose_factor_underflows_is_allowed(score, L, n_sequences, dtype):
    emission, transition = rare_transition(score, 200, L, dtype)
    exact = Chain(emission, transition)
    offsets = 200 * np.arange(n_sequences + 1)
    answer = forward_backward(np.tile(emission, (n_sequences, 1)), transition, offsets)
    close = dict.fromkeys(("rtol", "atol"), 1e-5 if dtype == np.float32 else 1e-10)
    np.testing.assert_allclose(answer.log_z, float(exact.log_z), **close)
    np.testing.assert_allclose(answer.marginals[-200:], exact.marginals.astype(float), **close)
    np.testing.assert_allclose(
        answer.pairwise, n_sequences * exact.pairs.sum(axis=0).astype(float), **close
    )
    np.testing.assert_allclose(entropy(emission, transition), float(exact.entropy), rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_sequences", [1, 8], ids=["one", "in step"])
@pytest.mark.parametrize("others", [0.0, -np.inf], ids=["free", "forbidden"])
@pytest.mark.parametrize("score", [-60.0, -150.0, -600.0, -800.0])
def test_a_listed_transition_whose_factor_underflows_is_allowed(score, others, n_sequences, dtype):
    T, L = 60, 40
    emission, transition = rare_transition(score, T, L, dtype)
    transition[1:, 0] = others
    listed, free = transition == score, transition[1] == 0
    listed[0, 0] = True
    exact = Chain(emission, transition)
    chain = Transitions(transition, dtype=dtype, pairs=PairLists(listed, free)).exponentiate()
    psi, log_z = chain.pad_rows(np.tile(emission, (n_sequences, 1))), np.zeros(n_sequences)
    work = Workspace(len(psi), chain.width, chain.dtype, chain.pairs)
    offsets = T * np.arange(n_sequences + 1)
    work.forward_backward(psi, offsets, np.ones(n_sequences), chain, log_z)
    np.testing.assert_allclose(log_z, float(exact.log_z), rtol=1e-5)
    close = dict.fromkeys(("rtol", "atol"), 1e-4 if dtype == np.float32 else 1e-10)
    np.testing.assert_allclose(psi[-T:, :L], exact.marginals.astype(float), **close)
    pairs = n_sequences * exact.pairs.sum(axis=0).astype(float)
    np.testing.assert_allclose(work.pairwise_sum(chain)[listed], pairs[listed], **close)

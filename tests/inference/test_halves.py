"""One sequence by several threads: one thread, the definition, and the limits of scaling."""

import numpy as np
import pytest

from sklseq._lib.threads import Threads
from sklseq.inference.chain import halves
from sklseq.inference.chain.linear_chain import Transitions, Workspace, best_paths
from tests import reference


def problem(rng, T, L, spread=2.0, forbidden=0.0, dtype=np.float64):
    psi, score = spread * rng.normal(size=(T, L)), spread * rng.normal(size=(L, L))
    score[rng.random((L, L)) < forbidden] = -np.inf
    psi[rng.random((T, L)) < forbidden / 3] = -np.inf
    ends = rng.normal(size=(2, L))
    return psi.astype(dtype), score.astype(dtype), *ends.astype(dtype)


def sums(given, threads, weight=None):
    psi, score, start, end = given
    chain = Transitions(score, start, end, psi.dtype).exponentiate()
    work, log_z, padded = (
        Workspace(len(psi), chain.width, psi.dtype),
        np.zeros(1),
        chain.pad_rows(psi),
    )
    work.threads = threads
    weights = None if weight is None else np.array([weight])
    work.forward_backward(padded, np.array([0, len(psi)]), weights, chain, log_z)
    return log_z[0], padded[:, : chain.n_labels], work.pairwise_sum(chain)


@pytest.fixture(scope="module")
def two():
    with Threads(2) as threads:
        yield threads


@pytest.mark.parametrize("L", [1, 2, 3, 4, 5, 8, 9, 17])
@pytest.mark.parametrize("T", [2, 3, 7, 200])
def test_halves_equal_the_definition(two, L, T):
    rng = np.random.default_rng(100 * L + T)
    for forbidden in (0.0, 0.2):
        psi, score, start, end = given = problem(rng, T, L, forbidden=forbidden)
        got = sums(given, two, 0.7)
        if got[0] == -np.inf:
            assert forbidden
            assert reference.viterbi(psi, score, start, end)[1] == -np.inf
            continue
        log_z, marginals, pairs = reference.forward_backward(psi, score, start, end)
        np.testing.assert_allclose(got[0], log_z, rtol=1e-12)
        np.testing.assert_allclose(got[1], marginals, atol=1e-11)
        np.testing.assert_allclose(got[2], 0.7 * pairs, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spread", [1.0, 30.0, 300.0])
def test_halves_equal_one_thread_at_the_limits_of_scaling(two, dtype, spread):
    rng = np.random.default_rng(3)
    tolerance = 1e-4 if dtype == np.float32 else 1e-9
    for _ in range(30):
        given = problem(rng, int(rng.integers(2, 60)), 4, spread, rng.choice([0, 0.3]), dtype)
        one, halves = sums(given, None, 1.0), sums(given, two, 1.0)
        if one[0] == -np.inf:
            assert halves[0] == -np.inf
            continue
        np.testing.assert_allclose(halves[0], one[0], rtol=tolerance)
        np.testing.assert_allclose(halves[1], one[1], atol=tolerance)
        np.testing.assert_allclose(halves[2], one[2], atol=100 * tolerance)


@pytest.mark.parametrize(("apart", "change"), [(-40, -700), (-np.inf, -740)])
def test_messages_that_barely_meet_are_done_in_logarithms(two, apart, change):
    # Each half prefers a label that the other one all but excludes: c is below FLOOR. If it is
    # excluded, nothing but c is small, and the factor of -740 underflows.
    psi = np.zeros((40, 2))
    psi[:20, 1] = psi[20:, 0] = apart
    score = np.array([[0.0, change], [change, 0.0]])
    given = psi, score, np.zeros(2), np.zeros(2)
    want = reference.forward_backward(*given)
    log_z, marginals, pairs = sums(given, two, 1.0)
    np.testing.assert_allclose(log_z, want[0], rtol=1e-12)
    np.testing.assert_allclose(marginals, want[1], atol=1e-12)
    np.testing.assert_allclose(pairs, want[2], atol=1e-12)


def test_pair_marginals_are_not_summed_unless_wanted(two):
    given = problem(np.random.default_rng(0), 50, 3)
    assert not sums(given, two)[2].any()


def test_several_sequences_are_done_one_by_one(two):
    # ``threads`` is for a sequence that is alone.
    given = problem(np.random.default_rng(1), 30, 3)
    chain = Transitions(given[1]).exponentiate()
    work = Workspace(30, chain.width, np.dtype(np.float64))
    work.threads, log_z = two, np.zeros(2)
    offsets = np.array([0, 10, 30])
    work.forward_backward(chain.pad_rows(given[0]), offsets, None, chain, log_z)
    want = [reference.forward_backward(given[0][a:b], given[1])[0] for a, b in ((0, 10), (10, 30))]
    np.testing.assert_allclose(log_z, want, rtol=1e-12)


def path(given, threads):
    psi, score, start, end = given
    chain = Transitions(score, start, end, psi.dtype)
    padded = chain.pad_rows(psi)

    def score_again(a, b):
        padded[a:b] = chain.pad_rows(psi[a:b])

    shared = None if threads is None else halves.SharedRows(threads, score_again)
    return best_paths(padded, np.array([0, len(psi)]), chain, None, shared)


@pytest.fixture
def join(monkeypatch):
    monkeypatch.setattr(halves, "JOIN", 8)


@pytest.mark.usefixtures("join")
@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_parts_have_the_labels_of_one_thread(n, dtype):
    rng = np.random.default_rng(n)
    with Threads(n) as threads:
        for _ in range(60):
            T, L = int(rng.integers(1, 150)), int(rng.choice([1, 2, 4, 7, 12]))
            given = problem(rng, T, L, rng.choice([0.1, 3]), rng.choice([0, 0.2, 0.5]), dtype)
            if rng.random() < 0.5:  # many ties, and paths that never meet
                given = tuple(np.round(x) for x in given)
            if rng.random() < 0.3:
                given[1][:] = np.where(np.eye(L) > 0, 0, -np.inf)
            want, got = path(given, None), path(given, threads)
            np.testing.assert_allclose(got[1], want[1], rtol=1e-4 if dtype == np.float32 else 1e-12)
            if want[1] > -np.inf:
                np.testing.assert_array_equal(got[0], want[0])


@pytest.mark.usefixtures("join")
def test_parts_that_never_forget_their_start_are_done_again(two):
    # The first row alone decides between labels that stay for ever.
    psi, stay = np.zeros((100, 2)), np.where(np.eye(2) > 0, 0, -np.inf)
    psi[0, 1], psi[60:, 0] = 5.0, 0.1
    labels, scores = path((psi, stay, np.zeros(2), np.zeros(2)), two)
    assert labels.tolist() == [1] * 100
    assert scores[0] == 5

"""Derivatives of marginals: covariances over all paths, and blocks of rows against sequences."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklseq.inference.chain.expectation import BlockChain
from sklseq.inference.chain.linear_chain import Transitions
from sklseq.inference.chain.tangent import BlockTangents, Direction, TangentWorkspace, seed
from tests.reference import score_path

# Of derivatives in float32, which are sums of a few numbers of size up to ten: 6e-8 each.
SINGLE = 2e-5
FORMS = ["plain", "forbidden", "far", "far and forbidden"]


def make_problem(rng, lengths, L, form):
    """psi, its change, a chain and a direction; "far" has labels that win late, only in logs."""
    n = int(sum(lengths))
    psi, dpsi = rng.normal(size=(2, n, L))
    score, dscore = rng.normal(size=(2, L, L))
    ends, dends = rng.normal(size=(2, 2, L))
    if "forbidden" in form:
        score[rng.random((L, L)) < 0.3] = -np.inf
        np.fill_diagonal(score, 0.5)
        psi[rng.random((n, L)) < 0.1] = -np.inf
        psi[:, 0] = rng.normal(size=n)
    if "far" in form:
        score -= np.where(np.eye(L) > 0, 0, 500)
        psi += np.where(rng.random((n, L)) < 0.5, 400, -400)
        psi[:, 0] = rng.normal(size=n)
    chain = Transitions(score, *ends).exponentiate()
    return psi, dpsi, chain, Direction(chain, dscore, *dends)


def covariances(psi, dpsi, chain, direction):
    """Cov([y_t = j], S), and that of numbers of transitions, over all paths."""
    T, L = psi.shape
    paths = np.array(list(itertools.product(range(L), repeat=T)))
    cut = (slice(L), slice(L))
    at = chain.score[cut], chain.start[:L], chain.end[:L]
    along = direction.score[cut], direction.start[:L], direction.end[:L]
    scores = score_path(paths, psi, *at)
    p = np.exp(scores - scores.max())
    p /= p.sum()
    S = score_path(paths, dpsi, *along)
    p *= S - p @ S
    rows = np.array([[p[paths[:, t] == j].sum() for j in range(L)] for t in range(T)])
    pairs = np.zeros((L, L))
    for t in range(1, T):
        np.add.at(pairs, (paths[:, t - 1], paths[:, t]), p)
    return rows, pairs


def padded(psi, width):
    rows = np.zeros((len(psi), width))
    rows[:, : psi.shape[1]] = psi
    return rows


def in_blocks(psi, dpsi, direction, cuts):
    """The derivatives of one sequence, block after block."""
    chain = direction.chain
    L, W, cuts = chain.n_labels, chain.width, [0, *cuts, len(psi)]
    offsets = np.array([0, len(psi)])
    chain.fold_boundaries(psi, offsets)
    dpsi[0] += direction.start
    dpsi[-1] += direction.end
    bc, answers, before, F = BlockChain(chain), [], None, np.zeros(W)
    tangents = BlockTangents(bc, direction)
    for a, b in zip(cuts[:-1], cuts[1:]):
        block, _ = bc.filter(psi[a:b], before)
        A = np.full((b - a + 1, W), np.nan)
        F = tangents.forward(block, dpsi[a:b], F, A)
        before = block.last(L)
        answers.append((a, b, block, A))
    S, (pairs, xi) = seed(block.probabilities(L), F), np.zeros((2, W, W))
    for a, b, block, A in answers[::-1]:
        pairs += tangents.backward(block, dpsi[a:b], A, S, xi)
    return dpsi[:, :L], (pairs + direction.score * xi)[:L, :L]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("L", [1, 2, 3, 5])
def test_covariances(L, form):
    check_covariances(L, L, form)


def check_covariances(seed_of_case, L, form):
    rng = np.random.default_rng(seed_of_case)
    lengths = [1, 4, 0, 2, 3, 5, 4]
    psi, dpsi, chain, direction = make_problem(rng, lengths, L, form)
    offsets, weights = np.cumsum([0, *lengths]), rng.uniform(-1, 3, len(lengths))
    work = TangentWorkspace(len(psi), chain.width)
    mu, dmu, log_z = padded(psi, chain.width), padded(dpsi, chain.width), np.zeros(len(lengths))
    rows = work.filter(mu, offsets, chain, log_z)
    work.tangents(rows, dmu, offsets, weights, direction)
    assert not work.in_logs or "far" in form
    total = np.zeros((L, L))
    for a, b, weight in zip(offsets[:-1], offsets[1:], weights):
        if a == b:
            continue
        rows, pairs = covariances(psi[a:b], dpsi[a:b], chain, direction)
        assert_allclose(dmu[a:b, :L], weight * rows, rtol=1e-9, atol=1e-11)
        total += weight * pairs
        for cuts in ([], [1][: b - a - 1], range(1, b - a)):
            one = padded(psi[a:b], chain.width), padded(dpsi[a:b], chain.width)
            found = in_blocks(*one, direction, cuts)
            assert_allclose(found[0], rows, rtol=1e-9, atol=1e-11)
            assert_allclose(found[1], pairs, rtol=1e-9, atol=1e-11)
    assert_allclose(work.pair_tangents(direction, work.pairs)[:L, :L], total, rtol=1e-9, atol=1e-10)


def test_the_log_domain_is_tested():
    psi, _, chain, _ = make_problem(np.random.default_rng(3), [5, 5], 3, "far")
    work, offsets = TangentWorkspace(10, chain.width), np.array([0, 5, 10])
    assert work.filter(padded(psi, chain.width), offsets, chain, np.zeros(2)).in_logs
    assert BlockChain(chain).filter(padded(psi[:5], chain.width), None)[0].in_logs


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("L", [2, 3, 4])
def test_float32_has_its_digits(L, form):
    rng, lengths = np.random.default_rng(L), [1, 4, 0, 2, 3, 4]
    psi, dpsi, exact, along = make_problem(rng, lengths, L, form)
    psi, dpsi = psi.astype(np.float32), dpsi.astype(np.float32)
    scores = exact.score[:L, :L], exact.start[:L], exact.end[:L]
    chain = Transitions(*scores, dtype=np.float32).exponentiate()
    direction = Direction(chain, along.score[:L, :L], along.start[:L], along.end[:L])
    offsets, W, weights = np.cumsum([0, *lengths]), chain.width, rng.uniform(-1, 3, len(lengths))
    work = TangentWorkspace(len(psi), W, np.float32)
    mu, dmu = padded(psi, W).astype(np.float32), padded(dpsi, W).astype(np.float32)
    rows = work.filter(mu, offsets, chain, np.zeros(len(lengths), np.float64))
    work.tangents(rows, dmu, offsets, weights, direction)
    assert dmu.dtype == np.float32
    total = np.zeros((L, L))
    for a, b, weight in zip(offsets[:-1], offsets[1:], weights):
        if a < b:
            one = covariances(psi[a:b].astype(float), dpsi[a:b].astype(float), chain, direction)
            assert_allclose(dmu[a:b, :L], weight * one[0], rtol=0, atol=SINGLE)
            total += weight * one[1]
    assert_allclose(work.pair_tangents(direction, work.pairs)[:L, :L], total, rtol=0, atol=SINGLE)


@pytest.mark.parametrize("L", [3, 20])
def test_long_sequences(L):
    # Many labels are worked on in batches; sums over many rows do not cancel.
    rng = np.random.default_rng(0)
    lengths = [3000, 40, 7, 300, 1, 2]
    psi, dpsi, chain, direction = make_problem(rng, lengths, L, "plain")
    dpsi += 1000.0  # a change that all paths share
    offsets, W = np.cumsum([0, *lengths]), chain.width
    work, log_z = TangentWorkspace(len(psi), W), np.zeros(len(lengths))
    mu, dmu = padded(psi, W), padded(dpsi, W)
    rows = work.filter(mu, offsets, chain, log_z)
    work.tangents(rows, dmu, offsets, np.ones(len(lengths)), direction)
    assert_allclose(dmu.sum(axis=1), 0, atol=1e-12)
    total = np.zeros((L, L))
    for a, b in zip(offsets[:-1], offsets[1:]):
        one = padded(psi[a:b] * 1.0, W), padded(dpsi[a:b] - 1000.0, W)
        rows, pairs = in_blocks(*one, direction, range(64, b - a, 64))
        assert_allclose(dmu[a:b, :L], rows, rtol=1e-8, atol=1e-10)
        total += pairs
    assert_allclose(work.pair_tangents(direction, work.pairs)[:L, :L], total, rtol=1e-9, atol=1e-8)

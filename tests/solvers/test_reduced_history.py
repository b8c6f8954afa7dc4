"""L-BFGS with pairs of a part of the weights, against dense matrices and whole pairs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq._lib.threads import Threads
from sklseq.solvers import _reduced_history, _search, lbfgs
from sklseq.solvers._history import LEAST_CURVATURE
from sklseq.solvers._reduced_history import ReducedHistory
from tests.oracles import kkt_residual
from tests.solvers.test_block_metric import bfgs, inverse_on, random_metric
from tests.solvers.test_solvers import LeastSquares


@pytest.fixture
def a_quarter(monkeypatch):
    monkeypatch.setattr(_reduced_history, "PART", 4)
    monkeypatch.setattr(_reduced_history, "REST", 1.0)


@pytest.fixture
def reduced(monkeypatch):
    monkeypatch.setattr(_search, "MANY", 1)


def largest(size, at, k):
    size = size.copy()
    size[at] = np.inf
    return np.sort(np.argsort(size)[-k:])


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("n_pairs", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("seed", range(4))
def test_direction_is_that_of_pairs_with_zeros(a_quarter, seed, n_threads, n_pairs, some):
    rng, n, memory = np.random.default_rng(seed), 60, 5
    metric, B = random_metric(rng, n) if seed % 2 else (None, np.eye(n))
    of_metric = np.zeros(0, dtype=int) if metric is None else metric.at.copy()
    with Threads(n_threads) as threads:
        history, pairs = ReducedHistory(n, memory, np.dtype(float), threads), []
        if metric is not None:
            history.use(metric)
        v, out = rng.normal(size=n), np.empty(n)
        history.with_v[-1] = v @ v
        for k in range(1, n_pairs + 1):
            s = rng.normal(size=n)
            y, v = s * rng.uniform(0.5, 2, size=n), rng.normal(size=n)
            history.push(s, 1.0, y, np.zeros(n), v)
            if k in (1, 2, 4, 8):
                chosen = largest(np.abs(y) + np.abs(v), of_metric, n // 4)
            assert_array_equal(history.at, chosen)
            pairs.append((s.copy(), y.copy()))
            for one in [x for pair in pairs for x in pair]:
                one[np.delete(np.arange(n), chosen)] = 0
            pairs = pairs[-memory:]
        for (s, y), (one, other) in zip(pairs, history.oldest_first(), strict=True):
            assert_array_equal(s, one)
            assert_array_equal(y, other)
        assert_allclose(history.with_v[-1], v @ v)
        some = some and n_pairs > 0
        free = rng.random(n) < 0.7 if some else np.ones(n, dtype=bool)
        factor = history.direction(v, out, free if some else None)
    H = inverse_on(B, free)
    if pairs:
        cut = [(s * free, y * free) for s, y in pairs]
        H = bfgs(H, [(s, y) for s, y in cut if s @ y > LEAST_CURVATURE])
    else:
        H /= np.sqrt(v @ H @ v)
    assert_allclose(out[free], -(H @ (v * free))[free], rtol=1e-7, atol=1e-9)
    others = np.setdiff1d(np.flatnonzero(free), history.at)
    assert_allclose(out[others], factor * v[others], rtol=1e-12)
    if metric is not None:  # its own is not changed
        assert_array_equal(metric.at, of_metric)


@pytest.mark.parametrize("l1", [0.0, 1.0])
@pytest.mark.parametrize("with_metric", [False, True])
@pytest.mark.parametrize("with_scale", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_the_minimum_is_the_same(reduced, seed, with_scale, with_metric, l1):
    problem = LeastSquares(seed)
    rng = np.random.default_rng(seed)
    metric = random_metric(rng, 20)[0] if with_metric else None
    scale = rng.uniform(0.5, 2, size=20) if with_scale else None
    result = lbfgs(problem, problem.start(), l1=l1, tol=1e-9, metric=metric, scale=scale)
    gradient = np.empty(problem.m)
    problem.value_and_gradient(result.w, gradient)
    assert kkt_residual(result.w, gradient, l1) < 1e-2


def test_pairs_go_on_in_another_run(reduced):
    problem, pairs = LeastSquares(0), []
    lbfgs(problem, problem.start(), tol=0.0, max_iter=12, pairs=pairs)
    assert [s.shape for s, _ in pairs] == [(20,)] * 12
    again = lbfgs(problem, problem.start(), tol=1e-9, pairs=pairs)
    assert_allclose(again.w, problem.solution(), rtol=1e-3, atol=1e-4)


def test_float32_stays_float32():
    history = ReducedHistory(40, 5, np.dtype(np.float32), Threads(1))
    v, out = np.ones(40, dtype=np.float32), np.empty(40, dtype=np.float32)
    history.push(v, 1.0, v, 0 * v, v)
    history.direction(v, out)
    assert history.pairs.dtype == np.float32
    assert_allclose(out, -1, rtol=1e-6)


@pytest.mark.parametrize(("rest", "k"), [(0.7, 4), (0.3, 8), (0.13, 16), (0.05, 32), (0.01, 64)])
def test_other_weights_have_little_of_the_change(monkeypatch, rest, k):
    monkeypatch.setattr(_reduced_history, "REST", rest)
    squares = np.repeat([0.1, 0.08, 0.02, 0.005, 0.00125], [4, 4, 8, 16, 32])  # sum to 1
    order = np.random.default_rng(0).permutation(64)
    history, y = ReducedHistory(64, 5, np.dtype(float), Threads(1)), np.sqrt(squares)[order]
    history.push(y, 1.0, y, 0 * y, 0 * y)
    assert_array_equal(history.at, np.flatnonzero(order < k))

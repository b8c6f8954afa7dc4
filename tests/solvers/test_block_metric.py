"""L-BFGS from a first guess of the Hessian in blocks, against dense matrices."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from threadpoolctl import threadpool_info, threadpool_limits

from sklseq import CRFTagger, CRFTaggerCV
from sklseq._lib.threads import Threads
from sklseq.solvers import BlockMetric, lbfgs
from sklseq.solvers._history import History
from tests.oracles import kkt_residual
from tests.solvers.test_solvers import LeastSquares


def random_metric(rng, n, n_groups=3, size=4):
    """A metric of some of n weights, and the whole matrix."""
    roots = rng.normal(size=(n_groups, size, size))
    blocks = roots @ roots.transpose(0, 2, 1) + 0.1 * np.eye(size)
    slots = np.sort(
        rng.choice(n_groups * size, size=rng.integers(1, n_groups * size), replace=False)
    )
    at = np.sort(rng.choice(n, size=len(slots), replace=False))
    B = np.eye(n)
    for i, p in zip(slots, at):
        for j, q in zip(slots, at):
            B[p, q] = blocks[i // size, i % size, j % size] if i // size == j // size else 0
    return BlockMetric(at, slots, blocks), B


def inverse_on(B, free):
    """(B_FF)⁻¹, zero elsewhere."""
    inverse = np.zeros_like(B)
    inverse[np.ix_(free, free)] = np.linalg.inv(B[np.ix_(free, free)])
    return inverse


@pytest.mark.parametrize("seed", range(20))
def test_change_of_the_free_weights(seed):
    rng = np.random.default_rng(seed)
    metric, B = random_metric(rng, 15)
    for _ in range(3):
        free, z = rng.random(15) < 0.7, rng.normal(size=(2, 15))
        expected = z @ inverse_on(B, free) - z * free
        assert_allclose(metric.change(z[:, metric.at], free), expected[:, metric.at], atol=1e-9)
    everything = z @ np.linalg.inv(B) - z
    assert_allclose(metric.change(z[:, metric.at]), everything[:, metric.at], atol=1e-9)


def bfgs(H, pairs):
    """Updates of an inverse Hessian, oldest pair first (Nocedal, Wright 2006, Equation 6.17)."""
    H = H * max(s @ y / (y @ H @ y) for s, y in pairs[-2:])
    for s, y in pairs:
        V = np.eye(len(s)) - np.outer(y, s) / (s @ y)
        H = V.T @ H @ V + np.outer(s, s) / (s @ y)
    return H


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("n_pairs", [0, 1, 3, 7])
@pytest.mark.parametrize("seed", range(4))
def test_direction_starts_from_the_metric(seed, n_pairs, some):
    rng, n, memory = np.random.default_rng(seed), 15, 5
    metric, B = random_metric(rng, n)
    history, pairs = History(n, memory, np.dtype(float), Threads(1)), []
    history.use(metric)
    v, out = rng.normal(size=n), np.empty(n)
    history.with_v[-1] = v @ v
    for _ in range(n_pairs):
        s = rng.normal(size=n)
        y = s * rng.uniform(0.5, 2, size=n)
        history.push(s, 1.0, y, np.zeros(n), v)
        pairs.append((s, y))
        if rng.random() < 0.5:  # what is kept of a pair is right later
            history.direction(v, out)
    free = rng.random(n) < 0.7 if some else np.ones(n, dtype=bool)
    history.direction(v, out, free if some else None)
    H = inverse_on(B, free)
    if pairs:
        H = bfgs(H, [(s * free, y * free) for s, y in pairs[-memory:]])
    else:
        H /= np.sqrt(v @ H @ v)
    assert_allclose(out[free], -(H @ (v * free))[free], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("l1", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_minimum_with_a_metric(seed, l1):
    problem = LeastSquares(seed)
    metric, _ = random_metric(np.random.default_rng(seed), problem.m)
    result = lbfgs(problem, problem.start(), l1=l1, tol=0.0, metric=metric)
    gradient = np.empty(problem.m)
    problem.value_and_gradient(result.w, gradient)
    assert kkt_residual(result.w, gradient, l1) < 1e-4


def test_the_hessian_itself_saves_iterations():
    # With the Hessian as metric, the first directions are Newton's.
    problem = LeastSquares(0, n=200, m=40)
    H = problem.A.T @ problem.A + problem.ridge * np.eye(problem.m)
    metric = BlockMetric(np.arange(40), np.arange(40), H[None])
    target = 1e-9 + 0.5 * np.square(problem.A @ problem.solution() - problem.b).sum()
    target += 0.5 * problem.ridge * np.square(problem.solution()).sum()
    steps = [
        sum(value > target for value in lbfgs(problem, problem.start(), tol=0, metric=m).history)
        for m in (None, metric)
    ]
    assert steps[1] <= 8 < steps[0]


@pytest.mark.parametrize("is_minimum", [False, True])
def test_a_metric_is_made_for_the_first_step_only(is_minimum):
    problem, made = LeastSquares(0, n=200, m=40), []
    metric, _ = random_metric(np.random.default_rng(0), 40)
    start = problem.solution() if is_minimum else problem.start()
    at_once = lbfgs(problem, start.copy(), metric=metric, tol=1e-4, convexity=problem.ridge)
    later = lbfgs(
        problem, start.copy(), metric=lambda: made.append(1) or metric, tol=1e-4,
        convexity=problem.ridge,
    )  # fmt: skip
    assert len(made) == (not is_minimum)
    assert_array_equal(later.history, at_once.history)


def test_a_metric_is_dropped_at_half_of_the_first_value(monkeypatch):
    # The objective starts at some 100 times its minimum.
    problem, used = LeastSquares(0, n=200, m=40), []
    problem.b *= 0.01
    metric, _ = random_metric(np.random.default_rng(0), 40)
    change = metric.change
    monkeypatch.setattr(metric, "change", lambda *z: used.append(1) or change(*z))
    history = np.array(lbfgs(problem, np.ones(40), tol=0.0, metric=metric).history)
    assert len(used) == np.argmax(history < 0.5 * history[0])
    used.clear()
    lbfgs(problem, np.zeros(40), tol=0.0, metric=metric)
    assert len(used) > 5


def test_each_pair_meets_the_metric_once(monkeypatch):
    rng = np.random.default_rng(0)
    metric, _ = random_metric(rng, 15)
    solved, change = [], metric.change
    monkeypatch.setattr(metric, "change", lambda z, *f: solved.append(len(z)) or change(z, *f))
    history, out = History(15, 5, np.dtype(float), Threads(1)), np.empty(15)
    history.use(metric)
    for _ in range(9):
        s, v = rng.normal(size=(2, 15))
        history.push(s, 1.0, s * rng.uniform(0.5, 2, size=15), np.zeros(15), v)
        history.direction(v, out)
    assert solved == [2] * 9


# With 900 columns, there are too many weights for second derivatives in all of them.
@pytest.mark.parametrize(("n_jobs", "n_names"), [(1, 3), (2, 3), (1, 900), (2, 900)])
def test_blas_has_one_thread_while_blocks_are_factorised(monkeypatch, n_jobs, n_names):
    def threads():
        return {x["num_threads"] for x in threadpool_info() if x["user_api"] == "blas"}

    def change(self, *args, before=BlockMetric.change):
        inside.append(threads())
        return before(self, *args)

    inside = []
    monkeypatch.setattr(BlockMetric, "change", change)
    rows = [[["a", *(str((15 * k + j) % n_names) for j in range(15))], ["b"]] for k in range(60)]
    y = [["x", "y"] if k % 3 else ["y", "x"] for k in range(60)]
    with threadpool_limits(2, "blas"):
        CRFTagger(solver="adagrad", n_jobs=n_jobs).fit(rows, y)
        CRFTaggerCV(l2s=[0.1, 1], cv=2, solver="adagrad", n_jobs=n_jobs).fit(rows, y)
        assert threads() == {2}
    assert inside
    assert all(found == {1} for found in inside)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("changed", [0.0, 0.02, 0.7])
def test_products_over_free_weights(changed, n_threads, monkeypatch):
    # Updated by the weights that became free or bound, with columns of very different sizes.
    monkeypatch.setattr("sklseq.solvers._history.PER_THREAD", 1000)
    rng, n, m, anew = np.random.default_rng(0), 3000, 4, []

    def products_of_pairs(self, before, free, original=History._products_of_pairs):
        anew.append(not before.any())
        return original(self, before, free)

    monkeypatch.setattr(History, "_products_of_pairs", products_of_pairs)
    units, free = 10.0 ** rng.uniform(-3, 3, n), rng.random(n) < 0.5
    with Threads(n_threads) as threads:
        history = History(n, m, np.dtype(float), threads)
        for k in range(15):
            y = rng.normal(size=n) * units
            v = rng.normal(size=n) * units
            history.push(y + 0.1 * rng.normal(size=n), 1.0, y, np.zeros(n), v)
            if k == 8:
                history.forget()
            free = free ^ (rng.random(n) < changed)
            if k == 12:  # the largest columns leave
                free &= units < 1
            rows = np.vstack([history.pairs * (np.arange(2 * m) % m < history.used)[:, None], v])
            expected = rows[:, free] @ rows[:, free].T
            size = np.sqrt(expected.diagonal())
            error = np.abs(history._products_among(free, v) - expected)
            assert (error <= 1e-9 * np.outer(size, size)).all()
    # At the beginning, after `forget`, and where digits are lost or most weights change.
    assert sum(anew) == (15 if changed == 0.7 else 3)

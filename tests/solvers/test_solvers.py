"""L-BFGS and OWL-QN against SciPy, closed forms and optimality conditions."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from sklseq._lib.threads import Threads, spans
from sklseq.solvers import _history as history_module
from sklseq.solvers import _lbfgs as lbfgs_module
from sklseq.solvers import cg, lbfgs
from sklseq.solvers._dense import solve_dense
from sklseq.solvers._history import _vectors
from sklseq.solvers._owlqn import OrthantSearch
from sklseq.solvers._search import interpolate
from tests.oracles import kkt_residual


class LeastSquares:
    """½‖A w - b‖² + ½ ridge ‖w‖²."""

    def __init__(self, seed, n=30, m=20, ridge=0.1, dtype=np.float64):
        rng = np.random.default_rng(seed)
        self.A, self.b = rng.normal(size=(n, m)) * rng.gamma(1, size=m), rng.normal(size=n)
        self.ridge, self.dtype, self.m = ridge, dtype, m

    def value_and_gradient(self, w, gradient):
        w = w.astype(np.float64)
        r = self.A @ w - self.b
        gradient[:] = self.A.T @ r + self.ridge * w
        return 0.5 * (r @ r + self.ridge * w @ w)

    def start(self):
        return np.zeros(self.m, dtype=self.dtype)

    def solution(self):
        return np.linalg.solve(self.A.T @ self.A + self.ridge * np.eye(self.m), self.A.T @ self.b)


class Rosenbrock:
    """A curved valley: far from quadratic."""

    def value_and_gradient(self, w, gradient):
        x, y = w
        gradient[:] = [-400 * x * (y - x * x) - 2 * (1 - x), 200 * (y - x * x)]
        return 100 * (y - x * x) ** 2 + (1 - x) ** 2


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n_threads", [1, 2])
def test_lbfgs_finds_the_closed_form(seed, n_threads):
    problem = LeastSquares(seed)
    with Threads(n_threads) as threads:
        result = lbfgs(problem, problem.start(), tol=0.0, threads=threads)
    assert result.converged
    assert_allclose(result.w, problem.solution(), rtol=1e-5, atol=1e-6)


def test_lbfgs_keeps_up_with_scipy():
    # The same memory: as few iterations as SciPy's, give or take a third.
    problem = LeastSquares(3, n=200, m=100)

    def value(w):
        gradient = np.empty_like(w)
        return problem.value_and_gradient(w, gradient), gradient

    theirs = minimize(
        value,
        problem.start(),
        jac=True,
        method="L-BFGS-B",
        options={"maxcor": 6, "ftol": 1e-12, "gtol": 1e-9, "maxiter": 1000},
    )
    ours = lbfgs(problem, problem.start(), tol=1e-12, max_iter=1000)
    assert ours.value <= theirs.fun * (1 + 1e-9)
    assert ours.n_iter <= 1.34 * theirs.nit + 10


def test_lbfgs_follows_a_curved_valley():
    result = lbfgs(Rosenbrock(), np.array([-1.2, 1.0]), tol=1e-12)
    assert_allclose(result.w, [1, 1], rtol=1e-5)


@pytest.mark.parametrize("l1", [0.3, 3.0, 10.0])
def test_owlqn_takes_no_step_that_is_twice_too_long(l1, monkeypatch):
    # To the minimum of a parabola, the decrease is half of the first-order one.
    fractions = []

    class Observed(OrthantSearch):
        def _try_free(self, u, promise):
            v, w, value = self.v.copy(), self.w.copy(), self.value
            found = super()._try_free(u, promise)
            predicted = v @ (w - self.w)
            if found and predicted > 1e-9 * value:  # else it is rounding
                fractions.append((value - self.value) / predicted)
            return found

    monkeypatch.setattr(lbfgs_module, "OrthantSearch", Observed)
    for seed in range(20):
        problem = LeastSquares(seed)
        lbfgs(problem, problem.start(), l1=l1, tol=1e-6)
    assert min(fractions) > 0.099


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("l1", [0.01, 1.0, 10.0])
def test_owlqn_meets_the_optimality_conditions(seed, l1):
    problem = LeastSquares(seed)
    result = lbfgs(problem, problem.start(), l1=l1, tol=1e-14, max_iter=2000)
    gradient = np.empty(problem.m)
    problem.value_and_gradient(result.w, gradient)
    # The gradient at the start is of order 10 to 100.
    assert kkt_residual(result.w, gradient, l1) < 1e-4


@pytest.mark.parametrize("l1", [0.0, 1.0])
@pytest.mark.parametrize("scaled", [False, True])
def test_a_start_whose_gradient_is_known_saves_an_evaluation(l1, scaled):
    class Counting(LeastSquares):
        n = 0

        def value_and_gradient(self, w, gradient):
            self.n += 1
            return super().value_and_gradient(w, gradient)

    problem = Counting(3)
    start = np.linspace(-1, 1, problem.m)
    scale = 2.0 ** np.arange(problem.m) / 64 if scaled else None  # products with it are exact
    plain = lbfgs(problem, start.copy(), l1=l1, tol=1e-9, scale=scale)
    n, gradient = problem.n, np.zeros_like(start)
    value = problem.value_and_gradient(start, gradient) + l1 * np.abs(start).sum()
    found = lbfgs(problem, start.copy(), l1=l1, tol=1e-9, scale=scale, known=(value, gradient))
    assert_array_equal(found.w, plain.w)
    assert_allclose(found.history, plain.history, rtol=1e-14)  # the norm is summed in another order
    assert problem.n == 2 * n


def test_the_pseudo_gradient_is_the_shortest_subgradient():
    rng = np.random.default_rng(0)
    w, g = rng.normal(size=(2, 200)) * (rng.random((2, 200)) < 0.5)
    for l1 in (0.4, rng.random(200)):
        signs = np.where(w != 0, np.sign(w), np.linspace(-1, 1, 20_001)[:, None])
        subgradients = g + l1 * signs
        nearest = np.abs(subgradients).argmin(axis=0)
        expected = subgradients[nearest, np.arange(200)]
        found, each = np.empty(200), np.broadcast_to(l1, 200).copy()
        for span in ((0, 77), (77, 200)):
            _vectors.pseudo_gradient(w, g, each, found, *span)
        assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_no_weight_goes_past_zero_in_one_step(seed):
    problem, path = LeastSquares(seed, n=40, m=30), [np.full(30, 0.5)]
    lbfgs(
        problem, path[0].copy(), l1=1.0, tol=1e-8, max_iter=60,
        callback=lambda k, value, w: path.append(w.copy()),
    )  # fmt: skip
    assert (np.array(path[1:]) * np.array(path[:-1]) >= 0).all()


def test_owlqn_gives_zero_above_the_largest_gradient():
    problem = LeastSquares(0)
    gradient = np.empty(problem.m)
    problem.value_and_gradient(problem.start(), gradient)
    top = np.abs(gradient).max()
    assert_array_equal(lbfgs(problem, problem.start(), l1=top * 1.001).w, 0)
    assert np.count_nonzero(lbfgs(problem, problem.start(), l1=top * 0.9).w) >= 1


def test_float32_weights_stay_float32():
    problem = LeastSquares(1, dtype=np.float32)
    result = lbfgs(problem, problem.start(), tol=1e-6)
    assert result.w.dtype == np.float32
    assert_allclose(result.w, problem.solution(), rtol=1e-2, atol=1e-3)


def test_pairs_in_float32_find_the_same_optimum(monkeypatch):
    problem = LeastSquares(2)
    monkeypatch.setattr(history_module, "LARGE", 0)
    result = lbfgs(problem, problem.start(), tol=0.0)
    assert_allclose(result.w, problem.solution(), rtol=1e-5, atol=1e-6)


def test_history_holds_the_objective_and_never_rises():
    problem = LeastSquares(4)
    seen = []
    result = lbfgs(problem, problem.start(), callback=lambda k, f, w: seen.append((k, f)) or False)
    assert [k for k, _ in seen] == list(range(1, result.n_iter + 1))
    assert result.history[1:] == [f for _, f in seen]
    assert (np.diff(result.history) <= 0).all()


class Bowl:
    """Curvatures spread evenly over four decades; 0 at w = 1."""

    def value_and_gradient(self, w, gradient):
        c = np.geomspace(1e-4, 1, len(w))
        gradient[:] = c * (w - 1)
        return float(c @ np.square(w - 1) / 2)


def test_few_weights_have_more_pairs():
    # Ten pairs need 99 iterations.
    assert lbfgs(Bowl(), np.zeros(50), tol=0.0, max_iter=70).value < 1e-4


def test_pairs_of_an_earlier_run_are_changes_of_w_and_of_the_gradient_and_save_iterations():
    problem, scale = LeastSquares(4), np.geomspace(0.5, 2, 20)
    pairs = []
    cold = lbfgs(problem, problem.start(), tol=1e-10, scale=scale, pairs=pairs, convexity=0.1)
    assert len(pairs) > 10
    for s, y in pairs:
        assert_allclose(y, problem.A.T @ (problem.A @ s) + problem.ridge * s, atol=1e-7)
    problem.b = problem.b[::-1].copy()
    for other in (None, scale):
        warm = lbfgs(
            problem, problem.start(), tol=1e-10, scale=other, pairs=list(pairs), convexity=0.1
        )
        assert_allclose(warm.w, problem.solution(), rtol=1e-5, atol=1e-6)
        assert warm.n_iter < cold.n_iter / 2


def test_a_callback_stops_it_and_max_iter_is_told():
    problem = LeastSquares(0)
    stopped = lbfgs(problem, problem.start(), callback=lambda k, f, w: k == 3)
    assert (stopped.n_iter, stopped.message, stopped.converged) == (3, "callback", True)
    cut = lbfgs(problem, problem.start(), max_iter=2)
    assert (cut.n_iter, cut.message, cut.converged) == (2, "max_iter", False)


def test_a_bad_start_is_refused():
    class Nowhere:
        def value_and_gradient(self, w, gradient):
            return np.nan

    with pytest.raises(ValueError, match="objective is nan at the starting point"):
        lbfgs(Nowhere(), np.zeros(3))


@pytest.mark.parametrize("n", [0, 1, 7, 512, 5000])
@pytest.mark.parametrize("parts", [1, 2, 5])
def test_spans_cover_everything_once(n, parts):
    covered = [k for a, b in spans(n, parts, align=4) for k in range(a, b)]
    assert covered == list(range(n))
    assert len(spans(n, parts)) <= parts


def test_a_ridge_below_the_rounding_of_the_matrix_gives_the_minimum_norm():
    A, b = np.full((3, 3), 1e20), np.full((3, 1), 3e20)
    W = solve_dense(A, b, 1e-9).w
    assert_allclose(W, np.ones((3, 1)), rtol=1e-9)  # of all with a sum of 3


class InfiniteFromTwo:
    """(w - 1)², which is infinite from w = 2 on: a line search must stay below."""

    def value_and_gradient(self, w, gradient):
        if w[0] >= 2:
            return np.inf
        gradient[:] = 200 * (w - 1)
        return 100 * float((w[0] - 1) ** 2)


def test_a_step_to_an_infinite_value_is_shortened():
    result = lbfgs(InfiniteFromTwo(), np.array([-10.0]), tol=1e-9)
    assert_allclose(result.w, [1.0], rtol=1e-8)
    assert interpolate(3.0, 1.0, -1.0, np.inf) == pytest.approx(0.3)


class Matrix:
    def __init__(self, A):
        self.A = A

    def hessian_product(self, P):
        return self.A @ P


@pytest.mark.parametrize("decades", [0, 3, 6])
def test_conjugate_gradients_do_not_depend_on_units(decades):
    # Powers of two change no digit: the same iterations and errors, the same answer in its units.
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(40, 30))
    A, B = factor.T @ factor, rng.normal(size=(30, 2))
    units = 2.0 ** np.round(rng.uniform(-decades, decades, size=(30, 1)) / np.log10(2))
    plain, other = (
        cg(Matrix(u * A * u.T), u * B, preconditioner=1 / (u[:, 0] ** 2 * A.diagonal()), tol=1e-8)
        for u in (np.ones((30, 1)), units)
    )
    assert_allclose(other.history, plain.history, rtol=1e-9)
    assert_allclose(other.w * units, plain.w, rtol=1e-9, atol=1e-12)
    assert_allclose(plain.w, np.linalg.solve(A, B), rtol=1e-5, atol=1e-6)

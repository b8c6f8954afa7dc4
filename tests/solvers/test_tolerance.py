"""Gaps between fitted objectives and their minima, which long runs of two methods find."""

import functools
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, CRFTaggerCV, Sequences
from sklseq._lib.threads import Threads
from sklseq.datasets import make_contacts
from sklseq.estimators.crf.crf_problem import CRFProblem, choose_solver
from sklseq.estimators.sources.source import RowSource
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.solvers import lbfgs
from sklseq.solvers._cutting_planes import best_mean, proved_excess
from sklseq.solvers._history import _vectors
from sklseq.solvers._lbfgs import estimated_rest
from tests.objectives.test_dual import likelihood_of
from tests.solvers.test_solvers import LeastSquares

PENALTIES = [(l1, l2) for l1 in (0.0, 0.1, 1.0) for l2 in (0.003, 0.03, 0.299, 0.3, 3.0)]


def make_text(seed, n=120, V=250, L=4):
    """Sentences of Zipf's words, whose labels follow words and neighbours, with errors."""
    rng = np.random.default_rng(seed)
    prior = rng.dirichlet(np.full(L, 0.4), V)
    chance = 1 / np.arange(1, V + 1)
    lengths = rng.integers(1, 15, n)
    words = rng.choice(V, lengths.sum(), p=chance / chance.sum())
    labels = np.array([rng.choice(L, p=prior[v]) for v in words])
    labels = np.where(rng.random(len(words)) < 0.3, np.roll(labels, 1), labels)
    before = np.roll(words, 1) + V
    before[np.cumsum(lengths) - lengths] = 2 * V
    columns = np.stack([words, before, np.full(len(words), 2 * V + 1)], axis=1)
    at = np.arange(len(words) + 1) * 3
    rows = sparse.csr_matrix((np.ones(columns.size), columns.ravel(), at), (len(words), 2 * V + 2))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Sequences(rows, offsets), [labels[a:b] for a, b in zip(offsets[:-1], offsets[1:])]


@functools.cache
def minimum(seed, l1, l2):
    """The least objective of two methods that were given no reason to stop early."""
    X, y = make_text(seed)
    with Threads(1) as threads:
        primal = likelihood_of(CRFTagger(l2=l2), X, y, threads)
        ours = lbfgs(primal, primal.scores.new_vector(), l1=l1, tol=1e-9, max_iter=1500)
        n, gradient = len(ours.w), np.empty_like(ours.w)

        def split(uv):  # w = u - v, u and v not negative: smooth, by SciPy
            value = primal.value_and_gradient(uv[:n] - uv[n:], gradient)
            return value + l1 * uv.sum(), np.r_[gradient + l1, l1 - gradient]

        start = np.r_[np.maximum(ours.w, 0), np.maximum(-ours.w, 0)]
        theirs = minimize(
            split, start, jac=True, method="L-BFGS-B", bounds=[(0, None)] * (2 * n),
            options={"maxiter": 300, "ftol": 1e-12, "gtol": 1e-9},
        )  # fmt: skip
    return min(ours.value, theirs.fun)


def silent_gaps(solvers, X, y, least, tol, **parameters):
    """Excess over the minimum, in units of tol, of each solver that does not warn."""
    found = []
    for solver in solvers:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            model = CRFTagger(solver=solver, tol=tol, **parameters).fit(X, y)
        if not caught:
            found.append((model.objective_ / least - 1) / tol)
    return found


def gaps(seed, l1, l2, tol):
    """Silent gaps of all solvers on text."""
    least, solvers = minimum(seed, l1, l2), ("adagrad", "owlqn", "eg")
    return silent_gaps(solvers, *make_text(seed), least, tol, l1=l1, l2=l2)


@pytest.mark.parametrize(("l1", "l2"), PENALTIES)
@pytest.mark.parametrize("tol", [1e-2, 1e-3])
def test_the_objective_is_within_tol_of_the_minimum(l1, l2, tol):
    shares = gaps(0, l1, l2, tol)
    assert len(shares) == 3  # and nobody is warned
    assert max(shares) <= 1


@pytest.mark.parametrize("n", [20, 39, 40, 79, 100, 400])
@pytest.mark.parametrize("r", [0.2, 0.9])
@pytest.mark.parametrize(("has_metric", "least"), [(False, 10), (True, 5)])
def test_the_estimate_of_the_rest(n, r, has_metric, least):
    # d / (1 - r), for geometric decrease over some iterations, n / 5 at least; without a metric
    # twice that, with one at least as for a decrease in proportion to 1 / root of n.
    k, period = np.arange(n + 1), max(least, n // 5)
    series, d = list(5 + r ** ((k - n) / period)), 1 / r - 1
    e = series[-6] - series[-1]
    expected = max(d / (1 - r), 3 * np.sqrt(n / 5) * e) if has_metric else 2 * d / (1 - r)
    assert estimated_rest(series, has_metric) == pytest.approx(expected)
    assert estimated_rest(list(5 + r ** (k[: 2 * least] / period)), has_metric) == np.inf


@pytest.mark.parametrize("n_before", [1, 50])
def test_the_estimate_of_the_rest_near_the_minimum(n_before):
    # Twice the mean decrease of the last three iterations, times 4 · root of a fifth of all.
    series = [10.0, 7.0, 6.0, 5.5, 5.2]
    expected = 4 * np.sqrt((n_before + 4) / 5) * 2 * 1.8 / 3
    assert estimated_rest(series, True, n_before) == pytest.approx(expected)
    assert estimated_rest(series[:-1], True, n_before) == np.inf


def test_the_estimate_of_a_long_run_near_the_minimum_is_that_of_a_slow_decrease():
    # Of 5 + 1 / k after 360 iterations 1 / 720 was lost in the last third, and 1 / 360 is left.
    series = list(5 + 1 / np.maximum(np.arange(361), 0.5))
    assert estimated_rest(series, True, 40) == pytest.approx(1.5 / 360)
    # Two iterations without a decrease change little.
    assert estimated_rest([*series, series[-1], series[-1]], True, 40) > 1 / 360


@pytest.mark.parametrize("solver", ["adagrad", "lbfgs"])
@pytest.mark.parametrize("l1", [0.0, 0.1])
@pytest.mark.parametrize("n_between", [0, 4])
def test_models_along_a_path_are_within_tol_after_few_iterations(
    l1, n_between, solver, monkeypatch
):
    found, (X, y) = {}, make_text(0)
    solve = CRFProblem.solve
    monkeypatch.setattr(CRFProblem, "solve", lambda self: found.setdefault(self.l2, solve(self)))
    given = np.array(sorted({l2 for _, l2 in PENALTIES}))
    places = np.linspace(0, len(given) - 1, (len(given) - 1) * (n_between + 1) + 1)
    l2s = np.exp(np.interp(places, np.arange(len(given)), np.log(given)))
    l2s[:: n_between + 1] = given
    every = np.arange(len(y))
    CRFTaggerCV(l1s=[l1], l2s=l2s, cv=[(every, every[:9])], solver=solver, refit=False).fit(X, y)
    shares = [(found[l2].value / minimum(0, l1, l2) - 1) / CRFTagger().tol for l2 in given]
    assert len(found) == len(l2s)
    assert max(shares) <= 1
    if n_between:
        assert np.mean([result.n_iter for result in found.values()]) < 7


@pytest.fixture
def few_are_many(monkeypatch):
    """The choice of "auto" as for data of 10,000 rows."""
    for name in ("SOME_ROWS", "MANY_ROWS"):
        monkeypatch.setattr(f"sklseq.estimators.crf.crf_problem.{name}", 500)


@pytest.mark.parametrize("l1", [0.0, 0.1])
def test_auto_has_no_cliff_along_l2(l1, few_are_many):
    X, y = make_text(1, n=300)
    for l2 in (0.03, 0.1, 0.299, 0.3):
        best = CRFTagger(solver="owlqn", l1=l1, l2=l2, tol=1e-6, max_iter=2000).fit(X, y)
        model = CRFTagger(l1=l1, l2=l2, tol=1e-3).fit(X, y)
        assert model.solver_ != "lbfgs"
        assert best.objective_ * (1 - 1e-6) <= model.objective_ <= best.objective_ * (1 + 1e-3)


@pytest.mark.parametrize("l1", [0.0, 0.1])
def test_the_default_run_is_within_tol_or_warns(l1, few_are_many):
    # A row has three features, so "dual" begins at 3 / 8.
    X, y = make_text(2)
    ran = set()
    for l2 in np.geomspace(1e-3, 10, 13):
        best = CRFTagger(solver="lbfgs", l1=l1, l2=l2, tol=1e-5, max_iter=2000).fit(X, y)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ConvergenceWarning)
            model = CRFTagger(l1=l1, l2=l2).fit(X, y)
        assert model.objective_ <= best.objective_ * (1 + model.tol)
        assert not told
        assert model.solver_.startswith("dual" if l2 >= 3 / 8 else "adagrad")
        ran.add(model.solver_)
    assert len(ran) >= 2


def make_lasting(seed, n=40, n_rows=300, n_labels=6, lasts=40, n_words=2000):
    """Long sequences whose labels last for about 40 rows; a third of the words depend on them."""
    rng = np.random.default_rng(seed)
    y = [
        np.repeat(rng.integers(n_labels, size=n_rows), rng.geometric(1 / lasts, size=n_rows))
        for _ in range(n)
    ]
    y = [labels[:n_rows] for labels in y]
    codes = np.concatenate(y)
    w = rng.zipf(1.3, size=len(codes)) % n_words
    w = (w + np.where(rng.random(len(codes)) < 0.3, 37 * codes, 0)) % n_words
    around = w, n_words + np.roll(w, 1), 2 * n_words + np.roll(w, -1)
    columns = np.stack([*around, 3 * n_words + w % 50, np.full_like(w, 3 * n_words + 50)], axis=1)
    entries = np.ones(columns.size), columns.ravel(), np.arange(0, columns.size + 1, 5)
    rows = sparse.csr_array(entries, shape=(len(codes), 3 * n_words + 51))
    return Sequences(rows, np.arange(0, n * n_rows + 1, n_rows)), y


def test_long_sequences_whose_labels_last_are_within_tol():
    # 13.6 % above the minimum, without a warning, by AdaGrad's scale to the power 2 / 3 and blocks
    # of second derivatives that neglect covariances between rows.
    X, y = make_lasting(0)
    best = CRFTagger(solver="lbfgs", l1=0.1, tol=1e-4, max_iter=2000).fit(X, y)
    model = CRFTagger(l1=0.1).fit(X, y)
    assert model.solver_ == "adagrad+lbfgs"
    assert model.objective_ <= best.objective_ * (1 + model.tol)


@pytest.mark.parametrize(
    ("n_rows", "lasts", "lasting", "solver"),
    [(300, 40, True, "lbfgs"), (300, 2, False, "lbfgs"), (30, 40, False, "dual")],
)
def test_auto_takes_the_dual_for_short_sequences_and_strong_penalties(
    n_rows, lasts, lasting, solver
):
    X, y = make_lasting(0, n=1500 // n_rows, n_rows=n_rows, lasts=lasts)
    source = RowSource(X, np.concatenate(y).astype(np.int32), np.arange(6))
    assert source.has_lasting_labels == lasting
    # A row has five features, and the limit is a quarter of them.
    assert choose_solver(CRFTagger(l2=1.25), source)[0] == solver
    assert choose_solver(CRFTagger(l2=1.24), source)[0] == "lbfgs"


def test_few_long_documents_take_few_iterations():
    # 225 where the scale of transitions after "adagrad" has no limit.
    X, y = make_contacts(20, random_state=0)
    words = [{"w": x["w"]} for x in X]
    rows = WindowFeatures(TokenFeatures(columns="w"), before=1, after=0).fit_transform(words)
    assert CRFTagger(solver="adagrad").fit(rows, y).n_iter_ <= 100


@pytest.mark.filterwarnings("ignore:Of .* columns of X")  # the smallest
def test_pairs_are_dropped_if_their_step_fails():
    # Columns in units of 1e-3 to 1e3; with the pairs kept, training ends at 79.6.
    rng, n, L, d = np.random.default_rng(36), 184, 26, 5
    p = (1.0 + np.arange(L)) ** -2.5
    y = rng.choice(L, size=n, p=p / p.sum())
    rows = rng.normal(size=(n, d)) + rng.normal(size=(L, d))[y] + 5 * rng.normal(size=d)
    rows *= 10 ** (3 * rng.uniform(-1, 1, size=d))
    model = CRFTagger(l1=0.1, l2=0.0017).fit([row[None] for row in rows], [[k] for k in y])
    assert model.objective_ < 1.01 * 77.784


def test_the_choice_of_the_solver_is_printed(capsys):
    X, y = make_text(0)
    model = CRFTagger(verbose=1).fit(X, y)
    printed = capsys.readouterr().out.splitlines()
    assert "[CRFTagger] solver 'lbfgs': rows are dense, or fewer than 1000" in printed
    assert float(printed[-1].split()[-1]) == pytest.approx(model.objective_, rel=1e-9)
    assert model.solver_ == "lbfgs"
    assert CRFTagger(solver="owlqn", l1=0.1).fit(X, y).solver_ == "lbfgs"
    assert CRFTagger(solver="adagrad").fit(X, y).solver_ == "adagrad+lbfgs"
    assert CRFTagger(solver="eg", l2=10).fit(X, y).solver_ == "dual"


def test_a_dual_value_that_is_dropped_is_not_in_the_loss_curve():
    # Passes that end above the objective at zero: L-BFGS starts from there, and falls.
    X, y = make_text(0)
    model = CRFTagger(solver="dual", l2=1e-3).fit(X, y)
    assert model.solver_ == "dual+lbfgs"
    assert np.all(np.diff(model.loss_curve_) <= 0)


def test_no_passes_without_evidence_count_as_converged():
    X, y = make_text(0)
    for solver in ("eg", "adagrad", "owlqn"):
        with pytest.warns(ConvergenceWarning, match="nothing shows"):
            CRFTagger(solver=solver, l2=0.01, tol=1e-3, max_iter=12).fit(X, y)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("l1", [0.0, 0.3])
@pytest.mark.parametrize("scaled", [False, True])
def test_what_is_proved_holds(seed, l1, scaled):
    # ‖v‖² / 2m, m the least curvature, in the weights themselves whatever the recursion works on.
    problem = LeastSquares(seed, ridge=10.0)
    m = np.linalg.eigvalsh(problem.A.T @ problem.A)[0] + problem.ridge
    scale = np.exp(np.random.default_rng(seed).normal(size=problem.m)) if scaled else None
    options = {"l1": l1, "max_iter": 5000, "scale": scale}
    least = lbfgs(problem, problem.start(), tol=0.0, **options).value
    for tol in (1e-1, 1e-3, 1e-6):
        end = lbfgs(problem, problem.start(), tol=tol, convexity=m, **options)
        assert end.message == "bound" or scaled
        if end.message == "bound":
            assert end.value - least <= tol * end.value


class Quadratic:
    """A quadratic function of 300 weights with minimum 1."""

    def __init__(self, condition):
        self.curvatures = np.geomspace(1, condition, 300)

    def value_and_gradient(self, w, gradient):
        gradient[:] = self.curvatures * (w - 1)
        return 1 + float(gradient @ (w - 1)) / 2


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("condition", "tol"), [(1.5, 1e-9), (5, 1e-9), (1000, 1e-3)])
def test_the_excess_is_below_a_bound_that_is_smaller_than_that_of_the_gradient(
    condition, tol, scaled, monkeypatch
):
    found = []

    def recorded(history, values, v, convexity, scale):
        bound = proved_excess(history, values, v, convexity, scale)
        square = np.sum((v if scale is None else v * scale) ** 2)
        found.append((values[-1] - 1, bound, square / (2 * convexity)))
        return bound

    monkeypatch.setattr("sklseq.solvers._lbfgs.proved_excess", recorded)
    monkeypatch.setattr("sklseq.solvers._lbfgs.BOUND_NEAR", 1e9)
    scale = 2.0 ** np.random.default_rng(0).integers(-2, 3, 300) if scaled else None
    options = {"tol": tol, "max_iter": 120, "convexity": 1.0, "gap": 2, "scale": scale}
    end = lbfgs(Quadratic(condition), np.zeros(300), **options)
    excess, proved, by_gradient = np.array(found).T
    assert (excess <= proved + 1e-12).all()
    if condition == 1000 and not scaled:
        assert np.median(proved / by_gradient) < 0.5
        assert end.message == "bound"
        assert proved[-1] <= 2e-3 * end.value < min(proved[:-1])


@pytest.mark.parametrize("seed", range(5))
def test_the_best_mean_where_all_weights_are_positive_and_a_mean_elsewhere(seed):
    rng = np.random.default_rng(seed)
    points, best = rng.normal(size=(5, 8)), rng.dirichlet(np.ones(5))
    Q = points @ points.T
    assert best_mean(1e6 * Q, 1e6 * (Q @ best + 3.0)) == pytest.approx(best, abs=1e-6)
    other = best_mean(Q, rng.normal(size=5))
    assert (other >= 0).all()
    assert other.sum() == pytest.approx(1)


class Kinks:
    """Smooth, but with a curvature that no pair of the past tells: steps of L-BFGS often fail."""

    def __init__(self, seed, n=12):
        rng = np.random.default_rng(seed)
        self.A = rng.normal(size=(n, n)) * rng.gamma(0.3, size=n)
        self.b = rng.normal(size=n) * 5

    def value_and_gradient(self, w, gradient):
        r = self.A @ w - self.b
        gradient[:] = self.A.T @ np.tanh(30 * r)
        return float(np.logaddexp(30 * r, -30 * r).sum() / 30)


@pytest.mark.parametrize("seed", range(10))
def test_proximal_steps_are_the_fallback(seed, monkeypatch):
    # Without any step of L-BFGS the minimum is the same: convergence does not rest on the pairs.
    problem, l1 = Kinks(seed), 0.2
    both = [lbfgs(problem, np.zeros(12), l1=l1, tol=1e-10, max_iter=20_000).value]
    monkeypatch.setattr("sklseq.solvers._owlqn.N_HALVINGS", 0)
    both.append(lbfgs(problem, np.zeros(12), l1=l1, tol=1e-10, max_iter=200_000).value)
    assert both[0] == pytest.approx(both[1], rel=1e-4)


def test_a_proximal_step_minimises_its_model():
    rng = np.random.default_rng(0)
    w, g = rng.normal(size=(2, 40)) * (rng.random(40) < 0.7)
    u, l1 = np.empty(40), np.full(40, 0.4)
    promise = sum(_vectors.proximal_step(w, g, l1, 1.7, u, *span) for span in ((0, 7), (7, 40)))
    assert promise == pytest.approx(-g @ (u - w) - 0.4 * (np.abs(u).sum() - np.abs(w).sum()))
    grid = np.linspace(-5, 5, 100_001)
    model = g[:, None] * grid + 0.85 * (grid - w[:, None]) ** 2 + 0.4 * np.abs(grid)
    best = grid[model.argmin(axis=1)]
    assert np.abs(u - np.where(best * w < 0, 0, best)).max() < 1e-4

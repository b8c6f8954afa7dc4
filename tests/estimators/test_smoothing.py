"""HMSVMTagger(solver="smoothing") against programs over all labelings and the other solvers."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklseq import HMSVMTagger, HMSVMTaggerCV, Sequences
from sklseq.estimators.hmsvm.margin_problem import MarginProblem
from sklseq.estimators.hmsvm.solver_choice import Outlook, may_change
from sklseq.estimators.sources.source import RowSource
from sklseq.inference import viterbi
from tests.estimators.test_hmsvm import (
    COST,
    PARAMETERS,
    explicit_rows,
    objective_of,
    problem,
    quadratic_program,
)


def smoothed(X, y, weights=None, mu=0.3, **parameters):
    """The objective at a temperature, and random weights."""
    tagger = HMSVMTagger(solver="smoothing", **parameters)
    objective = MarginProblem(tagger, RowSource.read(X, y, weights)).objective
    v = objective.cool(mu)
    v[:] = np.random.default_rng(0).normal(size=v.shape)
    return objective, v


@pytest.mark.parametrize("scale", [1.0, 0.5, 2.0])
@pytest.mark.parametrize(("mu", "slack"), [(1.0, "l1"), (0.1, "l1"), (0.3, "l2")])
def test_the_gradient_equals_differences(mu, slack, scale):
    X, y = problem(0)
    weights = [1.0, 2.0, 0.5, 3.0]
    objective, v = smoothed(
        X, y, weights, mu, loss=COST, C=0.7, transition_scale=scale, slack=slack
    )
    gradient, other = np.empty((2, len(v)))
    objective.value_and_gradient(v, gradient)
    slope = objective.slope
    w = np.concatenate([np.ones(objective.scores.n_state), np.full(15, scale)])
    assert slope * mu * 0.7 == pytest.approx(0.5 * np.sum((0.7 * w * gradient) ** 2))
    step, differences = 1e-6, np.empty(len(v))
    for k in range(len(v)):
        e = step * (np.arange(len(v)) == k)
        up, down = (objective.value_and_gradient(v + s * e, other) for s in (1, -1))
        differences[k] = (up - down) / (2 * step)
    assert_allclose(gradient, differences, atol=1e-7 * max(1, np.abs(gradient).max()))


SETTINGS = {
    "hamming": {},
    "matrix": {"loss": COST},
    "scale": {"transition_scale": 2.0},
    "small scale, no ends": {"transition_scale": 0.5, "boundaries": False},
    "squared": {"slack": "l2"},
    "squared, matrix": {"slack": "l2", "loss": COST, "transition_scale": 2.0},
    "class weights": {"class_weight": {0: 0.5, 1: 1.0, 2: 3.0}},
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_bounds_enclose_the_program_over_all_labelings(kind):
    X, y = problem(list(SETTINGS).index(kind))
    given = SETTINGS[kind]
    cost = given.get("loss", 1 - np.eye(3))
    if "class_weight" in given:
        cost = np.array([0.5, 1.0, 3.0])[:, None] * cost
    eta = given.get("transition_scale", 1.0)
    boundary = eta * given.get("boundaries", True)
    slack = given.get("slack", "l1")
    best = quadratic_program(X, y, 3, cost, 0.0, C=0.7, slack=slack, eta=eta, boundary=boundary)
    for tol in (0.1, 1e-4):
        tagger = HMSVMTagger(C=0.7, solver="smoothing", tol=tol, **given).fit(X, y)
        assert tagger.objective_ - tagger.dual_gap_ <= best * (1 + 1e-6)
        assert best * (1 - 1e-6) <= tagger.objective_ <= best * (1 + tol)
        assert tagger.dual_gap_ <= tol * tagger.objective_
    assert_allclose(tagger.loss_curve_[-1, 1], tagger.objective_)


def check_smoothing(seed):
    """The measured objective is that of the weights, and the bounds hold what bcfw finds."""
    rng = np.random.default_rng(seed)
    X, y = problem(seed, lengths=rng.integers(1, 6, int(rng.integers(1, 6))) + 2)
    C, tol, slack = 10 ** rng.uniform(-3, 2), 10 ** rng.uniform(-3, -1), ("l1", "l2")[seed % 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        tagger = HMSVMTagger(C=C, slack=slack, solver="smoothing", tol=tol).fit(X, y)
    if slack == "l1":
        assert tagger.objective_ == pytest.approx(objective_of(tagger, X, y, C), rel=1e-9)
    other = clone(tagger).set_params(solver="bcfw", max_iter=20_000, random_state=0).fit(X, y)
    assert tagger.objective_ - tagger.dual_gap_ <= other.objective_ * (1 + 1e-9)
    assert other.objective_ - other.dual_gap_ <= tagger.objective_ * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(10))
def test_objective_and_bounds(seed):
    check_smoothing(seed)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix, lambda x: x.astype(np.float32)])
@pytest.mark.parametrize("slack", ["l1", "l2"])
def test_weights_constraints_and_forms(slack, form):
    X, y = problem(4, lengths=[5] * 8)
    y = [np.sort(labels) for labels in y]
    X, allowed = [form(x) for x in X], np.triu(np.ones((3, 3), dtype=bool))
    weights = np.array([2.0, 1, 1, 0, 1, 3, 1, 1])
    options = {"constraints": allowed, "tol": 1e-4, "max_iter": 5000, "random_state": 0}
    options["slack"] = slack
    fitted = [
        HMSVMTagger(solver=solver, **options).fit(X, y, weights) for solver in ("smoothing", "bcfw")
    ]
    assert fitted[0].objective_ == pytest.approx(fitted[1].objective_, rel=2e-4)
    assert_array_equal(np.isfinite(fitted[0].transition_), allowed)
    assert all((np.diff(labels) >= 0).all() for labels in fitted[0].predict(X))
    assert fitted[0].coef_.dtype == X[0].dtype


def test_two_threads_train_as_one():
    X, y = problem(5, lengths=[60] * 40)
    fitted = [HMSVMTagger(solver="smoothing", n_jobs=n).fit(X, y) for n in (1, 2, 2)]
    assert_allclose(fitted[1].coef_, fitted[0].coef_, atol=1e-6)
    assert_array_equal(fitted[2].coef_, fitted[1].coef_)
    assert fitted[1].dual_gap_ == pytest.approx(fitted[0].dual_gap_, abs=1e-4)


def test_auto_takes_it_for_long_sequences_where_it_can():
    X, y = problem(5, lengths=[220, 210])
    assert MarginProblem(HMSVMTagger(), RowSource.read(X, y, None)).solver == "smoothing"
    for columns, solver in ((997, "smoothing"), (998, "bcfw")):
        rows = [sparse.csr_matrix(np.pad(x, ((0, 0), (0, columns)))) for x in X]
        assert MarginProblem(HMSVMTagger(), RowSource.read(rows, y, None)).solver == solver
    short = [x[:150] for x in X], [labels[:150] for labels in y]
    assert MarginProblem(HMSVMTagger(), RowSource.read(*short, None)).solver == "bcfw"
    for refused in (
        {"loss": "zero_one"}, {"transition_scale": 0},
        {"C": np.inf}, {"average": True}, {"warm_start": True},
    ):  # fmt: skip
        assert MarginProblem(HMSVMTagger(**refused), RowSource.read(X, y, None)).solver == "bcfw"
        with pytest.raises(ValueError, match=r"solver='smoothing' cannot have .*; use"):
            HMSVMTagger(solver="smoothing", **refused).fit(X, y)
    narrow, wide = ([np.zeros((50, m))] * 20 for m in (13, 14))  # 3 labels, 40 weights
    few, more = ([sparse.csr_matrix((50, m))] * 20 for m in (133, 134))
    labels = [np.arange(50) % 3] * 20
    for rows, solver in (
        (narrow, "smoothing"), (narrow[:19], "bcfw"), (wide, "bcfw"), (few, "smoothing"),
        (few[:19], "bcfw"), (more, "bcfw"),
    ):  # fmt: skip
        source = RowSource.read(rows, labels[: len(rows)], None)
        assert MarginProblem(HMSVMTagger(), source).solver == solver
        assert MarginProblem(HMSVMTagger(kernel="rbf"), source).solver == "bcfw"
    tagger = HMSVMTagger().fit(X, y)
    assert tagger.dual_gap_ <= 0.01 * tagger.objective_
    assert not hasattr(tagger, "dual_coef_")
    with pytest.raises(AttributeError, match="have no support_sequences_; use 'bcfw'"):
        tagger.support_sequences_  # noqa: B018


def test_it_warns_when_iterations_run_out():
    X, y = problem(0, lengths=[5] * 10)
    with pytest.warns(ConvergenceWarning, match="did not converge in 3 passes"):
        HMSVMTagger(C=100, solver="smoothing", max_iter=3, tol=1e-6).fit(X, y)


def test_a_search_along_C():
    X, y = problem(6, lengths=[40] * 6)
    search = HMSVMTaggerCV(Cs=[0.01, 0.1, 1.0], cv=3, solver="smoothing").fit(X, y)
    plain = HMSVMTagger(C=search.C_, solver="smoothing").fit(X, y)
    assert search.scores_.shape == (3, 3)
    assert search.objective_ == pytest.approx(plain.objective_, rel=0.01)


def test_the_best_weights_are_kept():
    objective, v = smoothed(*problem(0))
    first, _, _ = objective.measure(0.1 * v)
    kept = objective.best
    assert objective.measure(100 * v)[0] == first
    assert objective.best is kept


@pytest.mark.parametrize("kernel", ["poly", "rbf"])
def test_kernels_equal_the_program_over_all_labelings(kernel):
    X, y = problem(7)
    best = quadratic_program(explicit_rows(X, kernel), y, 3, 1 - np.eye(3), 0.0, C=0.7, slack="l1")
    tagger = HMSVMTagger(C=0.7, solver="smoothing", tol=1e-4, **PARAMETERS[kernel]).fit(X, y)
    assert best * (1 - 1e-6) <= tagger.objective_ <= best * (1 + 1e-4)
    assert tagger.objective_ - tagger.dual_gap_ <= best * (1 + 1e-6)


def check_kernel_model(seed):
    """A kernel of rank 3, or given, is the linear kernel, with sequences of weight 0 too."""
    rng = np.random.default_rng(seed)
    X, y = problem(seed, lengths=rng.integers(2, 9, 6) + 2)
    weights = rng.choice([0.0, 0.5, 2.0], 6)
    weights[0] = 1.0
    options = {"C": 10 ** rng.uniform(-2, 1), "solver": "smoothing", "tol": 1e-4}
    linear = HMSVMTagger(**options).fit(X, y, weights)
    rows = np.concatenate(X)
    squares = np.split(rows @ rows.T, np.cumsum([len(x) for x in X])[:-1])
    for kernel, given in ((lambda A, B: A @ B.T, X), ("precomputed", squares)):
        tagger = HMSVMTagger(kernel=kernel, **options).fit(given, y, weights)
        assert tagger.objective_ == pytest.approx(linear.objective_, rel=2e-4)
        emission = tagger.potentials(given).emission
        primal = 0.5 * np.sum(tagger.dual_coef_ * emission[tagger.support_])
        primal += 0.5 * np.sum(tagger.transition_**2)
        primal += 0.5 * np.sum(tagger.start_**2) + 0.5 * np.sum(tagger.end_**2)
        bare = objective_of_potentials(tagger.potentials(given), y, weights * options["C"])
        assert tagger.objective_ == pytest.approx(primal + bare, rel=1e-6)


def objective_of_potentials(potentials, y, C):
    """Σ C_i ξ_i of these scores."""
    emission, transition, start, end, offsets = potentials
    total = 0.0
    for s, truth in enumerate(y):
        psi = emission[offsets[s] : offsets[s + 1]]
        loss = np.arange(3) != truth[:, None]
        _, best = viterbi(psi + loss, transition, start=start, end=end)
        score = psi[np.arange(len(psi)), truth].sum() + start[truth[0]] + end[truth[-1]]
        total += C[s] * (best[0] - score - transition[truth[:-1], truth[1:]].sum())
    return total


@pytest.mark.parametrize("seed", range(4))
def test_kernel_models_are_those_of_their_rows(seed):
    check_kernel_model(seed)


def test_a_long_sequence_with_a_kernel():
    X, y = problem(8, lengths=[400], n_features=4)
    tagger = HMSVMTagger(kernel="rbf", gamma=0.1, C=1.0).fit(X, y)
    assert tagger.dual_gap_ <= 0.01 * tagger.objective_
    assert_array_equal(
        np.concatenate(list(tagger.predict_blocks(iter([X[0][:150], X[0][150:]])))),
        tagger.predict(X)[0],
    )
    search = HMSVMTaggerCV(Cs=[0.1, 1.0], cv=2, kernel="rbf").fit(X * 2, y * 2)
    assert search.scores_.shape == (2, 2)


def tagged_rows(seed, n_steps=8, n_sequences=4):
    """Rows around their label, overlapping."""
    rng = np.random.default_rng(seed)
    y = [rng.integers(3, size=n_steps) for _ in range(n_sequences)]
    y[0][:3] = [0, 1, 2]
    return [rng.normal(loc=one[:, None], scale=0.6, size=(n_steps, 2)) for one in y], y


def check_rounding(seed):
    """The gap is never negative, however small ``tol`` is."""
    rng = np.random.default_rng(seed)
    C, tol, slack = 10 ** rng.uniform(-2, 4), (0, 1e-8, 1e-6)[seed % 3], ("l1", "l2")[seed // 3 % 2]
    tagger = HMSVMTagger(solver="smoothing", C=C, slack=slack, tol=tol, max_iter=1500)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tagger.fit(*tagged_rows(seed, int(rng.integers(3, 9)), int(rng.integers(1, 5))))
    assert (tagger.loss_curve_[:, 3] > 0).all()


@pytest.mark.parametrize("seed", range(6))
def test_the_gap_is_positive(seed):
    check_rounding(seed)


@pytest.mark.parametrize(("tol", "C", "slack"), [(0, 1, "l1"), (0, 1, "l2"), (1e-7, 727, "l1")])
def test_the_gap_stays_a_bound_where_rounding_ends_training(tol, C, slack):
    X, y = tagged_rows(0)
    tagger = HMSVMTagger(solver="smoothing", C=C, slack=slack, tol=tol)
    with pytest.warns(ConvergenceWarning, match="rounding keeps the gap .*: raise tol, or lower C"):
        tagger.fit(X, y)
    assert 0 < tagger.dual_gap_ < 1e-5 * tagger.objective_
    assert (tagger.loss_curve_[:, 3] > 0).all()


@pytest.mark.parametrize(
    ("n", "slack", "solver"), [(1, "l1", "bcfw"), (40, "l1", "bcfw"), (20, "l2", "smoothing")]
)
def test_auto_keeps_bcfw_for_long_text_that_it_divides(n, slack, solver):
    rows, y = [sparse.csr_matrix((1000, 1001))] * n, [np.arange(1000) % 3] * n
    source = RowSource.read(rows, y, None)
    assert MarginProblem(HMSVMTagger(slack=slack), source).solver == solver


def test_the_solver_that_auto_takes_is_an_attribute():
    X, y = problem(5, lengths=[220, 210])
    assert HMSVMTagger().fit(X, y).solver_ == "smoothing"
    short = [x[:20] for x in X], [labels[:20] for labels in y]
    assert HMSVMTagger().fit(*short).solver_ == "bcfw"


def hard_symbols(seed=0, L=8, n_symbols=30, T=150, n=7):
    """One-hot symbols around each row, of labels that last and hardly differ in their symbols."""
    rng, rows = np.random.default_rng(seed), []
    moves, y = rng.random((n, T)) < 0.2, rng.integers(L, size=(n, T))
    symbols = rng.dirichlet(np.ones(n_symbols), size=L)
    for s in range(n):
        for t in range(1, T):
            y[s, t] = y[s, t] if moves[s, t] else y[s, t - 1]
        found = np.array([rng.choice(n_symbols, p=symbols[label]) for label in y[s]])
        near = np.pad(found, 2, mode="edge")
        columns = np.stack([near[d : d + T] + n_symbols * d for d in range(5)], axis=1)
        dense = np.zeros((T, 5 * n_symbols))
        np.put_along_axis(dense, columns, 1.0, axis=1)
        rows.append(sparse.csr_matrix(dense))
    return rows, list(y)


def test_auto_gives_up_bcfw_where_its_gap_falls_slowly():
    X, y = hard_symbols()
    tagger, plain = HMSVMTagger(random_state=0).fit(X, y), HMSVMTagger(solver="smoothing").fit(X, y)
    assert tagger.solver_ == "smoothing"
    assert_array_equal(tagger.coef_, plain.coef_)
    assert tagger.n_iter_ == plain.n_iter_
    assert HMSVMTagger(C=0.001, random_state=0).fit(X, y).solver_ == "bcfw"  # fast enough
    for rows, columns, options, answer in (
        (1000, 250, {}, True), (999, 250, {}, False), (1000, 251, {}, False),
        (1000, 250, {"solver": "bcfw"}, False), (1000, 250, {"kernel": "rbf"}, False),
        (1000, 250, {"warm_start": True}, False),
    ):  # fmt: skip
        data = Sequences.from_list([sparse.csr_matrix((rows, columns))])
        assert may_change(HMSVMTagger(**options), data, 8) == answer
    for columns, answer in ((100, True), (101, False)):
        data = Sequences.from_list([np.zeros((1000, columns))])
        assert may_change(HMSVMTagger(), data, 60) == answer


def test_auto_keeps_bcfw_where_many_labels_are_easy_to_tell_apart():
    rng, L, n = np.random.default_rng(0), 30, 50
    y = [np.where(rng.random(20) < 0.5, rng.integers(L, size=20), k % L) for k in range(n)]
    centers = rng.normal(size=(L, 10))
    X = [centers[labels] + 0.3 * rng.normal(size=(20, 10)) for labels in y]
    chosen = HMSVMTagger(random_state=0).fit(X, y)
    assert chosen.solver_ == "bcfw"
    other = HMSVMTagger(solver="smoothing").fit(X, y)
    assert abs(chosen.objective_ - other.objective_) <= 0.02 * other.objective_
    # Passes of "bcfw", which update each row at most ten times, against evaluations.
    assert chosen.n_iter_ < other.n_iter_ / 5


def outlook(gaps, n_columns=100, n_rows=800):
    """Answers of ``Outlook``, with these gaps over the dual after each update of all rows."""
    objective = SimpleNamespace(
        y=np.zeros(n_rows), C=np.ones(8), n_labels=4, n_updates=0, blocks=np.arange(8),
        source=SimpleNamespace(order=np.arange(n_columns)),
        pieces=SimpleNamespace(first=np.zeros(8), stop=np.full(8, n_rows / 8)),
    )  # fmt: skip
    found, answers = Outlook(objective, tol=0.01), []
    for gap in gaps:
        objective.n_updates += 8
        objective.measured = 1.0 + gap, 1.0
        found.note()
        answers.append(found.is_bad())
    return answers


@pytest.mark.parametrize("n_columns", [100, 10_000])
def test_the_outlook_is_what_a_gap_that_falls_evenly_has_left(n_columns):
    # 100 rows a sequence: an update of all rows takes as long as 0.6 + 0.01 * 100 evaluations.
    limit = (60 + 2.5 * np.sqrt(4 * n_columns)) / 1.6
    for left, bad in ((1.02 * limit, True), (0.9 * limit, False)):
        rate = np.log(0.8 / 0.01) / (left + 4)
        gaps = 0.8 * np.exp(-rate * np.arange(5))
        assert outlook(gaps, n_columns)[-1] == bad
    assert not any(outlook(0.8 * np.exp(-0.2 * np.arange(20)), n_columns))
    assert outlook([0.8, 0.7, 0.8, 0.8], n_columns)[-1]
    # A primal far above the dual says nothing about the pace.
    assert not any(outlook(600 * np.exp(-0.2 * np.arange(20)), n_columns))


def test_a_gap_that_rises_for_a_while_is_no_reason_to_give_up():
    assert not any(outlook([0.8, 0.5, 0.2, 0.6, 0.5, 0.15]))


def test_a_huge_C_is_refused():
    X, y = tagged_rows(0)
    with pytest.raises(
        ValueError, match=r"at most 1e100 \(np.inf for a hard margin\); got 1e\+300"
    ):
        HMSVMTagger(solver="smoothing", C=1e300).fit(X, y)


def test_a_large_c_is_no_reason_for_it_on_text():
    X, y = [[{f"w{i}": True for i in range(1001)}, {"w0": True}]] * 3, [["a", "b"]] * 3
    for value, solver in ((1.0, "bcfw"), (20.0, "smoothing")):
        X[0][1]["w0"] = value
        assert HMSVMTagger(C=100.0, max_iter=3000, random_state=0).fit(X, y).solver_ == solver


def noisy_labels(seed, units, offset=0.0):
    """Rows whose means differ by label, with columns in these units."""
    rng = np.random.default_rng(seed)
    means, y = rng.normal(size=(3, 10)), [rng.integers(0, 3, 15) for _ in range(20)]
    X = [(means[labels] + 1.5 * rng.normal(size=(15, 10))) * units + offset for labels in y]
    return X, y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("units", "offset"), [(1.0, 0.0), (100.0, 0.0), (10.0 ** np.linspace(-2, 3, 10), 0.0),
                          (1.0, 1000.0), (10.0 ** np.linspace(-2, 3, 10), 50.0)],
)  # fmt: skip
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_few_rows_in_any_units_are_solved_to_tol(seed, units, offset, form):
    X, y = noisy_labels(seed, units, offset)
    X = [form(x) for x in X]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "Of .* columns of X")  # of units and offsets
        tagger = HMSVMTagger(random_state=0).fit(X, y)
    assert tagger.dual_gap_ <= 0.01 * tagger.objective_
    is_large = not np.isscalar(units) or units > 1 or offset > 0
    assert tagger.solver_ == ("smoothing" if is_large else "bcfw")
    parts = [tagger.coef_, tagger.transition_, tagger.start_, tagger.end_]
    total, ends = (
        0.5 * sum(np.sum(part**2) for part in parts),
        dict(zip(("start", "end"), parts[2:])),
    )
    for rows, truth in zip(X, y):
        emission, at = rows @ tagger.coef_, np.arange(15)
        _, best = viterbi(emission + (truth[:, None] != np.arange(3)), parts[1], **ends)
        own = emission[at, truth].sum() + parts[1][truth[:-1], truth[1:]].sum()
        total += np.squeeze(best) - own - parts[2][truth[0]] - parts[3][truth[-1]]
    assert tagger.objective_ == pytest.approx(total, rel=1e-6)


def test_a_path_takes_the_solver_of_each_c():
    X, y = noisy_labels(0, 3.0)
    Cs, folds = [0.1, 1.0, 10.0, 100.0], [(np.arange(12), np.arange(12, 20))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = HMSVMTaggerCV(Cs=Cs, cv=folds, random_state=0).fit(X, y)
    for C, score in zip(Cs, found.scores_[0]):
        plain = HMSVMTagger(C=C, tol=1e-4, solver="smoothing").fit(X[:12], y[:12])
        assert score == pytest.approx(plain.score(X[12:], y[12:]), abs=0.03)

"""HMSVMTagger with transition features: programs over all labelings, and solvers by each other."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from sklseq import HMSVMTagger, HMSVMTaggerCV, Sequences
from sklseq.data.constraints import resolve_constraints
from sklseq.estimators.hmsvm.margin_problem import MarginProblem, kept_paths
from sklseq.estimators.sources.source import RowSource
from sklseq.features import TemplateFeatures
from sklseq.objectives.margin.hinge import Margin, PathLoss, StructuredHinge, linear_rows
from sklseq.objectives.margin.separable import path_gram
from sklseq.objectives.scores.transition_features import TransitionFeatures
from tests.estimators.test_crf_transitions import TEMPLATE, words_and_labels
from tests.estimators.test_hmsvm import (
    COST,
    LOSSES,
    TIGHT,
    path_features,
    problem,
    quadratic_program,
)
from tests.oracles import all_paths

COLUMNS = [0, 2]
SOLVERS = ("bcfw", "working_set", "smoothing")


def seen(X, y, columns=COLUMNS):
    """(feature, label, next label) of the training data."""
    found = {
        (f, int(z[t - 1]), int(z[t]))
        for x, z in zip(X, y)
        for t in range(1, len(z))
        for f in columns
        if x[t, f] != 0
    }
    return sorted(found)


def thin(X):
    """Rows of which some values are 0."""
    return [np.where(np.abs(x) > 0.5, x, 0) for x in X]


def data(seed, **options):
    X, y = problem(seed, **options)
    return thin(X), y


@pytest.mark.parametrize(
    ("loss", "slack", "scale", "boundaries"),
    [
        ("hamming", "l1", 1.0, True),
        ("hamming", "l2", 0.5, False),
        ("zero_one", "l1", 0.5, True),
        ("zero_one", "l2", 2.0, False),
        ("matrix", "l1", 2.0, True),
        ("matrix", "l2", 1.0, True),
    ],
)
def test_the_optimum_is_that_of_the_program_over_all_labelings(scale, boundaries, loss, slack):
    X, y = data(list(LOSSES).index(loss))
    scales = {"eta": scale, "boundary": scale * boundaries, "triples": seen(X, y)}
    best = quadratic_program(X, y, 3, *LOSSES[loss], C=0.7, slack=slack, **scales)
    plain = {**scales, "triples": ()}
    assert best < 0.999 * quadratic_program(X, y, 3, *LOSSES[loss], C=0.7, slack=slack, **plain)
    given = {"loss": COST if loss == "matrix" else loss, "transition_scale": scale}
    given |= {"transition_features": COLUMNS, "boundaries": boundaries, "slack": slack, "C": 0.7}
    for solver in SOLVERS[: 2 if loss == "zero_one" else 3]:
        tol = 1e-4 if solver == "smoothing" else 1e-8
        tagger = HMSVMTagger(solver=solver, **given, **{**TIGHT, "tol": tol}).fit(X, y)
        assert best * (1 - 1e-6) <= tagger.objective_ <= best * (1 + 1.01 * tol + 1e-6)
        assert tagger.objective_ - tagger.dual_gap_ <= best * (1 + 1e-6)
        assert tagger.transition_coef_.shape == (3, 9)
        assert tagger.transition_coef_.nnz <= len(seen(X, y))


def test_hard_margin_equals_the_program():
    X, y = data(3, n_features=8, separable=True)
    best = quadratic_program(X, y, 3, *LOSSES["hamming"], C=1, slack="hard", triples=seen(X, y))
    for solver in SOLVERS[:2]:
        tagger = HMSVMTagger(C=np.inf, solver=solver, transition_features=COLUMNS, **TIGHT)
        assert_allclose(tagger.fit(X, y).objective_, best, rtol=1e-6)
        assert tagger.score(X, y) == 1


@pytest.mark.parametrize("offset", [0.0, 1.0])
@pytest.mark.parametrize("T", [1, 2, 4])
def test_most_violated_equals_enumeration(T, offset):
    rng, L = np.random.default_rng(T), 3
    allowed = np.ones((L, L), dtype=bool)
    allowed[0, 2] = False
    y = np.sort(rng.integers(1, L, size=T))[::-1].copy()
    x = rng.normal(size=(T, 3)) * (rng.random((T, 3)) < 0.7)
    X = Sequences(sparse.csr_matrix(x), np.array([0, T]))
    triples = np.flatnonzero(np.tile(allowed.ravel(), 2) & (rng.random(18) < 0.8))
    triples = np.where(triples < 9, triples, triples + 9)  # of columns 0 and 2
    features = TransitionFeatures(X, triples, L, np.float64)
    margin = Margin(PathLoss(COST, offset), "l1", resolve_constraints(allowed, np.arange(L)))
    hinge = StructuredHinge(
        linear_rows(X.rows), X.offsets, y, np.ones(1), margin, features=features
    )
    state = hinge.kernel.arrays
    for name in ("W", "score", "start", "end", "v"):
        part = state[name] if name in ("W", "v") else state[name][(slice(L),) * state[name].ndim]
        part += rng.normal(size=part.shape)
    state["W"][:, L:] = 0
    state["score_t"][...] = state["score"].T
    before = {name: value.copy() for name, value in state.items()}
    w, V = hinge.weights(), hinge.triples().toarray().reshape(3, L, L)

    def score(p):
        pairs = sum(
            w.transition[a, b] + x[t] @ V[:, a, b] for t, (a, b) in enumerate(zip(p, p[1:]), 1)
        )
        return (x @ w.coef)[np.arange(T), p].sum() + w.start[p[0]] + w.end[p[-1]] + pairs

    wrong = [p for p in all_paths(T, L) if (p != y).any() and score(p) > -np.inf]
    path, g = hinge.most_violated(0)
    values = [offset + COST[y, p].sum() + score(p) - score(y) for p in wrong]
    assert_allclose(g, max(values), rtol=1e-12, atol=1e-12)
    assert_array_equal(path, wrong[int(np.argmax(values))])
    for name, value in before.items():  # what a row replaces is back, to the bit
        assert_array_equal(state[name], value)


def test_paths_of_support_make_the_weights():
    # Weights and inner products by the definition of features, from scratch.
    X, y = data(1, lengths=[3, 2, 4, 1])
    given = {"transition_features": COLUMNS, "transition_scale": 1.5, "random_state": 0}
    tagger = HMSVMTagger(solver="bcfw", **given).fit(X, y)
    triples, total = seen(X, y), 0
    scales = (3, 1.5, 1.5, triples)
    for s, labels, alpha in tagger.support_sequences_:
        total += alpha * (path_features(X[s], y[s], *scales) - path_features(X[s], labels, *scales))
    assert_allclose(total[:9].reshape(3, 3), tagger.coef_, atol=1e-9)
    dense = tagger.transition_coef_.toarray().reshape(3, 3, 3)
    assert_allclose(1.5 * total[24:], [dense[t] for t in triples], atol=1e-9)
    problem_ = MarginProblem(tagger, RowSource.read(X, y, None)).objective
    problem_.start_from(kept_paths(tagger), resolve_constraints(None, tagger.classes_))
    coef = problem_.weights().coef.ravel()  # all by the same factor
    factor = (coef @ total[:9]) / (total[:9] @ total[:9])
    assert_allclose(problem_.kernel.arrays["v"], factor * 1.5 * total[24:], atol=1e-9)
    paths = problem_.support_paths()
    A = []
    for k, s in enumerate(paths.sequence):
        (_, rows), labels = paths.select(np.array([k])).rows(), np.array(y[s])
        labels[rows - problem_.offsets[s]] = paths.select(np.array([k])).labels
        A.append(path_features(X[s], y[s], *scales) - path_features(X[s], labels, *scales))
    gram = path_gram(paths, problem_.y, 3, problem_.source.matrix(), (1.5, 1.5), problem_.features)
    assert_allclose(gram, np.array(A) @ np.array(A).T, atol=1e-10)


def slow_perceptron(X, y, triples, order, n_passes):
    """Collins's Figure 1, with the average of the weights after each visit."""
    given = (3, 1.0, 1.0, triples)
    w = np.zeros(len(path_features(X[0], y[0], *given)))
    total, visits, mistakes = np.zeros(len(w)), 0, 0
    for _ in range(n_passes):
        for s in order(len(X)):
            phi = path_features(X[s], y[s], *given)
            wrong = [p for p in all_paths(len(y[s]), 3) if (p != y[s]).any()]
            scores = [w @ path_features(X[s], p, *given) for p in wrong]
            if max(scores) >= w @ phi:
                guess = wrong[int(np.argmax(scores))]
                if not w.any():  # all paths tie: ours differs in the last label that is not 0
                    guess = y[s].copy()
                    guess[np.flatnonzero(guess)[-1]] = 0
                w, mistakes = w + phi - path_features(X[s], guess, *given), mistakes + 1
            total, visits = total + w, visits + 1
    return w, total / visits, mistakes


def test_perceptron_equals_the_slow_one():
    X, y = problem(11, lengths=[3] * 8)
    triples, order = seen(X, y), np.random.default_rng(4).permutation
    last, mean, mistakes = slow_perceptron(X, y, triples, order, 5)
    for average, expected in ((False, last), (True, mean)):
        tagger = HMSVMTagger(
            solver="perceptron", average=average, max_iter=5, random_state=4,
            transition_features=COLUMNS,
        ).fit(X, y)  # fmt: skip
        assert tagger.n_mistakes_ == mistakes > 10
        dense = tagger.transition_coef_.toarray().reshape(3, 3, 3)
        assert_allclose([dense[t] for t in triples], expected[24:], atol=1e-10)
        assert_allclose(tagger.coef_.ravel(), expected[:9], atol=1e-10)
        assert_allclose(tagger.transition_.ravel(), expected[9:18], atol=1e-10)


@pytest.mark.parametrize("average", [True, False])
def test_batches_of_the_perceptron_are_passes_of_fit(average):
    X, y = words_and_labels(n=40)
    rows = TemplateFeatures(TEMPLATE, bos_eos=False).fit_transform(X)
    state, options = np.random.RandomState, {"solver": "perceptron", "average": average}
    fitted = HMSVMTagger(max_iter=4, random_state=state(1), **options).fit(rows, y)
    tagger = HMSVMTagger(random_state=state(1), **options)
    for _ in range(4):
        tagger = pickle.loads(pickle.dumps(tagger)).partial_fit(rows, y, fitted.classes_)
    assert_array_equal(tagger.loss_curve_, fitted.loss_curve_)
    for name in ("coef_", "transition_", "start_", "end_"):
        assert_allclose(getattr(tagger, name), getattr(fitted, name), atol=1e-9)
    coefs = (one.transition_coef_.toarray() for one in (tagger, fitted))
    assert_allclose(*coefs, atol=1e-9)
    assert_array_equal(np.concatenate(tagger.predict(rows)), np.concatenate(fitted.predict(rows)))


def test_batches_with_other_triples_keep_what_was_learned():
    X, y = problem(5, lengths=[4] * 30)
    tagger = HMSVMTagger(
        solver="perceptron", average=False, random_state=0, transition_features=COLUMNS
    )
    before = np.zeros((3, 9))
    for k in range(0, 30, 3):
        for x in X[k : k + 3]:
            x[:, 2] *= k % 2 == 0
        tagger.partial_fit(X[k : k + 3], y[k : k + 3], [0, 1, 2])
        now, free = tagger.transition_coef_.toarray(), np.zeros((3, 9), dtype=bool)
        for f, i, j in seen(X[: k + 3], y[: k + 3]):
            free[f, 3 * i + j] = True
        assert not now[~free].any()
        if k % 2:  # new triples of column 0 leave the weights of column 2 where they are
            assert_array_equal(now[2], before[2])
        before = now
    assert before.any()
    with pytest.raises(ValueError, match="got X without transition features, but training began"):
        tagger.set_params(transition_features=None).partial_fit(X, y)
    assert_array_equal(tagger.transition_coef_.toarray(), before)


@pytest.mark.parametrize("scale", [1.0, 2.0])
@pytest.mark.parametrize("slack", ["l1", "l2"])
def test_the_gradient_of_the_softened_objective_equals_differences(slack, scale):
    X, y = data(0)
    given = {"C": 0.7, "loss": COST, "slack": slack, "transition_scale": scale}
    tagger = HMSVMTagger(solver="smoothing", transition_features=COLUMNS, **given)
    f = MarginProblem(tagger, RowSource.read(X, y, [1.0, 2.0, 0.5, 3.0])).objective
    v = f.cool(0.3)
    used = np.flatnonzero(f.scores.pack(f.scores.unpack(v + 1), f.scores.unpack_triples(v + 1)))
    assert len(used) == 9 + 15 + len(seen(X, y))
    v[used] = np.random.default_rng(0).normal(size=len(used))
    gradient, other, step = np.empty_like(v), np.empty_like(v), 1e-6
    f.value_and_gradient(v, gradient)
    for k in used:
        e = step * (np.arange(len(v)) == k)
        up, down = (f.value_and_gradient(v + s * e, other) for s in (1, -1))
        assert_allclose(gradient[k], (up - down) / (2 * step), atol=1e-7)


@pytest.mark.parametrize(
    ("form", "slack"),
    [(np.asarray, "l1"), (sparse.csr_matrix, "l2"), (lambda x: x.astype(np.float32), "l1")],
)
def test_weights_constraints_forms_and_empty_sequences(slack, form):
    X, y = data(4, lengths=[5] * 7 + [0, 1])
    y = [np.sort(labels) for labels in y]
    X, allowed = [form(x) for x in X], np.triu(np.ones((3, 3), dtype=bool))
    weights = np.array([2.0, 1, 1, 0, 1, 3, 1, 1, 1])
    options = {"constraints": allowed, "tol": 1e-4, "max_iter": 5000, "random_state": 0}
    options |= {"slack": slack, "transition_features": COLUMNS}
    fitted = [HMSVMTagger(solver=solver, **options).fit(X, y, weights) for solver in SOLVERS]
    for tagger in fitted:
        assert tagger.objective_ == pytest.approx(fitted[0].objective_, rel=2e-4)
        assert_array_equal(np.isfinite(tagger.transition_), allowed)
        assert not tagger.transition_coef_.toarray()[:, ~allowed.ravel()].any()
        assert all((np.diff(labels) >= 0).all() for labels in tagger.predict(X))
        assert tagger.transition_coef_.dtype == tagger.coef_.dtype == X[0].dtype
        margins = tagger.decision_function(X)
        assert [m.argmax(axis=1).tolist() for m in margins[:3]] == tagger.predict(X[:3])


def test_columns_of_b_lines_and_strongest_weights():
    X, y = words_and_labels()
    rows = TemplateFeatures(TEMPLATE, bos_eos=False).fit_transform(X)
    for solver in (*SOLVERS, "perceptron"):
        tagger = HMSVMTagger(solver=solver, random_state=0).fit(rows, y)
        assert not tagger.coef_[rows.roles == 2].any()
        assert tagger.coef_[rows.roles != 2].any()
        counts = np.diff(tagger.transition_coef_.indptr)
        assert not counts[rows.roles == 1].any()
        assert counts[rows.roles >= 2].any()
        weight, before, label, name = tagger.top_transition_features(1)[0]
        assert abs(weight) == np.abs(tagger.transition_coef_.data).max()
        assert (before, name[0]) in {(c, "x") for c in tagger.classes_}
        assert label in tagger.classes_
    plain = HMSVMTagger(random_state=0).fit(Sequences(rows.rows, rows.offsets), y)
    assert plain.transition_coef_ is None
    assert plain.top_transition_features() == []


def test_names_pipelines_and_searches():
    X, y = words_and_labels(n=60)
    dicts = [[{"w": w} for w in x] for x in X]
    given = {"transition_features": "^w:[ac]", "random_state": 0, "solver": "bcfw", "tol": 1e-6}
    search = HMSVMTaggerCV(Cs=[0.1, 1.0], cv=3, **given).fit(dicts, y)
    plain = GridSearchCV(HMSVMTagger(**given), {"C": [0.1, 1.0]}, cv=3).fit(dicts, y)
    assert_allclose(search.scores_.mean(axis=0), plain.cv_results_["mean_test_score"], atol=0.02)
    assert search.transition_coef_.nnz
    assert clone(search).transition_features == "^w:[ac]"
    tagger = HMSVMTagger(**given).fit(dicts, y)
    names = tagger.feature_names_in_
    chosen = [name in ("w:a", "w:c") for name in names]
    assert_array_equal(np.diff(tagger.transition_coef_.indptr) > 0, chosen)
    again = pickle.loads(pickle.dumps(tagger))
    assert_array_equal(np.concatenate(again.predict(dicts)), np.concatenate(tagger.predict(dicts)))
    model = make_pipeline(TemplateFeatures(TEMPLATE, bos_eos=False), HMSVMTagger(random_state=0))
    with_b = model.fit(X, y).score(X, y)
    model.set_params(templatefeatures__templates="U00:%x[0,0]\nU02:%x[-1,0]")
    assert with_b > model.fit(X, y).score(X, y)


def test_kernels_refuse_them():
    X, y = words_and_labels()
    rows = TemplateFeatures(TEMPLATE, bos_eos=False).fit_transform(X)
    message = "Transition features, which X or transition_features gives, have weights of their own"
    for call in (
        lambda: HMSVMTagger(kernel="rbf").fit(rows, y),
        lambda: HMSVMTagger(kernel="poly", transition_features=[0]).fit(
            Sequences(rows.rows, rows.offsets), y
        ),
        lambda: HMSVMTaggerCV(kernel="rbf", cv=2).fit(rows, y),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_hard_margin_that_only_transition_features_give():
    # The same columns; the label after "b" depends on the pair of labels and the row.
    X, y = words_and_labels(n=20, T=4)
    rows = TemplateFeatures(TEMPLATE, bos_eos=False).fit_transform(X)
    tagger = HMSVMTagger(C=np.inf, random_state=0, max_iter=5000).fit(rows, y)
    assert tagger.score(rows, y) == 1
    twice = rows[[0, *range(len(y))]]
    other = [list(z) for z in [y[0], *y]]
    other[0][-1] = next(c for c in tagger.classes_ if c != other[0][-1])
    with pytest.raises(ValueError, match=r"but sequences 0, .* cannot all score above"):
        HMSVMTagger(C=np.inf, random_state=0, max_iter=5000).fit(twice, other)


def test_warm_starts_from_the_dual_variables():
    X, y = data(2, lengths=[4] * 12)
    tagger = HMSVMTagger(
        solver="bcfw", warm_start=True, transition_features=COLUMNS, tol=1e-6, random_state=0,
        max_iter=10_000,
    ).fit(X, y)  # fmt: skip
    n, objective = tagger.n_iter_, tagger.objective_
    tagger.fit(X, y)
    assert tagger.n_iter_ < n
    assert tagger.objective_ == pytest.approx(objective, rel=1e-5)


def test_rows_without_transition_features():
    X, y = [np.eye(3)[:1], np.eye(3)[1:2]], [[0], [1]]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for solver in (*SOLVERS, "perceptron"):
            tagger = HMSVMTagger(solver=solver, transition_features=[0], random_state=0).fit(X, y)
            assert tagger.transition_coef_.nnz == 0
            assert_array_equal(np.concatenate(tagger.predict(X)), [0, 1])


def random_case(seed):
    """Parameters, rows of random units, labels that agree with the constraints, and weights."""
    rng = np.random.default_rng(seed)
    lengths = rng.permutation([*rng.integers(0, 5, int(rng.integers(1, 6))), 3])
    X, y = problem(seed, lengths=[3, *lengths])
    units = 10 ** rng.uniform(-1, 1, 3)
    X = [x * units * (rng.random(x.shape) < 0.7) for x in X]
    given = {"C": 10 ** rng.uniform(-2, 1), "slack": ("l1", "l2")[seed % 2]}
    given |= {"loss": ["hamming", COST, "zero_one"][seed % 3], "boundaries": seed % 5 > 0}
    given |= {"transition_scale": [1.0, 0.5, 2.0][seed // 3 % 3], "random_state": seed}
    given["transition_features"] = rng.permutation(3)[: 1 + seed % 3]
    if seed % 4 == 0:
        y, given["constraints"] = [np.sort(z) for z in y], np.triu(np.ones((3, 3), dtype=bool))
    weights = rng.integers(0, 3, len(X)).astype(float)
    weights[0] = 1
    X = [[np.asarray, sparse.csr_matrix][seed // 2 % 2](x) for x in X]
    return given, X, y, weights


def objective_of(tagger, X, y, weights):
    """The objective of a tagger's weights, by all labelings."""
    L, eta, power = len(tagger.classes_), tagger.transition_scale, 1 + (tagger.slack == "l2")
    V, A = tagger.transition_coef_.toarray().reshape(-1, L, L), tagger.transition_
    chain = (A[np.isfinite(A)], tagger.start_, tagger.end_, V)
    total = 0.5 * (np.sum(tagger.coef_**2) + sum(np.sum(w**2) for w in chain) / eta**2)
    loss = tagger.loss
    cost = 1 - np.eye(L) if isinstance(loss, str) else np.asarray(loss)
    for x, truth, weight in zip(X, y, weights):
        if weight == 0 or not len(truth):
            continue
        x, truth = x.toarray() if sparse.issparse(x) else x, np.asarray(truth)
        psi, values = x @ tagger.coef_, []
        pairs = A + np.einsum("tf,fij->tij", x, V)
        for p in all_paths(len(truth), L):
            score = psi[np.arange(len(p)), p].sum() + tagger.start_[p[0]] + tagger.end_[p[-1]]
            score += sum(pairs[t, p[t - 1], p[t]] for t in range(1, len(p)))
            if isinstance(loss, str) and loss == "zero_one":
                values.append(score + (p != truth).any())
            else:
                values.append(score + cost[truth, p].sum())
            if (p == truth).all():
                of_truth = score
        total += tagger.C * weight * (max(values) - of_truth) ** power
    return total


def check_solvers(seed):
    """Objectives are those of the weights, and no dual value exceeds a primal one."""
    given, X, y, weights = random_case(seed)
    bounds = []
    for solver in SOLVERS[: 2 if given["loss"] is not COST and seed % 3 == 2 else 3]:
        tagger = HMSVMTagger(solver=solver, tol=1e-3, max_iter=20_000, **given)
        tagger.fit(X, y, weights)
        assert_allclose(tagger.objective_, objective_of(tagger, X, y, weights), rtol=1e-8)
        bounds.append((tagger.objective_ - tagger.dual_gap_, tagger.objective_))
        assert tagger.dual_gap_ <= 1e-3 * tagger.objective_ * (1 + 1e-9)
    lower, upper = np.array(bounds).T
    assert lower.max() <= upper.min() * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_solvers_agree(seed):
    check_solvers(seed)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("columns", [None, COLUMNS])
def test_explained_terms_add_up_to_the_score_of_the_path(form, columns):
    X, y = data(3, lengths=(4, 3, 5, 1, 6))
    X = [form(x) for x in X]
    tagger = HMSVMTagger(transition_features=columns, transition_scale=2.0, random_state=0)
    tagger.fit(X, y)
    found, pairs = [tagger.explain(x) for x in X], 0
    for rows, labels, (_, scores) in zip(found, tagger.predict(X), tagger.predict_nbest(X, 1)):
        assert_array_equal([row.label for row in rows], labels)
        assert {row.probability for row in rows} == {None}
        terms = [term for row in rows for term in row.contributions]
        assert_allclose(sum(score for _, score in terms), scores[0], rtol=1e-10)
        pairs += sum("," in name for name, _ in terms)
    assert (pairs > 0) == (columns is not None)

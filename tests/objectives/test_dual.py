"""Exponentiated gradient ascent against L-BFGS, and the certificate against both."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from sklseq import CRFTagger, Sequences
from sklseq._lib.threads import Threads
from sklseq.datasets import make_contacts
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.source import RowSource
from sklseq.features import TokenFeatures
from sklseq.objectives.likelihood.dual import DualLikelihood
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.solvers import exponentiated_gradient
from tests.sample_data import make_sparse_data

# The dual keeps marginals in float32, so its value is good to about 1e-7 of the objective.
ROUNDING = 1e-6
SEEDS = range(3)


def likelihood_of(tagger, X, y, threads, weights=None):
    classes, codes = np.unique(np.concatenate(y), return_inverse=True)
    source = RowSource(X, codes.astype(np.int32), classes)
    scores = score_map(tagger, source, source.summarise(), single_sequences=True)
    weights = np.ones(len(X)) if weights is None else weights
    return LogLikelihood(scores, codes.astype(np.int32), X.offsets, weights, tagger.l2, threads)


MODELS = [
    {"l2": 1.0},
    {"l2": 1.0, "all_possible_states": True, "all_possible_transitions": True},
    {"l2": 1.0, "boundaries": False},
    {"l2": 0.3},
    {"l2": 20.0},
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_value_alone_is_that_beside_the_gradient(seed, model, n_jobs):
    X, y = make_sparse_data(seed)
    rng = np.random.default_rng(seed)
    with Threads(n_jobs) as threads:
        primal = likelihood_of(CRFTagger(**model), X, y, threads, rng.random(len(X)))
        w, gradient = primal.scores.new_vector(), primal.scores.new_vector()
        w[:] = primal.scores.pack(primal.scores.unpack(rng.normal(size=len(w))))
        before = primal.value(w)
        assert primal.value_and_gradient(w, gradient) == pytest.approx(before, rel=1e-13)
        again = gradient.copy()
        primal.value(w)  # and it leaves nothing behind
        primal.value_and_gradient(w, gradient)
    assert_array_equal(gradient, again)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("L", [2, 3, 5, 9])
def test_the_dual_never_exceeds_the_objective_and_meets_it(seed, model, L):
    X, y = make_sparse_data(seed, L=L)
    tagger = CRFTagger(**model)
    with Threads(1) as threads:
        primal = likelihood_of(tagger, X, y, threads)
        dual = DualLikelihood(primal)
        gradient, values = np.zeros_like(dual.w), []
        for _ in range(1500):
            dual.ascend(np.random.default_rng(seed).permutation(dual.sequences))
            values.append(dual.value)
            value = primal.value_and_gradient(dual.w, gradient)
            assert value >= dual.value - ROUNDING * abs(value)
            if value - dual.value <= 1e-4 * abs(value):
                break
    assert np.all(np.diff(values[1:]) >= -ROUNDING * abs(values[-1]))
    assert value - dual.value <= 1e-4 * abs(value)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_weights_are_those_of_the_marginals(seed, model):
    # w = 1/(2 l2) * (observed - expected): no weight drifts away while rows are updated.
    X, y = make_sparse_data(seed)
    with Threads(1) as threads:
        primal = likelihood_of(CRFTagger(**model), X, y, threads)
        dual = DualLikelihood(primal)
        for _ in range(7):
            dual.ascend(dual.sequences)
        residual = dual.mu[:, :3].astype(np.float64)
        residual[np.arange(len(primal.y)), primal.y] -= 1
        coef = primal.scores.unpack(dual.w).coef
        expected = -(X.rows.T @ residual) / dual.lam
        trained = coef != 0
        assert_allclose(coef[trained], expected[trained], rtol=1e-6, atol=1e-9)


def problem_with_transition_features(seed, n=40):
    """(tagger, X, y, weights): one to four such features, sometimes with forbidden transitions."""
    rng = np.random.default_rng(seed)
    L, M = int(rng.choice([2, 3, 5, 9])), 6
    X, y = make_sparse_data(seed, n=n, M=M, L=L)
    if seed % 2:
        X = Sequences(X.rows.astype(np.float32), X.offsets)
    tagger = CRFTagger(
        l1=[0.0, 0.3][seed // 2 % 2], l2=10 ** rng.uniform(-0.5, 1), max_iter=2000,
        all_possible_transitions=seed % 3 == 0, all_possible_states=seed % 4 == 0,
        transition_features=rng.permutation(M)[: 1 + seed % 4], boundaries=seed % 5 > 0,
    )  # fmt: skip
    if seed % 7 == 0:
        y = [np.maximum.accumulate(labels) for labels in y]
        tagger.set_params(constraints=np.triu(np.ones((L, L), bool)))
    return tagger, X, y, 2 * rng.random(len(X))


@pytest.mark.parametrize("seed", range(14))
def test_the_gap_of_transition_features_closes_from_above(seed):
    tagger, X, y, weights = problem_with_transition_features(seed)
    with Threads(1) as threads:
        primal = likelihood_of(tagger, X, y, threads, weights)
        dual, values = DualLikelihood(primal, tagger.l1), []
        for _ in range(400):
            dual.ascend(np.random.default_rng(seed).permutation(dual.sequences))
            values.append(dual.value)
            value = primal.value(dual.w) + tagger.l1 * np.abs(dual.w).sum()
            assert value >= dual.value - ROUNDING * abs(value)
            if value - dual.value <= 1e-3 * value:
                break
    assert np.abs(primal.scores.triples(dual.w)).max() > 1e-3
    assert np.all(np.diff(values[1:]) >= -ROUNDING * abs(values[-1]))
    assert value - dual.value <= 1e-3 * value


@pytest.mark.parametrize("seed", range(14))
@pytest.mark.filterwarnings("ignore:.*little or no weight:UserWarning")
def test_transition_features_by_the_dual_and_by_lbfgs_are_the_same(seed):
    tagger, X, y, weights = problem_with_transition_features(seed)
    a = clone(tagger).set_params(solver="dual", tol=1e-5).fit(X, y, weights)
    b = clone(tagger).set_params(solver="lbfgs", tol=1e-8).fit(X, y, weights)
    assert a.objective_ == pytest.approx(b.objective_, rel=2e-5)
    assert a.transition_coef_.dtype == b.transition_coef_.dtype
    difference = (a.transition_coef_ - b.transition_coef_).toarray()
    assert (difference**2).sum() <= 2e-5 * b.objective_ / a.l2
    assert_array_equal(np.isinf(a.transition_), np.isinf(b.transition_))


@pytest.mark.parametrize("seed", [4, 6])
def test_threads_train_transition_features(seed):
    tagger, X, y, weights = problem_with_transition_features(seed, n=220)
    with Threads(2) as threads:
        primal = likelihood_of(tagger, X, y, threads, weights)
        dual, rng = DualLikelihood(primal, tagger.l1), np.random.default_rng(0)
        for _ in range(100):
            dual.ascend(rng.permutation(dual.sequences))
            value = primal.value(dual.w) + tagger.l1 * np.abs(dual.w).sum()
            assert dual.value <= value + ROUNDING * value
    assert value - dual.value <= 3e-3 * value


@pytest.mark.parametrize("n_jobs", [2, 3])
@pytest.mark.parametrize("l1", [0.0, 0.5])
@pytest.mark.parametrize("states", [False, True])
def test_threads_keep_the_dual_and_its_weights(n_jobs, l1, states):
    # After each merge w is that of all marginals, and D that of w and the entropies.
    X, y = make_sparse_data(5, n=n_jobs * 110)
    tagger = CRFTagger(l1=l1, l2=0.5, all_possible_states=states)
    with Threads(n_jobs) as threads:
        primal = likelihood_of(tagger, X, y, threads)
        dual, rng = DualLikelihood(primal, l1), np.random.default_rng(0)
        for _ in range(60):
            before = dual.value
            dual.ascend(rng.permutation(dual.sequences))
            assert dual.value >= before - 0.05 * abs(before)
            value = primal.value(dual.w) + l1 * np.abs(dual.w).sum()
            assert dual.value <= value + ROUNDING * abs(value)
        residual = dual.mu[:, :3].astype(np.float64)
        residual[np.arange(len(primal.y)), primal.y] -= 1
        u = -(X.rows.T @ residual) / dual.lam
        expected = np.sign(u) * np.maximum(np.abs(u) - dual.threshold, 0)
        coef = primal.scores.unpack(dual.w).coef
        trained = coef != 0
        assert_allclose(coef[trained], expected[trained], rtol=1e-5, atol=1e-7)
        assert value - dual.value <= 3e-3 * value
        assert 1 <= dual.sigma <= n_jobs


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "form", ["sparse", "dense", "ones", "float32", "constraints", "weights", "l1", "l1 all states"]
)
@pytest.mark.filterwarnings("ignore:.*little or no weight:UserWarning")
def test_eg_and_lbfgs_find_the_same_model(seed, form):
    X, y = make_sparse_data(seed, ones=form == "ones")
    if form == "dense":
        X = Sequences(X.rows.toarray(), X.offsets)
    if form == "float32":
        X = Sequences(X.rows.astype(np.float32), X.offsets)
    model = {"l2": 0.3}
    if form.startswith("l1"):
        model = {"l2": 0.3, "l1": 1.0, "all_possible_states": form == "l1 all states"}
    if form == "constraints":
        y = [np.maximum.accumulate(labels) for labels in y]  # labels never go down
        model["constraints"] = np.triu(np.ones((3, 3), bool))
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 3, len(X)).astype(float) if form == "weights" else None
    if form == "weights":
        weight[:2] = 1
    a = CRFTagger(solver="eg", tol=1e-5, max_iter=2000, **model).fit(X, y, weight)
    b = CRFTagger(solver="auto", tol=1e-8, max_iter=2000, **model).fit(X, y, weight)
    if form.startswith("l1"):
        assert 0.2 < (a.coef_ == 0).mean() < 1
        # Weights on the edge of the threshold may fall on either side.
        assert ((a.coef_ == 0) != (b.coef_ == 0)).mean() < 0.1
    assert a.coef_.dtype == b.coef_.dtype
    # Proved to be within 1e-5 of the optimum.
    assert a.objective_ <= b.objective_ * (1 + 2e-5)
    assert b.objective_ <= a.objective_ * (1 + 2e-5)
    # f is strongly convex with 2 · l2, so a gap bounds the distance: gap >= l2 · ‖difference‖².
    assert ((a.coef_ - b.coef_) ** 2).sum() <= 2e-5 * b.objective_ / a.l2
    assert_array_equal(np.isinf(a.transition_), np.isinf(b.transition_))


def test_a_smaller_tolerance_is_finished_by_lbfgs():
    X, y = make_sparse_data(0)
    a = CRFTagger(solver="eg", tol=1e-9, max_iter=2000).fit(X, y)
    b = CRFTagger(solver="lbfgs", tol=1e-9, max_iter=2000).fit(X, y)
    # Both are within 1e-9 of the minimum, and f is strongly convex with 2 · l2.
    assert ((a.coef_ - b.coef_) ** 2).sum() <= 4e-9 * b.objective_ / b.l2


def test_same_seed_same_bits_and_another_order_the_same_model():
    X, y = make_sparse_data(1)
    taggers = [CRFTagger(l2=1, solver="eg", tol=1e-5, random_state=s) for s in (0, 0, 1)]
    fits = [tagger.fit(X, y).coef_ for tagger in taggers]
    assert_array_equal(fits[0], fits[1])
    assert not np.array_equal(fits[0], fits[2])
    assert_allclose(fits[0], fits[2], atol=0.02)


def text_with_one_frequent_label(seed, n=600):
    """Words as columns, of the row and its neighbours; nine rows in ten have label 0."""
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(1 + rng.poisson(10, n)))
    words = np.minimum(rng.zipf(1.5, offsets[-1]), 2000) - 1
    inside = (rng.random(2000) < 0.1)[words]
    goes_on = inside & np.roll(inside, 1)
    goes_on[offsets[:-1]] = False
    around = [words, 2000 + np.roll(words, 1), 4000 + np.roll(words, -1), np.full(len(words), 6000)]
    columns, ends = np.column_stack(around).reshape(-1), 4 * np.arange(len(words) + 1)
    rows = sparse.csr_matrix((np.ones(len(columns)), columns, ends), (len(words), 6001))
    return Sequences(rows, offsets), np.split(inside.astype(int) + goes_on, offsets[1:-1])


# (With the same first steps as one thread, two updated on 1.73, 1.91 and 1.51 times as many rows.)
@pytest.mark.parametrize(("seed", "n"), [(0, 300), (1, 300), (0, 600)])
def test_two_threads_update_on_few_more_rows_than_one(seed, n, monkeypatch):
    X, y = text_with_one_frequent_label(seed, n)
    rows, ascend = [0, 0, 0], DualLikelihood.ascend

    def counting(dual, order):
        rows[dual.threads.n] += np.diff(dual.offsets)[order].sum()
        return ascend(dual, order)

    monkeypatch.setattr(DualLikelihood, "ascend", counting)
    one, two, again = (CRFTagger(solver="dual", l2=0.5, n_jobs=k).fit(X, y) for k in (1, 2, 2))
    assert rows[2] / 2 <= 1.35 * rows[1]
    assert_array_equal(two.coef_, again.coef_)
    # Both gaps are proven, so each is within tol of the minimum.
    assert two.solver_ == one.solver_ == "dual"
    assert two.objective_ == pytest.approx(one.objective_, rel=one.tol)


def test_threads_do_not_change_the_answer():
    X, y = make_sparse_data(2)
    one, two = (CRFTagger(solver="eg", n_jobs=n).fit(X, y).coef_ for n in (1, 2))
    assert_allclose(one, two, rtol=1e-9, atol=1e-9)


def test_scores_far_apart_take_shorter_steps_instead_of_breaking():
    X, y = make_sparse_data(0)
    X = Sequences(X.rows * 1e3, X.offsets)
    tagger = CRFTagger(solver="eg", max_iter=3, tol=1e-3)
    with pytest.warns(ConvergenceWarning):
        tagger.fit(X, y)
    assert np.isfinite(tagger.coef_).all()
    assert np.isfinite(tagger.objective_)
    # L-BFGS, which scales features, goes on from there.
    tagger.set_params(max_iter=60).fit(X, y)
    expected = CRFTagger(solver="lbfgs", tol=1e-9).fit(X, y)
    assert tagger.objective_ <= expected.objective_ * (1 + 2e-3)


def test_where_ascent_is_slow_lbfgs_takes_over():
    # Every row with one label and with another: the optimum lies deep inside, and l2 is small.
    X, y = make_sparse_data(0)
    X = Sequences(
        sparse.vstack([X.rows, X.rows], "csr"), np.r_[X.offsets, X.offsets[1:] + X.n_rows]
    )
    y = y + [2 - labels for labels in y]
    a = CRFTagger(solver="eg", l2=0.001, tol=1e-5, max_iter=2000).fit(X, y)
    b = CRFTagger(solver="lbfgs", l2=0.001, tol=1e-9, max_iter=2000).fit(X, y)
    assert a.n_iter_ < 500
    assert a.objective_ <= b.objective_ * (1 + 1e-4)


def test_there_are_never_more_iterations_than_asked_for(capsys):
    X, y = make_sparse_data(0)
    tagger = CRFTagger(solver="eg", tol=1e-14, max_iter=30, verbose=1)
    with pytest.warns(ConvergenceWarning):
        tagger.fit(X, y)
    lines = [line for line in capsys.readouterr().out.splitlines() if "iteration" in line]
    assert tagger.n_iter_ == len(lines) == 30
    assert "iteration 30 (lbfgs):" in lines[-1]


@pytest.mark.parametrize(("factor", "n_jobs"), [(0.13, 1), (0.3, 2)])
def test_an_ascent_that_begins_far_away_is_given_up(factor, n_jobs):
    # Many rows of long documents have the same features.
    X, y = make_contacts(50, random_state=1)
    rows = TokenFeatures(columns="w").fit_transform(X)
    l2 = factor * rows.rows.nnz / rows.n_rows
    tagger = CRFTagger(l2=l2, solver="dual", n_jobs=n_jobs).fit(rows, y)
    assert tagger.solver_ == "dual+adagrad+lbfgs"
    best = CRFTagger(l2=l2, solver="lbfgs", tol=1e-6).fit(rows, y).objective_
    assert best * (1 - 1e-6) <= tagger.objective_ <= best * 1.01
    for most in (4, 5):
        with pytest.warns(ConvergenceWarning):
            assert tagger.set_params(max_iter=most).fit(rows, y).n_iter_ == most


def test_passes_and_stops_are_reported():
    X, y = make_sparse_data(0)
    with Threads(1) as threads:
        primal = likelihood_of(CRFTagger(), X, y, threads)
        seen = []
        result = exponentiated_gradient(
            DualLikelihood(primal),
            primal,
            tol=1e-4,
            max_iter=3,
            callback=lambda k, value, w: seen.append(k) or k == 2,
        )
    assert seen == [1, 2]
    assert result.message == "callback"
    assert result.n_iter == 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"l2": 0.0}, r"solver='eg' needs l2 > 0; got 0"),
        ({"warm_start": True}, r"solver='eg' cannot start from given weights"),
    ],
)
def test_what_eg_cannot_do(parameters, message):
    X, y = make_sparse_data(0)
    with pytest.raises(ValueError, match=message):
        CRFTagger(solver="eg", **parameters).fit(X, y)

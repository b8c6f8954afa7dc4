"""ZScoreTagger: three ways to its weights agree, and with the CRF's Newton step."""

import pickle
import tracemalloc
import warnings
from decimal import localcontext

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from sklseq import CRFTagger, Sequences, ZScoreTagger, ZScoreTaggerCV
from sklseq._lib.inverse_root import InverseRoot
from sklseq._lib.threads import Threads
from sklseq.estimators.zscore import ridge_systems
from sklseq.estimators.zscore.ridge_systems import RidgeSystems
from sklseq.estimators.zscore.separate import FreeSystem, _differences
from sklseq.inference import sample as sample_paths
from sklseq.inference import viterbi
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.scores.score_map import ScoreMap, Weights, full_support
from sklseq.objectives.zscore.leave_out import LeaveOut
from sklseq.objectives.zscore.moments import ChainWeights, Sample, decompose, extended_rows
from sklseq.solvers import _dense, cg, least_distance, solve_dense
from tests.objectives.test_moments import (
    LABELS,
    best_weights,
    enumerate_moments,
    labelings,
    make_sample,
    path_features,
    random_cost,
)
from tests.oracles import numerical_gradient
from tests.sample_data import make_data
from tests.trials.zscore import ALLOWED, error_of, make_case
from tests.trials.zscore_exact import ALLOWED as ALLOWED_EXACT
from tests.trials.zscore_exact import (
    DIGITS,
    FORMS,
    SOLVERS,
    Problem,
    errors,
    exact_coef,
    fitted_coef,
    make_problem,
    problem_errors,
)

# Weights found through different factorisations of systems of condition up to 1e4.
SAME = {"rtol": 1e-8, "atol": 1e-9}
SEEDS = range(3)


def as_lists(sample, labels=None):
    cuts = sample.offsets[1:-1]
    y = sample.y if labels is None else np.array(labels)[sample.y]
    return np.split(sample.rows, cuts), np.split(y, cuts)


def flat(tagger):
    finite = np.where(np.isfinite(tagger.transition_), tagger.transition_, 0)
    return np.concatenate([tagger.coef_.ravel(), finite.ravel()])


def paper_tagger(**options):
    """A tagger with the transitions of the paper, those of largest z-score."""
    return ZScoreTagger(**{"transitions": "covariance"} | options)


def make_markov(seed, n=20, n_states=3, n_symbols=4, T=10):
    """Sequences of a random hidden Markov model, one-hot."""
    rng = np.random.default_rng(seed)
    A, E = rng.dirichlet(np.ones(n_states), n_states), rng.dirichlet(np.ones(n_symbols), n_states)
    X, y = [], []
    for _ in range(n):
        path = [rng.integers(n_states)]
        for _ in range(T - 1):
            path.append(rng.choice(n_states, p=A[path[-1]]))
        X.append(np.eye(n_symbols)[[rng.choice(n_symbols, p=E[j]) for j in path]])
        y.append(np.array(path))
    return X, y


WAYS = [
    {"moments": "exact", "solver": "direct"},
    {"moments": "exact", "solver": "cg", "tol": 1e-13},
    {"moments": "dp"},
]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("form", ["discrete", "real"])
@pytest.mark.parametrize("constraints", [None, "iob2"])
@pytest.mark.parametrize("loss", [None, "hamming", "matrix"])
@pytest.mark.parametrize("l2", [0.0, 0.3])
def test_exact_and_dp_are_the_enumeration(seed, form, constraints, loss, l2):
    lengths = (3, 1, 4, 2, 3, 1, 4)
    sample, allowed = make_sample(seed, form, constraints, lengths)
    assert len(np.unique(sample.y)) == 3
    X, y = as_lists(sample, LABELS)
    cost = {None: np.zeros((3, 3)), "hamming": 1 - np.eye(3), "matrix": random_cost(seed)}[loss]
    b, C, c, mean_loss = enumerate_moments(sample, allowed, cost)
    expected = best_weights(b, C, c, mean_loss, l2, loss is not None)
    spread = sum(
        weight * np.var([sum(cost[i, j] for i, j in zip(t, p)) for p in labelings(len(t), allowed)])
        for weight, t in zip(sample.weights, np.split(sample.y, sample.offsets[1:-1]))
    )
    variance = expected @ C @ expected + 2 * expected @ c + spread
    for way in WAYS:
        tagger = paper_tagger(
            loss=cost if loss == "matrix" else loss,
            l2=l2,
            constraints=constraints,
            constrained="training",
            **way,
        )
        tagger.fit(X, y, sample_weight=sample.weights)
        assert_allclose(flat(tagger), expected, **SAME, err_msg=str(way))
        zscore = (expected @ b - mean_loss * (loss is not None)) / np.sqrt(variance)
        assert_allclose(tagger.zscore_, zscore, rtol=1e-8, err_msg=str(way))
        assert_array_equal(np.isfinite(tagger.transition_), allowed.transition)
        assert_array_equal(np.isfinite(tagger.start_), allowed.start)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("constraints", [None, "iob2"])
def test_weights_are_one_newton_step_of_the_crf(seed, constraints):
    sample, allowed = make_sample(seed, "real", constraints, (3, 1, 4, 2, 3))
    X, y = as_lists(sample, LABELS)
    l2, L = 0.4, 3
    tagger = paper_tagger(loss=None, l2=l2, constraints=constraints, constrained="training")
    tagger.fit(X, y, sample_weight=sample.weights)
    support = full_support(L)._replace(start=np.zeros(L, bool), end=np.zeros(L, bool))
    scores = ScoreMap(Sequences(sample.rows, sample.offsets), L, support, allowed, np.float64)
    with Threads(1) as threads:
        likelihood = LogLikelihood(scores, sample.y, sample.offsets, sample.weights, l2, threads)

        def gradient(w):
            g = scores.new_vector()
            likelihood.value_and_gradient(w, g)
            return g

        at_zero = gradient(scores.new_vector())
        step = scores.pack(Weights(tagger.coef_, tagger.transition_, tagger.start_, tagger.end_))
        # H · step = -gradient, H · step by central differences: errors of order 1e-10 · third
        # derivatives, and 1e-16 / 1e-5 from rounding.
        moved = (gradient(1e-5 * step) - gradient(-1e-5 * step)) / 2e-5
    assert_allclose(moved, -at_zero, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_other_weights_have_a_larger_zscore(seed):
    sample, allowed = make_sample(seed, "real", None, (3, 4, 2, 4))
    X, y = as_lists(sample)
    tagger = paper_tagger(loss=None, l2=0.0).fit(X, y, sample_weight=sample.weights)
    b, C, _, _ = enumerate_moments(sample, allowed, np.zeros((3, 3)))

    def zscore(w):
        return w @ b / np.sqrt(w @ C @ w)

    w = flat(tagger)
    assert_allclose(zscore(w), tagger.zscore_, rtol=1e-10)
    assert np.abs(numerical_gradient(zscore, w)).max() < 1e-7  # central differences
    rng = np.random.default_rng(seed)
    assert all(zscore(w + rng.normal(size=len(w))) <= tagger.zscore_ for _ in range(100))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_hamming_solution_solves_the_quadratic_program(seed):
    sample, allowed = make_sample(seed, "real", None, (3, 4, 2, 4, 4))
    X, y = as_lists(sample)
    l2 = 0.1
    tagger = paper_tagger(l2=l2).fit(X, y, sample_weight=sample.weights)
    b, C, c, mean_loss = enumerate_moments(sample, allowed, 1 - np.eye(3))
    found = minimize(
        lambda w: 0.5 * w @ C @ w + w @ c + l2 * w @ w,
        np.zeros(len(b)),
        jac=lambda w: C @ w + c + 2 * l2 * w,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 999},
        constraints={"type": "ineq", "fun": lambda w: w @ b - mean_loss - 1, "jac": lambda w: b},
    )
    assert found.success
    # SLSQP stops where the objective, of order 1 to 10, no longer falls by 1e-14.
    assert_allclose(flat(tagger), found.x, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("moments", ["exact", "dp", "sampling"])
def test_sequences_of_one_row(moments):
    rng = np.random.default_rng(0)
    X, y = [rng.normal(size=(1, 3)) for _ in range(30)], rng.integers(0, 3, (30, 1))
    tagger = paper_tagger(moments=moments, loss=None, l2=0.5, random_state=0).fit(X, y)
    assert_array_equal(tagger.transition_, 0)
    if moments != "sampling":
        rows, Y = np.concatenate(X), np.eye(3)[y[:, 0]] - 1 / 3
        expected = np.linalg.solve(rows.T @ rows / 3 + np.eye(3), rows.T @ Y)
        assert_allclose(tagger.coef_, expected, **SAME)


@pytest.mark.parametrize("constraints", [None, "iob2"])
def test_sampling_converges_to_the_exact_weights(constraints):
    sample, _ = make_sample(1, "real", constraints, (3, 1, 4, 2, 3))
    X, y = as_lists(sample, LABELS)
    exact = flat(paper_tagger(constraints=constraints, constrained="training").fit(X, y))
    errors = []
    for n_paths in (200, 20_000):
        found = [
            flat(
                paper_tagger(
                    moments="sampling",
                    n_paths=n_paths,
                    constraints=constraints,
                    constrained="training",
                    random_state=k,
                ).fit(X, y)
            )
            for k in range(5)
        ]
        errors.append(np.sqrt(np.mean(np.square(np.array(found) - exact))))
    assert 4 < errors[0] / errors[1] < 25, errors  # the square root of 100, but for chance


@pytest.mark.parametrize("seed", SEEDS)
def test_forms_of_input_give_the_same_weights(seed):
    X, y = make_data(seed)
    dense = paper_tagger().fit(X, y)
    for other in ([sparse.csr_matrix(x) for x in X], Sequences.from_list(X)):
        assert_allclose(flat(paper_tagger().fit(other, y)), flat(dense), **SAME)
    single = paper_tagger().fit([x.astype(np.float32) for x in X], y)
    assert single.coef_.dtype == single.potentials(X[:1]).emission.dtype == np.float32
    assert_allclose(single.coef_, dense.coef_, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("seed", SEEDS)
def test_threads_change_rounding_only(seed):
    X, y = make_data(seed, n=40)
    X = [sparse.csr_matrix(x) for x in X]
    one, two = (paper_tagger(solver="cg", tol=1e-13, n_jobs=n).fit(X, y) for n in (1, 2))
    assert_allclose(flat(two), flat(one), **SAME)
    again = paper_tagger(solver="cg", tol=1e-13, n_jobs=2).fit(X, y)
    assert_array_equal(flat(again), flat(two))


def test_weights_count_like_copies():
    X, y = make_data(0)
    twice = paper_tagger().fit(X + X[:4], [*y, *y[:4]])
    weighted = paper_tagger().fit(X, y, sample_weight=[2.0] * 4 + [1.0] * 8)
    assert_allclose(flat(weighted), flat(twice), **SAME)


@pytest.mark.parametrize("loss", [None, "hamming"])
def test_partial_fit_is_fit(loss):
    X, y = make_data(2, n=20)
    whole = paper_tagger(loss=loss).fit(X, y)
    parts = paper_tagger(loss=loss).partial_fit(X[:5], y[:5], classes=[2, 0, 1])
    parts.partial_fit(X[5:6], y[5:6]).partial_fit(X[6:], y[6:])
    assert_allclose(flat(parts), flat(whole), **SAME)
    assert_allclose(parts.zscore_, whole.zscore_, rtol=1e-9)


@pytest.mark.parametrize("options", [{"l2": 0.02}, {"loss": None}, {"transitions": "information"}])
def test_partial_fit_without_data_solves_anew(options):
    X, y = make_data(4)
    parts = paper_tagger().partial_fit(X[:5], y[:5], classes=[2, 0, 1]).partial_fit(X[5:], y[5:])
    parts.set_params(**options).partial_fit([], [])
    assert_allclose(flat(parts), flat(paper_tagger(**options).fit(X, y)), **SAME)


@pytest.mark.parametrize("form", ["dicts", "attributes"])
@pytest.mark.parametrize("loss", [None, "hamming"])
def test_partial_fit_of_dicts_grows_with_their_attributes(form, loss):
    # In three parts of which each has new attributes: columns have the order of one fit.
    rng = np.random.default_rng(0)
    values = rng.normal(size=40) if form == "dicts" else np.ones(40)
    X = [
        [{f"a{k}": values[k] for k in rng.integers(5 + s, size=3)} for _ in range(4)]
        for s in range(30)
    ]
    if form == "attributes":
        X = [[list(item) for item in sequence] for sequence in X]
    y = [rng.choice(["u", "v", "w"], size=4).tolist() for _ in X]
    whole = paper_tagger(loss=loss).fit(X, y)
    parts = paper_tagger(loss=loss)
    for part in (slice(0, 7), slice(7, 8), slice(8, 30)):
        parts.partial_fit(X[part], y[part], classes=["u", "v", "w"])
    assert list(parts.vectorizer_.vocabulary_) == list(whole.vectorizer_.vocabulary_)
    assert parts.n_features_in_ == len(parts.feature_names_in_) == whole.n_features_in_
    assert_allclose(flat(parts), flat(whole), **SAME)
    assert_allclose(parts.zscore_, whole.zscore_, rtol=1e-9)
    with pytest.raises(ValueError, match="Unknown label 'x'"):
        parts.partial_fit([[{"new": 1.0}]], [["x"]])
    assert "new" not in parts.vectorizer_.vocabulary_


def test_partial_fit_of_dicts_leaves_out_what_is_too_much(monkeypatch):
    monkeypatch.setattr("sklseq.estimators.zscore.zscore_tagger.MAX_WEIGHTS", 2)
    X = [[{"a": 1.0}, {"b": 1.0}], [{"b": 1.0}, {"c": 1.0}]]
    y = [["u", "v"], ["v", "u"]]
    tagger = paper_tagger().partial_fit(X[:1], y[:1], classes=["u", "v"])
    with pytest.warns(UserWarning, match=r"leaves out attributes .* 'c' \(1 in this call"):
        tagger.partial_fit(X[1:], y[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tagger.partial_fit(X[1:], y[1:])  # said once
        tagger.partial_fit(X[:1], y[:1])
    assert tagger.coef_.shape == (2, 2)
    assert tagger.predict(X)[0] == ["u", "v"]


@pytest.mark.parametrize("l2", [0.1, 1.0])
def test_constraints_at_decoding_alone_leave_the_weights(l2):
    sample, _ = make_sample(1, "real", "iob2", (3, 1, 4, 2, 3))
    X, y = as_lists(sample, LABELS)
    free = paper_tagger(l2=l2).fit(X, y)
    tagger = paper_tagger(l2=l2, constraints="iob2").fit(X, y)
    assert_array_equal(tagger.coef_, free.coef_)
    forbidden = np.isneginf(tagger.transition_)
    assert forbidden.sum() == 1
    assert forbidden[2, 1]
    assert_array_equal(tagger.transition_[~forbidden], free.transition_[~forbidden])
    assert np.isneginf(tagger.start_[1])
    noise = [np.random.default_rng(k).normal(size=(6, X[0].shape[1])) for k in range(20)]
    pairs = {(a, b) for p in tagger.predict(noise) for a, b in zip(["O", *p], p)}
    assert ("O", "I-x") not in pairs
    assert ("O", "I-x") in {(a, b) for p in free.predict(noise) for a, b in zip(["O", *p], p)}
    trained = paper_tagger(l2=l2, constraints="iob2", constrained="training").fit(X, y)
    assert np.abs(trained.coef_ - free.coef_).max() > 1e-3


# ------------------------------------------------------------------ scores


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("constraints", [None, "iob2"])
def test_sequence_zscores_are_those_of_the_enumeration(seed, constraints):
    sample, allowed = make_sample(seed, "real", constraints, (3, 1, 4, 2, 3))
    X, y = as_lists(sample, LABELS)
    tagger = paper_tagger(constraints=constraints).fit(X, y)
    found = tagger.sequence_zscore(X, y)
    for s, rows in enumerate(X):
        span = slice(*sample.offsets[s : s + 2])
        w = flat(tagger)
        scores = np.array([w @ path_features(rows, p, 3) for p in labelings(len(rows), allowed)])
        truth = w @ path_features(rows, sample.y[span], 3)
        assert_allclose(found.zscore[s], (truth - scores.mean()) / scores.std(), rtol=1e-8)
    assert ((found.p_value > 0) & (found.p_value < 1)).all()


def test_p_values_are_shares_of_labelings_that_score_higher():
    # Thirty rows: sums of that many terms are nearly normal. 4000 labelings: shares are known to
    # 0.008, and the normal law holds to about 0.03.
    X, y = make_markov(0, n=15, T=30)
    tagger = paper_tagger(loss=None).fit(X[:10], y[:10])
    emission, transition, _, _, offsets = tagger.potentials(X[10:])
    zeros = np.zeros_like(emission)
    paths = sample_paths(zeros, np.zeros((3, 3)), offsets, 4000, random_state=0)
    rng = np.random.default_rng(0)
    random_y = [rng.choice(3, 30) for _ in range(5)]
    found = tagger.sequence_zscore(X[10:], random_y).p_value
    for s, labels in enumerate(random_y):
        psi, drawn = emission[offsets[s] : offsets[s + 1]], paths[:, offsets[s] : offsets[s + 1]]

        def score(p, psi=psi):
            return psi[np.arange(30), p].sum(axis=-1) + transition[p[..., :-1], p[..., 1:]].sum(-1)

        assert abs(np.mean(score(drawn) > score(labels)) - found[s]) < 0.04


def test_zscore_of_a_forbidden_labeling_and_of_no_rows():
    X = [[["a"], ["b"]], [["a"], ["c"]], []]
    y = [["B-x", "I-x"], ["B-x", "O"], []]
    tagger = paper_tagger(constraints="iob2").fit(X, y)
    z = tagger.sequence_zscore(X, [["O", "I-x"], ["I-x", "O"], []])
    assert z.zscore[:2].tolist() == [-np.inf, -np.inf]
    assert z.p_value[:2].tolist() == [1, 1]
    assert np.isnan(z.zscore[2])


def test_nbest_begins_with_the_best_path():
    X, y = make_data(1)
    tagger = paper_tagger().fit(X, y)
    for (labels, scores), best in zip(tagger.predict_nbest(X, 3), tagger.predict(X)):
        assert_array_equal(labels[0], best)
        assert (np.diff(scores) <= 0).all()


# ------------------------------------------------------------------ separable data


def make_separable(seed, n=12):
    """Labels that some linear chain gives: those of the best path under random weights."""
    X, y = make_data(seed, n=n, M=6)
    teacher = CRFTagger(boundaries=False).fit(X, y)
    rng = np.random.default_rng(seed)
    teacher.coef_, teacher.transition_ = rng.normal(size=(6, 3)), 2 * rng.normal(size=(3, 3))
    return X, [np.array(labels) for labels in teacher.predict(X)]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("way", [{}, {"moments": "dp"}, {"loss": None}])
def test_separable_data_are_separated(seed, way):
    X, y = make_separable(seed)
    tagger = paper_tagger(l2=1e-3, separate=True, **way).fit(X, y)
    plain = paper_tagger(l2=1e-3, **way).fit(X, y)
    assert tagger.score(X, y) == 1
    assert (tagger.n_constraints_ == 0) == (plain.score(X, y) == 1)
    if not tagger.n_constraints_:
        assert_allclose(flat(tagger), flat(plain), **SAME)


def test_separation_is_needed_somewhere():
    assert any(
        paper_tagger(l2=1e-3).fit(*make_separable(k)).score(*make_separable(k)) < 1
        for k in range(5)
    )


def test_data_that_cannot_be_separated():
    X, y = [np.ones((2, 1)), np.ones((2, 1))], [[0, 1], [1, 0]]
    with pytest.warns(ConvergenceWarning, match="No weights decode all training sequences right"):
        tagger = paper_tagger(separate=True).fit(X, y)
    assert_allclose(flat(tagger), flat(paper_tagger().fit(X, y)), **SAME)


@pytest.mark.parametrize("l2", [0.1, 1.0])
def test_the_system_is_inverted(l2):
    sample, allowed = make_sample(0, lengths=(3, 4, 2))
    system = FreeSystem(RidgeSystems(ZScoreTagger(), sample), l2)
    b, C, c, _ = enumerate_moments(sample, allowed, 1 - np.eye(3))
    for flat_side, side in ((system.b, b), (system.loss_covariance(1 - np.eye(3)), c)):
        weights = system.weights(system.solve(flat_side[:, None])[:, 0])
        expected = np.linalg.solve(C + 2 * l2 * np.eye(len(b)), side)
        found = np.concatenate([weights.coef.ravel(), weights.transition.ravel()])
        assert_allclose(found, expected, **SAME)


# ------------------------------------------------------------------ cross-validation


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("M", [4, 40], ids=["few features", "few rows"])
@pytest.mark.parametrize("loss", [None, "hamming", "matrix"])
@pytest.mark.parametrize("l2", [0.01, 1.0])
def test_left_out_scores_are_those_of_a_new_fit(seed, M, loss, l2):
    sample, _ = make_sample(seed, lengths=(3, 1, 4, 2, 3, 4), M=M)
    cost = {None: None, "hamming": 1 - np.eye(3), "matrix": random_cost(seed)}[loss]
    X, y = as_lists(sample)
    for s, found in enumerate(LeaveOut(sample, cost, solve_dense).scores(l2)):
        others = [k for k in range(len(X)) if k != s]
        tagger = paper_tagger(loss=cost, l2=l2)
        tagger.fit([X[k] for k in others], [y[k] for k in others], sample.weights[others])
        if len(tagger.classes_) < 3:  # it never heard of the left-out label
            continue
        emission, transition = tagger.potentials([X[s]])[:2]
        rows = np.arange(len(X[s]))
        scores = np.array([
            [e[rows, p].sum() + t[p[:-1], p[1:]].sum()
             for e, t in ((emission, transition), (found.emission, found.transition()))]
            for p in map(list, labelings(len(X[s]), make_sample(0)[1]))
        ])  # fmt: skip
        around = scores - scores.mean(axis=0)
        assert_allclose(around[:, 0], around[:, 1], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("l2", [1e-16, 1e-14, 1e-10, 1e-6, 1e-2])
def test_left_out_scores_hold_for_any_ridge_and_for_words_of_one_sequence(seed, l2):
    # Few rows or many beside the columns; words that one sequence alone has, and equal columns.
    rng = np.random.default_rng(seed)
    M = (6, 60)[seed % 2]
    lengths = rng.integers(1, 5, 14)
    word = np.minimum(rng.zipf(1.4, lengths.sum()) - 1, M - 1)
    rows = np.hstack([np.eye(M)[word], np.eye(3)[word % 3]])
    codes = rng.integers(0, 3, len(word)).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    X, y = np.split(rows, offsets[1:-1]), np.split(codes, offsets[1:-1])
    sample = Sample(rows, offsets, codes, np.ones(len(lengths)), 3)
    for s, found in enumerate(LeaveOut(sample, None, solve_dense).scores(l2)):
        others = [k for k in range(len(X)) if k != s]
        tagger = paper_tagger(loss=None, l2=l2).fit([X[k] for k in others], [y[k] for k in others])
        main, _ = decompose(ChainWeights(tagger.coef_, tagger.transition_))
        expected = extended_rows(X[s], np.array([0, len(X[s])]), 3) @ main
        level = np.abs(expected).max() + 1
        centre = found.emission - found.emission.mean(axis=1, keepdims=True)
        # Scores of equal columns are found to about 1e-16 / 1e-10, where a factor is given up.
        assert_allclose(centre, expected, rtol=0, atol=1e-4 * level)


@pytest.mark.parametrize("loss", [None, "hamming"])
@pytest.mark.parametrize("n_columns", [1, 7, 40, 120])
def test_long_sequences_left_out_score_as_after_a_new_fit(n_columns, loss):
    # Longer and shorter than the number of columns, which is below or above that of rows.
    rng = np.random.default_rng(n_columns)
    lengths = np.array([1, 9, 30, 4, 55])
    offsets, n = np.concatenate([[0], np.cumsum(lengths)]), lengths.sum()
    codes = rng.integers(0, 3, n).astype(np.int32)
    rows = rng.normal(size=(n, n_columns)) + codes[:, None] * rng.normal(size=n_columns)
    X, y = np.split(rows, offsets[1:-1]), np.split(codes, offsets[1:-1])
    sample = Sample(rows, offsets, codes, np.ones(len(lengths)), 3)
    cost = None if loss is None else 1 - np.eye(3)
    for s, found in enumerate(LeaveOut(sample, cost, solve_dense).scores(0.3)):
        others = [k for k in range(len(X)) if k != s]
        tagger = paper_tagger(loss=loss, l2=0.3).fit([X[k] for k in others], [y[k] for k in others])
        main, pairs = decompose(ChainWeights(tagger.coef_, tagger.transition_))
        expected = extended_rows(X[s], np.array([0, len(X[s])]), 3) @ main
        centre = found.emission - found.emission.mean(axis=1, keepdims=True)
        assert_allclose(centre, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
        assert_allclose(found.transition(), pairs, rtol=1e-8, atol=1e-8 * np.abs(pairs).max())


@pytest.mark.parametrize(("length", "n_columns"), [(100, 3), (1000, 3), (4000, 3), (2000, 30)])
def test_leaving_out_takes_memory_linear_in_the_rows_of_a_sequence(length, n_columns):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 3 * length).astype(np.int32)
    sample = Sample(
        rng.normal(size=(len(codes), n_columns)), np.arange(4) * length, codes, np.ones(3), 2
    )
    leave_out = LeaveOut(sample, 1 - np.eye(2), solve_dense)
    tracemalloc.start()
    assert sum(len(left.emission) for left in leave_out.scores(0.1)) == len(codes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 * len(codes) * (3 * n_columns + 30) + 100_000  # length² would be 128 MB


@pytest.mark.parametrize("l2", [1e-10, 1e-8, 1e-4, 1.0])
def test_labels_left_out_are_those_of_a_new_fit(l2):
    # Words that a sequence alone has: its labels tie, and rounding must not choose among them.
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 6, 16)
    rows = np.eye(25)[np.minimum(rng.zipf(1.4, lengths.sum()) - 1, 24)]
    codes = rng.integers(0, 3, len(rows)).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    X, y = np.split(rows, offsets[1:-1]), np.split(codes, offsets[1:-1])
    sample = Sample(rows, offsets, codes, np.ones(len(lengths)), 3)
    for s, found in enumerate(LeaveOut(sample, 1 - np.eye(3), solve_dense).scores(l2)):
        others = [k for k in range(len(X)) if k != s]
        tagger = paper_tagger(l2=l2).fit([X[k] for k in others], [y[k] for k in others])
        assert_array_equal(
            viterbi(found.emission, found.transition())[0], tagger.predict([X[s]])[0]
        )


@pytest.mark.parametrize("form", ["values", "words"])
def test_the_best_ridge_is_that_of_leaving_out_one_by_one(form):
    X, y = make_data(3, n=15, M=8)
    if form == "words":  # of which many occur once: labels tie where they are left out
        rng = np.random.default_rng(0)
        lengths = rng.integers(1, 4, 15)
        X = [np.eye(25)[rng.integers(0, 25, n)] for n in lengths]
        y = [rng.integers(0, 3, n) for n in lengths]
    l2s = [1e-6, 0.01, 0.1, 1.0, 10.0]
    found = ZScoreTaggerCV(l2s=l2s, transition_weights=[None], transitions="covariance").fit(X, y)
    expected = []
    for l2 in l2s:
        right = 0
        for s in range(len(X)):
            tagger = paper_tagger(l2=l2).fit(X[:s] + X[s + 1 :], y[:s] + y[s + 1 :])
            right += (tagger.predict([X[s]])[0] == y[s]).sum()
        expected.append(right / sum(map(len, y)))
    assert_allclose(found.cv_scores_[:, 0], expected, rtol=1e-12)
    assert found.l2_ == max(l2 for l2, a in zip(l2s, expected) if a == max(expected))
    assert found.best_score_ == found.cv_scores_.max()
    assert_allclose(flat(found), flat(paper_tagger(l2=found.l2_).fit(X, y)), **SAME)
    clone(found).fit(X, y)


def test_generalised_cross_validation_without_degrees_of_freedom():
    X, y = [np.eye(2)], [["a", "b"]]  # as many columns as rows
    with pytest.warns(UserWarning, match="scores are not finite") as messages:
        found = ZScoreTaggerCV(l2s=[1e-60, 1.0], scoring="gcv").fit(X, y)
    assert len(messages) == 1
    assert found.cv_scores_[0, 0] == -np.inf
    assert found.l2_ == 1.0


@pytest.mark.parametrize("M", [3, 60], ids=["few features", "few rows"])
def test_generalised_cross_validation(M):
    X, y = make_data(0, M=M)
    l2s = [0.01, 1.0, 100.0]
    found = ZScoreTaggerCV(l2s=l2s, scoring="gcv").fit(X, y)
    lengths = np.array([len(x) for x in X])
    ends = np.concatenate([[[t + 1 < n, t > 0] for t in range(n)] for n in lengths]) / np.sqrt(3)
    rows, Y = np.hstack([np.concatenate(X), ends]), np.eye(3)[np.concatenate(y)]
    for l2, score in zip(l2s, found.cv_scores_[:, 0]):
        H = rows @ np.linalg.solve(rows.T @ rows + 6 * l2 * np.eye(M + 2), rows.T)
        n = len(rows)
        expected = n * np.square(Y - H @ Y).sum() / (n - np.trace(H)) ** 2
        assert_allclose(-score, expected, rtol=1e-8)


def test_cross_validation_of_dicts_and_with_weights():
    X = [[{"a": 1.0}, {"b": 1.0}], [{"b": 1.0}, {"c": 1.0}], [{"a": 1.0}], []] * 2
    y = [["u", "v"], ["v", "u"], ["u"], []] * 2
    found = ZScoreTaggerCV().fit(X, y, sample_weight=[1, 2, 0, 1, 1, 1, 3, 0])
    assert found.predict(X[:1])[0] == ["u", "v"]
    assert found.feature_names_in_.tolist() == ["a", "b", "c"]
    assert np.isfinite(found.cv_scores_).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [({"l2s": []}, "l2s must be a list"), ({"l2s": [0.0, 1.0]}, "finite numbers above 0"),
     ({"l2s": "gcv"}, "l2s must be a list"), ({"scoring": "f1"}, "scoring must be .*; got 'f1'"),
     ({"loss": "zero"}, "loss must be")],
)  # fmt: skip
def test_bad_parameters_of_cross_validation(parameters, message):
    with pytest.raises(ValueError, match=message):
        ZScoreTaggerCV(**parameters).fit(*make_data(0))


def test_cross_validation_refuses_what_does_not_fit():
    X = [sparse.csr_matrix((20_000, 30_000))]
    with pytest.raises(ValueError, match=r"would hold 400,000,000 numbers .*use folds"):
        ZScoreTaggerCV(cv="leave-one-out").fit(X, [[0, 1] * 10_000])
    with pytest.raises(AttributeError, match="has no partial_fit: cross-validation"):
        ZScoreTaggerCV().partial_fit([], [])


# ------------------------------------------------------------------ inside scikit-learn


def test_clone_pickle_and_grid_search():
    X, y = make_data(0, n=18)
    tagger = paper_tagger(l2=0.5)
    assert not hasattr(clone(tagger.fit(X, y)), "coef_")
    again = pickle.loads(pickle.dumps(tagger))
    assert again.predict(X) == tagger.predict(X)
    search = GridSearchCV(paper_tagger(), {"l2": [0.1, 1.0]}, cv=3).fit(X, y)
    assert search.best_score_ > 0.4


def test_skops_loads_it():
    io = pytest.importorskip("skops.io")
    X, y = make_data(0)
    tagger = paper_tagger().fit(X, y)
    data = io.dumps(tagger)
    again = io.loads(data, trusted=io.get_untrusted_types(data=data))
    assert_array_equal(again.coef_, tagger.coef_)


def test_a_crf_goes_on_from_these_weights():
    X, y = make_data(0, n=30)
    tagger = paper_tagger(loss=None, l2=1.0).fit(X, y)
    everything = {"all_possible_states": True, "all_possible_transitions": True}
    crf = tagger.to_crf(l2=1.0, boundaries=False, tol=1e-9, **everything)
    assert crf.predict(X) == tagger.predict(X)
    assert_allclose(tagger.to_crf(scale=3.0).coef_, 3 * tagger.coef_)
    crf.fit(X, y)
    cold = CRFTagger(l2=1.0, boundaries=False, tol=1e-9, **everything).fit(X, y)
    assert crf.loss_curve_[0] < cold.loss_curve_[0]
    assert_allclose(crf.objective_, cold.objective_, rtol=1e-7)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "options",
    [{}, {"all_possible_states": False, "all_possible_transitions": False}, {"l1": 0.3, "l2": 0.1}],
)
@pytest.mark.parametrize("constraints", [None, "iob2"])
def test_a_crf_starts_from_the_best_multiple(seed, options, constraints):
    sample, _ = make_sample(seed, "discrete", constraints, (3, 1, 4, 2, 3, 4, 4))
    X, y = as_lists(sample, LABELS)
    weights = sample.weights
    tagger = paper_tagger(constraints=constraints, constrained="training").fit(X, y, weights)

    def objective(scale):
        options_here = {**options, "solver": "owlqn", "max_iter": 1, "scale": scale}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            crf = tagger.to_crf(X, y, sample_weight=weights, **options_here)
            return crf.fit(X, y, weights).loss_curve_[0]

    found, plain = (tagger.to_crf(*data, sample_weight=weights, **options) for data in ((X, y), ()))
    scale = np.abs(found.coef_).sum() / np.abs(plain.coef_).sum()
    assert_allclose(found.coef_, scale * plain.coef_, rtol=1e-12)
    best = objective(scale)
    # The scale is found to 1 %: 3 % to either side nothing is better.
    assert best < objective(scale * 1.03)
    assert best < objective(scale / 1.03)


def test_a_scale_is_found_on_some_of_the_sequences(monkeypatch):
    X, y = make_markov(0, n=300)
    tagger = paper_tagger(loss=None).fit(X, y)
    whole = tagger.to_crf(X, y)
    monkeypatch.setattr("sklseq.estimators.zscore.warm_start.ROWS", 500)
    # 50 of 300 sequences: log-likelihoods are known to about 1 / √50.
    assert_allclose(tagger.to_crf(X, y).coef_, whole.coef_, rtol=0.3)


def test_no_multiple_is_better_than_zero():
    X, y = make_markov(0)
    tagger = paper_tagger(loss=None).fit(X, y)
    tagger.coef_, tagger.transition_ = -tagger.coef_, -tagger.transition_
    assert_array_equal(tagger.to_crf(X, y).coef_, tagger.coef_)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {"scale": 0}, "scale must be None or a finite number above 0; got 0"),
        ((), {"scale": "best"}, "scale must be .*; got 'best'"),
        (([],), {}, "from both X and y, or neither"),
        ((), {"y": []}, "from both X and y, or neither"),
    ],
)
def test_bad_starts(arguments, options, message):
    tagger = paper_tagger().fit(*make_data(0))
    with pytest.raises(ValueError, match=message):
        tagger.to_crf(*arguments, **options)


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"l2": -1}, "l2 must be a finite number from 0 to 1e\\+100; got -1"),
        ({"tol": np.nan}, "tol must be a finite number"),
        ({"n_paths": 1}, "n_paths must be an integer of at least 2; got 1"),
        ({"max_iter": 0}, "max_iter must be an integer of at least 1"),
        ({"moments": "guess"}, "moments must be one of .*; got 'guess'"),
        ({"constrained": "both"}, "constrained must be one of .*; got 'both'"),
        ({"solver": "lsmr"}, "solver must be one of .*; got 'lsmr'"),
        ({"n_jobs": 0}, "n_jobs must be None or an integer other than 0"),
        ({"loss": "zero_one"}, "loss must be 'hamming', None, a matrix, .*; got 'zero_one'"),
        ({"loss": np.eye(2)}, r"one row and one column per label, \(3, 3\); got shape \(2, 2\)"),
        ({"loss": np.eye(3)}, "0 on the diagonal"),
        ({"loss": np.full((3, 3), np.nan)}, "must be finite, not negative"),
        ({"loss": [[0, "x"], [1, 0]]}, "loss must be 'hamming', None, a matrix"),
    ],
)
def test_bad_parameters(parameters, message):
    X, y = make_data(0)
    tagger = paper_tagger(**parameters)
    with pytest.raises(ValueError, match=message):
        tagger.fit(X, y)
    assert not hasattr(tagger, "coef_")


def test_too_many_programs():
    X = [np.random.default_rng(0).normal(size=(5, 200))]
    # 200 real-valued columns: 200 · 201 pairs of states, 800 of both kinds, 5 of transitions,
    # and with the loss one for each of 404 weights.
    message = r"would run 41,409 dynamic programs over 5 rows .*; use moments='exact'"
    with pytest.raises(ValueError, match=message):
        paper_tagger(moments="dp").fit(X, [[0, 1, 0, 1, 1]])


@pytest.mark.parametrize("kernel", ["linear", "poly"])
@pytest.mark.parametrize("seed", range(30))
def test_no_zscore_where_only_rounding_tells_labelings_apart(seed, kernel):
    # One row of zeros has the same score for all labels.
    rng = np.random.default_rng(seed)
    lengths, unit = [4, *rng.integers(1, 5, size=3)], 10.0 ** rng.integers(-9, 10)
    X = [unit * rng.integers(0, 2, size=(n, 2)) for n in lengths]
    y = [[0, 1, 2, 0], *(rng.integers(0, 3, size=n) for n in lengths[1:])]
    tagger = paper_tagger(l2=unit**2, kernel=kernel, gamma=unit**-2).fit(X, y)
    # From the list of all labels, as another order of sums rounds otherwise.
    for label in range(3):
        assert np.isnan(tagger.sequence_zscore([np.zeros((1, 2))], [[label]]).zscore)
    found = tagger.sequence_zscore([np.zeros((2, 2)), X[0]], [[0, 1], y[0]])
    assert np.isfinite(found.zscore).all()


@pytest.mark.parametrize("moments", ["exact", "dp", "sampling"])
def test_one_label_only(moments):
    X = [np.ones((3, 2)), np.ones((1, 2))]
    with pytest.warns(UserWarning, match="one label only"):
        tagger = paper_tagger(moments=moments).fit(X, [["u"] * 3, ["u"]])
    assert_array_equal(tagger.coef_, 0)
    assert tagger.predict(X)[0] == ["u"] * 3
    assert np.isnan(tagger.sequence_zscore(X, [["u"] * 3, ["u"]]).zscore).all()


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("precise", [True, False])
def test_single_precision_is_used_and_gives_way(seed, precise, monkeypatch):
    rng = np.random.default_rng(seed)
    rows = sparse.random(400, 150, 0.05, "csr", random_state=rng)
    offsets, y = np.arange(0, 401, 20), rng.integers(0, 3, 400)
    used = []
    system_of = ridge_systems.EliminatedRidge

    def recorded(sample, ridge, threads, dtype, kinds):
        used.append(dtype)
        return system_of(sample, ridge, threads, dtype, frequent=20)

    monkeypatch.setattr(ridge_systems, "EliminatedRidge", recorded)
    if not precise:  # as if what was left were far more than iterations believed
        finish = system_of.finish
        monkeypatch.setattr(system_of, "finish", lambda self, V: 1 + finish(self, V))
    labels = np.split(y, offsets[1:-1])
    options = {"l2": 1e-4, "loss": None, "max_iter": 2_000}
    fast = paper_tagger(solver="cg", tol=1e-4, **options)
    with (
        warnings.catch_warnings()
        if precise
        else pytest.warns(
            ConvergenceWarning, match="could not solve its linear system within rounding"
        )
    ):
        fast.fit(Sequences(rows, offsets), labels)
    exact = paper_tagger(solver="direct", **options).fit(Sequences(rows, offsets), labels)
    assert used == ([np.float32] if precise else [np.float32, np.float64])
    assert fast.zscore_ == pytest.approx(exact.zscore_, rel=1e-3)


def test_single_precision_is_not_tried_where_columns_are_too_alike_for_it(monkeypatch):
    rng = np.random.default_rng(0)
    rows = sparse.random(400, 30, 0.2, "csr", random_state=rng)
    alike = rows.copy()
    alike.data *= 1 + 1e-5 * rng.normal(size=alike.nnz)
    X = Sequences(sparse.hstack([rows, alike], format="csr"), np.arange(0, 401, 20))
    used, finish = [], ridge_systems.EliminatedRidge.finish

    def recorded(self, V):
        used.append(self.dtype)
        return finish(self, V)

    monkeypatch.setattr(ridge_systems.EliminatedRidge, "finish", recorded)
    paper_tagger(solver="cg", l2=1e-12).fit(X, np.split(rng.integers(0, 3, 400), 20))
    assert used == [np.float64]


@pytest.mark.parametrize("l2", [1e-18, 1e-14, 1e-3])
def test_equal_columns_and_a_ridge_that_rounding_swallows(l2):
    rng = np.random.default_rng(0)
    rows = sparse.random(200, 30, 0.2, "csr", random_state=rng)
    rows = sparse.hstack([rows, rows], format="csr")
    X = Sequences(rows, np.arange(0, 201, 10))
    y = np.split(rng.integers(0, 3, 200), X.offsets[1:-1])
    weights = [
        flat(paper_tagger(l2=l2, tol=1e-12, solver=solver).fit(X, y)) for solver in ("cg", "direct")
    ]
    # Of the equal columns, both solvers give each its half.
    assert_allclose(weights[0], weights[1], rtol=1e-6, atol=1e-6)


def make_words(seed, n_words=2_000, n_columns=400):
    """Words of Zipf's law, a column each, and their two first letters; some words are ambiguous."""
    rng = np.random.default_rng(seed)
    word = np.minimum(rng.zipf(1.3, n_words) - 1, n_columns - 40)
    rows = sparse.csr_matrix((np.ones(n_words), (np.arange(n_words), word)), (n_words, n_columns))
    letters = sparse.csr_matrix(np.eye(39)[word % 39])
    rows = sparse.hstack([rows[:, : n_columns - 39], letters], format="csr")
    y = np.where(rng.random(n_words) < 0.1, rng.integers(0, 4, n_words), word * 7919 % 5 % 4)
    offsets = np.arange(0, n_words + 1, 20)
    return Sequences(rows, offsets), np.split(y, offsets[1:-1])


def with_column(X, column):
    return Sequences(sparse.hstack([X.rows, column[:, None]], format="csr"), X.offsets)


@pytest.mark.filterwarnings("ignore:Of .* columns of X")  # of the penalty
@pytest.mark.parametrize("l2", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("column", ["year", "years", "zero", "tiny", "copy"])
def test_a_further_column_in_other_units_stops_nothing_early(l2, column):
    X, y = make_words(0)
    n = X.n_rows
    X = with_column(X, {
        "year": np.full(n, 2016.0), "years": 2016.0 + np.arange(n) % 7, "zero": np.zeros(n),
        "tiny": 1e-6 * (np.arange(n) % 3), "copy": 1e6 * X.rows[:, [-1]].toarray().ravel(),
    }[column])  # fmt: skip
    exact = paper_tagger(l2=l2, solver="direct").fit(X, y)
    tagger = paper_tagger(l2=l2, solver="cg").fit(X, y)
    assert tagger.n_iter_ > 1
    # tol is 1e-3: errors of that order, of scores that differ by one.
    assert_allclose(tagger.zscore_, exact.zscore_, rtol=1e-4)
    found, expected = (t.potentials(X).emission for t in (tagger, exact))
    spread = np.sqrt(np.mean(np.square(expected - expected.mean(axis=1, keepdims=True))))
    assert np.sqrt(np.mean(np.square(found - expected))) < 5e-3 * spread


@pytest.mark.parametrize("solver", ["direct", "cg"])
def test_units_of_columns_change_nothing(solver):
    # With so small a ridge, and columns that are independent, that holds whatever the units.
    rng = np.random.default_rng(1)
    rows, y = rng.normal(size=(400, 40)), np.split(rng.integers(0, 3, 400), 20)
    units = 10.0 ** rng.uniform(-6, 6, 40)
    options = {"l2": 1e-22, "solver": solver, "tol": 1e-9}
    for form in (np.asarray, sparse.csr_matrix):
        plain, scaled = (
            paper_tagger(**options).fit(Sequences(form(X), np.arange(0, 401, 20)), y)
            for X in (rows, rows * units)
        )
        assert_allclose(scaled.coef_ * units[:, None], plain.coef_, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_answers_are_as_close_as_tol_says_whatever_the_columns(form):
    cases = [(seed, (1e-2, 1e-3)[seed // 2 % 2]) for seed in range(form == "dense", 100, 2)]
    errors = [error_of(*make_case(seed, form), tol) for seed, tol in cases]
    assert errors.count(None) < 10  # with a warning
    assert max(error for error in errors if error is not None) < ALLOWED


@pytest.mark.parametrize("seed", [336, 989, 1040, 1950, 2456, 3147, 5466])
def test_columns_that_are_constant_or_equal_up_to_rounding(seed):
    # Constants of up to 1e14, shifted; differences of 1e-13 beside differences of 1e-9.
    tol = (1e-2, 1e-3)[seed // 2 % 2]
    assert error_of(*make_case(seed, ("sparse", "dense")[seed % 2]), tol) < 1


def test_a_factor_whose_pivots_are_not_small_may_be_singular():
    # Its last pivot is 1e-10: rounding over the one before.
    found = problem_errors(484)
    assert max(training for training, _ in found.values()) < 1e-7, found


@pytest.mark.parametrize("seed", [29, 164, 184])
def test_columns_of_one_row_beside_almost_no_ridge(seed):
    # Eliminated, they would leave their rows weights of 1e-30, and other columns of those rows.
    with localcontext() as context:
        context.prec = DIGITS
        problem = make_problem(seed)
        found = errors(problem, fitted_coef(problem, "sparse", "cg"), exact_coef(problem))
    assert found[0] < 1e-7


@pytest.mark.filterwarnings("ignore:Of .* columns of X")  # of the penalty
@pytest.mark.parametrize("seed", [989, 1040, 2456, 3147])
def test_leaving_out_on_columns_that_are_constant_or_equal_up_to_rounding(seed):
    sample, ridge = make_case(seed, ("sparse", "dense")[seed % 2])
    X, y = Sequences(sample.rows, sample.offsets), np.split(sample.y, sample.offsets[1:-1])
    l2s = [1e-12, ridge]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = ZScoreTaggerCV(l2s=l2s, transition_weights=[0.5, 1.0]).fit(X, y, sample.weights)
        tagger = paper_tagger(l2=1e-12, transition_weight=0.5).fit(X, y, sample.weights)
    assert np.isfinite(search.coef_).all()
    assert np.isfinite(tagger.coef_).all()


@pytest.mark.parametrize("seed", range(5))
def test_directions_that_are_rounding_do_not_stop_a_factorisation(seed):
    # A product whose rounding exceeds what it is said to be.
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, 8))
    rows[:, 4:] = rows[:, :4] * (1 + 1e-9 * rng.normal(size=(40, 1)))

    def product(P):
        return rows.T @ (rows @ P) + 1e-8 * rng.normal(size=P.shape)

    solved = InverseRoot(rows.T @ rows, 0.0, product).solve(rows.T @ rows[:, :2])
    assert np.isfinite(solved).all()


@pytest.mark.parametrize("form", ["sparse", "dense"])
def test_columns_that_are_equal_but_for_little(form):
    # A ridge so small that the difference of two columns explains the labels.
    rng = np.random.default_rng(0)
    rows, noise = rng.normal(size=(120, 20)), rng.normal(size=120)
    rows[:, 3] = rows[:, 5] + 1e-8 * noise
    y = (noise > 0).astype(np.int32)
    if form == "sparse":
        rows = sparse.csr_matrix(rows)
    sample = Sample(rows, np.arange(0, 121, 10), y, np.ones(12), 2)
    assert error_of(sample, 1e-20, 1e-3) < ALLOWED


@pytest.mark.filterwarnings("ignore:Of .* columns of X")  # of the penalty
@pytest.mark.parametrize("seed", range(12))
def test_every_way_to_the_weights_is_the_definition(seed):
    # Rows held out see what training rows do not: there, weights are the limit of ridges. Columns
    # in other units leave less of them than of what training rows see.
    found = problem_errors(seed)
    assert max(training for training, _ in found.values()) < ALLOWED_EXACT, found
    assert max(held_out for _, held_out in found.values()) < 1e-2, found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", SOLVERS)
def test_means_of_any_size_lose_no_digits(form, way):
    # Of numbers near 2⁴⁰, the last twelve bits tell labels apart.
    rng = np.random.default_rng(0)
    rows, y = rng.integers(-8, 9, (90, 4)).astype(float), rng.integers(0, 3, 90)
    rows[:, 0] += 2.0 * y
    weights, l2 = rng.integers(1, 5, 30) / 2, 1e-3
    found = []
    for shift in (0.0, 2.0**40):
        shifted = np.column_stack([rows + [shift, shift, 0, 0], np.full(90, 2.0**50)])
        problem = Problem(shifted, shifted, np.arange(0, 91, 3), y, weights, l2, None)
        # The constant takes what the means bring, at no cost to the ridge.
        found.append(shifted @ fitted_coef(problem, form, way))
    around = [scores - scores.mean(axis=0) for scores in found]
    spread = np.abs(around[0]).max()
    assert_allclose(around[1], around[0], rtol=0, atol=1e-2 * spread)


def test_conjugate_gradients_cut_short():
    X, y = make_data(0, n=30, M=20)
    with pytest.warns(ConvergenceWarning, match="did not converge in max_iter=1 iterations"):
        paper_tagger(solver="cg", tol=1e-12, max_iter=1).fit(X, y)


def test_forbidden_training_labels():
    with pytest.raises(ValueError, match="'I-x' may not follow 'O' at row 1 of sequence 0"):
        paper_tagger(constraints="iob2").fit([np.ones((2, 1))], [["O", "I-x"]])


@pytest.mark.parametrize(
    ("X", "message"),
    [([], "at least one row"), ([np.ones((0, 2))], "at least one row"),
     ([np.ones((2, 0))], "at least one feature"), ([[[np.nan], [1.0]]], "holds nan")],
)  # fmt: skip
def test_bad_data(X, message):
    y = [["a"] * len(x) for x in X]
    with pytest.raises(ValueError, match=message):
        paper_tagger().fit(X, y)


@pytest.mark.parametrize(
    ("tagger", "classes", "message"),
    [
        (paper_tagger(), None, "first call of partial_fit needs classes"),
        (paper_tagger(), [0, 1], "Unknown label 2"),
    ],
)
def test_partial_fit_is_refused(tagger, classes, message):
    X, y = make_data(0)
    with pytest.raises(ValueError, match=message):
        tagger.partial_fit(X, y, classes=classes)
    assert not hasattr(tagger, "coef_")


@pytest.mark.parametrize(
    ("tagger", "message"),
    [
        (paper_tagger(constraints="iob2"), "needs moments='exact', constraints=None"),
        (paper_tagger(moments="dp"), "needs moments='exact'"),
        (paper_tagger(separate=True), "separate=False"),
        (paper_tagger(class_weight="balanced"), "cannot have class_weight='balanced'"),
    ],
)
def test_other_settings_have_no_parts(tagger, message):
    with pytest.raises(AttributeError, match=message):
        _ = tagger.partial_fit


def test_partial_fit_after_other_things():
    X, y = make_data(0)
    with pytest.raises(ValueError, match="cannot go on from fit"):
        paper_tagger().fit(X, y).partial_fit(X, y)
    tagger = paper_tagger().partial_fit(X, y, classes=[0, 1, 2])
    with pytest.raises(ValueError, match="classes must be those of the first call"):
        tagger.partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match="X has 3 features, but the first call"):
        tagger.partial_fit([x[:, :3] for x in X], y)
    with pytest.raises(ValueError, match="at most 4000 features; got 4001"):
        paper_tagger().partial_fit([sparse.csr_matrix((2, 4001))], [[0, 1]], classes=[0, 1])


# ------------------------------------------------------------------ solvers


class Matrix:
    def __init__(self, A):
        self.A = A

    def hessian_product(self, V):
        return self.A @ V


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("columns", ["plain", "dependent", "zero among them"])
def test_block_conjugate_gradients(seed, columns):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(30, 40))
    A = A @ A.T + 0.1 * np.eye(30)
    B = rng.normal(size=(30, 4))
    if columns == "dependent":
        B[:, 3] = B[:, 0] - 2 * B[:, 1]
    elif columns == "zero among them":
        B[:, 2] = 0
    result = cg(Matrix(A), B, preconditioner=1 / np.diag(A), tol=1e-12)
    assert result.converged
    expected = np.linalg.solve(A, B)
    assert_allclose(result.w, expected, rtol=1e-8, atol=1e-9)
    assert_allclose(result.value, -0.5 * np.vdot(expected, B), rtol=1e-9)
    # Columns share their directions: 4 a product, 30 in all.
    assert result.n_iter <= 15
    assert_allclose(
        result.history[-1],
        np.linalg.norm(B - A @ result.w, axis=0).max() / np.linalg.norm(B, axis=0).max(),
        atol=1e-11,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_conjugate_gradients_from_another_start(seed):
    rng = np.random.default_rng(seed)
    scale = np.exp(rng.normal(size=60))[:, None]
    Q = np.linalg.qr(rng.normal(size=(60, 60)))[0]
    A = scale * (Q * np.geomspace(1e-3, 1, 60) @ Q.T) * scale.T
    B = rng.normal(size=(60, 3))
    options = {"preconditioner": 1 / np.diag(A), "tol": 1e-10}
    expected, before = np.linalg.solve(A, B), cg(Matrix(A), B, **options)
    for noise in (0.0, 1e-3, 10.0):
        start = expected * (1 + noise * rng.normal(size=expected.shape))
        given = start.copy()
        result = cg(Matrix(A), B, start=start, **options)
        assert_allclose(start, given)
        assert result.converged
        assert_allclose(result.w, expected, rtol=1e-6, atol=1e-7 * np.abs(expected).max())
        assert_allclose(result.value, before.value, rtol=1e-9)
        if noise == 0:
            assert result.n_iter <= 1


def test_a_small_column_is_solved_as_well_as_a_large_one():
    A = np.diag(np.concatenate([np.ones(10), np.linspace(1, 50, 30)]))
    B = np.zeros((40, 2))
    B[:10, 0], B[10:, 1] = 1.0, 1e-8  # at once, and in many iterations
    result = cg(Matrix(A), B, tol=1e-3)
    assert_allclose(result.w[10:, 1], 1e-8 / np.diag(A)[10:], rtol=0.05)


@pytest.mark.parametrize("seed", SEEDS)
def test_minimum_norm_of_a_singular_system(seed):
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(20, 6))
    A, B = F @ F.T, F @ rng.normal(size=(6, 3))
    expected = np.linalg.pinv(A, rcond=1e-10, hermitian=True) @ B
    assert_allclose(cg(Matrix(A), B, tol=1e-13).w, expected, rtol=1e-7, atol=1e-9)
    assert_allclose(solve_dense(A, B, 0.0).w, expected, rtol=1e-7, atol=1e-9)


def test_nothing_to_solve():
    result = cg(Matrix(np.eye(3)), np.zeros((3, 2)))
    assert result.converged
    assert_array_equal(result.w, 0)


def test_a_callback_stops_conjugate_gradients():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 30))
    result = cg(Matrix(A @ A.T), rng.normal(size=(30, 1)), callback=lambda k, r, W: k == 3)
    assert (result.n_iter, result.message) == (3, "callback")


@pytest.mark.parametrize("seed", range(6))
def test_least_distance(seed):
    rng = np.random.default_rng(seed)
    F, h = rng.normal(size=(5, 8)), rng.normal(size=5)
    x = F.T @ least_distance(F @ F.T, h)
    found = minimize(
        lambda x: 0.5 * x @ x,
        np.zeros(8),
        jac=lambda x: x,
        method="SLSQP",
        options={"ftol": 1e-14},
        constraints={"type": "ineq", "fun": lambda x: F @ x - h, "jac": lambda x: F},
    )
    assert_allclose(x, found.x, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_least_distance_from_any_start_and_of_dependent_constraints(seed):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(1, 30)), int(rng.integers(2, 15))
    F, x = rng.normal(size=(n, m)) * 10.0 ** rng.integers(-2, 3, size=(n, 1)), rng.normal(size=m)
    K, h = F @ F.T, F @ x - rng.random(n)  # that of x holds
    for active in (None, np.zeros(n, dtype=bool), rng.random(n) < 0.5):
        a = least_distance(K, h, active)
        slack, size = K @ a - h, np.sqrt(np.diag(K))
        assert (a >= 0).all()
        assert (slack >= -1e-7 * size * np.abs(h / size).max()).all()
        assert abs(a @ slack) <= 1e-7 * max(1, a @ K @ a)


@pytest.mark.parametrize("seed", range(20))
def test_almost_equal_active_constraints_give_no_warning_of_scipy(seed):
    # Sequences that occur twice in training give such constraints.
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(4, 5))
    F = np.vstack([F, F + 1e-9 * rng.normal(size=F.shape)])
    K, h = F @ F.T, rng.random(8)
    slack = K @ least_distance(K, h, start=np.ones(8)) - h
    assert slack.min() >= -1e-7


def test_exchanges_of_constraints_agree_with_nonnegative_least_squares():
    # Also on whether there is an answer: rows of equal length, some of them dependent, up to five
    # times as many as components; from nothing, and from the answer of the first half.
    n_without = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(2, 25)), int(rng.integers(1, 8))
        F, x = rng.normal(size=(n, m)), rng.normal(size=m)
        F = np.vstack([F, F[rng.integers(n, size=3)]])
        F /= np.linalg.norm(F, axis=1)[:, None]
        h = F @ x - rng.choice([0, 1], n + 3) * rng.random(n + 3)
        h = h if seed % 2 else rng.normal(size=n + 3)
        K, half = F @ F.T, slice((n + 3) // 2)
        expected, first = _dense._nonnegative(K, h), _dense._nonnegative(K[half, half], h[half])
        start = np.zeros(n + 3)
        start[half] = 0 if first is None else first
        for begin in (np.zeros(n + 3), start):
            a = _dense._exchanges(K, h, begin)
            assert (a is None) == (expected is None)
            if a is not None:
                assert (a >= 0).all()
                assert (K @ a - h >= -1e-9 * np.abs(h).max()).all()
                assert_allclose(F.T @ a, F.T @ expected, rtol=1e-5, atol=1e-5)
        n_without += expected is None
    assert 20 < n_without < 100


@pytest.mark.parametrize("seed", range(3))
def test_exchanges_of_many_constraints(seed):
    rng = np.random.default_rng(seed)
    F, x = rng.normal(size=(150, 80)), rng.normal(size=80)
    h = F @ x - rng.random(150) * (rng.random(150) < 0.5)
    a = _dense._exchanges(F @ F.T, h, np.zeros(150))
    assert np.count_nonzero(a) > 48
    assert_allclose(F.T @ a, F.T @ _dense._nonnegative(F @ F.T, h), rtol=1e-8, atol=1e-10)


def test_differences_from_the_truth():
    for rows in (np.asarray, sparse.csr_matrix):
        sample, _ = make_sample(0, lengths=(3, 1, 0, 4))
        dense = sample.rows.toarray() if sparse.issparse(sample.rows) else sample.rows
        sample, rng = sample._replace(rows=rows(dense)), np.random.default_rng(0)
        which = [3, 0, 3, 1]
        paths = [rng.integers(3, size=np.diff(sample.offsets)[s]) for s in which]
        gaps, n_wrong = _differences(sample, list(zip(which, paths)))
        for k, (s, path) in enumerate(zip(which, paths)):
            span = slice(*sample.offsets[s : s + 2])
            y = sample.y[span]
            change = path_features(dense[span], y, 3) - path_features(dense[span], path, 3)
            found = np.concatenate([gaps.coef[k].ravel(), gaps.transition[k].ravel()])
            assert_allclose(found, change, atol=1e-12)
            assert n_wrong[k] == (y != path).sum()


def test_contradicting_constraints_have_no_answer():
    F = np.array([[1.0, 0.0], [-1.0, 0.0]])
    assert least_distance(F @ F.T, np.array([1.0, 1.0])) is None


def test_nothing_warns_on_good_data():
    X, y = make_data(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paper_tagger().fit(X, y)
        paper_tagger(solver="cg").fit(X, y)

"""Kernels of ZScoreTagger: against weights of features, and against fitting anew."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, KFold

from sklseq import RowBlocks, Sequences, ZScoreTagger, ZScoreTaggerCV
from sklseq.deployment import export
from sklseq.estimators.kernel_functions import gram_factor
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.zscore import kernel_space
from sklseq.estimators.zscore.zscore_problem import ZScoreProblem
from sklseq.metrics import SCORERS
from sklseq.objectives.zscore.leave_out import LeaveOut
from sklseq.objectives.zscore.moments import PairRule
from sklseq.solvers import solve_dense
from tests.objectives.test_moments import random_cost
from tests.trials.zscore_kernels import TOLERANCE, error_of

# Kernel and feature space give the same sums in another order; systems of condition up to 1e5.
SAME = {"rtol": 1e-8, "atol": 1e-8}
KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 0.4},
    "poly": {"kernel": "poly", "degree": 2, "gamma": 0.5, "coef0": 1.0},
    "callable": {"kernel": laplacian_kernel},
}


def make_sequences(seed, n=14, L=3):
    """Rows around centres of labels, and labels of which some follow others more often."""
    rng = np.random.default_rng(seed)
    X, y, centres = [], [], rng.normal(size=(L, 2))
    for length in rng.integers(1, 6, n):
        labels = np.cumsum(rng.random(length) < 0.6) % L
        X.append(centres[labels] + rng.normal(size=(length, 2)))
        y.append(labels)
    y[0], X[0] = np.arange(L), centres + 0.1
    y[-1], X[-1] = np.arange(L)[::-1].copy(), centres - 0.1
    return X, y, rng.random(n) + 0.5


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("transitions", ["covariance", "information"])
@pytest.mark.parametrize("loss", [None, "hamming", "matrix"])
@pytest.mark.parametrize("form", ["dense", "sparse", "precomputed", "landmarks"])
def test_the_kernel_of_features_is_their_linear_model(seed, transitions, loss, form):
    X, y, weights = make_sequences(seed)
    weights[3] = 0
    loss = random_cost(seed) if loss == "matrix" else loss
    options = {"loss": loss, "transitions": transitions, "l2": 0.2}
    linear = ZScoreTagger(**options).fit(X, y, weights)
    options |= {"kernel": "poly", "degree": 1, "gamma": 1.0}
    rows, new = np.concatenate(X), [x[::-1] * 1.1 for x in X]
    given, asked = X, new
    if form == "sparse":
        given, asked = ([sparse.csr_matrix(x) for x in part] for part in (X, new))
    if form == "precomputed":
        options["kernel"] = "precomputed"
        given, asked = ([x @ rows.T for x in part] for part in (X, new))
    if form == "landmarks":
        options |= {"n_landmarks": 20, "random_state": 0}
    tagger = ZScoreTagger(**options).fit(given, y, weights)
    close = {"rtol": 1e-5, "atol": 1e-5} if form == "landmarks" else SAME  # a ridge of 1e-10
    assert_allclose(tagger.transition_, linear.transition_, **close)
    assert_allclose(tagger.zscore_, linear.zscore_, rtol=close["rtol"])
    found, expected = tagger.potentials(asked), linear.potentials(new)
    assert_allclose(found.emission, expected.emission, **close)
    scores = [t.sequence_zscore(part, y).zscore for t, part in ((tagger, asked), (linear, new))]
    assert_allclose(*scores, **close)
    assert_allclose(tagger.multiplier_, linear.multiplier_, rtol=close["rtol"])
    assert tagger.n_support_ == len(tagger.support_) == len(tagger.dual_coef_)
    if form in ("dense", "landmarks"):
        assert_allclose(tagger.support_vectors_, rows[tagger.support_])
        assert_allclose(tagger.support_vectors_.T @ tagger.dual_coef_, linear.coef_, **close)
    owner = np.repeat(np.arange(len(X)), [len(x) for x in X])
    assert 3 not in owner[tagger.support_]


@pytest.mark.parametrize("kind", KERNELS)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("transitions", ["covariance", "information"])
@pytest.mark.parametrize("loss", [None, "hamming", "matrix"])
@pytest.mark.parametrize("l2", [1e-4, 0.3])
def test_left_out_scores_are_those_of_a_new_fit(kind, seed, transitions, loss, l2):
    X, y, weights = make_sequences(seed)
    cost = {None: None, "hamming": 1 - np.eye(3), "matrix": random_cost(seed)}[loss]
    options = KERNELS[kind] | {"l2": l2, "loss": cost, "transitions": transitions}
    source = RowSource.read(X, y, weights)
    problem = ZScoreProblem(ZScoreTagger(**options), source)
    leave_out = LeaveOut(problem.sample, problem.cost, solve_dense, problem.space.gram)
    for s, left in enumerate(leave_out.scores(l2)):
        others = np.delete(np.arange(len(X)), s)
        tagger = ZScoreTagger(**options).fit(
            [X[k] for k in others], [y[k] for k in others], weights[others]
        )
        found = tagger.potentials([X[s]])
        # All of a sequence's transitions are in its rows here: only differences mean anything.
        ends = np.zeros((len(X[s]), 3))
        moved = tagger.transition_ - left.transition(PairRule(transitions))
        row, column = moved.mean(axis=1), moved.mean(axis=0)
        assert_allclose(moved, row[:, None] + column - moved.mean(), **SAME)
        ends[:-1] += row
        ends[1:] += column - moved.mean()
        apart = found.emission + ends - left.emission
        assert_allclose(apart - apart.mean(axis=1, keepdims=True), 0, atol=1e-8)


@pytest.mark.parametrize("kind", [*KERNELS, "precomputed"])
@pytest.mark.parametrize("scoring", ["token_accuracy", "span_f1"])
def test_each_left_out_is_scored_as_after_a_new_fit(kind, scoring):
    X, y, _ = make_sequences(3)
    rows = np.concatenate(X)
    options = KERNELS.get(kind, {"kernel": "precomputed"})
    given = [rbf_kernel(x, rows) for x in X] if kind == "precomputed" else X
    grid = {"l2s": [0.01, 0.5], "transition_weights": [None, 0.3]}
    found = ZScoreTaggerCV(cv="leave-one-out", **grid, **options).fit(given, y)
    bounds = np.cumsum([0, *map(len, X)])
    for i, j in np.ndindex(2, 2):
        right = 0
        for s in range(len(X)):
            others = np.delete(np.arange(len(X)), s)
            columns = np.concatenate([np.arange(bounds[k], bounds[k + 1]) for k in others])
            columns = columns if kind == "precomputed" else slice(None)
            tagger = ZScoreTagger(
                l2=grid["l2s"][i], transition_weight=grid["transition_weights"][j],
                transitions="information", **options,
            ).fit([given[k][:, columns] for k in others], [y[k] for k in others])  # fmt: skip
            right += (tagger.predict([given[s][:, columns]])[0] == y[s]).sum()
        assert_allclose(found.cv_scores_[i, j], right / len(rows))


@pytest.mark.parametrize("landmarks", [None, 9])
def test_folds_score_as_a_grid_search_does(landmarks):
    X, y, _ = make_sequences(4, n=21)
    options = {"kernel": "rbf", "n_landmarks": landmarks, "random_state": 0}
    grid = {"l2": [0.01, 1.0], "transition_weight": [None, 0.3]}
    search = GridSearchCV(
        ZScoreTagger(transitions="information", **options), {"gamma": [0.1, 0.7], **grid},
        cv=KFold(3), scoring=SCORERS["token_accuracy"],
    ).fit(X, y)  # fmt: skip
    found = ZScoreTaggerCV(
        l2s=grid["l2"], transition_weights=grid["transition_weight"], gammas=[0.1, 0.7],
        cv=KFold(3), **options,
    ).fit(X, y)  # fmt: skip
    expected = search.cv_results_["mean_test_score"].reshape(2, 2, 2)
    assert_allclose(found.cv_scores_, expected, rtol=1e-12)
    assert found.best_score_ == found.cv_scores_.max()
    g, i, _ = np.argwhere(found.cv_scores_ == found.cv_scores_.max())[0]
    if (found.cv_scores_ == found.cv_scores_.max()).sum() == 1:
        assert (found.gamma_, found.l2_) == ([0.1, 0.7][g], grid["l2"][i])
    refit = ZScoreTagger(
        l2=found.l2_, gamma=found.gamma_, transitions="information",
        transition_weight=found.transition_weight_, **options,
    ).fit(X, y)  # fmt: skip
    assert_allclose(found.dual_coef_, refit.dual_coef_, rtol=1e-9)


@pytest.mark.parametrize("kind", ["rbf", "callable"])
def test_landmarks_are_the_linear_model_of_their_features(kind, monkeypatch):
    monkeypatch.setattr(kernel_space, "BLOCK", 70)  # several parts
    X, y, weights = make_sequences(5, n=30)
    options = KERNELS[kind] | {"l2": 0.05, "transitions": "information"}
    tagger = ZScoreTagger(n_landmarks=7, random_state=1, **options).fit(X, y, weights)
    kernel = (lambda A, B: rbf_kernel(A, B, gamma=0.4)) if kind == "rbf" else laplacian_kernel
    Z = tagger.support_vectors_
    root = gram_factor(kernel(Z, Z))
    features = [solve_triangular(root, kernel(x, Z).T, lower=True).T for x in X]
    linear = ZScoreTagger(l2=0.05, transitions="information").fit(features, y, weights)
    assert_allclose(tagger.transition_, linear.transition_, **SAME)
    assert_allclose(tagger.potentials(X).emission, linear.potentials(features).emission, **SAME)
    assert_allclose(tagger.zscore_, linear.zscore_, rtol=1e-8)


def test_blocks_pickles_and_sequences_of_other_types():
    X, y, _ = make_sequences(6)
    tagger = ZScoreTagger(kernel="rbf").fit(X, y)
    expected = tagger.predict([np.concatenate(X)])[0]
    long = np.concatenate(X)
    blocks = [long[a : a + 4] for a in range(0, len(long), 4)]
    assert_array_equal(np.concatenate(list(tagger.predict_blocks(RowBlocks(blocks)))), expected)
    again = pickle.loads(pickle.dumps(tagger))
    assert_array_equal(again.predict([long])[0], expected)
    rows = Sequences(np.concatenate(X).astype(np.float32), np.cumsum([0, *map(len, X)]))
    single = ZScoreTagger(kernel="rbf").fit(rows, y)
    assert single.transition_.dtype == np.float32
    assert_allclose(single.potentials(rows).emission, tagger.potentials(X).emission, atol=1e-4)
    linear = tagger.set_params(kernel="linear").fit(X, y)
    assert not hasattr(linear, "dual_coef_")
    assert not hasattr(linear, "gamma_")


def test_what_needs_weights_of_features_says_so(tmp_path):
    X, y, _ = make_sequences(7)
    tagger = ZScoreTagger(kernel="rbf").fit(X, y)
    message = "only kernel='linear' gives weights of features"
    for ask in (lambda: tagger.top_features(), lambda: tagger.to_crf(X, y)):
        with pytest.raises(AttributeError, match=message):
            ask()
    with pytest.raises(AttributeError, match=message):
        _ = tagger.state_features_
    with pytest.raises(ValueError, match="fitted with a kernel that is not linear"):
        export(tagger, tmp_path / "model")
    assert len(tagger.top_transitions(3)) == 3
    assert tagger.transition_features_
    with pytest.raises(NotFittedError):
        ZScoreTagger().top_features()
    with pytest.raises(AttributeError, match="partial_fit: it needs kernel='linear', whose sums"):
        ZScoreTagger(kernel="rbf").partial_fit(X, y, classes=[0, 1, 2])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kernel": "rbf", "separate": True}, "kernel='rbf' needs weights in closed form"),
        ({"kernel": "rbf", "moments": "dp"}, "kernel='rbf' needs weights in closed form"),
        ({"kernel": "sigmoid"}, "kernel must be one of"),
        ({"kernel": "rbf", "gamma": -1}, "gamma must be above 0"),
        ({"kernel": "linear", "n_landmarks": 3}, "n_landmarks=3 needs a kernel between rows"),
        ({"kernel": "rbf", "n_landmarks": 0}, "n_landmarks must be"),
        ({"kernel": "rbf", "cache_size": 1e-6}, "Raise cache_size"),
    ],
)
def test_wrong_kernels(options, message):
    X, y, _ = make_sequences(8)
    with pytest.raises(ValueError, match=message):
        ZScoreTagger(**options).fit(X, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gammas": [0.1]}, "gammas are for kernel='poly' and 'rbf', not 'linear'"),
        ({"kernel": "rbf", "gammas": [0.0]}, "gammas must be None or a list"),
        ({"kernel": "rbf", "n_landmarks": 3, "cv": "leave-one-out"}, "need all rows, not n_land"),
        ({"kernel": "rbf", "n_landmarks": 3, "scoring": "gcv"}, "need all rows, not n_landmarks"),
    ],
)
def test_wrong_searches(options, message):
    X, y, _ = make_sequences(8)
    with pytest.raises(ValueError, match=message):
        ZScoreTaggerCV(**options).fit(X, y)


def make_far(offset, seed=7):
    rng = np.random.default_rng(seed)
    y = [rng.integers(3, size=6) for _ in range(10)]
    return [rng.normal(size=(6, 2)) + labels[:, None] + offset for labels in y], y


@pytest.mark.parametrize("offset", [1e3, 1e4, 1e5, 3e5, 1e6])
@pytest.mark.parametrize("loss", [None, "hamming"])
@pytest.mark.parametrize("coef0", [0.0, 1.0])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_far_from_zero(offset, loss, coef0):
    X, y = make_far(offset)
    linear = ZScoreTagger(loss=loss, solver="direct").fit(X, y)
    if coef0:  # a constant column
        given = [np.hstack([x, np.ones((6, 1))]) for x in X]
        linear = ZScoreTagger(loss=loss, solver="direct").fit(given, y)
    tagger = ZScoreTagger(loss=loss, kernel="poly", degree=1, gamma=1.0, coef0=coef0).fit(X, y)
    expected = linear.potentials(given if coef0 else X)
    for found, sought in zip(tagger.potentials(X)[:2], expected[:2]):
        apart = found - sought
        apart -= apart.mean(axis=1, keepdims=True)
        # Entries of the kernel are rounded to about offset² · 2e-16.
        assert np.abs(apart).max() < 5e-2 * (offset / 1e6) ** 2


@pytest.mark.parametrize("landmarks", [None, 3])
@pytest.mark.filterwarnings("ignore:.*label")
def test_one_label(landmarks):
    X, y = make_far(0.0)
    y = [np.zeros_like(labels) for labels in y]
    tagger = ZScoreTagger(kernel="rbf", n_landmarks=landmarks, random_state=0).fit(X, y)
    assert not np.concatenate(tagger.predict(X)).any()


def test_a_kernel_that_lost_its_digits_warns():
    for options, offset in ({}, 1e7), ({"n_landmarks": 20, "random_state": 0}, 1e5):
        options |= {"kernel": "poly", "degree": 1, "gamma": 1.0}
        with pytest.warns(ConvergenceWarning, match="centre the columns"):
            ZScoreTagger(**options).fit(*make_far(offset))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            ZScoreTagger(**options).fit(*make_far(100.0))


@pytest.mark.parametrize("seed", range(8))
def test_random_problems(seed):
    assert error_of(seed) <= TOLERANCE

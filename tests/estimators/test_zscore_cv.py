"""The transition weight, and ZScoreTaggerCV against fitting anew for every fold and candidate."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, KFold

from sklseq import Sequences, ZScoreTagger, ZScoreTaggerCV
from sklseq._lib.threads import Threads
from sklseq.estimators.zscore import zscore_cv
from sklseq.estimators.zscore.ridge_systems import RidgeSystems
from sklseq.metrics import SCORERS, token_accuracy
from sklseq.objectives.zscore.moments import ChainWeights, Sample, decompose
from tests.objectives.test_moments import (
    enumerate_moments,
    labelings,
    make_sample,
    make_text,
    random_cost,
)
from tests.sample_data import make_data

SAME = {"rtol": 1e-8, "atol": 1e-9}
L2S, WEIGHTS = [0.03, 1.0], [None, 0.0, 0.3, 2.0]
KINDS = ["covariance", "information"]


def parts_of(tagger):
    """W and D."""
    return decompose(ChainWeights(tagger.coef_, tagger.transition_))


def make_spans(seed, n=17):
    """Sequences of words with labels of spans; not all labels are in every fold."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, n)
    word = np.minimum(rng.zipf(1.4, lengths.sum()) - 1, 24)
    y = np.array(["O", "B-x", "O", "B-y"])[word % 4]
    y[-1] = "B-z"
    inside = rng.random(len(y)) < 0.4
    y[1:] = [f"I{a[1:]}" if a != "O" and i else b for a, b, i in zip(y, y[1:], inside)]
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    y = [["B" + c[1:] if t == 0 and c[0] == "I" else c for t, c in enumerate(part)]
         for part in np.split(y, offsets[1:-1])]  # fmt: skip
    return Sequences(sparse.csr_matrix(np.eye(25)[word]), offsets), y


@pytest.mark.parametrize("loss", [None, "hamming", "matrix"])
@pytest.mark.parametrize("weight", [0.0, 0.2, 1.0, 3.0])
def test_the_transition_weight_scales_d_alone(loss, weight):
    sample, allowed = make_sample(1, "real", None, (3, 1, 4, 2, 3, 4))
    X, y = (np.split(part, sample.offsets[1:-1]) for part in (sample.rows, sample.y))
    cost = {None: np.zeros((3, 3)), "hamming": 1 - np.eye(3), "matrix": random_cost(1)}[loss]
    options = {"l2": 0.3, "loss": cost if loss == "matrix" else loss}
    tagger = ZScoreTagger(transition_weight=weight, **options).fit(X, y, sample.weights)
    natural = ZScoreTagger(transitions="covariance", **options).fit(X, y, sample.weights)
    plain = ZScoreTagger(transitions="covariance", l2=0.3, loss=None).fit(X, y, sample.weights)
    (main, pairs), (plain_main, plain_pairs) = parts_of(tagger), parts_of(plain)
    assert_allclose(main, parts_of(natural)[0], **SAME)
    assert tagger.transition_weight_ == weight
    assert_allclose(parts_of(natural)[1] * weight, pairs * natural.transition_weight_, **SAME)
    if loss != "matrix":  # state weights are a multiple of those without a loss
        size = tagger.multiplier_ + 1 / 3 if loss else 1.0
        assert_allclose(main, size * plain_main, **SAME)
        assert_allclose(pairs, weight * size * plain_pairs, **SAME)
    b, C, c, mean_loss = enumerate_moments(sample, allowed, cost)
    spread = sum(
        omega * np.var([sum(cost[i, j] for i, j in zip(t, p)) for p in labelings(len(t), allowed)])
        for omega, t in zip(sample.weights, np.split(sample.y, sample.offsets[1:-1]))
    )
    w = np.concatenate([tagger.coef_.ravel(), tagger.transition_.ravel()])
    z = (w @ b - mean_loss) / np.sqrt(w @ C @ w + 2 * w @ c + spread)
    assert_allclose(tagger.zscore_, z, rtol=1e-8)
    parts = ZScoreTagger(transition_weight=weight, **options)
    parts.partial_fit(X[:2], y[:2], [0, 1, 2], sample.weights[:2])
    parts.partial_fit(X[2:], y[2:], sample_weight=sample.weights[2:])
    assert_allclose(parts.transition_, tagger.transition_, **SAME)
    assert_allclose(parts.zscore_, tagger.zscore_, rtol=1e-8)


@pytest.mark.parametrize("weight", [None, 0.0, 0.2])
@pytest.mark.parametrize("loss", [None, "hamming", "matrix"])
def test_information_replaces_d(weight, loss):
    sample, allowed = make_sample(2, "real", None, (3, 1, 4, 2, 3, 4))
    X, y = (np.split(part, sample.offsets[1:-1]) for part in (sample.rows, sample.y))
    cost = {None: np.zeros((3, 3)), "hamming": 1 - np.eye(3), "matrix": random_cost(1)}[loss]
    options = {"l2": 0.3, "loss": cost if loss == "matrix" else loss}
    options |= {"transition_weight": weight, "transitions": "information"}
    tagger = ZScoreTagger(**options).fit(X, y, sample.weights)
    natural = ZScoreTagger(transitions="covariance", l2=0.3, loss=options["loss"])
    natural.fit(X, y, sample.weights)
    assert_allclose(tagger.coef_, natural.coef_, **SAME)
    kappa = 0.07 if weight is None else weight
    assert tagger.transition_weight_ == kappa
    counts = np.full((3, 3), 0.5)
    for omega, labels in zip(sample.weights, y):
        for pair in zip(labels, labels[1:]):
            counts[pair] += omega
    free = counts.sum(axis=1)[:, None] * counts.sum(axis=0) / counts.sum()
    size = natural.multiplier_ / natural.transition_weight_ if loss else 1.0
    shift = tagger.transition_ - natural.transition_ + parts_of(natural)[1]
    assert_allclose(shift, kappa * size * 3 * np.log(counts / free), **SAME)
    b, C, c, mean_loss = enumerate_moments(sample, allowed, cost)
    spread = sum(
        omega * np.var([sum(cost[i, j] for i, j in zip(t, p)) for p in labelings(len(t), allowed)])
        for omega, t in zip(sample.weights, y)
    )
    w = np.concatenate([tagger.coef_.ravel(), tagger.transition_.ravel()])
    z = (w @ b - mean_loss) / np.sqrt(w @ C @ w + 2 * w @ c + spread)
    assert_allclose(tagger.zscore_, z, rtol=1e-8)
    parts = ZScoreTagger(**options).partial_fit(X[:2], y[:2], [0, 1, 2], sample.weights[:2])
    parts.partial_fit(X[2:], y[2:], sample_weight=sample.weights[2:])
    assert_allclose(parts.transition_, tagger.transition_, **SAME)
    assert_allclose(parts.zscore_, tagger.zscore_, rtol=1e-8)


@pytest.mark.parametrize(
    "options", [{"moments": "dp"}, {"separate": True},
                {"constrained": "training", "constraints": np.eye(3) + np.eye(3)[::-1] > 0}]
)  # fmt: skip
def test_a_transition_weight_needs_the_closed_form(options):
    X, y = [np.ones((1, 2))] * 3, [[0], [1], [2]]
    with pytest.raises(ValueError, match=r"transition_weight=0\.5 needs weights in closed form"):
        ZScoreTagger(transition_weight=0.5, **options).fit(X, y)
    with pytest.raises(ValueError, match="transitions='information' needs weights in closed form"):
        ZScoreTagger(transitions="information", **options).fit(X, y)


@pytest.mark.parametrize("value", [-1, np.nan, "auto", True])
def test_bad_transition_weights(value):
    with pytest.raises(ValueError, match="transition_weight must be None or a finite number"):
        ZScoreTagger(transition_weight=value).fit(*make_data(0))


@pytest.mark.parametrize(
    ("seed", "form"), enumerate([sparse.csr_matrix, "csr float32", lambda rows: rows.toarray()])
)
@pytest.mark.parametrize(
    ("loss", "constraints", "scoring"),
    [("hamming", None, "token_accuracy"), ("hamming", "iob2", "span_f1"), (None, None, "span_f1")],
)
@pytest.mark.parametrize("transitions", KINDS)
def test_folds_score_as_a_grid_search_does(seed, form, loss, constraints, scoring, transitions):
    X, y = make_spans(seed)
    rows = X.rows.astype(np.float32) if isinstance(form, str) else form(X.rows)
    X = Sequences(rows, X.offsets)
    options = {"loss": loss, "constraints": constraints, "transitions": transitions}
    found = ZScoreTaggerCV(
        l2s=L2S, transition_weights=WEIGHTS, cv=KFold(3), scoring=scoring, **options
    ).fit(X, y)
    grid = {"l2": L2S, "transition_weight": WEIGHTS}
    search = GridSearchCV(ZScoreTagger(**options), grid, cv=KFold(3), scoring=SCORERS[scoring]).fit(
        X, y
    )
    expected = search.cv_results_["mean_test_score"].reshape(2, 4)
    assert_allclose(found.cv_scores_, expected, rtol=1e-12)
    i, j = np.unravel_index(found.cv_scores_.argmax(), (2, 4))
    if (expected == expected.max()).sum() == 1:
        assert found.l2_ == L2S[i] == search.best_params_["l2"]
        assert search.best_params_["transition_weight"] == WEIGHTS[j]
    refit = ZScoreTagger(l2=found.l2_, transition_weight=found.transition_weight_, **options)
    assert_allclose(found.transition_, refit.fit(X, y).transition_, rtol=1e-6)


@pytest.mark.parametrize("transitions", KINDS)
def test_folds_with_a_matrix_of_losses_and_with_weights(transitions):
    # A fold lacks the last label; sequences of weight 0 keep their place in the folds.
    X, y = make_spans(0)
    classes = sorted({label for part in y for label in part})
    cost = random_cost(0, len(classes))
    weights = np.array([1.0, 2.0, 0.0] * 6)[: len(X)]
    found = ZScoreTaggerCV(
        l2s=[0.1], transition_weights=[None, 0.5], loss=cost, cv=KFold(4), transitions=transitions
    ).fit(X, y, weights)
    expected = []
    for train, test in KFold(4).split(np.arange(len(X))):
        train, test = train[weights[train] > 0], test[weights[test] > 0]
        seen = sorted({label for s in train for label in y[s]})
        at = np.searchsorted(classes, seen)
        scores = []
        for weight in (None, 0.5):
            options = {"transition_weight": weight, "transitions": transitions}
            tagger = ZScoreTagger(l2=0.1, loss=cost[np.ix_(at, at)], **options)
            tagger.fit(X[train], [y[s] for s in train], weights[train])
            truth = [y[s] for s in test]
            scores.append(
                token_accuracy(truth, tagger.predict(X[test]), sample_weight=weights[test])
            )
        expected.append(scores)
    assert_allclose(found.cv_scores_[0], np.mean(expected, axis=0), rtol=1e-12)


@pytest.mark.parametrize("seed", [1, 2, 6])
@pytest.mark.parametrize("constraints", [None, "iob2"])
@pytest.mark.parametrize("transitions", KINDS)
def test_each_sequence_left_out_for_every_transition_weight(seed, constraints, transitions):
    X, y = make_spans(seed)
    y[-1] = ["O"] * len(y[-1])  # every label is in every training set
    options = {"constraints": constraints, "transitions": transitions}
    found = ZScoreTaggerCV(
        l2s=[0.1], transition_weights=WEIGHTS, cv="leave-one-out", **options
    ).fit(X, y)
    for weight, score in zip(WEIGHTS, found.cv_scores_[0]):
        right, tagger = 0, ZScoreTagger(l2=0.1, transition_weight=weight, **options)
        for s in range(len(X)):
            others = np.delete(np.arange(len(X)), s)
            tagger.fit(X[others], [y[k] for k in others])
            assert len(tagger.classes_) == len(found.classes_)
            right += (np.array(tagger.predict(X[[s]])[0]) == y[s]).sum()
        assert_allclose(score, right / X.n_rows)


def test_folds_are_the_default_where_rows_and_features_are_many(monkeypatch):
    X, y = make_data(0, n=20)
    each, folds = (ZScoreTaggerCV(cv=cv).fit(X, y).cv_scores_ for cv in ("leave-one-out", 5))
    assert_array_equal(ZScoreTaggerCV().fit(X, y).cv_scores_, each)
    monkeypatch.setattr(zscore_cv, "FEW_ENTRIES", 10)
    assert_array_equal(ZScoreTaggerCV().fit(X, y).cv_scores_, folds)
    assert np.abs(each - folds).max() > 0


@pytest.mark.parametrize("kind", ["ones", "values", "repeated entries", "dense"])
@pytest.mark.parametrize("solver", ["cg", "direct"])
@pytest.mark.parametrize("ridges", [[30.0, 3.0, 0.3, 0.03], [10.0, 9.99, 9.99, 1.0], [1.0, 1e-16]])
def test_systems_of_several_ridges_are_those_of_each(kind, solver, ridges):
    sample = make_text(3, kind)
    if kind == "dense":
        sample = sample._replace(rows=sample.rows.toarray())
    tagger, kept = ZScoreTagger(solver=solver, tol=1e-11, max_iter=2_000), np.arange(1, 66, 3)
    systems = RidgeSystems(tagger, sample, several=True, kept=kept)
    with Threads(1) as threads:
        for ridge in ridges:
            system, result = systems.solve(ridge, threads)
            single, alone = RidgeSystems(tagger, sample).solve(ridge, threads)
            tolerance = {"rtol": 1e-6, "atol": 1e-8} if ridge > 1e-9 else {"rtol": 0, "atol": 1e-4}
            expected = single.weights(np.eye(3))[[*kept, -2, -1]]
            assert_allclose(system.weights(np.eye(3), kept), expected, **tolerance)
            weights = sample.row_weights
            found, expected = (one.training_scores(weights) for one in (system, single))
            assert_allclose(found, expected, **tolerance)
            assert result.converged == alone.converged


def test_systems_start_from_those_of_larger_ridges():
    rng = np.random.default_rng(0)
    word = np.minimum(rng.zipf(1.3, 6_000) - 1, 3_000)
    rows = sparse.csr_matrix((np.ones(12_000), np.c_[word, np.roll(word, 1) + 3_001].ravel(),
                              np.arange(0, 12_001, 2)), (6_000, 6_002))  # fmt: skip
    y = (word % 5 + (rng.random(6_000) < 0.2)).astype(np.int32)
    sample = Sample(rows, np.arange(0, 6_001, 10), y, np.ones(600), 6)
    tagger, counts = ZScoreTagger(solver="cg", tol=1e-6), []
    line, last = (RidgeSystems(tagger, sample, several=True) for _ in range(2))
    with Threads(1) as threads:
        for ridge in (3.0, 1.0, 0.3, 0.1, 0.03):
            last.solved = last.solved[-1:]
            ways = line, last, RidgeSystems(tagger, sample)
            counts.append([way.solve(ridge, threads)[1].n_iter for way in ways])
    assert len(set(counts[0])) == 1
    by_line, by_last, alone = np.sum(counts[1:], axis=0)
    assert by_line < by_last < alone


def test_systems_that_are_not_solved_are_named(monkeypatch):
    X, y = make_data(0, n=20)
    solve = RidgeSystems.solve

    def unsolved(self, ridge, threads):
        system, result = solve(self, ridge, threads)
        return system, result._replace(converged=ridge > 1)

    monkeypatch.setattr(RidgeSystems, "solve", unsolved)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ZScoreTaggerCV(l2s=[0.01, 0.1, 1.0], cv=3).fit(X, y)
    assert "linear systems of l2=[0.01, 0.1] within" in str(caught[0].message)
    with pytest.warns(ConvergenceWarning, match="raise the least of l2s"):
        ZScoreTaggerCV(l2s=[0.01], cv="leave-one-out").fit(X, y)


@pytest.mark.parametrize("weights", [[], "auto", [-1.0], [np.inf], 0.5, [None, "x"]])
def test_bad_lists_of_transition_weights(weights):
    with pytest.raises(ValueError, match="transition_weights must be a list"):
        ZScoreTaggerCV(transition_weights=weights).fit(*make_data(0))


@pytest.mark.parametrize(
    ("options", "n", "message"),
    [
        ({}, 1, "at least 2 with rows and a weight above 0; got 1"),
        ({"scoring": "gcv", "cv": 3}, 6, "cv must be None; got cv=3"),
        ({"transition_weights": [True]}, 6, "transition_weights must be a list"),
    ],
)
def test_wrong_searches(options, n, message):
    X, y = make_data(0, n=6)
    with pytest.raises(ValueError, match=message):
        ZScoreTaggerCV(**options).fit(X[:n], y[:n])


def test_scoring_none_and_scorers_of_other_methods():
    X, y = make_data(0, n=6)
    none, named = (ZScoreTaggerCV(scoring=s).fit(X, y) for s in (None, "token_accuracy"))
    assert_array_equal(none.cv_scores_, named.cv_scores_)
    assert type(ZScoreTagger(transition_weight=1).fit(X, y).transition_weight_) is float
    with pytest.raises(AttributeError, match="can use predict only, not 'decision_function'"):
        ZScoreTaggerCV(scoring=lambda t, X, y: t.decision_function(X)).fit(X, y)


@pytest.mark.parametrize("form", ["dict", "callable"])
def test_losses_by_label_serve_folds(form):
    X, y = [np.eye(2)] * 6 + [np.eye(2)[:1]] * 2, [[0, 1]] * 6 + [[0], [2]]
    costs = {"dict": {(0, 1): 5, (2, 1): 3}, "callable": lambda a, b: {0: 5, 2: 3}.get(a, 1.0)}
    matrix = np.array([[0, 5, 1], [1, 0, 1], [1, 3, 0]])
    if form == "callable":
        matrix = np.array([[0, 5, 5], [1, 0, 1], [3, 3, 0]])
    scores = [
        ZScoreTaggerCV(loss=loss, l2s=[0.1, 1.0], cv=KFold(4)).fit(X, y).cv_scores_
        for loss in (costs[form], matrix)
    ]
    assert_array_equal(*scores)

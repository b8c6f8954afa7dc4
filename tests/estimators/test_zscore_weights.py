"""``class_weight`` of ZScoreTagger: against weighted regression, and against fitting anew."""

from functools import partial

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.model_selection import GridSearchCV, KFold

from sklseq import HMSVMTagger, ZScoreTagger, ZScoreTaggerCV
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.zscore.zscore_problem import ZScoreProblem
from sklseq.objectives.zscore.leave_out import LeaveOut
from sklseq.objectives.zscore.moments import decompose, extended_rows
from sklseq.solvers import solve_dense
from tests.estimators.test_zscore_cv import make_spans
from tests.estimators.test_zscore_kernels import make_sequences

SAME = {"rtol": 1e-8, "atol": 1e-9}
WEIGHTS = {0: 0.3, 2: 4.0}


def weighted(y):
    return np.array([WEIGHTS.get(label, 1.0) for labels in y for label in labels])


@pytest.mark.parametrize("way", ["direct", "cg", "kernel", "parts"])
@pytest.mark.parametrize("transitions", ["covariance", "information"])
def test_rows_are_weighed_in_the_regression(way, transitions):
    X, y, own = make_sequences(0)
    offsets, rows, flat = np.cumsum([0, *map(len, X)]), np.concatenate(X), np.concatenate(y)
    d = np.repeat(own, np.diff(offsets)) * weighted(y)
    Z, Y = extended_rows(rows, offsets, 3), np.eye(3)[flat]
    V = np.linalg.solve((Z.T * d) @ Z + 2 * 3 * 0.2 * np.eye(4), (Z.T * d) @ Y)
    options = {"loss": None, "l2": 0.2, "class_weight": WEIGHTS, "transitions": transitions}
    if way == "parts":
        tagger = ZScoreTagger(**options).partial_fit(X[:5], y[:5], [0, 1, 2], own[:5])
        tagger.partial_fit(X[5:], y[5:], sample_weight=own[5:])
    elif way == "kernel":
        options |= {"kernel": "poly", "degree": 1, "gamma": 1.0}
        tagger = ZScoreTagger(**options).fit(X, y, own)
    elif way == "cg":
        tagger = ZScoreTagger(solver="cg", tol=1e-12, **options)
        tagger.fit([sparse.csr_matrix(x) for x in X], y, own)
    else:
        tagger = ZScoreTagger(**options).fit(X, y, own)
    main = 3 * V - V.sum(axis=1, keepdims=True)
    assert_allclose(tagger.potentials(X).emission, rows @ main[:-2], **SAME)
    plain = ZScoreTagger(**options | {"class_weight": None, "kernel": "linear"}).fit(X, y, own)
    if transitions == "covariance":  # D counts sequences
        D = decompose((np.zeros((2, 3)), tagger.transition_))[1]
        assert_allclose(D, decompose((np.zeros((2, 3)), plain.transition_))[1], **SAME)
    W, D = decompose((main[:-2], tagger.transition_))
    counts = np.zeros((3, 3))
    for omega, labels in zip(own, y):
        np.add.at(counts, (labels[:-1], labels[1:]), omega)
    gap = np.vdot(W, (Z.T * d) @ Y) + np.vdot(D, counts)
    variance = np.vdot(W, (Z.T * d) @ Z @ W) / 3 + counts.sum() * np.square(D).mean()
    assert_allclose(tagger.zscore_, gap / np.sqrt(variance), rtol=1e-8)


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("loss", [None, "hamming"])
def test_left_out_scores_are_those_of_a_new_fit(kernel, loss):
    X, y, own = make_sequences(1)
    options = {"kernel": kernel, "gamma": 0.4, "l2": 0.1, "loss": loss, "class_weight": WEIGHTS}
    options["transitions"] = "covariance"
    problem = ZScoreProblem(ZScoreTagger(**options), RowSource.read(X, y, own))
    gram = None if kernel == "linear" else problem.space.gram
    leave_out = LeaveOut(problem.sample, problem.cost, solve_dense, gram)
    for s, left in enumerate(leave_out.scores(0.1)):
        others = np.delete(np.arange(len(X)), s)
        tagger = ZScoreTagger(**options).fit(
            [X[k] for k in others], [y[k] for k in others], own[others]
        )
        D = decompose((np.zeros((2, 3)), tagger.transition_))[1]
        assert_allclose(decompose((np.zeros((2, 3)), left.transition()))[1], D, atol=1e-8)
        assert_allclose(left.natural, tagger.transition_weight_, rtol=1e-8)


@pytest.mark.parametrize("class_weight", ["balanced", {"O": 0.4}])
def test_folds_score_as_a_grid_search_does(class_weight):
    X, y = make_spans(0)
    options = {"class_weight": class_weight}
    found = ZScoreTaggerCV(l2s=[0.03, 1.0], transition_weights=[0.1], cv=KFold(3), **options)
    search = GridSearchCV(
        ZScoreTagger(transitions="information", transition_weight=0.1, **options),
        {"l2": [0.03, 1.0]},
        cv=KFold(3),
    ).fit(X, y)
    expected = search.cv_results_["mean_test_score"]
    assert_allclose(found.fit(X, y).cv_scores_[:, 0], expected, rtol=1e-12)


def make_islands(seed):
    """(X, y): four symbols, and a rare label that lasts."""
    rng = np.random.default_rng(seed)
    leaves = rng.random((2, 6, 1000)) < np.array([0.003, 0.01])[:, None, None]
    y = np.zeros((6, 1000), dtype=int)
    for t in range(1, 1000):
        y[:, t] = y[:, t - 1] ^ np.where(y[:, t - 1], leaves[1, :, t], leaves[0, :, t])
    symbols = np.array([[0.30, 0.20, 0.20, 0.30], [0.12, 0.38, 0.38, 0.12]]).cumsum(axis=1)
    codes = (rng.random((6, 1000, 1)) > symbols[y]).sum(axis=2).clip(max=3)
    return list(np.eye(4)[codes]), list(y)


def test_balanced_weights_find_a_rare_label_that_lasts():
    (X, y), (Z, wanted) = make_islands(0), make_islands(1)
    frequent = 1 - np.mean(wanted)
    assert 0.6 < frequent < 0.9
    assert ZScoreTagger(transition_weight=2.0).fit(X, y).score(Z, wanted) == frequent
    balanced = ZScoreTagger(class_weight="balanced", transition_weight=2.0).fit(X, y)
    assert balanced.score(Z, wanted) > frequent + 0.6 * (1 - frequent)


@pytest.mark.parametrize(
    ("options", "method", "message"),
    [
        ({"class_weight": {0: -1}}, "fit", "class_weight must be finite and above 0"),
        ({"class_weight": {0: 0.0}}, "fit", "class_weight must be finite and above 0"),
        ({"class_weight": {7: 2.0}}, "fit", "class_weight has the label 7, which y does not have"),
        (
            {"class_weight": WEIGHTS, "moments": "dp"},
            "fit",
            "class_weight needs weights in closed",
        ),
        ({"class_weight": "balanced"}, "partial_fit", "cannot have class_weight='balanced'"),
    ],
)
def test_wrong_class_weights(options, method, message):
    X, y, _ = make_sequences(2)
    arguments = {"classes": [0, 1, 2]} if method == "partial_fit" else {}
    error = AttributeError if method == "partial_fit" else ValueError
    with pytest.raises(error, match=message):
        getattr(ZScoreTagger(**options), method)(X, y, **arguments)


@pytest.mark.parametrize("names", [["1", "2", "3"], ["1", "10", "a"], [-1, 0, 7], ["a", "b", "c"]])
@pytest.mark.parametrize("estimator", [ZScoreTagger, partial(HMSVMTagger, random_state=0)])
@pytest.mark.parametrize("weights", ["balanced", WEIGHTS])
def test_weights_do_not_depend_on_the_names_of_labels(estimator, names, weights):
    X, y, _ = make_sequences(0)
    expected = estimator(class_weight=weights).fit(X, y)
    if weights != "balanced":
        weights = {names[label]: weight for label, weight in weights.items()}
    found = estimator(class_weight=weights).fit(X, [[names[k] for k in labels] for labels in y])
    assert found.classes_.tolist() == names
    assert_allclose(found.coef_, expected.coef_, **SAME)

"""Extreme penalties, one label, sequences of one row, labels that are missing in a fold."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, cross_val_score

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    OnlineDecoder,
)
from tests.estimators.methods import CRFS, NAMES, OTHERS, assert_sound, train
from tests.sample_data import make_argmax_data


@pytest.mark.filterwarnings("ignore:Of .* columns of X")  # the first three
@pytest.mark.parametrize("name", ["lbfgs", "eg", "adagrad", "segmenter", "perceptron", "z-score"])
def test_estimators_with_many_labels(name):
    L = 60 if name == "adagrad" else 150  # test_a_thousand_labels: kernels
    X, y = [np.arange(L).reshape(-1, 1) % [[7, 11, 13, 300]]] * 2, [np.arange(L)] * 2
    X = [x / 300.0 for x in X]
    fewer = {} if name in OTHERS else {"max_iter": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = train(name, X, y, **fewer)
    assert len(model.classes_) == L
    assert_sound(model, X)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "owlqn"] + ["segmenter"])
def test_a_penalty_of_a_million(name):
    X, y = make_argmax_data()
    rows, labels = sum(map(len, X)), np.concatenate(y)
    ridge = train(name, X, y, l2=1e6)
    assert max(np.abs(ridge.coef_).max(), np.abs(ridge.transition_).max()) < 1e-3
    # One Newton step from 0 away from it: all labels are as likely, to first order.
    assert_allclose(ridge.objective_, rows * np.log(len(np.unique(labels))), rtol=1e-4)
    if name != "lbfgs":
        for l2 in (1.0, 1e6):
            lasso = train(name, X, y, l1=1e6, l2=l2)
            assert not lasso.coef_.any()
            assert not lasso.transition_.any()
            assert_allclose(lasso.objective_, rows * np.log(3), rtol=1e-9)


@pytest.mark.parametrize("penalties", [(0, 0), (0, 1e6), (1e6, 0), (1e6, 1e6)])
def test_penalties_of_partial_fit(penalties):
    l1, l2 = penalties
    X, y = make_argmax_data()
    model = CRFTagger(l1=l1, l2=l2)
    for _ in range(30):
        model.partial_fit(X, y, classes=[0, 1, 2])
    assert_sound(model, X)
    largest = np.abs(model.coef_).max()
    if l1 or l2:  # the last step of a weight is taken after its last penalty
        assert largest < 0.1
    else:
        assert largest > 0.3


@pytest.mark.parametrize("C", [1e-12, 1e12])
def test_an_extreme_margin(C):
    X, y = make_argmax_data()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = HMSVMTagger(C=C, max_iter=50, random_state=0).fit(X, y)
    assert_sound(model, X)
    assert np.isfinite(model.objective_)


@pytest.mark.parametrize("name", [*NAMES, "segmenter", *OTHERS])
def test_one_label(name):
    X, y = make_argmax_data()
    with pytest.warns(UserWarning, match="y holds one label only"):
        model = train(name, X, [one * 0 for one in y])
    assert_sound(model, X)
    predict = getattr(model, "predict_labels", model.predict)
    assert len({str(label) for path in predict(X) for label in path}) == 1


@pytest.mark.parametrize("name", [*NAMES, "segmenter", *OTHERS])
def test_sequences_of_one_row(name):
    # No transitions at all: a multinomial logistic regression, whose rows may come in one sequence.
    X, y = make_argmax_data(n=40, T=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = train(name, X, y)
    assert_sound(model, X)
    assert not model.transition_.any()
    if name in NAMES:
        assert_allclose(model.objective_, train("lbfgs", X, y).objective_, rtol=1e-4)


@pytest.mark.parametrize("name", [*NAMES, *OTHERS])
def test_labels_that_never_occur_in_a_fold(name):
    X, y = make_argmax_data(n=20)
    y = [np.where(one == 2, 0, one) for one in y]
    y[-1] = np.full(len(y[-1]), 7)  # in the last fold only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = train(name, X[:-1], y[:-1])
    n_rows = sum(map(len, y))
    right = model.score(X[:-1], y[:-1]) * (n_rows - len(y[-1]))
    assert model.score(X, y) == pytest.approx(right / n_rows, rel=1e-12)  # label 7: none is right
    if name in CRFS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            assert np.isfinite(cross_val_score(CRFS[name](), X, y, cv=KFold(5))).all()


def test_a_constraint_that_leaves_no_path_is_an_error():
    X, y = [np.eye(2)], [["a", "b"]]
    model = CRFTagger(constraints=[[False, True], [False, False]]).fit(X, y)
    for question in (model.predict, model.predict_proba, OnlineDecoder(model).fit(X, y).predict):
        with pytest.raises(ValueError, match=r"[Ss]equence 0.*every path contains a score of -inf"):
            question([np.ones((3, 2))])

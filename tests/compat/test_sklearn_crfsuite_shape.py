"""sklseq.compat.sklearn_crfsuite.CRF: what is documented of sklearn-crfsuite's class."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_predict

from sklseq import CRFTagger, write_crfsuite_model
from sklseq.compat.pycrfsuite import ItemSequence
from sklseq.compat.sklearn_crfsuite import CRF
from tests.estimators.test_crfsuite_model import make

X, y = make(7)


@pytest.fixture(scope="module")
def crf():
    return CRF(c1=0.1, c2=0.1, max_iterations=100, all_possible_transitions=True).fit(X, y)


def test_labels_and_marginals_are_those_of_the_tagger(crf):
    tagger = CRFTagger(
        l1=0.1, l2=0.1, max_iter=100, all_possible_transitions=True, boundaries=False, tol=1e-4
    ).fit(X, y)
    assert crf.predict(X) == tagger.predict(X)
    assert [crf.predict_single(x) for x in X] == crf.predict(X)
    assert crf.classes_ == tagger.classes_.tolist()
    assert crf.score(X, y) == pytest.approx(tagger.score(X, y))
    for x, found, expected in zip(X, crf.predict_marginals(X), tagger.predict_proba(X)):
        assert crf.predict_marginals_single(x) == found
        np.testing.assert_array_equal([list(row.values()) for row in found], expected)
        assert all(list(row) == crf.classes_ for row in found)


def test_weights_by_names(crf):
    tagger = crf.model_
    names, labels = tagger.feature_names_in_.tolist(), crf.classes_
    for (attribute, label), weight in crf.state_features_.items():
        assert tagger.coef_[names.index(attribute), labels.index(label)] == weight
    assert len(crf.state_features_) == np.count_nonzero(tagger.coef_)
    for (a, b), weight in crf.transition_features_.items():
        assert tagger.transition_[labels.index(a), labels.index(b)] == weight
    assert set(crf.attributes_) == {attribute for attribute, _ in crf.state_features_}


def test_tagger(crf):
    tagger = crf.tagger_
    labels = tagger.tag(X[0])
    assert labels == crf.predict_single(X[0])
    assert tagger.marginal(labels[0], 0) == crf.predict_marginals_single(X[0])[0][labels[0]]


def test_the_tagger_keeps_the_sequence_that_is_set(crf):
    for x, labels, rows in zip(X, crf.predict(X), crf.predict_marginals(X)):
        crf.tagger_.set(x)
        assert crf.tagger_.tag() == labels
        assert crf.tagger_.marginal(labels[-1], len(x) - 1) == rows[-1][labels[-1]]
        assert 0 < crf.tagger_.probability(labels) <= 1
    again = pickle.loads(pickle.dumps(crf))
    assert again.tagger_.tag() == []
    again.fit(X[:3], y[:3])
    assert again.tagger_.tag(X[0]) == again.predict_single(X[0])
    assert again.tagger_.labels() == again.classes_


def test_sequences_of_items_that_were_checked(crf):
    checked = [ItemSequence(x) for x in X]
    assert crf.predict(checked) == crf.predict(X)
    assert crf.predict_single(checked[0]) == crf.predict_single(X[0])
    assert crf.predict_marginals(checked) == crf.predict_marginals(X)
    assert crf.score(checked, y) == crf.score(X, y)
    assert clone(crf).fit(checked, y).predict(X) == crf.predict(X)


def test_scikit_learn(crf):
    assert pickle.loads(pickle.dumps(crf)).predict(X) == crf.predict(X)
    with pytest.raises(NotFittedError):
        clone(crf).predict(X)
    search = GridSearchCV(CRF(), {"c2": [0.1, 1.0]}, cv=2).fit(X, y)
    assert search.best_params_["c2"] in (0.1, 1.0)
    before = crf.predict(X)
    again = clone(crf).fit(X, y, X_dev=X, y_dev=y)
    assert again.predict(X) == before
    assert again.fit(X[:3], y[:3]).classes_ == sorted(set().union(*y[:3]))


def test_cross_validated_predictions():
    X = [[{"a": str(k % 2)} for k in range(n)] for n in (1, 2, 3, 4)]
    y = [["xy"[k % 2] for k in range(n)] for n in (1, 2, 3, 4)]
    found = cross_val_predict(CRF(), X, y, cv=2)
    assert found.shape == (4,)
    assert found.tolist() == y


def test_wrong_calls(crf):
    with pytest.raises(ValueError, match="algorithm must be 'lbfgs' or 'l2sgd'; got 'pa'"):
        CRF("pa").fit(X, y)
    with pytest.raises(ValueError, match="equally long"):
        crf.score(X, y[:-1])


def test_other_parameters(crf):
    same = CRF(c2=0.1, period=3, epsilon=1e-9, linesearch="MoreThuente", calibration_eta=0.1)
    assert same.fit(X, y).predict(X) == CRF(None, c2=0.1).fit(X, y).predict(X)
    for none in (0, 0.0):  # the default of CRFsuite
        assert CRF(c2=0.1, min_freq=none).fit(X, y).predict(X) == CRF(c2=0.1).fit(X, y).predict(X)
    with pytest.raises(ValueError, match="min_freq=3 is not offered; leave it None, and count"):
        CRF(min_freq=3).fit(X, y)
    with pytest.raises(ValueError, match="pa_type=1 is not offered"):
        CRF(pa_type=1).fit(X, y)


def test_sizes(crf, tmp_path):
    write_crfsuite_model(crf.model_, tmp_path / "model")
    assert crf.size_ == (tmp_path / "model").stat().st_size
    assert crf.num_attributes_ == len(crf.attributes_)
    for name in ("classes_", "tagger_", "size_", "num_attributes_"):
        with pytest.raises(NotFittedError):
            getattr(CRF(), name)

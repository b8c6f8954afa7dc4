"""Weights of foreign byte order, as files of other computers hold them."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_equal
from scipy import sparse
from sklearn.base import clone

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, SemiCRFSegmenter, ZScoreTagger
from sklseq.deployment import export

ESTIMATORS = [
    CRFTagger(),
    CRFTagger(all_possible_states=True, transition_features=[0]),
    HMSVMTagger(transition_features=[1], random_state=0),
    HMSVMTagger(kernel="rbf", random_state=0),
    ZScoreTagger(probability=True),
    ZScoreTagger(kernel="poly"),
    SemiCRFSegmenter(),
]


def data():
    rng = np.random.default_rng(0)
    y = [rng.choice(["B-x", "I-x", "O"], size=6).tolist() for _ in range(8)]
    X = [[{"a": rng.normal(), "b": rng.normal(), label: 1.0} for label in labels] for labels in y]
    return X, y


def foreign(value):
    """An array or sparse matrix with its bytes swapped, or None if it has one byte a number."""
    numbers = value.data if sparse.issparse(value) else value
    if not isinstance(numbers, np.ndarray) or numbers.dtype.newbyteorder() == numbers.dtype:
        return None
    swapped = numbers.astype(numbers.dtype.newbyteorder())
    if not sparse.issparse(value):
        return swapped
    other = value.copy()
    other.data = swapped
    return other


def answer(model, X):
    return [m(X) for m in (getattr(model, n, None) for n in ("predict", "predict_proba")) if m]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: f"{e!r:.60}")
@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fitted_arrays_may_have_foreign_byte_order(estimator, is_sparse):
    X, y = data()
    model = clone(estimator).fit(X, y)
    if is_sparse and hasattr(model, "sparsify"):
        model.sparsify()
    expected = answer(model, X)
    swapped = {k: foreign(v) for k, v in vars(model).items() if foreign(v) is not None}
    assert swapped
    for name, value in swapped.items():
        other = copy.copy(model)
        setattr(other, name, value)
        assert_equal(answer(other, X), expected)
    stored = copy.copy(model)
    vars(stored).update(swapped)
    assert_equal(answer(pickle.loads(pickle.dumps(stored)), X), expected)


def test_exported_models_and_streams_of_weights_of_foreign_byte_order(tmp_path):
    X, y = data()
    model = CRFTagger().fit(X, y)
    export(model, tmp_path / "native")
    expected = OnlineDecoder(model).fit(X, y)
    expected.estimator_ = model
    for name in ("coef_", "transition_", "start_", "end_"):
        other = copy.copy(model)
        setattr(other, name, foreign(getattr(model, name)))
        export(other, tmp_path / "swapped")
        assert (tmp_path / "native").read_bytes() == (tmp_path / "swapped").read_bytes()
        decoder = copy.copy(expected)
        decoder.estimator_ = other
        assert decoder.stream().push_many(X[0]) == expected.stream().push_many(X[0])

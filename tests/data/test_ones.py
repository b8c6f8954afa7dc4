"""Rows of ones: values are made when they are read, which taggers do not."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import CRFTagger, Sequences
from sklseq.data.ones import all_ones, product_of_ones, rows_of_ones
from sklseq.datasets import make_citations
from sklseq.features import TokenFeatures, WindowFeatures


@pytest.mark.parametrize("features", [TokenFeatures(), WindowFeatures(TokenFeatures())])
def test_taggers_predict_without_the_ones(features):
    X, y = make_citations(6, random_state=0)
    tagger = CRFTagger().fit(features.fit_transform(X), y)
    rows = features.transform(X)
    answers = tagger.predict(rows), tagger.predict_proba(rows)
    kept = rows.rows
    assert not {"ones", "data"} & set(vars(kept))
    assert (kept.dtype, kept.nnz) == (np.float64, len(kept.indices))
    for one in (copy.copy(kept), pickle.loads(pickle.dumps(kept)), kept.copy(), kept[:]):
        assert one.dtype == np.float64
        assert_array_equal(one.toarray(), kept.toarray())
    before = len(pickle.dumps(kept))
    assert kept.data.tolist() == [1] * kept.nnz
    assert len(pickle.dumps(kept)) == before
    other = Sequences(sparse.csr_matrix(kept.toarray()), rows.offsets)
    assert tagger.predict(other) == answers[0]
    for a, b in zip(tagger.predict_proba(other), answers[1]):
        assert_allclose(a, b, rtol=1e-12)
    kept.data = kept.data * 2  # no longer ones
    assert not all_ones(kept)
    twice = Sequences(2 * other.rows, rows.offsets)
    for a, b in zip(tagger.predict_proba(twice), tagger.predict_proba(rows)):
        assert_allclose(a, b, rtol=1e-12)


def test_columns_assigned_to_a_product_stay():
    # Before its entries have been computed.
    a, b = (rows_of_ones(np.array([1, 0, 1]), np.array([0, 1, 3]), 2, float) for _ in "ab")
    rows = product_of_ones(a, b)
    assert rows.factors is not None
    rows.indices = np.zeros(5, dtype=np.int32)
    np.testing.assert_array_equal(rows.toarray(), [[2, 0], [3, 0]])

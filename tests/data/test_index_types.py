"""Sparse rows whose column numbers and row starts are int32, int64 or one of each."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_union
from sklearn.preprocessing import MaxAbsScaler

from sklseq import (
    ConformalTagger,
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    HMSVMTaggerCV,
    OnlineDecoder,
    RowBlocks,
    SegmentPotentials,
    SegmentReranker,
    SemiCRFSegmenter,
    Sequences,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq._lib import index_types
from sklseq.features import PerToken, WindowFeatures
from sklseq.objectives.scores import observed
from tests.sample_data import make_sparse_data

TYPES = [(a, b) for a in (np.int32, np.int64) for b in (np.int32, np.int64)]
FORMS = [
    (form, *types)
    for form in (sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_array)
    for types in TYPES
]
SOME = [FORMS[0], FORMS[2], FORMS[3], FORMS[-1]]
ALL = {"all_possible_states": True}


def in_form(x, form, of_indices, of_starts):
    """``x`` in ``form``; the coordinates of COO have one type."""
    m = form(x)
    if m.format == "coo":
        m.coords = tuple(at.astype(of_indices) for at in m.coords)
    else:
        m.indices, m.indptr = m.indices.astype(of_indices), m.indptr.astype(of_starts)
    return m


def types_of(rows):
    return {rows.indices.dtype, rows.indptr.dtype}


@pytest.mark.parametrize("form", FORMS, ids=lambda f: f"{f[0].__name__}-{f[1].__name__}")
def test_sequences_segments_and_blocks_have_one_type(form):
    rng = np.random.default_rng(0)
    X = [rng.integers(0, 2, (T, 5)) * rng.normal(size=(T, 5)) for T in (3, 0, 4)]
    given = [in_form(x, *form) for x in X]
    before = pickle.dumps(given)
    joined = in_form(np.vstack(X), *form)
    packed = [
        Sequences(joined, [0, 3, 3, 7]).rows,
        Sequences.from_list(given).rows,
        SegmentPotentials([7], [0, 7], np.zeros(7), range(7), range(1, 8), joined).rows,
        RowBlocks(joined).rows(0, 7),
        *RowBlocks([joined]).read(),
    ]
    for rows in packed:
        assert types_of(rows) == {np.dtype(np.int32)}
        assert_array_equal(rows.toarray(), np.vstack(X))
    assert pickle.dumps(given) == before
    if form[0] is sparse.csr_array:
        assert np.shares_memory(packed[0].data, joined.data)


def test_numbers_beyond_int32_stay():
    # No such matrix fits in memory, but damaged ones must not be wrapped to valid ones.
    damaged = in_form(np.eye(3), sparse.csr_array, np.int64, np.int32)
    damaged.indices[1] += 1 << 32
    assert types_of(Sequences(damaged, [0, 3]).rows) == {np.dtype(np.int64)}
    with pytest.raises(ValueError, match=f"row 1 of sequence 0 has an entry in column {2**32 + 1}"):
        CRFTagger().fit([damaged], [[0, 1, 2]])


ESTIMATORS = [
    *(CRFTagger(solver=s, **a) for s in ("lbfgs", "dual", "adagrad") for a in ({}, ALL)),
    CRFTagger(l1=0.01, **ALL),
    CRFTagger(transition_features=[0, 2]),
    CRFTaggerCV(l2s=[0.1, 1.0], cv=2, **ALL),
    GridSearchCV(CRFTagger(**ALL), {"l2": [0.1, 1.0]}, cv=2),
    OnlineDecoder(CRFTagger(**ALL)),
    ConformalTagger(CRFTagger(**ALL), calibration=0.5),
    *(HMSVMTagger(solver=s, random_state=0) for s in ("bcfw", "smoothing", "perceptron")),
    HMSVMTagger(kernel="rbf", random_state=0),
    HMSVMTaggerCV(Cs=[0.1, 1.0], cv=2, random_state=0),
    *(ZScoreTagger(solver=s) for s in ("auto", "cg")),
    ZScoreTagger(refine=2),
    ZScoreTagger(kernel="rbf"),
    ZScoreTagger(moments="sampling", random_state=0),
    ZScoreTaggerCV(),
]


def data():
    """Sequences above a thousand columns, of which the first few decide."""
    X, y = make_sparse_data(0, n=12, M=6)
    wide = sparse.csr_matrix((X.n_rows, 1100))
    rows = sparse.hstack([X.rows, wide], format="csr").toarray()
    return [rows[a:b] for a, b in zip(X.offsets, X.offsets[1:])], y


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: f"{e!r:.60}")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_answer_alike(estimator):
    X, y = data()
    forms = [[in_form(x, *form) for x in X] for form in SOME]
    first, *others = ([list(p) for p in clone(estimator).fit(X, y).predict(X)] for X in forms)
    assert all(other == first for other in others)


def test_segmenters_answer_alike():
    X, y = data()
    X = [x[:, :6] for x in X]
    y = [[(t, t + 1, "abc"[k]) for t, k in enumerate(labels)] for labels in y]
    for segmenter in (
        SemiCRFSegmenter(),
        SemiCRFSegmenter(l1=0.01, all_possible_states=True),
        SemiCRFSegmenter(transition_features=[0]),
        SegmentReranker(SemiCRFSegmenter(), cv=2, text=False),
    ):
        forms = [[in_form(x, *form) for x in X] for form in SOME]
        first, *others = (clone(segmenter).fit(X, y).predict(X) for X in forms)
        assert all(other == first for other in others)


def test_transformers_answer_alike():
    X, _ = data()
    union = make_union(WindowFeatures(), PerToken(MaxAbsScaler()))
    first, *others = (union.fit_transform([in_form(x, *form) for x in X]).rows for form in SOME)
    assert all(types_of(other) == types_of(first) for other in others)
    assert all((other != first).nnz == 0 for other in others)


@pytest.fixture
def few_entries(monkeypatch):
    """Rows of more than ten entries or columns need int64, as those of more than 2**31 do."""
    monkeypatch.setattr(index_types, "LARGEST", 10)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: f"{e!r:.60}")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_estimators_take_rows_that_need_64_bits(estimator, request):
    X, y = data()
    rows = in_form(np.vstack(X), sparse.csr_matrix, np.int64, np.int64)
    offsets = np.append(0, np.cumsum([len(x) for x in X]))
    expected = clone(estimator).fit(Sequences(rows, offsets), y).predict(X)
    request.getfixturevalue("few_entries")
    X = Sequences(rows, offsets)
    assert types_of(X.rows) == {np.dtype(np.int64)}
    found = clone(estimator).fit(X, y).predict(X)
    assert list(map(list, found)) == list(map(list, expected))


def wide(n_columns):
    return sparse.csr_array(([1.0], ([0], [n_columns - 1])), shape=(1, n_columns))


def test_columns_beyond_int32_are_refused():
    most = 2**31 - 1
    x = Sequences(wide(most), [0, 1])
    narrow = Sequences(wide(2), [0, 1])
    with pytest.raises(ValueError, match=f"Rows of {most + 1} columns are too wide: at most"):
        Sequences(wide(most + 1), [0, 1])
    with pytest.raises(ValueError, match=f"Rows of {most + 2} columns are too wide"):
        np.hstack([x, narrow])
    with pytest.raises(ValueError, match=f"Rows of {3 * most} columns.*smaller window"):
        WindowFeatures(before=1, after=1).fit(x)


def test_more_observed_pairs_than_int32_numbers_are_refused(monkeypatch):
    X, y = data()
    monkeypatch.setattr(observed, "MOST_PAIRS", 3)
    with pytest.raises(ValueError, match=r"pairs of a feature and a label, more than the 3"):
        CRFTagger().fit([sparse.csr_array(x) for x in X], y)

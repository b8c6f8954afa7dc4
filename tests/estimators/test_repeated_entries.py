"""Sparse rows with repeated entries, which SciPy adds up: models of the rows without them."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.metrics.pairwise import rbf_kernel

from sklseq import CRFTagger, HMSVMTagger, SemiCRFSegmenter, Sequences, ZScoreTagger
from sklseq.data.sequences import canonical
from sklseq.features import TokenFeatures

TAGGERS = [
    CRFTagger(tol=1e-9),
    CRFTagger(solver="dual", tol=1e-9),
    CRFTagger(solver="adagrad", tol=1e-9),
    HMSVMTagger(tol=1e-4, random_state=0),
    HMSVMTagger(kernel="rbf", tol=1e-4, random_state=0),
    HMSVMTagger(kernel="poly", C=0.01, tol=1e-3, random_state=0),
    ZScoreTagger(),
    ZScoreTagger(solver="cg", tol=1e-12),
    ZScoreTagger(kernel="rbf"),
    ZScoreTagger(kernel="poly"),
    ZScoreTagger(kernel="rbf", n_landmarks=12, random_state=0),
    HMSVMTagger(kernel=rbf_kernel, tol=1e-4, random_state=0),
    HMSVMTagger(kernel="rbf", C=0.1, cache_size=0.005, tol=1e-3, random_state=0),
    HMSVMTagger(kernel="rbf", C=0.1, solver="smoothing", tol=1e-3),
]
SEED = 0


def name(model):
    """The model without the addresses of functions: workers have to collect the same tests."""
    return re.sub(r" at 0x\w+|\s+", " ", repr(model))


def data(seed, zeros):
    """Rows of small integers, CSR with each entry in two halves in any order, and labels."""
    rng = np.random.default_rng(seed)
    X, halves = [], []
    for _ in range(6):
        x = rng.integers(1, 4, size=(5, 6)).astype(float)
        x *= rng.random(x.shape) < (0.2 if zeros else 1)  # rows with 0.5 or more are made dense
        row, column = np.nonzero(x) if zeros else np.indices(x.shape).reshape(2, -1)
        order = rng.permutation(2 * len(row))
        order = order[np.argsort(np.tile(row, 2)[order], kind="stable")]
        values, columns = (np.tile(a, 2)[order] for a in (x[row, column] / 2, column))
        ends = np.append(0, np.cumsum(np.bincount(2 * list(row), minlength=5)))
        halves.append(sparse.csr_matrix((values, columns, ends), shape=x.shape))
        assert (halves[-1].toarray() == x).all()
        X.append(sparse.csr_matrix(x))
    return X, halves, [rng.integers(0, 3, 5).tolist() for _ in X]


def answers(model, X):
    if hasattr(model, "decision_function"):
        return np.vstack(model.decision_function(X))
    return np.vstack(model.predict_proba(X))


@pytest.mark.parametrize("zeros", [True, False], ids=["sparse", "full"])
@pytest.mark.parametrize("tagger", TAGGERS, ids=name)
def test_taggers_add_up_repeated_entries(tagger, zeros):
    for seed in range(3):
        X, halves, y = data(seed, zeros)
        expected = answers(tagger.fit(X, y), X)
        assert_allclose(answers(tagger, halves), expected, rtol=1e-9, atol=1e-9)
        # Solvers end within tol of the same minimum, on other paths.
        assert_allclose(answers(tagger.fit(halves, y), X), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    "tagger",
    [
        CRFTagger(),
        CRFTagger(transition_features=[0, 2]),
        HMSVMTagger(solver="perceptron", random_state=0),
        ZScoreTagger(),
    ],
    ids=name,
)
def test_training_in_parts_adds_up_repeated_entries(tagger):
    X, halves, y = data(SEED, True)
    expected, found = (
        clone(tagger).partial_fit(rows[:3], y[:3], classes=[0, 1, 2]).partial_fit(rows[3:], y[3:])
        for rows in (X, halves)
    )
    assert_allclose(found.coef_, expected.coef_, rtol=1e-9, atol=1e-9)
    assert_allclose(found.transition_, expected.transition_, rtol=1e-9, atol=1e-9)


def test_hashed_tokens_of_one_column_add_up():
    letters = np.random.default_rng(SEED).choice(list("abcdef"), size=(20, 5, 3))
    X = [["".join(word) for word in words] for words in letters]
    y = [[word[0] for word in words] for words in X]
    hashed = TokenFeatures(n_features=32)
    rows = hashed.fit_transform(X)
    summed = [canonical(x) for x in rows]
    assert sum(x.nnz for x in summed) < rows.rows.nnz
    for tagger in (HMSVMTagger(kernel="rbf", random_state=0), ZScoreTagger(kernel="rbf")):
        tagger.fit(summed, y)
        assert_allclose(answers(tagger, rows), answers(tagger, summed), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("tagger", [*TAGGERS[6:], ZScoreTagger(moments="dp")], ids=name)
def test_packed_rows_are_added_up_in_a_copy(tagger):
    halves = sparse.vstack(data(SEED, True)[1], format="csr")
    arrays = halves.data, halves.indices, halves.indptr
    before = [array.copy() for array in arrays]
    for array in arrays:
        array.flags.writeable = False
    X = Sequences(halves, np.arange(0, 31, 5))
    answers(tagger.fit(X, data(SEED, True)[2]), X)
    assert all(map(np.array_equal, (halves.data, halves.indices, halves.indptr), before))


def test_segmenters_add_up_repeated_entries():
    X, halves, y = data(SEED, True)
    y = [[(t, t + 1, "abc"[k]) for t, k in enumerate(labels)] for labels in y]
    a, b = (SemiCRFSegmenter(tol=1e-9).fit(rows, y) for rows in (X, halves))
    assert_allclose(a.coef_, b.coef_, atol=1e-4)
    assert a.predict(X) == a.predict(halves) == b.predict(X)


def test_explanations_name_a_column_once():
    X, halves, y = data(SEED, True)
    tagger = CRFTagger().fit(X, y)
    for x, half in zip(X, halves):
        for a, b in zip(tagger.explain(x), tagger.explain(half), strict=True):
            assert dict(a.contributions) == pytest.approx(dict(b.contributions))
            assert len(a.contributions) == len(b.contributions)

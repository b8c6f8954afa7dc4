"""Rows of extractors that are kept as products: the same entries, and scores up to rounding."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline, make_union

from sklseq import CRFTagger, HMSVMTagger, Sequences, ZScoreTagger
from sklseq.data.sequences import factors_of
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.objectives.scores import design, list_sums

LETTERS = list("abcXYZ019-'.éßİΩжǅ²٣語😀")


def texts(rng, n_sequences=30, n_kinds=40):
    """Sequences of tokens of any letters, most of them repeated; some are empty."""
    kinds = ["".join(rng.choice(LETTERS, rng.integers(0, 12))) for _ in range(n_kinds)]
    return [rng.choice(kinds, n).tolist() for n in rng.integers(0, 20, n_sequences)]


def with_tags(X):
    return [{"w": x, "pos": [f"{len(token) % 3}AB" for token in x]} for x in X]


def windows(*, of=None, **parameters):
    return WindowFeatures(TokenFeatures(**of or {}), **parameters)


FEATURES = {
    "tokens": TokenFeatures(),
    "hashed tokens": TokenFeatures(n_features=64),
    "functions": TokenFeatures(functions={"twice": lambda t: [t * 2, "b", "b"]}),
    "float32": TokenFeatures(dtype=np.float32),
    "window": windows(),
    "all marks": windows(bias=True),
    "bias only": windows(bias=True, bos_eos=False),
    "no marks": windows(bos_eos=False),
    "left": windows(before=3, after=0),
    "right": windows(before=0, after=2, bias=True),
    "alone": windows(before=0, after=0),
    "rare tokens": windows(of={"min_count": 3}),
    "rare neighbours": windows(min_count=3, bias=True),
    "hashed tokens in windows": windows(of={"n_features": 128}),
    "window, float32": windows(dtype=np.float32),
    "windows of windows": WindowFeatures(windows(bias=True), before=1, after=0),
}
# The rows of these are no products.
OTHERS = {
    "hashed window": windows(n_features=256),
    "conjoined": windows(conjoin=["w.lower[-1]|w.lower"]),
    "union": make_union(windows(), TokenFeatures(word=False)),
}


@pytest.mark.parametrize("columns", [None, ["w", "pos"], ["pos", "w"]])
@pytest.mark.parametrize("name", [*FEATURES, *OTHERS])
def test_products_have_the_entries_of_the_rows(name, columns):
    rng = np.random.default_rng(len(name))
    features, X = copy.deepcopy((FEATURES | OTHERS)[name]), texts(rng)
    other = texts(rng) + X[:9]  # with attributes that the extractor does not know
    if columns is not None:
        tokens = [p for p in features.get_params() if p.endswith("word")]
        features.set_params(**{p.removesuffix("word") + "columns": columns for p in tokens})
        X, other = with_tags(X), with_tags(other)
    fitted = features.fit_transform(X)
    assert factors_of(fitted.rows) is None
    again = features.transform(X)
    assert (factors_of(again.rows) is not None) == (name in FEATURES)
    assert_same(fitted, again)
    empty = [[]] if columns is None else [{"w": [], "pos": []}]
    assert features.transform([]).rows.shape == (0, fitted.shape[1])
    for part in (other, X[:1], empty):
        by_one = [features.transform([x]).rows for x in part]  # of few tokens: no products
        assert_same(Sequences.from_list(by_one), features.transform(part))


def assert_same(expected, found):
    rows = found.rows
    assert rows.dtype == expected.dtype
    assert_array_equal(rows.indices, expected.rows.indices)
    assert_array_equal(rows.indptr, expected.rows.indptr)
    assert_array_equal(rows.data, 1)
    assert factors_of(rows) is None


CASES = [(CRFTagger(max_iter=9, tol=1), name) for name in FEATURES]
CASES += [(tagger, "all marks") for tagger in (HMSVMTagger(), ZScoreTagger())]


@pytest.mark.filterwarnings("ignore:.*max_iter")
@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize(("tagger", "name"), CASES, ids=str)
def test_scores_of_products_are_those_of_the_rows(tagger, name, small, monkeypatch):
    if not small:
        monkeypatch.setattr(design, "list_sums", lambda *_: None)
    rng = np.random.default_rng(len(name))
    X, features = texts(rng), copy.deepcopy(FEATURES[name])
    y = [rng.choice(list("ABCD"), len(x)).tolist() for x in X]
    tagger = tagger.fit(features.fit_transform(X), y)
    X = texts(rng) + X
    rows = features.transform(X)
    plain = Sequences(features.transform(X).rows.copy(), rows.offsets)
    expected, n = tagger.potentials(plain).emission, np.diff(plain.rows.indptr).max()
    # Twice the largest error of a sum of n weights, in any order.
    tolerance = 2 * n**2 * np.finfo(expected.dtype).eps * np.abs(tagger.coef_).max()
    assert_allclose(tagger.potentials(rows).emission, expected, rtol=0, atol=tolerance)
    assert tagger.predict(rows) == tagger.predict(plain)
    assert (factors_of(rows.rows) is not None) == small


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_pipelines_answer_as_on_rows(n_jobs):
    rng = np.random.default_rng(0)
    X = texts(rng, 200)
    y = [rng.choice(list("ABC"), len(x)).tolist() for x in X]
    model = make_pipeline(windows(), CRFTagger(n_jobs=n_jobs)).fit(X, y)
    model = pickle.loads(pickle.dumps(model))
    rows = model[0].transform(X)
    plain = Sequences(rows.rows.copy(), rows.offsets)
    assert model.predict(X) == model[-1].predict(plain)
    for a, b in zip(model.predict_proba(X), model[-1].predict_proba(plain)):
        assert_allclose(a, b, rtol=1e-10)


@pytest.mark.parametrize("copies", [3, 50])
def test_sums_of_lists_take_no_more_memory_than_rows(copies, monkeypatch):
    X = texts(np.random.default_rng(3), 4)
    rows = windows().fit(X).transform(X * copies).rows
    (a, b), W = rows.factors, np.random.default_rng(4).normal(size=(rows.shape[1], 64))
    size, fewer = b.shape[0] * W[0].nbytes, copies == 50
    assert (size <= 4 * rows.nnz) == fewer
    for small, kept in ((0, fewer), (size - 1, fewer), (size, True)):
        monkeypatch.setattr(list_sums, "SMALL", small)
        sums = list_sums.list_sums(a, b, W)
        assert (sums is not None) == kept
        if kept:
            assert_allclose(sums, b @ W, rtol=1e-12, atol=1e-12)


def test_products_are_matrices():
    X = texts(np.random.default_rng(1))
    features = windows().fit(X)
    expected = features.packed_rows(X).plain()

    def product():
        rows = features.transform(X).rows
        assert factors_of(rows) is not None
        return rows

    dense = product().toarray()
    assert dense.sum() == product().nnz == len(expected.indices)
    for rows in (copy.copy(product()), pickle.loads(pickle.dumps(product())), product().copy(),
                 product()[:], product().tocsc(), product() * 1):  # fmt: skip
        assert_array_equal(rows.toarray(), dense)
    changed = product()
    changed.sum_duplicates()
    changed.data = changed.data * 2
    assert_array_equal(changed.toarray(), 2 * dense)
    changed = product()
    changed.indices = changed.indices.copy()
    changed.indices[:] = 0
    assert changed.toarray()[:, 0].sum() == dense.sum()
    changed = product()
    changed.data = np.full(int(dense.sum()), 2.0)  # before anything is read
    assert factors_of(changed) is None
    assert_array_equal(Sequences(changed, [0, len(dense)]).rows.toarray(), 2 * dense)
    sequences = features.transform(X)
    assert_array_equal(sequences[3].toarray(), dense[slice(*sequences.offsets[3:5])])
    assert_array_equal(sequences[[5, 3]].rows.toarray()[: len(X[5])], sequences[5].toarray())


def test_roles_are_kept():
    X = texts(np.random.default_rng(2))
    features = TokenFeatures(transition_features=["w.title"]).fit(X * 3)
    rows = features.transform(X * 3)
    assert rows.roles.max() == 3
    y = [["a", "b"] * len(x) for x in X * 3]
    y = [labels[: len(x)] for labels, x in zip(y, X * 3)]
    tagger = CRFTagger(max_iter=20, tol=0.1).fit(features.fit_transform(X * 3), y)
    plain = Sequences(features.transform(X * 3).rows.copy(), rows.offsets, rows.roles)
    assert tagger.predict(rows) == tagger.predict(plain)
    window = WindowFeatures(features).fit(X * 3)
    assert_same(window.transform(X * 3), window.fit_transform(X * 3))

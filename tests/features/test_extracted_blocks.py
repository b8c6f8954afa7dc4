"""Extractors of rows of sequences in blocks, against the same rows in memory."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sklseq import CRFTagger, RowBlocks
from sklseq.features import PerToken, TokenFeatures, WindowFeatures, _extracted_blocks
from tests.trials import block_answers

X = np.random.default_rng(0).normal(size=(50, 3))
Y = np.arange(50) // 4 % 2


def blocks():
    return RowBlocks(np.split(X, [0, 7, 8, 8, 30]))


def rows_of(extracted):
    return np.concatenate(list(extracted.read()))


def test_random_models_give_the_answers_of_memory():
    block_answers.main(7)


@pytest.mark.parametrize("block_rows", [1, 2, 5, 100])
@pytest.mark.parametrize(("before", "after"), [(0, 0), (3, 0), (0, 4), (12, 9)])
def test_windows_cross_the_borders_of_blocks(monkeypatch, before, after, block_rows):
    monkeypatch.setattr(_extracted_blocks, "BLOCK_ROWS", block_rows)
    window = WindowFeatures(before=before, after=after, bias=True)
    expected = window.fit_transform([X, X[:5]])
    found = window.fit_transform([blocks(), X[:5]])
    assert_array_equal(rows_of(found[0]), expected[0])
    assert_array_equal(rows_of(found[1]), expected[1])
    assert_array_equal(rows_of(found[0][10:20]), expected[0][10:20])


def test_rows_are_computed_when_they_are_read():
    source, window = blocks(), WindowFeatures().fit([X])
    (found,) = window.transform([source])
    assert source.n_reads == 0
    expected = rows_of(found)
    assert source.n_reads == 1
    window.set_params(before=3).fit([X[:, :2]])
    assert_array_equal(rows_of(found), expected)
    assert_array_equal(rows_of(pickle.loads(pickle.dumps(found))), expected)
    (once,) = make_pipeline(WindowFeatures()).fit([X]).transform([iter([X[:9], X[9:]])])
    assert once.one_shot
    assert_array_equal(rows_of(once), expected)


@pytest.mark.parametrize(
    "transformer",
    [
        StandardScaler(), FunctionTransformer(np.exp), FrozenEstimator(PCA(2).fit(X)), None,
        lambda row: row[:2] * 2,
    ],
)  # fmt: skip
def test_transformers_of_rows(transformer):
    per_token = PerToken(transformer, columns=[2, 0] if transformer is None else None)
    expected = per_token.fit_transform([X, X[:9] + 1])
    found = per_token.fit_transform([blocks(), X[:9] + 1])
    for one, other in zip(expected, found):
        assert_allclose(rows_of(other), one, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("block_rows", [3, 4096])
def test_unions(monkeypatch, block_rows):
    monkeypatch.setattr(_extracted_blocks, "BLOCK_ROWS", block_rows)
    parts = [("a", PerToken(StandardScaler())), ("b", WindowFeatures(before=4, after=2))]
    for extractor in (FeatureUnion(parts), WindowFeatures(FeatureUnion(parts))):
        expected = extractor.fit_transform([X, X[:4]])
        found = extractor.fit_transform([blocks(), X[:4]])
        for one, other in zip(expected, found):
            assert_allclose(rows_of(other), one, rtol=1e-12, atol=1e-12)
        with pytest.raises(ValueError, match="an iterator, which can be read once"):
            FeatureUnion(parts).fit([X]).transform([iter([X])])


def test_names_of_columns_are_those_of_memory():
    pipeline = make_pipeline(PerToken(StandardScaler()), WindowFeatures(before=1, after=0))
    expected = pipeline.fit([X]).get_feature_names_out()
    assert_array_equal(pipeline.fit([blocks()]).get_feature_names_out(), expected)


@pytest.mark.parametrize(
    ("extractor", "source", "message"),
    [
        (PerToken(PCA()), blocks, "PCA is fitted on all rows at once, .* partial_fit"),
        (WindowFeatures(min_count=2), blocks, "use min_count=1, and conjoin with n_features"),
        (WindowFeatures(conjoin=["x0|x1[-1]"]), blocks, "use min_count=1, and conjoin with"),
        (WindowFeatures(TokenFeatures()), blocks, "X holds sequences in blocks, which Window"),
        (WindowFeatures(), lambda: iter([X]), r"X\[0\] is an iterator, which can be read once"),
        (PerToken(), lambda: RowBlocks([]), "at least one row; got 1 sequence without rows"),
    ],
)
def test_what_needs_memory_says_so(extractor, source, message):
    with pytest.raises(ValueError, match=message):
        extractor.fit([source()])


def test_errors_name_row_and_sequence():
    pipeline = make_pipeline(WindowFeatures(), CRFTagger()).fit([X], [Y])
    bad = X.copy()
    bad[41, 2] = np.nan
    message = r"row 41 of sequence 1 \(row 11 of block 1\) holds nan in column 2"
    with pytest.raises(ValueError, match=message):
        pipeline.predict([X, RowBlocks([bad[:30], bad[30:]])])
    message = "Block 0 of sequence 0 cannot be read: ValueError: X has 2 features, but WindowF"
    with pytest.raises(ValueError, match=message):
        pipeline.predict([RowBlocks(X[:, :2])])
    with pytest.raises(ValueError, match=r"row 41 of sequence 0 .* holds nan in column 2"):
        make_pipeline(PerToken(), CRFTagger()).fit([RowBlocks(bad)], [Y])

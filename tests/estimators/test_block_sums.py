"""Marginals, log-likelihood, entropy and expectations in blocks, against the same in memory."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from sklseq import CRFTagger, RowBlocks
from sklseq.data import row_blocks
from sklseq.estimators import block_sums
from sklseq.inference import entropy, expected_features
from sklseq.inspection import uncertainty

CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def model(L, M, scale=1.0, seed=0, forbid=False):
    """A fitted tagger with random weights."""
    rng = np.random.default_rng(seed)
    tagger = CRFTagger()
    tagger.classes_, tagger.n_features_in_, tagger.vectorizer_ = np.arange(L), M, None
    tagger.coef_ = scale * rng.normal(size=(M, L))
    tagger.transition_ = scale * rng.normal(size=(L, L))
    if forbid and L > 2:
        tagger.transition_[0, 2] = tagger.transition_[1, 1] = -np.inf
    tagger.start_, tagger.end_ = scale * rng.normal(size=(2, L))
    return tagger


def rows(T, M, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(T, M)) * (rng.random((T, M)) < 0.6)


def cut(X, n=7):
    """A function that yields blocks of any size, none among them."""
    cuts = np.sort(np.random.default_rng(len(X)).integers(0, len(X) + 1, n))
    return lambda: iter(np.split(X, cuts))


@pytest.fixture(params=[5, 4096])
def block_rows(request, monkeypatch):
    monkeypatch.setattr(block_sums, "BLOCK_ROWS", request.param)
    return request.param


@pytest.mark.parametrize("scale", [0.3, 3.0, 300.0])
@pytest.mark.parametrize("L", [1, 2, 3, 5, 9])
def test_blocks_give_the_numbers_of_memory(L, scale, block_rows):
    for seed, T in enumerate([1, 2, 5, 11, 40]):
        tagger, X = model(L, 4, scale, seed, forbid=bool(seed % 2)), rows(T, 4, seed)
        sources = [RowBlocks(cut(X)), cut(X), RowBlocks(sparse.csr_matrix(X)), RowBlocks(X)]
        y = np.random.default_rng(seed).integers(0, L, T)
        expected = tagger.predict_proba([X])[0]
        log_p = tagger.predict_log_proba_sequence([X], [y])
        H = uncertainty(tagger, [X], "entropy")
        for source in sources:
            assert_allclose(tagger.predict_proba([source])[0], expected, **CLOSE)
            found = tagger.predict_log_proba_sequence(
                [source], [lambda y=y: np.split(y, [len(y) // 2])]
            )
            # Scores of 1e3 a row cancel in log p.
            assert_allclose(found, log_p, rtol=1e-12, atol=1e-12 * max(1, T * scale))
            found = uncertainty(tagger, [source], "entropy")
            assert_allclose(found, H, rtol=1e-10, atol=1e-12 * max(1, scale))


def test_out_holds_all_sequences_and_is_read_once(tmp_path, block_rows):
    tagger, X = model(3, 4), [rows(T, 4, T) for T in (9, 1, 30)]
    out = np.lib.format.open_memmap(tmp_path / "p.npy", "w+", np.float64, (40, 3))
    sources = [RowBlocks(cut(x)) for x in X]
    answers = tagger.predict_proba(sources, out=out)
    assert [source.n_reads for source in sources] == [1, 1, 1]
    assert_allclose(out, np.concatenate(tagger.predict_proba(X)), **CLOSE)
    assert all(np.shares_memory(answer, out) for answer in answers)
    generators = [cut(x)() for x in X]
    assert_allclose(np.concatenate(tagger.predict_proba(generators, out=out)), out, **CLOSE)
    memory = np.empty((40, 3))
    tagger.predict_proba(X, out=memory)
    assert_allclose(memory, out, **CLOSE)


def test_float32_models_and_sequences_without_rows():
    X, y = [rows(50, 4).astype(np.float32)], [np.arange(50) % 2]
    tagger = CRFTagger().fit(X, y)
    found = tagger.predict_proba([RowBlocks(cut(X[0])), RowBlocks([])])
    assert found[0].dtype == np.float32
    assert found[1].shape == (0, 2)
    assert_allclose(found[0], tagger.predict_proba(X)[0], atol=1e-6)
    assert tagger.predict_log_proba_sequence([RowBlocks([])], [[]]) == 0
    assert tagger.path_entropy([RowBlocks([])]) == 0


@pytest.mark.parametrize("n_out", [8, 10])
def test_out_of_another_length_is_refused(n_out):
    tagger, X = model(2, 3), rows(9, 3)
    with pytest.raises(ValueError, match="out has"):
        tagger.predict_proba([RowBlocks(X)], out=np.empty((n_out, 2)))
    with pytest.raises(ValueError, match=f"out has {n_out} rows, and X has 9"):
        tagger.predict_proba([X], out=np.empty((n_out, 2)))


@pytest.mark.parametrize(
    "out", [np.empty((9, 3)), np.empty((9, 2), np.float32), [[0.0]], np.empty(9), "p.npy"]
)
def test_out_of_another_kind_is_refused(out):
    for X in (rows(9, 3), RowBlocks(rows(9, 3))):
        with pytest.raises(ValueError, match=r"out must be a writeable float64 array .* \(n_rows"):
            model(2, 3).predict_proba([X], out=out)


def test_errors_name_the_sequence():
    tagger, X = model(3, 3), rows(9, 3)
    with pytest.raises(ValueError, match="known needs sequences in memory"):
        tagger.predict_proba([RowBlocks(X)], known=[[None] * 9])
    with pytest.raises(ValueError, match="Sequence 1 has 4 features"):
        tagger.predict_proba([RowBlocks(X), RowBlocks(rows(9, 4))])
    with pytest.raises(ValueError, match="Sequence 0 has 9 rows in X but more labels"):
        tagger.predict_log_proba_sequence([RowBlocks(X)], [np.zeros(10, int)])
    with pytest.raises(ValueError, match="Sequence 0 has more rows in X but 8 labels"):
        tagger.predict_log_proba_sequence([RowBlocks(X)], [np.zeros(8, int)])
    tagger.transition_[:] = -np.inf
    for ask in (tagger.predict_proba, tagger.path_entropy):
        with pytest.raises(ValueError, match="Sequence 0 has no allowed label path"):
            ask([RowBlocks(X)])


def test_unseen_labels_have_no_probability(block_rows):
    y = np.zeros(9, int)
    y[6] = 17
    found = model(3, 3).predict_log_proba_sequence([RowBlocks(rows(9, 3))] * 2, [y, 0 * y])
    assert found[0] == -np.inf
    assert np.isfinite(found[1])


@pytest.mark.parametrize("forbid", [False, True])
@pytest.mark.parametrize("scale", [0.5, 40.0])
def test_expected_features_of_blocks(scale, forbid):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        T, L, M = int(rng.integers(3, 40)), int(rng.integers(1, 5)), 3
        emission, transition = scale * rng.normal(size=(T, L)), scale * rng.normal(size=(L, L))
        if forbid and L > 2:
            transition[0, 2] = -np.inf
        f, g = rng.normal(size=(T, L, M)), rng.normal(size=(L, L, M))
        ends = {"start": rng.normal(size=L), "end": rng.normal(size=L)}
        expected = expected_features(emission, transition, row_features=f, pair_features=g, **ends)
        cuts = sorted({int(k) for k in rng.integers(1, T, 3)})
        blocks = iter(np.split(emission, cuts))
        found = expected_features(
            blocks, transition, row_features=iter(np.split(f, cuts)), pair_features=g, **ends
        )
        for one, other in zip(found, expected):
            if other is not None:
                assert_allclose(one, other, rtol=1e-10, atol=1e-12 * max(1, scale))
        H = entropy(iter(np.split(emission, cuts)), transition, **ends)
        assert_allclose(H, expected.entropy, rtol=1e-10, atol=1e-12 * max(1, scale))


def test_expected_features_of_blocks_refuses_what_it_cannot_do():
    free = np.zeros((2, 2))
    with pytest.raises(
        ValueError, match="emission is an iterator of blocks, which allows only order=1"
    ):
        expected_features(iter([free]), free, order=2)
    with pytest.raises(ValueError, match="row_features must be an iterator of blocks"):
        expected_features(iter([free]), free, row_features=np.zeros((2, 2, 1)))
    with pytest.raises(ValueError, match=r"The block that begins at row 2 has no rows"):
        entropy(iter([free, free[:0], free]), free)


def test_no_block_is_lost():
    assert list(row_blocks.with_last([])) == []
    assert list(row_blocks.with_last("ab")) == [("a", False), ("b", True)]

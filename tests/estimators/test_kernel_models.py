"""Kernels that are none, kernels that overflow, and what models without ``coef_`` can be asked."""

import pickle
import warnings
from copy import copy

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.metrics.pairwise import laplacian_kernel

from sklseq import HMSVMTagger, HMSVMTaggerCV, RowBlocks, ZScoreTagger
from sklseq.estimators import kernel_functions, kernel_model
from sklseq.estimators.kernel_functions import KernelRows, RowKernel, gram_matrix
from sklseq.inspection import explain, top_features


def random_gram(seed):
    """(Gram matrix of random rank and scale, generator); most have rows that a sample misses."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(2, 700))
    rows = rng.normal(size=(n, int(rng.integers(1, 40)))) * rng.choice([1e-3, 1.0, 1e4])
    return rows @ rows.T, rng


def gram_of(matrix):
    return gram_matrix(RowKernel("precomputed"), matrix, 100)


def check_gram_matrix(seed):
    """A Gram matrix passes; with a fault among any few of its rows, it does not."""
    gram, rng = random_gram(seed)
    n, norm = len(gram), np.linalg.norm(gram)
    assert_array_equal(gram_of(gram), gram)
    assert_array_equal(gram_of(gram.astype(np.float32)), gram.astype(np.float32))
    one_way, negative = gram.copy(), gram.copy()
    i, j = rng.choice(n, 2, replace=False)
    one_way[i, j] += 1e-4 * norm
    with pytest.raises(ValueError, match="kernel must be symmetric; rows"):
        gram_of(one_way)
    few = rng.choice(n, int(rng.integers(1, n + 1)), replace=False)
    v = np.zeros(n)
    v[few] = rng.normal(size=len(few))
    v /= np.linalg.norm(v)
    negative -= (v @ gram @ v + 1e-4 * norm) * np.outer(v, v)
    with pytest.raises(ValueError, match="positive semi-definite; on the first"):
        gram_of(negative)


@pytest.mark.parametrize("seed", range(8))
def test_what_is_no_kernel_is_refused_wherever_its_fault_is(seed):
    check_gram_matrix(seed)


def test_a_gram_matrix_of_zeros_is_one():
    assert_array_equal(gram_of(np.zeros((3, 3))), np.zeros((3, 3)))


def sequences(seed=0, scale=1.0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = [(scale * rng.normal(size=(T, 2))).astype(dtype) for T in (3, 1, 4, 2, 5)]
    return X, [rng.integers(3, size=len(x)) for x in X]


def check_overflow(seed):
    """Kernels of any size are refused, or trained on to finite objectives."""
    rng = np.random.default_rng(seed)
    dtype = (np.float32, np.float64)[seed % 2]
    X, y = sequences(seed, 10 ** rng.uniform(-3, (14, 45)[seed % 2]), dtype)
    tagger = HMSVMTagger(
        kernel=("poly", "rbf")[seed % 3 == 2], degree=int(rng.integers(1, 12)), max_iter=3,
        gamma=10 ** rng.uniform(-6, 6), coef0=rng.uniform(0, 2), tol=0.5, random_state=0,
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            tagger.fit(X, y)
        except ValueError as refused:
            if "finite real numbers" in str(refused):
                return False
            raise
    assert np.isfinite(tagger.objective_)
    assert np.isfinite(tagger.dual_gap_)
    assert tagger.n_support_ > 0
    return True


def test_kernels_that_overflow_are_refused():
    trained = [check_overflow(seed) for seed in range(30)]
    assert 5 < sum(trained) < 25
    X, y = sequences()
    tagger = HMSVMTagger(kernel="poly", degree=9, gamma=1.0).fit(X, y)
    with pytest.raises(ValueError, match=r"at most 1e\+100; 'poly' gave .*Scale the features"):
        tagger.predict([1e15 * X[0]])


MODELS = {
    "rbf": {"kernel": "rbf"},
    "poly": {"kernel": "poly", "degree": 2, "coef0": 1.0},
    "callable": {"kernel": laplacian_kernel},
    "constrained": {"kernel": "rbf", "constraints": np.triu(np.ones((3, 3), dtype=bool))},
}


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("kind", ["rbf", "poly", "callable", "constrained"])
def test_kernel_models_label_blocks_of_rows(kind, form, monkeypatch):
    X, y = sequences()
    y = [np.sort(labels) for labels in y]
    X, long = [form(x) for x in X], np.concatenate(X * 9)
    tagger = HMSVMTagger(random_state=0, **MODELS[kind]).fit(X, y)
    expected = tagger.predict([form(long)])[0]
    blocks = lambda: (form(long[a : a + 7]) for a in range(0, len(long), 7))  # noqa: E731
    assert_array_equal(np.concatenate(list(tagger.predict_blocks(RowBlocks(blocks)))), expected)
    assert_array_equal(tagger.predict([RowBlocks(blocks)])[0], expected)
    assert tagger.score([RowBlocks(blocks)], [expected]) == 1
    monkeypatch.setattr(kernel_model, "BLOCK", 100)
    assert_array_equal(tagger.predict([form(long)])[0], expected)


def test_models_without_weights_say_so():
    X, y = sequences()
    tagger = HMSVMTagger(kernel="rbf").fit(X, y)
    with pytest.raises(AttributeError, match="no explain: only kernel='linear' gives weights"):
        explain(tagger, X[0])
    with pytest.raises(ValueError, match="HMSVMTagger has no weights of named features"):
        top_features(tagger)


def test_missing_attributes_say_why():
    X, y = sequences()
    for parameters, missing in (
        ({"kernel": "rbf"}, {"coef_": "only kernel='linear' has weights of features"}),
        ({"solver": "smoothing"}, {"dual_coef_": "use solver='bcfw'", "n_mistakes_": "perceptron"}),
        ({"solver": "perceptron"}, {"objective_": "minimises no", "support_": "use solver='bcfw'"}),
        ({}, {"gamma_": "only kernel='poly' and 'rbf'", "support_vectors_": "support_ has"}),
    ):
        tagger = pickle.loads(pickle.dumps(HMSVMTagger(**parameters).fit(X, y)))
        for name, reason in missing.items():
            with pytest.raises(AttributeError, match=f"has no {name}: .*{reason}"):
                getattr(tagger, name)
            assert not hasattr(copy(tagger), name)
        with pytest.raises(AttributeError, match="object has no attribute 'coeff_'"):
            _ = tagger.coeff_
    with pytest.raises(AttributeError, match="object has no attribute 'coef_'"):
        _ = HMSVMTagger().coef_


def test_a_search_checks_a_given_matrix_once(monkeypatch):
    X, y = sequences()
    rows, checked = np.concatenate(X), []
    squares = np.split(rows @ rows.T, np.cumsum([len(x) for x in X])[:-1])
    check = kernel_functions._check_definite
    monkeypatch.setattr(
        kernel_functions, "_check_definite", lambda gram: checked.append(check(gram))
    )
    search = HMSVMTaggerCV(Cs=[0.1, 1.0], cv=2, kernel="precomputed", random_state=0).fit(
        squares, [np.arange(len(labels)) % 2 for labels in y]
    )
    assert search.scores_.shape == (2, 2)
    assert len(checked) == 2  # for the folds, and for the model of the best C


def test_the_perceptron_weighs_no_labels():
    with pytest.raises(ValueError, match="class_weight weighs the loss, which solver='perceptron'"):
        HMSVMTagger(solver="perceptron", class_weight="balanced").fit(*sequences())


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("offset", [0.0, 1e5, 1e8, -1e9])
def test_gamma_is_exact_far_from_zero(offset, form):
    rows = offset + np.random.default_rng(0).normal(size=(40, 3))
    expected = 1 / (3 * np.var(rows))
    assert kernel_functions.resolve_gamma("scale", form(rows)) == pytest.approx(expected, rel=1e-9)
    assert kernel_functions.resolve_gamma("scale", form(np.full((40, 3), offset + 0.1))) == 1


def test_the_variance_counts_zeros_of_sparse_rows():
    rows = np.random.default_rng(0).normal(size=(30, 4)) * (np.arange(120).reshape(30, 4) % 3 == 0)
    gammas = [kernel_functions.resolve_gamma("scale", x) for x in (rows, sparse.csr_matrix(rows))]
    assert gammas == pytest.approx([1 / (4 * rows.var())] * 2)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
def test_the_rbf_kernel_keeps_distances_far_from_zero(form):
    # The grid of 1/4 makes the shift exact.
    rows = np.round(4 * np.random.default_rng(0).normal(size=(30, 2))) / 4
    kernel = RowKernel("rbf", 0.5)
    far = gram_matrix(kernel, form(rows + 1e9), 100)
    np.testing.assert_allclose(far, gram_matrix(kernel, rows, 100), rtol=1e-12)
    some, others = form(rows[:7] + 1e9), form(rows[5:9] + 1e9)
    np.testing.assert_allclose(kernel(some, others), far[:7, 5:9], rtol=1e-12)
    np.testing.assert_allclose(KernelRows(kernel, form(rows + 1e9), 1.0).block([3]), far[[3]], 1e-6)


def test_the_rbf_kernel_of_an_array_and_a_matrix_with_most_entries_stored():
    rows = np.random.default_rng(0).normal(size=(6, 3))
    kernel, full = RowKernel("rbf", 0.5), sparse.csr_matrix(rows)
    expected = kernel(rows[:2], rows)
    np.testing.assert_allclose(kernel(rows[:2], full), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel(full[:2], rows), expected, rtol=1e-12)


def test_an_infinite_gamma_is_refused():
    X, y = sequences()
    with pytest.raises(ValueError, match=r"the variance is .*give gamma a number"):
        HMSVMTagger(kernel="rbf").fit([x * 1e-155 for x in X], y)


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("tagger", [HMSVMTagger(C=0.1), ZScoreTagger()], ids=["margin", "z-score"])
def test_precomputed_kernels_of_the_support_rows_are_enough(tagger, form):
    rng = np.random.default_rng(0)
    rows, offsets = rng.normal(size=(40, 3)), np.arange(0, 41, 5)
    y = [(x[:, 0] > 0).astype(int) for x in np.split(rows, offsets[1:-1])]
    gram = rows @ rows.T
    tagger.set_params(kernel="precomputed").fit(np.split(gram, offsets[1:-1]), y)
    assert isinstance(tagger, ZScoreTagger) or tagger.n_support_ < 40
    new = rng.normal(size=(7, 3)) @ rows.T
    chosen = [form(new[:, tagger.support_])]
    assert_array_equal(tagger.predict(chosen)[0], tagger.predict([form(new)])[0])
    found, same = (tagger.potentials(x).emission for x in (chosen, [form(new)]))
    assert_array_equal(found, same)
    np.testing.assert_allclose(
        found, tagger.potentials([new]).emission, rtol=1e-12
    )  # BLAS sums otherwise
    with pytest.raises(ValueError, match="X has 2 features"):
        tagger.predict([new[:, :2]])

"""Blocks of second derivatives by label, against probabilities of a tagger."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import CRFTagger, Sequences
from sklseq.inference.chain.linear_chain import BATCH_ROWS
from sklseq.objectives.likelihood import label_curvature as module
from sklseq.objectives.likelihood.label_curvature import label_curvature
from tests.objectives.test_partial import problem_of
from tests.sample_data import make_sparse_data


def variances(tagger, X, w, scores, weights):
    """weight · p (1 - p) of rows and labels."""
    tagger.coef_, tagger.transition_, tagger.start_, tagger.end_ = scores.unpack(w)
    p = np.concatenate(list(tagger.predict_proba(X)))
    return p * (1 - p) * np.repeat(weights, np.diff(X.offsets))[:, None]


@pytest.mark.parametrize("model", [{}, {"all_possible_states": True}], ids=str)
@pytest.mark.parametrize("unit", [1.0, 1e100])
@pytest.mark.parametrize("L", [2, 3, 7, 26])
def test_blocks_of_all_rows(L, unit, model):
    X, y = make_sparse_data(1, n=20, M=6, L=L)
    X = X.with_rows(X.rows * unit)
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
    tagger = CRFTagger(l2=0.3, **model)
    _, scores, f = problem_of(tagger, X, y, weights)
    w = scores.pack(scores.unpack(np.random.default_rng(1).normal(size=scores.n_weights) / unit))
    at, slots, sizes, blocks, _ = label_curvature(f, X, w)
    p = variances(CRFTagger(**model).fit(X, y), X, w, scores, weights)
    p[p <= module.CERTAIN] = 0
    largest, size = abs(X.rows).max(axis=0).toarray()[0], blocks.shape[1]
    if scores.largest is None:
        largest[:] = 1
    assert len(at) == len(np.unique(at)) == scores.n_state if model == {} else len(at) > 0
    frequent = np.argsort(-np.bincount(X.rows.nonzero()[1], minlength=6), kind="stable")
    rows = X.rows.toarray()[:, frequent] / largest[frequent]
    for j, block in enumerate(blocks):
        assert_allclose(block, rows.T @ (p[:, [j]] * rows), rtol=1e-9, atol=1e-12)
    # The weights of label · size + feature are there.
    coef = scores.unpack(np.arange(1.0, scores.n_weights + 1)).coef
    coef = coef.toarray() if hasattr(coef, "toarray") else coef
    assert_allclose(coef[frequent].T.reshape(-1)[slots], at + 1)
    assert_allclose(sizes, largest[frequent][slots % size])


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("L", [1, 2, 4, 9, 17])
def test_grams_of_all_labels(L, n_threads):
    # Rows that store some entries twice, and labels without weight in some rows or in all.
    X, y = make_sparse_data(4, n=30, M=11, L=L)
    rows = sparse.csr_matrix(
        (np.repeat(X.rows.data, 2) / 2, np.repeat(X.rows.indices, 2), 2 * X.rows.indptr),
        shape=X.rows.shape,
    )
    _, _, f = problem_of(CRFTagger(), X, y, n=n_threads)
    rng = np.random.default_rng(5)
    p = rng.random((X.n_rows, L)) * (rng.random((X.n_rows, 1)) < 0.5)
    p[:, L // 2 :] *= rng.random((X.n_rows, L - L // 2)) < 0.2
    p[:, 8:16] = 0
    dense = X.rows.toarray()
    expected = 3.0 * np.einsum("ti,tk,tj->jik", dense, dense, p)
    assert_allclose(module._blocks(f, rows, p, 3.0), expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("one", [False, True])
def test_samples_estimate_the_blocks(one, monkeypatch):
    X, y = make_sparse_data(0, n=4000, M=6)
    if one:  # of one long sequence, some rows
        X, y = Sequences(X.rows, [0, X.n_rows]), [np.concatenate(y)]
    _, scores, f = problem_of(CRFTagger(), X, y, np.ones(len(y)))
    monkeypatch.setattr(module, "ROWS", X.n_rows)
    whole = label_curvature(f, X, scores.new_vector())
    monkeypatch.setattr(module, "ROWS", X.n_rows // 3)
    part = label_curvature(f, X, scores.new_vector())
    diagonals = [
        one.blocks.diagonal(axis1=1, axis2=2).reshape(-1)[one.slots] for one in (whole, part)
    ]
    assert (diagonals[0] != diagonals[1]).any()
    assert_allclose(*diagonals, rtol=0.1)


@pytest.mark.parametrize("boundaries", [False, True])
def test_block_of_transitions(boundaries):
    # Of all sequences, against differences of the whole gradient.
    X, y = make_sparse_data(3, n=40, M=30, L=3)
    _, scores, f = problem_of(CRFTagger(l2=0.3, boundaries=boundaries), X, y, np.ones(len(y)))
    w, n = np.random.default_rng(0).normal(size=scores.n_weights), scores.n_state
    w = scores.pack(scores.unpack(w))
    at, slots, _, blocks, least = label_curvature(f, X, w)
    c, size = len(w) - n, blocks.shape[1]
    assert len(blocks) == len(least) == 4
    assert_allclose(np.sort(at), np.arange(len(w))[np.isin(np.arange(len(w)), at)])
    assert at[slots >= 3 * size].tolist() == list(range(n, len(w)))
    gradients = np.empty((2, len(w)))
    for k in range(c):
        for sign, gradient in zip((-1, 1), gradients):
            moved = w.copy()
            moved[n + k] += sign * 1e-5
            f.value_and_gradient(moved, gradient)
        expected = (gradients[1] - gradients[0])[n:] / 2e-5
        expected[k] -= 2 * 0.3
        assert_allclose(blocks[3, k, :c], expected, rtol=0.02, atol=0.02)
    assert not blocks[3, c:].any()


@pytest.mark.parametrize("model", [{}, {"all_possible_states": True}], ids=str)
def test_threads_find_the_same_blocks(model):
    X, y = make_sparse_data(2, n=1500, M=20)
    tagger, found = CRFTagger(l2=0.3, **model), []
    for n in (1, 3):
        _, scores, f = problem_of(tagger, X, y, n=n)
        w = scores.pack(scores.unpack(np.random.default_rng(1).normal(size=scores.n_weights)))
        found.append(label_curvature(f, X, w))
    assert found[1].at.max() >= scores.n_state  # transitions have a block
    assert n == 3 == len(f.buffers)
    for one, several in zip(*found):
        assert_array_equal(one, several)


@pytest.mark.parametrize("n_labels", [1, 3, 9, 40])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_blocks_of_the_sample_fit_into_the_buffers(n_labels, n):
    rng = np.random.default_rng(n_labels)
    for mean in 3, 300, 3000:
        lengths = rng.integers(1, 2 * mean, 40_000 // mean)
        X = Sequences(sparse.csr_matrix((lengths.sum(), 1)), np.cumsum([0, *lengths]))
        y = [rng.integers(n_labels, size=length) for length in lengths]
        _, _, f = problem_of(CRFTagger(), X, y, n=n)
        sizes = [len(block.y) for block in f.blocks(BATCH_ROWS)]
        assert sum(sizes) == lengths.sum()
        assert max(sizes) <= min(len(buffer.e) for buffer in f.buffers)


@pytest.mark.parametrize("n_labels", [2, 9, 40])
@pytest.mark.parametrize("n_rows", [100, 3_000, 100_000])
def test_factorising_blocks_costs_little_beside_an_evaluation(n_rows, n_labels):
    for n_features in 20, 300, 10_000:
        n = module.n_in_blocks(n_features, n_labels, n_rows)
        assert n >= 1
        assert n_labels * (n - 1) ** 3 / 3 <= module.OPERATIONS * n_rows


@pytest.mark.parametrize("L", [3, 7])
def test_block_of_transitions_costs_few_evaluations(L, monkeypatch):
    X, y = make_sparse_data(0, n=4000, M=100, L=L)
    _, scores, f = problem_of(CRFTagger(), X, y, np.ones(len(y)))
    sizes, count = [], module._expected_counts

    def counted(f, W, chains, block, work):
        sizes.append(len(chains) * len(block.y))
        return count(f, W, chains, block, work)

    monkeypatch.setattr(module, "_expected_counts", counted)
    label_curvature(f, X, scores.new_vector())
    assert len(sizes) >= 2  # from two places
    # Blocks hold whole sequences, and their number is whole.
    assert sum(sizes) <= 2 * module.PASSES * X.n_rows


@pytest.mark.parametrize("model", [{}, {"all_possible_states": True}], ids=str)
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("L", [2, 7])
@pytest.mark.parametrize("dense", [False, True])
def test_second_derivatives_in_each_weight(dense, L, n, model):
    # Exact where sequences have one row.
    X, y = make_sparse_data(6, n=300, M=40, L=L)
    rows = X.rows.toarray() if dense else X.rows
    X, y = Sequences(rows, np.arange(X.n_rows + 1)), list(np.concatenate(y)[:, None])
    weights = np.random.default_rng(0).uniform(0.5, 2, len(y))
    _, scores, f = problem_of(CRFTagger(l2=0.3, **model), X, y, weights, n)
    w = np.random.default_rng(1).normal(size=scores.n_weights)
    w = scores.pack(scores.unpack(w))
    hessian, unit, product = f.hessian(w, 1e9), np.zeros_like(w), np.zeros_like(w)
    found, exact = module.diagonal_curvature(f, w), np.full_like(w, np.inf)
    for k in range(scores.n_state):
        unit[k] = 1
        hessian.product(unit, product)
        unit[k], exact[k] = 0, product[k]
    assert_allclose(found, exact, rtol=1e-9)

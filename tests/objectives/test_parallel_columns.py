"""Columns that are multiples of one another, trained as one."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import SegmentPotentials, SemiCRFSegmenter
from sklseq.estimators.semicrf.segment_problem import SegmentProblem
from sklseq.objectives.segment import parallel_columns as _parallel
from sklseq.objectives.segment.parallel_columns import merge_parallel_columns
from tests.estimators.test_semicrf import problem


def columns(seed, n_rows=12, n_distinct=6, n_features=40):
    """Random sparse columns, most of them multiples of others, some of zeros only."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(n_rows, n_distinct)) * (rng.random((n_rows, n_distinct)) < 0.4)
    # Powers of two: ratios are the same to the last bit.
    scale = rng.choice([-2.0, -1.0, 0.0, 0.5, 1.0, 4.0], size=n_features)
    return base[:, rng.integers(n_distinct, size=n_features)] * scale


def n_directions(dense):
    """Slowly: distinct columns after division by their first value."""
    found = {tuple(x / x[np.flatnonzero(x)[0]]) for x in dense.T if x.any()}
    return len(found)


@pytest.mark.parametrize("seed", range(5))
def test_basis_is_orthonormal_and_holds_all_columns(seed):
    dense = columns(seed)
    basis = merge_parallel_columns(sparse.csr_matrix(dense))
    assert basis.shape == (40, n_directions(dense))
    assert_allclose((basis.T @ basis).toarray(), np.eye(basis.shape[1]), atol=1e-15)
    assert (np.diff(basis.indptr) == dense.any(axis=0)).all()
    # X M Mᵀ = X: nothing of the columns is outside the range of M.
    assert_allclose(dense @ basis @ basis.T.toarray(), dense, atol=1e-14)


def test_equal_fingerprints_of_different_columns_are_told_apart(monkeypatch):
    dense = columns(1)
    expected = merge_parallel_columns(sparse.csr_matrix(dense)).shape

    def all_alike(columns, ratio, used):
        return np.full(len(used), used[0])

    monkeypatch.setattr(_parallel, "_leaders", all_alike)
    basis = merge_parallel_columns(sparse.csr_matrix(dense))
    assert basis.shape >= expected
    assert_allclose(dense @ basis @ basis.T.toarray(), dense, atol=1e-14)


def test_explicit_zeros_and_repeated_entries():
    rows = sparse.csr_matrix(
        (np.array([1.0, 1.0, 2.0, 0.0]), (np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]))), (2, 2)
    )
    assert merge_parallel_columns(rows).shape == (2, 1)


@pytest.mark.parametrize("n_features", [0, 3])
def test_zeros_have_no_direction(n_features):
    assert merge_parallel_columns(sparse.csr_matrix((4, n_features))).shape == (n_features, 0)


@pytest.mark.parametrize("every", [True, False])
def test_model_is_that_of_all_columns(every, monkeypatch):
    X, y = problem(4, dense=False)
    rows = sparse.csr_matrix(X.rows)
    rng = np.random.default_rng(0)
    scale = rng.choice([0.0, 0.5, -1.0, 2.0], size=(rows.shape[1], 30))
    scale *= rng.random(scale.shape) < 0.2
    more = rows @ sparse.csr_matrix(np.hstack([np.eye(rows.shape[1]), scale]))
    X = SegmentPotentials(X.lengths, X.offsets, X.kind, X.start, X.stop, more, row=X.row)
    model = SemiCRFSegmenter(l2=0.3, tol=1e-9, all_possible_states=every, warm_start=True)
    merged = model.fit(X, y)
    coef, objective, n_iter = merged.coef_, merged.objective_, merged.n_iter_
    again = merged.fit(X, y)
    assert again.n_iter_ < n_iter / 4  # it starts from where it ended
    monkeypatch.setattr(f"{SegmentProblem.__module__}.merge_parallel_columns", lambda rows: None)
    plain = SemiCRFSegmenter(**{**model.get_params(), "warm_start": False}).fit(X, y)
    # One function, minimised to a share of 1e-9. With the ridge l2 · ‖w‖² in it, weights are then
    # within √(1e-9 · f / l2) of the minimum, either way.
    assert_allclose(objective, plain.objective_, rtol=1e-9)
    assert_allclose(coef, plain.coef_, atol=2 * np.sqrt(1e-9 * objective / 0.3))
    assert_array_equal(coef == 0, plain.coef_ == 0)


def test_features_of_zeros_only():
    X, y = problem(5)
    empty = SegmentPotentials(
        X.lengths, X.offsets, X.kind, X.start, X.stop, sparse.csr_matrix(X.rows.shape), row=X.row
    )
    model = SemiCRFSegmenter().fit(empty, y)
    assert not model.coef_.any()
    assert model.coef_.shape == (5, 3)

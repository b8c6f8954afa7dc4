"""Stored zeros, as false flags of feature dicts are, take no time and only give pairs a weight."""

import numpy as np
import pytest
from scipy import sparse

from sklseq import CRFTagger, Sequences, ZScoreTagger
from sklseq.objectives.scores.design import PlainRows, SparseRows
from sklseq.objectives.scores.observed import ObservedRows
from sklseq.objectives.scores.score_map import magnitudes


def flags(seed, n=200, m=30):
    """Rows of flags with false ones stored, the same without them, and labels."""
    rng = np.random.default_rng(seed)
    stored = rng.random((n, m)) < 0.5
    values = (rng.random((n, m)) < 0.4)[stored].astype(float)
    rows = sparse.csr_matrix((values, np.nonzero(stored)), shape=(n, m))
    offsets = np.arange(0, n + 1, 10)
    y = [list(labels) for labels in rng.choice(list("abc"), size=(len(offsets) - 1, 10))]
    bare = rows.copy()
    bare.eliminate_zeros()
    return Sequences(rows, offsets), Sequences(bare, offsets), y


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("solver", ["lbfgs", "eg", "adagrad", "zscore"])
def test_the_model_is_that_of_rows_without_zeros(solver, states):
    X, bare, y = flags(0)
    assert X.rows.nnz > 2 * bare.rows.nnz
    model = ZScoreTagger(l2=0.1)
    if solver != "zscore":
        model = CRFTagger(l2=0.1, solver=solver, all_possible_states=states, random_state=0)
    coefs = [model.fit(rows, y).coef_ for rows in (X, bare)]
    np.testing.assert_allclose(coefs[0], coefs[1], rtol=1e-5, atol=1e-7)
    assert X.rows.nnz > 2 * bare.rows.nnz  # X is as it was


def test_flags_that_are_true_are_all_one():
    X, bare, _ = flags(1)
    pairs = np.arange(0, X.shape[1] * 8)
    for design in (
        SparseRows(X, 8, np.float64),
        PlainRows(X, 8, np.float64),
        ObservedRows(X, pairs, 8, 8, np.float64),
    ):
        (_, indices, data), _, _ = design.entries()
        assert len(data) == 0
        assert len(indices) == bare.rows.nnz


def test_zeros_are_no_unusual_magnitudes():
    rows = sparse.csr_matrix(([1.0, 0.0, -2.0], ([0, 0, 1], [0, 1, 2])), shape=(2, 4))
    assert rows.nnz == 3
    assert magnitudes(rows) is None
    rows.data[2] = 0.01
    assert magnitudes(rows).tolist() == [1, 0, 0.01, 0]

"""Rows with the same transition features share their entries in training."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import CRFTagger, Sequences
from sklseq.objectives.scores import transition_features
from tests.objectives.test_partial import problem_of
from tests.objectives.test_transition_features import COLUMNS, drawn, enumerated, packed_again
from tests.oracles import precise_numerical_gradient


def few_kinds(seed, n=12, M=5, L=3):
    """Sequences of three kinds of rows, among them one without a transition feature."""
    rng = np.random.default_rng(seed)
    kinds = rng.integers(-1, 2, (3, M)).astype(float)
    kinds[0, COLUMNS] = 0
    lengths = rng.integers(0, 6, n)
    rows = sparse.csr_matrix(kinds[rng.integers(0, 3, lengths.sum())])
    X = Sequences(rows, np.concatenate([[0], np.cumsum(lengths)]))
    return X, [rng.integers(0, L, k) for k in lengths]


@pytest.mark.parametrize("pairs", ["seen", "all"])
@pytest.mark.parametrize("seed", range(3))
def test_rows_of_one_kind_share_their_entries(seed, pairs):
    X, y = few_kinds(seed)
    tagger = CRFTagger(l2=1, transition_features=COLUMNS, all_possible_transitions=pairs == "all")
    source, scores, f = problem_of(tagger, X, y)
    w, weights = drawn(scores, seed)
    gradient = np.zeros_like(w)
    room = scores.features.buffers([(0, X.n_rows)])
    entries = scores.features.fill(
        scores.triples(w), np.zeros((3, 3)), 0, X.offsets.astype(np.int64), room
    )
    assert len(entries.indptr) <= 4 < len(entries) == X.n_rows
    log_p = enumerated(*weights, X, y, source.classes, np.ones(len(y)))
    assert_allclose(f.value_and_gradient(w, gradient), w @ w - log_p, rtol=1e-11)
    numerical = precise_numerical_gradient(f.value, w)
    used = np.flatnonzero(packed_again(scores, np.ones_like(w)))
    assert_allclose(gradient[used], numerical[used], rtol=1e-8, atol=1e-8)


def test_kinds_of_rows(monkeypatch):
    X, _ = few_kinds(4)
    rows = X.rows.indptr, X.rows.indices, X.rows.data
    kinds = transition_features.row_kinds(*rows)
    _, expected = np.unique(X.rows.toarray(), axis=0, return_inverse=True)
    same = kinds[:, None] == kinds
    assert_array_equal(same, expected.ravel()[:, None] == expected.ravel())
    # Keys that are the same for rows that differ: every row is a kind of its own.
    monkeypatch.setattr(transition_features, "MIXERS", np.zeros(3, dtype=np.uint64))
    assert_array_equal(transition_features.row_kinds(*rows), np.arange(X.n_rows))

"""Rows with the same transition features share their entries in training."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import CRFTagger, Sequences
from sklseq.inference.chain import linear_chain
from sklseq.inference.chain.linear_chain import Transitions, Workspace
from sklseq.inference.chain.row_transitions import RowTransitions, has_set_matrices
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


@pytest.mark.parametrize("size", [1, 300])  # weights so large that the log domain is needed
@pytest.mark.parametrize("seed", range(3))
def test_factors_of_sets_of_all_pairs(seed, size, monkeypatch):
    X, y = few_kinds(seed, L=6)
    tagger = CRFTagger(
        l2=1, transition_features=COLUMNS, all_possible_transitions=True, all_possible_states=True
    )
    source, scores, f = problem_of(tagger, X, y)
    w, weights = drawn(scores, seed)
    found = []
    for path in ("factors", "scores", "rows"):
        monkeypatch.setattr(scores.features.row_entries, "whole", path == "factors")
        if path == "rows":
            monkeypatch.setattr(linear_chain, "has_set_matrices", lambda *_: False)
        gradient = np.zeros_like(w)
        found.append((f.value_and_gradient(size * w, gradient), gradient))
    for value, gradient in found[1:]:
        assert_allclose(found[0][0], value, rtol=1e-12)
        assert_allclose(found[0][1], gradient, rtol=1e-10, atol=1e-10 * size)
    if size == 1:
        log_p = enumerated(*weights, X, y, source.classes, np.ones(len(y)))
        assert_allclose(found[0][0], w @ w - log_p, rtol=1e-11)


def sets_of_rows(seed, n_rows, L, dtype):
    """Entries of five sets, one of which each row has: set 0 is empty, set 1 has all pairs."""
    rng = np.random.default_rng(seed)
    shared, scores = rng.normal(size=(L, L)).astype(dtype), rng.normal(size=(5, L, L)).astype(dtype)
    has = rng.random((5, L, L)) < 0.3
    has[0], has[1], scores[2, 0, 1], shared[1, 2] = False, True, -np.inf, -np.inf
    i, j = (x.astype(np.int32) for x in np.nonzero(has)[1:])
    indptr = np.append(0, np.cumsum(has.sum(axis=(1, 2))))
    sets = RowTransitions.unchecked(shared, indptr, i, j, scores[has])
    sets.of_row, sets.ordered = rng.integers(0, 5, n_rows).astype(np.int32), True
    return sets


def sums_of(chain, rows, psi, offsets, weights):
    """(log Z, marginals, pairs, expected counts of entries)."""
    log_z, work = np.zeros(len(weights)), Workspace(len(psi), chain.width, chain.dtype)
    rows, psi = rows.with_expected(), chain.pad_rows(psi)
    work.forward_backward(psi, offsets, weights, chain, log_z, rows)
    return log_z, psi, work.pairwise_sum(chain), rows.expected


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("size", [1, 400])  # scores so large that the log domain is needed
@pytest.mark.parametrize("L", [5, 9])
def test_few_sets_of_entries_have_matrices(L, size, dtype):
    offsets = np.concatenate([[0], np.cumsum([3, 0, 1, 40, 2, 25, 30])])
    rng, n = np.random.default_rng(L), offsets[-1]
    sets = sets_of_rows(L, n, L, dtype)
    chain = Transitions(sets.shared, rng.normal(size=L), rng.normal(size=L), dtype)
    chain.exponentiate(float(sets.score.max()))
    assert has_set_matrices(sets, chain.width)
    each = RowTransitions.from_dense(sets.take(np.arange(n)))
    assert not has_set_matrices(each, chain.width)
    psi, weights = rng.normal(size=(n, L)), np.array([1, 1, 1, 0.3, 7, 0, -2])
    psi[-20:] *= size
    found = sums_of(chain, sets, psi, offsets, weights)
    log_z, mu, pairs, expected = sums_of(chain, each, psi, offsets, weights)
    summed = np.zeros((5, L, L))
    np.add.at(summed, sets.of_row, expected.reshape(n, L, L))
    of_entry = np.repeat(np.arange(5), np.diff(sets.indptr)), sets.i, sets.j
    rtol = 1e-12 if dtype == np.float64 else 2e-5
    for x, y in zip(found, (log_z, mu, pairs, summed[of_entry])):
        assert_allclose(x, y, rtol=rtol, atol=rtol)


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

"""Scores of given labelings, against the sum of their terms, one by one."""

from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklseq.inference import RowTransitions
from sklseq.inference.chain.path_scores import path_scores, row_scores
from sklseq.inference.chain.row_transitions import pair_scores
from tests.reference import score_path

OFFSETS = np.array([0, 4, 4, 5, 9])
L = 3


def row_transitions(rng, shared):
    """Entries in about half of the places, in the sets of rows that rows share, or in each row."""
    n = OFFSETS[-1]
    n_sets = 4 if shared else n
    mask = rng.random((n_sets, L, L)) < 0.5
    indptr = np.append(0, np.cumsum(mask.sum(axis=(1, 2))))
    _, i, j = np.nonzero(mask)
    rows = RowTransitions(rng.normal(size=(L, L)), indptr, i, j, rng.normal(size=len(i)))
    if shared:
        rows.of_row = rng.integers(n_sets, size=n).astype(np.int32)
    return rows


@pytest.mark.parametrize("kind", ["matrix", "rows", "shared"])
def test_path_scores_are_sums_of_their_terms(kind):
    rng = np.random.default_rng(0)
    n = OFFSETS[-1]
    emission, start, end = rng.normal(size=(n, L)), rng.normal(size=L), rng.normal(size=L)
    transition = rng.normal(size=(L, L))
    matrices = np.repeat(transition[None], n, axis=0)
    if kind != "matrix":
        transition = row_transitions(rng, kind == "shared")
        matrices = transition.take(np.arange(n))
    for y in rng.integers(L, size=(20, n)):
        scores = path_scores(emission, transition, start, end, OFFSETS, y)
        each = [
            score_path(y[a:b], emission[a:b], matrices[a:b], start, end) if b > a else 0
            for a, b in pairwise(OFFSETS)
        ]
        assert_allclose(scores, each, atol=1e-13)  # rounding of sums of ten terms


@pytest.mark.parametrize("shared", [False, True])
def test_pairs_of_chosen_rows_in_any_order(shared):
    rng = np.random.default_rng(1)
    rows = row_transitions(rng, shared)
    t = np.array([7, 2, 2, 5])
    i, j = rng.integers(L, size=(2, len(t)))
    assert pair_scores(rows, t, i, j).tolist() == rows.take(t)[np.arange(len(t)), i, j].tolist()


def test_an_unknown_label_scores_minus_infinity():
    y = np.array([0, 1, -1, 2, 0, 1, 1, 1, 1])
    given = np.zeros((9, L)), np.zeros((L, L)), np.zeros(L), np.zeros(L), OFFSETS, y
    assert np.flatnonzero(row_scores(*given) == -np.inf).tolist() == [2]
    assert path_scores(*given).tolist() == [-np.inf, 0, 0, 0]

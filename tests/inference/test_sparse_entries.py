"""Sparse transitions (lists of pairs) where single rows have transition scores of their own.

The oracles are the NumPy reference, which sees a whole matrix for each row, and for taggers the
same tagger that is not allowed lists.
"""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq import CRFTagger
from sklseq._lib.threads import Threads
from sklseq.inference import RowTransitions, viterbi
from sklseq.inference.chain.linear_chain import Transitions, Workspace
from sklseq.inference.chain.sparse_transitions import find_pairs
from sklseq.objectives.likelihood.dual import DualLikelihood
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.likelihood.stochastic import StochasticLikelihood
from tests import reference
from tests.inference.test_large_labels import TOLERANCE
from tests.inference.test_row_transitions import each_sequence, expected_entries
from tests.inference.test_sparse_transitions import (
    ALWAYS,
    KINDS,
    NEVER,
    check_answers,
    labelled,
    lattice_scores,
    lists,
    problem,
)

__all__ = ["lists"]  # an autouse fixture

LABELS = [5, 9, 33]
# More than a batch of eight, some of them empty or of one row.
LENGTHS = [0, 1, 7, 20, 2, 12, 12, 5, 3, 3, 9, 1]
# Scores of entries: (scale, constant, fraction forbidden). Corrections that take nearly all of a
# sum away, that dwarf it, and that exceed what scaled arithmetic can represent.
SCORES = {
    "as others": (1.0, 0.0, 0.0), "forbid": (1.0, 0.0, 0.5), "far below": (3.0, -40.0, 0.0),
    "far above": (3.0, 20.0, 0.0), "too far above": (3.0, 60.0, 0.0), "wide": (30.0, 0.0, 0.05),
}  # fmt: skip


def entries(rng, shared, n, scores, share=0.5):
    """Entries of some pairs in a share of the rows: those listed, or any."""
    L, (scale, constant, forbidden) = len(shared), SCORES[scores]
    likely = np.flatnonzero((shared != 0) & (shared > -np.inf))
    pairs = []
    for has in rng.random(n) < share:
        among = likely if rng.random() < 0.5 and len(likely) else np.arange(L * L)
        most = min(len(among), 2 * L)
        pairs.append(rng.permutation(among)[: has * rng.integers(0, most + 1)])
    i, j = np.divmod(np.concatenate([[], *pairs]).astype(int), L)
    score = constant + scale * rng.normal(size=len(i))
    score[(rng.random(len(i)) < forbidden) & (i != j)] = -np.inf
    indptr = np.concatenate([[0], np.cumsum([len(x) for x in pairs])])
    return RowTransitions(shared, indptr, i, j, score.astype(shared.dtype))


def check_sums(seed, L, kind, scores, dtype, lengths=LENGTHS, highest=True):
    (emission, shared, start, end, offsets), wanted = problem(seed, L, kind, dtype, lengths)
    rng = np.random.default_rng(seed)
    rows = entries(rng, shared, len(emission), scores).with_expected()
    weights = rng.choice([0.0, 0.3, 1.0, 2.5, -1.5], len(lengths))
    found = find_pairs(shared, dtype, wanted=wanted)
    chain = Transitions(shared, start, end, dtype, found)
    chain.exponentiate(rows.score.max(initial=-np.inf) if highest else -np.inf)
    work = Workspace(len(emission), chain.width, chain.dtype, found)
    psi, log_z = chain.pad_rows(emission), np.zeros(len(lengths))
    work.forward_backward(psi, offsets, weights, chain, log_z, rows)
    # Three digits may be lost in a sum, and as many in a sum of pairs.
    tolerance = dict(rtol=1e-9, atol=1e-10) if dtype == np.float64 else TOLERANCE[dtype]
    given, sums = (emission, rows, offsets, start, end), np.zeros((L, L))
    for s, (where, *one) in enumerate(each_sequence(*given)):
        total, mu, xi = reference.forward_backward(*one)
        assert_allclose(log_z[s], total, **tolerance)
        if total > -np.inf:
            assert_allclose(psi[where, :L], mu, **tolerance)
            sums += weights[s] * xi
    assert_allclose(work.pairwise_sum(chain)[wanted], sums[wanted], **tolerance)
    assert_allclose(rows.expected, expected_entries(rows, offsets, given, weights), **tolerance)


@pytest.mark.parametrize("L", LABELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_equal_the_reference(L, kind, scores, dtype):
    check_sums(L, L, kind, scores, dtype)
    check_sums(L + 1, L, kind, scores, dtype, [7, 0, 1, 12], highest=False)


@pytest.mark.parametrize("score", [-50.0, -30.0, -8.0, -np.inf, 30.0])
@pytest.mark.parametrize("confident", [5.0, 20.0, 60.0])
@pytest.mark.parametrize("n", [1, 9])
def test_nothing_cancels(score, confident, n):
    # All of row 0 lies on label 0, from which row 1 allows next to no step to label 1, of which its
    # emissions are certain. Relative errors: no marginal, however small, loses more digits.
    L, shared = 24, np.zeros((24, 24))
    shared[0, 1], shared[2, 3] = 2.0, 1.0
    emission = np.zeros((4, L))
    emission[0, 0], emission[1, 1] = confident, 3 * confident
    emission, offsets = np.tile(emission, (n, 1)), np.arange(0, 4 * n + 1, 4)
    at = np.arange(4 * n) % 4 == 1
    pairs = np.tile([0, 1, 5], n), np.tile([1, 4, 1], n)
    indptr = np.concatenate([[0], np.cumsum(3 * at)])
    rows = RowTransitions(shared, indptr, *pairs, np.tile([score, 3.0, score], n)).with_expected()
    wanted = (shared != 0) | (np.arange(L) == 1)
    found = find_pairs(shared, np.float64, wanted=wanted)
    chain = Transitions(shared, pairs=found).exponentiate(rows.score.max())
    work = Workspace(len(emission), chain.width, chain.dtype, found)
    psi, log_z = chain.pad_rows(emission), np.zeros(n)
    work.forward_backward(psi, offsets, np.ones(n), chain, log_z, rows)
    given = emission, rows, offsets, np.zeros(L), np.zeros(L)
    answers = [reference.forward_backward(*one) for _, *one in each_sequence(*given)]
    tolerance = dict(rtol=1e-11, atol=1e-300)
    assert_allclose(log_z, [one[0] for one in answers], rtol=1e-12)
    assert_allclose(psi[:, :L], np.concatenate([one[1] for one in answers]), **tolerance)
    pairwise = sum(one[2] for one in answers)
    # Pairs of several rows are a sum, whose largest term may have lost digits.
    assert_allclose(work.pairwise_sum(chain)[wanted], pairwise[wanted], rtol=1e-9, atol=1e-12)
    assert_allclose(rows.expected, expected_entries(rows, offsets, given, np.ones(n)), **tolerance)


@pytest.mark.parametrize(("behind", "stay"), [(345, 0), (270, 200)])
@pytest.mark.parametrize("n", [1, 9])
def test_losing_a_label_that_wins_later_is_noticed(behind, stay, n):
    # Entries forbid steps to label 2 from others. It falls behind by so many decades in row 1, and
    # in row 2 by its own entry, and carries all of Z in the end.
    L, T, decade = 12, 7, np.log(10)
    shared, emission = np.zeros((L, L)), np.zeros((T, L))
    shared[3, 4] = 0.5
    emission[1, 2] = -behind * decade
    emission[2:, np.arange(L) != 2] = -150 * decade
    score = np.where(np.arange(L) == 2, 0.0, -np.inf)
    score = np.concatenate([score, np.where(score == 0, -stay * decade, score), *[score] * (T - 3)])
    one = np.concatenate([[0, 0], L * np.arange(1, T)])
    indptr = np.concatenate([[0], *(one[1:] + k * one[-1] for k in range(n))])
    i, j = np.tile(np.arange(L), (T - 1) * n), np.full((T - 1) * n * L, 2)
    rows = RowTransitions(shared, indptr, i, j, np.tile(score, n))
    emission, offsets = np.tile(emission, (n, 1)), np.arange(0, n * T + 1, T)
    found = find_pairs(shared, np.float64, wanted=shared != 0)
    chain = Transitions(shared, pairs=found).exponentiate(rows.score.max())
    work = Workspace(len(emission), chain.width, chain.dtype, found)
    psi, log_z = chain.pad_rows(emission), np.zeros(n)
    work.forward_backward(psi, offsets, None, chain, log_z, rows)
    given = emission, rows, offsets, np.zeros(L), np.zeros(L)
    for s, (where, *case) in enumerate(each_sequence(*given)):
        total, marginals, _ = reference.forward_backward(*case)
        assert marginals[-1, 2] > 0.999
        assert_allclose(log_z[s], total, rtol=1e-12)
        assert_allclose(psi[where, :L], marginals, atol=1e-12)


@pytest.mark.parametrize("L", LABELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scores", SCORES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_best_paths_are_the_same_bits(L, kind, scores, dtype, lists):
    # Rounded to quarters, ties are frequent; as they are, sums are rounded.
    for seed, rounded in enumerate([True, False]):
        (emission, shared, start, end, offsets), _ = problem(seed, L, kind, dtype, LENGTHS)
        rows = entries(np.random.default_rng(seed), shared, len(emission), scores)
        if rounded:
            emission, start, end = (np.round(2 * x) / 4 for x in (emission, start, end))
            shared, rows.score = np.round(2 * shared) / 4, np.round(2 * rows.score) / 4
            rows.shared = shared
        answers = []
        for limit in (ALWAYS, NEVER):
            lists(limit)
            answers.append(viterbi(emission, rows, offsets, start=start, end=end))
        for ours, theirs in zip(*answers):
            assert_array_equal(ours, theirs)


# --- Taggers --------------------------------------------------------------------------------------

COLUMNS = [1, 5, 40, 41, 80, 81, 82]  # rare features, and some that most rows have


def problem_of(seed, lists, limit, n=60, dtype=np.float64, **parameters):
    """(weights of a likelihood with transition features, its map and data)."""
    lists(limit)
    X, y = labelled(seed, n=n, dtype=dtype)
    tagger = CRFTagger(transition_features=COLUMNS, **parameters)
    codes = np.concatenate(y).astype(np.int32)
    return lattice_scores(tagger, X, codes, 40), X, codes


@pytest.mark.parametrize("scale", [0.3, 5.0, 40.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_objective_and_gradient_are_the_same(scale, dtype, n_jobs, lists):
    answers = []
    for limit in (ALWAYS, NEVER):
        scores, X, codes = problem_of(1, lists, limit, n=400, dtype=dtype)
        assert (scores.pairs is not None) == (limit == ALWAYS)
        assert scores.features.n_weights
        w, gradient = scores.new_vector(), scores.new_vector()
        w[:] = np.random.default_rng(4).normal(scale=scale, size=len(w))
        weights = np.random.default_rng(3).random(len(X)) * 2
        with Threads(n_jobs) as threads:
            f = LogLikelihood(scores, codes, X.offsets, weights, 0.1, threads)
            for _ in range(2):  # the second evaluation knows the largest entry
                value = f.value_and_gradient(w, gradient)
            assert_allclose(f.value(w), value, rtol=1e-12 if dtype == np.float64 else 1e-5)
        answers.append((value, gradient))
    double = answers[0][1].dtype == np.float64
    for ours, theirs in zip(*answers):
        assert_allclose(ours, theirs, rtol=1e-10 if double else 2e-4, atol=1e-9 if double else 2e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few iterations
@pytest.mark.parametrize(
    "parameters", [
        dict(solver="lbfgs", tol=0), dict(solver="lbfgs", l1=0.1, tol=0),
        dict(solver="adagrad", tol=1e-3, l1=0.01), dict(solver="dual", tol=1e-3, l2=1.0),
        dict(solver="dual", tol=1e-3, l2=1.0, l1=0.1),
    ],
)  # fmt: skip
def test_taggers_are_the_same(parameters, lists):
    X, y = labelled(7, n=150)
    taggers = []
    for limit in (ALWAYS, NEVER):
        lists(limit)
        tagger = CRFTagger(transition_features=COLUMNS, **{"l2": 0.1, "max_iter": 6} | parameters)
        taggers.append(tagger.fit(X, y, sample_weight=np.linspace(0, 2, len(X))))
    ours, theirs = taggers
    assert_allclose(ours.objective_, theirs.objective_, rtol=1e-6)
    assert_allclose(ours.transition_, theirs.transition_, atol=1e-4)
    assert_allclose(ours.transition_coef_.toarray(), theirs.transition_coef_.toarray(), atol=1e-4)
    assert ours.transition_coef_.nnz
    check_answers(ours, X, lists, rtol=1e-9, atol=1e-12)


def test_partial_labels_are_the_same(lists):
    # Triples of unknown labels may be of transitions that are not listed.
    X, y = labelled(5, n=60)
    rng = np.random.default_rng(0)
    y = [[label if rng.random() < 0.8 else None for label in labels] for labels in y]
    fits = []
    for limit in (ALWAYS, NEVER):
        lists(limit)
        tagger = CRFTagger(transition_features=COLUMNS, l2=1.0, max_iter=5, tol=0, solver="lbfgs")
        with pytest.warns(match="iterations"):
            fits.append(tagger.fit(X, y))
    assert_allclose(fits[0].objective_, fits[1].objective_, rtol=1e-9)
    assert_allclose(fits[0].transition_, fits[1].transition_, atol=1e-6)


@pytest.mark.parametrize("scale", [1.0, 300.0])
def test_steps_on_single_sequences_are_the_same(scale, lists):
    # With the larger scale scaled arithmetic fails: the gradients of descents are tempered, by a
    # factor that may differ, and the steps of ascents are shortened.
    answers = []
    for limit in (ALWAYS, NEVER):
        scores, X, codes = problem_of(3, lists, limit)
        with Threads(1) as threads:
            primal = LogLikelihood(scores, codes, X.offsets, np.ones(len(X)), 0.5, threads)
            w = scores.new_vector()
            w[:] = np.random.default_rng(1).normal(scale=scale, size=len(w))
            descents = [StochasticLikelihood(primal, w=w.copy()) for _ in range(20)]
            losses = [one.descend(one.sequences[[k]], 0.1) for k, one in enumerate(descents)]
            assert (descents[0].listed is not None) == (limit == ALWAYS)
            dual = DualLikelihood(primal)
            dual.chain[:40] = scale * np.sin(np.arange(dual.chain[:40].size)).reshape(40, -1)
            dual.chain[:40] *= dual.chain_mask[:40]
            dual.ascend(dual.sequences[:20])
        answers.append((losses, dual.eta, dual.entropy, dual.v))
        if scale == 1:
            answers[-1] += tuple(one.v for one in descents)
    for ours, theirs in zip(*answers):
        assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_rows_without_active_features_need_no_matrix(lists):
    # One row has a transition feature: lists are used all the same.
    scores, *_ = problem_of(9, lists, ALWAYS)
    X, _ = labelled(9, n=60)
    assert scores.pairs is not None
    assert np.count_nonzero(np.diff(scores.features.rows[0])) < X.n_rows

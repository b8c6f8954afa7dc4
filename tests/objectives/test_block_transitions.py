"""Transition features of rows in blocks: all gradients equal that of sequences in memory."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from sklseq import CRFTagger, RowBlocks
from sklseq._lib.threads import Threads
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.block_source import BlockSource
from sklseq.estimators.sources.source import RowSource
from sklseq.objectives.likelihood.block_sequence import as_block
from sklseq.objectives.likelihood.gradient_plan import Plan
from sklseq.objectives.likelihood.passes import (
    Checkpoints,
    OnePass,
    PendingTooLarge,
    Stored,
    StoredOnce,
)
from sklseq.objectives.scores.transition_features import BlockFeatures
from tests.objectives.test_partial import partial_labels, problem_of

PASSES = [OnePass, Checkpoints, Stored, StoredOnce]


def random_problem(seed):
    """(X, y, weights, roles): one longer sequence, some short ones and an empty one."""
    rng = np.random.default_rng(seed)
    L, M = int(rng.integers(2, 5)), 4
    lengths = [int(rng.integers(8, 40)), 0, *rng.integers(1, 7, 4).tolist()]
    values = [1.0, *rng.normal(size=M - 1)]
    X = [rng.integers(0, 2, (T, M)) * values for T in lengths]
    y = [rng.integers(0, L, T) for T in lengths]
    y[0][:L], y[2][:] = np.arange(L), 0
    roles = rng.integers(1, 4, M)
    roles[:2] = 1, 3
    if seed % 3 == 0:
        X = [sparse.csr_matrix(x) for x in X]
    y = partial_labels(y, seed, L=L) if seed % 4 == 1 else [labels.tolist() for labels in y]
    return X, y, np.array([1, 1, *rng.uniform(0, 2, 3), 0]), np.flatnonzero(roles & 2)


def blocks_of_rows(rng, x):
    """A sequence in blocks of any lengths, to be read from the beginning or from anywhere."""
    if rng.random() < 0.5 or x.shape[0] == 0:
        return RowBlocks(x)
    cuts = np.unique(rng.integers(0, x.shape[0], 4))
    parts = [x[a:b] for a, b in zip([0, *cuts], [*cuts, x.shape[0]])]
    return RowBlocks(lambda: iter(parts))


def block_problem(tagger, X, y, weights, plan, given=None):
    """As ``problem_of``; ``given``: sequences in memory, else those of X are RowBlocks."""
    source = BlockSource.of_blocks(X, y, weights, lambda *_, **__: plan, "")
    if given is not None:
        source = BlockSource.of_rows(given, plan, "")
    scores = score_map(tagger, source, source.summarise())
    return scores, source.likelihood(scores, tagger.l2, Threads(1))


def check_blocks(seed, passes=None):
    """Value and gradient at random weights, some too large for scaled arithmetic."""
    rng = np.random.default_rng(seed)
    X, y, weights, columns = random_problem(seed)
    L = max(max(set(z) & {0, 1, 2, 3}, default=0) for z in y) + 1 if seed % 4 != 1 else 0
    given = {"l2": 0.3, "transition_features": columns, "boundaries": seed % 5 != 0}
    given |= {"all_possible_states": True, "all_possible_transitions": seed % 3 == 2}
    if L > 2 and seed % 2:
        follows = {(a, b) for z in y for a, b in zip(z[:-1], z[1:])}
        given["constraints"] = [[(i, j) in follows for j in range(L)] for i in range(L)]
    tagger = CRFTagger(**given)
    source, scores, f = problem_of(tagger, X, y, weights)
    passes = PASSES[seed % 4] if passes is None else passes
    plan = Plan("", passes, int(rng.integers(1, 12)), "", 1e9)
    in_memory = type(source) is RowSource and seed % 7 == 0
    if passes is Checkpoints:
        blocks = [RowBlocks(x) for x in X]
    else:
        blocks = [blocks_of_rows(rng, x) for x in X]
    laid_out, g = block_problem(tagger, blocks, y, weights, plan, source if in_memory else None)
    size = [0.3, 3.0, 300.0][seed % 3]
    w = size * rng.normal(size=scores.n_weights)
    user = scores.unpack(w), scores.unpack_triples(w)
    w, v = scores.pack(*user), laid_out.pack(*user)
    assert laid_out.features.n_weights == scores.features.n_weights
    gradient, other = np.zeros_like(w), np.zeros_like(v)
    for _ in range(2):  # factors of the second are scaled by the scores of the first
        value = f.value_and_gradient(w, gradient)
        assert_allclose(g.value_and_gradient(v, other), value, rtol=1e-10, atol=1e-10)
        theirs = laid_out.unpack(other), laid_out.unpack_triples(other).toarray()
        ours = scores.unpack(gradient), scores.unpack_triples(gradient).toarray()
        for a, b in zip((*ours[0], ours[1]), (*theirs[0], theirs[1])):
            assert_allclose(a, b, rtol=1e-9, atol=1e-10 * size)


@pytest.mark.parametrize("seed", range(60))
def test_blocks_of_any_cut_have_the_gradient_of_memory(seed):
    check_blocks(seed)


@pytest.mark.parametrize("passes", PASSES)
def test_labels_that_stick_and_several_recursions_at_once(passes):
    # Rows without features keep labels; the tail of L recursions does not agree within blocks.
    rng, T, L = np.random.default_rng(0), 700, 9
    y = [np.repeat(rng.integers(0, L, T // 5), 5), np.arange(L)]
    X = [sparse.csr_matrix((rng.random((len(z), 3)) < 0.2).astype(float)) for z in y]
    tagger = CRFTagger(transition_features=[0, 2], all_possible_transitions=True)
    _, scores, f = problem_of(tagger, X, y)
    w = rng.normal(size=scores.n_weights)
    user = scores.unpack(w), scores.unpack_triples(w)
    user[0].transition[:] += 12 * np.eye(L)
    laid_out, g = block_problem(
        tagger, [RowBlocks(x) for x in X], y, np.ones(2), Plan("", passes, 64, "", 1e9)
    )
    w, v = scores.pack(*user), laid_out.pack(*user)
    gradient, other = np.zeros_like(w), np.zeros_like(v)
    assert_allclose(g.value_and_gradient(v, other), f.value_and_gradient(w, gradient), rtol=1e-11)
    coefs = scores.unpack_triples(gradient), laid_out.unpack_triples(other)
    assert_allclose(*(coef.toarray() for coef in coefs), rtol=1e-9, atol=1e-9)
    assert_allclose(
        scores.unpack(gradient).transition, laid_out.unpack(other).transition, atol=1e-9
    )


@pytest.mark.parametrize("gradient", ["checkpoint", "streaming", "forward-backward"])
@pytest.mark.parametrize("form", ["rows", "blocks", "generators"])
def test_fit(gradient, form):
    rng = np.random.default_rng(1)
    X = [(rng.random((T, 4)) < 0.4) * 1.0 for T in (240, 5)]
    y = [np.cumsum(x[:, 0]).astype(int) % 3 for x in X]  # the next label where the feature is 1
    options = {"transition_features": [0], "max_iter": 2000, "tol": 1e-8}
    expected = CRFTagger(solver="lbfgs", **options).fit(X, y)
    if form == "blocks":
        given = [RowBlocks(x) for x in X]
    elif form == "generators":
        if gradient == "checkpoint":
            pytest.skip("reads blocks from anywhere")
        given = [RowBlocks(lambda x=x: iter(np.array_split(x, 3))) for x in X]
    else:
        given = X
    tagger = CRFTagger(gradient=gradient, **options).fit(given, y)
    assert_allclose(
        tagger.transition_coef_.toarray(), expected.transition_coef_.toarray(), atol=1e-4
    )
    assert_allclose(tagger.coef_, expected.coef_, atol=1e-4)
    assert tagger.score(X, y) == expected.score(X, y)


def test_early_stopping_leaves_out_what_is_set_aside():
    rng = np.random.default_rng(2)
    y = [rng.integers(0, 3, 12) for _ in range(20)]
    X = [rng.normal(size=(12, 3)) for _ in y]  # no ties among labelings
    options = {"transition_features": [1], "early_stopping": True, "random_state": 0, "l2": 5.0}
    plain = CRFTagger(solver="lbfgs", **options).fit(X, y)
    blocks = CRFTagger(**options).fit([RowBlocks(x) for x in X], y)
    assert_allclose(blocks.transition_coef_.toarray(), plain.transition_coef_.toarray(), atol=1e-8)


def test_entries_of_a_block_follow_the_row_before():
    X, y, *_ = random_problem(0)
    _, scores, _ = problem_of(CRFTagger(transition_features=[0, 1]), X, y)
    shared, v = np.zeros((4, 4)), np.random.default_rng(0).normal(size=scores.features.n_weights)
    model, x = BlockFeatures(scores.features.in_double(), v, shared, 4), X[0]
    whole = model.of_sequences(as_block(x[:8]), np.array([0, 8]))
    whole.fill()
    for a in (1, 5):
        part = model.of_block(as_block(x[a:8]), False)
        part.fill()
        assert_array_equal(part.rows.toarray(), whole.rows.toarray()[a:])
        part.clear()
        assert part.rows is None
    assert model.highest == whole.rows.score.max()


def test_counts_given_each_last_label_need_memory():
    rng = np.random.default_rng(0)
    y = [np.arange(300) % 40]
    X = [rng.integers(0, 2, (300, 6)) * 1.0]
    tagger = CRFTagger(transition_features=np.arange(6), all_possible_transitions=True)
    _, f = block_problem(tagger, [RowBlocks(X[0])], y, np.ones(1), Plan("", OnePass, 16, "", 2e5))
    with pytest.raises(PendingTooLarge, match="weights of transition features, given each of the"):
        f.value(np.zeros(f.scores.n_weights))

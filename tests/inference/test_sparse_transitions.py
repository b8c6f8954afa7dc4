"""Transitions most of which score 0, or are forbidden: lists of the others instead of the matrix.

The oracles are the NumPy reference, which sees the whole matrix, and for whole taggers the same
tagger that is not allowed lists.
"""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn import config_context

from sklseq import CRFTagger, Sequences, Shards
from sklseq._lib.threads import Threads
from sklseq.estimators.crf.crf_problem import choose_solver, score_map
from sklseq.estimators.sources.source import RowSource
from sklseq.inference import forward_backward, viterbi
from sklseq.inference.chain import linear_chain as chain
from sklseq.inference.chain import sparse_transitions as pairs
from sklseq.inference.chain.linear_chain import Transitions, Workspace, best_paths
from sklseq.inference.chain.sparse_transitions import PairLists, find_pairs
from sklseq.objectives.likelihood.dual import DualLikelihood, dual_bytes
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.likelihood.stochastic import StochasticLikelihood
from sklseq.objectives.scores.score_map import ScoreMap, Weights, full_support, observed_support
from tests import reference
from tests.differential.reference import Chain
from tests.inference.test_large_labels import RAGGED, TOLERANCE, by_reference

LABELS = [9, 33, 72]  # with padding of seven lanes, and with none
ALWAYS, NEVER = (1.1, 0.0), (-1.0, 0.0)


@pytest.fixture(autouse=True)
def lists(monkeypatch):
    """Call to force lists of pairs, whatever the share, or the matrix."""

    def force(limit):
        monkeypatch.setattr(pairs, "LIST_ROWS", 0)
        monkeypatch.setattr(pairs, "LIMITS", dict.fromkeys(pairs.LIMITS, limit))

    force(ALWAYS)
    return force


# What the pairs that are listed score, and the others.
KINDS = ["few", "none", "all", "strongly negative", "forbidden", "most forbidden", "by column"]


def transitions(rng, L, kind):
    """(scores, pairs whose counts are wanted); the diagonal is always allowed."""
    wanted = rng.random((L, L)) < {"none": 0, "all": 1}.get(kind, 0.1)
    score = np.zeros((L, L))
    if kind == "most forbidden":
        score[:] = -np.inf
    elif kind == "by column":  # as with IOB2: some labels after few others only
        score[:, ::2] = -np.inf
    if kind != "none":
        np.fill_diagonal(wanted, True)
    score[wanted] = 2 * rng.normal(size=int(wanted.sum()))
    if kind == "strongly negative":
        score[wanted & (rng.random((L, L)) < 0.6)] = -50.0
    elif kind == "forbidden":
        score[(rng.random((L, L)) < 0.2) & ~wanted] = -np.inf
    if kind in ("most forbidden", "by column"):
        score[np.diag_indices(L)] = rng.normal(size=L)
    return score, wanted


def problem(seed, L, kind, dtype=np.float64, lengths=RAGGED, scale=2.0):
    """emission, transition, start, end, offsets; and the wanted pairs."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    score, wanted = transitions(rng, L, kind)
    emission = scale * rng.normal(size=(offsets[-1], L))
    start, end = rng.normal(size=(2, L))
    return [a.astype(dtype) for a in (emission, score, start, end)] + [offsets], wanted


def with_lists(batch, wanted, weights):
    """log Z, marginals and counts of the wanted pairs, through lists."""
    emission, transition, start, end, offsets = batch
    found = find_pairs(transition, emission.dtype, wanted=wanted)
    linear = Transitions(transition, start, end, emission.dtype, found).exponentiate()
    work = Workspace(len(emission), linear.width, linear.dtype, found)
    psi, log_z = linear.pad_rows(emission), np.zeros(len(offsets) - 1)
    work.forward_backward(psi, offsets, weights, linear, log_z)
    return log_z, psi[:, : linear.n_labels], work.pairwise_sum(linear)


def check_sums(batch, wanted, tolerance, weights=None):
    weights = np.ones(len(batch[4]) - 1) if weights is None else weights
    log_z, marginals, pairwise = with_lists(batch, wanted, weights)
    exact = [np.asarray(a, dtype=np.float64) for a in batch[:4]]
    expected = by_reference(*exact, batch[4], weights)
    assert_allclose(log_z, expected[0], **tolerance)
    assert_allclose(marginals, expected[1], **tolerance)
    assert_allclose(pairwise[wanted], expected[2][wanted], **tolerance)


@pytest.mark.parametrize("L", LABELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_sums_equal_the_reference(L, kind, dtype):
    batch, wanted = problem(L, L, kind, dtype)
    weights = np.random.default_rng(L).choice([0.0, 0.3, 1.0, 2.5, 40.0], len(RAGGED))
    # A recomputed sum has all its digits; one that is not has lost three at most.
    tolerance = dict(rtol=1e-10, atol=1e-11) if dtype == np.float64 else TOLERANCE[dtype]
    check_sums(batch, wanted, tolerance, weights)


@pytest.mark.parametrize("L", range(1, 9))
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_few_labels(L, dtype, lists):
    # Rows of four labels or fewer are shorter than the kernels of lists assume.
    for seed, kind in enumerate(KINDS):
        batch, wanted = problem(seed, L, kind, dtype, lengths=[9] * 4 + [1, 0, 3])
        found = find_pairs(batch[1], dtype, wanted=wanted)
        assert (found is not None) == (L >= pairs.LEAST_LABELS)
        check_sums(
            batch, wanted, dict(rtol=1e-10, atol=1e-11) if dtype == np.float64 else TOLERANCE[dtype]
        )
        emission, transition, start, end, offsets = batch
        answers = []
        for limit in (ALWAYS, NEVER):
            lists(limit)
            answers.append(viterbi(emission, transition, offsets, start=start, end=end))
        lists(ALWAYS)
        for ours, theirs in zip(*answers):
            assert_array_equal(ours, theirs)


@pytest.mark.parametrize("L", LABELS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("rounded", [True, False])
def test_best_paths_are_the_same_bits(L, kind, dtype, rounded, lists):
    # Rounded to quarters, ties are frequent; as they are, sums are rounded.
    batch, _ = problem(L + 1, L, kind, dtype)
    if rounded:
        batch = [np.round(2 * a) / 4 for a in batch[:4]] + [batch[4]]
    emission, transition, start, end, offsets = (
        a.astype(dtype) if a.dtype.kind == "f" else a for a in batch
    )
    answers = []
    for limit in (ALWAYS, NEVER):
        lists(limit)
        answers.append(viterbi(emission, transition, offsets, start=start, end=end))
    for ours, theirs in zip(*answers):
        assert_array_equal(ours, theirs)
    if rounded:
        for s, (a, b) in enumerate(zip(offsets[:-1], offsets[1:])):
            path, score = reference.viterbi(emission[a:b], transition, start, end)
            assert_array_equal(answers[0][0][a:b], path)
            assert answers[0][1][s] == score


@pytest.mark.parametrize("seed", range(4))
def test_the_best_label_is_listed_again_and_again(seed):
    # The ten best labels are listed in column 0 with negative scores: the search goes past all
    # that it keeps sorted.
    rng = np.random.default_rng(seed)
    L = 40
    transition = np.zeros((L, L))
    transition[:20, 0] = -rng.random(20) - 3
    emission = rng.normal(size=(12, L))
    emission[:, :20] += 5
    emission[:, 0] += 6
    ours = viterbi(emission, transition)
    theirs = reference.viterbi(emission, transition)
    assert_array_equal(ours[0], theirs[0])
    assert_allclose(ours[1][0], theirs[1], rtol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 16, 17])
@pytest.mark.parametrize("kind", ["few", "forbidden"])
def test_any_number_of_sequences(n, kind):
    lengths = np.random.default_rng(n).integers(0, 9, n)
    check_sums(*problem(n, 35, kind, lengths=lengths), dict(rtol=1e-10, atol=1e-12))


@pytest.mark.parametrize("weight", [-50.0, -30.0, -12.0, -np.inf])
@pytest.mark.parametrize("confident", [20.0, 60.0, 200.0])
def test_nothing_cancels(weight, confident):
    # All of row 0 lies on label 0, from which a listed step of next to no factor leads to label 1,
    # and row 1 is certain of label 1. What is left is exp(weight), or the share of other labels.
    L = 24
    transition = np.zeros((L, L))
    transition[0, 1] = weight
    transition[2, 3] = 1.0
    emission = np.zeros((4, L))
    emission[0, 0] = confident
    emission[1, 1] = 3 * confident
    batch = [np.repeat(emission[None], 9, axis=0).reshape(-1, L), transition]
    batch += [np.zeros(L), np.zeros(L), np.arange(0, 37, 4)]
    wanted = transition != 0
    log_z, marginals, pairwise = with_lists(batch, wanted, np.ones(9))
    expected = by_reference(*batch, np.ones(9))
    assert_allclose(log_z, expected[0], rtol=1e-12)
    # Relative errors: no marginal, however small, has lost more than three digits.
    assert_allclose(marginals, expected[1], rtol=1e-11, atol=1e-300)
    assert_allclose(pairwise[wanted], expected[2][wanted], rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize("kind", ["few", "forbidden", "most forbidden", "by column"])
def test_sequences_that_underflow_among_others(kind):
    batch, wanted = problem(3, 37, kind, lengths=np.full(24, 6))
    rows = np.random.default_rng(0).choice(len(batch[0]), 20, replace=False)
    batch[0][rows] *= 3e3
    weights = np.random.default_rng(2).random(24) * 3
    # Scores of 1e4 carry rounding errors of 1e-12 into exponents.
    check_sums(batch, wanted, dict(rtol=1e-9, atol=1e-9), weights)


@pytest.mark.parametrize("place", [5, 6])
def test_losing_a_label_that_wins_later_is_noticed(place):
    # As in test_large_labels.py: label 2 falls 1e-345 behind and carries all of Z in the end.
    L = 35
    transition = np.full((L, L), -np.inf)
    transition[:2, :2] = 0
    np.fill_diagonal(transition, 0)
    emission = np.random.default_rng(0).normal(size=(25, L))
    emission[5:10] = -np.inf
    emission[5:10, :3] = 0
    emission[place, 2] = -345 * np.log(10)
    emission[place + 1 : 10, :2] = -150 * np.log(10)
    batch = [emission, transition, np.zeros(L), np.zeros(L), np.arange(0, 26, 5)]
    expected = by_reference(*batch, np.ones(5))
    assert expected[1][9, 2] > 0.999
    check_sums(batch, transition == 0, dict(rtol=1e-12, atol=1e-12))


@pytest.mark.parametrize("place", [0, 3, 7])
@pytest.mark.parametrize("question", [forward_backward, viterbi])
def test_no_allowed_path_names_the_sequence(place, question):
    batch, _ = problem(0, 35, "most forbidden", lengths=np.arange(1, 10))
    emission, transition, start, end, offsets = batch
    emission[offsets[place + 1] - 1] = -np.inf
    with pytest.raises(ValueError, match=rf"Sequence {place} has no allowed label path"):
        question(emission, transition, offsets, start=start, end=end)


def test_public_pair_marginals_are_complete(lists):
    # Lists where the other pairs are forbidden; the matrix where they are likely, too.
    for kind in KINDS:
        batch, _ = problem(5, 33, kind)
        emission, transition, start, end, offsets = batch
        ours = forward_backward(emission, transition, offsets, start=start, end=end)
        expected = by_reference(*batch, np.ones(len(offsets) - 1))
        assert_allclose(ours.pairwise, expected[2], rtol=1e-10, atol=1e-11)


def test_empty_batches():
    found = find_pairs(np.zeros((50, 50)), np.float64)
    linear = Transitions(np.zeros((50, 50)), pairs=found).exponentiate()
    for offsets in ([0], [0, 0, 0]):
        offsets = np.array(offsets)
        work, log_z = Workspace(0, linear.width, linear.dtype, found), np.ones(len(offsets) - 1)
        psi = linear.pad_rows(np.zeros((0, 50)))
        work.forward_backward(psi, offsets, np.ones(len(log_z)), linear, log_z)
        assert_array_equal(log_z, 0)
        assert_array_equal(best_paths(psi, offsets, linear)[1], 0)


# --- What is listed -------------------------------------------------------------------------------


def test_each_column_lists_its_minority():
    transition = np.zeros((5, 5))
    transition[:, 1] = -np.inf
    transition[2, 1] = 0.5
    transition[3, 1] = 0
    transition[4, 4] = -np.inf
    found = find_pairs(transition, np.float64)
    assert_array_equal(found.free, [True, False, True, True, True])
    assert list(zip(found.i, found.j)) == [(2, 1), (3, 1), (4, 4)]


def test_wanted_pairs_are_listed_whatever_they_score():
    wanted = np.eye(6, dtype=bool)
    found = find_pairs(np.zeros((6, 6)), np.float64, wanted=wanted)
    assert_array_equal(found.i, range(6))
    assert_array_equal(found.listed, wanted)


@pytest.mark.parametrize("question", ["sums", "maxima"])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_lists_only_where_they_are_faster(question, dtype, monkeypatch):
    monkeypatch.undo()
    rng = np.random.default_rng(0)
    for L, share, expected in ((20, 0.0, False), (300, 0.05, True), (300, 0.6, False)):
        transition = np.where(rng.random((L, L)) < share, rng.normal(size=(L, L)), 0)
        assert (find_pairs(transition, dtype, question) is not None) == expected
        assert find_pairs(transition, dtype, question, n_rows=20) is None


def test_no_memory_of_the_size_of_the_matrix():
    L = 1000
    listed = np.eye(L, dtype=bool)
    work = Workspace(10, L, np.dtype(float), PairLists(listed, np.ones(L, dtype=bool)))
    arrays = [a for a in vars(work).values() if isinstance(a, np.ndarray)]
    assert sum(a.nbytes for a in arrays) < 8 * L * L / 8


# --- Taggers --------------------------------------------------------------------------------------


def labelled(seed, L=40, n=30, dtype=np.float64):
    """Rows of a few indicators, and labels with 15 % of all transitions; lengths from 0."""
    rng = np.random.default_rng(seed)
    lengths = [0, 1, 1, *rng.integers(2, 12, n)]
    steps = rng.integers(0, L, (L, 4))
    y, total = [], int(np.sum(lengths))
    for T in lengths:
        labels = [int(rng.integers(L))]
        for _ in range(T - 1):
            labels.append(int(steps[labels[-1], rng.integers(4)]))
        y.append(labels[:T])
    flat = np.concatenate(y).astype(int)
    noisy = np.where(rng.random(total) < 0.2, rng.integers(0, L, total), flat)
    columns = np.stack([noisy, L + noisy // 5, 2 * L + flat % 7], axis=1)
    rows = sparse.csr_matrix(
        (np.ones(columns.size, dtype), columns.ravel(), np.arange(0, columns.size + 1, 3)),
        shape=(total, 2 * L + 7),
    )
    return Sequences(rows, np.concatenate([[0], np.cumsum(lengths)])), y


def forbid_some(y, L=40):
    """A matrix that allows what occurs, and a third of the rest."""
    allowed = np.random.default_rng(0).random((L, L)) < 0.33
    for labels in y:
        allowed[labels[:-1], labels[1:]] = True
    return allowed


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_objective_and_gradient_are_the_same(dtype, constrained, n_jobs, lists):
    X, y = labelled(1, n=400, dtype=dtype)
    assert X.n_rows > chain.BATCH_ROWS  # several blocks
    codes, L = np.concatenate(y).astype(np.int32), 40
    ones = np.ones(L, dtype=bool)
    transition = forbid_some(y) if constrained else np.ones((L, L), dtype=bool)
    allowed = full_support(L)._replace(transition=transition)
    support = observed_support(X, codes, L)._replace(start=ones, end=ones)
    weights = np.random.default_rng(3).random(len(X)) * 2
    answers = []
    for limit in (ALWAYS, NEVER):
        lists(limit)
        scores = ScoreMap(X, L, support, allowed, dtype)
        assert (scores.pairs is not None) == (limit == ALWAYS)
        w, gradient = scores.new_vector(), scores.new_vector()
        w[:] = np.random.default_rng(4).normal(size=len(w))
        with Threads(n_jobs) as threads:
            f = LogLikelihood(scores, codes, X.offsets, weights, 0.1, threads)
            value = f.value_and_gradient(w, gradient)
            assert_allclose(f.value(w), value, rtol=1e-12 if dtype == np.float64 else 1e-5)
        answers.append((value, gradient))
    tolerance = 1e-10 if dtype == np.float64 else 2e-4
    for ours, theirs in zip(*answers):
        assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)


def check_answers(tagger, X, lists, **tolerance):
    """Labels and probabilities are the same with lists and with the matrix."""
    answers = []
    for limit in (ALWAYS, NEVER):
        lists(limit)
        answers.append((tagger.predict(X), tagger.predict_proba(X)))
    for a, b in zip(answers[0][0], answers[1][0]):
        assert_array_equal(a, b)
    for a, b in zip(answers[0][1], answers[1][1]):
        assert_allclose(a, b, **tolerance)


@pytest.mark.parametrize("solver", ["lbfgs", "owlqn"])
@pytest.mark.parametrize("constrained", [False, True])
def test_taggers_are_the_same(solver, constrained, lists):
    X, y = labelled(7)
    taggers = []
    for limit in (ALWAYS, NEVER):
        lists(limit)
        tagger = CRFTagger(
            solver=solver, l1=0.1 if solver == "owlqn" else 0.0, l2=0.1, max_iter=15, tol=0,
            constraints=forbid_some(y) if constrained else None,
        )  # fmt: skip
        with pytest.warns(match="iterations"):
            taggers.append(tagger.fit(X, y, sample_weight=np.linspace(0, 2, len(X))))
    ours, theirs = taggers
    # 15 iterations let rounding errors of 1e-15 grow.
    assert_allclose(ours.objective_, theirs.objective_, rtol=1e-10)
    assert_allclose(ours.transition_, theirs.transition_, atol=1e-6)
    assert X.n_rows >= pairs.LIST_ROWS
    check_answers(ours, X, lists, rtol=1e-10, atol=1e-13)


def test_threads_change_no_bit():
    X, y = labelled(11, n=200)
    fits = [CRFTagger(solver="lbfgs", max_iter=5, n_jobs=2) for _ in range(2)]
    for tagger in fits:
        with pytest.warns(match="iterations"):
            tagger.fit(X, y)
    assert_array_equal(fits[0].coef_, fits[1].coef_)
    one = CRFTagger(**fits[0].get_params()).set_params(n_jobs=1)
    vars(one).update({k: v for k, v in vars(fits[0]).items() if k.endswith("_")})
    for a, b in zip(fits[0].predict_proba(X), one.predict_proba(X)):
        assert_array_equal(a, b)


def lattice_scores(tagger, X, codes, n_labels):
    source = RowSource(X, codes, np.arange(n_labels))
    return score_map(tagger, source, source.summarise(), single_sequences=True)


@pytest.mark.parametrize("constrained", [False, True])
@pytest.mark.parametrize("l1", [0.0, 0.2])
def test_the_dual_is_the_same(constrained, l1, lists):
    # Passes go on from one another's rounding, so few of them, from the same start.
    X, y = labelled(13)
    codes, weights = np.concatenate(y).astype(np.int32), np.linspace(0, 2, len(X))
    tagger = CRFTagger(constraints=forbid_some(y) if constrained else None)
    duals = []
    for limit in (ALWAYS, NEVER):
        lists(limit)
        scores = lattice_scores(tagger, X, codes, 40)
        with Threads(1) as threads:
            primal = LogLikelihood(scores, codes, X.offsets, weights, 0.5, threads)
            dual = DualLikelihood(primal, l1)
            assert dual.pair_mu.shape[1] == (len(dual.pairs) if limit == ALWAYS else 1600)
            order = np.random.default_rng(0).permutation(dual.sequences)
            for _ in range(4):
                assert dual.ascend(order) == 0
            # Weak duality, with what the penalty of l1 adds.
            assert primal.value(dual.w) + l1 * np.abs(dual.w).sum() >= dual.value
        duals.append(dual)
    ours, theirs = duals
    assert ours.value > 0
    # mu is kept in float32, so that a difference in the last bit may become one of 6e-8.
    assert_allclose(ours.value, theirs.value, rtol=1e-6)
    assert_allclose(ours.gap, theirs.gap, rtol=1e-4, atol=1e-6)
    assert_allclose(ours.w, theirs.w, atol=1e-5)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # few passes
@pytest.mark.parametrize("constrained", [False, True])
def test_stochastic_steps_are_the_same(constrained, lists):
    X, y = labelled(17, n=90)
    taggers = []
    for limit in (ALWAYS, NEVER):
        lists(limit)
        tagger = CRFTagger(
            solver="adagrad", max_iter=4, tol=1e-3, l1=0.01, l2=0.01,
            constraints=forbid_some(y) if constrained else None,
        )  # fmt: skip
        taggers.append(tagger.fit(X, y))
    assert_allclose(taggers[0].objective_, taggers[1].objective_, rtol=1e-6)
    assert_allclose(taggers[0].transition_, taggers[1].transition_, atol=1e-4)
    assert taggers[0].transition_[np.isfinite(taggers[0].transition_)].any()


def start_at_0(L):
    return np.where(np.arange(L) == 0, 0.0, -np.inf)


def needs_a_rare_transition(form, lists, threads, gap=800.0, T=60):
    """(objective, weights, slow chain): the best path needs a pair ``gap`` nats below others.

    Rows favour label 0, where all begin, and in their second half label 1, together by more than
    the gap. The rare pair has a weight, in the matrix or in a list, or none: then those that have
    one are above it.
    """
    L = 3 if form == "matrix" else 9
    lists(NEVER if form == "matrix" else ALWAYS)
    row = np.eye(2)[np.repeat([0, 1], T // 2)]
    X = Sequences(sparse.csr_matrix(np.tile(row, (L, 1))), T * np.arange(L + 1))
    codes = np.repeat(np.arange(L), T).astype(np.int32)
    coef, transition = np.zeros((2, L)), np.zeros((L, L))
    coef[[0, 1], [0, 1]] = 2.2 * gap / T
    if form == "unlisted":
        np.fill_diagonal(transition, gap)
    else:
        transition[0, 1:] = -gap
    tagger = CRFTagger(
        boundaries=False, all_possible_states=True, all_possible_transitions=form != "unlisted"
    )
    scores = lattice_scores(tagger, X, codes, L)
    w = scores.new_vector()
    w[:] = scores.pack(Weights(coef, transition, np.zeros(L), np.zeros(L)))
    primal = LogLikelihood(scores, codes, X.offsets, np.ones(L), 0.5, threads)
    return primal, w, Chain(row @ coef, transition, start_at_0(L))


FORMS = ["matrix", "listed", "unlisted"]


@pytest.mark.parametrize("form", FORMS)
def test_steps_from_weights_whose_factor_underflows(form, lists):
    with Threads(1) as threads:
        primal, w, slow = needs_a_rare_transition(form, lists, threads)
        descent = StochasticLikelihood(primal, w=w)
        assert (descent.listed is None) == (form == "matrix")
        descent.allowed[-2, 1:] = 0
        loss = descent.descend(np.array([0]), rate=0.1)
    assert_allclose(loss, float(slow.log_z - slow.score(np.zeros(slow.T))), rtol=1e-9)


@pytest.mark.parametrize("form", FORMS)
def test_ascent_to_weights_whose_factor_underflows(form, lists):
    # Whatever steps were taken, the marginals are those of theta.
    with Threads(1) as threads:
        primal, w, _ = needs_a_rare_transition(form, lists, threads)
        dual, L = DualLikelihood(primal, w=w), primal.scores.n_labels
        dual.eta[:] = 1
        dual.allowed[-2, 1:] = 0
        for _ in range(3):
            dual.ascend(np.array([0]))
            dual.w[:] = w
            dual.chain = dual.scores.padded_chain(w)
    assert dual.seen[0]
    pairs = np.nonzero(np.ones((L, L))) if dual.pairs is None else (dual.pairs.i, dual.pairs.j)
    transition = np.zeros((L, L))
    transition[pairs] = dual.pair_theta[0]
    slow = Chain(dual.theta[:60], transition, start_at_0(L))
    assert_allclose(dual.mu[:60], slow.marginals.astype(float), atol=1e-2)
    assert_allclose(dual.entropy[0], float(slow.entropy), atol=1e-2)


@pytest.mark.parametrize("weight", [-50.0, 50.0])
def test_ascent_with_strong_weights_in_observed_pairs(weight, lists):
    # Steps that scaled arithmetic cannot take are shortened, in lists as in the matrix.
    X, y = labelled(19)
    codes = np.concatenate(y).astype(np.int32)
    values = []
    for limit in (ALWAYS, NEVER):
        lists(limit)
        scores = lattice_scores(CRFTagger(), X, codes, 40)
        with Threads(1) as threads:
            primal = LogLikelihood(scores, codes, X.offsets, np.ones(len(X)), 0.5, threads)
            dual = DualLikelihood(primal)
            dual.chain[np.nonzero(dual.chain_mask[:40])] = weight
            dual.ascend(dual.sequences[:5])
        values.append((dual.eta, dual.entropy))
    for a, b in zip(*values):
        assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_auto_leaves_the_dual_where_it_would_fill_the_memory():
    X, y = labelled(23, n=1700)
    assert X.n_rows >= 10_000
    codes = np.concatenate(y).astype(np.int32)
    source = RowSource(X, codes, np.arange(40))
    assert choose_solver(CRFTagger(l2=1), source)[0] == "dual"
    assert dual_bytes(codes, X.offsets, 40, True) == 8 * (X.n_rows * 40 + len(X) * 1600)
    assert dual_bytes(codes, X.offsets, 40, False) < dual_bytes(codes, X.offsets, 40, True) / 2
    L, pairs = 40, len({pair for labels in y for pair in itertools.pairwise(labels)})
    expected = 8 * (X.n_rows * (L + pairs) + len(X) * pairs)  # a row may have all pairs
    assert dual_bytes(codes, X.offsets, L, False, by_row=True) == expected
    with config_context(working_memory=1):
        assert choose_solver(CRFTagger(l2=1), source)[0] == "adagrad"
        assert choose_solver(CRFTagger(l2=1, solver="eg"), source)[0] == "dual"


@pytest.mark.parametrize("solver", ["lbfgs", "adagrad"])
def test_shards_are_the_same(solver, tmp_path, lists):
    X, y = labelled(29, n=90)
    for k, (a, b) in enumerate([(0, 30), (30, 60), (60, len(X))]):
        X[a:b].save(tmp_path / f"{k}.npz", y[a:b])
    taggers = []
    for limit in (ALWAYS, NEVER):
        lists(limit)
        tagger = CRFTagger(solver=solver, l2=1.0, max_iter=36, tol=1e-2, random_state=0)
        taggers.append(tagger.fit(Shards(tmp_path)))
    assert_allclose(taggers[0].objective_, taggers[1].objective_, rtol=1e-6)
    assert_allclose(taggers[0].transition_, taggers[1].transition_, atol=1e-4)


@pytest.mark.parametrize("T", [1, 2, 63, 64, 65, 66, 200])
def test_one_sequence_of_any_length(T):
    # Around the runs of 64 rows whose pairs are summed at once.
    check_sums(*problem(T, 21, "few", lengths=[T]), dict(rtol=1e-10, atol=1e-11))

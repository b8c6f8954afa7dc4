"""Inference over segmentations: compiled = as published = enumeration of all segmentations."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from sklseq import SegmentPotentials
from sklseq.inference import (
    RowTransitions,
    SegmentSpans,
    forward_backward,
    segment_forward_backward,
    segment_nbest,
    segment_sample,
    segment_viterbi,
    viterbi,
)
from sklseq.inference.segment import segmentations as programs
from sklseq.inference.segment.segmentations import SegmentPlan, SegmentWorkspace
from tests.segment_reference import (
    every_segment,
    forward_full,
    forward_succinct,
    is_active,
    reach_back,
    reach_forward,
)

# Sums of at most some 10^4 terms of size up to 10: 1e-10 leaves room for their rounding.
EXACT = {"rtol": 1e-10, "atol": 1e-10}


def spans_of(*sequences):
    """One (n_steps, [(kind, start, stop), …]) a sequence."""
    flat = np.array([p for _, ps in sequences for p in ps], dtype=np.int64).reshape(-1, 3)
    offsets = np.cumsum([0, *(len(ps) for _, ps in sequences)])
    return SegmentSpans(np.array([n for n, _ in sequences]), offsets, *flat.T)


def segmentations(n, L, limits=None):
    """Every list of (start, stop, label) that covers n steps."""
    for cuts in itertools.product([0, 1], repeat=max(n - 1, 0)):
        edges = [0, *(i + 1 for i, c in enumerate(cuts) if c), n] if n else [0]
        parts = list(zip(edges[:-1], edges[1:], strict=True))
        for labels in itertools.product(range(L), repeat=len(parts)):
            if limits is None or all(
                not limits[y] or j - i <= limits[y] for (i, j), y in zip(parts, labels, strict=True)
            ):
                yield [(i, j, y) for (i, j), y in zip(parts, labels, strict=True)]


def matrices_of(transition, n):
    """Transitions into segments that start at each of n steps."""
    if isinstance(transition, RowTransitions):
        transition = transition.toarray()
    return np.broadcast_to(transition, (n, *transition.shape[-2:]))


def enumerate_segmentations(n, spans, scores, transition, start, end, limits=None):
    """All segmentations with their scores, log Z and every expectation."""
    L, matrices = transition.shape[-1], matrices_of(transition, n)
    kind, first, stop = spans
    every, active = list(segmentations(n, L, limits)), {}
    for i, j in itertools.combinations(range(n + 1), 2):
        active[i, j] = is_active(kind, first, stop, i, j)
    score = {part: scores[on].sum(axis=0).tolist() for part, on in active.items()}
    moves, values = matrices.tolist(), np.zeros(len(every))
    for k, segments in enumerate(every):
        total = sum(score[i, j][y] for i, j, y in segments)
        total += sum(moves[i][y][z] for (_, _, y), (i, _, z) in itertools.pairwise(segments))
        values[k] = total + (start[segments[0][2]] + end[segments[-1][2]] if segments else 0)
    log_z = logsumexp(values)
    p = np.exp(values - (log_z if log_z > -np.inf else 0))
    found, pairs, ends = np.zeros((n + 1, n + 1, L)), np.zeros((L, L)), np.zeros((2, L))
    for weight, segments in zip(p.tolist(), every, strict=True):
        for segment in segments:
            found[segment] += weight
        for (_, _, y), (_, _, z) in itertools.pairwise(segments):
            pairs[y, z] += weight
        if segments:
            ends[0, segments[0][2]] += weight
            ends[1, segments[-1][2]] += weight
    marginals, tokens = np.zeros((len(kind), L)), np.zeros((n, L))
    for (i, j), on in active.items():
        marginals[on] += found[i, j]
        tokens[i:j] += found[i, j]
    return every, values, log_z, (marginals, tokens, pairs, ends)


def random_problem(seed, n=None, L=None, n_potentials=None, forbid=0.0, token_level=False, size=1):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 7)) if n is None else n
    L = int(rng.integers(1, 4)) if L is None else L
    H = int(rng.integers(0, 25)) if n_potentials is None else n_potentials
    kind, first = rng.integers(0, 4, H), rng.integers(0, n, H)
    stop = first + 1 if token_level else np.array([rng.integers(i + 1, n + 1) for i in first])
    stop = stop.reshape(-1).astype(int)
    scores = size * rng.normal(size=(H, L))
    scores[rng.random(scores.shape) < forbid] = -np.inf
    transition, start, end = (size * rng.normal(size=s) for s in ((L, L), L, L))
    transition[rng.random((L, L)) < forbid] = -np.inf
    return n, (kind, first, stop), scores, transition, start, end


def one(n, spans):
    return SegmentSpans(np.array([n]), np.array([0, len(spans[0])]), *spans)


def check_all(problem, limits=None, n_best=7):
    n, spans, scores, transition, start, end = problem
    every, values, log_z, (marginals, tokens, pairs, ends) = enumerate_segmentations(
        *problem, limits=limits
    )
    args = (one(n, spans), scores, transition)
    options = {"start": start, "end": end, "max_length": limits}
    if log_z == -np.inf:
        for ask in (segment_forward_backward, segment_viterbi, segment_nbest, segment_sample):
            with pytest.raises(ValueError, match="Sequence 0 has no allowed segmentation"):
                ask(*args, **options)
        return False
    answer = segment_forward_backward(*args, **options)
    assert_allclose(answer.log_z, [log_z], **EXACT)
    assert_allclose(answer.potentials, marginals, **EXACT)
    assert_allclose(answer.tokens, tokens, **EXACT)
    assert_allclose(answer.transition, pairs, **EXACT)
    assert_allclose([answer.start, answer.end], ends, **EXACT)

    def score_of(segments):
        return values[every.index([tuple(s) for s in segments.tolist()])]

    best, best_score = segment_viterbi(*args, **options)
    assert_allclose(best_score, [values.max()], **EXACT)
    assert_allclose(score_of(best[0]), values.max(), **EXACT)
    found, found_scores = segment_nbest(*args, n_best, **options)[0]
    finite = values[values > -np.inf]
    assert_allclose(found_scores, np.sort(finite)[::-1][:n_best], **EXACT)
    assert_allclose([score_of(s) for s in found], found_scores, **EXACT)
    assert len({tuple(s.ravel()) for s in found}) == len(found)
    return True


@pytest.mark.parametrize("seed", range(60))
def test_equals_enumeration(seed):
    assert check_all(random_problem(seed))


@pytest.mark.parametrize("seed", range(40))
def test_equals_enumeration_with_forbidden_scores(seed):
    check_all(random_problem(seed, forbid=0.2))


def test_forbidden_scores_forbid_something_and_not_all():
    outcomes = [check_all(random_problem(seed, n=3, forbid=0.2)) for seed in range(15)]
    assert 0 < sum(outcomes) < 15


@pytest.mark.parametrize("seed", range(20))
def test_equals_enumeration_with_longest_lengths(seed):
    problem = random_problem(seed, L=2, n=6)
    limits = [(1, 0), (0, 3), (2, 1), (3, 3)][seed % 4]
    assert check_all(problem, limits=np.array(limits))


@pytest.mark.parametrize("seed", range(4))
def test_sequences_of_eight(seed):
    assert check_all(random_problem(seed, n=8, L=2, n_potentials=40))


@pytest.mark.parametrize("seed", range(6))
def test_token_level_potentials(seed):
    assert check_all(random_problem(seed, n=6, L=2, n_potentials=30, token_level=True))


SOME_KINDS = [kinds for r in range(1, 5) for kinds in itertools.combinations(range(4), r)]


def kinds_of_every_token(seed, kinds, *, share=1.0, L=None, **options):
    # One potential of each of these kinds at each token, or at a share of them.
    n, _, _, transition, start, end = random_problem(seed, L=L, **options)
    rng = np.random.default_rng(seed)
    kind, step = np.repeat(kinds, n), np.tile(np.arange(n), len(kinds))
    kept = rng.random(len(kind)) < share
    kind, step = kind[kept], step[kept]
    scores = options.get("size", 1) * rng.normal(size=(len(kind), len(transition)))
    scores[rng.random(scores.shape) < options.get("forbid", 0)] = -np.inf
    return n, (kind, step, step + 1), scores, transition, start, end


@pytest.mark.parametrize("forbid", [0, 0.1])
@pytest.mark.parametrize("kinds", SOME_KINDS)
def test_kinds_of_tokens(kinds, forbid):
    # A kernel of their own: one product with the transitions a step.
    for seed in range(4):
        problem = kinds_of_every_token(seed, kinds, forbid=forbid, share=(1, 0.7)[seed % 2])
        L = len(problem[3])
        assert SegmentPlan(one(*problem[:2]), L).token_kinds is not None
        check_all(problem)
        some = np.random.default_rng(seed).integers(0, 2, L)  # of length one, or of any
        check_all(problem, limits=some)


def with_pairs(spans, scores):
    # The same problem, and an exact potential of two tokens that scores 0: the general kernel.
    long = np.flatnonzero(np.asarray(spans.lengths) > 1)
    of = np.repeat(np.arange(len(spans.lengths)), np.diff(spans.offsets))
    order = np.argsort(np.concatenate([of, long]), kind="stable")
    columns = [
        np.concatenate([x, np.full(len(long), y)])[order] for x, y in zip(spans[2:], (0, 0, 2))
    ]
    offsets = np.cumsum([0, *(np.diff(spans.offsets) + (np.asarray(spans.lengths) > 1))])
    zeros = np.zeros((len(long), scores.shape[1]))
    return SegmentSpans(spans.lengths, offsets, *columns), np.concatenate([scores, zeros])[order]


def assert_same_answers(spans, scores, transition, *, tolerance=EXACT, **options):
    others, padded = with_pairs(spans, scores)
    L = len(transition)
    assert SegmentPlan(spans, L).token_kinds is not None
    assert SegmentPlan(others, L).token_kinds is None
    mine = segment_forward_backward(spans, scores, transition, **options)
    general = segment_forward_backward(others, padded, transition, **options)
    of_tokens = others.stop - others.start == 1
    general = general._replace(potentials=general.potentials[of_tokens])
    for a, b in zip(mine, general, strict=True):
        assert_allclose(a, b, **tolerance)
    best, best_scores = segment_viterbi(spans, scores, transition)
    same, same_scores = segment_viterbi(others, padded, transition)
    assert_allclose(best_scores, same_scores, rtol=1e-12)
    for a, b in zip(best, same, strict=True):
        assert_array_equal(a, b)


def set_of_tokens(seed, L, kinds, n_sequences=12, longest=9):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest, n_sequences)
    sequences = [
        (n, [(k, t, t + 1) for t in range(n) for k in kinds if rng.random() < 0.9]) for n in lengths
    ]
    spans = spans_of(*sequences)
    return spans, rng.normal(size=(len(spans.kind), L)), rng.normal(size=(L, L))


@pytest.mark.parametrize("L", [1, 2, 4, 5, 9, 17])
@pytest.mark.parametrize("kinds", [(3,), (1, 3), (1, 2, 3), (0, 1, 2, 3), (0, 2)])
def test_tokens_in_step(L, kinds):
    spans, scores, transition = set_of_tokens(L, L, kinds)
    weights = 3 * np.random.default_rng(L).random(len(spans.lengths))
    assert_same_answers(spans, scores, transition, weights=weights)


@pytest.mark.parametrize("size", [30, 300, 3000])
@pytest.mark.parametrize("kinds", [(3,), (1, 3), (0, 1, 2, 3)])
def test_large_scores_of_tokens(kinds, size):
    # Scores of up to 3000 n are rounded by 1e-12, and so are logarithms of probabilities.
    tolerance = {"rtol": 1e-9, "atol": 1e-9}
    for L in (2, 9):
        spans, scores, transition = set_of_tokens(L, L, kinds)
        assert_same_answers(spans, size * scores, size * transition, tolerance=tolerance)


@pytest.mark.parametrize("value", [900, -900])
def test_one_sequence_out_of_range(value):
    # It sends its block to the general kernel, and itself to the log domain.
    spans, scores, transition = set_of_tokens(0, 9, (1, 2, 3))
    scores[spans.offsets[4] : spans.offsets[5]] += value
    assert_same_answers(spans, scores, transition)


def test_long_sequences_of_tokens_are_rescaled():
    n, L = 3000, 9
    rng = np.random.default_rng(0)
    step = np.arange(n)
    spans = one(n, (np.repeat([1, 2, 3], n), np.tile(step, 3), np.tile(step, 3) + 1))
    scores = rng.normal(size=(3 * n, L)) + np.repeat([-9, 5, 20], n)[:, None]
    answer = segment_forward_backward(spans, scores, rng.normal(size=(L, L)))
    assert answer.log_z > 750 * 20  # far beyond what exp can express
    assert_allclose(answer.tokens.sum(axis=1), 1, rtol=0, atol=1e-10)
    assert_allclose(answer.potentials[2 * n :], answer.tokens, rtol=0, atol=1e-15)
    assert_same_answers(spans, scores, rng.normal(size=(L, L)))


@pytest.mark.parametrize("n_potentials", [0, 1])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_few_potentials(n, n_potentials):
    for seed in range(5):
        assert check_all(random_problem(seed, n=n, n_potentials=n_potentials))


def test_spans_to_the_end_and_of_every_kind():
    everything = [(k, i, j) for k in range(4) for i in range(5) for j in range(i + 1, 6)]
    kind, first, stop = np.array(everything).T
    rng = np.random.default_rng(0)
    problem = (5, (kind, first, stop), rng.normal(size=(len(kind), 2)))
    assert check_all((*problem, rng.normal(size=(2, 2)), *rng.normal(size=(2, 2))))


@pytest.mark.parametrize("seed", range(12))
def test_states_in_a_row(seed):
    """Closed spans from every start: states side by side, one of which joins a group before it."""
    rng = np.random.default_rng(seed)
    n, L = 7, 1 + seed % 3
    spans = [(0, i, j) for i in range(n) for j in range(i + 1, n + 1) if rng.random() < 0.7]
    spans += [(0, 0, 4), (0, 1, 4), (0, 2, 4), (0, 0, 6)]  # 1 and 2 are one group after step 4
    kind, start, stop = np.array(spans).T
    scores = rng.normal(size=(len(kind), L))
    transition, first, last = (rng.normal(size=size) for size in ((L, L), L, L))
    assert (SegmentPlan(one(n, (kind, start, stop)), L).run > 1).any()
    check_all((n, (kind, start, stop), scores, transition, first, last))


def test_a_run_begins_where_groups_join():
    spans = np.array([(0, 0, 4), (0, 1, 4), (0, 2, 4), (0, 0, 6)]).T
    rng = np.random.default_rng(0)
    plan = SegmentPlan(one(7, spans), 2)
    states = np.arange(plan.step_states[3], plan.step_states[4])
    assert len(set(plan.target[states])) < len(states)
    assert (plan.run[states] > 1).any()
    check_all((7, spans, rng.normal(size=(4, 2)), rng.normal(size=(2, 2)), np.zeros(2), np.ones(2)))


@pytest.mark.parametrize("size", [30, 300, 3000])
@pytest.mark.parametrize("seed", range(8))
def test_large_scores(seed, size):
    # Digits of a sum of numbers of this size are lost in proportion to it.
    problem = random_problem(seed, n=5, size=size)
    n, spans, scores, transition, start, end = problem
    _, values, log_z, (marginals, tokens, pairs, _) = enumerate_segmentations(*problem)
    answer = segment_forward_backward(one(n, spans), scores, transition, start=start, end=end)
    assert_allclose(answer.log_z, [log_z], rtol=1e-12)
    assert_allclose(answer.potentials, marginals, rtol=0, atol=1e-13 * size * 10)
    assert_allclose(answer.tokens, tokens, rtol=0, atol=1e-13 * size * 10)
    assert_allclose(answer.transition, pairs, rtol=0, atol=1e-13 * size * 10)
    score = segment_viterbi(one(n, spans), scores, transition, start=start, end=end)[1]
    assert_allclose(score, [values.max()], rtol=1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_published_algorithm(seed):
    n, (kind, first, stop), scores, transition, start, _ = random_problem(seed, n=7)
    full = forward_full(n, kind, first, stop, scores, transition, start)
    succinct, _ = forward_succinct(n, kind, first, stop, scores, transition, start)
    assert_allclose(succinct[1:], full[1:], **EXACT)
    answer = segment_forward_backward(one(n, (kind, first, stop)), scores, transition, start=start)
    assert_allclose(answer.log_z, [logsumexp(full[-1])], **EXACT)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("longest", [1, 2, 4, 9])
def test_full_recursion(seed, longest):
    n, spans, scores, transition, start, end = random_problem(seed, n=7)
    X = SegmentPotentials(*one(n, spans), rows=np.eye(len(scores)))
    every = every_segment(X, longest)
    active = every.rows[every.row]
    full = segment_forward_backward(
        every, active @ scores, transition, start=start, end=end, max_length=longest
    )
    succinct = segment_forward_backward(
        one(n, spans), scores, transition, start=start, end=end, max_length=longest
    )
    plain = forward_full(n, *spans, scores, transition, start, longest)
    assert_allclose(full.log_z, [logsumexp(plain[-1] + end)], **EXACT)
    assert_allclose(succinct.log_z, full.log_z, **EXACT)
    assert_allclose(active.T @ full.potentials, succinct.potentials, **EXACT)
    assert_allclose(full.tokens, succinct.tokens, **EXACT)


# ------------------------------------------------------------------ Figure 1 of the paper


# (kind, first position, last position), as the paper counts, for the potentials that the text
# names, and two that A(7) = A(8) = 5 and B(4) = 7 tell of.
FIGURE_1 = {
    "4:≥5": (1, 4, 5),
    "≤4:≥7": (3, 4, 7),
    "4:7": (0, 4, 7),
    "≤6:7": (2, 6, 7),
    "3:6": (0, 3, 6),
    "6:≥9": (1, 6, 9),
}


def figure_1():
    kind, first, last = np.array(list(FIGURE_1.values())).T
    return kind, first - 1, last


def test_figure_1_reach():
    _, start, stop = figure_1()
    A, B = reach_back(start, stop, 9), reach_forward(start, stop, 9)
    assert (A[6], A[7], A[8]) == (3, 5, 5)
    assert B[4] == 7
    assert (stop - start).max() == 4  # m
    # By definition, for all i: potentials from A(i) or before stop by i, and it is the largest.
    for i in range(1, 10):
        assert (stop[start + 1 <= A[i]] <= i).all()
        assert A[i] == i or (stop[start + 1 <= A[i] + 1] > i).any()
        assert (start[stop >= B[i]] + 1 >= i).all()
        assert B[i] == i or (start[stop >= B[i] - 1] + 1 < i).any()


def test_figure_1_worked_example():
    kind, start, stop = figure_1()
    rng = np.random.default_rng(1)
    L = 2
    scores, transition, first = rng.normal(size=(6, L)), rng.normal(size=(L, L)), np.zeros(L)
    log_alpha, log_p = forward_succinct(9, kind, start, stop, scores, transition, first)
    psi = dict(zip(FIGURE_1, np.exp(scores), strict=True))
    alpha, alpha_p = np.exp(log_alpha), np.exp(log_p)
    hat = {i: alpha[i - 1] @ np.exp(transition) for i in (4, 5, 6, 7)}
    # The example, §3.1, with the term of a segment that is token 7 alone, which it leaves out.
    expected = (
        alpha_p[6] * psi["≤4:≥7"] * psi["≤6:7"]
        + hat[4] * psi["4:≥5"] * psi["4:7"] * psi["≤4:≥7"] * psi["≤6:7"]
        + hat[5] * psi["≤6:7"]
        + hat[6] * psi["≤6:7"]
        + hat[7]
    )
    assert_allclose(alpha[7], expected, rtol=1e-13)
    expected_p = alpha_p[6] * psi["≤4:≥7"] + hat[4] * psi["4:≥5"] * psi["≤4:≥7"] + hat[5]
    assert_allclose(alpha_p[7], expected_p, rtol=1e-13)
    # The compiled recursion, on the same potentials up to position 7, ends in the same sum.
    kept = stop <= 7
    spans = one(7, (kind[kept], start[kept], stop[kept]))
    answer = segment_forward_backward(spans, scores[kept], transition)
    assert_allclose(np.exp(answer.log_z), [expected.sum()], rtol=1e-13)


# ------------------------------------------------------------------ the linear chain


def chain_of_segments(emission, transition, start, end):
    """B-y and I-y of every label as states of a linear chain: 2 y and 2 y + 1."""
    L = len(transition)
    big = np.full((2 * L, 2 * L), -np.inf)
    for y in range(L):
        big[2 * y : 2 * y + 2, ::2] = transition[y]
        big[2 * y : 2 * y + 2, 2 * y + 1] = 0
    first = np.full(2 * L, -np.inf)
    first[::2] = start
    return np.repeat(emission, 2, axis=1), big, first, np.repeat(end, 2)


@pytest.mark.parametrize("seed", range(5))
def test_token_potentials_are_a_linear_chain(seed):
    rng = np.random.default_rng(seed)
    n, L = 40, 3
    emission, transition = 3 * rng.normal(size=(n, L)), rng.normal(size=(L, L))
    start, end = rng.normal(size=(2, L))
    steps = np.arange(n)
    spans = one(n, (np.full(n, 3), steps, steps + 1))
    answer = segment_forward_backward(spans, emission, transition, start=start, end=end)
    psi, big, first, last = chain_of_segments(emission, transition, start, end)
    chain = forward_backward(psi, big, start=first, end=last)
    assert_allclose(answer.log_z, chain.log_z, rtol=1e-13)
    both = chain.marginals.reshape(n, L, 2).sum(axis=2)
    assert_allclose(answer.tokens, both, **EXACT)
    assert_allclose(answer.potentials, both, **EXACT)
    labels, score = viterbi(psi, big, start=first, end=last)
    best, best_score = segment_viterbi(spans, emission, transition, start=start, end=end)
    assert_allclose(best_score, score, rtol=1e-13)
    path = np.concatenate([[2 * y] + [2 * y + 1] * (j - i - 1) for i, j, y in best[0].tolist()])
    assert_array_equal(path, labels)
    # Without segments of one label side by side: an ordinary chain, whose diagonal is 0.
    np.fill_diagonal(transition, -np.inf)
    answer = segment_forward_backward(spans, emission, transition, start=start, end=end)
    np.fill_diagonal(transition, 0)
    chain = forward_backward(emission, transition, start=start, end=end)
    assert_allclose(answer.log_z, chain.log_z, rtol=1e-13)
    assert_allclose(answer.tokens, chain.marginals, **EXACT)


# ------------------------------------------------------------------ sets, samples, long sequences


def random_set(seed, n_sequences=30, L=3, longest=12):
    rng = np.random.default_rng(seed)
    sequences = []
    for _ in range(n_sequences):
        n = int(rng.integers(0, longest))
        H = int(rng.integers(0, 3 * n + 1)) if n else 0
        starts = rng.integers(0, max(n, 1), H)
        sequences.append((n, [(rng.integers(4), i, rng.integers(i + 1, n + 1)) for i in starts]))
    spans = spans_of(*sequences)
    return spans, rng.normal(size=(len(spans.kind), L)), rng.normal(size=(L, L))


@pytest.mark.parametrize("L", [1, 2, 3, 9, 17])
def test_a_set_is_its_sequences(L):
    # To rounding: those whose potentials are of single tokens have a kernel of their own.
    near = {"rtol": 1e-13, "atol": 1e-15}
    spans, scores, transition = random_set(L, L=L)
    weights = np.random.default_rng(0).random(len(spans.lengths))
    whole = segment_forward_backward(spans, scores, transition, weights=weights)
    best, best_scores = segment_viterbi(spans, scores, transition)
    tokens, pairs, rows = [], np.zeros((L, L)), []
    for s, n in enumerate(spans.lengths):
        part = slice(spans.offsets[s], spans.offsets[s + 1])
        alone = one(n, (spans.kind[part], spans.start[part], spans.stop[part]))
        answer = segment_forward_backward(alone, scores[part], transition)
        assert_allclose(answer.log_z[0], whole.log_z[s], **near)
        tokens.append(answer.tokens)
        rows.append(answer.potentials)
        pairs += weights[s] * answer.transition
        segments, score = segment_viterbi(alone, scores[part], transition)
        assert_array_equal(segments[0], best[s])
        assert_allclose(score[0], best_scores[s], **near)
        assert sum(j - i for i, j, _ in best[s].tolist()) == n
    assert_allclose(np.concatenate(tokens), whole.tokens, **near)
    assert_allclose(np.concatenate(rows), whole.potentials, **near)
    assert_allclose(pairs, whole.transition, rtol=1e-12)


def test_order_of_potentials_is_irrelevant():
    spans, scores, transition = random_set(0)
    rng = np.random.default_rng(0)
    order = np.concatenate(
        [rng.permutation(np.arange(a, b)) for a, b in itertools.pairwise(spans.offsets)]
    )
    mixed = SegmentSpans(
        spans.lengths, spans.offsets, spans.kind[order], spans.start[order], spans.stop[order]
    )
    a = segment_forward_backward(spans, scores, transition)
    b = segment_forward_backward(mixed, scores[order], transition)
    assert_allclose(b.log_z, a.log_z, rtol=1e-13)
    assert_allclose(b.potentials, a.potentials[order], **EXACT)


def test_potentials_stand_for_spans():
    X = SegmentPotentials.from_list([(3, [0, 3], [0, 1], [2, 2], np.ones((2, 1)))])
    answer = segment_forward_backward(X, [[1.0], [0.5]], [[0.0]])
    assert_allclose(np.exp(answer.log_z), [np.e**1.5 + 3 * np.e**0.5], rtol=1e-14)


def test_samples_have_the_right_frequencies():
    problem = random_problem(3, n=4, L=2, n_potentials=12)
    n, spans, scores, transition, start, end = problem
    every, values, log_z, _ = enumerate_segmentations(*problem)
    N = 20_000
    drawn = segment_sample(
        one(n, spans), scores, transition, N, start=start, end=end, random_state=0
    )[0]
    index = {tuple(s): k for k, s in enumerate(every)}
    counts = np.bincount(
        [index[tuple(map(tuple, s.tolist()))] for s in drawn], minlength=len(every)
    )
    p = np.exp(values - log_z)
    # Five standard deviations of each count, for 54 of them: fails by chance less than 1e-4.
    assert (np.abs(counts - N * p) <= 5 * np.sqrt(N * p * (1 - p)) + 1).all()
    again = segment_sample(
        one(n, spans), scores, transition, 3, start=start, end=end, random_state=0
    )[0]
    assert all(np.array_equal(a, b) for a, b in zip(again, drawn, strict=False))
    limited = segment_sample(one(n, spans), scores, transition, 50, max_length=2, random_state=1)
    assert max(j - i for s in limited[0] for i, j, _ in s.tolist()) == 2


def test_cost_does_not_depend_on_long_spans():
    n = 2000
    steps = np.arange(n)
    token = (np.full(n, 3), steps, steps + 1)
    plain = SegmentPlan(one(n, token), 2)
    long = SegmentPlan(one(n, tuple(np.append(a, b) for a, b in zip(token, (0, 100, 1900)))), 2)
    # One group more while the long potential is open; kept apart, its starts would be 1800.
    assert plain.n_states <= 2 * n
    assert long.n_states - plain.n_states <= 1800
    pairs = SegmentPlan(one(n, (np.tile([1, 2], n // 2)[:-1], steps[:-1], steps[:-1] + 2)), 2)
    assert pairs.n_states <= 3 * n  # m = 2


def test_long_sequence_with_a_long_segment():
    # Against sums in the log domain; scaled arithmetic has to rescale many times.
    n, L = 3000, 3
    rng = np.random.default_rng(0)
    emission, steps = 30 * rng.random((n, L)), np.arange(n)
    emission[1000:2000, 1] += 40
    spans = one(
        n, (np.append(np.full(n, 3), 0), np.append(steps, 1000), np.append(steps + 1, 2000))
    )
    scores = np.vstack([emission, [0, 50.0, 0]])
    transition = rng.normal(size=(L, L)) - 5
    answer = segment_forward_backward(spans, scores, transition)
    psi, big, first, last = chain_of_segments(emission, transition, np.zeros(L), np.zeros(L))
    without = forward_backward(psi, big, start=first, end=last)
    none = segment_forward_backward(one(n, (np.full(n, 3), steps, steps + 1)), emission, transition)
    assert_allclose(none.log_z, without.log_z, rtol=1e-13)
    assert_allclose(answer.tokens.sum(axis=1), 1, rtol=0, atol=1e-10)
    assert answer.potentials[-1, 1] > 0.99
    best = segment_viterbi(spans, scores, transition)[0][0].tolist()
    assert [1000, 2000, 1] in best


@pytest.mark.parametrize("seed", range(5))
def test_magnitude_bound_is_that_of_the_cells_around_a_boundary(seed):
    spans, scores, _ = random_set(seed, n_sequences=4, L=3)
    plan = SegmentPlan(spans, 3)
    psi = plan.cell_scores(scores)
    for s, n in enumerate(spans.lengths):
        own = slice(plan.cells[s], plan.cells[s + 1])
        size = np.abs(psi[own]).max(axis=1, initial=0)
        around = [
            size[(plan.start[own] < b) & (b < plan.stop[own])].sum() for b in range(int(n) + 1)
        ]
        assert_allclose(plan.magnitude_bound(s, psi[own]), max(around), rtol=1e-12, atol=1e-13)
        if len(size) and (plan.stop[own] - plan.start[own] > 1).any():
            worst = psi[own].copy()
            worst[plan.stop[own] - plan.start[own] > 1, 0] = -np.inf
            assert plan.magnitude_bound(s, worst) == np.inf


@pytest.mark.parametrize(("long", "tries"), [(1000, [False, True]), (500, [True])])
def test_what_falls_behind_is_not_missed(monkeypatch, long, tries):
    # One group of starts apart for 600 steps underflows; against sums in the log domain.
    monkeypatch.setattr(programs, "LONG", long)
    n, L = 900, 3
    rng = np.random.default_rng(4)
    step = np.arange(n)
    kind = np.concatenate([np.full(n, 3), np.full(n, 1), [0, 0]])
    start = np.concatenate([step, step, [100, 300]])
    stop = np.concatenate([step + 1, step + 1, [700, 303]])
    scores = np.vstack([rng.normal(size=(2 * n, L)), [[0, 40, 0], [3, 0, 9]]])
    scores[n : 2 * n] += 4  # what starts later is always better
    args = one(n, (kind, start, stop)), scores, rng.normal(size=(L, L))
    again = []
    scaled = SegmentWorkspace._scaled
    monkeypatch.setattr(
        SegmentWorkspace, "_scaled", lambda *a, drop=False: again.append(drop) or scaled(*a, drop)
    )
    answer = segment_forward_backward(*args)
    assert again == tries
    monkeypatch.setattr(programs._sums, "REACH", -1.0)
    exact = segment_forward_backward(*args)
    assert again == [*tries, False]  # then in the log domain
    for a, b in zip(answer, exact, strict=True):
        assert_allclose(a, b, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transition": np.zeros((2, 3))}, "transition must have shape"),
        ({"transition": np.zeros((0, 0))}, "transition must have shape"),
        ({"scores": np.zeros((1, 2))}, "scores must have shape"),
        ({"scores": [[np.nan, 0], [0, 0]]}, "scores must be finite or -inf"),
        ({"start": [0, np.inf]}, "start must be finite or -inf"),
        ({"max_length": 0}, "max_length must be a positive integer"),
        ({"max_length": [1, -1]}, "max_length must be a positive integer, or 2 integers"),
        ({"max_length": 1.5}, "max_length must be a positive integer"),
    ],
)
def test_messages(change, message):
    good = {"spans": spans_of((3, [(0, 0, 2), (3, 1, 2)])), "scores": np.zeros((2, 2))}
    good["transition"] = np.zeros((2, 2))
    segment_viterbi(**good)
    with pytest.raises(ValueError, match=message):
        segment_viterbi(**{**good, **change})
    if change.keys() == {"max_length"}:
        with pytest.raises(ValueError, match="n, the number of segmentations"):
            segment_nbest(**good, n=0)
        with pytest.raises(ValueError, match="n_samples must be"):
            segment_sample(**good, n_samples=-1)

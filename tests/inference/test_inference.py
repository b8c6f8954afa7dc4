"""Inference against enumeration, the NumPy reference, and properties that need neither."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import logsumexp

from sklseq.inference import forward_backward, nbest, sample, viterbi
from sklseq.inference.chain.linear_chain import _chain
from tests import reference
from tests.oracles import enumerate_chain

# Sums of at most 3**6 terms of rounding error 1e-16 relative, on scores of magnitude 10.
EXACT = dict(rtol=1e-12, atol=1e-12)
SINGLE = dict(rtol=1e-5, atol=1e-5)
SEEDS = range(8)


def make_problem(seed, T, L, scale=1.0, forbid=0.0, boundaries=True):
    rng = np.random.default_rng(seed)
    emission = scale * rng.normal(size=(T, L))
    transition = scale * rng.normal(size=(L, L))
    transition[rng.random((L, L)) < forbid] = -np.inf
    np.fill_diagonal(transition, scale * rng.normal(size=L))  # some path is always allowed
    ends = [scale * rng.normal(size=L) for _ in range(2)] if boundaries else [None, None]
    return emission, transition, *ends


SHAPES = [(1, 1), (1, 4), (5, 1), (2, 2), (6, 3), (4, 5), (3, 9), (2, 17), (2, 25)]
KINDS = {
    "plain": {},
    "no boundaries": {"boundaries": False},
    "forbidden": {"forbid": 0.5},
    "huge": {"scale": 1e4},
    "huge, forbidden": {"scale": 1e4, "forbid": 0.5},
    "tiny": {"scale": 1e-8},
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_question_equals_enumeration(shape, kind, seed):
    emission, transition, start, end = make_problem(seed, *shape, **KINDS[kind])
    paths, scores, log_z, marginals, pairwise = enumerate_chain(emission, transition, start, end)
    ours = forward_backward(emission, transition, start=start, end=end)
    assert_allclose(ours.log_z, [log_z], **EXACT)
    assert_allclose(ours.marginals, marginals, **EXACT)
    assert_allclose(ours.pairwise, pairwise, **EXACT)

    labels, best = viterbi(emission, transition, start=start, end=end)
    assert_allclose(best, [scores.max()], **EXACT)
    assert_array_equal(labels, paths[scores.argmax()])

    n = min(7, np.isfinite(scores).sum())
    top = np.sort(scores)[::-1][:n]
    found, values = nbest(emission, transition, n=7, start=start, end=end)[0]
    assert_allclose(values, top, **EXACT)
    again = [reference.score_path(p, emission, transition, start, end) for p in found]
    assert_allclose(again, top, **EXACT)
    assert len({tuple(p) for p in found}) == n


@pytest.mark.parametrize("seed", range(40))
def test_order_of_nbest_paths_with_equal_scores(seed):
    # Of equal scores the path with the lowest last label is first, then the lowest label before it.
    rng = np.random.default_rng(seed)
    T, L = rng.integers(1, 5), rng.integers(1, 6)
    emission, transition = rng.integers(-1, 2, size=(T, L)), rng.integers(-1, 2, size=(L, L))
    forbidden = rng.random((L, L)) < rng.choice([0, 0.3])
    transition = np.where(forbidden & ~np.eye(L, dtype=bool), -np.inf, transition)
    paths, scores, *_ = enumerate_chain(emission, transition)
    order = sorted(range(len(paths)), key=lambda k: (-scores[k], *paths[k][::-1]))
    order = [k for k in order if scores[k] > -np.inf]
    for n in (1, 2, L, L + 1, len(order) + 1):
        found, values = nbest(emission, transition, n=n)[0]
        assert_array_equal(values, scores[order[:n]])
        assert_array_equal(found, paths[order[:n]])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_reference_equals_enumeration(shape, kind):
    emission, transition, start, end = make_problem(3, *shape, **KINDS[kind])
    paths, scores, log_z, marginals, pairwise = enumerate_chain(emission, transition, start, end)
    got = reference.forward_backward(emission, transition, start, end)
    for ours, theirs in zip(got, (log_z, marginals, pairwise)):
        assert_allclose(ours, theirs, **EXACT)
    labels, best = reference.viterbi(emission, transition, start, end)
    assert_allclose(best, scores.max(), **EXACT)
    assert_array_equal(labels, paths[scores.argmax()])


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kind", ["plain", "forbidden", "tiny"])
def test_float32_is_kept_and_close(shape, kind):
    problem = [p.astype(np.float32) for p in make_problem(5, *shape, **KINDS[kind])]
    emission, transition, start, end = problem
    _, scores, log_z, marginals, pairwise = enumerate_chain(
        *(p.astype(np.float64) for p in problem)
    )
    ours = forward_backward(emission, transition, start=start, end=end)
    assert ours.marginals.dtype == np.float32
    assert ours.log_z.dtype == np.float64
    assert_allclose(ours.log_z, [log_z], **SINGLE)
    assert_allclose(ours.marginals, marginals, **SINGLE)
    assert_allclose(ours.pairwise, pairwise, **SINGLE)
    assert_allclose(viterbi(emission, transition, start=start, end=end)[1], scores.max(), **SINGLE)


def random_batch(seed, L, n=12, dtype=np.float64, forbid=0.0, scale=2.0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 40, size=n)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    _, transition, start, end = make_problem(seed, 1, L, scale, forbid)
    emission = scale * rng.normal(size=(offsets[-1], L))
    return [a.astype(dtype) for a in (emission, transition, start, end)] + [offsets]


@pytest.mark.parametrize("L", [1, 2, 3, 5, 8, 13, 22, 45, 70])
@pytest.mark.parametrize("forbid", [0.0, 0.6])
def test_batches_equal_the_reference_one_by_one(L, forbid):
    emission, transition, start, end, offsets = random_batch(L, L, forbid=forbid)
    weights = np.random.default_rng(1).random(len(offsets) - 1)
    ours = forward_backward(emission, transition, offsets, start=start, end=end, weights=weights)
    labels, best = viterbi(emission, transition, offsets, start=start, end=end)
    total = np.zeros((L, L))
    for s, (a, b) in enumerate(zip(offsets[:-1], offsets[1:])):
        log_z, marginals, pairwise = reference.forward_backward(
            emission[a:b], transition, start, end
        )
        assert_allclose(ours.log_z[s], log_z, rtol=1e-11, atol=1e-11)
        assert_allclose(ours.marginals[a:b], marginals, rtol=1e-9, atol=1e-11)
        total += weights[s] * pairwise
        path, value = reference.viterbi(emission[a:b], transition, start, end)
        assert_array_equal(labels[a:b], path)
        assert_allclose(best[s], value, rtol=1e-12)
    assert_allclose(ours.pairwise, total, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("seed", SEEDS)
def test_properties_that_need_no_reference(seed):
    emission, transition, start, end, offsets = random_batch(seed, 6)
    ours = forward_backward(emission, transition, offsets, start=start, end=end)
    best = viterbi(emission, transition, offsets, start=start, end=end)[1]
    lengths = np.diff(offsets)
    assert_allclose(ours.marginals.sum(axis=1), 1, rtol=1e-13)
    assert_allclose(ours.pairwise.sum(), np.maximum(lengths - 1, 0).sum(), rtol=1e-12)
    assert (ours.log_z >= best - 1e-9).all()
    # A constant added to a row is added to log Z, and changes nothing else.
    shifted = emission + np.linspace(-3, 3, len(emission))[:, None]
    moved = forward_backward(shifted, transition, offsets, start=start, end=end)
    added = np.add.reduceat(np.append(np.linspace(-3, 3, len(emission)), 0), offsets[:-1])
    assert_allclose(moved.log_z, ours.log_z + np.where(lengths > 0, added, 0), atol=1e-10)
    assert_allclose(moved.marginals, ours.marginals, atol=1e-12)
    # Permuted labels permute the answers.
    order = np.random.default_rng(seed).permutation(6)
    permuted = forward_backward(
        emission[:, order],
        transition[np.ix_(order, order)],
        offsets,
        start=start[order],
        end=end[order],
    )
    assert_allclose(permuted.marginals, ours.marginals[:, order], atol=1e-13)
    assert_allclose(permuted.pairwise, ours.pairwise[np.ix_(order, order)], atol=1e-11)


def test_losing_a_label_that_wins_later_is_noticed():
    # Label 2 starts 1e-345 behind, so scaled alpha loses it; then the others fall by 1e-150 a row,
    # each row sum staying far above 1e-200, until label 2 carries all of Z.
    transition = np.full((3, 3), -np.inf)
    transition[:2, :2] = 0
    transition[2, 2] = 0
    emission = np.zeros((5, 3))
    emission[0, 2] = -345 * np.log(10)
    emission[1:, :2] = -150 * np.log(10)
    expected = reference.forward_backward(emission, transition)
    assert expected[1][-1, 2] > 0.999
    ours = forward_backward(emission, transition)
    assert_allclose(ours.log_z, [expected[0]], **EXACT)
    assert_allclose(ours.marginals, expected[1], **EXACT)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("forbid", [0.0, 0.5])
def test_extreme_rows_among_plain_ones(dtype, forbid):
    emission, transition, start, end, offsets = random_batch(4, 7, n=30, dtype=dtype, forbid=forbid)
    rng = np.random.default_rng(0)
    emission[rng.integers(0, len(emission), 40)] *= dtype(3e3)
    tolerance = dict(rtol=2e-4, atol=2e-3) if dtype == np.float32 else dict(rtol=1e-10, atol=1e-10)
    ours = forward_backward(emission, transition, offsets, start=start, end=end)
    for s, (a, b) in enumerate(zip(offsets[:-1], offsets[1:])):
        log_z, marginals, _ = reference.forward_backward(emission[a:b], transition, start, end)
        assert_allclose(ours.log_z[s], log_z, **tolerance)
        assert_allclose(ours.marginals[a:b], marginals, **tolerance)


def test_a_million_rows_stay_exact():
    # All scores zero: log Z = T log L in closed form; float32 too, as sums are in float64.
    T, L = 1_000_000, 3
    for dtype in (np.float32, np.float64):
        emission = np.full((T, L), 0.5, dtype=dtype)
        ours = forward_backward(emission, np.zeros((L, L)))
        assert_allclose(ours.log_z, T * (np.log(L) + 0.5), rtol=1e-7)
        assert_allclose(ours.marginals, 1 / L, rtol=1e-5)
        assert_allclose(viterbi(emission, np.zeros((L, L)))[1], T * 0.5, rtol=1e-12)


@pytest.mark.parametrize("L", [1, 3, 4, 11])
def test_ties_go_to_the_lowest_label(L):
    labels, _ = viterbi(np.zeros((6, L)), np.zeros((L, L)))
    assert_array_equal(labels, 0)
    found, _ = nbest(np.zeros((3, L)), np.zeros((L, L)), n=1)[0]
    assert_array_equal(found, 0)


def test_samples_follow_the_marginals():
    emission, transition, start, end, offsets = random_batch(2, 4, n=4, forbid=0.3, scale=1.0)
    ours = forward_backward(emission, transition, offsets, start=start, end=end)
    n = 20_000
    drawn = sample(emission, transition, offsets, n, start=start, end=end, random_state=7)
    frequency = np.stack([(drawn == j).mean(axis=0) for j in range(4)], axis=1)
    # Five standard deviations of a mean of n draws, p (1 - p) <= 1/4.
    assert_allclose(frequency, ours.marginals, atol=5 * np.sqrt(0.25 / n))
    pairs = np.zeros((4, 4))
    for a, b in zip(offsets[:-1], offsets[1:]):
        np.add.at(pairs, (drawn[:, a : b - 1].ravel(), drawn[:, a + 1 : b].ravel()), 1 / n)
    assert_allclose(pairs, ours.pairwise, atol=5 * np.sqrt(len(emission) * 0.25 / n))
    assert (pairs[np.isneginf(transition)] == 0).all()
    same = sample(emission, transition, offsets, n, start=start, end=end, random_state=7)
    assert_array_equal(drawn, same)


def test_samples_in_the_log_domain():
    # One path is 1e400 times likelier than the rest: the only one ever drawn.
    emission = np.array([[0.0, 921.0], [921.0, 0.0], [0.0, 921.0]])
    assert_array_equal(sample(emission, np.zeros((2, 2)), n_samples=50, random_state=0)[:, 1], 0)


def test_empty_batches():
    ours = forward_backward(np.zeros((0, 3)), np.zeros((3, 3)), [0, 0, 0])
    assert_array_equal(ours.log_z, [0, 0])
    assert ours.marginals.shape == (0, 3)
    assert viterbi(np.zeros((0, 3)), np.zeros((3, 3)), [0])[1].shape == (0,)
    assert nbest(np.zeros((0, 3)), np.zeros((3, 3)), [0, 0])[0][0].shape == (1, 0)
    assert sample(np.zeros((0, 3)), np.zeros((3, 3)), [0, 0]).shape == (1, 0)


def test_inputs_are_left_alone_and_may_be_read_only():
    problem = random_batch(0, 5)
    copies = [a.copy() for a in problem]
    for a in problem:
        a.setflags(write=False)
    emission, transition, start, end, offsets = problem
    for question in (forward_backward, viterbi, nbest, sample):
        question(emission, transition, offsets, start=start, end=end)
        question(np.asfortranarray(emission), transition, offsets, start=start, end=end)
    for a, b in zip(problem, copies):
        assert_array_equal(a, b)


@pytest.mark.parametrize("question", [forward_backward, viterbi, nbest, sample])
def test_no_allowed_path_names_the_sequence(question):
    emission = np.zeros((4, 2))
    emission[3] = -np.inf
    with pytest.raises(ValueError, match=r"Sequence 1 has no allowed label path"):
        question(emission, np.zeros((2, 2)), [0, 2, 4])
    with pytest.raises(ValueError, match=r"Sequence 0 has no allowed label path"):
        question(np.zeros((4, 2)), np.full((2, 2), -np.inf), [0, 2, 4])


@pytest.mark.parametrize("question", [forward_backward, viterbi, nbest, sample])
def test_bad_input_is_one_clear_sentence(question):
    ok, square = np.zeros((4, 2)), np.zeros((2, 2))
    bad = ok.copy()
    bad[2, 1] = np.nan
    with pytest.raises(ValueError, match=r"emission must be finite or -inf.*nan at \(2, 1\)"):
        question(bad, square)
    with pytest.raises(ValueError, match=r"transition must have shape \(2, 2\); got \(3, 2\)"):
        question(ok, np.zeros((3, 2)))
    with pytest.raises(ValueError, match=r"start must have shape \(2,\)"):
        question(ok, square, start=np.zeros(3))
    with pytest.raises(ValueError, match=r"transition must be finite or -inf"):
        question(ok, np.full((2, 2), np.inf))
    with pytest.raises(ValueError, match=r"offsets must rise from 0 to the number of rows \(4\)"):
        question(ok, square, [0, 3])
    with pytest.raises(ValueError, match=r"at least one column"):
        question(np.zeros((4, 0)), np.zeros((0, 0)))


def test_bad_counts_are_refused():
    with pytest.raises(ValueError, match=r"n, the number of paths, must be an integer"):
        nbest(np.zeros((2, 2)), np.zeros((2, 2)), n=0)
    with pytest.raises(ValueError, match=r"n_samples must be an integer of at least 0"):
        sample(np.zeros((2, 2)), np.zeros((2, 2)), n_samples=-1)
    with pytest.raises(ValueError, match=r"weights must be 1 finite numbers"):
        forward_backward(np.zeros((2, 2)), np.zeros((2, 2)), weights=[1, 2])


@pytest.mark.parametrize("L", range(1, 70))
def test_rows_are_padded_to_whole_lanes(L):
    width = _chain.padded_width(L)
    assert width >= L
    assert width in (2, 4) or width % 8 == 0


def test_log_z_of_independent_rows_is_a_sum():
    emission = np.random.default_rng(0).normal(size=(50, 12))
    ours = forward_backward(emission, np.zeros((12, 12)))
    assert_allclose(ours.log_z, logsumexp(emission, axis=1).sum(), rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_labels", [1, 2, 3, 4, 5, 9, 22])
def test_exponentials_of_rows_are_exact_to_the_last_bit_but_one(n_labels, dtype):
    rng = np.random.default_rng(n_labels)
    tiny = np.finfo(dtype).tiny
    range_of_exp = -np.log(float(tiny))
    psi = rng.choice([0.1, 5.0, range_of_exp], size=(3000, 1)) * rng.normal(size=(3000, n_labels))
    psi[rng.random(psi.shape) < 0.05] = -np.inf
    padded = np.zeros((len(psi), _chain.padded_width(n_labels)), dtype)
    padded[:, :n_labels] = psi
    e, shift = np.full_like(padded, np.nan), np.empty(len(psi), dtype)
    _chain.scale_rows(padded, e, shift, n_labels)
    top = padded[:, :n_labels].max(axis=1)
    assert_array_equal(shift, top)
    assert not e[:, n_labels:].any()
    below = padded[:, :n_labels] - np.where(np.isfinite(top), top, 0)[:, None]
    exact = np.exp(below.astype(np.longdouble))
    lost = exact < 1.5 * tiny  # may be 0, as what is not a normal number
    assert_allclose(
        np.where(lost, exact, e[:, :n_labels]).astype(np.longdouble),
        exact,
        rtol=float(np.finfo(dtype).eps),
    )
    assert (e[:, :n_labels][lost] < 1.5 * tiny).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_exponentials_pass_on_what_is_no_number(dtype):
    psi = np.array([[np.nan, 0.0], [0.0, np.nan], [-np.inf, -np.inf], [-np.inf, 3.0]], dtype)
    psi[:2].view(f"u{psi.itemsize}")[np.isnan(psi[:2])] += 0x7FF  # what makes numbers of NaN
    assert np.isnan(psi).sum() == 2
    e, shift = np.empty_like(psi), np.empty(4, dtype)
    _chain.scale_rows(psi, e, shift, 2)
    assert np.isnan(e[:2]).any(axis=1).all()
    assert_array_equal(e[2:], [[0, 0], [0, 1]])


@pytest.mark.parametrize("seed", ["a", -1, 1.5])
def test_seeds_are_checked(seed):
    with pytest.raises(ValueError, match="random_state must be None, an integer of at least 0"):
        sample(np.zeros((2, 2)), np.zeros((2, 2)), random_state=seed)

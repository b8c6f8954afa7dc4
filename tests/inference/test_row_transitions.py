"""Transitions that differ from row to row, compared with sums over all paths and references."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq.inference import (
    RowTransitions,
    decode_online,
    entropy,
    expected_features,
    forward_backward,
    max_marginals,
    nbest,
    sample,
    viterbi,
)
from sklseq.inference.chain.linear_chain import Transitions, Workspace
from tests import reference
from tests.oracles import enumerate_chain

TOLERANCE = {"float64": 1e-10, "float32": 1e-5}


def random_rows(rng, n, L, dtype, unit=1.0, forbidden=0.0, share=0.6):
    """Entries of random pairs in a share of the rows; unlike those of others, by ``unit``."""
    shared = rng.normal(0, unit, (L, L))
    counts = rng.integers(0, L * L + 1, n) * (rng.random(n) < share)
    pairs = [rng.permutation(L * L)[:k] for k in counts]
    i, j = np.divmod(np.concatenate([[], *pairs]).astype(int), L)
    score = rng.normal(0, unit, len(i))
    shared[rng.random((L, L)) < forbidden] = -np.inf
    score[rng.random(len(i)) < forbidden] = -np.inf
    indptr = np.concatenate([[0], np.cumsum(counts)])
    return RowTransitions(shared.astype(dtype), indptr, i, j, score.astype(dtype))


def random_problem(seed, L, lengths, dtype, **kinds):
    """(emission, rows, offsets, start, end) of float scores, exact in float32."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    n = offsets[-1]
    emission = rng.normal(0, kinds.get("unit", 1.0), (n, L)).astype(dtype)
    start, end = rng.normal(size=(2, L)).astype(dtype)
    return emission, random_rows(rng, n, L, dtype, **kinds), offsets, start, end


def each_sequence(emission, rows, offsets, start, end):
    """The same, sequence by sequence, with dense transitions in float64."""
    dense = rows.toarray().astype(np.float64)
    for a, b in zip(offsets[:-1], offsets[1:]):
        yield slice(a, b), emission[a:b].astype(np.float64), dense[a:b], start, end


SMALL = [
    (1, [3, 0, 1]),
    (2, [5, 1, 0, 4, 2]),
    (3, [4, 1, 3]),
    (5, [3, 2]),
    (9, [3, 0, 2]),
]


def check_questions(seed, L, lengths, dtype, form="entries", forbidden=0.0):
    """Every question, by sums over all paths."""
    problem = random_problem(seed, L, lengths, dtype, forbidden=forbidden)
    emission, rows, offsets, start, end = problem
    given = rows.toarray() if form == "dense" else rows
    ends = {"start": start, "end": end}
    tol = TOLERANCE[dtype]
    with np.errstate(invalid="ignore"):
        answers = [enumerate_chain(*one) for _, *one in each_sequence(*problem)]
    if min(one[2] for one in answers) == -np.inf:
        for question in (forward_backward, viterbi, nbest, sample, entropy):
            with pytest.raises(ValueError, match="has no allowed label path"):
                question(emission, given, offsets, **ends)
        return
    log_z, marginals, pairwise = forward_backward(emission, given, offsets, **ends)
    assert_allclose(log_z, [one[2] for one in answers], rtol=tol, atol=tol)
    assert_allclose(marginals, np.concatenate([one[3] for one in answers]), atol=tol)
    assert_allclose(pairwise, sum(one[4] for one in answers), atol=len(emission) * tol)
    labels, scores = viterbi(emission, given, offsets, **ends)
    assert_allclose(scores, [one[1].max() for one in answers], rtol=tol, atol=tol)
    best = nbest(emission, given, offsets, 4, **ends)
    features = expected_features(
        emission, given, offsets, pair_features=np.eye(L * L).reshape(L, L, -1), **ends
    )
    for s, (where, *one) in enumerate(each_sequence(*problem)):
        _, score, total, _, xi = answers[s]
        assert_allclose(reference.score_path(labels[where], *one), scores[s], rtol=tol)
        top = np.sort(score[score > -np.inf])[::-1][:4]
        assert_allclose(best[s][1], top, rtol=tol, atol=tol)
        for path, value in zip(*best[s]):
            assert_allclose(reference.score_path(path, *one), value, rtol=tol, atol=tol)
        p = np.exp(score - total)
        assert_allclose(features.log_z[s], total, rtol=tol, atol=tol)
        assert_allclose(features.mean[s].reshape(L, L), xi, atol=tol)
        logs = np.log(p[p > 0])
        assert_allclose(features.entropy[s], -(p[p > 0] * logs).sum(), atol=10 * tol)
    assert_array_equal(entropy(emission, given, offsets, **ends), features.entropy)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("form", ["entries", "dense"])
@pytest.mark.parametrize(("L", "lengths"), SMALL)
def test_all_questions_equal_sums_over_all_paths(L, lengths, form, dtype):
    for seed, forbidden in enumerate([0, 0, 0.1]):
        check_questions(seed, L, lengths, dtype, form, forbidden if L > 2 else 0)


def expected_entries(rows, offsets, problem, weights):
    """Expectation of each entry, from the pair marginals of the reference."""
    expected = np.zeros(len(rows.i))
    for s, (where, *one) in enumerate(each_sequence(*problem)):
        psi = reference._fold(*one[:1], *one[2:])
        log_alpha, log_beta = reference.forward(psi, one[1]), reference.backward(psi, one[1])
        for t in range(1, len(psi)):
            xi = log_alpha[t - 1][:, None] + one[1][t] + psi[t] + log_beta[t]
            xi = np.exp(xi - np.logaddexp.reduce(xi, axis=None))
            at = slice(*rows.indptr[where.start + t :][:2])
            expected[at] = weights[s] * xi[rows.i[at], rows.j[at]]
    return expected


def check_expectations(seed, L, lengths, dtype, unit, highest=True):
    """Marginals, and expectations of entries and of shared transitions, by the reference."""
    problem = random_problem(seed, L, lengths, dtype, unit=unit, forbidden=0.02 * (L > 2))
    emission, rows, offsets, start, end = problem
    chain = Transitions(rows.shared, start, end, dtype)
    chain.exponentiate(rows.score.max(initial=-np.inf) if highest else -np.inf)
    work = Workspace(len(emission), chain.width, chain.dtype)
    weights = np.random.default_rng(seed).choice([1, 0.5, 2], len(lengths))
    rows, log_z, psi = rows.with_expected(), np.zeros(len(lengths)), chain.pad_rows(emission)
    work.forward_backward(psi, offsets, weights, chain, log_z, rows)
    tol = TOLERANCE[dtype] * max(1, unit / 3 if dtype == "float32" else unit / 100)
    sums = np.zeros((L, L))
    for s, (where, *one) in enumerate(each_sequence(*problem)):
        total, mu, xi = reference.forward_backward(*one)
        assert_allclose(log_z[s], total, rtol=tol, atol=tol)
        if total > -np.inf:
            assert_allclose(psi[where, :L], mu, atol=tol)
            sums += weights[s] * xi
    atol = tol * max(4, len(emission))
    assert_allclose(work.pairwise_sum(chain), sums, atol=atol)
    assert_allclose(rows.expected, expected_entries(rows, offsets, problem, weights), atol=atol)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("L", [1, 2, 4, 9, 22, 40])
def test_expectations_of_entries(L, dtype):
    for seed, (unit, highest) in enumerate([(1, True), (3, False), (60, True), (800, False)]):
        check_expectations(seed, L, [5, 0, 1, 12, 3], dtype, unit, highest)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("L", [2, 4, 9, 22])
def test_best_paths_of_long_sequences(L, dtype):
    problem = random_problem(L, L, [40, 1, 90, 0], dtype)
    emission, rows, offsets, start, end = problem
    labels, scores = viterbi(emission, rows, offsets, start=start, end=end)
    for s, (where, *one) in enumerate(each_sequence(*problem)):
        path, score = reference.viterbi(*one)
        assert_allclose(scores[s], score, rtol=TOLERANCE[dtype])
        assert_array_equal(labels[where], path)


def test_the_public_function_adds_expectations():
    problem = random_problem(3, 3, [4, 1, 3], "float64", forbidden=0.05)
    emission, rows, offsets, start, end = problem
    rows, weights = rows.with_expected(), np.array([1.0, 2, 0.5])
    forward_backward(emission, rows, offsets, start=start, end=end, weights=weights)
    wanted = expected_entries(rows, offsets, problem, weights)
    assert_allclose(rows.expected, wanted, atol=1e-12)
    assert wanted.any()


def test_rows_without_entries_have_the_shared_scores():
    rng = np.random.default_rng(0)
    emission, shared, offsets = rng.normal(size=(50, 4)), rng.normal(size=(4, 4)), [0, 20, 50]
    rows = RowTransitions(shared, np.zeros(51), [], [], np.zeros(0))
    for one, other in zip(
        forward_backward(emission, rows, offsets), forward_backward(emission, shared, offsets)
    ):
        assert_array_equal(one, other)
    assert_array_equal(viterbi(emission, rows, offsets)[0], viterbi(emission, shared, offsets)[0])


def test_entries_of_first_rows_are_ignored():
    emission, rows, offsets, _, _ = random_problem(3, 3, [4, 1, 3], "float64", share=1)
    other = rows.toarray()
    other[offsets[:-1]] = -np.inf
    for one, two in zip(
        forward_backward(emission, rows, offsets), forward_backward(emission, other, offsets)
    ):
        assert_allclose(one, two, atol=1e-12)


def test_samples_have_the_pair_marginals():
    emission, rows, offsets, start, end = random_problem(5, 3, [4, 3], "float64", forbidden=0.1)
    n = 20000
    labels = sample(emission, rows, offsets, n, start=start, end=end, random_state=0)
    _, marginals, pairwise = forward_backward(emission, rows, offsets, start=start, end=end)
    assert_allclose((labels[:, :, None] == np.arange(3)).mean(axis=0), marginals, atol=0.02)
    counts = np.zeros((3, 3))
    for a, b in zip(offsets[:-1], offsets[1:]):
        np.add.at(counts, (labels[:, a : b - 1], labels[:, a + 1 : b]), 1 / n)
    assert_allclose(counts, pairwise, atol=0.03)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"i": [0, 3]}, "i must hold labels from 0 to 1; got 3 for entry 1"),
        ({"j": [-1, 0]}, "j must hold labels"),
        ({"indptr": [0, 1]}, "end with the number of entries, 2"),
        ({"indptr": [0, 2, 1, 2]}, "must not decrease"),
        ({"indptr": [0, 0, 0, 2], "j": [1, 1], "i": [0, 0]}, r"row 2 has several for \(0, 1\)"),
        ({"score": [1.0]}, "one number for each entry"),
        ({"shared": np.zeros((2, 3))}, "shape"),
        ({"shared": 5.0}, r"shape .* got shapes \(\)"),
    ],
)
def test_errors_of_entries(change, message):
    given = {"shared": np.zeros((2, 2)), "indptr": [0, 0, 2], "i": [0, 1], "j": [1, 0]}
    with pytest.raises(ValueError, match=message):
        RowTransitions(**({"score": [0.0, 1.0], **given} | change))


@pytest.mark.parametrize(
    ("transition", "message"),
    [
        (np.zeros((3, 2, 2)), r"transition must have shape \(4, 2, 2\); got \(3, 2, 2\)"),
        (np.full((4, 2, 2), np.nan), "transition must be finite or -inf"),
        (
            RowTransitions(np.zeros((2, 2)), [0, 1], [0], [0], [0.0]),
            r"\(4, 2, 2\); got \(1, 2, 2\)",
        ),
        (
            RowTransitions(np.zeros((2, 2)), [0, 1, 1, 1, 1], [0], [0], [np.inf]),
            "score of transition",
        ),
    ],
)
@pytest.mark.parametrize("question", [forward_backward, viterbi, nbest, sample, entropy])
def test_errors_of_scores(question, transition, message):
    with pytest.raises(ValueError, match=message):
        question(np.zeros((4, 2)), transition)


def test_a_sequence_without_a_path_is_named():
    transition = np.zeros((5, 2, 2))
    transition[3] = -np.inf
    for question in (forward_backward, viterbi, nbest, sample, entropy):
        with pytest.raises(ValueError, match="Sequence 1 has no allowed label path"):
            question(np.zeros((5, 2)), transition, [0, 2, 5])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"i": [0.9]}, "i must hold integers; got 0.9 for number 0"),
        ({"j": [np.inf]}, "j must hold integers"),
        ({"indptr": [0, 0.6, 1.9]}, "indptr must hold integers"),
        ({"i": [2**32]}, r"i must hold labels from 0 to 1; got 4294967296 for entry 0"),
        ({"j": np.array([2**63], np.uint64)}, "j must hold labels from 0 to 1"),
        ({"i": ["a"]}, "i must be a dense array of real numbers"),
        ({"i": [np.nan]}, "i must hold integers"),
        ({"score": [5 + 3j]}, "score must be a dense array of real numbers"),
        ({"score": ["x"]}, "score must be a dense array of real numbers"),
        ({"shared": np.zeros((2, 2), complex)}, "shared must be a dense array of real numbers"),
    ],
)
def test_numbers_are_not_cut_off(wrong, message):
    right = {"shared": np.zeros((2, 2)), "indptr": [0, 0, 1], "i": [1], "j": [1], "score": [1.0]}
    RowTransitions(**right)
    with pytest.raises(ValueError, match=message):
        RowTransitions(**right | wrong)


@pytest.mark.parametrize("dtype", [bool, *"bBhHiIlLqQfd", complex, object, str])
def test_arrays_of_any_type_are_kept_or_refused(dtype):
    """No number of an argument differs from the given one."""
    values = np.array([0, 1]).astype(dtype)
    for name in ("i", "j", "score"):
        given = {"i": [0, 1], "j": [1, 0], "score": [0.0, 1.0]} | {name: values}
        if values.dtype.kind in "cOU":
            with pytest.raises(ValueError, match=f"{name} must"):
                RowTransitions(np.zeros((2, 2)), [0, 0, 2], **given)
            continue
        rows = RowTransitions(np.zeros((2, 2)), [0, 0, 2], **given)
        assert_array_equal(getattr(rows, name), values)
        assert rows.i.dtype == rows.j.dtype == np.int32


@pytest.mark.parametrize("n", [8, 9, 10**10, 10**18])
def test_no_more_paths_than_there_are(n):
    paths, scores = nbest(np.zeros((3, 2)), np.zeros((2, 2)), n=n)[0]
    assert len(np.unique(paths, axis=0)) == len(scores) == 8


def listed(dense):
    """RowTransitions that list an entry for each pair of each row."""
    n, L, _ = dense.shape
    i, j = np.tile(np.divmod(np.arange(L * L), L), n)
    return RowTransitions(np.zeros((L, L)), np.arange(n + 1) * L * L, i, j, dense.ravel())


def rows_and_entries(seed):
    rng = np.random.default_rng(seed)
    n, L, unit = rng.integers(0, 12), rng.integers(1, 10), [1, 1e3, 1e18][seed % 3]
    dense = rng.normal(0, unit, (n, L, L))
    offsets = np.sort(np.append(rng.integers(0, n + 1, 2), [0, n]))
    return rng.normal(size=(n, L)), dense, offsets


@pytest.mark.parametrize("seed", range(8))
def test_methods_of_matrices_of_rows(seed):
    _, dense, _ = rows_and_entries(seed)
    n, pair = len(dense), (RowTransitions.from_dense(dense), listed(dense))
    given = [pair, [rows.part(n // 3, n) for rows in pair]]
    given += [[rows.followed_by(rows) for rows in pair], [rows.astype("f4") for rows in pair]]
    given += [[rows.with_expected().part(n // 2, n) for rows in pair]]
    for matrices, entries in given:
        for name in ("shape", "i", "j", "indptr", "shared", "score", "expected"):
            assert_array_equal(getattr(matrices, name), getattr(entries, name))
        some = np.arange(len(entries))[::-2]
        assert_array_equal(matrices.take(some), entries.take(some))
    matrices, entries = (rows.reversed().toarray() for rows in pair)
    assert_array_equal(matrices[1:], entries[1:])  # those of the first row are ignored


@pytest.mark.parametrize("seed", range(8))
def test_answers_of_matrices_of_rows(seed):
    emission, dense, offsets = rows_and_entries(seed)
    L = emission.shape[1]
    questions = [
        lambda t: forward_backward(emission, t, offsets),
        lambda t: viterbi(emission, t, offsets),
        lambda t: [x for one in nbest(emission, t, offsets, 3) for x in one],
        lambda t: [sample(emission, t, offsets, 3, random_state=0), entropy(emission, t, offsets)],
        lambda t: expected_features(emission, t, offsets, pair_features=np.ones((L, L, 1)))[:2],
        lambda t: [max_marginals(emission, t, offsets), decode_online(emission, t, offsets).labels],
    ]
    for ask in questions:
        for got, wanted in zip(ask(dense), ask(listed(dense)), strict=True):
            assert_array_equal(got, wanted)
    pair = [make(dense).with_expected() for make in (RowTransitions.from_dense, listed)]
    for rows in pair:
        forward_backward(emission, rows, offsets)
    assert_array_equal(pair[0].expected, pair[1].expected)

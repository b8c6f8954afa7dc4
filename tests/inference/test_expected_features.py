"""Expected features in one pass: enumeration, the published algorithm, forward-backward."""

import numpy as np
import pytest
from scipy import sparse

from sklseq.inference import RowTransitions, entropy, expected_features, forward_backward
from tests.oracles import enumerate_chain
from tests.reference import expectation_semiring

# Sums of a few dozen terms in float64.
TIGHT = {"rtol": 1e-9, "atol": 1e-10}


def random_chain(seed, scale=1.0, T=None, forbid=True):
    rng = np.random.default_rng(seed)
    T = int(rng.integers(1, 6)) if T is None else T
    L = int(rng.integers(1, 4))
    emission, transition = scale * rng.normal(size=(T, L)), scale * rng.normal(size=(L, L))
    if forbid and L > 1:
        transition[0, 1] = -np.inf
    ends = {"start": scale * rng.normal(size=L), "end": scale * rng.normal(size=L)}
    return emission, transition, ends, rng


def random_features(rng, T, L, M=3):
    return {"row_features": rng.normal(size=(T, L, M)), "pair_features": rng.normal(size=(L, L, M))}


def enumerated(emission, transition, ends, features):
    """(log Z, mean, covariance, entropy) by summing over every path."""
    paths, scores, log_z, _, _ = enumerate_chain(emission, transition, **ends)
    p, t = np.exp(scores - log_z), np.arange(len(emission))
    row, pair = features["row_features"], features["pair_features"]
    F = np.array([row[t, y].sum(axis=0) + pair[y[:-1], y[1:]].sum(axis=0) for y in paths])
    mean = p @ F
    seen = p[p > 0]
    return log_z, mean, (p[:, None] * (F - mean)).T @ (F - mean), -(seen @ np.log(seen))


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("seed", range(12))
def test_enumeration(seed, scale):
    emission, transition, ends, rng = random_chain(seed, scale)
    features = random_features(rng, *emission.shape)
    answer = expected_features(emission, transition, **features, **ends, order=2)
    log_z, mean, covariance, H = enumerated(emission, transition, ends, features)
    np.testing.assert_allclose(answer.log_z[0], log_z, rtol=1e-12)
    np.testing.assert_allclose(answer.mean[0], mean, **TIGHT)
    np.testing.assert_allclose(answer.covariance[0], covariance, **TIGHT)
    np.testing.assert_allclose(answer.entropy[0], H, **TIGHT)
    published = expectation_semiring(emission, transition, **features, **ends)
    np.testing.assert_allclose(published[0], log_z, rtol=1e-12)
    np.testing.assert_allclose(published[1], mean, **TIGHT)


@pytest.mark.parametrize("scale", [1.0, 30.0, 300.0, 3e3])
@pytest.mark.parametrize("seed", range(12))
def test_products_equal_the_log_domain(seed, scale):
    # Rows with an entry are computed in the log domain; the entries here equal the shared scores.
    rng = np.random.default_rng(seed)
    T, L = int(rng.integers(2, 40)), int(rng.integers(2, 20))
    emission, transition = scale * rng.normal(size=(T, L)), scale * rng.normal(size=(L, L))
    transition[rng.random((L, L)) < rng.choice([0, 0.5])] = -np.inf
    transition[np.arange(L), rng.permutation(L)] = 0
    i, j = rng.integers(0, L, size=(2, T))
    in_logs = RowTransitions(transition, np.arange(T + 1), i, j, transition[i, j])
    given = {**random_features(rng, T, L), "start": scale * rng.normal(size=L), "order": 2}
    found = expected_features(emission, transition, **given)
    for value, expected in zip(found, expected_features(emission, in_logs, **given)):
        np.testing.assert_allclose(value, expected, **TIGHT)
    H = entropy(emission, transition, start=given["start"])
    np.testing.assert_array_equal(H, found.entropy)


@pytest.mark.parametrize("seed", range(40))
def test_entropies_near_zero_keep_their_digits(seed):
    # Sums of products alone were off by 1e-13, and negative in 71 of 4,000 problems.
    rng, (T, L) = np.random.default_rng(seed), np.random.default_rng(seed).integers(1, 6, size=2)
    scale = 10 ** rng.uniform(0, 3)
    transition = scale * rng.normal(size=(L, L)) - rng.choice([0, 50, 500], size=(L, L))
    emission = scale * rng.normal(size=(T, L)) * rng.choice([0, 1])
    _, scores, *_ = enumerate_chain(emission, transition)
    below = np.sort(np.longdouble(scores.max()) - scores)  # the best path is first
    p = np.exp(-below) / np.exp(-below).sum()
    log_z = np.log1p(np.exp(-below[1:]).sum())
    expected = float((p[1:] * (below[1:] + log_z)).sum() + p[0] * log_z)
    found = float(entropy(emission, transition)[0])
    assert found >= 0
    # A score of size `scale` is rounded by 1e-16 of it.
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-15 * scale)


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_published_algorithm_on_long_sequences(scale):
    emission, transition, ends, rng = random_chain(3, scale, T=1000)
    features = random_features(rng, *emission.shape)
    ours = expected_features(emission, transition, **features, **ends)
    log_z, mean = expectation_semiring(emission, transition, **features, **ends)
    np.testing.assert_allclose(ours.log_z[0], log_z, rtol=1e-12)
    np.testing.assert_allclose(ours.mean[0], mean, rtol=1e-9, atol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_marginals_are_expected_indicators(seed):
    emission, transition, ends, _ = random_chain(seed, T=40)
    T, L = emission.shape
    one_hot = np.eye(L)[None].repeat(T, axis=0)
    _, marginals, pairwise = forward_backward(emission, transition, **ends)
    mean = expected_features(emission, transition, row_features=one_hot, **ends).mean[0]
    np.testing.assert_allclose(mean, marginals.sum(axis=0), rtol=1e-11)
    pairs = np.eye(L * L).reshape(L, L, -1)
    mean = expected_features(emission, transition, pair_features=pairs, **ends).mean[0]
    np.testing.assert_allclose(mean, pairwise.ravel(), rtol=1e-11, atol=1e-300)


def test_sequences_are_independent_and_may_be_empty_or_sparse():
    emission, transition, ends, rng = random_chain(5, T=9)
    features = random_features(rng, *emission.shape)
    together = expected_features(emission, transition, [0, 4, 4, 9], **features, **ends, order=2)
    for s, (a, b) in enumerate([(0, 4), (4, 4), (4, 9)]):
        row = features["row_features"][a:b]
        alone = expected_features(
            emission[a:b], transition, row_features=row,
            pair_features=features["pair_features"], **ends, order=2,
        )  # fmt: skip
        for field, one in zip(together, alone):
            np.testing.assert_array_equal(field[s], one[0])
    flat = {k: sparse.csr_matrix(v.reshape(-1, v.shape[2])) for k, v in features.items()}
    again = expected_features(emission, transition, [0, 4, 4, 9], **flat, **ends, order=2)
    np.testing.assert_array_equal(again.mean, together.mean)


def test_entropy_does_not_cancel():
    # 10,000 independent rows, each almost certain, under scores of 1e6.
    emission = np.tile([1e6 + 20.0, 1e6], (10_000, 1))
    log_p, q = -np.log1p(np.exp(-20.0)), 1 / (1 + np.exp(20.0))
    expected = -10_000 * ((1 - q) * log_p + q * (log_p - 20))
    # Some 1e4 roundings of 1; log Z - E[score], of the size 1e10, would leave no digit at all.
    np.testing.assert_allclose(entropy(emission, np.zeros((2, 2))), expected, atol=1e-11)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"order": 3}, "order must be 1 or 2; got 3"),
        ({"row_features": np.zeros((2, 2))}, r"row_features must have shape \(3, 2, n_features\)"),
        ({"row_features": sparse.eye(4)}, "A sparse row_features must have 3 · 2 rows; got 4"),
        ({"pair_features": np.full((2, 2, 1), np.nan)}, "pair_features must be finite"),
        (
            {"row_features": np.zeros((3, 2, 1)), "pair_features": np.zeros((2, 2, 2))},
            "same number of features; got 1 and 2",
        ),
    ],
)
def test_errors(change, message):
    with pytest.raises(ValueError, match=message):
        expected_features(np.zeros((3, 2)), np.zeros((2, 2)), **change)


def test_no_path_is_an_error():
    with pytest.raises(ValueError, match="Sequence 1 has no allowed label path"):
        expected_features(np.zeros((3, 1)), [[-np.inf]], [0, 1, 3])


@pytest.mark.parametrize("seed", range(12))
def test_iterators_of_blocks(seed):
    """The numbers of the whole sequence, wherever it is cut."""
    emission, transition, ends, rng = random_chain(seed, T=6)
    features = random_features(rng, *emission.shape)
    whole = expected_features(emission, transition, **features, **ends)
    cuts = np.sort(rng.choice(np.arange(1, 6), rng.integers(0, 4), replace=False))
    parts = features | {"row_features": iter(np.split(features["row_features"], cuts))}
    answer = expected_features(iter(np.split(emission, cuts)), transition, **parts, **ends)
    np.testing.assert_allclose(answer.log_z, whole.log_z, rtol=1e-12)
    np.testing.assert_allclose(answer.mean, whole.mean, **TIGHT)
    np.testing.assert_allclose(answer.entropy, whole.entropy, **TIGHT)
    H = entropy(iter(np.split(emission, cuts)), transition, **ends)
    np.testing.assert_allclose(H, whole.entropy, **TIGHT)


def refilled(blocks):
    """Yield the blocks, all in the memory of one array."""
    blocks = list(blocks)
    memory = np.empty((max(map(len, blocks)), *blocks[0].shape[1:]))
    for block in blocks:
        memory[: len(block)] = block
        yield memory[: len(block)]


@pytest.mark.parametrize("seed", range(12))
def test_readers_may_fill_the_same_memory_again(seed):
    emission, transition, ends, rng = random_chain(seed, T=6)
    f, cuts = random_features(rng, *emission.shape)["row_features"], [1, 3, 5]
    whole = expected_features(emission, transition, row_features=f, **ends)
    blocks = (refilled(np.split(rows, cuts)) for rows in (emission, f))
    answer = expected_features(next(blocks), transition, row_features=next(blocks), **ends)
    np.testing.assert_allclose(answer.mean, whole.mean, **TIGHT)
    np.testing.assert_allclose(answer.entropy, whole.entropy, **TIGHT)


@pytest.mark.parametrize(("n", "n_other"), [(1, 2), (2, 1), (1, 0), (0, 1)])
def test_blocks_of_scores_and_features_are_as_many(n, n_other):
    scores, f = iter([np.zeros((3, 2))] * n), iter([np.zeros((3, 2, 1))] * n_other)
    with pytest.raises(ValueError, match=r"ends before block . of (emission|row_features); give"):
        expected_features(scores, np.zeros((2, 2)), row_features=f)


@pytest.mark.parametrize("seed", range(6))
def test_sparse_features_are_read_only(seed):
    """Repeated entries and zeros in any order, which are added up in a copy."""
    emission, transition, _, rng = random_chain(seed, T=4)
    T, L = emission.shape
    given = {}
    for name, n in (("row_features", T * L), ("pair_features", L * L)):
        parts = rng.integers(0, 3, 3 * n).astype(float), rng.integers(0, 3, 3 * n)
        given[name] = sparse.csr_matrix((*parts, np.arange(0, 3 * n + 1, 3)), shape=(n, 3))
    arrays = [x for f in given.values() for x in (f.data, f.indices, f.indptr)]
    before = [x.copy() for x in arrays]
    for x in arrays:
        x.flags.writeable = False
    answer = expected_features(emission, transition, **given)
    assert all(np.array_equal(a, b) for a, b in zip(arrays, before))
    assert [f.nnz for f in given.values()] == [3 * T * L, 3 * L * L]
    dense = {name: f.toarray().reshape(-1, L, 3) for name, f in given.items()}
    np.testing.assert_allclose(
        answer.mean, expected_features(emission, transition, **dense).mean, **TIGHT
    )

"""Online decoding with transition scores of single rows: definition, Viterbi, no look ahead."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklseq.inference import RowTransitions, decode_online, forward_backward, viterbi
from tests import reference
from tests.inference.test_online_inference import STRATEGIES, random_chain, random_rule


def chain_of_rows(seed, **kind):
    """(emission, transition of rows, start, end): about half of the rows have entries."""
    emission, shared, start, end = random_chain(seed, **kind)
    rng, (T, L) = np.random.default_rng(seed), emission.shape
    has = rng.random((T, L, L)) < rng.choice([0, 0.3, 1.0], size=T)[:, None, None]
    row, i, j = np.nonzero(has)
    score = random_scores(rng, len(row), **{k: v for k, v in kind.items() if k != "dead_ends"})
    score[i == j] = 0  # there always is a way on
    rows = RowTransitions(shared, np.searchsorted(row, np.arange(T + 1)), i, j, score)
    return emission, rows, start, end


def random_scores(rng, n, *, ties=False, forbidden=False, dtype=np.float64):
    scores = rng.integers(-2, 3, n) if ties else rng.choice([0.3, 1, 3]) * rng.standard_normal(n)
    scores = scores.astype(dtype)
    if forbidden:
        scores[rng.random(n) < 0.3] = -np.inf
    return scores


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(30))
def test_labels_and_times_are_those_of_the_definition(strategy, seed):
    kind = {"ties": seed % 3 == 0 and strategy != "window", "forbidden": seed % 4 == 0}
    emission, rows, start, end = chain_of_rows(seed, **kind)
    rule = random_rule(seed)
    labels, times = reference.decode_online(
        emission, rows.toarray(), start, end, strategy=strategy, **rule
    )
    for transition in (rows, rows.toarray()):
        paths = decode_online(emission, transition, start=start, end=end, strategy=strategy, **rule)
        assert_array_equal(paths.labels, labels)
        assert_array_equal(paths.latency, times - np.arange(len(times)))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_dead_ends_are_those_of_the_shared_scores(strategy):
    n_done = 0
    for seed in range(30):
        emission, rows, start, end = chain_of_rows(seed, dead_ends=True)
        rule = random_rule(seed)
        given, ends = rows.toarray(), {"start": start, "end": end, "strategy": strategy}
        try:
            labels, times = reference.decode_online(
                emission, given, **ends, **rule, shared=rows.shared
            )
        except ValueError:
            with pytest.raises(ValueError, match="No label is allowed"):
                decode_online(emission, rows, **ends, **rule)
            continue
        paths = decode_online(emission, rows, **ends, **rule)
        assert_array_equal(paths.labels, labels)
        assert_array_equal(paths.latency, times - np.arange(len(times)))
        n_done += 1
    assert n_done > 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    "rule",
    [
        {"strategy": "closure"},
        {"strategy": "viterbi"},
        {"latency_cost": 0},
        {"strategy": "window", "latency_cost": 0, "belief": "forward"},
        {"lag": 15},
    ],
    ids=str,
)
def test_lossless_rules_equal_offline_viterbi(rule, ties, dtype):
    for seed in range(40):
        emission, rows, start, end = chain_of_rows(seed, ties=ties, forbidden=seed % 2, dtype=dtype)
        expected, _ = viterbi(emission, rows, start=start, end=end)
        paths = decode_online(emission, rows, start=start, end=end, **rule)
        assert_array_equal(paths.labels, expected)


@pytest.mark.parametrize("restart", ["always", "conflict"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_has_left_depends_on_no_later_row(strategy, restart):
    rule = {"strategy": strategy, "window_size": 3, "restart": restart, "latency_cost": 0.1}
    rule["max_latency"] = 2 if strategy == "viterbi" else None
    n_left = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        T, L, known = 12, 3, int(rng.integers(1, 12))
        found = []
        for future in range(3):
            own, other = np.random.default_rng(seed), np.random.default_rng(100 * seed + future)
            emission, dense = own.standard_normal((T, L)), 2 * own.standard_normal((T, L, L))
            emission[known:] = other.standard_normal((T - known, L))
            dense[known:] = 9 * other.standard_normal((T - known, L, L))
            found.append(decode_online(emission, dense, **rule))
        left = np.arange(T) + found[0].latency < known
        n_left += left.sum()
        for paths in found[1:]:
            assert_array_equal(np.arange(T) + paths.latency < known, left)
            for now, before in zip(paths, found[0]):
                assert_array_equal(now[left], before[left])
    assert n_left > 40


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_confidence_is_the_marginal_given_the_rows_so_far(strategy):
    rng = np.random.default_rng(0)
    emission, dense = rng.standard_normal((20, 4)), rng.standard_normal((20, 4, 4))
    end = np.arange(4.0)
    rule = {"strategy": strategy, "window_size": 4, "max_latency": 3}
    paths = decode_online(emission, dense, end=end, **rule)
    for t, (label, waited) in enumerate(zip(paths.labels, paths.latency)):
        seen = t + waited + 1
        close = [
            abs(forward_backward(emission[:seen], dense[:seen], end=e).marginals[t, label] - c)
            for e in ([None, end] if seen == 20 else [None])
            for c in paths.confidence[t : t + 1]
        ]
        assert min(close) < 1e-12


def test_labels_of_least_risk_are_those_of_fixed_lag_marginals():
    rng = np.random.default_rng(1)
    emission, dense = rng.standard_normal((15, 3)), 2 * rng.standard_normal((15, 3, 3))
    paths = decode_online(emission, dense, lag=2, decide="marginal")
    for t in range(13):
        marginals = forward_backward(emission[: t + 3], dense[: t + 3]).marginals[t]
        assert paths.latency[t] == 2
        assert paths.labels[t] == marginals.argmax()
        assert_allclose(paths.confidence[t], marginals.max(), rtol=1e-12)


def test_sequences_are_decoded_each_by_itself_and_same_matrices_as_one():
    rng = np.random.default_rng(2)
    emission, shared = rng.standard_normal((30, 3)), rng.standard_normal((3, 3))
    dense, offsets = rng.standard_normal((30, 3, 3)), [0, 11, 11, 30]
    paths = decode_online(emission, dense, offsets, latency_cost=0.1)
    for a, b in ((0, 11), (11, 30)):
        alone = decode_online(emission[a:b], dense[a:b], latency_cost=0.1)
        for part, whole in zip(alone, paths):
            assert_array_equal(part, whole[a:b])
    same = decode_online(emission, np.repeat(shared[None], 30, axis=0), latency_cost=0.1)
    plain = decode_online(emission, shared, latency_cost=0.1, early=False)
    assert_array_equal(same.labels, plain.labels)
    assert_array_equal(same.latency, plain.latency)
    assert_allclose(same.confidence, plain.confidence, rtol=1e-12)


def test_entries_whose_sums_would_overflow_leave_no_room_for_emissions():
    rows = RowTransitions(np.zeros((2, 2)), [0, 0, 1], [0], [1], [1e308])
    with pytest.raises(ValueError, match=r"^Label 0 of row 1 of sequence 0 .* do not overflow"):
        decode_online(np.array([[0.0, 0.0], [1.5e308, 0.0]]), rows)

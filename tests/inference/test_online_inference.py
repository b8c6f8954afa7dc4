"""Online decoding of given potentials: against the definition, against Viterbi, worked cases."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from sklseq.inference import decode_online, forward_backward, viterbi
from sklseq.inference.chain.online_rules import OnlineRule
from tests import reference

INF = np.inf
STRATEGIES = ["step", "window", "closure", "chunk", "viterbi"]


def random_chain(seed, *, ties=False, forbidden=False, dead_ends=False, dtype=np.float64):
    """(emission, transition, start, end); with ties all scores are small integers.

    With dead ends some labels, or all, are followed by nothing or lead to such labels only.
    """
    rng = np.random.default_rng(seed)
    L, T = int(rng.integers(1, 6)), int(rng.integers(1, 15))

    def scores(*shape):
        if ties:
            return rng.integers(-2, 3, shape).astype(dtype)
        return (rng.choice([0.3, 1, 3]) * rng.standard_normal(shape)).astype(dtype)

    emission, transition, start, end = scores(T, L), scores(L, L), scores(L), scores(L)
    if forbidden:
        transition[rng.random((L, L)) < 0.3] = -INF
        np.fill_diagonal(transition, 0)  # there always is a way on
    if dead_ends:
        order = rng.permutation(L)
        for k, label in enumerate(order[: rng.integers(1, L + 1)]):
            transition[label, order[k:]] = -INF
    return emission, transition, start, end


def random_rule(seed):
    rng = np.random.default_rng(seed)
    return {
        "latency_cost": float(rng.choice([0, 0.013, 0.11, 0.5])),
        "uncertainty": str(rng.choice(["error", "entropy", "ambiguity"])),
        "belief": str(rng.choice(["viterbi", "forward"])),
        "restart": str(rng.choice(["conflict", "always"])),
        "window_size": int(rng.integers(1, 5)),
        "max_latency": [None, 0, 1, 3][rng.integers(4)],
        "early": bool(rng.integers(2)),
    }


def long_chain(seed, T=400, L=5, scale=0.7):
    rng = np.random.default_rng(seed)
    emission, transition = rng.standard_normal((T, L)), rng.standard_normal((L, L))
    return scale * emission, scale * transition + np.eye(L)


# ------------------------------------------------------------------ the definition


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("seed", range(120))
def test_labels_and_times_are_those_of_the_definition(strategy, seed):
    # Where expected losses are equal, "window" is decided by rounding: no ties for it.
    chain = random_chain(seed, ties=seed % 3 == 0 and strategy != "window", forbidden=seed % 4 == 0)
    emission, transition, start, end = chain
    rule = random_rule(seed)
    paths = decode_online(emission, transition, start=start, end=end, strategy=strategy, **rule)
    labels, times = reference.decode_online(*chain, strategy=strategy, **rule)
    assert_array_equal(paths.labels, labels)
    assert_array_equal(paths.latency, times - np.arange(len(times)))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_dead_ends_leave_as_the_definition_says_and_never_end_a_sequence(strategy):
    raised = differ = 0
    for seed in range(60):
        ties = seed % 3 == 0 and strategy != "window"
        chain = random_chain(seed, ties=ties, forbidden=seed % 4 == 0, dead_ends=True)
        emission, transition, start, end = chain
        rule = random_rule(seed)
        try:
            labels, times = reference.decode_online(*chain, strategy=strategy, **rule)
        except ValueError:
            assert not reference.can_go_on(transition).any()
            raised += 1
            with pytest.raises(ValueError, match="No label is allowed"):
                decode_online(emission, transition, start=start, end=end, strategy=strategy, **rule)
            continue
        paths = decode_online(emission, transition, start=start, end=end, strategy=strategy, **rule)
        assert_array_equal(paths.labels, labels)
        assert_array_equal(paths.latency, times - np.arange(len(times)))
        differ += (labels != viterbi(emission, transition, start=start, end=end)[0]).any()
    assert 0 < raised < 40
    assert differ > 5 * (strategy != "closure")


@pytest.mark.parametrize("costs", [False, True])
def test_labels_of_least_risk_are_no_dead_ends_before_the_end(costs):
    passed_over = 0
    for seed in range(40):
        emission, transition, start, end = random_chain(seed, dead_ends=True)
        rng, (T, L) = np.random.default_rng(seed), emission.shape
        goes_on = reference.can_go_on(transition)
        if not goes_on.any():
            continue
        cost = rng.random((L, L)) if costs else 1 - np.eye(L)
        rule = {"lag": int(rng.integers(3)), "decide": "marginal"}
        rule |= {"label_costs": cost} if costs else {}
        paths = decode_online(emission, transition, start=start, end=end, **rule)
        for t in range(T):
            seen = t + rule["lag"] + 1
            if seen > T:
                continue
            share = forward_backward(emission[:seen], transition, start=start).marginals[t]
            risk = share @ cost
            assert paths.labels[t] == np.where(goes_on, risk, INF).argmin()
            passed_over += not goes_on[risk.argmin()]
    assert passed_over > 10


def test_a_label_that_nothing_follows_waits_for_the_end():
    # Only the end of the sequence can tell whether label 1 is right: it ends all that it is in.
    transition, emission = np.array([[0.0, 0.0], [-INF, -INF]]), np.array([[2.0, 0.0], [0.0, 2.0]])
    paths = decode_online(emission, transition, latency_cost=0.2)
    assert paths.labels.tolist() == [0, 1]
    longer = decode_online(np.vstack([emission, emission[:1]]), transition, latency_cost=0.2)
    assert longer.labels.tolist() == [0, 0, 0]
    assert longer.latency.tolist() == [0, 1, 0]
    assert decode_online(emission, transition, lag=0).labels.tolist() == [0, 0]


def test_a_loss_equal_to_the_price_of_waiting_is_paid():
    # Two paths that never meet, equally likely: of n pending labels n / 2 are expected wrong, and
    # waiting has cost n - 1. Both are 1, exactly, at the second row.
    transition = np.where(np.eye(2, dtype=bool), 0, -np.inf)
    rule = {"strategy": "window", "latency_cost": 1.0, "early": False}
    paths = decode_online(np.zeros((6, 2)), transition, **rule)
    _, times = reference.decode_online(np.zeros((6, 2)), transition, **rule)
    assert paths.latency[:2].tolist() == [1, 0]
    assert times[:2].tolist() == [1, 1]
    # One row earlier, one label of each path is pending: 1 / 2 is expected wrong, for a price of 1.
    assert decode_online(np.zeros((6, 2)), transition, **rule | {"early": True}).latency[0] == 0


def test_a_callable_measure_is_the_built_in_one():
    emission, transition = long_chain(0)
    for name, measure in [
        ("error", lambda p: np.delete(p, p.argmax()).sum()),
        ("entropy", lambda p: -sum(x * np.log(x) for x in p if x > 0)),
        ("ambiguity", lambda p: 1),
    ]:
        built_in = decode_online(emission, transition, uncertainty=name, latency_cost=0.04)
        own = decode_online(emission, transition, uncertainty=measure, latency_cost=0.04)
        assert_array_equal(own.labels, built_in.labels)
        assert_array_equal(own.latency, built_in.latency)


@pytest.mark.parametrize("restart", ["always", "conflict"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_confidence_is_the_marginal_given_the_rows_so_far(strategy, restart):
    emission, transition = long_chain(1, T=30)
    end = np.arange(5.0)
    rule = {"strategy": strategy, "window_size": 4, "restart": restart}
    paths = decode_online(emission, transition, end=end, **rule)
    for t, (label, waited) in enumerate(zip(paths.labels, paths.latency)):
        seen = t + waited + 1
        ends = [end] if seen == 30 else [None]
        # In the last push labels can leave before the end is known.
        ends += [None] if strategy != "viterbi" and seen == 30 else []
        marginals = [
            forward_backward(emission[:seen], transition, end=e).marginals[t, label] for e in ends
        ]
        # rtol: the same sums in another order.
        assert min(abs(m - paths.confidence[t]) for m in marginals) < 1e-12
    assert (paths.latency > 0).any()


def test_labels_that_differ_from_viterbi_are_not_certain():
    # The case of the report: restarts after early labels made later ones look certain.
    emission, transition = long_chain(7, T=4000, scale=1.0)
    expected, _ = viterbi(emission, transition)
    paths = decode_online(emission, transition, latency_cost=0.05, restart="always")
    wrong = paths.labels != expected
    assert wrong.sum() > 30
    assert (paths.confidence[wrong] < 0.9999).all()


@pytest.mark.parametrize("rule", [{"latency_cost": 0.05}, {"lag": 2}, {"strategy": "closure"}])
def test_confidence_is_calibrated_on_data_drawn_from_the_model(rule):
    # Labels drawn from a chain, rows whose likelihood ratios are the scores: then p(y | rows) is
    # the model's, and of labels with confidence c a share of c is right.
    rng, L, T = np.random.default_rng(0), 3, 40_000
    transition = np.log(rng.dirichlet(np.ones(L), size=L))
    y = np.zeros(T, dtype=int)
    for t, u in enumerate(rng.random(T - 1), start=1):
        y[t] = np.searchsorted(np.exp(transition[y[t - 1]]).cumsum()[:-1], u)
    emission = np.eye(L)[y] + rng.normal(size=(T, L))  # N(e_y, 1): log-likelihood x_y + constant
    paths = decode_online(emission, transition, start=[0, -INF, -INF], **rule)
    right = paths.labels == y
    groups = np.digitize(paths.confidence, np.linspace(0, 1, 11)[1:-1])
    n = np.bincount(groups, minlength=10)
    gap = np.abs(np.bincount(groups, right - paths.confidence, minlength=10))
    # A share of n labels strays by 0.5 / sqrt(n); four of these.
    assert (gap <= 2 * np.sqrt(n)).all()
    assert gap.sum() / T < 0.01
    assert (n > 1000).sum() >= 4


@pytest.mark.parametrize(("dtype", "score"), [(np.float32, 3.4e38), (np.float64, 1.7e308)])
def test_scores_whose_sums_would_overflow_are_refused(dtype, score):
    emission = np.zeros((5, 2), dtype=dtype)
    emission[3, 1] = score
    with pytest.raises(ValueError, match=r"^Label 1 of row 1 of sequence 1 has .* do not overflow"):
        decode_online(emission, np.full((2, 2), score / 4, dtype=dtype), [0, 2, 5])


# ------------------------------------------------------------------ Viterbi's algorithm


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize(
    "rule",
    [
        {"strategy": "closure"},
        {"strategy": "viterbi"},
        {"strategy": "step", "latency_cost": 0},
        {"strategy": "window", "latency_cost": 0},
        {"strategy": "step", "latency_cost": 0, "belief": "forward", "restart": "always"},
    ],
    ids=str,
)
def test_lossless_rules_equal_offline_viterbi(rule, ties, dtype):
    for seed in range(60):
        chain = random_chain(seed, ties=ties, forbidden=seed % 2, dtype=dtype)
        emission, transition, start, end = chain
        emission = np.tile(emission, (20, 1))
        expected, _ = viterbi(emission, transition, start=start, end=end)
        labels, _, confidence = decode_online(emission, transition, start=start, end=end, **rule)
        assert_array_equal(labels, expected)
        assert ((confidence > 0) & (confidence <= 1)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_closure_one_row_ahead_is_earlier_and_gives_the_same_labels(dtype):
    waited = np.zeros(2)
    for seed in range(200):
        emission, *chain = random_chain(seed, ties=seed % 3 == 0, forbidden=seed % 2, dtype=dtype)
        emission, ends = np.tile(emission, (4, 1)), dict(zip(("start", "end"), chain[1:]))
        late, early = (
            decode_online(emission, chain[0], **ends, strategy="closure", early=early)
            for early in (False, True)
        )
        assert_array_equal(early.labels, late.labels)
        assert (early.latency <= late.latency).all()
        waited += late.latency.mean(), early.latency.mean()
    assert waited[1] < waited[0] - 100


def test_a_label_that_no_row_follows_is_the_best_end():
    # Every label at row 1 has label 0 before it. If the sequence ends at row 0, label 1 is best.
    transition, end = np.array([[5.0, 5.0], [0.0, 0.0]]), np.array([0.0, 9.0])
    stay, stop = (
        decode_online(np.zeros((n, 2)), transition, end=end, strategy="closure") for n in (2, 1)
    )
    assert (stay.labels[0], stop.labels[0]) == (0, 1)
    assert stay.latency[0] == 1
    paths = decode_online(np.zeros((2, 2)), transition, strategy="closure")
    assert (paths.labels[0], paths.latency[0]) == (0, 0)


def test_float32_rounds_like_the_batch_algorithm():
    # Scores on a grid so coarse that float32 sums collide: ties must fall as they do in batch.
    rng = np.random.default_rng(0)
    for _ in range(30):
        emission = (1e5 + rng.integers(0, 4, (300, 6)) * 2.0**-7).astype(np.float32)
        transition = (rng.integers(0, 4, (6, 6)) * 2.0**-9).astype(np.float32)
        expected, _ = viterbi(emission, transition)
        assert_array_equal(decode_online(emission, transition, strategy="closure").labels, expected)


def test_an_ambiguity_measure_without_cost_is_the_closure():
    emission, transition = long_chain(2)
    closure = decode_online(emission, transition, strategy="closure")
    paths = decode_online(emission, transition, uncertainty="ambiguity", latency_cost=1e-9)
    assert_array_equal(paths.labels, closure.labels)
    assert_array_equal(paths.latency, closure.latency)


# ------------------------------------------------------------------ what always holds


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("max_latency", [0, 1, 2, 7])
def test_latency_never_exceeds_max_latency(strategy, max_latency):
    emission, transition = long_chain(3, scale=0.2)
    paths = decode_online(
        emission, transition, strategy=strategy, latency_cost=0.001, window_size=9,
        max_latency=max_latency,
    )  # fmt: skip
    assert paths.latency.max() == max_latency


def test_fixed_lag_waits_exactly_so_long():
    emission, transition = long_chain(4)
    for lag in (0, 1, 5):
        latency = decode_online(emission, transition, lag=lag).latency
        assert (latency[: len(latency) - lag] == lag).all()
        assert_array_equal(latency[len(latency) - lag :], np.arange(lag)[::-1])


@pytest.mark.parametrize("restart", ["conflict", "always"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_emitted_labels_form_an_allowed_path(strategy, restart):
    for seed in range(150):
        rng = np.random.default_rng(seed)
        L = 4
        transition = np.where(rng.random((L, L)) < 0.5, -INF, 0.0)
        transition[np.arange(L), (np.arange(L) + 1) % L] = 0  # there always is a way on
        start = np.where(np.arange(L) == seed % L, 0.0, -INF)
        rule = random_rule(seed) | {"restart": restart, "window_size": 3, "max_latency": seed % 3}
        labels = decode_online(
            2 * rng.standard_normal((40, L)), transition, start=start, strategy=strategy, **rule
        ).labels
        assert labels[0] == seed % L
        assert (transition[labels[:-1], labels[1:]] == 0).all()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sequences_do_not_influence_each_other(strategy):
    emission, transition = long_chain(5, T=60)
    offsets, rule = np.array([0, 0, 1, 17, 40, 60, 60]), {"strategy": strategy, "window_size": 4}
    together = decode_online(emission, transition, offsets, **rule)
    for a, b in itertools.pairwise(offsets):
        alone = decode_online(emission[a:b], transition, **rule)
        assert_array_equal(together.labels[a:b], alone.labels)
        assert_array_equal(together.latency[a:b], alone.latency)
        assert_array_equal(together.confidence[a:b], alone.confidence)


def test_waiting_longer_never_costs_more_errors_than_not_waiting():
    emission, transition = long_chain(6, T=4000, scale=1.0)
    expected, _ = viterbi(emission, transition)
    wrong, latency = [], []
    for cost in (1.0, 0.1, 0.01, 0.0):
        paths = decode_online(emission, transition, latency_cost=cost)
        wrong.append((paths.labels != expected).mean())
        latency.append(paths.latency.mean())
    assert wrong == sorted(wrong, reverse=True)
    assert latency == sorted(latency)
    assert wrong[0] > 0.01
    assert wrong[-1] == 0


def test_restarting_only_in_conflict_disagrees_less_with_viterbi():
    emission, transition = long_chain(7, T=20_000, scale=1.0)
    expected, _ = viterbi(emission, transition)
    wrong = {
        restart: (decode_online(emission, transition, restart=restart).labels != expected).mean()
        for restart in ("conflict", "always")
    }
    assert wrong["conflict"] < 0.9 * wrong["always"]


def test_the_forward_filter_survives_factors_that_underflow():
    # Transitions so unlikely that products of probabilities are 0 in float64.
    rng = np.random.default_rng(8)
    transition = np.where(np.eye(3, dtype=bool), 0, -800.0)
    emission = 900 * rng.standard_normal((50, 3))
    paths = decode_online(emission, transition, belief="forward", latency_cost=0.1)
    labels, times = reference.decode_online(
        emission, transition, belief="forward", latency_cost=0.1
    )
    assert_array_equal(paths.labels, labels)
    assert_array_equal(paths.latency, times - np.arange(50))
    assert np.isfinite(paths.confidence).all()


# ------------------------------------------------------------------ the paper's worked cases

A, B, C, D = range(4)


def chain_of_pointers(pointers, n_labels=4):
    """A chain whose back-pointers are these, one list a row from the second on.

    Transitions are the same at all rows, so its labels are pairs (predecessor, label), of which
    each row allows those of its back-pointers.
    """
    pairs = [(i, j) for i in range(n_labels) for j in range(n_labels)]
    transition = np.array([[0.0 if p[1] == q[0] else -INF for q in pairs] for p in pairs])
    emission = np.full((1 + len(pointers), len(pairs)), -INF)
    for k, (i, j) in enumerate(pairs):
        emission[0, k] = 0.0 if i == j else -INF
        for t, previous in enumerate(pointers, start=1):
            emission[t, k] = 0.0 if previous[j] == i else -INF
    return emission, transition, np.array([j for _, j in pairs])


def closure_times(pointers):
    emission, transition, second = chain_of_pointers(pointers)
    paths = decode_online(emission, transition, strategy="closure")
    return second[paths.labels], paths.latency + np.arange(len(emission))


def test_figure_1_labels_leave_when_all_pointers_meet():
    # At time 3 all labels come from B; the path to it is C, C, B. Figure 1.
    pointers = [[C, A, C, D], [A, C, D, B], [B, B, B, B], [A, B, C, D]]
    labels, times = closure_times(pointers)
    assert labels[:3].tolist() == [C, C, B]
    assert times[:3].tolist() == [3, 3, 3]
    assert times[3:].tolist() == [4, 4]


def test_figure_3_labels_leave_without_a_common_predecessor():
    # At time 3 the labels come from A and B at time 2, those from C and D, or C alone, at time 1,
    # but C is the label at times 0 and 1 whichever wins. Figure 3.
    pointers = [[C, D, C, D], [C, C, D, D], [A, B, A, B], [A, B, C, D]]
    labels, times = closure_times(pointers)
    assert labels[:2].tolist() == [C, C]
    assert times[:2].tolist() == [3, 3]
    assert times[2] > 3


def test_figure_2_fixed_windows_take_a_path_that_waiting_avoids():
    # A leads on only through A, A. Windows of three are drawn to B, B, B and cannot go on as the
    # best path does; the lossless strategy knows better. Figure 2.
    transition = np.zeros((2, 2))
    transition[0, 1] = transition[1, 0] = -4.0
    emission = np.array([[0.0, 1], [0, 1], [0, 1], [9, 0], [0, 0], [0, 0]])
    expected, _ = viterbi(emission, transition)
    assert expected.tolist() == [A] * 6
    chunks = decode_online(emission, transition, strategy="chunk", window_size=3)
    assert chunks.labels[:3].tolist() == [B, B, B]
    assert_array_equal(decode_online(emission, transition, strategy="closure").labels, expected)
    shifted = decode_online(emission, transition, strategy="chunk", window_size=4)
    assert_array_equal(shifted.labels, expected)


# ------------------------------------------------------------------ Lemma 1


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("uncertainty", ["error", "entropy"])
def test_stopping_time_is_within_the_factor_two_of_lemma_1(uncertainty, early):
    # f(T) = M_T + λ T of the first label; where M never rises, f(stop) <= 2 min f + λ, and without
    # the λ if the price is that of one more row.
    met = late = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        emission, transition = rng.standard_normal((25, 3)), rng.standard_normal((3, 3))
        cost = float(rng.choice([0.003, 0.02, 0.1, 0.3]))
        belief = ("viterbi", "forward")[seed % 2]
        rule = {"uncertainty": uncertainty, "early": early, "belief": belief}
        decoder = reference.OnlineReference(transition, **rule)
        m = []
        for row in emission:
            decoder.psi.append(row)
            m.append(decoder.measure()[0])
            if m[-1] > min(m):
                break
        if m[-1] > min(m):
            continue
        met += 1
        stop = decode_online(emission, transition, latency_cost=cost, **rule).latency[0]
        f = np.array(m) + cost * np.arange(len(m))
        late += stop > f.argmin()
        assert f[stop] <= 2 * f.min() + cost * (not early)
    assert met > 25  # inputs that meet the assumption of the lemma
    assert late > 2 * (not early)  # and on which the rule is not simply the best one


# ------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"strategy": "greedy"}, r"strategy must be one of \('step', .*; got 'greedy'"),
        ({"uncertainty": "variance"}, r"uncertainty must be one of .* function .*'variance'"),
        ({"belief": "gibbs"}, r"belief must be one of \('viterbi', 'forward'\); got 'gibbs'"),
        ({"restart": "never"}, r"restart must be one of \('always', 'conflict'\); got 'never'"),
        ({"latency_cost": -0.1}, r"latency_cost must be a finite number of at least 0; got -0.1"),
        ({"latency_cost": np.nan}, r"latency_cost must be a finite number .*; got nan"),
        ({"latency_cost": INF}, r"latency_cost must be a finite number .*; got inf"),
        ({"latency_cost": "low"}, r"latency_cost must be a finite number .*; got 'low'"),
        ({"strategy": "chunk"}, r'strategy="chunk" needs window_size'),
        ({"window_size": 0}, r"window_size must be an integer of at least 1; got 0"),
        ({"max_latency": -1}, r"max_latency must be an integer of at least 0; got -1"),
        ({"lag": 1.5}, r"lag must be an integer of at least 0; got 1.5"),
        ({"lag": 2, "max_latency": 3}, r"lag=2 and max_latency=3 exclude each other"),
    ],
)
def test_errors_of_rules(rule, message):
    with pytest.raises(ValueError, match=message):
        OnlineRule.checked(**rule)
    with pytest.raises(ValueError, match=message):
        decode_online(np.zeros((2, 2)), np.zeros((2, 2)), **rule)


def test_errors_of_paths_that_are_not_allowed():
    forbidden = np.array([[0, -INF], [-INF, 0]])
    emission = np.array([[9.0, 0], [0, 9.0], [-INF, 9.0]])
    with pytest.raises(ValueError, match=r"No label is allowed at row 2 of sequence 1"):
        decode_online(np.vstack([emission[:2], emission]), forbidden, [0, 2, 5], lag=0)
    with pytest.raises(ValueError, match=r"at the end, after row 2 of sequence 0"):
        decode_online(emission, np.zeros((2, 2)), end=[-INF, -INF], strategy="viterbi")
    with pytest.raises(ValueError, match="returned nan"):
        decode_online(np.zeros((2, 2)), np.eye(2), uncertainty=lambda p: np.nan)


def test_an_end_that_is_forbidden_after_a_label_left_is_passed_over():
    labels = decode_online([[0.0, 1.0]], np.zeros((2, 2)), end=[0, -INF], lag=0).labels
    assert labels.tolist() == [1]

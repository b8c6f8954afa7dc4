"""States that last and single rows that say little: evidence has to add up over many rows."""

from functools import cache

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator

from sklseq import CRFTagger, OnlineDecoder
from sklseq.inference import decode_online

from .test_online_clock import decoder_of

RULES = (
    {}, {"latency_cost": 0.1}, {"early": False}, {"uncertainty": "entropy"},
    {"strategy": "window"}, {"strategy": "window", "latency_cost": 0.1},
    {"strategy": "closure"}, {"strategy": "closure", "max_latency": 5},
    {"strategy": "chunk", "window_size": 1}, {"strategy": "chunk", "window_size": 7},
    {"lag": 0}, {"lag": 5}, {"lag": 20}, {"max_latency": 0}, {"max_latency": 10},
    {"strategy": "window", "max_latency": 5}, {"latency_cost": 0, "max_latency": 50},
)  # fmt: skip


@cache
def long_states(seed, n=4000):
    """Log likelihoods, log transitions, states and filtered posterior: runs of 30 to 300 rows."""
    rng = np.random.default_rng(seed)
    L, length = int(rng.integers(2, 6)), float(rng.choice([30, 100, 300]))
    means = rng.uniform(0.3, 0.8) * rng.standard_normal((L, 3))
    states = np.empty(n, dtype=int)
    states[0], leaves = 0, rng.random(n) < 1 / length
    for t in range(1, n):
        states[t] = (states[t - 1] + leaves[t] * rng.integers(1, L)) % L
    x = means[states] + rng.standard_normal((n, 3))
    transition = np.full((L, L), 1 / length / (L - 1))
    np.fill_diagonal(transition, 1 - 1 / length)
    chain = -((x[:, None] - means) ** 2).sum(axis=2) / 2, np.log(transition)
    return *chain, states, decode_online(*chain, lag=0, decide="marginal").labels


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_labels_of_long_states_are_no_worse_than_the_filtered_posterior(rule):
    gains = []
    for seed in range(5):
        emission, transition, states, filtered = long_states(seed)
        labels = decode_online(emission, transition, **rule).labels
        gains.append((labels == states).mean() - (filtered == states).mean())
    assert min(gains) > -0.005
    waits = rule.get("max_latency", rule.get("lag", 9)) > 0 and rule.get("window_size") != 1
    assert np.mean(gains) >= 0.01 * waits


def test_labels_committed_at_once_are_those_of_the_filtered_posterior():
    # As with max_wait, when rows come slowly.
    for seed in range(3):
        emission, transition, _, filtered = long_states(seed, n=300)
        zeros = np.zeros(len(transition))
        stream = decoder_of(transition, zeros, zeros, {}).stream()
        labels = []
        for row in emission:
            given = stream.push_potentials(row) + stream.commit()
            labels += [e.label for e in given]
        assert (labels == filtered).mean() > 0.98  # labels on which survivors agree may differ


def test_the_papers_rule_never_leaves_a_state_that_lasts():
    # Why restart="conflict" is the default: a row by itself never outweighs a change of state.
    rng = np.random.default_rng(0)
    y = [np.repeat(rng.integers(2, size=10), 100) for _ in range(12)]
    X = [rng.normal(loc=0.5 * z[:, None]) for z in y]
    model = FrozenEstimator(CRFTagger().fit(X[:6], y[:6]))
    filtered = OnlineDecoder(model, lag=0, decide="marginal").score(X[6:], y[6:])
    assert OnlineDecoder(model).score(X[6:], y[6:]) > filtered + 0.01
    paper = OnlineDecoder(model, belief="viterbi", restart="always", early=False)
    assert paper.score(X[6:], y[6:]) < filtered - 0.1

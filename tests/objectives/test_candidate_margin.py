"""Softmax-margin over lists of candidates: by its formula, and against finite differences."""

import numpy as np
from scipy import sparse
from scipy.optimize import check_grad
from scipy.special import logsumexp

from sklseq.objectives.segment.candidate_margin import CandidateMargin, softmax_of_lists


def problem(seed):
    rng = np.random.default_rng(seed)
    offsets = np.cumsum([0, *rng.integers(1, 6, size=5)])
    n, k = int(offsets[-1]), int(rng.integers(1, 5))
    features = rng.normal(size=(n, k)) * (rng.random((n, k)) < 0.6)
    scale = 10.0 ** rng.integers(0, 3)
    return features, scale * rng.normal(size=n), rng.integers(0, 3, size=n), offsets


def test_value_is_that_of_the_formula_and_gradient_that_of_differences():
    for seed in range(20):
        features, base, cost, offsets = problem(seed)
        weights = np.random.default_rng(seed).uniform(0.5, 2, len(offsets) - 1)
        rows = sparse.csr_matrix(features)
        objective = CandidateMargin(rows, base, cost, offsets, l2=0.3, weights=weights)
        w = np.random.default_rng(seed).normal(size=features.shape[1])
        expected = 0.3 * w @ w
        for a, b, weight in zip(offsets[:-1], offsets[1:], weights):
            scores, best = base[a:b] + features[a:b] @ w, list(cost[a:b]).index(min(cost[a:b]))
            log_z = logsumexp(scores + cost[a:b] - cost[a:b][best])
            expected += weight * (log_z - scores[best])
        gradient = np.empty_like(w)
        value = objective.value_and_gradient(w, gradient)
        np.testing.assert_allclose(value, expected, rtol=1e-12, atol=1e-10)

        def value_at(v, objective=objective):
            return objective.value_and_gradient(v, np.empty_like(v))

        def gradient_at(v, objective=objective):
            g = np.empty_like(v)
            objective.value_and_gradient(v, g)
            return g

        assert check_grad(value_at, gradient_at, w) < 1e-4 * max(1, np.abs(gradient).max())


def test_probabilities_of_each_list_sum_to_one_for_scores_of_any_size():
    scores, offsets = np.array([1e4, 1e4 - 1, -1e4, 0.0, 3.0]), np.array([0, 2, 3, 5])
    p, log_z = softmax_of_lists(scores, offsets)
    np.testing.assert_allclose(np.add.reduceat(p, offsets[:-1]), 1, rtol=1e-12)
    expected = [logsumexp(scores[a:b]) for a, b in zip(offsets[:-1], offsets[1:])]
    np.testing.assert_allclose(log_z, expected, rtol=1e-12)

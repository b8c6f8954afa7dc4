"""Likelihood of partial labels: enumeration, finite differences, and the likelihood of labels."""

import itertools
from unittest.mock import patch

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklseq import CRFTagger
from sklseq._lib.threads import Threads
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.open_source import open_source
from sklseq.objectives.likelihood import stochastic as _stochastic
from sklseq.objectives.likelihood.stochastic import StochasticLikelihood
from sklseq.objectives.scores.score_map import Weights
from tests import reference
from tests.oracles import precise_numerical_gradient
from tests.reference import log_sum, score_path
from tests.sample_data import make_data, make_sparse_data


def partial_labels(y, seed, unknown=0.4, some=0.3, L=3):
    """Some labels become None, some a set with another label in it."""
    rng = np.random.default_rng(seed)
    answer = []
    for labels in y:
        items = labels.tolist()
        for t, draw in enumerate(rng.random(len(items))):
            if draw < unknown:
                items[t] = None
            elif draw < unknown + some:
                items[t] = {items[t], *rng.integers(0, L, 1 + t % 2).tolist()}
        answer.append(items)
    answer[0][0] = y[0][0]
    return answer


def options(item, classes):
    if item is None:
        return range(len(classes))
    allowed = item if isinstance(item, set) else {item}
    return [j for j, label in enumerate(classes.tolist()) if label in allowed]


def enumerated(weights, X, y, classes, sample_weight):
    """Σ_s weight_s · (log Z(Y_s) - log Z)."""
    chain, total = (weights.transition, weights.start, weights.end), 0.0
    for x, labels, weight in zip(X, y, sample_weight):
        psi = (x.toarray() if hasattr(x, "toarray") else x) @ weights.coef
        for sign, given in ((1, labels), (-1, [None] * len(labels))):
            paths = list(itertools.product(*(options(item, classes) for item in given)))
            total += sign * weight * log_sum(score_path(paths, psi, *chain))
    return total


def problem_of(tagger, X, y, sample_weight=None, n=1):
    source = open_source(X, y, sample_weight, tagger.gradient)
    summary = source.summarise()
    scores = score_map(tagger, source, summary)
    return source, scores, source.likelihood(scores, tagger.l2, Threads(n))


MODELS = [
    {},
    {"all_possible_states": True},
    {"boundaries": False},
    {"constraints": [[True, True, True], [True, False, True], [True, True, True]]},
]


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("seed", range(3))
def test_value_and_gradient(seed, kind, model):
    X, y = make_data(seed, n=6, max_len=5) if kind == "dense" else make_sparse_data(seed, n=6, M=4)
    y = partial_labels(y, seed)
    if "constraints" in model:
        y = [[item if item != 1 else None for item in labels] for labels in y]
        y[0][0] = {1}
    given = np.random.default_rng(seed).uniform(0.5, 2, len(y))
    source, scores, f = problem_of(CRFTagger(l2=0.3, **model), X, y, given)
    w = np.random.default_rng(seed + 9).normal(size=scores.new_vector().shape)
    unpacked = scores.unpack(w)
    w = scores.pack(unpacked)  # padding is not a weight
    gradient = np.zeros_like(w)
    value = f.value_and_gradient(w, gradient)
    log_p = enumerated(unpacked, X, y, source.classes, given)
    assert_allclose(value, 0.3 * w @ w - log_p, rtol=1e-10)
    assert_allclose(f.value(w), value, rtol=1e-12)
    zeros = np.zeros_like(w)
    assert_allclose(f.value(zeros), f.value_and_gradient(zeros, gradient.copy()), rtol=1e-12)
    weights = np.flatnonzero(scores.pack(scores.unpack(np.ones_like(w))))
    numerical = precise_numerical_gradient(f.value, w)
    assert_allclose(gradient[weights], numerical[weights], rtol=1e-8, atol=1e-8)


def test_several_threads_and_one():
    X, y = make_sparse_data(0, n=2000)
    y = partial_labels(y, 0)
    values = []
    for n in (1, 2):
        _, scores, f = problem_of(CRFTagger(), X, y, n=n)
        w = np.random.default_rng(0).normal(size=scores.new_vector().shape)
        gradient = np.zeros_like(w)
        values.append((f.value_and_gradient(w, gradient), gradient))
    assert_allclose(values[0][0], values[1][0], rtol=1e-12)
    assert_allclose(values[0][1], values[1][1], rtol=1e-9, atol=1e-9)


def test_scores_too_far_apart_for_scaled_arithmetic():
    # Forbidden transitions and factors of exp(-2000): done in the log domain, alike in both terms.
    X = [np.eye(3)] * 2
    y = [[0, None, {1, 2}], [2, 1, 0]]
    mask = np.ones((3, 3), dtype=bool)
    mask[2, 2] = False
    source, scores, f = problem_of(CRFTagger(constraints=mask, l2=0.0), X, y)
    w = 700 * np.random.default_rng(1).normal(size=scores.new_vector().shape)
    unpacked = scores.unpack(w)
    expected = -enumerated(unpacked, X, y, source.classes, [1, 1])
    assert_allclose(f.value(w), expected, rtol=1e-12)


@pytest.mark.parametrize("n", [6, 1500])
@pytest.mark.parametrize("n_threads", [1, 2])
def test_it_is_the_sum_of_the_likelihoods_of_full_labels_and_of_partial_ones(n, n_threads):
    # 1500 sequences are more than a block.
    X, y = make_data(0, n=n + 6)
    tagger = CRFTagger(l2=0.0, all_possible_states=True, all_possible_transitions=True)
    y = [labels.tolist() for labels in y]
    some = partial_labels([np.array(labels) for labels in y[n:]], 0)
    some[1] = [None] * len(some[1])
    _, scores, full = problem_of(tagger, X[:n], y[:n])
    _, _, partial = problem_of(tagger, X[n:], some)
    X, y = X[n - 4 :] + X[: n - 4], y[n - 4 : n] + some + y[: n - 4]
    source, _, both = problem_of(tagger, X, y, n=n_threads)
    assert len(source.X) < n + 6  # a sequence of which nothing is known is left out
    w = scores.pack(scores.unpack(np.random.default_rng(0).normal(size=scores.new_vector().shape)))
    gradients = np.zeros((3, len(w)))
    a, b, c = (f.value_and_gradient(w, g) for f, g in zip((full, partial, both), gradients))
    assert_allclose(a + b, c, rtol=1e-12)
    assert_allclose(gradients[0] + gradients[1], gradients[2], atol=1e-11)


def random_case(seed):
    """Tagger, X, y and a scale of weights: few or many labels and transitions."""
    rng = np.random.default_rng(seed)
    L, share = int(rng.choice([2, 3, 5, 9, 24, 40])), rng.choice([0.05, 0.3, 1.0])
    allowed = rng.random((L, L)) < share
    allowed[np.arange(L), rng.permutation(L)] = True  # each label may be followed by one
    paths = [np.array([j]) for j in range(L)]  # every label is known somewhere
    for _ in range(6):
        path = [int(rng.integers(L))]
        for _ in range(int(rng.integers(1, 12))):
            path.append(int(rng.choice(np.flatnonzero(allowed[path[-1]]))))
        paths.append(np.array(path))
    y = partial_labels(paths[L:], seed, unknown=rng.uniform(0, 1), some=rng.uniform(0, 0.5), L=L)
    y = [path.tolist() for path in paths[:L]] + y
    X = [rng.normal(size=(len(path), 3)) for path in paths]
    options = {"all_possible_transitions": bool(rng.random() < 0.5), "boundaries": seed % 2 == 0}
    tagger = CRFTagger(constraints=None if share == 1 else allowed, l2=0.0, **options)
    return tagger, X, y, rng.choice([0.1, 3.0, 300.0])


def slow_value_and_gradient(weights, X, y, classes, sample_weight):
    """By the reference recursions in the log domain, sequence by sequence."""
    value, gradient = 0.0, Weights(*(np.zeros(w.shape) for w in weights))
    for x, labels, weight in zip(X, y, sample_weight):
        psi, allowed = x @ weights.coef, np.zeros((len(x), len(classes)), dtype=bool)
        for t, item in enumerate(labels):
            allowed[t, options(item, classes)] = True
        for sign, scores in ((1, psi), (-1, np.where(allowed, psi, -np.inf))):
            with np.errstate(invalid="ignore"):
                log_z, mu, xi = reference.forward_backward(scores, *weights[1:])
            value += sign * weight * log_z
            gradient.coef[:] += sign * weight * x.T @ mu
            gradient.transition[:] += sign * weight * xi
            gradient.start[:] += sign * weight * mu[0]
            gradient.end[:] += sign * weight * mu[-1]
    return value, gradient


def check_case(seed):
    tagger, X, y, scale = random_case(seed)
    given = np.random.default_rng(seed).uniform(0.5, 2, len(y))
    source, scores, f = problem_of(tagger, X, y, given)
    w = scale * np.random.default_rng(seed).normal(size=scores.new_vector().shape)
    w = scores.pack(scores.unpack(w))
    gradient = np.zeros_like(w)
    value = f.value_and_gradient(w, gradient)
    expected, slow = slow_value_and_gradient(scores.unpack(w), X, y, source.classes, given)
    assert_allclose(value, expected, rtol=1e-9, atol=1e-9 * scale)
    assert_allclose(gradient, scores.pack(slow), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_many_labels_few_transitions_and_large_scores(seed):
    check_case(seed)


def check_steps(seed):
    """The step of each sequence is its gradient, and its loss -log p(Y | x)."""
    tagger, X, y, scale = random_case(seed)
    given = np.random.default_rng(seed).uniform(0.5, 2, len(y))
    source = open_source(X, y, given, "auto")
    scores = score_map(tagger, source, source.summarise(), single_sequences=True)
    f = source.likelihood(scores, 0.0, Threads(1))
    w = scale * np.random.default_rng(seed).normal(size=scores.new_vector().shape)
    w, lengths = scores.pack(scores.unpack(w)), np.diff(f.offsets)
    for s, number in enumerate(source.numbers):
        # So large a sum of squares that it does not change: the step is minus the gradient.
        steps = StochasticLikelihood(f, w=w.copy(), first_square=2.0**40)
        steps.scale = None
        with patch.object(_stochastic, "ALMOST", 0.0):
            steps.descend(np.array([s]), 2.0**20)
        args = [X[number]], [y[number]], source.classes
        loss, slow = slow_value_and_gradient(scores.unpack(w), *args, [1.0])
        assert_allclose(steps.losses[s], loss, rtol=1e-9, atol=1e-9 * scale)
        if scale < 100:  # else steps follow flatter scores
            change = scores.pack(scores.unpack(w - steps.w))
            # Steps in a sequence of more than twice the mean length are shorter.
            pace = np.sqrt(min(1, 2 * lengths.mean() / lengths[s]))
            expected = pace * given[number] * scores.pack(slow)
            assert_allclose(change, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("seed", range(8))
def test_steps_of_single_sequences(seed):
    check_steps(seed)


@pytest.mark.parametrize("l1", [0.0, 0.3])
def test_adagrad_ends_at_the_minimum_of_all_data(l1):
    # From any weights, since this problem has one minimum.
    X, y = make_sparse_data(2, n=40, M=6)
    y, objectives = partial_labels(y, 2), []
    for solver in ("lbfgs", "adagrad"):
        tagger = CRFTagger(l1=l1, l2=0.3, tol=1e-8, solver=solver).fit(X, y)
        objectives.append(tagger.objective_)
    assert tagger.solver_ == "adagrad+lbfgs"
    assert_allclose(*objectives, rtol=1e-7)

"""Marginals of online labels and decisions of least risk, against enumeration of all paths."""

import itertools
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator

from sklseq import CRFTagger, OnlineDecoder, SemiCRFSegmenter
from sklseq.datasets import make_contacts
from sklseq.features import TemplateFeatures
from sklseq.inference import decode_online
from sklseq.objectives.scores.scored_rows import Potentials

RULES = [
    {"lag": 0},
    {"lag": 1},
    {"lag": 3},
    {"latency_cost": 0.05},
    {"latency_cost": 0.05, "early": False},
    {"latency_cost": 0.3, "restart": "conflict", "max_latency": 2},
    {"strategy": "window", "latency_cost": 0.2},
    {"strategy": "chunk", "window_size": 2},
    {"strategy": "closure"},
    {"strategy": "viterbi"},
]


def random_chain(seed, T=5, L=3):
    rng = np.random.default_rng(seed)
    transition = rng.normal(scale=2, size=(L, L))
    transition[rng.random((L, L)) < 0.2] = -np.inf
    np.fill_diagonal(transition, 0.5)
    return rng.normal(scale=2, size=(T, L)), transition, rng.normal(size=L), rng.normal(size=L)


def enumerated(emission, transition, start, end):
    """p(y_t = j) of all rows, over all paths; ``end`` None: the sequence goes on."""
    T, L = emission.shape
    total = np.zeros((T, L))
    for path in itertools.product(range(L), repeat=T):
        score = start[path[0]] + emission[np.arange(T), path].sum()
        score += sum(transition[a, b] for a, b in itertools.pairwise(path))
        score += 0 if end is None else end[path[-1]]
        total[np.arange(T), path] += np.exp(score)
    return total / total.sum(axis=1, keepdims=True)


def at_emission(chain, latency):
    """Row t: p(y_t | rows that had arrived when it left), by enumeration."""
    emission, transition, start, end = chain
    T = len(emission)
    rows = []
    for t, wait in enumerate(latency):
        seen = t + wait + 1
        options = [enumerated(emission[:seen], transition, start, None)[t]]
        if seen == T:  # it left with the last row, or at the end
            options.append(enumerated(emission, transition, start, end)[t])
        rows.append(options)
    return rows


class Fixed(BaseEstimator):
    """A tagger whose rows are their own scores."""

    def __init__(self, transition=None, start=None, end=None):
        self.transition, self.start, self.end = transition, start, end

    def fit(self, X, y):
        self.classes_ = np.arange(len(self.transition))
        return self

    def potentials(self, X):
        rows = [np.asarray(x, dtype=float).reshape(-1, len(self.transition)) for x in X]
        offsets = np.cumsum([0, *map(len, rows)])
        emission = np.concatenate([np.zeros((0, len(self.transition))), *rows])
        return Potentials(emission, self.transition, self.start, self.end, offsets)


def decoder_of(chain, **parameters):
    return OnlineDecoder(Fixed(*chain[1:]), **parameters).fit([], [])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_distributions_and_decisions_are_those_of_enumeration(rule, seed):
    chain = random_chain(seed)
    costs = np.random.default_rng(seed + 100).random((3, 3)) * (1 - np.eye(3))
    for extra in ({}, {"decide": "marginal"}, {"decide": "marginal", "label_costs": costs}):
        decoder = decoder_of(chain, **rule, **extra)
        (labels,), (times,), (confidence,) = decoder.decode([chain[0]])
        (shares,) = decoder.predict_proba([chain[0]])
        for t, options in enumerate(at_emission(chain, times - np.arange(5))):
            # rtol: sums of 243 products in another order.
            assert any(np.allclose(shares[t], p, rtol=1e-9, atol=1e-14) for p in options)
        assert_array_equal(confidence, shares[np.arange(5), labels])
        if extra:
            risk = shares @ extra.get("label_costs", 1 - np.eye(3))
            # Of the same sums in another order, so ties may turn.
            assert_allclose(risk[np.arange(5), labels], risk.min(axis=1), rtol=1e-12)


def test_a_lag_gives_the_smoothing_distribution():
    chain = random_chain(3, T=7)
    (shares,) = decoder_of(chain, lag=2, decide="marginal").predict_proba([chain[0]])
    for t in range(4):
        expected = enumerated(chain[0][: t + 3], chain[1], chain[2], None)[t]
        assert_allclose(shares[t], expected, rtol=1e-9)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rule", RULES)
def test_moments_do_not_depend_on_decisions_that_no_path_follows(rule, seed):
    # "marginal" drops no path: labels leave when they would if nothing had left before.
    chain = random_chain(seed, T=30)
    arguments = chain[0], chain[1], None
    ends = {"start": chain[2], "end": chain[3]}
    marginal = decode_online(*arguments, **ends, **rule, decide="marginal")
    once_more = decode_online(
        *arguments, **ends, **{**rule, "restart": "conflict"}, decide="marginal"
    )
    assert_array_equal(marginal.latency, once_more.latency)
    assert_array_equal(marginal.labels, once_more.labels)
    if rule.get("strategy") == "viterbi":
        posterior = enumerated(chain[0][:6], chain[1], chain[2], chain[3])
        short = decode_online(chain[0][:6], chain[1], **ends, **rule, decide="marginal")
        assert_array_equal(short.labels, posterior.argmax(axis=1))


@pytest.fixture(scope="module")
def contacts():
    X, y = make_contacts(20, random_state=5)
    rows = TemplateFeatures(["w[0]"]).fit_transform(X)
    return rows, y, CRFTagger(l2=0.1, tol=0.1).fit(rows, y)


@pytest.mark.parametrize("rule", [{}, {"lag": 3}, {"strategy": "viterbi", "decide": "marginal"}])
def test_provisional_distributions_are_predict_proba_so_far(rule, contacts):
    rows, y, tagger = contacts
    decoder = OnlineDecoder(tagger, **rule).fit(rows, y)
    stream, x = decoder.stream(), rows[0]
    assert stream.provisional_proba().shape == (0, len(decoder.classes_))
    for t in range(25):
        stream.push(x[t])
        shares = stream.provisional_proba()
        (expected,) = decoder.estimator_.predict_proba([x[: t + 1]])
        # rtol: logarithms here, products there.
        assert_allclose(shares, expected[t + 1 - stream.n_pending :], rtol=1e-9, atol=1e-12)
        labels = [
            (int(np.flatnonzero(decoder.classes_ == e.label)[0]), e.confidence)
            for e in stream.provisional
        ]
        assert [shares[k, j] for k, (j, _) in enumerate(labels)] == [c for _, c in labels]
    stream.flush()
    assert stream.provisional_proba().shape == (0, len(decoder.classes_))


def test_streams_give_what_decode_gives(contacts):
    rows, y, _ = contacts
    decoder = OnlineDecoder(CRFTagger(l2=0.1, tol=0.1), lag=1, decide="marginal").fit(rows, y)
    stream = pickle.loads(pickle.dumps(decoder.stream()))
    emitted = stream.push_many(rows[0]) + stream.flush()
    decoding = decoder.decode(rows[:1])
    assert [e.label for e in emitted] == decoding.labels[0].tolist()
    assert [e.confidence for e in emitted] == decoding.confidence[0].tolist()
    checkpoint = decoder.stream().checkpoint()
    other = OnlineDecoder(CRFTagger(l2=0.1, tol=0.1), lag=1).fit(rows, y)
    with pytest.raises(ValueError, match="other parameters"):
        other.stream(checkpoint)


def test_marginals_are_more_often_right_without_waiting(contacts):
    rows, y, tagger = contacts
    scores = {
        (lag, decide): OnlineDecoder(tagger, lag=lag, decide=decide).fit(rows, y).score(rows, y)
        for lag in (0, 1)
        for decide in ("map", "marginal")
    }
    assert scores[0, "marginal"] >= scores[0, "map"]
    assert scores[1, "marginal"] >= scores[1, "map"]


def test_wrong_parameters():
    chain = random_chain(0)
    for parameters, message in (
        ({"decide": "mean"}, r"decide must be one of \('map', 'marginal'\); got 'mean'"),
        ({"label_costs": np.eye(3)}, r'label_costs needs decide="marginal"'),
        ({"decide": "marginal", "label_costs": [1.0]}, "must be a square matrix of finite"),
        ({"decide": "marginal", "label_costs": [[np.nan]]}, "must be a square matrix of finite"),
        ({"decide": "marginal", "label_costs": "no"}, "must be a square matrix of finite"),
        ({"decide": "marginal", "label_costs": np.ones((1, 3))}, "must be a square matrix of fin"),
    ):
        with pytest.raises(ValueError, match=message):
            decoder_of(chain, **parameters)
    wrong = OnlineDecoder(CRFTagger(), decide="marginal", label_costs=np.eye(3))
    shape = r"one column for each label, \(2, 2\); got shape \(3, 3\)"
    with pytest.raises(ValueError, match=shape):
        wrong.fit([np.eye(2)], [["a", "b"]])
    assert not hasattr(wrong, "estimator_")
    trained = CRFTagger().fit([np.eye(2)], [["a", "b"]])
    with pytest.raises(ValueError, match=shape):
        wrong.set_params(estimator=FrozenEstimator(trained)).predict([np.eye(2)])
    segmenter = OnlineDecoder(SemiCRFSegmenter(), strategy="closure", decide="marginal")
    with pytest.raises(ValueError, match="needs the marginals of a tagger"):
        segmenter.fit([np.eye(2)], [[(0, 2, "a")]])

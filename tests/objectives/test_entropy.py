"""Entropy of unlabelled sequences in the objective: enumeration, finite differences, training."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklseq import CRFTagger, RowBlocks
from sklseq._lib.threads import Threads
from sklseq.estimators.crf.crf_problem import score_map
from sklseq.estimators.sources.open_source import open_source
from sklseq.estimators.sources.partial_source import Unlabelled
from sklseq.inspection import standard_errors
from tests.objectives.test_partial import MODELS, enumerated, partial_labels
from tests.oracles import enumerate_chain, precise_numerical_gradient
from tests.sample_data import make_data, make_sparse_data


def entropy_problem(tagger, X, y, weights, n=1):
    source = open_source(X, y, weights, tagger.gradient, Unlabelled.of(tagger))
    scores = score_map(tagger, source, source.summarise())
    return source, scores, source.likelihood(scores, tagger.l2, Threads(n))


def entropies(weights, X, y):
    """Of the sequences without a label, by enumeration; 0 of the others."""
    answer = []
    for x, labels in zip(X, y):
        psi = (x.toarray() if hasattr(x, "toarray") else x) @ weights.coef
        _, score, log_z, *_ = enumerate_chain(psi, *weights[1:])
        p = np.exp(score - log_z)
        unknown = all(label is None for label in labels)
        answer.append(-(p[p > 0] @ (score - log_z)[p > 0]) * unknown)
    return np.array(answer)


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_value_and_gradient(kind, model):
    X, y = make_data(0, n=8, max_len=5) if kind == "dense" else make_sparse_data(0, n=8, M=4)
    y = partial_labels(y, 0)
    if "constraints" in model:
        y = [[item if item != 1 else None for item in labels] for labels in y]
        y[0][0] = {1}
    for s in (1, 4, 5):
        y[s] = [None] * len(y[s])
    X, y = [x for x in X if x.shape[0] < 7], [one for one in y if len(one) < 7]
    given = np.random.default_rng(0).uniform(0.5, 2, len(y))
    tagger = CRFTagger(l2=0.3, entropy_weight=0.7, **model)
    source, scores, f = entropy_problem(tagger, X, y, given)
    w = scores.new_vector()
    filled = scores.pack(scores.unpack(np.ones_like(w))) != 0
    w[filled] = np.random.default_rng(1).normal(size=filled.sum())
    gradient = np.empty_like(w)
    value = f.value_and_gradient(w, gradient)
    weights = scores.unpack(w)
    expected = 0.3 * float(w @ w) - enumerated(weights, X, y, source.classes, given)
    expected += 0.7 * float(given @ entropies(weights, X, y))
    assert value == pytest.approx(expected, rel=1e-10)
    assert f.value(w) == pytest.approx(value, rel=1e-12)
    numerical = precise_numerical_gradient(f.value, w)
    assert_allclose(gradient[filled], numerical[filled], rtol=1e-8, atol=1e-8)
    _, _, threads = entropy_problem(tagger, X, y, given, 3)
    again = np.empty_like(w)
    assert threads.value_and_gradient(w, again) == pytest.approx(value, rel=1e-12)
    assert_allclose(again, gradient, rtol=1e-10, atol=1e-11)


def test_training():
    X, y = make_data(0, n=40)
    y[10:] = [[None] * len(labels) for labels in y[10:]]
    without = CRFTagger(l2=0.3, tol=1e-8).fit(X, y)
    zero = CRFTagger(l2=0.3, tol=1e-8).fit(X[:10], y[:10])
    assert_allclose(without.coef_, zero.coef_)
    model = CRFTagger(l2=0.3, tol=1e-8, entropy_weight=0.5).fit(X, y)
    found, before = (m.predict_proba(X[10:]) for m in (model, without))
    assert np.mean([p.max(axis=1).mean() for p in found]) > 0.05 + np.mean(
        [p.max(axis=1).mean() for p in before]
    )
    single = CRFTagger(l2=0.3, tol=1e-8, entropy_weight=0.5)
    single.fit([x.astype(np.float32) for x in X], y)
    assert_allclose(single.coef_, model.coef_, rtol=1e-2, atol=1e-2)
    single.set_params(early_stopping=True, random_state=0).fit(X, y)


def test_errors():
    X, y = make_data(0)
    with pytest.raises(ValueError, match="entropy_weight must be a finite number of at least 0"):
        CRFTagger(entropy_weight=-1).fit(X, y)
    with pytest.raises(ValueError, match=r"entropy_weight=1.0 needs sequences in memory"):
        CRFTagger(entropy_weight=1).fit([RowBlocks(x) for x in X], y)
    with pytest.raises(ValueError, match="all are unknown"):
        CRFTagger(entropy_weight=1).fit(X, [[None] * len(labels) for labels in y])
    model = CRFTagger(entropy_weight=1).fit(X, y)
    with pytest.raises(ValueError, match="entropy_weight=1"):
        standard_errors(model, X, y)

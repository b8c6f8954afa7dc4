"""Spans of predicted labels with their probabilities."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklseq import CRFTagger, CRFTaggerCV, HMSVMTagger, SemiCRFSegmenter, ZScoreTagger
from sklseq.data.segment_labels import labels_to_segments
from sklseq.metrics import span_f1
from tests.estimators.methods import train
from tests.estimators.test_semicrf import problem


def spans_data(seed=0, n=12):
    rng, X, y = np.random.default_rng(seed), [], []
    for length in rng.integers(0, 7, size=n):
        codes = rng.integers(0, 3, size=length)
        X.append(np.eye(3)[codes] + rng.uniform(0, 0.8, size=(length, 3)))
        y.append(np.array(["B-x", "I-x", "O"])[codes].tolist())
    return X, y


TAGGERS = {
    "crf": lambda: CRFTagger(l2=0.1),
    "constrained": lambda: CRFTagger(l2=0.1, all_possible_transitions=True),
    "hmsvm": lambda: HMSVMTagger(random_state=0),
    "rbf": lambda: HMSVMTagger(kernel="rbf", random_state=0),
    "zscore": ZScoreTagger,
}


@pytest.mark.parametrize("name", TAGGERS)
def test_spans_are_those_of_the_predicted_labels(name):
    X, y = spans_data()
    model = TAGGERS[name]().fit(X, y)
    spans = model.predict_spans(X)
    expected = [labels_to_segments(labels) for labels in model.predict(X)]
    assert [[span[:3] for span in one] for one in spans] == expected
    has_proba = hasattr(model, "predict_proba")
    assert {span.probability is not None for one in spans for span in one} == {has_proba}
    assert json.loads(json.dumps(spans))[0] == [list(span) for span in spans[0]]
    assert span_f1(y, spans) == span_f1(y, model.predict(X))
    for one, labels in zip(model.predict_spans(X, scheme="iob2"), model.predict(X)):
        valid = {(a, b, x) for a, b, x in labels_to_segments(labels) if labels[a] == f"B-{x}"}
        assert {span[:3] for span in one} == valid


def test_probabilities_are_those_of_paths():
    X, y = spans_data(1)
    model = CRFTagger(l2=0.1).fit(X, y)
    n_paths = 3 ** max(map(len, X))
    for x, spans, paths in zip(X, model.predict_spans(X), model.predict_nbest(X, n_paths)):
        read = [set(labels_to_segments(labels)) for labels in paths[0]]
        for span in spans:
            expected = sum(p for found, p in zip(read, np.exp(paths[1])) if span[:3] in found)
            assert_allclose(span.probability, expected, rtol=1e-9)
        every = sorted(set().union(*read))
        asked = model.predict_segment_proba([x], [every])[0]
        assert_allclose(asked.sum(), sum(len(f) * p for f, p in zip(read, np.exp(paths[1]))))
    assert model.predict_segment_proba([], []) == []
    assert model.predict_spans([]) == []
    unseen = model.predict_segment_proba(X[:2], [[(0, 1, "z")], []])
    assert [p.tolist() for p in unseen] == [[0.0], []]
    default = model.predict_segment_proba(X)
    assert [p.tolist() for p in default] == [
        [span.probability for span in one] for one in model.predict_spans(X)
    ]
    with pytest.raises(ValueError, match=r"Segment \(0, 99, 'x'\) does not fit sequence 1"):
        model.predict_segment_proba(X[:2], [[], [(0, 99, "x")]])
    with pytest.raises(ValueError, match="label 'B-x', which is none of scheme='ioe2'"):
        model.predict_spans(X, scheme="ioe2")


def test_float32_and_searches():
    X, y = spans_data(2)
    model = CRFTagger(l2=0.1, tol=1e-6).fit(X, y)
    single = CRFTagger(l2=0.1, tol=1e-6).fit([x.astype(np.float32) for x in X], y)
    spans = model.predict_spans(X)
    asked = [[span[:3] for span in one] for one in spans]
    ours = single.predict_segment_proba([x.astype(np.float32) for x in X], asked)
    for one, p in zip(spans, ours):
        assert_allclose([span.probability for span in one], p, atol=2e-2)  # two trainings
    search = CRFTaggerCV(l2s=[0.1], cv=2).fit(X, y)
    assert [len(one) for one in search.predict_spans(X)] == [len(one) for one in spans]


@pytest.mark.parametrize("y", [[[0, 0, 1, 0]], [["a", "a", "O", "b"]], [[True, True, False, True]]])
def test_labels_without_prefixes_are_spans_of_equal_labels(y):
    X = [np.eye(4)]
    for model in (CRFTagger(l2=1e-3).fit(X, y), train("bcfw", X, y)):
        assert model.predict(X)[0] == y[0]
        found = [span[:3] for span in model.predict_spans(X)[0]]
        last = [(2, 3, y[0][2])] if y[0][2] != "O" else []
        assert found == [(0, 2, y[0][0]), *last, (3, 4, y[0][3])]
        assert type(found[0][2]) is type(y[0][0])


def test_segmenters_have_probabilities_of_their_segments():
    X, y = problem(0)
    for loss in ("log", "hinge"):
        model = SemiCRFSegmenter(loss=loss).fit(X, y)
        spans = model.predict_spans(X)
        assert [[span[:3] for span in one] for one in spans] == list(model.predict(X))
        found = [span.probability for one in spans for span in one]
        if loss == "hinge":
            assert set(found) <= {None}
        else:
            assert_allclose(found, np.concatenate(model.predict_segment_proba(X, spans)))

"""What has been given online no future changes: all strategies, all taggers, batch and stream."""

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, SemiCRFSegmenter, ZScoreTagger
from sklseq.features import SegmentFeatures, TemplateFeatures
from tests.trials.online import CHECKS, STRATEGIES

WORDS = np.array(["Mr.", "New", "York", "in", "met", "Smith", "and", "said", "of", "the"])


@pytest.mark.parametrize("check", CHECKS)
def test_no_future_changes_what_was_given(check):
    found = sum(CHECKS[check](np.random.default_rng(seed)) for seed in range(75))
    assert found > 150


def sentences(seed, n=60):
    rng = np.random.default_rng(seed)
    X = [rng.choice(WORDS, size=int(rng.integers(1, 12))).tolist() for _ in range(n)]
    y = [["B" if w[0].isupper() else "O" for w in x] for x in X]
    for x, labels in zip(X, y):
        for t in range(1, len(x)):
            if labels[t - 1] != "O" and x[t - 1] != "Smith" and x[t] in ("New", "York", "of"):
                labels[t] = "I"
    return X, y


@pytest.fixture(scope="module", params=[CRFTagger, HMSVMTagger, ZScoreTagger])
def model(request):
    features = TemplateFeatures(["w[-1]", "w[0]", "w[1]"])
    return make_pipeline(features, request.param()).fit(*sentences(0))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("restart", ["always", "conflict"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tokens_to_come_change_no_label_of_any_tagger(model, strategy, restart):
    decoder = OnlineDecoder(
        FrozenEstimator(model), strategy=strategy, restart=restart, window_size=3
    )
    rng = np.random.default_rng(0)
    for _ in range(4):
        known = rng.choice(WORDS, size=int(rng.integers(1, 15))).tolist()
        given = decoder.stream().push_many(known)
        for _ in range(3):
            x = known + rng.choice(WORDS, size=int(rng.integers(0, 9))).tolist()
            stream = decoder.stream()
            emissions = stream.push_many(x) + stream.flush()
            assert emissions[: len(given)] == given
            labels, times, confidence = (column[0] for column in decoder.decode([x]))
            assert labels.tolist() == [e.label for e in emissions]
            assert times.tolist() == [e.position + e.latency for e in emissions]
            assert confidence.tolist() == [e.confidence for e in emissions]


def with_types(y):
    return [[label if label == "O" else f"{label}-x" for label in path] for path in y]


@pytest.mark.parametrize(
    "features",
    [
        SegmentFeatures(length=False),
        SegmentFeatures(length=True, max_length=3, after=0),
        SegmentFeatures(length=False, inside=False, first=[2], last=[3], longer_than=[3], after=1),
        SegmentFeatures(length=False, start=2, end=2, before=0, after=0, shape=True, max_length=2),
    ],
    ids=["tokens", "lengths", "grams", "shapes"],
)
def test_tokens_to_come_change_no_segment(features):
    X, y = sentences(1)
    decoder = OnlineDecoder(
        make_pipeline(features, SemiCRFSegmenter(l2=0.1, tol=1e-3)), strategy="closure"
    ).fit(X, with_types(y))
    rng, early = np.random.default_rng(0), 0
    for _ in range(12):
        x = rng.choice(WORDS, size=20).tolist()
        labels, times = decoder.decode([x])[:2]
        for t in range(19):
            sure = labels[0][times[0] <= t].tolist()
            other = x[: t + 1] + rng.choice(WORDS, size=int(rng.integers(0, 12))).tolist()
            assert decoder.predict([other])[0][: len(sure)] == sure
            early += len(sure)
    assert early > 200


def test_spans_of_segment_features_are_bounded_by_their_parameters():
    X, _ = sentences(2)
    for parameters, longest in (
        ({}, 1),
        ({"start": 3}, 3),
        ({"length": True, "max_length": 5}, 6),
        ({"first": [2, 4]}, 4),
        ({"longer_than": [6]}, 7),
        ({"shape": True, "max_length": 4}, 4),
    ):
        features = SegmentFeatures(**{"length": False} | parameters)
        potentials = features.fit_transform(X)
        assert features.max_span == longest >= (potentials.stop - potentials.start).max()

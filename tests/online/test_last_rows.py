"""The last rows of a sequence: those that wait for tokens ahead come with its end.

No label leaves between them, so the labels that are pending then are those of the best path with
the scores of the end. ``tests/trials/online.py`` checks the same on random models.
"""

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, OnlineDecoder, runtime
from sklseq.deployment import export
from sklseq.features import TemplateFeatures

RULES = [
    {"lag": 1},
    {"max_latency": 1},
    {"max_latency": 1, "restart": "conflict"},
    {"strategy": "window", "max_latency": 1},
    {"strategy": "chunk", "window_size": 1},
    {"latency_cost": 10},
    {"strategy": "window", "latency_cost": 10},
]
rules = pytest.mark.parametrize("rule", RULES, ids=str)
TOKENS = list("abaa")


@pytest.fixture(scope="module")
def model():
    X = [["a", "b", "c"], ["a", "c"], ["b", "c", "c"], ["c", "a", "b"]] * 4
    y = [["B-P", "E-P", "O"], ["S-P", "O"], ["B-P", "I-P", "E-P"], ["O", "B-P", "E-P"]] * 4
    features = TemplateFeatures(["w[0]", "w[1]"])
    return make_pipeline(features, CRFTagger(l2=1, constraints="iobes")).fit(X, y)


def decoder_of(model, rule):
    return OnlineDecoder(FrozenEstimator(model), **rule)


@rules
def test_the_last_label_may_end_a_sequence(model, rule):
    stream = decoder_of(model, rule).stream()
    given = stream.push_many(TOKENS)
    assert [e.label for e in given] == ["B-P", "E-P", "O"]
    provisional, shares = stream.provisional, stream.provisional_proba()
    (last,) = stream.flush()
    proba = model.predict_proba([TOKENS])[0]
    assert [last] == provisional
    assert last.label == model.classes_[proba[3].argmax()] == "O"
    assert last.confidence == pytest.approx(proba[3].max(), rel=1e-12)
    np.testing.assert_allclose(shares, proba[3:], rtol=1e-12)
    assert last.latency == 0


@rules
def test_batch_pool_and_exported_model_give_the_labels_of_the_stream(model, rule, tmp_path):
    decoder = decoder_of(model, rule)
    expected = ["B-P", "E-P", "O", "O"]
    assert decoder.predict([TOKENS, TOKENS])[1] == expected
    decoding = decoder.decode([TOKENS])
    assert decoding.labels[0].tolist() == expected
    assert decoding.times[0].tolist() == [1, 2, 3, 3]
    pool = decoder.pool()
    given = pool.push_many(["x"] * 4, TOKENS).label.tolist()
    assert pool.provisional().label.tolist() == expected[3:]
    assert given + pool.flush().label.tolist() == expected
    assert [e.label for e in decoder.iter(TOKENS)] == expected
    export(model, tmp_path / "model")
    stream = runtime.load(tmp_path / "model").stream(**rule)
    assert [label for item in TOKENS for label in stream.push(item)] + stream.finish() == expected


@rules
def test_a_sequence_no_longer_than_the_features_look_ahead_is_decoded_as_a_whole(model, rule):
    decoder = decoder_of(model, rule)
    for token in "abc":
        assert decoder.predict([[token]])[0] == model.predict([[token]])[0]
        np.testing.assert_allclose(
            decoder.predict_proba([[token]])[0], model.predict_proba([[token]])[0], rtol=1e-12
        )

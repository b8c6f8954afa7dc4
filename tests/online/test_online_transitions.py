"""OnlineDecoder of models with transition features: Viterbi, no look ahead."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder
from sklseq.features import TemplateFeatures
from sklseq.inference import decode_online
from tests.trials.online import STRATEGIES

LINES = ["U0:%x[0,0]", "U1:%x[1,0]", "B", "B1:%x[0,0]", "B2:%x[-1,0]/%x[0,0]"]
WORDS = np.array(list("abcdef"))


def sentences(seed, n=60):
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        words, label = rng.choice(WORDS, size=int(rng.integers(1, 12))).tolist(), 0
        labels = [label := (label + (word == "c")) % 3 for word in words]
        X.append(words)
        y.append([f"L{k}" if rng.random() < 0.9 else "L0" for k in labels])
    return X, y


@pytest.fixture(scope="module", params=["crf", "crf float32", "hmsvm"])
def model(request):
    tagger = HMSVMTagger(random_state=0) if request.param == "hmsvm" else CRFTagger(l2=0.3)
    dtype = np.float32 if request.param.endswith("32") else np.float64
    features = TemplateFeatures(LINES, bos_eos=False, dtype=dtype)
    return make_pipeline(features, tagger).fit(*sentences(0))


def test_rules_that_lose_nothing_give_the_labels_of_predict(model):
    X, _ = sentences(1)
    expected = model.predict(X)
    for rule in ({"strategy": "closure"}, {"latency_cost": 0}, {"lag": 20}):
        decoder = OnlineDecoder(FrozenEstimator(model), **rule)
        for found, best in zip(decoder.predict(X), expected):
            assert_array_equal(found, best)
    report = decoder.set_params(lag=None, strategy="closure").latency_report(X)
    assert report.disagreement == 0


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_tokens_to_come_change_no_label(model, strategy):
    decoder = OnlineDecoder(FrozenEstimator(model), strategy=strategy, window_size=3, lag=None)
    decoder.set_params(max_latency=3)
    rng, n_given = np.random.default_rng(0), 0
    for _ in range(12):
        known = rng.choice(WORDS, size=int(rng.integers(6, 15))).tolist()
        futures = [rng.choice([*WORDS, "?"], size=n).tolist() for n in (1, 4, 9)]
        found = decoder.decode([known + future for future in futures])
        given = found.times[0] < len(known)
        n_given += given.sum()
        for columns in zip(*found):
            n = int((columns[1] < len(known)).sum())
            assert n == given.sum()
            for now, before in zip(columns, found):
                assert_array_equal(now[:n], before[0][:n])
    assert n_given > 50


def test_decoded_in_blocks_of_sequences_as_their_potentials_are(model):
    X, y = sentences(2, n=400)
    decoder = OnlineDecoder(FrozenEstimator(model), latency_cost=0.05, n_jobs=2)
    potentials = model[-1].potentials(model[:-1].transform(X))
    paths = decode_online(
        potentials.emission, potentials.transition, potentials.offsets,
        start=potentials.start, end=potentials.end, latency_cost=0.05,
    )  # fmt: skip
    one_ahead = OnlineDecoder(FrozenEstimator(model[-1]), latency_cost=0.05)
    found = one_ahead.decode(model[:-1].transform(X))
    assert_array_equal(np.concatenate(found.labels), model.classes_[paths.labels])
    assert_allclose(np.concatenate(found.confidence), paths.confidence)
    proba = np.concatenate(decoder.predict_proba(X))
    assert_allclose(proba.sum(axis=1), 1)
    assert decoder.score(X, y) > 0.5
    assert decoder.transform(X).rows.shape == (len(proba), 4)

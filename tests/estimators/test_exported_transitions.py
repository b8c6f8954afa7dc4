"""Exported models with transition features: what the models say, from the file."""

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline, make_union

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, runtime
from sklseq.deployment import export
from sklseq.features import DictFeatures, TemplateFeatures, TokenFeatures, WindowFeatures
from tests.test_runtime import as_dicts, as_rows, corpus, same

LINES = "U0:%x[0,0]\nB0:%x[0,0]\n*1:%x[-1,1]\nB"
EVERYTHING = {"all_possible_states": True, "all_possible_transitions": True}
MODELS = {
    "templates": (make_pipeline(TemplateFeatures(LINES, bos_eos=False), CRFTagger()), as_rows),
    "templates, all pairs": (
        make_pipeline(TemplateFeatures(LINES, boundary="mark"), CRFTagger(**EVERYTHING)), as_rows
    ),
    "templates, margin": (
        make_pipeline(TemplateFeatures(LINES), HMSVMTagger(random_state=0)), as_rows
    ),
    "names": (CRFTagger(transition_features="^(w|n)"), as_dicts),
    "names, constraints": (
        CRFTagger(transition_features="^w", constraints="iob2", l1=0.1), as_dicts
    ),
    "names, float32": (
        make_pipeline(DictFeatures(dtype=np.float32, transition_features="^w"), CRFTagger()),
        as_dicts,
    ),
    "window of templates": (
        make_pipeline(TemplateFeatures(LINES), WindowFeatures(), CRFTagger()), as_rows
    ),
    "union": (
        make_pipeline(
            make_union(
                make_pipeline(TokenFeatures(), WindowFeatures()),
                TokenFeatures(transition_features="word="),
            ),
            CRFTagger(),
        ),
        same,
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=MODELS)
def exported(request, tmp_path_factory):
    model, form = MODELS[request.param]
    X, y = corpus(0)
    model.fit(form(X), y)
    path = tmp_path_factory.mktemp("models") / "model.sklseq"
    export(model, path)
    new, y_new = corpus(1)
    new, y_new = new + [[], ["never seen", "Nor", "this"]], [*y_new, [], ["O", "?", "O"]]
    return model, runtime.load(path), form(new), y_new


def test_same_labels_to_the_bit(exported):
    model, decoder, X, _ = exported
    expected = model.predict(X)
    assert decoder.predict(X) == expected
    assert [decoder.predict_single(x) for x in X] == expected


def test_same_probabilities(exported):
    model, decoder, X, y = exported
    if not hasattr(model, "predict_proba"):
        return
    tolerance = 1e-5 if _single(model) else 1e-12
    for found, expected in zip(decoder.predict_proba(X), model.predict_proba(X), strict=True):
        np.testing.assert_allclose(found, expected, atol=tolerance)
    log_p = decoder.predict_log_proba_sequence(X, y)
    tagger, rows = model, X[:-1]
    if hasattr(model, "steps"):
        tagger, rows = model[-1], model[:-1].transform(rows)
    known = tagger.predict_log_proba_sequence(rows, y[:-1])
    np.testing.assert_allclose(log_p[:-1], known, rtol=1e-5 if _single(model) else 1e-10)
    assert log_p[-1] == -np.inf


def _single(model):
    tagger = getattr(model, "steps", [[None, model]])[-1][1]
    return tagger.transition_.dtype == np.float32


@pytest.mark.parametrize("rule", [{}, {"lag": 3}, {"strategy": "step", "latency_cost": 0.1}])
def test_streams_give_the_labels_of_the_online_decoder(exported, rule):
    model, decoder, X, y = exported
    given = {"strategy": "closure", **rule}
    expected = OnlineDecoder(FrozenEstimator(model), **given).fit(X[:1], y[:1]).predict(X)
    stream = decoder.stream(**rule)
    for x, labels in zip(X, expected, strict=True):
        rows = x if isinstance(x, list) else [dict(zip(x, row)) for row in zip(*x.values())]
        found = [label for item in rows for label in stream.push(item)]
        assert found + stream.finish() == list(labels)

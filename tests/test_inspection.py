"""Questions to the last step of pipelines and searches: weights by name, fields, tables."""

import json
import sys
import types

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline

from sklseq import CRFTagger, HMSVMTagger, OnlineDecoder, SemiCRFSegmenter, ZScoreTagger
from sklseq.data.segment_labels import labels_to_segments
from sklseq.display import SegmentationDisplay
from sklseq.features import SegmentFeatures, TemplateFeatures, TokenFeatures
from sklseq.inspection import (
    explain,
    extract,
    feature_names,
    last_step,
    log_proba_sequence,
    marginals,
    nbest,
    segment_proba,
    spans,
    to_frame,
    top_features,
    uncertain_rows,
    uncertainty,
)
from tests.data.test_column_sequences import KINDS
from tests.estimators.test_semicrf import problem

X = [["in", "New", "York", "now"], ["New", "Delhi"], ["now", "in", "Rome"]]
Y = [[(1, 3, "city")], [(0, 2, "city")], [(2, 3, "city")]]


def test_largest_weights_of_rows_without_names():
    potentials, segments = problem(0)
    model = SemiCRFSegmenter().fit(potentials, segments)
    every = model.top_features(15)
    sizes = [abs(weight) for weight, _, _ in every]
    assert sizes == sorted(sizes, reverse=True)
    assert len(every) == 15
    for weight, label, name in every:
        j = model.classes_.tolist().index(label)
        assert model.coef_[int(name[1:]), j] == weight
    assert {label for _, label, _ in model.top_features(5, label="a")} == {"a"}
    weight, i, j = model.top_transitions(1)[0]
    k = np.unravel_index(np.abs(model.transition_).argmax(), (3, 3))
    assert (weight, i, j) == (model.transition_[k], *model.classes_[list(k)])


def test_pipeline_names_features_of_segments():
    model = make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter(l2=0.1)).fit(X, Y)
    names = feature_names(model).tolist()
    found = top_features(model, 400, label="city")
    assert {name for _, _, name in found} <= set(names)
    assert any(name.startswith("start:") for _, _, name in found)
    for weight, _, name in found:
        column = model[-1].classes_.tolist().index("city")
        assert model[-1].coef_[names.index(name), column] == weight


# --- The last step of pipelines and searches ------------------------------------------------------

TOKENS = [["Ann", "Lee", "lives", "in", "Rome"], ["New", "York"], [], ["in", "New", "York"]]
LABELS = [
    ["B-name", "I-name", "O", "O", "B-city"],
    ["B-city", "I-city"],
    [],
    ["O", "B-city", "I-city"],
]
TEXTS = ["Ann Lee  lives in\nRome.", "(New York)", "", "in New York, in"]


def wrapped(last):
    pipeline = make_pipeline(TokenFeatures(), last)
    nested = make_pipeline(TokenFeatures(), make_pipeline(last))
    search = GridSearchCV(pipeline, {"tokenfeatures__prefixes": [2]}, cv=2, error_score="raise")
    return [pipeline, nested, search, FrozenEstimator(clone(pipeline).fit(TOKENS, LABELS)),
            Pipeline([("search", clone(search))])]  # fmt: skip


@pytest.mark.parametrize("k", range(5))
def test_the_last_step_is_reached_through_pipelines_and_searches(k):
    last = CRFTagger(l2=0.1)
    model = wrapped(last)[k].fit(TOKENS, LABELS)
    tagger, rows = last_step(model, TOKENS)
    assert isinstance(tagger, CRFTagger)
    assert last_step(model)[1] is None
    assert_same(nbest(model, TOKENS, 2), tagger.predict_nbest(rows, 2))
    assert spans(model, TOKENS) == tagger.predict_spans(rows)
    assert spans(model, TOKENS, scheme="runs") == tagger.predict_spans(rows, scheme="runs")
    asked = [[(0, 1, "name")], [], [], []]
    assert_same(segment_proba(model, TOKENS, asked), tagger.predict_segment_proba(rows, asked))
    got = log_proba_sequence(model, TOKENS, LABELS)
    assert_same(got, tagger.predict_log_proba_sequence(rows, LABELS))
    names = feature_names(model)
    assert len(names) == tagger.n_features_in_
    assert {name for _, _, name in top_features(model, 5)} <= set(names)
    assert explain(model, TOKENS[0]) == tagger.explain(rows[0], feature_names=names)


def assert_same(ours, theirs):
    assert repr(ours) == repr(theirs)


def test_valid_fields():
    model = make_pipeline(TokenFeatures(), CRFTagger(l2=0.01)).fit(TOKENS, LABELS)
    twice = [["Rome", "in", "Rome"]]
    once = extract(model, twice, valid="once")[0]
    assert len([field for field in once if field.label == "city"]) == 1
    labels = model.predict(twice, valid="once")[0]
    assert [(f.start, f.stop, f.label) for f in once] == labels_to_segments(labels)
    (asked,) = segment_proba(model, twice, [[(f.start, f.stop, f.label) for f in once]])
    assert [field.probability for field in once] == asked.tolist()


def test_uncertainty_is_that_of_all_labelings():
    rows = make_pipeline(TokenFeatures(), CRFTagger(l2=0.3)).fit(TOKENS, LABELS)
    log_p = [found[1] for found in nbest(rows, TOKENS, 5**5)]
    everything = [-(np.exp(one) * one).sum() for one in log_p]
    assert_allclose(uncertainty(rows, TOKENS, "entropy"), everything, atol=1e-10)
    assert_allclose(uncertainty(rows, TOKENS, by="nbest-entropy", n=5**5), everything, atol=1e-9)
    best = [np.exp(one[:3]) / np.exp(one[:3]).sum() for one in log_p]
    expected = [-(p * np.log(p)).sum() for p in best]
    assert_allclose(uncertainty(rows, TOKENS, by="nbest-entropy", n=3), expected, atol=1e-10)
    expected = [1 - np.exp(one[0]) + np.exp(one[1]) if len(one) > 1 else 0 for one in log_p]
    assert_allclose(uncertainty(rows, TOKENS, by="margin"), expected, atol=1e-10)
    expected = [
        -(p * np.log(p)).sum(axis=1).mean() if len(p) else 0 for p in rows.predict_proba(TOKENS)
    ]
    assert_allclose(uncertainty(rows, TOKENS), expected, atol=1e-10)


@pytest.mark.parametrize("by", ["token", "entropy", "margin", "nbest-entropy"])
def test_uncertainty_of_sequences_whose_labelings_have_probability_0(by):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) for n in (30, 300, 3000, 9000)]
    tagger = CRFTagger(l2=1.0).fit(X[:2], [(x[:, 0] > 0).astype(int) for x in X[:2]])
    found = uncertainty(tagger, X, by)
    assert np.isfinite(found).all()
    if by == "nbest-entropy":  # of p_1 / Σ p, ..., in logarithms
        log_p = np.array([one for _, one in tagger.predict_nbest(X, 10)])
        log_p -= np.logaddexp.reduce(log_p, axis=1, keepdims=True)
        assert_allclose(found, -(np.exp(log_p) * log_p).sum(axis=1), rtol=1e-9)


def test_uncertainty_of_other_models():
    segmenter = make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter()).fit(
        TOKENS, GOLD
    )
    for by in ("margin", "nbest-entropy", "token"):
        values = uncertainty(segmenter, TOKENS, by)
        assert values.shape == (4,)
        assert values[2] == 0
        assert (np.delete(values, 2) > 0).all()
    with pytest.raises(ValueError, match="SemiCRFSegmenter has no path_entropy; use CRFTagger as"):
        uncertainty(segmenter, TOKENS, "entropy")
    model = make_pipeline(TokenFeatures(), HMSVMTagger(random_state=0)).fit(TOKENS, LABELS)
    for by in ("entropy", "margin", "nbest-entropy", "token"):
        with pytest.raises(ValueError, match="HMSVMTagger has no predict_log_proba_sequence; use"):
            uncertainty(model, TOKENS, by)
    with pytest.raises(ValueError, match=r"by must be one of .*; got 'length'"):
        uncertainty(model, TOKENS, "length")


def test_uncertain_rows_are_those_of_the_least_best_probability():
    model = make_pipeline(TokenFeatures(), CRFTagger(l2=0.3)).fit(TOKENS, LABELS)
    tagger, rows = last_step(model, TOKENS)
    known = [[None] * len(labels) for labels in LABELS]
    known[0][0], known[0][1] = LABELS[0][0], set(tagger.classes_[:2])
    for given in (None, known):
        found = uncertain_rows(model, TOKENS, 100, given)
        proba = tagger.predict_proba(rows, given)
        best = [proba[s][t].max() for s, t in found]
        assert best == sorted(best)
        asked = [(s, t) for s, x in enumerate(TOKENS) for t in range(len(x))]
        assert sorted(found) == [row for row in asked if given is None or row != (0, 0)]
        assert uncertain_rows(model, TOKENS, 2, given) == found[:2]
    assert uncertain_rows(model, TOKENS, 3, LABELS) == []
    assert uncertain_rows(model, [], 1) == []


def test_uncertain_rows_of_wrong_calls():
    model = make_pipeline(TokenFeatures(), CRFTagger()).fit(TOKENS, LABELS)
    for n in (0, 1.5, None):
        with pytest.raises(ValueError, match=f"n must be an integer of at least 1; got {n}"):
            uncertain_rows(model, TOKENS, n)
    segmenter = make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter())
    segmenter.fit(TOKENS, GOLD)
    assert len(uncertain_rows(segmenter, TOKENS, 2)) == 2
    with pytest.raises(ValueError, match="known"):
        uncertain_rows(segmenter, TOKENS, 2, LABELS)
    model = make_pipeline(TokenFeatures(), HMSVMTagger(random_state=0)).fit(TOKENS, LABELS)
    with pytest.raises(ValueError, match="HMSVMTagger has no predict_proba; use CRFTagger"):
        uncertain_rows(model, TOKENS, 2)


def test_what_a_last_step_cannot_do():
    model = make_pipeline(TokenFeatures(), HMSVMTagger(random_state=0)).fit(TOKENS, LABELS)
    with pytest.raises(ValueError, match="HMSVMTagger has no predict_segment_proba; use CRFTagger"):
        segment_proba(model, TOKENS)
    with pytest.raises(ValueError, match="HMSVMTagger has no predict_log_proba_sequence"):
        log_proba_sequence(model, TOKENS, LABELS)
    with pytest.raises(ValueError, match="ZScoreTagger has no explain; use CRFTagger, HMSVMTagger"):
        explain(ZScoreTagger().fit([np.eye(2)], [["a", "b"]]), np.eye(2))
    assert {span.probability for one in spans(model, TOKENS) for span in one} == {None}
    online = OnlineDecoder(make_pipeline(TokenFeatures(), CRFTagger(l2=0.1)), strategy="closure")
    found = spans(online.fit(TOKENS, LABELS), TOKENS)
    assert [[span[:3] for span in one] for one in found] == GOLD
    assert found[0][0].probability is None
    hinge = make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter(loss="hinge"))
    with pytest.raises(ValueError, match="SemiCRFSegmenter has no predict_segment_proba"):
        segment_proba(hinge.fit(TOKENS, GOLD), TOKENS)


def test_options_that_a_last_step_does_not_take():
    segmenter = make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter(l2=0.1))
    segmenter.fit(TOKENS, GOLD)
    once = [[span[:3] for span in one] for one in spans(segmenter, TOKENS, valid="once")]
    assert once == list(segmenter.predict(TOKENS, valid="once"))
    with pytest.raises(ValueError, match="SemiCRFSegmenter takes no scheme; leave it out"):
        segment_proba(segmenter, TOKENS, GOLD, scheme="iob2")
    online = OnlineDecoder(make_pipeline(TokenFeatures(), CRFTagger(l2=0.1))).fit(TOKENS, LABELS)
    with pytest.raises(ValueError, match="OnlineDecoder takes no valid; leave it out"):
        spans(online, TOKENS, valid="once")


GOLD = [[(0, 2, "name"), (4, 5, "city")], [(0, 2, "city")], [], [(1, 3, "city")]]


@pytest.mark.parametrize(
    "model",
    [
        make_pipeline(TokenFeatures(), CRFTagger(l2=0.01)),
        make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter(l2=0.01)),
    ],
    ids=["tagger", "segmenter"],
)
def test_fields_have_their_text(model):
    model = clone(model).fit(TOKENS, LABELS)
    found = extract(model, TOKENS)
    assert [[(f.start, f.stop, f.label) for f in one] for one in found] == GOLD
    assert [[f.text for f in one] for one in found] == [
        ["Ann Lee", "Rome"], ["New York"], [], ["New York"],
    ]  # fmt: skip
    assert all(0 < f.probability <= 1 for one in found for f in one)
    found = extract(model, TOKENS, texts=TEXTS)
    expected = [["Ann Lee", "Rome"], ["New York"], [], ["New York"]]
    assert [[f.text for f in one] for one in found] == expected
    assert all(t[f.start : f.stop] == f.text for t, one in zip(TEXTS, found) for f in one)
    offsets = [
        [(0, 3), (4, 7), (9, 14), (15, 17), (18, 22)],
        [(1, 4), (5, 9)],
        [],
        [(0, 2), (3, 6), (7, 11)],
    ]
    assert extract(model, TOKENS, texts=TEXTS, offsets=offsets) == found


def test_tokens_of_other_forms():
    model = make_pipeline(TemplateFeatures(["w[0]"]), CRFTagger(l2=0.1))
    columns = [{"w": x, "n": [str(len(w)) for w in x]} for x in TOKENS]
    model.fit(columns, LABELS)
    assert extract(model, columns)[1][0].text == "New York"
    rows = last_step(model, columns)[1]
    with pytest.raises(ValueError, match="X has no tokens that are strings; pass them as tokens"):
        extract(model[-1], rows)
    assert extract(model[-1], rows, tokens=TOKENS) == extract(model, columns)
    with pytest.raises(
        ValueError, match="tokens must have one entry for each of 4 sequences; got 1"
    ):
        extract(model, columns, tokens=TOKENS[:1])
    with pytest.raises(ValueError, match="offsets are characters of texts; pass texts"):
        extract(model, columns, offsets=[[]] * 4)
    twice = extract(model, [{"w": ["Rome", "Rome"]}], texts=["Rome,Rome"])[0]
    assert (twice[0].start, twice[-1].stop) == (0, 9)
    with pytest.raises(
        ValueError, match="Token 1 of sequence 1, 'York', does not occur in the text"
    ):
        extract(model, columns, texts=[TEXTS[0], "New Jersey", "", TEXTS[3]])


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("more", [{}, {"n": 1}], ids=["one column", "two columns"])
def test_tokens_of_tables_are_those_of_lists(make, more):
    """Also of tables with as many columns as tokens."""
    model = make_pipeline(TokenFeatures(columns="w"), CRFTagger(l2=0.1))
    lists = [["Rome"], ["New", "York"], ["in", "Oslo", "now"]]
    y = [["B-x"], ["B-x", "I-x"], ["O"] * 3]
    X = [make({"w": x, **{name: [value] * len(x) for name, value in more.items()}}) for x in lists]
    model.fit(X, y)
    assert [field.text for one in extract(model, X) for field in one] == ["Rome", "New York"]
    assert to_frame(model, X)["token"].tolist() == [word for x in lists for word in x]
    segments = model.predict(X)
    displays = SegmentationDisplay.from_estimator(model, X), SegmentationDisplay(X, segments)
    assert all(display.tokens == lists for display in displays)
    if make is not dict:
        with pytest.raises(ValueError, match="x must be one sequence; got 3 sequences"):
            explain(model, X)


def probabilities(model, X, labels):
    """The marginal of the given label at each token."""
    rows, classes = np.concatenate(model.predict_proba(X)), model.classes_.tolist()
    return [row[classes.index(label)] for row, label in zip(rows, labels)]


@pytest.mark.parametrize("types", [["name", "none"], ["x-y", "y", "-"], ["B-x", "x"], ["I-"]])
@pytest.mark.parametrize("outside", ["O", "A-none", "-", "x-", "no-y", "I-x-y"])
def test_probabilities_of_types_and_outside_labels_with_hyphens(types, outside):
    rng = np.random.default_rng(0)
    X = [[str(k) for k in rng.integers(0, 2 * len(types), 6)] for _ in range(8)]
    y = [[(t, t + 1, types[int(w)]) for t, w in enumerate(x) if int(w) < len(types)] for x in X]
    segmenter = SemiCRFSegmenter(outside=outside, l2=0.01)
    model = make_pipeline(SegmentFeatures(TokenFeatures()), segmenter).fit(X, y)
    expected = []
    for segments, proba in zip(model.predict(X), model.predict_proba(X)):
        label = np.full(len(proba), outside, dtype=object)
        for start, stop, type_ in segments:
            label[start:stop] = type_
        codes = [model.classes_.tolist().index(one) for one in label]
        expected += proba[np.arange(len(codes)), codes].tolist()
    assert_allclose(to_frame(model, X)["probability"], expected)


def test_table_of_tokens(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    model = make_pipeline(TokenFeatures(), CRFTagger(l2=0.1)).fit(TOKENS, LABELS)
    with pytest.raises(ImportError, match=r"to_frame makes a pandas.DataFrame; install pandas"):
        to_frame(model, TOKENS)
    made = types.SimpleNamespace(DataFrame=dict)  # the columns
    monkeypatch.setitem(sys.modules, "pandas", made)
    table = to_frame(model, TOKENS, texts=TEXTS)
    assert list(table) == ["sequence", "position", "token", "start", "stop", "label", "probability"]
    assert table["sequence"].tolist() == [0] * 5 + [1] * 2 + [3] * 3
    assert table["position"].tolist() == [0, 1, 2, 3, 4, 0, 1, 0, 1, 2]
    assert table["token"] == [word for x in TOKENS for word in x]
    assert [
        TEXTS[s][a:b] for s, a, b in zip(*(table[k] for k in ("sequence", "start", "stop")))
    ] == (table["token"])
    assert table["label"] == [label for labels in model.predict(TOKENS) for label in labels]
    assert_allclose(table["probability"], probabilities(model, TOKENS, table["label"]))
    segmenter = make_pipeline(SegmentFeatures(TokenFeatures()), SemiCRFSegmenter(l2=0.01))
    table = to_frame(segmenter.fit(TOKENS, LABELS), TOKENS)
    assert table["label"] == [label for labels in LABELS for label in labels]
    kinds = [label[2:] or label for label in table["label"]]
    assert_allclose(table["probability"], probabilities(segmenter, TOKENS, kinds))
    numbers = to_frame(model[-1], model[:-1].transform(TOKENS))
    assert list(numbers) == ["sequence", "position", "label", "probability"]
    hmsvm = make_pipeline(TokenFeatures(), HMSVMTagger(random_state=0)).fit(TOKENS, LABELS)
    assert "probability" not in to_frame(hmsvm, TOKENS)


def test_marginals_by_label():
    model = make_pipeline(TokenFeatures(), CRFTagger(l2=0.1)).fit(TOKENS, LABELS)
    found = marginals(model, TOKENS)
    assert [len(one) for one in found] == [len(x) for x in TOKENS]
    for one, proba in zip(found, model.predict_proba(TOKENS)):
        for row, p in zip(one, proba):
            assert row == dict(zip(["B-city", "B-name", "I-city", "I-name", "O"], p.tolist()))
    hmsvm = make_pipeline(TokenFeatures(), HMSVMTagger(random_state=0)).fit(TOKENS, LABELS)
    with pytest.raises(ValueError, match="HMSVMTagger has no predict_proba; use CRFTagger"):
        marginals(hmsvm, TOKENS)


@pytest.mark.parametrize("sparse", [False, True])
def test_weights_by_name_and_sign(sparse):
    rows = [[[word] for word in x] for x in TOKENS]
    tagger = CRFTagger(l2=0.1, constraints="iob2").fit(rows, LABELS)
    weights = tagger.coef_
    tagger = tagger.sparsify() if sparse else tagger
    labels, names = tagger.classes_.tolist(), tagger.feature_names_in_.tolist()
    states = tagger.state_features_
    assert len(states) == np.count_nonzero(weights)
    for (name, label), weight in states.items():
        assert weight == weights[names.index(name), labels.index(label)]
    pairs = tagger.transition_features_
    assert len(pairs) == np.count_nonzero(tagger.transition_)
    assert pairs["O", "I-name"] == -np.inf
    everything = tagger.top_features(10**6)
    for sign, keep in (("positive", lambda w: w > 0), ("negative", lambda w: w < 0)):
        assert tagger.top_features(10**6, sign=sign) == [x for x in everything if keep(x[0])]
        expected = [x for x in tagger.top_transitions(99) if keep(x[0])]
        assert tagger.top_transitions(99, sign=sign) == expected
        some = top_features(tagger, 2, label="O", sign=sign)
        assert some == [x for x in everything if keep(x[0]) and x[1] == "O"][:2]
    with pytest.raises(ValueError, match="sign must be 'positive', 'negative' or None; got 1"):
        tagger.top_features(sign=1)
    with pytest.raises(NotFittedError):
        _ = CRFTagger().transition_features_


# --- Wrong calls ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def singer():
    X, y = [["Ann", "Lee", "sings"]], [["B-NAME", "I-NAME", "O"]]
    return make_pipeline(TokenFeatures(), CRFTagger()).fit(X, y), X


TEXT = ["Ann Lee sings"]
ENDS = [(0, 3), (4, 7), (8, 13)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tokens": [["a"]]}, "tokens of sequence 0 must have one entry for each of 3 tokens; g"),
        ({"tokens": [["a"] * 4]}, "tokens of sequence 0 must have one entry .*; got 4"),
        ({"tokens": [["Ann"]], "texts": TEXT}, "tokens of sequence 0 must have one entry"),
        ({"tokens": [None]}, "tokens of sequence 0 must be a list; got None"),
        ({"tokens": ["abc"]}, "tokens of sequence 0 must be a list; got 'abc'"),
        ({"tokens": [["a", 1, "b"]]}, r"Item 1 of tokens of sequence 0 .* string; got 1 \(int\)"),
        ({"texts": [None]}, "Item 0 of texts must be a string; got None"),
        ({"texts": [*TEXT, ""]}, "texts must have one entry for each of 1 sequences; got 2"),
        ({"offsets": [ENDS]}, "offsets are characters of texts; pass texts, too"),
        ({"texts": TEXT, "offsets": [None]}, "offsets of sequence 0 must be a list"),
        ({"texts": TEXT, "offsets": [ENDS[:2]]}, "offsets of sequence 0 must have one entry for"),
        ({"texts": TEXT, "offsets": [["ab", "cd", "ef"]]}, r"Item 0 of offsets of sequence 0 must"),
        ({"texts": TEXT, "offsets": [[(0, 3), (4, 70), (71, 72)]]}, "the text has 13 characters"),
        ({"texts": TEXT, "offsets": [ENDS[::-1]]}, r"is \(4, 7\) after \(8, 13\); sort the tokens"),
        ({"texts": TEXT, "offsets": [[(0, 9), (4, 7), (8, 9)]]}, r"is \(4, 7\) after \(0, 9\)"),
        ({"texts": TEXT, "offsets": [[(-3, 3), *ENDS[1:]]]}, r"0 <= start <= stop; got \(-3, 3\)"),
    ],
)
def test_tokens_and_texts_are_checked(singer, given, message):
    model, X = singer
    for function in (extract, to_frame):
        with pytest.raises((ValueError, TypeError), match=message):
            function(model, X, **given)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (None, "X must be a list of sequences; got NoneType"),
        ("Ann", "X must be a list of sequences; got str"),
        ([1], r"Sequence 0 of X must be a list of tokens; got 1 \(int\)"),
    ],
)
def test_sequences_are_checked(singer, X, message):
    for function in (extract, to_frame):
        with pytest.raises((ValueError, TypeError), match=message):
            function(singer[0], X)


def test_series_of_sequences_and_texts(singer):
    pandas = pytest.importorskip("pandas")
    model, X = singer
    X, texts = pandas.Series(X, index=[7]), pandas.Series(TEXT, index=[4])
    assert [field[1:4] for field in extract(model, X, texts=texts)[0]] == [("Ann Lee", 0, 7)]


@pytest.mark.parametrize(
    "ask",
    [
        spans, extract, to_frame, nbest, marginals, last_step, lambda model, X: top_features(model),
        lambda model, X: explain(model, X[0]), lambda model, X: feature_names(model),
    ],
)  # fmt: skip
def test_searches_without_a_best_estimator_do_not_answer(singer, ask):
    model, X = singer
    search = GridSearchCV(model, {"crftagger__l2": [0.1]}, refit=False, cv=2)
    for each in (search, FrozenEstimator(search), search.fit(X * 2, [["A", "A", "O"]] * 2)):
        with pytest.raises(NotFittedError, match="GridSearchCV has no best estimator; fit it, wit"):
            ask(each, X)
    with pytest.raises(TypeError, match=r"model must be a fitted estimator.* got NoneType"):
        ask(None, X)


ANSWERS = {
    "top_features": lambda model, rows: top_features(model, 9),
    "top_transitions": lambda model, rows: last_step(model)[0].top_transitions(9),
    "top_transition_features": lambda model, rows: last_step(model)[0].top_transition_features(9),
    "explain": lambda model, rows: explain(model, rows[0]),
    "nbest": lambda model, rows: [labels for labels, _ in nbest(model, rows, 2)],
    "spans": spans,
    "marginals": lambda model, rows: [list(row.items()) for row in marginals(model, rows)[0]],
    "uncertain_rows": lambda model, rows: uncertain_rows(model, rows, 2),
}


LACKS = {  # ... of these answers
    "crf": [],
    "hmsvm": ["marginals", "uncertain_rows"],
    "zscore": ["marginals", "uncertain_rows", "explain"],
    "segmenter": ["top_transitions", "top_transition_features", "uncertain_rows"],
}
MODELS = {
    "crf": lambda: CRFTagger(transition_features=[0]),
    "hmsvm": lambda: HMSVMTagger(random_state=0),
    "zscore": ZScoreTagger,
    "segmenter": SemiCRFSegmenter,
}


@pytest.mark.parametrize("labels", [["B-x", "O", "B-y"], [3, 1, 2], [True, False, True]])
@pytest.mark.parametrize("name", MODELS)
def test_labels_of_answers_are_of_python(name, labels):
    if name == "segmenter" and labels[0] != "B-x":
        pytest.skip("labels of segments are strings")
    rows = [np.eye(3), np.eye(3)[::-1]]
    model = MODELS[name]().fit(rows, [labels, labels[::-1]])
    for answer in ANSWERS.keys() - LACKS[name]:
        found = ANSWERS[answer](model, rows)
        assert found or answer == "top_transition_features"
        assert "np." not in repr(found)
        json.dumps(found)

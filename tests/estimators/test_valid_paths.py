"""Prediction of valid label paths only."""

import itertools
import zlib

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.pipeline import make_pipeline

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    RowBlocks,
    SegmentPotentials,
    SemiCRFSegmenter,
    ZScoreTagger,
    inspection,
)
from sklseq.data.segment_labels import labels_to_segments
from sklseq.estimators import valid_paths
from sklseq.features import TokenFeatures
from tests.estimators.test_predicted_spans import spans_data
from tests.estimators.test_semicrf import problem as segment_problem
from tests.inference.test_segment_inference import segmentations

TAGGERS = {
    "crf": lambda: CRFTagger(l2=0.01, all_possible_transitions=True),
    "crf, constrained": lambda: CRFTagger(l2=0.01, constraints="iob2"),
    "search": lambda: CRFTaggerCV(l2s=[0.01], cv=2),
    "hmsvm": lambda: HMSVMTagger(random_state=0),
    "rbf": lambda: HMSVMTagger(kernel="rbf", random_state=0),
    "zscore": ZScoreTagger,
}


def one_span(labels):
    return len(labels_to_segments(labels)) <= 1


@pytest.mark.parametrize("name", TAGGERS)
def test_best_valid_path(name):
    X, y = spans_data(3)
    y = [  # I-x continues a span
        ["B-x" if b == "I-x" and a == "O" else b for a, b in zip(["O", *labels], labels)]
        for labels in y
    ]
    model = TAGGERS[name]().fit(X, y)
    plain, once = model.predict(X), model.predict(X, valid="once")
    assert sum(map(one_span, plain)) < len(X)
    for s, x in enumerate(X):
        emission, transition, start, end, _ = model.potentials([x])
        best = -np.inf
        for path in itertools.product(range(len(model.classes_)), repeat=len(x)):
            path = np.array(path, dtype=int)
            if one_span(model.classes_[path]):
                ends = start[path[:1]].sum() + end[path[-1:]].sum()
                score = emission[np.arange(len(x)), path].sum() + ends
                score += transition[path[:-1], path[1:]].sum()
                if score > best:
                    best, expected = score, model.classes_[path]
        assert_array_equal(once[s], expected)
        if one_span(plain[s]):
            assert_array_equal(once[s], plain[s])
    for other in (["x"], {"x"}, one_span):
        assert model.predict(X, valid=other) == once
    assert model.predict(X, valid=[]) == plain
    assert len(model.predict([], valid="once")) == 0
    for spans, labels in zip(model.predict_spans(X, valid="once"), once):
        assert [span[:3] for span in spans] == labels_to_segments(labels)


def test_every_label_of_a_segmenter_without_outside_once():
    X, y = [np.eye(2)[[0, 0, 1, 0]]] * 4, [[(0, 2, "O"), (2, 3, "a"), (3, 4, "O")]] * 4
    segmenter = SemiCRFSegmenter(outside=None, l2=0.01, max_segment_length=2).fit(X, y)
    assert segmenter.predict(X) == y
    labels = [[label for _, _, label in found] for found in segmenter.predict(X, valid="once")]
    assert all(len(set(found)) == len(found) for found in labels)


def test_wrong_rules_are_named():
    X = [np.eye(3)]
    tagger = CRFTagger(constraints="iob2").fit(X, [["B-x", "I-x", "O"]])
    segmenter = SemiCRFSegmenter().fit(X, [["B-x", "I-x", "O"]])
    for model in (tagger, segmenter):
        for method in (model.predict, model.predict_spans):
            with pytest.raises(ValueError, match="handle_invalid must be"):
                method(X, handle_invalid="bset")
        with pytest.raises(ValueError, match="valid must return True or False"):
            model.predict(X, valid=lambda answer: None)
    for valid in (None, "once", lambda labels: True):
        with pytest.raises(ValueError, match="Correct its labels in known"):
            tagger.predict(X, known=[["O", "I-x", None]], valid=valid)


def test_pipelines_pass_the_rule_on():
    X, y = [["a", "b", "a", "c"], ["c", "a"]], [["A", "B", "A", "C"], ["C", "A"]]
    model = make_pipeline(TokenFeatures(), CRFTagger(l2=1e-3)).fit(X, y)
    assert model.predict(X) == y
    once = model.predict(X, valid="once")
    assert once[1] == y[1]
    runs = [label for label, _ in itertools.groupby(once[0])]
    assert len(runs) == len(set(runs))
    seen = []
    model.predict(X, valid=lambda labels: seen.append(labels) or True)
    assert seen == y


def test_known_labels_hold_in_valid_paths():
    X, y = [np.eye(3)[[0, 1, 0]]], [["a", "b", "c"]]
    model = CRFTagger(l2=0.1).fit([np.eye(3)], y)
    known = [["b", None, None]]
    once = model.predict(X, known, valid="once")[0]
    assert once[0] == "b"
    paths = [path for path in itertools.product("abc", repeat=3) if path[0] == "b"]
    paths = [
        p
        for p in paths
        if len({k for k, _ in itertools.groupby(p)}) == len(list(itertools.groupby(p)))
    ]
    best = max(paths, key=lambda path: model.predict_log_proba_sequence(X, [path])[0])
    assert once == list(best)


def test_wrong_rules(monkeypatch):
    X, y = spans_data(3)
    model = CRFTagger().fit(X, y)
    with pytest.raises(ValueError, match=r"valid must be None, 'once', .* got 'twice'"):
        model.predict(X, valid="twice")
    with pytest.raises(ValueError, match=r"valid must be None, 'once', .* got 3"):
        model.predict(X, valid=3)
    with pytest.raises(
        ValueError, match=r"names 'B-x', which is not a span type.*span types are 'x'"
    ):
        model.predict(X, valid=["B-x"])
    with pytest.raises(ValueError, match=r"None of the 3 label paths of sequence \d+ is valid"):
        model.predict([x for x in X if len(x) == 1] + [np.eye(3)[:1]], valid=lambda labels: False)
    monkeypatch.setattr(valid_paths, "NUMBERS", (2, 3))
    with pytest.raises(ValueError, match="None of the 3 best label paths of sequence 0 is valid"):
        model.predict([np.eye(3)], valid=lambda labels: False)
    with pytest.raises(ValueError, match="valid needs sequences in memory; pass arrays"):
        model.predict([RowBlocks(lambda: iter([np.eye(3)]))], valid="once")


def never(answer):
    return False


def some(answer):
    """A rule that accepts few answers."""
    return zlib.crc32(repr(answer).encode()) % 15 == 0


@pytest.mark.parametrize("kind", ["tagger", "segmenter"])
def test_best_answer_of_all_where_none_is_valid(kind):
    if kind == "tagger":
        X, y = spans_data(3)
        model = CRFTagger(l2=0.01).fit(X, y)
    else:
        X, y = segment_problem(0, longest=3)
        model = SemiCRFSegmenter(l2=0.01).fit(X, y)
    plain, found_spans = model.predict(X), model.predict_spans(X)
    with pytest.raises(ValueError, match=r"sequence 0 is valid; .* handle_invalid='best'"):
        model.predict(X, valid=never)
    assert model.predict(X, valid=never, handle_invalid="best") == plain
    assert model.predict_spans(X, valid=never, handle_invalid="best") == found_spans
    found = model.predict(X, valid=some, handle_invalid="best")
    n_invalid = 0
    for s, answer in enumerate(found):
        one = X[[s]] if kind == "segmenter" else [X[s]]
        if some(answer):
            assert [answer] == model.predict(one, valid=some)
        else:
            n_invalid += 1
            assert answer == plain[s]
            with pytest.raises(ValueError, match="of sequence 0 is valid"):
                model.predict(one, valid=some)
    assert 0 < n_invalid < len(found)
    with pytest.raises(ValueError, match="handle_invalid must be 'error' or 'best'; got None"):
        model.predict(X, valid="once", handle_invalid=None)


def test_labels_that_must_repeat():
    forbidden = np.array([[False, True], [True, False]])  # a and b in turn
    model = CRFTagger(constraints=forbidden).fit([np.eye(2)] * 2, [["a", "b"]] * 2)
    X = [np.eye(2), np.ones((3, 2))]
    with pytest.raises(ValueError, match=r"Sequence 1 has no allowed .* handle_invalid='best'"):
        model.predict(X, valid="once")
    found = model.predict(X, valid="once", handle_invalid="best")
    assert found == model.predict(X)
    tokens = [["x", "y"], ["x", "y", "z"]]
    fields = inspection.extract(model, X, tokens=tokens, valid="once", handle_invalid="best")
    assert [len(one) for one in fields] == [2, 3]
    Y = SegmentPotentials.from_list(
        [(len(x), [3] * len(x), range(len(x)), range(1, len(x) + 1), x) for x in X]
    )
    segmenter = SemiCRFSegmenter(max_segment_length=1).fit(Y[:1], [[(0, 1, "a"), (1, 2, "b")]])
    with pytest.raises(ValueError, match=r"Sequence 1 has no segmentation .* handle_invalid"):
        segmenter.predict(Y, valid="once")
    found = segmenter.predict(Y, valid="once", handle_invalid="best")
    assert found == segmenter.predict(Y)
    found = inspection.spans(segmenter, Y, valid="once", handle_invalid="best")
    assert [len(one) for one in found] == [2, 3]


def asked(model, x, **known):
    """The answers that a function ``valid`` is asked about, in order."""
    seen = []
    never = lambda answer: seen.append(tuple(answer)) or False  # noqa: E731
    model.predict([x], **known, valid=never, handle_invalid="best")
    return seen


def rows_with_ties():
    """Sequences whose best paths have scores that are equal, or differ by rounding errors."""
    rng = np.random.default_rng(0)
    zeros = [np.zeros((n, 2)) for n in (0, 1, 4, 7)]
    return zeros + [rng.integers(-1, 2, (n, 2)).astype(float) for n in (2, 4, 5, 6)]


@pytest.mark.parametrize("name", [*TAGGERS, "segmenter"])
def test_every_answer_is_asked_once(name):
    X, y = [np.eye(2), np.eye(2)[::-1]], [["B-x", "O"], ["O", "B-x"]]
    if name == "segmenter":
        model = SemiCRFSegmenter(l2=0.1).fit(X, list(map(labels_to_segments, y)))
    else:
        model = TAGGERS[name]().fit(X, y)
    noise = np.random.default_rng(1)
    for attribute in ("transition_", "start_", "end_"):
        weights = getattr(model, attribute)
        some = 1e-16 * noise.integers(-9, 10, weights.shape)  # smaller than rounding errors
        some += 0.85 * (np.ndim(weights) == 2 and ~np.eye(len(weights), dtype=bool))
        setattr(model, attribute, np.where(weights > -np.inf, some, weights))
    for x in rows_with_ties():
        every = list(map(tuple, model.predict_nbest([x], 3**7)[0][0]))
        assert sorted(asked(model, x)) == sorted(every)
        assert asked(model, x)[0] == tuple(model.predict([x])[0])
        if name != "segmenter" and len(x):
            known = [[None] * (len(x) - 1) + [{"B-x"}]]
            agree = [path for path in every if path[-1] == "B-x"]
            assert sorted(asked(model, x, known=known)) == sorted(agree)


RULES = {
    "once": lambda labels: len(set(labels)) == len(labels),
    ("b",): lambda labels: labels.count("b") <= 1,
    "order": lambda labels: labels == sorted(labels),
    "pair": lambda labels: not {"a", "b"} <= set(labels),
}


@pytest.mark.parametrize("name", RULES)
def test_best_valid_segmentation(name):
    """Against enumeration: at most once, order, forbidden pairs anywhere."""
    rule, n_changed = RULES[name], 0
    valid = (lambda s: rule([k for _, _, k in s])) if name in {"order", "pair"} else name
    for seed in range(3):
        X, y = segment_problem(seed, longest=5)
        model = SemiCRFSegmenter(l2=0.01).fit(X, y)
        labels, found = model.classes_.tolist(), model.predict(X, valid=valid)
        limits = [1 if k == "O" else 0 for k in labels]
        for s, plain in enumerate(model.predict(X)):
            every = [
                [(i, j, labels[k]) for i, j, k in one if labels[k] != "O"]
                for one in segmentations(int(X.lengths[s]), len(labels), limits)
            ]
            every = [one for one in every if rule([k for _, _, k in one])]
            scores = model.predict_log_proba_sequence(X[np.full(len(every), s)], every)
            assert found[s] == every[int(np.argmax(scores))]
            n_changed += found[s] != plain
    assert n_changed > 0


def test_a_rule_cannot_change_the_answers():
    def rude(answer):
        answer.clear()
        return True

    X, y = segment_problem(0, longest=3)
    model = SemiCRFSegmenter().fit(X, y)
    assert model.predict(X, valid=rude) == model.predict(X)


def test_rules_of_segments_that_nothing_meets():
    X, y = segment_problem(0, longest=3)
    model = SemiCRFSegmenter().fit(X, y)
    with pytest.raises(ValueError, match=r"None of the \d+ segmentations of sequence 0 is valid"):
        model.predict(X, valid=lambda segments: False)
    with pytest.raises(ValueError, match="valid names 'x', which is not a span type of the model"):
        model.predict(X, valid=["x"])


@pytest.mark.parametrize("valid", [lambda: True, lambda path, more: True])
def test_a_function_of_other_arguments_is_refused(valid):
    X, y = [[["a"], ["b"]]] * 2, [["B-x", "O"]] * 2
    tagger = CRFTagger().fit(X, y)
    with pytest.raises(ValueError, match="valid given as a function must take one argument"):
        tagger.predict(X, valid=valid)
    assert len(tagger.predict(X, valid=bool)) == 2


def test_segments_in_question_may_be_iterators():
    X, y = segment_problem(0)
    model = SemiCRFSegmenter(l2=0.01).fit(X, y)
    asked = [[(0, 1, label) for label in model.classes_.tolist()] for _ in range(len(X))]
    asked = [one if n else [] for one, n in zip(asked, X.lengths)]
    found = model.predict_segment_proba(X, [iter(one) for one in asked])
    for one, expected in zip(found, model.predict_segment_proba(X, asked)):
        assert_array_equal(one, expected)
    assert list(map(len, found)) == list(map(len, asked))


@pytest.mark.filterwarnings("ignore:y holds one label")
@pytest.mark.parametrize("labels", [["O", "O"], ["O", "a"]])
@pytest.mark.parametrize("name", [name for name in TAGGERS if "constrained" not in name])
def test_outside_is_no_span_type(name, labels):
    X, types = [np.eye(2), np.eye(2) * 2], sorted(set(labels) - {"O"})
    model = TAGGERS[name]().fit(X, [labels, labels])
    for valid in ("once", []):
        assert model.predict(X[:1], valid=valid) == [labels]
        assert [span.label for span in model.predict_spans(X[:1], valid=valid)[0]] == types
    known = r"it has none\." if not types else r"span types are 'a'\."
    with pytest.raises(ValueError, match="'O', which is not a span type of the model; " + known):
        model.predict(X, valid=["O"])


@pytest.mark.parametrize("wrong", [lambda y: y[99] == 0, lambda _: np.ones(2) > 0])
def test_failing_function(wrong):
    X, y = spans_data(3)
    model = CRFTagger(l2=0.01).fit(X, y)
    with pytest.raises(ValueError, match=r"for an answer of sequence 0 it failed with ") as caught:
        model.predict(X, valid=wrong)
    assert caught.value.__cause__ is not None
    potentials, segments = segment_problem(0)[:2]
    segmenter = SemiCRFSegmenter().fit(potentials, segments)
    with pytest.raises(ValueError, match=r"for an answer of sequence 0 it failed with "):
        segmenter.predict(potentials, valid=wrong)

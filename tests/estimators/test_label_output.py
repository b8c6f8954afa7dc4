"""Predicted labels as lists, which other packages take, and as arrays."""

import copy
import enum
import itertools
import json
import pickle
from collections import Counter

import numpy as np
import pytest
import seqeval.metrics
import seqeval.scheme
import sklearn.metrics
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    HMSVMTaggerCV,
    OnlineDecoder,
    RowBlocks,
    SemiCRFSegmenter,
    Sequences,
    Shards,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq.compat.sklearn_crfsuite import metrics
from sklseq.features import TokenFeatures
from sklseq.inspection import to_frame
from sklseq.metrics import span_f1, token_accuracy
from tests.estimators.test_predicted_spans import spans_data
from tests.estimators.test_semicrf import problem

X = [["Ann", "Lee", "sings"], ["it", "rains"], [], ["Bo", "Lee", "sang"], ["she", "runs"]] * 3
Y = [["B-PER", "I-PER", "O"], ["O", "O"], [], ["B-PER", "I-PER", "O"], ["O", "O"]] * 3


def model():
    return make_pipeline(TokenFeatures(), CRFTagger(l2=0.01))


def test_everyday_calls():
    fitted = model().fit(X, Y)
    p = fitted.predict(X)
    flat_true, flat = list(itertools.chain(*Y)), list(itertools.chain(*p))
    assert p == Y
    assert p[0] == Y[0]
    assert isinstance(p, list)
    assert {type(labels) for labels in p} == {list}
    assert set(map(type, flat)) == {str}
    assert json.loads(json.dumps(p)) == Y
    assert seqeval.metrics.f1_score(Y, p) == 1
    assert seqeval.metrics.f1_score(Y, p, mode="strict", scheme=seqeval.scheme.IOB2) == 1
    assert "PER" in seqeval.metrics.classification_report(Y, p)
    assert seqeval.metrics.accuracy_score(Y, p) == 1
    assert sklearn.metrics.accuracy_score(flat_true, flat) == 1
    assert "I-PER" in sklearn.metrics.classification_report(flat_true, flat)
    assert Counter(itertools.chain(*p)) == Counter(flat_true)
    assert len(cross_val_predict(fitted, X, Y, cv=3)) == len(X)
    assert pickle.loads(pickle.dumps(p)) == Y
    assert np.asarray(p).shape == (len(X),)
    assert token_accuracy(Y, p) == span_f1(Y, p) == 1


def test_tables():
    pandas, p = pytest.importorskip("pandas"), model().fit(X, Y).predict(X)
    table = pandas.DataFrame({"y": Y, "p": p}).explode(["y", "p"])
    assert (table["y"].dropna() == table["p"].dropna()).all()


TAGGERS = {
    "crf": CRFTagger,
    "search": lambda: CRFTaggerCV(l2s=[0.1], cv=2),
    "hmsvm": lambda: HMSVMTagger(random_state=0),
    "rbf": lambda: HMSVMTagger(kernel="rbf", random_state=0),
    "zscore": ZScoreTagger,
    "online": lambda: OnlineDecoder(CRFTagger()),
}


@pytest.mark.parametrize("name", TAGGERS)
@pytest.mark.parametrize("convert", [str, "BIO".index, lambda label: label == "O"])
def test_lists_and_arrays_hold_the_same_labels(name, convert):
    rows, y = spans_data(4)
    y = [[convert(label[0]) for label in labels] for labels in y]
    lists, arrays = TAGGERS[name](), TAGGERS[name]()
    getattr(arrays, "estimator", arrays).set_output(predict="array")
    lists.fit(rows, y)
    arrays = clone(arrays).fit(rows, y)
    expected = lists.predict(rows)
    found = arrays.predict(rows)
    assert isinstance(found, np.ndarray)
    assert {labels.dtype for labels in found} == {arrays.classes_.dtype}
    assert [labels.tolist() for labels in found] == expected
    assert {type(label) for labels in expected for label in labels} == {type(y[0][0])}
    assert lists.predict([]) == []
    assert arrays.predict([]).shape == (0,)
    assert lists.score(rows, y) == arrays.score(rows, y)
    assert pickle.loads(pickle.dumps(arrays)).predict(rows).shape == found.shape
    if name != "online":
        assert lists.predict(rows, valid=lambda labels: True) == expected
        paths, scores = lists.predict_nbest(rows[:1], 2)[0]
        array, again = arrays.predict_nbest(rows[:1], 2)[0]
        assert paths == array.tolist()
        assert_array_equal(scores, again)
        arrays.set_output(predict=None)
        assert isinstance(arrays.predict(rows), np.ndarray)
        assert arrays.set_output(predict="list").predict(rows) == expected


@pytest.mark.parametrize("of_segments", [False, True])
def test_the_choice_of_an_online_decoder_goes_before_that_of_its_tagger(of_segments):
    rows, y = problem(0) if of_segments else spans_data(4)
    inner = SemiCRFSegmenter() if of_segments else CRFTagger()
    decoder = OnlineDecoder(inner, strategy="closure" if of_segments else "step").fit(rows, y)
    expected = decoder.predict(rows)
    tagger = decoder.estimator_
    for own, of_tagger, arrays in [
        (None, "array", True), ("list", "array", False), ("array", "list", True),
    ]:  # fmt: skip
        tagger.set_output(predict=of_tagger)
        found = decoder.set_output(predict=own).predict(rows)
        assert isinstance(found, np.ndarray) == arrays
        assert [list(labels) for labels in found] == expected
    assert isinstance(clone(decoder).fit(rows, y).predict(rows), np.ndarray)
    assert decoder.set_output(transform="default") is decoder
    with pytest.raises(ValueError, match=r"The output of OnlineDecoder\.transform"):
        decoder.set_output(transform="pandas")


def test_strings_of_lists_are_shared():
    rows, y = problem(0)
    found = SemiCRFSegmenter().fit(rows, y).predict_labels(rows)
    flat = list(itertools.chain(*found))
    assert len(set(map(id, flat))) == len(set(flat))


@pytest.mark.parametrize("form", ["list", "array"])
def test_blocks_shards_searches_and_explanations(tmp_path, form):
    rows, y = spans_data(5)
    expected = CRFTagger().fit(rows, y).predict(rows)
    tagger = CRFTagger().set_output(predict=form).fit(rows, y)

    def read(found):
        assert isinstance(found, list if form == "list" else np.ndarray)
        return [p if form == "list" else p.tolist() for p in found]

    assert read(tagger.predict(rows * 99)) == expected * 99  # several blocks of rows
    filled = [s for s, x in enumerate(rows) if len(x)]
    blocks = [RowBlocks(lambda x=rows[s]: iter([x])) for s in filled]
    assert read(tagger.predict(blocks)) == [expected[s] for s in filled]
    parts = list(tagger.predict_blocks(blocks[0]))
    assert [label for part in parts for label in part] == expected[filled[0]]
    assert {type(part) for part in parts} == {list if form == "list" else np.ndarray}
    Sequences.from_list(rows).save(tmp_path / "a.npz", y)
    shards = Shards([tmp_path / "a.npz"])
    assert read(tagger.predict(shards)) == expected
    assert tagger.score(shards) == tagger.score(rows, y)
    assert [row.label for row in tagger.explain(rows[filled[0]])] == expected[filled[0]]
    search = GridSearchCV(CRFTagger().set_output(predict=form), {"l2": [1.0]}, cv=2).fit(rows, y)
    assert read(search.predict(rows)) == expected


SEARCHES = {
    "crf": lambda scoring: CRFTaggerCV(l2s=[0.1], cv=2, scoring=scoring),
    "hmsvm": lambda scoring: HMSVMTaggerCV(Cs=[1.0], cv=2, scoring=scoring, random_state=0),
    "zscore": lambda scoring: ZScoreTaggerCV(l2s=[0.1], cv=2, scoring=scoring),
    "leave one out": lambda scoring: ZScoreTaggerCV(l2s=[0.1], scoring=scoring),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_scorers_of_searches_get_lists(name):
    rows, y = spans_data(4)
    seen = []

    def agreement(true, predicted):
        seen.append((true, predicted))
        return float(np.mean([a == b for a, b in zip(true, predicted)]))

    SEARCHES[name](sklearn.metrics.make_scorer(agreement)).fit(rows, y)
    labels = [sequence for sides in seen for side in sides for sequence in side]
    assert {type(sequence) for sequence in labels} == {list}
    assert {type(label) for sequence in labels for label in sequence} == {str}


def test_segmenters():
    rows, y = problem(0)
    lists = SemiCRFSegmenter().fit(rows, y)
    arrays = SemiCRFSegmenter().set_output(predict="array").fit(rows, y)
    assert arrays.predict(rows).tolist() == lists.predict(rows)
    assert [p.tolist() for p in arrays.predict_labels(rows)] == lists.predict_labels(rows)
    assert lists.score(rows, y) == arrays.score(rows, y)
    assert span_f1(y, lists.predict(rows)) == span_f1(y, arrays.predict(rows))


def test_unknown_forms():
    with pytest.raises(ValueError, match="predict must be 'list', 'array' or None; got 'lists'"):
        CRFTagger().set_output(predict="lists")


def test_taggers_do_not_transform():
    with pytest.raises(
        ValueError, match="transform must be None; got 'pandas': CRFTagger predicts"
    ):
        CRFTagger().set_output(transform="pandas")


class Tag(str, enum.Enum):  # noqa: UP042 (str(Tag.A) is no value, as that of StrEnum is)
    A = "alpha"
    B = "beta"


def test_labels_of_an_enumeration_are_its_values():
    X, y, plain = [np.eye(2)] * 3, [[Tag.A, Tag.B]] * 3, [["alpha", "beta"]] * 3
    for tagger in (CRFTagger(), HMSVMTagger(), ZScoreTagger()):
        p = tagger.fit(X, y).predict(X)
        assert p == plain
        assert {type(label) for label in p[0]} == {str}
    known = [[None, {Tag.A}]] * 3
    assert CRFTagger().fit(X, y).predict(X, known=known)[0][1] == "alpha"
    assert token_accuracy(y, plain) == metrics.flat_accuracy_score(y, plain) == 1
    segments = [[(0, 1, Tag.A), (1, 2, Tag.B)]] * 3
    segmenter = SemiCRFSegmenter(l2=0.01).fit(X, segments)
    assert segmenter.predict(X) == [[(0, 1, "alpha"), (1, 2, "beta")]] * 3
    assert_array_equal(
        segmenter.predict_segment_proba(X, segments), segmenter.predict_segment_proba(X)
    )


def test_slices_and_copies_keep_the_class():
    p = CRFTagger().fit([np.eye(2)[:1], np.eye(2)], [["a"], ["a", "b"]]).predict([np.eye(2)] * 3)
    for one in (p[:2], p.copy(), copy.copy(p), pickle.loads(pickle.dumps(p))):
        assert isinstance(one, list)
        assert np.concatenate(one).shape == (2 * len(one),)


def test_spans_of_integer_labels_have_probabilities():
    X = [np.eye(2)]
    for labels in ([0, 1], [False, True]):
        tagger = CRFTagger().fit(X, [labels])
        spans = tagger.predict_spans(X)
        found = tagger.predict_segment_proba(X, spans)[0]
        assert_allclose(found, [span.probability for span in spans[0]])
        with pytest.raises(ValueError, match=r"two integers and an? (integer|boolean); got"):
            tagger.predict_segment_proba(X, [[(0, 1, "0")]])


def test_a_crf_of_a_z_score_keeps_the_form():
    X, y = [np.eye(2)] * 3, [["a", "b"]] * 3
    for form, cls in (("list", list), ("array", np.ndarray)):
        tagger = ZScoreTagger().set_output(predict=form).fit(X, y)
        assert type(tagger.to_crf().predict(X)[0]) is cls


@pytest.mark.parametrize("y", [None, [None], [(n for n in "ab")], [[(0, 1, "a")]]])
def test_flat_scores_name_wrong_labels(y):
    with pytest.raises((TypeError, ValueError), match="y_pred"):
        metrics.flat_accuracy_score([["a"]], y)
    with pytest.raises((TypeError, ValueError), match="y_pred"):
        metrics.sequence_accuracy_score([["a"]], y)


def test_tables_of_nothing_have_columns_of_objects():
    table = to_frame(model().fit(X, Y), [])
    assert list(map(str, table[["token", "label"]].dtypes)) == ["object", "object"]

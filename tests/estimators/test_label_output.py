"""Predicted labels as lists, which other packages take; the same labels as arrays."""

import itertools
import json
import pickle
from collections import Counter

import numpy as np
import pytest
import seqeval.metrics
import seqeval.scheme
import sklearn.metrics
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline

from sklseq import (
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    OnlineDecoder,
    RowBlocks,
    SemiCRFSegmenter,
    Sequences,
    Shards,
    ZScoreTagger,
)
from sklseq.features import TokenFeatures
from sklseq.metrics import span_f1, token_accuracy
from tests.estimators.test_predicted_spans import spans_data
from tests.estimators.test_semicrf import problem

X = [["Ann", "Lee", "sings"], ["it", "rains"], [], ["Bo", "Lee", "sang"], ["she", "runs"]] * 3
Y = [["B-PER", "I-PER", "O"], ["O", "O"], [], ["B-PER", "I-PER", "O"], ["O", "O"]] * 3


def model():
    return make_pipeline(TokenFeatures(), CRFTagger(l2=0.01).set_output(predict="list"))


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
def test_lists_hold_the_labels_of_arrays(name, convert):
    rows, y = spans_data(4)
    y = [[convert(label[0]) for label in labels] for labels in y]
    plain, lists = TAGGERS[name](), TAGGERS[name]()
    getattr(lists, "estimator", lists).set_output(predict="list")
    plain.fit(rows, y)
    lists = clone(lists).fit(rows, y)
    expected = [labels.tolist() for labels in plain.predict(rows)]
    assert lists.predict(rows) == expected
    assert {type(label) for labels in lists.predict(rows) for label in labels} <= {str, int, bool}
    assert lists.predict([]) == []
    assert lists.score(rows, y) == plain.score(rows, y)
    assert pickle.loads(pickle.dumps(lists)).predict(rows) == expected
    if name != "online":
        assert lists.predict(rows, valid=lambda labels: True) == expected
        lists.set_output(predict=None)
        assert isinstance(lists.set_output(predict="array").predict(rows), np.ndarray)


def test_blocks_shards_searches_and_explanations(tmp_path):
    rows, y = spans_data(5)
    lists = CRFTagger().set_output(predict="list").fit(rows, y)
    expected = [labels.tolist() for labels in CRFTagger().fit(rows, y).predict(rows)]
    assert lists.predict(rows * 99) == expected * 99  # several blocks of rows
    filled = [s for s, x in enumerate(rows) if len(x)]
    blocks = [RowBlocks(lambda x=rows[s]: iter([x])) for s in filled]
    assert lists.predict(blocks) == [expected[s] for s in filled]
    Sequences.from_list(rows).save(tmp_path / "a.npz", y)
    shards = Shards([tmp_path / "a.npz"])
    assert lists.predict(shards) == expected
    assert lists.score(shards) == lists.score(rows, y)
    assert [row.label for row in lists.explain(rows[filled[0]])] == expected[filled[0]]
    search = GridSearchCV(CRFTagger().set_output(predict="list"), {"l2": [1.0]}, cv=2).fit(rows, y)
    assert search.predict(rows) == expected


def test_segmenters_give_lists_of_segments():
    rows, y = problem(0)
    plain = SemiCRFSegmenter().fit(rows, y)
    lists = SemiCRFSegmenter().set_output(predict="list").fit(rows, y)
    assert lists.predict(rows) == list(plain.predict(rows))
    assert lists.predict_labels(rows) == [p.tolist() for p in plain.predict_labels(rows)]
    assert lists.score(rows, y) == plain.score(rows, y)
    assert span_f1(y, lists.predict(rows)) == span_f1(y, plain.predict(rows))


def test_unknown_forms():
    with pytest.raises(ValueError, match="predict must be 'array', 'list' or None; got 'lists'"):
        CRFTagger().set_output(predict="lists")

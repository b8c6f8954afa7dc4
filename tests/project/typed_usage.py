"""Calls as users write them, for mypy: types of public names arrive, and wrong ones are refused.

Not run: ``make lint`` checks it. An ``ignore`` that nothing needs is an error.
"""

from typing import Any, assert_type

import numpy as np
from matplotlib.axes import Axes

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    OnlineDecoder,
    SegmentReranker,
    SemiCRFSegmenter,
    Sequences,
    Shards,
    ZScoreTagger,
)
from sklseq.data.segment_potentials import SegmentPotentials, SequencePotentials
from sklseq.datasets import align_spans, from_frame, from_rows, make_contacts, read_conll
from sklseq.deployment import trusted_types
from sklseq.display import SegmentationDisplay, TransitionsDisplay
from sklseq.features import SegmentFeatures, TemplateFeatures, TokenFeatures, WindowFeatures
from sklseq.inference import ExpectedFeatures, expected_features, viterbi
from sklseq.metrics import span_f1, span_report, token_accuracy
from sklseq.online import tune_latency

rows = [np.eye(3), np.ones((2, 3))]
labels = [["a", "b", "c"], ["a", "a"]]
tokens = [["Ada", "writes"], ["Bob"]]


def train() -> None:
    tagger = CRFTagger(l2=0.1, solver="lbfgs").fit(rows, labels, sample_weight=[1.0, 2.0])
    assert_type(tagger, CRFTagger)
    assert_type(tagger.predict(rows), list[list[Any]])
    assert_type(tagger.predict_proba(rows), list[np.ndarray])
    assert_type(tagger.predict_proba(rows, known=[[None, {"a", "b"}]]), list[np.ndarray])
    assert_type(HMSVMTagger().fit(rows, labels).decision_function(rows), list[np.ndarray])
    assert_type(tagger.score(rows, labels), float)
    tagger.fit(Shards(["a.npz", "b.npz"]))
    tagger.fit(3, labels)  # type: ignore[arg-type]
    CRFTagger(l2="much")  # type: ignore[arg-type]
    CRFTagger(penalty=1.0)  # type: ignore[call-arg]
    assert_type(ZScoreTagger().fit(rows, labels).to_crf(), CRFTagger)
    decoder = OnlineDecoder(tagger, latency_cost=0.1).fit(rows, labels)
    assert_type(decoder.predict(rows), list[list[Any]])
    assert_type(decoder.pool().push_many(["id"], rows[0][:1]).label, np.ndarray)
    assert_type(tune_latency(decoder, rows, labels, target_latency=1).decoder, OnlineDecoder)
    segments = [[(0, 2, "person")], [(0, 1, "person")]]
    X = SegmentFeatures(TokenFeatures()).fit_transform(tokens)
    assert_type(X, SegmentPotentials)
    segmenter = SemiCRFSegmenter().fit(X, segments)
    assert_type(segmenter, SemiCRFSegmenter)
    assert_type(segmenter.predict_proba(X), list[np.ndarray])
    assert_type(SegmentReranker(segmenter).fit(tokens, segments), SegmentReranker)


def containers(X: Sequences, potentials: SegmentPotentials) -> None:
    assert_type(X[1:], Sequences)
    assert_type(X[[0, 2]], Sequences)
    assert_type(potentials[0], SequencePotentials)
    assert_type(potentials[:2], SegmentPotentials)
    assert_type(Sequences.load("data.npz"), Sequences)
    _, y = Sequences.load("data.npz", return_y=True)
    assert_type(y, list[list[Any]] | None)


def extract() -> None:
    templates = TemplateFeatures(["w[0]", "w[-1]|w[0]"], min_count=2)
    assert_type(templates.fit(tokens), TemplateFeatures)
    assert_type(templates.transform(tokens), Sequences)
    assert_type(WindowFeatures(templates, before=2).fit_transform(tokens), Sequences)
    TokenFeatures(min_count="three")  # type: ignore[arg-type]


def evaluate() -> None:
    y = [np.array(["B-x", "O"])]
    assert_type(token_accuracy(y, y), float)
    span_f1([["B-x", "O"]], y)
    assert_type(span_report(y, y), str | dict[str, dict[str, float]])
    span_f1(y, 3)  # type: ignore[arg-type]


def ask() -> None:
    answer = expected_features(np.zeros((3, 2)), np.zeros((2, 2)), order=2)
    assert_type(answer, ExpectedFeatures)
    viterbi(np.zeros((3, 2)), np.zeros((2, 2)), [0, 1, 3])
    viterbi(np.zeros((3, 2)))  # type: ignore[call-arg]


def look(ax: Axes, tagger: CRFTagger) -> None:
    assert_type(TransitionsDisplay.from_estimator(tagger).plot(ax), TransitionsDisplay)
    assert_type(SegmentationDisplay(tokens, [[(0, 1, "x")], []]).as_text(), str)
    X, y = make_contacts(3)
    read_conll("train.txt", label=None)
    assert_type(trusted_types(), list[str])
    table, labels_of_table = from_frame({"s": [0, 0], "w": ["a", "b"]}, "s", "w")
    tagger.fit(table, labels_of_table)
    assert_type(from_rows([{"tokens": ["a"]}])[0], list[dict])
    assert_type(align_spans([(0, 1, "x")], [(0, 1)]), list[tuple[int, int, str]])
    from_frame({"s": [0]}, 3)  # type: ignore[arg-type]
    tagger.fit(X, y)

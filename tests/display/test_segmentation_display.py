"""Segments in colour: text, HTML and pictures say the same."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from sklseq import CRFTagger
from sklseq.datasets import make_citations
from sklseq.display import SegmentationDisplay
from sklseq.display._common import style_of
from sklseq.features import TokenFeatures, WindowFeatures
from sklseq.metrics import span_precision_recall_fscore_support

pyplot = pytest.importorskip("matplotlib.pyplot")
TOKENS = [["J.", "<Doe>", "in", "Rome", "&", "Bern"], [], ["x"]]
SEGMENTS = [[(0, 2, "person"), (3, 4, "city"), (5, 6, "city")], [], []]
TRUE = [["B-person", "I-person", "O", "B-city", "I-city", "I-city"], [], ["O"]]


@pytest.fixture(autouse=True)
def _no_window():
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")


def test_segments_and_labels_are_read_alike():
    display = SegmentationDisplay(TOKENS, SEGMENTS, TRUE)
    assert display.true == [[(0, 2, "person"), (3, 6, "city")], [], []]
    assert display.types == ["city", "person"]
    labels = SegmentationDisplay(TOKENS, [np.array(path) for path in TRUE])
    assert labels.segments == display.true
    with_outside = [
        [(0, 2, "person"), (2, 3, "O"), (3, 4, "city"), (4, 5, "O"), (5, 6, "city")],
        [],
        [(0, 1, "O")],
    ]
    assert SegmentationDisplay(TOKENS, with_outside).segments == SEGMENTS
    assert display.as_text().splitlines() == [
        "[person J. <Doe>] in [city Rome] & [city Bern]",
        "",
        "x",
    ]


class Marks(HTMLParser):
    """Text inside <mark>, and what is open at the end."""

    def __init__(self):
        super().__init__()
        self.open, self.marks, self.text = [], [], ""

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        if tag == "mark":
            self.marks.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if "mark" in self.open:
            self.marks[-1] += data


def test_html_is_escaped_and_well_formed():
    parser = Marks()
    parser.feed(SegmentationDisplay(TOKENS, SEGMENTS, TRUE)._repr_html_())
    assert parser.open == []
    assert parser.marks == ["J. <Doe> person", "Rome city ✗", "Bern city ✗", "J. <Doe> person",
                            "Rome & Bern city"]  # fmt: skip
    assert parser.text.count("true:") == 1  # only where something is wrong
    assert "<Doe>" not in SegmentationDisplay(TOKENS, SEGMENTS)._repr_html_()


def test_html_of_later_sequences_has_their_own_tokens():
    display = SegmentationDisplay([["a"], ["b"]], [[], []], [[], [(0, 1, "t")]])
    parser = Marks()
    parser.feed(display._repr_html_())
    assert parser.marks == ["b t"]


def test_many_types_differ_in_more_than_colour():
    types = [f"t{k:02}" for k in range(20)]
    display = SegmentationDisplay([types], [[(k, k + 1, t) for k, t in enumerate(types)]])
    styles = {style_of(display.types, t) for t in types}
    assert len(styles) == 20
    found = set(re.findall(r"border-bottom:3px (\w+) (#\w+)", display._repr_html_()))
    assert len(found) == 20


@pytest.mark.parametrize("width", [8, 30, 90])
def test_every_word_and_segment_is_drawn(width):
    display = SegmentationDisplay(TOKENS, SEGMENTS, TRUE).plot(width=width)
    texts = [text.get_text() for text in display.ax_.texts]
    for word in ("J.", "<Doe>", "in", "Rome", "&", "Bern", "x"):
        assert texts.count(word) == 1
    assert texts.count("city ✗") <= 2
    assert len(display.ax_.patches) >= 5  # three segments, two bars; more where lines break
    words = [t for t in display.ax_.texts if t.get_text() in {"J.", "<Doe>", "in", "Rome", "&"}]
    rows = {t.get_position()[1] for t in words}
    assert (len(rows) == 1) == (width >= 30)
    for text in words:
        assert text.get_position()[0] + len(text.get_text()) <= max(width, 6)


def test_names_end_before_the_next_one():
    segments = [(0, 1, "person"), (3, 4, "organisation"), (4, 5, "city")]
    display = SegmentationDisplay([["a", "of", "the", "b", "c"]], [segments]).plot(width=30)
    names = [text.get_text() for text in display.ax_.texts if text.get_fontsize() < 6]
    assert names == ["person", "or", "city"]


def test_f1_of_each_type():
    display = SegmentationDisplay(TOKENS, SEGMENTS, TRUE).plot_f1()
    assert [bar.get_width() for bar in display.ax_.patches] == [0, 100]
    y_pred = [["B-person", "I-person", "O", "B-city", "O", "B-city"], [], ["O"]]
    scores = span_precision_recall_fscore_support(TRUE, y_pred, average=None)
    assert (100 * scores.f1).tolist() == [0, 100]
    true = [["_" if label == "O" else label for label in labels] for labels in TRUE]
    other = SegmentationDisplay(TOKENS, SEGMENTS, true, outside="_").plot_f1()
    assert [bar.get_width() for bar in other.ax_.patches] == [0, 100]
    with pytest.raises(ValueError, match=r"give them as true= or y="):
        SegmentationDisplay(TOKENS, SEGMENTS).plot_f1()
    with pytest.raises(ValueError, match="plot_f1 needs segments; there are none, true or"):
        SegmentationDisplay([["a"]], [[]], true=[[]]).plot_f1()


def test_from_a_tagger():
    X, y = make_citations(12, random_state=0)
    features = WindowFeatures(TokenFeatures())
    crf = CRFTagger(l2=0.1).fit(features.fit_transform(X), y)

    class Model:
        def predict(self, X):
            words = [x["w"] if isinstance(x, dict) else x for x in X]
            return crf.predict(features.transform(words))

    display = SegmentationDisplay.from_estimator(Model(), X, y)
    assert display.segments == display.true
    assert "✗" not in display._repr_html_()
    columns = SegmentationDisplay.from_estimator(Model(), [{"w": x} for x in X])
    assert columns.tokens == X


@pytest.mark.parametrize(
    ("segments", "message"),
    [
        ([[]], r"segments must have one segmentation per sequence; got 1 for 3 sequences"),
        ([[(0, 9, "a")], [], []], r"segments of sequence 0: .*exceeds its sequence of 6"),
        ([[(0, 2, "a"), (1, 3, "a")], [], []], r"segments of sequence 0: .*overlap"),
        ([[(0, 0, "a")], [], []], r"segments of sequence 0: .*is empty"),
        ([["O"], [], ["O"]], r"segments of sequence 0 has 1 label for 6 tokens"),
    ],
)
def test_bad_segments_are_named(segments, message):
    with pytest.raises(ValueError, match=message):
        SegmentationDisplay(TOKENS, segments)


def test_numbers_cannot_be_shown():
    class Model:
        def predict(self, X):
            return [[]]

    with pytest.raises(ValueError, match=r"X must hold tokens to show them"):
        SegmentationDisplay.from_estimator(Model(), [np.ones((2, 2))])

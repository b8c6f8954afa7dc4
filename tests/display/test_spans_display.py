"""Marked fields: HTML and plot show each field with its probability, and text is escaped."""

import re
from html.parser import HTMLParser

import pytest
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, ZScoreTagger
from sklseq.display import SpansDisplay
from sklseq.features import TokenFeatures
from sklseq.inspection import extract

plt = pytest.importorskip("matplotlib.pyplot")

X = [["Ann", "Lee", "met", "Bob"], ["Bob", "left", "Ann"], []]
Y = [["B-PER", "I-PER", "O", "B-PER"], ["B-PER", "O", "B-PER"], []]


@pytest.fixture(autouse=True)
def closed_figures():
    plt.switch_backend("agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def model():
    return make_pipeline(TokenFeatures(), CRFTagger(l2=0.01)).fit(X, Y)


class Reader(HTMLParser):
    """Visible text, tags and styles; entities become characters."""

    def __init__(self, html):
        super().__init__()
        self.text, self.tags, self.styles = "", [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.styles += [value for name, value in attributes if name == "style"]

    def handle_data(self, data):
        self.text += data


def drawn(display):
    return [text.get_text() for text in display.plot().ax_.texts]


def test_fields_are_those_of_extract(model):
    texts = ["Ann  Lee met Bob.", "Bob left Ann", ""]
    display = SpansDisplay.from_estimator(model, X, texts=texts)
    assert display.fields == [list(map(tuple, one)) for one in extract(model, X, texts=texts)]
    assert display.labels == ["PER"]
    first = display.fields[0][0]
    assert first[1:4] == ("Ann  Lee", 0, 8)
    assert display.as_text().startswith(f"[PER {100 * first[4]:.0f} % Ann  Lee] met [PER")


def test_tokens_are_joined_without_texts(model):
    assert SpansDisplay.from_estimator(model, X).texts == ["Ann Lee met Bob", "Bob left Ann", ""]


def test_margin_taggers_have_no_probabilities():
    tagger = make_pipeline(TokenFeatures(), ZScoreTagger()).fit(X, Y)
    display = SpansDisplay.from_estimator(tagger, X[:1])
    assert display.as_text() == "[PER Ann Lee] met [PER Bob]"


def test_html_is_escaped_and_keeps_the_colour_of_the_page():
    bad = '<script>alert("1")</script> & co'
    display = SpansDisplay([bad], [[("<b>&", bad[:8], 0, 8, 0.25)]])
    page = Reader(display._repr_html_())
    assert set(page.tags) == {"div", "mark", "span", "small", "b"}
    assert page.text == f"{bad[:8]} <b>& 25 %{bad[8:]}"
    mark = next(style for style in page.styles if "rgba" in style)
    assert "color:inherit" in mark  # light and dark pages


def test_a_probable_field_is_stronger():
    fields = [[("A", "a", 0, 1, 0.1), ("A", "b", 2, 3, 0.9), ("A", "c", 4, 5, None)]]
    html = SpansDisplay(["a b c"], fields)._repr_html_()
    faint, strong, unknown = map(float, re.findall(r"rgba\(\d+,\d+,\d+,([\d.]+)\)", html))
    assert faint < strong < unknown


def test_the_plot_shows_words_and_captions():
    text = "Ann Lee met\nBob in Rome"
    fields = [("PER", "Ann Lee", 0, 7, 0.9), ("LOC", "Rome", 19, 23, None)]
    words = drawn(SpansDisplay([text], [fields]))
    assert sorted(words) == sorted([*text.split(), "PER 90 %", "LOC"])


def test_long_texts_and_fields_are_broken():
    text = "word " * 30 + "x" * 50
    display = SpansDisplay([text], [[("A", text, 0, len(text), 0.5)]]).plot(width=40)
    columns = [label.get_position()[0] for label in display.ax_.texts]
    assert max(columns) <= 40
    heights = {label.get_position()[1] for label in display.ax_.texts if "word" in label.get_text()}
    assert len(heights) == 4
    assert drawn(display).count("A 50 %") == 1


def test_captions_of_neighbours_do_not_overlap():
    fields = [("volume", "66", 0, 2, 0.5), ("year", "1989", 3, 7, 0.5)]
    assert set(drawn(SpansDisplay(["66 1989"], [fields]))) == {"66", "volu", "1989", "year 50 %"}


@pytest.mark.parametrize("fields", [[("A", "a", 0, 0, 1)], [("A", "a", 0, 9, 1)],
                                    [("A", "ab", 0, 2, 1), ("A", "b", 1, 3, 1)]])  # fmt: skip
def test_wrong_fields_are_named(fields):
    with pytest.raises(ValueError, match=r"fields of text 0: .* must begin at"):
        SpansDisplay(["a b"], [fields])


def test_one_list_for_each_text():
    with pytest.raises(ValueError, match="got 0 lists for 1 texts"):
        SpansDisplay(["a"], [])


def test_no_texts():
    assert SpansDisplay([], []).plot().as_text() == ""

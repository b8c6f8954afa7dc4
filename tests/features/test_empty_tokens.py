"""Tokens without columns, files of tokens only: one sentence each, for every reader."""

import io

import pytest

from sklseq import CRFTagger
from sklseq.datasets import read_conll
from sklseq.features import (
    LexiconFeatures,
    PerToken,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)

EXTRACTORS = [
    TokenFeatures(),
    TemplateFeatures(["w[0]"]),
    WindowFeatures(TokenFeatures()),
    PerToken(len),
    LexiconFeatures({"x": ["a"]}),
]
# Sequences whose tokens have no columns, in each form that has columns.
NO_COLUMNS = [{}, [{}], [()], [[]], [{}, {}]]


@pytest.mark.parametrize("extractor", EXTRACTORS, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("before", [[], [[]]], ids=["", "after empty"])
def test_tokens_without_columns_are_named(extractor, before):
    for some in NO_COLUMNS:
        for X in ([*before, some], [*before, some, some]):
            with pytest.raises(ValueError, match=f"Sequence {len(before)} of X has tokens without"):
                extractor.fit_transform(X)


def test_a_set_of_numbers_is_no_row():
    with pytest.raises(ValueError, match="Row 0 of sequence 0 of X is a set of numbers"):
        CRFTagger().fit([[{1, 2}, {3, 4}]], [["a", "b"]])


@pytest.mark.parametrize("text", ["a\n", "a\nb\n\nc\n", "a \n", "O\n\n"])
def test_a_file_of_tokens_only_has_no_labels(text):
    with pytest.raises(ValueError, match=r"line 1: '\w' has one column.*label=None"):
        read_conll(io.StringIO(text))
    X, y = read_conll(io.StringIO(text), label=None)
    assert y is None
    assert len(X[0]["c0"])


@pytest.mark.parametrize("label", ["pos", 0.5, True, [1], b"x"])
def test_label_is_a_position(label):
    with pytest.raises(ValueError, match="label must be the position of a column, or None"):
        read_conll(io.StringIO("a b c\n"), label=label)


def test_files_that_are_no_plain_text():
    with pytest.raises(ValueError, match="is a zip archive"):
        read_conll(io.BytesIO(b"PK\x03\x04\x14\x00"))
    for encoding in ("utf-16-le", "utf-16-be"):
        mark = "\ufeff".encode(encoding)
        with pytest.raises(ValueError, match="byte order mark of UTF-16; give the encoding utf-16"):
            read_conll(io.BytesIO(mark + "a O\n".encode(encoding)))
    assert read_conll(io.BytesIO("a O\n".encode("utf-16")), encoding="utf-16")[1] == [["O"]]

"""Generated references, and files with inline tags."""

import gzip
import io
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sklseq.datasets import make_citations, read_conll, read_tagged
from sklseq.features import SegmentFeatures
from sklseq.metrics import span_report

FIELDS = {"author", "title", "journal", "booktitle", "volume", "pages", "date", "publisher",
          "location"}  # fmt: skip


# --- make_citations ----------------------------------------------------------------------------


def test_labels_are_iob2_of_all_fields():
    X, y = make_citations(200, random_state=0)
    for tokens, labels in zip(X, y):
        assert len(tokens) == len(labels) > 5
        assert all(token and not any(c.isspace() for c in token) for token in tokens)
        for previous, label in zip(["O", *labels], labels):
            assert not label.startswith("I-") or previous[2:] == label[2:]
    assert {label[2:] for labels in y for label in labels} - {""} == FIELDS
    counts = Counter(label for labels in y for label in labels)
    assert counts["B-author"] > 200 > counts["B-journal"] > 50


def test_the_same_seed_gives_the_same_and_more_of_them():
    X, y, lexicons = make_citations(30, random_state=3, return_lexicons=True)
    more = make_citations(50, random_state=3, return_lexicons=True)
    assert (more[0][:30], more[1][:30]) == (X, y)
    assert more[2] == lexicons
    assert make_citations(30, random_state=4)[0] != X


@pytest.mark.parametrize("known", [0, 0.6, 1])
def test_lexicons_know_the_share_asked_for(known):
    X, y, lexicons = make_citations(300, random_state=0, known=known, return_lexicons=True)
    journals = segments(X, y, "journal")
    share = np.mean([journal in set(lexicons["journal"]) for journal in journals])
    # Some of the other journals in the lexicon are called like one that occurs.
    assert known - 0.15 <= share <= known + 0.25
    assert len(lexicons["author"]) > 300


def segments(X, y, field):
    found = []
    for tokens, labels in zip(X, y):
        for token, label in zip(tokens, labels):
            if label == f"B-{field}":
                found.append([token.rstrip(".,:")])
            elif label == f"I-{field}":
                found[-1].append(token.rstrip(".,:"))
    return [" ".join(tokens) for tokens in found]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (dict(n=0), r"n, the number of references, must be an integer of at least 1; got 0"),
        (dict(known=2), r"known must be a finite number from 0 to 1; got 2"),
    ],
)
def test_bad_parameters(parameters, message):
    with pytest.raises(ValueError, match=message):
        make_citations(**parameters)


def test_the_pieces_fit_together():
    X, y, lexicons = make_citations(5, random_state=0, return_lexicons=True)
    out = SegmentFeatures(lexicons=lexicons).fit_transform(X)
    assert len(out) == 5
    assert span_report(y, y)


# --- read_tagged -------------------------------------------------------------------------------


def test_tags_blank_lines_and_marks():
    text = "<a>x y</a><b> z </b>\n\n  \nno < tag <c></c> 3 <d>w</d>, \n"
    X, y = read_tagged(io.StringIO(text), outside="-")
    assert X == [["x", "y", "z"], ["no", "<", "tag", "3", "w", ","]]
    assert y == [["B-a", "I-a", "B-b"], ["-", "-", "-", "-", "B-d", "-"]]


def test_equal_segments_side_by_side_stay_apart(tmp_path):
    path = tmp_path / "tagged.txt.gz"
    path.write_bytes(gzip.compress("<a>Ä</a> <a>y</a>".encode()))
    assert read_tagged(path) == ([["Ä", "y"]], [["B-a", "B-a"]])


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("<a> x <b> y </b> </a>", r"line 2: <b> inside <a>; segments cannot be nested"),
        ("<a> x </b>", r"line 2: </b> where <a> is open"),
        ("x </b>", r"line 2: </b> where nothing is open"),
        ("x <b> y", r"line 2: <b> is not closed; add </b>"),
    ],
)
def test_bad_tags_are_named(line, message):
    with pytest.raises(ValueError, match=message):
        read_tagged(io.StringIO(f"<a> x </a>\n{line}\n"))


def test_a_real_file_in_both_forms():
    folder = Path(os.environ.get("SKLSEQ_DATA", "no data")) / "cora-citations"
    if not folder.is_dir():
        pytest.skip("SKLSEQ_DATA names no folder that holds cora-citations")
    X, y = read_tagged(folder / "cora.tagged.txt.gz")
    columns, labels = read_conll(folder / "cora.tsv.gz", separator="\t")
    assert [x["c0"] for x in columns] == X
    assert labels == y

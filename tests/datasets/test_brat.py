"""Standoff annotations of brat: the characters they name, aligned with tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sklseq.datasets import align_spans, read_brat, token_offsets

TEXT = "Ann Lee, from New\nYork\r\nand é\N{GRINNING FACE} Rome"
ANN = (
    "T1\tPER 0 7\tAnn Lee\nT2\tLOC 14 22\tNew York\nR1\tfrom Arg1:T1 Arg2:T2\n"
    "A1\tsure T1\n#1\tAnnotatorNotes T1\ta note\n*\tEquiv T1 T2\nT3\tLOC 31 35\tRome\n"
)


def write(folder, ann, text=TEXT, name="a", encoding="utf-8"):
    (folder / f"{name}.txt").write_bytes(text.encode(encoding))
    (folder / f"{name}.ann").write_bytes(ann.encode(encoding))
    return folder / f"{name}.ann"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_spans_of_a_file(tmp_path, encoding):
    path = write(tmp_path, ANN, encoding=encoding)
    (text,), (spans,) = read_brat(path, encoding=encoding)
    assert text == TEXT
    assert spans == [(0, 7, "PER"), (14, 22, "LOC"), (31, 35, "LOC")]
    tokens = ["Ann", "Lee", ",", "from", "New", "York", "and", "Rome"]
    assert align_spans(spans, token_offsets(text, tokens)) == [
        (0, 2, "PER"), (4, 6, "LOC"), (7, 8, "LOC")
    ]  # fmt: skip


def test_folders_are_read_by_name(tmp_path):
    write(tmp_path, "", name="b")
    write(tmp_path, ANN.replace("\n", "\r\n"), name="a")
    (tmp_path / "annotation.conf").write_text("[entities]\n")
    texts, spans = read_brat(str(tmp_path))
    assert texts == [TEXT, TEXT]
    assert [len(s) for s in spans] == [3, 0]


def test_fragments(tmp_path):
    path = write(tmp_path, "T1\tPER 0 3;31 35\tAnn Rome\n")
    assert read_brat(path, fragments="expand")[1] == [[(0, 35, "PER")]]
    assert read_brat(path, fragments="drop")[1] == [[]]
    with pytest.raises(ValueError, match=r"a\.ann, line 1: .* has 2 fragments; pass fragments="):
        read_brat(path)
    with pytest.raises(ValueError, match="fragments must be one of"):
        read_brat(path, fragments="join")


@pytest.mark.parametrize(
    ("ann", "message"),
    [
        ("T1\tPER 0 3\tBob\n", r"line 1: characters 0 3 of the text are 'Ann' and not 'Bob'"),
        ("\nT1\tPER 3 3\t\n", "line 2: the span '3 3' is not in its text"),
        ("T1\tPER 30 99\tRome\n", "which has 35 characters; repair"),
        ("T1 PER 0 3 Ann\n", "line 1: 'T1 PER 0 3 Ann' must have the form id, tab, type"),
        ("T1\tPER 0 x\tAnn\n", "must have the form"),
        (f"T1\tPER 0 {'9' * 5000}\tAnn\n", "line 1: .* must have the form"),
    ],
)
def test_wrong_lines_are_named(tmp_path, ann, message):
    with pytest.raises(ValueError, match=message):
        read_brat(write(tmp_path, ann))


def test_wrong_paths_are_named(tmp_path):
    path = write(tmp_path, ANN)
    with pytest.raises(ValueError, match=r"must be an .ann file, or a folder of them; got .*a.txt"):
        read_brat(path.with_suffix(".txt"))
    path.with_suffix(".txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.txt"):
        read_brat(path)
    path.unlink()
    with pytest.raises(ValueError, match=r"has no .ann file"):
        read_brat(tmp_path)


@settings(max_examples=30, deadline=None)
@given(st.text("ab é\n", min_size=1, max_size=12), st.data())
def test_any_span_is_read_back(tmp_path_factory, text, data):
    start = data.draw(st.integers(0, len(text) - 1))
    stop = data.draw(st.integers(start + 1, len(text)))
    covered = text[start:stop].replace("\n", " ")
    path = write(tmp_path_factory.mktemp("x"), f"T1\tx {start} {stop}\t{covered}\n", text)
    assert read_brat(path) == ([text], [[(start, stop, "x")]])


@pytest.mark.parametrize("path", [None, 3, ["a.ann"]])
def test_no_name_of_a_file(path):
    with pytest.raises(TypeError, match=r"path must be the name of an \.ann file, .*; got"):
        read_brat(path)


def test_fragments_in_any_order(tmp_path):
    (tmp_path / "a.txt").write_text("Ann from New York")
    (tmp_path / "a.ann").write_text("T1\tLOC 13 17;0 3\tYork Ann\n")
    assert read_brat(tmp_path, fragments="expand")[1] == [[(0, 17, "LOC")]]


@pytest.mark.parametrize("mark", ["\u2028", "\x85", "\x0c", "\x1c"])
def test_only_line_ends_end_a_line(tmp_path, mark):
    text = f"Ann{mark}Tom"
    path = write(tmp_path, f"T1\tPER 0 7\t{text}\nT2\tPER 4 7\tTom\n", text=text)
    assert read_brat(path) == ([text], [[(0, 7, "PER"), (4, 7, "PER")]])

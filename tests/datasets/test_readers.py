"""Readers of column files and of CoNLL-U: the rules by hand, and random files."""

import gzip
import io
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from sklseq.datasets import read_conll, read_conllu, read_tagged, write_conll
from tests.trials import readers as trials_readers

TEXT = """\
# newdoc id = d1
# sent_id = 1
# text = Don't go  to New York = home
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\tMood=Imp\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
3.1\tgone\tgo\tVERB\t_\t_\t_\t_\t0:exroot\t_
4\tto\tto\tADP\tIN\t_\t5\tcase\t_\t_
5\tNew York\tNew York\tPROPN\tNNP\t_\t3\tobl\t_\tSpaceAfter=No

# sent_id = 2
0.1\t_\t_\t_\t_\t_\t_\t_\t_\t_
0.2\t_\t_\t_\t_\t_\t_\t_\t_\t_
1\t_\t_\tSYM\t_\t_\t0\troot\t_\t_
2-3\tau\t_\t_\t_\t_\t_\t_\t_\t_
2\tà\tà\tADP\t_\t_\t1\tcase\t_\t_
3\tle\tle\tDET\t_\t_\t1\tdet\t_\t_

"""
LABELS = [["AUX", "PART", "VERB", "ADP", "PROPN"], ["SYM", "ADP", "DET"]]


def read(text, **options):
    return read_conllu(io.StringIO(text), **options)


def line(number, *, form="a", upos="X"):
    return "\t".join([str(number), form, "_", upos, *["_"] * 6]) + "\n"


# ---- CoNLL-U ------------------------------------------------------------------------------------


def test_ranges_and_empty_nodes_are_no_tokens():
    X, y = read(TEXT)
    assert X == [{"form": ["Do", "n't", "go", "to", "New York"]}, {"form": ["_", "à", "le"]}]
    assert y == LABELS


def test_fields_are_chosen_by_name():
    X, y = read(TEXT, columns=["id", "misc", "lemma"], label="xpos")
    assert list(X[0]) == ["id", "misc", "lemma"]
    assert X[0]["id"] == ["1", "2", "3", "4", "5"]
    assert X[0]["misc"][-1] == "SpaceAfter=No"
    assert X[1]["lemma"] == ["_", "à", "le"]
    assert y == [["VBP", "RB", "VB", "IN", "NNP"], ["_", "_", "_"]]
    X, y = read(TEXT, columns=[], label=None)
    assert (X, y) == ([{}, {}], None)


def test_comments_are_entries_and_tell_documents():
    *_, metadata = read(TEXT + "# newdoc\n" + line(1), return_metadata=True)
    text = "Don't go  to New York = home"
    assert metadata == [
        {"newdoc id": "d1", "sent_id": "1", "text": text},
        {"sent_id": "2"},
        {"newdoc": ""},
    ]
    starts = [any(key.startswith("newdoc") for key in m) for m in metadata]
    assert np.cumsum(starts).tolist() == [1, 1, 2]


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode().rstrip(),
        TEXT.replace("\n", "\r\n").encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        ("\n\n" + TEXT.replace("\n\n", "\n\n\n") + "\n# end\n").encode(),
        gzip.compress(TEXT.encode()),
    ],
    ids=["no final newline", "CRLF", "byte order mark", "blank lines", "gzip"],
)
def test_every_dialect_of_conllu_gives_the_same_words(data, tmp_path):
    (tmp_path / "file").write_bytes(data)
    assert read_conllu(tmp_path / "file") == read(TEXT)


def test_file_without_sentences_is_read_as_none():
    assert read("") == read("\n\n# only\n") == ([], [])
    assert read("", label=None, return_metadata=True) == ([], None, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 a O\n", "line 1: a line must have ten fields that are not empty.* got '1 a O': repair"),
        (line(1) + line(2).replace("X", ""), "line 2: a line must have ten fields"),
        (line(1) + " \n" + line(1), "line 2: a line must have ten fields"),
        (line(2), "line 1: id '2' is not the next word, 1, nor a range or empty node"),
        (line(1) + line(1), "line 2: id '1' is not the next word, 2"),
        (line("01"), "id '01' is not the next word"),
        (line(1) + line("1-2"), "id '1-2' is not the next word, 2"),
        (line("1-3") + line(1) + line("2-3") + line(2), "line 3: id '2-3' is not"),
        (line("2-1"), "id '2-1' is not"),
        (line(1) + line("1.2"), r"id '1\.2' is not"),
        (line("1-3") + line(1) + line(2), "line 3: the sentence ends after 2 words, but must have"),
        (line("0.1") + "\n" + line(1), "line 1: the sentence ends after 0 words, but must have 1"),
    ],
)
def test_broken_conllu_says_where_and_why(text, message):
    with pytest.raises(ValueError, match=message):
        read(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "pos"}, r"'pos' is not a field of CoNLL-U; choose from \('id', 'form',"),
        ({"columns": ["FORM"]}, "'FORM' is not a field"),
        ({"columns": "form"}, "columns must be a list of names; got the string 'form'"),
        ({"label": "deps"}, "No word of .* has a value of 'deps'; choose another label="),
    ],
)
def test_wrong_fields_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        read(line(1), **options)


@pytest.mark.skipif("SKLSEQ_DATA" not in os.environ, reason="SKLSEQ_DATA names no data folder")
def test_treebank_as_conllu_has_the_words_of_its_column_file(tmp_path):
    """Words and tags of a real treebank; ranges, empty nodes and comments put between."""
    path = Path(os.environ["SKLSEQ_DATA"]) / "ud-english-ewt" / "dev.tsv.gz"
    if not path.exists():
        pytest.skip("no ud-english-ewt in SKLSEQ_DATA")
    X, y = read_conll(path, columns=["form", "xpos"], separator="\t")
    rng, lines = np.random.default_rng(0), []
    for s, (x, labels) in enumerate(zip(X, y)):
        lines.append(f"# sent_id = {s}\n")
        for t, (form, tag, label) in enumerate(zip(x["form"], x["xpos"], labels), 1):
            if t % 7 == 0 and t < len(labels):
                lines.append(line(f"{t}-{t + 1}", form="both", upos="_"))
            lines.append("\t".join([str(t), form, "_", label, tag, *["_"] * 5]) + "\n")
            if rng.random() < 0.05:
                lines.append(line(f"{t}.1"))
        lines.append("\n")
    (tmp_path / "dev.conllu").write_text("".join(lines), encoding="utf-8")
    assert read_conllu(tmp_path / "dev.conllu", columns=["form", "xpos"]) == (X, y)
    assert (len(y), sum(map(len, y))) == (2001, 25147)  # as published


# ---- random files -------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n"), [("read_conll", 1500), ("read_conllu", 500)])
def test_random_files_are_read_by_the_documented_rules(name, n):
    assert 0.2 * n < trials_readers.run(name, n, seed=1) < 0.8 * n


def test_inline_tags_are_cut_at_line_ends_only():
    X, y = read_tagged(io.StringIO("<x>a\u2028b\x0cc</x>\r\nd\re"))
    assert (X, y) == ([["a", "b", "c"], ["d"], ["e"]], [["B-x", "I-x", "I-x"], ["O"], ["O"]])


def test_a_self_closing_tag_is_a_segment_without_tokens():
    X, y = read_tagged(["a<br/>b <x>c</x> <x/> <a/b>d</a/b> 1 </ 2 />"])
    assert X == [["a", "b", "c", "d", "1", "</", "2", "/>"]]
    assert y == [["O", "O", "B-x", "B-a/b", "O", "O", "O", "O"]]
    with pytest.raises(ValueError, match="line 1: <br/> inside <x>; segments cannot be nested"):
        read_tagged(["<x>a<br/>b</x>"])
    with pytest.raises(ValueError, match="line 1: </x/> both closes and is empty"):
        read_tagged(["<x>a</x/>"])


def test_a_long_file_without_blank_lines_gives_a_warning(tmp_path):
    lines = ["a O"] * 1001
    with pytest.warns(UserWarning, match=r"no blank line among lines 1 to 1001, so its 1001 token"):
        assert len(read_conll(lines)[0]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_conll([*lines[:1000], "", *lines])[0]) == 2
        read_conll(lines[:1000])


@pytest.mark.parametrize("X", [[["a"], ["b", "-DOCSTART-"]], [{"w": ["-DOCSTART-"]}]])
def test_marks_of_documents_are_refused_or_kept(X):
    file = io.StringIO()
    with pytest.raises(
        ValueError, match=r"of sequence . is '-DOCSTART-', which is read as the mark"
    ):
        write_conll(file, X)
    write_conll(file, X, docstart=None)
    file.seek(0)
    found, _ = read_conll(file, columns=["w"], label=None, docstart=None)
    assert [x["w"] for x in found] == [x if isinstance(x, list) else x["w"] for x in X]


def test_a_byte_order_mark_is_not_written():
    with pytest.raises(ValueError, match="Token 0 of sequence 0 begins with a byte order mark"):
        write_conll(io.StringIO(), [["\ufeffa"]])
    write_conll(io.StringIO(), [["a", "\ufeffa"]])

"""Column files are read back as they were written; invented documents are hard, whole and safe."""

import bz2
import gzip
import io
import lzma
import os
import re
import tempfile
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sklseq.datasets import _contacts_grammar as grammar
from sklseq.datasets import make_contacts, read_conll, write_conll

TEXT = "He PRP B-NP\nran VBD B-VP\n\nStop VB B-VP\n"
X_EXPECTED = [{"w": ["He", "ran"], "pos": ["PRP", "VBD"]}, {"w": ["Stop"], "pos": ["VB"]}]
Y_EXPECTED = [["B-NP", "B-VP"], ["B-VP"]]


def read_text(text, **options):
    return read_conll(io.StringIO(text), **options)


# ---- read_conll ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode(),
        TEXT.encode().rstrip(),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\r").encode(),
        b"\xef\xbb\xbf" + TEXT.encode(),
        ("\n \n" + TEXT.replace("\n\n", "\n\t\n\n") + "\n\n").encode(),
        TEXT.replace(" ", " \t ").encode().replace(b"\t", b" "),
        ("-DOCSTART- -X- O\n\n" + TEXT).encode(),
        TEXT.replace("\n\n", "\n-DOCSTART-\n").encode(),
        TEXT.replace(" ", "\t").encode(),
        gzip.compress(TEXT.encode()),
    ],
    ids=[
        "plain",
        "no final newline",
        "CRLF",
        "CR",
        "byte order mark",
        "blank lines",
        "runs of spaces",
        "docstart",
        "docstart without blank line",
        "tabs",
        "gzip",
    ],
)
def test_every_dialect_gives_the_same_sequences(data, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(data)
    for source in (path, str(path), io.BytesIO(data)):
        X, y = read_conll(source, columns=["w", "pos"])
        assert X == X_EXPECTED
        assert y == Y_EXPECTED


def test_open_text_file_is_read(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text(TEXT)
    with open(path) as file:
        assert read_conll(file, columns=["w", "pos"]) == (X_EXPECTED, Y_EXPECTED)


def test_columns_have_default_names_in_file_order():
    X, _ = read_text(TEXT)
    assert list(X[0]) == ["c0", "c1"]
    assert X[0]["c1"] == ["PRP", "VBD"]


@pytest.mark.parametrize(
    ("label", "names", "labels"),
    [(0, ["c0", "c1"], ["He", "ran"]), (-2, ["c0", "c1"], ["PRP", "VBD"])],
)
def test_label_may_be_any_column(label, names, labels):
    X, y = read_text(TEXT, label=label)
    assert list(X[0]) == names
    assert y[0] == labels
    assert labels not in X[0].values()


def test_without_label_all_columns_are_features():
    X, y = read_text(TEXT, label=None)
    assert y is None
    assert X[0] == {"c0": ["He", "ran"], "c1": ["PRP", "VBD"], "c2": ["B-NP", "B-VP"]}


def test_file_of_labels_only_keeps_the_lengths():
    X, y = read_text("a\nb\n\nc\n", columns=[])
    assert X == [{}, {}]
    assert y == [["a", "b"], ["c"]]


def test_tab_on_the_first_line_keeps_empty_cells_and_spaces():
    X, y = read_text("New York\t\tB\n a \tx\tI\n")
    assert X == [{"c0": ["New York", "a"], "c1": ["", "x"]}]
    assert y == [["B", "I"]]
    X, y = read_text("New York\t\tB\n a \tx\tI\n", separator="\t")
    assert X == [{"c0": ["New York", " a "], "c1": ["", "x"]}]


@pytest.mark.parametrize("end", ["", " ", "\t", " \t "])
@pytest.mark.parametrize("gap", ["\t", " \t", "\t ", " \t "])
def test_white_space_beside_the_separating_tab_is_no_part_of_a_cell(gap, end):
    text = f"a{gap}O{end}\n\tB{end}\n\nc d{gap}O{end}\n"
    assert read_text(text) == ([{"c0": ["a", ""]}, {"c0": ["c d"]}], [["O", "B"], ["O"]])


def test_tab_or_spaces_is_asked_if_a_label_contains_a_space():
    text = "He\tPRP B-NP\nran\tVBD B-VP\n"
    with pytest.raises(ValueError, match=r"line 1: label 'PRP B-NP' contains a space, so the sep"):
        read_text(text)
    assert read_text(text, separator=" ")[1] == [["B-NP", "B-VP"]]
    assert read_text(text, separator="\t")[1] == [["PRP B-NP", "VBD B-VP"]]
    assert read_text(text, label=None)[0][0]["c1"] == ["PRP B-NP", "VBD B-VP"]


def test_line_of_a_new_document_may_have_other_separators_than_the_file():
    assert read_text("a\tO\n-DOCSTART- -X- O\nb\tO\n")[0] == [{"c0": ["a"]}, {"c0": ["b"]}]


def test_space_splits_at_tabs_too_when_asked():
    X, _ = read_text("New York\tB\n", separator=" ")
    assert X == [{"c0": ["New"], "c1": ["York"]}]


def test_other_separators_split_exactly():
    X, y = read_text("1,,a\n2,x,b\n", separator=",")
    assert X == [{"c0": ["1", "2"], "c1": ["", "x"]}]
    assert y == [["a", "b"]]


def test_unusual_white_space_belongs_to_the_token():
    X, _ = read_text("10\u00a0000 O\na\u3000b\x0cc\x85d\u2028e O\n")
    assert X[0]["c0"] == ["10\u00a0000", "a\u3000b\x0cc\x85d\u2028e"]


def test_comments_are_skipped_only_when_asked():
    text = "# id 1\na O\n# inside\nb O\n"
    assert read_text(text, comment="#")[1] == [["O", "O"]]
    with pytest.raises(ValueError, match="line 1: expected 2 columns, as in the lines"):
        read_text(text)


def test_docstart_must_be_the_whole_first_cell():
    X, _ = read_text("-DOCSTART-like O\n-DOCSTART- O\na O\n")
    assert X == [{"c0": ["-DOCSTART-like"]}, {"c0": ["a"]}]
    X, _ = read_text("-DOCSTART- O\na O\n", docstart=None)
    assert X == [{"c0": ["-DOCSTART-", "a"]}]


@pytest.mark.parametrize("data", [b"", b"\n\n \n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_empty_file_gives_no_sequences(data):
    assert read_conll(io.BytesIO(data)) == ([], [])
    assert read_conll(io.BytesIO(data), label=None) == ([], None)


def test_encoding_is_honoured():
    data = "Jäger B\n".encode("latin-1")
    assert read_conll(io.BytesIO(data), encoding="latin-1")[0] == [{"c0": ["Jäger"]}]
    with pytest.raises(ValueError, match="line 2: byte 0xe4 is not utf-8 text; give the encoding"):
        read_conll(io.BytesIO(b"a B\n" + data))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a b O\n\n\nc d O\ne O\n", {}, "line 5: expected 3 columns, as in line 1, but got 2 in"),
        ("a O\nb c O\nd\n", {}, "line 2: expected 2 columns, as in line 1, but got 3 in 'b c O'"),
        ("a\tO\nb\n", {}, "line 2: expected 2 columns, as in line 1, but got 1"),
        ("a\tO\nb O\n", {}, r"'b O'; repair this line or line 1, 'a.tO', or give the"),
        (
            "# by Ann Lee\na b O\nc d O\n\ne f O\n",
            {},
            "line 1: expected 3 columns, as in the l",
        ),
        (
            "\n#\na b O\nc d O\n",
            {"label": None},
            "line 2: .* got 1 in '#'; repair or .* by comment=",
        ),
        ("w\na O\nb O\n", {"label": None}, "line 1: expected 2 columns, as in the line"),
        ("#\na b O\nc d\n", {"label": None}, "line 2: expected 1 column, as in line 1, but got 3"),
        ("# by Ann\n\na O\nb O\n", {}, "line 3: .* repair this line or line 1, '# by Ann', or"),
        (TEXT, {"label": 3}, "label=3 is not a column of .* has 3; give a value from -3 to 2"),
        (TEXT, {"label": -4}, "label=-4 is not a column"),
        (TEXT, {"columns": ["w"]}, r"columns names 1 column \(w\), but .* has 2 besides"),
        (TEXT, {"columns": "ab"}, "columns must be a list of names; got the string 'ab'"),
        (TEXT, {"columns": ["w", "w"]}, "columns must be different names"),
        (TEXT, {"separator": ""}, "separator must be one character other than a line end; got ''"),
        (TEXT, {"separator": "\n"}, "separator must be one character"),
        (TEXT, {"separator": "||"}, "separator must be one character"),
    ],
)
def test_unreadable_files_say_where_and_why(text, options, message):
    with pytest.raises(ValueError, match=message):
        read_text(text, **options)


def test_one_line_too_long_and_one_too_short_do_not_cancel():
    with pytest.raises(ValueError, match="line 2: expected 2 columns, as in line 1, but got 3"):
        read_text("a O\nb c O\nd\ne O\n")
    with pytest.raises(ValueError, match="line 2: expected 2 columns, as in line 1, but got 3"):
        read_text("a\tO\nb\tc\tO\nd\ne\tO\n")


COMPRESSED = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress}


@pytest.mark.parametrize("kind", COMPRESSED)
def test_truncated_files_are_named(kind, tmp_path):
    path = tmp_path / "cut"
    path.write_bytes(COMPRESSED[kind](TEXT.encode() * 100)[:-12])
    with pytest.raises(ValueError, match=rf"cut is not a whole {kind} file .* again"):
        read_conll(path)


@pytest.mark.parametrize("kind", COMPRESSED)
def test_compressed_bytes_are_known_by_their_first_ones(kind):
    for text in (TEXT, "", "BZh9 O\nBZh91AY O\n"):
        file = io.BytesIO(COMPRESSED[kind](text.encode()))
        assert read_conll(file) == read_conll(io.StringIO(text)) == read_conll(text.split("\n"))


@pytest.mark.parametrize("ending", [".gz", ".bz2", ".xz", ".txt"])
def test_files_and_open_files_hold_the_same(ending, tmp_path):
    X, y = read_conll(io.StringIO(TEXT))
    write_conll(tmp_path / f"a{ending}", X, y)
    with open(tmp_path / "binary", "wb") as binary, open(tmp_path / "text", "w") as text:
        write_conll(binary, X, y)
        write_conll(text, X, y)
    for name in (f"a{ending}", "binary", "text"):
        assert read_conll(tmp_path / name) == (X, y)
    plain = (tmp_path / "binary").read_bytes()
    assert ((tmp_path / f"a{ending}").read_bytes() == plain) == (ending == ".txt")


def test_lines_with_and_without_their_ends():
    lines = TEXT.split("\n")
    assert read_conll(lines) == read_conll([line + "\n" for line in lines])
    assert read_conll(tuple(lines)) == read_conll(lines)
    with pytest.raises(TypeError, match="an open file or a list of lines; got"):
        read_conll([b"a O"])


def test_missing_file_is_the_usual_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_conll(tmp_path / "none")


REAL_FILES = [  # file, sequences, tokens, labels, as published or stated beside the data
    ("conll2000/train.txt.gz", 8936, 211727, 22),
    ("conll2000/test.txt.gz", 2012, 47377, 19),
    ("conll2002/esp.train.gz", 8323, 264715, 9),
    ("ptb-wsj-sample/train.tsv.gz", 3262, 78539, 45),
    ("cora-headers/train.tsv.gz", 500, 81985, None),
    ("enron-email-fields/train.tsv.gz", 396, 128338, None),
    ("ncbi-disease/train.tsv.gz", 5424, 135701, 3),
    ("us50-addresses/train.tsv.gz", 51, 337, None),
]


@pytest.mark.skipif("SKLSEQ_DATA" not in os.environ, reason="SKLSEQ_DATA names no data folder")
@pytest.mark.parametrize(("name", "n_sequences", "n_tokens", "n_labels"), REAL_FILES)
def test_real_corpora_have_their_published_size(name, n_sequences, n_tokens, n_labels):
    path = Path(os.environ["SKLSEQ_DATA"]) / name
    if not path.exists():
        pytest.skip(f"no {name} in SKLSEQ_DATA")
    X, y = read_conll(path)
    assert len(X) == len(y) == n_sequences
    assert sum(map(len, y)) == n_tokens
    assert all(len(column) == len(labels) for x, labels in zip(X, y) for column in x.values())
    if n_labels:
        assert len({label for labels in y for label in labels}) == n_labels


# ---- write_conll --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "X",
    [
        X_EXPECTED,
        [[("He", "PRP"), ("ran", "VBD")], [("Stop", "VB")]],
        [[["He", "PRP"], ["ran", "VBD"]], [["Stop", "VB"]]],
    ],
    ids=["columns", "tuples", "lists"],
)
@pytest.mark.parametrize("separator", [" ", "\t"])
@pytest.mark.parametrize("name", ["a.txt", "a.gz"])
def test_every_form_of_sequences_is_written_alike(X, separator, name, tmp_path):
    path = tmp_path / name
    write_conll(path, X, Y_EXPECTED, separator=separator)
    data = path.read_bytes()
    if name.endswith(".gz"):
        data = gzip.decompress(data)
    assert data.decode() == TEXT.replace(" ", separator) + "\n"


def test_lists_of_strings_are_one_column(tmp_path):
    write_conll(tmp_path / "a", [["He", "ran"]], [["N", "V"]])
    assert (tmp_path / "a").read_text() == "He N\nran V\n\n"


def test_columns_are_selected_and_predictions_come_last(tmp_path):
    path = tmp_path / "a"
    write_conll(path, X_EXPECTED, Y_EXPECTED, y_pred=[["X", "Y"], ["Z"]], columns=["pos"])
    assert path.read_text() == "PRP B-NP X\nVBD B-VP Y\n\nVB B-VP Z\n\n"


def test_numbers_and_arrays_are_written(tmp_path):
    X = [{"w": np.array(["a", "b"]), "line": [0, 1]}]
    write_conll(tmp_path / "a", X, [np.array([1, 2])])
    assert (tmp_path / "a").read_text() == "a 0 1\nb 1 2\n\n"


def test_no_sequences_give_an_empty_file(tmp_path):
    write_conll(tmp_path / "a", [], [])
    assert (tmp_path / "a").read_bytes() == b""


def test_compressed_bytes_do_not_depend_on_the_clock(tmp_path):
    write_conll(tmp_path / "a.gz", X_EXPECTED)
    assert (tmp_path / "a.gz").read_bytes()[4:8] == bytes(4)  # the time stamp of the header


UNWRITABLE = [
    (None, {}, "X must be a list with one item for each sequence; got NoneType: give a list"),
    ({"w": ["a"]}, {}, "X must be a list with one item for each sequence; got dict"),
    ([["a"]], {"y": 3}, "y must be a list with one item for each sequence; got int"),
    ([["a b"]], {}, "Cell 'a b' of token 0 of sequence 0 contains a separator or line end"),
    ([["a\tb"]], {}, "contains a separator or line end"),
    ([["a\tb"]], {"separator": "\t"}, "contains a separator or line end"),
    ([["a"], ["b", "c\nd"]], {}, "token 1 of sequence 1 contains a separator or line end"),
    ([["a\rb"]], {"separator": "\t"}, "contains a separator or line end"),
    ([["a", ""]], {}, "Cell '' of token 1 of sequence 0 is empty; replace it, or use"),
    ([[("", " ")]], {"separator": "\t"}, "All cells of token 0 of sequence 0 are blank"),
    ([[("a", None)]], {}, "Cell None of token 0 of sequence 0 is a NoneType; give strings"),
    ([["a"], []], {}, "Sequence 1 of X is empty, which a column file cannot hold; remove it"),
    ([{}], {}, "Sequence 0 of X is empty"),
    ([["a"]], {"y": []}, "X has 1 sequence, but y has 0"),
    ([["a"]], {"y_pred": [["O"], ["O"]]}, "X has 1 sequence, but y_pred has 2"),
    ([["a"], ["b"]], {"y": [["O"], []]}, "Sequence 1 has 1 token in X, but 0 labels in y"),
    ([["a"], ["b"]], {"y": [["O"], ["x y"]]}, "Cell 'x y' of token 0 of sequence 1"),
    ([[("a", "b"), ("c",)]], {}, "Token 1 of sequence 0 of X has 1 cells, but token 0 has 2"),
    ([["a"], [("b", "c")]], {}, "Sequence 1 has 2 columns, labels included, but sequence 0 has 1"),
    ([[{"w": "a"}]], {}, "Token 0 of sequence 0 of X is a dict; give a string"),
    ([{"w": ["a"]}, ["b"]], {}, "Sequence 1 of X has another form than sequence 0"),
    ([["b"], {"w": ["a"]}], {}, "Sequence 1 of X has another form than sequence 0"),
    ([{"w": ["a"]}, {"v": ["b"]}], {}, "Sequence 1 of X has no column 'w', only v; add it"),
    ([{"w": ["a"], "v": []}], {}, r"columns of different length \(w: 1, v: 0\)"),
    ([["a"]], {"columns": ["w"]}, "columns selects from dicts of columns"),
    ([{"w": ["a"]}], {"columns": "w"}, "columns must be a list of names"),
    ([["a"]], {"separator": ", "}, "separator must be one character"),
    ([["a"], ["ł"]], {"encoding": "latin-1"}, "'ł' in line 3 cannot be written as latin-1"),
]


@pytest.mark.parametrize(("X", "options", "message"), UNWRITABLE)
def test_unwritable_data_leaves_the_old_file(X, options, message, tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises((TypeError, ValueError), match=message):
        write_conll(path, X, **options)
    assert os.listdir(tmp_path) == ["a"]
    assert path.read_text() == "old"


def test_interrupted_write_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    path = tmp_path / "a"
    path.write_text("old")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_conll(path, X_EXPECTED)
    assert os.listdir(tmp_path) == ["a"]
    assert path.read_text() == "old"


def test_link_is_followed(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_conll(tmp_path / "link", [["a"]])
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "a\n\n"


@st.composite
def tables(draw):
    """Draw a separator, and sequences of rows that may be written with it."""
    separator = draw(st.sampled_from(" \t,"))
    forbidden = "\ufeff\r\n" + (" \t" if separator == " " else separator)
    characters = st.characters(exclude_categories=["Cs"], exclude_characters=forbidden)
    cell = st.text(characters, min_size=separator == " ", max_size=5)
    width = draw(st.integers(1, 4))
    row = st.lists(cell, min_size=width, max_size=width)
    row = row.filter(lambda cells: separator.join(cells).strip(" \t"))
    return separator, draw(st.lists(st.lists(row, min_size=1, max_size=4), max_size=4))


@given(tables(), st.booleans())
def test_round_trip(table, zipped):
    separator, X = table
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / ("a.gz" if zipped else "a")
        write_conll(path, X, separator=separator)
        columns, _ = read_conll(path, label=None, separator=separator, docstart=None)
    assert [[list(row) for row in zip(*x.values())] for x in columns] == X


# ---- make_contacts ------------------------------------------------------------------------------

LABELS = {
    "NOTCONTACT",
    "BEGINCONTACT",
    "ENDCONTACT",
    "FIRSTNAME",
    "MIDDLENAME",
    "LASTNAME",
    "NICKNAME",
    "SUFFIX",
    "TITLE",
    "JOBTITLE",
    "COMPANYNAME",
    "DEPARTMENT",
    "ADDRESSLINE",
    "CITY",
    "STATE",
    "COUNTRY",
    "POSTALCODE",
    "PHONENUMBER",
    "EMAIL",
    "INSTANTMESSAGE",
    "WEBPAGE",
}


@pytest.fixture(scope="module")
def contacts():
    return make_contacts(500, random_state=0)


def labelled_tokens(X, y):
    return [pair for x, labels in zip(X, y) for pair in zip(x["w"], labels)]


def test_all_labels_occur_and_no_other(contacts):
    _, y = contacts
    assert {label for labels in y for label in labels} == LABELS
    assert len(LABELS) == 21


def test_columns_and_labels_are_equally_long(contacts):
    X, y = contacts
    assert len(X) == len(y) == 500
    for x, labels in zip(X, y):
        assert list(x) == ["w", "newline"]
        assert len(x["w"]) == len(x["newline"]) == len(labels) > 0


def test_tokens_are_words_without_white_space(contacts):
    tokens = [token for token, _ in labelled_tokens(*contacts)]
    assert all(token and not re.search(r"\s", token) for token in tokens)
    assert not any(re.search(r"[{}[\]#]", token) for token in tokens)  # marks of the grammar


def test_newline_marks_the_first_token_of_each_line(contacts):
    X, _ = contacts
    assert {flag for x in X for flag in x["newline"]} == {"0", "1"}
    assert all(x["newline"][0] == "1" for x in X)


def test_most_documents_are_short_and_some_are_long(contacts):
    lengths = np.array([len(labels) for labels in contacts[1]])
    assert 120 < np.median(lengths) < 190
    assert 0.01 < np.mean(lengths > 1000) < 0.1


def test_some_documents_hold_no_contact_and_most_do(contacts):
    share = np.mean([set(labels) != {"NOTCONTACT"} for labels in contacts[1]])
    assert 0.6 < share < 0.95


def test_same_random_state_same_documents():
    first = make_contacts(10, random_state=3)
    assert make_contacts(10, random_state=3) == first
    assert make_contacts(10, random_state=np.random.RandomState(3)) == first
    assert make_contacts(10, random_state=4) != first


def test_documents_do_not_depend_on_how_many_follow():
    X, y = make_contacts(20, random_state=7)
    assert make_contacts(10, random_state=7) == (X[:10], y[:10])


def test_global_random_states_are_not_touched():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    make_contacts(3, random_state=0)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


RESERVED_DOMAIN = re.compile(r"(?:[\w-]+\.)*example(?:\.(?:com|net|org))?")


def host(token):
    """Return the domain in a mail or web address or a chat handle, "" if it has none."""
    rest = re.sub(r"^https?://", "", token.lower())
    rest = re.split("[@:]", rest)[-1].split("/")[0]
    return rest if re.search(r"[^\W\d]\.[^\W\d]", rest) else ""


def test_all_domains_are_reserved_ones(contacts):
    hosts = [host(token) for token, _ in labelled_tokens(*contacts) if host(token)]
    assert len(hosts) > 1000
    assert [name for name in hosts if not RESERVED_DOMAIN.fullmatch(name)] == []


RESERVED_NUMBER = re.compile(
    r"""1?(\d{3})?55501\d\d                                                # North America
    | (44)?0?(2079460|1632960|7700900|1134960|1614960)\d{3}                 # United Kingdom
    | (61)?0?[2378](5550|7010)\d{4}                                         # Australia
    | (49)?0?(3023125|4066969|6990009|8999998|2214710)\d{3}                 # Germany
    | (33)?0?(19900|26191|46571|53649|63998)\d{4}                           # France
    | (46)?0?(8465004|3139006|4062804)\d\d                                  # Sweden""",
    re.VERBOSE,
)


def phone_numbers(x, labels):
    """Return the text of each telephone number: a run of that label within one line."""
    is_phone = [label == "PHONENUMBER" for label in labels]
    cuts = [
        t
        for t in range(len(labels) + 1)
        if t in (0, len(labels)) or is_phone[t] != is_phone[t - 1] or x["newline"][t] == "1"
    ]
    return ["".join(x["w"][a:b]) for a, b in pairwise(cuts) if is_phone[a]]


def test_all_telephone_numbers_are_reserved_for_fiction(contacts):
    numbers = [number for x, labels in zip(*contacts) for number in phone_numbers(x, labels)]
    assert len(numbers) > 500
    digits = [re.sub(r"\D", "", re.split("e?xt?", number.lower())[0]) for number in numbers]
    assert [d for d in digits if not RESERVED_NUMBER.fullmatch(d)] == []


def test_words_alone_do_not_tell_their_label(contacts):
    labels_of = defaultdict(set)
    for token, label in labelled_tokens(*contacts):
        labels_of[token].add(label)
    pairs = [
        {"LASTNAME", "CITY"},
        {"FIRSTNAME", "NOTCONTACT"},
        {"BEGINCONTACT", "ENDCONTACT"},
        {"PHONENUMBER", "NOTCONTACT"},
        {"COMPANYNAME", "LASTNAME"},
        {"STATE", "NOTCONTACT"},
    ]
    missing = [pair for pair in pairs if not any(pair <= found for found in labels_of.values())]
    assert missing == []
    assert sum(len(found) > 1 for found in labels_of.values()) > 500


def test_most_frequent_label_of_each_word_is_far_from_enough(contacts):
    counts = defaultdict(Counter)
    for token, label in labelled_tokens(*contacts):
        counts[token][label] += 1
    best = {token: counter.most_common(1)[0][0] for token, counter in counts.items()}
    held_out = labelled_tokens(*make_contacts(250, random_state=1))
    fields = [(token, label) for token, label in held_out if label != "NOTCONTACT"]
    accuracy = np.mean([best.get(token, "NOTCONTACT") == label for token, label in fields])
    unseen = np.mean([token not in best for token, _ in fields])
    print(f"accuracy on contact tokens {accuracy:.3f}, unseen {unseen:.3f}")
    assert 0.2 < accuracy < 0.8
    assert 0.1 < unseen < 0.5


def test_separation_is_the_share_of_cues():
    def rate(separation):
        words = [
            w for x in make_contacts(100, random_state=0, separation=separation)[0] for w in x["w"]
        ]
        return sum(w in {"Fax", "Tel", "Facsimile"} for w in words)

    assert rate(0) == 0
    assert 0 < rate(0.3) < rate(1)


@pytest.mark.parametrize("n", [0, -1, 2.5, "ten", None])
def test_bad_n_is_refused(n):
    with pytest.raises(ValueError, match="n, the number of documents, must be an integer"):
        make_contacts(n)


@pytest.mark.parametrize("separation", [-0.1, 1.1, float("nan")])
def test_bad_separation_is_refused(separation):
    with pytest.raises(ValueError, match="separation must be a finite number from 0 to 1; got"):
        make_contacts(3, separation=separation)


def test_documents_survive_a_column_file(contacts, tmp_path):
    X, y = contacts
    write_conll(tmp_path / "contacts.gz", X, y)
    assert read_conll(tmp_path / "contacts.gz", columns=["w", "newline"]) == (X, y)


def test_every_symbol_and_field_of_the_grammar_is_defined():
    text = " ".join(template for templates in grammar.GRAMMAR.values() for template in templates)
    of_contact = {"address", "address_in_line"}
    of_contact |= {f"slug_{part}" for part in ("firstname", "lastname", "companyname")}
    symbols = set(re.findall(r"\{([a-z_]+)\}", text))
    assert len(symbols) > 50
    assert symbols - of_contact - grammar.GRAMMAR.keys() == set()
    assert set(re.findall(r"\{([A-Z]+)\}", text)) <= LABELS
    codes, fields = grammar.GRAMMAR["code"], ("address", "addressline", "phonenumber", "postalcode")
    assert {f"{code}_{field}" for code in codes for field in fields} <= grammar.GRAMMAR.keys()

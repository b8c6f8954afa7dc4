"""Long tables, data sets and documents become the sequences they were made of."""

from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.compose import ColumnTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler

from sklseq import CRFTagger, Sequences
from sklseq.datasets import align_spans, from_docs, from_frame, from_rows, token_offsets
from sklseq.features import (
    DictFeatures,
    LexiconFeatures,
    PerToken,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)
from sklseq.inspection import explain

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

WORDS = [["He", "ran", "home"], ["Stop"], ["It", "rains"]] * 3
LABELS = [["P", "V", "N"], ["V"], ["P", "V"]] * 3
NUMBERS = [np.linspace(s, s + 1, 2 * len(x)).reshape(-1, 2) for s, x in enumerate(WORDS)]


def to_pandas(columns):
    pandas = pytest.importorskip("pandas")
    n = len(next(iter(columns.values())))
    return pandas.DataFrame(columns, index=np.arange(n) + 100)  # labels that are no positions


def to_polars(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def to_arrow(columns):
    return pytest.importorskip("pyarrow").table(columns)


def to_table(columns):
    """What all of them share, for environments that have none."""

    class Table(dict):
        columns = property(list)

    return Table(columns)


kinds = pytest.mark.parametrize(
    "make", [dict, to_table, to_pandas, to_polars, to_arrow], ids=lambda make: make.__name__
)


def long(extra=()):
    """One long table: sentence, word, two numbers and label of each token."""
    group = np.repeat(np.arange(len(WORDS))[::-1], list(map(len, WORDS)))
    rows = np.concatenate(NUMBERS)
    return {
        "sentence": group, "w": list(chain(*WORDS)), "x0": rows[:, 0], "x1": rows[:, 1],
        "label": list(chain(*LABELS)), **dict(extra),
    }  # fmt: skip


# --- One long table ------------------------------------------------------------------------------


@kinds
def test_long_tables_of_numbers_are_packed(make):
    X, y = from_frame(make(long()), "sentence", "label", columns=["x1", "x0"])
    assert isinstance(X, Sequences)
    assert list(map(list, y)) == LABELS
    assert_array_equal(X.rows, np.concatenate(NUMBERS)[:, ::-1])
    assert_array_equal(X.lengths, list(map(len, WORDS)))
    expected = CRFTagger().fit([x[:, ::-1] for x in NUMBERS], LABELS)
    model = CRFTagger().fit(X, y)
    assert_array_equal(np.concatenate(model.predict(X)), np.concatenate(expected.predict(X)))


@kinds
def test_long_tables_of_tokens_are_dicts_of_columns(make):
    X, y = from_frame(make(long()), ["sentence"], "label")
    assert list(map(list, y)) == LABELS
    assert [list(x) for x in X] == [["w", "x0", "x1"]] * len(WORDS)
    assert [list(x["w"]) for x in X] == WORDS
    assert_array_equal(X[0]["x1"], NUMBERS[0][:, 1])
    assert from_frame(make(long()), "sentence", columns=["w"])[1] is None


@kinds
def test_groups_of_several_columns_and_of_strings(make):
    sentence = long()["sentence"]
    frame = long({"d": [f"d{s // 4}" for s in sentence], "s": sentence % 4}.items())
    X, _ = from_frame(make(frame), ["d", "s"], columns=["w"])
    assert [list(x["w"]) for x in X] == WORDS
    frame = {"d": [0, 0, 1, 1], "s": [0, 1, 1, 1], "w": ["x", "y", "z", "z"]}
    for groups in (["d", "s"], ["s", "d"]):  # sentence 1 of document 0, then of document 1
        X, _ = from_frame(make(frame), groups)
        assert [list(x["w"]) for x in X] == [["x"], ["y"], ["z", "z"]]
    X, _ = from_frame(make({"g": ["a", "a", "b"], "w": ["x", "y", "z"]}), "g")
    assert [list(x["w"]) for x in X] == [["x", "y"], ["z"]]


@kinds
def test_tables_without_rows(make):
    frame = make({"g": np.zeros(0, int), "x": np.zeros(0)})
    X, y = from_frame(frame, "g", columns=["x"])
    assert (len(X), y) == (0, None)


@kinds
@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1, 2, 1], r"Rows of the group 1 begin at row 0 and again at row 2; sort"),
        (["b", "a", "b"], r"Rows of the group 'b' begin at row 0 and again at row 2; sort"),
        ([1.0, float("nan"), 2.0], r"Row 1 has no value in \['g'\]; fill it"),
        (["a", None, None], r"Row 1 has no value in \['g'\]; fill it"),
    ],
)
def test_rows_apart_and_missing_groups_are_errors(make, groups, message):
    with pytest.raises(ValueError, match=message):
        from_frame(make({"g": groups, "w": ["x", "y", "z"]}), "g")


@kinds
def test_missing_columns_are_named(make):
    frame = make(long())
    for arguments in ({"group": "g"}, {"y": "g"}, {"columns": ["g"]}):
        with pytest.raises(ValueError, match=r"no column 'g'; it has \['sentence', 'w', 'x0'"):
            from_frame(frame, **{"group": "sentence", **arguments})


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.randoms())
def test_any_groups_are_cut_where_they_change(lengths, random):
    values = random.sample(range(100), len(lengths))
    frame = {"g": np.repeat(values, lengths), "i": list(range(sum(lengths)))}
    X, _ = from_frame(frame, "g")
    assert X.lengths.tolist() == lengths
    assert X.rows.ravel().tolist() == frame["i"]


# --- One table for each sequence -----------------------------------------------------------------

EXTRACTORS = {
    "token": TokenFeatures(columns="w"),
    "window": WindowFeatures(TokenFeatures(columns=["w", "pos"])),
    "template": TemplateFeatures(["w[0]|pos[-1]"], columns=["w", "pos"]),
    "lexicon": LexiconFeatures({"x": ["He ran"]}, columns="w"),
    "dict": DictFeatures(),
    "numbers": PerToken(StandardScaler(), columns=["x", "v"]),
    "both": FeatureUnion(
        [("w", TokenFeatures(columns="w")), ("x", PerToken(StandardScaler(), columns=["x"]))]
    ),
}


def columns_of(s, name):
    words = {"w": WORDS[s], "pos": LABELS[s]}
    numbers = {"x": NUMBERS[s][:, 0].tolist()}
    vectors = {"v": NUMBERS[s]} if name == "numbers" else {}
    return {**words, **numbers, **vectors} if name != "dict" else {**words, **numbers}


@pytest.mark.parametrize("make", [to_table, to_pandas, to_polars, to_arrow])
@pytest.mark.parametrize("name", EXTRACTORS)
def test_one_table_for_each_sequence(make, name):
    X = [columns_of(s, name) for s in range(len(WORDS))]
    extractor = EXTRACTORS[name]
    expected = extractor.fit_transform(X, LABELS)
    if name == "numbers" and make is not to_table:  # cells that are lists
        X = [{**x, "v": x["v"].tolist()} for x in X]
    X = [make(x) for x in X]
    found = extractor.fit_transform(X, LABELS)
    for rows in (found.rows, extractor.transform(X).rows):
        assert abs(rows - expected.rows).max() == 0


def test_records_are_columns_for_dict_features():
    records = [[{"w": w, "x": 0.5} for w in x] for x in WORDS]
    X = [{"w": x, "x": [0.5] * len(x)} for x in WORDS]
    rows = DictFeatures().fit_transform(X).rows
    assert (rows != DictFeatures().fit_transform(records).rows).nnz == 0
    with pytest.raises(ValueError, match="Columns of sequence 1 of X must be equally long; got w:"):
        DictFeatures().fit([X[0], {"w": ["a"], "x": [1, 2]}])


def test_column_transformer_on_a_row_for_each_sequence():
    table = {"w": WORDS, "v": NUMBERS}
    X = pytest.importorskip("pandas").DataFrame(table)
    parts = [("w", TokenFeatures(), "w"), ("v", PerToken(StandardScaler()), "v")]
    model = make_pipeline(ColumnTransformer(parts), CRFTagger()).fit(X, LABELS)
    records = [{"w": w, "v": v} for w, v in zip(WORDS, NUMBERS)]
    union = [("w", TokenFeatures(columns="w")), ("v", PerToken(StandardScaler(), columns=["v"]))]
    expected = make_pipeline(FeatureUnion(union), CRFTagger()).fit(records, LABELS)
    for p, q in zip(model.predict_proba(X), expected.predict_proba(records)):
        assert_array_equal(p, q)
    assert model[:-1].get_feature_names_out()[-2:].tolist() == ["v__v0", "v__v1"]
    assert [row.label for row in explain(model, X[:1])] == model.predict(X[:1])[0]
    assert explain(FrozenEstimator(model), X[:1]) == explain(model, X[:1])
    for x in (X, X.iloc[0], WORDS[0], {"w": WORDS[0]}):
        with pytest.raises(ValueError, match="x must be a table with one row"):
            explain(model, x)
    with pytest.raises(ValueError, match="2D array"):  # scikit-learn's own
        model.fit(records, LABELS)


def test_columns_of_a_table_are_rows_for_prediction():
    X, y = from_frame(to_table(long()), "sentence", "label", columns=["x0", "x1"])
    assert not X.rows.flags.c_contiguous
    copied = Sequences(np.ascontiguousarray(X.rows), X.offsets)
    model = CRFTagger().fit(X, y)
    for p, q in zip(model.predict_proba(X), model.predict_proba(copied)):
        assert_array_equal(p, q)


# --- Data sets and documents ---------------------------------------------------------------------


class Columns:
    """What a data set of Hugging Face has: columns and features."""

    def __init__(self, rows, **classes):
        self.rows = rows
        lists = {n: SimpleNamespace(feature=SimpleNamespace(names=c)) for n, c in classes.items()}
        self.features = {"tokens": SimpleNamespace(feature=SimpleNamespace()), **lists}

    def __getitem__(self, name):
        return [row[name] for row in self.rows]


class Dataset(Columns, list):
    """The same, of a class that is a list."""

    def __iter__(self):
        return iter(self.rows)


CLASSES = ["N", "P", "V"]


def rows_of():
    codes = [[CLASSES.index(label) for label in labels] for labels in LABELS]
    return [{"id": s, "tokens": w, "tags": c} for s, (w, c) in enumerate(zip(WORDS, codes))]


def test_rows_of_a_data_set():
    X, y = from_rows(rows_of(), "tags")
    assert [x["tokens"] for x in X] == WORDS
    assert [[CLASSES[c] for c in codes] for codes in y] == LABELS
    for source in (Dataset(rows_of(), tags=CLASSES), Columns(rows_of(), tags=CLASSES)):
        X, y = from_rows(source, "tags")
        assert y == LABELS
        assert [x["tokens"] for x in X] == WORDS
        assert [x["tags"] for x in from_rows(source, columns=["tags"])[0]] == LABELS
    assert make_pipeline(TokenFeatures(columns="tokens"), CRFTagger()).fit(X, y)


def test_wrong_rows_are_named():
    rows = rows_of()
    rows[3]["tags"] = [0]
    with pytest.raises(ValueError, match="lists of row 3 must be equally long; got tokens: 3, t"):
        from_rows(rows, "tags")
    with pytest.raises(ValueError, match="no column 'ner'"):
        from_rows(rows, "ner")
    rows[3]["tags"] = [0, -1, 2]
    with pytest.raises(ValueError, match="Row 3 holds -1 in column 'tags', whose classes"):
        from_rows(Dataset(rows, tags=CLASSES), "tags")


def test_documents_of_spacy():
    def token(text, iob, type_):
        return SimpleNamespace(text=text, tag_=text.upper(), ent_iob_=iob, ent_type_=type_)

    doc = [token("New", "B", "LOC"), token("York", "I", "LOC"), token("!", "O", "")]
    X, y = from_docs(iter([doc, doc[2:]]), "ent", columns=["text", "tag_"])
    assert X[0] == {"text": ["New", "York", "!"], "tag_": ["NEW", "YORK", "!"]}
    assert y == [["B-LOC", "I-LOC", "O"], ["O"]]
    assert from_docs([doc], "tag_")[1] == [["NEW", "YORK", "!"]]
    assert from_docs([doc])[1] is None
    once = (iter(each) for each in (doc, doc[2:]))
    assert from_docs(once, "ent", columns=["text", "tag_"]) == (X, y)


# --- Characters ----------------------------------------------------------------------------------


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=6), st.data())
def test_spans_of_characters_and_tokens(tokens, data):
    gaps = data.draw(st.lists(st.integers(0, 2), min_size=len(tokens), max_size=len(tokens)))
    text = "".join(" " * gap + token for gap, token in zip(gaps, tokens))
    offsets = token_offsets(text, tokens)
    assert [text[a:b] for a, b in offsets] == tokens
    start = data.draw(st.integers(0, len(tokens) - 1))
    stop = data.draw(st.integers(start + 1, len(tokens)))
    first, last = offsets[start][0], offsets[stop - 1][1]
    assert align_spans([(first, last, "x")], offsets) == [(start, stop, "x")]
    cut = [(first + 1, last, "x")]  # inside the first token, unless it has one character
    if len(tokens[start]) > 1:
        assert align_spans(cut, offsets, partial="expand") == [(start, stop, "x")]
        assert align_spans(cut, offsets, partial="drop") == []
        with pytest.raises(ValueError, match="begins or ends inside a token"):
            align_spans(cut, offsets)


def test_spans_without_a_token_and_tokens_out_of_place():
    offsets = token_offsets("a  b", ["a", "b"])
    assert align_spans([(0, 2, "x"), (1, 4, "y")], offsets) == [(0, 1, "x"), (1, 2, "y")]
    with pytest.raises(ValueError, match=r"No token is inside the span \(1, 3, 'x'\)"):
        align_spans([(1, 3, "x")], offsets)
    with pytest.raises(ValueError, match="Token 1, 'a', does not occur in the text from char"):
        token_offsets("a b", ["a", "a"])
    with pytest.raises(ValueError, match="partial must be one of"):
        align_spans([], offsets, partial="keep")


# --- Wrong calls ---------------------------------------------------------------------------------


def pandas_frame(*arguments, **options):
    return pytest.importorskip("pandas").DataFrame(*arguments, **options)


def lazy_frame():
    return pytest.importorskip("polars").LazyFrame({"s": [1], "w": ["a"]})


TWICE = {"data": [[1, "a", "b"], [1, "c", "d"]], "columns": ["s", "w", "w"]}
PAIR = {"s": [1, 1], "w": ["a", "b"]}


@pytest.mark.parametrize("role", ["group", "y", "columns"])
@pytest.mark.parametrize("index", [["s"], ["s", "w", "n"], ["n", "s"]])
def test_columns_in_the_index_are_to_be_reset(role, index):
    frame = pandas_frame({"s": [1, 1, 2], "w": ["a", "b", "c"], "n": [1, 2, 3], "v": ["x"] * 3})
    given = {"group": "v", role: ["s"] if role == "columns" else "s"}
    with pytest.raises(ValueError, match=r"has no column 's'.* 's' in its index: call reset_index"):
        from_frame(frame.set_index(index), **given)
    X, _ = from_frame(frame.set_index(index).reset_index(), **given)
    assert np.diff(X.offsets).tolist() == ([2, 1] if role == "group" else [3])


@pytest.mark.parametrize(
    ("frame", "arguments", "message"),
    [
        (lambda: pandas_frame(**TWICE), {}, "The table has 2 columns 'w'; it has"),
        (lambda: pandas_frame(**TWICE), {"y": "w", "columns": ["s"]}, "has 2 columns 'w'"),
        (lambda: {**PAIR, "y": ["O"]}, {"y": "y"}, "must be equally long; got s: 2, w: 2, y: 1"),
        (lambda: {"s": [1, 1], "x": [0.5]}, {}, "must be equally long; got s: 2, x: 1"),
        (lambda: PAIR, {"columns": []}, "columns must name at least one name"),
        (lambda: PAIR, {"columns": 3}, "columns must be a list of names; got 3"),
        (lambda: {"s": [1, 1]}, {}, "has no columns for X beside group and y"),
        (lambda: PAIR, {"y": ["w"]}, r"group and y must be names of columns; got \['w'\]"),
        (lambda: PAIR, {"group": []}, "group must name at least one column"),
        (lambda: {"s": 1, "w": ["a"]}, {}, "Column 's' must be a list or array; got 1"),
        (lambda: {"s": [1, 1], "w": "ab"}, {}, "Column 'w' must be a list or array; got 'ab'"),
        (lambda: [1], {}, "frame must be a DataFrame .* got list"),
        (lambda: None, {}, "got NoneType"),
        (lambda: pandas_frame(PAIR)["w"], {}, "got Series"),
        (lazy_frame, {}, r"\(collect a LazyFrame\).* got LazyFrame"),
    ],
)
def test_wrong_tables_are_named(frame, arguments, message):
    with pytest.raises((ValueError, TypeError), match=message):
        from_frame(frame(), **{"group": "s", **arguments})


def test_columns_may_be_numbered():
    assert from_frame(pandas_frame([[1, "a"], [1, "b"]]), 0)[0] == [{1: ["a", "b"]}]


@pytest.mark.parametrize(
    ("labels", "dtype", "expected"),
    [
        ([0, None, 1], None, [[0, None], [1]]),
        ([0, None, 1], "Int64", [[0, None], [1]]),
        ([None, 0, 1], "Int64", [[None, 0], [1]]),
        (["a", None, "b"], "string", [["a", None], ["b"]]),
        (["a", None, "b"], object, [["a", None], ["b"]]),
    ],
)
def test_missing_labels_are_none(labels, dtype, expected):
    pandas = pytest.importorskip("pandas")
    frame = {"s": [1, 1, 2], "x": [0.0, 1.0, 0.5], "y": pandas.Series(labels, dtype=dtype)}
    X, y = from_frame(pandas.DataFrame(frame), "s", "y")
    assert list(map(list, y)) == expected
    CRFTagger().fit(X, y).score(X[1:], y[1:])
    with pytest.raises(ValueError, match="has no value in"):
        from_frame(pandas.DataFrame(frame), "y")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"tokens": "abc"}], "Row 0 must hold a list in column 'tokens', .* got 'abc'"),
        ([{"tokens": ["a"]}, {"tokens": {"a"}}], "Row 1 must hold a list in column 'tokens'"),
        ([{"tokens": None}], r"got None \(NoneType\)"),
        ([{"tokens": 3.5}], r"got 3.5 \(float\)"),
        ([{"tokens": ["a"]}, {"x": 1}], r"Row 1 has no column 'tokens'; it has \['x'\]"),
        ([["a"]], "Row 0 must be a dict of columns; got list"),
        (None, "rows must be a Dataset, a DataFrame or a list of dicts; got NoneType"),
        (iter([{"tokens": ["a"]}]), "rows must be a Dataset"),
        ({"x": [["a"]]}, r"no column 'tokens'; it has \['x'\]"),
    ],
)
def test_wrong_cells_are_named(rows, message):
    with pytest.raises((ValueError, TypeError), match=message):
        from_rows(rows)
    with pytest.raises((ValueError, TypeError), match="Row 0 must hold a list in column 'y'"):
        from_rows([{"tokens": ["a", "b"], "y": "OO"}], "y")


TOKEN = SimpleNamespace(text="a")


def test_tokens_without_annotation_of_entities_are_unknown():
    given = [("B", "PER"), ("I", "PER"), ("O", ""), ("", ""), ("B", "")]
    doc = [SimpleNamespace(text="a", ent_iob_=iob, ent_type_=kind) for iob, kind in given]
    assert from_docs([doc], "ent")[1] == [["B-PER", "I-PER", "O", None, "O"]]


@pytest.mark.parametrize(
    ("docs", "y", "message"),
    [
        (["abc"], None, r"Document 0 must be a Doc or Span; got 'abc' \(str\)"),
        ([TOKEN, TOKEN], None, "Document 0 must be .* wrap it in a list"),
        ([[TOKEN], ["a"]], None, "A token of document 1 has no attribute 'text'"),
        ([[TOKEN]], "ent", "A token of document 0 has no attribute 'ent_iob_'"),
        (None, None, "docs must be a list of documents; got NoneType"),
    ],
)
def test_wrong_documents_are_named(docs, y, message):
    with pytest.raises((ValueError, TypeError), match=message):
        from_docs(docs, y)


@pytest.mark.parametrize(
    ("spans", "offsets", "message"),
    [
        ([(3, 1, "A")], [(0, 5)], r"Item 0 of spans must .* 0 <= start <= stop; got \(3, 1\)"),
        ([(-2, 3, "A")], [(0, 5)], "Item 0 of spans must begin with integers"),
        ([(0, 0.5, "A")], [(0, 5)], "Item 0 of spans must begin with integers"),
        ([("a", 5, "x")], [(0, 5)], "Item 0 of spans must begin with integers"),
        ([(2, 2, "A")], [(0, 5)], "Item 0 of spans, .* has no characters"),
        ([(0, 5)], [(0, 5)], r"Item 0 of spans must be \(start, stop, type\); got \[0, 5\]"),
        ([None], [(0, 5)], r"Item 0 of spans must be \(start, stop, type\); got None"),
        (None, [(0, 5)], "spans must be a list; got None"),
        ([], None, "offsets must be a list; got None"),
        ([], [None], r"Item 0 of offsets must be \(start, stop\) of a token; got None"),
        ([], [(2, 5), (0, 1)], r"Item 1 of offsets is \(0, 1\) after \(2, 5\); sort"),
    ],
)
def test_wrong_spans_and_offsets_are_named(spans, offsets, message):
    with pytest.raises((ValueError, TypeError), match=message):
        align_spans(spans, offsets, partial="expand")


@pytest.mark.parametrize(
    ("text", "tokens", "message"),
    [(None, ["a"], "text must be a string; got None"), ("a", [1], "Item 0 of tokens must be a s")],
)
def test_wrong_texts_are_named(text, tokens, message):
    with pytest.raises(TypeError, match=message):
        token_offsets(text, tokens)


@pytest.mark.parametrize(
    "groups",
    [[1, "1"], ["a", "a\0"], [True, "True"], [b"a", "a"], [2**53, 2**53 + 1, 0.5], (2**63, -1)],
)
def test_groups_of_lists_are_compared_as_they_are(groups):
    X, _ = from_frame({"s": groups, "w": list("abc")[: len(groups)]}, "s")
    assert len(X) == len(groups)


@pytest.mark.parametrize("name", ["s", "w", "y"])
def test_masked_entries_are_refused(name):
    frame = {column: np.ma.array([1, 1, 2]) for column in "swy"}
    assert len(from_frame(frame, "s", "y")[0]) == 2
    frame[name][1] = np.ma.masked
    with pytest.raises(ValueError, match=f"Column '{name}' has masked entries; fill them"):
        from_frame(frame, "s", "y")

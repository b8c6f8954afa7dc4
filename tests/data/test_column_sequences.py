"""Sequences of long columns equal the list of dicts that they stand for."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import StandardScaler

from sklseq import CRFTagger
from sklseq.data.column_sequences import ColumnSequences
from sklseq.datasets import from_frame
from sklseq.features import (
    DictFeatures,
    LexiconFeatures,
    PerToken,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)


def to_pandas(columns):
    return pytest.importorskip("pandas").DataFrame(columns)


def to_objects(columns):
    return to_pandas(columns).astype({"w": object})


def to_categories(columns):
    frame = to_pandas(columns)
    frame["w"] = frame["w"].astype("category").cat.add_categories(["unused"])
    return frame


def to_polars(columns):
    return pytest.importorskip("polars").DataFrame(columns)


def to_polars_categories(columns):
    polars = pytest.importorskip("polars")
    return to_polars(columns).with_columns(polars.col("w").cast(polars.Categorical))


def to_polars_enum(columns):
    polars = pytest.importorskip("polars")
    enum = polars.Enum(sorted({"unused", *(w for w in columns["w"] if w is not None)}))
    return to_polars(columns).with_columns(polars.col("w").cast(enum))


def to_arrow(columns):
    return pytest.importorskip("pyarrow").table(columns)


def to_arrow_chunks(columns):
    arrow = pytest.importorskip("pyarrow")
    n = (len(columns["w"]) + 1) // 2
    parts = [{k: v[:n] for k, v in columns.items()}, {k: v[n:] for k, v in columns.items()}]
    tables = [to_arrow_dictionary(part) for part in parts if len(part["w"])]
    return arrow.concat_tables(tables)


def to_arrow_dictionary(columns):
    arrow = pytest.importorskip("pyarrow")
    coded = arrow.array(columns["w"], arrow.string()).dictionary_encode()
    return arrow.table({**columns, "w": coded})


KINDS = [dict, to_pandas, to_objects, to_categories, to_polars, to_polars_categories]
KINDS += [to_polars_enum, to_arrow, to_arrow_chunks, to_arrow_dictionary]
kinds = pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
STRINGS = ["a", "aa", "b", "", "é\N{GRINNING FACE}"]
EXTRACTORS = [
    TokenFeatures(columns=["w", "v"]),
    TemplateFeatures(["w[-1]|v[0]", "w[2]", "w[0]"], columns=["w", "v"]),
    TemplateFeatures(["w[-1]", "v[1]"], columns=["w", "v"], boundary="mark", min_count=2),
    TemplateFeatures(["w[-1]|v[1]"], columns=["w", "v"], n_features=2**10),
    WindowFeatures(TokenFeatures(columns="w")),
    LexiconFeatures({"x": ["aa b"]}, columns="w"),
    PerToken(StandardScaler(), columns=["x"]),
    DictFeatures(),
]


def long(lengths, words, values):
    n = sum(lengths)
    return {
        "s": np.repeat(np.arange(len(lengths)), lengths), "w": words[:n],
        "v": [w.upper() for w in words[:n]], "x": np.array(values[:n], dtype=float),
    }  # fmt: skip


def dense(rows):
    return rows.toarray() if hasattr(rows, "toarray") else rows


tables = st.lists(st.integers(1, 4), min_size=1, max_size=6).flatmap(
    lambda lengths: st.builds(
        long, st.just(lengths), *(
            st.lists(items, min_size=sum(lengths), max_size=sum(lengths))
            for items in (st.sampled_from(STRINGS), st.integers(0, 3))
        ),
    )
)  # fmt: skip


@kinds
@settings(max_examples=8, deadline=None)
@given(tables, st.data())
def test_extractors_give_the_rows_of_the_list(make, table, data):
    X, _ = from_frame(make(table), "s")
    assert isinstance(X, ColumnSequences)
    expected = [dict(x) for x in X]
    assert [w for x in expected for w in x["w"]] == table["w"]
    assert_array_equal(np.concatenate([x["x"] for x in expected]), table["x"])
    stop = data.draw(st.integers(0, len(X)))
    extractor = data.draw(st.sampled_from(EXTRACTORS))
    rows = extractor.fit_transform(X)
    names = extractor.get_feature_names_out()
    others = extractor.transform(X[stop - 1 :])
    same = extractor.fit_transform(expected)
    assert_array_equal(names, extractor.get_feature_names_out())
    for one, other in ((rows, same), (others, extractor.transform(expected[stop - 1 :]))):
        assert_array_equal(dense(one.rows), dense(other.rows))
        assert_array_equal(one.offsets, other.offsets)
    # A part is fitted on its own strings only, numbered as in the list.
    assert_array_equal(
        TokenFeatures(columns="w").fit(X[stop - 1 :]).get_feature_names_out(),
        TokenFeatures(columns="w").fit(expected[stop - 1 :]).get_feature_names_out(),
    )


@kinds
def test_items_are_those_of_a_list(make):
    table = long([2, 1, 3], ["a", "b", "a", "c", "a", "c"], [0, 1, 2, 3, 4, 5])
    X, _ = from_frame(make(table), "s", columns=["w", "v"])
    expected = list(X)
    assert expected[1] == {"w": ["a"], "v": ["A"]}
    for part in (slice(1, 3), slice(None), slice(2, 1), slice(-2, None), slice(None, None, -2)):
        assert X[part] == expected[part]
        assert len(X[part]) == len(expected[part])
    assert X[-1] == X[np.int64(2)] == expected[2]
    assert expected == X
    assert expected[:2] != X
    assert X != "a"
    assert pickle.loads(pickle.dumps(X)) == expected
    assert repr(X) == "<3 sequences of columns ['w', 'v'], 6 rows>"
    with pytest.raises(IndexError):
        X[3]
    with pytest.raises(TypeError):
        X["w"]


@kinds
@pytest.mark.parametrize("extractor", [TokenFeatures(columns="w"), TemplateFeatures(["w[-1]"])])
def test_a_missing_string_is_named_by_sequence_and_row(make, extractor):
    table = {"s": [0, 0, 1, 1], "w": ["a", "b", "a", None]}
    X, _ = from_frame(make(table), "s")
    with pytest.raises(ValueError, match=r"row 1 of sequence 1, column 'w', is (None|nan)"):
        extractor.fit(X)
    with pytest.raises(ValueError, match=r"row 1 of sequence 1, column 'w', is (None|nan)"):
        extractor.fit([{"w": ["a"]}]).transform(X)


def test_columns_of_other_kinds_are_named():
    X, _ = from_frame({"s": [0, 0], "w": ["a", "b"], "x": [0.5, 1.0]}, "s")
    with pytest.raises(ValueError, match=r"row 0 of sequence 0, column 'x', is 0\.5"):
        TokenFeatures(columns="x").fit(X)
    with pytest.raises(ValueError, match=r"no column 'y'; it has \['w', 'x'\]"):
        TemplateFeatures(["y[0]"], columns=["y"]).fit(X)
    with pytest.raises(ValueError, match="Column 'x' of X holds numbers and column 'w' does not"):
        PerToken(StandardScaler(), columns=["x", "w"]).fit(X)


@kinds
def test_searches_cut_the_sequences(make):
    table = long([2, 1, 3] * 6, ["a", "b", "a", "c", "a", "c"] * 6, list(range(36)))
    X, y = from_frame(make({**table, "y": list("PQRPQR") * 6}), "s", "y")
    union = [("w", TokenFeatures(columns="w")), ("x", PerToken(StandardScaler(), columns=["x"]))]
    model = make_pipeline(FeatureUnion(union), CRFTagger(max_iter=20, tol=1))
    found = cross_val_predict(model, X, y, cv=KFold(3))
    for one, other in zip(found, cross_val_predict(model, list(X), y, cv=KFold(3))):
        assert_array_equal(one, other)

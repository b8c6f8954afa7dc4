"""TemplateFeatures against the obvious version that builds one string per attribute."""

import gzip
import os
import pickle
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, runtime
from sklseq.deployment import export
from sklseq.features import TemplateFeatures, _grams, _template_transform
from sklseq.features._family import distinct_names

CHUNKING = [
    *(f"w[{i}]" for i in range(-2, 3)),
    "w[-1]|w[0]",
    "w[0]|w[1]",
    *(f"pos[{i}]" for i in range(-2, 3)),
    *(f"pos[{i}]|pos[{i + 1}]" for i in range(-2, 2)),
    *(f"pos[{i - 1}]|pos[{i}]|pos[{i + 1}]" for i in range(-1, 2)),
]


def parts_of(template):
    return [(p[: p.index("[")], int(p[p.index("[") + 1 : -1])) for p in template.split("|")]


def value(tokens, t, boundary):
    if 0 <= t < len(tokens):
        return tokens[t]
    if boundary == "skip":
        return None
    return f"_B{t}" if t < 0 else f"_B+{t - len(tokens) + 1}"


def obvious(sequence, templates, boundary="skip", bos_eos=True, bias=False):
    """Attribute names of each row, as CRFsuite's template.py builds them."""
    n_rows = len(next(iter(sequence.values())))
    rows = []
    for t in range(n_rows):
        names = []
        for template in templates:
            values = [value(sequence[c], t + i, boundary) for c, i in parts_of(template)]
            if None not in values:
                names.append(f"{template}={'|'.join(values)}")
        names += ["bias"] * bias
        if bos_eos:
            names += ["__BOS__"] * (t == 0) + ["__EOS__"] * (t == n_rows - 1)
        rows.append(names)
    return rows


def named_rows(features, packed):
    names = features.get_feature_names_out()
    rows = packed.rows
    return [names[rows.indices[a:b]].tolist() for a, b in zip(rows.indptr[:-1], rows.indptr[1:])]


def flat(lists):
    return list(chain.from_iterable(lists))


def as_columns(sequences):
    return [{"w": [w for w, _ in s], "pos": [p for _, p in s]} for s in sequences]


# Neither separator of the names, so that equal names mean equal attributes.
token = st.text(alphabet="abé☃", min_size=0, max_size=2)
sequence_lists = st.lists(st.lists(st.tuples(token, token), max_size=6), min_size=1, max_size=5)
template = st.lists(
    st.tuples(st.sampled_from(["w", "pos"]), st.integers(-3, 3)), min_size=1, max_size=4
).map(lambda parts: "|".join(f"{c}[{i}]" for c, i in parts))
template_lists = st.lists(template, min_size=1, max_size=6, unique=True)
boundaries = st.sampled_from(["skip", "mark"])


@given(sequence_lists, sequence_lists, template_lists, boundaries, st.booleans(), st.booleans())
def test_rows_are_those_of_the_obvious_version(train, test, templates, boundary, bos_eos, bias):
    train, test = as_columns(train), as_columns(test)
    features = TemplateFeatures(templates, boundary=boundary, bos_eos=bos_eos, bias=bias)
    packed = features.fit_transform(train)
    expected = [obvious(s, templates, boundary, bos_eos, bias) for s in train]
    assert packed.lengths.tolist() == [len(rows) for rows in expected]
    expected = flat(expected)
    assert named_rows(features, packed) == expected
    known = set(flat(expected))
    expected = flat([obvious(s, templates, boundary, bos_eos, bias) for s in test])
    expected = [[name for name in row if name in known] for row in expected]
    assert named_rows(features, features.transform(test)) == expected


@given(sequence_lists, template_lists, boundaries, st.integers(2, 3))
def test_min_count_counts_rows_and_keeps_the_order(train, templates, boundary, min_count):
    train = as_columns(train)
    features = TemplateFeatures(templates, boundary=boundary, min_count=min_count)
    packed = features.fit_transform(train)
    rows = flat([obvious(s, templates, boundary) for s in train])
    counts = Counter(flat(rows))
    expected = [[name for name in row if counts[name] >= min_count] for row in rows]
    assert named_rows(features, packed) == expected
    assert named_rows(features, features.transform(train)) == expected
    assert features.get_feature_names_out().tolist() == list(dict.fromkeys(flat(expected)))


@given(sequence_lists, template_lists)
def test_attributes_are_numbered_as_met_row_by_row(train, templates):
    train = as_columns(train)
    features = TemplateFeatures(templates).fit(train)
    names = flat(flat([obvious(s, templates) for s in train]))
    assert features.get_feature_names_out().tolist() == list(dict.fromkeys(names))


def big_columns(n_sequences=3000, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {
            "w": [f"w{i}" for i in rng.zipf(1.3, size=n) % 5000],
            "pos": [f"p{i}" for i in rng.integers(30, size=n)],
        }
        for n in rng.integers(0, 25, size=n_sequences)
    ]


@pytest.fixture(scope="module")
def columns():
    return big_columns()


def assert_same(a, b):
    np.testing.assert_array_equal(a.offsets, b.offsets)
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(a.rows, name), getattr(b.rows, name))


def test_many_attributes_with_growing_hash_tables(columns):
    features = TemplateFeatures(CHUNKING)
    packed = features.fit_transform(columns)
    expected = flat([obvious(s, CHUNKING) for s in columns])
    assert named_rows(features, packed) == expected
    assert_same(features.transform(columns), packed)


def test_template_of_many_parts_needs_no_wide_integers():
    # 9 columns of 600 values: their product passes 2**64; every prefix is numbered instead.
    rng = np.random.default_rng(0)
    values = rng.integers(600, size=(500, 9)).astype(str)
    rows = [tuple(row) for row in values.tolist()]
    template = "|".join(f"c{i}[0]" for i in range(9))
    features = TemplateFeatures([template], bos_eos=False).fit([rows])
    assert features.n_features_out_ == len(set(rows))
    changed = [row[:-1] + ("none",) for row in rows]
    assert features.transform([rows]).rows.nnz == len(rows)
    assert features.transform([changed]).rows.nnz == 0


@pytest.mark.parametrize("n_jobs", [2, 3, -1])
def test_thread_count_makes_no_difference(columns, n_jobs, monkeypatch):
    monkeypatch.setattr(_template_transform, "ROWS_PER_THREAD", 10)
    features = TemplateFeatures(CHUNKING).fit(columns[:2000])
    one = features.transform(columns)
    assert_same(features.set_params(n_jobs=n_jobs).transform(columns), one)
    # More threads than sequences, and none.
    assert_same(features.transform(columns[7:8]), one[7:8])
    assert len(features.transform([])) == 0


def test_order_of_sequences_makes_no_difference_in_transform(columns):
    features = TemplateFeatures(CHUNKING).fit(columns[:1000])
    order = np.random.default_rng(1).permutation(len(columns))
    assert_same(features.transform([columns[i] for i in order]), features.transform(columns)[order])


def test_all_forms_of_input_give_the_same():
    words, tags = ["He", "runs", "home"], ["PRP", "VBZ", "NN"]
    forms = [
        [{"w": words, "pos": tags}, {"w": [], "pos": []}],
        [{"w": np.array(words), "pos": tuple(tags)}, []],
        [list(zip(words, tags)), []],
        [[list(row) for row in zip(words, tags)], ()],
        [np.array(list(zip(words, tags))), []],
        [[{"w": w, "pos": p} for w, p in zip(words, tags)], []],
    ]
    expected = TemplateFeatures(CHUNKING, columns=["w", "pos"]).fit_transform(forms[0])
    for X in forms:
        assert_same(TemplateFeatures(columns=["w", "pos"]).fit_transform(X), expected)
    assert TemplateFeatures(columns=["w", "pos"]).fit(forms[0]).templates_[:-2] == CHUNKING


def test_plain_tokens_are_one_column_w():
    features = TemplateFeatures(["w[0]|w[1]"], bos_eos=False).fit([["a", "b", "c"], []])
    assert features.get_feature_names_out().tolist() == ["w[0]|w[1]=a|b", "w[0]|w[1]=b|c"]
    assert features.columns_ == ["w"]


def test_unnamed_columns_of_tuples_are_numbered():
    features = TemplateFeatures(["c1[0]"]).fit([[("a", "A"), ("b", "B")]])
    assert features.columns_ == ["c0", "c1"]
    assert "c1[0]=B" in features.vocabulary_


def test_columns_that_no_template_reads_may_be_missing_or_anything():
    X = [{"w": ["a", "b"], "y": [1, 2]}]
    features = TemplateFeatures(["w[0]"]).fit(X)
    assert features.transform([{"w": ["a"]}]).rows.nnz == 3


def test_string_subclasses_count_as_their_text():
    features = TemplateFeatures(["w[0]"], bos_eos=False).fit([[np.str_("a"), "b"]])
    assert features.transform([["a", np.str_("b")]]).rows.indices.tolist() == [0, 1]
    assert {type(t) for t in features.column_codes_["w"]} == {str}


def test_separators_in_tokens_do_not_collide():
    X = [{"w": ["a|b", "a"], "pos": ["c", "b|c"]}, {"w": ["x=y"], "pos": ["="]}]
    features = TemplateFeatures(["w[0]|pos[0]"], bos_eos=False)
    assert features.fit_transform(X).rows.indices.tolist() == [0, 1, 2]
    assert features.get_feature_names_out().tolist() == [
        "w[0]|pos[0]=a|b|c",
        "w[0]|pos[0]=a|b|c (2)",
        "w[0]|pos[0]=x=y|=",
    ]


def test_marks_and_macros_of_equal_names():
    features = TemplateFeatures(["w[-1]"], boundary="mark", bos_eos=False).fit([["_B-1", "c"]])
    assert features.get_feature_names_out().tolist() == ["w[-1]=_B-1", "w[-1]=_B-1 (2)"]
    features = TemplateFeatures(["U:%x[0,0]", "U:%x[-1,0]"], bos_eos=False).fit([["a", "b"]])
    assert features.get_feature_names_out().tolist() == ["U:a", "U:b", "U:a (2)"]


separated = st.text(alphabet="a| ()2", max_size=4)


@given(st.lists(st.tuples(separated, separated), min_size=1, max_size=30), st.integers(1, 2))
def test_all_names_are_different(tokens, min_count):
    X = [[a, b] for a, b in tokens] + [["a|a", "a"], ["a", "a|a"]] * 2
    features = TemplateFeatures(["w[0]|w[1]"], bos_eos=False, min_count=min_count).fit(X)
    names = features.get_feature_names_out().tolist()
    counts = Counter(map(tuple, X))
    assert len(set(names)) == len(names) == sum(n >= min_count for n in counts.values())
    assert features.vocabulary_ == {name: i for i, name in enumerate(names)}


@given(st.lists(st.sampled_from(["a", "a (2)", "a (3)", "a (2) (2)", "b"])))
def test_only_further_copies_are_renamed(names):
    got = distinct_names(names).tolist()
    assert len(set(got)) == len(names)
    firsts = [names.index(name) for name in set(names)]
    assert [got[i] for i in firsts] == [names[i] for i in firsts]


def test_unseen_tokens_give_no_attribute():
    features = TemplateFeatures(["w[0]", "w[-1]|w[0]"], bos_eos=False).fit([["a", "b"], ["a"]])
    names = named_rows(features, features.transform([["a", "new", "b"], ["b", "a"]]))
    assert names == [["w[0]=a"], [], ["w[0]=b"], ["w[0]=b"], ["w[0]=a"]]


CRFPP = """
# Unigram
U00:%x[-1,0]
U01:%x[0,0]/%x[0,1]

U02:p=%x[1,1]
U03
B
"""


def test_crfpp_template_file():
    X = [{"w": ["a", "b"], "pos": ["A", "B"]}]
    features = TemplateFeatures(CRFPP, boundary="mark", bos_eos=False)
    assert named_rows(features, features.fit_transform(X)) == [
        ["U00:_B-1", "U01:a/A", "U02:p=B", "U03"],
        ["U00:a", "U01:b/B", "U02:p=_B+1", "U03"],
    ]


class NamesAFile:
    """A path of another class than pathlib's."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return str(self.path)


@pytest.mark.parametrize("n_features", [None, 64])
@pytest.mark.parametrize("kind", [Path, NamesAFile])
def test_a_file_is_read_once_when_features_are_fitted(tmp_path, kind, n_features):
    X = [{"w": ["a", "b"], "pos": ["A", "B"]}]
    options = {"boundary": "mark", "bos_eos": False, "n_features": n_features}
    path = tmp_path / "template"
    path.write_bytes(CRFPP.replace("\n", "\r\n").replace("p=", "é=").encode("utf-8-sig"))
    features = TemplateFeatures(kind(path), **options)
    expected = TemplateFeatures(CRFPP.replace("p=", "é="), **options)
    model = make_pipeline(features, CRFTagger(max_iter=5)).fit(X, [["p", "q"]])
    path.unlink()
    assert_same(features.transform(X), expected.fit_transform(X))
    assert features.templates_ == expected.templates_
    assert_same(pickle.loads(pickle.dumps(features)).transform(X), expected.transform(X))
    features.set_params(templates=["w[0]"])
    assert_same(features.transform(X), expected.transform(X))
    export(model, tmp_path / "model")
    decoder = runtime.load(tmp_path / "model")
    assert list(decoder.predict(X)) == list(model.predict(X))
    features.set_params(templates=kind(path))
    with pytest.raises(ValueError, match=r"templates names .*template', which is missing"):
        features.fit(X)
    path.write_bytes("U0é:%x[0,0]".encode("latin-1"))
    with pytest.raises(ValueError, match=r"template', which is not UTF-8 \(invalid .* at byte 2\)"):
        features.fit(X)
    assert_same(features.transform(X), expected.transform(X))


def test_macros_of_equal_text_but_other_names_are_two_attributes():
    features = TemplateFeatures(["U1:%x[0,0]", "U2:%x[0,0]", "w[0]"], bos_eos=False).fit([["a"]])
    assert features.get_feature_names_out().tolist() == ["U1:a", "U2:a", "w[0]=a"]


def test_crfsuite_tuples():
    X = [{"w": ["a", "b"], "p [x]": ["A", "B"]}]
    templates = [(("w", -1), ("p [x]", 0)), (("w", 0),)]
    features = TemplateFeatures(templates, bos_eos=False).fit(X)
    assert features.get_feature_names_out().tolist() == [
        "w[0]=a",
        "w[-1]|p [x][0]=a|B",
        "w[0]=b",
    ]


def test_percent_signs_and_braces_in_names():
    features = TemplateFeatures(["w%[0]", "U%%{}:%x[0,0]"], bos_eos=False)
    with pytest.raises(ValueError, match="cannot be read"):
        features.fit([[{"w%": "a"}]])
    features = TemplateFeatures([(("w%s{}", 0),)], bos_eos=False).fit([[{"w%s{}": "%d{}"}]])
    assert features.get_feature_names_out().tolist() == ["w%s{}[0]=%d{}"]


@pytest.mark.parametrize(
    ("templates", "expected"),
    [(["w[0]"], (0, 0)), (["w[-3]", "w[1]|w[2]"], (3, 2)), (["w[2]"], (0, 2)), (["w[-1]"], (1, 0))],
)
def test_receptive_field(templates, expected):
    X = [["a", "b", "c", "d"]]
    assert TemplateFeatures(templates, bos_eos=False).fit(X).receptive_field == expected
    with_ends = TemplateFeatures(templates).fit(X).receptive_field
    assert with_ends == (max(expected[0], 1), max(expected[1], 1))


@pytest.mark.parametrize("boundary", ["skip", "mark"])
def test_a_window_of_the_receptive_field_gives_the_row(columns, boundary):
    templates = ["w[-2]|w[1]", "pos[0]", "pos[1]|pos[-1]"]
    features = TemplateFeatures(templates, boundary=boundary).fit(columns[:200])
    before, after = features.receptive_field
    sequence = next(s for s in columns if len(s["w"]) > 8)
    rows = features.transform([sequence]).rows
    for t in range(before, len(sequence["w"]) - after):
        window = {c: v[t - before : t + after + 1] for c, v in sequence.items()}
        row = features.transform([window]).rows[before]
        np.testing.assert_array_equal(row.indices, rows[t].indices)


def test_pickle_clone_and_refit(columns):
    features = TemplateFeatures(CHUNKING, min_count=2)
    packed = features.fit_transform(columns)
    copy = pickle.loads(pickle.dumps(features))
    assert_same(copy.transform(columns), packed)
    assert_same(clone(features).fit_transform(columns), packed)
    assert_same(features.fit(columns[:10]).fit(columns).transform(columns), packed)
    names = features.get_feature_names_out()
    np.testing.assert_array_equal(copy.get_feature_names_out(), names)
    assert len(names) == features.n_features_out_ == packed.shape[1]


def test_fitted_state_is_plain(columns):
    def plain(value):
        if isinstance(value, dict):
            return all(map(plain, value)) and all(map(plain, value.values()))
        if isinstance(value, list):
            return all(map(plain, value))
        return isinstance(value, (str, int, np.ndarray))

    features = TemplateFeatures(CHUNKING).fit(columns[:50])
    state = {k: v for k, v in vars(features).items() if k not in features.get_params()}
    assert state.pop("_fitted_parameters") == features.get_params()
    assert all(k.endswith("_") for k in state)
    assert state.pop("roles_") is None
    assert [k for k, v in state.items() if not plain(v)] == []


def test_read_only_fitted_arrays(columns):
    features = TemplateFeatures(CHUNKING)
    packed = features.fit_transform(columns)
    for array in vars(features).values():
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    assert_same(features.transform(columns), packed)


def test_parameters_changed_after_fit_do_not_matter(columns):
    features = TemplateFeatures(CHUNKING, boundary="mark")
    packed = features.fit_transform(columns[:20])
    features.set_params(boundary="skip", templates=["w[0]"], columns=["x"], bos_eos=False)
    assert_same(features.transform(columns[:20]), packed)


def test_input_is_not_changed(columns):
    sequences, same = big_columns(50), big_columns(50)
    TemplateFeatures(CHUNKING).fit(sequences).transform(sequences)
    assert sequences == same


def test_pipeline_and_set_output(columns):
    pipeline = make_pipeline(TemplateFeatures(["w[0]"]))
    with config_context(transform_output="pandas"):
        assert len(pipeline.fit_transform(columns[:5])) == 5


def test_float32():
    packed = TemplateFeatures(["w[0]"], dtype=np.float32).fit_transform([["a", "b"]])
    assert packed.dtype == np.float32


def test_prune_keeps_no_gram_without_an_attribute(columns):
    everything = TemplateFeatures(CHUNKING).fit(columns)
    frequent = TemplateFeatures(CHUNKING, min_count=5).fit(columns)
    assert len(frequent.slots_) < len(everything.slots_) / 3


def test_hash_tables_survive_clustering():
    # Keys that agree in their hash's high bits must still be told apart.
    keys = np.arange(1, 2000, dtype=np.uint64) << np.uint64(32) | np.uint64(1)
    pairs = np.stack([keys, np.arange(1, 2000, dtype=np.uint64)], axis=1)
    slots = _grams.hash_table(pairs, 4096)
    found = _grams.keys_of(slots, len(keys) + 1)
    np.testing.assert_array_equal(found[1:], keys)


# --- rows of ones ------------------------------------------------------------------------


def test_scipy_may_tidy_the_rows_in_place(columns):
    rows = TemplateFeatures(CHUNKING).fit_transform(columns[:50]).rows
    dense = rows.toarray()
    assert rows.max() == 1
    np.testing.assert_array_equal(np.asarray(rows.sum(axis=0)).ravel(), dense.sum(axis=0))
    np.testing.assert_array_equal(np.asarray(rows.max(axis=1).todense()).ravel(), dense.max(axis=1))
    np.testing.assert_array_equal(sparse.hstack([rows, rows]).toarray(), np.hstack([dense, dense]))
    np.testing.assert_array_equal(rows[3:9].toarray(), dense[3:9])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(rows)).toarray(), dense)
    assert rows.has_canonical_format
    np.testing.assert_array_equal(rows.toarray(), dense)


@pytest.mark.parametrize("method", ["sort_indices", "sum_duplicates", "eliminate_zeros"])
def test_tidied_rows_can_be_changed(columns, method):
    first = TemplateFeatures(CHUNKING).fit_transform(columns[:9]).rows
    dense = first.toarray()
    getattr(first, method)()
    np.testing.assert_array_equal(first.toarray(), dense)
    first.data *= 2
    np.testing.assert_array_equal(first.toarray(), 2 * dense)


def test_ones_cannot_be_written():
    rows = TemplateFeatures(["w[0]"]).fit_transform([["a", "b"]]).rows
    with pytest.raises(ValueError, match="read-only"):
        rows.data[0] = 2


# --- errors ------------------------------------------------------------------------------

COLUMNS = [{"w": ["a", "b"], "pos": ["A", "B"]}]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"templates": ["w[0"]}, r"Template 'w\[0' cannot be read. Write 'w\[-1\]'"),
        ({"templates": [("w", 0)]}, r"Template \('w', 0\) cannot be read"),
        ({"templates": ["U1:%y[0,0]"]}, r"Template 'U1:%y\[0,0\]' cannot be read"),
        ({"templates": [3]}, "Template 3 cannot be read"),
        ({"templates": 3}, "templates must be a list of templates; got 3"),
        ({"templates": ["x[0]"]}, r"'x\[0\]' names the column 'x'; the columns are \['w', 'pos'\]"),
        ({"templates": ["U:%x[0,2]"]}, r"reads column number 2; the columns are \['w', 'pos'\]"),
        ({"templates": ["B01:%x[0,0]"], "n_features": 4}, "gives transition features"),
        ({"templates": ["B01:%x[0,3]"]}, "reads column number 3"),
        ({"templates": ["w[5000]"]}, "reaches 5000 rows away; at most 1000"),
        ({"templates": ["w[0]", " w[ 0 ]"]}, r"Template 'w\[0\]' is given twice; remove one"),
        ({"templates": [], "bos_eos": False}, "templates holds no template"),
        (
            {"templates": None},
            r"templates=None with the columns \[.w., .pos.\] of X needs columns=",
        ),
        ({"boundary": "wrap"}, 'boundary must be "skip" or "mark"; got \'wrap\''),
        ({"min_count": 0}, "min_count must be an integer of at least 1; got 0"),
        ({"min_count": 1.5}, "min_count must be an integer of at least 1; got 1.5"),
        ({"dtype": int}, "dtype must be float32 or float64"),
        ({"columns": "w"}, "columns must be a list of column names; got the string 'w'"),
        ({"columns": ["w", "pos", "w"]}, "columns must be different names; it has 'w' several"),
        ({"templates": Path("absent")}, "templates names 'absent', which is missing; give the"),
        ({"templates": Path(".")}, r"templates names '\.', which is no file; give the path of a"),
        ({"templates": "absent"}, r"'absent' cannot be read.*; give a file as pathlib\.Path\."),
    ],
)
def test_parameter_errors(parameters, message):
    features = TemplateFeatures(**{"templates": ["w[0]"], **parameters})
    with pytest.raises(ValueError, match=message):
        features.fit(COLUMNS)
    assert not [name for name in vars(features) if name.endswith("_")]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "X holds no sequences"),
        ({"w": ["a"]}, r"X must be a list of sequences; got dict. Wrap a single sequence"),
        ("text", "X must be a list of sequences; got str"),
        (["text"], "Sequence 0 of X must be a mapping of columns, or a list"),
        ([{"w": ["a"]}, ["a"]], "sequence 1 is a list of strings, an earlier sequence is a"),
        ([["a"], [("a",)]], "sequence 1 is a list of tuples or lists of strings, an earlier"),
        ([[], [3]], r"Row 0 of sequence 1 of X must be a string, .* got 3 \(int\)"),
        ([["a"], ["a", 3]], r"row 1 of sequence 1 is 3 \(int\). Convert it with str"),
        (
            [["a", None]],
            r"strings; row 1 of sequence 0 is None \(NoneType\). Fill it or drop the row",
        ),
        ([["a", float("nan")]], r"is nan \(float\). Fill it or drop the row"),
        ([["a", b"x"]], r"is b'x' \(bytes\). Decode it"),
        ([{"w": ["a", 1.0]}], "row 1 of sequence 0, column 'w', is 1.0"),
        ([{"w": ["a"]}, {"v": ["a"]}], r"Sequence 1 of X has no column 'w'; it has \['v'\]"),
        ([{"w": "abc"}], "Column 'w' of sequence 0 of X must be a list; got str"),
        ([[{"w": "a"}, {"v": "a"}]], "Row 1 of sequence 0 of X must be a dict with the column 'w'"),
        ([[{"w": "a"}, "a"]], "Row 1 of sequence 0 of X must be a dict with the column 'w'"),
    ],
)
def test_data_errors(X, message):
    features = TemplateFeatures(["w[0]"])
    with pytest.raises(ValueError, match=message):
        features.fit(X)
    assert not [name for name in vars(features) if name.endswith("_")]


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[("a", "A"), ("b",)]], "Row 1 of sequence 0 of X has 1 values, but column number 1"),
        ([[("a", "A"), "bB"]], "Row 1 of sequence 0 of X must be a tuple or list of strings"),
        ([[("a", "A"), 3]], "Row 1 of sequence 0 of X must be a tuple or list of strings"),
        ([[("a", "A"), ("b", 3)]], "row 1 of sequence 0, column number 1, is 3"),
        (
            [{"w": ["a"], "pos": ["A"]}, {"w": ["a"], "pos": ["A", "B"]}],
            "column 'pos' of sequence 1 of X has 2 values, an earlier column 1",
        ),
    ],
)
def test_ragged_columns(X, message):
    features = TemplateFeatures(["w[0]|pos[0]"], columns=["w", "pos"])
    with pytest.raises(ValueError, match=message):
        features.fit(X)


def test_use_before_fit():
    features = TemplateFeatures(["w[0]"])
    for use in (lambda: features.transform([["a"]]), features.get_feature_names_out):
        with pytest.raises(NotFittedError):
            use()
    assert not hasattr(features, "receptive_field")


# --- real text ---------------------------------------------------------------------------


@pytest.mark.skipif("SKLSEQ_DATA" not in os.environ, reason="SKLSEQ_DATA names no data folder")
def test_conll2000_has_the_attributes_of_crfsuite():
    path = os.path.join(os.environ["SKLSEQ_DATA"], "conll2000", "train.txt.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        blocks = [b.splitlines() for b in file.read().split("\n\n") if b.strip()]
    X = [[tuple(line.split(" ")[:2]) for line in block] for block in blocks]
    features = TemplateFeatures(columns=["w", "pos"])
    packed = features.fit_transform(X)
    assert packed.shape == (8936, 335_674)
    expected = flat(obvious(sequence, CHUNKING) for sequence in as_columns(X[::100]))
    assert named_rows(features, packed[::100]) == expected


@pytest.mark.parametrize("name", ["brand", "B", "b2", "before", "B x"])
def test_only_bare_b_lines_are_skipped(name):
    # Any other text without brackets is an attribute of each row.
    names = TemplateFeatures([name, "w[0]"], bos_eos=False).fit([["a"]]).get_feature_names_out()
    assert names.tolist() == [*([] if name in ("B", "b2") else [name]), "w[0]=a"]

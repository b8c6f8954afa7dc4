"""DictFeatures against python-crfsuite and against an obvious reader."""

import pickle
import threading
from collections import Counter
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, runtime
from sklseq.deployment import export
from sklseq.features import DictFeatures, TemplateFeatures


def obvious(item, prefix=""):
    """Attribute and weight pairs of an item, duplicates included, as python-crfsuite reads it."""
    text = lambda x: x.decode() if isinstance(x, bytes) else x  # noqa: E731
    if isinstance(item, set):
        item = sorted(item, key=repr if len(set(map(type, item))) > 1 else None)
    for key in item:
        name = prefix + text(key)
        value = item[key] if isinstance(item, dict) else 1.0
        if isinstance(value, (dict, list, set)):
            yield from obvious(value, name + ":")
        elif isinstance(value, (str, bytes)):
            yield name + ":" + text(value), 1.0
        else:
            yield name, float(value)


def summed(item):
    weights = {}
    for name, weight in obvious(item):
        weights[name] = weights.get(name, 0.0) + weight
    return weights


# NUL ends a string in C, and a lone surrogate is no UTF-8: python-crfsuite reads neither.
characters = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
plain = st.text(alphabet=st.one_of(st.sampled_from("ab:="), characters), max_size=3)
text = st.one_of(plain, plain.map(str.encode))
number = st.one_of(
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(-1e9, 1e9),
    st.sampled_from([0, -0.0, np.float32(0.5), np.int64(3)]),
)
collections_of_text = st.one_of(st.lists(text, max_size=4), st.sets(text, max_size=4))
values = st.recursive(
    st.one_of(text, number, collections_of_text),
    lambda inner: st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
items = st.one_of(st.dictionaries(text, values, max_size=5), collections_of_text)
sequence_lists = st.lists(st.lists(items, max_size=4), min_size=1, max_size=4)


@given(sequence_lists)
def test_items_are_read_as_python_crfsuite_reads_them(X):
    pycrfsuite = pytest.importorskip("pycrfsuite")
    features = DictFeatures()
    read = features.inverse_transform(features.fit_transform(X))
    for sequence, ours in zip(X, read, strict=True):
        theirs = pycrfsuite.ItemSequence(sequence).items()
        for item, our_item, their_item in zip(sequence, ours, theirs, strict=True):
            assert our_item.keys() == their_item.keys()
            # items() shows the last of equal attributes; the trainer adds them all up.
            counts = Counter(name for name, _ in obvious(item))
            once = [name for name, n in counts.items() if n == 1]
            assert {n: our_item[n] for n in once} == {n: their_item[n] for n in once}


@given(sequence_lists, sequence_lists)
def test_rows_are_those_of_the_obvious_reader(train, test):
    features = DictFeatures()
    packed = features.fit_transform(train)
    assert features.inverse_transform(packed) == [[summed(i) for i in s] for s in train]
    names = [name for s in train for item in s for name, _ in obvious(item)]
    assert list(features.vocabulary_) == list(dict.fromkeys(names))
    assert list(features.vocabulary_.values()) == list(range(packed.shape[1]))
    for _ in "ab":  # with remembered pairs, and with none after a pickle
        expected = [
            [{n: w for n, w in summed(i).items() if n in features.vocabulary_} for i in s]
            for s in test
        ]
        assert features.inverse_transform(features.transform(test)) == expected
        features = pickle.loads(pickle.dumps(features))


@given(sequence_lists, st.integers(2, 3))
def test_min_count_counts_rows_and_keeps_the_order(X, min_count):
    features = DictFeatures(min_count=min_count)
    packed = features.fit_transform(X)
    counts = Counter(name for s in X for item in s for name in summed(item))
    kept = [name for name, n in counts.items() if n >= min_count]
    assert list(features.vocabulary_) == kept
    expected = [[{n: w for n, w in summed(i).items() if n in kept} for i in s] for s in X]
    assert features.inverse_transform(packed) == expected
    assert features.inverse_transform(features.transform(X)) == expected


@pytest.mark.parametrize("n_other", [0, 1000])
def test_duplicates_add_up_in_short_and_long_items(n_other):
    others = {f"o{i}": 1 for i in range(n_other)}
    X = [[{"a": "b", "a:b": 2.0, **others, "a:": 1, b"a": {"b"}}, ["x", *others, "x"]]]
    features = DictFeatures()
    first, second = features.inverse_transform(features.fit_transform(X))[0]
    assert (first["a:b"], first["a:"], second["x"]) == (4.0, 1.0, 2.0)
    assert len(first) == n_other + 2
    assert features.inverse_transform(features.transform(X)) == [[first, second]]


@pytest.mark.parametrize("n_features", [None, 64])
@pytest.mark.parametrize("value", [1e300, -1e39, 10**60])
def test_values_beyond_float32_are_named_without_a_warning(tmp_path, n_features, value):
    features = DictFeatures(dtype="float32", n_features=n_features)
    model = make_pipeline(features, CRFTagger()).fit([[{"a": 1.0}, {"b": 2}]], [["p", "q"]])
    export(model, tmp_path / "model")
    X = [[{"a": 3.4e38}], [{"b": 1}, {"b": 0.5, "a": value}]]
    message = r"in float32, and row 1 of sequence 1 of X has -?1e\+\d+; scale it, or use"
    for predict in (model.predict, runtime.load(tmp_path / "model").predict, features.fit):
        with pytest.raises(ValueError, match=message):
            predict(X)
    assert np.isfinite(DictFeatures(n_features=n_features).fit_transform(X).rows.data).all()


KEYS = ["a", "b", "a:b", "", "é", "键", "bias", "w[-1]"]


def random_sequences(rng):
    """Items with up to 150 attributes, so that batches of look-ups end anywhere in a sequence."""

    def text():
        letters = rng.choice(list("ab:é键𝒳cdefgh"), size=rng.choice([0, 1, 2, 3, 5, 9, 20]))
        return "".join(letters)

    def value():
        kind = rng.integers(8)
        if kind == 0:
            return [True, 0, -3, 2**62, 10**20, 1.0, 0.25][rng.integers(7)]
        if kind == 1:
            return [np.float64(0.5), np.float32(2), np.int64(3), np.str_("b"), b"ab"][
                rng.integers(5)
            ]
        if kind == 2:
            return [[text(), text()], {text()}, {text(): text(), "n": 2}][rng.integers(3)]
        return text()

    def item():
        n = rng.choice([0, 1, 3, 10, 20, 70, 150])
        if rng.random() < 0.3:
            return [text() for _ in range(n)]
        some = [KEYS[rng.integers(len(KEYS))] if rng.random() < 0.6 else text() for _ in range(n)]
        return {key: value() for key in some}

    sizes = rng.choice([0, 1, 2, 8], size=rng.integers(1, 5))
    return [[item() for _ in range(n)] for n in sizes]


@pytest.mark.parametrize("seed", range(20))
def test_long_sequences_of_mixed_items(seed):
    rng = np.random.default_rng(seed)
    X, test = random_sequences(rng), random_sequences(rng)
    features = DictFeatures()
    read = features.inverse_transform(features.fit_transform(X))
    names = dict.fromkeys(name for s in X for item in s for name, _ in obvious(item))
    assert list(features.vocabulary_) == list(names)
    for sequences, found in (
        (X, read),
        (test, features.inverse_transform(features.transform(test))),
    ):
        for sequence, ours in zip(sequences, found, strict=True):
            for item, our_item in zip(sequence, ours, strict=True):
                expected = {n: w for n, w in summed(item).items() if n in names}
                assert our_item == pytest.approx(expected, rel=1e-12)


class Clears:
    """A number that, when it is read, empties the dict in which it is."""

    def __init__(self, item):
        self.item = item

    def __float__(self):
        self.item.clear()
        self.strings = [f"junk {i}" for i in range(1000)]  # takes the place of what was freed
        return 2.0


def test_an_item_may_change_while_it_is_read():
    item = {f"key {i}": f"value {i}" for i in range(9)}
    names = [f"{key}:{value}" for key, value in item.items()]
    item["n"] = Clears(item)
    features = DictFeatures()
    assert features.fit_transform([[item]]).rows.data.tolist() == [1.0] * 9 + [2.0]
    assert list(features.vocabulary_) == [*names, "n"]
    assert not item


def test_keys_that_are_gone_are_not_remembered():
    def items(s):  # strings that live for one sequence: later ones have their addresses
        for _ in "ab":
            yield {f"key {s}": 1, f"name {s}": "a"}

    X = [items(s) for s in range(300)]
    features = DictFeatures().fit(X)
    names = [name for s in range(300) for name in (f"key {s}", f"name {s}:a")]
    assert list(features.vocabulary_) == names


def test_pairs_that_make_the_same_string_are_one_attribute():
    X = [[{"a": "b:c"}, {"a:b": "c"}, ["a:b:c"], {"a": {"b": "c"}}, {"a": ["b:c"]}]]
    features = DictFeatures()
    assert features.fit_transform(X).rows.indices.tolist() == [0] * 5
    assert features.transform(X).rows.indices.tolist() == [0] * 5


def test_zero_weights_are_stored():
    rows = DictFeatures().fit_transform([[{"a": 0, "b": False}]]).rows
    assert rows.nnz == 2
    assert rows.sum() == 0


def test_other_mappings_and_iterables():
    X = [[MappingProxyType({"a": "b"}), ("c", "d"), (c for c in ["e"]), frozenset(["f"]), {}, []]]
    features = DictFeatures()
    packed = features.fit_transform([tuple(X[0])])
    assert packed.rows.nnz == 5
    assert list(features.vocabulary_) == ["a:b", "c", "d", "e", "f"]


def test_string_subclasses_count_as_their_text():
    X = [[{np.str_("a"): np.str_("b")}, [np.str_("a:b")], ["a:b"]]]
    features = DictFeatures().fit(X)
    assert features.vocabulary_ == {"a:b": 0}
    assert {type(name) for name in features.vocabulary_} == {str}


def test_ones_and_other_weights():
    assert not DictFeatures().fit_transform([[{"a": "b"}]]).rows.data.flags.writeable
    rows = DictFeatures(dtype=np.float32).fit_transform([[{"a": "b", "c": 0.5}]]).rows
    assert rows.dtype == np.float32
    assert rows.data.tolist() == [1.0, 0.5]


def test_empty_sequences_and_empty_transform():
    features = DictFeatures()
    packed = features.fit_transform([[], [["a"]], []])
    assert packed.lengths.tolist() == [0, 1, 0]
    assert features.transform([]).shape == (0, 1)
    assert DictFeatures().fit_transform([[], []]).shape == (2, 0)


def columns_as_dicts(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    return [
        [{"w": f"w{i}", "p": f"p{i % 7}", "n": float(i)} for i in rng.integers(500, size=20)]
        for _ in range(n_rows // 20)
    ]


def test_pickle_clone_refit_and_plain_state():
    X = columns_as_dicts(2000)
    features = DictFeatures(min_count=2)
    expected = features.fit_transform(X).rows.toarray()
    copy = pickle.loads(pickle.dumps(features))
    state = {*features.get_params(), "vocabulary_", "n_features_out_", "_fitted_parameters"}
    assert set(vars(copy)) == state
    for other in (copy, features.fit(X[:5]).fit(X), clone(features).fit(X)):
        np.testing.assert_array_equal(other.transform(X).rows.toarray(), expected)


def test_unknown_attributes_are_not_remembered():
    features = DictFeatures().fit([[{"w": "a"}]])
    features.transform([[{"w": f"new{i}", "x": "y"} for i in range(100)]])
    assert features._table.names == ["w:a"]


def test_names_of_equal_hash_are_told_apart():
    # Thue and Morse's words: a polynomial hash modulo 2**64 cannot tell them apart.
    word = "a"
    for _ in range(11):
        word += word.translate(str.maketrans("ab", "ba"))
    other = word.translate(str.maketrans("ab", "ba"))
    features = DictFeatures()
    assert features.fit_transform([[[word, other], {word: other}]]).shape == (1, 3)
    assert features.transform([[[other], {other: word}]]).rows.indices.tolist() == [1]


@pytest.mark.parametrize(
    ("value", "other"),
    [
        ("đҍЦ", "ˏÌa"),
        ("#hTr", "j(f9"),
        ("keqyl", "onnoc"),
        ("qakevog", "vhqairg"),
        ("aaaaaaaavsbfco", "aaaaaaaakoinjj"),
        ("osyhaaaaaaaaaa", "ajluztaaaaaaaa"),
        ("hscnwqhetem", "meaxhgghcqy"),
    ],
)
def test_short_names_of_equal_hash_are_told_apart(value, other):
    # Found by search: in a small table, "a:" and these have equal tags and slots.
    features = DictFeatures()
    assert features.fit_transform([[{"a": value}, {"a": other}]]).shape == (1, 2)
    assert features.transform([[{"a": other}, {"a": value}]]).rows.indices.tolist() == [1, 0]
    assert DictFeatures().fit([[{"a": value}]]).transform([[{"a": other}]]).rows.nnz == 0


@pytest.mark.parametrize("letter", ["x", "é", "ж", "😀"])
def test_names_of_every_length_and_width_are_found_again(letter):
    values = [letter * n + end for n in range(20) for end in ("", "y", "ж")]
    X = [[{"k": value, "ключ": value} for value in values if value]]
    features = DictFeatures().fit(X)
    expected = [f"{key}:{value}" for item in X[0] for key, value in item.items()]
    assert list(features.vocabulary_) == list(dict.fromkeys(expected))
    found = features.transform(X).rows.indices
    assert [features.get_feature_names_out()[i] for i in found] == expected


def test_many_threads_at_once():
    X = columns_as_dicts(4000)
    features = DictFeatures()
    expected = features.fit_transform(X).rows.indices
    features = pickle.loads(pickle.dumps(features))  # each makes the table
    results = [None] * 8

    def work(i):
        results[i] = features.transform(X).rows.indices

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for indices in results:
        np.testing.assert_array_equal(indices, expected)


def test_same_attributes_as_template_features():
    rng = np.random.default_rng(0)
    tokens = [[f"t{i}" for i in rng.integers(30, size=n)] for n in rng.integers(1, 9, size=99)]
    templates = TemplateFeatures(["w[0]", "w[-1]"], bos_eos=False)
    expected = templates.fit_transform(tokens).rows
    names = templates.get_feature_names_out()
    items = [names[row.indices].tolist() for row in expected]
    assert DictFeatures().fit_transform([items]).rows.indices.tolist() == expected.indices.tolist()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([], "X holds no sequences"),
        ({"a": "b"}, "X must be a list of sequences; got dict. Wrap"),
        ("abc", "X must be a list of sequences; got str. Cut a text"),
        (3, "X must be a list of sequences; got int. Wrap"),
        (
            [{"a": "b"}],
            "Column 'a' of sequence 0 of X must be a list; got str. If X is one sequence of",
        ),
        ([[], "abc"], "Sequence 1 of X must be a list of items .* got str"),
        ([[], 3], "Sequence 1 of X must be a list of items .* got int"),
        ([["abc"]], "row 0 of sequence 0 of X, an item must be a dict .* got 'abc'"),
        ([[{}, None]], "row 1 of sequence 0 of X, an item must be a dict .* got None"),
        ([[{}, [1.5]]], r"row 1 of sequence 0 of X, an attribute must be a string.* got 1.5"),
        ([np.eye(2)], "Sequence 0 of X must be a list of items; got a matrix of numbers"),
        ([[], [{3: "a"}]], r"row 0 of sequence 1 of X, a key must be a string.* got 3 \(int\)"),
        ([[{"a": None}]], r"the value of 'a' must be a string, a number or .* got None"),
        ([[{"a": ("b",)}]], r"the value of 'a' must be a string, a number or .* got \('b',\)"),
        ([[{"a": {"b": None}}]], r"the value of 'a:b' must be .* got None"),
        ([[{"a": {"b": [2]}}]], r"an attribute must be a string.* got 2"),
        ([[{"a": 1j}]], "the value of 'a' must be a string, a number"),
        ([[], [{}, {"a": np.nan}]], "attribute 'a' in row 1 of sequence 1 of X is nan. Impute"),
        ([[{"a": {"b": -np.inf}}]], "attribute 'a:b' in row 0 of sequence 0 of X is -inf"),
        ([[{"a": 1, "b": 10**400}]], "attribute 'b' in row 0 of sequence 0 of X is inf. Impute"),
        ([[{"a": "b"}, {"c": 1}, {"d": None}, 3]], "In row 2 of sequence 0 of X, the value of 'd'"),
        ([[{"a": b"\xff"}]], r"a value must be a string, or bytes in UTF-8; got b'\\xff'"),
    ],
)
def test_data_errors(X, message):
    features = DictFeatures()
    with pytest.raises(ValueError, match=message):
        features.fit(X)
    assert not [name for name in vars(features) if name.endswith("_")]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"min_count": 0}, "min_count must be an integer of at least 1; got 0"),
        ({"dtype": "int32"}, "dtype must be float32 or float64; got 'int32'"),
    ],
)
def test_parameter_errors(parameters, message):
    with pytest.raises(ValueError, match=message):
        DictFeatures(**parameters).fit([[{"a": 1}]])


def test_inverse_transform_wants_its_own_features():
    features = DictFeatures().fit([[{"a": "b"}]])
    for X in (DictFeatures().fit_transform([[{"a": "b", "c": 1}]]), [[{"a": 1}]]):
        with pytest.raises(ValueError, match="X must be Sequences of 1 features, as transform"):
            features.inverse_transform(X)


def test_use_before_fit():
    for use in (lambda: DictFeatures().transform([[]]), DictFeatures().get_feature_names_out):
        with pytest.raises(NotFittedError):
            use()
    assert DictFeatures().receptive_field == (0, 0)


@pytest.mark.parametrize("min_count", [1, 2])
def test_extend_adds_attributes_after_those_known(min_count):
    features = DictFeatures(min_count=min_count).fit([[{"a": 1, "b": 1}, {"a": 1, "b": 2}]])
    before = features.transform([[{"b": 3}]])
    features.extend([[{"c": 1, "a": 1, "d": 1}], [{"d": 4}]])
    assert list(features.vocabulary_) == (
        ["a", "b", "c", "d"] if min_count == 1 else ["a", "b", "d"]
    )
    rows = features.transform([[{"b": 3, "d": 2}]]).rows.toarray()
    assert rows[0, :2].tolist() == before.rows.toarray()[0].tolist() == [0, 3]
    assert rows[0, -1] == 2
    assert features.n_features_out_ == rows.shape[1] == len(features.get_feature_names_out())
    hashed = DictFeatures(n_features=8).fit([[{"a": 1}]])
    assert hashed.extend([[{"c": 1}]]).n_features_out_ == 8


CHOICES = {
    "rule": lambda name: name[0] in "bd",
    "pattern": "^[bd]",
    "names": ["b:1", "d:0"],
    "numbers": [0, 2],
}


@pytest.mark.parametrize("kind", CHOICES)
@pytest.mark.parametrize("seed", range(5))
def test_roles_follow_the_attributes(kind, seed):
    """After any restrict and extend, each attribute has the role of its name."""
    rng = np.random.default_rng(seed)
    words = [f"{letter}:{k}" for letter in "abcdefg" for k in range(2)]
    items = [{word[0]: word[2]} for word in words]
    features = DictFeatures(transition_features=CHOICES[kind]).fit([items[:8]])
    first = features.get_feature_names_out()
    chosen = {"rule": "b:0 b:1 d:0 d:1", "pattern": "b:0 b:1 d:0 d:1", "names": "b:1 d:0"}
    chosen = set(chosen.get(kind, f"{first[0]} {first[2]}").split())
    for _ in range(6):
        if rng.random() < 0.5:
            support = rng.random(features.n_features_out_) < 0.7
            support[0] = True
            features.restrict(support)
            if kind == "numbers":  # those of fit; what comes back is a new attribute
                chosen &= set(features.vocabulary_)
        else:
            features.extend([[items[k] for k in rng.integers(0, len(items), 3)]])
        names = features.get_feature_names_out().tolist()
        assert features.roles_.tolist() == [3 if name in chosen else 1 for name in names]
        rows = features.transform([items])
        assert rows.roles.tolist() == features.roles_.tolist()
        assert rows.shape[1] == features.n_features_out_ == len(names)
        assert list(features.vocabulary_.values()) == list(range(len(names)))
        tokens = features.inverse_transform(rows)[0]
        assert [*map(list, tokens)] == [[name] if name in names else [] for name in words]

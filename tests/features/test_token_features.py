"""TokenFeatures and WindowFeatures: each against a slow version that builds names."""

import pickle
import string

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.pipeline import FeatureUnion, make_pipeline, make_union
from sklearn.preprocessing import StandardScaler

from sklseq import Sequences
from sklseq.features import (
    DictFeatures,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
    receptive_field,
)

# --- The slow version ---------------------------------------------------------------------------


def slow_shape(token):
    def letter(c):
        if c.isupper() or c.istitle():
            return "X"
        return "x" if c.isalpha() else "d" if c.isdigit() else c

    return "".join(letter(c) for c in token)


def slow_squeeze(text):
    return "".join(c for i, c in enumerate(text) if i == 0 or text[i - 1] != c)


def slow_length(token):
    n = len(token)
    return str(n) if n <= 4 else "5-6" if n <= 6 else "7-9" if n <= 9 else "10+"


SLOW_FLAGS = {
    "upper": str.isupper,
    "title": lambda t: t.istitle(),
    "digit": lambda t: t != "" and all(c.isdigit() for c in t),
    "alpha": lambda t: t != "" and all(c.isalpha() for c in t),
    "has_digit": lambda t: any(c.isdigit() for c in t),
    "has_hyphen": lambda t: t.count("-") > 0,
    "has_inner_upper": lambda t: t[1:].lower() != t[1:],
    "punct": lambda t: t != "" and all(not (c.isalnum() or c.isspace()) for c in t),
}


def slow_token(token, name="w"):
    if not token:
        return []
    pairs = [("word", token), ("lower", token.lower()), ("shape", slow_shape(token))]
    pairs.append(("short_shape", slow_squeeze(slow_shape(token))))
    pairs += [(f"prefix{n}", token[:n]) for n in (1, 2, 3)]
    pairs += [(f"suffix{n}", token[-n:]) for n in (1, 2, 3)]
    names = [f"{name}.{kind}={value}" for kind, value in pairs]
    names += [f"{name}.{flag}" for flag, has in SLOW_FLAGS.items() if has(token)]
    return [*names, f"{name}.length={slow_length(token)}"]


def slow_window(items, before, after, bos_eos=True):
    out = []
    for t in range(len(items)):
        row = []
        for d in range(-before, after + 1):
            if 0 <= t + d < len(items):
                row += [(f"{d:+d}:" if d else "") + name for name in items[t + d]]
        out.append(row)
    if bos_eos and out:
        out[0].append("__BOS__")
        out[-1].append("__EOS__")
    return out


def names_of(features, packed):
    """The attribute names of each row, sequence by sequence."""
    names, rows = features.get_feature_names_out(), packed.rows
    items = [names[rows.indices[a:b]].tolist() for a, b in zip(rows.indptr[:-1], rows.indptr[1:])]
    return [items[a:b] for a, b in zip(packed.offsets[:-1], packed.offsets[1:])]


def random_tokens(seed, n=30):
    rng = np.random.default_rng(seed)
    letters = np.array(list(string.ascii_letters + string.digits + "--..,'_ éßÉ中Ǆ٣²"))
    words = ["".join(rng.choice(letters, size=rng.integers(1, 12))) for _ in range(40)] + [""]
    return [rng.choice(words, size=rng.integers(0, 8)).tolist() for _ in range(n)]


# --- TokenFeatures ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_tokens_as_the_slow_version(seed):
    X = random_tokens(seed)
    features = TokenFeatures()
    packed = features.fit_transform(X)
    expected = [[slow_token(token) for token in x] for x in X]
    assert names_of(features, packed) == expected
    assert names_of(features, features.transform(X)) == expected
    assert (packed.rows.data == 1).all()


def test_every_letter():
    letters = [chr(c) for c in {*range(0x600), *range(0x1C00, 0x2200), *range(0, 0x110000, 997)}]
    X = [[c, f"a{c}", f"{c}A", f"1{c}-"] for c in letters]
    features = TokenFeatures()
    packed = features.fit_transform(X)
    expected = [[slow_token(token) for token in x] for x in X]
    assert names_of(features, packed) == expected
    assert names_of(features, features.transform(X[::7])) == expected[::7]


def test_digits_are_those_of_isdigit():
    features = TokenFeatures(**{**OFF, "flags": ["digit", "has_digit"]})
    got = names_of(features, features.fit_transform([["²", "m²", "①", "٣", "½", "4"]]))[0]
    both = ["w.digit", "w.has_digit"]
    assert got == [both, ["w.has_digit"], both, both, [], both]


def test_names_of_functions_and_kinds_may_be_equal():
    features = TokenFeatures(**{**OFF, "word": True}, functions={"word": str.upper})
    names = features.fit([["A", "b"]]).get_feature_names_out().tolist()
    assert names == ["w.word=A", "w.word=A (2)", "w.word=b", "w.word=B"]


def test_tables_are_those_of_the_fitted_values():
    X, new = random_tokens(0), random_tokens(1)
    features = TokenFeatures().fit(X)
    features.transform(X)
    features.fit(new)
    again = features.transform(new).rows.indices
    assert_array_equal(again, features.fit_transform(new).rows.indices)


def test_long_sequences():
    x = [token for x in random_tokens(0, 60) for token in x]
    assert len(x) > 100
    features = TokenFeatures()
    packed = features.fit_transform([x])
    assert names_of(features, packed) == [[slow_token(token) for token in x]]


def test_long_affixes_are_whole_tokens():
    features = TokenFeatures(prefixes=[10**30], suffixes=[10**30]).fit(random_tokens(0))
    word, *_ = features.values_
    assert [list(values) for values in features.values_[4:6]] == [list(word)] * 2


def test_attributes_are_numbered_by_first_occurrence():
    X = random_tokens(0)
    names = [name for x in X for token in x for name in slow_token(token)]
    assert TokenFeatures().fit(X).get_feature_names_out().tolist() == list(dict.fromkeys(names))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("min_count", [2, 5])
def test_unseen_and_rare_attributes_are_dropped(seed, min_count):
    X, new = random_tokens(seed), random_tokens(seed + 10)
    features = TokenFeatures(min_count=min_count)
    train = features.fit_transform(X)
    items = [[slow_token(token) for token in x] for x in X]
    flat = [name for x in items for item in x for name in item]
    known = {name for name in flat if flat.count(name) >= min_count}
    assert known
    assert set(features.get_feature_names_out()) == known
    for packed, sequences in ((train, X), (features.transform(new), new)):
        expected = [
            [[a for a in slow_token(token) if a in known] for token in x] for x in sequences
        ]
        assert names_of(features, packed) == expected


OFF = dict(word=False, lower=False, shape=False, short_shape=False, prefixes=0, suffixes=0,
           flags=False, length=False)  # fmt: skip


@pytest.mark.parametrize(
    ("switch", "expected"),
    [
        ({"word": True}, ["w.word=Ab-1"]),
        ({"lower": True}, ["w.lower=ab-1"]),
        ({"shape": True}, ["w.shape=Xx-d"]),
        ({"short_shape": True}, ["w.short_shape=Xx-d"]),
        ({"prefixes": 2}, ["w.prefix1=A", "w.prefix2=Ab"]),
        ({"prefixes": [3]}, ["w.prefix3=Ab-"]),
        ({"suffixes": (2, 9)}, ["w.suffix2=-1", "w.suffix9=Ab-1"]),
        ({"flags": ["has_digit", "upper"]}, ["w.has_digit"]),
        ({"length": True}, ["w.length=4"]),
    ],
)
def test_each_kind_is_switchable(switch, expected):
    features = TokenFeatures(**{**OFF, **switch})
    assert names_of(features, features.fit_transform([["Ab-1"]])) == [[expected]]


def test_own_functions():
    def vowels(token):
        return {c for c in "aeiou" if c in token}

    functions = {
        "first": lambda token: token[0],
        "long": lambda token: len(token) > 3,
        "parts": lambda token: {"head": token[:2], "dot": "." in token, "no": None},
    }
    features = TokenFeatures(**OFF, functions=functions)
    got = names_of(features, features.fit_transform([["a.b", "xyzzy"]]))[0]
    assert got[0] == ["w.first=a", "w.head=a.", "w.dot"]
    assert got[1] == ["w.first=x", "w.long", "w.head=xy"]
    named = TokenFeatures(**OFF, functions=[vowels])
    assert sorted(names_of(named, named.fit_transform([["aei"]]))[0][0]) == [
        "w.vowels=a",
        "w.vowels=e",
        "w.vowels=i",
    ]


def test_own_functions_are_called_once_a_distinct_token():
    calls = []
    X = [["a", "b", "a"], ["b", "a"]]
    TokenFeatures(**OFF, functions={"f": calls.append}).fit(X)  # append returns None
    assert sorted(calls) == ["a", "b"]


FORMS = {
    "columns": [{"w": ["A", "b"], "pos": ["X", "Y"]}, {"w": ["A"], "pos": ["Y"]}],
    "rows": [[("A", "X"), ("b", "Y")], [("A", "Y")]],
    "dicts": [[{"w": "A", "pos": "X"}, {"w": "b", "pos": "Y"}], [{"w": "A", "pos": "Y"}]],
}


@pytest.mark.parametrize("form", FORMS)
def test_columns_are_selected_by_name_or_position(form):
    names = ["c0", "c1"] if form == "rows" else ["w", "pos"]
    X = FORMS[form]
    both = TokenFeatures(**{**OFF, "word": True}, columns=names)
    expected = [
        [f"{names[0]}.word=A", f"{names[1]}.word=X"],
        [f"{names[0]}.word=b", f"{names[1]}.word=Y"],
    ]
    assert names_of(both, both.fit_transform(X))[0] == expected
    for column in (names[1], 1, -1, [1]):
        one = TokenFeatures(**{**OFF, "word": True}, columns=column)
        assert names_of(one, one.fit_transform(X)) == [
            [[f"{names[1]}.word=X"], [f"{names[1]}.word=Y"]],
            [[f"{names[1]}.word=Y"]],
        ]
    assert both.n_features_in_ == 2
    if form != "rows":
        assert both.feature_names_in_.tolist() == names


@pytest.mark.parametrize(
    ("parameters", "X", "message"),
    [
        ({"columns": "x"}, FORMS["columns"], r"columns of X, \['w', 'pos'\]; got 'x'"),
        ({"columns": 2}, FORMS["rows"], r"columns of X, \['c0', 'c1'\]; got 2"),
        ({"columns": []}, FORMS["rows"], "at least one column"),
        ({}, FORMS["rows"], r"TokenFeatures\(columns=\) must say which to read"),
        ({"columns": ["w", "w"]}, FORMS["columns"], r"different columns; got \['w', 'w'\]"),
        ({"columns": [0, "pos", -2]}, FORMS["columns"], "must hold different columns"),
        ({"prefixes": [1, 2, 1]}, [["a"]], "'prefix1' is given twice. Remove one"),
        ({"suffixes": [2, 2]}, [["a"]], "'suffix2' is given twice"),
        ({"flags": ["title", "title"]}, [["a"]], "'title' is given twice"),
        ({"prefixes": -1}, [["a"]], "prefixes must be an integer n .* got -1"),
        ({"suffixes": "abc"}, [["a"]], "suffixes must be .* got 'abc'"),
        ({"flags": ["loud"]}, [["a"]], "flags must be .* got 'loud'"),
        ({"min_count": 0}, [["a"]], "min_count must be an integer of at least 1; got 0"),
        ({"dtype": int}, [["a"]], "dtype must be float32 or float64"),
        ({"n_features": 1000}, [["a"]], "power of two .* got 1000"),
        ({"n_features": 8, "min_count": 2}, [["a"]], "keeps no vocabulary"),
        (OFF, [["a"]], "switch on at least one"),
        ({"functions": [3]}, [["a"]], "must be callables of a token"),
        ({"functions": [str.lower, str.lower]}, [["a"]], "different names; two are 'lower'"),
        ({"functions": {"n": len}}, [["abc"]], "for the token 'abc' it returned 3.*PerToken"),
        ({"functions": {"q": lambda t: t[2]}}, [["abc", "ab"]], "'q' fails for the token 'ab' "),
        ({}, [], "X holds no sequences"),
        ({}, [[3]], "Row 0 of sequence 0 of X must be a string"),
        (
            {},
            [["a", None]],
            r"strings; row 1 of sequence 0 is None \(NoneType\). Fill it or drop the row",
        ),
        ({}, ["abc"], "Sequence 0 of X must be a mapping of columns"),
    ],
)
def test_errors_of_tokens(parameters, X, message):
    features = TokenFeatures(**parameters)
    with pytest.raises(ValueError, match=message):
        features.fit(X)
    assert not hasattr(features, "n_features_out_")


def test_other_columns_than_in_training():
    features = TokenFeatures(columns=0).fit(FORMS["rows"])
    with pytest.raises(ValueError, match=r"X has 3 columns, but TokenFeatures was fitted on 2"):
        features.transform([[("a", "b", "c")]])
    features = TokenFeatures(columns="w").fit(FORMS["columns"])
    with pytest.raises(ValueError, match=r"Sequence 0 of X has no column 'w'"):
        features.transform([{"v": ["a"]}])
    template = TemplateFeatures(["c0[0]"]).fit(FORMS["rows"])
    with pytest.raises(ValueError, match=r"X has 1 columns, but TemplateFeatures was fitted on 2"):
        template.transform([[("a",)]])


# --- Hashing ------------------------------------------------------------------------------------


def slow_hash(name, n_features):
    """The polynomial hash of the module ``_hash``, letter by letter."""
    h = 0
    for letter in name:
        h = (h * 0x9E3779B97F4A7C15 + ord(letter)) % 2**64
    h = ((h ^ (h >> 32)) * 0xD6E8FEB86659FD93) % 2**64
    return (h ^ (h >> 32)) % n_features


COLUMNS = [{"w": x, "pos": [token[:1] for token in x]} for x in random_tokens(3)]
HASHABLE = {
    "token": (TokenFeatures(columns=["w", "pos"], functions={"f": lambda t: t[::2]}), COLUMNS),
    "template": (TemplateFeatures(["w[0]", "pos[-1]|w[0]|w[2]"], bias=True), COLUMNS),
    "mark": (TemplateFeatures(["w[-1]|w[0]", "U1:%x[1,1]"], boundary="mark"), COLUMNS),
    "dict": (DictFeatures(), [[{"a": t, "n": 2.0} for t in x] for x in random_tokens(5)]),
}


@pytest.mark.parametrize("n_features", [2, 1 << 10, 1 << 20])
@pytest.mark.parametrize("case", HASHABLE)
def test_hashing_puts_each_name_where_its_hash_says(case, n_features):
    features, X = HASHABLE[case]
    packed = features.fit_transform(X)
    where = [slow_hash(name, n_features) for name in features.get_feature_names_out()]
    to_hash = sparse.csr_matrix(
        (np.ones(len(where)), (range(len(where)), where)), shape=(len(where), n_features)
    )
    hashed = clone(features).set_params(n_features=n_features)
    got = hashed.fit_transform(X)
    assert got.shape == (len(X), n_features) == (len(X), hashed.n_features_out_)
    assert abs(got.rows - packed.rows @ to_hash).max() == 0
    assert abs(hashed.transform(X).rows - got.rows).max() == 0


@pytest.mark.parametrize("case", ["token", "template", "dict"])
def test_hashing_keeps_no_vocabulary_and_reads_what_it_never_saw(case):
    features, X = HASHABLE[case]
    features = clone(features).set_params(n_features=1 << 12)
    few, many = (clone(features).fit(x) for x in (X[:2], X))
    assert abs(few.transform(X).rows - many.transform(X).rows).max() == 0
    if case != "token":  # its function cannot be pickled
        assert len(pickle.dumps(few)) == len(pickle.dumps(many))
    assert few.get_feature_names_out()[:2].tolist() == ["#0", "#1"]


# --- WindowFeatures -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("before", "after"), [(0, 0), (1, 1), (2, 0), (0, 3)])
def test_windows_as_the_slow_version(seed, before, after):
    X = random_tokens(seed)
    features = WindowFeatures(TokenFeatures(), before=before, after=after)
    expected = [slow_window([slow_token(t) for t in x], before, after) for x in X]
    assert names_of(features, features.fit_transform(X)) == expected
    assert names_of(features, features.transform(X)) == expected


def test_a_window_keeps_the_values_of_its_extractor():
    X = [[{"a": 2.0, "b": 1.0}, {"a": 3.0}], [], [{"b": 0.5}]]
    rows = WindowFeatures(DictFeatures(), before=1, after=0, bias=True).fit_transform(X).rows
    expected = [[0, 0, 2, 1, 1, 0, 1], [2, 1, 3, 0, 0, 1, 1], [0, 0, 0, 0.5, 1, 1, 1]]
    assert_array_equal(rows.toarray(), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_and_sparse_windows_are_equal(dtype):
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 3)).astype(dtype) for n in (4, 0, 1, 2)]
    for parameters in ({}, {"before": 2, "after": 0, "bias": True, "bos_eos": False}):
        window = WindowFeatures(**parameters)
        dense = window.fit_transform(X).rows
        from_sparse = window.fit_transform([sparse.csr_matrix(x) for x in X]).rows
        assert isinstance(dense, np.ndarray)
        assert dense.dtype == from_sparse.dtype == dtype
        assert_array_equal(dense, from_sparse.toarray())
        packed = Sequences(np.concatenate(X), [0, 4, 4, 5, 7])
        assert_array_equal(window.transform(packed).rows, dense)
        assert window.get_feature_names_out(["a", "b", "c"])[0].endswith("a")


def slow_conjunctions(x, conjoin, kinds):
    """One list of names a token; ``kinds(token)`` lists (kind, name)."""
    rows = []
    for t in range(len(x)):
        row = []
        for parts in conjoin:
            joined = [""]
            for kind, d in parts:
                values = []
                if 0 <= t + d < len(x):
                    values = [name for k, name in kinds(x[t + d]) if k == kind]
                at = f"{d:+d}:" if d else ""
                joined = [f"{j}|{at}{v}" for j in joined for v in values]
            row += [j[1:] for j in joined]
        rows.append(row)
    return rows


CONJOIN = [
    (("w.lower", -1), "w.lower"),
    [("w.shape", 1), ("w.part", 0), ("w.suffix2", -2)],
    (("w.part", 0), ("w.part", 0)),
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("min_count", [1, 2])
def test_conjunctions_as_the_slow_version(seed, min_count):
    X, new = random_tokens(seed), random_tokens(seed + 10)[:10] + random_tokens(seed)[:5]
    tokens = TokenFeatures(functions={"part": lambda t: sorted(set(t[:3]))})
    features = WindowFeatures(tokens, conjoin=CONJOIN, min_count=min_count)

    def kinds(token):
        names = slow_token(token) + [f"w.part={c}" for c in sorted(set(token[:3]))]
        return [(name.split("=", 1)[0], name) for name in names]

    parsed = [[(p, 0) if isinstance(p, str) else p for p in c] for c in CONJOIN]
    train = [slow_conjunctions(x, parsed, kinds) for x in X]
    flat = [name for x in train for row in x for name in row]
    known = {name for name in flat if flat.count(name) >= min_count}
    assert known
    for packed, sequences in ((features.fit_transform(X), X), (features.transform(new), new)):
        got = names_of(features, packed)
        for x, rows in zip(sequences, got):
            for expected, row in zip(slow_conjunctions(x, parsed, kinds), rows):
                assert sorted(a for a in row if "|" in a) == sorted(
                    a for a in expected if a in known
                )


def test_conjunctions_as_text_and_hashed():
    X = random_tokens(1)
    text = WindowFeatures(TokenFeatures(), conjoin=["w.lower[-1]|w.lower"])
    pairs = WindowFeatures(TokenFeatures(), conjoin=[(("w.lower", -1), ("w.lower", 0))])
    assert abs(text.fit_transform(X).rows - pairs.fit_transform(X).rows).max() == 0
    hashed = clone(text).set_params(n_features=1 << 22)
    got = hashed.fit_transform(X)
    assert got.shape[1] == 1 << 22
    # So many columns that no two attributes share one: equal up to the order of columns.
    assert_array_equal(np.sort(_used(got.rows)), np.sort(_used(text.transform(X).rows)))
    assert abs(hashed.transform(X).rows - got.rows).max() == 0


def _used(rows):
    counts = np.bincount(rows.indices)
    return counts[counts > 0]


def test_rare_neighbours_are_dropped_and_own_attributes_kept():
    X = random_tokens(2)
    window = WindowFeatures(TokenFeatures(), min_count=3)
    packed = window.fit_transform(X)
    items = [slow_window([slow_token(t) for t in x], 1, 1) for x in X]
    flat = [name for x in items for row in x for name in row]
    own = lambda name: name[1:3] != "1:"  # noqa: E731
    known = {name for name in flat if own(name) or flat.count(name) >= 3}
    expected = [[[a for a in row if a in known] for row in x] for x in items]
    assert names_of(window, packed) == expected == names_of(window, window.transform(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"before": -1}, "before must be an integer from 0 to 1000; got -1"),
        ({"after": 1.5}, "after must be an integer from 0 to 1000; got 1.5"),
        ({"conjoin": ["w.lower"]}, "of two parts or more"),
        ({"conjoin": [3]}, "conjoin must be a list of conjunctions .* got 3"),
        ({"conjoin": ["w.lower[0]|w.loud[0]"]}, "the kind 'w.loud', but the extractor gives"),
        ({"n_features": 3}, "power of two"),
    ],
)
def test_errors_of_windows(parameters, message):
    window = WindowFeatures(TokenFeatures(), **parameters)
    with pytest.raises(ValueError, match=message):
        window.fit([["a", "b"]])
    assert not hasattr(window, "n_features_out_")


def test_errors_of_what_an_extractor_gives():
    rows = [np.ones((2, 2))]
    with pytest.raises(ValueError, match="dense rows"):
        WindowFeatures(conjoin=["a[0]|b[0]"]).fit(rows)
    with pytest.raises(ValueError, match="dense rows"):
        WindowFeatures(n_features=8).fit(rows)
    with pytest.raises(ValueError, match="X has 3 features, but WindowFeatures was fitted with 2"):
        WindowFeatures().fit(rows).transform([np.ones((2, 3))])
    with pytest.raises(ValueError, match="input_features must name 2 features; got 3"):
        WindowFeatures().fit(rows).get_feature_names_out(["a", "b", "c"])


# --- Composition --------------------------------------------------------------------------------


def test_receptive_fields_add_up():
    tokens = TokenFeatures(columns="w")
    assert receptive_field(tokens) == (0, 0)
    window = WindowFeatures(tokens, before=2, after=1)
    assert receptive_field(window) == (2, 1)
    assert receptive_field(make_pipeline(window, WindowFeatures(before=0, after=3))) == (3, 4)
    template = TemplateFeatures(["w[-4]", "w[0]"], bos_eos=False).fit(COLUMNS)
    assert receptive_field(make_union(window, template)) == (4, 1)
    assert receptive_field(WindowFeatures(make_union(window, template), bos_eos=False)) == (5, 2)
    assert receptive_field(WindowFeatures(tokens, conjoin=["a[-5]|a[2]"])) == (5, 2)
    assert receptive_field(WindowFeatures(tokens, before=0, after=0)) == (1, 1)
    scaled = make_pipeline(window, StandardScaler())
    with pytest.raises(ValueError, match=r"Scaler has no attribute receptive_field.*PerToken"):
        receptive_field(scaled)


@pytest.mark.parametrize("seed", range(2))
def test_rows_depend_on_nothing_outside_the_receptive_field(seed):
    X = [x for x in random_tokens(seed, 60) if len(x) == 7]
    assert X
    window = WindowFeatures(TokenFeatures(), before=1, after=2, conjoin=["w.word[-2]|w.word[0]"])
    before, after = receptive_field(window)
    rows = window.fit_transform(X)
    for s, x in enumerate(X):
        for t in range(before, len(x) - after):
            cut = window.transform([x[t - before : t + after + 1]])
            assert abs(cut.rows[before] - rows[s][t]).max() == 0


def test_a_union_of_columns_inside_a_window():
    words = TokenFeatures(**{**OFF, "lower": True, "suffixes": [2]}, columns="w")
    tags = TokenFeatures(**{**OFF, "word": True}, columns="pos")
    union = FeatureUnion([("w", words), ("pos", tags)], verbose_feature_names_out=False)
    window = WindowFeatures(union, conjoin=["pos.word[-1]|w.lower[0]"])
    got = names_of(window, window.fit_transform(FORMS["columns"]))
    assert got[1] == [["w.lower=a", "w.suffix2=A", "pos.word=Y", "__BOS__", "__EOS__"]]
    assert "-1:pos.word=X|w.lower=b" in got[0][1]


def test_pickles_hold_plain_state_and_transform_alike():
    X = random_tokens(0)
    window = WindowFeatures(TokenFeatures(), conjoin=["w.lower[-1]|w.lower[0]"], min_count=2)
    rows = window.fit_transform(X).rows
    again = pickle.loads(pickle.dumps(window))
    assert abs(again.transform(X).rows - rows).max() == 0
    assert again.get_feature_names_out().tolist() == window.get_feature_names_out().tolist()


@pytest.mark.parametrize("features", [TokenFeatures(), WindowFeatures(TokenFeatures())])
def test_empty_sequences_and_empty_data(features):
    rows = features.fit_transform([["a"], [], ["b"]])
    assert rows.lengths.tolist() == [1, 0, 1]
    for X in ([], [[]], [[], []]):
        assert features.transform(X).shape == (len(X), rows.shape[1])
    assert clone(features).fit_transform([[]]).n_rows == 0


def test_hashed_windows_have_names_by_number():
    rows = [sparse.csr_matrix(np.eye(3)[codes]) for codes in ([0, 1, 2, 0], [2, 1])]
    window = WindowFeatures(before=1, n_features=8).fit(rows)
    names = window.get_feature_names_out()
    assert len(names) == len(set(names)) == window.transform(rows).shape[1] == 8

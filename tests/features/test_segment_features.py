"""SegmentFeatures: what potentials say of a segment, summed up, is what is computed on it."""

import itertools
import pickle
import re
from collections import Counter
from functools import cache

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import FeatureUnion

import sklseq.features
from sklseq import SegmentPotentials
from sklseq.features import (
    PerToken,
    SegmentFeatures,
    TokenFeatures,
    WindowFeatures,
    count_active_potentials,
    receptive_field,
)
from sklseq.features._segment_parts import Tokens
from sklseq.features._similarity import closest_entries, jaro_winkler, make_index, normal_form
from sklseq.features._spans import distinct_rows, distinct_spans, kept_columns

WORDS = ["of", "the", "Of", "ACM", "acm,", "J.", "1999", "12-13", "-", "Jornal", "of."]
LEXICONS = {
    "venue": ["Journal of the ACM", "the ACM", "ACM 1999", "of the"],
    "mark": ["J.", "12-13 of"],
}


def random_tokens(seed, n=12, longest=7):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, longest + 1, size=n)
    return [rng.choice(WORDS, size=k).tolist() for k in lengths]


# --- The slow and obvious version --------------------------------------------------------------


def segment_features(features, tokens, i, j):
    """Name to value of the features of one segment, computed on it alone."""
    found = Counter()
    of_token = [plain_names(token) for token in tokens]

    def add(prefix, t, mark):
        if 0 <= t < len(tokens):
            found.update(prefix + name for name in of_token[t])
        elif mark:
            found[prefix + mark] += 1

    nth = ["", "", "2", "3", "4"]
    for k in range(1, features.start + 1):
        if i + k <= j:
            add(f"start{nth[k]}:", i + k - 1, None)
    for k in range(1, features.end + 1):
        if i + k <= j:
            add(f"end{nth[k]}:", j - k, None)
    for t in range(i, j) if features.inside else ():
        add("inside:", t, None)
    for k in range(1, features.before + 1):
        add(f"before{nth[k]}:", i - k, "__BOS__")
    for k in range(1, features.after + 1):
        add(f"after{nth[k]}:", j - 1 + k, "__EOS__")
    for k in range(2, features.first + 1):
        if i + k <= j:
            found[f"first{k}=" + " ".join(tokens[i : i + k]).lower()] += 1
    for k in features.last if isinstance(features.last, list) else ():
        if i + k <= j:
            found[f"last{k}=" + " ".join(tokens[j - k : j]).lower()] += 1
    for k in {*features.longer_than, *([features.max_length] if features.length else [])}:
        if j - i > k:
            found[f"length>{k}"] += 1
    if j - i <= features.max_length:
        found.update(exact_features(features, tokens[i:j]))
    return found


def exact_features(features, segment):
    found = Counter()
    if features.length:
        found[f"length={len(segment)}"] = 1
    if features.shape:
        runs = [(s, len(list(g))) for s, g in itertools.groupby(map(short_shape, segment))]
        found["shape=" + " ".join(s + "+" * (n > 1) for s, n in runs)] = 1
    for name, entries in (features.lexicons or {}).items():
        lowest = features.min_similarity
        for kind, value in similarities(tuple(entries), tuple(segment)).items():
            least = lowest.get(kind, 0.85) if isinstance(lowest, dict) else lowest
            if kind in features.similarities and value and value >= least:
                found[f"lexicon.{name}.{kind}"] = value
    for name, function in (features.functions or {}).items():
        value = function(segment)
        if isinstance(value, str):
            found[f"{name}={value}"] = 1
        elif value:
            found[name] = float(value)
    return found


@cache
def plain_names(token):
    plain = TokenFeatures()
    rows = plain.fit_transform([[token]]).rows
    return set(plain.get_feature_names_out()[rows.indices])


def short_shape(token):
    shape = "".join(
        "X" if c.isupper() else "x" if c.isalpha() else "d" if c.isdigit() else c for c in token
    )
    return re.sub(r"(.)\1+", r"\1", shape)


@cache
def similarities(entries, segment):
    """Over all entries: scikit-learn's cosine; Jaro-Winkler where the cosine is positive."""
    from rapidfuzz.distance import JaroWinkler

    forms = [[f for f in map(normal_form, e.split()) if f] for e in entries]
    own = [f for f in map(normal_form, segment) if f]
    words = sorted({w for form in [*forms, own] for w in form})
    tfidf = TfidfVectorizer(vocabulary=words, tokenizer=str.split, token_pattern=None)
    tfidf.fit([" ".join(form) for form in forms])
    texts = [" ".join(form) for form in forms]
    cosine = (tfidf.transform(texts) @ tfidf.transform([" ".join(own)]).T).toarray().ravel()
    jaro = [JaroWinkler.similarity(" ".join(own), t) for t, c in zip(texts, cosine) if c > 0]
    exact = float(bool(own) and own in forms)
    return {"tfidf": min(cosine.max(), 1.0), "jaro_winkler": max(jaro, default=0), "exact": exact}


def is_active(kind, u, v, i, j):
    return {0: u == i and v == j, 1: u == i and v <= j, 2: i <= u and v == j, 3: i <= u and v <= j}[
        kind
    ]


def sums(sequence, names, i, j):
    """Sum of the potentials that are active for [i, j)."""
    _, kinds, starts, stops, rows = sequence
    found = Counter()
    for kind, u, v, row in zip(kinds.tolist(), starts.tolist(), stops.tolist(), rows.toarray()):
        if is_active(kind, u, v, i, j):
            found.update({names[c]: row[c] for c in np.flatnonzero(row)})
    return found


def assert_equal_sums(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        # Additions in another order; the cosine's norm is updated from span to span.
        assert found[name] == pytest.approx(value, rel=1e-9, abs=1e-12), name


SETTINGS = {
    "default": {},
    "positions": dict(start=3, end=2, before=2, after=3, inside=False, max_length=3),
    "joined": dict(first=3, last=[1, 4], longer_than=[2, 5], length=False, start=0),
    "shape": dict(shape=True, max_length=4, before=0, after=0),
    "lexicons": dict(lexicons=LEXICONS, max_length=5, min_similarity=0.3, start=0),
    "thresholds": dict(lexicons=LEXICONS, max_length=3, start=0, min_similarity={"tfidf": 0.6},
                       similarities=["exact", "jaro_winkler", "tfidf"]),
    "functions": dict(
        functions={"n_digits": lambda s: sum(c.isdigit() for t in s for c in t) / 2,
                   "initial": lambda s: s[0][0], "is_mark": lambda s: s == ["-"]},
        max_length=3, inside=False,
    ),
    "all": dict(start=2, end=2, first=2, last=[2], shape=True, lexicons=LEXICONS, max_length=4,
                functions={"n": len}, longer_than=[1], similarities=("tfidf", "jaro_winkler")),
}  # fmt: skip


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", SETTINGS)
def test_potentials_add_up_to_the_features_of_each_segment(name, seed):
    X, new = random_tokens(seed), random_tokens(seed + 100, n=4)
    features = SegmentFeatures(n_candidates=9, **SETTINGS[name])
    out = features.fit_transform(X)
    names = features.get_feature_names_out()
    for tokens, sequence in zip(X, out):
        for i, j in itertools.combinations(range(len(tokens) + 1), 2):
            assert_equal_sums(sums(sequence, names, i, j), segment_features(features, tokens, i, j))
    known = set(names)
    for tokens, sequence in zip(new, features.transform(new)):
        for i, j in itertools.combinations(range(len(tokens) + 1), 2):
            expected = segment_features(features, tokens, i, j)
            expected = {n: v for n, v in expected.items() if n in known}
            assert_equal_sums(sums(sequence, names, i, j), expected)


# --- Numbers of active potentials --------------------------------------------------------------


@pytest.mark.parametrize("longest", [None, 1, 3, 50])
def test_active_potentials_are_those_counted_one_by_one(longest):
    X = random_tokens(3, n=8)
    features = SegmentFeatures(start=2, first=2, max_length=3)
    out = features.fit_transform(X)
    total = stored = 0
    for n, kinds, starts, stops, rows in out:
        widths = np.diff(rows.indptr)
        stored += widths.sum()
        for kind, u, v, width in zip(kinds, starts, stops, widths):
            segments = itertools.combinations(range(n + 1), 2)
            total += width * sum(
                is_active(kind, u, v, i, j) and j - i <= (longest or n) for i, j in segments
            )
    assert count_active_potentials(out, longest) == (total, stored)
    assert sklseq.features.count_firings is count_active_potentials  # the old name
    if longest is None:
        assert features.n_potentials_ == stored
        assert features.compression_ratio_ == total / stored > 1


def test_token_features_fire_as_often_however_long_segments_may_be():
    X = [["a"] * 50]
    features = SegmentFeatures(length=False)
    for n in (3, 30):
        assert features.set_params(max_length=n).fit(X).n_potentials_ == features.n_potentials_
    short = SegmentFeatures(length=False).fit([["a"] * 5])
    assert features.compression_ratio_ > 5 * short.compression_ratio_


def test_number_of_features_of_all_segments_of_a_long_document():
    n = 50_000
    features = SegmentFeatures(
        TokenFeatures(word=False, shape=False, short_shape=False, prefixes=0, suffixes=0,
                      flags=False, length=False),
        start=0, end=0, before=0, after=0, length=False,
    )  # fmt: skip
    features.fit([["a"] * n])
    # Token t of n is in (t + 1) (n - t) segments.
    assert features.compression_ratio_ == pytest.approx((n + 1) * (n + 2) / 6, rel=1e-12)


def test_functions_of_a_sequence_see_all_columns_and_the_context():
    X = [[("in", "P"), ("New", "N"), ("York", "N")], [("Delhi", "N")]]

    def tags(sequence, start, stop):
        before = sequence[start - 1][0] if start else "<"
        return f"{before}|" + "".join(tag for _, tag in sequence[start:stop])

    def n_after(sequence, start, stop, scale=0.5):
        return (len(sequence) - stop) * scale

    features = SegmentFeatures(
        start=0, end=0, inside=False, before=0, after=0, length=False, columns="c0", max_length=2,
        functions=[tags, n_after, len],
    )  # fmt: skip
    out = features.fit_transform(X)
    names = features.get_feature_names_out()
    for x, sequence in zip(X, out, strict=True):
        for i, j in itertools.combinations(range(len(x) + 1), 2):
            expected = {}
            if j - i <= 2:
                expected = {f"tags={tags(x, i, j)}": 1, "len": j - i, "n_after": n_after(x, i, j)}
            expected = {name: value for name, value in expected.items() if value}
            assert_equal_sums(sums(sequence, names, i, j), expected)
    assert features.transform([[]]).n_potentials == 0


def change(value):
    """Change the first string or number inside ``value`` in place."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        value[:] = 0
        return
    first = next(iter(value)) if isinstance(value, dict) else 0
    if hasattr(value, "columns"):
        value.iloc[0, 0] = "changed"
    elif isinstance(value[first], (str, float)):
        value[first] = "changed"
    else:
        change(value[first])


FORMS_OF_SEQUENCES = {
    "list": lambda: ["a", "b"],
    "dicts": lambda: [{"w": "a"}, {"w": "b"}],
    "lists": lambda: [["a", "x"], ["b", "x"]],
    "columns": lambda: {"w": ["a", "b"]},
    "objects": lambda: np.array(["a", "b"], dtype=object),
    "columns of objects": lambda: {"w": np.array(["a", "b"], dtype=object)},
    "numbers": lambda: {"x": np.array([1.0, 2.0]), "w": ["a", "b"]},
    "vectors": lambda: {"x": [np.ones(2), np.ones(2)], "w": ["a", "b"]},
    "table": lambda: pytest.importorskip("pandas").DataFrame({"w": ["a", "b"]}),
}


@pytest.mark.parametrize("form", FORMS_OF_SEQUENCES)
def test_a_function_cannot_change_the_sequences(form):
    X, seen = [FORMS_OF_SEQUENCES[form]()], []

    def rude(sequence, start, stop):
        seen.append(type(sequence))
        change(sequence)

    column = "c0" if form == "lists" else "w"
    features = SegmentFeatures(TokenFeatures(columns=column), columns=column, functions=[rude])
    if "objects" in form or form in ("numbers", "vectors"):
        with pytest.raises(ValueError, match=r"The function 'rude' fails .* read-only"):
            features.fit(X)
    else:
        features.fit(X)
    assert str(X[0]) == str(FORMS_OF_SEQUENCES[form]())
    assert set(seen) == {type(X[0])}


def test_a_function_cannot_change_the_segment_of_the_next():
    functions = {"rude": lambda segment: segment.sort(), "first": lambda segment: segment[0]}
    features = SegmentFeatures(functions=functions, max_length=2)
    out = features.fit_transform([["b", "a"]])
    assert sums(out[0], features.get_feature_names_out(), 0, 2)["first=b"] == 1


# --- Lexicons ----------------------------------------------------------------------------------


def lexicon_only(lexicon, **parameters):
    parameters = dict(min_similarity=0.0, similarities=["tfidf"], max_length=4) | parameters
    return SegmentFeatures(
        start=0, end=0, inside=False, before=0, after=0, length=False, lexicons={"x": lexicon},
        **parameters,
    )  # fmt: skip


def value_of(features, tokens, name):
    out = features.fit_transform([tokens])
    full = (out.start == 0) & (out.stop == len(tokens))
    names = features.get_feature_names_out().tolist()
    return out.rows[out.row[full]].toarray()[0, names.index(name)] if full.any() else 0.0


def test_case_and_marks_do_not_count():
    features = lexicon_only(["Journal of the ACM"], similarities=["tfidf", "jaro_winkler"])
    for text in ("journal of the acm", "(Journal Of The ACM),"):
        for kind in ("tfidf", "jaro_winkler"):
            assert value_of(features, text.split(), f"lexicon.x.{kind}") == pytest.approx(1)


def test_words_of_no_entry_count_against_a_match():
    features = lexicon_only(["Paris", "London"])
    one, two = (value_of(features, t, "lexicon.x.tfidf") for t in (["Paris"], ["Paris", "Smith"]))
    assert one == pytest.approx(1)
    assert 0.3 < two < 0.8


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_cosine_of_letters_is_that_of_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(list("abcd"), size=k)) for k in rng.integers(1, 7, size=30)]
    entries = sorted({" ".join(rng.choice(words, size=k)) for k in rng.integers(1, 4, size=20)})
    tokens = rng.choice(words, size=9).tolist()
    features = lexicon_only(entries, n_gram=3)
    out = features.fit_transform([tokens])
    grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3))
    of_spans = [" ".join(tokens[u:v]) for u, v in zip(out.start, out.stop)]
    grams.fit([*entries, *of_spans])  # all columns; then the weights of the entries alone
    grams = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 3), vocabulary=grams.vocabulary_)
    expected = (grams.fit(entries).transform(of_spans) @ grams.transform(entries).T).max(axis=1)
    # The norm of a span is updated from token to token.
    np.testing.assert_allclose(
        out.rows[out.row].toarray().ravel(), expected.toarray().ravel(), rtol=1e-9
    )
    assert out.n_potentials > 20


def test_letters_find_misspelt_entries():
    tokens, entries = ["Jornal", "of", "Algoritms"], ["Journal of Algorithms", "Physics Letters"]
    whole = lexicon_only(entries, similarities=["jaro_winkler"])
    letters = clone(whole).set_params(n_gram=3)
    assert value_of(whole, tokens[:1], "lexicon.x.jaro_winkler") == 0
    assert value_of(letters, tokens, "lexicon.x.jaro_winkler") > 0.95


@pytest.mark.parametrize("n_best", [1, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_closest_entries_have_the_highest_cosines(n_best, seed):
    rng = np.random.default_rng(seed)
    entries = sorted({" ".join(rng.choice(list("abcdefg"), size=k)) for k in (1, 2, 3, 4) * 20})
    index = make_index("x", entries, None)
    codes = rng.integers(0, 8, size=30).astype(np.int32)
    offsets = np.array([0, 11, 11, 30])
    cosine, best = closest_entries(index, list("abcdefgz"), codes, offsets, 5, None, n_best)
    vectorizer = TfidfVectorizer(token_pattern=r"\w", vocabulary=list("abcdefgz")).fit(entries)
    every = vectorizer.transform(entries).toarray()
    for a, b in itertools.pairwise(offsets):
        for t, u in itertools.combinations(range(a, b + 1), 2):
            if u - t > 5:
                continue
            span = vectorizer.transform([" ".join("abcdefgz"[c] for c in codes[t:u])]).toarray()
            exact = (every @ span.T).ravel()
            # The span's norm is updated from token to token.
            assert cosine[t, u - t - 1] == pytest.approx(exact.max(), rel=1e-9, abs=1e-12)
            found = best[t, u - t - 1]
            assert (found >= 0).sum() == min(n_best, (exact > 0).sum())
            found = found[found >= 0]
            assert len(set(found.tolist())) == len(found)
            np.testing.assert_allclose(
                np.sort(exact[found]), np.sort(exact)[len(exact) - len(found) :], rtol=1e-9
            )


def test_one_entry_of_many_is_found():
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), size=5)) for _ in range(2000)]
    entries = [" ".join(three) for three in rng.choice(words, size=(20_000, 3))]
    features = lexicon_only(entries, similarities=["tfidf", "jaro_winkler"])
    asked = [entry.split() for entry in (entries[0], entries[-1], entries[777])]
    out = features.fit_transform(asked)
    names = features.get_feature_names_out().tolist()
    whole = out.rows[out.row[(out.start == 0) & (out.stop == 3)]].toarray()
    for kind in ("tfidf", "jaro_winkler"):
        found = whole[:, names.index(f"lexicon.x.{kind}")]
        np.testing.assert_allclose(found, np.ones(len(asked)))


def test_lexicons_are_read_from_files_and_kept(tmp_path):
    path = tmp_path / "venue.txt"
    path.write_text("\n".join(LEXICONS["venue"]))
    X = random_tokens(5)
    from_file = SegmentFeatures(lexicons=[path]).fit(X)
    path.unlink()
    from_list = SegmentFeatures(lexicons={"venue": LEXICONS["venue"]}).fit(X)
    assert_same(from_file.transform(X), from_list.transform(X))
    assert from_file.get_feature_names_out()[-1] == "lexicon.venue.jaro_winkler"


# --- As an extractor ---------------------------------------------------------------------------


def assert_same(a, b):
    for name in ("lengths", "offsets", "kind", "start", "stop"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert abs(a.rows[a.row] - b.rows[b.row]).max() == 0


def test_rare_features_are_dropped():
    X = random_tokens(1)
    every, some = SegmentFeatures(), SegmentFeatures(min_count=4)
    all_rows, rows = every.fit_transform(X), some.fit_transform(X)
    counts = np.asarray((all_rows.rows[all_rows.row] != 0).sum(axis=0)).ravel()
    names = every.get_feature_names_out()
    assert some.get_feature_names_out().tolist() == names[counts >= 4].tolist()
    assert 0 < len(some.get_feature_names_out()) < len(names)
    assert rows.rows[rows.row].sum() == counts[counts >= 4].sum()


@pytest.mark.parametrize(("n_tokens", "least"), [(49, 1), (50, 2), (2_000, 2), (2_001, 1)])
def test_by_default_the_number_of_tokens_decides_whether_rare_features_are_dropped(n_tokens, least):
    rng = np.random.default_rng(n_tokens)
    words = [f"w{k}" for k in rng.zipf(1.5, n_tokens)]
    X = [words[:30], words[30:]]
    by_default = SegmentFeatures().fit(X).get_feature_names_out().tolist()
    assert by_default == SegmentFeatures(min_count=least).fit(X).get_feature_names_out().tolist()
    assert (
        by_default != SegmentFeatures(min_count=3 - least).fit(X).get_feature_names_out().tolist()
    )


def test_rows_are_stored_once():
    out = SegmentFeatures(max_length=3).fit_transform([["a", "b"] * 50] * 3)
    assert out.n_potentials > 2000
    assert out.rows.shape[0] < 30


@pytest.mark.parametrize(
    "extractor",
    [WindowFeatures(TokenFeatures(), before=1, after=1), PerToken(lambda t: [len(t), 1.5])],
    ids=["window", "numbers"],
)
def test_any_extractor_serves(extractor):
    X = random_tokens(2)
    features = SegmentFeatures(extractor, start=0, end=0, before=0, after=0, length=False)
    out = features.fit_transform(X)
    rows = clone(extractor).fit_transform(X).rows
    bias = features.get_feature_names_out() == "inside:bias"
    of_tokens = out.rows[out.row][:, ~bias]
    assert abs(sparse.csr_matrix(rows) - of_tokens[of_tokens.getnnz(axis=1) > 0]).max() == 0
    assert (out.kind == 3).all()


def test_frames_of_numbers_need_no_words():
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 2)) for n in (4, 1, 3)]
    features = SegmentFeatures(PerToken(), before=0, after=0, max_length=2)
    out = features.fit_transform(X)
    assert features.n_features_in_ == 2
    names = features.get_feature_names_out().tolist()
    assert names[:6] == ["start:x0", "start:x1", "end:x0", "end:x1", "inside:x0", "inside:x1"]
    found = sums(out[0], names, 1, 4)
    assert found["inside:x1"] == pytest.approx(X[0][1:, 1].sum())
    assert found["end:x0"] == X[0][3, 0]
    assert found["length>2"] == 1


def test_one_of_several_columns_gives_the_words():
    X = [{"w": ["New", "York"], "pos": ["A", "N"]}]
    features = SegmentFeatures(TokenFeatures(columns="pos"), first=2, columns="w").fit(X)
    names = features.get_feature_names_out()
    assert "first2=new york" in names
    assert "start:pos.word=A" in names
    with pytest.raises(ValueError, match=r"SegmentFeatures\(columns=\) must say which to read"):
        SegmentFeatures(TokenFeatures(columns="pos"), first=2).fit(X)


def test_no_features_of_tokens_at_all():
    features = SegmentFeatures(start=0, end=0, inside=False, before=0, after=0, max_length=2)
    out = features.fit_transform([["a", "b"], []])
    assert features.get_feature_names_out().tolist() == ["length=1", "length=2"]
    assert out.n_potentials == 3
    assert features.extractor_ is None


def test_unions_slices_and_pickles():
    X = random_tokens(4)
    union = FeatureUnion([("tokens", SegmentFeatures()), ("shape", SegmentFeatures(shape=True))])
    both = union.fit_transform(X)
    assert isinstance(both, SegmentPotentials)
    assert both.shape[1] == len(union.get_feature_names_out())
    train, test = train_test_split(both, random_state=0)
    assert len(train) + len(test) == len(X)
    features = SegmentFeatures(lexicons=LEXICONS).fit(X)
    assert_same(pickle.loads(pickle.dumps(features)).transform(X), features.transform(X))


def test_receptive_field_is_what_a_potential_looks_at():
    window = WindowFeatures(TokenFeatures(), before=2, after=1)
    assert receptive_field(SegmentFeatures(window, before=1, after=3).fit([["a"]])) == (3, 4)


# --- Helpers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_distinct_spans_are_those_of_a_dict(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 6, size=10)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    codes = rng.integers(0, 3, size=offsets[-1]).astype(np.int32)
    for spans in distinct_spans(codes, offsets, 4):
        places = [t for a, b in itertools.pairwise(offsets) for t in range(a, b - spans.length + 1)]
        assert spans.at.tolist() == places
        texts = [tuple(codes[t : t + spans.length]) for t in places]
        assert len(set(zip(texts, spans.number))) == len(set(texts)) == len(spans.example)
        assert [tuple(codes[t : t + spans.length]) for t in spans.example[spans.number]] == texts


def test_distinct_rows_are_distinct_and_the_same():
    rng = np.random.default_rng(0)
    rows = sparse.csr_matrix(rng.integers(0, 2, size=(200, 4)) * 1.5)
    distinct, number = distinct_rows(rows)
    assert distinct.shape[0] == len({tuple(r) for r in rows.toarray()}) == 16
    assert abs(distinct[number] - rows).max() == 0
    # Equal hashes, another order of columns: nothing is shared, and nothing is wrong.
    mixed = sparse.csr_matrix(([1.0, 2, 2, 1], [0, 1, 1, 0], [0, 2, 4]), shape=(2, 2))
    distinct, number = distinct_rows(mixed)
    assert number.tolist() == [0, 1]
    assert abs(distinct - mixed).max() == 0


def test_empty_sequences_only():
    tokens = Tokens(np.array([0, 0]), sparse.csr_matrix((0, 2)), [], np.zeros(0, np.int32))
    assert tokens.distinct[0].shape == (1, 3)
    out = SegmentFeatures(first=2, shape=True, lexicons=LEXICONS).fit_transform([[], []])
    assert out.n_potentials == 0
    assert len(out) == 2


# --- Errors ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (dict(start=-1), r"start must be an integer from 0 to 1000; got -1"),
        (dict(after=1.5), r"after must be an integer from 0 to 1000; got 1.5"),
        (dict(max_length=0), r"max_length must be an integer from 1 to 1000; got 0"),
        (dict(longer_than=[0]), r"longer_than must be a list of integers of at least 1; got \[0\]"),
        (dict(first="a"), r"first must be an integer n"),
        (dict(similarities="cosine"), r"similarities must be some of .*; got 'cosine'"),
        (dict(similarities=[]), r"similarities must be some of"),
        (dict(min_similarity=2), r"min_similarity must be from 0 to 1; got 2"),
        (dict(min_similarity={"tfidf": "a"}), r"min_similarity must be from 0 to 1; got 'a'"),
        (
            dict(min_similarity={"exact": 1}),
            r"min_similarity must name some of the similarities \['tfidf', 'jaro_winkler'\]; "
            r"got 'exact'",
        ),
        (dict(n_gram=1), r"n_gram must be None or an integer of at least 2; got 1"),
        (dict(lexicons={}), r"lexicons must be a dict .* not empty"),
        (dict(lexicons={"city": []}), r"The lexicon 'city' is empty"),
        (dict(lexicons={"city": ["--", "."]}), r"The lexicon 'city' is empty"),
        (dict(lexicons={"city": [3]}), r"must be strings or lists of strings; 'city' holds 3"),
        (dict(lexicons={"city": "no/such/file"}), r"'no/such/file', which does not exist"),
        (dict(functions=[3]), r"functions must be callables of a segment"),
        (dict(functions={"f": lambda s: 1j}), r"The function 'f' must return .* segment \['a'\]"),
        (dict(functions={"f": lambda s: 10**400}), r"finite numbers .* segment \['a'\] .*10000"),
        (dict(functions={"f": lambda s: np.nan}), r"finite numbers .* segment \['a'\] .*nan"),
        (dict(functions={"f": lambda s: np.float16(np.inf)}), r"finite numbers .* segment \['a'\]"),
        (
            dict(functions={"f": lambda s: np.float32(-np.inf)}),
            r"finite numbers .* segment \['a'\]",
        ),
        (
            dict(functions={"f": lambda s: np.ones((2, 2))}),
            r"The function 'f' must return .*\['a'\]",
        ),
        (dict(functions={"f": lambda s: [["x"]]}), r"The function 'f' must return .* \[\['x'\]\]"),
        (dict(min_count=0), r"min_count must be None or an integer of at least 1"),
        (dict(dtype=int), r"dtype must be"),
        (dict(start=0, end=0, inside=False, before=0, after=0, length=False), r"switched off"),
    ],
)
def test_errors_name_the_value(parameters, message):
    features = SegmentFeatures(**parameters)
    with pytest.raises(ValueError, match=message):
        features.fit([["a"]])
    with pytest.raises(NotFittedError):
        features.transform([["a"]])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
@pytest.mark.filterwarnings("error")
def test_functions_may_return_numbers_of_numpy(dtype):
    features = SegmentFeatures(functions={"f": lambda s: dtype(1.5)})
    assert features.fit([["a"]]).transform([["a"]]).rows.max() == 1.5


def test_an_extractor_of_something_else_is_named():
    class Table(TokenFeatures):
        def fit_transform(self, X, y=None):
            return np.ones((1, 1))

    with pytest.raises(ValueError, match="Table gave ndarray"):
        SegmentFeatures(Table()).fit([["a"]])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("lowest", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("letters", ["ab", "abcdefghij", "ab\u00e9\u4e2d\U00020000", "a"])
def test_jaro_winkler_is_that_of_another_library(seed, lowest, letters):
    """Spans of up to 200 characters, and entries that share some, all or no letters with them."""
    from rapidfuzz.distance import JaroWinkler

    rng = np.random.default_rng(seed)

    def words(n, most, of):
        return ["".join(rng.choice(list(of), rng.integers(1, most))) for _ in range(n)]

    entries = sorted(set(words(40, 30, letters) + words(10, 90, letters) + words(5, 9, "xyz")))
    tokens = [*words(12, 12, letters + "q"), "", *words(2, 70, letters), *entries[:3]]
    codes = rng.integers(len(tokens), size=30).astype(np.int32)
    index, longest = make_index("some", entries, None), 5
    offsets = np.array([0, 13, 13, 30])
    all_spans = list(distinct_spans(codes, offsets, longest))
    best = rng.integers(-1, len(entries), size=(30, longest, 4)).astype(np.int32)
    ours = jaro_winkler(index, tokens, codes, all_spans, best, lowest)
    by_code = ["".join(map(chr, index["alphabet"]))[n - 1] for n in index["characters"]]
    texts = ["".join(by_code[a:b]) for a, b in itertools.pairwise(index["ends"])]
    assert sorted(texts) == sorted(map(normal_form, entries))
    n_seen = 0
    for spans in all_spans:
        for t in spans.example:
            span = " ".join(filter(None, (tokens[c] for c in codes[t : t + spans.length])))
            near = [texts[e] for e in best[t, spans.length - 1] if e >= 0]
            expected = max((JaroWinkler.similarity(span, e) for e in near if span), default=0)
            expected = expected if expected >= lowest else 0
            assert_allclose(ours[t, spans.length - 1], expected, rtol=1e-14)
            n_seen += expected > 0
    assert n_seen > 20 or lowest > 0.5


def test_equal_texts_are_similar_at_the_highest_threshold():
    rng = np.random.default_rng(0)
    names = ["tfidf", "jaro_winkler", "exact"]
    for n_gram in (None, 3):
        entries = [
            " ".join(rng.choice(list("abcdefgh"), size=rng.integers(1, 6))) for _ in range(40)
        ]
        features = SegmentFeatures(
            TokenFeatures(), start=0, end=0, inside=False, before=0, after=0, length=False,
            lexicons={"c": entries}, similarities=names, min_similarity=1, max_length=5,
            n_gram=n_gram,
        )  # fmt: skip
        features.fit([entry.split() for entry in entries])
        for entry in entries:
            size, out = len(entry.split()), features.transform([entry.split()])
            whole = (out.start == 0) & (out.stop == size)
            assert (out.rows[out.row[whole]].toarray() == 1).all(axis=1).any()


@pytest.mark.parametrize("f", [lambda: 1, lambda a, b: 1, lambda a, b, c, d: 1])
def test_functions_of_other_numbers_of_arguments_are_refused(f):
    with pytest.raises(ValueError, match=r"functions must take one argument, .* or three, "):
        SegmentFeatures(functions={"f": f}).fit([["a", "b"]])


@pytest.mark.parametrize("f", [lambda span: span[5], lambda x, start, stop: x[5]])
def test_a_function_that_fails_is_named(f):
    with pytest.raises(ValueError, match=r"'q' fails for the segment .* with IndexError: ") as info:
        SegmentFeatures(functions={"q": f}).fit([["a", "b"]])
    assert isinstance(info.value.__cause__, IndexError)


def test_functions_may_return_booleans_of_numpy():
    X = [["a", "B"], ["c"]]
    rows = [
        SegmentFeatures(functions={"f": f}).fit_transform(X).rows.toarray()
        for f in (lambda segment: np.bool_(segment[0].islower()), lambda s: s[0].islower())
    ]
    assert_allclose(*rows)


@pytest.mark.parametrize("n_rows", [0, 1, 40])
@pytest.mark.parametrize("fraction", [0, 0.5, 1])
def test_kept_columns_are_those_of_an_index(n_rows, fraction):
    rng = np.random.default_rng(0)
    rows = sparse.csr_matrix(rng.random((n_rows, 600)) * (rng.random((n_rows, 600)) < 0.01))
    kept = np.flatnonzero(rng.random(600) < fraction)
    answer, expected = kept_columns(rows, kept), rows[:, kept]
    assert answer.shape == expected.shape
    assert (answer != expected).nnz == 0

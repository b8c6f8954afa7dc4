"""LexiconFeatures against a search through all entries at every token."""

import gzip
import pickle

import numpy as np
import pytest

from sklseq.features import LexiconFeatures, receptive_field


def slow_tags(x, entries):
    """("B", "I") of each token: longest entries from each start, those inside others left out."""
    spans = []
    for t in range(len(x)):
        longest = max((len(e) for e in entries if tuple(x[t : t + len(e)]) == e), default=0)
        if longest:
            spans.append((t, t + longest))
    kept = [
        (a, b)
        for a, b in spans
        if not any(c <= a and b <= d and (c, d) != (a, b) for c, d in spans)
    ]
    tags = [set() for _ in x]
    for a, b in kept:
        tags[a].add("B")
        for t in range(a + 1, b):
            tags[t].add("I")
    return tags


def tags_of(rows):
    return [{tag for tag, on in zip("BI", row) if on} for row in rows.toarray()]


@pytest.mark.parametrize("seed", range(6))
def test_as_the_slow_version(seed):
    rng = np.random.default_rng(seed)
    letters = list("abc")
    entries = {tuple(rng.choice(letters, size=rng.integers(1, 6))) for _ in range(12)}
    X = [rng.choice(letters + ["z"], size=rng.integers(0, 15)).tolist() for _ in range(50)]
    features = LexiconFeatures({"x": [list(e) for e in sorted(entries)]})
    rows = features.fit_transform(X)
    for packed in (rows, features.transform(X)):
        for x, got in zip(X, packed):
            assert tags_of(got) == slow_tags(x, entries)
    # Nothing outside the receptive field matters.
    before, after = receptive_field(features)
    for x, got in zip(X, rows):
        for t in range(len(x)):
            first = max(0, t - before)
            cut = features.transform([x[first : t + after + 1]]).rows
            assert abs(cut[t - first] - got[t]).max() == 0


def test_cases_columns_and_several_lexicons():
    X = [{"w": ["In", "NEW", "york"], "lemma": ["in", "New", "York"]}]
    lexicons = {"city": ["New York", "York"], "new": [["new"]]}
    features = LexiconFeatures(lexicons, columns=["w", "lemma"])
    names = features.fit(X).get_feature_names_out()
    assert names[[0, 3, 4]].tolist() == [
        "w.lexicon.city=B",
        "w.lexicon.new=I",
        "lemma.lexicon.city=B",
    ]
    rows = features.transform(X).rows.toarray().astype(bool)
    assert [names[row].tolist() for row in rows] == [
        [],
        ["w.lexicon.city=B", "w.lexicon.new=B", "lemma.lexicon.city=B", "lemma.lexicon.new=B"],
        ["w.lexicon.city=I", "lemma.lexicon.city=I"],
    ]
    exact = LexiconFeatures(lexicons, columns="w", case_sensitive=True)
    assert exact.fit_transform(X).rows.nnz == 0
    longer = LexiconFeatures(lexicons | {"new": ["new new"]}, columns="w", min_tokens=2)
    assert longer.fit_transform([{"w": ["York", "New", "York"]}]).rows.nnz == 2


@pytest.mark.parametrize("packed", [False, True])
def test_files_are_read_once(tmp_path, packed):
    text = "New York\n\nSão Paulo\n".encode()
    path = tmp_path / ("city.txt.gz" if packed else "city.txt")
    path.write_bytes(gzip.compress(text) if packed else text)
    for lexicons in ({"city": path}, [str(path)]):
        features = LexiconFeatures(lexicons).fit([["a"]])
        assert features.lexicons_ == ["city"]
        again = pickle.loads(pickle.dumps(features))
        path.rename(tmp_path / "gone")
        assert again.transform([["são", "paulo", "new"]]).rows.nnz == 2
        (tmp_path / "gone").rename(path)


def test_equal_lists_and_sets_give_equal_state():
    states = [
        pickle.dumps(LexiconFeatures({"x": kind(["b c", "a", "b"])}).fit([["a"]]).tries_)
        for kind in (set, sorted)
    ]
    assert states[0] == states[1]


@pytest.mark.parametrize(
    ("lexicons", "message"),
    [
        (None, "lexicons must be a dict .* got None"),
        ({}, r"not empty; got \{\}"),
        ({"x": []}, "The lexicon 'x' has no entry"),
        ({"x": [3]}, "'x' holds 3"),
        ({"x": 3}, "'x' must be a list of entries or a path; got int"),
        ({"x": "no such file"}, "'no such file', which does not exist"),
        (["Smith", "Jones"], r"'Smith', which does not exist; give .* in a dict such as \{'"),
        (["a/x.txt", "b/x.txt"], "must have different names"),
    ],
)
def test_errors(lexicons, message):
    features = LexiconFeatures(lexicons)
    with pytest.raises(ValueError, match=message):
        features.fit([["a"]])
    assert not hasattr(features, "n_features_out_")


def test_many_entries():
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(5000)])
    entries = [" ".join(rng.choice(words, size=rng.integers(1, 4))) for _ in range(20_000)]
    features = LexiconFeatures({"x": entries})
    X = [entry.split() for entry in entries[::100]]
    rows = features.fit_transform(X)
    assert all(got[0, 0] == 1 and got[:, 1].sum() == got.shape[0] - 1 for got in rows)


def test_empty_sequences():
    features = LexiconFeatures({"x": ["a"]}).fit([["a"], []])
    for X in ([], [[]], [[], ["a"]]):
        assert features.transform(X).shape == (len(X), 2)


@pytest.mark.parametrize("separator", ["\u2028", "\x85", "\x0c", "\x1e"])
def test_lines_of_a_file_end_at_line_feeds_only(tmp_path, separator):
    path = tmp_path / "names.txt"
    path.write_bytes(f"Anna{separator}Lee\r\nBerta\n".encode())
    features = LexiconFeatures({"name": path}).fit([["Anna"]])
    same = LexiconFeatures({"name": [f"Anna{separator}Lee", "Berta"]}).fit([["Anna"]])
    X = [["Anna", "Lee", "Berta"]]
    assert (features.transform(X).rows != same.transform(X).rows).nnz == 0

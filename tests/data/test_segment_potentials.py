"""SegmentPotentials: a ragged set that slices, pickles, joins by columns, and checks itself."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.model_selection import KFold, train_test_split
from sklearn.pipeline import make_union
from sklearn.preprocessing import FunctionTransformer

from sklseq import SegmentPotentials, Sequences
from sklseq.data.segment_potentials import EXACT, OPEN_BOTH, OPEN_END, OPEN_START


def random_potentials(rng, lengths=(3, 0, 5, 1), n=6, n_features=4):
    parts = []
    for T in lengths:
        k = n if T else 0
        start = rng.integers(0, max(T, 1), k)
        stop = start + 1 + rng.integers(0, np.maximum(T - start, 1))
        parts.append((T, rng.integers(0, 4, k), start, stop, rng.normal(size=(k, n_features))))
    return SegmentPotentials.from_list(parts, feature_names=[f"f{i}" for i in range(n_features)])


def same(a, b):
    return all(
        x.n_steps == y.n_steps
        and all(np.array_equal(x[k], y[k]) for k in (1, 2, 3))
        and np.array_equal(x.rows.toarray(), y.rows.toarray())
        for x, y in zip(a, b, strict=True)
    )


@pytest.fixture
def X():
    return random_potentials(np.random.default_rng(0))


def test_slices_like_a_list(X):
    parts = list(X)
    assert len(X) == 4
    assert X.shape == (4, 4)
    assert X.n_steps == 9
    assert X.n_potentials == 18
    assert same(X[1:3], parts[1:3])
    assert same(X[::-1], parts[::-1])
    assert same(X[[2, 0, 2]], [parts[2], parts[0], parts[2]])
    assert same(X[np.array([True, False, True, False])], [parts[0], parts[2]])
    assert same(X[[]], [])
    assert same([X[-1]], parts[-1:])
    assert X[[0]].rows.shape[0] == 6  # what the others had is gone
    assert list(X[[0]].feature_names) == ["f0", "f1", "f2", "f3"]
    for bad in ([4], [[0]], [0.5], [True]):
        with pytest.raises(IndexError):
            X[bad]
    with pytest.raises(IndexError, match="by sequence only"):
        X[0, 1]


def test_round_trips(X):
    assert same(SegmentPotentials.from_list(X), X)
    assert same(pickle.loads(pickle.dumps(X)), X)
    a, b = train_test_split(X, test_size=0.5, random_state=0)
    assert len(a) == len(b) == 2
    assert sum(len(X[test]) for _, test in KFold(2).split(X)) == 4


def test_feature_union_joins_columns(X):
    union = make_union(FunctionTransformer(), FunctionTransformer(lambda x: x[:]))
    joined = union.fit_transform(X)
    assert joined.shape == (4, 8)
    assert joined.n_potentials == 36
    for one, two in zip(X, joined, strict=True):
        assert np.array_equal(two.start, np.tile(one.start, 2))
        assert np.array_equal(two.rows.toarray(), sparse.block_diag([one.rows, one.rows]).toarray())
    with pytest.raises(ValueError, match="block 1 differs from block 0"):
        np.hstack([X, X[:2]])


@pytest.mark.parametrize("kinds", [(), (7,), (0, -1), [3, 4], ("3",)])
def test_kinds_of_tokens_are_checked(kinds):
    with pytest.raises(ValueError, match="kinds must be some of the numbers 0 to 3; got"):
        SegmentPotentials.from_tokens(Sequences(np.eye(2), [0, 2]), kinds=kinds)


def test_tokens_of_each_kind():
    tokens = Sequences(np.arange(10.0).reshape(5, 2), [0, 2, 2, 5])
    X = SegmentPotentials.from_tokens(tokens, kinds=(EXACT, OPEN_END, OPEN_START, OPEN_BOTH))
    assert X.shape == (3, 8)
    assert X.lengths.tolist() == [2, 0, 3]
    last = X[2]
    assert last.kind.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert last.start.tolist() == [0, 1, 2] * 4
    assert (last.stop == last.start + 1).all()
    dense = last.rows.toarray()
    for k in range(4):
        assert np.array_equal(dense[3 * k : 3 * k + 3, 2 * k : 2 * k + 2], tokens.rows[2:])
        dense[3 * k : 3 * k + 3, 2 * k : 2 * k + 2] = 0
    assert not dense.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": [0, 4]}, "Potential 0 of sequence 1 has kind 4; kinds are 0"),
        (
            {"start": [0, 2]},
            "Potential 0 of sequence 1 has start 2 and stop 2; spans are half-open",
        ),
        ({"stop": [4, 2]}, r"Potential 0 of sequence 0 spans \[0, 4\), outside the sequence's 3"),
        ({"start": [-1, 0]}, r"Potential 0 of sequence 0 spans \[-1, 3\), outside"),
        ({"row": [0, 9]}, "Potential 0 of sequence 1 has row 9, but there are 2 rows"),
        ({"kind": [0]}, "one entry per potential; kind has 1, start 2"),
        ({"kind": [0.5, 1]}, "kind must hold integers; got 0.5 for number 0"),
        ({"offsets": [0, 2]}, "offsets must have one entry more than there are sequences"),
        ({"offsets": [0, 2, 1]}, "offsets must rise from 0"),
        ({"lengths": [3, -2]}, "lengths must not be negative; sequence 1 has length -2"),
        ({"rows": np.array([[1.0], [np.nan]])}, "Potential 0 of sequence 1 has a feature nan"),
        ({"rows": np.ones(2)}, "rows must be 2-D"),
        ({"rows": np.array([["a"], ["b"]])}, "rows must hold numbers"),
        ({"feature_names": ["a", "b"]}, "feature_names must have one name for each of 1"),
    ],
)
def test_messages(change, message):
    good = dict(
        lengths=[3, 2], offsets=[0, 1, 2], kind=[0, 3], start=[0, 0], stop=[3, 2],
        rows=np.ones((2, 1)),
    )  # fmt: skip
    SegmentPotentials(**good)
    with pytest.raises(ValueError, match=message):
        SegmentPotentials(**{**good, **change})


def test_widths_must_agree():
    with pytest.raises(ValueError, match="same number of features; got 2 and 1"):
        SegmentPotentials.from_list([(1, [0], [0], [1], [[1.0]]), (1, [0], [0], [1], [[1.0, 2.0]])])

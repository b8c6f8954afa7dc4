"""The packed container: slicing as scikit-learn does it, joining, pickling, and the door."""

import pickle

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.model_selection import KFold, train_test_split
from sklearn.pipeline import FeatureUnion
from sklearn.preprocessing import FunctionTransformer

from sklseq import CRFTagger, HMSVMTagger, Sequences, ZScoreTagger
from sklseq.data.sequences import as_sequences, read_form

LENGTHS = [3, 0, 1, 5, 2]


def dense_rows(X):
    rows = [x.toarray() if sparse.issparse(x) else x for x in X]
    return [np.asarray(x) for x in rows]


def make(form, seed=0):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 3, size=(sum(LENGTHS), 4)).astype(float)
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)])
    as_form = {"dense": np.asarray, "matrix": sparse.csr_matrix, "array": sparse.csr_array}
    return Sequences(as_form[form](rows), offsets), np.split(rows, offsets[1:-1])


FORMS = ["dense", "matrix", "array"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "key",
    [
        slice(None),
        slice(1, 4),
        slice(3, 1),
        slice(None, None, -1),
        slice(0, None, 2),
        [4, 0, 0, -2],
        [],
        np.array([True, False, True, True, False]),
        np.arange(5),
    ],
    ids=str,
)
def test_slicing_equals_slicing_the_list(form, key):
    X, blocks = make(form)
    expected = (
        [blocks[i] for i in np.arange(len(blocks))[np.array(key, dtype=int)]]
        if (isinstance(key, list) and not key)
        else [blocks[i] for i in np.arange(len(blocks))[key]]
    )
    for chosen in (X[key], X[key, ...], X[key, :]):
        assert isinstance(chosen, Sequences)
        assert chosen.offsets[0] == 0
        assert len(chosen) == len(expected)
        for got, want in zip(dense_rows(chosen), expected):
            assert_array_equal(got, want)


@pytest.mark.parametrize("form", FORMS)
def test_an_int_gives_one_sequence(form):
    X, blocks = make(form)
    for s in range(-5, 5):
        assert_array_equal(dense_rows([X[s]])[0], blocks[s])
    with pytest.raises(IndexError):
        X[5]


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.int16, np.uint64])
def test_indices_of_any_integer_type(kind):
    X = Sequences(np.arange(600.0).reshape(300, 2), np.arange(301))
    signed = np.issubdtype(kind, np.signedinteger)
    for key in ([0, 1], [120, 5, 5], *([[-1, 3]] if signed else [])):
        assert_array_equal(X[np.array(key, kind)].rows, X[key].rows)
    largest = np.iinfo(kind).max
    if largest >= 300:
        with pytest.raises(IndexError, match="out of range for 300 sequences"):
            X[np.array([0, largest], kind)]


def test_bad_keys_say_what_is_allowed():
    X, _ = make("dense")
    with pytest.raises(IndexError, match="out of range for 5 sequences"):
        X[[0, 7]]
    with pytest.raises(IndexError, match="A mask over 5 sequences must have that length"):
        X[np.array([True, False])]
    with pytest.raises(IndexError, match="indexed by int, slice, 1-D integer array or mask"):
        X[[0.5]]
    with pytest.raises(IndexError, match=r"select columns of \.rows"):
        X[0, 1]


@pytest.mark.parametrize("form", FORMS)
def test_scikit_learn_splits_it(form):
    X, blocks = make(form)
    train, test = train_test_split(X, test_size=2, random_state=0)
    assert isinstance(train, Sequences)
    assert (len(train), len(test)) == (3, 2)
    for _, chosen in KFold(5).split(X):
        assert_array_equal(dense_rows(X[chosen])[0], blocks[chosen[0]])


@pytest.mark.parametrize("form", FORMS)
def test_feature_union_joins_columns(form):
    X, blocks = make(form)

    def doubled(X):
        return X.with_rows(X.rows * 2)

    union = FeatureUnion([("once", FunctionTransformer()), ("twice", FunctionTransformer(doubled))])
    joined = union.fit_transform(X)
    assert isinstance(joined, Sequences)
    assert joined.shape == (5, 8)
    for got, want in zip(dense_rows(joined), blocks):
        assert_array_equal(got, np.hstack([want, 2 * want]))


def test_joining_refuses_other_sequences():
    X, _ = make("dense")
    with pytest.raises(ValueError, match="must hold the same sequences; block 1 differs"):
        np.hstack([X, X[:3]])


@pytest.mark.parametrize("form", FORMS)
def test_pickle_and_memory_map_round_trip(form, tmp_path):
    X, blocks = make(form)
    joblib.dump(X, tmp_path / "X.joblib")
    for again in (
        pickle.loads(pickle.dumps(X)),
        joblib.load(tmp_path / "X.joblib", mmap_mode="r"),
    ):
        for got, want in zip(dense_rows(again[::-1]), blocks[::-1]):
            assert_array_equal(got, want)


def test_spare_places_of_sparse_rows_are_not_saved(tmp_path):
    # SciPy allows indices and data to be longer than indptr says.
    for value in (1.0, 2.0):
        rows = sparse.csr_matrix(np.array([[0, value, 0], [value, 0, 0.0]]))
        rows.indices, rows.data = np.append(rows.indices, [7, 7]), np.append(rows.data, [9.0, 9.0])
        Sequences(rows, [0, 2]).save(tmp_path / "x.npz")
        found = Sequences.load(tmp_path / "x.npz").rows
        assert_array_equal(found.toarray(), [[0, value, 0], [value, 0, 0]])


def test_offsets_may_be_a_view_of_every_second_number():
    X, _ = chosen = Sequences(np.eye(6), np.array([0, 9, 2, 9, 6, 9])[::2]), [[0, 1], [1, 0, 1, 0]]
    assert CRFTagger().fit(*chosen).predict(X) == CRFTagger().fit(list(X), chosen[1]).predict(X)


def test_offsets_must_cut_the_rows():
    rows = np.zeros((4, 2))
    for offsets in ([0, 3], [1, 4], [0, 3, 2, 4]):
        with pytest.raises(ValueError, match=r"offsets must rise from 0 to the number of rows"):
            Sequences(rows, offsets)
    with pytest.raises(ValueError, match="1-D integer array"):
        Sequences(rows, [0.0, 4.0])
    with pytest.raises(ValueError, match="rows must be 2-D"):
        Sequences(np.zeros(4), [0, 4])


INPUTS = {
    "array": [np.ones((2, 3)), np.ones((1, 3))],
    "sparse": [sparse.csr_matrix(np.ones((2, 3))), sparse.csr_array(np.ones((1, 3)))],
    "dicts": [[{"a": 1.0}], [{"b": "x"}]],
    "attributes": [[["a", "b"], []], [{"c"}]],
    "empty": [[], []],
}


@pytest.mark.parametrize("form", INPUTS)
def test_read_forms_are_told_apart(form):
    assert read_form(INPUTS[form])[0] == form
    assert read_form(tuple(INPUTS[form]))[0] == form
    assert read_form([[], *INPUTS[form]])[0] == form


@pytest.mark.parametrize("form", ["array", "sparse"])
def test_numeric_lists_are_packed(form):
    X = as_sequences([INPUTS[form][0], INPUTS[form][1], []])
    assert_array_equal(X.lengths, [2, 1, 0])
    assert X.is_sparse == (form == "sparse")
    assert as_sequences(np.ones((2, 4, 3))).shape == (2, 3)
    assert as_sequences([np.ones((2, 3), dtype=np.float32)]).dtype == np.float32
    assert as_sequences([np.ones((2, 3), dtype=int)]).dtype == np.float64
    assert as_sequences([[[1, 2], [3, 4]]]).shape == (1, 2)


def test_one_array_is_not_copied_and_stays_as_it_is():
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 3
    before = X.copy()
    assert np.shares_memory(Sequences.from_list([X]).rows, X)
    for tagger in (CRFTagger(), HMSVMTagger(kernel="rbf"), ZScoreTagger(kernel="rbf")):
        found = tagger.fit([X], [y]).predict([before])
        assert_array_equal(X, before)
        X[:] = 0  # a model holds rows of its own
        assert_array_equal(tagger.predict([before])[0], found[0])
        X[:] = before


def test_bad_input_is_one_clear_sentence():
    with pytest.raises(ValueError, match=r"Wrap a single sequence in a list: \[X\]"):
        read_form(np.ones((2, 3)))
    with pytest.raises(ValueError, match=r"Wrap a single sequence in a list: \[X\]"):
        read_form(sparse.csr_matrix((2, 3)))
    with pytest.raises(ValueError, match="sequence 0 holds a 2-D array but sequence 1 holds feat"):
        read_form([np.ones((2, 3)), [{"a": 1}]])
    with pytest.raises(ValueError, match=r"Sequence 1 of X must be 2-D"):
        read_form([np.ones((2, 3)), np.ones(3)])
    with pytest.raises(ValueError, match="Turn raw tokens into features first"):
        read_form([["the", "cat"]])
    with pytest.raises(ValueError, match="sequence 1 has 2, the first has 3"):
        as_sequences([np.ones((2, 3)), np.ones((2, 2))])
    with pytest.raises(ValueError, match="vectorise them first with DictFeatures"):
        as_sequences(INPUTS["dicts"])
    with pytest.raises(ValueError, match="Sequence 0 of X is a masked array"):
        as_sequences(np.ma.masked_less(np.arange(12.0).reshape(2, 3, 2), 1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_located(form, value):
    X, blocks = make(form)
    rows = np.concatenate(blocks)
    rows[6, 1] = value
    as_form = {"dense": np.asarray, "matrix": sparse.csr_matrix, "array": sparse.csr_array}
    with pytest.raises(ValueError, match=f"row 2 of sequence 3 holds {value}"):
        as_sequences(Sequences(as_form[form](rows), X.offsets))
    large = Sequences(np.full((4, 2), 1e308), [0, 4])  # finite, though the sum overflows
    assert as_sequences(large) is large


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, "1e400"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_infinite_values_of_all_types_raise_the_error_alone(dtype, value):
    X = [np.ones((2, 3), dtype) for _ in range(2)]
    tagger = CRFTagger().fit(X, [["p", "q"]] * 2)
    with np.errstate(over="ignore"):
        X[1][1, 2], X[1][0, 0] = dtype(value), -dtype(value)
    for what in (tagger.predict, tagger.predict_proba, tagger.potentials, as_sequences):
        with pytest.raises(ValueError, match="X must be finite; row 0 of sequence 1 holds"):
            what(X)


def test_sequences_of_sparse_rows_join_in_blocks():
    left, right = (Sequences(sparse.csr_matrix(np.eye(2) * k), [0, 1, 2]) for k in (1, 2))
    both = np.concatenate([left, right], axis=1)
    assert both.rows.toarray().tolist() == [[1, 0, 2, 0], [0, 1, 0, 2]]
    with pytest.raises(TypeError):
        np.vstack([left, right])


@pytest.mark.parametrize(
    ("name", "kind", "found"),
    [
        ("codes", float, "codes of labels are float64, not integers"),
        ("codes", bool, "codes of labels are bool, not integers"),
        ("codes", "<U1", "codes of labels are <U1, not integers"),
        ("sklseq", 0, "holds no Sequences"),
        ("sklseq", -2, "holds no Sequences"),
    ],
)
def test_files_of_codes_or_versions_of_another_kind(tmp_path, name, kind, found):
    path = tmp_path / "rows.npz"
    Sequences(np.eye(2), [0, 2]).save(path, [["x", "y"]])
    arrays = dict(np.load(path))
    arrays[name] = np.array(kind) if isinstance(kind, int) else arrays[name].astype(kind)
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match=found):
        Sequences.load(path)

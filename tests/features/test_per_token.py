"""PerToken: the same as the transformer on all rows, for every kind of transformer."""

import pickle

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis as LDA
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.feature_extraction.text import (
    CountVectorizer,
    HashingVectorizer,
    TfidfTransformer,
    TfidfVectorizer,
)
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

from sklseq import CRFTagger, RowBlocks, Sequences
from sklseq.features import PerToken, TokenFeatures, WindowFeatures, receptive_field


def numeric(seed=0, kind="dense"):
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(n, 4)) for n in (3, 0, 5, 1)]
    y = [rng.choice(["a", "b"], size=len(x)).tolist() for x in X]
    if kind == "packed":
        return Sequences(np.concatenate(X), [0, 3, 3, 8, 9]), y
    return ([sparse.csr_matrix(x) for x in X] if kind == "sparse" else X), y


SEGMENTS = [[(0, 2, "a"), (2, 3, "b")], [], [(1, 3, "a")], []]
LABELS_OF_SEGMENTS = [list("aab"), [], list("OaaOO"), ["O"]]


@pytest.mark.parametrize("transformer", [StandardScaler(), SelectKBest(k=2), LDA(n_components=1)])
def test_segments_are_labels_of_their_rows(transformer):
    X, _ = numeric()
    got = PerToken(transformer).fit_transform(X, SEGMENTS)
    assert_allclose(got.rows, PerToken(transformer).fit_transform(X, LABELS_OF_SEGMENTS).rows)


@pytest.mark.parametrize("unknown", [None, float("nan"), {"a", "b"}, "segment"])
@pytest.mark.parametrize("transformer", [StandardScaler(), SelectKBest(k=2), LDA(n_components=1)])
def test_unknown_labels(transformer, unknown):
    """Scalers see all rows; what needs labels is fitted on the rows that have one."""
    X, _ = numeric()
    if unknown == "segment":
        y = [[(0, 2, None), (2, 3, "b")], *SEGMENTS[1:]]
    else:
        y = [[unknown, unknown, "b"], *LABELS_OF_SEGMENTS[1:]]
    rows, labels = np.concatenate(X), np.concatenate(LABELS_OF_SEGMENTS)
    alone = clone(transformer)
    if isinstance(transformer, StandardScaler):
        alone.fit(rows)
    else:
        alone.fit(rows[2:], labels[2:])
    got = PerToken(transformer).fit_transform(X, y)
    assert_allclose(got.rows, alone.transform(rows))


TOKENS = [["ab", "cd", "ab"], [], ["ef"]]
COLUMNS = [{"w": ["ab", "cd"], "pos": ["N", "V"]}, {"w": ["ab"], "pos": ["V"]}]


@pytest.mark.parametrize("kind", ["dense", "sparse", "packed"])
@pytest.mark.parametrize(
    "transformer",
    [StandardScaler(with_mean=False), PCA(2), TruncatedSVD(2), Nystroem(n_components=3),
     SelectKBest(k=2), MaxAbsScaler()],
    ids=lambda t: type(t).__name__,
)  # fmt: skip
def test_rows_are_those_of_the_transformer(transformer, kind):
    X, y = numeric(kind=kind)
    if hasattr(transformer, "random_state"):
        transformer.set_params(random_state=0)
    dense = np.concatenate(numeric()[0])
    rows = sparse.csr_matrix(dense) if kind == "sparse" else dense
    alone = clone(transformer)
    expected = alone.fit_transform(rows, np.concatenate(y))
    per_token = PerToken(transformer)
    for got in (per_token.fit_transform(X, y), per_token.transform(X)):
        assert got.lengths.tolist() == [3, 0, 5, 1]
        assert sparse.issparse(got.rows) == sparse.issparse(expected)
        assert_allclose(_dense(got.rows), _dense(expected), rtol=1e-9, atol=1e-12)
    names = per_token.get_feature_names_out(["p", "q", "r", "s"])
    assert len(names) == per_token.n_features_out_ == expected.shape[1]
    if isinstance(transformer, SelectKBest):
        assert set(names) <= {"p", "q", "r", "s"}
    assert not hasattr(transformer, "n_features_in_"), "the parameter was fitted"


def _dense(rows):
    return rows.toarray() if sparse.issparse(rows) else rows


@pytest.mark.parametrize("columns", [[0, 2], slice(0, 3, 2), [True, False, True, False], -1])
def test_columns_of_numbers(columns):
    X, _ = numeric()
    kept = {"slice(0, 3, 2)": [0, 2], "-1": [3]}.get(str(columns), [0, 2])
    per_token = PerToken(StandardScaler(), columns=columns)
    expected = StandardScaler().fit_transform(np.concatenate(X)[:, kept])
    assert_allclose(per_token.fit_transform(X).rows, expected)
    assert_allclose(per_token.transform(X).rows, expected)
    names = np.array(["p", "q", "r", "s"])
    assert per_token.get_feature_names_out(names).tolist() == names[kept].tolist()


def test_missing_values_may_be_imputed():
    X = [np.array([[1.0], [np.nan], [3.0]])]
    assert PerToken(SimpleImputer()).fit_transform(X).rows.ravel().tolist() == [1, 2, 3]


def test_a_vectorizer_gets_strings_and_an_encoder_columns():
    hashing = HashingVectorizer(analyzer="char", n_features=16, norm=None)
    got = PerToken(hashing, columns="w").fit_transform(COLUMNS)
    assert_array_equal(got.rows.toarray(), hashing.transform(["ab", "cd", "ab"]).toarray())
    encoder = PerToken(OneHotEncoder(handle_unknown="ignore"), columns=["w", "pos"])
    table = [["ab", "N"], ["cd", "V"], ["ab", "V"]]
    expected = OneHotEncoder().fit_transform(np.array(table, dtype=object)).toarray()
    assert_array_equal(encoder.fit_transform(COLUMNS).rows.toarray(), expected)
    assert_array_equal(encoder.transform(COLUMNS).rows.toarray(), expected)
    assert encoder.get_feature_names_out().tolist() == ["w_ab", "w_cd", "pos_N", "pos_V"]
    assert encoder.feature_names_in_.tolist() == ["w", "pos"]
    counts = PerToken(CountVectorizer(analyzer="char"), columns=0)
    counts.fit(TOKENS)
    assert counts.get_feature_names_out().tolist() == list("abcdef")
    assert counts.transform([["fa"], []]).rows.toarray().tolist() == [[1, 0, 0, 0, 0, 1]]


def test_embeddings_from_a_function_called_once_a_token():
    calls = []

    def embed(token):
        calls.append(token)
        return [len(token), ord(token[0])]

    per_token = PerToken(embed)
    rows = per_token.fit_transform(TOKENS).rows
    assert rows.tolist() == [[2, 97], [2, 99], [2, 97], [2, 101]]
    assert sorted(calls) == ["ab", "cd", "ef"]
    assert_array_equal(per_token.transform(TOKENS).rows, rows)
    assert len(calls) == 6
    assert per_token.get_feature_names_out().tolist() == ["embed0", "embed1"]
    norms = PerToken(np.linalg.norm).fit_transform(numeric()[0])
    assert_allclose(norms.rows[:, 0], np.linalg.norm(np.concatenate(numeric()[0]), axis=1))


@pytest.mark.parametrize("kind", ["dense", "csr"])
def test_a_function_may_reuse_its_array_and_change_its_argument(kind):
    X = [np.arange(6.0).reshape(3, 2), np.ones((1, 2))]
    rows = Sequences.from_list(X).with_rows(np.concatenate(X))
    if kind == "csr":
        rows = rows.with_rows(sparse.csr_matrix(rows.rows))
    buffer = np.empty(2)

    def double(row):
        buffer[:] = 2 * row
        row[:] = -1
        return buffer

    assert_array_equal(PerToken(double).fit_transform(rows).rows, 2 * np.concatenate(X))
    assert_array_equal(rows.rows.sum(), np.concatenate(X).sum())


def test_nothing_to_do():
    X, _ = numeric()
    per_token = PerToken(columns=[1]).fit(X)
    assert_array_equal(per_token.transform(X).rows, np.concatenate(X)[:, [1]])
    assert per_token.get_feature_names_out().tolist() == ["x1"]


@pytest.mark.parametrize(
    ("transformer", "X", "message"),
    [
        (PCA(2), [[], []], "at least one"),
        (len, [[]], "at least one"),
        (lambda token: "x", TOKENS, "vector of numbers; for 'ab' it gave"),
        (lambda token: [1] * ord(token[0]), TOKENS, r"one length; for 'cd' it has 99.*97"),
        (None, TOKENS, "hold strings; give a transformer"),
    ],
)
def test_errors(transformer, X, message):
    with pytest.raises(ValueError, match=message):
        PerToken(transformer).fit(X)


@pytest.mark.parametrize("columns", [[4], [True], [0.5], "w"])
def test_errors_of_columns(columns):
    with pytest.raises(ValueError, match="columns must be positions below 4"):
        PerToken(StandardScaler(), columns=columns).fit(numeric()[0])


class DropsRows(StandardScaler):
    def fit_transform(self, X, y=None):
        return super().fit_transform(X)[:-1]


def test_errors_of_shape():
    X, y = numeric()
    with pytest.raises(ValueError, match="cannot work per token"):
        PerToken(DropsRows()).fit(X)
    with pytest.raises(ValueError, match="X has 2 features, but PerToken was fitted with 4"):
        PerToken(PCA(1)).fit(X).transform([np.ones((2, 2))])
    with pytest.raises(ValueError, match="same number of sequences; got 4 in X and 1 in y"):
        PerToken(PCA(1)).fit(X, y[:1])
    with pytest.raises(ValueError, match="Sequence 2 has 5 rows in X but 4 labels in y"):
        PerToken(PCA(1)).fit(X, [*y[:2], y[2][:-1], y[3]])
    with pytest.raises(ValueError, match="input_features must name 4 features; got 2"):
        PerToken(PCA(1)).fit(X).get_feature_names_out(["a", "b"])


def test_composition():
    X, y = numeric()
    pipe = make_pipeline(PerToken(StandardScaler()), WindowFeatures(before=2, after=0), CRFTagger())
    assert receptive_field(pipe) == (2, 1)
    assert [len(p) for p in pipe.fit(X, y).predict(X)] == [3, 0, 5, 1]
    assert pipe[:-1].get_feature_names_out(["a", "b", "c", "d"])[0] == "-2:a"
    words = make_pipeline(TokenFeatures(), PerToken(TruncatedSVD(2)), CRFTagger())
    labels = [["a", "b", "a"], [], ["b"]]
    again = pickle.loads(pickle.dumps(words.fit(TOKENS, labels)))
    assert again.predict(TOKENS) == words.predict(TOKENS)


@pytest.mark.parametrize("X", [TOKENS, COLUMNS], ids=["tokens", "columns"])
def test_empty_sequences(X):
    per_token = PerToken(OneHotEncoder(handle_unknown="ignore")).fit(X)
    assert per_token.transform([]).shape == (0, per_token.n_features_out_)
    assert per_token.transform([[], []]).shape == (2, per_token.n_features_out_)


def test_tables_as_output_elsewhere_do_not_break_it():
    pytest.importorskip("pandas")
    with sklearn.config_context(transform_output="pandas"):
        rows = PerToken(StandardScaler()).fit_transform(numeric()[0]).rows
    assert isinstance(rows, np.ndarray)


VECTORIZERS = {
    "count": CountVectorizer(analyzer="char"),
    "tf-idf": TfidfVectorizer(analyzer="char", ngram_range=(1, 2)),
    "hashing": HashingVectorizer(analyzer="char", n_features=16),
}
COMPOSITIONS = {
    "alone": lambda v: v,
    "pipeline": lambda v: make_pipeline(v),
    "weighted": lambda v: make_pipeline(v, TfidfTransformer()),
    "dense": lambda v: make_pipeline(v, TruncatedSVD(2, random_state=0)),
    "scaled": lambda v: make_pipeline(v, TruncatedSVD(2, random_state=0), StandardScaler()),
    "nested": lambda v: make_pipeline(make_pipeline(v), MaxAbsScaler()),
    "union": lambda v: make_union(
        v, make_pipeline(CountVectorizer(analyzer="char"), TfidfTransformer())
    ),
    "tagged": lambda v: make_pipeline(v, MaxAbsScaler().set_output(transform="default")),
}


@pytest.mark.parametrize("setting", ["default", "pandas", "polars"])
@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("vectorizer", VECTORIZERS)
def test_any_composition_of_text_vectorizers(vectorizer, composition, setting):
    transformer = COMPOSITIONS[composition](clone(VECTORIZERS[vectorizer]))
    words = [word for x in COLUMNS for word in x["w"]]
    expected = clone(transformer).fit_transform(words)
    with sklearn.config_context(transform_output=setting):
        features = PerToken(transformer, columns="w")
        found = [features.fit_transform(COLUMNS).rows, features.transform(COLUMNS).rows]
    for rows in found:
        dense = (m.toarray() if sparse.issparse(m) else m for m in (rows, expected))
        assert_allclose(*dense, atol=1e-12)
    assert features.n_features_out_ == expected.shape[1]
    y = [["a", "b"], ["a"]]
    assert make_pipeline(features, CRFTagger()).fit(COLUMNS, y).score(COLUMNS, y) >= 0


# --- Columns of numbers beside tokens -----------------------------------------------------------

VECTORS = [
    {"w": ["Ann", "ran"], "v": np.array([[1.0, 2.0], [3.0, 4.0]]), "c": [0.5, 0.25]},
    {"w": ["it"], "v": np.array([[0.0, 1.0]]), "c": [0.75]},
    {"w": [], "v": [], "c": []},
]


@pytest.mark.parametrize("form", ["columns", "dicts", "tuples"])
def test_numbers_and_vectors_beside_tokens(form):
    X, columns = VECTORS, ["v", "c"]
    if form == "dicts":
        X = [[dict(zip(x, row)) for row in zip(*x.values())] for x in VECTORS]
    if form == "tuples":
        X, columns = [list(zip(*x.values())) for x in VECTORS], [1, 2]
    expected = np.array([[1, 2, 0.5], [3, 4, 0.25], [0, 1, 0.75]])
    step = PerToken(columns=columns)
    assert_array_equal(step.fit_transform(X).rows, expected)
    assert_array_equal(step.transform(X).lengths, [2, 1, 0])
    assert_array_equal(step.transform(X[1:]).rows, expected[2:])
    assert step.transform([]).shape == step.transform(X[2:])[:0].shape == (0, 3)
    if form != "tuples":
        assert step.get_feature_names_out().tolist() == ["v0", "v1", "c"]
    scaled = PerToken(StandardScaler(), columns=columns).fit_transform(X).rows
    assert_allclose(scaled, StandardScaler().fit_transform(expected), rtol=1e-12)
    doubled = PerToken(lambda row: 2 * row, columns=columns[0]).fit_transform(X).rows
    assert_array_equal(doubled, 2 * expected[:, :2])


def test_float32_vectors_stay():
    X = [{"v": np.ones((2, 3), np.float32)}]
    assert PerToken().fit_transform(X).dtype == np.float32


@pytest.mark.parametrize(
    ("X", "columns", "message"),
    [
        (VECTORS, ["w", "c"], "Column 'c' of X holds numbers and column 'w' does not; use one"),
        ([{"c": [1.0]}, {"c": ["a"]}], None, "Column 'c' of sequence 1 of X must hold a number or"),
        ([{"c": [[1.0], [1.0, 2.0]]}], None, "Column 'c' of sequence 0 of X must hold a number or"),
        ([{"v": np.ones((1, 2))}, {"v": np.ones((1, 3))}], None, "vectors of one length; got shap"),
        ([{"c": [1.0, 2.0], "d": [1.0]}], None, "column 'd' of sequence 0 of X has 1 values, an"),
    ],
)
def test_wrong_columns_of_numbers(X, columns, message):
    with pytest.raises(ValueError, match=message):
        PerToken(columns=columns).fit(X)


def test_other_numbers_than_in_fit():
    step = PerToken(columns=["v"]).fit(VECTORS)
    with pytest.raises(ValueError, match="hold 3 numbers for each token, and 2 in fit; give vect"):
        step.transform([{"v": np.ones((1, 3))}])
    with pytest.raises(ValueError, match=r"Columns \['v'\] held numbers in fit; pass numbers"):
        step.transform([{"v": ["a"]}])
    with pytest.raises(ValueError, match="X must hold strings"):
        PerToken(OneHotEncoder(), columns=["w"]).fit(VECTORS).transform([{"w": [1.5]}])


@pytest.mark.parametrize("values", [(1, 2), ("x", "y")], ids=str)
@pytest.mark.parametrize("around", [lambda t: t, make_pipeline, make_union])
@pytest.mark.parametrize("reader", [DictVectorizer(), FeatureHasher()])
def test_transformers_of_dicts_are_refused(reader, around, values):
    X = [[{"a": value, "b": value} for value in values]]
    with pytest.raises(ValueError, match=r"reads dicts, .*; for feature dicts use DictFeatures"):
        PerToken(around(reader)).fit(X)


class Router(BaseEstimator):
    """Passes metadata on to a transformer inside."""

    def __init__(self, inner):
        self.inner = inner

    def fit_transform(self, X, y=None):
        return self.inner.fit_transform(X, y)


@pytest.mark.parametrize("around", [lambda t: t, make_pipeline, make_union, Router])
def test_requests_of_metadata_are_refused(around):
    X, _ = numeric()
    with sklearn.config_context(enable_metadata_routing=True):
        asks = StandardScaler().set_fit_request(sample_weight=True)
        renames = StandardScaler().set_partial_fit_request(sample_weight="weight")
        for scaler, method in ((asks, "fit"), (renames, "partial_fit")):
            message = rf"StandardScaler requests sample_weight for {method}; call set_{method}_req"
            with pytest.raises(ValueError, match=message):
                PerToken(around(scaler)).fit(X)
        PerToken(StandardScaler().set_fit_request(sample_weight=False)).fit(X)
        with pytest.raises(ValueError, match="requests sample_weight"):
            PerToken(asks).fit([RowBlocks([x]) for x in X if len(x)])

"""Extractors among scikit-learn's tools: searches, unions, caches, names, pages."""

import re
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler

import sklseq.features
from sklseq import CRFTagger, SegmentPotentials, Sequences, ZScoreTagger, ZScoreTaggerCV
from sklseq.features import (
    DictFeatures,
    LexiconFeatures,
    PerToken,
    SegmentFeatures,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)
from sklseq.inspection import explain, feature_names, top_features

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def data():
    rng, X, y = np.random.default_rng(0), [], []
    names, verbs = ["Anna", "Berta", "Carla", "Doris"], ["walks", "runs", "talks"]
    for _ in range(24):
        words, labels = [], []
        for _ in range(rng.integers(1, 4)):
            n = int(rng.integers(1, 3))
            words += [*rng.choice(names, size=n).tolist(), str(rng.choice(verbs))]
            labels += [*["B-x", "I-x"][:n], "O"]
        X.append({"w": words, "line": [str(i == 0) for i in range(len(words))]})
        y.append(labels)
    return X, y


def union():
    words = TokenFeatures(columns="w", shape=False)
    lines = TokenFeatures(columns="line", lower=False, shape=False, short_shape=False,
                          prefixes=0, suffixes=0, flags=False, length=False)  # fmt: skip
    return FeatureUnion([("w", words), ("line", lines)], verbose_feature_names_out=False)


def pipeline(memory=None):
    steps = [("windowfeatures", WindowFeatures(union())), ("crf", CRFTagger(l2=0.1, max_iter=30))]
    return Pipeline(steps, memory=memory)


pytestmark = pytest.mark.filterwarnings("ignore:CRFTagger did not converge")


@pytest.mark.parametrize(
    "extractor",
    [TokenFeatures(), LexiconFeatures({"name": ["Anna"]}), SegmentFeatures(TokenFeatures()),
     PerToken(CountVectorizer()), PerToken(OneHotEncoder())],
)  # fmt: skip
def test_errors_of_token_lists_name_sequence_and_row_and_no_column(extractor):
    X = [["Anna", "sings"], ["Anna", None]]
    with pytest.raises(ValueError, match=r"of (X|sequence)") as fitting:
        clone(extractor).fit(X)
    with pytest.raises(ValueError, match=r"of (X|sequence)") as reading:
        clone(extractor).fit(X[:1] * 2).transform(X)
    for error in (fitting, reading):
        assert re.search("row 1 of sequence 1", str(error.value), re.IGNORECASE)
        assert "column" not in str(error.value)


def test_grid_search_over_the_parameters_of_extractors(data):
    X, y = data
    grid = {
        "windowfeatures__before": [0, 2],
        "windowfeatures__extractor__w__suffixes": [0, 3],
        "crf__l2": [0.1],
    }
    search = GridSearchCV(pipeline(), grid, cv=2).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) > 1
    best = search.best_estimator_
    assert best["windowfeatures"].before == search.best_params_["windowfeatures__before"]
    assert [len(p) for p in search.predict(X)] == [len(x["w"]) for x in X]
    params = best["windowfeatures"].get_params()
    assert params["extractor__w__suffixes"] == best["windowfeatures"].extractor_["w"].suffixes


def test_columns_are_selected_as_in_a_column_transformer():
    # The same numbers through ColumnTransformer on all rows and through columns= per token.
    rng = np.random.default_rng(0)
    X = [rng.normal(size=(n, 3)) for n in (4, 2)]
    theirs = ColumnTransformer([("a", StandardScaler(), [0, 2]), ("b", "passthrough", [1])])
    ours = FeatureUnion(
        [("a", PerToken(StandardScaler(), columns=[0, 2])), ("b", PerToken(columns=[1]))]
    )
    assert_array_equal(ours.fit_transform(X).rows, theirs.fit_transform(np.concatenate(X)))
    dicts = [[{"a": "x", "b": "y"}, {"b": "z"}]]
    one = DictFeatures(columns="b").fit(dicts)
    assert one.get_feature_names_out().tolist() == ["b:y", "b:z"]
    assert one.transform([[{"b": "z", "a": "x"}]]).rows.toarray().tolist() == [[0, 1]]
    with pytest.raises(ValueError, match="columns= selects keys of dicts; row 0 of sequence 0"):
        one.transform([[["b:y"]]])


def test_memory_caches_extraction(data, tmp_path):
    X, y = data
    memory = joblib.Memory(tmp_path, verbose=0)
    first = pipeline(memory).fit(X, y)
    stored = len(list(tmp_path.rglob("output.pkl")))
    second = pipeline(memory).set_params(crf__l2=0.2).fit(X, y)
    assert stored == len(list(tmp_path.rglob("output.pkl"))) == 1
    plain = pipeline().fit(X, y)
    assert_array_equal(first["crf"].coef_, plain["crf"].coef_)
    assert not np.array_equal(first["crf"].coef_, second["crf"].coef_)


def test_cross_val_predict_of_raw_tokens(data):
    X, y = data
    predicted = cross_val_predict(pipeline(), X, y, cv=3)
    assert [len(p) for p in predicted] == [len(labels) for labels in y]


def test_top_features_speak_the_users_names(data):
    X, y = data
    model = pipeline().fit(X, y)
    names = feature_names(model)
    assert len(names) == model["crf"].n_features_in_ == len(set(names))
    top = top_features(model, 20)
    assert all(re.match(r"([+-]1:)?(w|line)\.|__BOS__|__EOS__", name) for _, _, name in top)
    weight, label, name = top[0]
    column, row = names.tolist().index(name), model["crf"].classes_.tolist().index(label)
    assert model["crf"].coef_[column, row] == weight
    told = explain(model, X[0])
    assert [e.label for e in told] == model.predict(X[:1])[0]
    heard = {term for e in told for term, _ in e.contributions if " → " not in term}
    assert heard
    assert heard <= set(names)


def test_inspection_of_a_tagger_alone(data):
    X, y = data
    items = [[{"w": w} for w in x["w"]] for x in X]
    tagger = CRFTagger(max_iter=20).fit(items, y)
    assert top_features(tagger, 3) == tagger.top_features(3)
    for other in (ZScoreTagger(), ZScoreTaggerCV()):
        top = top_features(other.fit([[["a"], ["b"]]] * 3, [["x", "y"]] * 3), 4)
        assert {name for _, _, name in top} == {"a", "b"}
        assert all(weight > 0 for weight, label, name in top if (name, label) == ("a", "x"))
    with pytest.raises(TypeError, match="fitted estimator, Pipeline or search; got Dummy"):
        top_features(type("Dummy", (), {})())
    assert top_features(make_pipeline(tagger), 3) == tagger.top_features(3)
    assert explain(tagger, items[0]) == tagger.explain(items[0])
    rows = DictFeatures().fit_transform(items)
    tagger.fit(rows, y)
    assert feature_names(tagger) is None
    named = top_features(tagger, 1, input_features=[f"f{i}" for i in range(rows.shape[1])])
    assert named[0][2].startswith("f")


EXTRACTORS = [
    kind
    for kind in (getattr(sklseq.features, name) for name in sklseq.features.__all__)
    if isinstance(kind, type)
]


@pytest.mark.parametrize("kind", [*EXTRACTORS, CRFTagger])
def test_the_diagram_links_to_a_page_that_we_generate(kind):
    link = kind()._get_doc_link()
    page = re.fullmatch(r"https://sklseq\.readthedocs\.io/en/latest/generated/(.+)\.html", link)
    module, name = page[1].rsplit(".", 1)
    api = (DOCS / "api.rst").read_text()
    section = api.split(f".. currentmodule:: {module}\n")[1].split("currentmodule")[0]
    assert f"    {name}\n" in section
    assert link in make_pipeline(kind(), CRFTagger())._repr_html_()


@pytest.mark.parametrize("kind", EXTRACTORS)
def test_output_configuration_does_not_break_them(kind):
    assert kind().set_output(transform="default").set_output(transform=None).get_params()
    with pytest.raises(ValueError, match="cannot become one array or table"):
        kind().set_output(transform="pandas")
    with sklearn.config_context(transform_output="pandas"):
        rows = TokenFeatures().fit_transform([["a", "b"]])
        assert isinstance(WindowFeatures(TokenFeatures()).fit_transform([["a"]]), Sequences)
    assert isinstance(rows, Sequences)


# What FeatureUnion joins: rows of numbers of both forms, attributes, potentials of segments.
BLOCKS = {
    "dense": (PerToken(StandardScaler()), PerToken(MaxAbsScaler())),
    "both": (PerToken(StandardScaler()), PerToken(OneHotEncoder())),
    "sparse": (TokenFeatures(columns="w"), WindowFeatures(TokenFeatures(columns="line"))),
    "integers": (PerToken(len, columns="w"), TokenFeatures(columns="w")),
    "segments": (SegmentFeatures(TokenFeatures(columns="w")), SegmentFeatures(shape=True)),
}


def input_of(name, X):
    """What the blocks of a union read: numbers, the words of X or X."""
    if name in ("dense", "both"):
        return [np.outer(np.arange(4), [1.0, 2.0]), np.ones((2, 2))]
    return [{"w": x["w"]} for x in X] if name == "segments" else X


@pytest.mark.parametrize("name", BLOCKS)
def test_weights_of_a_union_multiply_its_blocks(data, name):
    X = input_of(name, data[0])
    parts = list(zip("ab", BLOCKS[name]))
    weights = {"a": 2.5, "b": -1}
    plain = FeatureUnion(parts).fit_transform(X)
    weighted = FeatureUnion(parts, transformer_weights=weights).fit(X).transform(X)
    names = FeatureUnion(parts).fit(X).get_feature_names_out()
    factors = [weights[name[0]] for name in names]
    assert type(weighted) is type(plain)
    dense = [x.rows.toarray() if sparse.issparse(x.rows) else x.rows for x in (plain, weighted)]
    assert_array_equal(dense[0] * factors, dense[1])
    with pytest.raises(TypeError, match="unsupported operand"):
        plain * None


def test_a_window_of_weighted_attributes_has_their_weights(data):
    rows = TokenFeatures(columns="w").fit_transform(data[0])
    window = WindowFeatures(bos_eos=False)
    once, twice = window.fit_transform(rows).rows, window.fit_transform(2 * rows).rows
    assert_array_equal(2 * once.toarray(), twice.toarray())


LINES = "U0:%x[0,0]\nB1:%x[0,0]\n*2:%x[-1,0]\n"


@pytest.mark.parametrize("min_count", [1, 2])
@pytest.mark.parametrize("inside", [True, False])
def test_a_window_keeps_transition_features_of_the_token_itself(inside, min_count):
    X = [["a", "b", "a"], ["b", "a"]] * 2
    own = TemplateFeatures(LINES, bos_eos=False)
    window = WindowFeatures(own if inside else None, conjoin=None, min_count=min_count)
    rows = own.fit_transform(X)
    names = dict(zip(own.get_feature_names_out(), rows.roles))
    out = window.fit_transform(X if inside else rows)
    given = None if inside else own.get_feature_names_out()
    columns = dict(zip(window.get_feature_names_out(given), out.roles, strict=True))
    assert names == {name: columns[name] for name in names}
    others = {name: role for name, role in columns.items() if name not in names}
    assert set(others.values()) == {1}
    assert {"-1:U0:a", "+1:U0:a"} <= set(others)
    assert not any(":B1:" in name for name in others)
    again = window.transform(X if inside else rows)
    assert_array_equal(again.roles, out.roles)
    assert_array_equal(again.rows.toarray(), out.rows.toarray())


def test_a_window_of_dense_or_hashed_transition_features():
    rows = Sequences(np.arange(6.0).reshape(3, 2), [0, 3], [1, 3])
    assert_array_equal(WindowFeatures().fit_transform(rows).roles, [1, 1, 1, 3, 1, 1, 1, 1])
    rows = Sequences(rows.rows, [0, 3], [1, 2])
    alone = WindowFeatures(before=0, after=0, bos_eos=False).fit_transform(rows)
    assert_array_equal(alone.roles, [1, 2])
    with pytest.raises(ValueError, match="Column 1 of dense rows has transition weights only"):
        WindowFeatures().fit(rows)
    with pytest.raises(ValueError, match="transition features, whose columns cannot be hashed"):
        WindowFeatures(TemplateFeatures(LINES), n_features=64).fit([["a"]])


def test_a_union_of_attributes_has_one_value_for_all(data):
    union = FeatureUnion([("a", TokenFeatures(columns="w")), ("b", TokenFeatures(columns="line"))])
    rows = union.fit_transform(data[0]).rows
    assert not rows.data.flags.writeable
    both = [TokenFeatures(columns=c).fit_transform(data[0]).rows for c in ("w", "line")]
    assert_array_equal(rows.toarray(), sparse.hstack(both).toarray())


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_union_that_makes_no_tables_ignores_the_setting(data, name, library):
    X = input_of(name, data[0])
    parts = list(zip("ab", BLOCKS[name]))
    expected = FeatureUnion(parts).fit_transform(X)
    with sklearn.config_context(transform_output=library):
        found = FeatureUnion(parts).set_output(transform="default").fit_transform(X)
        inside = WindowFeatures(FeatureUnion(parts)) if name == "sparse" else None
        assert inside is None or isinstance(inside.fit(X).transform(X), Sequences)
    assert type(found) is type(expected)
    assert abs(found.rows - expected.rows).sum() == 0


def test_a_union_that_should_make_a_table_says_how_not_to():
    pytest.importorskip("pandas")
    both = FeatureUnion([("a", TokenFeatures()), ("b", TokenFeatures())])
    said = pytest.raises(TypeError, match=r"use set_output\(transform='default'\)")
    with sklearn.config_context(transform_output="pandas"), said:
        both.fit_transform([["a"]])


@pytest.mark.parametrize("lengths", [(2, 3), (2, 2)])
def test_containers_do_not_become_arrays(lengths):
    X = Sequences(np.ones((sum(lengths), 2)), np.cumsum([0, *lengths]))
    for container in (X, SegmentPotentials.from_tokens(X)):
        with pytest.raises(TypeError, match="cannot become one array or table"):
            np.asarray(container)


READERS = [
    CRFTagger(),
    PerToken(StandardScaler()),
    PerToken(),
    WindowFeatures(),
    make_pipeline(PerToken(StandardScaler()), CRFTagger()),
    make_pipeline(WindowFeatures(), CRFTagger()),
]


@pytest.mark.parametrize("reader", READERS, ids=repr)
def test_rows_of_another_width_are_named(reader):
    y = [["a", "b"], ["b", "a", "a"]]
    good = [[[1.0, 2.0], [3.0, 4.0]], [[1.0, 0.0]] * 3]
    fitted = clone(reader).fit(good, y)
    answer = fitted.predict if hasattr(fitted, "predict") else fitted.transform
    inside = [good[0], [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0, 5.0]]]
    between = [good[0], [[1.0, 0.0, 5.0]] * 3]
    for ask in (answer, lambda X: clone(reader).fit(X, y)):
        with pytest.raises(ValueError, match="row 2 of sequence 1 has 3, row 0 has 2"):
            ask(inside)
        with pytest.raises(ValueError, match="sequence 1 has 3, the first has 2"):
            ask(between)
    with pytest.raises(ValueError, match=r"X has 3 features, but .* was fitted with 2"):
        answer([[[1.0, 0.0, 5.0]] * 2])


# What tokens may be, with two columns.
FORMS = {
    "columns": [{"w": ["a", "b"], "p": ["N", "V"]}],
    "dicts": [[{"w": "a", "p": "N"}, {"w": "b", "p": "V"}]],
    "tuples": [[("a", "N"), ("b", "V")]],
    "lists": [[["a", "N"], ["b", "V"]]],
    "words": [["a", "b"]],
    "singles": [[("a",), ("b",)]],
}


@pytest.mark.parametrize("then", FORMS)
@pytest.mark.parametrize("first", FORMS)
@pytest.mark.parametrize(
    "kind", [TokenFeatures, LexiconFeatures, PerToken, WindowFeatures, SegmentFeatures]
)
def test_tokens_of_another_form_are_read_or_refused(kind, first, then):
    columns = 0 if first in ("tuples", "lists", "words", "singles") else "w"
    extractor = {
        TokenFeatures: lambda: TokenFeatures(columns=columns),
        LexiconFeatures: lambda: LexiconFeatures({"x": ["a"]}, columns=columns),
        PerToken: lambda: PerToken(CountVectorizer(token_pattern=".+"), columns=columns),
        WindowFeatures: lambda: WindowFeatures(TokenFeatures(columns=columns)),
        SegmentFeatures: lambda: SegmentFeatures(TokenFeatures(columns=columns)),
    }[kind]()
    expected = extractor.fit_transform(FORMS[first])
    try:
        found = extractor.transform(FORMS[then])
    except ValueError as error:
        said = str(error)
    else:
        assert abs(found.rows - expected.rows).sum() == 0
        return
    assert re.match(r"X has|Tokens of X are|columns must|Sequence \d+ of X|Row \d+", said), said


@pytest.mark.parametrize("kind", EXTRACTORS)
def test_parameters_are_only_stored(kind):
    features = kind()
    assert clone(features).get_params() == features.get_params()
    assert {name for name in vars(features) if name.endswith("_")} == set()


def test_a_union_of_all_kinds_gives_all_names(data):
    X = data[0]
    both = FeatureUnion(
        [("t", TemplateFeatures(["w[0]"], columns=["w"])), ("w", WindowFeatures(union()))]
    )
    rows = both.fit_transform(X)
    names = both.get_feature_names_out()
    assert len(names) == rows.shape[1] == len(set(names))
    assert {name.split("__")[0] for name in names} == {"t", "w"}


# Makers of extractors, and items that they read.
EXTRACTORS_OF_TOKENS = {
    "dicts": (DictFeatures, lambda w: {"w": w}),
    "tokens": (TokenFeatures, str),
    "template": (lambda: TemplateFeatures(["w[-1]", "w[0]"]), str),
    "lexicon": (lambda: LexiconFeatures({"name": ["Anna", "Berta"]}), str),
    "window": (lambda: WindowFeatures(DictFeatures()), lambda w: {"w": w}),
    "each token": (lambda: PerToken(CountVectorizer(analyzer="char")), str),
    "vectors": (lambda: PerToken(StandardScaler()), lambda w: [float(len(w)), 1.0]),
}


@pytest.mark.parametrize("name", EXTRACTORS_OF_TOKENS)
def test_a_fit_that_fails_leaves_the_extractor_as_it_was(name):
    """X whose last item is wrong, so that reading fails after the first items."""

    def dense(rows):
        return sparse.csr_matrix(rows.rows).toarray()

    make, item = EXTRACTORS_OF_TOKENS[name]
    X = [[item("Anna"), item("walks")], [item("Berta")]]
    extractor = make().fit(X)
    names, rows = extractor.get_feature_names_out(), dense(extractor.transform(X))
    some, failed = [item("new")], 0
    for wrong in (None, 3, [3 + 4j], [object()], [["a", 1.0]], [some, item("a")]):
        try:
            make().fit([some, wrong])
        except (ValueError, TypeError):
            failed += 1
            with pytest.raises((ValueError, TypeError)):
                extractor.fit([some, wrong])
        assert_array_equal(extractor.get_feature_names_out(), names)
        assert_array_equal(dense(extractor.transform(X)), rows)
    assert failed


@pytest.mark.parametrize("name", ["dicts", "tokens"])
def test_a_wrong_choice_of_columns_leaves_the_features(name):
    make, item = EXTRACTORS_OF_TOKENS[name]
    X = [[item("Anna")], [item("walks")]]
    extractor = make().fit(X)
    names = extractor.get_feature_names_out()
    extractor.set_params(transition_features=["nothing"])
    with pytest.raises(ValueError, match="nothing"):
        extractor.fit([[item("new"), item("words")]])
    extractor.set_params(transition_features=None)
    assert_array_equal(extractor.get_feature_names_out(), names)
    assert extractor.n_features_out_ == len(names) == extractor.transform(X).shape[1]


def test_a_window_of_no_sequences_is_refused():
    for extractor in (None, PerToken()):
        with pytest.raises(ValueError, match=r"X .*at least one"):
            WindowFeatures(extractor).fit([])

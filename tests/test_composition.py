"""Extractors among scikit-learn's tools: searches, unions, caches, names, pages."""

import re
from pathlib import Path

import joblib
import numpy as np
import pytest
import sklearn
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import sklseq.features
from sklseq import CRFTagger, Sequences
from sklseq.features import (
    DictFeatures,
    PerToken,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)
from sklseq.inspection import explain, feature_names, top_features

DOCS = Path(__file__).resolve().parent.parent / "docs"


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
    assert [e.label for e in told] == model.predict(X[:1])[0].tolist()
    heard = {term for e in told for term, _ in e.contributions if " → " not in term}
    assert heard
    assert heard <= set(names)


def test_inspection_of_a_tagger_alone(data):
    X, y = data
    items = [[{"w": w} for w in x["w"]] for x in X]
    tagger = CRFTagger(max_iter=20).fit(items, y)
    assert top_features(tagger, 3) == tagger.top_features(3)
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
    assert not hasattr(kind(), "set_output")
    with sklearn.config_context(transform_output="pandas"):
        rows = TokenFeatures().fit_transform([["a", "b"]])
        assert isinstance(WindowFeatures(TokenFeatures()).fit_transform([["a"]]), Sequences)
    assert isinstance(rows, Sequences)


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

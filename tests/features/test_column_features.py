"""Features of columns of strings: those of their parts, each once; for words and for symbols."""

import re

import numpy as np
import pytest
from sklearn import clone, config_context
from sklearn.pipeline import FeatureUnion, make_pipeline

from sklseq import CRFTagger, runtime
from sklseq.deployment import export
from sklseq.features import (
    PerToken,
    SegmentFeatures,
    TemplateFeatures,
    TokenFeatures,
    column_features,
    receptive_field,
)

rng = np.random.default_rng(0)
WORDS = ["Ann", "met", "Bob-2", "in", "NEW", "York", ".", "Ἀθῆναι", "x", "2024", "東京"]
X = [
    {"w": rng.choice(WORDS, n).tolist(), "pos": rng.choice(["N", "V", "."], n).tolist()}
    for n in (7, 1, 4, 12)
]


def attributes(extractor, X):
    """Names of the features of each row, which all have the value 1."""
    rows = extractor.fit_transform(X).rows.tocsr()
    names = extractor.get_feature_names_out()
    assert len(set(names)) == len(names)
    assert (rows.data == 1).all()
    return [names[row.indices].tolist() for row in rows]


def test_each_token_has_its_own_attributes_once_and_a_window_of_those_without_affixes():
    found = attributes(column_features(["w", "pos"]), X)
    own = attributes(TokenFeatures(columns="w"), X)
    ends = np.cumsum([len(x["w"]) for x in X])
    for t, names in enumerate(found):
        assert len(set(names)) == len(names)
        assert {n for n in names if n.startswith("w.")} == set(own[t])
        for d in (-1, 1):
            there = own[t + d] if 0 <= t + d < len(own) else []
            if t + min(d, 0) in ends - 1:  # of another sequence
                there = []
            near = {n for n in there if not re.match("w.(word|prefix|suffix[12])", n)}
            assert {n for n in names if n.startswith(f"{d:+d}:")} == {f"{d:+d}:{n}" for n in near}


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("given", [{}, {"symbols": True}, {"segments": True}], ids=str)
def test_rows_are_no_tables_where_these_are_configured(library, given):
    pytest.importorskip(library)
    extractor = column_features(["w", "pos"], **given)
    expected = extractor.fit_transform(X)
    with config_context(transform_output=library):
        for same in (column_features(["w", "pos"], **given), clone(extractor)):
            found = same.fit_transform(X)
            assert type(found) is type(expected)
            assert list(same.get_feature_names_out()) == list(extractor.get_feature_names_out())
            if not given:
                assert (found.rows != expected.rows).nnz == 0


def test_templates_are_pairs_of_words_and_the_default_ones_of_other_columns():
    default = TemplateFeatures(columns=["w", "pos"])
    kept = [
        [n for n in names if not re.match(r"w\[[-\d]+\]=", n)] for names in attributes(default, X)
    ]
    found = attributes(column_features(["w", "pos"]), X)
    assert [[n for n in names if "w." not in n] for names in found] == kept


@pytest.mark.parametrize("columns", ["w", ["w"]])
def test_sequences_of_strings(columns):
    X = [["Ann", "sings"], ["it", "rains"]]
    model = make_pipeline(column_features(columns), CRFTagger())
    assert model.fit(X, [["NAME", "O"], ["O", "O"]]).predict([["Ann", "rains"]]) == [["NAME", "O"]]
    assert receptive_field(model[:-1]) == (1, 1)


def test_symbols_have_a_window_of_eleven():
    names = attributes(column_features(["aa"], symbols=True), [{"aa": list("ABCDEFGHIJKLM")}])
    letters = dict(zip(range(-6, 7), "ABCDEFGHIJKLM"))
    singles = {f"aa[{d}]={letters[d]}" for d in range(-5, 6)}
    pairs = {f"aa[{d}]|aa[{d + 1}]={letters[d]}|{letters[d + 1]}" for d in range(-3, 3)}
    triples = {"aa[-2]|aa[-1]|aa[0]=E|F|G", "aa[-1]|aa[0]|aa[1]=F|G|H", "aa[0]|aa[1]|aa[2]=G|H|I"}
    assert set(names[6]) == singles | pairs | triples
    assert receptive_field(column_features(symbols=True).fit([["A"]])) == (5, 5)


def test_segments_have_letters_of_words_and_templates_of_other_columns():
    features = column_features(["w", "pos"], segments=True).fit(X)
    names = features.extractor_.get_feature_names_out()
    assert {n for n in names if n.startswith("w.")} == set().union(
        *attributes(TokenFeatures(columns="w"), X)
    )
    default = set().union(*attributes(TemplateFeatures(columns=["w", "pos"]), X))
    assert {n for n in names if "w." not in n} == {n for n in default if not n.startswith("w[")}
    alone = column_features("w", segments=True).fit(X)
    assert set(alone.extractor_.get_feature_names_out()) == {n for n in names if "w." in n}


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize("values", [[1.5, 2.5], np.array([[1.5, 0.5], [2.5, 1.0]])])
def test_numbers_are_refused_with_the_extractor_that_reads_them(segments, values):
    X = [{"w": ["Ann", "sings"], "size": values}]
    with pytest.raises(ValueError, match="PerToken reads columns of numbers"):
        column_features(["w", "size"], segments=segments).fit(X)
    with pytest.raises(ValueError, match="PerToken reads columns of numbers"):
        column_features(["c0", "c1"], segments=segments).fit([list(zip(X[0]["w"], values))])
    parts = [("words", column_features("w")), ("numbers", PerToken(columns=["size"]))]
    SegmentFeatures(FeatureUnion(parts), columns="w", shape=True).fit(X)


def test_segments_of_symbols():
    found = column_features("w", segments=True, symbols=True).fit(X)
    plain = column_features("w", symbols=True).fit(X)
    assert isinstance(found, SegmentFeatures)
    names = found.extractor_.get_feature_names_out()
    assert names.tolist() == plain.get_feature_names_out().tolist()


@pytest.mark.parametrize("symbols", [False, True])
def test_exported_models_predict_the_same(tmp_path, symbols):
    y = [rng.choice(["A", "B"], len(x["w"])).tolist() for x in X]
    model = make_pipeline(column_features(["w", "pos"], symbols=symbols), CRFTagger()).fit(X, y)
    export(model, tmp_path / "model")
    decoder = runtime.load(tmp_path / "model")
    assert decoder.columns_ == ["w", "pos"]
    assert list(decoder.predict(X)) == list(model.predict(X))
    assert model.predict(X) == y  # enough features to tell all rows apart


def test_transition_features_are_chosen_in_a_part():
    y = [rng.choice(["A", "B"], len(x["w"])).tolist() for x in X]
    wrong = make_pipeline(column_features(["w", "pos"]), CRFTagger(transition_features=r"\.word="))
    with pytest.raises(ValueError, match="choose in the extractor: by transition_features of Dict"):
        wrong.fit(X, y)
    features = column_features(["w", "pos"])
    features.set_params(letters__transition_features=r"^w\.word=")
    union = FeatureUnion(
        [
            ("base", features),
            ("tags", TemplateFeatures(["B1:%x[0,1]"], columns=["w", "pos"], bos_eos=False)),
        ],
        verbose_feature_names_out=False,
    )
    model = make_pipeline(union, CRFTagger(l2=0.01, tol=1e-4)).fit(X, y)
    names = union.get_feature_names_out()
    weighted = {name for *_, name in model[-1].top_transition_features(10**6, feature_names=names)}
    chosen = {name for name in names if name.startswith(("w.word=", "B1:"))}
    assert weighted <= chosen
    assert {name[:2] for name in weighted} == {"w.", "B1"}


@pytest.mark.parametrize(
    ("columns", "message"), [([], "at least one"), (["w", "w"], "must be different names")]
)
def test_wrong_columns(columns, message):
    with pytest.raises(ValueError, match=message):
        column_features(columns)

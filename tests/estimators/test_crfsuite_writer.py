"""write_crfsuite_model: python-crfsuite gives our labels and marginals."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, HMSVMTagger, read_crfsuite_model, write_crfsuite_model
from sklseq.features import DictFeatures, TemplateFeatures
from tests.estimators.test_crfsuite_model import make

pycrfsuite = pytest.importorskip("pycrfsuite")


def opened(path):
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return tagger


def assert_same(model, theirs, X, items=lambda x: x):
    classes = model.classes_.tolist()
    assert set(theirs.labels()) == set(classes)
    for x, labels, marginals in zip(X, model.predict(X), model.predict_proba(X)):
        best = theirs.tag(items(x))
        if best != labels:  # a tie
            assert_allclose(theirs.probability(labels), theirs.probability(best), rtol=1e-12)
        found = [[theirs.marginal(name, t) for name in classes] for t in range(len(x))]
        assert_allclose(found, marginals, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("params", [{}, {"l1": 0.3}, {"all_possible_transitions": True}], ids=str)
def test_crfsuite_gives_our_labels_and_marginals(tmp_path, seed, params):
    X, y = make(seed)
    model = CRFTagger(boundaries=False, l2=0.1, **params).fit(X, y)
    write_crfsuite_model(model, tmp_path / "model")
    new, _ = make(seed + 10)
    assert_same(model, opened(tmp_path / "model"), X + new)
    again = read_crfsuite_model(tmp_path / "model")
    assert_allclose(again.transition_, model.transition_, rtol=0)
    for x, expected in zip(new, model.predict_proba(new)):
        assert_allclose(again.predict_proba([x])[0], expected, rtol=1e-12)


def test_values_of_equal_names_are_two_attributes(tmp_path):
    X, y = [["a|b", "c"], ["a", "b|c"]] * 3, [["x", "y"], ["y", "x"]] * 3
    extractor = TemplateFeatures(["w[0]|w[1]"], bos_eos=False)
    model = make_pipeline(extractor, CRFTagger(boundaries=False, l2=0.1)).fit(X, y)
    write_crfsuite_model(model, tmp_path / "model")
    names = extractor.get_feature_names_out()

    def items(x):
        return [names[row.indices].tolist() for row in extractor.transform([x]).rows]

    assert items(X[0]) != items(X[1])
    assert_same(model, opened(tmp_path / "model"), X, items)


def test_names_of_all_lengths(tmp_path):
    # Around the blocks of the hash function, and one that is much longer than the others.
    names = ["é" * n + "x" * k for n in range(20) for k in range(14)] + [
        "z" * 5000,
        "日本",
        "\ud800",
    ]
    names = names[1:-1]
    rng = np.random.default_rng(0)
    X = [[[name, names[rng.integers(len(names))]]] for name in names]
    y = [["ab"[k % 2]] for k in range(len(X))]
    model = CRFTagger(boundaries=False, l2=0.01).fit(X, y)
    write_crfsuite_model(model, tmp_path / "model")
    theirs = opened(tmp_path / "model")
    assert set(theirs.info().attributes) == set(names)
    assert_same(model, theirs, [[[name]] for name in names])


def test_weights_of_first_and_last_labels_belong_to_two_attributes(tmp_path):
    X, y = make(1)
    model = CRFTagger(l2=0.05).fit(X, y)
    with pytest.raises(ValueError, match=r"no weights for first and last labels: .*boundaries="):
        write_crfsuite_model(model, tmp_path / "model")
    with pytest.raises(ValueError, match="two new attributes; 'a' is one already"):
        write_crfsuite_model(model, tmp_path / "model", boundaries=("a", "a"))
    with pytest.raises(ValueError, match="two new attributes"):
        write_crfsuite_model(
            model, tmp_path / "model", boundaries=("<s>", model.feature_names_in_[0])
        )
    assert not list(tmp_path.iterdir())
    write_crfsuite_model(model, tmp_path / "model", boundaries=("<s>", "</s>"))

    def marked(x):
        x = [dict(item) for item in x]
        x[0]["<s>"] = x[-1]["</s>"] = 1
        return x

    assert_same(model, opened(tmp_path / "model"), X, marked)


def test_forbidden_transitions_stay_forbidden(tmp_path):
    X = [[["a"], ["b"], ["c"]], [["b"], ["a"]], [["c"], ["c"], ["a"]]]
    y = [["O", "B-x", "I-x"], ["B-x", "O"], ["B-x", "I-x", "O"]]
    model = CRFTagger(constraints="iob2", l2=0.01).fit(X, y)
    write_crfsuite_model(model, tmp_path / "model", boundaries=("<s>", "</s>"))

    def marked(x):
        x = [list(item) for item in x]
        x[0].append("<s>")
        x[-1].append("</s>")
        return x

    assert_same(model, opened(tmp_path / "model"), [[["c"], ["c"]], [["a"], ["c"], ["c"]]], marked)


def test_pipelines_write_the_names_of_their_features(tmp_path):
    X, y = [["a", "b"], ["b", "c", "a"]], [["A", "B"], ["B", "C", "A"]]
    model = make_pipeline(
        TemplateFeatures(["w[0]", "w[-1]|w[0]"]), CRFTagger(boundaries=False, l2=0.1)
    ).fit(X, y)
    write_crfsuite_model(model, tmp_path / "model")
    names = model[:-1].get_feature_names_out()

    def items(x):
        rows = model[:-1].transform([x]).rows
        return [names[rows[t].indices].tolist() for t in range(len(x))]

    assert_same(model, opened(tmp_path / "model"), X, items)


def test_what_a_file_cannot_hold(tmp_path):
    X, y = [[{"a": 1}], [{"b": 1}]], [["x"], ["y"]]

    def refused(model, message, X=X, y=y):
        with pytest.raises(ValueError, match=message):
            write_crfsuite_model(model.fit(X, y), tmp_path / "model")

    crf = CRFTagger(boundaries=False)
    refused(crf, "Labels must be strings", y=[[1], [2]])
    refused(crf, r"attribute 'a\\x00b' has a character that CRFsuite", X=[[["a\0b"]], [["c"]]])
    refused(crf, r"attribute '\\ud800' has a character that CRFsuite", X=[[["\ud800"]], [["c"]]])
    refused(crf, "rows of numbers", X=[np.eye(2), np.eye(2)], y=[["x", "y"]] * 2)
    refused(HMSVMTagger(), "must be a CRFTagger.*got HMSVMTagger")
    refused(make_pipeline(DictFeatures(n_features=64), crf), "DictFeatures has hashed columns")
    assert not list(tmp_path.iterdir())

"""sklseq.compat.pycrfsuite beside python-crfsuite: the same calls, the same answers."""

import subprocess
import sys

import numpy as np
import pytest

from sklseq import CRFTagger
from sklseq.compat import pycrfsuite as ours
from sklseq.deployment import export
from tests.estimators.test_crfsuite_model import make, train

theirs = pytest.importorskip("pycrfsuite")

NEW, _ = make(21)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model file that python-crfsuite wrote."""
    path = tmp_path_factory.mktemp("models") / "theirs.crfsuite"
    train(path, *make(3))
    return path


def opened(package, path):
    tagger = package.Tagger()
    tagger.open(str(path))
    return tagger


def assert_same(mine, other, X):
    assert mine.labels() == other.labels()
    for x in X:
        labels, best = other.tag(x), mine.tag(x)
        if best != labels:  # a tie
            assert other.probability(best) == pytest.approx(other.probability(labels), rel=1e-12)
        assert mine.tag() == best
        mine.set(x)
        assert mine.probability(labels) == pytest.approx(other.probability(labels), rel=1e-9)
        wrong = labels[::-1]
        assert mine.probability(wrong) == pytest.approx(other.probability(wrong), rel=1e-9)
        for t in range(len(x)):
            found = [mine.marginal(label, t) for label in mine.labels()]
            expected = [other.marginal(label, t) for label in mine.labels()]
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_model_of_crfsuite(model):
    mine, other = opened(ours, model), opened(theirs, model)
    assert_same(mine, other, NEW)
    assert mine.tag([]) == []
    found, expected = mine.info(), other.info()
    assert found.labels == expected.labels
    assert set(found.attributes) <= set(expected.attributes)
    assert found.transitions == pytest.approx(expected.transitions, abs=1e-6)
    weights = {k: v for k, v in expected.state_features.items() if abs(v) > 1e-6}
    assert {k: found.state_features[k] for k in weights} == pytest.approx(weights, abs=1e-6)


def test_bytes_and_closing(model):
    tagger = ours.Tagger()
    with tagger.open_inmemory(model.read_bytes()):
        labels = tagger.tag(ours.ItemSequence(NEW[0]))
    assert labels == opened(theirs, model).tag(NEW[0])
    for call in (tagger.labels, tagger.tag, tagger.info):
        with pytest.raises(ValueError, match="The tagger is not opened"):
            call()
    with pytest.raises(ValueError, match="is neither a model file of CRFsuite nor"):
        tagger.open_inmemory(b"xx")
    with pytest.raises(FileNotFoundError):
        tagger.open("no such file")
    model.with_name("junk").write_bytes(b"not a model")
    with pytest.raises(ValueError, match=r"junk is neither a model file of CRFsuite.*b'not a mo'"):
        tagger.open(model.with_name("junk"))


def test_wrong_calls(model):
    tagger = opened(ours, model)
    tagger.set(NEW[0])
    n = len(NEW[0])
    for pos in (-1, n):
        with pytest.raises(ValueError, match=f"a position of the {n} items; got {pos}"):
            tagger.marginal("O", pos)
    with pytest.raises(ValueError, match="'nix' is not a label of the model"):
        tagger.marginal("nix", 0)
    with pytest.raises(ValueError, match="'nix' is not a label of the model"):
        tagger.probability(["nix"] * n)
    with pytest.raises(ValueError, match=f"each of {n} items; got {n + 1}"):
        tagger.probability(["O"] * (n + 1))


@pytest.mark.parametrize("params", [{"c2": 0.1}, {"c1": "0.2", "c2": 1.0}])
def test_training_writes_a_file_that_both_read(tmp_path, params):
    X, y = make(4)
    path = tmp_path / "model"
    trainer = ours.Trainer(verbose=False, params=params)
    for k, (x, labels) in enumerate(zip(X, y)):
        trainer.append(ours.ItemSequence(x) if k % 2 else x, labels)
    trainer.append([["left out"]], ["never"], group=1)
    trainer.train(str(path), holdout=1)
    mine, other = opened(ours, path), opened(theirs, path)
    assert_same(mine, other, X + NEW[:5])
    assert "never" not in mine.labels()
    # The objective is that of CRFsuite: so is its minimum.
    train(tmp_path / "theirs", X, y, max_iterations=1000, delta=1e-9, **trainer_params(trainer))
    expected = opened(theirs, tmp_path / "theirs")
    for x in X:
        for tagger in (mine, expected):
            tagger.set(x)
        for label in mine.labels():
            assert mine.marginal(label, 0) == pytest.approx(expected.marginal(label, 0), abs=0.02)


def trainer_params(trainer):
    return {"c1": trainer.get("c1"), "c2": trainer.get("c2")}


def test_parameters_are_those_of_python_crfsuite():
    for algorithm in ("lbfgs", "l2sgd"):
        mine, other = ours.Trainer(algorithm), theirs.Trainer(algorithm)
        assert mine.params() == other.params()
        assert mine.get_params() == other.get_params()
    mine.set_params({"c2": "3", "feature.possible_states": 1})
    assert mine.get("c2") == 3.0
    assert mine.get("feature.possible_states") is True
    mine.select("lbfgs")
    assert mine.get("c2") == 1.0


def test_wrong_training():
    trainer = ours.Trainer(verbose=False)
    for call, message in (
        (lambda: trainer.append([["a"]], ["x", "y"]), "got 1 items and 2 labels"),
        (lambda: trainer.set("nix", 1), "'nix' is not a parameter of 'lbfgs'"),
        (lambda: trainer.get("nix"), "'nix' is not a parameter of 'lbfgs'"),
        (lambda: trainer.set("c1", "much"), "c1 must be a number; got 'much'"),
        (lambda: trainer.select("pa"), "algorithm must be one of"),
        (lambda: ours.Trainer("lbfgs", {"feature.minfreq": 3}).train(""), "minfreq"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_items(model):
    items = [["foo"], {"bar": {"baz": 1}}, {"x": "y", "n": 0.5}]
    assert ours.ItemSequence(items).items() == theirs.ItemSequence(items).items()
    assert len(ours.ItemSequence(items)) == 3


def test_exported_models_need_neither_scipy_nor_scikit_learn(tmp_path):
    X, y = make(5)
    tagger = CRFTagger().fit(X, y)
    export(tagger, tmp_path / "model")
    mine = opened(ours, tmp_path / "model")
    assert [mine.tag(x) for x in NEW] == tagger.predict(NEW)
    code = (
        "import sys; from sklseq.compat import pycrfsuite; t = pycrfsuite.Tagger(); "
        "t.open(sys.argv[1]); t.tag([['a']]); "
        "print([name for name in ('scipy', 'sklearn') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.stdout.strip() == "[]", answer.stderr


@pytest.mark.parametrize("package", [ours, theirs])
def test_items_are_read_when_they_are_given(package, tmp_path):
    path, inner = str(tmp_path / "model"), {"b": "0"}
    item = {"a": inner, "c": ["x"]}
    trainer = package.Trainer(verbose=False)
    for k in range(12):
        inner["b"] = str(k % 2)
        trainer.append([item], ["AB"[k % 2]])
    trainer.train(path)
    tagger = opened(package, path)
    tagger.set([item])
    inner["b"] = "0"
    assert tagger.tag() == ["B"]
    if package is ours:  # python-crfsuite fails for iterators
        tagger.set(iter([iter(["a:b:0"])]))
        assert tagger.tag() == tagger.tag() == ["A"]
        assert tagger.marginal("A", 0) > 0.5


def test_labels_may_be_bytes(tmp_path):
    for package in (ours, theirs):
        trainer = package.Trainer(verbose=False)
        trainer.append([["a"], ["b"]], [b"x", "y"])
        trainer.train(str(tmp_path / "model"))
        assert opened(package, tmp_path / "model").tag([["a"], ["b"]]) == ["x", "y"]


def test_a_wrong_value_sets_no_parameter():
    for wrong in ("much", 10**400, None):
        trainer = ours.Trainer(verbose=False)
        with pytest.raises(ValueError, match="c2 must be a number"):
            trainer.set_params({"c1": 5, "c2": wrong})
        assert trainer.get("c1") == 0


def test_items_in_detail():
    items = [["p", "p", "q"], {"a": {"b": 1.0, "c": True}}]
    assert ours.ItemSequence(items).items() == theirs.ItemSequence(items).items()
    for wrong, message in (([1], "Item 0 of xseq"), (["ab"], "Item 0"), (None, "xseq must be")):
        with pytest.raises(TypeError, match=message):
            ours.ItemSequence(wrong)
    with pytest.raises(TypeError, match=r"Item 0 of xseq .* got a list of dicts.*one sequence"):
        ours.ItemSequence([[{"a": 1}]])


WORDS = ("a", "b", "c")


def item(rng, form):
    """A random item of one of the forms that python-crfsuite reads."""
    words = rng.permutation(WORDS)[: rng.integers(4)].tolist()
    values = {
        "numbers": lambda: float(rng.choice([0.5, 1, 2])),
        "strings": lambda: str(rng.choice(WORDS)),
        "booleans": lambda: bool(rng.integers(2)),
        "nested": lambda: inner[rng.integers(4)],
    }
    inner = {"a": 2, "b": {"c": "a"}}, {"a", "c"}, ["b", "b"], {}
    lists = {"list": [*words, *words[:1]], "set": set(words), "tuple": tuple(words)}
    return lists[form] if form in lists else {word: values[form]() for word in words}


FORMS = ("numbers", "strings", "booleans", "nested", "list", "set", "tuple")


@pytest.mark.parametrize("form", [*FORMS, "of a sequence", "of an item"])
def test_forms_of_items_may_be_mixed(form, tmp_path):
    """One trainer and one tagger with sequences, or items, of several forms."""
    rng = np.random.default_rng(len(form))
    choose = {"of a sequence": lambda one: one, "of an item": lambda _: rng.choice(FORMS)}
    for _ in range(10):
        X = [
            [item(rng, choose.get(form, lambda _: form)(one)) for _ in range(rng.integers(1, 4))]
            for one in rng.permutation(FORMS)
        ]
        y = [rng.choice(["x", "y"], size=len(x)).tolist() for x in X]
        weights = []
        for package in (ours, theirs):
            trainer = package.Trainer("lbfgs", {"c2": 0.5}, verbose=False)
            for x, labels in zip(X, y):
                trainer.append(x, labels)
            trainer.train(str(tmp_path / package.__name__))
            weights.append(opened(package, tmp_path / package.__name__).info().state_features)
        found = {k: v for k, v in weights[0].items() if v}
        assert {k: weights[1].get(k) for k in found} == pytest.approx(found, abs=0.05)
        path = tmp_path / theirs.__name__
        assert_same(opened(ours, path), opened(theirs, path), X)
        for x in X:
            assert ours.ItemSequence(x).items() == theirs.ItemSequence(x).items()


def test_no_items(model):
    for tagger in (opened(ours, model), opened(theirs, model)):
        for _ in range(2):
            assert tagger.probability([]) == 0.0
            assert tagger.marginal("O", 0) == 0.0
            tagger.set([])


def test_calls_in_detail(model):
    tagger = opened(ours, model)
    for call in (tagger.tag, tagger.set):
        with pytest.raises(TypeError, match="xseq must be a list of items or an ItemSequence"):
            call(3)
    with pytest.raises(TypeError, match="got None"):
        tagger.set(None)
    tagger.set(NEW[0])
    assert tagger.marginal("O", 0.0) == tagger.marginal("O", 0)
    with pytest.raises(ValueError, match=r"got 0\.5"):
        tagger.marginal("O", 0.5)
    with pytest.raises(RuntimeError, match="is not a label"):
        tagger.marginal("nix", 0)
    tagger.close()
    with pytest.raises(ours.CRFSuiteError, match="not opened"):
        tagger.info()
    with pytest.raises(ValueError, match="value is neither a model file of CRFsuite nor"):
        tagger.open_inmemory(b"")
    with pytest.raises(ValueError, match="value must be the bytes of a model file; got 'text'"):
        tagger.open_inmemory("text")
    for module in (theirs, ours):
        with pytest.raises(TypeError):
            module.Trainer(verbose=False).append([["a"]], [1])
    assert theirs.CRFSUITE_VERSION == ours.CRFSUITE_VERSION


def test_parameters_in_detail():
    trainer = ours.Trainer(verbose=False)
    name = "feature.possible_states"
    for value, expected in (("true", True), ("False", False), ("1", True), (0, False)):
        trainer.set(name, value)
        assert trainer.get(name) is expected
    before = trainer.get_params()
    for params in ({"c1": None}, {"c1": 2, "c2": "x"}, {name: "yes"}, {"max_iterations": "inf"}):
        with pytest.raises(ValueError, match=r"must be a (number|switch); got"):
            trainer.set_params(params)
    with pytest.raises(ValueError, match="linesearch must be a string; got 3"):
        trainer.set("linesearch", 3)
    assert trainer.get_params() == before

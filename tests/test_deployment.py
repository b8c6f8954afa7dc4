"""A trained pipeline outside its nursery: files, versions, threads, fresh processes."""

import inspect
import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import joblib
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import OneHotEncoder

import sklseq
import sklseq.features
from sklseq import CRFTagger
from sklseq.datasets import make_contacts
from sklseq.deployment import trusted_types
from sklseq.features import (
    DictFeatures,
    LexiconFeatures,
    PerToken,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)

GOLDEN = Path(__file__).resolve().parent / "golden"
pytestmark = pytest.mark.filterwarnings("ignore:CRFTagger did not converge")


@pytest.fixture(scope="module")
def data():
    X, y = make_contacts(16, random_state=0)
    return [{"w": x["w"], "line": x["newline"]} for x in X], y


def tokens():
    return TokenFeatures(columns="w", prefixes=0, shape=False)


MODELS = {
    "dicts": lambda: CRFTagger(max_iter=20),
    "template": lambda: make_pipeline(
        TemplateFeatures(["w[0]", "w[-1]|line[0]"], columns=["w", "line"], min_count=2),
        CRFTagger(l1=0.1, max_iter=20),
    ),
    "window": lambda: make_pipeline(
        WindowFeatures(
            FeatureUnion(
                [
                    ("w", tokens()),
                    ("lexicon", LexiconFeatures({"us": ["New York", "Ohio"]}, columns="w")),
                    ("line", PerToken(OneHotEncoder(), columns=["line"])),
                ]
            ),
            conjoin=["w__w.lower[-1]|w__w.lower[0]"],
            min_count=2,
        ),
        CRFTagger(l1=0.1, max_iter=20),
    ),
    "hashed": lambda: make_pipeline(
        WindowFeatures(TokenFeatures(columns="w", n_features=256)), CRFTagger(max_iter=20)
    ),
}


def as_input(name, X):
    if name != "dicts":
        return X
    return [[{"w": w, "line": line} for w, line in zip(x["w"], x["line"])] for x in X]


@pytest.fixture(scope="module", params=MODELS)
def trained(request, data):
    X = as_input(request.param, data[0])
    return MODELS[request.param]().fit(X, data[1]), X


def assert_same(a, b, X):
    assert a.predict(X) == b.predict(X)
    for p, q in zip(a.predict_proba(X), b.predict_proba(X)):
        assert_array_equal(p, q)


# --- Files --------------------------------------------------------------------------------------


def through_pickle(model, folder):
    return pickle.loads(pickle.dumps(model))


def through_joblib(model, folder):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib")


def through_memory_map(model, folder):
    joblib.dump(model, folder / "model.joblib")
    return joblib.load(folder / "model.joblib", mmap_mode="r")


def through_skops(model, folder):
    io = pytest.importorskip("skops.io")
    io.dump(model, folder / "model.skops")
    return io.load(folder / "model.skops", trusted=trusted_types())


@pytest.mark.parametrize(
    "through", [through_pickle, through_joblib, through_memory_map, through_skops]
)
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_models_survive_files(trained, through, form, tmp_path):
    model, X = trained
    copy = pickle.loads(pickle.dumps(model))
    if form == "sparse":
        (copy[-1] if hasattr(copy, "steps") else copy).sparsify()
    assert_same(model, through(copy, tmp_path), X)


def test_nothing_else_has_to_be_trusted(trained):
    io = pytest.importorskip("skops.io")
    needed = io.get_untrusted_types(data=io.dumps(trained[0]))
    assert set(needed) <= set(trusted_types())


def test_the_trusted_types_are_our_estimators():
    foreign = [name for name in trusted_types() if not name.startswith("sklseq.")]
    assert foreign == ["scipy.sparse._csr.csr_matrix"]
    assert len(trusted_types()) >= 7
    for module in (sklseq, sklseq.features):
        for value in vars(module).values():
            if inspect.isclass(value) and issubclass(value, BaseEstimator):
                assert f"{value.__module__}.{value.__qualname__}" in trusted_types()


def test_skops_refuses_what_is_not_trusted(trained):
    io = pytest.importorskip("skops.io")
    with pytest.raises(Exception, match=r"[Uu]ntrusted"):
        io.loads(io.dumps(trained[0]))


# --- Versions -----------------------------------------------------------------------------------


def parts_of(model):
    steps = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    return [step for step in steps if type(step).__module__.startswith("sklseq")]


def test_a_saved_model_carries_the_version(trained):
    for part in parts_of(trained[0]):
        assert part.__getstate__()["_sklseq_version"] == sklseq.__version__
        assert "_sklseq_version" not in vars(pickle.loads(pickle.dumps(part)))


def test_a_newer_major_version_is_refused(trained, monkeypatch):
    newer = f"{int(sklseq.__version__.split('.')[0]) + 1}.2.0"
    for part in parts_of(trained[0]):
        monkeypatch.setattr("sklseq._lib.estimator.__version__", newer)
        saved = pickle.dumps(part)
        monkeypatch.undo()
        message = rf"This \w+ was saved by sklseq {newer}, whose models sklseq"
        with pytest.raises(ValueError, match=message):
            pickle.loads(saved)
        minor = "{}.99.0".format(sklseq.__version__.split(".")[0])
        monkeypatch.setattr("sklseq._lib.estimator.__version__", minor)
        saved = pickle.dumps(part)
        monkeypatch.undo()
        pickle.loads(saved)


def test_an_online_decoder_carries_the_version(monkeypatch):
    X, y = [[["a"], ["b"]]], [["x", "y"]]
    decoder = sklseq.OnlineDecoder(sklseq.CRFTagger()).fit(X, y)
    assert decoder.__getstate__()["_sklseq_version"] == sklseq.__version__
    assert pickle.loads(pickle.dumps(decoder)).predict(X)[0] == ["x", "y"]
    monkeypatch.setattr("sklseq._lib.estimator.__version__", "9.1.0")
    saved = pickle.dumps(sklseq.OnlineDecoder(lag=1))  # no tagger, which would be refused first
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"This OnlineDecoder was saved by sklseq 9\.1\.0"):
        pickle.loads(saved)


golden_files = sorted(GOLDEN.glob("*.pkl"))


@pytest.mark.skipif(np.__version__ < "2", reason="pickles of NumPy 2 name modules that 1.26 lacks")
@pytest.mark.parametrize("path", golden_files, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.InconsistentVersionWarning")
def test_golden_pickles_load_and_predict_as_ever(path):
    golden = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    model = pickle.loads(path.read_bytes())
    if path.stem.endswith("-dense"):
        golden["X"] = [np.array(x).reshape(-1, 2) for x in golden["X"]]
    assert json.loads(json.dumps(model.predict(golden["X"]))) == golden["labels"]
    if "proba" not in golden:
        return
    for p, expected in zip(model.predict_proba(golden["X"]), golden["proba"]):
        # Other compilers and instruction sets round differently.
        np.testing.assert_allclose(p, np.reshape(expected, p.shape), atol=1e-9)


def test_there_are_golden_pickles_and_they_are_small():
    assert len(golden_files) >= 4
    for path in golden_files:
        assert path.stat().st_size < 10_000


# --- Small models -------------------------------------------------------------------------------


def tagger_of(model):
    return model[-1] if hasattr(model, "steps") else model


def test_sparse_weights_change_nothing(trained):
    model, X = trained
    copy = pickle.loads(pickle.dumps(model))
    tagger = tagger_of(copy)
    before = tagger.coef_
    assert tagger.sparsify() is tagger
    assert sparse.issparse(tagger.sparsify().coef_)
    assert_same(model, copy, X)
    assert tagger.top_features(9) == tagger_of(model).top_features(9)
    if copy is tagger:
        assert copy.explain(X[0]) == model.explain(X[0])
    assert_array_equal(tagger.densify().densify().coef_, before)


def test_sparse_models_may_be_trained_on(data):
    X, y = data
    rows = tokens().fit_transform(X)
    warm, again = (CRFTagger(max_iter=5, warm_start=True).fit(rows, y) for _ in range(2))
    assert_array_equal(warm.sparsify().fit(rows, y).coef_, again.fit(rows, y).coef_)


def test_a_sparse_model_is_a_smaller_file(trained):
    model, _ = trained
    tagger = pickle.loads(pickle.dumps(tagger_of(model)))
    dense = tagger.coef_
    few = 12 * np.count_nonzero(dense) + 4 * len(dense) < dense.nbytes  # CSR: index and weight
    size = len(pickle.dumps(tagger_of(model)))
    assert (len(pickle.dumps(tagger.sparsify())) < size) == few


def test_pruning_drops_small_weights(trained):
    model, X = trained
    copy = pickle.loads(pickle.dumps(model))
    tagger, weights = tagger_of(copy), tagger_of(model).coef_
    assert_same(model, tagger.prune() and copy, X)
    threshold = float(np.quantile(np.abs(weights[weights != 0]), 0.5))
    tagger.prune(threshold)
    kept = np.where(np.abs(weights) > threshold, weights, 0)
    if hasattr(copy, "steps"):
        assert_array_equal(tagger.coef_, kept)
    else:  # it reads dicts itself, so it can forget attributes
        assert_array_equal(tagger.coef_, kept[kept.any(axis=1)])
        assert len(tagger.coef_) < len(weights)
        names = model.feature_names_in_[kept.any(axis=1)]
        assert tagger.feature_names_in_.tolist() == names.tolist()
        assert list(tagger.vectorizer_.vocabulary_) == names.tolist()
    assert [len(p) for p in copy.predict(X)] == [len(p) for p in model.predict(X)]


def test_pruning_everything_leaves_a_model(data):
    tagger = CRFTagger(max_iter=5).fit(as_input("dicts", data[0]), data[1])
    tagger.sparsify().prune(1e9)
    assert tagger.coef_.shape[0] == tagger.n_features_in_ == 1
    assert len(tagger.predict(as_input("dicts", data[0])[:2])) == 2


@pytest.mark.parametrize("threshold", [-1, np.nan, "a"])
def test_errors_of_pruning(trained, threshold):
    with pytest.raises(ValueError, match="threshold must be a finite number of at least 0; got"):
        tagger_of(trained[0]).prune(threshold)


def test_a_vocabulary_may_be_restricted():
    X = [[{"a": "x"}, {"b": 2.0}, {"a": "y"}]]
    features = DictFeatures().fit(X)
    assert features.restrict([True, False, True]).get_feature_names_out().tolist() == ["a:x", "a:y"]
    assert features.transform(X).rows.toarray().tolist() == [[1, 0], [0, 0], [0, 1]]
    with pytest.raises(ValueError, match="support must be a mask over 2 attributes"):
        features.restrict([True])


# --- Threads and processes ----------------------------------------------------------------------


def test_many_threads_may_share_a_model(trained):
    model, X = trained
    expected = model.predict_proba(X)
    for _ in range(3):
        fresh = pickle.loads(pickle.dumps(model))  # its caches are empty: threads race to fill them
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(fresh.predict_proba, [X[s % 4 :] for s in range(32)]))
        for s, answer in enumerate(answers):
            for p, q in zip(answer, expected[s % 4 :]):
                assert_array_equal(p, q)


UNWANTED = ("matplotlib", "pooch", "sklseq.solvers", "tests", "pytest", "skops", "rapidfuzz")
SCRIPT = """
import pickle, sys
import numpy as np
for file in sys.argv[1:]:
    model, X = pickle.load(open(file, "rb"))
    print(model.predict(X))
    model.predict_proba(X)
    loaded = [name for name in sys.modules if name.startswith({unwanted!r})]
    assert not loaded, (file, loaded)
import sklseq
sklseq.display.SWEEPS  # the package of displays, and nothing drawn
data = sklseq.Shards([(np.arange(8.).reshape(2, 4, 1), [[0, 0, 1, 1]] * 2)])
sklseq.CRFTagger().fit(data).score(data)
loaded = {{"matplotlib", "dask", "distributed"}} & set(sys.modules)
assert not loaded, loaded
"""


def test_prediction_loads_only_what_it_needs_and_training_no_cluster(data, tmp_path):
    expected = []
    for name, make in MODELS.items():
        X = as_input(name, data[0])
        model = make().fit(X, data[1])
        (tmp_path / name).write_bytes(pickle.dumps((model, X[:2])))
        expected.append(str(model.predict(X[:2])))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(unwanted=UNWANTED), *MODELS],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == expected


def test_model_card_says_what_a_model_is():
    X, y = [[{"w": "the"}, {"w": "cat"}]], [["D", "N"]]
    model = sklseq.CRFTagger(l2=0.5).fit(X, y)
    card = sklseq.deployment.model_card(model, description="Of a test.")
    assert card.startswith("# CRFTagger with 2 labels\n\nOf a test.\n\nLabels: `D`, `N`.\n")
    assert "* `CRFTagger(l2=0.5)`" in card
    assert f"* {np.count_nonzero(model.coef_) + 1:,} weights that are not zero" in card
    assert f"* iterations: {model.n_iter_}" in card


def test_wrong_model_cards():
    tagger = CRFTagger().fit([[{"w": "the"}, {"w": "cat"}]], [["D", "N"]])
    with pytest.raises(TypeError, match="description must be a string; got 3"):
        sklseq.deployment.model_card(tagger, description=3)
    for wrong in (None, TokenFeatures().fit([["a"]])):
        with pytest.raises(TypeError, match="model must be a fitted tagger, or a Pipeline"):
            sklseq.deployment.model_card(wrong)

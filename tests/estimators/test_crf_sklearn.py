"""CRFTagger inside scikit-learn: model selection, pipelines, persistence, callbacks."""

import copy
import pickle

import joblib
import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone, is_classifier, is_clusterer, is_outlier_detector, is_regressor
from sklearn.model_selection import (
    GridSearchCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
    train_test_split,
)
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.utils.fixes import parse_version

from sklseq import CRFTagger, Sequences
from sklseq.features import DictFeatures, TemplateFeatures
from sklseq.metrics import span_f1_scorer, token_accuracy_scorer

LABELS = ["B-x", "I-x", "O"]


def make_items(seed=0, n=18, length=None):
    """(lists of dicts, label lists): each word is typical of one label."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        T = length or int(rng.integers(1, 7))
        codes = rng.integers(0, 3, size=T)
        words = np.where(rng.random(T) < 0.8, codes, rng.integers(0, 3, size=T))
        X.append([{"word": f"w{word}", "bias": 1.0} for word in words])
        y.append([LABELS[code] for code in codes])
    return X, y


def as_columns(X):
    return [{"w": [item["word"] for item in x]} for x in X]


LENGTHS = pytest.mark.parametrize("length", [None, 4], ids=["ragged", "equal"])


def assert_same_predictions(a, b, X):
    assert a.predict(X) == b.predict(X)
    for p, q in zip(a.predict_proba(X), b.predict_proba(X)):
        assert_array_equal(p, q)


# ------------------------------------------------------------------ model selection


@LENGTHS
@pytest.mark.parametrize("scoring", [None, token_accuracy_scorer, span_f1_scorer])
def test_grid_search_over_both_penalties(length, scoring):
    X, y = make_items(length=length)
    grid = {"l1": [0.0, 0.1], "l2": [0.1, 10.0]}
    search = GridSearchCV(CRFTagger(), grid, scoring=scoring, cv=3).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert search.best_score_ == scores.max()
    assert [len(p) for p in search.predict(X)] == [len(x) for x in X]


@LENGTHS
def test_default_scoring_is_token_accuracy(length):
    X, y = make_items(length=length)
    default, named = (
        cross_val_score(CRFTagger(), X, y, cv=3, scoring=scoring)
        for scoring in (None, token_accuracy_scorer)
    )
    assert_allclose(default, named)


@pytest.mark.parametrize("as_array", [False, True], ids=["lists", "2-D array"])
@LENGTHS
def test_cross_val_predict(length, as_array):
    X, y = make_items(length=length)
    labels = np.array(y) if as_array and length else y
    predicted = cross_val_predict(CRFTagger(), X, labels, cv=3)
    assert [len(p) for p in predicted] == [len(x) for x in X]
    half = CRFTagger().fit(X[6:], y[6:])
    for p, q in zip(predicted[:6], half.predict(X[:6])):
        assert_array_equal(p, q)


@LENGTHS
def test_cross_val_predict_of_binary_labels(length):
    X, y = make_items(length=length)
    y = [[int(label == "O") for label in labels] for labels in y]
    predicted = cross_val_predict(CRFTagger(), X, y, cv=3)
    assert [len(p) for p in predicted] == [len(x) for x in X]


@LENGTHS
def test_learning_curve(length):
    X, y = make_items(length=length)
    sizes, train, test = learning_curve(CRFTagger(), X, y, cv=3, train_sizes=[4, 12])
    assert sizes.tolist() == [4, 12]
    assert train.shape == test.shape == (2, 3)
    assert np.isfinite(test).all()


def test_grid_search_with_sample_weight_and_processes():
    X, y = make_items()
    search = GridSearchCV(CRFTagger(), {"l2": [0.1, 1]}, cv=3, n_jobs=2)
    search.fit(X, y, sample_weight=np.arange(1.0, 19))
    assert np.isfinite(search.best_score_)


def test_train_test_split_of_packed_sequences():
    X, y = make_items()
    packed = DictFeatures().fit_transform(X)
    train, test, y_train, y_test = train_test_split(packed, y, random_state=0)
    assert isinstance(train, Sequences)
    assert CRFTagger().fit(train, y_train).score(test, y_test) > 1 / 3


# ------------------------------------------------------------------ composition


def test_clone_and_parameters():
    model = CRFTagger(l1=0.5, l2=0.1, constraints="iob2", boundaries=False)
    assert clone(model).get_params() == model.get_params()
    assert set(model.get_params()) == {
        "l1", "l2", "solver", "gradient", "all_possible_states", "all_possible_transitions",
        "constraints", "boundaries", "transition_features", "entropy_weight", "label_proportions",
        "proportions_weight", "max_iter", "tol", "warm_start", "n_jobs", "verbose", "random_state",
        "early_stopping", "validation_fraction", "n_iter_no_change", "decode",
    }  # fmt: skip
    assert model.set_params(l1=0.0).l1 == 0
    assert not hasattr(clone(CRFTagger().fit(*make_items())), "coef_")
    assert "l1=0.5" in repr(CRFTagger(l1=0.5))


def test_parameters_are_keyword_only():
    with pytest.raises(TypeError):
        CRFTagger(0.5)


@LENGTHS
def test_pipelines_of_both_extractors(length):
    X, y = make_items(length=length)
    direct = CRFTagger().fit(X, y)
    pipe = make_pipeline(DictFeatures(), CRFTagger()).fit(X, y)
    for p, q in zip(direct.predict_proba(X), pipe.predict_proba(X)):
        assert_allclose(p, q, rtol=1e-9)
    assert_allclose(direct.score(X, y), pipe.score(X, y))
    columns = as_columns(X)
    pipe = make_pipeline(TemplateFeatures(["w[0]", "w[-1]|w[0]"]), CRFTagger())
    search = GridSearchCV(pipe, {"crftagger__l2": [0.1, 1]}, cv=3, scoring=span_f1_scorer)
    assert np.isfinite(search.fit(columns, y).best_score_)


def test_feature_names_of_a_pipeline_name_the_top_features():
    X, y = make_items()
    pipe = make_pipeline(TemplateFeatures(["w[0]"]), CRFTagger()).fit(as_columns(X), y)
    names = pipe[:-1].get_feature_names_out()
    top = pipe[-1].top_features(3, feature_names=names)
    assert all(name in set(names) for _, _, name in top)


def test_feature_union_of_extractors():
    X, y = make_items()
    columns = as_columns(X)
    union = FeatureUnion(
        [("one", TemplateFeatures(["w[0]"])), ("two", TemplateFeatures(["w[-1]", "w[1]"]))]
    )
    pipe = Pipeline([("features", union), ("crf", CRFTagger())]).fit(columns, y)
    assert pipe.score(columns, y) > 1 / 2


def test_scikit_learn_may_ask_what_it_is():
    model = CRFTagger()
    assert not is_regressor(model)
    assert not is_classifier(model)
    assert not is_clusterer(model)
    assert not is_outlier_detector(model)
    assert model.__sklearn_tags__().target_tags.required


# ------------------------------------------------------------------ inputs and state


def test_fit_twice_gives_the_same_bits():
    X, y = make_items()
    model = CRFTagger(l1=0.1)
    first = copy.deepcopy(model.fit(X, y))
    model.fit(X, y)
    for name in ("coef_", "transition_", "start_", "end_", "loss_curve_"):
        assert_array_equal(getattr(model, name), getattr(first, name))


@pytest.mark.parametrize("kind", ["dense", "sparse", "unsorted"])
def test_read_only_inputs_are_accepted_and_not_changed(kind):
    packed = DictFeatures().fit_transform(make_items()[0])
    rows = packed.rows.toarray() if kind == "dense" else packed.rows
    if kind == "unsorted":
        rows = rows[:, ::-1][:, ::-1]
    arrays = [rows] if kind == "dense" else [rows.data, rows.indices, rows.indptr]
    weight = np.ones(len(packed))
    for array in [*arrays, weight, packed.offsets]:
        array.flags.writeable = False
    before = [a.copy() for a in arrays]
    X, y = Sequences(rows, packed.offsets), make_items()[1]
    for l1 in (0.0, 0.2):
        model = CRFTagger(l1=l1).fit(X, y, weight)
        model.predict_nbest(X, 2), model.sample(X, 2, random_state=0), model.predict_proba(X)
        model.score(X, y)
    for a, b in zip(arrays, before):
        assert_array_equal(a, b)


def test_order_of_dense_arrays_does_not_matter():
    rows = np.random.default_rng(0).normal(size=(6, 5, 4))
    y = [["a", "b", "a", "b", "b"]] * 6
    a = CRFTagger().fit(list(rows), y)
    b = CRFTagger().fit([np.asfortranarray(x) for x in rows], y)
    assert_array_equal(a.coef_, b.coef_)


def test_duplicate_entries_of_a_sparse_row_add_up():
    y = [["a", "b"]]
    twice = sparse.csr_matrix((np.ones(3), [0, 0, 1], [0, 2, 3]), shape=(2, 2))
    once = sparse.csr_matrix(np.array([[2.0, 0], [0, 1]]))
    a, b = CRFTagger(tol=1e-9).fit([twice], y), CRFTagger(tol=1e-9).fit([once], y)
    assert_allclose(a.coef_, b.coef_, atol=1e-6)


PLAIN = (str, int, float, bool, type(None), np.ndarray, np.generic)


def foreign(value, where):
    """What is not an array, a string, a number, or a list or dict of those."""
    if isinstance(value, PLAIN):
        hidden = isinstance(value, np.ndarray) and value.dtype == object
        return foreign(value.tolist(), where) if hidden else []
    if isinstance(value, (list, tuple)):
        return [f for k, v in enumerate(value) for f in foreign(v, f"{where}[{k}]")]
    if isinstance(value, dict):
        return [f for k, v in value.items() for f in foreign(v, f"{where}[{k!r}]")]
    return [(where, type(value).__name__)]


@pytest.mark.parametrize("form", ["dicts", "arrays"])
def test_fitted_state_is_plain(form):
    X, y = make_items()
    if form == "arrays":
        X = DictFeatures().fit_transform(X)
    model = CRFTagger().fit(X, y)
    model.predict(X)
    state = {k: v for k, v in model.__getstate__().items() if k != "vectorizer_"}
    assert foreign(state, "state") == []


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))],
    ids=["deepcopy", "pickle"],
)
@pytest.mark.parametrize("form", ["dicts", "arrays"])
def test_copies_predict_the_same(copied, form):
    X, y = make_items()
    if form == "arrays":
        X = DictFeatures().fit_transform(X)
    model = CRFTagger().fit(X, y)
    assert_same_predictions(model, copied(model), X)
    model.predict(X)  # what prediction keeps is not copied wrongly
    assert_same_predictions(model, copied(model), X)


@pytest.mark.parametrize("pipe", [False, True], ids=["tagger", "pipeline"])
def test_joblib_memory_map(tmp_path, pipe):
    X, y = make_items()
    model = make_pipeline(DictFeatures(), CRFTagger()) if pipe else CRFTagger()
    joblib.dump(model.fit(X, y), tmp_path / "model.joblib")
    again = joblib.load(tmp_path / "model.joblib", mmap_mode="r")
    tagger = again[-1] if pipe else again
    assert isinstance(tagger.coef_, np.memmap)
    assert_same_predictions(model, again, X)
    tagger.sample(again[:-1].transform(X) if pipe else X, 2, random_state=0)


def test_memory_mapped_features(tmp_path):
    X, y = make_items()
    packed = DictFeatures().fit_transform(X)
    joblib.dump(packed, tmp_path / "X.joblib")
    mapped = joblib.load(tmp_path / "X.joblib", mmap_mode="r")
    a, b = CRFTagger().fit(packed, y), CRFTagger().fit(mapped, y)
    assert_array_equal(a.coef_, b.coef_)


@pytest.mark.parametrize("form", ["dicts", "arrays"])
def test_skops_round_trip(form):
    io = pytest.importorskip("skops.io")
    X, y = make_items()
    if form == "arrays":
        X = DictFeatures().fit_transform(X)
    model = CRFTagger().fit(X, y)
    data = io.dumps(model)
    trusted = io.get_untrusted_types(data=data)
    assert all(name.startswith("sklseq.") for name in trusted), trusted
    assert_same_predictions(model, io.loads(data, trusted=trusted), X)


# ------------------------------------------------------------------ callbacks

needs_callbacks = pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.9"),
    reason="scikit-learn has callbacks from 1.9 on",
)


class Stop:
    """Asks to stop after some iterations, and counts the calls."""

    def __init__(self, after):
        self.after, self.begun, self.ended = after, 0, 0

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context, **kwargs):
        self.begun += context.task_name == "iteration"

    def on_fit_task_end(self, estimator, context, **kwargs):
        self.ended += context.task_name == "iteration"
        return 0 < self.after <= self.ended


@needs_callbacks
@pytest.mark.parametrize("l1", [0.0, 0.1])
def test_a_callback_may_stop_training(l1):
    X, y = make_items()
    free = CRFTagger(l1=l1).fit(X, y)
    stop = Stop(after=2)
    model = CRFTagger(l1=l1).set_callbacks(stop).fit(X, y)  # stopped on request: no warning
    assert stop.begun == stop.ended == model.n_iter_ == 2 < free.n_iter_
    assert_allclose(model.objective_, free.loss_curve_[len(model.loss_curve_) - 1])


@needs_callbacks
def test_a_callback_that_only_watches_changes_nothing():
    X, y = make_items()
    watch = Stop(after=0)
    model = CRFTagger().set_callbacks(watch).fit(X, y)
    assert watch.ended == model.n_iter_
    assert_array_equal(model.coef_, CRFTagger().fit(X, y).coef_)


@needs_callbacks
def test_progress_bar(capsys):
    pytest.importorskip("rich")
    from sklearn.callback import ProgressBar

    CRFTagger().set_callbacks(ProgressBar()).fit(*make_items())
    assert "CRFTagger" in capsys.readouterr().out

"""scikit-learn's callbacks on every estimator: what hooks are told, and what they may do."""

import copy
import pickle
import warnings

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import make_scorer
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    OnlineDecoder,
    RowBlocks,
    SemiCRFSegmenter,
    Shards,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq.estimators.crf import growing
from sklseq.estimators.hmsvm import margin_problem, solver_choice
from sklseq.features import DictFeatures, PerToken
from sklseq.metrics import span_f1, token_accuracy, token_accuracy_scorer
from sklseq.objectives.zscore import elimination

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from 1.9 on")
pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    # Steps of a pipeline that are no learners, of scikit-learn or ours.
    pytest.mark.filterwarnings("ignore:The estimator .* does not support callbacks"),
]

ESTIMATORS = {
    "crf": CRFTagger(),
    "crf l1": CRFTagger(l1=0.1),
    "crf eg": CRFTagger(l2=1, solver="eg"),
    "crf adagrad": CRFTagger(solver="adagrad", random_state=0),
    "crf emp": CRFTagger(gradient="emp"),
    "crf stopping early": CRFTagger(early_stopping=True, validation_fraction=0.3, random_state=0),
    "hmsvm": HMSVMTagger(random_state=0),
    "hmsvm averaged": HMSVMTagger(average=True, max_iter=20, random_state=0),
    "hmsvm working set": HMSVMTagger(solver="working_set", random_state=0),
    "hmsvm perceptron": HMSVMTagger(solver="perceptron", random_state=0),
    "hmsvm rbf": HMSVMTagger(kernel="rbf", random_state=0),
    "zscore": ZScoreTagger(),
    "zscore cg": ZScoreTagger(solver="cg", constraints="iob2"),
    "zscore cv": ZScoreTaggerCV(),
    "segmenter": SemiCRFSegmenter(),
    "segmenter hinge": SemiCRFSegmenter(loss="hinge", random_state=0),
    "online": OnlineDecoder(ZScoreTagger()),
}
# Iterations of these tell of a fitted estimator; the others' answer exists at the end only.
WITH_ITERATES = [n for n in ESTIMATORS if n.startswith(("crf", "hmsvm", "segmenter"))]
every = pytest.mark.parametrize("name", ESTIMATORS)


def make_chunks(seed=0, n=14, lengths=(2, 6)):
    rng = np.random.default_rng(seed)
    inside = [rng.integers(0, 2, size=rng.integers(*lengths)) for _ in range(n)]
    codes = [k * (1 + np.concatenate([[0], k[:-1]])) for k in inside]
    X = [3 * np.eye(3)[c] + rng.normal(size=(len(c), 3)) for c in codes]
    return X, [np.array(["O", "B-x", "I-x"])[c] for c in codes]


def new(name, **parameters):
    return sklearn.base.clone(ESTIMATORS[name]).set_params(**parameters)


def answers(estimator, X):
    return estimator.predict(X)


def scorer_of(name):
    """A scorer object; a segmenter's labels are not its ``predict``."""
    if name.startswith("segmenter"):
        return SegmentScorer(span_f1, 1, {})
    return token_accuracy_scorer


class SegmentScorer(type(make_scorer(span_f1))):
    def _score(self, method_caller, estimator, X, y_true, **kwargs):
        return self._score_func(y_true, estimator.predict_labels(X), **kwargs)


class Recorder:
    """Keeps what the hooks are told."""

    max_propagation_depth = None  # goes into parts of a meta-estimator as well

    def __init__(self, stop_after=None, fail_at=None):
        self.calls, self.stop_after, self.fail_at = [], stop_after, fail_at

    def _note(self, hook, estimator, context, **told):
        self.calls.append((hook, context.task_name, type(estimator).__name__, told))
        if hook == self.fail_at:
            raise RuntimeError(f"failed at {hook}")

    def setup(self, estimator, context):
        self._note("setup", estimator, context)

    def teardown(self, estimator, context):
        self._note("teardown", estimator, context)

    def on_fit_task_begin(
        self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None
    ):
        self._note("begin", estimator, context, X=X, y=y, metadata=metadata)

    def on_fit_task_end(
        self, estimator, context, *, X=None, y=None, metadata=None, fitted_estimator=None
    ):
        told = dict(X=X, y=y, metadata=metadata, fitted=fitted_estimator)
        told["answers"] = None if fitted_estimator is None else answers(fitted_estimator, X)
        self._note("end", estimator, context, **told)
        return len(self.of("end", "iteration")) == self.stop_after

    def of(self, hook, task):
        return [told for h, t, _, told in self.calls if (h, t) == (hook, task)]


class Counter(Recorder):
    """Counts iterations and asks for no answers: for fits that are stopped many times."""

    def on_fit_task_end(self, estimator, context, **told):
        self._note("end", estimator, context)
        return len(self.of("end", "iteration")) == self.stop_after


# ------------------------------------------------------------------ what hooks are told


@every
def test_hooks_come_in_order_and_change_nothing(name):
    X, y = make_chunks()
    plain, recorder = new(name).fit(X, y), Recorder()
    model = new(name).set_callbacks(recorder).fit(X, y)
    hooks = [call[:2] for call in recorder.calls]
    assert hooks[:2] == [("setup", "fit"), ("begin", "fit")]
    assert hooks[-2:] == [("end", "fit"), ("teardown", "fit")]
    depth = np.cumsum([{"begin": 1, "end": -1}.get(hook, 0) for hook, _ in hooks])
    assert depth.min() == 0 == depth[-1]
    assert answers(model, X) == answers(plain, X)
    if hasattr(plain, "coef_"):
        assert_array_equal(model.coef_, plain.coef_)
    assert not {"_task", "_callback_fit_ctx"} & set(vars(model))
    last = recorder.of("end", "fit")[0]
    assert last["answers"] == answers(model, X)
    for *_, told in recorder.calls:
        assert told.get("metadata") is None
        assert told.get("X", X) is X
        assert told.get("y", y) is y


@pytest.mark.parametrize("name", WITH_ITERATES)
def test_each_iteration_tells_of_a_model_that_stays_as_it_is(name):
    X, y = make_chunks(1)
    recorder = Recorder()
    model = new(name).set_callbacks(recorder).fit(X, y)
    iterations = recorder.of("end", "iteration")
    assert len(iterations) == len(recorder.of("begin", "iteration")) == model.n_iter_ > 0
    for k, told in enumerate(iterations, start=1):
        fitted = told["fitted"]
        assert fitted.n_iter_ == k
        assert answers(fitted, X) == told["answers"]  # the solver has gone on meanwhile
        assert answers(pickle.loads(pickle.dumps(fitted)), X) == told["answers"]
        assert fitted.get_params() == model.get_params()
        assert np.isfinite(fitted.score(X, y))
    if hasattr(model, "coef_") and name != "crf stopping early":
        assert_array_equal(iterations[-1]["fitted"].coef_, model.coef_)
    if len(iterations) > 2 and hasattr(model, "coef_"):
        first = iterations[0]["fitted"]
        assert (first.coef_ != iterations[-1]["fitted"].coef_).any()


@pytest.mark.parametrize("name", WITH_ITERATES)
def test_what_an_earlier_fit_left_is_not_told(name):
    X, y = make_chunks(2)
    dicts = [[{"a": row[0], "b": row[1], "c": row[2]} for row in x] for x in X]
    recorder = Recorder(stop_after=1)
    other = {"kernel": "linear"} if "rbf" in name else {}
    model = new(name, **other).fit(dicts, y)
    model.set_params(**new(name).get_params()).set_callbacks(recorder).fit(X, y)
    fitted = recorder.of("end", "iteration")[0]["fitted"]
    fresh = new(name, max_iter=1).fit(X, y)
    assert set(vars(fitted)) - {"_rows"} <= set(vars(fresh))
    assert answers(fitted, X) == answers(model, X)


@every
@pytest.mark.parametrize("max_iter", [1, 2, 3])
def test_there_are_no_more_iterations_than_max_iter(name, max_iter):
    if name in ("zscore cv", "online"):
        pytest.skip("has no max_iter")
    X, y = make_chunks()
    recorder = Recorder()
    new(name, max_iter=max_iter).set_callbacks(recorder).fit(X, y)
    assert len(recorder.of("end", "iteration")) <= max_iter


@pytest.mark.parametrize("name", WITH_ITERATES)
def test_a_callback_may_stop_after_any_iteration(name):
    X, y = make_chunks(1)
    longest = new(name).fit(X, y).n_iter_
    for n in {1, 2, longest} & set(range(1, longest + 1)):
        recorder = Recorder(stop_after=n)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)  # stopped on request
            model = new(name).set_callbacks(recorder).fit(X, y)
        assert model.n_iter_ == n == len(recorder.of("end", "iteration"))
        assert np.isfinite(model.score(X, y))


# A fit is stopped after its first and last iteration, and after so many of the others.
MOST_STOPS = 4

# Fits of several runs of solvers, one after the other.
SEVERAL_RUNS = {
    "dual": CRFTagger(solver="dual", l2=1e-3, tol=1e-5, max_iter=40),
    "dual to rounding": CRFTagger(solver="dual", l2=1.0, tol=1e-12),
    "dual, far": CRFTagger(solver="dual", l2=1e-6, max_iter=30),
    "dual with l1": CRFTagger(solver="dual", l1=0.01, l2=0.1, tol=1e-5),
    "adagrad": CRFTagger(solver="adagrad", tol=1e-6, random_state=0),
    "sets of weights": CRFTagger(solver="lbfgs", all_possible_states=True, tol=1e-6),
    "sets by adagrad": CRFTagger(solver="adagrad", all_possible_states=True, tol=1e-6),
    "margin": HMSVMTagger(solver="auto", C=100, tol=1e-6, random_state=0),
    "smoothing": HMSVMTagger(solver="smoothing", tol=1e-5),
    "float32, then float64": ZScoreTagger(solver="cg", l2=1e-3, tol=1e-4),
    "refined": ZScoreTagger(solver="cg", refine=3),
    "separate": ZScoreTagger(solver="cg", separate=True),
    "calibrated by one left out": SemiCRFSegmenter(calibrate="loo"),
    "calibrated by folds": SemiCRFSegmenter(calibrate=2),
}


@pytest.fixture
def small_limits(monkeypatch):
    """Few weights are trained in growing sets, systems of few columns by conjugate gradients, and
    the margin solver gives up at once."""
    monkeypatch.setattr(elimination, "FREQUENT", 1)
    monkeypatch.setattr(growing, "MANY", 1)
    monkeypatch.setattr(growing, "FEW", 1.0)
    monkeypatch.setattr(margin_problem, "may_change", lambda *_: True)
    monkeypatch.setattr(solver_choice.Outlook, "is_bad", lambda outlook: True)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", SEVERAL_RUNS)
@pytest.mark.usefixtures("small_limits")
def test_a_stop_ends_all_runs_of_a_fit(name, seed):
    X, y = make_chunks(seed)
    if not name.startswith("calibrated"):
        X = [csr_array(x) for x in X]
    estimator = SEVERAL_RUNS[name]
    recorder = Counter()
    sklearn.base.clone(estimator).set_callbacks(recorder).fit(X, y)
    longest = len(recorder.of("end", "iteration"))
    assert longest > 0
    stops = np.random.default_rng(seed).permutation(np.arange(2, longest))[:MOST_STOPS]
    for n in sorted({1, longest, *stops.tolist()}):
        recorder = Counter(stop_after=n)
        model = sklearn.base.clone(estimator).set_callbacks(recorder)
        with warnings.catch_warnings():
            warnings.simplefilter("error", ConvergenceWarning)
            model.fit(X, y)
        assert len(recorder.of("end", "iteration")) == n
        assert getattr(model, "temperature_", 1) == 1
        assert np.isfinite(model.score(X, y))


@pytest.mark.parametrize("patience", [1, 3])
@pytest.mark.parametrize("name", [n for n in SEVERAL_RUNS if n.startswith(("dual", "ada"))])
def test_early_stopping_ends_all_runs_of_a_fit(name, patience):
    X, y = make_chunks(n=30)
    model = sklearn.base.clone(SEVERAL_RUNS[name])
    model.set_params(early_stopping=True, n_iter_no_change=patience, validation_fraction=0.3)
    model.fit([csr_array(x) for x in X], y)
    scores = model.validation_scores_
    assert len(scores) == model.n_iter_
    ends = [k for k in range(len(scores)) if k - np.argmax(scores[: k + 1]) >= patience]
    assert ends in ([], [len(scores) - 1])


@every
@pytest.mark.parametrize("fail_at", ["setup", "begin", "end", "teardown"])
def test_a_failing_callback_leaves_an_estimator_that_can_be_fitted(name, fail_at):
    X, y = make_chunks()
    recorder = Recorder(fail_at=fail_at)
    model = new(name).set_callbacks(recorder)
    with pytest.raises(RuntimeError, match=f"failed at {fail_at}"):
        model.fit(X, y)
    assert recorder.calls[-1][0] == "teardown"
    assert not {"_task", "_callback_fit_ctx"} & set(vars(model))
    assert answers(model.set_callbacks().fit(X, y), X) == answers(new(name).fit(X, y), X)


def test_a_fit_that_fails_tears_down():
    recorder = Recorder()
    model = CRFTagger(l2=-1).set_callbacks(recorder)
    with pytest.raises(ValueError, match="l2 must be"):
        model.fit(*make_chunks())
    assert [call[0] for call in recorder.calls] == ["setup", "begin", "teardown"]
    assert not hasattr(model, "classes_")


def test_long_sequences_and_shards_tell_callbacks_too():
    X, y = make_chunks()
    for args in [([RowBlocks(x) for x in X], y), (Shards([(X[:7], y[:7]), (X[7:], y[7:])]),)]:
        recorder = Recorder()
        model = CRFTagger().set_callbacks(recorder).fit(*args)
        assert len(recorder.of("end", "iteration")) == model.n_iter_
        assert recorder.of("end", "iteration")[0]["X"] is args[0]


# ------------------------------------------------------------------ callbacks of scikit-learn


@every
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_scoring_monitor(name, weighted):
    X, y = make_chunks(3)
    weight = {"sample_weight": np.linspace(0.1, 5, len(X))} if weighted else {}
    scorer = scorer_of(name)
    monitor, recorder = callback.ScoringMonitor(scoring=scorer), Recorder()
    new(name).set_callbacks(monitor, recorder).fit(X, y, **weight)
    rows = monitor.get_logs().data
    kind = type(ESTIMATORS[name]).__name__
    told = [told for hook, _, of, told in recorder.calls if (hook, of) == ("end", kind)]
    fitted = [one["fitted"] for one in told if one["fitted"] is not None]
    for one in told:
        assert (one["metadata"] or {}) == weight
    passed = weight if scorer._accept_sample_weight() else {}
    assert_allclose(
        sorted(row["score"] for row in rows), sorted(scorer(one, X, y, **passed) for one in fitted)
    )
    assert {row["estimator_name"] for row in rows} == {kind}


def test_scoring_monitor_of_the_score_of_a_segmenter():
    X, y = make_chunks()
    monitor = callback.ScoringMonitor(scoring={"f1": lambda model, X, y: model.score(X, y)})
    model = SemiCRFSegmenter().set_callbacks(monitor).fit(X, y)
    scores = [row["f1"] for row in monitor.get_logs().data]
    assert len(scores) == model.n_iter_ + 1
    assert scores[0] == scores[-1] == model.score(X, y)  # of the whole fit, of the last iteration


@every
def test_progress_bar(name, capsys):
    pytest.importorskip("rich")
    X, y = make_chunks()
    new(name).set_callbacks(callback.ProgressBar()).fit(X, y)
    out = capsys.readouterr().out
    assert type(ESTIMATORS[name]).__name__ in out
    assert "100%" in out


def test_a_monitored_step_of_a_pipeline_in_a_grid_search(capsys):
    pytest.importorskip("rich")
    X, y = make_chunks()
    monitor = callback.ScoringMonitor(scoring=token_accuracy_scorer)
    tagger = CRFTagger(max_iter=4, tol=1e-9).set_callbacks(monitor)
    search = GridSearchCV(
        make_pipeline(PerToken(StandardScaler()), tagger), {"crftagger__l2": [0.1, 1.0]}, cv=2
    )
    search.set_callbacks(callback.ProgressBar(max_propagation_depth=None)).fit(X, y)
    rows = monitor.get_logs(include_lineage=True).data
    names = {row["estimator_name"] for row in rows}
    assert names >= {"GridSearchCV", "Pipeline", "CRFTagger"}
    iterations = [row for row in rows if row["task_name"] == "iteration"]
    assert len(iterations) == 4 * (2 * 2 + 1)  # of each candidate on each fold, and of the refit
    assert all(0 <= row["score"] <= 1 for row in iterations)
    assert "CRFTagger" in capsys.readouterr().out


def test_several_scores_of_a_tagger_that_was_sent_elsewhere():
    X, y = make_chunks()
    scoring = {"tokens": token_accuracy_scorer, "spans": make_scorer(span_f1)}
    monitor = callback.ScoringMonitor(scoring=scoring)
    tagger = CRFTagger(max_iter=2).set_callbacks(monitor)
    tagger, monitor = pickle.loads(pickle.dumps((tagger, monitor)))
    GridSearchCV(tagger, {"l2": [0.1, 1.0]}, cv=2).fit(X, y)
    assert all({"tokens", "spans"} <= set(row) for row in monitor.get_logs().data)


# ------------------------------------------------------------------ parts of a meta-estimator


def test_a_decoder_passes_callbacks_on():
    X, y = make_chunks()
    recorder = Recorder()
    decoder = OnlineDecoder(CRFTagger(max_iter=3)).set_callbacks(recorder).fit(X, y)
    of = {(task, estimator) for hook, task, estimator, _ in recorder.calls if hook == "end"}
    assert of == {("fit", "CRFTagger"), ("iteration", "CRFTagger"), ("fit", "OnlineDecoder")}
    assert len(recorder.of("end", "iteration")) == 3
    assert answers(decoder, X) == answers(OnlineDecoder(CRFTagger(max_iter=3)).fit(X, y), X)


@pytest.mark.parametrize(
    "inner",
    [FrozenEstimator(ZScoreTagger()), make_pipeline(DictFeatures(), ZScoreTagger())],
    ids=["frozen", "pipeline"],
)
def test_a_decoder_of_what_has_no_callbacks_of_its_own(inner):
    X, y = make_chunks()
    X = [[dict(zip("abc", row)) for row in x] for x in X]
    inner = copy.deepcopy(inner)
    getattr(inner, "estimator", inner).fit(X, y)
    recorder = Recorder()
    decoder = OnlineDecoder(inner).set_callbacks(recorder).fit(X, y)
    assert recorder.calls[-1][:3] == ("teardown", "fit", "OnlineDecoder")
    assert np.isfinite(decoder.score(X, y))


def test_callbacks_of_an_estimator_stay_with_its_clones():
    recorder = Recorder()
    model = sklearn.base.clone(CRFTagger().set_callbacks(recorder)).fit(*make_chunks())
    assert len(recorder.of("end", "iteration")) == model.n_iter_


def test_what_is_no_callback_is_refused():
    with pytest.raises(TypeError, match="FitCallback"):
        CRFTagger().set_callbacks(token_accuracy)

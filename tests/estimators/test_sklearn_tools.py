"""Every estimator × every tool of scikit-learn × awkward labels: a finite answer, or one sentence.

The manual's page on these tools is checked against what is run here.
"""

import re
import traceback
import warnings
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from sklearn import (
    calibration,
    compose,
    ensemble,
    feature_selection,
    inspection,
    multiclass,
    multioutput,
    semi_supervised,
)
from sklearn import model_selection as ms
from sklearn.base import clone
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline

import sklseq
from sklseq import (
    CRFTagger,
    HMSVMTagger,
    OnlineDecoder,
    SemiCRFSegmenter,
    Sequences,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq.features import PerToken, TokenFeatures, WindowFeatures

ROOT = Path(sklseq.__file__).parent
PAGE = ROOT.parent / "docs" / "sklearn.rst"

ESTIMATORS = {
    "CRFTagger": CRFTagger(max_iter=5, tol=0.1),
    "HMSVMTagger": HMSVMTagger(max_iter=3, random_state=0),
    "ZScoreTagger": ZScoreTagger(),
    "ZScoreTaggerCV": ZScoreTaggerCV(l2s=[0.1, 1.0]),
    "SemiCRFSegmenter": SemiCRFSegmenter(max_iter=5, tol=0.1),
    "OnlineDecoder": OnlineDecoder(ZScoreTagger()),
    "Pipeline": make_pipeline(WindowFeatures(), ZScoreTagger()),
}

# Labels of the codes 0 and 1, and of a code that only some sequences have.
LABELS = {
    "spans": ["O", "B-x", "B-new"],
    "words": ["no", "yes", "new"],
    "integers": [3, -1, 99],
    "binary": [0, 1, 1],
    "booleans": [False, True, True],
    "one class": ["O", "O", "O"],
    "tuples": [("a", 1), ("b", 2), ("c", 3)],
}


def make_rare_label_data(labels="spans", n=12, length=None, packed=False, seed=0):
    """(X, y): the last label is in one sequence only, so in the test part of some fold only."""
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, 2, size=length or rng.integers(1, 5)) for _ in range(n)]
    codes[n // 2][0] = 2
    X = [3 * np.eye(3)[path] + rng.normal(size=(len(path), 3)) for path in codes]
    y = [[LABELS[labels][code] for code in path] for path in codes]
    return (Sequences.from_list(X) if packed else X), y


# ------------------------------------------------------------------ what works


def _scores(cv, e, X, y):
    return ms.cross_val_score(e, X, y, cv=cv, groups=np.arange(len(y)) % 4, error_score="raise")


def _search(kind, e, X, y, **options):
    name = next(name for name in e.get_params() if name.endswith("n_jobs"))
    search = kind(e, {name: [None, 1]}, cv=3, error_score="raise", **options).fit(X, y)
    return [*search.cv_results_["mean_test_score"], search.score(X, y)]


def _curve(e, X, y):
    name = next(name for name in e.get_params() if name.endswith("n_jobs"))
    values = {"param_name": name, "param_range": [None, 1]}
    return ms.validation_curve(e, X, y, cv=3, error_score="raise", **values)[1]


def _predicted(e, X, y):
    predicted = ms.cross_val_predict(e, X, y, cv=3)
    assert len(predicted) == len(y)
    return 0.0


def _split(e, X, y):
    X_train, X_test, y_train, y_test = ms.train_test_split(X, y, random_state=0)
    return e.fit(X_train, y_train).score(X_test, y_test)


WORKS = {
    "GridSearchCV": partial(_search, ms.GridSearchCV),
    "RandomizedSearchCV": partial(_search, ms.RandomizedSearchCV, n_iter=2, random_state=0),
    "HalvingGridSearchCV": partial(_search, ms.HalvingGridSearchCV, min_resources=6),
    "HalvingRandomSearchCV": partial(
        _search, ms.HalvingRandomSearchCV, min_resources=6, random_state=0
    ),
    "cross_val_score": partial(_scores, 3),
    "cross_validate": lambda e, X, y: ms.cross_validate(
        e, X, y, cv=3, return_train_score=True, return_estimator=True, error_score="raise"
    )["test_score"],
    "cross_val_predict": _predicted,
    "learning_curve": lambda e, X, y: ms.learning_curve(
        e, X, y, cv=3, train_sizes=[4, 8], error_score="raise"
    )[2],
    "validation_curve": _curve,
    "KFold": partial(_scores, ms.KFold(3)),
    "RepeatedKFold": partial(_scores, ms.RepeatedKFold(n_splits=2, n_repeats=2, random_state=0)),
    "ShuffleSplit": partial(_scores, ms.ShuffleSplit(2, random_state=0)),
    "LeaveOneOut": partial(_scores, ms.LeaveOneOut()),
    "LeavePOut": lambda e, X, y: _scores(ms.LeavePOut(2), e, X[4:8], y[4:8]),
    "PredefinedSplit": partial(_scores, ms.PredefinedSplit(np.arange(12) % 3)),
    "TimeSeriesSplit": partial(_scores, ms.TimeSeriesSplit(2)),
    "GroupKFold": partial(_scores, ms.GroupKFold(2)),
    "GroupShuffleSplit": partial(_scores, ms.GroupShuffleSplit(2, random_state=0)),
    "LeaveOneGroupOut": partial(_scores, ms.LeaveOneGroupOut()),
    "train_test_split": _split,
    "Pipeline": lambda e, X, y: Pipeline([("last", e)]).fit(X, y).score(X, y),
    "FrozenEstimator": lambda e, X, y: FrozenEstimator(e.fit(X, y)).fit(X, y).score(X, y),
    "FeatureUnion": lambda e, X, y: (
        make_pipeline(FeatureUnion([("a", WindowFeatures()), ("b", PerToken())]), e)
        .fit(X, y)
        .score(X, y)
    ),
}

# ------------------------------------------------------------------ what does not

_TWO = {"cv": 2}
FAILS = {
    "VotingClassifier": lambda e: ensemble.VotingClassifier([("a", e), ("b", e)]),
    "StackingClassifier": lambda e: ensemble.StackingClassifier([("a", e), ("b", e)], **_TWO),
    "CalibratedClassifierCV": lambda e: calibration.CalibratedClassifierCV(e, **_TWO),
    "AdaBoostClassifier": lambda e: ensemble.AdaBoostClassifier(e, n_estimators=2),
    "OneVsRestClassifier": multiclass.OneVsRestClassifier,
    "OneVsOneClassifier": multiclass.OneVsOneClassifier,
    "OutputCodeClassifier": multiclass.OutputCodeClassifier,
    "MultiOutputClassifier": multioutput.MultiOutputClassifier,
    "ClassifierChain": multioutput.ClassifierChain,
    "SelfTrainingClassifier": semi_supervised.SelfTrainingClassifier,
    "TunedThresholdClassifierCV": lambda e: ms.TunedThresholdClassifierCV(e, **_TWO),
    "FixedThresholdClassifier": ms.FixedThresholdClassifier,
    "TransformedTargetRegressor": lambda e: compose.TransformedTargetRegressor(e),
    "BaggingClassifier": lambda e: ensemble.BaggingClassifier(e, n_estimators=2),
    "RFE": lambda e: feature_selection.RFE(e, n_features_to_select=1),
    "RFECV": lambda e: feature_selection.RFECV(e, **_TWO),
    "SelectFromModel": feature_selection.SelectFromModel,
    "SequentialFeatureSelector": lambda e: feature_selection.SequentialFeatureSelector(e, **_TWO),
    "permutation_importance": lambda e: _Asked(inspection.permutation_importance, e),
    "partial_dependence": lambda e: _Asked(inspection.partial_dependence, e, features=[0]),
    "StratifiedKFold": lambda e: _Scored(ms.StratifiedKFold(2), e),
    "StratifiedShuffleSplit": lambda e: _Scored(ms.StratifiedShuffleSplit(2), e),
    "StratifiedGroupKFold": lambda e: _Scored(ms.StratifiedGroupKFold(2), e),
    "cross_val_predict(method": lambda e: _Asked(ms.cross_val_predict, e, method="predict_proba"),
    "permutation_test_score": lambda e: _Asked(ms.permutation_test_score, e, cv=2),
}
# Read a table: packed sequences tell them that they are none.
TABLES = [
    "BaggingClassifier", "AdaBoostClassifier", "OneVsOneClassifier", "ClassifierChain",
    "SelfTrainingClassifier", "RFE", "RFECV", "SelectFromModel", "SequentialFeatureSelector",
    "permutation_importance",
]  # fmt: skip


ERRORS = (TypeError, ValueError, AttributeError, IndexError, NotImplementedError)


class _Asked:
    def __init__(self, function, estimator, **options):
        self.function, self.estimator, self.options = function, estimator, options

    def fit(self, X, y):
        arguments = (X,) if "features" in self.options else (X, y)
        return self.function(self.estimator.fit(X, y), *arguments, **self.options)


class _Scored(_Asked):
    def fit(self, X, y):
        return _scores(self.function, self.estimator, X, y)


# ------------------------------------------------------------------ the checks


def is_ours(error):
    """Raised by a line of this package, in one sentence that NumPy did not write."""
    where = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    said = str(error)
    foreign = re.search("inhomogeneous|truth value|not in tuple|object has no|unhashable", said)
    return where.is_relative_to(ROOT) and said.rstrip().endswith(".") and not foreign


def run(estimator, tool, labels, **data):
    """The tool's numbers, or our sentence."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = WORKS[tool](clone(ESTIMATORS[estimator]), *make_rare_label_data(labels, **data))
        except (TypeError, ValueError) as error:
            if not is_ours(error):
                raise AssertionError(f"{estimator}, {tool}, {labels}: {error}") from error
            return str(error)
    assert np.isfinite(found).all(), (estimator, tool, labels, found)
    return found


def refused(estimator, labels):
    """Labels that this estimator cannot take."""
    segments = estimator == "SemiCRFSegmenter"
    return labels == "tuples" or (segments and labels not in ("spans", "one class"))


@pytest.mark.parametrize("tool", WORKS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_what_works(estimator, tool):
    # All kinds of labels come by, one a pair; trials/sklearn.py runs the product.
    kinds = [kind for kind in LABELS if not refused(estimator, kind)]
    labels = kinds[list(WORKS).index(tool) % len(kinds)]
    assert not isinstance(run(estimator, tool, labels), str)


@pytest.mark.parametrize("labels", LABELS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("data", [{}, {"length": 3}, {"packed": True}], ids=str)
def test_awkward_labels_in_folds(estimator, labels, data):
    found = run(estimator, "KFold", labels, **data)
    assert isinstance(found, str) == refused(estimator, labels), found


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("tool", FAILS)
def test_what_does_not_work_raises(tool, estimator):
    for data in ({}, {"length": 3}, {"packed": True}):
        if tool == "permutation_test_score" and "length" in data:
            continue
        X, y = make_rare_label_data(**data)
        meta = FAILS[tool](clone(ESTIMATORS[estimator]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # SelectFromModel leaves X to the tagger until it selects.
            ask = meta.fit_transform if tool == "SelectFromModel" else meta.fit
            with pytest.raises(ERRORS) as caught:
                ask(X, y)
    if tool in TABLES:  # the last data were packed
        assert is_ours(caught.value), caught.value
        assert "tools of scikit-learn that read a table cannot take it" in str(caught.value)


def names_of(section):
    text = PAGE.read_text(encoding="utf-8")
    body = re.split(rf"{section}\n-+\n", text)[1]
    body = re.split(r"\n[^\n]+\n-{3,}\n", body)[0]
    items = re.findall(r"^\* ((?:``.*|\S.*)(?:\n  \S.*)*)", body, flags=re.M)
    heads = [item.split(":")[0] if section != "What works" else item for item in items]
    return {name for head in heads for name in re.findall(r"``([\w(]+)", head)}


def test_the_page_names_every_tool_with_its_verdict():
    callbacks = {"ProgressBar", "ScoringMonitor", "set_callbacks"}  # see test_callbacks
    assert names_of("What works") == {*WORKS, *callbacks}
    assert names_of("What does not work, and alternatives") == set(FAILS)


def test_extractors_in_a_grid():
    X = [["a", "b"], ["b"], ["a"], ["b", "a"]] * 3
    y = [[token.upper() for token in x] for x in X]
    pipe = make_pipeline(TokenFeatures(), CRFTagger(max_iter=5, tol=0.1))
    grid = {"tokenfeatures__lower": [True, False]}
    search = ms.GridSearchCV(pipe, grid, cv=3, error_score="raise").fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()

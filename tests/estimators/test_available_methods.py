"""Methods exist exactly where they can be called: for all estimators and ways of training."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import sklseq
from sklseq import (
    ConformalTagger,
    CRFTagger,
    CRFTaggerCV,
    HMSVMTagger,
    HMSVMTaggerCV,
    OnlineDecoder,
    SegmentReranker,
    SemiCRFSegmenter,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq.features import PerToken

X = [np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[1, 2]], np.eye(3)[[0, 2, 1]]] * 3
Y = [["a", "b", "c", "a"], ["b", "c"], ["a", "c", "b"]] * 3
SEGMENTS = [[(t, t + 1, label) for t, label in enumerate(labels)] for labels in Y]
FEW = {"max_iter": 20}
CLOSURE = {"strategy": "closure"}

CASES = {
    "crf": CRFTagger(),
    "crf marginal": CRFTagger(decode="marginal"),
    "crf early stopping": CRFTagger(early_stopping=True, validation_fraction=0.3, solver="adagrad"),
    "crf cv": CRFTaggerCV(l2s=[0.1, 1.0], cv=2),
    "hmsvm": HMSVMTagger(),
    **{
        f"hmsvm {solver} {kernel}": HMSVMTagger(solver=solver, kernel=kernel, **FEW)
        for solver in ("bcfw", "working_set", "perceptron")
        for kernel in ("linear", "rbf")
    },
    "hmsvm cv": HMSVMTaggerCV(Cs=[1.0, 2.0], cv=2),
    "hmsvm cv rbf": HMSVMTaggerCV(Cs=[1.0], cv=2, kernel="rbf"),
    "z-score": ZScoreTagger(),
    "z-score probability": ZScoreTagger(probability=True),
    "z-score refine": ZScoreTagger(refine=2),
    "z-score rbf": ZScoreTagger(kernel="rbf"),
    "z-score rbf probability": ZScoreTagger(kernel="rbf", probability=True),
    "z-score landmarks": ZScoreTagger(kernel="rbf", n_landmarks=2, random_state=0),
    "z-score sampling": ZScoreTagger(moments="sampling", n_paths=20, random_state=0),
    "z-score constraints": ZScoreTagger(constraints=[("c", "c")]),
    "z-score separate": ZScoreTagger(separate=True),
    "z-score balanced": ZScoreTagger(class_weight="balanced"),
    "z-score cv": ZScoreTaggerCV(l2s=[0.1, 1.0], cv=2),
    "segmenter": SemiCRFSegmenter(),
    "segmenter softmax-margin": SemiCRFSegmenter(loss="softmax-margin"),
    "segmenter hinge": SemiCRFSegmenter(loss="hinge"),
    "reranker": SegmentReranker(SemiCRFSegmenter(), text=False, cv=2),
    "reranker hinge": SegmentReranker(SemiCRFSegmenter(loss="hinge"), text=False, cv=2),
    "conformal": ConformalTagger(calibration=0.5, alpha=0.5),
    "conformal pipeline": ConformalTagger(
        make_pipeline(PerToken(), CRFTagger()), calibration=0.5, alpha=0.5
    ),
    "conformal z-score": ConformalTagger(
        ZScoreTagger(probability=True), calibration=0.5, alpha=0.5
    ),
    "online": OnlineDecoder(),
    "online pipeline": OnlineDecoder(make_pipeline(PerToken(np.copy), HMSVMTagger())),
    "online search": OnlineDecoder(GridSearchCV(CRFTagger(), {"l2": [0.1]}, cv=2)),
    "online frozen": OnlineDecoder(FrozenEstimator(CRFTagger().fit(X, Y))),
    "online closure": OnlineDecoder(**CLOSURE),
    "online marginal": OnlineDecoder(decide="marginal"),
    "online segmenter": OnlineDecoder(SemiCRFSegmenter(), **CLOSURE),
    "online constraints": OnlineDecoder(SemiCRFSegmenter(constraints=[("c", "c")]), **CLOSURE),
    "online segmenter lag": OnlineDecoder(SemiCRFSegmenter(), lag=2),
    "online segmenter hinge": OnlineDecoder(SemiCRFSegmenter(loss="hinge"), **CLOSURE),
}

OF_X = """
predict predict_proba predict_spans predict_nbest predict_sets predict_labels decision_function
predict_segment_proba path_entropy sample potentials decode decode_closure transform latency_report
"""
OF_XY = "score predict_log_proba_sequence sequence_zscore coverage_report"
OF_NOTHING = """
stream pool segment_stream get_feature_names_out to_crf densify sparsify prune top_features
top_transitions top_transition_features
"""
CALLS = {
    **{name: lambda method, y: method(X) for name in OF_X.split()},
    **{name: lambda method, y: method(X, y) for name in OF_XY.split()},
    **{name: lambda method, y: method() for name in OF_NOTHING.split()},
    "predict_blocks": lambda method, y: list(method(X[0])),
    "explain": lambda method, y: method(X[0]),
    "iter": lambda method, y: list(method(iter(X[0]))),
    "partial_fit": lambda method, y: method(X, y, classes=["a", "b", "c"]),
}
# Called by users of an event loop: as `stream`, on which they depend.
LIKE = {"aiter": "stream"}


def methods(estimator):
    """Names of the methods of its class that ask about data or a fitted model."""
    general = {"fit", "get_params", "set_params", "get_metadata_routing", "set_output"}
    general |= {"set_callbacks"}
    names = {name for name in dir(type(estimator)) if not name.startswith("_")} - general
    return [
        name
        for name in sorted(names)
        if callable(getattr(type(estimator), name)) and not name.endswith("_request")
    ]


def truth_of(estimator):
    inner = getattr(estimator, "estimator", estimator)
    return SEGMENTS if isinstance(inner, SemiCRFSegmenter) else Y


def fitted(name):
    estimator = clone(CASES[name])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return estimator.fit(X, truth_of(estimator))


@pytest.mark.parametrize("name", CASES)
def test_a_method_exists_where_it_can_be_called(name):
    model = fitted(name)
    for method in methods(model):
        like = LIKE.get(method, method)
        if not hasattr(model, method):
            with pytest.raises(AttributeError, match=rf"has no {method}: .+\.$"):
                getattr(model, method)
            assert not hasattr(model, like)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asked = clone(model) if method == "partial_fit" else model
            CALLS[like](getattr(asked, like), truth_of(model))


@pytest.mark.parametrize("name", CASES)
def test_a_method_exists_before_the_fit_as_after_it(name):
    before, after = clone(CASES[name]), fitted(name)
    for method in methods(after):
        assert hasattr(before, method) == hasattr(after, method), method


def test_every_estimator_is_asked():
    public = {getattr(sklseq, name) for name in sklseq.__all__}
    estimators = {one for one in public if hasattr(one, "get_params")}
    assert estimators == {type(case) for case in CASES.values()}

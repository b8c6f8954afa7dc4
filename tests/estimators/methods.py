"""Estimators with every way of training, by name."""

import numpy as np
from numpy.testing import assert_allclose

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    SemiCRFSegmenter,
    ZScoreTagger,
    ZScoreTaggerCV,
)

NAMES = ["lbfgs", "owlqn", "eg", "adagrad", "checkpoint", "emp"]
CLOSE = {"tol": 1e-5}  # so that answers of several solvers are alike
CRFS = {
    "lbfgs": lambda **k: CRFTagger(**CLOSE | {"solver": "lbfgs"} | k),
    "owlqn": lambda **k: CRFTagger(**CLOSE | {"solver": "owlqn", "l1": 1e-9} | k),
    "eg": lambda **k: CRFTagger(**CLOSE | {"solver": "eg"} | k),
    "adagrad": lambda **k: CRFTagger(**CLOSE | {"solver": "adagrad"} | k),
    "checkpoint": lambda **k: CRFTagger(**CLOSE | {"gradient": "checkpoint"} | k),
    "emp": lambda **k: CRFTagger(**CLOSE | {"gradient": "emp"} | k),
    "segmenter": lambda **k: SemiCRFSegmenter(max_segment_length=1, **k),
}
OTHERS = {
    "perceptron": lambda: HMSVMTagger(solver="perceptron", random_state=0),
    "bcfw": lambda: HMSVMTagger(random_state=0, max_iter=30),
    "working set": lambda: HMSVMTagger(solver="working_set", random_state=0, max_iter=30),
    "rbf": lambda: HMSVMTagger(kernel="rbf", random_state=0),
    "z-score": ZScoreTagger,
    "z-score sampling": lambda: ZScoreTagger(moments="sampling", n_paths=20, random_state=0),
    "z-score cv": ZScoreTaggerCV,
}


def as_segments(y):
    return [[(t, t + 1, f"s{label}") for t, label in enumerate(one)] for one in y]


def train(name, X, y, **parameters):
    model = (CRFS | OTHERS)[name](**parameters)
    if name == "segmenter":
        model.outside, y = None, as_segments(y)
    return model.fit(X, y)


def assert_sound(model, X):
    # Finite weights, paths of the right length, probabilities that sum to 1.
    for name in ("coef_", "transition_", "start_", "end_"):
        assert np.isfinite(getattr(model, name, 0)).all(), name
    predict = getattr(model, "predict_labels", model.predict)
    assert [len(p) for p in predict(X)] == [len(x) for x in X]
    if hasattr(model, "predict_proba"):
        for proba in model.predict_proba(X):
            assert_allclose(proba.sum(axis=1), 1, atol=1e-6)

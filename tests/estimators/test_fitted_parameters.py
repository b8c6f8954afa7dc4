"""set_params after fit changes the next fit only; wrong parameters are refused by name."""

import numpy as np
import pytest

from sklseq import (
    CRFTagger,
    HMSVMTagger,
    OnlineDecoder,
    SemiCRFSegmenter,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq.estimators.crf.crf_problem import check_source
from sklseq.estimators.sources.open_source import open_source
from sklseq.features import SegmentFeatures, TokenFeatures, WindowFeatures

X = [[["in"], ["New"], ["York"], ["now"]], [["New"], ["Delhi"]]]
Y = [["O", "B-city", "I-city", "O"], ["B-city", "I-city"]]
OTHER = {
    "bool": [False, True],
    "loss": ["log", "softmax-margin", "hinge", "hamming", None],
    "outside": ["city", "O", "X", None],
    "max_segment_length": [2, 4], "kernel": ["linear", "poly", "rbf", "precomputed"],
    "gamma": [0.1, 3.0], "degree": [1, 4], "coef0": [0.0, 2.0], "C": [0.1, 10.0],
    "solver": ["lbfgs", "owlqn", "dual", "adagrad", "perceptron", "bcfw", "direct", "auto"],
    "gradient": ["auto", "checkpoint", "streaming", "emp", "forward-backward"],
    "l1": [0.0, 0.3], "l2": [0.01, 2.0], "tol": [1e-2], "max_iter": [1, 7],
    "constraints": ["iob2", "iobes", None], "constrained": ["training", "decoding"],
    "slack": ["sum", "squared"], "transition_scale": [0.5], "moments": ["exact", "sampled"],
    "n_paths": [3], "l2s": [[0.1, 1.0]], "transition_weight": [0.0, 3.0], "cv": [2],
    "transition_weights": [[0.0]], "scoring": ["zscore"], "validation_fraction": [0.5],
    "random_state": [1, None], "dtype": [np.float32, np.float64], "estimator": [CRFTagger(l2=9)],
}  # fmt: skip
ONES = [np.eye(3)[[0, 1, 2, 0]], np.eye(3)[[1, 2]]]
FITTED = {
    "crf": (CRFTagger(l2=0.1), X),
    "zscore": (ZScoreTagger(), X),
    "zscore rbf": (ZScoreTagger(kernel="rbf"), ONES),
    "zscore cv": (ZScoreTaggerCV(), X),
    "hmsvm": (HMSVMTagger(), X),
    "rbf": (HMSVMTagger(kernel="rbf"), ONES),
    "poly": (HMSVMTagger(kernel="poly", degree=2, coef0=1.0), ONES),
    "semicrf": (SemiCRFSegmenter(l2=0.1), X),
    "hinge": (SemiCRFSegmenter(l2=0.1, loss="hinge"), X),
    "online": (OnlineDecoder(CRFTagger(l2=0.1)), X),
}


def answers(model, rows):
    """Everything that prediction gives, as plain lists; which methods exist included."""
    names = ("predict", "predict_labels", "predict_proba", "predict_nbest", "decode_closure")
    return {name: repr(getattr(model, name)(rows)) for name in names if hasattr(model, name)} | {
        "score": model.score(rows, Y)
    }


@pytest.mark.parametrize("name", FITTED)
def test_set_params_does_not_change_a_fitted_model(name):
    model, rows = FITTED[name]
    model.fit(rows, Y)
    expected, given = answers(model, rows), model.get_params(deep=False)
    for parameter, value in given.items():
        if name == "online" and parameter == "early":
            continue  # rules of decoding: no training
        for other in OTHER.get("bool" if isinstance(value, bool) else parameter, ()):
            model.set_params(**{parameter: other})
            assert answers(model, rows) == expected, (parameter, other)
        model.set_params(**{parameter: value})


def test_the_next_fit_takes_the_new_parameters():
    whole = [[(0, 1, "other"), (1, 3, "city"), (3, 4, "other")], [(0, 2, "city")]]
    model = SemiCRFSegmenter(l2=0.1).fit(X, whole)
    model.set_params(outside="other", loss="hinge").fit(X, whole)
    assert not hasattr(model, "predict_proba")
    fresh = SemiCRFSegmenter(l2=0.1, outside="other", loss="hinge").fit(X, whole)
    assert list(model.predict(X)) == list(fresh.predict(X)) == [whole[0][1:2], whole[1]]


@pytest.mark.parametrize("name", FITTED)
@pytest.mark.parametrize("n_jobs", ["x", [1], {}, 1.5, np.nan, np.inf, 0])
def test_n_jobs_is_checked_at_prediction(name, n_jobs):
    model, rows = FITTED[name]
    model.fit(rows, Y).set_params(n_jobs=n_jobs)
    with pytest.raises(ValueError, match=r"^n_jobs must be None or an integer"):
        model.predict(rows)
    model.set_params(n_jobs=None)


WORDS = [["a", "b"], ["c"]]
WRONG = [
    (lambda: TokenFeatures(flags=3), "flags"),
    (lambda: TokenFeatures(flags=[["upper"]]), "flags"),
    (lambda: WindowFeatures(TokenFeatures(), conjoin=3), "conjoin"),
    (lambda: WindowFeatures(extractor={}), "extractor"),
    (lambda: WindowFeatures(extractor=TokenFeatures), "extractor"),
    (lambda: SegmentFeatures(extractor={}), "extractor"),
    (lambda: SegmentFeatures(lexicons={"c": ["a b"]}, similarities=3), "similarities"),
    (lambda: OnlineDecoder("a"), "estimator"),
    (lambda: OnlineDecoder({}), "estimator"),
]


@pytest.mark.parametrize(("make", "name"), WRONG)
def test_wrong_parts_are_refused_by_name(make, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name} must be .* got "):
        make().fit(WORDS, [["A", "B"], ["A"]])


@pytest.mark.parametrize(
    ("gradient", "cause"), [("checkpoint", "gradient='checkpoint'"), ("auto", "X holds sequences")]
)
def test_a_refused_solver_names_the_cause(gradient, cause):
    from sklseq.data.row_blocks import RowBlocks

    rows = ONES if gradient != "auto" else [RowBlocks([x]) for x in ONES]
    with pytest.raises(ValueError, match=f"but {cause}.*; use solver='lbfgs'"):
        check_source(
            CRFTagger(solver="dual", gradient=gradient), open_source(rows, Y, None, gradient)
        )


@pytest.mark.parametrize(
    "features", [TokenFeatures(), WindowFeatures(TokenFeatures())], ids=["token", "window"]
)
def test_set_params_does_not_change_fitted_features(features):
    expected = features.fit_transform(WORDS).rows.toarray()
    for name, value in features.get_params(deep=False).items():
        for other in (not value, 3) if isinstance(value, (bool, int)) else (None,):
            features.set_params(**{name: other})
            np.testing.assert_array_equal(features.transform(WORDS).rows.toarray(), expected)
        features.set_params(**{name: value})


@pytest.mark.parametrize(
    "features",
    [TokenFeatures(), WindowFeatures(TokenFeatures()),
     SegmentFeatures(TokenFeatures(), before=1, max_length=3)],
)  # fmt: skip
def test_set_params_does_not_change_on_which_tokens_fitted_rows_depend(features):
    def fields():
        return features.receptive_field, getattr(features, "max_span", None)

    features.fit(WORDS)
    expected = fields()
    for name, value in features.get_params(deep=False).items():
        for other in (5, None, ["a[-4]|a[7]"]):
            features.set_params(**{name: other})
            assert fields() == expected, (name, other)
        features.set_params(**{name: value})

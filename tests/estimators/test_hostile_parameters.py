"""Values that no parameter may have are refused by name, before any work, by every estimator."""

import inspect

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from sklseq import CRFTagger, HMSVMTagger, SemiCRFSegmenter, ZScoreTagger
from sklseq.features import TemplateFeatures, TokenFeatures, WindowFeatures

ESTIMATORS = [
    CRFTagger(),
    HMSVMTagger(),
    SemiCRFSegmenter(),
    ZScoreTagger(),
    TokenFeatures(),
    TemplateFeatures(),
    WindowFeatures(TokenFeatures()),
]
HOSTILE = {"bool": ("no", None, 1.5, [True], np.ones(2)), "verbose": ("x", None, -1, 1.5)}
HOSTILE["random_state"] = ("a", 1.5, -1, [1, 2])
X = [[["a"], ["b"]], [["b"]]]
Y = [["O", "B-x"], ["O"]]


def cases():
    for estimator in ESTIMATORS:
        for name, one in inspect.signature(type(estimator).__init__).parameters.items():
            for value in HOSTILE.get("bool" if one.annotation == "bool" else name, ()):
                label = f"{type(estimator).__name__}-{name}-{value}"
                yield pytest.param(estimator, name, value, id=label)


@pytest.mark.parametrize(("estimator", "name", "value"), cases())
def test_hostile_values_are_refused_by_name(estimator, name, value):
    hostile = type(estimator)(**{**estimator.get_params(deep=False), name: value})
    with pytest.raises(ValueError, match=rf"^{name} must be"):
        hostile.fit(X, Y)
    with pytest.raises(NotFittedError):
        check_is_fitted(hostile)


def test_sound_values_are_taken():
    for seed in (None, 0, np.int64(3), np.random.default_rng(0), np.random.RandomState(0)):
        CRFTagger(random_state=seed, verbose=False, boundaries=np.bool_(False)).fit(X, Y)


def test_partial_fit_refuses_early_stopping():
    tagger = CRFTagger(early_stopping=True)
    with pytest.raises(ValueError, match="early_stopping=False"):
        tagger.partial_fit([np.eye(2)], [["a", "b"]], classes=["a", "b"])
    assert not hasattr(tagger, "coef_")

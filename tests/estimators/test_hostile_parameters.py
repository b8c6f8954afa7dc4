"""Values that no parameter may have are refused by name, before any work, by every estimator."""

import inspect

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.validation import check_is_fitted

from sklseq import (
    ConformalTagger,
    CRFTagger,
    HMSVMTagger,
    SegmentReranker,
    SemiCRFSegmenter,
    ZScoreTagger,
    ZScoreTaggerCV,
)
from sklseq.features import DictFeatures, TemplateFeatures, TokenFeatures, WindowFeatures

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
    with pytest.raises(AttributeError, match="early_stopping=False"):
        tagger.partial_fit([np.eye(2)], [["a", "b"]], classes=["a", "b"])
    assert not hasattr(tagger, "coef_")


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (HMSVMTagger(C=10**400), "^C must be"),
        (HMSVMTagger(C=-(10**30)), "^C must be"),
        (HMSVMTagger(C=-np.inf), "^C must be"),
        (HMSVMTagger(tol=10**400), "^tol must be a finite number"),
        (CRFTagger(l2=10**400), "^l2 must be a finite number"),
        (ZScoreTagger(l2=10**400), "^l2 must be a finite number"),
        (ConformalTagger(scheme="nonsense"), "^scheme must be None or one of 'iob1', "),
        (ConformalTagger(scheme=5), "^scheme must be None or one of"),
        (SemiCRFSegmenter(constraints={}), "^constraints must be None or a list of forbidden"),
        (SemiCRFSegmenter(constraints={("O", "x"): 1}), "^constraints must be None or a list"),
        (SemiCRFSegmenter(constraints=b"ab"), "^constraints must be None or a list of forbidden"),
    ],
)
def test_numbers_of_any_size_and_names_are_checked(estimator, message):
    with pytest.raises(ValueError, match=message):
        estimator.fit(X, Y)


def test_large_integers_are_numbers():
    assert HMSVMTagger(C=10**30, max_iter=1, tol=1e6).fit(X, Y).predict(X) is not None
    expected = SemiCRFSegmenter().fit(X, Y).predict_nbest(X, 3)
    for longest in (100, 2**31, 2**63, 10**30):  # of memory that does not depend on them
        found = SemiCRFSegmenter(max_segment_length=longest).fit(X, Y).predict_nbest(X, 3)
        for (paths, scores), (paths_, scores_) in zip(found, expected):
            assert paths == paths_
            np.testing.assert_allclose(scores, scores_, rtol=1e-9)


@pytest.mark.parametrize("y", [None, 5, "ab", {"a": 1}])
def test_labels_are_a_list(y):
    with pytest.raises(TypeError, match=f"y must be a list of label .*; got {type(y).__name__}"):
        ConformalTagger(CRFTagger()).fit(X, y)
    with pytest.raises(ValueError, match=f"y must be a list of segm.*; got {type(y).__name__}"):
        SegmentReranker(SemiCRFSegmenter()).fit(X, y)


def test_ridges_are_counted():
    counted, listed = ZScoreTaggerCV(l2s=5).fit(X, Y), ZScoreTaggerCV().fit(X, Y)
    np.testing.assert_allclose(counted.cv_scores_, listed.cv_scores_, rtol=1e-12)
    assert counted.l2_ == pytest.approx(listed.l2_)
    for wrong in (0, -1, True, 2.5):
        with pytest.raises(ValueError, match=r"l2s must be a list .* or the number of values"):
            ZScoreTaggerCV(l2s=wrong).fit(X, Y)


LONG = "z" * 1_000_000
LONG_VALUES = [
    (DictFeatures(), [[{LONG: (1, 2)}]]),
    (DictFeatures(), [[{LONG: np.nan}]]),
    (DictFeatures(), [[{"a": {"b": (LONG,)}}]]),
    (DictFeatures(), [[{(LONG,): 1}]]),
    (DictFeatures(), [[[(LONG,)]]]),
    (DictFeatures(), [[LONG]]),
    (TokenFeatures(columns=["c0"]), [[("a", "b"), LONG]]),
    (TokenFeatures(columns=["w"]), [[{"w": [LONG]}]]),
    (TokenFeatures(columns=["w"]), [[{"w": "a"}, {"v": LONG}]]),
    (CRFTagger(constraints=LONG), X),
    (CRFTagger(constraints=[(LONG, "O")]), X),
    (CRFTagger(constraints=[("O", LONG, "O")]), X),
    (SemiCRFSegmenter(constraints=[(LONG, "O")]), X),
    (CRFTagger(l2=LONG), X),
    (CRFTagger(solver=LONG), X),
    (HMSVMTagger(C=LONG), X),
    (ConformalTagger(scheme=LONG), X),
    (ZScoreTaggerCV(l2s=LONG), X),
]


@pytest.mark.parametrize(("estimator", "X"), LONG_VALUES, ids=lambda x: type(x).__name__)
def test_messages_do_not_echo_long_values(estimator, X):
    with pytest.raises(ValueError, match=r"z{50}|b': \('z|\[?'?z") as caught:
        estimator.fit(X, Y)
    assert len(str(caught.value)) < 400


def test_messages_do_not_echo_long_labels():
    y = [[LONG, LONG], [LONG]]
    for estimator in (CRFTagger(), HMSVMTagger(), ZScoreTagger()):
        with pytest.warns(UserWarning, match="one label only") as caught:
            estimator.fit(X, y)
        assert all(len(str(one.message)) < 400 for one in caught)


@pytest.mark.filterwarnings("ignore:y holds one label only")
@pytest.mark.parametrize(
    "constraints",
    ["iob2", [(LONG, LONG)], [(None, LONG)], [(LONG, None)], [("q", "O")]],
    ids=range(5),
)
def test_constraints_do_not_echo_long_labels(constraints):
    with pytest.raises(ValueError, match=r"'z{50}") as caught:
        CRFTagger(constraints=constraints).fit(X, [[LONG, LONG], [LONG]])
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("at", [0, 1])
def test_an_iterator_among_lists_is_named(at):
    tagger = make_pipeline(WindowFeatures(TokenFeatures()), CRFTagger()).fit(
        [["a", "b"]], [["x", "y"]]
    )
    words = [["a"], ["a", "b"]]
    words[at] = (word for word in words[at])
    message = rf"^Sequence {at} of X is an iterator \(generator\), but sequence {1 - at} is a list"
    with pytest.raises(ValueError, match=message):
        tagger.predict(words)
    with pytest.raises(ValueError, match=rf"^Sequence {at} of X must be .* Read it into a list"):
        tagger.fit(words, [["x"], ["x", "y"]])

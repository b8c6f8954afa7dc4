"""Every estimator keeps the promises of sklseq.testing; broken ones are found out."""

import inspect

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.model_selection import BaseCrossValidator
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import estimator_html_repr
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.fixes import parse_version

import sklseq
import sklseq.features
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
    testing,
)
from sklseq.features import (
    LexiconFeatures,
    PerToken,
    SegmentFeatures,
    TemplateFeatures,
    TokenFeatures,
    WindowFeatures,
)
from sklseq.testing import check_sequence_estimator, sequence_checks


class OneFold(BaseCrossValidator):
    """Trains and tests on all sequences: the checks also pass single ones."""

    def get_n_splits(self, X=None, y=None, groups=None):
        return 1

    def split(self, X, y=None, groups=None):
        yield np.arange(len(X)), np.arange(len(X))


# One line an estimator: what to check, and what cannot hold for it.
SUBJECTS = {
    "CRFTagger": (CRFTagger(l2=0.1), ()),
    "CRFTagger as it is": (CRFTagger(), ()),
    "CRFTagger l1": (CRFTagger(l1=0.01, l2=0.01, n_jobs=2), ()),
    # tol: with duplicates the order of visits is another, so the end is another point within tol.
    "CRFTagger eg": (CRFTagger(l2=0.1, solver="eg", tol=1e-8), ()),
    "HMSVMTagger": (HMSVMTagger(), ()),
    "ZScoreTagger": (ZScoreTagger(), ()),
    "ZScoreTagger rbf": (ZScoreTagger(kernel="rbf", transitions="information"), ()),
    "ZScoreTagger refined": (ZScoreTagger(refine=3), ()),
    "ZScoreTagger sampling": (ZScoreTagger(moments="sampling", random_state=0), ()),
    "ZScoreTaggerCV": (ZScoreTaggerCV(l2s=[0.1, 1.0]), ()),
    "CRFTaggerCV": (CRFTaggerCV(l2s=[0.1, 1.0], cv=OneFold()), ()),
    "HMSVMTaggerCV": (HMSVMTaggerCV(Cs=[0.01, 0.1], cv=OneFold()), ()),
    "HMSVMTagger rbf": (HMSVMTagger(kernel="rbf"), ()),
    "SemiCRFSegmenter": (SemiCRFSegmenter(l2=0.1), ()),
    "SemiCRFSegmenter l1": (SemiCRFSegmenter(l1=0.01, l2=0.01, max_segment_length=9, n_jobs=2), ()),
    "SegmentReranker": (SegmentReranker(SemiCRFSegmenter(l2=0.1), cv=2, text=False), ()),
    "OnlineDecoder": (OnlineDecoder(CRFTagger(l2=0.1)), ()),
    "ConformalTagger": (ConformalTagger(CRFTagger(l2=0.1), alpha=0.6, calibration=OneFold()), ()),
    "OnlineDecoder of segments": (
        OnlineDecoder(SemiCRFSegmenter(l2=0.1), strategy="closure"),
        ("labels_of_any_type",),  # a segmenter's labels are strings
    ),
    "TokenFeatures": (TokenFeatures(), ()),
    "TokenFeatures hashed": (TokenFeatures(n_features=64), ()),
    "WindowFeatures": (
        WindowFeatures(TokenFeatures(), conjoin=["w.lower[-1]|w.lower[0]"], min_count=2),
        (),
    ),
    "TemplateFeatures": (TemplateFeatures(["w[0]", "w[-1]|w[1]"]), ()),
    "LexiconFeatures": (LexiconFeatures({"x": ["a1 b1", "b1"], "y": ["c0"]}), ()),
    "SegmentFeatures": (
        SegmentFeatures(
            WindowFeatures(TokenFeatures()), first=2, shape=True, lexicons={"x": ["a1 b1", "b1"]},
            max_length=3,
        ),
        (),
    ),
    "PerToken tokens": (PerToken(OneHotEncoder(handle_unknown="ignore")), ()),
    "FeatureUnion": (
        make_pipeline(make_union(TokenFeatures(), WindowFeatures(TokenFeatures())), CRFTagger()),
        # FeatureUnion itself makes tables, and refuses sparse rows as anywhere in scikit-learn.
        ("settings_of_output_do_not_break_it",),
    ),
    "pipeline": (make_pipeline(WindowFeatures(TokenFeatures()), CRFTagger(l2=0.1)), ()),
    "segments": (
        make_pipeline(
            SegmentFeatures(TokenFeatures(), max_length=3),
            SemiCRFSegmenter(l2=0.01),
        ),
        ("labels_of_any_type",),  # a Pipeline hides that its last step reads segments
    ),
    "numbers": (make_pipeline(PerToken(StandardScaler()), WindowFeatures(), CRFTagger()),
                ("sparse_inputs_may_be_read_only",  # StandardScaler refuses sparse rows
                 "dense_sparse_packed_and_dicts_are_equal",
                 "nan_and_infinity_are_errors")),  # and names no sequence
}  # fmt: skip


def cases():
    return [
        pytest.param(check, id=f"{name}-{check_name}")
        for name, (estimator, exclude) in SUBJECTS.items()
        for check_name, check in sequence_checks(
            estimator, data="rows" if name == "numbers" else "auto", exclude=exclude
        )
    ]


@pytest.mark.parametrize("check", cases())
def test_contract(check):
    check()


def test_every_public_estimator_is_checked():
    checked = {type(estimator) for estimator, _ in SUBJECTS.values()}
    checked |= {type(step) for e, _ in SUBJECTS.values() for _, step in getattr(e, "steps", [])}
    checked.add(sklseq.features.DictFeatures)  # by CRFTagger on dicts, and its own tests
    for module in (sklseq, sklseq.features):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and issubclass(value, BaseEstimator):
                assert value in checked, f"add {name} to SUBJECTS"


LEARNERS = [name for name, (estimator, _) in SUBJECTS.items() if hasattr(estimator, "predict")]


@pytest.mark.parametrize("name", LEARNERS)
def test_the_diagram_of_a_fitted_estimator_is_escaped_and_names_what_was_learned(name):
    estimator = SUBJECTS[name][0]
    X = [["a0", "b0", "a1"], ["b1", "a0"], ["a1", "b1", "c0"], ["b0", "c0"]]
    y = [["B-<i>x", "I-<i>x", "O"], ["O", "B-<i>x"], ["B-<i>x", "O", "O"], ["O", "O"]]
    if name == "numbers":
        X = [[[len(w), int(w[1])] for w in x] for x in X]
    elif not hasattr(estimator, "steps"):
        X = [[{word: 1.0} for word in x] for x in X]
    fitted = clone(estimator).fit(X, y)
    before = estimator_html_repr(estimator)
    html = estimator_html_repr(fitted)
    assert type(fitted).__name__ in html
    assert "<i>x" not in html
    if parse_version(sklearn.__version__) >= parse_version("1.9"):  # shows fitted attributes itself
        assert "Fitted attributes" in html
        assert "Fitted attributes" not in before


# --- The checks find what they are for ----------------------------------------------------------


class Remembers(CRFTagger):
    """Answers depend on what was fitted before."""

    def fit(self, X, y, sample_weight=None):
        before = getattr(self, "coef_", None)
        super().fit(X, y, sample_weight)
        if before is not None and before.shape == self.coef_.shape:
            self.coef_ = self.coef_ + before
        return self


class IgnoresWeights(CRFTagger):
    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y)


class ChangesInput(CRFTagger):
    def predict(self, X):
        out = super().predict(X)
        if isinstance(X, list) and X and isinstance(X[0], np.ndarray) and X[0].flags.writeable:
            X[0][:] = 0
        return out


class ChangesParameters(CRFTagger):
    def fit(self, X, y, sample_weight=None):
        super().fit(X, y, sample_weight)
        self.l2 = 2 * self.l2
        return self


class SquareAnswers(CRFTagger):
    """A 2-D array where all sequences are equally long."""

    def predict(self, X):
        out = super().predict(X)
        lengths = {len(p) for p in out}
        return np.array(list(out)) if len(lengths) == 1 else out


class StopsAtTheFirst(CRFTagger):
    """Later sequences are read in the light of earlier ones."""

    def predict(self, X):
        out = super().predict(X)
        for s in range(1, len(out)):
            if len(out[s]) and len(out[s - 1]):
                out[s] = [out[s - 1][-1], *out[s][1:]]
        return out


class NoUnderscore(CRFTagger):
    def fit(self, X, y, sample_weight=None):
        super().fit(X, y, sample_weight)
        self.rows = len(X)
        return self


class LeaksOverBoundaries(TokenFeatures):
    def transform(self, X):
        out = super().transform(X)
        rows = out.rows.tolil()
        rows[1:] = rows[1:] + rows[:-1] if rows.shape[0] > 1 else rows[1:]
        return out.with_rows(rows.tocsr())


@pytest.mark.parametrize(
    ("broken", "check"),
    [
        (Remembers(l2=0.1), "refit_equals_fit"),
        (IgnoresWeights(l2=0.1), "weight_0_is_removal_and_weight_2_duplication"),
        (IgnoresWeights(l2=0.1), "bad_weights_are_errors"),
        (ChangesInput(l2=0.1), "inputs_are_not_changed"),
        (ChangesParameters(l2=0.1), "fit_changes_no_parameter"),
        (SquareAnswers(l2=0.1), "equal_lengths_are_nothing_special"),
        (StopsAtTheFirst(l2=0.1), "order_of_sequences_is_irrelevant"),
        (StopsAtTheFirst(l2=0.1), "each_sequence_is_answered_alone"),
        (NoUnderscore(l2=0.1), "attributes_end_in_an_underscore"),
        (LeaksOverBoundaries(), "each_sequence_is_answered_alone"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_broken_estimators_are_found_out(broken, check):
    checks = dict(sequence_checks(broken))
    with pytest.raises(AssertionError):
        checks[check]()
    with pytest.raises(AssertionError, match=f"^{type(broken).__name__}: "):
        check_sequence_estimator(broken)


def test_exclude_names_checks():
    names = {name for name, _ in sequence_checks(CRFTagger())}
    assert "refit_equals_fit" in names
    assert "refit_equals_fit" not in dict(
        sequence_checks(CRFTagger(), exclude=["refit_equals_fit"])
    )
    with pytest.raises(ValueError, match=r"exclude names \['no_such'\]"):
        sequence_checks(CRFTagger(), exclude=["no_such"])
    assert len(testing.CHECKS) >= 25


# --- scikit-learn's own checks ------------------------------------------------------------------


class OneRowEach(CRFTagger):
    """CRFTagger as an ordinary estimator of arrays: each row is a sequence of one.

    scikit-learn's checks give one 2-D array and one label a row.
    """

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        return tags

    def fit(self, X, y, sample_weight=None):
        labels = y if y is None else [[label] for label in np.asarray(y).tolist()]
        return super().fit(_one_row_each(X), labels, sample_weight)

    def partial_fit(self, X, y, classes=None, sample_weight=None):
        labels = y if y is None else [[label] for label in np.asarray(y).tolist()]
        return super().partial_fit(_one_row_each(X), labels, classes, sample_weight)

    def _read(self, X, **options):
        return super()._read(_one_row_each(X), **options)

    def predict(self, X):
        return np.concatenate(super().predict(X))

    def predict_proba(self, X):
        return np.concatenate(super().predict_proba(X))

    def score(self, X, y, sample_weight=None):
        return np.average(self.predict(X) == y, weights=sample_weight)


def _one_row_each(X):
    if not hasattr(X, "tocsr") and hasattr(X, "__array__"):
        X = np.asarray(X)
    if not hasattr(X, "shape") or len(X.shape) != 2:
        return X
    X = X.tocsr() if hasattr(X, "tocsr") else np.asarray(X)
    return [X[i : i + 1] for i in range(X.shape[0])]


# Every check of scikit-learn that OneRowEach is expected to fail, and why.
# What passes again must leave the list.
KNOWN = inspect.signature(parametrize_with_checks).parameters  # scikit-learn >= 1.8 can be strict
STRICT = {"xfail_strict": True} if "xfail_strict" in KNOWN else {}
WORDING = "our sentence, which names sequence and row, is not scikit-learn's"
EXPECTED_FAILURES = {
    "check_complex_data": WORDING,
    "check_dict_unchanged": "the first prediction keeps a padded copy of the weights",
    "check_dtype_object": "an array of objects is a list of sequences",
    "check_estimator_sparse_array": "takes whatever has predict_proba for a classifier",
    "check_estimator_sparse_matrix": "takes whatever has predict_proba for a classifier",
    "check_estimators_empty_data_messages": WORDING,
    "check_estimators_nan_inf": WORDING,
    "check_fit2d_predict1d": WORDING,
    "check_n_features_in_after_fitting": WORDING,
    "check_requires_y_none": WORDING,
}


@parametrize_with_checks(
    [OneRowEach(l2=0.1, max_iter=20)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES,
    **STRICT,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:.*have a mean far from zero:UserWarning")
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def test_decomposition_inside_a_contract():
    check_sequence_estimator(
        make_pipeline(WindowFeatures(TokenFeatures()), PerToken(PCA(8)), CRFTagger()),
        exclude=["empty_sequences_give_empty_answers"],
    )


def test_unknown_data_of_checks_is_refused():
    with pytest.raises(ValueError, match=r"data must be .*; got 'images'"):
        check_sequence_estimator(CRFTagger(), data="images")

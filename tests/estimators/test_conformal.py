"""Conformal label sets: the quantile, coverage over many draws, units, hostile input."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline

from sklseq import ConformalTagger, CRFTagger, HMSVMTagger
from sklseq.datasets import make_contacts
from sklseq.features import TemplateFeatures


class Known(BaseEstimator):
    """Rows are the probabilities of their labels."""

    def __init__(self, n_labels=3):
        self.n_labels, self.classes_, self.is_fitted_ = n_labels, np.arange(n_labels), True

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return list(X)


def draw(rng, n, n_labels=3, longest=9):
    """Sequences of dependent rows: a sequence is easy or hard as a whole."""
    X, y = [], []
    for _ in range(n):
        T, sharp = int(rng.integers(0, longest)), rng.choice([0.3, 3.0])
        P = rng.dirichlet(np.full(n_labels, 1 / sharp), T)
        X.append(P)
        wrong = rng.random() < 0.3  # a model that is wrong for whole sequences
        y.append([int(rng.choice(n_labels, p=p[::-1] if wrong else p)) for p in P])
    return X, y


def calibrated(X, y, weights=None, **parameters):
    return ConformalTagger(FrozenEstimator(Known()), **parameters).fit(X, y, weights)


@pytest.mark.parametrize("by", ["token", "sequence"])
@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_the_threshold_is_the_smallest_that_controls_the_risk(by, alpha):
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X, y = draw(rng, 40)
        weights = rng.choice([0.5, 1.0, 3.0], 40) if seed % 2 else np.ones(40)
        tagger = calibrated(X, y, weights if seed % 2 else None, by=by, alpha=alpha)
        scores = [1 - x[np.arange(len(t)), t] for x, t in zip(X, y) if len(t)]
        scores = [[s.max()] for s in scores] if by == "sequence" else scores
        weights = weights[[len(t) > 0 for t in y]]

        def risks(missed):  # of each sequence
            return weights * [m.sum() - alpha * len(m) for m in missed]  # noqa: B023

        for q in np.unique(np.concatenate(scores)):
            above = risks([np.greater(s, q) for s in scores])
            worst = risks([np.greater_equal(s, q) for s in scores]).max()
            assert (above.sum() + worst <= 1e-9) == (q >= tagger.threshold_)
        copies = calibrated(X * 3, y * 3, by=by, alpha=alpha)
        assert copies.threshold_ <= calibrated(X, y, by=by, alpha=alpha).threshold_


@pytest.mark.parametrize("by", ["token", "span", "sequence"])
def test_coverage_over_many_draws(by):
    # E[missed - alpha * units] <= 0 for a new sequence; not far below.
    rng, excess, n = np.random.default_rng(0), [], 0
    for _ in range(80):
        tagger = calibrated(*draw(rng, 60), by=by, alpha=0.2, scheme="runs")
        X, y = draw(rng, 10)
        report = tagger.coverage_report(X, y)
        excess.append(report.n_units * (1 - report.coverage - 0.2))
        n += report.n_units
    error = np.std(excess) * np.sqrt(len(excess)) / n
    assert sum(excess) / n < 2.5 * error
    assert sum(excess) / n > -0.04 - 2.5 * error


def test_spans_are_covered_where_all_their_rows_are():
    y = [[0, 1, 1, 2, 2, 2]]
    proba = np.full((6, 3), 0.3)
    proba[np.arange(6), y[0]] = [0.9, 0.8, 0.4, 0.7, 0.35, 0.6]
    tagger = calibrated([proba] * 60, y * 60, by="span", alpha=0.5, scheme="runs")
    # Spans are missed below 0.9, 0.4 and 0.35: half of them may be, the largest units counted.
    assert tagger.threshold_ == 1 - 0.4
    report = tagger.coverage_report([proba], y)
    assert report.n_units == 3
    assert report.coverage == 2 / 3


def test_empty_sets_and_sets_that_are_never_empty():
    X, y = [np.array([[0.6, 0.4, 0.0]])] * 49 + [np.array([[0.9, 0.1, 0.0]])] * 451, [[0]] * 500
    some = calibrated(X, y)
    assert some.threshold_ == pytest.approx(0.1)
    assert_array_equal(some.predict_sets(X[:1])[0], [[False] * 3])
    assert some.coverage_report(X, y) == (0.902, 0.902, 0.098, 500)
    all_ = calibrated(X, y, allow_empty=False)
    assert_array_equal(all_.predict_sets(X[:1])[0], [[True, False, False]])


def test_pipelines_searches_and_splitters():
    X, y = make_contacts(45, random_state=0)
    pipeline = make_pipeline(TemplateFeatures(["w[0]"]), CRFTagger(tol=0.1))
    search = GridSearchCV(pipeline, {"crftagger__l2": [0.1, 1.0]}, cv=2)
    tests = np.where(np.arange(45) % 3, -1, 0)
    for estimator in (pipeline, search):
        tagger = ConformalTagger(estimator, alpha=0.4, calibration=PredefinedSplit(tests)).fit(X, y)
        assert tagger.n_calibration_ == 15
        frozen = ConformalTagger(FrozenEstimator(tagger.estimator_), alpha=0.4).fit(X[::3], y[::3])
        assert frozen.threshold_ == tagger.threshold_
        again = pickle.loads(pickle.dumps(tagger))
        for one, other in zip(again.predict_sets(X), tagger.predict_sets(X), strict=True):
            assert_array_equal(one, other)
        assert tagger.score(X, y) == tagger.estimator_.score(X, y)
        assert tagger.predict(X) == tagger.estimator_.predict(X)
    assert ConformalTagger(pipeline, alpha=0.4).fit(X, y).n_calibration_ == 9
    assert clone(tagger).get_params()["alpha"] == 0.4


def test_weights_correct_other_proportions_of_sequences():
    # Hard sequences are half of those to calibrate with, and a tenth of new ones.
    rng, missed, plain = np.random.default_rng(0), [], []
    for _ in range(60):
        hard = rng.random(200) < 0.5
        P = np.where(hard, 0.5, 0.8) + rng.uniform(-0.1, 0.1, 200)
        X = [np.array([[p, 1 - p, 0]]) for p in P]
        y = [[int(rng.random() > p)] for p in P]
        new = rng.random(200) < np.where(hard, 0.1, 0.9)
        weights = np.where(hard, 0.1, 0.9)
        for given, found in ((weights, missed), (None, plain)):
            tagger = calibrated(X[:100], y[:100], None if given is None else given[:100])
            rest = [s for s in range(100, 200) if new[s]]
            report = tagger.coverage_report([X[s] for s in rest], [y[s] for s in rest])
            found.append(report.coverage)
    assert 0.89 < np.mean(missed) < 0.93
    assert np.mean(plain) < 0.87


def test_weights_are_those_of_training_too_and_are_routed():
    X, y = make_contacts(30, random_state=0)
    pipeline = make_pipeline(TemplateFeatures(["w[0]"]), CRFTagger(tol=0.1))
    weights = np.random.default_rng(0).choice([0.5, 2.0], 30)
    parts = PredefinedSplit(np.where(np.arange(30) % 3, -1, 0))
    options = {"alpha": 0.4, "calibration": parts}
    train, aside = [k for k in range(30) if k % 3], list(range(0, 30, 3))
    alone = clone(pipeline).fit(
        [X[s] for s in train], [y[s] for s in train], crftagger__sample_weight=weights[train]
    )
    expected = ConformalTagger(FrozenEstimator(alone), alpha=0.4)
    expected.fit([X[s] for s in aside], [y[s] for s in aside], weights[aside])
    search = GridSearchCV(pipeline, {"crftagger__l2": [0.1]}, cv=2)
    for estimator in (pipeline, search):
        tagger = ConformalTagger(estimator, **options).fit(X, y, weights)
        assert tagger.threshold_ == expected.threshold_
    with config_context(enable_metadata_routing=True):
        last = ConformalTagger(pipeline, **options).set_fit_request(sample_weight=True)
        routed = make_pipeline(last).fit(X, y, sample_weight=weights)[-1]
        assert routed.threshold_ == expected.threshold_
        score = routed.score(X, y, sample_weight=weights)
    assert score == pytest.approx(alone[-1].score(alone[:-1].transform(X), y, weights))
    arrays = ConformalTagger(pipeline, **options).set_output(predict="array").fit(X, y)
    assert {labels.dtype for labels in arrays.predict(X)} == {arrays.classes_.dtype}
    assert [labels.tolist() for labels in arrays.predict(X)] == arrays.estimator_.predict(X)


def test_too_few_sequences_and_new_labels_give_all_labels():
    X, y = draw(np.random.default_rng(0), 3)
    with pytest.warns(UserWarning, match="units are too few for alpha=0.01; calibrate with more"):
        tagger = calibrated(X, y, alpha=0.01)
    assert all(sets.all() for sets in tagger.predict_sets(X))
    X, y = draw(np.random.default_rng(0), 50)
    y = [[9 if t % 2 else label for t, label in enumerate(one)] for one in y]
    with pytest.warns(UserWarning, match="have a label that training did not have"):
        calibrated(X, y)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"alpha": 0}, "alpha must be a number between 0 and 1; got 0"),
        ({"alpha": "0.1"}, "alpha must be a number between 0 and 1"),
        ({"alpha": 1.5}, "alpha must be"),
        ({"calibration": 1}, "calibration must be a number .* or a splitter .*; got 1"),
        ({"by": "row"}, "by must be one of"),
        ({"allow_empty": 2}, "allow_empty must be True or False"),
    ],
)
def test_wrong_parameters(parameters, message):
    X, y = draw(np.random.default_rng(0), 30)
    with pytest.raises(ValueError, match=message):
        calibrated(X, y, **parameters)


def test_wrong_data():
    X, y = draw(np.random.default_rng(0), 30)
    with pytest.raises(ValueError, match="same number of sequences; got 30 in X and 29 in y"):
        calibrated(X, y[1:])
    with pytest.raises(ValueError, match="same number of sequences; got 30 in X and 29 in y"):
        ConformalTagger().fit(X, y[1:])
    s = next(s for s, one in enumerate(y) if one)
    with pytest.raises(ValueError, match=f"Sequence {s} has .* rows in X but .* labels in y"):
        calibrated(X, [*y[:s], y[s][1:], *y[s + 1 :]])
    with pytest.raises(ValueError, match="leaves 0 of 1 sequences to train on and 1 to calibrate"):
        ConformalTagger().fit([np.eye(3)], [[0, 1, 2]])
    with pytest.raises(TypeError, match="HMSVMTagger has no predict_proba; use a CRFTagger"):
        ConformalTagger(HMSVMTagger()).fit([np.eye(3)] * 9, [[0, 1, 2]] * 9)
    with pytest.raises(ValueError, match="y holds no token"):
        calibrated(X, y).coverage_report([], [])


def test_calibration_needs_sequences():
    X, y = draw(np.random.default_rng(0), 30)
    frozen = FrozenEstimator(CRFTagger().fit(X, y))
    with pytest.raises(ValueError, match="X holds no sequences to calibrate with"):
        ConformalTagger(frozen).fit([], [])


def test_the_scale_of_weights_does_not_matter_and_weight_0_does_not_count():
    X, y = draw(np.random.default_rng(0), 60)
    plain = calibrated(X, y, alpha=0.3).threshold_
    for scale in (1e-300, 1e308):
        assert calibrated(X, y, np.full(60, scale), alpha=0.3).threshold_ == plain
    with pytest.raises(ValueError, match="to calibrate with must have a positive entry"):
        calibrated(X, y, np.zeros(60))
    weights = np.array([float(not labels) for labels in y])  # only sequences without rows
    with pytest.warns(UserWarning, match="All label sets hold all labels"):
        assert calibrated(X, y, weights).threshold_ == np.inf


@pytest.mark.parametrize("alpha", [0.1, 0.3])
@pytest.mark.parametrize("by", ["token", "span"])
@pytest.mark.parametrize("weight", [1e-12, 1.0, 1e12, 1e300])
def test_the_weight_of_a_sequence_without_units_does_not_matter(by, alpha, weight):
    X, y = draw(np.random.default_rng(1), 80)
    parameters = {"by": by, "alpha": alpha, "scheme": "runs"}
    plain = calibrated(X, y, **parameters).threshold_
    assert 0 < plain < np.inf
    weights = np.append(np.full(80, 1e-20), weight)
    more = calibrated([*X, np.zeros((0, 3))], [*y, []], weights, **parameters)
    assert more.threshold_ == plain


@pytest.mark.parametrize("by", ["token", "sequence"])
def test_sequences_of_weight_0_are_left_out(by):
    X, y = make_contacts(20, random_state=1)
    weights = np.random.default_rng(0).choice([0.0, 1.0, 2.0], 20)
    kept = np.flatnonzero(weights)
    some = [X[s] for s in kept], [y[s] for s in kept], weights[kept]
    model = make_pipeline(TemplateFeatures(["w[0]"]), CRFTagger(l2=0.1))
    whole = ConformalTagger(model, by=by, alpha=0.2).fit(X, y, weights)
    part = ConformalTagger(model, by=by, alpha=0.2).fit(*some)
    assert whole.threshold_ == part.threshold_
    assert whole.n_calibration_ == part.n_calibration_
    frozen = FrozenEstimator(model.fit(X, y))
    whole = ConformalTagger(frozen, by=by, alpha=0.2).fit(X, y, weights)
    part = ConformalTagger(frozen, by=by, alpha=0.2).fit(*some)
    assert whole.threshold_ == part.threshold_
    assert whole.n_calibration_ == part.n_calibration_ == len(kept)


@pytest.mark.parametrize("by", ["token", "span", "sequence"])
def test_no_rows_at_all(by):
    with pytest.warns(UserWarning, match="All label sets hold all labels"):
        assert calibrated([np.zeros((0, 3))], [[]], by=by).threshold_ == np.inf


def test_rules_of_valid_labels_are_for_the_tagger():
    X, y = [[["New"], ["York"], ["New"], ["York"]]] * 4, [["B-c", "I-c", "B-c", "I-c"]] * 4
    tagger = CRFTagger(l2=0.1).fit(X, y)
    for model in (tagger, make_pipeline(tagger)):
        sets = ConformalTagger(FrozenEstimator(model)).fit(X, y)
        once = sets.predict(X, valid="once")
        assert once == tagger.predict(X, valid="once") != tagger.predict(X) == sets.predict(X)
        kept = sets.predict(X, valid=lambda _: False, handle_invalid="best")
        assert kept == tagger.predict(X)
    search = GridSearchCV(CRFTagger(), {"l2": [0.1]}, cv=2).fit(X, y)
    with pytest.raises(ValueError, match="GridSearchCV takes no valid; leave it out"):
        ConformalTagger(FrozenEstimator(search)).fit(X, y).predict(X, valid="once")

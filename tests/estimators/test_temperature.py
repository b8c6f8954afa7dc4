"""Calibration of a segmenter by a temperature, fitted to the segments of left-out folds."""

from copy import copy

import numpy as np
import pytest
from sklearn.model_selection import KFold

from sklseq import SemiCRFSegmenter, labels_to_segments
from sklseq.datasets import make_citations
from sklseq.estimators.semicrf import temperature
from sklseq.features import SegmentFeatures, TokenFeatures

WEIGHTS = "coef_", "transition_", "start_", "end_"


@pytest.fixture(scope="module")
def data():
    X, y = make_citations(330, random_state=3)
    features = SegmentFeatures(TokenFeatures(prefixes=0, suffixes=0), max_length=2, min_count=2)
    potentials = features.fit(X[:30]).transform(X)
    y = [labels_to_segments(labels) for labels in y]
    return potentials[:30], y[:30], potentials[30:], y[30:]


def scaled(model, divisor):
    for name in WEIGHTS:
        setattr(model, name, getattr(model, name) / divisor)
    return model


def told(model, X, y):
    """Probabilities of the predicted segments, and whether they are right."""
    found = model.predict_spans(X)
    pairs = [(s.probability, tuple(s[:3]) in true) for one, true in zip(found, y) for s in one]
    return np.array(pairs).T


def calibration_error(proba, right, n_bins=10):
    bins = np.minimum((proba * n_bins).astype(int), n_bins - 1)
    gaps = np.bincount(bins, proba - right, minlength=n_bins)
    return np.abs(gaps).sum() / len(proba)


@pytest.mark.parametrize("loss", ["log", "softmax-margin"])
def test_weights_are_divided_by_the_temperature_of_least_log_loss(data, loss):
    X, y, _, _ = data
    weights = np.random.default_rng(0).choice([0.2, 5.0], size=len(y))
    plain = SemiCRFSegmenter(l2=1.0, tol=1e-6, loss=loss).fit(X, y, weights)
    model = SemiCRFSegmenter(l2=1.0, tol=1e-6, loss=loss, calibrate=3).fit(X, y, weights)
    assert plain.temperature_ == 1
    for name in WEIGHTS:
        np.testing.assert_allclose(
            getattr(model, name) * model.temperature_, getattr(plain, name), rtol=1e-12, atol=0
        )
    assert list(model.predict(X)) == list(plain.predict(X))

    folds = []
    for train, test in KFold(3, shuffle=True, random_state=0).split(y):
        part = SemiCRFSegmenter(l2=1.0, tol=1e-6, loss=loss)
        folds.append((part.fit(X[train], [y[s] for s in train], weights[train]), test))

    def log_loss(divisor):
        parts = []
        for part, test in folds:
            model = scaled(copy(part), divisor)
            for s in test:
                proba, right = told(model, X[[s]], [y[s]])
                parts.append([proba, right, np.full(len(proba), weights[s])])
        proba, right, weight = np.concatenate(parts, axis=1)
        n_right, n_wrong = weight @ right, weight @ (1 - right)
        target = np.where(right == 1, 1 - 1 / (n_right + 2), 1 / (n_wrong + 2))
        return -weight @ (target * np.log(proba) + (1 - target) * np.log1p(-proba))

    T = model.temperature_
    least = log_loss(T)
    assert least < log_loss(0.95 * T)
    assert least < log_loss(1.05 * T)
    assert least < log_loss(1)


def test_folds_with_all_labels_start_from_the_weights_of_all_sequences(data, monkeypatch):
    X, y, _, _ = data
    models, program_of = [], temperature.program_of

    def watched(model, *args):
        models.append(model)
        return program_of(model, *args)

    monkeypatch.setattr(temperature, "program_of", watched)
    model = SemiCRFSegmenter(calibrate=2).fit(X, y)
    plain = SemiCRFSegmenter().fit(X, y)
    squares = sum((getattr(plain, name) ** 2).sum() for name in WEIGHTS)
    folds, warm = KFold(2, shuffle=True, random_state=0).split(y), 0
    for (train, _), part in zip(folds, models, strict=True):
        log_p = plain.predict_log_proba_sequence(X[train], [y[s] for s in train])
        start = model.l2 * squares - log_p.sum()
        if len(part.classes_) == len(model.classes_):
            # Without the penalty of columns that the fold does not have.
            assert 0.9 * start < part.loss_curve_[0] <= start
            warm += 1
        else:  # weights of all labels do not fit: from zero
            assert part.loss_curve_[0] > 10 * start
    assert warm == 1


def test_probabilities_of_new_sequences_are_calibrated(data):
    X, y, new, true = data
    before = told(SemiCRFSegmenter(l2=3.0).fit(X, y), new, true)
    after = told(SemiCRFSegmenter(l2=3.0, calibrate=5).fit(X, y), new, true)
    assert calibration_error(*before) > 0.15
    assert calibration_error(*after) < 0.05


def test_sequences_of_weight_0_and_weights_of_others(data):
    X, y, _, _ = data
    few = SemiCRFSegmenter(calibrate=2).fit(X[:20], y[:20]).temperature_
    weights = np.repeat([1.0, 0.0], [20, 10])
    assert SemiCRFSegmenter(calibrate=2).fit(X, y, weights).temperature_ == few
    weights[:10] = 3
    assert SemiCRFSegmenter(calibrate=2).fit(X, y, weights).temperature_ != few


def test_a_temperature_stays_finite_where_all_segments_are_right():
    X, y = [[["in"], ["New"], ["York"]]] * 6, [[(1, 3, "city")]] * 6
    assert 0.1 < SemiCRFSegmenter(l2=0.1, calibrate=3).fit(X, y).temperature_ < 10
    assert 0.1 < SemiCRFSegmenter(calibrate=3).fit(X, [[], y[0]] * 3).temperature_ < 10


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"calibrate": 1},
            "^calibrate must be None, .loo. or a number of folds of at least 2; got 1",
        ),
        ({"calibrate": 2.0}, r"^calibrate must be .* got 2\.0"),
        ({"calibrate": 31}, "^calibrate=31 folds need as many sequences of a weight .*; got 30"),
        ({"calibrate": 2, "loss": "hinge"}, "^loss='hinge' has no probabilities to calibrate"),
    ],
)
def test_wrong_folds_are_refused(data, parameters, message):
    model = SemiCRFSegmenter(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(*data[:2])
    assert not hasattr(model, "classes_")

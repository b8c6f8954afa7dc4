"""The temperature of a segmenter from sequences that are left out approximately, without fits."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from sklseq import SegmentPotentials, SemiCRFSegmenter, labels_to_segments
from sklseq.datasets import make_citations
from sklseq.estimators.semicrf import left_out
from sklseq.estimators.semicrf.segment_problem import SegmentProblem
from sklseq.estimators.semicrf.segment_program import segment_sums
from sklseq.estimators.semicrf.segment_source import SegmentSource
from sklseq.features import SegmentFeatures, TokenFeatures
from tests.estimators.test_semicrf import problem
from tests.estimators.test_temperature import calibration_error, told

WEIGHTS = "coef_", "transition_", "start_", "end_"


@pytest.fixture(scope="module")
def data():
    X, y = make_citations(330, random_state=3)
    features = SegmentFeatures(TokenFeatures(prefixes=0, suffixes=0), max_length=2, min_count=2)
    potentials = features.fit(X[:30]).transform(X)
    y = [labels_to_segments(labels) for labels in y]
    return potentials[:30], y[:30], potentials[30:], y[30:]


def trained(X, y, weights=None, **parameters):
    """(segmenter, its problem, its weights)."""
    model = SemiCRFSegmenter(**parameters)
    part = SegmentProblem(model, SegmentSource.read(X, y, weights, "O"))
    return model, part, part.solve().w


def scores_without(model, part, w):
    return left_out._left_out_scores(model, part, w, left_out.distinct_sequences(part))


def left_out_by_sequence(part, w, marginals, ridge):
    """Changes of the scores of cells, sequence by sequence with dense rows."""
    rows, plan, label = part.data.rows.rows.toarray(), part.data.plan, part.data.label
    bounds = list(zip(plan.cells[:-1], plan.cells[1:]))
    gradients, curvatures = [], []
    for (a, b), weight in zip(bounds, part.source.weights):
        x, p = rows[a:b], marginals[a:b]
        true = (label[a:b, None] == np.arange(p.shape[1])).astype(float)
        gradients.append(weight * x.T @ (p - true))
        variances = weight * (x**2).T @ (p * (1 - p))
        curvatures.append(np.maximum(variances, gradients[-1] ** 2 / weight))
    out = np.zeros_like(marginals)
    for s, (a, b) in enumerate(bounds):
        others = sum(h for r, h in enumerate(curvatures) if r != s)
        out[a:b] = rows[a:b] @ (gradients[s] / (ridge + left_out.REDUNDANCY * others))
    return out


@pytest.mark.parametrize("loss", ["log", "softmax-margin"])
def test_changes_are_those_of_the_formula_one_sequence_at_a_time(loss):
    X, y = problem(1, n_sequences=9, dense=False)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 3.0], size=9)
    model, part, w = trained(X, y, weights, l2=0.3, loss=loss)
    plan, L, scores = part.data.plan, part.scores.n_labels, part.scores
    psi = np.empty((plan.n_cells, plan.width))
    scores.design.scores(scores.design.weights(scores.state(w)), 0, plan.n_cells, psi)
    margin = left_out.token_loss(part.data, L) if loss == "softmax-margin" else 0
    chain = left_out._chain(part, w, X)
    marginals = segment_sums(plan, psi + margin, chain)[2]
    expected = psi[:, :L] + left_out_by_sequence(part, w, marginals, 2 * 0.3)
    found = scores_without(model, part, w)[:, :L]
    assert abs(found - psi[:, :L]).max() > 0.1
    assert_allclose(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", ["log", "softmax-margin"])
@pytest.mark.parametrize("columns", [None, [0, 1]])
def test_a_sequence_of_weight_2_is_that_sequence_twice(data, loss, columns):
    X, y, _, _ = data
    twice = [0, *range(len(y)), 3, 29]
    weights = np.ones(len(y))
    weights[[0, 3, 29]] = 2
    parameters = {"loss": loss, "transition_features": columns, "calibrate": "loo", "tol": 1e-10}
    once = SemiCRFSegmenter(**parameters).fit(X, y, weights)
    copies = SemiCRFSegmenter(**parameters).fit(X[twice], [y[s] for s in twice])
    # The objective is minimised to 1e-10, so weights to about 1e-5.
    assert_allclose(copies.temperature_, once.temperature_, rtol=1e-4)
    assert_allclose(copies.coef_, once.coef_, rtol=1e-3, atol=1e-4)


def test_equal_features_with_other_segments_are_distinct():
    X, y = problem(4, n_sequences=6)
    part = trained(X[[0, 1, 0, 1]], [y[0], y[1], y[0], [(0, 1, "b")]], [1.0, 2.0, 0.5, 1.0])[1]
    found = left_out.distinct_sequences(part)
    assert found.sequence.tolist() == [0, 1, 3]
    assert found.weights.tolist() == [1.5, 2.0, 1.0]


def test_features_of_one_sequence_only_lose_their_weights():
    X, y = problem(2, n_sequences=10)
    own = sparse.block_diag([X[[s]].rows for s in range(10)], format="csr")
    alone = SegmentPotentials(X.lengths, X.offsets, X.kind, X.start, X.stop, own)
    model, part, w = trained(alone, y, l2=0.3, tol=1e-12)
    psi = scores_without(model, part, w)[:, : part.scores.n_labels]
    assert_allclose(psi, 0, atol=1e-4)


def test_absent_weights_stay_0():
    X, y = problem(3, n_sequences=10, dense=False)
    model, part, w = trained(X, y, l1=50.0)
    assert not w[: part.scores.n_state].any()
    assert_allclose(scores_without(model, part, w), 0, atol=0)


@pytest.mark.parametrize(
    "parameters",
    [
        {"loss": "softmax-margin"},
        {"transition_features": [0, 1]},
        {"l1": 0.05},
        {"all_possible_states": False, "max_segment_length": 30},
        {"constraints": [("volume", "author")]},
    ],
    ids=str,
)
def test_weights_are_divided_and_predictions_stay(data, parameters, monkeypatch):
    monkeypatch.setattr(left_out, "ENOUGH", 100)  # of about 200
    X, y, new, _ = data
    plain = SemiCRFSegmenter(**parameters).fit(X, y)
    model = SemiCRFSegmenter(calibrate="loo", **parameters).fit(X, y)
    assert 0.4 < model.temperature_ < 1
    for name in WEIGHTS:
        divided = getattr(plain, name) / model.temperature_
        assert_allclose(getattr(model, name), divided, rtol=1e-12, atol=0)
    assert list(model.predict(new)) == list(plain.predict(new))


def test_a_warm_start_begins_at_the_weights_before_they_were_divided(data):
    X, y, _, _ = data
    model = SemiCRFSegmenter(calibrate="loo", warm_start=True).fit(X, y)
    assert model.temperature_ != 1
    end = model.objective_
    assert_allclose(model.fit(X, y).loss_curve_[0], end, rtol=1e-9)


def test_temperature_is_about_that_of_folds(data):
    X, y, _, _ = data
    of_folds = SemiCRFSegmenter(calibrate=5).fit(X, y).temperature_
    temperature = SemiCRFSegmenter(calibrate="loo").fit(X, y).temperature_
    assert_allclose(temperature, of_folds, rtol=0.25)


def test_probabilities_of_new_sequences_are_calibrated(data):
    X, y, new, true = data
    before = told(SemiCRFSegmenter(l2=3.0).fit(X, y), new, true)
    after = told(SemiCRFSegmenter(l2=3.0, calibrate="loo").fit(X, y), new, true)
    assert calibration_error(*before) > 0.15
    assert calibration_error(*after) < 0.05


def test_rows_of_tokens_and_sequences_without_segments():
    X, y = [[["in"], ["New"], ["York"]]] * 6, [[(1, 3, "city")]] * 6
    assert 0.1 < SemiCRFSegmenter(calibrate="loo").fit(X, y).temperature_ < 10
    assert 0.1 < SemiCRFSegmenter(calibrate="loo").fit(X, [[], y[0]] * 3).temperature_ < 10


@pytest.mark.parametrize(
    ("parameters", "n", "message"),
    [
        ({"calibrate": "auto"}, 30, "^calibrate must be None, 'loo' or a number of .* got 'auto'"),
        ({"calibrate": "loo", "l2": 0.0}, 30, r"^calibrate='loo' needs l2 > 0; got l2=0\."),
        ({"calibrate": "loo"}, 1, "^calibrate='loo' needs at least 2 sequences of .*; got 1"),
        ({"calibrate": "loo", "loss": "hinge"}, 30, "^loss='hinge' has no probabilities"),
    ],
)
def test_what_has_no_temperature_is_refused(data, parameters, n, message):
    with pytest.raises(ValueError, match=message):
        SemiCRFSegmenter(**parameters).fit(data[0][:n], data[1][:n])

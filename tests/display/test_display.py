"""LatencyAccuracyDisplay: its numbers are those of decoders, its plots show them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklseq import CRFTagger, OnlineDecoder
from sklseq.datasets import make_contacts
from sklseq.display import (
    SWEEPS,
    LatencyAccuracyDisplay,
    LossCurveDisplay,
    MarginalsDisplay,
    TradeOff,
    TransitionsDisplay,
)
from sklseq.features import TemplateFeatures, TokenFeatures
from sklseq.online import LatencyReport

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="module")
def data():
    return make_contacts(8, random_state=2)


@pytest.fixture(scope="module")
def model(data):
    return make_pipeline(TemplateFeatures(["w[0]", "w[1]"]), CRFTagger(l2=0.1, tol=0.01)).fit(*data)


@pytest.fixture(autouse=True)
def closed_figures():
    plt.switch_backend("agg")
    yield
    plt.close("all")


def test_curves_are_reports_of_decoders(data, model):
    sweep = {"step": [0.2, 0.01], "chunk": [3], "lag": [2]}
    display = LatencyAccuracyDisplay.from_estimator(model, data[0], sweep=sweep)
    assert [curve.strategy for curve in display.curves] == list(SWEEPS)
    for curve in display.curves:
        parameter = SWEEPS[curve.strategy][0]
        for value, report in zip(curve.values, curve.reports):
            rule = {} if curve.strategy == "lag" else {"strategy": curve.strategy}
            rule |= {parameter: value} if parameter else {}
            decoder = OnlineDecoder(FrozenEstimator(model)).fit(None, None)
            if "lag" in rule:  # the look-ahead of the features is no part of the swept lag
                rule["lag"] += 1
            expected = decoder.set_params(**rule).latency_report(data[0])
            assert report.mean == expected.mean
            assert report.disagreement == expected.disagreement
            assert_array_equal(report.histogram, expected.histogram)


def test_a_decoder_lends_its_measure(data, model):
    decoder = OnlineDecoder(FrozenEstimator(model), uncertainty="entropy").fit(None, None)
    arguments = {"strategies": ["step"], "sweep": {"step": [0.3]}}
    entropy = LatencyAccuracyDisplay.from_estimator(decoder, data[0], **arguments)
    error = LatencyAccuracyDisplay.from_estimator(model, data[0], **arguments)
    assert entropy.curves[0].latency[0] > error.curves[0].latency[0]


def test_plot_shows_the_curves(data, model):
    display = LatencyAccuracyDisplay.from_estimator(model, data[0])
    _, ax = plt.subplots()
    assert display.plot(ax) is display
    assert display.ax_ is ax
    lines = {line.get_label(): line for line in ax.get_lines()}
    assert len(lines) == len(SWEEPS)
    step = next(curve for curve in display.curves if curve.strategy == "step")
    assert_array_equal(lines["online step"].get_xdata(), step.latency)
    assert_array_equal(lines["online step"].get_ydata(), 100 * step.disagreement)
    assert ax.get_yscale() == "symlog"


@pytest.mark.parametrize("wrong", [[0], [0, 0, 0], [3, 0, 1, 0], [0, 1], [50, 100]], ids=str)
def test_each_point_is_drawn_also_that_of_no_disagreement(wrong):
    reports = [
        LatencyReport(100, float(k), {}, np.array([100 - k, k]), 0.0, n / 100)
        for k, n in enumerate(wrong)
    ]
    curves = [TradeOff(name, tuple(wrong), reports) for name in ("chunk", "lag", "step", "window")]
    _, ax = plt.subplots()
    LatencyAccuracyDisplay(curves, curves[2]).plot(ax)
    bottom, top = ax.get_ylim()
    for line in ax.get_lines():
        assert_array_equal(line.get_xdata(), np.arange(len(wrong)))
        # rtol: the last digits of a percentage.
        assert_allclose(line.get_ydata(), wrong, rtol=1e-12)
        assert bottom <= min(wrong)
        assert max(wrong) <= top
    below, above = ax.transData.transform([[0, 0], [0, 1]])[:, 1]
    assert above > below + 1


def test_plot_look_ahead_shows_the_histogram(data, model):
    display = LatencyAccuracyDisplay.from_estimator(model, data[0], goal=0.01)
    (report,) = display.look_ahead.reports
    assert report.disagreement <= 0.01
    display.plot_look_ahead()
    heights = [bar.get_height() for bar in display.ax_.patches]
    # rtol: the last digit of a quotient.
    assert_allclose(heights, 100 * report.histogram[:16] / report.n_rows, rtol=1e-12)
    assert "online step" in display.ax_.get_title()
    assert display.figure_ is display.ax_.figure


def test_unknown_strategies_are_named(data, model):
    with pytest.raises(ValueError, match=r"strategies must be some of .*; got \['greedy'\]"):
        LatencyAccuracyDisplay.from_estimator(model, data[0], strategies=["greedy"])


def test_no_latency_that_is_tried_is_infinite():
    assert np.isfinite(list(SWEEPS["lag"][1])).all()


@pytest.mark.parametrize("wrap", [
    FrozenEstimator,
    lambda model: FrozenEstimator(FrozenEstimator(model)),
    lambda model: OnlineDecoder(FrozenEstimator(model)),
    lambda model: FrozenEstimator(OnlineDecoder(FrozenEstimator(model))),
    lambda model: OnlineDecoder(FrozenEstimator(model)).fit(None, None),
])  # fmt: skip
def test_displays_find_the_tagger_inside(wrap):
    X, y = [["a", "b"]], [["x", "y"]]
    model = make_pipeline(TokenFeatures(), CRFTagger()).fit(X, y)
    shown = TransitionsDisplay.from_estimator(wrap(model))
    assert_array_equal(shown.transition, model[-1].transition_)
    assert LossCurveDisplay.from_estimator(wrap(model)).curves[0].name == "CRFTagger"
    assert MarginalsDisplay.from_estimator(wrap(model), X[0]).labels.tolist() == ["x", "y"]
    with pytest.raises(ValueError, match="fitted"):
        TransitionsDisplay.from_estimator(wrap(CRFTagger()))

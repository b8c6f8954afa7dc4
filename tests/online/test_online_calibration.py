"""calibration_report: bins by hand, and a model whose probabilities are true."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from sklseq import CRFTagger, OnlineDecoder, SemiCRFSegmenter
from sklseq.online import calibration_report


def sample(n, seed):
    """Sequences whose label depends on the row and the label before, as a CRF has it."""
    rng = np.random.default_rng(seed)
    X = [rng.normal(size=(12, 3)) for _ in range(n)]
    tagger = CRFTagger().fit(X[:2], [["a", "b", "c"] * 4] * 2)
    tagger.coef_ = np.array([[1.5, -0.5, 0.0], [0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]])
    tagger.transition_ = np.array([[1.0, 0.0, -1.0], [0.0, 0.5, 0.0], [-0.5, 0.0, 1.0]])
    y = [draws[0] for draws in tagger.sample(X, 1, random_state=seed)]
    return X, y


@pytest.mark.parametrize(
    "rule", [{"lag": 2}, {"strategy": "viterbi"}, {"lag": 1, "decide": "marginal"}]
)
def test_a_true_model_is_calibrated(rule):
    X, y = sample(600, seed=0)
    decoder = OnlineDecoder(CRFTagger(l2=0.1), **rule).fit(X[:300], y[:300])
    report = calibration_report(decoder, X[300:], y[300:])
    # 3,600 labels in about 6 bins: the standard error of a bin of 100 is 0.05.
    assert report.error < 0.03
    assert report.n_labels.sum() == 3600
    many = report.n_labels > 100
    assert_allclose(report.confidence[many], report.accuracy[many], atol=0.1)


def test_bins_by_hand():
    X, y = sample(20, seed=1)
    decoder = OnlineDecoder(CRFTagger(l2=0.1)).fit(X, y)
    decoding = decoder.decode(X)
    confidence = np.concatenate(list(decoding.confidence))
    right = np.concatenate(list(decoding.labels)) == np.concatenate(y)
    report = calibration_report(decoder, X, y, n_bins=4)
    error, k = 0.0, 0
    for low in (0, 0.25, 0.5, 0.75):
        inside = (confidence >= low) & (confidence < low + 0.25)
        if inside.any():
            assert report.n_labels[k] == inside.sum()
            # rtol: the order of sums.
            assert_allclose(report.confidence[k], confidence[inside].mean(), rtol=1e-12)
            assert_allclose(report.accuracy[k], right[inside].mean(), rtol=1e-12)
            error += abs(confidence[inside].mean() - right[inside].mean()) * inside.mean()
            k += 1
    assert k == len(report.n_labels)
    assert_allclose(report.error, error, rtol=1e-12)
    assert str(report).splitlines()[-1] == f"expected calibration error {error:.4f}"


def test_wrong_calls():
    X, y = sample(4, seed=2)
    decoder = OnlineDecoder(CRFTagger()).fit(X, y)
    for arguments, message in (
        ((X, y[:-1]), "one label for each row of X, at least one; got sequences of"),
        (([], []), "at least one"),
    ):
        with pytest.raises(ValueError, match=message):
            calibration_report(decoder, *arguments)
    for n_bins in (0, 2.5, True):
        with pytest.raises(ValueError, match="n_bins must be an integer of at least 1"):
            calibration_report(decoder, X, y, n_bins=n_bins)
    segmenter = OnlineDecoder(SemiCRFSegmenter(), strategy="closure").fit(
        X, [[(0, 5, "a"), (5, 12, "b")]] * 4
    )
    with pytest.raises(ValueError, match="no confidence; use a tagger"):
        calibration_report(segmenter, X, [["B-a", *["I-a"] * 11]] * 4)

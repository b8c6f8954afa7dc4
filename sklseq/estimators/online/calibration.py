"""Calibration of online labels: confidence against the fraction of labels that are right."""

from typing import NamedTuple

import numpy as np

from sklseq._lib.checks import check_number
from sklseq.data.labels import as_label_sequences
from sklseq.data.types import LabelsLike, SequencesLike
from sklseq.estimators.online.online_decoder import OnlineDecoder


class CalibrationReport(NamedTuple):
    """Result of :func:`calibration_report`; empty bins are left out.

    Attributes
    ----------
    error : float
        Expected calibration error: the mean over all labels of abs(confidence - accuracy) of their
        bins.
    n_labels : ndarray of int
        Labels in each bin.
    confidence : ndarray of float
        Mean confidence of these labels.
    accuracy : ndarray of float
        Fraction of these labels that is right.
    """

    error: float
    n_labels: np.ndarray
    confidence: np.ndarray
    accuracy: np.ndarray

    def __str__(self) -> str:
        lines = [
            f"{n:>10,} {c:>11.4f} {a:>9.4f}"
            for n, c, a in zip(self.n_labels.tolist(), self.confidence, self.accuracy)
        ]
        head = f"{'labels':>10} {'confidence':>11} {'accuracy':>9}"
        return "\n".join([head, *lines, f"expected calibration error {self.error:.4f}"])


def calibration_report(
    decoder: OnlineDecoder, X: SequencesLike, y: LabelsLike, *, n_bins: int = 10
) -> CalibrationReport:
    """Compare the confidence of emitted labels with the fraction of them that is right.

    The n labels are grouped by their confidence into ``n_bins`` bins of equal width. With n_b
    labels, mean confidence c_b and accuracy a_b in bin b,

        error = Σ_b n_b / n · |c_b - a_b|.

    Parameters
    ----------
    decoder : OnlineDecoder
        Fitted, with a tagger whose scores are log-probabilities, such as ``CRFTagger``.
    X : list of sequences
        Data that the model has not seen.
    y : list of label sequences
    n_bins : int, default=10

    Returns
    -------
    CalibrationReport
        Named tuple ``(error, n_labels, confidence, accuracy)``.

    Raises
    ------
    ValueError
        If X and y do not fit, are empty, or the decoder gives no confidence.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger, OnlineDecoder
    >>> from sklseq.datasets import make_contacts
    >>> from sklseq.features import TemplateFeatures
    >>> from sklseq.online import calibration_report
    >>> X, y = make_contacts(40, random_state=0)
    >>> tagger = make_pipeline(TemplateFeatures(["w[0]"]), CRFTagger(l2=0.1))
    >>> decoder = OnlineDecoder(tagger, lag=2).fit(X[:20], y[:20])
    >>> report = calibration_report(decoder, X[20:], y[20:])
    >>> report.error < 0.15
    True
    """
    check_number("n_bins", n_bins, 1, whole=True)
    decoding, (truth, offsets) = decoder.decode(X), as_label_sequences(y)
    lengths, wanted = np.diff(offsets).tolist(), list(map(len, decoding.labels))
    if lengths != wanted or not sum(wanted):
        raise ValueError(
            "y must have one label for each row of X, at least one; got sequences of "
            f"{lengths[:5]} labels for {wanted[:5]} rows."
        )
    confidence = np.concatenate(list(decoding.confidence))
    if np.isnan(confidence).any():
        raise ValueError("The labels have no confidence; use a tagger, not a segmenter.")
    right = np.concatenate(list(decoding.labels)) == truth
    group = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    n = np.bincount(group, minlength=n_bins)
    sums = [np.bincount(group, x, minlength=n_bins) for x in (confidence, right)]
    error = float(np.abs(sums[0] - sums[1]).sum() / len(right))
    kept = n > 0
    return CalibrationReport(error, n[kept], *(x[kept] / n[kept] for x in sums))

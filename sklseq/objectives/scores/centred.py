"""Search direction in weights of centred columns, for features whose mean is far from 0.

``lbfgs`` tries a step along it before an estimate ends the run (``other_directions``): with such
features, small decreases of the objective do not show that the minimum is near.
"""

import numpy as np
from scipy import sparse

from sklseq.objectives.scores.design import _linear
from sklseq.objectives.scores.score_map import ScoreMap, Weights

# FAR: columns are centred if a mean is farther from 0 than this number of standard deviations.
# LEAST: smallest variance of a column that counts as not constant, relative to the square of its
# largest magnitude.
FAR, LEAST = 2.0, 1e-8
# Rows that are summed at a time. Of sparse data the first ROWS rows are examined alone: no mean of
# all rows is computed unless a column of these has a mean of more than FAR / 2 deviations.
ROWS = 1 << 12


class CentredColumns:
    """The gradient in weights of columns with mean 0 and variance 1, mapped back to w.

    If μ is the mean of a column x and σ its standard deviation, the scores of the weights
    (coef, transition, start) are those of weights coef · σ of (x - μ) / σ with coef · μ added to
    all transition and start weights of a label. So a change of coef among these weights does not
    change the mean score of a label; among those of w, only an opposite change of the transition
    weights would keep it.

    Parameters
    ----------
    scores : ScoreMap
    means, variances : ndarray of shape (n_features,)
        Variances are positive.
    """

    def __init__(self, scores: ScoreMap, means: np.ndarray, variances: np.ndarray):
        self.scores, self.means, self.variances = scores, means, variances

    def direction(self, gradient: np.ndarray) -> np.ndarray:
        """T Tᵀ · gradient, where w = T · (weights of centred columns)."""
        scores = self.scores
        L = scores.n_labels
        coef = scores.design.unpack(scores.state(gradient))[:, :L].astype(np.float64)
        transition, start, end = scores.trained_chain(gradient)
        coef -= np.outer(self.means, transition.sum(axis=0) + start)
        coef /= self.variances[:, None]
        shift = self.means @ coef
        return scores.pack(Weights(coef, transition - shift, start - shift, end))


def centred_columns(scores: ScoreMap, rows, l2: float) -> CentredColumns | None:
    """CentredColumns of dense or CSR ``rows``; None if no varying column has a mean far from 0."""
    n, size = rows.shape[0], scores.largest
    if scores.features is not None or n == 0:
        return None
    largest = np.ones(rows.shape[1]) if size is None else np.where(size > 0, size, 1.0)
    if sparse.issparse(rows) and not _far(*_moments(rows[:ROWS], largest), FAR / 2).any():
        return None
    means, variances = _moments(rows, largest)
    if not _far(means, variances, FAR).any():
        return None
    with np.errstate(over="ignore"):
        variances = variances * np.square(largest) + 2 * l2 / n
    return CentredColumns(scores, means * largest, variances)


def _far(means: np.ndarray, variances: np.ndarray, deviations: float) -> np.ndarray:
    return (np.abs(means) > deviations * np.sqrt(variances)) & (variances > LEAST)


def _moments(rows, largest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Means and variances of the columns divided by ``largest``.
    n = rows.shape[0]
    sums, squares = _sums(rows, largest)
    return sums / n, np.maximum(squares / n - np.square(sums / n), LEAST)


def _sums(rows, largest: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Sums of the columns divided by ``largest``, and sums of their squares.
    sums, squares = both = np.zeros((2, len(largest)))
    if sparse.issparse(rows):
        kind = rows.dtype if rows.dtype in (np.float32, np.float64) else np.float64
        values = np.ascontiguousarray(rows.data, dtype=kind)
        _linear.sum_columns(rows.indices, values, largest, both)
        return sums, squares
    for first in range(0, len(rows), ROWS):
        part = rows[first : first + ROWS] / largest
        sums += part.sum(axis=0)
        squares += np.einsum("ij,ij->j", part, part)
    return sums, squares

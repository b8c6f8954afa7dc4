"""Usual magnitudes of columns in which a few values are far larger.

Weights are scaled by magnitudes of columns, and the largest ones have most of the curvature at the
start of training. When their rows have become certain of a label, they have none, and what is left
is that of the usual values, which may be less by many orders of magnitude.
"""

import numpy as np
from scipy import sparse

# A column has values that are FAR larger than usual if the largest magnitude is this many times the
# median. (Of a million normal numbers 7 times, exponential ones 20 times.)
FAR = 30.0
# Rows that are examined, evenly spread, of each part of the data in memory.
ROWS = 1 << 9
# p (1 - p) of labels that are not certain.
VARIANCE = 0.1
# Least ratio of a scale to the largest magnitude; below it, scores of these rows may be rounding.
LEAST = 1e-4


def between(usual: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Geometric means of usual and largest magnitudes; the largest where no value is far larger."""
    units, at = largest.copy(), np.flatnonzero(usual < np.inf)
    units[at] *= np.maximum(np.sqrt(usual[at] / largest[at]), LEAST)
    return units


def log_medians(rows, most: int = ROWS) -> np.ndarray:
    """Of each column n · log(median) and n, of n values that are not 0, as (2, n_features).

    The median is that of magnitudes in at most ``most`` rows, and n is extrapolated to all rows.
    Sums of such arrays describe the union of their rows.
    """
    step = max(1, -(-rows.shape[0] // most))
    medians, counts = (_of_sparse if sparse.issparse(rows) else _of_dense)(rows[::step])
    return step * counts * np.stack([np.log(medians), np.ones(len(counts))])


def usual_sizes(logs: np.ndarray | None, largest: np.ndarray | None) -> np.ndarray | None:
    """Median magnitude of the values of columns that are not 0, infinite if no value is far larger.

    None if no column has such values.

    Parameters
    ----------
    logs : ndarray of shape (2, n_features) or None
        See :func:`log_medians`; of several parts of the data, the geometric mean of their medians.
    largest : ndarray of shape (n_features,) or None
        Largest magnitudes; None if all are alike.
    """
    if logs is None or largest is None:
        return None
    total, n = logs
    usual = np.exp(total / np.maximum(n, 1))
    usual[(n == 0) | (largest <= FAR * usual)] = np.inf
    return usual if (usual < np.inf).any() else None


def _of_dense(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Medians of columns, 1 without values, and numbers of values.
    values = np.sort(np.abs(rows.T, dtype=np.float64))
    counts, n = np.count_nonzero(values, axis=1), len(rows)
    medians, used = np.ones(len(values)), np.flatnonzero(counts)
    medians[used] = values[used, (n - counts[used] + n) // 2]
    return medians, counts


def _of_sparse(rows) -> tuple[np.ndarray, np.ndarray]:
    # The same.
    values = np.abs(rows.data, dtype=np.float64)
    column, values = rows.indices[values > 0], values[values > 0]
    counts, medians = np.bincount(column, minlength=rows.shape[1]), np.ones(rows.shape[1])
    used, middle = np.flatnonzero(counts), np.cumsum(counts) - counts + counts // 2
    medians[used] = values[np.lexsort((values, column))][middle[used]]
    return medians, counts

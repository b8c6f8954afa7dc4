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
# Rows that are examined, evenly spread.
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


def usual_sizes(rows, largest: np.ndarray | None) -> np.ndarray | None:
    """Median magnitude of the values of columns that are not 0, infinite if no value is far larger.

    None if no column has such values. ``largest``: largest magnitudes, or None if all are alike.
    """
    if largest is None or rows.shape[0] == 0:
        return None
    some = rows[:: 1 + rows.shape[0] // ROWS]
    medians = _of_sparse(some) if sparse.issparse(rows) else _of_dense(some)
    medians[largest <= FAR * medians] = np.inf
    return medians if (medians < np.inf).any() else None


def _of_dense(rows: np.ndarray) -> np.ndarray:
    # Of each column; infinite without values.
    values = np.sort(np.abs(rows.T, dtype=np.float64))
    n_zeros, n = np.count_nonzero(values == 0, axis=1), len(rows)
    middle = (n + n_zeros) // 2
    return np.where(n_zeros < n, values[np.arange(len(values)), np.minimum(middle, n - 1)], np.inf)


def _of_sparse(rows) -> np.ndarray:
    # The same.
    values = np.abs(rows.data, dtype=np.float64)
    column, values = rows.indices[values > 0], values[values > 0]
    counts, medians = np.bincount(column, minlength=rows.shape[1]), np.full(rows.shape[1], np.inf)
    middle = np.cumsum(counts) - counts + counts // 2
    medians[counts > 0] = values[np.lexsort((values, column))][middle[counts > 0]]
    return medians

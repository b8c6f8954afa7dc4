"""Warnings of columns of X whose units or offsets the penalty does not suit."""

import warnings
from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib.threads import spans
from sklseq.data.sequences import canonical, made_of_ones

# Magnitude below which columns are small, and the bound of their effect on a score, as root mean
# square over the rows, below which this is said: few weights come near the bound. (20 generated
# sets in six units, CRFTagger: with 2, accuracy falls by 0.15 or more without a warning in 16 fits,
# with 30 in none; 4 of 53 warnings with 30, and none of 24 with 2, are of fits that lose nothing.)
# Of rows that are mostly zeros, rare columns are small by nature, so only those that have no effect
# are named.
SMALL, LITTLE_EFFECT = 2e-1, 30.0
SMALL_OF_FEW, NO_EFFECT = 1e-2, 1e-2
# Ratio of the sizes of a column and of the largest one below which the column is rounding.
ROUNDING = 1e-14
# Rows below which a column may be small, or of one sign, by chance; only those without any effect
# are named then.
ENOUGH_ROWS = 100
# Ratio of the sizes of a column and of the largest one below which it is in another unit.
OTHER_UNIT = 1e-1
# Values of sparse rows that are looked at together.
PIECE = 1 << 14
# Rows that are looked at first: mostly no column is small in these.
FIRST_ROWS = 4096
# Least number of rows, from all over X, that tell which columns may be far from zero.
SOME_ROWS = 1024
# Mean of a column in standard deviations from which it is far from zero, and what the intercepts
# that make up for the means have to cost for each row before this is said. With four estimators,
# 300 to 60,000 rows and penalties of 0.1 and 1, one to three points of accuracy were lost there.
FAR_MEAN, OFFSET_COST = 3.0, 0.1
# Largest value of X, and its ratio to the root mean square of its column, from which training is
# slowed down by the units, or by outliers.
LARGE, FAR = 10.0, 20.0

ADVICE = "e.g. by PerToken(StandardScaler())."


def warn_columns(
    rows: Any,
    weights: np.ndarray,
    ridge: float,
    penalty: str,
    offset_cost: float,
    n: int | None = None,
) -> None:
    """Warn of columns of X that are small, or far from zero, for a penalty of curvature ``ridge``.

    Parameters
    ----------
    rows : array or sparse matrix of shape (n_rows, n_columns)
    weights : ndarray of shape (n_sequences,)
    ridge : float
    penalty : str
        Name and value of the parameter that gives the ridge.
    offset_cost : float
        What the objective pays for an offset of one standard deviation in a column whose weights
        are one for each standard deviation, times the square of another offset.
    n : int, optional
        Number of rows, if several share one of ``rows``.
    """
    most = float(weights.max(initial=0))
    if made_of_ones(rows) or not np.prod(rows.shape) or not most:
        return
    is_shared = n is not None and n != rows.shape[0]
    n = n or rows.shape[0]
    is_sparse = sparse.issparse(rows) and 2 * rows.nnz < np.prod(rows.shape)
    if is_shared or is_sparse or n < ENOUGH_ROWS:
        messages = [_small_of_few(rows, n, ridge / most, penalty)]
    else:
        messages = [_small(rows, ridge / most, penalty)]
        if offset_cost:
            messages.append(_far(rows, np.sqrt(OFFSET_COST * n * most / offset_cost), penalty))
    for message in filter(None, messages):
        warnings.warn(message + ADVICE, UserWarning, stacklevel=4)


def _small(rows: Any, ridge: float, penalty: str) -> str:
    """Say which columns the penalty leaves little weight; "" if there are none.

    At the minimum, the weights of some columns have the norm Σ_r |x_r| / ridge at most, with the
    part x_r of row r in these columns, so what they add to a score is Σ_r |x_r|² / ridge at most,
    as root mean square over the rows.
    """
    bound = LITTLE_EFFECT * ridge
    first = _dense(rows[:FIRST_ROWS])
    columns = np.flatnonzero(_sizes(first) < SMALL)
    columns = columns[_squares(first[:, columns]) < bound]
    if not len(columns):
        return ""
    values, largest = _dense(rows[:, columns]), _sizes(rows).max()
    sizes, squares = _sizes(values), _squares(values)
    small = np.flatnonzero((sizes > ROUNDING * largest) & (sizes < SMALL))
    small = small[np.argsort(sizes[small], kind="stable")]
    small = small[np.cumsum(squares[small]) < bound]
    if len(small) < rows.shape[1]:  # many columns of equal size may have an effect together
        small = small[sizes[small] < OTHER_UNIT * largest]
    return _leaves_little(rows, columns[small], sizes[small], penalty)


def _small_of_few(rows: Any, n: int, ridge: float, penalty: str) -> str:
    """Say the same of rows that are few, mostly zeros, or share n places: Σ |x_r|² ≤ n max²."""
    if not _some_small(rows.data if sparse.issparse(rows) else _sizes(rows)):
        return ""
    sizes = _sizes(rows)
    small = np.flatnonzero((sizes > ROUNDING * sizes.max()) & (sizes < SMALL_OF_FEW))
    small = small[np.argsort(sizes[small], kind="stable")]
    small = small[np.cumsum(n * np.square(sizes[small])) < NO_EFFECT * ridge]
    return _leaves_little(rows, small, sizes[small], penalty)


def _some_small(values: np.ndarray) -> bool:
    # Whether any is below SMALL_OF_FEW, but not 0; in pieces that stay in the cache.
    pieces = (np.abs(values[a:b]) for a, b in spans(len(values), 1 + len(values) // PIECE))
    return any(bool(((x > 0) & (x < SMALL_OF_FEW)).any()) for x in pieces)


def _leaves_little(rows: Any, columns: np.ndarray, sizes: np.ndarray, penalty: str) -> str:
    if not len(columns):
        return ""
    return (
        f"{_named(rows, np.sort(columns))} are at most {sizes.max():.1g} in size, where {penalty} "
        "leaves them little or no weight: scale them, "
    )


def _far(rows: Any, least: float, penalty: str) -> str:
    """Say which columns lie on one side of zero, if together by ``least`` standard deviations.

    A constant m in a column of weights w_j changes scores by m · w_j, which intercepts of labels
    have to make up for: weights of label pairs, or of rows of a segmenter, that the penalty wants
    small. If K columns share in a score, the weights are 1 / (σ √K).
    """
    some = _dense(rows[:: max(1, rows.shape[0] // SOME_ROWS)]).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, spread = some.mean(axis=0), some.std(axis=0)
    far = np.flatnonzero(_of_one_sign(some) & (np.abs(mean) > FAR_MEAN * spread))
    with np.errstate(divide="ignore", over="ignore"):
        squares = np.square(mean[far] / spread[far]) / rows.shape[1]
    if np.sqrt(squares.sum()) > least:
        values = _dense(rows[:, far])
        # Constant columns are intercepts themselves.
        holds = _of_one_sign(values) & (values.min(axis=0) < values.max(axis=0))
        far, squares = far[holds], squares[holds]
    if not np.sqrt(squares.sum()) > least:
        return ""
    return (
        f"{_named(rows, far)} have a mean far from zero for their spread (column {far[0]}: mean "
        f"{mean[far[0]]:.3g}, standard deviation {spread[far[0]]:.2g}), an offset that {penalty} "
        "lets no intercepts make up for: centre them, "
    )


def _named(rows: Any, columns: np.ndarray) -> str:
    shown = ", ".join(map(str, columns[:3])) + ", ..." * (len(columns) > 3)
    return f"Of {rows.shape[1]} columns of X, {len(columns)} ({shown})"


def _dense(rows: Any) -> np.ndarray:
    return rows.toarray() if sparse.issparse(rows) else rows


def _squares(values: np.ndarray) -> np.ndarray:
    values = values.astype(np.float64)
    return np.einsum("rk,rk->k", values, values)


def _of_one_sign(values: np.ndarray) -> np.ndarray:
    return (values.min(axis=0) > 0) | (values.max(axis=0) < 0)


def _sizes(rows: Any) -> np.ndarray:
    if sparse.issparse(rows):
        return np.ravel(abs(canonical(rows)).max(axis=0).toarray())
    return np.maximum(rows.max(axis=0, initial=0), -rows.min(axis=0, initial=0))


def scaling_advice(rows: Any) -> str:
    """What to do about the column of the largest value; "" if the value is not large."""
    if not (rows.nnz if sparse.issparse(rows) else rows.size):
        return ""
    values = rows.data if sparse.issparse(rows) else rows.ravel()
    at = max(int(values.argmax()), int(values.argmin()), key=lambda k: abs(values[k]))
    top = abs(float(values[at]))
    if top <= LARGE:
        return ""
    column = int(rows.indices[at]) if sparse.issparse(rows) else at % rows.shape[1]
    ratios = (rows[:, [column]].toarray() if sparse.issparse(rows) else rows[:, column]) / top
    spread = float(np.sqrt(np.mean(np.square(ratios, dtype=np.float64))))
    if FAR * spread >= 1:
        return (
            f", or scale the features, e.g. by PerToken(StandardScaler()): column {column} of X "
            f"holds {values[at]:.3g}"
        )
    return (
        f", or bring in outliers, which a StandardScaler leaves: column {column} of X holds "
        f"{values[at]:.3g}, {1 / spread:.0f} times its root mean square. Clip it, take its log1p, "
        "or use PerToken(QuantileTransformer())"
    )

"""Sparse transition matrices: most pairs of a column score the same, and the others are listed.

``_sparse.pxd`` has the recursions that use them.
"""

from typing import NamedTuple, Self

import numpy as np

from sklseq._lib.ragged import offsets_of

# Lists are used if they hold at most the fraction a - b / n_labels of all pairs; the values are
# (a, b), measured with one thread and 80 sequences of 25 rows, less a fifth of the gain.
# A row costs n_labels² with the matrix, and n_labels plus the number of listed pairs with lists.
LIMITS = {
    ("updates", "float64"): (0.52, 7.0),
    ("sums", "float64"): (0.36, 14.0),
    ("sums", "float32"): (0.20, 12.0),
    ("maxima", "float64"): (0.40, 28.0),
    ("maxima", "float32"): (0.24, 33.0),
}

# With fewer rows than this no lists are made: finding the pairs takes a few passes over the matrix,
# about the time that lists save in 50 rows.
LIST_ROWS = 100

# Lists need at least this many labels: their kernels process eight numbers at a time, but rows of
# fewer labels are padded to two or four only.
LEAST_LABELS = 5


class PairLists:
    """Listed pairs of labels (i, j), by rows and by columns; other pairs score 0 or -inf.

    Parameters
    ----------
    listed : bool ndarray of shape (n_labels, n_labels)
        The pairs to list.
    free : bool ndarray of shape (n_labels,)
        Whether pairs of the column that are not listed score 0; otherwise they are forbidden.

    Attributes
    ----------
    rows, columns : (start, at)
        Entries ``start[k]:start[k + 1]`` are those of row (or column) k; ``at`` is their column
        (or row).
    i, j : ndarray of shape (n_pairs,)
        Labels of the entries, sorted by rows.
    by_column : ndarray of shape (n_pairs,)
        Permutation that sorts the entries by columns.
    """

    def __init__(self, listed: np.ndarray, free: np.ndarray):
        self.listed, self.free = np.ascontiguousarray(listed).view(np.uint8), free
        self.n_labels = len(listed)
        self.i, self.j = np.nonzero(listed)
        self.by_column = np.argsort(self.j, kind="stable")
        self.rows = self._lists(self.i, self.j)
        self.columns = self._lists(self.j[self.by_column], self.i[self.by_column])

    def __len__(self) -> int:
        return len(self.i)

    def _lists(self, owner: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        counts = np.bincount(owner, minlength=self.n_labels)
        return offsets_of(counts).astype(np.int32), at.astype(np.int32)

    def scores(self, score: np.ndarray) -> tuple:
        """Lists of the columns and rows of ``score``, and a mask, in the form for maxima."""
        values, free = score[self.i, self.j].astype(np.float64), self.free.astype(np.float64)
        columns = (*self.columns, values[self.by_column], None, None, free, 0.0)
        return columns, (*self.rows, values, None, None, None, 0.0), self.listed


def positive_factors(score: np.ndarray) -> np.ndarray:
    """exp(score), at least the smallest normal number unless the score is -inf.

    For the kernels, a factor of 0 means "forbidden". Sums that lose accuracy because of a factor
    too small are computed again in the log domain; forbidden ones are not.
    """
    least = np.finfo(score.dtype).tiny
    return np.where(score > -np.inf, np.maximum(np.exp(score), least), score.dtype.type(0))


class ListedFactors(NamedTuple):
    """exp(score - top) in the form for the sums of ``_sparse.pxd``.

    Attributes
    ----------
    columns, rows : tuple
        Lists of the columns and of the rows of the matrix.
    factors : ndarray of shape (n_pairs,)
        Factors of the listed pairs, by rows.
    least, positive : float
        The smallest factor of all pairs, and the smallest above 0 of those listed; at most 1.
    base : ndarray of shape (n_labels,)
        Factors of pairs that are not listed, by columns.
    """

    columns: tuple
    rows: tuple
    factors: np.ndarray
    least: float
    positive: float
    base: np.ndarray

    @classmethod
    def of(cls, pairs: PairLists, score: np.ndarray, top: float, floor: float, mix: float) -> Self:
        """Factors of ``score``, and the floor below which their sums count as inaccurate.

        No floor is needed if all factors are at least ``mix``.
        """
        E = positive_factors(score[pairs.i, pairs.j].astype(np.float64) - top)
        base = np.where(pairs.free, positive_factors(np.float64(-top)), 0.0)
        S, by = E - base[pairs.j], pairs.by_column
        least = min(E.min(initial=1.0), base.min(initial=1.0))
        positive = E[E > 0].min(initial=1.0)
        floor = least_sum(floor, pairs.n_labels, positive) if least < mix else 0.0
        columns = (*pairs.columns, S[by], E[by], None, base, floor)
        return cls(columns, (*pairs.rows, S, E, base, None, 0.0), E, least, positive, base)


def least_sum(floor: float, n_labels: int, positive: float, largest: float = 1.0) -> float:
    """The floor for sums with factors from ``positive``, or 0, to ``largest``.

    Divided by the sum of its row and multiplied by the smallest factor, it is still far above the
    smallest normal number.
    """
    return max(floor, 1e-300 * n_labels * largest / positive)


def most_listed(n_labels: int, dtype, question: str = "sums") -> float:
    """The number of pairs up to which lists are faster; 0 below ``LEAST_LABELS``."""
    if n_labels < LEAST_LABELS:
        return 0.0
    fraction, per_label = LIMITS[question, np.dtype(dtype).name]
    return (fraction - per_label / n_labels) * n_labels**2


def find_pairs(
    transition: np.ndarray, dtype, question: str = "sums", wanted: np.ndarray | None = None,
    n_rows: int = LIST_ROWS,
) -> PairLists | None:  # fmt: skip
    """Lists of the pairs of transition scores, or None if the dense matrix is faster.

    Parameters
    ----------
    transition : ndarray of shape (n_labels, n_labels)
    dtype : numpy dtype
        Type of emission scores.
    question : {"sums", "updates", "maxima"}
        The recursions; "updates" are sums over one sequence at a time with changing weights.
    wanted : bool ndarray of shape (n_labels, n_labels), optional
        Pairs that are listed whatever their score, because their expected counts are needed.
    n_rows : int, optional
        Number of rows, if that may be small.
    """
    limit = most_listed(len(transition), dtype, question)
    if limit <= 0 or n_rows < LIST_ROWS or (wanted is not None and wanted.sum() > limit):
        return None
    zero, forbidden = transition == 0, transition == -np.inf
    if wanted is not None:
        zero, forbidden = zero & ~wanted, forbidden & ~wanted
    free = zero.sum(axis=0) >= forbidden.sum(axis=0)
    listed = ~np.where(free, zero, forbidden)
    return PairLists(listed, free) if listed.sum() <= limit else None

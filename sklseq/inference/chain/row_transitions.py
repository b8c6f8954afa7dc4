"""Transition scores that differ from row to row: a shared matrix, and entries of single rows.

``_row_matrices.pxd`` has the recursions that use them.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from sklseq._lib.ragged import ranges
from sklseq.data.sequences import as_integers, as_numbers
from sklseq.data.types import ArrayLike, MatrixLike

# Sets of entries get matrices of their own if as many rows share one on average, and if the
# matrices take at most so many bytes, which fit the second-level cache.
SHARED_BY, SETS_BYTES = 4, 1 << 19


class SetFactors(NamedTuple):
    """Matrices of factors exp(score - top) of sets of entries.

    Attributes
    ----------
    matrices : ndarray of shape (n_sets, n_labels, width)
    top : float
    least, largest : float
        An interval that has 1 and the factors of all entries.
    write_scores : callable
        Writes scores and labels of the entries, which nothing else needs.
    """

    matrices: np.ndarray
    top: float
    least: float
    largest: float
    write_scores: Callable


class RowTransitions:
    """Transition scores of rows: a shared matrix, and entries that replace it in single rows.

    The score of label i at row t - 1 followed by j at row t is ``score[p]`` if entry p of row t is
    (i, j), and ``shared[i, j]`` otherwise.

    Parameters
    ----------
    shared : array-like of shape (n_labels, n_labels)
        Scores of label i followed by j; -inf forbids.
    indptr : array-like of int, shape (n_rows + 1,)
        Entries ``indptr[t]`` to ``indptr[t + 1] - 1`` are of row t. Entries of the first row of a
        sequence are ignored, because no row comes before it.
    i, j : array-like of int, shape (n_entries,)
        Labels of each entry; no pair may occur twice in a row.
    score : array-like of shape (n_entries,)
        Score of each entry in place of that in ``shared``, not in addition to it; -inf forbids.

    Attributes
    ----------
    shared, indptr, i, j, score : ndarray
        As given. Values of ``shared`` and ``score`` may be changed in place.
    shape : tuple (n_rows, n_labels, n_labels)
    expected : float64 ndarray of shape (n_entries,), or None
        Array to which forward-backward adds the expected count of the transition of each entry: its
        probability times the weight of the sequence. See :meth:`with_expected`.
    of_row : int32 ndarray of shape (n_rows,), or None
        In training, rows with the same entries share them. ``indptr`` then cuts entries into sets,
        ``of_row`` is the set of each row, and ``expected`` is summed over the rows of a set.
    ordered : bool
        Whether rows with an entry for every pair have them in the order of a flattened matrix.

    Raises
    ------
    ValueError
        If arrays do not fit each other, a label or row of an entry does not exist, ``indptr``,
        ``i`` or ``j`` hold anything but integers, or scores are not real numbers. The functions
        that use the scores check for NaN and +inf, because scores may be changed until then.

    Notes
    -----
    Inference costs O(n_rows · n_labels² + n_entries) time, and memory of one matrix beside the
    entries.

    Examples
    --------
    Labels may change at row 2 only:

    >>> import numpy as np
    >>> from sklseq.inference import RowTransitions, viterbi
    >>> stay = np.where(np.eye(2), 0, -np.inf)
    >>> rows = RowTransitions(stay, [0, 0, 0, 2, 2], [0, 1], [1, 0], [0.0, 0.0])
    >>> viterbi(np.array([[1.0, 0], [1, 0], [0, 3], [0, 3]]), rows)[0]
    array([0, 0, 1, 1], dtype=int32)
    """

    ndim = 3
    of_row: np.ndarray | None = None
    ordered = False
    factors: SetFactors | None = None  # if they have been computed in place of scores, in training

    def __init__(
        self, shared: ArrayLike, indptr: ArrayLike, i: ArrayLike, j: ArrayLike, score: ArrayLike
    ):
        self.shared = as_numbers(shared, "shared")
        self.score = np.ascontiguousarray(as_numbers(score, "score"))
        self.indptr = np.ascontiguousarray(as_integers(indptr, "indptr"))
        self.i, self.j = as_integers(i, "i"), as_integers(j, "j")
        self.expected: np.ndarray | None = None
        self._check()
        self.ordered = self._are_ordered()
        self.i = np.ascontiguousarray(self.i, dtype=np.int32)
        self.j = np.ascontiguousarray(self.j, dtype=np.int32)

    def _check(self) -> None:
        sizes = {x.shape for x in (self.i, self.j, self.score)}
        is_square = self.shared.ndim == 2 and len(set(self.shared.shape)) == 1
        if not is_square or sizes != {(self.i.size,)}:
            raise ValueError(
                "shared must have shape (n_labels, n_labels), and i, j and score one number for "
                f"each entry; got shapes {self.shared.shape}, {self.i.shape}, {self.j.shape} and "
                f"{self.score.shape}."
            )
        n, L = len(self.i), len(self.shared)
        starts = self.indptr
        if not len(starts) or starts[0] or starts[-1] != n:
            raise ValueError(f"indptr must begin with 0 and end with the number of entries, {n}.")
        if (np.diff(starts) < 0).any():
            raise ValueError("indptr must not decrease.")
        for name, x in (("i", self.i), ("j", self.j)):
            if n and not 0 <= x.min() <= x.max() < L:
                p = int(np.argmax((x < 0) | (x >= L)))
                raise ValueError(
                    f"{name} must hold labels from 0 to {L - 1}; got {x[p]} for entry {p}."
                )

    def _are_ordered(self) -> bool:
        # Whether entries are sorted by row and pair; an error if a pair of a row has several.
        L, counts = len(self.shared), np.diff(self.indptr)
        row = np.repeat(np.arange(len(counts)), counts)
        pair = (row * L + self.i) * L + self.j
        ordered = bool((np.diff(pair) > 0).all())
        if not ordered:
            pair.sort()
            if not (np.diff(pair) > 0).all():
                t, pair = divmod(int(pair[:-1][np.diff(pair) == 0][0]), L * L)
                raise ValueError(
                    f"A row must have one entry for a pair of labels; row {t} has several for "
                    f"{divmod(pair, L)}."
                )
        return ordered

    @classmethod
    def unchecked(
        cls, shared: np.ndarray, indptr: np.ndarray, i: np.ndarray, j: np.ndarray,
        score: np.ndarray, expected: np.ndarray | None = None,
    ) -> RowTransitions:  # fmt: skip
        """RowTransitions of valid arrays, which are neither checked nor copied.

        Parameters
        ----------
        shared, indptr, i, j, score : ndarray
            Contiguous, ``indptr`` of int64, ``i`` and ``j`` of int32.
        expected : float64 ndarray of shape (n_entries,), optional

        Returns
        -------
        RowTransitions
        """
        rows = cls.__new__(cls)
        rows.shared, rows.indptr, rows.i, rows.j = shared, indptr, i, j
        rows.score, rows.expected = score, expected
        return rows

    @classmethod
    def from_dense(cls, transition: np.ndarray) -> RowTransitions:
        """RowTransitions with the scores of a dense array.

        Parameters
        ----------
        transition : ndarray of shape (n_rows, n_labels, n_labels)

        Returns
        -------
        RowTransitions
        """
        return _Matrices(transition)

    @property
    def shape(self) -> tuple[int, int, int]:
        return len(self), *self.shared.shape

    def __len__(self) -> int:
        return len(self.indptr) - 1 if self.of_row is None else len(self.of_row)

    def _with(self, **arrays: np.ndarray | None) -> RowTransitions:
        # A shallow copy with some arrays replaced.
        rows = copy(self)
        vars(rows).update(arrays)
        return rows

    def astype(self, dtype: DTypeLike) -> RowTransitions:
        """A copy with scores of another type.

        Parameters
        ----------
        dtype : numpy dtype

        Returns
        -------
        RowTransitions
        """
        shared, score = (x.astype(dtype, copy=False) for x in (self.shared, self.score))
        return self._with(shared=shared, score=score)

    def with_expected(self) -> RowTransitions:
        """A copy with zeros in ``expected``, to which forward-backward then adds.

        Returns
        -------
        RowTransitions
        """
        return self._with(expected=np.zeros(len(self.i)))

    def part(self, first: int, last: int) -> RowTransitions:
        """Rows ``first`` to ``last - 1``; scores and expectations are views.

        Parameters
        ----------
        first, last : int

        Returns
        -------
        RowTransitions
        """
        if self.of_row is not None:
            write_scores(self)
            return self._with(of_row=self.of_row[first:last])
        a, b = int(self.indptr[first]), int(self.indptr[last])
        expected = None if self.expected is None else self.expected[a:b]
        indptr = self.indptr[first : last + 1] - a
        i, j, score = self.i[a:b], self.j[a:b], self.score[a:b]
        return self._with(indptr=indptr, i=i, j=j, score=score, expected=expected)

    def followed_by(self, others: RowTransitions) -> RowTransitions:
        """These rows followed by others with the same ``shared``; both without ``of_row``.

        Parameters
        ----------
        others : RowTransitions

        Returns
        -------
        RowTransitions
        """
        i, j, score = (
            np.concatenate([getattr(rows, name) for rows in (self, others)])
            for name in ("i", "j", "score")
        )
        indptr = np.append(self.indptr, self.indptr[-1] + others.indptr[1:])
        rows = RowTransitions.unchecked(self.shared, indptr, i, j, score)
        rows.ordered = self.ordered and others.ordered
        return rows

    def toarray(self) -> np.ndarray:
        """Scores of all rows.

        Returns
        -------
        ndarray of shape (n_rows, n_labels, n_labels)
        """
        return self.take(np.arange(len(self)))

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Scores of some rows.

        Parameters
        ----------
        rows : ndarray of int, shape (n,)

        Returns
        -------
        ndarray of shape (n, n_labels, n_labels)
        """
        dense = np.repeat(self.shared[None], len(rows), axis=0)
        k, entry = self._entries_of(rows)
        dense[k, self.i[entry], self.j[entry]] = self.score[entry]
        return dense

    def _entries_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # The entries of rows, and the position in ``rows`` of the row of each.
        rows = rows if self.of_row is None else self.of_row[rows]
        first = self.indptr[rows]
        counts = self.indptr[rows + 1] - first
        return np.repeat(np.arange(len(rows)), counts), ranges(first, counts)

    def reversed(self) -> RowTransitions:
        """The transitions of the same chain, from the last row to the first.

        Returns
        -------
        RowTransitions
        """
        n = len(self)
        row = n - np.repeat(np.arange(n), np.diff(self.indptr))
        order = np.argsort(row, kind="stable")[: len(row) - self.indptr[min(n, 1)]]
        indptr = np.searchsorted(row[order], np.arange(n + 1))
        return RowTransitions(
            self.shared.T, indptr, self.j[order], self.i[order], self.score[order]
        )

    def _labels(self) -> tuple[np.ndarray, np.ndarray]:
        # Labels of entries, as far as kernels read them.
        return self.i, self.j

    def for_kernels(self, values: np.ndarray, width: int) -> tuple:
        """Entries with ``values``, and memory for matrices, for ``row_matrices``.

        Parameters
        ----------
        values : ndarray of shape (n_entries,)
        width : int
            Padded number of labels.

        Returns
        -------
        tuple
        """
        own = np.empty((2, width, width), dtype=values.dtype)
        entries = self.indptr, *self._labels(), values
        return *entries, own, self.expected, len(self.shared), self.of_row, self.ordered


class _Matrices(RowTransitions):
    # A matrix for each row. Labels of entries take as much memory as the scores: they are listed
    # only if they are asked for.
    ordered = True

    def __init__(self, transition: np.ndarray):
        n, L, _ = transition.shape
        self.shared = np.zeros((L, L), dtype=transition.dtype)
        self.indptr = np.arange(n + 1) * (L * L)
        self.score = np.ascontiguousarray(transition).reshape(-1)
        self.expected = None

    @cached_property
    def i(self) -> np.ndarray:  # type: ignore[override]
        L = len(self.shared)
        return np.tile(np.arange(L, dtype=np.int32).repeat(L), len(self))

    @cached_property
    def j(self) -> np.ndarray:  # type: ignore[override]
        return np.tile(np.arange(len(self.shared), dtype=np.int32), len(self) * len(self.shared))

    def _matrices(self, first: int, last: int) -> np.ndarray:
        return self.score.reshape(self.shape)[first:last]

    def part(self, first: int, last: int) -> RowTransitions:
        """Rows ``first`` to ``last - 1``."""
        part = _Matrices(self._matrices(first, last))
        part.shared = self.shared
        if self.expected is not None:
            part.expected = self.expected[self.indptr[first] : self.indptr[last]]
        return part

    def take(self, rows: np.ndarray) -> np.ndarray:
        """Scores of some rows."""
        return self._matrices(0, len(self))[rows]

    def reversed(self) -> RowTransitions:
        """The transitions of the same chain, from the last row to the first."""
        matrices = self._matrices(1, len(self))[::-1].transpose(0, 2, 1)
        first = np.zeros((min(len(self), 1), *self.shared.shape), dtype=self.score.dtype)
        return _Matrices(np.concatenate([first, matrices]))

    def _labels(self) -> tuple[np.ndarray, np.ndarray]:
        if self.expected is not None:
            return self.i, self.j
        return (np.empty(0, dtype=np.int32),) * 2


# Transition scores in public functions: arrays of two or three dimensions, or RowTransitions.
TransitionLike: TypeAlias = "MatrixLike | RowTransitions"


def write_scores(rows: RowTransitions) -> None:
    """Write scores and labels of entries if only their factors have been computed."""
    if rows.factors is not None:
        rows.factors.write_scores()
        rows.factors = None


def has_set_matrices(rows: RowTransitions, width: int) -> bool:
    """Whether recursions on rows of a padded width are faster with a matrix of each set."""
    n, L = len(rows.indptr) - 1, len(rows.shared)
    if rows.of_row is None or width < 8:
        return False
    if SHARED_BY * n <= len(rows.of_row) and n * width * L * rows.score.itemsize <= SETS_BYTES:
        return True
    # Sets of all pairs take as much memory without matrices.
    return len(rows.score) == np.count_nonzero(np.diff(rows.indptr)) * L**2


def row_scores(rows: RowTransitions | None, first: int, last: int, width: int) -> tuple | None:
    """Entries of a sequence, rows ``first`` to ``last - 1``, for recursions on scores."""
    if rows is None:
        return None
    rows = rows.part(first, last)
    return rows.for_kernels(rows.score, width)


def pair_scores(
    transition: np.ndarray | RowTransitions, t: np.ndarray, i: np.ndarray, j: np.ndarray
) -> np.ndarray:
    """Transition scores of labels i followed by labels j at rows t."""
    if not isinstance(transition, RowTransitions):
        return transition[i, j]
    scores = transition.shared[i, j]
    k, entry = transition._entries_of(t)
    same = (transition.i[entry] == i[k]) & (transition.j[entry] == j[k])
    scores[k[same]] = transition.score[entry[same]]
    return scores

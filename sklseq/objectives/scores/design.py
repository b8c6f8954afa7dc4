"""Feature rows arranged for the kernels: A(w) on a block of rows, and its transpose.

A *design* owns the layout of the state weights: only this file and ``observed.py`` know the
position in w of the weight of a (feature, label) pair. All designs have the same interface:

========================= ========================================================================
``n_weights``             length of the state part of w
``weights(w)``            the W that ``scores`` takes; called once in each evaluation
``scores(W, a, b, psi)``  psi = X[a:b] · coef
``new_buffer()``          zeros; each thread adds its part of the transpose to one buffer
``collect(r, a, buffer)`` add the part of rows a, a + 1, …, whose residuals are r
``finish(…)``             gradient = X' residual + ridge · w; returns Σ w²
``release()``             free the rows of X; none of the above may be called afterwards
``squared()``             a copy that collects squares of values
``for_rows(X)``           a design of other rows with the same layout of w (not in all designs)
``nbytes``                memory of the rows, in designs that have ``for_rows``
``unshared()``            a copy for an evaluation at another w at the same time
``unpack(w)``             padded rows (n_features, width), in the user's order of features
``pack(rows)``            the inverse
``needs_all_residuals``   whether ``finish`` reads the residuals of all rows
========================= ========================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

import numpy as np
from scipy import sparse

from sklseq._lib.aligned import aligned_zeros
from sklseq._lib.cpu import load_kernel
from sklseq._lib.threads import Threads, spans
from sklseq.data.sequences import Sequences, factors_of, finite_sum, made_of_ones
from sklseq.objectives.scores.list_sums import list_sums

_linear = load_kernel("sklseq.objectives.scores._linear")

# Features that occur more often than this are scattered, the others gathered: see _linear.pyx.
FREQUENT_COUNT = 8
# Rows of a triangular matrix that are multiplied at once. The zeros in a square of this size at the
# diagonal are multiplied too.
STRIP = 128


def values_unless_ones(rows: sparse.csr_matrix, dtype: np.dtype) -> np.ndarray:
    """Values of CSR rows as the kernels read them: empty where all are one."""
    ones = made_of_ones(rows) or bool((rows.data == 1).all())
    return np.zeros(0, dtype) if ones else np.ascontiguousarray(rows.data, dtype)


def without_zeros(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """Rows without stored zeros (such as false flags of feature dicts), which add nothing."""
    if made_of_ones(rows) or rows.data.all():
        return rows
    rows = rows.copy()
    rows.eliminate_zeros()
    return rows


def score_rows(X: Sequences, W: np.ndarray):
    """Design that computes A only, for weights W in the user's order of features."""
    if not X.is_sparse:
        return DenseScores(X, W.dtype)
    factors = factors_of(X.rows)
    sums = None if factors is None else list_sums(*factors, W)
    if sums is None:
        return SparseScores(X.rows, W.dtype)
    return ProductScores(factors[0], sums)


def add_product(out: np.ndarray, rows: np.ndarray, residual: np.ndarray) -> None:
    """out += rowsᵀ · residual, such that several threads can do so at the same time."""
    # Not `@`: NumPy holds the interpreter lock in it if the product has less than 500 elements.
    out += np.dot(rows.T, residual)


def as_type(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A C-contiguous array; values beyond the largest number of the type become infinite."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype)


class DenseScores:
    """A for a dense matrix, by BLAS."""

    def __init__(self, X: Sequences, dtype: np.dtype):
        self.rows, self.dtype = X.rows, dtype
        self.n_features = self.rows.shape[1]

    def block(self, first: int, last: int) -> np.ndarray:
        """Rows ``first`` to ``last - 1`` as a C-contiguous array of ``dtype``."""
        return as_type(self.rows[first:last], self.dtype)

    def scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> None:
        """out = X[first:last] @ W."""
        np.matmul(self.block(first, last), W, out=out)

    def checked_scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> bool:
        """out = X[first:last] @ W; return whether the sum of X[first:last] is finite.

        If it is, all values are finite.
        """
        rows = self.block(first, last)
        finite = finite_sum(rows)
        with np.errstate(**{} if finite else {"invalid": "ignore"}):
            np.matmul(rows, W, out=out)
        return finite


class SparseScores:
    """A for CSR rows that are read once: each block of values is checked when it is read."""

    def __init__(self, rows: sparse.csr_matrix, dtype: np.dtype):
        self.rows, self.dtype = rows, dtype

    def scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> None:
        """out = X[first:last] @ W."""
        self.checked_scores(W, first, last, out)

    def checked_scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> bool:
        """out = X[first:last] @ W; return whether all values of X[first:last] are finite."""
        indptr = self.rows.indptr[first : last + 1]
        entries = slice(indptr[0], indptr[-1])
        data, kind = np.zeros(0, self.dtype), _linear.ONES
        if not made_of_ones(self.rows):
            data = as_type(self.rows.data[entries], self.dtype)
            kind = _linear.kind_of_values(data)
            data = data[:0] if kind == _linear.ONES else data
        indices = np.ascontiguousarray(self.rows.indices[entries])
        _linear.gather_rows(indptr - indptr[0], indices, data, W, out, 0, last - first)
        return kind != _linear.NOT_FINITE


class ProductScores(SparseScores):
    """A for a ``ProductOfOnes`` A B, from the ``list_sums`` B W."""

    def __init__(self, rows: sparse.csr_matrix, sums: np.ndarray):
        super().__init__(rows, sums.dtype)
        self.sums = sums

    def checked_scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> bool:
        """out = X[first:last] @ W for the W of the sums."""
        return super().checked_scores(self.sums, first, last, out)


class DenseRows(DenseScores):
    """Design for a dense matrix: w holds the padded rows of weights, or only their ``pairs``.

    Parameters
    ----------
    X : Sequences
    pairs : ndarray of flat (feature · n_labels + label), sorted, or None for all
    n_labels, width : int
    dtype : numpy dtype
    """

    needs_all_residuals = False

    def __init__(self, X: Sequences, pairs, n_labels: int, width: int, dtype: np.dtype):
        super().__init__(X.with_rows(np.ascontiguousarray(X.rows, dtype)), dtype)
        self.shape = (self.n_features, width)
        self.at = slice(None)
        if pairs is not None and len(pairs) < self.n_features * n_labels:
            feature, label = np.divmod(pairs, n_labels)
            self.at = feature * width + label
        self.n_weights = len(self.new_buffer().reshape(-1)[self.at])

    def for_rows(self, X: Sequences) -> DenseRows:
        other = copy(self)
        other.rows = np.ascontiguousarray(X.rows, self.dtype)
        return other

    def unshared(self) -> DenseRows:
        return self

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def weights(self, w: np.ndarray) -> np.ndarray:
        return self.unpack(w) if isinstance(self.at, np.ndarray) else w.reshape(self.shape)

    def new_buffer(self) -> np.ndarray:
        return np.zeros(self.shape, dtype=self.rows.dtype)

    def collect(self, residual: np.ndarray, first: int, buffer: np.ndarray) -> None:
        add_product(buffer, self.rows[first : first + len(residual)], residual)

    def finish(self, residual, buffers, w, ridge, gradient, threads) -> float:
        np.multiply(w, ridge, out=gradient)
        for buffer in buffers:
            gradient += buffer.reshape(-1)[self.at]
        return float(np.square(w, dtype=np.float64).sum())

    def squared(self) -> DenseSquares:
        """A copy whose ``collect`` takes the squares of values."""
        return DenseSquares(self)

    def release(self) -> None:
        del self.rows

    def unpack(self, w: np.ndarray) -> np.ndarray:
        rows = aligned_zeros(self.shape[0] * self.shape[1], w.dtype)
        rows[self.at] = w
        return rows.reshape(self.shape)

    def pack(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(-1)[self.at]


class DenseSquares(DenseRows):
    """Design whose ``collect`` takes the squares of the values of ``design``, block by block."""

    def __init__(self, design: DenseRows):
        vars(self).update(vars(design))

    def collect(self, residual: np.ndarray, first: int, buffer: np.ndarray) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # of large values in float32
            squares = np.square(self.rows[first : first + len(residual)])
            add_product(buffer, squares, residual)


class TriangularRows(DenseRows):
    """Design for a lower triangular matrix; most of its zeros are not multiplied."""

    def scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> None:
        """out = X[first:last] @ W."""
        for a, b in strips(first, last):
            np.matmul(self.rows[a:b, :b], W[:b], out=out[a - first : b - first])

    def collect(self, residual: np.ndarray, first: int, buffer: np.ndarray) -> None:
        for a, b in strips(first, first + len(residual)):
            # In this order, BLAS is faster than for rowsᵀ · residual, as in `add_product`.
            buffer[:b] += np.dot(residual[a - first : b - first].T, self.rows[a:b, :b]).T


def strips(first: int, last: int) -> Iterator[tuple[int, int]]:
    """Cut rows into strips of STRIP."""
    for a in range(first, last, STRIP):
        yield a, min(a + STRIP, last)


class SparseRows:
    """Design for CSR rows where every (feature, label) pair has a weight.

    w holds the padded rows of weights, from the most to the least frequent feature, so that the
    weights of frequent features lie together in memory.
    """

    needs_all_residuals = True

    def __init__(self, X: Sequences, width: int, dtype: np.dtype):
        rows, self.width = without_zeros(X.rows), width
        n_rows, self.n_features = rows.shape
        self.n_weights = self.n_features * width
        self.indptr, self.data = rows.indptr, values_unless_ones(rows, dtype)
        counts = np.bincount(rows.indices, minlength=self.n_features)
        self.order = np.argsort(-counts, kind="stable")
        rank = np.empty(self.n_features, dtype=rows.indices.dtype)
        rank[self.order] = np.arange(self.n_features, dtype=rank.dtype)
        self.n_frequent = int((counts > FREQUENT_COUNT).sum())
        self.indices = np.ascontiguousarray(self._frequent_first(rank[rows.indices], n_rows))

    def _frequent_first(self, indices: np.ndarray, n_rows: int) -> np.ndarray:
        # Sort each row by the new numbers of features; store rare features by columns as well.
        data = self.data if len(self.data) else np.ones(len(indices), np.int8)
        rows = sparse.csr_matrix(
            (data.copy(), indices, self.indptr), shape=(n_rows, self.n_features), copy=False
        )
        rows.sort_indices()
        if not rows.has_canonical_format:  # duplicates are summed for both passes
            rows = rows.astype(self.data.dtype)
            rows.sum_duplicates()
            self.data = rows.data
        self.indptr = rows.indptr
        frequent = rows.indices < self.n_frequent
        before = np.concatenate([[0], np.cumsum(frequent, dtype=self.indptr.dtype)])
        self.stop = (self.indptr[:-1] + np.diff(before[self.indptr])).astype(self.indptr.dtype)
        owners = np.repeat(np.arange(n_rows, dtype=rows.indices.dtype), np.diff(self.indptr))
        rare = sparse.coo_matrix(
            (rows.data[~frequent], (rows.indices[~frequent] - self.n_frequent, owners[~frequent])),
            shape=(self.n_features - self.n_frequent, n_rows),
        ).tocsr()
        kind = np.int32 if rare.indices.dtype == np.int32 else np.int64
        self.rare_indptr, self.rare_rows = rare.indptr.astype(kind), rare.indices
        self.rare_data = self.data
        if len(self.data):
            self.data, self.rare_data = rows.data, rare.data
        return rows.indices

    def of_rows_with_rare(self) -> tuple[SparseRows, np.ndarray]:
        """A copy whose ``finish`` takes the residuals of the returned rows only.

        These are the rows with a rare feature: often few, if many rows have few features.
        """
        other = copy(self)
        rows, number = np.unique(self.rare_rows, return_inverse=True)
        other.rare_rows = number.reshape(-1).astype(self.rare_rows.dtype)
        return other, rows

    def squared(self) -> SparseRows:
        """A copy whose ``collect`` and ``finish`` take the squares of values."""
        other = copy(self)
        other.data, other.rare_data = np.square(self.data), np.square(self.rare_data)
        return other

    def weights(self, w: np.ndarray) -> np.ndarray:
        return w.reshape(-1, self.width)

    def entries(self):
        """(rows, sparse entries, mask) as `_ascent.pyx` reads them."""
        indices = self.indices.astype(np.int32, copy=False)
        return (self.indptr.astype(np.int64), indices, self.data), None, None

    def store(self, W: np.ndarray, w: np.ndarray) -> None:
        """The inverse of :meth:`weights`, after a kernel changed W: nothing, W is a view of w."""

    def scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> None:
        """out = X[first:last] @ W."""
        indptr = self.indptr[first : last + 1]
        _linear.gather_rows(indptr, self.indices, self.data, W, out, 0, last - first)

    def new_buffer(self) -> np.ndarray:
        return np.zeros((self.n_frequent, self.width), dtype=self.data.dtype)

    def collect(self, residual: np.ndarray, first: int, buffer: np.ndarray) -> None:
        last = first + len(residual)
        _linear.scatter_rows(
            self.indptr[first:last], self.stop[first:last], self.indices, self.data, residual,
            buffer,
        )  # fmt: skip

    def finish(self, residual, buffers, w, ridge, gradient, threads: Threads) -> float:
        frequent, W, out = self.n_frequent, self.weights(w), self.weights(gradient)
        np.multiply(W[:frequent], ridge, out=out[:frequent])
        for buffer in buffers:
            out[:frequent] += buffer
        # More pieces than threads balance the load; their sums are added in a fixed order.
        pieces = spans(self.n_features - frequent, 4 * threads.n)

        def gather(piece: tuple[int, int]) -> float:
            return _linear.gather_rows(
                self.rare_indptr, self.rare_rows, self.rare_data, residual, out[frequent:], *piece,
                W[frequent:], ridge,
            )  # fmt: skip

        squares = threads.map(gather, pieces)
        return float(np.square(W[:frequent], dtype=np.float64).sum()) + sum(squares)

    def release(self) -> None:
        del self.indptr, self.indices, self.data, self.stop
        del self.rare_indptr, self.rare_rows, self.rare_data

    def unpack(self, w: np.ndarray) -> np.ndarray:
        rows = aligned_zeros(self.n_weights, w.dtype).reshape(-1, self.width)
        rows[self.order] = self.weights(w)
        return rows

    def pack(self, rows: np.ndarray) -> np.ndarray:
        return rows[self.order].reshape(-1)


class PlainRows:
    """Design for CSR rows that are read once: w holds padded rows in the user's feature order."""

    def __init__(self, X: Sequences, width: int, dtype: np.dtype):
        self.width, self.n_features = width, X.shape[1]
        self.n_weights = self.n_features * width
        rows = without_zeros(X.rows)
        self.rows = (
            rows.indptr.astype(np.int64),
            rows.indices.astype(np.int32),
            values_unless_ones(rows, dtype),
        )

    weights, store = SparseRows.weights, SparseRows.store

    def entries(self):
        """(rows, sparse entries, mask) as the kernels of single sequences read them."""
        return self.rows, None, None

    def unpack(self, w: np.ndarray) -> np.ndarray:
        return self.weights(w)

    def pack(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(-1)

    def release(self) -> None:
        del self.rows

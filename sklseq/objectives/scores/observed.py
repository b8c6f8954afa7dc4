"""The design of a model in which only some (feature, label) pairs have a weight.

By default these are the pairs that occur in the training data.
"""

from __future__ import annotations

from copy import copy

import numpy as np

from sklseq._lib.aligned import aligned_zeros
from sklseq._lib.index_types import index_type
from sklseq._lib.ragged import offsets_of, ranges
from sklseq._lib.threads import Threads, spans
from sklseq.data.sequences import Sequences
from sklseq.objectives.scores.design import _linear
from sklseq.objectives.scores.row_entries import quotients

# A feature is sparse if it has at most SPARSE_PAIRS pairs, or pairs with at most SPARSE_FRACTION of
# the labels: an entry for each pair then costs less than a padded row. The fraction is measured:
# with it, training with 300 labels takes 0.85 of the time.
SPARSE_PAIRS, SPARSE_FRACTION = 4, 1 / 16
# Entries that are rearranged at a time, by one thread.
CHUNK = 100_000
MOST_PAIRS = 2**31 - 1  # their numbers are int32


def count_columns(indices: np.ndarray, n_columns: int, threads: Threads) -> np.ndarray:
    """Number of entries of CSR rows in each column."""

    def count(span: tuple[int, int]) -> np.ndarray:
        counts = np.zeros(n_columns, dtype=np.int64)
        _linear.count_columns(indices, counts, *span)
        return counts

    pieces = spans(len(indices), min(threads.n, 1 + len(indices) // CHUNK))
    return sum(threads.map(count, pieces), np.zeros(n_columns, dtype=np.int64))


class ObservedRows:
    """Design for CSR rows where some (feature, label) pairs have a weight.

    Most features have one or two pairs; the few features with more pairs have most of the entries.

    * *Dense* features have more than ``SPARSE_PAIRS`` pairs, and more than ``SPARSE_FRACTION`` of
      the padded labels. Their weights are copied into padded rows, few enough for the cache, and
      rows of X are gathered and scattered as if all pairs had a weight.
    * *Sparse* features: each value of X and each pair of its feature give one entry (row, label,
      pair).

    w holds the pairs of dense features, most frequent feature first, then those of sparse features.

    Parameters
    ----------
    X : Sequences
    pairs : ndarray of flat (feature · n_labels + label), sorted
    n_labels, width : int
    dtype : numpy dtype
    counts : ndarray of shape (n_features,), optional
        Number of rows with each feature, which orders the weights; by default, counted in X.
    threads : Threads, optional
        For the arrangement of the rows.
    """

    needs_all_residuals = False

    def __init__(
        self, X: Sequences, pairs, n_labels: int, width: int, dtype: np.dtype, counts=None,
        threads: Threads | None = None,
    ):  # fmt: skip
        rows, self.width, self.dtype = X.rows, width, np.dtype(dtype)
        self.n_features, self.n_weights = rows.shape[1], len(pairs)
        if len(pairs) > MOST_PAIRS:
            raise ValueError(
                f"The training data have {len(pairs)} pairs of a feature and a label, more than "
                f"the {MOST_PAIRS} that may have a weight; drop rare features (min_count)."
            )
        kind = index_type(self.n_features * width)
        feature, label = quotients(pairs.astype(kind), n_labels)
        n_pairs = np.bincount(feature, minlength=self.n_features)
        if counts is None:
            counts = count_columns(rows.indices, self.n_features, threads or Threads(1))
        self.rank = self._place(feature, label, n_pairs, counts, kind)
        n_sparse = np.where(self.rank >= 0, 0, n_pairs)
        self.first_pair = offsets_of(n_sparse).astype(np.int32)
        self._split(rows, threads)

    def for_rows(self, X: Sequences) -> ObservedRows:
        """A design of other rows with the same layout of w; the arrays of the layout are shared."""
        other = copy(self)
        other._split(X.rows)
        return other

    def unshared(self) -> ObservedRows:
        """A copy for an evaluation that runs at the same time as others at other w."""
        other = copy(self)
        other._W = np.zeros_like(self._W)
        return other

    def squared(self) -> ObservedRows:
        """A copy whose ``collect`` and ``finish`` take the squares of values."""
        other = copy(self)
        other.data, other.sparse_data = np.square(self.data), np.square(self.sparse_data)
        return other

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays that store the rows."""
        arrays = (self.indptr, self.sparse_indptr, self.indices, self.pair, self.label)
        return sum(x.nbytes for x in (*arrays, self.data, self.sparse_data))

    def _place(self, feature, label, n_pairs, counts, kind: type) -> np.ndarray:
        # Set the position of each pair in w. Returns the padded row of each dense feature, and -1
        # for sparse features.
        dense = np.flatnonzero(n_pairs > max(SPARSE_PAIRS, SPARSE_FRACTION * self.width))
        dense = dense[np.argsort(-counts[dense], kind="stable")]
        rank = np.full(self.n_features, -1, dtype=np.int32)
        rank[dense] = np.arange(len(dense))
        n, first = n_pairs[dense], (np.cumsum(n_pairs) - n_pairs)[dense]
        self.n_dense = int(n.sum())
        of_dense = label[ranges(first, n)]
        self.dense_at = np.repeat(np.arange(len(dense)) * self.width, n) + of_dense
        of_sparse = np.flatnonzero(rank[feature] < 0)
        self.sparse_label = label[of_sparse].astype(np.uint16)
        single = feature[of_sparse].astype(kind) * self.width + label[of_sparse]
        places = np.repeat(dense.astype(kind) * self.width, n) + of_dense
        self.shape, self.user_at = (len(dense), self.width), np.append(places, single).astype(kind)
        self._W = aligned_zeros(len(dense) * self.width, self.dtype).reshape(self.shape)
        return rank

    def _split(self, rows, threads: Threads | None = None) -> None:
        # Store entries of dense features in one CSR structure, those of sparse ones in another.
        threads, values = threads or Threads(1), np.ascontiguousarray(rows.data, self.dtype)
        n, places = rows.shape[0], (self.rank, self.first_pair)
        pieces = spans(n, 1 + rows.nnz // CHUNK)
        starts = np.zeros((2, n + 1), dtype=np.int64)
        counts = np.zeros((2, n), dtype=np.int64)
        given = rows.indptr, rows.indices, values
        threads.map(lambda piece: _linear.count_entries(*given, *places, counts, *piece), pieces)
        np.cumsum(counts, axis=1, out=starts[:, 1:])
        n_entries = starts[:, -1]
        self.indptr, self.sparse_indptr = starts.astype(index_type(n_entries.max()))
        self.indices, self.pair = (np.empty(k, dtype=np.int32) for k in n_entries)
        self.label = np.empty(n_entries[1], dtype=np.uint16)
        ones = _linear.zeros_or_ones(values)
        self.data, self.sparse_data = (
            np.empty(0 if ones else k, dtype=self.dtype) for k in n_entries
        )
        layout = *places, self.sparse_label, starts
        out = self.indices, self.data, self.pair, self.label, self.sparse_data
        threads.map(lambda piece: _linear.split_entries(*given, *layout, out, *piece), pieces)
        self.indices = self.indices.astype(self.indptr.dtype, copy=False)  # one type for kernels

    def weights(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Padded rows of the dense features, and the weights of sparse pairs."""
        self._W.reshape(-1)[self.dense_at] = w[: self.n_dense]
        return self._W, w[self.n_dense :]

    def entries(self):
        """(rows, sparse entries, mask) as `_ascent.pyx` reads them."""
        mask = np.zeros(self.shape)
        mask.reshape(-1)[self.dense_at] = 1
        single = (self.sparse_indptr.astype(np.int64), self.pair, self.label, self.sparse_data)
        indices = self.indices.astype(np.int32, copy=False)
        return (self.indptr.astype(np.int64), indices, self.data), single, mask

    def store(self, W: np.ndarray, w: np.ndarray) -> None:
        """The inverse of :meth:`weights`, after the kernel changed W."""
        w[: self.n_dense] = W.reshape(-1)[self.dense_at]

    def scores(self, W, first: int, last: int, out: np.ndarray) -> None:
        """out = X[first:last] · coef."""
        dense, single = W
        rows = slice(first, last + 1)
        _linear.gather_rows(self.indptr[rows], self.indices, self.data, dense, out, 0, last - first)
        _linear.add_pairs(
            self.sparse_indptr[rows], self.pair, self.label, self.sparse_data, single, out
        )

    def new_buffer(self) -> np.ndarray:
        n = self.shape[0] * self.width
        return aligned_zeros(n + self.n_weights - self.n_dense, self.dtype)

    def collect(self, residual: np.ndarray, first: int, buffer: np.ndarray) -> None:
        n, last = self.shape[0] * self.width, first + len(residual)
        _linear.scatter_rows(
            self.indptr[first:last], self.indptr[first + 1 : last + 1], self.indices, self.data,
            residual, buffer[:n].reshape(self.shape),
        )  # fmt: skip
        _linear.collect_pairs(
            self.sparse_indptr[first : last + 1], self.pair, self.label, self.sparse_data,
            residual, buffer[n:],
        )  # fmt: skip

    def finish(self, residual, buffers, w, ridge, gradient, threads) -> float:
        n = self.shape[0] * self.width
        np.multiply(w, ridge, out=gradient)
        for buffer in buffers:
            gradient[: self.n_dense] += buffer[self.dense_at]
            gradient[self.n_dense :] += buffer[n:]
        return float(np.square(w, dtype=np.float64).sum())

    def release(self) -> None:
        del self.indptr, self.indices, self.data, self._W, self.rank, self.first_pair
        del self.sparse_indptr, self.pair, self.label, self.sparse_data, self.sparse_label

    def unpack(self, w: np.ndarray) -> np.ndarray:
        rows = aligned_zeros(self.n_features * self.width, w.dtype)
        rows[self.user_at] = w
        return rows.reshape(-1, self.width)

    def pack(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(-1)[self.user_at]

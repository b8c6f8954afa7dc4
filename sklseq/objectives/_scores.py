"""Where each weight of a linear chain lives in the flat vector w.

``w`` is, in this order:

1. state weights. All (feature, label) pairs: rows of features in the order of the design, each
   padded to ``width`` numbers (padding stays 0). Only observed pairs: the pairs, one number each;
2. transition weights (i, j), those that have one, row by row;
3. start weights, then end weights, those that have one.

Nobody else indexes w.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklseq._sequences import row_positions
from sklseq._threads import spans
from sklseq.inference.chain import Transitions, _chain
from sklseq.objectives._design import arrange

__all__ = [
    "ScoreMap",
    "Support",
    "Weights",
    "aligned_zeros",
    "full_support",
    "observed_support",
    "padded_rows",
]


class Weights(NamedTuple):
    """Weights as a user sees them.

    Attributes
    ----------
    coef : ndarray of shape (n_features, n_labels)
    transition : ndarray of shape (n_labels, n_labels)
    start, end : ndarray of shape (n_labels,)
    """

    coef: np.ndarray
    transition: np.ndarray
    start: np.ndarray
    end: np.ndarray


class Support(NamedTuple):
    """Which weights are trained; the others are 0, or -inf where forbidden.

    Attributes
    ----------
    pairs : ndarray of flat (feature · n_labels + label), sorted, or None for all
    transition : bool ndarray of shape (n_labels, n_labels)
    start, end : bool ndarray of shape (n_labels,)
    """

    pairs: np.ndarray | None
    transition: np.ndarray
    start: np.ndarray
    end: np.ndarray


def aligned_zeros(n: int, dtype: np.dtype) -> np.ndarray:
    """Zeros that start at a cache line, so that no padded row straddles one more than it must."""
    itemsize = np.dtype(dtype).itemsize
    memory = np.zeros(n * itemsize + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + n * itemsize].view(dtype)


def observed_support(X, y: np.ndarray, n_labels: int) -> Support:
    """What occurs in the training data: (feature, label) pairs, transitions, ends."""
    L = n_labels
    seen = np.zeros((X.shape[1], L), dtype=bool)
    if X.is_sparse:
        for a, b in spans(X.n_rows, 1 + X.rows.nnz // 500_000):  # so that temporaries stay small
            entries = slice(X.rows.indptr[a], X.rows.indptr[b])
            labels = np.repeat(y[a:b], np.diff(X.rows.indptr[a : b + 1]))
            present = X.rows.data[entries] != 0
            seen[X.rows.indices[entries][present], labels[present]] = True
    else:
        for j in range(L):
            seen[:, j] = (X.rows[y == j] != 0).any(axis=0)
    pairs = np.flatnonzero(seen)
    first, last, after = row_positions(X.offsets)
    transition = np.zeros((L, L), dtype=bool)
    transition[y[after - 1], y[after]] = True
    start, end = np.zeros(L, dtype=bool), np.zeros(L, dtype=bool)
    start[y[first]] = True
    end[y[last]] = True
    return Support(pairs, transition, start, end)


def padded_rows(coef: np.ndarray) -> np.ndarray:
    """``coef`` with rows padded and aligned as the kernels want them: itself, or a copy."""
    width = _chain.padded_width(coef.shape[1])
    rows = coef.base
    if isinstance(rows, np.ndarray) and rows.dtype == coef.dtype and rows.ndim == 2:
        same = rows.shape == (len(coef), width) and rows.ctypes.data == coef.ctypes.data
        if same and rows.flags.c_contiguous:
            return rows
    rows = aligned_zeros(len(coef) * width, coef.dtype).reshape(-1, width)
    rows[:, : coef.shape[1]] = coef
    return rows


def full_support(n_labels: int) -> Support:
    """Every pair, transition, start and end has a weight."""
    ones = np.ones(n_labels, dtype=bool)
    return Support(None, np.ones((n_labels, n_labels), dtype=bool), ones, ones)


class ScoreMap:
    """Weights to potentials (A), and residuals to gradient (its transpose).

    Parameters
    ----------
    X : Sequences
    n_labels : int
    support : Support
        Which weights there are.
    allowed : Support-like with bool ``transition``, ``start``, ``end``
        Where False, the score is -inf whatever the weights.
    dtype : numpy dtype
    """

    def __init__(self, X, n_labels: int, support: Support, allowed, dtype: np.dtype):
        self.n_labels, self.dtype = n_labels, np.dtype(dtype)
        self.width = _chain.padded_width(n_labels)
        self.design = arrange(X, self.dtype, for_training=True)
        self.n_features = self.design.n_features
        self.allowed = allowed
        self.transition_at = np.flatnonzero(support.transition & allowed.transition)
        self.start_at = np.flatnonzero(support.start & allowed.start)
        self.end_at = np.flatnonzero(support.end & allowed.end)
        self.state_at = None if support.pairs is None else self._positions(support.pairs)
        padded = self.n_features * self.width
        self.n_state = padded if self.state_at is None else len(self.state_at)
        sizes = [self.n_state, len(self.transition_at), len(self.start_at), len(self.end_at)]
        self.ends = np.cumsum(sizes)
        self.n_weights = int(self.ends[-1])
        if self.state_at is not None:
            self._W = aligned_zeros(padded, self.dtype).reshape(-1, self.width)
            self._G = aligned_zeros(padded, self.dtype).reshape(-1, self.width)

    def _positions(self, pairs: np.ndarray) -> np.ndarray:
        # Places of the pairs in the padded matrix whose rows are in the design's order.
        feature, label = np.divmod(pairs, self.n_labels)
        rank = np.empty(self.n_features, dtype=np.int64)
        rank[self.design.order] = np.arange(self.n_features)
        return np.sort(rank[feature] * self.width + label)

    def new_vector(self) -> np.ndarray:
        return aligned_zeros(self.n_weights, self.dtype)

    def state_rows(self, w: np.ndarray) -> np.ndarray:
        """State weights as rows (n_features, width): a view of w, or a buffer filled from it."""
        if self.state_at is None:
            return w[: self.n_state].reshape(-1, self.width)
        self._W.reshape(-1)[self.state_at] = w[: self.n_state]
        return self._W

    def gradient_rows(self, gradient: np.ndarray) -> np.ndarray:
        """Where the transpose writes; :meth:`store_gradient` takes it from there."""
        if self.state_at is None:
            return gradient[: self.n_state].reshape(-1, self.width)
        return self._G

    def store_gradient(self, gradient, pairwise, start, end) -> None:
        """Fill ``gradient`` from rows already written and from label-level residuals."""
        a, b, c, d = self.ends
        if self.state_at is not None:
            np.take(self._G.reshape(-1), self.state_at, out=gradient[:a], mode="clip")
        gradient[a:b] = pairwise.reshape(-1)[self.transition_at]
        gradient[b:c] = start[self.start_at]
        gradient[c:d] = end[self.end_at]

    def _chain_weights(self, w: np.ndarray):
        a, b, c, d = self.ends
        L = self.n_labels
        transition, start, end = np.zeros(L * L), np.zeros(L), np.zeros(L)
        transition[self.transition_at] = w[a:b]
        start[self.start_at] = w[b:c]
        end[self.end_at] = w[c:d]
        transition = transition.reshape(L, L)
        transition[~self.allowed.transition] = -np.inf
        start[~self.allowed.start] = -np.inf
        end[~self.allowed.end] = -np.inf
        return transition, start, end

    def chain(self, w: np.ndarray) -> Transitions:
        """Transition, start and end scores, ready for the kernels."""
        return Transitions(*self._chain_weights(w), dtype=self.dtype).exponentiate()

    def unpack(self, w: np.ndarray) -> Weights:
        """w as arrays in the user's order of features."""
        rows = aligned_zeros(self.n_features * self.width, self.dtype).reshape(-1, self.width)
        if self.state_at is None:
            rows[self.design.order] = self.state_rows(w)
        else:
            feature, label = np.divmod(self.state_at, self.width)
            rows[self.design.order[feature], label] = w[: self.n_state]
        coef = rows[:, : self.n_labels]  # the rows stay padded, as decoding wants them
        return Weights(coef, *(x.astype(self.dtype) for x in self._chain_weights(w)))

    def pack(self, weights: Weights) -> np.ndarray:
        """The inverse of :meth:`unpack`; weights that w has no place for are dropped."""
        w = self.new_vector()
        rows = np.zeros((self.n_features, self.width), dtype=self.dtype)
        rows[:, : self.n_labels] = weights.coef[self.design.order]
        a, b, c, d = self.ends
        flat = rows.reshape(-1)  # forbidden labels have no place in w, so their -inf is dropped
        w[:a] = flat if self.state_at is None else flat[self.state_at]
        w[a:b] = weights.transition.reshape(-1)[self.transition_at]
        w[b:c] = weights.start[self.start_at]
        w[c:d] = weights.end[self.end_at]
        return w

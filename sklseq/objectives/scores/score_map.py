"""The score map of a linear chain, and the layout of its weights in the flat vector w.

``w`` is, in this order:

1. state weights in the layout of the design (``design.py``, ``observed.py``);
2. weights of the trained transitions (i, j), row by row;
3. weights of the trained start labels, then of the trained end labels;
4. weights of transition features, in the order of ``Support.triples``.

Only this module indexes w, and the design its state weights.
"""

from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from sklseq._lib.aligned import aligned_zeros
from sklseq._lib.threads import Threads
from sklseq._lib.tiny import TINY
from sklseq.data.partial_labels import AllowedLabels
from sklseq.data.sequences import Sequences, row_positions
from sklseq.inference.chain.linear_chain import Transitions, _chain
from sklseq.inference.chain.sparse_transitions import PairLists, find_pairs
from sklseq.objectives.scores.design import (
    DenseRows,
    PlainRows,
    SparseRows,
    TriangularRows,
    _linear,
)
from sklseq.objectives.scores.observed import ObservedRows
from sklseq.objectives.scores.transition_features import TransitionFeatures
from sklseq.objectives.scores.usual_sizes import VARIANCE, between, log_medians, usual_sizes

# Range of feature magnitudes for which solvers need no scaling.
USUAL = 1 / 8, 8
# Columns of smaller magnitudes count as columns of zeros: the inverse would overflow.
LEAST_MAGNITUDE = 1e-300
# Rows of each label that are searched for all features; later rows are searched only for features
# that these lack.
HEAD = 1024
# Rows that are joined into one long row before columns are compared.
JOINED_ROWS = 64


class Weights(NamedTuple):
    """Weights in the layout of the user's model attributes.

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
    """The set of trained weights; the others are 0, or -inf where forbidden.

    Attributes
    ----------
    pairs : ndarray of flat (feature · n_labels + label), sorted, or None for all
    transition : bool ndarray of shape (n_labels, n_labels)
    start, end : bool ndarray of shape (n_labels,)
    triples : ndarray of (feature · n_labels + label) · n_labels + next label, sorted, or None
        Weights of transition features; None without such features.
    roles : uint8 ndarray of shape (n_features,), or None
        As ``Sequences.roles``; only for data with transition features.
    """

    pairs: np.ndarray | None
    transition: np.ndarray
    start: np.ndarray
    end: np.ndarray
    triples: np.ndarray | None = None
    roles: np.ndarray | None = None


def observed_support(X, y: np.ndarray, n_labels: int) -> Support:
    """Support of all (feature, label) pairs, transitions and ends in the training data.

    A sparse row has the features that it stores, also those of value 0 (such as false flags of
    feature dicts), as in CRFsuite; a dense row those of other values than 0.
    """
    L = n_labels
    seen = np.zeros((X.shape[1], L), dtype=bool)
    if X.is_sparse:
        rows = X.rows
        codes = y.astype(np.int32, copy=False)
        _linear.mark_pairs(rows.indptr, rows.indices, codes, seen.view(np.uint8))
    else:
        for j in range(L):
            rows = np.flatnonzero(y == j)
            seen[:, j] = (X.rows[rows[:HEAD]] != 0).any(axis=0)
            if len(rest := np.flatnonzero(~seen[:, j])):
                seen[rest, j] = (X.rows[np.ix_(rows[HEAD:], rest)] != 0).any(axis=0)
    pairs = np.flatnonzero(seen)
    first, last, after = row_positions(X.offsets)
    transition = np.bincount(neighbours(y, after, L), minlength=L * L).reshape(L, L) > 0
    start, end = np.zeros(L, dtype=bool), np.zeros(L, dtype=bool)
    start[y[first]] = True
    end[y[last]] = True
    return Support(pairs, transition, start, end)


def neighbours(y: np.ndarray, after: np.ndarray, n_labels: int) -> np.ndarray:
    """i · n_labels + j for the labels i, j of each row of ``after`` and the one before it."""
    if len(after) and len(after) == after[-1]:  # one sequence: no copies of its labels
        before, y = y[: len(after)], y[1 : len(after) + 1]
    else:
        before, y = y[after - 1], y[after]
    return before.astype(np.intp) * n_labels + y


def allowed_support(X, labels: AllowedLabels) -> Support:
    """Support of the pairs, transitions and ends that partial labels allow.

    Rows of unknown label count for transitions and ends only: otherwise each of their features
    would get a weight for every label.
    """
    L, codes, table = labels.n_labels, labels.codes, labels.table
    seen, known = np.zeros((X.shape[1], L), dtype=bool), ~labels.unknown
    for j in range(L):
        rows = X.rows[np.flatnonzero(known & table[codes, j])]
        if X.is_sparse:
            seen[rows.indices, j] = True
        else:
            seen[:, j] = (rows != 0).any(axis=0)
    first, last, after = row_positions(X.offsets)
    of_code = np.zeros((len(table), L), dtype=bool)  # labels that may follow each code
    n, pairs = len(table), np.unique(codes[after - 1].astype(np.int64) * len(table) + codes[after])
    np.logical_or.at(of_code, pairs // n, table[pairs % n])
    transition = (table.T.astype(float) @ of_code) > 0
    start, end = (table[np.unique(codes[at])].any(axis=0) for at in (first, last))
    return Support(np.flatnonzero(seen), transition, start, end)


def support_of_codes(support: Support, table: np.ndarray, n_single: int) -> Support:
    """Support of labels from the support of codes such as those of ``AllowedLabels``.

    As in :func:`allowed_support`, rows of unknown label, or with a set of all labels, give features
    no weights.

    Parameters
    ----------
    support : Support
        ``pairs`` are feature · n_codes + code.
    table : bool ndarray of shape (n_codes, n_labels)
        The labels that each code allows.
    n_single : int
        Codes below this number are those of single labels.
    """
    feature, code = np.divmod(support.pairs, len(table))
    seen = np.zeros((feature.max(initial=-1) + 1, table.shape[1]), dtype=bool)
    unknown = table.all(axis=1)
    unknown[:n_single] = False  # also where there is one label in all
    for k in np.unique(code[~unknown[code]]):
        seen[feature[code == k]] |= table[k]
    follows = table.T.astype(float) @ support.transition @ table > 0
    start, end = (table[some].any(axis=0) for some in (support.start, support.end))
    return Support(np.flatnonzero(seen), follows, start, end)


def padded_rows(coef: np.ndarray) -> np.ndarray:
    """``coef`` with rows padded and aligned for the kernels; a view if it already is, or a copy."""
    width = _chain.padded_width(coef.shape[1])
    base, strides = coef.base, (width * coef.itemsize, coef.itemsize)
    if isinstance(base, np.ndarray) and base.flags.c_contiguous and coef.strides == strides:
        start = coef.ctypes.data - base.ctypes.data
        if start >= 0 and start + len(coef) * strides[0] <= base.nbytes:
            rows = np.lib.stride_tricks.as_strided(coef, (len(coef), width), writeable=False)
            if not rows[:, coef.shape[1] :].any():
                return rows
    rows = aligned_zeros(len(coef) * width, coef.dtype).reshape(-1, width)
    rows[:, : coef.shape[1]] = coef
    return rows


def padded_view(coef: np.ndarray) -> np.ndarray:
    """``coef`` as a view of padded rows: what is changed in one changes in the other."""
    rows = padded_rows(coef)
    return coef if np.may_share_memory(rows, coef) else rows[:, : coef.shape[1]]


def full_support(n_labels: int) -> Support:
    """Support in which every pair, transition, start and end has a weight."""
    ones = np.ones(n_labels, dtype=bool)
    return Support(None, np.ones((n_labels, n_labels), dtype=bool), ones, ones)


def magnitudes(rows) -> np.ndarray | None:
    """Largest magnitude of each column; None if all values of sparse rows are 0 or ``USUAL``.

    In float64: NumPy cannot negate booleans, and negated int8 or uint8 may overflow.
    """
    if not sparse.issparse(rows):
        if len(rows) == 0:
            return None
        most, least = (extreme(rows, one).astype(np.float64) for one in (np.max, np.min))
        return without_tiny(np.maximum(most, -least))
    if rows.dtype.kind == "f" and _linear.zeros_or_ones(rows.data):
        return None
    values = np.abs(rows.data, dtype=np.float64)
    usual = (USUAL[0] <= values) & (values <= USUAL[1])
    if (usual | (values == 0)).all():
        return None
    return largest_at(rows.indices, values, rows.shape[1])


def largest_and_logs(rows) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Results of :func:`magnitudes` and :func:`log_medians`; None if all values are near 1."""
    largest = magnitudes(rows)
    return largest, None if largest is None else log_medians(rows)


def extreme(rows: np.ndarray, of: Any) -> np.ndarray:
    """np.max or np.min of each column; joining rows first makes it three times as fast."""
    n = len(rows) // JOINED_ROWS * JOINED_ROWS
    if n and rows.size and rows.flags.c_contiguous:
        joined = rows[:n].reshape(-1, JOINED_ROWS * rows.shape[1])
        rows = np.concatenate([of(joined, axis=0).reshape(JOINED_ROWS, -1), rows[n:]])
    return of(rows, axis=0)


def largest_at(index: np.ndarray, values: np.ndarray, n: int) -> np.ndarray:
    """Largest value at each index below n, 0 without values; values must not be negative.

    Without magnitudes so small that their inverse would overflow.
    """
    largest = np.zeros(n)
    np.maximum.at(largest, index, values)
    return without_tiny(largest)


def without_tiny(largest: np.ndarray) -> np.ndarray:
    """Magnitudes of columns, 0 for those below ``LEAST_MAGNITUDE``."""
    return np.where(largest < LEAST_MAGNITUDE, 0, largest)


def _power_of_two(scale: np.ndarray) -> np.ndarray:
    return np.exp2(np.round(np.log2(scale)))  # products with it are exact


def rows_of_columns(X: Sequences, largest: np.ndarray | None) -> Any:
    """Number of rows that store each column, if columns need a scale; otherwise of all rows."""
    if largest is None or not X.is_sparse:
        return X.n_rows
    return np.bincount(X.rows.indices, minlength=X.shape[1])


def state_rows(X: Sequences, pairs: np.ndarray | None, n_labels: int) -> Sequences:
    """X with zeros in the columns without state weights; ``pairs`` as in :class:`Support`."""
    if pairs is None:
        return X
    kept = np.zeros(X.shape[1])
    kept[pairs // n_labels] = 1
    if not X.is_sparse:
        return X.with_rows(X.rows * kept)
    rows = sparse.csr_matrix(X.rows @ sparse.diags_array(kept))
    rows.eliminate_zeros()
    return X.with_rows(rows)


class Chain(Transitions):
    """Scores of transitions, starts and ends, and the weights ``v`` of transition features."""

    v: np.ndarray


def without_forbidden(weights: np.ndarray) -> np.ndarray:
    """Weights of transitions, starts or ends, 0 where they are -inf since constraints forbade them.

    Training that goes on with other constraints starts there as with new weights.
    """
    return np.where(np.isneginf(weights), 0, weights)


class ScoreMap:
    """Weights to potentials (A), and residuals to gradient (its transpose).

    Parameters
    ----------
    X : Sequences
    n_labels : int
    support : Support
        The trained weights.
    allowed : Support-like with bool ``transition``, ``start``, ``end``
        Where False, the score is -inf whatever the weights.
    dtype : numpy dtype
        Type of w.
    user_dtype : numpy dtype, optional
        Type of the weights that :meth:`unpack` returns; by default ``dtype``.
    summary : object with ``counts``, ``largest`` and ``n_rows``, optional
        Summary of data in shards. X then only defines the layout, and :meth:`for_rows` returns the
        map of a shard.
    as_it_is : bool, default=False
        Whether sparse rows are not rearranged, because they are read once.
    threads : Threads, optional
        For the arrangement of the rows.

    Attributes
    ----------
    largest : ndarray of shape (n_features,) or None
        Largest magnitude of each feature, see :func:`magnitudes`.
    usual : ndarray of shape (n_features,) or None
        Usual magnitudes of features with values far larger, see :func:`usual_sizes`.
    n_values : ndarray of shape (n_features,)
        About how many values of each feature are not 0; only with ``usual``.
    units : ndarray of shape (n_features,) or None
        Magnitudes by which :meth:`scale` divides features: ``largest``, or its geometric mean with
        ``usual``.
    n_rows : int
        Number of rows of all data.
    n_stored : ndarray of shape (n_features,) or int
        Number of rows that store each feature, see :func:`rows_of_columns`.
    features : TransitionFeatures or None
    roles : ndarray of shape (n_features,), or None
        As in ``support``.
    """

    shares_entries = True  # argument `sets` of TransitionFeatures

    def __init__(
        self, X, n_labels: int, support: Support, allowed, dtype: np.dtype, user_dtype=None,
        summary=None, as_it_is: bool = False, threads: Threads | None = None,
    ):  # fmt: skip
        self.n_labels, self.dtype = n_labels, np.dtype(dtype)
        self.user_dtype = np.dtype(user_dtype or dtype)
        self.width = _chain.padded_width(n_labels)
        self.design = (
            PlainRows(state_rows(X, support.pairs, n_labels), self.width, self.dtype)
            if as_it_is
            else self._arrange(
                X, support.pairs, None if summary is None else summary.counts, threads
            )
        )
        self.n_features, self.n_state = X.shape[1], self.design.n_weights
        self.roles = support.roles
        self.allowed = allowed
        self.transition_at = np.flatnonzero(support.transition & allowed.transition)
        self.features = self._transition_features(X, support.triples)
        self.pairs = self.pairs_for("sums")
        self.start_at = np.flatnonzero(support.start & allowed.start)
        self.end_at = np.flatnonzero(support.end & allowed.end)
        sizes = [self.n_state, len(self.transition_at), len(self.start_at), len(self.end_at)]
        self.ends = np.cumsum(sizes)
        self.n_weights = int(self.ends[-1])
        if self.features is not None:
            self.n_weights += self.features.n_weights
        if summary is not None:
            self.largest, logs, self.n_rows = summary.largest, summary.logs, summary.n_rows
        else:
            self.largest, logs = (None, None) if as_it_is else largest_and_logs(X.rows)
            self.n_rows = X.n_rows
        self.usual, self.units = usual_sizes(logs, self.largest), self.largest
        if self.usual is not None:
            self.units, self.n_values = between(self.usual, self.largest), logs[1]
        counts = None if summary is None else summary.counts
        self.n_stored = rows_of_columns(X, self.largest) if counts is None else counts

    def _arrange(self, X, pairs: np.ndarray | None, counts: np.ndarray | None, threads):
        if not X.is_sparse:
            return DenseRows(X, pairs, self.n_labels, self.width, self.dtype)
        if pairs is None and counts is None:
            return SparseRows(X, self.width, self.dtype)
        if pairs is None:  # SparseRows needs the residuals of all rows at once
            pairs = np.arange(X.shape[1] * self.n_labels)
        return ObservedRows(X, pairs, self.n_labels, self.width, self.dtype, counts, threads)

    def _transition_features(self, X, triples: np.ndarray | None) -> TransitionFeatures | None:
        if triples is None:
            return None
        if not self.allowed.transition.all():
            triples = triples[self.allowed.transition.reshape(-1)[triples % self.n_labels**2]]
        return TransitionFeatures(X, triples, self.n_labels, self.dtype, self.shares_entries)

    def for_rows(self, X) -> Self:
        """The map of the rows of a shard, with the same layout of w."""
        other = copy(self)
        other.design = self.design.for_rows(X)
        if self.features is not None:
            other.features = self.features.for_rows(X)
        return other

    @property
    def nbytes(self) -> int:
        """Memory of the rows, of maps that have :meth:`for_rows`."""
        return self.design.nbytes + (0 if self.features is None else self.features.nbytes)

    def unshared(self) -> Self:
        """A copy for an evaluation that runs at the same time as others at other w."""
        other = copy(self)
        other.design, other.features = self.design.unshared(), copy(self.features)
        return other

    def pairs_for(self, question: str) -> PairLists | None:
        """Sparse lists of the trained transitions if these are few; see ``find_pairs``."""
        trained = np.zeros((self.n_labels, self.n_labels), dtype=bool)
        trained.reshape(-1)[self.transition_at] = True
        untrained = np.where(self.allowed.transition, 0, -np.inf)
        return find_pairs(untrained, self.dtype, question, trained)

    def new_vector(self) -> np.ndarray:
        return aligned_zeros(self.n_weights, self.dtype)

    def mask_of(self, support: Support) -> np.ndarray:
        """Mask of the weights of a smaller support with the same transitions and ends."""
        rows, mask = np.zeros((self.n_features, self.width), bool), np.ones(self.n_weights, bool)
        rows[np.divmod(support.pairs, self.n_labels)] = True
        mask[: self.n_state] = self.design.pack(rows)
        if self.features is not None:
            of_triples = self.triples(mask)
            of_triples[:] = False
            of_triples[np.searchsorted(self.features.triples, support.triples)] = True
        return mask

    def support_of(self, mask: np.ndarray, support: Support) -> Support:
        """The part of the support of this map that :meth:`mask_of` maps to ``mask``."""
        rows = self.design.unpack(mask[: self.n_state].view(np.int8))
        pairs = np.flatnonzero(rows[:, : self.n_labels])
        if self.features is None:
            return support._replace(pairs=pairs)
        return support._replace(pairs=pairs, triples=self.features.triples[self.triples(mask)])

    def places_in(self, whole: Self) -> np.ndarray:
        """The index of each weight in w of a map that has these weights and more."""
        state = self.design.pack(whole.design.unpack(np.arange(whole.n_state)))
        chain = np.arange(whole.ends[0], whole.ends[-1])
        if self.features is None:
            return np.concatenate([state, chain])
        triples = np.searchsorted(whole.features.triples, self.features.triples)
        return np.concatenate([state, chain, whole.ends[-1] + triples])

    def scale(self, l2: float, units: np.ndarray | None = None) -> np.ndarray | None:
        """Factors of w with which the objective has about the same curvature in all weights.

        ``units``: magnitudes of features, by default the attribute.

        The second derivative is at most about n · units² + 2 · l2 in a state weight, with n the
        number of rows that have the feature, and n_rows + 2 · l2 in a transition weight. Features
        differ in n whatever their magnitudes, so n counts only where magnitudes below 1 would make
        the penalty the larger term. None if the largest magnitudes are ``USUAL``.
        """
        if self.largest is None:
            return None
        top, limit = self.largest.max(initial=0), np.finfo(self.dtype).max / 1000
        if top > limit:
            raise ValueError(
                f"X holds a feature of magnitude {top:.3g}, and sums of such features overflow: at "
                f"most {limit:.0e} is allowed for {np.dtype(self.dtype)}. Scale the features, e.g. "
                "by PerToken(MaxAbsScaler())."
            )
        scale = self._scale_of_columns(self.largest, self.n_stored, l2)
        if USUAL[0] <= scale.min() and scale.max() <= USUAL[1]:
            return None
        units, L = self.units if units is None else units, self.n_labels
        scale = self._scale_of_columns(units, self.n_stored, l2)
        coef = np.repeat(_power_of_two(scale)[:, None], L, axis=1)
        ones = np.ones((L, L)), np.ones(L), np.ones(L)
        packed = ScoreMap.pack(self, Weights(coef, *ones))  # factors of trained weights only
        if self.features is not None:
            of_triples = self._scale_of_columns(*self._columns_of_triples(units), l2)
            self.triples(packed)[:] = _power_of_two(of_triples)[self.features.feature]
        packed[packed == 0] = 1  # padding
        return packed

    def _scale_of_columns(self, largest: np.ndarray, n_stored: Any, l2: float) -> np.ndarray:
        # Largest magnitudes, but at least those below which the penalty has most of the curvature.
        ridge = np.sqrt(2 * l2 / max(self.n_rows, 1))
        of_column = np.sqrt(2 * l2 / np.where(n_stored, n_stored, np.inf))
        least = np.maximum(np.minimum(of_column, 1), ridge)
        return np.maximum(np.where(largest > 0, largest, 1), least) / max(1, ridge)

    def _columns_of_triples(self, units: np.ndarray) -> tuple[np.ndarray, Any]:
        # ``units`` and ``n_stored`` in the column numbers of transition features.
        return units, self.n_stored

    def usual_roots(self, l2: float) -> np.ndarray | None:
        """Inverse roots of second derivatives n_f · u_f² / 10 + 2 · l2 that usual values have.

        u_f is the usual magnitude of column f, and n_f the number of its values that are not 0. 0
        in weights of columns without values far larger, and of transitions; None if all are 0.
        """
        if self.usual is None:
            return None
        of_columns, L = np.zeros(self.n_features), self.n_labels
        at = np.flatnonzero(self.usual < np.inf)
        squares = self.n_values[at] * np.square(self.usual[at])
        of_columns[at] = (VARIANCE * squares + 2 * l2) ** -0.5
        coef = np.repeat(of_columns[:, None], L, axis=1)
        found = ScoreMap.pack(self, Weights(coef, np.zeros((L, L)), *np.zeros((2, L))))
        if self.features is not None:
            self.triples(found)[:] = of_columns[self.features.feature]
        return found

    def state(self, w: np.ndarray) -> np.ndarray:
        """View of the state weights in w, or in its gradient."""
        return w[: self.n_state]

    def chain_part(self, w: np.ndarray) -> np.ndarray:
        """View of the transition, start and end weights in w, or in its gradient."""
        return w[self.ends[0] : self.ends[-1]]

    @property
    def constant_parts(self) -> list[slice]:
        """Places of the transition, start or end weights, if all that are allowed are trained.

        All labelings of a sequence have the same number of transitions, and one start and end, so
        a constant that is added to all weights of a part leaves probabilities as they are.
        """
        places = map(slice, self.ends, self.ends[1:])
        allowed = self.allowed.transition, self.allowed.start, self.allowed.end
        return [at for at, all_of in zip(places, allowed) if 0 < at.stop - at.start == all_of.sum()]

    def constants(self, v: np.ndarray) -> np.ndarray:
        """The mean of v in each of the ``constant_parts``; 0 elsewhere."""
        means = np.zeros_like(v)
        for at in self.constant_parts:
            means[at] = v[at].mean(dtype=np.float64)
        return means

    def step_of_constants(self, w: np.ndarray, l1: float, l2: float) -> np.ndarray:
        """Step p to w - p, the least l1 · ‖w‖₁ + l2 · ‖w‖²₂ among weights that differ by constants.

        A constant that is added to the weights of a feature for all labels leaves probabilities as
        they are. The best one is the median of -w_j for each of the L labels j, and of
        -w̄ + l1 (L - 2k) / (2 · l2 · L) for k = 0 … L (Li, Osher 2009, "A new median formula with
        applications to PDE based denoising", §2). Only for features with weights for all labels.
        """
        L, state = self.n_labels, np.zeros(self.n_weights, bool)
        state[: self.n_state] = self.design.pack(np.ones((self.n_features, self.width), bool))
        has_all = self.design.unpack(self.state(state))[:, :L].all(axis=1)
        rows = np.zeros((self.n_features, self.width), w.dtype)
        of_labels = self.design.unpack(self.state(w))[has_all, :L].astype(np.float64)
        steps = np.arange(L, -L - 1, -2) * (l1 / max(2 * l2 * L, TINY))
        least = steps - of_labels.mean(axis=1)[:, None]
        rows[has_all, :L] = -np.median(np.hstack([-of_labels, least]), axis=1)[:, None]
        p = np.zeros_like(w)
        self.state(p)[:] = self.design.pack(rows)
        return p

    def triples(self, w: np.ndarray) -> np.ndarray:
        """View of the weights of transition features in w, or in its gradient."""
        return w[self.ends[-1] :]

    def store_chain(self, gradient, pairwise, start, end) -> None:
        """Write residuals of transitions, starts and ends into ``gradient``."""
        a, b, c, d = self.ends
        gradient[a:b] = pairwise.reshape(-1)[self.transition_at]
        gradient[b:c] = start[self.start_at]
        gradient[c:d] = end[self.end_at]

    def diagonal(
        self, squared: Any, residual: Any, buffers: list, ridge: float, threads: Threads
    ) -> np.ndarray:
        """Second derivatives in each weight; infinity in those of the chain.

        Variances of scores have been collected by ``squared``, see ``squared()`` of designs.
        """
        found = np.full(self.n_weights, np.inf, dtype=self.dtype)
        none, of_state = np.zeros(self.n_state, dtype=self.dtype), self.state(found)
        squared.finish(residual, buffers, none, 0.0, of_state, threads)
        return np.maximum(found + ridge, TINY)

    def chain_masks(self) -> tuple[np.ndarray, np.ndarray]:
        """Two masks of the rows of :meth:`padded_chain`: 1 where trained, and 1 where allowed."""
        L, allowed = self.n_labels, np.zeros((self.n_labels + 2, self.width))
        allowed[:L, :L], allowed[L, :L], allowed[L + 1, :L] = self.allowed
        return self.padded_chain(np.broadcast_to(1.0, self.n_weights)), allowed

    def padded_chain(self, w: np.ndarray) -> np.ndarray:
        """Rows of transition weights, then start and end weights; 0 where not trained."""
        L = self.n_labels
        chain = np.zeros((L + 2, self.width))
        chain[:L, :L], chain[L, :L], chain[L + 1, :L] = self.trained_chain(w)
        return chain

    def split_chain(self, chain: np.ndarray):
        """Transition, start and end weights from the rows of :meth:`padded_chain`."""
        L = self.n_labels
        return np.ascontiguousarray(chain[:L, :L]), chain[L, :L], chain[L + 1, :L]

    def trained_chain(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Transition, start and end weights in float64; 0 where not trained."""
        a, b, c, d = self.ends
        L = self.n_labels
        transition, start, end = np.zeros(L * L), np.zeros(L), np.zeros(L)
        transition[self.transition_at] = w[a:b]
        start[self.start_at] = w[b:c]
        end[self.end_at] = w[c:d]
        return transition.reshape(L, L), start, end

    def chain_weights(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Transition, start and end scores in float64; -inf where forbidden."""
        transition, start, end = self.trained_chain(w)
        transition[~self.allowed.transition] = -np.inf
        start[~self.allowed.start] = -np.inf
        end[~self.allowed.end] = -np.inf
        return transition, start, end

    def chain(self, w: np.ndarray) -> Chain:
        """Transition, start and end scores, ready for the kernels."""
        chain = Chain(*self.chain_weights(w), dtype=self.dtype, pairs=self.pairs)
        chain.v = self.triples(w)
        chain.exponentiate(*([] if self.features is None else [self.features.highest]))
        return chain

    def unpack(self, w: np.ndarray) -> Weights:
        """w as arrays in the user's order of features."""
        rows = self.design.unpack(self.state(w).astype(self.user_dtype, copy=False))
        coef = rows[:, : self.n_labels]  # the rows stay padded for decoding
        chain = (x.astype(self.user_dtype) for x in self.chain_weights(w))
        return Weights(coef, *chain)

    def unpack_triples(self, w: np.ndarray) -> sparse.csr_matrix | None:
        """Weights of transition features, shape (n_features, n_labels²), or None without any."""
        if self.features is None:
            return None
        return self.features.unpack(self.triples(w).astype(self.user_dtype), self.n_features)

    def pack(self, weights: Weights, of_triples: sparse.csr_matrix | None = None) -> np.ndarray:
        """The inverse of :meth:`unpack`, and of :meth:`unpack_triples` for ``of_triples``.

        Weights that are not trained are dropped. Those that other constraints forbade are 0.
        """
        w = self.new_vector()
        w[: self.n_state] = self.design.pack(padded_rows(weights.coef).astype(self.dtype))
        a, b, c, d = self.ends
        w[a:b] = without_forbidden(weights.transition).reshape(-1)[self.transition_at]
        w[b:c] = without_forbidden(weights.start)[self.start_at]
        w[c:d] = without_forbidden(weights.end)[self.end_at]
        if self.features is not None and of_triples is not None:
            w[d:] = self.features.pack(of_triples)
        return w


class TriangularScoreMap(ScoreMap):
    """The map of a lower triangular matrix of rows, of which every pair has a weight."""

    def _arrange(self, X, pairs, counts, threads) -> TriangularRows:
        return TriangularRows(X, pairs, self.n_labels, self.width, self.dtype)

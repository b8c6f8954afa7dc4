"""Moments by the dynamic programs of the paper, one for each pair of features.

This is the algorithm of Ricci, De Bie, Cristianini (2007, §4, Algorithms 1 and 2, Propositions 1
and 2). It is slower than the closed form, gives the same answer, and serves as its reference.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from sklseq.data.constraints import Constraints
from sklseq.data.sequences import canonical
from sklseq.objectives.zscore.moments import Sample, observed_features
from sklseq.objectives.zscore.path_moments import AllowedPaths

CHUNK = 512  # programs of a batch


class Features(NamedTuple):
    """Arrays that describe features: column q seen at label p, or transition a → b (q = -1)."""

    q: np.ndarray
    p: np.ndarray
    a: np.ndarray
    b: np.ndarray

    @classmethod
    def all(cls, n_features: int, n_labels: int) -> Features:
        q, p = (x.ravel() for x in np.indices((n_features, n_labels)))
        a, b = (x.ravel() for x in np.indices((n_labels, n_labels)))
        none, nothing = np.full(len(a), -1), np.full(len(q), -1)
        return cls(*(np.concatenate(x) for x in ((q, none), (p, none), (nothing, a), (nothing, b))))

    def take(self, which: np.ndarray) -> Features:
        return Features(*(x[which] for x in self))

    def emission(self, rows: np.ndarray, n_labels: int) -> np.ndarray:
        """Values of the features at label j of row t, shape (T, n_features, n_labels)."""
        values = np.where(self.q >= 0, rows[:, self.q], 0)
        return values[:, :, None] * (self.p[:, None] == np.arange(n_labels))

    def transition(self, n_labels: int) -> np.ndarray:
        """Values of the features at the transition i → j, (n_features, n_labels, n_labels)."""
        labels = np.arange(n_labels)
        return (
            (self.a[:, None] == labels)[:, :, None] & (self.b[:, None] == labels)[:, None]
        ) * 1.0


def classes_of_pairs(features: Features, together: np.ndarray, n_labels: int) -> np.ndarray:
    """Classes of pairs of features with equal covariance, if all labelings are allowed.

    Proposition 2: renaming labels does not change a covariance, so it depends only on which labels
    are equal: for two states, whether p = p'; for a state and a transition, whether p = a and
    whether p = b; for two transitions, whether they are the same, b = a' or a = b'. States whose
    columns never occur in one row have no covariance. There are 2 n_o + 4 n_o + 5 classes for n_o
    discrete observations. (The paper states that some covariances of transitions are zero. They
    are not, but the number of five values is right.)

    Returns
    -------
    ndarray of shape (n, n)
        A number for each class; -1 for pairs that do not vary together.
    """
    q, p, a, b = (x[:, None] for x in features)
    q2, p2, a2, b2 = features
    first, second, M = np.minimum(q, q2), np.maximum(q, q2), together.shape[0]
    states = 8 + 4 * M + 2 * (first * M + second) + (p == p2)
    states = np.where(together[q, q2], states, -1)  # -1 as a column: overwritten below
    column = np.maximum(q, q2)
    mixed = (
        8
        + 4 * column
        + 2 * (np.where(q >= 0, p == a2, p2 == a))
        + np.where(q >= 0, p == b2, p2 == b)
    )
    pairs = 4 * ((a == a2) & (b == b2)) + 1 * (b == a2) + 1 * (a == b2)
    return np.where((q >= 0) & (q2 >= 0), states, np.where((q >= 0) | (q2 >= 0), mixed, pairs))


def _present(rows) -> sparse.csr_matrix:
    return sparse.csr_matrix(canonical(rows) != 0, dtype=np.float64)


def count_programs(rows, n_labels: int, *, free: bool, with_loss: bool) -> int:
    """Number of dynamic programs for all covariances; these give the means as well."""
    M, L = rows.shape[1], n_labels
    n = M * L + L * L
    if not free:
        count = n * (n + 1) // 2
    else:
        present = _present(rows)
        meetings = (present.T @ present).nnz
        own = int((present.sum(axis=0) > 0).sum())
        count = (meetings + own) + 4 * M + 5  # two a pair of columns that meet, itself included
    return count + n * with_loss


class DynamicPrograms:
    """b and C, element by element: Equation 1 and Proposition 1.

    Algorithms 1 and 2 in one: with R_t(i | j) the fraction of label i among the predecessors of j
    (π(i, t-1) / π(j, t) in the paper), and A, B the increments of two features on the way,

        μ_A(j, t)  = Σ_i R_t(i | j) (μ_A(i, t-1) + A),
        v_AB(j, t) = Σ_i R_t(i | j) (v_AB(i, t-1) + A μ_B(i, t-1) + B μ_A(i, t-1) + A B).

    Attributes
    ----------
    b : ndarray of shape (n,)
    n_programs : int
        Number of covariances computed.

    Notes
    -----
    Cost O(n_programs · n_rows · n_labels²).
    """

    def __init__(self, sample: Sample, ridge: float, allowed: Constraints):
        rows = sample.rows
        self.rows = rows.toarray() if sparse.issparse(rows) else np.asarray(rows)
        self.sample, self.ridge = sample, ridge
        self.paths = AllowedPaths(allowed, sample.offsets)
        self.features = Features.all(rows.shape[1], sample.n_labels)
        self.free = all(mask.all() for mask in allowed)
        self._covariances()
        self.b = observed_features(sample) - self.mean

    def _covariances(self) -> None:
        n = len(self.features.q)
        if self.free:
            present = _present(self.sample.rows)
            together = (present.T @ present).toarray() > 0
            kinds = classes_of_pairs(self.features, together, self.sample.n_labels)
        else:
            kinds = np.arange(n * n).reshape(n, n)
            kinds = np.minimum(kinds, kinds.T)
        names, first, back = np.unique(kinds.ravel(), return_index=True, return_inverse=True)
        i, j = np.divmod(first, n)
        values = self._run(self.features.take(i), self.features.take(j))[1]
        values[names == -1] = 0
        self.n_programs = int((names != -1).sum())
        self._matrix = values[back].reshape(n, n)
        self.mean = self._run(self.features, self.features)[0]

    def _run(self, one: Features, two: Features | None, cost=None):
        """Σ_s ω_s of the mean of each of ``one`` and its covariance with ``two``, or the loss."""
        mean, covariance = np.zeros((2, len(one.q)))
        for k in range(0, len(one.q), CHUNK):
            chunk = np.arange(k, min(k + CHUNK, len(one.q)))
            for s, weight in enumerate(self.sample.weights):
                m, c = self._run_sequence(s, one.take(chunk), two and two.take(chunk), cost)
                mean[chunk] += weight * m
                covariance[chunk] += weight * c
        return mean, covariance

    def _run_sequence(self, s: int, one: Features, two: Features | None, cost):
        L, span = self.sample.n_labels, slice(*self.sample.offsets[s : s + 2])
        rows, y = self.rows[span], self.sample.y[span]
        A, A_pair = one.emission(rows, L), one.transition(L)
        if two is None:  # the loss in its place
            B, B_pair = np.broadcast_to(cost[y][:, None], A.shape), np.zeros_like(A_pair)
        else:
            B, B_pair = two.emission(rows, L), two.transition(L)
        if not len(rows):
            return np.zeros((2, len(one.q)))
        m, n, v = A[0], B[0], A[0] * B[0]
        for t in range(1, len(rows)):
            R = self.paths.before[t]
            a, b = A_pair + A[t][:, None], B_pair + B[t][:, None]  # increments (program, i, j)
            old_m, old_n, old_v = m[:, :, None], n[:, :, None], v[:, :, None]
            m = (R * (old_m + a)).sum(axis=1)
            n = (R * (old_n + b)).sum(axis=1)
            v = (R * (old_v + a * old_n + b * old_m + a * b)).sum(axis=1)
        last = self.paths.marginals[span][-1]
        return m @ last, v @ last - (m @ last) * (n @ last)

    def hessian_product(self, V: np.ndarray) -> np.ndarray:
        """(C + ridge) V."""
        return self._matrix @ V + self.ridge * V

    def matrix(self) -> np.ndarray:
        """C."""
        return self._matrix

    def loss_covariance(self, cost: np.ndarray) -> np.ndarray:
        """Covariance of the loss with each feature."""
        return self._run(self.features, None, cost)[1]

    def mean_loss(self, cost: np.ndarray) -> float:
        """Σ_s ω_s E[loss of a labeling]: Algorithm 1 with M = cost(ȳ_t, j)."""
        return float(self.sample.row_weights @ self.paths.expected(cost[self.sample.y]))

"""Moments under constraints, or of a sample of paths: products with C, which is never formed.

Both classes have ``b`` and ``loss_covariance(cost)``, flat vectors as in
:func:`~sklseq.objectives.zscore.moments.unstack_weights`, ``preconditioner`` and
``hessian_product(V) = (C + ridge) V``.
"""

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import offsets_of
from sklseq.data.constraints import Constraints
from sklseq.data.sequences import row_positions
from sklseq.inference import sample as sample_paths
from sklseq.objectives.zscore.moments import (
    Sample,
    ScoreMoments,
    observed_features,
    unstack_weights,
)

CHUNK = 4_000_000  # numbers of a block of path features


class AllowedPaths:
    """All labelings that constraints allow, equally likely: a Markov chain.

    Counting paths forwards and backwards, α_t(j) = start(j) or Σ_i α_{t-1}(i) [i → j] and
    β_r(i) = end(i) or Σ_j [i → j] β_{r-1}(j), r rows before the end, the label before j at row t
    has the distribution R_t(i | j) ∝ α_{t-1}(i) [i → j], and the label after i, r rows before the
    end, Q_r(j | i) ∝ [i → j] β_{r-1}(j). They depend on t or r alone, so row t of all sequences
    is done in one product of matrices.

    Parameters
    ----------
    allowed : Constraints
    offsets : ndarray of shape (n_sequences + 1,)
    """

    def __init__(self, allowed, offsets: np.ndarray):
        self.offsets, self.lengths = offsets, np.diff(offsets)
        T = int(self.lengths.max(initial=0))
        edges = allowed.transition.astype(np.float64)
        self.alpha, self.beta = np.zeros((2, T, len(edges)))
        self.before, self.after = np.zeros((2, T, *edges.shape))
        for t in range(T):
            ways = edges * self.alpha[t - 1][:, None] if t else None
            self.alpha[t] = _normalised(ways.sum(axis=0) if t else allowed.start.astype(float))
            onward = edges * self.beta[t - 1] if t else None
            self.beta[t] = _normalised(onward.sum(axis=1) if t else allowed.end.astype(float))
            if t:
                self.before[t] = _normalised(ways, axis=0)
                self.after[t] = _normalised(onward, axis=1)
        # Sequences from the longest: those with a row t are the first so many.
        self.order = np.argsort(-self.lengths, kind="stable")
        self.active = [int(n) for n in np.searchsorted(-self.lengths[self.order], -np.arange(T))]
        self.first = offsets[:-1][self.order]
        self.last = offsets[1:][self.order] - 1
        self.marginals = np.empty((offsets[-1], len(edges)))
        for t, n in enumerate(self.active):
            rest = self.beta[self.lengths[self.order[:n]] - 1 - t]
            self.marginals[self.first[:n] + t] = _normalised(self.alpha[t] * rest, axis=1)

    def pairwise(self, weights: np.ndarray) -> np.ndarray:
        """Σ_s weight_s Σ_t p(y_{t-1} = i, y_t = j), shape (n_labels, n_labels)."""
        total = np.zeros(self.before.shape[1:])
        for r, n in enumerate(self.active[1:], start=1):
            before = weights[self.order[:n]] @ self.marginals[self.last[:n] - r]
            total += before[:, None] * self.after[r]
        return total

    def tangent(self, emission: np.ndarray, transition: np.ndarray, weights: np.ndarray):
        """Derivatives of the marginals along scores: their covariance with f(y), the path's score.

        Cov([y_t = j], f) = μ_t(j) (E[f | y_t = j] - E f), and E[f | y_t = j] is what the past,
        row t and the future bring,

            F_t(j) = Σ_i R_t(i | j) (F_{t-1}(i) + ψ_{t-1}(i) + ψ(i, j)),
            G_r(i) = Σ_j Q_r(j | i) (ψ(i, j) + ψ_{t+1}(j) + G_{r-1}(j)).

        Returns
        -------
        marginals : ndarray of shape (n_rows, n_labels)
        pairwise : ndarray of shape (n_labels, n_labels)
            Derivatives of pair marginals, summed over rows with the weights of sequences.

        Notes
        -----
        Cost O(n_rows · n_labels²): the forward-backward recursion, differentiated along the
        scores. Nothing is exponentiated, so nothing overflows.
        """
        past, future = np.zeros_like(emission), np.zeros_like(emission)
        for t, n in enumerate(self.active[1:], start=1):
            rows, R = self.first[:n] + t, self.before[t]
            come = past[rows - 1] + emission[rows - 1]
            past[rows] = come @ R + (R * transition).sum(axis=0)
        for r, n in enumerate(self.active[1:], start=1):
            rows, Q = self.last[:n] - r, self.after[r]
            go = future[rows + 1] + emission[rows + 1]
            future[rows] = go @ Q.T + (Q * transition).sum(axis=1)
        mean = self.expected(past + emission + future)
        moved = self.marginals * (past + emission + future - mean[:, None])
        pairwise = np.zeros_like(transition)
        for r, n in enumerate(self.active[1:], start=1):
            rows, Q = self.last[:n] - r, self.after[r]
            weighted = weights[self.order[:n]][:, None] * self.marginals[rows]
            here = (weighted * (past[rows] + emission[rows] - mean[rows, None])).sum(axis=0)
            there = weighted.T @ (future[rows + 1] + emission[rows + 1])
            pairwise += Q * (here[:, None] + weighted.sum(axis=0)[:, None] * transition + there)
        return moved, pairwise

    def expected(self, values: np.ndarray) -> np.ndarray:
        """Mean of the values of the labels of each row."""
        return np.einsum("tj,tj->t", self.marginals, values)

    def score_moments(self, emission: np.ndarray, transition: np.ndarray) -> ScoreMoments:
        """Mean and variance of the scores of each sequence's allowed paths.

        The first two moments of what a prefix brings, given its last label: Algorithms 1 and 2 of
        Ricci, De Bie, Cristianini (2007) with the score itself in the place of a feature.
        """
        shift = self.expected(emission)  # nearer to zero, less is lost to cancellation
        psi = emission - shift[:, None]
        psi[self.marginals == 0] = 0
        score = np.where(np.isfinite(transition), transition, 0)
        mean, variance = np.zeros((2, len(self.lengths)))
        m, q = np.zeros((2, len(self.lengths), len(score)))
        for t, n in enumerate(self.active):
            rows = self.first[:n] + t
            here, R = psi[rows], self.before[t]
            if t:
                m0, q0 = m[:n], q[:n]
                step = (R * score).sum(axis=0)
                m1 = m0 @ R + step
                q1 = q0 @ R + 2 * m0 @ (R * score) + (R * score**2).sum(axis=0)
            else:
                m1, q1 = np.zeros((2, n, len(score)))
            m[:n], q[:n] = m1 + here, q1 + 2 * here * m1 + here**2
            ends = np.flatnonzero(self.lengths[self.order[:n]] == t + 1)
            p = self.marginals[rows[ends]]
            mean[self.order[ends]] = (p * m[ends]).sum(axis=1)
            variance[self.order[ends]] = (p * q[ends]).sum(axis=1)
        owner = np.repeat(np.arange(len(self.lengths)), self.lengths)
        variance = np.maximum(variance - mean**2, 0)
        return ScoreMoments(mean + np.bincount(owner, shift, minlength=len(self.lengths)), variance)


def _normalised(values: np.ndarray, axis: int = 0) -> np.ndarray:
    # Distributions along an axis; where nothing is possible, zeros.
    total = values.sum(axis=axis, keepdims=True)
    return values / np.where(total > 0, total, 1)


class _FlatMoments:
    # Linear maps between weights and scores of paths, for any set of paths.

    def __init__(self, sample: Sample, ridge: float):
        self.sample, self.ridge = sample, ridge
        self.rows_t = sample.rows.T.tocsr() if sparse.issparse(sample.rows) else sample.rows.T
        self.n_features, self.n_labels = sample.rows.shape[1], sample.n_labels
        self.after = row_positions(sample.offsets)[2]
        self.owner = np.repeat(np.arange(len(sample.offsets) - 1), np.diff(sample.offsets))
        self.row_weights = sample.row_weights

    def scores(self, v: np.ndarray):
        """Emission and transition scores under weights v."""
        coef, transition = unstack_weights(v, self.n_features, self.n_labels)
        return np.asarray(self.sample.rows @ coef), transition

    def features(self, residual: np.ndarray, transitions: np.ndarray) -> np.ndarray:
        """The transpose of :meth:`scores`."""
        return np.concatenate([np.asarray(self.rows_t @ residual).ravel(), transitions.ravel()])

    def hessian_product(self, V: np.ndarray) -> np.ndarray:
        """(C + ridge) V."""
        return self._product(V) + self.ridge * V

    def matrix(self) -> np.ndarray:
        """C, by one product for each weight."""
        return self._product(np.eye(len(self.b)))

    def _product(self, V: np.ndarray) -> np.ndarray:
        return np.stack([self.covariance(*self.scores(v)) for v in V.T], axis=1)

    def loss_covariance(self, cost: np.ndarray) -> np.ndarray:
        """Covariance of the loss with each feature: C's product with the loss as a score."""
        return self.covariance(cost[self.sample.y], np.zeros((self.n_labels,) * 2))

    def _inverse_diagonal(self, variance: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        # Exact for transitions only in part; a preconditioner may be rough.
        if not self.ridge:
            return None
        rows = self.sample.rows
        squares = rows.multiply(rows) if sparse.issparse(rows) else np.square(rows)
        state = np.asarray(squares.T @ (variance * self.row_weights[:, None]))
        return 1 / (np.concatenate([state.ravel(), pairs.ravel()]) + self.ridge)


class AllowedMoments(_FlatMoments):
    """b and C over all labelings that constraints allow."""

    def __init__(self, sample: Sample, ridge: float, allowed: Constraints):
        super().__init__(sample, ridge)
        self.paths = AllowedPaths(allowed, sample.offsets)
        mu = self.paths.marginals
        expected = self.paths.pairwise(sample.weights)
        self.b = observed_features(sample) - self.features(self.row_weights[:, None] * mu, expected)
        self.preconditioner = self._inverse_diagonal(mu * (1 - mu), expected)

    def covariance(self, emission: np.ndarray, transition: np.ndarray) -> np.ndarray:
        """Σ_s ω_s Cov(φ_s, score)."""
        moved, pairs = self.paths.tangent(emission, transition, self.sample.weights)
        moved *= self.row_weights[:, None]
        return self.features(moved, pairs)

    def mean_loss(self, cost: np.ndarray) -> float:
        """Σ_s ω_s E[loss of a labeling]."""
        return float(self.row_weights @ self.paths.expected(cost[self.sample.y]))


class SampledMoments(_FlatMoments):
    """b* and C* from random paths (§6): n_paths of each sequence, drawn independently.

    Φ = [Z_rows (X ⊗ I), Z_pairs] has a row for each path drawn, sequence by sequence: Z_rows sums
    the cells (row, label) on the path, Z_pairs counts its transitions. With every sequence's mean
    taken off, C* = Φᵀ diag(ω / n_paths) Φ, of rank n_sequences · (n_paths - 1) at most.
    """

    def __init__(self, sample: Sample, ridge: float, allowed: Constraints, n_paths: int, rng):
        super().__init__(sample, ridge)
        L = self.n_labels
        self.paths = _draw(allowed, sample.offsets, n_paths, rng)  # (n_paths, n_rows)
        self.n_paths, lengths = n_paths, np.diff(sample.offsets)
        # One after the other: the first sequence's paths, the second's, ...
        cuts = sample.offsets[1:-1]
        cells = self.paths + L * np.arange(self.paths.shape[1])
        self.on_rows = _path_sums(
            np.split(cells, cuts, axis=1), lengths, n_paths, L * cells.shape[1]
        )
        pairs = self.paths[:, self.after - 1] * L + self.paths[:, self.after]
        cuts = np.searchsorted(self.after, cuts)
        between = np.maximum(lengths - 1, 0)
        self.on_pairs = _path_sums(np.split(pairs, cuts, axis=1), between, n_paths, L * L)
        self.fractions = np.repeat(sample.weights / n_paths, n_paths)
        mu, expected = self._counts(self.fractions)
        self.b = observed_features(sample) - self.features(mu, expected)
        variance = np.full_like(mu, (L - 1) / L**2)
        self.preconditioner = self._inverse_diagonal(variance, expected)

    def _counts(self, fractions: np.ndarray):
        # Fractions of the paths, added up by label at each row and by transition.
        L = self.n_labels
        return (fractions @ self.on_rows).reshape(-1, L), (fractions @ self.on_pairs).reshape(L, L)

    def _centre(self, values: np.ndarray) -> np.ndarray:
        # Values of each path less the mean over the paths of its sequence.
        by_sequence = values.reshape(-1, self.n_paths, *values.shape[1:])
        return (by_sequence - by_sequence.mean(axis=1, keepdims=True)).reshape(values.shape)

    def matrix(self) -> np.ndarray:
        """C* as a matrix, for few features: from the features of every path drawn."""
        C = np.zeros((len(self.b),) * 2)
        states = sparse.kron(sparse.csr_matrix(self.sample.rows), sparse.identity(self.n_labels))
        states, step = states.tocsr(), self.n_paths * max(1, CHUNK // len(self.b) // self.n_paths)
        for a in range(0, len(self.fractions), step):
            paths = slice(a, a + step)
            parts = self.on_rows[paths] @ states, self.on_pairs[paths]
            phi = self._centre(np.hstack([part.toarray() for part in parts]))
            phi *= np.sqrt(self.fractions[paths])[:, None]
            C += phi.T @ phi
        return C

    def path_scores(self, emission: np.ndarray, transition: np.ndarray) -> np.ndarray:
        """Scores of the paths drawn, shape (n_paths, n_sequences), each sequence centred."""
        scores = self.on_rows @ emission.ravel() + self.on_pairs @ transition.ravel()
        return self._centre(scores).reshape(-1, self.n_paths).T

    def covariance(self, emission: np.ndarray, transition: np.ndarray) -> np.ndarray:
        """Σ_s ω_s times the covariance, over paths drawn, of φ_s with the score."""
        scores = self.path_scores(emission, transition).T.ravel()
        return self.features(*self._counts(scores * self.fractions))

    def mean_loss(self, cost: np.ndarray) -> float:
        """Σ_s ω_s times the mean loss of the paths drawn."""
        losses = cost[self.sample.y, self.paths]
        return float(losses.mean(axis=0) @ self.row_weights)


def _path_sums(cells: list, lengths: np.ndarray, n_paths: int, n_cells: int):
    # CSR of shape (n_sequences · n_paths, n_cells): 1 at each cell of a path.
    indices = np.concatenate([part.ravel() for part in cells] or [np.zeros(0)])
    indptr = offsets_of(np.repeat(lengths, n_paths))
    shape = (len(indptr) - 1, n_cells)
    return sparse.csr_matrix((np.ones(len(indices)), indices.astype(np.int64), indptr), shape=shape)


def _draw(allowed, offsets: np.ndarray, n_paths: int, rng) -> np.ndarray:
    L, n_rows = len(allowed.start), int(offsets[-1])
    if all(mask.all() for mask in allowed):
        draw = rng.integers if hasattr(rng, "integers") else rng.randint
        return draw(0, L, size=(n_paths, n_rows)).astype(np.int32)
    scores = [np.where(mask, 0.0, -np.inf) for mask in allowed]
    return sample_paths(
        np.zeros((n_rows, L)), scores[0], offsets, n_paths, start=scores[1], end=scores[2],
        random_state=rng,
    )  # fmt: skip

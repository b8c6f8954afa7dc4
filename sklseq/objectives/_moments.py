"""Mean and covariance of a path's features over all labelings, in closed form.

A path y of a sequence has the features φ(y) = (Σ_t x_t ⊗ e(y_t), counts of its transitions), and
w · φ(y) is its score. If all labelings are equally likely, labels are independent and uniform over
L, and with

    b = Σ_s ω_s (φ_s(ȳ) - E φ_s),      C = Σ_s ω_s Cov φ_s

the z-score of the true labels ȳ is w·b / √(wᵀCw) (Ricci, De Bie, Cristianini 2007, Equation 4).

Everything rests on one decomposition. Write the transition weights as

    transition = D + (u 1ᵀ + 1 vᵀ) / L,      D with rows and columns that sum to zero.

Labels of different rows being independent, the pair terms D are uncorrelated with each other and
with everything that one label decides; u and v are such terms, u of rows that have a successor
and v of rows that have a predecessor. So with these two indicators as further columns,

    X̃ = [X, has successor / √L, has predecessor / √L],      W = [coef; u / √L; v / √L],

    wᵀCw = tr Wᵀ(X̃ᵀX̃)W / L + P ‖D‖² / L²,      w·b = tr Wᵀ(X̃ᵀY) + ⟨D, transitions counted⟩,

for W with rows that sum to zero, P being the number of transitions. Maximising the z-score is
ridge regression of label indicators on X̃, and D = counts, doubly centred, up to scale. The map
(coef, transition) ↔ (W, D) is an isometry, so penalties and minimum norms carry over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from sklseq._sequences import row_positions

__all__ = [
    "ChainWeights",
    "Maximum",
    "Sample",
    "ScoreMoments",
    "Statistics",
    "centred",
    "combine",
    "count_statistics",
    "decompose",
    "extended_rows",
    "label_sums",
    "loss_multiplier",
    "observed_features",
    "one_hot",
    "pair_statistics",
    "score_moments",
    "stack_weights",
    "statistics_zscore",
    "unstack_weights",
    "weighted_square",
]


class ChainWeights(NamedTuple):
    """Weights of rows and of transitions.

    Attributes
    ----------
    coef : ndarray of shape (n_features, n_labels)
    transition : ndarray of shape (n_labels, n_labels)
    """

    coef: np.ndarray
    transition: np.ndarray


class Sample(NamedTuple):
    """Labelled sequences, as moments see them.

    Attributes
    ----------
    rows : ndarray or CSR matrix of shape (n_rows, n_features)
    offsets : ndarray of shape (n_sequences + 1,)
    y : int32 ndarray of shape (n_rows,)
        Label codes.
    weights : ndarray of shape (n_sequences,)
    n_labels : int
    """

    rows: np.ndarray
    offsets: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    n_labels: int

    @property
    def row_weights(self) -> np.ndarray:
        return np.repeat(self.weights, np.diff(self.offsets))


class Statistics(NamedTuple):
    """All that the closed form needs of the data; those of two data sets add up.

    Attributes
    ----------
    gram : ndarray of shape (n_features + 2, n_features + 2), or None
        X̃ᵀX̃, if the features are few.
    observed : ndarray of shape (n_features + 2, n_labels)
        X̃ᵀY, Y being the indicators of the true labels.
    transitions : ndarray of shape (n_labels, n_labels)
        True transitions, counted.
    labels : ndarray of shape (n_labels,)
        True labels, counted.
    """

    gram: np.ndarray | None
    observed: np.ndarray
    transitions: np.ndarray
    labels: np.ndarray


def extended_rows(rows, offsets: np.ndarray, n_labels: int):
    """X̃: rows with two more columns, 1 / √L where a successor and a predecessor exists."""
    first, last, _ = row_positions(offsets)
    ends = np.full((rows.shape[0], 2), n_labels**-0.5)
    ends[last, 0] = 0
    ends[first, 1] = 0
    if sparse.issparse(rows):
        return sparse.hstack([rows, sparse.csr_matrix(ends)], format="csr", dtype=np.float64)
    return np.hstack([rows, ends])


def one_hot(y: np.ndarray, values: np.ndarray, n_labels: int) -> sparse.csr_matrix:
    """Indicators of labels times ``values``, shape (n_rows, n_labels)."""
    return sparse.csr_matrix(
        (values, y, np.arange(len(y) + 1, dtype=y.dtype)), shape=(len(y), n_labels)
    )


def label_sums(rows, y, values, n_labels: int) -> np.ndarray:
    """rowsᵀ diag(values) Y, shape (n_columns, n_labels)."""
    sums = one_hot(y, values, n_labels).T @ rows
    return np.ascontiguousarray((sums.toarray() if sparse.issparse(sums) else sums).T)


def count_statistics(sample: Sample, extended, *, gram: bool) -> Statistics:
    """Statistics of labelled sequences; ``extended`` are their extended rows."""
    L, y, weights = sample.n_labels, sample.y, sample.row_weights
    product = None
    if gram:
        scaled = extended.multiply(weights[:, None]) if sparse.issparse(extended) else (
            weights[:, None] * extended
        )  # fmt: skip
        product = extended.T @ scaled
        product = product.toarray() if sparse.issparse(product) else product
    after = row_positions(sample.offsets)[2]
    pairs = y[after - 1].astype(np.intp) * L + y[after]
    transitions = np.bincount(pairs, weights=weights[after], minlength=L * L).reshape(L, L)
    labels = np.bincount(y, weights=weights, minlength=L).astype(np.float64)
    return Statistics(product, label_sums(extended, y, weights, L), transitions, labels)


def observed_features(sample: Sample) -> ChainWeights:
    """Σ_s ω_s φ_s(ȳ)."""
    L, weights = sample.n_labels, sample.row_weights
    after = row_positions(sample.offsets)[2]
    pairs = sample.y[after - 1].astype(np.intp) * L + sample.y[after]
    transitions = np.bincount(pairs, weights=weights[after], minlength=L * L)
    return ChainWeights(
        label_sums(sample.rows, sample.y, weights, L), transitions.reshape(L, L).astype(float)
    )


# ------------------------------------------------------------------ (coef, transition) ↔ (W, D)


def centred(values: np.ndarray) -> np.ndarray:
    """Without the mean over labels, the last axis."""
    return values - values.mean(axis=-1, keepdims=True)


def decompose(weights: ChainWeights) -> tuple[np.ndarray, np.ndarray]:
    """W of shape (n_features + 2, n_labels), and D; what the z-score does not see is dropped."""
    coef, transition = weights
    root = np.sqrt(len(transition))
    main = np.vstack([coef, transition.sum(axis=1) / root, transition.sum(axis=0) / root])
    return centred(main), centred(centred(transition).T).T


def stack_weights(main: np.ndarray, pairs: np.ndarray) -> ChainWeights:
    """The inverse of :func:`decompose`."""
    root = np.sqrt(len(pairs))
    return ChainWeights(main[:-2], pairs + (main[-2][:, None] + main[-1]) / root)


def unstack_weights(flat: np.ndarray, n_features: int, n_labels: int) -> ChainWeights:
    """Weights of one flat vector: state weights row by row, then transitions row by row."""
    n = n_features * n_labels
    return ChainWeights(
        flat[:n].reshape(n_features, n_labels), flat[n:].reshape(n_labels, n_labels)
    )


# ------------------------------------------------------------------ the maximum


class Maximum(NamedTuple):
    """The weights of largest z-score.

    Attributes
    ----------
    weights : ChainWeights
    multiplier : float
        α: what w = C⁻¹(α b - c) has of b.
    parts : tuple of ndarray
        (W, D) of the weights.
    """

    weights: ChainWeights
    multiplier: float
    parts: tuple[np.ndarray, np.ndarray]


def loss_multiplier(mean_loss: float, bb: float, bc: float) -> float:
    """α = max(0, (1 + μ_ℓ + bᵀC⁻¹c) / bᵀC⁻¹b), with which w·b = 1 + μ_ℓ (§5.1).

    μ_ℓ is the mean loss of all labelings and c its covariance with the features: the least of
    ½ wᵀCw + wᵀc subject to w·b - μ_ℓ ≥ 1 is w = C⁻¹(α b - c). (The sign of Equation 6's h in
    print is another.)
    """
    return max(0.0, (1.0 + mean_loss + bc) / bb) if bb > 0 else 0.0


def combine(
    solution: np.ndarray, statistics: Statistics, cost: np.ndarray | None, l2: float
) -> Maximum:
    """The maximum, from V = (X̃ᵀX̃ + 2 L l2)⁻¹ X̃ᵀY.

    Means over labels are taken off columns of V afterwards. A loss cost(ȳ_t, y_t), summed over
    rows, has the covariance X̃ᵀY·cost / L with W's features, cost centred, and none with D's: so
    its solution too is V times an (L, L) matrix.
    """
    pairs, share = _pair_weights(statistics, l2)
    main = len(statistics.labels) * centred(solution)
    if cost is None:
        return Maximum(stack_weights(main, pairs), 1.0, (main, pairs))
    mean = float(statistics.labels @ cost.mean(axis=1))
    with_loss = solution @ centred(cost)  # C⁻¹c
    bb = float(np.vdot(statistics.observed, main)) + share
    bc = float(np.vdot(centred(statistics.observed), with_loss))
    alpha = loss_multiplier(mean, bb, bc)
    main *= alpha
    main -= with_loss
    pairs = alpha * pairs
    return Maximum(stack_weights(main, pairs), alpha, (main, pairs))


def _pair_weights(statistics: Statistics, l2: float) -> tuple[np.ndarray, float]:
    # D = counts, doubly centred, over their variance; and its share of bᵀC⁻¹b.
    excess, variance = pair_statistics(statistics, l2)
    L = len(excess)
    pairs = excess / variance if variance > 0 else np.zeros((L, L))
    return pairs, float(np.vdot(excess, pairs))


def pair_statistics(statistics: Statistics, l2: float) -> tuple[np.ndarray, float]:
    """D's part of b, and D's part of C + 2 · l2: a number."""
    counts = statistics.transitions
    return centred(centred(counts).T).T, counts.sum() / counts.size + 2 * l2


def statistics_zscore(
    statistics: Statistics, parts: tuple, cost: np.ndarray | None, square: float | None = None
) -> float:
    """The z-score of the true labels, a loss included, from sums alone; ``parts`` are (W, D).

    ``square`` is tr Wᵀ(X̃ᵀX̃)W of :func:`weighted_square`, where ``statistics`` has no matrix.
    """
    main, pairs = parts
    L, excess = len(pairs), pair_statistics(statistics, 0.0)[0]
    if square is None:
        square = np.vdot(main, statistics.gram @ main)
    gap = np.vdot(main, statistics.observed) + np.vdot(pairs, excess)
    total = square / L
    total += statistics.transitions.sum() * np.square(pairs).mean()
    if cost is not None:
        costs = centred(cost)
        gap -= statistics.labels @ cost.mean(axis=1)
        total += 2 * np.vdot(main, statistics.observed @ costs) / L
        total += statistics.labels @ np.square(costs).mean(axis=1)
    return float(gap / np.sqrt(total)) if total > 0 else 0.0


def weighted_square(extended, row_weights: np.ndarray, main: np.ndarray) -> float:
    """tr Wᵀ(X̃ᵀX̃)W: squares of centred scores, summed over rows."""
    scores = extended @ main
    return float(row_weights @ np.einsum("tj,tj->t", scores, scores))


# ------------------------------------------------------------------ scores of given weights


class ScoreMoments(NamedTuple):
    """Scores of all labelings of each sequence, if all are equally likely.

    Attributes
    ----------
    mean, variance : ndarray of shape (n_sequences,)
    """

    mean: np.ndarray
    variance: np.ndarray


def score_moments(
    emission: np.ndarray, transition: np.ndarray, offsets: np.ndarray
) -> ScoreMoments:
    """Mean and variance of Σ_t emission_t(y_t) + Σ_t transition(y_{t-1}, y_t), labels being free.

    With the decomposition above, var = Σ_t var(emission_t + u [t not last] + v [t not first]) plus
    (T - 1) times the mean of D². Cost O(n_rows · n_labels).
    """
    first, last, after = row_positions(offsets)
    level = transition.mean()
    u, v = transition.mean(axis=1) - level, transition.mean(axis=0) - level
    pairs = transition - u[:, None] - v - level
    rows = centred(emission) + u + v
    rows[last] -= u
    rows[first] -= v
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    n_pairs = np.bincount(owner[after], minlength=len(offsets) - 1)

    def total(values: np.ndarray) -> np.ndarray:
        return np.bincount(owner, values, minlength=len(offsets) - 1)

    return ScoreMoments(
        total(emission.mean(axis=1)) + n_pairs * level,
        total(np.square(rows).mean(axis=1)) + n_pairs * np.square(pairs).mean(),
    )

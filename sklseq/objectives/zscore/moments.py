"""Mean and covariance of a path's features over all labelings, in closed form.

A path y of a sequence has the features φ(y) = (Σ_t x_t ⊗ e(y_t), counts of its transitions), and
w · φ(y) is its score. If all labelings are equally likely, labels are independent and uniform over
L, and with

    b = Σ_s ω_s (φ_s(ȳ) - E φ_s),      C = Σ_s ω_s Cov φ_s

the z-score of the true labels ȳ is w·b / √(wᵀCw) (Ricci, De Bie, Cristianini 2007, Equation 4).

The closed form follows from one decomposition of the transition weights:

    transition = D + (u 1ᵀ + 1 vᵀ) / L,      D with rows and columns that sum to zero.

Labels of different rows are independent, so the pair terms D are uncorrelated with each other and
with all terms that depend on one label only. Such terms are u, for rows that have a successor, and
v, for rows that have a predecessor. With these two indicators as further columns,

    X̃ = [X, has successor / √L, has predecessor / √L],      W = [coef; u / √L; v / √L],

    wᵀCw = tr Wᵀ(X̃ᵀX̃)W / L + P ‖D‖² / L²,      w·b = tr Wᵀ(X̃ᵀY) + ⟨D, transitions counted⟩,

for W with rows that sum to zero, where P is the number of transitions. Maximising the z-score is
ridge regression of label indicators on X̃, and D = counts, doubly centred, up to scale. The map
(coef, transition) ↔ (W, D) is an isometry, so penalties and minimum norms carry over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from sklseq.data.sequences import row_positions

BLOCK = 4_096  # rows of a block that fits the cache
SMOOTHING = 0.5  # added to each count before its logarithm is taken
INFORMATION_WEIGHT = 0.07  # κ of "information": see the manual, "How much transitions count"
ROUNDING = 2 * np.finfo(np.float64).eps  # fraction of its mean within which a column is constant


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
    """Labelled sequences in the form that the moments take.

    Attributes
    ----------
    rows : ndarray or CSR matrix of shape (n_rows, n_features)
    offsets : ndarray of shape (n_sequences + 1,)
    y : int32 ndarray of shape (n_rows,)
        Label codes.
    weights : ndarray of shape (n_sequences,)
    n_labels : int
    factors : ndarray of shape (n_labels,), or None
        Weights of labels, which multiply those of sequences.
    """

    rows: np.ndarray
    offsets: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    n_labels: int
    factors: np.ndarray | None = None

    @property
    def row_weights(self) -> np.ndarray:
        weights = np.repeat(self.weights, np.diff(self.offsets))
        return weights if self.factors is None else weights * self.factors[self.y]


class Statistics(NamedTuple):
    """Sufficient statistics of the closed form: sums about the weighted means of columns.

    Attributes
    ----------
    gram : ndarray of shape (n_features + 2, n_features + 2), or None
        Products of X̃ less its means with itself, if there are few features.
    observed : ndarray of shape (n_features + 2, n_labels), or None
        Products of X̃ less its means with Y, the indicators of the true labels.
    means : ndarray of shape (n_features + 2,), or None
        Weighted means of the columns of X̃.
    transitions : ndarray of shape (n_labels, n_labels)
        Counts of true transitions.
    labels : ndarray of shape (n_labels,)
        Counts of true labels.
    """

    gram: np.ndarray | None
    observed: np.ndarray | None
    means: np.ndarray | None
    transitions: np.ndarray
    labels: np.ndarray

    def merged(self, other: Statistics) -> Statistics:
        """The statistics of the union of two data sets (Chan, Golub, LeVeque 1983)."""
        n, m = float(self.labels.sum()), float(other.labels.sum())
        fraction = m / (n + m) if n + m > 0 else 0.0
        change = other.means - self.means
        means = self.means + fraction * change
        gram = self.gram + other.gram + n * fraction * np.outer(change, change)
        labels = (1 - fraction) * other.labels - fraction * self.labels
        observed = self.observed + other.observed + np.outer(change, labels)
        constant = gram.diagonal() <= (n + m) * np.square(ROUNDING * means)
        gram[constant], gram[:, constant], observed[constant] = 0, 0, 0
        return Statistics(
            gram, observed, means, self.transitions + other.transitions, self.labels + other.labels
        )

    def padded(self, n_columns: int) -> Statistics:
        """The statistics with ``n_columns`` further columns of zeros before the last two."""
        at = np.full(n_columns, len(self.means) - 2)
        gram = np.insert(np.insert(self.gram, at, 0, axis=0), at, 0, axis=1)
        observed, means = np.insert(self.observed, at, 0, axis=0), np.insert(self.means, at, 0)
        return self._replace(gram=gram, observed=observed, means=means)


def extended_rows(rows, offsets: np.ndarray, n_labels: int):
    """X̃: rows with two more columns, 1 / √L where a successor and a predecessor exists."""
    ends = chain_columns(offsets, n_labels)
    if sparse.issparse(rows):
        return sparse.hstack([rows, sparse.csr_matrix(ends)], format="csr", dtype=np.float64)
    return np.hstack([rows, ends])


def chain_columns(offsets: np.ndarray, n_labels: int) -> np.ndarray:
    """Array of shape (n_rows, 2): 1 / √L where a successor and where a predecessor exists."""
    first, last, _ = row_positions(offsets)
    ends = np.full((int(offsets[-1]), 2), n_labels**-0.5)
    ends[last, 0] = 0
    ends[first, 1] = 0
    return ends


def one_hot(y: np.ndarray, values: np.ndarray, n_labels: int) -> sparse.csr_matrix:
    """Indicators of labels times ``values``, shape (n_rows, n_labels)."""
    return sparse.csr_matrix(
        (values, y, np.arange(len(y) + 1, dtype=y.dtype)), shape=(len(y), n_labels)
    )


def label_sums(rows, y, values, n_labels: int) -> np.ndarray:
    """rowsᵀ diag(values) Y, shape (n_columns, n_labels)."""
    sums = one_hot(y, values, n_labels).T @ rows
    return np.ascontiguousarray((sums.toarray() if sparse.issparse(sums) else sums).T)


def count_chain(sample: Sample) -> tuple[np.ndarray, np.ndarray]:
    """Counts of true transitions and of true labels."""
    L, y = sample.n_labels, sample.y
    after = row_positions(sample.offsets)[2]
    pairs = y[after - 1].astype(np.intp) * L + y[after]
    of_pairs = np.repeat(sample.weights, np.diff(sample.offsets))[after]
    transitions = np.bincount(pairs, weights=of_pairs, minlength=L * L)
    labels = np.bincount(y, weights=sample.row_weights, minlength=L)
    return transitions.reshape(L, L).astype(np.float64), labels.astype(np.float64)


def observed_features(sample: Sample) -> np.ndarray:
    """Σ_s ω_s φ_s(ȳ), flat as in :func:`unstack_weights`."""
    sums = label_sums(sample.rows, sample.y, sample.row_weights, sample.n_labels)
    return np.concatenate([sums.ravel(), count_chain(sample)[0].ravel()])


# ------------------------------------------------------------------ (coef, transition) ↔ (W, D)


def centred(values: np.ndarray) -> np.ndarray:
    """Values less their mean over labels, the last axis."""
    return values - values.mean(axis=-1, keepdims=True)


def decompose(weights: ChainWeights) -> tuple[np.ndarray, np.ndarray]:
    """W of shape (n_features + 2, n_labels), and D, without parts that the z-score ignores.

    The weights may have leading axes, for several models.
    """
    coef, transition = weights
    root = np.sqrt(transition.shape[-1])
    sums = np.stack([transition.sum(axis=-1), transition.sum(axis=-2)], axis=-2) / root
    pairs = centred(centred(transition).swapaxes(-1, -2)).swapaxes(-1, -2)
    return centred(np.concatenate([coef, sums], axis=-2)), pairs


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


class Products(NamedTuple):
    """Products of a solution V that give the maximum.

    Those of a linear combination V·T are Tᵀ · observed and Tᵀ · square · T.

    Attributes
    ----------
    observed : ndarray of shape (n_labels, n_labels)
        VᵀX̃ᵀY.
    square : ndarray of shape (n_labels, n_labels)
        VᵀX̃ᵀX̃V.
    """

    observed: np.ndarray
    square: np.ndarray


def score_products(scores: np.ndarray, y: np.ndarray, weights: np.ndarray) -> Products:
    """Products of a solution V, from the scores X̃V of all rows."""
    L = scores.shape[1]
    observed, square, labels = np.zeros((L, L)), np.zeros((L, L)), np.eye(L)
    for a in range(0, len(scores), BLOCK):
        block = scores[a : a + BLOCK]
        weighted = (weights[a : a + BLOCK, None] * block).T
        observed += weighted @ labels[y[a : a + BLOCK]]
        square += weighted @ block
    return Products(observed, square)


class Maximum(NamedTuple):
    """The weights of largest z-score.

    Attributes
    ----------
    mix : ndarray of shape (n_labels, n_labels)
        W = V · mix.
    pairs : ndarray of shape (n_labels, n_labels)
        D, the part of the transitions beside terms of single labels.
    multiplier : float
        α in w = C⁻¹(α b - c).
    zscore : float
        Z-score of the true labels, with the loss if there is one.
    transition_weight : float
        κ: the transition weights as a multiple of :meth:`PairRule.table`, relative to state weights
        without a loss.
    """

    mix: np.ndarray
    pairs: np.ndarray
    multiplier: float
    zscore: float
    transition_weight: float


def loss_multiplier(mean_loss: float, bb: float, bc: float) -> float:
    """α = max(0, (1 + μ_ℓ + bᵀC⁻¹c) / bᵀC⁻¹b), with which w·b = 1 + μ_ℓ (§5.1).

    μ_ℓ is the mean loss of all labelings and c its covariance with the features: the least of
    ½ wᵀCw + wᵀc subject to w·b - μ_ℓ ≥ 1 is w = C⁻¹(α b - c). (The sign of Equation 6's h in
    print is different.)
    """
    return max(0.0, (1.0 + mean_loss + bc) / bb) if bb > 0 else 0.0


def loss_scale(alpha: float, cost: np.ndarray | None, n_labels: int) -> tuple[float, float]:
    """(size of the state weights as a multiple of those without a loss, κ = α / size).

    State weights are V (α (L I - 1) - cost) with centred costs, whose part along L I - 1 changes
    the size. Hamming loss has no other part, and the size is α + 1 / L.
    """
    if cost is None:
        return 1.0, 1.0
    scale = alpha + float(cost.mean(axis=1).sum() - np.trace(cost)) / max(
        n_labels * (n_labels - 1), 1
    )
    return scale, alpha / scale if scale > 0 else 0.0


class PairRule(NamedTuple):
    """Rule for the scores of pairs of successive labels.

    Attributes
    ----------
    kind : {"covariance", "information"}
        "covariance": D of the largest z-score. "information": L times the pointwise mutual
        information of the true labels.
    weight : float or None
        κ. None: the κ of the loss, or ``INFORMATION_WEIGHT``.
    """

    kind: str = "covariance"
    weight: float | None = None

    @property
    def is_natural(self) -> bool:
        return self.kind == "covariance" and self.weight is None

    def kappa(self, natural: float) -> float:
        """κ; ``natural`` is the κ of the loss."""
        if self.weight is not None:
            return self.weight
        return natural if self.kind == "covariance" else INFORMATION_WEIGHT

    def table(self, statistics: Statistics, l2: float) -> np.ndarray:
        """Transition scores for κ = 1, relative to state weights without a loss.

        "covariance": counts n_ij of pairs, doubly centred, over their variance P / L² + 2 l2.
        "information": L log(n_ij n / (n_i n_j)), with ½ added to the counts. The former compares a
        pair with uniform labels, so that a frequent label outweighs all others; the latter
        compares it with labels of the observed frequencies.
        """
        counts = statistics.transitions
        if self.kind == "information":
            counts = counts + SMOOTHING
            free = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
            return len(counts) * np.log(counts / free)
        excess, variance = pair_statistics(statistics, l2)
        return excess / variance if variance > 0 else np.zeros_like(excess)


COVARIANCE = PairRule()  # the rule of the largest z-score


def combine(
    products: Products, statistics: Statistics, cost: np.ndarray | None, l2: float,
    rule: PairRule = COVARIANCE,
) -> Maximum:  # fmt: skip
    """The maximum, from products of V = (X̃ᵀX̃ + 2 L l2)⁻¹ X̃ᵀY: W = V · mix.

    Without a loss, w = C⁻¹b solves the paper's Equations 4 and 5; with one, α is the solution of
    Equation 6. C⁻¹b is L · V less its mean over labels. A loss cost(ȳ_t, y_t), summed over
    rows, has the covariance X̃ᵀY·cost / L with the features of W, for centred costs, and the
    covariance 0 with those of D: C⁻¹c is V · cost. ``rule`` may replace D; ``zscore`` is then right
    only if rows and columns of the new table sum to zero.
    """
    excess, variance = pair_statistics(statistics, l2)
    of_pairs = float(np.vdot(excess, excess)) / variance if variance > 0 else 0.0
    L, alpha = len(excess), 1.0
    mix = L * np.eye(L) - 1
    if cost is not None:
        mean, costs = float(statistics.labels @ cost.mean(axis=1)), centred(cost)
        bb = float(np.vdot(mix, products.observed)) + of_pairs
        bc = float(np.vdot(costs, centred(products.observed)))
        alpha = loss_multiplier(mean, bb, bc)
        mix = alpha * mix - costs
    scale, natural = loss_scale(alpha, cost, L)
    kappa = rule.kappa(natural)
    weight = alpha if rule.is_natural else kappa * scale
    pairs = weight * rule.table(statistics, l2)
    z = zscore_of(mix, pairs, products, statistics, cost)
    return Maximum(mix, pairs, alpha, z, kappa)


def pair_statistics(statistics: Statistics, l2: float) -> tuple[np.ndarray, float]:
    """The part of b for D, and the part of C + 2 · l2 for D, a number."""
    counts = statistics.transitions
    return centred(centred(counts).T).T, counts.sum() / counts.size + 2 * l2


def zscore_of(mix, pairs, products: Products, statistics: Statistics, cost) -> float:
    """w·b / √(wᵀCw) of W = V · mix and D, with the loss added to the scores."""
    L, excess = len(pairs), pair_statistics(statistics, 0.0)[0]
    gap = np.vdot(mix, products.observed) + np.vdot(pairs, excess)
    total = np.vdot(mix, products.square @ mix) / L
    total += statistics.transitions.sum() * np.square(pairs).mean()
    if cost is not None:
        costs = centred(cost)
        gap -= statistics.labels @ cost.mean(axis=1)
        total += 2 * np.vdot(mix, products.observed @ costs) / L
        total += statistics.labels @ np.square(costs).mean(axis=1)
    return float(gap / np.sqrt(total)) if total > 0 else 0.0


# ------------------------------------------------------------------ scores of given weights


class ScoreMoments(NamedTuple):
    """Mean and variance of the scores of all labelings, for each sequence.

    Attributes
    ----------
    mean, variance : ndarray of shape (n_sequences,)
    """

    mean: np.ndarray
    variance: np.ndarray


def score_moments(
    emission: np.ndarray, transition: np.ndarray, offsets: np.ndarray
) -> ScoreMoments:
    """Mean and variance of Σ_t emission_t(y_t) + Σ_t transition(y_{t-1}, y_t) over all labelings.

    These are μ and σ² of the paper's Equation 2.

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

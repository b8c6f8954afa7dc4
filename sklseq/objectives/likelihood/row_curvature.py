"""Hessian of the likelihood for few weights, as if labels of different rows were independent.

``lbfgs`` minimises a model with it before an estimate ends the run (``second_derivatives``).
"""

from typing import NamedTuple

import numpy as np

from sklseq._lib.tiny import TINY
from sklseq.data.sequences import Sequences
from sklseq.objectives.likelihood.label_curvature import LabelCurvature, feature_sizes
from sklseq.objectives.likelihood.likelihood import (
    Block,
    LogLikelihood,
    ThreadBuffers,
    hessian_rows,
)
from sklseq.objectives.scores.score_map import ScoreMap, Weights

# Limits of weights and labels, so that the Hessian costs no more than training.
MOST, MOST_LABELS = 512, 30
# Fewer rows are used than this, and than WORK / n², with n the number of weights.
MOST_ROWS, WORK = 1 << 16, 500_000_000
# Largest number of weights of the exact Hessian, each of which costs a few evaluations, and bytes
# that it keeps.
MOST_EXACT, KEPT = 64, 1 << 27
# Added to the diagonal, as a fraction of it: some weights are redundant.
LEAST = 1e-6


def has_few_weights(scores: ScoreMap) -> bool:
    """Whether weights and labels are so few that a Hessian costs no more than training."""
    return scores.n_weights <= MOST and scores.n_labels <= MOST_LABELS


def has_row_curvature(scores: ScoreMap) -> bool:
    """Whether weights and labels are few, and no transition has features."""
    return has_few_weights(scores) and scores.features is None


class Marginals(NamedTuple):
    """Of the rows of a block; 0 for the rows before the first and after the last of a sequence."""

    weights: np.ndarray
    p: np.ndarray
    before: np.ndarray
    after: np.ndarray
    first: np.ndarray
    last: np.ndarray


def row_curvature(f: LogLikelihood, X: Sequences, w: np.ndarray) -> LabelCurvature:
    """Estimate the Hessian of ``f`` at w, without penalties.

    It is the covariance of the features of a path, which is computed for independent labels with
    the marginals p_t of the model. Let e_t(j) be the expected features if label t is j: x_t for the
    weights of j, p_{t-1}(i) for transitions i → j, p_{t+1}(k) for j → k, and 1 for start and end
    weights at the first and last row. With C_t = diag(p_t) - p_t p_tᵀ, the covariance is

        Σ_t e_tᵀ C_t e_t + Σ_t C_{t-1} ⊗ C_t,

    with the second sum for transitions only. It is exact for sequences of one row.

    Parameters
    ----------
    f : LogLikelihood
        The likelihood of the rows X.
    X : Sequences
    w : ndarray
    """
    scores, L, d = f.scores, f.scores.n_labels, X.shape[1]
    at, feature, label = _places(scores)
    sizes = _sizes(scores)
    step = 1 + int(X.n_rows * max(1 / MOST_ROWS, max(len(at), L * L) ** 2 / WORK))
    chain, W = scores.chain(w), scores.design.weights(scores.state(w))

    def add_run(job: tuple[list[Block], ThreadBuffers]) -> tuple[np.ndarray, np.ndarray]:
        # The two sums over every ``step``-th row of the blocks of one thread.
        H, pairs = np.zeros((len(at), len(at))), np.zeros((L * L, L * L))
        for block in job[0]:
            some = _marginals(f, block, W, chain, step, job[1])
            rows = X.rows[block.first : block.last : step]
            rows = (rows.toarray() if X.is_sparse else rows) / sizes[:d]
            _add_effects(some, rows, feature, label, H)
            before, here = _covariances(some.before), _covariances(some.p)
            pairs += (before * some.weights[:, None]).T @ here
        return H, pairs

    H, pairs = (sum(part) for part in zip(*f.threads.map(add_run, zip(f.runs, f.buffers))))
    chained = np.flatnonzero((feature >= d) & (feature < d + L))
    i, j = feature[chained] - d, label[chained]
    H[np.ix_(chained, chained)] += pairs[i[:, None] * L + i, j[:, None] * L + j]
    H *= step
    return _as_block(at, sizes[feature], H)


def exact_curvature(f: LogLikelihood, w: np.ndarray) -> LabelCurvature:
    """The Hessian of ``f`` at w, without penalties, by a product for each weight."""
    at, feature, _ = _places(f.scores)
    sizes = _sizes(f.scores)[feature]
    H = hessian_rows(f.hessian(w, KEPT), at, 1 / sizes, len(w)) / sizes
    np.einsum("ii->i", H)[:] -= 2 * f.l2 / np.square(sizes)
    return _as_block(at, sizes, (H + H.T) / 2)


def _as_block(at: np.ndarray, sizes: np.ndarray, H: np.ndarray) -> LabelCurvature:
    diagonal = np.einsum("ii->i", H)
    np.maximum(diagonal, 0, out=diagonal)
    diagonal += LEAST * np.maximum(diagonal, LEAST * diagonal.max()) + np.finfo(float).tiny
    scale, least = np.sqrt(diagonal), LEAST
    while not _is_positive(H / scale / scale[:, None], least / 2):  # the likelihood is float32
        least *= 10
        diagonal += least * np.square(scale)
    return LabelCurvature(at, np.arange(len(at)), sizes, H[None], np.zeros(1))


def _is_positive(H: np.ndarray, least: float) -> bool:
    # Whether all eigenvalues are above ``least``.
    try:
        np.linalg.cholesky(H - least * np.eye(len(H)))
    except np.linalg.LinAlgError:
        return False
    return True


def _sizes(scores: ScoreMap) -> np.ndarray:
    # Of the features as in `_places`.
    return np.append(feature_sizes(scores), np.ones(scores.n_labels + 2))


def _add_effects(some: Marginals, rows: np.ndarray, feature, label, H: np.ndarray) -> None:
    # Σ_t e_tᵀ C_t e_t; a weight is given by its feature, a column or a previous label, and label.
    d, L = rows.shape[1], some.p.shape[1]
    z = np.hstack([rows, some.before, some.first[:, None], some.last[:, None]])
    expected = z[:, feature] * some.p[:, label]
    source = np.where((feature >= d) & (feature < d + L), feature - d, -1)
    out = np.flatnonzero(source >= 0)
    expected[:, out] += some.p[:, source[out]] * some.after[:, label[out]]
    H -= (expected * some.weights[:, None]).T @ expected
    for j in range(L):
        mine = np.flatnonzero((label == j) | (source == j))
        e = z[:, feature[mine]] * (label[mine] == j)
        e += some.after[:, label[mine]] * (source[mine] == j)
        H[np.ix_(mine, mine)] += (e * (some.weights * some.p[:, j])[:, None]).T @ e


def _covariances(p: np.ndarray) -> np.ndarray:
    # diag(p_t) - p_t p_tᵀ of each row, flat.
    C = -p[:, :, None] * p[:, None, :]
    np.einsum("tii->ti", C)[:] += p
    return C.reshape(len(p), -1)


def _marginals(
    f: LogLikelihood, block: Block, W, chain, step: int, work: ThreadBuffers
) -> Marginals:
    # Of each step-th row.
    n, weights = len(block.y), np.repeat(block.weights, np.diff(block.offsets))
    psi, _ = f.residuals(W, chain, block, work)
    here, (first, last) = np.arange(0, n, step), np.zeros((2, n))
    cuts = block.offsets[np.append(True, np.diff(block.offsets) > 0)]
    first[cuts[:-1]] = last[cuts[1:] - 1] = 1

    def at(rows: np.ndarray) -> np.ndarray:
        p = psi[rows, : f.scores.n_labels] / np.maximum(weights[rows], TINY)[:, None]
        p[np.arange(len(rows)), block.y[rows]] += 1
        return np.clip(p, 0, 1, out=p)

    first, last = first[here], last[here]
    before, after = at(here - 1), at((here + 1) % n)
    before[first > 0] = after[last > 0] = 0
    return Marginals(weights[here], at(here), before, after, first, last)


def _places(scores: ScoreMap) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    # Positions in w of the trained weights, and their features and labels. Features are columns,
    # then the labels from which transitions come, start and end.
    d, L = scores.n_features, scores.n_labels
    numbers = np.arange(1.0, (d + L + 2) * L + 1).reshape(-1, L)
    chain = numbers[d : d + L], numbers[d + L], numbers[d + L + 1]
    packed = scores.pack(Weights(numbers[:d], *chain))
    at = np.flatnonzero(packed)
    feature, label = np.divmod(packed[at].astype(np.intp) - 1, L)
    return at, feature, label

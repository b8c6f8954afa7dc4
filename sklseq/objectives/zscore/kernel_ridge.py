"""Ridge regression of label indicators in the space of a kernel."""

import numpy as np

from sklseq.objectives.zscore.factorised import SolvedRows
from sklseq.objectives.zscore.moments import Sample, chain_columns

EPS = np.finfo(np.float64).eps
FAR = 1e-10  # squared distances from the mean, over the diagonal, that only elimination can see
NOISE = 8 * EPS  # fraction of the eigenvalue of the mean below which others are rounding


def weighted_gram(gram: np.ndarray, sample: Sample) -> np.ndarray:
    """R (K + E Eᵀ) R of the kernel's matrix K, with E the chain's columns of X̃.

    R is the diagonal of the roots of row weights.
    """
    ends = chain_columns(sample.offsets, sample.n_labels)
    root = np.sqrt(sample.row_weights)
    product = gram + ends @ ends.T
    product *= root
    product *= root[:, None]
    return product


def centred_size(gram: np.ndarray) -> float:
    """Largest squared distance of a row from the mean of rows, in the space of the kernel."""
    means = gram.mean(axis=0)
    return float((gram.diagonal() - 2 * means + means.mean()).max(initial=0))


def solve_far(gram: np.ndarray, root: np.ndarray, B: np.ndarray, ridge: float) -> np.ndarray:
    """(R gram R + ridge)⁻¹ B for rows whose mean is long beside their distances from it.

    The mean is eliminated: with r = R1 / ‖R1‖, P = I - rrᵀ and M = R gram R,

        (P M P - P M r rᵀM P / (rᵀMr + ridge) + ridge) P W = P B - P M r rᵀB / (rᵀMr + ridge),

    where P M P is R times the kernel of centred rows times R, which keeps its digits. Eigenvalues
    that are rounding of M count as 0.
    """
    d, total = root[:, 0] ** 2, float(np.square(root).sum())
    means = gram @ d / total
    centred = gram - means[:, None]
    centred -= d @ centred / total
    centred -= (centred @ d / total)[:, None]  # the rounding of large means
    level = float(d @ means) / total
    unit, first = root / np.sqrt(total), total * level
    across = np.sqrt(total) * root * (means - level)[:, None]
    left = root * centred * root.T - across @ across.T / (first + ridge)
    own = unit.T @ B
    value, vectors = np.linalg.eigh(left)
    kept = value > NOISE * first
    rest = B - unit @ own - across @ own / (first + ridge)
    W = (vectors[:, kept] / (value[kept] + ridge)) @ (vectors[:, kept].T @ rest)
    W -= unit @ (unit.T @ W)  # what rounding leaves, the mean multiplies
    return W + unit @ ((own - across.T @ W) / (first + ridge))


class KernelRidge(SolvedRows):
    """V = X̃ᵀA of least Σ_t d_t ‖y_t - x̃_t V‖² + ridge ‖V‖², for rows known by their kernel alone.

    With K̃ = X̃X̃ᵀ and R² = diag(d),

        A = R (R K̃ R + ridge)⁻¹ R Y,      X̃ V = K̃ A.

    V may have infinitely many rows; the rows of A, times the kernel between rows, replace it in
    prediction. ``solution`` is A, followed by the two rows EᵀA of V that give the transitions.
    ``solve(A, B, ridge)`` solves dense systems.

    Cost O(n_rows³ / 3), and 16 · n_rows² bytes in addition to ``gram``, the kernel of all rows.
    """

    def __init__(self, gram: np.ndarray, sample: Sample, ridge: float, solve):
        root = np.sqrt(sample.row_weights)[:, None]
        ends = chain_columns(sample.offsets, sample.n_labels)
        Y = root * np.eye(sample.n_labels)[sample.y]
        if centred_size(gram) < FAR * gram.diagonal().max():
            A = root * solve_far(gram + ends @ ends.T, root, Y, ridge)
        else:
            A = root * solve(weighted_gram(gram, sample), Y, ridge).w
        self.y, self.scores = sample.y, gram @ A + ends @ (ends.T @ A)
        self.solution = np.vstack([A, ends.T @ A])

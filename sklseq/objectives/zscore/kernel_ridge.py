"""Ridge regression of label indicators in the space of a kernel."""

from __future__ import annotations

import numpy as np

from sklseq.objectives.zscore.factorised import SolvedRows
from sklseq.objectives.zscore.moments import Sample, chain_columns

__all__ = ["KernelRidge", "weighted_gram"]


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


class KernelRidge(SolvedRows):
    """V = X̃ᵀA of least Σ_t d_t ‖y_t - x̃_t V‖² + ridge ‖V‖², for rows known by their kernel alone.

    With K̃ = X̃X̃ᵀ and R² = diag(d),

        A = R (R K̃ R + ridge)⁻¹ R Y,      X̃ V = K̃ A.

    V itself is infinite in general; what stands for its rows of features are the rows of A, which
    the kernel between rows multiplies in prediction. ``solution`` is A, and below it the two rows
    EᵀA of V that make transitions.

    Parameters
    ----------
    gram : ndarray of shape (n_rows, n_rows)
        The kernel between all rows.
    sample : Sample
    ridge : float
    solve : callable(A, B, ridge) -> SolverResult
        Of dense systems.

    Notes
    -----
    Cost O(n_rows³ / 3), and 16 · n_rows² bytes beside ``gram``.
    """

    def __init__(self, gram: np.ndarray, sample: Sample, ridge: float, solve):
        root = np.sqrt(sample.row_weights)[:, None]
        ends = chain_columns(sample.offsets, sample.n_labels)
        Y = root * np.eye(sample.n_labels)[sample.y]
        A = root * solve(weighted_gram(gram, sample), Y, ridge).w
        self.y, self.scores = sample.y, gram @ A + ends @ (ends.T @ A)
        self.solution = np.vstack([A, ends.T @ A])

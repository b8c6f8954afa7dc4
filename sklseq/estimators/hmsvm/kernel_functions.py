"""Kernels between rows: named, callable or precomputed, and their Gram matrix."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.metrics.pairwise import linear_kernel, polynomial_kernel, rbf_kernel

from sklseq.estimators.validation import check_number

__all__ = ["RowKernel", "check_kernel", "gram_matrix", "resolve_gamma"]

NAMES = ("linear", "poly", "rbf", "precomputed")
BLOCK = 1 << 22  # entries of the Gram matrix computed at a time
SAMPLE = 400  # rows on which a matrix is tested for being positive semi-definite
NEGATIVE = 1e-8  # fraction of the largest eigenvalue that rounding may make negative


class RowKernel(NamedTuple):
    """k(x, z) for rows x and z.

    Attributes
    ----------
    kernel : str or callable
    gamma, coef0 : float
    degree : int
    """

    kernel: str | Callable
    gamma: float = 1.0
    degree: int = 3
    coef0: float = 0.0

    def __call__(self, A: Any, B: Any) -> np.ndarray:
        """The matrix k(A[i], B[j]), checked if a callable made it."""
        if self.kernel == "linear":
            return linear_kernel(A, B)
        if self.kernel == "poly":
            return polynomial_kernel(A, B, degree=self.degree, gamma=self.gamma, coef0=self.coef0)
        if self.kernel == "rbf":
            return rbf_kernel(A, B, gamma=self.gamma)
        return _checked(self.kernel(A, B), (A.shape[0], B.shape[0]))


def _checked(block: Any, shape: tuple[int, int]) -> np.ndarray:
    block = block.toarray() if sparse.issparse(block) else np.asarray(block)
    if block.shape != shape:
        raise ValueError(
            f"kernel must return a matrix of shape {shape}, one row and one column for each row "
            f"of its two arguments; got shape {block.shape}."
        )
    if block.dtype.kind not in "biuf" or not np.isfinite(block).all():
        raise ValueError("kernel must return finite real numbers; got others.")
    return block


def check_kernel(tagger: Any) -> None:
    """Raise on bad ``kernel``, ``gamma``, ``degree`` or ``coef0``."""
    if not callable(tagger.kernel) and tagger.kernel not in NAMES:
        raise ValueError(f"kernel must be one of {NAMES} or a callable; got {tagger.kernel!r}.")
    if isinstance(tagger.gamma, numbers.Real):
        if not 0 < tagger.gamma < np.inf:
            raise ValueError(f"gamma must be above 0 and finite; got {tagger.gamma!r}.")
    elif tagger.gamma not in ("scale", "auto"):
        raise ValueError(f"gamma must be 'scale', 'auto' or a number; got {tagger.gamma!r}.")
    check_number("degree", tagger.degree, least=1, whole=True)
    if not isinstance(tagger.coef0, numbers.Real) or not 0 <= tagger.coef0 < np.inf:
        raise ValueError(
            "coef0 must be finite and not negative, else the kernel is indefinite; got "
            f"{tagger.coef0!r}."
        )


def resolve_gamma(gamma: str | float, rows: Any) -> float:
    """ "scale" and "auto" as in scikit-learn's SVC: 1 / (n_features · variance), 1 / n_features."""
    if isinstance(gamma, numbers.Real):
        return float(gamma)
    n = rows.shape[1]
    if gamma == "auto":
        return 1.0 / n
    mean = rows.mean()
    square = rows.multiply(rows).mean() if sparse.issparse(rows) else np.square(rows).mean()
    variance = float(square - mean**2)
    return 1.0 / (n * variance) if variance > 0 else 1.0


def gram_matrix(kernel: RowKernel, rows: Any, cache_size: float) -> np.ndarray:
    """k between all rows, float64, computed block by block.

    Raises
    ------
    ValueError
        If it needs more than ``cache_size`` megabytes, has the wrong shape, is not symmetric, or is
        not positive semi-definite on a sample of the rows.
    """
    n = rows.shape[0]
    megabytes = 8 * n**2 / 1e6
    if megabytes > cache_size:
        most = int((cache_size * 1e6 / 8) ** 0.5)
        raise ValueError(
            f"The Gram matrix of {n:,} rows needs {megabytes:,.0f} MB, and cache_size allows "
            f"{cache_size:,.0f} MB, enough for {most:,} rows. Raise cache_size, train on fewer "
            "sequences, or use kernel='linear' on approximate features of the rows, as made by "
            "scikit-learn's Nystroem."
        )
    if kernel.kernel == "precomputed":
        gram = _precomputed(rows)
    else:
        gram = np.empty((n, n))
        step = max(1, BLOCK // max(n, 1))
        for a in range(0, n, step):
            gram[a : a + step] = kernel(rows[a : a + step], rows)
    if callable(kernel.kernel) or kernel.kernel == "precomputed":
        _check_definite(gram)
    return gram


def _precomputed(rows: Any) -> np.ndarray:
    n, m = rows.shape
    if n != m:
        raise ValueError(
            "With kernel='precomputed', rows of X hold their kernel with every training row, so X "
            f"must have as many columns as rows in all sequences, {n}; got {m} columns."
        )
    dense = rows.toarray() if sparse.issparse(rows) else rows
    return np.ascontiguousarray(dense, dtype=np.float64)


def _check_definite(gram: np.ndarray) -> None:
    chosen = np.unique(np.linspace(0, len(gram) - 1, min(SAMPLE, len(gram))).astype(int))
    part = gram[np.ix_(chosen, chosen)]
    scale = np.abs(part).max()
    apart = np.abs(part - part.T)
    if apart.max() > 1e-6 * scale:
        i, j = chosen[list(np.unravel_index(apart.argmax(), apart.shape))]
        raise ValueError(
            f"The kernel must be symmetric; rows {i} and {j} give {gram[i, j]:.6g} one way and "
            f"{gram[j, i]:.6g} the other."
        )
    values = np.linalg.eigvalsh((part + part.T) / 2)
    if values[0] < -NEGATIVE * max(scale, values[-1]) * len(part) ** 0.5:
        raise ValueError(
            f"The kernel must be positive semi-definite; on {len(part)} training rows its matrix "
            f"has the eigenvalue {values[0]:.3g} (largest: {values[-1]:.3g}). Margins are not "
            "defined for an indefinite kernel: use another."
        )

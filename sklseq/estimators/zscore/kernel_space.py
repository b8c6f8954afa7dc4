"""Kernel of a z-score tagger between training rows, exact or approximated by landmarks."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.exceptions import ConvergenceWarning

from sklseq.data.sequences import canonical
from sklseq.estimators.kernel_functions import (
    BLOCK,
    gram_factor,
    gram_matrix,
    row_kernel,
)
from sklseq.estimators.sources.source import RowSource
from sklseq.inference.chain.linear_chain import as_generator, row_blocks
from sklseq.objectives.zscore.factorised import CentredRows, centred_statistics
from sklseq.objectives.zscore.kernel_ridge import centred_size
from sklseq.objectives.zscore.moments import Sample, Statistics, extended_rows

# Squared distances from the mean, over the kernel's diagonal, below which scores lose precision.
LOST, LOST_LANDMARKS = 1e-11, 1e-8


class KernelSpace:
    """Kernel between training rows, and scores by sums of kernels with support rows.

    Parameters
    ----------
    tagger : ZScoreTagger
    source : RowSource
    gram : ndarray of shape (n_rows, n_rows), optional
        The kernel between the rows of ``source.X``, if it was computed before.

    Attributes
    ----------
    kernel : RowKernel
    support : ndarray
        Rows of ``source.X`` whose kernels are summed: all, or ``n_landmarks`` rows drawn at random.
    """

    def __init__(self, tagger: Any, source: RowSource, gram: np.ndarray | None = None):
        self.tagger, self.source, self.known = tagger, source, gram
        self.kernel = row_kernel(tagger, source.X.rows)
        self.support = np.arange(source.X.n_rows)
        if tagger.n_landmarks is not None and tagger.n_landmarks < len(self.support):
            rng = as_generator(tagger.random_state)
            chosen = rng.choice(len(self.support), int(tagger.n_landmarks), replace=False)
            self.support = np.sort(chosen)

    @property
    def is_exact(self) -> bool:
        return self.tagger.n_landmarks is None

    @property
    def gram(self) -> np.ndarray:
        """The kernel between all rows of ``source.X``."""
        if self.known is None:
            size = float(self.tagger.cache_size)
            if self.kernel.kernel == "precomputed":
                used = self.numbers()
                gram = gram_matrix(self.kernel, self.source.given[0].rows, size)
                self.known = gram if len(used) == len(gram) else gram[np.ix_(used, used)]
            else:
                self.known = gram_matrix(self.kernel, self.source.X.rows, size)
        return self.known

    def numbers(self) -> np.ndarray:
        """Numbers of the support rows among all rows of the user, including weight 0."""
        X, weights = self.source.given
        return np.flatnonzero(np.repeat(weights > 0, X.lengths))[self.support]

    def statistics(self, sample: Sample) -> Statistics:
        """Sums over rows k(x, Z) R⁻ᵀ for the landmarks Z, with R Rᵀ their kernels (Nyström).

        Cost O(n_rows · n_landmarks²), O(n_landmarks²) memory.
        """
        Z = self.source.X.rows[self.support]
        self.root = gram_factor(gram_matrix(self.kernel, Z, float(self.tagger.cache_size)))
        total = None
        for part in self._parts(sample, Z):
            extended = extended_rows(part.rows, part.offsets, part.n_labels)
            found = centred_statistics(CentredRows(extended, part.row_weights), part)
            total = found if total is None else total.merged(found)
        return total

    def _parts(self, sample: Sample, Z: Any) -> Iterator[Sample]:
        offsets = sample.offsets
        for a, b in row_blocks(offsets, max(1, BLOCK // len(self.support))):
            rows = slice(offsets[a], offsets[b])
            across = self.kernel(sample.rows[rows], Z)
            features = solve_triangular(self.root, across.T, lower=True).T
            yield sample._replace(
                rows=np.ascontiguousarray(features), offsets=offsets[a : b + 1] - offsets[a],
                y=sample.y[rows], weights=sample.weights[a:b],
            )  # fmt: skip

    def of_landmarks(self, coef: np.ndarray) -> np.ndarray:
        """Convert weights of the rows k(x, Z) R⁻ᵀ to coefficients of kernels with the landmarks."""
        return solve_triangular(self.root, coef, trans="T", lower=True)

    def training_scores(self, coef: np.ndarray) -> np.ndarray:
        """Scores of all rows of ``source.X``."""
        return self.gram @ coef if self.is_exact else self.scores(coef, self.source.X.rows)

    def scores(self, coef: np.ndarray, rows: Any) -> np.ndarray:
        """Scores of other rows."""
        Z, found = self.source.X.rows[self.support], np.empty((rows.shape[0], coef.shape[1]))
        step = max(1, BLOCK // len(self.support))
        for a in range(0, len(found), step):
            found[a : a + step] = self.kernel(rows[a : a + step], Z) @ coef
        return found

    def _warn_far(self) -> None:
        # Kernels of rows far from zero are nearly equal, and their differences are rounding.
        gram = self.gram if self.is_exact else self.root @ self.root.T
        least = (LOST if self.is_exact else LOST_LANDMARKS) * gram.diagonal().max(initial=0)
        if len(gram) > 1 and 0 < centred_size(gram) < least:
            warnings.warn(
                "Values of the kernel differ so little, relative to their size, that rounding "
                "changes scores; centre the columns, e.g. by PerToken(StandardScaler()).",
                ConvergenceWarning,
                stacklevel=5,
            )

    def attributes(self, coef: np.ndarray) -> dict[str, Any]:
        """Fitted attributes that replace ``coef_``."""
        tagger, X = self.tagger, self.source.X
        if len(self.source.classes) > 1:  # one label needs no kernel
            self._warn_far()
        fitted = {
            "dual_coef_": coef, "support_": self.numbers(), "n_support_": len(self.support),
            "n_features_in_": X.shape[1],
            "_fitted_parameters": {
                name: getattr(tagger, name) for name in ("kernel", "degree", "coef0")
            },
        }  # fmt: skip
        if tagger.kernel in ("poly", "rbf"):
            fitted["gamma_"] = self.kernel.gamma
        if tagger.kernel != "precomputed":
            fitted["support_vectors_"] = canonical(X.rows[self.support])
        return fitted

"""Small models: sparse and pruned state weights."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

__all__ = ["SlimMixin", "dense_weights"]


def dense_weights(coef: Any) -> np.ndarray:
    """State weights as an array, whether a model was sparsified or not."""
    return coef.toarray() if sparse.issparse(coef) else coef


class SlimMixin:
    """``sparsify``, ``densify`` and ``prune`` for taggers with state weights ``coef_``."""

    def sparsify(self):
        """Store ``coef_`` as a CSR matrix: smaller files for models with many zeros.

        Predictions stay the same to the bit; the first one after loading unpacks the weights.
        With ``l1 > 0``, or observed states only, most weights are zero.

        Returns
        -------
        self : estimator
        """
        check_is_fitted(self, "coef_")
        if not sparse.issparse(self.coef_):
            self.coef_ = sparse.csr_matrix(self.coef_)
        return self

    def densify(self):
        """Store ``coef_`` as an array again.

        Returns
        -------
        self : estimator
        """
        check_is_fitted(self, "coef_")
        self.coef_ = dense_weights(self.coef_)
        return self

    def prune(self, threshold: float = 0.0):
        """Set state weights of magnitude ``threshold`` or less to 0.

        Attributes that are left without a weight are forgotten if the tagger itself reads dicts
        or attribute lists. Transitions, starts and ends stay as they are.

        Parameters
        ----------
        threshold : float, default=0.0
            0 changes no prediction.

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If the threshold is negative or not a number.
        """
        check_is_fitted(self, "coef_")
        if not isinstance(threshold, numbers.Real) or not 0 <= threshold < np.inf:
            raise ValueError(f"threshold must be a finite number of at least 0; got {threshold!r}.")
        was_sparse = sparse.issparse(self.coef_)
        coef = dense_weights(self.coef_)
        coef = np.where(np.abs(coef) > threshold, coef, np.zeros((), dtype=coef.dtype))
        if getattr(self, "vectorizer_", None) is not None:
            coef = self._forget(coef)
        self.coef_ = coef
        return self.sparsify() if was_sparse else self

    def _forget(self, coef: np.ndarray) -> np.ndarray:
        kept = coef.any(axis=1)
        kept[0] |= not kept.any()  # a model needs a feature
        self.vectorizer_.restrict(kept)
        self.feature_names_in_ = self.vectorizer_.get_feature_names_out()
        self.n_features_in_ = len(self.feature_names_in_)
        return coef[kept]

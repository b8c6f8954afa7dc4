"""The family of extractors: what all of them promise, and the arithmetic that they share."""

from __future__ import annotations

import numbers

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.estimator import Public, check_plain_parameters
from sklseq.data.sequences import Sequences, not_a_table
from sklseq.data.types import LabelsLike, TokensLike

__all__ = [
    "Extractor",
    "as_names",
    "check_parameters",
    "hashed_names",
    "keep_frequent",
    "no_tables",
    "vocabulary",
]


class Extractor(Public, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):
    """A transformer from raw sequences to ``Sequences``.

    A subclass has ``fit_transform``, ``transform``, ``get_feature_names_out`` and
    ``receptive_field``, and sets ``n_features_out_``. Its output is ragged, so every class
    opts out of tables (class keyword ``auto_wrap_output_keys=None``).
    """

    def set_output(self, *, transform: str | None = None):
        """Does nothing: the output is always ``Sequences``.

        It is there for ``FeatureUnion(...).set_output(transform="default")``, which asks every
        part.

        Parameters
        ----------
        transform : {"default", None}, default=None

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If a table is asked for.
        """
        if transform not in (None, "default"):
            raise ValueError(not_a_table(f"The output of {type(self).__name__}"))
        return self

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags

    def fit(self, X: TokensLike, y: LabelsLike | None = None):
        """Learn the attributes of ``X``.

        Parameters
        ----------
        X : list of sequences
        y : ignored

        Returns
        -------
        self : estimator
        """
        self.fit_transform(X, y)
        return self

    def transform(self, X: TokensLike) -> Sequences:
        """The attributes of ``X`` that were seen in training."""
        raise NotImplementedError

    @property
    def receptive_field(self) -> tuple[int, int]:
        """How many tokens before and after a token its attributes depend on: none."""
        return 0, 0

    def _check_fitted(self) -> None:
        check_is_fitted(self, "n_features_out_")


def no_tables():
    """Around transformers inside ours: they give no tables, whatever the settings are."""
    return config_context(transform_output="default")


@property
def vocabulary(self: Extractor) -> dict[str, int]:
    """Column number of each attribute name (built anew at each access)."""
    return {name: i for i, name in enumerate(self.get_feature_names_out().tolist())}


def check_parameters(estimator: BaseEstimator) -> None:
    """Switches, ``min_count``, ``n_features`` and ``dtype``, where the estimator has them."""
    check_plain_parameters(estimator)
    parameters = estimator.get_params(deep=False)
    min_count, n = parameters.get("min_count", 1), parameters.get("n_features")
    if not isinstance(min_count, numbers.Integral) or min_count < 1:
        raise ValueError(f"min_count must be an integer of at least 1; got {min_count!r}.")
    if n is not None:
        if not isinstance(n, numbers.Integral) or not 2 <= n <= 1 << 30 or n & (n - 1):
            raise ValueError(
                f"n_features must be None or a power of two from 2 to 2**30; got {n!r}. "
                "Take 2**18 or more, so that few attributes share a column."
            )
        if min_count > 1:
            raise ValueError(
                f"min_count={min_count} counts attributes, but n_features={n} keeps no vocabulary "
                "to count; use min_count=1 or n_features=None."
            )
    dtype = parameters.get("dtype", np.float64)
    if dtype not in (np.float32, np.float64, "float32", "float64"):
        raise ValueError(f"dtype must be float32 or float64; got {dtype!r}.")


def as_names(names: list) -> np.ndarray:
    """A list of strings as array of objects, also when it is empty."""
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def hashed_names(n_features: int) -> np.ndarray:
    """Names of columns that attributes share by hash: "#0", "#1", ..."""
    return as_names([f"#{i}" for i in range(n_features)])


def keep_frequent(
    counts: np.ndarray, indices: np.ndarray, indptr: np.ndarray, min_count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Drop columns counted less often: new number of each column (-1: none), and new rows."""
    kept = counts >= min_count
    new = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    kept_here = kept[indices]
    indptr = np.concatenate([[0], np.cumsum(kept_here)])[indptr]
    return new, new[indices[kept_here]], indptr

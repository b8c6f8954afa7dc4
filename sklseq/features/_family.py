"""Base class of the extractors, and functions that several of them share."""

from collections.abc import Iterable, Sized
from copy import copy
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn import config_context
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.checks import check_number, is_number
from sklseq._lib.estimator import (
    EstimatorBase,
    as_fitted,
    check_plain_parameters,
    unchanged_on_error,
)
from sklseq._lib.ragged import offsets_of
from sklseq._lib.threads import check_n_jobs
from sklseq.data.column_roles import check_choice_of_columns, with_transition_features
from sklseq.data.input_kinds import in_blocks
from sklseq.data.ones import all_ones, product_of_ones, rows_of_ones
from sklseq.data.samples import not_a_table
from sklseq.data.sequences import Sequences, factors_of
from sklseq.data.types import LabelsLike, SequencesLike
from sklseq.features._extracted_blocks import extracted_blocks
from sklseq.features._packed_rows import PackedRows


class Extractor(EstimatorBase, TransformerMixin, BaseEstimator, auto_wrap_output_keys=None):
    """A transformer from raw sequences to ``Sequences``.

    A subclass has ``_fit_rows(X, y)``, which sets ``n_features_out_``, ``_names(input_features)``,
    ``packed_rows(X)`` or ``_rows_of(X)`` and, if rows depend on neighbours, ``receptive_field``; a
    subclass that reads sequences in blocks has ``_fit_blocks(X, y)``. The output is ragged, so
    every class opts out of tables (class keyword ``auto_wrap_output_keys=None``).
    """

    reads_nan = False

    def __getstate__(self) -> dict[str, Any]:
        # Tables of names are not pickled: they are built again from the fitted attributes.
        state = super().__getstate__()
        return {name: state[name] for name in state if name not in ("_table", "_tables")}

    def set_output(self, *, transform: str | None = None):
        """Accept the default output only: it is always ``Sequences``.

        ``FeatureUnion(...).set_output(transform="default")`` calls it.

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

    def fit(self, X: SequencesLike, y: LabelsLike | None = None) -> Self:
        """Learn the features of ``X``.

        Parameters
        ----------
        X : list of sequences
            In a form that the class describes.
        y : list of label sequences, optional
            For transformers of scikit-learn inside; the extractors do not use it.

        Returns
        -------
        self : estimator
        """
        self.fit_transform(X, y)
        return self

    def fit_transform(self, X: SequencesLike, y: LabelsLike | None = None) -> Sequences:
        """Learn the features of ``X`` and return them, in one pass.

        Parameters
        ----------
        X : list of sequences
            In a form that the class describes.
        y : list of label sequences, optional
            As in ``fit``.

        Returns
        -------
        Sequences
            One row for each token; :class:`SegmentFeatures` returns ``SegmentPotentials``. If X
            holds sequences in blocks, a list as returned by :meth:`transform`.
        """
        self._check_parameters()
        in_parts = self._reads_blocks(X)
        with unchanged_on_error(self):
            if in_parts:
                self._fit_blocks(X, y)
            else:
                rows = self._with_roles(self._fit_rows(X, y), fit=True)
            self._fitted_parameters = self.get_params(deep=False)
        return extracted_blocks(self, X) if in_parts else rows

    def _reads_blocks(self, X: Any) -> bool:
        if not hasattr(self, "_fit_blocks") or not in_blocks(X, maps=False):
            return False
        if getattr(self, "transition_features", None) is not None:
            raise ValueError(
                "transition_features needs sequences in memory, and X holds sequences in blocks; "
                "use transition_features=None, or pass arrays."
            )
        return True

    def transform(self, X: SequencesLike) -> Sequences:
        """Return the features of ``X`` that were seen in training.

        Parameters
        ----------
        X : list of sequences
            As in ``fit``; columns are found by the names learnt there.

        Returns
        -------
        Sequences
            As in ``fit_transform``. If X holds sequences in blocks, a list of
            :class:`~sklseq.RowBlocks`, whose rows are computed each time they are read.
        """
        self._check_fitted()
        fitted = as_fitted(self)
        if fitted is not self:
            return fitted.transform(X)
        if self._reads_blocks(X):
            return extracted_blocks(self, X)
        return self._with_roles(self._rows_of(X))

    def _rows_of(self: Any, X: Any) -> Sequences:
        return to_sequences(self.packed_rows(X), self.dtype)

    def _with_roles(self, rows: Sequences, fit: bool = False) -> Sequences:
        # Set the roles of rows by the parameter ``transition_features``, if the extractor has it.
        chosen = getattr(self, "transition_features", None)
        if chosen is None:
            return rows
        if fit:
            names = None if getattr(self, "n_features", None) else self._column_names
            self.roles_ = with_transition_features(chosen, rows.shape[1], None, names)
        rows = copy(rows)
        rows.roles = self.roles_
        return rows

    def _column_names(self) -> np.ndarray:
        return distinct_names(self._names(None))

    def get_feature_names_out(self, input_features: Iterable[str] | None = None) -> np.ndarray:
        """Return the names of the features; ``"#0"``, ``"#1"``, ... of hashed ones.

        All names are different: further columns of the name ``a`` are ``a (2)``, ``a (3)``, ...

        Parameters
        ----------
        input_features : array-like of str, default=None
            Names of the columns of ``X``, for rows of numbers.

        Returns
        -------
        ndarray of str objects, of shape (n_features_out,)
        """
        self._check_fitted()
        fitted = as_fitted(self)
        if fitted is not self:
            return fitted.get_feature_names_out(input_features)
        if getattr(self, "n_features", None) is not None:
            return as_names([f"#{i}" for i in range(self.n_features_out_)])
        return distinct_names(self._names(input_features))

    @property
    def receptive_field(self) -> tuple[int, int]:
        """Number of tokens before and after a token on which its features depend."""
        return 0, 0

    def _check_fitted(self) -> None:
        check_is_fitted(self, "n_features_out_")

    def _check_parameters(self) -> None:
        check_parameters(self)


def check_some(sequences: Sized) -> None:
    """Raise if there are no sequences to fit an extractor on."""
    if not len(sequences):
        raise ValueError("X holds no sequences; give at least one to fit.")


def no_tables():
    """Context in which transformers of scikit-learn return no tables."""
    return config_context(transform_output="default")


def extract(extractor: Any, X: Any, y: Any = None, fit: bool = False) -> Sequences:
    """Return the output of an inner extractor, which must be ``Sequences``."""
    with no_tables():
        rows = extractor.fit_transform(X, y) if fit else extractor.transform(X)
    if not isinstance(rows, Sequences):
        raise ValueError(
            f"The extractor must give Sequences; {type(extractor).__name__} gave "
            f"{type(rows).__name__}. Wrap a transformer of rows in PerToken."
        )
    return rows


def to_packed_rows(X: Sequences) -> PackedRows:
    """Return sparse ``Sequences`` as the arrays that the compiled functions take."""
    if (factors := factors_of(X.rows)) is not None:
        parts = (to_packed_rows(Sequences(rows, [0, rows.shape[0]])) for rows in factors)
        rows, lists = parts
        return rows._replace(n_columns=lists.n_columns, offsets=X.offsets, lists=lists)
    rows = X.rows
    values = None if all_ones(rows) else rows.data
    indptr, indices = rows.indptr.astype(np.int64), rows.indices.astype(np.int32, copy=False)
    return PackedRows(indptr, indices, values, rows.shape[1], X.offsets)


def to_sequences(rows: PackedRows, dtype: Any, roles: np.ndarray | None = None) -> Sequences:
    """Return packed rows as ``Sequences``; values of ``None`` become ones of type ``dtype``."""
    return Sequences(to_matrix(rows, dtype), rows.offsets, roles)


def to_matrix(rows: PackedRows, dtype: Any) -> sparse.csr_matrix:
    """Return packed rows as a CSR matrix; values as :func:`to_sequences` takes them."""
    if rows.lists is not None:
        numbers = rows_of_ones(rows.indices, rows.indptr, rows.lists.n_rows, dtype)
        return product_of_ones(numbers, to_matrix(rows.lists, dtype))
    if rows.values is None:
        return rows_of_ones(rows.indices, rows.indptr, rows.n_columns, dtype)
    shape = rows.n_rows, rows.n_columns
    return sparse.csr_matrix((rows.values, rows.indices, rows.indptr), shape=shape)


class VocabularyMixin:
    """``vocabulary_`` of an extractor that stores its names in another form."""

    @property
    def vocabulary_(self) -> dict[str, int]:
        """Column number of each attribute name; computed at each access."""
        return {name: i for i, name in enumerate(self.get_feature_names_out().tolist())}


def check_parameters(estimator: Any, *, chooses_count: bool = False) -> None:
    """Check switches, ``min_count``, ``transition_features``, ``n_features``, ``n_jobs`` and
    ``dtype``, if it has them.

    ``chooses_count``: ``min_count`` may be None.
    """
    check_plain_parameters(estimator)
    parameters = estimator.get_params(deep=False)
    min_count, n = parameters.get("min_count", 1), parameters.get("n_features")
    check_number("min_count", min_count, 1, whole=True, optional=chooses_count)
    check_choice_of_columns(parameters.get("transition_features"))
    check_n_jobs(parameters.get("n_jobs"))
    if n is not None:
        if not is_number(n, whole=True) or not 2 <= n <= 1 << 30 or n & (n - 1):
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
    """Return a list of strings as an array of objects."""
    array = np.empty(len(names), dtype=object)
    array[:] = names
    return array


def input_names(n: int, given: Iterable[str] | None) -> list[str]:
    """Names of n columns of numbers; the name of a table's column of matrices is numbered."""
    names = [f"x{j}" for j in range(n)] if given is None else list(given)
    if len(names) == 1:
        return names if n == 1 else [f"{names[0]}{j}" for j in range(n)]
    if len(names) != n:
        raise ValueError(f"input_features must name {n} features; got {len(names)}.")
    return names


def distinct_names(names: Iterable[str]) -> np.ndarray:
    """Return names as an array of objects; further columns of one name get " (2)", " (3)", ..."""
    names = list(names)
    used = set(names)
    if len(used) == len(names):
        return as_names(names)
    copies: dict[str, int] = {}
    for i, name in enumerate(names):
        copies[name] = copies.get(name, 0) + 1
        while copies[name] > 1 and (new := f"{name} ({copies[name]})") in used:
            copies[name] += 1
        if copies[name] > 1:
            names[i] = new
    return as_names(names)


def keep_frequent(
    counts: np.ndarray, indices: np.ndarray, indptr: np.ndarray, min_count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Drop rare columns; return the new number of each column (-1: dropped), and the new rows."""
    kept = counts >= min_count
    new = np.where(kept, np.cumsum(kept) - 1, -1).astype(np.int32)
    kept_here = kept[indices]
    indptr = offsets_of(kept_here)[indptr]
    return new, new[indices[kept_here]], indptr

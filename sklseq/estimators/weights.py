"""Weights of a fitted model as an array, and the largest weights with their names."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.available import missing_if
from sklseq._lib.checks import check_number
from sklseq._lib.estimator import in_native_order
from sklseq.objectives.scores.score_map import padded_rows, padded_view


def dense_weights(coef: Any) -> np.ndarray:
    """Return state weights as a dense array, also of a sparsified model."""
    return coef.toarray() if sparse.issparse(coef) else coef


def check_weights(model: Any) -> None:
    """Raise unless ``model`` is fitted, and its weights, which users may assign, have its sizes."""
    if not hasattr(model, "classes_"):
        check_is_fitted(model, "classes_")
    n_features, n = model.n_features_in_, len(model.classes_)
    shapes = {
        "coef_": (n_features, n), "intercept_": (n,), "transition_": (n, n),
        "start_": (n,), "end_": (n,), "transition_coef_": (n_features, n * n),
    }  # fmt: skip
    found = vars(model)  # kernel models have no coef_, taggers no intercept_
    for name in shapes.keys() & found.keys():
        value = found[name]
        if value is None and name == "transition_coef_":
            continue
        kind, fits = _kind_of_weights(name, value)
        if not fits or value.shape != shapes[name] or value.dtype.char not in "fd":
            got = f"{type(value).__name__}{f' of shape {value.shape}' if fits else ''}"
            raise ValueError(
                f"{name} must be {kind} of shape {shapes[name]} and type float32 or float64; "
                f"got {got}{f' and type {value.dtype}' if fits else ''}."
            )


def _kind_of_weights(name: str, value: Any) -> tuple[str, bool]:
    # What weights have to be, and whether ``value`` is that.
    is_array, is_sparse = isinstance(value, np.ndarray), sparse.issparse(value)
    if name == "transition_coef_":
        return "a CSR matrix", is_sparse and value.format == "csr"
    if name == "coef_":
        return "an array or a sparse matrix", is_array or is_sparse
    return "an array", is_array


def are_scores(values: np.ndarray) -> bool:
    """Whether none of the values is NaN or infinite; -inf forbids a label or pair."""
    return not values.size or values.max() < np.inf  # NaN is not less


def check_no_nan(**weights: Any) -> None:
    """Raise if one of the weights, by name, holds NaN or infinity; -inf forbids a transition."""
    for name, w in weights.items():
        if w is not None and not are_scores(w.data if sparse.issparse(w) else w):
            raise ValueError(
                f"{name} holds NaN or infinity; assign finite weights, fit again, or load the "
                "model again."
            )


def in_padded_rows(coef: Any) -> Any:
    """State weights that can be changed as a view of padded rows, others as they are."""
    is_array = isinstance(coef, np.ndarray) and coef.ndim == 2 and coef.dtype.kind == "f"
    return padded_view(in_native_order(coef)) if is_array and coef.flags.writeable else coef


class PaddedWeights:
    """State weights of a model with padded rows for the kernels.

    Parameters
    ----------
    coef : ndarray or sparse matrix of shape (n_features, n_labels)
        Of ``in_padded_rows``, so that changes in place change ``rows``.

    Attributes
    ----------
    rows : ndarray of shape (n_features, width)
    """

    def __init__(self, coef: Any):
        check_no_nan(coef_=coef)
        self.coef, self.rows = coef, padded_rows(dense_weights(coef))
        self.data = coef.data.copy() if sparse.issparse(coef) else None

    def are_of(self, coef: Any) -> bool:
        """Whether ``rows`` have the weights of ``coef``."""
        return self.coef is coef and (self.data is None or np.array_equal(self.data, coef.data))


class NoWeightsError(ValueError, AttributeError):
    """Error: weights of features do not exist in a model with a kernel."""


def no_weights(model: Any) -> str | None:
    """Return why a model has no weights of features, or None."""
    if hasattr(model, "classes_"):
        linear = hasattr(model, "coef_")
    else:
        linear = getattr(model, "kernel", "linear") == "linear"
    return None if linear else "only kernel='linear' gives weights of features; use it."


class WeightsMixin:
    """Names and sizes of ``coef_`` and ``transition_``."""

    def _check_weights(self) -> None:
        check_weights(self)
        reason = no_weights(self)
        if reason is not None:
            raise NoWeightsError(f"This {type(self).__name__} has no coef_: {reason}")

    def _names(self, feature_names: Any) -> np.ndarray:
        self._check_weights()
        if feature_names is None:
            feature_names = getattr(self, "feature_names_in_", None)
        if feature_names is None:
            return np.array([f"x{k}" for k in range(self.n_features_in_)], dtype=object)
        if len(feature_names) != self.n_features_in_:
            raise ValueError(
                f"feature_names must name {self.n_features_in_} features; got {len(feature_names)}."
            )
        return np.asarray(feature_names, dtype=object)

    @missing_if(no_weights)
    def top_features(
        self,
        n: int = 10,
        *,
        label: Hashable | None = None,
        sign: str | None = None,
        feature_names: Iterable[str] | None = None,
    ) -> list[tuple]:
        """The state weights of largest magnitude.

        Parameters
        ----------
        n : int, default=10
        label : label, optional
            Only weights of this label.
        sign : {"positive", "negative"} or None, default=None
            Only weights of this sign.
        feature_names : array-like of str, optional
            Names of the columns, e.g. ``pipeline[:-1].get_feature_names_out()``.

        Returns
        -------
        list of (weight, label, feature name)

        Raises
        ------
        ValueError
            If the label or the sign is unknown.
        """
        names, chosen = self._names(feature_names), self._is_chosen(label, n)
        weights = coef = dense_weights(self.coef_)
        if label is not None:
            coef = np.where(chosen, coef, 0)
        coef = _of_sign(coef, sign)
        flat = _largest(np.abs(coef).ravel(), n)
        feature, j = np.divmod(flat, len(self.classes_))
        labels = self.classes_.tolist()
        return [
            (float(weights[f, k]), labels[k], str(names[f]))
            for f, k in zip(feature, j)
            if coef[f, k] != 0
        ]

    def _is_chosen(self, label: Any, n: Any) -> np.ndarray:
        # Mask of the labels that ``label`` chooses: one, or all; a label given as ``n`` is named.
        if isinstance(n, str):
            raise ValueError(
                f"n must be the number of weights; got {n!r:.60}: give a label as label={n!r:.60}."
            )
        if label is None:
            return np.ones(len(self.classes_), dtype=bool)
        if label not in self.classes_:
            raise ValueError(f"label must be one of {self.classes_.tolist()}; got {label!r}.")
        return self.classes_ == label

    def top_transitions(self, n: int = 10, *, sign: str | None = None) -> list[tuple]:
        """The transition weights of largest magnitude, without forbidden transitions.

        Parameters
        ----------
        n : int, default=10
            Number of weights.
        sign : {"positive", "negative"} or None, default=None
            Only weights of this sign.

        Returns
        -------
        list of (weight, label, next label)
        """
        check_weights(self)
        weights = np.where(np.isfinite(self.transition_), self.transition_, 0)
        weights = _of_sign(weights, sign)
        labels = self.classes_.tolist()
        i, j = np.divmod(_largest(np.abs(weights).ravel(), n), len(labels))
        return [
            (float(weights[a, b]), labels[a], labels[b]) for a, b in zip(i, j) if weights[a, b] != 0
        ]

    @missing_if(no_weights)
    def top_transition_features(
        self,
        n: int = 10,
        *,
        label: Hashable | None = None,
        sign: str | None = None,
        feature_names: Iterable[str] | None = None,
    ) -> list[tuple]:
        """The weights of transition features of largest magnitude.

        Parameters
        ----------
        n : int, default=10
        label : label, optional
            Only weights of pairs whose second label, that of the row, is this one.
        sign : {"positive", "negative"} or None, default=None
            Only weights of this sign.
        feature_names : array-like of str, optional
            As in :meth:`top_features`.

        Returns
        -------
        list of (weight, label, next label, feature name)
            An empty list for a model without transition features.

        Raises
        ------
        ValueError
            If the label or the sign is unknown.
        """
        names, coef = self._names(feature_names), getattr(self, "transition_coef_", None)
        if coef is None:
            coef = sparse.coo_array((1, 1))
        found, labels = sparse.coo_array(coef), self.classes_.tolist()
        i, j = np.divmod(found.col, len(labels))
        weights = _of_sign(np.where(self._is_chosen(label, n)[j], found.data, 0), sign)
        top = [k for k in _largest(np.abs(weights), n) if weights[k] != 0]
        return [
            (float(weights[k]), labels[a], labels[b], str(names[found.row[k]]))
            for k, a, b in zip(top, i[top], j[top])
        ]

    @property
    def state_features_(self) -> dict[tuple, float]:
        """State weights that are not zero, by (feature name, label)."""
        names, coef = self._names(None).tolist(), sparse.coo_array(self.coef_)
        labels = self.classes_.tolist()
        entries = zip(coef.row.tolist(), coef.col.tolist(), coef.data.tolist())
        return {(names[f], labels[j]): weight for f, j, weight in entries if weight != 0}

    @property
    def transition_features_(self) -> dict[tuple, float]:
        """Transition weights that are not zero, by (label, next label); -inf where forbidden."""
        check_weights(self)
        labels, pairs = self.classes_.tolist(), np.argwhere(self.transition_ != 0).tolist()
        return {(labels[i], labels[j]): float(self.transition_[i, j]) for i, j in pairs}


def _of_sign(weights: np.ndarray, sign: str | None) -> np.ndarray:
    if sign not in (None, "positive", "negative"):
        raise ValueError(f"sign must be 'positive', 'negative' or None; got {sign!r}.")
    if sign is None:
        return weights
    return np.where(weights > 0 if sign == "positive" else weights < 0, weights, 0)


def _largest(values: np.ndarray, n: int) -> np.ndarray:
    # Positions of the n largest values, largest first, ties by position.
    check_number("n", n, whole=True)
    n = min(int(n), len(values))
    if n < len(values):
        threshold = np.partition(values, len(values) - n)[len(values) - n] if n else np.inf
        candidates = np.flatnonzero(values >= threshold)
    else:
        candidates = np.arange(len(values))
    return candidates[np.argsort(-values[candidates], kind="stable")][:n]

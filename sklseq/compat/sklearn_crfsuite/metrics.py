"""Metrics with the names and results of ``sklearn_crfsuite.metrics``.

>>> from sklseq.compat.sklearn_crfsuite import metrics
"""

from collections.abc import Iterable, Sized
from typing import Any, Protocol

import numpy as np
from sklearn.metrics import (
    accuracy_score,
    classification_report,
    f1_score,
    fbeta_score,
    precision_score,
    recall_score,
)

from sklseq.compat.sklearn_crfsuite.utils import flatten
from sklseq.data.labels import as_label_sequences

__all__ = [
    "flat_accuracy_score",
    "flat_classification_report",
    "flat_f1_score",
    "flat_fbeta_score",
    "flat_precision_score",
    "flat_recall_score",
    "flatten",
    "sequence_accuracy_score",
]


class Labels(Sized, Iterable[Iterable[Any]], Protocol):
    """A list of label sequences."""


def _flat(y_true: Labels, y_pred: Labels) -> tuple[list, list]:
    true, predicted = as_label_sequences(y_true, "y_true"), as_label_sequences(y_pred, "y_pred")
    return true[0].tolist(), predicted[0].tolist()


def _sequences(y: Labels, name: str) -> list:
    given: Any = list(y) if isinstance(y, Iterable) else y
    as_label_sequences(given, name)  # raises an error that names the invalid sequence
    return given


def flat_accuracy_score(y_true: Labels, y_pred: Labels) -> float:
    """Fraction of items whose label is right.

    Parameters
    ----------
    y_true, y_pred : list of label sequences

    Returns
    -------
    float

    Examples
    --------
    >>> from sklseq.compat.sklearn_crfsuite import metrics
    >>> metrics.flat_accuracy_score([["a", "b"], ["a"]], [["a", "a"], ["a"]])
    0.6666666666666666
    """
    return float(accuracy_score(*_flat(y_true, y_pred)))


def flat_precision_score(y_true: Labels, y_pred: Labels, **kwargs: Any) -> float | np.ndarray:
    """Precision of the labels of items, by :func:`sklearn.metrics.precision_score`.

    Parameters
    ----------
    y_true, y_pred : list of label sequences
    **kwargs
        Parameters of scikit-learn's function. ``average`` is required for more than two labels.

    Returns
    -------
    float, or ndarray with ``average=None``

    Examples
    --------
    >>> from sklseq.compat.sklearn_crfsuite import metrics
    >>> float(metrics.flat_precision_score([["a", "b"]], [["a", "a"]], pos_label="a"))
    0.5
    """
    return precision_score(*_flat(y_true, y_pred), **kwargs)


def flat_recall_score(y_true: Labels, y_pred: Labels, **kwargs: Any) -> float | np.ndarray:
    """Recall of the labels of items, by :func:`sklearn.metrics.recall_score`.

    Parameters
    ----------
    y_true, y_pred, **kwargs
        As in :func:`flat_precision_score`.

    Returns
    -------
    float, or ndarray with ``average=None``

    Examples
    --------
    >>> from sklseq.compat.sklearn_crfsuite import metrics
    >>> float(metrics.flat_recall_score([["a", "b"]], [["a", "a"]], pos_label="a"))
    1.0
    """
    return recall_score(*_flat(y_true, y_pred), **kwargs)


def flat_f1_score(y_true: Labels, y_pred: Labels, **kwargs: Any) -> float | np.ndarray:
    """F1 of the labels of items, by :func:`sklearn.metrics.f1_score`; not that of spans.

    Parameters
    ----------
    y_true, y_pred, **kwargs
        As in :func:`flat_precision_score`.

    Returns
    -------
    float, or ndarray with ``average=None``

    See Also
    --------
    sklseq.metrics.span_f1 : F1 of whole spans.

    Examples
    --------
    >>> from sklseq.compat.sklearn_crfsuite import metrics
    >>> float(metrics.flat_f1_score([["a", "b"]], [["a", "b"]], average="weighted"))
    1.0
    """
    return f1_score(*_flat(y_true, y_pred), **kwargs)


def flat_fbeta_score(
    y_true: Labels, y_pred: Labels, beta: float, **kwargs: Any
) -> float | np.ndarray:
    """F-beta of the labels of items, by :func:`sklearn.metrics.fbeta_score`.

    Parameters
    ----------
    y_true, y_pred : list of label sequences
    beta : float
        Weight of recall against precision.
    **kwargs
        As in :func:`flat_precision_score`.

    Returns
    -------
    float, or ndarray with ``average=None``

    Examples
    --------
    >>> from sklseq.compat.sklearn_crfsuite import metrics
    >>> float(metrics.flat_fbeta_score([["a", "b"]], [["a", "b"]], beta=2, average="macro"))
    1.0
    """
    return fbeta_score(*_flat(y_true, y_pred), beta=beta, **kwargs)


def flat_classification_report(
    y_true: Labels, y_pred: Labels, labels: Iterable[Any] | None = None, **kwargs: Any
) -> str | dict[str, Any]:
    """Precision, recall and F1 of each label, by :func:`sklearn.metrics.classification_report`.

    Parameters
    ----------
    y_true, y_pred : list of label sequences
    labels : list of labels, optional
        Labels of the report, in this order.
    **kwargs
        Parameters of scikit-learn's function.

    Returns
    -------
    str, or dict with ``output_dict=True``

    Examples
    --------
    >>> from sklseq.compat.sklearn_crfsuite import metrics
    >>> report = metrics.flat_classification_report([["a", "b"]], [["a", "b"]])
    >>> "weighted avg" in report
    True
    """
    labels = None if labels is None else list(labels)
    return classification_report(*_flat(y_true, y_pred), labels=labels, **kwargs)


def sequence_accuracy_score(y_true: Labels, y_pred: Labels) -> float:
    """Fraction of sequences whose labels are all right.

    Parameters
    ----------
    y_true, y_pred : list of label sequences
        A prediction of another length counts as wrong.

    Returns
    -------
    float
        0 without any sequences.

    Raises
    ------
    ValueError
        If the numbers of sequences differ.

    Notes
    -----
    If all sequences have the same length, sklearn-crfsuite counts items, so its result can be
    above 1; here sequences are counted. :func:`sklseq.metrics.sequence_accuracy` refuses sequences
    of another length.

    Examples
    --------
    >>> from sklseq.compat.sklearn_crfsuite import metrics
    >>> metrics.sequence_accuracy_score([["a", "b"], ["a"]], [["a", "a"], ["a"]])
    0.5
    """
    true, predicted = _sequences(y_true, "y_true"), _sequences(y_pred, "y_pred")
    if len(true) != len(predicted):
        raise ValueError(
            f"y_true and y_pred must have the same number of sequences; got {len(true)} and "
            f"{len(predicted)}."
        )
    right = [list(a) == list(b) for a, b in zip(true, predicted)]
    return sum(right) / len(right) if right else 0.0

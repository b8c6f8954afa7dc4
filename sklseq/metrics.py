"""Metrics of predicted label sequences: tokens, whole sequences and spans.

All functions take lists, object arrays or 2-D arrays of label sequences; those of spans also
take lists of segments (start, stop, type), as segmenters and `predict_spans` return. Labels are
concatenated before they are counted, so label sequences of equal length, such as
``[[0, 1], [1, 1]]``, are never read as scikit-learn's multilabel indicators.

The ``scoring`` parameter of scikit-learn takes the scorers themselves, as in
``scoring=span_f1_scorer``: scikit-learn has no public registry of names.
"""

import copy
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
import sklearn.metrics
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import make_scorer

from sklseq._lib.checks import check_names, check_number, counted, is_number
from sklseq.data.labels import as_label_sequences, list_label_sequences, locate
from sklseq.data.segment_labels import (
    empty_lists,
    holds_segments,
    read_triple,
    segments_to_labels,
)
from sklseq.data.sequences import check_sample_weight
from sklseq.data.span_labels import Spans
from sklseq.data.strict_spans import check_mode, read_spans

__all__ = [
    "SCORERS",
    "SpanScores",
    "get_scorer",
    "sequence_accuracy",
    "sequence_accuracy_scorer",
    "span_f1",
    "span_f1_scorer",
    "span_fbeta",
    "span_precision",
    "span_precision_recall_fscore_support",
    "span_precision_scorer",
    "span_recall",
    "span_recall_scorer",
    "span_report",
    "token_accuracy",
    "token_accuracy_scorer",
]

# Label sequences of a corpus: a list, an object array or a 2-D array.
LabelSequences = Collection[Collection[Any]]


# --------------------------------------------------------------------- tokens and sequences


def token_accuracy(
    y_true: LabelSequences, y_pred: LabelSequences, *, sample_weight: ArrayLike | None = None
) -> float:
    """Fraction of rows with the right label.

    Parameters
    ----------
    y_true, y_pred : list, object array or 2-D array of label sequences
        True and predicted labels; corresponding sequences have equal length.
    sample_weight : array-like of shape (n_sequences,), optional
        Weight of all rows of each sequence.

    Returns
    -------
    accuracy : float
        Between 0 and 1.

    Raises
    ------
    ValueError
        If the sequences do not match, there are no rows, or a weight is negative or not finite.

    Notes
    -----
    With v_s the weight of sequence s and T_s its length,
    accuracy = Σ_s v_s Σ_t [y_st = ŷ_st] / Σ_s v_s T_s.

    Examples
    --------
    >>> from sklseq.metrics import token_accuracy
    >>> token_accuracy([["B-x", "O"], ["O", "O"]], [["B-x", "B-x"], ["O", "O"]])
    0.75
    """
    flat_true, flat_pred, offsets = _align(y_true, y_pred)
    lengths = np.diff(offsets)
    weight = check_sample_weight(sample_weight, len(lengths))
    return _mean(flat_true == flat_pred, np.repeat(weight, lengths), "rows")


def sequence_accuracy(
    y_true: LabelSequences, y_pred: LabelSequences, *, sample_weight: ArrayLike | None = None
) -> float:
    """Fraction of sequences with all labels right.

    Parameters
    ----------
    y_true, y_pred : list, object array or 2-D array of label sequences
        True and predicted labels; corresponding sequences have equal length. An empty sequence
        has no wrong label.
    sample_weight : array-like of shape (n_sequences,), optional
        Weight of each sequence.

    Returns
    -------
    accuracy : float
        Between 0 and 1: with v_s the weight of sequence s, Σ_s v_s [y_s = ŷ_s] / Σ_s v_s.

    Raises
    ------
    ValueError
        If the sequences do not match, there are none, or a weight is negative or not finite.

    Examples
    --------
    >>> from sklseq.metrics import sequence_accuracy
    >>> sequence_accuracy([["B-x", "O"], ["O", "O"]], [["B-x", "B-x"], ["O", "O"]])
    0.5
    """
    flat_true, flat_pred, offsets = _align(y_true, y_pred)
    # Differences of a running count, because reduceat does not sum empty sequences to 0.
    errors_before = np.concatenate(([0], np.cumsum(flat_true != flat_pred)))
    right = np.diff(errors_before[offsets]) == 0
    return _mean(right, check_sample_weight(sample_weight, len(right)), "sequences")


def _align(
    y_true: LabelSequences, y_pred: LabelSequences
) -> tuple[NDArray, NDArray, NDArray[np.int64]]:
    """Flat true and predicted labels and their common offsets; raise if they do not match."""
    for name, y in (("y_true", y_true), ("y_pred", y_pred)):
        if holds_segments(y):
            raise ValueError(
                f"{name} holds segments (start, stop, type), and accuracies compare labels of "
                "tokens; use span_f1 and its scorer, or the labels of predict_labels."
            )
    flat_true, offsets = as_label_sequences(y_true, "y_true")
    flat_pred, offsets_pred = as_label_sequences(y_pred, "y_pred")
    _check_same_offsets(offsets, offsets_pred, any(map(empty_lists, (y_true, y_pred))))
    kinds = {flat.dtype.kind == "U" for flat in (flat_true, flat_pred)}
    if len(flat_true) and len(kinds) == 2:
        raise ValueError(
            f"y_true has labels such as {flat_true[0].item()!r}, y_pred such as "
            f"{flat_pred[0].item()!r} (sequence {locate(offsets, 0).split()[-1]}); both must be "
            f"strings, or neither: convert one."
        )
    return flat_true, flat_pred, offsets


def _check_same_offsets(offsets: NDArray, offsets_pred: NDArray, perhaps_segments: bool) -> None:
    if len(offsets) != len(offsets_pred):
        short, shorter = min((len(offsets), "y_true"), (len(offsets_pred), "y_pred"))
        raise ValueError(
            f"y_true has {counted(len(offsets) - 1, 'sequence')}, y_pred {len(offsets_pred) - 1}; "
            f"sequence {short - 1} is missing in {shorter}: pass a prediction for every sequence."
        )
    unequal = np.flatnonzero(np.diff(offsets) != np.diff(offsets_pred))
    if unequal.size:
        n_true, n_pred = (np.diff(ends)[unequal[0]] for ends in (offsets, offsets_pred))
        hint = ""
        if perhaps_segments:
            hint = (
                " If the empty lists are segments, use span_f1 without a scheme, or the labels of "
                "predict_labels."
            )
        raise ValueError(
            f"Sequence {unequal[0]} has {counted(n_true, 'label')} in y_true but {n_pred} in "
            f"y_pred; they must be of equal length: predict one label per row.{hint}"
        )


def _mean(right: NDArray[np.bool_], weight: NDArray[np.float64], what: str) -> float:
    if not weight.any():
        raise ValueError(
            f"Accuracy over no {what} is undefined; pass sequences that have labels, with at least "
            "one positive weight."
        )
    return float(np.average(right, weights=weight / _unit(weight)))


def _unit(weight: NDArray[np.float64]) -> float:
    """The power of two below the largest weight: divided by it, weights have a finite sum."""
    return float(np.ldexp(1.0, np.frexp(weight.max(initial=0))[1] - 1))


# ------------------------------------------------------------------------------------- spans


class SpanScores(NamedTuple):
    """Span scores: numbers if averaged, otherwise arrays with one entry per type.

    Attributes
    ----------
    precision : float or ndarray
        right / predicted.
    recall : float or ndarray
        right / true.
    f1 : float or ndarray
        2 right / (true + predicted).
    support : int or ndarray
        true.
    """

    precision: float | NDArray[np.float64]
    recall: float | NDArray[np.float64]
    f1: float | NDArray[np.float64]
    support: float | NDArray[Any]


class _SpanCounts(NamedTuple):
    types: list[str]
    right: NDArray[np.int64]  # (n_types,) spans with the same rows and type on both sides
    predicted: NDArray[np.int64]  # (n_types,)
    true: NDArray[np.int64]  # (n_types,)
    unit: float = 1  # of the three, if sequences have weights


def span_precision_recall_fscore_support(
    y_true: LabelSequences,
    y_pred: LabelSequences,
    *,
    mode: str = "conlleval",
    scheme: str | None = None,
    average: str | None = None,
    labels: Sequence[str] | None = None,
    zero_division: float = 0.0,
    sample_weight: ArrayLike | None = None,
) -> SpanScores:
    """Precision, recall, F1 and support of spans.

    Parameters
    ----------
    y_true, y_pred : list, object array or 2-D array of label sequences, or lists of segments
        True and predicted labels; corresponding sequences have equal length. Or for each sequence
        a list of (start, stop, type). If one argument holds labels and the other only empty lists,
        these mean no spans.
    mode : {"conlleval", "strict"}, default="conlleval"
        Definition of a span. ``"conlleval"`` reads any order of labels of any scheme: an I-x that
        follows O or another type begins a span. ``"strict"`` reads only valid spans of `scheme`,
        like seqeval's mode of that name.
    scheme : {"iob1", "iob2", "ioe1", "ioe2", "iobes", "bilou"} or None, default=None
        Meaning of the prefixes; required for ``mode="strict"``, and allowed only there.
    average : {"micro", "macro", "weighted"} or None, default=None
        None gives one score per type. ``"micro"`` counts the spans of all types together (the first
        line of conlleval's output), ``"macro"`` is the mean over types, ``"weighted"`` the mean
        weighted by the number of true spans.
    labels : sequence of str, optional
        The span types to score, in this order; by default all that occur in `y_true` or `y_pred`,
        sorted.
    zero_division : {0.0, 1.0, nan}, default=0.0
        The score of a type that divides by zero, and of an average over nothing. Averages ignore
        NaN; if all weights are zero, ``"weighted"`` is the plain mean, as in scikit-learn.
    sample_weight : array-like of shape (n_sequences,), optional
        Weight of all spans of each sequence.

    Returns
    -------
    scores : SpanScores
        ``precision``, ``recall``, ``f1`` and ``support``: arrays of shape (n_types,), or floats
        and the total number of true spans if `average` is given.

    Raises
    ------
    ValueError
        If the sequences do not match, a label is not a span label or not one of `scheme`, a
        weight is negative or not finite, or a parameter has a value that is not allowed.

    Notes
    -----
    A predicted span is right if a true span has the same first row, last row and type:

        precision = right / predicted,  recall = right / true,  F1 = 2 right / (predicted + true).

    ``mode="conlleval"`` has the rules of the evaluation script of that name [1]_ and of the default
    mode of seqeval [2]_, which does not read L and U of BILOU; here these mean E and S. With
    ``mode="strict"`` scores equal those of seqeval, except under IOE1, where seqeval does not
    follow the scheme: here ``E-x I-x`` are two spans, as ``I-x B-x`` are under IOB1. F1 = 0 where a
    type occurs on one side only, for any `zero_division`.

    References
    ----------
    .. [1] E. Tjong Kim Sang and S. Buchholz, "Introduction to the CoNLL-2000 shared task:
       chunking", CoNLL 2000.
    .. [2] H. Nakayama, "seqeval: a Python framework for sequence labeling evaluation", 2018.

    Examples
    --------
    >>> from sklseq.metrics import span_precision_recall_fscore_support
    >>> y_true = [["B-PER", "I-PER", "O", "B-LOC"]]
    >>> y_pred = [["B-PER", "I-PER", "O", "B-PER"]]
    >>> scores = span_precision_recall_fscore_support(y_true, y_pred)
    >>> scores.precision, scores.support  # types LOC, PER
    (array([0. , 0.5]), array([1, 1]))
    >>> span_precision_recall_fscore_support(y_true, y_pred, average="micro").f1
    0.5
    """
    _check_options(average, labels, zero_division)
    counts = _count_spans(y_true, y_pred, mode, scheme, sample_weight)
    return _scores(_select(counts, labels), average, zero_division)


def _check_options(average: str | None, labels: Sequence[str] | None, zero_division: float) -> None:
    if average not in (None, "micro", "macro", "weighted"):
        raise ValueError(f"average must be None, 'micro', 'macro' or 'weighted'; got {average!r}.")
    if labels is not None:
        check_names(labels, "labels", "span type")
    if not (zero_division in (0, 1) or zero_division != zero_division):
        raise ValueError(f"zero_division must be 0.0, 1.0 or nan; got {zero_division!r}.")


def _which_segments(y_true: Any, y_pred: Any) -> list[bool]:
    """Whether each side holds segments; beside labels, empty lists are taken as no segments."""
    sides = y_true, y_pred
    held, empty = list(map(holds_segments, sides)), list(map(empty_lists, sides))
    return held if any(held) or all(empty) else empty


def _of_segments(y_true: Any, y_pred: Any, mode: str) -> tuple[Any, Any]:
    """Return both sides as labels; segments are written in IOB2."""
    sides, segments = (y_true, y_pred), _which_segments(y_true, y_pred)
    if not any(segments) or (mode == "strict" and not any(map(holds_segments, sides))):
        return sides
    if mode == "strict":
        raise ValueError(
            "mode='strict' is for labels, as segments (start, stop, type) are never broken; use "
            "mode='conlleval'."
        )
    if len(y_true) != len(y_pred):
        raise ValueError(
            f"y_true has {counted(len(y_true), 'sequence')}, y_pred {len(y_pred)}; pass a "
            "prediction for every sequence."
        )
    # A side without any label is read as empty lists of segments.
    segments = [is_one or not any(map(len, y)) for is_one, y in zip(segments, sides)]
    names = "y_true", "y_pred"
    read = [
        [_triples(x, s, name) for s, x in enumerate(y)]
        if is_one
        else list_label_sequences(y, name)[0]
        for is_one, y, name in zip(segments, sides, names)
    ]
    lengths = _lengths(read, segments)
    true, predicted = (
        [_write(x, n, s, name) for s, (x, n) in enumerate(zip(y, lengths))] if is_one else y
        for is_one, y, name in zip(segments, read, names)
    )
    return true, predicted


def _lengths(sides: list, segments: list[bool]) -> list[int]:
    """Number of labels of each sequence; of segments on both sides, the last stop."""
    if not all(segments):
        return list(map(len, sides[segments.index(False)]))
    stops = ([max((stop for _, stop, _ in x), default=0) for x in y] for y in sides)
    return list(map(max, *stops))


def _triples(segments: Any, s: int, name: str) -> list[tuple[int, int, str]]:
    triples = (read_triple(one, s, k, name) for k, one in enumerate(segments))
    return [triple for triple in triples if triple[2] != "O"]


def _write(segments: list, n: int, s: int, name: str) -> NDArray:
    try:
        return segments_to_labels(segments, max(n, 0))
    except ValueError as error:
        raise ValueError(f"Sequence {s} of {name}: {error}") from None


def _count_spans(
    y_true: LabelSequences,
    y_pred: LabelSequences,
    mode: str,
    scheme: str | None,
    sample_weight: ArrayLike | None = None,
) -> _SpanCounts:
    check_mode(mode, scheme)
    flat_true, flat_pred, offsets = _align(*_of_segments(y_true, y_pred, mode))
    weight = None  # counts remain integers
    if sample_weight is not None:
        weight = np.repeat(check_sample_weight(sample_weight, len(offsets) - 1), np.diff(offsets))
    true = read_spans(flat_true, offsets, scheme, "y_true")
    pred = read_spans(flat_pred, offsets, scheme, "y_pred")
    types = sorted({*true.types, *pred.types})
    type_true, type_pred = (_recode(spans, types) for spans in (true, pred))
    unit: float = 1
    if weight is not None:
        unit = _unit(weight[np.concatenate([true.start, pred.start])])
        with np.errstate(over="ignore"):  # of weights without spans
            weight = weight / unit
    # At most one span begins at a row, so predicted spans are looked up by their first row.
    stop_at = np.zeros(len(flat_true), dtype=np.int64)
    type_at = np.zeros(len(flat_true), dtype=np.int64)
    stop_at[pred.start], type_at[pred.start] = pred.stop, type_pred
    right = (stop_at[true.start] == true.stop) & (type_at[true.start] == type_true)

    def count(type_: NDArray, start: NDArray) -> NDArray:
        of_spans = None if weight is None else weight[start]
        return np.bincount(type_, of_spans, minlength=len(types))

    n_right = count(type_true[right], true.start[right])
    n_pred, n_true = count(type_pred, pred.start), count(type_true, true.start)
    return _SpanCounts(types, n_right, n_pred, n_true, unit)


def _recode(spans: Spans, types: list[str]) -> NDArray[np.int64]:
    """Types of spans as indices into a larger list."""
    place = {type_: index for index, type_ in enumerate(types)}
    return np.array([place[type_] for type_ in spans.types], dtype=np.int64)[spans.type]


def _select(counts: _SpanCounts, labels: Sequence[str] | None) -> _SpanCounts:
    """Counts of the given types; zero for types that do not occur."""
    if labels is None:
        return counts
    position = {type_: index for index, type_ in enumerate(counts.types)}
    if not len(labels) or (position and not any(label in position for label in labels)):
        raise ValueError(
            f"labels must name at least one span type that occurs, of {sorted(position)}; got "
            f"{list(labels)!r} (types such as 'PER', not labels such as 'B-PER')."
        )
    chosen = [position.get(label, -1) for label in labels]  # -1: the appended zero
    right, predicted, true = (np.append(count, 0)[chosen] for count in counts[1:4])
    return _SpanCounts(list(labels), right, predicted, true, counts.unit)


def _scores(
    counts: _SpanCounts, average: str | None, zero_division: float, beta: float = 1.0
) -> SpanScores:
    _, right, predicted, true, unit = counts
    if average == "micro":
        right, predicted, true = (count.sum(keepdims=True) for count in counts[1:4])
    precision = _divide(right, predicted, zero_division)
    recall = _divide(right, true, zero_division)
    f1 = _divide((1 + beta**2) * right, predicted + beta**2 * true, zero_division)
    with np.errstate(over="ignore"):  # the support may be infinite
        support, total = true * unit, true.sum() * unit
    if average is None:
        return SpanScores(precision, recall, f1, support)
    weight = true if average == "weighted" else np.ones(len(true))
    p, r, f = (_average(score, weight, zero_division) for score in (precision, recall, f1))
    return SpanScores(p, r, f, total.item())


def _divide(above: NDArray, below: NDArray, zero_division: float) -> NDArray[np.float64]:
    quotient = np.full(len(above), float(zero_division))
    return np.divide(above, below, out=quotient, where=below > 0)


def _average(score: NDArray, weight: NDArray, zero_division: float) -> float:
    known = ~np.isnan(score)
    if not known.any():
        return float(zero_division)
    weights = weight[known] if weight[known].any() else None
    return float(np.average(score[known], weights=weights))


def span_precision(
    y_true: LabelSequences,
    y_pred: LabelSequences,
    *,
    mode: str = "conlleval",
    scheme: str | None = None,
    average: str | None = "micro",
    labels: Sequence[str] | None = None,
    zero_division: float = 0.0,
    sample_weight: ArrayLike | None = None,
) -> float | NDArray[np.float64]:
    """Fraction of predicted spans that are right.

    Parameters
    ----------
    y_true, y_pred, mode, scheme, average, labels
        See :func:`span_precision_recall_fscore_support`; ``average`` is "micro" by default.
    zero_division : {0.0, 1.0, nan}, default=0.0
        The score where no span is predicted.
    sample_weight : array-like of shape (n_sequences,), optional

    Returns
    -------
    precision : float, or ndarray of shape (n_types,) if `average` is None
        Number of predicted spans that are true, with the same ends and type, divided by the number
        of predicted spans.

    Examples
    --------
    >>> from sklseq.metrics import span_precision
    >>> span_precision([["B-x", "O", "O"]], [["B-x", "O", "B-x"]])
    0.5
    """
    scores = span_precision_recall_fscore_support(
        y_true, y_pred, mode=mode, scheme=scheme, average=average, labels=labels,
        zero_division=zero_division, sample_weight=sample_weight,
    )  # fmt: skip
    return scores.precision


def span_recall(
    y_true: LabelSequences,
    y_pred: LabelSequences,
    *,
    mode: str = "conlleval",
    scheme: str | None = None,
    average: str | None = "micro",
    labels: Sequence[str] | None = None,
    zero_division: float = 0.0,
    sample_weight: ArrayLike | None = None,
) -> float | NDArray[np.float64]:
    """Fraction of true spans that are predicted.

    Parameters
    ----------
    y_true, y_pred, mode, scheme, average, labels
        See :func:`span_precision_recall_fscore_support`; ``average`` is "micro" by default.
    zero_division : {0.0, 1.0, nan}, default=0.0
        The score where there is no true span.
    sample_weight : array-like of shape (n_sequences,), optional

    Returns
    -------
    recall : float, or ndarray of shape (n_types,) if `average` is None
        Number of true spans that are predicted with the same ends and type, divided by the number
        of true spans.

    Examples
    --------
    >>> from sklseq.metrics import span_recall
    >>> span_recall([["B-x", "O", "O"]], [["B-x", "O", "B-x"]])
    1.0
    """
    scores = span_precision_recall_fscore_support(
        y_true, y_pred, mode=mode, scheme=scheme, average=average, labels=labels,
        zero_division=zero_division, sample_weight=sample_weight,
    )  # fmt: skip
    return scores.recall


def span_f1(
    y_true: LabelSequences,
    y_pred: LabelSequences,
    *,
    mode: str = "conlleval",
    scheme: str | None = None,
    average: str | None = "micro",
    labels: Sequence[str] | None = None,
    zero_division: float = 0.0,
    sample_weight: ArrayLike | None = None,
) -> float | NDArray[np.float64]:
    """Harmonic mean of span precision and recall: the F1 of conlleval.

    Parameters
    ----------
    y_true, y_pred, mode, scheme, average, labels
        See :func:`span_precision_recall_fscore_support`; ``average`` is "micro" by default.
    zero_division : {0.0, 1.0, nan}, default=0.0
        The score where there is neither a true nor a predicted span.
    sample_weight : array-like of shape (n_sequences,), optional

    Returns
    -------
    f1 : float, or ndarray of shape (n_types,) if `average` is None
        2 · correct / (predicted + true), numbers of spans; correct ones have true ends and type.

    Examples
    --------
    >>> from sklseq.metrics import span_f1
    >>> span_f1([["B-x", "O", "B-y"]], [["B-x", "O", "O"]], average="macro")
    0.5
    """
    scores = span_precision_recall_fscore_support(
        y_true, y_pred, mode=mode, scheme=scheme, average=average, labels=labels,
        zero_division=zero_division, sample_weight=sample_weight,
    )  # fmt: skip
    return scores.f1


def span_fbeta(
    y_true: LabelSequences,
    y_pred: LabelSequences,
    *,
    beta: float,
    mode: str = "conlleval",
    scheme: str | None = None,
    average: str | None = "micro",
    labels: Sequence[str] | None = None,
    zero_division: float = 0.0,
    sample_weight: ArrayLike | None = None,
) -> float | NDArray[np.float64]:
    """Harmonic mean of span precision and recall, where recall weighs `beta` squared times as much.

    Parameters
    ----------
    y_true, y_pred
        See :func:`span_precision_recall_fscore_support`.
    beta : float
        From 0 to 1e100. With 0 the score is the precision, with 1 it is :func:`span_f1`; above 1, a
        true span that is missed costs more than a predicted span that is wrong.
    mode, scheme, average, labels
        See :func:`span_precision_recall_fscore_support`; ``average`` is "micro" by default.
    zero_division : {0.0, 1.0, nan}, default=0.0
        The score where there is neither a true nor a predicted span.
    sample_weight : array-like of shape (n_sequences,), optional

    Returns
    -------
    fbeta : float, or ndarray of shape (n_types,) if `average` is None
        (1 + beta²) · correct / (predicted + beta² · true), numbers of spans as in :func:`span_f1`;
        the formula of scikit-learn's ``fbeta_score``.

    Examples
    --------
    >>> from sklseq.metrics import span_fbeta
    >>> y_true, y_pred = [["B-x", "O", "O"]], [["B-x", "O", "B-x"]]
    >>> print(f"{span_fbeta(y_true, y_pred, beta=2):.2f}")  # precision 0.5, recall 1
    0.83
    """
    if not (is_number(beta) and 0 <= beta <= 1e100):
        raise ValueError(f"beta must be a real number from 0 to 1e100; got {beta!r:.40}.")
    _check_options(average, labels, zero_division)
    counts = _count_spans(y_true, y_pred, mode, scheme, sample_weight)
    return _scores(_select(counts, labels), average, zero_division, float(beta)).f1


def span_report(
    y_true: LabelSequences,
    y_pred: LabelSequences,
    *,
    mode: str = "conlleval",
    scheme: str | None = None,
    digits: int = 2,
    output_dict: bool = False,
    sample_weight: ArrayLike | None = None,
) -> str | dict[str, dict[str, float]]:
    """Table of span scores: each type, their averages, and the token accuracy.

    Parameters
    ----------
    y_true, y_pred, mode, scheme
        See :func:`span_precision_recall_fscore_support`.
    digits : int, default=2
        Decimals of the scores in the text.
    output_dict : bool, default=False
        Return the numbers instead of the text.
    sample_weight : array-like of shape (n_sequences,), optional
        Weight of all spans and rows of each sequence; ``"support"`` is then a sum of weights.

    Returns
    -------
    report : str or dict of dict
        As a dictionary, ``report[row][column]`` with the types, ``"micro avg"``, ``"macro avg"``
        and ``"weighted avg"`` as rows, and ``"precision"``, ``"recall"``, ``"f1-score"`` and
        ``"support"`` as columns; ``report["token accuracy"]`` has ``"accuracy"`` and
        ``"support"``, the number of rows, unless segments are given. Scores that divide by zero
        are 0, the accuracy of no rows among them.

    Examples
    --------
    >>> from sklseq.metrics import span_report
    >>> y_true = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    >>> y_pred = [["B-PER", "I-PER", "O", "B-PER"], ["B-LOC", "O"]]
    >>> print(span_report(y_true, y_pred))
                    precision    recall  f1-score   support
    <BLANKLINE>
               LOC       1.00      0.50      0.67         2
               PER       0.50      1.00      0.67         1
    <BLANKLINE>
         micro avg       0.67      0.67      0.67         3
         macro avg       0.75      0.75      0.67         3
      weighted avg       0.83      0.67      0.67         3
    token accuracy                           0.83         6
    """
    check_number("digits", digits, whole=True)
    counts = _count_spans(y_true, y_pred, mode, scheme, sample_weight)
    per_type = zip(*map(np.asarray, _scores(counts, None, 0.0)))
    rows = {type_: SpanScores(*scores) for type_, scores in zip(counts.types, per_type)}
    names = ("micro", "macro", "weighted")
    averages = {f"{name} avg": _scores(counts, name, 0.0) for name in names}
    accuracy = None
    if not any(_which_segments(y_true, y_pred)):
        lengths = [len(labels) for labels in y_true]
        with np.errstate(over="ignore"):
            weights = np.ones(len(lengths), int) if sample_weight is None else sample_weight
            n_rows = np.dot(weights, lengths).item()
        right = token_accuracy(y_true, y_pred, sample_weight=sample_weight) if n_rows else 0.0
        accuracy = right, n_rows
    if output_dict:
        return _report_dict({**rows, **averages}, accuracy)
    return _report_text(rows, averages, accuracy, digits)


_COLUMNS = ("precision", "recall", "f1-score", "support")


def _report_dict(
    rows: dict[str, SpanScores], accuracy: tuple[float, float] | None
) -> dict[str, dict[str, float]]:
    report = {
        name: dict(zip(_COLUMNS, (*map(float, scores[:3]), np.asarray(scores.support).item())))
        for name, scores in rows.items()
    }
    if accuracy is not None:
        report["token accuracy"] = dict(zip(("accuracy", "support"), accuracy))
    return report


def _report_text(
    rows: dict[str, SpanScores],
    averages: dict[str, SpanScores],
    accuracy: tuple[float, float] | None,
    digits: int,
) -> str:
    width = max(map(len, [*rows, "token accuracy"]))

    def line(name: str, scores: SpanScores) -> str:
        numbers = "".join(f" {score:>9.{digits}f}" for score in scores[:3])
        return f"{name:>{width}} {numbers} {support(scores.support)}"

    def support(number: Any) -> str:  # a sum of weights, or a count
        return f"{number:>9.{digits}f}" if isinstance(number, float) else f"{number:>9}"

    header = " " * (width + 1) + "".join(f" {column:>9}" for column in _COLUMNS)
    lines = [
        header,
        "",
        *map(line, rows, rows.values()),
        "",
        *map(line, averages, averages.values()),
    ]
    if accuracy is not None:
        value = f"{accuracy[0]:>9.{digits}f}"
        lines.append(f"{'token accuracy':>{width}} {'':20} {value} {support(accuracy[1])}")
    return "\n".join(lines)


# ----------------------------------------------------------------------------------- scorers

token_accuracy_scorer = make_scorer(token_accuracy)
sequence_accuracy_scorer = make_scorer(sequence_accuracy)
span_precision_scorer = make_scorer(span_precision)
span_recall_scorer = make_scorer(span_recall)
span_f1_scorer = make_scorer(span_f1)

SCORERS: dict[str, Callable[..., float]] = {
    "token_accuracy": token_accuracy_scorer,
    "sequence_accuracy": sequence_accuracy_scorer,
    "span_precision": span_precision_scorer,
    "span_recall": span_recall_scorer,
    "span_f1": span_f1_scorer,
}


def get_scorer(scoring: str | Callable[..., float]) -> Callable[..., float]:
    """Scorer by name: one of `SCORERS`, otherwise one of scikit-learn's.

    Parameters
    ----------
    scoring : str or callable
        ``"token_accuracy"``, ``"sequence_accuracy"``, ``"span_precision"``, ``"span_recall"``,
        ``"span_f1"``, or an argument of :func:`sklearn.metrics.get_scorer`.

    Returns
    -------
    scorer : callable
        A copy, called as ``scorer(estimator, X, y)``.

    Raises
    ------
    ValueError
        If no scorer has this name.

    Examples
    --------
    >>> from sklseq.metrics import get_scorer
    >>> get_scorer("span_f1")
    make_scorer(span_f1, response_method='predict')

    For other parameters, make a scorer:

    >>> from sklearn.metrics import make_scorer
    >>> from sklseq.metrics import span_f1
    >>> macro = make_scorer(span_f1, average="macro", mode="strict", scheme="iob2")
    """
    if isinstance(scoring, str) and scoring in SCORERS:
        return copy.deepcopy(SCORERS[scoring])
    return sklearn.metrics.get_scorer(scoring)

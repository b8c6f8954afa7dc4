"""Rules that read label sequences as spans, as tables over pairs of labels of a model."""

from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklseq.data.labels import cut_rows
from sklseq.data.segment_labels import Span
from sklseq.data.span_labels import CLOSING, OPENING, label_parts, types_of
from sklseq.data.strict_spans import STRICT_SCHEMES, strict_tables, whole_spans


class SpanRules(NamedTuple):
    """Tables over the labels of rows t - 1 and t; n_labels stands for the rows beyond the ends.

    Rows where ``goes_on`` holds continue the run of the row before. A span begins at the first row
    of its run where ``begins`` holds and extends to the end of the run; it counts if ``ended``
    holds at the next row.

    Attributes
    ----------
    types : list
        Types of spans.
    type_of : ndarray of int, shape (n_labels + 1,)
        Index of the type of each label, -1 outside.
    goes_on, begins, ended : ndarray of bool, shape (n_labels + 1, n_labels + 1)
    step : int
        -1 if labels are read from the last row to the first: t - 1 is then the row after t.
    """

    types: list[Any]
    type_of: NDArray[np.int64]
    goes_on: NDArray[np.bool_]
    begins: NDArray[np.bool_]
    ended: NDArray[np.bool_]
    step: int


def check_scheme(scheme: Any) -> None:
    """Raise a ValueError unless :func:`span_rules` knows the scheme."""
    known = [*STRICT_SCHEMES, "runs"]
    if scheme is not None and (not isinstance(scheme, str) or scheme not in known):
        raise ValueError(
            f"scheme must be None or one of {', '.join(map(repr, known))}; got {scheme!r:.60}."
        )


def span_rules(classes: NDArray, scheme: str | None = None) -> SpanRules:
    """The rules of a scheme for the labels of a model.

    ``scheme``: a key of `STRICT_SCHEMES`: only valid spans of it count, as with ``mode="strict"``
    of the metrics; "runs": each run of rows with the same label is a span, unless the label is "O";
    None: the rules of conlleval if all labels have the form of span labels, otherwise "runs". A
    ValueError is raised if the scheme is unknown, or a label does not belong to it.
    """
    check_scheme(scheme)
    parts = [None] if scheme == "runs" else label_parts(classes, scheme)
    if scheme in (None, "runs") and None in parts:
        return _rules_of_runs(classes)
    if None in parts:
        raise ValueError(
            f"The model has the label {classes[parts.index(None)].item()!r}, which is none of "
            f"scheme={scheme!r}; choose the scheme of its labels, or 'runs'."
        )
    named = [part for part in parts if part is not None]
    letters, (type_of, types) = [letter for letter, _ in named], types_of(named)
    return _rules_of_letters([*letters, ""], types, np.append(type_of, -1), scheme)


def _rules_of_runs(classes: NDArray) -> SpanRules:
    labels = classes.tolist()
    type_of = np.append([-1 if label == "O" else j for j, label in enumerate(labels)], -1)
    same, inside = np.eye(len(type_of), dtype=bool), type_of >= 0
    return SpanRules(labels, type_of, same & inside, ~same & inside, ~same & inside[:, None], 1)


def _rules_of_letters(
    letters: list[str], types: list[str], type_of: NDArray, scheme: str | None
) -> SpanRules:
    same = type_of[:, None] == type_of
    if scheme is not None:
        prefix_of, tables, step = strict_tables(scheme, letters)
        rules = [table[prefix_of[:, None], prefix_of, same.astype(int)] for table in tables]
        return SpanRules(types, type_of, *rules, step)
    # The rules of `find_spans`: every row that is not outside belongs to a span.
    opens, closes = np.isin(letters, list(OPENING)), np.isin(letters, list(CLOSING))
    inside = type_of >= 0
    cut = closes[:, None] | opens | ~same
    return SpanRules(types, type_of, ~cut & inside, cut & inside, cut & inside[:, None], 1)


def find_by_rules(
    codes: NDArray, offsets: NDArray[np.integer], rules: SpanRules
) -> tuple[NDArray, NDArray, NDArray]:
    """Return first row, row after the last, and type of the spans of label paths, in order.

    ``codes``: labels of all sequences, whose rows are those of ``offsets``.
    """
    row = np.insert(np.arange(len(codes)), offsets, -1)[:: rules.step]
    label = np.append(codes, len(rules.type_of) - 1)[row]
    pairs = label[:-1], label[1:]
    found = [table[pairs] for table in (rules.goes_on, rules.begins, rules.ended)]
    start, stop = whole_spans(row, found, rules.step)
    return start, stop, rules.type_of[codes[start]]


def named_spans(
    rules: SpanRules, spans: tuple, offsets: NDArray[np.integer], proba: NDArray | None = None
) -> list[list[Span]]:
    """Spans of each sequence, from the result of `find_by_rules` and their probabilities."""
    start, stop, type_ = spans
    of = np.searchsorted(offsets, start, side="right") - 1
    probabilities = [None] * len(start) if proba is None else proba.tolist()
    first, labels = offsets[of], map(rules.types.__getitem__, type_.tolist())
    columns = (start - first).tolist(), (stop - first).tolist(), labels, probabilities
    rows = list(map(tuple.__new__, repeat(Span), zip(*columns)))  # four times as fast as Span()
    return list(cut_rows(rows, np.searchsorted(of, np.arange(len(offsets)))))

"""Spans that follow their labelling scheme strictly; broken spans are ignored.

Three sets of rules read six schemes. BILOU is IOBES with other letters. IOE2 is IOB2, and IOE1 is
IOB1, read from the last row to the first: E marks an end as B marks a beginning.
"""

import numpy as np
from numpy.typing import NDArray

from sklseq.data.span_labels import Spans, find_spans, parse_labels

# Pairs of prefixes of rows t - 1 and t (O: outside); "=": same type, "!": different types.
_IOB1 = {
    "goes on": "BI= II=",
    "begins": "OI BI II! IB= BB=",
    "ended": "IO BO IB II! BI! BB=",
}
_IOB2 = {
    "goes on": "BI= II=",
    "begins": "OB IB BB",
    "ended": "IO BO IB BB II! BI!",
}
_IOBES = {
    "goes on": "BI= BE= II= IE=",
    "begins": "OB IB BB EB SB OS IS BS ES SS",
    "ended": "EO EB EI EE ES SO SB SI SE SS",
}
# Rules of each scheme, its letters in the order of ``_LETTERS``, and the direction of reading.
STRICT_SCHEMES = {
    "iob1": (_IOB1, "BI", 1),
    "iob2": (_IOB2, "BI", 1),
    "ioe1": (_IOB1, "EI", -1),
    "ioe2": (_IOB2, "EI", -1),
    "iobes": (_IOBES, "BIES", 1),
    "bilou": (_IOBES, "BILU", 1),
}
_LETTERS = "BIES"


def check_mode(mode: str, scheme: str | None) -> None:
    """Raise a ValueError unless ``scheme`` is given for strict reading, and only for that."""
    if mode not in ("conlleval", "strict"):
        raise ValueError(f"mode must be 'conlleval' or 'strict'; got {mode!r}.")
    if mode == "conlleval" and scheme is not None:
        raise ValueError(
            f"scheme={scheme!r} needs mode='strict', which reads valid spans of the scheme only; "
            "pass that mode, or scheme=None to read all labels as conlleval does."
        )
    if mode == "strict" and (not isinstance(scheme, str) or scheme not in STRICT_SCHEMES):
        known = ", ".join(map(repr, STRICT_SCHEMES))
        raise ValueError(f"With mode='strict', scheme must be one of {known}; got {scheme!r}.")


def read_spans(
    flat: NDArray,
    offsets: NDArray[np.integer],
    scheme: str | None,
    name: str,
    outside: str = "O",
) -> Spans:
    """Spans of the labels ``name``: valid ones of ``scheme``, or by the rules of conlleval."""
    try:
        if scheme is None:
            return find_spans(flat, offsets, None, outside)
        return find_strict_spans(flat, offsets, scheme, outside)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def find_strict_spans(
    flat: NDArray, offsets: NDArray[np.integer], scheme: str, outside: str = "O"
) -> Spans:
    """Find the spans that a scheme defines: a key of `STRICT_SCHEMES`.

    ``types`` holds only the types of these spans. A ValueError names the first label that does not
    belong to the scheme, with its row.

    Rows are cut into runs between labels of which the second may not continue a span of the first.
    In each run, a span extends from the first row that may begin a span to the last row, provided
    that the labels of the last row and of the next one end it. Cost O(n_rows) after the labels are
    sorted once.

    Examples
    --------
    >>> labels = np.array(["I-x", "B-x", "I-x", "I-y", "O"])
    >>> spans = find_strict_spans(labels, np.array([0, 5]), "iob2")
    >>> spans.start.tolist(), spans.stop.tolist(), spans.type.tolist(), spans.types
    ([1], [3], [0], ['x'])
    """
    prefixes, type_of, types, codes = parse_labels(flat, offsets, scheme, outside)
    prefix_of, tables, step = strict_tables(scheme, prefixes)

    # An outside row before and after each sequence has the effect of its boundaries.
    row = np.insert(np.arange(len(flat)), offsets, -1)
    filled = row >= 0
    prefix, type_ = np.full(len(row), -1), np.full(len(row), -1)
    prefix[filled], type_[filled] = prefix_of[codes], type_of[codes]
    row, prefix, type_ = row[::step], prefix[::step], type_[::step]
    pairs = prefix[:-1], prefix[1:], (type_[1:] == type_[:-1]).astype(int)
    first, stop = whole_spans(row, [table[pairs] for table in tables], step)
    used, of_span = np.unique(type_of[codes[first]], return_inverse=True)
    return Spans(first, stop, of_span, [types[index] for index in used])


def strict_tables(
    scheme: str, prefixes: list[str]
) -> tuple[NDArray[np.int64], list[NDArray[np.bool_]], int]:
    """Rules of a strict scheme for labels with these prefixes, "" outside.

    Returns
    -------
    prefix_of : ndarray of int, shape (n_labels,)
        Index of each prefix in the tables; -1 outside.
    tables : list of ndarray of bool, shape (5, 5, 2)
        "goes on", "begins" and "ended": whether each holds for the prefixes of rows t - 1 and t,
        and for different types (0) or the same type (1).
    step : int
        -1 if labels are read from the last row to the first.
    """
    rules, letters, step = STRICT_SCHEMES[scheme]
    prefix_of = np.array([letters.find(letter) if letter else -1 for letter in prefixes], dtype=int)
    return prefix_of, [_table(rules[name]) for name in ("goes on", "begins", "ended")], step


def whole_spans(row: NDArray, rules: list[NDArray[np.bool_]], step: int) -> tuple[NDArray, NDArray]:
    """Return the first row of each complete span, and the row after its last one.

    ``row``: row numbers in the order of reading, backwards if ``step`` is -1, with -1 before and
    after each sequence. ``rules``: whether each row after the first continues the span of the row
    before, begins a span, and ends the span before.
    """
    goes_on, begins, ended = (np.append(False, holds) for holds in rules)
    heads = np.flatnonzero(~goes_on)  # first rows of runs; a span may end before each of them
    run = np.cumsum(~goes_on) - 1
    candidates = np.flatnonzero(begins)
    first = candidates[np.diff(run[candidates], prepend=-1) > 0]  # of each run
    after = heads[run[first] + 1]  # the outside row at the end is a run without a span
    whole = ended[after]
    first, last = row[first[whole]], row[after[whole] - 1]
    if step < 0:
        first, last = last[::-1], first[::-1]
    return first, last + 1


def _table(pairs: str) -> NDArray[np.bool_]:
    """Table of the pairs of prefixes listed, for different types and for the same type."""
    table = np.zeros((5, 5, 2), dtype=bool)  # prefix -1, outside, is the last
    for before, after, *types in pairs.split():
        same = {"=": 1, "!": 0}[types[0]] if types else slice(None)
        table[_LETTERS.find(before), _LETTERS.find(after), same] = True
    return table

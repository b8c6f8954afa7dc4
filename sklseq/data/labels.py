"""Labels: flat arrays for many sequences, conversion to and from spans, allowed transitions.

Conventions of all modules that handle labels:

* ``flat`` holds the labels of all sequences one after the other; rows of sequence s are
  ``offsets[s]:offsets[s + 1]``.
* A segment is half-open, ``(start, stop, type)``.
* A span label is a prefix letter, a hyphen and a type (``"B-PER"``), or the letter alone, whose
  type is then empty (``"B"``). A scheme is four letters: see `SCHEMES`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, Sized
from itertools import chain, pairwise, repeat
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklseq._lib.signatures import takes

__all__ = [
    "CLOSING",
    "LETTERS",
    "OPENING",
    "SCHEMES",
    "Constraints",
    "LabelLists",
    "PartialLabelError",
    "Spans",
    "allowed_transitions",
    "array_of_labels",
    "as_label_sequences",
    "check_constraints",
    "check_seen",
    "cut_rows",
    "encode_labels",
    "find_codes",
    "find_spans",
    "is_missing",
    "is_partial",
    "label_parts",
    "labels_to_segments",
    "list_label_sequences",
    "parse_labels",
    "read_classes",
    "resolve_constraints",
    "resolve_loss",
    "segments_to_labels",
    "split_label_lists",
    "split_labels",
    "unique_labels",
]

# The letters of the first, inner and last row of a longer span, and of a span of one row.
SCHEMES = {"iob2": "BIIB", "iobes": "BIES", "bilou": "BILU"}

# The letters that labels may begin with. IOB1, IOE1 and IOE2 are read, not written.
LETTERS = {name: "".join(dict.fromkeys(letters)) for name, letters in SCHEMES.items()}
LETTERS |= {None: "BIESLU", "iob1": "BI", "ioe1": "IE", "ioe2": "IE"}

# conlleval reads all schemes alike: these letters always begin, or end, a span.
OPENING = "BSU"
CLOSING = "ESLU"

_ARRAY_KINDS = {"U": "string", "b": "boolean", "i": "integer", "u": "integer"}
MOST = np.iinfo(np.int64).max
_DTYPES = {"string": np.str_, "boolean": np.bool_, "integer": np.int64}


class Spans(NamedTuple):
    """Spans of a corpus, in order of their first row."""

    start: NDArray[np.int64]  # (n_spans,) first row, counted over the whole corpus
    stop: NDArray[np.int64]  # (n_spans,) row after the last
    type: NDArray[np.int64]  # (n_spans,) index into types
    types: list[str]  # sorted; those of all labels that occur


class Constraints(NamedTuple):
    """Allowed transitions, first labels and last labels."""

    transition: NDArray[np.bool_]  # (L, L) label i may be followed by label j
    start: NDArray[np.bool_]  # (L,) may be the first label
    end: NDArray[np.bool_]  # (L,) may be the last label


PARTIAL = (
    "None, NaN and sets are for CRFTagger.fit on sequences in memory, with gradient='auto' or "
    "'forward-backward', and for score: use these, or leave such sequences out"
)


class PartialLabelError(ValueError):
    """Raised where labels have to be known: one is missing, or a set of labels is in its place."""


# ---------------------------------------------------------------- label sequences ↔ flat arrays


def as_label_sequences(
    y: Iterable[Any], name: str = "y", first: tuple[int, int] = (0, 0)
) -> tuple[NDArray, NDArray[np.int64]]:
    """Concatenate label sequences.

    Parameters
    ----------
    y : list, object array or 2-D array of label sequences
        Each sequence is a list, tuple or 1-D array of labels; some may be empty. All labels are
        strings, all are integers, or all are booleans. The rows of a 2-D array are sequences of
        equal length, never a multilabel target.
    name : str, default="y"
        Name of `y` in error messages.
    first : tuple of int, default=(0, 0)
        Numbers of the first sequence, and of the first row of it, in error messages.

    Returns
    -------
    flat : ndarray of shape (n_rows,)
        All labels, of dtype str, int64 or bool.
    offsets : ndarray of int64, shape (n_sequences + 1,)
        Labels of sequence s are ``flat[offsets[s]:offsets[s + 1]]``.

    Raises
    ------
    TypeError
        If `y` or one of its items is not a sequence.
    ValueError
        If labels are of other or mixed kinds, an integer is outside -2**63 ... 2**63 - 1, or a
        string ends in NUL.

    Examples
    --------
    >>> from sklseq.data.labels import as_label_sequences
    >>> flat, offsets = as_label_sequences([["B", "I"], [], ["O"]])
    >>> flat.tolist(), offsets.tolist()
    (['B', 'I', 'O'], [0, 2, 2, 3])
    """
    sequences, offsets = list_label_sequences(y, name, first[0])
    # Empty sequences have no kind of labels: np.array([]) is float64.
    filled = [sequence for sequence in sequences if len(sequence)]
    kinds = set(map(_array_kind, filled))
    arrays = len(kinds) == 1 and None not in kinds
    if arrays and not any(s.dtype.kind == "u" and s.max() > MOST for s in filled):
        # One at a time: NumPy joins uint64 and int64 to float64, which keeps 53 bits.
        dtype = _DTYPES[kinds.pop()]
        parts = filled if dtype is np.str_ else (s.astype(dtype, copy=False) for s in filled)
        return np.concatenate(list(parts)), offsets
    rows = (s.tolist() if isinstance(s, np.ndarray) else s for s in filled)
    return array_of_labels(list(chain.from_iterable(rows)), offsets, name, first), offsets


def list_label_sequences(
    y: Iterable[Any], name: str, first: int = 0
) -> tuple[list[Any], NDArray[np.int64]]:
    """The items of y, each of which must be a sequence and not a bare label, and their offsets."""
    if isinstance(y, str | bytes | Mapping | Set) or not isinstance(y, Iterable):
        raise TypeError(f"{name} must be a list of label sequences; got {type(y).__name__}.")
    sequences = list(y)
    for number, sequence in enumerate(sequences, first):
        if isinstance(sequence, (list, tuple)):
            continue
        if isinstance(sequence, np.ndarray) and sequence.ndim != 1:
            raise TypeError(
                f"Sequence {number} of {name} must be a 1-D array of labels; "
                f"it has {sequence.ndim} dimensions."
            )
        bare = isinstance(sequence, str | bytes | Mapping | Set)
        if bare or not (isinstance(sequence, Sized) and isinstance(sequence, Iterable)):
            raise TypeError(
                f"Sequence {number} of {name} must be a list or 1-D array of labels; got "
                f"{sequence!r} ({type(sequence).__name__}). To pass one sequence, "
                f"wrap it in a list."
            )
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    return sequences, np.concatenate(([0], np.cumsum(lengths)))


def _array_kind(sequence: Any) -> str | None:
    """Kind of the labels of an array; None if each item has to be examined."""
    return _ARRAY_KINDS.get(sequence.dtype.kind) if isinstance(sequence, np.ndarray) else None


def _type_kind(cls: type) -> str | None:
    """Kind of labels of a Python or NumPy scalar type; None if it is no label."""
    if issubclass(cls, str):
        return "string"
    if issubclass(cls, bool | np.bool_):
        return "boolean"
    return "integer" if issubclass(cls, int | np.integer) else None


def is_missing(value: Any) -> bool:
    """Whether it is None, NaN or pandas.NA, which is known by its class: pandas may be missing."""
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    return value is None or type(value).__name__ == "NAType"


def is_partial(label: Any) -> bool:
    """Whether an item of y says less than one label: it is missing, or a set of labels."""
    return isinstance(label, (set, frozenset)) or is_missing(label)


def array_of_labels(
    labels: list[Any], offsets: NDArray[np.int64], name: str, first: tuple[int, int] = (0, 0),
    rows: NDArray[np.integer] | None = None,
) -> NDArray:  # fmt: skip
    """One array of labels that are checked one by one; ``rows``: of each, if not its number."""
    kinds = {_type_kind(cls) for cls in set(map(type, labels))}
    # np.array would convert [1, "a"] and [nan, "a"] to strings without an error.
    if len(kinds) > 1 or None in kinds:
        each = [_type_kind(type(label)) for label in labels]
        row = each.index(None) if None in each else [kind != each[0] for kind in each].index(True)
        problem = (
            f"is of type {type(labels[row]).__name__}; labels must be strings, integers or "
            "booleans: replace it."
            if each[row] is None
            else f"is of kind {each[row]} and the labels before it are of kind {each[0]}; all "
            "labels must be of one kind: convert them."
        )
    elif kinds == {"integer"} and not _fits(min(map(int, labels)), max(map(int, labels))):
        row = next(row for row, label in enumerate(labels) if not _fits(int(label), int(label)))
        problem = (
            "is not a 64-bit integer; integer labels must lie in -2**63 ... 2**63 - 1: renumber "
            "them, or convert all to strings."
        )
    elif kinds == {"string"} and (row := _first_cut(labels)) is not None:
        problem = "ends in a NUL character, which arrays of strings drop: rename it."
    else:
        return np.array(labels, dtype=_DTYPES[kinds.pop()] if kinds else np.str_)
    where = locate(offsets, row if rows is None else int(rows[row]), first)
    message = f"Label {_plain(labels[row])!r} of {name}, at {where}, {problem}"
    if any(map(is_partial, labels)):
        raise PartialLabelError(f"{message[:-1]} ({PARTIAL}).")
    raise ValueError(message)


def _first_cut(labels: list[str]) -> int | None:
    """Row of the first string that ends in NUL, which NumPy drops; None if there is none."""
    if "\0" not in "".join(labels):
        return None
    return next((row for row, label in enumerate(labels) if label.endswith("\0")), None)


def _fits(least: int, most: int) -> bool:
    return least >= -MOST - 1 and most <= MOST


def _plain(label: Any) -> Any:
    return int(label) if isinstance(label, np.integer) else label


def locate(offsets: NDArray[np.integer], row: int, first: tuple[int, int] = (0, 0)) -> str:
    """Position of a row of the corpus, as ``"row 2 of sequence 5"``.

    ``first``: number of the first sequence, and of its first row.
    """
    sequence = int(np.searchsorted(offsets, row, side="right")) - 1
    row += (0 if sequence else first[1]) - int(offsets[sequence])
    return f"row {row} of sequence {sequence + first[0]}"


def split_labels(flat: NDArray, offsets: NDArray[np.integer]) -> NDArray[np.object_]:
    """Cut a flat array into one view per sequence: the reverse of `as_label_sequences`.

    The answer is an object array with one dimension even if all sequences have equal length.
    """
    # np.array(list_of_arrays, dtype=object) would be 2-D for sequences of equal length.
    return np.fromiter(cut_rows(flat, offsets), dtype=object, count=len(offsets) - 1)


class LabelLists(list):
    """A list of label lists, which NumPy reads as an object array of these lists.

    ``np.concatenate``, which joins the folds of ``cross_val_predict``, refuses or flattens nested
    lists.
    """

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.object_]:
        return np.fromiter(self, dtype=object, count=len(self))


def split_label_lists(flat: NDArray[np.object_], offsets: NDArray[np.integer]) -> list[list]:
    """The labels of each sequence as a list, from their rows in an array of Python's objects."""
    first = int(offsets[0])
    labels, cuts = flat[first : offsets[-1]].tolist(), (offsets - first).tolist()
    return list(map(labels.__getitem__, map(slice, cuts[:-1], cuts[1:])))


def cut_rows(flat: NDArray, offsets: NDArray[np.integer]) -> Iterator[NDArray]:
    """Views of the rows of each sequence."""
    cuts = offsets.tolist()
    return map(flat.__getitem__, map(slice, cuts[:-1], cuts[1:]))


def unique_labels(flat: NDArray) -> NDArray:
    """Sorted distinct labels, the `classes_` of an estimator."""
    return np.unique(flat)


def read_classes(classes: Any) -> NDArray:
    """Sorted distinct labels of the argument ``classes`` of a public method, checked."""
    return unique_labels(as_label_sequences([classes], "classes")[0])


def encode_labels(
    flat: NDArray, classes: ArrayLike, offsets: NDArray[np.integer] | None = None,
    rows: NDArray[np.integer] | None = None,
) -> NDArray[np.int32]:  # fmt: skip
    """Index of each label in `classes`, which may have any order.

    Raises a ValueError that names the first unknown label and its position by `offsets`; by
    default, all rows are one sequence. ``rows``: of each label, if not its number.
    """
    codes = find_codes(flat, classes)
    if codes.size and codes.min() < 0:
        k = int(np.argmin(codes))
        row = k if rows is None else int(rows[k])
        where = locate(np.array([0, len(flat)]) if offsets is None else offsets, row)
        known = np.asarray(classes).tolist()
        shown = ", ".join(map(repr, known[:8])) + (", ..." if len(known) > 8 else "")
        raise ValueError(
            f"Unknown label {flat[k].item()!r} at {where}; the known labels are {shown}: "
            f"correct it, or fit on data that has it."
        )
    return codes


def find_codes(flat: NDArray, classes: ArrayLike) -> NDArray[np.int32]:
    """Index of each label in `classes`, -1 for unknown labels.

    Raises a ValueError if only one of `flat` and `classes` holds strings: no label could agree.
    """
    known = np.asarray(classes)
    if len(flat) and len(known) and (flat.dtype.kind == "U") != (known.dtype.kind == "U"):
        raise ValueError(
            f"Labels such as {flat[0].item()!r} are given where others are such as "
            f"{known[0].item()!r}; both must be strings, or neither: convert one."
        )
    table = {label: code for code, label in enumerate(known.tolist())}
    return np.fromiter(map(table.get, flat.tolist(), repeat(-1)), np.int32, count=len(flat))


# ------------------------------------------------------------------------- labels ↔ segments


def find_spans(
    flat: NDArray,
    offsets: NDArray[np.integer],
    scheme: str | None = None,
    outside: str = "O",
) -> Spans:
    """Find the spans that labels describe; read broken spans as conlleval does.

    Parameters
    ----------
    flat : ndarray of str, shape (n_rows,)
        Labels of all sequences.
    offsets : ndarray of int, shape (n_sequences + 1,)
        Boundaries of the sequences; no span crosses one.
    scheme : {"iob2", "iobes", "bilou"} or None, default=None
        The labels that may occur, by default the prefixes of all schemes. The rules are the same.
    outside : str, default="O"
        The label of rows that belong to no span.

    Returns
    -------
    spans : Spans

    Raises
    ------
    ValueError
        If a label does not belong to `scheme`; it is named with its row.

    Notes
    -----
    Each row belongs to a span unless it is outside. Row t begins a span if, and only if, it is
    the first of its sequence, or it has the prefix B, S or U, or row t − 1 has the prefix E, S, L
    or U, is outside, or has another type. These are the rules ``startOfChunk`` and ``endOfChunk``
    of conlleval [1]_ combined. Cost O(n_rows) after the labels are sorted once.

    References
    ----------
    .. [1] E. Tjong Kim Sang and S. Buchholz, "Introduction to the CoNLL-2000 shared task:
       chunking", CoNLL 2000.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.data.labels import find_spans
    >>> spans = find_spans(np.array(["I-x", "I-x", "I-y", "O"]), np.array([0, 1, 4]))
    >>> spans.start.tolist(), spans.stop.tolist(), spans.type.tolist(), spans.types
    ([0, 1, 2], [1, 2, 3], [0, 0, 1], ['x', 'y'])
    """
    if scheme is not None:
        _scheme_letters(scheme)
    letters, type_of, types, codes = parse_labels(flat, offsets, scheme, outside)
    opens, closes = np.isin(letters, list(OPENING)), np.isin(letters, list(CLOSING))
    row_type = type_of[codes]
    cut = np.ones(len(flat) + 1, dtype=bool)  # no span goes on from row t - 1 to row t
    cut[1:-1] = closes[codes[:-1]] | opens[codes[1:]] | (row_type[1:] != row_type[:-1])
    cut[offsets] = True
    start = np.flatnonzero(cut[:-1] & (row_type >= 0))
    stop = np.flatnonzero(cut[1:] & (row_type >= 0)) + 1
    return Spans(start, stop, row_type[start], types)


def parse_labels(
    flat: NDArray, offsets: NDArray[np.integer], scheme: str | None, outside: str = "O"
) -> tuple[list[str], NDArray[np.int64], list[str], NDArray[np.int64]]:
    """Prefixes and types of the distinct labels; ``scheme`` is a key of `LETTERS`.

    Returns
    -------
    letters : list of str
        The prefix of each distinct label; "" for `outside`.
    type_of : ndarray of int64, shape (n_distinct,)
        Index of its type in `types`; -1 for `outside`.
    types : list of str
        Sorted.
    codes : ndarray of int64, shape (n_rows,)
        The distinct label of each row.

    Raises
    ------
    ValueError
        If a label does not belong to the scheme; it is named with its row.
    """
    distinct, codes = np.unique(flat, return_inverse=True)
    parts = label_parts(distinct, scheme, outside)
    if None in parts:
        row = int(np.argmax(np.array([part is None for part in parts])[codes]))
        where = f" at {locate(offsets, row)}"
        raise ValueError(_foreign_label(flat[row].item(), scheme, outside, where))
    types = sorted({type_ for letter, type_ in parts if letter})
    type_of = [types.index(type_) if letter else -1 for letter, type_ in parts]
    return [letter for letter, _ in parts], np.array(type_of, dtype=np.int64), types, codes


def label_parts(
    labels: NDArray, scheme: str | None, outside: str = "O"
) -> list[tuple[str, str] | None]:
    """Prefix and type of each label, as :func:`parse_labels` reads them; None if it is neither."""
    return [_split_prefix(label, LETTERS[scheme], outside) for label in labels.tolist()]


def _split_prefix(label: Any, letters: str, outside: str) -> tuple[str, str] | None:
    """Prefix and type of a label; two empty strings for `outside`; None if it is neither."""
    if label == outside:
        return "", ""
    letter, _, type_ = label.partition("-") if isinstance(label, str) else ("", "", "")
    return (letter, type_) if letter in set(letters) else None


def _scheme_letters(scheme: str) -> str:
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise ValueError(f"scheme must be one of {', '.join(map(repr, SCHEMES))}; got {scheme!r}.")
    return SCHEMES[scheme]


def _foreign_label(label: Any, scheme: str | None, outside: str, where: str = "") -> str:
    """Error message for a label that does not belong to the scheme."""
    allowed = ", ".join(f"'{letter}-type'" for letter in LETTERS[scheme])
    hint = "relabel it" if scheme is None else "relabel it, or choose another scheme"
    return (
        f"Label {label!r}{where} is not a span label; with scheme={scheme!r} labels must be "
        f"{outside!r} or have the form {allowed}: {hint}."
    )


def labels_to_segments(
    labels: Sequence[str] | NDArray,
    scheme: str | None = "iob2",
    *,
    strict: bool = False,
    outside: str = "O",
) -> list[tuple[int, int, str]]:
    """Read the segments of one label sequence.

    Parameters
    ----------
    labels : sequence of str
        Labels of one sequence.
    scheme : {"iob2", "iobes", "bilou"} or None, default="iob2"
        The labels that may occur; None takes the prefixes of all schemes.
    strict : bool, default=False
        Raise if a span is broken, such as one that begins with I under ``"iob2"``; needs a
        scheme. By default any order of labels is read, by the rules of `find_spans`.
    outside : str, default="O"
        The label of rows that belong to no segment.

    Returns
    -------
    segments : list of (start, stop, type)
        Half-open, in order, not overlapping; of Python ints and str.

    Raises
    ------
    ValueError
        If a label does not belong to the scheme, or, with `strict`, a span is broken.

    Examples
    --------
    >>> from sklseq import labels_to_segments
    >>> labels_to_segments(["B-PER", "I-PER", "O", "B-LOC"])
    [(0, 2, 'PER'), (3, 4, 'LOC')]
    >>> labels_to_segments(["O", "I-PER", "I-LOC"])
    [(1, 2, 'PER'), (2, 3, 'LOC')]
    """
    flat, offsets = as_label_sequences([labels], name="labels")
    spans = find_spans(flat, offsets, scheme, outside)
    if strict:
        distinct, codes = np.unique(flat, return_inverse=True)
        allowed = allowed_transitions(distinct, scheme, outside=outside)
        broken = _first_violation(codes, offsets, allowed, distinct.tolist())
        if broken:
            raise ValueError(
                f"Broken span under scheme={scheme!r}: {broken}. Correct the labels, or read them "
                f"with strict=False."
            )
    types = (spans.types[code] for code in spans.type.tolist())
    return list(zip(spans.start.tolist(), spans.stop.tolist(), types))


def segments_to_labels(
    segments: Iterable[tuple[int, int, str]],
    n_steps: int,
    scheme: str = "iob2",
    outside: str = "O",
) -> NDArray[np.str_]:
    """Write the segments of one sequence as labels.

    Parameters
    ----------
    segments : iterable of (start, stop, type)
        Half-open, not overlapping, in any order.
    n_steps : int
        Length of the sequence.
    scheme : {"iob2", "iobes", "bilou"}, default="iob2"
    outside : str, default="O"
        The label of rows that belong to no segment.

    Returns
    -------
    labels : ndarray of str, shape (n_steps,)
        `labels_to_segments` gives the sorted segments back.

    Raises
    ------
    ValueError
        If a segment is not such a triple, is empty, exceeds the sequence, or overlaps another one;
        if ``outside`` is also the label of a segment.

    Examples
    --------
    >>> from sklseq import segments_to_labels
    >>> segments_to_labels([(0, 3, "PER"), (4, 5, "LOC")], 5).tolist()
    ['B-PER', 'I-PER', 'I-PER', 'O', 'B-LOC']
    >>> segments_to_labels([(0, 3, "PER"), (4, 5, "LOC")], 5, scheme="iobes").tolist()
    ['B-PER', 'I-PER', 'E-PER', 'O', 'S-LOC']
    """
    first, inner, last, single = _scheme_letters(scheme)
    n_steps = _check_n_steps(n_steps)
    if not isinstance(outside, str):
        raise ValueError(f"outside must be a string, the label of other rows; got {outside!r}.")
    labels = [outside] * n_steps
    for start, stop, type_ in _check_segments(segments, n_steps):
        suffix = f"-{type_}" if type_ else ""
        letters = first + inner * (stop - start - 2) + last if stop - start > 1 else single
        labels[start:stop] = written = [letter + suffix for letter in letters]
        if outside in written:
            raise ValueError(
                f"outside={outside!r} is also a label of the segment {(start, stop, type_)!r}; "
                "give another outside, or rename the type."
            )
    return as_label_sequences([labels], "labels")[0]


def _check_n_steps(n_steps: Any) -> int:
    try:
        n = index(n_steps)
    except TypeError:
        n = -1
    if n < 0 or isinstance(n_steps, bool):
        raise ValueError(
            "n_steps must be the length of the sequence, an integer of at least 0; got "
            f"{n_steps!r}."
        )
    return n


def _check_segments(
    segments: Iterable[tuple[int, int, str]], n_steps: int
) -> list[tuple[int, int, str]]:
    """Sorted segments of one sequence; raise if they overlap or do not fit."""
    if not isinstance(segments, Iterable):
        raise ValueError(
            f"segments must be a list of triples (start, stop, type); got {segments!r}."
        )
    segments = [_as_segment(segment) for segment in segments]
    for segment in segments:
        start, stop, _ = segment
        if not start < stop:
            raise ValueError(f"Segment {segment!r} is empty: start must be less than stop.")
        if start < 0 or stop > n_steps:
            raise ValueError(
                f"Segment {segment!r} reaches out of its sequence of {n_steps} rows: "
                f"0 <= start < stop <= {n_steps} must hold."
            )
    segments.sort(key=lambda segment: segment[0])
    for before, after in pairwise(segments):
        if before[1] > after[0]:
            raise ValueError(
                f"Segments {before!r} and {after!r} overlap; a row has one label only: drop one."
            )
    return segments


def _as_segment(segment: Any) -> tuple[int, int, str]:
    try:
        start, stop, type_ = segment
        start, stop = index(start), index(stop)
    except (TypeError, ValueError):
        type_ = None
    if not isinstance(type_, str):
        raise ValueError(
            f"Segment {segment!r} must be a triple (start, stop, type): two integers and a string."
        )
    return start, stop, str(type_)


# ------------------------------------------------------------------------------- constraints


def allowed_transitions(classes: ArrayLike, scheme: str, *, outside: str = "O") -> Constraints:
    """Constraints of a scheme on the label sequence.

    Parameters
    ----------
    classes : array-like of str, shape (n_labels,)
        The labels, in the order of rows and columns of the answer.
    scheme : {"iob2", "iobes", "bilou"}
    outside : str, default="O"
        The label of rows that belong to no span.

    Returns
    -------
    constraints : Constraints

    Raises
    ------
    ValueError
        If a label does not belong to the scheme.

    Notes
    -----
    With x the type and O any row outside,

    * IOB2: I-x only after B-x or I-x, so never first.
    * IOBES: I-x and E-x only after B-x or I-x, so never first; only I-x and E-x after B-x or I-x,
      so neither is last. BILOU is the same with L for E and U for S.

    Examples
    --------
    >>> from sklseq.data.labels import allowed_transitions
    >>> transition, start, end = allowed_transitions(["B-x", "I-x", "O"], "iob2")
    >>> transition.astype(int)
    array([[1, 1, 1],
           [1, 1, 1],
           [1, 0, 1]])
    >>> start.tolist(), end.tolist()
    ([True, False, True], [True, True, True])
    """
    first, inner, last, single = _scheme_letters(scheme)
    labels = np.asarray(classes, dtype=object).tolist()
    if (k := _first_cut([label for label in labels if isinstance(label, str)])) is not None:
        raise ValueError(f"Label {labels[k]!r} of classes ends in a NUL character: rename it.")
    parts = [_split_prefix(label, SCHEMES[scheme], outside) for label in labels]
    if None in parts:
        raise ValueError(_foreign_label(labels[parts.index(None)], scheme, outside))
    letters = np.array([letter for letter, _ in parts], dtype=np.str_)
    types = np.array([type_ for _, type_ in parts], dtype=np.str_)
    opens = np.isin(letters, ["", first, single])  # stands where no span is open
    goes_on = np.isin(letters, [first, inner])  # its span may be open after it
    complete = np.isin(letters, ["", last, single])  # its span may be closed after it
    same_type = types[:, None] == types[None, :]
    transition = np.where(opens, complete[:, None], goes_on[:, None] & same_type)
    return Constraints(transition, opens, complete)


def resolve_constraints(constraints: str | ArrayLike | None, classes: ArrayLike) -> Constraints:
    """Turn the `constraints` parameter of an estimator into masks.

    Parameters
    ----------
    constraints : None, {"iob2", "iobes", "bilou"} or array-like of bool, (n_labels, n_labels)
        None forbids nothing. A mask is True where the label of the row may be followed by the
        label of the column; it allows all first and last labels.
    classes : array-like of shape (n_labels,)
        The labels, in the order of the rows and columns of a mask.

    Returns
    -------
    constraints : Constraints
        New arrays.

    Raises
    ------
    ValueError
        If the name is unknown, a label does not belong to the scheme, or the mask is not
        boolean or not square in the number of labels.
    """
    n_labels = len(np.asarray(classes))
    if isinstance(constraints, str):
        if constraints not in SCHEMES:
            raise ValueError(
                f"constraints must be None, {', '.join(map(repr, SCHEMES))} or a boolean mask of "
                f"shape ({n_labels}, {n_labels}); got {constraints!r}."
            )
        return allowed_transitions(classes, constraints)
    shape = n_labels, n_labels
    mask = np.ones(shape, bool) if constraints is None else _check_mask(constraints, n_labels)
    return Constraints(mask, np.ones(n_labels, bool), np.ones(n_labels, bool))


def _check_mask(mask: ArrayLike, n_labels: int) -> NDArray[np.bool_]:
    try:
        mask = np.array(mask)
    except ValueError:  # rows of different length
        mask = np.array(None)
    # 0/1 integers are refused: they could be a list of forbidden label indices.
    if mask.dtype != np.bool_ or mask.shape != (n_labels, n_labels):
        raise ValueError(
            f"constraints given as a mask must be boolean of shape ({n_labels}, {n_labels}), one "
            f"row and one column per label in the order of classes_; got dtype {mask.dtype}, "
            f"shape {mask.shape}."
        )
    return mask


def check_constraints(
    codes: NDArray[np.integer],
    offsets: NDArray[np.integer],
    transition: NDArray[np.bool_],
    start: NDArray[np.bool_],
    end: NDArray[np.bool_],
    classes: ArrayLike,
) -> None:
    """Raise a ValueError that names the first training label that violates a constraint.

    Parameters
    ----------
    codes : ndarray of int, shape (n_rows,)
        Labels of all sequences, as indices into `classes`.
    offsets : ndarray of int, shape (n_sequences + 1,)
    transition, start, end : ndarray of bool, shapes (L, L), (L,), (L,)
        The answer of `resolve_constraints`.
    classes : array-like of shape (L,)
    """
    allowed = Constraints(transition, start, end)
    _raise_violation(_first_violation(codes, offsets, allowed, np.asarray(classes).tolist()))


def _raise_violation(broken: str | None) -> None:
    if broken:
        raise ValueError(
            f"Training labels violate `constraints`: {broken}. Correct the labels, or loosen "
            "`constraints`."
        )


def check_seen(seen: Any, allowed: Constraints, classes: ArrayLike, where: str = "") -> None:
    """Raise a ValueError if a transition, first or last label of a summary violates a constraint.

    ``seen`` has the fields of ``Constraints``, True for those that occur; ``where`` is appended to
    the description of the label.
    """
    names = np.asarray(classes).tolist()
    for i, j in np.argwhere(seen.transition & ~allowed.transition):
        _raise_violation(f"{names[j]!r} may not follow {names[i]!r}{where}")
    for j in np.flatnonzero(seen.start & ~allowed.start):
        _raise_violation(f"{names[j]!r} may not come first{where}")
    for j in np.flatnonzero(seen.end & ~allowed.end):
        _raise_violation(f"{names[j]!r} may not come last{where}")


def _first_violation(
    codes: NDArray[np.integer],
    offsets: NDArray[np.integer],
    allowed: Constraints,
    labels: list[Any],
) -> str | None:
    """Describe the first row whose label is not allowed there; None if all are."""
    filled = offsets[:-1] < offsets[1:]
    first, last = offsets[:-1][filled], offsets[1:][filled] - 1
    reached = np.ones(len(codes), dtype=bool)  # from the row before, or as first label
    reached[1:] = allowed.transition[codes[:-1], codes[1:]]
    reached[first] = allowed.start[codes[first]]
    fits = reached.copy()
    fits[last] &= allowed.end[codes[last]]
    if fits.all():
        return None
    row = int(np.argmin(fits))
    label, where = labels[codes[row]], locate(offsets, row)
    if reached[row]:
        return f"{label!r} may not be the last label, at {where}"
    if row in first:
        return f"{label!r} may not be the first label, at {where}"
    return f"{label!r} may not follow {labels[codes[row - 1]]!r} at {where}"


def resolve_loss(loss: Any, classes: np.ndarray, other: str | None = None) -> np.ndarray | None:
    """The `loss` of a margin tagger as a matrix (n_labels, n_labels), true labels in rows.

    Parameters
    ----------
    loss : "hamming", matrix, dict, callable or None
        A dict has costs by (true label, wrong label), 1 for pairs that it lacks; a callable
        returns them for these two.
    classes : ndarray of shape (n_labels,)
    other : str or None
        What the estimator allows beside "hamming", for messages.
    """
    L = len(classes)
    if loss is None and other is None:
        return None
    if isinstance(loss, str) and loss == "hamming":
        return 1.0 - np.eye(L)
    costs = _costs_of_pairs(loss, classes)
    try:
        if costs is None or isinstance(costs, str):
            raise TypeError
        cost = np.array(costs, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"loss must be 'hamming', {other!r}, a matrix, a dict of costs by (true label, wrong "
            f"label), or a callable of these two that returns them; got {loss!r}."
        ) from None
    if cost.shape != (L, L):
        raise ValueError(
            f"loss given as a matrix must have one row and one column per label, ({L}, {L}); "
            f"got shape {cost.shape}. Labels of sequences of weight 0 do not count; a dict or a "
            "callable fits any labels."
        )
    if not np.isfinite(cost).all() or (cost < 0).any() or np.diag(cost).any():
        bad = ~np.isfinite(cost) | (cost < 0) | (np.eye(L, dtype=bool) & (cost != 0))
        i, j = np.argwhere(bad)[0]
        names = classes.tolist()
        raise ValueError(
            "loss must be finite, not negative, and 0 on the diagonal, where the label is right; "
            f"for the true label {names[i]!r} and the answer {names[j]!r} it is {cost[i, j]:.6g}."
        )
    return cost


def _costs_of_pairs(loss: Any, classes: np.ndarray) -> Any:
    labels = classes.tolist()
    if isinstance(loss, Mapping):
        for pair in loss:
            _check_pair(pair, classes)
        return [[loss.get((a, b), float(a != b)) for b in labels] for a in labels]
    if callable(loss) and takes(loss, 2):
        return [[_cost(loss, a, b) if a != b else 0.0 for b in labels] for a in labels]
    return loss


def _cost(loss: Any, true: Any, wrong: Any) -> float:
    try:
        cost = loss(true, wrong)
    except KeyError as error:
        raise ValueError(
            f"The loss function has no cost for the true label {true!r} and the answer {wrong!r}: "
            f"it raised KeyError({error})."
        ) from error
    if not isinstance(cost, (bool, int, float, np.number, np.bool_)):
        raise ValueError(
            f"The loss function must return a number; got {cost!r} for the true label {true!r} "
            f"and the answer {wrong!r}."
        )
    return float(cost)


def _check_pair(pair: Any, classes: np.ndarray) -> None:
    # Labels that y does not have are ignored, as a fold may lack some; those of another kind not.
    strings = classes.dtype.kind in "UST"
    pairs = isinstance(pair, tuple) and len(pair) == 2
    if not pairs or any(isinstance(label, str) != strings for label in pair):
        raise ValueError(
            "loss given as a dict must have keys (true label, wrong label), with labels such as "
            f"{classes.tolist()[0]!r}; got {pair!r}."
        )

"""Labels of many sequences in one flat array: functions that read, encode and split them.

In all modules that handle labels, ``flat`` holds the labels of all sequences one after the other;
rows of sequence s are ``offsets[s]:offsets[s + 1]``. A segment is half-open,
``(start, stop, type)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklseq._lib.checks import counted
from sklseq._lib.ragged import offsets_of
from sklseq.data._label_lists import string_codes
from sklseq.data.tables import is_list, is_table, refuse_mask

_ARRAY_KINDS = {"U": "string", "b": "boolean", "i": "integer", "u": "integer"}
MOST = np.iinfo(np.int64).max
_DTYPES = {"string": np.str_, "boolean": np.bool_, "integer": np.int64}


class PartialLabelError(ValueError):
    """Raised where each row needs one label, and a row has none or a set of labels."""


def as_label_sequences(
    y: Iterable[Any], name: str = "y", first: tuple[int, int] = (0, 0)
) -> tuple[NDArray, NDArray[np.int64]]:
    """Concatenate label sequences, lists or arrays or the rows of a 2-D array; some may be empty.

    Returns ``flat``, all labels as str, int64 (whole floats too) or bool, and ``offsets``: labels
    of sequence s are ``flat[offsets[s]:offsets[s + 1]]``. ``name`` is that of `y` in error
    messages, ``first`` the numbers of the first sequence and of its first row.

    Raises a TypeError if `y` or one of its items is not a sequence; a ValueError if labels are of
    other or mixed kinds, an integer is outside -2**63 ... 2**63 - 1, a string ends in NUL, or a
    sequence is a masked array.

    Examples
    --------
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
        # Converted one at a time: NumPy joins uint64 and int64 to float64, which keeps 53 bits.
        dtype = _DTYPES[kinds.pop()]
        parts = filled if dtype is np.str_ else (s.astype(dtype, copy=False) for s in filled)
        return np.concatenate(list(parts)), offsets
    rows = (s.tolist() if isinstance(s, np.ndarray) else s for s in filled)
    return array_of_labels(list(chain.from_iterable(rows)), offsets, name, first), offsets


def codes_of_strings(y: Any) -> tuple[NDArray, NDArray[np.int32], NDArray[np.int64]] | None:
    """Sorted labels, code of each row and offsets, if ``y`` is a list of lists of str.

    None for all other forms, and where :func:`as_label_sequences` raises.
    """
    if type(y) is not list or not set(map(type, y)) <= {list, tuple}:
        return None
    lengths = np.fromiter(map(len, y), dtype=np.int64, count=len(y))
    found = string_codes(y, int(lengths.sum()))
    if found is None or not found[0] or first_cut(found[0]) is not None:
        return None
    classes, order = np.unique(np.array(found[0]), return_inverse=True)
    codes = order.astype(np.int32)[found[1]]
    return classes, codes, offsets_of(lengths)


def list_of_sequences(y: Any, name: str = "y") -> list[Any]:
    """The items of y; a TypeError if it is not a list."""
    if not is_list(y):
        raise TypeError(f"{name} must be a list of label sequences; got {type(y).__name__}.")
    return list(y)


def list_label_sequences(
    y: Iterable[Any], name: str, first: int = 0
) -> tuple[list[Any], NDArray[np.int64]]:
    """The items of y, each of which must be a sequence and not a bare label, and their offsets."""
    sequences = list_of_sequences(y, name)
    for number, sequence in enumerate(sequences, first):
        if isinstance(sequence, (list, tuple)):
            continue
        if isinstance(sequence, np.ndarray) and sequence.ndim != 1:
            raise TypeError(
                f"Sequence {number} of {name} must be a 1-D array of labels; "
                f"it has {sequence.ndim} dimensions."
                + (
                    " If its rows are segments, make a list of tuples (start, stop, type) of them."
                    if sequence.ndim == 2 and sequence.shape[1] == 3
                    else ""
                )
            )
        if not (is_list(sequence) and isinstance(sequence, Sized)):
            raise TypeError(
                f"Sequence {number} of {name} must be a list or 1-D array of labels; got "
                f"{what_else(sequence)}"
            )
        none = ", or .tolist(), which puts None where it is masked"
        refuse_mask(sequence, f"Sequence {number} of {name}", none)
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    return sequences, offsets_of(lengths)


def what_else(sequence: Any) -> str:
    """What was given in place of the labels of one sequence, and what to give instead."""
    kind = type(sequence).__name__
    if is_table(sequence):
        return f"a table ({kind}). Take its column of labels."
    if hasattr(sequence, "tocsr"):
        return f"a sparse matrix ({kind}). Convert it to a list."
    if isinstance(sequence, Iterator):
        return f"an iterator ({kind}). Read it into a list."
    return f"{sequence!r:.60} ({kind}). To pass one sequence, wrap it in a list."


def _array_kind(sequence: Any) -> str | None:
    """Kind of the labels of an array; None if each item has to be examined."""
    return _ARRAY_KINDS.get(sequence.dtype.kind) if isinstance(sequence, np.ndarray) else None


def type_kind(cls: type) -> str | None:
    """Kind of labels of a Python or NumPy scalar type; None if it is not a type of labels."""
    if issubclass(cls, str):
        return "string"
    if issubclass(cls, bool | np.bool_):
        return "boolean"
    return "integer" if issubclass(cls, int | np.integer) else None


def whole_as_integer(value: Any) -> Any:
    """A whole float as an integer: tables make floats of integers beside missing values."""
    whole = isinstance(value, (float, np.floating)) and value.is_integer()
    return int(value) if whole else value


def is_missing(value: Any) -> bool:
    """Whether the value is None, NaN or pandas.NA, recognised by its class without pandas."""
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    return value is None or type(value).__name__ == "NAType"


def is_partial(label: Any) -> bool:
    """Whether an item of y is missing or a set of labels, instead of one label."""
    return isinstance(label, (set, frozenset)) or is_missing(label)


def array_of_labels(
    labels: list[Any], offsets: NDArray[np.int64], name: str, first: tuple[int, int] = (0, 0),
    rows: NDArray[np.integer] | None = None,
) -> NDArray:  # fmt: skip
    """Check labels and return them as an array; ``rows``: row of each, if not its index.

    Whole floats become integers.
    """
    types = set(map(type, labels))
    if any(issubclass(cls, (float, np.floating)) for cls in types):
        labels = list(map(whole_as_integer, labels))
        types = set(map(type, labels))
    kinds = set(map(type_kind, types))
    found = _first_problem(labels, kinds)
    if found is None:
        if kinds == {"string"}:
            labels = plain_strings(labels)
        return np.array(labels, dtype=_DTYPES[kinds.pop()] if kinds else np.str_)
    row, problem = found
    where = locate(offsets, row if rows is None else int(rows[row]), first)
    message = f"Label {_plain(labels[row])!r} of {name}, at {where}, {problem}"
    if any(map(is_partial, labels)):
        raise PartialLabelError(
            f"{message[:-1]}, or leave the sequence out (CRFTagger, score of taggers, "
            "standard_errors and known= read None, NaN and sets; SemiCRFSegmenter.fit reads "
            "segments of label None or NaN)."
        )
    raise ValueError(message)


def _first_problem(labels: list[Any], kinds: set[str | None]) -> tuple[int, str] | None:
    """Index of the first label that an array cannot hold, and why; None without any."""
    # np.array would convert [1, "a"] and [nan, "a"] to strings without an error.
    if len(kinds) > 1 or None in kinds:
        each = [type_kind(type(label)) for label in labels]
        if None in each:
            row, remedy = each.index(None), "replace it."
            if isinstance(labels[row], (list, np.ndarray)):
                remedy = (
                    "replace it by a label, or for CRFTagger by a set of possible labels (labels "
                    "in blocks come from a function that yields the blocks)."
                )
            return row, (
                f"is of type {type(labels[row]).__name__}; labels must be strings, integers or "
                f"booleans: {remedy}"
            )
        row = [kind != each[0] for kind in each].index(True)
        return row, (
            f"is of kind {each[row]} and the labels before it are of kind {each[0]}; all "
            "labels must be of one kind: convert them."
        )
    if kinds == {"integer"} and not _fits(min(map(int, labels)), max(map(int, labels))):
        row = next(row for row, label in enumerate(labels) if not _fits(int(label), int(label)))
        return row, (
            "is not a 64-bit integer; integer labels must lie in -2**63 ... 2**63 - 1: renumber "
            "them, or convert all to strings."
        )
    if kinds == {"string"} and (row := first_cut(labels)) is not None:
        return row, "ends in a NUL character, which arrays of strings drop: rename it."
    return None


def plain_strings(labels: list[str]) -> list[str]:
    """Convert str subclasses to str by their value; NumPy would take ``str(label)``.

    For a member of an enumeration of strings, ``str`` may return its name.
    """
    return labels if set(map(type, labels)) <= {str, np.str_} else list(map(str.__str__, labels))


def first_cut(labels: list[str]) -> int | None:
    """Index of the first string that ends in NUL, which NumPy would drop; None without any."""
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


def check_counts(n_sequences: int, n: Any, name: str = "y") -> None:
    """Raise unless X and ``name`` hold the same number of sequences."""
    if n != n_sequences:
        raise ValueError(
            f"X and {name} must hold the same number of sequences; "
            f"got {n_sequences} in X and {n} in {name}."
        )


def check_lengths(lengths: np.ndarray, n_labels: np.ndarray, name: str = "y") -> None:
    """Raise unless each sequence of X has one label for each row."""
    check_counts(len(lengths), len(n_labels), name)
    wrong = np.flatnonzero(n_labels != lengths)
    if wrong.size:
        s = wrong[0]
        raise different_lengths(s, lengths[s], n_labels[s], name)


def different_lengths(s: int, n_rows: Any, n_labels: Any, name: str = "y") -> ValueError:
    """Return the error for a sequence with different numbers of rows and labels."""
    return ValueError(
        f"Sequence {s} has {counted(n_rows, 'row')} in X but {counted(n_labels, 'label')} in "
        f"{name}; each row needs one label."
    )


def read_labels(y: Any, X: Any) -> NDArray:
    """Labels of all rows, checked against the lengths of X."""
    flat, offsets = as_label_sequences(y)
    check_lengths(X.lengths, np.diff(offsets))
    return flat


def read_codes(y: Any, X: Any) -> tuple[NDArray, NDArray[np.int32]]:
    """Sorted labels and the code of each row, checked against the lengths of X."""
    if (found := codes_of_strings(y)) is not None:
        classes, codes, offsets = found
        check_lengths(X.lengths, np.diff(offsets))
        return classes, codes
    flat = read_labels(y, X)
    classes = np.unique(flat)
    return classes, encode_labels(flat, classes, X.offsets)


def without_unused(classes: NDArray, codes: NDArray) -> tuple[NDArray, NDArray]:
    """Labels that occur, and the codes of the rows among these."""
    used = np.bincount(codes, minlength=len(classes)) > 0
    if used.all():
        return classes, codes
    return classes[used], (np.cumsum(used) - 1).astype(np.int32)[codes]


def split_labels(flat: NDArray, offsets: NDArray[np.integer]) -> NDArray[np.object_]:
    """Cut a flat array into one view per sequence: the reverse of `as_label_sequences`.

    The answer is an object array with one dimension even if all sequences have equal length.
    """
    # np.array(list_of_arrays, dtype=object) would be 2-D for sequences of equal length.
    return np.fromiter(cut_rows(flat, offsets), dtype=object, count=len(offsets) - 1)


class LabelLists(list):
    """A list of label lists, which NumPy reads as an object array of these lists.

    ``np.concatenate``, which joins the folds of ``cross_val_predict``, refuses or flattens nested
    lists. Slices, copies and pickles are of this class, too.
    """

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return LabelLists(found) if isinstance(key, slice) else found

    def copy(self) -> LabelLists:
        return LabelLists(self)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[np.object_]:
        return np.fromiter(self, dtype=object, count=len(self))


def cut_rows(flat: Any, offsets: NDArray[np.integer]) -> Iterator[Any]:
    """Rows of each sequence: views of an array, or parts of a list."""
    cuts = offsets.tolist()
    return map(flat.__getitem__, map(slice, cuts[:-1], cuts[1:]))


def read_classes(classes: Any) -> NDArray:
    """Sorted distinct labels of the argument ``classes`` of a public method, checked."""
    return np.unique(as_label_sequences([classes], "classes")[0])


def classes_of_parts(classes: Any, known: NDArray | None) -> NDArray:
    """Labels of ``partial_fit``: those of the argument in the first call, later the known ones."""
    if known is None and classes is None:
        raise ValueError("The first call of partial_fit needs classes, all labels there are.")
    given = known if classes is None else read_classes(classes)
    if known is not None and not np.array_equal(given, np.sort(known)):
        raise ValueError(
            f"classes must be those of the first call, {known.tolist()}; got {given.tolist()}."
        )
    return given if known is None else known


def encode_labels(
    flat: NDArray, classes: ArrayLike, offsets: NDArray[np.integer] | None = None,
    rows: NDArray[np.integer] | None = None, first: tuple[int, int] = (0, 0),
) -> NDArray[np.int32]:  # fmt: skip
    """Index of each label in `classes`, which may have any order.

    Raises a ValueError that names the first unknown label and its position by `offsets`; by
    default, all rows are one sequence. ``rows``: row of each label, if not its index; ``first``:
    numbers of the first sequence, and of its first row.
    """
    codes = find_codes(flat, classes)
    if codes.size and codes.min() < 0:
        k = int(np.argmin(codes))
        row = k if rows is None else int(rows[k])
        where = locate(np.array([0, len(flat)]) if offsets is None else offsets, row, first)
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
            f"Labels such as {flat[0].item()!r} cannot be compared with labels such as "
            f"{known[0].item()!r}; both must be strings, or neither: convert one."
        )
    if len(known) and flat.dtype == known.dtype == np.int64:
        least, most = int(known.min()), int(known.max())
        if most - least < len(flat):  # a table of all integers in between is small
            code = np.full(most - least + 2, -1, dtype=np.int32)
            code[known - least] = np.arange(len(known))
            return code[np.where((flat >= least) & (flat <= most), flat - least, -1)]
    table = {label: code for code, label in enumerate(known.tolist())}
    return np.fromiter(map(table.get, flat.tolist(), repeat(-1)), np.int32, count=len(flat))

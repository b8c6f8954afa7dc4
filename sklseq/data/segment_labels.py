"""Segments (start, stop, type): reading, checks, and conversion to and from labels."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklseq._lib.checks import check_number
from sklseq._lib.ragged import offsets_of
from sklseq.data.constraints import allowed_transitions, first_violation
from sklseq.data.labels import (
    as_label_sequences,
    check_counts,
    check_lengths,
    cut_rows,
    is_missing,
    locate,
    type_kind,
    what_else,
)
from sklseq.data.span_labels import find_spans, scheme_letters
from sklseq.data.tables import is_list

READS = (
    "A segmenter reads segments (start, stop, label) or IOB2 labels; labels_to_segments(labels, "
    "'iobes') makes segments of IOBES labels ('bilou': of BILOU labels, 'runs': of states that "
    "last); taggers such as CRFTagger read labels of single tokens."
)


# Conversions to plain Python types. A str subclass, such as an enumeration, may override __str__.
_PLAIN: dict[str | None, Any] = {"string": str.__str__, "integer": int, "boolean": bool}

# Label of steps whose segments are unknown. Arrays of strings drop NUL at the end only.
UNKNOWN = "\0unknown"


class Segments(NamedTuple):
    """Segments that cover every step of a set of sequences, in order.

    Steps whose segments are unknown form a segment of the label ``UNKNOWN``.

    Attributes
    ----------
    sequence, start, stop : ndarray of int64, shape (n_segments,)
    label : ndarray of str, shape (n_segments,)
    """

    sequence: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    label: np.ndarray


class Span(NamedTuple):
    """One predicted span and its probability.

    Attributes
    ----------
    start : int
        Its first step.
    stop : int
        The step after its last one.
    label : label
        Its type; the label itself if labels have no prefixes.
    probability : float or None
        Probability that a span begins and ends exactly here and has this label; None if the model
        has no probabilities.
    """

    start: int
    stop: int
    label: Any
    probability: float | None


def read_queries(
    segments: Any, lengths: np.ndarray, types: list
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return sequence, start, stop and label code (-1: not in ``types``) of queried segments.

    Segments may overlap and have any order; items after the label are ignored.

    Raises
    ------
    ValueError
        If there is not one list a sequence, a segment is not one of its sequence, or its label is
        not of the kind of ``types``.
    """
    if not (is_list(segments) and hasattr(segments, "__len__")):
        raise ValueError(
            f"segments must be a list of segment lists, one a sequence; got {segments!r:.40}."
        )
    if len(segments) != len(lengths):
        raise ValueError(
            f"segments must hold one list for each of {len(lengths)} sequences; got "
            f"{len(segments)}."
        )
    kind = type_kind(type(types[0])) if types else "string"
    rows = [
        (s, *read_triple(one, s, k, kind=kind))
        for s, several in enumerate(segments)
        for k, one in enumerate(several if hasattr(several, "__iter__") else [several])
    ]
    for s, start, stop, label in rows:
        if not 0 <= start < stop <= lengths[s]:
            raise ValueError(
                f"Segment {(start, stop, label)!r} does not fit sequence {s}, which has "
                f"{lengths[s]} steps: 0 <= start < stop <= {lengths[s]} must hold."
            )
    code_of = {label: code for code, label in enumerate(types)}
    table = [(s, start, stop, code_of.get(label, -1)) for s, start, stop, label in rows]
    sequence, start, stop, code = np.array(table, dtype=np.int64).reshape(-1, 4).T
    return sequence, start, stop, code


def read_triple(
    segment: Any, s: int, k: int, name: str = "segments", kind: str | None = "string"
) -> tuple[int, int, Any]:
    """Segment k of sequence s of ``name``, checked; items after the label are ignored."""
    triple = segment[:3] if isinstance(segment, (list, tuple)) else segment
    found = _as_triple(triple, kind)
    if found is None:
        raise ValueError(
            f"Segment {k} of sequence {s} of {name} must be (start, stop, label), two integers "
            f"and {'an' if kind == 'integer' else 'a'} {kind}; got {segment!r}."
        )
    return found


def list_of_segments(y: Any) -> Any:
    """Return y, or a list of an iterator; a ValueError unless it may hold segments or labels."""
    if isinstance(y, Iterator):
        return list(y)
    if not (is_list(y) and hasattr(y, "__len__")):
        raise ValueError(
            "y must be a list of segment lists or of IOB2 label sequences, one a sequence; got "
            f"{type(y).__name__}."
        )
    return y


def read_segments(
    y: Any, lengths: np.ndarray, outside: str | None, unknown: bool = False
) -> Segments:
    """Segments of all sequences, from (start, stop, label) lists or IOB2 labels.

    ``unknown``: whether lists may have None, NaN or pandas.NA as a label.

    Steps between segments, and segments of the outside label, become segments of length one with
    the label ``outside``; with ``outside=None``, there must be no gap.

    Raises
    ------
    ValueError
        If ``y`` has another number of sequences or of steps, or segments that are empty, overlap,
        are not in order, run past the end of their sequence, or leave a gap.
    """
    y = list_of_segments(y)
    check_counts(len(lengths), len(y))
    if _holds_labels(y, lengths):
        return _of_labels(y, lengths, outside)
    parts = [
        _of_list(segments, s, int(n), outside, unknown)
        for s, (segments, n) in enumerate(zip(y, lengths))
    ]
    counts = [len(part) for part in parts]
    flat = [segment for part in parts for segment in part]
    return Segments(
        np.repeat(np.arange(len(parts)), counts),
        np.array([segment[0] for segment in flat], dtype=np.int64),
        np.array([segment[1] for segment in flat], dtype=np.int64),
        np.array([segment[2] for segment in flat], dtype=np.str_),
    )


def labels_of_segments(
    y: Any, lengths: np.ndarray, outside: str | None, written: str | None = None
) -> list[NDArray]:
    """IOB2 labels of all sequences, from any input of :func:`read_segments`.

    ``written``: the label of steps outside of segments; by default ``outside``, which must not be
    the label of a step in a segment.
    """
    truth = read_segments(y, lengths, outside)
    types, type_ = np.unique(truth.label, return_inverse=True)
    rows = np.column_stack([truth.start, truth.stop, type_])
    codes = iob2_codes(rows, types, outside if written is None else None)
    names = iob2_names(types, outside)
    if written is not None:
        names = np.where(np.repeat(types == outside, 2), written, names)
    return list(cut_rows(names[codes], offsets_of(lengths)))


def read_triples(y: Any, outside: str | None) -> list[list[tuple[int, int, str]]]:
    """Segments of each sequence of unknown length, from segments or IOB2 labels."""
    y = list_of_segments(y)
    if not _holds_labels(y, np.zeros(len(y))):
        lists = ([check_triple(one, s, k) for k, one in enumerate(x)] for s, x in enumerate(y))
        return [[triple for triple in triples if triple[2] != outside] for triples in lists]
    truth = _of_labels(y, np.array(list(map(len, y))), outside)
    kept = truth.label != outside
    sequence, *columns = (column[kept] for column in truth)
    triples = list(zip(*(column.tolist() for column in columns)))
    return list(cut_rows(triples, np.searchsorted(sequence, np.arange(len(y) + 1))))


def holds_segments(y: Any) -> bool:
    """Whether the first item of the sequences of y is a segment (start, stop, label) or a Span."""
    filled = (x for x in _sized(y) if len(_sized(x)))
    first = next((next(iter(x)) for x in filled), None)
    return isinstance(first, Span) or (isinstance(first, (list, tuple)) and len(first) == 3)


def empty_lists(y: Any) -> bool:
    """Whether all sequences of y, at least one, are empty lists: segments or labels."""
    some = isinstance(y, (list, tuple, np.ndarray)) and len(y) > 0
    return some and all(isinstance(x, list) and not x for x in y)


def _sized(y: Any) -> Any:
    return y if is_list(y) and hasattr(y, "__len__") else ()


def _holds_labels(y: Any, lengths: np.ndarray) -> bool:
    for s, sequence in enumerate(y):
        if not (is_list(sequence) and hasattr(sequence, "__len__")):
            raise ValueError(
                f"Sequence {s} of y must be a list of segments (start, stop, label) or of IOB2 "
                f"labels; got {what_else(sequence)} An empty list means that there is no segment."
            )
    for sequence in y:
        if len(sequence):
            return isinstance(next(iter(sequence)), str)
    return not lengths.any()


def _of_labels(y: Any, lengths: np.ndarray, outside: str | None) -> Segments:
    flat, offsets = as_label_sequences(y)
    check_lengths(lengths, np.diff(offsets))
    if len(flat) == 0:
        flat = flat.astype(np.str_)
    _check_iob2(flat, offsets, "O" if outside is None else outside)
    spans = find_spans(flat, offsets, "iob2", "O" if outside is None else outside)
    alone = np.ones(len(flat), dtype=bool)
    for a, b in zip(spans.start.tolist(), spans.stop.tolist()):
        alone[a:b] = False
    alone = np.flatnonzero(alone)
    if outside is None and alone.size:
        s = int(np.searchsorted(offsets, alone[0], side="right")) - 1
        raise ValueError(
            f"Sequence {s} of y has the label 'O' at row {alone[0] - offsets[s]}, but outside=None "
            "means that every row is in a segment. Set outside='O', or label it."
        )
    start = np.concatenate([spans.start, alone])
    stop = np.concatenate([spans.stop, alone + 1])
    types = np.array([*spans.types, outside or ""], dtype=np.str_)
    label = types[np.concatenate([spans.type, np.full(len(alone), len(types) - 1)]).astype(int)]
    order = np.argsort(start, kind="stable")
    start, stop = start[order].astype(np.int64), stop[order].astype(np.int64)
    sequence = np.searchsorted(offsets, start, side="right") - 1
    first = offsets[sequence]
    return Segments(sequence, start - first, stop - first, label[order])


def _check_iob2(flat: np.ndarray, offsets: np.ndarray, outside: str) -> None:
    labels, first = np.unique(flat, return_index=True)
    wrong = [
        row
        for label, row in zip(labels.tolist(), first.tolist())
        if label not in (outside, "B", "I") and not label.startswith(("B-", "I-"))
    ]
    if wrong:
        row = min(wrong)
        raise ValueError(
            f"Label {flat[row].item()!r} at {locate(offsets, row)} of y is neither {outside!r} nor "
            f"of the form 'B-type' or 'I-type'. {READS}"
        )


def _of_list(
    segments: Any, s: int, n: int, outside: str | None, unknown: bool
) -> list[tuple[int, int, str]]:
    out: list = []
    done = 0
    for k, segment in enumerate(segments):
        start, stop, label = check_triple(segment, s, k, unknown)
        name = f"Segment {k} of sequence {s} of y, {_given(start, stop, label)!r},"
        if start >= stop:
            raise ValueError(f"{name} is empty: segments are half-open, start < stop.")
        if start < 0:
            raise ValueError(f"{name} begins before step 0, the first: steps count from 0.")
        if stop > n:
            raise ValueError(f"{name} runs past the end of its sequence, which has {n} steps.")
        if start < done:
            before = out[-1]
            problem = "overlaps" if stop > before[0] else "comes after"
            raise ValueError(
                f"{name} {problem} the one before, {_given(*before)!r}. Sort segments, and "
                "drop one of two that overlap."
            )
        out += _gap(done, start, s, outside)
        if label == outside:
            out += [(t, t + 1, label) for t in range(start, stop)]
        else:
            out.append((start, stop, label))
        done = stop
    return out + _gap(done, n, s, outside)


def _given(start: int, stop: int, label: str) -> tuple:
    # The segment with the user's label, None instead of UNKNOWN.
    return start, stop, None if label == UNKNOWN else label


def check_triple(segment: Any, s: int, k: int, unknown: bool = False) -> tuple[int, int, str]:
    """Check segment k of sequence s of y; with ``unknown``, a missing label becomes ``UNKNOWN``."""
    is_triple = isinstance(segment, (list, tuple)) and len(segment) == 3
    is_unknown = is_triple and is_missing(segment[2])
    found = _as_triple((*segment[:2], UNKNOWN) if is_unknown and unknown else segment)
    if found is None:
        label = "a string, or None for steps whose segments are unknown" if unknown else "a string"
        hint = READS
        if is_unknown and not unknown:
            hint = "Only SemiCRFSegmenter.fit takes ranges of unknown segments (label None)."
        raise ValueError(
            f"Segment {k} of sequence {s} of y must be (start, stop, label), two integers and "
            f"{label}; got {segment!r}. {hint}"
        )
    if found[2].endswith("\0"):
        raise ValueError(
            f"Segment {k} of sequence {s} of y, {segment!r}, has a label that ends in a NUL "
            "character, which arrays of strings drop: rename it."
        )
    return found


def _as_triple(segment: Any, kind: str | None = "string") -> tuple[int, int, Any] | None:
    # (start, stop, label of this kind) as plain Python objects; None for other values.
    try:
        start, stop, label = segment
        if isinstance(start, (bool, np.bool_)) or isinstance(stop, (bool, np.bool_)):
            return None
        if type_kind(type(label)) != kind:
            return None
        return index(start), index(stop), _PLAIN[kind](label)
    except (TypeError, ValueError):
        return None


def _gap(a: int, b: int, s: int, outside: str | None) -> list[tuple[int, int, str]]:
    if a < b and outside is None:
        raise ValueError(
            f"Segments of sequence {s} of y leave a gap: nothing covers steps {a} to {b - 1}. Add "
            "a segment, or set outside to the label of steps in no segment."
        )
    return [(t, t + 1, outside) for t in range(a, b)]


def write_segments(rows: np.ndarray, classes: np.ndarray, outside: str | None) -> list[tuple]:
    """Return rows (start, stop, code) as triples with labels, without the outside label."""
    labels = classes.tolist()
    return [(i, j, labels[k]) for i, j, k in rows.tolist() if labels[k] != outside]


def iob2_codes(rows: NDArray, types: NDArray, outside: str | None) -> NDArray[np.int64]:
    """Index in `iob2_names` of the label of each step, of segments (start, stop, code) in order.

    A ValueError is raised if one of these steps, in a segment, has the label `outside`.
    """
    length = rows[:, 1] - rows[:, 0]
    codes = np.repeat(2 * rows[:, 2] + 1, length)
    codes[np.cumsum(length) - length] -= 1
    if outside is not None and outside.startswith(("B-", "I-")):
        type_ = outside[2:]
        if np.isin(codes, 2 * np.flatnonzero(types == type_) + (outside[0] == "I")).any():
            raise ValueError(
                f"outside={outside!r} is also a label of segments of type {type_!r}; give another "
                "outside, or rename the type."
            )
    return codes


def iob2_names(types: NDArray, outside: str | None) -> NDArray[np.str_]:
    """Labels of the first step and of other steps of segments of each type."""
    names: list[str] = []
    letters = scheme_letters("iob2")
    for type_ in types.tolist():
        names += [type_] * 2 if type_ == outside else _labels_of(type_, 2, letters)
    return np.array(names, dtype=np.str_)


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
    scheme : {"iob2", "iobes", "bilou", "runs"} or None, default="iob2"
        The labels that may occur; None takes the prefixes of all schemes. "runs": labels without
        prefixes, such as states; each run of equal labels is a segment.
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
    >>> labels_to_segments(["rest", "rest", "walk", "O"], "runs")
    [(0, 2, 'rest'), (2, 3, 'walk')]
    """
    if isinstance(labels, (list, tuple)) and any(isinstance(x, (list, tuple)) for x in labels):
        raise TypeError(
            "labels must be the labels of one sequence; got a list of lists: convert each of them, "
            "[labels_to_segments(one) for one in labels]."
        )
    flat, offsets = as_label_sequences([labels], name="labels")
    if scheme == "runs":
        return _runs(flat, outside)
    if scheme is not None:
        scheme_letters(scheme, ["runs"])
    spans = find_spans(flat, offsets, scheme, outside)
    if strict:
        distinct, codes = np.unique(flat, return_inverse=True)
        allowed = allowed_transitions(distinct, scheme, outside=outside)
        broken = first_violation(codes, offsets, allowed, distinct.tolist())
        if broken:
            raise ValueError(
                f"Broken span under scheme={scheme!r}: {broken}. Correct the labels, or read them "
                f"with strict=False."
            )
    types = (spans.types[code] for code in spans.type.tolist())
    return list(zip(spans.start.tolist(), spans.stop.tolist(), types))


def _runs(flat: NDArray, outside: str) -> list[tuple[int, int, str]]:
    if flat.dtype.kind in "ib" and len(flat):
        raise ValueError(
            f"Labels of segments are strings; got {flat[0].item()!r}: write the labels as strings, "
            "such as [str(label) for label in labels]."
        )
    cuts = (np.flatnonzero(flat[1:] != flat[:-1]) + 1).tolist()
    bounds = [0, *cuts, len(flat)] if len(flat) else []
    return [(a, b, str(flat[a])) for a, b in pairwise(bounds) if flat[a] != outside]


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
    scheme : {"iob2", "iobes", "bilou", "runs"}, default="iob2"
        With "runs" the label of a row is the type of its segment.
    outside : str, default="O"
        The label of rows that belong to no segment.

    Returns
    -------
    labels : ndarray of str, shape (n_steps,)
        `labels_to_segments` gives the sorted segments back; with "runs", neighbours of one type
        as one.

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
    letters = None if scheme == "runs" else scheme_letters(scheme, ["runs"])
    check_number("n_steps, the length of the sequence,", n_steps, whole=True)
    if not isinstance(outside, str):
        raise ValueError(f"outside must be a string, the label of other rows; got {outside!r}.")
    labels = [outside] * n_steps
    for start, stop, type_ in _check_segments(segments, n_steps):
        labels[start:stop] = written = _labels_of(type_, stop - start, letters)
        if outside in written:
            raise ValueError(
                f"outside={outside!r} is also a label of the segment {(start, stop, type_)!r}; "
                "give another outside, or rename the type."
            )
    return as_label_sequences([labels], "labels")[0]


def _labels_of(type_: str, n: int, letters: str | None) -> list[str]:
    # Labels of a segment of n rows; without letters, its type.
    if letters is None:
        return [type_] * n
    first, inner, last, single = letters
    suffix = f"-{type_}" if type_ else ""
    return [letter + suffix for letter in (first + inner * (n - 2) + last if n > 1 else single)]


def _check_segments(
    segments: Iterable[tuple[int, int, str]], n_steps: int
) -> list[tuple[int, int, str]]:
    """Sorted segments of one sequence; raise if they overlap or do not fit."""
    if not isinstance(segments, Iterable):
        raise ValueError(
            f"segments must be a list of triples (start, stop, type); got {segments!r}."
        )
    checked = []
    for segment in segments:
        found = _as_triple(segment)
        if found is None:
            raise ValueError(
                f"Segment {segment!r} must be a triple (start, stop, type): two integers and a "
                "string."
            )
        start, stop, _ = found
        if not start < stop:
            raise ValueError(f"Segment {found!r} is empty: start must be less than stop.")
        if start < 0 or stop > n_steps:
            raise ValueError(
                f"Segment {found!r} exceeds its sequence of {n_steps} rows: "
                f"0 <= start < stop <= {n_steps} must hold."
            )
        checked.append(found)
    checked.sort(key=lambda segment: segment[0])
    for before, after in pairwise(checked):
        if before[1] > after[0]:
            raise ValueError(
                f"Segments {before!r} and {after!r} overlap; a row has one label only: drop one."
            )
    return checked

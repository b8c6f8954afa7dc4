"""Span labels such as "B-PER": schemes, prefixes and types, and the spans that labels describe.

A span label is a prefix letter, a hyphen and a type (``"B-PER"``), or the letter alone, whose type
is then empty (``"B"``). A scheme is four letters: see `SCHEMES`.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sklseq.data.labels import locate

# The letters of the first, inner and last row of a longer span, and of a span of one row.
SCHEMES = {"iob2": "BIIB", "iobes": "BIES", "bilou": "BILU"}

# The letters that labels may begin with. IOB1, IOE1 and IOE2 are read, not written.
LETTERS = {name: "".join(dict.fromkeys(letters)) for name, letters in SCHEMES.items()}
LETTERS |= {None: "BIESLU", "iob1": "BI", "ioe1": "IE", "ioe2": "IE"}

# Letters that always begin, or end, a span: conlleval reads all schemes by the same rules.
OPENING = "BSU"
CLOSING = "ESLU"


class Spans(NamedTuple):
    """Spans of a corpus, in order of their first row."""

    start: NDArray[np.int64]  # (n_spans,) first row, counted over the whole corpus
    stop: NDArray[np.int64]  # (n_spans,) row after the last
    type: NDArray[np.int64]  # (n_spans,) index into types
    types: list[str]  # sorted; those of all labels that occur


def find_spans(
    flat: NDArray,
    offsets: NDArray[np.integer],
    scheme: str | None = None,
    outside: str = "O",
) -> Spans:
    """Find the spans that labels describe; read broken spans as conlleval does.

    ``scheme`` ("iob2", "iobes" or "bilou"; None: all) limits the prefixes, and changes no rule. A
    ValueError names the first label of another form, with its row.

    Each row belongs to a span unless it is outside. Row t begins a span if, and only if, it is the
    first of its sequence, or it has the prefix B, S or U, or row t − 1 has the prefix E, S, L or U,
    is outside, or has another type. These are the rules ``startOfChunk`` and ``endOfChunk`` of
    conlleval [1]_ combined. Cost O(n_rows) after the labels are sorted once.

    References
    ----------
    .. [1] E. Tjong Kim Sang and S. Buchholz, "Introduction to the CoNLL-2000 shared task:
       chunking", CoNLL 2000.

    Examples
    --------
    >>> spans = find_spans(np.array(["I-x", "I-x", "I-y", "O"]), np.array([0, 1, 4]))
    >>> spans.start.tolist(), spans.stop.tolist(), spans.type.tolist(), spans.types
    ([0, 1, 2], [1, 2, 3], [0, 0, 1], ['x', 'y'])
    """
    if scheme is not None:
        scheme_letters(scheme)
    letters, type_of, types, codes = parse_labels(flat, offsets, scheme, outside)
    opens, closes = np.isin(letters, list(OPENING)), np.isin(letters, list(CLOSING))
    row_type = type_of[codes]
    cut = np.ones(len(flat) + 1, dtype=bool)  # no span continues from row t - 1 to row t
    cut[1:-1] = closes[codes[:-1]] | opens[codes[1:]] | (row_type[1:] != row_type[:-1])
    cut[offsets] = True
    start = np.flatnonzero(cut[:-1] & (row_type >= 0))
    stop = np.flatnonzero(cut[1:] & (row_type >= 0)) + 1
    return Spans(start, stop, row_type[start], types)


def parse_labels(
    flat: NDArray, offsets: NDArray[np.integer], scheme: str | None, outside: str = "O"
) -> tuple[list[str], NDArray[np.int64], list[str], NDArray[np.int64]]:
    """(prefixes, type_of, types, codes) of the distinct labels; ``scheme`` is a key of `LETTERS`.

    ``prefixes`` has the prefix of each distinct label, "" for `outside`; ``type_of`` its index in
    the sorted ``types``, -1 for `outside`; ``codes`` the distinct label of each row. A ValueError
    names the first label of another form, with its row.
    """
    distinct, codes = np.unique(flat, return_inverse=True)
    parts = label_parts(distinct, scheme, outside)
    if None in parts:
        row = int(np.argmax(np.array([part is None for part in parts])[codes]))
        where = f" at {locate(offsets, row)}"
        raise ValueError(foreign_label(flat[row].item(), scheme, outside, where))
    return [letter for letter, _ in parts], *types_of(parts), codes


def types_of(parts: Sequence[tuple[str, str]]) -> tuple[NDArray[np.int64], list[str]]:
    """(type_of, types) of labels in two parts: see :func:`parse_labels`."""
    types = sorted({type_ for letter, type_ in parts if letter})
    place = {type_: index for index, type_ in enumerate(types)}
    type_of = [place[type_] if letter else -1 for letter, type_ in parts]
    return np.array(type_of, dtype=np.int64), types


def label_parts(
    labels: NDArray, scheme: str | None, outside: str = "O"
) -> list[tuple[str, str] | None]:
    """Prefix and type of each label, as :func:`parse_labels` reads them; None for other labels."""
    return [split_prefix(label, LETTERS[scheme], outside) for label in labels.tolist()]


def split_prefix(label: Any, letters: str, outside: str) -> tuple[str, str] | None:
    """Prefix and type of a label; two empty strings for `outside`; None for other labels."""
    if label == outside:
        return "", ""
    letter, _, type_ = label.partition("-") if isinstance(label, str) else ("", "", "")
    return (letter, type_) if letter in set(letters) else None


def scheme_letters(scheme: str, others: Sequence[str] = ()) -> str:
    """Letters of a scheme; an error for another name also lists ``others``."""
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        known = ", ".join(map(repr, [*SCHEMES, *others]))
        raise ValueError(f"scheme must be one of {known}; got {scheme!r}.{did_you_mean(scheme)}")
    return SCHEMES[scheme]


# Letters of other names of schemes, sorted: BIO; IOBES, BIOES; BILOU, BIOUL; BMES, BMEWO.
NAMED = {"bio": "iob2", "beios": "iobes", "bilou": "bilou"}
MIDDLE = {"bems", "bemos", "bemow"}


def did_you_mean(name: Any) -> str:
    """Sentence that names the scheme of which ``name`` is another spelling; "" if there is none."""
    if not isinstance(name, str):
        return ""
    if (near := name.lower()) not in SCHEMES:
        letters = "".join(sorted(near))
        if letters in MIDDLE:
            return " In 'iobes', M is I, and W is S: rename the labels."
        near = NAMED.get(letters, "")
    return f" Did you mean {near!r}?" if near else ""


def foreign_label(label: Any, scheme: str | None, outside: str, where: str = "") -> str:
    """Error message for a label that does not belong to the scheme."""
    allowed = ", ".join(f"'{letter}-type'" for letter in LETTERS[scheme])
    hint = "relabel it" if scheme is None else "relabel it, or choose another scheme"
    return (
        f"Label {label!r:.60}{where} is not a span label; with scheme={scheme!r} labels must be "
        f"{outside!r} or have the form {allowed}: {hint}."
    )

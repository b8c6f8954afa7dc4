"""Tokens of texts: lists that users give for each sequence, and the characters of each token."""

from collections.abc import Mapping
from operator import index
from typing import Any, NamedTuple, Self

from sklseq.data.sequences import Sequences
from sklseq.data.tables import first_column, is_list, is_table, list_sequences


def as_items(values: Any, name: str, n: int | None = None, of: str = "sequences") -> list:
    """Return the items of a list; raise unless there are ``n``, one for each of ``of``."""
    if not is_list(values):
        raise TypeError(f"{name} must be a list; got {values!r:.40} ({type(values).__name__}).")
    items = list(values)
    if n is not None and len(items) != n:
        raise ValueError(f"{name} must have one entry for each of {n} {of}; got {len(items)}.")
    return items


def as_strings(values: Any, name: str, n: int | None = None, of: str = "sequences") -> list[str]:
    """Return the items of a list of strings."""
    items = as_items(values, name, n, of)
    for i, item in enumerate(items):
        if not isinstance(item, str):
            raise TypeError(
                f"Item {i} of {name} must be a string; got {item!r:.40} ({type(item).__name__})."
            )
    return items


def as_range(start: Any, stop: Any, name: str) -> tuple[int, int]:
    """Return start and stop as integers; raise unless 0 <= start <= stop."""
    try:
        first, last = index(start), index(stop)
    except TypeError:
        first, last = -1, -1
    if not 0 <= first <= last:
        raise ValueError(
            f"{name} must begin with integers 0 <= start <= stop; got ({start!r}, {stop!r})."
        )
    return first, last


def token_ranges(
    offsets: Any, name: str, n: int | None = None, end: int | None = None
) -> list[tuple[int, int]]:
    """Return the character ranges (start, stop) of ``n`` tokens in a text of length ``end``."""
    found: list[tuple[int, int]] = []
    for t, pair in enumerate(as_items(offsets, name, n, "tokens")):
        where = f"Item {t} of {name}"
        if not is_list(pair) or len(pair := list(pair)) != 2:
            raise ValueError(f"{where} must be (start, stop) of a token; got {pair!r:.40}.")
        first, last = as_range(*pair, where)
        if found and (first < found[-1][0] or last < found[-1][1]):
            raise ValueError(f"{where} is {(first, last)} after {found[-1]}; sort the tokens.")
        if end is not None and last > end:
            raise ValueError(f"{where} is {(first, last)}, and the text has {end} characters.")
        found.append((first, last))
    return found


def find_tokens(text: Any, tokens: Any, of: str = "") -> list[tuple[int, int]]:
    """Return the character range of each token, which is searched after the previous one."""
    if not isinstance(text, str):
        raise TypeError(f"text{of} must be a string; got {text!r:.40} ({type(text).__name__}).")
    found, stop = [], 0
    for t, token in enumerate(as_strings(tokens, f"tokens{of}")):
        start = text.find(token, stop)
        if start < 0:
            raise ValueError(
                f"Token {t}{of}, {token!r}, does not occur in the text from character {stop} on; "
                "give tokens as they occur in the text, or (start, stop) of each."
            )
        stop = start + len(token)
        found.append((start, stop))
    return found


class SequenceTokens(NamedTuple):
    """Tokens of sequences, the texts that contain them, and their character ranges there.

    Attributes
    ----------
    tokens : list of lists of str, or None
    texts : list of str, or None
    offsets : list of lists of (start, stop), or None
    """

    tokens: list | None
    texts: list | None
    offsets: list | None

    @classmethod
    def of(cls, X: Any, tokens: Any, texts: Any, offsets: Any, required: bool = True) -> Self:
        """Read the arguments of :func:`sklseq.inspection.extract`; tokens are in X by default.

        With ``required=False``, X may hold no tokens if there are no texts.
        """
        if texts is None and offsets is not None:
            raise ValueError("offsets are characters of texts; pass texts, too.")
        if not is_table(X) and not isinstance(X, Sequences):
            X = list_sequences(X)
        lengths = _lengths_of(X)
        if tokens is None and offsets is None:
            tokens = _words_of(X)
            if tokens is None and (required or texts is not None):
                raise ValueError(
                    "X has no tokens that are strings; pass them as tokens, a list of strings for "
                    "each sequence."
                )
        if tokens is not None:
            tokens = [
                as_strings(words, name, n, "tokens")
                for name, words, n in _each("tokens", tokens, lengths)
            ]
        if texts is not None:
            texts = as_strings(texts, "texts", len(lengths))
        if offsets is not None:
            offsets = [
                token_ranges(pairs, name, n, len(text))
                for text, (name, pairs, n) in zip(texts, _each("offsets", offsets, lengths))
            ]
        elif texts is not None:
            offsets = [
                find_tokens(text, words, f" of sequence {s}")
                for s, (text, words) in enumerate(zip(texts, tokens))
            ]
        return cls(tokens, texts, offsets)

    def text(self, s: int, start: int, stop: int) -> tuple[str, int, int]:
        """Return the text of tokens start to stop - 1 of sequence s, and its character range.

        Without texts, return the tokens joined by spaces, start and stop.
        """
        if self.offsets is None:
            return " ".join(self.tokens[s][start:stop]), start, stop
        first, last = int(self.offsets[s][start][0]), int(self.offsets[s][stop - 1][1])
        return self.texts[s][first:last], first, last


def _each(name: str, given: Any, lengths: list) -> list[tuple[str, Any, int | None]]:
    # (name for messages, given value, number of tokens) of each sequence.
    items = as_items(given, name, len(lengths))
    return [(f"{name} of sequence {s}", item, lengths[s]) for s, item in enumerate(items)]


def _lengths_of(X: Any) -> list:
    # Number of tokens of each sequence; None in tables, where cells of a row may differ in length.
    if is_table(X):
        return [None] * len(X)
    if isinstance(X, Sequences):
        return X.lengths.tolist()
    columns = [first_column(x) for x in X]
    for s, x in enumerate(columns):
        if not hasattr(x, "shape") and not hasattr(x, "__len__"):
            raise TypeError(
                f"Sequence {s} of X must be a list of tokens; got {x!r:.40} ({type(x).__name__})."
            )
    return [x.shape[0] if hasattr(x, "shape") else len(x) for x in columns]


def _words_of(X: Any) -> list[list[str]] | None:
    # The tokens of X, or the first column of them; None if these are not strings.
    if is_table(X):
        return None
    words = []
    for x in X:
        words.append([])
        for token in first_column(x):
            if isinstance(token, Mapping):
                token = next(iter(token.values()), None)
            elif isinstance(token, (list, tuple)) and len(token):
                token = token[0]
            if not isinstance(token, str):
                return None
            words[-1].append(token)
    return words

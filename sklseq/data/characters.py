"""Tokens of texts: lists that users give for each sequence, and the characters of each token."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from operator import index
from typing import Any

__all__ = ["as_items", "as_range", "as_strings", "find_tokens", "is_list", "token_ranges"]


def is_list(values: Any) -> bool:
    """Whether it has items in an order, and is no string."""
    return isinstance(values, Iterable) and not isinstance(values, str | bytes | Mapping | Set)


def as_items(values: Any, name: str, n: int | None = None, of: str = "sequences") -> list:
    """The items of a list; there must be one for each of ``n``."""
    if not is_list(values):
        raise TypeError(f"{name} must be a list; got {values!r:.40} ({type(values).__name__}).")
    items = list(values)
    if n is not None and len(items) != n:
        raise ValueError(f"{name} must have one entry for each of {n} {of}; got {len(items)}.")
    return items


def as_strings(values: Any, name: str, n: int | None = None, of: str = "sequences") -> list[str]:
    """The items of a list of strings."""
    items = as_items(values, name, n, of)
    for i, item in enumerate(items):
        if not isinstance(item, str):
            raise TypeError(
                f"Item {i} of {name} must be a string; got {item!r:.40} ({type(item).__name__})."
            )
    return items


def as_range(start: Any, stop: Any, name: str) -> tuple[int, int]:
    """Two integers, 0 <= start <= stop."""
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
    """The characters (start, stop) of each of ``n`` tokens, in order, of a text of ``end``."""
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
    """The characters of each token, searched for behind the one before."""
    if not isinstance(text, str):
        raise TypeError(f"text{of} must be a string; got {text!r:.40} ({type(text).__name__}).")
    found, stop = [], 0
    for t, token in enumerate(as_strings(tokens, f"tokens{of}")):
        start = text.find(token, stop)
        if start < 0:
            raise ValueError(
                f"Token {t}{of}, {token!r}, does not occur in the text from character {stop} on; "
                "give tokens as they stand in the text, or (start, stop) of each."
            )
        stop = start + len(token)
        found.append((start, stop))
    return found

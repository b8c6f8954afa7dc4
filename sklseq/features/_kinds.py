"""Kinds of attributes of a token, as functions from a list of tokens to a list of values."""

from __future__ import annotations

import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

_NOTHING_BUT_PUNCTUATION = re.compile(r"(?:[^\w\s]|_)+")
_DIGIT = re.compile(r"\d")

# Properties of a token, which are attributes if they are true.
FLAGS: dict[str, Callable[[str], Any]] = {
    "upper": str.isupper,
    "title": str.istitle,
    "digit": str.isdigit,
    "alpha": str.isalpha,
    "has_digit": _DIGIT.search,
    "has_hyphen": lambda token: "-" in token,
    "has_inner_upper": lambda token: token[1:] != token[1:].lower(),
    "punct": _NOTHING_BUT_PUNCTUATION.fullmatch,
}

_LENGTHS = ["1", "2", "3", "4", "5-6", "5-6", "7-9", "7-9", "7-9"]


class Kind(NamedTuple):
    """One kind of attribute.

    Attributes
    ----------
    name : str
        Prefix of the attributes, before "="; a flag is its name alone.
    values : callable
        From a list of distinct tokens to a list of values, each a str or None for no attribute;
        with ``many`` a list of attributes (str) for each token.
    is_flag, many : bool
    """

    name: str
    values: Callable[[list[str]], list]
    is_flag: bool = False
    many: bool = False


def standard_kinds(
    *, word: bool, lower: bool, shape: bool, short_shape: bool, prefixes: Any, suffixes: Any,
    flags: Any, length: bool,
) -> list[Kind]:  # fmt: skip
    """Return the kinds that are switched on, in the order of a token's attributes."""
    kinds = [
        (word, Kind("word", lambda tokens: [t or None for t in tokens])),
        (lower, Kind("lower", lambda tokens: [t.lower() or None for t in tokens])),
        (shape, Kind("shape", shapes)),
        (short_shape, Kind("short_shape", short_shapes)),
    ]
    kinds = [kind for is_on, kind in kinds if is_on]
    for n in affix_lengths(prefixes, "prefixes"):
        kinds.append(Kind(f"prefix{n}", lambda tokens, n=n: [t[:n] or None for t in tokens]))
    for n in affix_lengths(suffixes, "suffixes"):
        kinds.append(Kind(f"suffix{n}", lambda tokens, n=n: [t[-n:] or None for t in tokens]))
    for name in _flag_names(flags):
        kinds.append(Kind(name, lambda tokens, has=FLAGS[name]: _flags(tokens, has), is_flag=True))
    if length:
        kinds.append(Kind("length", _lengths))
    return kinds


def _flags(tokens: list[str], has: Callable[[str], Any]) -> list[str | None]:
    return ["" if has(token) else None for token in tokens]


def _lengths(tokens: list[str]) -> list[str | None]:
    table = [None, *_LENGTHS]
    return [table[len(t)] if len(t) < len(table) else "10+" for t in tokens]


def affix_lengths(value: Any, name: str) -> list[int]:
    """Return 1, 2, 3 for ``3``, the lengths of a collection, and none for 0, False and None."""
    if value is None or value is False:
        return []
    if isinstance(value, numbers.Integral) and value is not True and value >= 0:
        return list(range(1, int(value) + 1))
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        lengths = list(value)
        if all(isinstance(n, numbers.Integral) and n >= 1 for n in lengths):
            return [int(n) for n in lengths]
    raise ValueError(
        f"{name} must be an integer n (lengths 1 to n) or a list of lengths of at least 1; "
        f"got {value!r}."
    )


def _flag_names(flags: Any) -> list[str]:
    if flags is True:
        return list(FLAGS)
    if flags is None or flags is False:
        return []
    several = isinstance(flags, Iterable) and not isinstance(flags, str)
    names = list(flags) if several else [flags]
    for name in names:
        if not isinstance(name, str) or name not in FLAGS:
            raise ValueError(f"flags must be True, False or names of {list(FLAGS)}; got {name!r}.")
    return names


# --- Shapes ---------------------------------------------------------------------------------


class _ShapeOfLetters(dict):
    """Table for str.translate: X for upper-case letters, x for others, d for digits."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        if letter.isupper() or letter.istitle():
            shape = "X"
        elif letter.isalpha():
            shape = "x"
        else:
            shape = "d" if letter.isdigit() else letter
        self[code] = shape
        return shape


_SHAPES = _ShapeOfLetters()
_RUN = re.compile(r"(.)\1+", re.DOTALL)


def shapes(tokens: list[str]) -> list[str | None]:
    """Return shapes of letters: ``"X.X.-ddddx"`` for ``"U.S.-1990s"``."""
    return [token.translate(_SHAPES) or None for token in tokens]


def short_shapes(tokens: list[str]) -> list[str | None]:
    """Return shapes with runs of one letter written once: ``"X.X.-dx"``."""
    short: dict[str | None, str | None] = {None: None}
    full = shapes(tokens)
    for shape in set(full) - {None}:  # there are far fewer shapes than tokens
        short[shape] = _RUN.sub(r"\1", shape)
    return [short[shape] for shape in full]


# --- Functions of the user -----------------------------------------------------------------------

_FOR_NUMBERS = "For numbers and vectors use PerToken."


def own_kind(name: str, function: Callable[[str], Any]) -> Kind:
    """Return the kind of a user's function from a token to attributes."""
    return Kind(
        name,
        lambda tokens: [attributes_of(name, "token", t, function(t), _FOR_NUMBERS) for t in tokens],
        many=True,
    )


def attributes_of(name: str, what: str, argument: Any, value: Any, advice: str) -> list[str]:
    """Return the attributes that a value of a user's function means."""
    if value is None or isinstance(value, (bool, np.bool_)):
        return [name] if value else []
    if isinstance(value, str):
        return [f"{name}={value}"]
    if isinstance(value, Mapping):
        items = [f"{k}={v}" if isinstance(v, str) else k for k, v in value.items() if v or v == ""]
        if all(isinstance(v, (str, bool, np.bool_)) or v is None for v in value.values()) and all(
            isinstance(k, str) for k in value
        ):
            return list(dict.fromkeys(items))
    elif isinstance(value, Iterable):
        values = list(dict.fromkeys(value))
        if all(isinstance(v, str) for v in values):
            return [f"{name}={v}" for v in values]
    raise ValueError(
        f"The function {name!r} must return a string, a bool, None, a collection of strings, or a "
        f"dict of strings and bools; for the {what} {argument!r} it returned {value!r}. {advice}"
    )

"""Kinds of attributes of a token."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.checks import is_number
from sklseq.features._item_reader import in_order
from sklseq.features._token_table import FLAGS


class Kind(NamedTuple):
    """One kind of attribute.

    Attributes
    ----------
    name : str
        Prefix of the attributes, before "="; a flag is its name alone.
    form : str
        One of ``FORMS``, or "function".
    size : int
        Letters of an affix; place of a flag in ``FLAGS``.
    attributes : callable, optional
        For "function": from a token to the list of its attributes.
    """

    name: str
    form: str
    size: int = 0
    attributes: Callable[[str], list[str]] | None = None


def standard_kinds(
    *, word: bool, lower: bool, shape: bool, short_shape: bool, prefixes: Any, suffixes: Any,
    flags: Any, length: bool,
) -> list[Kind]:  # fmt: skip
    """Return the kinds that are switched on, in the order of a token's attributes."""
    switches = {"word": word, "lower": lower, "shape": shape, "short_shape": short_shape}
    kinds = [Kind(name, name) for name, is_on in switches.items() if is_on]
    kinds += [Kind(f"prefix{n}", "prefix", n) for n in affix_lengths(prefixes, "prefixes")]
    kinds += [Kind(f"suffix{n}", "suffix", n) for n in affix_lengths(suffixes, "suffixes")]
    kinds += [Kind(name, "flag", FLAGS.index(name)) for name in _flag_names(flags)]
    return kinds + [Kind("length", "length")] * bool(length)


def check_different(kinds: list[Kind]) -> None:
    """Raise ValueError for a kind given twice, whose attributes would count twice."""
    names = Counter(kind.name for kind in kinds if kind.form != "function")
    for name in names:
        if names[name] > 1:
            raise ValueError(
                "prefixes, suffixes and flags must hold different values; "
                f"{name!r} is given twice. Remove one."
            )


def affix_lengths(value: Any, name: str) -> list[int]:
    """Return 1, 2, 3 for ``3``, the lengths of a collection, and none for 0, False and None."""
    if value is None or value is False:
        return []
    if is_number(value, whole=True) and value >= 0:
        return list(range(1, int(value) + 1))
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes)):
        lengths = list(value)
        if all(is_number(n, whole=True) and n >= 1 for n in lengths):
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


# --- Functions of the user -----------------------------------------------------------------------

_FOR_NUMBERS = "For numbers and vectors use PerToken."


def own_kind(name: str, function: Callable[[str], Any]) -> Kind:
    """Return the kind of a user's function from a token to attributes."""

    def attributes(token: str) -> list[str]:
        value = result_of(name, "token", token, function, token)
        return attributes_of(name, "token", token, value, _FOR_NUMBERS)

    return Kind(name, "function", attributes=attributes)


def result_of(name: str, what: str, shown: Any, function: Callable, *arguments: Any) -> Any:
    """Return the value of a user's function; an error names it and the token or segment."""
    try:
        return function(*arguments)
    except Exception as error:
        raise ValueError(
            f"The function {name!r} fails for the {what} {shown!r} with {type(error).__name__}: "
            f"{error}. Let it return None where it has no value."
        ) from error


def attributes_of(name: str, what: str, argument: Any, value: Any, advice: str) -> list[str]:
    """Return the attributes that correspond to a value of a user's function."""
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
        values = list(in_order(value))
        if all(isinstance(v, str) for v in values):
            return [f"{name}={v}" for v in dict.fromkeys(values)]
    raise ValueError(
        f"The function {name!r} must return a string, a bool, None, a collection of strings, or a "
        f"dict of strings and bools; for the {what} {argument!r} it returned {value!r}. {advice}"
    )

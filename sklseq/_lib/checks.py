"""Checks of numbers and lists of names that users give."""

import math
import numbers
import sys
from collections.abc import Hashable, Iterable
from typing import Any


def is_number(value: Any, *, whole: bool = False) -> bool:
    """Whether ``value`` is a real number, or an integer if ``whole``. Booleans are neither."""
    kind = numbers.Integral if whole else numbers.Real
    return isinstance(value, kind) and not isinstance(value, bool)


def check_number(
    name: str, value: Any, least: float = 0, most: float = math.inf, *, whole: bool = False,
    optional: bool = False,
) -> None:  # fmt: skip
    """Raise unless ``value`` is a finite number, or an integer if ``whole``, in the range.

    ``optional``: it may be None.
    """
    if optional and value is None:
        return
    largest = math.inf if whole else sys.float_info.max  # 10**400 is an int beyond all floats
    if not is_number(value, whole=whole) or not least <= value <= most or value > largest:
        kind = "None or " * optional + ("an integer" if whole else "a finite number")
        limits = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ValueError(f"{name} must be {kind} {limits}; got {value!r:.60}.")


def check_choice(name: str, value: Any, allowed: tuple) -> None:
    """Raise unless ``value`` is one of the values allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}; got {value!r:.60}.")


def check_names(
    values: Iterable[Any], name: str = "columns", noun: str = "name", *, some: bool = False
) -> list[Any]:
    """List of ``values``: neither one string, which would be read by letters, nor repetitions.

    ``name``: the parameter; ``noun``: what each value is; ``some``: there must be at least one.
    """
    if isinstance(values, str):
        raise ValueError(
            f"{name} must be a list of {noun}s; got the string {values!r:.60}: wrap it in a list."
        )
    if not isinstance(values, Iterable):
        raise TypeError(f"{name} must be a list of {noun}s; got {values!r:.60}.")
    names = list(values)
    if not all(isinstance(each, Hashable) for each in names):
        raise TypeError(f"{name} must be a list of {noun}s; got {names}.")
    if len(set(names)) < len(names):
        twice = next(each for k, each in enumerate(names) if each in names[:k])
        raise ValueError(
            f"{name} must be different {noun}s; it has {twice!r} several times: drop one."
        )
    if some and not names:
        raise ValueError(f"{name} must name at least one {noun}; got an empty list.")
    return names


def counted(n: int, noun: str) -> str:
    """A number and its noun: "1 row", "3 rows"."""
    return f"{n} {noun if n == 1 else noun + 's'}"

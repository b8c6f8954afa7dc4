"""Checks of numbers and lists of names that users give."""

import math
import numbers
import sys
from collections.abc import Hashable, Iterable, Sequence
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
    largest = math.inf if whole else sys.float_info.max  # 10**400 is an int that is no float
    if not is_number(value, whole=whole) or not least <= value <= most or value > largest:
        kind = "None or " * optional + ("an integer" if whole else "a finite number")
        limits = f"of at least {least}" if most == math.inf else f"from {least} to {most}"
        raise ValueError(f"{name} must be {kind} {limits}; got {value!r:.60}.")


def check_choice(name: str, value: Any, allowed: tuple) -> None:
    """Raise unless ``value`` is one of the values allowed."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}; got {value!r:.60}.")


def check_names(columns: Sequence[str], *, some: bool = False) -> list[str]:
    """Refuse a single string (it would be read letter by letter) and repeated names.

    ``some``: there must be at least one name.
    """
    if isinstance(columns, str):
        raise ValueError(f"columns must be a list of names; got the string {columns!r}.")
    if not isinstance(columns, Iterable):
        raise TypeError(f"columns must be a list of names; got {columns!r}.")
    names = list(columns)
    if not all(isinstance(name, Hashable) for name in names):
        raise TypeError(f"columns must be a list of names; got {names}.")
    if len(set(names)) != len(names):
        raise ValueError(f"columns must be different names; got {names}.")
    if some and not names:
        raise ValueError("columns must name at least one column; got an empty list.")
    return names

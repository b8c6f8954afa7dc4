"""Checks of parameters that several readers and generators share."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any


def check_choice(name: str, value: Any, allowed: tuple) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}; got {value!r}.")


def check_fraction(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name} must be between 0 and 1; got {value!r}.")


def check_names(columns: Sequence[str]) -> list[str]:
    """Refuse a single string (it would be read letter by letter) and repeated names."""
    if isinstance(columns, str):
        raise ValueError(f"columns must be a list of names; got the string {columns!r}.")
    if not isinstance(columns, Iterable):
        raise TypeError(f"columns must be a list of names; got {columns!r}.")
    names = list(columns)
    if not all(isinstance(name, Hashable) for name in names):
        raise TypeError(f"columns must be a list of names; got {names}.")
    if len(set(names)) != len(names):
        raise ValueError(f"columns must be different names; got {names}.")
    return names

"""Copies of items that a caller may change later."""

from collections import deque
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

# Types of immutable values.
_FIXED = frozenset((str, int, float, bool, bytes, type(None)))


def owned(item: Any) -> Any:
    """The item with copies of the dicts, lists, sets and arrays in it, which the caller may change.

    Other objects are shared.
    """
    if type(item) in _FIXED:
        return item
    if type(item) is dict:
        return {k: v if type(v) in _FIXED else owned(v) for k, v in item.items()}
    if isinstance(item, tuple):
        return getattr(item, "_make", tuple)(map(owned, item))
    if isinstance(item, (list, deque)):
        return [owned(value) for value in item]
    if hasattr(item, "dtype"):  # NumPy arrays, rows of SciPy
        return deepcopy(item)
    if isinstance(item, set):
        return item.copy()
    if isinstance(item, Mapping):
        return {key: owned(value) for key, value in item.items()}
    return item

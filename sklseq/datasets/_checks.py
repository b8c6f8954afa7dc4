"""Checks of parameters that several readers and generators share."""

from typing import Any


def check_choice(name: str, value: Any, allowed: tuple) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {allowed}; got {value!r}.")

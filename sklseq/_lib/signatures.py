"""Numbers of arguments that functions of users take."""

from __future__ import annotations

import inspect
from collections.abc import Callable

__all__ = ["n_required", "takes"]


def takes(function: Callable, n: int) -> bool:
    """Whether a call with n positional arguments is possible; True where that is unknown."""
    try:
        inspect.signature(function).bind(*range(n))
    except TypeError:
        return False
    except ValueError:  # of some builtins; a type such as dict or bool takes one value
        return n == 1 or not isinstance(function, type)
    return True


def n_required(function: Callable) -> int | None:
    """Number of positional parameters without a default; None where that is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of some builtins
        return None
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)

"""Arguments that user functions and methods of models accept."""

import inspect
from collections.abc import Callable
from typing import Any


def takes(function: Callable, n: int) -> bool:
    """Whether a call with n positional arguments is possible; True if that is unknown."""
    try:
        inspect.signature(function).bind(*range(n))
    except TypeError:
        return False
    except ValueError:  # no signature, as of some builtins; dict or bool take one value
        return n == 1 or not isinstance(function, type)
    return True


def n_required(function: Callable) -> int | None:
    """Number of positional parameters without a default; None if that is unknown."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # no signature, as of some builtins
        return None
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return sum(p.kind in kinds and p.default is p.empty for p in parameters)


def taken_options(method: Any, **options: Any) -> dict[str, Any]:
    """Return the options that are not None; raise unless the method takes all of them."""
    options = {name: value for name, value in options.items() if value is not None}
    taken = inspect.signature(method).parameters
    if any(p.kind is p.VAR_KEYWORD for p in taken.values()):  # as methods of pipelines
        return options
    for name in (name for name in options if name not in taken):
        raise ValueError(
            f"{type(method.__self__).__name__} takes no {name}; leave it out, or use a tagger "
            "such as CRFTagger as the last step."
        )
    return options

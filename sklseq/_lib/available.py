"""Methods that exist for some parameters only."""

from collections.abc import Callable
from functools import update_wrapper
from types import MethodType
from typing import Any, Generic, TypeVar

R = TypeVar("R")
Reason = Callable[[Any], str | None]


class _Method(Generic[R]):
    def __init__(self, function: Callable[..., R], reason: Reason):
        self.function, self.reason = function, reason
        update_wrapper(self, function)

    def __get__(self, estimator: Any, owner: Any = None) -> Callable[..., R]:
        if estimator is None:
            return self.function
        reason = self.reason(estimator)
        if reason is not None:
            name, method = type(estimator).__name__, self.function.__name__
            raise AttributeError(f"This {name} has no {method}: {reason}")
        return MethodType(self.function, estimator)


def missing_if(reason: Reason) -> Callable[[Callable[..., R]], _Method[R]]:
    """Decorator of a method that is missing, also for ``hasattr``, if there is a reason.

    ``reason(estimator)`` returns it, as the text of the AttributeError, or None. scikit-learn's
    ``available_if`` gives the reason as the cause of the error only.
    """
    return lambda function: _Method(function, reason)

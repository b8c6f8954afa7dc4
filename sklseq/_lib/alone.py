"""Methods of which one call runs at a time."""

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

Method = TypeVar("Method", bound=Callable)


def alone(method: Method) -> Method:
    """Decorate a method: raise RuntimeError while another call of the same object runs."""

    # Other threads, and user functions that the stream calls, must not use the beam while it
    # changes.
    @wraps(method)
    def call(self, *args, **kwargs):
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                f"the stream is busy: {method.__name__} was called while another call of it was "
                "running. Use a stream in one thread at a time, and not in its own uncertainty "
                "function."
            )
        try:
            return method(self, *args, **kwargs)
        finally:
            self._lock.release()

    return cast(Method, call)

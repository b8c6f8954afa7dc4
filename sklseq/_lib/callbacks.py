"""Support of scikit-learn's callbacks (≥ 1.9); without effect in older versions.

``fit`` is a task, each iteration of a solver and each part of a meta-estimator a subtask.
The metadata of a task are the arguments of ``fit`` other than X and y, as in scikit-learn, whose
``ScoringMonitor`` passes them to scorers; the state of a solver is in ``fitted_estimator``.
"""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

try:
    from sklearn.callback import CallbackSupportMixin
    from sklearn.callback import with_callbacks as _with_teardown
except ImportError:  # scikit-learn < 1.9
    _with_teardown = None

    class CallbackSupportMixin:
        """Empty mixin for versions of scikit-learn without callbacks."""


Fit = TypeVar("Fit", bound=Callable)


@dataclass
class _Task:
    """A running ``fit`` of an estimator with callbacks, in its attribute ``_task``."""

    context: Any
    arguments: dict  # arguments of every hook: estimator, X, y, metadata
    is_stopped: bool = False  # whether a callback has asked to stop


def with_callbacks(*, max_subtasks: Callable[[Any], int | None]) -> Callable[[Fit], Fit]:
    """Decorate ``fit`` so that callbacks run at its begin and, with the fitted estimator, at its
    end.

    ``max_subtasks(estimator)`` is the maximum number of iterations or parts, None if unknown.
    """

    def decorate(fit: Fit) -> Fit:
        if _with_teardown is None:
            return fit
        signature = inspect.signature(fit)

        @_with_teardown
        @wraps(fit)
        def watched(self, *args, **kwargs):
            if "_task" in vars(self) or not _is_watched(self):
                return fit(self, *args, **kwargs)
            arguments = signature.bind(self, *args, **kwargs).arguments
            # Pipeline.fit has its **fit_params as one dict in ``arguments``.
            weight = {**arguments, **arguments.get("fit_params", {})}.get("sample_weight")
            context = self._init_callback_context(max_subtasks=max_subtasks(self))
            task = _Task(context, {
                "estimator": self, "X": arguments["X"], "y": arguments.get("y"),
                "metadata": None if weight is None else {"sample_weight": weight},
            })  # fmt: skip
            context.call_on_fit_task_begin(**task.arguments)
            self._task = task
            try:
                fit(self, *args, **kwargs)
            finally:
                del self._task
            context.call_on_fit_task_end(**task.arguments, reconstruction_attributes={})
            return self

        return watched

    return decorate


def _is_watched(estimator: Any) -> bool:
    return bool(getattr(estimator, "_skl_callbacks", None)) or hasattr(
        estimator, "_parent_callback_ctx"
    )


def iteration_hook(
    estimator: Any, reconstruct: Callable[[Any], dict] | None = None
) -> Callable[[int, float, Any], bool]:
    """Return ``hook(k, value, w)``, which a solver calls after iteration k; True means stop.

    ``reconstruct(w)`` returns the fitted attributes of this iteration in arrays that do not change
    later; it is only called if a callback needs them.
    """
    task = vars(estimator).get("_task")
    if task is None:
        return lambda k, value, w: False

    def after_iteration(k: int, value: float, w: Any) -> bool:
        iteration = task.context.subcontext(task_name="iteration")
        iteration.call_on_fit_task_begin(**task.arguments)
        fitted = None
        if reconstruct is not None:
            fitted = lambda: {"__dict__": _as_new(estimator) | reconstruct(w) | {"n_iter_": k}}  # noqa: E731
        end = iteration.call_on_fit_task_end
        task.is_stopped |= bool(end(**task.arguments, reconstruction_attributes=fitted))
        return task.is_stopped

    return after_iteration


def without_callbacks(estimator: Any) -> Any:
    """Return the estimator after removing its callbacks, which its clones have too."""
    if _with_teardown is not None:
        estimator.set_callbacks()
    return estimator


def is_stopped(estimator: Any) -> bool:
    """Whether a callback has asked the running ``fit`` of an estimator to stop."""
    task = vars(estimator).get("_task")
    return task is not None and task.is_stopped


def _as_new(estimator: Any) -> dict:
    # Parameters and metadata requests, without attributes of an earlier fit.
    kept = {name: vars(estimator)[name] for name in vars(estimator) if name == "_metadata_request"}
    return estimator.get_params(deep=False) | kept


@contextmanager
def fit_of_part(estimator: Any, part: Any) -> Iterator[None]:
    """Context for the ``fit`` of a part of an estimator, whose tasks become subtasks."""
    task = vars(estimator).get("_task")
    if task is None:
        yield
        return
    context = task.context.subcontext(task_name="fit-estimator")
    with context.propagate_callback_context(part):
        context.call_on_fit_task_begin(**task.arguments)
        yield
        context.call_on_fit_task_end(**task.arguments)

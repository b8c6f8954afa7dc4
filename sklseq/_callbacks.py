"""scikit-learn's callbacks (≥ 1.9), or nothing where it has none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:
        """Stands in where scikit-learn has no callbacks."""

    def with_callbacks(method: Callable) -> Callable:
        return method


__all__ = ["CallbackSupportMixin", "iteration_hook", "with_callbacks"]


def iteration_hook(
    estimator: Any, X: Any, y: Any, reconstruct: Callable[[Any], dict]
) -> tuple[Callable[[int, float, Any], bool], Callable[[], None]]:
    """``(after_iteration, after_fit)`` that tell scikit-learn's callbacks of a solver's progress.

    ``after_iteration(k, value, w)`` returns True if a callback asks to stop; ``reconstruct(w)``
    gives the fitted attributes as of now, and is only called if a callback wants them.
    """
    if not getattr(estimator, "_skl_callbacks", None) and not hasattr(
        estimator, "_parent_callback_ctx"
    ):
        return (lambda k, value, w: False), (lambda: None)
    context = estimator._init_callback_context(max_subtasks=estimator.max_iter)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def after_iteration(k: int, value: float, w: Any) -> bool:
        task = context.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        return bool(
            task.call_on_fit_task_end(
                estimator=estimator,
                X=X,
                y=y,
                metadata={"objective": value},
                reconstruction_attributes=lambda: reconstruct(w),
            )
        )

    def after_fit() -> None:
        context.call_on_fit_task_end(estimator=estimator, X=X, y=y)

    return after_iteration, after_fit

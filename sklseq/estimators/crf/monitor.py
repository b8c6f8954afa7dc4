"""Monitor of the iterations of training: reports, early stopping, and the last complete model."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sklseq._lib.callbacks import iteration_hook
from sklseq.estimators.crf.early_stopping import EarlyStopping
from sklseq.solvers import SolverResult


class Monitor:
    """Called by solvers after each iteration; returns True to stop them.

    Parameters
    ----------
    tagger : CRFTagger
    attributes : callable(w) -> dict
        The attributes of a fitted tagger with weights w.
    objective : callable(w) -> float
        Objective with penalties; called for solvers that do not evaluate it.
    validation : EarlyStopping, optional
    error : exception class, or ()
        Error after which the weights of the last iteration are kept.

    Attributes
    ----------
    done : int
        Number of iterations before those that are reported.
    is_stopped : bool
        Whether a callback or the validation has asked to stop: then no further solver runs.
    """

    def __init__(
        self, tagger: Any, attributes: Callable, objective: Callable,
        validation: EarlyStopping | None, error: Any,
    ):  # fmt: skip
        self.tagger, self.attributes, self.objective = tagger, attributes, objective
        self.validation, self.error = validation, error
        self.run_callbacks = iteration_hook(tagger, attributes)
        self.last, self.history = None, []
        self.done, self.is_stopped = 0, False

    def __call__(self, solver: str, k: int, value: float | None, w: np.ndarray) -> bool:
        """Report iteration k; ``value`` is None if the solver does not know it."""
        k += self.done
        if self.error:
            # L-BFGS alternates between two vectors; the other solvers work in place.
            self.last = (k, w if solver == "lbfgs" else w.copy())
            self.history.append(np.nan if value is None else value)
        if self.tagger.verbose:
            value = self.objective(w) if value is None else value
            print(f"[CRFTagger] iteration {k} ({solver}): objective {value:.6f}")
        stops = self.validation is not None and self.validation.stops(w, self.attributes(w))
        self.is_stopped |= self.run_callbacks(k, value, w) or stops
        return self.is_stopped

    @contextmanager
    def last_kept(self, finish: Callable[[SolverResult], Any]) -> Iterator[None]:
        """On an ``error``, pass the last iteration, if any, to ``finish``; the message says so."""
        try:
            yield
        except self.error as error:
            if self.last is None:
                raise
            k, w = self.last
            finish(SolverResult(w, self.history[-1], k, True, self.history, "error"))
            raise type(error)(
                f"{error} The model of iteration {k} is kept; remove the cause, then continue "
                "from it with warm_start=True."
            ) from error

"""The model of the last whole iteration, for when data cannot be read to the end of training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from sklseq.solvers import SolverResult

__all__ = ["Progress"]


class Progress:
    """The weights after the last whole iteration.

    Parameters
    ----------
    tagger : CRFTagger
    """

    def __init__(self, tagger: Any):
        self.tagger, self.last, self.history = tagger, None, []

    def descend(self, likelihood, start, threads, report) -> SolverResult:
        """All data at once."""

        def note(solver: str, k: int, value: float, w: np.ndarray) -> bool:
            # w stays as it is until the next iteration is done: the solver has two in turn.
            self._note(k, value, w)
            return report(solver, k, value, w)

        return self.tagger._descend(likelihood, start, threads, note)

    def step(self, likelihood, start, threads, report) -> SolverResult:
        """One sequence at a time, shard by shard; then as the tagger goes on from there."""
        from sklseq.objectives.likelihood.sharded_steps import ShardVisits

        def note(solver: str, k: int, value: float | None, w: np.ndarray) -> bool:
            self._note(k, value, w.copy())  # the next pass works in place
            return report(solver, k, value, w)

        return self.tagger._step(likelihood, start, threads, note, ShardVisits)

    def _note(self, k: int, value: float | None, w: np.ndarray) -> None:
        # Steps from sequence to sequence do not evaluate the objective: then it is not known.
        value = np.nan if value is None else value
        self.last = (k, value, w)
        self.history.append(value)

    @contextmanager
    def kept_on(self, error: type, finish: Callable[[SolverResult], Any]) -> Iterator:
        """On this error, ``finish`` with the last iteration, and say so, if there was one."""
        try:
            yield
        except error as told:
            if self.last is None:
                raise
            k, value, w = self.last
            finish(SolverResult(w, value, k, True, self.history, "error"))
            raise error(
                f"{told} The model of iteration {k} is kept: after that, go on from there with "
                "warm_start=True."
            ) from told

"""Threads that update different blocks of a margin problem with a Gram matrix at the same time.

Each has the scores of its own rows, and repeats what others changed one or two rounds later. A step
is the best one for the scores of its thread. Simultaneous steps that are alike add less to the dual
objective than the sum of what each adds, and might even lower it: both are compared, and rounds
become shorter. With the same number of threads, the weights are the same in each run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.cpu import load_kernel
from sklseq._lib.threads import Threads

_margin = load_kernel("sklseq.objectives.margin._margin")

# Blocks of a thread in a round, at first; a pass of fewer than FEWEST rounds is for one thread, in
# rounds of ALONE blocks.
SIZE, FEWEST, ALONE = 4, 4, 32
# Rounds become half as long if steps add less than ENOUGH of the sum of what each adds; rounds of
# one block end, and one thread goes on, if they add less than LEAST.
ENOUGH, LEAST = 0.9, 0.5


class Runs(NamedTuple):
    """Blocks ``order[starts[k, r]:stops[k, r]]`` are those of thread k in round r."""

    order: np.ndarray
    starts: np.ndarray
    stops: np.ndarray


class GramThreads:
    """Compiled problems, one for each thread, with the same working sets.

    Parameters
    ----------
    main : HingeBlocks
        The problem, whose weights count.
    copy : callable() -> HingeBlocks
        Returns another one with the same weights.
    threads : Threads
    offsets : ndarray
        Rows of whole sequences.
    """

    def __init__(self, main: Any, copy: Callable[[], Any], threads: Threads, offsets: np.ndarray):
        self.main, self.copy, self.threads = main, copy, threads
        self.cuts = even_cuts(np.diff(offsets), threads.n)  # sequences of each thread
        self.rows = offsets[self.cuts].tolist()
        self.rounds, self.size, self.is_assembled = _margin.Rounds(threads.n), SIZE, False
        self.forget()

    def forget(self) -> None:
        """Make new copies: the weights of ``main`` were changed by others."""
        self.workers: list[Any] = []
        self.dual = np.nan

    def workers_now(self, alone: bool = False) -> list[Any]:
        """The problem of each thread, for the blocks and working sets that ``main`` has now.

        With ``alone``, ``main`` keeps the scores of all rows up to date.
        """
        n = self.threads.n
        if not self.workers:
            self.workers = [self.main] + [self.copy() for _ in range(n - 1)]
        bounds = [0] + [self.rows[-1]] * n if alone else self.rows
        for worker, first, stop in zip(self.workers, bounds, bounds[1:]):
            worker.follow(self.main, first, stop)
        return self.workers

    def adapt(self, dual: float) -> None:
        """Choose the length of rounds by what the dual objective has gained since the last call."""
        of_steps, gain = sum(worker.gain for worker in self.workers), dual - self.dual
        if gain < (ENOUGH if self.size > 1 else LEAST) * of_steps:
            self.size //= 2
        self.dual = dual
        for worker in self.workers:
            worker.gain = 0.0

    @contextmanager
    def assembled(self) -> Iterator[None]:
        """Context in which threads wait for what ``run`` gives them, without the interpreter."""
        if self.is_assembled:
            yield
            return
        workers, self.is_assembled = self.workers_now(), True
        self.rounds.begin()

        def stand_by(k: int) -> None:
            workers[k].stand_by(self.rounds, k)

        try:
            with self.threads.beside(stand_by, self.rounds.dismiss):
                yield
        finally:
            self.is_assembled = False

    def run(self, order: np.ndarray, most: np.ndarray, *effort: Any) -> None:
        """Update the blocks ``order``, with at most ``most`` changes each."""
        n_rounds = len(order) // (self.threads.n * self.size) if self.size else 0
        alone = n_rounds < FEWEST
        runs = self._for_one(order) if alone else self._deal(order, n_rounds)
        total = np.append(0, np.cumsum(most[runs.order]))
        room = int((total[runs.stops] - total[runs.starts]).max(initial=1))
        self.rounds.set_pass(runs, room, *effort)
        with self.assembled():
            self.workers_now(alone)
            self.main.lead(self.rounds)

    def largest_violations(self, blocks: Any, order: np.ndarray, *answers: np.ndarray) -> None:
        """``HingeBlocks.largest_violations`` of the sequences ``order``, sorted, by all threads."""
        cuts = np.searchsorted(order, self.cuts)
        parts = [(order[a:b], *answers) for a, b in zip(cuts, cuts[1:])]
        jobs = list(zip(self.workers_now(), parts))
        self.threads.map(lambda job: job[0].largest_violations(blocks, *job[1]), jobs)

    def _for_one(self, order: np.ndarray) -> Runs:
        # Other threads only repeat what the first one changes.
        cuts = np.append(np.arange(0, len(order), ALONE), len(order))
        starts, stops = np.zeros((2, self.threads.n, len(cuts) - 1), np.int64)
        starts[0], stops[0] = cuts[:-1], cuts[1:]
        return Runs(order, starts, stops)

    def _deal(self, order: np.ndarray, n_rounds: int) -> Runs:
        # A thread has its own sequences, of which alone it has the scores.
        n = self.threads.n
        owner = np.searchsorted(self.cuts[1:-1], order, side="right")
        parts = [order[owner == k] for k in range(n)]
        counts = np.array([len(part) for part in parts])[:, None]
        bounds = counts * np.arange(n_rounds + 1) // n_rounds + np.cumsum(counts)[:, None] - counts
        starts, stops = np.ascontiguousarray(bounds[:, :-1]), np.ascontiguousarray(bounds[:, 1:])
        return Runs(np.concatenate(parts), starts, stops)


def even_cuts(cost: np.ndarray, parts: int) -> np.ndarray:
    """Bounds of so many runs of about equal sums of costs; some may be empty."""
    total = np.append(0, np.cumsum(cost))
    cuts = np.searchsorted(total, np.linspace(0, total[-1], parts + 1))
    cuts[0], cuts[-1] = 0, len(cost)
    return cuts

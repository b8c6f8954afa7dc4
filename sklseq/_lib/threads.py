"""Thread pool for work that releases the GIL, sized like scikit-learn's ``n_jobs``."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from multiprocessing import current_process
from typing import Any, Self

import numpy as np
from joblib import effective_n_jobs, parallel_config
from threadpoolctl import ThreadpoolController  # a dependency of scikit-learn

from sklseq._lib.checks import is_number

MOST_THREADS = 10_000
# Rows from which on several threads work on one sequence: its sums take at least 0.5 ms, starting
# the threads takes some 0.1 ms.
SHARED_ROWS = 1 << 14


def check_n_jobs(n_jobs: Any) -> None:
    """Raise unless ``n_jobs`` is valid, with scikit-learn's meaning."""
    if n_jobs is not None and (not is_number(n_jobs, whole=True) or n_jobs == 0):
        raise ValueError(f"n_jobs must be None or an integer other than 0; got {n_jobs!r}.")
    if n_jobs is not None and n_jobs > MOST_THREADS:
        raise ValueError(f"n_jobs must be at most {MOST_THREADS}; got {n_jobs}.")


def n_threads(n_jobs: int | None) -> int:
    """``n_jobs`` as a number of threads, checked."""
    check_n_jobs(n_jobs)
    if not current_process().daemon:
        return effective_n_jobs(n_jobs)
    # A worker of multiprocessing.Pool has no processes of its own, so that joblib's default backend
    # would answer 1, with a warning.
    with parallel_config("threading"):
        return effective_n_jobs(n_jobs)


@cache
def _libraries() -> ThreadpoolController:
    # To find them takes as long as an evaluation of a small objective.
    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager:
    """Context in which BLAS has one thread."""
    return _libraries().limit(limits=1, user_api="blas")


class Threads:
    """``map`` over pieces of work with the calling thread and ``n_jobs - 1`` others, in order.

    The pool exists as long as the ``with`` block: ``map`` costs some 20 µs, without the start of
    threads. The calling thread works too, because waiting for each piece would take the
    interpreter lock once per piece.
    """

    def __init__(self, n_jobs: int | None):
        self.n = n_threads(n_jobs)
        self._pool = ThreadPoolExecutor(self.n - 1) if self.n > 1 else None

    def map(self, work: Callable[[Any], Any], pieces: Iterable[Any]) -> list[Any]:
        """Return results in the order of the pieces; raise the error of the first failed piece."""
        pieces = list(pieces)
        if self._pool is None or len(pieces) < 2:
            return [work(piece) for piece in pieces]
        queue = _Queue(work, pieces)
        helpers = [self._pool.submit(queue.run) for _ in range(min(self.n, len(pieces)) - 1)]
        try:
            queue.run()
        finally:
            queue.stopped = True  # queue.run may have been interrupted
            wait(helpers)
        for helper in helpers:
            helper.result()
        if queue.errors:
            raise queue.errors[min(queue.errors)]
        return queue.answers

    @contextmanager
    def beside(self, work: Callable[[int], Any], stop: Callable[[], None]) -> Iterator[None]:
        """Context in which the other threads run ``work(1)``, ``work(2)``, … until ``stop()``."""
        helpers: list[Future] = []
        try:
            for k in range(1, self.n if self._pool else 1):
                helpers.append(self._pool.submit(work, k))
            yield
        finally:
            stop()
            wait(helpers)
        for helper in helpers:
            helper.result()

    def share(self, offsets: np.ndarray, block: tuple[int, int]) -> bool:
        """Whether the threads work together on a block of sequences: it is one long sequence.

        Only two threads take part in its sums. With more threads, the sequence must therefore have
        more than 1 / n of all rows.
        """
        rows = offsets[block[1]] - offsets[block[0]]
        if self.n == 1 or block[1] - block[0] > 1 or rows < SHARED_ROWS:
            return False
        return self.n == 2 or bool(self.n * rows > offsets[-1])

    def without_blas_threads(self) -> AbstractContextManager:
        """Context in which BLAS has one thread, if this pool has several.

        The thread that starts the others must enter it, because only that thread can set the limit.
        """
        return one_blas_thread() if self.n > 1 else nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class _Queue:
    # Pieces start in order, so that the first one that fails is always run.
    def __init__(self, work: Callable[[Any], Any], pieces: list[Any]):
        self.work, self.pieces = work, pieces
        self.answers, self.errors = [None] * len(pieces), {}
        self.waiting, self.stopped = deque(range(len(pieces))), False

    def run(self) -> None:
        while not self.stopped:
            try:
                k = self.waiting.popleft()
            except IndexError:
                break
            try:
                self.answers[k] = self.work(self.pieces[k])
            except Exception as error:
                self.errors[k], self.stopped = error, True


class BufferPool:
    """Scratch buffers for pieces of work, at most one per thread."""

    def __init__(self, make: Callable[[], Any]):
        self._make, self._free = make, []

    @contextmanager
    def buffer(self) -> Iterator[Any]:
        """Context with a buffer for exclusive use, which holds the values of its previous use."""
        try:
            buffer = self._free.pop()
        except IndexError:
            buffer = self._make()
        yield buffer
        self._free.append(buffer)


def in_parts(threads: Threads | None, work: Callable[[slice], Any], n: int) -> None:
    """Call ``work`` for slices of ``range(n)``: one for each thread; without threads, for all."""
    if threads is None:
        work(slice(0, n))
    else:
        threads.map(lambda part: work(slice(*part)), spans(n, threads.n))


def runs_of(blocks: list, sizes: list, parts: int) -> list[list]:
    """Cut blocks into at most ``parts`` runs of about the same total size.

    A block goes to the run in whose share of the total its middle lies.
    """
    middles = np.cumsum(sizes) - np.asarray(sizes) / 2
    cuts = np.searchsorted(middles, np.linspace(0, sum(sizes), parts + 1)[1:-1])
    cuts = [0, *cuts.tolist(), len(blocks)]
    runs = (blocks[a:b] for a, b in zip(cuts[:-1], cuts[1:]))
    return [run for run in runs if run]


def spans(n: int, parts: int, align: int = 1) -> list[tuple[int, int]]:
    """Cut ``range(n)`` into at most ``parts`` runs of about equal length."""
    if parts == 1:  # as often with short vectors, where the rest takes as long as the work
        return [(0, n)] if n else []
    cuts = np.linspace(0, n, parts + 1).astype(int) // align * align
    cuts[-1] = n
    return [(int(a), int(b)) for a, b in zip(cuts[:-1], cuts[1:]) if b > a]

"""A pool of threads for work that releases the GIL, sized as scikit-learn's ``n_jobs``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from joblib import effective_n_jobs

__all__ = ["Rooms", "Threads", "spans"]


class Threads:
    """``map`` over a few large pieces of work; answers come in the order of the pieces.

    The pool lives as long as the ``with`` block: an iteration of a solver costs some 50 µs of
    hand-over, not the start of a pool.
    """

    def __init__(self, n_jobs: int | None):
        self.n = effective_n_jobs(n_jobs)
        self._pool = ThreadPoolExecutor(self.n) if self.n > 1 else None

    def map(self, work: Callable[[Any], Any], pieces: Iterable[Any]) -> list[Any]:
        pieces = list(pieces)
        if self._pool is None or len(pieces) < 2:
            return [work(piece) for piece in pieces]
        return list(self._pool.map(work, pieces))

    def __enter__(self) -> Threads:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()


class Rooms:
    """Scratch memory that pieces of work take and give back: as many as there are threads."""

    def __init__(self, make: Callable[[], Any]):
        self._make, self._free = make, []

    @contextmanager
    def one(self) -> Iterator[Any]:
        """Memory that nobody else has in the meantime; what it holds is of whoever had it last."""
        try:
            room = self._free.pop()
        except IndexError:
            room = self._make()
        yield room
        self._free.append(room)


def spans(n: int, parts: int, align: int = 1) -> list[tuple[int, int]]:
    """Cut ``range(n)`` into at most ``parts`` runs of about equal length."""
    cuts = np.linspace(0, n, parts + 1).astype(int) // align * align
    cuts[-1] = n
    return [(int(a), int(b)) for a, b in zip(cuts[:-1], cuts[1:]) if b > a]

"""Batches of sequences that several threads work on together, in the form of ``batches.pxd``."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# Least number of sequences for each thread.
LEAST = 100
# Weights of 2 ** GROUP dense columns, or of 2 ** SPARSE_GROUP pairs, belong to one thread, so that
# threads do not write into the same cache lines. Groups are counted in SAMPLE entries; the LARGEST
# are given to threads one by one.
GROUP, SPARSE_GROUP, LARGEST, SAMPLE = 3, 4, 256, 1 << 17
# Counters are this many numbers apart: a cache line, and the one that is fetched with it.
APART = 16


class BatchPlan(NamedTuple):
    """Sequences in the order of updates, cut into batches.

    Attributes
    ----------
    order : ndarray
        Numbers of the sequences.
    lengths : ndarray
    first : ndarray of shape (n_batches + 1,)
        First sequence of each batch.
    counters : ndarray
        Of work that is begun or done.
    undos : ndarray of shape (n_batches + 1,)
        Number of batches before each of which steps were undone.
    n_parts : int
        Number of threads, and of parts of the weights.
    """

    order: np.ndarray
    lengths: np.ndarray
    first: np.ndarray
    counters: np.ndarray
    undos: np.ndarray
    n_parts: int

    @classmethod
    def of(cls, order: np.ndarray, lengths: np.ndarray, n_threads: int, each: int) -> BatchPlan:
        """Batches of ``each`` sequences for each thread; of a single one for one thread."""
        n = max(min(n_threads, len(order) // LEAST), 1)
        size = 1 if n == 1 else each * n
        first = np.append(np.arange(0, len(order), size), len(order))
        counters = np.zeros(APART * (5 + 2 * n), np.int64)
        return cls(order, lengths, first, counters, np.zeros_like(first), n)

    @property
    def n_slots(self) -> int:
        """Number of sequences of the largest batch."""
        return int(np.diff(self.first).max(initial=1))

    def places(self, sizes: np.ndarray) -> tuple[np.ndarray, int]:
        """Sum of the ``sizes`` before each sequence in its batch; the largest sum of a batch."""
        ends = np.append(0, np.cumsum(sizes))
        before = np.repeat(ends[self.first[:-1]], np.diff(self.first))
        return ends[:-1] - before, max(int((ends[1:] - before).max(initial=1)), 1)


def owners(column: np.ndarray, n_columns: int, group: int, n_parts: int) -> np.ndarray:
    """Part of each group of 2 ** ``group`` columns: parts have about as many entries.

    ``column`` are the columns of all entries.
    """
    n_groups = (n_columns + (1 << group) - 1) >> group
    some = column[:: 1 + len(column) // SAMPLE] >> group
    counts = np.bincount(some, minlength=n_groups)
    by_count = np.argsort(-counts, kind="stable")
    # Groups with about equal counts belong to the parts in turn, forth and back.
    turn = np.arange(n_groups) % (2 * n_parts)
    owner = np.empty(n_groups, np.uint16)
    owner[by_count] = np.where(turn < n_parts, turn, 2 * n_parts - 1 - turn)
    total = np.zeros(n_parts)
    for g in by_count[:LARGEST]:
        owner[g] = np.argmin(total)
        total[owner[g]] += counts[g]
    return owner

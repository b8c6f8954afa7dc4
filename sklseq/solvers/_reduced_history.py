"""Pairs of L-BFGS for very many weights, restricted to the weights that change most.

``Search`` uses :class:`ReducedHistory` in place of ``History`` above a million weights.
"""

from copy import deepcopy

import numpy as np

from sklseq._lib.threads import Threads, spans
from sklseq.solvers._block_metric import BlockMetric
from sklseq.solvers._history import History

# Pairs have entries for at least 1 / PART of the weights. (3.5 million weights, most of them for
# feature and labels that never occur together: 46, 48, 49 and 62 iterations with 1/8, 1/16, 1/32
# and 1/64 of the weights, 48 with all.)
PART = 16
# Largest fraction of Σ (|y| + |v|)² that the weights without entries may have. (CoNLL-2000, 2,000
# sentences with all states, 2.1 million weights, tol = 0.01, with and without l1: 0.56 to 0.76 of
# the time of whole pairs; the objective is at most 0.03 % higher.)
REST = 0.01


class ReducedHistory(History):
    """A :class:`History` that stores pairs for a selection of the weights.

    Weights that combine a rare feature with a label it never has are almost constant: they change
    the products of the pairs by less than a thousandth, but take most of the time and memory. So
    only the weights with the largest |y| + |v| are selected: a sixteenth, an eighth, … or all,
    until the squares of the others sum to at most ``REST`` of the total. The selection is renewed
    after 1, 2, 4, 8, … pairs; a newly selected weight has 0 in the older pairs. For weights that
    are not selected, the inverse Hessian is a multiple of the identity.
    """

    has_whole_pairs = False

    def __init__(
        self, n: int, memory: int, dtype: np.dtype, threads: Threads, free_only: bool = False
    ):
        self.n, self.n_pushed, self.at = n, 0, np.zeros(0, dtype=np.intp)
        self.of_metric, self.least, self.dtype = self.at, n // PART, dtype
        super().__init__(self.least, memory, dtype, threads, free_only)
        self.spans = spans(n, threads.n, align=512)

    def use(self, metric: BlockMetric) -> None:
        """See :class:`History`; its weights are selected from the next selection on."""
        self.of_metric, self.least = metric.at, max(self.least, len(metric.at))
        super().use(deepcopy(metric))
        if len(self.at):
            self._keep(np.union1d(self.at, metric.at), self.dtype)

    def push(self, step, scale: float, gradient, previous, v) -> None:
        """See :class:`History`; renews the selection if the number of pairs is a power of 2."""
        self.n_pushed += 1
        if self.n_pushed & (self.n_pushed - 1) == 0:
            self._choose(np.abs(gradient - previous) + np.abs(v))
        at = self.at
        super().push(step[at], scale, gradient[at], previous[at], v[at])
        self.with_v[-1] = self.dot(v, v)

    def oldest_first(self) -> list:
        """The pairs (s, y), of the length of w, with 0 for weights that are not selected."""
        found = np.zeros((2 * self.used, self.n), dtype=self.pairs.dtype)
        rows = [row for pair in super().oldest_first() for row in pair]
        for whole, row in zip(found, rows):
            whole[self.at] = row
        return list(zip(found[::2], found[1::2]))

    def direction(self, v: np.ndarray, out: np.ndarray, free: np.ndarray | None = None) -> float:
        if not len(self.at):
            self._choose(np.abs(v))
        at, part = self.at, np.empty(len(self.at), dtype=out.dtype)
        factor = super().direction(v[at], part, None if free is None else free[at])
        np.multiply(v, factor, out=out)
        out[at] = part
        return factor

    def _choose(self, size: np.ndarray) -> None:
        # Select the weights of largest ``size`` and those of the metric; overwrites ``size``.
        size *= size
        k, allowed = self.least, REST * size.sum()
        size[self.of_metric] = np.inf
        parted = np.partition(size, -k)
        while parted[:-k].sum() > allowed:
            k = min(2 * k, self.n)
            parted = np.partition(size, -k)
        least = parted[-k]
        at = np.flatnonzero(size > least)
        ties = np.flatnonzero(size == least)[: k - len(at)]
        self._keep(np.sort(np.append(at, ties)), size.dtype)

    def _keep(self, at: np.ndarray, dtype: np.dtype) -> None:
        # Make ``at`` the columns of the pairs; columns selected before keep their entries.
        _, old, new = np.intersect1d(self.at, at, assume_unique=True, return_indices=True)
        pairs = np.zeros((len(self.pairs), len(at)), dtype=self.pairs.dtype)
        pairs[:, new] = self.pairs[:, old]
        self.pairs, self.at = pairs, at
        self.columns = spans(len(at), self.threads.n, align=512)
        if self.metric is not None:
            self.metric.at = np.searchsorted(at, self.of_metric)
        none, self.free = np.zeros(len(at), dtype), np.zeros(0, dtype=bool)
        self.gram = self._products_among(np.ones(len(at), dtype=bool), none)[:-1, :-1].copy()

"""Inverse Hessian of L-BFGS in the basis of its pairs."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from sklseq._lib.cpu import load_kernel
from sklseq._lib.threads import Threads, spans
from sklseq._lib.tiny import TINY
from sklseq.solvers._block_metric import BlockMetric

_vectors = load_kernel("sklseq.solvers._vectors")

# Above this many weights pairs are stored in float32, which halves the memory traffic. Pairs affect
# the search direction only; values, gradients and weights keep their type.
LARGE = 1 << 16
# Another thread takes part if each has this many numbers: a wake-up takes as long as 0.2 million.
PER_THREAD = 1 << 18
# The inverse Hessian before updates is the identity times the largest s · y / y · y of so many
# pairs: a mean of inverse curvatures in which large curvatures count most, so one pair's is often
# too small. (Evaluations relative to those with one pair: segmenters 0.97, with the softmax-margin
# 0.96, on four corpora; taggers 0.88 to 0.95 on text and headers, 1.0 to 1.06 on addresses and
# references, whose fits take 0.3 s or less. Three pairs: as many, but more steps are too long.)
LATEST = 2
# Products over free weights are updated by the weights that became free or are so no more, if these
# are at most CHANGED of the free ones. They are computed anew if the squares of a vector fall below
# LOST of what they were: then digits are lost.
CHANGED, LOST = 0.5, 1e-6
# Pairs are dropped if the cosine of s and y is smaller: they hold no curvature but rounding.
LEAST_CURVATURE = 1e-10


class History:
    """The last ``memory`` pairs s = w - w_old, y = g - g_old, and their inner products.

    The two-loop recursion (Nocedal, Wright 2006, Algorithm 7.4) is run on coefficients in the basis
    (s_1 … s_m, y_1 … y_m, v), given the matrix of inner products (Chen, Wang, Zhou 2014): long
    vectors are read once for the products and once for the combination.

    With a metric, see :meth:`use`, the recursion starts from its inverse in place of the identity.

    Parameters
    ----------
    n : int
        Number of weights.
    memory : int
    dtype : numpy dtype
        Type of the weights.
    threads : Threads
    free_only : bool
        Whether :meth:`direction` is always given the free weights. Products over all weights are
        then of the newest pair only.
    """

    has_whole_pairs = True  # s and y have entries for all weights

    def __init__(
        self, n: int, memory: int, dtype: np.dtype, threads: Threads, free_only: bool = False
    ):
        kept = np.float32 if n > LARGE else dtype
        self.pairs = np.zeros((2 * memory, n), dtype=kept)
        self.memory, self.used, self.slot = memory, 0, -1
        self.gram = np.zeros((2 * memory, 2 * memory))
        self.with_v = np.zeros(2 * memory + 1)  # the last one is v · v
        # Products of pairs and v over the weights that were free, and how many pairs are newer.
        self.among, self.free = np.zeros((2 * memory + 1,) * 2), np.zeros(0, dtype=bool)
        self.n_newer, self.free_only = 0, free_only
        self.metric: BlockMetric | None = None
        # B⁻¹ y - y of each pair with all weights free, where `is_known`.
        self.changes, self.is_known = np.zeros((memory, 0)), np.zeros(memory, dtype=bool)
        self.threads = threads
        # For vectors, and for pairs.
        self.spans = spans(n, min(threads.n, 1 + n // PER_THREAD), align=512)
        self.columns = spans(n, min(threads.n, 1 + n * memory // PER_THREAD), align=512)

    def dot(self, a: np.ndarray, b: np.ndarray) -> float:
        """Inner product of two long vectors, in float64 and a fixed order."""
        return sum(self.in_spans(_vectors.dot, a, b))

    def step_from(self, w: np.ndarray, t: float, p: np.ndarray, out: np.ndarray) -> None:
        """out = w + t · p."""
        self.in_spans(_vectors.step_from, w, t, p, out)

    def combine(self, c: np.ndarray, v: np.ndarray, out: np.ndarray) -> None:
        """out = the combination of (s_1 … s_m, y_1 … y_m, v) with coefficients c."""
        self.threads.map(
            lambda span: _vectors.combine(self.pairs, c, v, self.used, out, *span), self.columns
        )

    def in_spans(self, kernel: Callable, *args: Any) -> list:
        """``kernel(*args, first, last)`` of each thread's span of the weights."""
        return self.threads.map(lambda span: kernel(*args, *span), self.spans)

    def push(self, step, scale: float, gradient, previous, v) -> None:
        """Add the pair (scale · step, gradient - previous), and update the products with v."""
        m, slot = self.memory, (self.slot + 1) % self.memory
        used = min(self.used + 1, m)
        self.n_newer += 1
        given = step, scale, gradient, previous, v, slot, used, self.free_only
        products = self._sum_over_columns(_vectors.store_and_multiply, (2 * m + 1, 3), *given)
        self.with_v = products[:, 2]
        ss, sy, yy = products[slot, 0], *products[m + slot, :2]
        if sy > LEAST_CURVATURE * np.sqrt(ss * yy):
            self.slot, self.used, self.is_known[slot] = slot, used, False
            self.gram[slot, :] = self.gram[:, slot] = products[:-1, 0]
            self.gram[m + slot, :] = self.gram[:, m + slot] = products[:-1, 1]
        else:  # no positive curvature: the older pairs do not describe this region either
            self.forget()

    def take_over(self, pairs: Iterable, v: np.ndarray) -> None:
        """Add pairs (s, y) of another run, oldest first; v is the subgradient at the start."""
        zero = np.zeros_like(v)
        for step, change in pairs:
            self.push(step.astype(v.dtype), 1.0, change.astype(v.dtype), zero, v)

    def oldest_first(self) -> list:
        """The pairs (s, y)."""
        m = self.memory
        slots = [(self.slot - k) % m for k in reversed(range(self.used))]
        return [(self.pairs[i], self.pairs[m + i]) for i in slots]

    def forget(self) -> None:
        self.used, self.slot, self.free = 0, -1, self.free[:0]

    def use(self, metric: BlockMetric) -> None:
        """Go on with another metric."""
        self.metric, self.changes = metric, np.zeros((self.memory, len(metric.at)))
        self.is_known[:] = False

    def unit_step(self) -> float:
        """s · y / y · y of the newest pair, a scale of the inverse Hessian."""
        i, j = self.slot, self.memory + self.slot
        return float(self.gram[i, j] / self.gram[j, j])

    def direction(self, v: np.ndarray, out: np.ndarray, free: np.ndarray | None = None) -> float:
        """Write -H v into ``out``; without pairs H is the identity, scaled to a step of length 1.

        With ``free``, a boolean mask, H is built from the entries of the pairs for free weights,
        and only these entries of ``out`` are valid. Returns the factor of v in ``out``.
        """
        m, gram, with_v = self.memory, self.gram, self.with_v
        if free is not None:
            both = self._products_among(free, v)
            gram, with_v = both[:-1, :-1], both[-1]
        pairs = self._curved_pairs(gram)
        change, by_metric = 0.0, np.array([m + i for i in pairs] + [2 * m])
        if self.metric is not None:
            at = self.metric.at
            rows = np.vstack([self.pairs[np.ix_(by_metric[:-1], at)], v[at]])
            change = self._changes(pairs, rows, free)
            gram, with_v = _in_metric(gram, with_v, by_metric, rows @ change.T)
        c = np.zeros(2 * m + 1)
        if pairs:
            _vectors.two_loops(np.array(pairs), gram, with_v, LATEST, c)
        else:
            c[-1] = -1 / max(np.sqrt(with_v[-1]), TINY)
        self.combine(c, v, out)
        if self.metric is not None:
            out[self.metric.at] += c[by_metric] @ change
        return float(c[-1])

    def _curved_pairs(self, gram: np.ndarray) -> list:
        # Numbers of the pairs with curvature, from the newest.
        m = self.memory
        slots, squares = (self.slot - np.arange(self.used)) % m, gram.diagonal()
        s_y = gram.diagonal(m)[slots]
        return slots[s_y > LEAST_CURVATURE * np.sqrt(squares[slots] * squares[m + slots])].tolist()

    def _changes(self, pairs: list, rows: np.ndarray, free: np.ndarray | None) -> np.ndarray:
        # B⁻¹ z - z for the y of each pair and for v, the ``rows``.
        if free is not None:
            return self.metric.change(rows, free, self.threads)
        new = [k for k, i in enumerate(pairs) if not self.is_known[i]]
        found, slots = (
            self.metric.change(rows[[*new, -1]], None, self.threads),
            [pairs[k] for k in new],
        )
        self.changes[slots], self.is_known[slots] = found[:-1], True
        return np.vstack([self.changes[pairs], found[-1:]])

    def _products_among(self, free: np.ndarray, v: np.ndarray) -> np.ndarray:
        # Inner products of all pairs and v over the free weights.
        m, at, among = self.memory, self.slot, self.among
        if not self._update_among(free):
            none = np.zeros_like(free)
            among[:-1, :-1] = self._products_of_pairs(none, free)
        self.free, self.n_newer = free, 0
        given = free.view(np.uint8), v, max(at, 0), self.used
        products = self._sum_over_columns(_vectors.products_with_newest, (2 * m + 1, 3), *given)
        if self.used:
            among[[at, m + at]] = products[:, :2].T
            among[:, [at, m + at]] = products[:, :2]
        among[-1] = among[:, -1] = products[:, 2]
        return among

    def _update_among(self, free: np.ndarray) -> bool:
        # Update the products of pairs, but the newest, by what changed; False if they have to be
        # computed anew.
        if self.n_newer > 1 or len(self.free) != len(free):
            return False
        n_changed = np.count_nonzero(free != self.free)
        if n_changed > CHANGED * np.count_nonzero(free):
            return False
        if not n_changed:
            return True
        squares = self.among.diagonal()[:-1]  # a view
        before = squares.copy()
        self.among[:-1, :-1] += self._products_of_pairs(self.free, free)
        is_lost = squares < LOST * before
        is_lost[[self.slot, self.memory + self.slot]] = False  # computed anew
        return not is_lost.any()

    def _products_of_pairs(self, before: np.ndarray, free: np.ndarray) -> np.ndarray:
        # Inner products of pairs over the free weights, less those over the free ones before.
        given = before.view(np.uint8), free.view(np.uint8), self.used
        return self._sum_over_columns(_vectors.products_among, (2 * self.memory,) * 2, *given)

    def _sum_over_columns(self, kernel: Callable, shape: tuple, *args: Any) -> np.ndarray:
        # Sum of what ``kernel(pairs, *args, out, first, last)`` writes for each thread's columns.
        def of_span(span):
            out = np.zeros(shape)
            kernel(self.pairs, *args, out, *span)
            return out

        return sum(self.threads.map(of_span, self.columns))


def _in_metric(
    gram: np.ndarray, with_v: np.ndarray, at: np.ndarray, more: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    # Inner products with ``more`` added to those among ``at``: the y of the pairs, and v last.
    both = np.zeros((len(with_v), len(with_v)))
    both[:-1, :-1], both[-1], both[:, -1] = gram, with_v, with_v
    both[np.ix_(at, at)] += more
    return both[:-1, :-1], both[-1]

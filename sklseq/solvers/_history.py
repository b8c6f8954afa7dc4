"""The inverse Hessian of L-BFGS in the basis of its pairs."""

from __future__ import annotations

import numpy as np

from sklseq._cpu import load_kernel
from sklseq._threads import Threads, spans

_vectors = load_kernel("sklseq.solvers._vectors")

__all__ = ["History"]

# Above this many weights the pairs are kept in float32: half the memory traffic of an iteration.
# Pairs only shape the search direction; values, gradients and weights keep their type.
LARGE = 1 << 16


class History:
    """The last ``memory`` pairs s = w - w_old, y = g - g_old, and their inner products.

    The two-loop recursion (Nocedal, Wright 2006, Algorithm 7.4) is run on coefficients in the basis
    (s_1 … s_m, y_1 … y_m, v), given the matrix of inner products (Chen, Wang, Zhou 2014): long
    vectors are read once to multiply and once to combine.
    """

    def __init__(self, n: int, memory: int, dtype: np.dtype, threads: Threads):
        kept = np.float32 if n > LARGE else dtype
        self.pairs = np.zeros((2 * memory, n), dtype=kept)
        self.memory, self.used, self.slot = memory, 0, -1
        self.gram = np.zeros((2 * memory, 2 * memory))
        self.with_v = np.zeros(2 * memory + 1)  # the last is v · v
        self.threads, self.spans = threads, spans(n, threads.n, align=512)

    def dot(self, a: np.ndarray, b: np.ndarray) -> float:
        """Inner product of two long vectors, in float64 and a fixed order."""
        return sum(self.threads.map(lambda span: _vectors.dot(a, b, *span), self.spans))

    def step_from(self, w: np.ndarray, t: float, p: np.ndarray, out: np.ndarray) -> None:
        """out = w + t · p."""
        self.threads.map(lambda span: _vectors.step_from(w, t, p, out, *span), self.spans)

    def push(self, step, scale: float, gradient, previous, v) -> None:
        """Add the pair (scale · step, gradient - previous), and meet the new v."""
        m, slot = self.memory, (self.slot + 1) % self.memory
        used = min(self.used + 1, m)

        def multiply(span):
            products = np.empty((2 * m + 1, 3))
            _vectors.store_and_multiply(
                self.pairs, step, scale, gradient, previous, v, slot, used, products, *span
            )
            return products

        products = sum(self.threads.map(multiply, self.spans))
        self.with_v = products[:, 2]
        curvature = products[m + slot, 0]
        if curvature > 1e-10 * np.sqrt(products[slot, 0] * products[m + slot, 1]):
            self.slot, self.used = slot, used
            self.gram[slot, :] = self.gram[:, slot] = products[:-1, 0]
            self.gram[m + slot, :] = self.gram[:, m + slot] = products[:-1, 1]
        else:  # no curvature to learn from: forget everything rather than half of it
            self.used, self.slot = 0, -1

    def direction(self, v: np.ndarray, out: np.ndarray) -> None:
        """out = -H v; at first H is the identity, scaled so that the step has length 1."""
        c = np.zeros(2 * self.memory + 1)
        if self.used == 0:
            c[-1] = -1 / max(np.sqrt(self.dot(v, v)), 1e-300)
        else:
            self._two_loops(c)
        self.threads.map(
            lambda span: _vectors.combine(self.pairs, c, v, self.used, out, *span), self.spans
        )

    def _two_loops(self, c: np.ndarray) -> None:
        m, gram = self.memory, self.gram
        newest_first = [(self.slot - k) % m for k in range(self.used)]
        a = np.zeros(m)
        c[-1] = -1.0
        for i in newest_first:
            a[i] = (c[:-1] @ gram[:, i] + c[-1] * self.with_v[i]) / gram[i, m + i]
            c[m + i] -= a[i]
        i = self.slot
        c *= gram[i, m + i] / gram[m + i, m + i]
        for i in reversed(newest_first):
            b = (c[:-1] @ gram[:, m + i] + c[-1] * self.with_v[m + i]) / gram[i, m + i]
            c[i] += a[i] - b

"""Sums and best paths of one long sequence by several threads; equations: ``_halves.pyx``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sklseq._lib.cpu import load_kernel

if TYPE_CHECKING:  # as in linear_chain
    from sklseq._lib.threads import Threads

_chain = load_kernel("sklseq.inference.kernels._chain")
_halves = load_kernel("sklseq.inference.kernels._halves")

# Rows of a part that are computed from both starting rows before the results are compared.
JOIN = 512


def sums_by_halves(
    psi: np.ndarray, weight: float | None, chain: Any, work: Any, threads: Threads, many: bool
) -> float:
    """Scaled forward-backward of one sequence of at least two rows, as ``Workspace`` does it.

    Returns log Z, or NaN if the sequence needs the log domain. ``psi`` are padded scores with start
    and end scores, which become marginals unless NaN is returned; ``weight`` multiplies the pair
    marginals added to ``work.pairwise`` (None: there are none); ``chain`` is exponentiated, without
    ``pairs``; ``many``: whether there are so many labels that pair marginals are added up in
    batches.
    """
    T, L, alpha = len(psi), chain.n_labels, work.alpha
    log_c = _forward_halves(psi, chain, work, threads)
    work.keep_factors(T)
    if np.isnan(log_c):
        return np.nan
    left, right = alpha[T // 2 - 1, :L].astype(np.float64), alpha[T // 2, :L].astype(np.float64)
    E = chain.E[:L, :L].astype(np.float64)
    c = float(left @ E @ right)
    if c < _chain.FLOOR[chain.dtype]:
        return np.nan
    psi[T // 2 - 1, :L], psi[T // 2, :L] = E @ right / c, left @ E / c
    pairs = _backward_halves(psi, chain, work, threads, weight is not None, many)
    if weight is not None:
        pairs[0, :L, :L] += np.outer(left, right / c)
        work.pairwise += weight * (pairs[0] + pairs[1])
    return float(log_c + np.log(c) + work.shift[:T].sum(dtype=np.float64) + (T - 1) * chain.top)


def _forward_halves(psi: np.ndarray, chain: Any, work: Any, threads: Threads) -> float:
    # alpha of both halves, each from its end of the sequence; the sum of log c, or NaN.
    def forward(half: int) -> float:
        at = _rows_of_half(len(psi), half)
        _chain.scale_rows(psi[at], work.e[at], work.shift[at], chain.n_labels)
        return _halves.forward_half(
            psi[at], work.e[at], chain.factors[half], work.alpha[at], work.inverse_c[at], half,
            chain.n_labels, chain.check,
        )  # fmt: skip

    return sum(threads.map(forward, (0, 1)))


def _backward_halves(
    psi: np.ndarray, chain: Any, work: Any, threads: Threads, with_pairs: bool, many: bool
) -> np.ndarray:
    # Marginals of both halves, each from the middle; their pair marginals, 0 unless ``with_pairs``.
    pairs = np.zeros((2, chain.width, chain.width))
    scratch = np.empty_like(chain.factors)

    def backward(half: int) -> None:
        at = _rows_of_half(len(psi), half)
        _halves.backward_half(
            work.alpha[at], work.inverse_c[at], work.e[at], chain.factors[1 - half], psi[at],
            scratch[half], pairs[half] if with_pairs else None, half, chain.n_labels, many,
        )  # fmt: skip

    threads.map(backward, (0, 1))
    return pairs


def _rows_of_half(T: int, half: int) -> slice:
    return slice(T // 2, T) if half else slice(0, T // 2)


class SharedRows(NamedTuple):
    """The rows of one long sequence, which several threads work on.

    Attributes
    ----------
    threads : Threads
    score : callable
        ``score(a, b)`` writes the scores of rows a to b - 1 anew, without start and end scores.
    """

    threads: Threads
    score: Callable[[int, int], None]


def best_path_in_parts(
    psi: np.ndarray, chain: Any, labels: np.ndarray, shared: SharedRows
) -> float:
    """Viterbi on one sequence with one part in each thread; labels are the same as with one thread.

    Returns the score of the path, -inf if none is allowed, and writes its ``labels``. ``psi`` are
    padded scores with start and end scores, which are overwritten; ``chain`` has no ``pairs``.

    The recursion of a part starts before the row delta_{a-1} that it needs is known, as if the
    sequence began with the part. Once delta_{a-1} is known, the first ``JOIN`` rows are computed
    again. If the last of them is the same, bit by bit, so are all rows after it, since each row is
    a function of the row before. This holds once all best paths share a label, which most models
    reach after a few rows. Otherwise the whole part is scored and computed again. The traceback
    works in the same way.
    """
    T, threads = len(psi), shared.threads
    cuts = np.linspace(0, T, min(threads.n, max(T // (2 * JOIN), 1)) + 1).astype(int).tolist()
    ends, paths = list(zip(cuts[:-1], cuts[1:])), _PathParts(psi, chain, labels)
    guesses = threads.map(paths.guess, ends)
    total = sum(score for _, score in guesses)
    for (a, b), (given, rest) in zip(ends[1:], guesses[1:]):
        if total == -np.inf:
            return total
        score, joined = paths.join(a, given)
        total += score
        if not joined and total > -np.inf:
            shared.score(a + JOIN, b)
            total += paths.again(a + JOIN, b) - rest
    for a, b in reversed(ends if total > -np.inf else []):
        paths.trace(a, b)
    return total


class _PathParts(NamedTuple):
    # The parts of a sequence in `best_path_in_parts`; a part is a pair (a, b), for rows a to b - 1.

    psi: np.ndarray
    chain: Any
    labels: np.ndarray

    def guess(self, part: tuple[int, int]) -> tuple[np.ndarray | None, float]:
        # Run the recursion of a part without the row before it. Returns a copy of the scores of its
        # first JOIN rows, and the score of its best path after these.
        (a, b), psi = part, self.psi
        if a == 0:
            return None, self._run(psi[:b], 0)
        m = a + JOIN
        given = psi[a:m].copy()
        if self._run(psi[a:m], a) == -np.inf:
            return given, -np.inf
        self._enter(psi[m], psi[m - 1])
        return given, self._run(psi[m:b], m)

    def join(self, a: int, given: np.ndarray) -> tuple[float, bool]:
        # Compute the first rows again, whose scores are ``given``, now that the row before them is
        # known. Returns the score of their best path, and whether the guess holds for later rows.
        at = slice(a, a + JOIN)
        self._enter(given[0], self.psi[a - 1])
        score = self._run(given, a)
        L = self.chain.n_labels
        joined = np.array_equal(given[-1, :L], self.psi[at.stop - 1, :L])
        self.psi[at] = given
        return score, joined

    def again(self, m: int, b: int) -> float:
        # Compute rows m to b - 1, which have been scored again, after row m - 1.
        if b == len(self.psi):
            self.psi[-1] += self.chain.end
        self._enter(self.psi[m], self.psi[m - 1])
        return self._run(self.psi[m:b], m)

    def trace(self, a: int, b: int) -> None:
        # Write the labels of a part, the last label of which is known.
        at, chain = slice(a, min(b + 1, len(self.psi))), self.chain
        _halves.trace_from(
            self.psi[at], chain.score_t, self.labels[at], JOIN if a else 0, chain.n_labels
        )

    def _run(self, rows: np.ndarray, at: int) -> float:
        score = np.zeros(1)
        path = self.labels[at : at + len(rows)]
        _chain.best_paths(rows, np.array([0, len(rows)]), self.chain, path, score)
        return float(score[0])

    def _enter(self, row: np.ndarray, before: np.ndarray) -> None:
        L = self.chain.n_labels
        row[:L] += (before[:L, None] + self.chain.score[:L, :L]).max(axis=0)

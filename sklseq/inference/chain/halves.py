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
    T, L, (e, alpha, inverse_c) = len(psi), chain.n_labels, (work.e, work.alpha, work.inverse_c)
    rows, shift = (slice(0, T // 2), slice(T // 2, T)), work.shift

    def forward(half: int) -> float:
        at = rows[half]
        _chain.scale_rows(psi[at], e[at], shift[at], L)
        return _halves.forward_half(
            psi[at], e[at], chain.factors[half], alpha[at], inverse_c[at], half, L, chain.check
        )

    log_c = sum(threads.map(forward, (0, 1)))
    work.keep_factors(T)
    if np.isnan(log_c):
        return np.nan
    left, right = alpha[T // 2 - 1, :L].astype(np.float64), alpha[T // 2, :L].astype(np.float64)
    E = chain.E[:L, :L].astype(np.float64)
    c = float(left @ E @ right)
    if c < _chain.FLOOR[chain.dtype]:
        return np.nan
    log_z = log_c + np.log(c) + shift[:T].sum(dtype=np.float64) + (T - 1) * chain.top
    psi[T // 2 - 1, :L], psi[T // 2, :L] = E @ right / c, left @ E / c
    pairs = np.zeros((2, chain.width, chain.width))
    scratch = np.empty_like(chain.factors)

    def backward(half: int) -> None:
        at = rows[half]
        _halves.backward_half(
            alpha[at], inverse_c[at], e[at], chain.factors[1 - half], psi[at], scratch[half],
            None if weight is None else pairs[half], half, L, many,
        )  # fmt: skip

    threads.map(backward, (0, 1))
    if weight is not None:
        pairs[0, :L, :L] += np.outer(left, right / c)
        work.pairwise += weight * (pairs[0] + pairs[1])
    return float(log_z)


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
    T, L, threads = len(psi), chain.n_labels, shared.threads
    cuts = np.linspace(0, T, min(threads.n, max(T // (2 * JOIN), 1)) + 1).astype(int).tolist()
    parts = list(zip(cuts[:-1], cuts[1:]))

    def guess(part: tuple[int, int]) -> tuple[np.ndarray | None, float]:
        # Run the recursion of a part without the row before it. Returns a copy of the scores of its
        # first JOIN rows, and the score of its best path after these.
        a, b = part
        if a == 0:
            return None, run(psi[:b], labels[:b])
        m = a + JOIN
        given = psi[a:m].copy()
        if run(psi[a:m], labels[a:m]) == -np.inf:
            return given, -np.inf
        enter(psi[m], psi[m - 1])
        return given, run(psi[m:b], labels[m:b])

    def run(rows: np.ndarray, path: np.ndarray) -> float:
        score = np.zeros(1)
        _chain.best_paths(rows, np.array([0, len(rows)]), chain, path, score)
        return float(score[0])

    def enter(row: np.ndarray, before: np.ndarray) -> None:
        row[:L] += (before[:L, None] + chain.score[:L, :L]).max(axis=0)

    guesses = threads.map(guess, parts)
    total = sum(score for _, score in guesses)
    for (a, b), (given, rest) in zip(parts[1:], guesses[1:]):
        if total == -np.inf:
            return total
        m = a + JOIN
        enter(given[0], psi[a - 1])
        total += run(given, labels[a:m])
        joined = np.array_equal(given[-1, :L], psi[m - 1, :L])
        psi[a:m] = given
        if not joined and total > -np.inf:
            shared.score(m, b)
            if b == T:
                psi[-1] += chain.end
            enter(psi[m], psi[m - 1])
            total += run(psi[m:b], labels[m:b]) - rest
    for a, b in reversed(parts if total > -np.inf else []):
        at = slice(a, min(b + 1, T))
        _halves.trace_from(psi[at], chain.score_t, labels[at], JOIN if a else 0, L)
    return total

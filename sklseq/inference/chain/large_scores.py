"""Constants taken out of large scores, so that sums with them keep the digits of the others.

A constant added to all labels of a row adds the same to the scores of all paths. Without that, a
sum with 1e17 is rounded to multiples of 16, and the scores of all other rows are lost in it.
"""

import math
from collections.abc import Iterable, Iterator
from copy import copy
from typing import Any

import numpy as np

from sklseq.inference.chain.row_transitions import RowTransitions

# Scores of larger magnitude are shifted; sums with smaller ones are rounded by 1e-11 at most.
LARGE = 1e5
MOST = 1 << 22  # transition scores in an intermediate array of `allowed_on_paths`


def has_large(scores: np.ndarray) -> bool:
    """Whether a finite score is larger than ``LARGE`` in magnitude."""
    low = scores.min(initial=0)
    if scores.max(initial=0) > LARGE or -np.inf < low < -LARGE:
        return True
    return bool(low == -np.inf and ((scores < -LARGE) & (scores > -np.inf)).any())


def take_out_row_maxima(psi: np.ndarray) -> np.ndarray:
    """Subtract the maximum of each row that has a large score, in place.

    Returns the maxima, 0 for other rows.
    """
    top = np.zeros(len(psi))
    if not has_large(psi):
        return top
    large = (np.where(psi > -np.inf, np.abs(psi), 0) > LARGE).any(axis=1)
    highest = psi[large].max(axis=1)
    top[large] = np.where(np.isfinite(highest), highest, 0)  # inf: an error later
    psi[large] -= top[large, None].astype(psi.dtype)
    return top


def take_out_of_sequences(
    psi: np.ndarray, offsets: np.ndarray, score: np.ndarray, rows: RowTransitions | None
) -> np.ndarray:
    """:func:`take_out_row_maxima` over labels on allowed paths.

    ``psi`` includes start and end scores. Labels on no allowed path become -inf, so that they are
    no maxima.
    """
    if has_large(psi):
        psi[~allowed_on_paths(psi, offsets, score, rows)] = -np.inf
    return take_out_row_maxima(psi)


def take_out_constants(
    emission: np.ndarray, chain: Any, offsets: np.ndarray, before: np.ndarray | None = None
) -> tuple[np.ndarray, Any]:
    """Emission scores, with start and end scores, and a chain without these and large constants.

    ``chain`` is a Transitions, which is not changed.
    ``lost`` of the new chain is what scores have lost in each row, ``shift`` what the scores of
    each sequence's paths have lost in all.
    ``before``: if the first row has a transition too, whether a path ends in each label before it.
    """
    L, chain = chain.n_labels, copy(chain)
    chain.score, chain.start, chain.end = (x.copy() for x in (chain.score, chain.start, chain.end))
    padded, some = chain.pad_rows(emission), offsets[:-1] < offsets[1:]
    first, last = offsets[:-1][some], offsets[1:][some] - 1
    psi, score = padded[:, :L], chain.score[:L, :L]
    folded = padded.copy()
    chain.fold_boundaries(folded, offsets)
    if before is not None:
        steps = score if chain.rows is None else chain.rows.take(np.array([0]))[0]
        folded[0, :L][~(steps[before] > -np.inf).any(axis=0)] = -np.inf
    psi[~allowed_on_paths(folded[:, :L], offsets, score, chain.rows)] = -np.inf
    lost = np.zeros((len(psi), 6))
    lost[:, 0] = take_out_row_maxima(psi)
    lost[first, 1] = _take_out(chain.start[:L])
    lost[last, 2] = _take_out(chain.end[:L])
    lost[:, 3:5] = _take_out_of_transitions(chain, len(psi))
    if before is None:
        lost[first, 3:5] = 0  # transitions to first rows are ignored
    chain.fold_boundaries(padded, offsets)
    lost[:, 5] = take_out_row_maxima(psi)
    chain = chain.without_ends()
    bounds = zip(offsets[:-1], offsets[1:])
    chain.lost = lost
    chain.shift = np.array([math.fsum(lost[a:b].ravel()) for a, b in bounds])
    return psi, chain


def exact_sum(terms: Iterable[float]) -> list[float]:
    """A few numbers whose sum is exactly that of ``terms``."""
    terms, parts = list(terms), []
    while rest := math.fsum([*terms, *(-x for x in parts)]):
        parts.append(rest)
    return parts


def _take_out(first: np.ndarray, *others: np.ndarray) -> float:
    # The maximum of the first array if it has a large score, which is subtracted from all arrays.
    top = float(first.max())
    if top == -np.inf or not has_large(first):
        return 0.0
    for x in (first, *others):
        x -= x.dtype.type(top)
    return top


def _take_out_of_transitions(chain: Any, n: int) -> np.ndarray:
    # Of the n rows, what their own matrices and what shared scores have lost.
    L, others, lost = chain.n_labels, (), np.zeros((n, 2))
    if chain.rows is not None:
        chain.rows = rows = copy(chain.rows)
        others = rows.shared, rows.score = rows.shared.copy(), rows.score.copy()
        if rows.of_row is None and has_large(rows.score):
            for t in np.flatnonzero(np.diff(rows.indptr) == L * L):
                lost[t, 0] = _take_out(rows.score[rows.indptr[t] : rows.indptr[t + 1]])
    lost[:, 1] = _take_out(chain.score[:L, :L], *others)
    return lost


def allowed_on_paths(
    psi: np.ndarray, offsets: np.ndarray, score: np.ndarray, rows: RowTransitions | None
) -> np.ndarray:
    """Whether an allowed path of its sequence has each label at each row."""
    alive = psi > -np.inf
    if alive.all() and (score > -np.inf).all() and (rows is None or (rows.score > -np.inf).all()):
        return alive
    steps = list(steps_of_sequences(offsets, max(MOST // score.size, 1)))
    allowed = score > -np.inf
    for at in steps:
        allowed = allowed if rows is None else rows.take(at) > -np.inf
        alive[at] &= (alive[at - 1][:, :, None] & allowed).any(axis=1)
    for at in reversed(steps):
        allowed = allowed if rows is None else rows.take(at) > -np.inf
        alive[at - 1] &= (alive[at][:, None, :] & allowed).any(axis=2)
    return alive


def steps_of_sequences(offsets: np.ndarray, width: int) -> Iterator[np.ndarray]:
    """Rows t = 1, 2, … of up to ``width`` sequences of similar lengths at a time, longest first."""
    lengths = np.diff(offsets)
    order = np.argsort(-lengths, kind="stable")
    for a in range(0, len(order), width):
        first, size = offsets[:-1][order[a : a + width]], lengths[order[a : a + width]]
        for t in range(1, int(size[0])):
            yield first[: np.searchsorted(-size, -t)] + t

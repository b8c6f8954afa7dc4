"""Sums over one long sequence by two threads: `_halves.pyx` has the equations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from sklseq._lib.cpu import load_kernel

if TYPE_CHECKING:  # as in linear_chain
    from sklseq._lib.threads import Threads

_chain = load_kernel("sklseq.inference.kernels._chain")
_halves = load_kernel("sklseq.inference.kernels._halves")

__all__ = ["sums_by_halves"]


def sums_by_halves(
    psi: np.ndarray, weight: float | None, chain: Any, work: Any, threads: Threads, many: bool
) -> float:
    """Scaled forward-backward of one sequence of at least two rows, as ``Workspace`` does it.

    Parameters
    ----------
    psi : ndarray of shape (n_rows, width)
        Scores with those of start and end; they become marginals unless NaN is returned.
    weight : float or None
        Factor of the pair marginals that ``work.pairwise`` gets; None: nobody wants them.
    chain : Transitions
        Exponentiated, without ``pairs``.
    work : Workspace
    threads : Threads
    many : bool
        Whether labels are so many that pair marginals are added up in batches.

    Returns
    -------
    float
        log Z; NaN if the sequence has to be done in the log domain.
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
    if c < _chain.FLOOR[chain.dtype.name]:
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

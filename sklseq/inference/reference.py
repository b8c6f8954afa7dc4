"""The recursions of a linear chain, written to be read: specification and oracle.

One sequence, float64, log domain, no tricks. ``_chain.pyx`` must agree with these functions;
these functions must agree with enumeration (``tests/oracles.py``).
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

__all__ = ["backward", "forward", "forward_backward", "score_path", "viterbi"]


def _fold(emission, start, end) -> np.ndarray:
    psi = np.array(emission, dtype=np.float64)
    if len(psi):
        psi[0] += 0 if start is None else start
        psi[-1] += 0 if end is None else end
    return psi


def score_path(labels, emission, transition, start=None, end=None) -> float:
    """s(y) = start(y_1) + Σ_t ψ_t(y_t) + Σ_t ψ(y_{t-1}, y_t) + end(y_T)."""
    labels, psi = np.asarray(labels, dtype=int), _fold(emission, start, end)
    return psi[np.arange(len(labels)), labels].sum() + transition[labels[:-1], labels[1:]].sum()


def forward(psi: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """log α_t(j) = ψ_t(j) + log Σ_i exp(log α_{t-1}(i) + ψ(i, j)), shape (T, L)."""
    log_alpha = psi.copy()
    for t in range(1, len(psi)):
        log_alpha[t] += logsumexp(log_alpha[t - 1][:, None] + transition, axis=0)
    return log_alpha


def backward(psi: np.ndarray, transition: np.ndarray) -> np.ndarray:
    """log β_{t-1}(i) = log Σ_j exp(ψ(i, j) + ψ_t(j) + log β_t(j)), shape (T, L)."""
    log_beta = np.zeros_like(psi)
    for t in range(len(psi) - 1, 0, -1):
        log_beta[t - 1] = logsumexp(transition + psi[t] + log_beta[t], axis=1)
    return log_beta


def forward_backward(emission, transition, start=None, end=None):
    """(log Z, μ, ξ): μ_t(j) ∝ exp(log α_t(j) + log β_t(j)), ξ summed over t.

    Each row is normalised by its own sum: it equals Z, up to what large scores lost to rounding.
    """
    psi = _fold(emission, start, end)
    pairwise = np.zeros_like(transition, dtype=np.float64)
    if len(psi) == 0:
        return 0.0, psi, pairwise
    log_alpha, log_beta = forward(psi, transition), backward(psi, transition)
    for t in range(1, len(psi)):
        log_xi = log_alpha[t - 1][:, None] + transition + psi[t] + log_beta[t]
        pairwise += np.exp(log_xi - logsumexp(log_xi))
    log_mu = log_alpha + log_beta
    marginals = np.exp(log_mu - logsumexp(log_mu, axis=1, keepdims=True))
    return logsumexp(log_alpha[-1]), marginals, pairwise


def viterbi(emission, transition, start=None, end=None) -> tuple[np.ndarray, float]:
    """δ_t(j) = ψ_t(j) + max_i (δ_{t-1}(i) + ψ(i, j)); ties to the lowest label."""
    delta = _fold(emission, start, end)
    T = len(delta)
    labels = np.zeros(T, dtype=np.int32)
    if T == 0:
        return labels, 0.0
    for t in range(1, T):
        delta[t] += (delta[t - 1][:, None] + transition).max(axis=0)
    labels[-1] = delta[-1].argmax()
    for t in range(T - 2, -1, -1):
        labels[t] = (delta[t] + transition[:, labels[t + 1]]).argmax()
    return labels, float(delta[-1].max())

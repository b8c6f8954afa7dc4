"""Slow, obvious answers: what the fast code is compared with."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from sklseq.inference.reference import score_path


def all_paths(T: int, L: int) -> np.ndarray:
    """Every label path, in lexicographic order, shape (L ** T, T)."""
    return np.array(list(itertools.product(range(L), repeat=T)), dtype=int).reshape(L**T, T)


def enumerate_chain(emission, transition, start=None, end=None):
    """(paths, scores, log Z, μ, ξ) by summing over every path."""
    T, L = emission.shape
    paths = all_paths(T, L)
    scores = np.array([score_path(p, emission, transition, start, end) for p in paths])
    log_z = logsumexp(scores)
    probability = np.exp(scores - log_z)
    marginals, pairwise = np.zeros((T, L)), np.zeros((L, L))
    for path, p in zip(paths, probability):
        marginals[np.arange(T), path] += p
        np.add.at(pairwise, (path[:-1], path[1:]), p)
    return paths, scores, log_z, marginals, pairwise


def log_sum(x: np.ndarray, axis: int) -> np.ndarray:
    """log Σ exp(x), -inf where all are, in the precision of x."""
    top = x.max(axis=axis, keepdims=True)
    top = np.where(top > -np.inf, top, 0)
    with np.errstate(divide="ignore"):
        return np.log(np.exp(x - top).sum(axis=axis)) + top.squeeze(axis)


class PreciseChain(NamedTuple):
    """Answer of :func:`precise_chain`: μ, shape (T, L); ξ, shape (T - 1, L, L); entropy in nats."""

    log_z: np.longdouble
    marginals: np.ndarray
    pairs: np.ndarray
    entropy: np.longdouble


def precise_chain(emission, transition, start=None, end=None) -> PreciseChain:
    """Forward-backward in the log domain, in extended precision."""
    psi, score = (np.array(x, dtype=np.longdouble) for x in (emission, transition))
    psi[0] += 0 if start is None else start
    psi[-1] += 0 if end is None else end
    alpha, beta, (T, L) = psi.copy(), np.zeros_like(psi), psi.shape
    for t in range(1, T):
        alpha[t] += log_sum(alpha[t - 1][:, None] + score, 0)
    for t in range(T - 1, 0, -1):
        beta[t - 1] = log_sum(score + psi[t] + beta[t], 1)
    log_z = log_sum(alpha[-1], 0)
    if log_z == -np.inf:
        return PreciseChain(log_z, np.zeros((T, L)), np.zeros((T - 1, L, L)), log_z)
    marginals = np.exp(alpha + beta - log_z)
    log_xi = alpha[:-1, :, None] + score + (psi + beta)[1:, None, :] - log_z
    # H = H(y_T) + Σ_t H(y_{t-1} | y_t), the paths of a chain read backwards.
    into = log_sum(alpha[:-1, :, None] + score, 1)[:, None, :]
    log_k = alpha[:-1, :, None] + score - np.where(into > -np.inf, into, 0)
    pairs = np.exp(log_xi)
    entropy = -sum(
        (p[p > 0] * log_p[p > 0]).sum()
        for p, log_p in ((pairs, log_k), (marginals[-1], alpha[-1] - log_z))
    )
    return PreciseChain(log_z, marginals, pairs, entropy)


def numerical_gradient(value, w: np.ndarray, step: float = 1e-5) -> np.ndarray:
    """Central differences, one coordinate at a time."""
    gradient = np.empty_like(w, dtype=np.float64)
    for k in range(len(w)):
        up, down = w.copy(), w.copy()
        up[k] += step
        down[k] -= step
        gradient[k] = (value(up) - value(down)) / (2 * step)
    return gradient


# Weights of f(w + k h) - f(w - k h), k = 1 ... 4, for an error of order h⁸ (Fornberg 1988).
EIGHTH_ORDER = (4 / 5, -1 / 5, 4 / 105, -1 / 280)


def precise_numerical_gradient(value, w: np.ndarray, step: float = 1e-2) -> np.ndarray:
    """Central differences of eighth order: with a long step, rounding hardly matters."""
    gradient = np.zeros_like(w, dtype=np.float64)
    for k in range(len(w)):
        for distance, weight in enumerate(EIGHTH_ORDER, 1):
            up, down = w.copy(), w.copy()
            up[k] += distance * step
            down[k] -= distance * step
            gradient[k] += weight * (value(up) - value(down)) / step
    return gradient


def kkt_residual(w: np.ndarray, gradient: np.ndarray, l1: float) -> float:
    """Largest violation of 0 ∈ gradient + l1 · ∂|w|, ``gradient`` being of the smooth part."""
    at_zero = np.maximum(np.abs(gradient) - l1, 0)
    off_zero = np.abs(gradient + l1 * np.sign(w))
    return float(np.where(w == 0, at_zero, off_zero).max(initial=0))

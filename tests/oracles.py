"""Slow, obvious answers: what the fast code is compared with."""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import logsumexp

from tests.reference import score_path


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

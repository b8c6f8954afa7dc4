"""Slow, obvious answers: what the fast code is compared with."""

from __future__ import annotations

import numpy as np

from tests.reference import log_sum, score_path


def all_paths(T: int, L: int) -> np.ndarray:
    """Every label path, in lexicographic order, shape (L ** T, T)."""
    return np.arange(L**T)[:, None] // L ** np.arange(T)[::-1] % L


def enumerate_chain(emission, transition, start=None, end=None):
    """(paths, scores, log Z, μ, ξ) by summing over every path."""
    T, L = emission.shape
    paths = all_paths(T, L)
    scores = score_path(paths, emission, transition, start, end)
    log_z = log_sum(scores)
    probability = np.exp(scores - log_z)
    marginals, pairwise = np.zeros((T, L)), np.zeros((L, L))
    for t in range(T):
        np.add.at(marginals[t], paths[:, t], probability)
    for t in range(1, T):
        np.add.at(pairwise, (paths[:, t - 1], paths[:, t]), probability)
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


# Every finite float64 is a whole number of 2 ** -1074: sums of whole numbers are exact.
UNITS = 1 << 1074


def whole(scores) -> list:
    """Scores as whole numbers of 2 ** -1074, and None for -inf, in nested lists."""
    if np.ndim(scores):
        return [whole(part) for part in scores]
    if scores == -np.inf:
        return None
    numerator, denominator = float(scores).as_integer_ratio()
    return numerator * (UNITS // denominator)


class ExactChain:
    """All paths of one chain, whose scores are added up in exact arithmetic.

    Attributes
    ----------
    paths : ndarray of shape (n_paths, T), int
        Allowed paths, best first.
    scores : ndarray of shape (n_paths,)
    apart : ndarray of shape (n_paths,)
        How much less than the best path they score.
    apart_of : dict
        The same of each path, a tuple.
    """

    def __init__(self, emission, transition, start, end):
        self.arguments = (emission, transition), {"start": start, "end": end}
        T, L = emission.shape
        psi, first, last = whole(emission), whole(start), whole(end)
        steps = whole(np.broadcast_to(transition, (T, L, L)))
        exact = {(): 0}
        for t in range(T):
            ends = ([first] if t == 0 else []) + ([last] if t == T - 1 else [])
            given = [[psi[t][j], *(scores[j] for scores in ends)] for j in range(L)]
            longer = {}
            for path, score in exact.items():
                for j in range(L):
                    terms = [*given[j], steps[t][path[-1]][j]] if path else given[j]
                    if None not in terms:
                        longer[*path, j] = score + sum(terms)
            exact = longer
        order = sorted(exact, key=exact.__getitem__, reverse=True)
        self.paths, self.shape = np.array(order, dtype=int).reshape(-1, T), (T, L)
        self.scores = np.array([exact[path] / UNITS for path in order])
        self.apart = np.array([(exact[order[0]] - exact[path]) / UNITS for path in order])
        self.apart_of = dict(zip(order, self.apart))
        self.p = np.exp(-self.apart)
        self.log_z = self.scores[:1] + np.log(self.p.sum() or 1)
        self.p /= self.p.sum() or 1

    def is_moderate(self) -> bool:
        """Whether there is a path, and the best one has no large difference in any row."""
        emission, transition = self.arguments[0]
        if not len(self.paths):
            return False
        T, L = self.shape
        terms = np.zeros((T, L, L)) + transition
        on = np.zeros(terms.shape, dtype=bool)
        for path in self.paths:
            on[np.arange(1, T), path[:-1], path[1:]] = True
        used = np.array([[(self.paths[:, t] == j).any() for j in range(L)] for t in range(T)])
        psi = emission.copy()
        best, rows = self.paths[0], np.arange(T)
        gaps = np.where(used, psi, -np.inf).max(axis=1) - psi[rows, best]
        steps = (
            np.where(on, terms, -np.inf).max(axis=(1, 2))[1:] - terms[rows[1:], best[:-1], best[1:]]
        )
        return max(gaps.max(), steps.max()) < 1e4

    @property
    def marginals(self) -> np.ndarray:
        labels = self.paths[:, :, None] == np.arange(self.shape[1])
        return np.einsum("p,ptj->tj", self.p, labels)

    @property
    def pairs(self) -> np.ndarray:
        found = np.zeros((self.shape[1],) * 2)
        for t in range(1, self.shape[0]):
            np.add.at(found, (self.paths[:, t - 1], self.paths[:, t]), self.p)
        return found

    @property
    def entropy(self) -> float:
        p = self.p[self.p > 0]
        return float(-(p @ np.log(p)))

    @property
    def max_marginals(self) -> np.ndarray:
        best = np.full(self.shape, -np.inf)
        for path, score in zip(self.paths, self.scores):
            at = np.arange(len(path)), path
            best[at] = np.maximum(best[at], score)
        return best

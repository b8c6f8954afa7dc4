"""Softmax-margin over lists of candidates: the objective of a reranker."""

import numpy as np
from scipy import sparse


def softmax_of_lists(scores: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(probabilities, log Z of each list) of candidates; list s is offsets[s]:offsets[s + 1].

    Lists must not be empty.
    """
    of = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    top = np.maximum.reduceat(scores, offsets[:-1])
    mass = np.exp(scores - top[of])
    total = np.add.reduceat(mass, offsets[:-1])
    return mass / total[of], top + np.log(total)


class CandidateMargin:
    """f(w) = Σ_s weight_s · (log Σ_c exp(cost_c + b_c + w·φ_c) - b_g - w·φ_g) + l2 · ‖w‖².

    The sum is over the candidates c of list s; g is the candidate of least cost, the first one of
    several. Costs are differences from that of g. If p_c is the probability of c under the scores
    in the exponent,

        ∂f/∂w = Σ_s weight_s · (Σ_c p_c φ_c - φ_g) + 2 · l2 · w

    (Gimpel, Smith 2010, eq. 5).

    Parameters
    ----------
    features : CSR matrix of shape (n_candidates, n_features)
        φ.
    base : ndarray of shape (n_candidates,)
        b.
    cost : ndarray of shape (n_candidates,)
    offsets : ndarray of shape (n_lists + 1,)
        Limits of the lists, which must not be empty.
    l2 : float
    weights : ndarray of shape (n_lists,)
    """

    def __init__(
        self, features: sparse.csr_matrix, base: np.ndarray, cost: np.ndarray,
        offsets: np.ndarray, l2: float, weights: np.ndarray,
    ):  # fmt: skip
        self.features, self.offsets, self.l2 = features, offsets, float(l2)
        best = [a + int(np.argmin(cost[a:b])) for a, b in zip(offsets[:-1], offsets[1:])]
        of = np.repeat(np.arange(len(best)), np.diff(offsets))
        self.weights, self.of_candidate = weights, weights[of]
        self.base = base - base[best][of] + cost - cost[best][of]
        self.observed = features[best].T @ weights

    def value_and_gradient(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """f(w); its gradient is written into ``gradient``."""
        p, log_z = softmax_of_lists(self.base + self.features @ w, self.offsets)
        gradient[:] = self.features.T @ (self.of_candidate * p) - self.observed + 2 * self.l2 * w
        return float(self.weights @ log_z - self.observed @ w + self.l2 * (w @ w))

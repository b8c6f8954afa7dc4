"""What an L1 penalty adds to L-BFGS: pseudo-gradient, orthants, projection.

G. Andrew, J. Gao (2007), "Scalable training of L1-regularized log-linear models", ICML, §3.
"""

from __future__ import annotations

import numpy as np

__all__ = ["keep_descent", "l1_norm", "orthant", "project", "pseudo_gradient"]


def l1_norm(w: np.ndarray, l1) -> float:
    """l1 · ‖w‖₁, in float64; ``l1`` may have one value a weight."""
    if np.ndim(l1):
        return float(np.abs(w).astype(np.float64) @ l1)
    return l1 * float(np.abs(w).sum(dtype=np.float64))


def pseudo_gradient(w: np.ndarray, g: np.ndarray, l1) -> np.ndarray:
    """The steepest one-sided derivative of f + l1 · ‖w‖₁ (Equation 4).

    g + l1 · sign(w) where w ≠ 0; else g shrunk towards 0 by l1.
    """
    shrunk = g - np.clip(g, -l1, l1)
    return np.where(w != 0, g + l1 * np.sign(w), shrunk).astype(g.dtype, copy=False)


def keep_descent(p: np.ndarray, v: np.ndarray) -> None:
    """Drop the parts of p that do not point downhill, in place: the projection π(p; -v)."""
    p[p * v >= 0] = 0


def orthant(w: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Signs that a step may have: those of w, or of -v where w = 0 (Equation 5)."""
    return np.where(w != 0, np.sign(w), -np.sign(v)).astype(np.int8)


def project(w: np.ndarray, signs: np.ndarray) -> None:
    """Set to zero the weights that left the orthant, in place."""
    w[w * signs < 0] = 0
    w[signs == 0] = 0

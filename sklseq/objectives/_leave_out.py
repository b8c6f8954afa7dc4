"""Leave-one-sequence-out scores and generalised cross-validation, for any number of ridges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from scipy import sparse

from sklseq.objectives._moments import (
    Sample,
    Statistics,
    centred,
    count_statistics,
    extended_rows,
    loss_multiplier,
    pair_statistics,
)

__all__ = ["LeaveOut", "LeftOut"]


class LeftOut(NamedTuple):
    """What weights trained on the other sequences score one sequence.

    Attributes
    ----------
    emission : ndarray of shape (n_steps, n_labels)
    transition : ndarray of shape (n_labels, n_labels)
    """

    emission: np.ndarray
    transition: np.ndarray


class LeaveOut:
    """Answers for all ridges from one eigendecomposition, none of them a new fit.

    With X̃ and Y weighted by the root of the sequences' weights, ρ = 2 L l2 and
    H = X̃(X̃ᵀX̃ + ρ)⁻¹X̃ᵀ, regression without sequence s leaves it the residuals

        Ẽ_s = (I - H_ss)⁻¹ E_s,     E = Y - H Y,

    and the others' Yᵀ(I - H)Y falls by E_sᵀẼ_s: all that the multiplier α needs.

    Parameters
    ----------
    sample : Sample
        Without sequences of weight 0.
    cost : ndarray of shape (n_labels, n_labels), or None

    Notes
    -----
    Cost O(n_rows · n_columns · min(n_rows, n_columns)) once, then for each ridge
    O(n_rows · min(n_rows, n_columns) · n_labels + Σ_s T_s³).
    """

    def __init__(self, sample: Sample, cost: np.ndarray | None):
        self.sample, self.cost = sample, cost
        extended = extended_rows(sample.rows, sample.offsets, sample.n_labels)
        self.statistics = count_statistics(sample, extended, gram=False)
        dense = extended.toarray() if sparse.issparse(extended) else extended
        self.root = np.sqrt(sample.row_weights)[:, None]
        dense = self.root * dense
        if dense.shape[0] <= dense.shape[1]:
            square, self.Z = np.linalg.eigh(dense @ dense.T)
            self.short = True
        else:
            square, vectors = np.linalg.eigh(dense.T @ dense)
            self.Z, self.short = dense @ vectors, False
        self.square = np.maximum(square, 0)
        self.Y = self.root * np.eye(sample.n_labels)[sample.y]
        self.ZY = self.Z.T @ self.Y

    def _filter(self, l2: float) -> np.ndarray:
        # H = Z diag(filter) Zᵀ
        below = self.square + 2 * self.sample.n_labels * l2
        return (self.square if self.short else 1) / below

    def gcv(self, l2: float) -> float:
        """n ‖Y - HY‖² / (n - tr H)² (Golub, Heath, Wahba 1979)."""
        keep = self._filter(l2)
        residual = self.Y - self.Z @ (keep[:, None] * self.ZY)
        freedom = (self.square / (self.square + 2 * self.sample.n_labels * l2)).sum()
        n = len(self.Y)
        return float(n * np.square(residual).sum() / (n - freedom) ** 2)

    def scores(self, l2: float) -> Iterator[LeftOut]:
        """Of each sequence in turn; only their differences between labelings mean anything."""
        keep, L = self._filter(l2), self.sample.n_labels
        E = self.Y - self.Z @ (keep[:, None] * self.ZY)
        left = self.Y.T @ E
        for s, weight in enumerate(self.sample.weights):
            span = slice(*self.sample.offsets[s : s + 2])
            Z = self.Z[span]
            own = np.linalg.solve(np.eye(len(Z)) - (keep * Z) @ Z.T, E[span])
            fitted = (self.Y[span] - own) / self.root[span]
            others = self._others(s, weight)
            remaining = np.diag(others.labels) - (left - E[span].T @ own)  # S = YᵀHY
            yield self._left_out(fitted, others, remaining, l2, L)

    def _others(self, s: int, weight: float) -> Statistics:
        y = self.sample.y[slice(*self.sample.offsets[s : s + 2])]
        transitions, labels = (x.copy() for x in self.statistics[2:])
        np.subtract.at(transitions, (y[:-1], y[1:]), weight)
        np.subtract.at(labels, y, weight)
        return Statistics(None, None, np.maximum(transitions, 0), np.maximum(labels, 0))

    def _left_out(self, fitted, others: Statistics, S, l2: float, L: int) -> LeftOut:
        excess, variance = pair_statistics(others, l2)
        pairs = excess / variance if variance > 0 else np.zeros((L, L))
        if self.cost is None:
            return LeftOut(L * fitted, pairs)
        costs = centred(self.cost)
        bb = L * float(np.trace(centred(centred(S).T))) + float(np.vdot(excess, pairs))
        bc = float(np.vdot(centred(np.eye(L)), S @ costs))
        alpha = loss_multiplier(float(others.labels @ self.cost.mean(axis=1)), bb, bc)
        return LeftOut(alpha * L * fitted - fitted @ costs, alpha * pairs)

"""Leave-one-sequence-out scores and generalised cross-validation, for any number of ridges."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from scipy import sparse

from sklseq.objectives.zscore.kernel_ridge import weighted_gram
from sklseq.objectives.zscore.moments import (
    COVARIANCE,
    PairRule,
    Sample,
    Statistics,
    centred,
    count_chain,
    extended_rows,
    loss_multiplier,
    loss_scale,
    pair_statistics,
)

RANK = 1e-12  # eigenvalues below this fraction of the largest are rounding of zero
DIGITS = 9  # decimals that fitted values of indicators, 0 or 1, keep
LOST = 1e-5  # eigenvalues of I - H_ss below which division by it has errors at digit DIGITS


@dataclass
class LeftOut:
    """Scores of one sequence by weights trained on the other sequences.

    Attributes
    ----------
    emission : ndarray of shape (n_steps, n_labels)
    base : ndarray of shape (n_labels, n_labels), or 0
        Transitions without D.
    statistics : Statistics
        Counts of the other sequences.
    l2 : float
    scale : float
        Size of the state weights, as a multiple of those without a loss.
    natural : float
        κ of the loss.
    tables : dict
        Transition scores for κ = 1, by the kind of rule.
    """

    emission: np.ndarray
    base: np.ndarray | float
    statistics: Statistics
    l2: float
    scale: float
    natural: float
    tables: dict[str, np.ndarray] = field(default_factory=dict)

    def transition(self, rule: PairRule = COVARIANCE) -> np.ndarray:
        """Transitions by a rule for D."""
        if rule.kind not in self.tables:
            self.tables[rule.kind] = self.scale * rule.table(self.statistics, self.l2)
        return self.base + rule.kappa(self.natural) * self.tables[rule.kind]


class LeaveOut:
    """Leave-one-out scores for all ridges from one eigendecomposition, without new fits.

    With X̃ and Y weighted by the root of the sequences' weights, ρ = 2 L l2 and
    H = X̃(X̃ᵀX̃ + ρ)⁻¹X̃ᵀ, regression without sequence s leaves it the residuals

        Ẽ_s = (I - H_ss)⁻¹ E_s,     E = Y - H Y,

    and Yᵀ(I - H)Y of the other sequences is smaller by E_sᵀẼ_s, which gives the multiplier α.
    H_ss = B Bᵀ for a block B of T_s rows and k = min(n_rows, n_columns) columns. A sequence of more
    than k rows needs no matrix of T_s² numbers: (I - B Bᵀ)⁻¹ = I + B (I - BᵀB)⁻¹ Bᵀ (Woodbury).
    Where I - H_ss is nearly singular, because only this sequence has some feature and the ridge is
    tiny, the system of the other sequences is solved.

    ``cost`` is (n_labels, n_labels) or None, ``solve(A, B, ridge)`` solves dense systems, and
    ``gram``, the kernel between all rows, replaces the products of ``sample.rows``.

    Cost O(n_rows · n_columns · min(n_rows, n_columns)) once, then for each ridge
    O(n_rows · k · n_labels + Σ_s T_s · k · min(T_s, k)), which is linear in n_rows for k columns;
    O(n_rows · n_columns · min(n_rows, n_columns)) for each system that is solved.
    """

    def __init__(
        self, sample: Sample, cost: np.ndarray | None, solve, gram: np.ndarray | None = None
    ):
        self.sample, self.cost, self.solve = sample, cost, solve
        self.transitions, self.labels = count_chain(sample)
        self.root = np.sqrt(sample.row_weights)[:, None]
        self.rows = self._rows() if gram is None else weighted_gram(gram, sample)
        self.short = gram is not None
        if not self.short and self.rows.shape[0] <= self.rows.shape[1]:
            self.rows, self.short = self.rows @ self.rows.T, True
        if self.short:
            square, self.Z = np.linalg.eigh(self.rows)
        else:
            square, vectors = np.linalg.eigh(self.rows.T @ self.rows)
            self.Z = self.rows @ vectors
        self.square = np.where(square > RANK * square[-1], square, 0)
        self.Y = self.root * np.eye(sample.n_labels)[sample.y]
        self.ZY = self.Z.T @ self.Y

    def _rows(self) -> np.ndarray:
        sample = self.sample
        extended = extended_rows(sample.rows, sample.offsets, sample.n_labels)
        return self.root * (extended.toarray() if sparse.issparse(extended) else extended)

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
        if freedom >= n:  # as many parameters as rows: nothing is left to judge by
            return np.inf
        return float(n * np.square(residual).sum() / (n - freedom) ** 2)

    def scores(self, l2: float) -> Iterator[LeftOut]:
        """Scores of each sequence in turn; only differences between labelings are meaningful."""
        keep, L = self._filter(l2), self.sample.n_labels
        E, root = self.Y - self.Z @ (keep[:, None] * self.ZY), np.sqrt(keep)
        left = self.Y.T @ E
        for s, weight in enumerate(self.sample.weights):
            span = slice(*self.sample.offsets[s : s + 2])
            B, others = root * self.Z[span], self._others(s, weight)
            own = _divided(B, E[span])
            if own is None:
                fitted, remaining = self._anew(span, 2 * L * l2)
            else:
                fitted = (self.Y[span] - own) / self.root[span]
                remaining = np.diag(others.labels) - (left - E[span].T @ own)  # S = YᵀHY
            # Rounded, so that ties (rows with only unknown features) go to the first label, as in
            # prediction.
            yield self._left_out(fitted.round(DIGITS), others, remaining, l2, L)

    def _anew(self, span: slice, ridge: float) -> tuple[np.ndarray, np.ndarray]:
        # Scores of a sequence's rows by the solution of the other sequences, and their YᵀHY.
        kept = np.ones(len(self.Y), dtype=bool)
        kept[span] = False
        rows, Y = self.rows[kept], self.Y[kept]
        if self.short:  # products of rows with rows
            gram, sides, here = rows[:, kept], Y, self.rows[span][:, kept]
        else:
            gram, sides, here = rows.T @ rows, rows.T @ Y, self.rows[span]
        solution = self.solve(gram, sides, ridge).w
        own = gram @ solution if self.short else solution
        return here @ solution / self.root[span], sides.T @ own

    def _others(self, s: int, weight: float) -> Statistics:
        y = self.sample.y[slice(*self.sample.offsets[s : s + 2])]
        transitions, labels = self.transitions.copy(), self.labels.copy()
        np.subtract.at(transitions, (y[:-1], y[1:]), weight)
        factors = self.sample.factors
        np.subtract.at(labels, y, weight if factors is None else weight * factors[y])
        return Statistics(None, None, None, np.maximum(transitions, 0), np.maximum(labels, 0))

    def _left_out(self, fitted, others: Statistics, S, l2: float, L: int) -> LeftOut:
        if self.cost is None:
            return LeftOut(L * fitted, 0.0, others, l2, 1.0, 1.0)
        costs, (excess, variance) = centred(self.cost), pair_statistics(others, l2)
        of_pairs = float(np.vdot(excess, excess)) / variance if variance > 0 else 0.0
        bb = L * float(np.trace(centred(centred(S).T))) + of_pairs
        bc = float(np.vdot(centred(np.eye(L)), S @ costs))
        alpha = loss_multiplier(float(others.labels @ self.cost.mean(axis=1)), bb, bc)
        emission = alpha * L * fitted - fitted @ costs
        return LeftOut(emission, 0.0, others, l2, *loss_scale(alpha, self.cost, L))


def _divided(B: np.ndarray, E: np.ndarray) -> np.ndarray | None:
    # (I - B Bᵀ)⁻¹ E, or None if I - B Bᵀ, whose eigenvalues below 1 are those of I - BᵀB, is nearly
    # singular.
    in_rows = len(B) <= B.shape[1]
    inverse = np.eye(min(B.shape)) - (B @ B.T if in_rows else B.T @ B)
    if np.linalg.eigvalsh(inverse)[0] < LOST:
        return None
    return np.linalg.solve(inverse, E) if in_rows else E + B @ np.linalg.solve(inverse, B.T @ E)

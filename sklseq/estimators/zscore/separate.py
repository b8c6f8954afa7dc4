"""Maximum of the z-score among the weights that label every training sequence correctly."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklseq.data.sequences import row_positions
from sklseq.inference import viterbi
from sklseq.objectives.zscore.factorised import CentredRows, FactorisedRidge
from sklseq.objectives.zscore.moments import (
    ChainWeights,
    Sample,
    Statistics,
    centred,
    count_chain,
    decompose,
    extended_rows,
    pair_statistics,
    stack_weights,
    unstack_weights,
)
from sklseq.objectives.zscore.regression import RidgeSystem
from sklseq.solvers import cg, least_distance, solve_dense

__all__ = ["FreeSystem", "PathSystem", "Separation", "separate"]

# By how much a true labeling has to win: this share of the mean gap a row to all labelings, for
# each wrong label. Any positive number will do; ties would leave it to the order of the labels.
MARGIN = 0.1
DENSE = 2_000  # rows of a matrix that is factorised
TOLERANCE = 1e-10


class Separation(NamedTuple):
    """What :func:`separate` found.

    Attributes
    ----------
    weights : ChainWeights
    n_constraints : int
    message : str
        Empty, or why the weights are those without constraints.
    """

    weights: ChainWeights
    n_constraints: int
    message: str


class FreeSystem:
    """C + 2 · l2 for free labels, on flat (W, D) of :func:`decompose`."""

    def __init__(self, sample: Sample, l2: float):
        extended = extended_rows(sample.rows, sample.offsets, sample.n_labels)
        self.shape = (extended.shape[1], sample.n_labels)
        self.direct = self.shape[0] <= DENSE
        rows = CentredRows(extended, sample.row_weights)
        self.statistics = Statistics(None, None, rows.means, *count_chain(sample))
        self.observed = rows.label_sums(sample.y, sample.n_labels)
        self.observed += np.outer(rows.means, self.statistics.labels)
        self.ridge = 2 * sample.n_labels * l2
        self.excess, self.variance = pair_statistics(self.statistics, l2)
        self.b = self._flat(centred(self.observed), self.excess)
        if self.direct:
            self.inverse = FactorisedRidge(rows, sample, self.ridge).inverse
        else:
            self.regression = RidgeSystem(rows, sample.y, sample.n_labels, self.ridge)

    def _flat(self, main: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        return np.concatenate([main.ravel(), pairs.ravel()])

    def flat(self, weights: ChainWeights) -> np.ndarray:
        return self._flat(*decompose(weights))

    def weights(self, flat: np.ndarray) -> ChainWeights:
        n, L = self.shape
        return stack_weights(flat[: n * L].reshape(n, L), flat[n * L :].reshape(L, L))

    def mean_loss(self, cost: np.ndarray) -> float:
        return float(self.statistics.labels @ cost.mean(axis=1))

    def loss_covariance(self, cost: np.ndarray) -> np.ndarray:
        main = self.observed @ centred(cost) / self.shape[1]
        return self._flat(main, np.zeros_like(self.excess))

    def solve(self, V: np.ndarray) -> np.ndarray:
        n, L = self.shape
        main = V[: n * L].reshape(n, -1)  # (columns of X̃, labels · right-hand sides)
        if self.direct:
            main = self.inverse.solve(main, 0.0)[0]
        else:
            solved = cg(
                self.regression, self.regression.right_hand_side(main),
                preconditioner=self.regression.preconditioner, tol=TOLERANCE, max_iter=5_000,
            )  # fmt: skip
            main = self.regression.solution_of(solved.w)
        pairs = V[n * L :] / self.variance if self.variance > 0 else 0 * V[n * L :]
        return np.concatenate([L * main.reshape(n * L, -1), pairs])


class PathSystem:
    """C + 2 · l2 of any moments that give products with it, on flat weights."""

    def __init__(self, moments):
        self.moments, self.b = moments, moments.b
        self.mean_loss, self.loss_covariance = moments.mean_loss, moments.loss_covariance
        self.shape = moments.sample.rows.shape[1], moments.sample.n_labels
        n = len(self.b)
        self.matrix = moments.hessian_product(np.eye(n)) if n <= DENSE else None

    def flat(self, weights: ChainWeights) -> np.ndarray:
        return np.concatenate([weights.coef.ravel(), weights.transition.ravel()])

    def weights(self, flat: np.ndarray) -> ChainWeights:
        return unstack_weights(flat, *self.shape)

    def solve(self, V: np.ndarray) -> np.ndarray:
        if self.matrix is not None:
            return solve_dense(self.matrix, V, 0.0).w
        preconditioner = self.moments.preconditioner
        return cg(self.moments, V, preconditioner=preconditioner, tol=TOLERANCE, max_iter=5_000).w


def separate(system, sample: Sample, allowed, cost, start: ChainWeights, max_iter: int):
    """min ½ wᵀCw + wᵀc with w·b - μ_ℓ ≥ 1 and constraints (3), added when found violated.

    Constraint (3) of a sequence and a wrong labeling y is w·(φ(ȳ) - φ(y)) ≥ margin. In each round
    every sequence decoded wrongly adds that of its best labeling. With K = GᵀC⁻¹G for the
    constraints' vectors G, b among them, the weights are C⁻¹(G a - c), a ≥ 0 being the answer of a
    quadratic program of as many numbers as constraints.

    Parameters
    ----------
    system : FreeSystem or PathSystem
    sample : Sample
    allowed : Constraints
    cost : ndarray of shape (n_labels, n_labels), or None
    start : ChainWeights
        Without constraints (3).
    max_iter : int
        Rounds.

    Returns
    -------
    Separation

    References
    ----------
    Ricci, De Bie, Cristianini (2007), Equation 3 and §6.
    """
    weights, seen = start, set()
    least = 1.0 + (0.0 if cost is None else system.mean_loss(cost))
    margin = MARGIN * least / max(len(sample.y), 1)
    G, h = [system.b], [least]
    solved = [system.solve(system.b[:, None])[:, 0]]
    with_loss = 0.0 * system.b
    if cost is not None:
        with_loss = system.solve(system.loss_covariance(cost)[:, None])[:, 0]
    for _ in range(max_iter):
        wrong = _wrong_labelings(sample, allowed, weights)
        new = [(s, path) for s, path in wrong if (s, path.tobytes()) not in seen]
        if not wrong:
            return Separation(weights, len(seen), "")
        if not new:
            break
        for s, path in new:
            seen.add((s, path.tobytes()))
            gap, n_wrong = _difference(sample, s, path)
            G.append(system.flat(gap))
            h.append(margin * n_wrong)
        columns = system.solve(np.stack(G[len(solved) :], axis=1))
        solved.extend(columns.T)
        V, Z = np.stack(G, axis=1), np.stack(solved, axis=1)
        a = least_distance(V.T @ Z, np.array(h) + V.T @ with_loss)
        if a is None:
            message = (
                f"No weights decode all training sequences right ({len(seen)} constraints "
                "contradict each other); kept the weights without these constraints. "
                "Use separate=False, or more features."
            )
            return Separation(start, len(seen), message)
        weights = system.weights(Z @ a - with_loss)
    message = (
        f"Training sequences are still decoded wrongly after {len(seen)} constraints; kept the "
        "weights without them. Raise max_iter, or use separate=False."
    )
    return Separation(start, len(seen), message)


def _wrong_labelings(sample: Sample, allowed, weights: ChainWeights) -> list:
    # (sequence, best path) where it is not the true one.
    emission = np.asarray(sample.rows @ weights.coef)
    scores = np.where(allowed.transition, weights.transition, -np.inf)
    start, end = (np.where(mask, 0.0, -np.inf) for mask in (allowed.start, allowed.end))
    paths, _ = viterbi(emission, scores, sample.offsets, start=start, end=end)
    found = []
    for s in np.flatnonzero(sample.weights > 0):
        span = slice(*sample.offsets[s : s + 2])
        if not np.array_equal(paths[span], sample.y[span]):
            found.append((int(s), paths[span]))
    return found


def _difference(sample: Sample, s: int, path: np.ndarray) -> tuple[ChainWeights, int]:
    # φ_s(ȳ) - φ_s(y), and the number of wrong labels.
    span, L = slice(*sample.offsets[s : s + 2]), sample.n_labels
    y, rows = sample.y[span], sample.rows[span]
    change = np.zeros((len(y), L))
    change[np.arange(len(y)), y] += 1
    change[np.arange(len(y)), path] -= 1
    transition = np.zeros((L, L))
    after = row_positions(np.array([0, len(y)]))[2]
    np.add.at(transition, (y[after - 1], y[after]), 1)
    np.add.at(transition, (path[after - 1], path[after]), -1)
    return ChainWeights(np.asarray(rows.T @ change), transition), int((path != y).sum())

"""Maximum of the z-score among the weights that label every training sequence correctly."""

from typing import NamedTuple, Self

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import offsets_of
from sklseq._lib.tiny import TINY
from sklseq.data.sequences import row_positions
from sklseq.estimators.zscore.ridge_systems import RidgeSystems
from sklseq.inference import viterbi
from sklseq.objectives.zscore.factorised import inverse_of_rows
from sklseq.objectives.zscore.moments import (
    ChainWeights,
    Sample,
    Statistics,
    centred,
    count_chain,
    decompose,
    pair_statistics,
    stack_weights,
    unstack_weights,
)
from sklseq.objectives.zscore.regression import RidgeSystem
from sklseq.solvers import cg, least_distance, solve_dense

# Margin of a true labeling for each wrong label, as a fraction of its mean margin per row over all
# labelings. Any positive number serves; with 0, ties would be resolved by the order of the labels.
MARGIN = 0.1
SHORT = 1e-3  # share of its margin that a labeling may lack
DENSE = 2_000  # largest size of a matrix that is factorised
TOLERANCE = 1e-10


class Separation(NamedTuple):
    """Result of :func:`separate`.

    Attributes
    ----------
    weights : ChainWeights
    n_constraints : int
    message : str
        Empty, or the reason why the weights do not satisfy the constraints.
    """

    weights: ChainWeights
    n_constraints: int
    message: str


def _join(main: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    # Flatten the matrices along the last two axes and join them.
    parts = [part.reshape(*part.shape[:-2], -1) for part in (main, pairs)]
    return np.concatenate(parts, axis=-1)


class FreeSystem:
    """C + 2 · l2 for free labels, on flat (W, D) of :func:`decompose`."""

    def __init__(self, systems: RidgeSystems, l2: float):
        sample, rows = systems.sample, systems.rows
        self.shape = (len(rows.means), sample.n_labels)
        self.direct = self.shape[0] <= DENSE
        self.statistics = Statistics(None, None, rows.means, *count_chain(sample))
        self.observed = rows.label_sums(sample.y, sample.n_labels)
        self.observed += np.outer(rows.means, self.statistics.labels)
        self.ridge = 2 * sample.n_labels * l2
        self.excess, self.variance = pair_statistics(self.statistics, l2)
        self.b = _join(centred(self.observed), self.excess)
        if self.direct:
            self.inverse = inverse_of_rows(rows, systems.statistics.gram, self.ridge)
        else:
            self.regression = RidgeSystem(rows, sample.y, sample.n_labels, self.ridge)

    def flat(self, weights: ChainWeights) -> np.ndarray:
        return _join(*decompose(weights))

    def weights(self, flat: np.ndarray) -> ChainWeights:
        n, L = self.shape
        return stack_weights(flat[: n * L].reshape(n, L), flat[n * L :].reshape(L, L))

    def mean_loss(self, cost: np.ndarray) -> float:
        return float(self.statistics.labels @ cost.mean(axis=1))

    def loss_covariance(self, cost: np.ndarray) -> np.ndarray:
        main = self.observed @ centred(cost) / self.shape[1]
        return _join(main, np.zeros_like(self.excess))

    def solve(self, V: np.ndarray) -> np.ndarray:
        """C⁻¹V, for columns (W, D) with W that sum to zero over labels."""
        n, L = self.shape
        # (columns of X̃, labels · right-hand sides), all labels but the last
        main = V[: n * L].reshape(n, L, -1)[:, :-1].reshape(n, -1)
        if self.direct:
            main = self.inverse.solve(main, 0.0)[0]
        else:
            solved = cg(
                self.regression, self.regression.right_hand_side(main),
                preconditioner=self.regression.preconditioner, tol=TOLERANCE, max_iter=5_000,
            )  # fmt: skip
            main = self.regression.solution_of(solved.w)
        pairs = V[n * L :] / self.variance if self.variance > 0 else 0 * V[n * L :]
        main = L * main.reshape(n, L - 1, -1)
        main = np.concatenate([main, -main.sum(axis=1, keepdims=True)], axis=1)
        return np.concatenate([main.reshape(n * L, -1), pairs])


class PathSystem:
    """C + 2 · l2 on flat weights, for moments that only give products with C."""

    def __init__(self, moments):
        self.moments, self.b = moments, moments.b
        self.mean_loss, self.loss_covariance = moments.mean_loss, moments.loss_covariance
        self.shape = moments.sample.rows.shape[1], moments.sample.n_labels
        n = len(self.b)
        self.matrix = moments.hessian_product(np.eye(n)) if n <= DENSE else None

    def flat(self, weights: ChainWeights) -> np.ndarray:
        return _join(*weights)

    def weights(self, flat: np.ndarray) -> ChainWeights:
        return unstack_weights(flat, *self.shape)

    def solve(self, V: np.ndarray) -> np.ndarray:
        if self.matrix is not None:
            return solve_dense(self.matrix, V, 0.0).w
        preconditioner = self.moments.preconditioner
        return cg(self.moments, V, preconditioner=preconditioner, tol=TOLERANCE, max_iter=5_000).w


def separate(system, sample: Sample, allowed, cost, start: ChainWeights, max_iter: int):
    """min ½ wᵀCw + wᵀc with w·b - μ_ℓ ≥ 1 and constraints (3), added when found violated.

    Constraint (3) of a sequence and a wrong labeling y is w·(φ(ȳ) - φ(y)) ≥ margin, times the
    number of wrong labels. In each round every sequence adds the constraint that is violated most,
    found by decoding with the margin added to the scores of wrong labels. The columns of G are
    the vectors of the constraints, and b. The weights are C⁻¹(G a - c), where a ≥ 0 solves a
    quadratic program with the matrix K = GᵀC⁻¹G and one variable for each constraint.

    Parameters
    ----------
    system : FreeSystem or PathSystem
    sample : Sample
    allowed : Constraints
    cost : ndarray of shape (n_labels, n_labels), or None
    start : ChainWeights
        Weights without constraints (3).
    max_iter : int
        Largest number of rounds.

    Returns
    -------
    Separation

    References
    ----------
    Ricci, De Bie, Cristianini (2007), Equation 3 and §6.
    """
    weights, seen = start, set()
    program, least = Program.of_sums(system, cost)
    margin = MARGIN * least / sample.row_weights.sum()
    for _ in range(max_iter):
        wrong = _violations(sample, allowed, weights, margin)
        new = [(s, path) for s, path in wrong if (s, path.tobytes()) not in seen]
        if not wrong:
            return Separation(weights, len(seen), "")
        if not new:
            break
        seen.update((s, path.tobytes()) for s, path in new)
        gaps, n_wrong = _differences(sample, new)
        program.add(system.flat(gaps), margin * n_wrong)
        flat = program.solve()
        if flat is None:
            message = (
                f"No weights decode all training sequences right ({len(seen)} constraints "
                "contradict each other); kept the weights without these constraints. "
                "Use separate=False, or more features."
            )
            return Separation(start, len(seen), message)
        weights = system.weights(flat)
    message = (
        f"Training sequences still lack their margins after {len(seen)} constraints; kept the "
        "weights without them. Raise max_iter, or use separate=False."
    )
    return Separation(start, len(seen), message)


class Program:
    """min ½ wᵀCw + wᵀc subject to w·g ≥ h, for constraints (g, h) that are added in rounds.

    Parameters
    ----------
    system : FreeSystem or PathSystem
    with_loss : ndarray of shape (n,)
        C⁻¹c.
    """

    def __init__(self, system, with_loss: np.ndarray):
        self.system, self.with_loss = system, with_loss
        # C⁻¹g for each g, in units in which the diagonal of K = GᵀC⁻¹G is 1, by rounds.
        self.solved: list[np.ndarray] = []
        self.K, self.h, self.a = np.empty((0, 0)), np.empty(0), np.empty(0)

    @classmethod
    def of_sums(cls, system, cost: np.ndarray | None) -> tuple[Self, float]:
        """The program with the constraint w·b ≥ 1 + μ_ℓ alone, and its right-hand side."""
        if cost is None:
            program, least = cls(system, 0.0 * system.b), 1.0
        else:
            program = cls(system, system.solve(system.loss_covariance(cost)[:, None])[:, 0])
            least = 1.0 + system.mean_loss(cost)
        program.add(system.b[None], [least])
        return program, least

    def add(self, G: np.ndarray, h) -> None:
        """Add constraints, one for each row of G."""
        solved = self.system.solve(G.T).T
        size = np.sqrt(np.maximum(np.einsum("ij,ij->i", G, solved), TINY))[:, None]
        G, solved, n, m = G / size, solved / size, len(self.h), len(G)
        beside = np.concatenate([np.empty((0, m)), *(before @ G.T for before in self.solved)])
        corner = G @ solved.T
        K = np.empty((n + m, n + m))
        K[:n, :n], K[:n, n:], K[n:, :n] = self.K, beside, beside.T
        K[n:, n:] = 0.5 * (corner + corner.T)
        self.K, self.solved = K, [*self.solved, solved]
        self.h = np.concatenate([self.h, h / size[:, 0] + G @ self.with_loss])

    def solve(self) -> np.ndarray | None:
        """Return w; None if the constraints contradict each other."""
        active = np.ones(len(self.h), dtype=bool)  # active at the last solution, or new
        active[: len(self.a)] = self.a > 0
        start = np.append(self.a, np.zeros(len(self.h) - len(self.a)))
        a = least_distance(self.K, self.h, active, start)
        if a is None:
            return None
        self.a = a
        ends = np.cumsum([len(solved) for solved in self.solved])[:-1]
        parts = zip(np.split(a, ends), self.solved)
        return sum(part @ solved for part, solved in parts) - self.with_loss


def _violations(sample: Sample, allowed, weights: ChainWeights, margin: float) -> list:
    # (sequence, labeling) of the sequences that lack a margin: the labeling that lacks most.
    emission = np.asarray(sample.rows @ weights.coef) + margin * (1 - SHORT)
    emission[np.arange(len(sample.y)), sample.y] -= margin * (1 - SHORT)
    scores = np.where(allowed.transition, weights.transition, -np.inf)
    start, end = (np.where(mask, 0.0, -np.inf) for mask in (allowed.start, allowed.end))
    paths, _ = viterbi(emission, scores, sample.offsets, start=start, end=end)
    rows = np.flatnonzero(paths != sample.y)
    wrong = np.unique(np.searchsorted(sample.offsets, rows, side="right") - 1)
    wrong = wrong[sample.weights[wrong] > 0].tolist()
    return [(s, paths[slice(*sample.offsets[s : s + 2])]) for s in wrong]


def _differences(sample: Sample, labelings: list) -> tuple[ChainWeights, np.ndarray]:
    # φ_s(ȳ) - φ_s(y) and the number of wrong labels for each pair (s, y).
    L, n = sample.n_labels, len(labelings)
    at = np.concatenate([np.arange(*sample.offsets[s : s + 2]) for s, _ in labelings])
    lengths = [len(path) for _, path in labelings]
    owner, truth = np.repeat(np.arange(n), lengths), sample.y[at]
    path = np.concatenate([path for _, path in labelings])
    places = np.concatenate([owner * L + truth, owner * L + path])
    signs, columns = np.repeat([1.0, -1.0], len(at)), np.tile(np.arange(len(at)), 2)
    change = sparse.csr_array((signs, (places, columns)), shape=(n * L, len(at)))
    coef = change @ sample.rows[at]
    coef = coef.toarray() if sparse.issparse(coef) else coef
    transition, after = np.zeros((n, L, L)), row_positions(offsets_of(lengths))[2]
    for sign, labels in ((1, truth), (-1, path)):
        np.add.at(transition, (owner[after], labels[after - 1], labels[after]), sign)
    gaps = ChainWeights(coef.reshape(n, L, -1).swapaxes(1, 2), transition)
    return gaps, np.bincount(owner, truth != path, minlength=n)

"""Structured hinge loss with a softened maximum, for sequences of any length.

With F, loss and C as in ``hinge``, the maximum over labelings becomes, at temperature μ > 0,

    f_μ(w) = ½‖w‖² + C Σ_i c_i (μ log Σ_y exp((loss(y_i, y) + F(x_i, y)) / μ) - F(x_i, y_i)),

which exceeds the hinge objective f_0 by at least 0 and at most
C Σ_i c_i μ log(number of labelings).
For v = w / μ, f_μ / (μ C) is the objective of a CRF with loss(y_i, y) / μ added to its scores, and
l2 = μ / 2C: an evaluation is one forward-backward, linear in the number of rows.

The dual of a chain depends on the marginals of its transitions only (Taskar, Guestrin, Koller
2003). The marginals of the softened maximum, with expectations E_i, are feasible: for every w,

    min f_0 ≥ C Σ_i c_i E_i[loss] - ½‖C Σ_i c_i (φ(x_i, y_i) - E_i[φ])‖²,

and the norm is that of w - ∇f_μ(w). With Viterbi's value of f_0(w), both bounds are known. The
gap is at most ½‖∇f_μ(w)‖² + C μ Σ_i c_i · entropy of i.

Scores are divided by μ, so the logarithms of marginals have errors of about ε log Z_i with the unit
roundoff ε: at small μ they are not the marginals of any distribution, and the bound may be wrong by
about C Σ_i c_i · ε log Z_i · μ log Z_i, which is subtracted from it.

Slack L2 squares the softened slacks s_i: 2 s_i c_i replaces c_i in the gradient and in the bound,
which gains the term - C Σ_i c_i s_i². An evaluation then runs forward-backward twice.
"""

import numpy as np
from scipy import sparse

from sklseq._lib.threads import Threads, in_parts
from sklseq.inference.chain.halves import SharedRows
from sklseq.inference.chain.linear_chain import best_paths
from sklseq.inference.chain.path_scores import path_scores
from sklseq.objectives.likelihood.likelihood import (
    LogLikelihood,
    SumOfParts,
    ThreadBuffers,
    squared_norm,
)
from sklseq.objectives.scores.design import _linear
from sklseq.objectives.scores.score_map import Chain, ScoreMap, Weights

EPSILON = np.finfo(np.float64).eps / 2


class SmoothedHinge(LogLikelihood):
    """f_μ / (μ C) as a function of v = w / μ, and the bounds of f_0.

    Parameters
    ----------
    scores : ScoreMap
    y, offsets, weights : ndarray
        Label codes of rows, offsets of sequences, and c_i > 0.
    C : float
    cost : ndarray of shape (n_labels, n_labels)
        Loss of a row, true labels in rows.
    scale : float
        Value of the features of transitions, and of those of the first and last label; positive.
    squared : bool
        Whether slacks are squared.
    threads : Threads

    Attributes
    ----------
    best : ndarray
        Weights w of the least measured f_0, in the order of ``scores``; ``primal`` is its value.
    dual : float
        The largest lower bound.
    slope : float
        ½‖∇f_μ(w)‖² / (μ C) where the gradient was last evaluated.
    rounding : float
        Error subtracted from the last bound, about proportional to 1 / μ.
    """

    def __init__(
        self, scores: ScoreMap, y, offsets, weights, C: float, cost, scale: float, squared: bool,
        threads: Threads,
    ):  # fmt: skip
        self.squared, self.given = squared, np.array(weights, dtype=np.float64)
        super().__init__(scores, y, offsets, self.given.copy(), 0.0, threads)
        self.C, self.chain_ridge = float(C), 1 / scale**2
        self.cost = np.zeros((len(cost), scores.width), dtype=scores.dtype)
        self.cost[:, : len(cost)] = cost
        self.expected_loss = np.zeros(len(weights))
        self.best, self.primal, self.dual = scores.new_vector(), np.inf, -np.inf
        self.rounding = 0.0
        self.cool(1.0)

    @property
    def typical_loss(self) -> float:
        """The largest loss of one row."""
        return float(self.cost.max()) or 1.0

    def cool(self, temperature: float) -> np.ndarray:
        """Set μ; returns the best weights as v, a new array."""
        self.temperature, self.l2 = temperature, temperature / (2 * self.C)
        return self.best / temperature

    def rescale(self, ratio: float) -> None:
        """Multiply C by ``ratio``. The best weights are kept, the bounds are reset."""
        self.C *= ratio
        self.primal, self.dual = np.inf, -np.inf

    def value_and_gradient(self, v: np.ndarray, gradient: np.ndarray) -> float:
        """f_μ / (μ C) at v; its gradient is written into ``gradient``."""
        if not self.squared:
            return super().value_and_gradient(v, gradient)
        chain, W = self.scores.chain(v), self.scores.design.weights(self.scores.state(v))
        self.threads.map(ThreadBuffers.clear, self.buffers)
        self.add_up(W, chain, counts=False)
        slack = self.log_z - self.observed_score - self._chain_scores(chain)
        # Slacks are μ · slack. The sum of products with the new weights counts each square twice.
        self.weights[:] = 2 * self.temperature * slack * self.given
        self._count_observed()
        return super().value_and_gradient(v, gradient) - 0.5 * float(self.weights @ slack)

    value = SumOfParts.value  # where v = 0, losses still tell labelings apart

    def measure(self, v: np.ndarray) -> tuple[float, float, float]:
        """(least f_0, largest lower bound) so far, including v, and ½‖∇f_μ‖² at v."""
        gradient, mu, n = self.scores.new_vector(), self.temperature, self.scores.n_state
        self.value_and_gradient(v, gradient)
        w, slope = mu * v, self.C * gradient
        # The chain's part of w holds scores, which are weights times `scale`; so do derivatives.
        expected = w - slope
        expected[n:] = w[n:] - slope[n:] / self.chain_ridge
        loss, half = self.C * float(self.weights @ self.expected_loss), 0.0
        if self.squared:
            half = self.C * float((self.weights**2 / (4 * self.given)).sum())
        half += 0.5 * self._squared_norm(expected)
        # The best multiple of this dual point; with slack L1, C bounds it.
        k = loss / (2 * half) if half > 0 else 1.0
        k = k if self.squared else min(k, 1.0)
        self.rounding = self._rounding()
        self.dual = max(self.dual, k * loss - k**2 * half - self.rounding)
        slacks = self._slacks(w) ** (2 if self.squared else 1)
        primal = 0.5 * self._squared_norm(w) + self.C * float(self.given @ slacks)
        if primal < self.primal:
            self.best, self.primal = w, primal
        return self.primal, self.dual, self.slope * mu * self.C

    def _rounding(self) -> float:
        return EPSILON * self.C * self.temperature * float(self.weights @ np.square(self.log_z))

    def _squared_norm(self, w: np.ndarray) -> float:
        n = self.scores.n_state
        return squared_norm(w[:n]) + self.chain_ridge * squared_norm(w[n:])

    def _chain_scores(self, chain: Chain) -> np.ndarray:
        # Scores of the true transitions, first and last labels of each sequence.
        scores = path_scores(None, chain.score, chain.start, chain.end, self.offsets, self.y)
        if self.scores.features is not None:
            row, weight, value = self.scores.features.of_labels(self.offsets, self.y)
            sequence = np.searchsorted(self.offsets, row, side="right") - 1
            scores += np.bincount(sequence, value * chain.v[weight], len(scores))
        return scores

    def _slacks(self, w: np.ndarray) -> np.ndarray:
        # max_y (loss + F(x_i, y) - F(x_i, y_i)) of each sequence
        scores, design, features = self.scores, self.scores.design, self.scores.features
        chain = Chain(*scores.chain_weights(w), dtype=scores.dtype)
        chain.v = scores.triples(w)
        W, best = design.weights(scores.state(w)), np.zeros(len(self.given))

        def add(block, work, threads=None) -> None:
            first, last, sequences, offsets, _, y = block
            psi, entries = work.rows(None, first, last), None

            def score(at: slice) -> None:
                design.scores(W, first + at.start, first + at.stop, psi[at])

            def raise_wrong(at: slice) -> None:
                psi[at] += self.cost[y[at]]

            def score_again(a: int, b: int) -> None:
                score(slice(a, b))
                raise_wrong(slice(a, b))

            in_parts(threads, score, len(psi))
            _linear.observed_scores(psi, y, offsets, self.observed_score[sequences])
            in_parts(threads, raise_wrong, len(psi))
            if features is not None:
                entries = features.fill(chain.v, chain.score, first, offsets, work.entries)
            shared = None if threads is None else SharedRows(threads, score_again)
            best[sequences] = best_paths(psi, offsets, chain, entries, shared)[1]

        def add_run(job) -> None:
            for block in job[0]:
                add(block, job[1])

        self.threads.map(add_run, zip(self.unshared, self.buffers))
        for block in self.shared:
            add(block, self.buffers[0], self.threads)
        return np.maximum(best - self.observed_score - self._chain_scores(chain), 0)

    def compare(self, psi, block, chain, work, counts: bool, entries=None) -> None:
        """The likelihood's ``compare`` with loss / μ added to scores; stores the expected loss."""
        threads, lost = work.threads, np.empty(len(psi))
        softened = (self.cost / self.temperature).astype(psi.dtype, copy=False)

        def raise_wrong(at: slice) -> None:
            psi[at] += softened[block.y[at]]

        def lose(at: slice) -> None:
            lost[at] = np.einsum("ij,ij->i", psi[at], self.cost[block.y[at]])

        in_parts(threads, raise_wrong, len(psi))
        super().compare(psi, block, chain, work, counts, entries)
        if counts:  # residuals are weight · (marginal - truth), and the truth has loss 0
            in_parts(threads, lose, len(psi))
            at = np.repeat(np.arange(len(block.weights)), np.diff(block.offsets))
            loss = np.bincount(at, lost, len(block.weights))
            held = np.where(block.weights > 0, block.weights, 1)  # slack 0 has weight 0
            self.expected_loss[block.sequences] = loss / held

    def store_gradient(self, transition, w, gradient) -> float:
        # Adds the ridge of the chain's scores, which are weights times `scale`.
        ridge, n = super().store_gradient(transition, w, gradient), self.scores.n_state
        extra = self.l2 * (self.chain_ridge - 1)
        gradient[n:] += 2 * extra * w[n:]
        of_chain = squared_norm(gradient[n:]) / self.chain_ridge
        square = self.C * (squared_norm(gradient[:n]) + of_chain) / self.temperature
        self.slope = 0.5 * square
        return ridge + extra * squared_norm(w[n:])

    def as_weights(self) -> Weights:
        """The best weights in the user's order of features."""
        return self.scores.unpack(self.best)

    def triples(self) -> sparse.csr_matrix | None:
        """Weights of transition features, see ``ScoreMap.unpack_triples``."""
        return self.scores.unpack_triples(self.best)

"""Likelihood of partial labels: the probability of all labelings that agree with them."""

from __future__ import annotations

import numpy as np

from sklseq._lib.ragged import offsets_of
from sklseq._lib.threads import Threads
from sklseq.data.partial_labels import AllowedLabels
from sklseq.data.sequences import row_positions
from sklseq.inference.chain.linear_chain import Transitions, Workspace
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.inference.chain.tangent import Direction, Filtered, TangentWorkspace
from sklseq.objectives.likelihood.likelihood import Block, LogLikelihood, ThreadBuffers
from sklseq.objectives.scores.score_map import ScoreMap


def nothing_known() -> ValueError:
    """The error for y without any known label."""
    return ValueError(
        "y must hold a known label in a sequence of positive weight; all are unknown (None, NaN or "
        "the set of all labels)."
    )


class PartialLogLikelihood(LogLikelihood):
    """f(w) = -Σ_s weight_s · log p(Y_s | x_s) + l2 · ‖w‖²₂, where Y_s is a set of labelings.

    With A_t the labels allowed at row t, Y = A_1 × … × A_T and

        log p(Y | x) = log Z(Y) - log Z,   log Z(Y) = log Σ_{y ∈ Y} exp s(y).

    log Z(Y) is log Z with scores of -inf for labels that are not allowed, and the expected counts
    under p(y | x, y ∈ Y) replace the observed counts in the gradient: it is the difference of two
    forward-backward passes. f is not convex, as the convex log Z(Y) is subtracted.

    Parameters
    ----------
    scores : ScoreMap
    labels : AllowedLabels
        Sequences with all labels known come first: their blocks need one pass only.
    offsets, weights, l2, threads, buffers
        See ``LogLikelihood``.

    References
    ----------
    Y. Tsuboi, H. Kashima, H. Oda, S. Mori, Y. Matsumoto (2008), "Training conditional random fields
    using incomplete annotations", COLING, §4.
    """

    def __init__(
        self, scores: ScoreMap, labels: AllowedLabels, offsets, weights, l2: float,
        threads: Threads, buffers=None,
    ):  # fmt: skip
        self.labels, self.penalties = labels, labels.penalties(scores.width, scores.dtype)
        super().__init__(scores, labels.codes, offsets, weights, l2, threads, buffers)

    def alone(self) -> PartialLogLikelihood:
        args = self.labels, self.offsets, self.weights, 0.0, Threads(1)
        return PartialLogLikelihood(self.scores.unshared(), *args)

    @property
    def n_labelled(self) -> int:
        """Number of sequences in blocks whose labels are all known."""
        blocks = [block for run in self.runs for block in run if self._is_labelled(block)]
        return blocks[-1].sequences.stop if blocks else 0

    def _is_labelled(self, block: Block) -> bool:
        return block.y.max(initial=0) < self.scores.n_labels

    def compare(
        self, psi: np.ndarray, block: Block, chain: Transitions, work: ThreadBuffers, counts: bool,
        entries: RowTransitions | None = None,
    ) -> None:  # fmt: skip
        """Compute log Z(Y) and log Z of a block; turn its scores into differences of marginals."""
        if self._is_labelled(block):
            return super().compare(psi, block, chain, work, counts, entries)
        _, _, sequences, offsets, weights, codes = block
        allowed = psi + self.penalties[codes]
        plus, minus = (weights, -weights) if counts else (None, None)
        log_z, log_z_allowed = self.log_z[sequences], self.observed_score[sequences]
        work.forward_backward(psi, offsets, plus, chain, log_z, entries)
        work.forward_backward(allowed, offsets, minus, chain, log_z_allowed, entries)
        if not counts:
            return None
        psi -= allowed
        psi *= np.repeat(weights, np.diff(offsets)).astype(psi.dtype)[:, None]
        work.add_ends(psi, offsets)
        return None

    def filtered(self, psi: np.ndarray, block: Block, chain: Transitions, work) -> list[Filtered]:
        """Forward-backward of a block over all labels and, separately, over allowed labels."""
        if self._is_labelled(block):
            return super().filtered(psi, block, chain, work)
        allowed = psi + self.penalties[block.y]
        (rows,) = super().filtered(psi, block, chain, work)
        log_z = self.observed_score[block.sequences]
        return [rows.copy(), work.filter(allowed, block.offsets, chain, log_z)]

    def tangents(self, rows: list, dpsi: np.ndarray, block: Block, direction, work) -> None:
        """Turn a change of scores into that of residuals, a difference of two tangents."""
        if self._is_labelled(block):
            return super().tangents(rows, dpsi, block, direction, work)
        change = dpsi.copy()
        work.tangents(rows[0], dpsi, block.offsets, block.weights, direction)
        work.tangents(rows[1], change, block.offsets, -block.weights, direction)
        dpsi += change
        return None


class EntropyLikelihood(PartialLogLikelihood):
    """f(w) = -Σ_s weight_s · log p(Y_s | x_s) + λ Σ_u weight_u · H(p(· | x_u)) + l2 · ‖w‖²₂.

    u are the sequences without any known label, for which the first term is 0. With s the score of
    a path, H = log Z - E[s] and

        ∂H/∂w = -Cov(φ, s) = -(Hessian of log Z) w,

    computed by the tangent of forward-backward in the direction of the scores. f is not convex.

    Parameters
    ----------
    scores, labels, offsets, weights, l2, threads
        See ``PartialLogLikelihood``; sequences without any known label come last.
    entropy_weight : float
        λ.

    References
    ----------
    Y. Grandvalet, Y. Bengio (2004), "Semi-supervised learning by entropy minimization", NIPS.

    F. Jiao, S. Wang, C.-H. Lee, R. Greiner, D. Schuurmans (2006), "Semi-supervised conditional
    random fields for improved sequence segmentation and labeling", COLING/ACL, §3.
    """

    def __init__(
        self, scores: ScoreMap, labels: AllowedLabels, offsets, weights, l2: float,
        threads: Threads, entropy_weight: float,
    ):  # fmt: skip
        known = offsets_of(~labels.unknown)
        self.penalty = np.where(np.diff(known[offsets]) > 0, 0, -entropy_weight * weights)
        super().__init__(scores, labels, offsets, weights, l2, threads)

    def add_up(self, W, chain, counts: bool = True) -> float:
        dense, L = in_float64(chain), chain.n_labels
        parts = dense.score[:L, :L], dense.start[:L], dense.end[:L]
        along = (np.where(x > -np.inf, x, 0) for x in parts)
        self.direction, self.entropies = Direction(dense, *along), np.zeros(len(self.weights))
        return super().add_up(W, chain, counts) + float(self.entropies.sum())

    def compare(
        self, psi: np.ndarray, block: Block, chain: Transitions, work: ThreadBuffers, counts: bool,
        entries: RowTransitions | None = None,
    ) -> None:  # fmt: skip
        """See ``PartialLogLikelihood``; adds the entropy of sequences without known labels."""
        penalty = self.penalty[block.sequences]
        if not penalty.any():
            return super().compare(psi, block, chain, work, counts, entries)
        given = psi.astype(np.float64)
        super().compare(psi, block, chain, work, counts, entries)
        self._add_values(given.copy(), block, penalty)
        if counts:
            add_covariances(psi, given.copy(), given, block, penalty, self.direction, work)
        return None

    def _add_values(self, psi: np.ndarray, block: Block, penalty: np.ndarray) -> None:
        # Store penalty · (log Z - E[s]), summed over the block.
        direction, offsets, mu = self.direction, block.offsets, psi.copy()
        log_z, rows = np.zeros(len(penalty)), Workspace(*psi.shape, psi.dtype)
        rows.forward_backward(mu, offsets, penalty, direction.chain, log_z)
        mu *= np.repeat(penalty, np.diff(offsets))[:, None]
        L, (first, last, _) = self.scores.n_labels, row_positions(offsets)
        score = np.vdot(mu, psi) + np.vdot(mu[first].sum(axis=0), direction.start)
        score += np.vdot(mu[last].sum(axis=0), direction.end)
        score += np.vdot(rows.pairwise_sum(direction.chain), direction.score[:L, :L])
        self.entropies[block.sequences.start] = penalty @ log_z - score


def in_float64(chain: Transitions) -> Transitions:
    """``chain`` in float64, exponentiated and without ``pairs``, as tangents need it."""
    L, parts = chain.n_labels, (chain.score, chain.start, chain.end)
    return Transitions(*(x[(slice(L),) * x.ndim].astype(np.float64) for x in parts)).exponentiate()


def add_covariances(
    residual: np.ndarray, psi: np.ndarray, change: np.ndarray, block: Block, weights: np.ndarray,
    direction: Direction, work: ThreadBuffers,
) -> None:  # fmt: skip
    """Add covariances with ``change`` and ``direction``, times weights, to residuals and sums.

    ``psi``: scores of the rows of the block, which are overwritten, as is their ``change``.
    """
    rows, log_z = TangentWorkspace(*psi.shape), np.zeros(len(weights))
    filtered = rows.filter(psi, block.offsets, direction.chain, log_z)
    rows.tangents(filtered, change, block.offsets, weights, direction)
    pairs = rows.pair_tangents(direction, rows.pairs)
    residual += change.astype(residual.dtype)
    work.add_ends(change, block.offsets)
    if work.exact is None:
        work.exact = np.zeros_like(pairs)
    work.exact += pairs

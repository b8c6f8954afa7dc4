"""Likelihood of partial labels: of all labelings that agree with them."""

from __future__ import annotations

import numpy as np

from sklseq._lib.threads import Threads
from sklseq.data.partial_labels import AllowedLabels
from sklseq.data.sequences import row_positions
from sklseq.inference.chain.linear_chain import Transitions
from sklseq.inference.chain.tangent import Filtered
from sklseq.objectives.likelihood.likelihood import Block, LogLikelihood, ThreadBuffers
from sklseq.objectives.scores.score_map import ScoreMap

__all__ = ["PartialLogLikelihood"]


class PartialLogLikelihood(LogLikelihood):
    """f(w) = -Σ_s weight_s · log p(Y_s | x_s) + l2 · ‖w‖²₂, Y_s being a set of labelings.

    With A_t the labels allowed at row t, Y = A_1 × … × A_T and

        log p(Y | x) = log Z(Y) - log Z,   log Z(Y) = log Σ_{y ∈ Y} exp s(y).

    log Z(Y) is log Z of the scores in which labels that are not allowed score -inf, and the
    observed counts of the gradient become the expected ones of p(y | x, y ∈ Y): the difference of
    two forward-backward passes. f is not convex: log Z(Y) is, and is subtracted.

    Parameters
    ----------
    scores : ScoreMap
    labels : AllowedLabels
        Sequences of which all labels are known come first: their blocks take one pass.
    offsets, weights, l2, threads
        As of ``LogLikelihood``.

    References
    ----------
    Y. Tsuboi, H. Kashima, H. Oda, S. Mori, Y. Matsumoto (2008), "Training conditional random fields
    using incomplete annotations", COLING, §4.
    """

    def __init__(
        self, scores: ScoreMap, labels: AllowedLabels, offsets, weights, l2: float, threads: Threads
    ):
        self.penalties = labels.penalties(scores.width, scores.dtype)
        super().__init__(scores, labels.codes, offsets, weights, l2, threads)

    @property
    def n_labelled(self) -> int:
        """Number of sequences in blocks of which all labels are known."""
        blocks = [block for run in self.runs for block in run if self._is_labelled(block)]
        return blocks[-1].sequences.stop if blocks else 0

    def _is_labelled(self, block: Block) -> bool:
        return block.y.max(initial=0) < self.scores.n_labels

    def compare(
        self, psi: np.ndarray, block: Block, chain: Transitions, work: ThreadBuffers, counts: bool
    ) -> None:
        """log Z(Y) and log Z of a block; its scores become differences of marginals."""
        if self._is_labelled(block):
            return super().compare(psi, block, chain, work, counts)
        _, _, sequences, offsets, weights, codes = block
        allowed = psi + self.penalties[codes]
        plus, minus = (weights, -weights) if counts else (None, None)
        work.forward_backward(psi, offsets, plus, chain, self.log_z[sequences])
        work.forward_backward(allowed, offsets, minus, chain, self.observed_score[sequences])
        if not counts:
            return None
        psi -= allowed
        psi *= np.repeat(weights, np.diff(offsets)).astype(psi.dtype)[:, None]
        first, last, _ = row_positions(offsets)
        work.ends[0] += psi[first].sum(axis=0)
        work.ends[1] += psi[last].sum(axis=0)
        return None

    def filtered(self, psi: np.ndarray, block: Block, chain: Transitions, work) -> list[Filtered]:
        """Forward-backward of a block, also over the labels that are allowed."""
        if self._is_labelled(block):
            return super().filtered(psi, block, chain, work)
        allowed = psi + self.penalties[block.y]
        (rows,) = super().filtered(psi, block, chain, work)
        log_z = self.observed_score[block.sequences]
        return [rows.copy(), work.filter(allowed, block.offsets, chain, log_z)]

    def tangents(self, rows: list, dpsi: np.ndarray, block: Block, direction, work) -> None:
        """Turn a change of the scores into that of residuals, a difference of two."""
        if self._is_labelled(block):
            return super().tangents(rows, dpsi, block, direction, work)
        change = dpsi.copy()
        work.tangents(rows[0], dpsi, block.offsets, block.weights, direction)
        work.tangents(rows[1], change, block.offsets, -block.weights, direction)
        dpsi += change
        return None

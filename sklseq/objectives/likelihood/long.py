"""Log-likelihood of sequences in blocks."""

import numpy as np

from sklseq._lib.tiny import TINY
from sklseq.data.partial_labels import AllowedLabels
from sklseq.inference.chain.expectation import BlockChain
from sklseq.inference.chain.linear_chain import check_paths
from sklseq.objectives.likelihood.block_sequence import AllowedSequence
from sklseq.objectives.likelihood.long_data import LongData
from sklseq.objectives.likelihood.long_hessian import LongHessian
from sklseq.objectives.likelihood.passes import Checkpoints, Counts, PendingTooLarge, Variances
from sklseq.objectives.likelihood.short import batches
from sklseq.objectives.scores.score_map import ScoreMap
from sklseq.objectives.scores.transition_features import BlockFeatures


class LongLogLikelihood:
    """f(w) = -Σ_s weight_s · log p(y_s | x_s) + l2 · ‖w‖²₂, on sequences in blocks.

    Value and gradient are those of ``LogLikelihood``, written as

        f(w) = Σ_s weight_s log Z_s - w · observed + l2 · ‖w‖²,
        ∇f   = Σ_s weight_s E_s[features] - observed + 2 · l2 · w:

    observed counts never change, so labels are read once, by ``LongData``; a pass of
    ``passes.py`` computes the expected counts. For a sequence with unknown labels, a second pass
    computes log Z and the expected counts of the labelings that y allows, which replace the
    observed ones (``PartialLogLikelihood``). Its codes stay in memory, 1 or 2 bytes per row.

    Parameters
    ----------
    scores : ScoreMap
        Made from ``data.summary.layout()``: the layout of w, without rows.
    data : LongData
    l2 : float

    Notes
    -----
    An evaluation reads sequences longer than a block ``passes.n_reads`` times, the others once.
    Sums are in float64.
    """

    def __init__(self, scores: ScoreMap, data: LongData, l2: float):
        self.scores, self.weights, self.l2 = scores, data.weights, float(l2)
        self.passes, self.or_checkpoint = data.plan.passes, data.plan.or_checkpoint
        self.sequences = data.sequences
        short = [x for x in self.sequences if 0 < x.n_rows <= data.plan.block_rows]
        self.long = [x for x in self.sequences if x.n_rows > data.plan.block_rows]
        self.batches = [
            batch
            for partial in (False, True)
            for batch in batches(
                [x for x in short if (x.codes is not None) == partial],
                self.weights,
                data.plan.block_rows,
            )
        ]
        self.penalties, self.allowed = None, {}
        if data.labels is not None:
            labels = AllowedLabels(np.zeros(0, dtype=np.int32), data.labels.table)
            self.penalties = labels.penalties(scores.width, np.float64)
            partial = [x for x in self.long if x.codes is not None]
            self.allowed = {x.number: AllowedSequence(x, self.penalties) for x in partial}
        budget = data.plan.keep / 2
        for batch in self.batches:
            budget -= batch.keep(budget)
        for sequence in self.long:
            sequence.keep -= data.plan.keep / 2 - budget
        observed, self.features = data.observed, None
        if scores.features is not None:
            self.features = scores.features.in_double()
            observed.triples = data.observed_triples(self.features)[None]
        self.observed = self.pack(observed)

    def value_and_gradient(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """Return f(w); write its gradient into ``gradient``."""
        log_z, counts = self._expect(w)
        check_paths(log_z)
        wide = w.astype(np.float64)
        gradient[:] = self.pack(counts) - self.observed + 2 * self.l2 * wide
        return float(self.weights @ log_z - wide @ self.observed + self.l2 * (wide @ wide))

    def value(self, w: np.ndarray) -> float:
        """f(w), at the cost of value and gradient."""
        return self.value_and_gradient(w, np.empty_like(w))

    def diagonal(self, w: np.ndarray) -> np.ndarray:
        """Second derivatives as by ``diagonal_curvature``, of all labelings.

        In sequences longer than a block, the probabilities of labels are those given the rows so
        far, so that all rows are read once.
        """
        scores, counts = self.scores, self._zeros()
        W = scores.design.unpack(scores.state(w)).astype(np.float64)
        bc, features = self._chain(w)
        with np.errstate(over="ignore", invalid="ignore"):
            for batch in self.batches:
                batch.add_variances(bc, W, counts.state, features)
            for sequence in self.long:
                Variances(bc, W, counts, self.weights[sequence.number], features).run(sequence)
        found = np.full(scores.n_weights, np.inf)
        scores.state(found)[:] = scores.design.pack(counts.state)
        return np.maximum(found + 2 * self.l2, TINY)

    def hessian(self, w: np.ndarray, max_bytes: float = 0.0) -> LongHessian:
        """Products with the Hessian at w; ``max_bytes`` is not used."""
        if self.penalties is not None:
            raise ValueError(
                "Products with the Hessian of rows in blocks need the label of every row; pass "
                "sequences in memory, or label them."
            )
        return LongHessian(self, w)

    def _expect(self, w: np.ndarray) -> tuple[np.ndarray, Counts]:
        if not self.or_checkpoint:
            return self._expect_by(self.passes, w)
        try:
            answer = self._expect_by(self.passes, w)
        except PendingTooLarge:
            self.passes, self.or_checkpoint = Checkpoints, False
            return self._expect_by(self.passes, w)
        # Checkpointing repeats the forward recursion at all rows. It replaces streaming if this
        # repeated more.
        n_repeated = sum(sequence.n_repeated for sequence in self.long)
        if n_repeated > sum(sequence.n_rows for sequence in self.long):
            self.passes, self.or_checkpoint = Checkpoints, False
        return answer

    def _expect_by(self, passes: type, w: np.ndarray) -> tuple[np.ndarray, Counts]:
        scores, log_z = self.scores, np.zeros(len(self.weights))
        W = scores.design.unpack(scores.state(w)).astype(np.float64)
        bc, features = self._chain(w)
        counts = self._zeros()
        for batch in self.batches:
            log_z[batch.numbers] = batch.run(bc, W, counts, features=features)
        for sequence in self.long:
            one = passes(bc, W, counts, self.weights[sequence.number], features)
            log_z[sequence.number] = one.run(sequence)
        if self.penalties is not None:
            check_paths(log_z)
            self._subtract_allowed(passes, (bc, W), features, log_z, counts)
        if features is not None:
            self.features.highest = features.highest
        return log_z, counts

    def _chain(self, w: np.ndarray) -> tuple[BlockChain, BlockFeatures | None]:
        scores, features = self.scores, self.features
        chain = scores.chain(w)
        if features is None:
            return BlockChain(chain), None
        bc = BlockChain(chain, features.highest)
        return bc, BlockFeatures(features, chain.v, bc.chain.score, scores.n_features)

    def _zeros(self) -> Counts:
        n_triples = 0 if self.features is None else self.features.n_weights
        return Counts(self.scores.n_features, self.scores.width, n_triples)

    def _subtract_allowed(
        self, passes: type, model: tuple, features: BlockFeatures | None, log_z, counts: Counts
    ) -> None:
        # Subtract log Z and expected counts of the labelings that y allows. model: (BlockChain, W).
        fewer, allowed = self._zeros(), np.zeros_like(log_z)
        for batch in self.batches:
            if (codes := batch.codes) is not None:
                penalties = self.penalties[codes]
                allowed[batch.numbers] = batch.run(*model, fewer, penalties, features)
        for number, sequence in self.allowed.items():
            one = passes(*model, fewer, self.weights[number], features)
            allowed[number] = one.run(sequence)
        log_z -= allowed
        counts.add(fewer, -1.0)

    def pack(self, counts: Counts) -> np.ndarray:
        """Like ``scores.pack``, but always in float64."""
        L = self.scores.n_labels
        gradient = np.empty(self.scores.n_weights)
        self.scores.state(gradient)[:] = self.scores.design.pack(counts.state)
        self.scores.store_chain(gradient, counts.pairs[:L, :L], counts.start, counts.end)
        if self.features is not None:
            self.scores.triples(gradient)[:] = counts.triples[0]
        return gradient

"""Batches of short sequences in blocks, processed together by forward-backward."""

from typing import Any

import numpy as np

from sklseq._lib.ragged import offsets_of
from sklseq.inference.chain.expectation import BlockChain
from sklseq.inference.chain.linear_chain import Workspace
from sklseq.objectives.likelihood.block_sequence import join_blocks
from sklseq.objectives.scores.transition_features import BlockFeatures


class Batch:
    """Short sequences, always processed by forward-backward.

    Parameters
    ----------
    sequences : list of BlockSequence
    weights : ndarray of shape (n_sequences,)

    Attributes
    ----------
    rows : DenseBlock, SparseBlock or None
        Rows of all the sequences; None if they are read at each evaluation.
    codes : ndarray, or None
        Label codes of all rows; None if no label is unknown.
    """

    def __init__(self, sequences: list, weights: np.ndarray):
        self.sequences, self.weights = sequences, weights
        lengths = np.array([sequence.n_rows for sequence in sequences])
        self.offsets = offsets_of(lengths)
        self.numbers = [sequence.number for sequence in sequences]
        self.rows = self.codes = None
        if sequences[0].codes is not None:
            self.codes = np.concatenate([sequence.codes for sequence in sequences])

    def keep(self, budget: float) -> int:
        """Keep a copy of rows that are in memory if it takes at most ``budget`` bytes."""
        # A single sequence would not be copied by joining, and its owner may change it.
        if len(self.sequences) == 1 or not all(one.in_memory for one in self.sequences):
            return 0
        rows = self._join()
        if rows.nbytes > budget:
            return 0
        self.rows = rows
        return rows.nbytes

    def read(self):
        """Block of the rows of all the sequences."""
        return self.rows or self._join()

    def _join(self):
        return join_blocks([rows for sequence in self.sequences for rows in sequence.blocks()])

    def run(
        self, bc: BlockChain, W: np.ndarray, counts, penalties: Any = 0.0,
        features: BlockFeatures | None = None,
    ) -> np.ndarray:  # fmt: skip
        """Add the expected counts of the sequences; return log Z of each.

        ``penalties`` are added to the scores of the rows; ``features``: transition features.
        """
        rows, chain, L = self.read(), bc.chain, bc.n_labels
        psi, log_z, work, entries = self._marginals(rows, bc, W, penalties, features)
        if log_z.min() == -np.inf:
            return log_z
        if entries is not None:
            entries.collect(counts.triples)
        psi *= self._row_weights
        rows.collect(psi, 0, counts.state)
        counts.pairs[:L, :L] += work.pairwise_sum(chain)
        counts.start += psi[self.offsets[:-1]].sum(axis=0)
        counts.end += psi[self.offsets[1:] - 1].sum(axis=0)
        return log_z

    def add_variances(
        self, bc: BlockChain, W: np.ndarray, out: np.ndarray, features: BlockFeatures | None
    ) -> None:
        """Add weight · x_t(f)² p_t(j) (1 - p_t(j)) of all rows to ``out``."""
        rows = self.read()
        p = self._marginals(rows, bc, W, 0.0, features)[0]
        rows.squared().collect(p * (1 - p) * self._row_weights, 0, out)

    @property
    def _row_weights(self) -> np.ndarray:
        return np.repeat(self.weights, np.diff(self.offsets))[:, None]

    def _marginals(self, rows, bc: BlockChain, W, penalties, features) -> tuple:
        # Marginals, log Z, and the state of the recursions: Workspace and transition features.
        psi, log_z = rows.scores(W), np.zeros(len(self.sequences))
        psi += penalties
        work, entries = Workspace(len(psi), bc.width, bc.chain.dtype), None
        if features is not None:
            entries = features.of_sequences(rows, self.offsets)
            entries.fill()
        of_rows = None if entries is None else entries.with_expected()
        work.forward_backward(psi, self.offsets, self.weights, bc.chain, log_z, of_rows)
        return psi, log_z, work, entries


def batches(sequences: list, weights: np.ndarray, block_rows: int) -> list[Batch]:
    """Batches of short sequences, none of 0 rows, with about a block of rows each."""
    runs, n = [], block_rows
    for sequence in sequences:
        if n + sequence.n_rows > block_rows:
            runs.append([])
            n = 0
        runs[-1].append(sequence)
        n += sequence.n_rows
    return [Batch(run, weights[[sequence.number for sequence in run]]) for run in runs]

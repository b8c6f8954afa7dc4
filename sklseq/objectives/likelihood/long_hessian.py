"""Products with the Hessian of the log-likelihood of sequences in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from sklseq.inference.chain.expectation import BlockChain
from sklseq.inference.chain.linear_chain import check_paths
from sklseq.inference.chain.tangent import BlockTangents, Direction, TangentWorkspace, seed
from sklseq.objectives.likelihood.passes import Counts
from sklseq.objectives.likelihood.short import Batch


class LongHessian:
    """Products with ∇²f(w) of a ``LongLogLikelihood``; see ``likelihood.Hessian``.

    A long sequence is read twice per product: first forward, keeping alpha and its derivative at
    the borders of at most max(4096, √T) blocks; then from the last block to the first, where each
    block is filtered again before its backward recursion. Memory: 16 · n_labels bytes per block,
    and one block.

    Parameters
    ----------
    f : LongLogLikelihood
        Its sources must allow random access.
    w : ndarray
    """

    def __init__(self, f: Any, w: np.ndarray):
        self.f, scores = f, f.scores
        for sequence in f.long:
            if not sequence.source.random_access:
                raise ValueError(
                    "Products with the Hessian read blocks from the last to the first, but "
                    f"{sequence.where} can only be read from the beginning; pass an array, a "
                    "memory map or a .npy file."
                )
        self.W = scores.design.unpack(scores.state(w)).astype(np.float64)
        self.bc = BlockChain(scores.chain(w))

    def product(self, v: np.ndarray, product: np.ndarray) -> None:
        """Write ∇²f(w) v into ``product``."""
        f, scores, width = self.f, self.f.scores, self.bc.width
        direction = Direction(self.bc.chain, *scores.trained_chain(v))
        V = scores.design.unpack(scores.state(v)).astype(np.float64)
        counts = Counts(scores.n_features, width)
        for batch in f.batches:
            self._add_batch(batch, V, direction, counts)
        for sequence in f.long:
            one = Counts(scores.n_features, width)
            check_paths(np.array([self._add(sequence, V, direction, one)]), sequence.number)
            counts.add(one, f.weights[sequence.number])
        product[:] = f.pack(counts) + 2 * f.l2 * v.astype(np.float64)

    def _add_batch(self, batch: Batch, V, direction: Direction, counts: Counts) -> None:
        rows, offsets = batch.read(), batch.offsets
        work = TangentWorkspace(len(rows), self.bc.width)
        log_z = np.zeros(len(batch.weights))
        filtered = work.filter(rows.scores(self.W), offsets, self.bc.chain, log_z)
        dmu = rows.scores(V)
        work.tangents(filtered, dmu, offsets, batch.weights, direction)
        rows.collect(dmu, 0, counts.state)
        counts.pairs += work.pair_tangents
        counts.start += dmu[offsets[:-1]].sum(axis=0)
        counts.end += dmu[offsets[1:] - 1].sum(axis=0)

    def _add(self, sequence, V, direction: Direction, counts: Counts) -> float:
        # Add the derivatives of all expected counts of a sequence; return its log Z.
        bc, tangents, spans = self.bc, BlockTangents(self.bc, direction), sequence.spans()
        n, L = len(spans), bc.n_labels
        before, F = np.empty((n + 1, bc.width)), np.zeros((n + 1, bc.width))
        log_z = 0.0

        def ahead(k: int):
            # Block k: its rows, its filter, the change of its scores, and F of its rows.
            nonlocal log_z
            rows = sequence.block(*spans[k])
            psi, dpsi = rows.scores(self.W), rows.scores(V)
            if k == 0:
                psi[0] += bc.chain.start
                dpsi[0] += direction.start
            if k == n - 1:
                psi[-1] += bc.chain.end
                dpsi[-1] += direction.end
            block, part = bc.filter(psi, before[k] if k else None)
            log_z += part
            return rows, block, dpsi, tangents.forward(block, dpsi, F[k])

        for k in range(n):
            rows, block, dpsi, of_rows = ahead(k)
            before[k + 1], F[k + 1] = block.last(L), of_rows[-1]
        whole_log_z, S = log_z, seed(block.probabilities(L), F[n])
        counts.end += S[1]
        for k in range(n - 1, -1, -1):
            if k < n - 1:
                rows, block, dpsi, of_rows = ahead(k)
            counts.pairs += tangents.backward(block, dpsi, of_rows, S)
            rows.collect(dpsi, 0, counts.state)
        counts.start += dpsi[0]
        return whole_log_z

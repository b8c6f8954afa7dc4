"""Products with the Hessian of the log-likelihood of sequences in blocks."""

from typing import Any

import numpy as np

from sklseq.inference.chain.expectation import BlockChain, FilteredBlock
from sklseq.inference.chain.linear_chain import check_paths
from sklseq.inference.chain.tangent import BlockTangents, Direction, TangentWorkspace, seed
from sklseq.objectives.likelihood.passes import Counts
from sklseq.objectives.likelihood.short import Batch

# Bytes that are kept for the last rows of a sequence.
KEPT = 1 << 25


class LongHessian:
    """Products with ∇²f(w) of a ``LongLogLikelihood``; see ``likelihood.Hessian``.

    A long sequence is read twice per product: first forward, keeping alpha and its derivative at
    the borders of at most max(4096, √T) blocks; then from the last block to the first, where each
    block is filtered again before its backward recursion, but for the last rows, of which up to
    ``KEPT`` bytes are kept. Memory: these, 16 · n_labels bytes per block, and one block.

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
        self.filtered: dict[tuple[int, int], tuple[FilteredBlock, float]] = {}
        # As in ``likelihood.Hessian``.
        self.pairs: np.ndarray | None = None

    def product(self, v: np.ndarray, product: np.ndarray) -> None:
        """Write ∇²f(w) v into ``product``."""
        f, scores, width = self.f, self.f.scores, self.bc.width
        direction = Direction(self.bc.chain, *scores.trained_chain(v))
        V = scores.design.unpack(scores.state(v)).astype(np.float64)
        counts, known = Counts(scores.n_features, width), self.pairs is not None
        pairs = np.zeros((width, width))
        for batch in f.batches:
            self._add_batch(batch, V, direction, counts, None if known else pairs)
        for sequence in f.long:
            one, xi = Counts(scores.n_features, width), None if known else np.zeros((width, width))
            check_paths(np.array([self._add(sequence, V, direction, one, xi)]), sequence.number)
            counts.add(one, f.weights[sequence.number])
            if xi is not None:
                pairs += f.weights[sequence.number] * xi
        if self.pairs is None:
            self.pairs = pairs
        counts.pairs += direction.score * self.pairs
        product[:] = f.pack(counts) + 2 * f.l2 * v.astype(np.float64)

    def _add_batch(self, batch: Batch, V, direction: Direction, counts: Counts, xi) -> None:
        rows, offsets = batch.read(), batch.offsets
        work = TangentWorkspace(len(rows), self.bc.width)
        if xi is None:
            work.pairs = None
        log_z = np.zeros(len(batch.weights))
        filtered = work.filter(rows.scores(self.W), offsets, self.bc.chain, log_z)
        dmu = rows.scores(V)
        work.tangents(filtered, dmu, offsets, batch.weights, direction)
        rows.collect(dmu, 0, counts.state)
        counts.pairs += work.pair_tangents(direction, 0)
        if xi is not None:
            xi += self.bc.chain.E * work.pairs
        counts.start += dmu[offsets[:-1]].sum(axis=0)
        counts.end += dmu[offsets[1:] - 1].sum(axis=0)

    def _add(self, sequence, V, direction: Direction, counts: Counts, xi) -> float:
        # Add the derivatives of all expected counts of a sequence; return its log Z.
        bc, tangents, spans = self.bc, BlockTangents(self.bc, direction), sequence.spans()
        n, L, kept = len(spans), bc.n_labels, []
        before, F = np.empty((n + 1, bc.width)), np.zeros((n + 1, bc.width))
        # Four arrays are kept: alpha, its factor, A and the change of the scores.
        n_kept = min(sequence.keep, KEPT) / (32 * bc.width)
        log_z, whole = 0.0, sequence.first_whole(spans, n_kept)

        def ahead(k: int) -> tuple:
            # Block k: its rows, its filter, the change of its scores, and A of its rows.
            nonlocal log_z
            rows, buffer = sequence.block(*spans[k]), _new if k >= whole else bc.buffer
            block, part = self._filter(rows, sequence.number, k, before, k == n - 1, buffer)
            dpsi = rows.scores(V, buffer("dpsi", len(rows), bc.width))
            if k == 0:
                dpsi[0] += direction.start
            if k == n - 1:
                dpsi[-1] += direction.end
            A = buffer("A", len(rows) + 1, bc.width)
            before[k + 1], F[k + 1] = block.last(L), tangents.forward(block, dpsi, F[k], A)
            log_z += part
            return rows, block, dpsi, A

        for k in range(n):
            rows, *of_rows = ahead(k)
            if k >= whole:
                kept.append(of_rows)
        whole_log_z, S = log_z, seed(kept[-1][0].probabilities(L), F[n])
        counts.end += S[1]
        for k in range(n - 1, -1, -1):
            if kept:
                rows, of_rows = sequence.block(*spans[k]), kept.pop()
            else:
                rows, *of_rows = ahead(k)
            block, dpsi, A = of_rows
            counts.pairs += tangents.backward(block, dpsi, A, S, xi)
            rows.collect(dpsi, 0, counts.state)
        counts.start += dpsi[0]
        return whole_log_z

    def _filter(self, rows, number: int, k: int, before, last: bool, buffer) -> tuple:
        # Filter of block k and its part of log Z: kept from the product before, or computed.
        if (number, k) in self.filtered:
            return self.filtered[number, k]
        bc, n = self.bc, len(rows)
        psi = rows.scores(self.W, bc.buffer("psi", n, bc.width))
        if k == 0:
            psi[0] += bc.chain.start
        if last:
            psi[-1] += bc.chain.end
        arrays = buffer("alpha", n + 1, bc.width), buffer("inverse", n, bc.width)
        found = bc.filter(psi, before[k] if k else None, *arrays)
        if buffer is _new:
            self.filtered[number, k] = found
        return found


def _new(name: str, *shape: int) -> np.ndarray:
    # In place of `BlockChain.buffer`, for what is kept.
    return np.empty(shape)

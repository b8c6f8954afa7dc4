"""Expected counts of a sequence in blocks: one forward pass, checkpoints, or all rows stored.

All three run the recursions of ``inference/expectation.py`` and add the same numbers into
:class:`Counts`; they differ in what they keep while going forward.

=================== ============================== ========================= =================
class               keeps                          reads the rows            needs
=================== ============================== ========================= =================
``OnePass``         L conditional expectations     once                      any source
``Checkpoints``     the filter at O(√T) rows       twice                     random access
``Stored``          the filter at all rows         twice                     any source
=================== ============================== ========================= =================
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sklseq.inference.expectation import AGREE, BlockChain, FilteredBlock

__all__ = ["Checkpoints", "Counts", "OnePass", "Stored", "StoredOnce"]

# Rows that L recursions run over at a time, until they agree.
TAIL = 128
# Bytes of rows that may wait until all last labels agree on them.
WAITING = 1 << 26


class Counts:
    """Expected counts of all features: (n_features, width), (width, width), (width,), (width,)."""

    def __init__(self, n_features: int, width: int):
        self.state = np.zeros((n_features, width))
        self.pairs = np.zeros((width, width))
        self.start, self.end = np.zeros((2, width))


class Pending:
    """Expected counts of the rows so far given the last label r, but for what is common to all r.

    ``state[r]`` has a row for each of ``columns`` (None: all), so that a sparse design needs
    room for the features of the last rows only.
    """

    def __init__(self, n_labels: int, width: int, n_features: int, sparse: bool):
        self.width = width
        self.columns = np.zeros(0, dtype=np.int32) if sparse else None
        self.state = np.zeros((n_labels, 0 if sparse else n_features, width))
        self.pairs = np.zeros((n_labels, width, width))
        self.start = np.zeros((n_labels, width))

    def _make_room(self, columns: np.ndarray | None) -> None:
        if self.columns is None or np.isin(columns, self.columns, assume_unique=True).all():
            return
        merged = np.union1d(self.columns, columns)
        state = np.zeros((len(self.state), len(merged), self.width))
        state[:, np.searchsorted(merged, self.columns)] = self.state
        self.columns, self.state = merged, state

    def collect(self, rows, marginals: np.ndarray, first: int) -> None:
        """Add marginals given the last label, (L, n, width), of n rows of a block."""
        if self.columns is None:
            rows.collect(marginals, first, self.state)
            return
        self._make_room(rows.columns_of(first, first + marginals.shape[1]))
        rows.collect(marginals, first, self.state, self.columns)

    def absorb(self, S: np.ndarray, older: Pending) -> None:
        """Add what was pending before, S[r] being the distribution of its last label given r."""
        L = len(self.state)
        self._make_room(older.columns)
        at = slice(None) if self.columns is None else np.searchsorted(self.columns, older.columns)
        mixed = S[:, :L] @ older.state.reshape(L, -1)
        self.state[:, at] += mixed.reshape(L, -1, self.width)
        self.pairs += np.tensordot(S[:, :L], older.pairs, 1)
        self.start += S[:, :L] @ older.start

    def resolve(self, p: np.ndarray, counts: Counts) -> None:
        """Add to ``counts``, p being the distribution of the last label."""
        p = p[: len(self.state)]
        at = slice(None) if self.columns is None else self.columns
        state = p @ self.state.reshape(len(p), -1)
        counts.state[at] += state.reshape(-1, self.width)
        counts.pairs += np.tensordot(p, self.pairs, 1)
        counts.start += p @ self.start


class _Pass:
    """What the three have in common.

    Parameters
    ----------
    bc : BlockChain
    W : ndarray of shape (n_features, width)
        State weights.
    counts : Counts
    weight : float
        What the sequence counts.
    """

    def __init__(self, bc: BlockChain, W: np.ndarray, counts: Counts, weight: float):
        self.bc, self.W, self.counts, self.weight = bc, W, counts, weight

    def _scores(self, rows, first: bool, last: bool, out: np.ndarray | None = None) -> np.ndarray:
        # Scores of a block, boundaries folded in.
        psi = rows.scores(self.W, out)
        if first:
            psi[0] += self.bc.chain.start
        if last:
            psi[-1] += self.bc.chain.end
        return psi

    def _filter(self, rows, before, last: bool, back: bool = True):
        # The forward recursion over a block.
        return self.bc.filter(self._scores(rows, before is None, last), before, back=back)

    def _seed(self, block: FilteredBlock) -> np.ndarray:
        # Where going back starts: the distribution of the last label, times the weight.
        p = self.weight * block.probabilities(self.bc.n_labels)
        self.counts.end += p
        return p[None]

    def _back(self, block: FilteredBlock, rows, S: np.ndarray, hi: int, out=None) -> None:
        # One recursion from row hi - 1 to the first of the block; S goes on to the row before.
        _, marginals, pairs = self.bc.backward(block, S, 0, hi, np.ones(1), out=out)
        rows.collect(marginals, 0, self.counts.state[None])
        self.counts.pairs += pairs[0]
        if block.first:
            self.counts.start += marginals[0, 0]


class OnePass(_Pass):
    """EMP in blocks: the forward recursion, and going back from a block's last label.

    Memory O(block · (L + M) + L · M) whatever the length. Rows that the last label does not bear
    upon any more cost what forward-backward does, the few others L times that. Where these are
    not few, as labels stick, more blocks wait (``sequence.hold``), up to ``WAITING`` bytes.
    """

    n_reads = 1

    def run(self, sequence) -> float:
        """Add the expected counts of a sequence; its log Z."""
        before, pending, waiting, log_z = None, None, [], 0.0
        for rows, last in _with_last(sequence.blocks()):
            block, share = self._filter(rows, before, last)
            log_z += share
            if share == -np.inf:
                return -np.inf
            waiting.append((block, rows))
            if last:
                S = self._seed(block)
                self._resolve(S, waiting, len(rows), pending)
            elif len(waiting) >= sequence.hold:
                pending, agreed = self._fold(waiting, pending)
                room = WAITING // (rows.nbytes + 3 * block.alpha.nbytes)
                if not agreed and 2 * sequence.hold <= room:
                    sequence.hold *= 2
                waiting = []
            before = block.last(self.bc.n_labels)
        return log_z

    def _resolve(self, S: np.ndarray, waiting: list, hi: int, older: Pending | None) -> None:
        # One recursion over all that waits, from row hi - 1 of the last block.
        while waiting:
            block, rows = waiting.pop()
            self._back(block, rows, S, hi)
            hi = len(waiting[-1][1]) if waiting else 0
        if older is not None:
            older.resolve(S[0], self.counts)

    def _fold(self, waiting: list, older: Pending | None) -> tuple[Pending, bool]:
        # L recursions, until they agree; one for the rest. Returns what the last label decides.
        L = self.bc.n_labels
        S, live = np.eye(L, self.bc.width), waiting[-1][0].alive(L)
        sparse = waiting[-1][1].columns_of(0, 0) is not None
        pending = Pending(L, self.bc.width, len(self.W), sparse)
        while waiting:
            block, rows = waiting[-1]
            hi, agreed = self._tail(block, rows, S, live, pending)
            if agreed:
                S = self.weight * S[[np.argmax(live)]]
                self._resolve(S, waiting, hi, older)
                return pending, True
            waiting.pop()
        if older is not None:
            pending.absorb(S, older)
        return pending, False

    def _tail(self, block, rows, S, live, pending: Pending) -> tuple[int, bool]:
        # L recursions over a block, to its first row or until they agree.
        hi = len(rows)
        while hi > 0:
            lo = max(0, hi - TAIL)
            reached, marginals, pairs = self.bc.backward(block, S, lo, hi, live, AGREE)
            marginals = np.ascontiguousarray(marginals)
            pending.collect(rows, marginals, reached)
            pending.pairs += pairs
            if block.first and reached == 0:
                pending.start += marginals[:, 0]
            if reached > lo:
                return reached, True
            hi = reached
        return hi, False


class Checkpoints(_Pass):
    """Forward once, keeping the filter at √T rows; then block by block from the end, forward again
    and back (Grice, Hughey, Speck 1997). The last rows, O(√T) of them too, are kept whole, and not
    computed again. Memory O(L √T)."""

    n_reads = 2

    def run(self, sequence) -> float:
        """Add the expected counts of a sequence; its log Z."""
        spans, log_z, kept = sequence.spans(), 0.0, []
        n, whole = len(spans), sequence.first_whole(spans, 16 * self.bc.width)
        before = np.empty((n, self.bc.width))
        for k in range(n):
            rows = sequence.block(*spans[k])
            block, share = self._forward(rows, before[k] if k else None, k == n - 1, k >= whole)
            log_z += share
            if share == -np.inf:
                return -np.inf
            if k >= whole:
                kept.append(block)
            if k < n - 1:
                before[k + 1] = block.last(self.bc.n_labels)
        S = self._seed(block)
        for k in range(n - 1, -1, -1):
            rows = rows if k == n - 1 else sequence.block(*spans[k])
            if kept:
                block = kept.pop()
            else:
                block, _ = self._forward(rows, before[k] if k else None, False)
            room = self.bc.room("residual", 1, len(rows), self.bc.width)
            self._back(block, rows, S, len(rows), room)
        return log_z

    def _forward(self, rows, before, last: bool, keep: bool | None = None):
        # ``keep``: for later; False: what comes after is all; None: to go back at once. Blocks that
        # are not kept all have the same room.
        n, width, room = len(rows), self.bc.width, self.bc.room
        psi = self._scores(rows, before is None, last, room("psi", n, width))
        if keep:
            return self.bc.filter(psi, before)
        alpha, inverse = room("alpha", n + 1, width), None
        if keep is None:
            inverse = room("inverse", n, width)
        return self.bc.filter(psi, before, alpha, inverse, back=keep is None)


class Stored(_Pass):
    """Forward-backward with the filter of all rows kept: Cases I and II of Ilić et al. (2010).

    What is kept of a row's transition matrix is its factor of L numbers, ``inverse``; with
    ``recompute`` it is made again on the way back. Memory 2 L T or L T.
    """

    n_reads = 2
    recompute = False

    def run(self, sequence) -> float:
        """Add the expected counts of a sequence; its log Z."""
        blocks, before, log_z = [], None, 0.0
        for rows, last in _with_last(sequence.blocks()):
            block, share = self._filter(rows, before, last, not self.recompute)
            log_z += share
            if share == -np.inf:
                return -np.inf
            before = block.last(self.bc.n_labels)
            blocks.append(block)
        S, residuals = self._seed(blocks[-1]), []
        while blocks:
            residuals.append(self._marginals(blocks.pop(), S))
        for rows in sequence.blocks():
            rows.collect(residuals.pop(), 0, self.counts.state[None])
        return log_z

    def _marginals(self, block: FilteredBlock, S: np.ndarray) -> np.ndarray:
        n = len(block.alpha) - 1
        if block.inverse is None and not block.in_logs:
            block = block._replace(inverse=self._inverse(block))
        _, marginals, pairs = self.bc.backward(block, S, 0, n, np.ones(1))
        self.counts.pairs += pairs[0]
        if block.first:
            self.counts.start += marginals[0, 0]
        return marginals

    def _inverse(self, block: FilteredBlock) -> np.ndarray:
        with np.errstate(divide="ignore", over="ignore"):
            inverse = 1 / (block.alpha[:-1] @ self.bc.chain.E)
        if block.first:
            inverse[0] = 1
        inverse[block.alpha[1:] == 0] = 0
        return inverse


class StoredOnce(Stored):
    """Case II: the factors of the transition matrices are computed again."""

    recompute = True


def _with_last(blocks) -> Iterator:
    # (block, whether it is the last one).
    held = None
    for block in blocks:
        if held is not None:
            yield held, False
        held = block
    if held is not None:
        yield held, True

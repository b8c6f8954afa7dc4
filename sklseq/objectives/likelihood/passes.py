"""Expected counts of a sequence in blocks: rows read once, checkpoints, or all rows stored.

All three run the recursions of ``inference/chain/expectation.py`` and add the same numbers to
:class:`Counts`; the results of the forward recursion that they keep differ.

=================== ============================== ========================= =================
class               keeps                          reads the rows            needs
=================== ============================== ========================= =================
``OnePass``         expectations given each label  once                      any source
``Checkpoints``     the filter at O(√T) rows       twice                     random access
``Stored``          the filter at all rows         twice                     any source
=================== ============================== ========================= =================
"""

from __future__ import annotations

import numpy as np

from sklseq.data.row_blocks import with_last
from sklseq.inference.chain.expectation import AGREE, BlockChain, FilteredBlock
from sklseq.inference.chain.linear_chain import _chain
from sklseq.objectives.scores.transition_features import BlockFeatures, EntriesOfBlock

# Rows that the L backward recursions process at a time, until they agree.
TAIL = 128
# Checkpointing keeps the filter at the last WHOLE · √T rows.
WHOLE = 150
# Bytes of blocks whose backward recursion may be deferred; bytes of a partial product in `absorb`.
WAITING, PRODUCT = 1 << 26, 1 << 20


class Counts:
    """Expected counts: of states (n_features, width), pairs (width, width), starts and ends
    (width,), and transition features (1, n_triples)."""

    def __init__(self, n_features: int, width: int, n_triples: int = 0):
        self.triples = np.zeros((1, n_triples))
        self.state = np.zeros((n_features, width))
        self.pairs = np.zeros((width, width))
        self.start, self.end = np.zeros((2, width))

    def of_labels(self, L: int) -> Counts:
        """The counts of the first L labels."""
        width = _chain.padded_width(L)
        counts = Counts(len(self.state), width)
        counts.state[:, :L], counts.pairs[:L, :L] = self.state[:, :L], self.pairs[:L, :L]
        counts.start[:L], counts.end[:L] = self.start[:L], self.end[:L]
        return counts

    def add(self, other: Counts, weight: float) -> None:
        self.triples += weight * other.triples
        self.state += weight * other.state
        self.pairs += weight * other.pairs
        self.start += weight * other.start
        self.end += weight * other.end


class PendingTooLarge(MemoryError):
    """Expected counts given each last label need more memory than working_memory allows."""


class Pending:
    """Expected counts of earlier rows given each last label r, without those equal for all r.

    Parameters
    ----------
    R, width : int
        Number of last labels, and padded number of labels.
    n_features : int
    sparse : bool
        Whether only features that occur in pending rows have a row of counts.
    budget : float
        Bytes that may be kept.
    n_triples : int
        Number of weights of transition features.

    Attributes
    ----------
    state : ndarray of shape (n, R, width)
        Row ``slot[m]`` has the counts of feature m if sparse, otherwise row m.
    pairs : ndarray of shape (width, R, width)
    start : ndarray of shape (1, R, width)
    triples : ndarray of shape (R, n_triples)
    """

    def __init__(
        self, R: int, width: int, n_features: int, sparse: bool, budget: float, n_triples: int
    ):
        budget -= 8.0 * R * n_triples
        if budget < 0:
            raise PendingTooLarge(
                f"the expected counts of {n_triples} weights of transition features, given each of "
                f"the last labels, take {8e-6 * R * n_triples:.3g} MB, more than working_memory "
                "leaves"
            )
        self.triples = np.zeros((R, n_triples))
        self.slot = np.full(n_features, -1, dtype=np.int32) if sparse else None
        self.columns = np.zeros(0, dtype=np.int32) if sparse else slice(None)
        self.budget, self.state = budget, np.zeros((0, R, width))
        self.pairs, self.start = np.zeros((width, R, width)), np.zeros((1, R, width))
        if not sparse:
            self._grow(n_features, n_features)

    @property
    def nbytes(self) -> int:
        return self.state.nbytes + self.pairs.nbytes + self.triples.nbytes

    @property
    def n_used(self) -> int:
        return len(self.state) if self.slot is None else len(self.columns)

    def clear(self) -> None:
        """Set all counts to zero, without freeing memory."""
        self.state[: self.n_used] = 0
        self.pairs[:] = 0
        self.start[:] = 0
        self.triples[:] = 0
        if self.slot is not None:
            self.slot[self.columns] = -1
            self.columns = self.columns[:0]

    def _grow(self, n: int, largest: int) -> None:
        # Grow to n rows, but at least by a factor of two if possible, to copy rarely.
        if n <= len(self.state):
            return
        a_row = self.state.itemsize * self.start.size
        n = max(n, min(2 * len(self.state), largest, int(self.budget // a_row)))
        if n * a_row > self.budget:
            raise PendingTooLarge(
                f"the expected counts of {n} features, given each of the last labels, take "
                f"{n * a_row / 1e6:.3g} MB, of {self.budget / 1e6:.3g} MB left of working_memory"
            )
        state = np.zeros((n, *self.state.shape[1:]))
        state[: len(self.state)] = self.state
        self.state = state

    def _add_columns(self, columns: np.ndarray) -> None:
        new = np.unique(columns[self.slot[columns] < 0])
        if len(new):
            n = len(self.columns)
            self._grow(n + len(new), len(self.slot))
            self.slot[new] = np.arange(n, n + len(new))
            self.columns = np.append(self.columns, new)

    def collect(self, rows, marginals: np.ndarray, first: int) -> None:
        """Add marginals given the last label, (n, R, width), of n rows of a block."""
        marginals, a_row = marginals.reshape(len(marginals), -1), self.start.size
        if self.slot is None:
            rows.collect(marginals, first, self.state.reshape(-1, a_row))
            return
        self._add_columns(rows.columns_in(first, first + len(marginals)))
        rows.collect(marginals, first, self.state.reshape(-1, a_row), self.slot)

    def absorb(self, S: np.ndarray, older: Pending) -> None:
        """Add earlier counts, where S[r] is the distribution of their last label given r."""
        S, at = S[:, : len(S)], None
        if self.slot is not None:
            self._add_columns(older.columns)
            at = self.slot[older.columns]
        step = max(1, PRODUCT // (8 * S.size))
        for a in range(0, older.n_used, step):
            part = slice(a, min(a + step, older.n_used))
            self.state[part if at is None else at[part]] += np.matmul(S, older.state[part])
        self.pairs += np.matmul(S, older.pairs)
        self.start += np.matmul(S, older.start)
        self.triples += S @ older.triples

    def resolve(self, p: np.ndarray, counts: Counts) -> None:
        """Add the expectations to ``counts``, given the distribution p of the last label."""
        p = p[: self.start.shape[1]]
        counts.state[self.columns] += np.matmul(p, self.state[: self.n_used])
        counts.pairs += np.matmul(p, self.pairs)
        counts.start += np.matmul(p, self.start)[0]
        counts.triples += p @ self.triples


class _Pass:
    """Base of the three passes.

    Parameters
    ----------
    bc : BlockChain
    W : ndarray of shape (n_features, width)
        State weights.
    counts : Counts
    weight : float
        Weight of the sequence.
    features : BlockFeatures, optional
    """

    def __init__(
        self, bc: BlockChain, W: np.ndarray, counts: Counts, weight: float,
        features: BlockFeatures | None = None,
    ):  # fmt: skip
        self.bc, self.W, self.counts, self.weight = bc, W, counts, weight
        self.features = features

    def _scores(self, rows, first: bool, last: bool, out: np.ndarray | None = None) -> np.ndarray:
        # Scores of a block, including those of the first and last label of the sequence.
        psi = rows.scores(self.W, out)
        if first:
            psi[0] += self.bc.chain.start
        if last:
            psi[-1] += self.bc.chain.end
        return psi

    def _filter(self, rows, before, last: bool, back: bool = True):
        # The forward recursion over a block.
        first = before is None
        psi = self._scores(rows, first, last)
        return self.bc.filter(psi, before, back=back, entries=self._entries(rows, first))

    def _entries(self, rows, first: bool) -> EntriesOfBlock | None:
        return None if self.features is None else self.features.of_block(rows, first)

    def _collect_entries(self, block: FilteredBlock, out: np.ndarray) -> None:
        # Add expectations of transition features from the last backward recursion.
        if block.entries is not None:
            block.entries.collect(out)

    def _seed(self, block: FilteredBlock) -> np.ndarray:
        # Start of the backward recursion: the distribution of the last label, times the weight.
        p = self.weight * block.probabilities(self.bc.n_labels)
        self.counts.end += p
        return p[None]

    def _back(self, block: FilteredBlock, rows, S: np.ndarray, hi: int, out=None) -> None:
        # Backward recursion from row hi - 1 to the first of the block; updates S.
        _, marginals, pairs = self.bc.backward(block, S, 0, hi, np.ones(1), out=out)
        self._collect_entries(block, self.counts.triples)
        rows.collect(marginals[:, 0], 0, self.counts.state)
        self.counts.pairs += pairs[:, 0]
        if block.first:
            self.counts.start += marginals[0, 0]


class Variances(_Pass):
    """Sums of x_t(f)² p_t(j) (1 - p_t(j)), in ``counts.state``; p_t is the filter at row t."""

    def run(self, sequence) -> None:
        """Add a sequence."""
        before = None
        for rows, last in with_last(sequence.blocks()):
            block, _ = self._filter(rows, before, last, back=False)
            p = np.exp(block.alpha[1:]) if block.in_logs else block.alpha[1:]
            rows.squared().collect(self.weight * p * (1 - p), 0, self.counts.state)
            before = block.last(self.bc.n_labels)


class OnePass(_Pass):
    """Entropy message passing (Ilić et al. 2010, Algorithm 2) in blocks, by conditional means.

    The paper carries two vectors forward for each label j, α_z(j) = α_t(j) (Equation 75) and
    α_h(j) = α_t(j) h_t(j) (Equation 76). The quotient h_t(j) = E[F_≤t | y_t = j, x_≤t] obeys

        h_t(j) = f(t, j) + Σ_i K_t(j, i) (h_{t-1}(i) + g(i, j)),
        K_t(j, i) = α_{t-1}(i) exp ψ(i, j) / Σ_k α_{t-1}(k) exp ψ(k, j),

    where f and g are the features of rows and transitions. A block of rows t + 1, …, t + B gives

        h_{t+B} = S_t h_t + Σ_{t < k ≤ t+B} S_k f_k,      S_{k-1} = S_k K_k,  S_{t+B} = 1,

    and likewise for g; in the last block, the filtered distribution replaces 1 (Equation 78).
    Differences from the paper: K_t is stochastic, so neither logarithms nor signs are needed; where
    S_k does not depend on the last label, a row costs L times its features instead of L² M; each
    block is processed forward and backward. ``reference.expectation_semiring`` is the algorithm as
    published.

    Rows whose counts do not depend on the last label cost as much as in forward-backward, the
    others up to L times that (``sequence.n_repeated`` counts them). If labels rarely change, the
    latter dominate; then more blocks are deferred (``sequence.hold``).

    Memory does not depend on the length: deferred blocks, up to ``WAITING`` bytes, and 2 L numbers
    for each weight of a feature of rows whose counts depend on the last label. Both are limited by
    ``sequence.keep``; :class:`PendingTooLarge` is raised if the second is too large.
    """

    n_reads = 1
    pending: Pending | None = None

    def run(self, sequence) -> float:
        """Add the expected counts of a sequence; its log Z."""
        before, deferred, log_z = None, [], 0.0
        sequence.n_repeated = 0
        for rows, last in with_last(sequence.blocks()):
            block, part = self._filter(rows, before, last)
            log_z += part
            if part == -np.inf:
                return -np.inf
            deferred.append((block, rows))
            if last:
                self._resolve(self._seed(block), deferred, len(rows))
            elif len(deferred) >= sequence.hold:
                self._fold(deferred, sequence)
            before = block.last(self.bc.n_labels)
        return log_z

    def _resolve(self, S: np.ndarray, deferred: list, hi: int) -> None:
        # A single backward recursion over all deferred blocks, from row hi - 1 of the last one.
        while deferred:
            block, rows = deferred.pop()
            self._back(block, rows, S, hi)
            hi = len(deferred[-1][1]) if deferred else 0
        if self.pending is not None:
            self.pending.resolve(S[0], self.counts)

    def _fold(self, deferred: list, sequence) -> None:
        # L backward recursions, one for each last label, until they agree; then a single one.
        block, rows = deferred[-1]
        if self.pending is None:
            self._new_pending(rows, sequence)
        S, live = np.eye(self.pending.start.shape[1], self.bc.width), block.alive(self.bc.n_labels)
        S[self.bc.n_labels :] = 0
        n_rows, n, agreed = sum(len(rows) for _, rows in deferred), 0, False
        while deferred and not agreed:
            hi, agreed = self._tail(*deferred[-1], S, live)
            n += len(deferred[-1][1]) - hi
            if not agreed:
                deferred.pop()
        if agreed:
            self._resolve(self.weight * S[[np.argmax(live)]], deferred, hi)
        else:
            self.spare.absorb(S, self.pending)
        self.pending.clear()
        self.pending, self.spare = self.spare, self.pending
        repeated = n * (self.bc.n_labels - 1)
        sequence.n_repeated += repeated
        kept = sequence.bytes_kept(rows) + 3 * block.alpha.nbytes
        free = min(WAITING, sequence.keep - self.pending.nbytes - self.spare.nbytes)
        if repeated > n_rows // 4 and 2 * sequence.hold * kept <= free:
            sequence.hold *= 2

    def _new_pending(self, rows, sequence) -> None:
        sparse = rows.columns_in(0, 0) is not None
        budget, n_triples = sequence.keep / 2, self.counts.triples.size
        # Number of last labels, padded so that rows of counts fill whole SIMD lanes.
        R = self.bc.n_labels if self.bc.width % 8 == 0 else self.bc.width
        shape = R, self.bc.width, len(self.W), sparse, budget, n_triples
        self.pending, self.spare = Pending(*shape), Pending(*shape)

    def _tail(self, block, rows, S, live) -> tuple[int, bool]:
        # L recursions over a block, to its first row or until they agree.
        hi = len(rows)
        while hi > 0:
            lo = max(0, hi - TAIL)
            reached, marginals, pairs = self.bc.backward(block, S, lo, hi, live, AGREE)
            self._collect_entries(block, self.spare.triples)
            self.spare.collect(rows, marginals, reached)
            self.spare.pairs += pairs
            if block.first and reached == 0:
                self.spare.start += marginals[0]
            if reached > lo:
                return reached, True
            hi = reached
        return hi, False


class Checkpoints(_Pass):
    """Forward-backward that keeps the filter at O(√T) checkpoints only (Grice, Hughey, Speck 1997).

    After the forward recursion, each block from the last to the first is filtered again from its
    checkpoint, then run backward. The filter at the last O(√T) rows is kept and not computed again.
    Memory O(L √T).
    """

    n_reads = 2

    def run(self, sequence) -> float:
        """Add the expected counts of a sequence; its log Z."""
        spans, log_z, kept = sequence.spans(), 0.0, []
        most = min(WHOLE * np.sqrt(sequence.n_rows), sequence.keep / (16 * self.bc.width))
        n, whole = len(spans), sequence.first_whole(spans, most)
        before = np.empty((n, self.bc.width))
        for k in range(n):
            rows = sequence.block(*spans[k])
            block, part = self._forward(rows, before[k] if k else None, k == n - 1, k >= whole)
            log_z += part
            if part == -np.inf:
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
            residual = self.bc.buffer("residual", len(rows), 1, self.bc.width)
            self._back(block, rows, S, len(rows), residual)
        return log_z

    def _forward(self, rows, before, last: bool, keep: bool | None = None):
        # ``keep``: True to keep the block for later, False if only its last row is needed, None if
        # the backward recursion follows at once. Blocks that are not kept share their buffers.
        n, width, buffer, first = len(rows), self.bc.width, self.bc.buffer, before is None
        psi = self._scores(rows, first, last, buffer("psi", n, width))
        entries = self._entries(rows, first)
        if keep:
            return self.bc.filter(psi, before, entries=entries)
        alpha, inverse = buffer("alpha", n + 1, width), None
        if keep is None:
            inverse = buffer("inverse", n, width)
        return self.bc.filter(psi, before, alpha, inverse, keep is None, entries)


class Stored(_Pass):
    """Forward-backward with the filter of all rows kept: Cases I and II of Ilić et al. (2010).

    Of the transition matrix of a row, only its factor of L numbers, ``inverse``, is kept; with
    ``recompute``, the backward recursion computes it again. Memory 2 L T or L T.
    """

    n_reads = 2
    recompute = False

    def run(self, sequence) -> float:
        """Add the expected counts of a sequence; its log Z."""
        blocks, before, log_z = [], None, 0.0
        for rows, last in with_last(sequence.blocks()):
            block, part = self._filter(rows, before, last, not self.recompute)
            log_z += part
            if part == -np.inf:
                return -np.inf
            before = block.last(self.bc.n_labels)
            blocks.append(block)
        S, residuals = self._seed(blocks[-1]), []
        while blocks:
            residuals.append(self._marginals(blocks.pop(), S))
        for rows in sequence.blocks():
            rows.collect(residuals.pop(), 0, self.counts.state)
        return log_z

    def _marginals(self, block: FilteredBlock, S: np.ndarray) -> np.ndarray:
        n = len(block.alpha) - 1
        _, marginals, pairs = self.bc.backward(block, S, 0, n, np.ones(1))
        self._collect_entries(block, self.counts.triples)
        self.counts.pairs += pairs[:, 0]
        if block.first:
            self.counts.start += marginals[0, 0]
        return marginals[:, 0]


class StoredOnce(Stored):
    """Case II: the backward recursion computes the factors of transition matrices again."""

    recompute = True

"""Stochastic steps on the regularised conditional likelihood, one sequence at a time."""

from collections.abc import Iterator
from copy import copy
from typing import NamedTuple, Self

import numpy as np

from sklseq._lib.cpu import load_kernel
from sklseq._lib.ragged import offsets_of
from sklseq._lib.threads import Threads, spans
from sklseq.objectives.likelihood.lattice import LatticeState
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.likelihood.sharded import ShardedLogLikelihood
from sklseq.objectives.scores.score_map import ScoreMap, Weights, largest_at

_descent = load_kernel("sklseq.objectives.likelihood._descent")

# Initial sums of squared gradients. With smaller ones, the first steps are about
# rate · sign(gradient), and scores of rows with many features overshoot.
FIRST_SQUARE = 16.0
# Number of times per pass that the weights of several threads are merged.
MERGES = 4
# Blocks of weights that are merged at a time.
PIECE = 1 << 13
# Place of the chain among the arrays of weights.
CHAIN = 2
# `forget` multiplies the part of the sums of squares above LEAST_SQUARE by KEPT.
KEPT, LEAST_SQUARE = 0.8, 4.0
# Sequences of more than LONG times the mean number of rows take shorter steps. The rows of a
# sequence have gradients at the same weights, so sums of its steps grow with √T: a text of 1,238
# words among sentences of 32 overshot and spoilt a pass (CoNLL-2002 with l1 = l2 = 0.1, one order
# of six: 149 iterations in place of 41). With 1 in place of 2, CoNLL-2000 takes 30 iterations in
# place of 27; with 4, CoNLL-2002 takes 45 in that order. So do sequences of more than LONG_ROWS
# rows, whatever the mean: with labels that last, their rows add up the same steps. (Zones of 80
# e-mails of 345 tokens on average: 289 iterations, without it not converged after 500.)
LONG, LONG_ROWS = 2.0, 50
# Blocks of eight residuals whose magnitudes are below this are updated at random, in proportion to
# their size (on CoNLL-2002, this halves the time and changes nothing else).
ALMOST = 0.05
SEED = 88172645463325252


class Batch(NamedTuple):
    """The attributes of a likelihood that `StochasticLikelihood` needs; by default no sequence.

    ``penalties``: as in ``PartialLogLikelihood``, if y has codes of several labels.
    """

    scores: ScoreMap
    l2: float
    y: np.ndarray = np.zeros(0, dtype=np.int32)
    offsets: np.ndarray = np.zeros(1, dtype=np.int64)
    weights: np.ndarray = np.zeros(0)
    threads: Threads = Threads(1)
    penalties: np.ndarray | None = None


class StochasticLikelihood(LatticeState):
    """AdaGrad steps on f(w) of `LogLikelihood`, with its L2 penalty and an L1 penalty.

    Each weight has its own step size, rate / √(sum of its squared gradients so far), so that the
    weights of rare features change as much as those of frequent ones, whatever their scale. Both
    penalties are applied in closed form, spread evenly over the updates (Duchi, Hazan, Singer 2011,
    §1.2, §5.1). In a sequence of T > m rows, m = min(50, 2 · (mean number of rows)), the
    gradient's rate is multiplied by √(m / T), as its rows add up steps at the same weights.

    Parameters
    ----------
    primal : LogLikelihood or Batch
        With sparse rows, in float64.
    l1 : float, default=0.0
        Weight of the penalty l1 · ‖w‖₁, which ``primal`` does not have.
    w : ndarray, optional
        Start; overwritten.
    first_square : float
        Initial sums of squared gradients.

    Notes
    -----
    An update costs O(nnz · L + T · L²), and a square root for each feature value and label. Memory:
    half as much as w beside w.

    In each quarter of a pass, n threads start from the same w and the same sums of squared
    gradients, G. Each updates on different sequences, with their fraction of the penalties. A
    weight that one thread updated gets the value of this thread, and the penalties of all; one
    that several updated, with s_k = √(G_k - G),

        w ← w + r Σ_k (w_k - w),  r = min(1, (1 + 1/n) max_k s_k / Σ_k s_k),  G ← G + Σ_k (G_k - G).

    If all threads move a weight towards the same value, the sum of their steps (r = 1) overshoots,
    and the mean (r = 1/n) has the steps of 1/n of the sequences; r lies between. A merged weight
    becomes 0 if no thread's copy has its sign. Memory: twice as much as w for each thread.
    """

    def __init__(
        self, primal: LogLikelihood, l1: float = 0.0, w: np.ndarray | None = None,
        first_square: float = FIRST_SQUARE,
    ):  # fmt: skip
        super().__init__(primal, w)
        self.y, self.penalties = primal.y, primal.penalties
        W, sparse_w = self.dense_and_sparse()
        parts = W, sparse_w, self.chain, self.v
        self.squares = [np.full(x.shape, first_square, np.float32) for x in parts]
        blocks = len(W) * max(self.scores.width // 8, 1)  # of lanes
        sizes = (blocks, len(sparse_w), self.chain.size, len(self.v))
        self.stamps = tuple(np.zeros(n, np.int64) for n in sizes)
        self.scale = self._scales(len(W), len(sparse_w))
        self.l1, self.l2 = l1, primal.l2
        self.losses = np.zeros(len(self.weights))
        self.allocate(self.longest)
        self.n_updates = 0

    def allocate(self, longest: int) -> None:
        """Allocate scratch for sequences of up to ``longest`` rows."""
        self.longest, self.inverse_c = longest, np.zeros(longest)
        self.scratch = self.new_scratch()

    def on_rows_of(self, part: LogLikelihood) -> Self:
        """View of this object on the sequences of a shard: weights and sums are shared."""
        other = copy(self)
        other.y, other.offsets, other.weights = part.y, part.offsets, part.weights
        other.penalties = part.penalties
        other.rows, other.sparse, _ = part.scores.design.entries()
        other.features = part.scores.features
        other.links = other.new_links()
        other.losses = np.zeros(len(part.weights))
        return other

    def _scales(self, n_dense: int, n_sparse: int) -> tuple[np.ndarray, ...] | None:
        # 1 / largest magnitude of the feature of each dense row, sparse entry and triple.
        _, pair, _, data = self.sparse or (None, np.zeros(0, np.int32), None, np.zeros(0))
        features = self.scores.features
        ones = features is None or bool((features.rows[2] == 1).all())
        if not len(self.rows[2]) and not len(data) and ones:
            return None
        pairs = ((n_dense, self.rows[1], self.rows[2]), (n_sparse, pair, data))
        return *(_inverse_scale(*entries) for entries in pairs), self._scale_of_triples()

    def _scale_of_triples(self) -> np.ndarray:
        features = self.scores.features
        if features is None:
            return np.zeros(0)
        _, column, values = features.rows
        scale = _inverse_scale(len(features.columns), column, values)
        return np.repeat(scale, np.diff(features.support[0]))

    def descend(self, order: np.ndarray, rate: float, n_sequences: int | None = None) -> float:
        """Update on each sequence of ``order``.

        An update applies 1 / ``n_sequences`` of the penalties, by default 1 / len(order).

        Returns Σ weight · -log p, each before its update, without penalties; -log p itself is in
        ``losses``. If scores differ too much for scaled arithmetic, the update uses marginals of
        flattened scores, but -log p is that of the scores themselves.
        """
        W, w = self.dense_and_sparse()
        part = 1 / max(n_sequences or len(order), 1)
        shares = self.shares(order)
        if len(shares) == 1:
            loss = self._run(order, W, w, rate, part)
            self.n_updates += len(order)
        else:
            runs = [self.shares(part) for part in np.array_split(order, MERGES)]
            runs = runs if all(len(run) == len(shares) for run in runs) else [shares]
            loss = self._descend_together(runs, W, w, rate, part)
        self.store(W)
        return loss

    def _run(
        self, order, W, w, rate: float, part: float, before: int = 0, finish: bool = True
    ) -> float:
        # ``before``: updates of other threads, so that random numbers differ.
        return _descent.descend(
            self, order, self.weights, W, w, SEED + self.n_updates + before, ALMOST, rate,
            self.l1 * part, 2 * self.l2 * part, self.long_rows(), finish,
        )  # fmt: skip

    def long_rows(self) -> float:
        """Rows from which on a sequence is long: its steps are then shorter."""
        return min(LONG * len(self.y) / max(len(self.weights), 1), LONG_ROWS)

    def _descend_together(self, runs: list, W, w, rate: float, part: float) -> float:
        # Updates by several threads on copies of the weights, which are merged after each of the
        # ``runs``: the sequences of each thread.
        copies = [W, w, self.chain, self.v]
        arrays = {"copies": copies, "squares": self.squares, "stamps": self.stamps}
        others = self.threads.map(lambda k: self._member(k, arrays), range(len(runs[0])))
        loss = 0.0
        for shares in runs:
            loss += self._run_all(others, shares, rate, part)
            counts = np.array([len(share) for share in shares], dtype=np.int64)
            self._merge(arrays, others, counts, rate, part, shares is runs[-1])
            self.n_updates += int(counts.sum())
        return loss

    def _member(self, k: int, arrays: dict) -> Self:
        other = self.member(k, arrays)
        other.chain, other.v = other.copies[2:]
        return other

    def _run_all(self, others: tuple, shares: list, rate: float, part: float) -> float:
        before = offsets_of(list(map(len, shares)))

        def run(k: int) -> float:
            one = others[k]
            one.n_updates = self.n_updates
            arguments = shares[k], *one.copies[:2], rate, part
            return one._run(*arguments, before=int(before[k]), finish=False)

        return sum(self.threads.map(run, range(len(shares))))

    def _merge(
        self, arrays: dict, others: tuple, counts, rate: float, part: float, finish: bool
    ) -> None:
        # Merge all arrays of weights, in pieces.
        numbers = counts, self.n_updates, (rate, self.l1 * part, 2 * self.l2 * part)
        jobs = []
        for at, (x, G, stamp) in enumerate(zip(*arrays.values())):
            if at == CHAIN:  # each update changes all its weights
                stamp[:] = self.n_updates
                for one, count in zip(others, counts):
                    one.stamps[at][:] = self.n_updates + count
            copies = [
                tuple(part[at].reshape(-1) for part in (one.copies, one.squares, one.stamps))
                for one in others
            ]
            # 1 / largest magnitude of the features of this one of the four arrays of weights.
            scale = np.zeros(0)
            if self.scale is not None and at != CHAIN:
                scale = self.scale[at - (at > CHAIN)]
            given = (x.reshape(-1), G.reshape(-1), stamp), copies, scale
            per_scale = len(stamp) // max(len(scale), 1)
            jobs += [
                (*given, per_scale, *numbers, 1 + 1 / len(others), finish, *span)
                for span in spans(len(stamp), 1 + len(stamp) // PIECE)
            ]
        self.threads.map(lambda job: _descent.merge(*job), jobs)

    def forget(self) -> None:
        """Reduce the sums of squared gradients by a fifth of their excess over 4.

        Gradients fall during training, so sums over all passes would make the steps too short.
        """
        for G in self.squares:
            G -= np.float32(1 - KEPT) * np.maximum(G - np.float32(LEAST_SQUARE), 0)

    def metric(self) -> np.ndarray:
        """√(first_square + Σ g²), the divisor of the steps, for each weight in the layout of w.

        g is the gradient with the weight's feature scaled to magnitude 1.
        """
        other = copy(self)
        other.w = self.scores.new_vector()
        W, sparse_w = other.dense_and_sparse()
        # W may be memory of the design, in which untrained weights must stay 0.
        W[:] = self.squares[0] if self.mask is None else self.squares[0] * self.mask
        sparse_w[:] = self.squares[1]
        other.chain = self.squares[2].astype(np.float64)
        other.store(W)
        self.scores.triples(other.w)[:] = self.squares[3]
        return np.sqrt(np.maximum(other.w, 1))

    def restart(self, w: np.ndarray) -> None:
        """Continue from these weights."""
        self.w[:] = w
        self.chain = self.scores.padded_chain(w)


class ShardedStochasticLikelihood:
    """`StochasticLikelihood` on shards: the same steps, one shard after the other.

    Parameters
    ----------
    primal : ShardedLogLikelihood
        With sparse rows, in float64.
    l1 : float
        Weight of the penalty l1 · ‖w‖₁, which ``primal`` does not have.
    w : ndarray
        Start; overwritten.

    Attributes
    ----------
    w, sequences
        See ``StochasticLikelihood``; sequences are numbered through all shards.

    Notes
    -----
    A pass reads each shard that ``primal`` does not keep once. Beside the updates, it costs
    O(n_weights) per shard, for the penalties.
    """

    def __init__(self, primal: ShardedLogLikelihood, l1: float, w: np.ndarray):
        self.primal = primal
        first, sequences = [0], []
        for k in primal.shards.filled:
            with primal.part(k) as part:
                filled = (part.weights > 0) & (np.diff(part.offsets) > 0)
                sequences.append(first[-1] + np.flatnonzero(filled))
                first.append(first[-1] + len(part.weights))
        self.first, self.sequences = np.array(first), np.concatenate(sequences)
        self.steps = StochasticLikelihood(
            Batch(primal.scores, primal.l2, threads=primal.threads), l1, w
        )
        self.steps.scale = _feature_scale(primal.scores)
        self.steps.allocate(primal.shards.summary.longest)

    @property
    def w(self) -> np.ndarray:
        return self.steps.w

    def descend(self, order: np.ndarray, rate: float) -> float:
        """Update on each sequence of ``order``, shard by shard in the order of their first ones."""
        loss = 0.0
        for k, mine in self._by_shard(order):
            with self.primal.part(self.primal.shards.filled[k]) as part:
                steps = self.steps.on_rows_of(part)
                loss += steps.descend(mine - self.first[k], rate, n_sequences=len(order))
            self.steps.n_updates = steps.n_updates
        return loss

    def _by_shard(self, order: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        shard = np.searchsorted(self.first, order, side="right") - 1
        _, appears, inverse, counts = np.unique(
            shard, return_index=True, return_inverse=True, return_counts=True
        )
        together = np.argsort(inverse, kind="stable")
        parts = np.split(order[together], np.cumsum(counts)[:-1])
        for k in np.argsort(appears):
            yield int(shard[appears[k]]), parts[k]

    def forget(self) -> None:
        """See ``StochasticLikelihood``."""
        self.steps.forget()

    def metric(self) -> np.ndarray:
        """See ``StochasticLikelihood``."""
        return self.steps.metric()

    def restart(self, w: np.ndarray) -> None:
        """Continue from these weights."""
        self.steps.restart(w)


def _inverse_scale(n: int, index: np.ndarray, values: np.ndarray) -> np.ndarray:
    if not len(values):
        return np.ones(n)
    largest = largest_at(index, np.abs(values), n)
    return 1 / np.where(largest > 0, largest, 1.0)


def _feature_scale(scores: ScoreMap) -> tuple[np.ndarray, ...] | None:
    # 1 / largest magnitude of the feature of each dense row, sparse entry and triple in all shards.
    if scores.largest is None:
        return None
    L = scores.n_labels
    largest = np.where(scores.largest > 0, scores.largest, 1.0)
    ones = np.ones((L, L)), np.ones(L), np.ones(L)
    packed = scores.pack(Weights(np.repeat(largest[:, None], L, axis=1), *ones))
    W, sparse_w = scores.design.weights(scores.state(packed))
    of_triples = np.zeros(0, dtype=int) if scores.features is None else scores.features.feature
    return 1 / W.max(axis=1), 1 / sparse_w, 1 / largest[of_triples]

"""Stochastic steps on data in shards, one shard after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sklseq.objectives.likelihood.sharded import ShardedLogLikelihood
from sklseq.objectives.likelihood.stochastic import StochasticLikelihood
from sklseq.objectives.scores.score_map import ScoreMap, Weights

__all__ = ["ShardVisits"]


class NoRows(NamedTuple):
    """What `StochasticLikelihood` asks of a likelihood, without any sequence."""

    scores: ScoreMap
    l2: float
    y: np.ndarray = np.zeros(0, dtype=np.int32)
    offsets: np.ndarray = np.zeros(1, dtype=np.int64)
    weights: np.ndarray = np.zeros(0)


class ShardVisits:
    """`StochasticLikelihood` on shards: the same steps, on the sequences of one after the other.

    Parameters
    ----------
    primal : ShardedLogLikelihood
        Of sparse rows, in float64.
    l1 : float
        Of the penalty l1 · ‖w‖₁, which ``primal`` does not have.
    w : ndarray
        Where to start; overwritten.

    Attributes
    ----------
    w, losses, visited
        As of ``StochasticLikelihood``, sequences being numbered through all shards.

    Notes
    -----
    A pass reads each shard that ``primal`` does not keep once. Weights and sums are those of all
    shards; beside them, a pass costs O(n_weights) a shard, for the penalties.
    """

    def __init__(self, primal: ShardedLogLikelihood, l1: float, w: np.ndarray):
        self.primal = primal
        first, visited = [0], []
        for k in primal.shards.filled:
            with primal.part(k) as part:
                filled = (part.weights > 0) & (np.diff(part.offsets) > 0)
                visited.append(first[-1] + np.flatnonzero(filled))
                first.append(first[-1] + len(part.weights))
        self.first, self.visited = np.array(first), np.concatenate(visited)
        self.losses = np.zeros(first[-1])
        self.steps = StochasticLikelihood(NoRows(primal.scores, primal.l2), l1, w)
        self.steps.scale = _scale(primal.scores)
        self.steps.make_room(primal.shards.summary.longest)

    @property
    def w(self) -> np.ndarray:
        return self.steps.w

    def descend(self, order: np.ndarray, rate: float, boost: np.ndarray | float = 1.0) -> float:
        """Visit sequences: shards in the order of their first one, each in the order given."""
        loss, boost = 0.0, np.broadcast_to(boost, self.losses.shape)
        for k, mine in self._by_shard(order):
            here = slice(*self.first[k : k + 2])
            with self.primal.part(self.primal.shards.filled[k]) as part:
                visits = self.steps.on_rows_of(part)
                mine = mine - here.start
                loss += visits.descend(mine, rate, boost[here], n_sequences=len(order))
            self.steps.n_visits = visits.n_visits
            self.losses[here][mine] = visits.losses[mine]
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

    def metric(self) -> np.ndarray:
        """As of ``StochasticLikelihood``."""
        return self.steps.metric()

    def restart(self, w: np.ndarray) -> None:
        """Go on from these weights."""
        self.steps.restart(w)


def _scale(scores: ScoreMap) -> tuple[np.ndarray, np.ndarray] | None:
    # 1 / largest magnitude of each feature in all shards, for padded rows and for narrow pairs.
    if scores.largest is None:
        return None
    L = scores.n_labels
    largest = np.where(scores.largest > 0, scores.largest, 1.0)
    ones = np.ones((L, L)), np.ones(L), np.ones(L)
    packed = scores.pack(Weights(np.repeat(largest[:, None], L, axis=1), *ones))
    W, narrow = scores.design.weights(scores.state(packed))
    return 1 / W.max(axis=1), 1 / narrow

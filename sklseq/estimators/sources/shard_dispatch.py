"""Training, predictions and scores on shards, read by this process or on a Dask cluster."""

from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np

from sklseq.data.labels import LabelLists
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.sources.shard_source import LocalShardSource, ShardSource
from sklseq.estimators.sources.shards import Shards, named


def open_shards(
    X: SequencesLike, y: LabelsLike | None, sample_weight: ArrayLike | None
) -> ShardSource:
    """Return the source of ``Shards``, a Dask bag or delayed shards."""
    check_shards(X, y, sample_weight)
    if isinstance(X, Shards):
        return LocalShardSource(X)
    from sklseq.estimators.sources.cluster import ClusterSource  # needs Dask

    return ClusterSource(X, y)


def check_shards(X: SequencesLike, y: LabelsLike | None, sample_weight: ArrayLike | None) -> None:
    """Raise if labels or weights are given in addition to those of the shards."""
    if sample_weight is not None:
        raise ValueError(
            "Shards contain their sample_weight: give shards (X, y, sample_weight), or "
            "X.save(path, y, sample_weight)."
        )
    if y is not None and isinstance(X, Shards):
        raise ValueError("Shards hold X and y; leave y out.")


def predict_shards(predict: Callable, X: SequencesLike) -> Any:
    """Call ``predict`` shard by shard, one in memory at a time, and join the answers.

    Lazy for Dask data.
    """
    if not isinstance(X, Shards):
        from sklseq.estimators.sources.cluster import predict_lazily  # needs Dask

        return predict_lazily(predict, X)
    labels = []
    for k in range(X.n_shards):
        rows = X.read(k)[0]
        with named(k, X.sources[k]):
            labels.append(predict(rows))
    joined = LabelLists(chain.from_iterable(labels))
    return joined if isinstance(labels[0], list) else np.asarray(joined)


def count_right_of_shards(
    count: Callable, X: SequencesLike, y: LabelsLike | None, sample_weight: ArrayLike | None
) -> tuple[float, float]:
    """Return the sums of ``count(X, y, sample_weight)`` over the shards."""
    check_shards(X, y, sample_weight)
    if isinstance(X, Shards):
        counts = [_count(count, X, k) for k in range(X.n_shards)]
    else:
        from sklseq.estimators.sources.cluster import count_on_workers  # needs Dask

        counts = count_on_workers(count, X, y)
    right, total = (sum(part) for part in zip(*counts))
    return right, total


def _count(count: Callable, shards: Shards, k: int) -> tuple[float, float]:
    content = shards.read(k)
    with named(k, shards.sources[k]):
        return count(*content)

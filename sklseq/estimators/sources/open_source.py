"""Choice of the source for training data of any form."""

from __future__ import annotations

from typing import Any

from sklearn import get_config

from sklseq.data.input_kinds import holds_rows, storage_of
from sklseq.data.labels import PartialLabelError
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.sources.block_source import BlockSource
from sklseq.estimators.sources.partial_source import BY_BLOCKS, NOTHING, PartialSource, Unlabelled
from sklseq.estimators.sources.shard_source import LocalShardSource, check_shards
from sklseq.estimators.sources.shards import Shards
from sklseq.estimators.sources.source import RowSource, Source
from sklseq.estimators.validation import read_sequences, training_weights
from sklseq.objectives.likelihood.gradient_plan import Plan, plan_gradient


def open_source(
    X: SequencesLike, y: LabelsLike | None, sample_weight: ArrayLike | None, gradient: str,
    unlabelled: Unlabelled = NOTHING,
) -> Source:  # fmt: skip
    """Return the source of labelled sequences: in memory, in blocks, in shards or on a cluster.

    Rows in memory are processed in blocks if ``gradient`` or the length of sequences requires it.
    If ``unlabelled`` has a parameter set, sequences without known labels are kept; this needs
    sequences in memory.
    """
    storage = storage_of(X)
    if storage == "shards":
        unlabelled.check_in_memory(False)
        return _open_shards(X, y, sample_weight)
    cut = gradient in BY_BLOCKS and holds_rows(X)
    cause = f"gradient={gradient!r} works on blocks of rows"

    def plan(longest: int, n_labels: int, **kind: bool) -> Plan:
        budget = get_config()["working_memory"] * 2.0**20
        return plan_gradient(gradient, int(longest), n_labels, budget=budget, **kind)

    if cut or storage == "blocks":
        unlabelled.check_in_memory(False)
        weights = training_weights(sample_weight, len(X))
        cause = cause if cut else "X holds sequences in blocks"
        return BlockSource.of_blocks(X, y, weights, plan, cause)
    source = _read_rows(X, y, sample_weight, unlabelled)
    if unlabelled.parameter and isinstance(source, PartialSource):
        return source
    longest = source.X.lengths.max()
    source.plan = plan(longest, len(source.classes), packed=True, random_access=True)
    if source.plan.passes is None:
        return source
    where = "" if gradient in BY_BLOCKS else " where sequences are as long as here"
    return BlockSource.of_rows(source, source.plan, cause + where)


def _open_shards(X: Any, y: Any, sample_weight: Any) -> Source:
    check_shards(X, y, sample_weight)
    if isinstance(X, Shards):
        return LocalShardSource(X)
    from sklseq.estimators.sources.cluster import ClusterSource  # needs Dask

    return ClusterSource(X, y)


def _read_rows(X: Any, y: Any, sample_weight: Any, unlabelled: Unlabelled) -> RowSource:
    # A PartialSource if a label is unknown.
    rows, vectorizer = read_sequences(X, fit=True)
    weights = training_weights(sample_weight, len(rows))
    try:
        return RowSource.of_rows(rows, y, weights, vectorizer)
    except PartialLabelError:
        return PartialSource.of_rows(rows, y, weights, vectorizer, unlabelled)

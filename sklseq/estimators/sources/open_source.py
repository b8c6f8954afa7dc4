"""Choice of the source for training data of any form."""

from functools import partial

from sklearn import get_config

from sklseq.data.input_kinds import holds_rows, storage_of
from sklseq.data.labels import PartialLabelError
from sklseq.data.sequences import check_not_empty, training_weights
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.sources.block_source import BlockSource
from sklseq.estimators.sources.partial_source import BY_BLOCKS, NOTHING, PartialSource, Unlabelled
from sklseq.estimators.sources.shard_dispatch import open_shards
from sklseq.estimators.sources.source import RowSource, Source
from sklseq.estimators.validation import read_sequences
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
    cut = storage == "memory" and gradient in BY_BLOCKS and holds_rows(X)
    unlabelled.check_in_memory(storage == "memory" and not cut)
    if storage == "shards":
        return open_shards(X, y, sample_weight)
    cause, plan = f"gradient={gradient!r} works on blocks of rows", partial(_plan, gradient)
    if cut or storage == "blocks":
        weights = training_weights(sample_weight, len(X))
        cause = cause if cut else "X holds sequences in blocks"
        return BlockSource.of_blocks(X, y, weights, plan, cause)
    rows, vectorizer = read_sequences(X, fit=True)
    check_not_empty(rows)
    weights = training_weights(sample_weight, len(rows))
    try:
        source = RowSource.of_rows(rows, y, weights, vectorizer)
    except PartialLabelError:
        source = PartialSource.of_rows(rows, y, weights, vectorizer, unlabelled)
    if unlabelled.parameter and isinstance(source, PartialSource):
        return source
    longest = source.X.lengths.max()
    source.plan = plan(longest, len(source.classes), packed=True, random_access=True)
    if source.plan.passes is None:
        return source
    where = "" if gradient in BY_BLOCKS else " where sequences are as long as here"
    return BlockSource.of_rows(source, source.plan, cause + where)


def _plan(gradient: str, longest: int, n_labels: int, **kind: bool) -> Plan:
    budget = get_config()["working_memory"] * 2.0**20
    return plan_gradient(gradient, int(longest), n_labels, budget=budget, **kind)

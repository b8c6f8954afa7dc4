"""Training data in blocks of rows that are read again at each evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklseq._lib.threads import Threads
from sklseq.data.constraints import Constraints, check_seen
from sklseq.data.labels import PartialLabelError, split_labels
from sklseq.data.partial_blocks import CodedLabels, read_codes
from sklseq.data.row_blocks import BlockError, blocks_of, label_blocks
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.sources.partial_source import PartialSource
from sklseq.estimators.sources.source import RowSource, Source
from sklseq.estimators.validation import training_weights
from sklseq.objectives.likelihood.long import LongData, LongLogLikelihood, Plan
from sklseq.objectives.likelihood.summary import Summary
from sklseq.objectives.scores.score_map import ScoreMap

__all__ = ["BlockSource"]


class BlockSource(Source):
    """Sequences in blocks; ``read()`` returns their ``LongData``."""

    error = BlockError
    lacks = dict.fromkeys(
        ("dual", "adagrad"),
        "solver={solver!r} updates weights after single sequences in memory, but {cause}; use "
        "solver='lbfgs' or 'auto'.",
    ) | {
        "early_stopping": "early_stopping=True sets single sequences aside, in memory, but "
        "{cause}; use early_stopping=False.",
        "transition_features": "Transition features need sequences in memory and "
        "gradient='forward-backward', but {cause}; leave out transition_features and B lines.",
    }

    def __init__(self, read: Callable[[], LongData], cause: str, vectorizer: Any = None):
        self.read, self.cause, self.vectorizer = read, cause, vectorizer
        self.rows: RowSource | None = None  # those in memory

    @classmethod
    def of_blocks(
        cls,
        X: SequencesLike,
        y: LabelsLike,
        sample_weight: ArrayLike | None,
        plan: Callable,
        cause: str,
    ) -> BlockSource:
        """Sequences in blocks, or to be cut into blocks where they are."""
        weights, rows = training_weights(sample_weight, len(X)), blocks_of(X)

        def read() -> LongData:
            try:
                return LongData.read(rows, label_blocks(y, len(rows)), weights, plan)
            except PartialLabelError:
                return LongData.read_partial(rows, read_codes(y, weights), weights, plan)

        return cls(read, cause)

    @classmethod
    def of_rows(cls, source: RowSource, plan: Plan, cause: str) -> BlockSource:
        """Sequences in memory, worked on in blocks."""
        X, weights = source.X, source.weights

        def read() -> LongData:
            if not isinstance(source, PartialSource):
                return LongData.packed(X, source.classes[source.codes], weights, plan)
            codes = split_labels(source.codes, X.offsets)
            labels = CodedLabels(list(codes), source.classes, source.labels.table)
            return LongData.read_partial(blocks_of(X), labels, weights, plan)

        blocks = cls(read, cause, source.vectorizer)
        blocks.roles, blocks.rows = source.roles, source
        return blocks

    def summarise(self) -> Summary:
        self.data = self.read()
        self.plan, self.summary = self.data.plan, self.data.summary
        return self.summary

    def check_constraints(self, allowed: Constraints) -> None:
        if self.rows is not None:
            self.rows.check_constraints(allowed)
        elif self.data.table is None:  # else the first evaluation finds what is forbidden
            check_seen(self.summary.support, allowed, self.summary.classes)

    def convexity(self, l2: float) -> float:
        return super().convexity(l2) if self.data.table is None else 0.0

    def likelihood(self, scores: ScoreMap, l2: float, threads: Threads) -> LongLogLikelihood:
        return LongLogLikelihood(scores, self.data, l2)

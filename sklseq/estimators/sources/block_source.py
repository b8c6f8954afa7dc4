"""Training data in blocks of rows that are read again at each evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklseq._lib.threads import Threads
from sklseq.data.constraints import Constraints, check_seen
from sklseq.data.row_blocks import BlockError, blocks_of, label_blocks
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
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
        weights = training_weights(sample_weight, len(X))
        rows, labels = blocks_of(X), label_blocks(y, len(X))
        return cls(lambda: LongData.read(rows, labels, weights, plan), cause)

    @classmethod
    def of_rows(cls, source: RowSource, plan: Plan, cause: str) -> BlockSource:
        """Sequences in memory, worked on in blocks."""
        labels = source.classes[source.codes]
        read = lambda: LongData.packed(source.X, labels, source.weights, plan)  # noqa: E731
        blocks = cls(read, cause, source.vectorizer)
        blocks.roles = source.roles
        return blocks

    def summarise(self) -> Summary:
        self.data = self.read()
        self.plan, self.summary = self.data.plan, self.data.summary
        return self.summary

    def check_constraints(self, allowed: Constraints) -> None:
        check_seen(self.summary.support, allowed, self.summary.classes)

    def likelihood(self, scores: ScoreMap, l2: float, threads: Threads) -> LongLogLikelihood:
        return LongLogLikelihood(scores, self.data, l2)

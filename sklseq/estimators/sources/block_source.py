"""Training data in blocks of rows that are read again at each evaluation."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import numpy as np

from sklseq._lib.threads import Threads
from sklseq.data.constraints import Constraints, PathCheck, violates
from sklseq.data.input_kinds import blocks_of
from sklseq.data.label_blocks import CodedLabels, LabelBlocks, label_blocks
from sklseq.data.labels import PartialLabelError, cut_rows, encode_labels
from sklseq.data.row_blocks import BlockError
from sklseq.data.types import LabelsLike, SequencesLike
from sklseq.estimators.sources.source import RowSource, Source
from sklseq.objectives.likelihood.gradient_plan import Plan
from sklseq.objectives.likelihood.long import LongLogLikelihood
from sklseq.objectives.likelihood.long_data import LongData
from sklseq.objectives.likelihood.summary import Summary
from sklseq.objectives.scores.score_map import ScoreMap


class BlockSource(Source):
    """Sequences trained on in blocks; ``read()`` returns their ``LongData``.

    Parameters
    ----------
    read : callable
    cause : str
        As in ``Source``.
    given : (X, y)
        Data of the user, or None with ``rows``.
    vectorizer : DictFeatures, optional
    rows : RowSource, optional
        Source of the rows, if they are in memory.
    """

    error = BlockError
    lacks = dict.fromkeys(
        ("dual", "adagrad"),
        "solver={solver!r} updates weights after single sequences in memory, but {cause}; use "
        "solver='lbfgs' or 'auto'.",
    )

    def __init__(
        self, read: Callable[[], LongData], cause: str, given: Any = None, vectorizer: Any = None,
        rows: RowSource | None = None,
    ):  # fmt: skip
        self.read, self.cause, self.given, self.vectorizer = read, cause, given, vectorizer
        self.rows = rows

    @classmethod
    def of_blocks(
        cls,
        X: SequencesLike,
        y: LabelsLike,
        weights: np.ndarray,
        plan: Callable,
        cause: str,
    ) -> Self:
        """Return the source of sequences given in blocks, or cut into blocks as they are read."""
        rows = blocks_of(X)

        def read() -> LongData:
            try:
                labels = label_blocks(y, len(rows))
                return LongData.read(rows, labels, weights, plan)
            except PartialLabelError:
                return LongData.of_codes(rows, CodedLabels.read(y, weights), weights, plan)

        return cls(read, cause, (rows, y))

    @classmethod
    def of_rows(cls, source: RowSource, plan: Plan, cause: str) -> Self:
        """Return the source of sequences in memory whose gradient is computed in blocks."""
        X, codes = source.X, list(cut_rows(source.codes, source.X.offsets))
        labels = CodedLabels(codes, source.classes, source.table)
        read = partial(LongData.of_codes, blocks_of(X), labels, source.weights, plan)
        blocks = cls(read, cause, vectorizer=source.vectorizer, rows=source)
        blocks.roles = source.roles
        return blocks

    def summarise(self) -> Summary:
        self.data = self.read()
        self.plan, self.summary = self.data.plan, self.data.summary
        return self.summary

    @property
    def weights(self) -> np.ndarray:
        """Weight of each sequence; 0 if it is not used for training."""
        return self.data.weights

    @property
    def lengths(self) -> np.ndarray:
        """Number of rows of each sequence; 0 if it is not used for training."""
        lengths = np.zeros(len(self.weights), dtype=np.int64)
        for sequence in self.data.sequences:
            lengths[sequence.number] = sequence.n_rows
        return lengths

    @property
    def numbers(self) -> np.ndarray:
        """Numbers of the sequences among those of the user, as in ``RowSource``."""
        return np.arange(self.n_given) if self.rows is None else self.rows.numbers

    @property
    def n_given(self) -> int:
        """Number of sequences of the user, as in ``RowSource``."""
        return len(self.weights) if self.rows is None else self.rows.n_given

    def set_aside(self, numbers: np.ndarray) -> tuple[Any, list]:
        """Remove sequences as in ``RowSource``; the others are read again for observed counts."""
        self.data = self.data.without(numbers)
        if self.rows is not None:
            return self.rows.set_aside(numbers)
        X, y = self.given
        return [X[s] for s in numbers], [y[s] for s in numbers]

    def check_constraints(self, allowed: Constraints) -> None:
        if self.rows is not None:
            self.rows.check_constraints(allowed)
        elif self.data.labels is not None or violates(self.summary.support, allowed):
            labels, classes = self.data.labels, self.summary.classes
            table = np.eye(len(classes), dtype=bool) if labels is None else labels.table
            check = PathCheck(allowed, classes, table, known=labels is None)
            for s in (sequence.number for sequence in self.data.sequences):
                codes = self._read_codes(s) if labels is None else labels.codes[s]
                check.follow(codes, lambda row, s=s: f"row {row} of sequence {s}")

    def _read_codes(self, s: int) -> np.ndarray:
        blocks = LabelBlocks(self.given[1][s], s).read(f"sequence {s}")
        codes = [encode_labels(labels, self.summary.classes) for labels in blocks]
        return np.concatenate([np.zeros(0, np.intp), *codes])

    def seen_triples(self, columns: np.ndarray) -> np.ndarray:
        return self.data.seen_triples(columns)

    def convexity(self, l2: float) -> float:
        return super().convexity(l2) if self.data.labels is None else 0.0

    def likelihood(self, scores: ScoreMap, l2: float, threads: Threads) -> LongLogLikelihood:
        return LongLogLikelihood(scores, self.data, l2)

    def diagonal_of(self, likelihood: LongLogLikelihood) -> Callable[[np.ndarray], np.ndarray]:
        return likelihood.diagonal

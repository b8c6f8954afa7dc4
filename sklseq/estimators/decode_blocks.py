"""Viterbi decoding of sequences in blocks: a label is final when no later row can change it."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from sklseq.data.input_kinds import blocks_of
from sklseq.data.label_blocks import CodedLabels, LabelBlocks, label_blocks
from sklseq.data.labels import PartialLabelError, different_lengths, find_codes
from sklseq.data.row_blocks import BLOCK_ROWS, RowBlocks, one_shot_error
from sklseq.data.sequences import check_sample_weight
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.validation import other_width
from sklseq.inference.chain.linear_chain import Transitions
from sklseq.inference.chain.online_rules import OnlineRule, new_beam, no_path, push_scores
from sklseq.inference.chain.row_transitions import RowTransitions


class BlockDecoder(NamedTuple):
    """Scores of a fitted tagger, and Viterbi decoding with them block by block.

    Attributes
    ----------
    name : str
        Name of the tagger's class, for messages.
    classes : ndarray of shape (n_labels,)
    n_features : int
    score : callable
        Takes rows and returns their padded scores, (n_rows, width).
    chain : Transitions
    entries : callable
        Takes rows, and whether they are the first of their sequence; returns RowTransitions for a
        model with transition features, otherwise None.
    """

    name: str
    classes: np.ndarray
    n_features: int
    score: Callable[[Any], np.ndarray]
    chain: Transitions
    entries: Callable[[Any, bool], RowTransitions | None] = lambda *_: None

    def decode(self, source: RowBlocks, number: int = 0) -> Iterator[np.ndarray]:
        """Label codes of one sequence, in arrays of any length, as they become final.

        A label is final when all survivor paths share it; only rows on which they differ are kept
        in memory.
        """
        where = f"sequence {number}"
        beam = new_beam(self.chain, OnlineRule(strategy="closure"))
        for rows in source.read(BLOCK_ROWS, where):
            psi, given = self.scores(rows, where), self.entries(rows, beam.n_rows == 0)
            if given is not None:
                given = given.for_kernels(given.score.astype(np.float64), beam.width)
            psi = psi[:, : len(self.classes)]
            push_scores(beam, psi, given, where=f" of {where}", labels=self.classes)
            yield beam.take_codes()
        if beam.n_rows and not beam.end_sequence():
            raise no_path(f"row {beam.n_rows - 1} of {where}", at_end=True)
        yield beam.take_codes()

    def scores(self, rows: Any, where: str) -> np.ndarray:
        """Padded scores of a block of rows."""
        if rows.shape[1] != self.n_features:
            origin = f"{self.name} was fitted with"
            raise other_width(rows.shape[1], self.n_features, origin, where.capitalize())
        return self.score(rows)

    def predict(self, X: SequencesLike) -> Iterator[np.ndarray]:
        """Label codes of each sequence of X."""
        for s, source in enumerate(blocks_of(X)):
            yield np.concatenate(list(self.decode(source, s)))

    def count_right(
        self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None
    ) -> tuple[float, float]:
        """Return the weight of rows labelled right, and of all rows of known label.

        Neither rows nor labels are kept, except codes of y if some labels are unknown.
        """
        sources = blocks_of(X)
        weights = check_sample_weight(sample_weight, len(sources))
        try:
            return self._count_all(sources, label_blocks(y, len(sources)), weights)
        except PartialLabelError:
            once = [f"X[{s}]" for s, one in enumerate(sources) if one.one_shot and one.n_reads]
            once += [f"y[{s}]" for s, one in enumerate(y) if isinstance(one, Iterator)]
            if once:
                needs = "y has unknown labels, which are counted in a second reading"
                raise one_shot_error(once[0], needs) from None
        partial = CodedLabels.read(y, np.ones(len(sources)), joined=False)
        at = find_codes(partial.classes, self.classes)
        right = np.zeros((len(partial.table), len(self.classes)), dtype=bool)
        right[:, at[at >= 0]] = partial.table[:, at >= 0]
        right = np.column_stack([right, np.arange(len(right)) != len(at)])
        labels = [LabelBlocks(codes, s) for s, codes in enumerate(partial.codes)]
        return self._count_all(sources, labels, weights, right)

    def _count_all(self, sources, labels, weights, right=None) -> tuple[float, float]:
        # ``right``: for each code of y, whether each label is right, and whether the row counts.
        n_right = total = 0.0
        for s, (source, truth, weight) in enumerate(zip(sources, labels, weights)):
            same, n = self._count(source, truth.reader(f"sequence {s}"), s, right)
            n_right, total = n_right + weight * same, total + weight * n
        return float(n_right), float(total)

    def _count(self, source: RowBlocks, take: Any, s: int, right: Any) -> tuple[int, int]:
        n = n_known = same = 0
        for codes in self.decode(source, s):
            truth = take(len(codes))
            if len(truth) < len(codes):
                raise different_lengths(s, "more", n + len(truth))
            n += len(codes)
            if right is None:
                n_known, same = n, same + int((find_codes(truth, self.classes) == codes).sum())
            elif len(codes):
                counts = right[truth, -1]
                same += int((right[truth, codes] & counts).sum())
                n_known += int(counts.sum())
        if len(take(1)):
            raise different_lengths(s, n, "more")
        return same, n_known

"""Training data in blocks: their summary and observed counts, from one reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.checks import counted
from sklseq.data.label_blocks import CodedLabels, LabelBlocks
from sklseq.data.labels import different_lengths, encode_labels
from sklseq.data.row_blocks import one_shot_error
from sklseq.inference.chain.linear_chain import _chain
from sklseq.objectives.likelihood.block_sequence import BlockSequence
from sklseq.objectives.likelihood.gradient_plan import Plan
from sklseq.objectives.likelihood.partial import nothing_known
from sklseq.objectives.likelihood.passes import Counts
from sklseq.objectives.likelihood.summary import Summary
from sklseq.objectives.scores.score_map import Support, magnitudes, support_of_codes
from sklseq.objectives.scores.transition_features import TransitionFeatures, triples_of_codes
from sklseq.objectives.scores.usual_sizes import log_medians

# Rows of each block whose magnitudes are sorted for its median.
BLOCK_SAMPLE = 64


class LongData(NamedTuple):
    """Training data in blocks.

    Attributes
    ----------
    sequences : list of BlockSequence
        Sequences of positive weight; ``number`` is the position among all sequences.
    summary : Summary
    observed : Counts
        Weighted counts of all features under the true labels.
    weights : ndarray of shape (n_sequences,)
    plan : Plan
    labels : CodedLabels, or None
        Labels of all sequences, if some are unknown; ``observed`` then has the counts of sequences
        without ``codes`` only.
    again : callable(weights) -> LongData
        Reads all data again, with other weights.
    y : list of LabelBlocks
        Labels of ``sequences``, each of which is one of ``values``.
    values : ndarray
        The classes, or the numbers of codes.
    """

    sequences: list
    summary: Summary
    observed: Counts
    weights: np.ndarray
    plan: Plan
    labels: CodedLabels | None = None
    again: Callable[[np.ndarray], LongData] | None = None
    y: Sequence[LabelBlocks] = ()
    values: np.ndarray = np.zeros(0)

    def seen_triples(self, columns: np.ndarray) -> np.ndarray:
        """Triples (column, label, next label) that y allows, sorted; reads all data once."""
        keys, _ = self._triples(columns)
        return triples_of_codes(keys, self._table)

    def observed_triples(self, features: TransitionFeatures) -> np.ndarray:
        """Observed count of each weight of transition features; reads all data once."""
        keys, sums = self._triples(features.columns)
        L, n = len(self.summary.classes), len(self._table)
        column, pair = np.divmod(keys, n**2)
        triples = (column * L + pair // n) * L + pair % n
        at, found = features.places_of(triples)
        found &= (pair // n < L) & (pair % n < L)
        observed = np.zeros(features.n_weights)
        observed[at[found]] = sums[found]
        return observed

    @property
    def _table(self) -> np.ndarray:
        labels, L = self.labels, len(self.summary.classes)
        return np.eye(L, dtype=bool) if labels is None else labels.table

    def _triples(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Sorted keys (column · n_codes + code) · n_codes + next code; and weighted sums of the
        # column's values in sequences with known labels.
        found = _SeenTriples(self.values, columns, self.summary.n_features)
        for sequence, labels in zip(self.sequences, self.y):
            weight = 0.0 if sequence.codes is not None else self.weights[sequence.number]
            found.add(sequence, labels.reader(sequence.where), weight)
        return found.keys, found.sums

    def without(self, numbers: np.ndarray) -> LongData:
        """Data without some sequences, with the same summary; the others are read once."""
        assert self.again is not None
        weights = self.weights.copy()
        weights[numbers] = 0
        return self.again(weights)._replace(summary=self.summary)

    @classmethod
    def read(cls, sources: list, labels: list, weights: np.ndarray, plan: Callable) -> LongData:
        """Read ``LabelBlocks``, make the plan, then read ``RowBlocks`` and labels once.

        ``plan(longest, n_labels, packed=, random_access=)`` returns a ``Plan``.
        """
        _check_repeatable(sources, labels)
        classes, lengths = _summarise_labels(labels, weights)
        random_access = all(source.random_access for source in sources)
        plan = plan(lengths.max(), len(classes), packed=False, random_access=random_access)
        return cls.of_blocks(sources, labels, lengths, classes, weights, plan)

    @classmethod
    def of_codes(
        cls, sources: list, y: CodedLabels, weights: np.ndarray, plan: Callable | Plan
    ) -> LongData:
        """Read rows once, with labels as codes, of which some may be unknown; see :meth:`read`.

        Sequences without any known label are left out.
        """
        _check_repeatable(sources, [])
        n_labels = len(y.classes)
        weights = weights * [bool((codes != n_labels).any()) for codes in y.codes]
        if not weights.any():
            raise nothing_known()
        lengths = np.array([len(codes) for codes in y.codes])
        if callable(plan):
            random_access = all(source.random_access for source in sources)
            plan = plan(lengths.max(), n_labels, packed=False, random_access=random_access)
        labels = [LabelBlocks(codes, s) for s, codes in enumerate(y.codes)]
        return cls.of_blocks(sources, labels, lengths, y.classes, weights, plan, y)

    @classmethod
    def of_blocks(
        cls, sources, labels, lengths, classes, weights, plan: Plan,
        coded: CodedLabels | None = None,
    ) -> LongData:  # fmt: skip
        """Read rows and labels once, given the lengths and the classes.

        ``labels`` have values of ``classes``, or codes of ``coded``.
        """

        def again(weights: np.ndarray) -> LongData:
            return cls.of_blocks(sources, labels, lengths, classes, weights, plan, coded)

        kept = np.flatnonzero(weights).tolist()
        sequences = [
            BlockSequence(sources[s], s, plan.block_rows, int(lengths[s]), plan.keep) for s in kept
        ]
        own = [labels[s] for s in kept]
        partial, values = None, classes
        if coded is not None:
            for sequence in sequences:
                codes = coded.codes[sequence.number]
                sequence.codes = codes if (codes >= len(classes)).any() else None
            partial = coded if any(x.codes is not None for x in sequences) else None
            values = np.arange(len(classes if partial is None else coded.table))
        observed_weights = weights[kept] * [sequence.codes is None for sequence in sequences]
        summary, observed = _summarise_blocks(sequences, own, values, observed_weights)
        summary = summary._replace(classes=classes)
        if partial is not None:
            support = support_of_codes(summary.support, partial.table, len(classes))
            summary, observed = summary._replace(support=support), observed.of_labels(len(classes))
        return cls(sequences, summary, observed, weights, plan, partial, again, own, values)


def _check_repeatable(sources: list, labels: list) -> None:
    for name, given in (("X", sources), ("y", labels)):
        for s, source in enumerate(given):
            if source.one_shot:
                raise one_shot_error(
                    f"{name}[{s}]",
                    "solver 'lbfgs' reads X once or twice per evaluation, some hundred times in "
                    "all, and fit reads X and y once before that",
                )


def _summarise_labels(labels: list, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(sorted distinct labels of sequences of positive weight, number of labels of each)."""
    found, lengths = None, np.zeros(max(1, len(labels)), dtype=np.int64)
    for s, one in enumerate(labels):
        for block in one.read(f"sequence {s}"):
            lengths[s] += len(block)
            if len(block) and weights[s] > 0:
                found = _union(found, np.unique(block), s)
    if found is None:
        return np.zeros(0, dtype=np.str_), lengths
    return found, lengths


def _union(found: np.ndarray | None, more: np.ndarray, s: int) -> np.ndarray:
    if found is None:
        return more
    if found.dtype.kind != more.dtype.kind:
        raise ValueError(
            f"Labels must be all strings or all integers; those of sequence {s} differ from "
            "earlier ones. Convert them."
        )
    return np.union1d(found, more)


def _summarise_blocks(
    sequences: list[BlockSequence], labels: list, classes: np.ndarray, weights: np.ndarray
) -> tuple[Summary, Counts]:
    """Read all rows and labels once; return their summary and weighted feature counts."""
    sums = _Sums(classes)
    lengths = [
        sums.add(sequence.number, sequence, one.reader(sequence.where), weight)
        for sequence, one, weight in zip(sequences, labels, weights)
    ]
    if sums.counts is None:
        raise ValueError(
            f"X must hold at least one row; got {counted(len(lengths), 'sequence')} with 0 rows in "
            "all."
        )
    L = len(classes)
    support = Support(
        np.flatnonzero(sums.seen), sums.transition[:L, :L] > 0, sums.start[:L] > 0, sums.end[:L] > 0
    )
    summary = Summary(
        classes, sum(lengths), max(lengths), len(sums.seen), False, sums.single, support,
        sums.largest, sums.logs,
    )  # fmt: skip
    return summary, sums.counts


class _Sums:
    """The sums of :func:`_summarise_blocks` so far."""

    def __init__(self, classes: np.ndarray):
        self.classes, self.width = classes, _chain.padded_width(len(classes))
        self.transition = np.zeros((self.width, self.width))
        self.start, self.end = np.zeros((2, self.width))
        self.counts = self.seen = None
        self.single = True

    def add(self, s: int, sequence: BlockSequence, take, weight: float) -> int:
        """Add one sequence; returns its length."""
        n, code = 0, None
        for rows, block in sequence.first_reading():
            codes = encode_labels(take(rows.shape[0]), self.classes)
            n += rows.shape[0]
            if len(codes) < rows.shape[0]:
                n_labels = n - rows.shape[0] + len(codes)
                raise different_lengths(s, f"at least {n}", n_labels)
            if len(codes) == 0:
                continue
            self._features(s, rows, block, codes, weight)
            self._transitions(codes, code, weight)
            code = codes[-1]
        more = len(take(1 << 16))
        if more:
            raise different_lengths(s, n, f"at least {n + more}")
        if code is not None:
            self.end[code] += 1
            self.counts.end[code] += weight
        return n

    def _features(self, s: int, rows, block, codes: np.ndarray, weight: float) -> None:
        if self.counts is None:
            if rows.shape[1] == 0:
                raise ValueError("X must have at least one feature; got 0.")
            self.counts = Counts(rows.shape[1], self.width)
            self.seen = np.zeros((rows.shape[1], len(self.classes)), dtype=bool)
            self.largest, self.logs = np.zeros(rows.shape[1]), np.zeros((2, rows.shape[1]))
        if rows.shape[1] != len(self.seen):
            raise ValueError(
                f"All sequences of X must have the same number of features; sequence {s} has "
                f"{rows.shape[1]}, those before have {len(self.seen)}."
            )
        self.single &= rows.dtype == np.float32
        largest = magnitudes(rows)
        if largest is None:  # sparse rows without values far from 1
            largest = np.zeros(rows.shape[1])
            largest[rows.indices] = 1
            self.logs[1] += np.bincount(rows.indices, minlength=rows.shape[1])
        else:
            self.logs += log_medians(rows, BLOCK_SAMPLE)
        np.maximum(self.largest, largest, out=self.largest)
        one_hot = np.zeros((len(codes), self.width))
        one_hot[np.arange(len(codes)), codes] = weight
        block.collect(one_hot, 0, self.counts.state)
        if sparse.issparse(rows):
            self.seen[rows.indices, np.repeat(codes, np.diff(rows.indptr))] = True
        else:
            for j in np.unique(codes):
                self.seen[:, j] |= (rows[codes == j] != 0).any(axis=0)

    def _transitions(self, codes: np.ndarray, before: int | None, weight: float) -> None:
        if before is None:
            self.start[codes[0]] += 1
            self.counts.start[codes[0]] += weight
        else:
            codes = np.concatenate([[before], codes])
        flat = codes[:-1].astype(np.intp) * self.width + codes[1:]
        pairs = np.bincount(flat, minlength=self.width**2).reshape(self.transition.shape)
        self.transition += pairs
        self.counts.pairs += weight * pairs


class _SeenTriples:
    """Codes of successive rows that occur together with columns of the second row.

    Parameters
    ----------
    classes : ndarray
        Labels, or codes.
    columns : ndarray, sorted
        Columns of transition features.
    n_features : int

    Attributes
    ----------
    keys : ndarray
        (column · n_codes + code) · n_codes + next code, sorted.
    sums : ndarray
        Weighted sums of the column's values at these rows.
    """

    def __init__(self, classes: np.ndarray, columns: np.ndarray, n_features: int):
        self.classes, self.columns = classes, columns
        self.rank = np.full(n_features, -1, dtype=np.int32)
        self.rank[columns] = np.arange(len(columns))
        self.keys, self.sums = np.zeros(0, dtype=np.int64), np.zeros(0)
        self._new: list[tuple[np.ndarray, np.ndarray]] = []  # keys and values not yet in these

    def add(self, sequence: BlockSequence, take, weight: float) -> None:
        """Add a sequence, read again."""
        before = np.zeros(0, dtype=np.int64)
        for block in sequence.blocks():
            block.compare()
            codes = encode_labels(take(len(block)), self.classes).astype(np.int64)
            pairs = np.append(before, codes)
            pairs = pairs[:-1] * len(self.classes) + pairs[1:]
            indptr, indices, data = block.select(self.columns, self.rank, zeros=True)
            first = indptr[len(codes) - len(pairs)]  # the first row of a sequence has no pair
            lengths = np.diff(indptr)[len(codes) - len(pairs) :]
            keys = self.columns[indices[first:]] * len(self.classes) ** 2
            self._add(keys + np.repeat(pairs, lengths), weight * data[first:])
            before = codes[-1:]
        self._merge()

    def _add(self, keys: np.ndarray, values: np.ndarray) -> None:
        # Sorted once there are as many new keys as old ones, so that all is linear.
        self._new.append((keys, values))
        if sum(len(new) for new, _ in self._new) > len(self.keys):
            self._merge()

    def _merge(self) -> None:
        keys, values = map(np.concatenate, zip((self.keys, self.sums), *self._new))
        self.keys, at = np.unique(keys, return_inverse=True)
        self.sums, self._new = np.bincount(at, values, len(self.keys)), []

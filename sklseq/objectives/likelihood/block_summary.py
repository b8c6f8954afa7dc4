"""Summary and observed counts of labelled sequences in blocks, from one reading."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from sklseq.data.labels import encode_labels
from sklseq.inference.chain.linear_chain import _chain
from sklseq.objectives.likelihood.block_sequence import BlockSequence
from sklseq.objectives.likelihood.passes import Counts
from sklseq.objectives.likelihood.summary import Summary
from sklseq.objectives.scores.score_map import Support, magnitudes


def summarise_labels(labels: list, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def summarise_blocks(
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
            f"X must hold at least one row; got {len(lengths)} sequences with 0 rows in all."
        )
    L = len(classes)
    support = Support(
        np.flatnonzero(sums.seen), sums.transition[:L, :L] > 0, sums.start[:L] > 0, sums.end[:L] > 0
    )
    summary = Summary(
        classes, sum(lengths), max(lengths), len(sums.seen), False, sums.single, support,
        sums.largest,
    )  # fmt: skip
    return summary, sums.counts


class _Sums:
    """The sums of :func:`summarise_blocks` so far."""

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
                raise _different(s, n if n > n_labels else n_labels, n_labels, "at least ")
            if len(codes) == 0:
                continue
            self._features(s, rows, block, codes, weight)
            self._transitions(codes, code, weight)
            code = codes[-1]
        more = len(take(1 << 16))
        if more:
            raise _different(s, n, n + more, "", "at least ")
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
            self.largest = np.zeros(rows.shape[1])
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


class SeenTriples:
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

    def _add(self, keys: np.ndarray, values: np.ndarray) -> None:
        keys, at = np.unique(np.append(self.keys, keys), return_inverse=True)
        self.keys, self.sums = keys, np.bincount(at, np.append(self.sums, values), len(keys))


def _different(s: int, n_rows, n_labels, some_rows: str = "", some_labels: str = "") -> ValueError:
    return ValueError(
        f"Sequence {s} has {some_rows}{n_rows} rows in X but {some_labels}{n_labels} labels in y; "
        "each row needs one label."
    )

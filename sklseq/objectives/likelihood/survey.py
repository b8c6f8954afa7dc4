"""One look at labelled sequences in blocks: everything about them that no weight changes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklseq.data.labels import check_seen, encode_labels
from sklseq.data.row_blocks import AGAIN, BlockError, visit_blocks
from sklseq.data.sequences import Sequences, check_entries, first_not_finite
from sklseq.inference.chain.linear_chain import _chain
from sklseq.objectives.likelihood.block_rows import PIECE, as_block
from sklseq.objectives.likelihood.passes import Counts
from sklseq.objectives.scores.score_map import Support, magnitudes

__all__ = ["BlockSequence", "Survey", "survey", "survey_labels"]


# Of a sequence; bytes of rows between them; and rows, if these are very wide.
CHECKPOINTS, CACHE, LEAST_ROWS = 4096, 1 << 21, 64
# Times √T rows that checkpointing keeps whole, at the end of a sequence.
WHOLE = 150


class BlockSequence:
    """One sequence as the passes read it: the first time with :meth:`first_visit`, then again.

    Parameters
    ----------
    rows : RowBlocks
    number : int
        Of the sequence, for messages.
    block_rows : int
        At most; rows that are compared with what they were by one checksum fill blocks.
    n_rows : int
    keep : float
        Bytes that checkpointing may keep of the last rows.

    Notes
    -----
    What is read again is compared with what it was by checksums of all numbers, before a result is
    made of it. 8 bytes are kept for each block, or for as many rows as a cache holds.
    """

    def __init__(self, rows, number: int, block_rows: int, n_rows: int, keep: float = 0.0):
        self.source, self.number, self.where = rows, number, f"sequence {number}"
        self.n_rows, self.keep = n_rows, keep
        self.hold, self.n_repeated = 1, 0  # see OnePass
        self.sums, self.width, self.kind = array("Q"), None, None
        self._whole, self.unit = None, block_rows
        if sparse.issparse(rows.source):
            if check_entries(rows.source) is None:
                self._whole = as_block(rows.source)
        elif rows.random_access:
            self.unit = self._cached_rows(PIECE, block_rows)
        self.block_rows = block_rows // self.unit * self.unit

    @property
    def in_memory(self) -> bool:
        """Whether reading the rows takes nothing."""
        rows = self.source.source
        return self._whole is not None or type(rows) is np.ndarray

    def bytes_kept(self, rows) -> int:
        """What a block takes if it is kept: nothing if it is a view of rows in memory."""
        view = self.in_memory and self.source.source.dtype == np.float64
        return 0 if view else rows.nbytes

    def first_visit(self) -> Iterator:
        """Rows as they are and blocks of them; their checksums are kept."""
        first = 0
        for rows, _ in visit_blocks(self.source, self.block_rows, self.where):
            self.width, self.kind = rows.shape[1], self.kind or _kind(rows)
            last = first + rows.shape[0]
            block = as_block(rows) if self._whole is None else self._whole.part(first, last)
            block.checked(self.unit, lambda k, found: self.sums.append(found)).compare()
            first = last
            yield rows, block

    def blocks(self) -> Iterator:
        """Blocks ready for the kernels; an error if they are not what they were."""
        if self.source.random_access:
            for a in range(0, self.n_rows, self.block_rows):
                yield self.block(a, min(a + self.block_rows, self.n_rows))
            return
        first = 0
        again = {"finite": False, "width": self.width}
        for rows, names in visit_blocks(self.source, self.block_rows, self.where, **again):
            last = first + rows.shape[0]
            if last > self.n_rows:
                raise self._other_length(f"at least {last}")
            if last < min(first + self.block_rows, self.n_rows):
                raise self._other_length(last)
            yield self._same(as_block(rows), first, names, rows)
            first = last
        if first < self.n_rows:
            raise self._other_length(first)

    def _other_length(self, n: Any) -> BlockError:
        return BlockError(
            f"{self.where.capitalize()} had {self.n_rows} rows when it was first read, and {n} "
            f"now; {AGAIN}"
        )

    def _same(self, block: Any, first: int, names: str, rows: Any = None):
        # The block, which is compared with what was read first when it is used, if not before.
        def check(k: int, found: int) -> None:
            if found == self.sums[first // self.unit + k]:
                return
            a = first + k * self.unit
            b = min(a + self.unit, first + len(block))
            raise BlockError(
                f"Rows {a} to {b - 1} of {self.where} ({names}) differ from those that were first "
                f"read: {self._difference(rows, first, first + len(block))}; {AGAIN}"
            )

        return block.checked(self.unit, check)

    def _difference(self, rows: Any, first: int, last: int) -> str:
        if rows is None:
            found = check_entries(self.source.source)
            if found is not None:
                return f"row {found[0]} {found[1]}"
            rows = self.source.rows(first, last)
        found = first_not_finite(rows)
        if found is not None:
            return f"row {first + found[0]} holds {found[2]} in column {found[1]}"
        if _kind(rows) != self.kind:
            return f"they come as {_kind(rows)}, and came as {self.kind}"
        return "other numbers"

    def spans(self) -> list[tuple[int, int]]:
        """Cuts between checkpoints: √T of them, or ``CHECKPOINTS`` if that is more.

        Apart by what a cache holds, if not by more: there rows are when they are read again.
        """
        n_most = max(CHECKPOINTS, np.sqrt(self.n_rows))
        step = max(self._cached_rows(CACHE, self.block_rows), int(np.ceil(self.n_rows / n_most)))
        step = -(-step // self.unit) * self.unit
        cuts = [*range(0, self.n_rows, step), self.n_rows]
        return list(zip(cuts[:-1], cuts[1:]))

    def first_whole(self, spans: list[tuple[int, int]], row_bytes: int) -> int:
        """The span from which on all rows may be kept; the last one always."""
        n = min(WHOLE * np.sqrt(self.n_rows), self.keep / row_bytes)
        return sum(self.n_rows - a > n for a, _ in spans[:-1])

    def _cached_rows(self, cache: int, most: int) -> int:
        if self._whole is not None:
            return most
        return min(most, max(LEAST_ROWS, cache // (8 * max(1, self.source.source.shape[1]))))

    def block(self, first: int, last: int):
        """Rows first to last - 1, of a source with random access."""
        name = f"block {first // self.block_rows}"
        if self._whole is not None:
            return self._same(self._whole.part(first, last), first, name)
        rows = self.source.rows(first, last)
        return self._same(as_block(rows), first, name, rows)


def _kind(rows: Any) -> str:
    return f"{'CSR rows' if sparse.issparse(rows) else 'arrays'} of {rows.dtype}"


class Survey(NamedTuple):
    """What the training data says by itself.

    Attributes
    ----------
    classes : ndarray of shape (n_labels,)
    lengths : ndarray of shape (n_sequences,)
    n_features : int
    dtype : numpy dtype
        Of the weights: float32 if all rows are.
    observed : Counts
        Observed counts of all features, weighted.
    support : Support
        What was observed at all.
    largest : ndarray of shape (n_features,)
        Largest magnitude of each feature.
    """

    classes: np.ndarray
    lengths: np.ndarray
    n_features: int
    dtype: np.dtype
    observed: Counts
    support: Support
    largest: np.ndarray

    def check_constraints(self, allowed) -> None:
        """Raise if labels violate a constraint."""
        check_seen(self.support, allowed, self.classes)

    def layout(self) -> Sequences:
        """No rows, but as wide as the data: all that the layout of w depends on."""
        return Sequences(np.zeros((0, self.n_features), self.dtype), [0])


def survey_labels(labels: list, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted distinct labels of sequences of positive weight; how many labels each one has."""
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
            f"Labels must be all strings or all integers; those of sequence {s} differ from the "
            "ones before. Convert them."
        )
    return np.union1d(found, more)


def survey(sequences: list, labels: list, classes: np.ndarray, weights) -> Survey:
    """Read all rows and labels once; ``sequences``: of ``BlockSequence``."""
    look = _Look(classes)
    lengths = [
        look.at(sequence.number, sequence, one.reader(sequence.where), weight)
        for sequence, one, weight in zip(sequences, labels, weights)
    ]
    if look.counts is None:
        raise ValueError(
            f"X must hold at least one row; got {len(lengths)} sequences with 0 rows in all."
        )
    L = len(classes)
    pairs = np.flatnonzero(look.seen)
    chain = (x[:L] > 0 for x in (look.start, look.end))
    return Survey(
        classes, np.array(lengths, dtype=np.int64), len(look.seen),
        np.dtype(np.float32 if look.single else np.float64), look.counts,
        Support(pairs, look.transition[:L, :L] > 0, *chain), look.largest,
    )  # fmt: skip


class _Look:
    """The sums of :func:`survey` while they grow."""

    def __init__(self, classes: np.ndarray):
        self.classes, self.width = classes, _chain.padded_width(len(classes))
        self.transition = np.zeros((self.width, self.width))
        self.start, self.end = np.zeros((2, self.width))
        self.counts = self.seen = None
        self.single = True

    def at(self, s: int, sequence: BlockSequence, take, weight: float) -> int:
        """Look at one sequence; its length."""
        n, code = 0, None
        for rows, block in sequence.first_visit():
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
        if largest is None:  # sparse, and no value far from 1
            largest = np.zeros(rows.shape[1])
            largest[rows.indices] = 1
        np.maximum(self.largest, largest, out=self.largest)
        one_hot = np.zeros((len(codes), self.width))
        one_hot[np.arange(len(codes)), codes] = weight
        block.collect(one_hot, 0, self.counts.state)
        if sparse.issparse(rows):
            present = rows.data != 0
            of_row = np.repeat(codes, np.diff(rows.indptr))
            self.seen[rows.indices[present], of_row[present]] = True
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


def _different(s: int, n_rows, n_labels, some_rows: str = "", some_labels: str = "") -> ValueError:
    return ValueError(
        f"Sequence {s} has {some_rows}{n_rows} rows in X but {some_labels}{n_labels} labels in y; "
        "each row needs one label."
    )

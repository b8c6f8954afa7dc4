"""One sequence in blocks of rows, checked for changes whenever it is read again."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from sklseq.data.row_blocks import AGAIN, BlockError, iterate_blocks
from sklseq.data.sequences import check_entries, first_not_finite
from sklseq.objectives.likelihood.block_rows import PIECE, AllowedRows, as_block

# Largest number of checkpoints, or √T if that is more; bytes of rows, and least rows, between two.
CHECKPOINTS, CACHE, LEAST_ROWS = 4096, 1 << 21, 64


class BlockSequence:
    """One sequence, read with :meth:`first_reading`, then with :meth:`blocks` or :meth:`block`.

    Parameters
    ----------
    rows : RowBlocks
    number : int
        Number of the sequence, for messages.
    block_rows : int
        Maximum rows of a block; it is rounded down to a multiple of the rows that share a checksum.
    n_rows : int
    keep : float
        Bytes that checkpointing may keep of the last rows.

    Notes
    -----
    Checksums of all numbers show whether rows have changed since the first reading, before results
    are computed from them. One checksum, 8 bytes, is kept for each block, or for each run of rows
    that fits the cache.
    """

    def __init__(self, rows, number: int, block_rows: int, n_rows: int, keep: float = 0.0):
        self.source, self.number, self.where = rows, number, f"sequence {number}"
        self.n_rows, self.keep = n_rows, keep
        self.hold, self.n_repeated = 1, 0  # see OnePass
        self.codes: np.ndarray | None = None  # those of AllowedLabels, if some labels are unknown
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
        """Whether the rows are in memory."""
        rows = self.source.source
        return self._whole is not None or type(rows) is np.ndarray

    def bytes_kept(self, rows) -> int:
        """Additional memory if a block is kept: 0 if it is a view of rows in memory."""
        view = self.in_memory and self.source.source.dtype == np.float64
        return 0 if view else rows.nbytes

    def first_reading(self) -> Iterator:
        """Yield (rows as given, block of these rows); keep their checksums."""
        first = 0
        for rows, _ in iterate_blocks(self.source, self.block_rows, self.where):
            self.width, self.kind = rows.shape[1], self.kind or _kind(rows)
            last = first + rows.shape[0]
            block = as_block(rows) if self._whole is None else self._whole.part(first, last)
            block.checked(self.unit, lambda k, found: self.sums.append(found)).compare()
            first = last
            yield rows, block

    def blocks(self) -> Iterator:
        """Yield blocks for the kernels; raise BlockError if rows have changed."""
        if self.source.random_access:
            for a in range(0, self.n_rows, self.block_rows):
                yield self.block(a, min(a + self.block_rows, self.n_rows))
            return
        first = 0
        again = {"finite": False, "width": self.width}
        for rows, names in iterate_blocks(self.source, self.block_rows, self.where, **again):
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
        # Return the block; a difference from the first reading is an error, at first use or before.
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
        """Runs of rows between checkpoints: √T of them, or ``CHECKPOINTS`` if that is more.

        They are at least as long as the cache allows, so that the second recursion still finds the
        rows there.
        """
        n_most = max(CHECKPOINTS, np.sqrt(self.n_rows))
        step = max(self._cached_rows(CACHE, self.block_rows), int(np.ceil(self.n_rows / n_most)))
        step = -(-step // self.unit) * self.unit
        cuts = [*range(0, self.n_rows, step), self.n_rows]
        return list(zip(cuts[:-1], cuts[1:]))

    def first_whole(self, spans: list[tuple[int, int]], n: float) -> int:
        """Number of the first of the last spans that have at most n rows, or of the last one."""
        return sum(self.n_rows - a > n for a, _ in spans[:-1])

    def _cached_rows(self, cache: int, most: int) -> int:
        if self._whole is not None:
            return most
        return min(most, max(LEAST_ROWS, cache // (8 * max(1, self.source.source.shape[1]))))

    def block(self, first: int, last: int):
        """Block of the rows first to last - 1 of a source with random access."""
        name = f"block {first // self.block_rows}"
        if self._whole is not None:
            return self._same(self._whole.part(first, last), first, name)
        rows = self.source.rows(first, last)
        return self._same(as_block(rows), first, name, rows)


class AllowedSequence(BlockSequence):
    """A sequence with scores of -inf for labels that y does not allow.

    Parameters
    ----------
    sequence : BlockSequence
        It must have been read once.
    penalties : ndarray of shape (n_codes, width)
        See ``AllowedLabels.penalties``.
    """

    def __init__(self, sequence: BlockSequence, penalties: np.ndarray):
        vars(self).update(vars(sequence))
        self.penalties = penalties

    def blocks(self) -> Iterator:
        first = 0
        for block in super().blocks():
            # With random access, blocks come from `block` below and are restricted already.
            yield block if isinstance(block, AllowedRows) else self._restrict(block, first)
            first += len(block)

    def block(self, first: int, last: int):
        return self._restrict(super().block(first, last), first)

    def _restrict(self, block: Any, first: int) -> AllowedRows:
        return AllowedRows(block, self.penalties[self.codes[first : first + len(block)]])


def _kind(rows: Any) -> str:
    return f"{'CSR rows' if sparse.issparse(rows) else 'arrays'} of {rows.dtype}"

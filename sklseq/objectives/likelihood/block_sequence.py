"""One sequence in blocks of rows, checked for changes whenever it is read again."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib._checksum import checksum
from sklseq._lib.checksums import array_checksum
from sklseq._lib.index_types import index_type
from sklseq._lib.ragged import offsets_of
from sklseq.data.row_blocks import AGAIN, BlockError, iterate_blocks
from sklseq.data.sequences import check_entries, first_not_finite
from sklseq.objectives.scores.design import _linear, add_product
from sklseq.objectives.scores.row_entries import ranked_columns
from sklseq.objectives.scores.transition_features import dense_columns

# Largest number of checkpoints, or √T if that is more; bytes of rows, and least rows, between two.
CHECKPOINTS, CACHE, LEAST_ROWS = 4096, 1 << 21, 64
# Bytes of a partial product in `collect`, and of dense rows whose checksum is computed at a time;
# both stay in the cache.
PRODUCT, PIECE = 1 << 20, 1 << 19
# Called with the number of a run of rows and its checksum; may raise.
Check = Callable[[int, int], None]


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


class AllowedRows:
    """A block whose scores get ``penalties``, (n, width): 0, or -inf where a label is not allowed.

    Its other attributes are those of the block.
    """

    def __init__(self, block: DenseBlock | SparseBlock, penalties: np.ndarray):
        self._block, self._penalties = block, penalties

    def __len__(self) -> int:
        return len(self._block)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._block, name)

    def scores(self, W: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """X · W plus the penalties."""
        out = self._block.scores(W, out)
        out += self._penalties
        return out


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


def as_block(rows: Any) -> DenseBlock | SparseBlock:
    return SparseBlock(rows) if sparse.issparse(rows) else DenseBlock(rows)


def join_blocks(blocks: list) -> DenseBlock | SparseBlock:
    if len(blocks) == 1:
        return blocks[0]
    for block in blocks:
        block.compare()
    if all(isinstance(block, DenseBlock) for block in blocks):
        return DenseBlock(np.concatenate([block.rows for block in blocks]))
    blocks = [
        SparseBlock(sparse.csr_matrix(block.rows)) if isinstance(block, DenseBlock) else block
        for block in blocks
    ]
    indptr, indices, data = zip(*(block.entries(0, len(block)) for block in blocks))
    joined = object.__new__(SparseBlock)
    joined.indices = np.concatenate(indices)
    per_row = np.concatenate([np.diff(one) for one in indptr])
    joined.indptr = offsets_of(per_row).astype(joined.indices.dtype)
    if any(len(one) for one in data):  # in blocks without data, all values are 1
        data = [one if len(one) else np.ones(len(i)) for one, i in zip(data, indices)]
    joined.data = np.concatenate(data)
    return joined


class DenseBlock:
    """A block of an array, multiplied by BLAS."""

    def __init__(self, rows: np.ndarray):
        self.rows = np.ascontiguousarray(rows, dtype=np.float64)
        self.check: Check | None = None
        self.unit = len(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def scores(self, W: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """X · W."""
        out = np.empty((len(self), W.shape[1])) if out is None else out
        for piece in self._pieces():
            np.matmul(self.rows[piece], W, out=out[piece])
        return out

    def collect(self, residual: np.ndarray, first: int, out: np.ndarray) -> None:
        """out += X[first:first + n]' · residual, (n, width) to (n_features, width)."""
        if self.check is None or len(residual) < len(self):
            self.compare()
            self._collect(self.rows[first : first + len(residual)], residual, out)
            return
        for piece in self._pieces():
            self._collect(self.rows[piece], residual[piece], out)

    def _collect(self, rows: np.ndarray, residual: np.ndarray, out: np.ndarray) -> None:
        step = max(64, PRODUCT // (8 * residual.shape[1]))
        for a in range(0, len(out), step):
            add_product(out[a : a + step], rows[:, a : a + step], residual)

    def checked(self, unit: int, check: Check) -> DenseBlock:
        """Return the block; ``check`` gets the checksum of each ``unit`` rows at their first use.

        This is early enough, as changed dense rows can only give wrong numbers.
        """
        self.unit, self.check = unit, check
        return self

    def compare(self) -> None:
        """Check all rows now."""
        for _ in self._pieces():
            pass

    def _pieces(self) -> Iterator[slice]:
        # Rows are used directly after their checksum is computed, while they are in the cache.
        if self.check is None:
            yield slice(0, len(self))
            return
        step = max(16, PIECE // (8 * max(1, self.rows.shape[1])))
        with np.errstate(invalid="ignore"):
            for k, first in enumerate(range(0, len(self), self.unit)):
                last, seed = min(first + self.unit, len(self)), 0
                for a in range(first, last, step):
                    piece = slice(a, min(a + step, last))
                    seed = array_checksum(self.rows[piece], seed)
                    yield piece
                self.check(k, seed)
        self.check = None

    def squared(self) -> DenseBlock:
        """A block of the squares of all values."""
        self.compare()
        return DenseBlock(np.square(self.rows))

    @property
    def nbytes(self) -> int:
        return self.rows.nbytes

    def columns_in(self, first: int, last: int) -> None:
        """None: all columns."""
        return None

    def select(self, columns: np.ndarray, rank: np.ndarray, zeros: bool = False) -> tuple:
        """(indptr, indices, data) of the nonzero entries in ``columns``, numbered by ``rank``,
        which is -1 for other columns; of sparse rows also of stored ``zeros``."""
        return dense_columns(self.rows, columns)


class SparseBlock:
    """A block of a CSR matrix."""

    def __init__(self, rows: sparse.csr_matrix):
        self.indptr = np.ascontiguousarray(rows.indptr, dtype=index_type(rows.nnz))
        self.indices = np.ascontiguousarray(rows.indices, dtype=self.indptr.dtype)
        pieces = [(0, 64), *((a, a + (1 << 16)) for a in range(64, len(rows.data), 1 << 16))]
        # The first piece, of 64 values, is usually enough to find another value than 1.
        ones = all((rows.data[a:b] == 1).all() for a, b in pieces)
        self.data = np.zeros(0) if ones else np.ascontiguousarray(rows.data, dtype=np.float64)

    def part(self, first: int, last: int) -> SparseBlock:
        """Some of the rows: a view."""
        part = object.__new__(SparseBlock)
        part.indptr, part.indices, part.data = (
            self.indptr[first : last + 1],
            self.indices,
            self.data,
        )
        return part

    @property
    def nbytes(self) -> int:
        return int(self.indptr[-1] - self.indptr[0]) * (self.indices.itemsize + 8)

    def checked(self, unit: int, check: Check) -> SparseBlock:
        """Return the block after checking all rows: kernels use column numbers as addresses."""
        for k, first in enumerate(range(0, len(self), unit)):
            indptr = self.indptr[first : first + unit + 1]
            entries = slice(indptr[0], indptr[-1])
            seed = checksum(indptr.view(np.uint8))
            seed = checksum(self.indices[entries].view(np.uint8), seed)
            check(k, checksum(self.data[entries].view(np.uint8), seed))
        return self

    def compare(self) -> None:
        """Nothing: :meth:`checked` has checked all rows."""

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def scores(self, W: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        out = np.empty((len(self), W.shape[1])) if out is None else out
        _linear.gather_rows(self.indptr, self.indices, self.data, W, out, 0, len(self))
        return out

    def entries(self, first: int, last: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(indptr, indices, data) of some rows alone."""
        indptr = self.indptr[first : last + 1]
        entries = slice(indptr[0], indptr[-1])
        data = self.data[entries] if len(self.data) else self.data
        return indptr - indptr[0], self.indices[entries], data

    def collect(self, residual: np.ndarray, first: int, out: np.ndarray, slot=None) -> None:
        """See ``DenseBlock``; ``slot`` is the row of ``out`` for each column."""
        last = first + len(residual)
        if slot is None:
            indptr, indices, data = self.indptr[first : last + 1], self.indices, self.data
        else:
            indptr, indices, data = self.entries(first, last)
            indices = slot[indices].astype(indptr.dtype, copy=False)
        _linear.scatter_rows(indptr[:-1], indptr[1:], indices, data, residual, out)

    def squared(self) -> SparseBlock:
        """A block of the squares of all values."""
        block = self.part(0, len(self))
        block.data = np.square(self.data)
        return block

    def columns_in(self, first: int, last: int) -> np.ndarray:
        """Columns of the entries of some rows."""
        return self.indices[self.indptr[first] : self.indptr[last]]

    def select(self, columns: np.ndarray, rank: np.ndarray, zeros: bool = False) -> tuple:
        indptr, indices, data = self.entries(0, len(self))
        data = data if len(data) else np.ones(len(indices))
        return ranked_columns(indptr, indices, data, rank, zeros)

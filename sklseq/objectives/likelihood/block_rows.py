"""Blocks of rows of a sequence: products with weights and residuals, and checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib._checksum import checksum
from sklseq._lib.checksums import array_checksum
from sklseq.objectives.scores.design import _linear
from sklseq.objectives.scores.row_entries import ranked_columns
from sklseq.objectives.scores.transition_features import dense_columns

# Bytes of a partial product in `collect`, and of dense rows whose checksum is computed at a time;
# both stay in the cache.
PRODUCT, PIECE = 1 << 20, 1 << 19
# Called with the number of a run of rows and its checksum; may raise.
Check = Callable[[int, int], None]


def as_block(rows: Any) -> DenseBlock | SparseBlock:
    """``DenseBlock`` or ``SparseBlock`` of rows."""
    return SparseBlock(rows) if sparse.issparse(rows) else DenseBlock(rows)


def join_blocks(blocks: list) -> DenseBlock | SparseBlock:
    """Blocks joined into one."""
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
    joined.indptr = np.append(0, np.cumsum(per_row)).astype(joined.indices.dtype)
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
            out[a : a + step] += rows[:, a : a + step].T @ residual

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
    """A block of a CSR matrix.

    Parameters
    ----------
    rows : CSR matrix
    """

    def __init__(self, rows: sparse.csr_matrix):
        wide = rows.nnz > np.iinfo(np.int32).max
        self.indptr = np.ascontiguousarray(rows.indptr, dtype=np.int64 if wide else np.int32)
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

    def columns_in(self, first: int, last: int) -> np.ndarray:
        """Columns of the entries of some rows."""
        return self.indices[self.indptr[first] : self.indptr[last]]

    def select(self, columns: np.ndarray, rank: np.ndarray, zeros: bool = False) -> tuple:
        indptr, indices, data = self.entries(0, len(self))
        data = data if len(data) else np.ones(len(indices))
        return ranked_columns(indptr, indices, data, rank, zeros)


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

"""Rows of an extractor of sequences in blocks, computed as they are read."""

from collections.abc import Iterator
from copy import copy
from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib.checks import counted
from sklseq.data.input_kinds import blocks_of
from sklseq.data.row_blocks import BLOCK_ROWS, RowBlocks, join_rows, one_shot_error, with_last
from sklseq.features._field import receptive_field


class ExtractedRows:
    """Rows of one sequence in blocks, transformed by a fitted extractor.

    A block is transformed together with the rows before and after it on which its own rows depend.

    Parameters
    ----------
    extractor : extractor
        Fitted.
    rows : RowBlocks
    number : int
        Number of the sequence, for messages.
    """

    def __init__(self, extractor: Any, rows: RowBlocks, number: int):
        self.extractor, self.rows, self.number = extractor, rows, number
        self.before, self.after = receptive_field(extractor)

    def __iter__(self) -> Iterator:
        window, first = None, 0  # rows before ``first`` were transformed already
        finite, where = not self.extractor.reads_nan, f"sequence {self.number}"
        for rows, last in with_last(self.rows.read(BLOCK_ROWS, where, finite=finite)):
            window = rows if window is None else join_rows([window, rows])
            n = window.shape[0] if last else window.shape[0] - self.after
            if n > first:
                yield self.extractor.transform([window]).rows[first:n]
                kept = max(0, n - self.before)
                window, first = window[kept:], n - kept


class JoinedRows:
    """Rows of one sequence with the columns of several extractors."""

    def __init__(self, parts: list[RowBlocks]):
        self.parts = parts

    def __iter__(self) -> Iterator:
        for blocks in zip(*(part.read(BLOCK_ROWS, finite=False) for part in self.parts)):
            is_sparse = any(map(sparse.issparse, blocks))
            yield sparse.hstack(blocks, format="csr") if is_sparse else np.hstack(blocks)


class ExtractedBlocks(list):
    """``RowBlocks`` of each sequence, in a list that ``FeatureUnion`` can join by columns."""

    def __array_function__(self, func: Any, types: Any, args: tuple, kwargs: dict) -> Any:
        by_columns = func is np.hstack or (func is np.concatenate and kwargs == {"axis": 1})
        if not by_columns or not all(isinstance(part, ExtractedBlocks) for part in args[0]):
            return NotImplemented
        for s, rows in enumerate(args[0][0]):
            if rows.one_shot:
                raise one_shot_error(f"X[{s}]", "each transformer of a FeatureUnion reads it")
        return ExtractedBlocks(RowBlocks(JoinedRows([*parts])) for parts in zip(*args[0]))


def extracted_blocks(extractor: Any, X: Any) -> Any:
    """Return ``RowBlocks`` with the rows of a fitted extractor for each sequence of X.

    Each pass over them reads X again; a later ``fit`` of the extractor does not change them.
    """
    extractor, answer = copy(extractor), ExtractedBlocks()
    for s, rows in enumerate(blocks_of(X)):
        extracted = ExtractedRows(extractor, rows, s)
        answer.append(RowBlocks(iter(extracted) if rows.one_shot else extracted))
    return answer


def each_block(X: Any) -> Iterator:
    """Yield the blocks of all sequences of X, for ``fit``."""
    for s, rows in enumerate(blocks_of(X)):
        if rows.one_shot:
            raise one_shot_error(f"X[{s}]", "training reads the rows of an extractor several times")
        yield from rows.read(BLOCK_ROWS, f"sequence {s}", finite=False)


def first_block(X: Any) -> Any:
    for rows in each_block(X):
        return rows
    given = counted(len(X), "sequence")
    raise ValueError(f"X must hold at least one row; got {given} without rows.")

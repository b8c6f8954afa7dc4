"""Spans of consecutive tokens, and rows that occur often: each distinct one is looked at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

__all__ = ["Spans", "distinct_rows", "distinct_spans", "keep_columns", "stack_rows"]


class Spans(NamedTuple):
    """All spans of one length that lie in one sequence.

    Attributes
    ----------
    length : int
    at : ndarray of shape (n_spans,)
        Where each begins among the tokens of all sequences, in order.
    number : ndarray of shape (n_spans,)
        Which distinct span it is.
    example : ndarray of shape (n_distinct,)
        Where each distinct span occurs first.
    """

    length: int
    at: np.ndarray
    number: np.ndarray
    example: np.ndarray


def distinct_spans(codes: np.ndarray, offsets: np.ndarray, longest: int) -> Iterator[Spans]:
    """The spans of 1, 2, ..., ``longest`` tokens, told apart by the codes of their tokens.

    A span of l tokens is a span of l - 1 and a token: codes of pairs of codes. Cost O(n log n)
    for each length, with n tokens.
    """
    codes = codes.astype(np.int64)
    n_codes = int(codes.max(initial=0)) + 1
    to_end = np.repeat(offsets[1:], np.diff(offsets)) - np.arange(len(codes))
    at, number = np.arange(len(codes)), np.zeros(len(codes), dtype=np.int64)
    for length in range(1, longest + 1):
        fits = to_end[at] >= length
        at, number = at[fits], number[fits]
        pairs = number * n_codes + codes[at + length - 1]
        _, first, number = np.unique(pairs, return_index=True, return_inverse=True)
        number = number.reshape(-1)
        yield Spans(length, at, number, at[first])


def distinct_rows(rows: Any) -> tuple[Any, np.ndarray]:
    """The distinct rows of a CSR matrix, and which of them each row is.

    Rows with equal hashes are compared; should two of them differ (in order, or by a collision),
    all rows count as distinct, which is right, too.
    """
    n = rows.shape[0]
    with np.errstate(over="ignore"):
        entries = _mixed(rows.indices.astype(np.uint64) + np.uint64(1))
        entries *= _mixed(rows.data.astype(np.float64).view(np.uint64)) | np.uint64(1)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
        hashes = sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]
    _, first, number = np.unique(hashes, return_index=True, return_inverse=True)
    number = number.reshape(-1)
    alike = first[number]
    widths = np.diff(rows.indptr)
    if np.array_equal(widths, widths[alike]):
        own = np.arange(rows.indptr[-1])
        other = own + np.repeat((rows.indptr[alike] - rows.indptr[:-1]), widths)
        if np.array_equal(rows.indices, rows.indices[other]) and np.array_equal(
            rows.data, rows.data[other]
        ):
            return rows[first], number
    return rows, np.arange(n)


def _mixed(codes: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every bit of a code changes half of the bits of its hash."""
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    codes = (codes ^ (codes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return codes ^ (codes >> np.uint64(31))


def stack_rows(blocks: list, bases: list[int], n_columns: int, dtype: Any) -> sparse.csr_matrix:
    """Rows of all blocks below each other, the columns of each moved to the right by its base."""
    nnz = np.cumsum([0] + [b.nnz for b in blocks])
    indptr = np.concatenate([[0], *(b.indptr[1:] + n for b, n in zip(blocks, nnz))])
    indices = np.concatenate([np.zeros(0, int), *(b.indices + c for b, c in zip(blocks, bases))])
    data = np.concatenate([np.zeros(0), *(b.data for b in blocks)]).astype(dtype, copy=False)
    return sparse.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, n_columns))


def keep_columns(rows: sparse.csr_matrix, kept: np.ndarray) -> sparse.csr_matrix:
    """``rows[:, kept]`` for ``kept`` in rising order."""
    new = np.full(rows.shape[1], -1, dtype=np.int64)
    new[kept] = np.arange(len(kept))
    columns = new[rows.indices]
    stays = columns >= 0
    indptr = np.concatenate([[0], np.cumsum(stays)])[rows.indptr]
    shape = rows.shape[0], len(kept)
    return sparse.csr_matrix((rows.data[stays], columns[stays], indptr), shape=shape)

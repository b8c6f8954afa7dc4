"""Distinct spans of consecutive tokens and distinct rows, and operations on CSR rows."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import offsets_of, ranges


class Spans(NamedTuple):
    """All spans of one length within the sequences.

    Attributes
    ----------
    length : int
    at : ndarray of shape (n_spans,)
        First token of each span, counted over all sequences, in rising order.
    number : ndarray of shape (n_spans,)
        Number of each span among the distinct ones.
    example : ndarray of shape (n_distinct,)
        First token of the first occurrence of each distinct span.
    """

    length: int
    at: np.ndarray
    number: np.ndarray
    example: np.ndarray


def distinct_spans(codes: np.ndarray, offsets: np.ndarray, longest: int) -> Iterator[Spans]:
    """Yield the spans of 1, 2, ..., ``longest`` tokens, distinguished by their tokens' codes.

    A span of l tokens is coded as a pair of a span of l - 1 tokens and a token. Cost O(n log n)
    for each length and n tokens.
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
    """Return the distinct rows of a CSR matrix, and the number of each row among them.

    Rows with equal hashes are compared; if two of them differ (in order, or by a collision), all
    rows count as distinct, which is correct but slower.
    """
    n = rows.shape[0]
    with np.errstate(over="ignore"):
        entries = _mixed(rows.indices.astype(np.uint64) + np.uint64(1))
        entries *= _mixed(rows.data.astype(np.float64).view(np.uint64)) | np.uint64(1)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(entries, dtype=np.uint64)])
        hashes = sums[rows.indptr[1:]] - sums[rows.indptr[:-1]]
    _, first, number = np.unique(hashes, return_index=True, return_inverse=True)
    if len(first) == n:
        return rows, np.arange(n)
    number = number.reshape(-1)
    alike = first[number]
    widths = np.diff(rows.indptr)
    if np.array_equal(widths, widths[alike]):
        other = ranges(rows.indptr[alike], widths)
        if np.array_equal(rows.indices, rows.indices[other]) and np.array_equal(
            rows.data, rows.data[other]
        ):
            return rows[first], number
    return rows, np.arange(n)


def _mixed(codes: np.ndarray) -> np.ndarray:
    """Hash codes by the finaliser of splitmix64: a changed bit changes half of the hash bits."""
    codes = (codes ^ (codes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    codes = (codes ^ (codes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return codes ^ (codes >> np.uint64(31))


def stack_rows(blocks: list, bases: list[int], n_columns: int, dtype: Any) -> sparse.csr_matrix:
    """Stack the rows of all blocks, with the columns of each block shifted by its base."""
    nnz = offsets_of([b.nnz for b in blocks])
    indptr = np.concatenate([[0], *(b.indptr[1:] + n for b, n in zip(blocks, nnz))])
    indices = np.concatenate([np.zeros(0, int), *(b.indices + c for b, c in zip(blocks, bases))])
    data = np.concatenate([np.zeros(0), *(b.data for b in blocks)]).astype(dtype, copy=False)
    return sparse.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, n_columns))


def kept_columns(rows: sparse.csr_matrix, kept: np.ndarray) -> sparse.csr_matrix:
    """Return columns ``kept``, which rise; few rows cost no time for each column."""
    if rows.nnz > len(kept) // 16 or not len(kept):
        return rows[:, kept]
    at = np.minimum(np.searchsorted(kept, rows.indices), len(kept) - 1)
    found = kept[at] == rows.indices
    indptr = offsets_of(found)[rows.indptr]
    return sparse.csr_matrix((rows.data[found], at[found], indptr), (rows.shape[0], len(kept)))

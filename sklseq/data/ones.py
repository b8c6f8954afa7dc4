"""CSR rows whose values are all 1, made when they are read.

Rows that share lists of columns, as those of one token, are products whose entries are made when
they are read.
"""

from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib.index_types import index_type
from sklseq.data import _row_join


class OnesMatrix(sparse.csr_matrix):
    """CSR matrix of ones, whose ``data`` is made, read-only, when it is first read.

    Methods that work in place copy it first. Taggers predict without it: for many tokens, fresh
    memory for it would take as long as finding the features.
    """

    kind: np.dtype  # of values that are not stored

    @property
    def stores_values(self) -> bool:
        """Whether values have been set, which may differ from 1."""
        return "data" in self.__dict__

    @property
    def data(self) -> np.ndarray:
        """The values."""
        if self.stores_values:
            return self.__dict__["data"]
        if "ones" not in self.__dict__:
            self.__dict__["ones"] = ones = np.ones(len(self.indices), self.kind)
            ones.flags.writeable = False
        return self.__dict__["ones"]

    @data.setter
    def data(self, values: np.ndarray) -> None:
        self.__dict__["data"] = values

    @property
    def dtype(self) -> np.dtype:
        """Type of the values."""
        return self.data.dtype if self.stores_values else self.kind

    def __getstate__(self) -> dict:
        return {key: value for key, value in self.__dict__.items() if key != "ones"}

    def _own(self) -> None:
        if not self.data.flags.writeable:
            self.data = self.data.copy()

    def sort_indices(self) -> None:
        """Sort the column numbers of each row, in place."""
        if not self.has_sorted_indices:
            self._own()
            super().sort_indices()

    def sum_duplicates(self) -> None:
        """Add up values of equal column numbers, in place."""
        if not self.has_canonical_format:
            self._own()
            super().sum_duplicates()

    def eliminate_zeros(self) -> None:
        """Drop stored zeros, in place."""
        self._own()
        super().eliminate_zeros()


def _computed(name: str, doc: str) -> property:
    # An array of ``ProductOfOnes``; if one is assigned, the other is computed first.
    def read(rows: Any) -> np.ndarray:
        rows._multiply()
        return rows.__dict__[name]

    def assign(rows: Any, value: np.ndarray) -> None:
        rows._multiply()
        rows.__dict__[name] = value

    return property(read, assign, doc=doc)


class ProductOfOnes(OnesMatrix):
    """CSR matrix whose row t has the columns of the rows ``A[t]`` of B, for A, B = ``factors``.

    ``indptr`` and ``indices`` are computed when one of them is first read; ``factors`` is None
    from then on. Scores of the rows are A (B W), which needs neither.
    """

    factors: tuple[OnesMatrix, OnesMatrix] | None = None

    def _multiply(self) -> None:
        if (factors := self.factors) is None:
            return
        a, b = ((x.indptr.astype(np.int64), x.indices.astype(np.int32)) for x in factors)
        indices, indptr = _row_join.multiply_ones(*a, *b)
        made = rows_of_ones(indices, indptr, self.shape[1], self.kind)
        self.__dict__ |= {"indptr": made.indptr, "indices": made.indices}
        self.factors = None  # last: another thread may read, too

    indptr = _computed("indptr", "Ends of the rows.")
    indices = _computed("indices", "Columns of the entries.")


def product_of_ones(a: OnesMatrix, b: OnesMatrix) -> ProductOfOnes:
    """The product of two matrices of ones; it keeps entries that are several times in a row."""
    rows = ProductOfOnes((a.shape[0], b.shape[1]), dtype=b.kind)
    rows.kind = rows.__dict__.pop("data").dtype
    rows.factors = a, b
    return rows


def rows_of_ones(
    indices: np.ndarray, indptr: np.ndarray, n_columns: int, dtype: Any
) -> sparse.csr_matrix:
    """CSR rows whose values are all one."""
    # SciPy requires indices and indptr of one type, int32 if possible.
    kind = index_type(indptr[-1])
    rows = OnesMatrix((len(indptr) - 1, n_columns), dtype=dtype)
    rows.kind = rows.__dict__.pop("data").dtype
    rows.indptr, rows.indices = indptr.astype(kind), indices.astype(kind, copy=False)
    return rows


def all_ones(rows: sparse.csr_matrix) -> bool:
    """Whether rows are an ``OnesMatrix`` of ones; its multiples have the same class."""
    if not isinstance(rows, OnesMatrix):
        return False
    return not rows.stores_values or bool((rows.data == 1).all())


def ones_beside(blocks: list) -> sparse.csr_matrix:
    """Join matrices of ones by columns."""
    indptr = sum(block.indptr.astype(np.int64) for block in blocks)
    indices, at, n_columns = np.empty(indptr[-1], dtype=np.int32), indptr[:-1].copy(), 0
    for block in blocks:
        ends, columns = block.indptr.astype(np.int64), block.indices.astype(np.int32, copy=False)
        _row_join.place_rows(ends, columns, n_columns, at, indices)
        n_columns += block.shape[1]
    return rows_of_ones(indices, indptr, n_columns, np.result_type(*(b.dtype for b in blocks)))

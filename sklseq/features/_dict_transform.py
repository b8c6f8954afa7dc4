"""Transform of fitted ``DictFeatures``, with NumPy alone."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from sklseq.data.labels import locate
from sklseq.data.sequences import Sequences, finite_sum, is_sparse
from sklseq.data.tables import is_table, list_sequences, table_columns
from sklseq.features import _item_reader
from sklseq.features._columns import column_of
from sklseq.features._name_table import NameTable
from sklseq.features._packed_rows import PackedRows


class DictTransform:
    """Part of ``DictFeatures`` that transforms, with the same parameters and attributes."""

    columns: Any
    n_features: int | None
    dtype: Any
    n_features_out_: int
    vocabulary_: dict[str, int] | list[str]

    def packed_rows(self, X: Any) -> PackedRows:
        """Rows of features of X."""
        rows, unchecked = self._read(self._selected(as_items(X)), self.names_table())
        return _merged(rows) if unchecked else rows

    def names_table(self) -> NameTable:
        """Return the hash table of attribute names, built at the first call."""
        table = self.__dict__.get("_table")
        if table is None:  # the table is not pickled
            self._table = table = NameTable(list(self.vocabulary_))
        return table

    def _selected(self, sequences: list) -> list:
        """Return sequences of items with the keys of ``columns`` only."""
        if self.columns is None:
            return sequences
        keys = [self.columns] if isinstance(self.columns, str) else list(self.columns)
        return [
            [_restricted(item, keys, s, t) for t, item in enumerate(sequence)]
            for s, sequence in enumerate(sequences)
        ]

    def _read(
        self, sequences: list, table: NameTable, grow: bool = False
    ) -> tuple[PackedRows, bool]:
        """Return the rows, and whether a row may have the same attribute twice."""
        n_hashed = int(self.n_features or 0)
        indices, values, indptr, offsets, unchecked = _item_reader.read_items(
            sequences, table, grow, n_hashed
        )
        if values is not None or unchecked:
            values = np.ones(len(indices)) if values is None else values
            values = self._cast(values, indptr, offsets)
        n_columns = n_hashed or len(table.names)
        return PackedRows(indptr, indices, values, n_columns, offsets), unchecked

    def _cast(self, values: np.ndarray, indptr: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        """Return finite values as ``dtype``; raise a ValueError if one is too large for it."""
        with np.errstate(over="ignore"):
            cast = values.astype(self.dtype, copy=False)
        if cast is not values and not finite_sum(cast):
            for at in np.flatnonzero(~np.isfinite(cast))[:1]:
                where = locate(offsets, int(np.searchsorted(indptr, at, side="right")) - 1)
                raise ValueError(
                    f"Weights must be finite in float32, and {where} of X has {values[at]}; scale "
                    "it, or use dtype='float64'."
                )
        return cast


def _merged(rows: PackedRows) -> PackedRows:
    """Return rows sorted by column, with the values of equal columns added."""
    owner = np.repeat(np.arange(rows.n_rows), np.diff(rows.indptr))
    order = np.lexsort([rows.indices, owner])
    owner, indices = owner[order], rows.indices[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (owner[1:] != owner[:-1]) | (indices[1:] != indices[:-1])
    first = np.flatnonzero(new)
    values = np.add.reduceat(rows.values[order], first) if len(first) else rows.values
    indptr = np.searchsorted(owner[first], np.arange(rows.n_rows + 1)).astype(np.int64)
    return rows._replace(indptr=indptr, indices=indices[first], values=values)


def _restricted(item: Any, keys: list[str], s: int, t: int) -> dict:
    if not isinstance(item, Mapping):
        raise ValueError(
            f"columns= selects keys of dicts; row {t} of sequence {s} of X is "
            f"{type(item).__name__}. Use columns=None."
        )
    return {key: item[key] for key in keys if key in item}


def as_items(X: Any) -> list:
    if type(X) is list and all(type(x) is list for x in X):  # the most frequent form
        return X
    if isinstance(X, Sequences):
        raise ValueError(
            "X must be a list of sequences, each a list of items; got Sequences, which are "
            "features already: pass the items, or leave the extractor out."
        )
    sequences = list(X) if isinstance(X, Iterator) else list_sequences(X)
    for s, x in enumerate(sequences):
        if is_sparse(x) or (isinstance(x, np.ndarray) and x.dtype.kind in "biuf"):
            raise ValueError(
                f"Sequence {s} of X must be a list of items; got a matrix of numbers, which are "
                "features already: pass the items, or leave the extractor out."
            )
    return [
        _records(x, s) if isinstance(x, Mapping) or is_table(x) else x
        for s, x in enumerate(sequences)
    ]


def _records(sequence: Any, s: int) -> list[dict]:
    """Return the rows of a table, or of a mapping of columns, as dicts."""
    names = table_columns(sequence)
    columns = [column_of(sequence, name, s) for name in names]
    if len(set(map(len, columns))) > 1:
        sizes = ", ".join(f"{name}: {len(column)}" for name, column in zip(names, columns))
        raise ValueError(f"Columns of sequence {s} of X must be equally long; got {sizes}.")
    return [dict(zip(names, row)) for row in zip(*columns)]

"""Transform of fitted ``TokenFeatures``, with NumPy alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from sklseq.features import _rows
from sklseq.features._columns import Columns, read_columns
from sklseq.features._kinds import Kind, own_kind, standard_kinds
from sklseq.features._packed_rows import PackedRows


class TokenTransform:
    """What ``TokenFeatures`` does after ``fit``, whose parameters and attributes it has."""

    word: bool
    lower: bool
    shape: bool
    short_shape: bool
    prefixes: Any
    suffixes: Any
    flags: Any
    length: bool
    functions: Any
    n_features: int | None
    n_features_in_: int
    n_features_out_: int
    columns_: list[str]
    kinds_: list[str]
    values_: list[dict[str, int]]

    def packed_rows(self, X: Any) -> PackedRows:
        """Rows of features of X."""
        columns = read_columns(X)
        columns.check_like(self)
        tokens, codes, offsets = distinct_tokens(columns, self.columns_)
        numbers = self._numbers(self._kinds(), tokens, self.kinds_, self.values_)
        return self._gather(codes, *table_of(numbers), offsets)

    def _kinds(self) -> list[Kind]:
        kinds = standard_kinds(
            word=self.word, lower=self.lower, shape=self.shape, short_shape=self.short_shape,
            prefixes=self.prefixes, suffixes=self.suffixes, flags=self.flags, length=self.length,
        )  # fmt: skip
        kinds += [own_kind(name, f) for name, f in named_functions(self.functions)]
        if not kinds:
            raise ValueError("All attributes are switched off; switch on at least one, as word.")
        return kinds

    def _numbers(
        self, kinds: list[Kind], tokens: list[list[str]], prefixes: list[str], values: list,
        grow: bool = False,
    ) -> list[np.ndarray]:  # fmt: skip
        """Attributes (n_tokens, ≥ n_kinds) of each column's distinct tokens, -1: none."""
        numbers, n_known = [], 0
        for c, of_column in enumerate(tokens):
            blocks = []
            for k, kind in enumerate(kinds, c * len(kinds)):
                found, width = _values_of(kind, of_column)
                block = np.empty(len(found), dtype=np.int32)
                if self.n_features is not None:
                    _rows.hash_values(prefixes[k], found, self.n_features, block)
                else:
                    _rows.look_up_values(found, values[k], block, n_known if grow else -1)
                    n_known += len(values[k])
                blocks.append(block.reshape(len(of_column), width))
            numbers.append(np.concatenate(blocks, axis=1))
        return numbers

    def _gather(
        self, codes: np.ndarray, indptr: np.ndarray, table: np.ndarray, offsets: np.ndarray
    ) -> PackedRows:
        widths = np.diff(indptr)
        n = int(sum(widths[row].sum() for row in codes)) if len(widths) else 0
        indices, ends = np.empty(n, dtype=np.int32), np.zeros(codes.shape[1] + 1, dtype=np.int64)
        _rows.gather_rows(codes, indptr, table, indices, ends)
        return PackedRows(ends, indices, None, self.n_features_out_, offsets)


def distinct_tokens(
    columns: Columns, names: list[str]
) -> tuple[list[list[str]], np.ndarray, np.ndarray]:
    """Return the distinct tokens of each column, the number of each row's token, and the offsets.

    Numbers continue from column to column: the first token of the second column is numbered after
    the distinct tokens of the first.
    """
    lengths = columns.lengths(names[0])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    codes = np.empty((len(names), offsets[-1]), dtype=np.int32)
    tokens, first = [], 0
    for row, name in zip(codes, names):
        known: dict[str, int] = {}
        columns.check_lengths(name, lengths)
        columns.encode(name, known, first, offsets, row, True)
        tokens.append(list(known))
        first += len(known)
    return tokens, codes, offsets


def named_functions(functions: Any, what: str = "token") -> list[tuple[str, Any]]:
    """Return the functions of a parameter with their names, which must differ."""
    if functions is None:
        return []
    if isinstance(functions, Mapping):
        named = list(functions.items())
    else:
        named = [
            (getattr(f, "__name__", type(f).__name__), f)
            for f in (functions if isinstance(functions, (list, tuple)) else [functions])
        ]
    names = [name for name, _ in named]
    for name, function in named:
        if not callable(function):
            raise ValueError(f"functions must be callables of a {what}; {name!r} is {function!r}.")
        if names.count(name) > 1:
            raise ValueError(f"functions must have different names; two are {name!r}. Use a dict.")
    return named


def _values_of(kind: Kind, tokens: list[str]) -> tuple[list, int]:
    """Return the values of all tokens in one list, and the number of places for each token."""
    values = kind.values(tokens)
    if not kind.many:
        return values, 1
    width = max(map(len, values), default=0)
    return [v for several in values for v in several + [None] * (width - len(several))], width


def table_of(numbers: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return row ends and attributes of the distinct tokens, column after column."""
    ends = [np.cumsum((of_column >= 0).sum(axis=1)) for of_column in numbers]
    flat = [of_column[of_column >= 0] for of_column in numbers]
    first = np.cumsum([0] + [len(f) for f in flat])
    indptr = np.concatenate([[0], *(e + f for e, f in zip(ends, first))]).astype(np.int64)
    return indptr, np.concatenate(flat)

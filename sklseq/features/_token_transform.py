"""Transform of fitted ``TokenFeatures``, with NumPy alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sklseq._lib.ragged import offsets_of
from sklseq.features import _rows
from sklseq.features._columns import Columns, read_columns
from sklseq.features._encode import TokenNumbers
from sklseq.features._kinds import Kind, own_kind, standard_kinds
from sklseq.features._packed_rows import PackedRows, join_rows
from sklseq.features._token_table import TokenTable

# Distinct tokens of a column are about a fifth of 50,000 tokens; a table of more grows.
MANY = 10_000
# Rows are kept as numbers of distinct tokens if these are repeated more often, and have more
# attributes, on average: taggers add up the weights of each once.
REPEATS, ATTRIBUTES = 2, 4


class TokenTransform:
    """Part of ``TokenFeatures`` that transforms, with the same parameters and attributes."""

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
        """Rows of features of X, as numbers of the distinct tokens if these are repeated."""
        columns = read_columns(X).like(self)
        tokens, codes, offsets = distinct_tokens(columns, self.columns_)
        rows = [self._read(table, t) for table, t in zip(self.names_table(), tokens)]
        found = self._gather(codes, *stacked(rows), offsets)
        n_lists, n_columns = found.lists.n_rows, len(found.lists.indices)
        repeated = codes.size > REPEATS * n_lists and n_columns > ATTRIBUTES * n_lists
        return found if repeated else found.plain()

    def names_table(self) -> list[TokenTable]:
        """Return the table of attributes of each column, built at the first call."""
        kept = self.__dict__.get("_tables")  # the tables are not pickled
        if kept is None or kept[0] is not self.values_:
            columns = range(len(self.columns_))
            tables = [self._table_of(c, self.kinds_, self.values_) for c in columns]
            self._tables = kept = self.values_, tables
        return kept[1]

    def _kinds(self) -> list[Kind]:
        kinds = standard_kinds(
            word=self.word, lower=self.lower, shape=self.shape, short_shape=self.short_shape,
            prefixes=self.prefixes, suffixes=self.suffixes, flags=self.flags, length=self.length,
        )  # fmt: skip
        kinds += [own_kind(name, f) for name, f in named_functions(self.functions)]
        if not kinds:
            raise ValueError("All attributes are switched off; switch on at least one, as word.")
        return kinds

    def _table_of(self, c: int, prefixes: list[str], values: list, first: int = -1) -> TokenTable:
        kinds = self._kinds()
        of_column = slice(c * len(kinds), (c + 1) * len(kinds))
        return TokenTable(
            kinds, prefixes[of_column], values[of_column], self.n_features or 0, first
        )  # fmt: skip

    def _read(self, table: TokenTable, tokens: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return row ends and attributes of a column's distinct tokens."""
        ends, numbers = table.read(tokens)
        own = [k for k, kind in enumerate(table.kinds) if kind.attributes]
        if not own:
            return ends, numbers
        blocks = []
        for k in own:
            found, width = _several(list(map(table.kinds[k].attributes, tokens)))
            block = np.empty(len(found), dtype=np.int32)
            if self.n_features is not None:
                _rows.hash_values(table.prefixes[k], found, self.n_features, block)
            else:
                _rows.look_up_values(found, table.values[k], block, table.next)
                table.next += len(table.values[k]) if table.next >= 0 else 0
            blocks.append(block.reshape(len(tokens), width))
        more = np.concatenate(blocks, axis=1)
        more_ends = offsets_of((more >= 0).sum(axis=1))
        return join_rows(ends, numbers, more_ends, more[more >= 0], 0)

    def _gather(
        self, codes: np.ndarray, ends: np.ndarray, columns: np.ndarray, offsets: np.ndarray
    ) -> PackedRows:
        n_lists, n = len(ends) - 1, self.n_features_out_
        lists = PackedRows(ends, columns, None, n, np.array([0, n_lists]))
        indptr = np.arange(0, codes.size + 1, len(codes), dtype=np.int64)
        return PackedRows(indptr, codes.T.ravel(), None, n, offsets, lists)


def attributes_of(transform: TokenTransform, tokens: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return row ends and attributes of tokens, by a transform that reads one column."""
    return transform._read(transform.names_table()[0], tokens)


def distinct_tokens(
    columns: Columns, names: list[str]
) -> tuple[list[list[str]], np.ndarray, np.ndarray]:
    """Return the distinct tokens of each column, the number of each row's token, and the offsets.

    Numbers continue from column to column: the first token of the second column is numbered after
    the distinct tokens of the first.
    """
    lengths = columns.lengths(names[0])
    offsets = offsets_of(lengths)
    codes = np.empty((len(names), offsets[-1]), dtype=np.int32)
    tokens, first = [], 0
    for name in names[1:]:
        columns.check_lengths(name, lengths)
    for row, name in zip(codes, names):
        known = TokenNumbers(expected=min(offsets[-1] // 5, MANY))
        columns.encode(name, known, first, offsets, row, True)
        tokens.append(known.names)
        first += len(known.names)
    return tokens, codes, offsets


def named_functions(functions: Any, what: str = "token") -> list[tuple[str, Any]]:
    """Return the functions of a parameter with their names, checked to be different."""
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


def _several(values: list[list[str]]) -> tuple[list, int]:
    """Return all attributes in one list, and the number of entries for each token."""
    width = max(map(len, values), default=0)
    return [v for several in values for v in several + [None] * (width - len(several))], width


def stacked(rows: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return the row ends and attributes of several columns' tokens, column after column."""
    first = offsets_of([len(numbers) for _, numbers in rows])
    ends = [np.zeros(1, np.int64), *(e[1:] + f for (e, _), f in zip(rows, first))]
    return np.concatenate(ends), np.concatenate([numbers for _, numbers in rows])

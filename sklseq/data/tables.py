"""Lists of sequences, and tables of pandas, polars and pyarrow.

Tables are recognised and read through their common methods, without an import.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np


class Table(Protocol):
    """A DataFrame, a Table or a mapping, from the name of a column to its values."""

    def __getitem__(self, name: Any, /) -> Any: ...


@dataclass(frozen=True, slots=True, eq=False)
class Coded:
    """A column of strings: the distinct ones in order of occurrence, and the code of each row."""

    distinct: list
    codes: np.ndarray

    def __getitem__(self, rows: Any) -> list:
        return [self.distinct[code] for code in self.codes[rows].tolist()]

    def part(self, rows: slice) -> Coded:
        """The column of some rows."""
        first, codes = _by_occurrence(self.codes[rows])
        return Coded(self[rows.start + first], codes)


def is_list(values: Any) -> bool:
    """Whether ``values`` is an ordered iterable: no text, bytes, table or sparse matrix."""
    others = str | bytes | bytearray | memoryview | Mapping | Set
    is_matrix = is_table(values) or hasattr(values, "tocsr")
    return isinstance(values, Iterable) and not isinstance(values, others) and not is_matrix


def list_sequences(X: Any) -> list:
    """The sequences of ``X``, a list, array or table column, as a list.

    Raises
    ------
    ValueError
        If ``X`` is one string, mapping, table, matrix or array of numbers, or has no length, or
        if a sequence is a masked array.
    """
    got, advice = type(X).__name__, "Wrap a single sequence in a list: [X]."
    if isinstance(X, str):
        advice = "Cut a text into tokens: [X.split()]."
    elif is_table(X):
        got, advice = f"{got}, one table", "Cut it into sequences by sklseq.datasets.from_frame."
    elif isinstance(X, np.ndarray) and X.dtype != object and X.ndim != 3 and X.dtype.kind != "U":
        got = f"one array of shape {X.shape}"
    elif hasattr(X, "to_list") or hasattr(X, "to_pylist"):
        return _columns_as_lists(column_list(X))
    elif not isinstance(X, (str, bytes, Mapping, Set)) and not hasattr(X, "tocsr"):
        if hasattr(X, "__len__") and not hasattr(X, "keys"):
            sequences = list(X)
            if sequences and hasattr(sequences[0], "read"):
                raise ValueError(
                    "X holds sequences in blocks, which WindowFeatures, PerToken and CRFTagger "
                    "read; give arrays instead, numpy.concatenate(list(blocks.read()))."
                )
            return _columns_as_lists(sequences)
        if isinstance(X, Iterator):
            advice = "Read it into a list: list(X)."
    raise ValueError(f"X must be a list of sequences; got {got}. {advice}")


def _columns_as_lists(sequences: list) -> list:
    # A Series would be read as a mapping, from its index.
    kinds = set(map(type, sequences))
    if any(issubclass(kind, np.ma.MaskedArray) for kind in kinds):
        for s, sequence in enumerate(sequences):
            refuse_mask(sequence, f"Sequence {s} of X")
    columns = {kind for kind in kinds if is_column(kind)}
    if not columns:
        return sequences
    return [column_list(x) if type(x) in columns else x for x in sequences]


def refuse_mask(values: Any, what: str, other: str = "") -> None:
    """Raise if values are a masked array, whose mask NumPy's functions lose."""
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(
            f"{what} is a masked array, whose mask would be lost; fill it: .filled(value){other}."
        )


def is_table(x: Any) -> bool:
    """Whether ``x`` is a DataFrame or a Table."""
    return hasattr(x, "columns")


def protected(x: Any) -> Any:
    """``x`` for a function of the user, which cannot change it then.

    Lists, dicts and tables are copied, arrays are read-only views, other objects ``x`` itself.
    """
    if isinstance(x, np.ndarray):
        view = x.view()
        view.flags.writeable = False
        return view
    if type(x) is list:
        return [v if type(v) is str else protected(v) for v in x]
    if type(x) is dict:
        return {name: protected(v) for name, v in x.items()}
    return copy(x) if is_table(x) and hasattr(x, "__copy__") else x


def is_column(kind: type) -> bool:
    """Whether a class is a Series, Index or array of pandas, polars or pyarrow."""
    reads = hasattr(kind, "to_list") or hasattr(kind, "to_pylist") or hasattr(kind, "to_numpy")
    return reads and not hasattr(kind, "columns")


def table_columns(table: Any) -> list[str]:
    """Names of the columns of a table, or of a mapping of columns."""
    if isinstance(table, Mapping):
        return list(table)
    return list(getattr(table, "column_names", table.columns))  # pyarrow's columns are arrays


def first_column(sequence: Any) -> Any:
    """The first column of a table or mapping of columns; any other sequence as it is."""
    if not isinstance(sequence, Mapping) and not is_table(sequence):
        return sequence
    names = table_columns(sequence)
    column = sequence[names[0]] if names else []
    return column_list(column) if is_column(type(column)) else column


def read_columns(table: Any, names: list) -> list:
    """Return the named columns; raise unless each exists once and all are equally long."""
    known = table_columns(table)
    for name in names:
        if known.count(name) != 1:
            problem = f"{known.count(name)} columns" if name in known else "no column"
            indexed = name in getattr(getattr(table, "index", None), "names", ())
            hint = f", and {name!r} in its index: call reset_index() first" if indexed else ""
            raise ValueError(f"The table has {problem} {name!r}; it has {known}{hint}.")
    columns = [table[name] for name in names]
    for name, column in zip(names, columns):
        no_list = isinstance(column, str | bytes | Mapping | Set) or not hasattr(column, "__len__")
        if no_list or getattr(column, "shape", None) == ():
            raise TypeError(f"Column {name!r} must be a list or array; got {column!r:.40}.")
        if np.ma.is_masked(column):
            raise ValueError(f"Column {name!r} has masked entries; fill them, or drop their rows.")
    if len(set(map(len, columns))) > 1:
        sizes = ", ".join(f"{name}: {len(column)}" for name, column in zip(names, columns))
        raise ValueError(f"The columns must be equally long; got {sizes}.")
    return columns


def holds_numbers(values: Any) -> bool:
    """Whether a column holds numbers or booleans."""
    first = column_array(values[:1])
    return first.ndim == 1 and first.dtype.kind in "biuf"  # structs of polars have two dimensions


def column_list(values: Any) -> list:
    if type(values) is list:
        return values
    if _is_pandas_extension(values) or _is_dictionary(values):  # slow to read one by one
        found = distinct_strings(values)
        if found is not None:
            return found[:]
    for name in ("tolist", "to_list", "to_pylist"):  # pandas and NumPy, polars, pyarrow
        if hasattr(values, name):
            return getattr(values, name)()
    return list(values)


def distinct_strings(values: Any) -> Coded | None:
    """Return a table's column of strings, with one object for each distinct string.

    None for other columns, and for those that hold objects: lists, arrays, object columns.
    """
    if _is_pandas_extension(values):
        if holds_numbers(values):
            return None
        codes, distinct = values.factorize(use_na_sentinel=False)
        return Coded(np.asarray(distinct, dtype=object).tolist(), codes)
    kind = str(getattr(values, "type", getattr(values, "dtype", "")))
    if hasattr(values, "dictionary_encode") and "string" in kind.split(", indices")[0]:
        return _distinct_of_arrow(values)
    if hasattr(values, "to_physical") and kind.startswith(("String", "Categorical", "Enum")):
        return _distinct_of_polars(values)
    return None


def _is_pandas_extension(values: Any) -> bool:
    if not hasattr(values, "factorize") or isinstance(values.dtype, np.dtype):
        return False
    return values.dtype.name != "object"  # NumPy's objects in an array of pandas


def _is_dictionary(values: Any) -> bool:
    return str(getattr(values, "type", "")).startswith("dictionary")


def _distinct_of_arrow(values: Any) -> Coded:
    if _is_dictionary(values):  # a dictionary may hold a string twice, or unused strings
        values = values.cast(values.type.value_type)
    coded = values.dictionary_encode()
    if hasattr(coded, "combine_chunks"):
        coded = coded.combine_chunks()
    distinct = coded.dictionary.to_pylist()
    codes = coded.indices.fill_null(len(distinct)).to_numpy(zero_copy_only=False)
    return Coded([*distinct, *([None] if coded.null_count else [])], codes)


def _distinct_of_polars(values: Any) -> Coded:
    if str(values.dtype) == "String":
        from polars import Categorical  # already imported: the column is of polars

        values = values.cast(Categorical)
    codes = values.to_physical()
    codes = codes.fill_null((codes.max() or 0) + 1).to_numpy()
    first, codes = _by_occurrence(codes)
    return Coded(values.gather(first).to_list(), codes)


def _by_occurrence(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First row of each code, and codes renumbered by occurrence. Cost O(n + max)."""
    n = len(codes)
    first = np.full(int(codes.max()) + 1 if n else 0, n)
    first[codes[::-1]] = np.arange(n - 1, -1, -1)  # of equal codes the last assignment stays
    order = np.argsort(first)[: np.count_nonzero(first < n)]
    number = np.empty(len(first), dtype=np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    return first[order], number[codes]


def column_array(values: Any) -> np.ndarray:
    return values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)


def column_codes(values: Any) -> np.ndarray:
    """Return an array that differs between two rows if the column does."""
    if _is_pandas_extension(values):
        return values.factorize(use_na_sentinel=False)[0]  # pandas.NA cannot be compared
    found = distinct_strings(values)
    return column_array(values) if found is None else found.codes

"""Tables of pandas, polars and pyarrow, read through their common methods and without an import."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Protocol

import numpy as np

__all__ = [
    "Table",
    "column_array",
    "column_codes",
    "column_list",
    "holds_numbers",
    "is_table",
    "read_columns",
    "table_columns",
]


class Table(Protocol):
    """A DataFrame, a Table or a mapping, from the name of a column to its values."""

    def __getitem__(self, name: Any, /) -> Any: ...


def is_table(x: Any) -> bool:
    """Whether ``x`` is a DataFrame or a Table."""
    return hasattr(x, "columns")


def table_columns(table: Any) -> list[str]:
    """Names of the columns of a table, or of a mapping of columns."""
    if isinstance(table, Mapping):
        return list(table)
    return list(getattr(table, "column_names", table.columns))  # pyarrow's columns are arrays


def read_columns(table: Any, names: list) -> list:
    """Columns of a table or a mapping, each of which it has once, equally long."""
    known = table_columns(table)
    for name in names:
        if known.count(name) != 1:
            problem = f"{known.count(name)} columns" if name in known else "no column"
            raise ValueError(f"The table has {problem} {name!r}; it has {known}.")
    columns = [table[name] for name in names]
    for name, column in zip(names, columns):
        if isinstance(column, str | bytes | Mapping | Set) or not hasattr(column, "__len__"):
            raise TypeError(f"Column {name!r} must be a list or array; got {column!r:.40}.")
    if len(set(map(len, columns))) > 1:
        sizes = ", ".join(f"{name}: {len(column)}" for name, column in zip(names, columns))
        raise ValueError(f"The columns must be equally long; got {sizes}.")
    return columns


def holds_numbers(values: Any) -> bool:
    """Whether a column holds numbers or booleans."""
    return column_array(values[:1]).dtype.kind in "biuf"


def _is_coded(values: Any) -> bool:
    """Whether a column holds strings or categories of pandas, which are slow to read one by one."""
    if not hasattr(values, "factorize") or isinstance(values.dtype, np.dtype):
        return False
    return not holds_numbers(values)


def column_list(values: Any) -> list:
    """The values of a column as a list."""
    if type(values) is list:
        return values
    if _is_coded(values):
        codes, distinct = values.factorize(use_na_sentinel=False)
        return np.asarray(distinct, dtype=object)[codes].tolist()  # equal strings are one object
    for name in ("tolist", "to_list", "to_pylist"):  # pandas and NumPy, polars, pyarrow
        if hasattr(values, name):
            return getattr(values, name)()
    return list(values)


def column_array(values: Any) -> np.ndarray:
    """The values of a column as an array."""
    return values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)


def column_codes(values: Any) -> np.ndarray:
    """An array that differs between two rows where the column does."""
    if hasattr(values, "factorize") and not isinstance(values.dtype, np.dtype):
        return values.factorize(use_na_sentinel=False)[0]  # pandas.NA cannot be compared
    return column_array(values)

"""Rows and labels of tables in CSV, Parquet and Arrow files, read in blocks."""

from __future__ import annotations

import gzip
import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

TEXT = {".csv": ",", ".tsv": "\t", ".csv.gz": ",", ".tsv.gz": "\t"}
ARROW = (".parquet", ".arrow", ".feather")
SUFFIXES = (*TEXT, *ARROW)
# Number of rows parsed at a time.
TABLE_ROWS = 1 << 15


def is_table_file(path: str) -> bool:
    """Whether the name of a file has one of the ``SUFFIXES``."""
    return path.lower().endswith(SUFFIXES)


def table_names(path: str) -> list[str]:
    """Names of the columns of a file."""
    if not path.lower().endswith(ARROW):
        with _open_text(path) as lines:
            return _header(path, lines)
    if find_spec("pyarrow"):
        return [str(name) for name in _arrow_file(path)[0]]
    return list(_polars_table(path).collect_schema().names())


class TableRows:
    """Columns of numbers of a file, as blocks of rows.

    Parameters
    ----------
    path : str
    columns : list of str, optional
        By default all.
    """

    def __init__(self, path: str, columns: list[str] | None = None):
        self.path = path
        self.columns = _known(path, table_names(path) if columns is None else columns)

    def __iter__(self) -> Iterator[np.ndarray]:
        return _read(self.path, self.columns, _numbers)


class TableColumn:
    """One column of a file, as blocks of labels, which are strings in text files.

    Parameters
    ----------
    path : str
    column : str
    """

    def __init__(self, path: str, column: str):
        self.path, self.column = path, _known(path, [column])[0]

    def __iter__(self) -> Iterator[np.ndarray]:
        return _read(self.path, [self.column], _labels)


def _known(path: str, columns: Any) -> list[str]:
    columns, names = [*columns], table_names(path)
    for name in columns:
        if name not in names:
            raise ValueError(f"{path} has no column {name!r}; its columns are {names}.")
    if not columns:
        raise ValueError(f"No column of {path} is left to read; name one of {names}.")
    return columns


def _read(path: str, columns: list[str], convert: Callable) -> Iterator[np.ndarray]:
    if not path.lower().endswith(ARROW):
        return _of_text(path, columns, convert is _labels)
    return map(convert, _of_arrow(path, columns))


# ------------------------------------------------------------------------------ text


def _open_text(path: str) -> Any:
    opened: Callable = gzip.open if path.lower().endswith(".gz") else open
    return opened(path, "rt", encoding="utf-8", newline=None)


def _delimiter(path: str) -> str:
    return next(mark for suffix, mark in TEXT.items() if path.lower().endswith(suffix))


def _cells(lines: list[str], path: str, columns: list[int] | None, dtype: Any) -> np.ndarray:
    given = {"delimiter": _delimiter(path), "quotechar": '"', "comments": None, "ndmin": 2}
    return np.loadtxt(lines, dtype=dtype, usecols=columns, **given)


def _header(path: str, lines: Iterator[str]) -> list[str]:
    first = next(lines, "")
    if not first.strip():
        raise ValueError(f"{path} is empty; its first line must name the columns.")
    return [name.strip() for name in _cells([first], path, None, str)[0].tolist()]


def _of_text(path: str, columns: list[str], labels: bool) -> Iterator[np.ndarray]:
    with _open_text(path) as file:
        names, line = _header(path, file), 2
        places = [names.index(name) for name in columns]
        while lines := [*itertools.islice(file, TABLE_ROWS)]:
            filled = [one for one in lines if not one.isspace()]
            if filled:
                try:
                    cells = _cells(filled, path, places, str if labels else np.float64)
                except ValueError as error:
                    raise ValueError(
                        f"{error} (lines {line} to {line + len(lines) - 1} of {path})"
                    ) from error
                yield cells[:, 0] if labels else cells
            line += len(lines)


# ------------------------------------------------------------------------------ Arrow


def _of_arrow(path: str, columns: list[str]) -> Iterator[list[np.ndarray]]:
    # Blocks of rows as arrays of the columns, read by pyarrow or polars.
    if find_spec("pyarrow"):
        for batch in _arrow_file(path, columns)[1]:
            yield [batch.column(name).to_numpy(zero_copy_only=False) for name in columns]
        return
    table, first = _polars_table(path).select(columns), 0
    while len(part := table.slice(first, TABLE_ROWS).collect()):
        yield [part[name].to_numpy() for name in columns]
        first += TABLE_ROWS


def _arrow_file(path: str, columns: list[str] | None = None) -> tuple[list, Iterator]:
    # (names, iterator of record batches) by pyarrow.
    if path.lower().endswith(".parquet"):
        from pyarrow import parquet

        table = parquet.ParquetFile(path)
        return table.schema_arrow.names, table.iter_batches(TABLE_ROWS, columns=columns)
    import pyarrow

    table = pyarrow.ipc.open_file(pyarrow.memory_map(path))
    return table.schema.names, (table.get_batch(k) for k in range(table.num_record_batches))


def _polars_table(path: str) -> Any:
    if not find_spec("polars"):
        raise ImportError(
            f"{path} is read by pyarrow or polars, and neither is installed; pip install pyarrow, "
            "or write a CSV or .npy file."
        )
    import polars

    return polars.scan_parquet(path) if path.lower().endswith(".parquet") else polars.scan_ipc(path)


def _numbers(columns: list[np.ndarray]) -> np.ndarray:
    for column in columns:
        if column.dtype.kind not in "biuf":
            value = column[0] if len(column) else None
            raise ValueError(f"a column of features holds {value!r}, which is not a number")
    return np.stack(columns, axis=1, dtype=np.float64)


def _labels(columns: list[np.ndarray]) -> np.ndarray:
    (column,) = columns
    return np.array(column.tolist()) if column.dtype == object else column


# ------------------------------------------------------------------------------ cache


@contextmanager
def draft(path: str) -> Iterator[Any]:
    """A binary file that gets its name when it is complete."""
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as file:
            yield file
        os.replace(part, path)
    finally:
        if os.path.exists(part):
            os.remove(part)


def write_blocks(path: str, blocks: Iterator[np.ndarray], dtype: Any = None) -> int:
    """Write blocks to one ``.npy`` file; return the number of rows."""
    n, shape = 0, ()
    with draft(path) as file:
        for block in blocks:
            dtype, shape = np.dtype(dtype or block.dtype), block.shape[1:]
            if n == 0:
                _write_header(file, dtype, (0, *shape))
            file.write(np.ascontiguousarray(block, dtype=dtype).tobytes())
            n += len(block)
        if n == 0:
            raise ValueError(f"There are no rows to write to {path}.")
        file.seek(0)
        _write_header(file, dtype, (n, *shape))
    return n


def _write_header(file: Any, dtype: np.dtype, shape: tuple) -> None:
    # NumPy pads the header, so that any number of rows fits in.
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def cache_table(folder: str, rows: TableRows, label: str | None) -> tuple[str, np.ndarray | None]:
    """Cache a table; return the name of the ``.npy`` file of its rows, and a map of its labels.

    The files are written unless ``folder`` holds those of the same columns and the same, unchanged
    table.
    """
    names = [os.path.join(folder, name) for name in ("rows.npy", "labels.npy", "table.json")]
    found = os.stat(rows.path)
    stamp = {
        "path": rows.path, "columns": rows.columns, "label": label,
        "size": found.st_size, "modified": found.st_mtime_ns,
    }  # fmt: skip
    if not _holds(names[2], stamp):
        os.makedirs(folder, exist_ok=True)
        if os.path.exists(names[2]):
            os.remove(names[2])
        write_blocks(names[0], iter(rows))
        if label is not None:
            column = TableColumn(rows.path, label)
            write_blocks(names[1], iter(column), np.result_type(*{x.dtype for x in column}))
        with draft(names[2]) as file:
            file.write(json.dumps(stamp).encode())
    return names[0], None if label is None else np.load(names[1], mmap_mode="r")


def _holds(name: str, stamp: dict) -> bool:
    try:
        with open(name, encoding="utf-8") as file:
            return json.load(file) == stamp
    except (OSError, ValueError):
        return False

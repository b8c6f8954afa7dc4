"""Rows and labels of tables in CSV, Parquet and Arrow files, read in blocks."""

import contextlib
import gzip
import itertools
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator
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
    return (convert(block, columns) for block in _of_arrow(path, columns))


def _opened(path: str, mode: str, **text: Any) -> Any:
    return (gzip.open if path.lower().endswith(".gz") else open)(path, mode, **text)


@contextlib.contextmanager
def _open_text(path: str) -> Iterator[Any]:
    with _opened(path, "rt", encoding="utf-8-sig", newline=None) as file:
        try:
            yield file
        except UnicodeDecodeError as error:
            with _opened(path, "rb") as data:
                line = next(k for k, one in enumerate(data, 1) if not _is_utf8(one))
            raise ValueError(
                f"Line {line} of {path} is not UTF-8 ({error.reason}); save the file as UTF-8."
            ) from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path} is not a whole gzip file ({error}); compress the table again."
            ) from error


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _cells(lines: list[str], path: str, columns: list[int] | None, dtype: Any) -> np.ndarray:
    delimiter = next(mark for suffix, mark in TEXT.items() if path.lower().endswith(suffix))
    given = {"delimiter": delimiter, "quotechar": '"', "comments": None, "ndmin": 2}
    return np.loadtxt(lines, dtype=dtype, usecols=columns, **given)


def _header(path: str, lines: Iterator[str]) -> list[str]:
    first = next(lines, "")
    if not first.strip():
        raise ValueError(f"{path} is empty; its first line must name the columns.")
    return [name.strip() for name in _cells([first], path, None, str)[0].tolist()]


def _of_text(path: str, columns: list[str], labels: bool) -> Iterator[np.ndarray]:
    dtype: Any = str if labels else np.float64
    with _open_text(path) as file:
        names, line = _header(path, file), 2
        places = [names.index(name) for name in columns]
        while lines := [*itertools.islice(file, TABLE_ROWS)]:
            filled = [one for one in lines if not one.isspace()]
            if filled:
                try:
                    cells = _cells(filled, path, places, dtype)
                except ValueError as error:
                    bad = bisect_left(
                        range(len(lines)),
                        True,
                        key=lambda k: not _parses(lines[: k + 1], path, places, dtype),
                    )
                    where = f"line {line + bad} of {path}"
                    why = _fault(lines[bad], path, names, places, dtype) or error
                    raise ValueError(f"{where} {why}") from error
                yield cells[:, 0] if labels else cells
            line += len(lines)


def _parses(lines: list[str], path: str, places: list[int], dtype: Any) -> bool:
    filled = [one for one in lines if not one.isspace()]
    try:
        return not filled or bool(_cells(filled, path, places, dtype).size)
    except ValueError:
        return False


def _fault(line: str, path: str, names: list[str], places: list[int], dtype: Any) -> str:
    # What is wrong with a line, to follow its number; empty if it is not one of these.
    cells = _cells([line], path, None, str)[0].tolist()
    if len(cells) <= max(places):
        return (
            f"has {len(cells)} cells, but the first line of the file names {len(names)} columns; "
            "complete or delete the line"
        )
    wrong = next((k for k in places if not _parses([line], path, [k], dtype)), None)
    if wrong is None:
        return ""
    if not cells[wrong].strip():
        return (
            f"has no value in column {names[wrong]!r}: fill missing values, or drop their rows, "
            "before the table is read"
        )
    return (
        f"holds {cells[wrong]!r:.60} in column {names[wrong]!r}, which is not a number; convert "
        "it, or leave the column out by columns="
    )


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


def _numbers(columns: list[np.ndarray], names: list[str]) -> np.ndarray:
    for column, name in zip(columns, names):
        if column.dtype.kind not in "biuf":
            value = column[0] if len(column) else None
            raise ValueError(
                f"column {name!r} holds {value!r}, which is not a number; convert it, or leave the "
                "column out by columns="
            )
    return np.stack(columns, axis=1, dtype=np.float64)


def _labels(columns: list[np.ndarray], _: list[str]) -> np.ndarray:
    (column,) = columns
    return np.array(column.tolist()) if column.dtype == object else column

"""Caches of tables in files: rows and labels in ``.npy`` files, which can be memory-mapped."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from sklseq._lib.drafts import draft
from sklseq.data.store import CORRUPT
from sklseq.data.table_files import TableColumn, TableRows

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

ROWS, LABELS, STAMP = "rows.npy", "labels.npy", "table.json"


def write_blocks(path: str, blocks: Iterator[np.ndarray], dtype: Any = None) -> int:
    """Write blocks to one ``.npy`` file; return the number of rows.

    Raises
    ------
    ValueError
        If there are no rows, or ``dtype``, by default that of the first block with rows, cannot
        hold the values of every later block of its type.
    """
    n, shape = 0, ()
    with draft(path) as file:
        for block in filter(len, blocks):
            if n == 0:
                dtype, shape = np.dtype(dtype or block.dtype), block.shape[1:]
                _write_header(file, dtype, (0, *shape))
            if np.result_type(dtype, block.dtype) != dtype:
                raise ValueError(
                    f"The rows before row {n} are {dtype}, those from there on {block.dtype}; "
                    "yield blocks of one type, for instance float64."
                )
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
    table, and they are as they were written.
    """
    stamp = {"path": rows.path, "columns": rows.columns, "label": label, **_stat(rows.path)}
    if not _holds(folder, stamp):
        os.makedirs(folder, exist_ok=True)
        with _only_writer(folder):
            if not _holds(folder, stamp):  # no writer before this one has made it
                _write(folder, rows, label, stamp)
    paths = _paths(folder, label)
    return paths[ROWS], None if label is None else np.load(paths[LABELS], mmap_mode="r")


def _paths(folder: str, label: str | None) -> dict[str, str]:
    return {k: os.path.join(folder, k) for k in ([ROWS] if label is None else [ROWS, LABELS])}


def _stat(path: str) -> dict[str, int]:
    found = os.stat(path)
    return {"size": found.st_size, "modified": found.st_mtime_ns}


def _complete(stamp: dict, paths: dict[str, str]) -> dict:
    return stamp | {"files": {name: _stat(path) for name, path in paths.items()}}


def _holds(folder: str, stamp: dict) -> bool:
    paths = _paths(folder, stamp["label"])
    try:
        with open(os.path.join(folder, STAMP), encoding="utf-8") as file:
            if json.load(file) != _complete(stamp, paths):
                return False
        rows, *labels = (np.load(path, mmap_mode="r") for path in paths.values())
    except CORRUPT:  # also an OSError of a missing file
        return False
    shapes = [array.shape for array in (rows, *labels)]
    return shapes == [(len(rows), len(stamp["columns"])), (len(rows),)][: len(shapes)]


def _write(folder: str, rows: TableRows, label: str | None, stamp: dict) -> None:
    paths, name = _paths(folder, label), os.path.join(folder, STAMP)
    with suppress(FileNotFoundError):
        os.remove(name)
    if label is not None:
        column = TableColumn(rows.path, label)
        write_blocks(paths[LABELS], iter(column), _type_of_labels(column))
    write_blocks(paths[ROWS], iter(rows))
    with draft(name) as file:
        file.write(json.dumps(_complete(stamp, paths)).encode())


def _type_of_labels(column: TableColumn) -> np.dtype:
    types, first = set(), 0
    for labels in column:
        if labels.dtype == object:
            row = next(k for k, one in enumerate(labels) if not isinstance(one, (str, bool)))
            raise ValueError(
                f"Row {first + row} of column {column.column!r} of {column.path} holds "
                f"{labels[row]!r:.60}, which a cache cannot hold; replace it, or leave cache out."
            )
        types.add(labels.dtype)
        first += len(labels)
    return np.result_type(*types)


@contextmanager
def _only_writer(folder: str) -> Iterator[None]:
    """Wait for other writers to the folder, and remove the drafts of those that were killed.

    The system releases the lock of a process that ends. Where folders cannot be locked, as on some
    network drives, writers do not wait and drafts stay. Windows has no such locks, but does not
    remove files that are open.
    """
    lock = _lock(folder)
    try:
        if lock is not None or fcntl is None:
            for name in (ROWS, LABELS, STAMP):
                for part in Path(folder).glob(f"{name}.*.part"):
                    with suppress(OSError):
                        part.unlink()
        yield
    finally:
        if lock is not None:
            fcntl.flock(lock, fcntl.LOCK_UN)  # a child process may hold the file too
            os.close(lock)


def _lock(folder: str) -> int | None:
    if fcntl is None:
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError:
        os.close(handle)
        return None
    return handle

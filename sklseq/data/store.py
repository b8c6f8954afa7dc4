"""Files that hold sequences and their labels, in arrays that can be memory-mapped.

A file is an ordinary ``.npz`` without compression, which ``numpy.load`` opens too. Its arrays
begin at multiples of 64 bytes, so that each can be mapped:

========================= =======================================================================
``sklseq``                version of this layout
``offsets``               of the sequences
``rows``                  a dense matrix; or
``indptr indices shape``  a CSR matrix, with ``data``: empty if all values are one
``classes codes``         labels, sorted, and the position of each row's label (optional)
``table``                 labels of each code, (n_codes, n_labels), if some are unknown
``weights``               one per sequence (optional)
``roles``                 one per column (optional)
========================= =======================================================================

A zip file has its table of contents at the end, so a truncated file is always detected.
"""

import os
import re
import struct
import sys
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.drafts import draft

VERSION = 1
ALIGNMENT = 64
# Bytes of a member's header in the zip file without its name, of the record of large sizes that
# zipfile writes before the padding record, and of the padding record's header.
HEADER, LARGE_RECORD, RECORD = 30, 20, 4
# Small arrays, which are read with a check of their checksums: a flipped bit would change labels.
NEVER_MAPPED = ("sklseq", "shape", "classes", "table")
# Errors of zipfile and NumPy for corrupt files.
CORRUPT = (
    ValueError, OSError, EOFError, KeyError, IndexError, TypeError, OverflowError, RuntimeError,
    MemoryError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, struct.error,
)  # fmt: skip
# The header of an array in NumPy's format.
ARRAY_HEADER = re.compile(
    rb"\{'descr': '[<>|][biufSU][0-9]+', 'fortran_order': (False|True), "
    rb"'shape': \([0-9, ]*\), \} *\n"
)
# Number of the padding record. Readers skip records of unknown numbers.
PADDING = 0x5153


class Stored(NamedTuple):
    """Content of a file.

    Attributes
    ----------
    rows : ndarray or CSR matrix
    offsets : ndarray of shape (n_sequences + 1,)
    classes, codes : ndarray or None
        ``classes[codes]`` are the labels of all rows.
    weights : ndarray of shape (n_sequences,) or None
    roles : uint8 ndarray of shape (n_features,) or None
    table : bool ndarray of shape (n_codes, n_labels) or None
        As in ``AllowedLabels``, if some labels are unknown.
    """

    rows: Any
    offsets: np.ndarray
    classes: np.ndarray | None
    codes: np.ndarray | None
    weights: np.ndarray | None
    roles: np.ndarray | None = None
    table: np.ndarray | None = None

    @property
    def items(self) -> Any:
        """The item of y for each code."""
        if self.table is None:
            return self.classes
        from sklseq.data.partial_labels import AllowedLabels  # only for unknown labels

        return AllowedLabels(self.codes, self.table).choices(self.classes)


# --------------------------------------------------------------------------------------- writing


def write_stored(path: Any, stored: Stored) -> None:
    """Write a file, which gets its name when it is complete."""
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"Sequences are saved as .npz files; got {str(path)!r}. Add the suffix.")
    with draft(path) as target, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as file:
        for name, array in _members(stored).items():
            _write_member(file, f"{name}.npy", array)


def _members(stored: Stored) -> dict[str, np.ndarray]:
    rows, members = stored.rows, {"sklseq": np.array(VERSION), "offsets": stored.offsets}
    if sparse.issparse(rows):
        used = slice(rows.indptr[-1])  # SciPy's arrays may have spare places behind
        ones = bool((rows.data[used] == 1).all())
        members.update(indptr=rows.indptr, indices=rows.indices[used], shape=np.array(rows.shape))
        members["data"] = rows.data[:0] if ones else rows.data[used]
    else:
        members["rows"] = rows
    for name in ("classes", "codes", "weights", "roles", "table"):
        if getattr(stored, name) is not None:
            members[name] = getattr(stored, name)
    return members


def _write_member(file: zipfile.ZipFile, name: str, array: np.ndarray) -> None:
    # The .npy header has a multiple of 64 bytes, so the array is aligned if the member is.
    begin = file.fp.tell() + HEADER + len(name) + LARGE_RECORD + RECORD
    padding = -begin % ALIGNMENT
    info = zipfile.ZipInfo(name)
    info.extra = struct.pack("<HH", PADDING, padding) + bytes(padding)
    with file.open(info, "w", force_zip64=True) as member:
        np.lib.format.write_array(member, np.asarray(array, order="C"), allow_pickle=False)


# --------------------------------------------------------------------------------------- reading


def read_stored(path: Any, *, mmap: bool = True) -> Stored:
    """Read a file of :func:`write_stored`; with ``mmap``, arrays are read-only views of it."""
    with _open(path) as file:
        arrays = {name: _Member(file, name).read(mmap) for name in _names(file)}
    return _checked(arrays, path)


def stored_size(path: Any) -> int:
    """Bytes that the arrays of a file take in memory, from its table of contents."""
    with _open(path) as file:
        return sum(info.file_size for info in file.infolist())


def _open(path: Any) -> zipfile.ZipFile:
    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"There is no file {path!r}.")
    try:
        file = zipfile.ZipFile(path)
    except CORRUPT as error:
        raise ValueError(
            f"{path!r} is not a complete .npz file; write it again with Sequences.save."
        ) from error
    names, version = _names(file), None
    if "sklseq" in names and (number := _Member(file, "sklseq").read(False)).shape == ():
        version = int(number) if number.dtype.kind in "iu" else None
    if version is not None and 1 <= version <= VERSION and "offsets" in names:
        return file
    file.close()
    if version is not None and version > VERSION:
        raise ValueError(
            f"{path!r} has version {version} of the layout, and this sklseq reads versions up to "
            f"{VERSION}; install a newer one."
        )
    raise ValueError(f"{path!r} holds no Sequences; write it with Sequences.save.")


def _names(file: zipfile.ZipFile) -> list[str]:
    return [name.removesuffix(".npy") for name in file.namelist() if name.endswith(".npy")]


class _Member:
    """One array of the file."""

    def __init__(self, file: zipfile.ZipFile, name: str):
        self.file, self.name, self.info = file, name, file.getinfo(f"{name}.npy")

    def read(self, mmap: bool) -> np.ndarray:
        """The array: a view of the file if it is aligned and not compressed."""
        try:
            array = self._mapped() if mmap and self.name not in NEVER_MAPPED else None
            if array is None:
                with self.file.open(self.info) as stream:
                    _check_header(stream)
                    array = np.lib.format.read_array(stream, allow_pickle=False)
        except CORRUPT as error:
            raise ValueError(
                f"Array {self.name!r} of {self.file.filename!r} cannot be read: {error}. Write "
                "the file again with Sequences.save."
            ) from error
        return array

    def _mapped(self) -> np.ndarray | None:
        if self.info.compress_type != zipfile.ZIP_STORED:
            return None
        with open(self.file.filename, "rb") as stream:
            stream.seek(self.info.header_offset)
            header = stream.read(HEADER)
            stream.seek(sum(struct.unpack("<HH", header[26:30])), os.SEEK_CUR)
            begin = stream.tell()
            _check_header(stream)
            shape, fortran_order, dtype = read_npy_header(stream)
            at = stream.tell()
        n_bytes = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
        expected = at - begin + n_bytes
        if expected != self.info.file_size:
            raise ValueError(f"it has {self.info.file_size} bytes instead of {expected}")
        if n_bytes == 0 or not shape or at % dtype.alignment or fortran_order or dtype.hasobject:
            return None
        return np.memmap(self.file.filename, dtype, "r", at, shape)


def read_npy_header(stream: Any) -> tuple[tuple, bool, np.dtype]:
    """Shape, whether in Fortran order, and dtype of the array that follows in NumPy's format."""
    if np.lib.format.read_magic(stream) == (1, 0):
        return np.lib.format.read_array_header_1_0(stream)
    return np.lib.format.read_array_header_2_0(stream)


def _check_header(stream: Any) -> None:
    """Raise a ValueError for headers that NumPy reads with a warning only."""
    begin = stream.tell()
    size = "<H" if np.lib.format.read_magic(stream) == (1, 0) else "<I"
    (n,) = struct.unpack(size, stream.read(struct.calcsize(size)))
    if not ARRAY_HEADER.fullmatch(stream.read(n)):
        raise ValueError("its header is not one of NumPy's")
    stream.seek(begin)


def _checked(arrays: dict, path: Any) -> Stored:
    try:
        offsets, rows = arrays["offsets"], _rows(arrays)
        classes, codes, table = (arrays.get(name) for name in ("classes", "codes", "table"))
        if classes is not None and classes.dtype.kind == "U" and classes.size:
            number = np.dtype(np.uint32).newbyteorder(classes.dtype.byteorder)
            if np.array(classes).view(number).max() > sys.maxunicode:  # no Python string holds it
                raise ValueError("labels are not text")
        if codes is not None:
            if codes.dtype.kind not in "iu":
                raise ValueError(f"codes of labels are {codes.dtype}, not integers")
            if codes.shape != (rows.shape[0],):
                raise ValueError(f"{len(codes)} labels for {rows.shape[0]} rows")
            if table is not None and not _is_table(table, len(classes)):
                raise ValueError("the table of label sets is invalid")
            n = len(classes if table is None else table)
            if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < n:
                raise ValueError("labels out of range")
        if offsets[-1] != rows.shape[0]:
            raise ValueError(f"offsets end at {offsets[-1]} instead of {rows.shape[0]}")
    except CORRUPT as error:
        raise ValueError(
            f"{os.fspath(path)!r} is corrupt: {error}. Write it again with Sequences.save."
        ) from error
    weights, roles = arrays.get("weights"), arrays.get("roles")
    return Stored(rows, offsets, classes, codes, weights, roles, table)


def _is_table(table: np.ndarray, n_labels: int) -> bool:
    if table.dtype != np.bool_ or table.ndim != 2 or table.shape[1] != n_labels:
        return False
    single, unknown, sets = np.split(table, [n_labels, n_labels + 1])
    whole = np.array_equal(single, np.eye(n_labels)) and len(unknown) == 1 and unknown.all()
    return bool(whole and (sets.sum(axis=1) > 1).all())


def _rows(arrays: dict) -> Any:
    from sklseq.data.ones import rows_of_ones  # imports SciPy

    if "rows" in arrays:
        return arrays["rows"]
    indptr, indices, data = arrays["indptr"], arrays["indices"], arrays["data"]
    n, width = (int(k) for k in arrays["shape"])
    if len(indptr) != n + 1 or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise ValueError("indptr does not rise")
    if indptr[-1] != len(indices) or len(data) not in (0, len(indices)):
        raise ValueError("indptr, indices and data do not fit together")
    # Compiled kernels index weights by these without a check.
    if len(indices) and not 0 <= int(indices.min()) <= int(indices.max()) < width:
        raise ValueError("column numbers out of range")
    if len(data) < len(indices):
        return rows_of_ones(indices, indptr, width, data.dtype)
    return sparse.csr_matrix((data, indices, indptr), shape=(n, width), copy=False)

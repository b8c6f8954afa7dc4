"""Files of exported models: a header in JSON and raw arrays, with a checksum.

========================= =====================================================================
bytes 0-7                 ``SKLSEQ`` and two zeros
8-11, 12-15               version of this layout; CRC-32 of all bytes from 16 on
16-23                     length of the header in bytes
24-                       the header, JSON in UTF-8; then the arrays, at multiples of 64 bytes
========================= =====================================================================

Numbers are little-endian. The header has two members: ``model``, and ``arrays``, a list of [dtype,
shape, first byte]. Inside ``model``, ``{"array": k}`` stands for array k, ``{"dict": ...}`` for a
mapping, and ``{"numbered": [names, k]}`` for one from names to the numbers of array k.
"""

import json
import os
import struct
import zlib
from typing import Any

import numpy as np

from sklseq._lib.drafts import draft

MAGIC = b"SKLSEQ\0\0"
# Older versions misread weights of transition features, and give the labels of best paths only.
FIRST_VERSION, PAIRS_VERSION, MARGINAL_VERSION = 1, 2, 3
PREFIX = struct.Struct("<8sIIQ")
CHECKED_FROM = 16
ALIGNMENT = 64
KINDS = "biuf"
# Size from which mappings from strings to integers are stored as a list and an array, which is
# faster to read.
NUMBERED = 16


def write_model(path: Any, model: Any, version: int = FIRST_VERSION) -> None:
    """Write a model of plain values, lists, dicts and arrays, by ``write_file``."""
    arrays: list[np.ndarray] = []
    packed = _pack(model, arrays)
    table, at = [], 0
    for array in arrays:
        table.append([array.dtype.newbyteorder("<").str, list(array.shape), at])
        at += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
    header = {"model": packed, "arrays": table}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    head = text.encode("utf-8", "surrogatepass")
    head += b" " * (-(PREFIX.size + len(head)) % ALIGNMENT)
    body = [struct.pack("<Q", len(head)), head]
    for array in arrays:
        raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
        body.append(raw + bytes(-len(raw) % ALIGNMENT))
    rest = b"".join(body)
    write_file(path, struct.pack("<8sII", MAGIC, version, zlib.crc32(rest)) + rest)


def write_file(path: Any, data: bytes) -> None:
    """Write a temporary file and rename it, so that no incomplete file has the name."""
    new_file_name(path)
    with draft(path) as file:
        file.write(data)


def file_name(path: Any) -> str:
    """The name of a file, which must be a string or a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"path must be the name of a file, a string or pathlib.Path; got {path!r:.40} "
            f"({type(path).__name__})."
        )
    if not os.fspath(path):
        raise ValueError("path is empty; give the name of a file.")
    return os.fspath(path)


def new_file_name(path: Any) -> str:
    """Resolve the name of a file to write; raise unless it is a file in an existing folder."""
    given = file_name(path)
    if os.path.isdir(given):
        raise IsADirectoryError(f"path {given!r} is a folder; give the name of a file in it.")
    name = os.path.realpath(given)
    if os.path.exists(name) and not os.path.isfile(name):
        raise ValueError(f"path {given!r} is a pipe or a device; give the name of a file.")
    folder = os.path.dirname(name)
    if not os.path.isdir(folder):
        missing = os.path.dirname(given) or folder
        raise FileNotFoundError(f"The folder {missing!r} of path {given!r} is missing; create it.")
    return name


def _pack(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [_pack(v, arrays) for v in value]
    if isinstance(value, np.ndarray) and value.dtype.kind in KINDS:
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if isinstance(value, dict):
        if len(value) >= NUMBERED and all(type(v) is int for v in value.values()):
            arrays.append(np.fromiter(value.values(), np.int64, len(value)).astype(np.int32))
            return {"numbered": [list(value), len(arrays) - 1]}
        return {"dict": {name: _pack(v, arrays) for name, v in value.items()}}
    raise TypeError(f"a model file cannot hold {value!r:.60} ({type(value).__name__})")


def read_model(path: Any) -> Any:
    """The model of a file; its arrays are read-only."""
    name = file_name(path)
    with open(name, "rb") as file:
        return unpack_model(file.read(), name)


def unpack_model(data: bytes, name: str) -> Any:
    """Return the model from the content of a file; ``name`` is for error messages."""
    if data[:8] != MAGIC:
        raise ValueError(
            f"{name!r} is not an exported model: it begins with {data[:8]!r}. Write it with "
            "sklseq.deployment.export."
        )
    if len(data) < PREFIX.size:
        raise ValueError(f"{name!r} is cut off after {len(data)} bytes; export the model again.")
    _, version, checksum, length = PREFIX.unpack_from(data)
    if version > MARGINAL_VERSION:
        raise ValueError(
            f"{name!r} has version {version} of the layout, and this sklseq reads versions up to "
            f"{MARGINAL_VERSION}; install a newer one."
        )
    if zlib.crc32(memoryview(data)[CHECKED_FROM:]) != checksum:
        raise ValueError(f"{name!r} is damaged or cut off: export the model again.")
    begin = PREFIX.size + length
    header = json.loads(data[PREFIX.size : begin].decode("utf-8", "surrogatepass"))
    arrays = [
        np.frombuffer(data, dtype, int(np.prod(shape, dtype=np.int64)), begin + at)
        .astype(np.dtype(dtype).newbyteorder("="), copy=False)
        .reshape(shape)
        for dtype, shape, at in header["arrays"]
    ]
    return _unpack(header["model"], arrays)


def _unpack(value: Any, arrays: list[np.ndarray]) -> Any:
    if isinstance(value, list):
        return [_unpack(v, arrays) for v in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "numbered" in value:
        names, k = value["numbered"]
        return dict(zip(names, arrays[k].tolist(), strict=True))
    return {name: _unpack(v, arrays) for name, v in value["dict"].items()}

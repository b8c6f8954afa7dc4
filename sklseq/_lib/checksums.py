"""Checksums of rows and labels, which detect data that changed between two passes."""

from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib._checksum import checksum


def array_checksum(a: np.ndarray, seed: int = 0) -> int:
    """Checksum of the numbers of an array in memory order."""
    return checksum(np.ascontiguousarray(a).reshape(-1).view(np.uint8), seed)


def row_checksum(rows: Any, seed: int = 0) -> int:
    """Checksum of a dense array, or of the arrays of a CSR matrix."""
    parts = (rows.indptr, rows.indices, rows.data) if sparse.issparse(rows) else (rows,)
    for part in parts:
        seed = array_checksum(part, seed)
    return seed


def label_checksum(labels: np.ndarray, seed: int = 0) -> int:
    """Checksum of a flat array of labels, independent of its item size."""
    if labels.dtype.kind != "U":
        return array_checksum(labels.astype(np.int64, copy=False), seed)
    if not labels.size or not labels.itemsize:
        return array_checksum(labels[:0], seed)
    letters = np.ascontiguousarray(labels).view(np.uint32).reshape(len(labels), -1)
    used = np.flatnonzero(letters.any(axis=0))
    return array_checksum(letters[:, : used[-1] + 1 if len(used) else 0], seed + len(labels))

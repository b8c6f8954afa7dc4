"""Sums of the weights of lists of columns that rows share, for A and for exported models.

Needs NumPy only.
"""

from typing import Any

import numpy as np

from sklseq._lib.aligned import aligned_zeros
from sklseq._lib.cpu import load_kernel
from sklseq._lib.index_types import index_type

_linear = load_kernel("sklseq.objectives.scores._linear")

# Bytes that sums may have even if the columns of all rows would take less.
SMALL = 1 << 25


def list_sums(rows: Any, lists: Any, W: np.ndarray) -> np.ndarray | None:
    """B W for rows A B of ones; None if it takes more memory than the columns of these rows.

    Parameters
    ----------
    rows, lists : objects with ``indptr`` and ``indices``
        A, whose columns are numbers of lists, and B.
    W : ndarray of shape (n_columns, width)
    """
    n, width, lengths = len(lists.indptr) - 1, W.shape[1], np.diff(lists.indptr)
    if n * width * W.itemsize > max(4 * int(lengths[rows.indices].sum()), SMALL):
        return None
    kind = index_type(len(lists.indices))
    indptr, indices = (x.astype(kind, copy=False) for x in (lists.indptr, lists.indices))
    sums = aligned_zeros(n * width, W.dtype).reshape(n, width)
    _linear.gather_rows(indptr, indices, np.zeros(0, W.dtype), W, sums, 0, n)
    return sums

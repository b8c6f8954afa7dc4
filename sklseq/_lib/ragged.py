"""Arithmetic of arrays that are cut into parts of different lengths.

Rows of sequences, entries of the rows of a CSR matrix and labels of sets are stored one part after
the other in one array; part k holds the entries from ``offsets[k]`` to ``offsets[k + 1]``.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def offsets_of(lengths: ArrayLike) -> NDArray[np.int64]:
    """Start of each part, and the end of the last one; of a mask, the number of true entries."""
    offsets = np.zeros(np.size(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, dtype=np.int64, out=offsets[1:])
    return offsets


def ranges(first: ArrayLike, lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    """The numbers from ``first[k]`` to ``first[k] + lengths[k]`` of each part k, one after another.

    With ``first=0``, the position of each entry in its part.
    """
    offsets = offsets_of(lengths)
    return np.arange(offsets[-1]) + np.repeat(first - offsets[:-1], lengths)

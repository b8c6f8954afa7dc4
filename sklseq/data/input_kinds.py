"""What X holds: sequences in memory, in blocks of rows, or in shards."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy import sparse

from sklseq.data.row_blocks import RowBlocks, iterates_only
from sklseq.data.sequences import Sequences
from sklseq.data.tables import is_table

# Memory maps of at least this many bytes are always read in blocks.
LARGE_MAP = 1 << 28
ROWS = (Mapping, list, tuple, set, np.ndarray)


def check_one_sequence(x: Any) -> None:
    """Raise if x is a list of sequences, where one of them is expected."""
    is_list = isinstance(x, (list, tuple)) and len(x) > 0
    if isinstance(x, Sequences) or (is_list and _is_sequence(x[0])):
        raise ValueError(
            f"x must be one sequence; got {len(x)} sequences in a list: pass one of them, as in "
            "x=X[0]."
        )


def _is_sequence(x: Any) -> bool:
    # Whether x can only be a sequence, and no row of one.
    if isinstance(x, (list, tuple)):
        return len(x) > 0 and all(isinstance(row, ROWS) for row in x)
    if is_table(x):
        return True
    return _is_matrix(x) and (x.shape[0] != 1 or isinstance(x, np.ndarray))


def _is_matrix(x: Any) -> bool:
    is_array = isinstance(x, np.ndarray) and x.ndim == 2 and x.dtype != object
    return is_array or sparse.issparse(x)


def _is_long(sequence: Any) -> bool:
    if isinstance(sequence, np.ndarray):  # small memory maps are treated as arrays
        return isinstance(sequence, np.memmap) and sequence.nbytes >= LARGE_MAP
    return not sparse.issparse(sequence) and (
        isinstance(sequence, (RowBlocks, os.PathLike))
        or callable(sequence)
        or iterates_only(sequence)
    )


def in_blocks(X: Any, *, maps: bool = True) -> bool:
    """Whether X is a list with a sequence in blocks, or with large memory maps in total.

    With ``maps=False``, memory maps do not count.
    """
    if not isinstance(X, (list, tuple)):
        return False
    if not maps:
        others = not set(map(type, X)) <= {dict, list, np.ndarray}
        return others and any(_is_long(x) and not isinstance(x, np.ndarray) for x in X)
    mapped = sum(x.nbytes for x in X if isinstance(x, np.memmap))
    return mapped >= LARGE_MAP or any(_is_long(x) for x in X)


def in_shards(X: Any) -> bool:
    """Whether X is ``Shards``, a Dask bag or a list of delayed shards."""
    one = X[0] if isinstance(X, (list, tuple)) and len(X) else X
    return type(one).__module__.split(".")[0] == "dask" or hasattr(X, "to_delayed")


def storage_of(X: Any) -> str:
    """Where the sequences of X are: in "shards", in "blocks" or in "memory"."""
    if in_shards(X):
        return "shards"
    return "blocks" if in_blocks(X) else "memory"


def check_in_memory(X: Any) -> None:
    """Raise if X is in shards or in blocks; memory maps of any size are taken as arrays."""
    if in_blocks(X, maps=False):
        raise ValueError(
            "X holds sequences in blocks, which this method does not read; pass arrays, such as "
            "numpy.concatenate(list(blocks.read())) of RowBlocks, or use fit or predict_proba of "
            "CRFTagger, or predict, predict_blocks or score of a tagger."
        )
    if in_shards(X):
        raise ValueError(
            f"X is data in shards ({type(X).__name__}), which predict and score of a tagger read, "
            "but not this method; call it for each shard."
        )


def holds_rows(X: Any) -> bool:
    """Whether X is a list of 2-D arrays and sparse matrices only."""
    return isinstance(X, (list, tuple)) and all(map(_is_matrix, X))


def _refuse_iterator(X: Any, s: int) -> None:
    """Raise if an iterator was taken for blocks of rows beside sequence `s`, which is tokens."""
    for t, sequence in enumerate(X):
        if isinstance(sequence, Iterator):
            raise ValueError(
                f"Sequence {t} of X is an iterator ({type(sequence).__name__}), but sequence {s} "
                f"is a {type(X[s]).__name__}. Read it into a list: list(x)."
            )


def blocks_of(X: Any) -> list[RowBlocks]:
    """Each sequence of X as ``RowBlocks``; arrays and matrices are cut without a copy."""
    if isinstance(X, Sequences):
        return [RowBlocks(rows) for rows in X]
    for s, sequence in enumerate(X):
        if not _is_matrix(sequence) and not _is_long(sequence):
            _refuse_iterator(X, s)
            raise ValueError(
                f"Sequence {s} of X must be rows of numbers, because another sequence is in "
                f"blocks; got {type(sequence).__name__}. Vectorise it first, e.g. with "
                "DictFeatures."
            )
    return [x if isinstance(x, RowBlocks) else RowBlocks(x) for x in X]

"""Reader of columns of numbers or vectors beside columns of tokens."""

from typing import Any

import numpy as np

from sklseq._lib.ragged import offsets_of
from sklseq.data.column_sequences import ColumnSequences
from sklseq.data.sequences import Sequences, as_sequences
from sklseq.data.tables import column_array, column_list
from sklseq.features._columns import Columns


def read_numbers(columns: Columns, names: list[str]) -> tuple[Sequences, list[str]] | None:
    """Return rows of the numbers in some columns, and a name for each number.

    A column holds a number for each token, or a vector: a matrix, or a list of lists.

    Returns
    -------
    (Sequences, list of str), or None
        None if the columns hold strings, or no rows.

    Raises
    ------
    ValueError
        If some columns hold numbers and others strings, or lengths differ.
    """
    if (found := _long_rows(columns.sequences, names)) is not None:
        return found, names
    raw = {name: columns.raw(name) for name in names}
    kinds = {name: _is_of_numbers(values) for name, values in raw.items()}
    if not any(kinds.values()):
        return None
    for name, is_of_numbers in kinds.items():
        if not is_of_numbers:
            other = next(n for n in names if kinds[n])
            raise ValueError(
                f"Column {other!r} of X holds numbers and column {name!r} does not; use one "
                "PerToken for each kind, with its columns=, and join them by FeatureUnion."
            )
    blocks = {
        name: [_block(x, name, s) for s, x in enumerate(values)] for name, values in raw.items()
    }
    lengths = np.array([len(block) for block in blocks[names[0]]])
    for name in names[1:]:
        columns.check_lengths(name, lengths)
    parts = [_join(of_column, name) for name, of_column in blocks.items()]
    numbers = [
        name if part.ndim == 1 else f"{name}{j}"
        for name, part in zip(names, parts)
        for j in range(1 if part.ndim == 1 else part.shape[1])
    ]
    rows = np.column_stack(parts) if len(parts) > 1 or parts[0].ndim == 1 else parts[0]
    offsets = offsets_of(lengths)
    return as_sequences(Sequences(rows, offsets), finite=False), numbers


def _long_rows(X: Any, names: list[str]) -> Sequences | None:
    """Return rows of columns of numbers over all sequences; None if a column has no numbers."""
    if not isinstance(X, ColumnSequences) or X.offsets[-1] == 0:
        return None
    columns = [X.columns_.get(name) for name in names]
    if not all(isinstance(c, np.ndarray) and c.dtype.kind in "biuf" for c in columns):
        return None
    return as_sequences(Sequences(np.column_stack(columns), X.offsets), finite=False)


def _is_of_numbers(values: list) -> bool:
    """Whether the first value of a column is a number or a vector of numbers."""
    first = next((x for x in values if len(x)), None)
    return first is not None and _array(first[:1]).dtype.kind in "biuf"


def _array(values: Any) -> np.ndarray:
    array = column_array(values)  # an array of objects for a table's column of vectors
    return np.array(column_list(values)) if array.dtype == object else array


def _block(values: Any, name: str, s: int) -> np.ndarray:
    try:
        block = _array(values)
    except ValueError:
        block = np.array(["unequal"])
    if len(values) and (block.dtype.kind not in "biuf" or block.ndim > 2):
        raise ValueError(
            f"Column {name!r} of sequence {s} of X must hold a number or a vector of one length "
            "for each token, as an earlier one does; convert it, or fill missing values by NaN."
        )
    return block


def _join(blocks: list[np.ndarray], name: str) -> np.ndarray:
    """Join the numbers of all sequences; the width of empty sequences does not matter."""
    filled = [block for block in blocks if len(block)]
    widths = {block.shape[1:] for block in filled}
    if len(widths) > 1:
        raise ValueError(
            f"Column {name!r} of X must hold vectors of one length; got shapes {sorted(widths)}."
        )
    return np.concatenate(filled)

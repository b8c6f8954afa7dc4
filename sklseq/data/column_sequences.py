"""Sequences that are ranges of rows of a few long columns."""

from collections.abc import Mapping, Sequence
from operator import index
from typing import Any, overload

import numpy as np

from sklseq.data.labels import cut_rows
from sklseq.data.tables import Coded


class ColumnSequences(Sequence[dict]):
    """Read-only list of dicts from column name to values; each is created when it is read.

    Extractors read the long columns, so that each distinct string is looked up once.

    Parameters
    ----------
    columns : mapping from name to list, array or Coded
        A value for each row of all sequences.
    offsets : ndarray of int64 of shape (n_sequences + 1,)
    """

    def __init__(self, columns: Mapping[Any, Any], offsets: np.ndarray):
        self.columns_ = dict(columns)
        self.offsets = offsets

    @property
    def lengths(self) -> np.ndarray:
        """Number of rows of each sequence."""
        return np.diff(self.offsets)

    def cut(self, name: Any) -> list:
        """The values of a column in each sequence."""
        return list(cut_rows(self.columns_[name], self.offsets))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, i: int) -> dict: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[dict]: ...
    def __getitem__(self, i: int | slice) -> dict | Sequence[dict]:
        places = range(len(self))[i if isinstance(i, slice) else index(i)]
        if isinstance(places, int):
            rows = slice(*self.offsets[places : places + 2].tolist())
            return {name: column[rows] for name, column in self.columns_.items()}
        if places.step != 1:
            return [self[s] for s in places]
        offsets = self.offsets[places.start : max(places.stop, places.start) + 1]
        rows = slice(int(offsets[0]), int(offsets[-1]))
        columns = self.columns_.items()
        parts = {k: c.part(rows) if isinstance(c, Coded) else c[rows] for k, c in columns}
        return ColumnSequences(parts, offsets - offsets[0])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list | ColumnSequences):
            return NotImplemented
        return list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        rows = int(self.offsets[-1])
        return f"<{len(self)} sequences of columns {list(self.columns_)}, {rows} rows>"

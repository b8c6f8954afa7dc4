"""Transform of fitted ``WindowFeatures`` on sparse rows, with NumPy alone."""

from typing import Any

import numpy as np

from sklseq._lib.ragged import offsets_of
from sklseq.data._row_join import place_rows
from sklseq.data.sequences import row_positions
from sklseq.features import _rows
from sklseq.features._conjoin import Conjunctions
from sklseq.features._packed_rows import PackedRows

MARKS = ("__BOS__", "__EOS__")


class WindowTransform:
    """Part of ``WindowFeatures`` that transforms, with the same parameters and attributes."""

    before: int
    after: int
    bos_eos: bool
    bias: bool
    n_features: int | None
    n_features_out_: int
    extractor_: Any
    n_inner_: int
    n_window_: int
    table_: np.ndarray
    conjunctions_: dict[str, Any]

    def packed_rows(self, X: Any) -> PackedRows:
        """Rows of features of X, computed from the packed rows of the extractor."""
        return self._windows_of(X if self.extractor_ is None else self.extractor_.packed_rows(X))

    def _windows_of(self, inner: PackedRows) -> PackedRows:
        conjunctions = Conjunctions(**self.conjunctions_)
        if inner.lists is not None and not self.n_features and not conjunctions.parts:
            return self._windows_of_lists(inner, inner.lists)
        inner = inner.plain()
        joined = conjunctions.find(inner, self.n_features)
        shift = 0 if self.n_features else self.n_window_
        return self._assemble(inner, joined, self.table_, shift)

    def _windows_of_lists(self, inner: PackedRows, lists: PackedRows) -> PackedRows:
        # List j at offset d becomes list (d + before) * n_lists + j; lists of marks follow.
        width, none = self.before + self.after + 1, np.zeros(0, dtype=np.int32)
        inner = inner._replace(n_columns=lists.n_rows)
        joined = Conjunctions([], []).find(inner, None)
        windows = self._assemble(inner, joined, none, width * lists.n_rows)
        columns = np.concatenate([lists.indices + d * self.n_inner_ for d in range(width)])
        ends = np.concatenate([lists.indptr[1:] + d * len(lists.indices) for d in range(width)])
        if len(self.table_):
            columns = self.table_[columns]
            ends = offsets_of(columns >= 0)[ends]
            columns = columns[columns >= 0]
        marks = np.arange(len(self._mark_names()))
        ends = np.concatenate([[0], ends, len(columns) + 1 + marks])
        columns = np.append(columns, self.n_window_ + marks).astype(np.int32)
        whole = np.array([0, len(ends) - 1])
        return windows._replace(lists=PackedRows(ends, columns, None, windows.n_columns, whole))

    def _assemble(
        self, inner: PackedRows, joined: tuple, table: np.ndarray, shift: int
    ) -> PackedRows:
        later = [joined, self._marks(inner.offsets)]
        reserved = sum(ends for _, ends, _ in later)
        indices, indptr, at, sources = self._window(inner, reserved, table)
        for columns, ends, step in later:
            place_rows(ends, columns.astype(np.int32, copy=False), shift, at, indices)
            shift += step
        values = None
        if inner.values is not None:
            values = np.ones(len(sources), dtype=inner.values.dtype)
            own = sources >= 0
            values[own] = inner.values[sources[own]]
        return PackedRows(indptr, indices, values, self.n_features_out_, inner.offsets)

    def _window(
        self, inner: PackedRows, reserved: np.ndarray, table: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Return indices, row ends, where reserved entries of rows begin, and sources of entries.

        The sources are empty if all values are 1.
        """
        n_max = len(inner.indices) * (self.before + self.after + 1) + int(reserved[-1])
        indices, indptr = np.empty(n_max, np.int32), np.zeros(inner.n_rows + 1, np.int64)
        at = np.empty(inner.n_rows, dtype=np.int64)
        sources = np.empty(0 if inner.values is None else n_max, dtype=np.int64)
        _rows.window_rows(
            inner.indptr, inner.indices, inner.offsets, inner.n_columns, (self.before, self.after),
            table, self.n_features or 0, reserved, indices, indptr, at, sources,
        )  # fmt: skip
        return indices[: indptr[-1]], indptr, at, sources[: indptr[-1]]

    def _mark_names(self) -> list[str]:
        return [*(MARKS if self.bos_eos else ()), *(["bias"] if self.bias else [])]

    def _marks(self, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
        """Return columns, from 0, and row ends of ``__BOS__``, ``__EOS__`` and ``bias``."""
        names = self._mark_names()
        columns = np.arange(len(names), dtype=np.int32)
        if self.n_features and names:
            _rows.hash_values("", names, self.n_features, columns)
        counts = np.full(offsets[-1] + 1, int(self.bias))
        counts[0] = 0
        first, last, _ = row_positions(offsets) if self.bos_eos else ([], [], None)
        counts[1:][first] += 1
        counts[1:][last] += 1
        ends = np.cumsum(counts)
        marks = np.full(ends[-1], columns[-1] if self.bias else 0, dtype=np.int32)
        if self.bos_eos:
            marks[ends[first]] = columns[0]
            marks[ends[last] + (first == last)] = columns[1]
        return marks, ends, 0

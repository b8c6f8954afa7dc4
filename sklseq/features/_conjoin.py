"""Joined attributes, which are combinations of values of several kinds at fixed offsets."""

import re
from collections.abc import Iterable
from typing import Any, NamedTuple, Self

import numpy as np

from sklseq._lib.checks import is_number
from sklseq._lib.ragged import ranges
from sklseq.features import _rows
from sklseq.features._grams import number_pairs
from sklseq.features._packed_rows import PackedRows

_PART = re.compile(r"(.+)\[([+-]?\d+)\]")


def parse_conjunctions(conjoin: Any) -> list[list[tuple[str, int]]]:
    """Return the parameter ``conjoin`` as lists of (kind, offset)."""
    if conjoin is None:
        return []
    if isinstance(conjoin, str):
        conjoin = [conjoin]
    if not isinstance(conjoin, Iterable):
        raise _error(conjoin, conjoin)
    return [_parse(c) for c in conjoin]


def _parse(conjunction: Any) -> list[tuple[str, int]]:
    is_text = isinstance(conjunction, str)
    if not is_text and not isinstance(conjunction, (list, tuple)):
        raise _error(conjunction, conjunction)
    parts = []
    for part in conjunction.split("|") if is_text else conjunction:
        if isinstance(part, str):
            match = _PART.fullmatch(part.strip())
            part = (match[1], int(match[2])) if match else (part.strip(), 0)
        if (
            not isinstance(part, (list, tuple)) or len(part) != 2 or not part[0]
            or not isinstance(part[0], str) or not is_number(part[1], whole=True)
        ):  # fmt: skip
            raise _error(conjunction, part)
        parts.append((part[0], int(part[1])))
    if len(parts) < 2:
        raise _error(conjunction, parts)
    return parts


def _error(conjunction: Any, part: Any) -> ValueError:
    return ValueError(
        "conjoin must be a list of conjunctions as 'w.lower[-1]|w.lower[0]' or "
        f"(('w.lower', -1), ('w.lower', 0)), of two parts or more; got {part!r} in "
        f"{conjunction!r}."
    )


class Entries(NamedTuple):
    """Values of one part of a conjunction: codes at rows, sorted by row."""

    rows: np.ndarray
    codes: np.ndarray  # int32, from 1


class Conjunctions:
    """Conjunctions of kinds, and after ``learn`` the numbers of their combinations of values.

    A combination of k parts is a pair of the combination of the first k - 1 and a value, so a
    conjunction is numbered by k - 1 tables of pairs.

    Parameters
    ----------
    parts : list of list of (members, offset)
        ``members``: sorted inner columns of the kind of the part.
    keys : list of list of ndarray of uint64
        For each conjunction the tables of pairs; entry c is the key of code c. Keys are sorted.
    tables : list of ndarray of int32
        For each conjunction the output column of each code of its last table; -1: dropped.
    n : int
        Number of output columns.
    """

    def __init__(self, parts: list, keys: list, tables: list | None = None, n: int = 0):
        self.parts, self.keys, self.tables, self.n = parts, keys, tables or [], n

    @classmethod
    def of(cls, parsed: list, kinds: list[str]) -> Self:
        """Return conjunctions with the columns of each kind."""
        columns: dict[str, list[int]] = {}
        for j, kind in enumerate(kinds):
            columns.setdefault(kind, []).append(j)
        for kind in (kind for c in parsed for kind, _ in c):
            if kind not in columns:
                raise ValueError(
                    f"conjoin names the kind {kind!r}, but the extractor gives "
                    f"{list(columns)[:20]}; use one of these."
                )
        return cls([[[np.array(columns[k]), d] for k, d in c] for c in parsed], [])

    def learn(self, inner: PackedRows, min_count: int, n_features: int | None) -> tuple:
        """Number the combinations in ``inner`` and return the same as ``find``."""
        found = []
        for c in self.parts:
            keys: list[np.ndarray] = []
            entries = self._combine(inner, c, keys, n_features)
            n_codes = 0 if n_features else len(keys[-1])
            table = np.full(n_codes, -1, dtype=np.int32)
            if not n_features:  # counts by hash would need 2**30 entries
                counts = np.bincount(entries.codes, minlength=n_codes)
                kept = np.flatnonzero(counts[1:] >= min_count) + 1
                table[kept] = self.n + np.arange(len(kept))
                self.n += len(kept)
            self.keys.append(keys)
            self.tables.append(table)
            found.append(self._columns(entries, table, n_features))
        return self._merge(found, inner.n_rows)

    def find(self, inner: PackedRows, n_features: int | None) -> tuple:
        """Return columns and row ends of the combinations in ``inner``, and ``n``."""
        found = []
        for c, keys, table in zip(self.parts, self.keys, self.tables):
            entries = self._combine(inner, c, keys, n_features)
            found.append(self._columns(entries, table, n_features))
        return self._merge(found, inner.n_rows)

    def names(self, inner: list[str], at_offset: Any) -> list[str]:
        names: list[str] = [""] * self.n
        for c, keys, table in zip(self.parts, self.keys, self.tables):
            for code in np.flatnonzero(table >= 0):
                values, rest = [], int(code)
                for (members, d), level in zip(c[:0:-1], keys[::-1]):
                    key = int(level[rest])
                    rest, value = key >> 32, key & 0xFFFFFFFF
                    values.append(at_offset(d) + inner[members[value - 1]])
                members, d = c[0]
                values.append(at_offset(d) + inner[members[rest - 1]])
                names[table[code]] = "|".join(values[::-1])
        return names

    def _combine(
        self, inner: PackedRows, c: list, keys: list[np.ndarray], n_features: int | None
    ) -> Entries:
        learn = not keys and not n_features
        entries = _entries(inner, *c[0], bool(n_features))
        for k, (members, d) in enumerate(c[1:]):
            rows, first, second = _pairs(entries, _entries(inner, members, d, bool(n_features)))
            if n_features:
                codes = np.empty(len(rows), dtype=np.int32)
                _rows.hash_pairs(first, second, codes)
            elif learn:
                level, codes = _sorted_pairs(first, second)
                keys.append(level)
            else:
                codes = _look_up(keys[k], first, second)
            entries = Entries(rows[codes > 0], codes[codes > 0])
        return entries

    @staticmethod
    def _columns(entries: Entries, table: np.ndarray, n_features: int | None) -> tuple:
        if n_features:
            return entries.rows, entries.codes & (n_features - 1)
        columns = table[entries.codes]
        return entries.rows[columns >= 0], columns[columns >= 0]

    def _merge(self, found: list, n_rows: int) -> tuple[np.ndarray, np.ndarray, int]:
        rows = np.concatenate([np.zeros(0, np.int64), *(f[0] for f in found)])
        columns = np.concatenate([np.zeros(0, np.int32), *(f[1] for f in found)])
        order = np.argsort(rows, kind="stable")
        ends = np.searchsorted(rows[order], np.arange(n_rows + 1)).astype(np.int64)
        return columns[order], ends, self.n


def _entries(inner: PackedRows, members: np.ndarray, d: int, hashed: bool) -> Entries:
    """Return the values of one kind at offset ``d`` of each row; its columns have codes from 1."""
    code_of = np.zeros(inner.n_columns, dtype=np.int32)
    # Hashed codes must not depend on the vocabulary of other kinds.
    code_of[members] = members + 1 if hashed else np.arange(1, len(members) + 1)
    codes = code_of[inner.indices]
    chosen = np.flatnonzero(codes)
    at = np.searchsorted(inner.indptr, chosen, side="right") - 1
    # A value at row u belongs to row u - d, if that lies in the same sequence.
    sequence = np.searchsorted(inner.offsets, at, side="right") - 1
    rows = at - d
    inside = (rows >= inner.offsets[sequence]) & (rows < inner.offsets[sequence + 1])
    return Entries(rows[inside], codes[chosen[inside]])


def _pairs(a: Entries, b: Entries) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every combination of an entry of a and one of b in the same row."""
    low, high = (np.searchsorted(b.rows, a.rows, side=side) for side in ("left", "right"))
    many = high - low
    return np.repeat(a.rows, many), np.repeat(a.codes, many), b.codes[ranges(low, many)]


def _sorted_pairs(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted keys of the pairs that occur, after key 0, and the code of each pair."""
    codes = np.empty(len(first), dtype=np.int32)
    keys = number_pairs(first, second, codes)
    order = np.argsort(keys)
    place = np.empty(len(keys), dtype=np.int32)
    place[order] = np.arange(len(keys))
    return keys[order], place[codes]


def _look_up(keys: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    wanted = first.astype(np.uint64) << np.uint64(32) | second.astype(np.uint64)
    found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[found] == wanted, found, 0).astype(np.int32)

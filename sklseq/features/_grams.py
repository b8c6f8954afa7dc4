"""Grams: values joined at fixed distances and shared by several templates.

Nodes are columns, then flags, then grams; a gram extends a node by one column at a distance
from its first value, so that longer templates share the work of shorter ones. A node has one
code at each position, 0 if it has no value there.
"""

from typing import NamedTuple, Self

import numpy as np

from sklseq._lib.ragged import offsets_of
from sklseq.features import _encode
from sklseq.features._columns import Columns
from sklseq.features._commands import AFTER, BEFORE, Command, command_of
from sklseq.features._encode import TokenNumbers
from sklseq.features._parse import Template

# Columns that are not in X, with code 1 on these rows of each sequence.
FLAGS = ("every row", "first row", "last row")


class Layout(NamedTuple):
    """Positions of rows: each sequence has ``before`` free ones before it, ``after`` after it."""

    lengths: np.ndarray  # (n_sequences,)
    offsets: np.ndarray  # (n_sequences + 1,) rows
    starts: np.ndarray  # (n_sequences,) position of the first row
    n_positions: int
    before: int
    after: int

    @classmethod
    def of(cls, lengths: np.ndarray, before: int, after: int) -> Self:
        offsets = offsets_of(lengths)
        starts = offsets[:-1] + before + (before + after) * np.arange(len(lengths))
        n_positions = int(offsets[-1]) + (before + after) * len(lengths)
        return cls(lengths, offsets, starts, n_positions, before, after)

    def codes(
        self,
        columns: Columns,
        tables: dict[str, TokenNumbers],
        flags: list[int],
        n_nodes: int,
        n_marks: int,
        grow: bool = False,
    ) -> np.ndarray:
        """Return codes (n_nodes, n_positions) of columns and flags; those of grams are still 0."""
        codes = np.zeros((n_nodes, self.n_positions), dtype=np.int32)
        for row, (name, known) in zip(codes, tables.items()):
            command = command_of(name)
            read = name if command is None else columns.names[command.column]
            columns.check_lengths(read, self.lengths)
            if command is not None:
                self._compute(command, columns, known, n_marks, row, grow)
                continue
            columns.encode(name, known, 1 + n_marks, self.starts, row, grow)
            if n_marks:
                self._mark_ends(row)
        for row, flag in zip(codes[len(tables) :], flags):
            row[self._flagged(flag)] = 1
        return codes

    def _compute(
        self, command: Command, columns: Columns, known: TokenNumbers, n_marks: int,
        row: np.ndarray, grow: bool,
    ) -> None:  # fmt: skip
        """Write the codes of a command's values, computed once for each distinct token."""
        distinct, read = TokenNumbers(), np.zeros(self.n_positions, dtype=np.int32)
        columns.encode(columns.names[command.column], distinct, 1, self.starts, read, True)
        tokens = list(distinct.names)
        # Codes of the tokens, then of the rows before a sequence, the nearest first, and after it.
        beyond = len(tokens) + 1 + np.arange(len(BEFORE) + len(AFTER)).reshape(2, -1)
        beyond = beyond if n_marks else np.zeros_like(beyond)
        if command.place is None:
            for i in range(self.before if n_marks else 0):
                read[self.starts - 1 - i] = beyond[0, min(i, len(BEFORE) - 1)]
            for i in range(self.after if n_marks else 0):
                read[self.starts + self.lengths + i] = beyond[1, min(i, len(AFTER) - 1)]
        else:
            read = self._at_place(command.place, read, beyond)
        values = command.values([*tokens, *(BEFORE + AFTER if n_marks else ())])
        found, first = np.zeros(len(values) + 1, dtype=np.int32), 1 + n_marks
        start = np.ones(1, dtype=np.int64)
        _encode.encode_column([values], "tokens", command.name, known, first, start, found, grow)
        row[:] = found[read]

    def _at_place(self, place: int, read: np.ndarray, beyond: np.ndarray) -> np.ndarray:
        """Codes of one row of each sequence, in all its rows."""
        at = np.where(place < 0, self.lengths + place, place - 1)
        before, after = -1 - at, at - self.lengths
        inside = (before < 0) & (after < 0)
        codes = np.zeros(len(at), dtype=np.int32)
        codes[inside] = read[(self.starts + at)[inside]]
        for out, marks in zip((before, after), beyond):
            codes[out >= 0] = marks[np.minimum(out[out >= 0], len(marks) - 1)]
        everywhere = np.zeros_like(read)
        everywhere[self._flagged(FLAGS.index("every row"))] = np.repeat(codes, self.lengths)
        return everywhere

    def _mark_ends(self, row: np.ndarray) -> None:
        # Codes 1, 2, ... are _B-1, _B-2, ..., then _B+1, _B+2, ...
        for i in range(self.before):
            row[self.starts - 1 - i] = 1 + i
        for i in range(self.after):
            row[self.starts + self.lengths + i] = 1 + self.before + i

    def _flagged(self, flag: int) -> np.ndarray:
        if FLAGS[flag] == "every row":
            shift = np.repeat(self.starts - self.offsets[:-1], self.lengths)
            return np.arange(self.offsets[-1]) + shift
        filled = self.lengths > 0
        first = self.starts[filled]
        return first if FLAGS[flag] == "first row" else first + self.lengths[filled] - 1


class GramPlan(NamedTuple):
    """Nodes of a list of templates."""

    templates: list[Template]
    columns: list[str]  # nodes 0, 1, ...
    flags: list[int]  # the nodes after them
    grams: list[tuple[int, int, int]]  # the nodes after those: parent, column, distance
    nodes: list[int]  # node that each template reads ...
    shifts: list[int]  # ... at this distance from the row
    padding: tuple[int, int]

    @classmethod
    def of(cls, templates: list[Template]) -> Self:
        columns = list(dict.fromkeys(c for t in templates for c, _ in t.parts))
        flags = sorted({t.flag for t in templates if not t.parts})
        offsets = [offset for t in templates for _, offset in t.parts]
        # A place may be beyond the ends of a sequence, where rows have marks.
        least = int(any((command := command_of(c)) and command.place is not None for c in columns))
        padding = max([least] + [-o for o in offsets]), max([least] + offsets)
        grams: dict[tuple[int, int, int], int] = {}
        nodes = []
        for template in templates:
            if not template.parts:
                nodes.append(len(columns) + flags.index(template.flag))
                continue
            (name, start), *rest = template.parts
            node = columns.index(name)
            for column, offset in rest:
                gram = node, columns.index(column), offset - start
                node = grams.setdefault(gram, len(columns) + len(flags) + len(grams))
            nodes.append(node)
        shifts = [t.parts[0][1] if t.parts else 0 for t in templates]
        return cls(templates, columns, flags, list(grams), nodes, shifts, padding)

    @property
    def first_gram(self) -> int:
        return len(self.columns) + len(self.flags)

    @property
    def n_nodes(self) -> int:
        return self.first_gram + len(self.grams)

    def blocks(self, n_codes: list[int]) -> tuple[list[int], list[int]]:
        """Return start and width of each node's (code, template) block of the table."""
        widths = np.bincount(self.nodes, minlength=self.n_nodes).tolist()
        sizes = [n * width for n, width in zip(n_codes, widths)]
        return np.cumsum([0, *sizes]).tolist(), widths

    def readers(self, n_codes: list[int]) -> np.ndarray:
        """Return node, shift, first table entry and width of a table row for each template.

        Templates that read the same node are neighbours in the table: ``w[-2]`` to ``w[2]`` have
        one table row for each word.
        """
        entry, widths = self.blocks(n_codes)
        rows = []
        for node, shift in zip(self.nodes, self.shifts):
            rows.append((node, shift, entry[node], widths[node]))
            entry[node] += 1
        return np.array(rows, dtype=np.int64).reshape(-1, 4)


def number_grams(codes: np.ndarray, plan: GramPlan) -> list[np.ndarray]:
    """Write the codes of all grams; return the key of each code, gram by gram."""
    keys = []
    for node, (parent, column, distance) in enumerate(plan.grams, plan.first_gram):
        # Range of the positions p such that p + distance is a position, too.
        low, high = max(0, -distance), max(0, codes.shape[1] - max(0, distance))
        low = min(low, high)
        keys.append(
            number_pairs(
                codes[parent, low:high],
                codes[column, low + distance : high + distance],
                codes[node, low:high],
            )
        )
    return keys


def number_pairs(first: np.ndarray, second: np.ndarray, out: np.ndarray) -> np.ndarray:
    slots, i, n_known = np.zeros((1 << 12, 2), dtype=np.uint64), 0, 0
    while True:
        i, n_known = _encode.insert_pairs(first, second, slots, slot_shift(slots), out, i, n_known)
        keys = keys_of(slots, n_known + 1)
        if i == len(first):
            return keys
        slots = hash_table(_numbered(keys), 4 * len(slots))


def keys_of(slots: np.ndarray, n_codes: int) -> np.ndarray:
    """Return the key of each code, 0 for code 0."""
    keys = np.zeros(n_codes, dtype=np.uint64)
    keys[slots[:, 1]] = slots[:, 0]  # free slots are (0, 0)
    return keys


def _numbered(keys: np.ndarray) -> np.ndarray:
    return np.stack([keys, np.arange(len(keys), dtype=np.uint64)], axis=1)


def hash_table(pairs: np.ndarray, capacity: int | None = None) -> np.ndarray:
    """Return the slots of a hash table of (key, code) pairs; keys of 0 are left out."""
    capacity = capacity or 1 << max(3, (2 * len(pairs) - 1).bit_length())
    slots = np.zeros((capacity, 2), dtype=np.uint64)
    _encode.fill_slots(pairs, slots, slot_shift(slots))
    return slots


def slot_shift(slots: np.ndarray) -> int:
    return 65 - len(slots).bit_length()  # the high bits of a hash choose the slot


def slots_of(keys: list[np.ndarray], plan: GramPlan) -> tuple[np.ndarray, np.ndarray]:
    """Return the hash tables of all grams in one array, and a table with one row for each gram.

    Columns of the table: node, parent, column, distance, first slot, hash shift, slot mask.
    """
    tables = [hash_table(_numbered(k)) for k in keys]
    lines, first = [], 0
    for node, gram, table in zip(range(plan.first_gram, plan.n_nodes), plan.grams, tables):
        lines.append((node, *gram, first, slot_shift(table), len(table) - 1))
        first += len(table)
    slots = np.concatenate([np.zeros((0, 2), dtype=np.uint64), *tables])
    return np.array(lines, dtype=np.int64).reshape(-1, 7), slots


def prune(
    table: np.ndarray, keys: list[np.ndarray], n_codes: list[int], plan: GramPlan
) -> tuple[np.ndarray, list[np.ndarray], list[int]]:
    """Drop the grams without a remaining attribute, and renumber the others."""
    starts, widths = plan.blocks(n_codes)
    blocks = [table[a : a + n * w].reshape(n, w) for a, n, w in zip(starts, n_codes, widths)]
    keep = [(block >= 0).any(axis=1) for block in blocks]
    for node in range(plan.n_nodes):
        keep[node][: 1 if node >= plan.first_gram else None] = True
    new_keys: list[np.ndarray] = [None] * len(keys)
    for g in range(len(keys) - 1, -1, -1):  # children are numbered after their parents
        parent, kept = plan.grams[g][0], keep[plan.first_gram + g]
        new_keys[g] = keys[g][kept]
        keep[parent][(new_keys[g] >> np.uint64(32)).astype(np.intp)] = True
    for g, k in enumerate(new_keys):
        number = np.cumsum(keep[plan.grams[g][0]], dtype=np.uint64) - np.uint64(1)
        first = number[(k >> np.uint64(32)).astype(np.intp)]
        new_keys[g] = first << np.uint64(32) | k & np.uint64(0xFFFFFFFF)
    table = np.concatenate([block[kept].ravel() for block, kept in zip(blocks, keep)])
    return table, new_keys, [int(kept.sum()) for kept in keep]

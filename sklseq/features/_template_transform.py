"""Transform of fitted ``TemplateFeatures``, with NumPy alone."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from sklseq._lib.ragged import offsets_of
from sklseq.features import _encode, _rows
from sklseq.features._columns import Columns, read_columns
from sklseq.features._commands import command_of
from sklseq.features._encode import TokenNumbers
from sklseq.features._grams import Layout
from sklseq.features._packed_rows import PackedRows
from sklseq.features._parse import Template, default_templates, parse_templates

ROWS_PER_THREAD = 50_000  # with fewer rows, starting a thread costs more than it saves


class TemplateTransform:
    """Part of ``TemplateFeatures`` that transforms, with the same parameters and attributes."""

    templates: Any
    columns: Any
    boundary: str
    bos_eos: bool
    bias: bool
    n_features: int | None
    n_jobs: int | None
    columns_: list[str]
    column_codes_: dict[str, dict[str, int]]
    flags_: list[int]
    n_marks_: int
    padding_: list[int]
    n_features_in_: int
    n_features_out_: int
    grams_: np.ndarray
    slots_: np.ndarray
    readers_: np.ndarray
    table_: np.ndarray

    def packed_rows(self, X: Any) -> PackedRows:
        """Rows of features of X."""
        columns = read_columns(X, self.columns_).like(self)
        if self.n_features is not None:
            return self._hash(columns)
        layout = self._layout(columns, list(self.column_codes_), self.padding_)
        n_nodes = len(self.column_codes_) + len(self.flags_) + len(self.grams_)
        codes = layout.codes(columns, self.names_table(), self.flags_, n_nodes, self.n_marks_)
        indices, indptr = self._look_up(codes, layout)
        return PackedRows(indptr, indices, None, self.n_features_out_, layout.offsets)

    def names_table(self) -> dict[str, TokenNumbers]:
        """Return the hash table of the tokens of each column, built at the first call."""
        kept = self.__dict__.get("_tables")  # the tables are not pickled
        if kept is None or kept[0] is not self.column_codes_:
            tables = {name: TokenNumbers(list(codes)) for name, codes in self.column_codes_.items()}
            self._tables = kept = self.column_codes_, tables
        return kept[1]

    def _hash(self, columns: Columns) -> PackedRows:
        """Return rows by hash of each attribute's name, computed from hashes of its pieces."""
        templates = self._templates(columns)
        layout = self._layout(columns, list(self.column_codes_), self.padding_)
        tables = {name: TokenNumbers() for name in self.column_codes_}
        n_nodes = len(tables) + len(self.flags_)
        codes = layout.codes(columns, tables, self.flags_, n_nodes, self.n_marks_, grow=True)
        texts = [
            _rows.polynomials(list(t)) for t in self._tokens([t.names for t in tables.values()])
        ]
        first = offsets_of([len(t) for t in texts]).tolist()
        names = list(tables)
        parts = []
        for template in templates:
            parts += [(names.index(c), d, first[names.index(c)]) for c, d in template.parts]
            if not template.parts:
                parts.append((len(names) + self.flags_.index(template.flag), 0, -1))
        ends = offsets_of([max(1, len(t.parts)) for t in templates])
        literals = [t for x in templates for t in (x.literals if x.parts else ("", *x.literals))]
        n_rows = int(layout.offsets[-1])
        indices = np.empty(n_rows * len(templates), dtype=np.int32)
        indptr = np.zeros(n_rows + 1, dtype=np.int64)
        n = _rows.hash_templates(
            codes, layout.starts, layout.lengths, np.array(parts, dtype=np.int64).reshape(-1, 3),
            ends.astype(np.int64), _rows.polynomials(literals),
            np.concatenate([np.zeros((0, 2), dtype=np.uint64), *texts]),
            int(self.n_features), indices, indptr,
        )  # fmt: skip
        return PackedRows(indptr, indices[:n], None, self.n_features_out_, layout.offsets)

    def _templates(self, columns: Columns) -> list[Template]:
        templates = self.templates
        if isinstance(templates, os.PathLike):
            templates = self.lines_
        if templates is None:
            if self.columns is None and len(columns.names) > 1:
                raise ValueError(
                    f"templates=None with the columns {list(columns.names)} of X needs columns=, "
                    "the list of columns to read without the label."
                )
            templates = default_templates(columns.names)
        parsed = parse_templates(templates, columns.names)
        if self.bias:
            parsed.append(Template("bias", (), ("bias",)))
        if self.bos_eos:
            parsed.append(Template("__BOS__", (), ("__BOS__",), flag=1))
            parsed.append(Template("__EOS__", (), ("__EOS__",), flag=2))
        if not parsed:
            raise ValueError("templates holds no template; give at least one such as 'w[0]'.")
        return parsed

    @staticmethod
    def _layout(columns: Columns, used: list[str], padding: Any) -> Layout:
        # If no template reads a column, the lengths of any column serve.
        name = (used or columns.names)[0]
        command = command_of(name)
        read = name if command is None else columns.names[command.column]
        return Layout.of(columns.lengths(read), *padding)

    def _look_up(self, codes: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
        offsets, n_rows = layout.offsets, int(layout.offsets[-1])
        indptr = np.zeros(n_rows + 1, dtype=np.int64)

        def block(first: int, stop: int) -> np.ndarray:
            n_max = int(offsets[stop] - offsets[first]) * len(self.readers_) + 1
            indices = np.empty(n_max, dtype=np.int32)
            n = _encode.look_up_attributes(
                codes, layout, first, stop,
                self.grams_, self.slots_, self.readers_, self.table_, indices, indptr,
            )  # fmt: skip
            return indices[:n]

        n_blocks = n_rows // ROWS_PER_THREAD
        if n_blocks > 1:
            from sklseq._lib.threads import n_threads  # joblib, whose import takes long

            n_blocks = min(n_threads(self.n_jobs), n_blocks)
        if n_blocks <= 1:
            return block(0, len(offsets) - 1), indptr
        from concurrent.futures import ThreadPoolExecutor  # start-up

        cuts = np.searchsorted(offsets, np.linspace(0, n_rows, n_blocks + 1)).tolist()
        cuts[0], cuts[-1] = 0, len(offsets) - 1
        with ThreadPoolExecutor(n_blocks) as threads:
            blocks = list(threads.map(block, cuts[:-1], cuts[1:]))
        n_before = 0  # entries of the preceding blocks
        for indices, first, stop in zip(blocks, cuts[:-1], cuts[1:]):
            indptr[offsets[first] + 1 : offsets[stop] + 1] += n_before
            n_before += len(indices)
        return np.concatenate(blocks), indptr

    def _tokens(self, known_tokens: Iterable[Iterable[str]]) -> list[np.ndarray]:
        """Return the text of each code, for each column."""
        marks = [f"_B-{i + 1}" for i in range(self.padding_[0])]
        marks += [f"_B+{i + 1}" for i in range(self.padding_[1])]
        marks = marks[: self.n_marks_]
        texts = (["", *marks, *known] for known in known_tokens)
        return [np.array(text, dtype=object) for text in texts]

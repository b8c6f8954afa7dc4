"""Extractor of attributes by templates over token columns, computed with integer codes."""

import itertools
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from sklseq._lib.checks import check_names
from sklseq.data.sequences import STATE, Sequences
from sklseq.data.types import ColumnsLike, DTypeLike
from sklseq.features import _encode
from sklseq.features._columns import Columns, read_columns
from sklseq.features._commands import command_of
from sklseq.features._encode import TokenNumbers
from sklseq.features._family import (
    Extractor,
    VocabularyMixin,
    check_some,
    keep_frequent,
    to_sequences,
)
from sklseq.features._grams import GramPlan, Layout, keys_of, number_grams, prune, slots_of
from sklseq.features._packed_rows import PackedRows
from sklseq.features._parse import template_lines
from sklseq.features._template_transform import TemplateTransform


class TemplateFeatures(TemplateTransform, VocabularyMixin, Extractor, auto_wrap_output_keys=None):
    """Attributes of every token from templates over columns of strings, such as words and tags.

    The template ``"w[-1]|w[0]"`` gives each token the attribute ``"w[-1]|w[0]=the|cat"`` from
    the previous word and its own. Attributes never seen in ``fit`` are dropped.

    A sequence is a mapping from column name to list of str, a list of str (one column), a list of
    tuples or lists of str, or a list of dicts from column name to str; all sequences have the same
    form.

    Parameters
    ----------
    templates : list, str, os.PathLike or None, default=None
        Each template is a string ``"w[-1]|pos[0]"``, a tuple ``(("w", -1), ("pos", 0))`` as in
        CRFsuite's examples, or a CRF++ or Wapiti line ``"U05:%x[-1,0]/%x[0,1]"`` with columns
        by number. A ``pathlib.Path`` names a template file in UTF-8, which ``fit`` reads; a string
        may hold the text of such a file: blank lines, comments (``#``) and a bare ``B``
        (transitions, which every CRF has) are skipped. Attributes of lines with
        ``B`` or ``b``, such as ``"B01:%x[0,0]"``, have weights for pairs of successive labels, and
        attributes of ``*`` lines have both kinds of weights, see :doc:`/transitions`, also for
        Wapiti's other commands. None: for each of ``columns`` a window of five values, their pairs,
        and triples of all columns but the first; for ``("w", "pos")`` the 19 templates of
        CRFsuite's chunking example.
    columns : list of str, default=None
        Names of all columns of tuples, or of the columns of mappings to use. None: the keys of
        the first mapping; ``"w"`` for strings; ``"c0"``, ``"c1"``, ... for tuples. Required with
        ``templates=None`` if there are several columns, since one of them may be the label.
    boundary : {"skip", "mark"}, default="skip"
        Beyond the ends of a sequence, a template gives no attribute ("skip", as in CRFsuite's
        examples) or reads ``_B-1``, ``_B-2``, ... before the sequence and ``_B+1``, ... after it
        ("mark", as in CRF++).
    bos_eos : bool, default=True
        Add the attributes ``__BOS__`` to the first and ``__EOS__`` to the last token.
    bias : bool, default=False
        Add the attribute ``bias`` to every token.
    min_count : int, default=1
        Drop attributes that fewer rows of the training data have.
    n_features : int, default=None
        A power of two: columns by hash of the attribute's name, without a vocabulary, for
        unbounded streams. None: by vocabulary.
    dtype : {float64, float32}, default=float64
        Type of the output's values, which are all 1.
    n_jobs : int, default=None
        Threads in ``transform``; the result does not depend on it.

    Attributes
    ----------
    columns_ : list of str
        Column names.
    lines_ : list of str
        The lines of the template file; only if ``templates`` is a path.
    templates_ : list of str
        The parsed templates, with ``bias``, ``__BOS__`` and ``__EOS__`` if switched on.
    column_codes_ : dict of str to dict
        Integer codes of the tokens of each column used.
    n_features_out_ : int
        Number of attributes.
    roles_ : ndarray of shape (n_features_out,) or None
        ``Sequences.roles`` of the output: None without ``B`` and ``*`` lines.

    Raises
    ------
    ValueError
        If a parameter, a template or the data cannot be used; the message says what to change.

    Notes
    -----
    Attributes are numbered by first occurrence in the training data, row by row and within a
    row in the order of the templates, so that rare attributes of one sentence are neighbours. The
    columns of an output row keep the order of the templates, so they are not sorted.

    Different values, and values of different templates, are different attributes, also if their
    names are equal: with ``w[0]|w[1]`` the tokens ``a|b`` and ``c`` are another pair than ``a`` and
    ``b|c``, with ``boundary="mark"`` the token ``_B-1`` is not the mark, and ``U:%x[0,0]`` and
    ``U:%x[1,0]`` have attributes of their own. ``min_count`` counts each, and the second is named
    ``w[0]|w[1]=a|b|c (2)``. CRF++, and here ``n_features``, use one attribute for each name.

    The tokens of each column are coded once. Templates that join the same columns at the same
    distances (``w[-1]|w[0]`` and ``w[0]|w[1]``) share one hash lookup for each position, and longer
    ones extend shorter ones; then each template needs one table entry for each token. Cost
    O(rows × templates) time; memory one integer for each attribute, 16 to 32 bytes for each
    distinct pair, and the output.

    Examples
    --------
    >>> from sklseq.features import TemplateFeatures
    >>> X = [{"w": ["He", "runs"], "pos": ["PRP", "VBZ"]}, {"w": ["He"], "pos": ["PRP"]}]
    >>> features = TemplateFeatures(["w[0]", "pos[-1]|pos[0]"])
    >>> features.fit_transform(X)
    <Sequences: 2 sequences, 3 rows, 5 features, sparse float64>
    >>> features.get_feature_names_out().tolist()
    ['w[0]=He', '__BOS__', 'w[0]=runs', 'pos[-1]|pos[0]=PRP|VBZ', '__EOS__']
    >>> TemplateFeatures("U00:%x[0,0]").fit([["a", "b"]]).get_feature_names_out().tolist()
    ['U00:a', '__BOS__', 'U00:b', '__EOS__']
    """

    lines_: list[str]
    roles_: np.ndarray | None = None  # default for models saved by earlier versions

    def __init__(
        self,
        templates: Sequence[Any] | str | os.PathLike[str] | None = None,
        *,
        columns: ColumnsLike | None = None,
        boundary: str = "skip",
        bos_eos: bool = True,
        bias: bool = False,
        min_count: int = 1,
        n_features: int | None = None,
        dtype: DTypeLike = np.float64,
        n_jobs: int | None = None,
    ):
        self.templates = templates
        self.columns = columns
        self.boundary = boundary
        self.bos_eos = bos_eos
        self.bias = bias
        self.min_count = min_count
        self.n_features = n_features
        self.dtype = dtype
        self.n_jobs = n_jobs

    def _rows_of(self, X: Any) -> Sequences:
        return to_sequences(self.packed_rows(X), self.dtype, self.roles_)

    def _names(self, input_features: Any) -> np.ndarray:
        names = np.empty(self.n_features_out_, dtype=object)
        tokens = self._tokens(self.column_codes_.values())
        for literals, (node, _, first, width) in zip(self.literals_, self.readers_):
            n_codes = self.n_codes_[node]
            attributes = self.table_[first : first + n_codes * width : width]
            codes = np.flatnonzero(attributes >= 0)
            pattern = "%s".join(text.replace("%", "%%") for text in literals)
            values = self._values(node, codes, tokens) if len(literals) > 1 else []
            rows = zip(*values) if values else [()] * len(codes)
            names[attributes[codes]] = [pattern % row for row in rows]
        return names

    @property
    def receptive_field(self) -> tuple[float, float]:
        """Number of tokens before and after a token on which its attributes depend.

        With ``bos_eos`` at least 1, because a row depends on whether the sequence continues.
        Infinite before a token if the first row of the sequence is read (``%x[@1,0]``), and after
        it if the last one is.
        """
        self._check_fitted()
        before, after = self.padding_
        for command in filter(None, map(command_of, self.column_codes_)):
            before, after = command.field(before, after)
        return max(before, 1 in self.flags_), max(after, 2 in self.flags_)

    def _fit_rows(self, X: Any, y: Any) -> Sequences:
        columns = read_columns(X, self.columns)
        check_some(columns.sequences)
        if isinstance(self.templates, os.PathLike):
            self.lines_ = template_lines(self.templates)
        plan = GramPlan.of(self._templates(columns))
        self._check_roles(plan)
        n_marks = sum(plan.padding) if self.boundary == "mark" else 0
        tables = {name: TokenNumbers() for name in plan.columns}
        if self.n_features is None:
            rows = self._learn(columns, plan, tables, n_marks)
        self.columns_ = list(columns.names)
        self.templates_ = [template.text for template in plan.templates]
        self.column_codes_ = {
            name: dict(zip(table.names, itertools.count(1 + n_marks)))
            for name, table in tables.items()
        }
        self.flags_, self.n_marks_ = plan.flags, n_marks
        self.padding_ = list(plan.padding)
        columns.remember(self)
        if self.n_features is None:
            return rows
        self.n_features_out_, self.roles_ = int(self.n_features), None
        return to_sequences(self._hash(columns), self.dtype)

    def _learn(
        self, columns: Columns, plan: GramPlan, tables: dict[str, TokenNumbers], n_marks: int
    ) -> Sequences:
        """Number the attributes of the training data and return its rows."""
        layout = self._layout(columns, plan.columns, plan.padding)
        codes = layout.codes(columns, tables, plan.flags, plan.n_nodes, n_marks, grow=True)
        n_codes = [1 + n_marks + len(table.names) for table in tables.values()]
        keys = number_grams(codes, plan)
        n_codes += [2] * len(plan.flags) + [len(k) for k in keys]
        table, n, indices, indptr = self._number(codes, layout, plan, n_codes)
        if self.min_count > 1:
            table, keys, n_codes = prune(table, keys, n_codes, plan)
        self.grams_, self.slots_ = slots_of(keys, plan)
        self.literals_ = [list(template.literals) for template in plan.templates]
        self.readers_, self.table_, self.n_codes_ = plan.readers(n_codes), table, n_codes
        self.n_features_out_ = n
        self.roles_ = self._roles(plan)
        rows = PackedRows(indptr, indices, None, n, layout.offsets)
        return to_sequences(rows, self.dtype, self.roles_)

    def _roles(self, plan: GramPlan) -> np.ndarray | None:
        if all(template.role == STATE for template in plan.templates):
            return None
        roles = np.full(self.n_features_out_, STATE, dtype=np.uint8)
        for template, (node, _, first, width) in zip(plan.templates, self.readers_):
            at = self.table_[first : first + self.n_codes_[node] * width : width]
            roles[at[at >= 0]] = template.role
        return roles

    def _check_roles(self, plan: GramPlan) -> None:
        for template in plan.templates:
            if template.role != STATE and self.n_features is not None:
                raise ValueError(
                    f"Template {template.text!r} gives transition features, whose columns need "
                    "names; use n_features=None, or leave it out."
                )

    def _check_parameters(self) -> None:
        if self.boundary not in ("skip", "mark"):
            raise ValueError(f'boundary must be "skip" or "mark"; got {self.boundary!r}.')
        super()._check_parameters()
        if isinstance(self.columns, str):
            raise ValueError(
                f"columns must be a list of column names; got the string {self.columns!r}. "
                "Put it into a list."
            )
        columns = () if self.columns is None else self.columns
        for name in columns:
            if not isinstance(name, str):
                raise ValueError(
                    f"columns must be a list of column names, which are strings; got {name!r}. "
                    "Give all names in order if X has tuples; the names to use if X has mappings."
                )
        check_names(columns)

    def _number(
        self, codes: np.ndarray, layout: Layout, plan: GramPlan, n_codes: list[int]
    ) -> tuple:
        n_rows, n_templates = int(layout.offsets[-1]), len(plan.templates)
        readers = plan.readers(n_codes)
        table = np.full(plan.blocks(n_codes)[0][-1], -1, dtype=np.int32)
        indices = np.empty(n_rows * n_templates, dtype=np.int32)
        indptr = np.zeros(n_rows + 1, dtype=np.int64)
        n = _encode.number_attributes(
            codes, layout.starts, layout.lengths, readers, table, indices, indptr
        )
        indices = indices[: indptr[-1]]
        if self.min_count > 1:
            counts, known = np.bincount(indices, minlength=n), table >= 0
            new, indices, indptr = keep_frequent(counts, indices, indptr, self.min_count)
            table[known] = new[table[known]]
            n = int((new >= 0).sum())
        return table, n, indices, indptr

    def _values(self, node: int, codes: np.ndarray, tokens: list) -> list[list[str]]:
        """Return the strings that each code of a node joins, a list for each part."""
        parts = []
        first_gram = len(self.column_codes_) + len(self.flags_)
        while node >= first_gram:
            _, parent, column, _, first, _, mask = self.grams_[node - first_gram]
            keys = keys_of(self.slots_[first : first + mask + 1], self.n_codes_[node])[codes]
            parts.append(tokens[column][keys & 0xFFFFFFFF].tolist())
            node, codes = parent, keys >> 32
        parts.append(tokens[node][codes].tolist())
        return parts[::-1]

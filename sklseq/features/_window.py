"""Extractor of attributes of neighbours and of joined attributes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from sklseq._lib.checks import check_number
from sklseq._lib.estimator import clone_part, fitted_property
from sklseq._lib.ragged import ranges
from sklseq.data.input_kinds import in_blocks
from sklseq.data.sequences import STATE, Sequences, as_sequences, check_n_columns
from sklseq.data.types import DTypeLike
from sklseq.features._conjoin import Conjunctions, parse_conjunctions
from sklseq.features._extracted_blocks import first_block
from sklseq.features._family import (
    Extractor,
    VocabularyMixin,
    as_names,
    check_some,
    extract,
    input_names,
    keep_frequent,
    no_tables,
    to_packed_rows,
    to_sequences,
)
from sklseq.features._field import receptive_field
from sklseq.features._packed_rows import PackedRows
from sklseq.features._parse import MAX_OFFSET
from sklseq.features._window_transform import WindowTransform


class WindowFeatures(WindowTransform, VocabularyMixin, Extractor, auto_wrap_output_keys=None):
    """Features of a token and of its neighbours, with the offset in the name.

    With ``before=1, after=1`` a token whose left neighbour has the attribute ``w.lower=the``
    gets ``-1:w.lower=the`` in addition to its own. A window ends with its sequence.

    Parameters
    ----------
    extractor : transformer, default=None
        Extractor of the features of single tokens: a :class:`TokenFeatures`, another extractor,
        or a ``FeatureUnion`` or ``Pipeline`` of them. None: ``X`` holds rows of features.
    before, after : int, default=1
        Numbers of neighbours on either side.
    conjoin : list, default=None
        Joined attributes: each a string such as ``"w.lower[-1]|w.lower[0]"`` or a tuple
        ``(("w.lower", -1), ("w.lower", 0))`` of kinds of attributes with offsets (default: 0).
        The kind of an attribute is its name up to "=". A token gets one attribute for each
        combination of values, such as ``-1:w.lower=the|w.lower=cat``.
    bos_eos : bool, default=True
        Add the attributes ``__BOS__`` to the first and ``__EOS__`` to the last token.
    bias : bool, default=False
        Add the attribute ``bias`` to every token.
    min_count : int, default=1
        Least number of training rows with a joined attribute or an attribute of a neighbour; rarer
        ones are dropped. With 1, each offset has as many columns as the extractor.
    n_features : int, default=None
        A power of two: columns by hash of attribute and offset. None: one column for each.
    dtype : {float64, float32}, default=float64
        Type of the output's values if all are 1; other values keep the type of the extractor.

    Attributes
    ----------
    extractor_ : transformer or None
        The fitted extractor.
    n_inner_ : int
        Number of features of the extractor.
    table_ : ndarray of int32
        Column of each (offset, feature), -1 if dropped; empty if nothing was dropped.
    n_features_out_ : int
        Number of features.
    roles_ : ndarray of shape (n_features_out,) or None
        ``Sequences.roles`` of the output: None if the extractor gives no transition features.

    Notes
    -----
    Feature ``j`` of the neighbour at ``d`` is column ``(d + before) · n_inner + j`` unless
    ``min_count`` or ``n_features`` renumber columns; joined attributes and marks follow. Cost
    O(features copied). Beyond the ends of a sequence, dense features are 0.

    Sequences in blocks (:class:`~sklseq.RowBlocks`) have the same rows as sequences in memory, also
    at the borders of blocks. ``min_count > 1``, and ``conjoin`` without ``n_features``, need
    sequences in memory.

    Transition features of the token itself stay transition features. Columns of neighbours, joined
    attributes and marks have state weights only, and attributes with transition weights only are
    not copied to neighbours.

    Examples
    --------
    >>> from sklseq.features import TokenFeatures, WindowFeatures
    >>> words = TokenFeatures(word=False, shape=False, short_shape=False, prefixes=0, suffixes=0,
    ...                       flags=False, length=False)
    >>> window = WindowFeatures(words, before=1, after=0, bos_eos=False)
    >>> window.fit_transform([["the", "cat"]]).rows.toarray()
    array([[0., 0., 1., 0.],
           [1., 0., 0., 1.]])
    >>> window.get_feature_names_out().tolist()
    ['-1:w.lower=the', '-1:w.lower=cat', 'w.lower=the', 'w.lower=cat']
    """

    roles_: np.ndarray | None = None  # default for models saved by earlier versions

    def __init__(
        self,
        extractor: BaseEstimator | None = None,
        *,
        before: int = 1,
        after: int = 1,
        conjoin: Sequence[Any] | None = None,
        bos_eos: bool = True,
        bias: bool = False,
        min_count: int = 1,
        n_features: int | None = None,
        dtype: DTypeLike = np.float64,
    ):
        self.extractor = extractor
        self.before = before
        self.after = after
        self.conjoin = conjoin
        self.bos_eos = bos_eos
        self.bias = bias
        self.min_count = min_count
        self.n_features = n_features
        self.dtype = dtype

    def _fit_rows(self, X: Any, y: Any) -> Sequences:
        extractor = None if self.extractor is None else clone_part(self, "extractor")
        inner = as_sequences(X) if extractor is None else extract(extractor, X, y, fit=True)
        check_some(inner)
        return self._learn(inner, extractor)

    def _fit_blocks(self, X: Any, y: Any) -> None:
        # The first block determines the columns.
        if self.min_count > 1 or (self.conjoin and not self.n_features):
            raise ValueError(
                "WindowFeatures needs all rows in memory to find joined or frequent attributes, "
                "and X holds sequences in blocks; use min_count=1, and conjoin "
                "with n_features=2**k only."
            )
        extractor = None if self.extractor is None else clone_part(self, "extractor")
        if extractor is not None:
            with no_tables():
                X = extractor.fit_transform(X, y)
        if not in_blocks(X, maps=False):
            raise ValueError(
                f"X holds sequences in blocks, which the extractor, {type(extractor).__name__}, "
                "cannot read; use extractor=None, PerToken or a Pipeline of these."
            )
        self._learn(as_sequences([first_block(X)]), extractor)

    def _learn(self, inner: Sequences, extractor: Any) -> Sequences:
        if self.n_features and not inner.is_sparse:
            raise ValueError(
                "n_features hashes attributes, but the extractor gives dense rows; use None."
            )
        check_n_columns((self.before + self.after + 1) * inner.shape[1])
        roles = self._window_roles(inner)
        conjunctions = self._conjunctions(inner, extractor)
        packed = to_packed_rows(inner).plain() if inner.is_sparse else None
        self.extractor_, self.n_inner_ = extractor, inner.shape[1]
        self.n_features_in_ = inner.shape[1] if extractor is None else 1
        if hasattr(extractor, "n_features_in_"):
            self.n_features_in_ = extractor.n_features_in_
        self.table_ = np.zeros(0, dtype=np.int32)
        n_window = (self.before + self.after + 1) * self.n_inner_
        if packed is not None and (self.min_count > 1 or (roles == 0).any()):
            n_window = self._learn_table(packed, roles)
        joined = None
        if packed is not None:
            joined = conjunctions.learn(packed, self.min_count, self.n_features)
        self.conjunctions_ = vars(conjunctions)
        self.n_window_ = int(self.n_features or n_window)
        n_extra = conjunctions.n + 2 * bool(self.bos_eos) + bool(self.bias)
        self.n_features_out_ = int(self.n_features or n_window + n_extra)
        self.roles_ = None
        if inner.roles is not None:
            kept = roles[self.table_ >= 0] if len(self.table_) else roles
            self.roles_ = np.append(kept, np.full(n_extra, STATE, np.uint8))
        if packed is None:
            return self._assemble_dense(inner)
        shift = 0 if self.n_features else self.n_window_
        rows = self._assemble(packed, joined, self.table_, shift)
        return to_sequences(rows, self.dtype, self.roles_)

    def _window_roles(self, inner: Sequences) -> np.ndarray:
        # Roles of each (offset, feature); 0 if the column is left out.
        n = inner.shape[1]
        roles = np.full(n, STATE, np.uint8) if inner.roles is None else inner.roles
        blocks = [np.tile(roles & STATE, k) for k in (self.before, self.after)]
        windows = np.concatenate([blocks[0], roles, blocks[1]])
        if inner.roles is not None and self.n_features:
            raise ValueError(
                "The extractor gives transition features, whose columns cannot be hashed; use "
                "n_features=None, or leave out transition_features and B lines."
            )
        if not inner.is_sparse and not windows.all():
            raise ValueError(
                f"Column {int(np.argmin(roles & STATE))} of dense rows has transition weights "
                "only, which neighbours do not get; use before=0 and after=0, give it both kinds "
                "of weights, or use sparse rows."
            )
        return windows

    def _rows_of(self, X: Any) -> Sequences:
        inner = as_sequences(X) if self.extractor_ is None else extract(self.extractor_, X)
        if inner.n_rows == 0 and inner.shape[1] != self.n_inner_:
            inner = inner.with_rows(sparse.csr_matrix((0, self.n_inner_)))
        if inner.shape[1] != self.n_inner_:
            raise ValueError(
                f"X has {inner.shape[1]} features, but WindowFeatures was fitted with "
                f"{self.n_inner_}; extract them with the same fitted transformer."
            )
        if not inner.is_sparse:
            return self._assemble_dense(inner)
        return to_sequences(self._windows_of(to_packed_rows(inner)), self.dtype, self.roles_)

    def _names(self, input_features: Any) -> list[str]:
        inner = inner_names(self.extractor_, self.n_inner_, input_features)
        blocks = [
            [at_offset(d) + name for name in inner] for d in range(-self.before, self.after + 1)
        ]
        names = as_names([name for block in blocks for name in block])
        if len(self.table_):
            kept = np.flatnonzero(self.table_ >= 0)
            names = names[kept[np.argsort(self.table_[kept])]]
        joined = Conjunctions(**self.conjunctions_).names(inner, at_offset)
        return [*names, *joined, *self._mark_names()]

    @fitted_property
    def receptive_field(self) -> tuple[int, int]:
        """Number of tokens before and after a token on which its features depend.

        The numbers of the window and of the extractor are added. With ``bos_eos`` at least 1,
        because a row depends on whether the sequence continues.
        """
        extractor = getattr(self, "extractor_", self.extractor)
        before, after = (0, 0) if extractor is None else receptive_field(extractor)
        offsets = [d for c in parse_conjunctions(self.conjoin) for _, d in c]
        before += max(self.before, *(-d for d in offsets), 0)
        after += max(self.after, *offsets, 0)
        return max(before, int(self.bos_eos)), max(after, int(self.bos_eos))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("before", "after"):
            check_number(name, getattr(self, name), 0, MAX_OFFSET, whole=True)
        parse_conjunctions(self.conjoin)

    def _conjunctions(self, inner: Sequences, extractor: Any) -> Conjunctions:
        parsed = parse_conjunctions(self.conjoin)
        if not parsed:
            return Conjunctions([], [])
        if not inner.is_sparse:
            raise ValueError("conjoin joins attributes, but the extractor gives dense rows.")
        names = inner_names(extractor, inner.shape[1], None)
        return Conjunctions.of(parsed, [name.partition("=")[0] for name in names])

    def _learn_table(self, inner: PackedRows, roles: np.ndarray) -> int:
        indices, *_ = self._window(inner, np.zeros(inner.n_rows + 1, dtype=np.int64), self.table_)
        counts = np.bincount(indices, minlength=(self.before + self.after + 1) * self.n_inner_)
        own = slice(self.before * self.n_inner_, (self.before + 1) * self.n_inner_)
        counts = np.maximum(counts, self.min_count == 1) * (roles > 0)  # 1: keep unseen ones
        counts[own] = self.min_count  # only the extractor drops features of the token itself
        self.table_, _, _ = keep_frequent(
            counts, np.zeros(0, np.int32), np.zeros(1, np.int64), self.min_count
        )
        return int((self.table_ >= 0).sum())

    def _assemble_dense(self, inner: Sequences) -> Sequences:
        n, rows = self.n_inner_, inner.rows
        out = np.zeros((inner.n_rows, self.n_features_out_), dtype=rows.dtype)
        position = ranges(0, inner.lengths)
        behind = np.repeat(inner.lengths, inner.lengths) - position - 1
        for block, d in enumerate(range(-self.before, self.after + 1)):
            inside = np.flatnonzero((position >= -d) & (behind >= d))
            out[inside, block * n : (block + 1) * n] = rows[inside + d]
        columns, ends, _ = self._marks(inner.offsets)
        out[np.repeat(np.arange(inner.n_rows), np.diff(ends)), self.n_window_ + columns] = 1
        return Sequences(out, inner.offsets, self.roles_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def at_offset(d: int) -> str:
    """Return the prefix of the names of the neighbour at ``d``."""
    return f"{d:+d}:" if d else ""


def inner_names(extractor: Any, n: int, input_features: Any) -> list[str]:
    """Return the names of the extractor's features, or of the columns of X."""
    if extractor is not None:
        return list(extractor.get_feature_names_out())
    return input_names(n, input_features)

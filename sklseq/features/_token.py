"""Extractor of attributes of single tokens, computed once for each distinct token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from sklseq.data.ones import rows_of_ones
from sklseq.data.sequences import Sequences
from sklseq.data.types import ColumnsLike, DTypeLike
from sklseq.features import _encode, _rows
from sklseq.features._columns import Columns, read_columns, select_columns
from sklseq.features._family import Extractor, keep_frequent, vocabulary
from sklseq.features._kinds import Kind, own_kind, standard_kinds


class TokenFeatures(Extractor, auto_wrap_output_keys=None):
    """Attributes of each token from its letters: words, affixes, shapes, flags.

    The token ``"Jan-95"`` of the column ``w`` gets ``w.word=Jan-95``, ``w.lower=jan-95``,
    ``w.shape=Xxx-dd``, ``w.short_shape=Xx-d``, ``w.prefix1=J``, ..., ``w.suffix3=-95``,
    ``w.title``, ``w.has_digit``, ``w.has_hyphen`` and ``w.length=5-6``. Attributes never seen
    in ``fit`` are dropped. :class:`WindowFeatures` adds the attributes of neighbours.

    A sequence is a list of str, a mapping from column name to list of str, a list of tuples or
    lists of str, or a list of dicts from column name to str; all sequences have the same form.

    Parameters
    ----------
    columns : str, int or list of them, default=None
        Columns to read: names of mappings and dicts, positions of tuples. None: the only one.
    word, lower : bool, default=True
        The token, and the token in lower case.
    shape, short_shape : bool, default=True
        Letters as ``X`` and ``x``, digits as ``d``; short: runs of one letter written once.
    prefixes, suffixes : int or list of int, default=3
        An integer n: the first (last) 1, 2, ..., n letters; a list: these lengths. As with
        ``token[:n]``, a shorter token is its own prefix and suffix. 0: none.
    flags : bool or list of str, default=True
        True: "upper", "title", "digit", "alpha", "has_digit", "has_hyphen", "has_inner_upper"
        and "punct"; a list: these flags. A token has the attribute if the flag is true.
    length : bool, default=True
        The number of letters as 1, 2, 3, 4, 5-6, 7-9 or 10+.
    functions : list of callables, or dict of str to callable, default=None
        Functions of a token (str). A str ``v`` gives the attribute ``name=v``, a collection of
        str one for each, True gives ``name``, a dict ``{"key": "v", "flag": True}`` gives
        ``key=v`` and ``flag``; None and False give nothing. The name is that of the function, or
        its key in a dict of functions.
    min_count : int, default=1
        Drop attributes that fewer rows of the training data have.
    n_features : int, default=None
        A power of two: columns by hash, without a vocabulary. None: by vocabulary.
    dtype : {float64, float32}, default=float64
        Type of the output's values, which are all 1.

    Attributes
    ----------
    columns_ : list of str
        Columns read.
    kinds_ : list of str
        Prefix of the names of each kind of attribute.
    values_ : list of dict of str to int
        For each kind its values and their columns in the output.
    n_features_in_ : int
        Columns of the training data.
    feature_names_in_ : ndarray of str
        Their names, if sequences were mappings or of dicts.
    n_features_out_ : int
        Number of attributes.

    See Also
    --------
    WindowFeatures : attributes of neighbours.
    TemplateFeatures : joined values of several tokens and columns.

    Notes
    -----
    The attributes of each distinct token are computed once and copied to the rows that contain
    it. Cost O(distinct tokens × kinds) Python calls and O(attributes) copied integers. Attributes
    are numbered by first occurrence in the training data.

    Examples
    --------
    >>> from sklseq.features import TokenFeatures
    >>> features = TokenFeatures(shape=False, prefixes=0, suffixes=[2], flags=["title"])
    >>> features.fit_transform([["He", "runs"], ["He"]])
    <Sequences: 2 sequences, 3 rows, 11 features, sparse float64>
    >>> features.get_feature_names_out()[:6].tolist()
    ['w.word=He', 'w.lower=he', 'w.short_shape=Xx', 'w.suffix2=He', 'w.title', 'w.length=2']
    """

    vocabulary_ = vocabulary

    def __init__(
        self,
        *,
        columns: ColumnsLike | None = None,
        word: bool = True,
        lower: bool = True,
        shape: bool = True,
        short_shape: bool = True,
        prefixes: int | Sequence[int] = 3,
        suffixes: int | Sequence[int] = 3,
        flags: bool | Sequence[str] = True,
        length: bool = True,
        functions: Sequence[Callable[..., Any]] | Mapping[str, Callable[..., Any]] | None = None,
        min_count: int = 1,
        n_features: int | None = None,
        dtype: DTypeLike = np.float64,
    ):
        self.columns = columns
        self.word = word
        self.lower = lower
        self.shape = shape
        self.short_shape = short_shape
        self.prefixes = prefixes
        self.suffixes = suffixes
        self.flags = flags
        self.length = length
        self.functions = functions
        self.min_count = min_count
        self.n_features = n_features
        self.dtype = dtype

    def _fit_rows(self, X: Any, y: Any) -> Sequences:
        kinds = self._kinds()
        columns = read_columns(X)
        if not columns.sequences:
            raise ValueError("X holds no sequences; give at least one to fit.")
        names = select_columns(self.columns, columns)
        tokens, codes, offsets = distinct_tokens(columns, names)
        prefixes = [_prefix(name, kind) for name in names for kind in kinds]
        if self.n_features is None:
            values, n, table = self._learn(kinds, tokens, codes, prefixes)
        else:
            values, n = [{} for _ in prefixes], int(self.n_features)
            table = _table_of(self._numbers(kinds, tokens, prefixes, values))
        self.columns_, self.kinds_, self.values_ = names, prefixes, values
        columns.remember(self)
        self.n_features_out_ = n
        return self._gather(codes, *table, offsets)

    def _rows_of(self, X: Any) -> Sequences:
        columns = read_columns(X)
        columns.check_like(self)
        tokens, codes, offsets = distinct_tokens(columns, self.columns_)
        numbers = self._numbers(self._kinds(), tokens, self.kinds_, self.values_)
        return self._gather(codes, *_table_of(numbers), offsets)

    def _names(self, input_features: Any) -> np.ndarray:
        names = np.empty(self.n_features_out_, dtype=object)
        for prefix, values in zip(self.kinds_, self.values_):
            names[list(values.values())] = [prefix + value for value in values]
        return names

    def _kinds(self) -> list[Kind]:
        kinds = standard_kinds(
            word=self.word, lower=self.lower, shape=self.shape, short_shape=self.short_shape,
            prefixes=self.prefixes, suffixes=self.suffixes, flags=self.flags, length=self.length,
        )  # fmt: skip
        kinds += [own_kind(name, f) for name, f in named_functions(self.functions)]
        if not kinds:
            raise ValueError("All attributes are switched off; switch on at least one, as word.")
        return kinds

    def _numbers(
        self, kinds: list[Kind], tokens: list[list[str]], prefixes: list[str], values: list,
        grow: bool = False,
    ) -> list[np.ndarray]:  # fmt: skip
        """Attributes (n_tokens, ≥ n_kinds) of each column's distinct tokens, -1: none."""
        numbers, n_known = [], 0
        for c, of_column in enumerate(tokens):
            blocks = []
            for k, kind in enumerate(kinds, c * len(kinds)):
                found, width = _values_of(kind, of_column)
                block = np.empty(len(found), dtype=np.int32)
                if self.n_features is not None:
                    _rows.hash_values(prefixes[k], found, self.n_features, block)
                else:
                    _rows.look_up_values(found, values[k], block, n_known if grow else -1)
                    n_known += len(values[k])
                blocks.append(block.reshape(len(of_column), width))
            numbers.append(np.concatenate(blocks, axis=1))
        return numbers

    def _learn(self, kinds: list[Kind], tokens: list, codes: np.ndarray, prefixes: list) -> tuple:
        values = [{} for _ in prefixes]
        numbers = self._numbers(kinds, tokens, prefixes, values, grow=True)
        first = np.cumsum([0] + [len(v) for v in values])
        indptr, flat = _table_of(numbers)
        new = by_first_occurrence(flat, first[-1])
        flat, n = new[flat], int(first[-1])
        if self.min_count > 1:
            occurrences = np.bincount(codes.ravel(), minlength=len(indptr) - 1)
            counts = np.bincount(flat, np.repeat(occurrences, np.diff(indptr)), minlength=n)
            kept, flat, indptr = keep_frequent(counts, flat, indptr, self.min_count)
            new, n = kept[new], int((kept >= 0).sum())
        for k, of_kind in enumerate(values):
            columns = new[first[k] : first[k + 1]].tolist()
            values[k] = {v: c for v, c in zip(of_kind, columns) if c >= 0}
        return values, n, (indptr, flat)

    def _gather(self, codes: np.ndarray, indptr: np.ndarray, table: np.ndarray, offsets: Any):
        widths = np.diff(indptr)
        n = int(sum(widths[row].sum() for row in codes)) if len(widths) else 0
        indices, ends = np.empty(n, dtype=np.int32), np.zeros(codes.shape[1] + 1, dtype=np.int64)
        _rows.gather_rows(codes, indptr, table, indices, ends)
        return Sequences(rows_of_ones(indices, ends, self.n_features_out_, self.dtype), offsets)


def distinct_tokens(
    columns: Columns, names: list[str]
) -> tuple[list[list[str]], np.ndarray, np.ndarray]:
    """Return the distinct tokens of each column, the number of each row's token, and the offsets.

    Numbers continue from column to column: the first token of the second column is numbered after
    the distinct tokens of the first.
    """
    lengths = columns.lengths(names[0])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    codes = np.empty((len(names), offsets[-1]), dtype=np.int32)
    tokens, first = [], 0
    for row, name in zip(codes, names):
        known: dict[str, int] = {}
        form, sequences, key = columns.column(name)
        columns.check_lengths(name, lengths)
        _encode.encode_column(sequences, form, key, known, first, offsets, row, True)
        tokens.append(list(known))
        first += len(known)
    return tokens, codes, offsets


def _prefix(column: str, kind: Kind) -> str:
    return f"{column}." if kind.many else f"{column}.{kind.name}" + "=" * (not kind.is_flag)


def named_functions(functions: Any, what: str = "token") -> list[tuple[str, Any]]:
    """Return the functions of a parameter with their names, which must differ."""
    if functions is None:
        return []
    if isinstance(functions, Mapping):
        named = list(functions.items())
    else:
        named = [
            (getattr(f, "__name__", type(f).__name__), f)
            for f in (functions if isinstance(functions, (list, tuple)) else [functions])
        ]
    names = [name for name, _ in named]
    for name, function in named:
        if not callable(function):
            raise ValueError(f"functions must be callables of a {what}; {name!r} is {function!r}.")
        if names.count(name) > 1:
            raise ValueError(f"functions must have different names; two are {name!r}. Use a dict.")
    return named


def _values_of(kind: Kind, tokens: list[str]) -> tuple[list, int]:
    """Return the values of all tokens in one list, and the number of places for each token."""
    values = kind.values(tokens)
    if not kind.many:
        return values, 1
    width = max(map(len, values), default=0)
    return [v for several in values for v in several + [None] * (width - len(several))], width


def by_first_occurrence(numbers: np.ndarray, n: int) -> np.ndarray:
    """Return the rank of each of ``n`` numbers by first occurrence.

    Neighbouring rows then share neighbouring columns.
    """
    order = np.empty(n, dtype=np.int64)
    order[numbers[::-1]] = np.arange(len(numbers))[::-1]  # the last one written is the first
    new = np.empty(n, dtype=np.int32)
    new[np.argsort(order, kind="stable")] = np.arange(n)
    return new


def _table_of(numbers: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return row ends and attributes of the distinct tokens, column after column."""
    ends = [np.cumsum((of_column >= 0).sum(axis=1)) for of_column in numbers]
    flat = [of_column[of_column >= 0] for of_column in numbers]
    first = np.cumsum([0] + [len(f) for f in flat])
    indptr = np.concatenate([[0], *(e + f for e, f in zip(ends, first))]).astype(np.int64)
    return indptr, np.concatenate(flat)

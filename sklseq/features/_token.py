"""Extractor of attributes of single tokens, computed once for each distinct token."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sklseq.data.sequences import Sequences
from sklseq.data.types import ChoiceLike, ColumnsLike, DTypeLike, FunctionsLike
from sklseq.features._columns import read_columns, select_columns
from sklseq.features._family import (
    Extractor,
    VocabularyMixin,
    check_some,
    keep_frequent,
    to_sequences,
)
from sklseq.features._kinds import Kind, check_different
from sklseq.features._token_transform import TokenTransform, distinct_tokens, stacked


class TokenFeatures(TokenTransform, VocabularyMixin, Extractor, auto_wrap_output_keys=None):
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
        The token with ``X`` for upper-case letters, ``x`` for other letters and ``d`` for digits;
        in the short shape, a run of one character is written once. Digits are those of
        ``str.isdigit``, as in the flags: the shape of ``"m²"`` is ``xd``.
    prefixes, suffixes : int or list of int, default=3
        An integer n: the first (last) 1, 2, ..., n letters; a list: prefixes (suffixes) of these
        lengths; 0: none. A shorter token is its own prefix and suffix, as with ``token[:n]``.
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
        Least number of training rows with an attribute; rarer attributes are dropped.
    n_features : int, default=None
        Number of columns, a power of two: a hash function assigns attributes to columns. None:
        one column for each attribute of the training data.
    dtype : {float64, float32}, default=float64
        Type of the output's values, which are all 1.
    transition_features : None, list, array, str, re.Pattern or callable, default=None
        Columns with weights for pairs of successive labels, too, as in
        :class:`~sklseq.CRFTagger`; they are stored in ``roles`` of the output.

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

    The empty token ``""`` has no attributes but those of ``functions``.

    Examples
    --------
    >>> from sklseq.features import TokenFeatures
    >>> features = TokenFeatures(shape=False, prefixes=0, suffixes=[2], flags=["title"])
    >>> features.fit_transform([["He", "runs"], ["He"]])
    <Sequences: 2 sequences, 3 rows, 11 features, sparse float64>
    >>> features.get_feature_names_out()[:6].tolist()
    ['w.word=He', 'w.lower=he', 'w.short_shape=Xx', 'w.suffix2=He', 'w.title', 'w.length=2']
    """

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
        functions: FunctionsLike = None,
        min_count: int = 1,
        n_features: int | None = None,
        dtype: DTypeLike = np.float64,
        transition_features: ChoiceLike | None = None,
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
        self.transition_features = transition_features

    def _fit_rows(self, X: Any, y: Any) -> Sequences:
        kinds = self._kinds()
        check_different(kinds)
        columns = read_columns(X)
        check_some(columns.sequences)
        names = select_columns(self, columns)
        tokens, codes, offsets = distinct_tokens(columns, names)
        prefixes = [_prefix(name, kind) for name in names for kind in kinds]
        if self.n_features is None:
            values, n, rows = self._learn(tokens, codes, prefixes)
        else:
            values, n = [{} for _ in prefixes], int(self.n_features)
            tables = (self._table_of(c, prefixes, values) for c in range(len(names)))
            rows = stacked([self._read(table, t) for table, t in zip(tables, tokens)])
        self.columns_, self.kinds_, self.values_ = names, prefixes, values
        columns.remember(self)
        self.n_features_out_ = n
        return to_sequences(self._gather(codes, *rows, offsets).plain(), self.dtype)

    def _names(self, input_features: Any) -> np.ndarray:
        names = np.empty(self.n_features_out_, dtype=object)
        for prefix, values in zip(self.kinds_, self.values_):
            names[list(values.values())] = [prefix + value for value in values]
        return names

    def _learn(self, tokens: list, codes: np.ndarray, prefixes: list) -> tuple:
        values, rows, n = [{} for _ in prefixes], [], 0
        for c, of_column in enumerate(tokens):
            table = self._table_of(c, prefixes, values, first=n)
            rows.append(self._read(table, of_column))
            n = table.next
        indptr, flat = stacked(rows)
        new = by_first_occurrence(flat, n)
        flat = new[flat]
        if self.min_count > 1:
            occurrences = np.bincount(codes.ravel(), minlength=len(indptr) - 1)
            counts = np.bincount(flat, np.repeat(occurrences, np.diff(indptr)), minlength=n)
            kept, flat, indptr = keep_frequent(counts, flat, indptr, self.min_count)
            new, n = kept[new], int((kept >= 0).sum())
        columns = new.tolist()
        values = [{v: columns[k] for v, k in known.items() if columns[k] >= 0} for known in values]
        return values, n, (indptr, flat)


def _prefix(column: str, kind: Kind) -> str:
    if kind.form == "function":
        return f"{column}."
    return f"{column}.{kind.name}" + "=" * (kind.form != "flag")


def by_first_occurrence(numbers: np.ndarray, n: int) -> np.ndarray:
    """Return the rank of each of ``n`` numbers by first occurrence.

    Neighbouring rows then share neighbouring columns.
    """
    order = np.empty(n, dtype=np.int64)
    order[numbers[::-1]] = np.arange(len(numbers))[::-1]  # the last one written is the first
    new = np.empty(n, dtype=np.int32)
    new[np.argsort(order, kind="stable")] = np.arange(n)
    return new

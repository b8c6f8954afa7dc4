"""Extractor of features of segments, each stored once for all segments that have it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator

from sklseq._lib.checks import check_number, is_number
from sklseq._lib.estimator import clone_part, fitted_property
from sklseq._lib.ragged import offsets_of
from sklseq.data.segment_potentials import OPEN_BOTH, SegmentPotentials
from sklseq.data.sequences import Sequences
from sklseq.data.types import (
    ChoiceLike,
    ColumnsLike,
    DTypeLike,
    FunctionsLike,
    LabelsLike,
    LexiconsLike,
    SequencesLike,
)
from sklseq.features._active_potentials import count_active_potentials
from sklseq.features._columns import read_columns, select_columns
from sklseq.features._family import Extractor, as_names, check_parameters, check_some, extract
from sklseq.features._field import receptive_field
from sklseq.features._kinds import affix_lengths
from sklseq.features._lexicon import named_lexicons
from sklseq.features._parse import MAX_OFFSET
from sklseq.features._segment_parts import (
    BIAS,
    ContextPart,
    LengthPart,
    LexiconPart,
    Part,
    StepTemplate,
    TokenPart,
    Tokens,
    field_of_function,
    function_part,
    gram_part,
    sees_context,
    shape_part,
)
from sklseq.features._similarity import SIMILARITIES, make_index
from sklseq.features._spans import kept_columns, stack_rows
from sklseq.features._token import TokenFeatures
from sklseq.features._token_transform import distinct_tokens, named_functions

LOWEST = 0.85
# Numbers of tokens between which features that are stored once are dropped by default. (F1 without
# them against all, 13 corpora: up to 2,000 tokens mostly 1 to 6 points more; of more tokens 0.1 to
# 1.8 more for fields, but 0.3 to 2 less for names in 50 sentences or more. Of fewer tokens, nothing
# may be left.)
FEW, MANY = 50, 2_000


class SegmentFeatures(Extractor, auto_wrap_output_keys=None):
    """Features of segments, for a :class:`~sklseq.SemiCRFSegmenter`.

    The segment "Prof. Smith" in "by Prof. Smith ." has, with the default extractor, the features
    ``start:w.lower=prof.``, ``end:w.lower=smith``, ``inside:`` of both tokens,
    ``before:w.lower=by``, ``after:w.lower=.`` and so on, and ``length=2``. Optional features are
    its first and last tokens joined, its shape, its similarity to entries of word lists, and the
    values of functions.

    A feature is stored once for all segments that have it: "contains *Smith*" for every segment
    around that token, "begins with *Prof.*" for every segment that starts there. The number of
    stored features, H, therefore does not grow with the length of segments unless ``max_length``
    does.

    ``X`` is any input of the extractor; lists of str, for instance.

    Parameters
    ----------
    extractor : extractor, default=None
        Features of single tokens: any transformer to :class:`~sklseq.Sequences`, such as
        ``TokenFeatures`` or ``PerToken``. None: ``TokenFeatures()``.
    start, end : int, default=1
        Number of first (last) tokens of the segment with features by position: ``start:``,
        ``start2:``, ...
    inside : bool, default=True
        Sum of the features of all tokens of the segment. If these are numbers other than 1 in
        training, also ``inside:bias``, the number of tokens.
    before, after : int, default=1
        Number of tokens before (after) the segment with features by distance; beyond the ends of
        the sequence ``before:__BOS__`` and ``after:__EOS__``.
    first, last : int or list of int, default=0
        The first (last) 2, 3, ..., n tokens of the segment joined, in lower case:
        ``first2=prof. smith``; a list: these numbers of tokens.
    length : bool, default=True
        The number of tokens up to ``max_length``, or more than that: ``length=2``, ``length>8``.
    longer_than : list of int, default=()
        Further thresholds: ``length>12`` for 12.
    shape : bool, default=False
        Short shapes of the tokens of segments up to ``max_length``: ``shape=Xx+ X. d``. A "+"
        marks a repeated shape.
    lexicons : dict of str to list or path, or list of paths, default=None
        Word lists, as in :class:`LexiconFeatures`. ``lexicon.journal.tfidf`` is the similarity of
        the whole segment, up to ``max_length``, to the most similar entry. Case and punctuation
        around tokens are ignored.
    similarities : list of {"tfidf", "jaro_winkler", "exact"}, default=("tfidf", "jaro_winkler")
        "tfidf": cosine of TF-IDF vectors. "jaro_winkler": similarity of the letters to the
        ``n_candidates`` entries with the highest cosine. "exact": 1 if the segment is an entry.
    min_similarity : float or dict of str to float, default=0.85
        Lower similarities count as 0; a dict has a threshold for some or all of
        ``similarities``. Low thresholds are slow: at 0.5, most segments are similar to some entry
        of a long list of names.
    n_gram : int, default=None
        None: TF-IDF terms are tokens. An integer n: they are n-grams of letters, which also finds
        misspelt entries and takes longer.
    n_candidates : int, default=5
        Number of entries that are compared letter by letter.
    functions : list of callables, or dict of str to callable, default=None
        Functions of a segment up to ``max_length``, a list of tokens (str). They return the same
        as functions of :class:`TokenFeatures`, or numbers: a float is the value of the feature
        ``name``, a dict ``{"key": 0.5}`` that of the feature ``key``. A function of three
        parameters is called as ``f(sequence, start, stop)`` for each segment, with the sequence as
        it is in X (a copy, of arrays a read-only view), so it can read all columns and neighbouring
        tokens. For streams, it needs the attribute ``receptive_field``, the numbers of tokens
        before ``start`` and from ``stop`` on that it reads at most; it must not use ``start``
        itself or the length of the sequence.
    max_length : int, default=8
        Longest segment with features of length, shape, lexicons or functions. It does not limit
        the segments that can be found; time and H grow with it.
    columns : str or int, default=None
        The column of tokens for ``first``, ``last``, ``shape``, ``lexicons`` and ``functions``.
        None: the only one.
    min_count : int or None, default=None
        Drop features that are stored less often for the training data. None: 2 for 50 to 2,000
        tokens, which have too few examples of most features; otherwise 1.
    dtype : {float64, float32}, default=float64
        Type of the values.
    transition_features : None, list, array, str, re.Pattern or callable, default=None
        Columns with weights for pairs of labels too, as in :class:`~sklseq.SemiCRFSegmenter`;
        "^(start|before):" selects the features of the first token of a segment and of the token
        before it. They are stored in ``roles`` of the output.

    Attributes
    ----------
    extractor_ : extractor
        The fitted clone; None if no features of single tokens are used.
    values_ : list of dict of str to int
        For each kind of feature the names seen in training, and their columns.
    kept_ : ndarray of shape (n_features_out,)
        The columns that are frequent enough.
    lexicons_ : list of dict
        TF-IDF index of each lexicon.
    n_potentials_ : int
        H: features stored for the training data.
    compression_ratio_ : float
        G / H, where G counts every feature once for every segment that has it: the saving in
        comparison with features of single segments. (Sarawagi gives G and H in the last column of
        her Table 1, for segments of limited length: see :func:`count_active_potentials`.)
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        If sequences were mappings or of dicts.
    n_features_out_ : int

    See Also
    --------
    LexiconFeatures : tokens inside entries, for taggers.

    Notes
    -----
    Distinct rows of the extractor are stored once, and distinct spans are processed once. Cost
    O(features + n · max_length) for n tokens; a function is called for each distinct span. The cost
    of a lexicon is, for each token, max_length times the number of entries that contain the token
    (or n-gram), so it depends on how common its words are rather than on its length.

    References
    ----------
    S. Sarawagi (2006), "Efficient inference on sequence segmentation models", Proc. 23rd ICML,
    §3 and §4. W. W. Cohen, P. Ravikumar and S. E. Fienberg (2003), "A comparison of string
    distance metrics for name-matching tasks", IIWeb-03.

    Examples
    --------
    >>> from sklseq.features import SegmentFeatures, TokenFeatures
    >>> features = SegmentFeatures(
    ...     TokenFeatures(lower=False, shape=False, short_shape=False, prefixes=0, suffixes=0,
    ...                   flags=False, length=False),
    ...     before=0, after=0, max_length=2)
    >>> features.fit_transform([["by", "Prof.", "Smith"]])
    <SegmentPotentials: 1 sequences, 3 steps, 15 potentials, 12 features, float64>
    >>> features.get_feature_names_out()[[0, 5, -1]].tolist()
    ['start:w.word=by', 'end:w.word=Smith', 'length>2']
    >>> round(features.compression_ratio_, 2)
    1.87
    """

    if TYPE_CHECKING:  # return types that differ from those of the base class

        def fit_transform(
            self, X: SequencesLike, y: LabelsLike | None = None
        ) -> SegmentPotentials: ...
        def transform(self, X: SequencesLike) -> SegmentPotentials: ...

    def __init__(
        self,
        extractor: BaseEstimator | None = None,
        *,
        start: int = 1,
        end: int = 1,
        inside: bool = True,
        before: int = 1,
        after: int = 1,
        first: int = 0,
        last: int = 0,
        length: bool = True,
        longer_than: Sequence[int] = (),
        shape: bool = False,
        lexicons: LexiconsLike = None,
        similarities: Sequence[str] = SIMILARITIES[:2],
        min_similarity: float | Mapping[str, float] = LOWEST,
        n_gram: int | None = None,
        n_candidates: int = 5,
        functions: FunctionsLike = None,
        max_length: int = 8,
        columns: ColumnsLike | None = None,
        min_count: int | None = None,
        dtype: DTypeLike = np.float64,
        transition_features: ChoiceLike | None = None,
    ):
        self.extractor = extractor
        self.start = start
        self.end = end
        self.inside = inside
        self.before = before
        self.after = after
        self.first = first
        self.last = last
        self.length = length
        self.longer_than = longer_than
        self.shape = shape
        self.lexicons = lexicons
        self.similarities = similarities
        self.min_similarity = min_similarity
        self.n_gram = n_gram
        self.n_candidates = n_candidates
        self.functions = functions
        self.max_length = max_length
        self.columns = columns
        self.min_count = min_count
        self.dtype = dtype
        self.transition_features = transition_features

    def _fit_rows(self, X: Any, y: Any) -> SegmentPotentials:
        extractor = self._new_extractor()
        rows = None if extractor is None else extract(extractor, X, y, fit=True)
        if rows is not None and rows.roles is not None:
            raise ValueError(
                "extractor gives transition features of tokens; choose columns of segments by the "
                "parameter transition_features of SegmentFeatures instead."
            )
        columns = read_columns(X) if self._reads_words() or rows is None else None
        column = select_columns(self, columns)[0] if self._reads_words() else None
        if columns is not None:
            check_some(columns.sequences)
        indices = [make_index(*item, self.n_gram) for item in self._lexicons().items()]
        tokens = _tokens(rows, columns, column)
        parts = self._parts(indices)
        values = [{} for _ in parts]
        stored = _store(parts, tokens, values, True, self.dtype)
        least = self.min_count
        if least is None:
            least = 2 if FEW <= tokens.n <= MANY else 1
        self.kept_ = np.flatnonzero(stored.counts() >= least)
        self.extractor_, self.column_, self.values_, self.lexicons_ = (
            extractor, column, values, indices)  # fmt: skip
        self._remember(columns)
        self.n_features_out_ = len(self.kept_)
        out = stored.packed(self.kept_, tokens.offsets)
        n_active, self.n_potentials_ = count_active_potentials(out)
        self.compression_ratio_ = n_active / max(self.n_potentials_, 1)
        return out

    def _rows_of(self, X: Any) -> SegmentPotentials:
        rows = None if self.extractor_ is None else extract(self.extractor_, X)
        columns = None
        if self.column_ is not None or rows is None:
            columns = read_columns(X).like(self)
        tokens = _tokens(rows, columns, self.column_)
        stored = _store(self._parts(self.lexicons_), tokens, self.values_, False, self.dtype)
        return stored.packed(self.kept_, tokens.offsets)

    def _names(self, input_features: Any) -> np.ndarray:
        of_tokens = []
        if self.extractor_ is not None:
            of_tokens = list(self.extractor_.get_feature_names_out())
        parts = zip(self._parts(self.lexicons_), self.values_)
        names = [name for part, values in parts for name in part.names(values, of_tokens)]
        return as_names(names)[self.kept_]

    @fitted_property
    def receptive_field(self) -> tuple[float, float]:
        """Number of tokens before the start and after the stop on which a potential depends.

        Infinite with functions of three parameters that do not say on how many they depend.
        """
        extractor = getattr(self, "extractor_", self.extractor)
        before, after = (0, 0) if extractor is None else receptive_field(extractor)
        fields = [(self.before + before, self.after + after)]
        fields += map(field_of_function, self._context_functions())
        return max(b for b, _ in fields), max(a for _, a in fields)

    @fitted_property
    def max_span(self) -> int:
        """Upper bound of the number of tokens that a potential spans."""
        spans = [1, self.start, self.end, *(k + 1 for k in self._thresholds())]
        spans += self._gram_lengths("first") + self._gram_lengths("last")
        whole = self.length, self.shape, self.lexicons is not None, self.functions is not None
        return int(max(*spans, self.max_length if any(whole) else 1))

    def _check_parameters(self) -> None:
        check_parameters(self, chooses_count=True)
        for name, lowest in (
            ("start", 0), ("end", 0), ("before", 0), ("after", 0), ("max_length", 1),
            ("n_candidates", 1),
        ):  # fmt: skip
            check_number(name, getattr(self, name), lowest, MAX_OFFSET, whole=True)
        check_number("n_gram", self.n_gram, 2, whole=True, optional=True)
        self._thresholds()
        self._lowest()
        if not self._parts([{}] * len(self._lexicons())):
            raise ValueError("All features are switched off; switch on at least one, as inside.")

    def _context_functions(self) -> list[Callable]:
        functions = named_functions(self.functions, "segment")
        return [function for _, function in functions if sees_context(function)]

    def _thresholds(self) -> list[int]:
        several = self.longer_than
        if not isinstance(several, Iterable) or not all(
            is_number(k, whole=True) and k >= 1 for k in several
        ):
            raise ValueError(
                f"longer_than must be a list of integers of at least 1; got {several!r}."
            )
        return sorted({*map(int, several), *([int(self.max_length)] if self.length else [])})

    def _similarities(self) -> list[str]:
        several = self.similarities
        if isinstance(several, str) or not isinstance(several, Iterable):
            several = [several]
        several = list(several)
        if not several or any(name not in SIMILARITIES for name in several):
            raise ValueError(
                f"similarities must be some of {list(SIMILARITIES)}; got {self.similarities!r}."
            )
        return several

    def _lowest(self) -> dict[str, float]:
        # Threshold of each similarity; lower values count as 0.
        given, names = self.min_similarity, self._similarities()
        if isinstance(given, Mapping):
            if unknown := [name for name in given if name not in names]:
                raise ValueError(
                    f"min_similarity must name some of the similarities {names}; got "
                    f"{unknown[0]!r}."
                )
        else:
            given = dict.fromkeys(names, given)
        for value in given.values():
            if not is_number(value) or not 0 <= value <= 1:
                raise ValueError(f"min_similarity must be from 0 to 1; got {value!r}.")
        return {name: float(given.get(name, LOWEST)) for name in names}

    def _lexicons(self) -> dict[str, Any]:
        return {} if self.lexicons is None else named_lexicons(self.lexicons)

    def _new_extractor(self) -> Any:
        if not TokenPart.all(self.start, self.end, self.inside, self.before, self.after):
            return None
        return TokenFeatures() if self.extractor is None else clone_part(self, "extractor")

    def _reads_words(self) -> bool:
        return bool(
            self._gram_lengths("first") or self._gram_lengths("last") or self.shape
            or self.lexicons is not None or self.functions is not None
        )  # fmt: skip

    def _gram_lengths(self, name: str) -> list[int]:
        value = getattr(self, name)
        lengths = affix_lengths(value, name)
        return [k for k in lengths if k > 1 or not is_number(value, whole=True)]

    def _parts(self, indices: list[dict]) -> list[Part]:
        """Return the kinds of features that are switched on, in the order of their columns."""
        longest = int(self.max_length)
        parts = TokenPart.all(self.start, self.end, self.inside, self.before, self.after)
        for place in ("first", "last"):
            lengths = self._gram_lengths(place)
            parts += [gram_part(place, lengths)] if lengths else []
        thresholds = self._thresholds()
        if self.length or thresholds:
            parts.append(LengthPart(longest if self.length else 0, thresholds))
        parts += [shape_part(longest)] if self.shape else []
        for name, index in zip(self._lexicons() if len(indices) else [], indices):
            parts.append(
                LexiconPart(
                    name, index, longest, self._lowest(), self.n_gram, int(self.n_candidates)
                )
            )
        functions = named_functions(self.functions, "segment")
        wide = [item for item in functions if sees_context(item[1])]
        functions = [item for item in functions if item not in wide]
        parts += [function_part(functions, longest)] if functions else []
        return parts + ([ContextPart(wide, longest)] if wide else [])

    def _remember(self, columns: Any) -> None:
        if columns is not None:
            columns.remember(self)
            return
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self.extractor_, name):
                setattr(self, name, getattr(self.extractor_, name))
            elif hasattr(self, name):
                delattr(self, name)


def _tokens(extracted: Sequences | None, columns: Any, column: str | None) -> Tokens:
    words = codes = rows = None
    if extracted is not None:
        offsets, rows = extracted.offsets, extracted.rows
        rows = rows if extracted.is_sparse else sparse.csr_matrix(rows)
    if rows is None or column is not None:
        (words,), (codes,), offsets = distinct_tokens(columns, [column or columns.names[0]])
    return Tokens(offsets, rows, words, codes, None if columns is None else columns.sequences)


def step_templates(
    features: SegmentFeatures, n_token_features: int
) -> list[tuple[StepTemplate, int]] | None:
    """Return templates of the potentials of single steps, each with its part's first column.

    None if some potentials do not depend on single tokens. ``n_token_features``: columns of the
    fitted extractor.
    """
    found, first = [], 0
    for part, values in zip(features._parts(features.lexicons_), features.values_):
        templates = part.templates(n_token_features)
        if templates is None:
            return None
        if BIAS in values:
            templates.append(StepTemplate(1, OPEN_BOTH, None, n_token_features))
        found += [(template, first) for template in templates]
        first += part.n_columns(values, n_token_features)
    return found


class _Stored(NamedTuple):
    """Potentials of all sequences, with all columns; ``start`` counts tokens of all of them."""

    kind: np.ndarray
    start: np.ndarray
    length: np.ndarray
    row: np.ndarray
    rows: Any  # CSR

    def counts(self) -> np.ndarray:
        """Return the number of potentials with each column."""
        times = np.bincount(self.row, minlength=self.rows.shape[0])
        times = np.repeat(times, np.diff(self.rows.indptr))
        return np.bincount(self.rows.indices, times, minlength=self.rows.shape[1])

    def packed(self, kept: np.ndarray, offsets: np.ndarray) -> SegmentPotentials:
        """Return the potentials with a kept column, in the order of their starts."""
        rows = kept_columns(self.rows, kept)
        left = np.flatnonzero(np.diff(rows.indptr)[self.row] > 0)
        left = left[np.argsort(self.start[left], kind="stable")]
        start, row = self.start[left], self.row[left]
        used = np.bincount(row, minlength=rows.shape[0]) > 0
        ends = np.searchsorted(start, offsets)
        start = start - np.repeat(offsets[:-1], np.diff(ends))
        return SegmentPotentials(
            np.diff(offsets), ends, self.kind[left], start, start + self.length[left],
            rows[np.flatnonzero(used)], row=(np.cumsum(used) - 1)[row],
        )  # fmt: skip


def _store(parts: list[Part], tokens: Tokens, values: list[dict], grow: bool, dtype: Any):
    """Return the potentials of all parts, with the columns of the parts side by side."""
    n_features = 0 if tokens.rows is None else tokens.rows.shape[1]
    found, bases, n_columns = [], [], 0
    for part, of_part in zip(parts, values):
        blocks = part.potentials(tokens, of_part, grow)
        found += blocks
        bases += [n_columns] * len(blocks)
        n_columns += part.n_columns(of_part, n_features)
    first = offsets_of([block.rows.shape[0] for block in found])
    sizes = [len(block.start) for block in found]
    return _Stored(
        np.repeat([block.kind for block in found], sizes),
        np.concatenate([block.start for block in found]),
        np.repeat([block.length for block in found], sizes),
        np.concatenate([block.row + n for block, n in zip(found, first)]),
        stack_rows([block.rows for block in found], bases, n_columns, dtype),
    )

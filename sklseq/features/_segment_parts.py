"""Kinds of features of segments, each with the potentials that represent it.

A part turns tokens into potentials (kind, start, stop, row). For features of a segment [i, j):

===================================== ========== ==================================
feature of                            kind       span
===================================== ========== ==================================
token i + k                           OPEN_END   [i, i + k + 1)
token j - 1 - k                       OPEN_START [j - k - 1, j)
each of its tokens t (a sum)          OPEN_BOTH  [t, t + 1)
token i - k                           OPEN_END   [i, i + 1)
token j - 1 + k                       OPEN_START [j - 1, j)
its first k tokens, j - i ≥ k         OPEN_END   [i, i + k)
its last k tokens                     OPEN_START [j - k, j)
length, shape, lexicons, functions    EXACT      [i, j)
===================================== ========== ==================================
"""

import itertools
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from sklseq._lib.checks import is_number
from sklseq._lib.ragged import ranges
from sklseq._lib.signatures import n_required, takes
from sklseq.data.segment_potentials import EXACT, OPEN_BOTH, OPEN_END, OPEN_START
from sklseq.data.tables import protected
from sklseq.features._kinds import attributes_of, result_of
from sklseq.features._similarity import (
    closest_entries,
    equal_entries,
    jaro_winkler,
    normal_form,
)
from sklseq.features._spans import Spans, distinct_rows, distinct_spans
from sklseq.features._token_table import short_shapes

BIAS = "bias"


class Potentials(NamedTuple):
    """Potentials of a part; ``start`` is a position among the tokens of all sequences.

    Attributes
    ----------
    kind : int
    start, row : ndarray of shape (n_potentials,)
    length : ndarray of shape (n_potentials,), or int
        ``stop - start``.
    rows : CSR matrix of shape (n_rows, n_columns of the part)
    """

    kind: int
    start: np.ndarray
    length: Any
    row: np.ndarray
    rows: Any


class StepTemplate(NamedTuple):
    """One potential of each step: of the last ``length`` tokens, the step's among them.

    Attributes
    ----------
    length, kind : int
    token : int or None
        It has the features of the token at this distance from that of the step; beyond the ends
        of the sequence and for None, the column ``mark`` of the part.
    mark : int
    """

    length: int
    kind: int
    token: int | None
    mark: int


class Tokens:
    """The tokens of all sequences.

    Parameters
    ----------
    offsets : ndarray of shape (n_sequences + 1,)
    rows : CSR matrix, or None
        Features of each token.
    words : list of str, codes : int32 ndarray
        Distinct tokens, and the number of each token among them; both may be None.
    sequences : list
        Sequences in the form in which the user gave them; may be None.
    """

    def __init__(self, offsets, rows, words, codes, sequences=None):
        self.offsets = offsets
        self.rows = rows
        self.words = words
        self.codes = codes
        self.sequences = sequences

    @property
    def n(self) -> int:
        return int(self.offsets[-1])

    @cached_property
    def before(self) -> np.ndarray:
        """Number of tokens before each in its sequence."""
        return ranges(0, np.diff(self.offsets))

    @cached_property
    def from_here(self) -> np.ndarray:
        """Number of tokens from each to the end of its sequence, itself included."""
        return np.repeat(self.offsets[1:], np.diff(self.offsets)) - np.arange(self.n)

    @cached_property
    def distinct(self) -> tuple[Any, np.ndarray]:
        """Distinct rows, and the number of each token's row among them.

        The last row and the last column are those of tokens beyond the ends.
        """
        rows, number = distinct_rows(self.rows)
        n, m = rows.shape
        indptr = np.concatenate([rows.indptr, [rows.nnz + 1]])
        marked = (np.append(rows.data, 1), np.append(rows.indices, m), indptr)
        return sparse.csr_matrix(marked, shape=(n + 1, m + 1)), number

    def spans(self, values: list, longest: int) -> tuple[list, np.ndarray, list[Spans]]:
        """Return the distinct ``values`` of ``words``, the tokens' codes, and distinct spans."""
        key: dict = {}
        of_word = np.array([key.setdefault(v, len(key)) for v in values], dtype=np.int32)
        codes = of_word[self.codes]
        return list(key), codes, distinct_spans(codes, self.offsets, longest)


class Part:
    """One kind of feature of segments.

    ``potentials(tokens, values, grow)`` finds columns in ``values``, a dict from name to column,
    and adds new names if ``grow``; ``names(values, token_names)`` are the names of its columns.
    ``templates(n_token_features)``: the same potentials as ``StepTemplate``; None if they do not
    depend on single tokens.
    """

    def potentials(self, tokens: Tokens, values: dict, grow: bool) -> list[Potentials]:
        raise NotImplementedError

    def templates(self, n_token_features: int) -> list[StepTemplate] | None:
        return None

    def n_columns(self, values: dict, n_token_features: int) -> int:
        return len(values)

    def names(self, values: dict, token_names: list[str]) -> list[str]:
        return list(values)


class TokenPart(Part):
    """Features of the token at ``shift`` from the first token of a potential of ``span`` tokens.

    A token beyond the ends of its sequence has the feature ``mark``. The mark ``BIAS`` is instead a
    feature of each token if values of training tokens are not all 1: the sum of numbers over a
    segment grows with its length, and needs another that it is compared with.
    """

    def __init__(self, prefix: str, kind: int, span: int, shift: int, mark: str | None = None):
        self.prefix, self.kind, self.span, self.shift, self.mark = prefix, kind, span, shift, mark

    @classmethod
    def all(cls, start: int, end: int, inside: bool, before: int, after: int) -> list[Self]:
        """Return the parts of the first tokens, the last ones, all tokens, and neighbours."""
        return [
            *(cls(_nth("start", k), OPEN_END, k, k - 1) for k in range(1, start + 1)),
            *(cls(_nth("end", k), OPEN_START, k, 0) for k in range(1, end + 1)),
            *([cls("inside:", OPEN_BOTH, 1, 0, BIAS)] if inside else []),
            *(cls(_nth("before", k), OPEN_END, 1, -k, "__BOS__") for k in range(1, before + 1)),
            *(cls(_nth("after", k), OPEN_START, 1, k, "__EOS__") for k in range(1, after + 1)),
        ]

    def potentials(self, tokens: Tokens, values: dict, grow: bool) -> list[Potentials]:
        rows, number = tokens.distinct
        start = np.flatnonzero(tokens.from_here >= self.span)
        seen = (tokens.before[start] + self.shift >= 0) & (self.shift < tokens.from_here[start])
        row = np.full(len(start), rows.shape[0] - 1)
        row[seen] = number[start[seen] + self.shift]
        found = [Potentials(self.kind, start, self.span, row, rows)]
        if self.mark == BIAS:
            if grow and not (tokens.rows.data == 1).all():
                values[BIAS] = rows.shape[1] - 1
            if BIAS in values:
                found.append(found[0]._replace(row=np.full(len(start), rows.shape[0] - 1)))
        return found

    def templates(self, n_token_features: int) -> list[StepTemplate]:
        return [StepTemplate(self.span, self.kind, self.shift - self.span + 1, n_token_features)]

    def n_columns(self, values: dict, n_token_features: int) -> int:
        return n_token_features + 1

    def names(self, values: dict, token_names: list[str]) -> list[str]:
        return [self.prefix + name for name in [*token_names, self.mark or ""]]


def _nth(place: str, k: int) -> str:
    return f"{place}{k}:" if k > 1 else f"{place}:"


class SpanPart(Part):
    """Named features of the spans of some lengths.

    Parameters
    ----------
    kind : int
    lengths : sequence of int
    values_of : callable
        From the distinct words to a value (str) of each.
    features_of : callable
        From the values of the tokens of a span to its features, pairs of name and value.
    """

    def __init__(
        self, kind: int, lengths: Sequence[int], values_of: Callable, features_of: Callable
    ):
        self.kind, self.lengths = kind, lengths
        self.values_of, self.features_of = values_of, features_of

    def potentials(self, tokens: Tokens, values: dict, grow: bool) -> list[Potentials]:
        words, codes, all_spans = tokens.spans(self.values_of(tokens.words), max(self.lengths))
        out = []
        for spans in all_spans:
            if spans.length in self.lengths:
                texts = codes[spans.example[:, None] + np.arange(spans.length)].tolist()
                found = [self.features_of([words[code] for code in text]) for text in texts]
                out.append(_of_rows(self.kind, spans, _named_rows(found, values, grow)))
        return out


def gram_part(place: str, lengths: list[int]) -> SpanPart:
    """Return the part of the first (last) k tokens in lower case, for each k of ``lengths``."""
    return SpanPart(
        OPEN_END if place == "first" else OPEN_START,
        lengths,
        lambda words: [word.lower() for word in words],
        lambda span: [(f"{place}{len(span)}={' '.join(span)}", 1.0)],
    )


def shape_part(longest: int) -> SpanPart:
    """Return the part of short shapes, repeated ones as one with a "+": ``"Xx+ X. d"``."""
    return SpanPart(
        EXACT,
        range(1, longest + 1),
        short_shapes,
        lambda span: [(f"shape={_pattern(span)}", 1.0)],
    )


def _pattern(shapes: list[str]) -> str:
    runs = ((shape, len(list(run))) for shape, run in itertools.groupby(shapes))
    return " ".join(shape + "+" * (n > 1) for shape, n in runs)


def function_part(functions: list[tuple[str, Callable]], longest: int) -> SpanPart:

    def features_of(span: list[str]) -> list[tuple[str, float]]:
        return [
            pair
            for name, f in functions
            for pair in _pairs(name, span, result_of(name, "segment", span, f, span[:]))
        ]

    return SpanPart(EXACT, range(1, longest + 1), list, features_of)


class ContextPart(Part):
    """Values of functions of a sequence and the start and stop of a segment in it."""

    def __init__(self, functions: list[tuple[str, Callable]], longest: int):
        self.functions, self.longest = functions, longest

    def potentials(self, tokens: Tokens, values: dict, grow: bool) -> list[Potentials]:
        out = []
        of = np.repeat(np.arange(len(tokens.offsets) - 1), np.diff(tokens.offsets))
        sequences = list(map(protected, tokens.sequences))
        for length in range(1, self.longest + 1):
            start = np.flatnonzero(tokens.from_here >= length)
            found = [
                self._features_of(sequences[s], i, i + length)
                for s, i in zip(of[start].tolist(), tokens.before[start].tolist())
            ]
            used = np.flatnonzero([bool(pairs) for pairs in found])
            rows = _named_rows([found[k] for k in used], values, grow)
            out.append(Potentials(EXACT, start[used], length, np.arange(len(used)), rows))
        return out

    def _features_of(self, sequence: Any, start: int, stop: int) -> list[tuple[str, float]]:
        span = (start, stop)
        return [
            pair
            for name, f in self.functions
            for pair in _pairs(name, span, result_of(name, "segment", span, f, sequence, *span))
        ]


def sees_context(function: Callable) -> bool:
    """Whether a function takes (sequence, start, stop), not the tokens of a segment."""
    n = n_required(function)
    if n != 3 and not takes(function, 1):
        raise ValueError(
            "functions must take one argument, the tokens of a segment, or three, (sequence, "
            f"start, stop); got {function!r}."
        )
    return n == 3


def field_of_function(function: Callable) -> tuple[float, float]:
    """Numbers of tokens before and after a segment that a function of its sequence reads."""
    field = getattr(function, "receptive_field", (math.inf, math.inf))
    is_pair = isinstance(field, (tuple, list)) and len(field) == 2
    if not is_pair or not all(
        n == math.inf or (is_number(n, whole=True) and n >= 0) for n in field
    ):
        raise ValueError(
            f"receptive_field of the function {function!r} must be a pair of integers of at least "
            f"0, the numbers of tokens before and after a segment that it reads; got {field!r}."
        )
    return field[0], field[1]


class LengthPart(Part):
    """Number of tokens up to ``longest``, and whether it exceeds each of ``thresholds``."""

    def __init__(self, longest: int, thresholds: list[int]):
        self.longest, self.thresholds = longest, thresholds

    def potentials(self, tokens: Tokens, values: dict, grow: bool) -> list[Potentials]:
        eye, out = sparse.identity(self.n_columns(values, 0), format="csr"), []
        for length, kind, _, column in self.templates(0):
            start = np.flatnonzero(tokens.from_here >= length)
            out.append(Potentials(kind, start, length, np.full(len(start), column), eye))
        return out

    def templates(self, n_token_features: int) -> list[StepTemplate]:
        kinds = [(k, EXACT) for k in range(1, self.longest + 1)]
        kinds += [(k + 1, OPEN_END) for k in self.thresholds]
        return [StepTemplate(*one, None, column) for column, one in enumerate(kinds)]

    def n_columns(self, values: dict, n_token_features: int) -> int:
        return self.longest + len(self.thresholds)

    def names(self, values: dict, token_names: list[str]) -> list[str]:
        exact = [f"length={k}" for k in range(1, self.longest + 1)]
        return exact + [f"length>{k}" for k in self.thresholds]


class LexiconPart(Part):
    """Similarities of the segment to the most similar entry of a lexicon."""

    def __init__(
        self, name: str, index: dict, longest: int, lowest: dict[str, float],
        n_gram: int | None, n_candidates: int,
    ):  # fmt: skip
        """``lowest`` is the threshold of each similarity; lower values count as 0."""
        self.name, self.index, self.longest, self.lowest = name, index, longest, lowest
        self.n_gram, self.n_candidates = n_gram, n_candidates

    def potentials(self, tokens: Tokens, values: dict, grow: bool) -> list[Potentials]:
        known, codes, all_spans = tokens.spans([normal_form(w) for w in tokens.words], self.longest)
        n_best = self.n_candidates if "jaro_winkler" in self.lowest else 0
        cosine, best = closest_entries(
            self.index, known, codes, tokens.offsets, self.longest, self.n_gram, n_best
        )
        all_spans, tables = list(all_spans), {"tfidf": cosine}
        if n_best:
            tables["jaro_winkler"] = jaro_winkler(
                self.index, known, codes, all_spans, best, self.lowest["jaro_winkler"]
            )
        if "exact" in self.lowest:
            tables["exact"] = equal_entries(self.index, known, codes, all_spans, cosine)
        lowest = np.array(list(self.lowest.values()))
        out = []
        for spans in all_spans:
            at = spans.example, spans.length - 1
            table = np.stack([tables[name][at] for name in self.lowest], axis=1)
            table[table < lowest] = 0
            out.append(_of_rows(EXACT, spans, sparse.csr_matrix(table)))
        return out

    def n_columns(self, values: dict, n_token_features: int) -> int:
        return len(self.lowest)

    def names(self, values: dict, token_names: list[str]) -> list[str]:
        return [f"lexicon.{self.name}.{similarity}" for similarity in self.lowest]


def _pairs(name: str, span: list[str] | tuple, value: Any) -> list[tuple[str, float]]:
    """Return the features of a function's result and their values."""
    if is_number(value):
        return _finite(name, span, {name: value})
    if isinstance(value, Mapping) and any(is_number(v) for v in value.values()):
        numeric = {key: v for key, v in value.items() if is_number(v)}
        value = {key: v for key, v in value.items() if not is_number(v)}
        return _pairs(name, span, value) + _finite(name, span, numeric)
    attributes = attributes_of(name, "segment", span, value, "Numbers are allowed, too.")
    return [(attribute, 1.0) for attribute in attributes]


def _finite(name: str, span: list[str] | tuple, found: Mapping) -> list[tuple[str, float]]:
    for key, value in found.items():
        # numpy would convert the limit to the type of the value: to infinity as float32.
        number = value.item() if isinstance(value, np.floating) else value
        if not isinstance(key, str) or not abs(number) <= sys.float_info.max:
            raise ValueError(
                f"The function {name!r} must return finite numbers with str keys; for the segment "
                f"{span!r} it returned {key!r}: {value!r:.60}."
            )
    return [(key, float(value)) for key, value in found.items() if value != 0]


def _named_rows(found: list[list[tuple[str, float]]], values: dict, grow: bool) -> Any:
    """Return the rows of spans with named features; unknown names are dropped.

    Later spans may add columns, see ``n_columns``.
    """
    indptr, columns, data = [0], [], []
    for pairs in found:
        for name, value in pairs:
            column = values.setdefault(name, len(values)) if grow else values.get(name)
            if column is not None:
                columns.append(column)
                data.append(value)
        indptr.append(len(columns))
    shape = len(found), max(len(values), 1)
    rows = sparse.csr_matrix((np.array(data, dtype=float), np.array(columns, int), indptr), shape)
    rows.sum_duplicates()
    return rows


def _of_rows(kind: int, spans: Spans, rows: Any) -> Potentials:
    used = np.diff(rows.indptr)[spans.number] > 0
    return Potentials(kind, spans.at[used], spans.length, spans.number[used], rows)

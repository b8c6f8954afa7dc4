"""Reader of raw token columns: form of X, names of its columns, distinct tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sklseq._lib.checks import is_number
from sklseq.data.column_sequences import ColumnSequences
from sklseq.data.sequences import is_sparse
from sklseq.data.tables import (
    Coded,
    column_list,
    is_table,
    list_sequences,
    table_columns,
)
from sklseq.data.types import TokensLike
from sklseq.features import _encode
from sklseq.features._encode import TokenNumbers

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

_FORMS = {
    "columns": "a mapping from column name to list of strings",
    "tokens": "a list of strings",
    "rows": "a list of tuples or lists of strings",
    "dicts": "a list of dicts from column name to string",
}


class Columns(NamedTuple):
    """Sequences of token columns of one form.

    Attributes
    ----------
    names : tuple of str
        Column names, in order.
    form : {"columns", "tokens", "rows", "dicts"}
        Form of a sequence.
    sequences : list or ColumnSequences
    width : int
        Number of columns of the first row or mapping.
    """

    names: tuple[str, ...]
    form: str
    sequences: list | ColumnSequences
    width: int = 1

    def lengths(self, name: str) -> np.ndarray:
        """Return the number of rows of each sequence in one column."""
        if isinstance(self.sequences, ColumnSequences):
            return self.sequences.lengths
        sequences = self.sequences if self.form != "columns" else self.column(name)[1]
        return np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))

    def column(self, name: str) -> tuple[str, list, Any]:
        """Return the arguments ``form, sequences, key`` of the kernels for a column."""
        if self.form == "columns":
            plain = self._plain(name)
            return "tokens", plain or list(map(column_list, self.raw(name))), name
        if self.form == "tokens":  # the name is not the user's
            return "tokens", self.sequences, None
        if self.form != "rows":
            return self.form, self.sequences, name
        if name not in self.names:
            raise ValueError(
                f"Tokens of X are tuples or lists, whose columns are {list(self.names)}, and the "
                f"column {name!r} is read; give tokens of the form of the training data."
            )
        return self.form, self.sequences, self.names.index(name)

    def raw(self, name: str) -> list:
        """Return the values of a column in each sequence, without conversion."""
        if isinstance(self.sequences, ColumnSequences):
            if name not in self.sequences.columns_:
                raw_column(self.sequences.columns_, name, 0)  # which raises the error
            return self.sequences.cut(name)
        if self.form == "columns":
            known = self._plain(name)
            return known or [raw_column(x, name, s) for s, x in enumerate(self.sequences)]
        form, sequences, key = self.column(name)
        if form == "tokens":
            return sequences
        try:
            return [[row[key] for row in x] for x in sequences]
        except (LookupError, TypeError):
            raise _no_column(sequences, key, name) from None

    def _plain(self, name: str) -> list[list] | None:
        # The lists of a column if all sequences are dicts of lists, otherwise None.
        if isinstance(self.sequences, ColumnSequences):
            return None
        return _encode.plain_columns(self.sequences, name)

    def encode(
        self, name: str, known: TokenNumbers, first: int, starts: np.ndarray, codes: np.ndarray,
        grow: bool,
    ) -> None:  # fmt: skip
        """Write the codes of a column's tokens, from position ``starts[s]`` for sequence s.

        The code of a token is ``first`` plus its number in ``known``. Other tokens have code 0, or
        are added to ``known`` if ``grow``.
        """
        if isinstance(self.sequences, ColumnSequences) and self._encode_rows(
            self.sequences, name, known, first, starts, codes, grow
        ):
            return
        form, sequences, key = self.column(name)
        _encode.encode_column(sequences, form, key, known, first, starts, codes, grow)

    @staticmethod
    def _encode_rows(
        X: ColumnSequences, name: str, known: TokenNumbers, first: int, starts: np.ndarray,
        codes: np.ndarray, grow: bool,
    ) -> bool:  # fmt: skip
        # ``encode`` for columns of all sequences in one; False if the column does not hold strings.
        column = X.columns_.get(name, [None])
        strings = column.distinct if isinstance(column, Coded) else column_list(column)
        found, origin = np.empty(len(strings), dtype=np.int32), np.zeros(1, dtype=np.int64)
        try:
            _encode.encode_column([strings], "tokens", name, known, first, origin, found, grow)
        except ValueError:
            return False
        if isinstance(column, Coded):
            found = found[column.codes]
        shift = starts[: len(X)] - X.offsets[:-1]
        if shift.any():
            codes[np.repeat(shift, X.lengths) + np.arange(len(found))] = found
        else:
            codes[: len(found)] = found
        return True

    def check_lengths(self, name: str, lengths: np.ndarray) -> None:
        """Raise a ValueError if the lengths of a column differ from those of an earlier one."""
        if self.form != "columns" or isinstance(self.sequences, ColumnSequences):
            return
        found = np.fromiter(map(len, self.raw(name)), dtype=np.int64, count=len(lengths))
        for s in np.flatnonzero(found != lengths).tolist():
            raise ValueError(
                f"Columns of a sequence must be equally long; column {name!r} of sequence "
                f"{s} of X has {found[s]} values, an earlier column {lengths[s]}."
            )

    def remember(self, estimator: BaseEstimator) -> None:
        """Set ``n_features_in_``, and ``feature_names_in_`` if columns have names."""
        estimator.n_features_in_ = self.width
        if self.form in ("columns", "dicts") and len(self.names) == self.width:
            estimator.feature_names_in_ = np.array(self.names, dtype=object)
        elif hasattr(estimator, "feature_names_in_"):
            del estimator.feature_names_in_

    def like(self, estimator: BaseEstimator) -> Columns:
        """These columns; raise a ValueError if the training data had others.

        Mappings and dicts may have more; a missing column is an error when it is read.
        """
        may_differ = self.form in ("columns", "dicts") or not _holds_tokens(self.sequences)
        if not may_differ and self.width != estimator.n_features_in_:
            raise ValueError(
                f"X has {self.width} columns, but {public_name(estimator)} was fitted on "
                f"{estimator.n_features_in_}; give the columns of the training data, in its order."
            )
        return self


def public_name(transform: Any) -> str:
    """Return the class name of an extractor, also for its transform in an exported model."""
    return type(transform).__name__.replace("Transform", "Features")


def raw_column(sequence: Any, name: str, s: int) -> Any:
    """Return a column of sequence ``s``, a mapping or table, without conversion."""
    if type(sequence) is list and not sequence:  # an empty sequence may have any form
        return sequence
    try:
        values = sequence[name]
    except Exception:  # polars and pyarrow have their own errors
        known = table_columns(sequence) if is_table(sequence) else list(sequence.keys())
        raise ValueError(f"Sequence {s} of X has no column {name!r}; it has {known}.") from None
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        raise ValueError(
            f"Column {name!r} of sequence {s} of X must be a list; got "
            f"{type(values).__name__}. If X is one sequence of dicts, wrap it in a list: [X]."
        )
    return values


def _no_column(sequences: list, key: Any, name: str) -> ValueError:
    # The error for the first row that has no such column.
    for s, x in enumerate(sequences):
        for t, row in enumerate(x):
            try:
                row[key]
            except (LookupError, TypeError):
                return ValueError(
                    f"Row {t} of sequence {s} of X has no column {name!r}; got {row!r:.60}. Give "
                    "every row all columns."
                )
    raise AssertionError("every row has the column")


def column_of(sequence: Any, name: str, s: int) -> list:
    """Return a column of sequence ``s``, a mapping or table, as a list."""
    return column_list(raw_column(sequence, name, s))


def read_columns(X: TokensLike, names: tuple[str, ...] | None = None) -> Columns:
    """Check the form of ``X`` and name its columns, without a check of the strings.

    Parameters
    ----------
    X : list of sequences
        Each a mapping from column name to list of str, a list of str, a list of tuples or
        lists of str, or a list of dicts from column name to str.
    names : tuple of str, optional
        Column names. By default the keys of the first mapping or dict; "w" for plain strings;
        "c0", "c1", ... for tuples.

    Raises
    ------
    ValueError
        If ``X`` is not a list of sequences, or two sequences differ in form.
    """
    if hasattr(X, "n_potentials"):  # SegmentPotentials, without an import of SciPy
        raise ValueError(
            "X is SegmentPotentials, which holds no tokens; give extractors the tokens, and "
            "SegmentReranker a Pipeline that begins with SegmentFeatures, or text=False."
        )
    if isinstance(X, ColumnSequences):
        own_names = tuple(X.columns_)
        return Columns(own_names if names is None else tuple(names), "columns", X, len(own_names))
    sequences = list_sequences(X)
    form, example, at = "tokens", None, 0
    if set(map(type, sequences)) == {dict}:  # the most frequent form of columns
        form, example = "columns", sequences[0]
    for s, sequence in enumerate(sequences if example is None else []):
        this = _form_of(sequence, s)
        if this == form or this == "empty":
            continue
        if example is not None or _holds_tokens(sequences[:s]):
            raise ValueError(
                f"All sequences of X must have one form; sequence {s} is {_FORMS[this]}, "
                f"an earlier sequence is {_FORMS[form]}. Convert them to the same form."
            )
        form, example, at = this, sequence, s
    if example is None:  # plain strings: no example was needed
        own_names = ("w",)
    else:
        own_names = _names(form, example)
        if not own_names and names is None:
            raise ValueError(
                f"Sequence {at} of X has tokens without columns: {example!s:.40}; "
                "every token needs at least one, and an empty sequence is an empty list."
            )
    return Columns(own_names if names is None else tuple(names), form, sequences, len(own_names))


def select_columns(reader: Any, columns: Columns) -> list[str]:
    """Return the columns that ``reader.columns`` selects by name or position (None: the only one).

    ``reader`` is an estimator, which errors name.
    """
    selected, kind = reader.columns, type(reader).__name__
    if selected is None:
        if len(columns.names) > 1:
            raise ValueError(
                f"X has the columns {list(columns.names)}; {kind}(columns=) must say which to "
                "read, without the label."
            )
        return list(columns.names)
    several = selected if isinstance(selected, (list, tuple, np.ndarray)) else [selected]
    if len(several) == 0:
        raise ValueError(f"{kind}(columns=) must name at least one column; got an empty list.")
    names = [_select_column(name, columns, kind) for name in several]
    if len(set(names)) < len(names):
        raise ValueError(
            f"{kind}(columns=) must hold different columns; got {selected!r}. Remove one."
        )
    return names


def _select_column(name: Any, columns: Columns, kind: str) -> str:
    if is_number(name, whole=True):
        if -len(columns.names) <= name < len(columns.names):
            return columns.names[name]
    elif name in columns.names or not _holds_tokens(columns.sequences):
        return str(name)
    raise ValueError(
        f"{kind}(columns=) must hold names or positions of the columns of X, "
        f"{list(columns.names)}; got {name!r}."
    )


def _holds_tokens(sequences: list) -> bool:
    return any(len(sequence) for sequence in sequences)


def _form_of(sequence: Any, s: int) -> str:
    if type(sequence) is list and sequence and type(sequence[0]) is str:  # the most frequent form
        return "tokens"
    if isinstance(sequence, (dict, Mapping)) or hasattr(sequence, "keys") or is_table(sequence):
        return "columns"
    if not isinstance(sequence, (list, tuple, np.ndarray)):
        advice = "If X is one sequence, wrap it in a list: [X]."
        if isinstance(sequence, str):
            advice = f"{advice} If it is a list of texts, cut each into tokens: text.split()."
        if is_sparse(sequence):
            advice = "Rows of numbers need no extractor of tokens: use PerToken, or a tagger alone."
        if isinstance(sequence, Iterator):
            advice = "Read it into a list: list(x)."
        raise ValueError(
            f"Sequence {s} of X must be a mapping of columns, or a list of strings, tuples or "
            f"dicts; got {type(sequence).__name__}. {advice}"
        )
    return _form_of_row(sequence[0], s) if len(sequence) else "empty"


def _form_of_row(row: Any, s: int) -> str:
    if isinstance(row, str):
        return "tokens"
    numbers_only = isinstance(row, np.ndarray) and row.dtype.kind not in "OUT"
    if isinstance(row, (tuple, list, np.ndarray)) and not numbers_only:
        return "rows"
    if isinstance(row, Mapping):
        return "dicts"
    advice = "Convert tokens with str() or decode them."
    if numbers_only:
        advice = "Rows of numbers need no extractor of tokens: use PerToken, or a tagger alone."
    raise ValueError(
        f"Row 0 of sequence {s} of X must be a string, a tuple of strings or a dict of strings; "
        f"got {row!r} ({type(row).__name__}). {advice}"
    )


def _names(form: str, example: Any) -> tuple[str, ...]:
    if form == "columns":
        return tuple(table_columns(example) if is_table(example) else example.keys())
    if form == "dicts":
        return tuple(example[0].keys())
    if form == "rows":
        return tuple(f"c{i}" for i in range(len(example[0])))
    return ("w",)

"""Extractor that applies a transformer of rows to the rows of all sequences."""

from __future__ import annotations

from collections.abc import Callable, Set
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.feature_selection import SelectorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.utils import get_tags

from sklseq.data.labels import PartialLabelError, read_labels
from sklseq.data.partial_labels import PartialLabels
from sklseq.data.segment_labels import UNKNOWN, empty_lists, holds_segments, read_segments
from sklseq.data.sequences import Sequences, as_sequences
from sklseq.data.tables import column_list, is_column, is_table
from sklseq.data.types import ArrayLike, ColumnsLike
from sklseq.features._columns import Columns, read_columns, select_columns
from sklseq.features._extracted_blocks import each_block, first_block
from sklseq.features._family import Extractor, as_names, input_names, no_tables
from sklseq.features._numbers import read_numbers
from sklseq.features._token_transform import distinct_tokens


class PerToken(Extractor, auto_wrap_output_keys=None):
    """A transformer of scikit-learn, or a function, applied to every row of every sequence.

    Used with ``StandardScaler``, ``PCA``, ``Nystroem`` or ``SelectKBest`` on rows of numbers, with
    ``HashingVectorizer`` or ``OneHotEncoder`` on tokens, and with functions that return embeddings.

    Parameters
    ----------
    transformer : transformer or callable, default=None
        A transformer that works row by row, or a function from a token (from a row of numbers,
        if ``X`` holds numbers) to a vector or a number. None: rows are not changed.
    columns : str, int, list of them, slice or mask, default=None
        Columns for the transformer; others are dropped. Columns of tokens are selected as in
        ``ColumnTransformer``: a single name or position gives a list of strings, for text
        vectorizers; a list of names gives an object array of columns, without names, for encoders.
        Columns of numbers are selected by positions, a slice or a mask. None: all; functions and
        text vectorizers need a single column.

    Attributes
    ----------
    transformer_ : transformer or callable
        The fitted transformer.
    columns_ : list of str
        Columns of tokens that are read, if ``X`` contains tokens.
    numbers_ : list of str or None
        Names of the numbers in ``columns_``, if these hold numbers or vectors.
    n_features_in_ : int
        Columns of the training data.
    feature_names_in_ : ndarray of str
        Their names, if sequences were mappings or of dicts.
    n_features_out_ : int
        Number of features.

    Notes
    -----
    ``X`` has rows of numbers (2-D arrays, CSR, ``Sequences``) or tokens in a form that
    :class:`TokenFeatures` reads. A column of tokens may also hold a number or a vector for each
    token: the transformer then reads the matrix of these, a function its rows. The transformer is
    fitted on the rows of all sequences, with their labels, or those of their segments, as ``y``.
    If some labels are unknown, feature selectors and transformers that need labels are fitted on
    the rows that have one, others on all rows without labels. Each distinct string, or combination
    of columns, is transformed once.

    On sequences in blocks (:class:`~sklseq.RowBlocks`), a transformer is fitted by ``partial_fit``
    on one block after another, without labels. A transformer that learns nothing from data, such
    as ``FunctionTransformer``, is fitted on the first block. Pass a fitted transformer as
    ``FrozenEstimator(transformer)``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklseq.features import PerToken
    >>> X = [np.array([[1.0], [3.0]]), np.array([[5.0]])]
    >>> PerToken(StandardScaler()).fit_transform(X).rows.ravel().round(2).tolist()
    [-1.22, 0.0, 1.22]
    >>> vectors = {"a": [0.1, 0.2], "b": [0.3, 0.4]}
    >>> PerToken(vectors.get).fit_transform([["a", "b"], ["a"]])[0].tolist()
    [[0.1, 0.2], [0.3, 0.4]]
    """

    reads_nan = True

    def __init__(
        self,
        transformer: BaseEstimator | Callable[[Any], Any] | None = None,
        *,
        columns: ColumnsLike | slice | ArrayLike | None = None,
    ):
        self.transformer = transformer
        self.columns = columns

    def _fit_rows(self, X: Any, y: Any) -> Sequences:
        columns = _tokens_of(X)
        fitted = self._fit_matrix(X, y) if columns is None else self._fit_columns(columns, y)
        out, self.transformer_ = fitted
        self.n_features_out_ = out.shape[1]
        return out

    def _fit_matrix(self, X: Any, y: Any) -> tuple[Sequences, Any]:
        packed = as_sequences(X, finite=False)
        if packed.n_rows == 0:
            raise ValueError("X must hold at least one row to fit a transformer; got 0.")
        chosen = _numeric_columns(packed, self.columns)
        rows, transformer = self._fit(chosen, _RowLabels.read(y, packed.offsets))
        self._forget_columns()
        self.n_features_in_ = packed.shape[1]
        return packed.with_rows(rows), transformer

    def _fit_columns(self, columns: Columns, y: Any) -> tuple[Sequences, Any]:
        names, numbers = self._selected(columns), None
        found = read_numbers(columns, names)
        if found is None:
            fitted = self._fit_strings(columns, y, names)
        else:
            packed, numbers = found
            rows, transformer = self._fit(packed.rows, _RowLabels.read(y, packed.offsets))
            fitted = packed.with_rows(rows), transformer
        self._forget_columns()
        self.columns_, self.numbers_ = names, numbers
        columns.remember(self)
        return fitted

    def _fit_strings(self, columns: Columns, y: Any, names: list[str]) -> tuple[Sequences, Any]:
        tokens, codes, offsets = distinct_tokens(columns, names)
        if offsets[-1] == 0:
            raise ValueError("X must hold at least one token to fit a transformer; got 0.")
        if self.transformer is None:
            raise ValueError(
                f"PerToken() leaves numbers as they are, and the columns {names} of X hold "
                "strings; give a transformer, such as OneHotEncoder(), or other columns."
            )
        values, labels = self._as_input(tokens, codes, names), _RowLabels.read(y, offsets)
        try:
            rows, transformer = self._fit(values, labels)
        except (ValueError, TypeError, AttributeError) as error:
            advice = None if self._is_function() else self._advice(values, names, str(error))
            if advice is None:
                raise
            said = str(error).strip().split("\n")[0].rstrip(".:")
            what = type(self.transformer).__name__
            raise ValueError(f"{what} cannot read {advice} (it said: {said}).") from error
        return Sequences(rows, offsets), transformer

    def _fit_blocks(self, X: Any, y: Any) -> None:
        first = _numeric_columns(_one_block(rows := first_block(X)), self.columns)
        inner = None if self.transformer is None or self._is_function() else self.transformer
        if inner is None or not _needs_data(inner):
            out, inner = self._fit(first, _RowLabels(None))
        elif hasattr(inner, "partial_fit"):
            _refuse_requests(inner := clone(inner))
            for block in each_block(X):
                inner.partial_fit(_numeric_columns(_one_block(block), self.columns))
            out = self._apply(inner, first)
        else:
            raise ValueError(
                f"{type(inner).__name__} is fitted on all rows at once, and X holds sequences in "
                "blocks; use a transformer with partial_fit, such as StandardScaler, or fit it on "
                "a sample and pass FrozenEstimator(transformer)."
            )
        self._forget_columns()
        self.transformer_, self.n_features_out_ = inner, out.shape[1]
        self.n_features_in_ = rows.shape[1]

    def _rows_of(self, X: Any) -> Sequences:
        if hasattr(self, "columns_"):
            return self._transform_tokens(X)
        packed = as_sequences(X, finite=False)
        if packed.n_rows == 0:
            return packed.with_rows(np.zeros((0, self.n_features_out_)))
        if packed.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {packed.shape[1]} features, but PerToken was fitted with "
                f"{self.n_features_in_}; give the columns of the training data."
            )
        chosen = _numeric_columns(packed, self.columns)
        return packed.with_rows(self._apply(self.transformer_, chosen))

    def _names(self, input_features: Any) -> Any:
        names = self._input_names(input_features)
        inner = self.transformer_
        if inner is None:
            return names
        if hasattr(inner, "get_feature_names_out"):
            known = getattr(inner, "feature_names_in_", None)
            if names is None or isinstance(known, np.ndarray):
                return inner.get_feature_names_out()
            return inner.get_feature_names_out(names)
        stem = getattr(inner, "__name__", type(inner).__name__).strip("<>").lower()
        return [f"{stem}{i}" for i in range(self.n_features_out_)]

    def _input_names(self, input_features: Any) -> np.ndarray | None:
        if getattr(self, "numbers_", None) is not None:
            return as_names(self.numbers_)
        if hasattr(self, "columns_"):
            # Text vectorizers have no input names: they derive names from the text.
            return None if self._is_single(self.columns_) else as_names(self.columns_)
        names = as_names(input_names(self.n_features_in_, input_features))
        return names if self.columns is None else names[_positions(self.columns)]

    def _selected(self, columns: Columns) -> list[str]:
        if self.columns is None and not self._is_function():
            return list(columns.names)
        return select_columns(self, columns)

    def _is_function(self) -> bool:
        return callable(self.transformer) and not hasattr(self.transformer, "transform")

    def _is_single(self, names: list[str]) -> bool:
        """Whether the transformer reads a list of strings rather than columns."""
        if self._is_function() or isinstance(self.columns, (str, int, np.integer)):
            return True
        return self.columns is None and len(names) == 1 and _reads(self.transformer, "string")

    def _forget_columns(self) -> None:
        for name in ("columns_", "numbers_", "feature_names_in_"):
            if hasattr(self, name):
                delattr(self, name)

    def _transform_tokens(self, X: Any) -> Sequences:
        columns = read_columns(X).like(self)
        if getattr(self, "numbers_", None) is not None:
            return self._transform_numbers(columns)
        tokens, codes, offsets = distinct_tokens(columns, self.columns_)
        if codes.shape[1] == 0:
            return Sequences(sparse.csr_matrix((0, self.n_features_out_)), offsets)
        distinct, place = np.arange(len(tokens[0]))[np.newaxis], codes[0]
        if len(tokens) > 1:
            distinct, place = np.unique(codes, axis=1, return_inverse=True)
        rows = self._apply(self.transformer_, self._as_input(tokens, distinct, self.columns_))
        return Sequences(rows[np.ravel(place)], offsets)

    def _transform_numbers(self, columns: Columns) -> Sequences:
        found = read_numbers(columns, self.columns_)
        if found is None:
            lengths = columns.lengths(self.columns_[0])
            if lengths.any():
                raise ValueError(f"Columns {self.columns_} held numbers in fit; pass numbers.")
            return Sequences(np.zeros((0, self.n_features_out_)), np.zeros(len(lengths) + 1, int))
        packed, numbers = found
        if numbers != self.numbers_:
            raise ValueError(
                f"Columns {self.columns_} hold {len(numbers)} numbers for each token, and "
                f"{len(self.numbers_)} in fit; give vectors of the same length."
            )
        return packed.with_rows(self._apply(self.transformer_, packed.rows))

    def _as_input(self, tokens: list[list[str]], codes: np.ndarray, names: list[str]) -> np.ndarray:
        """Return the strings with these codes as the transformer reads them."""
        values = as_names(list(chain.from_iterable(tokens)))[codes]
        return values[0] if self._is_single(names) else values.T

    def _advice(self, values: np.ndarray, names: list[str], said: str) -> str | None:
        """Describe the wrong input of a transformer, and the right value of ``columns=``."""
        reads_text = _reads(self.transformer, "string")
        if values.ndim == 1 and not reads_text:
            return f"a list of strings; write columns={names}, which gives an array of columns"
        if values.ndim == 2 and reads_text:
            return (
                f"an array of the columns {names}; write columns={names[0]!r}, which gives a list "
                "of strings, and join several PerToken by FeatureUnion"
            )
        if "dataframe" in said:
            return (
                f"names of columns, since PerToken passes an array of {names}; write positions "
                f"from 0 to {len(names) - 1}, or join several PerToken by FeatureUnion"
            )
        return None

    def _fit(self, rows: Any, y: _RowLabels) -> tuple[Any, Any]:
        is_fitted = self._is_function() or isinstance(self.transformer, FrozenEstimator)
        if self.transformer is None or is_fitted:
            return self._apply(self.transformer, rows), self.transformer
        _refuse_requests(inner := clone(self.transformer))
        if _reads(inner, "dict"):
            raise ValueError(
                f"{type(inner).__name__} reads dicts, and PerToken passes arrays of columns; for "
                "feature dicts use DictFeatures in place of PerToken."
            )
        # set_output would do the same, but text vectorizers do not accept it.
        with no_tables():
            if y.known is None:
                out = inner.fit_transform(rows, y.labels)
            elif isinstance(inner, SelectorMixin) or get_tags(inner).target_tags.required:
                out = inner.fit(rows[y.known], y.labels).transform(rows)
            else:
                out = inner.fit_transform(rows)
        return self._checked(out, rows.shape[0]), inner

    def _apply(self, transformer: Any, rows: Any) -> Any:
        if transformer is None:
            out = rows
        elif self._is_function():
            out = _by_function(transformer, rows)
        else:
            with no_tables():
                out = transformer.transform(rows)
        return self._checked(out, rows.shape[0])

    def _checked(self, out: Any, n_rows: int) -> Any:
        what = getattr(self.transformer, "__name__", type(self.transformer).__name__)
        if not sparse.issparse(out):
            out = np.asarray(out)
            out = out[:, np.newaxis] if out.ndim == 1 else out
            if out.dtype.kind not in "biuf":
                raise ValueError(f"{what} must give numbers; got {out.dtype}.")
        if out.ndim != 2 or out.shape[0] != n_rows:
            raise ValueError(
                f"{what} must give one row of features for each of {n_rows} rows; got shape "
                f"{out.shape}. A transformer that drops or adds rows cannot work per token."
            )
        return out.tocsr() if sparse.issparse(out) else out

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _tokens_of(X: Any) -> Columns | None:
    """Return the columns of tokens, or None if X has rows of numbers."""
    if isinstance(X, Sequences) or (isinstance(X, np.ndarray) and X.dtype != object):
        return None
    if not hasattr(X, "__len__") or isinstance(X, str) or sparse.issparse(X):
        return None  # as_sequences raises the error
    for x in X:
        x = column_list(x) if is_column(type(x)) else x
        if sparse.issparse(x) or (isinstance(x, np.ndarray) and x.dtype.kind in "biuf"):
            return None
        if isinstance(x, (str, bytes, Set)) or not hasattr(x, "__len__"):
            break
        if hasattr(x, "keys") or is_table(x):  # tables are not indexed by row
            break
        if len(x):
            first = x[0]
            values = first if isinstance(first, (list, tuple, np.ndarray)) else [first]
            if len(values) and not isinstance(values[0], (str, bytes, dict)):
                return None
            break
    return read_columns(X)


def _reads(transformer: Any, kind: str) -> bool:
    """Whether a transformer, or the first step of a Pipeline, reads a list of this kind.

    ``kind``: "string" or "dict".
    """
    if isinstance(transformer, Pipeline) and transformer.steps:
        return _reads(transformer.steps[0][1], kind)
    if isinstance(transformer, FeatureUnion):
        return any(_reads(part, kind) for _, part in transformer.transformer_list)
    if not hasattr(transformer, "__sklearn_tags__"):
        return False
    tags = get_tags(transformer).input_tags
    return getattr(tags, kind) and not tags.two_d_array


def _refuse_requests(transformer: Any) -> None:
    # Metadata are of sequences, and a transformer of rows gets none.
    parts = [transformer, *getattr(transformer, "get_params", dict)().values()]
    for part in parts:
        if isinstance(part, type) or not hasattr(part, "get_metadata_routing"):
            continue
        routing = part.get_metadata_routing()
        for method in ("fit", "partial_fit", "transform"):
            requests = getattr(getattr(routing, method, None), "requests", {})
            asked = sorted(name for name, alias in requests.items() if alias not in (None, False))
            if asked:
                raise ValueError(
                    f"PerToken passes no metadata to its transformer, but {type(part).__name__} "
                    f"requests {asked[0]} for {method}; call "
                    f"set_{method}_request({asked[0]}=False)."
                )


def _one_block(rows: Any) -> Sequences:
    return as_sequences([rows], finite=False)


def _needs_data(transformer: Any) -> bool:
    """Whether the output for a row depends on the rows that the transformer was fitted on."""
    if isinstance(transformer, FrozenEstimator):
        return False
    return not hasattr(transformer, "__sklearn_tags__") or get_tags(transformer).requires_fit


class _RowLabels(NamedTuple):
    """Labels of the rows that have one, None without ``y``; ``known``: their mask, None for all."""

    labels: np.ndarray | None
    known: np.ndarray | None = None

    @classmethod
    def read(cls, y: Any, offsets: np.ndarray) -> _RowLabels:
        """Read labels, partial labels or segments, checked against the lengths of X."""
        if y is None:
            return cls(None)
        rows = Sequences(np.empty((offsets[-1], 0)), offsets)
        if holds_segments(y) or (rows.n_rows and empty_lists(y)):
            found = read_segments(y, rows.lengths, "O", unknown=True)
            labels = np.repeat(found.label, found.stop - found.start)
            known = labels != UNKNOWN
            return cls(labels) if known.all() else cls(labels[known], known)
        try:
            return cls(read_labels(y, rows))
        except PartialLabelError:
            partial = PartialLabels.read(y, rows)
            known = partial.counts == 1
            return cls(partial.flat[np.repeat(known, partial.counts)], known)


def _positions(columns: Any) -> Any:
    if isinstance(columns, slice):
        return columns
    return np.atleast_1d(np.asarray(columns))


def _numeric_columns(packed: Sequences, columns: Any) -> Any:
    if columns is None:
        return packed.rows
    wanted = _positions(columns)
    if not isinstance(wanted, slice):
        n, is_mask = packed.shape[1], wanted.dtype == bool
        fits = len(wanted) == n if is_mask else wanted.dtype.kind in "iu" and wanted.size
        if not fits or (not is_mask and (wanted.min() < -n or wanted.max() >= n)):
            raise ValueError(
                f"columns must be positions below {n}, a slice or a mask over the {n} columns of "
                f"X; got {columns!r}."
            )
    return packed.rows[:, wanted]


def _by_function(function: Any, rows: Any) -> np.ndarray:
    if sparse.issparse(rows):
        rows = rows.toarray()
    is_tokens = rows.ndim == 1
    vectors, known = [], {}
    for row in rows:
        if is_tokens and row in known:
            vectors.append(known[row])
            continue
        # Copies: the function may change its argument, and fill one array again for each row.
        vector = np.array(function(row if is_tokens else row.copy()), ndmin=1)
        if vector.dtype.kind not in "biuf" or vector.ndim != 1:
            raise ValueError(
                f"The function must give a vector of numbers; for {row!r} it gave "
                f"{vector.dtype} of shape {vector.shape}."
            )
        if vectors and len(vector) != len(vectors[0]):
            raise ValueError(
                f"The function must give vectors of one length; for {row!r} it has {len(vector)}, "
                f"for an earlier row {len(vectors[0])}."
            )
        vectors.append(vector)
        if is_tokens:
            known[row] = vector
    return np.stack(vectors)

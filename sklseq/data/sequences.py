"""Sequences: a matrix with the rows of all sequences, and the offsets that cut it.

All computations use this packed form; lists of arrays, sparse matrices or feature dicts are
converted once, when they are validated.

Imports in functions: an exported model reads and decodes sequences without SciPy.
"""

from __future__ import annotations

import numbers
import os
import sys
from collections.abc import Iterable, Mapping
from copy import copy
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from sklseq._lib.checks import counted
from sklseq._lib.index_types import index_type
from sklseq._lib.ragged import offsets_of, ranges
from sklseq.data.labels import PartialLabelError, cut_rows, locate, read_codes
from sklseq.data.samples import Samples
from sklseq.data.tables import is_table, list_sequences, refuse_mask

Rows = Any  # 2-D ndarray, SciPy CSR matrix or CSR array

# The largest weight of a sequence in training: float32 squares of gradients must not overflow.
WEIGHTS = 1e-15, 1e15
MOST_COLUMNS = 2**31 - 1  # kernels read column numbers as int32
# Bits of ``Sequences.roles``.
STATE, TRANSITION = 1, 2


def is_sparse(x: Any) -> bool:
    """Whether ``x`` is a matrix or array of ``scipy.sparse``.

    SciPy is not imported for this, which would take longer than loading an exported model.
    """
    issparse = getattr(sys.modules.get("scipy.sparse"), "issparse", None)
    return issparse is not None and issparse(x)


def as_csr(rows: Rows) -> Rows:
    """Sparse rows as CSR whose column numbers and row starts have one type, int32 where they fit.

    SciPy makes int64 of default integers, and narrows one or both arrays in some of its functions
    and not in others; compiled kernels need one type. Arrays that have it are shared.
    """
    if factors_of(rows) is not None:
        return rows
    rows = rows.tocsr()
    parts = rows.indptr, rows.indices
    if all(part.dtype == np.int32 for part in parts):
        return rows
    kind = index_type(max(max(p.max(initial=0), -1 - p.min(initial=0)) for p in parts))
    if all(part.dtype == kind for part in parts):
        return rows
    narrow = copy(rows)
    narrow.indptr, narrow.indices = (part.astype(kind, copy=False) for part in parts)
    return narrow


def check_n_columns(n: int) -> None:
    """Raise unless rows may have ``n`` columns."""
    if n > MOST_COLUMNS:
        raise ValueError(
            f"Rows of {n} columns are too wide: at most {MOST_COLUMNS} are allowed. Hash names "
            "into fewer columns, such as n_features=2**18, or take a smaller window."
        )


def canonical(rows: Rows) -> Rows:
    """CSR rows with sorted columns and repeated entries added up; a copy, unless they are so.

    For functions of SciPy that would change the caller's rows, such as ``abs``, ``max`` and ``!=``,
    and for squares of values. Arrays are returned as they are.
    """
    if not is_sparse(rows) or rows.has_canonical_format:
        return rows
    rows = rows.copy()
    rows.sum_duplicates()
    return rows


class Sequences(Samples[Rows]):
    """Packed sequences: the rows of all sequences in one matrix, cut by ``offsets``.

    Sequence ``s`` is ``rows[offsets[s]:offsets[s + 1]]``. A ``Sequences`` behaves like a
    list of matrices where scikit-learn slices samples (``train_test_split``,
    ``GridSearchCV``, ``cross_val_predict``, ``learning_curve``), concatenates by columns
    in ``FeatureUnion``, and pickles.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_features) or CSR matrix or array
        Feature rows of all sequences, one after the other. Not copied, except column numbers and
        row starts of int64, which become int32 where they fit.
    offsets : array-like of shape (n_sequences + 1,)
        Non-decreasing row numbers, from 0 to ``n_rows``.
    roles : array-like of shape (n_features,), optional
        Which weights each column has in a tagger: 1 for each label, 2 for each pair of successive
        labels, 3 both. By default all have weights for labels only. ``TemplateFeatures`` sets it
        if a template has ``B`` lines, see :doc:`/transitions`.

    Attributes
    ----------
    rows, offsets, roles
        As given; ``offsets`` as int64, ``roles`` as uint8 or None.
    shape : tuple (n_sequences, n_features)
    n_rows : int
    lengths : ndarray of shape (n_sequences,)

    Raises
    ------
    ValueError
        If ``rows`` is not two-dimensional, the offsets do not cut it, or the roles do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq import Sequences
    >>> X = Sequences(np.arange(10.0).reshape(5, 2), [0, 2, 5])
    >>> len(X), X.shape, X[1].shape
    (2, (2, 2), (3, 2))
    >>> X[[1, 0]].lengths
    array([3, 2])
    """

    __slots__ = ("offsets", "roles", "rows")

    def __init__(self, rows: Rows, offsets: ArrayLike, roles: ArrayLike | None = None):
        if is_sparse(rows):
            rows = as_csr(rows)
        else:
            rows = np.asanyarray(rows)
        if rows.ndim != 2:
            raise ValueError(f"rows must be 2-D (n_rows, n_features); got {rows.ndim}-D.")
        check_n_columns(rows.shape[1])
        self.rows = rows
        self.offsets = check_offsets(offsets, rows.shape[0])
        self.roles = None if roles is None else check_roles(roles, rows.shape[1])

    @classmethod
    def from_list(cls, matrices: list) -> Sequences:
        """Pack a list of 2-D arrays or sparse matrices, all with the same columns.

        A single array is not copied.
        """
        offsets = offsets_of([m.shape[0] for m in matrices])
        if any(is_sparse(m) for m in matrices):
            from scipy import sparse

            parts = [as_csr(m) if is_sparse(m) else m for m in matrices]
            return cls(sparse.vstack(parts, format="csr"), offsets)
        return cls(matrices[0] if len(matrices) == 1 else np.concatenate(matrices), offsets)

    @property
    def n_rows(self) -> int:
        return self.rows.shape[0]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @property
    def is_sparse(self) -> bool:
        return is_sparse(self.rows)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def _one(self, s: int) -> Rows:
        return self.rows[self.offsets[s] : self.offsets[s + 1]]

    def _take(self, which: range | np.ndarray) -> Sequences:
        if isinstance(which, range) and which.step == 1:
            offsets = self.offsets[which.start : max(which.start, which.stop) + 1]
            return Sequences(self.rows[offsets[0] : offsets[-1]], offsets - offsets[0], self.roles)
        lengths = self.lengths[which]
        rows = self.rows[ranges(self.offsets[which], lengths)]
        return Sequences(rows, offsets_of(lengths), self.roles)

    def with_rows(self, rows: Rows) -> Sequences:
        """Return the same sequences with other features, for row-wise transformers.

        Roles of columns are kept; if there are roles, the number of columns must not change.
        """
        if self.roles is not None and rows.shape[1] != self.rows.shape[1]:
            raise ValueError(
                f"X has roles for {self.rows.shape[1]} columns, such as templates with B lines "
                f"give, and a transformer made {rows.shape[1]} columns of them; remove the "
                "transformer, or the B lines."
            )
        return Sequences(rows, self.offsets, self.roles)

    def save(
        self,
        path: str | os.PathLike[str],
        y: Iterable | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> None:
        """Write sequences, labels and weights to a file for :meth:`load` and :class:`Shards`.

        The file replaces an existing one only after it is complete.

        Parameters
        ----------
        path : str or path
            Ends with ``.npz``.
        y : list of label sequences, optional
            One label per row; or None, NaN or a set of possible labels.
        sample_weight : array-like of shape (n_sequences,), optional

        Raises
        ------
        ValueError
            If the name has another ending, or labels or weights do not fit.

        Examples
        --------
        >>> import numpy as np, os, tempfile
        >>> from sklseq import Sequences
        >>> X = Sequences(np.arange(10.0).reshape(5, 2), [0, 2, 5])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "shard.npz")
        ...     X.save(path, [["a", "b"], ["b", "b", "a"]])
        ...     X, y = Sequences.load(path, mmap=False, return_y=True)
        >>> X, y[0]
        (<Sequences: 2 sequences, 5 rows, 2 features, dense float64>, ['a', 'b'])
        """
        from sklseq.data.store import Stored, write_stored

        classes = codes = table = None
        if y is not None:
            classes, codes, table = _coded(y, self)
        if sample_weight is not None:
            sample_weight = check_sample_weight(sample_weight, len(self))
        check_finite(self)
        stored = Stored(self.rows, self.offsets, classes, codes, sample_weight, self.roles, table)
        write_stored(path, stored)

    @overload
    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, mmap: bool = ..., return_y: Literal[False] = ...
    ) -> Sequences: ...
    @overload
    @classmethod
    def load(
        cls, path: str | os.PathLike[str], *, mmap: bool = ..., return_y: Literal[True]
    ) -> tuple[Sequences, list[list[Any]] | None]: ...
    @classmethod
    def load(cls, path, *, mmap=True, return_y=False):
        """Read a file that :meth:`save` wrote.

        Parameters
        ----------
        path : str or path
        mmap : bool, default=True
            Whether arrays are memory maps, whose pages are read when they are needed; otherwise the
            whole file is read now.
        return_y : bool, default=False
            Whether to return the labels too.

        Returns
        -------
        Sequences, or (Sequences, y)
            ``y`` is a list of label lists, as from ``predict``; None if no labels are saved.
            Rows of unknown label hold None, rows with several possible labels a frozenset.

        Raises
        ------
        ValueError
            If the file is incomplete, corrupt, or of another format.
        """
        from sklseq.data.store import read_stored

        stored = read_stored(path, mmap=mmap)
        X = cls(stored.rows, stored.offsets, stored.roles)
        if not return_y:
            return X
        y = None
        if stored.codes is not None:
            items = stored.items.astype(object)[stored.codes].tolist()
            y = list(cut_rows(items, X.offsets))
        return X, y

    _with_values = with_rows

    @classmethod
    def _joined(cls, blocks: list) -> Sequences:
        first = next(block for block in blocks if isinstance(block, Sequences))
        for i, block in enumerate(blocks):
            if not isinstance(block, Sequences):
                raise ValueError(
                    f"Blocks joined by columns must be Sequences; block {i} is a "
                    f"{type(block).__name__}. Replace 'passthrough' by PerToken(), which leaves "
                    "rows of numbers as they are, or the transformer by PerToken(transformer)."
                )
            if not np.array_equal(block.offsets, first.offsets):
                raise ValueError(
                    f"Blocks joined by columns must hold the same sequences; block {i} differs "
                    "from block 0 in number or lengths. Check that no transformer drops rows."
                )
        if len(blocks) == 1:
            return first
        if any(block.is_sparse for block in blocks):
            from scipy import sparse

            from sklseq.data.ones import all_ones, ones_beside

            check_n_columns(sum(b.rows.shape[1] for b in blocks))
            if all(all_ones(b.rows) for b in blocks):
                rows = ones_beside([b.rows for b in blocks])
            else:
                rows = sparse.hstack([b.rows for b in blocks], format="csr")
        else:
            rows = np.concatenate([b.rows for b in blocks], axis=1)
        return Sequences(rows, first.offsets, join_roles(blocks))

    def __repr__(self) -> str:
        form = "sparse" if self.is_sparse else "dense"
        return (
            f"<Sequences: {len(self)} sequences, {self.n_rows} rows, "
            f"{self.rows.shape[1]} features, {form} {self.dtype}>"
        )


def _coded(y: Any, X: Sequences) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    # Labels, codes of the rows, and the table of codes if some labels are unknown.
    try:
        (classes, codes), table = read_codes(y, X), None
    except PartialLabelError:
        from sklseq.data.partial_labels import PartialLabels  # only for unknown labels

        classes, codes, table = PartialLabels.read(y, X).coded()
    n = len(classes if table is None else table)
    return classes, codes.astype(np.min_scalar_type(max(n - 1, 0))), table


def join_roles(blocks: list) -> np.ndarray | None:
    """Roles of columns side by side; None if no block has any."""
    if all(block.roles is None for block in blocks):
        return None
    states = (np.full(b.shape[1], STATE, np.uint8) if b.roles is None else b.roles for b in blocks)
    return np.concatenate(list(states))


def as_numbers(values: Any, name: str) -> np.ndarray:
    """``values`` as an array; refuse input that NumPy would parse or truncate."""
    if isinstance(values, np.ma.MaskedArray) or is_sparse(values):
        got = f"a {type(values).__name__}"
    else:
        try:
            array = np.asarray(values)
        except ValueError:
            got = "rows of unequal length"
        else:
            if array.dtype.kind in "biuf":
                return array
            got = f"{type(values).__name__} of dtype {array.dtype}"
    raise ValueError(
        f"{name} must be a dense array of real numbers, or lists of them; got {got}. Convert it "
        "before the call."
    )


def as_integers(values: Any, name: str) -> np.ndarray:
    """``values``, which may be whole floating-point numbers, as a 1-D array of int64."""
    array = as_numbers(values, name)
    if array.ndim != 1:
        raise ValueError(
            f"{name} must be a 1-D array of integers; got {array.dtype} of shape {array.shape}."
        )
    with np.errstate(invalid="ignore"):
        wrong = np.flatnonzero(array % 1 != 0) if array.dtype.kind == "f" else ()  # NaN, infinity
    if len(wrong):
        raise ValueError(
            f"{name} must hold integers; got {array[wrong[0]]} for number {wrong[0]}. Round them "
            "before the call, if that is what they mean."
        )
    return array.astype(np.int64, copy=False)


def check_offsets(offsets: Any, n_rows: int, of: str = "rows") -> np.ndarray:
    """Offsets as int64, checked to cut ``n_rows`` rows into sequences."""
    offsets = as_numbers(offsets, "offsets")
    if offsets.ndim != 1 or offsets.size == 0 or offsets.dtype.kind not in "iu":
        raise ValueError(
            "offsets must be a 1-D integer array of length n_sequences + 1; "
            f"got {offsets.dtype} of shape {offsets.shape}."
        )
    offsets = np.ascontiguousarray(offsets, dtype=np.int64)
    falls = np.flatnonzero(offsets[1:] < offsets[:-1])
    if offsets[0] != 0 or offsets[-1] != n_rows or falls.size:
        got = f"{offsets[0]} to {offsets[-1]}"
        if falls.size:
            k = int(falls[0])
            got = f"{offsets[k]} and then {offsets[k + 1]} at positions {k} and {k + 1}"
        raise ValueError(f"offsets must rise from 0 to the number of {of} ({n_rows}); got {got}.")
    return offsets


def check_roles(roles: Any, n_features: int) -> np.ndarray:
    given, roles = roles, np.asarray(roles)
    if (
        roles.shape != (n_features,)
        or roles.dtype.kind not in "iu"
        or not np.isin(roles, (1, 2, 3)).all()
    ):
        raise ValueError(
            f"roles must hold 1 (state weights), 2 (transition weights) or 3 (both) for each of "
            f"{n_features} columns; got {given!r:.60}."
        )
    return roles.astype(np.uint8, copy=False)


def row_positions(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """First rows, last rows and rows that follow another row of their sequence.

    Empty sequences are skipped: ``first`` and ``last`` have one row for each other sequence.
    """
    if len(offsets) == 2 and offsets[1] > 0:  # one sequence: a third of the time
        return offsets[:1], offsets[1:] - 1, np.arange(1, offsets[1])
    filled = offsets[:-1] < offsets[1:]
    first, last = offsets[:-1][filled], offsets[1:][filled] - 1
    follows = np.ones(offsets[-1], dtype=bool)
    follows[first] = False
    return first, last, np.flatnonzero(follows)


def read_form(X: Any) -> tuple[str, Any]:
    """The form of the sequences of ``X``, and X as a list.

    Forms are "packed" (X is returned as it is), "array", "sparse", "dicts", perhaps with sequences
    of attributes among them, and "attributes". Empty sequences fit any form; if all are empty the
    form is "empty".

    Raises
    ------
    ValueError
        If two sequences have different forms, or one has an unknown form.
    """
    if isinstance(X, Sequences):
        return "packed", X
    sequences = list_sequences(X)
    if isinstance(X, np.ndarray) and X.dtype.kind in "biuf":  # of three dimensions
        return "array", sequences
    form, first = "empty", 0
    for s, sequence in enumerate(sequences):
        this = _sequence_form(sequence, s)
        if form == "empty":
            form, first = this, s
        elif {form, this} == {"dicts", "attributes"}:
            form = "dicts"  # DictFeatures reads both, item by item
        elif this not in (form, "empty"):
            raise ValueError(
                f"All sequences of X must have one form; sequence {first} holds {_FORMS[form]} "
                f"but sequence {s} holds {_FORMS[this]}. Convert them to the same form."
            )
    return form, sequences


_FORMS = {
    "array": "a 2-D array",
    "sparse": "a sparse matrix",
    "dicts": "feature dicts",
    "attributes": "collections of attribute strings",
}


def _sequence_form(sequence: Any, s: int) -> str:
    if is_sparse(sequence) and sequence.ndim == 2:
        return "sparse"
    if is_sparse(sequence) or (isinstance(sequence, np.ndarray) and sequence.dtype != object):
        if sequence.ndim != 2:
            raise ValueError(
                f"Sequence {s} of X must be 2-D (n_steps, n_features); got shape "
                f"{sequence.shape}. Reshape it; if X is one sequence, wrap it in a list: [X]."
            )
        return "array"
    if isinstance(sequence, (list, tuple, np.ndarray)):
        if len(sequence) == 0:
            return "empty"
        return _list_form(sequence, s)
    advice = "If X is one sequence, wrap it in a list: [X]."
    if is_table(sequence) or isinstance(sequence, Mapping):
        advice = (
            "Read columns by name: begin a Pipeline with PerToken() for numbers, or another "
            "extractor for tokens. If X is one sequence, wrap it in a list: [X]."
        )
    raise ValueError(
        f"Sequence {s} of X must be a list of feature dicts, a list of collections of strings, "
        f"a 2-D array or a sparse matrix; got {type(sequence).__name__}. {advice}"
    )


def _list_form(sequence: Any, s: int) -> str:
    row = sequence[0]
    if isinstance(row, Mapping):
        return "dicts"
    if is_sparse(row) or (isinstance(row, np.ndarray) and row.ndim == 2):
        raise ValueError(
            f"Sequence {s} of X is a list of blocks, the first of shape {row.shape}; pass "
            "RowBlocks(blocks) to CRFTagger, or join them with numpy.concatenate or "
            "scipy.sparse.vstack."
        )
    if isinstance(row, (list, tuple, set, frozenset)):
        if len(row) and all(isinstance(value, numbers.Real) for value in row):
            if isinstance(row, (set, frozenset)):
                raise ValueError(
                    f"Row 0 of sequence {s} of X is a set of numbers, which have no order; pass a "
                    "list of numbers, or a set of attribute strings."
                )
            return "array"
        return "attributes"
    if isinstance(row, np.ndarray) and row.dtype.kind in "biuf":
        return "array"
    if hasattr(sequence, "n_steps"):
        raise ValueError(
            "X is SegmentPotentials, features of segments, which SemiCRFSegmenter reads; other "
            "estimators need features of tokens, such as those of WindowFeatures."
        )
    advice = "Turn raw tokens into features first, e.g. with TemplateFeatures."
    if isinstance(row, np.ndarray) and row.dtype == object:
        advice = "Convert an object array of numbers by x.astype(float)."
    elif isinstance(row, numbers.Real):
        advice = "If X is one sequence of rows, wrap it in a list: [X]."
    raise ValueError(
        f"Row 0 of sequence {s} of X must be a feature dict, a collection of strings or "
        f"numbers; got {type(row).__name__}. {advice}"
    )


def as_sequences(X: Any, *, finite: bool = True) -> Sequences:
    """Pack numeric input (lists of arrays or sparse matrices) into ``Sequences``.

    Integer and boolean features become float64; float32 stays float32. ``finite=False`` allows
    NaN and infinity.

    Raises
    ------
    ValueError
        If sequences differ in form or width, hold no numbers, or hold NaN or infinity.
    """
    return pack(*read_form(X), finite=finite)


def pack(form: str, sequences: Any, *, finite: bool = True) -> Sequences:
    """:func:`as_sequences` of what :func:`read_form` returned."""
    if form in ("dicts", "attributes"):
        raise ValueError(f"X holds {_FORMS[form]}: vectorise them first with DictFeatures.")
    packed = sequences if form == "packed" else _join(sequences, form)
    if packed.dtype not in (np.float32, np.float64):
        if packed.dtype.kind not in "biuf":
            raise ValueError(f"X must hold numbers; got dtype {packed.dtype}.")
        with np.errstate(over="ignore"):  # of wider floats: infinity is found below
            packed = packed.with_rows(packed.rows.astype(np.float64))
    found = check_entries(packed.rows) if packed.is_sparse else None
    if found is not None:
        row, what = found
        raise ValueError(
            f"X must be valid CSR matrices; {locate(packed.offsets, row)} {what}. "
            "Create the matrix again."
        )
    if finite:
        check_finite(packed)
    return packed


def _join(matrices: list, form: str) -> Sequences:
    if form == "empty":
        return Sequences(np.zeros((0, 0)), np.zeros(len(matrices) + 1, dtype=np.int64))
    matrices = [as_csr(m) if is_sparse(m) else _as_array(m, s) for s, m in enumerate(matrices)]
    known = [m for m in matrices if m.ndim == 2]
    width = known[0].shape[1]
    for s, m in enumerate(matrices):
        if m.ndim == 2 and m.shape[1] != width:
            raise ValueError(
                f"All sequences of X must have the same number of features; sequence {s} has "
                f"{m.shape[1]}, the first has {width}."
            )
    # An empty list has no columns: use those of the other sequences.
    empty = known[0][:0]
    return Sequences.from_list([m if m.ndim == 2 else empty for m in matrices])


def _as_array(rows: Any, s: int) -> np.ndarray:
    try:
        return np.asarray(rows)
    except ValueError:
        widths = [np.size(row) for row in rows]
        wrong = next((r for r, width in enumerate(widths) if width != widths[0]), None)
        if wrong is None:
            raise
        raise ValueError(
            f"All rows of X must have the same number of features; row {wrong} of sequence {s} "
            f"has {widths[wrong]}, row 0 has {widths[0]}."
        ) from None


def finite_sum(values: np.ndarray) -> bool:
    """Whether the sum is finite, which proves that all values are, without a temporary array."""
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(np.sum(values)))


def made_of_ones(rows: Any) -> bool:
    """Whether rows are an ``OnesMatrix`` without stored values: all are 1, which needs no check."""
    return not getattr(rows, "stores_values", True)


def factors_of(rows: Any) -> tuple | None:
    """Factors of a ``ProductOfOnes`` whose entries have not been computed; otherwise None."""
    return getattr(rows, "factors", None) if made_of_ones(rows) else None


def first_not_finite(rows: Rows) -> tuple[int, int, float] | None:
    """Row, column and value of the first NaN or infinity."""
    if made_of_ones(rows):
        return None
    values = rows.data[: rows.indptr[-1]] if is_sparse(rows) else rows
    bad = () if finite_sum(values) else np.flatnonzero(~np.isfinite(np.ravel(values)))
    if not len(bad):
        return None
    at, value = int(bad[0]), float(np.ravel(values)[bad[0]])
    if not is_sparse(rows):
        return *divmod(at, rows.shape[1]), value
    return _row_of(rows, at), int(rows.indices[at]), value


def _row_of(rows: Rows, entry: int) -> int:
    return int(np.searchsorted(rows.indptr, entry, side="right")) - 1


def check_finite(X: Sequences, dtype: DTypeLike = np.float64) -> None:
    """Raise a ValueError that names the sequence and row of the first value that is NaN, infinite
    or beyond the largest number of ``dtype``."""
    found = first_not_finite(X.rows)
    if found is not None:
        row, column, value = found
        raise ValueError(
            f"X must be finite; {locate(X.offsets, row)} holds {value} in column {column}. "
            "Impute or drop it."
        )
    if np.dtype(dtype).itemsize >= X.rows.dtype.itemsize:
        return
    with np.errstate(over="ignore"):
        found = first_not_finite(X.rows.astype(dtype))
    if found is not None:
        row, column, _ = found
        raise ValueError(
            f"X must hold numbers of {np.dtype(dtype)}, as the weights; "
            f"{locate(X.offsets, row)} holds {X.rows[row, column]:.6g} in column {column}. Scale "
            "the column, or fit on float64."
        )


def check_entries(rows: Rows) -> tuple[int, str] | None:
    """First invalid row of a CSR matrix and a description of the fault; None if it is valid.

    Compiled kernels use row starts and column numbers without a check.
    """
    if factors_of(rows) is not None:
        return None
    indptr, indices, (n, width) = rows.indptr, rows.indices, rows.shape
    if len(indptr) != n + 1 or indptr[0] != 0:
        return 0, f"does not begin at entry 0, or has no end: indptr has {len(indptr)} entries"
    n_entries = len(indices) if made_of_ones(rows) else min(len(indices), len(rows.data))
    ends = indptr[1:]
    if n and (ends[-1] > n_entries or (ends < indptr[:-1]).any()):
        row = int(np.argmax((ends > n_entries) | (ends < indptr[:-1])))
        return row, f"goes from entry {indptr[row]} to {ends[row]} of {n_entries}"
    used = indices[: indptr[-1]]
    if len(used) and not 0 <= int(used.min()) <= int(used.max()) < width:
        at = int(np.argmax((used < 0) | (used >= width)))
        return _row_of(rows, at), f"has an entry in column {used[at]}, and there are {width}"
    return None


def check_sample_weight(sample_weight: Any, n_sequences: int) -> np.ndarray:
    """One finite, non-negative float64 per sequence; ones by default."""
    if sample_weight is None:
        return np.ones(n_sequences)
    refuse_mask(sample_weight, "sample_weight")
    try:
        weight = np.ascontiguousarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"sample_weight must have one number per sequence, shape ({n_sequences},); got "
            f"{sample_weight!r:.60}: convert it, or give one number for all rows of a sequence."
        ) from None
    if weight.shape != (n_sequences,):
        raise ValueError(
            f"sample_weight must have one entry per sequence, shape ({n_sequences},); got shape "
            f"{weight.shape}."
        )
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if wrong.size:
        raise ValueError(
            f"sample_weight[{wrong[0]}] is {weight[wrong[0]]}; weights must be finite and not "
            "negative."
        )
    return weight


def training_weights(sample_weight: Any, n_sequences: int, zeros: bool = False) -> np.ndarray:
    """Return weights of training sequences, checked and, unless ``zeros``, not all zero."""
    weights = check_sample_weight(sample_weight, n_sequences)
    if n_sequences and not weights.any():
        if zeros:
            return weights
        raise ValueError("sample_weight must have a positive entry; all weights are zero.")
    (low, high), largest = WEIGHTS, weights.max(initial=0)
    if n_sequences and not low <= largest <= high:
        raise ValueError(
            f"The largest sample_weight must be from {low:g} to {high:g} in training, where "
            f"squares of weights are added up; got {largest:g}. Divide the weights and the "
            "penalties by one number."
        )
    return weights


def weighted_only(X: Any, labels: np.ndarray, weights: np.ndarray) -> tuple:
    """(X, labels, weights) without the sequences of weight 0, which training ignores."""
    kept = weights > 0
    if kept.all():
        return X, labels, weights
    return X[np.flatnonzero(kept)], labels[np.repeat(kept, X.lengths)], weights[kept]


def check_not_empty(X: Any, unit: str = "row") -> None:
    """Raise unless X has a feature and a row, or a step if it is SegmentPotentials."""
    n = getattr(X, f"n_{unit}s")
    if len(X) == 0 or n == 0:
        raise ValueError(
            f"X must hold at least one {unit}; got {counted(len(X), 'sequence')} with "
            f"{counted(n, unit)} in all."
        )
    if X.shape[1] == 0:
        raise ValueError("X must have at least one feature; got 0.")

"""SegmentPotentials: features of segments, each stored once for all segments that share it.

A feature of a segment is most often a feature of many: "the token at 4 is *of*" holds for every
segment that contains 4. A potential describes all these segments by one span and two ends that are
closed or open (Sarawagi 2006, §3).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from sklseq._lib.ragged import offsets_of, ranges
from sklseq.data.samples import Samples
from sklseq.data.sequences import (
    as_csr,
    as_integers,
    as_sequences,
    check_offsets,
    check_roles,
    first_not_finite,
    join_roles,
)

# Two bits: 1, the end is open; 2, the start is open.
EXACT, OPEN_END, OPEN_START, OPEN_BOTH = range(4)

# Most steps of all sequences. Potentials are sorted by a key of 64 bits: up to twice the square of
# this number, and two bits for the kind.
MOST_STEPS = 1 << 30


# Attributes of SegmentPotentials, in the order of its parameters.
FIELDS = ("lengths", "offsets", "kind", "start", "stop", "rows", "row", "feature_names", "roles")


class SequencePotentials(NamedTuple):
    """The potentials of one sequence.

    Attributes
    ----------
    n_steps : int
        Length of the sequence.
    kind, start, stop : ndarray of shape (n_potentials,)
        As in :class:`SegmentPotentials`.
    rows : CSR array of shape (n_potentials, n_features)
        Features of the potentials.
    """

    n_steps: int
    kind: np.ndarray
    start: np.ndarray
    stop: np.ndarray
    rows: Any


class SegmentPotentials(Samples[SequencePotentials]):
    """Potentials of a set of sequences: features that many segments share, each stored once.

    Potential p has a span ``[start[p], stop[p])``, half-open, counted from 0 in its sequence. It is
    active for every segment ``[i, j)`` that contains this span and satisfies the condition of its
    kind, where s and e stand for the start and the stop of the span:

    ==== ============ ================== ================================== ==================
    kind name         active if          example                            in Sarawagi (2006)
    ==== ============ ================== ================================== ==================
    0    EXACT        i = s and j = e    the segment is in a lexicon        ψ(s : e)
    1    OPEN_END     i = s and j ≥ e    it begins with "Prof. Dr."         ψ(s : ≥ e)
    2    OPEN_START   i ≤ s and j = e    it ends in a digit                 ψ(≤ s : e)
    3    OPEN_BOTH    i ≤ s and j ≥ e    it contains "the"                  ψ(≤ s : ≥ e)
    ==== ============ ================== ================================== ==================

    The paper counts from 1 and includes the last position: its ψ(4 : 7) is ``[3, 7)`` here. An
    active potential p adds ``rows[row[p]] @ W[:, y]`` to the score of a segment of label y.

    Its samples are sequences: ``train_test_split`` and ``GridSearchCV`` slice it, ``FeatureUnion``
    joins the columns of several. It can be pickled.

    Parameters
    ----------
    lengths : array-like of shape (n_sequences,)
        Steps of each sequence.
    offsets : array-like of shape (n_sequences + 1,)
        The potentials of sequence s are ``offsets[s]:offsets[s + 1]``, in any order.
    kind : array-like of shape (n_potentials,)
        0 to 3, see above.
    start, stop : array-like of shape (n_potentials,)
        ``0 <= start < stop <= n_steps`` of its sequence.
    rows : CSR matrix or array, or ndarray, of shape (n_rows, n_features)
        Features. Stored as CSR.
    row : array-like of shape (n_potentials,), optional
        The row of ``rows`` that holds the features of each potential; several potentials may share
        one. Default: potential p has row p.
    feature_names : sequence of str, of length n_features, optional
    roles : array-like of shape (n_features,), optional
        As in :class:`Sequences`: which columns are transition features too.

    Attributes
    ----------
    lengths, offsets, start, stop, row : ndarray of int64
    kind : ndarray of int8
    rows : CSR matrix or array of float64 or float32
    feature_names : ndarray of str, or None
    roles : ndarray of uint8, or None
    shape : tuple (n_sequences, n_features)
    n_steps : int
        Number of steps of all sequences.
    n_potentials : int
        Number of potentials of all sequences (H in the paper).

    Raises
    ------
    ValueError
        If shapes disagree, or a potential lies outside its sequence, is empty, has a kind other
        than 0 to 3, or has a feature that is not finite.

    References
    ----------
    S. Sarawagi (2006), "Efficient inference on sequence segmentation models", Proc. 23rd ICML, §3.

    Examples
    --------
    Two sequences, of three steps and two; the first has two potentials:

    >>> import numpy as np
    >>> from sklseq import SegmentPotentials
    >>> X = SegmentPotentials(
    ...     lengths=[3, 2], offsets=[0, 2, 3],
    ...     kind=[0, 3, 1], start=[0, 1, 0], stop=[3, 2, 1], rows=np.eye(3))
    >>> len(X), X.shape, X[[1]].n_potentials
    (2, (2, 3), 1)
    >>> X[0].kind
    array([0, 3], dtype=int8)
    """

    __slots__ = FIELDS

    def __init__(
        self, lengths: ArrayLike, offsets: ArrayLike, kind: ArrayLike, start: ArrayLike,
        stop: ArrayLike, rows: ArrayLike | sparse.spmatrix | sparse.sparray,
        row: ArrayLike | None = None, feature_names: Iterable[str] | None = None,
        roles: ArrayLike | None = None,
    ):  # fmt: skip
        self.lengths, self.offsets, kind, self.start, self.stop = check_spans(
            lengths, offsets, kind, start, stop
        )
        self.rows = _feature_rows(rows)
        self.row = np.arange(self.rows.shape[0]) if row is None else as_integers(row, "row")
        self.feature_names = None if feature_names is None else np.asarray(feature_names)
        self.roles = None if roles is None else check_roles(roles, self.rows.shape[1])
        self.kind = kind.astype(np.int8)
        self._check()

    @classmethod
    def _made(cls, *values) -> SegmentPotentials:
        # Without checks: the parts are known to be valid.
        new = cls.__new__(cls)
        for name, value in zip(FIELDS, values):
            setattr(new, name, value)
        return new

    @classmethod
    def from_list(
        cls, sequences: Iterable, feature_names: Iterable[str] | None = None
    ) -> SegmentPotentials:
        """Pack one ``(n_steps, kind, start, stop, rows)`` a sequence, all with the same columns.

        Parameters
        ----------
        sequences : iterable of SequencePotentials, or of tuples like them
            ``rows`` has one row a potential, and may be an array or sparse.
        feature_names : sequence of str, optional

        Returns
        -------
        SegmentPotentials

        Examples
        --------
        >>> X = SegmentPotentials.from_list([(2, [3, 3], [0, 1], [1, 2], [[1.0], [2.0]])])
        >>> X.lengths, X.n_potentials
        (array([2]), 2)
        """
        parts = [SequencePotentials(*sequence) for sequence in sequences]
        counts = [len(part.kind) for part in parts]
        columns = [
            np.concatenate([np.zeros(0, np.int64), *(p[k] for p in parts)]) for k in (1, 2, 3)
        ]
        return cls(
            [part.n_steps for part in parts],
            offsets_of(counts),
            *(column.astype(np.int64) for column in columns),
            _stack([p.rows for p in parts], counts),
            feature_names=feature_names,
        )

    @classmethod
    def from_tokens(cls, X: Any, kinds: Iterable[int] = (OPEN_BOTH,)) -> SegmentPotentials:
        """Turn each row of ``X`` into potentials of its step, one of each of the ``kinds``.

        OPEN_BOTH is a feature of every segment that contains the token, OPEN_END of those that
        begin with it, OPEN_START of those that end with it, EXACT of the token as a segment.
        Each kind has columns of its own.

        Parameters
        ----------
        X : Sequences, or list of rows of one sequence each
        kinds : iterable of int, default=(OPEN_BOTH,)

        Returns
        -------
        SegmentPotentials

        Examples
        --------
        >>> import numpy as np
        >>> from sklseq import Sequences
        >>> tokens = Sequences(np.ones((3, 2)), [0, 3])
        >>> SegmentPotentials.from_tokens(tokens, kinds=(1, 3)).shape
        (1, 4)
        """
        X, kinds = as_sequences(X), list(kinds)
        if not kinds or not set(kinds) <= {EXACT, OPEN_END, OPEN_START, OPEN_BOTH}:
            raise ValueError(f"kinds must be some of the numbers 0 to 3; got {kinds}.")
        rows, n = _feature_rows(X.rows), X.n_rows
        step = ranges(0, X.lengths)
        blocks = [
            cls._made(X.lengths, X.offsets, np.full(n, kind, dtype=np.int8), step, step + 1, rows,
                      np.arange(n), None, X.roles)
            for kind in kinds
        ]  # fmt: skip
        return blocks[0] if len(blocks) == 1 else cls._joined(blocks)

    def _check(self) -> None:
        self.check_rows()
        found = first_not_finite(self.rows)
        if found is not None:
            r, _, value = found
            of = np.flatnonzero(self.row == r)
            name = _name(self.offsets, int(of[0])) if of.size else f"Row {r} (of no potential)"
            raise ValueError(f"{name} has a feature {value}; features must be finite.")
        names = self.feature_names
        if names is not None and names.shape != (self.rows.shape[1],):
            raise ValueError(
                f"feature_names must have one name for each of {self.rows.shape[1]} features; got "
                f"shape {names.shape}."
            )

    def check_rows(self) -> None:
        """Raise a ValueError unless each potential has one of ``rows``."""
        if len(self.row) != len(self.kind):
            raise ValueError(
                "kind, start, stop and row (or rows) must have one entry per potential; kind has "
                f"{len(self.kind)}, row {len(self.row)}."
            )
        wrong = (self.row < 0) | (self.row >= self.rows.shape[0])
        if wrong.any():
            p = int(np.argmax(wrong))
            raise ValueError(
                f"{_name(self.offsets, p)} has row {self.row[p]}, but there are "
                f"{self.rows.shape[0]} rows."
            )

    @property
    def n_steps(self) -> int:
        return int(self.lengths.sum())

    @property
    def n_potentials(self) -> int:
        return len(self.kind)

    def __len__(self) -> int:
        return len(self.lengths)

    def _one(self, s: int) -> SequencePotentials:
        p = slice(self.offsets[s], self.offsets[s + 1])
        rows = self.rows[self.row[p]]
        return SequencePotentials(
            int(self.lengths[s]), self.kind[p], self.start[p], self.stop[p], rows
        )

    def _take(self, which: range | np.ndarray) -> SegmentPotentials:
        which = np.asarray(which, dtype=np.intp)
        counts = np.diff(self.offsets)[which]
        p = ranges(self.offsets[which], counts)
        # Rows that no potential uses any more are dropped.
        kept, row = np.unique(self.row[p], return_inverse=True)
        return SegmentPotentials._made(
            self.lengths[which], offsets_of(counts), self.kind[p], self.start[p], self.stop[p],
            self.rows[kept], row.reshape(-1), self.feature_names,
            self.roles,
        )  # fmt: skip

    def _with_values(self, rows: Any) -> SegmentPotentials:
        return SegmentPotentials(**self.__getstate__() | {"rows": rows})

    @classmethod
    def _joined(cls, blocks: list) -> SegmentPotentials:
        # Each sequence has the potentials of all blocks, in their order.
        first = blocks[0]
        for i, block in enumerate(blocks):
            if not isinstance(block, SegmentPotentials) or not np.array_equal(
                block.lengths, first.lengths
            ):
                raise ValueError(
                    f"Blocks joined by columns must hold the same sequences; block {i} differs "
                    "from block 0 in number or lengths. Check that all are SegmentPotentials and "
                    "that no transformer drops steps."
                )
        sequence = np.concatenate(
            [np.repeat(np.arange(len(b)), np.diff(b.offsets)) for b in blocks]
        )
        order = np.argsort(sequence, kind="stable")
        before = offsets_of([b.rows.shape[0] for b in blocks])
        names = [b.feature_names for b in blocks]
        spans = ("kind", "start", "stop")
        return cls._made(
            first.lengths,
            np.sum([b.offsets for b in blocks], axis=0),
            *(np.concatenate([getattr(b, f) for b in blocks])[order] for f in spans),
            sparse.block_diag([b.rows for b in blocks], format="csr"),
            np.concatenate([b.row + n for b, n in zip(blocks, before)])[order],
            None if any(n is None for n in names) else np.concatenate(names),
            join_roles(blocks),
        )

    def __repr__(self) -> str:
        return (
            f"<SegmentPotentials: {len(self)} sequences, {self.n_steps} steps, "
            f"{self.n_potentials} potentials, {self.rows.shape[1]} features, {self.dtype}>"
        )


def check_spans(
    lengths: Any, offsets: Any, kind: Any, start: Any, stop: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the arguments as int64 arrays; a ValueError names the first invalid potential."""
    lengths, kind = as_integers(lengths, "lengths"), as_integers(kind, "kind")
    start, stop, n = as_integers(start, "start"), as_integers(stop, "stop"), len(kind)
    for name, column in (("start", start), ("stop", stop)):
        if len(column) != n:
            raise ValueError(
                f"kind, start and stop must have one entry per potential; kind has {n}, {name} "
                f"{len(column)}."
            )
    negative = np.flatnonzero(lengths < 0)
    if negative.size:
        s = int(negative[0])
        raise ValueError(f"lengths must not be negative; sequence {s} has length {lengths[s]}.")
    if (lengths > MOST_STEPS).any() or lengths.sum() > MOST_STEPS:
        s = int(np.argmax(lengths))
        raise ValueError(
            f"lengths must add up to at most {MOST_STEPS}; sequence {s}, the longest, has length "
            f"{lengths[s]}: pass fewer sequences at a time."
        )
    offsets = check_offsets(offsets, n, "potentials")
    if len(offsets) != len(lengths) + 1:
        raise ValueError(
            f"offsets must have one entry more than there are sequences ({len(lengths)}); got "
            f"{len(offsets)}."
        )
    _check_each_span(lengths, offsets, kind, start, stop)
    return lengths, offsets, kind, start, stop


def _check_each_span(lengths, offsets, kind, start, stop) -> None:
    ends = np.repeat(lengths, np.diff(offsets))
    for wrong, problem in (
        ((kind < 0) | (kind > 3), "has kind {kind}; kinds are 0 (EXACT), 1 (OPEN_END), 2 "
                                  "(OPEN_START) and 3 (OPEN_BOTH)"),
        (start >= stop, "has start {start} and stop {stop}; spans are half-open and not empty, so "
                        "start < stop"),
        ((start < 0) | (stop > ends), "spans [{start}, {stop}), outside the sequence's {end} "
                                      "steps"),
    ):  # fmt: skip
        if wrong.any():
            p = int(np.argmax(wrong))
            problem = problem.format(kind=kind[p], start=start[p], stop=stop[p], end=ends[p])
            raise ValueError(f"{_name(offsets, p)} {problem}.")


def _name(offsets: np.ndarray, p: int) -> str:
    s = int(np.searchsorted(offsets, p, side="right")) - 1
    return f"Potential {p - offsets[s]} of sequence {s}"


def _feature_rows(rows: Any):
    rows = rows if sparse.issparse(rows) else np.asarray(rows)
    if rows.ndim != 2:
        raise ValueError(f"rows must be 2-D (n_rows, n_features); got {rows.ndim}-D.")
    if rows.dtype.kind not in "biuf":
        raise ValueError(f"rows must hold numbers; got dtype {rows.dtype}.")
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    return as_csr(rows if sparse.issparse(rows) else sparse.csr_array(rows))


def _stack(rows: list, counts: list):
    blocks = [_feature_rows(r) for r, n in zip(rows, counts) if n]
    if not blocks:
        widths = [np.shape(r)[1] for r in rows if len(np.shape(r)) == 2]
        return sparse.csr_array((0, widths[0] if widths else 0))
    for block in blocks:
        if block.shape[1] != blocks[0].shape[1]:
            raise ValueError(
                f"All sequences must have the same number of features; got {block.shape[1]} and "
                f"{blocks[0].shape[1]} columns."
            )
    return sparse.vstack(blocks, format="csr")

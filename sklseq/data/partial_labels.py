"""Partial labels: some are unknown, or sets of possible labels.

At any row, y holds a label; None, NaN or pandas.NA, if it is unknown; or a set of possible labels.
"""

from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np

from sklseq.data.labels import (
    array_of_labels,
    check_lengths,
    encode_labels,
    find_codes,
    is_missing,
    is_partial,
    list_label_sequences,
    locate,
)


class AllowedLabels(NamedTuple):
    """The labels that are allowed at each row, as codes.

    Attributes
    ----------
    codes : int32 ndarray of shape (n_rows,)
        Below n_labels: the label; n_labels: any label; above: one of several labels.
    table : bool ndarray of shape (n_codes, n_labels)
        The labels that each code allows.
    """

    codes: np.ndarray
    table: np.ndarray

    @classmethod
    def all(cls, n_labels: int) -> Self:
        """Return codes that allow every label at every row."""
        return cls(np.zeros(0, dtype=np.int32), np.ones((0, n_labels), dtype=bool))

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return self.table.shape[1]

    @property
    def unknown(self) -> np.ndarray:
        """Mask of the rows that may have any label."""
        return self.codes == self.n_labels

    def penalties(self, width: int, dtype: Any) -> np.ndarray:
        """Scores to add for each code, (n_codes, width): 0 for allowed labels, -inf for others."""
        scores = np.zeros((len(self.table), width), dtype=dtype)
        scores[:, : self.n_labels][~self.table] = -np.inf
        return scores

    def restrict(self, psi: np.ndarray, first: int) -> None:
        """Set padded scores of the rows from ``first`` on to -inf where labels are not allowed."""
        if len(self.codes):
            penalties = self.penalties(psi.shape[1], psi.dtype)
            psi += penalties[self.codes[first : first + len(psi)]]

    def choices(self, classes: np.ndarray) -> np.ndarray:
        """The item of y for each code: a label, None or a frozenset."""
        choices = np.empty(len(self.table), dtype=object)
        choices[: self.n_labels] = classes.tolist()
        for code in range(self.n_labels + 1, len(self.table)):
            choices[code] = frozenset(classes[self.table[code]].tolist())
        return choices

    def join_any(self) -> Self:
        """Replace the codes of sets of all labels by the code of any label, n_labels."""
        L, code = self.n_labels, np.arange(len(self.table), dtype=np.int32)
        code[L + 1 :][self.table[L + 1 :].all(axis=1)] = L
        return self._replace(codes=code[self.codes])


class PartialLabels(NamedTuple):
    """The possible labels of each row.

    Attributes
    ----------
    flat : ndarray of shape (n_possible,)
        Possible labels of all rows, row by row.
    counts : ndarray of shape (n_rows,)
        Number of possible labels of each row; 0 if any label is possible.
    offsets : ndarray of shape (n_sequences + 1,)
        First row of each sequence, and the number of rows.
    """

    flat: np.ndarray
    counts: np.ndarray
    offsets: np.ndarray

    @classmethod
    def read(cls, y: Any, X: Any = None, name: str = "y", first: tuple[int, int] = (0, 0)) -> Self:
        """Read the labels of a user and check them against the lengths of X.

        ``first``: numbers of the first sequence and of its first row, in error messages.
        """
        sequences, offsets = list_label_sequences(y, name, first[0])
        if X is not None:
            check_lengths(X.lengths, np.diff(offsets), name)
        items = chain.from_iterable(
            one.tolist() if isinstance(one, np.ndarray) else one for one in sequences
        )
        possible = [_possible(item) for item in items]
        counts = np.fromiter(map(len, possible), dtype=np.intp, count=len(possible))
        for row, item in enumerate(possible):
            if item is not ANY and (not item or any(map(is_missing, item))):
                problem = "holds None or NaN" if item else "is empty"
                raise ValueError(
                    f"The set of labels of {name} at {locate(offsets, row, first)} {problem}; name "
                    "the possible labels, or pass None if any label is possible."
                )
        labels = list(chain.from_iterable(possible))
        rows = np.repeat(np.arange(len(counts)), counts)
        return cls(array_of_labels(labels, offsets, name, first, rows), counts, offsets)

    def coded(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sorted labels, the code of each row, and the table of codes, see ``Choices.allowed``."""
        choices = Choices()
        numbers = choices.add(self)
        classes, code, table = choices.allowed()
        return classes, code[numbers], table

    def labels_of(self, sequences: np.ndarray) -> np.ndarray:
        """All possible labels of the sequences of a mask."""
        rows = np.repeat(sequences, np.diff(self.offsets))
        return self.flat[np.repeat(rows, self.counts)]

    def items(self) -> np.ndarray:
        """y as a flat array of labels, None and frozensets, also of all labels."""
        classes, codes, table = self.coded()
        return AllowedLabels(codes, table).choices(classes)[codes]

    def allowed(
        self, classes: np.ndarray, new: bool = False, first: tuple[int, int] = (0, 0)
    ) -> AllowedLabels:
        """The labels among ``classes`` that are allowed at each row.

        ``new``: whether other labels may occur, which are then never allowed; by default, a
        ValueError names them; ``first``: as in :meth:`read`.
        """
        if new:
            at = find_codes(self.flat, classes)
        else:
            rows = np.repeat(np.arange(len(self.counts)), self.counts)
            at = encode_labels(self.flat, classes, self.offsets, rows, first)
        L, after = len(classes), np.cumsum(self.counts)
        codes = np.full(len(self.counts), L, dtype=np.int32)
        one = self.counts == 1
        codes[one] = at[after[one] - 1]
        sets: dict[tuple, int] = {}
        for row in np.flatnonzero((self.counts > 1) | (codes < 0)):
            labels = set(at[after[row] - self.counts[row] : after[row]].tolist()) - {-1}
            if len(labels) < L:
                codes[row] = sets.setdefault(tuple(sorted(labels)), L + 1 + len(sets))
        table = np.zeros((L + 1 + len(sets), L), dtype=bool)
        table[:L], table[L] = np.eye(L, dtype=bool), True
        for labels, code in sets.items():
            table[code, list(labels)] = True
        return AllowedLabels(codes, table)


class Choices:
    """Distinct items of y (labels, None, frozensets), numbered in order of occurrence."""

    def __init__(self) -> None:
        self.number: dict[Any, int] = {}
        self.labels: np.ndarray | None = None

    def add(self, partial: PartialLabels) -> np.ndarray:
        """Return the number of the item of each row."""
        self._add_labels(partial.flat)
        counts, after = partial.counts, np.cumsum(partial.counts)
        one, found = counts == 1, np.empty(len(counts), dtype=np.int32)
        found[counts == 0] = self._of(None)
        labels, inverse = np.unique(partial.flat[after[one] - 1], return_inverse=True)
        found[one] = np.array([self._of(label) for label in labels.tolist()], np.int32)[inverse]
        for row in np.flatnonzero(counts > 1):
            some = frozenset(partial.flat[after[row] - counts[row] : after[row]].tolist())
            found[row] = self._of(some if len(some) > 1 else next(iter(some)))
        return found.astype(np.min_scalar_type(len(self.number)))

    def _of(self, item: Any) -> int:
        return self.number.setdefault(item, len(self.number))

    def _add_labels(self, flat: np.ndarray) -> None:
        if not len(flat):
            return
        labels = np.unique(flat)
        if self.labels is not None and self.labels.dtype.kind != labels.dtype.kind:
            raise ValueError(
                f"Labels such as {labels[0].item()!r} follow labels such as "
                f"{self.labels[0].item()!r}; all labels must be of one kind: convert them."
            )
        self.labels = labels if self.labels is None else np.union1d(self.labels, labels)

    def allowed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sorted labels, the code of each number, and the table of codes.

        A set of all labels keeps a code of its own, because other data may have further labels.
        """
        classes = np.zeros(0, dtype=np.str_) if self.labels is None else self.labels
        L, place = len(classes), {label: j for j, label in enumerate(classes.tolist())}
        sets = [item for item in self.number if isinstance(item, frozenset)]
        table = np.zeros((L + 1 + len(sets), L), dtype=bool)
        table[:L], table[L] = np.eye(L, dtype=bool), True
        code = place | {None: L}
        for k, labels in enumerate(sets, L + 1):
            table[k, [place[label] for label in labels]], code[labels] = True, k
        return classes, np.array([code[item] for item in self.number], dtype=np.int32), table


def labels_in(items: np.ndarray) -> np.ndarray:
    """Sorted distinct labels of an array of labels, or of items of ``PartialLabels.items``."""
    if items.dtype != object:
        return np.unique(items)
    sets = [item if isinstance(item, frozenset) else {item} for item in set(items.tolist())]
    return np.array(sorted(set().union(*sets) - {None}))


ANY: tuple = ()  # compared by identity: an empty set is an error


def _possible(item: Any) -> Any:
    # The labels that an item of y allows, as a collection.
    if isinstance(item, (set, frozenset)):
        return item
    if is_partial(item):
        return ANY
    return (item,)

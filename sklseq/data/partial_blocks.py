"""Labels of which some are unknown, read in parts: of sequences in blocks, and of shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sklseq.data.labels import unique_labels
from sklseq.data.partial_labels import AllowedLabels, PartialLabels
from sklseq.data.row_blocks import item_blocks
from sklseq.data.sequences import check_counts

__all__ = ["Choices", "CodedLabels", "join_any", "read_codes"]


class CodedLabels(NamedTuple):
    """Labels of sequences as codes, in few bytes a row.

    Attributes
    ----------
    codes : list of integer ndarray
        Of each sequence, as those of ``AllowedLabels``.
    classes : ndarray of shape (n_labels,)
    table : bool ndarray of shape (n_codes, n_labels)
    """

    codes: list
    classes: np.ndarray
    table: np.ndarray


class Choices:
    """Distinct items of y, numbered as they occur: labels, None and frozensets."""

    def __init__(self) -> None:
        self.number: dict[Any, int] = {}
        self.labels: np.ndarray | None = None

    def add(self, partial: PartialLabels) -> np.ndarray:
        """Numbers of the items of each row."""
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
        labels = unique_labels(flat)
        if self.labels is not None and self.labels.dtype.kind != labels.dtype.kind:
            raise ValueError(
                f"Labels such as {labels[0].item()!r} are given where others are such as "
                f"{self.labels[0].item()!r}; all labels must be of one kind: convert them."
            )
        self.labels = labels if self.labels is None else np.union1d(self.labels, labels)

    def allowed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Sorted labels, the code of each number, and the table of codes.

        A set of all labels has a code of its own: others may be found elsewhere.
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


def join_any(allowed: AllowedLabels) -> AllowedLabels:
    """The same, with the code of any label for sets of all."""
    L, code = allowed.n_labels, np.arange(len(allowed.table), dtype=np.int32)
    code[L + 1 :][allowed.table[L + 1 :].all(axis=1)] = L
    return allowed._replace(codes=code[allowed.codes])


def read_codes(y: Any, weights: np.ndarray) -> CodedLabels:
    """Read the labels of sequences in blocks once; those of weight 0 are left out."""
    check_counts(len(weights), len(y))
    choices = Choices()
    found: list[list[np.ndarray]] = [
        [choices.add(one) for one in _read(labels, s)] if weights[s] > 0 else []
        for s, labels in enumerate(y)
    ]
    classes, code, table = choices.allowed()
    code = join_any(AllowedLabels(code, table)).codes.astype(np.min_scalar_type(len(table)))
    codes = [code[np.concatenate([np.zeros(0, np.uint8), *parts])] for parts in found]
    return CodedLabels(codes, classes, table)


def _read(labels: Any, s: int) -> Iterator[PartialLabels]:
    first = 0
    for block in item_blocks(labels, s):
        yield PartialLabels.read([block], first=(s, first))
        first += len(block)

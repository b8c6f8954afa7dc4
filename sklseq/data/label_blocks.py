"""Labels of sequences, read in blocks; some may be unknown, or sets of labels."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Self

import numpy as np

from sklseq._lib.checksums import label_checksum
from sklseq.data.labels import as_label_sequences, check_counts
from sklseq.data.partial_labels import AllowedLabels, Choices, PartialLabels
from sklseq.data.row_blocks import AGAIN, BLOCK_ROWS, BlockError, iterate, iterates_only, recut


class LabelBlocks:
    """Labels of one sequence, read in blocks.

    Parameters
    ----------
    source : array-like of labels, or a function or iterable that yields such arrays
    number : int
        Number of the sequence in error messages.
    """

    def __init__(self, source: Any, number: int):
        self.source, self.number = source, number
        self.sums: list | None = None  # checksums of the first pass
        self.whole = not (callable(source) or iterates_only(source))
        known = isinstance(source, np.ndarray) and source.ndim == 1 and source.dtype.kind in "biuU"
        if self.whole and not known:
            self.source = self._flat(source, 0)

    @property
    def one_shot(self) -> bool:
        return isinstance(self.source, Iterator)

    def read(self, where: str) -> Iterator[np.ndarray]:
        """Yield flat arrays of labels; raise if they differ from those of the first pass."""
        blocks, sums = item_blocks(self.source, where), []
        for labels, names in recut(self._of_one_kind(blocks), BLOCK_ROWS):
            sums.append(label_checksum(labels))
            k = len(sums) - 1
            if self.sums is not None and self.sums[k : k + 1] != sums[-1:]:
                raise self._changed(f"{names}, labels {k * BLOCK_ROWS} and on", where)
            yield labels
        if self.sums is not None and len(sums) < len(self.sums):
            raise self._changed(f"fewer labels than the {len(self.sums)} blocks first read", where)
        self.sums = sums

    def _flat(self, block: Any, row: int) -> np.ndarray:
        return as_label_sequences([block], first=(self.number, row))[0]

    def _of_one_kind(self, blocks: Iterable) -> Iterator[np.ndarray]:
        # NumPy would join integers and strings to strings without an error.
        kind, row = None, 0
        for block in blocks:
            labels = self._flat(block, row)
            if len(labels) and labels.dtype.kind != (kind or labels.dtype.kind):
                raise ValueError(
                    f"Label {labels[0].item()!r} of y, at row {row} of sequence {self.number}, is "
                    "of another kind than the labels before it; all labels must be of one kind: "
                    "convert them."
                )
            if len(labels):
                kind, row = labels.dtype.kind, row + len(labels)
            yield labels

    def _changed(self, what: str, where: str) -> BlockError:
        return BlockError(
            f"The labels of {where} differ from those that were first read ({what}); {AGAIN}"
        )

    def reader(self, where: str) -> Callable[[int], np.ndarray]:
        """Return a function ``take(n)`` that returns the next n labels, fewer at the end."""
        blocks, held = self.read(where), []

        def take(n: int) -> np.ndarray:
            nonlocal held
            while sum(map(len, held)) < n:
                block = next(blocks, None)
                if block is None:
                    break
                held.append(block)
            flat = np.concatenate(held) if held else np.zeros(0, dtype=np.int64)
            held = [flat[n:]] if len(flat) > n else []
            return flat[:n]

        return take


def label_blocks(y: Any, n_sequences: int) -> list[LabelBlocks]:
    """Return the labels of each sequence as ``LabelBlocks``."""
    if not isinstance(y, (list, tuple, np.ndarray)):
        check_counts(n_sequences, f"a {type(y).__name__}")
    check_counts(n_sequences, len(y))
    return [LabelBlocks(labels, s) for s, labels in enumerate(y)]


def item_blocks(labels: Any, where: str) -> Iterator:
    """Yield the labels of the sequence called ``where`` as given, in blocks."""
    if callable(labels) or iterates_only(labels):
        yield from iterate(labels, f"the labels of {where}")
        return
    for first in range(0, len(labels), BLOCK_ROWS):
        yield labels[first : first + BLOCK_ROWS]


class CodedLabels(NamedTuple):
    """Labels of sequences as codes of a small integer type.

    Attributes
    ----------
    codes : list of integer ndarray
        Codes of each sequence, as in ``AllowedLabels``.
    classes : ndarray of shape (n_labels,)
    table : bool ndarray of shape (n_codes, n_labels)
    """

    codes: list
    classes: np.ndarray
    table: np.ndarray

    @classmethod
    def read(cls, y: Any, weights: np.ndarray, joined: bool = True) -> Self:
        """Read the labels of sequences in blocks once; sequences of weight 0 get no codes.

        ``joined``: whether sets of all labels get the code of any label.
        """
        check_counts(len(weights), len(y))
        choices = Choices()
        found: list[list[np.ndarray]] = [
            [choices.add(one) for one in _read(labels, s)] if weights[s] > 0 else []
            for s, labels in enumerate(y)
        ]
        classes, code, table = choices.allowed()
        if joined:
            code = AllowedLabels(code, table).join_any().codes
        code = code.astype(np.min_scalar_type(len(table)))
        codes = [code[np.concatenate([np.zeros(0, np.uint8), *parts])] for parts in found]
        return cls(codes, classes, table)


def _read(labels: Any, s: int) -> Iterator[PartialLabels]:
    first = 0
    for block in item_blocks(labels, f"sequence {s}"):
        yield PartialLabels.read([block], first=(s, first))
        first += len(block)

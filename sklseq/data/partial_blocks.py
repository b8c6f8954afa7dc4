"""Labels of which some are unknown, read in parts: of sequences in blocks, and of shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sklseq.data.partial_labels import AllowedLabels, Choices, PartialLabels
from sklseq.data.row_blocks import item_blocks
from sklseq.data.sequences import check_counts

__all__ = ["CodedLabels", "join_any", "read_codes"]


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

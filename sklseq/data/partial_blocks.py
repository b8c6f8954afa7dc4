"""Partial labels that are read in parts, for sequences in blocks and for shards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sklseq.data.label_blocks import item_blocks
from sklseq.data.labels import check_counts
from sklseq.data.partial_labels import AllowedLabels, Choices, PartialLabels


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


def join_any(allowed: AllowedLabels) -> AllowedLabels:
    """Replace the codes of sets of all labels by the code of any label, n_labels."""
    L, code = allowed.n_labels, np.arange(len(allowed.table), dtype=np.int32)
    code[L + 1 :][allowed.table[L + 1 :].all(axis=1)] = L
    return allowed._replace(codes=code[allowed.codes])


def read_codes(y: Any, weights: np.ndarray, joined: bool = True) -> CodedLabels:
    """Read the labels of sequences in blocks once; sequences of weight 0 get no codes.

    ``joined``: whether sets of all labels get the code of any label, as in `join_any`.
    """
    check_counts(len(weights), len(y))
    choices = Choices()
    found: list[list[np.ndarray]] = [
        [choices.add(one) for one in _read(labels, s)] if weights[s] > 0 else []
        for s, labels in enumerate(y)
    ]
    classes, code, table = choices.allowed()
    if joined:
        code = join_any(AllowedLabels(code, table)).codes
    code = code.astype(np.min_scalar_type(len(table)))
    codes = [code[np.concatenate([np.zeros(0, np.uint8), *parts])] for parts in found]
    return CodedLabels(codes, classes, table)


def _read(labels: Any, s: int) -> Iterator[PartialLabels]:
    first = 0
    for block in item_blocks(labels, s):
        yield PartialLabels.read([block], first=(s, first))
        first += len(block)

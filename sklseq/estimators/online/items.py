"""Readers and checks of the items of streams."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from scipy import sparse

from sklseq.data.sequences import Sequences
from sklseq.data.tables import is_table


def list_items(items: Any) -> Any:
    """Items of ``push_many`` as a list or matrix; a ValueError if they are anything else."""
    if sparse.issparse(items):
        return items.tocsr()
    check_items(items, "push_many")
    return items if hasattr(items, "shape") else list(items)


def takes_numbers(tagger: Any) -> bool:
    """Whether items are rows of numbers, which the tagger was fitted on: it names no features."""
    return hasattr(tagger, "vectorizer_") and tagger.vectorizer_ is None


def n_items(items: Any) -> int:
    """Number of items in a list or matrix."""
    return items.shape[0] if hasattr(items, "shape") else len(items)


def check_items(items: Any, method: str) -> None:
    """Raise a ValueError if ``items`` iterates over anything but the items of one sequence."""
    if isinstance(items, (str, bytes)) or not hasattr(items, "__iter__"):
        raise ValueError(
            f"{method} takes items one after another, such as a list or a matrix; got "
            f"{type(items).__name__}. Wrap a single item in a list: [item]."
        )
    if isinstance(items, Mapping):
        raise ValueError(
            f"{method} takes items one after another; got a dict of {list(items)[:3]}. Convert "
            "columns x to rows: [dict(zip(x, row)) for row in zip(*x.values())]; one item goes to "
            "push."
        )
    if is_table(items):
        raise ValueError(
            f"{method} takes items one after another; got a {type(items).__name__}, which iterates "
            "over its columns. Give its rows: a list of dicts, or its values as a matrix."
        )
    if isinstance(items, Sequences):
        raise ValueError(
            f"{method} takes the items of one sequence; got {len(items)} sequences. Give one of "
            "them, X[s]."
        )


def read_items(items: Any, first: int, numbers: bool, tagger: Any) -> Any:
    """Return one row for each item, a matrix if ``numbers``. Items are numbered from ``first``."""
    if not isinstance(items, list) and not (numbers and items.dtype == object):
        return items
    for k, item in enumerate(items):
        if getattr(item, "ndim", 1) == 2 and not (sparse.issparse(item) and item.shape[0] == 1):
            raise ValueError(
                f"Item {first + k} of the stream is a matrix of shape {item.shape}; push "
                "takes one item, push_many the rows of a matrix."
            )
    if not numbers:
        return items
    width, name = tagger.n_features_in_, type(tagger).__name__
    rows = [_numbers_of(item) for item in items]
    for k, row in enumerate(rows):
        if row is None or row.shape[-1] != width:
            raise ValueError(
                f"Item {first + k} of the stream must be {width} numbers, as the rows "
                f"{name} was fitted on: an array or list of them, or a sparse row; got "
                f"{_short(items[k])}."
            )
    if any(map(sparse.issparse, rows)):
        return sparse.vstack([sparse.csr_array(row.reshape(1, -1)) for row in rows], "csr")
    return np.stack(rows)


def _numbers_of(item: Any) -> Any:
    # Return one row of numbers, dense or sparse, or None if the item is not such a row.
    if not sparse.issparse(item):
        if isinstance(item, (str, bytes)) or not hasattr(item, "__len__"):
            return None
        try:
            item = np.asarray(item)
        except ValueError:  # parts of different lengths
            return None
        if item.ndim != 1:
            return None
    return item if item.dtype.kind in "biuf" else None


def _short(item: Any) -> str:
    if hasattr(item, "dtype"):
        return f"{type(item).__name__} of {item.dtype}, shape {item.shape}"
    text = repr(item)
    return text if len(text) <= 60 else f"{type(item).__name__} {text[:50]}..."


def one_sequence(items: Any) -> Any:
    """Return X with one sequence: arrays and sparse rows as a matrix, other items as a list."""
    if isinstance(items, list) and sparse.issparse(items[0]):
        rows = [item if item.ndim == 2 else item.reshape(1, -1) for item in items]
        items = rows[0] if len(rows) == 1 else sparse.vstack(rows, format="csr")
    elif isinstance(items, list):
        numeric = isinstance(items[0], np.ndarray) and items[0].dtype.kind in "biuf"
        if not numeric or len({np.shape(item) for item in items}) > 1:
            return [items]
        items = np.stack(items)
    if items.ndim != 2:
        raise ValueError(f"Rows must form a 2-D matrix; got shape {items.shape}.")
    return Sequences(items, [0, items.shape[0]])


@contextmanager
def numbered_from(place: Callable[[int, int], str]) -> Iterator[None]:
    """Replace "row t of sequence s" in errors by ``place(s, t)``, such as "7 of the stream"."""

    def renamed(found: re.Match) -> str:
        return f"{found[1]} {place(int(found[3]), int(found[2]))}"

    try:
        yield
    except (ValueError, TypeError) as error:
        message = re.sub(
            r"\b(row|token) (\d+) of sequence (\d+)( of X)?\b",
            renamed,
            str(error),
            flags=re.IGNORECASE,
        )
        if message == str(error) or type(error) not in (ValueError, TypeError):
            raise
        raise type(error)(message) from error

"""Sequences in one long table, in rows of a data set, and in documents of spaCy.

table ── group column ──▶ offsets ──▶ X: packed numbers, or dicts of columns;  y: labels
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from sklseq.data.sequences import Sequences
from sklseq.data.tables import (
    Table,
    column_array,
    column_codes,
    column_list,
    holds_numbers,
    table_columns,
)

from ._checks import check_names

__all__ = ["from_docs", "from_frame", "from_rows"]


def from_frame(
    frame: Table,
    group: str | Sequence[str],
    y: str | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> tuple[Sequences | list[dict], list | None]:
    """Cut one long table, with a row for each token, into sequences.

    Parameters
    ----------
    frame : DataFrame of pandas or polars, Table of pyarrow, or dict of columns
        A row for each token; the rows of a sequence follow one another.
    group : str or list of str
        The column whose value is the same in all rows of a sequence, such as a sentence number;
        or several, such as document and sentence.
    y : str, default=None
        The column with the labels.
    columns : list of str, default=None
        The columns of X, in this order. None: all but `group` and `y`, in the order of the table.

    Returns
    -------
    X : Sequences or list of dict
        If all columns are numbers: their matrix, cut into sequences, for a tagger or ``PerToken``.
        Otherwise a dict for each sequence, from column name to its values: a list, or an array if
        they are numbers.
    y : list, or None
        The labels of each sequence, a list or an array of numbers; None without `y`.

    Raises
    ------
    ValueError
        If a column is missing or named twice, a group has no value, or its rows are apart.

    See Also
    --------
    from_rows : one row for each sequence.

    Notes
    -----
    The order of rows and sequences is kept: ``numpy.concatenate(model.predict(X))`` is a new column
    of `frame`. ``Sequences`` have no names of columns: where tables may have their columns in
    another order, give `columns`. Cost O(cells); a matrix that the table holds is not copied.

    Examples
    --------
    >>> from sklseq.datasets import from_frame
    >>> frame = {"s": [7, 7, 8], "w": ["He", "ran", "Stop"], "pos": ["PRP", "VBD", "VB"]}
    >>> from_frame(frame, "s", "pos")[0]
    [{'w': ['He', 'ran']}, {'w': ['Stop']}]
    >>> from_frame({"s": [7, 7, 8], "x": [0.5, 1.0, 0.0]}, "s")[0]
    <Sequences: 2 sequences, 3 rows, 1 features, dense float64>
    """
    known = table_columns(frame)
    groups = [group] if isinstance(group, str) else list(group)
    apart = {*groups, y}
    names = [n for n in known if n not in apart] if columns is None else check_names(columns)
    for name in [*groups, *([] if y is None else [y]), *names]:
        if name not in known:
            raise ValueError(f"The table has no column {name!r}; it has {known}.")
    offsets = _offsets([frame[name] for name in groups], groups)
    labels = None if y is None else _cut(frame[y], offsets)
    if names and all(holds_numbers(frame[name]) for name in names):
        return Sequences(_matrix(frame, names), offsets), labels
    cut = [_cut(frame[name], offsets) for name in names]
    return [dict(zip(names, parts)) for parts in zip(*cut)], labels


def _offsets(columns: list, names: list[str]) -> np.ndarray:
    """Where a value of one of the columns differs from that of the row before."""
    n = len(columns[0])
    new = np.zeros(max(n - 1, 0), dtype=bool)
    for codes in map(column_codes, columns):
        new |= np.asarray(codes[1:] != codes[:-1], dtype=bool)
    starts = np.concatenate([[0][:n], np.flatnonzero(new) + 1]).astype(np.int64)
    firsts = [column_array(column)[starts] for column in columns]
    rises = len(firsts) == 1 and firsts[0].dtype.kind in "iu" and (np.diff(firsts[0]) > 0).all()
    if not rises:
        _check_groups(list(zip(*(first.tolist() for first in firsts))), starts.tolist(), names)
    return np.append(starts, n)


def _check_groups(values: list[tuple], starts: list[int], names: list[str]) -> None:
    """Raise a ValueError unless every group has a value and its rows are together."""
    seen: dict[tuple, int] = {}
    for start, value in zip(starts, values):
        if any(v is None or v != v for v in value):
            raise ValueError(f"Row {start} has no value in {names}; fill it, or drop the row.")
        if seen.setdefault(value, start) != start:
            shown = value if len(names) > 1 else value[0]
            raise ValueError(
                f"Rows of the group {shown!r} begin at row {seen[value]} and again at row {start}; "
                f"sort the table by {names}, keeping the order of tokens."
            )


def _matrix(frame: Any, names: list[str]) -> np.ndarray:
    if hasattr(frame, "to_numpy"):  # may be a view
        return frame[names].to_numpy()
    return np.array([column_array(frame[name]) for name in names]).T


def _cut(values: Any, offsets: np.ndarray) -> list:
    """The values of each sequence: arrays of numbers, or lists."""
    column: Any = column_array(values) if holds_numbers(values) else column_list(values)
    return [column[a:b] for a, b in pairwise(offsets.tolist())]


def from_rows(
    rows: Table | Sequence[Mapping[str, Sequence[Any]]],
    y: str | None = None,
    *,
    columns: Sequence[str] = ("tokens",),
) -> tuple[list[dict], list | None]:
    """Read a data set with a row for each sequence, as those of Hugging Face.

    Parameters
    ----------
    rows : Dataset, DataFrame or list of dict
        The cells of `columns` and `y` are lists, with an item for each token.
    y : str, default=None
        The column with the labels, such as ``"ner_tags"``.
    columns : list of str, default=("tokens",)
        The columns of X.

    Returns
    -------
    X : list of dict
        A dict for each row, from column name to the list of its items.
    y : list of list, or None
        The labels of each row; None without `y`.

    Raises
    ------
    ValueError
        If a column is missing, the lists of a row differ in length, or a number is no class.

    See Also
    --------
    from_frame : one row for each token.

    Notes
    -----
    Numbers of a column whose feature is a list of ``ClassLabel`` become the names of the classes.

    Examples
    --------
    >>> from sklseq.datasets import from_rows
    >>> from_rows([{"tokens": ["He", "ran"], "ner_tags": [0, 0]}], "ner_tags")
    ([{'tokens': ['He', 'ran']}], [[0, 0]])
    """
    names = check_names(columns)
    cells = [_cells(rows, name) for name in (names if y is None else [*names, y])]
    for r, row in enumerate(zip(*cells)):
        if len(set(map(len, row))) > 1:
            sizes = ", ".join(f"{n}: {len(c)}" for n, c in zip([*names, y], row))
            raise ValueError(f"The lists of row {r} must be equally long; got {sizes}.")
    X = [dict(zip(names, row)) for row in zip(*cells[: len(names)])]
    return X, None if y is None else cells[-1]


def _cells(rows: Any, name: str) -> list[list]:
    """The lists of a column, with names of classes for their numbers."""
    try:
        by_row = isinstance(rows, list | tuple)
        column = [row[name] for row in rows] if by_row else column_list(rows[name])
    except (KeyError, IndexError) as error:
        raise ValueError(f"The rows have no column {name!r}.") from error
    features = getattr(rows, "features", None)
    feature = features.get(name) if isinstance(features, Mapping) else None
    classes = getattr(getattr(feature, "feature", None), "names", None)
    if classes is None:
        return list(map(column_list, column))
    known = dict(enumerate(classes))
    for r, cell in enumerate(column):
        for number in cell:
            if number not in known:
                raise ValueError(
                    f"Row {r} holds {number} in column {name!r}, whose classes are numbered 0 to "
                    f"{len(known) - 1}; drop the row, or label it."
                )
    return [[known[number] for number in cell] for cell in column]


def from_docs(
    docs: Iterable[Iterable[Any]], y: str | None = None, *, columns: Sequence[str] = ("text",)
) -> tuple[list[dict], list[list[str]] | None]:
    """Read the tokens of documents of spaCy.

    Parameters
    ----------
    docs : iterable of Doc or Span
        Each, such as a sentence, is a sequence of tokens.
    y : str, default=None
        ``"ent"`` for the entities as IOB2 labels, or an attribute of tokens, such as ``"tag_"``.
    columns : list of str, default=("text",)
        Attributes of tokens, the columns of X: ``"text"``, ``"lemma_"``, ``"pos_"``, ...

    Returns
    -------
    X : list of dict
        A dict for each document, from the name of an attribute to its value for each token.
    y : list of list of str, or None
        The labels of each document; None without `y`.

    Notes
    -----
    The spans of ``predict_spans`` count tokens, as those of spaCy:
    ``doc.ents = [Span(doc, start, stop, label=type) for start, stop, type in spans]``.

    Examples
    --------
    >>> from types import SimpleNamespace as Token
    >>> from sklseq.datasets import from_docs
    >>> doc = [Token(text="Ann", ent_iob_="B", ent_type_="PER"),
    ...        Token(text="ran", ent_iob_="O", ent_type_="")]
    >>> from_docs([doc], "ent")
    ([{'text': ['Ann', 'ran']}], [['B-PER', 'O']])
    """
    names = check_names(columns)
    X, labels = [], []
    for doc in docs:
        X.append({name: [getattr(token, name) for token in doc] for name in names})
        if y == "ent":
            labels.append([f"{t.ent_iob_}-{t.ent_type_}" if t.ent_type_ else "O" for t in doc])
        elif y is not None:
            labels.append([getattr(token, y) for token in doc])
    return X, None if y is None else labels

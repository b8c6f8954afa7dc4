"""Readers of sequences in long tables, in rows of data sets, and in documents of spaCy.

table ── group column ──▶ offsets ──▶ X: packed numbers, or dicts of columns;  y: labels
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np

from sklseq._lib.checks import check_names
from sklseq.data.characters import as_items
from sklseq.data.column_sequences import ColumnSequences
from sklseq.data.labels import cut_rows, is_missing, type_kind, whole_as_integer
from sklseq.data.sequences import Sequences
from sklseq.data.tables import (
    Coded,
    Table,
    column_array,
    column_codes,
    column_list,
    distinct_strings,
    holds_numbers,
    is_list,
    is_table,
    read_columns,
    table_columns,
)

_NUMBERS = (Real, Decimal, np.bool_)
_IGNORED = -100


def from_frame(
    frame: Table,
    group: str | Sequence[str],
    y: str | None = None,
    *,
    columns: Sequence[str] | None = None,
) -> tuple[Sequences | Sequence[dict], list | None]:
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
    X : Sequences, or sequence of dict
        If all columns are numbers: their matrix, cut into sequences, for a tagger or ``PerToken``;
        missing numbers are NaN.
        Otherwise a read-only list with a dict for each sequence, from column name to its values: a
        list, or an array if they are numbers. Each dict is made when it is read; extractors look up
        each distinct string of a column once.
    y : list of list, or None
        The labels of each sequence; missing ones are None. Whole floats become integers,
        because tables convert integers to floats beside missing values. None without `y`.

    Raises
    ------
    ValueError
        If a column is missing or occurs twice, columns differ in length, none is left for X, `y` is
        also in `group` or `columns`, a group has no value, or its rows are apart; if a column
        has masked entries or two dimensions, or labels are of several kinds.
    TypeError
        If `frame` is not a table, one of its columns is not a list, or values of a group cannot be
        compared.

    See Also
    --------
    from_rows : one row for each sequence.

    Notes
    -----
    The order of rows and sequences is kept: ``numpy.concatenate(model.predict(X))`` is a new column
    of `frame`. ``Sequences`` have no names of columns: if the order of columns may differ between
    tables, give `columns`. Cost O(cells); a matrix that the table holds is not copied.

    Examples
    --------
    >>> from sklseq.datasets import from_frame
    >>> frame = {"s": [7, 7, 8], "w": ["He", "ran", "Stop"], "pos": ["PRP", "VBD", "VB"]}
    >>> X, y = from_frame(frame, "s", "pos")
    >>> list(X)
    [{'w': ['He', 'ran']}, {'w': ['Stop']}]
    >>> from_frame({"s": [7, 7, 8], "x": [0.5, 1.0, 0.0]}, "s")[0]
    <Sequences: 2 sequences, 3 rows, 1 features, dense float64>
    """
    names, groups = _names(frame, group, y, columns)
    read = [*groups, *names, *([] if y is None else [y])]
    found = read_columns(frame, read)
    if not names:
        known = table_columns(frame)
        raise ValueError(f"The table has no columns for X beside group and y; it has {known}.")
    _check_dimensions(dict(zip(read, found)))
    try:
        offsets = _offsets(found[: len(groups)], groups)
    except TypeError as error:  # a Decimal and an integer of NumPy, for example
        raise TypeError(
            f"Values of the group {groups} cannot be compared ({error}); convert them to integers "
            "or strings."
        ) from error
    labels = None if y is None else list(cut_rows(_labels(found[-1], y), offsets))
    cells = [_values(column) for column in found[len(groups) : len(groups) + len(names)]]
    numbers = [column for column in cells if isinstance(column, np.ndarray)]
    if len(numbers) == len(cells):
        return Sequences(_matrix(frame, names, numbers), offsets), labels
    return ColumnSequences(dict(zip(names, cells)), offsets), labels


def _names(frame: Any, group: Any, y: Any, columns: Any) -> tuple[list, list]:
    """The columns of X and those of the group, of which there is at least one."""
    # A LazyFrame has columns and no length.
    if not isinstance(frame, Mapping) and not (hasattr(frame, "__len__") and is_table(frame)):
        raise TypeError(
            "frame must be a DataFrame of pandas or polars (collect a LazyFrame), a Table of "
            f"pyarrow or a dict of columns; got {type(frame).__name__}."
        )
    groups = as_items(group, "group") if is_list(group) else [group]
    if not groups:
        raise ValueError("group must name at least one column; got an empty list.")
    known = table_columns(frame)
    if group is None and None not in known:
        raise ValueError(
            "group must name the column that has one value in all rows of a sequence; got None. "
            "If the table is one sequence, add a column of zeros."
        )
    for name in [*groups, y]:
        if not isinstance(name, Hashable):
            raise TypeError(f"group and y must be names of columns; got {name!r:.40}.")
    given = None if columns is None else check_names(columns, some=True)
    _check_label_column(y, [*groups, *(given or [])])
    if given is not None:
        return given, groups
    names = [name for name in known if name not in {*groups, y}]
    return names, groups


def _check_label_column(y: Any, others: list) -> None:
    if y is not None and y in others:
        raise ValueError(
            f"Column {y!r} is named as y and again in group or columns; labels are neither of "
            "these: name it once."
        )


def _check_dimensions(columns: dict[Any, Any]) -> None:
    """Raise a ValueError unless each column has one value a row."""
    for name, column in columns.items():
        shape = getattr(column, "shape", (0,))
        if len(shape) != 1:
            raise ValueError(
                f"Column {name!r} must have one dimension; got an array of shape {shape}: give "
                "each of its columns a name, or pass a list of its rows."
            )


def _check_cells(items: list, name: Any, role: str) -> None:
    """Raise a ValueError if a cell is a list, an array or another value that has no hash."""
    lists = {cls for cls in set(map(type, items)) if cls.__hash__ is None}
    if role == "label":
        lists -= {set}  # a set of possible labels
    if lists:
        row = next(row for row, item in enumerate(items) if type(item) in lists)
        raise ValueError(
            f"Column {name!r} must have one {role} a row; row {row} holds {items[row]!r:.40} "
            f"({type(items[row]).__name__}): spread it over rows, or use from_rows for a table "
            "with a row for each sequence."
        )


def _offsets(columns: list, names: list[str]) -> np.ndarray:
    """Offsets of the groups, which begin where a value of one of the columns changes."""
    n = len(columns[0])
    new = np.zeros(max(n - 1, 0), dtype=bool)
    columns = [_as_given(column) for column in columns]
    for name, column in zip(names, columns):
        first = column_array(column[:1])
        if (first.dtype == object or first.ndim > 1) and distinct_strings(column) is None:
            _check_cells(column_list(column), name, "value")
    for codes in map(column_codes, columns):
        new |= np.asarray(codes[1:] != codes[:-1], dtype=bool)
    starts = np.concatenate([[0][:n], np.flatnonzero(new) + 1]).astype(np.int64)
    firsts = [column_array(column)[starts] for column in columns]
    rises = len(firsts) == 1 and firsts[0].dtype.kind in "iu" and (np.diff(firsts[0]) > 0).all()
    if not rises:
        _check_groups(list(zip(*(first.tolist() for first in firsts))), starts.tolist(), names)
    return np.append(starts, n)


def _as_given(column: Any) -> Any:
    # In an array, NumPy would make different items equal: 1 and "1", or numbers beyond 2**53.
    if isinstance(column, list | tuple):
        return np.fromiter(column, dtype=object, count=len(column))
    return column


def _check_groups(values: list[tuple], starts: list[int], names: list[str]) -> None:
    """Raise a ValueError unless every group has a value and its rows are together."""
    seen: dict[tuple, int] = {}
    for start, value in zip(starts, values):
        if any(map(is_missing, value)):
            raise ValueError(f"Row {start} has no value in {names}; fill it, or drop the row.")
        if seen.setdefault(value, start) != start:
            shown = value if len(names) > 1 else value[0]
            raise ValueError(
                f"Rows of the group {shown!r} begin at row {seen[value]} and again at row {start}; "
                f"sort the table by {names}, keeping the order of tokens."
            )


def _matrix(frame: Any, names: list[str], cells: list[np.ndarray]) -> np.ndarray:
    if hasattr(frame, "iloc"):  # pandas may hold this matrix
        matrix = frame[names].to_numpy()
        if matrix.dtype != object:
            return matrix
    return np.stack(cells).T  # large pages of NumPy make the first use faster


def _values(column: Any) -> np.ndarray | Coded | list:
    """Return an array of numbers, distinct strings with codes, or a list."""
    strings = distinct_strings(column)
    if strings is not None:
        return strings
    if not isinstance(column, list | tuple) and holds_numbers(column):
        array = column_array(column)
        if array.dtype != object:
            return array
    items = column_list(column)
    known = next((item for item in items if not is_missing(item)), None)
    return _numbers(items) if isinstance(known, _NUMBERS) else items


def _numbers(items: list) -> np.ndarray | list:
    """Return the array of numbers, NaN where missing; the list itself if it has other items."""
    others = {cls for cls in set(map(type, items)) if not issubclass(cls, _NUMBERS)}
    if others:
        filled = [np.nan if is_missing(item) else item for item in items]
        if others.intersection(map(type, filled)):
            return items
        items = filled
    array = np.array(items)
    return array if array.dtype.kind in "biuf" else np.array(items, dtype=np.float64)


def _labels(column: Any, name: Any) -> list:
    """Labels, None if missing; whole floats, which tables make of integers, become integers."""
    if not isinstance(column, list | tuple) and holds_numbers(column):
        array = column_array(column)
        if array.dtype.kind in "biu":
            return array.tolist()
    items = column_list(column)
    if set(map(type, items)) <= {str}:
        return items
    _check_cells(items, name, "label")
    items = [None if is_missing(v) else whole_as_integer(v) for v in items]
    return _of_one_kind(items, name)


def _of_one_kind(labels: list, name: Any) -> list:
    """Return the labels, as plain Python objects if all are integers or all booleans."""
    kinds = {cls: type_kind(cls) for cls in set(map(type, labels))}
    first: dict[str | None, int] = {}
    if len(set(kinds.values())) > 1:
        for row, label in enumerate(labels):
            first.setdefault(kinds[type(label)], row)
        first.pop(None, None)
    if len(first) > 1:
        (one, a), (other, b) = list(first.items())[:2]
        raise ValueError(
            f"Column {name!r} must hold labels of one kind; row {a} holds {labels[a]!r:.40} "
            f"({one}) and row {b} {labels[b]!r:.40} ({other}): convert them."
        )
    array = np.array(labels) if set(kinds.values()) <= {"integer", "boolean"} else None
    return labels if array is None or array.dtype == object else array.tolist()


def from_rows(
    rows: Table | Sequence[Mapping[str, Sequence[Any]]],
    y: str | None = None,
    *,
    columns: Sequence[str] = ("tokens",),
) -> tuple[list[dict], list | None]:
    """Read a data set with a row for each sequence, such as those of Hugging Face.

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
        The labels of each row; -100, which Hugging Face's losses ignore, is read as None, a label
        that is not known. None without `y`.

    Raises
    ------
    ValueError
        If a column is missing, `y` is also in `columns`, the lists of a row differ in length, or a
        number is not that of a class.
    TypeError
        If a row is not a dict, or a cell is not a list.

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
    names = check_names(columns, some=True)
    _check_label_column(y, names)
    cells = [_cells(rows, name) for name in names]
    if y is not None:
        cells.append(_cells(rows, y, is_label=True))
    for r, row in enumerate(zip(*cells)):
        if len(set(map(len, row))) > 1:
            sizes = ", ".join(f"{n}: {len(c)}" for n, c in zip([*names, y], row))
            raise ValueError(f"The lists of row {r} must be equally long; got {sizes}.")
    X = [dict(zip(names, row)) for row in zip(*cells[: len(names)])]
    return X, None if y is None else cells[-1]


def _cells(rows: Any, name: str, is_label: bool = False) -> list[list]:
    """Lists of a column; numbers of classes become their names, and labels of -100 None."""
    column = _column(rows, name)
    for r, cell in enumerate(column):
        if not is_list(cell):
            raise TypeError(
                f"Row {r} must hold a list in column {name!r}, with an item for each token; got "
                f"{cell!r:.40} ({type(cell).__name__})."
            )
    features = getattr(rows, "features", None)
    feature = features.get(name) if isinstance(features, Mapping) else None
    classes = getattr(getattr(feature, "feature", None), "names", None)
    if classes is None:
        return [_known(column_list(cell)) if is_label else column_list(cell) for cell in column]
    known = dict(enumerate(classes))
    if is_label:
        known[_IGNORED] = None
    for r, cell in enumerate(column):
        for number in cell:
            if number not in known:
                raise ValueError(
                    f"Row {r} holds {number} in column {name!r}, whose classes are numbered 0 to "
                    f"{len(classes) - 1}; drop the row, or label it."
                )
    return [[known[number] for number in cell] for cell in column]


def _known(labels: list) -> list:
    return [None if isinstance(v, Integral) and v == _IGNORED else v for v in labels]


def _column(rows: Any, name: str) -> list:
    if isinstance(rows, Mapping) or is_table(rows):
        return column_list(read_columns(rows, [name])[0])
    if not isinstance(rows, list | tuple):
        try:
            return column_list(rows[name])
        except KeyError as error:
            raise ValueError(f"The rows have no column {name!r}.") from error
        except (TypeError, IndexError) as error:
            raise TypeError(
                "rows must be a Dataset, a DataFrame or a list of dicts; got "
                f"{type(rows).__name__}."
            ) from error
    for r, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"Row {r} must be a dict of columns; got {type(row).__name__}.")
        if name not in row:
            raise ValueError(f"Row {r} has no column {name!r}; it has {list(row)}.")
    return [row[name] for row in rows]


def from_docs(
    docs: Iterable[Iterable[Any]], y: str | None = None, *, columns: Sequence[str] = ("text",)
) -> tuple[list[dict], list[list[str | None]] | None]:
    """Read the tokens of documents of spaCy.

    Parameters
    ----------
    docs : iterable of Doc or Span
        Each, such as a sentence, is a sequence of tokens.
    y : str, default=None
        ``"ent"`` for the entities as IOB2 labels, None (unknown) for tokens that have no annotation
        of entities; or an attribute of tokens, such as ``"tag_"``.
    columns : list of str, default=("text",)
        Attributes of tokens, the columns of X: ``"text"``, ``"lemma_"``, ``"pos_"``, ...

    Returns
    -------
    X : list of dict
        A dict for each document, from the name of an attribute to its value for each token.
    y : list of list of str or None, or None
        The labels of each document; None without `y`.

    Notes
    -----
    The spans of ``predict_spans`` count tokens, like spans of spaCy:
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
    names = check_names(columns, some=True)
    _check_label_column(y, names)
    if not is_list(docs):
        raise TypeError(f"docs must be a list of documents; got {type(docs).__name__}.")
    X, labels = [], []
    for d, doc in enumerate(docs):
        if not is_list(doc):
            raise TypeError(
                f"Document {d} must be a Doc or Span; got {doc!r:.40} ({type(doc).__name__}). To "
                "read one document, wrap it in a list."
            )
        tokens = list(doc)  # once, as it may be an iterator
        X.append({name: _attribute(tokens, d, name) for name in names})
        if y == "ent":
            parts = zip(_attribute(tokens, d, "ent_iob_"), _attribute(tokens, d, "ent_type_"))
            labels.append([_entity_label(iob, type_) for iob, type_ in parts])
        elif y is not None:
            labels.append(_attribute(tokens, d, y))
    return X, None if y is None else labels


def _entity_label(iob: str, type_: str) -> str | None:
    if not iob:
        return None
    return f"{iob}-{type_}" if type_ else "O"


def _attribute(tokens: list, d: int, name: str) -> list:
    try:
        return [getattr(token, name) for token in tokens]
    except AttributeError as error:
        raise ValueError(
            f"A token of document {d} has no attribute {name!r}; name attributes of tokens of "
            "spaCy, such as 'text'."
        ) from error

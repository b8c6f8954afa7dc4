"""Column files, the exchange format of sequence labelling: a token a line, a blank line between.

    file ── bytes ── text ── lines ── rows of cells ──▶ X: dicts of columns,  y: lists of labels

Reading splits a whole sequence at once, so that a file of 200,000 tokens takes a fraction of a
second. Writing checks every cell before it touches the disk.
"""

import gzip
import numbers
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any

from sklseq._lib.lines import as_lines

Columns = dict[str, list[str]]

# Only space and tab separate cells: str.split() would also cut at no-break spaces, which do occur
# inside tokens of real corpora.
_CELL = re.compile(r"[^ \t]+")
_CELL_OR_END = re.compile(r"[^ \t\n]+|\n")
_SPACES_BESIDE_TAB = re.compile(" *\t *")


def read_conll(
    path: str | os.PathLike | IO,
    *,
    columns: Sequence[str] | None = None,
    label: int | None = -1,
    separator: str | None = None,
    encoding: str = "utf-8",
    comment: str | None = None,
    docstart: str | None = "-DOCSTART-",
) -> tuple[list[Columns], list[list[str]] | None]:
    """Read a file with one token a line and a blank line after each sequence.

    Parameters
    ----------
    path : str, path-like or file object
        The file, open in text or binary mode if it is a file object. Gzip is recognised by its
        first bytes, whatever the name.
    columns : sequence of str, default=None
        Names of the columns other than the label, in file order. None names them
        ``"c0", "c1", ...``.
    label : int or None, default=-1
        Position of the label column, counted from the end if negative. None: there is none, every
        column is a feature.
    separator : str or None, default=None
        ``" "`` means a run of spaces and tabs. Any other character, such as ``"\\t"``, separates
        exactly: cells may then be empty, and begin, end or be made of spaces. None means ``"\\t"``
        if the first token line contains a tab, else ``" "``; spaces beside a tab and white space
        at the ends of a line, except tabs before the first cell, then count for nothing.
    encoding : str, default="utf-8"
        Encoding of the text; unused if `path` is a file open in text mode.
    comment : str or None, default=None
        Lines that start with it are skipped.
    docstart : str or None, default="-DOCSTART-"
        Lines whose first cell it is mark a new document; they end a sequence and are skipped.
        With ``separator=None`` their first cell ends at the first space or tab.

    Returns
    -------
    X : list of dict
        One dict a sequence, from column name to the list of its cells; all lists of one sequence
        are equally long.
    y : list of list of str, or None
        The labels of each sequence; None if ``label=None``.

    Raises
    ------
    ValueError
        If a line has another number of cells than the first one, if `columns` or `label` do not
        fit the file, if a label contains a space and `separator` is None, or if the bytes are not
        text of this encoding or not a whole gzip file.

    See Also
    --------
    read_conllu : The format of Universal Dependencies.
    write_conll : The inverse.

    Notes
    -----
    Lines end in LF, CRLF or CR. Lines of spaces and tabs only are blank; several of them count as
    one. A byte order mark is dropped. An empty file gives ``([], [])``. Of CoNLL-U files this
    function would read ranges and empty nodes as tokens.

    Examples
    --------
    >>> import io
    >>> from sklseq.datasets import read_conll
    >>> file = io.StringIO("He PRP B-NP\\nran VBD B-VP\\n\\nStop VB B-VP\\n")
    >>> X, y = read_conll(file, columns=["w", "pos"])
    >>> X
    [{'w': ['He', 'ran'], 'pos': ['PRP', 'VBD']}, {'w': ['Stop'], 'pos': ['VB']}]
    >>> y
    [['B-NP', 'B-VP'], ['B-VP']]
    """
    _check_separator(separator)
    _check_label(label)
    name, text = read_text(path, encoding)
    lines, numbers, starts = _token_lines(text, separator, comment, docstart)
    if not lines:
        return [], None if label is None else []
    guessed = separator is None
    if guessed:
        separator = "\t" if "\t" in lines[0] else " "
    width = len(_split_line(lines[0], separator))
    if width == 1 and label in (0, -1) and columns is None:
        raise ValueError(
            f"{name}, line {numbers[0]}: {shorten(lines[0])!r} has one column, and label={label!r} "
            "takes it for the labels; pass label=None for a file of tokens only, or columns=[] for "
            "one of labels only."
        )
    at = _label_position(name, label, width)
    names = _column_names(name, columns, width - (at is not None))
    X, y = [], []
    for start, stop in pairwise([*starts, len(lines)]):
        cells = _split_columns(lines[start:stop], separator, width)
        if cells is None:
            raise _wrong_width(name, lines, numbers, separator)
        if at is not None:
            y.append(cells.pop(at))
            if guessed and separator == "\t":
                _check_labels(name, y[-1], numbers[start:stop])
        X.append(dict(zip(names, cells)))
    return X, None if label is None else y


def read_text(path: str | os.PathLike | IO, encoding: str) -> tuple[str, str]:
    """Return a name for error messages and the whole text, unzipped and decoded."""
    if hasattr(path, "read"):
        name, data = str(getattr(path, "name", "the file object")), path.read()
    else:
        name, data = os.fspath(path), Path(path).read_bytes()
    if isinstance(data, bytes):
        data = _decode(name, _unzip(name, data), encoding)
    return name, data.removeprefix("\ufeff")


def _unzip(name: str, data: bytes) -> bytes:
    if data.startswith(b"PK\x03\x04"):
        raise ValueError(
            f"{name} is a zip archive, which may hold several files; unpack it and pass one."
        )
    if not data.startswith(b"\x1f\x8b"):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(
            f"{name} is not a whole gzip file ({error}); fetch or compress it again."
        ) from error


def _decode(name: str, data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ValueError(
                f"{name} begins with the byte order mark of UTF-16; pass encoding='utf-16'."
            ) from error
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{name}, line {line}: byte 0x{data[error.start]:02x} is not {encoding} text; pass "
            "encoding=, for example encoding='latin-1'."
        ) from error


def _token_lines(
    text: str, separator: str | None, comment: str | None, docstart: str | None
) -> tuple[list[str], list[int], list[int]]:
    """Return the token lines, their line numbers, and where sequences start."""
    lines, numbers, starts, inside = [], [], [], False
    for number, line in enumerate(as_lines(text), 1):
        if comment and line.startswith(comment):
            continue
        if separator is None:
            line = _without_margins(line)
        blank = not line or not line.strip(" \t")
        if blank or (docstart and docstart in line and _first_cell(line, separator) == docstart):
            inside = False
            continue
        if not inside:
            starts.append(len(lines))
            inside = True
        lines.append(line)
        numbers.append(number)
    return lines, numbers, starts


def _without_margins(line: str) -> str:
    """Drop the white space that separates no cells, whether or not tabs separate them."""
    line = line.strip(" ").rstrip(" \t")
    return _SPACES_BESIDE_TAB.sub("\t", line) if "\t" in line and " " in line else line


def _first_cell(line: str, separator: str | None) -> str:
    return _split_line(line, separator or " ")[0]


def _split_line(line: str, separator: str) -> list[str]:
    return _CELL.findall(line) if separator == " " else line.split(separator)


def _split_columns(lines: list[str], separator: str, width: int) -> list[list[str]] | None:
    """Split the lines of one sequence into `width` columns; None if they are not that wide.

    All lines are split in one go, line ends being cells of their own: a list for each line would
    take twice as long, mostly in the garbage collector. The lines are `width` cells wide exactly
    if every (width + 1)-th cell is a line end.
    """
    if separator == " ":
        cells = _CELL_OR_END.findall("\n".join(lines))
    else:
        cells = f"{separator}\n{separator}".join(lines).split(separator)
    period, n_ends = width + 1, len(lines) - 1
    if len(cells) != n_ends * period + width or cells[width::period].count("\n") != n_ends:
        return None
    return [cells[i::period] for i in range(width)]


def _wrong_width(name: str, lines: list[str], numbers: list[int], separator: str) -> ValueError:
    widths = [len(_split_line(line, separator)) for line in lines]
    t = next(t for t, width in enumerate(widths) if width != widths[0])
    return ValueError(
        f"{name}, line {numbers[t]}: expected {widths[0]} columns, as in line {numbers[0]}, but "
        f"got {widths[t]} in {shorten(lines[t])!r}; repair the line or pass the separator= of the "
        "file."
    )


def _check_labels(name: str, labels: list[str], numbers: list[int]) -> None:
    """Refuse a label such as "NN B-NP": the tab may have been one of several separators."""
    for label, number in zip(labels, numbers):
        if " " in label:
            raise ValueError(
                f"{name}, line {number}: label {label!r} contains a space, so that it is unclear "
                "what separates the columns; pass separator='\\t', or ' ' for runs of spaces and "
                "tabs."
            )


def _check_label(label: int | None) -> None:
    is_position = isinstance(label, numbers.Integral) and not isinstance(label, bool)
    if label is not None and not is_position:
        raise ValueError(f"label must be the position of a column, or None; got {label!r}.")


def _label_position(name: str, label: int | None, width: int) -> int | None:
    if label is None:
        return None
    if not -width <= label < width:
        raise ValueError(
            f"label={label} is not a column of {name}, which has {width}; give a value from "
            f"{-width} to {width - 1}, or None if there are no labels."
        )
    return label % width


def _column_names(name: str, columns: Sequence[str] | None, n_columns: int) -> list[str]:
    if columns is None:
        return [f"c{i}" for i in range(n_columns)]
    names = check_names(columns)
    if len(names) != n_columns:
        raise ValueError(
            f"columns names {len(names)} columns ({', '.join(names)}), but {name} has {n_columns} "
            "besides the label; name each of them once."
        )
    return names


def check_names(columns: Sequence[str]) -> list[str]:
    """Refuse a lone string (it would be read letter by letter) and repeated names."""
    if isinstance(columns, str):
        raise ValueError(f"columns must be a list of names; got the string {columns!r}.")
    names = list(columns)
    if len(set(names)) != len(names):
        raise ValueError(f"columns must be different names; got {names}.")
    return names


def _check_separator(separator: str | None) -> None:
    if separator is not None and (len(separator) != 1 or separator in "\r\n"):
        raise ValueError(
            f"separator must be one character other than a line end; got {separator!r}. Use ' ' "
            "(which stands for any run of spaces and tabs) or '\\t'."
        )


def shorten(line: str, width: int = 60) -> str:
    return line if len(line) <= width else line[: width - 3] + "..."


def write_conll(
    path: str | os.PathLike,
    X: Sequence,
    y: Sequence | None = None,
    *,
    y_pred: Sequence | None = None,
    separator: str = " ",
    columns: Sequence[str] | None = None,
    encoding: str = "utf-8",
) -> None:
    """Write sequences with one token a line and a blank line after each sequence.

    Parameters
    ----------
    path : str or path-like
        The file to write, compressed if the name ends in ``.gz``.
    X : sequence of sequences
        Each sequence is a dict of equally long columns, a list of rows (tuples or lists of cells),
        or a list of strings (one column). All of one form. Cells are strings or numbers.
    y : sequence of label sequences, default=None
        Written as the column after those of `X`.
    y_pred : sequence of label sequences, default=None
        Written as the last column, where conlleval expects the predicted labels.
    separator : str, default=" "
        Between cells. With ``" "`` cells may be neither empty nor contain spaces or tabs; with
        ``"\\t"`` they may.
    columns : sequence of str, default=None
        For dicts: the columns to write, in this order. None: those of the first sequence.
    encoding : str, default="utf-8"
        Encoding of the text.

    Raises
    ------
    ValueError
        If lengths differ, or a cell or sequence could not be read back as it is. Nothing is
        written then.

    See Also
    --------
    read_conll : The inverse.

    Notes
    -----
    The text goes to a temporary file in the same folder, which is then renamed: an interrupted
    call leaves the old file whole. Read with the same `separator` and ``docstart=None``, the
    cells are what they were, except for a byte order mark at the beginning of the first one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from sklseq.datasets import write_conll
    >>> X = [{"w": ["He", "ran"]}, {"w": ["Stop"]}]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "tiny.txt"
    ...     write_conll(path, X, [["B-NP", "B-VP"], ["B-VP"]])
    ...     text = path.read_text()
    >>> print(text.rstrip())
    He B-NP
    ran B-VP
    <BLANKLINE>
    Stop B-VP
    """
    _check_separator(separator)
    names = _names_to_write(X, columns)
    blocks, width = [], None
    for s, sequence in enumerate(X):
        table = _feature_columns(s, sequence, names)
        for what, labels in (("y", y), ("y_pred", y_pred)):
            if labels is not None:
                _check_length(what, len(labels), len(X))
                table.append(_label_column(s, what, labels[s], len(table[0])))
        width = _check_width(s, len(table), width)
        table = [_checked_cells(s, column, separator) for column in table]
        blocks.append(_join_rows(s, table, separator))
    text = "".join(block + "\n\n" for block in blocks)
    _replace_file(Path(path), _encode(text, encoding))


def _names_to_write(X: Sequence, columns: Sequence[str] | None) -> list[str] | None:
    """Return the names of the columns if the sequences are dicts, None if they are rows."""
    has_names = len(X) > 0 and isinstance(X[0], Mapping)
    if columns is None:
        return list(X[0]) if has_names else None
    if len(X) > 0 and not has_names:
        raise ValueError(
            "columns selects from dicts of columns, but the sequences of X are lists of rows; "
            "leave columns=None."
        )
    return check_names(columns)


def _feature_columns(s: int, sequence: Any, names: list[str] | None) -> list[list]:
    """Return the columns of sequence `s`, whichever of the three forms it has."""
    if isinstance(sequence, Mapping) != (names is not None):
        raise ValueError(
            f"Sequence {s} of X has another form than sequence 0; give all as dicts of columns or "
            "all as lists of rows."
        )
    if names is not None:
        table = _select_columns(s, sequence, names)
    else:
        table = _transpose_rows(s, sequence)
    if not table or not table[0]:
        raise ValueError(f"Sequence {s} of X is empty, which a column file cannot hold; remove it.")
    return table


def _select_columns(s: int, sequence: Mapping, names: list[str]) -> list[list]:
    missing = [name for name in names if name not in sequence]
    if missing:
        raise ValueError(
            f"Sequence {s} of X has no column {missing[0]!r}, only {', '.join(map(str, sequence))};"
            " add it or select others by columns=."
        )
    table = [list(sequence[name]) for name in names]
    if len({len(column) for column in table}) > 1:
        sizes = ", ".join(f"{name}: {len(column)}" for name, column in zip(names, table))
        raise ValueError(f"Sequence {s} of X has columns of different length ({sizes}).")
    return table


def _transpose_rows(s: int, sequence: Sequence) -> list[list]:
    rows = [[row] if isinstance(row, str) else row for row in sequence]
    for t, row in enumerate(rows):
        if not isinstance(row, (list, tuple)):
            raise ValueError(
                f"Token {t} of sequence {s} of X is a {type(row).__name__}; give a string, or a "
                "tuple or list of cells."
            )
        if len(row) != len(rows[0]):
            raise ValueError(
                f"Token {t} of sequence {s} of X has {len(row)} cells, but token 0 has "
                f"{len(rows[0])}; give all rows the same number."
            )
    return [list(column) for column in zip(*rows)]


def _label_column(s: int, what: str, labels: Sequence, n_steps: int) -> list:
    if len(labels) != n_steps:
        raise ValueError(
            f"Sequence {s} has {n_steps} tokens in X, but {len(labels)} labels in {what}."
        )
    return list(labels)


def _check_length(what: str, got: int, expected: int) -> None:
    if got != expected:
        raise ValueError(f"X has {expected} sequences, but {what} has {got}; give one for each.")


def _check_width(s: int, got: int, expected: int | None) -> int:
    if expected is not None and got != expected:
        raise ValueError(
            f"Sequence {s} has {got} columns, labels included, but sequence 0 has {expected}; give "
            "all sequences the same columns."
        )
    return got


def _checked_cells(s: int, column: list, separator: str) -> list[str]:
    """Return the cells as strings, each of which will be read back as it is."""
    forbidden = "[ \t\r\n]" if separator == " " else re.escape(separator) + "|[\r\n]"
    search = re.compile(forbidden).search
    cells = [
        cell if isinstance(cell, str) else _number(s, t, cell) for t, cell in enumerate(column)
    ]
    for t, cell in enumerate(cells):
        if search(cell) or (separator == " " and not cell):
            problem = "contains a separator or line end" if cell else "is empty"
            raise ValueError(
                f"Cell {cell!r} of token {t} of sequence {s} {problem}; replace it, or use "
                "separator='\\t', which allows empty cells and spaces."
            )
    return cells


def _number(s: int, t: int, cell: Any) -> str:
    if not isinstance(cell, numbers.Number):
        raise ValueError(
            f"Cell {cell!r} of token {t} of sequence {s} is a {type(cell).__name__}; give strings "
            "or numbers."
        )
    return str(cell)


def _join_rows(s: int, table: list[list[str]], separator: str) -> str:
    """Join cells to lines; refuse a line that reading would take for the end of the sequence."""
    lines = [separator.join(row) for row in zip(*table)]
    for t, line in enumerate(lines):
        if not line.strip(" \t"):
            raise ValueError(
                f"All cells of token {t} of sequence {s} are blank, which would end the sequence; "
                "replace one."
            )
    return "\n".join(lines)


def _encode(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Character {text[error.start]!r} in line {text.count(chr(10), 0, error.start) + 1} "
            f"cannot be written as {encoding}; pass encoding='utf-8' or replace it."
        ) from error


def _replace_file(path: Path, data: bytes) -> None:
    """Write beside the target, then rename: readers see the old file or the new one, whole."""
    if path.name.endswith(".gz"):
        data = gzip.compress(data, mtime=0)  # no time stamp: same data, same bytes
    target = Path(os.path.realpath(path))  # a link keeps pointing at the file that it names
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)

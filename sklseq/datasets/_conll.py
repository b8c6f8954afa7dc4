"""Reader and writer for column files: one token a line, a blank line after each sequence.

    file ── bytes ── text ── lines ── rows of cells ──▶ X: dicts of columns,  y: lists of labels

Reading splits a whole sequence at once, so that a file of 200,000 tokens takes a fraction of a
second. Writing checks every cell before the file is changed.
"""

import bz2
import gzip
import io
import lzma
import numbers
import os
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import IO, Any, NamedTuple

from sklseq._lib.checks import check_names, counted, is_number
from sklseq._lib.drafts import draft
from sklseq._lib.lines import as_lines

Columns = dict[str, list[str]]
TextLike = str | os.PathLike | IO | Sequence[str]

# First bytes of each format ("BZh9" alone could be a token), and its functions. gzip writes no time
# stamp, so that files can be reproduced.
_COMPRESSED = {
    "gzip": (re.compile(b"\x1f\x8b"), gzip.decompress, lambda b: gzip.compress(b, mtime=0)),
    "bzip2": (re.compile(b"BZh[1-9](1AY&SY|\x17rE8P\x90)"), bz2.decompress, bz2.compress),
    "xz": (re.compile(b"\xfd7zXZ\0"), lzma.decompress, lzma.compress),
}
_ENDINGS = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz"}

LONG = 1000  # tokens; longer sequences are most likely several without blank lines between

# Only space and tab separate cells: str.split() would also cut at no-break spaces, which do occur
# inside tokens of real corpora.
_CELL = re.compile(r"[^ \t]+")
_CELL_OR_END = re.compile(r"[^ \t\n]+|\n")
_SPACES_BESIDE_TAB = re.compile(" *\t *")


class OneColumnError(ValueError):
    """Raised if a file of one column is read with labels."""


class FormatError(ValueError):
    """Raised if the columns of a file are not those that are expected."""


class EncodingError(ValueError):
    """Raised for bytes that are not text of the encoding."""


class TokenLines(NamedTuple):
    """The lines of a text that hold tokens."""

    lines: list[str]
    numbers: list[int]  # of these lines, counted from 1
    starts: list[int]  # where sequences start, as positions in `lines`


class FirstLine(NamedTuple):
    """The first token line of a file, which says how all of them are cut into cells."""

    name: str  # of the file
    number: int
    line: str
    separator: str
    width: int

    def split(self, tokens: TokenLines) -> Iterator[list[list[str]]]:
        """Yield the columns of each sequence; raise if a line has another number of cells."""
        for start, stop in pairwise([*tokens.starts, len(tokens.lines)]):
            cells = _split_columns(tokens.lines[start:stop], self.separator, self.width)
            if cells is None:
                raise self._wrong_width(tokens)
            yield cells

    def _wrong_width(self, tokens: TokenLines) -> FormatError:
        widths = [len(_split_line(line, self.separator)) for line in tokens.lines]
        t = next(t for t, width in enumerate(widths) if width != self.width)
        start = widths[: tokens.starts[1] if len(tokens.starts) > 1 else None]
        expected, as_in = self.width, f"line {self.number}"
        remedy = f"repair this line or line {self.number}, {shorten(self.line)!r}"
        if tokens.numbers[0] == self.number and 2 * start.count(widths[t]) > len(start):
            # The first line differs from most lines of its sequence: a comment, or names.
            t, expected, as_in = 0, widths[t], "the lines after it"
            remedy = "repair or remove it, skip comments by comment="
        return FormatError(
            f"{self.name}, line {tokens.numbers[t]}: expected {counted(expected, 'column')}, "
            f"as in {as_in}, but got {widths[t]} in "
            f"{shorten(tokens.lines[t])!r}; {remedy}, or give the separator of the file."
        )


def read_conll(
    path: TextLike,
    *,
    columns: Sequence[str] | None = None,
    label: int | None = -1,
    separator: str | None = None,
    encoding: str = "utf-8",
    comment: str | None = None,
    docstart: str | None = "-DOCSTART-",
) -> tuple[list[Columns], list[list[str]] | None]:
    """Read a file with one token a line and a blank line after each sequence.

    A file of more than 1000 tokens without a blank line gives a UserWarning: it is read as one
    sequence, and most likely its sequences were joined.

    Parameters
    ----------
    path : str, path-like, file object or list of str
        The file, or its lines; a file object is open in text or binary mode. Gzip, bzip2 and xz are
        recognised by their first bytes.
    columns : sequence of str, default=None
        Names of the columns other than the label, in file order. None names them
        ``"c0", "c1", ...``.
    label : int or None, default=-1
        Position of the label column, counted from the end if negative. None: no labels, every
        column is a feature.
    separator : str or None, default=None
        ``" "`` means a run of spaces and tabs. Any other character, such as ``"\\t"``, separates
        exactly: cells may then be empty, and begin with, end with or consist of spaces. None means
        ``"\\t"`` if the first token line contains a tab, else ``" "``. With None, spaces beside a
        tab are ignored, and white space at the ends of a line, except tabs before its first cell.
    encoding : str, default="utf-8"
        Encoding of the text; unused if `path` is a file open in text mode.
    comment : str or None, default=None
        Lines that start with it are skipped.
    docstart : str or None, default="-DOCSTART-"
        First cell of the lines that mark a new document, which end a sequence and are skipped.
        With ``separator=None`` this cell ends at the first space or tab.

    Returns
    -------
    X : list of dict
        One dict for each sequence, from column name to the list of its cells; all lists of one
        sequence are equally long.
    y : list of list of str, or None
        The labels of each sequence; None if ``label=None``.

    Raises
    ------
    ValueError
        If a line has another number of cells than the first one, if `columns` or `label` do not
        fit the file, if a label contains a space and `separator` is None, if `encoding` is unknown,
        or if the bytes are not text of this encoding or not a whole compressed file.
    TypeError
        If `path` is neither a name, nor a file object, nor a list of lines.

    See Also
    --------
    read_conllu : the format of Universal Dependencies, whose ranges and empty nodes this function
        would read as tokens.
    write_conll : the inverse.

    Notes
    -----
    Lines end in LF, CRLF or CR. Lines of spaces and tabs only are blank; several of them count as
    one. A byte order mark is dropped. An empty file gives ``([], [])``.

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
    check_separator(separator)
    _check_label(label)
    name, text = read_text(path, encoding)
    tokens = token_lines(text, separator, comment, docstart)
    if not tokens.lines:
        return [], None if label is None else []
    if len(tokens.starts) == 1 and len(tokens.lines) > LONG:
        warn_of_one_sequence(name, len(tokens.lines), tokens.numbers[0], tokens.numbers[-1])
    first = first_line(name, tokens, separator)
    width = first.width
    if width == 1 and label in (0, -1) and columns is None:
        list(first.split(tokens))  # names a line of another width
        raise OneColumnError(
            f"{name}, line {first.number}: {shorten(tokens.lines[0])!r} has one column, which is "
            "read as labels; give a file with columns of tokens before it, or say that it holds "
            "tokens only (label=None) or labels only (columns=[])."
        )
    at = _label_position(name, label, width)
    names = _column_names(name, columns, width - (at is not None))
    X, y = [], []
    for start, cells in zip(tokens.starts, first.split(tokens)):
        if at is not None:
            y.append(cells.pop(at))
            if separator is None and first.separator == "\t":
                _check_labels(name, y[-1], tokens.numbers[start : start + len(y[-1])])
        X.append(dict(zip(names, cells)))
    return X, None if label is None else y


def read_text(path: TextLike, encoding: str) -> tuple[str, str]:
    """Return a name for error messages and the whole text, decompressed and decoded."""
    data: str | bytes
    if isinstance(path, list | tuple) and all(isinstance(line, str) for line in path):
        name, data = "the list of lines", "\n".join(line.removesuffix("\n") for line in path)
    elif hasattr(path, "read"):
        name, data = str(getattr(path, "name", "the file object")), path.read()
    elif isinstance(path, str | os.PathLike):
        name, data = os.fspath(path), Path(path).read_bytes()
    else:
        raise TypeError(
            "path must be a file name, an open file or a list of lines; got "
            f"{path!r:.60} ({type(path).__name__})."
        )
    if isinstance(data, bytes):
        data = _decode(name, data, encoding)
    return name, data.removeprefix("\ufeff")


def _decode(name: str, data: bytes, encoding: str) -> str:
    check_not_an_archive(name, data)
    kind = compression_of(data)
    if kind is not None:
        data = decompress(name, kind, _COMPRESSED[kind][1], data)
    try:
        return data.decode(encoding)
    except (LookupError, TypeError) as error:
        raise _unknown_encoding(encoding) from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise not_text(name, encoding, data[:2], data[error.start], line) from error


def check_not_an_archive(name: str, start: bytes) -> None:
    """Refuse a zip archive, by its first bytes."""
    if start.startswith(b"PK\x03\x04"):
        raise ValueError(
            f"{name} is a zip archive, which may hold several files; unpack it and pass one."
        )


def compression_of(start: bytes) -> str | None:
    """Return the format of compressed data, by its first bytes; None if there is none."""
    return next((kind for kind, (magic, *_) in _COMPRESSED.items() if magic.match(start)), None)


def decompress(name: str, kind: str, call: Callable[[Any], bytes], argument: Any) -> bytes:
    """Return what a call that decompresses returns; raise an error that names the file."""
    try:
        return call(argument)
    except (EOFError, OSError, ValueError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(
            f"{name} is not a whole {kind} file ({error}); fetch or compress it again."
        ) from error


def not_text(name: str, encoding: str, start: bytes, byte: int, line: int) -> EncodingError:
    """Return the error for a byte that cannot be decoded, in a file with these first two bytes."""
    if start in (b"\xff\xfe", b"\xfe\xff"):
        return EncodingError(
            f"{name} begins with the byte order mark of UTF-16; give the encoding utf-16."
        )
    return EncodingError(
        f"{name}, line {line}: byte 0x{byte:02x} is not {encoding} text; give the encoding of the "
        "file, such as latin-1."
    )


def _unknown_encoding(encoding: object) -> ValueError:
    return ValueError(
        f"encoding must be the name of a text encoding, such as 'utf-8'; got {encoding!r}."
    )


def token_lines(
    text: str,
    separator: str | None,
    comment: str | None,
    docstart: str | None,
    first_number: int = 1,
) -> TokenLines:
    """Return the token lines of a text that begins with line `first_number` of its file."""
    lines, numbers, starts, inside = [], [], [], False
    for number, line in enumerate(as_lines(text), first_number):
        if comment and line.startswith(comment):
            continue
        if separator is None:
            # Drop white space that separates no cells, for either separator.
            line = line.strip(" ").rstrip(" \t")
            line = _SPACES_BESIDE_TAB.sub("\t", line) if "\t" in line and " " in line else line
        is_start = docstart and docstart in line
        if is_start:
            is_start = _split_line(line, separator or " ")[0] == docstart
        if is_start or not line.strip(" \t"):
            inside = False
            continue
        if not inside:
            starts.append(len(lines))
            inside = True
        lines.append(line)
        numbers.append(number)
    return TokenLines(lines, numbers, starts)


def first_line(name: str, tokens: TokenLines, separator: str | None) -> FirstLine:
    """Return how the first of these lines is cut into cells."""
    line = tokens.lines[0]
    separator = separator or ("\t" if "\t" in line else " ")
    return FirstLine(name, tokens.numbers[0], line, separator, len(_split_line(line, separator)))


def warn_of_one_sequence(name: str, n_tokens: int, first: int, last: int) -> None:
    """Warn that the tokens of these lines are one sequence."""
    warnings.warn(
        f"{name} has no blank line among lines {first} to {last}, so its {n_tokens} tokens are "
        "one sequence; put a blank line after each sequence.",
        UserWarning,
        stacklevel=3,
    )


def _split_line(line: str, separator: str) -> list[str]:
    return _CELL.findall(line) if separator == " " else line.split(separator)


def _split_columns(lines: list[str], separator: str, width: int) -> list[list[str]] | None:
    """Split the lines of one sequence into `width` columns; None if a line has another width.

    All lines are split at once, with line ends as cells of their own: a list for each line would
    take twice as long, mostly in the garbage collector. The lines have `width` cells if and only
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


def _check_labels(name: str, labels: list[str], numbers: list[int]) -> None:
    """Refuse a label such as "NN B-NP": a tab may not be the only separator."""
    for label, number in zip(labels, numbers):
        if " " in label:
            raise FormatError(
                f"{name}, line {number}: label {label!r} contains a space, so the separator of "
                "the columns is unclear; give the separator, a tab, or ' ' for spaces and tabs."
            )


def _check_label(label: int | None) -> None:
    is_position = is_number(label, whole=True)
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
        raise FormatError(
            f"columns names {counted(len(names), 'column')} ({', '.join(names)}), but "
            f"{name} has {n_columns} besides the label; name each of them once, or give the "
            "separator of the file."
        )
    return names


def check_separator(separator: str | None) -> None:
    if separator is not None and (len(separator) != 1 or separator in "\r\n"):
        raise ValueError(
            f"separator must be one character other than a line end; got {separator!r}. Use ' ' "
            "(any run of spaces and tabs) or '\\t'."
        )


def shorten(line: str) -> str:
    return line if len(line) <= 60 else line[:57] + "..."


_NOT_A_LIST = "{what} must be a list with one item for each sequence; got {kind}: give a list."


def write_conll(
    path: str | os.PathLike | IO,
    X: Sequence,
    y: Sequence | None = None,
    *,
    y_pred: Sequence | None = None,
    separator: str = " ",
    columns: Sequence[str] | None = None,
    encoding: str = "utf-8",
    docstart: str | None = "-DOCSTART-",
) -> None:
    """Write sequences with one token a line and a blank line after each sequence.

    Parameters
    ----------
    path : str, path-like or file object
        The file to write, compressed if the name ends in ``.gz``, ``.bz2`` or ``.xz``; a file
        object is open in text or binary mode.
    X : sequence of sequences
        Each sequence is a dict of equally long columns, a list of rows (tuples or lists of cells),
        or a list of strings (one column); all have the same form. Cells are strings or numbers.
    y : sequence of label sequences, default=None
        Written as the column after the columns of `X`.
    y_pred : sequence of label sequences, default=None
        Written as the last column, where conlleval expects the predicted labels.
    separator : str, default=" "
        Character between cells. With ``" "`` cells may be neither empty nor contain spaces or
        tabs; with ``"\\t"`` they may.
    columns : sequence of str, default=None
        The columns of dicts to write, in this order. None: those of the first sequence.
    encoding : str, default="utf-8"
        Encoding of the text.
    docstart : str or None, default="-DOCSTART-"
        A first cell that is refused, because `read_conll` skips its line. None: no cell is refused.

    Raises
    ------
    ValueError
        If lengths differ, or a cell or sequence could not be read back unchanged. Nothing is
        written then.

    See Also
    --------
    read_conll : the inverse.

    Notes
    -----
    The text is written to a temporary file in the same folder, which is then renamed: an
    interrupted call leaves the old file intact. Reading with the same `separator` and `docstart`
    restores the cells.

    Lines end in LF on every system. For CRLF pass a file opened by ``open(path, "w",
    newline="\\r\\n", encoding="utf-8")``; a file opened in text mode without ``newline`` has the
    line ends of the system. `read_conll` reads them all.

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
    text = conll_text(X, y, y_pred, separator, columns, docstart)
    check_start(text)
    if isinstance(path, io.TextIOBase):
        path.write(text)
    elif hasattr(path, "write"):
        path.write(_encode(text, encoding))
    else:
        _replace_file(Path(path), _encode(text, encoding))


def conll_text(
    X: Sequence,
    y: Sequence | None,
    y_pred: Sequence | None,
    separator: str,
    columns: Sequence[str] | None,
    docstart: str | None,
) -> str:
    """Return the text that `write_conll` writes for these arguments."""
    check_separator(separator)
    names = _names_to_write(X, columns)
    labels = {what: of for what, of in (("y", y), ("y_pred", y_pred)) if of is not None}
    for what, of in labels.items():
        if not hasattr(of, "__len__"):
            raise TypeError(_NOT_A_LIST.format(what=what, kind=type(of).__name__))
        if len(of) != len(X):
            raise ValueError(
                f"X has {counted(len(X), 'sequence')}, but {what} has {len(of)}; give one for each."
            )
    blocks, width = [], None
    for s, sequence in enumerate(X):
        table = _feature_columns(s, sequence, names)
        table += [_label_column(s, what, of[s], len(table[0])) for what, of in labels.items()]
        width = len(table) if width is None else width
        if len(table) != width:
            raise ValueError(
                f"Sequence {s} has {counted(len(table), 'column')}, labels included, but sequence "
                f"0 has {width}; give all sequences the same columns."
            )
        blocks.append(_join_rows(s, table, separator, docstart))
    return "".join(blocks)


def check_start(text: str) -> None:
    """Refuse text whose first character a reader would drop."""
    if text.startswith("\ufeff"):
        raise ValueError(
            "Token 0 of sequence 0 begins with a byte order mark, '\\ufeff', which would be lost; "
            "remove it."
        )


def _names_to_write(X: Sequence, columns: Sequence[str] | None) -> list[str] | None:
    """Return the names of the columns of dicts; None if the sequences are rows."""
    if not hasattr(X, "__len__") or isinstance(X, (str, bytes, Mapping)):
        raise TypeError(_NOT_A_LIST.format(what="X", kind=type(X).__name__))
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
    """Return the columns of sequence `s`, a dict of columns or a list of rows or strings."""
    if isinstance(sequence, Mapping) != (names is not None):
        raise ValueError(
            f"Sequence {s} of X has another form than sequence 0; give all as dicts of columns or "
            "all as lists of rows."
        )
    if names is None:
        table = _transpose_rows(s, sequence)
    else:
        table = _select_columns(s, sequence, names)
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
            f"Sequence {s} has {counted(n_steps, 'token')} in X, but "
            f"{counted(len(labels), 'label')} in {what}."
        )
    return list(labels)


def _checked_cells(s: int, column: list, separator: str) -> list[str]:
    """Return the cells as strings, checked that they can be read back unchanged."""
    if _can_be_written(column, separator):
        return column
    for t, cell in enumerate(column):
        if not isinstance(cell, (str, numbers.Number)):
            raise ValueError(
                f"Cell {cell!r} of token {t} of sequence {s} is a {type(cell).__name__}; give "
                "strings or numbers."
            )
    cells = [cell if isinstance(cell, str) else str(cell) for cell in column]
    for t, cell in enumerate(cells):
        if not _can_be_written([cell], separator):
            problem = "contains a separator or line end" if cell else "is empty"
            raise ValueError(
                f"Cell {cell!r} of token {t} of sequence {s} {problem}; replace it, or use "
                "separator='\\t', which allows empty cells and spaces."
            )
    return cells


def _can_be_written(cells: list, separator: str) -> bool:
    """Whether all cells are strings without separators and line ends; empty ones need a tab."""
    try:
        text = "".join(cells)
    except TypeError:
        return False
    marks = " \t\r\n" if separator == " " else f"{separator}\r\n"
    return not any(mark in text for mark in marks) and (separator != " " or all(cells))


def _join_rows(s: int, table: list[list], separator: str, docstart: str | None) -> str:
    """Join cells to lines; refuse a line that would be read as the end of the sequence."""
    columns = [_checked_cells(s, column, separator) for column in table]
    if docstart and docstart in columns[0]:
        raise ValueError(
            f"Token {columns[0].index(docstart)} of sequence {s} is {docstart!r}, which is read as "
            "the mark of a document; remove it, or write and read with docstart=None."
        )
    lines = list(map(separator.join, zip(*columns)))
    for t, line in enumerate(lines):
        if not line.strip(" \t"):
            raise ValueError(
                f"All cells of token {t} of sequence {s} are blank, which would end the sequence; "
                "replace one."
            )
    return "\n".join(lines) + "\n\n"


def _encode(text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except (LookupError, TypeError) as error:
        raise _unknown_encoding(encoding) from error
    except UnicodeEncodeError as error:
        raise ValueError(
            f"Character {text[error.start]!r} in line {text.count(chr(10), 0, error.start) + 1} "
            f"cannot be written as {encoding}; pass encoding='utf-8' or replace it."
        ) from error


def _replace_file(path: Path, data: bytes) -> None:
    """Write a temporary file, then rename it: readers see either the old file or the new one."""
    if path.suffix in _ENDINGS:
        data = _COMPRESSED[_ENDINGS[path.suffix]][2](data)
    with draft(path) as file:
        file.write(data)

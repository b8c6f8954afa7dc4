"""Sequences whose rows are read in blocks, for sequences that exceed memory.

See :class:`RowBlocks` for the possible sources. Readers receive checked blocks of a requested
size; errors name the block.
"""

from __future__ import annotations

import mmap
import os
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from sklseq._lib.checks import check_names, check_number, counted, is_number
from sklseq.data.sequences import as_csr, check_entries, first_not_finite
from sklseq.data.store import CORRUPT, read_npy_header
from sklseq.data.table_cache import cache_table, write_blocks
from sklseq.data.table_files import SUFFIXES, TableColumn, TableRows, is_table_file, table_names
from sklseq.data.tables import refuse_mask

# Rows of a block, unless memory is short.
BLOCK_ROWS = 4096
AGAIN = "a source must yield the same rows in each pass; a function must return a new iterator."


class BlockError(ValueError):
    """Rows or labels in blocks cannot be read, or are invalid."""


class RowBlocks:
    """One sequence whose rows are read in blocks, from memory, a file or a function.

    It stands for a sequence in ``X``: ``fit([RowBlocks(path)], [y])``. Functions and files can be
    given without it: ``fit([read_log], [y])``. :class:`CRFTagger` trains on such sequences, and any
    tagger with ``coef_`` predicts and scores them. Memory holds one block of rows at a time and,
    for ``predict``, the labels.

    Parameters
    ----------
    source : callable, iterable, 2-D array, memory map, CSR matrix, str or path
        - A function without arguments that returns an iterator of blocks, each time from the
          beginning; or an object whose ``__iter__`` does, such as a list of blocks. A block is a
          2-D array or sparse matrix of any number of rows. Blocks of a function are copied, so it
          may fill the same array again.
        - An array, a ``numpy.memmap``, a CSR matrix. (In ``X`` itself, only memory maps of 256 MB
          or more are read in blocks.)
        - The name of a file that ``numpy.save`` wrote (``.npy``) or
          ``scipy.sparse.save_npz`` (``.npz``, compressed or not); or of a table of numbers:
          ``.csv`` or ``.tsv`` whose first line names the columns, also with ``.gz``, ``.parquet``
          or Arrow's ``.arrow`` and ``.feather`` (by pyarrow or polars). Tables with a column of
          labels: :meth:`from_table`.

        A generator is enough for methods that read it once: ``predict``, ``score``.

    Raises
    ------
    TypeError, ValueError
        If ``source`` is none of these. When rows are read: if a block cannot be read, or is not
        two-dimensional, finite and as wide as the first. When they are read again: if they have
        changed. The message names the sequence and the block, for NaN and infinity also the row and
        column, and for changed rows the range of rows that were compared.

    Notes
    -----
    A source is pickled as it is: the name of a file, not its content; an array with its numbers.

    Arrays, memory maps, CSR matrices and ``.npy`` files can be read from any row on, which
    ``CRFTagger(gradient="checkpoint")`` needs; the others from the beginning only.

    A slice, ``blocks[1000:2000]``, has the rows of that range. If the source can be read from
    any row on, only these rows are read, and error messages count rows from the start of the slice;
    otherwise the rows before are read and skipped, and error messages count rows of the source.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq import CRFTagger, RowBlocks
    >>> def read_log():
    ...     for day in range(3):
    ...         yield np.random.default_rng(day).normal(size=(100, 4))
    >>> y = np.concatenate([block[:, 0] > 0 for block in read_log()])
    >>> tagger = CRFTagger(gradient="emp").fit([RowBlocks(read_log)], [y])
    >>> tagger.score([read_log], [y]) > 0.95
    True
    """

    def __init__(self, source: Any):
        self.source, self.path = source, None
        self.n_reads = 0  # number of passes, for tests and reports
        self.limits: tuple[int, int | None] = (0, None)  # range of rows of the source
        refuse_mask(source, "The source of rows")
        if isinstance(source, RowBlocks):
            self.source, self.path, self.limits = source.source, source.path, source.limits
        elif isinstance(source, (str, os.PathLike)):
            self.path = os.path.abspath(source)
            self.source = _open(self.path)
        elif sparse.issparse(source):
            self.source = as_csr(source)
        elif isinstance(source, (Mapping, set)) or not (
            callable(source) or hasattr(source, "__iter__")
        ):
            raise TypeError(
                "RowBlocks needs a function that returns an iterator of blocks, an object that "
                "iterates over them, a list of blocks, a 2-D array, a CSR matrix or the name of a "
                f"file; got {type(source).__name__}."
            )
        if self.random_access and self.source.ndim != 2:
            raise ValueError(
                f"Rows must be 2-D (n_steps, n_features); got shape {self.source.shape}."
            )
        self._map = _map_of(self.source)

    def __getstate__(self) -> dict:
        cut = self.path is None and self.random_access  # ``source`` holds the slice only
        return {
            "source": self.source if self.path is None else self.path,
            "n_reads": self.n_reads,
            "limits": (0, None) if cut else self.limits,
        }

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["source"])
        self._cut(*state.get("limits", (0, None)))
        self.n_reads = state["n_reads"]

    def __getitem__(self, key: slice) -> RowBlocks:
        if not isinstance(key, slice) or key.step not in (None, 1):
            raise TypeError(f"RowBlocks are cut by slices such as blocks[10:20]; got {key!r}.")
        first, last = key.start or 0, key.stop
        whole = all(is_number(k, whole=True) and k >= 0 for k in (first, last or 0))
        if not whole or (last is not None and last < first):
            raise ValueError(
                f"A slice of RowBlocks needs rows of at least 0, in order; got {first}:{last}."
            )
        if self.one_shot:
            raise one_shot_error("The source", "a slice is read again")
        part = RowBlocks(self)
        part._cut(int(first), None if last is None else int(last))
        return part

    def _cut(self, first: int, last: int | None) -> None:
        # Keep rows first to last - 1 of the current range.
        if self.random_access:
            self.source = self.source[first:last]
        begin, end = self.limits
        lasts = [end] if last is None else [end, begin + last]
        self.limits = begin + first, min((k for k in lasts if k is not None), default=None)

    @property
    def random_access(self) -> bool:
        """Whether reading can begin at any row."""
        return isinstance(self.source, np.ndarray) or sparse.issparse(self.source)

    @property
    def one_shot(self) -> bool:
        """Whether the source is an iterator, which can be read once."""
        return isinstance(self.source, Iterator)

    def __repr__(self) -> str:
        return f"RowBlocks({type(self.source).__name__})"

    @classmethod
    def from_table(
        cls,
        path: str | os.PathLike,
        label: str | None = None,
        *,
        columns: Iterable[str] | None = None,
        cache: str | os.PathLike | None = None,
    ) -> tuple[RowBlocks, Any]:
        """Rows and labels of a table in a file, as one sequence.

        Parameters
        ----------
        path : str or path
            ``.csv`` or ``.tsv``, also with ``.gz``; ``.parquet``, ``.arrow`` or ``.feather``.
        label : str, optional
            Column of the labels, which are strings in text files, "" where a cell is empty. Missing
            labels of other files are unknown; ``cache`` can hold them among numbers only.
        columns : list of str, optional
            Columns of the features. By default all but the labels.
        cache : str or path, optional
            Folder for ``rows.npy`` and ``labels.npy``, which are written when the table is first
            read, and again after it or one of them has changed. They can be read from any row on,
            and need not be parsed. Without ``cache``, the file is read and parsed in each pass.

        Returns
        -------
        rows : RowBlocks
        labels : source of labels as an item of ``y``, or None
            With ``cache`` a memory map.

        Raises
        ------
        ValueError
            If a column does not exist, ``columns`` has that of the labels, text is not UTF-8 or not
            a whole gzip file, or ``cache`` cannot hold a missing label; when the file is read, if a
            feature is missing or not a number: the message names the line of a text file and the
            column.
        ImportError
            For Parquet and Arrow, if neither pyarrow nor polars is installed.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> from sklseq import CRFTagger, RowBlocks
        >>> path = Path(tempfile.mkdtemp()) / "log.csv"
        >>> _ = path.write_text("load,errors,state\\n" + "1,0,up\\n0,1,down\\n" * 50)
        >>> rows, labels = RowBlocks.from_table(path, "state")
        >>> CRFTagger().fit([rows], [labels]).score([rows], [labels])
        1.0
        """
        path = os.path.abspath(path)
        if not is_table_file(path):
            raise ValueError(f"Tables are read from files {', '.join(SUFFIXES)}; got {path!r}.")
        if columns is None:
            columns = [name for name in table_names(path) if name != label]
        rows = TableRows(path, check_names(columns))
        if label in rows.columns:
            raise ValueError(
                f"columns must not have {label!r}, the column of the labels, which would be a "
                "feature, too; leave it out."
            )
        labels = None if label is None else TableColumn(path, label)
        if cache is None:
            return cls(rows), labels
        name, labels = cache_table(os.path.abspath(cache), rows, label)
        return cls(name), labels

    def save(self, path: str | os.PathLike) -> RowBlocks:
        """Read the rows once, and write them to a ``.npy`` file.

        Parameters
        ----------
        path : str or path
            The file gets this name when it is complete.

        Returns
        -------
        RowBlocks
            The rows of the file, which can be read from any row on.

        Raises
        ------
        ValueError
            If rows are sparse, or there are none.
        """
        path = os.path.abspath(path)
        if not path.endswith(".npy"):
            raise ValueError(f"Rows are saved as .npy files; got {path!r}. Add the suffix.")
        write_blocks(path, map(_dense, self.read()))
        return RowBlocks(path)

    def pieces(self, n_rows: int, labels: ArrayLike) -> tuple[list[RowBlocks], list[np.ndarray]]:
        """Cut the sequence into consecutive pieces, to be split by time.

        Each piece is a sequence of its own: transitions between pieces are lost.

        Parameters
        ----------
        n_rows : int
            Rows of a piece; the last one may have fewer.
        labels : array-like of shape (n_all_rows,)

        Returns
        -------
        list of RowBlocks
        list of ndarray

        Examples
        --------
        >>> import numpy as np
        >>> from sklseq import RowBlocks
        >>> X, y = RowBlocks(np.zeros((10, 2))).pieces(4, np.arange(10))
        >>> [labels.tolist() for labels in y]
        [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        """
        check_number("n_rows", n_rows, 1, whole=True)
        labels = np.asanyarray(labels)
        if labels.ndim != 1:
            raise ValueError(
                "labels must be one array with a label for each row, such as the memory map that "
                f"from_table(..., cache=folder) gives; got shape {labels.shape}."
            )
        if self.random_access and len(labels) != self.source.shape[0]:
            raise ValueError(
                f"The sequence has {counted(self.source.shape[0], 'row')} but "
                f"{counted(len(labels), 'label')}; each row needs one label."
            )
        # The last piece is open, so that `fit` notices labels that are too few.
        firsts = [*range(0, len(labels), n_rows)]
        rows = [self[a:b] for a, b in zip(firsts, [*firsts[1:], None])]
        return rows, [labels[a : a + n_rows] for a in firsts]

    def rows(self, first: int, last: int) -> Any:
        """Rows first to last - 1 of a source with random access, not checked.

        Parameters
        ----------
        first, last : int

        Returns
        -------
        array or CSR matrix
        """
        if self._map is not None and self._map[0].size() < self._map[1]:
            raise BlockError(
                f"The file of {self.path or 'the memory map'} has been cut off since it was "
                "opened; write it again."
            )
        return self.source[first:last]

    def read(
        self, block_rows: int = BLOCK_ROWS, where: str = "the sequence", *, finite: bool = True
    ) -> Iterator:
        """Read the rows from the beginning.

        Parameters
        ----------
        block_rows : int
            Rows of each block that is returned: small blocks are joined, large ones cut.
        where : str
            Name of the sequence in error messages.
        finite : bool, default=True
            Whether to check for NaN and infinity.

        Returns
        -------
        iterator of array or CSR matrix
        """
        return (rows for rows, _ in iterate_blocks(self, block_rows, where, finite=finite))


def iterate_blocks(
    source: RowBlocks, block_rows: int, where: str, *, finite: bool = True, width: int | None = None
) -> Iterator[tuple[Any, str]]:
    """Yield the blocks of ``source.read`` and, as text, the numbers of the source's blocks.

    ``width``: number of columns of the source in an earlier pass.
    """
    source.n_reads += 1
    if source.random_access:
        if sparse.issparse(source.source):  # checked before it is cut
            _check_entries(source.source, "", 0, where)
        n = source.source.shape[0]
        parts = (source.rows(a, min(a + block_rows, n)) for a in range(0, n, block_rows))
    else:
        parts = iterate(source.source, where)
    blocks = _checked(parts, where, finite, width)
    if not source.random_access and source.limits != (0, None):
        blocks = _within(blocks, *source.limits)
    # Other sources may fill the memory of a block again when they give the next one.
    keeps = source.random_access or source.path is not None or type(source.source) is list
    return recut(blocks, block_rows, copied=not keeps)


def _within(blocks: Iterator, first: int, last: int | None) -> Iterator:
    # Yield rows first to last - 1 of the blocks.
    n = 0
    for block in blocks:
        if last is not None and n >= last:
            return
        end = block.shape[0] if last is None else min(block.shape[0], last - n)
        yield block[min(max(first - n, 0), end) : end]
        n += block.shape[0]


def _dense(block: Any) -> np.ndarray:
    if sparse.issparse(block):
        raise ValueError("save writes dense rows; save CSR matrices by scipy.sparse.save_npz.")
    return block


def with_last(blocks: Iterable) -> Iterator[tuple[Any, bool]]:
    """Each block, and whether it is the last one."""
    blocks = iter(blocks)
    for held in blocks:
        for block in blocks:
            yield held, False
            held = block
        yield held, True


def _map_of(source: Any) -> tuple[mmap.mmap, int] | None:
    # The memory map that holds an array, and the size of its file when it was opened.
    while isinstance(source, np.ndarray):
        source = source.base
    return (source, source.size()) if isinstance(source, mmap.mmap) else None


def _open(path: str) -> Any:
    if path.endswith(".npy"):
        return _open_array(path)
    if path.endswith(".npz"):
        if not zipfile.is_zipfile(path):
            raise ValueError(f"{path} is not a complete .npz file; write it again.")
        return _SavedCSR(path)
    if is_table_file(path):
        return TableRows(path)
    raise ValueError(f"Rows are read from files .npy, .npz, {', '.join(SUFFIXES)}; got {path!r}.")


def _open_array(path: str) -> np.ndarray:
    try:
        return np.load(path, mmap_mode="r")
    except OSError:  # no such file, no permission
        raise
    except CORRUPT as error:
        raise ValueError(
            f"{path} is not a complete .npy file ({error}); write it again."
        ) from error


class _SavedCSR:
    """Rows of a file that ``scipy.sparse.save_npz`` wrote, read from first to last."""

    def __init__(self, path: str):
        self.path = path
        with zipfile.ZipFile(path) as file, file.open("format.npy") as member:
            kind = np.lib.format.read_array(member).item()
        if kind != b"csr":
            raise ValueError(
                f"{path} holds a {kind.decode()} matrix; save it as CSR: save_npz(path, X.tocsr())."
            )

    def __iter__(self) -> Iterator:
        with zipfile.ZipFile(self.path) as file:
            with file.open("shape.npy") as member:
                n, width = (int(k) for k in np.lib.format.read_array(member))
            indptr, indices, data = (
                _MemberReader(file, name) for name in ("indptr", "indices", "data")
            )
            before = indptr.take(1)[0]
            for first in range(0, n, BLOCK_ROWS):
                ends = indptr.take(min(BLOCK_ROWS, n - first))
                ptr, count = np.concatenate([[before], ends]) - before, int(ends[-1] - before)
                before = ends[-1]
                rows = (data.take(count), indices.take(count), ptr)
                yield sparse.csr_matrix(rows, shape=(len(ends), width))


class _MemberReader:
    """An array in a zip file, read a piece at a time."""

    def __init__(self, file: zipfile.ZipFile, name: str):
        self.name, self.stream = name, file.open(f"{name}.npy")
        self.dtype = read_npy_header(self.stream)[2]

    def take(self, n: int) -> np.ndarray:
        wanted = n * self.dtype.itemsize
        values = self.stream.read(wanted)
        if len(values) < wanted:
            raise EOFError(f"array {self.name!r} ends early")
        return np.frombuffer(values, self.dtype)


def iterate(source: Any, where: str) -> Iterator:
    # The blocks of the source; any error of a user's reader is raised with the block's number.
    k = 0
    try:
        for block in source() if callable(source) else source:
            yield block
            k += 1
    except (GeneratorExit, BlockError):  # BlockError: the source reads other RowBlocks
        raise
    except Exception as error:
        raise BlockError(
            f"Block {k} of {where} cannot be read: {type(error).__name__}: "
            f"{str(error).removesuffix('.')}. Repair the source."
        ) from error


def _checked(parts: Iterable, where: str, finite: bool, width: int | None) -> Iterator:
    # Yield the blocks after checks: compiled kernels do not check column numbers.
    before, first = width is not None, 0
    for k, block in enumerate(parts):
        name, kind = f"Block {k} of {where}", type(block).__name__
        refuse_mask(block, name)
        if not sparse.issparse(block):
            block = np.asarray(block)
        if block.ndim != 2:
            raise BlockError(
                f"{name} must be 2-D (n_rows, n_features); got {kind} of shape {block.shape}. "
                "Reshape it, or if a generator yields single rows, read them into a list: list(x)."
            )
        width = block.shape[1] if width is None else width
        if block.shape[1] != width:
            then = "the source had" if before else "the blocks before have"
            raise BlockError(
                f"{name} has {block.shape[1]} features, {then} {width}"
                f"{' when it was first read' if before else ''}; all blocks must have the same "
                "columns."
            )
        if block.dtype.kind not in "biuf":
            raise BlockError(f"{name} must hold numbers; got dtype {block.dtype}.")
        if sparse.issparse(block):
            block = _as_csr(block, k, first, where)
        if finite:
            _check_finite(block, k, first, where)
        yield block
        first += block.shape[0]


def _as_csr(block: Any, k: int, first: int, where: str) -> Any:
    # SciPy uses indices without a check where it converts, cuts or joins matrices.
    try:
        whole = block.format == "csr" or not _is_damaged(block)
        csr = as_csr(block) if whole else None
    except ValueError:  # from SciPy's own, incomplete checks
        csr = None
    if csr is None:
        raise BlockError(
            f"Block {k} of {where} is a corrupt {block.format} matrix; create it again, as CSR."
        )
    _check_entries(csr, f" (row {{}} of block {k})", first, where)
    return csr


def _is_damaged(block: Any) -> bool:
    if block.format == "csc":
        return check_entries(block.T) is not None
    if block.format == "bsr":
        shape = [n // size for n, size in zip(block.shape, block.blocksize)]
        parts = {name: getattr(block, name) for name in ("indptr", "indices", "data")}
        return check_entries(SimpleNamespace(shape=shape, **parts)) is not None
    if block.format == "coo":
        return any(
            len(at) and not 0 <= int(at.min()) <= int(at.max()) < n
            for at, n in zip((block.row, block.col), block.shape)
        )
    return False


def _check_entries(rows: Any, beside: str, first: int, where: str) -> None:
    found = check_entries(rows)
    if found is not None:
        row, what = found
        raise BlockError(
            f"Row {first + row} of {where}{beside.format(row)} {what}; create the matrix again."
        )


def _check_finite(block: Any, k: int, first: int, where: str) -> None:
    found = first_not_finite(block)
    if found is not None:
        row, column, value = found
        raise BlockError(
            f"X must be finite; row {first + row} of {where} (row {row} of block {k}) holds "
            f"{value} in column {column}. Impute or drop it."
        )


def recut(blocks: Iterable, block_rows: int, copied: bool = False) -> Iterator[tuple[Any, str]]:
    # Join small blocks and cut large ones to ``block_rows`` rows; name the source's blocks.
    def part(block: Any, first: int, last: int) -> Any:
        rows = block[first:last] if last - first < block.shape[0] else block
        return deepcopy(rows) if copied else rows

    held, n, begin = [], 0, 0
    for k, block in enumerate(blocks):
        first, begin = 0, begin if held else k
        while block.shape[0] - first >= block_rows - n > 0:
            held.append(part(block, first, first + block_rows - n))
            first += block_rows - n
            yield join_rows(held), _numbers(begin, k)
            held, n, begin = [], 0, k
        if first < block.shape[0]:
            held.append(part(block, first, block.shape[0]))
            n += held[-1].shape[0]
    if held:
        yield join_rows(held), _numbers(begin, k)


def _numbers(first: int, last: int) -> str:
    return f"block {first}" if first == last else f"blocks {first} to {last}"


def join_rows(blocks: list) -> Any:
    """Blocks of rows as one: CSR if one of them is sparse."""
    if len(blocks) == 1:
        return blocks[0]
    if any(sparse.issparse(block) for block in blocks):
        return sparse.vstack(blocks, format="csr")
    return np.concatenate(blocks)


def iterates_only(source: Any) -> bool:
    """Whether ``source`` is an iterator or an iterable without a length."""
    return hasattr(source, "__iter__") and not hasattr(source, "__len__")


def one_shot_error(name: str, needs: str) -> ValueError:
    """The error for an iterator that would have to be read again."""
    return ValueError(
        f"{name} is an iterator, which can be read once, but {needs}. Pass a function that "
        "returns a new iterator each time, e.g. lambda: read_blocks(path), or a memory map."
    )

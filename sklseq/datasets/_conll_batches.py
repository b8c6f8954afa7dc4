"""Column files that are read while they arrive: memory depends on the longest sequence.

    file ── blocks of bytes ── blocks of lines ── whole sequences ──▶ batches of columns

Bytes become text, and text becomes cells, as in `read_conll`; errors have its words
and line numbers.
"""

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import IO, Any, NamedTuple

from ._conll import (
    LONG,
    check_not_an_archive,
    check_separator,
    compression_of,
    decompress,
    first_line,
    not_text,
    token_lines,
    warn_of_one_sequence,
)

_BLOCK = 1 << 18  # bytes; about 20,000 tokens, so that a batch is large beside the cost of a call
_N_MAGIC = 10  # bytes, by which compressed files are recognised
_OPEN: dict[str, Any] = {"gzip": gzip.open, "bzip2": bz2.open, "xz": lzma.open}
_TO_LAST_BLANK_LINE = re.compile(r".*^[ \t]*\n", re.DOTALL | re.MULTILINE)


class Batch(NamedTuple):
    """Sequences that follow each other in a file."""

    line: int  # number of the line of the first token
    separator: str  # of the cells of the file
    sequences: list[list[list[str]]]  # one list of columns for each sequence


def conll_batches(
    file: str | IO[bytes],
    *,
    separator: str | None,
    encoding: str,
    comment: str | None = None,
    block: int = _BLOCK,
) -> Iterator[Batch]:
    """Yield the sequences of a file, in batches for each `block` bytes; a blank line ends a batch.

    All columns are read as by ``read_conll(file, label=None)``. What a pipe has brought is a batch.
    """
    check_separator(separator)
    name = file if isinstance(file, str) else str(getattr(file, "name", "the file object"))
    first, n_sequences, n_tokens, last = None, 0, 0, 0
    with open(file, "rb") if isinstance(file, str) else nullcontext(file) as opened:
        lines = _lines(name, opened, encoding, block)
        for number, text in _whole_sequences(lines, _is_live(opened)):
            tokens = token_lines(text, separator, comment, "-DOCSTART-", number)
            if not tokens.lines:
                continue
            first = first or first_line(name, tokens, separator)
            batch = Batch(tokens.numbers[0], first.separator, list(first.split(tokens)))
            n_sequences, n_tokens = n_sequences + len(tokens.starts), n_tokens + len(tokens.lines)
            last = tokens.numbers[-1]
            del text, tokens  # as large as the cells
            yield batch
    if first is not None and n_sequences == 1 and n_tokens > LONG:
        warn_of_one_sequence(name, n_tokens, first.number, last)


def text_blocks(file: str | IO[bytes], encoding: str, block: int = _BLOCK) -> Iterator[str]:
    """Yield the text of a file in blocks of whole lines, as it arrives."""
    name = file if isinstance(file, str) else str(getattr(file, "name", "the file object"))
    with open(file, "rb") if isinstance(file, str) else nullcontext(file) as opened:
        yield from _lines(name, opened, encoding, block)


def _whole_sequences(blocks: Iterable[str], is_live: bool) -> Iterator[tuple[int, str]]:
    """Yield text that ends with a blank line or the file, and the number of its first line.

    Blocks that do not come live are cut when the next one is read, so that the last is not cut, nor
    the one before a last line without an end: a file of one block is one batch.
    """
    held: list[str] = []  # joined once: a long sequence takes time proportional to its length
    number = 1
    for block in blocks:
        if is_live:
            held.append(block)
        may_cut = held and (is_live or block.endswith("\n"))
        if may_cut and (found := _TO_LAST_BLANK_LINE.match(held[-1])):
            text = "".join([*held[:-1], found[0]])
            yield number, text
            number += text.count("\n")
            held = [held[-1][found.end() :]]
        if not is_live:
            held.append(block)
    yield number, "".join(held)


def _is_live(file: Any) -> bool:
    """Whether bytes of a file may come later: it is a pipe or a terminal."""
    try:
        return not stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    except (AttributeError, OSError):  # a file in memory
        return False


def _lines(name: str, file: IO[bytes], encoding: str, size: int) -> Iterator[str]:
    """Yield text in blocks of lines that end in LF (the last may not), without byte order mark."""
    decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate=True)
    left, start, n_ends, is_start = "", b"", 0, True
    for block in chain(_unpacked(name, file, size), [b""]):
        start = start or block[:2]
        n_ends += block.count(b"\n")
        try:
            text = decoder.decode(block, final=not block)
        except UnicodeDecodeError as error:
            line = n_ends - error.object.count(b"\n", error.start) + 1
            byte = error.object[error.start]
            raise not_text(name, encoding, start, byte, line) from error
        if is_start and text:
            text, is_start = text.removeprefix("\ufeff"), False
        whole, end, left = (left + text).rpartition("\n")
        if end:
            yield whole + end
    if left:
        yield left


def _unpacked(name: str, file: Any, size: int) -> Iterator[bytes]:
    """Yield the bytes of a file as they arrive, decompressed."""
    head = file.read1(size)
    while len(head) < _N_MAGIC and (more := file.read1(size)):
        head += more
    check_not_an_archive(name, head)
    kind = compression_of(head)
    if kind is None:
        yield head
        while block := file.read1(size):
            yield block
        return
    with _OPEN[kind](io.BufferedReader(_Joined(head, file))) as unpacked:
        while block := decompress(name, kind, unpacked.read1, size):
            yield block


class _Joined(io.RawIOBase):
    """The first bytes of a file, which have been read, and then the others."""

    def __init__(self, head: bytes, file: IO[bytes]):
        self.head, self.file = head, file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.head[: len(buffer)] or self.file.read1(len(buffer))  # type: ignore[attr-defined]
        self.head = self.head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)

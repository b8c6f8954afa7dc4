"""Column files read in batches: the sequences and the errors of `read_conll`."""

import bz2
import gzip
import io
import lzma
import os
import re
import warnings
from itertools import chain

import numpy as np
import pytest

from sklseq.datasets import read_conll
from sklseq.datasets._conll_batches import conll_batches

PACKED = [bytes, bytes, gzip.compress, bz2.compress, lzma.compress]


def random_file(rng):
    """Bytes of a column file, and how to read them; in half of the cases with a fault."""
    fault = rng.choice(["none", "none", "none", "width", "byte", "end"])
    separator = rng.choice([" ", "\t", "|"])
    cells = ["a", "é", "\u2028", "x y" if separator != " " else "xy", "\ufeff"]
    if separator != " " and rng.random() < 0.5:
        cells.append("")
    width = int(rng.integers(1, 4))
    lines = ["\ufeff"] if rng.random() < 0.2 else []
    for _ in range(int(rng.integers(0, 30))):
        rows = ["", " \t", f"-DOCSTART-{separator}x", separator.join(rng.choice(cells, width))]
        lines.append(str(rng.choice(rows, p=[0.2, 0.05, 0.05, 0.7])))
    if fault == "width":
        lines.insert(int(rng.integers(0, len(lines) + 1)), separator.join("a" * (width + 1)))
    ends = rng.choice(["\n", "\r\n", "\r"], len(lines), p=[0.8, 0.1, 0.1])
    encoding = "utf-8" if fault == "byte" else str(rng.choice(["utf-8", "utf-16", "utf-8-sig"]))
    data = "".join(chain(*zip(lines, ends))).encode(encoding)
    given = str(separator) if separator == "|" or rng.random() < 0.5 else None
    form = {"separator": given, "encoding": encoding}
    has_fault = isinstance(all_at_once(data, form), str)  # of two, batches name the first
    if fault == "byte" and not has_fault:
        at = int(rng.integers(0, len(data) + 1))
        data = data[:at] + b"\xff" + data[at:]
    pack = PACKED[int(rng.integers(len(PACKED)))]
    data = pack(data)
    if fault == "end" and not has_fault and pack is not bytes:
        data = data[:-3]
    return data, form


def without_words_of_the_library(error):
    """A message; those of gzip, bz2 and lzma, in parentheses, depend on how they are called."""
    return re.sub(r"file \(.*\);", "file;", str(error))


def all_at_once(data, form):
    try:
        X, _ = read_conll(io.BytesIO(data), label=None, **form)
    except ValueError as error:
        return without_words_of_the_library(error)
    return [list(x.values()) for x in X]


def in_batches(data, form, block):
    try:
        batches = list(conll_batches(io.BytesIO(data), block=block, **form))
    except ValueError as error:
        return without_words_of_the_library(error)
    return [sequence for batch in batches for sequence in batch.sequences]


@pytest.mark.parametrize("block", [1, 7, 1 << 18])
def test_batches_hold_the_sequences_of_the_file_or_its_error(block):
    rng = np.random.default_rng(block)
    n_errors = 0
    for _ in range(200):
        data, form = random_file(rng)
        expected = all_at_once(data, form)
        assert in_batches(data, form, block) == expected, (data, form)
        n_errors += isinstance(expected, str)
    assert 20 < n_errors < 150


def test_a_batch_ends_with_a_blank_line_and_knows_its_line():
    text = "\n\na\nb\n\n \t\n-DOCSTART-\nc\n\nd\n"
    batches = list(
        conll_batches(io.BytesIO(text.encode()), separator=None, encoding="utf-8", block=1)
    )
    assert [(b.line, b.sequences) for b in batches] == [
        (3, [[["a", "b"]]]),
        (8, [[["c"]]]),
        (10, [[["d"]]]),
    ]


def test_a_pipe_is_answered_before_it_is_closed():
    reading, writing = os.pipe()
    with open(reading, "rb") as file, open(writing, "wb", buffering=0) as other_end:
        other_end.write(b"first cell\n\nsecond")
        batch = next(conll_batches(file, separator=" ", encoding="utf-8"))
        assert batch.sequences == [[["first"], ["cell"]]]


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_a_small_file_is_one_batch(tmp_path, end):
    (tmp_path / "f").write_bytes(b"a\n\nb\n\nc" + end)
    (batch,) = conll_batches(str(tmp_path / "f"), separator=None, encoding="utf-8")
    assert batch.sequences == [[["a"]], [["b"]], [["c"]]]


@pytest.mark.parametrize("block", [100, 1 << 18])
def test_one_long_sequence_gives_the_warning_of_the_whole_file(block):
    file = io.BytesIO(b"\n" + b"a b\n" * 1001 + b"\n\n")
    with pytest.warns(UserWarning, match="no blank line among lines 2 to 1002, so its 1001 tokens"):
        batches = list(conll_batches(file, separator=None, encoding="utf-8", block=block))
    assert [len(s[0]) for b in batches for s in b.sequences] == [1001]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(conll_batches(io.BytesIO(b"a\n" * 1001 + b"\na"), separator=None, encoding="utf-8"))

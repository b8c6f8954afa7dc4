"""Random files, and labels for the span scores: python -m tests.trials.readers [N].

Column files are read beside a slow reader that goes through the documented rules character by
character; CoNLL-U files are made from the words that have to come out; span scores stand beside
seqeval, conlleval's rules, and seqeval on sequences that are repeated as often as they weigh.
"""

from __future__ import annotations

import gzip
import io
import sys
import warnings
from itertools import product

import numpy as np
from numpy.testing import assert_allclose
from seqeval import scheme as seqeval_schemes
from seqeval.metrics import sequence_labeling
from seqeval.metrics import v1 as strict_seqeval

from sklseq.data.strict_spans import STRICT_SCHEMES
from sklseq.datasets import read_conll, read_conllu
from sklseq.metrics import span_precision_recall_fscore_support
from tests.data.test_labels import starts_and_ends_of_chunks as conlleval_spans

# ---- column files -------------------------------------------------------------------------------

CELLS = ["a", "New York", "B-x", "O", "é", "x\u2028y", "10\u00a0000", "\x0b", "\x85", "#", "",
         "\ufeff", "-DOCSTART-", " b", "c ", "a b", ","]  # fmt: skip
MARKS = ["-DOCSTART-", "-DOCSTART- O", "-DOCSTART-\tO", " -DOCSTART- ", "-DOCSTART-x O",
         "-DOCSTART-,O", "# a b"]  # fmt: skip
GAPS = [" ", "\t", "\t", "  ", " \t", "\t ", "\t\t", " \t ", ",", "\u00a0"]
ENDS = ["\n", "\n", "\r\n", "\r"]


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def random_file(rng):
    """Text of a column file, mostly regular; and the parameters to read it with."""
    width, gap, end = int(rng.integers(1, 5)), pick(rng, GAPS), pick(rng, ENDS)
    plain = rng.random() < 0.5
    lines = []
    for _ in range(int(rng.integers(0, 9))):
        odd = rng.random()
        if odd < 0.15:
            lines.append(pick(rng, ["", " ", "\t", " \t \t"]))
            continue
        if odd < 0.22:
            lines.append(pick(rng, MARKS))
            continue
        cells = [pick(rng, ["a", "é", "B-x"] if plain else CELLS) for _ in range(width)]
        line = (gap if rng.random() < 0.9 else pick(rng, GAPS)).join(cells)
        lines.append(
            pick(rng, ["", "", "", " ", "\t"]) + line + pick(rng, ["", "", "", " ", "\t", " \t"])
        )
    text = end.join(lines) + pick(rng, ["", end])
    options = {
        "separator": pick(rng, [None, None, None, " ", "\t", ","]),
        "comment": pick(rng, [None, "#"]),
        "docstart": pick(rng, ["-DOCSTART-", "-DOCSTART-", None]),
        "label": pick(rng, [-1, -1, 0, None]),
    }
    return pick(rng, ["", "", "\ufeff"]) + text, options


def cut_lines(text):
    lines, line, k = [], "", 0
    while k < len(text):
        if text[k] in "\r\n":
            k += text[k : k + 2] == "\r\n"
            lines.append(line)
            line = ""
        else:
            line += text[k]
        k += 1
    return [*lines, line]


def split(line, separator):
    if separator != " ":
        return line.split(separator)
    cells, cell = [], ""
    for c in line + " ":
        if c in " \t":
            cells += [cell] if cell else []
            cell = ""
        else:
            cell += c
    return cells


def read_slowly(text, separator, comment, docstart, label):
    """Columns and labels by the documented rules; None where they refuse the file."""
    text = text[1:] if text[:1] == "\ufeff" else text
    sequences, inside, guessed, chosen = [], False, separator is None, separator
    for line in cut_lines(text):
        if comment is not None and line[: len(comment)] == comment:
            continue
        blank = all(c in " \t" for c in line)
        if blank or (docstart and split(line, " " if guessed else separator)[0] == docstart):
            inside = False
            continue
        while guessed and line[-1] in " \t":
            line = line[:-1]
        if chosen is None:
            chosen = "\t" if "\t" in line else " "
        cells = split(line, chosen)
        if guessed and chosen == "\t":
            cells = [cell.strip(" ") for cell in cells]
        if not inside:
            sequences.append([])
        inside = True
        sequences[-1].append(cells)
    widths = {len(cells) for rows in sequences for cells in rows}
    if len(widths) > 1:
        return None
    X, y = [], []
    for rows in sequences:
        columns = [list(column) for column in zip(*rows)]
        if label is not None:
            if len(columns) == 1:
                return None
            y.append(columns.pop(label))
            if guessed and chosen == "\t" and any(" " in cell for cell in y[-1]):
                return None
        X.append({f"c{k}": column for k, column in enumerate(columns)})
    return X, None if label is None else y


def attempt(reader, data, **options):
    """What the reader gives, None if it refuses."""
    try:
        return reader(io.BytesIO(data), **options)
    except ValueError:
        return None


def check_columns(rng):
    """Whether the file was read."""
    text, options = random_file(rng)
    expected = read_slowly(text, **options)
    encoding = pick(rng, ["utf-8", "utf-8", "utf-16", "latin-1" if text.isascii() else "utf-32"])
    data = text.encode(encoding)
    if rng.random() < 0.3:
        data = gzip.compress(data, mtime=0)
    got = attempt(read_conll, data, encoding=encoding, **options)
    assert got == expected, (text, options, got, expected)
    return got is not None


# ---- CoNLL-U ------------------------------------------------------------------------------------

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
VALUES = [
    "a",
    "_",
    "NOUN",
    "New York",
    "x\u2028y",
    "10\u00a0000",
    "1-2",
    "3.1",
    "-DOCSTART-",
    "#",
    "é",
    "|",
]


def random_sentence(rng):
    """Lines of a sentence, and the rows of its words."""
    lines, words, n_words, end = [], [], int(rng.integers(1, 7)), 0
    for k in range(n_words + 1):
        if k:
            words.append([str(k), *(pick(rng, VALUES) for _ in FIELDS[1:])])
            lines.append("\t".join(words[-1]))
        for j in range(int(rng.integers(0, 4)) if rng.random() < 0.2 else 0):
            lines.append("\t".join([f"{k}.{j + 1}", *(pick(rng, VALUES) for _ in FIELDS[1:])]))
        if end <= k < n_words and rng.random() < 0.3:
            end = int(rng.integers(k + 1, n_words + 1))
            lines.append("\t".join([f"{k + 1}-{end}", pick(rng, VALUES), *["_"] * 8]))
    return lines, words


def check_conllu(rng):
    """Whether the file was damaged, and so refused."""
    blocks, rows, metadata = [], [], []
    for s in range(int(rng.integers(1, 5))):
        lines, words = random_sentence(rng)
        words[0][3] = "X"  # at least one label
        lines = ["\t".join(words[0]) if line.startswith("1\t") else line for line in lines]
        notes = {"sent_id": f"s{s}", "text": "a = b", "newpar": ""}
        kept = [key for key in notes if rng.random() < 0.5]
        comments = [f"# {key} = {notes[key]}" if notes[key] else f"# {key}" for key in kept]
        blocks.append([*comments, *lines])
        rows.append(words)
        metadata.append({key: notes[key] for key in kept})
    damaged = rng.random() < 0.4
    if damaged:
        damage(rng, blocks[int(rng.integers(len(blocks)))])
    end = pick(rng, ENDS)
    blank = [""] * int(rng.integers(1, 3))
    text = end.join(line for block in blocks for line in [*block, *blank])
    data = (pick(rng, ["", "\ufeff"]) + text + pick(rng, ["", end])).encode()
    if rng.random() < 0.3:
        data = gzip.compress(data, mtime=0)
    columns = [field for field in FIELDS if rng.random() < 0.5]
    got = attempt(read_conllu, data, columns=columns, return_metadata=True)
    assert (got is None) == damaged, text
    if damaged:
        return True
    X, y, notes = got
    tables = [dict(zip(FIELDS, map(list, zip(*words)))) for words in rows]
    assert [{field: table[field] for field in columns} for table in tables] == X, text
    assert y == [table["upos"] for table in tables], text
    assert notes == metadata, text
    return False


def damage(rng, block):
    """Make one line of a sentence break the rules."""
    at = pick(rng, [k for k, line in enumerate(block) if not line.startswith("#")])
    fields = block[at].split("\t")
    kind = rng.integers(5)
    if kind == 0:
        fields.pop(int(rng.integers(1, 10)))
    elif kind == 1:
        fields[int(rng.integers(10))] = ""
    elif kind == 2:
        fields[0] = pick(
            rng, ["0", "99", "01", "-1", "1-", "2.0", "99.1", "5-4", "1-99", "x", "0-1", "²"]
        )
    elif kind == 3:
        fields = fields + fields
    else:
        fields = [" ".join(fields)]
    block[at] = "\t".join(fields)


# ---- span scores --------------------------------------------------------------------------------

AVERAGES = (None, "micro", "macro", "weighted")


def random_labels(rng, letters, n_sequences=5, max_length=8):
    """Labels of any order, sparse or dense, with one to three types; often of no span at all."""
    types = ["LOC", "PER", "a-b"][: int(rng.integers(1, 4))]
    classes = [f"{letter}-{type_}" for letter, type_ in product(letters, types)]
    share = pick(rng, [0.05, 0.5, 0.9])

    def labels(n):
        return [pick(rng, classes) if rng.random() < share else "O" for _ in range(n)]

    lengths = rng.integers(0, max_length, size=n_sequences)
    y_true = [labels(n) for n in lengths]
    y_pred = [labels(n) if rng.random() < 0.5 else list(true) for n, true in zip(lengths, y_true)]
    return y_true, y_pred


def backwards(y):
    """IOB1 that mirrors IOE1: rows from last to first, B for E."""
    return [
        ["B" + label[1:] if label[0] == "E" else label for label in labels[::-1]] for labels in y
    ]


def same(got, expected):
    for value, reference in zip(got, expected, strict=True):
        assert_allclose(value, reference, rtol=1e-12, atol=0)


def check_spans(rng):
    """Averages × zero_division × weights, read by conlleval's rules and strictly."""
    scheme = pick(rng, list(STRICT_SCHEMES))
    letters = {"iobes": "BIES", "bilou": "BILU"}.get(scheme, STRICT_SCHEMES[scheme][1])
    y_true, y_pred = random_labels(rng, letters)
    weight = rng.integers(0, 3, size=len(y_true))
    again = np.repeat(np.arange(len(y_true)), weight)
    variants = [((y_true, y_pred), {})]
    if any(y_true[i] for i in again):
        heavy = [y_true[i] for i in again], [y_pred[i] for i in again]
        variants.append((heavy, {"sample_weight": weight}))
    for (one, other), options in variants:
        for average, zero in product(AVERAGES, (0, 1)):
            chosen = {"average": average, "zero_division": zero, **options}
            check_conlleval(y_true, y_pred, one, other, scheme, chosen)
            check_strict(y_true, y_pred, one, other, scheme, chosen)
    return True


def check_conlleval(y_true, y_pred, one, other, scheme, chosen):
    got = span_precision_recall_fscore_support(y_true, y_pred, **chosen)
    found, predicted = (
        {(n, *span) for n, labels in enumerate(y) for span in conlleval_spans(labels)}
        for y in (one, other)
    )
    if chosen["average"] == "micro" and found and predicted:
        right = len(found & predicted)
        f1 = 2 * right / (len(found) + len(predicted))
        same(got, (right / len(predicted), right / len(found), f1, len(found)))
    if scheme != "bilou" and comparable(y_true, y_pred, one, other, chosen, conlleval_spans):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = sequence_labeling.precision_recall_fscore_support(
                one, other, average=chosen["average"], zero_division=chosen["zero_division"]
            )
        same(got, expected)


def check_strict(y_true, y_pred, one, other, scheme, chosen):
    got = span_precision_recall_fscore_support(
        y_true, y_pred, mode="strict", scheme=scheme, **chosen
    )
    name = scheme.upper()
    if scheme == "ioe1":
        y_true, y_pred, one, other = map(backwards, (y_true, y_pred, one, other))
        name = "IOB1"
    theirs = getattr(seqeval_schemes, name)

    def spans(labels):
        entities = seqeval_schemes.Tokens(labels, theirs).entities
        return [(entity.start, entity.end, entity.tag) for entity in entities]

    if comparable(y_true, y_pred, one, other, chosen, spans):
        expected = strict_seqeval.precision_recall_fscore_support(
            one,
            other,
            average=chosen["average"],
            zero_division=chosen["zero_division"],
            scheme=theirs,
        )
        same(got, expected)


def comparable(y_true, y_pred, one, other, chosen, spans):
    """Not so where seqeval averages over no type, or a type has the weight zero (it sees none)."""
    types, heavy = (
        {span[2] for y in pair for labels in y for span in spans(labels)}
        for pair in ((y_true, y_pred), (one, other))
    )
    return types == heavy and (types or chosen["average"] in ("micro", "weighted"))


# -------------------------------------------------------------------------------------------------

CHECKS = {"read_conll": check_columns, "read_conllu": check_conllu, "spans": check_spans}


def run(name, n, seed=0):
    """How many of n cases gave True; the number of the case is in what is raised."""
    total = 0
    for k in range(n):
        try:
            total += bool(CHECKS[name](np.random.default_rng([seed, k])))
        except Exception as error:
            raise AssertionError(f"{name}, case {k} of seed {seed}: {error}") from error
    return total


def main(n=10_000):
    found = {"read_conll": "read", "read_conllu": "damaged and refused", "spans": "compared"}
    for name, what in found.items():
        print(f"{name}: {n} cases, {run(name, n)} {what}; no difference", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

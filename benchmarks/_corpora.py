"""Labelled sequences of five shapes, as rows and labels; found under SKLSEQ_DATA."""

import gzip

import numpy as np
from _common import NoData
from _common import folder as data_folder
from scipy import sparse

from sklseq import Sequences
from sklseq.features import TokenFeatures, WindowFeatures

CORPORA = ["ocr-letters", "conll2002", "ud-english-ewt", "ncbi-disease", "protein-cb513"]


def blocks(path, encoding="utf-8"):
    """Rows of columns, cut at blank lines."""
    block = []
    with gzip.open(path, "rt", encoding=encoding, newline="") as lines:
        for line in lines:
            cells = line.rstrip("\r\n")
            if cells.strip():
                block.append(cells.split("\t") if "\t" in cells else cells.split())
            elif block:
                yield block
                block = []
    if block:
        yield block


def words(path, label=-1, encoding="utf-8", n=None):
    """Window features of the first column, and labels."""
    sentences = list(blocks(path, encoding))[:n]
    X = [{"w": [cells[0] for cells in s]} for s in sentences]
    features = WindowFeatures(TokenFeatures(columns="w", suffixes=3, prefixes=3), before=1, after=1)
    return features.fit_transform(X), [[cells[label] for cells in s] for s in sentences]


def letters(path):
    """Pixels as features."""
    found = list(blocks(path))
    lengths = [len(word) for word in found]
    pixels = np.array([[int(p) for p in cells[0]] for word in found for cells in word], float)
    y = [[cells[1] for cells in word] for word in found]
    return Sequences(sparse.csr_matrix(pixels), np.cumsum([0, *lengths])), y


def residues(path):
    """Amino acids in a window of 15, for 8 states."""
    chains = [[cells for cells in chain if cells[0] != "aa"] for chain in blocks(path)]
    X = [{"w": [cells[0] for cells in chain]} for chain in chains]
    own = TokenFeatures(columns="w", word=True, lower=False, shape=False, short_shape=False,
                        prefixes=0, suffixes=0, flags=False, length=False)  # fmt: skip
    return WindowFeatures(own, before=7, after=7).fit_transform(X), [
        [c[2] for c in chain] for chain in chains
    ]


def corpus(name, n=None):
    """(Sequences, labels) of one of ``CORPORA``, or "conll2000"."""
    if (folder := data_folder(name)) is None:
        raise NoData(f"SKLSEQ_DATA names no folder that holds {name}")
    if name == "ocr-letters":
        X, y = letters(folder / "folds1-9.tsv.gz")
    elif name == "conll2002":
        X, y = words(folder / "esp.train.gz", encoding="latin-1")
    elif name == "conll2000":
        X, y = words(folder / "train.txt.gz")
    elif name == "ud-english-ewt":
        X, y = words(folder / "train.tsv.gz", label=1)
    elif name == "ncbi-disease":
        X, y = words(folder / "train.tsv.gz")
    else:
        X, y = residues(folder / "cb513.tsv.gz")
    return (X, y) if n is None else (X[:n], y[:n])

"""Labelled sequences of five shapes, as rows and labels; found under SKLSEQ_DATA."""

from functools import partial

import numpy as np
from _common import folder, need
from scipy import sparse

from sklseq import Sequences
from sklseq.datasets import make_contacts, read_conll
from sklseq.features import TokenFeatures, WindowFeatures

CORPORA = ["ocr-letters", "conll2002", "ud-english-ewt", "ncbi-disease", "protein-cb513"]


def sentences(path, columns=("w",), label=-1):
    """The first columns of each sentence by name, and labels."""
    X, y = read_conll(path, label=label)
    return [dict(zip(columns, x.values())) for x in X], y


def words(path, label=-1):
    """Window features of the first column, and labels."""
    X, y = sentences(path, label=label)
    features = WindowFeatures(TokenFeatures(columns="w", suffixes=3, prefixes=3), before=1, after=1)
    return features.fit_transform(X), y


TAGGED = {
    "conll2000": {"train": "train.txt.gz", "test": "test.txt.gz"},
    "conll2002": {"train": "esp.train.gz", "test": "esp.testb.gz"},
}


def tagged(name, part, n=None):
    """(X, y) of the training or test part of a corpus, dicts of the columns "w" and "pos"."""
    X, y = read_conll(need(name) / TAGGED[name][part], columns=("w", "pos"))
    return X[:n], y[:n]


def tagged_or_generated(name="conll2000", n=None):
    """(X, y, X_test, y_test) of a corpus, or without it of generated documents."""
    if folder(name) is not None:
        return *tagged(name, "train", n), *tagged(name, "test", n)
    X, y = make_contacts(1000, random_state=0)
    X = [{"w": x["w"], "pos": x["newline"]} for x in X]
    return X[:800][:n], y[:800][:n], X[800:][:n], y[800:][:n]


def letters(path):
    """Pixels as features."""
    X, y = sentences(path, ("pixels",))
    pixels = np.array([list(map(int, item)) for x in X for item in x["pixels"]], float)
    return Sequences(sparse.csr_matrix(pixels), np.cumsum([0, *map(len, y)])), y


def dense_letters(path):
    X, y = letters(path)
    return X.with_rows(X.rows.toarray()), y


def residues(path):
    """Amino acids in a window of 15, for 8 states."""
    X, y = sentences(path, label=2)
    own = TokenFeatures(columns="w", word=True, lower=False, shape=False, short_shape=False,
                        prefixes=0, suffixes=0, flags=False, length=False)  # fmt: skip
    return WindowFeatures(own, before=7, after=7).fit_transform(X), y


READERS = {  # file to train on, and what reads it
    "ocr-letters": ("folds1-9.tsv.gz", letters),
    "conll2000": ("train.txt.gz", words),
    "conll2002": ("esp.train.gz", words),
    "ud-english-ewt": ("train.tsv.gz", partial(words, label=1)),
    "ptb-wsj-sample": ("train.tsv.gz", partial(words, label=1)),
    "ncbi-disease": ("train.tsv.gz", words),
    "protein-cb513": ("cb513.tsv.gz", residues),
}


def corpus(name, n=None):
    """(Sequences, labels) of one of ``READERS``."""
    file, read = READERS[name]
    X, y = read(need(name) / file)
    return (X, y) if n is None else (X[:n], y[:n])

"""Labelled sequences that several test files train on."""

import numpy as np
from scipy import sparse

from sklseq import Sequences


def make_data(seed, n=12, M=5, L=3, max_len=6, labels=None, min_len=1):
    """Dense rows whose labels depend on them; every label occurs."""
    rng = np.random.default_rng(seed)
    names = np.arange(L) if labels is None else np.asarray(labels)
    W = rng.normal(size=(M, L))
    X, y = [], []
    for s in range(n):
        T = int(rng.integers(min_len, max_len + 1))
        x = rng.normal(size=(T, M))
        codes = (x @ W + rng.gumbel(size=(T, L))).argmax(axis=1)
        codes[0] = s % L
        X.append(x)
        y.append(names[codes])
    return X, y


def make_argmax_data(seed=0, n=12, T=None, L=3, longest=7, labels=None):
    """Normal rows labelled by their largest entry among the first L, in magnitude."""
    rng = np.random.default_rng(seed)
    names = np.arange(L) if labels is None else np.asarray(labels)
    X = [rng.normal(size=(T or int(rng.integers(1, longest + 1)), L + 1)) for _ in range(n)]
    return X, [names[np.abs(x[:, :L]).argmax(axis=1)] for x in X]


def make_sparse_data(seed, n=30, M=8, L=3, ones=False):
    """Packed sparse rows, of zeros and ones or with values, and labels drawn at random."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 8, n)
    rows = rng.integers(0, 2, (lengths.sum(), M)) * (1.0 if ones else rng.normal(size=M))
    X = Sequences(sparse.csr_matrix(rows), np.concatenate([[0], np.cumsum(lengths)]))
    y = [rng.integers(0, L, T) for T in lengths]
    y[0][:] = np.arange(len(y[0])) % L
    y[1] = np.r_[y[1][:-1], L - 1]
    return X, y

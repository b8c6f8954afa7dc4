"""Columns that are multiples of one another, trained as one."""

from __future__ import annotations

import numpy as np
from scipy import sparse

__all__ = ["merge_parallel_columns"]


def merge_parallel_columns(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """An orthonormal matrix M: one column for each direction among the columns of X.

    Where columns x_j = a_j · x are parallel, all of X · coef depends on their weights through
    Σ_j a_j coef(j, :) only, and among weights of equal scores coef(j, :) = a_j / ‖a‖ · u have the
    least ‖coef‖². So the minimum of a loss of X · coef plus l2 · ‖coef‖² has coef = M u,
    M(j, g) = a_j / ‖a‖ for the columns j of direction g, and as MᵀM = 1,

        min_coef loss(X coef) + l2 ‖coef‖²  =  min_u loss(X M u) + l2 ‖u‖²,

    the same function with fewer unknowns: a word that occurs once has many features that occur
    where it does and nowhere else. For gradient methods that start in the range of M both problems
    have the same iterates, as gradients Xᵀr lie in that range. An L1 penalty has no such symmetry.

    Parameters
    ----------
    rows : CSR matrix of shape (n_rows, n_features)

    Returns
    -------
    CSR matrix of shape (n_features, n_directions)
        Columns of zeros only have no direction. Columns are joined if their ratios are equal to
        the last bit; others stay apart, which is right as well.
    """
    columns = rows.tocsc(copy=True)
    columns.sum_duplicates()
    columns.eliminate_zeros()
    n_features, counts = columns.shape[1], np.diff(columns.indptr)
    used = np.flatnonzero(counts)
    first = np.zeros(n_features)
    first[used] = columns.data[columns.indptr[used]]
    ratio = columns.data / np.repeat(first, counts)
    leader = _confirmed(columns, ratio, used, _leaders(columns, ratio, used))
    leaders, direction = np.unique(leader, return_inverse=True)
    norm = np.sqrt(np.bincount(direction, first[used] ** 2))
    scale = first[used] / norm[direction]
    return sparse.csr_matrix((scale, (used, direction)), (n_features, len(leaders)))


def _leaders(columns, ratio: np.ndarray, used: np.ndarray) -> np.ndarray:
    # For each used column the first one of the same fingerprint: a sum, modulo 2^64, of random
    # numbers of its rows times those of its ratios' bits.
    rng = np.random.default_rng(0)
    of_row = rng.integers(2**64, size=columns.shape[0], dtype=np.uint64)
    bits = (ratio.view(np.uint64) >> np.uint64(11)) ^ (ratio.view(np.uint64) << np.uint64(21))
    terms = of_row[columns.indices] * (bits | np.uint64(1))
    prints = np.add.reduceat(terms, columns.indptr[used]) if len(used) else terms
    _, first, inverse = np.unique(prints, return_index=True, return_inverse=True)
    return used[first][inverse]


def _confirmed(columns, ratio, used: np.ndarray, leader: np.ndarray) -> np.ndarray:
    # A column that differs from its leader after all is its own.
    counts, own = np.diff(columns.indptr), columns.indptr[used]
    size = counts[used]
    same = size == counts[leader]
    within = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    mine = np.repeat(own, size) + within
    other = np.minimum(np.repeat(columns.indptr[leader], size) + within, len(ratio) - 1)
    differs = (columns.indices[mine] != columns.indices[other]) | (ratio[mine] != ratio[other])
    same &= np.bincount(np.repeat(np.arange(len(used)), size), differs, len(used)) == 0
    return np.where(same, leader, used)

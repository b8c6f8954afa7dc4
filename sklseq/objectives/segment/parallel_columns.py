"""Merging of feature columns that are multiples of one another, which need only one weight."""

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import ranges


def merge_parallel_columns(rows: sparse.csr_matrix) -> sparse.csr_matrix:
    """An orthonormal matrix M with one column for each direction among the columns of X.

    If columns x_j = a_j · x are parallel, X · coef depends on their weights only through
    Σ_j a_j coef(j, :). Among weights with equal scores, coef(j, :) = a_j / ‖a‖ · u has the least
    ‖coef‖². So the minimum of a loss of X · coef plus l2 · ‖coef‖² has coef = M u with
    M(j, g) = a_j / ‖a‖ for the columns j of direction g, and since MᵀM = 1,

        min_coef loss(X coef) + l2 ‖coef‖²  =  min_u loss(X M u) + l2 ‖u‖²,

    the same function with fewer unknowns. Many columns are parallel: a word that occurs once has
    many features that occur only there. Gradient methods that start in the range of M have the same
    iterates for both problems, because gradients Xᵀr lie in that range. This does not hold for an
    L1 penalty.

    Parameters
    ----------
    rows : CSR matrix of shape (n_rows, n_features)

    Returns
    -------
    CSR matrix of shape (n_features, n_directions)
        Columns of zeros have no direction. Columns are merged if their ratios are equal to the last
        bit; parallel columns whose ratios differ by rounding stay separate, which is also correct.
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
    # Divided by a power of two of each direction, so that no square overflows or is lost.
    fraction, power = np.frexp(first[used])
    top = np.full(len(leaders), np.iinfo(power.dtype).min)
    np.maximum.at(top, direction, power)
    scale = np.ldexp(fraction, power - top[direction])
    scale /= np.sqrt(np.bincount(direction, scale**2))[direction]
    return sparse.csr_matrix((scale, (used, direction)), (n_features, len(leaders)))


def _leaders(columns, ratio: np.ndarray, used: np.ndarray) -> np.ndarray:
    # For each used column, the first column of the same fingerprint. A fingerprint is the sum,
    # modulo 2^64, over the column's entries of a random number of the row times the mixed bits of
    # the ratio.
    rng = np.random.default_rng(0)
    of_row = rng.integers(2**64, size=columns.shape[0], dtype=np.uint64)
    bits = (ratio.view(np.uint64) >> np.uint64(11)) ^ (ratio.view(np.uint64) << np.uint64(21))
    terms = of_row[columns.indices] * (bits | np.uint64(1))
    prints = np.add.reduceat(terms, columns.indptr[used]) if len(used) else terms
    _, first, inverse = np.unique(prints, return_index=True, return_inverse=True)
    return used[first][inverse]


def _confirmed(columns, ratio, used: np.ndarray, leader: np.ndarray) -> np.ndarray:
    # Leaders after exact comparison: a column that differs from its leader becomes its own leader.
    counts, own = np.diff(columns.indptr), columns.indptr[used]
    size = counts[used]
    same = size == counts[leader]
    mine = ranges(own, size)
    other = np.minimum(ranges(columns.indptr[leader], size), len(ratio) - 1)
    differs = (columns.indices[mine] != columns.indices[other]) | (ratio[mine] != ratio[other])
    same &= np.bincount(np.repeat(np.arange(len(used)), size), differs, len(used)) == 0
    return np.where(same, leader, used)

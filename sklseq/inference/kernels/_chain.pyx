"""Linear-chain dynamic programs over packed batches.

Conventions, once for the whole file
------------------------------------
A batch holds the rows of all sequences; sequence s is rows offsets[s] to offsets[s + 1] - 1.
Every row has `width` numbers: L labels, then padding up to a whole number of lanes
(`_lib/lanes.pxd`).

    psi[t, j]     emission score psi_t(j); start and end scores are folded into the first and the
                  last row of their sequence (`fold_boundaries`)
    score[i, j]   transition score psi(i, j); -inf forbids
    e[t, j]       exp(psi[t, j] - shift[t]), shift[t] being the row's maximum: in [0, 1]
    E[i, j]       exp(psi(i, j) - max psi): in [0, 1]
    Et            E transposed

Padding is 0 in e and E and -inf in psi and score, so no label ever comes from there.

Scaled arithmetic: when it is exact
-----------------------------------
alpha rows are divided by their sum c_t, so nothing overflows; what can go wrong is that a factor
or product underflows to 0 and is missed later. Two sufficient conditions, either will do:

1. *Mixing.* If E[i, j] >= MIX for all i, j, mass that was lost (less than `tiny` of its row) can
   gain on the rest by at most a factor 1 / MIX, ever: one row after the loss, each label receives
   at most that loss times e_t(j), and at least MIX times e_t(j) from what was kept. The relative
   error of Z is then below n_rows * L * tiny / MIX.
2. *Nothing lost.* Otherwise every unnormalised entry of alpha is looked at: it is either at least
   FLOOR, or zero because no allowed path ends there. By induction nothing underflowed at all.

Rows may have matrices of their own (`_row_matrices.pxd`). Of the matrix of a row the proofs need
only that (1) its factors are between MIX and 1, and (2) an entry of alpha is looked at with the
matrix that it is a sum of: neither needs the matrix of another row to be the same. A factor that
only some rows have may be above 1, up to LARGEST. Then (1) is not relied on; in (2), what is at
least FLOOR remains at least FLOOR / (L * LARGEST) when it is divided by its row's sum, which is
above `tiny`.

A sequence for which neither holds is marked, and done again in the log domain. (A lower bound on
the row sums c_t alone would prove nothing: rows can lose a factor 1e-150 each, again and again,
after the label that would have won has been rounded to zero.)
"""

import numpy as np

from libc.math cimport INFINITY, exp
from libc.stdlib cimport free, malloc

from sklseq._lib.exponential cimport exp_doubles, exponentials
from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes, real
from sklseq.inference.kernels._batched cimport (
    Batch, add_pairs, backward_batch, batch_of, best_scores_batch, forward_batch, weigh_rows,
)
from sklseq.inference.kernels._blocks cimport (
    SKLSEQ_FOUR_ROWS_FIT, block_of_maxima, first_argmax, largest, row_max,
)
from sklseq.inference.kernels._log_domain cimport draw, log_forward, log_normalise, log_sum_exp
from sklseq.inference.kernels._recursions cimport least_mass, mixing
from sklseq.inference.kernels._row_matrices cimport (
    RowMatrices, backward_runs, column_at, forward_runs, matrix_at, row_matrices,
)
from sklseq.inference.kernels._row_sets cimport (
    Sets, add_pairs_of_sets, backward_by_sets, exponents, extend, forward_by_sets, sort_by_set,
    write_matrices,
)
from sklseq.inference.kernels._sparse cimport Lists, add_sparse_pairs
from sklseq.inference.kernels._sparse_entries cimport ListedEntries, add_entry_pairs, number_of

DOUBLE, SINGLE = np.dtype(np.float64), np.dtype(np.float32)

# Condition 1: the smallest transition factor for which it proves more digits than the type has,
# and for which u <= 1 / MIX**2 cannot overflow.
MIX = {DOUBLE: mixing(<double*> NULL), SINGLE: mixing(<float*> NULL)}

# Condition 2: positive entries of alpha below this count as inaccurate.
FLOOR = {DOUBLE: least_mass(<double*> NULL), SINGLE: least_mass(<float*> NULL)}

# The largest factor of an entry of a single row: an entry of alpha of at least FLOOR stays above
# the smallest normal number when it is divided by a row sum, which is at most LARGEST * L.
LARGEST = {DOUBLE: 1e15, SINGLE: 1e4}

# Whether sums of a type are faster in batches: four or eight rows must fit the registers.
BATCHED_SUMS = {DOUBLE: bool(SKLSEQ_FOUR_ROWS_FIT), SINGLE: True}


def padded_width(Py_ssize_t n_labels):
    """Numbers a row takes: 2, 4, or the next multiple of 8."""
    if n_labels <= 2:
        return 2
    if n_labels <= 4:
        return 4
    return (n_labels + 7) // 8 * 8


def fold_boundaries(
    real[:, ::1] psi,                # (n_rows, width)  IN/OUT
    const long long[::1] offsets,
    const real[::1] start,           # (width,)
    const real[::1] end,
):
    """Add `start` to the first and `end` to the last row of each sequence.

    It takes less time than another thread needs to wake up: the GIL is kept.
    """
    cdef Py_ssize_t s, j, first, last
    for s in range(offsets.shape[0] - 1):
        first = offsets[s]
        last = offsets[s + 1] - 1
        if last >= first:
            for j in range(psi.shape[1]):
                psi[first, j] += start[j]
                psi[last, j] += end[j]


def scale_rows(
    const real[:, ::1] psi,          # (n_rows, width)
    real[:, ::1] e,                  # (n_rows, width)  OUT exp(psi minus the row's maximum)
    real[::1] shift,                 # (n_rows,)        OUT the maximum
    Py_ssize_t L,
):
    """Exponentials of each row, the largest being 1; of padding, 0."""
    cdef Py_ssize_t t, j, width = psi.shape[1], first, last = 0
    cdef real top
    with nogil:
        while last < psi.shape[0]:   # rows stay in the cache until they are exponentiated
            first, last = last, min(last + 1024 // width + 1, psi.shape[0])
            for t in range(first, last):
                if L > 4:
                    top = row_max(&psi[t, 0], L)
                else:
                    top = psi[t, 0]
                    for j in range(1, L):
                        top = psi[t, j] if psi[t, j] > top else top
                shift[t] = top
                if top == -INFINITY:     # no label is allowed here: all of e is exp(-inf) = 0
                    top = 0
                for j in range(L):
                    e[t, j] = psi[t, j] - top
                for j in range(L, width):
                    e[t, j] = -INFINITY
            exponentials(&e[first, 0], &e[first, 0], (last - first) * width)


cdef Lists lists_of(lists, double[::1] scratch):
    # (start, at, S, E, c, f, floor); E, c and f may be None. scratch: (L * 16,)
    cdef Lists m
    cdef const int[::1] start = lists[0], at = lists[1]
    m.L = start.shape[0] - 1
    m.start, m.at = &start[0], &at[0] if at.shape[0] else NULL
    m.S, m.E, m.c, m.f = pointer(lists[2]), pointer(lists[3]), pointer(lists[4]), pointer(lists[5])
    m.floor = lists[6]
    m.x, m.y = &scratch[0], &scratch[m.L * 8]
    return m


cdef ListedEntries entries_of(entries, listed):
    # entries: `Workspace._listed_factors`, arrays that the caller keeps.
    cdef ListedEntries q
    cdef const int[::1] i, j, number, of_row
    cdef const long long[::1] start
    rows, factor, number, pairs, own = entries[:5]
    start, i, j = rows.indptr, rows.i, rows.j
    q.start, q.of_row = &start[0], NULL
    q.i, q.j, q.number = &i[0], &j[0], &number[0]
    if rows.of_row is not None:
        of_row = rows.of_row
        q.of_row = &of_row[0] if of_row.shape[0] else NULL
    q.factor, q.expected = pointer(factor), <double*> pointer(rows.expected)
    q.listed, q.base = pointer(listed.factors), pointer(listed.base)
    q.pairs, q.own = <double*> pointer(pairs), <double*> pointer(own)
    return q


cdef const double* pointer(numbers) except? NULL:
    # Pointer to the first of `numbers`, to which the caller keeps a reference; NULL without any.
    cdef const double[::1] view
    if numbers is None or len(numbers) == 0:
        return NULL
    view = numbers
    return &view[0]


cdef struct Chain:
    Py_ssize_t L
    double top               # the largest transition score, taken out of E
    bint check               # condition 2 of the module's notes has to be checked


cdef Chain chain_of(transitions):
    cdef Chain chain
    chain.L, chain.top, chain.check = transitions.n_labels, transitions.top, transitions.check
    return chain


cdef void forward_backward_each(
    lanes* tag, real[:, ::1] psi, real[:, ::1] e, RowMatrices* E, real[:, ::1] alpha,
    real[::1] inverse_c, real[:, ::1] scratch, double[:, ::1] pairwise, const double[::1] weights,
    const long long[::1] offsets, double[::1] log_z, const Chain* chain
) noexcept nogil:
    # E: matrices of factors and of their transpose. log_z becomes sum_t log c_t, or NaN.
    cdef Py_ssize_t s, r, T, L = chain.L, width = psi.shape[1]
    for s in range(log_z.shape[0]):
        r = offsets[s]
        T = offsets[s + 1] - r
        if T == 0:
            continue
        E[0].first = E[1].first = r
        log_z[s] = forward_runs(
            tag, &psi[r, 0] if chain.check else NULL, &e[r, 0], &E[0], &alpha[r, 0],
            &inverse_c[r], <real*> NULL, True, T, L, width
        )
        if log_z[s] == log_z[s]:
            backward_runs(
                tag, &E[1], &alpha[r, 0], &inverse_c[r], &e[r, 0], &psi[r, 0],
                &scratch[0, 0], &pairwise[0, 0], weights[s], T, L, width
            )


cdef void finish_log_z(
    double[::1] log_z, const long long[::1] offsets, const real[::1] shift, double top
) noexcept nogil:
    # log Z = sum_t (log c_t + shift_t) + (T - 1) * top; 0 of an empty sequence
    cdef Py_ssize_t s, t, T
    for s in range(log_z.shape[0]):
        T = offsets[s + 1] - offsets[s]
        log_z[s] = log_z[s] + (T - 1) * top if T else 0
        for t in range(offsets[s], offsets[s + 1]):
            log_z[s] += shift[t]


def forward_backward(
    real[:, ::1] psi,                # (n_rows, width)  IN scores, OUT marginals
    const long long[::1] offsets,    # (n_sequences + 1,)
    transitions,                     # Transitions, exponentiated
    work,                            # Workspace: e is IN, overwritten; pairwise gets
                                     # += weight * sum alpha_{t-1} u_t', E left out
    const double[::1] weights,       # (n_sequences,)
    double[::1] log_z,               # (n_sequences,)   OUT  NaN: to be done in the log domain
    rows=None,                       # factors of entries of single rows, whose pair
                                     # marginals go into work.row_pairs instead, transposed
):
    """Scaled forward-backward, one sequence after the other. One marked NaN keeps its ``psi``."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Chain chain = chain_of(transitions)
    cdef RowMatrices E[2]
    cdef double[:, ::1] row_pairs
    cdef real[:, ::1] e = work.e, alpha = work.alpha, scratch = work.scratch
    cdef real[::1] inverse_c = work.inverse_c, shift = work.shift
    cdef const real[:, :, ::1] factors = transitions.factors
    cdef double[:, ::1] pairs = work.pairwise
    E[0] = row_matrices(rows, factors[0], False)
    E[1] = row_matrices(rows, factors[1], True)
    if rows is not None:
        row_pairs, chain.check = work.row_pairs, rows[9]
        E[1].pairs = &row_pairs[0, 0]
    with nogil:
        if psi.shape[1] == 2:
            forward_backward_each(&two, psi, e, E, alpha, inverse_c, scratch, pairs, weights,
                                  offsets, log_z, &chain)
        elif psi.shape[1] == 4:
            forward_backward_each(&four, psi, e, E, alpha, inverse_c, scratch, pairs, weights,
                                  offsets, log_z, &chain)
        else:
            forward_backward_each(&eight, psi, e, E, alpha, inverse_c, scratch, pairs, weights,
                                  offsets, log_z, &chain)
        finish_log_z(log_z, offsets, shift, chain.top)


def forward_backward_batch(
    real[:, ::1] psi,                # (n_rows, width)  IN scores, OUT marginals
    const long long[::1] offsets,    # (n_sequences + 1,)
    Py_ssize_t[:, ::1] order,        # (3, n_sequences) [0] IN sequences, longest first; scratch
    transitions,                     # as in `forward_backward`; with lists if `listed`
    work,
    weights,                         # (n_sequences,); None: `pairwise` stays as it is
    double[::1] log_z,
    entries=None,                    # `Workspace._listed_factors`: of single rows, with lists only
):
    """`forward_backward` for many labels, all sequences of a block together.

    Where most transitions score the same, with the lists of the others: `_sparse.pxd`.
    """
    cdef Chain chain = chain_of(transitions)
    cdef real[:, ::1] e = work.e, alpha = work.alpha
    cdef real[::1] inverse_c = work.inverse_c, shift = work.shift
    cdef const real[:, :, ::1] E
    cdef const real* matrix = NULL
    cdef const real* transposed = NULL
    cdef double[::1] scratch, sparse_pairs
    cdef double[:, ::1] pairs
    cdef const double[::1] counts
    cdef double* sums = NULL
    cdef Lists columns, rows
    cdef ListedEntries of_rows
    cdef const ListedEntries* own = NULL
    cdef bint sparse = transitions.pairs is not None, collects
    cdef Py_ssize_t n_rows = psi.shape[0], width = psi.shape[1], s
    cdef Batch batch
    log_z[:] = 0
    if n_rows == 0:
        return
    if sparse:
        scratch, sparse_pairs = work.scratch, work.pairwise
        columns = lists_of(transitions.listed.columns, scratch)
        rows = lists_of(transitions.listed.rows, scratch)
        sums = &sparse_pairs[0] if sparse_pairs.shape[0] else NULL
        if entries is not None:
            of_rows, own = entries_of(entries, transitions.listed), &of_rows
            columns.floor, chain.check = entries[5:]
    else:
        E, pairs = transitions.factors, work.pairwise
        matrix, transposed, sums = &E[0, 0, 0], &E[1, 0, 0], &pairs[0, 0]
    if weights is not None:
        counts = weights
    else:
        sums = NULL
    collects = weights is not None and (sums != NULL or own != NULL)
    with nogil:
        batch = batch_of(offsets, order, chain.L, width)
        forward_batch(
            &psi[0, 0], &e[0, 0], matrix, &alpha[0, 0], &inverse_c[0], &log_z[0], &batch,
            chain.check, &columns if sparse else NULL, own
        )
        backward_batch(
            transposed, &alpha[0, 0], &inverse_c[0], &e[0, 0], &psi[0, 0], &batch,
            &rows if sparse else NULL, own
        )
        if collects:
            weigh_rows(
                &alpha[0, 0], &e[0, 0], batch.ids, batch.first, batch.length, &counts[0], batch.n,
                width
            )
        for s in range(batch.n if collects and own != NULL else 0):
            add_entry_pairs(
                &alpha[0, 0], &e[0, 0], &rows, own, batch.first[s], batch.length[s],
                counts[batch.ids[s]], width
            )
        if sums != NULL and sparse:
            add_sparse_pairs(
                &alpha[0, 0], &e[0, 0], n_rows, &rows, &scratch[16 * chain.L], sums, width
            )
        elif sums != NULL:
            add_pairs(&alpha[0, 0], &e[0, 0] + width, n_rows - 1, sums, chain.L, width)
        finish_log_z(log_z, offsets, shift, chain.top)


def forward_backward_by_sets(
    real[:, ::1] psi,                # (n_rows, width)  IN scores, OUT marginals
    const long long[::1] offsets,    # (n_sequences + 1,)
    transitions,                     # as in `forward_backward`
    work,
    const double[::1] weights,       # (n_sequences,)
    double[::1] log_z,               # (n_sequences,)   OUT  NaN: to be done in the log domain
    factors,                         # (RowTransitions with `of_row`, matrices from `set_factors`,
                                     # whether condition 2 has to be checked)
):
    """`forward_backward` where rows share sets of entries, each with a matrix, for width >= 8."""
    cdef Chain chain = chain_of(transitions)
    cdef Sets q = sets_of(factors[0], psi.shape[1])
    cdef const real[:, :, ::1] matrices = factors[1]
    cdef bint check = factors[2]
    cdef real[:, ::1] e = work.e, alpha = work.alpha
    cdef real[:, :, ::1] by_set = work.by_set
    cdef real[::1] inverse_c = work.inverse_c, shift = work.shift
    cdef double[:, ::1] row_pairs = work.row_pairs
    cdef double[:, ::1] sums = np.zeros((2 * q.width, q.width))
    cdef double[::1] expected = factors[0].expected
    cdef Py_ssize_t[::1] start = np.empty(q.n + 2, dtype=np.intp)
    cdef Py_ssize_t s, r, T, i, j
    with nogil:
        for s in range(log_z.shape[0]):
            r, T = offsets[s], offsets[s + 1] - offsets[s]
            if T == 0:
                continue
            log_z[s] = forward_by_sets(
                &q, q.of_row + r, &matrices[0, 0, 0], &psi[r, 0] if check else <real*> NULL,
                &e[r, 0], &alpha[r, 0], &inverse_c[r], T
            )
            if log_z[s] == log_z[s]:
                backward_by_sets(
                    &q, q.of_row + r, &matrices[0, 0, 0], &alpha[r, 0], &inverse_c[r], &e[r, 0],
                    &psi[r, 0], T
                )
        sort_by_set(
            &q, &alpha[0, 0], &e[0, 0], &offsets[0], &weights[0], &log_z[0], log_z.shape[0],
            &start[0], &by_set[0, 0, 0], &by_set[1, 0, 0]
        )
        add_pairs_of_sets(
            &q, &matrices[0, 0, 0], &start[0], &by_set[0, 0, 0], &by_set[1, 0, 0], &sums[0, 0],
            &sums[q.width, 0], &expected[0] if expected is not None else NULL
        )
        for i in range(q.width):
            for j in range(q.width):
                row_pairs[j, i] += sums[q.width + i, j]
        finish_log_z(log_z, offsets, shift, chain.top)


cdef Sets sets_of(rows, Py_ssize_t width):
    # rows: RowTransitions with `of_row`, which the caller keeps.
    cdef Sets q
    cdef const long long[::1] start = rows.indptr
    cdef const int[::1] of_row = rows.of_row, i = rows.i, j = rows.j
    q.n, q.L, q.width, q.start = start.shape[0] - 1, len(rows.shared), width, &start[0]
    q.of_row = &of_row[0] if of_row.shape[0] else NULL
    q.i = &i[0] if i.shape[0] else NULL
    q.j = &j[0] if j.shape[0] else NULL
    return q


def set_factors(
    rows,                            # as in `forward_backward_by_sets`
    const real[::1] score,           # (n_entries,)
    double top,
    const real[:, ::1] E,            # (width, width) factors of the shared matrix
    real[:, :, ::1] matrices,        # (n_sets, L, width)   OUT
):
    """Factors exp(score - top) of all sets; returns the smallest and the largest of an entry."""
    cdef Sets q = sets_of(rows, E.shape[0])
    cdef real[::1] factor = np.empty(q.L * q.L, dtype=np.asarray(score).dtype)
    cdef real[2] bounds = [1, 0]
    with nogil:
        write_matrices(
            &q, &score[0], <real> top, &E[0, 0], &matrices[0, 0, 0], &factor[0], bounds
        )
    return bounds[0], bounds[1]


def row_factors(
    const real[::1] score,           # (n_entries,)
    double top,
    real[::1] factor,                # (n_entries,)     OUT exp(score - top), as `positive_factors`
):
    """Factors of entries of single rows; returns the smallest and the largest one."""
    cdef Py_ssize_t a, m, n = score.shape[0]
    cdef real[2] bounds = [1, 0]
    with nogil:
        for a in range(0, n, 1024):  # still at hand when the next step reads them
            m = min(n - a, 1024)
            exponents(&score[a], <real> top, &factor[a], m)
            exponentials(&factor[a], &factor[a], m)
            extend(&factor[a], m, bounds)
    return bounds[0], bounds[1]


def listed_factors(
    rows,                            # RowTransitions
    const real[::1] score,           # (n_entries,)
    double top,
    lines,                           # `ListedFactors.rows`
    double[::1] factor,              # (n_entries,)     OUT exp(score - top), as `positive_factors`
    int[::1] number,                 # (n_entries,)     OUT of each pair in the lists, -1: none
):
    """Factors of entries for sparse transitions: the least, the least above 0 and the largest."""
    cdef const int[::1] i = rows.i, j = rows.j
    cdef double[::1] scratch = np.empty(16 * (len(lines[0]) - 1))
    cdef Lists m = lists_of(lines, scratch)
    cdef Py_ssize_t p, n = score.shape[0]
    cdef double least = 1, positive = 1, most = 0
    with nogil:
        for p in range(n):
            factor[p] = score[p]
            number[p] = <int> number_of(&m, i[p], j[p])
        exponents(&factor[0], top, &factor[0], n)
        exponentials(&factor[0], &factor[0], n)
        for p in range(n):
            least = min(least, factor[p])
            positive = factor[p] if 0 < factor[p] < positive else positive
            most = max(most, factor[p])
    return least, positive, most


# ---------------------------------------------------------------- the log domain


cdef void log_backward(
    const double* log_alpha, RowMatrices* scores, real* psi, double* pairwise, double weight,
    double* scratch, Py_ssize_t T, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # log beta_{t-1}(i) = log sum_j exp(psi(i, j) + psi_t(j) + log beta_t(j))
    # mu_t(j)    is proportional to exp(log alpha_t(j) + log beta_t(j))
    # xi_t(i, j) is proportional to exp(log alpha_{t-1}(i) + log beta_{t-1}(i))
    #     * exp(psi(i, j) + psi_t(j) + log beta_t(j) - log beta_{t-1}(i))
    # Each row, and each row of xi, is normalised by its own sum, not by log Z: rounding errors of
    # large scores before and after a row are common to all its labels, and cancel.
    cdef Py_ssize_t t, i, j, p
    cdef double mu
    cdef const real* score
    cdef double* log_beta = scratch + L
    cdef double* ahead = scratch + 2 * L      # psi_t(j) + log beta_t(j)
    cdef double* steps = scratch + 3 * L      # (L, L)  log p(y_t = j | y_{t-1} = i, rows from t)
    for j in range(L):
        log_beta[j] = 0
    for t in range(T - 1, -1, -1):
        for j in range(L):
            scratch[j] = log_alpha[t * L + j] + log_beta[j]
        log_normalise(scratch, L)
        for j in range(L):
            ahead[j] = psi[t * width + j] + log_beta[j]
            psi[t * width + j] = <real> exp(scratch[j])
        if t == 0:
            return
        score = matrix_at(psi, scores, t)
        for i in range(L):
            for j in range(L):
                steps[i * L + j] = score[i * width + j] + ahead[j]
            log_beta[i] = log_normalise(steps + i * L, L)
        for i in range(L):
            scratch[i] = log_alpha[(t - 1) * L + i] + log_beta[i]
        log_normalise(scratch, L)
        for i in range(L):
            mu = weight * exp(scratch[i])
            if mu == 0:
                continue
            for j in range(L):
                ahead[j] = steps[i * L + j]
            exp_doubles(ahead, ahead, L)
            for j in range(L):
                pairwise[i * width + j] += mu * ahead[j]
        if scores.expected == NULL:
            continue
        for p in range(scores.start[scores.now], scores.start[scores.now + 1]):
            i, j = scores.i[p], scores.j[p]
            mu = weight * exp(scratch[i])
            if mu != 0:
                scores.expected[p] += mu * exp(steps[i * L + j])


def forward_backward_log(
    real[:, ::1] psi,                # (T, width)       IN scores, OUT marginals
    const real[:, ::1] score,        # (width, width)
    double weight,
    double[:, ::1] pairwise,         # (width, width)   IN/OUT  += weight * sum_t xi_t
    double[:, ::1] log_alpha,        # (T, L)           OUT
    rows=None,                       # `row_scores`: entries of single rows
):
    """Log-domain forward-backward of one sequence; returns log Z, -inf if no path is allowed."""
    cdef Py_ssize_t T = psi.shape[0], L = log_alpha.shape[1], width = psi.shape[1]
    cdef RowMatrices scores = row_matrices(rows, score, False)
    cdef double* scratch = <double*> malloc((3 + L) * L * sizeof(double))
    cdef double log_z
    if scratch == NULL:
        raise MemoryError()
    with nogil:
        log_forward(&psi[0, 0], &scores, &log_alpha[0, 0], scratch, T, L, width)
        log_z = log_sum_exp(&log_alpha[T - 1, 0], L)
        if log_z > -INFINITY:
            log_backward(&log_alpha[0, 0], &scores, &psi[0, 0], &pairwise[0, 0], weight,
                         scratch, T, L, width)
        free(scratch)
    return log_z


# ---------------------------------------------------------------- best paths


cdef inline void row_max_plus(
    lanes* tag, const real* x, const real* matrix, real* out, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # out(j) += max_i x(i) + matrix(i, j)
    cdef Py_ssize_t B = n_lanes(tag), block, k
    cdef real best[8]
    for block in range(width // B):
        block_of_maxima(tag, x, matrix + block * B, L, width, best)
        for k in range(B):
            out[block * B + k] += best[k]


cdef inline void trace_back(
    const real* delta, RowMatrices* score_t, int* labels, Py_ssize_t T, Py_ssize_t L,
    Py_ssize_t width
) noexcept nogil:
    # The labels on the best path, last row first.
    cdef Py_ssize_t t, j = 0
    cdef const real* last = delta + (T - 1) * width
    while last[j] < 0:    # the maximum has been taken out of every row
        j += 1
    labels[T - 1] = <int> j
    for t in range(T - 2, -1, -1):
        j = first_argmax(delta + t * width, column_at(delta, score_t, t + 1, j), L)
        labels[t] = <int> j


cdef double best_path(
    lanes* tag, real* delta, RowMatrices* score, RowMatrices* score_t, int* labels,
    Py_ssize_t T, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # delta_t(j) = psi_t(j) + max_i (delta_{t-1}(i) + psi(i, j)), in place of psi. Each row's
    # maximum is moved to the running total, so that long sequences lose no digits. No back
    # pointers are kept: along the best path they are found again in O(L) a row (`trace_back`).
    cdef Py_ssize_t t, j
    cdef double total = 0
    cdef real top
    cdef bint entries = score.start != NULL
    cdef const real* matrix = <const real*> score.shared
    for t in range(T):
        if entries:
            matrix = matrix_at(delta, score, t)
        if t:
            row_max_plus(tag, delta + (t - 1) * width, matrix, delta + t * width, L, width)
        top = largest(tag, delta + t * width, L)
        if top == -INFINITY:
            return -INFINITY
        total += top
        for j in range(L):
            delta[t * width + j] -= top
    trace_back(delta, score_t, labels, T, L, width)
    return total


cdef void best_path_each(
    lanes* tag, real[:, ::1] psi, const long long[::1] offsets, RowMatrices* score,
    RowMatrices* score_t, int[::1] labels, double[::1] scores, Py_ssize_t L
) noexcept nogil:
    cdef Py_ssize_t s, r, T
    for s in range(scores.shape[0]):
        r = offsets[s]
        T = offsets[s + 1] - r
        if T > 0:
            score.first = score_t.first = r
            scores[s] = best_path(
                tag, &psi[r, 0], score, score_t, &labels[r], T, L, psi.shape[1]
            )


def best_paths(
    real[:, ::1] psi,                # (n_rows, width)  IN, overwritten
    const long long[::1] offsets,    # (n_sequences + 1,)
    transitions,                     # Transitions
    int[::1] labels,                 # (n_rows,)        OUT
    double[::1] scores,              # (n_sequences,)   OUT  -inf: no path is allowed
    order=None,                      # (3, n_sequences) as in `forward_backward_batch`: the
                                     # sequences of a block together; None: one after the other
    lists=None,                      # (columns, rows, mask of listed transitions)
    rows=None,                       # `row_scores`: entries of single rows, which sequences
                                     # that go together can have with lists only
):
    """Best path of every sequence; ties go to the lowest label."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef const real[:, ::1] score = transitions.score, score_t = transitions.score_t
    cdef RowMatrices at = row_matrices(rows, score, False)
    cdef RowMatrices at_t = row_matrices(rows, score_t, True)
    cdef Py_ssize_t s, r, L = transitions.n_labels, width = psi.shape[1]
    cdef Py_ssize_t[:, ::1] sorted_by_length
    cdef const unsigned char[:, ::1] listed
    cdef const unsigned char* mask = NULL
    cdef double[::1] scratch
    cdef Lists columns, lines
    cdef Batch batch
    cdef bint batched = order is not None
    scores[:] = 0
    if psi.shape[0] == 0:
        return
    if batched:
        sorted_by_length = order
    if lists is not None:
        listed, scratch = lists[2], np.empty(24 * L)
        columns, lines = lists_of(lists[0], scratch), lists_of(lists[1], scratch)
        lines.y, mask = &scratch[16 * L], &listed[0, 0]
    with nogil:
        if batched:
            batch = batch_of(offsets, sorted_by_length, L, width)
            best_scores_batch(
                &psi[0, 0], &score[0, 0], &scores[0], &batch, &columns if mask != NULL else NULL,
                &lines, mask, &at_t
            )
            for s in range(batch.n):
                if scores[batch.ids[s]] > -INFINITY:
                    at_t.first = r = batch.first[s]
                    trace_back(
                        &psi[r, 0], &at_t, &labels[r], batch.length[s], L, width
                    )
        elif width == 2:
            best_path_each(&two, psi, offsets, &at, &at_t, labels, scores, L)
        elif width == 4:
            best_path_each(&four, psi, offsets, &at, &at_t, labels, scores, L)
        else:
            best_path_each(&eight, psi, offsets, &at, &at_t, labels, scores, L)


cdef struct Heads:
    # The first entries of sorted lists that may be next, largest first, ties by list.
    double* value
    Py_ssize_t* at                   # list i * n + rank k
    Py_ssize_t n


cdef inline void keep_largest(
    const double* previous, const double* score, Py_ssize_t stride, Heads* heads, Py_ssize_t n,
    Py_ssize_t L
) noexcept nogil:
    # The n largest of previous(i, 0) + score(i): no other list has one of the n largest entries.
    cdef Py_ssize_t i, p
    cdef double v
    heads.n = 0
    for i in range(L):
        v = previous[i * n] + score[i * stride]
        if v == -INFINITY or (heads.n == n and v <= heads.value[n - 1]):
            continue
        heads.n = min(heads.n + 1, n)
        p = heads.n - 1
        while p > 0 and v > heads.value[p - 1]:
            heads.value[p], heads.at[p] = heads.value[p - 1], heads.at[p - 1]
            p -= 1
        heads.value[p], heads.at[p] = v, i * n


cdef inline void replace_first(Heads* heads, double v, Py_ssize_t at) noexcept nogil:
    # The first head becomes the next entry of its list, v; -inf: it has none.
    cdef Py_ssize_t p = 0
    while p + 1 < heads.n and (
        heads.value[p + 1] > v or (heads.value[p + 1] == v and heads.at[p + 1] < at)
    ):
        heads.value[p], heads.at[p] = heads.value[p + 1], heads.at[p + 1]
        p += 1
    heads.value[p], heads.at[p] = v, at
    heads.n -= v == -INFINITY


cdef Py_ssize_t merge_best(
    const double* previous, const double* score, double gain, Py_ssize_t stride, Heads* heads,
    Py_ssize_t n, Py_ssize_t L, double* best, int* pointers
) noexcept nogil:
    # The n largest of previous(i, k) + score(i) + gain: L sorted lists, merged by their heads.
    # Ties: lowest label i, then lowest rank k. Returns how many are finite.
    cdef Py_ssize_t k, i, at
    cdef double v
    keep_largest(previous, score, stride, heads, n, L)
    for k in range(n):
        if heads.n == 0:
            for i in range(k, n):
                best[i] = -INFINITY
            return k
        at = heads.at[0]
        best[k], pointers[k] = heads.value[0] + gain, <int> at
        v = previous[at + 1] + score[at // n * stride] if (at + 1) % n else -INFINITY
        replace_first(heads, v, at + 1)
    return n


def nbest_sequence(
    const double[:, ::1] psi,        # (T, L)
    const double[:, ::1] score,      # (L, L)
    double[:, :, ::1] delta,         # (2, L, n)        scratch
    int[:, :, ::1] pointers,         # (T, L, n)        scratch
    double[::1] head_values,         # (min(n, L),)     scratch
    Py_ssize_t[::1] heads_at,        # (min(n, L),)     scratch
    double[::1] zeros,               # (L,)             of zeros
    int[:, ::1] labels,              # (n, T)           OUT best first
    double[::1] scores,              # (n,)             OUT
    rows=None,                       # `row_scores` of the sequence
):
    """n best paths of one sequence; returns how many exist (fewer than n on small problems)."""
    cdef RowMatrices matrices = row_matrices(rows, score, False)
    cdef const double* matrix
    cdef Py_ssize_t T = psi.shape[0], L = psi.shape[1], n = labels.shape[0]
    cdef Py_ssize_t t, j, k, found, state
    cdef Heads heads
    heads.value, heads.at = &head_values[0], &heads_at[0]
    with nogil:
        delta[0, :, :] = -INFINITY
        for j in range(L):
            delta[0, j, 0] = psi[0, j]
        for t in range(1, T):
            matrix = matrix_at(<double*> NULL, &matrices, t)
            for j in range(L):
                merge_best(&delta[(t - 1) % 2, 0, 0], matrix + j, psi[t, j], L, &heads, n, L,
                           &delta[t % 2, j, 0], &pointers[t, j, 0])
        # An end state above all labels collects the best of the last row.
        found = merge_best(&delta[(T - 1) % 2, 0, 0], &zeros[0], 0, 1, &heads, n, L, &scores[0],
                           &pointers[0, 0, 0])
        for k in range(found):
            state = (&pointers[0, 0, 0])[k]
            for t in range(T - 1, 0, -1):
                labels[k, t] = <int> (state // n)
                state = pointers[t, state // n, state % n]
            labels[k, 0] = <int> (state // n)
    return found


# ---------------------------------------------------------------- sampling


def sample_sequence(
    const double[:, ::1] log_alpha,  # (T, L)
    const double[:, ::1] score,      # (L, L)
    const double[:, ::1] uniforms,   # (n_samples, T)   in [0, 1)
    int[:, ::1] labels,              # (n_samples, T)   OUT
    rows=None,                       # `row_scores` of the sequence
):
    """Draw paths backwards: p(y_{t-1} = i | y_t = j) is proportional to alpha_{t-1}(i) E(i, j)."""
    cdef Py_ssize_t T = log_alpha.shape[0], L = log_alpha.shape[1], n, t, i, j
    cdef RowMatrices matrices = row_matrices(rows, score, False)
    cdef const double* matrix
    cdef double* log_p = <double*> malloc(L * sizeof(double))
    if log_p == NULL:
        raise MemoryError()
    with nogil:
        for n in range(labels.shape[0]):
            j = draw(&log_alpha[T - 1, 0], uniforms[n, T - 1], L)
            labels[n, T - 1] = <int> j
            for t in range(T - 2, -1, -1):
                matrix = matrix_at(<double*> NULL, &matrices, t + 1)
                for i in range(L):
                    log_p[i] = log_alpha[t, i] + matrix[i * L + j]
                j = draw(log_p, uniforms[n, t], L)
                labels[n, t] = <int> j
        free(log_p)


def log_forward_sequence(
    const double[:, ::1] psi,        # (T, L)
    const double[:, ::1] score,      # (L, L)
    double[:, ::1] log_alpha,        # (T, L)           OUT
    rows=None,                       # `row_scores` of the sequence
):
    """log alpha of one sequence; returns log Z, -inf if no path is allowed."""
    cdef Py_ssize_t T = psi.shape[0], L = psi.shape[1]
    cdef RowMatrices matrices = row_matrices(rows, score, False)
    cdef double* scratch = <double*> malloc(L * sizeof(double))
    if scratch == NULL:
        raise MemoryError()
    with nogil:
        log_forward(&psi[0, 0], &matrices, &log_alpha[0, 0], scratch, T, L, L)
        free(scratch)
    return log_sum_exp(&log_alpha[T - 1, 0], L)

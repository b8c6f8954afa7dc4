"""Rows, weights and expectations of one sequence, for solvers that update after each sequence.

The structs hold plain pointers into arrays of a `LatticeState` object (lattice.py), which keeps
them for as long as the pointers are used.
"""

from libc.math cimport INFINITY

from sklseq._lib.exponential cimport exp_double
from sklseq._lib.lanes cimport lanes
from sklseq._lib.prefetch cimport prefetch_row
from sklseq.inference.kernels._recursions cimport mixing
from sklseq.inference.kernels._row_matrices cimport RowMatrices, backward_runs, forward_runs
from sklseq.inference.kernels._sparse_entries cimport ListedEntries, number_of
from sklseq.objectives.likelihood.sparse_lattice cimport (
    ListedPairs, link_entries, listed_factors, listed_marginals, listed_of, positive_factor,
)
from sklseq.objectives.scores._gather cimport gather_row
from sklseq.objectives.scores._row_links cimport RowLinks, entries_of_row, row_links

# Weights are prefetched this number of entries ahead.
cdef enum:
    AHEAD = 24

cdef struct Rows:
    Py_ssize_t L, width, nnz, sparse_nnz
    const long long* indptr
    const int* indices
    const double* data               # NULL where all are one
    double* W                        # (n, width)
    const double* mask               # (n, width): 1 where trained; NULL for all
    const long long* sparse_indptr   # NULL where there are none
    const int* pair
    const unsigned short* label
    const double* sparse_data
    double* w                        # (n_pairs,)
    double* chain                    # (L + 2, width): transitions, start, end
    const double* chain_mask         # 1 where trained
    const double* allowed            # 0 where forbidden

cdef struct RowEntries:              # transition scores of rows with transition features
    RowLinks links
    double* v                        # (n_weights,)
    int* place                       # (L * L,) scratch
    long long* start                 # (T + 1,) entries start[t] to start[t + 1] - 1 are of row t
    int* i
    int* j
    int* number                      # of its pair among those listed, or -1
    double* score
    double* factor                   # exp(temper * (score - maximum))
    double* expected
    double* kept                     # `expected` of other scores
    RowMatrices E, Et                # with dense transitions
    ListedEntries listed             # with sparse ones
    Py_ssize_t n

cdef struct Lattice:
    Rows rows
    RowEntries entries
    ListedPairs listed               # used if most transitions have no weight
    Py_ssize_t used                  # rows of `LatticeState.scratch` that the following take
    double* S                        # (T, width) scores
    double* e                        # (T, width) factors, scratch
    double* alpha                    # (T, width) scratch
    double* mu                       # (T, width) marginals
    double* inverse_c                # (T,) scratch
    double* E                        # (width, width) factors of transitions
    double* Et                       # (width, width)
    double* products                 # (width, width) scratch
    double* pair_mu                  # (L, width) expected transitions, dense; sparse: `listed.mu`


cdef inline Rows rows_of(state, double[:, ::1] W, double[::1] w) except *:
    cdef const long long[::1] indptr = state.rows[0], sparse_indptr
    cdef const int[::1] indices = state.rows[1], pair
    cdef const double[::1] data = state.rows[2], sparse_data
    cdef const double[:, ::1] mask, chain_mask = state.chain_mask, allowed = state.allowed
    cdef double[:, ::1] chain = state.chain
    cdef const unsigned short[::1] label
    cdef Rows at
    at.width, at.L, at.nnz = W.shape[1], chain.shape[0] - 2, indices.shape[0]
    at.indptr, at.indices = &indptr[0], &indices[0] if at.nnz else NULL
    at.data = &data[0] if data.shape[0] else NULL
    at.W = &W[0, 0] if W.shape[0] else NULL
    at.mask = NULL
    if state.mask is not None and W.shape[0]:
        mask = state.mask
        at.mask = &mask[0, 0]
    at.sparse_indptr = at.pair = NULL
    at.sparse_nnz = 0
    at.label, at.sparse_data = NULL, NULL
    at.w = &w[0] if w.shape[0] else NULL  # also if these rows, those of a shard, have no entry
    if state.sparse is not None and state.sparse[1].shape[0]:
        sparse_indptr, pair, label, sparse_data = state.sparse
        at.sparse_nnz = pair.shape[0]
        at.sparse_indptr, at.pair, at.label = &sparse_indptr[0], &pair[0], &label[0]
        at.sparse_data = &sparse_data[0] if sparse_data.shape[0] else NULL
    at.chain, at.chain_mask, at.allowed = &chain[0, 0], &chain_mask[0, 0], &allowed[0, 0]
    return at


cdef inline RowEntries row_entries_of(state, Py_ssize_t L, Py_ssize_t width) except *:
    cdef RowEntries q
    cdef double[::1] v
    cdef long long[::1] start
    cdef int[::1] place
    cdef int[:, ::1] labels
    cdef double[:, ::1] numbers
    cdef double[:, :, ::1] matrices
    cdef Py_ssize_t k
    q.links.indptr, q.n = NULL, 0
    q.E.start = q.Et.start = NULL
    q.Et.pairs = NULL
    if state.links is None:
        return q
    rows, support, place, start, labels, numbers, matrices = state.links
    v = state.v
    q.links, q.v = row_links(rows, support, L), &v[0]
    q.place, q.start, q.i, q.j = &place[0], &start[0], &labels[0, 0], &labels[1, 0]
    q.number = &labels[2, 0]
    q.score, q.factor, q.expected = &numbers[0, 0], &numbers[1, 0], &numbers[2, 0]
    q.kept = &numbers[3, 0]
    q.E.start, q.E.i, q.E.j, q.E.value = q.start, q.i, q.j, q.factor
    q.E.expected = q.E.pairs = NULL
    q.E.first, q.E.L, q.E.ordered, q.E.of_row, q.E.own = 0, L, False, NULL, &matrices[0, 0, 0]
    q.E.of_i, q.E.of_j = width, 1
    q.Et = q.E
    q.Et.own, q.Et.of_i, q.Et.of_j = &matrices[1, 0, 0], 1, width
    q.Et.expected, q.Et.pairs = q.expected, &matrices[2, 0, 0]
    q.listed.start, q.listed.of_row, q.listed.i, q.listed.j = q.start, NULL, q.i, q.j
    q.listed.factor, q.listed.expected, q.listed.number = q.factor, q.expected, q.number
    for k in range(L * L):
        q.place[k] = -1
    return q


cdef inline Lattice lattice_of(state, double[:, ::1] W, double[::1] w) except *:
    cdef Lattice q
    cdef double[:, ::1] scratch = state.scratch
    cdef double[::1] inverse_c = state.inverse_c
    cdef Py_ssize_t T = inverse_c.shape[0]
    q.rows, q.listed, q.inverse_c = rows_of(state, W, w), listed_of(state.listed), &inverse_c[0]
    q.S, q.e, q.alpha, q.mu = &scratch[0, 0], &scratch[T, 0], &scratch[2 * T, 0], &scratch[3 * T, 0]
    q.E = q.Et = q.products = q.pair_mu = NULL
    q.used = 4 * T
    if not q.listed.n:
        q.E, q.Et = &scratch[q.used, 0], &scratch[q.used + q.rows.width, 0]
        q.products = &scratch[q.used + 2 * q.rows.width, 0]
        q.pair_mu = &scratch[q.used + 3 * q.rows.width, 0]
        q.used += 3 * q.rows.width + q.rows.L
    q.entries = row_entries_of(state, q.rows.L, q.rows.width)
    q.entries.E.shared, q.entries.Et.shared = q.E, q.Et
    return q


cdef inline void entry_scores(Lattice* q, Py_ssize_t r, Py_ssize_t T) noexcept nogil:
    # Entries of a sequence, rows r to r + T - 1; its first row has none.
    cdef Py_ssize_t t, k
    cdef RowEntries* e = &q.entries
    for k in range(e.n):             # of the sequence before
        e.place[e.i[k] * q.rows.L + e.j[k]] = -1
    e.n = 0
    for t in range(T):
        e.start[t] = e.n
        if t > 0:
            e.n = entries_of_row(
                &e.links, r + t, <const double*> e.v, <const double*> q.rows.chain, q.rows.width,
                e.place, e.i, e.j, e.score, e.n
            )
    e.start[T] = e.n
    for k in range(e.n if q.listed.n else 0):
        e.number[k] = <int> number_of(&q.listed.lines, e.i[k], e.j[k])


cdef inline Py_ssize_t entry_of(
    const RowEntries* e, Py_ssize_t t, Py_ssize_t i, Py_ssize_t j
) noexcept nogil:
    # Number of the entry of row t and these labels, or -1.
    cdef Py_ssize_t p
    if e.links.indptr != NULL:
        for p in range(e.start[t], e.start[t + 1]):
            if e.i[p] == i and e.j[p] == j:
                return p
    return -1


cdef inline void number_entries(RowEntries* e, Py_ssize_t t) noexcept nogil:
    # Write the number of each entry of row t at its pair of labels.
    cdef Py_ssize_t p
    for p in range(e.start[t], e.start[t + 1]):
        e.place[e.i[p] * e.links.L + e.j[p]] = <int> p


cdef inline double soft(double u, double threshold) noexcept nogil:
    # argmin_w (w - u)^2 / 2 + threshold |w|: u less its nearest number in [-threshold, threshold]
    cdef double near = u if u < threshold else threshold
    return u - (near if near > -threshold else -threshold)


cdef inline void scores(lanes* tag, Lattice* q, Py_ssize_t r, Py_ssize_t T) noexcept nogil:
    # S = A w of the rows r to r + T - 1, including start and end scores
    cdef Rows* at = &q.rows
    cdef Py_ssize_t t, p, j, W = at.width
    cdef double x
    cdef double* S = q.S
    cdef const double* start = at.chain + at.L * W
    for t in range(r, r + T):
        for p in range(at.indptr[t], at.indptr[t + 1]):
            if p + AHEAD < at.nnz:
                prefetch_row(at.W + at.indices[p + AHEAD] * W, W)
        gather_row(
            tag, at.indices + at.indptr[t], at.data + at.indptr[t] if at.data != NULL else NULL,
            at.indptr[t + 1] - at.indptr[t], <const double*> at.W, W, NULL, 0, S + (t - r) * W
        )
        if at.sparse_indptr != NULL:
            for p in range(at.sparse_indptr[t], at.sparse_indptr[t + 1]):
                if p + AHEAD < at.sparse_nnz:
                    prefetch_row(at.w + at.pair[p + AHEAD], 1)
                x = at.w[at.pair[p]]
                S[(t - r) * W + at.label[p]] += (
                    x if at.sparse_data == NULL else at.sparse_data[p] * x
                )
    for j in range(at.L):
        S[j] += start[j]
        S[(T - 1) * W + j] += start[W + j]
    if q.entries.links.indptr != NULL:
        entry_scores(q, r, T)


cdef inline double node_factors(
    Lattice* q, const double* theta, double temper, Py_ssize_t T
) noexcept nogil:
    # e = exp(temper * (theta - row maximum)), mu = theta; returns temper times the sum of the
    # maxima. Scores of -inf in mu distinguish forbidden labels from those lost to underflow.
    cdef Py_ssize_t t, j, W = q.rows.width, L = q.rows.L
    cdef double top, total = 0
    cdef double* e
    cdef const double* row
    cdef const double* start = q.rows.allowed + L * W
    for t in range(T):
        row, e = theta + t * W, q.e + t * W
        top = -INFINITY
        for j in range(L):
            top = row[j] if row[j] > top else top
        for j in range(W):
            e[j] = exp_double(temper * (row[j] - top)) if j < L else 0
            q.mu[t * W + j] = row[j]
        total += top
    for j in range(L):
        q.e[j] *= start[j]
        q.e[(T - 1) * W + j] *= start[W + j]
        if start[j] == 0:
            q.mu[j] = -INFINITY
        if start[W + j] == 0:
            q.mu[(T - 1) * W + j] = -INFINITY
    return temper * total


cdef inline double entry_factors(Lattice* q, double temper, double top) noexcept nogil:
    # Factors of entries, and matrices for rows to write them into; returns the smallest factor.
    cdef Py_ssize_t p, k
    cdef RowEntries* e = &q.entries
    cdef double least = 1
    for p in range(e.n):
        e.factor[p] = positive_factor(temper * (e.score[p] - top))
        least = e.factor[p] if e.factor[p] < least else least
    for k in range(q.rows.L * q.rows.width):
        (<double*> e.E.own)[k] = q.E[k]
        (<double*> e.Et.own)[k] = q.Et[k]
    e.E.now = e.Et.now = -1
    return least


cdef inline void backward_pairs(lanes* tag, Lattice* q, Py_ssize_t T) noexcept nogil:
    # Compute mu, pair_mu summed over rows, and `expected` of entries.
    cdef Py_ssize_t i, j, k, W = q.rows.width, L = q.rows.L
    cdef RowEntries* e = &q.entries
    for k in range(L * W):
        q.pair_mu[k] = 0
    for k in range(e.n):
        e.expected[k] = 0
    for k in range(W * W if e.Et.pairs != NULL else 0):
        e.Et.pairs[k] = 0
    backward_runs(
        tag, &e.Et, <const double*> q.alpha, <const double*> q.inverse_c, q.e, q.mu, q.products,
        q.pair_mu, 1, T, L, W
    )
    for k in range(L * W):
        q.pair_mu[k] *= q.E[k]
    for i in range(L if e.Et.pairs != NULL else 0):
        for j in range(L):
            q.pair_mu[i * W + j] += e.Et.pairs[j * W + i]


cdef inline double pair_factors(
    Lattice* q, const double* theta, double temper, bint* check
) noexcept nogil:
    # E = exp(temper * (theta - maximum)), with `listed.theta` for sparse transitions; returns
    # temper times the maximum.
    cdef Py_ssize_t i, j, W = q.rows.width, L = q.rows.L
    cdef double top = -INFINITY, least = 1
    if q.listed.n:
        return temper * listed_factors(
            &q.listed, q.rows.allowed, temper, q.entries.score, q.entries.factor, q.entries.n, check
        )
    for i in range(L):
        for j in range(L):
            top = theta[i * W + j] if theta[i * W + j] > top else top
    for i in range(q.entries.n):
        top = q.entries.score[i] if q.entries.score[i] > top else top
    for i in range(L):
        for j in range(L):
            q.E[i * W + j] = q.rows.allowed[i * W + j] * positive_factor(
                temper * (theta[i * W + j] - top)
            )
    for i in range(L):
        for j in range(L):
            least = q.E[i * W + j] if q.E[i * W + j] < least else least
            q.Et[j * W + i] = q.E[i * W + j]
    if q.entries.links.indptr != NULL:
        least = min(least, entry_factors(q, temper, top))
    check[0] = least < mixing(q.E)
    return temper * top


cdef inline double expectations(
    lanes* tag, Lattice* q, const double* theta, const double* pair_theta, double temper,
    Py_ssize_t T
) noexcept nogil:
    # mu and pair_mu of the scores temper * theta and temper * pair_theta. Returns log Z, or NaN if
    # scores differ too much for scaled arithmetic.
    cdef Py_ssize_t W = q.rows.width, L = q.rows.L
    cdef bint check
    cdef double log_z = node_factors(q, theta, temper, T)
    log_z += (T - 1) * pair_factors(q, pair_theta, temper, &check)
    if q.listed.n:
        if q.entries.n:
            link_entries(&q.listed, &q.entries.listed, q.entries.n)
        return log_z + listed_marginals(
            &q.listed, q.mu, q.e, q.alpha, q.inverse_c, T, W, check,
            &q.entries.listed if q.entries.n else NULL
        )
    log_z += forward_runs(
        tag, <const double*> q.mu if check else NULL, <const double*> q.e, &q.entries.E, q.alpha,
        q.inverse_c, <double*> NULL, True, T, L, W
    )
    if log_z == log_z:
        backward_pairs(tag, q, T)
    return log_z

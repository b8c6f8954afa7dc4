"""Expected transitions of one sequence with sparse transitions, see `_sparse.pxd`.

Arrays over listed pairs have the order of the pairs by rows. The Python object that owns the
memory keeps it for as long as the pointers are used.
"""

from sklseq._lib.exponential cimport exp_double
from sklseq.inference.kernels._batched cimport Batch, backward_batch, forward_batch
from sklseq.inference.kernels._recursions cimport least_mass, mixing
from sklseq.inference.kernels._sparse cimport Lists, add_sparse_pairs
from sklseq.inference.kernels._sparse_entries cimport ListedEntries, add_entry_pairs


cdef inline double positive_factor(double x) noexcept nogil:
    # exp(x), at least the smallest normal number: a factor of 0 means that the transition is
    # forbidden, and mass lost to a factor too small is detected. NaN stays NaN.
    return exp_double(max(x, -708.0))


cdef struct ListedPairs:
    Py_ssize_t n             # number of listed pairs; 0: transitions are a dense matrix
    Lists columns, lines
    const int* by_column     # (n,) numbers of the pairs by columns
    const int* j             # (n,)
    const long long* at      # (n,) position of each in the padded matrix
    const double* free       # (L,) 1 if the other pairs of a column score 0, else 0: forbidden
    bint any_free
    double* theta            # (n,) candidate scores
    double* mu               # (n,) expected transitions
    double* kept             # (n,) buffer for expected transitions of other scores
    double* E                # (n,) exp(theta - top), by rows
    double* S                # (n,) E - base
    double* E_columns        # (n,) the same by columns
    double* S_columns        # (n,)
    double* own              # (n,) E, scratch for entries of rows
    double* base             # (L,)
    double* buffer           # (L * 64,)


cdef inline ListedPairs listed_of(listed) except *:
    # Pointers into `LatticeState.listed`.
    cdef ListedPairs q
    cdef const int[::1] starts, line_starts, column_at, line_at, by_column, j
    cdef const long long[::1] at
    cdef const double[::1] free
    cdef double[:, ::1] numbers
    cdef double[::1] buffer
    cdef Py_ssize_t k, L
    q.n = 0
    if listed is None:
        return q
    (starts, column_at), (line_starts, line_at), by_column, j, at, free, numbers, buffer = listed
    L, q.n = free.shape[0], j.shape[0]
    q.by_column, q.j, q.at, q.free = &by_column[0], &j[0], &at[0], &free[0]
    q.theta, q.mu, q.E, q.S = &numbers[0, 0], &numbers[1, 0], &numbers[2, 0], &numbers[3, 0]
    q.E_columns, q.S_columns, q.kept = &numbers[4, 0], &numbers[5, 0], &numbers[6, 0]
    q.own = &numbers[7, 0]
    q.base, q.buffer = &buffer[0], &buffer[17 * L]
    q.columns.L = q.lines.L = L
    q.columns.start, q.columns.at = &starts[0], &column_at[0]
    q.lines.start, q.lines.at = &line_starts[0], &line_at[0]
    q.columns.S, q.columns.E, q.lines.S, q.lines.E = q.S_columns, q.E_columns, q.S, q.E
    q.columns.c, q.columns.f, q.lines.c, q.lines.f = NULL, q.base, q.base, NULL
    q.columns.floor = q.lines.floor = 0
    q.columns.x = q.lines.x = &buffer[L]
    q.columns.y = q.lines.y = &buffer[9 * L]
    q.any_free = 0
    for k in range(L):
        q.any_free |= free[k] > 0
    return q


cdef inline double listed_factors(
    ListedPairs* q, const double* allowed, double temper, const double* scores, double* factors,
    Py_ssize_t n, bint* check
) noexcept nogil:
    # Write E, S and base from temper * theta, and factors of entries from their n scores; return
    # the maximum of all these scores.
    cdef Py_ssize_t p, j
    cdef double top = 0 if q.any_free else q.theta[0], least = 1, positive, v
    for p in range(q.n):
        top = q.theta[p] if q.theta[p] > top else top
    for p in range(n):
        top = scores[p] if scores[p] > top else top
    for p in range(n):
        factors[p] = positive_factor(temper * (scores[p] - top))
        least = factors[p] if factors[p] < least else least
    positive = least
    for p in range(q.n):
        q.E[p] = positive_factor(temper * (q.theta[p] - top))
    v = positive_factor(-temper * top)
    for j in range(q.columns.L):
        q.base[j] = v * q.free[j]
        least = q.base[j] if q.base[j] < least else least
    for p in range(q.n):
        q.E[p] *= allowed[q.at[p]]
        least = q.E[p] if q.E[p] < least else least
        positive = q.E[p] if 0 < q.E[p] < positive else positive
        q.S[p] = q.E[p] - q.base[q.j[p]]
    for p in range(q.n):
        q.E_columns[p] = q.E[q.by_column[p]]
        q.S_columns[p] = q.S[q.by_column[p]]
    check[0] = least < mixing(q.E)
    q.columns.floor = 0
    if check[0]:
        q.columns.floor = max(least_mass(q.E), 1e-300 * q.columns.L / positive)
    return top


cdef inline void link_entries(ListedPairs* q, ListedEntries* entries, Py_ssize_t n) noexcept nogil:
    # Prepare n entries, whose factors are written, for `listed_marginals`.
    cdef Py_ssize_t p
    entries.listed, entries.base, entries.pairs, entries.own = q.E, q.base, q.mu, q.own
    for p in range(n):
        entries.expected[p] = 0
    for p in range(q.n):
        q.own[p] = q.E[p]


cdef inline double listed_marginals(
    ListedPairs* q, double* psi, double* e, double* alpha, double* c, Py_ssize_t T,
    Py_ssize_t width, bint check, const ListedEntries* entries
) noexcept nogil:
    # Turn psi into mu and write expected transitions into q.mu, and those of entries, unless they
    # are NULL; overwrites e. Returns log Z without the maxima taken out of the factors, or NaN.
    cdef Py_ssize_t p, first = 0, id = 0
    cdef double log_z
    cdef Batch one
    one.L, one.width, one.n, one.ids, one.first, one.length = q.columns.L, width, 1, &id, &first, &T
    forward_batch(psi, e, <double*> NULL, alpha, c, &log_z, &one, check, &q.columns, entries)
    if log_z != log_z:
        return log_z
    backward_batch(<double*> NULL, alpha, c, e, psi, &one, &q.lines, entries)
    for p in range(q.n):
        q.mu[p] = 0
        q.S[p] = 0
    if entries != NULL:
        add_entry_pairs(alpha, e, &q.lines, entries, 0, T, 1, width)
    add_sparse_pairs(alpha, e, T, &q.lines, q.buffer, q.S, width)
    for p in range(q.n):
        q.mu[p] += q.S[p] * q.E[p]
    return log_z

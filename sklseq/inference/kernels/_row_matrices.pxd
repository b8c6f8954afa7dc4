"""Transition matrices of single rows: a shared matrix, in which a few entries are replaced.

`matrix_at` writes the entries of a row into a copy of the shared matrix, after it has restored the
entries that the previous row replaced. So the cost of a row is its number of entries, for any size
of the matrix. Rows may share a set of entries, whose expectations are then added up. A run is a
sequence of rows with the same matrix: either rows without entries, or one row with entries.

Where rows share sets, or sets have all pairs, each set may have a matrix: `_row_sets.pxd`.

Entries are replaced because the correction sum_i x(i) E(i, j) + sum_k x(i_k) (E_t(i_k, j) -
E(i_k, j)) loses all digits if E_t is much smaller than E.
"""

from sklseq._lib.lanes cimport Lanes8, lanes, n_lanes, real
from sklseq.inference.kernels._blocks cimport sklseq_sums_and_pairs
from sklseq.inference.kernels._recursions cimport (
    add_products, backward_rows, finish_row, forward, sklseq_one_row_at_a_time,
)


cdef struct RowMatrices:
    const long long* start           # entries start[k] to start[k + 1] - 1 are of set k; or NULL
    const int* of_row                # the set of each row; NULL: set t is that of row t
    const int* i                     # entry p is (i[p], j[p]); NULL: matrices, nothing `expected`
    const int* j
    const void* value                # numbers of the type of the matrix
    double* expected                 # += weight * p(y_{t-1} = i, y_t = j) of each entry; or NULL
    double* pairs                    # (width, width) [j, i]: the same for all pairs of these rows
    const void* shared               # (L, width)
    void* own                        # (L, width): the matrix of a row
    Py_ssize_t now                   # the set of entries in `own`; -1: none
    Py_ssize_t first                 # the first row of the sequence: rows are counted from it
    Py_ssize_t of_i, of_j            # (i, j) is at i * of_i + j * of_j
    Py_ssize_t L, n_entries
    bint ordered                     # sets of all L * L pairs are in the order of the matrix


cdef inline RowMatrices row_matrices(
    rows, const real[:, ::1] shared, bint transposed
) except *:
    # rows: `RowTransitions.for_kernels`, or None.
    cdef RowMatrices q
    cdef const long long[::1] start
    cdef const int[::1] i, j, of_row
    cdef const real[::1] value
    cdef real[:, :, ::1] own
    cdef double[::1] expected
    q.start, q.i, q.j, q.value, q.own = NULL, NULL, NULL, NULL, NULL
    q.of_row = NULL
    q.expected = q.pairs = NULL
    q.L, q.n_entries, q.ordered = 0, 0, False
    q.shared, q.now, q.first = &shared[0, 0], -1, 0
    q.of_i, q.of_j = shared.shape[1], 1
    if transposed:
        q.of_i, q.of_j = q.of_j, q.of_i
    if rows is None or len(rows[3]) == 0:
        return q
    start, i, j, value, own = rows[:5]
    own[transposed], q.L, q.n_entries, q.ordered = shared, rows[6], value.shape[0], rows[8]
    q.start, q.value = &start[0], &value[0]
    if i.shape[0]:
        q.i, q.j = &i[0], &j[0]
    q.own = &own[transposed, 0, 0]
    if rows[5] is not None:
        expected = rows[5]
        q.expected = &expected[0]
    if rows[7] is not None and len(rows[7]):
        of_row = rows[7]
        q.of_row = &of_row[0]
    return q


cdef inline Py_ssize_t set_of(const RowMatrices* q, Py_ssize_t t) noexcept nogil:
    # The set of entries of row t of the sequence.
    return q.first + t if q.of_row == NULL else q.of_row[q.first + t]


cdef inline bint has_entries(const RowMatrices* q, Py_ssize_t t) noexcept nogil:
    cdef Py_ssize_t k
    if q.start == NULL:
        return False
    k = set_of(q, t)
    return q.start[k] < q.start[k + 1]


cdef inline bint is_matrix(const RowMatrices* q, Py_ssize_t k) noexcept nogil:
    # Whether set k is a whole matrix, row by row.
    return q.ordered and q.start[k + 1] - q.start[k] == q.L * q.L


cdef inline void write_matrix(const real* value, const RowMatrices* q, real* own) noexcept nogil:
    cdef Py_ssize_t i, j, L = q.L
    if q.of_j == 1:
        for i in range(L):
            for j in range(L):
                own[i * q.of_i + j] = value[i * L + j]
    else:
        for j in range(L):
            for i in range(L):
                own[j * q.of_j + i] = value[i * L + j]


cdef inline void write_set(const RowMatrices* q, Py_ssize_t k, real* own) noexcept nogil:
    # The entries of set k, in a copy of the shared matrix.
    cdef Py_ssize_t p
    if is_matrix(q, k):
        write_matrix(<const real*> q.value + q.start[k], q, own)
        return
    for p in range(q.start[k], q.start[k + 1]):
        own[q.i[p] * q.of_i + q.j[p] * q.of_j] = (<const real*> q.value)[p]


cdef inline const real* matrix_at(
    const real* any_row, RowMatrices* q, Py_ssize_t t
) noexcept nogil:
    # The matrix of row t of the sequence.
    cdef Py_ssize_t p, k
    cdef real* own = <real*> q.own
    if q.start == NULL:
        return <const real*> q.shared
    t = set_of(q, t)
    if q.now == t:
        return own
    if q.now >= 0 and q.start[t + 1] - q.start[t] < q.L * q.L:
        for p in range(q.start[q.now], q.start[q.now + 1]):
            k = q.i[p] * q.of_i + q.j[p] * q.of_j
            own[k] = (<const real*> q.shared)[k]
    q.now = t
    write_set(q, t, own)
    return own


cdef inline const real* column_at(
    const real* any_row, RowMatrices* transposed, Py_ssize_t t, Py_ssize_t j
) noexcept nogil:
    # Column j of the matrix of row t of the sequence. It may be written into `own`, whose matrix is
    # then lost.
    cdef RowMatrices* q = transposed
    cdef Py_ssize_t p, i, k
    cdef real* own = <real*> q.own
    cdef const real* value = <const real*> q.value
    cdef const real* column = <const real*> q.shared + j * q.of_j
    if not has_entries(q, t):
        return column
    k = set_of(q, t)
    if is_matrix(q, k):
        for i in range(q.L):
            own[i] = value[q.start[k] + i * q.L + j]
        return own
    for i in range(q.L):
        own[i] = column[i]
    for p in range(q.start[k], q.start[k + 1]):
        if q.j[p] == j:
            own[q.i[p]] = value[p]
    return own


cdef inline Py_ssize_t run_end(const RowMatrices* q, Py_ssize_t t, Py_ssize_t T) noexcept nogil:
    # The row after the run that begins with row t.
    if q.start == NULL:
        return T
    if has_entries(q, t):
        return t + 1
    while t < T and not has_entries(q, t):
        t += 1
    return t


cdef inline Py_ssize_t run_begin(const RowMatrices* q, Py_ssize_t hi, Py_ssize_t T) noexcept nogil:
    # The first of the rows that end before row hi and have one matrix behind them: that of the next
    # row. Nothing is behind row T - 1.
    if q.start == NULL:
        return 0
    if hi < T and has_entries(q, hi):
        return hi - 1
    hi -= 1
    while hi > 0 and not has_entries(q, hi):
        hi -= 1
    return hi


cdef inline double forward_runs(
    lanes* tag, const real* psi, const real* e, RowMatrices* E, real* alpha, real* inverse_c,
    real* inverse, bint first, Py_ssize_t T, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # `forward` of T rows, each run with its matrix.
    cdef Py_ssize_t t = 0, r, end
    cdef double log_c = 0
    while t < T and log_c == log_c:
        end = run_end(E, t, T)
        r = t * width
        log_c += forward(
            tag, psi + r if psi != NULL else psi, e + r, matrix_at(e, E, t), alpha + r,
            inverse_c + t, inverse + r if inverse != NULL else inverse, first and t == 0, end - t,
            L, width, width
        )
        t = end
    return log_c


cdef inline void add_expected(
    const RowMatrices* q, const real* alpha, const real* u, double weight
) noexcept nogil:
    # Of the entries (i, j) of the set `now`: += weight * alpha_{t-1}(i) * E_t(i, j) * u_t(j).
    cdef Py_ssize_t p, i, j, L = q.L, begin = q.start[q.now]
    cdef const real* value = <const real*> q.value + begin
    cdef double* expected = q.expected + begin
    cdef double a
    if is_matrix(q, q.now):
        for i in range(L):
            a = weight * alpha[i]
            for j in range(L):
                expected[i * L + j] += a * (value[i * L + j] * u[j])
        return
    for p in range(q.start[q.now + 1] - begin):
        i, j = q.i[begin + p], q.j[begin + p]
        expected[p] += weight * alpha[i] * (value[p] * u[j])


cdef inline void backward_step(
    lanes* tag, const RowMatrices* Et, const real* alpha, const real* u, real* beta, double weight,
    Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # beta_{t-1}(i) = sum_j E_t(i, j) * u_t(j), t being the row with entries whose matrix `Et` has,
    # and its pair marginals xi_t(i, j) = alpha_{t-1}(i) * E_t(i, j) * u_t(j).
    cdef Py_ssize_t B = n_lanes(tag), block, j, k
    cdef const real* row
    cdef double* pairs
    cdef real acc[8]
    cdef real v[8]
    cdef double a[8]
    cdef double sums[8]
    for block in range(width // B):
        for k in range(B):
            acc[k] = 0
        for k in range(B):
            a[k] = weight * alpha[block * B + k]
        if real is double and lanes is Lanes8:  # of the loops below, GCC may make no vectors
            sklseq_sums_and_pairs(
                u, <const double*> Et.own + block * 8, a, Et.pairs + block * 8, L, width,
                beta + block * 8
            )
            continue
        for j in range(L):
            row = <const real*> Et.own + j * width + block * B
            pairs = Et.pairs + j * width + block * B
            for k in range(B):
                v[k] = u[j] * row[k]
            for k in range(B):
                acc[k] += v[k]
            for k in range(B):
                sums[k] = pairs[k] + a[k] * v[k]
            for k in range(B):
                pairs[k] = sums[k]
            sklseq_one_row_at_a_time()
        for k in range(B):
            beta[block * B + k] = acc[k]
    if Et.expected != NULL:
        add_expected(Et, alpha, u, weight)


cdef inline void backward_runs(
    lanes* tag, RowMatrices* Et, const real* alpha, const real* inverse_c, real* e,
    real* marginals, real* scratch, double* pairwise, double weight, Py_ssize_t T, Py_ssize_t L,
    Py_ssize_t width
) noexcept nogil:
    # `backward_rows` of a sequence, each run with its matrix, and pair marginals: of rows without
    # entries, E left out, in `pairwise`; of the others in `Et`.
    cdef Py_ssize_t lo, hi = T, n, r
    cdef const real* matrix
    while hi > 0:
        lo = run_begin(Et, hi, T)
        matrix = matrix_at(alpha, Et, min(hi, T - 1))
        if hi < T and has_entries(Et, hi):
            r = lo * width
            backward_step(tag, Et, alpha + r, e + r + width, marginals + r, weight, L, width)
            finish_row(tag, alpha, inverse_c, e, marginals, lo, width, width)
            hi = lo
            continue
        backward_rows(tag, matrix, alpha, inverse_c, e, marginals, lo, hi, T, L, width, width)
        n = min(hi, T - 1) - lo
        if n > 0 and weight != 0:    # pairs of weight 0 are not computed
            add_products(
                tag, alpha + lo * width, e + (lo + 1) * width, n, scratch, pairwise, weight, L,
                width
            )
        hi = lo

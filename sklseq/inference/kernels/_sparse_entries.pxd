"""Sparse transitions (`_sparse.pxd`) of rows with entries of their own (`_row_matrices.pxd`).

In a row with entries, the sums over the shared lists are corrected. With F(i, j) the factor that
the shared matrix has where the row has E_t(i, j),

    sum_i x(i) E_t(i, j) = sum_i x(i) E(i, j) + sum_{entries (i, j)} x(i) (E_t(i, j) - F(i, j)).

So a row costs what the lists cost, and its entries. Where the correction takes nearly all of a sum
away, digits are lost: the sum is computed again from positive terms, as in `_sparse.pxd`.
"""

from sklseq._lib.lanes cimport real
from sklseq.inference.kernels._sparse cimport Lists, guard, is_lost, of_positive_terms


cdef struct ListedEntries:
    const long long* start   # entries start[k] to start[k + 1] - 1 are of set k
    const int* of_row        # the set of each row; NULL: set t is that of row t
    const int* i             # entry p is (i[p], j[p])
    const int* j
    const double* factor     # E_t
    const int* number        # of the pair among the listed ones, by rows; -1: it is not listed
    const double* listed     # (n_pairs,) factors of the listed pairs, by rows
    const double* base       # (L,) factor of the other pairs of a column
    double* expected         # += weight * p(y_{t-1} = i, y_t = j) of each entry; or NULL
    double* pairs            # (n_pairs,) += the same of listed pairs, less what the lists add
    double* own              # (n_pairs,) a copy of `listed`, scratch


cdef inline double small_sum(const real* any_row) noexcept nogil:
    # The fraction of a sum that may remain after a correction: at most three digits of float64 are
    # lost, and one of float32, in which the sum has been rounded.
    return 0.125 if real is float else guard()


cdef inline Py_ssize_t set_of_row(const ListedEntries* q, Py_ssize_t row) noexcept nogil:
    return row if q.of_row == NULL else q.of_row[row]


cdef inline double shared_factor(const ListedEntries* q, Py_ssize_t p) noexcept nogil:
    # The factor that entry p replaces.
    return q.listed[q.number[p]] if q.number[p] >= 0 else q.base[q.j[p]]


cdef inline Py_ssize_t number_of(
    const Lists* lines, Py_ssize_t i, Py_ssize_t j
) noexcept nogil:
    # Number of the pair (i, j) in lists of rows, or -1 if it is not listed.
    cdef Py_ssize_t low = lines.start[i], high = lines.start[i + 1], middle
    while low < high:
        middle = (low + high) // 2
        if lines.at[middle] < j:
            low = middle + 1
        else:
            high = middle
    return low if low < lines.start[i + 1] and lines.at[low] == j else -1


cdef inline double of_own_terms(
    const real* x, const Lists* m, const ListedEntries* q, Py_ssize_t k, const int* over,
    const int* into, Py_ssize_t j
) noexcept nogil:
    # Sum j of a row with the entries of set k, from positive terms; m.y: scratch.
    cdef Py_ssize_t i, p
    cdef double total = 0
    for i in range(m.L):
        m.y[i] = x[i]
    for p in range(q.start[k], q.start[k + 1]):
        if into[p] == j:
            total += q.factor[p] * x[over[p]]
            m.y[over[p]] = 0
    return total + of_positive_terms(m, j, <const double*> m.y)


cdef inline bint replace_factors(
    const real* x, const Lists* m, const ListedEntries* q, Py_ssize_t row, bint forward,
    real* out, const real* e, const real* psi
) noexcept nogil:
    # Correct out = x times the matrix of lists of columns (`forward`), or of rows, for the entries
    # of a row. Returns whether out * e is inaccurate; without a floor, e and psi are not read.
    cdef Py_ssize_t p, j, k = set_of_row(q, row)
    cdef const int* over = q.i if forward else q.j
    cdef const int* into = q.j if forward else q.i
    cdef double v
    cdef bint lost = False
    if q.start[k] == q.start[k + 1]:
        return False
    for j in range(m.L):
        m.x[j] = 0
    for p in range(q.start[k], q.start[k + 1]):
        m.x[into[p]] += x[over[p]] * (q.factor[p] - shared_factor(q, p))
    for j in range(m.L):
        if m.x[j] == 0:
            continue
        v = out[j] + m.x[j]
        if v < small_sum(x) * out[j]:
            v = of_own_terms(x, m, q, k, over, into, j)
        lost |= m.floor > 0 and is_lost(v, e + j, psi + j, m.floor)
        out[j] = <real> v
    return lost


cdef inline void add_own_pairs(
    const real* alpha, const real* u, const Lists* lines, const ListedEntries* q, Py_ssize_t k
) noexcept nogil:
    # pairs(i, j) += alpha(i) * E_t(i, j) * u(j) of all listed pairs.
    cdef Py_ssize_t p, i
    for p in range(q.start[k], q.start[k + 1]):
        if q.number[p] >= 0:
            q.own[q.number[p]] = q.factor[p]
    for i in range(lines.L):
        for p in range(lines.start[i], lines.start[i + 1]):
            q.pairs[p] += alpha[i] * (q.own[p] * u[lines.at[p]])
    for p in range(q.start[k], q.start[k + 1]):
        if q.number[p] >= 0:
            q.own[q.number[p]] = q.listed[q.number[p]]


cdef inline void add_entry_pairs(
    const real* alpha, real* u, const Lists* lines, const ListedEntries* q, Py_ssize_t first,
    Py_ssize_t T, double weight, Py_ssize_t width
) noexcept nogil:
    # Expectations of the entries of a sequence, and what they change of those of listed pairs.
    # `weight` is part of alpha or u. Where the correction of a pair would be much larger than the
    # weight, all pairs of the row are added here, and u becomes 0, so that it adds nothing more.
    cdef Py_ssize_t t, p, j, k
    cdef double x, least, most
    cdef const real* a
    cdef real* b
    for t in range(first + 1, first + T):
        k = set_of_row(q, t)
        a, b, least, most = alpha + (t - 1) * width, u + t * width, 0, 0
        for p in range(q.start[k], q.start[k + 1]):
            x = a[q.i[p]] * <double> b[q.j[p]]
            if q.expected != NULL:
                q.expected[p] += x * q.factor[p]
            x *= shared_factor(q, p)
            most = x if x > most else most
            least = x if x < least else least
        if max(most, -least) * small_sum(alpha) > abs(weight):
            add_own_pairs(a, <const real*> b, lines, q, k)
            for j in range(width):
                b[j] = 0
            continue
        for p in range(q.start[k], q.start[k + 1]):
            if q.number[p] >= 0:
                q.pairs[q.number[p]] += (
                    a[q.i[p]] * <double> b[q.j[p]] * (q.factor[p] - q.listed[q.number[p]])
                )

"""Recursions on rows that share sets of entries, with a matrix of factors for each set.

The matrices are written once for all rows, not transposed: sums over the second label are products
of their rows with u. Pairs of the rows of a set are added up by one product of matrices.
"""

from libc.math cimport INFINITY, NAN, log

from sklseq._lib.exponential cimport exponentials
from sklseq._lib.lanes cimport Lanes8, real
from sklseq.inference.kernels._batched cimport add_pairs, times_row
from sklseq.inference.kernels._blocks cimport dots, row_max, row_min, row_product
from sklseq.inference.kernels._recursions cimport add_log, finish_row, nothing_lost, scale_row


cdef struct Sets:
    Py_ssize_t n, L, width           # matrices are (L, width), one after the other
    const long long* start           # entries start[k] to start[k + 1] - 1 are of set k
    const int* of_row                # (n_rows,) the set of each row
    const int* i                     # entry p is (i[p], j[p]); sets of all pairs are in their order
    const int* j


cdef inline void exponents(
    const real* score, real shift, real* out, Py_ssize_t n
) noexcept nogil:
    # out = score - shift, as large that its exponential is a normal number unless it is -inf.
    cdef Py_ssize_t k
    cdef real x, least = -87 if real is float else -708
    for k in range(n):
        x = score[k] - shift
        x = least if x < least else x
        out[k] = x if score[k] != -INFINITY else -INFINITY


cdef inline void extend(const real* x, Py_ssize_t n, real* bounds) noexcept nogil:
    # Extend an interval to include n numbers.
    if n:
        bounds[0] = min(bounds[0], row_min(x, n))
        bounds[1] = max(bounds[1], row_max(x, n))


cdef inline void write_matrix(
    const real* score, real shift, real* matrix, Py_ssize_t L, Py_ssize_t width, real* bounds
) noexcept nogil:
    # Factors of a set of all pairs, in padded rows.
    cdef Py_ssize_t i, j
    for i in range(L):
        exponents(score + i * L, shift, matrix + i * width, L)
        for j in range(L, width):
            matrix[i * width + j] = 0
    exponentials(matrix, matrix, L * width)
    extend(matrix, L * width, bounds)    # 1 of padding is in any interval
    for i in range(L):
        for j in range(L, width):
            matrix[i * width + j] = 0


cdef inline void write_matrices(
    const Sets* q, const real* score, real shift, const real* shared, real* matrices,
    real* factor, real* bounds
) noexcept nogil:
    # Factors of all sets; `factor` has room for L * L.
    cdef Py_ssize_t k, p, n, size = q.L * q.width
    cdef real* matrix
    for k in range(q.n):
        n, matrix = q.start[k + 1] - q.start[k], matrices + k * size
        if n == q.L * q.L:
            write_matrix(score + q.start[k], shift, matrix, q.L, q.width, bounds)
            continue
        exponents(score + q.start[k], shift, factor, n)
        exponentials(factor, factor, n)
        extend(factor, n, bounds)
        for p in range(size):
            matrix[p] = shared[p]
        for p in range(n):
            matrix[q.i[q.start[k] + p] * q.width + q.j[q.start[k] + p]] = factor[p]


cdef inline double forward_by_sets(
    const Sets* q, const int* of_row, const real* matrices, const real* psi, const real* e,
    real* alpha, real* inverse_c, Py_ssize_t T
) noexcept nogil:
    # `forward` of T rows.
    cdef Py_ssize_t t, j, L = q.L, W = q.width
    cdef double log_c = 0, product = 1
    cdef real total
    cdef real* row
    cdef const real* before = NULL
    cdef const real* E
    for t in range(T):
        row, E = alpha + t * W, matrices + of_row[t] * L * W
        if t == 0:
            for j in range(W):
                row[j] = 1
        else:
            row_product(before, E, L, W, row)
        total = times_row(e + t * W, row, W)
        if psi != NULL and not nothing_lost(row, before, psi + t * W, E, L, W):
            return NAN
        if not total > 0:
            return NAN
        inverse_c[t] = 1 / total
        scale_row(<Lanes8*> NULL, row, inverse_c[t], row, W)
        add_log(&log_c, &product, total)
        before = row
    return log_c + log(product)


cdef inline void backward_by_sets(
    const Sets* q, const int* of_row, const real* matrices, const real* alpha,
    const real* inverse_c, real* e, real* marginals, Py_ssize_t T
) noexcept nogil:
    # `backward_rows` of T rows.
    cdef Py_ssize_t t, j, L = q.L, W = q.width
    cdef real* beta
    for t in range(T - 1, -1, -1):
        beta = marginals + t * W
        if t < T - 1:
            dots(e + (t + 1) * W, matrices + of_row[t + 1] * L * W, L, W, beta)
        for j in range(L if t < T - 1 else 0, W):
            beta[j] = 1
        finish_row(<Lanes8*> NULL, alpha, inverse_c, e, marginals, t, W, W)


cdef inline void sort_by_set(
    const Sets* q, const real* alpha, const real* u, const long long* offsets,
    const double* weights, const double* log_z, Py_ssize_t n_sequences, Py_ssize_t* start,
    real* a, real* b
) noexcept nogil:
    # Copy alpha_{t-1} and u_t of all rows t but first ones, set by set: rows of set k are
    # start[k] to start[k + 1] - 1 of a and b. The factor of smaller magnitude gets the weight:
    # alpha is at most 1. Sequences whose log_z is NaN have weight 0.
    cdef Py_ssize_t s, t, k, m, width = q.width
    cdef double weight
    cdef real of_a, of_b
    for k in range(q.n + 2):
        start[k] = 0
    for s in range(n_sequences):
        for t in range(offsets[s] + 1, offsets[s + 1] if log_z[s] == log_z[s] else 0):
            start[q.of_row[t] + 2] += 1
    for k in range(q.n):
        start[k + 2] += start[k + 1]
    for s in range(n_sequences):
        weight = weights[s]
        of_a, of_b = 1, <real> weight
        if not -1 <= weight <= 1:
            of_a, of_b = of_b, of_a
        for t in range(offsets[s] + 1, offsets[s + 1] if log_z[s] == log_z[s] else 0):
            m = start[q.of_row[t] + 1] * width
            start[q.of_row[t] + 1] += 1
            for k in range(width):
                a[m + k] = of_a * alpha[(t - 1) * width + k]
            for k in range(width):
                b[m + k] = of_b * u[t * width + k]


cdef inline void products_of_set(
    const real* a, const real* b, Py_ssize_t n, double* sums, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # sums(i, j) = sum_{t < n} a(t, i) * b(t, j)
    cdef Py_ssize_t i, j, p
    cdef real x
    if n == 1:
        for i in range(L):
            x = a[i]
            for j in range(width):
                sums[i * width + j] = x * b[j]
        return
    for p in range(width * width):
        sums[p] = 0
    add_pairs(a, b, n, sums, L, width)


cdef inline void add_pairs_of_sets(
    const Sets* q, const real* matrices, const Py_ssize_t* start, const real* a, const real* b,
    double* sums, double* total, double* expected
) noexcept nogil:
    # Pair marginals of all rows of each set, E_t(i, j) * sum_t alpha_{t-1}(i) * u_t(j), in `total`
    # and in `expected` of entries.
    cdef Py_ssize_t k, i, j, p, n, L = q.L, W = q.width
    cdef double x
    cdef double* out
    cdef const real* E
    for k in range(q.n):
        n = start[k + 1] - start[k]
        if n == 0:
            continue
        products_of_set(a + start[k] * W, b + start[k] * W, n, sums, L, W)
        E = matrices + k * L * W
        if expected != NULL and q.start[k + 1] - q.start[k] == L * L:
            out = expected + q.start[k]
            for i in range(L):
                for j in range(L):
                    x = sums[i * W + j] * E[i * W + j]
                    total[i * W + j] += x
                    out[i * L + j] += x
            continue
        for p in range(L * W):
            sums[p] *= E[p]
            total[p] += sums[p]
        if expected != NULL:
            for p in range(q.start[k], q.start[k + 1]):
                expected[p] += sums[q.i[p] * W + q.j[p]]

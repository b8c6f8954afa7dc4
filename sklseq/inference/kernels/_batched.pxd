"""The recursions for several sequences at once: a row of the matrix that is read serves many.

For many labels the L x L matrix no longer fits the first-level cache, and a recursion over one
sequence reads all of it for every row. Here the sequences of a block go forward in step, the
longest first, so that those that have a row t are the first n of them; a block of eight lanes of
the matrix stays in the cache while it is multiplied with row t - 1 of each, four or eight at a
time in registers. Sums over i are taken in the order of `_recursions.pxd`.

`first` holds the first row of each sequence, longest first, and `length` its number of rows.
"""

from libc.math cimport INFINITY, log

from sklseq._lib.lanes cimport Lanes8, real
from sklseq.inference.kernels._blocks cimport group, max_plus_four, max_plus_one, products, row_max
from sklseq.inference.kernels._recursions cimport (
    CHUNK, DRIFT_ROWS, backward_row, block_of_product, nothing_lost, renormalise, scale_row,
)
from sklseq.inference.kernels._sparse cimport Lists, max_plus_listed, multiply_listed


cdef inline void multiply_rows(
    const real* x, const real* matrix, real* out, const Py_ssize_t* first, Py_ssize_t n,
    Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # Row first[s] of out = row first[s] of x times the matrix, for s < n.
    cdef Py_ssize_t j, k, q, s, r, m, G = group(x)
    cdef Lanes8 eight
    cdef const real* rows[8]
    cdef real acc[64]
    for j in range(0, width, 8):
        for q in range((n + G - 1) // G):
            s = q * G
            m = min(n - s, G)
            if m == 1:
                block_of_product(&eight, x + first[s] * width, 1, matrix + j, L, width, acc)
            else:
                for r in range(G):  # the last stands in for those that are missing
                    rows[r] = x + first[s + min(r, m - 1)] * width
                products(rows, m, 1, matrix + j, L, width, acc)
            for r in range(m):
                for k in range(8):
                    out[first[s + r] * width + j + k] = acc[r * 8 + k]


cdef inline real times_row(const real* e, real* alpha, Py_ssize_t width) noexcept nogil:
    # alpha(j) *= e(j); returns their sum.
    cdef Py_ssize_t j, k
    cdef real sums[8]
    cdef real total = 0
    for k in range(8):
        sums[k] = 0
    for j in range(0, width, 8):
        for k in range(8):
            alpha[j + k] *= e[j + k]
        for k in range(8):
            sums[k] += alpha[j + k]
    for k in range(8):
        total += sums[k]
    return total


cdef inline double log_of_product(real* c, Py_ssize_t T) noexcept nogil:
    # sum_t log c_t; c_t becomes 1 / c_t. One logarithm for many factors, as in `forward`.
    cdef Py_ssize_t t
    cdef double log_c = 0, product = 1
    for t in range(T):
        if c[t] < 1e-100:
            log_c += log(c[t])
        else:
            product *= c[t]
        if not 1e-100 < product < 1e100:
            log_c += log(product)
            product = 1
        c[t] = 1 / c[t]
    return log_c + log(product)


cdef inline Py_ssize_t forward_together(
    const real* psi, real* e, const real* E, real* alpha, real* c, double* log_z,
    Py_ssize_t* order, Py_ssize_t* first, Py_ssize_t* length, Py_ssize_t n, Py_ssize_t L,
    Py_ssize_t width, bint check, const Lists* lists
) noexcept nogil:
    # As `forward`, with the matrix E, or the lists of its columns unless NULL. log_z[order[s]]
    # becomes sum_t log c_t, or NaN; sequences with NaN are taken out of order, first and length.
    # Returns how many are left.
    cdef Py_ssize_t t, s, row, j, active = n, kept = 0
    cdef double floor = 1e-30 if real is float else 1e-280
    cdef real total
    cdef real* now
    for s in range(n):
        log_z[order[s]] = 0
    for t in range(length[0] if n else 0):
        while length[active - 1] <= t:
            active -= 1
        if t and lists != NULL:
            multiply_listed(
                alpha + (t - 1) * width, lists, alpha + t * width, e + t * width, psi + t * width,
                first, log_z, order, active, width
            )
        elif t:
            multiply_rows(
                alpha + (t - 1) * width, E, alpha + t * width, first, active, L, width
            )
        for s in range(active):
            row = first[s] + t
            now = alpha + row * width
            if t == 0:
                for j in range(width):
                    now[j] = 1
            total = times_row(e + row * width, now, width)
            c[row] = total
            if log_z[order[s]] != 0 or not total > 0 or (
                check and (t == 0 or lists == NULL) and not nothing_lost(
                    now, now - width if t else NULL, psi + row * width, E, floor, L, width
                )
            ):
                log_z[order[s]] = log(-1.0)
                for j in range(width):
                    now[j] = 0
            else:
                scale_row(<Lanes8*> NULL, now, 1 / total, now, width)
    for s in range(n):
        if log_z[order[s]] == 0:
            log_z[order[s]] = log_of_product(c + first[s], length[s])
            order[kept] = order[s]
            first[kept] = first[s]
            length[kept] = length[s]
            kept += 1
        else:  # nothing of it may enter the pair marginals
            for j in range(first[s] * width, (first[s] + length[s]) * width):
                alpha[j] = 0
            for j in range(first[s] * width, (first[s] + 1) * width):
                e[j] = 0
    return kept


cdef inline void backward_together(
    const real* Et, const real* alpha, const real* inverse_c, real* e, real* marginals,
    const Py_ssize_t* first, const Py_ssize_t* length, Py_ssize_t n, Py_ssize_t L,
    Py_ssize_t width, const Lists* lists
) noexcept nogil:
    # As `backward`, without pair marginals; lists: of the rows of E, or NULL.
    cdef Py_ssize_t t, s, row, j, ahead = 0, active = 0
    for t in range(length[0] - 1 if n else -1, -1, -1):
        while active < n and length[active] > t:
            active += 1
        if lists != NULL:
            multiply_listed(
                e + (t + 1) * width, lists, marginals + t * width, e, e, first,
                <double*> NULL, <Py_ssize_t*> NULL, ahead, width
            )
        else:
            multiply_rows(
                e + (t + 1) * width, Et, marginals + t * width, first, ahead, L, width
            )
        for s in range(active):
            row = first[s] + t
            if s >= ahead:
                for j in range(width):
                    marginals[row * width + j] = 1
            backward_row(
                <Lanes8*> NULL, alpha + row * width, inverse_c[row], e + row * width,
                marginals + row * width, width
            )
            if t % DRIFT_ROWS == 0:
                renormalise(e + row * width, marginals + row * width, width)
        ahead = active


cdef inline void weigh_rows(
    real* alpha, real* u, const Py_ssize_t* order, const Py_ssize_t* first,
    const Py_ssize_t* length, const double* weights, Py_ssize_t n, Py_ssize_t width
) noexcept nogil:
    # Each sequence's weight goes into u where it makes it smaller, else into alpha, which is at
    # most 1: neither can overflow. The first u of a sequence has no alpha before it.
    cdef Py_ssize_t s, j, k
    cdef double weight
    cdef real* rows
    for s in range(n):
        weight = weights[order[s]]
        rows = u if -1 <= weight <= 1 else alpha
        if weight != 1:
            for k in range(first[s] * width, (first[s] + length[s]) * width):
                rows[k] *= <real> weight
        for j in range(width):
            u[first[s] * width + j] = 0


cdef inline void add_pairs(
    const real* alpha, const real* u, Py_ssize_t n_rows, double* pairwise, Py_ssize_t L,
    Py_ssize_t width
) noexcept nogil:
    # pairwise(i, j) += sum_{t >= 1} alpha(t - 1, i) * u(t, j), over the rows of all sequences
    cdef Py_ssize_t chunk, t, i, j, k, q, r, m, G = group(u)
    cdef const real* columns[8]
    cdef real acc[64]
    for chunk in range((n_rows + CHUNK - 2) // CHUNK):
        t = 1 + chunk * CHUNK
        m = min(n_rows - t, CHUNK)
        for q in range((L + G - 1) // G):
            i = q * G
            for r in range(G):
                columns[r] = alpha + (t - 1) * width + i + r
            for j in range(0, width, 8):
                products(columns, G, width, u + t * width + j, m, width, acc)
                for r in range(G):
                    for k in range(8):
                        pairwise[(i + r) * width + j + k] += acc[r * 8 + k]


cdef inline void max_plus_rows(
    const real* x, const real* score, real* out, const Py_ssize_t* first, Py_ssize_t n,
    Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # Row first[s] of out += max_i x(first[s], i) + score(i, j), for s < n.
    cdef Py_ssize_t j, k, s, r, m
    cdef real best[32]
    for j in range(0, width, 8):
        for s in range(0, n, 4):
            m = min(n - s, 4)
            if m < 3:
                for r in range(m):
                    max_plus_one(
                        x + first[s + r] * width, score + j, L, width, best + r * 8
                    )
            else:
                max_plus_four(
                    x + first[s] * width, x + first[s + 1] * width, x + first[s + 2] * width,
                    x + first[s + m - 1] * width, score + j, L, width, best
                )
            for r in range(m):
                for k in range(8):
                    out[first[s + r] * width + j + k] += best[r * 8 + k]


cdef inline void best_scores_together(
    real* delta, const real* score, double* scores, const Py_ssize_t* order,
    const Py_ssize_t* first, const Py_ssize_t* length, Py_ssize_t n, Py_ssize_t L,
    Py_ssize_t width, const Lists* lists, const Lists* lines, const unsigned char* listed
) noexcept nogil:
    # delta as in `best_path`, in place of psi; scores[order[s]] is -inf if no path is allowed.
    cdef Py_ssize_t t, s, j, active = n
    cdef real top
    cdef real* now
    for s in range(n):
        scores[order[s]] = 0
    for t in range(length[0] if n else 0):
        while length[active - 1] <= t:
            active -= 1
        if t and lists != NULL:
            max_plus_listed(
                delta + (t - 1) * width, lists, lines, listed, delta + t * width, first, active,
                L, width
            )
        elif t:
            max_plus_rows(
                delta + (t - 1) * width, score, delta + t * width, first, active, L, width
            )
        for s in range(active):
            now = delta + (first[s] + t) * width
            top = row_max(now, L)
            scores[order[s]] += top
            if top > -INFINITY:
                for j in range(L):
                    now[j] -= top

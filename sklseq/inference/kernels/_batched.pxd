"""Scaled recursions and best paths for a batch of sequences, which share each row of the matrix.

For many labels the L x L matrix no longer fits the first-level cache, and a recursion over one
sequence reads all of it for every row. Here all sequences of a batch are at the same row t. They
are sorted from the longest to the shortest, so that those with a row t are the first n. A block of
eight lanes of the matrix stays in the cache while it is multiplied with row t - 1 of each sequence,
four or eight at a time in registers. Sums over i have the order of `_recursions.pxd`.
"""

from libc.math cimport INFINITY, NAN, log

from sklseq._lib.lanes cimport Lanes8, real
from sklseq.inference.kernels._blocks cimport group, max_plus, products, row_max
from sklseq.inference.kernels._recursions cimport (
    CHUNK, DRIFT_ROWS, add_log, backward_row, block_of_product, nothing_lost, renormalise,
    scale_row,
)
from sklseq.inference.kernels._row_matrices cimport RowMatrices
from sklseq.inference.kernels._sparse cimport Lists, max_plus_sparse, multiply_sparse
from sklseq.inference.kernels._sparse_entries cimport ListedEntries, replace_factors


cdef struct Batch:
    Py_ssize_t L, width
    Py_ssize_t n                     # sequences that have rows, longest first
    Py_ssize_t* ids                  # their numbers
    Py_ssize_t* first                # the first row of each
    Py_ssize_t* length               # the number of its rows


cdef inline Batch batch_of(
    const long long[::1] offsets, Py_ssize_t[:, ::1] order, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # order[0] holds sequences sorted by length; fills [1] and [2] with their first rows and
    # lengths.
    cdef Py_ssize_t k, s
    cdef Batch q
    q.L, q.width, q.n = L, width, 0
    for k in range(order.shape[1]):
        s = order[0, k]
        order[1, k] = offsets[s]
        order[2, k] = offsets[s + 1] - offsets[s]
        q.n += order[2, k] > 0
    if q.n:
        q.ids, q.first, q.length = &order[0, 0], &order[1, 0], &order[2, 0]
    return q


cdef inline void multiply_rows(
    const real* x, const real* matrix, real* out, const Py_ssize_t* first, Py_ssize_t n,
    Py_ssize_t L, Py_ssize_t width, bint add
) noexcept nogil:
    # Row first[s] of out = (out if add) + row first[s] of x times the matrix, for s < n.
    cdef Py_ssize_t j, k, q, s, r, m, G = group(x)
    cdef const real* rows[8]
    cdef real acc[64]
    for j in range(0, width, 8):
        for q in range((n + G - 1) // G):
            s = q * G
            m = min(n - s, G)
            if m == 1:   # inlined: the processor overlaps blocks
                block_of_product(
                    <Lanes8*> NULL, x + first[s] * width, 1, matrix + j, L, width, acc
                )
            else:
                for r in range(G):  # missing rows are filled with the last one
                    rows[r] = x + first[s + min(r, m - 1)] * width
                products(rows, m, 1, matrix + j, L, width, acc)
            for r in range(m):
                if add:
                    for k in range(8):
                        acc[r * 8 + k] += out[first[s + r] * width + j + k]
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


cdef inline Py_ssize_t longest(const Batch* q) noexcept nogil:
    return q.length[0] if q.n else 0


cdef inline void drop_failed(
    Batch* q, real* alpha, real* e, real* c, double* log_z
) noexcept nogil:
    # log_z becomes sum_t log c_t, and c becomes 1 / c_t. Sequences whose log_z is NaN are removed
    # from the batch; their rows become zeros, which add nothing to the pair marginals.
    cdef Py_ssize_t s, k, t, first, W = q.width, kept = 0
    cdef double total, product
    for s in range(q.n):
        k, first = q.ids[s], q.first[s]
        if log_z[k] != 0:
            for t in range(first * W, (first + q.length[s]) * W):
                alpha[t] = 0
            for t in range(first * W, (first + 1) * W):
                e[t] = 0
            continue
        total, product = 0, 1
        for t in range(first, first + q.length[s]):
            add_log(&total, &product, c[t])
            c[t] = 1 / c[t]
        log_z[k] = total + log(product)
        q.ids[kept], q.first[kept], q.length[kept] = k, first, q.length[s]
        kept += 1
    q.n = kept


cdef inline void forward_batch(
    const real* psi, real* e, const real* E, real* alpha, real* c, double* log_z, Batch* q,
    bint check, const Lists* columns, const ListedEntries* entries
) noexcept nogil:
    # `forward` of a batch with sparse lists of the columns of E, and entries of single rows unless
    # they are NULL; or with E itself if `columns` is NULL. log_z[ids[s]] becomes sum_t log c_t, c
    # becomes 1 / c_t; sequences with NaN are removed.
    cdef Py_ssize_t t, s, row, j, active = q.n, W = q.width
    cdef real total
    cdef real* now
    for s in range(q.n):
        log_z[q.ids[s]] = 0
    for t in range(longest(q)):
        while q.length[active - 1] <= t:
            active -= 1
        if t and columns != NULL:
            multiply_sparse(
                alpha + (t - 1) * W, columns, alpha + t * W, e + t * W, psi + t * W, q.first,
                log_z, q.ids, active, W
            )
        elif t:
            multiply_rows(
                alpha + (t - 1) * W, E, alpha + t * W, q.first, active, q.L, W, False
            )
        for s in range(active):
            row = q.first[s] + t
            now = alpha + row * W
            if t == 0:
                for j in range(W):
                    now[j] = 1
            elif entries != NULL and replace_factors(
                now - W, columns, entries, row, True, now, e + row * W, psi + row * W
            ):
                log_z[q.ids[s]] = NAN
            total = times_row(e + row * W, now, W)
            c[row] = total
            if log_z[q.ids[s]] != 0 or not total > 0 or (
                check and (t == 0 or columns == NULL) and not nothing_lost(
                    now, now - W if t else NULL, psi + row * W, E, q.L, W
                )
            ):
                log_z[q.ids[s]] = NAN
                for j in range(W):
                    now[j] = 0
            else:
                scale_row(<Lanes8*> NULL, now, 1 / total, now, W)
    drop_failed(q, alpha, e, c, log_z)


cdef inline void backward_batch(
    const real* Et, const real* alpha, const real* inverse_c, real* e, real* marginals,
    const Batch* q, const Lists* rows, const ListedEntries* entries
) noexcept nogil:
    # `backward` of a batch, without pair marginals; rows: sparse lists of the rows of E, or NULL.
    cdef Py_ssize_t t, s, row, j, ahead = 0, active = 0, W = q.width
    for t in range(longest(q) - 1, -1, -1):
        while active < q.n and q.length[active] > t:
            active += 1
        if rows != NULL:
            multiply_sparse(
                e + (t + 1) * W, rows, marginals + t * W, e, e, q.first, <double*> NULL,
                <Py_ssize_t*> NULL, ahead, W
            )
        else:
            multiply_rows(
                e + (t + 1) * W, Et, marginals + t * W, q.first, ahead, q.L, W, False
            )
        for s in range(active):
            row = q.first[s] + t
            if s >= ahead:
                for j in range(W):
                    marginals[row * W + j] = 1
            elif entries != NULL:
                replace_factors(
                    e + (row + 1) * W, rows, entries, row + 1, False, marginals + row * W,
                    <real*> NULL, <real*> NULL
                )
            backward_row(
                <Lanes8*> NULL, alpha + row * W, inverse_c[row], e + row * W, marginals + row * W,
                W
            )
            if t % DRIFT_ROWS == 0:
                renormalise(e + row * W, marginals + row * W, W)
        ahead = active


cdef inline void weigh_rows(
    real* alpha, real* u, const Py_ssize_t* order, const Py_ssize_t* first,
    const Py_ssize_t* length, const double* weights, Py_ssize_t n, Py_ssize_t width
) noexcept nogil:
    # Multiply u by the weight of its sequence if that is at most 1 in magnitude, else alpha, which
    # is at most 1: neither can overflow. The first u of a sequence becomes 0: no alpha precedes it.
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
    const real* a, const real* b, Py_ssize_t n, double* out, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # out(i, j) += sum_{t < n} a(t, i) * b(t, j), for many labels
    cdef Py_ssize_t chunk, t, i, j, k, q, r, m, G = group(a)
    cdef const real* columns[8]
    cdef real acc[64]
    for chunk in range((n + CHUNK - 1) // CHUNK):
        t = chunk * CHUNK
        m = min(n - t, CHUNK)
        for q in range((L + G - 1) // G):
            i = q * G
            for r in range(G):
                columns[r] = a + t * width + i + r
            for j in range(0, width, 8):
                products(columns, G, width, b + t * width + j, m, width, acc)
                for r in range(G):
                    for k in range(8):
                        out[(i + r) * width + j + k] += acc[r * 8 + k]


cdef inline void max_plus_rows(
    const real* x, const real* score, real* out, const Py_ssize_t* first, Py_ssize_t n,
    Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # Row first[s] of out += max_i x(first[s], i) + score(i, j), for s < n.
    cdef Py_ssize_t j, k, s, r, m
    cdef const real* rows[4]
    cdef real best[32]
    for j in range(0, width, 8):
        s = 0
        while s < n:
            m = min(n - s, 4)
            if m < 3:
                m = 1
            for r in range(4):   # a missing row is replaced by the last one
                rows[r] = x + first[s + min(r, m - 1)] * width
            max_plus(rows, m, score + j, L, width, best)
            for r in range(m):
                for k in range(8):
                    out[first[s + r] * width + j + k] += best[r * 8 + k]
            s += m


cdef inline void best_scores_batch(
    real* delta, const real* score, double* scores, const Batch* q, const Lists* columns,
    const Lists* rows, const unsigned char* listed, RowMatrices* score_t
) noexcept nogil:
    # delta of `best_path`, in place of psi; scores[ids[s]] is -inf if no path is allowed. columns,
    # rows, listed: sparse lists of the matrix and a mask of their entries, which may be replaced
    # in single rows; or NULL.
    cdef Py_ssize_t t, s, j, active = q.n, W = q.width
    cdef real top
    cdef real* now
    for t in range(longest(q)):
        while q.length[active - 1] <= t:
            active -= 1
        if t and columns != NULL:
            max_plus_sparse(
                delta + (t - 1) * W, columns, rows, listed, delta + t * W, q.first, active, W,
                score_t, t
            )
        elif t:
            max_plus_rows(delta + (t - 1) * W, score, delta + t * W, q.first, active, q.L, W)
        for s in range(active):
            now = delta + (q.first[s] + t) * W
            top = row_max(now, q.L)
            scores[q.ids[s]] += top
            if top > -INFINITY:
                for j in range(q.L):
                    now[j] -= top

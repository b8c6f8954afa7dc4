"""Sums and maxima over transitions of which most in a column have the same score: 0 or -inf.

In column j of the matrix all rows i but a few have the same factor: f(j) = exp(0 - top) or 0.
With E = exp(psi - top), and S(i, j) = E(i, j) - f(j) for these few, which are listed,

    sum_i x(i) E(i, j) = f(j) * sum_i x(i) + sum_{i listed in j} x(i) S(i, j).

S may be negative, so the second sum can cancel the first if nearly all of x lies on listed
transitions of small factors. The relative error grows by the ratio of the first term to the sum.
Therefore a sum below `guard` times the first term is computed again from positive terms only. So at
most three digits of sixteen are lost, and an entry is zero only if each of its terms is zero.

Eight sequences are batched: their x(i) are adjacent and fill one cache line, and each entry of the
matrix is read once for all of them. All arithmetic is in double precision.
"""

from libc.math cimport INFINITY, NAN

from sklseq._lib.lanes cimport real
from sklseq.inference.kernels._blocks cimport sum_max
from sklseq.inference.kernels._row_matrices cimport RowMatrices, has_entries, matrix_at, set_of

cdef extern from "sklseq/inference/kernels/lists.h":
    void sklseq_list_products(
        const int* start, const int* at, const double* s, Py_ssize_t L, const double* x, double* y
    ) noexcept nogil
    void sklseq_list_products_one(
        const int* start, const int* at, const double* s, Py_ssize_t L, const double* x, double* y
    ) noexcept nogil
    void sklseq_list_maxima(
        const int* start, const int* at, const double* s, Py_ssize_t L, const double* x, double* y
    ) noexcept nogil
    void sklseq_list_pairs(
        const int* at, Py_ssize_t n, const double* a, const double* u, double* sums
    ) noexcept nogil
    int sklseq_add_common(
        const double* c, const double* f, Py_ssize_t L, double guard, const double* x, double* y
    ) noexcept nogil
    void sklseq_raise(const double* f, const double* top, Py_ssize_t L, double* y) noexcept nogil
    void sklseq_interleave(
        size_t size, const void* rows, Py_ssize_t L, double* x, Py_ssize_t stride
    ) noexcept nogil
    void sklseq_put_apart(
        size_t size, const double* y, Py_ssize_t L, const void* rows
    ) noexcept nogil
    void sklseq_add_apart(
        size_t size, const double* y, Py_ssize_t L, const void* rows
    ) noexcept nogil


cdef enum:
    TOGETHER = 8   # batched sequences
    TOP = 4        # labels of highest score that maxima try before they try all labels
    SPAN = 64      # rows whose pair marginals are summed at once

# Fraction of the first term below which a sum is computed from positive terms only.
cdef inline double guard() noexcept nogil:
    return 1.0 / 1024


cdef struct Lists:
    Py_ssize_t L
    const int* start       # (L + 1,)  where the list of each column begins
    const int* at          # (n,)      rows of the entries, ascending in each list
    const double* S        # (n,)      their factors less the common factor; scores, for maxima
    const double* E        # (n,)      their factors
    const double* c        # (L,)      weight of x(i) in the common sum; NULL: 1
    const double* f        # (L,)      factor of the common sum in column j; NULL: 1
    double floor           # positive sums below this count as inaccurate; 0: none does
    double* x              # (L * 8,)  scratch
    double* y              # (L * 8,)  scratch


cdef inline double of_positive_terms(
    const Lists* m, Py_ssize_t j, const real* x
) noexcept nogil:
    # f(j) * sum_{i not listed} c(i) x(i) + sum_{i listed} E(i, j) x(i)
    cdef Py_ssize_t i = 0, p, stop
    cdef double rest = 0, listed = 0
    for p in range(m.start[j], m.start[j + 1] + 1):
        stop = m.at[p] if p < m.start[j + 1] else m.L
        while i < stop:
            rest += x[i] if m.c == NULL else m.c[i] * x[i]
            i += 1
        if p < m.start[j + 1]:
            listed += m.E[p] * x[i]
            i += 1
    return (rest if m.f == NULL else m.f[j] * rest) + listed


cdef inline bint is_lost(double x, const real* e, const real* psi, double floor) noexcept nogil:
    # Whether an allowed label gets a positive sum that is below the floor.
    return x > 0 and x * e[0] < floor and psi[0] > -INFINITY


cdef inline bint multiply_one(
    const real* x, const Lists* m, real* out, const real* e, const real* psi, Py_ssize_t width
) noexcept nogil:
    # out = x times the matrix; they may not overlap. Returns whether out * e is inaccurate.
    cdef Py_ssize_t i, j
    cdef double total = 0, common, v
    cdef bint lost = False
    for i in range(m.L):
        m.x[i] = x[i]
    for i in range(m.L):
        total += m.x[i] if m.c == NULL else m.c[i] * m.x[i]
    sklseq_list_products_one(m.start, m.at, m.S, m.L, m.x, m.y)
    for j in range(m.L):
        common = total if m.f == NULL else m.f[j] * total
        v = common + m.y[j]
        if v < guard() * common:
            v = of_positive_terms(m, j, x)
        lost |= m.floor > 0 and is_lost(v, e + j, psi + j, m.floor)
        out[j] = <real> v
    for j in range(m.L, width):
        out[j] = 0
    return lost


cdef inline void interleave(
    const real* x, const Lists* m, const Py_ssize_t* first, Py_ssize_t n, Py_ssize_t width
) noexcept nogil:
    # m.x(i, r) = x(first[r], i), r < n; missing rows, up to eight, are filled with the last one.
    cdef Py_ssize_t r
    cdef const real* rows[8]
    for r in range(TOGETHER):
        rows[r] = x + first[min(r, n - 1)] * width
    sklseq_interleave(sizeof(real), rows, m.L, m.x, TOGETHER)


cdef inline void put_apart(
    const Lists* m, real* out, const Py_ssize_t* first, Py_ssize_t n, Py_ssize_t width
) noexcept nogil:
    # out(first[r], j) = m.y(j, r), r < n; 0 in the padding
    cdef Py_ssize_t r, j
    cdef real* rows[8]
    for r in range(TOGETHER):
        rows[r] = out + first[min(r, n - 1)] * width
        for j in range(m.L, width):
            rows[r][j] = 0
    sklseq_put_apart(sizeof(real), m.y, m.L, rows)


cdef inline void multiply_sparse(
    const real* x, const Lists* m, real* out, const real* e, const real* psi,
    const Py_ssize_t* first, double* log_z, const Py_ssize_t* order, Py_ssize_t n, Py_ssize_t width
) noexcept nogil:
    # Row first[s] of out = row first[s] of x times the matrix, for s < n; log_z[order[s]] becomes
    # NaN if out * e is inaccurate. If the lists have no floor, e, psi and log_z are not read.
    cdef Py_ssize_t s, r, k, row
    for s in range(0, n, 8):
        k = min(n - s, TOGETHER)
        if k == 1:
            row = first[s] * width
            if multiply_one(x + row, m, out + row, e + row, psi + row, width):
                log_z[order[s]] = NAN
            continue
        interleave(x, m, first + s, k, width)
        sklseq_list_products(m.start, m.at, m.S, m.L, m.x, m.y)
        if sklseq_add_common(m.c, m.f, m.L, guard(), m.x, m.y):
            without_common(m, x, first + s, k, width)
        put_apart(m, out, first + s, k, width)
        if m.floor == 0:
            continue
        for r in range(k):
            row = first[s + r] * width
            if lane_is_lost(m, r, e + row, psi + row):
                log_z[order[s + r]] = NAN


cdef inline void without_common(
    const Lists* m, const real* x, const Py_ssize_t* first, Py_ssize_t n, Py_ssize_t width
) noexcept nogil:
    # Compute y(j, r) again where it cancelled, for r < n; filled-in rows copy the last one.
    cdef Py_ssize_t j, i, r
    cdef double factor, v
    cdef double total[8]
    for r in range(TOGETHER):
        total[r] = 0
    for i in range(m.L):
        v = 1 if m.c == NULL else m.c[i]
        for r in range(TOGETHER):
            total[r] += v * m.x[i * TOGETHER + r]
    for j in range(m.L):
        factor = 1 if m.f == NULL else m.f[j]
        for r in range(TOGETHER):
            if m.y[j * TOGETHER + r] < guard() * factor * total[r]:
                m.y[j * TOGETHER + r] = m.y[j * TOGETHER + n - 1] if r >= n else (
                    of_positive_terms(m, j, x + first[r] * width)
                )


cdef inline bint lane_is_lost(
    const Lists* m, Py_ssize_t r, const real* e, const real* psi
) noexcept nogil:
    cdef Py_ssize_t j
    cdef bint lost = False
    for j in range(m.L):
        lost |= is_lost(m.y[j * TOGETHER + r], e + j, psi + j, m.floor)
    return lost


cdef inline void transpose(
    const real* x, Py_ssize_t n, Py_ssize_t L, Py_ssize_t width, double* out
) noexcept nogil:
    # out(j, t) = x(t, j), t < n; 0 up to 64
    cdef Py_ssize_t t, r, j
    cdef const real* rows[8]
    for t in range(0, n, 8):
        for r in range(8):
            rows[r] = x + min(t + r, n - 1) * width
        sklseq_interleave(sizeof(real), rows, L, out + t, SPAN)
    if n < SPAN:
        for j in range(L):
            for t in range(n, SPAN):
                out[j * SPAN + t] = 0


cdef inline void add_sparse_pairs(
    const real* alpha, const real* u, Py_ssize_t n_rows, const Lists* m, double* buffer,
    double* sums, Py_ssize_t width
) noexcept nogil:
    # sums(p) += sum_{t >= 1} alpha(t - 1, i) * u(t, j), where (i, j) is entry p of the row lists
    # of the matrix. buffer: (L * 64,)
    cdef Py_ssize_t chunk, t, i, k, r
    cdef double a[512]
    for chunk in range((n_rows + SPAN - 2) // SPAN):
        t = 1 + chunk * SPAN
        k = min(n_rows - t, SPAN)
        transpose(u + t * width, k, m.L, width, buffer)
        for i in range(m.L):
            r = i % 8
            if r == 0:
                transpose(alpha + (t - 1) * width + i, k, min(8, m.L - i), width, a)
            sklseq_list_pairs(
                m.at + m.start[i], m.start[i + 1] - m.start[i], a + r * SPAN, buffer,
                sums + m.start[i]
            )


cdef inline void highest(const real* x, Py_ssize_t L, int* best) noexcept nogil:
    # The labels of the TOP largest x, largest first, ties by label; -1 where there are fewer.
    cdef Py_ssize_t i, k, n = 0
    cdef real least = 0
    for i in range(L):
        if n == TOP and not x[i] > least:
            continue
        k = n if n < TOP else TOP - 1
        while k > 0 and x[i] > x[best[k - 1]]:
            best[k] = best[k - 1]
            k -= 1
        best[k] = <int> i
        n = min(n + 1, TOP)
        least = x[best[n - 1]]
    for k in range(n, TOP):
        best[k] = -1


cdef inline double best_unlisted(
    const real* x, const Lists* m, const unsigned char* listed, Py_ssize_t j, const int* best,
    double at_least
) noexcept nogil:
    # max(at_least, x(i) of the labels that are not listed in column j); listed: (L, L)
    cdef Py_ssize_t i, k, p, stop
    for k in range(TOP):
        i = best[k]
        if i < 0 or not x[i] > at_least:
            return at_least
        if not listed[i * m.L + j]:
            return x[i]
    i = 0
    for p in range(m.start[j], m.start[j + 1] + 1):
        stop = m.at[p] if p < m.start[j + 1] else m.L
        while i < stop:
            at_least = max(at_least, x[i])
            i += 1
        i += 1
    return at_least


cdef inline void replace_maxima(
    const real* x, RowMatrices* score_t, Py_ssize_t row, double* y, Py_ssize_t stride
) noexcept nogil:
    # y(j * stride) = max_i x(i) + psi_t(i, j), where y has the maxima with shared scores. A maximum
    # that an entry may have lowered is looked for in the whole column.
    cdef Py_ssize_t p, k
    cdef const real* value = <const real*> score_t.value
    cdef const real* column
    cdef double* top
    cdef double before
    if not has_entries(score_t, row):
        return
    k = set_of(score_t, row)
    for p in range(score_t.start[k], score_t.start[k + 1]):
        column = <const real*> score_t.shared + score_t.j[p] * score_t.of_j
        top, before = y + score_t.j[p] * stride, column[score_t.i[p]]
        if value[p] < before and x[score_t.i[p]] + before >= top[0]:
            column = matrix_at(x, score_t, row) + score_t.j[p] * score_t.of_j
            top[0] = sum_max(x, column, score_t.L)
        elif <double> x[score_t.i[p]] + value[p] > top[0]:
            top[0] = <double> x[score_t.i[p]] + value[p]


cdef inline void max_plus_sparse(
    const real* x, const Lists* m, const Lists* lines, const unsigned char* listed, real* out,
    const Py_ssize_t* first, Py_ssize_t n, Py_ssize_t width, RowMatrices* score_t, Py_ssize_t t
) noexcept nogil:
    # Row first[s] of out += max_i x(first[s], i) + score(i, j), for s < n. lines: the lists of
    # rows, whose y is scratch of 8 L numbers. score_t: row first[s] + t may replace scores. The sum
    # of two float32, computed in double and rounded, is the float32 sum.
    cdef Py_ssize_t s, r, j, k, L = m.L
    cdef double top[8]
    cdef int best[64]
    cdef const real* row
    for s in range(0, n, 8):
        k = min(n - s, TOGETHER)
        interleave(x, m, first + s, k, width)
        for j in range(L):
            if m.start[j] == m.start[j + 1]:
                for r in range(TOGETHER):
                    m.y[j * TOGETHER + r] = -INFINITY
        sklseq_list_maxima(m.start, m.at, m.S, L, m.x, m.y)
        # The best label of all gives the maximum of the unlisted pairs in each column in which it
        # is not listed. The columns of its own list are computed by `keep_unlisted`.
        for r in range(k):
            row = x + first[s + r] * width
            highest(row, L, best + 8 * r)
            top[r] = row[best[8 * r]]
            keep_unlisted(m, lines, listed, r, row, best + 8 * r)
        for r in range(k, TOGETHER):
            top[r] = -INFINITY
        sklseq_raise(m.f, top, L, m.y)
        for r in range(k):
            put_back(m, lines, r, best[8 * r])
            if score_t.start != NULL:
                replace_maxima(
                    x + first[s + r] * width, score_t, first[s + r] + t, m.y + r, TOGETHER
                )
        add_apart(m, out, first + s, k, width)


cdef inline void add_apart(
    const Lists* m, real* out, const Py_ssize_t* first, Py_ssize_t n, Py_ssize_t width
) noexcept nogil:
    # out(first[r], j) += m.y(j, r), r < n
    cdef Py_ssize_t r, j
    cdef real* rows[8]
    for r in range(n):
        rows[r] = out + first[r] * width
    if n < TOGETHER:
        for r in range(n):
            for j in range(m.L):
                rows[r][j] += <real> m.y[j * TOGETHER + r]
    else:
        sklseq_add_apart(sizeof(real), m.y, m.L, rows)


cdef inline void keep_unlisted(
    const Lists* m, const Lists* lines, const unsigned char* listed, Py_ssize_t r, const real* x,
    const int* best
) noexcept nogil:
    # Write the maxima of the columns j that list the best label into lines.y(., r).
    cdef Py_ssize_t j, p, k = 0
    cdef double v
    for p in range(lines.start[best[0]], lines.start[best[0] + 1]):
        j = lines.at[p]
        v = m.y[j * TOGETHER + r]
        if m.f[j] > 0 and v < x[best[0]]:
            v = best_unlisted(x, m, listed, j, best, v)
        lines.y[k * TOGETHER + r] = v
        k += 1


cdef inline void put_back(
    const Lists* m, const Lists* lines, Py_ssize_t r, Py_ssize_t i
) noexcept nogil:
    cdef Py_ssize_t p, k = 0
    for p in range(lines.start[i], lines.start[i + 1]):
        m.y[lines.at[p] * TOGETHER + r] = lines.y[k * TOGETHER + r]
        k += 1

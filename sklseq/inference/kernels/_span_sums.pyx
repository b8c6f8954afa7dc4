"""Probabilities of spans, from a forward and a backward pass over many sequences.

With q_t(i | j) = p(y_{t-1} = i | y_t = j, x) and mu_t(k) = p(y_t = k | x), the probability of a
span of rows a to b - 1 is that of the recursion in `span_sums.py`, over the labels of its type.
q_t(i | j) is a product of three factors, of which the last one is 1 / sum_i alpha_{t-1}(i) E(i, j):

    alpha_{t-1}(i) * E(i, j) * (u_t(j) / mu_t(j)),

or exp(log alpha_{t-1}(i) + score(i, j) + (psi_t(j) - log alpha_t(j))) for sequences that are done
in the log domain.
"""

import numpy as np

from libc.math cimport exp

from sklseq.inference.kernels._row_matrices cimport RowMatrices, matrix_at, row_matrices


cdef struct Steps:
    const double* before             # (n_rows, width) alpha, or its logarithm
    const double* given              # (n_rows, width) the last factor above, or its logarithm
    Py_ssize_t width
    bint logs


cdef struct Rules:
    const unsigned char* begins      # (L + 1, L + 1); label L is outside of the sequence
    const unsigned char* goes_on
    const unsigned char* ended
    Py_ssize_t L


cdef inline double step(
    const Steps* q, const double* matrix, Py_ssize_t t, Py_ssize_t i, Py_ssize_t j
) noexcept nogil:
    # q_t(i | j); matrix: of row t
    cdef double a = q.before[(t - 1) * q.width + i], m = matrix[i * q.width + j]
    cdef double c = q.given[t * q.width + j]
    return exp(a + m + c) if q.logs else a * m * c


cdef inline void not_begun(
    const Steps* q, const double* matrix, const Rules* rules, bint first, Py_ssize_t t,
    const int* labels, Py_ssize_t m, double* idle
) noexcept nogil:
    # idle(c): probability that row t begins no span, given that it has label labels[c].
    cdef Py_ssize_t c, h, i, W = rules.L + 1
    for c in range(m):
        i = labels[c]
        idle[c] = 0
        if first:
            idle[c] = not rules.begins[rules.L * W + i]
            continue
        for h in range(rules.L):
            if not rules.begins[h * W + i]:
                idle[c] += step(q, matrix, t, h, i)


cdef inline void begin(
    const Steps* q, const double* matrix, const Rules* rules, bint first, Py_ssize_t t,
    const int* labels, Py_ssize_t m, const double* idle, double* r
) noexcept nogil:
    # r_t(j) of the first row t of a span. A pair that can both begin a span and go on with one
    # begins it if the row before, of the same type, did not.
    cdef Py_ssize_t c, d, i, j, W = rules.L + 1
    for c in range(m):
        j = labels[c]
        r[c] = 0
        if first:
            r[c] = rules.begins[rules.L * W + j]
            continue
        for i in range(rules.L):
            if rules.begins[i * W + j] and not rules.goes_on[i * W + j]:
                r[c] += step(q, matrix, t, i, j)
        for d in range(m):
            i = labels[d]
            if rules.begins[i * W + j] and rules.goes_on[i * W + j]:
                r[c] += step(q, matrix, t, i, j) * idle[d]


cdef inline void go_on(
    const Steps* q, const double* matrix, const Rules* rules, Py_ssize_t t, const int* labels,
    Py_ssize_t m, const double* r, double* out
) noexcept nogil:
    cdef Py_ssize_t c, d, W = rules.L + 1
    for c in range(m):
        out[c] = 0
        for d in range(m):
            if rules.goes_on[labels[d] * W + labels[c]]:
                out[c] += step(q, matrix, t, labels[d], labels[c]) * r[d]


cdef inline double end(
    const Steps* q, const double* matrix, const Rules* rules, bint first, Py_ssize_t t,
    const int* labels, Py_ssize_t m, const double* r, const double* marginals
) noexcept nogil:
    # t: the row after the span, the first one of the next sequence if `first`.
    cdef Py_ssize_t c, j, k, W = rules.L + 1
    cdef double total = 0
    for c in range(m):
        j = labels[c]
        if first:
            if rules.ended[j * W + rules.L]:
                total += marginals[(t - 1) * q.width + j] * r[c]
            continue
        if r[c] == 0:
            continue
        for k in range(rules.L):
            if rules.ended[j * W + k]:
                total += step(q, matrix, t, j, k) * r[c] * marginals[t * q.width + k]
    return total


def span_sums(
    const double[:, ::1] before,     # (n_rows, width)  alpha, or its logarithm
    const double[:, ::1] given,      # (n_rows, width)  factors of labels, or their logarithms
    const double[:, ::1] marginals,  # (n_rows, width)
    const double[:, ::1] matrix,     # (width, width)   E, or transition scores
    rows,                            # entries of single rows, likewise; or None
    const unsigned char[::1] first,  # (n_rows + 1,)    whether a sequence begins, or all ended
    const long long[:, ::1] spans,   # (n_spans, 3)     start, stop, type; -1: no label has it
    const unsigned char[:, :, ::1] tables,  # (3, L + 1, L + 1) begins, goes on, ended
    const int[::1] labels,           # of type 0, then of type 1, ...
    const long long[::1] bounds,     # (n_types + 1,)   where those of each type begin
    bint logs,
    double[::1] proba,               # (n_spans,)       OUT
):
    """Probabilities of spans of which each lies in one sequence."""
    cdef Py_ssize_t k, t, a, b, m, type_
    cdef RowMatrices matrices = row_matrices(rows, matrix, False)
    cdef const double* E
    cdef double* r
    cdef double* other
    cdef double[:, ::1] scratch = np.empty((3, tables.shape[1]))
    cdef double* idle = &scratch[2, 0]
    cdef const int* mine
    cdef bint both = np.any(np.logical_and(tables[0], tables[1]))
    cdef Steps q
    cdef Rules rules
    if spans.shape[0] == 0:
        return
    q.before, q.given, q.width, q.logs = &before[0, 0], &given[0, 0], before.shape[1], logs
    rules.L = tables.shape[1] - 1
    rules.begins, rules.goes_on = &tables[0, 0, 0], &tables[1, 0, 0]
    rules.ended = &tables[2, 0, 0]
    with nogil:
        for k in range(spans.shape[0]):
            a, b, type_ = spans[k, 0], spans[k, 1], spans[k, 2]
            proba[k] = 0
            if type_ < 0:
                continue
            m = bounds[type_ + 1] - bounds[type_]
            mine = &labels[0] + bounds[type_]
            r, other = &scratch[0, 0], &scratch[1, 0]
            if both and not first[a]:
                E = matrix_at(<double*> NULL, &matrices, a - 1)
                not_begun(&q, E, &rules, first[a - 1], a - 1, mine, m, idle)
            E = matrix_at(<double*> NULL, &matrices, a)
            begin(&q, E, &rules, first[a], a, mine, m, idle, r)
            for t in range(a + 1, b):
                E = matrix_at(<double*> NULL, &matrices, t)
                go_on(&q, E, &rules, t, mine, m, r, other)
                r, other = other, r
            if not first[b]:
                E = matrix_at(<double*> NULL, &matrices, b)
            proba[k] = end(&q, E, &rules, first[b], b, mine, m, r, &marginals[0, 0])

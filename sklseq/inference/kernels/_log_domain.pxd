"""Sums of numbers given as logarithms; -inf is the logarithm of 0."""

from libc.math cimport INFINITY, exp, log, log1p

from sklseq._lib.exponential cimport exp_doubles
from sklseq._lib.lanes cimport real
from sklseq.inference.kernels._row_matrices cimport RowMatrices, matrix_at


cdef inline double exp_or_zero(double x) noexcept nogil:
    # exp(x), a term of a sum that is at least 1. Terms below exp(-52) are left out: a million of
    # them are less than half a unit in the last place of 1, 2^-54. Most terms of scores divided by
    # a low temperature are that small, and the exponential takes most of the time of a term.
    return 0 if x < -52 else exp(x)


cdef inline double sum_exp(const double* x, double top, Py_ssize_t n) noexcept nogil:
    # sum_k exp(x(k) - top), with top the maximum and exponentials in vector registers
    cdef Py_ssize_t k, first, size
    cdef double part[64]
    cdef double total = 0
    for first in range(0, n, 64):
        size = min(64, n - first)
        for k in range(size):
            part[k] = x[first + k] - top
        exp_doubles(part, part, size)
        for k in range(size):
            total += part[k]
    return total


cdef inline double log_sum_exp(const double* x, Py_ssize_t n) noexcept nogil:
    # log sum_k exp(x(k))
    cdef Py_ssize_t k
    cdef double top = -INFINITY
    for k in range(n):
        top = x[k] if x[k] > top else top
    return top if top == -INFINITY else top + log(sum_exp(x, top, n))


cdef inline double log_add(double a, double b) noexcept nogil:
    if a < b:
        a, b = b, a
    return a + log1p(exp(b - a)) if b > -INFINITY else a


cdef inline double log_sum(
    const double* x, const double* y, Py_ssize_t stride, Py_ssize_t n
) noexcept nogil:
    # log sum_k exp(x(k) + y(k * stride))
    cdef Py_ssize_t k
    cdef double top = -INFINITY, total = 0
    for k in range(n):
        top = max(top, x[k] + y[k * stride])
    if top == -INFINITY:
        return top
    for k in range(n):
        total += exp_or_zero(x[k] + y[k * stride] - top)
    return top + log(total)


cdef inline double subtract_log_sum(double* x, Py_ssize_t n, double top) noexcept nogil:
    # Subtract log sum exp, and return it. `top`, the maximum, is subtracted first, because adding a
    # large maximum would round the logarithm of the sum.
    cdef Py_ssize_t k
    cdef double total = 0
    if top == -INFINITY:
        return top
    for k in range(n):
        x[k] -= top
        total += exp_or_zero(x[k])
    total = log(total)
    for k in range(n):
        x[k] -= total
    return top + total


cdef inline double log_kernel(
    const double* before, const double* score, Py_ssize_t stride, Py_ssize_t j, double* log_k,
    Py_ssize_t L
) noexcept nogil:
    # log_k(i) = log K(j, i) = log p(label i before | j) from logarithms. Returns log pred(j);
    # it is -inf, and so is log_k, if no path ends in j.
    cdef Py_ssize_t i
    cdef double top = -INFINITY
    for i in range(L):
        log_k[i] = before[i] + score[i * stride + j]
        top = max(top, log_k[i])
    return subtract_log_sum(log_k, L, top)


cdef inline double log_normalise(double* x, Py_ssize_t n) noexcept nogil:
    # Subtract log sum exp, and return it.
    cdef Py_ssize_t k
    cdef double top = -INFINITY
    for k in range(n):
        top = x[k] if x[k] > top else top
    return subtract_log_sum(x, n, top)


cdef inline void log_forward(
    const real* psi, RowMatrices* scores, double* log_alpha, double* scratch, Py_ssize_t T,
    Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # log alpha_t(j) = psi_t(j) + log sum_i exp(log alpha_{t-1}(i) + score_t(i, j)), rows of L
    cdef Py_ssize_t t, i, j
    cdef const real* score
    for j in range(L):
        log_alpha[j] = psi[j]
    for t in range(1, T):
        score = matrix_at(psi, scores, t)
        for j in range(L):
            for i in range(L):
                scratch[i] = log_alpha[(t - 1) * L + i] + score[i * width + j]
            log_alpha[t * L + j] = psi[t * width + j] + log_sum_exp(scratch, L)


cdef inline Py_ssize_t draw(const double* log_p, double uniform, Py_ssize_t n) noexcept nogil:
    # The first k at which the cumulated exp(log_p) exceeds uniform times their sum.
    cdef Py_ssize_t k, last = 0
    cdef double top = -INFINITY, total = 0, target
    for k in range(n):
        top = max(top, log_p[k])
    for k in range(n):
        total += exp(log_p[k] - top)
    target = uniform * total
    total = 0
    for k in range(n):
        if log_p[k] > -INFINITY:
            total += exp(log_p[k] - top)
            last = k
            if total > target:
                return k
    return last

"""Scaled arithmetic of sums over segmentations: rescaling, and tests that nothing was lost."""

from libc.math cimport INFINITY, M_LN2, fabs

from sklseq._lib.exponential cimport exponentials
from sklseq._lib.lanes cimport Lanes8, lanes, n_lanes
from sklseq.inference.kernels._recursions cimport block_of_product, sklseq_one_row_at_a_time


cdef enum:
    NORMAL = 690    # exp(+-690) is a normal number, with room for sums and products

cdef extern from "<fenv.h>" nogil:
    int FE_UNDERFLOW, FE_OVERFLOW, FE_INVALID
    int feclearexcept(int)
    int fetestexcept(int)


cdef inline Py_ssize_t known_width(lanes* tag, Py_ssize_t width) noexcept nogil:
    # The width, a constant for the compiler if there are few lanes.
    return width if lanes is Lanes8 else n_lanes(tag)


cdef inline bint in_range(double total) noexcept nogil:
    # Whether the mass of a step is in the range that needs no scaling by a power of two.
    return 2.0 ** -100 < total < 2.0 ** 100


cdef inline double log_of_power(double power) noexcept nogil:
    return power * M_LN2


cdef inline double sum_of_rows(
    lanes* tag, const double* a, const double* b, Py_ssize_t width
) noexcept nogil:
    # Sum over k of a(k) + b(k), or of a(k) if b is NULL.
    cdef Py_ssize_t B = n_lanes(tag), z, k
    cdef double sums[8]
    cdef double total = 0
    for k in range(B):
        sums[k] = 0
    for z in range(width // B):
        for k in range(B):
            sums[k] += a[z * B + k] if b == NULL else a[z * B + k] + b[z * B + k]
    for k in range(B):
        total += sums[k]
    return total


cdef inline double sum_of_products(
    const double* a, const double* b, Py_ssize_t n
) noexcept nogil:
    cdef Py_ssize_t k
    cdef double total = 0
    for k in range(n):
        total += a[k] * b[k]
    return total


cdef inline void times_matrix(
    lanes* tag, const double* x, const double* matrix, double* out, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # out(j) = sum_i x(i) matrix(i, j)
    cdef Py_ssize_t B = n_lanes(tag), block, k
    cdef double acc[8]
    for block in range(width // B):
        block_of_product(tag, x, 1, matrix + block * B, L, width, acc)
        for k in range(B):
            out[block * B + k] = acc[k]
        sklseq_one_row_at_a_time()       # lets the compiler vectorise the product


cdef inline bint exponentiate(const double* psi, double* F, Py_ssize_t n) noexcept nogil:
    # F = exp(psi). Returns whether each is a normal number or exactly 0. May set floating-point
    # flags.
    cdef Py_ssize_t k, odd = 0
    exponentials(psi, F, n)
    for k in range(n):
        odd += not fabs(psi[k]) < NORMAL
    for k in range(n if odd else 0):
        if not fabs(psi[k]) < NORMAL and psi[k] != -INFINITY:
            return False
    return True

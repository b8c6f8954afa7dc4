"""Scaled arithmetic of sums over segmentations: when it rescales, and how it knows what it lost."""

from libc.math cimport INFINITY, fabs

from sklseq._lib.exponential cimport exponentials
from sklseq._lib.lanes cimport lanes, n_lanes


cdef extern from "<fenv.h>" nogil:
    int FE_UNDERFLOW, FE_OVERFLOW, FE_INVALID
    int feclearexcept(int)
    int fetestexcept(int)


cdef inline bint in_range(double total) noexcept nogil:
    # Whether factors of the next step may be as they are.
    return 2.0 ** -100 < total < 2.0 ** 100


cdef inline double log_of_power(double power) noexcept nogil:
    return power * 0.6931471805599453


cdef inline double sum_of_rows(
    lanes* tag, const double* a, const double* b, Py_ssize_t width
) noexcept nogil:
    # Sum of a(k) + b(k), b being NULL or a row.
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


cdef inline bint exponentiate(const double* psi, double* F, Py_ssize_t n) noexcept nogil:
    # F = exp(psi). Whether every one is a normal number, or a real 0. Few are looked at twice. What
    # flags say afterwards is of no use.
    cdef Py_ssize_t k, odd = 0
    exponentials(psi, F, n)
    for k in range(n):
        odd += not fabs(psi[k]) < 690
    for k in range(n if odd else 0):
        if not fabs(psi[k]) < 690 and psi[k] != -INFINITY:
            return False
    return True

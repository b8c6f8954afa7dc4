"""Vectorised exponentials: `exponential.h`."""

from sklseq._lib.lanes cimport real

cdef extern from "sklseq/_lib/exponential.h":
    void exp_doubles "sklseq_exp_doubles"(const double*, double*, Py_ssize_t) noexcept nogil
    void exp_floats "sklseq_exp_floats"(const float*, float*, Py_ssize_t) noexcept nogil
    double exp_double "sklseq_exp_double"(double) noexcept nogil


cdef inline void exponentials(const real* x, real* out, Py_ssize_t n) noexcept nogil:
    # out(k) = exp(x(k)); out may be x.
    if real is float:
        exp_floats(x, out, n)
    else:
        exp_doubles(x, out, n)

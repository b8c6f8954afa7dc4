"""Prefetching of memory, where the compiler supports it."""

from sklseq._lib.lanes cimport real

cdef extern from "sklseq/_lib/compiler.h":
    void prefetch "sklseq_prefetch"(const void* address) noexcept nogil


cdef inline void prefetch_row(const real* row, Py_ssize_t width) noexcept nogil:
    cdef Py_ssize_t k
    for k in range((width + 7) // 8):    # eight float64 fill a cache line
        prefetch(row + 8 * k)

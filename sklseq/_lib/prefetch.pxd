"""Asking for memory before it is needed, where the compiler has a word for it."""

from sklseq._lib.lanes cimport real


cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define sklseq_prefetch(address) __builtin_prefetch(address)
    #else
    #define sklseq_prefetch(address) ((void) 0)
    #endif
    """
    void prefetch "sklseq_prefetch"(const void* address) noexcept nogil


cdef inline void prefetch_row(const real* row, Py_ssize_t width) noexcept nogil:
    cdef Py_ssize_t k
    for k in range((width + 7) // 8):    # eight float64 fill a cache line
        prefetch(row + 8 * k)

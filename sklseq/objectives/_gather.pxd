"""One row of the score map A: text shared by compiled kernels."""

from sklseq._lanes cimport lanes, n_lanes, real

ctypedef fused index:
    int
    long long

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define sklseq_prefetch(address) __builtin_prefetch(address)
    #else
    #define sklseq_prefetch(address) ((void) 0)
    #endif
    """
    void sklseq_prefetch(const void* address) noexcept nogil

cdef inline void prefetch_row(const real* row, Py_ssize_t width) noexcept nogil:
    cdef Py_ssize_t k
    for k in range((width + 7) // 8):    # eight float64 fill a cache line
        sklseq_prefetch(row + 8 * k)


cdef inline void gather_row(
    lanes* tag, const index* indices, const real* data, Py_ssize_t n, const real* rows,
    Py_ssize_t width, const real* w, real ridge, real* out
) noexcept nogil:
    # out = ridge * w + sum_p data[p] * rows[indices[p]], a block of lanes at a time.
    cdef Py_ssize_t B = n_lanes(tag), block, p, k
    cdef real acc[8]
    cdef real x
    cdef const real* row
    for block in range(width // B):
        for k in range(B):
            acc[k] = 0
        if data == NULL:
            for p in range(n):
                row = rows + indices[p] * width + block * B
                for k in range(B):
                    acc[k] += row[k]
        else:
            for p in range(n):
                row = rows + indices[p] * width + block * B
                x = data[p]
                for k in range(B):
                    acc[k] += x * row[k]
        if w != NULL:
            for k in range(B):
                acc[k] += ridge * w[block * B + k]
        for k in range(B):
            out[block * B + k] = acc[k]

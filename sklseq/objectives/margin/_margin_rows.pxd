"""Reading scores and finding best predecessors: text shared by the kernel of margin training."""

from libc.math cimport INFINITY

cdef enum:
    LANES = 8

cdef extern from *:
    """
    #if defined(__GNUC__) || defined(__clang__)
    #define sklseq_one_row_at_a_time() __asm__ volatile ("")
    #else
    #define sklseq_one_row_at_a_time() ((void) 0)
    #endif
    """
    void sklseq_one_row_at_a_time() noexcept nogil


cdef inline void gather_row(
    const int* indices, const double* data, Py_ssize_t n, const double* w, Py_ssize_t width,
    double* out
) noexcept nogil:
    # out = sum_p data[p] * w[indices[p]], a block of lanes at a time
    cdef Py_ssize_t block, p, k
    cdef double acc[8]
    cdef double x
    cdef const double* row
    for block in range(width // LANES):
        for k in range(LANES):
            acc[k] = 0
        for p in range(n):
            row = w + indices[p] * width + block * LANES
            if data == NULL:
                for k in range(LANES):
                    acc[k] += row[k]
            else:
                x = data[p]
                for k in range(LANES):
                    acc[k] += x * row[k]
            sklseq_one_row_at_a_time()
        for k in range(LANES):
            out[block * LANES + k] = acc[k]


cdef inline void best_into(
    const double* previous, const double* score, Py_ssize_t L, Py_ssize_t width, double* out
) noexcept nogil:
    # out(j) = max_i previous(i) + score(i, j)
    cdef Py_ssize_t block, i, k
    cdef double best[8]
    cdef double x, v
    for block in range(width // LANES):
        for k in range(LANES):
            best[k] = -INFINITY
        for i in range(L):
            x = previous[i]
            for k in range(LANES):
                v = x + score[i * width + block * LANES + k]
                best[k] = v if v > best[k] else best[k]
            sklseq_one_row_at_a_time()
        for k in range(LANES):
            out[block * LANES + k] = best[k]

"""One row of the score map A, inlined into several compiled kernels."""

from sklseq._lib.lanes cimport Lanes8, lanes, n_lanes, real

ctypedef fused index:
    int
    long long


cdef inline void gather_two_blocks(
    const index* indices, const real* data, Py_ssize_t n, const real* rows, Py_ssize_t width,
    const real* w, real ridge, real* out
) noexcept nogil:
    # 16 lanes at once, which doubles the number of independent additions.
    cdef Py_ssize_t p, k
    cdef real low[8]
    cdef real high[8]
    cdef real x
    cdef const real* row
    for k in range(8):
        low[k] = 0
    for k in range(8):
        high[k] = 0
    if data == NULL:
        for p in range(n):
            row = rows + indices[p] * width
            for k in range(8):
                low[k] += row[k]
            for k in range(8):
                high[k] += row[8 + k]
    else:
        for p in range(n):
            row = rows + indices[p] * width
            x = data[p]
            for k in range(8):
                low[k] += x * row[k]
            for k in range(8):
                high[k] += x * row[8 + k]
    if w != NULL:
        for k in range(8):
            low[k] += ridge * w[k]
        for k in range(8):
            high[k] += ridge * w[8 + k]
    for k in range(8):
        out[k] = low[k]
    for k in range(8):
        out[8 + k] = high[k]


cdef inline void gather_row(
    lanes* tag, const index* indices, const real* data, Py_ssize_t n, const real* rows,
    Py_ssize_t width, const real* w, real ridge, real* out
) noexcept nogil:
    # out = ridge * w + sum_p data[p] * rows[indices[p]], a block of lanes at a time.
    cdef Py_ssize_t B = n_lanes(tag), block, p, k, first = 0
    cdef real acc[8]
    cdef real x
    cdef const real* row
    if lanes is Lanes8:
        first = width // 16 * 2
        for block in range(0, first, 2):
            gather_two_blocks(indices, data, n, rows + 8 * block, width,
                              w + 8 * block if w != NULL else NULL, ridge, out + 8 * block)
    for block in range(first, width // B):
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

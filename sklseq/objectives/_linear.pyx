"""The linear score map A, sparse: rows of a CSR matrix times a matrix with padded rows.

out[t] = sum_p data[p] * rows[indices[p]],  p from indptr[t] to indptr[t + 1] - 1

With X (tokens by features) and the weights this is A; with X transposed and the residuals it is
the adjoint, and needs no buffer per thread: whoever computes a row of the gradient computes all
of it, in one fixed order.
"""

ctypedef fused real:
    float
    double

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

# Rows of weights are scattered over memory: asking this many entries ahead hides the latency.
cdef Py_ssize_t AHEAD = 24


cdef inline void gather_block(
    const index* indices, const real* data, Py_ssize_t n, const real* rows, Py_ssize_t width,
    real* out
) noexcept nogil:
    # Eight columns of one row of the product, in registers.
    cdef Py_ssize_t p, k
    cdef real acc[8]
    cdef real x
    cdef const real* row
    for k in range(8):
        acc[k] = 0
    if data == NULL:
        for p in range(n):
            row = rows + indices[p] * width
            for k in range(8):
                acc[k] += row[k]
    else:
        for p in range(n):
            row = rows + indices[p] * width
            x = data[p]
            for k in range(8):
                acc[k] += x * row[k]
    for k in range(8):
        out[k] = acc[k]


def sparse_times_rows(
    const index[::1] indptr, const index[::1] indices, const real[::1] data,
    const real[:, ::1] rows, real[:, ::1] out, Py_ssize_t first=0, Py_ssize_t last=-1,
):
    cdef Py_ssize_t t, p, k, n, b, width = rows.shape[1], line
    cdef Py_ssize_t nnz = indices.shape[0]
    cdef const index* ind
    cdef const real* base = &rows[0, 0]
    cdef const real* values = NULL
    if last < 0:
        last = out.shape[0]
    with nogil:
        for t in range(first, last):
            n = indptr[t + 1] - indptr[t]
            ind = &indices[0] + indptr[t]
            for p in range(indptr[t], indptr[t + 1]):
                if p + AHEAD < nnz:
                    line = indices[p + AHEAD] * width
                    for b in range(0, width, 8):
                        sklseq_prefetch(base + line + b)
            for b in range(width // 8):
                gather_block(ind, values, n, base + b * 8, width, &out[t, b * 8])


def scatter(const index[::1] indptr, const index[::1] indices, const real[:, ::1] r, real[:, ::1] G):
    cdef Py_ssize_t t, p, k, b, width = r.shape[1], line
    cdef Py_ssize_t nnz = indices.shape[0]
    cdef real* base = &G[0, 0]
    cdef real* g
    cdef const real* rr
    with nogil:
        for t in range(r.shape[0]):
            rr = &r[t, 0]
            for p in range(indptr[t], indptr[t + 1]):
                if p + AHEAD < nnz:
                    line = indices[p + AHEAD] * width
                    for b in range(0, width, 8):
                        sklseq_prefetch(base + line + b)
                g = base + indices[p] * width
                for b in range(width // 8):
                    for k in range(8):
                        g[b * 8 + k] += rr[b * 8 + k]

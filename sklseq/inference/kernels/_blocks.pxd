"""Sum and max-plus products of a block of eight lanes with several rows at once (`blocks.h`)."""

from libc.math cimport INFINITY

from sklseq._lib.lanes cimport Lanes8, lanes, n_lanes, real

cdef extern from "sklseq/inference/kernels/blocks.h":
    const bint SKLSEQ_FOUR_ROWS_FIT
    void sklseq_products(
        size_t size, Py_ssize_t rows, const void* x, Py_ssize_t stride, const void* matrix,
        Py_ssize_t n, Py_ssize_t width, void* out
    ) noexcept nogil
    void sklseq_max_plus(
        size_t size, Py_ssize_t rows, const void* x, const void* matrix, Py_ssize_t n,
        Py_ssize_t width, void* out
    ) noexcept nogil
    void sklseq_row_product(
        size_t size, const void* x, const void* matrix, Py_ssize_t n, Py_ssize_t width, void* out
    ) noexcept nogil
    void sklseq_sums_and_pairs(
        const double* x, const double* m, const double* a, double* pairs, Py_ssize_t n,
        Py_ssize_t width, double* out
    ) noexcept nogil
    double sklseq_row_min(size_t size, const void* x, Py_ssize_t n) noexcept nogil
    void sklseq_dots(
        size_t size, const void* x, const void* matrix, Py_ssize_t n, Py_ssize_t width, void* out
    ) noexcept nogil
    double sklseq_row_max(size_t size, const void* x, Py_ssize_t n) noexcept nogil
    double sklseq_sum_max(size_t size, const void* x, const void* y, Py_ssize_t n) noexcept nogil


cdef inline Py_ssize_t group(const real* any_row) noexcept nogil:
    # The largest number of rows of one call of `products`.
    return 8 if real is float else 4


cdef inline void products(
    const real** x, Py_ssize_t m, Py_ssize_t stride, const real* matrix, Py_ssize_t n,
    Py_ssize_t width, real* out
) noexcept nogil:
    # out(s, k) = sum_{i < n} x_s(i * stride) * matrix(i, k), s < m <= group, k < 8. The loops take
    # four or eight rows: all pointers up to there must be valid.
    sklseq_products(sizeof(real), m, x, stride, matrix, n, width, out)


cdef inline void max_plus(
    const real** x, Py_ssize_t m, const real* matrix, Py_ssize_t n, Py_ssize_t width, real* out
) noexcept nogil:
    # out(s, k) = max_{i < n} x_s(i) + matrix(i, k), s < m, k < 8; unless m is 1, x has 4 rows.
    sklseq_max_plus(sizeof(real), m, x, matrix, n, width, out)


cdef inline void row_product(
    const real* x, const real* matrix, Py_ssize_t n, Py_ssize_t width, real* out
) noexcept nogil:
    # out(k) = sum_{i < n} x(i) * matrix(i, k), k < width; the width is a multiple of 8.
    sklseq_row_product(sizeof(real), x, matrix, n, width, out)


cdef inline void dots(
    const real* x, const real* matrix, Py_ssize_t n, Py_ssize_t width, real* out
) noexcept nogil:
    # out(i) = sum_{k < width} matrix(i, k) * x(k), i < n; the width is a multiple of 8.
    sklseq_dots(sizeof(real), x, matrix, n, width, out)


cdef inline real row_max(const real* x, Py_ssize_t n) noexcept nogil:
    # max_{k < n} x(k), n >= 1
    return <real> sklseq_row_max(sizeof(real), x, n)


cdef inline real row_min(const real* x, Py_ssize_t n) noexcept nogil:
    # min_{k < n} x(k), n >= 1
    return <real> sklseq_row_min(sizeof(real), x, n)


cdef inline real sum_max(const real* x, const real* y, Py_ssize_t n) noexcept nogil:
    # max_{k < n} x(k) + y(k), n >= 1
    return <real> sklseq_sum_max(sizeof(real), x, y, n)


cdef inline real largest(lanes* tag, const real* x, Py_ssize_t n) noexcept nogil:
    # max_{k < n} x(k), n >= 1; for few labels a loop is faster than a function call
    cdef Py_ssize_t k
    cdef real top = x[0]
    if lanes is Lanes8:
        return row_max(x, n)
    for k in range(1, n):
        top = x[k] if x[k] > top else top
    return top


cdef inline Py_ssize_t first_argmax(const real* x, const real* y, Py_ssize_t n) noexcept nogil:
    # The lowest k < n that maximises x(k) + y(k). With more than 8 numbers it is faster to find the
    # maximum in vector registers first, and then to search for it.
    cdef Py_ssize_t k, best = 0
    cdef real v, top = -INFINITY
    if n > 8:
        top = sum_max(x, y, n)
        while best < n - 1 and x[best] + y[best] != top:
            best += 1
        return best
    for k in range(n):
        v = x[k] + y[k]
        best = k if v > top else best
        top = v if v > top else top
    return best


cdef inline void block_of_maxima(
    lanes* tag, const real* x, const real* matrix, Py_ssize_t n, Py_ssize_t width, real* out
) noexcept nogil:
    # out(k) = max_{i < n} x(i) + matrix(i, k), k over the lanes of one block
    cdef Py_ssize_t B = n_lanes(tag), i, k
    cdef real x_i, v
    if lanes is Lanes8:
        max_plus(&x, 1, matrix, n, width, out)
    else:
        for k in range(B):
            out[k] = -INFINITY
        for i in range(n):
            x_i = x[i]
            for k in range(B):
                v = x_i + matrix[i * width + k]
                out[k] = v if v > out[k] else out[k]

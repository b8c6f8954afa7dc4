"""Products of one block of eight lanes with several rows at once: sums and maxima.

These few loops are C because the compiler has to be told two things that Cython cannot say:

* Not to inline them. Within the loops around them GCC no longer sees that a block of lanes fits
  the registers (measured at L = 100: half as fast).
* For maxima, that NaN and the sign of zero do not matter. Otherwise GCC turns
  ``v > best ? v : best`` into one number at a time, compared in one kind of register and moved in
  another. They do not matter: scores are never NaN or +inf, and the processor's maximum of whole
  registers knows that -inf is smaller than any number. The promise is made for these functions
  alone; no constant -inf stands in them that the compiler could reason about, a maximum starts
  from its first term.
"""

from sklseq._lib.lanes cimport real


cdef inline Py_ssize_t group(const real* any_row) noexcept nogil:
    # Rows that `products` takes at once at most.
    return 8 if real is float else 4


cdef extern from *:
    """
    #if defined(__GNUC__) && !defined(__clang__)
    #define SKLSEQ_SUM __attribute__((noinline)) static
    #define SKLSEQ_MAX \\
        __attribute__((noinline, optimize("finite-math-only", "no-signed-zeros"))) static
    /* Left alone, GCC vectorises across the rows of the matrix, which costs it shuffles. */
    #define sklseq_row_by_row() __asm__ volatile ("")
    #else
    #define SKLSEQ_SUM static
    #define SKLSEQ_MAX static
    #define sklseq_row_by_row() ((void) 0)
    #endif
    /* Whether four rows of eight double lanes fit the registers. */
    #if defined(__AVX__) || defined(__aarch64__)
    #define SKLSEQ_FOUR_ROWS_FIT 1
    #else
    #define SKLSEQ_FOUR_ROWS_FIT 0
    #endif
    #define sklseq_lanes for (k = 0; k < 8; k++)
    #define sklseq_max(best, v) best = v > best ? v : best

    #define SKLSEQ_BLOCKS(real, suffix)                                                          \\
    SKLSEQ_SUM void sklseq_four_products_##suffix(                                               \\
        const real* const* x, Py_ssize_t stride,                                                 \\
        const real* m, Py_ssize_t n, Py_ssize_t width, real* out                                 \\
    ) {                                                                                          \\
        const real *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];                               \\
        real a[8], b[8], c[8], d[8], v;                                                          \\
        Py_ssize_t i, k;                                                                         \\
        sklseq_lanes a[k] = 0;                                                                   \\
        sklseq_lanes b[k] = 0;                                                                   \\
        sklseq_lanes c[k] = 0;                                                                   \\
        sklseq_lanes d[k] = 0;                                                                   \\
        for (i = 0; i < n; i++) {                                                                \\
            v = x0[i * stride];                                                                  \\
            sklseq_lanes a[k] += v * m[i * width + k];                                           \\
            v = x1[i * stride];                                                                  \\
            sklseq_lanes b[k] += v * m[i * width + k];                                           \\
            v = x2[i * stride];                                                                  \\
            sklseq_lanes c[k] += v * m[i * width + k];                                           \\
            v = x3[i * stride];                                                                  \\
            sklseq_lanes d[k] += v * m[i * width + k];                                           \\
            sklseq_row_by_row();                                                                 \\
        }                                                                                        \\
        sklseq_lanes out[k] = a[k];                                                              \\
        sklseq_lanes out[8 + k] = b[k];                                                          \\
        sklseq_lanes out[16 + k] = c[k];                                                         \\
        sklseq_lanes out[24 + k] = d[k];                                                         \\
    }                                                                                            \\
    SKLSEQ_SUM void sklseq_eight_products_##suffix(                                              \\
        const real* const* x, Py_ssize_t stride,                                                 \\
        const real* m, Py_ssize_t n, Py_ssize_t width, real* out                                 \\
    ) {                                                                                          \\
        const real *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3];                               \\
        const real *x4 = x[4], *x5 = x[5], *x6 = x[6], *x7 = x[7];                               \\
        real a[8], b[8], c[8], d[8], e[8], f[8], g[8], h[8], v;                                  \\
        Py_ssize_t i, k;                                                                         \\
        sklseq_lanes a[k] = 0;                                                                   \\
        sklseq_lanes b[k] = 0;                                                                   \\
        sklseq_lanes c[k] = 0;                                                                   \\
        sklseq_lanes d[k] = 0;                                                                   \\
        sklseq_lanes e[k] = 0;                                                                   \\
        sklseq_lanes f[k] = 0;                                                                   \\
        sklseq_lanes g[k] = 0;                                                                   \\
        sklseq_lanes h[k] = 0;                                                                   \\
        for (i = 0; i < n; i++) {                                                                \\
            v = x0[i * stride];                                                                  \\
            sklseq_lanes a[k] += v * m[i * width + k];                                           \\
            v = x1[i * stride];                                                                  \\
            sklseq_lanes b[k] += v * m[i * width + k];                                           \\
            v = x2[i * stride];                                                                  \\
            sklseq_lanes c[k] += v * m[i * width + k];                                           \\
            v = x3[i * stride];                                                                  \\
            sklseq_lanes d[k] += v * m[i * width + k];                                           \\
            v = x4[i * stride];                                                                  \\
            sklseq_lanes e[k] += v * m[i * width + k];                                           \\
            v = x5[i * stride];                                                                  \\
            sklseq_lanes f[k] += v * m[i * width + k];                                           \\
            v = x6[i * stride];                                                                  \\
            sklseq_lanes g[k] += v * m[i * width + k];                                           \\
            v = x7[i * stride];                                                                  \\
            sklseq_lanes h[k] += v * m[i * width + k];                                           \\
            sklseq_row_by_row();                                                                 \\
        }                                                                                        \\
        sklseq_lanes out[k] = a[k];                                                              \\
        sklseq_lanes out[8 + k] = b[k];                                                          \\
        sklseq_lanes out[16 + k] = c[k];                                                         \\
        sklseq_lanes out[24 + k] = d[k];                                                         \\
        sklseq_lanes out[32 + k] = e[k];                                                         \\
        sklseq_lanes out[40 + k] = f[k];                                                         \\
        sklseq_lanes out[48 + k] = g[k];                                                         \\
        sklseq_lanes out[56 + k] = h[k];                                                         \\
    }                                                                                            \\
    SKLSEQ_MAX real sklseq_row_max_##suffix(const real* x, Py_ssize_t n) {                       \\
        Py_ssize_t k;                                                                            \\
        real best = x[0];                                                                        \\
        for (k = 1; k < n; k++) sklseq_max(best, x[k]);                                          \\
        return best;                                                                             \\
    }                                                                                            \\
    SKLSEQ_MAX real sklseq_sum_max_##suffix(const real* x, const real* y, Py_ssize_t n) {        \\
        Py_ssize_t k;                                                                            \\
        real best = x[0] + y[0], v;                                                              \\
        for (k = 1; k < n; k++) { v = x[k] + y[k]; sklseq_max(best, v); }                        \\
        return best;                                                                             \\
    }                                                                                            \\
    SKLSEQ_MAX void sklseq_max_plus_one_##suffix(                                                \\
        const real* x, const real* m, Py_ssize_t n, Py_ssize_t width, real* out                  \\
    ) {                                                                                          \\
        real a[8], v;                                                                            \\
        Py_ssize_t i, k;                                                                         \\
        sklseq_lanes a[k] = x[0] + m[k];                                                         \\
        for (i = 1; i < n; i++) {                                                                \\
            sklseq_lanes { v = x[i] + m[i * width + k]; sklseq_max(a[k], v); }                   \\
            sklseq_row_by_row();                                                                 \\
        }                                                                                        \\
        sklseq_lanes out[k] = a[k];                                                              \\
    }                                                                                            \\
    SKLSEQ_MAX void sklseq_max_plus_four_##suffix(                                               \\
        const real* x0, const real* x1, const real* x2, const real* x3,                          \\
        const real* m, Py_ssize_t n, Py_ssize_t width, real* out                                 \\
    ) {                                                                                          \\
        real a[8], b[8], c[8], d[8], v;                                                          \\
        Py_ssize_t i, k;                                                                         \\
        sklseq_lanes a[k] = x0[0] + m[k];                                                        \\
        sklseq_lanes b[k] = x1[0] + m[k];                                                        \\
        sklseq_lanes c[k] = x2[0] + m[k];                                                        \\
        sklseq_lanes d[k] = x3[0] + m[k];                                                        \\
        for (i = 1; i < n; i++) {                                                                \\
            sklseq_lanes { v = x0[i] + m[i * width + k]; sklseq_max(a[k], v); }                  \\
            sklseq_lanes { v = x1[i] + m[i * width + k]; sklseq_max(b[k], v); }                  \\
            sklseq_lanes { v = x2[i] + m[i * width + k]; sklseq_max(c[k], v); }                  \\
            sklseq_lanes { v = x3[i] + m[i * width + k]; sklseq_max(d[k], v); }                  \\
            sklseq_row_by_row();                                                                 \\
        }                                                                                        \\
        sklseq_lanes out[k] = a[k];                                                              \\
        sklseq_lanes out[8 + k] = b[k];                                                          \\
        sklseq_lanes out[16 + k] = c[k];                                                         \\
        sklseq_lanes out[24 + k] = d[k];                                                         \\
    }
    SKLSEQ_BLOCKS(float, float)
    SKLSEQ_BLOCKS(double, double)
    """
    const bint SKLSEQ_FOUR_ROWS_FIT
    void sklseq_four_products_float(
        const float* const* x, Py_ssize_t stride, const float* m, Py_ssize_t n, Py_ssize_t width,
        float* out
    ) noexcept nogil
    void sklseq_eight_products_float(
        const float* const* x, Py_ssize_t stride, const float* m, Py_ssize_t n, Py_ssize_t width,
        float* out
    ) noexcept nogil
    float sklseq_row_max_float(const float* x, Py_ssize_t n) noexcept nogil
    float sklseq_sum_max_float(const float* x, const float* y, Py_ssize_t n) noexcept nogil
    void sklseq_max_plus_one_float(
        const float* x, const float* m, Py_ssize_t n, Py_ssize_t width, float* out
    ) noexcept nogil
    void sklseq_max_plus_four_float(
        const float* x0, const float* x1, const float* x2, const float* x3,
        const float* m, Py_ssize_t n, Py_ssize_t width, float* out
    ) noexcept nogil
    void sklseq_four_products_double(
        const double* const* x, Py_ssize_t stride, const double* m, Py_ssize_t n, Py_ssize_t width,
        double* out
    ) noexcept nogil
    void sklseq_eight_products_double(
        const double* const* x, Py_ssize_t stride, const double* m, Py_ssize_t n, Py_ssize_t width,
        double* out
    ) noexcept nogil
    double sklseq_row_max_double(const double* x, Py_ssize_t n) noexcept nogil
    double sklseq_sum_max_double(const double* x, const double* y, Py_ssize_t n) noexcept nogil
    void sklseq_max_plus_one_double(
        const double* x, const double* m, Py_ssize_t n, Py_ssize_t width, double* out
    ) noexcept nogil
    void sklseq_max_plus_four_double(
        const double* x0, const double* x1, const double* x2, const double* x3,
        const double* m, Py_ssize_t n, Py_ssize_t width, double* out
    ) noexcept nogil


cdef inline void products(
    const real** x, Py_ssize_t m, Py_ssize_t stride, const real* matrix, Py_ssize_t n,
    Py_ssize_t width, real* out
) noexcept nogil:
    # out(s, k) = sum_{i < n} x_s(i * stride) * matrix(i, k), s < m <= group, k < 8. All
    # pointers must be valid: those from m on are there for the loop that takes them, too. A block
    # of float fills half as many registers, so that twice as many rows are needed to hide the
    # time that a sum takes.
    if real is float:
        if m <= 4:
            sklseq_four_products_float(x, stride, matrix, n, width, out)
        else:
            sklseq_eight_products_float(x, stride, matrix, n, width, out)
    else:
        sklseq_four_products_double(x, stride, matrix, n, width, out)


cdef inline real row_max(const real* x, Py_ssize_t n) noexcept nogil:
    # max_{k < n} x(k), n >= 1
    if real is float:
        return sklseq_row_max_float(x, n)
    else:
        return sklseq_row_max_double(x, n)


cdef inline real sum_max(const real* x, const real* y, Py_ssize_t n) noexcept nogil:
    # max_{k < n} x(k) + y(k), n >= 1
    if real is float:
        return sklseq_sum_max_float(x, y, n)
    else:
        return sklseq_sum_max_double(x, y, n)


cdef inline void max_plus_one(
    const real* x, const real* matrix, Py_ssize_t n, Py_ssize_t width, real* out
) noexcept nogil:
    # out(k) = max_{i < n} x(i) + matrix(i, k), k < 8
    if real is float:
        sklseq_max_plus_one_float(x, matrix, n, width, out)
    else:
        sklseq_max_plus_one_double(x, matrix, n, width, out)


cdef inline void max_plus_four(
    const real* x0, const real* x1, const real* x2, const real* x3,
    const real* matrix, Py_ssize_t n, Py_ssize_t width, real* out
) noexcept nogil:
    # out(s, k) = max_{i < n} x_s(i) + matrix(i, k), s < 4, k < 8
    if real is float:
        sklseq_max_plus_four_float(x0, x1, x2, x3, matrix, n, width, out)
    else:
        sklseq_max_plus_four_double(x0, x1, x2, x3, matrix, n, width, out)

/* Products of a block of eight lanes of a matrix with one, four or eight rows, in a semiring:
 *
 *     out(r, k) = plus_{i < n} x_r(i * stride) times matrix(i, k),   r < rows, k < 8;
 * the stride of maxima is 1.
 *
 * Timings by turns: benchmarks/bench_inference.py, part "kernels". Sums and maxima start from the
 * identity of the semiring: a maximum that starts from its first term is up to half as fast
 * (GCC 12, L = 9 to 300), and loops over r instead of `SKLSEQ_ROWS` a fifth to a half.
 */
#ifndef SKLSEQ_BLOCKS_H
#define SKLSEQ_BLOCKS_H

#include <math.h>
#include "sklseq/_lib/compiler.h"

#define SKLSEQ_FROM_ZERO(r) const T* x##r = x[r]; T y##r[8]; sklseq_lanes y##r[k] = 0;
#define SKLSEQ_FROM_MINUS_INFINITY(r)                                                           \
    const T* x##r = x[r]; T y##r[8]; sklseq_lanes y##r[k] = (T) -INFINITY;
#define SKLSEQ_STORE(r) sklseq_lanes out[8 * r + k] = y##r[k];
#define SKLSEQ_PLUS_TIMES(r)                                                                    \
    u = x##r[i * stride]; sklseq_lanes y##r[k] += u * m[i * width + k];
#define SKLSEQ_MAX_PLUS(r)                                                                      \
    sklseq_lanes { v = x##r[i] + m[i * width + k]; y##r[k] = v > y##r[k] ? v : y##r[k]; }

#define SKLSEQ_PRODUCT(name, kind, type, rows, start, step, loop)                               \
    kind void name(                                                                             \
        const type* const* x, Py_ssize_t stride, const type* m, Py_ssize_t n, Py_ssize_t width, \
        type* out                                                                               \
    ) {                                                                                         \
        typedef type T;                                                                         \
        T u, v;                                                                                 \
        Py_ssize_t i, k;                                                                        \
        (void) u, (void) v;                                                                     \
        rows(start)                                                                             \
        loop for (i = 0; i < n; i++) {                                                          \
            rows(step)                                                                          \
            sklseq_one_row_at_a_time();                                                         \
        }                                                                                       \
        rows(SKLSEQ_STORE)                                                                      \
    }

/* The extreme number of n >= 1, `better` being > or <; long rows in 16 lanes at a time */
#define SKLSEQ_EXTREME(name, type, better)                                                      \
    SKLSEQ_MAX type name(const type* x, Py_ssize_t n) {                                         \
        Py_ssize_t k, i = 0;                                                                    \
        type best = x[0], y[16];                                                                \
        if (n >= 64) {                                                                          \
            for (k = 0; k < 16; k++) y[k] = x[k];                                               \
            for (i = 16; i + 15 < n; i += 16)                                                   \
                for (k = 0; k < 16; k++) y[k] = x[i + k] better y[k] ? x[i + k] : y[k];         \
            for (k = 0; k < 16; k++) best = y[k] better best ? y[k] : best;                     \
        }                                                                                       \
        for (; i < n; i++) best = x[i] better best ? x[i] : best;                               \
        return best;                                                                            \
    }

#define SKLSEQ_ROW_MAX(type)                                                                    \
    SKLSEQ_EXTREME(sklseq_row_max_##type, type, >)                                              \
    SKLSEQ_EXTREME(sklseq_row_min_##type, type, <)                                              \
    SKLSEQ_MAX type sklseq_sum_max_##type(const type* x, const type* y, Py_ssize_t n) {         \
        Py_ssize_t k;                                                                           \
        type best = x[0] + y[0], v;                                                             \
        for (k = 1; k < n; k++) { v = x[k] + y[k]; best = v > best ? v : best; }                \
        return best;                                                                            \
    }

/* out(i) = sum_{j < width} m(i, j) x(j), i < n; the width is a multiple of 8. Vectors of the compiler:
   GCC makes shuffles of the same loops over lanes, and takes three times as long. */
#if defined(__GNUC__) || defined(__clang__)
typedef double sklseq_vector_double __attribute__((vector_size(32), aligned(8), may_alias));
typedef float sklseq_vector_float __attribute__((vector_size(32), aligned(4), may_alias));
#define sklseq_total_double(y) ((y[0] + y[2]) + (y[1] + y[3]))
#define sklseq_total_float(y)                                                                   \
    (((y[0] + y[4]) + (y[2] + y[6])) + ((y[1] + y[5]) + (y[3] + y[7])))
#else
typedef double sklseq_vector_double;
typedef float sklseq_vector_float;
#define sklseq_total_double(y) y
#define sklseq_total_float(y) y
#endif
#define SKLSEQ_DOT_START(r) V y##r = {0};
#define SKLSEQ_DOT_STEP(r) y##r += u * *(const V*) (m + r * width + j);
#define SKLSEQ_ROW_PRODUCT(type)                                                                \
    SKLSEQ_SUM void sklseq_row_product_##type(                                                  \
        const type* x, const type* m, Py_ssize_t n, Py_ssize_t width, type* out                 \
    ) {                                                                                         \
        typedef sklseq_vector_##type V;                                                         \
        const Py_ssize_t lanes = sizeof(V) / sizeof(type);                                      \
        Py_ssize_t i, j;                                                                        \
        for (j = 0; j < width; j += 2 * lanes) {                                                \
            const type* row = m + j;                                                            \
            V a = {0}, b = {0}, c = {0}, d = {0};                                               \
            int second = j + lanes < width;                                                     \
            for (i = 0; i + 1 < n; i += 2, row += 2 * width) {                                  \
                a += x[i] * *(const V*) row;                                                    \
                c += x[i + 1] * *(const V*) (row + width);                                      \
                if (second) b += x[i] * *(const V*) (row + lanes);                              \
                if (second) d += x[i + 1] * *(const V*) (row + width + lanes);                  \
            }                                                                                   \
            if (i < n) a += x[i] * *(const V*) row;                                             \
            if (i < n && second) b += x[i] * *(const V*) (row + lanes);                         \
            *(V*) (out + j) = a + c;                                                            \
            if (second) *(V*) (out + j + lanes) = b + d;                                        \
        }                                                                                       \
    }
#define SKLSEQ_DOTS(type)                                                                       \
    SKLSEQ_SUM void sklseq_dots_##type(                                                         \
        const type* x, const type* m, Py_ssize_t n, Py_ssize_t width, type* out                 \
    ) {                                                                                         \
        typedef sklseq_vector_##type V;                                                         \
        const Py_ssize_t lanes = sizeof(V) / sizeof(type);                                      \
        Py_ssize_t i, j;                                                                        \
        for (i = 0; i + 3 < n; i += 4, m += 4 * width) {                                        \
            SKLSEQ_ROWS_4(SKLSEQ_DOT_START)                                                     \
            for (j = 0; j < width; j += lanes) {                                                \
                V u = *(const V*) (x + j);                                                      \
                SKLSEQ_ROWS_4(SKLSEQ_DOT_STEP)                                                  \
            }                                                                                   \
            out[i] = sklseq_total_##type(y0);                                                   \
            out[i + 1] = sklseq_total_##type(y1);                                               \
            out[i + 2] = sklseq_total_##type(y2);                                               \
            out[i + 3] = sklseq_total_##type(y3);                                               \
        }                                                                                       \
        for (; i < n; i++, m += width) {                                                        \
            SKLSEQ_DOT_START(0)                                                                 \
            for (j = 0; j < width; j += lanes) {                                                \
                V u = *(const V*) (x + j);                                                      \
                SKLSEQ_DOT_STEP(0)                                                              \
            }                                                                                   \
            out[i] = sklseq_total_##type(y0);                                                   \
        }                                                                                       \
    }

#define SKLSEQ_SUMS(rows, type)                                                                 \
    SKLSEQ_PRODUCT(                                                                             \
        sklseq_sums_##rows##_##type, SKLSEQ_SUM, type, SKLSEQ_ROWS_##rows, SKLSEQ_FROM_ZERO,    \
        SKLSEQ_PLUS_TIMES,                                                                      \
    )
#define SKLSEQ_MAXIMA(rows, type, loop)                                                         \
    SKLSEQ_PRODUCT(                                                                             \
        sklseq_maxima_##rows##_##type, SKLSEQ_MAX, type, SKLSEQ_ROWS_##rows,                    \
        SKLSEQ_FROM_MINUS_INFINITY, SKLSEQ_MAX_PLUS, loop                                       \
    )
#define SKLSEQ_BLOCKS(type)                                                                     \
    SKLSEQ_SUMS(4, type) SKLSEQ_ROW_MAX(type)                                                   \
    SKLSEQ_MAXIMA(1, type, SKLSEQ_UNROLL_TWICE) SKLSEQ_MAXIMA(4, type, )

SKLSEQ_BLOCKS(float)
SKLSEQ_BLOCKS(double)
SKLSEQ_DOTS(float)
SKLSEQ_DOTS(double)
SKLSEQ_ROW_PRODUCT(float)
SKLSEQ_ROW_PRODUCT(double)
SKLSEQ_SUMS(8, float)

/* out(k) = sum_{j < n} v_j(k), pairs(j, k) += a(k) v_j(k), k < 8, where v_j(k) = x(j) m(j, k) */
SKLSEQ_SUM void sklseq_sums_and_pairs(
    const double* x, const double* m, const double* a, double* pairs, Py_ssize_t n,
    Py_ssize_t width, double* out
) {
    typedef sklseq_vector_double V;
    const Py_ssize_t lanes = sizeof(V) / sizeof(double);
    Py_ssize_t j, k;
    for (k = 0; k < 8; k += 2 * lanes) {
        const V a0 = *(const V*) (a + k), a1 = *(const V*) (a + k + lanes);
        V y0 = {0}, y1 = {0};
        for (j = 0; j < n; j++) {
            V* sums = (V*) (pairs + j * width + k);
            const V* row = (const V*) (m + j * width + k);
            V v0 = x[j] * row[0], v1 = x[j] * row[1];
            y0 += v0, y1 += v1;
            sums[0] += a0 * v0, sums[1] += a1 * v1;
        }
        *(V*) (out + k) = y0;
        *(V*) (out + k + lanes) = y1;
    }
}

/* The same by the size of a number. x, matrix and out point to numbers of that size. A block of
   float fills half as many registers: twice as many rows hide the time that a sum takes. */
static inline void sklseq_products(
    size_t size, Py_ssize_t rows, const void* x, Py_ssize_t stride, const void* matrix,
    Py_ssize_t n, Py_ssize_t width, void* out
) {
    if (size == sizeof(double)) sklseq_sums_4_double(x, stride, matrix, n, width, out);
    else if (rows <= 4) sklseq_sums_4_float(x, stride, matrix, n, width, out);
    else sklseq_sums_8_float(x, stride, matrix, n, width, out);
}

static inline void sklseq_max_plus(
    size_t size, Py_ssize_t rows, const void* x, const void* matrix, Py_ssize_t n,
    Py_ssize_t width, void* out
) {
    if (size == sizeof(double) && rows == 1) sklseq_maxima_1_double(x, 1, matrix, n, width, out);
    else if (size == sizeof(double)) sklseq_maxima_4_double(x, 1, matrix, n, width, out);
    else if (rows == 1) sklseq_maxima_1_float(x, 1, matrix, n, width, out);
    else sklseq_maxima_4_float(x, 1, matrix, n, width, out);
}

static inline void sklseq_dots(
    size_t size, const void* x, const void* matrix, Py_ssize_t n, Py_ssize_t width, void* out
) {
    if (size == sizeof(double)) sklseq_dots_double(x, matrix, n, width, out);
    else sklseq_dots_float(x, matrix, n, width, out);
}

static inline void sklseq_row_product(
    size_t size, const void* x, const void* matrix, Py_ssize_t n, Py_ssize_t width, void* out
) {
    if (size == sizeof(double)) sklseq_row_product_double(x, matrix, n, width, out);
    else sklseq_row_product_float(x, matrix, n, width, out);
}

static inline double sklseq_row_min(size_t size, const void* x, Py_ssize_t n) {
    return size == sizeof(double) ? sklseq_row_min_double(x, n) : sklseq_row_min_float(x, n);
}

static inline double sklseq_row_max(size_t size, const void* x, Py_ssize_t n) {
    return size == sizeof(double) ? sklseq_row_max_double(x, n) : sklseq_row_max_float(x, n);
}

static inline double sklseq_sum_max(size_t size, const void* x, const void* y, Py_ssize_t n) {
    return size == sizeof(double) ? sklseq_sum_max_double(x, y, n) : sklseq_sum_max_float(x, y, n);
}

#endif

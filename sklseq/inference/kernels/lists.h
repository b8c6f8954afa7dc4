/* Loops over sparse transitions, for eight sequences at a time (`_sparse.pxd`).
 *
 * x and y hold the numbers of eight sequences interleaved: x(i, k) = x[8 * i + k]. List j holds the
 * entries p from start[j] to start[j + 1] - 1, whose other label is at[p] and whose value is s[p].
 */
#ifndef SKLSEQ_LISTS_H
#define SKLSEQ_LISTS_H

#include "sklseq/_lib/compiler.h"

/* y(j, k) = sum_{p in list j} s(p) x(at(p), k), k < 8 */
SKLSEQ_SUM void sklseq_list_products(
    const int* start, const int* at, const double* s, Py_ssize_t L, const double* x, double* y
) {
    Py_ssize_t j, p, k;
    for (j = 0; j < L; j++) {
        double a[8], b[8], v;
        const double* row;
        sklseq_lanes a[k] = 0;
        sklseq_lanes b[k] = 0;
        for (p = start[j]; p + 1 < start[j + 1]; p += 2) {
            row = x + 8 * (Py_ssize_t) at[p];
            v = s[p];
            sklseq_lanes a[k] += v * row[k];
            row = x + 8 * (Py_ssize_t) at[p + 1];
            v = s[p + 1];
            sklseq_lanes b[k] += v * row[k];
            sklseq_one_row_at_a_time();
        }
        if (p < start[j + 1]) {
            row = x + 8 * (Py_ssize_t) at[p];
            v = s[p];
            sklseq_lanes a[k] += v * row[k];
        }
        sklseq_lanes y[8 * j + k] = a[k] + b[k];
    }
}

/* The same for one sequence. */
SKLSEQ_SUM void sklseq_list_products_one(
    const int* start, const int* at, const double* s, Py_ssize_t L, const double* x, double* y
) {
    Py_ssize_t j, p, k;
    for (j = 0; j < L; j++) {
        double a[4] = {0, 0, 0, 0};
        for (p = start[j]; p + 3 < start[j + 1]; p += 4)
            for (k = 0; k < 4; k++) a[k] += s[p + k] * x[at[p + k]];
        for (; p < start[j + 1]; p++) a[0] += s[p] * x[at[p]];
        y[j] = (a[0] + a[1]) + (a[2] + a[3]);
    }
}

/* y(j, k) = max_{p in list j} s(p) + x(at(p), k); y(j, k) is kept where list j is empty */
SKLSEQ_MAX void sklseq_list_maxima(
    const int* start, const int* at, const double* s, Py_ssize_t L, const double* x, double* y
) {
    Py_ssize_t j, p, k;
    for (j = 0; j < L; j++) {
        double a[8], v, w;
        const double* row;
        p = start[j];
        if (p == start[j + 1]) continue;
        row = x + 8 * (Py_ssize_t) at[p];
        w = s[p];
        sklseq_lanes a[k] = w + row[k];
        for (p++; p < start[j + 1]; p++) {
            row = x + 8 * (Py_ssize_t) at[p];
            w = s[p];
            sklseq_lanes { v = w + row[k]; a[k] = v > a[k] ? v : a[k]; }
            sklseq_one_row_at_a_time();
        }
        sklseq_lanes y[8 * j + k] = a[k];
    }
}

/* y(j, k) = max(y(j, k), top(k)) where f(j) > 0 */
SKLSEQ_MAX void sklseq_raise(
    const double* restrict f, const double* restrict top, Py_ssize_t L, double* restrict y
) {
    Py_ssize_t j, k;
    for (j = 0; j < L; j++)
        if (f[j] > 0) {
            sklseq_lanes y[8 * j + k] = y[8 * j + k] < top[k] ? top[k] : y[8 * j + k];
            sklseq_one_row_at_a_time();
        }
}

/* y(j, k) += f(j) sum_i c(i) x(i, k); returns whether a result is below guard times this term */
SKLSEQ_SUM int sklseq_add_common(
    const double* c, const double* f, Py_ssize_t L, double guard, const double* restrict x,
    double* restrict y
) {
    Py_ssize_t i, k;
    double total[8], worst[8], v, common;
    sklseq_lanes total[k] = worst[k] = 0;
    for (i = 0; i < L; i++) {
        v = c ? c[i] : 1;
        sklseq_lanes total[k] += v * x[8 * i + k];
        sklseq_one_row_at_a_time();
    }
    for (i = 0; i < L; i++) {
        v = f ? f[i] : 1;
        sklseq_lanes {
            common = v * total[k];
            y[8 * i + k] += common;
            common = y[8 * i + k] - guard * common;
            worst[k] = common < worst[k] ? common : worst[k];
        }
        sklseq_one_row_at_a_time();
    }
    for (k = 1; k < 8; k++) worst[0] = worst[k] < worst[0] ? worst[k] : worst[0];
    return worst[0] < 0;
}

/* sums(p) += sum_{t < 64} a(t) u(at(p), t) */
SKLSEQ_SUM void sklseq_list_pairs(
    const int* at, Py_ssize_t n, const double* a, const double* u, double* sums
) {
    Py_ssize_t p, t, k;
    for (p = 0; p < n; p++) {
        const double* row = u + 64 * (Py_ssize_t) at[p];
        double acc[8];
        sklseq_lanes acc[k] = 0;
        for (t = 0; t < 64; t += 8)
            sklseq_lanes acc[k] += a[t + k] * row[t + k];
        sums[p] += ((acc[0] + acc[4]) + (acc[1] + acc[5]))
            + ((acc[2] + acc[6]) + (acc[3] + acc[7]));
        sklseq_one_row_at_a_time();
    }
}

/* interleave: x(i * stride + r) = rows(r, i); put_apart: rows(r, i) = y(i, r), and add_apart: +=.
   Sums, not maxima: -inf is added to -inf here. */
#define SKLSEQ_POINTER(r) real_* row##r = rows[r];
#define SKLSEQ_INTERLEAVE(r) x[r] = row##r[i];
#define SKLSEQ_PUT(r) row##r[i] = (real_) y[8 * i + r];
#define SKLSEQ_ADD(r) row##r[i] += (real_) y[8 * i + r];
#define SKLSEQ_TRANSPOSES(real)                                                                 \
    SKLSEQ_SUM void sklseq_interleave_##real(                                                   \
        const real* const* rows, Py_ssize_t L, double* restrict x, Py_ssize_t stride            \
    ) {                                                                                         \
        typedef const real real_;                                                               \
        Py_ssize_t i;                                                                           \
        SKLSEQ_ROWS_8(SKLSEQ_POINTER)                                                           \
        for (i = 0; i < L; i++, x += stride) { SKLSEQ_ROWS_8(SKLSEQ_INTERLEAVE) }               \
    }                                                                                           \
    SKLSEQ_SUM void sklseq_put_apart_##real(                                                    \
        const double* restrict y, Py_ssize_t L, real* const* rows                               \
    ) {                                                                                         \
        typedef real real_;                                                                     \
        Py_ssize_t i;                                                                           \
        SKLSEQ_ROWS_8(SKLSEQ_POINTER)                                                           \
        for (i = 0; i < L; i++) { SKLSEQ_ROWS_8(SKLSEQ_PUT) }                                   \
    }                                                                                           \
    SKLSEQ_SUM void sklseq_add_apart_##real(                                                    \
        const double* restrict y, Py_ssize_t L, real* const* rows                               \
    ) {                                                                                         \
        typedef real real_;                                                                     \
        Py_ssize_t i;                                                                           \
        SKLSEQ_ROWS_8(SKLSEQ_POINTER)                                                           \
        for (i = 0; i < L; i++) { SKLSEQ_ROWS_8(SKLSEQ_ADD) }                                   \
    }
SKLSEQ_TRANSPOSES(float)
SKLSEQ_TRANSPOSES(double)

/* The same by the size of a number; rows points to pointers to numbers of that size. */
static inline void sklseq_interleave(
    size_t size, const void* rows, Py_ssize_t L, double* x, Py_ssize_t stride
) {
    if (size == sizeof(double)) sklseq_interleave_double(rows, L, x, stride);
    else sklseq_interleave_float(rows, L, x, stride);
}

static inline void sklseq_put_apart(size_t size, const double* y, Py_ssize_t L, const void* rows) {
    if (size == sizeof(double)) sklseq_put_apart_double(y, L, rows);
    else sklseq_put_apart_float(y, L, rows);
}

static inline void sklseq_add_apart(size_t size, const double* y, Py_ssize_t L, const void* rows) {
    if (size == sizeof(double)) sklseq_add_apart_double(y, L, rows);
    else sklseq_add_apart_float(y, L, rows);
}

#endif

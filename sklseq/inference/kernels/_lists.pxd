"""Loops over lists of transitions, eight sequences side by side: what they are for, `_sparse.pxd`.

They are C for the reasons that `_blocks.pxd` gives: not to be inlined, and for maxima the promise
that NaN and the sign of zero do not matter.
"""


cdef extern from *:
    """
    #if defined(__GNUC__) && !defined(__clang__)
    #define SKLSEQ_LIST_SUM __attribute__((noinline)) static
    #define SKLSEQ_LIST_MAX \\
        __attribute__((noinline, optimize("finite-math-only", "no-signed-zeros"))) static
    #define sklseq_entry_by_entry() __asm__ volatile ("")
    #else
    #define SKLSEQ_LIST_SUM static
    #define SKLSEQ_LIST_MAX static
    #define sklseq_entry_by_entry() ((void) 0)
    #endif
    #define sklseq_eight for (k = 0; k < 8; k++)

    /* y(j, k) = sum_{p in list j} s(p) x(at(p), k), k < 8 */
    SKLSEQ_LIST_SUM void sklseq_list_products(
        const int* start, const int* at, const double* s, Py_ssize_t L, const double* x, double* y
    ) {
        Py_ssize_t j, p, k;
        for (j = 0; j < L; j++) {
            double a[8], b[8], v;
            const double* row;
            sklseq_eight a[k] = 0;
            sklseq_eight b[k] = 0;
            for (p = start[j]; p + 1 < start[j + 1]; p += 2) {
                row = x + 8 * (Py_ssize_t) at[p];
                v = s[p];
                sklseq_eight a[k] += v * row[k];
                row = x + 8 * (Py_ssize_t) at[p + 1];
                v = s[p + 1];
                sklseq_eight b[k] += v * row[k];
                sklseq_entry_by_entry();
            }
            if (p < start[j + 1]) {
                row = x + 8 * (Py_ssize_t) at[p];
                v = s[p];
                sklseq_eight a[k] += v * row[k];
            }
            sklseq_eight y[8 * j + k] = a[k] + b[k];
        }
    }
    /* The same for one sequence. */
    SKLSEQ_LIST_SUM void sklseq_list_products_one(
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
    /* y(j, k) = max_{p in list j} s(p) + x(at(p), k); what y holds stays where a list is empty */
    SKLSEQ_LIST_MAX void sklseq_list_maxima(
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
            sklseq_eight a[k] = w + row[k];
            for (p++; p < start[j + 1]; p++) {
                row = x + 8 * (Py_ssize_t) at[p];
                w = s[p];
                sklseq_eight { v = w + row[k]; a[k] = v > a[k] ? v : a[k]; }
                sklseq_entry_by_entry();
            }
            sklseq_eight y[8 * j + k] = a[k];
        }
    }
    /* y(j, k) += f(j) sum_i c(i) x(i, k); returns whether one cancels, as `cancels` has it */
    SKLSEQ_LIST_SUM int sklseq_add_common(
        const double* c, const double* f, Py_ssize_t L, double guard, const double* restrict x,
        double* restrict y
    ) {
        Py_ssize_t i, k;
        double total[8], worst[8], v, common;
        sklseq_eight total[k] = worst[k] = 0;
        for (i = 0; i < L; i++) {
            v = c ? c[i] : 1;
            sklseq_eight total[k] += v * x[8 * i + k];
            sklseq_entry_by_entry();
        }
        for (i = 0; i < L; i++) {
            v = f ? f[i] : 1;
            sklseq_eight {
                common = v * total[k];
                y[8 * i + k] += common;
                common = y[8 * i + k] - guard * common;
                worst[k] = common < worst[k] ? common : worst[k];
            }
            sklseq_entry_by_entry();
        }
        for (k = 1; k < 8; k++) worst[0] = worst[k] < worst[0] ? worst[k] : worst[0];
        return worst[0] < 0;
    }
    #define SKLSEQ_SIDE_BY_SIDE(real)                                                            \
    SKLSEQ_LIST_SUM void sklseq_side_by_side_##real(                                             \
        const real* const* rows, Py_ssize_t L, double* restrict x, Py_ssize_t stride             \
    ) {                                                                                          \
        Py_ssize_t i;                                                                            \
        const real *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3],                       \
            *e = rows[4], *f = rows[5], *g = rows[6], *h = rows[7];                              \
        for (i = 0; i < L; i++) {                                                                \
            x[0] = a[i]; x[1] = b[i]; x[2] = c[i]; x[3] = d[i];                                  \
            x[4] = e[i]; x[5] = f[i]; x[6] = g[i]; x[7] = h[i];                                  \
            x += stride;                                                                         \
        }                                                                                        \
    }                                                                                            \
    /* Not the maxima's promise about infinities: -inf is added to -inf here. */                 \
    SKLSEQ_LIST_SUM void sklseq_add_apart_##real(                                                \
        const double* restrict y, Py_ssize_t L, real* const* rows                                \
    ) {                                                                                          \
        Py_ssize_t i;                                                                            \
        real *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3],                             \
            *e = rows[4], *f = rows[5], *g = rows[6], *h = rows[7];                              \
        for (i = 0; i < L; i++) {                                                                \
            a[i] += (real) y[8 * i]; b[i] += (real) y[8 * i + 1];                                \
            c[i] += (real) y[8 * i + 2]; d[i] += (real) y[8 * i + 3];                            \
            e[i] += (real) y[8 * i + 4]; f[i] += (real) y[8 * i + 5];                            \
            g[i] += (real) y[8 * i + 6]; h[i] += (real) y[8 * i + 7];                            \
        }                                                                                        \
    }                                                                                            \
    SKLSEQ_LIST_SUM void sklseq_apart_##real(                                                    \
        const double* restrict y, Py_ssize_t L, real* const* rows                                \
    ) {                                                                                          \
        Py_ssize_t i;                                                                            \
        real *a = rows[0], *b = rows[1], *c = rows[2], *d = rows[3],                             \
            *e = rows[4], *f = rows[5], *g = rows[6], *h = rows[7];                              \
        for (i = 0; i < L; i++) {                                                                \
            a[i] = y[8 * i]; b[i] = y[8 * i + 1]; c[i] = y[8 * i + 2]; d[i] = y[8 * i + 3];      \
            e[i] = y[8 * i + 4]; f[i] = y[8 * i + 5]; g[i] = y[8 * i + 6]; h[i] = y[8 * i + 7];  \
        }                                                                                        \
    }
    /* y(j, k) = max(y(j, k), top(k)) where f(j) > 0 */
    SKLSEQ_LIST_MAX void sklseq_raise(
        const double* restrict f, const double* restrict top, Py_ssize_t L, double* restrict y
    ) {
        Py_ssize_t j, k;
        for (j = 0; j < L; j++)
            if (f[j] > 0) {
                sklseq_eight y[8 * j + k] = y[8 * j + k] < top[k] ? top[k] : y[8 * j + k];
                sklseq_entry_by_entry();
            }
    }
    SKLSEQ_SIDE_BY_SIDE(float)
    SKLSEQ_SIDE_BY_SIDE(double)
    /* sums(p) += sum_{t < 64} a(t) u(at(p), t) */
    SKLSEQ_LIST_SUM void sklseq_list_pairs(
        const int* at, Py_ssize_t n, const double* a, const double* u, double* sums
    ) {
        Py_ssize_t p, t, k;
        for (p = 0; p < n; p++) {
            const double* row = u + 64 * (Py_ssize_t) at[p];
            double acc[8];
            sklseq_eight acc[k] = 0;
            for (t = 0; t < 64; t += 8)
                sklseq_eight acc[k] += a[t + k] * row[t + k];
            sums[p] += ((acc[0] + acc[4]) + (acc[1] + acc[5]))
                + ((acc[2] + acc[6]) + (acc[3] + acc[7]));
            sklseq_entry_by_entry();
        }
    }
    """
    void sklseq_list_products(
        const int* start, const int* at, const double* s, Py_ssize_t L, const double* x, double* y
    ) noexcept nogil
    void sklseq_list_products_one(
        const int* start, const int* at, const double* s, Py_ssize_t L, const double* x, double* y
    ) noexcept nogil
    void sklseq_list_maxima(
        const int* start, const int* at, const double* s, Py_ssize_t L, const double* x, double* y
    ) noexcept nogil
    void sklseq_list_pairs(
        const int* at, Py_ssize_t n, const double* a, const double* u, double* sums
    ) noexcept nogil
    int sklseq_add_common(
        const double* c, const double* f, Py_ssize_t L, double guard, const double* x, double* y
    ) noexcept nogil
    void sklseq_raise(const double* f, const double* top, Py_ssize_t L, double* y) noexcept nogil
    void sklseq_side_by_side_float(
        const float* const* rows, Py_ssize_t L, double* x, Py_ssize_t stride
    ) noexcept nogil
    void sklseq_side_by_side_double(
        const double* const* rows, Py_ssize_t L, double* x, Py_ssize_t stride
    ) noexcept nogil
    void sklseq_add_apart_float(const double* y, Py_ssize_t L, float* const* rows) noexcept nogil
    void sklseq_add_apart_double(const double* y, Py_ssize_t L, double* const* rows) noexcept nogil
    void sklseq_apart_float(const double* y, Py_ssize_t L, float* const* rows) noexcept nogil
    void sklseq_apart_double(const double* y, Py_ssize_t L, double* const* rows) noexcept nogil

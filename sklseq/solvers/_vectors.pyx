"""Operations of L-BFGS on long vectors, with as few passes over memory as possible.

The pairs (s_i, y_i) are the rows of one matrix, first all s, then all y. In that basis the
two-loop recursion needs only inner products, so an iteration reads the pairs twice: once for the
products, once to combine them.
"""

import numpy as np
from scipy.linalg import cython_lapack

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer

from sklseq._lib.lanes cimport real
cimport sklseq._lib.prefetch

cdef extern from *:
    """
    /* By default GCC vectorises across blocks of eight numbers, which needs shuffles, or not at all
       after inlining: prevented as in `inference/kernels/_blocks.pxd`. */
    #if defined(__GNUC__) && !defined(__clang__)
    #define SKLSEQ_PRODUCTS __attribute__((noinline)) static
    #define sklseq_block_by_block() __asm__ volatile ("")
    #else
    #define SKLSEQ_PRODUCTS static
    #define sklseq_block_by_block() ((void) 0)
    #endif
    #define sklseq_eight for (k = 0; k < 8; k++)
    #define SKLSEQ_THREE_PRODUCTS(stored, suffix)                                                \\
    SKLSEQ_PRODUCTS void sklseq_three_products_##suffix(                                         \\
        const stored* row, const double* s, const double* y, const double* v, Py_ssize_t n,      \\
        const stored* next, double* out                                                          \\
    ) {                                                                                          \\
        double a[8], b[8], c[8], x[8];                                                           \\
        Py_ssize_t i, k;                                                                         \\
        sklseq_eight a[k] = 0;                                                                   \\
        sklseq_eight b[k] = 0;                                                                   \\
        sklseq_eight c[k] = 0;                                                                   \\
        for (i = 0; i < n; i += 8) {                                                             \\
            sklseq_prefetch(next + i);                                                           \\
            sklseq_eight x[k] = row[i + k];                                                      \\
            sklseq_eight a[k] += x[k] * s[i + k];                                                \\
            sklseq_eight b[k] += x[k] * y[i + k];                                                \\
            sklseq_eight c[k] += x[k] * v[i + k];                                                \\
            sklseq_block_by_block();                                                             \\
        }                                                                                        \\
        sklseq_eight out[0] += a[k];                                                             \\
        sklseq_eight out[1] += b[k];                                                             \\
        sklseq_eight out[2] += c[k];                                                             \\
    }
    SKLSEQ_THREE_PRODUCTS(float, float)
    SKLSEQ_THREE_PRODUCTS(double, double)
    """
    void sklseq_three_products_float(
        const float* row, const double* s, const double* y, const double* v, Py_ssize_t n,
        const float* next, double* out
    ) noexcept nogil
    void sklseq_three_products_double(
        const double* row, const double* s, const double* y, const double* v, Py_ssize_t n,
        const double* next, double* out
    ) noexcept nogil

ctypedef fused stored:
    float
    double

ctypedef fused other:
    float
    double

# Cholesky's functions of LAPACK, by address: SciPy's Python functions hold the interpreter lock.
ctypedef void (*Factorise)(char*, int*, double*, int*, int*) noexcept nogil
ctypedef void (*Solve)(char*, int*, int*, double*, int*, double*, int*, int*) noexcept nogil


cdef void* lapack(str name):
    capsule = cython_lapack.__pyx_capi__[name]
    return PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))


cdef Factorise dpotrf = <Factorise> lapack("dpotrf")
cdef Solve dpotrs = <Solve> lapack("dpotrs")

# Elements of a chunk, which stays in the first-level cache for all rows.
cdef Py_ssize_t CHUNK = 512


cdef inline double dot_product(const stored* a, const other* b, Py_ssize_t n) noexcept nogil:
    # In float64, with eight partial sums in vector registers.
    cdef double acc[8]
    cdef double total = 0
    cdef Py_ssize_t k, j
    for j in range(8):
        acc[j] = 0
    for k in range(n // 8):
        for j in range(8):
            acc[j] += <double> a[8 * k + j] * <double> b[8 * k + j]
    for k in range(n // 8 * 8, n):
        total += <double> a[k] * <double> b[k]
    for j in range(8):
        total += acc[j]
    return total


cdef void multiply_chunk(
    const stored[:, ::1] pairs, const double* new, Py_ssize_t a, Py_ssize_t n, Py_ssize_t used,
    Py_ssize_t alone, double[:, ::1] products
) noexcept nogil:
    # Add inner products of rows of pairs with s, y and v, CHUNK numbers each, over the n columns
    # from a on. Of all pairs in use, or only of pair ``alone`` if it is not negative.
    cdef Py_ssize_t m = pairs.shape[0] // 2, whole = n // 8 * 8, r, k
    cdef const stored* row
    cdef const stored* next          # the next row to read, for prefetching
    for r in range(2 * m):
        if r % m >= used or 0 <= alone != r % m:
            continue
        row = &pairs[r, a]
        next = &pairs[r + 1, a] if r + 1 < 2 * m else &pairs[0, a + n - 1]
        if stored is float:
            sklseq_three_products_float(row, new, new + 512, new + 1024, whole, next,
                                        &products[r, 0])
        else:
            sklseq_three_products_double(row, new, new + 512, new + 1024, whole, next,
                                         &products[r, 0])
        for k in range(whole, n):
            products[r, 0] += row[k] * new[k]
            products[r, 1] += row[k] * new[512 + k]
            products[r, 2] += row[k] * new[1024 + k]
    products[2 * m, 2] += dot_product(new + 1024, new + 1024, n)


def store_and_multiply(
    stored[:, ::1] pairs,            # (2 m, n)   IN/OUT  rows `slot` and m + `slot` are written
    const real[::1] step,            # (n,)       w - w_old is `scale` * step
    double scale,
    const real[::1] gradient,        # (n,)       of the smooth part, now
    const real[::1] previous,        # (n,)       and before the step
    const real[::1] v,               # (n,)       (pseudo-)gradient
    Py_ssize_t slot,
    Py_ssize_t used,                 # pairs in use, the new one included
    bint alone,                      # whether only products with itself and with v are wanted
    double[:, ::1] products,         # (2 m + 1, 3)   OUT  rows . s, rows . y, rows . v; last: v . v
    Py_ssize_t first, Py_ssize_t last,
):
    """Write the new pair and its inner products over the columns first to last - 1."""
    cdef Py_ssize_t m = pairs.shape[0] // 2, a, b, k
    cdef stored* s = &pairs[slot, 0]
    cdef stored* y = &pairs[m + slot, 0]
    cdef double new[1536]            # s, y, v of a chunk
    products[:, :] = 0
    with nogil:
        for a in range(first, last, 512):
            b = a + CHUNK if a + CHUNK < last else last
            # One loop per array: the compiler does not vectorise a loop over so many arrays.
            for k in range(a, b):
                s[k] = <stored> (scale * step[k])
            for k in range(a, b):
                y[k] = <stored> (gradient[k] - previous[k])
            for k in range(b - a):
                new[k] = s[a + k]
            for k in range(b - a):
                new[512 + k] = y[a + k]
            for k in range(b - a):
                new[1024 + k] = v[a + k]
            multiply_chunk(pairs, new, a, b - a, used, slot if alone else -1, products)


def products_with_newest(
    const stored[:, ::1] pairs,      # (2 m, n)
    const unsigned char[::1] free,   # (n,)       0 or 1
    const real[::1] v,               # (n,)
    Py_ssize_t slot,
    Py_ssize_t used,
    double[:, ::1] products,         # (2 m + 1, 3)   OUT, as in `store_and_multiply`
    Py_ssize_t first, Py_ssize_t last,
):
    """Inner products of all pairs with pair ``slot`` and v, over the columns that are free."""
    cdef Py_ssize_t m = pairs.shape[0] // 2, a, b, k
    cdef double new[1536]
    products[:, :] = 0
    with nogil:
        for a in range(first, last, 512):
            b = a + CHUNK if a + CHUNK < last else last
            for k in range(b - a):
                new[k] = pairs[slot, a + k] if free[a + k] else 0
            for k in range(b - a):
                new[512 + k] = pairs[m + slot, a + k] if free[a + k] else 0
            for k in range(b - a):
                new[1024 + k] = v[a + k] if free[a + k] else 0
            multiply_chunk(pairs, new, a, b - a, used, -1, products)


def combine(
    const stored[:, ::1] pairs,      # (2 m, n)
    const double[::1] coefficients,  # (2 m + 1,)   the last is of v
    const real[::1] v,               # (n,)
    Py_ssize_t used,
    real[::1] out,                   # (n,)   OUT
    Py_ssize_t first, Py_ssize_t last,
):
    """out = sum_r coefficients[r] * pairs[r] + coefficients[2 m] * v."""
    cdef Py_ssize_t m = pairs.shape[0] // 2, a, b, k, r
    cdef double acc[512]
    cdef double c
    with nogil:
        for a in range(first, last, 512):
            b = a + CHUNK if a + CHUNK < last else last
            c = coefficients[2 * m]
            for k in range(b - a):
                acc[k] = c * v[a + k]
            for r in range(2 * m):
                c = coefficients[r]
                if r % m >= used or c == 0:
                    continue
                for k in range(b - a):
                    acc[k] += c * pairs[r, a + k]
            for k in range(b - a):
                out[a + k] = <real> acc[k]


def products_among(
    const stored[:, ::1] pairs,      # (2 m, n)
    const unsigned char[::1] before,  # (n,)       0 or 1, as is `free`
    const unsigned char[::1] free,   # (n,)
    Py_ssize_t used,
    double[:, ::1] gram,             # (2 m, 2 m)   OUT, 0 before
    Py_ssize_t first, Py_ssize_t last,
):
    """Inner products of all pairs over columns that are free, less those that were free before."""
    cdef Py_ssize_t m = pairs.shape[0] // 2, a, b, k, r, q, n
    cdef double[:, ::1] kept = np.empty((2 * used, 512))
    cdef double signs[512]
    cdef double signed[512]
    cdef Py_ssize_t at[512]
    with nogil:
        for a in range(first, last, 512):
            b = a + CHUNK if a + CHUNK < last else last
            n = 0
            for k in range(a, b):
                at[n], signs[n] = k, free[k] - before[k]
                n += free[k] != before[k]
            if n == 0:
                continue
            for r in range(2 * used):
                for k in range(n):
                    kept[r, k] = pairs[r if r < used else m + r - used, at[k]]
            for r in range(2 * used):
                for k in range(n):
                    signed[k] = signs[k] * kept[r, k]
                for q in range(r + 1):
                    gram[r if r < used else m + r - used, q if q < used else m + q - used] += (
                        dot_product(&signed[0], &kept[q, 0], n)
                    )
        for r in range(2 * m):
            for q in range(r if r % m < used else 0):
                gram[q, r] = gram[r, q]


def two_loops(
    const long long[::1] pairs,      # the newest first
    const double[:, :] gram,         # (2 m, 2 m)
    const double[:] with_v,          # (2 m + 1,)
    Py_ssize_t latest,
    double[::1] c,                   # (2 m + 1,)   OUT, 0 before
):
    """Coefficients of -H v in the basis (s, y, v); H is scaled by the ``latest`` pairs."""
    cdef Py_ssize_t m = gram.shape[0] // 2, n = pairs.shape[0], k, i, j, q
    cdef double[::1] a = np.empty(n)
    cdef double x, scale = 0
    c[2 * m] = -1
    with nogil:
        for k in range(n):
            i = pairs[k]
            x = c[2 * m] * with_v[i]
            for q in range(k):       # c is 0 elsewhere
                x += c[m + pairs[q]] * gram[i, m + pairs[q]]
            a[k] = x / gram[i, m + i]
            c[m + i] = -a[k]
            if k < latest:
                scale = max(scale, gram[i, m + i] / gram[m + i, m + i])
        for j in range(2 * m + 1):
            c[j] *= scale
        for k in range(n - 1, -1, -1):
            i = pairs[k]
            x = c[2 * m] * with_v[m + i]
            for q in range(n):
                j = pairs[q]
                x += c[j] * gram[m + i, j] + c[m + j] * gram[m + i, m + j]
            c[i] = a[k] - x / gram[i, m + i]


def step_from(
    const real[::1] w, double t, const real[::1] p, real[::1] out, Py_ssize_t first, Py_ssize_t last
):
    """out = w + t * p."""
    cdef Py_ssize_t k
    cdef real scale = <real> t
    with nogil:
        for k in range(first, last):
            out[k] = w[k] + scale * p[k]


def dot(const real[::1] a, const real[::1] b, Py_ssize_t first, Py_ssize_t last):
    """Inner product in float64."""
    cdef double total = 0
    if first < last:
        with nogil:
            total = dot_product(&a[first], &b[first], last - first)
    return total


def scaled_square(const real[::1] a, const other[::1] scale, Py_ssize_t first, Py_ssize_t last):
    """Sum of (a * scale)^2."""
    cdef double total = 0, x
    cdef Py_ssize_t k
    with nogil:
        for k in range(first, last):
            x = <double> a[k] * scale[k]
            total += x * x
    return total


def weighted_norm(const real[::1] w, const double[::1] l1, Py_ssize_t first, Py_ssize_t last):
    """Sum of l1 * |w|."""
    cdef double total = 0
    cdef Py_ssize_t k
    with nogil:
        for k in range(first, last):
            total += l1[k] * abs(<double> w[k])
    return total


cdef inline double clip(double x, double limit) noexcept nogil:
    # The number in [-limit, limit] nearest to x.
    x = x if x < limit else limit
    return x if x > -limit else -limit


def pseudo_gradient(
    const real[::1] w, const real[::1] g, const double[::1] l1, real[::1] out,
    Py_ssize_t first, Py_ssize_t last,
):
    """out = g + l1 * sign(w), and g shrunk towards 0 by l1 where w = 0."""
    cdef Py_ssize_t k
    cdef double at_zero, change
    with nogil:
        for k in range(first, last):
            at_zero = -clip(g[k], l1[k])
            change = l1[k] if w[k] > 0 else -l1[k]
            out[k] = <real> (g[k] + (at_zero if w[k] == 0 else change))


def proximal_step(
    const real[::1] w, const real[::1] g, const double[::1] l1, double sigma, real[::1] out,
    Py_ssize_t first, Py_ssize_t last,
):
    """out = argmin_u g . u + sigma / 2 |u - w|^2 + l1 . |u|, with 0 for weights that change sign.

    Returns the first-order decrease, -g . (out - w) - l1 . (|out| - |w|).
    """
    cdef Py_ssize_t k
    cdef double u, promise = 0, inverse = 1 / sigma
    with nogil:
        for k in range(first, last):
            u = w[k] - g[k] * inverse
            u -= clip(u, l1[k] * inverse)
            u = 0 if u * w[k] < 0 else u
            out[k] = <real> u
            promise -= g[k] * (<double> out[k] - w[k])
            promise -= l1[k] * (abs(<double> out[k]) - abs(<double> w[k]))
    return promise


def orthant_step(
    const real[::1] w, double t, const real[::1] p, const real[::1] u, const real[::1] v,
    real[::1] out, Py_ssize_t first, Py_ssize_t last,
):
    """out = w + t * p where u is not 0, (1 - t) * w elsewhere; 0 for other signs than those of u.

    Returns v . (out - w).
    """
    cdef Py_ssize_t k
    cdef double x, gain = 0
    with nogil:
        for k in range(first, last):
            x = w[k] + t * (p[k] if u[k] != 0 else -w[k])
            out[k] = <real> (0 if x * u[k] < 0 else x)
            gain += v[k] * (<double> out[k] - w[k])
    return gain


def factorise_block(
    const double[:, ::1] block,      # (size, size)
    const long long[::1] kept,       # (n,)       rows of the block
    double[:, ::1] factor,           # (n, n)     OUT  Cholesky factor of these rows, by columns
):
    """Cholesky factor of the rows and columns ``kept`` of a block; False if it has none."""
    cdef int n = <int> kept.shape[0], failed = 0
    cdef Py_ssize_t i, j
    if n == 0:
        return True
    with nogil:
        for j in range(n):
            for i in range(j, n):
                factor[j, i] = block[kept[j], kept[i]]
        dpotrf("L", &n, &factor[0, 0], &n, &failed)
    return failed == 0


def change_by_block(
    double[:, ::1] factor,           # (n, n)     of `factorise_block`
    const long long[::1] at,         # (n,)       columns of the rows of the block
    const double[:, ::1] rows,       # (m, n_columns)
    double[:, ::1] work,             # (m, n)     scratch
    double[:, ::1] out,              # (m, n_columns)   OUT, in these columns
):
    """out = B^-1 z - z for each row z, in the columns of one block."""
    cdef int n = <int> at.shape[0], m = <int> rows.shape[0], failed = 0
    cdef Py_ssize_t i, j
    if n == 0 or m == 0:
        return
    with nogil:
        for j in range(m):
            for i in range(n):
                work[j, i] = rows[j, at[i]]
        dpotrs("L", &n, &m, &factor[0, 0], &n, &work[0, 0], &n, &failed)
        for j in range(m):
            for i in range(n):
                out[j, at[i]] = work[j, i] - rows[j, at[i]]


def descend_coordinates(
    const double[:, ::1] H,  # symmetric, with a positive diagonal
    double[::1] slope,       # gradient of the quadratic function at u; overwritten
    double[::1] u,           # overwritten
    const double[::1] l1,
    Py_ssize_t n_sweeps,
):
    """Cyclic coordinate descent on a quadratic function of Hessian H plus Σ_k l1_k |u_k|:

        u_k = soft(H_kk u_k - slope_k, l1_k) / H_kk
    """
    cdef Py_ssize_t n = len(u), _sweep, k, i
    cdef double curvature, new, limit, change
    with nogil:
        for _sweep in range(n_sweeps):
            for k in range(n):
                curvature, limit = H[k, k], l1[k]
                new = curvature * u[k] - slope[k]
                new = new - limit if new > limit else new + limit if new < -limit else 0
                new = new / curvature
                change = new - u[k]
                if change != 0:
                    u[k] = new
                    for i in range(n):
                        slope[i] += change * H[k, i]

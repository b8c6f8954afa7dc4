"""Long-vector work of L-BFGS, with as few passes over memory as possible.

The pairs (s_i, y_i) are the rows of one matrix, first all s, then all y. In that basis the
two-loop recursion needs only inner products, so an iteration reads the pairs twice: once for the
products, once to combine them.
"""

from sklseq._lanes cimport real

ctypedef fused stored:
    float
    double

ctypedef fused other:
    float
    double

# Elements worked on at a time: they stay in the first-level cache for all rows.
cdef Py_ssize_t CHUNK = 512


cdef inline double dot_product(const stored* a, const other* b, Py_ssize_t n) noexcept nogil:
    # In float64 and in eight running sums, which the compiler can keep in vector registers.
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


def store_and_multiply(
    stored[:, ::1] pairs,            # (2 m, n)   IN/OUT  rows `slot` and m + `slot` are written
    const real[::1] step,            # (n,)       w - w_old is `scale` * step
    double scale,
    const real[::1] gradient,        # (n,)       of the smooth part, now
    const real[::1] previous,        # (n,)       and before the step
    const real[::1] v,               # (n,)       (pseudo-)gradient
    Py_ssize_t slot,
    Py_ssize_t used,                 # pairs in use, the new one included
    double[:, ::1] products,         # (2 m + 1, 3)   OUT  rows . s, rows . y, rows . v; last: v . v
    Py_ssize_t first, Py_ssize_t last,
):
    """Write the new pair and its inner products over the columns first to last - 1."""
    cdef Py_ssize_t m = pairs.shape[0] // 2, a, b, k, r
    cdef stored* s = &pairs[slot, 0]
    cdef stored* y = &pairs[m + slot, 0]
    cdef stored* row
    products[:, :] = 0
    with nogil:
        for a in range(first, last, 512):
            b = a + CHUNK if a + CHUNK < last else last
            for k in range(a, b):
                s[k] = <stored> (scale * step[k])
                y[k] = <stored> (gradient[k] - previous[k])
            for r in range(2 * m):
                if r % m >= used:
                    continue
                row = &pairs[r, a]
                products[r, 0] += dot_product(row, s + a, b - a)
                products[r, 1] += dot_product(row, y + a, b - a)
                products[r, 2] += dot_product(row, &v[a], b - a)
            products[2 * m, 2] += dot_product(&v[a], &v[a], b - a)


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
                if r % m >= used:
                    continue
                c = coefficients[r]
                for k in range(b - a):
                    acc[k] += c * pairs[r, a + k]
            for k in range(b - a):
                out[a + k] = <real> acc[k]


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

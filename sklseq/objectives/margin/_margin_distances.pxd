"""How far apart two paths are, ||phi(a) - phi(b)||^2, from the rows in which they differ.

Of every cell of phi that changes by v, the square changes by v (2 old + v). Paths are arrays of
labels; `differing` has the n rows in which they differ, counted from the sequence's first, row r.
"""


cdef inline Py_ssize_t find_differing(
    const short* a, const short* b, Py_ssize_t T, int[::1] differing
) noexcept nogil:
    cdef Py_ssize_t t, n = 0
    for t in range(T):
        if a[t] != b[t]:
            differing[n] = <int> t
            n += 1
    return n


cdef inline double distance_by_columns(
    const short* a, const short* b, const int[::1] differing, Py_ssize_t n, Py_ssize_t r,
    const long long[::1] indptr, const int[::1] local, const double[::1] data,
    double[:, ::1] cells
) noexcept nogil:
    # Of state features. `cells` (columns of the sequence, labels) is 0 before and after.
    cdef Py_ssize_t k, t, p
    cdef double total = 0, x = 1
    cdef double* cell
    for k in range(n):
        t = differing[k]
        for p in range(indptr[r + t], indptr[r + t + 1]):
            if data.shape[0]:
                x = data[p]
            cell = &cells[local[p], 0]
            total += x * (2 * cell[a[t]] + x)
            cell[a[t]] += x
            total += x * (x - 2 * cell[b[t]])
            cell[b[t]] -= x
    for k in range(n):
        t = differing[k]
        for p in range(indptr[r + t], indptr[r + t + 1]):
            cells[local[p], a[t]] = 0
            cells[local[p], b[t]] = 0
    return total


cdef inline double distance_by_gram(
    const short* a, const short* b, const int[::1] differing, Py_ssize_t n,
    const double* gram, Py_ssize_t stride
) noexcept nogil:
    # The same, where inner products of the sequence's rows are known.
    cdef Py_ssize_t k, m, t, u
    cdef int same
    cdef double total = 0
    for k in range(n):
        t = differing[k]
        total += 2 * gram[t * stride + t]
        for m in range(k):
            u = differing[m]
            same = (a[t] == a[u]) + (b[t] == b[u]) - (a[t] == b[u]) - (b[t] == a[u])
            total += 2 * same * gram[t * stride + u]
    return total


cdef inline double pair_distance(
    const short* a, const short* b, Py_ssize_t T, double[:, ::1] cells
) noexcept nogil:
    # Of counts of transitions. `cells` (labels, labels) is 0 before and after.
    cdef Py_ssize_t t
    cdef double total = 0
    cdef double* cell
    for t in range(1, T):
        if a[t] == b[t] and a[t - 1] == b[t - 1]:
            continue
        cell = &cells[a[t - 1], a[t]]
        total += 2 * cell[0] + 1
        cell[0] += 1
        cell = &cells[b[t - 1], b[t]]
        total += 1 - 2 * cell[0]
        cell[0] -= 1
    for t in range(1, T):
        cells[a[t - 1], a[t]] = 0
        cells[b[t - 1], b[t]] = 0
    return total

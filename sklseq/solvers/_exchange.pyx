"""The dual method of Goldfarb and Idnani for min ½ aᵀKa - hᵀa over a ≥ 0.

In each round the most violated constraint becomes active. A step ends when it is satisfied, or when
the multiplier of another constraint is 0, which then becomes inactive. With k the column of the new
constraint n in the active part of K, and N the inverse of that part,

    r = N k,   left = K_nn - kᵀr,   a_active ← a_active - step · r,   a_n ← a_n + step,

and N changes by a matrix of rank one when a constraint becomes active or inactive. If p becomes
inactive, r without its entry p is r - (r_p / N_pp) N_p, for the same n.
"""

from libc.math cimport INFINITY


def exchange(
    const double[:, ::1] K,          # (n, n)       with a diagonal of 1
    const double[::1] h,             # (n,)
    double[::1] a,                   # (n,)         IN/OUT  0 but for active constraints
    Py_ssize_t[::1] which,           # (n,)         IN/OUT  the active ones first
    double[:, ::1] inverse,          # (n, n)       IN/OUT  N in the first block
    Py_ssize_t n_active,
    double[:, ::1] work,             # (2, n)       scratch
    double least,                    # slack that counts as 0
    double most,                     # multiplier that shows a contradiction
    double dependent,                # `left` that counts as 0
    Py_ssize_t n_steps,
):
    """Change a, at most so many steps; returns whether no constraints contradict each other."""
    cdef Py_ssize_t n = h.shape[0], m = n_active, new = -1, last, i, j, _k
    cdef double[::1] r = work[0], slack = work[1]
    cdef double left, full, limit, x, step = 0, short = 0
    with nogil:
        for _k in range(n_steps):
            if new < 0:
                slack_of(K, h, a, which, m, slack)
                new = 0
                for i in range(1, n):
                    if slack[i] < slack[new]:
                        new = i
                short = -slack[new]
                if short <= least:
                    break
                for i in range(m):
                    r[i] = 0
                for j in range(m):
                    x = K[new, which[j]]
                    for i in range(m):
                        r[i] += x * inverse[j, i]
            left = K[new, new]
            for j in range(m):
                left -= K[new, which[j]] * r[j]
            full = short / left if left > dependent else INFINITY
            limit, last = INFINITY, -1
            for j in range(m):
                if r[j] > 0 and a[which[j]] / r[j] < limit:
                    limit, last = a[which[j]] / r[j], j
            step = min(limit, full)
            if step > most:  # the new constraint contradicts a combination of the active ones
                break
            for j in range(m):
                a[which[j]] = max(a[which[j]] - step * r[j], 0.0)
            a[new] += step
            short -= step * left
            if step == full:
                if m == n:  # rounding made one active twice
                    break
                enter(which, inverse, m, r, new, left)
                m += 1
                new = -1
            else:
                a[which[last]] = 0
                m -= 1
                x = r[last] / inverse[last, last]
                for i in range(m + 1):
                    r[i] -= x * inverse[last, i]
                r[last] = r[m]
                leave(which, inverse, m, last, slack)
    return step <= most


cdef void slack_of(
    const double[:, ::1] K, const double[::1] h, const double[::1] a, const Py_ssize_t[::1] which,
    Py_ssize_t m, double[::1] slack,
) noexcept nogil:
    # K a - h.
    cdef Py_ssize_t n = h.shape[0], i, j
    cdef double x
    for i in range(n):
        slack[i] = -h[i]
    for j in range(m):
        x = a[which[j]]
        for i in range(n):
            slack[i] += x * K[which[j], i]


cdef void enter(
    Py_ssize_t[::1] which, double[:, ::1] inverse, Py_ssize_t m, const double[::1] r,
    Py_ssize_t new, double left,
) noexcept nogil:
    # Make `new` the active constraint m.
    cdef Py_ssize_t i, j
    cdef double x
    for j in range(m):
        x = r[j] / left
        for i in range(m):
            inverse[j, i] += x * r[i]
        inverse[j, m] = inverse[m, j] = -x
    inverse[m, m] = 1 / left
    which[m] = new


cdef void leave(
    Py_ssize_t[::1] which, double[:, ::1] inverse, Py_ssize_t m, Py_ssize_t place,
    double[::1] column,              # scratch
) noexcept nogil:
    # Make the active constraint at `place` inactive; the last one, m, takes its place.
    cdef Py_ssize_t i, j
    cdef double x
    for i in range(m + 1):
        column[i] = inverse[place, i]
    for j in range(m + 1):
        x = column[j] / column[place]
        for i in range(m + 1):
            inverse[j, i] -= x * column[i]
    for i in range(m + 1):
        inverse[place, i] = inverse[m, i]
    for i in range(m + 1):
        inverse[i, place] = inverse[i, m]
    which[place] = which[m]

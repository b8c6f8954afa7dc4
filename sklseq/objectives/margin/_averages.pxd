"""Averages of iterates: a change counts by the weights of all iterates before it."""


cdef inline double stamp_of(int averaging, double count) noexcept nogil:
    # Of update number `count`; iterates have weight 1 (averaging 1), or k for the k-th (2).
    if averaging == 1:
        return count
    if averaging == 2:
        return 0.5 * count * (count + 1.0)
    return 0

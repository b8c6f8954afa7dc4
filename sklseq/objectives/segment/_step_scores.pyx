"""Scores of the potentials that stop at single steps, from the features of single tokens.

A *template* (length, kind, token, first, mark) gives one potential of each step e: of the span of
``length`` tokens that ends with e. Its features are those of token e + token, in the columns from
``first`` on. A token beyond the ends of the sequence has the column ``mark`` alone; so has the
token EVERYWHERE, which is beyond all ends.
"""

from libc.math cimport isfinite
from libc.stdint cimport int8_t, int32_t, int64_t

import numpy as np

EVERYWHERE = 1 << 40

cdef enum:  # columns of templates
    SPAN, KIND, TOKEN, FIRST, MARK


cdef Py_ssize_t place(const int64_t[::1] kept, int64_t column) noexcept nogil:
    # Number of a column among those kept, which rise; -1 if it is not one of them.
    cdef Py_ssize_t low = 0, high = min(<int64_t>kept.shape[0] - 1, column), middle
    while low < high and kept[high] != column:  # where all columns are kept, no search
        middle = (low + high) // 2
        if kept[middle] < column:
            low = middle + 1
        else:
            high = middle
    return high if high >= 0 and kept[high] == column else -1


cdef void add(
    const int64_t[::1] kept, const double[:, ::1] coef, int64_t column, double value, double* sums
) noexcept nogil:
    cdef Py_ssize_t y, at = place(kept, column)
    if at >= 0:
        for y in range(coef.shape[1]):
            sums[y] += value * coef[at, y]


def scores_of_templates(
    const int64_t[:, ::1] templates,  # (n_templates, 5)  by rising length
    const int64_t[::1] kept,          # (n_features,)     columns with weights, which rise
    const double[:, ::1] coef,        # (n_features, L)
    const int64_t[::1] ends,          # (n_rows + 1,)     rows of tokens base, base + 1, ...
    const int32_t[::1] columns,       # (n_entries,)
    const double[::1] values,         # (n_entries,)      or None: all are 1
    int64_t base,
    int64_t a,
    int64_t b,
    int64_t n,
):
    """Return (kind, start, scores, cuts) of the potentials that stop at steps a to b - 1.

    They are in the order of ``StepScores``; ``n`` is the number of tokens of the sequence. None if
    a score is not finite.
    """
    cdef Py_ssize_t p = 0, k, i, t, m = (b - a) * templates.shape[0], L = coef.shape[1]
    cdef int64_t e
    kinds, starts, cuts = np.empty(m, np.int8), np.empty(m, np.int64), np.zeros(b - a + 1, np.int64)
    scores = np.zeros((m, L))
    cdef int8_t[::1] kind = kinds
    cdef int64_t[::1] start = starts, cut = cuts
    cdef double[:, ::1] score = scores
    cdef double total = 0
    with nogil:
        for e in range(a, b):
            for k in range(templates.shape[0]):
                if templates[k, SPAN] > e + 1:
                    break
                kind[p], start[p] = <int8_t>templates[k, KIND], e + 1 - templates[k, SPAN]
                t = e + templates[k, TOKEN]
                if 0 <= t < n:
                    for i in range(ends[t - base], ends[t - base + 1]):
                        add(
                            kept, coef, templates[k, FIRST] + columns[i],
                            1 if values is None else values[i], &score[p, 0],
                        )
                else:
                    add(kept, coef, templates[k, MARK], 1, &score[p, 0])
                for i in range(L):
                    total += score[p, i] * 0  # NaN if a score is not finite
                p += 1
            cut[e - a + 1] = p
    return (kinds[:p], starts[:p], scores[:p], cuts) if isfinite(total) else None

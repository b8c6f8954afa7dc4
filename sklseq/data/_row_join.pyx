"""Kernels that join sparse matrices of ones by columns, and multiply them."""

from libc.stdint cimport int32_t, int64_t

import numpy as np


def place_rows(
    const int64_t[::1] indptr,  # (n_rows + 1,)
    const int32_t[::1] indices,
    int64_t shift,  # added to the columns
    int64_t[::1] at,  # (n_rows,) first free place of each row of out      IN / OUT
    int32_t[::1] out,
):
    """Append the columns of each row to those of the same row in ``out``."""
    cdef Py_ssize_t row, k, n
    with nogil:
        for row in range(at.shape[0]):
            n = at[row]
            for k in range(indptr[row], indptr[row + 1]):
                out[n] = <int32_t>(indices[k] + shift)
                n += 1
            at[row] = n


def multiply_ones(
    const int64_t[::1] ends,  # (n_rows + 1,)
    const int32_t[::1] lists,  # numbers of the lists of each row
    const int64_t[::1] list_ends,  # (n_lists + 1,)
    const int32_t[::1] columns,  # of each list
):
    """Return the columns of each row's lists, list after list, and the row ends."""
    cdef Py_ssize_t row, p, k, n = 0, n_rows = ends.shape[0] - 1
    cdef int64_t[::1] indptr = np.empty(n_rows + 1, dtype=np.int64)
    cdef int32_t[::1] indices
    with nogil:
        indptr[0] = 0
        for row in range(n_rows):
            for p in range(ends[row], ends[row + 1]):
                n += list_ends[lists[p] + 1] - list_ends[lists[p]]
            indptr[row + 1] = n
    indices = np.empty(n, dtype=np.int32)
    n = 0
    with nogil:
        for p in range(lists.shape[0]):
            for k in range(list_ends[lists[p]], list_ends[lists[p] + 1]):
                indices[n] = columns[k]
                n += 1
    return np.asarray(indices), np.asarray(indptr)

"""Kernel that joins sparse matrices by columns."""

from libc.stdint cimport int32_t, int64_t


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

"""Transition features of rows, and the transition scores they give a row: see `_entries.pyx`."""

from sklseq._lib.lanes cimport real


cdef struct RowLinks:
    const long long* indptr          # NULL where rows have no transition features
    const int* indices
    const double* data
    const long long* support         # weights support[f] to support[f + 1] - 1 are of feature f
    const unsigned short* from_label
    const unsigned short* to_label
    Py_ssize_t L


cdef inline RowLinks row_links(rows, support, Py_ssize_t n_labels) except *:
    # rows, support: (indptr, indices, data) and (start, from, to), which the caller keeps.
    cdef RowLinks q
    cdef const long long[::1] indptr = rows[0], start = support[0]
    cdef const int[::1] indices = rows[1]
    cdef const unsigned short[::1] from_label = support[1], to_label = support[2]
    cdef const double[::1] data = rows[2]
    q.indptr, q.support, q.L = &indptr[0], &start[0], n_labels
    q.indices = &indices[0] if indices.shape[0] else NULL
    q.data = &data[0] if data.shape[0] else NULL
    q.from_label = &from_label[0] if from_label.shape[0] else NULL
    q.to_label = &to_label[0] if to_label.shape[0] else NULL
    return q


cdef inline Py_ssize_t entries_of_row(
    const RowLinks* q, Py_ssize_t row, const real* v, const real* shared, Py_ssize_t width,
    int* place, int* i, int* j, real* score, Py_ssize_t n
) noexcept nogil:
    # Write the entries of a row from number n on; returns the number after them. place (L * L): IN
    # numbers below n, OUT the number of each pair that has an entry.
    cdef Py_ssize_t p, k, f, pair, begin = n
    cdef int e
    cdef real x
    for p in range(q.indptr[row], q.indptr[row + 1]):
        f, x = q.indices[p], <real> q.data[p]
        for k in range(q.support[f], q.support[f + 1]):
            pair = q.from_label[k] * q.L + q.to_label[k]
            e = place[pair]
            if e < begin:
                e = place[pair] = <int> n
                i[n], j[n] = q.from_label[k], q.to_label[k]
                score[n] = shared[i[n] * width + j[n]]
                n += 1
            score[e] += x * v[k]
    return n

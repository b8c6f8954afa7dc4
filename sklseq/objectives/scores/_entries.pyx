"""Transition scores of rows with transition features, and the transpose.

Where row t has the transition features f with values x_t(f), the score of labels i, j is

    A_t(i, j) = A(i, j) + sum_f x_t(f) * v(f, i, j),

v(f, i, j) being weights that some (f, i, j) have: number q, from `support[f]` to
`support[f + 1] - 1`, belongs to the pair `from_label[q]`, `to_label[q]`. An *entry* of a row is a
pair of which one of its features has a weight; if these have half as many weights as there are
pairs, all pairs are entries, in the order of the matrix. First rows of sequences have no entries.

Rows of one kind have the same features with the same values. In a block of rows they share a set of
entries (`_row_matrices.pxd`), so that scores, exponentials and sums are computed once for them.
"""

import numpy as np

from sklseq._lib.lanes cimport real
from sklseq._lib.prefetch cimport prefetch_row
from sklseq.inference.kernels._blocks cimport row_max
from sklseq.inference.kernels._row_sets cimport write_matrix
from sklseq.objectives.scores._row_links cimport RowLinks, entries_of_row, row_links


def split_triples(
    const long long[::1] triples,            # (n,) of (f * n_labels + i) * n_labels + j, sorted
    Py_ssize_t n_labels,
    long long[::1] columns,                  # OUT  each f
    long long[::1] start,                    # OUT  its first triple; one longer than `columns`
    unsigned short[::1] from_label,          # (n,) OUT i
    unsigned short[::1] to_label,            # (n,) OUT j
):
    """Returns the number of columns. Most triples are one above the last: no division for them."""
    cdef Py_ssize_t q, n = 0, i = 0, j = 0, size = n_labels * n_labels
    cdef long long here, last = -2, base = 0, limit = 0
    with nogil:
        for q in range(triples.shape[0]):
            here = triples[q]
            if here >= limit:
                columns[n], start[n] = here // size, q
                base = columns[n] * size
                limit, n = base + size, n + 1
                i, j = (here - base) // n_labels, (here - base) % n_labels
            elif here == last + 1:
                j += 1
                if j == n_labels:
                    i, j = i + 1, 0
            else:
                i, j = (here - base) // n_labels, (here - base) % n_labels
            from_label[q], to_label[q], last = <unsigned short> i, <unsigned short> j, here
        start[n] = triples.shape[0]
    return n


cdef class Links:
    """Features of rows, and the pairs of labels for which each feature has a weight."""

    cdef object kept
    cdef const int[::1] kind
    cdef RowLinks at

    def __init__(self, rows, kind, support, n_labels):
        """``rows``, ``support``: (indptr, indices, data) and (start, from, to) as above; ``kind``:
        a number of each row, the same for rows that are the same, or None: a set for each row.
        """
        self.kept, self.at = (rows, support), row_links(rows, support, n_labels)
        self.kind = kind

    cdef Py_ssize_t n_weights(self, Py_ssize_t row) noexcept nogil:
        # Weights of all features of a row.
        cdef Py_ssize_t p, n = 0
        for p in range(self.at.indptr[row], self.at.indptr[row + 1]):
            n += self.at.support[self.at.indices[p] + 1] - self.at.support[self.at.indices[p]]
        return n

    cdef void prefetch(self, Py_ssize_t row, const real* v) noexcept nogil:
        # Load the weights of a row's features into the cache.
        cdef Py_ssize_t p, first
        for p in range(self.at.indptr[row], self.at.indptr[row + 1]):
            first = self.at.support[self.at.indices[p]]
            prefetch_row(v + first, self.at.support[self.at.indices[p] + 1] - first)

    cdef Py_ssize_t add_matrix(
        self, Py_ssize_t row, const real* v, const real* shared, int* i, int* j, real* score
    ) noexcept nogil:
        # Write all pairs, and i and j unless they are NULL; returns their number. shared: (L, L)
        cdef Py_ssize_t p, q, k, f, first, size = self.at.L * self.at.L
        cdef real x
        cdef const real* base = shared    # to which the scores of the next feature are added
        if i != NULL:
            for k in range(self.at.L):
                for q in range(self.at.L):
                    i[k * self.at.L + q], j[k * self.at.L + q] = <int> k, <int> q
        for p in range(self.at.indptr[row], self.at.indptr[row + 1]):
            f, x = self.at.indices[p], <real> self.at.data[p]
            first = self.at.support[f]
            if self.at.support[f + 1] - first == size:
                for q in range(size):
                    score[q] = base[q] + x * v[first + q]
            else:
                if base == shared:
                    for q in range(size):
                        score[q] = shared[q]
                for q in range(first, self.at.support[f + 1]):
                    score[self.at.from_label[q] * self.at.L + self.at.to_label[q]] += x * v[q]
            base = score
        return size

    def fill(
        self,
        Py_ssize_t first,                # the row at which `offsets` begin
        const long long[::1] offsets,    # (n_sequences + 1,) from 0
        const real[::1] v,               # (n_weights,)
        const real[:, ::1] shared,       # (>= L, >= L) A
        buffers,                         # EntryBuffers
    ):
        """Write the sets of some rows; returns their number, that of entries, the largest score."""
        cdef long long[::1] indptr = buffers.indptr, row_of_set = buffers.row_of_set
        cdef int[::1] i = buffers.i, j = buffers.j, place = buffers.place, of_row = buffers.of_row
        cdef int[::1] set_of_kind = buffers.set_of_kind
        cdef real[::1] score = buffers.score
        cdef Py_ssize_t s, r, row, n_weights, n = 0, k = 0, size = self.at.L * self.at.L
        cdef Py_ssize_t matrices = buffers.n_matrices    # sets of all pairs that i and j begin with
        cdef bint known
        cdef bint kinds = self.kind is not None
        cdef const real[::1] flat = np.asarray(shared)[: self.at.L, : self.at.L].ravel()
        cdef real top = -1e30
        with nogil:
            place[:] = -1
            indptr[0] = 0
            if kinds:          # set 0: of rows without entries
                indptr[1], k = 0, 1
            for s in range(offsets.shape[0] - 1):
                for r in range(offsets[s], offsets[s + 1]):
                    row = first + r
                    n_weights = self.n_weights(row) if r > offsets[s] else 0
                    if kinds:
                        of_row[r] = set_of_kind[self.kind[row]] if n_weights else 0
                        if of_row[r] >= 0:
                            continue
                        of_row[r] = set_of_kind[self.kind[row]] = <int> k
                    if 2 * n_weights >= size:
                        known = n % size == 0 and n < matrices * size
                        n += self.add_matrix(
                            row, &v[0], &flat[0], NULL if known else &i[n], &j[n], &score[n]
                        )
                        matrices += not known and n == (matrices + 1) * size
                    elif n_weights:
                        matrices = min(matrices, n // size)
                        n = entries_of_row(
                            &self.at, row, &v[0], &shared[0, 0], shared.shape[1], &place[0],
                            &i[0], &j[0], &score[0], n
                        )
                    if n > indptr[k]:    # still in the cache
                        top = max(top, row_max(&score[indptr[k]], n - indptr[k]))
                    row_of_set[k] = row
                    k += 1
                    indptr[k] = n
            if kinds:
                for r in range(offsets[offsets.shape[0] - 1]):
                    set_of_kind[self.kind[first + r]] = -1
        buffers.n_matrices = matrices
        return k, n, top

    def fill_matrices(
        self,
        Py_ssize_t first,                # as in `fill`
        const long long[::1] offsets,
        const real[::1] v,
        const real[:, ::1] shared,
        const real[:, ::1] factors,      # (width, width) exp(shared - top)
        double top,
        buffers,
    ):
        """`fill` where all features have weights for all pairs, with factors in place of scores.

        Writes `buffers.matrices`; returns the numbers of sets and of entries, the largest score,
        and the extreme factors.
        """
        cdef long long[::1] indptr = buffers.indptr, row_of_set = buffers.row_of_set
        cdef int[::1] of_row = buffers.of_row, set_of_kind = buffers.set_of_kind
        cdef real[:, :, ::1] matrices = buffers.matrices
        cdef const real[::1] flat = np.asarray(shared)[: self.at.L, : self.at.L].ravel()
        cdef real[::1] score = np.empty_like(flat)
        cdef Py_ssize_t s, r, row, p, k = 1, size = self.at.L * self.at.L
        cdef real highest = -1e30
        cdef real[2] bounds = [1, 0]
        with nogil:
            indptr[0] = indptr[1] = 0    # set 0: of rows without entries
            for p in range(self.at.L * factors.shape[1]):
                (&matrices[0, 0, 0])[p] = (&factors[0, 0])[p]
            for s in range(offsets.shape[0] - 1):
                for r in range(offsets[s], offsets[s + 1]):
                    row = first + r
                    of_row[r] = 0
                    if r == offsets[s] or self.at.indptr[row] == self.at.indptr[row + 1]:
                        continue
                    of_row[r] = set_of_kind[self.kind[row]]
                    if of_row[r] >= 0:
                        continue
                    of_row[r] = set_of_kind[self.kind[row]] = <int> k
                    row_of_set[k] = row
                    k += 1
                    indptr[k] = (k - 1) * size
            for p in range(1, k):
                if p + 1 < k:
                    self.prefetch(row_of_set[p + 1], &v[0])
                self.add_matrix(row_of_set[p], &v[0], &flat[0], NULL, NULL, &score[0])
                highest = max(highest, row_max(&score[0], size))
                write_matrix(
                    &score[0], <real> top, &matrices[p, 0, 0], self.at.L, factors.shape[1], bounds
                )
            for r in range(offsets[offsets.shape[0] - 1]):
                set_of_kind[self.kind[first + r]] = -1
        return k, (k - 1) * size, highest, bounds[0], bounds[1]

    def collect(
        self,
        const long long[::1] indptr,     # (n_sets + 1,)    of `fill`
        const int[::1] i, const int[::1] j,
        const double[::1] expected,      # (n_entries,)
        buffers,                         # EntryBuffers of `fill`
        double[::1] out,                 # (n_weights,)     IN/OUT
    ):
        """out(q) += sum of x_t(f) * expected_t(i, j), of the weight q of f, i and j."""
        cdef const long long[::1] row_of_set = buffers.row_of_set
        cdef int[::1] place = buffers.place
        cdef Py_ssize_t k, e, p, q, f, row, first, last, begin, size = self.at.L * self.at.L
        cdef double x
        cdef bint matrix
        with nogil:
            for k in range(indptr.shape[0] - 1):
                begin = indptr[k]
                if begin == indptr[k + 1]:
                    continue
                row, matrix = row_of_set[k], indptr[k + 1] - begin == size
                if matrix and k + 2 < indptr.shape[0]:
                    self.prefetch(row_of_set[k + 1], &out[0])
                if not matrix:
                    for e in range(begin, indptr[k + 1]):
                        place[i[e] * self.at.L + j[e]] = <int> e
                for p in range(self.at.indptr[row], self.at.indptr[row + 1]):
                    f, x = self.at.indices[p], self.at.data[p]
                    first, last = self.at.support[f], self.at.support[f + 1]
                    if last - first == size:
                        for q in range(size):
                            out[first + q] += x * expected[begin + q]
                    elif matrix:
                        for q in range(first, last):
                            e = begin + self.at.from_label[q] * self.at.L + self.at.to_label[q]
                            out[q] += x * expected[e]
                    else:
                        for q in range(first, last):
                            e = place[self.at.from_label[q] * self.at.L + self.at.to_label[q]]
                            out[q] += x * expected[e]

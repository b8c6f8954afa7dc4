"""Transition scores of rows with transition features, and the transpose.

Where row t has the transition features f with values x_t(f), the score of labels i, j is

    A_t(i, j) = A(i, j) + sum_f x_t(f) * v(f, i, j),

v(f, i, j) being weights that some (f, i, j) have: number q, from `support[f]` to
`support[f + 1] - 1`, belongs to the pair `from_label[q]`, `to_label[q]`. An *entry* of a row is a
pair of which one of its features has a weight. First rows of sequences have no entries.
"""

from sklseq._lib.lanes cimport real


cdef class Links:
    """Features of rows, and the pairs of labels for which each feature has a weight."""

    cdef const long long[::1] indptr
    cdef const int[::1] indices
    cdef const double[::1] data
    cdef const long long[::1] support
    cdef const int[::1] from_label
    cdef const int[::1] to_label
    cdef Py_ssize_t L

    def __init__(self, rows, support, n_labels):
        """``rows``, ``support``: (indptr, indices, data) and (start, from, to) as above."""
        self.indptr, self.indices, self.data = rows
        self.support, self.from_label, self.to_label = support
        self.L = n_labels

    def fill(
        self,
        Py_ssize_t first,                # the row at which `offsets` begin
        const long long[::1] offsets,    # (n_sequences + 1,) from 0
        const real[::1] v,               # (n_weights,)
        const real[:, ::1] shared,       # (>= L, >= L) A
        long long[::1] indptr,           # (n_rows + 1,)    OUT entries of each row
        int[::1] i, int[::1] j,          # (n_entries,)     OUT labels of each entry
        real[::1] score,                 # (n_entries,)     OUT
        int[::1] place,                  # (L * L,)         scratch
    ):
        """Write the entries of some rows; returns their number and the largest score."""
        cdef Py_ssize_t s, r, p, q, f, begin, pair, n = 0
        cdef int e
        cdef real x, top = -1e30
        with nogil:
            place[:] = -1
            indptr[0] = 0
            for s in range(offsets.shape[0] - 1):
                for r in range(offsets[s], offsets[s + 1]):
                    begin = n
                    for p in range(
                        self.indptr[first + r] if r > offsets[s] else self.indptr[first + r + 1],
                        self.indptr[first + r + 1]
                    ):
                        f, x = self.indices[p], <real> self.data[p]
                        for q in range(self.support[f], self.support[f + 1]):
                            pair = self.from_label[q] * self.L + self.to_label[q]
                            e = place[pair]
                            if e < begin:
                                e = place[pair] = <int> n
                                i[n], j[n] = self.from_label[q], self.to_label[q]
                                score[n] = shared[i[n], j[n]]
                                n += 1
                            score[e] += x * v[q]
                    indptr[r + 1] = n
            for p in range(n):
                top = score[p] if score[p] > top else top
        return n, top

    def collect(
        self,
        Py_ssize_t first,
        const long long[::1] indptr,     # (n_rows + 1,)    of `fill`, and so i and j
        const int[::1] i, const int[::1] j,
        const double[::1] expected,      # (n_entries,)
        int[::1] place,                  # (L * L,)         scratch
        double[::1] out,                 # (n_weights,)     IN/OUT
    ):
        """out(q) += sum of x_t(f) * expected_t(i, j), of the weight q of f, i and j."""
        cdef Py_ssize_t r, e, p, q, f
        cdef double x
        with nogil:
            for r in range(indptr.shape[0] - 1):
                if indptr[r] == indptr[r + 1]:
                    continue
                for e in range(indptr[r], indptr[r + 1]):
                    place[i[e] * self.L + j[e]] = <int> e
                for p in range(self.indptr[first + r], self.indptr[first + r + 1]):
                    f, x = self.indices[p], self.data[p]
                    for q in range(self.support[f], self.support[f + 1]):
                        e = place[self.from_label[q] * self.L + self.to_label[q]]
                        out[q] += x * expected[e]

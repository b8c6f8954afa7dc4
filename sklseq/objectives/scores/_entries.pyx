"""Transition scores of rows with transition features, and the transpose.

Where row t has the transition features f with values x_t(f), the score of labels i, j is

    A_t(i, j) = A(i, j) + sum_f x_t(f) * v(f, i, j),

v(f, i, j) being weights that some (f, i, j) have: number q, from `support[f]` to
`support[f + 1] - 1`, belongs to the pair `from_label[q]`, `to_label[q]`. An *entry* of a row is a
pair of which one of its features has a weight. First rows of sequences have no entries.
"""

from sklseq._lib.lanes cimport real
from sklseq.objectives.scores._row_links cimport RowLinks, entries_of_row, row_links


cdef class Links:
    """Features of rows, and the pairs of labels for which each feature has a weight."""

    cdef object kept
    cdef RowLinks at

    def __init__(self, rows, support, n_labels):
        """``rows``, ``support``: (indptr, indices, data) and (start, from, to) as above."""
        self.kept, self.at = (rows, support), row_links(rows, support, n_labels)

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
        cdef Py_ssize_t s, r, p, n = 0
        cdef real top = -1e30
        if score.shape[0] == 0:
            indptr[:] = 0
            return 0, top
        with nogil:
            place[:] = -1
            indptr[0] = 0
            for s in range(offsets.shape[0] - 1):
                for r in range(offsets[s], offsets[s + 1]):
                    if r > offsets[s]:
                        n = entries_of_row(
                            &self.at, first + r, &v[0], &shared[0, 0], shared.shape[1], &place[0],
                            &i[0], &j[0], &score[0], n
                        )
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
                    place[i[e] * self.at.L + j[e]] = <int> e
                for p in range(self.at.indptr[first + r], self.at.indptr[first + r + 1]):
                    f, x = self.at.indices[p], self.at.data[p]
                    for q in range(self.at.support[f], self.at.support[f + 1]):
                        e = place[self.at.from_label[q] * self.at.L + self.at.to_label[q]]
                        out[q] += x * expected[e]

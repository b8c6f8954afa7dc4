"""Best path of a linear chain in which labels of some types begin a span at most once.

Viterbi's states with the set m of the types that have begun, bit r for type r. Where a span of type
r begins at (i, j), the state (m, j) follows (m - r, i), which is none unless r is in m; elsewhere
it follows (m, i):

    delta_t(m, j) = psi_t(j) + max_i delta_{t-1}(m - [begins(i, j)] r, i) + score(i, j).

`best_paths_once` (once.py) says which types have to be in the sets.
"""

from libc.math cimport INFINITY

from sklseq.inference.kernels._row_matrices cimport RowMatrices, matrix_at, row_matrices


def best_sequence_once(
    const double[:, ::1] psi,        # (T, L)           with the scores of both ends
    const double[:, ::1] score,      # (L, L)
    const unsigned char[:, ::1] begins,  # (L, L)
    const int[::1] bit,              # (L,)             r of the label's type, -1 if it is free
    double[:, :, ::1] delta,         # (2, n_sets, L)   scratch
    int[:, :, ::1] pointers,         # (T, n_sets, L)   scratch
    int[::1] labels,                 # (T,)             OUT
    rows,                            # `row_scores` of the sequence
):
    """Write the labels of the best path; returns its score, -inf if there is none."""
    cdef Py_ssize_t T = psi.shape[0], L = psi.shape[1], n_sets = delta.shape[1]
    cdef Py_ssize_t t, m, i, j, r, before
    cdef double best, value
    cdef int origin
    cdef RowMatrices matrices = row_matrices(rows, score, False)
    cdef const double* matrix
    with nogil:
        for m in range(n_sets):
            for j in range(L):
                r = 0 if bit[j] < 0 else 1 << bit[j]
                delta[0, m, j] = psi[0, j] if m == r else -INFINITY
        for t in range(1, T):
            matrix = matrix_at(<double*> NULL, &matrices, t)
            for m in range(n_sets):
                for j in range(L):
                    r, best, origin = 0 if bit[j] < 0 else 1 << bit[j], -INFINITY, 0
                    if m & r == r:
                        for i in range(L):
                            before = m ^ r if begins[i, j] else m
                            value = delta[(t - 1) & 1, before, i] + matrix[i * L + j]
                            if value > best:
                                best, origin = value, <int> (before * L + i)
                    delta[t & 1, m, j], pointers[t, m, j] = best + psi[t, j], origin
        best, origin = -INFINITY, 0
        for j in range(L):
            for m in range(n_sets):
                if delta[(T - 1) & 1, m, j] > best:
                    best, origin = delta[(T - 1) & 1, m, j], <int> (m * L + j)
        for t in range(T - 1, -1, -1):
            labels[t] = <int> (origin % L)
            if t:
                origin = pointers[t, origin // L, origin % L]
    return best

"""Scores of the cells of each sequence by weights that were not trained on it, approximately."""

from libc.stdint cimport int32_t, int64_t

import numpy as np


def add_changes(
    const int64_t[::1] indptr,         # (n_features + 1,)  features of cells as a CSC matrix
    const int64_t[::1] cells,          # (n_entries,)       rising in each column
    const double[::1] values,          # (n_entries,)
    const int32_t[::1] of,             # (n_cells,)         sequence of each cell, rising
    const double[::1] weights,         # (n_sequences,)
    const double[:, ::1] residual,     # (n_cells, L)
    const double[:, ::1] variance,     # (n_cells, L)
    const double[:, ::1] trained,      # (n_features, >= L) 0: a weight that cannot change
    double ridge,
    double kappa,
    double[:, ::1] psi,                # (n_cells, >= L)    OUT: changed
):
    """Add x_c · g_s / (ridge + κ · Σ_{r≠s} h_r) to the scores of each cell c of a sequence s.

    For one feature and label, g_s = Σ_{c in s} x_c residual_c, and h_r is the larger one of
    Σ_{c in r} x_c² variance_c and g_r² / weight_r.
    """
    cdef Py_ssize_t L = residual.shape[1], f, p, i, j, k, n
    cdef int32_t last
    cdef double x
    cdef double[::1] total = np.empty(L)
    cdef double[:, ::1] g = np.empty((len(weights), L)), h = np.empty((len(weights), L))
    with nogil:
        for f in range(indptr.shape[0] - 1):
            n, last = -1, -1
            for p in range(indptr[f], indptr[f + 1]):
                i, x = cells[p], values[p]
                if of[i] != last:
                    n, last = n + 1, of[i]
                    g[n], h[n] = 0, 0
                for j in range(L):
                    g[n, j] += x * residual[i, j]
                    h[n, j] += x * x * variance[i, j]
            k, last, total[:] = -1, -1, 0
            for p in range(indptr[f], indptr[f + 1]):
                i = cells[p]
                if of[i] != last:
                    k, last = k + 1, of[i]
                    for j in range(L):
                        h[k, j] = max(h[k, j], g[k, j] * g[k, j] / weights[last])
                        total[j] += h[k, j]
            k, last = -1, -1
            for p in range(indptr[f], indptr[f + 1]):
                i = cells[p]
                if of[i] != last:
                    k, last = k + 1, of[i]
                    for j in range(L):
                        x = kappa * max(total[j] - h[k, j], 0)
                        g[k, j] *= trained[f, j] / (ridge + x)
                for j in range(L):
                    psi[i, j] += values[p] * g[k, j]

"""What kernels that visit one sequence at a time share: rows, weights and scores as plain pointers.

The owner of the memory keeps it for as long as the pointers are used.
"""

from sklseq._lib.lanes cimport lanes
from sklseq.objectives.scores._gather cimport gather_row
from sklseq._lib.prefetch cimport prefetch_row

# Entries ahead of the present one whose weights are fetched.
cdef enum:
    AHEAD = 24

cdef struct Rows:
    Py_ssize_t L, width, nnz, narrow_nnz
    const long long* indptr
    const int* indices
    const double* data               # NULL where all are one
    double* W                        # (n, width)
    const double* mask               # (n, width): 1 where trained; NULL for all
    const long long* narrow_indptr   # NULL where there are none
    const int* pair
    const unsigned short* label
    const double* narrow_data
    double* w                        # (n_pairs,)
    double* chain                    # (L + 2, width): transitions, start, end
    const double* chain_mask         # 1 where trained
    const double* allowed            # 0 where forbidden


cdef inline Rows rows_of(
    rows, narrow, double[:, ::1] W, mask, double[::1] w, double[:, ::1] chain,
    const double[:, ::1] chain_mask, const double[:, ::1] allowed
) except *:
    # From what ``entries()`` of a design gives.
    cdef const long long[::1] indptr = rows[0], narrow_indptr
    cdef const int[::1] indices = rows[1], pair
    cdef const double[::1] data = rows[2], narrow_data
    cdef const double[:, ::1] trained
    cdef const unsigned short[::1] label
    cdef Rows at
    at.width, at.L, at.nnz = W.shape[1], chain.shape[0] - 2, indices.shape[0]
    at.indptr, at.indices = &indptr[0], &indices[0] if at.nnz else NULL
    at.data = &data[0] if data.shape[0] else NULL
    at.W = &W[0, 0] if W.shape[0] else NULL
    at.mask = NULL
    if mask is not None and W.shape[0]:
        trained = mask
        at.mask = &trained[0, 0]
    at.narrow_indptr = at.pair = NULL
    at.narrow_nnz = 0
    at.label, at.narrow_data, at.w = NULL, NULL, NULL
    if narrow is not None and narrow[1].shape[0]:
        narrow_indptr, pair, label, narrow_data = narrow
        at.narrow_nnz = pair.shape[0]
        at.narrow_indptr, at.pair, at.label = &narrow_indptr[0], &pair[0], &label[0]
        at.narrow_data = &narrow_data[0] if narrow_data.shape[0] else NULL
        at.w = &w[0]
    at.chain, at.chain_mask, at.allowed = &chain[0, 0], &chain_mask[0, 0], &allowed[0, 0]
    return at


cdef inline double soft(double u, double threshold) noexcept nogil:
    # argmin_w (w - u)^2 / 2 + threshold |w|
    if u > threshold:
        return u - threshold
    return u + threshold if u < -threshold else 0


cdef inline void scores(
    lanes* tag, Rows* at, Py_ssize_t r, Py_ssize_t T, double* S
) noexcept nogil:
    # S = A w of the rows r to r + T - 1, start and end scores folded in
    cdef Py_ssize_t t, p, j, W = at.width
    cdef double x
    cdef const double* start = at.chain + at.L * W
    for t in range(r, r + T):
        for p in range(at.indptr[t], at.indptr[t + 1]):
            if p + AHEAD < at.nnz:
                prefetch_row(at.W + at.indices[p + AHEAD] * W, W)
        gather_row(
            tag, at.indices + at.indptr[t], at.data + at.indptr[t] if at.data != NULL else NULL,
            at.indptr[t + 1] - at.indptr[t], <const double*> at.W, W, NULL, 0, S + (t - r) * W
        )
        if at.narrow_indptr != NULL:
            for p in range(at.narrow_indptr[t], at.narrow_indptr[t + 1]):
                if p + AHEAD < at.narrow_nnz:
                    prefetch_row(at.w + at.pair[p + AHEAD], 1)
                x = at.w[at.pair[p]]
                S[(t - r) * W + at.label[p]] += (
                    x if at.narrow_data == NULL else at.narrow_data[p] * x
                )
    for j in range(at.L):
        S[j] += start[j]
        S[(T - 1) * W + j] += start[W + j]

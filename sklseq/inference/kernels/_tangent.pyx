"""Derivatives of marginals in a direction of the scores: the tangent of forward-backward.

With S(y) = sum_t dpsi_t(y_t) + sum_t dscore(y_{t-1}, y_t), the score of y in that direction, they
are covariances under p(y),

    dmu_t(j) = Cov([y_t = j], S),    dxi_t(i, j) = Cov([y_{t-1} = i, y_t = j], S).

With r_t(j) = e_t(j) / c_t, u_t = r_t beta_t, and A and U the derivatives of alpha and u up to
multiples of these, chosen so that A_t and dmu_t sum to 0 and nothing grows with the sequence:

    A_t = alpha_t dpsi_t + r_t (A_{t-1} E + alpha_{t-1} (E dscore)) - a_t alpha_t
    U_t = u_t (dpsi_t - a_t) + r_t dbeta_t,    dbeta_{t-1} = E U_t + (E dscore) u_t
    dmu_t = A_t beta_t + alpha_t dbeta_t
    sum_t dxi_t = E sum_t (A_{t-1}' u_t + alpha_{t-1}' U_t) + dscore xi.

In logarithms, with K_t(j, i) = p(y_{t-1} = i | y_t = j, rows up to t), and F = A / alpha,

    F_t(j) = dpsi_t(j) + D_t(j) - a_t,   D_t(j) = sum_i K_t(j, i) (F_{t-1}(i) + dscore(i, j))
    dxi_t(i, j) = K_t(j, i) (dmu_t(j) + mu_t(j) (F_{t-1}(i) + dscore(i, j) - D_t(j)))
    dmu_{t-1}(i) = sum_j dxi_t(i, j).

Notation and padding: `_chain.pyx`. dscore is finite where a transition is forbidden.
"""

import numpy as np

from libc.math cimport INFINITY, exp
from libc.string cimport memset

from sklseq._lib.lanes cimport (
    Lanes2, Lanes4, Lanes8, lanes, n_lanes, real, sklseq_one_row_at_a_time,
)
from sklseq.inference.kernels._batched cimport Batch, batch_of, longest
from sklseq.inference.kernels._batched cimport multiply_rows as multiply_rows_of_batch
from sklseq.inference.kernels._log_domain cimport log_kernel
from sklseq.inference.kernels._recursions cimport block_of_product
from sklseq.inference.kernels._scaled cimport known_width


cdef inline real sum_of_lanes(lanes* tag, const real* sums) noexcept nogil:
    cdef Py_ssize_t k
    cdef real total = 0
    for k in range(n_lanes(tag)):
        total += sums[k]
    return total


def finish_filter(
    real[:, ::1] u,                  # (n_rows, width)  IN/OUT 0 in the first row of each sequence
    real[:, ::1] r,                  # (n_rows, width)  IN e, OUT r
    const real[::1] inverse_c,       # (n_rows,)
    const long long[::1] offsets,    # (n_sequences + 1,)
):
    """Complete the results of forward-backward by r = e / c, and by u where no row precedes."""
    cdef Py_ssize_t s, t, j, width = r.shape[1]
    with nogil:
        for t in range(r.shape[0]):
            for j in range(width):
                r[t, j] *= inverse_c[t]
        for s in range(offsets.shape[0] - 1):
            if offsets[s] < offsets[s + 1]:
                memset(&u[offsets[s], 0], 0, width * sizeof(real))


cdef struct Rows:                    # the first number of each array, float or double
    const void* alpha
    const void* r
    const void* u
    const void* mu
    const void* A
    void* dpsi
    bint first                       # the first row of each sequence is its beginning


cdef inline void add_product(
    lanes* tag, const real* x, const real* matrix, real* out, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # out += x matrix
    cdef Py_ssize_t B = n_lanes(tag), block, k
    cdef real acc[8]
    for block in range(known_width(tag, width) // B):
        block_of_product(tag, x, 1, matrix + block * B, L, width, acc)
        for k in range(B):
            acc[k] += out[block * B + k]
        for k in range(B):
            out[block * B + k] = acc[k]
    sklseq_one_row_at_a_time()       # stored whole: the next product keeps its lanes


cdef inline void finish_forward(
    lanes* tag, const Rows* rows, real* out, Py_ssize_t t, Py_ssize_t width
) noexcept nogil:
    # The sum of products in row t of out becomes A; dpsi -= a.
    cdef Py_ssize_t B = n_lanes(tag), at, k, block, first = t * known_width(tag, width)
    cdef const real* alpha = <const real*> rows.alpha
    cdef const real* r = <const real*> rows.r
    cdef real* dpsi = <real*> rows.dpsi
    cdef real shift
    cdef real sums[8]
    cdef real acc[8]
    for k in range(B):
        sums[k] = 0
    for block in range(known_width(tag, width) // B):
        at = first + block * B
        for k in range(B):
            acc[k] = alpha[at + k] * dpsi[at + k] + r[at + k] * out[at + k]
        for k in range(B):
            sums[k] += acc[k]
        for k in range(B):
            out[at + k] = acc[k]
    shift = sum_of_lanes(tag, sums)
    for block in range(known_width(tag, width) // B):
        at = first + block * B
        for k in range(B):
            acc[k] = out[at + k] - shift * alpha[at + k]
        for k in range(B):
            out[at + k] = acc[k]
        for k in range(B):
            acc[k] = dpsi[at + k] - shift
        for k in range(B):
            dpsi[at + k] = acc[k]
    sklseq_one_row_at_a_time()


cdef void forward_each(
    lanes* tag, const Rows* rows, const real[:, ::1] E, real* A, const long long[::1] offsets,
    Py_ssize_t L
) noexcept nogil:
    cdef Py_ssize_t s, t, width = E.shape[1]
    for s in range(offsets.shape[0] - 1):
        for t in range(offsets[s], offsets[s + 1]):
            if t > offsets[s]:
                add_product(tag, A + (t - 1) * width, &E[0, 0], A + t * width, L, width)
            elif rows.first:
                memset(A + t * width, 0, width * sizeof(real))
            finish_forward(tag, rows, A, t, width)


cdef void forward_batch(
    const Rows* rows, const real[:, ::1] E, real* A, const Batch* q
) noexcept nogil:
    cdef Py_ssize_t s, t, active = q.n, W = q.width
    for t in range(longest(q)):
        while q.length[active - 1] <= t:
            active -= 1
        if t:
            multiply_rows_of_batch(
                A + (t - 1) * W, &E[0, 0], A + t * W, q.first, active, q.L, W, True
            )
        for s in range(active):
            if t == 0 and rows.first:
                memset(A + q.first[s] * W, 0, W * sizeof(real))
            finish_forward(<Lanes8*> NULL, rows, A, q.first[s] + t, W)


def forward_scaled(
    const real[:, ::1] alpha,        # (n_rows, width)
    const real[:, ::1] r,            # (n_rows, width)
    const real[:, ::1] E,            # (width, width)
    const long long[::1] offsets,    # (n_sequences + 1,)
    Py_ssize_t[:, ::1] order,        # (3, n_sequences) [0] IN sequences, longest first; scratch; or
                                     # None: one sequence after the other
    real[:, ::1] A,                  # (n_rows, width)  IN alpha_{t-1} (E dscore), and A_{t-1} E
                                     # of first rows unless `first`, OUT A
    real[:, ::1] dpsi,               # (n_rows, width)  IN/OUT -= a_t
    bint first,                      # the first row of each sequence is its beginning
    Py_ssize_t L,
):
    """A, from alpha and r."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Rows rows
    cdef Batch batch
    if dpsi.shape[0] == 0:
        return
    rows.alpha, rows.r, rows.dpsi, rows.first = &alpha[0, 0], &r[0, 0], &dpsi[0, 0], first
    with nogil:
        if order is not None:
            batch = batch_of(offsets, order, L, dpsi.shape[1])
            forward_batch(&rows, E, &A[0, 0], &batch)
        elif dpsi.shape[1] == 2:
            forward_each(&two, &rows, E, &A[0, 0], offsets, L)
        elif dpsi.shape[1] == 4:
            forward_each(&four, &rows, E, &A[0, 0], offsets, L)
        else:
            forward_each(&eight, &rows, E, &A[0, 0], offsets, L)


cdef inline void finish_backward(
    lanes* tag, const Rows* rows, real* out, Py_ssize_t t, real* dmu, Py_ssize_t width
) noexcept nogil:
    # dbeta in row t of out becomes U, and dpsi becomes dmu. dmu: a row of scratch.
    cdef Py_ssize_t B = n_lanes(tag), at, j, k, block, first = t * known_width(tag, width)
    cdef const real* alpha = <const real*> rows.alpha
    cdef const real* mu = <const real*> rows.mu
    cdef const real* A = <const real*> rows.A
    cdef const real* u = <const real*> rows.u
    cdef const real* r = <const real*> rows.r
    cdef real* dpsi = <real*> rows.dpsi
    cdef real shift
    cdef real sums[8]
    cdef real acc[8]
    cdef real a[8]
    cdef real b[8]
    cdef real m[8]
    for k in range(B):
        sums[k] = 0
    for block in range(known_width(tag, width) // B):
        j, at = block * B, first + block * B
        for k in range(B):
            a[k], b[k], m[k] = alpha[at + k], out[at + k], mu[at + k]
        for k in range(B):           # mu is 0 where alpha is
            acc[k] = a[k] * b[k] + A[at + k] / (a[k] if a[k] > 0 else 1) * m[k]
        for k in range(B):
            sums[k] += acc[k]
        for k in range(B):
            dmu[j + k] = acc[k]
    shift = sum_of_lanes(tag, sums)
    for block in range(known_width(tag, width) // B):
        j, at = block * B, first + block * B
        for k in range(B):
            a[k], b[k], m[k] = u[at + k], r[at + k], mu[at + k]
        for k in range(B):
            acc[k] = a[k] * (dpsi[at + k] - shift) + b[k] * out[at + k]
        for k in range(B):
            out[at + k] = acc[k]
        for k in range(B):
            acc[k] = dmu[j + k] - shift * m[k]
        for k in range(B):
            dpsi[at + k] = acc[k]
    sklseq_one_row_at_a_time()


cdef void backward_each(
    lanes* tag, const Rows* rows, const real[:, ::1] Et, real* U, const long long[::1] offsets,
    real* scratch, Py_ssize_t L
) noexcept nogil:
    cdef Py_ssize_t s, t, width = Et.shape[1]
    for s in range(offsets.shape[0] - 1):
        for t in range(offsets[s + 1] - 1, offsets[s] - 1, -1):
            if t < offsets[s + 1] - 1:
                add_product(tag, U + (t + 1) * width, &Et[0, 0], U + t * width, L, width)
            finish_backward(tag, rows, U, t, scratch, width)
        if rows.first and offsets[s] < offsets[s + 1]:
            memset(U + offsets[s] * width, 0, width * sizeof(real))


cdef void backward_batch(
    const Rows* rows, const real[:, ::1] Et, real* U, real* scratch, const Batch* q
) noexcept nogil:
    cdef Py_ssize_t s, t, ahead = 0, active = 0, W = q.width
    for t in range(longest(q) - 1, -1, -1):
        while active < q.n and q.length[active] > t:
            active += 1
        multiply_rows_of_batch(
            U + (t + 1) * W, &Et[0, 0], U + t * W, q.first, ahead, q.L, W, True
        )
        for s in range(active):
            finish_backward(<Lanes8*> NULL, rows, U, q.first[s] + t, scratch, W)
            if t == 0 and rows.first:
                memset(U + q.first[s] * W, 0, W * sizeof(real))
        ahead = active


def backward_scaled(
    const real[:, ::1] alpha,        # (n_rows, width)
    const real[:, ::1] r,            # (n_rows, width)
    const real[:, ::1] u,            # (n_rows, width)
    const real[:, ::1] mu,           # (n_rows, width)
    const real[:, ::1] Et,           # (width, width)
    const long long[::1] offsets,    # (n_sequences + 1,)
    Py_ssize_t[:, ::1] order,        # as in `forward_scaled`
    const real[:, ::1] A,            # (n_rows, width)
    real[:, ::1] U,                  # (n_rows, width)  IN (E dscore) u_{t+1}, of last rows dbeta,
                                     # OUT U, 0 of first rows if `first`
    real[:, ::1] dpsi,               # (n_rows, width)  IN as `forward_scaled` left it, OUT dmu
    bint first, Py_ssize_t L,
):
    """U and the derivatives of marginals."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Rows rows
    cdef Batch batch
    cdef real[::1] work
    cdef real* scratch
    if dpsi.shape[0] == 0:
        return
    work = np.empty(dpsi.shape[1], dtype=np.float32 if real is float else np.float64)
    scratch = &work[0]
    rows.alpha, rows.r, rows.u, rows.mu = &alpha[0, 0], &r[0, 0], &u[0, 0], &mu[0, 0]
    rows.A, rows.dpsi, rows.first = &A[0, 0], &dpsi[0, 0], first
    with nogil:
        if order is not None:
            batch = batch_of(offsets, order, L, dpsi.shape[1])
            backward_batch(&rows, Et, &U[0, 0], scratch, &batch)
        elif dpsi.shape[1] == 2:
            backward_each(&two, &rows, Et, &U[0, 0], offsets, scratch, L)
        elif dpsi.shape[1] == 4:
            backward_each(&four, &rows, Et, &U[0, 0], offsets, scratch, L)
        else:
            backward_each(&eight, &rows, Et, &U[0, 0], offsets, scratch, L)


# ---------------------------------------------------------------- the log domain


cdef inline bint kernel_row(
    const double* before, const double* score, Py_ssize_t j, double* k, Py_ssize_t L,
    Py_ssize_t stride
) noexcept nogil:
    # k(i) = K_t(j, i); False if no path ends in j.
    cdef Py_ssize_t i
    if log_kernel(before, score, stride, j, k, L) == -INFINITY:
        return False
    for i in range(L):
        k[i] = exp(k[i])
    return True


def forward_log(
    const double[:, ::1] log_alpha,  # (n_rows + 1, >= L)     [0]: the row before
    const double[:, ::1] score,      # (width, width)
    const double[:, ::1] dscore,     # (width, width)
    double[:, ::1] dpsi,             # (n_rows, width)        IN/OUT -= a_t
    double[:, ::1] F,                # (n_rows + 1, width)    IN [0]: the row before, OUT the others
    double[:, ::1] work,             # (3, width)
    bint first, Py_ssize_t L,
):
    """F, from logarithms of alpha, which need not be normalised."""
    cdef Py_ssize_t t, i, j, top
    cdef double shift
    cdef double* k = &work[0, 0]
    with nogil:
        for t in range(dpsi.shape[0]):
            top = 0
            for j in range(L):
                F[t + 1, j] = dpsi[t, j]
                if log_alpha[t + 1, j] > log_alpha[t + 1, top]:
                    top = j
                if (t > 0 or not first) and kernel_row(
                    &log_alpha[t, 0], &score[0, 0], j, k, L, score.shape[1]
                ):
                    for i in range(L):
                        F[t + 1, j] += k[i] * (F[t, i] + dscore[i, j])
            shift = F[t + 1, top]
            for j in range(L):
                F[t + 1, j] -= shift
                dpsi[t, j] -= shift


def backward_log(
    const double[:, ::1] log_alpha,  # (n_rows + 1, >= L)
    const double[:, ::1] score,      # (width, width)
    const double[:, ::1] dscore,     # (width, width)
    double[:, ::1] dpsi,             # (n_rows, width)    IN as `forward_log` left it, OUT dmu
    const double[:, ::1] F,          # (n_rows + 1, width)
    double[:, ::1] S,                # (2, width)         IN mu and dmu of the last row, OUT those
                                     # of the row before, unless `first`
    double[:, ::1] pairs,            # (width, width)     IN/OUT  += weight * sum_t dxi_t
    double[:, ::1] work,             # (3, width)
    double weight, bint first, Py_ssize_t L,
):
    """The derivatives of marginals, from F."""
    cdef Py_ssize_t t, i, j, width = dpsi.shape[1]
    cdef double shift, x
    cdef double* k = &work[0, 0]
    with nogil:
        for t in range(dpsi.shape[0] - 1, -1, -1):
            shift = 0
            for j in range(L):
                shift += S[1, j]
            for j in range(L):
                S[1, j] -= shift * S[0, j]
            memset(&work[1, 0], 0, 2 * width * sizeof(double))
            for j in range(L):
                if (t > 0 or not first) and S[0, j] > 0 and kernel_row(
                    &log_alpha[t, 0], &score[0, 0], j, k, L, score.shape[1]
                ):
                    for i in range(L):
                        x = F[t, i] + dscore[i, j] - (F[t + 1, j] - dpsi[t, j])
                        x = k[i] * (S[1, j] + S[0, j] * x)
                        work[1, i] += k[i] * S[0, j]
                        work[2, i] += x
                        pairs[i, j] += weight * x
            for j in range(L):
                dpsi[t, j] = S[1, j]
            if t == 0 and first:
                break
            for j in range(L):
                S[0, j] = work[1, j]
                S[1, j] = work[2, j]

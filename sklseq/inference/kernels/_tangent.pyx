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

from libc.math cimport INFINITY, exp
from libc.string cimport memset

from sklseq._lib.lanes cimport (
    Lanes2, Lanes4, Lanes8, lanes, n_lanes, sklseq_one_row_at_a_time,
)
from sklseq.inference.kernels._batched cimport add_pairs
from sklseq.inference.kernels._log_domain cimport log_kernel
from sklseq.inference.kernels._recursions cimport add_products, block_of_product
from sklseq.inference.kernels._scaled cimport known_width


cdef void forward_each(
    lanes* tag, const double[:, ::1] alphas, const double[:, ::1] factors, const double[:, ::1] E,
    const long long[::1] offsets, double[:, ::1] A, double[:, ::1] dpsi, double* before,
    bint first, Py_ssize_t L
) noexcept nogil:
    cdef Py_ssize_t B = n_lanes(tag), width = dpsi.shape[1], s, t, j, k, block
    cdef Py_ssize_t n = known_width(tag, width) // B
    cdef double shift
    cdef double sums[8]
    cdef double acc[8]
    cdef const double* alpha
    cdef const double* r
    cdef double* row
    cdef double* psi
    for s in range(offsets.shape[0] - 1):
        for t in range(offsets[s], offsets[s + 1]):
            alpha, r, row, psi = &alphas[t, 0], &factors[t, 0], &A[t, 0], &dpsi[t, 0]
            for k in range(B):
                sums[k] = 0
            for block in range(n):
                j = block * B
                if t == offsets[s] and first:
                    for k in range(B):
                        acc[k] = alpha[j + k] * psi[j + k]
                else:
                    block_of_product(
                        tag, row - width if t > offsets[s] else before, 1, &E[0, j], L, width, acc
                    )
                    for k in range(B):
                        acc[k] = alpha[j + k] * psi[j + k] + r[j + k] * (acc[k] + row[j + k])
                for k in range(B):
                    sums[k] += acc[k]
                for k in range(B):
                    row[j + k] = acc[k]
            shift = sum_of_lanes(tag, sums)
            for block in range(n):
                j = block * B
                for k in range(B):
                    acc[k] = row[j + k] - shift * alpha[j + k]
                for k in range(B):
                    row[j + k] = acc[k]
                for k in range(B):
                    acc[k] = psi[j + k] - shift
                for k in range(B):
                    psi[j + k] = acc[k]
            sklseq_one_row_at_a_time()       # stored whole: the product keeps its lanes


cdef inline double sum_of_lanes(lanes* tag, const double* sums) noexcept nogil:
    cdef Py_ssize_t k
    cdef double total = 0
    for k in range(n_lanes(tag)):
        total += sums[k]
    return total


def multiply_rows(
    double[:, ::1] rows,             # (n_rows, width)  IN/OUT
    const double[::1] factors,       # (n_rows,)
):
    """rows *= factors[:, None]; NumPy's loop over rows of 2 to 16 numbers is slower."""
    cdef Py_ssize_t t, j
    with nogil:
        for t in range(rows.shape[0]):
            for j in range(rows.shape[1]):
                rows[t, j] *= factors[t]


def forward_scaled(
    const double[:, ::1] alpha,      # (n_rows, width)
    const double[:, ::1] r,          # (n_rows, width)
    const double[:, ::1] E,          # (width, width)
    const long long[::1] offsets,    # (n_sequences + 1,)
    double[:, ::1] A,                # (n_rows, width)  IN alpha_{t-1} (E dscore), OUT A
    double[:, ::1] dpsi,             # (n_rows, width)  IN/OUT -= a_t
    double[:, ::1] work,             # (>= 1, width)    IN [0] A of the row before, unless `first`
    bint first,                      # the first row of each sequence is its beginning
    Py_ssize_t L,
):
    """A, from alpha and r."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef double* before = &work[0, 0]
    with nogil:
        if dpsi.shape[1] == 2:
            forward_each(&two, alpha, r, E, offsets, A, dpsi, before, first, L)
        elif dpsi.shape[1] == 4:
            forward_each(&four, alpha, r, E, offsets, A, dpsi, before, first, L)
        else:
            forward_each(&eight, alpha, r, E, offsets, A, dpsi, before, first, L)


def add_row_products(
    const double[:, ::1] a,          # (n_rows, width)
    const double[:, ::1] b,          # (n_rows, width)
    double[:, ::1] scratch,          # (width, width)
    double[:, ::1] sums,             # (width, width)  IN/OUT += sum_t a_t' b_t
    Py_ssize_t L,
    bint many,                       # whether there are so many labels that batches are faster
):
    """Sums of products of rows, in less time than BLAS takes for so few columns."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t n = a.shape[0], width = a.shape[1]
    cdef const double* first
    cdef const double* second
    cdef double* out = &sums[0, 0]
    cdef double* space = &scratch[0, 0]
    if n == 0:
        return
    first, second = &a[0, 0], &b[0, 0]
    with nogil:
        if width == 2:
            add_products(&two, first, second, n, space, out, 1, L, width)
        elif width == 4:
            add_products(&four, first, second, n, space, out, 1, L, width)
        elif many:
            add_pairs(first, second, n, out, L, width)
        else:
            add_products(&eight, first, second, n, space, out, 1, L, width)


cdef struct Rows:
    const double* alpha
    const double* u
    const double* r
    const double* mu
    Py_ssize_t L
    bint first


cdef void backward_each(
    lanes* tag, const Rows* rows, const double[:, ::1] Et, const long long[::1] offsets,
    const double[:, ::1] A, double[:, ::1] U, double[:, ::1] dpsi, double* dbeta
) noexcept nogil:
    cdef Py_ssize_t B = n_lanes(tag), width = dpsi.shape[1], s, t, j, k, block, at
    cdef Py_ssize_t n = known_width(tag, width) // B
    cdef double shift
    cdef double sums[8]
    cdef double acc[8]
    cdef double a[8]
    cdef double b[8]
    cdef double m[8]
    cdef double* dmu = dbeta + width
    cdef double* now = dbeta + 2 * width
    cdef double* psi
    for s in range(offsets.shape[0] - 1):
        if s > 0:
            memset(dbeta, 0, width * sizeof(double))
        for t in range(offsets[s + 1] - 1, offsets[s] - 1, -1):
            psi = &dpsi[t, 0]
            for k in range(B):
                sums[k] = 0
            for block in range(n):
                j = block * B
                at = t * width + j
                for k in range(B):
                    a[k], b[k], m[k] = rows.alpha[at + k], dbeta[j + k], rows.mu[at + k]
                for k in range(B):       # mu is 0 where alpha is
                    acc[k] = a[k] * b[k] + A[t, j + k] / (a[k] if a[k] > 0 else 1) * m[k]
                for k in range(B):
                    sums[k] += acc[k]
                for k in range(B):
                    dmu[j + k] = acc[k]
            shift = sum_of_lanes(tag, sums)
            for block in range(n):
                j = block * B
                at = t * width + j
                for k in range(B):
                    a[k], b[k], m[k] = rows.u[at + k], rows.r[at + k], rows.mu[at + k]
                for k in range(B):
                    acc[k] = a[k] * (psi[j + k] - shift) + b[k] * dbeta[j + k]
                for k in range(B):
                    now[j + k] = acc[k]
                for k in range(B):
                    acc[k] = dmu[j + k] - shift * m[k]
                for k in range(B):
                    psi[j + k] = acc[k]
            sklseq_one_row_at_a_time()       # stored whole: the product keeps its lanes
            if t == offsets[s] and rows.first:
                memset(&U[t, 0], 0, width * sizeof(double))
                break
            for block in range(n):
                j = block * B
                block_of_product(tag, now, 1, &Et[0, j], rows.L, width, acc)
                for k in range(B):
                    b[k], a[k] = now[j + k], acc[k] + U[t, j + k]
                for k in range(B):
                    dbeta[j + k] = a[k]
                for k in range(B):
                    U[t, j + k] = b[k]


def backward_scaled(
    const double[:, ::1] alpha,      # (n_rows, width)
    const double[:, ::1] u,          # (n_rows, width)
    const double[:, ::1] r,          # (n_rows, width)
    const double[:, ::1] mu,         # (n_rows, width)
    const double[:, ::1] Et,         # (width, width)
    const long long[::1] offsets,    # (n_sequences + 1,)
    const double[:, ::1] A,          # (n_rows, width)
    double[:, ::1] U,                # (n_rows, width)  IN (E dscore) u_t, OUT U; 0 where `first`
    double[:, ::1] dpsi,             # (n_rows, width)  IN as `forward_scaled` left it, OUT dmu
    double[:, ::1] work,             # (3, width)       IN [0] dbeta of the last row (of the first
                                     # sequence), OUT that of the row before, unless `first`
    bint first, Py_ssize_t L,
):
    """U and the derivatives of marginals."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Rows rows
    if dpsi.shape[0] == 0:
        return
    rows.alpha, rows.u, rows.r, rows.mu = &alpha[0, 0], &u[0, 0], &r[0, 0], &mu[0, 0]
    rows.L, rows.first = L, first
    with nogil:
        if dpsi.shape[1] == 2:
            backward_each(&two, &rows, Et, offsets, A, U, dpsi, &work[0, 0])
        elif dpsi.shape[1] == 4:
            backward_each(&four, &rows, Et, offsets, A, U, dpsi, &work[0, 0])
        else:
            backward_each(&eight, &rows, Et, offsets, A, U, dpsi, &work[0, 0])


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

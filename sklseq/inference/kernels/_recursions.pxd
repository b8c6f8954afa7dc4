"""Scaled forward and backward recursions of one sequence, and functions shared with batches.

Notation, padding and the proof of when scaled arithmetic is exact: `_chain.pyx`.
"""

from libc.math cimport INFINITY, NAN, log

from sklseq._lib.lanes cimport lanes, n_lanes, real, sklseq_one_row_at_a_time


# The limits of scaled arithmetic. They are documented in `_chain.pyx`, and by the manual.
cdef inline double mixing(const real* any_row) noexcept nogil:
    # Condition 1: no transition factor is below this.
    return 1e-18 if real is float else 1e-150


cdef inline double least_mass(const real* any_row) noexcept nogil:
    # Condition 2: a product below this, unless it is zero, counts as lost. It is far above the
    # smallest normal number (1.2e-38, 2.2e-308).
    return 1e-30 if real is float else 1e-280


cdef inline void block_of_product(
    lanes* tag, const real* x, Py_ssize_t stride, const real* matrix, Py_ssize_t n,
    Py_ssize_t width, real* acc
) noexcept nogil:
    # acc(k) = sum_{i < n} x(i * stride) * matrix(i, k), k over the lanes of one block
    cdef Py_ssize_t B = n_lanes(tag), i, k
    cdef real x_i
    for k in range(B):
        acc[k] = 0
    for i in range(n):
        x_i = x[i * stride]
        for k in range(B):
            acc[k] += x_i * matrix[i * width + k]
        sklseq_one_row_at_a_time()


cdef inline real forward_row(
    lanes* tag, const real* previous, const real* E, const real* e, real* alpha, real* predicted,
    Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # alpha(j) = e(j) * predicted(j), predicted(j) = sum_i previous(i) * E(i, j), stored unless
    # it is NULL; returns the sum of alpha.
    cdef Py_ssize_t B = n_lanes(tag), block, k
    cdef real acc[8]
    cdef real sums[8]
    cdef real total = 0
    for k in range(B):
        sums[k] = 0
    for block in range(width // B):
        block_of_product(tag, previous, 1, E + block * B, L, width, acc)
        if predicted != NULL:
            for k in range(B):
                predicted[block * B + k] = acc[k]
        for k in range(B):
            acc[k] *= e[block * B + k]
        for k in range(B):
            sums[k] += acc[k]
        for k in range(B):
            alpha[block * B + k] = acc[k]
    for k in range(B):
        total += sums[k]
    return total


cdef inline void scale_row(
    lanes* tag, const real* row, real factor, real* out, Py_ssize_t width
) noexcept nogil:
    cdef Py_ssize_t B = n_lanes(tag), block, k
    cdef real acc[8]
    for block in range(width // B):
        for k in range(B):
            acc[k] = factor * row[block * B + k]
        for k in range(B):
            out[block * B + k] = acc[k]


cdef inline void backward_row(
    lanes* tag, const real* alpha, real inverse_c, real* e, real* beta, Py_ssize_t width
) noexcept nogil:
    # e(j) becomes u(j) = e(j) * beta(j) / c, beta(j) becomes mu(j) = alpha(j) * beta(j).
    # beta of a label that no path reaches is never used: it is set to 0, because it might overflow.
    cdef Py_ssize_t B = n_lanes(tag), block, k
    cdef real b[8]
    cdef real a[8]
    cdef real u[8]
    for block in range(width // B):
        for k in range(B):
            a[k] = alpha[block * B + k]
        for k in range(B):
            b[k] = beta[block * B + k] if a[k] > 0 else 0
        for k in range(B):
            u[k] = e[block * B + k] * (b[k] * inverse_c)
        for k in range(B):
            e[block * B + k] = u[k]
        for k in range(B):
            beta[block * B + k] = a[k] * b[k]


cdef enum:
    CHUNK = 128    # rows whose pair marginals are summed in the type of the scores
    DRIFT_ROWS = 64


cdef inline void renormalise(real* u, real* marginals, Py_ssize_t width) noexcept nogil:
    # Marginals of a row sum to one up to rounding, which grows with each step back. One row in
    # DRIFT_ROWS is divided by its sum, so that errors do not grow with the length of the sequence.
    cdef Py_ssize_t j
    cdef real total = 0
    for j in range(width):
        total += marginals[j]
    if total > 0:
        total = 1 / total
        for j in range(width):
            marginals[j] *= total
            u[j] *= total


cdef inline void add_products(
    lanes* tag, const real* a, const real* b, Py_ssize_t n, real* scratch, double* out,
    double weight, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # out(i, j) += weight * sum_{t < n} a(t, i) * b(t, j)
    cdef Py_ssize_t B = n_lanes(tag), block, i, k, t, m, chunk
    cdef real acc[8]
    for chunk in range((n + CHUNK - 1) // CHUNK):
        t = chunk * CHUNK
        m = min(n - t, CHUNK)
        for block in range(width // B):
            for i in range(L):
                block_of_product(
                    tag, a + t * width + i, width, b + t * width + block * B, m, width, acc
                )
                for k in range(B):
                    scratch[i * width + block * B + k] = acc[k]
        for k in range(L * width):
            out[k] += weight * scratch[k]


cdef inline bint nothing_lost(
    const real* alpha, const real* previous, const real* psi, const real* E, Py_ssize_t L,
    Py_ssize_t width
) noexcept nogil:
    # Condition 2 for one row of unnormalised alpha; `previous` is NULL in the first row.
    cdef Py_ssize_t i, j
    cdef double least = least_mass(alpha)
    for j in range(L):
        if alpha[j] >= least or psi[j] == -INFINITY:
            continue
        if alpha[j] > 0 or previous == NULL:
            return False
        for i in range(L):
            if previous[i] > 0 and E[i * width + j] > 0:
                return False
    return True


cdef inline void add_log(double* total, double* product, double x) noexcept nogil:
    # Add log(x) to total + log(product): one logarithm of a product is cheaper than many.
    if x < 1e-100:
        total[0] += log(x)
    else:
        product[0] *= x
    if not 1e-100 < product[0] < 1e100:
        total[0] += log(product[0])
        product[0] = 1


cdef inline double forward(
    lanes* tag, const real* psi, const real* e, const real* E, real* alpha, real* inverse_c,
    real* inverse_predicted, bint first, Py_ssize_t T, Py_ssize_t L, Py_ssize_t width,
    Py_ssize_t stride
) noexcept nogil:
    # alpha_t(j) = e_t(j) * p_t(j) / c_t, p_t(j) = sum_i alpha_{t-1}(i) * E(i, j), c_t the sum.
    # Unless `first`, alpha of the row before is stored before alpha. inverse_c = 1 / c_t. Rows are
    # `stride` numbers apart, width or -width.
    # inverse_predicted(j) = 1 / p_t(j), or 0 where alpha_t(j) is 0; or NULL. psi is NULL if
    # condition 2 need not be checked.
    # Returns sum_t log c_t, or NaN if the sequence has to be computed in the log domain.
    cdef Py_ssize_t t, j
    cdef real total
    cdef double log_c = 0, product = 1
    cdef real* row
    cdef real* predicted = NULL
    for t in range(T):
        row = alpha + t * stride
        if inverse_predicted != NULL:
            predicted = inverse_predicted + t * stride
        if t == 0 and first:
            total = 0
            for j in range(width):
                row[j] = e[j]
                total += e[j]
                if predicted != NULL:
                    predicted[j] = 1
        else:
            total = forward_row(tag, row - stride, E, e + t * stride, row, predicted, L, width)
        if psi != NULL and not nothing_lost(
            row, row - stride if t > 0 or not first else NULL, psi + t * stride, E, L, width
        ):
            return NAN
        if not total > 0:
            return NAN
        if predicted != NULL:
            for j in range(width):
                predicted[j] = 1 / predicted[j] if row[j] > 0 else 0
        inverse_c[t] = 1 / total
        scale_row(tag, row, inverse_c[t], row, width)
        add_log(&log_c, &product, total)
    return log_c + log(product)


cdef inline void finish_row(
    lanes* tag, const real* alpha, const real* inverse_c, real* e, real* marginals, Py_ssize_t t,
    Py_ssize_t width, Py_ssize_t stride
) noexcept nogil:
    # Row t of a sequence: e becomes u, beta becomes mu.
    alpha, e, marginals = alpha + t * stride, e + t * stride, marginals + t * stride
    backward_row(tag, alpha, inverse_c[t], e, marginals, width)
    if t % DRIFT_ROWS == 0:
        renormalise(e, marginals, width)


cdef inline void backward_rows(
    lanes* tag, const real* Et, const real* alpha, const real* inverse_c, real* e, real* marginals,
    Py_ssize_t lo, Py_ssize_t hi, Py_ssize_t T, Py_ssize_t L, Py_ssize_t width, Py_ssize_t stride
) noexcept nogil:
    # Rows hi - 1 to lo of a sequence of T:
    # u_t(j) = e_t(j) * beta_t(j) / c_t     (kept in place of e)
    # beta_{t-1}(i) = sum_j E(i, j) * u_t(j)
    # mu_t(j) = alpha_t(j) * beta_t(j)
    cdef Py_ssize_t t, j, block, B = n_lanes(tag)
    cdef real acc[8]
    cdef real* beta
    for t in range(hi - 1, lo - 1, -1):
        beta = marginals + t * stride
        for block in range(width // B):
            if t < T - 1:
                block_of_product(tag, e + (t + 1) * stride, 1, Et + block * B, L, width, acc)
                for j in range(B):
                    beta[block * B + j] = acc[j]
            else:
                for j in range(B):
                    beta[block * B + j] = 1
        finish_row(tag, alpha, inverse_c, e, marginals, t, width, stride)

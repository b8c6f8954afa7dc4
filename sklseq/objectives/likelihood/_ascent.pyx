"""Steps of exponentiated gradient ascent in the dual of the conditional likelihood.

What is ascended, and why the steps look as they do: `_dual.py`. Here, for one sequence at a time:

    S      = A w                    scores of the present weights
    theta' = theta + eta (S - theta)
    mu'    = marginals of theta'
    w'     = w + (weight / lam) Phi (mu - mu')

where with an L1 penalty it is u that is moved, and w = soft(u, l1 / lam); and the step is taken
back if the dual

    D = sum_s weight_s H(mu_s) - lam / 2 ||w||^2

fell. theta and mu are kept in float32; w follows the rounded mu exactly.
"""

from libc.math cimport INFINITY

from sklseq._lib.exponential cimport exp_double
from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference.kernels._recursions cimport backward, forward
from sklseq.objectives.likelihood.sparse_lattice cimport (
    ListedPairs, listed_factors, listed_marginals, listed_of, positive_factor,
)
from sklseq.objectives.likelihood.lattice cimport Rows, rows_of, scores, soft

# Condition 1 of `_chain.pyx`: with no transition factor below this, nothing can be lost.
cdef double MIX = 1e-150
# What a step may ask for, as plain pointers; shapes as in `ascend`.
cdef struct Problem:
    Rows rows
    ListedPairs listed       # where most transitions have no weight
    double* U                # before the threshold, shapes as W, w and chain; NULL without L1
    double* narrow_u
    double* chain_u
    double threshold         # l1 / lam
    double lam
    # scratch
    double* S                # (T, width) scores, then changes of mu
    double* theta            # (T, width) candidate
    double* e                # (T, width)
    double* alpha            # (T, width)
    double* mu               # (T, width) candidate
    double* inverse_c        # (T,)
    double* pair_theta       # (L, width) candidate
    double* pair_mu          # (L, width) candidate
    double* E                # (width, width)
    double* Et               # (width, width)
    double* products         # (width, width)


cdef inline double step_to(double* w, double* u, double step, double threshold) noexcept nogil:
    # One weight; returns the change of its square.
    cdef double before = w[0]
    if u == NULL:
        w[0] += step
    else:
        u[0] += step
        w[0] = soft(u[0], threshold)
    return (w[0] - before) * (w[0] + before)


cdef double candidate_nodes(
    Problem* q, const float* theta, double eta, Py_ssize_t T
) noexcept nogil:
    # theta' and e = exp(theta' - row maximum); returns the sum of the maxima
    cdef Py_ssize_t t, j, W = q.rows.width, L = q.rows.L
    cdef double top, total = 0
    cdef double* row
    cdef double* e
    cdef const double* start = q.rows.allowed + L * W
    for t in range(T):
        row = q.theta + t * W
        e = q.e + t * W
        top = -INFINITY
        for j in range(L):
            row[j] = theta[t * L + j] + eta * (q.S[t * W + j] - theta[t * L + j])
            top = row[j] if row[j] > top else top
        for j in range(W):
            e[j] = exp_double(row[j] - top) if j < L else 0
        total += top
    for j in range(L):
        q.e[j] *= start[j]
        q.e[(T - 1) * W + j] *= start[W + j]
    return total


cdef double candidate_pairs(
    Problem* q, const float* pair_theta, double eta, bint* check
) noexcept nogil:
    # The same for transitions, into E and Et; returns the maximum.
    cdef Py_ssize_t i, j, W = q.rows.width, L = q.rows.L
    cdef double top = -INFINITY, least = 1
    cdef double* row = q.pair_theta
    if q.listed.n:
        for i in range(q.listed.n):
            q.listed.theta[i] = pair_theta[i] + eta * (
                q.rows.chain[q.listed.at[i]] - pair_theta[i]
            )
        return listed_factors(&q.listed, q.rows.allowed, 1, MIX, check)
    for i in range(L):
        for j in range(L):
            row[i * W + j] = pair_theta[i * L + j] + eta * (
                q.rows.chain[i * W + j] - pair_theta[i * L + j]
            )
            top = row[i * W + j] if row[i * W + j] > top else top
    for i in range(L):
        for j in range(L):
            q.E[i * W + j] = q.rows.allowed[i * W + j] * positive_factor(row[i * W + j] - top)
    for i in range(L):
        for j in range(L):
            least = q.E[i * W + j] if q.E[i * W + j] < least else least
            q.Et[j * W + i] = q.E[i * W + j]
    check[0] = least < MIX
    return top


cdef double marginals(
    lanes* tag, Problem* q, Py_ssize_t T, bint check
) noexcept nogil:
    # mu' and pair_mu', rounded to float32; returns log Z less the maxima, or NaN
    cdef Py_ssize_t t, k, W = q.rows.width, L = q.rows.L
    cdef double log_z
    # By scores of -inf `forward` tells forbidden labels from those lost to underflow.
    for k in range(T * W):
        q.mu[k] = q.theta[k]
    for k in range(L):
        if q.rows.allowed[L * W + k] == 0:
            q.mu[k] = -INFINITY
        if q.rows.allowed[(L + 1) * W + k] == 0:
            q.mu[(T - 1) * W + k] = -INFINITY
    if q.listed.n:
        log_z = listed_marginals(&q.listed, q.mu, q.e, q.alpha, q.inverse_c, T, W, check)
    else:
        log_z = forward(tag, q.mu, q.e, q.E, q.alpha, q.inverse_c, T, L, W, check)
    if log_z != log_z:
        return log_z
    if q.listed.n:
        for k in range(q.listed.n):
            q.listed.mu[k] = <float> q.listed.mu[k]
    else:
        for k in range(L * W):
            q.pair_mu[k] = 0
        backward(
            tag, q.Et, q.alpha, q.inverse_c, q.e, q.mu, q.products, q.pair_mu, 1, T, L, W
        )
        for k in range(L * W):
            q.pair_mu[k] = <float> (q.pair_mu[k] * q.E[k])
    for t in range(T):
        for k in range(L):
            q.mu[t * W + k] = <float> q.mu[t * W + k]
    return log_z


cdef void compare(
    Problem* q, const float* theta, const float* mu, Py_ssize_t T, const double* score,
    const double* new_theta, const double* new_mu, double* sums
) noexcept nogil:
    # sums += [<theta', mu'>, <score - theta, mu' - mu>, <score, mu - mu'>] over T rows
    cdef Py_ssize_t t, j, k, W = q.rows.width
    cdef double change
    for t in range(T):
        for j in range(q.rows.L):
            k = t * W + j
            change = new_mu[k] - mu[t * q.rows.L + j]
            sums[0] += new_theta[k] * new_mu[k]
            sums[1] += (score[k] - theta[t * q.rows.L + j]) * change
            sums[2] -= score[k] * change


cdef void compare_pairs(
    Problem* q, const float* theta, const float* mu, double* sums
) noexcept nogil:
    # The same for transitions
    cdef Py_ssize_t p
    cdef double change, score
    if not q.listed.n:
        compare(q, theta, mu, q.rows.L, q.rows.chain, q.pair_theta, q.pair_mu, sums)
        return
    for p in range(q.listed.n):
        score = q.rows.chain[q.listed.at[p]]
        change = q.listed.mu[p] - mu[p]
        sums[0] += q.listed.theta[p] * q.listed.mu[p]
        sums[1] += (score - theta[p]) * change
        sums[2] -= score * change


cdef double move(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, double sign
) noexcept nogil:
    # w += sign * Phi S on the weights that are trained; returns the change of ||w||^2
    cdef Py_ssize_t B = n_lanes(tag), W = q.rows.width, t, p, block, k
    cdef double x, step, total = 0
    cdef double acc[8]
    cdef double* row
    cdef const double* mask
    cdef const double* change
    for k in range(B):
        acc[k] = 0
    for t in range(T):
        for p in range(q.rows.indptr[r + t], q.rows.indptr[r + t + 1]):
            x = sign * (q.rows.data[p] if q.rows.data != NULL else 1)
            for block in range(W // B):
                row = q.rows.W + q.rows.indices[p] * W + block * B
                change = q.S + t * W + block * B
                if q.U != NULL:
                    for k in range(B):
                        step = x * change[k]
                        if q.rows.mask != NULL:
                            step *= q.rows.mask[q.rows.indices[p] * W + block * B + k]
                        total += step_to(
                            row + k, q.U + q.rows.indices[p] * W + block * B + k, step, q.threshold
                        )
                    continue
                if q.rows.mask == NULL:
                    for k in range(B):
                        acc[k] += x * change[k] * (2 * row[k] + x * change[k])
                    for k in range(B):
                        row[k] += x * change[k]
                else:
                    mask = q.rows.mask + q.rows.indices[p] * W + block * B
                    for k in range(B):
                        acc[k] += mask[k] * x * change[k] * (2 * row[k] + x * change[k])
                    for k in range(B):
                        row[k] += mask[k] * x * change[k]
        if q.rows.narrow_indptr != NULL:
            for p in range(q.rows.narrow_indptr[r + t], q.rows.narrow_indptr[r + t + 1]):
                x = sign * (q.rows.narrow_data[p] if q.rows.narrow_data != NULL else 1)
                total += step_to(
                    q.rows.w + q.rows.pair[p], q.narrow_u + q.rows.pair[p] if q.U != NULL else NULL,
                    x * q.S[t * W + q.rows.label[p]], q.threshold
                )
    for k in range(B):
        total += acc[k]
    return total


cdef double move_chain(
    Problem* q, const float* pair_mu, Py_ssize_t T, double scale, double sign
) noexcept nogil:
    # The same for transition, start and end weights; S holds the changes of the rows.
    cdef Py_ssize_t i, j, k, W = q.rows.width, L = q.rows.L
    cdef double step, total = 0
    for i in range(q.listed.n):
        k = q.listed.at[i]
        step = sign * scale * (pair_mu[i] - q.listed.mu[i]) * q.rows.chain_mask[k]
        total += step_to(
            q.rows.chain + k, q.chain_u + k if q.U != NULL else NULL, step, q.threshold
        )
    for i in range(L if q.listed.n else 0, L + 2):
        for j in range(L):
            k = i * W + j
            if i < L:
                step = scale * (pair_mu[i * L + j] - q.pair_mu[k])
            else:
                step = q.S[j] if i == L else q.S[(T - 1) * W + j]
            step *= sign * q.rows.chain_mask[k]
            total += step_to(
                q.rows.chain + k, q.chain_u + k if q.U != NULL else NULL, step, q.threshold
            )
    return total


cdef double visit(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, float* theta, float* mu,
    float* pair_theta, float* pair_mu, double* entropy, double weight, double* eta, double* gap,
    bint first, bint* rejected
) noexcept nogil:
    # One sequence; returns the gain of the dual, which is 0 where the step is taken back.
    cdef Py_ssize_t t, j, W = q.rows.width, L = q.rows.L
    cdef double log_z, norm, gain, scale = weight / q.lam
    cdef double sums[3]
    cdef bint check
    rejected[0] = True
    scores(tag, &q.rows, r, T, q.S)
    log_z = candidate_nodes(q, theta, eta[0], T)
    log_z += (T - 1) * candidate_pairs(q, pair_theta, eta[0], &check)
    log_z += marginals(tag, q, T, check)
    if log_z != log_z:                   # too far apart for scaled arithmetic: a shorter step
        eta[0] *= 0.5
        return 0
    sums[0] = sums[1] = sums[2] = 0
    compare(q, theta, mu, T, q.S, q.theta, q.mu, sums)
    compare_pairs(q, pair_theta, pair_mu, sums)
    for t in range(T):
        for j in range(L):
            q.S[t * W + j] = scale * (mu[t * L + j] - q.mu[t * W + j])
    norm = move(tag, q, r, T, 1) + move_chain(q, pair_mu, T, scale, 1)
    gain = weight * (log_z - sums[0] - entropy[0]) - 0.5 * q.lam * norm
    gap[0] = 0.5 * weight * sums[1] / eta[0]
    # Along the step, D(x eta) = D + weight sums[1] (x - x^2/2) / eta - lam/2 ||step of w||^2 x^2,
    # to second order; its maximum, less a quarter, is the next step's length.
    norm -= 2 * scale * sums[2]
    eta[0] *= 0.75 * weight * sums[1] / (weight * sums[1] * eta[0] + q.lam * norm + 1e-300)
    eta[0] = min(max(eta[0], 1e-3), 1)
    if gain < -1e-9 and not first:
        move(tag, q, r, T, -1)
        move_chain(q, pair_mu, T, scale, -1)
        return 0
    rejected[0] = False
    entropy[0] = log_z - sums[0]
    for t in range(T):
        for j in range(L):
            theta[t * L + j] = <float> q.theta[t * W + j]
            mu[t * L + j] = <float> q.mu[t * W + j]
    for j in range(q.listed.n):
        pair_theta[j] = <float> q.listed.theta[j]
        pair_mu[j] = <float> q.listed.mu[j]
    for t in range(0 if q.listed.n else L):
        for j in range(L):
            pair_theta[t * L + j] = <float> q.pair_theta[t * W + j]
            pair_mu[t * L + j] = <float> q.pair_mu[t * W + j]
    return gain


cdef double visit_all(
    lanes* tag, Problem* q, const long long[::1] order, const long long[::1] offsets,
    const double[::1] weights, float[:, ::1] theta, float[:, ::1] mu, float[:, ::1] pair_theta,
    float[:, ::1] pair_mu, double[::1] entropy, double[::1] eta, double[::1] gap,
    unsigned char[::1] seen, Py_ssize_t* n_rejected
) noexcept nogil:
    cdef Py_ssize_t k, s, r
    cdef bint rejected
    cdef double gain = 0
    for k in range(order.shape[0]):
        s = order[k]
        r = offsets[s]
        gain += visit(
            tag, q, r, offsets[s + 1] - r, &theta[r, 0], &mu[r, 0], &pair_theta[s, 0],
            &pair_mu[s, 0], &entropy[s], weights[s], &eta[s], &gap[s], seen[s] == 0, &rejected
        )
        n_rejected[0] += rejected
        if not rejected:
            seen[s] = 1
    return gain


def ascend(
    const long long[::1] order,       # (n,)               sequences to visit, none empty
    const long long[::1] offsets,     # (n_sequences + 1,)
    const double[::1] weights,        # (n_sequences,)     positive where visited
    rows,                             # (indptr, indices, data) of rows with padded weights
    narrow,                           # (indptr, pair, label, data) or None
    double[:, ::1] W,                 # (n, width)         IN/OUT
    mask,                             # (n, width): 1 where trained; or None
    double[::1] w,                    # (n_pairs,)         IN/OUT
    double[:, ::1] chain,             # (L + 2, width)     IN/OUT transition, start, end weights
    const double[:, ::1] chain_mask,  # (L + 2, width)     1 where trained
    const double[:, ::1] allowed,     # (L + 2, width)     0 where forbidden
    float[:, ::1] theta,              # (n_rows, L)        IN/OUT
    float[:, ::1] mu,                 # (n_rows, L)        IN/OUT
    float[:, ::1] pair_theta,         # (n_sequences, n_pairs)  IN/OUT  L * L, or those listed
    float[:, ::1] pair_mu,            # (n_sequences, n_pairs)  IN/OUT
    double[::1] entropy,              # (n_sequences,)     IN/OUT
    double[::1] eta,                  # (n_sequences,)     IN/OUT length of the next step
    double[::1] gap,                  # (n_sequences,)     OUT estimate of each one's duality gap
    unsigned char[::1] seen,          # (n_sequences,)     IN/OUT
    double lam,
    u,                                # (like W, like w, like chain) IN/OUT, or None without L1
    double threshold,                 # l1 / lam
    listed,                           # pairs of labels as `listed_of` reads them, or None
    double[:, ::1] scratch,           # (5 * T + 3 * width + 2 * L, width), T the longest;
    double[::1] inverse_c,            # (T,)                  with listed pairs (5 * T, width)
):
    """Visit sequences in order; returns (gain of the dual, number of steps taken back)."""
    cdef double[:, ::1] wide_u, chain_u
    cdef double[::1] narrow_u
    cdef Problem q
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t T = inverse_c.shape[0], rejected = 0
    cdef double gain = 0
    if order.shape[0] == 0:
        return 0.0, 0
    q.rows, q.lam = rows_of(rows, narrow, W, mask, w, chain, chain_mask, allowed), lam
    q.U, q.narrow_u, q.chain_u, q.threshold = NULL, NULL, NULL, threshold
    if u is not None:
        wide_u, narrow_u, chain_u = u
        q.U = &wide_u[0, 0] if wide_u.shape[0] else &chain_u[0, 0]
        q.narrow_u = &narrow_u[0] if narrow_u.shape[0] else NULL
        q.chain_u = &chain_u[0, 0]
    q.S, q.theta, q.e = &scratch[0, 0], &scratch[T, 0], &scratch[2 * T, 0]
    q.alpha, q.mu = &scratch[3 * T, 0], &scratch[4 * T, 0]
    q.listed = listed_of(listed)
    q.E = q.Et = q.products = q.pair_theta = q.pair_mu = NULL
    if listed is None:
        q.E, q.Et = &scratch[5 * T, 0], &scratch[5 * T + q.rows.width, 0]
        q.products = &scratch[5 * T + 2 * q.rows.width, 0]
        q.pair_theta = &scratch[5 * T + 3 * q.rows.width, 0]
        q.pair_mu = &scratch[5 * T + 3 * q.rows.width + q.rows.L, 0]
    q.inverse_c = &inverse_c[0]
    with nogil:
        if q.rows.width == 2:
            gain = visit_all(&two, &q, order, offsets, weights, theta, mu, pair_theta, pair_mu,
                             entropy, eta, gap, seen, &rejected)
        elif q.rows.width == 4:
            gain = visit_all(&four, &q, order, offsets, weights, theta, mu, pair_theta, pair_mu,
                             entropy, eta, gap, seen, &rejected)
        else:
            gain = visit_all(&eight, &q, order, offsets, weights, theta, mu, pair_theta, pair_mu,
                             entropy, eta, gap, seen, &rejected)
    return gain, rejected

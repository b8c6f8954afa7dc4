"""One pass of stochastic gradient descent over sequences, each weight with a step of its own.

For one sequence at a time, with g its gradient of -weight · log p(y | x) in one weight, entry by
entry, and s the largest magnitude of that weight's feature (Duchi, Hazan, Singer 2011, §1.2 and
§5.1: AdaGrad in its composite form; Ross, Mineiro, Langford 2013: s):

    G ← G + (g / s)²
    w ← w - rate / (s² √G) · g
    w ← shrunk by the penalties' share of this sequence, (l1 ‖w‖₁ + l2 ‖w‖²₂) / n

A weight that a sequence does not touch is shrunk after it is next touched, or at the end of the
pass, for all the visits in between at once: ``stamp`` keeps the last one. G and what is made of it
are float32: square roots and divisions are what a step costs.
"""

from libc.math cimport INFINITY, exp, log, sqrtf

from sklseq._lib.exponential cimport exp_double
from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference.kernels._recursions cimport backward, forward
from sklseq._lib.prefetch cimport prefetch
from sklseq.objectives.likelihood.sparse_lattice cimport (
    ListedPairs, listed_factors, listed_marginals, listed_number, listed_of, positive_factor,
)
from sklseq.objectives.likelihood.lattice cimport Rows, rows_of, scores, soft

# Of what is kept in float32.
cdef double LARGEST = 1e30
# As in `_ascent.pyx`: with no transition factor below this, nothing can be lost.
cdef double MIX = 1e-150

# Entries ahead of the present one whose sums of squares are fetched.
cdef enum:
    NEAR = 8

cdef struct Problem:
    Rows rows
    ListedPairs listed       # where most transitions have no weight
    float* G                 # sums of squared gradients; shapes as W, w and chain
    float* narrow_G
    float* chain_G
    const double* scale      # (n,) and (n_pairs,): 1 / s; NULL where all values are one
    const double* narrow_scale
    long long* stamp         # (n,) and (n_pairs,): the visit that shrank a row last
    long long* narrow_stamp
    Py_ssize_t n_rows, n_pairs
    unsigned long long random
    double almost            # residuals below are sampled
    double rate
    double l1                # of one visit: l1 / n
    double l2                # 2 * l2 / n
    # scratch
    double* S                # (T, width) scores, then residuals
    double* e                # (T, width)
    double* alpha            # (T, width)
    double* mu               # (T, width)
    double* inverse_c        # (T,)
    double* pair_mu          # (L, width)
    double* E                # (width, width)
    double* Et               # (width, width)
    double* products         # (width, width)


cdef inline void shrink(
    double* w, const float* G, double m, const double* scale, Problem* q
) noexcept nogil:
    # argmin_v (v - w)^2 / (2 step) + l1 |v| + l2 v^2 / 2, with the step of m visits
    cdef float step
    if scale != NULL:
        m *= scale[0] * scale[0]
    step = <float> min(m * q.rate, LARGEST) / sqrtf(G[0])
    w[0] = soft(w[0], step * q.l1) * (1 / (1 + step * <float> q.l2))


cdef inline void move(
    double* w, float* G, double g, double m, const double* scale, Problem* q
) noexcept nogil:
    # The step of one weight, then `shrink`.
    cdef double rate = q.rate
    if scale != NULL:
        g *= scale[0]
        rate *= scale[0]
    G[0] += <float> (g * g)
    w[0] -= rate * g / sqrtf(G[0])
    shrink(w, G, m, scale, q)


cdef void move_row(
    lanes* tag, Problem* q, Py_ssize_t row, const double* g, double x, Py_ssize_t visit
) noexcept nogil:
    # `move` for a row of weights with gradients x * g.
    cdef Py_ssize_t B = n_lanes(tag), W = q.rows.width, block, k
    cdef double* w
    cdef float* G
    cdef const double* mask = q.rows.mask
    cdef double v, rate = q.rate
    cdef float inverse, m, l1 = q.l1, l2 = q.l2, step
    if q.scale != NULL:
        x *= q.scale[row]
        rate *= q.scale[row]
    m = min((visit - q.stamp[row]) * rate * (q.scale[row] if q.scale != NULL else 1), LARGEST)
    q.stamp[row] = visit
    for block in range(W // B):
        w, G = q.rows.W + row * W + block * B, q.G + row * W + block * B
        for k in range(B):
            v = x * g[block * B + k]
            if mask != NULL:
                v *= mask[row * W + block * B + k]
            G[k] += <float> (v * v)
            inverse = 1 / sqrtf(G[k])
            step = m * inverse
            w[k] = soft(w[k] - (rate * inverse) * v, step * l1) * (1 / (1 + step * l2))


cdef double expectations(
    lanes* tag, Problem* q, Py_ssize_t T, double temper
) noexcept nogil:
    # mu and pair_mu of temper * S; returns log Z, or NaN
    cdef Py_ssize_t t, i, j, L = q.rows.L, W = q.rows.width
    cdef double top, log_z = 0, least = 1
    cdef bint check
    cdef double* e
    cdef const double* start = q.rows.allowed + L * W
    for t in range(T):
        e = q.e + t * W
        top = -INFINITY
        for j in range(L):
            top = q.S[t * W + j] if q.S[t * W + j] > top else top
        for j in range(W):
            e[j] = exp_double(temper * (q.S[t * W + j] - top)) if j < L else 0
            q.mu[t * W + j] = q.S[t * W + j]
        log_z += temper * top
    # By scores of -inf `forward` tells forbidden labels from those lost to underflow.
    for j in range(L):
        q.e[j] *= start[j]
        q.e[(T - 1) * W + j] *= start[W + j]
        if start[j] == 0:
            q.mu[j] = -INFINITY
        if start[W + j] == 0:
            q.mu[(T - 1) * W + j] = -INFINITY
    if q.listed.n:
        for j in range(q.listed.n):
            q.listed.theta[j] = q.rows.chain[q.listed.at[j]]
        log_z += (T - 1) * temper * listed_factors(
            &q.listed, q.rows.allowed, temper, MIX, &check
        )
        return log_z + listed_marginals(
            &q.listed, q.mu, q.e, q.alpha, q.inverse_c, T, W, check
        )
    top = -INFINITY
    for i in range(L):
        for j in range(L):
            top = q.rows.chain[i * W + j] if q.rows.chain[i * W + j] > top else top
    log_z += (T - 1) * temper * top
    for i in range(L):
        for j in range(L):
            q.E[i * W + j] = q.rows.allowed[i * W + j] * positive_factor(
                temper * (q.rows.chain[i * W + j] - top)
            )
            least = q.E[i * W + j] if q.E[i * W + j] < least else least
            q.Et[j * W + i] = q.E[i * W + j]
    log_z += forward(tag, q.mu, q.e, q.E, q.alpha, q.inverse_c, T, L, W, least < MIX)
    if log_z != log_z:
        return log_z
    for j in range(L * W):
        q.pair_mu[j] = 0
    backward(
        tag, q.Et, q.alpha, q.inverse_c, q.e, q.mu, q.products, q.pair_mu, 1, T, L, W
    )
    for j in range(L * W):
        q.pair_mu[j] *= q.E[j]
    return log_z


cdef double log_partition(Problem* q, Py_ssize_t T) noexcept nogil:
    # log Z of S and the transitions, in logarithms: slow, and right however far apart scores are.
    # alpha_t(j) = S_t(j) + log sum_i exp(alpha_{t-1}(i) + transition(i, j))
    cdef Py_ssize_t t, i, j, L = q.rows.L, W = q.rows.width
    cdef double top, total, v
    cdef const double* allowed = q.rows.allowed
    cdef double* alpha = q.alpha
    for j in range(L):
        alpha[j] = q.S[j] if allowed[L * W + j] != 0 else -INFINITY
    for t in range(1, T):
        alpha = q.alpha + t * W
        for j in range(L):
            top = -INFINITY
            for i in range(L):
                q.e[i] = -INFINITY
                if allowed[i * W + j] != 0:
                    q.e[i] = alpha[i - W] + q.rows.chain[i * W + j]
                top = max(top, q.e[i])
            total = 0
            for i in range(L):
                total += exp(q.e[i] - top) if q.e[i] > -INFINITY else 0
            alpha[j] = q.S[t * W + j] + top + log(total) if total > 0 else -INFINITY
    top, total = -INFINITY, 0
    for j in range(L):
        if allowed[(L + 1) * W + j] != 0:
            top = max(top, alpha[j])
    for j in range(L):
        v = alpha[j] if allowed[(L + 1) * W + j] != 0 else -INFINITY
        total += exp(v - top) if v > -INFINITY else 0
    return top + log(total)


cdef inline bint kept(Problem* q, double* residual) noexcept nogil:
    # A row whose label is almost certain moves the weights rarely, and then as far as all the times
    # that it did not: in the mean nothing is lost.
    cdef Py_ssize_t j
    cdef double top = 0
    for j in range(q.rows.L):
        top = max(top, residual[j] if residual[j] > 0 else -residual[j])
    if top >= q.almost:
        return True
    q.random ^= q.random << 13           # Marsaglia (2003): xorshift
    q.random ^= q.random >> 7
    q.random ^= q.random << 17
    if <double> (q.random >> 11) * (1.0 / 9007199254740992.0) * q.almost >= top:
        return False
    for j in range(q.rows.L):
        residual[j] *= q.almost / top
    return True


cdef void move_all(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, Py_ssize_t visit
) noexcept nogil:
    # S holds the residuals of the rows, pair_mu those of the transitions.
    cdef Py_ssize_t t, p, pair, i, j, k, W = q.rows.width, L = q.rows.L
    cdef double g, x
    for i in range(q.listed.n):
        k = q.listed.at[i]
        g = q.listed.mu[i] * q.rows.chain_mask[k]
        move(q.rows.chain + k, q.chain_G + k, g, 1, NULL, q)
    for i in range(L if q.listed.n else 0, L + 2):
        for j in range(L):
            k = i * W + j
            if i < L:
                g = q.pair_mu[k]
            else:
                g = q.S[j] if i == L else q.S[(T - 1) * W + j]
            move(q.rows.chain + k, q.chain_G + k, g * q.rows.chain_mask[k], 1, NULL, q)
    for t in range(T):
        if not kept(q, q.S + t * W):
            continue
        for p in range(q.rows.indptr[r + t], q.rows.indptr[r + t + 1]):
            x = q.rows.data[p] if q.rows.data != NULL else 1
            move_row(tag, q, q.rows.indices[p], q.S + t * W, x, visit)
        if q.rows.narrow_indptr != NULL:
            for p in range(q.rows.narrow_indptr[r + t], q.rows.narrow_indptr[r + t + 1]):
                if p + NEAR < q.rows.narrow_nnz:
                    prefetch(q.narrow_stamp + q.rows.pair[p + NEAR])
                    prefetch(q.narrow_G + q.rows.pair[p + NEAR])
                x = q.rows.narrow_data[p] if q.rows.narrow_data != NULL else 1
                pair = q.rows.pair[p]
                move(
                    q.rows.w + pair, q.narrow_G + pair, x * q.S[t * W + q.rows.label[p]],
                    visit - q.narrow_stamp[pair],
                    q.narrow_scale + pair if q.narrow_scale != NULL else NULL, q
                )
                q.narrow_stamp[pair] = visit


cdef void catch_up(Problem* q, Py_ssize_t visit) noexcept nogil:
    # What the visits since its last one owe to each weight.
    cdef Py_ssize_t row, k, W = q.rows.width
    for row in range(q.n_rows):
        if q.stamp[row] < visit:
            for k in range(row * W, (row + 1) * W):
                shrink(
                    q.rows.W + k, q.G + k, visit - q.stamp[row],
                    q.scale + row if q.scale != NULL else NULL, q
                )
            q.stamp[row] = visit
    for k in range(q.n_pairs):
        shrink(
            q.rows.w + k, q.narrow_G + k, visit - q.narrow_stamp[k],
            q.narrow_scale + k if q.narrow_scale != NULL else NULL, q
        )
        q.narrow_stamp[k] = visit


cdef double visit(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, const int* y, double weight,
    Py_ssize_t number
) noexcept nogil:
    # Returns -log p(y | x) as it was before the step.
    cdef Py_ssize_t t, j, W = q.rows.width, L = q.rows.L
    cdef double log_z, score = 0, temper = 1
    scores(tag, &q.rows, r, T, q.S)
    log_z = expectations(tag, q, T, temper)
    while log_z != log_z and temper > 1e-30:
        # Too far apart for scaled arithmetic: the marginals of flatter scores point the same way.
        temper *= 0.25
        log_z = expectations(tag, q, T, temper)
    if temper < 1:
        log_z = log_partition(q, T)
    for t in range(T):
        score += q.S[t * W + y[t]]
        if t > 0:
            score += q.rows.chain[y[t - 1] * W + y[t]]
            if q.listed.n:
                j = listed_number(&q.listed, y[t - 1], y[t])
                if j >= 0:
                    q.listed.mu[j] -= 1
            else:
                q.pair_mu[y[t - 1] * W + y[t]] -= 1
        for j in range(L):
            q.S[t * W + j] = weight * q.mu[t * W + j]
        q.S[t * W + y[t]] -= weight
    for j in range(q.listed.n):
        q.listed.mu[j] *= weight
    for j in range(0 if q.listed.n else L * W):
        q.pair_mu[j] *= weight
    move_all(tag, q, r, T, number)
    return log_z - score


cdef double visit_all(
    lanes* tag, Problem* q, const long long[::1] order, const long long[::1] offsets,
    const int[::1] y, const double[::1] weights, double[::1] losses, Py_ssize_t first_visit
) noexcept nogil:
    cdef Py_ssize_t k, s
    cdef double total = 0
    for k in range(order.shape[0]):
        s = order[k]
        losses[s] = visit(
            tag, q, offsets[s], offsets[s + 1] - offsets[s], &y[offsets[s]], weights[s],
            first_visit + k + 1
        )
        total += weights[s] * losses[s]
    if q.l1 > 0 or q.l2 > 0:
        catch_up(q, first_visit + order.shape[0])
    return total


def descend(
    const long long[::1] order,       # (n,)               sequences to visit, none empty
    const long long[::1] offsets,     # (n_sequences + 1,)
    const int[::1] y,                 # (n_rows,)
    const double[::1] weights,        # (n_sequences,)
    rows,                             # (indptr, indices, data) of rows with padded weights
    narrow,                           # (indptr, pair, label, data) or None
    double[:, ::1] W,                 # (n, width)         IN/OUT
    mask,                             # (n, width): 1 where trained; or None
    double[::1] w,                    # (n_pairs,)         IN/OUT
    double[:, ::1] chain,             # (L + 2, width)     IN/OUT transition, start, end weights
    const double[:, ::1] chain_mask,  # (L + 2, width)     1 where trained
    const double[:, ::1] allowed,     # (L + 2, width)     0 where forbidden
    float[:, ::1] G,                  # like W             IN/OUT, positive
    float[::1] narrow_G,              # like w             IN/OUT, positive
    float[:, ::1] chain_G,            # like chain         IN/OUT, positive
    scale,                            # (n,) and (n_pairs,): 1 / s; or None
    long long[::1] stamp,             # (n,)               IN/OUT
    long long[::1] narrow_stamp,      # (n_pairs,)         IN/OUT
    double[::1] losses,               # (n_sequences,)     OUT -log p of those visited
    Py_ssize_t first_visit,
    unsigned long long seed,          # not 0
    double almost,
    double rate,
    double l1,
    double l2,
    listed,                           # pairs of labels as `listed_of` reads them, or None
    double[:, ::1] scratch,           # (4 * T + L + 3 * width, width), T the longest; with listed
                                      # pairs (4 * T, width)
    double[::1] inverse_c,            # (T,)
):
    """Visit sequences in order; returns the sum of weight · -log p, each before its step."""
    cdef Problem q
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t T = inverse_c.shape[0]
    cdef const double[::1] wide_scale, narrow_scale
    cdef double total
    if order.shape[0] == 0:
        return 0.0
    q.rows = rows_of(rows, narrow, W, mask, w, chain, chain_mask, allowed)
    q.n_rows, q.n_pairs = W.shape[0], narrow_stamp.shape[0]
    q.G = &G[0, 0] if W.shape[0] else NULL
    q.stamp = &stamp[0] if W.shape[0] else NULL
    q.narrow_G = &narrow_G[0] if narrow_G.shape[0] else NULL
    q.narrow_stamp = &narrow_stamp[0] if q.n_pairs else NULL
    q.chain_G = &chain_G[0, 0]
    q.scale = q.narrow_scale = NULL
    if scale is not None:
        wide_scale, narrow_scale = scale
        q.scale = &wide_scale[0] if W.shape[0] else NULL
        q.narrow_scale = &narrow_scale[0] if q.n_pairs else NULL
    q.rate, q.l1, q.l2, q.random, q.almost = rate, l1, l2, seed, almost
    q.S, q.e, q.alpha, q.mu = &scratch[0, 0], &scratch[T, 0], &scratch[2 * T, 0], &scratch[3 * T, 0]
    q.listed = listed_of(listed)
    q.E = q.Et = q.products = q.pair_mu = NULL
    if listed is None:
        q.E, q.Et = &scratch[4 * T, 0], &scratch[4 * T + q.rows.width, 0]
        q.products = &scratch[4 * T + 2 * q.rows.width, 0]
        q.pair_mu = &scratch[4 * T + 3 * q.rows.width, 0]
    q.inverse_c = &inverse_c[0]
    with nogil:
        if q.rows.width == 2:
            total = visit_all(&two, &q, order, offsets, y, weights, losses, first_visit)
        elif q.rows.width == 4:
            total = visit_all(&four, &q, order, offsets, y, weights, losses, first_visit)
        else:
            total = visit_all(&eight, &q, order, offsets, y, weights, losses, first_visit)
    return total

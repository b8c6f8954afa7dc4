"""One pass of stochastic gradient descent over sequences, each weight with a step of its own.

For one sequence at a time, with g its gradient of -weight · log p(y | x) in one weight, entry by
entry (Duchi, Hazan, Singer 2011, §1.2 and §5.1: AdaGrad in its composite form):

    G ← G + g²
    w ← w - rate / √G · g
    w ← shrunk by the penalties' share of this sequence, (l1 ‖w‖₁ + l2 ‖w‖²₂) / n

A weight that a sequence does not touch is shrunk when it is next touched, for all the sequences in
between at once: ``stamp`` keeps the last one.
"""

from libc.math cimport INFINITY, log, sqrt

from sklseq._lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference._recursions cimport backward, forward
from sklseq.objectives._visits cimport Rows, rows_of, scores, sklseq_exp, soft

# As in `_ascent.pyx`: with no transition factor below this, nothing can be lost.
cdef double MIX = 1e-150

cdef struct Problem:
    Rows rows
    double* G                # sums of squared gradients; shapes as W, w and chain
    double* narrow_G
    double* chain_G
    long long* stamp         # (n,) and (n_pairs,): the visit that shrank a row last
    long long* narrow_stamp
    Py_ssize_t n_rows, n_pairs
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


cdef inline double shrunk(double w, double step, double l1, double l2) noexcept nogil:
    # argmin_v (v - w)^2 / (2 step) + l1 |v| + l2 v^2 / 2
    return soft(w, step * l1) / (1 + step * l2)


cdef void shrink_row(Problem* q, Py_ssize_t row, Py_ssize_t visit) noexcept nogil:
    # What the visits since the last one owe to a row of weights.
    cdef Py_ssize_t k, W = q.rows.width
    cdef double m = visit - q.stamp[row], step
    cdef double* w = q.rows.W + row * W
    cdef const double* G = q.G + row * W
    if m == 0:
        return
    q.stamp[row] = visit
    for k in range(W):
        step = m * q.rate / sqrt(G[k])
        w[k] = shrunk(w[k], step, q.l1, q.l2)


cdef inline void shrink_pair(Problem* q, Py_ssize_t pair, Py_ssize_t visit) noexcept nogil:
    cdef double m = visit - q.narrow_stamp[pair]
    if m == 0:
        return
    q.narrow_stamp[pair] = visit
    q.rows.w[pair] = shrunk(q.rows.w[pair], m * q.rate / sqrt(q.narrow_G[pair]), q.l1, q.l2)


cdef void shrink_touched(Problem* q, Py_ssize_t r, Py_ssize_t T, Py_ssize_t visit) noexcept nogil:
    cdef Py_ssize_t p, i, j, k
    for p in range(q.rows.indptr[r], q.rows.indptr[r + T]):
        shrink_row(q, q.rows.indices[p], visit)
    if q.rows.narrow_indptr != NULL:
        for p in range(q.rows.narrow_indptr[r], q.rows.narrow_indptr[r + T]):
            shrink_pair(q, q.rows.pair[p], visit)
    for i in range(q.rows.L + 2):
        for j in range(q.rows.L):
            k = i * q.rows.width + j
            q.rows.chain[k] = shrunk(
                q.rows.chain[k], q.rate / sqrt(q.chain_G[k]), q.l1, q.l2
            )


cdef double expectations(
    lanes* tag, Problem* q, Py_ssize_t T, double temper
) noexcept nogil:
    # mu and pair_mu of temper * S; returns log Z, or NaN
    cdef Py_ssize_t t, i, j, L = q.rows.L, W = q.rows.width
    cdef double top, log_z = 0, least = 1
    cdef double* e
    cdef const double* start = q.rows.allowed + L * W
    for t in range(T):
        e = q.e + t * W
        top = -INFINITY
        for j in range(L):
            top = q.S[t * W + j] if q.S[t * W + j] > top else top
        for j in range(W):
            e[j] = sklseq_exp(temper * (q.S[t * W + j] - top)) if j < L else 0
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
    top = -INFINITY
    for i in range(L):
        for j in range(L):
            top = q.rows.chain[i * W + j] if q.rows.chain[i * W + j] > top else top
    log_z += (T - 1) * temper * top
    for i in range(L):
        for j in range(L):
            q.E[i * W + j] = q.rows.allowed[i * W + j] * sklseq_exp(
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


cdef inline void step_of(double* w, double* G, double g, double rate) noexcept nogil:
    G[0] += g * g
    w[0] -= rate * g / sqrt(G[0])


cdef void step_row(
    lanes* tag, Problem* q, Py_ssize_t row, const double* g, double x
) noexcept nogil:
    cdef Py_ssize_t B = n_lanes(tag), W = q.rows.width, block, k, at
    cdef double v
    for block in range(W // B):
        at = row * W + block * B
        if q.rows.mask == NULL:
            for k in range(B):
                v = x * g[block * B + k]
                q.G[at + k] += v * v
                q.rows.W[at + k] -= q.rate * v / sqrt(q.G[at + k])
        else:
            for k in range(B):
                v = x * g[block * B + k] * q.rows.mask[at + k]
                q.G[at + k] += v * v
                q.rows.W[at + k] -= q.rate * v / sqrt(q.G[at + k])


cdef void step_all(lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T) noexcept nogil:
    # S holds the residuals of the rows, pair_mu those of the transitions.
    cdef Py_ssize_t t, p, i, j, k, W = q.rows.width, L = q.rows.L
    cdef double g, x
    for t in range(T):
        for p in range(q.rows.indptr[r + t], q.rows.indptr[r + t + 1]):
            x = q.rows.data[p] if q.rows.data != NULL else 1
            step_row(tag, q, q.rows.indices[p], q.S + t * W, x)
        if q.rows.narrow_indptr != NULL:
            for p in range(q.rows.narrow_indptr[r + t], q.rows.narrow_indptr[r + t + 1]):
                x = q.rows.narrow_data[p] if q.rows.narrow_data != NULL else 1
                step_of(
                    q.rows.w + q.rows.pair[p], q.narrow_G + q.rows.pair[p],
                    x * q.S[t * W + q.rows.label[p]], q.rate
                )
    for i in range(L + 2):
        for j in range(L):
            k = i * W + j
            if i < L:
                g = q.pair_mu[k]
            else:
                g = q.S[j] if i == L else q.S[(T - 1) * W + j]
            step_of(q.rows.chain + k, q.chain_G + k, g * q.rows.chain_mask[k], q.rate)


cdef double visit(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, const int* y, double weight,
    Py_ssize_t number
) noexcept nogil:
    # Returns weight * -log p(y | x) as it was before the step.
    cdef Py_ssize_t t, j, W = q.rows.width, L = q.rows.L
    cdef double log_z, score = 0, temper = 1
    shrink_touched(q, r, T, number)
    scores(tag, &q.rows, r, T, q.S)
    log_z = expectations(tag, q, T, temper)
    while log_z != log_z and temper > 1e-30:
        # Too far apart for scaled arithmetic: the marginals of flatter scores point the same way.
        temper *= 0.25
        log_z = expectations(tag, q, T, temper)
    for t in range(T):
        score += q.S[t * W + y[t]]
        if t > 0:
            score += q.rows.chain[y[t - 1] * W + y[t]]
            q.pair_mu[y[t - 1] * W + y[t]] -= 1
        for j in range(L):
            q.S[t * W + j] = weight * q.mu[t * W + j]
        q.S[t * W + y[t]] -= weight
    for j in range(L * W):
        q.pair_mu[j] *= weight
    step_all(tag, q, r, T)
    return weight * (log_z / temper - score)


cdef double visit_all(
    lanes* tag, Problem* q, const long long[::1] order, const long long[::1] offsets,
    const int[::1] y, const double[::1] weights, Py_ssize_t first_visit
) noexcept nogil:
    cdef Py_ssize_t k, s
    cdef double total = 0
    for k in range(order.shape[0]):
        s = order[k]
        total += visit(
            tag, q, offsets[s], offsets[s + 1] - offsets[s], &y[offsets[s]], weights[s],
            first_visit + k + 1
        )
    for k in range(q.n_rows):
        shrink_row(q, k, first_visit + order.shape[0])
    for k in range(q.n_pairs):
        shrink_pair(q, k, first_visit + order.shape[0])
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
    double[:, ::1] G,                 # like W             IN/OUT, positive
    double[::1] narrow_G,             # like w             IN/OUT, positive
    double[:, ::1] chain_G,           # like chain         IN/OUT, positive
    long long[::1] stamp,             # (n,)               IN/OUT
    long long[::1] narrow_stamp,      # (n_pairs,)         IN/OUT
    Py_ssize_t first_visit,
    double rate,
    double l1,
    double l2,
    double[:, ::1] scratch,           # (4 * T + L + 3 * width, width), T the longest
    double[::1] inverse_c,            # (T,)
):
    """Visit sequences in order; returns the sum of weight · -log p, each before its step."""
    cdef Problem q
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t T = inverse_c.shape[0]
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
    q.rate, q.l1, q.l2 = rate, l1, l2
    q.S, q.e, q.alpha, q.mu = &scratch[0, 0], &scratch[T, 0], &scratch[2 * T, 0], &scratch[3 * T, 0]
    q.E, q.Et = &scratch[4 * T, 0], &scratch[4 * T + q.rows.width, 0]
    q.products = &scratch[4 * T + 2 * q.rows.width, 0]
    q.pair_mu = &scratch[4 * T + 3 * q.rows.width, 0]
    q.inverse_c = &inverse_c[0]
    with nogil:
        if q.rows.width == 2:
            total = visit_all(&two, &q, order, offsets, y, weights, first_visit)
        elif q.rows.width == 4:
            total = visit_all(&four, &q, order, offsets, y, weights, first_visit)
        else:
            total = visit_all(&eight, &q, order, offsets, y, weights, first_visit)
    return total

"""One pass of AdaGrad over sequences: stochastic gradient descent, a step size for each weight.

For each sequence, with g the derivative of -weight · log p(y | x) by one weight, entry by entry,
and s the largest magnitude of that weight's feature (Duchi, Hazan, Singer 2011, §1.2 and
§5.1: AdaGrad in its composite form; Ross, Mineiro, Langford 2013: s):

    G ← G + (g / s)²
    w ← w - rate / (s² √G) · g
    w ← shrunk by the penalties of one sequence of n, (l1 ‖w‖₁ + l2 ‖w‖²₂) / n

If y allows several labels, g is the derivative of -weight · log p(Y | x), see
`PartialLogLikelihood`: the difference of the expectations over all labelings and over those that y
allows.

A weight that a sequence does not change is shrunk after its next change, or at the end of the pass,
for all updates in between at once; ``stamp`` has its last update, for a block of lanes. G and its
square roots are float32: square roots and divisions are the largest part of the cost of a step.
"""

import numpy as np

from libc.math cimport INFINITY, sqrt, sqrtf

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq._lib.prefetch cimport prefetch
from sklseq.inference.kernels._log_domain cimport log_sum_exp
from sklseq.objectives.likelihood.lattice cimport (
    Lattice, RowEntries, Rows, entry_of, expectations, lattice_of, number_entries, scores, soft,
)
from sklseq.inference.kernels._sparse_entries cimport number_of

# Upper limit of a step, which is float32.
cdef double LARGEST = 1e30

# max_k sqrt(G_k - G) at or below which no thread has updated a weight.
cdef float UNMOVED = <float> 1e-14

# Sums of squares are prefetched this number of entries ahead. Most lanes of a block.
cdef enum:
    NEAR = 8
    MOST_LANES = 8

cdef struct Problem:
    Lattice at               # its scores become residuals
    float* G                 # sums of squared gradients; shapes as W, w and chain
    float* sparse_G
    float* chain_G
    float* link_G            # (n_links,), as are the next two: weights of transition features
    const double* link_scale
    long long* link_stamp
    Py_ssize_t n_links
    const double* scale      # (n,) and (n_pairs,): 1 / s; NULL if all values are one
    const double* sparse_scale
    long long* stamp         # (n, blocks): last update that shrank a block of a row
    long long* sparse_stamp  # (n_pairs,)
    Py_ssize_t n_rows, n_pairs
    const double* penalties  # (n_codes, width): 0 where a code allows a label, else -inf; or NULL
    double* kept             # (T, width) marginals of all labelings
    double* kept_pairs       # (L, width), or (n,) for sparse transitions
    unsigned long long random
    double almost            # blocks with smaller residuals are sampled
    double rate
    double pace              # rate of the gradient: less than `rate` in a long sequence
    double l1                # of one update: l1 / n
    double l2                # 2 * l2 / n


cdef inline void shrink(
    double* w, const float* G, double m, const double* scale, Problem* q
) noexcept nogil:
    # argmin_v (v - w)^2 / (2 step) + l1 |v| + l2 v^2 / 2, with the step of m updates
    cdef float step
    if scale != NULL:
        m *= scale[0] * scale[0]
    step = <float> min(m * q.rate, LARGEST) / sqrtf(G[0])
    w[0] = soft(w[0], step * q.l1) * (1 / (1 + step * <float> q.l2))


cdef inline void move(
    double* w, float* G, double g, double m, const double* scale, Problem* q
) noexcept nogil:
    # The step of one weight, then `shrink`.
    cdef double rate = q.pace
    if scale != NULL:
        g *= scale[0]
        rate *= scale[0]
    G[0] += <float> (g * g)
    w[0] -= rate * g / sqrtf(G[0])
    shrink(w, G, m, scale, q)


cdef void move_row(
    lanes* tag, Problem* q, Py_ssize_t row, const double* g, double x, Py_ssize_t update
) noexcept nogil:
    # `move` for the blocks of a row of weights that `choose` selected, with gradients x * g.
    cdef Py_ssize_t B = n_lanes(tag), W = q.at.rows.width, block, k
    cdef double* w
    cdef float* G
    cdef const double* mask = q.at.rows.mask
    cdef const double* moves = q.at.alpha
    cdef long long* stamp = q.stamp + row * (W // B)
    cdef double v, late = q.rate, rate = q.pace
    cdef float root, m, l1 = q.l1, l2 = q.l2
    if q.scale != NULL:
        x *= q.scale[row]
        rate *= q.scale[row]
        late *= q.scale[row] * q.scale[row]
    for block in range(W // B):
        if moves[block] == 0:
            continue
        m = min((update - stamp[block]) * late, LARGEST)
        stamp[block] = update
        w, G = q.at.rows.W + row * W + block * B, q.G + row * W + block * B
        for k in range(B):
            v = x * g[block * B + k]
            if mask != NULL:
                v *= mask[row * W + block * B + k]
            G[k] += <float> (v * v)
            # With step = m / root, both sides of `shrink` times root: one division less.
            root = sqrtf(G[k])
            w[k] = soft(root * w[k] - rate * v, m * l1) * (1 / (root + m * l2))


cdef inline double pair_score(
    const Lattice* q, Py_ssize_t t, Py_ssize_t i, Py_ssize_t j
) noexcept nogil:
    # Transition score of row t, whose entries `number_entries` has numbered.
    cdef const RowEntries* e = &q.entries
    if e.links.indptr != NULL and e.start[t] <= e.place[i * q.rows.L + j] < e.start[t + 1]:
        return e.score[e.place[i * q.rows.L + j]]
    return q.rows.chain[i * q.rows.width + j]


cdef double log_partition(Lattice* q, Py_ssize_t T) noexcept nogil:
    # log Z of S and the transitions in the log domain: slow, but correct for all finite scores.
    # alpha_t(j) = S_t(j) + log sum_i exp(alpha_{t-1}(i) + transition(i, j))
    cdef Py_ssize_t t, i, j, L = q.rows.L, W = q.rows.width
    cdef const double* allowed = q.rows.allowed
    cdef const double* end = allowed + (L + 1) * W
    cdef double* alpha = q.alpha
    cdef RowEntries* of_row = &q.entries
    for j in range(L):
        alpha[j] = q.S[j] if allowed[L * W + j] != 0 else -INFINITY
    for t in range(1, T):
        alpha = q.alpha + t * W
        if of_row.links.indptr != NULL:
            number_entries(of_row, t)
        for j in range(L):
            for i in range(L):
                q.e[i] = -INFINITY
                if allowed[i * W + j] != 0:
                    q.e[i] = alpha[i - W] + pair_score(q, t, i, j)
            alpha[j] = q.S[t * W + j] + log_sum_exp(q.e, L)
    for j in range(L):
        alpha[j] = alpha[j] if end[j] != 0 else -INFINITY
    return log_sum_exp(alpha, L)


cdef inline double sampled_scale(Problem* q, double top) noexcept nogil:
    # Factor of a step by residuals of magnitude up to `top`: 1 if top >= almost; otherwise
    # almost / top with probability top / almost, or 0, which leaves the expected step unchanged.
    if top >= q.almost:
        return 1
    q.random ^= q.random << 13           # Marsaglia (2003): xorshift
    q.random ^= q.random >> 7
    q.random ^= q.random << 17
    if <double> (q.random >> 11) * (1.0 / 9007199254740992.0) * q.almost >= top:
        return 0
    return q.almost / top


cdef inline bint choose(lanes* tag, Problem* q, double* residual) noexcept nogil:
    # Select blocks of lanes at random: those with small residuals rarely change weights, but then
    # with residuals scaled up. Writes 0 or 1 for each block into the scratch alpha; returns whether
    # any is selected.
    cdef Py_ssize_t B = n_lanes(tag), block, k
    cdef double top, size, factor
    cdef double* r
    cdef double* moves = q.at.alpha
    cdef bint any_moves = False
    for block in range(q.at.rows.width // B):
        r, top = residual + block * B, 0
        for k in range(B):
            size = r[k] if r[k] > 0 else -r[k]
            top = size if size > top else top
        factor = sampled_scale(q, top)
        moves[block] = factor != 0
        if factor != 1:
            for k in range(B):
                r[k] *= factor
        any_moves |= moves[block] != 0
    return any_moves


cdef void move_links(Problem* q, Py_ssize_t r, Py_ssize_t T, Py_ssize_t update) noexcept nogil:
    # Weights of transition features; `expected` of entries holds residuals.
    cdef RowEntries* at = &q.at.entries
    cdef Py_ssize_t t, p, k, f, e
    cdef double g
    for t in range(1, T):
        number_entries(at, t)
        for e in range(at.start[t], at.start[t + 1]):
            at.expected[e] *= sampled_scale(q, abs(at.expected[e]))
        for p in range(at.links.indptr[r + t], at.links.indptr[r + t + 1]):
            f = at.links.indices[p]
            for k in range(at.links.support[f], at.links.support[f + 1]):
                e = at.place[at.links.from_label[k] * at.links.L + at.links.to_label[k]]
                g = at.links.data[p] * at.expected[e]
                if g == 0:
                    continue
                move(
                    at.v + k, q.link_G + k, g, update - q.link_stamp[k],
                    q.link_scale + k if q.link_scale != NULL else NULL, q
                )
                q.link_stamp[k] = update


cdef void move_all(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, Py_ssize_t update
) noexcept nogil:
    # S holds the residuals of the rows, pair_mu those of the transitions.
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t t, p, pair, i, j, k, W = rows.width, L = rows.L
    cdef double g, x
    for i in range(q.at.listed.n):
        k = q.at.listed.at[i]
        g = q.at.listed.mu[i] * rows.chain_mask[k]
        move(rows.chain + k, q.chain_G + k, g, 1, NULL, q)
    for i in range(L if q.at.listed.n else 0, L + 2):
        for j in range(L):
            k = i * W + j
            if i < L:
                g = q.at.pair_mu[k]
            else:
                g = q.at.S[j] if i == L else q.at.S[(T - 1) * W + j]
            move(rows.chain + k, q.chain_G + k, g * rows.chain_mask[k], 1, NULL, q)
    if q.at.entries.links.indptr != NULL:
        move_links(q, r, T, update)
    for t in range(T):
        if not choose(tag, q, q.at.S + t * W):
            continue
        for p in range(rows.indptr[r + t], rows.indptr[r + t + 1]):
            x = rows.data[p] if rows.data != NULL else 1
            move_row(tag, q, rows.indices[p], q.at.S + t * W, x, update)
        if rows.sparse_indptr != NULL:
            for p in range(rows.sparse_indptr[r + t], rows.sparse_indptr[r + t + 1]):
                if p + NEAR < rows.sparse_nnz:
                    prefetch(q.sparse_stamp + rows.pair[p + NEAR])
                    prefetch(q.sparse_G + rows.pair[p + NEAR])
                x = rows.sparse_data[p] if rows.sparse_data != NULL else 1
                pair = rows.pair[p]
                if q.at.S[t * W + rows.label[p]] == 0:
                    continue
                move(
                    rows.w + pair, q.sparse_G + pair, x * q.at.S[t * W + rows.label[p]],
                    update - q.sparse_stamp[pair],
                    q.sparse_scale + pair if q.sparse_scale != NULL else NULL, q
                )
                q.sparse_stamp[pair] = update


cdef void catch_up(Problem* q, Py_ssize_t update) noexcept nogil:
    # Shrink each weight for all updates since its last one.
    cdef Py_ssize_t block, k, W = q.at.rows.width, B = min(W, 8), n = W // B
    for block in range(q.n_rows * n):
        if q.stamp[block] < update:
            for k in range(block * B, (block + 1) * B):
                shrink(
                    q.at.rows.W + k, q.G + k, update - q.stamp[block],
                    q.scale + block // n if q.scale != NULL else NULL, q
                )
            q.stamp[block] = update
    for k in range(q.n_pairs):
        shrink(
            q.at.rows.w + k, q.sparse_G + k, update - q.sparse_stamp[k],
            q.sparse_scale + k if q.sparse_scale != NULL else NULL, q
        )
        q.sparse_stamp[k] = update
    for k in range(q.n_links):
        shrink(
            q.at.entries.v + k, q.link_G + k, update - q.link_stamp[k],
            q.link_scale + k if q.link_scale != NULL else NULL, q
        )
        q.link_stamp[k] = update


cdef double marginals_of_scores(
    lanes* tag, Lattice* at, Py_ssize_t T, double* temper
) noexcept nogil:
    # log Z of S, with mu and pair_mu. If scores differ too much for scaled arithmetic, `temper` is
    # reduced, and mu and pair_mu are those of temper * S, which give a step of similar direction.
    cdef double log_z = expectations(tag, at, at.S, at.rows.chain, temper[0], T)
    while log_z != log_z and temper[0] > 1e-30:
        temper[0] *= 0.25
        log_z = expectations(tag, at, at.S, at.rows.chain, temper[0], T)
    return log_partition(at, T) if temper[0] < 1 else log_z


cdef double residuals_of_path(
    lanes* tag, Lattice* at, Py_ssize_t T, const int* y, double weight
) noexcept nogil:
    # Turn S, and pair_mu or `listed.mu`, into residuals; return -log p(y | x).
    cdef Py_ssize_t t, j, p, W = at.rows.width, L = at.rows.L
    cdef double score = 0, temper = 1, log_z = marginals_of_scores(tag, at, T, &temper)
    for t in range(T):
        score += at.S[t * W + y[t]]
        if t > 0:
            p = entry_of(&at.entries, t, y[t - 1], y[t])
            if p >= 0:
                score += at.entries.score[p]
                at.entries.expected[p] -= 1
            else:
                score += at.rows.chain[y[t - 1] * W + y[t]]
            if at.listed.n:
                j = number_of(&at.listed.lines, y[t - 1], y[t])
                if j >= 0:
                    at.listed.mu[j] -= 1
            else:
                at.pair_mu[y[t - 1] * W + y[t]] -= 1
        for j in range(L):
            at.S[t * W + j] = weight * at.mu[t * W + j]
        at.S[t * W + y[t]] -= weight
    for j in range(at.listed.n):
        at.listed.mu[j] *= weight
    for j in range(0 if at.listed.n else L * W):
        at.pair_mu[j] *= weight
    for j in range(at.entries.n):
        at.entries.expected[j] *= weight
    return log_z - score


cdef double residuals_of_codes(
    lanes* tag, Problem* q, Py_ssize_t T, const int* y, double weight
) noexcept nogil:
    # `residuals_of_path` if y allows several labels; returns -log p(Y | x).
    cdef Lattice* at = &q.at
    cdef Py_ssize_t t, j, k, W = at.rows.width, L = at.rows.L
    cdef Py_ssize_t n = at.listed.n if at.listed.n else L * W
    cdef double* pairs = at.listed.mu if at.listed.n else at.pair_mu
    cdef double temper = 1, loss = marginals_of_scores(tag, at, T, &temper)
    for k in range(n):
        q.kept_pairs[k] = pairs[k]
    for k in range(at.entries.n):
        at.entries.kept[k] = at.entries.expected[k]
    for t in range(T):
        for j in range(L):
            q.kept[t * W + j] = at.mu[t * W + j]
            at.S[t * W + j] += q.penalties[y[t] * W + j]
    loss -= marginals_of_scores(tag, at, T, &temper)
    for k in range(n):
        pairs[k] = weight * (q.kept_pairs[k] - pairs[k])
    for k in range(at.entries.n):
        at.entries.expected[k] = weight * (at.entries.kept[k] - at.entries.expected[k])
    for t in range(T):
        for j in range(L):
            at.S[t * W + j] = weight * (q.kept[t * W + j] - at.mu[t * W + j])
    return loss


cdef double update_weights(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, const int* y, double weight,
    Py_ssize_t number
) noexcept nogil:
    # Update on one sequence; returns its -log p before the step.
    cdef Lattice* at = &q.at
    cdef Py_ssize_t t, j
    cdef double loss
    cdef bint is_path = True
    for t in range(T):
        is_path &= y[t] < at.rows.L
    scores(tag, at, r, T)
    for j in range(at.listed.n):
        at.listed.theta[j] = at.rows.chain[at.listed.at[j]]
    if is_path:
        loss = residuals_of_path(tag, at, T, y, weight)
    else:
        loss = residuals_of_codes(tag, q, T, y, weight)
    move_all(tag, q, r, T, number)
    return loss


def descend(
    state,                            # StochasticLikelihood: its arrays are IN/OUT
    const long long[::1] order,       # (n,)               sequences to update, none empty
    const double[::1] weights,        # (n_sequences,)
    double[:, ::1] W,                 # (n, width)         IN/OUT padded weights
    double[::1] w,                    # (n_pairs,)         IN/OUT weights of sparse features
    unsigned long long seed,          # not 0
    double almost, double rate, double l1, double l2,
    double long_rows,
    bint finish=True,
):
    """Update sequences in order; returns the sum of weight · -log p, each before its step.

    The rate of a sequence of T > ``long_rows`` rows is multiplied by √(long_rows / T). Without
    ``finish``, weights stay as their last update left them, see ``stamps``.
    """
    cdef const long long[::1] offsets = state.offsets
    cdef const int[::1] y = state.y
    cdef float[:, ::1] G = state.squares[0], chain_G = state.squares[2]
    cdef float[::1] sparse_G = state.squares[1], link_G = state.squares[3]
    cdef long long[::1] stamp = state.stamps[0], sparse_stamp = state.stamps[1]
    cdef long long[::1] link_stamp = state.stamps[3]
    cdef double[::1] losses = state.losses
    cdef const double[::1] dense_scale, sparse_scale, link_scale
    cdef const double[:, ::1] penalties
    cdef double[:, ::1] scratch = state.scratch
    cdef Problem q
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t k, s, r, T, number = state.n_updates
    cdef double total = 0
    if order.shape[0] == 0:
        return 0.0
    q.at = lattice_of(state, W, w)
    q.n_rows, q.n_pairs = W.shape[0], sparse_stamp.shape[0]
    q.G = &G[0, 0] if W.shape[0] else NULL
    q.stamp = &stamp[0] if W.shape[0] else NULL
    q.sparse_G = &sparse_G[0] if sparse_G.shape[0] else NULL
    q.sparse_stamp = &sparse_stamp[0] if q.n_pairs else NULL
    q.chain_G = &chain_G[0, 0]
    q.n_links = link_G.shape[0]
    q.link_G = &link_G[0] if q.n_links else NULL
    q.link_stamp = &link_stamp[0] if q.n_links else NULL
    q.scale = q.sparse_scale = q.link_scale = NULL
    if state.scale is not None:
        dense_scale, sparse_scale, link_scale = state.scale
        q.link_scale = &link_scale[0] if q.n_links else NULL
        q.scale = &dense_scale[0] if W.shape[0] else NULL
        q.sparse_scale = &sparse_scale[0] if q.n_pairs else NULL
    q.penalties = NULL
    if state.penalties is not None:
        penalties = state.penalties
        q.penalties = &penalties[0, 0]
        q.kept, k = &scratch[q.at.used, 0], q.at.used + state.longest
        q.kept_pairs = q.at.listed.kept if q.at.listed.n else &scratch[k, 0]
    q.rate, q.l1, q.l2, q.random, q.almost = rate, l1, l2, seed, almost
    with nogil:
        for k in range(order.shape[0]):
            s = order[k]
            r, T = offsets[s], offsets[s + 1] - offsets[s]
            number += 1
            q.pace = rate * sqrt(min(1.0, long_rows / T))
            if q.at.rows.width == 2:
                losses[s] = update_weights(&two, &q, r, T, &y[r], weights[s], number)
            elif q.at.rows.width == 4:
                losses[s] = update_weights(&four, &q, r, T, &y[r], weights[s], number)
            else:
                losses[s] = update_weights(&eight, &q, r, T, &y[r], weights[s], number)
            total += weights[s] * losses[s]
        if finish and (q.l1 > 0 or q.l2 > 0):
            catch_up(&q, number)
    return total


cdef struct Copies:
    # One array of weights, and the copies of n threads that went on from it.
    Py_ssize_t n, lanes
    double* w                # of all blocks of `lanes` weights
    float* G
    long long* stamp         # for each block
    size_t* of_thread        # (3, n): addresses of w, G and stamp of each
    const long long* counts  # (n,): updates of each thread since `before`
    long long before, total  # updates before, and of all threads
    float farthest


cdef inline double* weights_of(Copies* c, Py_ssize_t k) noexcept nogil:
    return <double*> c.of_thread[k]


cdef inline float* squares_of(Copies* c, Py_ssize_t k) noexcept nogil:
    return <float*> c.of_thread[c.n + k]


cdef inline long long* stamps_of(Copies* c, Py_ssize_t k) noexcept nogil:
    return <long long*> c.of_thread[2 * c.n + k]


cdef void merge_block(Copies* c, Py_ssize_t block, const double* scale, Problem* q) noexcept nogil:
    # The formula of `StochasticLikelihood` for a block that several threads updated.
    cdef Py_ssize_t first = block * c.lanes, j, k
    cdef double start[MOST_LANES]
    cdef double step[MOST_LANES]
    cdef double low[MOST_LANES]
    cdef double high[MOST_LANES]
    cdef float grown[MOST_LANES]
    cdef float roots[MOST_LANES]
    cdef float most[MOST_LANES]
    cdef double v, r, late
    cdef float more, root
    cdef double* w
    cdef float* G
    for j in range(c.lanes):
        start[j] = c.w[first + j]
        shrink(start + j, c.G + first + j, c.before - c.stamp[block], scale, q)
        step[j], grown[j], roots[j], most[j] = 0, 0, 0, 0
        low[j], high[j] = INFINITY, -INFINITY
    for k in range(c.n):
        late = c.counts[k] - max(stamps_of(c, k)[block] - c.before, 0)
        w = weights_of(c, k) + first if stamps_of(c, k)[block] > c.before else start
        G = squares_of(c, k) + first
        for j in range(c.lanes):
            v = w[j]
            shrink(&v, G + j, late, scale, q)
            more = max(G[j] - c.G[first + j], <float> 0)
            root = sqrtf(more + <float> 1e-30)
            grown[j], roots[j], most[j] = grown[j] + more, roots[j] + root, max(most[j], root)
            step[j], low[j], high[j] = step[j] + v - start[j], min(low[j], v), max(high[j], v)
    for j in range(c.lanes):
        r = min(c.farthest * most[j] / roots[j], <float> 1) if most[j] > UNMOVED else 1
        v = start[j] + r * step[j]
        if (v < 0 and low[j] >= 0) or (v > 0 and high[j] <= 0):
            v = 0  # no copy has this sign
        c.w[first + j] = v
        c.G[first + j] += grown[j]
    c.stamp[block] = c.before + c.total


cdef inline void copy_block(
    Copies* c, Py_ssize_t block, double* w, float* G, long long* stamp,
    const double* from_w, const float* from_G, long long last
) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(block * c.lanes, (block + 1) * c.lanes):
        w[j], G[j] = from_w[j], from_G[j]
    stamp[block] = last


cdef void merge_copies(
    Copies* c, Py_ssize_t block, const double* scale, bint finish, Problem* q
) noexcept nogil:
    cdef Py_ssize_t n_moved = 0, mover = 0, j, k
    for k in range(c.n):
        if stamps_of(c, k)[block] > c.before:
            n_moved, mover = n_moved + 1, k
    if n_moved == 1:
        copy_block(c, block, c.w, c.G, c.stamp, weights_of(c, mover), squares_of(c, mover),
                   stamps_of(c, mover)[block])
    elif n_moved:
        merge_block(c, block, scale, q)
    if finish:
        if c.stamp[block] < c.before + c.total:
            for j in range(block * c.lanes, (block + 1) * c.lanes):
                shrink(c.w + j, c.G + j, c.before + c.total - c.stamp[block], scale, q)
            c.stamp[block] = c.before + c.total
    elif n_moved:
        for k in range(c.n):
            if n_moved > 1 or k != mover:
                copy_block(c, block, weights_of(c, k), squares_of(c, k), stamps_of(c, k), c.w, c.G,
                           c.stamp[block])


def merge(
    tuple weights,                    # (w, G, stamp), (n_blocks * lanes,) and (n_blocks,)  IN/OUT
    list copies,                      # of (w, G, stamp) of each thread, IN/OUT
    const double[::1] scale,          # (n_blocks // per_scale,), or (0,) if all values are one
    Py_ssize_t per_scale,
    const long long[::1] counts,      # updates of each thread
    long long before,                 # updates before these
    tuple penalties,                  # rate, l1, l2
    double farthest,
    bint finish,
    Py_ssize_t first, Py_ssize_t last,
):
    """Merge blocks first to last - 1 of the weights that threads trained from the same start.

    A block that one thread updated gets the values of this thread; the penalties of the updates of
    others are due, as those of skipped updates are in one thread. All copies get the merged values,
    except with ``finish``: then ``w`` gets all penalties that are due.
    """
    cdef Copies c
    cdef Problem q
    cdef Py_ssize_t k, block
    cdef size_t[:, ::1] addresses = np.empty((3, len(copies)), dtype=np.uintp)
    cdef double[::1] w = weights[0], w_k
    cdef float[::1] G = weights[1], G_k
    cdef long long[::1] stamp = weights[2], stamp_k
    if first >= last:
        return
    for k in range(len(copies)):
        w_k, G_k, stamp_k = copies[k]
        addresses[0, k] = <size_t> &w_k[0]
        addresses[1, k] = <size_t> &G_k[0]
        addresses[2, k] = <size_t> &stamp_k[0]
    c.n, c.lanes, c.of_thread = len(copies), w.shape[0] // stamp.shape[0], &addresses[0, 0]
    c.w, c.G, c.stamp, c.counts, c.before = &w[0], &G[0], &stamp[0], &counts[0], before
    c.total, c.farthest = 0, <float> farthest
    for k in range(c.n):
        c.total += counts[k]
    q.rate, q.l1, q.l2 = penalties
    cdef const double* scales = &scale[0] if scale.shape[0] else NULL
    with nogil:
        for block in range(first, last):
            merge_copies(
                &c, block, scales + block // per_scale if scales != NULL else NULL, finish, &q
            )

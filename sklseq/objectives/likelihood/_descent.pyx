"""One pass of AdaGrad over sequences: stochastic gradient descent, a step size for each weight.

For each sequence, with g the derivative of -weight · log p(y | x) by one weight, entry by entry,
and s the largest magnitude of that weight's feature (Duchi, Hazan, Singer 2011, §1.2 and
§5.1: AdaGrad in its composite form; Ross, Mineiro, Langford 2013: s):

    G ← G + (g / s)²
    w ← w - rate / (s² √G) · g
    w ← shrunk by the penalties of one sequence of n, (l1 ‖w‖₁ + l2 ‖w‖²₂) / n

Several threads share the weights, see `batches.pxd`: then g is the derivative before the first
update of the batch, and random numbers depend on the number of the update.

If y allows several labels, g is the derivative of -weight · log p(Y | x), see
`PartialLogLikelihood`: the difference of the expectations over all labelings and over those that y
allows.

A weight that a sequence does not change is shrunk after its next change, or at the end of the pass,
for all updates in between at once; ``stamp`` has its last update, for a block of lanes. G and its
square roots are float32: square roots and divisions are the largest part of the cost of a step.
"""

from libc.math cimport INFINITY, sqrtf

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq._lib.prefetch cimport prefetch
from sklseq.inference.kernels._log_domain cimport log_sum_exp
from sklseq.objectives.likelihood.batches cimport (
    GROUP, SPARSE_GROUP, Batches, batches_of, own_entries, part_done, sequence_done, take_part,
    take_sequence, wait_for_parts, wait_for_sequences,
)
from sklseq.objectives.likelihood.lattice cimport (
    Lattice, RowEntries, Rows, entry_of, expectations, lattice_of, place_entries, scores, soft,
)
from sklseq.objectives.likelihood.sparse_lattice cimport listed_number

# Upper limit of a step, which is float32.
cdef double LARGEST = 1e30

# Sums of squares are prefetched this number of entries ahead. Entries chosen at a time.
cdef enum:
    NEAR = 8
    SOME = 64

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
    const unsigned short* owner      # parts of the weights by rows; NULL if there is one part
    const unsigned short* sparse_owner
    const unsigned short* link_owner
    double* ends             # (2, width): residuals of the first and last row
    unsigned char* moves     # (T, blocks): which of the blocks of residuals change weights
    const double* penalties  # (n_codes, width): 0 where a code allows a label, else -inf; or NULL
    double* kept             # (T, width) marginals of all labelings
    double* kept_pairs       # (L, width), or (n,) for sparse transitions
    unsigned long long random
    double almost            # blocks with smaller residuals are sampled
    double rate
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
    cdef double rate = q.rate
    if scale != NULL:
        g *= scale[0]
        rate *= scale[0]
    G[0] += <float> (g * g)
    w[0] -= rate * g / sqrtf(G[0])
    shrink(w, G, m, scale, q)


cdef void move_row(
    lanes* tag, Problem* q, Py_ssize_t row, const double* g, const unsigned char* moves, double x,
    Py_ssize_t update
) noexcept nogil:
    # `move` for the blocks of a row of weights that `choose` selected, with gradients x * g.
    cdef Py_ssize_t B = n_lanes(tag), W = q.at.rows.width, block, k
    cdef double* w
    cdef float* G
    cdef const double* mask = q.at.rows.mask
    cdef long long* stamp = q.stamp + row * (W // B)
    cdef double v, late, rate = q.rate
    cdef float root, m, l1 = q.l1, l2 = q.l2
    if q.scale != NULL:
        x *= q.scale[row]
        rate *= q.scale[row]
    late = rate * (q.scale[row] if q.scale != NULL else 1)
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


cdef double log_partition(Lattice* q, Py_ssize_t T) noexcept nogil:
    # log Z of S and the transitions in the log domain: slow, but correct for all finite scores.
    # alpha_t(j) = S_t(j) + log sum_i exp(alpha_{t-1}(i) + transition(i, j))
    cdef Py_ssize_t t, i, j, p, L = q.rows.L, W = q.rows.width
    cdef const double* allowed = q.rows.allowed
    cdef const double* end = allowed + (L + 1) * W
    cdef const double* chain = q.rows.chain
    cdef double* alpha = q.alpha
    cdef RowEntries* of_row = &q.entries
    for j in range(L):
        alpha[j] = q.S[j] if allowed[L * W + j] != 0 else -INFINITY
    for t in range(1, T):
        alpha = q.alpha + t * W
        if of_row.links.indptr != NULL:
            for i in range(L * W):
                q.products[i] = q.rows.chain[i]
            for p in range(of_row.start[t], of_row.start[t + 1]):
                q.products[of_row.i[p] * W + of_row.j[p]] = of_row.score[p]
            chain = q.products
        for j in range(L):
            for i in range(L):
                q.e[i] = -INFINITY
                if allowed[i * W + j] != 0:
                    q.e[i] = alpha[i - W] + chain[i * W + j]
            alpha[j] = q.S[t * W + j] + log_sum_exp(q.e, L)
    for j in range(L):
        alpha[j] = alpha[j] if end[j] != 0 else -INFINITY
    return log_sum_exp(alpha, L)


cdef inline double l2_scale(Problem* q, double top) noexcept nogil:
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


cdef inline void choose(
    lanes* tag, Problem* q, double* residual, unsigned char* moves
) noexcept nogil:
    # Select blocks of lanes at random: those with small residuals rarely change weights, but then
    # with residuals scaled up. Writes 0 or 1 for each block.
    cdef Py_ssize_t B = n_lanes(tag), block, k
    cdef double top, size, factor
    cdef double* r
    for block in range(q.at.rows.width // B):
        r, top = residual + block * B, 0
        for k in range(B):
            size = r[k] if r[k] > 0 else -r[k]
            top = size if size > top else top
        factor = l2_scale(q, top)
        moves[block] = factor != 0
        if factor != 1:
            for k in range(B):
                r[k] *= factor


cdef inline bint any_moves(const unsigned char* moves, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t k
    cdef unsigned char found = 0
    for k in range(n):
        found |= moves[k]
    return found != 0


cdef void move_links(
    Problem* q, Py_ssize_t r, Py_ssize_t T, Py_ssize_t update, Py_ssize_t part
) noexcept nogil:
    # Weights of transition features; `expected` of entries holds residuals.
    cdef RowEntries* at = &q.at.entries
    cdef Py_ssize_t t, p, k, f, e
    cdef double g
    for t in range(1, T):
        for e in range(at.start[t], at.start[t + 1]):
            at.place[at.i[e] * at.links.L + at.j[e]] = <int> e
        for p in range(at.links.indptr[r + t], at.links.indptr[r + t + 1]):
            f = at.links.indices[p]
            if q.link_owner != NULL and q.link_owner[f] != part:
                continue
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


cdef void move_chain(Problem* q, Py_ssize_t part, Py_ssize_t n_parts) noexcept nogil:
    # Transition, start and end weights: `listed.mu` or pair_mu, and `ends`, hold the residuals.
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t i, j, k, W = rows.width, L = rows.L, n = q.at.listed.n
    cdef double g
    for i in range(n * part // n_parts, n * (part + 1) // n_parts):
        k = q.at.listed.at[i]
        g = q.at.listed.mu[i] * rows.chain_mask[k]
        move(rows.chain + k, q.chain_G + k, g, 1, NULL, q)
    for i in range(L if n else 0, L + 2):
        if i % n_parts != part:
            continue
        for j in range(L):
            k = i * W + j
            g = q.at.pair_mu[k] if i < L else q.ends[k - L * W]
            move(rows.chain + k, q.chain_G + k, g * rows.chain_mask[k], 1, NULL, q)


cdef void move_dense(
    lanes* tag, Problem* q, Py_ssize_t row, Py_ssize_t t, Py_ssize_t update, Py_ssize_t part
) noexcept nogil:
    # Weights of dense features of a row of X, the t-th of its sequence.
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t W = rows.width, n_blocks = W // n_lanes(tag), p, first, n, some, k
    cdef int own[SOME]
    cdef double x
    first = rows.indptr[row]
    while first < rows.indptr[row + 1]:
        n = some = min(rows.indptr[row + 1] - first, SOME)
        if q.owner != NULL:
            n = own_entries(rows.indices + first, n, q.owner, GROUP, part, own)
        for k in range(n):
            p = first + (own[k] if q.owner != NULL else k)
            x = rows.data[p] if rows.data != NULL else 1
            move_row(
                tag, q, rows.indices[p], q.at.S + t * W, q.moves + t * n_blocks, x, update
            )
        first += some


cdef void move_sparse(
    Problem* q, Py_ssize_t row, Py_ssize_t t, Py_ssize_t update, Py_ssize_t part
) noexcept nogil:
    # Weights of sparse features of a row of X, the t-th of its sequence.
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t W = rows.width, p, first, n, some, k, pair
    cdef int own[SOME]
    cdef double x, residual
    first = rows.sparse_indptr[row]
    while first < rows.sparse_indptr[row + 1]:
        n = some = min(rows.sparse_indptr[row + 1] - first, SOME)
        if q.sparse_owner != NULL:
            n = own_entries(rows.pair + first, n, q.sparse_owner, SPARSE_GROUP, part, own)
        for k in range(n):
            p = first + (own[k] if q.sparse_owner != NULL else k)
            if p + NEAR < rows.sparse_nnz:
                prefetch(q.sparse_stamp + rows.pair[p + NEAR])
                prefetch(q.sparse_G + rows.pair[p + NEAR])
            x = rows.sparse_data[p] if rows.sparse_data != NULL else 1
            pair, residual = rows.pair[p], q.at.S[t * W + rows.label[p]]
            if residual == 0:
                continue
            move(
                rows.w + pair, q.sparse_G + pair, x * residual, update - q.sparse_stamp[pair],
                q.sparse_scale + pair if q.sparse_scale != NULL else NULL, q
            )
            q.sparse_stamp[pair] = update
        first += some


cdef void move_part(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, Py_ssize_t update, Py_ssize_t part,
    Py_ssize_t n_parts
) noexcept nogil:
    # Change one of the parts of the weights by the residuals of a sequence.
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t t, n_blocks = rows.width // n_lanes(tag)
    move_chain(q, part, n_parts)
    if q.at.entries.links.indptr != NULL:
        move_links(q, r, T, update, part)
    for t in range(T):
        if any_moves(q.moves + t * n_blocks, n_blocks):
            move_dense(tag, q, r + t, t, update, part)
            if rows.sparse_indptr != NULL:
                move_sparse(q, r + t, t, update, part)


cdef inline void shrink_late(
    double* w, const float* G, long long* stamp, const double* scale, Problem* q, long long update,
    Py_ssize_t per_stamp, Py_ssize_t per_scale, Py_ssize_t first, Py_ssize_t last
) noexcept nogil:
    # Shrink the weights of stamps first to last - 1 for all updates since their last one.
    cdef Py_ssize_t at, k
    for at in range(first, last):
        if stamp[at] < update:
            for k in range(at * per_stamp, (at + 1) * per_stamp):
                shrink(
                    w + k, G + k, update - stamp[at],
                    scale + at // per_scale if scale != NULL else NULL, q
                )
            stamp[at] = update


cdef void catch_up(
    Problem* q, long long update, Py_ssize_t part, Py_ssize_t n_parts
) noexcept nogil:
    # Shrink each weight for all updates since its last one; each thread does so for a range.
    cdef Py_ssize_t W = q.at.rows.width, B = min(W, 8), n = q.n_rows * (W // B)
    shrink_late(
        q.at.rows.W, q.G, q.stamp, q.scale, q, update, B, W // B, n * part // n_parts,
        n * (part + 1) // n_parts
    )
    n = q.n_pairs
    shrink_late(
        q.at.rows.w, q.sparse_G, q.sparse_stamp, q.sparse_scale, q, update, 1, 1,
        n * part // n_parts, n * (part + 1) // n_parts
    )
    n = q.n_links
    shrink_late(
        q.at.entries.v, q.link_G, q.link_stamp, q.link_scale, q, update, 1, 1,
        n * part // n_parts, n * (part + 1) // n_parts
    )


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
                j = listed_number(&at.listed, y[t - 1], y[t])
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


cdef double residuals(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, const int* y, double weight
) noexcept nogil:
    # S, the transitions and the entries become residuals, those that change weights; returns the
    # -log p of the sequence.
    cdef Lattice* at = &q.at
    cdef Py_ssize_t t, j, e, W = at.rows.width, n_blocks = W // n_lanes(tag)
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
    if at.entries.links.indptr != NULL:
        for e in range(at.entries.n):
            at.entries.expected[e] *= l2_scale(q, abs(at.entries.expected[e]))
    for j in range(W):
        q.ends[j], q.ends[W + j] = at.S[j], at.S[(T - 1) * W + j]
    for t in range(T):
        choose(tag, q, at.S + t * W, q.moves + t * n_blocks)
    return loss


cdef struct Slots:           # residuals of all sequences of a batch, one after the other
    const long long* place   # (n_sequences,) first row of each, in the order of updates
    double* S                # (n_rows, width)
    unsigned char* moves     # (n_rows, blocks)
    double* pairs            # (n_slots, n_pairs + 2 * width): of transitions, first and last row
    Py_ssize_t n_pairs
    long long* start         # (n_rows + n_slots,); NULL if there are no transition features
    int* i                   # (n_entries,), as are the next two
    int* j
    double* expected
    const long long* entry   # (n_sequences,) first entry of each in the order of updates


cdef inline Slots slots_of(state, Py_ssize_t width) except *:
    cdef double[:, ::1] S = state.slots.residuals, pairs = state.slots.pairs
    cdef unsigned char[:, ::1] moves = state.slots.moves
    cdef int[:, ::1] labels
    cdef long long[::1] start
    cdef double[::1] expected
    cdef const long long[::1] place = state.slots.place, entry
    cdef Slots m
    m.place = &place[0]
    m.S, m.moves, m.pairs = &S[0, 0], &moves[0, 0], &pairs[0, 0]
    m.n_pairs = pairs.shape[1] - 2 * width
    m.start = NULL
    if state.slots.entries is not None:
        start, labels, expected, entry = state.slots.entries
        m.start, m.i, m.j, m.expected = &start[0], &labels[0, 0], &labels[1, 0], &expected[0]
        m.entry = &entry[0]
    return m


cdef inline void use_slot(
    Problem* q, const Slots* m, const Batches* batches, Py_ssize_t b, Py_ssize_t k
) noexcept nogil:
    # Make the residuals of the k-th sequence, in batch b, those of `q`.
    cdef Py_ssize_t W = q.at.rows.width, place = m.place[k], slot = k - batches.first[b], n
    q.at.S, q.moves = m.S + place * W, m.moves + place * (W // min(W, 8))
    q.at.pair_mu = m.pairs + slot * (m.n_pairs + 2 * W)
    q.at.listed.mu, q.ends = q.at.pair_mu, q.at.pair_mu + m.n_pairs
    if m.start != NULL:
        n = m.entry[k]
        place_entries(&q.at.entries, m.start + place + slot, m.i + n, m.j + n, m.expected + n)


cdef unsigned long long mixed(unsigned long long x) noexcept nogil:
    # Seeds that differ by one give unrelated numbers (Steele, Lea, Flood 2014: SplitMix).
    x = (x ^ (x >> 30)) * <unsigned long long> 0xbf58476d1ce4e5b9
    x = (x ^ (x >> 27)) * <unsigned long long> 0x94d049bb133111eb
    return (x ^ (x >> 31)) | 1


def descend(
    state,                            # StochasticLikelihood: its arrays are IN/OUT
    plan,                             # BatchPlan
    Py_ssize_t me,                    # number of this thread
    const long long[::1] order,       # (n,)               sequences to update, none empty
    const double[::1] weights,        # (n_sequences,)
    double[:, ::1] W,                 # (n, width)         IN/OUT padded weights
    double[::1] w,                    # (n_pairs,)         IN/OUT weights of sparse features
    unsigned long long seed,          # not 0
    double almost, double rate, double l1, double l2,
):
    """Update sequences in order; returns the sum of weight · -log p, each before its step."""
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
    cdef const unsigned short[::1] owner, sparse_owner, link_owner
    cdef Problem q
    cdef Slots slots
    cdef Batches batches
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t k, s, b, c, part, n_parts, r, T, number = state.n_updates
    cdef double total = 0
    if order.shape[0] == 0:
        return 0.0
    q.at = lattice_of(state, W, w)
    slots, batches = slots_of(state, q.at.rows.width), batches_of(plan, me)
    n_parts = batches.n_parts
    q.owner = q.sparse_owner = q.link_owner = NULL
    if n_parts > 1:
        owner, sparse_owner, link_owner = state.owners
        q.owner = &owner[0] if owner.shape[0] else NULL
        q.sparse_owner = &sparse_owner[0] if sparse_owner.shape[0] else NULL
        q.link_owner = &link_owner[0] if link_owner.shape[0] else NULL
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
        for b in range(batches.n):
            while True:
                k = take_sequence(&batches, b)
                if k < 0:
                    break
                s = order[k]
                r, T = offsets[s], offsets[s + 1] - offsets[s]
                if n_parts > 1:
                    q.random = mixed(seed + k)
                use_slot(&q, &slots, &batches, b, k)
                if q.at.rows.width == 2:
                    losses[s] = residuals(&two, &q, r, T, &y[r], weights[s])
                elif q.at.rows.width == 4:
                    losses[s] = residuals(&four, &q, r, T, &y[r], weights[s])
                else:
                    losses[s] = residuals(&eight, &q, r, T, &y[r], weights[s])
                sequence_done(&batches)
            wait_for_sequences(&batches, b)
            for c in range(n_parts):
                if not take_part(&batches, b, c):
                    continue
                part = (me + c) % n_parts
                for k in range(batches.first[b], batches.first[b + 1]):
                    s = order[k]
                    r, T = offsets[s], offsets[s + 1] - offsets[s]
                    use_slot(&q, &slots, &batches, b, k)
                    if q.at.rows.width == 2:
                        move_part(&two, &q, r, T, number + k + 1, part, n_parts)
                    elif q.at.rows.width == 4:
                        move_part(&four, &q, r, T, number + k + 1, part, n_parts)
                    else:
                        move_part(&eight, &q, r, T, number + k + 1, part, n_parts)
                part_done(&batches, b)
            wait_for_parts(&batches, b)
        if q.l1 > 0 or q.l2 > 0:
            b = batches.n
            for c in range(n_parts):
                if take_part(&batches, b, c):
                    catch_up(&q, number + order.shape[0], (me + c) % n_parts, n_parts)
        for k in range(order.shape[0]):
            total += weights[order[k]] * losses[order[k]]
    return total

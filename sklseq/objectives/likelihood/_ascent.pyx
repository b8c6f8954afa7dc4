"""Exponentiated gradient ascent in the dual of the conditional likelihood.

The dual and these steps, for one sequence at a time, are explained in `dual.py`:

    S      = A w                    scores of the present weights
    theta' = theta + eta (S - theta)
    mu'    = marginals of theta'
    w'     = w + (weight / lam) Phi (mu - mu')

With an L1 penalty, u is changed in place of w, and w = soft(u, l1 / lam). The step is undone if the
dual

    D = sum_s weight_s H(mu_s) - lam / 2 ||w||^2

is lower after it. theta and mu are stored in float32; w follows the rounded mu exactly.

In rows with transition features, pairs of labels have *entries* (`_row_links.pxd`). theta of an
entry is added to that of its pair, as its score sum_f x(f) v(f, i, j) is to the transition weight.
"""

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.objectives.likelihood.lattice cimport (
    Lattice, RowEntries, Rows, entry_of, expectations, lattice_of, number_entries, scores, soft,
)

cdef struct Problem:
    Lattice at
    double* U                # before the threshold, shapes as W, w and chain; NULL without L1
    double* sparse_u
    double* chain_u
    double* link_u           # of transition features
    double threshold         # l1 / lam
    double lam
    double* theta            # (T, width) candidate
    double* pair_theta       # (L, width) candidate, dense; sparse: `at.listed.theta`

cdef struct Dual:            # of one sequence
    float* theta             # (T, L)
    float* mu                # (T, L)
    float* pair_theta        # (n_pairs,)
    float* pair_mu           # (n_pairs,)
    float* entry_theta       # (n_entries,)
    float* entry_mu          # (n_entries,)
    const int* y             # (T,)
    double weight
    double* entropy
    double* eta              # the length of the next step
    double* gap              # an estimate of its duality gap
    bint seen                # whether it was updated before


cdef inline double step_to(double* w, double* u, double step, double threshold) noexcept nogil:
    # Change one weight; return the change of its square.
    cdef double before = w[0]
    if u == NULL:
        w[0] += step
    else:
        u[0] += step
        w[0] = soft(u[0], threshold)
    return (w[0] - before) * (w[0] + before)


cdef void set_candidate(Problem* q, const Dual* dual, Py_ssize_t T) noexcept nogil:
    # theta' = theta + eta (S - theta), and the same for transitions
    cdef Py_ssize_t t, j, k, W = q.at.rows.width, L = q.at.rows.L
    cdef double eta = dual.eta[0], v
    for t in range(T):
        for j in range(L):
            v = dual.theta[t * L + j]
            q.theta[t * W + j] = v + eta * (q.at.S[t * W + j] - v)
    for k in range(q.at.listed.n):
        v = dual.pair_theta[k]
        q.at.listed.theta[k] = v + eta * (q.at.rows.chain[q.at.listed.at[k]] - v)
    for t in range(0 if q.at.listed.n else L):
        for j in range(L):
            v = dual.pair_theta[t * L + j]
            q.pair_theta[t * W + j] = v + eta * (q.at.rows.chain[t * W + j] - v)


cdef void set_entry_candidates(Problem* q, Dual* dual, Py_ssize_t T) noexcept nogil:
    # `set_candidate` for entries: `kept` gets their scores, `score` the theta' that rows have.
    cdef RowEntries* e = &q.at.entries
    cdef Py_ssize_t p, k, t
    cdef double v
    if not dual.seen:                    # all mass on the observed path
        for p in range(e.n):
            dual.entry_theta[p] = dual.entry_mu[p] = 0
        for t in range(1, T):
            p = entry_of(e, t, dual.y[t - 1], dual.y[t])
            if p >= 0:
                dual.entry_mu[p] = 1
    for p in range(e.n):
        k, v = e.i[p] * q.at.rows.width + e.j[p], dual.entry_theta[p]
        e.kept[p] = e.score[p] - q.at.rows.chain[k]
        e.score[p] = pair_candidate(q, p) + v + dual.eta[0] * (e.kept[p] - v)


cdef inline double pair_candidate(const Problem* q, Py_ssize_t p) noexcept nogil:
    # theta' of the pair of entry p.
    cdef const RowEntries* e = &q.at.entries
    if q.at.listed.n:
        return q.at.listed.theta[e.number[p]] if e.number[p] >= 0 else 0
    return q.pair_theta[e.i[p] * q.at.rows.width + e.j[p]]


cdef inline double entry_candidate(const Problem* q, Py_ssize_t p) noexcept nogil:
    # theta' of entry p, without that of its pair.
    return q.at.entries.score[p] - pair_candidate(q, p)


cdef void round_marginals(Lattice* q, Py_ssize_t T) noexcept nogil:
    # Round the marginals to float32, as they are stored.
    cdef Py_ssize_t k
    for k in range(T * q.rows.width):
        q.mu[k] = <float> q.mu[k]
    for k in range(q.listed.n):
        q.listed.mu[k] = <float> q.listed.mu[k]
    for k in range(0 if q.listed.n else q.rows.L * q.rows.width):
        q.pair_mu[k] = <float> q.pair_mu[k]


cdef void compare(
    Problem* q, const float* theta, const float* mu, Py_ssize_t T, const double* score,
    const double* new_theta, const double* new_mu, double* sums
) noexcept nogil:
    # sums += [<theta', mu'>, <score - theta, mu' - mu>, <score, mu - mu'>] over T rows
    cdef Py_ssize_t t, j, k, W = q.at.rows.width
    cdef double change
    for t in range(T):
        for j in range(q.at.rows.L):
            k = t * W + j
            change = new_mu[k] - mu[t * q.at.rows.L + j]
            sums[0] += new_theta[k] * new_mu[k]
            sums[1] += (score[k] - theta[t * q.at.rows.L + j]) * change
            sums[2] -= score[k] * change


cdef void compare_pairs(Problem* q, const Dual* dual, double* sums) noexcept nogil:
    # `compare` for transitions
    cdef Py_ssize_t p
    cdef double change, score
    if not q.at.listed.n:
        compare(
            q, dual.pair_theta, dual.pair_mu, q.at.rows.L, q.at.rows.chain, q.pair_theta,
            q.at.pair_mu, sums
        )
        return
    for p in range(q.at.listed.n):
        score = q.at.rows.chain[q.at.listed.at[p]]
        change = q.at.listed.mu[p] - dual.pair_mu[p]
        sums[0] += q.at.listed.theta[p] * q.at.listed.mu[p]
        sums[1] += (score - dual.pair_theta[p]) * change
        sums[2] -= score * change


cdef void compare_entries(Problem* q, const Dual* dual, double* sums) noexcept nogil:
    # `round_marginals` and `compare` for entries; `kept` gets mu - mu'.
    cdef RowEntries* e = &q.at.entries
    cdef Py_ssize_t p
    cdef double change
    for p in range(e.n):
        e.expected[p] = <float> e.expected[p]
        change = e.expected[p] - dual.entry_mu[p]
        sums[0] += entry_candidate(q, p) * e.expected[p]
        sums[1] += (e.kept[p] - dual.entry_theta[p]) * change
        sums[2] -= e.kept[p] * change
        e.kept[p] = -change


cdef inline double move_with_l1(
    lanes* tag, Problem* q, Py_ssize_t at, double x, const double* change
) noexcept nogil:
    # u += x * change for the lanes from `at` on, where w follows u; the change of ||w||^2.
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t k
    cdef double step, total = 0
    for k in range(n_lanes(tag)):
        step = x * change[k]
        if rows.mask != NULL:
            step *= rows.mask[at + k]
        total += step_to(rows.W + at + k, q.U + at + k, step, q.threshold)
    return total


cdef inline void move_without_l1(
    lanes* tag, double* w, const double* mask, double x, const double* change, double* squares
) noexcept nogil:
    # w += x * change on the lanes of the mask (NULL: all); squares += the changes of w^2.
    cdef Py_ssize_t B = n_lanes(tag), k
    cdef double step
    for k in range(B):
        step = x * change[k]
        if mask != NULL:
            step *= mask[k]
        squares[k] += step * (2 * w[k] + step)
        w[k] += step


cdef double move(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, double sign
) noexcept nogil:
    # w += sign * Phi S on the weights that are trained; returns the change of ||w||^2
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t B = n_lanes(tag), W = rows.width, t, p, block, k, at
    cdef double x, total = 0
    cdef double squares[8]
    cdef const double* mask = NULL
    cdef const double* change
    for k in range(B):
        squares[k] = 0
    for t in range(T):
        for p in range(rows.indptr[r + t], rows.indptr[r + t + 1]):
            x = sign * (rows.data[p] if rows.data != NULL else 1)
            for block in range(W // B):
                at = rows.indices[p] * W + block * B
                change = q.at.S + t * W + block * B
                if q.U != NULL:
                    total += move_with_l1(tag, q, at, x, change)
                    continue
                if rows.mask != NULL:
                    mask = rows.mask + at
                move_without_l1(tag, rows.W + at, mask, x, change, squares)
        if rows.sparse_indptr != NULL:
            for p in range(rows.sparse_indptr[r + t], rows.sparse_indptr[r + t + 1]):
                x = sign * (rows.sparse_data[p] if rows.sparse_data != NULL else 1)
                total += step_to(
                    rows.w + rows.pair[p], q.sparse_u + rows.pair[p] if q.U != NULL else NULL,
                    x * q.at.S[t * W + rows.label[p]], q.threshold
                )
    for k in range(B):
        total += squares[k]
    return total


cdef double move_chain(
    Problem* q, const float* pair_mu, Py_ssize_t T, double scale, double sign
) noexcept nogil:
    # `move` for transition, start and end weights; S holds the changes of the rows.
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t i, j, k, W = rows.width, L = rows.L
    cdef double step, total = 0
    for i in range(q.at.listed.n):
        k = q.at.listed.at[i]
        step = sign * scale * (pair_mu[i] - q.at.listed.mu[i]) * rows.chain_mask[k]
        total += step_to(
            rows.chain + k, q.chain_u + k if q.U != NULL else NULL, step, q.threshold
        )
    for i in range(L if q.at.listed.n else 0, L + 2):
        for j in range(L):
            k = i * W + j
            if i < L:
                step = scale * (pair_mu[i * L + j] - q.at.pair_mu[k])
            else:
                step = q.at.S[j] if i == L else q.at.S[(T - 1) * W + j]
            step *= sign * rows.chain_mask[k]
            total += step_to(
                rows.chain + k, q.chain_u + k if q.U != NULL else NULL, step, q.threshold
            )
    return total


cdef double move_links(Problem* q, Py_ssize_t r, Py_ssize_t T, double scale) noexcept nogil:
    # `move` for weights of transition features; `kept` holds changes of entries, without scale.
    cdef RowEntries* e = &q.at.entries
    cdef Py_ssize_t t, p, k, f, pair
    cdef double x, total = 0
    for t in range(1, T):
        number_entries(e, t)
        for p in range(e.links.indptr[r + t], e.links.indptr[r + t + 1]):
            f, x = e.links.indices[p], scale * e.links.data[p]
            for k in range(e.links.support[f], e.links.support[f + 1]):
                pair = e.links.from_label[k] * e.links.L + e.links.to_label[k]
                total += step_to(
                    e.v + k, q.link_u + k if q.U != NULL else NULL, x * e.kept[e.place[pair]],
                    q.threshold
                )
    return total


cdef void keep_candidate(Problem* q, Dual* dual, Py_ssize_t T) noexcept nogil:
    cdef Py_ssize_t t, j, W = q.at.rows.width, L = q.at.rows.L
    for t in range(T):
        for j in range(L):
            dual.theta[t * L + j] = <float> q.theta[t * W + j]
            dual.mu[t * L + j] = <float> q.at.mu[t * W + j]
    for j in range(q.at.listed.n):
        dual.pair_theta[j] = <float> q.at.listed.theta[j]
        dual.pair_mu[j] = <float> q.at.listed.mu[j]
    for t in range(0 if q.at.listed.n else L):
        for j in range(L):
            dual.pair_theta[t * L + j] = <float> q.pair_theta[t * W + j]
            dual.pair_mu[t * L + j] = <float> q.at.pair_mu[t * W + j]


cdef void keep_entries(const Problem* q, Dual* dual) noexcept nogil:
    cdef Py_ssize_t p
    for p in range(q.at.entries.n):
        dual.entry_theta[p] = <float> entry_candidate(q, p)
        dual.entry_mu[p] = <float> q.at.entries.expected[p]


cdef double update(
    lanes* tag, Problem* q, Py_ssize_t r, Py_ssize_t T, Dual* dual, bint* rejected
) noexcept nogil:
    # Update on one sequence; returns the gain of the dual, 0 if the step is undone.
    cdef Py_ssize_t t, j, W = q.at.rows.width, L = q.at.rows.L
    cdef double log_z, norm, gain, weight = dual.weight, scale = weight / q.lam
    cdef double* eta = dual.eta
    cdef double sums[3]
    rejected[0] = True
    scores(tag, &q.at, r, T)
    set_candidate(q, dual, T)
    if q.at.entries.n:
        set_entry_candidates(q, dual, T)
    log_z = expectations(tag, &q.at, q.theta, q.pair_theta, 1, T)
    if log_z != log_z:                   # scores differ too much: shorten the step
        eta[0] *= 0.5
        return 0
    round_marginals(&q.at, T)
    sums[0] = sums[1] = sums[2] = 0
    compare(q, dual.theta, dual.mu, T, q.at.S, q.theta, q.at.mu, sums)
    compare_pairs(q, dual, sums)
    if q.at.entries.n:
        compare_entries(q, dual, sums)
    for t in range(T):
        for j in range(L):
            q.at.S[t * W + j] = scale * (dual.mu[t * L + j] - q.at.mu[t * W + j])
    norm = move(tag, q, r, T, 1) + move_chain(q, dual.pair_mu, T, scale, 1)
    if q.at.entries.n:
        norm += move_links(q, r, T, scale)
    gain = weight * (log_z - sums[0] - dual.entropy[0]) - 0.5 * q.lam * norm
    dual.gap[0] = 0.5 * weight * sums[1] / eta[0]
    # Along the step, D(x eta) = D + weight sums[1] (x - x^2/2) / eta - lam/2 ||step of w||^2 x^2,
    # to second order; the next step is three quarters of its maximiser.
    norm -= 2 * scale * sums[2]
    eta[0] *= 0.75 * weight * sums[1] / (weight * sums[1] * eta[0] + q.lam * norm + 1e-300)
    eta[0] = min(max(eta[0], 1e-3), 1)
    if gain < -1e-9 and dual.seen:
        move(tag, q, r, T, -1)
        move_chain(q, dual.pair_mu, T, scale, -1)
        if q.at.entries.n:
            move_links(q, r, T, -scale)
        return 0
    rejected[0] = False
    dual.entropy[0] = log_z - sums[0]
    keep_candidate(q, dual, T)
    if q.at.entries.n:
        keep_entries(q, dual)
    return gain


def ascend(
    state,                            # DualLikelihood: its arrays are IN/OUT
    const long long[::1] order,       # (n,)               sequences to update, none empty
    double[:, ::1] W,                 # (n, width)         IN/OUT padded weights
    double[::1] w,                    # (n_pairs,)         IN/OUT weights of sparse features
):
    """Update sequences in order; returns (gain of the dual, number of steps undone)."""
    cdef const long long[::1] offsets = state.offsets
    cdef const double[::1] weights = state.weights
    cdef float[:, ::1] theta = state.theta, mu = state.mu
    cdef float[:, ::1] pair_theta = state.pair_theta, pair_mu = state.pair_mu
    cdef float[:, ::1] of_entries = state.of_entries
    cdef const long long[::1] first_entry = state.first_entry
    cdef const int[::1] y = state.y
    cdef double[::1] entropy = state.entropy, eta = state.eta, gap = state.gap, sparse_u, link_u
    cdef double[:, ::1] dense_u, chain_u, scratch = state.scratch
    cdef unsigned char[::1] seen = state.seen
    cdef Problem q
    cdef Dual dual
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t k, s, r, T, n_rejected = 0
    cdef bint rejected
    cdef double gain = 0
    if order.shape[0] == 0:
        return 0.0, 0
    q.at, q.lam, q.threshold = lattice_of(state, W, w), state.lam, state.threshold
    q.U, q.sparse_u, q.chain_u, q.link_u, q.pair_theta = NULL, NULL, NULL, NULL, NULL
    if state.u is not None:
        dense_u, sparse_u, chain_u, link_u = state.u
        q.U = &dense_u[0, 0] if dense_u.shape[0] else &chain_u[0, 0]
        q.sparse_u = &sparse_u[0] if sparse_u.shape[0] else NULL
        q.chain_u = &chain_u[0, 0]
        q.link_u = &link_u[0] if link_u.shape[0] else NULL
    q.theta = &scratch[q.at.used, 0]
    if not q.at.listed.n:
        q.pair_theta = &scratch[q.at.used + state.longest, 0]
    with nogil:
        for k in range(order.shape[0]):
            s = order[k]
            r, T = offsets[s], offsets[s + 1] - offsets[s]
            dual.theta, dual.mu = &theta[r, 0], &mu[r, 0]
            dual.pair_theta, dual.pair_mu = &pair_theta[s, 0], &pair_mu[s, 0]
            dual.entry_theta = &of_entries[0, first_entry[s]]
            dual.entry_mu = &of_entries[1, first_entry[s]]
            dual.y, dual.weight, dual.seen = &y[r], weights[s], seen[s] != 0
            dual.entropy, dual.eta, dual.gap = &entropy[s], &eta[s], &gap[s]
            if q.at.rows.width == 2:
                gain += update(&two, &q, r, T, &dual, &rejected)
            elif q.at.rows.width == 4:
                gain += update(&four, &q, r, T, &dual, &rejected)
            else:
                gain += update(&eight, &q, r, T, &dual, &rejected)
            n_rejected += rejected
            if not rejected:
                seen[s] = 1
    return gain, n_rejected

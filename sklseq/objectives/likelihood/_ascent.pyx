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

Several threads share the weights, see `batches.pxd`: then S are the scores before the first update
of the batch. The change of D is exact all the same, as that of ||w||^2 is computed when w changes.
"""

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.objectives.likelihood.batches cimport (
    GROUP, SPARSE_GROUP, Batches, batches_of, decided, own_entries, part_done, sequence_done,
    take_part, take_sequence, take_undo, undo_done, wait_for_decision, wait_for_sequences,
    wait_for_undo,
)
from sklseq.objectives.likelihood.lattice cimport (
    Lattice, Rows, expectations, lattice_of, scores, soft,
)

# Entries chosen at a time.
cdef enum:
    SOME = 64

# Weight of a batch in the average that is the first step of sequences.
cdef double NEW_SHARE = 0.1

cdef struct Problem:
    Lattice at
    const unsigned short* owner      # parts of the weights by rows; NULL if there is one part
    const unsigned short* sparse_owner
    double* U                # before the threshold, shapes as W, w and chain; NULL without L1
    double* sparse_u
    double* chain_u
    double threshold         # l1 / lam
    double lam
    double* theta            # (T, width) candidate
    double* pair_theta       # (L, width) candidate, dense; sparse: `at.listed.theta`

cdef struct Dual:            # of one sequence
    float* theta             # (T, L)
    float* mu                # (T, L)
    float* pair_theta        # (n_pairs,)
    float* pair_mu           # (n_pairs,)
    double weight
    double* entropy
    double* eta              # the length of the next step
    double* gap              # an estimate of its duality gap
    unsigned char* seen      # SEEN if it was updated before, TRIED if its first step was undone

cdef struct Step:            # of one sequence; the change of w is Phi S
    double* S                # (T, width)
    double* pairs            # (n_pairs,)
    float* theta             # (T, L) before the step, as are the next three
    float* mu
    float* pair_theta        # (n_pairs,)
    float* pair_mu
    double* norms            # (n_parts,) change of ||w||^2 in each part of the weights
    double* numbers          # entropy after the step, sums of `compare`, whether there is a step

cdef struct Steps:           # of all sequences of a batch, one after the other
    const long long* place   # (n_sequences,) first row of each, in the order of updates
    double* S                # (n_rows, width)
    double* pairs            # (n_slots, n_pairs)
    float* theta             # (n_rows, L), as is the next
    float* mu
    float* pair_theta        # (n_slots, n_stored), as is the next
    float* pair_mu
    double* norms            # (n_slots, n_parts)
    double* numbers          # (n_slots, N_NUMBERS)
    Py_ssize_t n_pairs, n_stored
    double* first_step       # eta of sequences that were never updated; NULL: as given


cdef enum:
    ENTROPY
    SUMS
    EXISTS = 4
    UNDONE
    N_NUMBERS
    SEEN = 1
    TRIED = 2


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


cdef double move_dense(
    lanes* tag, Problem* q, const Step* step, Py_ssize_t row, Py_ssize_t t, Py_ssize_t part,
    double sign, double total, double* squares
) noexcept nogil:
    # w += sign * Phi S for the dense features of one row; adds the change of ||w||^2 to the total,
    # which is returned, or to `squares`.
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t B = n_lanes(tag), W = rows.width, first, n, some, p, k, block, at
    cdef int own[SOME]
    cdef double x
    cdef const double* change
    first = rows.indptr[row]
    while first < rows.indptr[row + 1]:
        n = some = min(rows.indptr[row + 1] - first, SOME)
        if q.owner != NULL:
            n = own_entries(rows.indices + first, n, q.owner, GROUP, part, own)
        for k in range(n):
            p = first + (own[k] if q.owner != NULL else k)
            x = sign * (rows.data[p] if rows.data != NULL else 1)
            for block in range(W // B):
                at = rows.indices[p] * W + block * B
                change = step.S + t * W + block * B
                if q.U != NULL:
                    total += move_with_l1(tag, q, at, x, change)
                else:
                    move_without_l1(
                        tag, rows.W + at, rows.mask + at if rows.mask != NULL else NULL, x, change,
                        squares
                    )
        first += some
    return total


cdef double move_sparse(
    Problem* q, const Step* step, Py_ssize_t row, Py_ssize_t t, Py_ssize_t part, double sign,
    double total
) noexcept nogil:
    # `move_dense` for the sparse features.
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t first, n, some, p, k, pair
    cdef int own[SOME]
    cdef double x
    first = rows.sparse_indptr[row]
    while first < rows.sparse_indptr[row + 1]:
        n = some = min(rows.sparse_indptr[row + 1] - first, SOME)
        if q.sparse_owner != NULL:
            n = own_entries(rows.pair + first, n, q.sparse_owner, SPARSE_GROUP, part, own)
        for k in range(n):
            p = first + (own[k] if q.sparse_owner != NULL else k)
            x = sign * (rows.sparse_data[p] if rows.sparse_data != NULL else 1)
            pair = rows.pair[p]
            total += step_to(
                rows.w + pair, q.sparse_u + pair if q.U != NULL else NULL,
                x * step.S[t * rows.width + rows.label[p]], q.threshold
            )
        first += some
    return total


cdef double move(
    lanes* tag, Problem* q, const Step* step, Py_ssize_t r, Py_ssize_t T, Py_ssize_t part,
    double sign
) noexcept nogil:
    # w += sign * Phi S on the state weights of a part; returns the change of ||w||^2
    cdef Py_ssize_t t, k
    cdef double total = 0
    cdef double squares[8]
    for k in range(n_lanes(tag)):
        squares[k] = 0
    for t in range(T):
        total = move_dense(tag, q, step, r + t, t, part, sign, total, squares)
        if q.at.rows.sparse_indptr != NULL:
            total = move_sparse(q, step, r + t, t, part, sign, total)
    for k in range(n_lanes(tag)):
        total += squares[k]
    return total


cdef double move_chain(
    Problem* q, const Step* step, Py_ssize_t T, Py_ssize_t part, Py_ssize_t n_parts, double sign
) noexcept nogil:
    # `move` for transition, start and end weights.
    cdef const Rows* rows = &q.at.rows
    cdef Py_ssize_t i, j, k, W = rows.width, L = rows.L, n = q.at.listed.n
    cdef double change, total = 0
    for i in range(n * part // n_parts, n * (part + 1) // n_parts):
        k = q.at.listed.at[i]
        total += step_to(
            rows.chain + k, q.chain_u + k if q.U != NULL else NULL,
            sign * step.pairs[i] * rows.chain_mask[k], q.threshold
        )
    for i in range(L if n else 0, L + 2):
        if i % n_parts != part:
            continue
        for j in range(L):
            k = i * W + j
            if i < L:
                change = step.pairs[k]
            else:
                change = step.S[j] if i == L else step.S[(T - 1) * W + j]
            total += step_to(
                rows.chain + k, q.chain_u + k if q.U != NULL else NULL,
                change * (sign * rows.chain_mask[k]), q.threshold
            )
    return total


cdef inline void exchange(float* kept, float* now, double value) noexcept nogil:
    kept[0] = now[0]
    now[0] = <float> value


cdef void take_candidate(
    Problem* q, const Step* step, Dual* dual, Py_ssize_t T
) noexcept nogil:
    # theta and mu become those of the candidate; the ones before are kept in `step`.
    cdef Py_ssize_t t, j, k, W = q.at.rows.width, L = q.at.rows.L
    for t in range(T):
        for j in range(L):
            k = t * L + j
            exchange(step.theta + k, dual.theta + k, q.theta[t * W + j])
            exchange(step.mu + k, dual.mu + k, q.at.mu[t * W + j])
    for j in range(q.at.listed.n):
        exchange(step.pair_theta + j, dual.pair_theta + j, q.at.listed.theta[j])
        exchange(step.pair_mu + j, dual.pair_mu + j, q.at.listed.mu[j])
    for t in range(0 if q.at.listed.n else L):
        for j in range(L):
            k = t * L + j
            exchange(step.pair_theta + k, dual.pair_theta + k, q.pair_theta[t * W + j])
            exchange(step.pair_mu + k, dual.pair_mu + k, q.at.pair_mu[t * W + j])


cdef void restore(const Step* step, Dual* dual, Py_ssize_t n, Py_ssize_t n_pairs) noexcept nogil:
    # The inverse of `take_candidate`.
    cdef Py_ssize_t k
    for k in range(n):
        dual.theta[k], dual.mu[k] = step.theta[k], step.mu[k]
    for k in range(n_pairs):
        dual.pair_theta[k], dual.pair_mu[k] = step.pair_theta[k], step.pair_mu[k]


cdef void propose(
    lanes* tag, Problem* q, const Steps* m, Py_ssize_t r, Py_ssize_t T, Dual* dual, const Step* step
) noexcept nogil:
    # Take the candidate of one sequence, and compute the step of w that belongs to it.
    cdef Py_ssize_t t, j, p, W = q.at.rows.width, L = q.at.rows.L
    cdef double log_z, scale = dual.weight / q.lam
    cdef double* sums = step.numbers + SUMS
    step.numbers[EXISTS] = 0
    if m.first_step != NULL and dual.seen[0] != SEEN:
        dual.eta[0] = min(dual.eta[0], m.first_step[0])
    q.at.S = step.S
    scores(tag, &q.at, r, T)
    set_candidate(q, dual, T)
    log_z = expectations(tag, &q.at, q.theta, q.pair_theta, 1, T)
    if log_z != log_z:                   # scores differ too much: shorten the step
        dual.eta[0] *= 0.5
        return
    step.numbers[EXISTS] = 1
    round_marginals(&q.at, T)
    sums[0] = sums[1] = sums[2] = 0
    compare(q, dual.theta, dual.mu, T, q.at.S, q.theta, q.at.mu, sums)
    compare_pairs(q, dual, sums)
    step.numbers[ENTROPY] = log_z - sums[0]
    for t in range(T):
        for j in range(L):
            step.S[t * W + j] = scale * (dual.mu[t * L + j] - q.at.mu[t * W + j])
    for p in range(q.at.listed.n):
        step.pairs[p] = scale * (dual.pair_mu[p] - q.at.listed.mu[p])
    for t in range(0 if q.at.listed.n else L):
        for j in range(L):
            p = t * W + j
            step.pairs[p] = scale * (dual.pair_mu[t * L + j] - q.at.pair_mu[p])
    take_candidate(q, step, dual, T)


cdef double judge(
    const Problem* q, Dual* dual, const Step* step, Py_ssize_t n_parts
) noexcept nogil:
    # The gain of the dual by a step, 0 if it is to be undone; sets `numbers[UNDONE]`.
    cdef double norm = 0, gain, weight = dual.weight
    cdef double* sums = step.numbers + SUMS
    cdef double* eta = dual.eta
    cdef Py_ssize_t k
    step.numbers[UNDONE] = 0
    if step.numbers[EXISTS] == 0:
        return 0
    for k in range(n_parts):
        norm += step.norms[k]
    gain = weight * (step.numbers[ENTROPY] - dual.entropy[0]) - 0.5 * q.lam * norm
    dual.gap[0] = 0.5 * weight * sums[1] / eta[0]
    # Along the step, D(x eta) = D + weight sums[1] (x - x^2/2) / eta - lam/2 ||step of w||^2 x^2,
    # to second order; the next step is three quarters of its maximiser.
    norm -= 2 * weight / q.lam * sums[2]
    if n_parts > 1:                      # less twice the product with earlier steps of the batch
        norm = max(norm, 0)
    eta[0] *= 0.75 * weight * sums[1] / (weight * sums[1] * eta[0] + q.lam * norm + 1e-300)
    eta[0] = min(max(eta[0], 1e-3), 1)
    # The first step from marginals of 0 and 1 cannot be short: it is undone once, in batches only.
    if gain < -1e-9 and (dual.seen[0] == SEEN or n_parts > 1 and dual.seen[0] != TRIED):
        step.numbers[UNDONE] = 1
        dual.seen[0] = SEEN if dual.seen[0] == SEEN else TRIED
        return 0
    dual.entropy[0], dual.seen[0] = step.numbers[ENTROPY], SEEN
    return gain


cdef inline Steps steps_of(state) except *:
    cdef const long long[::1] place = state.slots.place
    cdef double[:, ::1] S = state.slots.residuals, pairs = state.slots.pairs
    cdef float[:, :, ::1] before = state.kept.rows, pairs_before = state.kept.pairs
    cdef double[:, ::1] norms = state.kept.norms, numbers = state.kept.numbers
    cdef Steps m
    m.place, m.S, m.pairs, m.n_pairs = &place[0], &S[0, 0], &pairs[0, 0], pairs.shape[1]
    m.theta, m.mu = &before[0, 0, 0], &before[1, 0, 0]
    m.pair_theta, m.pair_mu = &pairs_before[0, 0, 0], &pairs_before[1, 0, 0]
    m.norms, m.numbers, m.n_stored = &norms[0, 0], &numbers[0, 0], pairs_before.shape[2]
    cdef double[::1] first_step = state.first_step
    m.first_step = &first_step[0] if norms.shape[1] > 1 else NULL
    return m


cdef inline Step step_of(
    const Steps* m, const Problem* q, const Batches* batches, Py_ssize_t b, Py_ssize_t k
) noexcept nogil:
    # Of the k-th sequence, in batch b.
    cdef Py_ssize_t place = m.place[k], slot = k - batches.first[b]
    cdef Step step
    step.S, step.pairs = m.S + place * q.at.rows.width, m.pairs + slot * m.n_pairs
    step.theta, step.mu = m.theta + place * q.at.rows.L, m.mu + place * q.at.rows.L
    step.pair_theta = m.pair_theta + slot * m.n_stored
    step.pair_mu = m.pair_mu + slot * m.n_stored
    step.norms, step.numbers = m.norms + slot * batches.n_parts, m.numbers + slot * N_NUMBERS
    return step


cdef struct Sequences:
    const long long* order
    const long long* offsets
    const double* weights
    float* theta             # (n_rows, L), as is the next
    float* mu
    float* pair_theta        # (n_sequences, n_stored), as is the next
    float* pair_mu
    double* entropy          # (n_sequences,), as are the next three
    double* eta
    double* gap
    unsigned char* seen


cdef inline Dual dual_of(
    const Sequences* all, const Steps* m, const Problem* q, Py_ssize_t s
) noexcept nogil:
    cdef Py_ssize_t r = all.offsets[s] * q.at.rows.L
    cdef Dual dual
    dual.theta, dual.mu = all.theta + r, all.mu + r
    dual.pair_theta, dual.pair_mu = all.pair_theta + s * m.n_stored, all.pair_mu + s * m.n_stored
    dual.weight, dual.seen = all.weights[s], all.seen + s
    dual.entropy, dual.eta, dual.gap = all.entropy + s, all.eta + s, all.gap + s
    return dual


cdef void propose_all(
    lanes* tag, Problem* q, const Sequences* all, const Steps* m, Batches* batches, Py_ssize_t b
) noexcept nogil:
    # First phase of a batch.
    cdef Py_ssize_t k = take_sequence(batches, b), s, r
    cdef Dual dual
    cdef Step step
    while k >= 0:
        s = all.order[k]
        r = all.offsets[s]
        dual, step = dual_of(all, m, q, s), step_of(m, q, batches, b, k)
        propose(tag, q, m, r, all.offsets[s + 1] - r, &dual, &step)
        sequence_done(batches)
        k = take_sequence(batches, b)


cdef void move_part(
    lanes* tag, Problem* q, const Sequences* all, const Steps* m, const Batches* batches,
    Py_ssize_t b, Py_ssize_t part
) noexcept nogil:
    # Second phase of a batch: a part of the weights follows all steps.
    cdef Py_ssize_t k, s, r, T
    cdef Step step
    for k in range(batches.first[b], batches.first[b + 1]):
        s, step = all.order[k], step_of(m, q, batches, b, k)
        r = all.offsets[s]
        T = all.offsets[s + 1] - r
        if step.numbers[EXISTS] != 0:
            step.norms[part] = move(tag, q, &step, r, T, part, 1) + move_chain(
                q, &step, T, part, batches.n_parts, 1
            )


cdef void undo_part(
    lanes* tag, Problem* q, const Sequences* all, const Steps* m, const Batches* batches,
    Py_ssize_t b, Py_ssize_t part
) noexcept nogil:
    # Part of the weights, or of the sequences, as before the steps that are undone.
    cdef Py_ssize_t k, s, r, T
    cdef Dual dual
    cdef Step step
    for k in range(batches.first[b], batches.first[b + 1]):
        s, step = all.order[k], step_of(m, q, batches, b, k)
        if step.numbers[UNDONE] == 0:
            continue
        r = all.offsets[s]
        T = all.offsets[s + 1] - r
        move(tag, q, &step, r, T, part, -1)
        move_chain(q, &step, T, part, batches.n_parts, -1)
        if k % batches.n_parts == part:
            dual = dual_of(all, m, q, s)
            restore(&step, &dual, T * q.at.rows.L, m.n_stored)


cdef double curvature_of(
    const Problem* q, const Dual* dual, const Step* step, Py_ssize_t n_parts
) noexcept nogil:
    # lam ||step of w||^2. In a batch, plus twice lam times the product with the steps before it.
    cdef Py_ssize_t k
    cdef double norm = 0
    for k in range(n_parts):
        norm += step.norms[k]
    return q.lam * norm - 2 * dual.weight * step.numbers[SUMS + 2]


cdef void adapt_first_step(
    const Problem* q, const Sequences* all, const Steps* m, const Batches* batches, Py_ssize_t b
) noexcept nogil:
    # Move the first step of sequences towards three quarters of the maximiser along the joint step
    # of those of a batch that were never updated, see `judge`.
    cdef Py_ssize_t k
    cdef double slope, eta, slopes = 0, curvatures = 0
    cdef Dual dual
    cdef Step step
    for k in range(batches.first[b], batches.first[b + 1]):
        dual, step = dual_of(all, m, q, all.order[k]), step_of(m, q, batches, b, k)
        if step.numbers[EXISTS] != 0 and dual.seen[0] != SEEN:
            slope, eta = dual.weight * step.numbers[SUMS + 1], dual.eta[0]
            slopes += slope
            curvatures += slope * eta + curvature_of(q, &dual, &step, batches.n_parts)
    if slopes > 0:
        eta *= 0.75 * slopes / max(curvatures, 0.75 * slopes * eta)
        m.first_step[0] += NEW_SHARE * (eta - m.first_step[0])


cdef Py_ssize_t judge_all(
    const Problem* q, const Sequences* all, const Steps* m, const Batches* batches, Py_ssize_t b,
    double* gain
) noexcept nogil:
    # Decide which steps of a batch are undone; returns their number, with those never made.
    cdef Py_ssize_t k, n_rejected = 0
    cdef Dual dual
    cdef Step step
    if m.first_step != NULL:
        adapt_first_step(q, all, m, batches, b)
    for k in range(batches.first[b], batches.first[b + 1]):
        dual, step = dual_of(all, m, q, all.order[k]), step_of(m, q, batches, b, k)
        gain[0] += judge(q, &dual, &step, batches.n_parts)
        n_rejected += step.numbers[UNDONE] != 0 or step.numbers[EXISTS] == 0
        batches.undos[b + 1] |= step.numbers[UNDONE] != 0
    batches.undos[b + 1] += batches.undos[b]
    return n_rejected


cdef Py_ssize_t ascend_all(
    lanes* tag, Problem* q, const Sequences* all, const Steps* m, Batches* batches, double* gain
) noexcept nogil:
    # Update in batches; returns the number of rejected steps that this thread counted.
    cdef Py_ssize_t b, k, n_rejected = 0
    for b in range(batches.n):
        propose_all(tag, q, all, m, batches, b)
        wait_for_sequences(batches, b)
        for k in range(batches.n_parts):
            if take_part(batches, b, k):
                move_part(tag, q, all, m, batches, b, (batches.me + k) % batches.n_parts)
                if part_done(batches, b):
                    n_rejected += judge_all(q, all, m, batches, b, gain)
                    decided(batches)
        wait_for_decision(batches, b)
        if batches.undos[b + 1] > batches.undos[b]:
            for k in range(batches.n_parts):
                if take_undo(batches, b, k):
                    undo_part(tag, q, all, m, batches, b, (batches.me + k) % batches.n_parts)
                    undo_done(batches)
            wait_for_undo(batches, b)
    return n_rejected


def ascend(
    state,                            # DualLikelihood: its arrays are IN/OUT
    plan,                             # BatchPlan
    Py_ssize_t me,                    # number of this thread
    double[:, ::1] W,                 # (n, width)         IN/OUT padded weights
    double[::1] w,                    # (n_pairs,)         IN/OUT weights of sparse features
):
    """Update the sequences of a plan, none of which is empty.

    Returns the gain of the dual and the number of steps undone, as far as this thread counted them.
    """
    cdef const long long[::1] order = plan.order, offsets = state.offsets
    cdef const double[::1] weights = state.weights
    cdef float[:, ::1] theta = state.theta, mu = state.mu
    cdef float[:, ::1] pair_theta = state.pair_theta, pair_mu = state.pair_mu
    cdef double[::1] entropy = state.entropy, eta = state.eta, gap = state.gap, sparse_u
    cdef double[:, ::1] dense_u, chain_u, scratch = state.scratch
    cdef unsigned char[::1] seen = state.seen
    cdef const unsigned short[::1] owner, sparse_owner
    cdef Problem q
    cdef Sequences all
    cdef Steps steps
    cdef Batches batches
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t n_rejected
    cdef double gain = 0
    if order.shape[0] == 0:
        return 0.0, 0
    q.at, q.lam, q.threshold = lattice_of(state, W, w), state.lam, state.threshold
    q.U, q.sparse_u, q.chain_u, q.pair_theta = NULL, NULL, NULL, NULL
    if state.u is not None:
        dense_u, sparse_u, chain_u = state.u
        q.U = &dense_u[0, 0] if dense_u.shape[0] else &chain_u[0, 0]
        q.sparse_u = &sparse_u[0] if sparse_u.shape[0] else NULL
        q.chain_u = &chain_u[0, 0]
    q.theta = &scratch[q.at.used, 0]
    if not q.at.listed.n:
        q.pair_theta = &scratch[q.at.used + state.longest, 0]
    steps, batches = steps_of(state), batches_of(plan, me)
    q.owner = q.sparse_owner = NULL
    if batches.n_parts > 1:
        owner, sparse_owner = state.owners[:2]
        q.owner = &owner[0] if owner.shape[0] else NULL
        q.sparse_owner = &sparse_owner[0] if sparse_owner.shape[0] else NULL
    all.order, all.offsets, all.weights = &order[0], &offsets[0], &weights[0]
    all.theta, all.mu = &theta[0, 0], &mu[0, 0]
    all.pair_theta, all.pair_mu = &pair_theta[0, 0], &pair_mu[0, 0]
    all.entropy, all.eta, all.gap, all.seen = &entropy[0], &eta[0], &gap[0], &seen[0]
    with nogil:
        if q.at.rows.width == 2:
            n_rejected = ascend_all(&two, &q, &all, &steps, &batches, &gain)
        elif q.at.rows.width == 4:
            n_rejected = ascend_all(&four, &q, &all, &steps, &batches, &gain)
        else:
            n_rejected = ascend_all(&eight, &q, &all, &steps, &batches, &gain)
    return gain, n_rejected

"""Dynamic programs over segmentations, in scaled arithmetic and in the log domain.

Conventions
-----------
A segment [s, e) starts at boundary s and ends at boundary e of a sequence of n steps. *Cells* are
the distinct (kind, start, stop) of a sequence's potentials, sorted by stop, then by falling start:
step e reads those that stop at e. `_segment_plan.pyx` arranges the rest, once a data set:

    state       one group of starts at one step; those of step e are step_states[e - 1] up to
                step_states[e], from the newest start to the oldest
    entry[e-1]  the state of step e whose group contains start e - 1
    G_v(y)      mass of the segments of label y that started in the group and have not ended before
                e, with the factors of all cells up to e
    target[v]   the state of the next step into which group v goes; -1: none
    mask[v]     row of `masks` that removes labels whose longest length is reached; 0: none
    run[v]      the number of states where a run begins, minus that where it ends, else 0. A run is
                consecutive states with one cell each, closed at both ends, consecutive targets, no
                mask and no new start: one loop serves all, if rows fit registers. Features of whole
                segments make many.

Every row has `width` numbers: L labels, then padding up to a whole number of lanes. Padding is 0 in
E and in the start factors (-inf in scores), so it contributes nothing.

The recursion (Sarawagi 2006, Equation 5, with any number of groups instead of one)

    alpha^_s    = start                         if s = 0, else alpha_s E, or alpha_s E_s if row s
                                                has transitions of its own (`_row_matrices.pxd`)
    pre_v       = sum of G_u over target[u] = v, and of alpha^_{e-1} if v = entry[e-1]
    G_v         = pre_v * open_v                open_v: cells that stop at e, open at the end
    alpha_e     = sum_v G_v * closed_v          closed_v: cells that stop at e, closed at the end

Factors of cells with an open start are multiplied from the newest group to the oldest, once each.
Its derivatives, backwards, are beta and all marginals: nothing is divided, so nothing cancels.

Scaled arithmetic: when it is exact
-----------------------------------
When the mass of a step leaves [2^-100, 2^100], the next step multiplies all by a power of two,
which rounds nothing. All terms are non-negative and are only added and multiplied: if no operation
underflows or overflows, every result has a relative error below the number of operations that led
to it, times 1e-16. The processor records both in the flags of IEEE 754, §7: they are cleared before
each sequence and tested after it.

If one is set, the reason is most often a group of starts that is kept apart for many steps while
the mass of its labels decreases. Then the sequence is done again, and an entry of `pre` below
2^-600 becomes 0 if another group has at least 2^-300 for the same label. From there on the two
have the same futures, and the same factors but for cells that both start before this step and stop
in it or later; if their scores sum up to at most REACH in magnitude, what is dropped is at most
2^-300 exp(REACH) = 1e-25 of what is kept (labels of a longest length above 1 have
other futures, and are left alone). If a flag is set again, or REACH is exceeded, or exp of a score
is not a normal number, the sequence is done in the log domain.
"""

from libc.math cimport INFINITY, exp, frexp, ldexp, log
from libc.string cimport memcpy, memset

import numpy as np

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference.kernels._log_domain cimport draw, log_add, log_normalise, log_sum
from sklseq.inference.kernels._recursions cimport block_of_product
from sklseq.inference.kernels._row_matrices cimport (
    RowMatrices, add_expected, has_entries, matrix_at,
)
from sklseq.inference.kernels._scaled cimport (
    FE_INVALID, FE_OVERFLOW, FE_UNDERFLOW, exponentiate, feclearexcept, fetestexcept, in_range,
    known_width, log_of_power, sum_of_products, sum_of_rows, times_matrix,
)
from sklseq.inference.kernels._segment_structs cimport (
    Chain, Plan, Trellis, go_to_sequence, plan_of_sequence, read_factors, read_plan, read_scores,
    read_trellis, rows_from, step_factors,
)
from sklseq.inference.kernels._state_rows cimport (
    ENDS, GOES_ON, MASKED, MINE, NEW, sklseq_backward_run, sklseq_backward_state,
    sklseq_forward_run, sklseq_forward_state, sklseq_times_row,
)


cdef double DROPPED = 2.0 ** -600, KEPT = 2.0 ** -300
REACH = 150.0


cdef inline bint one_exact(const Plan* plan, Py_ssize_t v) noexcept nogil:
    # Whether a state has a single cell, of kind 0, as most states of features of whole segments do.
    return (
        plan.last_cell[v] - plan.first_cell[v] == 1 and plan.kind[plan.first_cell[v]] == 0
    )


cdef inline int own_factors(
    const Plan* plan, Py_ssize_t v, const double* F, double* product, double** own,
    Py_ssize_t width
) noexcept nogil:
    # Factors of this group's starts only: own[0] open at the end, own[1] closed. Each is a cell, or
    # the product of several in `product`. Returns bits of those that exist; 4 and 8 mark products.
    cdef Py_ssize_t c
    cdef int kind, has = 0
    cdef double* f
    if one_exact(plan, v):
        own[1] = <double*> F + plan.first_cell[v] * width
        return ENDS
    for c in range(plan.first_cell[v], plan.last_cell[v]):
        if plan.kind[c] >= 2:
            continue
        f = <double*> F + c * width
        kind = 0 if plan.kind[c] == 1 else 1
        if not has & (1 << kind):
            own[kind] = f
        else:
            if not has & (4 << kind):
                memcpy(product + kind * width, own[kind], width * sizeof(double))
                own[kind] = product + kind * width
                has |= 4 << kind
            sklseq_times_row(width, own[kind], f)
        has |= 1 << kind
    return has


cdef inline int all_factors(
    const Plan* plan, Py_ssize_t v, Py_ssize_t e, int has
) noexcept nogil:
    # The bits of `own_factors`, and those of a new start, a target and a mask at step e.
    has &= MINE | ENDS
    if v == plan.entry[e - 1]:
        has |= NEW
    if plan.target[v] >= 0:
        has |= GOES_ON
        if plan.mask[v]:
            has |= MASKED
    return has


cdef const double* patched(RowMatrices* q, Py_ssize_t t) noexcept nogil:
    # `matrix_at`, not inlined, so that the callers are optimised for a constant matrix.
    return matrix_at(<const double*> q.shared, q, t)


cdef inline double forward_step(
    lanes* tag, const Plan* plan, const Chain* chain, const Trellis* rows, Py_ssize_t e
) noexcept nogil:
    # G, alpha and alpha^ of step e; G of its targets is added up. Returns the mass of the step.
    cdef Py_ssize_t width = known_width(tag, chain.width), k, c, v = plan.step_states[e - 1]
    cdef int has
    cdef double factor = rows.factor[e - 1]
    cdef double* own[2]
    cdef double* F = rows.F
    cdef double* G = rows.G
    cdef double* opened = rows.scratch
    cdef double* closed = opened + width
    cdef double* mass = closed + width
    cdef double* product = mass + width
    cdef double* alpha = rows.alpha + (e - 1) * width
    cdef double* entering = rows.u + (e - 1) * width
    cdef const double* matrix = chain.matrix
    if e == 1:
        memcpy(entering, chain.start, width * sizeof(double))
    else:
        if chain.of_row.start != NULL:
            matrix = patched(chain.of_row, e - 1)
        times_matrix(tag, alpha - width, matrix, entering, chain.L, width)
    for k in range(width):
        opened[k] = factor
        closed[k] = 1
        mass[k] = 0
        alpha[k] = 0
    while v < plan.step_states[e]:
        if plan.run[v] > 0:
            sklseq_forward_run(
                plan.run[v], width, G + v * width, opened, closed, F + plan.first_cell[v] * width,
                G + plan.target[v] * width, alpha, mass
            )
            v += plan.run[v]
            continue
        if not one_exact(plan, v):
            for c in range(plan.first_cell[v], plan.last_cell[v]):
                if plan.kind[c] >= 2:
                    sklseq_times_row(
                        width, opened if plan.kind[c] == 3 else closed, F + c * width
                    )
        has = all_factors(plan, v, e, own_factors(plan, v, F, product, own, width))
        sklseq_forward_state(
            has, width, G + v * width, entering, opened, own[0], closed, own[1],
            plan.masks + plan.mask[v] * width, G + plan.target[v] * width, alpha, mass
        )
        v += 1
    return sum_of_rows(tag, alpha, mass, width)


cdef void drop_small(double* G, Py_ssize_t n, Py_ssize_t L, Py_ssize_t width) noexcept nogil:
    cdef Py_ssize_t v, y
    cdef double top
    for y in range(L):
        top = 0
        for v in range(n):
            top = max(top, G[v * width + y])
        if top >= KEPT:
            for v in range(n):
                if G[v * width + y] < DROPPED:
                    G[v * width + y] = 0


cdef inline double forward(
    lanes* tag, const Plan* plan, const Chain* chain, const Trellis* rows, bint drop
) noexcept nogil:
    # Scaled forward pass; returns log Z, -inf if there is no mass.
    cdef Py_ssize_t e = plan.step_states[0], width = known_width(tag, chain.width)
    cdef int power = 0, shifted = 0
    cdef double total = 0, scale = 1
    memset(rows.G + e * width, 0, (plan.step_states[plan.n] - e) * width * sizeof(double))
    for e in range(1, plan.n + 1):
        rows.factor[e - 1] = scale
        if drop:
            drop_small(rows.G + plan.step_states[e - 1] * width,
                       plan.step_states[e] - plan.step_states[e - 1], chain.L, width)
        total = forward_step(tag, plan, chain, rows, e)
        scale = 1
        # Stop early: arithmetic on numbers that underflow is slow.
        if e % 16 == 0 and fetestexcept(FE_UNDERFLOW):
            return -INFINITY
        if not in_range(total):
            if not 0 < total < INFINITY:
                return -INFINITY
            frexp(total, &power)
            scale = ldexp(1.0, -power)
            if e < plan.n:
                shifted += power
    total = sum_of_products(rows.alpha + (plan.n - 1) * width, chain.end, chain.L)
    return log(total) + log_of_power(shifted) if total > 0 else -INFINITY


cdef inline void backward_step(
    lanes* tag, const Plan* plan, const Chain* chain, const Trellis* rows, Py_ssize_t e
) noexcept nogil:
    # G becomes the derivative by pre, u that by alpha^, F the marginals of the cells of step e.
    # tokens: probability of each label between boundaries e - 1 and e. beta is the first row of
    # scratch.
    cdef Py_ssize_t width = known_width(tag, chain.width), size = width * sizeof(double)
    cdef Py_ssize_t k, v, c, n, v0 = plan.step_states[e - 1], v1 = plan.step_states[e]
    cdef int has, kind
    cdef double* own[2]
    cdef double* F = rows.F
    cdef double* G = rows.G
    cdef double* tokens = rows.tokens + (e - 1) * width
    cdef double* sum_ending = rows.scratch + width
    cdef double* product = sum_ending + width
    cdef double* on = product + 2 * width
    cdef double* off = on + width
    cdef double* row = off + width           # the next free one
    cdef double** opened = <double**> (on + 2 * (plan.most + 1) * width)
    cdef double** closed = opened + plan.most
    for k in range(width):
        on[k] = rows.factor[e - 1]
        tokens[k] = sum_ending[k] = 0
    memcpy(off, rows.scratch, size)
    for v in range(v0, v1):                  # factors, from the newest group to the oldest
        opened[v - v0], closed[v - v0] = on, off
        if one_exact(plan, v):
            continue
        own[0] = own[1] = NULL
        for c in range(plan.first_cell[v], plan.last_cell[v]):
            kind = plan.kind[c] - 2
            if kind < 0:
                continue
            if own[kind] == NULL:
                memcpy(row, on if kind else off, size)
                own[kind] = row
                row += width
            sklseq_times_row(width, own[kind], F + c * width)
        off = off if own[0] == NULL else own[0]
        on = on if own[1] == NULL else own[1]
        opened[v - v0], closed[v - v0] = on, off
    v = v1
    while v > v0:                            # sums, from the oldest group to the newest
        v -= 1
        if plan.run[v] < 0:
            n = -plan.run[v]
            v -= n - 1
            sklseq_backward_run(
                n, width, G + v * width, opened[v - v0], closed[v - v0],
                F + plan.first_cell[v] * width, G + plan.target[v] * width, tokens, sum_ending
            )
            continue
        has = own_factors(plan, v, F, product, own, width)
        sklseq_backward_state(
            all_factors(plan, v, e, has), width, G + v * width, rows.u + (e - 1) * width,
            opened[v - v0], own[0], closed[v - v0], own[1], plan.masks + plan.mask[v] * width,
            G + plan.target[v] * width, tokens, sum_ending
        )
        if one_exact(plan, v):
            continue
        for c in range(plan.first_cell[v], plan.last_cell[v]):
            if plan.kind[c] == 3:
                memcpy(F + c * width, tokens, size)
            elif plan.kind[c] == 2:
                memcpy(F + c * width, sum_ending, size)
            elif has & (4 if plan.kind[c] == 1 else 8):
                memcpy(F + c * width, product + (0 if plan.kind[c] == 1 else width), size)


cdef inline void backward(
    lanes* tag, const Plan* plan, const Chain* chain, const Trellis* rows
) noexcept nogil:
    # beta_e(i) = sum_j E(i, j) u_{e+1}(j), u_e: derivative of log Z by alpha^_{e-1}
    cdef Py_ssize_t e, j, width = known_width(tag, chain.width)
    cdef double* alpha = rows.alpha + (plan.n - 1) * width
    cdef double* beta = rows.scratch
    cdef const double* matrix = chain.transposed
    cdef double total = sum_of_products(alpha, chain.end, chain.L)
    for j in range(width):
        beta[j] = chain.end[j] / total
    for e in range(plan.n, 0, -1):
        backward_step(tag, plan, chain, rows, e)
        if e == 1:
            return
        if chain.of_row_t.start != NULL:
            matrix = patched(chain.of_row_t, e - 1)
        times_matrix(tag, rows.u + (e - 1) * width, matrix, beta, chain.L, width)
        alpha -= width
        for j in range(width):
            if not alpha[j] > 0:
                beta[j] = 0


cdef void add_row_pairs(
    const Chain* chain, const double* alpha, const double* u, Py_ssize_t t, double weight,
    double* pairs
) noexcept nogil:
    # pairs(i, j) += weight * alpha(i) E_t(i, j) u(j), t being a row with entries; and into
    # `expected` those of its entries.
    cdef Py_ssize_t i, j, width = chain.width
    cdef const double* E = matrix_at(alpha, chain.of_row, t)
    cdef double a
    for i in range(chain.L):
        a = weight * alpha[i]
        for j in range(width):
            pairs[i * width + j] += a * (E[i * width + j] * u[j])
    if chain.of_row.expected != NULL:
        add_expected(chain.of_row, alpha, u, weight)


cdef void set_aside(
    Py_ssize_t n, const Chain* chain, double* u, double* kept
) noexcept nogil:
    # Rows of u with entries go to `kept` and become 0.
    cdef Py_ssize_t t, size = chain.width * sizeof(double)
    for t in range(1, n):
        if has_entries(chain.of_row, t):
            memcpy(kept + t * chain.width, u + t * chain.width, size)
            memset(u + t * chain.width, 0, size)


cdef inline bint add_pairs(
    lanes* tag, const Plan* plan, const Chain* chain, const Trellis* rows, double weight
) noexcept nogil:
    # pairwise(i, j) += weight * sum_e alpha_e(i) u_{e+1}(j), to be multiplied by E, of rows without
    # entries; of the others, with E_e, into pairwise[1]; the first label into ends[0], the last
    # into ends[1]. False, and nothing added, if a product overflows.
    cdef Py_ssize_t B = n_lanes(tag), width = known_width(tag, chain.width), block, i, k, t
    cdef Py_ssize_t n = plan.n
    cdef const double* last = rows.alpha + (n - 1) * width
    cdef double* kept = rows.G + plan.step_states[0] * width    # its numbers are used up
    cdef double acc[8]
    cdef double total
    if chain.of_row.start != NULL:
        set_aside(n, chain, rows.u, kept)
    if n > 1:
        for block in range(width // B):
            for i in range(chain.L):
                block_of_product(
                    tag, rows.alpha + i, width, rows.u + width + block * B, n - 1, width, acc
                )
                for k in range(B):
                    rows.scratch[i * width + block * B + k] = acc[k]
        if fetestexcept(FE_OVERFLOW | FE_INVALID):
            return False
        for k in range(chain.L * width):
            rows.pairwise[k] += weight * rows.scratch[k]
    if chain.of_row.start != NULL:
        for t in range(1, n):
            if has_entries(chain.of_row, t):
                add_row_pairs(
                    chain, rows.alpha + (t - 1) * width, kept + t * width, t, weight,
                    rows.pairwise + width * width
                )
    total = sum_of_products(last, chain.end, chain.L)
    for k in range(chain.L):
        rows.ends[k] += weight * chain.start[k] * rows.u[k]
        rows.ends[width + k] += weight * last[k] * chain.end[k] / total
    return True


cdef inline double one_sequence(
    lanes* tag, const Plan* plan, const Chain* chain, const Trellis* rows, double weight, bint drop
) noexcept nogil:
    # log Z, or NaN if the flags say that scaled arithmetic was not exact.
    cdef int bad = FE_UNDERFLOW | FE_OVERFLOW | FE_INVALID
    cdef double log_z
    feclearexcept(bad)
    log_z = forward(tag, plan, chain, rows, drop)
    if not fetestexcept(bad):
        if log_z == -INFINITY:
            return log_z
        backward(tag, plan, chain, rows)
        if not fetestexcept(bad) and add_pairs(tag, plan, chain, rows, weight):
            return log_z
    return log(-1.0)


cdef void _forward_backward(
    lanes* tag, const Plan* plan, const Chain* chain, const Trellis* rows, Py_ssize_t a,
    const double[::1] weights, double[::1] log_z, bint drop
) noexcept nogil:
    cdef Py_ssize_t s, r, first, width = chain.width
    cdef Trellis own = rows[0]
    cdef Plan one
    for s in range(a, a + log_z.shape[0]):
        one = plan_of_sequence(plan, s)
        go_to_sequence(chain, plan, s)
        first = plan.cells[s] * width
        if one.n == 0:
            log_z[s - a] = 0
        elif rows.psi != NULL and not exponentiate(
            rows.psi + first, rows.F + first, plan.cells[s + 1] * width - first
        ):
            log_z[s - a] = log(-1.0)
        else:
            r = plan.steps[s] - plan.steps[a]
            own.alpha, own.u = rows.alpha + r * width, rows.u + r * width
            own.tokens, own.factor = rows.tokens + r * width, rows.factor + r
            own.G = rows.G - one.step_states[0] * width
            log_z[s - a] = one_sequence(tag, &one, chain, &own, weights[s - a], drop)


def forward_backward_scaled(
    object segment_plan, object transitions, object work, object batch, bint drop
):
    """Scaled forward-backward over the sequences of a batch.

    Fills ``F``, ``tokens`` and ``log_z`` of the batch, and adds to ``pairwise`` and ``ends`` of the
    workspace. NaN in ``log_z`` marks a sequence to be done in the log domain, of which nothing
    is added. With ``drop``, 2^-600 beside 2^-300 is 0: see the module's notes.
    """
    cdef const int[::1] run = segment_plan.run
    cdef Plan plan = read_plan(segment_plan, segment_plan.masks)
    cdef RowMatrices of_rows[2]
    cdef object entries = transitions.entries_of_factors()
    cdef Chain chain = read_factors(transitions, entries, of_rows)
    cdef Py_ssize_t a = batch.a
    cdef Trellis rows = read_trellis(work, batch, plan.cells[a])
    cdef const double[::1] weights = batch.weights
    cdef double[::1] log_z = batch.log_z
    plan.run = &run[0]
    with nogil:
        if chain.width == 2:
            _forward_backward(<Lanes2*> NULL, &plan, &chain, &rows, a, weights, log_z, drop)
        elif chain.width == 4:
            _forward_backward(<Lanes4*> NULL, &plan, &chain, &rows, a, weights, log_z, drop)
        else:
            _forward_backward(<Lanes8*> NULL, &plan, &chain, &rows, a, weights, log_z, drop)


# ---------------------------------------------------------------- the log domain


cdef inline double entering(
    const Chain* chain, const double* log_alpha, Py_ssize_t e, Py_ssize_t y
) noexcept nogil:
    # log alpha^_{e-1}(y)
    if e == 1:
        return chain.start[y]
    return log_sum(
        log_alpha + (e - 2) * chain.L, matrix_at(log_alpha, chain.of_row, e - 1) + y, chain.width,
        chain.L
    )


cdef inline bint may_go_on(
    const Plan* plan, Py_ssize_t v, Py_ssize_t y, Py_ssize_t width
) noexcept nogil:
    return plan.target[v] >= 0 and plan.masks[plan.mask[v] * width + y] > 0


def forward_log(
    object segment_plan,
    object transitions,
    Py_ssize_t s,
    const double[:, ::1] psi,        # (n_cells, width)  of sequence s
    double[:, ::1] log_G,            # (n_states, L)     OUT
    double[:, ::1] log_alpha,        # (n, L)            OUT
):
    """log G and log alpha of one sequence; returns log Z, -inf if nothing is allowed."""
    cdef Plan whole = read_plan(segment_plan, segment_plan.masks)
    cdef Plan plan = plan_of_sequence(&whole, s)
    cdef RowMatrices of_rows[2]
    cdef object entries = transitions.entries_of_scores()
    cdef Chain chain = read_scores(transitions, entries, of_rows)
    cdef Py_ssize_t L = chain.L, width = chain.width, e, v, y, v1
    cdef double[::1] scratch = np.empty(2 * plan.most)
    cdef double* opened = &scratch[0]
    cdef double* closed = opened + plan.most
    cdef const double* p = rows_from(psi, plan.cells[s])
    cdef double* G = &log_G[0, 0] - plan.step_states[0] * L
    cdef double* alpha = &log_alpha[0, 0]
    cdef double g
    go_to_sequence(&chain, &whole, s)
    with nogil:
        log_G[:, :] = -INFINITY
        log_alpha[:, :] = -INFINITY
        for e in range(1, plan.n + 1):
            v1 = plan.step_states[e - 1]
            for y in range(L):
                v = plan.entry[e - 1]
                G[v * L + y] = log_add(G[v * L + y], entering(&chain, alpha, e, y))
                step_factors(&plan, e, p, y, width, opened, closed)
                for v in range(v1, plan.step_states[e]):
                    g = G[v * L + y] + opened[v - v1]
                    G[v * L + y] = g
                    alpha[(e - 1) * L + y] = log_add(alpha[(e - 1) * L + y], g + closed[v - v1])
                    if may_go_on(&plan, v, y, width):
                        G[plan.target[v] * L + y] = log_add(G[plan.target[v] * L + y], g)
    return log_sum(alpha + (plan.n - 1) * L, chain.end, 1, L)


cdef inline void share(double* x, Py_ssize_t n, double mass) noexcept nogil:
    # x(k) becomes mass times its part of sum exp(x).
    cdef Py_ssize_t k
    if mass > 0:
        log_normalise(x, n)
    for k in range(n):
        x[k] = mass * exp(x[k]) if mass > 0 else 0


cdef double share_starts(
    const Plan* plan, const double* G, Py_ssize_t e, Py_ssize_t y, const Chain* chain,
    double enter, const double* now, double* before, double* work
) noexcept nogil:
    # Split the mass of each state of step e among the states of step e - 1 that go on to it, and a
    # new start, whose mass is returned.
    cdef Py_ssize_t L = chain.L, v, w, v1 = plan.step_states[e - 1], entry = plan.entry[e - 1] - v1
    cdef Py_ssize_t w1 = plan.step_states[e - 2] if e > 1 else v1
    cdef double* top = work
    cdef double* total = work + plan.most
    for v in range(plan.step_states[e] - v1):
        top[v], total[v] = -INFINITY, 0
    top[entry] = enter
    for w in range(w1, v1):
        if may_go_on(plan, w, y, chain.width):
            v = plan.target[w] - v1
            top[v] = max(top[v], G[w * L + y])
    enter = exp(enter - top[entry]) if enter > -INFINITY else 0
    total[entry] = enter
    for w in range(w1, v1):
        before[(w - w1) * L + y] = 0
        if may_go_on(plan, w, y, chain.width) and G[w * L + y] > -INFINITY:
            v = plan.target[w] - v1
            before[(w - w1) * L + y] = exp(G[w * L + y] - top[v])
            total[v] += before[(w - w1) * L + y]
    for w in range(w1, v1):
        if before[(w - w1) * L + y] > 0:
            v = plan.target[w] - v1
            before[(w - w1) * L + y] *= now[v * L + y] / total[v]
    return enter * now[entry * L + y] / total[entry] if enter > 0 else 0


cdef double mass_of_step(
    const Plan* plan, const double* G, Py_ssize_t e, const double* p, const Chain* chain,
    const double* end, double* now, double* F, double* work
) noexcept nogil:
    # Add the mass end(y) of segments that end at step e to `now`, which holds that of segments that
    # go on. F becomes the mass of the cells. Returns the sum of `now`.
    cdef Py_ssize_t L = chain.L, v, y, c, v1 = plan.step_states[e - 1]
    cdef Py_ssize_t n = plan.step_states[e] - v1
    cdef double going, sum_going, sum_ending, total = 0
    cdef double* closed = work + plan.most
    for y in range(L):
        step_factors(plan, e, p, y, chain.width, work, closed)
        for v in range(n):
            closed[v] += G[(v1 + v) * L + y]
        share(closed, n, end[y])
        sum_going = sum_ending = 0
        for v in range(n - 1, -1, -1):
            now[v * L + y] += closed[v]
            going = now[v * L + y]
            sum_going += going
            sum_ending += closed[v]
            for c in range(plan.first_cell[v1 + v], plan.last_cell[v1 + v]):
                F[c * chain.width + y] = (
                    sum_going if plan.kind[c] == 3 else sum_ending if plan.kind[c] == 2
                    else going if plan.kind[c] == 1 else closed[v]
                )
        total += sum_going
    return total


def backward_log(
    object segment_plan,
    object transitions,
    Py_ssize_t s,
    object batch,                    # of this sequence: F and tokens are filled
    const double[:, ::1] log_G,      # (n_states, L)     as forward_log left it
    const double[:, ::1] log_alpha,  # (n, L)
    double[:, ::1] pairwise,         # (width, width)    IN/OUT += weight * expected transitions
    double[:, ::1] ends,             # (2, width)        IN/OUT
):
    """Marginals of one sequence, from the end: each is split among what may precede, as in draws.

    Parts sum to one, so that large scores, however they are rounded, give probabilities.
    """
    cdef Plan whole = read_plan(segment_plan, segment_plan.masks)
    cdef Plan plan = plan_of_sequence(&whole, s)
    cdef RowMatrices of_rows[2]
    cdef object entries = transitions.entries_of_scores()
    cdef Chain chain = read_scores(transitions, entries, of_rows)
    cdef const double[:, ::1] psi = batch.psi
    cdef double[:, ::1] marginals = batch.F, tokens = batch.tokens
    cdef double weight = batch.weights[0]
    cdef Py_ssize_t L = chain.L, width = chain.width, n = plan.n, e, v, y, i, c, size
    cdef double[::1] scratch = np.zeros(2 * plan.most + 2 * plan.most * L + L + L * L)
    cdef double* work = &scratch[0]
    cdef double* now = work + 2 * plan.most      # mass of states of step e
    cdef double* before = now + plan.most * L    # mass of those of step e - 1 that go on
    cdef double* end = before + plan.most * L    # mass of segments that end at step e
    cdef double* pairs = end + L                 # [y, i]: of label i before y
    cdef const double* p = rows_from(psi, plan.cells[s])
    cdef double* F = <double*> rows_from(marginals, plan.cells[s])
    cdef const double* G = &log_G[0, 0] - plan.step_states[0] * L
    cdef const double* A
    cdef double total
    go_to_sequence(&chain, &whole, s)
    with nogil:
        for y in range(L):
            end[y] = log_alpha[n - 1, y] + chain.end[y]
        share(end, L, 1)
        for y in range(L):
            ends[1, y] += weight * end[y]
        for e in range(n, 0, -1):
            total = mass_of_step(&plan, G, e, p, &chain, end, now, F, work)
            size = plan.step_states[e] - plan.step_states[e - 1]
            for y in range(L):
                for v in range(size):
                    now[v * L + y] /= total
                    tokens[e - 1, y] += now[v * L + y]
            v = plan.step_states[e - 1]
            for c in range(plan.first_cell[v], plan.last_cell[v + size - 1]):
                for y in range(L):
                    F[c * width + y] /= total
            for y in range(L):
                end[y] = share_starts(
                    &plan, G, e, y, &chain, entering(&chain, &log_alpha[0, 0], e, y), now, before,
                    work
                )
            now, before = before, now
            if e == 1:
                for y in range(L):
                    ends[0, y] += weight * end[y]
                break
            A = matrix_at(p, chain.of_row, e - 1)
            for y in range(L):
                for i in range(L):
                    pairs[y * L + i] = log_alpha[e - 2, i] + A[i * width + y]
                share(pairs + y * L, L, end[y])
            for i in range(L):
                end[i] = 0
                for y in range(L):
                    end[i] += pairs[y * L + i]
                    pairwise[i, y] += weight * pairs[y * L + i]
            if chain.of_row.expected != NULL:
                v = chain.of_row.now
                for c in range(chain.of_row.start[v], chain.of_row.start[v + 1]):
                    chain.of_row.expected[c] += (
                        weight * pairs[chain.of_row.j[c] * L + chain.of_row.i[c]]
                    )


# ---------------------------------------------------------------- sampling


def sample_log(
    object segment_plan,
    object transitions,
    Py_ssize_t s,
    const double[:, ::1] psi,
    const double[:, ::1] log_G,
    const double[:, ::1] log_alpha,
    const double[::1] uniforms,      # (3 n + 1,) or more, in [0, 1)
    long long[:, ::1] segments,      # (n, 3)  OUT  start, stop, label, last segment first
):
    """Draw one segmentation from the last segment backwards; returns its number of segments."""
    cdef Plan whole = read_plan(segment_plan, segment_plan.masks)
    cdef Plan plan = plan_of_sequence(&whole, s)
    cdef RowMatrices of_rows[2]
    cdef object entries = transitions.entries_of_scores()
    cdef Chain chain = read_scores(transitions, entries, of_rows)
    cdef Py_ssize_t L = chain.L, width = chain.width, e = plan.n, most = plan.most
    cdef Py_ssize_t stop, v, y, k, v1, w, count = 0, drawn = 0
    cdef double[::1] scratch = np.empty(3 * most + L + 1)
    cdef double* opened = &scratch[0]
    cdef double* closed = opened + most
    cdef double* log_p = closed + most
    cdef const double* p = rows_from(psi, plan.cells[s])
    cdef const double* G = &log_G[0, 0] - plan.step_states[0] * L
    cdef const double* A
    go_to_sequence(&chain, &whole, s)
    with nogil:
        for k in range(L):
            log_p[k] = log_alpha[e - 1, k] + chain.end[k]
        while True:
            y = draw(log_p, uniforms[drawn], L)
            drawn += 1
            stop = e
            # The group in which the segment that ends here started, and then its start.
            v1 = plan.step_states[e - 1]
            step_factors(&plan, e, p, y, width, opened, closed)
            for v in range(v1, plan.step_states[e]):
                log_p[v - v1] = G[v * L + y] + closed[v - v1]
            v = v1 + draw(log_p, uniforms[drawn], plan.step_states[e] - v1)
            drawn += 1
            while True:
                # One choice more, the last: it starts at this step.
                v1 = plan.step_states[e - 2] if e > 1 else plan.step_states[e - 1]
                k = plan.step_states[e - 1] - v1
                for w in range(v1, plan.step_states[e - 1]):
                    log_p[w - v1] = -INFINITY
                    if plan.target[w] == v and may_go_on(&plan, w, y, width):
                        log_p[w - v1] = G[w * L + y]
                log_p[k] = -INFINITY
                if v == plan.entry[e - 1]:
                    log_p[k] = entering(&chain, &log_alpha[0, 0], e, y)
                w = draw(log_p, uniforms[drawn], k + 1)
                drawn += 1
                if w == k:
                    break
                v = v1 + w
                e -= 1
            segments[count, 0], segments[count, 1], segments[count, 2] = e - 1, stop, y
            count += 1
            if e == 1:
                break
            e -= 1
            A = matrix_at(p, chain.of_row, e)
            for k in range(L):
                log_p[k] = log_alpha[e - 1, k] + A[k * width + y]
    return count

"""Dynamic programs over segmentations, in scaled arithmetic and in the log domain.

Conventions, once for the whole file
------------------------------------
A segment [s, e) starts at boundary s and ends at boundary e of a sequence of n steps. *Cells* are
the distinct (kind, start, stop) of a sequence's potentials, sorted by stop, then by falling start:
those that stop at e are what step e reads. `_segment_plan.pyx` arranges the rest, once a data set:

    visit       one group of starts at one step; those of step e are step_visits[e - 1] up to
                step_visits[e], from the newest start to the oldest
    entry[e-1]  the visit of step e whose group start e - 1 is in
    G_v(y)      mass of the segments of label y that started in the group and have not ended before
                e, with all factors that they have got by then
    target[v]   the visit of the next step into which group v goes; -1: none
    mask[v]     row of `masks` that takes out labels whose longest length is reached; 0: none

Every row has `width` numbers: L labels, then padding up to a whole number of lanes. Padding is 0 in
E and in the start factors (-inf in scores), so nothing ever comes from there.

The recursion (Sarawagi 2006, Equation 5, with any number of groups instead of one)

    alpha^_s    = start                         if s = 0, else alpha_s E
    pre_v       = sum of G_u over target[u] = v, and of alpha^_{e-1} if v = entry[e-1]
    G_v         = pre_v * open_v                open_v: cells that stop at e, open at the end
    alpha_e     = sum_v G_v * closed_v          closed_v: cells that stop at e, closed at the end

and cells with an open start are multiplied up from the newest group to the oldest, once each.
Its derivatives, backwards, are beta and all marginals: nothing is divided, so nothing cancels.

Scaled arithmetic: when it is exact
-----------------------------------
When the mass of a step leaves [2^-100, 2^100], the next step multiplies all by a power of two,
which rounds nothing. All terms are non-negative and are only added and multiplied: if no operation
underflows or overflows, every result has a relative error below the number of operations that led
to it, times 1e-16. The processor remembers whether one did (the flags of IEEE 754, §7): they are
cleared before and looked at after each sequence.

If one is set, it is most often for a group of starts that is kept apart for many steps and whose
labels fall behind, step by step. Then the sequence is done again, and an entry of `pre` below
2^-600 becomes 0 where another group has at least 2^-300 for the same label. From there on the two
have the same futures, and the same factors but for cells that both start before this step and stop
in it or later; if their scores sum up to at most REACH in magnitude, what is dropped is at most
2^-300 exp(REACH) = 1e-25 of what is kept (labels of a longest length above 1 have
other futures, and are left alone). If a flag is set again, or REACH is exceeded, or exp of a score
is not a normal number, the sequence is done in the log domain.
"""

from libc.math cimport INFINITY, exp, fabs, frexp, ldexp, log, log1p
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from sklseq.inference.kernels._recursions cimport block_of_product, sklseq_one_row_at_a_time
from sklseq.inference.kernels._scaled cimport (
    FE_INVALID, FE_OVERFLOW, FE_UNDERFLOW, exponentiate, feclearexcept, fetestexcept, in_range,
    log_of_power, sum_of_rows,
)
from sklseq.inference.kernels._visit_rows cimport (
    ENDS, GOES_ON, MASKED, MINE, NEW, sklseq_backward_run, sklseq_backward_visit,
    sklseq_forward_run, sklseq_forward_visit, sklseq_times_row,
)
from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes


cdef double DROPPED = 2.0 ** -600, KEPT = 2.0 ** -300
REACH = 150.0


cdef struct Plan:
    # Of one sequence: pointers to its first step, visit; cells and visits are numbered from there.
    Py_ssize_t n                     # steps
    const long long* step_visits     # (n + 1,)
    const long long* first_cell      # (n_visits,)  cells of a visit: first_cell[v] to last_cell[v]
    const long long* last_cell
    const long long* target
    const int* mask
    const signed char* kind          # (n_cells,)
    const long long* entry           # (n,)
    const int* run                   # see `find_runs`


cdef inline bint one_exact(const Plan* plan, Py_ssize_t v) noexcept nogil:
    # Whether a visit has one cell, of kind 0: nearly all have, with features of whole segments.
    return (
        plan.last_cell[v] - plan.first_cell[v] == 1 and plan.kind[plan.first_cell[v]] == 0
    )


cdef inline int own_factors(
    Plan* plan, Py_ssize_t v, const double* F, double* product, double** own, Py_ssize_t width
) noexcept nogil:
    # Factors of this group's starts alone, own[0] open at the end, own[1] closed: a cell, or the
    # product of several in `product`. Returns which there are, in bits; 4 and 8 mark products.
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


cdef inline int way_on(
    Plan* plan, Py_ssize_t v, Py_ssize_t e, int has
) noexcept nogil:
    # Adds what else there is at a visit of step e.
    has &= MINE | ENDS
    if v == plan.entry[e - 1]:
        has |= NEW
    if plan.target[v] >= 0:
        has |= GOES_ON
        if plan.mask[v]:
            has |= MASKED
    return has


cdef inline double forward_step(
    lanes* tag, Plan* plan, Py_ssize_t e, const double* F, const double* E, const double* start,
    const double* masks, double factor, double* G, double* alpha, double* entering,
    double* scratch, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # G, alpha and alpha^ of step e; G of its targets is added up. Returns the mass of the step.
    cdef Py_ssize_t B = n_lanes(tag), block, k, v = plan.step_visits[e - 1], c
    cdef int has
    cdef double acc[8]
    cdef double* own[2]
    cdef double* opened = scratch
    cdef double* closed = opened + width
    cdef double* mass = closed + width
    cdef double* product = mass + width
    cdef double* a = alpha + (e - 1) * width
    if e == 1:
        memcpy(entering, start, width * sizeof(double))
    else:
        for block in range(width // B):
            block_of_product(tag, alpha + (e - 2) * width, 1, E + block * B, L, width, acc)
            for k in range(B):
                entering[block * B + k] = acc[k]
            sklseq_one_row_at_a_time()       # stored whole: the product keeps its lanes
    for k in range(width):
        opened[k] = factor
        closed[k] = 1
        mass[k] = 0
        a[k] = 0
    while v < plan.step_visits[e]:
        if plan.run[v] > 0:
            sklseq_forward_run(
                plan.run[v], width, G + v * width, opened, closed, F + plan.first_cell[v] * width,
                G + plan.target[v] * width, a, mass
            )
            v += plan.run[v]
            continue
        if not one_exact(plan, v):
            for c in range(plan.first_cell[v], plan.last_cell[v]):
                if plan.kind[c] >= 2:
                    sklseq_times_row(
                        width, opened if plan.kind[c] == 3 else closed, F + c * width
                    )
        has = way_on(plan, v, e, own_factors(plan, v, F, product, own, width))
        sklseq_forward_visit(
            has, width, G + v * width, entering, opened, own[0], closed, own[1],
            masks + plan.mask[v] * width, G + plan.target[v] * width, a, mass
        )
        v += 1
    return sum_of_rows(tag, a, mass, width)


cdef void drop_what_fell_behind(
    double* G, Py_ssize_t n, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
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
    lanes* tag, Plan* plan, const double* F, const double* E, const double* start,
    const double* end, const double* masks, double* G, double* alpha, double* factor,
    double* u, double* scratch, bint drop, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # Scaled forward pass; returns log Z, -inf if there is no mass.
    cdef Py_ssize_t e, j
    cdef int power = 0, shifted = 0
    cdef double total = 0, scale = 1
    e = plan.step_visits[0]
    memset(G + e * width, 0, (plan.step_visits[plan.n] - e) * width * sizeof(double))
    for e in range(1, plan.n + 1):
        factor[e - 1] = scale
        if drop:
            drop_what_fell_behind(G + plan.step_visits[e - 1] * width,
                                  plan.step_visits[e] - plan.step_visits[e - 1], L, width)
        total = forward_step(tag, plan, e, F, E, start, masks, scale, G, alpha,
                             u + (e - 1) * width, scratch, L, width)
        scale = 1
        # Numbers that underflow are slow: no need to go on.
        if e % 16 == 0 and fetestexcept(FE_UNDERFLOW):
            return -INFINITY
        if not in_range(total):
            if not 0 < total < INFINITY:
                return -INFINITY
            frexp(total, &power)
            scale = ldexp(1.0, -power)
            if e < plan.n:
                shifted += power
    total = 0
    for j in range(L):
        total += alpha[(plan.n - 1) * width + j] * end[j]
    return log(total) + log_of_power(shifted) if total > 0 else -INFINITY


cdef inline void backward_step(
    Plan* plan, Py_ssize_t e, double* F, const double* masks, double factor, double* G,
    const double* beta, double* tokens, double* u, double* scratch, Py_ssize_t most,
    Py_ssize_t width
) noexcept nogil:
    # G becomes the derivative by pre, u that by alpha^, F the marginals of the cells of step e.
    # tokens: probability of each label between boundaries e - 1 and e.
    cdef Py_ssize_t k, v, c, n, v0 = plan.step_visits[e - 1], v1 = plan.step_visits[e]
    cdef Py_ssize_t size = width * sizeof(double)
    cdef int has, kind
    cdef double* own[2]
    cdef double* sum_ending = scratch
    cdef double* product = sum_ending + width
    cdef double* rows = product + 2 * width
    cdef double** opened = <double**> (rows + 2 * (most + 1) * width)
    cdef double** closed = opened + most
    cdef double* on = rows
    cdef double* off = rows + width
    for k in range(width):
        on[k] = factor
        tokens[k] = sum_ending[k] = 0
    memcpy(off, beta, size)
    rows += 2 * width
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
                memcpy(rows, on if kind else off, size)
                own[kind] = rows
                rows += width
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
        sklseq_backward_visit(
            way_on(plan, v, e, has), width, G + v * width, u, opened[v - v0], own[0],
            closed[v - v0], own[1], masks + plan.mask[v] * width, G + plan.target[v] * width,
            tokens, sum_ending
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
    lanes* tag, Plan* plan, double* F, const double* Et, const double* start,
    const double* end, const double* masks, double* G, const double* alpha, const double* factor,
    double* u, double* tokens, double* beta, double* scratch, Py_ssize_t most,
    Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # beta_e(i) = sum_j E(i, j) u_{e+1}(j), u_e: derivative of log Z by alpha^_{e-1}
    cdef Py_ssize_t B = n_lanes(tag), e, j, k, block
    cdef double total = 0
    cdef double acc[8]
    for j in range(L):
        total += alpha[(plan.n - 1) * width + j] * end[j]
    for j in range(width):
        beta[j] = end[j] / total
    for e in range(plan.n, 0, -1):
        backward_step(plan, e, F, masks, factor[e - 1], G, beta, tokens + (e - 1) * width,
                      u + (e - 1) * width, scratch, most, width)
        if e == 1:
            return
        for block in range(width // B):
            block_of_product(tag, u + (e - 1) * width, 1, Et + block * B, L, width, acc)
            for k in range(B):
                beta[block * B + k] = acc[k]
            sklseq_one_row_at_a_time()
        for j in range(width):
            if not alpha[(e - 2) * width + j] > 0:
                beta[j] = 0


cdef inline bint add_pairs(
    lanes* tag, Py_ssize_t n, const double* alpha, const double* u, const double* start,
    const double* end, double weight, double* scratch, double* pairwise, double* ends,
    Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # pairwise(i, j) += weight * sum_e alpha_e(i) u_{e+1}(j), to be multiplied by E; the first label
    # into ends[0], the last into ends[1]. False, and nothing added, if a product overflows.
    cdef Py_ssize_t B = n_lanes(tag), block, i, k
    cdef double acc[8]
    cdef double total = 0
    if n > 1:
        for block in range(width // B):
            for i in range(L):
                block_of_product(tag, alpha + i, width, u + width + block * B, n - 1, width, acc)
                for k in range(B):
                    scratch[i * width + block * B + k] = acc[k]
        if fetestexcept(FE_OVERFLOW | FE_INVALID):
            return False
        for k in range(L * width):
            pairwise[k] += weight * scratch[k]
    for k in range(L):
        total += alpha[(n - 1) * width + k] * end[k]
    for k in range(L):
        ends[k] += weight * start[k] * u[k]
        ends[width + k] += weight * alpha[(n - 1) * width + k] * end[k] / total
    return True


cdef Py_ssize_t most_visits(const long long[::1] step_visits) noexcept nogil:
    cdef Py_ssize_t e, most = 1
    for e in range(1, step_visits.shape[0]):
        most = max(most, step_visits[e] - step_visits[e - 1])
    return most


cdef inline double one_sequence(
    lanes* tag, Plan* plan, double* F, const double* E, const double* Et, const double* start,
    const double* end, const double* masks, double weight, double* G, double* alpha,
    double* factor, double* u, double* tokens, double* scratch, double* pairwise, double* ends,
    bint only_log_z, bint drop, Py_ssize_t most, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # log Z, or NaN if the flags say that scaled arithmetic was not exact.
    cdef double log_z, redo = log(-1.0)
    cdef int bad = FE_UNDERFLOW | FE_OVERFLOW | FE_INVALID
    feclearexcept(bad)
    log_z = forward(tag, plan, F, E, start, end, masks, G, alpha, factor, u, scratch,
                    drop, L, width)
    if fetestexcept(bad):
        return redo
    if only_log_z or log_z == -INFINITY:
        return log_z
    backward(tag, plan, F, Et, start, end, masks, G, alpha, factor, u, tokens, scratch,
             scratch + width, most, L, width)
    if fetestexcept(bad):
        return redo
    if not add_pairs(tag, plan.n, alpha, u, start, end, weight, scratch, pairwise, ends, L, width):
        return redo
    return log_z


cdef void _forward_backward(
    lanes* tag, const double[:, ::1] psi, double[:, ::1] F, const long long[::1] cells,
    const long long[::1] steps, const long long[::1] step_visits,
    const long long[::1] first_cell, const long long[::1] last_cell, const long long[::1] target,
    const int[::1] mask, const signed char[::1] kind, const long long[::1] entry,
    const int[::1] run, const double[:, ::1] masks,
    const double[:, ::1] E, const double[:, ::1] Et, const double[:, ::1] boundary,
    const double[::1] weights, double[:, ::1] G, double[:, ::1] alpha, double[::1] factor,
    double[:, ::1] u, double[:, ::1] tokens, double* scratch, double[::1] log_z,
    double[:, ::1] pairwise, double[:, ::1] ends, bint only_log_z, bint drop, Py_ssize_t most,
    Py_ssize_t L
) noexcept nogil:
    cdef Py_ssize_t s, r, width = E.shape[1]
    cdef double* f = NULL
    cdef Plan plan
    for s in range(steps.shape[0] - 1):
        r = steps[s] - steps[0]
        log_z[s] = 0
        if steps[s + 1] == steps[s]:
            continue
        # Visits and cells are numbered in the whole set: pointers are moved to fit.
        fill_plan(&plan, steps[s + 1] - steps[s], &step_visits[steps[s]], first_cell, last_cell,
                  target, mask, kind, &entry[steps[s]])
        plan.run = &run[0]
        if F.shape[0]:
            f = &F[0, 0] - cells[0] * width
            if not exponentiate(&psi[0, 0] + (cells[s] - cells[0]) * width,
                                f + cells[s] * width, (cells[s + 1] - cells[s]) * width):
                log_z[s] = log(-1.0)
                continue
        log_z[s] = one_sequence(
            tag, &plan, f, &E[0, 0], &Et[0, 0], &boundary[0, 0], &boundary[1, 0], &masks[0, 0],
            weights[s], &G[0, 0] - plan.step_visits[0] * width, &alpha[r, 0], &factor[r],
            &u[r, 0], &tokens[r, 0], scratch, &pairwise[0, 0], &ends[0, 0], only_log_z, drop,
            most, L, width
        )


cdef inline void fill_plan(
    Plan* plan, Py_ssize_t n, const long long* step_visits, const long long[::1] first_cell,
    const long long[::1] last_cell, const long long[::1] target, const int[::1] mask,
    const signed char[::1] kind, const long long* entry
) noexcept nogil:
    plan.n = n
    plan.step_visits = step_visits
    plan.first_cell = &first_cell[0]
    plan.last_cell = &last_cell[0]
    plan.target = &target[0]
    plan.mask = &mask[0]
    plan.entry = entry
    plan.kind = NULL
    if kind.shape[0]:
        plan.kind = &kind[0]


def largest_reach(
    const double[:, ::1] psi,        # (n_cells, width)
    const long long[::1] start,      # (n_cells,)
    const long long[::1] stop,
    double[::1] change,              # (n_steps + 1,)   IN zeros, scratch
):
    """The largest sum of magnitudes of cells around one boundary; not finite if one is not."""
    cdef Py_ssize_t c, j
    cdef double size, total = 0, most = 0
    cdef bint finite = True
    with nogil:
        for c in range(psi.shape[0]):
            if stop[c] - start[c] > 1:
                size = 0
                for j in range(psi.shape[1]):
                    size = max(size, fabs(psi[c, j]))
                finite &= size < INFINITY
                change[start[c] + 1] += size
                change[stop[c]] -= size
        for c in range(change.shape[0]):
            total += change[c]
            most = max(most, total)
    return most if finite else INFINITY


def forward_backward_scaled(
    const double[:, ::1] psi,        # (n_cells, width)  scores of the cells of these sequences
    double[:, ::1] F,                # (n_cells, width)  OUT marginals
    const long long[::1] cells,      # (n_sequences + 1,)  cells and steps, numbered in the set
    const long long[::1] steps,
    const long long[::1] step_visits,
    const long long[::1] first_cell,
    const long long[::1] last_cell,
    const long long[::1] target,
    const int[::1] mask,
    const signed char[::1] kind,
    const long long[::1] entry,
    const int[::1] run,
    const double[:, ::1] masks,      # (n_masks, width)
    const double[:, ::1] E,          # (width, width)    exp of transition scores
    const double[:, ::1] Et,
    const double[:, ::1] boundary,   # (2, width)        exp of start and end scores
    const double[::1] weights,       # (n_sequences,)    of the sequences in pairwise and ends
    double[:, ::1] G,                # (visits of the largest sequence, width)  scratch
    double[:, ::1] alpha,            # (n_steps, width)  scratch, like factor and u
    double[::1] factor,
    double[:, ::1] u,
    double[:, ::1] tokens,           # (n_steps, width)  OUT  marginals of labels at steps
    Py_ssize_t most,                 # visits of a step, at most
    double[::1] log_z,               # (n_sequences,)    OUT  NaN: to be done in the log domain
    double[:, ::1] pairwise,         # (width, width)    IN/OUT, E left out
    double[:, ::1] ends,             # (2, width)        IN/OUT
    bint only_log_z,
    bint drop,                       # 2^-600 beside 2^-300 is 0, see the module's notes
    bint is_normal,                  # whether E and boundary are normal numbers, or real zeros
    Py_ssize_t L,
):
    """Scaled forward-backward over segmentations. A sequence marked NaN leaves no other trace."""
    cdef Py_ssize_t width = E.shape[1], s
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef double* scratch
    if steps[steps.shape[0] - 1] == steps[0]:
        log_z[:] = 0
        return
    if not is_normal:
        for s in range(log_z.shape[0]):
            log_z[s] = log(-1.0) if steps[s + 1] > steps[s] else 0
        return
    # Rows of forward_step and backward_step, with pointers to some; or pair marginals.
    s = max((8 + 2 * most) * width + 2 * most, width * width)
    scratch = <double*> malloc((width + s) * sizeof(double))
    if scratch == NULL:
        raise MemoryError()
    with nogil:
        if width == 2:
            _forward_backward(&two, psi, F, cells, steps, step_visits, first_cell, last_cell,
                              target, mask, kind, entry, run, masks, E, Et, boundary, weights, G,
                              alpha, factor, u, tokens, scratch, log_z, pairwise, ends, only_log_z,
                              drop, most, L)
        elif width == 4:
            _forward_backward(&four, psi, F, cells, steps, step_visits, first_cell, last_cell,
                              target, mask, kind, entry, run, masks, E, Et, boundary, weights, G,
                              alpha, factor, u, tokens, scratch, log_z, pairwise, ends, only_log_z,
                              drop, most, L)
        else:
            _forward_backward(&eight, psi, F, cells, steps, step_visits, first_cell, last_cell,
                              target, mask, kind, entry, run, masks, E, Et, boundary, weights, G,
                              alpha, factor, u, tokens, scratch, log_z, pairwise, ends, only_log_z,
                              drop, most, L)
        free(scratch)


# ---------------------------------------------------------------- the log domain


cdef inline double log_add(double a, double b) noexcept nogil:
    if a < b:
        a, b = b, a
    return a + log1p(exp(b - a)) if b > -INFINITY else a


cdef double log_sum(
    const double* x, const double* y, Py_ssize_t stride, Py_ssize_t n
) noexcept nogil:
    # log sum_k exp(x(k) + y(k * stride))
    cdef Py_ssize_t k
    cdef double top = -INFINITY, total = 0
    for k in range(n):
        top = max(top, x[k] + y[k * stride])
    if top == -INFINITY:
        return top
    for k in range(n):
        total += exp(x[k] + y[k * stride] - top)
    return top + log(total)


cdef void step_factors(
    Plan* plan, Py_ssize_t e, Py_ssize_t c0, const double* psi, Py_ssize_t y, Py_ssize_t width,
    double* opened, double* closed
) noexcept nogil:
    # Log factors of the visits of step e for label y: on the way on, and at an end here.
    cdef Py_ssize_t v, c, v0 = plan.step_visits[e - 1]
    cdef double all_open = 0, all_closed = 0, mine, ends, x
    for v in range(v0, plan.step_visits[e]):
        mine = ends = 0
        for c in range(plan.first_cell[v], plan.last_cell[v]):
            x = psi[(c - c0) * width + y]
            if plan.kind[c] == 3:
                all_open += x
            elif plan.kind[c] == 2:
                all_closed += x
            elif plan.kind[c] == 1:
                mine += x
            else:
                ends += x
        opened[v - v0] = all_open + mine
        closed[v - v0] = all_closed + ends


def forward_log(
    const double[:, ::1] psi,        # (n_cells, width)  of one sequence
    Py_ssize_t first_of_cells,       # its first cell
    const long long[::1] step_visits,  # (n + 1,)
    const long long[::1] first_cell,
    const long long[::1] last_cell,
    const long long[::1] target,
    const int[::1] mask,
    const signed char[::1] kind,
    const long long[::1] entry,
    const double[:, ::1] masks,      # (n_masks, width)
    const double[:, ::1] score,      # (width, width)
    const double[:, ::1] boundary,   # (2, width)        start and end scores
    double[:, ::1] log_G,            # (n_visits, L)     OUT
    double[:, ::1] log_alpha,        # (n, L)            OUT
    Py_ssize_t most,
):
    """log G and log alpha of one sequence; returns log Z, -inf if nothing is allowed."""
    cdef Py_ssize_t L = log_alpha.shape[1], n = log_alpha.shape[0], width = score.shape[1]
    cdef Py_ssize_t e, v, y, t, v0 = step_visits[0], v1
    cdef double* scratch = <double*> malloc(2 * most * sizeof(double))
    cdef const double* p = NULL
    cdef double g
    cdef Plan plan
    if scratch == NULL:
        raise MemoryError()
    with nogil:
        fill_plan(&plan, n, &step_visits[0], first_cell, last_cell, target, mask, kind, &entry[0])
        if psi.shape[0]:
            p = &psi[0, 0]
        log_G[:, :] = -INFINITY
        log_alpha[:, :] = -INFINITY
        for e in range(1, n + 1):
            v1 = step_visits[e - 1]
            for y in range(L):
                g = boundary[0, y] if e == 1 else log_sum(
                    &log_alpha[e - 2, 0], &score[0, y], width, L
                )
                v = entry[e - 1] - v0
                log_G[v, y] = log_add(log_G[v, y], g)
                step_factors(&plan, e, first_of_cells, p, y, width, scratch, scratch + most)
                for v in range(v1, step_visits[e]):
                    g = log_G[v - v0, y] + scratch[v - v1]
                    log_G[v - v0, y] = g
                    log_alpha[e - 1, y] = log_add(log_alpha[e - 1, y], g + scratch[most + v - v1])
                    t = target[v]
                    if t >= 0 and masks[mask[v], y] > 0:
                        log_G[t - v0, y] = log_add(log_G[t - v0, y], g)
        free(scratch)
    return log_sum(&log_alpha[n - 1, 0], &boundary[1, 0], 1, L)


def backward_log(
    const double[:, ::1] psi,
    Py_ssize_t first_of_cells,
    const long long[::1] step_visits,
    const long long[::1] first_cell,
    const long long[::1] last_cell,
    const long long[::1] target,
    const int[::1] mask,
    const signed char[::1] kind,
    const long long[::1] entry,
    const double[:, ::1] masks,
    const double[:, ::1] score,
    const double[:, ::1] boundary,
    double[:, ::1] log_G,            # (n_visits, L)     IN as forward_log left it, OUT derivatives
    const double[:, ::1] log_alpha,  # (n, L)
    double log_z,
    double weight,
    double[:, ::1] F,                # (n_cells, width)  OUT marginals
    double[:, ::1] tokens,           # (n, width)        OUT
    double[:, ::1] pairwise,         # (width, width)    IN/OUT += weight * expected transitions
    double[:, ::1] ends,             # (2, width)        IN/OUT
    Py_ssize_t most,
):
    """Marginals of one sequence, all sums in the log domain."""
    cdef Py_ssize_t L = log_alpha.shape[1], n = log_alpha.shape[0], width = score.shape[1]
    cdef Py_ssize_t e, v, y, i, c, t, v0 = step_visits[0], v1
    cdef double* scratch = <double*> malloc((2 * most + 2 * L) * sizeof(double))
    cdef double* beta
    cdef double* u
    cdef const double* p = NULL
    cdef double ahead, going, ending, sum_going, sum_ending, total
    cdef Plan plan
    if scratch == NULL:
        raise MemoryError()
    beta = scratch + 2 * most
    u = beta + L
    with nogil:
        fill_plan(&plan, n, &step_visits[0], first_cell, last_cell, target, mask, kind, &entry[0])
        if psi.shape[0]:
            p = &psi[0, 0]
        for y in range(L):
            beta[y] = boundary[1, y] - log_z
            ends[1, y] += weight * exp(log_alpha[n - 1, y] + beta[y])
        for e in range(n, 0, -1):
            v1 = step_visits[e - 1]
            total = 0
            for y in range(L):
                step_factors(&plan, e, first_of_cells, p, y, width, scratch, scratch + most)
                sum_going = sum_ending = 0
                for v in range(step_visits[e] - 1, v1 - 1, -1):
                    ending = scratch[most + v - v1] + beta[y]
                    t = target[v]
                    ahead = ending
                    if t >= 0 and masks[mask[v], y] > 0:
                        ahead = log_add(ahead, log_G[t - v0, y])
                    going = exp(log_G[v - v0, y] + ahead)
                    ending = exp(log_G[v - v0, y] + ending)
                    sum_going += going
                    sum_ending += ending
                    log_G[v - v0, y] = scratch[v - v1] + ahead
                    for c in range(first_cell[v], last_cell[v]):
                        F[c - first_of_cells, y] = (
                            sum_going if kind[c] == 3 else sum_ending if kind[c] == 2
                            else going if kind[c] == 1 else ending
                        )
                tokens[e - 1, y] = sum_going
                total += sum_going
            # Each step is normalised by its own sum: what large scores lost to rounding before and
            # after is common to all that passes here, and cancels.
            for y in range(L):
                tokens[e - 1, y] /= total
                for c in range(first_cell[v1], last_cell[step_visits[e] - 1]):
                    F[c - first_of_cells, y] /= total
                for v in range(v1, step_visits[e]):
                    log_G[v - v0, y] -= log(total)
                u[y] = log_G[entry[e - 1] - v0, y]
            if e == 1:
                for y in range(L):
                    ends[0, y] += weight * exp(boundary[0, y] + u[y])
                break
            for i in range(L):
                for y in range(L):
                    pairwise[i, y] += weight * exp(log_alpha[e - 2, i] + score[i, y] + u[y])
                beta[i] = log_sum(u, &score[i, 0], 1, L)
        free(scratch)


# ---------------------------------------------------------------- sampling


cdef Py_ssize_t draw(const double* log_p, double uniform, Py_ssize_t n) noexcept nogil:
    # The first k at which the cumulated exp(log_p) exceeds uniform times their sum.
    cdef Py_ssize_t k, last = 0
    cdef double top = -INFINITY, total = 0, target
    for k in range(n):
        top = max(top, log_p[k])
    for k in range(n):
        total += exp(log_p[k] - top)
    target = uniform * total
    total = 0
    for k in range(n):
        if log_p[k] > -INFINITY:
            total += exp(log_p[k] - top)
            last = k
            if total > target:
                return k
    return last


def sample_log(
    const double[:, ::1] psi,
    Py_ssize_t first_of_cells,
    const long long[::1] step_visits,
    const long long[::1] first_cell,
    const long long[::1] last_cell,
    const long long[::1] target,
    const int[::1] mask,
    const signed char[::1] kind,
    const long long[::1] entry,
    const double[:, ::1] masks,
    const double[:, ::1] score,
    const double[:, ::1] boundary,
    const double[:, ::1] log_G,
    const double[:, ::1] log_alpha,
    const double[::1] uniforms,      # (3 n + 1,) or more, in [0, 1)
    long long[:, ::1] segments,      # (n, 3)  OUT  start, stop, label, last segment first
    Py_ssize_t most,
):
    """Draw one segmentation from the last segment backwards; returns its number of segments."""
    cdef Py_ssize_t L = log_alpha.shape[1], n = log_alpha.shape[0], width = score.shape[1]
    cdef Py_ssize_t e = n, stop, v, y, k, v0 = step_visits[0], v1, count = 0, drawn = 0, w
    cdef double* scratch = <double*> malloc((2 * most + L) * sizeof(double))
    cdef double* log_p
    cdef const double* p = NULL
    cdef Plan plan
    if scratch == NULL:
        raise MemoryError()
    log_p = <double*> malloc((most + L + 1) * sizeof(double))
    if log_p == NULL:
        free(scratch)
        raise MemoryError()
    with nogil:
        fill_plan(&plan, n, &step_visits[0], first_cell, last_cell, target, mask, kind, &entry[0])
        if psi.shape[0]:
            p = &psi[0, 0]
        for k in range(L):
            log_p[k] = log_alpha[n - 1, k] + boundary[1, k]
        y = draw(log_p, uniforms[drawn], L)
        drawn += 1
        while True:
            stop = e
            # In which group did the segment that ends here start? Then follow it back.
            v1 = step_visits[e - 1]
            step_factors(&plan, e, first_of_cells, p, y, width, scratch, scratch + most)
            for v in range(v1, step_visits[e]):
                log_p[v - v1] = log_G[v - v0, y] + scratch[most + v - v1]
            v = v1 + draw(log_p, uniforms[drawn], step_visits[e] - v1)
            drawn += 1
            while True:
                # One more choice, the last: it starts at this step.
                v1 = step_visits[e - 2] if e > 1 else step_visits[e - 1]
                k = step_visits[e - 1] - v1
                for w in range(v1, step_visits[e - 1]):
                    log_p[w - v1] = -INFINITY
                    if target[w] == v and masks[mask[w], y] > 0:
                        log_p[w - v1] = log_G[w - v0, y]
                log_p[k] = -INFINITY
                if v == entry[e - 1]:
                    log_p[k] = boundary[0, y] if e == 1 else log_sum(
                        &log_alpha[e - 2, 0], &score[0, y], width, L
                    )
                w = draw(log_p, uniforms[drawn], k + 1)
                drawn += 1
                if w == k:
                    break
                v = v1 + w
                e -= 1
            segments[count, 0] = e - 1
            segments[count, 1] = stop
            segments[count, 2] = y
            count += 1
            if e == 1:
                break
            e -= 1
            for k in range(L):
                log_p[k] = log_alpha[e - 1, k] + score[k, y]
            y = draw(log_p, uniforms[drawn], L)
            drawn += 1
        free(scratch)
        free(log_p)
    return count

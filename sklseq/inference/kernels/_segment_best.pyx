"""Best segmentations: max-plus recursions over the states of `_segment_plan.pyx`.

Notation of `_segments.pyx`, in scores: G_v(y) is the best score of a prefix whose last segment, of
label y, started in group v and has not ended; alpha_e(y) that of one whose last segment ends at e.
Among equal scores a later start wins, then the lowest label before it.
"""

from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc

import numpy as np

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference.kernels._blocks cimport block_of_maxima, first_argmax
from sklseq.inference.kernels._row_matrices cimport RowMatrices, column_at, matrix_at
from sklseq.inference.kernels._scaled cimport known_width
from sklseq.inference.kernels._segment_structs cimport (
    Chain, Plan, go_to_sequence, plan_of_sequence, read_plan, read_scores, rows_from, step_factors,
)


cdef struct Prefixes:
    const double* psi                # (n_cells, width)
    double* G                        # (n_states, width)
    double* origin                   # (n_states, width)  the start that gives G
    double* alpha                    # (n, width)
    double* best_start               # (n, width)         the start that gives alpha
    double* top                      # (n,)               subtracted from the scores of each step


cdef inline void keep_larger(
    Py_ssize_t B, const double* value, const double* origin, double* best, double* best_origin
) noexcept nogil:
    cdef Py_ssize_t k
    cdef bint better
    for k in range(B):
        better = (value[k] > best[k]) | ((value[k] == best[k]) & (origin[k] > best_origin[k]))
        best[k] = value[k] if better else best[k]
        best_origin[k] = origin[k] if better else best_origin[k]


cdef void best_prefixes(
    lanes* tag, const Plan* plan, const Chain* chain, const Prefixes* rows
) noexcept nogil:
    # Compute alpha and its best starts. The largest score of each step, `top`, is subtracted from
    # its scores, so that long sequences lose no digits.
    cdef Py_ssize_t B = n_lanes(tag), width = known_width(tag, chain.width), e, block, j, k, v, c
    cdef double opened[8]
    cdef double closed[8]
    cdef double mine[8]
    cdef double ends[8]
    cdef double g[8]
    cdef double o[8]
    cdef double shift = 0
    cdef const double* psi
    cdef double* G = rows.G
    cdef double* origin = rows.origin
    cdef const double* matrix
    cdef double* top = rows.top
    cdef double* alpha
    cdef double* best_start
    cdef double* row
    for v in range(plan.step_states[0] * width, plan.step_states[plan.n] * width):
        G[v] = -INFINITY
        origin[v] = -1
    for e in range(1, plan.n + 1):
        alpha = rows.alpha + (e - 1) * width
        best_start = rows.best_start + (e - 1) * width
        if e == 1:
            for j in range(width):
                alpha[j] = chain.start[j]
        else:
            matrix = matrix_at(alpha, chain.of_row, e - 1)
            for block in range(width // B):
                j = block * B
                block_of_maxima(tag, alpha - width, matrix + j, chain.L, width, alpha + j)
        # Ties go to the later start, so an equal entering score replaces the old one.
        v = plan.entry[e - 1] * width
        row = G + v
        for j in range(width):
            if alpha[j] >= row[j]:
                row[j] = alpha[j]
                origin[v + j] = e - 1
        top[e - 1] = -INFINITY
        for block in range(width // B):
            j = block * B
            for k in range(B):
                opened[k] = -shift
                closed[k] = 0
                alpha[j + k] = -INFINITY
                best_start[j + k] = -1
            for v in range(plan.step_states[e - 1], plan.step_states[e]):
                for k in range(B):
                    mine[k] = 0
                    ends[k] = 0
                for c in range(plan.first_cell[v], plan.last_cell[v]):
                    psi = rows.psi + c * width + j
                    if plan.kind[c] == 3:
                        for k in range(B):
                            opened[k] += psi[k]
                    elif plan.kind[c] == 2:
                        for k in range(B):
                            closed[k] += psi[k]
                    elif plan.kind[c] == 1:
                        for k in range(B):
                            mine[k] += psi[k]
                    else:
                        for k in range(B):
                            ends[k] += psi[k]
                for k in range(B):
                    g[k] = G[v * width + j + k] + (opened[k] + mine[k])
                    o[k] = origin[v * width + j + k]
                for k in range(B):
                    top[e - 1] = max(top[e - 1], g[k])
                for k in range(B):
                    ends[k] += g[k] + closed[k]
                keep_larger(B, ends, o, alpha + j, best_start + j)
                if plan.target[v] >= 0:
                    for k in range(B):
                        g[k] += plan.masks[plan.mask[v] * width + j + k]
                    c = plan.target[v] * width + j
                    keep_larger(B, g, o, G + c, origin + c)
            for k in range(B):
                top[e - 1] = max(top[e - 1], alpha[j + k])
        shift = top[e - 1] if top[e - 1] > -INFINITY else 0


cdef double trace_back(
    const Plan* plan, const Chain* chain, const Prefixes* rows, long long* segments,
    long long* count
) noexcept nogil:
    # The best segmentation, last segment first; its score, or -inf if there is none.
    cdef Py_ssize_t e = plan.n, j, width = chain.width
    cdef const double* alpha = rows.alpha + (e - 1) * width
    cdef double total
    count[0] = 0
    j = first_argmax(alpha, chain.end, chain.L)
    total = alpha[j] + chain.end[j]
    if total == -INFINITY:
        return total
    for e in range(plan.n - 1):
        total += rows.top[e]
    e = plan.n
    while True:
        segments[1], segments[2] = e, j
        e = <Py_ssize_t> rows.best_start[(e - 1) * width + j]
        segments[0] = e
        segments += 3
        count[0] += 1
        if e == 0:
            return total
        alpha = rows.alpha + (e - 1) * width
        j = first_argmax(alpha, column_at(alpha, chain.of_row_t, e, j), chain.L)


def viterbi(object segment_plan, object transitions, const double[:, ::1] psi, object work):
    """Best segmentations of the sequences of a PrefixWorkspace, from the scores of their cells.

    Each is written to ``found`` from its first step on, last segment first; ``counts`` holds the
    numbers of segments, ``scores`` -inf where nothing is allowed.
    """
    cdef Plan plan = read_plan(segment_plan, segment_plan.log_masks), one
    cdef RowMatrices of_rows[2]
    cdef object entries = transitions.entries_of_scores()
    cdef Chain chain = read_scores(transitions, entries, of_rows)
    cdef double[:, ::1] G = work.G, origin = work.origin, alpha = work.alpha
    cdef double[:, ::1] best_start = work.best_start
    cdef double[::1] top = work.top, scores = work.scores
    cdef long long[:, ::1] found = work.found
    cdef long long[::1] counts = work.counts
    cdef Py_ssize_t s, a = work.a, v0
    cdef Prefixes rows
    rows.psi = rows_from(psi, plan.cells[a])
    rows.alpha, rows.best_start, rows.top = &alpha[0, 0], &best_start[0, 0], &top[0]
    with nogil:
        for s in range(a, a + scores.shape[0]):
            one = plan_of_sequence(&plan, s)
            go_to_sequence(&chain, &plan, s)
            scores[s - a] = counts[s - a] = 0
            if one.n == 0:
                continue
            v0 = one.step_states[0] * chain.width
            rows.G, rows.origin = &G[0, 0] - v0, &origin[0, 0] - v0
            if chain.width == 2:
                best_prefixes(<Lanes2*> NULL, &one, &chain, &rows)
            elif chain.width == 4:
                best_prefixes(<Lanes4*> NULL, &one, &chain, &rows)
            else:
                best_prefixes(<Lanes8*> NULL, &one, &chain, &rows)
            scores[s - a] = trace_back(
                &one, &chain, &rows, &found[plan.steps[s] - plan.steps[a], 0], &counts[s - a]
            )


# ---------------------------------------------------------------- n best


cdef struct Item:
    double score
    long long start                  # of the last segment
    long long rank                   # of its prefix, among those that enter at this start


cdef inline void insert(Item* best, Py_ssize_t n, Item item) noexcept nogil:
    # Into n items sorted by falling score; ties: later start, then lower rank.
    cdef Py_ssize_t k = n - 1
    if item.score == -INFINITY or not before(item, best[k]):
        return
    while k > 0 and before(item, best[k - 1]):
        best[k] = best[k - 1]
        k -= 1
    best[k] = item


cdef inline bint before(Item a, Item b) noexcept nogil:
    if a.score != b.score:
        return a.score > b.score
    if a.start != b.start:
        return a.start > b.start
    return a.rank < b.rank


def nbest_sequence(
    object segment_plan,
    object transitions,
    Py_ssize_t s,
    const double[:, ::1] psi,        # (n_cells, width)  of sequence s
    long long[:, :, ::1] segments,   # (k, n, 3)         OUT  start, stop, label, last first
    long long[::1] counts,           # (k,)              OUT
    double[::1] scores,              # (k,)              OUT
):
    """k best segmentations of one sequence; returns how many there are."""
    cdef Plan whole = read_plan(segment_plan, segment_plan.masks)
    cdef Plan plan = plan_of_sequence(&whole, s)
    cdef RowMatrices of_rows[2]
    cdef object entries = transitions.entries_of_scores()
    cdef Chain chain = read_scores(transitions, entries, of_rows)
    cdef Py_ssize_t n = plan.n, N = scores.shape[0], L = chain.L, width = chain.width, row = L * N
    cdef Py_ssize_t v0 = plan.step_states[0], n_states = plan.step_states[n] - v0
    cdef Py_ssize_t e, v, y, i, k, t, v1, found = 0
    cdef double[::1] scratch = np.empty(2 * plan.most)
    cdef double* opened = &scratch[0]
    cdef double* closed = opened + plan.most
    cdef const double* p = rows_from(psi, plan.cells[s])
    # Items of states; of ends; what enters at each step (start: label, rank: its rank); the best.
    cdef Py_ssize_t size = (n_states + 2 * n) * row + N
    cdef Item* G = <Item*> malloc(size * sizeof(Item))
    cdef Item* alpha = G + n_states * row
    cdef Item* entered = alpha + n * row
    cdef Item* last = entered + n * row
    cdef const double* matrix
    cdef Item item
    if G == NULL:
        raise MemoryError()
    go_to_sequence(&chain, &whole, s)
    with nogil:
        for k in range(size):
            G[k].score, G[k].start, G[k].rank = -INFINITY, -1, 0
        for e in range(n):
            v1 = plan.step_states[e]
            for y in range(L):
                # Prefixes that enter here: (label before, its rank), best first.
                if e == 0:
                    item.score, item.start, item.rank = chain.start[y], 0, 0
                    insert(entered + y * N, N, item)
                else:
                    matrix = matrix_at(p, chain.of_row, e)
                    for i in range(L):
                        for k in range(N):
                            item.score = (
                                alpha[(e - 1) * row + i * N + k].score + matrix[i * width + y]
                            )
                            item.start, item.rank = -i, k
                            insert(entered + e * row + y * N, N, item)
                for k in range(N):
                    item.score = entered[e * row + y * N + k].score
                    item.start, item.rank = e, k
                    insert(G + (plan.entry[e] - v0) * row + y * N, N, item)
                step_factors(&plan, e + 1, p, y, width, opened, closed)
                for v in range(v1, plan.step_states[e + 1]):
                    t = plan.target[v]
                    if t >= 0 and not plan.masks[plan.mask[v] * width + y] > 0:
                        t = -1
                    for k in range(N):
                        item = G[(v - v0) * row + y * N + k]
                        item.score += opened[v - v1]
                        if t >= 0:
                            insert(G + (t - v0) * row + y * N, N, item)
                        item.score += closed[v - v1]
                        insert(alpha + e * row + y * N, N, item)
        for y in range(L):
            for k in range(N):
                item.score = alpha[(n - 1) * row + y * N + k].score + chain.end[y]
                item.start, item.rank = -y, k
                insert(last, N, item)
        for k in range(N):
            if last[k].score == -INFINITY:
                break
            found += 1
            scores[k] = last[k].score
            y, i, e, counts[k] = -last[k].start, last[k].rank, n, 0
            while e > 0:
                item = alpha[(e - 1) * row + y * N + i]
                segments[k, counts[k], 0] = item.start
                segments[k, counts[k], 1], segments[k, counts[k], 2] = e, y
                counts[k] += 1
                e = item.start
                item = entered[e * row + y * N + item.rank]
                y, i = -item.start, item.rank
        free(G)
    return found

"""Best segmentations: max-plus recursions over the visits of `_segment_plan.pyx`.

Notation of `_segments.pyx`, in scores: G_v(y) is the best score of a prefix whose last segment, of
label y, started in group v and has not ended; alpha_e(y) that of one whose last segment ends at e.
Among equal scores a later start wins, then the lowest label before it.
"""

from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference.kernels._recursions cimport sklseq_one_row_at_a_time


cdef inline void enter(
    lanes* tag, const double* alpha, const double* score, double* out, Py_ssize_t L,
    Py_ssize_t width
) noexcept nogil:
    # out(j) = max_i alpha(i) + score(i, j)
    cdef Py_ssize_t B = n_lanes(tag), block, i, j, k
    cdef double best[8]
    cdef double x, v
    for block in range(width // B):
        j = block * B
        for k in range(B):
            best[k] = -INFINITY
        for i in range(L):
            x = alpha[i]
            for k in range(B):
                v = x + score[i * width + j + k]
                best[k] = v if v > best[k] else best[k]
            sklseq_one_row_at_a_time()
        for k in range(B):
            out[j + k] = best[k]


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
    lanes* tag, const double* psi, Py_ssize_t n, const long long* step_visits,
    const long long* first_cell, const long long* last_cell, const long long* target,
    const int* mask, const signed char* kind, const long long* entry, const double* log_masks,
    const double* score, const double* start, double* G, double* origin, double* alpha,
    double* best_start,
    double* top, double* entering, Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # alpha and the starts that give it. Each step is lowered by its largest score, in top, so that
    # long sequences lose no digits. G and origin hold the visits of two steps, one after another.
    cdef Py_ssize_t B = n_lanes(tag), e, block, j, k, v, c, t
    cdef double opened[8]
    cdef double closed[8]
    cdef double mine[8]
    cdef double ends[8]
    cdef double g[8]
    cdef double o[8]
    cdef double shift = 0
    cdef double* row
    for v in range(step_visits[0], step_visits[n]):
        for j in range(width):
            G[v * width + j] = -INFINITY
            origin[v * width + j] = -1
    for e in range(1, n + 1):
        if e == 1:
            for j in range(width):
                entering[j] = start[j]
        else:
            enter(tag, alpha + (e - 2) * width, score, entering, L, width)
        # A later start wins among equals: what enters is not smaller than what is there.
        row = G + entry[e - 1] * width
        for j in range(width):
            if entering[j] >= row[j]:
                row[j] = entering[j]
                origin[entry[e - 1] * width + j] = e - 1
        top[e - 1] = -INFINITY
        for block in range(width // B):
            j = block * B
            row = alpha + (e - 1) * width + j
            for k in range(B):
                opened[k] = -shift
                closed[k] = 0
                row[k] = -INFINITY
                best_start[(e - 1) * width + j + k] = -1
            for v in range(step_visits[e - 1], step_visits[e]):
                for k in range(B):
                    mine[k] = 0
                    ends[k] = 0
                for c in range(first_cell[v], last_cell[v]):
                    if kind[c] == 3:
                        for k in range(B):
                            opened[k] += psi[c * width + j + k]
                    elif kind[c] == 2:
                        for k in range(B):
                            closed[k] += psi[c * width + j + k]
                    elif kind[c] == 1:
                        for k in range(B):
                            mine[k] += psi[c * width + j + k]
                    else:
                        for k in range(B):
                            ends[k] += psi[c * width + j + k]
                for k in range(B):
                    g[k] = G[v * width + j + k] + (opened[k] + mine[k])
                    o[k] = origin[v * width + j + k]
                for k in range(B):
                    top[e - 1] = max(top[e - 1], g[k])
                for k in range(B):
                    ends[k] += g[k] + closed[k]
                keep_larger(B, ends, o, row, best_start + (e - 1) * width + j)
                t = target[v]
                if t >= 0:
                    for k in range(B):
                        g[k] += log_masks[mask[v] * width + j + k]
                    keep_larger(B, g, o, G + t * width + j, origin + t * width + j)
            for k in range(B):
                top[e - 1] = max(top[e - 1], row[k])
        shift = top[e - 1] if top[e - 1] > -INFINITY else 0


cdef double trace_back(
    const double* alpha, const double* best_start, const double* top, const double* score,
    const double* end, Py_ssize_t n, Py_ssize_t L, Py_ssize_t width, long long* segments,
    Py_ssize_t* count
) noexcept nogil:
    # The best segmentation, last segment first; its score, or -inf if there is none.
    cdef Py_ssize_t e = n, j, i, k
    cdef double best = -INFINITY, total
    count[0] = j = 0
    for i in range(L):
        if alpha[(n - 1) * width + i] + end[i] > best:
            best = alpha[(n - 1) * width + i] + end[i]
            j = i
    if best == -INFINITY:
        return best
    total = best
    for i in range(n - 1):
        total += top[i]
    while True:
        segments[3 * count[0]] = <long long> best_start[(e - 1) * width + j]
        segments[3 * count[0] + 1] = e
        segments[3 * count[0] + 2] = j
        e = <Py_ssize_t> best_start[(e - 1) * width + j]
        count[0] += 1
        if e == 0:
            return total
        best = -INFINITY
        i = j
        for k in range(L):
            if alpha[(e - 1) * width + k] + score[k * width + i] > best:
                best = alpha[(e - 1) * width + k] + score[k * width + i]
                j = k


cdef void _viterbi(
    lanes* tag, const double[:, ::1] psi, const long long[::1] cells, const long long[::1] steps,
    const long long[::1] step_visits, const long long[::1] first_cell,
    const long long[::1] last_cell, const long long[::1] target, const int[::1] mask,
    const signed char[::1] kind, const long long[::1] entry, const double[:, ::1] log_masks,
    const double[:, ::1] score,
    const double[:, ::1] boundary, double[:, ::1] G, double[:, ::1] origin, double[:, ::1] alpha,
    double[:, ::1] best_start, double[::1] top, long long[:, ::1] segments,
    long long[::1] counts, double[::1] scores, Py_ssize_t L
) noexcept nogil:
    cdef Py_ssize_t s, n, r, v0, width = score.shape[1], count = 0, longest = top.shape[0]
    cdef const double* p = NULL
    cdef const signed char* of_cells = NULL
    if psi.shape[0]:
        p = &psi[0, 0] - cells[0] * width
        of_cells = &kind[0]
    for s in range(steps.shape[0] - 1):
        n, r = steps[s + 1] - steps[s], steps[s] - steps[0]
        scores[s] = counts[s] = 0
        if n == 0:
            continue
        v0 = step_visits[steps[s]]
        best_prefixes(
            tag, p, n, &step_visits[steps[s]], &first_cell[0], &last_cell[0], &target[0],
            &mask[0], of_cells, &entry[steps[s]], &log_masks[0, 0], &score[0, 0],
            &boundary[0, 0], &G[0, 0] - v0 * width,
            &origin[0, 0] - v0 * width, &alpha[0, 0], &best_start[0, 0], &top[0],
            &alpha[longest, 0], L, width
        )
        scores[s] = trace_back(
            &alpha[0, 0], &best_start[0, 0], &top[0], &score[0, 0], &boundary[1, 0], n, L, width,
            &segments[r, 0], &count
        )
        counts[s] = count


def viterbi_padded(
    const double[:, ::1] psi,        # (n_cells, width)
    const long long[::1] cells,
    const long long[::1] steps,
    const long long[::1] step_visits,
    const long long[::1] first_cell,
    const long long[::1] last_cell,
    const long long[::1] target,
    const int[::1] mask,
    const signed char[::1] kind,
    const long long[::1] entry,
    const double[:, ::1] log_masks,  # (n_masks, width)  0 or -inf
    const double[:, ::1] score,      # (width, width)
    const double[:, ::1] boundary,   # (2, width)        start and end scores
    double[:, ::1] G,                # (visits of the largest sequence, width)  scratch, as origin
    double[:, ::1] origin,
    double[:, ::1] alpha,            # (longest + 1, width)     scratch, as best_start, top
    double[:, ::1] best_start,
    double[::1] top,
    long long[:, ::1] segments,      # (n_steps, 3)      OUT from the first step of each sequence:
    long long[::1] counts,           # (n_sequences,)    OUT so many of them, last first
    double[::1] scores,              # (n_sequences,)    OUT -inf: nothing is allowed
    Py_ssize_t L,
):
    """Best segmentation of every sequence."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    if steps[steps.shape[0] - 1] == steps[0]:
        counts[:] = 0
        scores[:] = 0
        return
    with nogil:
        if score.shape[1] == 2:
            _viterbi(&two, psi, cells, steps, step_visits, first_cell, last_cell, target, mask,
                     kind, entry, log_masks, score, boundary, G, origin, alpha, best_start, top,
                     segments, counts, scores, L)
        elif score.shape[1] == 4:
            _viterbi(&four, psi, cells, steps, step_visits, first_cell, last_cell, target, mask,
                     kind, entry, log_masks, score, boundary, G, origin, alpha, best_start, top,
                     segments, counts, scores, L)
        else:
            _viterbi(&eight, psi, cells, steps, step_visits, first_cell, last_cell, target, mask,
                     kind, entry, log_masks, score, boundary, G, origin, alpha, best_start, top,
                     segments, counts, scores, L)


# ---------------------------------------------------------------- n best


cdef struct Item:
    double score
    long long start                  # of the last segment
    long long rank                   # of its prefix, among those that enter at this start


cdef inline void insert(Item* best, Py_ssize_t n, Item item) noexcept nogil:
    # Into a list sorted by falling score, of n; ties: later start, then lower rank.
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
    const double[:, ::1] psi,        # (n_cells, width)  of one sequence
    Py_ssize_t c0,                   # its first cell
    const long long[::1] step_visits,  # (n + 1,)
    const long long[::1] first_cell,
    const long long[::1] last_cell,
    const long long[::1] target,
    const int[::1] mask,
    const signed char[::1] kind,
    const long long[::1] entry,
    const double[:, ::1] log_masks,
    const double[:, ::1] score,
    const double[:, ::1] boundary,
    long long[:, :, ::1] segments,   # (k, n, 3)         OUT  start, stop, label, last first
    long long[::1] counts,           # (k,)              OUT
    double[::1] scores,              # (k,)              OUT
    Py_ssize_t L,
):
    """k best segmentations of one sequence; returns how many there are."""
    cdef Py_ssize_t n = step_visits.shape[0] - 1, N = scores.shape[0]
    cdef Py_ssize_t v0 = step_visits[0], n_visits = step_visits[n] - v0
    cdef Py_ssize_t e, v, w, c, y, i, k, t, found = 0
    cdef Item* G = <Item*> malloc(n_visits * L * N * sizeof(Item))
    cdef Item* alpha = <Item*> malloc(n * L * N * sizeof(Item))
    cdef Item* entered = <Item*> malloc(n * L * N * sizeof(Item))  # start: label, rank: its rank
    cdef Item* last = <Item*> malloc(N * sizeof(Item))
    cdef Item item, nothing
    cdef double opened, closed, mine, ends
    nothing.score, nothing.start, nothing.rank = -INFINITY, -1, 0
    if G == NULL or alpha == NULL or entered == NULL or last == NULL:
        free(G)
        free(alpha)
        free(entered)
        free(last)
        raise MemoryError()
    with nogil:
        for k in range(n_visits * L * N):
            G[k] = nothing
        for k in range(n * L * N):
            alpha[k] = entered[k] = nothing
        for k in range(N):
            last[k] = nothing
        for e in range(1, n + 1):
            for y in range(L):
                # Prefixes that enter here: (label before, its rank), best first.
                if e == 1:
                    item.score, item.start, item.rank = boundary[0, y], 0, 0
                    insert(entered + y * N, N, item)
                else:
                    for i in range(L):
                        for k in range(N):
                            item.score = alpha[((e - 2) * L + i) * N + k].score + score[i, y]
                            item.start, item.rank = -i, k
                            insert(entered + ((e - 1) * L + y) * N, N, item)
                v = entry[e - 1] - v0
                for k in range(N):
                    item.score = entered[((e - 1) * L + y) * N + k].score
                    item.start, item.rank = e - 1, k
                    insert(G + (v * L + y) * N, N, item)
                opened = closed = 0
                for w in range(step_visits[e - 1], step_visits[e]):
                    mine = ends = 0
                    for c in range(first_cell[w], last_cell[w]):
                        if kind[c] == 3:
                            opened += psi[c - c0, y]
                        elif kind[c] == 2:
                            closed += psi[c - c0, y]
                        elif kind[c] == 1:
                            mine += psi[c - c0, y]
                        else:
                            ends += psi[c - c0, y]
                    t = target[w] - v0 if target[w] >= 0 else -1
                    for k in range(N):
                        item = G[((w - v0) * L + y) * N + k]
                        item.score += opened + mine
                        if t >= 0 and log_masks[mask[w], y] == 0:
                            insert(G + (t * L + y) * N, N, item)
                        item.score += closed + ends
                        insert(alpha + ((e - 1) * L + y) * N, N, item)
        for y in range(L):
            for k in range(N):
                item.score = alpha[((n - 1) * L + y) * N + k].score + boundary[1, y]
                item.start, item.rank = -y, k
                insert(last, N, item)
        for k in range(N):
            if last[k].score == -INFINITY:
                break
            found += 1
            scores[k] = last[k].score
            y, i, e, counts[k] = -last[k].start, last[k].rank, n, 0
            while e > 0:
                item = alpha[((e - 1) * L + y) * N + i]
                segments[k, counts[k], 0] = item.start
                segments[k, counts[k], 1] = e
                segments[k, counts[k], 2] = y
                counts[k] += 1
                e = item.start
                item = entered[(e * L + y) * N + item.rank]
                y, i = -item.start, item.rank
        free(G)
        free(alpha)
        free(entered)
        free(last)
    return found

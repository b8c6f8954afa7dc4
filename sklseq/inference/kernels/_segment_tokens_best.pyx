"""Best segmentations where all potentials are of single tokens: one maximum over labels a step.

Notation of `_segment_tokens.pyx`, in scores. No back pointers are kept: along the one segmentation
that is wanted, what was larger is found again in the same numbers. Among equal scores a later start
wins, then the lowest label before it.
"""

from libc.math cimport INFINITY
from libc.string cimport memcpy, memset

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference.kernels._blocks cimport row_max, sum_max
from sklseq.inference.kernels._batched cimport max_plus_rows
from sklseq.inference.kernels._token_blocks cimport Block, cells_of, fill_block, in_step, part_of
from sklseq.inference.kernels._token_rows cimport sklseq_best_row, sklseq_prefetch_rows


cdef inline void add_best(
    lanes* tag, const Block* block, const double* x, const double* score, double* out,
    Py_ssize_t n
) noexcept nogil:
    # Row first[s] of out += max_i x(first[s], i) + score(i, j), for s < n.
    cdef Py_ssize_t B = n_lanes(tag), s, r, i, k
    cdef double best[8]
    cdef double x_i, v
    if lanes is Lanes8:
        max_plus_rows(x, score, out, block.first, n, block.L, block.width)
    else:
        for s in range(n):
            r = block.first[s] * block.width
            for k in range(B):
                best[k] = -INFINITY
            for i in range(block.L):
                x_i = x[r + i]
                for k in range(B):
                    v = x_i + score[i * block.width + k]
                    best[k] = v if v > best[k] else best[k]
            for k in range(B):
                out[r + k] += best[k]


cdef inline double largest(lanes* tag, const double* x, Py_ssize_t L) noexcept nogil:
    cdef Py_ssize_t j
    cdef double top = x[0]
    if lanes is Lanes8:
        return row_max(x, L)
    for j in range(1, L):
        top = x[j] if x[j] > top else top
    return top


cdef inline void best_prefixes(
    lanes* tag, const Block* block, const double* psi, const double* score, const double* start,
    const double* log_m, const double* nothing, double* new, double* G, double* alpha,
    double* top
) noexcept nogil:
    # After every eighth, a row is lowered by the largest score of the one before, in top: few
    # digits are lost.
    cdef Py_ssize_t B = n_lanes(tag), t, s, r, j, z, active = block.n
    cdef Py_ssize_t width = block.width
    cdef int kinds
    cdef double* cells[4]
    for t in range(block.length[0]):
        while block.length[active - 1] <= t:
            active -= 1
        for s in range(active):
            r = (block.first[s] + t) * width
            kinds = cells_of(block, psi, block.first[s] + t, cells)
            for z in range(width // B):      # of a size that the compiler knows
                if kinds & 2:
                    memcpy(new + r + z * B, cells[1] + z * B, B * sizeof(double))
                else:
                    memset(new + r + z * B, 0, B * sizeof(double))
            if t + 1 < block.length[s]:
                sklseq_prefetch_rows(
                    psi + block.cell[block.first[s] + t + 1] * width,
                    block.kinds[block.first[s] + t + 1], width
                )
            if t == 0:
                for j in range(width):
                    new[r + j] += start[j]
        if t:
            add_best(tag, block, alpha + (t - 1) * width, score, new + t * width, active)
        for s in range(active):
            r = block.first[s] + t
            kinds = cells_of(block, psi, r, cells)
            sklseq_best_row(
                kinds, width, cells[0], cells[2], cells[3], log_m,
                G + (r - 1) * width if t else nothing,
                top[r - 1] if t and top[r - 1] > -INFINITY else 0, new + r * width,
                G + r * width, alpha + r * width
            )
            top[r] = largest(tag, G + r * width, block.L) if t % 8 == 7 else 0


cdef Py_ssize_t start_of(
    const Block* block, Py_ssize_t first, Py_ssize_t e, Py_ssize_t j, const double* psi,
    const double* log_m, const double* new, const double* G
) noexcept nogil:
    # Where the best segment of label j that ends at e starts.
    cdef Py_ssize_t t = e - 1, at, width = block.width
    cdef double entered
    cdef double* cells[4]
    while t > 0:
        at = (first + t) * width + j
        entered = new[at]
        if t == e - 1 and cells_of(block, psi, first + t, cells) & 1:
            entered += cells[0][j]
        if entered >= G[at - width] + log_m[j]:
            return t
        t -= 1
    return 0


cdef inline void turn_round(long long* segments, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t k, i
    for k in range(n // 2):
        for i in range(3):
            segments[3 * k + i], segments[3 * (n - 1 - k) + i] = (
                segments[3 * (n - 1 - k) + i], segments[3 * k + i]
            )


cdef double trace_back(
    const Block* block, Py_ssize_t first, Py_ssize_t n, const double* psi, const double* score_t,
    const double* end, const double* log_m, const double* new, const double* G,
    const double* alpha, const double* top, long long* segments, long long* count
) noexcept nogil:
    # The best segmentation; its score, or -inf if there is none.
    cdef Py_ssize_t e = n, i, j, width = block.width
    cdef const double* row = alpha + (first + n - 1) * width
    cdef double total
    count[0] = 0
    j = first_argmax(row, end, block.L)
    total = row[j] + end[j]
    if total == -INFINITY:
        return total
    for i in range(n - 1):
        total += top[first + i]
    while True:
        segments[3 * count[0] + 1] = e
        segments[3 * count[0] + 2] = j
        e = start_of(block, first, e, j, psi, log_m, new, G)
        segments[3 * count[0]] = e
        count[0] += 1
        if e == 0:
            turn_round(segments, count[0])
            return total
        j = first_argmax(alpha + (first + e - 1) * width, score_t + j * width, block.L)


cdef inline Py_ssize_t first_argmax(
    const double* x, const double* y, Py_ssize_t n
) noexcept nogil:
    # The lowest k that maximises x(k) + y(k). Many are compared faster in whole registers.
    cdef Py_ssize_t k, best = 0
    cdef double top
    if n > 8:
        top = sum_max(x, y, n)
        while x[best] + y[best] != top:
            best += 1
        return best
    for k in range(1, n):
        best = k if x[k] + y[k] > x[best] + y[best] else best
    return best


cdef void _viterbi(
    lanes* tag, const Block* block, const double* psi, const double* score, const double* score_t,
    const double* start, const double* end, const double* log_m, double* nothing, double* new,
    double* G, double* alpha, double* top, long long[:, ::1] segments, long long[::1] counts,
    double[::1] scores
) noexcept nogil:
    cdef Py_ssize_t s, r, together = block.n if in_step(tag, block.n) else 1
    cdef Block part
    for s in range(block.width):
        nothing[s] = -INFINITY
    for s in range(block.n // together):
        part = part_of(block, s * together, together)
        best_prefixes(tag, &part, psi, score, start, log_m, nothing, new, G, alpha, top)
    for s in range(block.n):
        r = block.first[s]
        scores[block.ids[s]] = trace_back(
            block, r, block.length[s], psi, score_t, end, log_m, new, G, alpha, top,
            &segments[r, 0], &counts[block.ids[s]]
        )


def viterbi_tokens(
    const double[:, ::1] psi,        # (n_cells, width)
    Py_ssize_t first_cell,           # the first of them, numbered as in `cell`
    const unsigned char[::1] kinds,  # (n_rows,)         bit k: the row has a cell of kind k
    const long long[::1] cell,       # (n_rows,)         the first cell of each row
    const long long[::1] steps,      # (n_sequences + 1,)
    Py_ssize_t[:, ::1] order,        # (3, n_sequences)  [0] IN sequences, longest first; scratch
    const double[::1] log_m,         # (width,)          -inf for labels of longest length 1, or 0
    const double[:, ::1] score,      # (width, width)
    const double[:, ::1] score_t,    # (width, width)   score transposed
    const double[:, ::1] boundary,   # (2, width)        start and end scores
    double[:, :, ::1] scratch,       # (3, n_rows + 1, width)
    double[::1] top,                 # (n_rows,)         scratch
    long long[:, ::1] segments,      # (n_rows, 3)       OUT from the first step of each sequence:
    long long[::1] counts,           # (n_sequences,)    OUT so many of them
    double[::1] scores,              # (n_sequences,)    OUT -inf: nothing is allowed
    Py_ssize_t L,
):
    """Best segmentation of every sequence."""
    cdef Py_ssize_t n = top.shape[0]
    cdef const double* p = NULL
    cdef Block block
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    counts[:] = 0
    scores[:] = 0
    if n == 0:
        return
    with nogil:
        fill_block(&block, order, steps)
        block.kinds, block.cell = &kinds[0], &cell[0]
        block.L, block.width = L, score.shape[1]
        if psi.shape[0]:
            p = &psi[0, 0] - first_cell * score.shape[1]
        if score.shape[1] == 2:
            _viterbi(&two, &block, p, &score[0, 0], &score_t[0, 0], &boundary[0, 0],
                     &boundary[1, 0], &log_m[0], &scratch[1, n, 0], &scratch[0, 0, 0],
                     &scratch[1, 0, 0], &scratch[2, 0, 0], &top[0], segments, counts, scores)
        elif score.shape[1] == 4:
            _viterbi(&four, &block, p, &score[0, 0], &score_t[0, 0], &boundary[0, 0],
                     &boundary[1, 0], &log_m[0], &scratch[1, n, 0], &scratch[0, 0, 0],
                     &scratch[1, 0, 0], &scratch[2, 0, 0], &top[0], segments, counts, scores)
        else:
            _viterbi(&eight, &block, p, &score[0, 0], &score_t[0, 0], &boundary[0, 0],
                     &boundary[1, 0], &log_m[0], &scratch[1, n, 0], &scratch[0, 0, 0],
                     &scratch[1, 0, 0], &scratch[2, 0, 0], &top[0], segments, counts, scores)

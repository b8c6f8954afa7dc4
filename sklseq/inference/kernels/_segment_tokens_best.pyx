"""Best segmentations where all potentials are of single tokens: one maximum over labels a step.

Notation of `_segment_tokens.pyx`, in scores. No back pointers are kept: the search from the end
compares the same numbers again, on the best segmentation only. Among equal scores a later start
wins, then the lowest label before it.
"""

from libc.math cimport INFINITY
from libc.string cimport memcpy, memset

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference.kernels._batched cimport max_plus_rows
from sklseq.inference.kernels._blocks cimport block_of_maxima, first_argmax, largest
from sklseq.inference.kernels._scaled cimport known_width
from sklseq.inference.kernels._segment_structs cimport Chain, read_scores, rows_from
from sklseq.inference.kernels._token_blocks cimport (
    Block, cells_of, n_together, part_of, read_block,
)
from sklseq.inference.kernels._token_rows cimport sklseq_best_row, sklseq_prefetch_rows


cdef struct Prefixes:
    # Best scores: of what starts at a step, has not ended there, and ends there.
    const double* psi                # (n_cells, width)
    double* new                      # (n_rows, width)
    double* G                        # (n_rows, width)
    double* alpha                    # (n_rows, width)
    double* top                      # (n_rows,)  what later rows are lowered by


cdef inline void add_best(
    lanes* tag, const Block* block, const double* x, const double* score, double* out,
    Py_ssize_t n
) noexcept nogil:
    # Row first[s] of out += max_i x(first[s], i) + score(i, j), for s < n.
    cdef Py_ssize_t B = n_lanes(tag), s, r, k
    cdef double best[8]
    if lanes is Lanes8:
        max_plus_rows(x, score, out, block.first, n, block.L, block.width)
    else:
        for s in range(n):
            r = block.first[s] * block.width
            block_of_maxima(tag, x + r, score, block.L, block.width, best)
            for k in range(B):
                out[r + k] += best[k]


cdef void best_prefixes(
    lanes* tag, const Block* block, const Chain* chain, const Prefixes* rows
) noexcept nogil:
    # After every eighth, a row is lowered by the largest score of the one before, in top: few
    # digits are lost.
    cdef Py_ssize_t B = n_lanes(tag), t, s, r, j, z, active = block.n
    cdef Py_ssize_t width = known_width(tag, block.width)
    cdef int kinds
    cdef double* cells[4]
    cdef const double* psi = rows.psi
    cdef double* new = rows.new
    cdef double* G = rows.G
    cdef double* alpha = rows.alpha
    cdef double* top = rows.top
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
                    new[r + j] += chain.start[j]
        if t:
            add_best(
                tag, block, alpha + (t - 1) * width, chain.matrix, new + t * width, active
            )
        for s in range(active):
            r = block.first[s] + t
            kinds = cells_of(block, psi, r, cells)
            sklseq_best_row(
                kinds, width, cells, block.m, G + (r - 1) * width if t else block.before,
                top[r - 1] if t and top[r - 1] > -INFINITY else 0, new + r * width,
                G + r * width, alpha + r * width
            )
            top[r] = largest(tag, G + r * width, block.L) if t % 8 == 7 else 0


cdef Py_ssize_t start_of(
    const Block* block, const Prefixes* rows, Py_ssize_t first, Py_ssize_t e, Py_ssize_t j
) noexcept nogil:
    # Where the best segment of label j that ends at e starts.
    cdef Py_ssize_t t = e - 1, at, width = block.width
    cdef double entered
    cdef double* cells[4]
    while t > 0:
        at = (first + t) * width + j
        entered = rows.new[at]
        if t == e - 1 and cells_of(block, rows.psi, first + t, cells) & 1:
            entered += cells[0][j]
        if entered >= rows.G[at - width] + block.m[j]:
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
    const Block* block, const Chain* chain, const Prefixes* rows, Py_ssize_t s,
    long long* segments, long long* count
) noexcept nogil:
    # The best segmentation; its score, or -inf if there is none.
    cdef Py_ssize_t first = block.first[s], e = block.length[s], i, j, n = 0, width = block.width
    cdef const double* row = rows.alpha + (first + e - 1) * width
    cdef double total
    count[0] = 0
    j = first_argmax(row, chain.end, block.L)
    total = row[j] + chain.end[j]
    if total == -INFINITY:
        return total
    for i in range(e - 1):
        total += rows.top[first + i]
    while True:
        segments[3 * n + 1], segments[3 * n + 2] = e, j
        e = start_of(block, rows, first, e, j)
        segments[3 * n] = e
        n += 1
        if e == 0:
            turn_round(segments, n)
            count[0] = n
            return total
        j = first_argmax(
            rows.alpha + (first + e - 1) * width, chain.transposed + j * width, block.L
        )


cdef void _viterbi(
    lanes* tag, const Block* block, const Chain* chain, const Prefixes* rows
) noexcept nogil:
    cdef Py_ssize_t s, together = n_together(tag, block.n)
    cdef Block part
    for s in range(block.n // together):
        part = part_of(block, s * together, together)
        best_prefixes(tag, &part, chain, rows)


def viterbi_tokens(
    object segment_plan, object transitions, const double[:, ::1] psi, object work,
    Py_ssize_t[:, ::1] order,        # (3, n_sequences)  [0] IN sequences, longest first; scratch
):
    """Best segmentations of the sequences of a TokenPrefixes, from the scores of their cells.

    As `viterbi` of `_segment_best.pyx`, but segments are in order.
    """
    cdef Chain chain = read_scores(transitions, None, NULL)
    cdef Py_ssize_t s, i
    cdef Block block = read_block(segment_plan, work.a, order, segment_plan.log_masks)
    cdef double[:, :, ::1] scratch = work.scratch
    cdef double[::1] top = work.top, scores = work.scores
    cdef long long[:, ::1] found = work.found
    cdef long long[::1] counts = work.counts
    cdef Prefixes rows
    rows.psi = rows_from(psi, block.first_cell)
    rows.new, rows.G, rows.alpha = &scratch[0, 0, 0], &scratch[1, 0, 0], &scratch[2, 0, 0]
    rows.top = &top[0]
    with nogil:
        counts[:] = 0
        scores[:] = 0
        block.before = rows.new + block.n_rows * block.width
        for s in range(block.width):
            block.before[s] = -INFINITY
        if block.width == 2:
            _viterbi(<Lanes2*> NULL, &block, &chain, &rows)
        elif block.width == 4:
            _viterbi(<Lanes4*> NULL, &block, &chain, &rows)
        else:
            _viterbi(<Lanes8*> NULL, &block, &chain, &rows)
        for i in range(block.n):
            s = block.ids[i]
            scores[s] = trace_back(
                &block, &chain, &rows, i, &found[block.first[i], 0], &counts[s]
            )

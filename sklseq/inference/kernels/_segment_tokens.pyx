"""Segmentations whose potentials all are of single tokens: one product with the matrix a step.

Notation of `_segments.pyx`. A cell of step t is a factor of segments that are token t alone (x),
begin with it (b), end with it (f) or contain it (o); `cells_of` returns those of a step.
All older starts have the same future, so that one group is enough:

    new_t    = alpha^_t b_t                          alpha^_t = start if t = 0, else alpha_{t-1} E
    old_t    = m G_{t-1}                             m: 0 for labels whose longest length is 1
    G_t      = (old_t + new_t) o_t                   segments that lie at t
    alpha_t  = (old_t + new_t x_t) o_t f_t           those that end with t
    log Z    = log(alpha_{n-1} end)

and with beta_t = E u_{t+1} (end / Z in the last row), r_t = m D_{t+1} (0 there), derivatives are

    D_t = o_t (r_t + f_t beta_t)                     by old_t
    u_t = b_t o_t (r_t + f_t beta_t x_t)             by alpha^_t

Nothing is divided. The sequences of a block are batched, the longest first, so that a row of E
serves several (`_batched.pxd`). When this is exact: `_segments.pyx`. The flags are those of a
whole block; if one is set, its sequences are done again, one by one, by the kernel of that file.
"""

from libc.math cimport INFINITY, frexp, ldexp, log
from libc.string cimport memset

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference.kernels._batched cimport add_pairs, multiply_rows, weigh_rows
from sklseq.inference.kernels._recursions cimport block_of_product
from sklseq.inference.kernels._scaled cimport (
    FE_INVALID, FE_OVERFLOW, FE_UNDERFLOW, exponentiate, feclearexcept, fetestexcept, in_range,
    known_width, log_of_power, sum_of_products, sum_of_rows,
)
from sklseq.inference.kernels._segment_structs cimport Chain, Trellis, read_factors, read_trellis
from sklseq.inference.kernels._token_blocks cimport (
    Block, cells_of, n_together, part_of, read_block,
)
from sklseq.inference.kernels._token_rows cimport sklseq_backward_row, sklseq_forward_row


cdef inline void product(
    lanes* tag, const Block* block, const double* x, const double* matrix, double* out,
    Py_ssize_t n
) noexcept nogil:
    # Row first[s] of out = row first[s] of x times the matrix, for s < n.
    cdef Py_ssize_t B = n_lanes(tag), s, r, k
    cdef double acc[8]
    if lanes is Lanes8:
        multiply_rows(x, matrix, out, block.first, n, block.L, block.width, False)
    else:
        for s in range(n):
            r = block.first[s] * block.width
            block_of_product(tag, x + r, 1, matrix, block.L, block.width, acc)
            for k in range(B):
                out[r + k] = acc[k]


cdef inline double mass(
    const Block* block, const Chain* chain, const Trellis* rows, Py_ssize_t s
) noexcept nogil:
    # Z of sequence s without its power of two.
    cdef Py_ssize_t last = block.first[s] + block.length[s] - 1
    return sum_of_products(rows.alpha + last * block.width, chain.end, block.L)


cdef inline bint forward(
    lanes* tag, const Block* block, const Chain* chain, const Trellis* rows, double* log_z
) noexcept nogil:
    # Fill G, alpha, factor and u. Returns False if the mass of a sequence is zero or infinite.
    cdef Py_ssize_t t, s, r, j, active = block.n, width = known_width(tag, block.width)
    cdef int power = 0, kinds
    cdef double* cells[4]
    cdef double* G = rows.G
    cdef double* u = rows.u
    cdef double* alpha = rows.alpha
    cdef double* factor = rows.factor
    cdef double total
    for s in range(block.n):
        log_z[block.ids[s]] = 0
        factor[block.first[s]] = 1
        for j in range(width):
            u[block.first[s] * width + j] = chain.start[j]
    for t in range(block.length[0]):
        while block.length[active - 1] <= t:
            active -= 1
        if t:
            product(tag, block, alpha + (t - 1) * width, chain.matrix, u + t * width, active)
        for s in range(active):
            r = block.first[s] + t
            kinds = cells_of(block, rows.F, r, cells)
            sklseq_forward_row(
                kinds, width, cells, block.m, G + (r - 1) * width if t else block.before,
                factor[r], u + r * width, G + r * width, alpha + r * width
            )
            if t + 1 == block.length[s]:
                continue
            total = sum_of_rows(tag, G + r * width, NULL, width)
            factor[r + 1] = 1
            if not in_range(total):
                if not 0 < total < INFINITY:
                    return False
                frexp(total, &power)
                factor[r + 1] = ldexp(1.0, -power)
                log_z[block.ids[s]] += power
        # Stop early: arithmetic on numbers that underflow is slow.
        if t % 16 == 15 and fetestexcept(FE_UNDERFLOW):
            return False
    for s in range(block.n):
        total = mass(block, chain, rows, s)
        if not 0 < total < INFINITY:
            return False
        log_z[block.ids[s]] = log_of_power(log_z[block.ids[s]]) + log(total)
    return True


cdef inline void backward(
    lanes* tag, const Block* block, const Chain* chain, const Trellis* rows
) noexcept nogil:
    # alpha^ in u becomes u, G becomes D, beta in tokens becomes label probabilities, F marginals.
    cdef Py_ssize_t t, s, r, j, active = 0, ahead = 0, width = known_width(tag, block.width)
    cdef double* cells[4]
    cdef double* G = rows.G
    cdef double* u = rows.u
    cdef double* tokens = rows.tokens
    cdef double total
    cdef int kinds
    for t in range(block.length[0] - 1, -1, -1):
        while active < block.n and block.length[active] > t:
            active += 1
        product(
            tag, block, u + (t + 1) * width, chain.transposed, tokens + t * width, ahead
        )
        for s in range(active):
            r = block.first[s] + t
            if s >= ahead:
                total = mass(block, chain, rows, s)
                for j in range(width):
                    tokens[r * width + j] = chain.end[j] / total
            kinds = cells_of(block, rows.F, r, cells)
            sklseq_backward_row(
                kinds, width, cells, block.m, G + (r - 1) * width if t else block.before,
                G + (r + 1) * width if s < ahead else block.before, rows.factor[r],
                tokens + r * width, u + r * width, G + r * width
            )
        ahead = active


cdef inline bint sum_up(
    lanes* tag, const Block* block, const Chain* chain, const Trellis* rows,
    const double* weights
) noexcept nogil:
    # Weighted transitions, to be multiplied by E, first and last labels. False: nothing is added.
    cdef Py_ssize_t B = n_lanes(tag), s, i, k, a, z, width = known_width(tag, block.width)
    cdef double acc[8]
    cdef double weight, total
    cdef double* pairs = rows.scratch + width    # after block.before
    cdef double* starts = pairs + width * width
    cdef double* ends = starts + width
    memset(pairs, 0, (width + 2) * width * sizeof(double))
    for s in range(block.n):
        weight = weights[block.ids[s]]
        a = block.first[s] * width
        z = a + (block.length[s] - 1) * width
        total = mass(block, chain, rows, s)
        for k in range(block.L):
            starts[k] += weight * chain.start[k] * rows.u[a + k]
            ends[k] += weight * rows.alpha[z + k] * chain.end[k] / total
    weigh_rows(rows.alpha, rows.u, block.ids, block.first, block.length, weights, block.n, width)
    if lanes is Lanes8:
        add_pairs(rows.alpha, rows.u + width, block.n_rows - 1, pairs, block.L, width)
    else:
        for i in range(block.L):
            block_of_product(
                tag, rows.alpha + i, width, rows.u + width, block.n_rows - 1, width, acc
            )
            for k in range(B):
                pairs[i * width + k] = acc[k]
    if fetestexcept(FE_OVERFLOW | FE_INVALID):
        return False
    for k in range(block.L * width):
        rows.pairwise[k] += pairs[k]
    for k in range(2 * width):
        rows.ends[k] += starts[k]
    return True


cdef bint _forward_backward(
    lanes* tag, const Block* block, const Chain* chain, const Trellis* rows,
    const double* weights, double* log_z
) noexcept nogil:
    cdef Py_ssize_t s, together = n_together(tag, block.n)
    cdef int bad = FE_UNDERFLOW | FE_OVERFLOW | FE_INVALID
    cdef Block part
    feclearexcept(bad)
    for s in range(block.n // together):
        part = part_of(block, s * together, together)
        if not forward(tag, &part, chain, rows, log_z) or fetestexcept(bad):
            return False
        backward(tag, &part, chain, rows)
    return not fetestexcept(bad) and sum_up(tag, block, chain, rows, weights)


def forward_backward_tokens(
    object segment_plan, object transitions, object work, object batch,
    Py_ssize_t[:, ::1] order,        # (3, n_sequences)  [0] IN sequences, longest first; scratch
):
    """Whether scaled arithmetic was exact for all sequences of a batch; else sums do not change.

    Fills and adds to what `forward_backward_scaled` does.
    """
    cdef Chain chain = read_factors(transitions, None, NULL)
    cdef Block block = read_block(segment_plan, batch.a, order, segment_plan.masks)
    cdef Trellis rows = read_trellis(work, batch, block.first_cell)
    cdef Py_ssize_t first = block.first_cell * chain.width
    cdef const double[::1] weights = batch.weights
    cdef double[::1] log_z = batch.log_z
    cdef bint exact = True
    with nogil:
        log_z[:] = 0
        block.before = rows.scratch
        memset(block.before, 0, chain.width * sizeof(double))
        if block.n_cells:
            exact = exponentiate(rows.psi + first, rows.F + first, block.n_cells * chain.width)
        if not exact:
            pass
        elif chain.width == 2:
            exact = _forward_backward(
                <Lanes2*> NULL, &block, &chain, &rows, &weights[0], &log_z[0]
            )
        elif chain.width == 4:
            exact = _forward_backward(
                <Lanes4*> NULL, &block, &chain, &rows, &weights[0], &log_z[0]
            )
        else:
            exact = _forward_backward(
                <Lanes8*> NULL, &block, &chain, &rows, &weights[0], &log_z[0]
            )
    return exact

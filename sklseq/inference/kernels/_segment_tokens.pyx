"""Segmentations whose potentials all are of single tokens: one product with the matrix a step.

Notation of `_segments.pyx`. A cell of step t says something of segments that are token t alone
(factor x), begin with it (b), end with it (f) or contain it (o); `place` tells which cells a step
has. All older starts have the same future, so that one group is enough:

    new_t    = alpha^_t b_t                          alpha^_t = start if t = 0, else alpha_{t-1} E
    old_t    = m G_{t-1}                             m: 0 for labels whose longest length is 1
    G_t      = (old_t + new_t) o_t                   segments that lie at t
    alpha_t  = (old_t + new_t x_t) o_t f_t           those that end with t
    log Z    = log(alpha_{n-1} end)

and with beta_t = E u_{t+1} (end / Z in the last row), r_t = m D_{t+1} (0 there), derivatives are

    D_t = o_t (r_t + f_t beta_t)                     by old_t
    u_t = b_t o_t (r_t + f_t beta_t x_t)             by alpha^_t

Nothing is divided. The sequences of a block go in step, the longest first, so that a row of E
serves several (`_batched.pxd`). When this is exact: `_segments.pyx`. The flags are those of a
whole block; if one is set, its sequences are done again, one by one, by the kernel of that file.
"""

from libc.math cimport INFINITY, frexp, ldexp, log
from libc.string cimport memset

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference.kernels._recursions cimport block_of_product
from sklseq.inference.kernels._scaled cimport (
    FE_INVALID, FE_OVERFLOW, FE_UNDERFLOW, exponentiate, feclearexcept, fetestexcept, in_range,
    log_of_power, sum_of_rows,
)
from sklseq.inference.kernels._token_blocks cimport Block, cells_of, fill_block, in_step, part_of
from sklseq.inference.kernels._token_rows cimport sklseq_backward_row, sklseq_forward_row
from sklseq.inference.kernels._batched cimport add_pairs, multiply_rows, weigh_rows


cdef inline void product(
    lanes* tag, const Block* block, const double* x, const double* matrix, double* out,
    Py_ssize_t n
) noexcept nogil:
    # Row first[s] of out = row first[s] of x times the matrix, for s < n.
    cdef Py_ssize_t B = n_lanes(tag), s, r, k
    cdef double acc[8]
    if lanes is Lanes8:
        multiply_rows(x, matrix, out, block.first, n, block.L, block.width)
    else:
        for s in range(n):
            r = block.first[s] * block.width
            block_of_product(tag, x + r, 1, matrix, block.L, block.width, acc)
            for k in range(B):
                out[r + k] = acc[k]


cdef inline bint forward(
    lanes* tag, const Block* block, const double* F, const double* E, const double* start,
    const double* end, const double* m, const double* zeros, double* G, double* alpha,
    double* factor, double* u, double* mass, double* log_z
) noexcept nogil:
    # Fills G, alpha, factor, u, and Z in mass. False: a sequence has no mass, or it is infinite.
    cdef Py_ssize_t t, s, r, j, active = block.n, width = block.width
    cdef int power = 0, kinds
    cdef double* cells[4]
    cdef double total
    for s in range(block.n):
        log_z[block.ids[s]] = 0
        factor[block.first[s]] = 1
        for j in range(width):
            u[block.first[s] * width + j] = start[j]
    for t in range(block.length[0]):
        while block.length[active - 1] <= t:
            active -= 1
        if t:
            product(tag, block, alpha + (t - 1) * width, E, u + t * width, active)
        for s in range(active):
            r = block.first[s] + t
            kinds = cells_of(block, F, r, cells)
            sklseq_forward_row(
                kinds, width, cells[0], cells[1], cells[2], cells[3], m,
                G + (r - 1) * width if t else zeros, factor[r], u + r * width, G + r * width,
                alpha + r * width
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
        # Numbers that underflow are slow: no need to go on.
        if t % 16 == 15 and fetestexcept(FE_UNDERFLOW):
            return False
    for s in range(block.n):
        r = (block.first[s] + block.length[s] - 1) * width
        mass[s] = 0
        for j in range(block.L):
            mass[s] += alpha[r + j] * end[j]
        if not 0 < mass[s] < INFINITY:
            return False
        log_z[block.ids[s]] = log_of_power(log_z[block.ids[s]]) + log(mass[s])
    return True


cdef inline void backward(
    lanes* tag, const Block* block, double* F, const double* Et, const double* end,
    const double* m, const double* zeros, const double* factor, const double* mass, double* G,
    double* u, double* tokens
) noexcept nogil:
    # u becomes u, G: D, tokens the probabilities of labels (before: beta), F marginals.
    cdef Py_ssize_t t, s, r, j, active = 0, ahead = 0, width = block.width
    cdef double* cells[4]
    cdef int kinds
    for t in range(block.length[0] - 1, -1, -1):
        while active < block.n and block.length[active] > t:
            active += 1
        product(tag, block, u + (t + 1) * width, Et, tokens + t * width, ahead)
        for s in range(active):
            r = block.first[s] + t
            if s >= ahead:
                for j in range(width):
                    tokens[r * width + j] = end[j] / mass[s]
            kinds = cells_of(block, F, r, cells)
            sklseq_backward_row(
                kinds, width, cells[0], cells[1], cells[2], cells[3], m,
                G + (r - 1) * width if t else zeros, G + (r + 1) * width if s < ahead else zeros,
                factor[r], tokens + r * width, u + r * width, G + r * width
            )
        ahead = active


cdef inline bint sum_up(
    lanes* tag, const Block* block, const double* start, const double* end,
    const double* weights, double* alpha, double* u, Py_ssize_t n_rows, double* scratch,
    double* pairwise, double* ends
) noexcept nogil:
    # Weighted transitions, to be multiplied by E, first and last labels. False: nothing is added.
    cdef Py_ssize_t B = n_lanes(tag), s, i, k, a, z, width = block.width
    cdef double acc[8]
    cdef double total
    memset(scratch, 0, (width + 2) * width * sizeof(double))
    for s in range(block.n):
        a = block.first[s] * width
        z = a + (block.length[s] - 1) * width
        total = 0
        for k in range(block.L):
            total += alpha[z + k] * end[k]
        for k in range(block.L):
            scratch[width * width + k] += weights[block.ids[s]] * start[k] * u[a + k]
            scratch[(width + 1) * width + k] += (
                weights[block.ids[s]] * alpha[z + k] * end[k] / total
            )
    weigh_rows(alpha, u, block.ids, block.first, block.length, weights, block.n, width)
    if lanes is Lanes8:
        add_pairs(alpha, u, n_rows, scratch, block.L, width)
    else:
        for i in range(block.L):
            block_of_product(tag, alpha + i, width, u + width, n_rows - 1, width, acc)
            for k in range(B):
                scratch[i * width + k] = acc[k]
    if fetestexcept(FE_OVERFLOW | FE_INVALID):
        return False
    for k in range(block.L * width):
        pairwise[k] += scratch[k]
    for k in range(2 * width):
        ends[k] += scratch[width * width + k]
    return True


cdef bint _forward_backward(
    lanes* tag, const Block* block, Py_ssize_t n_rows, double* F, const double* E,
    const double* Et, const double* start, const double* end, const double* m,
    const double* weights, double* G, double* alpha, double* factor, double* u, double* tokens,
    double* scratch, double* mass, double* log_z, double* pairwise, double* ends
) noexcept nogil:
    cdef Py_ssize_t s, width = block.width
    cdef int bad = FE_UNDERFLOW | FE_OVERFLOW | FE_INVALID
    cdef Py_ssize_t together = block.n if in_step(tag, block.n) else 1
    cdef Block part
    cdef double* zeros = scratch
    feclearexcept(bad)
    memset(zeros, 0, width * sizeof(double))
    for s in range(block.n // together):
        part = part_of(block, s * together, together)
        if not forward(tag, &part, F, E, start, end, m, zeros, G, alpha, factor, u, mass,
                       log_z):
            return False
        if fetestexcept(bad):
            return False
        backward(tag, &part, F, Et, end, m, zeros, factor, mass, G, u, tokens)
    if fetestexcept(bad):
        return False
    return sum_up(
        tag, block, start, end, weights, alpha, u, n_rows, scratch + width, pairwise, ends
    )


def forward_backward_tokens(
    const double[:, ::1] psi,        # (n_cells, width)  scores of the cells of these sequences
    double[:, ::1] F,                # (n_cells, width)  OUT marginals
    Py_ssize_t first_cell,           # the first of them, numbered as in `cell`
    const unsigned char[::1] kinds,  # (n_rows,)         bit k: the row has a cell of kind k
    const long long[::1] cell,       # (n_rows,)         the first cell of each row
    const long long[::1] steps,      # (n_sequences + 1,)
    Py_ssize_t[:, ::1] order,        # (3, n_sequences)  [0] IN sequences, longest first; scratch
    const double[::1] m,             # (width,)          0 for labels whose longest length is 1
    const double[:, ::1] E,          # (width, width)    exp of transition scores
    const double[:, ::1] Et,
    const double[:, ::1] boundary,   # (2, width)        exp of start and end scores
    const double[::1] weights,       # (n_sequences,)    of the sequences in pairwise and ends
    double[:, ::1] G,                # (n_rows, width)   scratch, like alpha, factor and u
    double[:, ::1] alpha,
    double[::1] factor,
    double[:, ::1] u,
    double[:, ::1] tokens,           # (n_rows, width)   OUT  marginals of labels at steps
    double[:, ::1] scratch,          # (width + 3, width)
    double[::1] mass,                # (n_sequences,)    scratch
    double[::1] log_z,               # (n_sequences,)    OUT
    double[:, ::1] pairwise,         # (width, width)    IN/OUT, E left out
    double[:, ::1] ends,             # (2, width)        IN/OUT
    Py_ssize_t L,
):
    """Whether scaled arithmetic was exact for all sequences; else sums are left as they were."""
    cdef Py_ssize_t n = G.shape[0]
    cdef bint good
    cdef double* f = NULL
    cdef Block block
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    log_z[:] = 0
    if n == 0:
        return True
    with nogil:
        fill_block(&block, order, steps)
        block.kinds, block.cell = &kinds[0], &cell[0]
        block.L, block.width = L, E.shape[1]
        good = True
        if F.shape[0]:
            f = &F[0, 0] - first_cell * E.shape[1]
            good = exponentiate(&psi[0, 0], &F[0, 0], F.shape[0] * E.shape[1])
        if good and E.shape[1] == 2:
            good = _forward_backward(
                &two, &block, n, f, &E[0, 0], &Et[0, 0], &boundary[0, 0], &boundary[1, 0],
                &m[0], &weights[0], &G[0, 0], &alpha[0, 0], &factor[0], &u[0, 0], &tokens[0, 0],
                &scratch[0, 0], &mass[0], &log_z[0], &pairwise[0, 0], &ends[0, 0]
            )
        elif good and E.shape[1] == 4:
            good = _forward_backward(
                &four, &block, n, f, &E[0, 0], &Et[0, 0], &boundary[0, 0], &boundary[1, 0],
                &m[0], &weights[0], &G[0, 0], &alpha[0, 0], &factor[0], &u[0, 0], &tokens[0, 0],
                &scratch[0, 0], &mass[0], &log_z[0], &pairwise[0, 0], &ends[0, 0]
            )
        elif good:
            good = _forward_backward(
                &eight, &block, n, f, &E[0, 0], &Et[0, 0], &boundary[0, 0], &boundary[1, 0],
                &m[0], &weights[0], &G[0, 0], &alpha[0, 0], &factor[0], &u[0, 0], &tokens[0, 0],
                &scratch[0, 0], &mass[0], &log_z[0], &pairwise[0, 0], &ends[0, 0]
            )
    return good

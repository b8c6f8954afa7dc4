"""A block of sequences with potentials of single tokens only, for both sums and maxima."""

from sklseq._lib.lanes cimport Lanes8, lanes
from sklseq.inference.kernels._blocks cimport SKLSEQ_FOUR_ROWS_FIT


cdef struct Block:
    # Batched sequences; rows of sequence s are first[s] to
    # first[s] + length[s] - 1.
    Py_ssize_t n
    Py_ssize_t* ids                  # their numbers, longest first
    Py_ssize_t* first
    Py_ssize_t* length
    const unsigned char* kinds       # (n_rows,)  bit k: there is a cell of kind k
    const long long* cell            # (n_rows,)  the first cell
    const double* m                  # (width,)   0 (-inf) for labels whose longest length is 1
    double* before                   # (width,)   G before the first step: 0 (-inf)
    Py_ssize_t L
    Py_ssize_t width
    Py_ssize_t n_rows
    Py_ssize_t first_cell, n_cells   # cells of the block


cdef inline int cells_of(
    const Block* block, const double* F, Py_ssize_t row, double** of_kind
) noexcept nogil:
    # The cells of a row, which follow one another; returns which kinds there are, in four bits.
    cdef int kinds = block.kinds[row]
    of_kind[0] = <double*> F + block.cell[row] * block.width
    of_kind[1] = of_kind[0] + (kinds & 1) * block.width
    of_kind[2] = of_kind[1] + (kinds >> 1 & 1) * block.width
    of_kind[3] = of_kind[2] + (kinds >> 2 & 1) * block.width
    return kinds


cdef inline Block read_block(
    object segment_plan, Py_ssize_t a, Py_ssize_t[:, ::1] order, const double[:, ::1] masks
) except *:
    # order[0] holds sequences, counted from a, longest first; their rows go into [1] and [2].
    # The last mask is that of older starts. The caller sets `before`.
    cdef const long long[::1] steps = segment_plan.steps, cells = segment_plan.cells
    cdef const unsigned char[::1] kinds = segment_plan.token_kinds
    cdef const long long[::1] cell = segment_plan.token_cells
    cdef Py_ssize_t k, s, b = a + order.shape[1]
    cdef Block block
    block.n, block.L, block.width = 0, segment_plan.n_labels, segment_plan.width
    block.kinds, block.cell = &kinds[steps[a]], &cell[steps[a]]
    block.n_rows, block.first_cell, block.n_cells = steps[b] - steps[a], cells[a], \
        cells[b] - cells[a]
    block.m, block.before = &masks[masks.shape[0] - 1, 0], NULL
    for k in range(order.shape[1]):
        s = a + order[0, k]
        order[1, k] = steps[s] - steps[a]
        order[2, k] = steps[s + 1] - steps[s]
        block.n += order[2, k] > 0
    block.ids, block.first, block.length = &order[0, 0], &order[1, 0], &order[2, 0]
    return block


cdef inline Block part_of(const Block* block, Py_ssize_t s, Py_ssize_t n) noexcept nogil:
    cdef Block part = block[0]
    part.n = n
    part.ids, part.first, part.length = block.ids + s, block.first + s, block.length + s
    return part


cdef inline Py_ssize_t n_together(lanes* tag, Py_ssize_t n) noexcept nogil:
    # Number of sequences, of n, that are batched: 1 for few labels, whose rows fit registers.
    return n if lanes is Lanes8 and SKLSEQ_FOUR_ROWS_FIT and n >= 4 else 1

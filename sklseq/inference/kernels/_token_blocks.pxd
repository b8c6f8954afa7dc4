"""A block of sequences whose potentials all are of single tokens: shared by sums and maxima."""

from sklseq._lib.lanes cimport Lanes8, lanes
from sklseq.inference.kernels._blocks cimport SKLSEQ_FOUR_ROWS_FIT


cdef struct Block:
    # Sequences that go in step, and their rows: s has rows first[s] to first[s] + length[s] - 1.
    Py_ssize_t n
    Py_ssize_t* ids                  # their numbers, longest first
    Py_ssize_t* first
    Py_ssize_t* length
    const unsigned char* kinds       # (n_rows,)  bit k: there is a cell of kind k
    const long long* cell            # (n_rows,)  the first cell
    Py_ssize_t L
    Py_ssize_t width


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


cdef inline void fill_block(
    Block* block, Py_ssize_t[:, ::1] order, const long long[::1] steps
) noexcept nogil:
    # order[0] holds sequences, longest first; their rows go into [1] and [2].
    cdef Py_ssize_t k, s
    block.n = 0
    for k in range(order.shape[1]):
        s = order[0, k]
        order[1, k] = steps[s] - steps[0]
        order[2, k] = steps[s + 1] - steps[s]
        block.n += order[2, k] > 0
    block.ids, block.first, block.length = &order[0, 0], &order[1, 0], &order[2, 0]


cdef inline Block part_of(const Block* block, Py_ssize_t s, Py_ssize_t n) noexcept nogil:
    cdef Block part = block[0]
    part.n = n
    part.ids, part.first, part.length = block.ids + s, block.first + s, block.length + s
    return part


cdef inline bint in_step(lanes* tag, Py_ssize_t n) noexcept nogil:
    # Rows of few labels stay in registers however they are worked on.
    return lanes is Lanes8 and SKLSEQ_FOUR_ROWS_FIT and n >= 4

"""Lanes: parts of rows of a fixed length. The width of a row is 2, 4 or a multiple of 8 numbers.

The number of lanes is passed as a type, so that the compiler knows the length of the innermost
loops in each instance of a kernel and keeps a block of lanes in registers.
"""

cdef extern from "sklseq/_lib/compiler.h":
    void sklseq_one_row_at_a_time() noexcept nogil

ctypedef fused real:
    float
    double

cdef struct Lanes2:
    char unused
cdef struct Lanes4:
    char unused
cdef struct Lanes8:
    char unused
ctypedef fused lanes:
    Lanes2
    Lanes4
    Lanes8


cdef inline Py_ssize_t n_lanes(lanes* tag) noexcept nogil:
    if lanes is Lanes2:
        return 2
    elif lanes is Lanes4:
        return 4
    else:
        return 8

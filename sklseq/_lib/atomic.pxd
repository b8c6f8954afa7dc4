"""Counters shared by threads that run without the interpreter lock; memory order: `atomic.h`."""

cdef extern from "sklseq/_lib/atomic.h":
    long long atomic_load "sklseq_load"(long long* x) noexcept nogil
    long long atomic_add "sklseq_add"(long long* x) noexcept nogil  # the new value
    bint atomic_exchange "sklseq_exchange"(
        long long* x, long long old, long long new
    ) noexcept nogil
    void atomic_wait "sklseq_wait"(long long* x, long long value) noexcept nogil

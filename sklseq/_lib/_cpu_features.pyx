"""Detection of processor features."""

cdef extern from "sklseq/_lib/cpu_features.h":
    bint sklseq_has_v3() noexcept nogil


def has_x86_64_v3():
    """Whether the processor and the compiler support the x86-64-v3 level (AVX2, FMA)."""
    return bool(sklseq_has_v3())

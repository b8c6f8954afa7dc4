"""The macros SKLSEQ_CASE and SKLSEQ_ROW, which declare C functions with loops over whole rows.

A case is always inlined into the row function that chooses it. A row function is never inlined into
the kernels that call it.
"""

cdef extern from *:
    """
    #if defined(_MSC_VER) && !defined(__clang__)
    #define SKLSEQ_CASE static __forceinline
    #define SKLSEQ_ROW static __declspec(noinline)
    #else
    #define SKLSEQ_CASE static inline __attribute__((always_inline))
    #define SKLSEQ_ROW static __attribute__((noinline))
    #endif
    """

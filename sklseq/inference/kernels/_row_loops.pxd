"""How C loops over whole rows are declared: cimported for the macros SKLSEQ_CASE and SKLSEQ_ROW.

A case is compiled into the row function that chooses it; a row function, of which there is one, is
not compiled into the kernels that call it.
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

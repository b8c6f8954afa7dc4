/* Instructions to the compiler that Cython cannot express.
 *
 * SKLSEQ_SUM   a loop that is not inlined: if it were, GCC would not keep a block of lanes in
 *              registers (measured at L = 100: half as fast).
 * SKLSEQ_MAX   as SKLSEQ_SUM, and the compiler may ignore NaN and the sign of zero. Otherwise GCC
 *              compiles `v > best ? v : best` to scalar code that moves values between two kinds
 *              of registers. Scores are never NaN or +inf, and the vector maximum of processors
 *              orders -inf below any number. These functions use the constant -inf only in
 *              max(-inf, v), which the compiler can simplify to v only.
 * SKLSEQ_UNROLL_TWICE   before a loop over rows that is bound by the latency of maxima.
 * sklseq_one_row_at_a_time   a barrier after which GCC vectorises over the lanes of one row; without
 *              it, GCC vectorises across the rows of a matrix, which takes shuffles.
 */
#ifndef SKLSEQ_COMPILER_H
#define SKLSEQ_COMPILER_H

#if defined(__GNUC__) && !defined(__clang__)
#define SKLSEQ_SUM __attribute__((noinline)) static
#define SKLSEQ_MAX \
    __attribute__((noinline, optimize("finite-math-only", "no-signed-zeros"))) static
#define SKLSEQ_UNROLL_TWICE _Pragma("GCC unroll 2")
#else
#define SKLSEQ_SUM static
#define SKLSEQ_MAX static
#define SKLSEQ_UNROLL_TWICE
#endif

#if defined(__GNUC__) || defined(__clang__)
#define sklseq_one_row_at_a_time() __asm__ volatile ("")
#define sklseq_prefetch(address) __builtin_prefetch(address)
#else
#define sklseq_one_row_at_a_time() ((void) 0)
#define sklseq_prefetch(address) ((void) 0)
#endif

/* Whether four rows of eight double lanes fit the registers. */
#if defined(__AVX__) || defined(__aarch64__)
#define SKLSEQ_FOUR_ROWS_FIT 1
#else
#define SKLSEQ_FOUR_ROWS_FIT 0
#endif

/* f(0) ... f(n - 1), written out by the preprocessor: loops over rows that stay in registers. */
#define SKLSEQ_ROWS_1(f) f(0)
#define SKLSEQ_ROWS_4(f) f(0) f(1) f(2) f(3)
#define SKLSEQ_ROWS_8(f) SKLSEQ_ROWS_4(f) f(4) f(5) f(6) f(7)
#define sklseq_lanes for (k = 0; k < 8; k++)

#endif

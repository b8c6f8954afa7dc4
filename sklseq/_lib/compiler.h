/* Instructions to the compiler that Cython cannot express.
 *
 * SKLSEQ_SUM   a loop that is not inlined: within the loops around it GCC no longer sees that a
 *              block of lanes fits the registers (measured at L = 100: half as fast).
 * SKLSEQ_MAX   in addition NaN and the sign of zero do not matter. Otherwise GCC turns
 *              `v > best ? v : best` into one number at a time, compared in one kind of register
 *              and moved in another. Scores are never NaN or +inf, and the processor's maximum of
 *              whole registers orders -inf below any number. The constant -inf stands in these
 *              functions only as max(-inf, v), of which the only simplification, v, is right.
 * SKLSEQ_UNROLL_TWICE   before a loop over rows that is bound by the latency of maxima.
 * sklseq_one_row_at_a_time   left alone, GCC vectorises across the rows of a matrix, which costs
 *              it shuffles; past this point it takes the lanes of one row instead.
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

/* f(0) ... f(n - 1): loops over rows that stay in registers are written out by the preprocessor. */
#define SKLSEQ_ROWS_1(f) f(0)
#define SKLSEQ_ROWS_4(f) f(0) f(1) f(2) f(3)
#define SKLSEQ_ROWS_8(f) SKLSEQ_ROWS_4(f) f(4) f(5) f(6) f(7)
#define sklseq_lanes for (k = 0; k < 8; k++)

#endif

/* exp in operations that compilers vectorise, unlike calls of the C library's function.
 *
 * x = n · ln 2 + r with n whole and |r| ≤ ln 2 / 2; exp(x) = 2^n · (1 + r + r² · q(r)), where q is the
 * polynomial that is nearest to (exp(r) - 1 - r) / r² in the largest error, below 2e-17 of exp(r) for
 * double (degree 9), 1e-8 for float (degree 4). Adding 1.5 · 2^52 (2^23) to x / ln 2 rounds it, and
 * leaves n in the lowest bits, which a shift moves to the exponent. The result is right to the last
 * bit but one.
 *
 * Results below the least normal number are 0; -inf gives 0 and NaN gives NaN.
 */
#ifndef SKLSEQ_EXPONENTIAL_H
#define SKLSEQ_EXPONENTIAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline double sklseq_exp_double(double x) {
    double whole = x * 0x1.71547652b82fep+0 + 0x1.8p52, n = whole - 0x1.8p52, r, q;
    int64_t power, bits;
    r = x - n * 0x1.62e42fefap-1;               /* ln 2 in two parts: n times the first is */
    r = r - n * 0x1.cf79abc9e3b3ap-40;          /* exact */
    q = 2.510038549551032e-08;
    q = q * r + 2.7620088445409746e-07;
    q = q * r + 2.7557268459997064e-06;
    q = q * r + 2.4801521295954376e-05;
    q = q * r + 0.00019841269863053618;
    q = q * r + 0.0013888888917213717;
    q = q * r + 0.008333333333330062;
    q = q * r + 0.04166666666662413;
    q = q * r + 0.16666666666666669;
    q = q * r + 0.5000000000000001;
    q = 1 + (r + r * r * q);
    memcpy(&power, &whole, sizeof power);
    memcpy(&bits, &q, sizeof bits);
    bits = (int64_t) ((uint64_t) bits + ((uint64_t) power << 52));
    memcpy(&q, &bits, sizeof q);
    q = x < -708 ? 0 : q;
    return x > 709.7827 ? (double) INFINITY : x == x ? q : x;
}

static inline float sklseq_exp_float(float x) {
    float whole = x * 0x1.715476p+0f + 0x1.8p23f, n = whole - 0x1.8p23f, r, q;
    int32_t power, bits;
    r = x - n * 0x1.62ep-1f;
    r = r - n * 0x1.0bfbe8p-15f;
    q = 0.0013926183587713494f;
    q = q * r + 0.008363179052722578f;
    q = q * r + 0.041666554617204574f;
    q = q * r + 0.16666576966989775f;
    q = q * r + 0.5f;
    q = 1 + (r + r * r * q);
    memcpy(&power, &whole, sizeof power);
    memcpy(&bits, &q, sizeof bits);
    bits = (int32_t) ((uint32_t) bits + ((uint32_t) power << 23));
    memcpy(&q, &bits, sizeof q);
    q = x < -87 ? 0 : q;
    return x > 88.72f ? INFINITY : x == x ? q : x;
}

/* Registers of 512 bits, where the processor has them: the same operations on more numbers. */
#if defined(__FMA__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) \
    && !defined(__SANITIZE_ADDRESS__)
#define SKLSEQ_WIDE __attribute__((noinline, target_clones("avx512f", "default"))) static
#else
#define SKLSEQ_WIDE static
#endif
SKLSEQ_WIDE void sklseq_exp_doubles(const double* x, double* out, Py_ssize_t n) {
    Py_ssize_t k;
    for (k = 0; k < n; k++) out[k] = sklseq_exp_double(x[k]);
}
SKLSEQ_WIDE void sklseq_exp_floats(const float* x, float* out, Py_ssize_t n) {
    Py_ssize_t k;
    for (k = 0; k < n; k++) out[k] = sklseq_exp_float(x[k]);
}

#endif

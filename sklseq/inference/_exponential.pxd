"""exp of many numbers: as exact as the C library's, as fast with any registers.

x = k · ln 2 + r with k whole and |r| ≤ ln 2 / 2; exp(x) = 2^k · (1 + r + r² · q(r)), where q is the
polynomial that is nearest to (exp(r) - 1 - r) / r² in the largest error, below 2e-17 of exp(r) for
double (degree 9), 1e-8 for float (degree 4). Adding 1.5 · 2^52 (2^23) to x / ln 2 rounds it, and
leaves k in the lowest bits, from where a shift takes it into the exponent of 2^k.

What would not be a normal number is 0, what would be above 2^1023.5 (2^127.5) is infinite; -inf
gives 0 and NaN gives NaN.
"""

from sklseq._lanes cimport real


cdef extern from *:
    """
    #include <math.h>
    #include <stdint.h>
    #include <string.h>

    static inline double sklseq_exp_double(double x) {
        double whole = x * 0x1.71547652b82fep+0 + 0x1.8p52, k = whole - 0x1.8p52, r, q, power;
        int64_t bits;
        r = x - k * 0x1.62e42fefap-1;               /* ln 2 in two parts: k times the first is */
        r = r - k * 0x1.cf79abc9e3b3ap-40;          /* exact */
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
        memcpy(&bits, &whole, sizeof bits);
        bits = (int64_t) (((uint64_t) bits + 1023) << 52);
        memcpy(&power, &bits, sizeof power);
        q = x < -708 ? 0 : q * power;
        return x > 709.4 ? (double) INFINITY : q;
    }

    static inline float sklseq_exp_float(float x) {
        float whole = x * 0x1.715476p+0f + 0x1.8p23f, k = whole - 0x1.8p23f, r, q, power;
        int32_t bits;
        r = x - k * 0x1.62ep-1f;
        r = r - k * 0x1.0bfbe8p-15f;
        q = 0.0013926183587713494f;
        q = q * r + 0.008363179052722578f;
        q = q * r + 0.041666554617204574f;
        q = q * r + 0.16666576966989775f;
        q = q * r + 0.5f;
        q = 1 + (r + r * r * q);
        memcpy(&bits, &whole, sizeof bits);
        bits = (int32_t) (((uint32_t) bits + 127) << 23);
        memcpy(&power, &bits, sizeof power);
        q = x < -87 ? 0 : q * power;
        return x > 88.3f ? INFINITY : q;
    }
    """
    double sklseq_exp_double(double) noexcept nogil
    float sklseq_exp_float(float) noexcept nogil


cdef inline void exponentials(real* x, Py_ssize_t n) noexcept nogil:
    # x(k) = exp(x(k))
    cdef Py_ssize_t k
    for k in range(n):
        if real is float:
            x[k] = sklseq_exp_float(x[k])
        else:
            x[k] = sklseq_exp_double(x[k])

"""Fast checksum of bytes, to detect changes.

Two sums run over words of 64 bits in 16 lanes, modulo 2^64 (Fletcher's checksum, 1982):

    a += x,   b += a,   with x = word xor (word >> 32).

`a` changes if one word changes and `b` if one word moves. The shift mixes in the upper bits,
because the lower bits of floating-point numbers are often 0. The checksum is not cryptographic: it
is easy to construct two blocks with equal checksums.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

cdef enum:
    LANES = 16


cdef inline uint64_t mixed(uint64_t h, uint64_t x) noexcept nogil:
    h = (h ^ x) * <uint64_t> 0x9E3779B97F4A7C15
    return h ^ (h >> 32)


def checksum(const unsigned char[::1] values, uint64_t seed=0):
    """64 bits; different bytes or seeds collide with a probability of about 2^-64."""
    cdef uint64_t a[LANES]
    cdef uint64_t b[LANES]
    cdef uint64_t x
    cdef Py_ssize_t n = values.shape[0], size = 8 * LANES, at = 0, k
    cdef const unsigned char* p = &values[0] if n else NULL
    cdef uint64_t h = mixed(mixed(seed, LANES), <uint64_t> n)
    with nogil:
        for k in range(LANES):
            a[k] = b[k] = 0
        while at + size <= n:
            for k in range(LANES):
                memcpy(&x, p + at + 8 * k, 8)
                a[k] += x ^ (x >> 32)
                b[k] += a[k]
            at += size
        for k in range(LANES):
            if at < n:
                x = 0
                memcpy(&x, p + at, min(8, n - at))
                a[k] += x ^ (x >> 32)
                b[k] += a[k]
                at += 8
        for k in range(LANES):
            h = mixed(mixed(h, a[k]), b[k])
    return h

"""Hashes of strings and of pairs of codes, equal in every process and on every platform."""

from cpython.object cimport PyObject
from cpython.unicode cimport (
    PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND, PyUnicode_READ,
)
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef extern from * nogil:
    uint64_t BASE "0x9E3779B97F4A7C15ULL"  # of the polynomial: any odd number


cdef inline uint32_t letter(int kind, void *data, Py_ssize_t i) noexcept:
    return <uint32_t>PyUnicode_READ(kind, data, i)


cdef inline uint64_t hash_on(uint64_t h, PyObject *text) noexcept:
    # h = h * BASE + letter for each letter, so that hashing "key", ":" and "value" in turn hashes
    # "key:value". Four letters at a time shorten the chain of multiplications.
    cdef uint64_t b2 = BASE * BASE, b3 = BASE * BASE * BASE, b4 = b2 * b2
    cdef Py_ssize_t i = 0, n = PyUnicode_GET_LENGTH(<object>text)
    cdef int kind = PyUnicode_KIND(<object>text)
    cdef void *data = PyUnicode_DATA(<object>text)
    cdef const uint8_t *p = <const uint8_t *>data
    if kind == 1:
        while i + 4 <= n:
            h = h * b4 + p[i] * b3 + p[i + 1] * b2 + p[i + 2] * BASE + p[i + 3]
            i += 4
    while i < n:
        h = h * BASE + letter(kind, data, i)
        i += 1
    return h


cdef inline uint64_t power_of_base(Py_ssize_t n) noexcept nogil:
    """BASE ** n, the factor of a hash when n letters are appended."""
    cdef uint64_t power = 1, square = BASE
    while n > 0:
        if n & 1:
            power *= square
        square *= square
        n >>= 1
    return power


cdef inline uint64_t mixed(uint64_t h) noexcept nogil:
    h = (h ^ (h >> 32)) * <uint64_t>0xD6E8FEB86659FD93
    return h ^ (h >> 32)


cdef inline uint64_t slot_of(uint64_t key, int shift) noexcept nogil:
    # Fibonacci hashing; folding first makes the kept bits depend on both codes of a pair.
    return ((key ^ (key >> 32)) * <uint64_t>0x9E3779B97F4A7C15) >> shift

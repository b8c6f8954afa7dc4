"""Declarations and inlined look-ups of the hash table of names."""

from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memcpy

from sklseq._lib.prefetch cimport prefetch
from sklseq.features._hash cimport letter

cdef enum:
    COLON = 58
    WORD = 8  # bytes


cdef struct NameSlot:
    uint32_t tag  # low bits of the hash, which distinguish most names without comparing them
    uint32_t code  # number + 1; 0: free
    uint32_t start  # word of ``letters`` at which the name begins
    uint32_t size  # number of letters << 3 | bytes of each


cdef class NameTable:
    cdef readonly list names
    cdef object memory, pool  # own the slots and the letters
    cdef NameSlot *slots
    cdef uint64_t *letters  # of all names in turn, so that frequent names share cache lines
    cdef uint64_t mask, n_words
    cdef int _resize(self, Py_ssize_t at_least) except -1
    cdef int _put(self, uint64_t hash, PyObject *name, uint64_t code, uint64_t start) except -1
    cdef int _store(self, PyObject *name) except -1
    cdef int32_t insert(self, PyObject *key, PyObject *value, uint64_t hash) except -1


cdef inline bint same_bytes(const char *a, const char *b, Py_ssize_t n) noexcept nogil:
    # Names are short: words, the last of which may overlap, cost less than a call of memcmp.
    cdef uint64_t x, y, differ = 0
    cdef uint32_t u, v
    cdef Py_ssize_t i = 0
    if n < 4:
        for i in range(n):
            differ |= a[i] ^ b[i]
        return differ == 0
    if n < WORD:
        memcpy(&u, a, 4)
        memcpy(&v, b, 4)
        differ = u ^ v
        memcpy(&u, a + n - 4, 4)
        memcpy(&v, b + n - 4, 4)
        return (differ | (u ^ v)) == 0
    while i < n:
        i = min(i, n - WORD)
        memcpy(&x, a + i, WORD)
        memcpy(&y, b + i, WORD)
        if x != y:
            return False
        i += WORD
    return True


cdef inline bint has_at(int kind, const char *name, Py_ssize_t start, PyObject *text) noexcept:
    """Whether ``name[start:]`` begins with ``text``; ``name`` is long enough."""
    cdef Py_ssize_t i, n = PyUnicode_GET_LENGTH(<object>text)
    cdef int text_kind = PyUnicode_KIND(<object>text)
    cdef void *data = PyUnicode_DATA(<object>text)
    if kind == text_kind:
        return same_bytes(name + start * kind, <const char *>data, n * kind)
    for i in range(n):
        if letter(kind, <void *>name, start + i) != letter(text_kind, data, i):
            return False
    return True


cdef inline bint is_named(
    NameTable table, const NameSlot *slot, PyObject *key, PyObject *value
) noexcept:
    """Whether the name in the slot is ``key``, or "key:value"."""
    cdef const char *name = <const char *>(table.letters + slot.start)
    cdef int kind = slot.size & 7
    cdef Py_ssize_t n = slot.size >> 3, n_key = PyUnicode_GET_LENGTH(<object>key)
    if value == NULL:
        return n == n_key and has_at(kind, name, 0, key)
    if n != n_key + 1 + PyUnicode_GET_LENGTH(<object>value):
        return False
    return (
        letter(kind, <void *>name, n_key) == COLON
        and has_at(kind, name, n_key + 1, value)
        and has_at(kind, name, 0, key)
    )


cdef inline NameSlot *first_slot(NameTable table, uint64_t hash) noexcept:
    return table.slots + ((hash >> 32) & table.mask)


cdef inline int32_t find_name(
    NameTable table, PyObject *key, PyObject *value, uint64_t hash
) noexcept:
    """Return the number of the name ``key`` or "key:value" with this hash, or -1."""
    cdef uint64_t at = (hash >> 32) & table.mask
    cdef NameSlot *slot = table.slots + at
    while slot.code != 0:
        if slot.tag == <uint32_t>hash and is_named(table, slot, key, value):
            return <int32_t>(slot.code - 1)
        at = (at + 1) & table.mask
        slot = table.slots + at
    return -1


cdef inline void prefetch_name(NameTable table, uint64_t hash) noexcept:
    """Prefetch the name in the first slot; the slot must be in the cache."""
    cdef NameSlot *slot = first_slot(table, hash)
    cdef const char *name = <const char *>(table.letters + slot.start)
    prefetch(name)
    prefetch(name + (slot.size >> 3))

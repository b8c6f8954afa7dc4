"""Declarations and inlined look-ups of the hash table of names."""

from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memcmp

from sklseq._lib.prefetch cimport prefetch
from sklseq.features._hash cimport letter

cdef enum:
    COLON = 58


cdef struct NameSlot:
    uint32_t tag  # low bits of the hash, which distinguish most names without comparing them
    uint32_t code  # number + 1; 0: free
    PyObject *name


cdef class NameTable:
    cdef readonly list names
    cdef object memory  # owns the slots
    cdef NameSlot *slots
    cdef uint64_t mask
    cdef int _resize(self, Py_ssize_t at_least) except -1
    cdef int _put(self, uint64_t hash, PyObject *name, uint32_t code) except -1
    cdef int32_t insert(self, PyObject *key, PyObject *value, uint64_t hash) except -1


cdef inline bint has_at(PyObject *name, Py_ssize_t start, PyObject *text) noexcept:
    """Whether ``name[start:]`` begins with ``text``; ``name`` is long enough."""
    cdef Py_ssize_t i, n = PyUnicode_GET_LENGTH(<object>text)
    cdef int kind = PyUnicode_KIND(<object>name), text_kind = PyUnicode_KIND(<object>text)
    cdef void *data = PyUnicode_DATA(<object>name)
    cdef void *text_data = PyUnicode_DATA(<object>text)
    if kind == text_kind:
        return memcmp(<char *>data + start * kind, text_data, n * kind) == 0
    for i in range(n):
        if letter(kind, data, start + i) != letter(text_kind, text_data, i):
            return False
    return True


cdef inline bint is_named(PyObject *name, PyObject *key, PyObject *value) noexcept:
    """Whether the name is ``key``, or "key:value"."""
    cdef Py_ssize_t n = PyUnicode_GET_LENGTH(<object>name)
    cdef Py_ssize_t n_key = PyUnicode_GET_LENGTH(<object>key)
    if value == NULL:
        return n == n_key and has_at(name, 0, key)
    if n != n_key + 1 + PyUnicode_GET_LENGTH(<object>value):
        return False
    return (
        letter(PyUnicode_KIND(<object>name), PyUnicode_DATA(<object>name), n_key) == COLON
        and has_at(name, n_key + 1, value)
        and has_at(name, 0, key)
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
        if slot.tag == <uint32_t>hash and is_named(slot.name, key, value):
            return <int32_t>(slot.code - 1)
        at = (at + 1) & table.mask
        slot = table.slots + at
    return -1


cdef inline void prefetch_name(NameTable table, uint64_t hash) noexcept:
    """Prefetch the name in the first slot; the slot must be in the cache."""
    cdef const char *name = <const char *>first_slot(table, hash).name
    prefetch(name)
    prefetch(name + 64)  # a string's letters begin 40 bytes in

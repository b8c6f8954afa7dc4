"""Hash table from names of attributes to the numbers of their columns, for ``DictFeatures``."""

from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stdint cimport int32_t, uint32_t, uint64_t
from libc.string cimport memcpy

import numpy as np

from sklseq.features._hash cimport hash_on, mixed


cdef class NameTable:
    """Numbers of names, found by a pair (key, value) without building "key:value".

    The table can be rebuilt from the names, so it is not pickled. Look-ups do not change it, so
    threads may share it.
    """

    def __cinit__(self, names=()):
        cdef PyObject *text
        self.names, self.pool, self.n_words = [], np.empty(256, dtype=np.uint64), 0
        self.letters = <uint64_t *><size_t>self.pool.ctypes.data
        self._resize(max(256, 2 * len(names)))
        for name in names:
            text = <PyObject *>name
            self.insert(text, NULL, mixed(hash_on(0, text)))

    cdef int _resize(self, Py_ssize_t at_least) except -1:
        cdef uint64_t code = 0, start = 0
        cdef PyObject *text
        memory = np.zeros((1 << (at_least - 1).bit_length(), 2), dtype=np.uint64)
        self.memory, self.mask = memory, len(memory) - 1
        self.slots = <NameSlot *><size_t>memory.ctypes.data
        for name in self.names:
            code += 1
            text = <PyObject *>name
            self._put(mixed(hash_on(0, text)), text, code, start)
            start += words_of(text)
        return 0

    cdef int _put(self, uint64_t hash, PyObject *name, uint64_t code, uint64_t start) except -1:
        cdef uint64_t at = (hash >> 32) & self.mask
        cdef uint64_t size = PyUnicode_GET_LENGTH(<object>name) << 3 | PyUnicode_KIND(<object>name)
        if (size | start) >> 32 != 0:
            raise OverflowError("The names of attributes have more than 32 GB of letters.")
        while self.slots[at].code != 0:
            at = (at + 1) & self.mask
        self.slots[at] = NameSlot(<uint32_t>hash, <uint32_t>code, <uint32_t>start, <uint32_t>size)
        return 0

    cdef int _store(self, PyObject *name) except -1:
        """Copy the letters of a name behind those of the others."""
        cdef uint64_t stop = self.n_words + words_of(name)
        if stop > <uint64_t>len(self.pool):
            self.pool.resize(2 * stop, refcheck=False)
            self.letters = <uint64_t *><size_t>self.pool.ctypes.data
        memcpy(self.letters + self.n_words, PyUnicode_DATA(<object>name), n_bytes(name))
        self.n_words = stop
        return 0

    cdef int32_t insert(self, PyObject *key, PyObject *value, uint64_t hash) except -1:
        """Add a name with this hash, which is not in the table; return its number."""
        cdef str name = plain(key)
        if value != NULL:
            name = name + ":" + plain(value)
        if <uint64_t>(2 * len(self.names)) >= self.mask:
            self._resize(8 * len(self.names))
        self._put(hash, <PyObject *>name, len(self.names) + 1, self.n_words)
        self._store(<PyObject *>name)
        self.names.append(name)
        return <int32_t>(len(self.names) - 1)


cdef inline str plain(PyObject *text):
    # Subclasses of str, as numpy.str_, would keep more than their letters.
    return <str>text if type(<object>text) is str else str.__str__(<object>text)


cdef inline uint64_t n_bytes(PyObject *name) noexcept:
    return PyUnicode_GET_LENGTH(<object>name) * PyUnicode_KIND(<object>name)


cdef inline uint64_t words_of(PyObject *name) noexcept:
    return (n_bytes(name) + WORD - 1) // WORD

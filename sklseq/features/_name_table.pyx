"""Hash table from names to numbers: columns of attributes, or codes of tokens.

``DictFeatures``, ``TemplateFeatures`` and the readers of token columns use it.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, uint32_t, uint64_t

import numpy as np

from sklseq.features._hash cimport hash_on, mixed


cdef class NameTable:
    """Numbers of names, found by a pair (key, value) without building "key:value".

    The table can be rebuilt from the names, so it is not pickled. Look-ups do not change it, so
    threads may share it.
    """

    def __cinit__(self, names=()):
        cdef PyObject *text
        self.names = []
        self._resize(max(256, 2 * len(names)))
        for name in names:
            text = <PyObject *>name
            self.insert(text, NULL, mixed(hash_on(0, text)))

    cdef int _resize(self, Py_ssize_t at_least) except -1:
        cdef uint64_t code = 0
        memory = np.zeros((1 << (at_least - 1).bit_length(), 2), dtype=np.uint64)
        self.memory, self.mask = memory, len(memory) - 1
        self.slots = <NameSlot *><size_t>memory.ctypes.data
        for name in self.names:
            code += 1
            self._put(mixed(hash_on(0, <PyObject *>name)), <PyObject *>name, <uint32_t>code)
        return 0

    cdef int _put(self, uint64_t hash, PyObject *name, uint32_t code) except -1:
        cdef uint64_t at = (hash >> 32) & self.mask
        while self.slots[at].code != 0:
            at = (at + 1) & self.mask
        self.slots[at] = NameSlot(<uint32_t>hash, code, name)
        return 0

    cdef int32_t insert(self, PyObject *key, PyObject *value, uint64_t hash) except -1:
        """Add a name with this hash, which is not in the table; return its number."""
        cdef str name = str.__str__(<object>key)
        if value != NULL:
            name = name + ":" + str.__str__(<object>value)
        if <uint64_t>(2 * len(self.names)) >= self.mask:
            self._resize(8 * len(self.names))
        self.names.append(name)
        self._put(hash, <PyObject *>name, <uint32_t>len(self.names))
        return <int32_t>(len(self.names) - 1)

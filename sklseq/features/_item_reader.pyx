"""Reader of items (dicts or collections of attribute strings), which numbers attribute names.

An item is walked once. Its keys and values are queued as pointers and looked up in batches: types
and hashes, then the slots of the table, then the names in them, so that the cache misses of one
attribute overlap with the work on the others. "key:value" is built only for the vocabulary.
"""

from cpython.dict cimport PyDict_Next
from cpython.object cimport PyObject
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint64_t, uintptr_t
from libc.string cimport memset

from sklseq._lib.prefetch cimport prefetch
from sklseq.features._hash cimport BASE, hash_on, mixed
from sklseq.features._name_table cimport (
    COLON, NameTable, find_name, first_slot, prefetch_name,
)

from collections.abc import Mapping

import numpy as np

cdef extern from *:
    # The macros of Python, which take pointers: queued objects are not counted.
    bint is_text "PyUnicode_CheckExact"(PyObject *x) noexcept
    bint is_bool "PyBool_Check"(PyObject *x) noexcept
    bint is_int "PyLong_CheckExact"(PyObject *x) noexcept
    bint is_float "PyFloat_Check"(PyObject *x) noexcept
    double float_of "PyFloat_AS_DOUBLE"(PyObject *x) noexcept
    long long int_of "PyLong_AsLongLongAndOverflow"(PyObject *x, int *overflow) except? -1
    PyObject *TRUE "Py_True"
    void hold "Py_XINCREF"(PyObject *x) noexcept
    void let_go "Py_XDECREF"(PyObject *x) noexcept

cdef enum:
    QUEUED = 64  # attributes looked up together
    SCANNED = 64  # attributes of a row up to which duplicates are found by linear search
    KEYS = 256  # keys remembered, a power of two
    PROBED = 4  # places in which a key may be remembered


cdef struct Query:  # the attribute ``key``, or "key:value"
    PyObject *key
    PyObject *value  # NULL: none
    uint64_t hash
    double weight
    Py_ssize_t row  # of its sequence
    int32_t number  # -1: to look up
    bint is_odd  # not of the types that batched look-ups support


def in_order(names):
    """Return names as a list. Sets are sorted: their own order differs between processes."""
    if not isinstance(names, (set, frozenset)):
        return list(names)
    try:
        return sorted(names)
    except TypeError:  # str and bytes
        return sorted(names, key=repr)


# --- items to rows -----------------------------------------------------------------------

def read_items(list sequences, NameTable table, bint grow, uint64_t n_hashed=0):
    """Read items as python-crfsuite does.

    With ``n_hashed = 2**k``, numbers are hashes of names and the table stays empty.

    Returns indices (int32), weights (float64; None: all are 1), indptr, offsets (int64), and
    whether a row may contain an attribute twice.
    """
    cdef ItemReader reader = ItemReader(table, grow, n_hashed)
    cdef list offsets = [0]
    for reader.sequence, sequence in enumerate(sequences):
        if type(sequence) is not list:
            if isinstance(sequence, (str, bytes, Mapping)) or not hasattr(sequence, "__iter__"):
                raise ValueError(
                    f"Sequence {reader.sequence} of X must be a list of items (dicts or "
                    f"collections of strings); got {type(sequence).__name__}. Wrap a single "
                    "sequence in a list."
                )
            sequence = list(sequence)
        reader.read_sequence(sequence)
        offsets.append(reader.n_rows)
    return *reader.arrays(), np.array(offsets, dtype=np.int64), reader.unchecked


cdef struct Key:
    PyObject *text  # owned, so that no other string has its address
    uint64_t hash  # before mixing
    int32_t number  # of the attribute ``text``; -1: not known, or none


cdef class ItemReader:
    """Converter of items to attribute numbers and weights.

    Queued objects belong to their items. Python code of the user, which might change an item, runs
    only for odd objects, and then the queue owns what it refers to.
    """

    cdef NameTable table
    cdef uint64_t n_hashed
    cdef bint grow, all_ones, unchecked
    cdef object indices_array, weights_array, ends_array
    cdef int32_t[::1] indices
    cdef double[::1] weights
    cdef int64_t[::1] ends  # of rows
    cdef Key keys[KEYS]  # the same few objects are the keys of most dicts
    cdef Query queue[QUEUED]
    cdef Py_ssize_t n_queued
    cdef Py_ssize_t n, n_rows  # attributes, and rows of which all attributes are written
    cdef Py_ssize_t first, sequence, row  # first: where the current row starts

    def __cinit__(self, NameTable table, bint grow, uint64_t n_hashed):
        self.table, self.grow, self.n_hashed = table, grow, n_hashed
        self.all_ones, self.unchecked, self.n_queued, self.n, self.n_rows = True, False, 0, 0, 0
        self.indices_array, self.weights_array = np.empty(1024, dtype=np.int32), None
        self.ends_array = np.empty(256, dtype=np.int64)
        self.indices, self.ends = self.indices_array, self.ends_array
        self.ends[0] = 0
        memset(self.keys, 0, sizeof(self.keys))

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(KEYS):
            let_go(self.keys[i].text)

    cdef tuple arrays(self):
        """Return indices, weights and indptr, cut to their final lengths."""
        self.indices = self.weights = self.ends = None
        self.indices_array.resize(self.n, refcheck=False)
        if not self.all_ones:
            self.weights_array.resize(self.n, refcheck=False)
        self.ends_array.resize(self.n_rows + 1, refcheck=False)
        return self.indices_array, self.weights_array, self.ends_array

    cdef int read_sequence(self, list items) except -1:
        cdef Py_ssize_t row = 0
        self.row, self.first = 0, self.n
        for item in items:
            if isinstance(item, dict):
                self._queue_dict(item, row)
            elif type(item) is list:
                self._queue_names(item, row)
            else:
                self._queue_other(item, row)
            row += 1
        self._empty_queue()
        self._end_rows(row)
        return 0

    # --- the queue ---

    cdef inline int _enqueue(self, PyObject *key, PyObject *value, Py_ssize_t row) except -1:
        prefetch(key if value == NULL else value)
        prefetch(<const char *>(key if value == NULL else value) + 48)  # the letters
        self.queue[self.n_queued] = Query(key, value, 0, 1.0, row, -1, False)
        self.n_queued += 1
        return 0 if self.n_queued < QUEUED else self._empty_queue()

    cdef int _queue_dict(self, object item, Py_ssize_t row) except -1:
        cdef PyObject *key
        cdef PyObject *value
        cdef Py_ssize_t at = 0
        while PyDict_Next(item, &at, &key, &value):
            self._enqueue(key, value, row)
        return 0

    cdef int _queue_names(self, list names, Py_ssize_t row) except -1:
        for name in names:
            self._enqueue(<PyObject *>name, NULL, row)
        return 0

    cdef int _queue_other(self, object item, Py_ssize_t row) except -1:
        """Read an item whose keys and values may be freed after this call."""
        self._empty_queue()
        self._end_rows(row)
        if isinstance(item, Mapping):
            pairs = [(key, item[key]) for key in item]
            for key, value in pairs:
                self._enqueue(<PyObject *>key, <PyObject *>value, row)
        else:
            if isinstance(item, (str, bytes)) or not hasattr(item, "__iter__"):
                raise self._error("an item", item, "a dict or a collection of strings")
            pairs = in_order(item)
            self._queue_names(pairs, row)
        return self._empty_queue()

    cdef int _empty_queue(self) except -1:
        cdef Py_ssize_t i, n = self.n_queued
        cdef bint any_is_odd = self._hash_queued()
        self.n_queued = 0
        if not any_is_odd:
            return self._add_queued(n)
        for i in range(n):
            hold(self.queue[i].key)
            hold(self.queue[i].value)
        try:
            return self._add_queued(n)
        finally:
            for i in range(n):
                let_go(self.queue[i].key)
                let_go(self.queue[i].value)

    cdef bint _hash_queued(self) except -1:
        """Hash the queued attributes; return whether some are of other types (``is_odd``)."""
        cdef Py_ssize_t i
        cdef bint any_is_odd = False
        cdef Key *key
        cdef Query *query
        for i in range(self.n_queued):
            query = &self.queue[i]
            if not is_text(query.key):
                query.is_odd = True
            elif query.value == NULL:
                query.hash = mixed(hash_on(0, query.key))
            else:
                key = self._key(query.key)
                if is_text(query.value):
                    query.hash = mixed(hash_on(key.hash * BASE + COLON, query.value))
                elif self._is_plain_number(query.value, &query.weight):
                    query.value, query.hash = NULL, mixed(key.hash)
                    if key.number < 0:
                        key.number = find_name(self.table, query.key, query.value, query.hash)
                    query.number = key.number
                else:
                    query.is_odd = True
            any_is_odd |= query.is_odd
            prefetch(first_slot(self.table, query.hash))
        return any_is_odd

    cdef inline bint _is_plain_number(self, PyObject *value, double *weight) except -1:
        cdef int overflow = 0
        if is_bool(value):
            weight[0] = value == TRUE
        elif is_float(value):
            weight[0] = float_of(value)
        elif is_int(value):
            weight[0] = <double>int_of(value, &overflow)
        else:
            return False
        return not overflow and isfinite(weight[0])

    cdef inline Key *_key(self, PyObject *text) except NULL:
        """Return the hash of a key, cached by its address."""
        cdef uint64_t home = (<uint64_t><uintptr_t>text * BASE) >> 32, i
        cdef Key *key
        for i in range(PROBED):
            key = &self.keys[(home + i) & (KEYS - 1)]
            if key.text == text:
                return key
            if key.text == NULL:
                break
        hold(text)
        let_go(key.text)
        key[0] = Key(text, hash_on(0, text), -1)
        return key

    cdef int _add_queued(self, Py_ssize_t n) except -1:
        cdef Py_ssize_t i
        cdef Query *query
        for i in range(0 if self.n_hashed else n):
            prefetch_name(self.table, self.queue[i].hash)
        for i in range(n):
            query = &self.queue[i]
            self._end_rows(query.row)
            if query.is_odd:
                self._read_odd(query)
            elif query.number >= 0:
                self._add(query.number, query.weight)
            else:
                self._look_up(query)
        return 0

    cdef inline int _look_up(self, Query *query) except -1:
        """Add the attribute of a hashed query to the row."""
        cdef int32_t number
        if self.n_hashed:
            return self._add(<int32_t>(query.hash & (self.n_hashed - 1)), query.weight)
        number = find_name(self.table, query.key, query.value, query.hash)
        if number < 0 and self.grow:
            number = self.table.insert(query.key, query.value, query.hash)
        if number >= 0:
            self._add(number, query.weight)
        return 0

    # --- rows ---

    cdef inline int _end_rows(self, Py_ssize_t row) except -1:
        """Begin a row of the sequence."""
        while self.row < row:
            self.unchecked |= self.n - self.first > SCANNED
            self.row += 1
            self.n_rows += 1
            if self.n_rows == self.ends.shape[0]:
                self.ends = None
                self.ends_array.resize(2 * self.n_rows, refcheck=False)
                self.ends = self.ends_array
            self.ends[self.n_rows] = self.first = self.n
        return 0

    cdef inline int _add(self, int32_t number, double weight) except -1:
        cdef Py_ssize_t i, n = self.n - self.first
        cdef int32_t *row
        cdef bint found = False
        if self.n == self.indices.shape[0]:
            self._grow()
        if n <= SCANNED:
            row = &self.indices[self.first]
            for i in range(n):  # to the end: a loop of vectors
                found |= row[i] == number
            if found:
                return self._add_again(number, weight)
        if self.all_ones and weight != 1.0:
            self._store_weights()
        if not self.all_ones:
            self.weights[self.n] = weight
        self.indices[self.n] = number
        self.n += 1
        return 0

    cdef int _add_again(self, int32_t number, double weight) except -1:
        cdef Py_ssize_t i = self.first
        if self.all_ones:
            self._store_weights()
        while self.indices[i] != number:
            i += 1
        self.weights[i] += weight
        return 0

    cdef int _grow(self) except -1:
        # In place if the system can do so: new memory costs more than writing the values.
        self.indices = self.weights = None
        self.indices_array.resize(2 * len(self.indices_array), refcheck=False)
        self.indices = self.indices_array
        if not self.all_ones:
            self.weights_array.resize(len(self.indices_array), refcheck=False)
            self.weights = self.weights_array
        return 0

    cdef int _store_weights(self) except -1:
        # Most data needs no weights: weights are stored only from the first one that is not 1.
        self.all_ones = False
        self.weights_array = np.empty(len(self.indices_array))
        self.weights = self.weights_array
        self.weights[: self.n] = 1.0
        return 0

    # --- odd objects ---

    cdef int _read_odd(self, Query *query) except -1:
        if query.value == NULL:
            return self._read_name(self._text(<object>query.key, "an attribute"), None, 1.0)
        return self._read_pair(self._text(<object>query.key, "a key"), <object>query.value)

    cdef int _read_pair(self, str key, object value) except -1:
        if isinstance(value, (str, bytes)):
            return self._read_name(key, self._text(value, "a value"), 1.0)
        if isinstance(value, dict):
            for inner, inner_value in (<dict>value).items():
                self._read_pair(key + ":" + self._text(inner, "a key"), inner_value)
            return 0
        if isinstance(value, (list, set, frozenset)):
            for name in in_order(value):
                self._read_name(key, self._text(name, "an attribute"), 1.0)
            return 0
        return self._read_name(key, None, self._weight(key, value))

    cdef int _read_name(self, str key, str value, double weight) except -1:
        cdef uint64_t h = hash_on(0, <PyObject *>key)
        cdef Query query = Query(<PyObject *>key, NULL, 0, weight, self.row, -1, False)
        if value is not None:
            query.value = <PyObject *>value
            h = hash_on(h * BASE + COLON, query.value)
        query.hash = mixed(h)
        return self._look_up(&query)

    cdef str _text(self, object name, str what):
        if isinstance(name, str):
            return str.__str__(name)
        if isinstance(name, bytes):
            try:
                return (<bytes>name).decode("utf-8")
            except UnicodeDecodeError:
                pass
        raise self._error(what, name, "a string, or bytes in UTF-8")

    cdef double _weight(self, str key, object value) except? -1.0:
        cdef double weight
        try:
            weight = value
        except OverflowError:
            weight = float("inf")
        except (TypeError, ValueError):
            raise self._error(
                f"the value of {key!r:.60}", value,
                "a string, a number or a dict, list or set of them",
            ) from None
        if not isfinite(weight):
            raise ValueError(
                f"Weights must be finite; attribute {key!r:.60} in row {self.row} of sequence "
                f"{self.sequence} of X is {weight}. Impute or drop it."
            )
        return weight

    cdef object _error(self, str what, object value, str allowed):
        return ValueError(
            f"In row {self.row} of sequence {self.sequence} of X, {what} must be {allowed}; got "
            f"{value!r:.60} ({type(value).__name__}). Convert or drop it."
        )

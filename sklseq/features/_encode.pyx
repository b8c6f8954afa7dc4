"""Integer kernels of the extractors: strings become codes once, the rest is integer arithmetic.

A *code* is a positive int32; 0 means "no value" (outside the sequence, or never seen in training),
and every table maps it to "no attribute", so the loops need no tests for boundaries.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.math cimport isfinite
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.string cimport memcmp

from sklseq._lib.prefetch cimport prefetch
from sklseq.features._hash cimport BASE, hash_on, letter, mixed, slot_of

from collections.abc import Mapping

import numpy as np

cdef extern from * nogil:
    PyObject *item_of "PyList_GET_ITEM"(PyObject *a_list, Py_ssize_t i)

cdef enum:
    AHEAD = 12  # distance of prefetches, which hides a cache miss; more gained nothing
    COLON = 58
    QUEUED = 64  # attributes looked up together
    SCANNED = 64  # attributes of a row up to which duplicates are found by linear search
    BLOCK = 1024  # rows of a block, whose codes and table lines fit the second-level cache


# --- tokens to codes ----------------------------------------------------------------------

def encode_column(
    list sequences,  # of token lists, of lists of rows, or of lists of dict rows
    str form,  # "tokens", "rows" or "dicts"
    key,  # index (rows) or name (dicts) of the column
    dict vocabulary,  # token -> code; grows if grow      IN / OUT
    Py_ssize_t first_code,  # code of the vocabulary's first token
    const int64_t[::1] starts,  # (n_sequences,) position of each sequence's first row
    int32_t[::1] codes,  # (n_positions,)   OUT, only where there are rows
    bint grow,
):
    """Write the code of every token of a column; 0 for tokens outside the vocabulary."""
    cdef Py_ssize_t s, t, position, index = key if form == "rows" else 0
    cdef int kind = ("tokens", "rows", "dicts").index(form)
    cdef list rows
    cdef object token
    cdef PyObject *found
    for s in range(len(sequences)):
        rows = sequences[s] if type(sequences[s]) is list else list(sequences[s])
        position = starts[s]
        for t in range(len(rows)):
            if t + AHEAD < len(rows):  # the header and first letters of a string
                prefetch(item_of(<PyObject *>rows, t + AHEAD))
            token = rows[t]
            if kind == 1:
                token = _at(token, index, s, t)
            elif kind == 2:
                token = _named(token, key, s, t)
            if not isinstance(token, str):
                raise _not_a_string(token, s, t, key)
            found = PyDict_GetItemWithError(vocabulary, token)
            if found != NULL:
                codes[position + t] = <int32_t><object>found
            elif grow:
                codes[position + t] = <int32_t>(first_code + len(vocabulary))
                vocabulary[str.__str__(token)] = first_code + len(vocabulary)
            else:
                codes[position + t] = 0


cdef inline object _at(object row, Py_ssize_t index, Py_ssize_t s, Py_ssize_t t):
    if type(row) is tuple and index < len(<tuple>row):
        return (<tuple>row)[index]
    if type(row) is list and index < len(<list>row):
        return (<list>row)[index]
    if isinstance(row, str) or not hasattr(row, "__len__") or not hasattr(row, "__getitem__"):
        raise ValueError(
            f"Row {t} of sequence {s} of X must be a tuple or list of strings like the others; "
            f"got {row!r}."
        )
    if index >= len(row):
        raise ValueError(
            f"Row {t} of sequence {s} of X has {len(row)} values, but column number {index} is "
            "needed. Give every row all columns."
        )
    return row[index]


cdef inline object _named(object row, object name, Py_ssize_t s, Py_ssize_t t):
    try:
        return row[name]
    except (KeyError, TypeError, IndexError):
        raise ValueError(
            f"Row {t} of sequence {s} of X must be a dict with the column {name!r}; "
            f"got {row!r}."
        ) from None


cdef object _not_a_string(object token, Py_ssize_t s, Py_ssize_t t, object key):
    where = f"column number {key}" if isinstance(key, int) else f"column {key!r}"
    return ValueError(
        f"X must hold strings; row {t} of sequence {s}, {where}, is {token!r} "
        f"({type(token).__name__}). Convert it with str() or decode it."
    )


# --- pairs of codes to codes: open addressing, linear probing ----------------------------
#
# A slot is (key, code), key = first << 32 | second, never 0 because codes start at 1.
# Half of the slots stay free, so that a probe seldom leaves its cache line.

cdef inline uint64_t _key(int32_t first, int32_t second) noexcept nogil:
    return (<uint64_t>first << 32) | <uint64_t>second


def insert_pairs(
    const int32_t[::1] first,  # (n,) codes
    const int32_t[::1] second,  # (n,) codes
    uint64_t[:, ::1] slots,  # (capacity, 2)   IN / OUT
    int shift,  # 64 - log2(capacity)
    int32_t[::1] codes,  # (n,) code of each pair, by first occurrence   OUT
    Py_ssize_t i,  # the first pair to number
    Py_ssize_t n_known,  # pairs in the slots so far
):
    """Number the pairs until all are done or half the slots are full; return next i, n_known."""
    cdef Py_ssize_t n = first.shape[0], limit = slots.shape[0] // 2
    cdef uint64_t key, at, mask = slots.shape[0] - 1
    with nogil:
        while i < n and n_known < limit:
            if i + AHEAD < n:
                prefetch(&slots[slot_of(_key(first[i + AHEAD], second[i + AHEAD]), shift), 0])
            if first[i] == 0 or second[i] == 0:
                codes[i] = 0
            else:
                key = _key(first[i], second[i])
                at = slot_of(key, shift)
                while slots[at, 0] != key and slots[at, 0] != 0:
                    at = (at + 1) & mask
                if slots[at, 0] == 0:
                    n_known += 1
                    slots[at, 0] = key
                    slots[at, 1] = n_known
                codes[i] = <int32_t>slots[at, 1]
            i += 1
    return i, n_known


def fill_slots(const uint64_t[:, ::1] pairs, uint64_t[:, ::1] slots, int shift):
    """Store the (key, code) of ``pairs`` (key 0: none) into empty ``slots``."""
    cdef Py_ssize_t i
    cdef uint64_t at, mask = slots.shape[0] - 1
    with nogil:
        for i in range(pairs.shape[0]):
            if pairs[i, 0] == 0:
                continue
            at = slot_of(pairs[i, 0], shift)
            while slots[at, 0] != 0:
                at = (at + 1) & mask
            slots[at, 0] = pairs[i, 0]
            slots[at, 1] = pairs[i, 1]


# --- codes to attributes -----------------------------------------------------------------

def number_attributes(
    const int32_t[:, ::1] codes,  # (n_nodes, n_positions)
    const int64_t[::1] starts,  # (n_sequences,) position of the first row
    const int64_t[::1] lengths,  # (n_sequences,) rows
    const int64_t[:, ::1] readers,  # (n_templates, 4): node, shift, first entry, width
    int32_t[::1] table,  # attribute of each (code, template), -1 if none yet   OUT
    int32_t[::1] indices,  # (n_rows * n_templates,)   OUT
    int64_t[::1] indptr,  # (n_rows + 1,)   OUT
):
    """Number attributes by first occurrence, row by row; return their number."""
    cdef Py_ssize_t s, p, j, entry, row = 0, n = 0
    cdef int32_t code, n_attributes = 0
    with nogil:
        for s in range(starts.shape[0]):
            for p in range(starts[s], starts[s] + lengths[s]):
                for j in range(readers.shape[0]):
                    code = codes[readers[j, 0], p + readers[j, 1]]
                    if code == 0:
                        continue
                    entry = readers[j, 2] + code * readers[j, 3]
                    if table[entry] < 0:
                        table[entry] = n_attributes
                        n_attributes += 1
                    indices[n] = table[entry]
                    n += 1
                row += 1
                indptr[row] = n
    return n_attributes


def look_up_attributes(
    int32_t[:, ::1] codes,  # (n_nodes, n_positions): columns given, grams filled in   IN / OUT
    layout,  # positions of the rows
    Py_ssize_t first, Py_ssize_t stop,  # the sequences of this call
    const int64_t[:, ::1] grams,  # (n_grams, 7): see _fill_grams
    const uint64_t[:, ::1] slots,
    const int64_t[:, ::1] readers,  # (n_templates, 4): node, shift, first entry, width
    const int32_t[::1] table,
    int32_t[::1] indices,  # (rows of these sequences * n_templates + 1,)   OUT
    int64_t[::1] indptr,  # (n_rows + 1,): ends of these rows, counted from 0   OUT
):
    """Write the attributes of the rows of some sequences; return their number."""
    cdef const int64_t[::1] starts = layout.starts, offsets = layout.offsets
    cdef int before = layout.before, after = layout.after
    cdef Py_ssize_t s = first, stop_block, n = 0
    with nogil:
        while s < stop:
            stop_block = s + 1
            while stop_block < stop and offsets[stop_block + 1] - offsets[s] <= BLOCK:
                stop_block += 1
            _fill_grams(
                codes, starts[s] - before,
                starts[stop_block - 1] + offsets[stop_block] - offsets[stop_block - 1] + after,
                grams, slots, table,
            )
            n = _emit(codes, starts, offsets, s, stop_block, readers, table, indices, indptr, n)
            s = stop_block
    return n


cdef int _fill_grams(
    int32_t[:, ::1] codes, Py_ssize_t start, Py_ssize_t stop,
    const int64_t[:, ::1] grams,  # node, parent, column, shift, first slot, slot shift, mask
    const uint64_t[:, ::1] slots, const int32_t[::1] table,
) except -1 nogil:
    # A gram at p joins its parent's code at p with its column's code at p + shift.
    cdef Py_ssize_t g, p, low, high, base
    cdef uint64_t key, at, mask
    cdef int shift
    cdef int64_t node, parent, column, d
    for g in range(grams.shape[0]):
        node, parent, column, d = grams[g, 0], grams[g, 1], grams[g, 2], grams[g, 3]
        base, shift, mask = grams[g, 4], <int>grams[g, 5], <uint64_t>grams[g, 6]
        low, high = max(start, -d), min(stop, codes.shape[1] - d)
        for p in range(start, low):
            codes[node, p] = 0
        for p in range(high, stop):
            codes[node, p] = 0
        for p in range(low, high):
            if p + AHEAD < high:
                key = _key(codes[parent, p + AHEAD], codes[column, p + AHEAD + d])
                prefetch(&slots[base + slot_of(key, shift), 0])
            if codes[parent, p] == 0 or codes[column, p + d] == 0:
                codes[node, p] = 0
                continue
            key = _key(codes[parent, p], codes[column, p + d])
            at = slot_of(key, shift)
            while slots[base + at, 0] != key and slots[base + at, 0] != 0:
                at = (at + 1) & mask
            codes[node, p] = <int32_t>slots[base + at, 1]
    return 0


cdef Py_ssize_t _emit(
    const int32_t[:, ::1] codes, const int64_t[::1] starts, const int64_t[::1] offsets,
    Py_ssize_t first, Py_ssize_t stop, const int64_t[:, ::1] readers, const int32_t[::1] table,
    int32_t[::1] indices, int64_t[::1] indptr, Py_ssize_t n,
) except -1 nogil:
    cdef Py_ssize_t s, t, p, j
    cdef int32_t attribute
    for s in range(first, stop):
        for t in range(offsets[s + 1] - offsets[s]):
            p = starts[s] + t
            for j in range(readers.shape[0]):
                attribute = table[
                    readers[j, 2] + codes[readers[j, 0], p + readers[j, 1]] * readers[j, 3]
                ]
                indices[n] = attribute  # overwritten if there is none: no branch to mispredict
                n += attribute >= 0
            indptr[offsets[s] + t + 1] = n
    return n


# --- names to numbers --------------------------------------------------------------------

cdef struct NameSlot:
    uint32_t tag  # low bits of the hash, which distinguish most names without comparing them
    uint32_t code  # number + 1; 0: free
    PyObject *name


cdef struct Query:  # the attribute ``key``, or "key:value"
    PyObject *key
    PyObject *value  # NULL: none
    double weight
    uint64_t hash


cdef bint _has_at(PyObject *name, Py_ssize_t start, PyObject *text) noexcept:
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


cdef bint _is_named(PyObject *name, Query *query) noexcept:
    cdef Py_ssize_t n = PyUnicode_GET_LENGTH(<object>name)
    cdef Py_ssize_t n_key = PyUnicode_GET_LENGTH(<object>query.key)
    if query.value == NULL:
        return n == n_key and _has_at(name, 0, query.key)
    if n != n_key + 1 + PyUnicode_GET_LENGTH(<object>query.value):
        return False
    return (
        letter(PyUnicode_KIND(<object>name), PyUnicode_DATA(<object>name), n_key) == COLON
        and _has_at(name, n_key + 1, query.value) and _has_at(name, 0, query.key)
    )


cdef class NameTable:
    """Numbers of names, found by a pair (key, value) without building "key:value".

    It depends on the names alone and look-ups do not change it, so it need not be pickled and
    threads may share it.
    """

    cdef readonly list names
    cdef object memory  # owns the slots
    cdef NameSlot *slots
    cdef uint64_t mask

    def __cinit__(self, names=()):
        cdef Query query
        self.names = []
        self._resize(max(256, 2 * len(names)))
        for name in names:
            query.key, query.value = <PyObject *>name, NULL
            self.hash(&query)
            self.insert(&query)

    cdef int _resize(self, Py_ssize_t at_least) except -1:
        cdef Query query
        cdef uint64_t code = 0
        memory = np.zeros((1 << (at_least - 1).bit_length(), 2), dtype=np.uint64)
        self.memory, self.mask = memory, len(memory) - 1
        self.slots = <NameSlot *><size_t>memory.ctypes.data
        for name in self.names:
            code += 1
            query.key, query.value = <PyObject *>name, NULL
            self.hash(&query)
            self._put(&query, query.key, <uint32_t>code)
        return 0

    cdef inline void hash(self, Query *query) noexcept:
        cdef uint64_t h = hash_on(0, query.key)
        if query.value != NULL:
            h = hash_on(h * BASE + COLON, query.value)
        query.hash = mixed(h)

    cdef inline NameSlot *first_slot(self, Query *query) noexcept:
        return self.slots + ((query.hash >> 32) & self.mask)

    cdef int _put(self, Query *query, PyObject *name, uint32_t code) except -1:
        cdef uint64_t at = (query.hash >> 32) & self.mask
        while self.slots[at].code != 0:
            at = (at + 1) & self.mask
        self.slots[at] = NameSlot(<uint32_t>query.hash, code, name)
        return 0

    cdef int32_t find(self, Query *query) noexcept:
        """The number of a hashed query, or -1."""
        cdef uint64_t at = (query.hash >> 32) & self.mask
        cdef NameSlot *slot = self.slots + at
        while slot.code != 0:
            if slot.tag == <uint32_t>query.hash and _is_named(slot.name, query):
                return <int32_t>(slot.code - 1)
            at = (at + 1) & self.mask
            slot = self.slots + at
        return -1

    cdef int32_t insert(self, Query *query) except -1:
        """Number the name of a hashed query that is not in the table."""
        cdef str name = str.__str__(<object>query.key)
        if query.value != NULL:
            name = name + ":" + str.__str__(<object>query.value)
        if <uint64_t>(2 * len(self.names)) >= self.mask:
            self._resize(8 * len(self.names))
        self.names.append(name)
        self._put(query, <PyObject *>name, <uint32_t>len(self.names))
        return <int32_t>(len(self.names) - 1)


# --- items: dicts or collections of attribute strings ------------------------------------

def read_items(list sequences, NameTable table, bint grow, uint64_t n_hashed=0):
    """Read items as python-crfsuite does.

    With ``n_hashed = 2**k``, numbers are hashes of names and the table stays empty.

    Returns indices (int32), weights (float64; None: all are 1), indptr, offsets (int64), and
    whether a row may contain an attribute twice.
    """
    cdef ItemReader reader = ItemReader(table, grow, n_hashed)
    cdef list ends = [0], offsets = [0]
    for reader.sequence, sequence in enumerate(sequences):
        if isinstance(sequence, (str, bytes, Mapping)) or not hasattr(sequence, "__iter__"):
            raise ValueError(
                f"Sequence {reader.sequence} of X must be a list of items (dicts or collections "
                f"of strings); got {type(sequence).__name__}. Wrap a single sequence in a list."
            )
        reader.row = 0
        for item in sequence:
            reader.first = reader.n
            reader.read(item)
            if reader.n - reader.first > SCANNED:
                reader.unchecked = True
            ends.append(reader.n)
            reader.row += 1
        offsets.append(len(ends) - 1)
    return (
        reader.indices_array[:reader.n],
        None if reader.all_ones else reader.weights_array[:reader.n],
        np.array(ends, dtype=np.int64), np.array(offsets, dtype=np.int64), reader.unchecked,
    )


cdef class ItemReader:
    """Converter of items to attribute numbers and weights.

    Attributes are queued and looked up in a batch, so that the cache misses of one overlap with
    the work on the others. Queued strings must stay alive until the queue is emptied: the item
    owns its strings, and temporary strings are looked up at once.
    """

    cdef NameTable table
    cdef uint64_t n_hashed
    cdef bint grow, all_ones, unchecked
    cdef object indices_array, weights_array
    cdef int32_t[::1] indices
    cdef double[::1] weights
    cdef Query queue[QUEUED]
    cdef Py_ssize_t n_queued
    cdef Py_ssize_t n, first, sequence, row  # first: where the current row starts

    def __cinit__(self, NameTable table, bint grow, uint64_t n_hashed):
        self.table, self.grow, self.n_hashed = table, grow, n_hashed
        self.all_ones, self.unchecked, self.n, self.n_queued = True, False, 0, 0
        self.indices_array, self.weights_array = np.empty(1024, dtype=np.int32), None
        self.indices = self.indices_array

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
        # Most data needs no weights, so they are stored from the first that is not 1.
        self.all_ones = False
        self.weights_array = np.ones(len(self.indices_array))
        self.weights = self.weights_array
        return 0

    cdef int read(self, object item) except -1:
        if isinstance(item, dict):
            for key, value in (<dict>item).items():
                if type(key) is str and type(value) is str:
                    self._enqueue(<PyObject *>key, <PyObject *>value, 1.0)
                else:
                    self._read_pair(key, value)
        elif isinstance(item, Mapping):
            for key in item:
                self._read_pair(key, item[key])
        else:
            self._check_collection(item)
            names = item if type(item) is list else list(item)  # keeps the strings alive
            for name in <list>names:
                if type(name) is str:
                    self._enqueue(<PyObject *>name, NULL, 1.0)
                else:
                    self._look_up(self._text(name, "an attribute"), None, 1.0)
            self._empty_queue()
        return self._empty_queue()

    cdef int _read_nested(self, str prefix, object item) except -1:
        if isinstance(item, dict):
            for key, value in (<dict>item).items():
                self._read_pair(prefix + ":" + self._text(key, "a key"), value)
        else:
            for name in item:
                self._look_up(prefix, self._text(name, "an attribute"), 1.0)
        return 0

    cdef int _read_pair(self, object key, object value) except -1:
        key = self._text(key, "a key")
        if isinstance(value, (str, bytes)):
            self._look_up(key, self._text(value, "a value"), 1.0)
        elif isinstance(value, (dict, list, set)):
            self._read_nested(key, value)
        else:
            self._look_up(key, None, self._weight(key, value))
        return 0

    cdef int _look_up(self, str key, str value, double weight) except -1:
        """Look up temporary strings, which may not live longer than this call."""
        self._enqueue(<PyObject *>key, NULL if value is None else <PyObject *>value, weight)
        return self._empty_queue()

    cdef inline int _enqueue(self, PyObject *key, PyObject *value, double weight) except -1:
        if self.n_queued == QUEUED:
            self._empty_queue()
        prefetch(key if value == NULL else value)
        self.queue[self.n_queued] = Query(key, value, weight, 0)
        self.n_queued += 1
        return 0

    cdef int _empty_queue(self) except -1:
        cdef Py_ssize_t i
        cdef int32_t number
        cdef const char *text
        cdef Query *query
        for i in range(self.n_queued):
            self.table.hash(&self.queue[i])
            prefetch(self.table.first_slot(&self.queue[i]))
        for i in range(0 if self.n_hashed else self.n_queued):
            text = <const char *>self.table.first_slot(&self.queue[i]).name
            prefetch(text)
            prefetch(text + 64)  # a string's letters begin 40 bytes in
        for i in range(self.n_queued):
            query = &self.queue[i]
            if self.n_hashed:
                self._add(<int32_t>(query.hash & (self.n_hashed - 1)), query.weight)
                continue
            number = self.table.find(query)
            if number < 0 and self.grow:
                number = self.table.insert(query)
            if number >= 0:
                self._add(number, query.weight)
        self.n_queued = 0
        return 0

    cdef inline int _add(self, int32_t number, double weight) except -1:
        cdef Py_ssize_t i
        if self.n - self.first <= SCANNED:
            for i in range(self.first, self.n):
                if self.indices[i] == number:
                    if self.all_ones:
                        self._store_weights()
                    self.weights[i] += weight
                    return 0
        if self.n == self.indices.shape[0]:
            self._grow()
        if self.all_ones and weight != 1.0:
            self._store_weights()
        if not self.all_ones:
            self.weights[self.n] = weight
        self.indices[self.n] = number
        self.n += 1
        return 0

    cdef object _text(self, object name, str what):
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
        except (TypeError, ValueError):
            raise self._error(
                f"the value of {key!r}", value, "a string, a number or a dict, list or set of them"
            ) from None
        if not isfinite(weight):
            raise ValueError(
                f"Weights must be finite; attribute {key!r} in row {self.row} of sequence "
                f"{self.sequence} of X is {weight}. Impute or drop it."
            )
        return weight

    cdef int _check_collection(self, object item) except -1:
        if isinstance(item, (str, bytes)) or not hasattr(item, "__iter__"):
            raise self._error("an item", item, "a dict or a collection of strings")
        return 0

    cdef object _error(self, str what, object value, str allowed):
        return ValueError(
            f"In row {self.row} of sequence {self.sequence} of X, {what} must be {allowed}; got "
            f"{value!r} ({type(value).__name__}). Convert or drop it."
        )

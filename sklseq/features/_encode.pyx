"""Compiled loops of ``TemplateFeatures``: tokens to codes, pairs of codes to codes, attributes.

Each string is converted to an integer code once; all other steps are integer arithmetic.

A *code* is a positive int32; 0 means "no value" (outside the sequence, or never seen in training),
and every table maps it to "no attribute", so the loops need no tests for boundaries.
"""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport memcpy

import numpy as np

from sklseq._lib.prefetch cimport prefetch
from sklseq.data.labels import is_missing
from sklseq.features._hash cimport BASE, hash_on, mixed, slot_of

cdef extern from * nogil:
    PyObject *item_of "PyList_GET_ITEM"(PyObject *a_list, Py_ssize_t i)

cdef enum:
    AHEAD = 12  # distance of prefetches, which hides a cache miss; more gained nothing
    BATCH = 32  # tokens looked up in one batch
    BLOCK = 1024  # rows of a block, whose codes and table lines fit the second-level cache
    SHORT = 8  # Latin-1 letters that fit a 64-bit number


# --- tokens to numbers --------------------------------------------------------------------

cdef struct Token:
    uint64_t letters  # of a short token as one number, otherwise the address of the string
    uint64_t hash
    uint32_t tag  # number of letters of a short token; of others bits of the hash, above SHORT


cdef struct TokenSlot:
    uint64_t letters
    uint32_t tag
    uint32_t code  # number + 1; 0: free


cdef inline Token _token(PyObject *text) noexcept:
    cdef Py_ssize_t n = PyUnicode_GET_LENGTH(<object>text)
    cdef const uint8_t *p = <const uint8_t *>PyUnicode_DATA(<object>text)
    cdef uint32_t first, last
    cdef uint64_t letters = 0
    if n > SHORT or PyUnicode_KIND(<object>text) != 1:
        letters = mixed(hash_on(0, text))
        return Token(<uint64_t><uintptr_t>text, letters, <uint32_t>letters | 2 * SHORT)
    if n >= 4:  # two words, which may overlap
        memcpy(&first, p, 4)
        memcpy(&last, p + n - 4, 4)
        letters = first | <uint64_t>last << 32
    elif n > 0:
        letters = p[0] | p[n >> 1] << 8 | p[n - 1] << 16
    return Token(letters, mixed((letters + n) * BASE), <uint32_t>n)


cdef class TokenNumbers:
    """Numbers of tokens, in the order in which they were added.

    Look-ups do not change the table, so threads may share it.

    Parameters
    ----------
    tokens : list of str
        Different tokens.
    expected : int
        The table does not grow for as many tokens.
    """

    cdef readonly list names
    cdef object memory  # owns the slots
    cdef TokenSlot *slots
    cdef uint64_t mask

    def __cinit__(self, tokens=(), Py_ssize_t expected=0):
        self.names = list(tokens)
        self._resize(max(256, 2 * len(tokens), 2 * expected + 2))

    cdef int _resize(self, Py_ssize_t at_least) except -1:
        cdef uint32_t code = 0
        memory = np.zeros((1 << (at_least - 1).bit_length(), 2), dtype=np.uint64)
        self.memory, self.mask = memory, len(memory) - 1
        self.slots = <TokenSlot *><size_t>memory.ctypes.data
        for name in self.names:
            code += 1
            self._put(_token(<PyObject *>name), code)
        return 0

    cdef inline void _put(self, Token token, uint32_t code) noexcept:
        cdef uint64_t at = (token.hash >> 32) & self.mask
        while self.slots[at].code != 0:
            at = (at + 1) & self.mask
        self.slots[at] = TokenSlot(token.letters, token.tag, code)

    cdef inline int32_t find(self, Token *token) noexcept:
        """Return the number of a token, or -1."""
        cdef uint64_t at = (token.hash >> 32) & self.mask
        cdef TokenSlot *slot = self.slots + at
        while slot.code != 0:
            if slot.tag == token.tag and (
                slot.letters == token.letters
                or token.tag > SHORT and _text(slot.letters) == _text(token.letters)
            ):
                return <int32_t>(slot.code - 1)
            at = (at + 1) & self.mask
            slot = self.slots + at
        return -1

    cdef int32_t add(self, str name, Token token) except -1:
        """Number a token that is not in the table."""
        if <uint64_t>(2 * len(self.names)) >= self.mask:
            self._resize(8 * len(self.names))
        self.names.append(name)
        self._put(token, <uint32_t>len(self.names))
        return <int32_t>(len(self.names) - 1)


cdef inline str _text(uint64_t address):
    return <str><PyObject *><uintptr_t>address


# --- tokens to codes ----------------------------------------------------------------------

def encode_column(
    list sequences,  # of token lists, of lists of rows, or of lists of dict rows
    str form,  # "tokens", "rows" or "dicts"
    key,  # index (rows) or name (dicts) of the column; None: token lists without a name
    TokenNumbers table,  # extended if grow      IN / OUT
    Py_ssize_t first_code,  # code of the table's first token
    const int64_t[::1] starts,  # (n_sequences,) position of each sequence's first row
    int32_t[::1] codes,  # (n_positions,)   OUT, only where there are rows
    bint grow,
):
    """Write the code of every token of a column; 0 for tokens outside the table."""
    cdef Py_ssize_t s, t, first, index = key if form == "rows" else 0
    cdef list rows, tokens
    for s in range(len(sequences)):
        rows = sequences[s] if type(sequences[s]) is list else list(sequences[s])
        if form == "rows":
            tokens = [_at(row, index, s, t) for t, row in enumerate(rows)]
        elif form == "dicts":
            tokens = [_named(row, key, s, t) for t, row in enumerate(rows)]
        else:
            tokens = rows
            if s + 1 < len(sequences) and type(sequences[s + 1]) is list:
                _prefetch_strings(sequences[s + 1], 0)
        for t in range(len(tokens)):
            if t % BATCH == 0:
                _prefetch_strings(tokens, t + BATCH)
            if type(tokens[t]) is not str:
                tokens = [_as_text(token, s, t, key) for t, token in enumerate(tokens)]
                break
        for first in range(0, len(tokens), BATCH):
            _encode_some(tokens, first, table, first_code, &codes[starts[s] + first], grow)


cdef inline void _prefetch_strings(list tokens, Py_ssize_t first) noexcept:
    cdef Py_ssize_t i
    cdef const char *token
    for i in range(first, min(first + BATCH, len(tokens))):
        token = <const char *>item_of(<PyObject *>tokens, i)
        prefetch(token)
        prefetch(token + 48)  # the letters


cdef int _encode_some(
    list tokens, Py_ssize_t first, TokenNumbers table, Py_ssize_t first_code, int32_t *codes,
    bint grow
) except -1:
    # Prefetch slots of several tokens, so that their cache misses overlap.
    cdef Py_ssize_t i, n = min(BATCH, len(tokens) - first)
    cdef Token batch[BATCH]
    cdef int32_t number
    for i in range(n):
        batch[i] = _token(item_of(<PyObject *>tokens, first + i))
        prefetch(table.slots + ((batch[i].hash >> 32) & table.mask))
    for i in range(n):
        number = table.find(&batch[i])
        if number < 0 and grow:
            number = table.add(tokens[first + i], batch[i])
        codes[i] = 0 if number < 0 else <int32_t>(first_code + number)
    return 0


cdef str _as_text(object token, Py_ssize_t s, Py_ssize_t t, object key):
    if not isinstance(token, str):
        raise _not_a_string(token, s, t, key)
    return str.__str__(token)


cdef inline object _at(object row, Py_ssize_t index, Py_ssize_t s, Py_ssize_t t):
    if type(row) is tuple and index < len(<tuple>row):
        return (<tuple>row)[index]
    if type(row) is list and index < len(<list>row):
        return (<list>row)[index]
    if isinstance(row, str) or not hasattr(row, "__len__") or not hasattr(row, "__getitem__"):
        raise ValueError(
            f"Row {t} of sequence {s} of X must be a tuple or list of strings like the others; "
            f"got {row!r:.60}."
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
            f"got {row!r:.60}."
        ) from None


cdef object _not_a_string(object token, Py_ssize_t s, Py_ssize_t t, object key):
    where = f", column number {key}," if isinstance(key, int) else f", column {key!r},"
    remedy = "Decode it" if isinstance(token, bytes) else "Convert it with str()"
    if key is not None and (hasattr(token, "__float__") or isinstance(token, list)):
        remedy = "PerToken reads columns of numbers and vectors; convert codes with str()"
    if is_missing(token):
        remedy = "Fill it or drop the row"
    return ValueError(
        f"X must hold strings; row {t} of sequence {s}{'' if key is None else where} is "
        f"{token!r:.60} ({type(token).__name__}). {remedy}."
    )


def plain_columns(list sequences, name):
    """Return the lists of a column if all sequences are dicts of lists, otherwise None."""
    cdef list columns = []
    cdef PyObject *values
    for sequence in sequences:
        values = PyDict_GetItemWithError(sequence, name) if type(sequence) is dict else NULL
        if values == NULL or type(<object>values) is not list:
            return None
        columns.append(<object>values)
    return columns


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

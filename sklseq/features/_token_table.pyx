"""Table of the attributes of single tokens (words, affixes, shapes, flags), for ``TokenFeatures``.

The values of all kinds are arrays of letters derived from a token. Hash tables find the attribute
number of a value without making a string; only new values in ``fit`` become strings.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DATA, PyUnicode_GET_LENGTH, PyUnicode_KIND
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t, uintptr_t

import numpy as np

from sklseq._lib.prefetch cimport prefetch
from sklseq.features._hash cimport BASE, hash_on, letter, mixed

FORMS = ("word", "lower", "shape", "short_shape", "prefix", "suffix", "length", "flag")
FLAGS = ("upper", "title", "digit", "alpha", "has_digit", "has_hyphen", "has_inner_upper", "punct")

cdef extern from *:
    Py_ssize_t PY_SSIZE_T_MAX
    bint is_upper "Py_UNICODE_ISUPPER"(Py_UCS4 c) noexcept
    bint is_lower "Py_UNICODE_ISLOWER"(Py_UCS4 c) noexcept
    bint is_title "Py_UNICODE_ISTITLE"(Py_UCS4 c) noexcept
    bint is_alpha "Py_UNICODE_ISALPHA"(Py_UCS4 c) noexcept
    bint is_digit "Py_UNICODE_ISDIGIT"(Py_UCS4 c) noexcept
    bint is_alnum "Py_UNICODE_ISALNUM"(Py_UCS4 c) noexcept
    bint is_space "Py_UNICODE_ISSPACE"(Py_UCS4 c) noexcept
    Py_UCS4 to_lower "Py_UNICODE_TOLOWER"(Py_UCS4 c) noexcept
    str text_of "PyUnicode_FromKindAndData"(int kind, const void *letters, Py_ssize_t n)

cdef enum:  # in the order of FORMS
    WORD, LOWER, SHAPE, SHORT_SHAPE, PREFIX, SUFFIX, LENGTH, FLAG

cdef enum:  # in the order of FLAGS
    ALL_UPPER, TITLE, ALL_DIGIT, ALL_ALPHA, HAS_DIGIT, HAS_HYPHEN, HAS_INNER_UPPER, ALL_PUNCT

cdef enum:  # bits of a letter
    IS_UPPER = 1
    IS_LOWER = 2
    IS_TITLE = 4
    IS_ALPHA = 8
    IS_DIGIT = 16
    IS_PUNCT = 32  # no letter, digit or space
    HAS_LOWER = 64  # becomes another letter in lower case


# --- letters -----------------------------------------------------------------------------

cdef uint8_t of_ascii[128]
cdef uint32_t lengths[7][3]
cdef Py_ssize_t n_lengths[7]


cdef uint8_t _bits_of(Py_UCS4 c) noexcept:
    return (
        IS_UPPER * is_upper(c) | IS_LOWER * is_lower(c) | IS_TITLE * is_title(c)
        | IS_ALPHA * is_alpha(c) | IS_DIGIT * is_digit(c)
        | IS_PUNCT * (c == u"_" or not (is_alnum(c) or is_space(c)))
        | HAS_LOWER * (to_lower(c) != c)
    )


cdef void _fill_constants() noexcept:
    cdef int i, k
    for i in range(128):
        of_ascii[i] = _bits_of(i)
    for i, name in enumerate(("1", "2", "3", "4", "5-6", "7-9", "10+")):
        n_lengths[i] = len(name)
        for k in range(n_lengths[i]):
            lengths[i][k] = ord(name[k])


_fill_constants()


cdef struct Spelling:  # letters of a token, of its lower case and its shapes
    uint32_t *word
    uint32_t *lower
    uint32_t *shape
    uint32_t *short_shape
    Py_ssize_t n, n_lower, n_short
    uint32_t flags  # bits 1 << ALL_UPPER, ...


cdef Spelling _in_buffer(uint32_t *p, Py_ssize_t longest) noexcept:
    return Spelling(p, p + longest, p + 4 * longest, p + 5 * longest, 0, 0, 0, 0)


cdef enum:
    PER_LETTER = 6  # buffer size per letter of a token: lower case needs up to three for one letter
    BATCH = 8  # tokens looked up in one batch
    PACKED = 7  # letters that fit one 64-bit number, together with their count


cdef int _spell(str token, Spelling *s) except -1:
    cdef Py_ssize_t i, n = PyUnicode_GET_LENGTH(token)
    cdef int kind = PyUnicode_KIND(token)
    cdef void *data = PyUnicode_DATA(token)
    cdef uint8_t bits, some = 0, every = 255, inner = 0
    cdef bint is_title_case = True, after_cased = False, is_plain = True
    cdef bint hyphen = False
    cdef Py_UCS4 c, shape
    s.n, s.n_short = n, 0
    for i in range(n):
        c = letter(kind, data, i)
        bits = of_ascii[c] if c < 128 else _bits_of(c)
        if c >= 128 and bits & HAS_LOWER:
            is_plain = False
        some |= bits
        every &= bits
        if i > 0:
            inner |= bits
        hyphen |= c == u"-"
        if bits & (IS_UPPER | IS_TITLE):
            shape = u"X"
            is_title_case &= not after_cased
        else:
            shape = u"x" if bits & IS_ALPHA else u"d" if bits & IS_DIGIT else c
            if bits & IS_LOWER:
                is_title_case &= after_cased
        after_cased = (bits & (IS_UPPER | IS_TITLE | IS_LOWER)) != 0
        s.word[i], s.shape[i] = c, shape
        s.lower[i] = <uint32_t>c + (32 if bits & HAS_LOWER else 0)  # valid for ASCII
        if s.n_short == 0 or s.short_shape[s.n_short - 1] != shape:
            s.short_shape[s.n_short] = shape
            s.n_short += 1
    s.n_lower = n
    if not is_plain:
        _copy_lower(token.lower(), s)
    s.flags = (
        ((some & IS_UPPER) != 0 and (some & (IS_LOWER | IS_TITLE)) == 0) << ALL_UPPER
        | (is_title_case and (some & (IS_UPPER | IS_TITLE)) != 0) << TITLE
        | ((every & IS_DIGIT) != 0) << ALL_DIGIT
        | ((every & IS_ALPHA) != 0) << ALL_ALPHA
        | ((some & IS_DIGIT) != 0) << HAS_DIGIT
        | hyphen << HAS_HYPHEN
        | ((inner & HAS_LOWER) != 0) << HAS_INNER_UPPER
        | ((every & IS_PUNCT) != 0) << ALL_PUNCT
    )
    return 0


cdef int _copy_lower(str lower, Spelling *s) except -1:
    cdef Py_ssize_t i
    s.n_lower = PyUnicode_GET_LENGTH(lower)
    for i in range(s.n_lower):
        s.lower[i] = letter(PyUnicode_KIND(lower), PyUnicode_DATA(lower), i)
    return 0


def short_shapes(list tokens):
    """Return shapes with runs of one character written once: ``"X.X.-dx"`` for ``"U.S.-1990s"``."""
    cdef Py_ssize_t longest = max(map(len, tokens), default=0)
    letters = np.empty(PER_LETTER * longest, dtype=np.uint32)
    cdef Spelling s = _in_buffer(<uint32_t *><size_t>letters.ctypes.data, longest)
    shapes = []
    for token in tokens:
        _spell(token, &s)
        shapes.append(text_of(4, s.short_shape, s.n_short))
    return shapes


# --- values to numbers -------------------------------------------------------------------

cdef struct Slot:
    uint64_t value  # a short value packed into one number, otherwise the address of its string
    uint32_t tag  # low bits of the hash
    uint32_t code  # number + 1; 0: free


cdef struct Kind:
    int form
    Py_ssize_t size  # letters of an affix; place of a flag in FLAGS
    uint64_t start  # hash of what precedes a value in the attribute's name
    Slot *slots
    uint64_t mask


cdef struct Query:
    Py_ssize_t kind
    const uint32_t *letters
    Py_ssize_t n
    uint64_t hash
    uint64_t packed  # the value as one number; 0: too long


cdef class TokenTable:
    """Numbers of the attributes of a column's tokens, by vocabulary or by hash.

    Parameters
    ----------
    kinds : list of Kind
        Kinds of the form "function" come last and are handled by the caller.
    prefixes : list of str
        Text before the values of each kind in the names of attributes.
    values : list of dict of str to int
        Numbers of the values of each kind.
    n_hashed : int
        ``2**k``: numbers are hashes of names. 0: by ``values``.
    first : int
        New values are numbered from ``first`` and added to ``values``; -1: they get no number.
    """

    cdef readonly list kinds, prefixes, values
    cdef public Py_ssize_t next  # number of the next new value; -1: none
    cdef list names, memory  # owners of the strings of the slots, and of the slots
    cdef dict shared  # one string for equal values of several kinds
    cdef Kind *parts  # the kinds that are not functions
    cdef Py_ssize_t n_parts
    cdef uint64_t n_hashed

    def __cinit__(
        self, list kinds, list prefixes, list values, uint64_t n_hashed=0, Py_ssize_t first=-1
    ):
        cdef Py_ssize_t k
        self.kinds, self.prefixes, self.values, self.shared = kinds, prefixes, values, {}
        self.n_hashed, self.next = n_hashed, first
        self.n_parts = sum(kind.form in FORMS for kind in kinds)
        self.names, self.memory = [list(known) for known in values], [None] * len(kinds)
        self.parts = <Kind *>PyMem_Calloc(self.n_parts + 1, sizeof(Kind))
        if self.parts == NULL:
            raise MemoryError
        for k in range(self.n_parts):
            self.parts[k].form = FORMS.index(kinds[k].form)
            self.parts[k].size = min(kinds[k].size, PY_SSIZE_T_MAX)
            self.parts[k].start = hash_on(0, <PyObject *>prefixes[k])
            self._resize(k, 4 * len(values[k]))

    def __dealloc__(self):
        PyMem_Free(self.parts)

    cdef int _resize(self, Py_ssize_t k, Py_ssize_t at_least) except -1:
        cdef Kind *kind = &self.parts[k]
        memory = np.zeros((1 << max(4, (at_least - 1).bit_length() - 1), 2), dtype=np.uint64)
        self.memory[k], kind.mask = memory, len(memory) - 1
        kind.slots = <Slot *><size_t>memory.ctypes.data
        for value, number in (<dict>self.values[k]).items():
            self._put(kind, mixed(hash_on(kind.start, <PyObject *>value)), value, number)
        return 0

    cdef inline int _put(self, Kind *kind, uint64_t hash, object value, int32_t number) except -1:
        cdef uint64_t at = (hash >> 32) & kind.mask
        while kind.slots[at].code != 0:
            at = (at + 1) & kind.mask
        kind.slots[at] = Slot(_packed_text(value), <uint32_t>hash, <uint32_t>number + 1)
        if kind.slots[at].value == 0:
            kind.slots[at].value = <uint64_t><uintptr_t><PyObject *>value
        return 0

    def read(self, list tokens):
        """Return row ends (int64) and attributes (int32) of the tokens, which must be str."""
        cdef Py_ssize_t i, k, first, stop, n = 0, longest = max(map(len, tokens), default=0)
        letters_array = np.empty(BATCH * PER_LETTER * longest, dtype=np.uint32)
        queries_array = np.empty(BATCH * (self.n_parts + 1) * sizeof(Query), dtype=np.uint8)
        ends_array = np.zeros(len(tokens) + 1, dtype=np.int64)
        numbers_array = np.empty(len(tokens) * self.n_parts, dtype=np.int32)
        cdef uint32_t *letters = <uint32_t *><size_t>letters_array.ctypes.data
        cdef Query *queries = <Query *><size_t>queries_array.ctypes.data
        cdef int64_t[::1] ends = ends_array
        cdef int32_t[::1] numbers = numbers_array
        cdef Spelling s
        cdef int32_t number
        for first in range(0, len(tokens), BATCH):
            stop = min(first + BATCH, len(tokens))
            k = 0
            for i in range(first, stop):
                s = _in_buffer(letters + (i - first) * PER_LETTER * longest, longest)
                _spell(tokens[i], &s)
                k += self._ask(&s, &queries[k])
                ends[i + 1] = k
            self._prefetch_values(queries, k)
            k = 0
            for i in range(first, stop):
                while k < ends[i + 1]:
                    number = self._answer(&queries[k])
                    k += 1
                    if number >= 0:
                        numbers[n] = number
                        n += 1
                ends[i + 1] = n
        return ends_array, numbers_array[:n]

    cdef Py_ssize_t _ask(self, Spelling *s, Query *queries) noexcept:
        """Hash the values of a token; return their number."""
        cdef Py_ssize_t k, i, n_queries = 0
        cdef Kind *kind
        cdef Query *query
        cdef uint64_t h, packed
        if s.n == 0:  # an empty token has no attributes
            return 0
        for k in range(self.n_parts):
            kind, query = &self.parts[k], &queries[n_queries]
            if kind.form == FLAG and not s.flags >> kind.size & 1:
                continue
            _value(s, kind, query)
            h = kind.start
            query.packed = packed = 0
            for i in range(query.n):
                h = h * BASE + query.letters[i]
            if query.n <= PACKED:
                for i in range(query.n):
                    packed = packed << 8 | query.letters[i]
                    if query.letters[i] > 255:
                        break
                else:
                    query.packed = packed | <uint64_t>(query.n + 1) << 56
            query.kind, query.hash = k, mixed(h)
            if not self.n_hashed:
                prefetch(&kind.slots[(query.hash >> 32) & kind.mask])
            n_queries += 1
        return n_queries

    cdef void _prefetch_values(self, Query *queries, Py_ssize_t n_queries) noexcept:
        cdef Py_ssize_t k
        cdef Kind *kind
        for k in range(0 if self.n_hashed else n_queries):
            kind = &self.parts[queries[k].kind]
            if queries[k].packed == 0:
                prefetch(<void *><uintptr_t>kind.slots[(queries[k].hash >> 32) & kind.mask].value)

    cdef inline int32_t _answer(self, Query *query) except -2:
        cdef Kind *kind = &self.parts[query.kind]
        cdef uint64_t at = (query.hash >> 32) & kind.mask
        if self.n_hashed:
            return <int32_t>(query.hash & (self.n_hashed - 1))
        while kind.slots[at].code != 0:
            if kind.slots[at].tag == <uint32_t>query.hash and _is(kind.slots[at].value, query):
                return <int32_t>(kind.slots[at].code - 1)
            at = (at + 1) & kind.mask
        return -1 if self.next < 0 else self._add(query)

    cdef int32_t _add(self, Query *query) except -2:
        """Number a new value."""
        cdef Kind *kind = &self.parts[query.kind]
        cdef int32_t number = <int32_t>self.next
        cdef str value = text_of(4, query.letters, query.n)
        cdef list names = self.names[query.kind]
        value = self.shared.setdefault(value, value)
        names.append(value)
        self.values[query.kind][value] = number
        self.next += 1
        if <uint64_t>(2 * len(names)) > kind.mask:
            self._resize(query.kind, 8 * len(names))
        else:
            self._put(kind, query.hash, value, number)
        return number


cdef inline void _value(Spelling *s, Kind *kind, Query *query) noexcept:
    """Write the letters of the value of a kind."""
    cdef int form = kind.form, length
    query.letters, query.n = s.word, s.n
    if form == LOWER:
        query.letters, query.n = s.lower, s.n_lower
    elif form == SHAPE:
        query.letters = s.shape
    elif form == SHORT_SHAPE:
        query.letters, query.n = s.short_shape, s.n_short
    elif form == PREFIX:
        query.n = min(s.n, kind.size)
    elif form == SUFFIX:
        query.n = min(s.n, kind.size)
        query.letters = s.word + s.n - query.n
    elif form == LENGTH:
        length = <int>s.n - 1 if s.n <= 4 else 4 if s.n <= 6 else 5 if s.n <= 9 else 6
        query.letters, query.n = lengths[length], n_lengths[length]
    elif form == FLAG:
        query.n = 0


cdef uint64_t _packed_text(str value) noexcept:
    """Return a value of at most ``PACKED`` Latin-1 letters as one number, otherwise 0."""
    cdef Py_ssize_t i, n = PyUnicode_GET_LENGTH(value)
    cdef uint64_t packed = 0
    if n > PACKED or PyUnicode_KIND(value) != 1:
        return 0
    for i in range(n):
        packed = packed << 8 | letter(1, PyUnicode_DATA(value), i)
    return packed | <uint64_t>(n + 1) << 56


cdef inline bint _is(uint64_t stored, Query *query) noexcept:
    """Whether a stored value has the letters of a query; addresses are below 1 << 56."""
    cdef Py_ssize_t i
    cdef PyObject *value = <PyObject *><uintptr_t>stored
    cdef int kind
    cdef void *data
    if query.packed != 0 or stored >> 56 != 0:
        return stored == query.packed
    if PyUnicode_GET_LENGTH(<object>value) != query.n:
        return False
    kind, data = PyUnicode_KIND(<object>value), PyUnicode_DATA(<object>value)
    for i in range(query.n):
        if letter(kind, data, i) != query.letters[i]:
            return False
    return True

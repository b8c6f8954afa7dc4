"""Compiled loops of the extractors over the rows of all sequences: window, join, hash."""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_GET_LENGTH
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

import numpy as np

from sklseq.features._hash cimport hash_on, mixed, power_of_base, slot_of


def window_rows(
    const int64_t[::1] inner_ends,  # (n_rows + 1,)
    const int32_t[::1] inner,  # attributes of the rows
    const int64_t[::1] offsets,  # (n_sequences + 1,) rows
    int64_t n_inner,  # columns of the rows
    tuple window,  # (before, after)
    const int32_t[::1] table,  # column of each number below, -1: none; empty: the number
    uint64_t n_hashed,  # 2**k: hash instead; 0: not
    const int64_t[::1] reserved,  # (n_rows + 1,) ends of the entries reserved for each row
    int32_t[::1] indices,  # OUT
    int64_t[::1] indptr,  # (n_rows + 1,) row ends, with the reserved entries   OUT
    int64_t[::1] at,  # (n_rows,) where the reserved entries of each row begin   OUT
    int64_t[::1] sources,  # inner entry of each entry, -1 for reserved ones   OUT, unless empty
):
    """Write to each row t the attributes of rows t - before, ..., t + after of its sequence.

    The attribute a of row t + d becomes the number (d + before) * n_inner + a of row t.
    """
    cdef Py_ssize_t s, t, u, k, n = 0, before = window[0], after = window[1]
    cdef int64_t base, number
    cdef bint renumbered = table.shape[0] > 0, with_sources = sources.shape[0] > 0
    with nogil:
        for s in range(offsets.shape[0] - 1):
            for t in range(offsets[s], offsets[s + 1]):
                for u in range(max(offsets[s], t - before), min(offsets[s + 1], t + after + 1)):
                    base = (u - t + before) * n_inner
                    for k in range(inner_ends[u], inner_ends[u + 1]):
                        number = base + inner[k]
                        if n_hashed and u != t:  # attributes of the row itself keep their number
                            number = hash_pair(inner[k], u - t) & (n_hashed - 1)
                        elif n_hashed:
                            number = inner[k] & (n_hashed - 1)
                        elif renumbered:
                            number = table[number]
                            if number < 0:
                                continue
                        indices[n] = <int32_t>number
                        if with_sources:
                            sources[n] = k
                        n += 1
                at[t] = n
                n += reserved[t + 1] - reserved[t]
                indptr[t + 1] = n
                if with_sources:
                    for k in range(at[t], n):
                        sources[k] = -1


cdef inline uint64_t hash_pair(int64_t a, int64_t b) noexcept nogil:
    return mixed((<uint64_t>a * <uint64_t>0x9E3779B97F4A7C15) ^ mixed(<uint64_t>b + 0x5851F42D))


def hash_pairs(const int32_t[::1] first, const int32_t[::1] second, int32_t[::1] out):
    """Write a positive hash of each pair of codes."""
    cdef Py_ssize_t i
    with nogil:
        for i in range(first.shape[0]):
            out[i] = <int32_t>(hash_pair(first[i], second[i]) & 0x3FFFFFFF) + 1


def match_entries(
    const int32_t[::1] codes,  # (n_rows,) of tokens, 0: in no entry
    const int64_t[::1] offsets,  # (n_sequences + 1,) rows
    const uint64_t[:, ::1] slots,  # (node + 1) << 32 | code -> node; the root is node 0
    int shift,
    const uint8_t[::1] is_entry,  # (n_nodes + 1,)
    uint8_t[::1] tags,  # (n_rows,) bit 1: an entry begins here, bit 2: one continues   OUT
):
    """Mark the longest entry from each row, unless an entry from an earlier row contains it."""
    cdef Py_ssize_t s, t, u, stop, reach
    cdef uint64_t key, at, node, mask = slots.shape[0] - 1
    with nogil:
        for s in range(offsets.shape[0] - 1):
            reach = offsets[s]  # largest end of an entry so far
            for t in range(offsets[s], offsets[s + 1]):
                tags[t] = 2 if reach > t else 0
                node, stop = 0, t
                for u in range(t, offsets[s + 1]):
                    if codes[u] == 0:
                        break
                    key = (node + 1) << 32 | <uint64_t>codes[u]
                    at = slot_of(key, shift)
                    while slots[at, 0] != key and slots[at, 0] != 0:
                        at = (at + 1) & mask
                    if slots[at, 0] == 0:
                        break
                    node = slots[at, 1]
                    if is_entry[node]:
                        stop = u + 1
                if stop > t and stop > reach:
                    tags[t] |= 1
                    reach = stop


# --- names to columns, by vocabulary or by hash -------------------------------------------

def look_up_values(list values, dict known, int32_t[:] numbers, Py_ssize_t first):
    """Write the number of each value (a str or None), -1 if it has none.

    If ``first`` is not negative, ``known`` is empty and gets all values, numbered from it.
    """
    cdef Py_ssize_t i
    cdef PyObject *found
    cdef object value
    for i in range(len(values)):
        value = values[i]
        numbers[i] = -1
        if value is None:
            continue
        found = PyDict_GetItemWithError(known, value)
        if found != NULL:
            numbers[i] = <int32_t><object>found
        elif first >= 0:
            numbers[i] = <int32_t>(first + len(known))
            known[value] = first + len(known)


def hash_values(str prefix, list values, uint64_t n_features, int32_t[:] numbers):
    """Write the hash of each name ``prefix + value`` modulo ``n_features = 2**k``; -1 for None."""
    cdef Py_ssize_t i
    cdef uint64_t start = hash_on(0, <PyObject *>prefix)
    cdef object value
    for i in range(len(values)):
        value = values[i]
        if value is None:
            numbers[i] = -1
        else:
            numbers[i] = <int32_t>(mixed(hash_on(start, <PyObject *>value)) & (n_features - 1))


def polynomials(list texts):
    """Return (n, 2): the hash of each string before mixing, and BASE ** length."""
    cdef uint64_t[:, ::1] out = np.empty((len(texts), 2), dtype=np.uint64)
    cdef Py_ssize_t i
    cdef object text
    for i in range(len(texts)):
        text = texts[i]
        out[i, 0] = hash_on(0, <PyObject *>text)
        out[i, 1] = power_of_base(PyUnicode_GET_LENGTH(text))
    return np.asarray(out)


def hash_templates(
    const int32_t[:, ::1] codes,  # (n_nodes, n_positions): columns, then flags
    const int64_t[::1] starts,  # (n_sequences,) position of the first row
    const int64_t[::1] lengths,  # (n_sequences,) rows
    const int64_t[:, ::1] parts,  # (n_parts, 3): node, shift, first line of `texts`
    const int64_t[::1] ends,  # (n_templates + 1,) parts of each template
    const uint64_t[:, ::1] literals,  # (n_parts + n_templates, 2): before each part, and behind
    const uint64_t[:, ::1] texts,  # (n, 2) polynomials of each column's tokens, by code
    uint64_t n_features,  # 2**k
    int32_t[::1] indices,  # (n_rows * n_templates,)   OUT
    int64_t[::1] indptr,  # (n_rows + 1,)   OUT
):
    """Hash the name of each template at each row: literal, token, literal, token, ..., literal.

    H(ab) = H(a) · BASE^|b| + H(b), so no name is built. Returns the number of attributes.
    """
    cdef Py_ssize_t s, p, j, k, literal, line, row = 0, n = 0
    cdef int32_t code
    cdef uint64_t h
    with nogil:
        for s in range(starts.shape[0]):
            for p in range(starts[s], starts[s] + lengths[s]):
                for j in range(ends.shape[0] - 1):
                    literal, h, code = ends[j] + j, 0, 1
                    for k in range(ends[j], ends[j + 1]):
                        code = codes[parts[k, 0], p + parts[k, 1]]
                        if code == 0:
                            break
                        h = h * literals[literal, 1] + literals[literal, 0]
                        literal += 1
                        if parts[k, 2] >= 0:  # flags have no text
                            line = parts[k, 2] + code
                            h = h * texts[line, 1] + texts[line, 0]
                    if code == 0:
                        continue
                    h = h * literals[literal, 1] + literals[literal, 0]
                    indices[n] = <int32_t>(mixed(h) & (n_features - 1))
                    n += 1
                row += 1
                indptr[row] = n
    return n

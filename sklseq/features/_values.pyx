"""Values of distinct tokens to column numbers, by vocabulary or by hash."""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_GET_LENGTH
from libc.stdint cimport int32_t, int64_t, uint64_t

import numpy as np

from sklseq.features._hash cimport hash_on, mixed, power_of_base


def look_up_values(list values, dict known, int32_t[:] numbers, Py_ssize_t first):
    """Write the number of each value (a str; None: no value), -1 where there is none.

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
    """(n, 2) hash of each string before mixing, and the power that appending it multiplies by."""
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

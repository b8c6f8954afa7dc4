"""Labels of each sequence as lists, from codes, and codes from lists."""

import numpy as np

from cpython.dict cimport PyDict_GetItem
from cpython.list cimport PyList_New
from cpython.ref cimport Py_INCREF, PyObject
from cpython.sequence cimport PySequence_Fast_ITEMS as items
from libc.stdlib cimport calloc, free


cdef void own(list classes, const int[::1] codes) except *:
    # Count the references that lists of all labels hold. Once they are counted, the labels are
    # written without the GIL.
    cdef Py_ssize_t L = len(classes), t, j, _k, wrong = -1
    cdef Py_ssize_t* counts = <Py_ssize_t*> calloc(L + 1, sizeof(Py_ssize_t))
    if counts == NULL:
        raise MemoryError()
    try:
        with nogil:
            for t in range(codes.shape[0]):
                if not 0 <= codes[t] < L:
                    wrong = t
                    break
                counts[codes[t]] += 1
        if wrong >= 0:
            raise IndexError(f"Code {codes[wrong]} is not the number of a label.")
        for j in range(L):
            label = classes[j]
            for _k in range(counts[j]):
                Py_INCREF(label)
    finally:
        free(counts)


cdef inline void write(
    PyObject** labels, PyObject** classes, const int* codes, Py_ssize_t n
) noexcept nogil:
    cdef Py_ssize_t t
    for t in range(n):
        labels[t] = classes[codes[t]]


def label_lists(
    list classes,
    const int[::1] codes,            # (n_rows,)
    const long long[::1] offsets,    # (n_sequences + 1,)  of `codes`
):
    """Return a list of the labels ``classes[code]`` for each sequence, without copies of labels."""
    cdef Py_ssize_t s, n
    cdef list found = [], labels
    own(classes, codes)
    for s in range(offsets.shape[0] - 1):
        n = offsets[s + 1] - offsets[s]
        labels = PyList_New(n)
        if n:
            write(items(labels), items(classes), &codes[offsets[s]], n)
        found.append(labels)
    return found


def label_list(
    list classes,
    const int[::1] codes,            # (n_rows,)
    threads,
):
    """Return a list of the labels ``classes[code]``; all threads write it."""
    cdef Py_ssize_t n_rows = codes.shape[0], k, of = threads.n
    cdef list labels = PyList_New(n_rows)

    def fill(part):
        cdef Py_ssize_t a = part[0], n = part[1] - part[0]
        cdef PyObject** first = items(labels) + a
        cdef PyObject** of_codes = items(classes)
        own(classes, codes[a:a + n])
        with nogil:
            write(first, of_codes, &codes[a], n)

    # Not `spans`, whose module loads joblib: exported models start without it.
    cuts = [n_rows * k // of for k in range(of + 1)]
    threads.map(fill, [(a, b) for a, b in zip(cuts, cuts[1:]) if a < b])
    return labels


def string_codes(list y, Py_ssize_t n_rows):
    """Return (labels as they first appear, code of each row), or None if a label is no str.

    ``y``: lists or tuples, with ``n_rows`` labels in all.
    """
    cdef int[::1] codes = np.empty(n_rows, dtype=np.intc)
    cdef dict seen = {}
    cdef object last = object()
    cdef PyObject* found
    cdef int code = 0
    cdef Py_ssize_t t = 0
    for sequence in y:
        for label in sequence:
            if label is not last:    # labels often last for some rows
                if type(label) is not str:
                    return None
                found = PyDict_GetItem(seen, label)
                if found == NULL:
                    code = <int> len(seen)
                    seen[label] = code
                else:
                    code = <object> found
                last = label
            codes[t] = code
            t += 1
    return list(seen), np.asarray(codes)

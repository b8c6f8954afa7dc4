"""Labels of each sequence as lists, from codes."""

from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF


def label_lists(
    list classes,
    const int[::1] codes,            # (n_rows,)
    const long long[::1] offsets,    # (n_sequences + 1,)  of `codes`
):
    """Return a list of the labels ``classes[code]`` for each sequence, without copies of labels."""
    cdef Py_ssize_t L = len(classes), s, t, n
    cdef int code
    cdef list found = [], labels
    for s in range(offsets.shape[0] - 1):
        n = offsets[s + 1] - offsets[s]
        labels = PyList_New(n)
        for t in range(n):
            code = codes[offsets[s] + t]
            if not 0 <= code < L:
                raise IndexError(f"Code {code} is not the number of a label.")
            label = classes[code]
            Py_INCREF(label)
            PyList_SET_ITEM(labels, t, label)
        found.append(labels)
    return found

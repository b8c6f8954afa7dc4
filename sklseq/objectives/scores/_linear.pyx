"""The linear score map A on sparse rows, and its transpose.

A gathers: the scores of a row are the sum of the weight rows of its features,

    psi[t] = sum_p data[p] * W[indices[p]],   p from indptr[t] to indptr[t + 1] - 1.

The transpose, G = A'(residual), is done in one of two ways, whichever moves less memory:

* *frequent* features, which occur often, are scattered row by row into a small buffer per thread;
* *rare* features gather the residuals of their few rows: whoever computes a row of G computes
  all of it, in one fixed order, and needs no buffer.

Where only observed (feature, label) pairs have a weight, most features have one or two of them. A
value of such a feature becomes one entry (row, label, pair) for each pair, and the row of weights
is never looked at: `add_pairs` and its transpose `collect_pairs`.

Rows have a whole number of lanes (`_lib/lanes.pxd`). `data` is empty where all values are one.
"""

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes, real
from sklseq.objectives.scores._gather cimport gather_row, index
from sklseq._lib.prefetch cimport prefetch_row

# Weight rows are scattered over memory: prefetching them this many entries ahead hides latency.
cdef Py_ssize_t AHEAD = 24


cdef double gather(
    lanes* tag, const index* indptr, const index* indices, Py_ssize_t nnz, const real* data,
    const real* rows, Py_ssize_t width, const real* w, real ridge, real* out,
    Py_ssize_t first, Py_ssize_t last
) noexcept nogil:
    cdef Py_ssize_t t, p, k
    cdef double squares = 0, row_squares
    for t in range(first, last):
        for p in range(indptr[t], indptr[t + 1]):
            if p + AHEAD < nnz:
                prefetch_row(rows + indices[p + AHEAD] * width, width)
        gather_row(
            tag, indices + indptr[t], data + indptr[t] if data != NULL else NULL,
            indptr[t + 1] - indptr[t], rows, width,
            w + t * width if w != NULL else NULL, ridge, out + t * width
        )
        if w != NULL:
            row_squares = 0
            for k in range(width):
                row_squares += <double> w[t * width + k] * w[t * width + k]
            squares += row_squares
    return squares


ONES, FINITE, NOT_FINITE = range(3)


def kind_of_values(const real[::1] x):
    """ONES if all are 1, FINITE if all are numbers, else NOT_FINITE."""
    cdef Py_ssize_t n = x.shape[0], k = 0, stop, others = 0
    cdef real zero = 0
    with nogil:
        while k < n and others == 0:
            stop = min(k + 1024, n)
            for k in range(k, stop):
                others += x[k] != 1
            k = stop
        if others:
            for k in range(n):
                zero += x[k] * 0     # infinity and NaN times 0 are NaN
    return NOT_FINITE if zero != zero else FINITE if others else ONES


def zeros_or_ones(const real[::1] x):
    """Whether all are 0 or 1."""
    cdef Py_ssize_t n = x.shape[0], k = 0, stop, others = 0
    with nogil:
        while k < n and others == 0:
            stop = min(k + 1024, n)
            for k in range(k, stop):
                others += (x[k] != 1) & (x[k] != 0)
            k = stop
    return others == 0


def gather_rows(
    const index[::1] indptr,         # (n + 1,)
    const index[::1] indices,        # (nnz,)
    const real[::1] data,            # (nnz,) or (0,)   empty: all ones
    const real[:, ::1] rows,         # (m, width)
    real[:, ::1] out,                # (n, width)       OUT
    Py_ssize_t first, Py_ssize_t last,
    const real[:, ::1] w=None,       # (n, width)
    double ridge=0,
):
    """out[t] = sum_p data[p] * rows[indices[p]] + ridge * w[t] for first <= t < last.

    Returns the sum of squares of w[first:last].
    """
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t width = out.shape[1], nnz = indices.shape[0]
    cdef double squares
    if first >= last:
        return 0.0
    cdef const index* ind = &indices[0] if nnz else NULL
    cdef const real* x = &data[0] if data.shape[0] else NULL
    cdef const real* r = &rows[0, 0] if rows.shape[0] else NULL
    cdef const real* v = &w[0, 0] if w is not None else NULL
    with nogil:
        if width == 2:
            squares = gather(&two, &indptr[0], ind, nnz, x, r, width, v, <real> ridge, &out[0, 0],
                             first, last)
        elif width == 4:
            squares = gather(&four, &indptr[0], ind, nnz, x, r, width, v, <real> ridge,
                             &out[0, 0], first, last)
        else:
            squares = gather(&eight, &indptr[0], ind, nnz, x, r, width, v, <real> ridge,
                             &out[0, 0], first, last)
    return squares


cdef void scatter(
    lanes* tag, const index* begin, const index* stop, const index* indices, const real* data,
    const real* rows, Py_ssize_t width, real* out, Py_ssize_t n
) noexcept nogil:
    cdef Py_ssize_t B = n_lanes(tag), t, p, block, k
    cdef real x
    cdef real* target
    cdef const real* row
    for t in range(n):
        row = rows + t * width
        for p in range(begin[t], stop[t]):
            target = out + indices[p] * width
            x = data[p] if data != NULL else 1
            for block in range(width // B):
                for k in range(B):
                    target[block * B + k] += x * row[block * B + k]


def scatter_rows(
    const index[::1] begin,          # (n,)   first entry of each row
    const index[::1] stop,           # (n,)   past the last frequent one
    const index[::1] indices,        # (nnz,)
    const real[::1] data,            # (nnz,) or (0,)
    const real[:, ::1] rows,         # (n, width)
    real[:, ::1] out,                # (n_frequent, width)   IN/OUT
):
    """out[indices[p]] += data[p] * rows[t] for begin[t] <= p < stop[t]."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t width = rows.shape[1], n = rows.shape[0]
    if n == 0 or indices.shape[0] == 0 or out.shape[0] == 0:
        return
    cdef const real* x = &data[0] if data.shape[0] else NULL
    with nogil:
        if width == 2:
            scatter(&two, &begin[0], &stop[0], &indices[0], x, &rows[0, 0], width, &out[0, 0], n)
        elif width == 4:
            scatter(&four, &begin[0], &stop[0], &indices[0], x, &rows[0, 0], width, &out[0, 0], n)
        else:
            scatter(&eight, &begin[0], &stop[0], &indices[0], x, &rows[0, 0], width, &out[0, 0], n)


def add_pairs(
    const index[::1] indptr,         # (n + 1,)
    const int[::1] pair,             # (n_entries,)
    const unsigned short[::1] label,  # (n_entries,)
    const real[::1] data,            # (n_entries,) or (0,)
    const real[::1] w,               # (n_pairs,)
    real[:, ::1] psi,                # (n, width)         IN/OUT
):
    """psi[t, label[e]] += data[e] * w[pair[e]] for the entries e of each row t."""
    cdef Py_ssize_t t, e
    cdef bint ones = data.shape[0] == 0
    with nogil:
        for t in range(psi.shape[0]):
            for e in range(indptr[t], indptr[t + 1]):
                psi[t, label[e]] += w[pair[e]] if ones else data[e] * w[pair[e]]


def collect_pairs(
    const index[::1] indptr,         # (n + 1,)
    const int[::1] pair,             # (n_entries,)
    const unsigned short[::1] label,  # (n_entries,)
    const real[::1] data,            # (n_entries,) or (0,)
    const real[:, ::1] residual,     # (n, width)
    real[::1] out,                   # (n_pairs,)         IN/OUT
):
    """out[pair[e]] += data[e] * residual[t, label[e]] for the entries e of each row t."""
    cdef Py_ssize_t t, e
    cdef bint ones = data.shape[0] == 0
    with nogil:
        for t in range(residual.shape[0]):
            for e in range(indptr[t], indptr[t + 1]):
                out[pair[e]] += residual[t, label[e]] if ones else data[e] * residual[t, label[e]]


def count_columns(
    const index[::1] indices,        # (nnz,)
    long long[::1] counts,           # (n_columns,)      IN/OUT
    Py_ssize_t first, Py_ssize_t last,
):
    """Count the entries first to last - 1 of each column."""
    cdef Py_ssize_t p
    with nogil:
        for p in range(first, last):
            counts[indices[p]] += 1


def sum_columns(
    const index[::1] indices,        # (nnz,)
    const real[::1] data,            # (nnz,)
    const double[::1] sizes,         # (n_columns,)
    double[:, ::1] sums,             # (2, n_columns)    IN/OUT
):
    """Add the values of each column, divided by its size, to sums[0], their squares to sums[1]."""
    cdef Py_ssize_t p
    cdef double x
    with nogil:
        for p in range(indices.shape[0]):
            x = <double> data[p] / sizes[indices[p]]
            sums[0, indices[p]] += x
            sums[1, indices[p]] += x * x


def count_entries(
    const index[::1] indptr,         # (n + 1,)
    const index[::1] indices,        # (nnz,)
    const real[::1] data,            # (nnz,)
    const int[::1] rank,             # (n_features,)      padded row of a dense feature, else -1
    const int[::1] first_pair,       # (n_features + 1,)  first pair of each sparse feature
    long long[:, ::1] counts,        # (2, n)             OUT
    Py_ssize_t first, Py_ssize_t last,
):
    """Entries of dense features and pairs of others in rows first to last - 1, without zeros."""
    cdef Py_ssize_t t, p
    cdef long long dense, n_pairs
    with nogil:
        for t in range(first, last):
            dense = n_pairs = 0
            for p in range(indptr[t], indptr[t + 1]):
                if data[p] == 0:
                    continue
                dense += rank[indices[p]] >= 0
                n_pairs += first_pair[indices[p] + 1] - first_pair[indices[p]]
            counts[0, t], counts[1, t] = dense, n_pairs


def split_entries(
    const index[::1] indptr,         # (n + 1,)
    const index[::1] indices,        # (nnz,)
    const real[::1] data,            # (nnz,)
    const int[::1] rank,             # (n_features,)      padded row of a dense feature, else -1
    const int[::1] first_pair,       # (n_features + 1,)  first pair of each sparse feature
    const unsigned short[::1] label_of,  # (n_pairs,)
    const long long[:, ::1] starts,  # (2, n + 1)         sums of `count_entries` before each row
    tuple out,                       # OUT  padded rows of dense features and their values; pairs,
                                     # their labels and values. No values if all are 0 or 1.
    Py_ssize_t first, Py_ssize_t last,
):
    """Entries of dense features, and one for each pair of the others, in rows first to last - 1."""
    cdef Py_ssize_t t, p, f, at, to
    cdef int k
    cdef int[::1] dense = out[0], pair = out[2]
    cdef real[::1] dense_data = out[1], pair_data = out[4]
    cdef unsigned short[::1] label = out[3]
    cdef bint ones = dense_data.shape[0] == 0 and pair_data.shape[0] == 0
    with nogil:
        for t in range(first, last):
            at, to = starts[0, t], starts[1, t]
            for p in range(indptr[t], indptr[t + 1]):
                f = indices[p]
                if data[p] == 0:
                    continue
                if rank[f] >= 0:
                    dense[at] = rank[f]
                    if not ones:
                        dense_data[at] = data[p]
                    at += 1
                for k in range(first_pair[f], first_pair[f + 1]):
                    pair[to], label[to] = k, label_of[k]
                    if not ones:
                        pair_data[to] = data[p]
                    to += 1


def mark_pairs(
    const index[::1] indptr,         # (n + 1,)
    const index[::1] indices,        # (nnz,)
    const int[::1] y,                # (n,)
    unsigned char[:, ::1] seen,      # (n_features, n_labels)   OUT
):
    """seen[f, y[t]] = 1 for all features f that row t stores, also as 0."""
    cdef Py_ssize_t t, p
    with nogil:
        for t in range(y.shape[0]):
            for p in range(indptr[t], indptr[t + 1]):
                seen[indices[p], y[t]] = 1


def observed_scores(
    const real[:, ::1] psi,          # (n_rows, width)
    const int[::1] y,                # (n_rows,)
    const long long[::1] offsets,    # (n_sequences + 1,)
    double[::1] out,                 # (n_sequences,)   OUT
):
    """out[s] = sum_t psi[t, y_t] over the rows of sequence s."""
    cdef Py_ssize_t s, t
    with nogil:
        for s in range(out.shape[0]):
            out[s] = 0
            for t in range(offsets[s], offsets[s + 1]):
                out[s] += psi[t, y[t]]


def to_residuals(
    real[:, ::1] mu,                 # (n_rows, width)  IN marginals, OUT weight * (mu - observed)
    const int[::1] y,                # (n_rows,)
    const long long[::1] offsets,    # (n_sequences + 1,)
    const double[::1] weights,       # (n_sequences,)
    double[:, ::1] ends,             # (2, width)       IN/OUT += first rows, last rows
):
    """Expected minus observed label indicators, times the weight of the sequence."""
    cdef Py_ssize_t s, t, j, first, last
    cdef real weight
    with nogil:
        for s in range(weights.shape[0]):
            weight = <real> weights[s]
            first = offsets[s]
            last = offsets[s + 1] - 1
            for t in range(first, last + 1):
                if weight != 1:
                    for j in range(mu.shape[1]):
                        mu[t, j] *= weight
                mu[t, y[t]] -= weight
            if last >= first:
                for j in range(mu.shape[1]):
                    ends[0, j] += mu[first, j]
                    ends[1, j] += mu[last, j]


def add_ends(
    const real[:, ::1] rows,         # (n_rows, width)
    const long long[::1] offsets,    # (n_sequences + 1,)
    double[:, ::1] ends,             # (2, width)       IN/OUT += first rows, last rows
):
    """Sums over sequences of their first and of their last rows."""
    cdef Py_ssize_t s, j
    with nogil:
        for s in range(offsets.shape[0] - 1):
            if offsets[s] < offsets[s + 1]:
                for j in range(rows.shape[1]):
                    ends[0, j] += rows[offsets[s], j]
                    ends[1, j] += rows[offsets[s + 1] - 1, j]


def take_columns(
    const index[::1] indptr,         # (n + 1,)
    const index[::1] indices,        # (nnz,)
    const real[::1] data,            # (nnz,) or (0,)
    const int[::1] number,           # (n_columns,)     of a column in the result, or -1
    long long[::1] out_indptr,       # (n + 1,)         OUT
    int[::1] out_indices,            # (n_taken,)       OUT
    real[::1] out_data,              # (n_taken,) or (0,)  OUT
    const unsigned char[:, ::1] flags=None,  # (n, k)
    int first_flag=0,
):
    """Some columns of CSR rows, numbered anew; flags are further columns of ones."""
    cdef Py_ssize_t t, p, k, n = 0
    cdef bint ones = data.shape[0] == 0
    with nogil:
        out_indptr[0] = 0
        for t in range(indptr.shape[0] - 1):
            for p in range(indptr[t], indptr[t + 1]):
                if number[indices[p]] >= 0:
                    out_indices[n] = number[indices[p]]
                    if not ones:
                        out_data[n] = data[p]
                    n += 1
            if flags is not None:
                for k in range(flags.shape[1]):
                    if flags[t, k]:
                        out_indices[n] = first_flag + <int> k
                        if not ones:
                            out_data[n] = 1
                        n += 1
            out_indptr[t + 1] = n


def weighted_gram(
    const index[::1] indptr,         # (n + 1,)
    const index[::1] indices,        # (nnz,)
    const real[::1] data,            # (nnz,) or (0,)
    const double[::1] weights,       # (n,)
    double[:, ::1] out,              # (m, m)           IN/OUT
):
    """Add the lower triangle of rows' diag(weights) rows."""
    cdef Py_ssize_t t, p, q
    cdef index i, j
    cdef double x, product
    cdef bint ones = data.shape[0] == 0
    with nogil:
        for t in range(weights.shape[0]):
            for p in range(indptr[t], indptr[t + 1]):
                i = indices[p]
                x = weights[t] if ones else weights[t] * data[p]
                for q in range(indptr[t], p + 1):
                    j = indices[q]
                    product = x if ones else x * data[q]
                    if j < i:
                        out[i, j] += product
                    elif j > i:
                        out[j, i] += product
                    else:    # equal entries of a row add up
                        out[i, i] += product if p == q else 2 * product


cdef void add_label_grams(
    lanes* tag, const index* indices, const double* data, Py_ssize_t n, const double* weights,
    Py_ssize_t width, Py_ssize_t m, double* out, Py_ssize_t part, Py_ssize_t parts
) noexcept nogil:
    # The products of one row of n entries.
    cdef Py_ssize_t B = n_lanes(tag), block, p, q, k
    cdef double size
    cdef double* target
    cdef double[8] of_entry
    for block in range(width // B):
        size = 0
        for k in range(B):
            size += weights[block * B + k]
        if size == 0:
            continue
        for p in range(n):
            if parts > 1 and indices[p] % parts != part:
                continue
            for k in range(B):
                of_entry[k] = data[p] * weights[block * B + k]
            for q in range(p + 1):
                target = out + (indices[p] * m + indices[q]) * width + block * B
                for k in range(B):
                    target[k] += data[q] * of_entry[k]


def label_grams(
    const index[::1] indptr,         # (n + 1,)
    const index[::1] indices,        # (nnz,)           sorted in each row, none twice
    const double[::1] data,          # (nnz,)
    const double[:, ::1] weights,    # (n, width)       not negative
    double[:, :, ::1] out,           # (m, m, width)    IN/OUT
    Py_ssize_t part, Py_ssize_t parts,
):
    """Add rows' diag(weights[:, j]) rows to out[:, :, j] for each j, lower triangles only.

    Only rows ``part``, ``part`` + ``parts``, ... of the triangles are added to.
    """
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t t, first, n, m = out.shape[0], width = out.shape[2]
    if indices.shape[0] == 0 or m == 0:
        return
    with nogil:
        for t in range(weights.shape[0]):
            first, n = indptr[t], indptr[t + 1] - indptr[t]
            if width == 2:
                add_label_grams(&two, &indices[0] + first, &data[0] + first, n, &weights[t, 0],
                                width, m, &out[0, 0, 0], part, parts)
            elif width == 4:
                add_label_grams(&four, &indices[0] + first, &data[0] + first, n, &weights[t, 0],
                                width, m, &out[0, 0, 0], part, parts)
            else:
                add_label_grams(&eight, &indices[0] + first, &data[0] + first, n, &weights[t, 0],
                                width, m, &out[0, 0, 0], part, parts)


def unfold_grams(
    const double[:, :, ::1] grams,   # (m, m, width)    lower triangles
    double factor,
    double[:, :, ::1] out,           # (L, m, m)        OUT
    Py_ssize_t part, Py_ssize_t parts,
):
    """The j-th of L symmetric matrices is ``factor`` times that of grams[:, :, j].

    Only rows ``part``, ``part`` + ``parts``, ... of the triangles are written, as rows and columns.
    """
    cdef Py_ssize_t i = part, k, j
    with nogil:
        while i < grams.shape[0]:
            for j in range(out.shape[0]):
                for k in range(i + 1):
                    out[j, i, k] = factor * grams[i, k, j]
                for k in range(i):
                    out[j, k, i] = out[j, i, k]
            i += parts

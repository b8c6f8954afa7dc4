"""Forward-backward over a sequence from both of its ends, one half in each of two threads.

(`trace_from` is for best paths, which are found in parts: `best_path_in_parts` of `halves.py`.)

Rows 0 to m - 1 are the first half, m to T - 1 the second one. With B_t(i) = e_t(i) beta_t(i), the
backward recursion is a forward recursion over the rows in reverse, with the transposed matrix:

    alpha_t(j) = e_t(j) sum_i alpha_{t-1}(i) E(i, j) / c_t,      t = 0, ..., m - 1,
    B_t(i)     = e_t(i) sum_j E(i, j) B_{t+1}(j) / c_t,          t = T - 1, ..., m.

Where they meet, with c = sum_ij alpha_{m-1}(i) E(i, j) B_m(j),

    log Z = log c + sum_t log c_t (scores that were taken out of e and E aside),
    beta_{m-1}(i) = sum_j E(i, j) B_m(j) / c,

and from there each half goes back over its own rows: the first one by the backward recursion, the
second one by the same recursion over the rows in reverse, from sum_i alpha_{m-1}(i) E(i, j) / c.

Scaled arithmetic is proven exact as in `_chain.pyx`: its two conditions hold for E if and only if
they do for the transpose, and B is looked at as alpha is. What remains is c, which must be at least
FLOOR: a product that underflows is then less than tiny / FLOOR of it.
"""

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, real
from sklseq.inference.kernels._batched cimport add_pairs
from sklseq.inference.kernels._blocks cimport first_argmax
from sklseq.inference.kernels._recursions cimport add_products, backward_rows, finish_row, forward


def forward_half(
    const real[:, ::1] psi,          # (n, width)
    const real[:, ::1] e,            # (n, width)
    const real[:, ::1] E,            # (width, width)  the transpose if reverse
    real[:, ::1] alpha,              # (n, width)      OUT  alpha; or B, if reverse
    real[::1] inverse_c,             # (n,)            OUT  in the order of the recursion
    bint reverse,
    Py_ssize_t L,
    bint check,
):
    """The sum of log c_t; NaN if the sequence has to be done in the log domain."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t n = psi.shape[0], width = psi.shape[1]
    cdef Py_ssize_t row = n - 1 if reverse else 0, stride = -width if reverse else width
    cdef const real* scores = &psi[row, 0] if check else <const real*> NULL
    cdef double log_c
    with nogil:
        if width == 2:
            log_c = forward(&two, scores, &e[row, 0], &E[0, 0], &alpha[row, 0], &inverse_c[0],
                            <real*> NULL, True, n, L, width, stride)
        elif width == 4:
            log_c = forward(&four, scores, &e[row, 0], &E[0, 0], &alpha[row, 0], &inverse_c[0],
                            <real*> NULL, True, n, L, width, stride)
        else:
            log_c = forward(&eight, scores, &e[row, 0], &E[0, 0], &alpha[row, 0], &inverse_c[0],
                            <real*> NULL, True, n, L, width, stride)
    return log_c


cdef void backward_of(
    lanes* tag, const real* Et, const real* alpha, const real* inverse_c, real* e, real* marginals,
    Py_ssize_t n, Py_ssize_t L, Py_ssize_t width, bint reverse
) noexcept nogil:
    # Backward recursion of a half from the row where the halves meet, whose beta is given.
    cdef Py_ssize_t stride = width
    if reverse:
        stride = -width
        alpha += (n - 1) * width
        e += (n - 1) * width
        marginals += (n - 1) * width
    finish_row(tag, alpha, inverse_c, e, marginals, n - 1, width, stride)
    backward_rows(tag, Et, alpha, inverse_c, e, marginals, 0, n - 1, n, L, width, stride)


cdef void pairs_of(
    lanes* tag, const real* a, const real* u, Py_ssize_t n, double* pairs, Py_ssize_t L,
    Py_ssize_t width, real* scratch, bint many
) noexcept nogil:
    # pairs(i, j) += sum_{1 <= t < n} a_{t-1}(i) * u_t(j)
    if lanes is Lanes8 and many:
        add_pairs(a, u + width, n - 1, pairs, L, width)
    elif n > 1:
        add_products(tag, a, u + width, n - 1, scratch, pairs, 1, L, width)


def backward_half(
    const real[:, ::1] alpha,        # as `forward_half` left them
    const real[::1] inverse_c,
    real[:, ::1] e,                  # (n, width)      overwritten
    const real[:, ::1] Et,           # (width, width)  E itself if reverse
    real[:, ::1] marginals,          # (n, width)      OUT; IN beta, where the halves meet
    real[:, ::1] scratch,            # (width, width)
    double[:, ::1] pairs,            # (width, width)  IN/OUT  += pair marginals inside this half, E
                                     # left out; None: not computed
    bint reverse,
    Py_ssize_t L,
    bint many,                       # whether pairs of many labels are added up in batches
):
    """Marginals of a half."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t n = e.shape[0], width = e.shape[1]
    cdef const real* a = &alpha[0, 0]
    cdef const real* u = &e[0, 0]
    cdef double* sums = NULL
    if pairs is not None:
        sums = &pairs[0, 0]
    if reverse:      # pairs of rows t - 1 and t are u_{t-1}(i) B_t(j)
        a, u = u, a
    with nogil:
        if width == 2:
            backward_of(&two, &Et[0, 0], &alpha[0, 0], &inverse_c[0], &e[0, 0], &marginals[0, 0],
                        n, L, width, reverse)
            if sums != NULL:
                pairs_of(&two, a, u, n, sums, L, width, &scratch[0, 0], many)
        elif width == 4:
            backward_of(&four, &Et[0, 0], &alpha[0, 0], &inverse_c[0], &e[0, 0], &marginals[0, 0],
                        n, L, width, reverse)
            if sums != NULL:
                pairs_of(&four, a, u, n, sums, L, width, &scratch[0, 0], many)
        else:
            backward_of(&eight, &Et[0, 0], &alpha[0, 0], &inverse_c[0], &e[0, 0], &marginals[0, 0],
                        n, L, width, reverse)
            if sums != NULL:
                pairs_of(&eight, a, u, n, sums, L, width, &scratch[0, 0], many)


def trace_from(
    const real[:, ::1] delta,        # (n, width)      as `best_paths` leaves it
    const real[:, ::1] score_t,      # (width, width)
    int[::1] labels,                 # (n,)            IN [n - 1], OUT the others
    Py_ssize_t begun,                # from this row on, labels are a path that was traced back
    Py_ssize_t L,
):
    """The best path that ends in a label; where it meets the path in ``labels``, that one is it."""
    cdef Py_ssize_t t = delta.shape[0] - 2, best
    with nogil:
        while t >= 0:
            best = first_argmax(&delta[t, 0], &score_t[labels[t + 1], 0], L)
            if t >= begun and labels[t] == best:
                t = begun - 1
            else:
                labels[t] = <int> best
                t -= 1

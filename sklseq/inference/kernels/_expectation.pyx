"""Expected features of a linear chain in one forward pass: the expectation semiring.

With p(y) ∝ exp(score), the chain read backwards is a Markov chain whose kernel the forward
recursion knows: alpha_t being the filter p(y_t | rows up to t), and pred_t(j) = sum_i
alpha_{t-1}(i) E(i, j),

    K_t(j, i) = p(y_{t-1} = i | y_t = j, rows up to t) = alpha_{t-1}(i) E(i, j) / pred_t(j).

The h-part of the semiring divided by its z-part, h_t(j), is the expectation of the features of all
rows up to t given y_t = j. In it the semiring's product and sum are a convex combination,

    h_t(j) = f_t(j) + sum_i K_t(j, i) (h_{t-1}(i) + f(i, j)),

with no logarithms and nothing to overflow or cancel (`expectation_sequence`). B rows at once:

    h_{t+B} = S_t h_t + sum_{t < k <= t+B} S_k f_k,     S_{k-1} = S_k K_k, S_{t+B} = identity:

S_k(r, j) = p(y_k = j | y_{t+B} = r, rows up to t + B), L backward recursions (`backward_scaled`).
Where all rows r of S_k that an allowed path ends in are equal, one recursion serves all. "Equal"
means: each entry within a relative `agree`. As K_t is a stochastic matrix, ratios of rows of S only
ever come closer, so each expectation is then within `agree` of the unlimited one. That rows become
equal is certain only of labels that all reach each other (docs/maths.rst).

Scaled arithmetic is proven exact as in `_chain.pyx`: K_t is as good as alpha, and each entry of
alpha is checked, or E is mixing. What is marked goes through `filter_log` and `backward_log`.
"""

from libc.math cimport INFINITY, exp, fabs, log
from libc.string cimport memset

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes
from sklseq.inference.kernels._log_domain cimport log_kernel, log_normalise
from sklseq.inference.kernels._recursions cimport block_of_product, least_mass
from sklseq.inference.kernels._row_matrices cimport (
    RowMatrices, add_expected, forward_runs, has_entries, matrix_at, row_matrices,
)

SMALLEST_LOG = log(least_mass(<double*> NULL))
# Probabilities whose difference is below this count as equal.
cdef double NOTHING = 1e-290
# Least sum of products of probabilities that is accurate, those that underflow being 0.
cdef double ACCURATE = 1e-200
# Least number of labels for which sums of products take less time than logs (2: 1.3 times as long).
cdef Py_ssize_t MANY = 4
# Least ratio of an entropy to the logarithm that is added to it; below, digits cancel.
cdef double CANCELS = 1e-3


def filter_scaled(
    const double[:, ::1] psi,        # (n_rows, width)
    const double[:, ::1] e,          # (n_rows, width)
    const double[:, ::1] E,          # (width, width)
    double[:, ::1] alpha,            # (n_rows + 1, width)  IN [0]: the row before, OUT the others
    double[::1] inverse_c,           # (n_rows,)            OUT
    double[:, ::1] inverse,          # (n_rows, width)      OUT; or None
    bint first,                      # the first row begins the sequence
    Py_ssize_t L,
    bint check,
    rows,                            # `RowTransitions.for_kernels` of the block, or None
):
    """Forward recursion over a block of rows: sum of log c_t, NaN if it must be done in logs."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef Py_ssize_t T = psi.shape[0], width = psi.shape[1]
    cdef double log_c
    cdef const double* scores = &psi[0, 0] if check else NULL
    cdef double* inv = NULL
    cdef RowMatrices matrices = row_matrices(rows, E, False)
    if inverse is not None:
        inv = &inverse[0, 0]
    with nogil:
        if width == 2:
            log_c = forward_runs(&two, scores, &e[0, 0], &matrices, &alpha[1, 0], &inverse_c[0],
                                 inv, first, T, L, width)
        elif width == 4:
            log_c = forward_runs(&four, scores, &e[0, 0], &matrices, &alpha[1, 0], &inverse_c[0],
                                 inv, first, T, L, width)
        else:
            log_c = forward_runs(&eight, scores, &e[0, 0], &matrices, &alpha[1, 0], &inverse_c[0],
                                 inv, first, T, L, width)
    return log_c


def predict_rows(
    const double[:, ::1] alpha,      # (>= n_rows, width)  of the rows before
    const double[:, ::1] E,          # (width, width)
    double[:, ::1] predicted,        # (n_rows, width)  OUT of rows with entries
    Py_ssize_t L, tuple rows,
):
    """pred_t(j) = sum_i alpha_{t-1}(i) E_t(i, j), where row t has entries."""
    cdef Py_ssize_t t, i, j, width = predicted.shape[1]
    cdef RowMatrices matrices = row_matrices(rows, E, False)
    cdef const double* matrix
    with nogil:
        for t in range(predicted.shape[0]):
            if not has_entries(&matrices, t):
                continue
            matrix = matrix_at(&alpha[0, 0], &matrices, t)
            memset(&predicted[t, 0], 0, width * sizeof(double))
            for i in range(L):
                for j in range(width):
                    predicted[t, j] += alpha[t, i] * matrix[i * width + j]


cdef bint rows_agree(
    const double[:, ::1] S, const double[::1] live, Py_ssize_t L, double agree
) noexcept nogil:
    # Whether the rows r of S with live(r) > 0 agree in each entry, relatively within `agree`.
    cdef Py_ssize_t r, j, one = -1, R = S.shape[0]
    cdef double low, high
    for r in range(R):
        if live[r] > 0:
            one = r
            break
    for j in range(L):
        low = high = S[one, j]
        for r in range(one + 1, R):
            if live[r] > 0:
                low = min(low, S[r, j])
                high = max(high, S[r, j])
        if high - low > agree * high + NOTHING:
            return False
    return True


cdef inline void add_products_of_row(
    RowMatrices* Et, const double* alpha, double* q, Py_ssize_t r, Py_ssize_t R, Py_ssize_t width
) noexcept nogil:
    # pairs(i, r, j) += alpha(i) E_t(i, j) q(j), the same for `expected` of entries; then q = 0.
    cdef Py_ssize_t i, j
    cdef const double* matrix = <const double*> Et.own
    for j in range(Et.L):
        for i in range(Et.L):
            Et.pairs[(i * R + r) * width + j] += alpha[i] * (matrix[j * width + i] * q[j])
    if Et.expected != NULL:
        add_expected(Et, alpha, q, 1)
        Et.expected += Et.n_entries    # those given the next r
    memset(q, 0, width * sizeof(double))


cdef Py_ssize_t backward_given_last(
    lanes* tag, double[:, ::1] S, const double[:, ::1] alpha, const double[:, ::1] inverse,
    RowMatrices* Et, const double[::1] live, double[:, :, ::1] marginals,
    double[:, :, ::1] q, bint first, Py_ssize_t lo, Py_ssize_t L, double agree
) noexcept nogil:
    # q_t(r, j) = S_t(r, j) / pred_t(j),  S_{t-1}(r, i) = alpha_{t-1}(i) sum_j E(i, j) q_t(r, j)
    # For rows with entries, q becomes 0, its products having been added up.
    cdef Py_ssize_t t, r, j, block, k, B = n_lanes(tag), R = S.shape[0], width = S.shape[1]
    cdef Py_ssize_t hi = lo + marginals.shape[0]
    cdef double acc[8]
    cdef double* row
    cdef double* q_row
    cdef double* mu
    cdef const double* alpha_t
    cdef const double* inverse_t
    cdef const double* matrix
    cdef double* expected = Et.expected
    for t in range(hi - 1, lo - 1, -1):
        matrix = matrix_at(&alpha[0, 0], Et, t)
        Et.expected = expected
        alpha_t, inverse_t = &alpha[t, 0], &inverse[t, 0]
        for r in range(R):
            row, q_row, mu = &S[r, 0], &q[t - lo, r, 0], &marginals[t - lo, r, 0]
            for j in range(width):
                mu[j] = row[j]
            if t == 0 and first:
                memset(q_row, 0, width * sizeof(double))
                continue
            for j in range(width):
                q_row[j] = row[j] * inverse_t[j]
            for block in range(width // B):
                block_of_product(tag, q_row, 1, matrix + block * B, L, width, acc)
                for k in range(B):
                    row[block * B + k] = acc[k] * alpha_t[block * B + k]
            if has_entries(Et, t):
                add_products_of_row(Et, alpha_t, q_row, r, R, width)
        if R > 1 and (hi - t) % 4 == 0 and rows_agree(S, live, L, agree):
            return t
    return lo


def backward_scaled(
    double[:, ::1] S,                # (R, width)           IN at row hi - 1, OUT at the row before
    const double[:, ::1] alpha,      # (n_rows + 1, width)
    const double[:, ::1] inverse,    # (n_rows, width)
    const double[:, ::1] Et,         # (width, width)
    const double[::1] live,          # (>= R,)              > 0: row r of S matters
    double[:, :, ::1] marginals,     # (hi - lo, R, width)  OUT S_t(r, j)
    double[:, :, ::1] q,             # (hi - lo, R, width)  OUT
    bint first, Py_ssize_t lo, Py_ssize_t L, double agree,
    rows,                            # (`RowTransitions.for_kernels`, OUT pairs), or None
):
    """R backward recursions from row hi - 1 to row lo; the row reached if all agree before."""
    cdef Lanes2 two
    cdef Lanes4 four
    cdef Lanes8 eight
    cdef double[:, :, ::1] pairs     # (width, R, width) [i, r, j]: of rows with entries
    cdef RowMatrices matrices = row_matrices(None if rows is None else rows[0], Et, True)
    if rows is not None:
        pairs = rows[1]
        matrices.pairs = &pairs[0, 0, 0]
    with nogil:
        if S.shape[1] == 2:
            lo = backward_given_last(
                &two, S, alpha, inverse, &matrices, live, marginals, q, first, lo, L, agree
            )
        elif S.shape[1] == 4:
            lo = backward_given_last(
                &four, S, alpha, inverse, &matrices, live, marginals, q, first, lo, L, agree
            )
        else:
            lo = backward_given_last(
                &eight, S, alpha, inverse, &matrices, live, marginals, q, first, lo, L, agree
            )
    return lo


# ---------------------------------------------------------------- the same in the log domain


def filter_log(
    const double[:, ::1] psi,        # (n_rows, width)
    const double[:, ::1] score,      # (width, width)
    double[:, ::1] log_alpha,        # (n_rows + 1, width)  IN [0]: the row before, OUT the others
    double[::1] scratch,             # (width,)
    bint first, Py_ssize_t L,
    rows,                            # `row_scores` of the block
):
    """Forward recursion over a block in logs: its term of log Z, -inf if no path is allowed."""
    cdef Py_ssize_t t, j, width = psi.shape[1]
    cdef double total = 0, c
    cdef RowMatrices matrices = row_matrices(rows, score, False)
    cdef const double* matrix
    with nogil:
        for t in range(psi.shape[0]):
            matrix = matrix_at(<double*> NULL, &matrices, t)
            for j in range(L):
                log_alpha[t + 1, j] = psi[t, j]
                if not (t == 0 and first):
                    log_alpha[t + 1, j] += log_kernel(
                        &log_alpha[t, 0], matrix, width, j, &scratch[0], L
                    )
            c = log_normalise(&log_alpha[t + 1, 0], L)
            if c == -INFINITY:
                with gil:
                    return -INFINITY
            total += c
    return total


def backward_log(
    double[:, ::1] S,                # (R, width)           IN at row hi - 1, OUT at the row before
    const double[:, ::1] log_alpha,  # (n_rows + 1, width)
    const double[:, ::1] score,      # (width, width)
    const double[::1] live,          # (>= R,)
    double[:, :, ::1] marginals,     # (hi - lo, R, width)  OUT
    double[:, :, ::1] pairs,         # (width, R, width)    IN/OUT  += sum_t S_t(r, j) K_t(j, i)
    double[:, ::1] scratch,          # (R + L, width)
    bint first, Py_ssize_t lo, Py_ssize_t L, double agree,
    rows,                            # `row_scores` of the block
):
    """As `backward_scaled`, from logarithms of alpha."""
    cdef Py_ssize_t t, r, i, j, p, s, R = S.shape[0], width = S.shape[1]
    cdef Py_ssize_t hi = lo + marginals.shape[0]
    cdef double k
    cdef double* K = &scratch[R, 0]  # K_t(j, i)
    cdef double* K_j
    cdef RowMatrices matrices = row_matrices(rows, score, False)
    cdef const double* matrix
    with nogil:
        for t in range(hi - 1, lo - 1, -1):
            for r in range(R):
                for j in range(width):
                    marginals[t - lo, r, j] = S[r, j]
            if t == 0 and first:
                break
            matrix = matrix_at(<double*> NULL, &matrices, t)
            for r in range(R):
                memset(&scratch[r, 0], 0, width * sizeof(double))
            for j in range(L):
                K_j = K + j * width
                if log_kernel(&log_alpha[t, 0], matrix, width, j, K_j, L) == -INFINITY:
                    memset(K_j, 0, width * sizeof(double))
                    continue
                for i in range(L):
                    K_j[i] = k = exp(K_j[i])
                    for r in range(R):
                        scratch[r, i] += S[r, j] * k
                        pairs[i, r, j] += S[r, j] * k
            if has_entries(&matrices, t) and matrices.expected != NULL:
                s = matrices.now
                for r in range(R):
                    for p in range(matrices.start[s], matrices.start[s + 1]):
                        i, j = matrices.i[p], matrices.j[p]
                        matrices.expected[r * matrices.n_entries + p] += S[r, j] * K[j * width + i]
            for r in range(R):
                for j in range(L):
                    S[r, j] = scratch[r, j]
            if R > 1 and (hi - t) % 4 == 0 and rows_agree(S, live, L, agree):
                with gil:
                    return t
    return lo


# ---------------------------------------------------------------- any additive feature


cdef struct Entries:                 # entries start[r] to start[r + 1] - 1 are those of row r
    const long long* start
    const int* index
    const double* data


cdef Entries entries_of(tuple arrays):
    # (indptr, indices, data) of a CSR matrix, which the caller keeps.
    cdef const long long[::1] start = arrays[0]
    cdef const int[::1] index = arrays[1]
    cdef const double[::1] data = arrays[2]
    cdef Entries x
    x.start, x.index, x.data = &start[0], NULL, NULL
    if index.shape[0]:
        x.index, x.data = &index[0], &data[0]
    return x


cdef inline void add_row(
    const Entries* x, Py_ssize_t row, double times, double* out
) noexcept nogil:
    cdef long long a
    for a in range(x.start[row], x.start[row + 1]):
        out[x.index[a]] += times * x.data[a]


cdef void predict(
    const double* before, const double* H, const double* E, const double* D, Py_ssize_t L,
    double* p, double* pred, double* acc
) noexcept nogil:
    # p(i) = exp(before(i)), pred(j) = sum_i p(i) E(i, j), and, as -log E = D / E,
    # acc(j) = sum_i p(i) E(i, j) (H(i) - log p(i) - log E(i, j)), all of whose terms are >= 0.
    cdef Py_ssize_t i, j
    cdef double x, q
    memset(pred, 0, L * sizeof(double))
    memset(acc, 0, L * sizeof(double))
    for i in range(L):
        p[i] = x = exp(before[i])
        if x == 0:
            continue
        q = x * (H[i] - before[i])
        for j in range(L):
            pred[j] += x * E[i * L + j]
            acc[j] += q * E[i * L + j] + x * D[i * L + j]


cdef double entropy_of_kernel(double* k, const double* H, Py_ssize_t L) noexcept nogil:
    # Turn log K(j, i) into K(j, i); returns sum_i K(j, i) (H(i) - log K(j, i)).
    cdef Py_ssize_t i
    cdef double log_k, entropy = 0
    for i in range(L):
        log_k = k[i]
        k[i] = exp(log_k)
        if k[i] > 0:
            entropy += k[i] * (H[i] - log_k)
    return entropy


cdef void add_means(
    const double* k, const double* h, const Entries* pairs, Py_ssize_t j,
    Py_ssize_t L, Py_ssize_t M, double* mean
) noexcept nogil:
    # mean += sum_i K(j, i) (h(i) + f(i, j))
    cdef Py_ssize_t i, m
    for i in range(L):
        if k[i] == 0:
            continue
        for m in range(M):
            mean[m] += k[i] * h[i * M + m]
        add_row(pairs, i * L + j, k[i], mean)


cdef void add_covariances(
    const double* k, const double* h, const double* C, const Entries* pairs,
    const double* mean, double* d, Py_ssize_t j, Py_ssize_t L, Py_ssize_t M, double* out
) noexcept nogil:
    # out += sum_i K(j, i) (C(i) + d d'),  d = h(i) + f(i, j) - mean.
    cdef Py_ssize_t i, m, n
    for i in range(L):
        if k[i] == 0:
            continue
        for m in range(M):
            d[m] = h[i * M + m] - mean[m]
        add_row(pairs, i * L + j, 1, d)
        for m in range(M):
            for n in range(M):
                out[m * M + n] += k[i] * (C[(i * M + m) * M + n] + d[m] * d[n])


def expectation_sequence(
    const double[:, ::1] psi,        # (T, L)
    const double[:, ::1] score,      # (L, L)
    const double[:, :, ::1] factors,  # (2, L, L)     E = exp(score - top), D = -E log E
    double top,
    tuple row,                       # CSR, row t L + j: features of label j at row t
    tuple pair,                      # CSR, row i L + j: features of i -> j
    double[:, :, ::1] h,             # (2, L, M)       OUT [T % 2]
    double[:, :, :, ::1] C,          # (2, L, M, M)    OUT [T % 2]: covariances; or (0, 0, 0, 0)
    double[:, ::1] work,             # (9, max(L, M))
    rows,                            # `row_scores` of the sequence
):
    """h_t(j), and C_t(j) = Cov(features of rows up to t | y_t = j), in one pass.

    C_t(j) = sum_i K_t(j, i) (C_{t-1}(i) + d d'),  d = h_{t-1}(i) + f(i, j) + f_t(j) - h_t(j).
    The entropy is that of the path up to t given y_t = j:
    H_t(j) = sum_i K_t(j, i) (H_{t-1}(i) - log K_t(j, i)) = acc(j) / pred(j) + log pred(j).
    Products that underflow change no sum of at least `ACCURATE`; other sums, and entropies near 0,
    are computed in logs.
    Returns log Z; rows 0 and 1 of ``work`` hold log p(y_T) and H_T.
    """
    cdef Py_ssize_t T = psi.shape[0], L = psi.shape[1], M = h.shape[2], t, i, j, old, new
    cdef Entries of_rows = entries_of(row), pairs = entries_of(pair)
    cdef bint means = L * M > 0, second = C.shape[2] > 0, shared
    cdef double log_z = 0, c = 0
    cdef double* before = &work[0, 0]
    cdef double* H = &work[1, 0]
    cdef double* after = &work[2, 0]
    cdef double* H_after = &work[3, 0]
    cdef double* k = &work[4, 0]
    cdef double* d = &work[5, 0]
    cdef double* p = &work[6, 0]
    cdef double* pred = &work[7, 0]
    cdef double* acc = &work[8, 0]
    cdef const double* E = &factors[0, 0, 0]
    cdef double* mean = NULL         # h_t(j)
    cdef const double* h_before = NULL
    cdef RowMatrices matrices = row_matrices(rows, score, False)
    cdef const double* matrix
    with nogil:
        for t in range(T):
            old = t % 2
            new = 1 - old
            matrix = matrix_at(<double*> NULL, &matrices, t)
            if means:
                h[new] = 0
                h_before = &h[old, 0, 0]
            if second:
                C[new] = 0
            shared = L >= MANY and t > 0 and not has_entries(&matrices, t)
            if shared:
                predict(before, H, E, &factors[1, 0, 0], L, p, pred, acc)
            for j in range(L):
                H_after[j], after[j] = 0, psi[t, j]
                if means:
                    mean = &h[new, j, 0]
                if shared and pred[j] >= ACCURATE:
                    c = log(pred[j])
                    H_after[j] = acc[j] / pred[j] + c
                if H_after[j] > CANCELS * fabs(c):
                    after[j] += top + c
                    if means:
                        for i in range(L):
                            k[i] = p[i] * E[i * L + j] / pred[j]
                elif t > 0:
                    after[j] += log_kernel(before, matrix, L, j, k, L)
                    if after[j] == -INFINITY:
                        continue
                    H_after[j] = entropy_of_kernel(k, H, L)
                if t > 0 and means:
                    add_means(k, h_before, &pairs, j, L, M, mean)
                if t > 0 and second:
                    add_covariances(
                        k, h_before, &C[old, 0, 0, 0], &pairs, mean, d, j, L, M, &C[new, j, 0, 0]
                    )
                add_row(&of_rows, t * L + j, 1, mean)
            c = log_normalise(after, L)
            log_z += c
            if c == -INFINITY:
                break
            for j in range(L):
                before[j], H[j] = after[j], H_after[j]
    return log_z

"""One row of the recursions of `_segment_tokens.pyx`, for the kinds of cells that it has.

These loops are C, because vectorising them needs `restrict` (no two rows overlap), which Cython
cannot declare. Each set of kinds is compiled as a separate case, in which missing factors cost
nothing. ``kinds`` is 8 if the row has a cell of kind 3 (factor o), plus 4 for kind 2 (f), 2 for
kind 1 (b), 1 for kind 0 (x); other cells are not read.
"""

cimport sklseq._lib.prefetch
cimport sklseq.inference.kernels._row_loops

cdef extern from *:
    """
    /* The processor does not foresee which rows batched sequences read. Always inlined: GCC drops
       calls of a function that only prefetches. */
    SKLSEQ_CASE void sklseq_prefetch_rows(const double* row, int kinds, Py_ssize_t width) {
        Py_ssize_t k;
        for (; kinds; kinds &= kinds - 1, row += width)
            for (k = 0; k < width; k += 8) sklseq_prefetch(row + k);
    }
    #define SKLSEQ_FACTOR(kind, row) ((kinds & (kind)) ? (row)[k] : 1.0)
    #define SKLSEQ_TERM(kind, row) ((kinds & (kind)) ? (row)[k] : 0.0)
    /* Row of each kind. */
    #define SKLSEQ_ROWS_OF_CELLS \\
        double *restrict x = cells[0], *restrict b = cells[1], *restrict f = cells[2], \\
               *restrict o = cells[3]

    /* u: alpha^ becomes new. Fills G and alpha. */
    SKLSEQ_CASE void sklseq_forward_case(
        int kinds, Py_ssize_t n, double* const* cells, const double* restrict m,
        const double* restrict before, double factor, double* restrict u, double* restrict G,
        double* restrict alpha
    ) {
        SKLSEQ_ROWS_OF_CELLS;
        Py_ssize_t k;
        for (k = 0; k < n; k++) {
            double new_ = u[k] * SKLSEQ_FACTOR(2, b), old = m[k] * before[k];
            double on = SKLSEQ_FACTOR(8, o) * factor;
            double g = (old + new_) * on;
            if (kinds & 2) u[k] = new_;
            G[k] = g;
            if (kinds & 1) alpha[k] = (old + new_ * x[k]) * (on * SKLSEQ_FACTOR(4, f));
            else alpha[k] = g * SKLSEQ_FACTOR(4, f);
        }
    }

    /* G becomes D, u: new becomes u, beta the probability of each label, cells their marginals.
       What no segmentation reaches has no use for a derivative, which might overflow. */
    SKLSEQ_CASE void sklseq_backward_case(
        int kinds, Py_ssize_t n, double* const* cells, const double* restrict m,
        const double* restrict before, const double* restrict after, double factor,
        double* restrict beta, double* restrict u, double* restrict G
    ) {
        SKLSEQ_ROWS_OF_CELLS;
        Py_ssize_t k;
        for (k = 0; k < n; k++) {
            double g = G[k], new_ = u[k], on = SKLSEQ_FACTOR(8, o) * factor;
            double ending = SKLSEQ_FACTOR(4, f) * beta[k], going = m[k] * after[k];
            double by_old, by_new, inside;
            if (kinds & 1) {
                double old = m[k] * before[k];
                going *= on;
                ending *= on;
                by_old = going + ending;
                by_old = old > 0 ? by_old : 0;
                by_new = ending * x[k];
                x[k] = new_ * by_new;
                ending = old * ending + new_ * by_new;
                by_new += going;
                by_new = new_ > 0 ? by_new : 0;
                inside = old * by_old + new_ * by_new;
            } else {
                going += ending;
                going = g > 0 ? going : 0;
                by_old = by_new = going * on;
                inside = g * going;
                ending *= g;
            }
            if (kinds & 8) o[k] = inside;
            if (kinds & 4) f[k] = ending;
            u[k] = SKLSEQ_FACTOR(2, b) * by_new;
            if (kinds & 2) b[k] = new_ * by_new;
            G[k] = by_old;
            beta[k] = inside;
        }
    }

    /* The same in scores, lowered by shift. */
    SKLSEQ_CASE void sklseq_best_case(
        int kinds, Py_ssize_t n, double* const* cells, const double* restrict log_m,
        const double* restrict before, double shift, const double* restrict entered,
        double* restrict G, double* restrict alpha
    ) {
        SKLSEQ_ROWS_OF_CELLS;
        Py_ssize_t k;
        (void) b;
        for (k = 0; k < n; k++) {
            double old = before[k] + log_m[k], on = SKLSEQ_TERM(8, o) - shift;
            double g = entered[k], a = g + SKLSEQ_TERM(1, x);
            g = g >= old ? g : old;
            a = a >= old ? a : old;
            G[k] = g + on;
            alpha[k] = a + (on + SKLSEQ_TERM(4, f));
        }
    }

    #define SKLSEQ_FOUR_CASES(k, name, ...)                                                  \\
        case k: name(k, __VA_ARGS__); break;                                                 \\
        case k + 1: name(k + 1, __VA_ARGS__); break;                                         \\
        case k + 2: name(k + 2, __VA_ARGS__); break;                                         \\
        case k + 3: name(k + 3, __VA_ARGS__); break;
    #define SKLSEQ_ALL_CASES(name, ...) switch (kinds) {                                     \\
        SKLSEQ_FOUR_CASES(0, name, __VA_ARGS__)                                              \\
        SKLSEQ_FOUR_CASES(4, name, __VA_ARGS__)                                              \\
        SKLSEQ_FOUR_CASES(8, name, __VA_ARGS__)                                              \\
        SKLSEQ_FOUR_CASES(12, name, __VA_ARGS__)                                             \\
    }

    SKLSEQ_ROW void sklseq_forward_row(
        int kinds, Py_ssize_t n, double* const* cells, const double* restrict m,
        const double* restrict before, double factor, double* restrict u, double* restrict G,
        double* restrict alpha
    ) {
        SKLSEQ_ALL_CASES(sklseq_forward_case, n, cells, m, before, factor, u, G, alpha)
    }
    SKLSEQ_ROW void sklseq_backward_row(
        int kinds, Py_ssize_t n, double* const* cells, const double* restrict m,
        const double* restrict before, const double* restrict after, double factor,
        double* restrict beta, double* restrict u, double* restrict G
    ) {
        SKLSEQ_ALL_CASES(sklseq_backward_case, n, cells, m, before, after, factor, beta, u, G)
    }
    SKLSEQ_ROW void sklseq_best_row(
        int kinds, Py_ssize_t n, double* const* cells, const double* restrict log_m,
        const double* restrict before, double shift, const double* restrict entered,
        double* restrict G, double* restrict alpha
    ) {
        SKLSEQ_ALL_CASES(sklseq_best_case, n, cells, log_m, before, shift, entered, G, alpha)
    }
    """
    void sklseq_prefetch_rows(const double* row, int kinds, Py_ssize_t width) noexcept nogil
    void sklseq_forward_row(
        int kinds, Py_ssize_t n, double** cells, const double* m, const double* before,
        double factor, double* u, double* G, double* alpha
    ) noexcept nogil
    void sklseq_backward_row(
        int kinds, Py_ssize_t n, double** cells, const double* m, const double* before,
        const double* after, double factor, double* beta, double* u, double* G
    ) noexcept nogil
    void sklseq_best_row(
        int kinds, Py_ssize_t n, double** cells, const double* log_m, const double* before,
        double shift, const double* entered, double* G, double* alpha
    ) noexcept nogil

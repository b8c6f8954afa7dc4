"""One state of the recursions of `_segments.pyx`, all labels at once.

C for the reasons of `_token_rows.pxd`. ``has`` is the sum of 1 and 2 for the group's own factors,
open and closed at the end (``mine``, ``ends``), 4 for a new start in the group, 8 for a target and
16 for a mask on the way to it. Arguments for missing parts are not read.
"""

cimport sklseq.inference.kernels._row_loops

cdef enum:
    MINE = 1
    ENDS = 2
    NEW = 4
    GOES_ON = 8
    MASKED = 16

cdef extern from *:
    """
    /* One case for each of the 32 values of `has`. */
    #define SKLSEQ_1(f, h, ...) if (has & 1) f((h) | 1, __VA_ARGS__); else f(h, __VA_ARGS__)
    #define SKLSEQ_2(f, h, ...) \\
        if (has & 2) SKLSEQ_1(f, (h) | 2, __VA_ARGS__); else SKLSEQ_1(f, h, __VA_ARGS__)
    #define SKLSEQ_4(f, h, ...) \\
        if (has & 4) SKLSEQ_2(f, (h) | 4, __VA_ARGS__); else SKLSEQ_2(f, h, __VA_ARGS__)
    #define SKLSEQ_8(f, h, ...) \\
        if (has & 8) SKLSEQ_4(f, (h) | 8, __VA_ARGS__); else SKLSEQ_4(f, h, __VA_ARGS__)
    #define SKLSEQ_16(f, ...) \\
        if (has & 16) SKLSEQ_8(f, 16, __VA_ARGS__); else SKLSEQ_8(f, 0, __VA_ARGS__)

    SKLSEQ_ROW void sklseq_times_row(Py_ssize_t n, double* restrict x, const double* restrict y) {
        Py_ssize_t k;
        for (k = 0; k < n; k++) x[k] *= y[k];
    }

    /* pre becomes G; alpha, mass and the target are added up. */
    SKLSEQ_CASE void sklseq_forward_state_case(
        int has, Py_ssize_t n, double* restrict G, const double* restrict entering,
        const double* restrict opened, const double* restrict mine,
        const double* restrict closed, const double* restrict ends,
        const double* restrict mask, double* restrict target, double* restrict alpha,
        double* restrict mass
    ) {
        Py_ssize_t k;
        for (k = 0; k < n; k++) {
            double g = G[k];
            if (has & 4) g += entering[k];
            g *= (has & 1) ? opened[k] * mine[k] : opened[k];
            alpha[k] += g * ((has & 2) ? closed[k] * ends[k] : closed[k]);
            mass[k] += g;
            G[k] = g;
            if (has & 8) target[k] += (has & 16) ? g * mask[k] : g;
        }
    }
    SKLSEQ_ROW void sklseq_forward_state(
        int has, Py_ssize_t n, double* restrict G, const double* restrict entering,
        const double* restrict opened, const double* restrict mine,
        const double* restrict closed, const double* restrict ends,
        const double* restrict mask, double* restrict target, double* restrict alpha,
        double* restrict mass
    ) {
        SKLSEQ_16(
            sklseq_forward_state_case, n, G, entering, opened, mine, closed, ends, mask, target,
            alpha, mass
        );
    }

    /* G becomes the derivative by pre, and so does u; mine and ends become marginals of their
       cells; those of groups up to this one are added up. What no segmentation reaches has no use
       for a derivative, which might overflow. */
    SKLSEQ_CASE void sklseq_backward_state_case(
        int has, Py_ssize_t n, double* restrict G, double* restrict u,
        const double* restrict opened, double* restrict mine, const double* restrict closed,
        double* restrict ends, const double* restrict mask, const double* restrict target,
        double* restrict sum_going, double* restrict sum_ending
    ) {
        Py_ssize_t k;
        for (k = 0; k < n; k++) {
            double g = G[k], on = (has & 1) ? opened[k] * mine[k] : opened[k];
            double ending = (has & 2) ? closed[k] * ends[k] : closed[k], ahead = ending;
            if (has & 8) ahead += (has & 16) ? mask[k] * target[k] : target[k];
            ahead = g > 0 ? ahead : 0;
            ending *= g;
            g *= ahead;
            ahead *= on;
            sum_going[k] += g;
            sum_ending[k] += ending;
            G[k] = ahead;
            if (has & 4) u[k] = ahead;
            if (has & 1) mine[k] = g;
            if (has & 2) ends[k] = ending;
        }
    }
    SKLSEQ_ROW void sklseq_backward_state(
        int has, Py_ssize_t n, double* restrict G, double* restrict u,
        const double* restrict opened, double* restrict mine, const double* restrict closed,
        double* restrict ends, const double* restrict mask, const double* restrict target,
        double* restrict sum_going, double* restrict sum_ending
    ) {
        SKLSEQ_16(
            sklseq_backward_state_case, n, G, u, opened, mine, closed, ends, mask, target,
            sum_going, sum_ending
        );
    }

    /* n states in a row with nothing but a closed cell of their own and a target: see `find_runs`.
       What they share stays in registers. */
    #define SKLSEQ_FORWARD_RUN(B)                                                                \\
        for (z = 0; z < width; z += B) {                                                         \\
            double on[B], off[B], sum[B], all[B];                                                \\
            for (k = 0; k < B; k++) {                                                            \\
                on[k] = opened[z + k], off[k] = closed[z + k];                                   \\
                sum[k] = alpha[z + k], all[k] = mass[z + k];                                     \\
            }                                                                                    \\
            for (i = z; i < n * width; i += width)                                               \\
                for (k = 0; k < B; k++) {                                                        \\
                    double g = G[i + k] * on[k];                                                 \\
                    sum[k] += g * (off[k] * ends[i + k]);                                        \\
                    all[k] += g;                                                                 \\
                    G[i + k] = g;                                                                \\
                    target[i + k] += g;                                                          \\
                }                                                                                \\
            for (k = 0; k < B; k++) alpha[z + k] = sum[k], mass[z + k] = all[k];                 \\
        }
    SKLSEQ_ROW void sklseq_forward_run(
        Py_ssize_t n, Py_ssize_t width, double* restrict G, const double* restrict opened,
        const double* restrict closed, const double* restrict ends, double* restrict target,
        double* restrict alpha, double* restrict mass
    ) {
        Py_ssize_t i, k, z;
        if (width == 2) SKLSEQ_FORWARD_RUN(2)
        else if (width == 4) SKLSEQ_FORWARD_RUN(4)
        else SKLSEQ_FORWARD_RUN(8)
    }
    #define SKLSEQ_BACKWARD_RUN(B)                                                               \\
        for (z = 0; z < width; z += B) {                                                         \\
            double on[B], off[B], going[B], ending[B];                                           \\
            for (k = 0; k < B; k++) {                                                            \\
                on[k] = opened[z + k], off[k] = closed[z + k];                                   \\
                going[k] = sum_going[z + k], ending[k] = sum_ending[z + k];                      \\
            }                                                                                    \\
            for (i = (n - 1) * width + z; i >= 0; i -= width)                                    \\
                for (k = 0; k < B; k++) {                                                        \\
                    double g = G[i + k], now = off[k] * ends[i + k];                             \\
                    double ahead = g > 0 ? now + target[i + k] : 0;                              \\
                    now *= g;                                                                    \\
                    going[k] += g * ahead;                                                       \\
                    ending[k] += now;                                                            \\
                    G[i + k] = ahead * on[k];                                                    \\
                    ends[i + k] = now;                                                           \\
                }                                                                                \\
            for (k = 0; k < B; k++) sum_going[z + k] = going[k], sum_ending[z + k] = ending[k];  \\
        }
    SKLSEQ_ROW void sklseq_backward_run(
        Py_ssize_t n, Py_ssize_t width, double* restrict G, const double* restrict opened,
        const double* restrict closed, double* restrict ends, const double* restrict target,
        double* restrict sum_going, double* restrict sum_ending
    ) {
        Py_ssize_t i, k, z;
        if (width == 2) SKLSEQ_BACKWARD_RUN(2)
        else if (width == 4) SKLSEQ_BACKWARD_RUN(4)
        else SKLSEQ_BACKWARD_RUN(8)
    }
    """
    void sklseq_forward_run(
        Py_ssize_t n, Py_ssize_t width, double* G, const double* opened, const double* closed,
        const double* ends, double* target, double* alpha, double* mass
    ) noexcept nogil
    void sklseq_backward_run(
        Py_ssize_t n, Py_ssize_t width, double* G, const double* opened, const double* closed,
        double* ends, const double* target, double* sum_going, double* sum_ending
    ) noexcept nogil
    void sklseq_times_row(Py_ssize_t n, double* x, const double* y) noexcept nogil
    void sklseq_forward_state(
        int has, Py_ssize_t n, double* G, const double* entering, const double* opened,
        const double* mine, const double* closed, const double* ends, const double* mask,
        double* target, double* alpha, double* mass
    ) noexcept nogil
    void sklseq_backward_state(
        int has, Py_ssize_t n, double* G, double* u, const double* opened, double* mine,
        const double* closed, double* ends, const double* mask, const double* target,
        double* sum_going, double* sum_ending
    ) noexcept nogil

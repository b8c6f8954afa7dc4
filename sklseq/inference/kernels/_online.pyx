"""Online decoding of one linear chain: rows come one by one, labels leave when a rule says so.

A `Beam` keeps the rows whose labels have not been emitted, t0 to T. For each label b at row T

    delta(b)        best score of a path that ends in b, the best of all set to 0
    pointers(t, b)  the label before b at row t on that path, lowest first: Prev_t(b)
    origin(b)       the label at row t0 on that path: Prev_T(t0, b), the closure of Prev (§3.2)
    p(b)            belief in label b at row T, in proportion to the forward filter's
                    exp(alpha(T, b)), or to exp(delta(b))
    pp(a)           sum of p(b) over all b with origin(b) = a: belief in label a at row t0
    alpha(t, b)     log sum over all paths that end in b at row t; the largest of a row is 0
    ahead(j)        max_i delta(i) + psi(i, j), and next(j) the lowest such i: what the recursion
                    needs of row T + 1 before its scores are known
    alive(b)        whether b survives: the best path of the whole sequence may have b at row T
    lasting(b)      whether an endless path of allowed transitions begins with b; if not, b is a
                    *dead end*, which only the last rows of a sequence can have
    hopeful(b)      whether b survives and is lasting; if no survivor is lasting, whether b survives

In the paper every b with delta(b) > -inf survives. But if transitions are the same in all rows,
label j of row T + 1 has next(j) before it; and if that row does not come, b is the label with
which the best path ends. With `early` these are the survivors, and p is the belief of row T + 1
with its scores unknown,

    p(b)            in proportion to the sum of exp(ahead(j)) over all j with next(j) = b,

so that each rule decides at row T what the paper's decides at row T + 1; or the forward filter's
of row T, of the survivors. If the scores psi(i, j)
differ from row to row (`by_rows`), those of row T + 1 are unknown at row T: then the paper's rule
holds. A row brings its matrix, which is kept until its label has left.

There are two ways to emit:

* *Lossless.* All survivors agree on the labels of rows t0 to t: every continuation of the best path
  has them. They leave; delta does not change, so that results equal the batch algorithm's, bit for
  bit.
* *Committing.* By a rule, label a is likely enough, though survivors disagree. Until the sequence
  ends, the path to it goes on to a label that is `hopeful`, so that some label may always follow:
  if the likeliest label leads to dead ends only, the rule waits, or if it may not, takes the
  likeliest that does not. With `restarts`,
  paths that contradict it are dropped: the beam starts again from a and processes the pending rows
  again, as in Figure 4 of the paper. Each row then has to outweigh the change of label by itself,
  so that a state that lasts is never left if single rows say little. Without, the beam continues as
  if nothing had been emitted, and starts again only if a label is to leave that may not follow the
  committed one (`contradicts`, `replay`). Both emit an allowed path.

Rows that become known only with the end of the sequence, as those of features that look ahead, are
*held*: the beam advances over them, and no label leaves until `finish` counts the scores `end`.

The confidence in a label that leaves is its posterior p(y_t | rows 0 to T), from alpha and the
backward recursion over the pending rows (`weigh`). It does not condition on labels that have left:
neither restarts nor rules change alpha. With ``decide="marginal"`` the rules say only when labels
leave; each is the one of least expected cost under its posterior, and no path is dropped.

Arithmetic is that of `_chain.pyx`: each row's maximum is subtracted. float32 scores are stored as
float64, but every sum is rounded to float32, which gives the same numbers: float64 has more than
twice the digits, so rounding twice equals rounding once.
"""

cimport cython
from libc.math cimport INFINITY, exp, log
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memmove, memset

import numpy as np

from sklseq._lib.lanes cimport Lanes2, Lanes4, Lanes8, lanes, n_lanes, real
from sklseq.inference.kernels._log_domain cimport log_sum
from sklseq.inference.kernels._recursions cimport least_mass, sklseq_one_row_at_a_time
from sklseq.inference.kernels._row_matrices cimport RowMatrices, matrix_at, row_matrices

STRATEGIES = ("step", "window", "closure", "chunk", "viterbi")
MEASURES = ("error", "entropy", "ambiguity", "callable")
cdef enum:
    STEP, WINDOW, CLOSURE, CHUNK, VITERBI
cdef enum:
    ERROR, ENTROPY, AMBIGUITY, CALLABLE
# Results of `push_row` and `finish`.
cdef enum:
    FINE = 0
    DEAD = 1
# Labels to emit: none; all labels on which survivors agree, or only the first of them; the label
# of row t0; or all pending labels, those of one path.
cdef enum:
    NOTHING, AGREED, FIRST, COMMITTED, PATH

cdef Py_ssize_t SMALLEST = 32    # the least number of rows for which memory is held


cdef struct Emitted:
    int label
    double confidence
    long long latency


cdef struct Counts:
    # Header of a stored state.
    long long n_rows, n_emitted
    Py_ssize_t n_pending, previous, lossy


cdef inline void max_plus_row(
    lanes* tag, real* digits, const double* x, const double* matrix, double* best, int* arg,
    Py_ssize_t L, Py_ssize_t width
) noexcept nogil:
    # best(j) = max_i x(i) + matrix(i, j), arg(j) = the lowest such i; sums have `digits`.
    cdef Py_ssize_t B = n_lanes(tag), block, i, k
    cdef double top[8]
    cdef double lowest[8]    # double like `top`, so that one comparison selects both
    cdef double x_i, v
    for block in range(width // B):
        for k in range(B):
            top[k] = -INFINITY
            lowest[k] = 0
        for i in range(L):
            x_i = x[i]
            for k in range(B):
                v = <real> (x_i + matrix[i * width + block * B + k])
                lowest[k] = i if v > top[k] else lowest[k]
                top[k] = v if v > top[k] else top[k]
            sklseq_one_row_at_a_time()
        for k in range(B):
            best[block * B + k] = top[k]
            arg[block * B + k] = <int> lowest[k]


cdef inline void max_plus(
    real* digits, const double* x, const double* matrix, double* best, int* arg, Py_ssize_t L,
    Py_ssize_t width
) noexcept nogil:
    if width == 2:
        max_plus_row(<Lanes2*> NULL, digits, x, matrix, best, arg, L, width)
    elif width == 4:
        max_plus_row(<Lanes4*> NULL, digits, x, matrix, best, arg, L, width)
    else:
        max_plus_row(<Lanes8*> NULL, digits, x, matrix, best, arg, L, width)


cdef inline bint fits(double score, double largest) noexcept nogil:
    # Whether sums with the score do not overflow; -inf is forbidden, and NaN does not fit.
    return -largest <= score <= largest or score == -INFINITY


cdef inline Py_ssize_t first_argmax(const double* x, Py_ssize_t L) noexcept nogil:
    cdef Py_ssize_t j, best = 0
    for j in range(1, L):
        if x[j] > x[best]:
            best = j
    return best


cdef void posterior(
    const double* alpha, const double* beta, double* out, Py_ssize_t L
) noexcept nogil:
    # out(j) in proportion to exp(alpha(j) + beta(j)), summing to one
    cdef Py_ssize_t j
    cdef double top = -INFINITY, total = 0
    for j in range(L):
        top = max(top, alpha[j] + beta[j])
    for j in range(L):
        out[j] = exp(alpha[j] + beta[j] - top)
        total += out[j]
    for j in range(L):
        out[j] /= total


@cython.final
cdef class Beam:
    """Pending rows of one sequence and the rule by which their labels leave.

    Parameters
    ----------
    scores : BeamScores
    rule : OnlineRule
    measure : callable or None
        Of a distribution over labels, if ``rule.uncertainty`` is a function.
    """

    cdef readonly Py_ssize_t n_labels, width, n_pending, n_queued
    cdef readonly long long n_rows, n_emitted
    cdef const double[:, ::1] score, E, E_t
    cdef const double[::1] start, end
    cdef readonly double largest       # the largest score with which no sum overflows
    cdef readonly bint single          # whether sums are rounded to float32
    cdef bint by_rows                  # whether psi(i, j) differs from row to row
    cdef const double* arriving        # (L, width) psi(i, j) of the row that comes
    cdef double top, latency_cost
    cdef bint forward                  # whether p is the forward filter's
    cdef bint early                    # whether survivors and beliefs are those of row T + 1
    cdef bint restarts                 # whether the beam starts again after a committed label
    cdef bint lossy, weighs
    cdef bint marginal                 # whether labels are those of least risk, not of paths
    cdef const double[:, ::1] costs    # (L, L) of label j where i is right, or empty: 1 - [i = j]
    cdef const int[::1] lasting        # (L,)
    cdef double[:, ::1] shares         # (n, L) posteriors of the labels from number `base` on, OUT
    cdef long long base
    cdef bint reached                  # whether `ahead` and `next` are those of delta
    cdef bint onward                   # see `survive`
    cdef Py_ssize_t previous           # last label committed that the beam does not follow, or -1
    cdef int strategy, uncertainty
    cdef Py_ssize_t window_size, max_latency    # -1: none
    cdef object measure, scores_of_p
    cdef double[:, ::1] vectors        # (14, width): storage of the pointers that follow
    cdef double *delta
    cdef double *best                  # max_i delta_{T-1}(i) + psi(i, j), and
    cdef double *last                  # psi_T(j): kept, to add `end` as the batch algorithm does
    cdef double *log_alpha
    cdef double *p
    cdef double *pp
    cdef double *row
    cdef double *scratch
    cdef double *ahead
    cdef double *saved                 # (4, width) the first four, before this row
    cdef double *filtered              # alpha(T, .)
    cdef int[:, ::1] integers          # (8, width)
    cdef int *origin
    cdef int *next
    cdef int *alive
    cdef int *hopeful                  # `alive` itself if all labels are lasting, or none is
    cdef int *current
    cdef int *before
    cdef int *found
    cdef int *saved_origin
    cdef int[:, :, ::1] losses         # (2, L, L) for "window": Loss_T(a, b), and scratch
    cdef int side                      # which of the two is Loss_T
    # Pending rows are records of `size` bytes: psi and alpha (width doubles each), pointers (width
    # ints) and, if `by_rows`, (L, width) transitions. The first pending one is number `first` of
    # `capacity`.
    cdef char *rows
    cdef Py_ssize_t size, first, capacity
    cdef object record                 # their dtype
    cdef Emitted *queue                # (queue_capacity,) not yet taken
    cdef Py_ssize_t queue_capacity
    cdef char *marked                  # the state that `undo` restores, or NULL
    cdef bint aside                    # whether `marked` has its pending rows
    cdef Py_ssize_t n_queued_before    # n_queued of `marked`

    def __cinit__(self, object scores, object rule, object measure):
        cdef Py_ssize_t L = scores.n_labels, n_losses
        self.score, self.E, self.E_t, self.start, self.end, self.n_labels, self.top, \
            self.largest, self.single, self.by_rows, self.lasting = scores
        self.width = self.score.shape[0]
        self.size = self.width * (2 * sizeof(double) + sizeof(int))
        self.size += self.by_rows * L * self.width * sizeof(double)
        self.strategy = STRATEGIES.index(rule.strategy)
        self.uncertainty = MEASURES.index("callable" if measure else rule.uncertainty)
        self.measure, self.latency_cost, self.weighs = measure, rule.latency_cost, True
        self.forward, self.restarts = rule.belief == "forward", rule.restart == "always"
        self.early = rule.early and self.strategy in (STEP, WINDOW, CLOSURE) and not self.by_rows
        self.marginal, self.costs = rule.decide == "marginal", rule.cost_array(L)
        self.shares = np.empty((0, L))
        self.previous = -1
        self.max_latency = -1 if rule.max_latency is None else rule.max_latency
        self.window_size = -1 if rule.window_size is None else rule.window_size
        if self.strategy == CHUNK and self.max_latency >= 0:
            self.window_size = min(self.window_size, self.max_latency + 1)
        n_losses = L if self.strategy == WINDOW else 0
        self.losses = np.zeros((2, n_losses, n_losses), dtype=np.intc)
        self.vectors = np.zeros((14, self.width))
        self.integers = np.zeros((8, self.width), dtype=np.intc)
        self.delta, self.best = &self.vectors[0, 0], &self.vectors[1, 0]
        self.last, self.log_alpha = &self.vectors[2, 0], &self.vectors[3, 0]
        self.p, self.pp, self.row = &self.vectors[4, 0], &self.vectors[5, 0], &self.vectors[6, 0]
        self.scratch, self.ahead = &self.vectors[7, 0], &self.vectors[8, 0]
        self.saved, self.filtered = &self.vectors[9, 0], &self.vectors[13, 0]
        self.origin, self.current = &self.integers[0, 0], &self.integers[1, 0]
        self.before, self.found = &self.integers[2, 0], &self.integers[3, 0]
        self.saved_origin, self.next = &self.integers[4, 0], &self.integers[5, 0]
        self.alive = &self.integers[6, 0]
        n_lasting = np.count_nonzero(self.lasting)
        self.hopeful = &self.integers[7, 0] if 0 < n_lasting < L else self.alive
        fields = [("psi", "f8", self.width), ("alpha", "f8", self.width)]
        fields += [("pointers", np.intc, self.width)]
        fields += [("transition", "f8", (L, self.width))] * self.by_rows
        self.record = np.dtype(fields)
        # The argument of a callable measure: the first n_labels numbers of pp.
        self.scores_of_p = np.asarray(self.vectors)[5, :L]
        self.clear()

    def __dealloc__(self):
        free(self.rows)
        free(self.queue)
        free(self.marked)

    # ------------------------------------------------------------ memory

    cdef inline double* psi(self, Py_ssize_t i) noexcept nogil:
        # psi of record i; pending records are first, ..., first + n_pending - 1.
        return <double*> (self.rows + i * self.size)

    cdef inline double* alpha(self, Py_ssize_t i) noexcept nogil:
        return self.psi(i) + self.width

    cdef inline int* pointers(self, Py_ssize_t i) noexcept nogil:
        return <int*> (self.psi(i) + 2 * self.width)

    cdef inline const double* transition(self, Py_ssize_t i) noexcept nogil:
        # (L, width) psi(i, j) of record i.
        if self.by_rows:
            return <const double*> (self.pointers(i) + self.width)
        return &self.score[0, 0]

    cdef int resize_rows(self, Py_ssize_t capacity) except -1 nogil:
        cdef void* rows = realloc(self.rows, capacity * self.size)
        if rows == NULL:
            with gil:
                raise MemoryError()
        self.rows, self.capacity = <char*> rows, capacity
        return 0

    cdef int resize_queue(self, Py_ssize_t queue_capacity) except -1 nogil:
        cdef void* queue = realloc(self.queue, queue_capacity * sizeof(Emitted))
        if queue == NULL:
            with gil:
                raise MemoryError()
        self.queue, self.queue_capacity = <Emitted*> queue, queue_capacity
        return 0

    cdef int reserve(self, Py_ssize_t n) except -1 nogil:
        # Memory for n more labels behind the queue, which whatever emits labels reserves first.
        if self.n_queued + n > self.queue_capacity:
            self.resize_queue(max(SMALLEST, 2 * (self.n_queued + n)))
        return 0

    cdef int empty_queue(self) except -1 nogil:
        # All labels have been taken.
        cdef Py_ssize_t enough = max(SMALLEST, 2 * self.n_pending)
        self.n_queued = 0
        if self.queue_capacity > 64 * SMALLEST and self.queue_capacity > 2 * enough:
            self.resize_queue(enough)
        return 0

    cdef int make_room(self) except -1 nogil:
        # Memory for one more row and all labels that may leave with it. Rows move to the front when
        # the end is reached; at most half are pending then, so a move costs O(1) a row.
        cdef Py_ssize_t wanted = self.n_pending + 1
        self.reserve(wanted)
        if self.first == 0 and self.capacity > 32 * max(wanted, SMALLEST):
            self.resize_rows(max(SMALLEST, 4 * wanted))    # after a long wait
        if self.first + wanted <= self.capacity:
            return 0
        if self.first:
            memmove(self.rows, self.rows + self.first * self.size, self.n_pending * self.size)
            self.first = 0
        if 2 * wanted > self.capacity or (
            8 * wanted < self.capacity and self.capacity > SMALLEST
        ):
            self.resize_rows(max(SMALLEST, 4 * wanted))
        return 0

    @property
    def nbytes(self):
        """Bytes held for pending rows and labels to be taken."""
        return self.capacity * self.size + self.queue_capacity * sizeof(Emitted)

    # ------------------------------------------------------------ one more row

    cdef void restart(self, Py_ssize_t label) noexcept nogil:
        # Start again with `label` as the label before the next row.
        cdef Py_ssize_t j
        for j in range(self.width):
            self.delta[j] = -INFINITY
            self.log_alpha[j] = -INFINITY
            self.ahead[j] = self.score[label, j]
            self.next[j] = <int> label if self.ahead[j] > -INFINITY else 0
        self.delta[label] = 0
        self.log_alpha[label] = 0
        self.reached = not self.by_rows

    cdef inline double rounded(self, double x) noexcept nogil:
        return <double> <float> x if self.single else x

    cdef inline bint normalise(self, const double* scores) noexcept nogil:
        # delta = scores - max scores; False, and delta as before, if all are -inf.
        cdef Py_ssize_t j
        cdef double top = -INFINITY
        for j in range(self.n_labels):
            top = scores[j] if scores[j] > top else top
        if top == -INFINITY:
            return False
        if self.single:
            for j in range(self.width):
                self.delta[j] = <double> <float> (scores[j] - top)
        else:
            for j in range(self.width):
                self.delta[j] = scores[j] - top
        return True

    cdef void reach(self, const double* transition) noexcept nogil:
        # Compute ahead and next, unless this has been done for the row.
        if self.reached:
            return
        if self.single:
            max_plus(<float*> NULL, self.delta, transition, self.ahead, self.next, self.n_labels,
                     self.width)
        else:
            max_plus(<double*> NULL, self.delta, transition, self.ahead, self.next, self.n_labels,
                     self.width)
        self.reached = True

    cdef bint advance(
        self, const double* psi, const double* transition, int* pointers
    ) noexcept nogil:
        # delta_T(j) = psi_T(j) + max_i (delta_{T-1}(i) + psi(i, j)); False, with nothing changed,
        # if no label is allowed.
        cdef Py_ssize_t j
        cdef bint reached = self.reached
        self.reach(transition)
        for j in range(self.width):
            self.scratch[j] = self.rounded(psi[j] + self.ahead[j])
        if not self.normalise(self.scratch):
            self.reached = reached
            return False
        for j in range(self.width):
            self.best[j] = self.ahead[j]
            self.last[j] = psi[j]
            pointers[j] = self.next[j]
        self.reached = False
        if self.forward:
            self.filter_row(self.log_alpha, psi, transition, self.log_alpha)
        return True

    cdef void survive(self) noexcept nogil:
        # alive, and onward: whether survivors are those of row T + 1, and a row may follow.
        cdef Py_ssize_t j, label = -1
        self.onward = False
        for j in range(self.n_labels):
            self.alive[j] = False
        if self.early:
            self.reach(&self.score[0, 0])
            for j in range(self.n_labels):
                if self.ahead[j] > -INFINITY:
                    self.alive[self.next[j]] = self.onward = True
            label = self.best_end()
            if label >= 0:
                self.alive[label] = True
        if label < 0 and not self.onward:    # the paper's rule, or a dead end
            for j in range(self.n_labels):
                self.alive[j] = self.delta[j] > -INFINITY
        if self.hopeful != self.alive:
            self.hope()

    cdef void hope(self) noexcept nogil:
        # hopeful, from alive
        cdef Py_ssize_t b
        cdef bint one = False
        for b in range(self.n_labels):
            if self.alive[b] and self.lasting[b]:
                one = True
        for b in range(self.n_labels):
            self.hopeful[b] = self.alive[b] and (self.lasting[b] or not one)

    cdef Py_ssize_t best_end(self) noexcept nogil:
        # The label with which the best path ends if row T is the last: `end` is added as the batch
        # algorithm adds it. -1 if no survivor may be the last label.
        cdef Py_ssize_t j
        if self.single:
            for j in range(self.n_labels):
                self.scratch[j] = <float> (<float> (self.last[j] + self.end[j]) + self.best[j])
        else:
            for j in range(self.n_labels):
                self.scratch[j] = self.last[j] + self.end[j] + self.best[j]
        j = first_argmax(self.scratch, self.n_labels)
        return j if self.scratch[j] > -INFINITY else -1

    cdef Py_ssize_t likeliest(self, const int* labels) noexcept nogil:
        # The lowest of these labels (`alive` or `hopeful`) that are the likeliest at row T by the
        # forward filter, or have the best path so far.
        cdef Py_ssize_t b, best = -1
        cdef const double* x = self.log_alpha if self.forward else self.delta
        for b in range(self.n_labels):
            if labels[b] and (best < 0 or x[b] > x[best]):
                best = b
        return best

    cdef void filter_row(
        self, const double* before, const double* psi, const double* transition, double* out
    ) noexcept nogil:
        # out(j) = psi_T(j) + log sum_i exp(before(i) + psi(i, j)), the largest being 0.
        cdef Py_ssize_t j, L = self.n_labels
        cdef double largest
        if self.n_rows == 0:
            for j in range(L):
                self.scratch[j] = 0
        else:
            self.mix(before, self.E, transition, self.width, 1)
        for j in range(L):
            out[j] = psi[j] + self.scratch[j]
        largest = out[first_argmax(out, L)]
        for j in range(L):
            out[j] -= largest

    cdef void mix(
        self, const double* x, const double[:, ::1] E, const double* score, Py_ssize_t stride,
        Py_ssize_t step,
    ) noexcept nogil:
        # scratch(j) = log sum_i exp(x(i) + score(i, j)), the largest x being 0; E is
        # exp(score - top), and score(i, j) is at i * stride + j * step. A sum of at least `least`
        # has lost less than L * 1e-308 / least of itself to underflow; a smaller one is done again
        # in logarithms, as all are if E is not that of the row.
        cdef Py_ssize_t i, j, L = self.n_labels
        cdef double a, least = INFINITY if self.by_rows else least_mass(x)
        for j in range(L):
            self.scratch[j] = 0
        for i in range(L):
            a = exp(x[i])
            for j in range(L):
                self.scratch[j] += a * E[i, j]
        for j in range(L):
            if self.scratch[j] >= least:
                self.scratch[j] = log(self.scratch[j]) + self.top
            else:
                self.scratch[j] = log_sum(x, score + j * step, stride, L)

    cdef void weigh(
        self, Py_ssize_t first, Py_ssize_t n, Py_ssize_t k, bint ended
    ) noexcept nogil:
        # Confidence in the labels of the first k of the n rows at `first`, which have just left:
        #   p(y_t = j | rows 0 to T) in proportion to exp(alpha(t, j) + beta(t, j)),
        #   beta(t - 1, i) = log sum_j exp(psi(i, j) + psi_t(j) + beta(t, j)),
        # beta(T, .) being the scores `end` if the sequence has ended and they allow a path, or 0.
        cdef Py_ssize_t j, t, L = self.n_labels, width = self.width
        cdef double *beta = self.row
        cdef const double* psi
        cdef double top = -INFINITY
        cdef double *share = self.p
        cdef Emitted* out
        cdef const double* alpha = self.alpha(first + n - 1)
        for j in range(L):
            top = max(top, alpha[j] + self.end[j])
        for j in range(L):
            beta[j] = self.end[j] if ended and top > -INFINITY else 0
        for t in range(n - 1, -1, -1):
            if t < k:
                out = self.queue + self.n_queued - k + t
                posterior(self.alpha(first + t), beta, share, L)
                if self.marginal:
                    out.label = <int> self.least_risk(share, ended)
                out.confidence = share[out.label]
                if self.shares.shape[0]:
                    memcpy(&self.shares[self.n_emitted - k + t - self.base, 0], share,
                           L * sizeof(double))
            if t == 0:
                return
            psi = self.psi(first + t)
            for j in range(L):
                beta[j] += psi[j]
            top = beta[first_argmax(beta, L)]
            for j in range(L):
                beta[j] -= top
            self.mix(beta, self.E_t, self.transition(first + t), 1, width)
            memcpy(beta, self.scratch, L * sizeof(double))

    cdef Py_ssize_t least_risk(self, const double* share, bint ended) noexcept nogil:
        # argmin_a sum_b share(b) costs(b, a), the lowest; argmax share without costs. Until the
        # sequence has ended a is no dead end, unless all that is possible is.
        cdef Py_ssize_t a, b, label = 0
        cdef double risk, least = INFINITY
        cdef bint limited = False
        if not ended and self.hopeful != self.alive:
            for b in range(self.n_labels):
                if self.lasting[b] and share[b] > 0:
                    limited = True
        for a in range(self.n_labels):
            if limited and not self.lasting[a]:
                continue
            risk = 0 if self.costs.shape[0] else -share[a]
            for b in range(self.costs.shape[0]):
                risk += share[b] * self.costs[b, a]
            if risk < least:
                least = risk
                label = a
        return label

    cdef void follow(self, Py_ssize_t k) noexcept nogil:
        # Bring origin, and the losses, from row t0 + k - 1 to row t0 + k:
        #   Prev_T(t0, b) = Prev_{T-1}(t0, Prev_T(b))                              (paper, §3.2)
        #   Loss_T(a, b) = [a != b] + Loss_{T-1}(Prev_T(a), Prev_T(b))             (§3.3.2)
        cdef Py_ssize_t a, b, L = self.n_labels
        cdef const int* previous = self.pointers(self.first + k)
        cdef const int* row
        if k == 0:
            for b in range(L):
                self.origin[b] = <int> b
        else:
            for b in range(L):
                self.found[b] = self.origin[previous[b]]
            memcpy(self.origin, self.found, L * sizeof(int))
        if self.strategy != WINDOW:
            return
        for a in range(L):
            if k:
                row = &self.losses[self.side, previous[a], 0]
                for b in range(L):
                    self.losses[1 - self.side, a, b] = row[previous[b]] + (a != b)
            else:
                for b in range(L):
                    self.losses[1 - self.side, a, b] = a != b
        self.side = 1 - self.side

    # ------------------------------------------------------------ belief and measures

    cdef void believe(self) noexcept nogil:
        # p(b), summing to one.
        cdef Py_ssize_t b, L = self.n_labels
        cdef bint by_next = self.onward and not self.forward
        cdef const double* x = self.log_alpha if self.forward else self.delta
        cdef double top, total = 0
        if by_next:
            x = self.ahead
        else:
            for b in range(L):
                self.scratch[b] = x[b] if self.alive[b] else -INFINITY
            x = self.scratch
        top = x[first_argmax(x, L)]
        for b in range(L):
            self.p[b] = 0
        for b in range(L):
            if x[b] > -INFINITY:
                self.p[self.next[b] if by_next else b] += exp(x[b] - top)
        for b in range(L):
            total += self.p[b]
        for b in range(L):
            self.p[b] /= total

    cdef void believe_origin(self) noexcept nogil:
        # pp(a) = sum of p(b) over b with origin(b) = a.
        cdef Py_ssize_t b
        self.believe()
        for b in range(self.n_labels):
            self.pp[b] = 0
        for b in range(self.n_labels):
            self.pp[self.origin[b]] += self.p[b]

    cdef Py_ssize_t likeliest_origin(self, bint overdue) noexcept nogil:
        # argmax pp, the lowest: if no path goes on from it, -1, or the next best if it is overdue.
        cdef Py_ssize_t a, label = first_argmax(self.pp, self.n_labels)
        if self.goes_on(label):
            return label
        if not overdue:
            return -1
        for a in range(self.n_labels):
            self.scratch[a] = self.pp[a] if self.goes_on(a) else -INFINITY
        return first_argmax(self.scratch, self.n_labels)

    cdef inline bint goes_on(self, Py_ssize_t label) noexcept nogil:
        # Whether `label` is the origin of a hopeful label.
        cdef Py_ssize_t b
        if self.hopeful == self.alive:
            return True
        for b in range(self.n_labels):
            if self.hopeful[b] and self.origin[b] == label:
                return True
        return False

    cdef double uncertain(self, Py_ssize_t likeliest) except? -1 nogil:
        # M_T(t0) of §3.3.1, of a distribution pp on which survivors do not agree.
        cdef Py_ssize_t a
        cdef double m = 0
        if self.uncertainty == AMBIGUITY:
            return 1
        if self.uncertainty == CALLABLE:
            with gil:
                m = float(self.measure(self.scores_of_p.copy()))
                if m != m:
                    raise ValueError(
                        "uncertainty must return a number; it returned nan for "
                        f"{self.scores_of_p.tolist()}."
                    )
            return m
        for a in range(self.n_labels):
            if self.uncertainty == ENTROPY:
                m -= self.pp[a] * log(self.pp[a]) if self.pp[a] > 0 else 0
            elif a != likeliest:    # 1 - pp(likeliest), without cancellation
                m += self.pp[a]
        return m

    cdef inline Py_ssize_t common(self, const int* labels) noexcept nogil:
        # The common value of labels(b) for all survivors b, or -1.
        cdef Py_ssize_t b, one = -1
        for b in range(self.n_labels):
            if self.alive[b]:
                if one >= 0 and labels[b] != one:
                    return -1
                one = labels[b]
        return one

    # ------------------------------------------------------------ labels leave

    cdef inline void forget(self, Py_ssize_t k) noexcept nogil:
        # The first k pending rows leave: their labels stand behind the queue.
        cdef Py_ssize_t i
        for i in range(k):
            self.queue[self.n_queued + i].latency = self.n_rows - 1 - (self.n_emitted + i)
        self.n_queued += k
        self.n_emitted += k
        self.first += k
        self.n_pending -= k
        if self.n_pending == 0:
            self.first = 0

    cdef Py_ssize_t write_path(self, Py_ssize_t label, Py_ssize_t n) noexcept nogil:
        # Labels of the first n pending rows, behind the queue: the path that has `label` at the
        # last of them. Returns that of row t0.
        cdef Py_ssize_t i
        for i in range(n - 1, 0, -1):
            self.queue[self.n_queued + i].label = <int> label
            label = self.pointers(self.first + i)[label]
        self.queue[self.n_queued].label = <int> label
        return label

    cdef void emit_agreed(self) noexcept nogil:
        # All survivors agree on row t0, so they do up to some row t0 + k: found from row T back.
        cdef Py_ssize_t b, k = self.n_pending - 1, n = self.n_pending
        cdef const int* previous
        for b in range(self.n_labels):
            self.current[b] = <int> b
        while self.common(self.current) < 0:
            previous = self.pointers(self.first + k)
            for b in range(self.n_labels):
                self.before[b] = self.current[b]
                self.current[b] = previous[self.current[b]]
            k -= 1
        self.write_path(self.common(self.current), k + 1)
        self.previous = -1
        if k + 1 < n:
            memcpy(self.origin, self.before, self.n_labels * sizeof(int))
        self.forget(k + 1)

    cdef bint replay(self, Py_ssize_t label) noexcept nogil:
        # Start again after `label`, and run over the pending rows. False, and nothing changed, if
        # that is not allowed. It always is for a label committed since the last row came, since a
        # survivor has it: so when False, nothing has left since then.
        cdef Py_ssize_t k, at
        if not self.leads_on(label):
            return False
        self.restart(label)
        self.previous = -1
        for k in range(self.n_pending):
            at = self.first + k
            self.advance(self.psi(at), self.transition(at), self.pointers(at))
            self.follow(k)
        if self.n_pending:
            self.survive()
        return True

    cdef bint leads_on(self, Py_ssize_t label) noexcept nogil:
        # Whether there is an allowed path from `label` through all pending rows.
        cdef Py_ssize_t i, j, k
        cdef const double* psi
        cdef const double* transition
        cdef bint alive = True
        for j in range(self.n_labels):
            self.current[j] = j == label
        for k in range(self.n_pending):
            alive = False
            psi, transition = self.psi(self.first + k), self.transition(self.first + k)
            for j in range(self.n_labels):
                self.before[j] = False
                if psi[j] > -INFINITY:
                    for i in range(self.n_labels):
                        if self.current[i] and transition[i * self.width + j] > -INFINITY:
                            self.before[j] = alive = True
                            break
            memcpy(self.current, self.before, self.n_labels * sizeof(int))
        return alive

    cdef void save(self) noexcept nogil:
        memcpy(self.saved, self.delta, 4 * self.width * sizeof(double))
        memcpy(self.saved_origin, self.origin, self.width * sizeof(int))

    cdef void restore(self) noexcept nogil:
        self.reached = False
        memcpy(self.delta, self.saved, 4 * self.width * sizeof(double))
        memcpy(self.origin, self.saved_origin, self.width * sizeof(int))

    cdef inline bint contradicts(self, Py_ssize_t label) noexcept nogil:
        # Whether `label` at row t0 is forbidden after the label committed before it.
        cdef Py_ssize_t pair = self.previous * self.width + label
        return self.previous >= 0 and self.transition(self.first)[pair] == -INFINITY

    cdef void retrace(self) noexcept nogil:
        # Compute origin and the losses again, after rows have left.
        cdef Py_ssize_t k
        for k in range(self.n_pending):
            self.follow(k)

    cdef int settle(self) except -1 nogil:
        # Emit labels as long as the rule says so. DEAD: no label may follow those emitted.
        cdef Py_ssize_t label, first
        cdef int what = PATH
        while self.n_pending and what != NOTHING:
            what = self.decide(&label)
            if what != NOTHING and self.marked != NULL and not self.aside:
                self.set_aside()
            first = label
            if what == PATH:
                first = self.write_path(label, self.n_pending)
            if what != NOTHING and self.contradicts(first):
                if not self.replay(self.previous):
                    return DEAD
            elif what == AGREED:
                self.emit_agreed()
            elif what == FIRST:
                self.queue[self.n_queued].label = <int> label
                self.previous = -1
                self.forget(1)
                self.retrace()
            elif what == COMMITTED or what == PATH:
                self.queue[self.n_queued].label = <int> first
                self.commit(label, 1 if what == COMMITTED else self.n_pending)
        return FINE

    cdef void commit(self, Py_ssize_t label, Py_ssize_t k) noexcept nogil:
        # The first k pending labels leave, of which `label` is the last, though survivors disagree.
        self.forget(k)
        if self.marginal:
            self.retrace()
            return
        self.lossy = True
        if self.restarts:
            self.replay(label)       # a survivor has `label`: so it is allowed
        else:
            self.previous = label
            self.retrace()

    cdef inline int decide(self, Py_ssize_t* label) except -1 nogil:
        # Decide which labels to emit. label: OUT, that of row t0, or for PATH that of row T.
        cdef bint overdue = 0 <= self.max_latency < self.n_pending
        if self.strategy == CHUNK:
            label[0] = self.likeliest(self.hopeful)
            return PATH if self.n_pending >= self.window_size else NOTHING
        if self.strategy == VITERBI and not overdue:
            return NOTHING
        label[0] = self.common(self.origin)
        if label[0] >= 0:
            return FIRST if self.strategy == VITERBI else AGREED
        if not overdue and (self.latency_cost == 0 or self.strategy == CLOSURE):
            return NOTHING
        if self.strategy == WINDOW:
            label[0] = self.least_loss(not overdue)
            return PATH if label[0] >= 0 else NOTHING
        if self.strategy != STEP and not self.forward:
            label[0] = self.origin[self.likeliest(self.hopeful)]
            return COMMITTED
        self.believe_origin()
        label[0] = self.likeliest_origin(overdue)
        if label[0] < 0:
            return NOTHING
        return COMMITTED if overdue or self.certain(label[0]) else NOTHING

    cdef bint certain(self, Py_ssize_t likeliest) except -1 nogil:
        # The stopping rule of "step" (Narasimhan, Viola, Shilman 2006, §3.3.1 and Figure 4): the
        # label of row t0 leaves at the first T with
        #
        #     M_T(t0) <= lambda (T - t0),
        #
        # M_T(t0) being `uncertain`, lambda `latency_cost` and T - t0 `n_pending` - 1. If M_T(t0)
        # never rises in T, f(T) = M_T(t0) + lambda (T - t0) is then at most 2 min f + lambda
        # (Lemma 1). Unlike Figure 4, which has <, equality is enough, and labels on which all
        # survivors agree leave at once. With `early` the row is T + 1.
        return self.uncertain(likeliest) <= self.price()

    cdef inline double price(self) noexcept nogil:
        # Price of having waited until the row whose survivors decide.
        return self.latency_cost * (self.n_pending - (not self.early))

    cdef Py_ssize_t least_loss(self, bint bounded) noexcept nogil:
        # argmin_a Loss_T(a) = sum_b p(b) Loss_T(a, b)  (§3.3.2); -1 if it is above the bound, or a
        # dead end that need not leave.
        cdef Py_ssize_t a, b, label = -1
        cdef const int* ends = self.alive if bounded else self.hopeful
        cdef double loss, least = INFINITY
        self.believe()
        for a in range(self.n_labels):
            if not ends[a]:
                continue
            loss = 0
            for b in range(self.n_labels):
                loss += self.p[b] * self.losses[self.side, a, b]
            if loss < least:
                least = loss
                label = a
        if bounded and not (least <= self.price() and self.hopeful[label]):
            return -1
        return label

    cdef inline bint filters_once(self) noexcept nogil:
        # Whether the belief's filter and that of the confidence are one: no label has been dropped.
        return self.forward and (self.n_rows == 0 or memcmp(
            self.log_alpha, self.filtered, self.n_labels * sizeof(double)
        ) == 0)

    cdef int push_row(self, bint held) except -1 nogil:
        # One more row, its emission scores in `row`. DEAD: no label is allowed, nothing changed.
        # held: no label leaves; `finish` or `commit_best` will be called before a row that is not.
        cdef Py_ssize_t j, first, n, at
        cdef long long n_emitted = self.n_emitted
        cdef bint filtered
        self.make_room()
        if self.n_rows == 0:
            for j in range(self.n_labels):
                self.row[j] = self.rounded(self.row[j] + self.start[j])
        if self.previous >= 0:
            self.save()
        filtered = self.weighs and self.filters_once()
        first, n = self.first, self.n_pending + 1
        at = first + n - 1
        if not self.advance(self.row, self.arriving, self.pointers(at)):
            return DEAD
        memcpy(self.psi(at), self.row, self.width * sizeof(double))
        if self.by_rows:
            memcpy(<void*> self.transition(at), self.arriving,
                   self.n_labels * self.width * sizeof(double))
        if filtered:
            memcpy(self.alpha(at), self.log_alpha, self.width * sizeof(double))
        elif self.weighs:
            self.filter_row(self.filtered, self.row, self.arriving, self.alpha(at))
        self.n_rows += 1
        self.n_pending += 1
        if self.strategy != CHUNK and (self.strategy != VITERBI or self.max_latency >= 0):
            self.follow(self.n_pending - 1)
        if not held:
            self.survive()
        if not held and self.settle() == DEAD:
            self.restore()
            self.side = 1 - self.side
            self.n_rows -= 1
            self.n_pending -= 1
            return DEAD
        if self.weighs:
            memcpy(self.filtered, self.alpha(at), self.n_labels * sizeof(double))
            if self.n_emitted > n_emitted:
                self.weigh(first, n, self.n_emitted - n_emitted, False)
        return FINE

    cdef int finish(self) except -1 nogil:
        # End of the sequence: all pending labels leave. DEAD: no path is allowed, nothing changed.
        cdef Py_ssize_t first = self.first, n = self.n_pending
        if n == 0:
            return FINE
        self.reserve(n)
        if not self.write_best(True):
            return DEAD
        self.forget(n)
        if self.weighs:
            self.weigh(first, n, n, True)
        return FINE

    cdef int commit_best(self, Py_ssize_t k) except -1 nogil:
        # The first k pending labels leave, on the path of the likeliest label. DEAD as `finish`.
        cdef Py_ssize_t first = self.first, n = self.n_pending
        self.reserve(n)
        if not self.write_best(False):
            return DEAD
        self.commit(self.queue[self.n_queued + k - 1].label, k)
        if self.weighs:
            self.weigh(first, n, k, False)
        return FINE

    cdef bint write_best(self, bint ended) noexcept nogil:
        # Labels of the pending rows, behind the queue: those of the best path with the score `end`
        # if the sequence has ended, else those of the path of the likeliest label. Committed labels
        # may forbid every end: then `end` is left out. False, and nothing changed, if no path is
        # allowed.
        cdef Py_ssize_t label = -1
        self.survive()
        if ended:
            label = self.best_end()
            if label < 0 and not self.lossy:
                return False
        if label < 0:
            label = self.likeliest(self.alive if ended else self.hopeful)
        if not self.contradicts(self.write_path(label, self.n_pending)):
            return True
        return self.replay(self.previous) and self.write_best(ended)

    cdef void clear(self) noexcept nogil:
        cdef Py_ssize_t j
        self.n_rows = self.n_emitted = 0
        self.n_pending = self.n_queued = self.first = 0
        self.lossy = False
        self.previous = -1
        self.arriving = &self.score[0, 0]
        memset(self.delta, 0, 4 * self.width * sizeof(double))    # to log_alpha
        memset(self.filtered, 0, self.width * sizeof(double))
        memset(self.origin, 0, self.width * sizeof(int))
        for j in range(self.width):
            self.ahead[j] = 0 if j < self.n_labels else -INFINITY
            self.next[j] = 0
        self.reached = True

    # ------------------------------------------------------------ from Python

    def push(self, const double[:] row):
        """Take the emission scores of one more row, checked; True unless no label is allowed."""
        cdef Py_ssize_t j
        if row.shape[0] != self.n_labels:
            raise ValueError(
                f"A row must have {self.n_labels} scores, one a label; got {row.shape[0]}."
            )
        for j in range(self.n_labels):
            if not fits(row[j], self.largest):
                raise ValueError(self.unfit(row[j], j, f"row {self.n_rows}"))
            self.row[j] = self.rounded(row[j])
        return self.push_row(False) == FINE

    def fits(self, double score):
        """Whether the beam can take a score."""
        return fits(score, self.largest)

    def unfit(self, double score, label, str place):
        """Error message for a score that cannot be taken; ``place`` names its row."""
        return (
            f"Label {label!r} of {place} has the score {score}; scores must be from "
            f"-{self.largest:.3g} to {self.largest:.3g}, so that sums of "
            f"{'float32' if self.single else 'float64'} do not overflow, or -inf (forbidden): "
            "scale them, or the features as in training, or drop the row."
        )

    def commit_oldest(self, Py_ssize_t n):
        """Let the n oldest pending labels leave; True unless no path is allowed."""
        return self.commit_best(n) == FINE

    def end_sequence(self):
        """Let all pending labels leave; True unless no path is allowed."""
        return self.finish() == FINE

    def share(self, double[:, ::1] out, long long base):
        """Write the posteriors of labels that leave to ``out``, from label number ``base`` on."""
        self.shares, self.base, self.weighs = out, base, True

    def reset(self):
        """Forget everything: the next row is the first of a sequence."""
        self.clear()
        if self.capacity > SMALLEST:
            self.resize_rows(SMALLEST)
        if self.queue_capacity > SMALLEST:
            self.resize_queue(SMALLEST)

    def take(self, list classes, object kind, long long delay):
        """Emitted labels since the last call, as ``kind(position, label, confidence, latency)``.

        ``delay`` is added to each latency.
        """
        cdef Py_ssize_t i, n = self.n_queued
        cdef long long position = self.n_emitted - n
        emissions = [
            tuple.__new__(kind, (
                position + i, classes[self.queue[i].label], self.queue[i].confidence,
                self.queue[i].latency + delay,
            ))
            for i in range(n)
        ]
        self.empty_queue()
        return emissions

    def take_codes(self):
        """Emitted labels since the last call, as an array of codes."""
        cdef Py_ssize_t i, n = self.n_queued
        codes = np.empty(n, dtype=np.intc)
        cdef int[::1] to_codes = codes
        for i in range(n):
            to_codes[i] = self.queue[i].label
        self.empty_queue()
        return codes

    def take_arrays(self):
        """Emitted labels since the last call: arrays of codes, confidences and latencies."""
        cdef Py_ssize_t i, n = self.n_queued
        codes, latencies = np.empty(n, dtype=np.intc), np.empty(n, dtype=np.int64)
        confidences = np.empty(n)
        cdef int[::1] to_codes = codes
        cdef double[::1] to_confidences = confidences
        cdef long long[::1] to_latencies = latencies
        for i in range(n):
            to_codes[i] = self.queue[i].label
            to_confidences[i] = self.queue[i].confidence
            to_latencies[i] = self.queue[i].latency
        self.empty_queue()
        return codes, confidences, latencies

    def pending(self):
        """The pending rows as an array of records, a view of their memory."""
        cdef Py_ssize_t n = self.n_pending * self.size
        if n == 0:
            return np.empty(0, self.record)
        return np.asarray(<char[:n]> (self.rows + self.first * self.size)).view(self.record)

    def state(self):
        """Everything that changes, as numbers and arrays; labels not yet taken are left out."""
        L, rows = self.n_labels, self.pending()
        if self.strategy == WINDOW:
            self.retrace()    # losses of rows that have left are still counted, and never read
        losses = np.asarray(self.losses)[self.side] * (self.n_pending > 0)
        vectors = np.asarray(self.vectors)[:, :L]
        return {
            "n_rows": self.n_rows, "n_emitted": self.n_emitted, "lossy": bool(self.lossy),
            "previous": self.previous,
            "vectors": vectors[:4].copy(), "origin": np.asarray(self.integers)[0, :L].copy(),
            "losses": losses, "filtered": vectors[13].copy(),
            **{name: rows[name][..., :L].copy() for name in rows.dtype.names},
        }

    def set_state(self, dict state):
        """Become what :meth:`state` described."""
        cdef Py_ssize_t n = len(state["pointers"]), L = self.n_labels
        self.clear()
        self.resize_rows(max(SMALLEST, 4 * n))
        vectors = np.asarray(self.vectors)
        vectors[:4] = -np.inf
        vectors[2] = 0
        vectors[:4, :L] = state["vectors"]
        vectors[13, :L] = state["filtered"]
        np.asarray(self.integers)[0, :L] = state["origin"]
        self.side = 0
        np.asarray(self.losses)[0] = state["losses"]
        self.n_rows, self.n_emitted = state["n_rows"], state["n_emitted"]
        self.reached = self.n_rows == 0
        self.lossy, self.previous, self.n_pending = state["lossy"], state["previous"], n
        rows = self.pending()
        for name in rows.dtype.names:
            rows[name] = -np.inf if name == "transition" else 0
            rows[name][..., :L] = state[name]

    # ------------------------------------------------------------ stored states

    cdef size_t stored_size(self, Py_ssize_t n) noexcept nogil:
        # Bytes of the state of a beam with n pending rows, which are the last n * size of them.
        return sizeof(Counts) + self.width * (5 * sizeof(double) + sizeof(int)) + n * self.size

    cdef char* store(self, bint with_rows) except NULL nogil:
        # The state in one block of its own: Counts, delta to log_alpha, filtered, origin and, if
        # wanted, the pending rows.
        cdef Py_ssize_t n = self.n_pending if with_rows else 0, width = self.width * sizeof(double)
        cdef char* block = <char*> malloc(self.stored_size(n))
        cdef char* at = block + sizeof(Counts)
        cdef Counts* counts = <Counts*> block
        if block == NULL:
            with gil:
                raise MemoryError()
        counts.n_rows, counts.n_emitted, counts.n_pending = \
            self.n_rows, self.n_emitted, self.n_pending
        counts.previous, counts.lossy = self.previous, self.lossy
        memcpy(at, self.delta, 4 * width)
        memcpy(at + 4 * width, self.filtered, width)
        memcpy(at + 5 * width, self.origin, self.width * sizeof(int))
        self.store_rows(block, n)
        return block

    cdef void store_rows(self, char* block, Py_ssize_t n) noexcept nogil:
        # The first n pending rows, to the end of a block of the size for n.
        if n:    # `rows` is NULL before the first row
            memcpy(block + self.stored_size(0), self.rows + self.first * self.size, n * self.size)

    cdef int load(self, const char* block) except -1 nogil:
        # Become what `store` described, a new beam if NULL; the queue stays.
        cdef Py_ssize_t width = self.width * sizeof(double), n_queued = self.n_queued
        cdef const Counts* counts = <const Counts*> block
        cdef const char* at = block + sizeof(Counts)
        self.clear()
        self.n_queued = n_queued
        if block == NULL:
            return 0
        self.n_rows, self.n_emitted, self.n_pending = \
            counts.n_rows, counts.n_emitted, counts.n_pending
        self.previous, self.lossy, self.side = counts.previous, counts.lossy, 0
        if self.n_pending > self.capacity:
            self.resize_rows(2 * self.n_pending)
        memcpy(self.delta, at, 4 * width)
        memcpy(self.filtered, at + 4 * width, width)
        memcpy(self.origin, at + 5 * width, self.width * sizeof(int))
        if self.n_pending:
            memcpy(self.rows, block + self.stored_size(0), self.n_pending * self.size)
        if self.strategy == WINDOW:
            self.retrace()    # for the losses
        self.reached = self.n_rows == 0
        return 0

    cdef int mark(self) except -1 nogil:
        # Remember the state for `undo`. Pending rows stay as they are until labels leave: only then
        # they are copied, which costs no more than the emission.
        self.marked, self.aside = self.store(False), False
        self.n_queued_before = self.n_queued
        return 0

    cdef int set_aside(self) except -1 nogil:
        # Copy the rows that were pending at `mark`: the first of those that are, as none has left.
        cdef Py_ssize_t n = (<Counts*> self.marked).n_pending
        cdef char* block = <char*> realloc(self.marked, self.stored_size(n))
        if block == NULL:
            with gil:
                raise MemoryError()
        self.store_rows(block, n)
        self.marked, self.aside = block, True
        return 0

    cdef int undo(self) except -1 nogil:
        if not self.aside:
            self.set_aside()
        self.load(self.marked)
        self.n_queued = self.n_queued_before
        return 0

    cdef void unmark(self) noexcept nogil:
        free(self.marked)
        self.marked = NULL


@cython.final
cdef class BeamStates:
    """States of many beams of one rule; a state is one block of memory, no longer than it needs.

    One `Beam` works on all of them: it becomes each in turn (`advance_states`).
    """

    cdef char** blocks               # (n,); NULL: nothing has been pushed
    cdef Py_ssize_t n
    cdef readonly Py_ssize_t nbytes

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.n):
            free(self.blocks[i])
        free(self.blocks)

    def __len__(self):
        return self.n

    def grow(self, Py_ssize_t n):
        """Allocate n states, the new ones empty."""
        cdef void* blocks = realloc(self.blocks, n * sizeof(char*))
        if blocks == NULL:
            raise MemoryError()
        self.blocks = <char**> blocks
        while self.n < n:
            self.blocks[self.n] = NULL
            self.n += 1

    cdef void put(self, Beam beam, Py_ssize_t slot, char* block) noexcept nogil:
        # In place of what is in the slot, which is freed.
        cdef char* old = self.blocks[slot]
        if old != NULL:
            self.nbytes -= beam.stored_size((<Counts*> old).n_pending)
        if block != NULL:
            self.nbytes += beam.stored_size((<Counts*> block).n_pending)
        free(old)
        self.blocks[slot] = block

    def n_pending(self, Py_ssize_t slot):
        """Rows whose labels are pending."""
        return 0 if self.blocks[slot] == NULL else (<Counts*> self.blocks[slot]).n_pending

    def forget(self, Beam beam, const long long[::1] slots):
        """Empty these slots."""
        cdef Py_ssize_t k
        for k in range(slots.shape[0]):
            self.put(beam, slots[k], NULL)

    def n_rows(self, Py_ssize_t slot):
        """Rows that have been taken; 0 for slot -1."""
        if slot < 0 or self.blocks[slot] == NULL:
            return 0
        return (<Counts*> self.blocks[slot]).n_rows

    def load(self, Beam beam, Py_ssize_t slot):
        """Let the beam become the state in a slot; False if nothing has been pushed."""
        beam.load(self.blocks[slot])
        return self.blocks[slot] != NULL

    def store(self, Beam beam, Py_ssize_t slot):
        """Put the state of the beam into a slot."""
        self.put(beam, slot, beam.store(True))


def advance_states(
    Beam beam,
    BeamStates states,
    const long long[::1] slots,      # (n,) each once
    const real[:, :] emission,       # (n_rows, n_labels)
    const long long[::1] offsets,    # (n + 1,) rows of each slot
    const long long[::1] goals,      # (n,) labels that have to leave; -1: the sequence ends
    long long[:, ::1] counts,        # (n, 3)  OUT labels that left, first of them, rows seen
    bint keep,                       # whether all states stay as they were
    tuple rows,                      # entries of rows, as `row_matrices` takes them, or None
):
    """Push rows to many streams; ``(k, t)`` if row t of the k-th is refused, else None.

    t is the number of its rows if only its end is not allowed. The labels that leave are in the
    queue of the beam. Unless the answer is None, and on errors, no state changes.
    """
    cdef Py_ssize_t k, n_done = 0, n = slots.shape[0]
    cdef RowMatrices matrices = row_matrices(rows, beam.score, False)
    cdef char** fresh = <char**> malloc(max(n, 1) * sizeof(char*))
    cdef bint fine = False
    if fresh == NULL:
        raise MemoryError()
    beam.n_queued = 0
    try:
        with nogil:
            for k in range(n):
                beam.load(states.blocks[slots[k]])
                counts[k, 0], counts[k, 1] = beam.n_queued, beam.n_emitted
                counts[k, 2] = push_span(
                    beam, emission, offsets[k], offsets[k + 1], goals[k], &matrices
                )
                if counts[k, 2] >= 0:
                    with gil:
                        return k, counts[k, 2]
                counts[k, 0] = beam.n_queued - counts[k, 0]
                counts[k, 2] = beam.n_rows
                fresh[k] = NULL if goals[k] < 0 else beam.store(True)
                n_done += 1
            fine = True
            if not keep:
                for k in range(n):
                    states.put(beam, slots[k], fresh[k])
                n_done = 0
    finally:
        for k in range(n_done):
            free(fresh[k])
        free(fresh)
        beam.arriving = &beam.score[0, 0]    # not the memory of `rows`
        if not fine:
            beam.n_queued = 0
    return None


cdef inline bint read_row(Beam beam, const real[:, :] emission, Py_ssize_t t) noexcept nogil:
    # Copy row t of the emission scores to beam.row; whether the beam can take all of them.
    cdef Py_ssize_t j
    cdef bint fit = True
    for j in range(beam.n_labels):
        fit &= fits(emission[t, j], beam.largest)
        beam.row[j] = beam.rounded(emission[t, j])
    return fit


cdef Py_ssize_t push_span(
    Beam beam, const real[:, :] emission, Py_ssize_t first, Py_ssize_t last, long long goal,
    RowMatrices* matrices
) except -2 nogil:
    # Number of the first row that is refused, that behind the last if only the end does not or
    # what is to be committed, or -1. If labels are to leave, the rows have come for that: held.
    cdef Py_ssize_t t, n_queued = beam.n_queued
    for t in range(first, last):
        beam.arriving = matrix_at(<const double*> NULL, matrices, t)
        if not read_row(beam, emission, t) or beam.push_row(goal != 0) == DEAD:
            return t - first
    if goal < 0:
        return last - first if beam.finish() == DEAD else -1
    goal = min(goal - (beam.n_queued - n_queued), beam.n_pending)
    if goal > 0 and beam.commit_best(goal) == DEAD:
        return last - first
    return -1


def push_rows(Beam beam, const real[:, :] emission, bint held=False, tuple rows=None):
    """Push rows of scores, all or none; the first that is not fit or allows no label, or -1.

    ``held``: no label leaves until those that are pending are committed, or the sequence ends.
    ``rows``: entries of rows, as `row_matrices` takes them.
    """
    cdef Py_ssize_t t, dead = -1
    cdef RowMatrices matrices = row_matrices(rows, beam.score, False)
    cdef bint fine = False
    beam.mark()
    try:
        with nogil:
            for t in range(emission.shape[0]):
                beam.arriving = matrix_at(<const double*> NULL, &matrices, t)
                if not read_row(beam, emission, t) or beam.push_row(held) == DEAD:
                    dead = t
                    break
        fine = dead < 0
    finally:
        beam.arriving = &beam.score[0, 0]    # not the memory of `rows`
        if not fine:
            beam.undo()
        beam.unmark()
    return dead


def decode(
    Beam beam,
    const real[:, :] emission,       # (n_rows, n_labels)
    const long long[::1] offsets,    # (n_sequences + 1,)
    int[::1] labels,                 # (n_rows,)  OUT
    long long[::1] latencies,        # (n_rows,)  OUT rows seen after this one when it got its label
    double[::1] confidences,         # (n_rows,)  OUT; empty: not wanted
    Py_ssize_t held,                 # last rows of each sequence that come with its end
    tuple rows,                      # entries of rows, as `row_matrices` takes them, or None
):
    """Decode whole sequences; ``(s, t)`` if row t of sequence s is refused, else None.

    t is the length of the sequence if only its end is not allowed.
    """
    cdef Py_ssize_t s, t, first, n
    cdef RowMatrices matrices = row_matrices(rows, beam.score, False)
    beam.weighs = confidences.shape[0] > 0 or beam.marginal or beam.shares.shape[0] > 0
    with nogil:
        for s in range(offsets.shape[0] - 1):
            beam.clear()
            first, n = offsets[s], offsets[s + 1] - offsets[s]
            beam.base = -first
            matrices.first = first
            for t in range(n):
                beam.arriving = matrix_at(<const double*> NULL, &matrices, t)
                if (
                    not read_row(beam, emission, first + t)
                    or beam.push_row(t >= n - held) == DEAD
                ):
                    with gil:
                        return s, t
            if beam.finish() == DEAD:
                with gil:
                    return s, n
            for t in range(n):
                labels[first + t] = beam.queue[t].label
                latencies[first + t] = beam.queue[t].latency
                if confidences.shape[0]:
                    confidences[first + t] = beam.queue[t].confidence
    return None

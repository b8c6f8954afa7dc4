"""Passes over sequences for margin training: most violated paths, and exact steps in the dual.

With phi(x, y) the counts of a labeling and y_i the truth of sequence i, the weights are

    w = sum_i sum_p alpha_ip (phi(x_i, y_i) - phi(x_i, p)),      alpha_ip >= 0,

p running over the *working set* of i: the few paths with alpha_ip > 0. The gradient of the dual,

    g_ip = loss(y_i, p) + F(x_i, p) - F(x_i, y_i),               F = w . phi,

is the violation of p's margin, and g = 0 belongs to the truth, which may be thought of as one more
path. A *step* moves mass between two paths, by exact line search. As these differ in few rows,
only few rows of the data take part.

F comes from one of two sources, which only `read_scores` and `spread_changes` distinguish: rows
of w gathered by the features of a row (linear kernel), or scores of rows under a Gram matrix, kept
up to date (any kernel). Where the Gram matrix of all rows is too large, `bind_gram` gives that of
the sequences that are updated next.

During an update both go on alike. A step is written down as changes of coefficients of rows, and
the scores at hand follow by the inner products of the sequence's own rows: of the Gram matrix, or
of small ones, one a sequence. The changes are written back at the end. A sequence too long for a
matrix of its own (`own_start` < 0) writes and reads after every step.

Rows with transition features f, of values x(f), have scores of their own for pairs of labels, with
weights v(f, i, j) that change as those of all rows do:

    score_t(i, j) = score(i, j) + sum_f x_t(f) v(f, i, j).

`patch` puts them into `score` while a row is decoded, `restore` takes them out, to the bit.

Rows of labels are padded to a multiple of 8, with score -inf for padding.
"""

from libc.math cimport INFINITY
from libc.string cimport memcmp, memcpy
from sklseq.objectives.margin._averages cimport stamp_of
from sklseq.objectives.margin._margin_distances cimport (
    distance_by_columns, distance_by_gram, find_differing, pair_distance,
)
from sklseq._lib.lanes cimport Lanes8
from sklseq._lib.prefetch cimport prefetch, prefetch_row
from sklseq.inference.kernels._blocks cimport first_argmax, max_plus
from sklseq.objectives.scores._gather cimport gather_row

import numpy as np

from sklseq._lib.aligned import aligned_zeros

cdef extern from "sklseq/_lib/progress.h":
    void sklseq_publish(long long* count, long long x) noexcept nogil
    void sklseq_await(long long* count, long long x) noexcept nogil

# Slack of a sequence: linear, squared, or none allowed.
SLACKS = ("l1", "l2", "hard")
cdef enum:
    SLACK_L1 = 0
    SLACK_L2 = 1


def local_columns(const long long[::1] indptr, const int[::1] indices,
                  const long long[::1] offsets, Py_ssize_t n_columns):
    """(number of each entry's column among those of its sequence, most columns of a sequence)."""
    cdef int[::1] local = np.empty(indices.shape[0], dtype=np.int32)
    cdef int[::1] owner = np.full(n_columns, -1, dtype=np.int32)
    cdef int[::1] number = np.zeros(n_columns, dtype=np.int32)
    cdef Py_ssize_t s, p, most = 0
    cdef int n
    with nogil:
        for s in range(offsets.shape[0] - 1):
            n = 0
            for p in range(indptr[offsets[s]], indptr[offsets[s + 1]]):
                if owner[indices[p]] != s:
                    owner[indices[p]] = <int> s
                    number[indices[p]] = n
                    n += 1
                local[p] = number[indices[p]]
            most = n if n > most else most
    return np.asarray(local), most


def own_places(lengths, n_own):
    """(start of each sequence's matrix, or -1; size of all), the shortest sequences first."""
    squares = lengths.astype(np.int64) ** 2
    order = np.argsort(squares, kind="stable")
    order = order[np.cumsum(squares[order]) <= n_own]
    start = np.full(len(lengths), -1, dtype=np.int64)
    chosen = np.sort(order)
    start[chosen] = np.cumsum(squares[chosen]) - squares[chosen]
    return start, int(squares[chosen].sum())


def own_grams(const long long[::1] indptr, const int[::1] local, const double[::1] data,
              const long long[::1] first, const long long[::1] stop,
              const long long[::1] start, Py_ssize_t n_columns, double[::1] out):
    """out[start[s] + t T + u] = inner product of rows t and u of block s, if start[s] >= 0."""
    cdef double[::1] dense = np.zeros(max(n_columns, 1))
    cdef Py_ssize_t s, r, T, t, u, p
    cdef double total
    cdef bint ones = data.shape[0] == 0
    with nogil:
        for s in range(first.shape[0]):
            if start[s] < 0:
                continue
            r = first[s]
            T = stop[s] - r
            for t in range(T):
                for p in range(indptr[r + t], indptr[r + t + 1]):
                    dense[local[p]] += 1 if ones else data[p]
                for u in range(t + 1):
                    total = 0
                    for p in range(indptr[r + u], indptr[r + u + 1]):
                        total += dense[local[p]] * (1 if ones else data[p])
                    out[start[s] + t * T + u] = total
                    out[start[s] + u * T + t] = total
                for p in range(indptr[r + t], indptr[r + t + 1]):
                    dense[local[p]] = 0


# Paths that a working set has room for at first.
N_SLOTS = 8

cdef enum:
    LAG = 1               # rounds that a thread may be ahead of the changes of others
    N_LOGS = 2 + 2 * LAG  # a log is read until its thread is so many rounds further
    LINE = 16             # numbers, so that threads do not write into the same cache lines


cdef class Rounds:
    """Changes that threads exchange while they update different blocks, by rounds.

    For a Gram matrix of all rows: each thread has scores of the rows of its own blocks, and of
    transitions. At the start of round r it repeats the changes of the others in round r - 1 - LAG,
    so that the answer does not depend on the speed of threads, and none waits for a slightly
    slower one.

    A change adds x to a number of a ``place``: row << 16 | label of the coefficients of rows; or
    -1 - k, with k a place in the array ``chain``.
    """

    cdef readonly Py_ssize_t n
    cdef long long[::1] called            # passes that the first thread has begun
    cdef bint dismissed
    cdef long long[:, ::1] ended          # (n, LINE): rounds of each thread in this pass
    cdef long long[:, :, ::1] n_changes   # (n, N_LOGS, LINE)
    cdef long long[:, :, ::1] places      # (n, N_LOGS, room)
    cdef double[:, :, ::1] changes
    # The pass: blocks order[starts[k, r]:stops[k, r]] of thread k in round r, and what to do
    cdef const long long[::1] order
    cdef const long long[:, ::1] starts, stops
    cdef Py_ssize_t n_steps, n_searches
    cdef double accuracy
    cdef double[::1] gaps

    def __init__(self, Py_ssize_t n):
        self.n, self.called = n, np.zeros(LINE, np.int64)
        self.ended = np.zeros((n, LINE), np.int64)
        self.n_changes = np.zeros((n, N_LOGS, LINE), np.int64)
        self._make_room(0)

    def begin(self):
        """Before other threads ``stand_by``."""
        self.called[0], self.dismissed = 0, False

    def dismiss(self):
        """Let them go."""
        self.dismissed = True
        sklseq_publish(&self.called[0], self.called[0] + 1)

    def set_pass(self, runs, Py_ssize_t room, Py_ssize_t n_steps, double accuracy, gaps,
                 Py_ssize_t n_searches=1):
        """Runs of blocks, and the most changes that a thread makes in a round."""
        self.order, self.starts, self.stops = runs
        self.n_steps, self.accuracy, self.n_searches = n_steps, accuracy, n_searches
        self.gaps, self.ended[:] = gaps, 0
        if self.places.shape[2] < room:
            self._make_room(room)

    cdef _make_room(self, Py_ssize_t room):
        self.places = np.empty((self.n, N_LOGS, room), np.int64)
        self.changes = np.empty((self.n, N_LOGS, room))


cdef inline void add_to_two(
    double* a, double x, double* b, double z, const double* source, Py_ssize_t first,
    Py_ssize_t last
) noexcept nogil:
    # a += x * source, b += z * source; a and b are different rows of a matrix
    cdef Py_ssize_t u
    for u in range(first, last):
        a[u] += x * source[u]
        b[u] += z * source[u]


def _chain_arrays(prefix, width, n_triples, parts):
    # Views of one array, `chain`, of the scores of transitions, starts, ends and triples.
    chain = np.zeros((width + 2) * width + n_triples)
    views = np.split(chain, [width**2, width**2 + width, width**2 + 2 * width])
    arrays = dict(zip(["score", "start", "end", "v"], views), chain=chain)
    arrays["score"] = views[0].reshape(width, width)
    for name, part in zip(["score", "start", "end", "v"], parts or ()):
        arrays[name][...] = part
    return {prefix + name: array for name, array in arrays.items()}


cdef inline Py_ssize_t add_pair(
    int[::1] places, double[::1] values, Py_ssize_t n, Py_ssize_t plus, Py_ssize_t minus, double x
) noexcept nogil:
    # Entry n and the next: x at `plus`, -x at `minus`; none for a negative place
    cdef Py_ssize_t first = n
    if plus == minus:
        return 0
    if plus >= 0:
        places[n], values[n] = <int> plus, x
        n += 1
    if minus >= 0:
        places[n], values[n] = <int> minus, -x
        n += 1
    return n - first


cdef class HingeBlocks:
    """Working sets of all sequences, and the weights that they add up to.

    Attributes
    ----------
    paths : int16 ndarray of shape (n_slots, n_rows)
        Slot k of sequence s: ``paths[k, offsets[s]:offsets[s + 1]]``, for k < size[s].
    alpha, loss : ndarray of shape (n_slots, n_sequences)
    size : int32 ndarray of shape (n_sequences,)
    score : ndarray of shape (width, width)
        Transition scores; start, end of shape (width,).
    W : ndarray of shape (n_features, width) or (0, width)
        Weights of states, for the linear kernel.
    coef : ndarray of shape (n_rows, width) or (0, width)
        For other kernels, coefficients of rows.
    S : ndarray of shape (width, n_rows) or (width, 0)
        gram @ coef, transposed.
    v : ndarray of shape (n_triples,)
        Scores of transition features.
    chain : ndarray
        ``score``, ``start``, ``end`` and ``v``, which are views of it.
    late_* :
        Sums of changes, each times the stamp of its update: for averages of all iterates.
    count : int
        Updates so far.
    """

    cdef readonly object arrays
    cdef public Py_ssize_t count
    cdef public Py_ssize_t unbounded           # a sequence whose dual has no maximum, or -1
    cdef readonly bint has_own                 # whether `own` is there
    cdef public int averaging                  # 0: no, 1: all iterates alike, 2: later ones more
    cdef Py_ssize_t L, width, n_rows
    cdef int slack
    cdef object n_own, bound
    cdef double loss_offset, scale2, boundary2
    cdef bint linear
    cdef const long long[::1] first, stop      # rows of each block
    cdef const unsigned char[:, ::1] held      # whether first and last keep their true labels
    cdef const short[::1] y
    cdef const double[:, ::1] cost             # (L, width) by true label
    cdef const double[::1] C
    cdef short[:, ::1] paths
    cdef double[:, ::1] alpha, loss
    cdef int[::1] size
    cdef double[::1] chain
    cdef double[:, ::1] score, score_t, late_score
    cdef double[::1] start, end, late_start, late_end
    cdef double[:, ::1] late_sums              # (2, n_blocks): loss, mass
    cdef const long long[::1] indptr
    cdef const int[::1] indices, local
    cdef const double[::1] data
    cdef double[:, ::1] W, late_W, local_change
    cdef const double[::1] own                 # Gram matrices of single sequences
    cdef const long long[::1] own_start
    cdef const double[:, ::1] gram             # of the rows bound, and where sequences start there
    cdef const long long[::1] place
    cdef double[:, ::1] coef, late_coef, S
    cdef double[:, ::1] change                 # of coefficients of rows, in this update
    cdef double[:, ::1] psi, delta, pair_change
    cdef double[::1] truth                     # scores of the prefixes of y_i
    cdef double[::1] g                         # (n_slots,)
    cdef bint linked                           # whether rows have transition features
    cdef const long long[::1] link_indptr, first_weight
    cdef const int[::1] link_indices
    cdef const unsigned short[::1] from_label, to_label
    cdef const double[::1] link_data
    cdef double[::1] v, late_v
    cdef double[::1] counts                    # (n_triples,) scratch, 0
    cdef Py_ssize_t n_patched                  # weights whose scores `patch` replaced
    cdef long long[::1] patched
    cdef double[::1] replaced
    cdef short[::1] found
    cdef int[::1] differing                    # rows of the sequence
    cdef Py_ssize_t n_read                     # rows of the sequence whose psi is up to date
    cdef public double gain                    # sum over steps: what each adds to the dual, alone
    cdef Py_ssize_t first_scored, stop_scored  # rows whose scores are kept up to date in S
    cdef long long* noted_places               # log of changes for other threads, or NULL
    cdef double* noted_changes
    cdef long long[::1] places                 # of one update, where there is no such log
    cdef double[::1] changes
    cdef Py_ssize_t n_noted

    def __init__(self, problem, cost, score, start, end, n_own):
        """problem: the StructuredHinge; cost, score, start and end: padded to ``width``.

        At most ``n_own`` inner products of rows of the same block are kept.
        """
        zeros, averaging = np.zeros, problem.averaging
        self.y, self.n_own = problem.y.astype(np.int16), n_own
        cdef Py_ssize_t n_rows = self.y.shape[0]
        longest = int(np.diff(problem.offsets).max(initial=1))
        self.L, self.width, self.n_rows = len(cost), cost.shape[1], n_rows
        self.cost, self.loss_offset = cost, problem.loss.offset
        self.slack, self.averaging = SLACKS.index(problem.slack), averaging
        self.scale2, self.boundary2 = problem.scale**2, problem.boundary**2
        self.count, self.unbounded, self.gain = 0, -1, 0
        self.first_scored, self.stop_scored = 0, n_rows
        self.noted_places = NULL
        self.arrays = a = {
            "score_t": np.ascontiguousarray(score.T), "paths": zeros((N_SLOTS, n_rows), np.int16),
        }
        n_triples = problem.features.n_weights if problem.features is not None else 0
        for prefix, parts in (("", (score, start, end, zeros(n_triples))), ("late_", None)):
            a |= _chain_arrays(prefix, self.width, n_triples, parts)
        self.chain, self.score, self.score_t = a["chain"], a["score"], a["score_t"]
        self.start, self.end, self.v = a["start"], a["end"], a["v"]
        self.late_score, self.late_start = a["late_score"], a["late_start"]
        self.late_end, self.late_v = a["late_end"], a["late_v"]
        self.psi, self.delta, self.change = zeros((3, longest, self.width))
        self.places, self.changes = zeros(longest * self.L, np.int64), zeros(longest * self.L)
        self.pair_change, self.truth = zeros((self.width, self.width)), zeros(longest)
        self.found = zeros(longest, np.int16)
        self.differing = zeros(longest, np.int32)
        self.linear, self.linked = problem.is_linear, problem.features is not None
        if self.linked:
            self._bind_features(problem.features)
        if self.linear:
            self._bind_rows(problem.source, problem.offsets)
            return
        a["coef"], a["S"] = zeros((n_rows, self.width)), zeros((self.width, n_rows))
        a["late_coef"] = zeros((n_rows if averaging else 0, self.width))
        self.coef, self.late_coef = a["coef"], a["late_coef"]
        self.bind_gram(problem.gram, a["S"], problem.offsets[:-1])

    def bind_blocks(self, blocks, C):
        """Go on with other ``Pieces``, without paths; once only, with averages."""
        n = len(blocks.first)
        self.first, self.stop, self.held, self.C = blocks.first, blocks.stop, blocks.held, C
        self.bound = blocks
        a, slots = self.arrays, len(self.arrays["paths"])
        a["size"] = np.zeros(n, np.int32)
        a["alpha"], a["loss"] = np.zeros((2, slots, n))
        a["late_sums"] = np.zeros((2, n))
        self.size, self.late_sums = a["size"], a["late_sums"]
        self._bind_slots()
        if not self.linear:
            return
        self.own_start, self.own = np.full(n, -1, np.int64), np.zeros(0)
        self.has_own = False

    @property
    def slack_code(self):
        return self.slack

    @property
    def labels(self):
        """True labels of rows."""
        return np.asarray(self.y)

    def bind_own(self):
        """Inner products of rows of the same block, before steps; without them, these are slow."""
        if not self.linear or self.has_own:
            return
        lengths = self.bound.stop - self.bound.first
        start, n_own = own_places(lengths, self.n_own)
        own, most = np.empty(n_own), self.local_change.shape[0]
        own_grams(self.indptr, self.local, self.data, self.first, self.stop, start, most, own)
        self.own_start, self.own, self.has_own = start, own, True

    def follow(self, HingeBlocks main, Py_ssize_t first, Py_ssize_t stop):
        """Go on with the blocks, working sets and Gram matrix of ``main``, for another thread.

        It keeps the scores of rows ``first`` to ``stop`` up to date.
        """
        self.first_scored, self.stop_scored = first, stop
        if main is self:
            return
        self.first, self.stop, self.held, self.C = main.first, main.stop, main.held, main.C
        self.bound = main.bound
        for name in ("paths", "alpha", "loss", "size", "late_sums"):
            self.arrays[name] = main.arrays[name]
        self.size, self.late_sums = main.size, main.late_sums
        self._bind_slots()
        self.coef = main.coef
        self.bind_gram(main.gram, main.S, main.place)

    def bind_gram(self, gram, S, place):
        """Go on with sequences whose rows are ``place[s]``, ... of ``gram`` and of scores ``S``."""
        self.gram, self.S, self.place = gram, S, place

    def _bind_slots(self):
        a = self.arrays
        self.paths, self.alpha, self.loss = a["paths"], a["alpha"], a["loss"]
        self.g = np.zeros(len(a["paths"]) + 1)

    def _bind_rows(self, rows, offsets):
        indptr, indices, data, order = rows
        n_features = len(order)
        self.indptr, self.indices, self.data = indptr, indices, data
        local, most = local_columns(indptr, indices, offsets, n_features)
        self.local, self.local_change = local, np.zeros((max(most, 1), self.width))
        a = self.arrays
        a["W"] = aligned_zeros(n_features * self.width, np.float64)
        a["W"] = a["W"].reshape((n_features, self.width))
        a["late_W"] = np.zeros((n_features if self.averaging else 0, self.width))
        self.W, self.late_W = a["W"], a["late_W"]

    def _bind_features(self, features):
        self.link_indptr, self.link_indices, self.link_data = features.rows
        self.first_weight, self.from_label, self.to_label = features.support
        weights = np.concatenate([[0], np.cumsum(np.diff(features.support[0])[features.rows[1]])])
        longest = np.diff(weights[features.rows[0]]).max(initial=0)
        self.counts, self.replaced = np.zeros(features.n_weights), np.zeros(longest)
        self.patched = np.zeros(longest, np.int64)

    def grow(self):
        """Double the number of slots."""
        for name in ("paths", "alpha", "loss"):
            old = self.arrays[name]
            self.arrays[name] = np.concatenate([old, np.zeros_like(old)])
        self._bind_slots()

    # -------------------------------------------------------------- scores

    cdef const double* own_gram(self, Py_ssize_t s, Py_ssize_t* stride) noexcept nogil:
        # Inner products of the rows of sequence s, and from one row to the next; or NULL
        if not self.linear:
            stride[0] = self.gram.shape[0]
            return &self.gram[self.place[s], self.place[s]]
        stride[0] = self.stop[s] - self.first[s]
        return &self.own[self.own_start[s]] if self.own_start[s] >= 0 else NULL

    cdef void read_scores(self, Py_ssize_t s) noexcept nogil:
        # psi[t, j] = F's part of label j at row t
        self.n_read = self.stop[s] - self.first[s]
        self.read_rows(s)

    cdef void read_rows(self, Py_ssize_t s) noexcept nogil:
        cdef Py_ssize_t r = self.first[s], t, j, p, stop
        if not self.linear:
            for j in range(self.L):
                for t in range(self.n_read):
                    self.psi[t, j] = self.S[j, self.place[s] + t]
            return
        for t in range(self.n_read):
            # Rows of W are asked for one row of the data ahead.
            stop = self.indptr[r + min(t + 2, self.n_read)]
            for p in range(self.indptr[r + (t + 1 if t else 0)], stop):
                prefetch_row(&self.W[self.indices[p], 0], self.width)
            p = self.indptr[r + t]
            stop = self.indptr[r + t + 1]
            if p == stop:
                for j in range(self.width):
                    self.psi[t, j] = 0
                continue
            gather_row(<Lanes8*> NULL, &self.indices[p],
                       &self.data[p] if self.data.shape[0] else NULL, stop - p,
                       <const double*> &self.W[0, 0], self.width, NULL, 0, &self.psi[t, 0])

    cdef void patch(self, Py_ssize_t row) noexcept nogil:
        # The scores of transitions to a row into `score` and its transpose
        cdef Py_ssize_t p, q
        cdef int i, j
        if not self.linked:
            return
        for p in range(self.link_indptr[row], self.link_indptr[row + 1]):
            for q in range(self.first_weight[self.link_indices[p]],
                           self.first_weight[self.link_indices[p] + 1]):
                i, j = self.from_label[q], self.to_label[q]
                self.patched[self.n_patched] = q
                self.replaced[self.n_patched] = self.score[i, j]
                self.n_patched += 1
                self.score[i, j] += self.link_data[p] * self.v[q]
                self.score_t[j, i] = self.score[i, j]

    cdef void restore(self) noexcept nogil:
        # What `patch` replaced, the last entry first: features may have a pair in common
        cdef Py_ssize_t q
        cdef int i, j
        while self.n_patched > 0:
            self.n_patched -= 1
            q = self.patched[self.n_patched]
            i, j = self.from_label[q], self.to_label[q]
            self.score[i, j] = self.score_t[j, i] = self.replaced[self.n_patched]

    cdef Py_ssize_t weight_of(self, Py_ssize_t p, int i, int j) noexcept nogil:
        # Number of the weight of a row's transition feature p and these labels, or -1
        cdef Py_ssize_t low = self.first_weight[self.link_indices[p]], middle
        cdef Py_ssize_t end = self.first_weight[self.link_indices[p] + 1], high = end
        while low < high:
            middle = (low + high) >> 1
            if (self.from_label[middle] < i
                    or (self.from_label[middle] == i and self.to_label[middle] < j)):
                low = middle + 1
            else:
                high = middle
        if low < end and self.from_label[low] == i and self.to_label[low] == j:
            return low
        return -1

    cdef double link_score(self, Py_ssize_t row, int i, int j) noexcept nogil:
        # sum_f x(f) v(f, i, j)
        cdef Py_ssize_t p, q
        cdef double total = 0
        for p in range(self.link_indptr[row], self.link_indptr[row + 1]):
            q = self.weight_of(p, i, j)
            if q >= 0:
                total += self.link_data[p] * self.v[q]
        return total

    cdef double best_other(self, Py_ssize_t s) noexcept nogil:
        # The most violated path: the best of score plus loss among all paths but the truth,
        #     delta_t(j) = psi_t(j) + cost(y_t, j) + max(max_i delta_{t-1}(i) + psi(i, j),
        #                                                [j != y_t] (f_{t-1} + psi(y_{t-1}, j))),
        # delta being of prefixes that have left the truth, and f_t the score of its prefix.
        # Returns g of `found`, -inf if the truth is the only path.
        cdef Py_ssize_t r = self.first[s], T = self.stop[s] - r, t, i, j, W = self.width
        cdef const short* y = &self.y[r]
        cdef double best, v
        cdef double* row
        cdef const double* before
        for j in range(W):
            self.delta[0, j] = (self.psi[0, j] + self.cost[y[0], j] + self.start[j]
                                if j < self.L else -INFINITY)
        self.delta[0, y[0]] = -INFINITY
        if self.held[0, s]:
            for j in range(W):
                self.delta[0, j] = -INFINITY
        self.truth[0] = self.psi[0, y[0]] + self.start[y[0]]
        for t in range(1, T):
            row, before = &self.delta[t, 0], &self.delta[t - 1, 0]
            self.patch(r + t)
            for j in range(0, W, 8):
                max_plus(&before, 1, <const double*> &self.score[0, j], self.L, W, row + j)
            best = row[y[t]]
            for j in range(W):
                v = self.truth[t - 1] + self.score[y[t - 1], j]
                row[j] = v if v > row[j] else row[j]
            row[y[t]] = best
            for j in range(W):
                row[j] += self.psi[t, j] + self.cost[y[t], j]
            self.truth[t] = (self.truth[t - 1] + self.score[y[t - 1], y[t]]
                             + self.psi[t, y[t]])
            self.restore()
        best = -INFINITY
        j = 0
        for i in range(self.L):
            v = self.delta[T - 1, i] + self.end[i]
            if v > best and (not self.held[1, s] or i == y[T - 1]):
                best = v
                j = i
        if best == -INFINITY:
            return best
        self.trace_back(r, T, j)
        return self.loss_offset + best - self.truth[T - 1] - self.end[y[T - 1]]

    cdef void trace_back(self, Py_ssize_t r, Py_ssize_t T, Py_ssize_t j) noexcept nogil:
        cdef Py_ssize_t t, back
        cdef const short* y = &self.y[r]
        cdef double best, v
        for t in range(T - 1, 0, -1):
            self.patch(r + t)
            self.found[t] = <short> j
            back = first_argmax(
                <const double*> &self.delta[t - 1, 0], <const double*> &self.score_t[j, 0], self.L
            )
            best = self.delta[t - 1, back] + self.score_t[j, back]
            v = self.score[y[t - 1], j]
            self.restore()
            if j != y[t] and self.truth[t - 1] + v >= best:
                memcpy(&self.found[0], y, t * sizeof(short))
                return
            j = back
        self.found[0] = <short> j

    cdef double path_loss(self, Py_ssize_t s, const short* p) noexcept nogil:
        cdef Py_ssize_t r = self.first[s], t
        cdef double total = self.loss_offset
        for t in range(self.stop[s] - r):
            total += self.cost[self.y[r + t], p[t]]
        return total

    cdef double advantage(self, Py_ssize_t s, const short* p) noexcept nogil:
        # F(p) - F(y_s)
        cdef Py_ssize_t r = self.first[s], T = self.stop[s] - r, t
        cdef const short* y = &self.y[r]
        cdef double total = 0
        if p[0] != y[0]:
            total += self.start[p[0]] - self.start[y[0]] + self.psi[0, p[0]] - self.psi[0, y[0]]
        for t in range(1, T):
            if p[t] != y[t]:
                total += self.psi[t, p[t]] - self.psi[t, y[t]]
            elif p[t - 1] == y[t - 1]:
                continue
            total += self.score[p[t - 1], p[t]] - self.score[y[t - 1], y[t]]
            if self.linked:
                total += (self.link_score(r + t, p[t - 1], p[t])
                          - self.link_score(r + t, y[t - 1], y[t]))
        if p[T - 1] != y[T - 1]:
            total += self.end[p[T - 1]] - self.end[y[T - 1]]
        return total

    # -------------------------------------------------------------- steps

    cdef double squared_distance(
        self, Py_ssize_t s, const short* a, const short* b, Py_ssize_t n
    ) noexcept nogil:
        # ||phi(a) - phi(b)||^2
        cdef Py_ssize_t r = self.first[s], T = self.stop[s] - r, k, stride
        cdef const double* gram = self.own_gram(s, &stride)
        cdef double total
        if gram == NULL:
            total = distance_by_columns(
                a, b, self.differing, n, r, self.indptr, self.local, self.data, self.local_change
            )
        else:
            total = distance_by_gram(a, b, self.differing, n, gram, stride)
        total += self.scale2 * pair_distance(a, b, T, self.pair_change)
        if self.linked:
            total += self.scale2 * self.link_distance(r, a, b, T)
        k = (a[0] != b[0]) + (a[T - 1] != b[T - 1])
        return total + 2 * self.boundary2 * k

    cdef double link_distance(
        self, Py_ssize_t r, const short* a, const short* b, Py_ssize_t T
    ) noexcept nogil:
        # Of counts of transition features, times their values; `counts` is 0 before and after.
        cdef Py_ssize_t t, p
        cdef double total = 0, x
        for t in range(1, T):
            if a[t] == b[t] and a[t - 1] == b[t - 1]:
                continue
            for p in range(self.link_indptr[r + t], self.link_indptr[r + t + 1]):
                x = self.link_data[p]
                total += self.add_count(self.weight_of(p, a[t - 1], a[t]), x)
                total += self.add_count(self.weight_of(p, b[t - 1], b[t]), -x)
        for t in range(1, T):
            for p in range(self.link_indptr[r + t], self.link_indptr[r + t + 1]):
                self.forget(self.weight_of(p, a[t - 1], a[t]))
                self.forget(self.weight_of(p, b[t - 1], b[t]))
        return total

    cdef double add_count(self, Py_ssize_t q, double x) noexcept nogil:
        # What the square of a count changes by
        if q < 0:
            return 0
        self.counts[q] += x
        return x * (2 * self.counts[q] - x)

    cdef void forget(self, Py_ssize_t q) noexcept nogil:
        if q >= 0:
            self.counts[q] = 0

    cdef double stamp(self) noexcept nogil:
        # What a change of now counts in `late`
        return stamp_of(self.averaging, self.count)

    cdef void move(
        self, Py_ssize_t s, const short* a, const short* b, Py_ssize_t n, double step
    ) noexcept nogil:
        # w += step * (phi(a) - phi(b)), and psi of the rows read; of states, as `change` only
        cdef Py_ssize_t T = self.stop[s] - self.first[s], k, t, u, stride
        cdef const double* gram = self.own_gram(s, &stride)
        cdef double x
        for k in range(n):
            t = self.differing[k]
            self.change[t, a[t]] += step
            self.change[t, b[t]] -= step
            if gram == NULL:
                continue
            for u in range(self.n_read):
                x = step * gram[t * stride + u]
                self.psi[u, a[t]] += x
                self.psi[u, b[t]] -= x
        self.move_pairs(a, b, T, self.scale2 * step)
        self.move_links(self.first[s], a, b, T, self.scale2 * step)
        self.move_ends(self.start, self.late_start, a[0], b[0], self.boundary2 * step, 0)
        self.move_ends(self.end, self.late_end, a[T - 1], b[T - 1], self.boundary2 * step, 1)
        if gram == NULL:
            self.spread_changes(s)
            self.read_rows(s)

    cdef void spread_changes(self, Py_ssize_t s) noexcept nogil:
        # `change` to W, or to coef and the scores of all rows
        cdef Py_ssize_t r = self.first[s], t, j, n = 0
        cdef double x, late = self.stamp()
        cdef long long* places = &self.places[0]
        cdef double* changes = &self.changes[0]
        if self.noted_places != NULL:
            places, changes = self.noted_places + self.n_noted, self.noted_changes + self.n_noted
        for t in range(self.stop[s] - r):
            for j in range(self.L):
                x = self.change[t, j]
                if x == 0:
                    continue
                self.change[t, j] = 0
                places[n], changes[n] = (r + t) << 16 | j, x
                n += 1
                if self.linear:
                    continue
                self.coef[r + t, j] += x
                if late > 0:
                    self.late_coef[r + t, j] += late * x
        self.n_noted += n
        if self.linear:
            self.change_weights(places, changes, n)
        else:
            self.change_scores(places, changes, n, self.place[s] - r)

    cdef void change_weights(
        self, const long long* places, const double* changes, Py_ssize_t n
    ) noexcept nogil:
        # W += change of coefficients times the rows of the data
        cdef Py_ssize_t k = 0, p, row, a, b
        cdef double late = self.stamp(), value = 1, x, z
        cdef double* w
        while k < n:
            row, a, x = places[k] >> 16, places[k] & 0xffff, changes[k]
            b, z = a, 0
            if k + 1 < n and places[k + 1] >> 16 == row:
                k += 1
                b, z = places[k] & 0xffff, changes[k]
            k += 1
            if k < n:
                self.prefetch_weights(places[k])
            if k + 1 < n and places[k + 1] >> 16 == places[k] >> 16:
                self.prefetch_weights(places[k + 1])
            for p in range(self.indptr[row], self.indptr[row + 1]):
                w = &self.W[self.indices[p], 0]
                if self.data.shape[0]:
                    value = self.data[p]
                w[a] += x * value
                w[b] += z * value
                if late > 0:
                    self.late_W[self.indices[p], a] += late * x * value
                    self.late_W[self.indices[p], b] += late * z * value

    cdef void change_scores(
        self, const long long* places, const double* changes, Py_ssize_t n, Py_ssize_t shift
    ) noexcept nogil:
        # S += (gram @ change)'
        cdef Py_ssize_t first = self.first_scored, k = 0, u
        cdef Py_ssize_t stop = min(self.stop_scored, self.gram.shape[0])
        cdef double x
        cdef const double* source
        cdef double* a
        while k < n:
            source, x = &self.gram[(places[k] >> 16) + shift, 0], changes[k]
            a = &self.S[places[k] & 0xffff, 0]
            k += 1
            if k < n and places[k] >> 16 == places[k - 1] >> 16:
                add_to_two(a, x, &self.S[places[k] & 0xffff, 0], changes[k], source, first, stop)
                k += 1
                continue
            for u in range(first, stop):
                a[u] += x * source[u]

    cdef void move_pairs(
        self, const short* a, const short* b, Py_ssize_t T, double x
    ) noexcept nogil:
        cdef Py_ssize_t t
        cdef double late = self.stamp()
        if x == 0:
            return
        for t in range(1, T):
            if a[t] == b[t] and a[t - 1] == b[t - 1]:
                continue
            self.score[a[t - 1], a[t]] += x
            self.score[b[t - 1], b[t]] -= x
            self.score_t[a[t], a[t - 1]] += x
            self.score_t[b[t], b[t - 1]] -= x
            if self.noted_places != NULL:
                self.note(-1 - (a[t - 1] * self.width + a[t]), x)
                self.note(-1 - (b[t - 1] * self.width + b[t]), -x)
            if late > 0:
                self.late_score[a[t - 1], a[t]] += late * x
                self.late_score[b[t - 1], b[t]] -= late * x

    cdef void move_links(
        self, Py_ssize_t r, const short* a, const short* b, Py_ssize_t T, double x
    ) noexcept nogil:
        cdef Py_ssize_t t, p
        if x == 0 or not self.linked:
            return
        for t in range(1, T):
            if a[t] == b[t] and a[t - 1] == b[t - 1]:
                continue
            for p in range(self.link_indptr[r + t], self.link_indptr[r + t + 1]):
                self.move_link(p, a[t - 1], a[t], x)
                self.move_link(p, b[t - 1], b[t], -x)

    cdef void move_link(self, Py_ssize_t p, int i, int j, double x) noexcept nogil:
        cdef Py_ssize_t q = self.weight_of(p, i, j)
        cdef double late = self.stamp()
        if q < 0:
            return
        self.v[q] += x * self.link_data[p]
        if late > 0:
            self.late_v[q] += late * x * self.link_data[p]

    cdef void move_ends(
        self, double[::1] ends, double[::1] late_ends, Py_ssize_t a, Py_ssize_t b, double x,
        Py_ssize_t which
    ) noexcept nogil:
        cdef double late = self.stamp()
        cdef Py_ssize_t before = (self.width + which) * self.width
        if a == b or x == 0:
            return
        ends[a] += x
        ends[b] -= x
        self.note(-1 - (before + a), x)
        self.note(-1 - (before + b), -x)
        if late > 0:
            late_ends[a] += late * x
            late_ends[b] -= late * x

    # -------------------------------------------------------------- one sequence

    cdef double mass(self, Py_ssize_t s) noexcept nogil:
        cdef Py_ssize_t k
        cdef double total = 0
        for k in range(self.size[s]):
            total += self.alpha[k, s]
        return total

    cdef void violations(self, Py_ssize_t s) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(self.size[s]):
            self.g[k] = self.loss[k, s] + self.advantage(s, &self.paths[k, self.first[s]])

    cdef double products(self, Py_ssize_t s) noexcept nogil:
        # sum_p alpha_p g_p
        cdef Py_ssize_t k
        cdef double total = 0
        for k in range(self.size[s]):
            total += self.alpha[k, s] * self.g[k]
        return total

    cdef double block_gap(self, Py_ssize_t s, double v) noexcept nogil:
        # What this sequence adds to primal minus dual. (HARD: how far from optimal, only.)
        cdef double mass = self.mass(s), gap = -self.products(s)
        v = v if v > 0 else 0
        if self.slack == SLACK_L1:
            return gap + self.C[s] * v
        if self.slack == SLACK_L2:
            return gap + self.C[s] * v * v + mass * mass / (4 * self.C[s])
        return (gap if gap > 0 else -gap) + v

    cdef void admit(self, Py_ssize_t s, double v) noexcept nogil:
        # `found` into the working set, unless it is there
        cdef Py_ssize_t r = self.first[s], n = (self.stop[s] - r) * sizeof(short), k
        for k in range(self.size[s]):
            if memcmp(&self.paths[k, r], &self.found[0], n) == 0:
                return
        k = self.size[s]
        self.size[s] += 1
        memcpy(&self.paths[k, r], &self.found[0], n)
        self.alpha[k, s] = 0
        self.loss[k, s] = self.path_loss(s, &self.found[0])
        self.g[k] = v

    cdef void drop_inactive(self, Py_ssize_t s) noexcept nogil:
        cdef Py_ssize_t r = self.first[s], n = (self.stop[s] - r) * sizeof(short), k = 0
        cdef Py_ssize_t last
        while k < self.size[s]:
            if self.alpha[k, s] > 0:
                k += 1
                continue
            self.size[s] -= 1
            last = self.size[s]
            if k != last:
                memcpy(&self.paths[k, r], &self.paths[last, r], n)
                self.alpha[k, s] = self.alpha[last, s]
                self.loss[k, s] = self.loss[last, s]

    cdef double exchange(self, Py_ssize_t s, double tol) noexcept nogil:
        # One exact step from the path of the lowest to that of the highest g; the truth, number
        # -1, has g = 0 (for squared slack: the derivative of the slack's term more than others)
        # and what C leaves. Returns how far apart they were; up to `tol` nothing is done.
        cdef Py_ssize_t k, high = -1, low = -1, r = self.first[s], n
        cdef double mass = self.mass(s), left = self.C[s] - mass, of_truth = 0, most, step, square
        cdef const short* a
        cdef const short* b
        if self.slack == SLACK_L2:
            of_truth = mass / (2 * self.C[s])
            left = INFINITY
        cdef double top = of_truth, bottom = of_truth if left > 0 else INFINITY
        for k in range(self.size[s]):
            if self.g[k] > top:
                top = self.g[k]
                high = k
            if self.alpha[k, s] > 0 and self.g[k] < bottom:
                bottom = self.g[k]
                low = k
        if not top - bottom > tol:
            return top - bottom
        a = &self.y[r] if low < 0 else &self.paths[low, r]
        b = &self.y[r] if high < 0 else &self.paths[high, r]
        n = find_differing(a, b, self.stop[s] - r, self.differing)
        square = self.squared_distance(s, a, b, n)
        if self.slack == SLACK_L2 and (low < 0 or high < 0):
            square += 1 / (2 * self.C[s])
        most = left if low < 0 else self.alpha[low, s]
        step = (top - bottom) / square if square > 0 else INFINITY
        step = most if step > most else step
        if step == INFINITY:
            self.unbounded = s
            return 0
        self.gain += step * (top - bottom - 0.5 * step * square)
        self.move(s, a, b, n, step)
        self.shift_mass(s, low, high, step, most)
        return top - bottom

    cdef void shift_mass(
        self, Py_ssize_t s, Py_ssize_t low, Py_ssize_t high, double step, double most
    ) noexcept nogil:
        cdef double late = self.stamp()
        if low >= 0:
            self.alpha[low, s] = self.alpha[low, s] - step if step < most else 0
            self.late_sums[0, s] -= late * step * self.loss[low, s]
            self.late_sums[1, s] -= late * step
        if high >= 0:
            self.alpha[high, s] += step
            self.late_sums[0, s] += late * step * self.loss[high, s]
            self.late_sums[1, s] += late * step

    # -------------------------------------------------------------- passes

    cdef void exchange_all(self, Py_ssize_t s, Py_ssize_t n_steps, double accuracy) noexcept nogil:
        # Up to `n_steps` steps, until g is apart by a fraction `accuracy` of what it was at first.
        cdef Py_ssize_t _step
        cdef double first = self.exchange(s, 0)
        for _step in range(1, n_steps):
            if not first > 0 or self.unbounded >= 0 or self.size[s] == 0:
                return
            self.violations(s)
            if self.exchange(s, accuracy * first) <= accuracy * first:
                return

    cdef void leave(self, Py_ssize_t s) noexcept nogil:
        # The end of an update: what its steps changed is known to all others from here on.
        self.spread_changes(s)
        self.drop_inactive(s)
        self.count += 1

    def optimize(self, const long long[::1] order, Py_ssize_t n_steps, double accuracy,
                 double[::1] gaps, Py_ssize_t n_searches=1):
        """Steps on each sequence of `order`, up to `n_steps` each, until within `accuracy`.

        `accuracy` is a fraction of how far apart g was at the update. Up to `n_searches` times, the
        most violated path is looked for, and steps are made. Writes into `gaps` what each sequence
        added to the duality gap when it was updated. Returns how many of `order` were updated:
        fewer if slots ran out (`grow`), or the dual of `unbounded` has no maximum.
        """
        cdef Py_ssize_t k
        with nogil:
            for k in range(order.shape[0]):
                if self.size[order[k]] == self.paths.shape[0]:
                    break
                self.update(order[k], n_steps, accuracy, gaps, n_searches)
                if self.unbounded >= 0:
                    break
            else:
                k = order.shape[0]
        return k

    cdef void update(self, Py_ssize_t s, Py_ssize_t n_steps, double accuracy, double[::1] gaps,
                     Py_ssize_t n_searches) noexcept nogil:
        cdef Py_ssize_t search
        cdef double v, gap
        self.read_scores(s)
        for search in range(n_searches):
            if self.size[s] == self.paths.shape[0] or self.unbounded >= 0:
                break
            v = self.best_other(s)
            self.violations(s)
            gap = self.block_gap(s, v)
            if search == 0:
                gaps[s] = gap
            elif gap <= accuracy * gaps[s]:
                break
            if v > 0:
                self.admit(s, v)
            self.exchange_all(s, n_steps, accuracy)
        self.leave(s)

    # -------------------------------------------------------------- for ``WorkingSets``

    def distances(self, const long long[::1] order, double[::1] out):
        """||phi(a) - phi(b)||^2 of all pairs of paths of each block, of which the true is the last.

        A matrix of (size + 1, size + 1) for each block.
        """
        cdef Py_ssize_t k, s, i, j, n, at = 0
        with nogil:
            for k in range(order.shape[0]):
                s = order[k]
                n = self.size[s] + 1
                for i in range(n):
                    out[at + (n + 1) * i] = 0
                    for j in range(i):
                        out[at + n * i + j] = out[at + n * j + i] = self.path_distance(s, i, j)
                at += n * n

    cdef const short* path(self, Py_ssize_t s, Py_ssize_t k) noexcept nogil:
        # The true path is the last one.
        return &self.y[self.first[s]] if k == self.size[s] else &self.paths[k, self.first[s]]

    cdef double path_distance(self, Py_ssize_t s, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        cdef const short* a = self.path(s, i)
        cdef const short* b = self.path(s, j)
        cdef Py_ssize_t n = find_differing(a, b, self.stop[s] - self.first[s], self.differing)
        return self.squared_distance(s, a, b, n)

    def chain_differences(self, const long long[::1] order, const long long[::1] bounds,
                          int[::1] places, double[::1] values):
        """Entries of phi(p) - phi(y) of transitions, first and last labels; some places repeat.

        ``bounds`` has the start of each path in ``places``, where there must be room for it; a
        place is one of the array ``chain``. Returns the number of entries of each path.
        """
        counts = np.empty(bounds.shape[0], np.int32)
        cdef int[::1] count = counts
        cdef Py_ssize_t b, s, k, path = 0
        with nogil:
            for b in range(order.shape[0]):
                s = order[b]
                for k in range(self.size[s]):
                    count[path] = <int> self.list_chain(
                        s, &self.paths[k, self.first[s]], places, values, bounds[path]
                    )
                    path += 1
        return counts

    cdef Py_ssize_t list_chain(
        self, Py_ssize_t s, const short* a, int[::1] places, double[::1] values, Py_ssize_t at
    ) noexcept nogil:
        cdef Py_ssize_t r = self.first[s], T = self.stop[s] - r, n = at, t, W = self.width, p
        cdef const short* y = &self.y[r]
        if self.boundary2 > 0:
            n += add_pair(places, values, n, W * W + a[0], W * W + y[0], 1)
            n += add_pair(places, values, n, W * W + W + a[T - 1], W * W + W + y[T - 1], 1)
        for t in range(1, T if self.scale2 > 0 else 0):
            if a[t] == y[t] and a[t - 1] == y[t - 1]:
                continue
            n += add_pair(places, values, n, a[t - 1] * W + a[t], y[t - 1] * W + y[t], 1)
            for p in range(self.link_indptr[r + t] if self.linked else 0,
                           self.link_indptr[r + t + 1] if self.linked else 0):
                n += add_pair(
                    places, values, n, self.link_place(p, a[t - 1], a[t]),
                    self.link_place(p, y[t - 1], y[t]), self.link_data[p],
                )
        return n - at

    cdef Py_ssize_t link_place(self, Py_ssize_t p, int i, int j) noexcept nogil:
        cdef Py_ssize_t q = self.weight_of(p, i, j)
        return q if q < 0 else (self.width + 2) * self.width + q

    # -------------------------------------------------------------- several threads

    def lead(self, Rounds rounds):
        """`optimize` by all threads, as ``rounds`` says.

        All blocks, each in the order at most once, need a free slot.
        """
        cdef Py_ssize_t k
        with nogil:
            sklseq_publish(&rounds.called[0], rounds.called[0] + 1)
            self.take_part(rounds, 0)
            for k in range(rounds.n):
                sklseq_await(&rounds.ended[k, 0], rounds.starts.shape[1] + 1)

    def stand_by(self, Rounds rounds, Py_ssize_t me):
        """Take part in all passes until dismissed."""
        cdef long long call = 1
        with nogil:
            sklseq_await(&rounds.called[0], call)
            while not rounds.dismissed:
                self.take_part(rounds, me)
                call += 1
                sklseq_await(&rounds.called[0], call)

    cdef void take_part(self, Rounds rounds, Py_ssize_t me) noexcept nogil:
        cdef Py_ssize_t n_rounds = rounds.starts.shape[1], r, k
        for r in range(n_rounds + LAG + 1):
            for k in range(rounds.n):
                if k != me and LAG < r:
                    sklseq_await(&rounds.ended[k, 0], r - LAG)
                    self.repeat(rounds, k, (r - 1 - LAG) % N_LOGS)
            if r < n_rounds:
                self.run_round(rounds, me, r)
                sklseq_publish(&rounds.ended[me, 0], r + 1)
        sklseq_publish(&rounds.ended[me, 0], n_rounds + 1)

    cdef void run_round(self, Rounds rounds, Py_ssize_t me, Py_ssize_t r) noexcept nogil:
        cdef Py_ssize_t log = r % N_LOGS, k
        self.noted_places = &rounds.places[me, log, 0]
        self.noted_changes = &rounds.changes[me, log, 0]
        self.n_noted = 0
        for k in range(rounds.starts[me, r], rounds.stops[me, r]):
            self.update(rounds.order[k], rounds.n_steps, rounds.accuracy, rounds.gaps,
                        rounds.n_searches)
        rounds.n_changes[me, log, 0] = self.n_noted
        self.noted_places = NULL

    cdef inline void note(self, Py_ssize_t place, double x) noexcept nogil:
        if self.noted_places != NULL:
            self.noted_places[self.n_noted] = place
            self.noted_changes[self.n_noted] = x
            self.n_noted += 1

    cdef void repeat(self, Rounds rounds, Py_ssize_t who, Py_ssize_t log) noexcept nogil:
        # The changes of another thread in one round
        cdef Py_ssize_t n = rounds.n_changes[who, log, 0], k = 0, last
        cdef const long long* place = &rounds.places[who, log, 0]
        cdef const double* x = &rounds.changes[who, log, 0]
        while k < n:
            if place[k] < 0:
                self.add_to_chain(-1 - place[k], x[k])
                k += 1
                continue
            last = k + 1
            while last < n and place[last] >= 0:
                last += 1
            self.change_scores(place + k, x + k, last - k, 0)
            k = last

    cdef void prefetch_weights(self, long long place) noexcept nogil:
        cdef Py_ssize_t row = place >> 16, p, j = place & 0xffff
        if place < 0:
            return
        for p in range(self.indptr[row], self.indptr[row + 1]):
            prefetch(&self.W[self.indices[p], j])

    cdef void add_to_chain(self, Py_ssize_t place, double x) noexcept nogil:
        cdef Py_ssize_t i = place // self.width, j = place % self.width
        self.chain[place] += x
        if i < self.width:
            self.score_t[j, i] += x

    def largest_violations(self, blocks, const long long[::1] order, double[::1] worst,
                           unsigned char[::1] disputed):
        """The largest g of other blocks; sets `disputed` where a path of g > 0 errs."""
        cdef Py_ssize_t k, s, t, r
        self.first, self.stop, self.held = blocks.first, blocks.stop, blocks.held
        with nogil:
            for k in range(order.shape[0]):
                s = order[k]
                self.read_scores(s)
                worst[s] = self.best_other(s)
                if not worst[s] > 0:
                    continue
                r = self.first[s]
                for t in range(self.stop[s] - r):
                    disputed[r + t] |= self.found[t] != self.y[r + t]
        blocks = self.bound
        self.first, self.stop, self.held = blocks.first, blocks.stop, blocks.held

    def mistakes(self, const long long[::1] order, double[::1] squares):
        """Perceptron: w += C_s (phi(y_s) - phi(found)) wherever `found` scores no less than y_s.

        Returns the number of such sequences; `squares` gets ||phi(y_s) - phi(found)||^2.
        """
        cdef Py_ssize_t k, s, n, made = 0
        cdef const short* y
        with nogil:
            for k in range(order.shape[0]):
                s = order[k]
                self.read_scores(s)
                if self.best_other(s) >= 0:
                    made += 1
                    y = &self.y[self.first[s]]
                    n = find_differing(
                        y, &self.found[0], self.stop[s] - self.first[s], self.differing
                    )
                    squares[s] = self.squared_distance(s, y, &self.found[0], n)
                    self.n_read = 0         # none is needed any more
                    self.move(s, y, &self.found[0], n, self.C[s])
                    self.spread_changes(s)
                self.count += 1
        return made

    def most_violated(self, Py_ssize_t s):
        """(labels, g) of the best path of score plus loss that is not the truth of sequence s."""
        self.read_scores(s)
        g = self.best_other(s)
        n = self.stop[s] - self.first[s]
        return np.array(self.found[:n]), g

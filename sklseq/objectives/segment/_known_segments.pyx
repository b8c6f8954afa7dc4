"""Mixtures of segmentations in the dual of the hinge loss, and exact steps among these."""

import numpy as np

# If there are more segmentations without mass than this, they are dropped.
cdef int SPARE = 10


cdef class Cells:
    """Features of the cells of all sequences, their true labels and losses, and the weights.

    w[column * n_labels + label] is the weight of a column for a label; the last n_labels + 2
    columns are the transitions from each label, the start and the end. Behind the rows of the
    cells, ``rows`` has one for each of these, with a 1 in its column. With transition features,
    more columns follow, one for each such feature and label before, and a row for each step and
    label before. Places of w where ``mask`` is 0 stay 0.

    A pair of sequence s is (one of its cells or, behind these, a column of the chain, or (step,
    label before), label) as a number; it has the features of that row at the places of that label.
    """

    cdef const long long[::1] bounds, place, first, start, stop, true, steps
    cdef const double[::1] value
    cdef const double[:, ::1] loss
    cdef const signed char[::1] kind
    cdef const unsigned char[::1] mask
    cdef double[::1] w, other, moves, count
    cdef long long[::1] at, pair
    cdef Py_ssize_t n, L, m
    cdef double lost
    cdef bint of_starts  # whether there are transition features

    def __init__(self, rows, data, loss, mask, w):
        plan = data.plan
        self.bounds = rows.indptr.astype(np.int64)
        self.place = rows.indices.astype(np.int64) * plan.n_labels  # of the first label
        self.value, self.true, self.first = rows.data, data.label, plan.cells
        self.kind, self.start, self.stop = plan.kind, plan.start, plan.stop
        self.n, self.L, self.loss = plan.n_cells, plan.n_labels, loss
        self.mask, self.w, self.other = mask.astype(np.uint8), w, np.zeros_like(w)
        self.moves = np.zeros((self.L + 2) * self.L)
        self.steps, self.of_starts = plan.steps, rows.shape[0] > self.n + self.L + 2
        longest = int(np.diff(plan.steps).max(initial=0))
        self.at = np.empty(longest, dtype=np.int64)
        most = 2 * (int(np.diff(plan.cells).max(initial=0)) + longest) + len(self.moves)
        self.pair, self.count = np.empty(most, dtype=np.int64), np.empty(most)

    cdef inline Py_ssize_t row(self, Py_ssize_t s, long long pair) noexcept nogil:
        cdef Py_ssize_t cell = pair // self.L, n = self.first[s + 1] - self.first[s]
        if cell < n:
            return self.first[s] + cell
        cell -= n
        return self.n + cell + (0 if cell < self.L + 2 else self.steps[s] * self.L)

    cdef inline double dot(
        self, Py_ssize_t row, Py_ssize_t label, const double[::1] w
    ) noexcept nogil:
        cdef Py_ssize_t i
        cdef const double* of_label = &w[label]
        cdef const double* value = &self.value[0]
        cdef const long long* place = &self.place[0]
        cdef double total = 0
        for i in range(self.bounds[row], self.bounds[row + 1]):
            total += value[i] * of_label[place[i]]
        return total

    cdef inline void add(
        self, Py_ssize_t row, Py_ssize_t label, double by, double[::1] w
    ) noexcept nogil:
        cdef Py_ssize_t i, place
        for i in range(self.bounds[row], self.bounds[row + 1]):
            place = self.place[i] + label
            if self.mask[place]:
                w[place] += by * self.value[i]

    cdef void clear(self, Py_ssize_t row, Py_ssize_t label) noexcept nogil:
        cdef Py_ssize_t i
        for i in range(self.bounds[row], self.bounds[row + 1]):
            self.other[self.place[i] + label] = 0

    cdef void compare(self, Py_ssize_t s, const long long[:, ::1] found,
                      const long long[:, ::1] gold) noexcept nogil:
        """Compare the segmentation ``found``, rows (start, stop, label), with the true one.

        Sets the first m of ``pair`` to the pairs whose counts differ, those of ``count`` to their
        counts in ``found`` less those in the true one, and ``lost`` to the loss of ``found``.
        """
        cdef Py_ssize_t c, k, i, n = self.first[s + 1] - self.first[s], a = self.first[s], label
        self.m, self.lost = 0, 0
        if found.shape[0] == 0:  # an empty sequence
            return
        for k in range(found.shape[0]):
            for i in range(found[k, 0], found[k, 1]):
                self.at[i] = k
        for c in range(a, a + n):
            label = self.active(c, found)
            if label >= 0:
                self.lost += self.loss[c, label]
            if label == self.true[c]:
                continue
            if label >= 0:
                self.note((c - a) * self.L + label, 1)
            if self.true[c] >= 0:
                self.note((c - a) * self.L + self.true[c], -1)
        self.count_chain(found, 1)
        self.count_chain(gold, -1)
        for i in range(self.moves.shape[0]):
            if self.moves[i] != 0:
                self.note(n * self.L + i, self.moves[i])
                self.moves[i] = 0
        if self.of_starts:
            self.compare_starts(s, n + self.L + 2, found, gold)

    cdef void compare_starts(self, Py_ssize_t s, Py_ssize_t n, const long long[:, ::1] found,
                             const long long[:, ::1] gold) noexcept nogil:
        # Segments with the same first step, label and previous label in both cancel.
        cdef Py_ssize_t i = 1, j = 1
        while i < found.shape[0] or j < gold.shape[0]:
            if j == gold.shape[0] or i < found.shape[0] and found[i, 0] < gold[j, 0]:
                self.note_start(s, n, found, i, 1)
                i += 1
                continue
            if i < found.shape[0] and found[i, 0] == gold[j, 0]:
                if found[i - 1, 2] == gold[j - 1, 2] and found[i, 2] == gold[j, 2]:
                    i, j = i + 1, j + 1
                    continue
                self.note_start(s, n, found, i, 1)
                i += 1
            self.note_start(s, n, gold, j, -1)
            j += 1

    cdef void note_start(self, Py_ssize_t s, Py_ssize_t n, const long long[:, ::1] segments,
                         Py_ssize_t k, double by) noexcept nogil:
        cdef Py_ssize_t cell = n + segments[k, 0] * self.L + segments[k - 1, 2]
        cdef Py_ssize_t row = self.row(s, cell * self.L)
        if self.bounds[row] < self.bounds[row + 1]:
            self.note(cell * self.L + segments[k, 2], by)

    cdef Py_ssize_t active(self, Py_ssize_t c, const long long[:, ::1] found) noexcept nogil:
        # Label of the segment for which cell c is active, or -1.
        cdef Py_ssize_t k = self.at[self.start[c]], kind = self.kind[c]
        cdef Py_ssize_t before = self.start[c] - found[k, 0], after = found[k, 1] - self.stop[c]
        if before < 0 or after < 0 or (before and not kind & 2) or (after and not kind & 1):
            return -1
        return found[k, 2]

    cdef void note(self, long long pair, double count) noexcept nogil:
        self.pair[self.m], self.count[self.m] = pair, count
        self.m += 1

    cdef void count_chain(self, const long long[:, ::1] segments, double by) noexcept nogil:
        cdef Py_ssize_t k, last = segments.shape[0] - 1, L = self.L
        for k in range(last):
            self.moves[segments[k, 2] * L + segments[k + 1, 2]] += by
        self.moves[L * L + segments[0, 2]] += by
        self.moves[(L + 1) * L + segments[last, 2]] += by


cdef class Mixture:
    """A mixture of segmentations of sequence s; number 0 is the true one, whose loss is 0.

    Segmentation k has counts[i] times the pair used[places[i]] more than the true one, for i from
    bounds[k] to bounds[k + 1] - 1. Arrays are longer than they need to be.

    Parameters
    ----------
    cells : Cells
    s : int
    gold : int64 ndarray of shape (n_segments, 3)
        The true segmentation, rows (start, stop, label).
    weight, l2 : float

    Attributes
    ----------
    loss, alpha : ndarray of shape (k,)
        ``alpha`` sums to one.
    gram : ndarray of shape (k, k)
        Inner products of features, those of the true segmentation subtracted.
    """

    cdef Cells cells
    cdef Py_ssize_t s, k, n_used
    cdef double weight, ratio
    cdef const long long[:, ::1] gold
    cdef int[::1] number  # of each pair in `used`, or -1
    cdef long long[::1] used, row, label, bounds, places
    cdef double[::1] counts, values, by, _loss, _alpha, gain, change
    cdef double[:, ::1] _gram

    def __init__(self, Cells cells, Py_ssize_t s, gold, double weight, double l2):
        self.cells, self.s, self.gold = cells, s, gold
        self.weight, self.ratio = weight, weight / (2 * l2)
        n = cells.first[s + 1] - cells.first[s] + cells.L + 2
        if cells.of_starts:
            n += (cells.steps[s + 1] - cells.steps[s]) * cells.L
        self.number = np.full(n * cells.L, -1, dtype=np.int32)
        self.used, self.row, self.label, self.places, self.bounds = np.zeros((5, 8), np.int64)
        self.counts, self.values, self.by = (np.zeros(8) for _ in range(3))
        self._loss, self._alpha, self.gain, self.change = (np.zeros(7) for _ in range(4))
        self._gram = np.zeros((7, 7))
        self.k, self._alpha[0] = 1, 1

    @property
    def loss(self):
        return np.asarray(self._loss)[:self.k]

    @property
    def alpha(self):
        return np.asarray(self._alpha)[:self.k]

    def mean_loss(self):
        """Loss of the mixture."""
        cdef Py_ssize_t k
        cdef double total = 0
        for k in range(self.k):
            total += self._alpha[k] * self._loss[k]
        return total

    @property
    def gram(self):
        return np.asarray(self._gram)[:self.k, :self.k]

    def held(self):
        """(pairs, counts) of each segmentation, as :meth:`apart` gives them."""
        pairs, counts = np.asarray(self.used)[np.asarray(self.places)], np.asarray(self.counts)
        bounds = np.asarray(self.bounds)
        return [(pairs[a:b], counts[a:b]) for a, b in zip(bounds[:self.k], bounds[1:])]

    def apart(self, const long long[:, ::1] found):
        """(pairs, counts, loss) of a segmentation: how it differs from the true one."""
        cdef Cells cells = self.cells
        cells.compare(self.s, found, self.gold)
        return np.array(cells.pair[:cells.m]), np.array(cells.count[:cells.m]), cells.lost

    def violation(self, const long long[:, ::1] found):
        """loss + score of a segmentation, minus the score of the true one."""
        self.cells.compare(self.s, found, self.gold)
        return self.compared()

    def gains(self):
        """loss + score of each segmentation, minus the score of the true one."""
        self.score()
        return np.array(self.gain[:self.k])

    def admit(self, const long long[:, ::1] found):
        """Add a segmentation without mass, if it is a violation; return the part of the gap."""
        cdef double gap
        cdef Py_ssize_t k
        self.cells.compare(self.s, found, self.gold)
        gap = self.compared()
        self.score()
        for k in range(self.k):
            gap -= self._alpha[k] * self.gain[k]
        if gap <= 0:
            return 0.0
        if not self.holds():
            self.forget()
            self.add()
        return self.weight * gap

    def update(self, int n_steps, double accuracy):
        """Exact pairwise steps, from the mass of smallest to the segmentation of largest gain.

        A step changes alpha by γ and gains by -γ · weight / (2 · l2) · (difference of two rows of
        gram). Steps end when the spread of gains has fallen to a fraction ``accuracy``. Changes
        ``alpha`` and w; returns the sequence's part of the gap among these before the steps.
        """
        cdef double gap
        with nogil:
            gap = self.score()
            self.step(n_steps, accuracy)
            self.move()
        return self.weight * gap

    cdef double compared(self) noexcept:
        cdef Py_ssize_t i
        cdef Cells cells = self.cells
        cdef double total = cells.lost
        for i in range(cells.m):
            total += cells.count[i] * cells.dot(
                cells.row(self.s, cells.pair[i]), cells.pair[i] % cells.L, cells.w
            )
        return total

    cdef bint holds(self) noexcept:
        # Whether the segmentation compared last is in the mixture.
        cdef Py_ssize_t k, i, first
        cdef Cells cells = self.cells
        for k in range(self.k):
            first = self.bounds[k]
            if self.bounds[k + 1] - first != cells.m:
                continue
            for i in range(cells.m):
                if (self.used[self.places[first + i]] != cells.pair[i]
                        or self.counts[first + i] != cells.count[i]):
                    break
            else:
                return True
        return False

    cdef void add(self):
        # Add the segmentation compared last, without mass.
        cdef Py_ssize_t i, u, k = self.k, first = self.bounds[k]
        cdef Cells cells = self.cells
        self.reserve(first + cells.m)
        for i in range(cells.m):
            u = self.places[first + i] = self.place(cells.pair[i])
            self.counts[first + i] = cells.count[i]
            cells.add(self.row[u], self.label[u], cells.count[i], cells.other)
        self._loss[k], self._alpha[k], self.bounds[k + 1] = cells.lost, 0, first + cells.m
        self.k += 1
        self.evaluate(cells.other)
        for i in range(k + 1):
            self._gram[k, i] = self._gram[i, k] = self.gain[i]
        for i in range(cells.m):
            u = self.places[first + i]
            cells.clear(self.row[u], self.label[u])

    cdef void reserve(self, Py_ssize_t n_counts):
        # Reserve memory for one more segmentation: n_counts counts in all, and its pairs.
        cdef Py_ssize_t n = self.n_used + self.cells.m
        if n_counts > self.counts.shape[0]:
            self.places, self.counts = longer(self.places, n_counts), longer(self.counts, n_counts)
        if n > self.used.shape[0]:
            self.used, self.row = longer(self.used, n), longer(self.row, n)
            self.label = longer(self.label, n)
            self.values, self.by = np.empty((2, len(self.used)))
        if self.k == self._loss.shape[0]:
            gram = np.empty((2 * self.k, 2 * self.k))
            gram[:self.k, :self.k] = self._gram
            self._gram, self.bounds = gram, longer(self.bounds, self.k + 2)
            self._loss, self._alpha = longer(self._loss, self.k), longer(self._alpha, self.k)
            self.gain, self.change = np.empty((2, 2 * self.k))

    cdef Py_ssize_t place(self, long long pair) noexcept nogil:
        if self.number[pair] < 0:
            self.number[pair] = self.n_used
            self.used[self.n_used] = pair
            self.row[self.n_used] = self.cells.row(self.s, pair)
            self.label[self.n_used] = pair % self.cells.L
            self.n_used += 1
        return self.number[pair]

    def forget(self):
        """Drop segmentations without mass, if they are many; the true one stays."""
        cdef Py_ssize_t k, n_spare = 0
        for k in range(1, self.k):
            n_spare += self._alpha[k] == 0
        if n_spare > SPARE:
            self.keep(np.flatnonzero(np.append(True, self.alpha[1:] > 0)))

    cdef void keep(self, const long long[::1] left):
        # Keep the segmentations `left` only; their data move to the front of the arrays.
        cdef Py_ssize_t k, i, j, n = 0, kept, first, stop
        cdef const long long[::1] pairs = np.array(self.used)
        for i in range(self.n_used):
            self.number[pairs[i]] = -1
        self.n_used, self.k = 0, left.shape[0]
        for kept in range(self.k):
            k = left[kept]
            first, stop, self.bounds[kept] = self.bounds[k], self.bounds[k + 1], n
            for i in range(first, stop):
                self.counts[n], self.places[n] = self.counts[i], self.place(pairs[self.places[i]])
                n += 1
            self._loss[kept], self._alpha[kept] = self._loss[k], self._alpha[k]
            for j in range(self.k):
                self._gram[kept, j] = self._gram[k, left[j]]
        self.bounds[self.k] = n

    cdef void evaluate(self, const double[::1] w) noexcept nogil:
        # gain = w times the features of each segmentation, less those of the true one.
        cdef Py_ssize_t k, i
        cdef double total
        for i in range(self.n_used):
            self.values[i] = self.cells.dot(self.row[i], self.label[i], w)
        for k in range(self.k):
            total = 0
            for i in range(self.bounds[k], self.bounds[k + 1]):
                total += self.counts[i] * self.values[self.places[i]]
            self.gain[k] = total

    cdef double score(self) noexcept nogil:
        # Compute gains; return the largest less their mean under alpha.
        cdef Py_ssize_t j
        cdef double best = 0, mean = 0
        self.evaluate(self.cells.w)
        for j in range(self.k):
            self.gain[j] += self._loss[j]
            best = max(best, self.gain[j])
            mean += self._alpha[j] * self.gain[j]
        return best - mean

    cdef void step(self, int n_steps, double accuracy) noexcept nogil:
        cdef Py_ssize_t j, up, down, k = self.k
        cdef double[:, ::1] gram = self._gram
        cdef double spread, square, by, first = 0, ratio = self.ratio
        for j in range(k):
            self.change[j] = 0
        for _ in range(n_steps):
            up, down = 0, -1
            for j in range(k):
                if self.gain[j] > self.gain[up]:
                    up = j
                if self._alpha[j] > 0 and (down < 0 or self.gain[j] < self.gain[down]):
                    down = j
            spread = self.gain[up] - self.gain[down]
            if spread <= accuracy * first:
                break
            first = first or spread
            square = gram[up, up] - 2 * gram[up, down] + gram[down, down]
            by = self._alpha[down]
            if ratio * square * by <= spread:
                self._alpha[down] = 0
            else:
                by = spread / (ratio * square)
                self._alpha[down] -= by
            self._alpha[up] += by
            self.change[up] += by
            self.change[down] -= by
            for j in range(k):
                self.gain[j] -= ratio * by * (gram[up, j] - gram[down, j])

    cdef void move(self) noexcept nogil:
        cdef Py_ssize_t j, i
        cdef double by
        for i in range(self.n_used):
            self.by[i] = 0
        for j in range(self.k):
            by = self.ratio * self.change[j]
            if by != 0:
                for i in range(self.bounds[j], self.bounds[j + 1]):
                    self.by[self.places[i]] -= by * self.counts[i]
        for i in range(self.n_used):
            if self.by[i] != 0:
                self.cells.add(self.row[i], self.label[i], self.by[i], self.cells.w)


cdef longer(values, n):
    out = np.zeros(2 * n, dtype=np.asarray(values).dtype)
    out[:len(values)] = values
    return out

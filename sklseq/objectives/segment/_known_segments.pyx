"""Exact steps of the dual of the hinge loss among the segmentations known of each sequence."""

import numpy as np


cdef class Known:
    """Segmentations of all sequences: those of s are first[s] to first[s + 1] - 1.

    Segmentation p has the features value[bounds[p]:bounds[p + 1]] at the places ``index`` of w,
    those of the truth subtracted; gram[squares[s]:] are the inner products of those of s.
    """

    cdef const long long[::1] first, squares, bounds, index
    cdef const double[::1] value, gram, loss, weights
    cdef double[::1] alpha, gain, change

    def __init__(self, places, numbers, alpha, weights):
        self.first, self.squares, self.bounds, self.index = places
        self.value, self.gram, self.loss = numbers
        self.alpha, self.weights = alpha, weights
        self.gain, self.change = np.empty((2, np.diff(places[0]).max(initial=0)))

    def exchange(self, const long long[::1] order, double[::1] w, double[::1] gaps, int n_steps,
                 double accuracy, double l2):
        """Exact pairwise steps on each sequence of ``order``, from the mass of smallest to the
        segmentation of largest gain, loss + score.

        A step changes alpha by γ and gains by -γ · weight / (2 · l2) · (difference of two rows of
        gram). Steps end when the spread of gains has fallen to a fraction ``accuracy``. Changes
        ``alpha`` and w; each sequence's part of the gap among its known segmentations before the
        steps goes into ``gaps``.
        """
        cdef Py_ssize_t t, s
        with nogil:
            for t in range(order.shape[0]):
                s = order[t]
                gaps[s] = self.weights[s] * self.score(s, w)
                self.step(s, self.weights[s] / (2 * l2), n_steps, accuracy)
                self.move(s, self.weights[s] / (2 * l2), w)

    cdef double score(self, Py_ssize_t s, const double[::1] w) noexcept nogil:
        # Gains of the segmentations of s; returns the largest minus their mean.
        cdef Py_ssize_t j, i, a = self.first[s], k = self.first[s + 1] - a
        cdef double best = 0, mean = 0, total
        for j in range(k):
            total = self.loss[a + j]
            for i in range(self.bounds[a + j], self.bounds[a + j + 1]):
                total += self.value[i] * w[self.index[i]]
            self.gain[j] = total
            self.change[j] = 0
            best = total if j == 0 else max(best, total)
            mean += self.alpha[a + j] * total
        return best - mean

    cdef void step(self, Py_ssize_t s, double ratio, int n_steps, double accuracy) noexcept nogil:
        cdef Py_ssize_t j, up, down, a = self.first[s], k = self.first[s + 1] - a
        cdef const double* gram = &self.gram[self.squares[s]]
        cdef double spread, square, by, first = 0
        for _ in range(n_steps):
            up, down = 0, -1
            for j in range(k):
                if self.gain[j] > self.gain[up]:
                    up = j
                if self.alpha[a + j] > 0 and (down < 0 or self.gain[j] < self.gain[down]):
                    down = j
            spread = self.gain[up] - self.gain[down]
            if spread <= accuracy * first:
                break
            first = first or spread
            square = gram[up * k + up] - 2 * gram[up * k + down] + gram[down * k + down]
            by = self.alpha[a + down]
            if ratio * square * by <= spread:
                self.alpha[a + down] = 0
            else:
                by = spread / (ratio * square)
                self.alpha[a + down] -= by
            self.alpha[a + up] += by
            self.change[up] += by
            self.change[down] -= by
            for j in range(k):
                self.gain[j] -= ratio * by * (gram[up * k + j] - gram[down * k + j])

    cdef void move(self, Py_ssize_t s, double ratio, double[::1] w) noexcept nogil:
        cdef Py_ssize_t j, i, a = self.first[s]
        for j in range(self.first[s + 1] - a):
            if self.change[j] == 0:
                continue
            for i in range(self.bounds[a + j], self.bounds[a + j + 1]):
                w[self.index[i]] -= ratio * self.change[j] * self.value[i]

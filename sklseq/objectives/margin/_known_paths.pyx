"""Exact steps among the known paths of blocks, for the linear kernel.

The known paths p of a block, those of its working set, differ from its true path y in few rows. A
*cell* is a row t and a wrong label j that some path has there. With d_p = phi(p) - phi(y), the
violation of the margin of p is

    g_p = loss_p + w . d_p,
    w . d_p = sum over cells (t, j) of p of x_t . (w_j - w_{y_t}), and transitions.

A step that moves mass from path l to path h changes w by the step times d_l - d_h, and so g_q by

    -step/2 * (D_hy - D_ly - D_qh + D_ql),      D_ab = ||phi(a) - phi(b)||^2,

which does not depend on w. So an update reads the weights of its cells, makes steps that cost O(k)
each for k paths, and changes these weights once. All that it needs is packed in the order of
updates.
"""

from libc.math cimport INFINITY
from sklseq.objectives.margin._averages cimport stamp_of

import numpy as np

from sklseq._lib.ragged import offsets_of

cdef enum:
    SLACK_L1 = 0
    SLACK_L2 = 1


cdef inline double weight_difference(
    const int* indices, const double* data, Py_ssize_t n, const double* a, const double* b,
    Py_ssize_t width
) noexcept nogil:
    # Of a row: sum_f x_f (w_fa - w_fb); data is NULL if all x are 1.
    cdef Py_ssize_t p = 0
    cdef double total = 0, other = 0
    if data != NULL:
        for p in range(n):
            total += data[p] * (a[indices[p] * width] - b[indices[p] * width])
        return total
    while p + 1 < n:
        total += a[indices[p] * width] - b[indices[p] * width]
        other += a[indices[p + 1] * width] - b[indices[p + 1] * width]
        p += 2
    if p < n:
        total += a[indices[p] * width] - b[indices[p] * width]
    return total + other


cdef inline void shift_weights(
    const int* indices, const double* data, Py_ssize_t n, double* a, double* b, Py_ssize_t width,
    double change
) noexcept nogil:
    # w_fa += change * x_f, w_fb -= change * x_f
    cdef Py_ssize_t p
    cdef double x = change
    for p in range(n):
        if data != NULL:
            x = change * data[p]
        a[indices[p] * width] += x
        b[indices[p] * width] -= x


cdef class KnownPaths:
    """The paths with α > 0 of some blocks, in the order in which ``update`` goes through them.

    Parameters
    ----------
    hinge : StructuredHinge
        With the linear kernel. ``store`` writes α back; only then may its blocks change.
    order : int64 ndarray
        Blocks.
    """

    cdef object kernel, arrays
    cdef Py_ssize_t width, count
    cdef int slack, averaging
    cdef const long long[::1] indptr
    cdef const int[::1] indices
    cdef const double[::1] data
    cdef double[:, ::1] W, late_W
    cdef double[::1] chain, late_chain, norm   # scores of transitions; squared values of features
    cdef double[:, ::1] late_sums
    # Blocks; rows, paths and distances of block b: rows_of[b] to rows_of[b + 1], ...
    cdef const long long[::1] block, first, stop, paths_of, distances_of
    cdef const double[::1] C
    cdef long long[::1] rows_of
    # Rows; cells of row k: cells_of[k] to cells_of[k + 1]
    cdef int[::1] row, true_label, label       # label: of cells
    cdef long long[::1] cells_of
    # Paths; cells of path k, numbered from the first of its block; places in `chain`
    cdef double[::1] alpha, loss
    cdef const long long[::1] path_cells_of, links_of
    cdef int[::1] path_cell, n_links, link
    cdef double[::1] link_value
    cdef double[::1] distance
    # Of one update: scores of cells, then their changes; g and α of paths, the true one last
    cdef double[::1] v, g, before

    def __init__(self, hinge, order):
        kernel, pieces, rows = hinge.kernel, hinge.pieces, hinge.source
        self.kernel, self.arrays = kernel, kernel.arrays
        a = self.arrays
        order = order[a["size"][order] > 0]
        sizes = a["size"][order].astype(np.int64)
        self.slack, self.averaging = kernel.slack_code, kernel.averaging
        self.indptr, self.indices, self.data = rows[:3]
        self.W, self.late_W, self.late_sums = a["W"], a["late_W"], a["late_sums"]
        self.chain, self.late_chain, self.norm = a["chain"], a["late_chain"], hinge.chain_norm()
        self.width, self.count = self.W.shape[1], kernel.count
        self.block, self.first, self.stop = order, pieces.first, pieces.stop
        self.C = hinge.C_of_blocks
        self.paths_of, self.distances_of = offsets_of(sizes), offsets_of((sizes + 1) ** 2)
        self.distance = np.empty(self.distances_of[len(order)])
        kernel.distances(order, self.distance)
        most = int(sizes.max(initial=0)) + 1
        self.alpha, self.loss = np.empty((2, self.paths_of[len(order)]))
        self.g, self.before = np.zeros((2, most))
        self._pack_cells(order, a)
        self._pack_links(hinge, order, sizes)

    def _pack_cells(self, order, a):
        cdef const short[:, ::1] paths = a["paths"]
        cdef const double[:, ::1] alpha = a["alpha"], loss = a["loss"]
        cdef const short[::1] y = self.kernel.labels
        cdef Py_ssize_t b, n
        counts = np.zeros(self.alpha.shape[0], np.int64)
        cdef long long[::1] count = counts
        with nogil:
            for b in range(self.block.shape[0]):
                self.count_cells(b, paths, y, count)
        self.path_cells_of = offsets_of(counts)
        n = self.path_cells_of[len(counts)]
        self.row, self.true_label, self.label, self.path_cell = np.empty((4, n), np.int32)
        self.cells_of, self.v = np.zeros(n + 1, np.int64), np.empty(n)
        self.rows_of = np.zeros(len(order) + 1, np.int64)
        longest = (np.asarray(self.stop) - np.asarray(self.first))[order].max(initial=0)
        cdef long long[:, ::1] number = np.full((longest, self.width), -1, np.int64)
        with nogil:
            for b in range(self.block.shape[0]):
                self.pack_rows(b, paths, y, number)
                self.pack_paths(b, paths, y, number)
                for n in range(self.paths_of[b], self.paths_of[b + 1]):
                    self.alpha[n] = alpha[n - self.paths_of[b], self.block[b]]
                    self.loss[n] = loss[n - self.paths_of[b], self.block[b]]

    cdef void count_cells(
        self, Py_ssize_t b, const short[:, ::1] paths, const short[::1] y, long long[::1] count
    ) noexcept nogil:
        cdef Py_ssize_t path = self.paths_of[b], k, t
        for k in range(self.paths_of[b + 1] - path):
            for t in range(self.first[self.block[b]], self.stop[self.block[b]]):
                count[path + k] += paths[k, t] != y[t]

    cdef void pack_rows(
        self, Py_ssize_t b, const short[:, ::1] paths, const short[::1] y, long long[:, ::1] number
    ) noexcept nogil:
        # Rows and cells of the block; `number` becomes the number of each cell.
        cdef Py_ssize_t r = self.first[self.block[b]], t, k, n = self.rows_of[b]
        cdef long long first_cell = self.cells_of[n], cell = first_cell, before
        cdef short j
        for t in range(self.stop[self.block[b]] - r):
            before = cell
            for k in range(self.paths_of[b + 1] - self.paths_of[b]):
                j = paths[k, r + t]
                if j != y[r + t] and number[t, j] < first_cell:  # of an earlier block, or none
                    self.label[cell], number[t, j] = j, cell
                    cell += 1
            if cell > before:
                self.row[n], self.true_label[n] = <int> (r + t), y[r + t]
                self.cells_of[n + 1] = cell
                n += 1
        self.rows_of[b + 1] = n

    cdef void pack_paths(
        self, Py_ssize_t b, const short[:, ::1] paths, const short[::1] y, long long[:, ::1] number
    ) noexcept nogil:
        cdef Py_ssize_t r = self.first[self.block[b]], t, k, path = self.paths_of[b]
        cdef long long first_cell = self.cells_of[self.rows_of[b]], n = self.path_cells_of[path]
        for k in range(self.paths_of[b + 1] - path):
            for t in range(self.stop[self.block[b]] - r):
                if paths[k, r + t] != y[r + t]:
                    self.path_cell[n] = <int> (number[t, paths[k, r + t]] - first_cell)
                    n += 1

    def _pack_links(self, hinge, order, sizes):
        # A wrong label changes two transitions, each in two places; so do first and last labels.
        room = 4 * np.diff(self.path_cells_of) + 4
        if hinge.features is not None:
            entries, pieces = hinge.features.rows[0], hinge.pieces
            room += np.repeat(2 * (entries[pieces.stop] - entries[pieces.first])[order], sizes)
        self.links_of = bounds = offsets_of(room)
        self.link, self.link_value = np.empty(bounds[-1], np.int32), np.empty(bounds[-1])
        data = bounds[:-1], np.asarray(self.link), np.asarray(self.link_value)
        self.n_links = self.kernel.chain_differences(order, *data)

    # -------------------------------------------------------------- updates

    def update(self, double[::1] gaps, double above, Py_ssize_t n_steps, double accuracy):
        """Up to ``n_steps`` steps on each block whose entry of ``gaps`` is larger than ``above``.

        Steps on a block end when its g are apart by the fraction ``accuracy`` of what they were at
        first. Writes into ``gaps`` what the gap of the block was, were there no other paths.
        """
        cdef Py_ssize_t b, unbounded = -1
        with nogil:
            for b in range(self.block.shape[0]):
                if not gaps[self.block[b]] > above:
                    continue
                self.read_cells(b)
                gaps[self.block[b]] = self.violations(b)
                if not self.exchange_all(b, n_steps, accuracy):
                    unbounded = self.block[b]
                self.write(b)
                self.count += 1
                if unbounded >= 0:
                    break
        self.kernel.count = self.count
        if unbounded >= 0:
            self.kernel.unbounded = unbounded

    cdef const double* values(self, Py_ssize_t row) noexcept nogil:
        return &self.data[self.indptr[row]] if self.data.shape[0] else NULL

    cdef void read_cells(self, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t k, c, p, n, first = self.cells_of[self.rows_of[b]]
        for k in range(self.rows_of[b], self.rows_of[b + 1]):
            p = self.indptr[self.row[k]]
            n = self.indptr[self.row[k] + 1] - p
            for c in range(self.cells_of[k], self.cells_of[k + 1] if n else 0):
                self.v[c - first] = weight_difference(
                    &self.indices[p], self.values(self.row[k]), n, &self.W[0, self.label[c]],
                    &self.W[0, self.true_label[k]], self.width,
                )
            for c in range(self.cells_of[k], 0 if n else self.cells_of[k + 1]):
                self.v[c - first] = 0

    cdef double violations(self, Py_ssize_t b) noexcept nogil:
        # Returns what the block adds to primal minus dual. (HARD: how far from optimal, only.)
        cdef Py_ssize_t first = self.paths_of[b], path, k
        cdef double gap = 0, mass = 0, top = 0, g, C = self.C[self.block[b]]
        for path in range(first, self.paths_of[b + 1]):
            g = self.loss[path]
            for k in range(self.path_cells_of[path], self.path_cells_of[path + 1]):
                g += self.v[self.path_cell[k]]
            for k in range(self.links_of[path], self.links_of[path] + self.n_links[path]):
                g += self.chain[self.link[k]] * self.link_value[k]
            self.g[path - first], self.before[path - first] = g, self.alpha[path]
            gap -= self.alpha[path] * g
            mass += self.alpha[path]
            top = g if g > top else top
        path = self.paths_of[b + 1] - first
        self.g[path], self.before[path] = 0, mass
        if self.slack == SLACK_L1:
            return gap + C * top
        if self.slack == SLACK_L2:
            return gap + C * top * top + mass * mass / (4 * C)
        return (gap if gap > 0 else -gap) + top

    cdef bint exchange_all(self, Py_ssize_t b, Py_ssize_t n_steps, double accuracy) noexcept nogil:
        # Returns whether the dual has a maximum.
        cdef Py_ssize_t _step
        cdef double first = self.exchange(b, 0), apart
        for _step in range(1, n_steps):
            if not 0 < first < INFINITY:
                break
            apart = self.exchange(b, accuracy * first)
            if apart == INFINITY:
                return False
            if apart <= accuracy * first:
                break
        return first < INFINITY

    cdef double exchange(self, Py_ssize_t b, double tol) noexcept nogil:
        # One exact step from the path of the lowest to that of the highest g, for which the true
        # path counts, number n: it has what C leaves, and for squared slacks the derivative of
        # their term more than the others. Returns how far apart they were; up to `tol` nothing is
        # done; inf if the step has no end.
        cdef Py_ssize_t first = self.paths_of[b], n = self.paths_of[b + 1] - first, k
        cdef Py_ssize_t high = n, low = n
        cdef double* alpha = &self.alpha[first]
        cdef double* g = &self.g[0]
        cdef const double* D = &self.distance[self.distances_of[b]]
        cdef double C = self.C[self.block[b]], mass = self.before[n]
        cdef double left = INFINITY if self.slack == SLACK_L2 else C - mass
        cdef double top = mass / (2 * C) if self.slack == SLACK_L2 else 0
        cdef double bottom = top if left > 0 else INFINITY, square, step, most
        for k in range(n):
            if g[k] > top:
                top, high = g[k], k
            if alpha[k] > 0 and g[k] < bottom:
                bottom, low = g[k], k
        if not top - bottom > tol:
            return top - bottom
        square = D[high * (n + 1) + low]
        if self.slack == SLACK_L2 and (low == n or high == n):
            square += 1 / (2 * C)
        most = left if low == n else alpha[low]
        step = (top - bottom) / square if square > 0 else INFINITY
        step = most if step > most else step
        if step == INFINITY:
            return INFINITY
        self.before[n] += step * ((low == n) - (high == n))
        if low < n:
            alpha[low] = alpha[low] - step if step < most else 0
        if high < n:
            alpha[high] += step
        square = D[high * (n + 1) + n] - D[low * (n + 1) + n]
        for k in range(n):
            g[k] -= 0.5 * step * (square - D[high * (n + 1) + k] + D[low * (n + 1) + k])
        return top - bottom

    cdef void write(self, Py_ssize_t b) noexcept nogil:
        # w -= (α - α before) d_p of all paths
        cdef Py_ssize_t first = self.paths_of[b], path, k, n
        cdef Py_ssize_t cell = self.cells_of[self.rows_of[b]], s = self.block[b]
        cdef double x, late = stamp_of(self.averaging, self.count)
        n = self.cells_of[self.rows_of[b + 1]] - cell
        for k in range(n):
            self.v[k] = 0
        for path in range(first, self.paths_of[b + 1]):
            x = self.before[path - first] - self.alpha[path]
            if x == 0:
                continue
            for k in range(self.path_cells_of[path], self.path_cells_of[path + 1]):
                self.v[self.path_cell[k]] += x
            self.write_links(path, x, late)
            if late > 0:
                self.late_sums[0, s] -= late * x * self.loss[path]
                self.late_sums[1, s] -= late * x
        self.write_cells(b, self.W, 1)
        if late > 0:
            self.write_cells(b, self.late_W, late)

    cdef void write_links(self, Py_ssize_t path, double x, double late) noexcept nogil:
        cdef Py_ssize_t k, place
        cdef double change
        for k in range(self.links_of[path], self.links_of[path] + self.n_links[path]):
            place = self.link[k]
            change = x * self.norm[place] * self.link_value[k]
            self.chain[place] += change
            if late > 0:
                self.late_chain[place] += late * change

    cdef void write_cells(self, Py_ssize_t b, double[:, ::1] W, double times) noexcept nogil:
        cdef Py_ssize_t k, c, p, n, first = self.cells_of[self.rows_of[b]]
        for k in range(self.rows_of[b], self.rows_of[b + 1]):
            p = self.indptr[self.row[k]]
            n = self.indptr[self.row[k] + 1] - p
            for c in range(self.cells_of[k], self.cells_of[k + 1] if n else 0):
                if self.v[c - first] != 0:
                    shift_weights(
                        &self.indices[p], self.values(self.row[k]), n, &W[0, self.label[c]],
                        &W[0, self.true_label[k]], self.width, times * self.v[c - first],
                    )

    def store(self):
        """Write α into the working sets, without the paths that have none."""
        a = self.arrays
        cdef double[:, ::1] alpha = a["alpha"], loss = a["loss"]
        cdef short[:, ::1] paths = a["paths"]
        cdef int[::1] size = a["size"]
        cdef Py_ssize_t b, s, k, n, t, path
        with nogil:
            for b in range(self.block.shape[0]):
                s, n = self.block[b], 0
                for k in range(self.paths_of[b + 1] - self.paths_of[b]):
                    path = self.paths_of[b] + k
                    if not self.alpha[path] > 0:
                        continue
                    alpha[n, s], loss[n, s] = self.alpha[path], self.loss[path]
                    for t in range(self.first[s], self.stop[s] if n < k else 0):
                        paths[n, t] = paths[k, t]
                    n += 1
                size[s] = <int> n
        a["score_t"][...] = a["score"].T

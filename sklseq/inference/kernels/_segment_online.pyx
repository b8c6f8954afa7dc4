"""Best segmentations while the steps of a sequence become known one by one.

The recursion and the notation are those of `_segment_best.pyx`. Later potentials are unknown, but
span at most `apart` steps: starts up to `apart` steps ago are kept apart, all older ones are one
group. A *node* (e, y) is the best prefix whose last segment ends at boundary e with label y; its
number is e * L + y. Prefixes with an open segment are *entries*: of a start and label, or of the
old group and label. Entries, and the nodes of the newest boundary, are the survivors: one for each
way in which the sequence may go on.

Each node counts the survivors directly after it, and those of its children from which survivors
descend; a node that has lost all of them is taken from its parent. The root is the last node that
has left. While all that comes after it is one child, all survivors contain this child, and it
becomes the root. Each node is added once and taken away once, so a step costs O(apart * L + L^2),
whatever came before. (The last common ancestor of all survivors: Narasimhan et al. 2006, §3.)
"""

from libc.math cimport INFINITY

import numpy as np

# Links of each boundary and label.
cdef enum:
    ORIGIN       # the node before the segment that starts here, -1 if there is no such entry
    PARENT       # of the node: the node without its last segment
    HELD         # number of survivors directly after the node
    CHILDREN     # number of its children from which survivors descend, and sum of their numbers
    SUM
    N_LINKS


def moved(object rows, Py_ssize_t a, Py_ssize_t b, Py_ssize_t size):
    # Rows a to b - 1 at the front of a new array.
    rows = np.asarray(rows)
    new = np.empty((size, *rows.shape[1:]), dtype=rows.dtype)
    new[: b - a] = rows[a:b]
    return new


def blank_unread(object G, object links, object into, Py_ssize_t root):
    # Set to 0 what is written before it is read: entries of the newest boundary, nodes from which
    # no survivor descends, and those beside the root.
    G[-1], links[-1, ORIGIN], into[-1:] = 0, 0, 0
    lost = (links[:, HELD] == 0) & (links[:, CHILDREN] == 0)
    lost[0] = np.arange(len(lost.T)) != root
    links[:, PARENT:].swapaxes(1, 2)[lost] = 0
    links[0, PARENT] = 0


cdef class SegmentBeam:
    """Survivors of one sequence after its first `n` steps; n - first of them are pending."""

    cdef readonly long long n            # known steps
    cdef readonly long long first        # boundary of the root: earlier steps have left
    cdef readonly long long label        # its label; -1 at the beginning of the sequence
    cdef Py_ssize_t L, apart, n_found
    cdef long long most, n_open          # most pending steps, or -1; number of entries
    cdef bint closes                     # whether segments leave when all survivors contain them
    cdef double shift                    # subtracted from the scores of the next step
    cdef const double[:, ::1] transition
    cdef const double[::1] start
    cdef const long long[::1] limits     # (L,) the longest segment of each label; 0: any length
    cdef const int[::1] lasting          # (L,) whether segments can go on for ever after the label
    # Rows of boundaries base, base + 1, ...
    cdef long long base
    cdef double[:, ::1] G                # (n_rows, L) entries of segments that start here
    cdef long long[:, :, ::1] links      # (n_rows, N_LINKS, L)
    cdef double[:, :, ::1] into          # (n_rows, L, L) their transition scores; or no rows
    cdef long long[::1] cut              # (n_rows,) the first potential of the step from here on
    cdef long long[:, ::1] found         # (n_rows, 4) start, stop, label, newest step: what leaves
    # Potentials, by stop, then by falling start; those of pending steps are kept if `most` >= 0.
    cdef signed char[::1] kind
    cdef long long[::1] begin
    cdef double[:, ::1] psi              # (n_potentials, L)
    cdef double[:, ::1] of_label         # alpha of n; old group; factors of a step (mine, ends)
    cdef long long[:, ::1] nodes         # (2, L) origins of the old group; of the best to `alpha`
    cdef long long marked, lowest        # `first` at `mark`, and the first row that it copied
    cdef list kept                       # rows for `undo`: (number of the first, G, links)
    cdef bint aside                      # whether they begin at `marked`

    def __cinit__(
        self, const double[:, ::1] transition, const double[::1] start,
        const long long[::1] limits, const int[::1] lasting, Py_ssize_t apart, bint closes,
        long long most, bint by_step
    ):
        cdef Py_ssize_t L = start.shape[0]
        self.transition, self.start, self.limits, self.L = transition, start, limits, L
        self.lasting = lasting
        self.apart, self.closes, self.most = apart, closes, most
        self.G, self.links = np.empty((1, L)), np.empty((1, N_LINKS, L), dtype=np.int64)
        self.into = np.empty((1 if by_step else 0, L, L))
        self.cut, self.found = np.zeros(1, dtype=np.int64), np.empty((1, 4), dtype=np.int64)
        self.kind, self.begin = np.empty(0, dtype=np.int8), np.empty(0, dtype=np.int64)
        self.psi, self.of_label = np.empty((0, L)), np.empty((6, L))
        self.nodes = np.empty((2, L), dtype=np.int64)
        self.reset()

    def reset(self):
        """Begin another sequence."""
        self.base, self.cut[0] = 0, 0
        self.begin_at(0)
        self.of_label[0, :] = -INFINITY
        self.links[0, HELD, 0], self.label = 0, -1

    # ---------------------------------------------------------------- memory

    cdef int make_room(self, Py_ssize_t n_steps, Py_ssize_t n_potentials) except -1:
        # New arrays are at most half full, so that many steps pass until rows are moved again.
        cdef Py_ssize_t a = self.first - self.base, b = self.n - self.base + 1
        cdef Py_ssize_t p = self.cut[a if self.most >= 0 else b - 1], q = self.cut[b - 1]
        cdef Py_ssize_t n_rows = b - a + n_steps, n_cells = q - p + n_potentials
        if b + n_steps > self.G.shape[0] or self.G.shape[0] > 8 * n_rows + 64:
            self.G = moved(self.G, a, b, 2 * n_rows)
            self.links = moved(self.links, a, b, 2 * n_rows)
            if self.into.shape[0]:
                self.into = moved(self.into, a, b, 2 * n_rows)
            self.cut = moved(self.cut, a, b, 2 * n_rows)
            self.found = np.empty((2 * n_rows, 4), dtype=np.int64)
            self.base, b = self.first, b - a
        if q + n_potentials > self.psi.shape[0] or self.psi.shape[0] > 8 * n_cells + 64:
            self.kind, self.begin = (
                moved(self.kind, p, q, 2 * n_cells), moved(self.begin, p, q, 2 * n_cells)
            )
            self.psi = moved(self.psi, p, q, 2 * n_cells)
            np.asarray(self.cut)[:b] -= p
        return 0

    @property
    def nbytes(self):
        """Memory of rows and potentials, in bytes."""
        return (
            self.G.nbytes + self.links.nbytes + self.into.nbytes + self.cut.nbytes
            + self.found.nbytes + self.kind.nbytes + self.begin.nbytes + self.psi.nbytes
        )

    def state(self, bint stored=True):
        """All that depends on the sequence, for `restore`; if stored, memory never read is 0."""
        cdef Py_ssize_t a = self.first - self.base, b = self.n - self.base + 1
        cdef Py_ssize_t p = self.cut[a if self.most >= 0 else b - 1], q = self.cut[b - 1]
        numbers = self.n, self.first, self.label, self.n_open, self.shift
        rows = [np.array(self.G[a:b]), np.array(self.links[a:b]), np.array(self.into[a:b])]
        if stored:
            blank_unread(*rows, max(self.label, 0))
        cells = [np.array(self.kind[p:q]), np.array(self.begin[p:q]), np.array(self.psi[p:q])]
        of_label, nodes = np.array(self.of_label), np.array(self.nodes)
        of_label[2:], nodes[1:] = 0, 0    # of one step
        return numbers, np.array(self.cut[a:b]) - p, rows, cells, of_label, nodes

    def restore(self, state):
        """Continue from the `state` of a beam of the same model and rule."""
        numbers, cut, rows, cells, of_label, nodes = state
        self.n, self.first, self.label, self.n_open, self.shift = numbers
        self.base, self.cut = self.first, cut.copy()
        self.G, self.links, self.into = (x.copy() for x in rows)
        self.kind, self.begin, self.psi = (x.copy() for x in cells)
        self.of_label, self.nodes = of_label.copy(), nodes.copy()
        self.found = np.empty((len(cut), 4), dtype=np.int64)

    cdef tuple mark(self):
        # All that a call may change but counts, for `undo`: entries of starts that are kept apart.
        # Those before them are computed again only after a forced segment (`set_aside`).
        numbers = self.n, self.first, self.label, self.n_open, self.shift
        self.marked, self.lowest = self.first, max(self.first, self.n - self.apart)
        self.kept, self.aside = [self.rows_of(self.lowest, self.n + 1)], False
        return numbers, np.array(self.of_label), np.array(self.nodes)

    cdef tuple rows_of(self, long long a, long long b):
        cdef Py_ssize_t i = a - self.base, j = b - self.base
        return a, np.array(self.G[i:j]), np.array(self.links[i:j])

    cdef int set_aside(self) except -1 nogil:
        # The rows before those of `mark`, which have not changed since.
        if not self.aside:
            with gil:
                self.kept.append(self.rows_of(self.marked, self.lowest))
            self.aside = True
        return 0

    cdef int undo(self, tuple marked) except -1:
        numbers, self.of_label, self.nodes = marked
        self.n, self.first, self.label, self.n_open, self.shift = numbers
        for a, G, links in self.kept:
            np.asarray(self.G)[a - self.base :][: len(G)] = G
            np.asarray(self.links)[a - self.base :][: len(links)] = links
        self.count_again()
        return 0

    cdef void count_again(self):
        cdef Py_ssize_t y, L = self.L
        cdef long long node, s
        np.asarray(self.links)[self.first - self.base : self.n - self.base + 1, HELD:] = 0
        for y in range(L):
            if self.of_label[0, y] > -INFINITY:
                self.link(self.n * L + y, HELD)[0] += 1
            if self.nodes[0, y] >= 0:
                self.link(self.nodes[0, y], HELD)[0] += 1
            for s in range(max(self.first, self.n - self.apart), self.n):
                if self.links[s - self.base, ORIGIN, y] >= 0:
                    self.link(self.links[s - self.base, ORIGIN, y], HELD)[0] += 1
        for node in range((self.n + 1) * L - 1, (self.first + 1) * L - 1, -1):
            if self.link(node, HELD)[0] or self.link(node, CHILDREN)[0]:
                self.link(self.link(node, PARENT)[0], CHILDREN)[0] += 1
                self.link(self.link(node, PARENT)[0], SUM)[0] += node

    # ---------------------------------------------------------------- survivors

    cdef inline long long* link(self, long long node, Py_ssize_t column) noexcept nogil:
        return &self.links[node // self.L - self.base, column, node % self.L]

    cdef inline long long root(self) noexcept nogil:
        return self.first * self.L + max(self.label, 0)

    cdef void begin_at(self, long long node) noexcept nogil:
        # The node has left, and is the only survivor.
        cdef Py_ssize_t y
        self.n = self.first = node // self.L
        self.label = node % self.L
        self.n_open, self.shift = 0, 0
        for y in range(self.L):
            self.of_label[0, y] = self.of_label[1, y] = -INFINITY
            self.nodes[0, y] = -1
        self.of_label[0, self.label] = 0
        self.link(node, HELD)[0] = 1
        self.link(node, CHILDREN)[0] = self.link(node, SUM)[0] = 0

    cdef void add_node(self, long long node, long long parent) noexcept nogil:
        self.link(node, PARENT)[0] = parent
        self.link(node, HELD)[0] = 1
        self.link(node, CHILDREN)[0] = self.link(node, SUM)[0] = 0
        self.link(parent, CHILDREN)[0] += 1
        self.link(parent, SUM)[0] += node

    cdef void release(self, long long node) noexcept nogil:
        # One survivor less directly after the node.
        cdef long long parent
        self.link(node, HELD)[0] -= 1
        while (
            self.link(node, HELD)[0] == 0 and self.link(node, CHILDREN)[0] == 0
            and node != self.root()
        ):
            parent = self.link(node, PARENT)[0]
            self.link(parent, CHILDREN)[0] -= 1
            self.link(parent, SUM)[0] -= node
            node = parent

    cdef void drop(self, double* score, long long* origin) noexcept nogil:
        # An entry, if it exists.
        score[0] = -INFINITY
        if origin[0] >= 0:
            self.release(origin[0])
            origin[0] = -1
            self.n_open -= 1

    # ---------------------------------------------------------------- steps

    cdef void enter(self) noexcept nogil:
        # Entries that start at boundary n. From now on its nodes survive by their entries only.
        cdef Py_ssize_t L = self.L, i, y, r = self.n - self.base
        cdef double* row = &self.G[r, 0]
        cdef long long* origin = &self.links[r, ORIGIN, 0]
        cdef const double* score = &self.start[0]
        cdef double x, v
        cdef long long node
        for y in range(L):
            row[y] = score[y] if self.n == 0 else -INFINITY
            origin[y] = 0 if row[y] > -INFINITY else -1
        if self.n > 0:
            for i in range(L):
                score = &self.transition[i, 0]
                if self.into.shape[0]:
                    score = &self.into[r, i, 0]
                x, node = self.of_label[0, i], self.n * L + i
                for y in range(L):
                    v = x + score[y]
                    origin[y] = node if v > row[y] else origin[y]
                    row[y] = v if v > row[y] else row[y]
        for y in range(L):
            if origin[y] >= 0:
                self.link(origin[y], HELD)[0] += 1
                self.n_open += 1
        for y in range(L):
            if self.of_label[0, y] > -INFINITY:
                self.release(self.n * L + y)

    cdef double extend(
        self, double* G, long long* origin, const double* opened, const double* closed
    ) noexcept nogil:
        # Entries of one start, or of the old group, with the potentials of a step; alpha, if they
        # end. Returns the largest score.
        cdef Py_ssize_t y
        cdef double* alpha = &self.of_label[0, 0]
        cdef const double* mine = &self.of_label[4, 0]
        cdef const double* ends = &self.of_label[5, 0]
        cdef long long* best = &self.nodes[1, 0]
        cdef double x, top = -INFINITY
        cdef bint dead = False
        for y in range(self.L):
            G[y] += opened[y] + mine[y]
            x = ends[y] + (G[y] + closed[y])
            best[y] = origin[y] if x > alpha[y] else best[y]
            alpha[y] = x if x > alpha[y] else alpha[y]
            top = G[y] if G[y] > top else top
            dead |= (G[y] == -INFINITY) & (origin[y] >= 0)
        if dead:
            for y in range(self.L):
                if G[y] == -INFINITY:
                    self.drop(G + y, origin + y)
        return top

    cdef Py_ssize_t read_factors(
        self, Py_ssize_t c, Py_ssize_t stop, long long s, double* opened, double* closed
    ) noexcept nogil:
        # Potentials that begin at s, from number c on; returns the next one.
        cdef Py_ssize_t y, L = self.L
        cdef double* mine = &self.of_label[4, 0]
        cdef double* ends = &self.of_label[5, 0]
        cdef double* sums
        cdef const double* psi
        for y in range(L):
            mine[y] = ends[y] = 0
        while c < stop and self.begin[c] == s:
            sums = ends
            if self.kind[c] > 0:
                sums = mine if self.kind[c] == 1 else closed if self.kind[c] == 2 else opened
            psi = &self.psi[c, 0]
            for y in range(L):
                sums[y] += psi[y]
            c += 1
        return c

    cdef bint append(self) noexcept nogil:
        # One step; returns whether anything survives. Among equal scores a later start wins, then
        # the lowest label before it.
        cdef Py_ssize_t y, r, n_nodes = 0
        cdef Py_ssize_t c = self.cut[self.n - self.base], stop = self.cut[self.n + 1 - self.base]
        cdef long long s, e = self.n + 1
        cdef double* opened = &self.of_label[2, 0]
        cdef double* closed = &self.of_label[3, 0]
        cdef double top = -INFINITY
        self.enter()
        for y in range(self.L):
            opened[y], closed[y], self.of_label[0, y] = -self.shift, 0, -INFINITY
        for s in range(e - 1, max(self.first, e - self.apart) - 1, -1):
            r = s - self.base
            c = self.read_factors(c, stop, s, opened, closed)
            top = max(top, self.extend(&self.G[r, 0], &self.links[r, ORIGIN, 0], opened, closed))
        self.read_factors(0, 0, 0, opened, closed)
        top = max(top, self.extend(&self.of_label[1, 0], &self.nodes[0, 0], opened, closed))
        self.n = e
        for y in range(self.L):
            if self.of_label[0, y] > -INFINITY:
                n_nodes += 1
                top = max(top, self.of_label[0, y])
                self.add_node(e * self.L + y, self.nodes[1, y])
            else:
                self.links[e - self.base, HELD, y] = self.links[e - self.base, CHILDREN, y] = 0
        self.shift = top if top > -INFINITY else 0
        self.age()
        return n_nodes + self.n_open > 0

    cdef void age(self) noexcept nogil:
        # Drop entries of the longest length, and join those of the oldest start with the old group.
        cdef Py_ssize_t y, r
        cdef double* G
        cdef long long* origin
        cdef double* old = &self.of_label[1, 0]
        cdef long long* of_old = &self.nodes[0, 0]
        for y in range(self.L):
            r = self.n - self.limits[y] - self.base
            if 0 < self.limits[y] <= self.n - self.first:
                self.drop(&self.G[r, y], &self.links[r, ORIGIN, y])
        if self.n - self.apart < self.first:
            return
        G = &self.G[self.n - self.apart - self.base, 0]
        origin = &self.links[self.n - self.apart - self.base, ORIGIN, 0]
        for y in range(self.L):
            if origin[y] >= 0 and G[y] >= old[y]:
                self.drop(old + y, of_old + y)
                old[y], of_old[y] = G[y], origin[y]
                G[y], origin[y] = -INFINITY, -1
            else:
                self.drop(G + y, origin + y)

    # ---------------------------------------------------------------- segments

    cdef void leave(self, long long node) noexcept nogil:
        cdef long long* row = &self.found[self.n_found, 0]
        row[0], row[1], row[2] = self.first, node // self.L, node % self.L
        row[3] = self.n - 1
        self.n_found += 1
        self.first, self.label = row[1], row[2]

    cdef Py_ssize_t best_end(self, const double* end) noexcept nogil:
        # The lowest of the best labels of the last segment, -1 if none is allowed. end = NULL: the
        # sequence goes on, so it is a lasting label if one is possible.
        cdef Py_ssize_t y, best = -1
        cdef double x, top = -INFINITY
        cdef bint one = False
        for y in range(self.L):
            if end == NULL and self.lasting[y] and self.of_label[0, y] > -INFINITY:
                one = True
        for y in range(self.L):
            x = self.of_label[0, y] + (end[y] if end != NULL else 0)
            if x > top and (self.lasting[y] or not one):
                best, top = y, x
        return best

    cdef int settle(self) except -1 nogil:
        # Returns whether a segment that must leave exists.
        cdef long long node, n = self.n
        while (
            self.closes and self.link(self.root(), HELD)[0] == 0
            and self.link(self.root(), CHILDREN)[0] == 1
        ):
            self.leave(self.link(self.root(), SUM)[0])
        while 0 <= self.most < n - self.first:
            node = self.best_end(NULL)
            if node < 0:
                return False
            node += n * self.L
            while self.link(node, PARENT)[0] != self.root():
                node = self.link(node, PARENT)[0]
            if self.link(self.root(), HELD)[0] == 0 and self.link(self.root(), CHILDREN)[0] == 1:
                self.leave(node)
                continue
            self.set_aside()
            self.leave(node)         # survivors without this segment are given up
            self.begin_at(node)
            while self.n < n:
                self.append()
        return True

    def push(
        self,
        const signed char[::1] kind,
        const long long[::1] begin,
        const double[:, ::1] psi,        # (n_potentials, L)
        const long long[::1] cut,        # (n_steps + 1,)  potentials of each step
        object into,                     # (n_steps, L, L) transitions into these steps, or None
        bint settles,                    # whether segments may leave
    ):
        """Add steps; return an array (start, stop, label, newest step) of what left.

        If no segmentation is allowed, return None: then nothing has changed.
        """
        cdef Py_ssize_t n_steps = cut.shape[0] - 1, k, r, p
        cdef bint done = True, fine = False
        self.make_room(n_steps, kind.shape[0])
        marked = self.mark()
        r = self.n - self.base
        p = self.cut[r]
        for k in range(n_steps):
            self.cut[r + k + 1] = p + cut[k + 1] - cut[0]
        if kind.shape[0]:
            self.kind[p : p + kind.shape[0]] = kind
            self.begin[p : p + kind.shape[0]] = begin
            self.psi[p : p + kind.shape[0]] = psi
        if self.into.shape[0]:
            np.asarray(self.into)[r : r + n_steps] = self.transition if into is None else into
        self.n_found = 0
        try:
            with nogil:
                while done and self.n < r + self.base + n_steps:
                    done = self.append() and (not settles or self.settle())
            fine = done
        finally:
            if not fine:
                self.undo(marked)
            self.kept = None
        return np.array(self.found[: self.n_found]) if done else None

    def best(self, const double[::1] end, bint leaves):
        """Segments (start, stop, label) of the best segmentation of the pending steps, or None.

        If `leaves`, they have left. `end` is None if the sequence goes on.
        """
        cdef Py_ssize_t y, k = 0
        cdef long long node, at
        if self.n == self.first:
            return np.zeros((0, 3), dtype=np.int64)
        y = self.best_end(NULL if end is None else &end[0])
        if y < 0:
            return None
        node = at = self.n * self.L + y
        rows = np.empty((self.n - self.first, 3), dtype=np.int64)
        cdef long long[:, ::1] out = rows
        while at != self.root():
            out[k, 1], out[k, 2] = at // self.L, at % self.L
            at = self.link(at, PARENT)[0]
            out[k, 0] = at // self.L
            k += 1
        if leaves:
            self.begin_at(node)
        return rows[:k][::-1].copy()

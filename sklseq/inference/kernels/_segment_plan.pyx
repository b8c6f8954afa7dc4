"""What a dynamic program over segments has to visit: arranged once, for all its evaluations.

Starts of segments that no potential to come can tell apart are one group (Sarawagi 2006 keeps one
such group, those up to A(i), and all later starts apart; here any number of starts may be joined,
so that one long potential costs one group more and not as many as it spans). A new start that
nothing tells from older ones is not even a group of its own.

Two starts must be kept apart at the end of step e while

* a cell closed at the start begins at one of them and stops after e (`pin`), or
* a cell open at the start begins at r and stops after e, one start being at most r, the other
  beyond (`bar`), or
* one of them is younger than the longest segment of a label that has such a limit (`pin`, too), or
* one of them is younger than `apart`, which is more where cells to come are not known yet.
"""

from libc.stdlib cimport free, malloc


cdef struct Group:
    Py_ssize_t start                 # of its oldest member
    Py_ssize_t pin                   # kept apart from all others before the end of this step
    Py_ssize_t bar                   # kept apart from what is newer before the end of this step


cdef Py_ssize_t close_step(
    Group* groups, Py_ssize_t k, Py_ssize_t e, Py_ssize_t drop, Py_ssize_t* into
) noexcept nogil:
    # Join the groups that nothing tells apart after step e, oldest first. Returns how many are
    # left; into[i] is the new number of group i, -1 if it has reached the longest length of all.
    cdef Py_ssize_t i, kept = 0, free_one = -1, bar = 0
    for i in range(k):
        if e - groups[i].start >= drop:
            into[i] = -1
            continue
        if groups[i].pin <= e and free_one >= 0 and bar <= e:
            into[i] = free_one
            groups[kept - 1].bar = max(groups[kept - 1].bar, groups[i].bar)
            bar = max(bar, groups[i].bar)
            continue
        into[i] = kept
        bar = max(bar, groups[i].bar)
        groups[kept] = groups[i]
        if groups[i].pin <= e:
            free_one = kept
            bar = groups[i].bar
        kept += 1
    return kept


cdef Py_ssize_t join_new(
    const Group* groups, Py_ssize_t k, Py_ssize_t e, Py_ssize_t apart, Py_ssize_t pin
) noexcept nogil:
    # Which group the start e - 1 can join at once, because not even step e tells them apart; or k.
    cdef Py_ssize_t i
    if apart or pin >= e:
        return k
    for i in range(k - 1, -1, -1):
        if groups[i].bar >= e:
            return k
        if groups[i].pin < e:
            return i
    return k


cdef void last_stops(
    const long long[::1] start, const long long[::1] stop, const signed char[::1] kind,
    Py_ssize_t first, Py_ssize_t last, Py_ssize_t n, long long* pin, long long* bar
) noexcept nogil:
    # Until when each start is told apart: from all others, and from those after it.
    cdef Py_ssize_t c
    for c in range(n):
        pin[c] = bar[c] = 0
    for c in range(first, last):
        if kind[c] < 2:
            pin[start[c]] = max(pin[start[c]], stop[c])
        else:
            bar[start[c]] = max(bar[start[c]], stop[c])


def arrange(
    const long long[::1] steps,      # (n_sequences + 1,)
    const long long[::1] cells,      # (n_sequences + 1,)
    const long long[::1] start,      # (n_cells,)        sorted by stop, then by falling start
    const long long[::1] stop,
    const signed char[::1] kind,
    Py_ssize_t longest,              # the largest longest length of a label
    Py_ssize_t apart,                # starts are kept apart until they are as old as this
    Py_ssize_t drop,                 # no segment is longer than this
    const int[::1] limits,           # (longest + 1,)    1 where a label's longest length is
    long long[::1] step_visits,      # (n_steps + 1,)    OUT
    long long[::1] first_cell,       # (n_visits,)       OUT; empty: only count
    long long[::1] last_cell,
    long long[::1] target,
    int[::1] mask,
    long long[::1] entry,            # (n_steps,)        OUT the visit that the new start is in
):
    """Fill the plan, or only ``step_visits``; returns the largest number of visits of a step."""
    cdef Py_ssize_t s, n, e, i, k, c, new, age, kept, v = 0, most = 1, size = 1
    cdef bint fill = first_cell.shape[0] > 0
    for s in range(steps.shape[0] - 1):
        size = max(size, steps[s + 1] - steps[s])
    cdef long long* pin = <long long*> malloc(2 * size * sizeof(long long))
    cdef Group* groups = <Group*> malloc(size * sizeof(Group))
    cdef Py_ssize_t* into = <Py_ssize_t*> malloc(size * sizeof(Py_ssize_t))
    if pin == NULL or groups == NULL or into == NULL:
        free(pin)
        free(groups)
        free(into)
        raise MemoryError()
    with nogil:
        step_visits[0] = 0
        for s in range(steps.shape[0] - 1):
            n = steps[s + 1] - steps[s]
            last_stops(start, stop, kind, cells[s], cells[s + 1], n, pin, pin + size)
            k = 0
            c = cells[s]
            for e in range(1, n + 1):
                new = join_new(groups, k, e, apart, pin[e - 1])
                if new == k:
                    groups[k].start = e - 1
                    groups[k].pin = max(pin[e - 1], e - 1 + apart)
                    groups[k].bar = 0
                    k += 1
                groups[k - 1].bar = max(groups[k - 1].bar, pin[size + e - 1])
                entry[steps[s] + e - 1] = v + k - 1 - new
                most = max(most, k)
                step_visits[steps[s] + e] = v + k
                for i in range(k - 1, -1, -1):          # from the newest to the oldest
                    if fill:
                        first_cell[v] = c
                    while c < cells[s + 1] and stop[c] == e and start[c] >= groups[i].start:
                        c += 1
                    if fill:
                        last_cell[v] = c
                        target[v] = -1
                        mask[v] = 0
                        age = 1 if i == new else e - groups[i].start
                        if age <= longest and limits[age]:
                            mask[v] = <int> age
                    v += 1
                while c < cells[s + 1] and stop[c] == e:
                    c += 1                              # no segment that long is allowed
                if e < n:
                    kept = close_step(groups, k, e, drop, into)
                    new = join_new(groups, kept, e + 1, apart, pin[e])
                    if fill:
                        point(into, k, v, kept + (new == kept), target)
                    k = kept
        free(pin)
        free(groups)
        free(into)
    return most


cdef void point(
    const Py_ssize_t* into, Py_ssize_t k, Py_ssize_t v, Py_ssize_t n_next, long long[::1] target
) noexcept nogil:
    # The k visits before v, newest first, go on to those of the next step: n_next of them from v.
    cdef Py_ssize_t i
    for i in range(k):
        if into[i] >= 0:
            target[v - 1 - i] = v + n_next - 1 - into[i]


cdef inline bint in_run(
    Py_ssize_t v, const long long[::1] first_cell, const long long[::1] last_cell,
    const long long[::1] target, const int[::1] mask, const signed char[::1] kind
) noexcept nogil:
    # Whether a visit has one cell, closed at both ends, and goes on as it is.
    return (
        last_cell[v] - first_cell[v] == 1 and kind[first_cell[v]] == 0 and mask[v] == 0
        and target[v] >= 0
    )


def find_runs(
    const long long[::1] step_visits,
    const long long[::1] first_cell,
    const long long[::1] last_cell,
    const long long[::1] target,
    const int[::1] mask,
    const signed char[::1] kind,
    const long long[::1] entry,
    int[::1] run,                    # (n_visits,)   IN zeros, OUT
):
    """Visits of a step, cells and targets that lie side by side, so that one loop does them all.

    run[v] is the number of visits where a run begins, minus that where it ends, else 0. With
    features of whole segments most visits are in runs, as long as there are starts apart.
    """
    cdef Py_ssize_t e, v, first
    with nogil:
        for e in range(entry.shape[0]):
            v = step_visits[e]
            while v < step_visits[e + 1]:
                first = v
                v += 1
                if first == entry[e]:
                    continue
                if not in_run(first, first_cell, last_cell, target, mask, kind):
                    continue
                while (
                    v < step_visits[e + 1] and v != entry[e]
                    and in_run(v, first_cell, last_cell, target, mask, kind)
                    and first_cell[v] == first_cell[v - 1] + 1 and target[v] == target[v - 1] + 1
                ):
                    v += 1
                if v - first > 1:
                    run[first] = <int> (v - first)
                    run[v - 1] = -run[first]

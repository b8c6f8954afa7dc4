"""The order in which a dynamic program over segments works: arranged once, for all evaluations.

Starts of segments that no later potential distinguishes are one group (Sarawagi 2006 keeps one
such group, those up to A(i), and all later starts apart; here any number of starts may be joined,
so that one long potential costs one group more and not as many as it spans). A new start that
no potential distinguishes from older ones joins their group at once.

Two starts must be kept apart at the end of step e while

* a cell closed at the start begins at one of them and stops after e (`pin`), or
* a cell open at the start begins at r and stops after e, one start being at most r, the other
  beyond (`bar`), or
* one of them is younger than the longest segment of a label that has such a limit (`pin`, too).
"""

import numpy as np


cdef struct Group:
    long long start                  # of its oldest member
    long long pin                    # kept apart from all others before the end of this step
    long long bar                    # kept apart from newer ones before the end of this step


cdef Py_ssize_t close_step(
    Group* groups, Py_ssize_t k, Py_ssize_t e, Py_ssize_t drop, long long* into
) noexcept nogil:
    # Join the groups that need not be kept apart after step e, oldest first. Returns the number of
    # groups left; into[i] is the new number of group i, -1 if no label may be that long.
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
    # The group that start e - 1 joins directly, since step e does not distinguish them; k if none.
    cdef Py_ssize_t i
    if apart or pin >= e:
        return k
    for i in range(k - 1, -1, -1):
        if groups[i].bar >= e:
            return k
        if groups[i].pin < e:
            return i
    return k


def arrange(object plan, bint fill):
    """Fill the arrays of a SegmentPlan, or only ``step_states``; returns the most states of a step.

    Unless `fill`, arrays over states are not written.
    """
    cdef const long long[::1] steps = plan.steps, cells = plan.cells
    cdef const long long[::1] start = plan.start, stop = plan.stop
    cdef const signed char[::1] kind = plan.kind
    cdef const int[::1] limits = plan.at_limit
    cdef long long[::1] step_states = plan.step_states, entry = plan.entry, target = plan.target
    cdef long long[::1] first_cell = plan.first_cell, last_cell = plan.last_cell
    cdef int[::1] mask = plan.mask
    cdef Py_ssize_t longest = plan.longest, apart = plan.kept_apart, drop = plan.drop
    cdef Py_ssize_t s, n, e, i, k, c, new, age, kept, v = 0, most = 1
    cdef Py_ssize_t size = int(np.diff(steps).max(initial=1))
    cdef long long[:, ::1] scratch = np.empty((6, size), dtype=np.int64)
    # The last step until which each start is kept apart from all others, and from those after it.
    cdef long long* pin = &scratch[0, 0]
    cdef long long* bar = pin + size
    cdef long long* into = bar + size
    cdef Group* groups = <Group*> (into + size)
    with nogil:
        step_states[0] = 0
        for s in range(steps.shape[0] - 1):
            n = steps[s + 1] - steps[s]
            for e in range(n):
                pin[e] = bar[e] = 0
            for c in range(cells[s], cells[s + 1]):
                if kind[c] < 2:
                    pin[start[c]] = max(pin[start[c]], stop[c])
                else:
                    bar[start[c]] = max(bar[start[c]], stop[c])
            k = 0
            c = cells[s]
            for e in range(1, n + 1):
                new = join_new(groups, k, e, apart, pin[e - 1])
                if new == k:
                    groups[k].start, groups[k].bar = e - 1, 0
                    groups[k].pin = max(pin[e - 1], e - 1 + apart)
                    k += 1
                groups[k - 1].bar = max(groups[k - 1].bar, bar[e - 1])
                entry[steps[s] + e - 1] = v + k - 1 - new
                most = max(most, k)
                step_states[steps[s] + e] = v + k
                for i in range(k - 1, -1, -1):          # from the newest to the oldest
                    if fill:
                        first_cell[v] = c
                    while c < cells[s + 1] and stop[c] == e and start[c] >= groups[i].start:
                        c += 1
                    if fill:
                        last_cell[v] = c
                        age = 1 if i == new else e - groups[i].start
                        if age <= longest and limits[age]:
                            mask[v] = <int> age
                    v += 1
                while c < cells[s + 1] and stop[c] == e:
                    c += 1                              # no segment that long is allowed
                if e == n:
                    break
                # The k states of this step, newest first, and the group that each goes into.
                kept = close_step(groups, k, e, drop, into)
                new = kept + (join_new(groups, kept, e + 1, apart, pin[e]) == kept)
                if fill:
                    for i in range(k):
                        if into[i] >= 0:
                            target[v - 1 - i] = v + new - 1 - into[i]
                k = kept
    return most


def find_runs(object plan):
    """Fill ``run`` of a SegmentPlan: consecutive states of a step that one loop serves."""
    cdef const long long[::1] step_states = plan.step_states, entry = plan.entry
    cdef const long long[::1] first_cell = plan.first_cell, last_cell = plan.last_cell
    cdef const long long[::1] target = plan.target
    cdef const int[::1] mask = plan.mask
    cdef const signed char[::1] kind = plan.kind
    cdef int[::1] run = plan.run
    cdef Py_ssize_t e, v, first
    with nogil:
        for e in range(entry.shape[0]):
            first = -1                       # where the run of the state before begins
            for v in range(step_states[e], step_states[e + 1]):
                if (
                    v == entry[e] or target[v] < 0 or mask[v]
                    or last_cell[v] - first_cell[v] != 1 or kind[first_cell[v]] != 0
                ):
                    first = -1
                elif first >= 0 and (
                    first_cell[v] == first_cell[v - 1] + 1 and target[v] == target[v - 1] + 1
                ):
                    run[v - 1] = 0
                    run[first] = <int> (v - first + 1)
                    run[v] = -run[first]
                else:
                    first = v

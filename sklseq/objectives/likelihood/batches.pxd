"""Batches of sequences that several threads work on together, each with weights of its own.

Each batch has two phases. In the first, any free thread takes the next sequence and computes its
residuals, from weights that nobody changes. In the second, the residuals of all sequences of the
batch change the weights, of which each thread has a part of its own. Which thread does what does
not matter to the result, so it depends on the sizes of batches only. A phase begins when the one
before has ended, not when all threads are there: one that starts late finds its work done.
"""

from sklseq._lib.atomic cimport atomic_add, atomic_exchange, atomic_load, atomic_wait

# Counters are APART numbers apart, so that they lie in cache lines of their own: sequences taken,
# sequences finished, parts finished, batches decided, parts undone; for each part, the next batch
# for which it can be taken; for each part, the next batch of which steps in it can be undone.
# GROUP and SPARSE_GROUP: as in batches.py.
cdef enum:
    TAKEN = 0
    FINISHED = 16
    PARTS = 32
    DECIDED = 48
    UNDONE = 64
    OPEN = 80
    APART = 16
    GROUP = 3
    SPARSE_GROUP = 4

cdef struct Batches:
    Py_ssize_t n, n_parts            # of batches; of the weights: 1, or the number of threads
    const long long* first           # (n + 1,) first sequence of each, in the order of updates
    long long* undos                 # (n + 1,) batches with undone steps before each
    long long* counters
    Py_ssize_t me                    # the part that this thread prefers


cdef inline Batches batches_of(plan, Py_ssize_t me) except *:
    # `plan`: a `BatchPlan`.
    cdef const long long[::1] first = plan.first
    cdef long long[::1] counters = plan.counters, undos = plan.undos
    cdef Batches q
    q.n, q.n_parts, q.me = first.shape[0] - 1, plan.n_parts, me
    q.first, q.undos, q.counters = &first[0], &undos[0], &counters[0]
    return q


cdef inline Py_ssize_t take_sequence(Batches* q, Py_ssize_t b) noexcept nogil:
    # The next sequence of batch b, or -1 if all are taken.
    cdef long long k
    while True:
        k = atomic_load(q.counters + TAKEN)
        if k >= q.first[b + 1]:
            return -1
        if atomic_exchange(q.counters + TAKEN, k, k + 1):
            return k


cdef inline void sequence_done(Batches* q) noexcept nogil:
    atomic_add(q.counters + FINISHED)


cdef inline void wait_for_sequences(Batches* q, Py_ssize_t b) noexcept nogil:
    atomic_wait(q.counters + FINISHED, q.first[b + 1])


cdef inline bint take(long long* next_batch, Py_ssize_t b) noexcept nogil:
    # True for one thread that asks for batch b.
    cdef long long now = atomic_load(next_batch)
    return now <= b and atomic_exchange(next_batch, now, b + 1)


cdef inline bint take_part(Batches* q, Py_ssize_t b, Py_ssize_t k) noexcept nogil:
    # Whether this thread shall change part (me + k) % n_parts of the weights for batch b.
    return take(q.counters + OPEN + (q.me + k) % q.n_parts * APART, b)


cdef inline bint part_done(Batches* q, Py_ssize_t b) noexcept nogil:
    # Returns whether it was the last one of batch b.
    return atomic_add(q.counters + PARTS) == (b + 1) * q.n_parts


cdef inline void wait_for_parts(Batches* q, Py_ssize_t b) noexcept nogil:
    atomic_wait(q.counters + PARTS, (b + 1) * q.n_parts)


cdef inline void decided(Batches* q) noexcept nogil:
    atomic_add(q.counters + DECIDED)


cdef inline void wait_for_decision(Batches* q, Py_ssize_t b) noexcept nogil:
    atomic_wait(q.counters + DECIDED, b + 1)


cdef inline bint take_undo(Batches* q, Py_ssize_t b, Py_ssize_t k) noexcept nogil:
    # Whether this thread shall undo steps of batch b in part (me + k) % n_parts of the weights.
    return take(q.counters + OPEN + (q.n_parts + (q.me + k) % q.n_parts) * APART, b)


cdef inline void undo_done(Batches* q) noexcept nogil:
    atomic_add(q.counters + UNDONE)


cdef inline void wait_for_undo(Batches* q, Py_ssize_t b) noexcept nogil:
    atomic_wait(q.counters + UNDONE, q.undos[b + 1] * q.n_parts)


cdef inline Py_ssize_t own_entries(
    const int* indices, Py_ssize_t n, const unsigned short* owner, int shift, Py_ssize_t part,
    int* own
) noexcept nogil:
    # Numbers of the first n entries whose column, in groups of 2 ** shift, belongs to the part.
    cdef Py_ssize_t p, found = 0
    for p in range(n):
        own[found] = <int> p
        found += owner[indices[p] >> shift] == part
    return found

/* A barrier for the threads of one compiled loop, which need no interpreter lock between rounds.
 *
 * Who waits looks for SKLSEQ_SPINS pauses, some 20 microseconds, whether all have arrived, and then
 * sleeps on a lock: where threads share a processor, waiting must not take the time of those that
 * are waited for. Locks are those of Python, which exist on every platform.
 */
#ifndef SKLSEQ_BARRIER_H
#define SKLSEQ_BARRIER_H

#include "pythread.h"

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#define sklseq_load(p) _InterlockedExchangeAdd(p, 0)
#define sklseq_add(p, x) _InterlockedExchangeAdd(p, x)
#define sklseq_swap(p, x) _InterlockedExchange(p, x)
#else
#define sklseq_load(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define sklseq_add(p, x) __atomic_fetch_add(p, x, __ATOMIC_SEQ_CST)
#define sklseq_swap(p, x) __atomic_exchange_n(p, x, __ATOMIC_SEQ_CST)
#endif

#if defined(__x86_64__) || defined(__i386__)
#define sklseq_pause() __builtin_ia32_pause()
#elif defined(_M_X64) || defined(_M_IX86)
#define sklseq_pause() _mm_pause()
#else
#define sklseq_pause() ((void) 0)
#endif

enum { SKLSEQ_SPINS = 500, SKLSEQ_LINE = 64 };

typedef struct {
    PyThread_type_lock bed;  /* held, but for the moment at which its thread is woken */
    long asleep;
    char unused[SKLSEQ_LINE];  /* waiters lie in different cache lines */
} sklseq_waiter;

typedef struct {
    long n, arrived, round;
    long stopped;  /* whether a thread will never arrive */
} sklseq_barrier;

static void sklseq_wake(sklseq_barrier* b, sklseq_waiter* waiters, long me) {
    long k;
    for (k = 0; k < b->n; k++)
        if (k != me && sklseq_swap(&waiters[k].asleep, 0))
            PyThread_release_lock(waiters[k].bed);
}

/* Ends the waiting, now and from now on. */
static void sklseq_stop(sklseq_barrier* b, sklseq_waiter* waiters) {
    sklseq_swap(&b->stopped, 1);
    sklseq_wake(b, waiters, -1);
}

/* Thread `me` of b->n waits until all have called this as often, and returns 1; 0 if stopped. */
static int sklseq_wait(sklseq_barrier* b, sklseq_waiter* waiters, long me) {
    long round = sklseq_load(&b->round), k;
    if (sklseq_add(&b->arrived, 1) + 1 == b->n) {
        sklseq_swap(&b->arrived, 0);
        sklseq_add(&b->round, 1);
        sklseq_wake(b, waiters, me);
        return 1;
    }
    for (k = 0; k < SKLSEQ_SPINS; k++) {
        if (sklseq_load(&b->round) != round)
            return 1;
        sklseq_pause();
    }
    /* One that wakes the others of the round before may be late, and wake this thread too soon. */
    while (sklseq_load(&b->round) == round && !sklseq_load(&b->stopped)) {
        sklseq_swap(&waiters[me].asleep, 1);
        if ((sklseq_load(&b->round) != round || sklseq_load(&b->stopped))
                && sklseq_swap(&waiters[me].asleep, 0))
            break;  /* nobody had seen it asleep, so nobody wakes it */
        PyThread_acquire_lock(waiters[me].bed, WAIT_LOCK);
    }
    return sklseq_load(&b->round) != round;
}

#endif

/* Counters that several threads read and change, for x86, ARM and others, with GCC, Clang and MSVC.
 *
 * What a thread wrote before `sklseq_add` or a successful `sklseq_exchange` is seen by threads that
 * read the new value with `sklseq_load` or `sklseq_exchange`.
 */
#ifndef SKLSEQ_ATOMIC_H
#define SKLSEQ_ATOMIC_H

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#define sklseq_load(x) _InterlockedCompareExchange64((x), 0, 0)
#define sklseq_add(x) (_InterlockedExchangeAdd64((x), 1) + 1)
#define sklseq_exchange(x, old, new) (_InterlockedCompareExchange64((x), (new), (old)) == (old))
#define sklseq_pause() YieldProcessor()
#define sklseq_yield() ((void) SwitchToThread())
#else
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#define sklseq_yield() ((void) SwitchToThread())
#else
#include <sched.h>
#define sklseq_yield() ((void) sched_yield())
#endif
#define sklseq_load(x) __atomic_load_n((x), __ATOMIC_ACQUIRE)
#define sklseq_add(x) __atomic_add_fetch((x), 1, __ATOMIC_ACQ_REL)
static inline int sklseq_exchange(long long *x, long long old, long long new_value)
{
    return __atomic_compare_exchange_n(x, &old, new_value, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}
#if defined(__x86_64__) || defined(__i386__)
#define sklseq_pause() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define sklseq_pause() __asm__ volatile ("yield")
#else
#define sklseq_pause() ((void) 0)
#endif
#endif

/* Wait until the counter is at least `value`. A thread that waits for long lets others run, in case
 * there are fewer processors than threads. */
static inline void sklseq_wait(long long *x, long long value)
{
    int k = 0;
    while (sklseq_load(x) < value) {
        if (++k < 256)
            sklseq_pause();
        else
            sklseq_yield();
    }
}

#endif

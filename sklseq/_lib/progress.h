/* How far threads of one compiled loop are, which wait for one another without the interpreter.
 *
 * Who waits looks SKLSEQ_LOOKS times, some 50 microseconds, and from then on lets others run
 * between two looks: where threads share a processor, waiting must not take the time of those that
 * are waited for.
 */
#ifndef SKLSEQ_PROGRESS_H
#define SKLSEQ_PROGRESS_H

#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#define sklseq_load(p) _InterlockedExchangeAdd64(p, 0)
#define sklseq_publish(p, x) ((void) _InterlockedExchange64(p, x))
#else
#define sklseq_load(p) __atomic_load_n(p, __ATOMIC_ACQUIRE)
#define sklseq_publish(p, x) __atomic_store_n(p, x, __ATOMIC_RELEASE)
#endif

#if defined(__x86_64__) || defined(__i386__)
#define sklseq_pause() __builtin_ia32_pause()
#elif defined(_M_X64) || defined(_M_IX86)
#define sklseq_pause() _mm_pause()
#else
#define sklseq_pause() ((void) 0)
#endif

#if defined(_WIN32)
__declspec(dllimport) int __stdcall SwitchToThread(void);
#define sklseq_let_others_run() ((void) SwitchToThread())
#else
#include <sched.h>
#define sklseq_let_others_run() ((void) sched_yield())
#endif

enum { SKLSEQ_LOOKS = 1000 };

static inline void sklseq_look_again(long* looks) {
    if (++*looks < SKLSEQ_LOOKS)
        sklseq_pause();
    else
        sklseq_let_others_run();
}

/* Waits until *count is at least x. */
static inline void sklseq_await(long long* count, long long x) {
    long looks = 0;
    while (sklseq_load(count) < x)
        sklseq_look_again(&looks);
}

#endif

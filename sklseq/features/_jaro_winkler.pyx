"""Jaro-Winkler similarity of many spans with several entries of a word list each.

For strings a and b with m matching characters, of which 2 t are in a different order,

    jaro    = (m / |a| + m / |b| + (m - t) / m) / 3
    winkler = jaro + p / 10 · (1 - jaro) if jaro > 0.7, else jaro, for a common prefix of p ≤ 4
              characters

(Jaro 1989, pp. 414-416; Winkler 1990, pp. 355-357). Each character of b, from the first to the
last, matches the first equal character of a that is not matched yet and at most
max(|a|, |b|) / 2 - 1 away. Sets of positions of a are bit vectors, so that the search takes one
step for 64 positions.
"""

from libc.math cimport ceil
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset


cdef extern from *:
    """
    #if defined(_MSC_VER) && !defined(__clang__)
    #include <intrin.h>
    static __inline int sklseq_lowest_bit(unsigned long long x) {
        unsigned long k;
        _BitScanForward64(&k, x);
        return (int) k;
    }
    #else
    static inline int sklseq_lowest_bit(unsigned long long x) { return __builtin_ctzll(x); }
    #endif
    """
    int sklseq_lowest_bit(uint64_t x) noexcept nogil


cdef struct Span:
    const int32_t* a
    Py_ssize_t n                     # |a|
    uint64_t* positions              # of each character: n_words words
    Py_ssize_t n_words
    uint64_t* taken                  # (n_words,)        positions that match something
    int32_t* matched                 # characters of b that match, in order


cdef void add_positions(Span* span, bint add) noexcept nogil:
    # Sets the positions of each character, or clears them.
    cdef Py_ssize_t i
    cdef uint64_t* word
    for i in range(span.n):
        word = span.positions + span.a[i] * span.n_words + i // 64
        word[0] = word[0] | <uint64_t> 1 << (i % 64) if add else 0


cdef inline Py_ssize_t match(
    Span* span, int32_t character, Py_ssize_t low, Py_ssize_t high
) noexcept nogil:
    # The first position from low to high - 1 that has the character and is not taken; -1: none.
    cdef Py_ssize_t k, last = (high - 1) // 64
    cdef const uint64_t* word = span.positions + character * span.n_words
    cdef uint64_t free_ones
    for k in range(low // 64, last + 1):
        free_ones = word[k] & ~span.taken[k]
        if k == low // 64:
            free_ones &= ~<uint64_t> 0 << (low % 64)
        if k == last:
            free_ones &= ~<uint64_t> 0 >> (63 - (high - 1) % 64)
        if free_ones:
            return k * 64 + sklseq_lowest_bit(free_ones)
    return -1


cdef double jaro(Span* span, const int32_t* b, Py_ssize_t n, Py_ssize_t needed) noexcept nogil:
    # 0 if fewer than `needed` characters match, needed >= 1.
    cdef Py_ssize_t window = max(max(span.n, n) // 2 - 1, 0), i, j, k, m = 0, moved = 0
    cdef Py_ssize_t misses = n - needed
    cdef uint64_t left
    memset(span.taken, 0, ((span.n + 63) // 64) * sizeof(uint64_t))
    for j in range(n):
        i = -1
        if j < span.n + window:
            i = match(span, b[j], max(j - window, 0), min(j + window + 1, span.n))
        if i >= 0:
            span.taken[i // 64] |= <uint64_t> 1 << (i % 64)
            span.matched[m] = b[j]
            m += 1
        elif misses == 0:
            return 0
        else:
            misses -= 1
    j = 0
    for k in range((span.n + 63) // 64):
        left = span.taken[k]
        while left:
            moved += span.a[k * 64 + sklseq_lowest_bit(left)] != span.matched[j]
            left &= left - 1
            j += 1
    return (m / <double> span.n + m / <double> n + (m - moved // 2) / <double> m) / 3


cdef double winkler(Span* span, const int32_t* b, Py_ssize_t n, double lowest) noexcept nogil:
    # 0 if an upper bound is below `lowest`.
    cdef Py_ssize_t prefix = 0, needed
    cdef double similarity, least = lowest
    while prefix < min(4, span.n, n) and span.a[prefix] == b[prefix]:
        prefix += 1
    if lowest > 0.7:
        least = max(0.7, (lowest - 0.1 * prefix) / (1 - 0.1 * prefix))
    # jaro <= (m / |a| + m / |b| + 1) / 3
    needed = max(<Py_ssize_t> ceil((3 * least - 1) / (1.0 / span.n + 1.0 / n) - 1e-9), 1)
    if needed > min(span.n, n):
        return 0
    similarity = jaro(span, b, n, needed)
    if similarity > 0.7:
        similarity = min(similarity + prefix * 0.1 * (1 - similarity), 1.0)
    return similarity


def most_similar(
    const int32_t[::1] text,         # (n_characters,) numbers of characters; 0: of no entry
    const int64_t[::1] first,        # (n_tokens + 1,) span [t, u) is text[first[t]:first[u] - 1]
    const unsigned char[:, ::1] wanted,  # (n_tokens, longest) 1 for [t, t + 1 + k) in column k
    const int32_t[:, :, ::1] candidates,  # (n_tokens, longest, n_candidates) entries; -1: none
    const int32_t[::1] characters,   # of all entries, one after the other
    const int64_t[::1] ends,         # (n_entries + 1,) where they end, after a 0
    Py_ssize_t n_characters,         # size of the alphabet, 0 included
    double lowest,                   # smaller similarities are 0
    double[:, ::1] out,              # (n_tokens, longest) IN zeros, OUT where wanted
):
    """Write the largest Jaro-Winkler similarity of each span with its candidates; 0: none.

    Cost O(sum of lengths of candidates · (1 + |span| / 64)) for each span.
    """
    cdef Py_ssize_t t, k, c, last, most = 1, longest_entry = 1, longest = wanted.shape[1]
    cdef int32_t e
    cdef double best
    cdef Span span
    for t in range(wanted.shape[0]):
        k = min(longest, wanted.shape[0] - t)
        most = max(most, first[t + k] - first[t])
    for e in range(ends.shape[0] - 1):
        longest_entry = max(longest_entry, ends[e + 1] - ends[e])
    span.n_words = (most + 63) // 64
    most = (n_characters + 1) * span.n_words * sizeof(uint64_t)
    cdef uint64_t* words = <uint64_t*> malloc(most)
    span.matched = <int32_t*> malloc(longest_entry * sizeof(int32_t))
    if words == NULL or span.matched == NULL:
        free(words)
        free(span.matched)
        raise MemoryError()
    with nogil:
        memset(words, 0, most)
        span.taken, span.positions = words, words + span.n_words
        for t in range(wanted.shape[0]):
            last = longest
            while last and not wanted[t, last - 1]:
                last -= 1
            if last == 0 or first[t + last] == first[t]:
                continue
            span.a = &text[first[t]]
            span.n = first[t + last] - 1 - first[t]
            add_positions(&span, True)       # once for all spans from here
            for k in range(last):
                span.n = first[t + 1 + k] - 1 - first[t]
                if span.n <= 0 or not wanted[t, k]:
                    continue
                best = 0
                for c in range(candidates.shape[2]):
                    e = candidates[t, k, c]
                    if e >= 0:
                        best = max(best, winkler(
                            &span, &characters[ends[e]], ends[e + 1] - ends[e], max(best, lowest)
                        ))
                out[t, k] = best if best >= lowest else 0
            span.n = first[t + last] - 1 - first[t]
            add_positions(&span, False)
    free(words)
    free(span.matched)

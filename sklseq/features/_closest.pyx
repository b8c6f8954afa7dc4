"""Closest entries of a word list to all spans of tokens, by TF-IDF cosine."""

from libc.math cimport sqrt
from libc.stdint cimport int32_t, int64_t

import numpy as np


cdef inline Py_ssize_t weakest_of(
    const double[::1] top_score, const int32_t[::1] top, Py_ssize_t n_top
) noexcept nogil:
    # Among equal scores, the last entry is the weakest.
    cdef Py_ssize_t k, weakest = 0
    for k in range(1, n_top):
        if top_score[k] < top_score[weakest] or (
            top_score[k] == top_score[weakest] and top[k] > top[weakest]
        ):
            weakest = k
    return weakest


def closest_entries(
    const int32_t[::1] codes,  # (n_tokens,) distinct token of each
    const int64_t[::1] offsets,  # (n_sequences + 1,)
    const int64_t[::1] term_ends,  # (n_distinct + 1,) terms of each distinct token
    const int32_t[::1] terms,
    const double[::1] term_weights,  # tf · idf
    const int64_t[::1] posting_ends,  # (n_terms + 1,) entries that hold each term
    const int32_t[::1] entries,
    const double[::1] entry_weights,  # of rows of norm 1
    Py_ssize_t n_entries,
    double[:, ::1] cosine,  # (n_tokens, longest) of the best entry   OUT
    int32_t[:, :, ::1] best,  # (n_tokens, longest, n_best or 0) entries, -1: none   OUT
):
    """cosine(span, e) = Σ_c span_c · e_c / |span|, where span = Σ vectors of its tokens.

    From the span [t, u) to [t, u + 1) only the scores of entries that share a term with the token
    u change, and they increase: the best entries are the previous best or among these. Exact; cost
    O(longest × postings of the tokens).
    """
    cdef Py_ssize_t s, t, u, k, p, e, n_touched, n_top, weakest, column
    cdef Py_ssize_t n_kept = best.shape[2], n_best = max(best.shape[2], 1)
    cdef Py_ssize_t longest = cosine.shape[1]
    cdef double[::1] score = np.zeros(n_entries), top_score = np.empty(n_best)
    cdef double[::1] span = np.zeros(posting_ends.shape[0] - 1)
    cdef int32_t[::1] touched = np.empty(n_entries, np.int32), top = np.empty(n_best, np.int32)
    cdef double weight, norm, highest, now
    cdef int32_t code
    with nogil:
        for s in range(offsets.shape[0] - 1):
            for t in range(offsets[s], offsets[s + 1]):
                n_touched, n_top, weakest, norm, highest = 0, 0, 0, 0.0, 0.0
                for u in range(t, min(t + longest, offsets[s + 1])):
                    code = codes[u]
                    for k in range(term_ends[code], term_ends[code + 1]):
                        column, weight = terms[k], term_weights[k]
                        norm += weight * (weight + 2 * span[column])
                        span[column] += weight
                        for p in range(posting_ends[column], posting_ends[column + 1]):
                            e = entries[p]
                            if score[e] == 0:
                                touched[n_touched] = <int32_t>e
                                n_touched += 1
                            now = score[e] + weight * entry_weights[p]
                            score[e] = now
                            if now > highest:
                                highest = now
                            if n_kept == 0:
                                continue
                            if n_top == n_best and (now < top_score[weakest] or (
                                now == top_score[weakest] and e > top[weakest]
                            )):
                                continue
                            place(top_score, top, e, now, &n_top, &weakest)
                    cosine[t, u - t] = highest / sqrt(norm) if highest > 0 else 0.0
                    for k in range(n_kept):
                        best[t, u - t, k] = top[k] if k < n_top else -1
                for u in range(t, min(t + longest, offsets[s + 1])):
                    code = codes[u]
                    for k in range(term_ends[code], term_ends[code + 1]):
                        span[terms[k]] = 0
                for k in range(n_touched):
                    score[touched[k]] = 0


cdef inline void place(
    double[::1] top_score, int32_t[::1] top, Py_ssize_t e, double now,
    Py_ssize_t* n_top, Py_ssize_t* weakest,
) noexcept nogil:
    """Update the best entries with e, whose score increased to `now`."""
    cdef Py_ssize_t k
    for k in range(n_top[0]):
        if top[k] == e:
            break
    else:
        if n_top[0] < top.shape[0]:
            k = n_top[0]
            n_top[0] += 1
        else:
            k = weakest[0]
    top[k], top_score[k] = <int32_t>e, now
    weakest[0] = weakest_of(top_score, top, n_top[0])

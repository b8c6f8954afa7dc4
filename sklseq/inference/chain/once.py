"""Best label paths in which spans of some types occur at most once."""

import numpy as np
from numpy.typing import NDArray

from sklseq._lib.checks import counted
from sklseq._lib.cpu import load_kernel
from sklseq._lib.ragged import offsets_of
from sklseq.data.span_rules import SpanRules, find_by_rules
from sklseq.inference.chain.linear_chain import PlainScores

_once = load_kernel("sklseq.inference.kernels._once")

# Limit of the number of pointers for one sequence: 256 MB.
MOST_POINTERS = 1 << 26


class NoValidAnswerError(ValueError):
    """A sequence has no valid labeling or segmentation, or the search for it failed."""


def best_paths_once(
    best: NDArray, scores: PlainScores, rules: SpanRules, once: NDArray[np.bool_],
    otherwise_best: bool = False,
) -> NDArray:  # fmt: skip
    r"""The best label path of each sequence among those with at most one span of some types.

    ``best`` are the best paths without the rule, ``rules`` those of conlleval or of runs, by which
    each row inside is in a span, and ``once`` a mask of the types that may occur at most once. A
    sequence without such a path, or whose search needs too much memory, raises a
    NoValidAnswerError, or keeps its best path if ``otherwise_best``.

    Let R be the types that the best path without the rule repeats. The search finds the best path
    that repeats no type of R, adds the types that this path repeats to R, and is run again until
    the path repeats none. Each search relaxes the rule, so a path that obeys all of it is the best
    of those that do.

    A search extends Viterbi's states by the set m of those types in R that have begun:

        δ_t(m, j) = ψ_t(j) + max_i δ_{t-1}(m \ r, i) + ψ(i, j)   where a span of type r begins,
        δ_t(m, j) = ψ_t(j) + max_i δ_{t-1}(m, i) + ψ(i, j)       elsewhere.

    Cost O(2^|R| · n_labels²) for each row of a sequence with R not empty.
    """
    offsets = scores.offsets
    codes, more = best.copy(), _repeated(best, offsets, rules) & once
    asked = np.tile(once, (len(more), 1))
    sequences, repeated = np.flatnonzero(more.any(axis=1)), more
    if len(sequences):
        begins, type_of = rules.begins[:-1, :-1].astype(np.uint8), rules.type_of[:-1]
    while len(sequences):
        paths = []
        # Numbers of the repeated types of each sequence: 0, 1, ...; -1 for the others.
        bits = np.where(repeated, repeated.cumsum(axis=1) - 1, -1)[sequences]
        bits = np.append(bits, np.full((len(bits), 1), -1), axis=1)[:, type_of]
        bits = np.ascontiguousarray(bits, dtype=np.int32)
        for s, bit in zip(sequences.tolist(), bits):
            rows = slice(offsets[s], offsets[s + 1])
            try:
                paths.append(_path(scores[s], begins, bit, s))
            except NoValidAnswerError:
                if not otherwise_best:
                    raise
                paths.append(best[rows])
                asked[s] = False
            codes[rows] = paths[-1]
        lengths = list(map(len, paths))
        more = _repeated(np.concatenate(paths), offsets_of(lengths), rules) & asked[sequences]
        repeated[sequences] |= more
        sequences = sequences[more.any(axis=1)]
    return codes


def _repeated(codes: NDArray, offsets: NDArray, rules: SpanRules) -> NDArray[np.bool_]:
    """Whether spans of each type occur more than once in each sequence."""
    start, _, type_ = find_by_rules(codes, offsets, rules)
    of = np.searchsorted(offsets, start, side="right") - 1
    shape = len(offsets) - 1, len(rules.types)
    counts = np.bincount(of * shape[1] + type_, minlength=shape[0] * shape[1])
    return counts.reshape(shape) > 1


def _path(scores: tuple, begins: NDArray, bit: NDArray, s: int) -> NDArray:
    psi, score, entries = scores
    n_types = int(bit.max()) + 1
    (T, L), n_sets = psi.shape, 1 << n_types
    if T * L * n_sets > MOST_POINTERS:
        raise NoValidAnswerError(
            f"The best label paths of sequence {s}, of {counted(T, 'row')}, repeat "
            f"{counted(n_types, 'label')}, too many for a search; name fewer labels in valid, "
            "or use handle_invalid='best'."
        )
    delta, pointers = np.empty((2, n_sets, L)), np.empty((T, n_sets, L), dtype=np.int32)
    labels = np.empty(T, dtype=np.int32)
    best = _once.best_sequence_once(psi, score, begins, bit, delta, pointers, labels, entries)
    if best == -np.inf:
        raise NoValidAnswerError(
            f"Sequence {s} has no allowed label path in which these labels occur at most once; "
            "allow more transitions, name fewer labels in valid, or use handle_invalid='best'."
        )
    return labels

"""Inference over segmentations: cost a token, against spans, length and the linear chain.

    python benchmarks/bench_segments.py            # all tables, some minutes
    python benchmarks/bench_segments.py --quick    # small

Random potentials, 9 labels, one thread. Figures are medians of runs that alternate with those they
are compared with.
"""

from __future__ import annotations

import argparse

import numpy as np
from _common import by_turns, header, row

from sklseq.inference.chain.linear_chain import Transitions, Workspace, best_paths, row_blocks
from sklseq.inference.segment.segmentations import (
    SegmentPlan,
    SegmentSpans,
    SegmentTransitions,
    SegmentWorkspace,
    best_segments,
)

N_LABELS = 9
KINDS = {
    "inside": [3],
    "start, inside": [1, 3],
    "start, inside, end": [1, 3, 2],
    "all four": [0, 1, 2, 3],
}


def token_spans(lengths, kinds, longest: int = 1, extra=()) -> SegmentSpans:
    """Potentials of each kind at every step, exact ones of 2 to ``longest``, and ``extra``."""
    lengths = np.asarray(lengths)
    of = np.repeat(np.arange(len(lengths)), lengths)
    step = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    parts = [(of, np.full(len(of), kind), step, step + 1) for kind in kinds]
    for d in range(2, longest + 1):
        fits = step + d <= lengths[of]
        parts.append((of[fits], np.zeros(fits.sum(), int), step[fits], step[fits] + d))
    parts += [tuple(np.array([x]) for x in one) for one in extra]
    sequence, kind, start, stop = (np.concatenate(c) for c in zip(*parts))
    order = np.argsort(sequence, kind="stable")
    offsets = np.concatenate([[0], np.cumsum(np.bincount(sequence, minlength=len(lengths)))])
    return SegmentSpans(lengths, offsets, kind[order], start[order], stop[order])


class Segments:
    """log Z and all marginals, or the best segmentation, of one set of potentials."""

    def __init__(self, spans: SegmentSpans, rng, max_length=None):
        self.plan = SegmentPlan(spans, N_LABELS, max_length)
        self.psi = self.plan.cell_scores(rng.normal(size=(len(spans.kind), N_LABELS)))
        zeros = np.zeros(N_LABELS)
        self.chain = SegmentTransitions(rng.normal(size=(N_LABELS, N_LABELS)), zeros, zeros)
        self.blocks = self.plan.blocks()
        self.work = SegmentWorkspace(self.plan, self.blocks)
        self.log_z, self.weights = np.zeros(len(spans.lengths)), np.ones(len(spans.lengths))

    def sums(self) -> None:
        cells = self.plan.cells
        for a, b in self.blocks:
            psi = self.psi[cells[a] : cells[b]]
            self.work.forward_backward(psi, a, b, self.chain, self.weights[a:b], self.log_z[a:b])

    def best(self) -> None:
        best_segments(self.plan, self.psi, self.chain)


class Chain:
    """The same of a linear chain."""

    def __init__(self, lengths, rng):
        self.offsets = np.concatenate([[0], np.cumsum(lengths)])
        transition = rng.normal(size=(N_LABELS, N_LABELS))
        self.chain = Transitions(transition).exponentiate()
        self.psi = self.chain.pad_rows(rng.normal(size=(self.offsets[-1], N_LABELS)))
        self.blocks = row_blocks(self.offsets)
        largest = max(self.offsets[b] - self.offsets[a] for a, b in self.blocks)
        self.work = Workspace(int(largest), self.chain.width, self.chain.dtype)
        self.log_z, self.weights = np.zeros(len(lengths)), np.ones(len(lengths))

    def sums(self) -> None:
        for a, b in self.blocks:
            first, last = self.offsets[a], self.offsets[b]
            self.work.forward_backward(
                self.psi[first:last].copy(),
                self.offsets[a : b + 1] - first,
                self.weights[a:b],
                self.chain,
                self.log_z[a:b],
            )

    def best(self) -> None:
        best_paths(self.psi.copy(), self.offsets, self.chain)


def throughput(n_sequences: int, rng, repeat: int) -> None:
    """Tokens a second against kinds and spans, beside a linear chain of as many labels."""
    lengths = np.full(n_sequences, 25)
    n, chain = lengths.sum(), Chain(lengths, rng)
    print(f"{n:,} tokens in sequences of 25, {N_LABELS} labels, one thread\n")
    header("potentials", "H / token", "V / token", "ns / token", "M tokens/s", "x chain",
           "Viterbi ns", "x chain")  # fmt: skip
    cases = [(name, kinds, 1) for name, kinds in KINDS.items()]
    cases += [(f"start, inside, end, exact to {k}", [1, 3, 2], k) for k in (2, 6, 20)]
    for name, kinds, longest in cases:
        spans = token_spans(lengths, kinds, longest)
        one = Segments(spans, rng)
        works = one.sums, chain.sums, one.best, chain.best
        seconds, of_chain, best, of_path = np.median(by_turns(works, repeat), axis=0)
        row(
            name, f"{len(spans.kind) / n:.1f}", f"{one.plan.n_states / n:.2f}",
            f"{1e9 * seconds / n:.0f}", f"{n / seconds / 1e6:.2f}", f"{seconds / of_chain:.2f}",
            f"{1e9 * best / n:.0f}", f"{best / of_path:.2f}",
        )  # fmt: skip


def linearity(sizes, rng, repeat: int) -> None:
    """Seconds against the length of one sequence, with and without a span of a tenth of it."""
    print("\nOne sequence; start, inside, end and exact spans to 4; then one potential of n / 10\n")
    header("n", "us / token", "with a segment of n / 10", "its probability")
    for n in sizes:
        plain = Segments(token_spans([n], [1, 3, 2], 4), rng)
        span = (0, 0, n // 2, n // 2 + n // 10)
        long = Segments(token_spans([n], [1, 3, 2], 4, extra=[span]), rng)
        cell = np.flatnonzero((long.plan.stop - long.plan.start) == n // 10)[0]
        # Label 1, the whole potential, and no start within: so that the long segment is probable.
        inside = (long.plan.start >= span[2]) & (long.plan.stop <= span[3])
        long.psi[inside & (long.plan.kind == 3), 1] += 8
        long.psi[inside & (long.plan.kind == 1) & (long.plan.start > span[2])] -= 20
        long.psi[cell, 1] += 20
        a, b = np.median(by_turns([plain.sums, long.sums], repeat), axis=0)
        probability = f"{long.work.F[cell, 1]:.4f}"
        row(f"{n:,}", f"{1e6 * a / n:.3f}", f"{1e6 * b / n:.3f}", probability)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    rng = np.random.default_rng(0)
    throughput(40 if quick else 2000, rng, 3 if quick else 9)
    linearity((100, 1000) if quick else (1000, 10_000, 100_000), rng, 1 if quick else 5)


if __name__ == "__main__":
    main()

"""Exact probabilities of spans under a linear chain: sums over all paths that contain them."""

import numpy as np
from numpy.typing import NDArray

from sklseq._lib.cpu import load_kernel
from sklseq.data.span_rules import SpanRules
from sklseq.inference.chain.linear_chain import (
    Transitions,
    Workspace,
    check_chain,
    check_paths,
    row_blocks,
)
from sklseq.inference.chain.row_transitions import RowTransitions, row_scores
from sklseq.inference.chain.sparse_transitions import positive_factors

_span_sums = load_kernel("sklseq.inference.kernels._span_sums")


def span_probabilities(potentials: tuple, spans: tuple, rules: SpanRules) -> NDArray[np.float64]:
    """Exact probability of each of some spans: that a label path contains it.

    ``spans``: arrays (start, stop, type) with rows counted over all sequences; they may overlap.
    Given the rows up to t and the label of row t, the label before it has the probability

        q_t(i | j) = α_{t-1}(i) exp(ψ(i, j) + ψ_t(j)) / α_t(j).

    Let r_t(j) be the probability, given y_t = j, that a span of type x begins at row a and goes on
    to row t. With b the row after the span,

        r_a(j) = [x(j)] Σ_i q_a(i | j) [begins(i, j)],
        r_t(j) = Σ_i q_t(i | j) [goes on(i, j)] r_{t-1}(i),
        p = Σ_k μ_b(k) Σ_j q_b(j | k) [ended(j, k)] r_{b-1}(j),

    where the rules define [begins] and [ended] also at the ends of the sequence. Under IOB1, a row
    can both continue a span and begin one: it begins one if the row before, B, did not.

    Cost O(n_rows · n_labels²) for α and μ, less if most pairs of labels score 0 or -inf, and
    O(n_labels · m + m² · length) for a span whose type has m labels. Recursions are scaled, or
    computed in the log domain, as in :func:`forward_backward`.
    """
    emission, transition, first, last, offsets = potentials
    emission = np.asarray(emission, dtype=np.float64)
    emission, chain, offsets = check_chain(emission, transition, offsets, first, last)
    start, stop, type_ = spans
    if rules.step < 0:
        emission, chain, offsets = _reversed(emission, chain, offsets)
        start, stop = len(emission) - stop, len(emission) - start
    chain.find_pairs(len(emission))
    chain.exponentiate(-np.inf if chain.rows is None else chain.rows.score.max(initial=-np.inf))
    blocks = row_blocks(offsets)
    largest = max((offsets[b] - offsets[a] for a, b in blocks), default=0)
    sums = _SpanSums(int(largest), chain, rules)
    order = np.argsort(start, kind="stable")
    spans = np.column_stack([start, stop, type_])[order].astype(np.int64)
    cuts = np.searchsorted(spans[:, 0], offsets)
    proba, log_z = np.empty(len(order)), np.zeros(len(offsets) - 1)
    for a, b in blocks:
        at, local = slice(offsets[a], offsets[b]), offsets[a : b + 1] - offsets[a]
        rows = None if chain.rows is None else chain.rows.part(at.start, at.stop)
        mine = slice(cuts[a], cuts[b])
        asked = spans[mine] - [at.start, at.start, 0]
        proba[order[mine]] = sums.of(emission[at], local, rows, asked, log_z[a:b])
    check_paths(log_z)
    return np.minimum(proba, 1)


def _reversed(emission: NDArray, chain: Transitions, offsets: NDArray) -> tuple:
    # The chain with its rows in reverse order.
    L = chain.n_labels
    back = Transitions(chain.score[:L, :L].T, chain.end[:L], chain.start[:L])
    if chain.rows is not None:
        back.rows = chain.rows.reversed()
    return emission[::-1], back, len(emission) - offsets[::-1]


class _SpanSums(Workspace):
    """Workspace that computes the probabilities of spans for one block of sequences at a time."""

    def __init__(self, n_rows: int, chain: Transitions, rules: SpanRules):
        super().__init__(n_rows, chain.width, chain.dtype, chain.pairs)
        self.chain = chain
        self.E = chain.E if chain.pairs is None else positive_factors(chain.score - chain.top)
        tables = np.stack([rules.begins, rules.goes_on, rules.ended]).astype(np.uint8)
        labels = np.argsort(rules.type_of[:-1], kind="stable").astype(np.int32)
        bounds = np.searchsorted(rules.type_of[labels], np.arange(len(rules.types) + 1))
        self.rules = tables, labels, bounds.astype(np.int64)
        self.logs: list[tuple[slice, NDArray]] = []  # sequences in the log domain

    def keep_logs(self, rows: slice, log_alpha: NDArray) -> None:
        self.logs.append((rows, log_alpha))

    def of(
        self, emission: NDArray, offsets: NDArray, rows: RowTransitions | None, spans: NDArray,
        log_z: NDArray,
    ) -> NDArray:  # fmt: skip
        """Probabilities of the spans of a block; log Z of its sequences goes into ``log_z``."""
        n, chain, self.logs = len(emission), self.chain, []
        marginals = chain.pad_rows(emission)
        self.forward_backward(marginals, offsets, None, chain, log_z, rows)
        before, given, first = self.alpha[:n], self.e[:n], np.zeros(n + 1, dtype=np.uint8)
        for at, _ in self.logs:  # undefined values, which may overflow
            given[at] = 0
        given[marginals == 0] = 0
        np.divide(given, marginals, out=given, where=marginals > 0)
        first[offsets] = 1
        factors = self.factors[: 0 if rows is None else len(rows.score)]
        entries = None if rows is None else rows.for_kernels(factors, chain.width)
        arrays, proba = (before, given, marginals), np.empty(len(spans))
        _span_sums.span_sums(*arrays, self.E, entries, first, spans, *self.rules, False, proba)
        for at, log_alpha in self.logs:
            psi = chain.pad_rows(emission[at])
            some = np.isin(spans[:, 0], np.arange(at.start, at.stop))
            chain.fold_boundaries(psi, np.array([0, len(psi)]))
            proba[some] = self._in_logs(
                psi, log_alpha, marginals[at],
                row_scores(rows, at.start, at.stop, chain.width),
                spans[some] - [at.start, at.start, 0],
            )  # fmt: skip
        return proba

    def _in_logs(
        self, psi: NDArray, log_alpha: NDArray, marginals: NDArray, entries: tuple | None,
        spans: NDArray,
    ) -> NDArray:  # fmt: skip
        # Probabilities of spans of one sequence. psi: padded, including start and end scores.
        before, first = np.full_like(psi, -np.inf), np.zeros(len(psi) + 1, dtype=np.uint8)
        given, proba = before.copy(), np.empty(len(spans))
        L = self.chain.n_labels
        before[:, :L], first[[0, -1]] = log_alpha, 1
        np.subtract(psi, before, out=given, where=before > -np.inf)
        arrays, score = (before, given, marginals), self.chain.score
        _span_sums.span_sums(*arrays, score, entries, first, spans, *self.rules, True, proba)
        return proba

"""Probabilities of spans of a linear chain, by sums over all paths that have them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sklseq.data.span_rules import SpanRules
from sklseq.inference.chain.linear_chain import (
    _chain,
    check_chain,
    forward_backward,
    plain_scores,
)
from sklseq.inference.chain.row_transitions import RowTransitions, row_scores

__all__ = ["span_probabilities"]

# Most numbers in an array of pairs of labels, for several spans at a time.
MOST_PAIRS = 1 << 20


def span_probabilities(potentials: tuple, spans: tuple, rules: SpanRules) -> NDArray[np.float64]:
    """Probability that a label path has each of some spans, exactly.

    Parameters
    ----------
    potentials : tuple (emission, transition, start, end, offsets)
        Of the linear chain.
    spans : tuple of ndarray (start, stop, type), each of shape (n_spans,)
        Rows counted over all sequences; types by number. They may overlap.
    rules : SpanRules
        How label paths are read.

    Returns
    -------
    ndarray of shape (n_spans,)

    Notes
    -----
    Given the rows up to t and the label of row t, the label before it has the probability

        q_t(i | j) = α_{t-1}(i) exp(ψ(i, j) + ψ_t(j)) / α_t(j).

    Let r_t(j) be the probability, given y_t = j, that a span of type x begins at row a and goes on
    to row t. With b the row after the span,

        r_a(j) = [x(j)] Σ_i q_a(i | j) [begins(i, j)],
        r_t(j) = Σ_i q_t(i | j) [goes on(i, j)] r_{t-1}(i),
        p = Σ_k μ_b(k) Σ_j q_b(j | k) [ended(j, k)] r_{b-1}(j),

    where labels outside of the sequence have the values that the rules give them. Under IOB1, a
    row can go on with a span and begin one: it begins one if the row before, B, did not.

    Cost O(n_rows · n_labels²) for α and μ, and O(n_labels · m + m² · length) a span, m being the
    number of labels of its type.
    """
    emission, transition, first, last, offsets = potentials
    marginals = forward_backward(emission, transition, offsets, start=first, end=last).marginals
    _, chain, offsets = check_chain(emission, transition, offsets, first, last)
    psi, score = plain_scores(emission, chain, offsets)
    transitions = chain.rows or RowTransitions(score, np.zeros(len(psi) + 1), [], [], np.zeros(0))
    n, (start, stop, type_) = len(psi), spans
    if rules.step < 0:  # the same chain, from the last row to the first
        psi, marginals, transitions = psi[::-1].copy(), marginals[::-1], transitions.reversed()
        offsets, start, stop = n - offsets[::-1], n - stop, n - start
    log_alpha, score = np.zeros_like(psi), np.ascontiguousarray(transitions.shared)
    for s in np.unique(np.searchsorted(offsets, start, side="right") - 1):
        rows = slice(offsets[s], offsets[s + 1])
        entries = row_scores(transitions, rows.start, rows.stop, len(score))
        _chain.log_forward_sequence(psi[rows], score, log_alpha[rows], entries)
    first_rows = np.zeros(n + 1, dtype=bool)
    first_rows[offsets] = True
    sums = _SpanSums(psi, transitions, log_alpha, marginals, first_rows, rules)
    proba, size = np.zeros(len(start)), max(1, MOST_PAIRS // max(1, score.size))
    order = np.argsort(start - stop, kind="stable")  # spans of one length are worked on together
    for k in range(0, len(order), size):
        some = order[k : k + size]
        proba[some] = sums.of(start[some], stop[some], type_[some])
    return np.minimum(proba, 1)


class _SpanSums:
    """The recursion of :func:`span_probabilities`, for several spans at a time."""

    def __init__(
        self, psi, transitions: RowTransitions, log_alpha, marginals, first_rows, rules: SpanRules
    ):
        self.psi, self.transitions, self.log_alpha = psi, transitions, log_alpha
        self.marginals, self.first_rows, self.rules = marginals, first_rows, rules
        type_of = rules.type_of[:-1]
        m = np.bincount(type_of[type_of >= 0], minlength=1).max()
        self.labels = np.full((len(rules.types) + 1, m), -1)  # of each type; of none, the last
        for type_ in range(len(rules.types)):
            of_type = np.flatnonzero(type_of == type_)
            self.labels[type_, : len(of_type)] = of_type
        self.every = np.arange(psi.shape[1])[None]

    def before(self, t: NDArray, i: NDArray, j: NDArray) -> NDArray:
        """q_t(i | j) of rows t, shape (n, n_i, n_j)."""
        rows, t, i, j = t, t[:, None, None], i[:, :, None], j[:, None, :]
        if len(self.transitions.i) == 0:
            score = self.transitions.shared[i, j]
        else:
            score = self.transitions.take(rows)[np.arange(len(t))[:, None, None], i, j]
        reached = self.log_alpha[t, j]
        possible = reached > -np.inf
        away = np.where(possible, self.psi[t, j], -np.inf) - np.where(possible, reached, 0)
        return np.exp(self.log_alpha[t - 1, i] + score + away)

    def of(self, start: NDArray, stop: NDArray, type_: NDArray) -> NDArray:
        labels, goes_on = self.labels[type_], self.rules.goes_on
        inside, labels = labels >= 0, np.maximum(labels, 0)
        r = self._begin(start, labels) * inside
        for k in range(1, int((stop - start).max(initial=1))):
            longer = np.flatnonzero(start + k < stop)
            x = labels[longer]
            q = self.before(start[longer] + k, x, x) * goes_on[x[:, :, None], x[:, None, :]]
            r[longer] = np.einsum("nij,ni->nj", q, r[longer]) * inside[longer]
        return self._end(stop, labels, r)

    def _begin(self, start: NDArray, labels: NDArray) -> NDArray:
        rules = self.rules
        r = rules.begins[-1][labels].astype(float)
        later = np.flatnonzero(~self.first_rows[start])
        t, i, j = start[later], self.every[0][:, None], labels[later][:, None, :]
        q = self.before(t, self.every, labels[later]) * rules.begins[i, j]
        if (rules.begins & rules.goes_on).any():
            q *= np.where(rules.goes_on[i, j], self._not_begun(t - 1)[:, :, None], 1)
        r[later] = q.sum(axis=1)
        return r

    def _not_begun(self, t: NDArray) -> NDArray:
        # Probability, given each label of row t, that it begins no span; nothing goes on to those
        # labels from which the next row can both go on and begin.
        begins = self.rules.begins
        idle = np.repeat(~begins[-1:, :-1], len(t), axis=0).astype(float)
        inner = np.flatnonzero(~self.first_rows[t])
        q = self.before(t[inner], self.every, self.every)
        idle[inner] = (q * ~begins[:-1, :-1]).sum(axis=1)
        return idle

    def _end(self, stop: NDArray, labels: NDArray, r: NDArray) -> NDArray:
        ended = self.rules.ended  # no row both ends a span and goes on with it
        proba = self.marginals[stop[:, None] - 1, labels] * r * ended[labels, -1]
        proba = proba.sum(axis=1, dtype=float)
        inner = np.flatnonzero(~self.first_rows[stop])
        t, j = stop[inner], labels[inner]
        q = self.before(t, j, self.every) * ended[j, :-1]
        proba[inner] = np.einsum("njk,nj,nk->n", q, r[inner], self.marginals[t])
        return proba

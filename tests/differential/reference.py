"""Textbook recursions in logarithms and np.longdouble: no scaling, no lists, no blocks.

They are compared with enumeration in ``test_differential.py``. One sequence at a time.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from tests.reference import OnlineReference, log_sum
from tests.segment_reference import is_active

__all__ = ["EPS", "Chain", "Online", "Segmentation"]

REAL = np.longdouble
EPS = float(np.finfo(REAL).eps)


def _vector(scores, n: int) -> np.ndarray:
    return np.zeros(n, REAL) if scores is None else np.asarray(scores, REAL)


class Chain:
    """All that can be asked of one linear chain.

    Parameters
    ----------
    emission : array-like of shape (T, L)
    transition : array-like of shape (L, L)
    start, end : array-like of shape (L,) or None
    """

    def __init__(self, emission, transition, start=None, end=None):
        self.psi, self.transition = np.array(emission, REAL), np.asarray(transition, REAL)
        self.T, self.L = self.psi.shape
        if self.T:
            self.psi[0] += _vector(start, self.L)
            self.psi[-1] += _vector(end, self.L)

    # ------------------------------------------------------------------ sums over paths

    @cached_property
    def log_alpha(self) -> np.ndarray:
        """log Σ exp(score of y_0 … y_t) over all that end in j, shape (T, L)."""
        log_alpha = self.psi.copy()
        for t in range(1, self.T):
            log_alpha[t] += log_sum(log_alpha[t - 1][:, None] + self.transition, axis=0)
        return log_alpha

    @cached_property
    def log_beta(self) -> np.ndarray:
        """The same of y_{t+1} … y_{T-1}, over all that follow j."""
        log_beta = np.zeros_like(self.psi)
        for t in range(self.T - 1, 0, -1):
            log_beta[t - 1] = log_sum(self.transition + self.psi[t] + log_beta[t], axis=1)
        return log_beta

    @cached_property
    def log_z(self):
        return log_sum(self.log_alpha[-1]) if self.T else REAL(0)

    @cached_property
    def marginals(self) -> np.ndarray:
        """p(y_t = j)."""
        return np.exp(self.log_alpha + self.log_beta - self.log_z)

    @cached_property
    def pairs(self) -> np.ndarray:
        """p(y_{t-1} = i, y_t = j), shape (T - 1, L, L)."""
        before, after = self.log_alpha[:-1, :, None], (self.psi + self.log_beta)[1:, None, :]
        return np.exp(before + self.transition + after - self.log_z)

    @cached_property
    def entropy(self):
        """H(y_0) + Σ_t H(y_t | y_{t-1})."""
        if self.T == 0:
            return REAL(0)
        first = (self.psi + self.log_beta)[0] - self.log_z
        after = self.transition + (self.psi + self.log_beta)[1:, None, :]
        with np.errstate(invalid="ignore"):
            conditional = after - self.log_beta[:-1, :, None]  # log p(y_t = j | y_{t-1} = i)
        return -_weigh(self.marginals[0], first) - _weigh(self.pairs, conditional)

    def moments(self, row: np.ndarray, pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Mean and covariance of Σ_t row[t, y_t] + Σ_t pair[y_{t-1}, y_t].

        E[F | y_t = j] and Cov[F | y_t = j], F of the rows up to t, from those of t - 1: the mean of
        conditional covariances and the covariance of conditional means, in which nothing cancels,
        since features are measured from their overall mean.
        """
        M = row.shape[-1]
        if self.T == 0:
            return np.zeros(M, REAL), np.zeros((M, M), REAL)
        means = np.einsum("tj,tjm->tm", self.marginals, row.astype(REAL))
        pair_means = np.einsum("tij,ijm->tm", self.pairs, pair.astype(REAL))
        first = row[0] - means[0]
        around = np.zeros((self.L, M, M), REAL)
        for t in range(1, self.T):
            step = self.log_alpha[t - 1][:, None] + self.transition
            with np.errstate(invalid="ignore"):
                before = np.exp(step - log_sum(step, axis=0))  # p(y_{t-1} = i | y_t = j, ≤ t)
            before[np.isnan(before)] = 0
            moved = first[:, None] + (row[t] - means[t] + pair - pair_means[t - 1])
            first = np.einsum("ij,ijm->jm", before, moved)
            apart = moved - first
            around = np.einsum("ij,imn->jmn", before, around)
            around += np.einsum("ij,ijm,ijn->jmn", before, apart, apart)
        covariance = np.einsum("j,jmn->mn", self.marginals[-1], around)
        covariance += np.einsum("j,jm,jn->mn", self.marginals[-1], first, first)
        return means.sum(axis=0) + pair_means.sum(axis=0), covariance

    # ------------------------------------------------------------------ paths

    def score(self, labels):
        """s(y)."""
        labels = np.asarray(labels, dtype=int)
        moves = self.transition[labels[:-1], labels[1:]]
        return self.psi[np.arange(self.T), labels].sum() + moves.sum()

    @cached_property
    def best(self) -> np.ndarray:
        """Viterbi; ties to the lowest label, from the last row backwards."""
        delta, labels = self.psi.copy(), np.zeros(self.T, dtype=int)
        for t in range(1, self.T):
            delta[t] += (delta[t - 1][:, None] + self.transition).max(axis=0)
        for t in range(self.T - 1, -1, -1):
            onward = 0 if t == self.T - 1 else self.transition[:, labels[t + 1]]
            labels[t] = (delta[t] + onward).argmax()
        return labels

    def best_scores(self, n: int) -> np.ndarray:
        """Scores of the n best paths, highest first; fewer where fewer are allowed."""
        if self.T == 0:
            return np.zeros(1, REAL)
        top = self.psi[0][:, None]  # of each label the best prefixes that end in it
        for t in range(1, self.T):
            onward = top[:, None, :] + self.transition[:, :, None]
            top = _highest(onward.swapaxes(0, 1).reshape(self.L, -1), n) + self.psi[t][:, None]
        top = np.sort(_highest(top.ravel(), n))[::-1]
        return top[top > -np.inf]


def _highest(scores: np.ndarray, n: int) -> np.ndarray:
    # The n highest along the last axis, in any order.
    return scores if scores.shape[-1] <= n else np.partition(scores, -n, axis=-1)[..., -n:]


def _weigh(p: np.ndarray, values: np.ndarray):
    # Σ p · values, 0 where p is 0.
    return (p * np.where(p > 0, values, 0)).sum()


# ---------------------------------------------------------------------- online


class Online(OnlineReference):
    """Online decoding by definition (``OnlineReference``), in np.longdouble."""

    def __init__(self, transition, start=None, end=None, **rule):
        L = len(transition)
        super().__init__(transition, _vector(start, L), _vector(end, L), **rule)
        self.transition, self.ending = np.asarray(transition, REAL), False

    def _beam(self, ended=False):
        self.psi = [np.asarray(row, REAL) for row in self.psi]
        with np.errstate(all="ignore"):
            delta, paths, p, belief = super()._beam(ended)
        if not (self.ending or (delta > -np.inf).any()):
            raise ValueError("No label is allowed after those that were emitted.")
        return delta, paths, p.astype(np.float64), belief

    def finish(self) -> None:
        self.ending = True
        super().finish()


# ---------------------------------------------------------------------- segments


class Segmentation:
    """All that can be asked about the segmentations of one sequence.

    Parameters
    ----------
    n : int
        Steps.
    spans : (kind, start, stop)
        Of the potentials.
    scores : array-like of shape (n_potentials, L)
    transition : array-like of shape (L, L)
    first, last : array-like of shape (L,) or None
        Scores of the first and last segment's label.
    limits : array-like of shape (L,), optional
        Longest segment of each label; 0: any.
    """

    def __init__(self, n, spans, scores, transition, first=None, last=None, limits=None):
        self.n, self.spans, self.transition = n, spans, np.asarray(transition, REAL)
        self.L = L = len(self.transition)
        self.first, self.last = _vector(first, L), _vector(last, L)
        limits = np.zeros(L, int) if limits is None else np.asarray(limits)
        scores = np.asarray(scores, REAL).reshape(-1, L)
        self.theta = np.full((n + 1, n + 1, L), -np.inf, REAL)  # score of [s, e) of label y
        for s, e in self.parts():
            total = scores[is_active(*spans, s, e)].sum(axis=0)
            self.theta[s, e] = np.where((limits == 0) | (e - s <= limits), total, -np.inf)

    def parts(self):
        """All (s, e)."""
        return [(s, e) for s in range(self.n) for e in range(s + 1, self.n + 1)]

    @cached_property
    def enter(self) -> np.ndarray:
        """log Σ exp(score) of all before a segment of label y that begins at s, (n + 1, L)."""
        enter = np.full((self.n + 1, self.L), -np.inf, REAL)
        enter[0] = self.first
        for s in range(1, self.n + 1):
            ended = log_sum(enter[:s] + self.theta[:s, s], axis=0)
            enter[s] = log_sum(ended[:, None] + self.transition, axis=0)
        return enter

    @cached_property
    def leave(self) -> np.ndarray:
        """The same of all after one that ends at e."""
        leave = np.full((self.n + 1, self.L), -np.inf, REAL)
        leave[self.n] = self.last
        for e in range(self.n - 1, 0, -1):
            begun = log_sum(self.theta[e, e + 1 :] + leave[e + 1 :], axis=0)
            leave[e] = log_sum(self.transition + begun, axis=1)
        return leave

    @cached_property
    def log_z(self):
        if self.n == 0:
            return REAL(0)
        return log_sum((self.enter[:-1] + self.theta[:-1, -1]) + self.last)

    @cached_property
    def segments(self) -> np.ndarray:
        """p([s, e) is a segment of label y), shape (n + 1, n + 1, L)."""
        return np.exp(self.enter[:, None] + self.theta + self.leave[None] - self.log_z)

    @cached_property
    def potentials(self) -> np.ndarray:
        """p(a segment of label y for which the potential is active)."""
        found = np.zeros((len(self.spans[0]), self.L), REAL)
        for s, e in self.parts():
            found[is_active(*self.spans, s, e)] += self.segments[s, e]
        return found

    @cached_property
    def tokens(self) -> np.ndarray:
        """p(step t is in a segment of label y)."""
        covers = [self.segments[: t + 1, t + 1 :].sum(axis=(0, 1)) for t in range(self.n)]
        return np.array(covers, REAL).reshape(self.n, self.L)

    @cached_property
    def moves(self) -> np.ndarray:
        """Expected number of segments of label i followed by one of label j."""
        total = np.zeros((self.L, self.L), REAL)
        for cut in range(1, self.n):
            ended = log_sum(self.enter[:cut] + self.theta[:cut, cut], axis=0)
            begun = log_sum(self.theta[cut, cut + 1 :] + self.leave[cut + 1 :], axis=0)
            total += np.exp(ended[:, None] + self.transition + begun - self.log_z)
        return total

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Probabilities of the label of the first and of the last segment."""
        if self.n == 0:
            return np.zeros((2, self.L), REAL)
        return self.segments[0].sum(axis=0), self.segments[:, self.n].sum(axis=0)

    def score(self, segments):
        """Score of rows (start, stop, label)."""
        if not len(segments):
            return REAL(0)
        total = self.first[segments[0][2]] + self.last[segments[-1][2]]
        total += sum(self.theta[s, e, y] for s, e, y in segments)
        return total + sum(self.transition[a[2], b[2]] for a, b in zip(segments, segments[1:]))

    @cached_property
    def best(self) -> list:
        """Ties: the last segment has the lowest label, then starts latest; so the one before."""
        ended = np.full((self.n + 1, self.L), -np.inf, REAL)
        for e in range(1, self.n + 1):
            ended[e] = (self._best_enter(ended, e) + self.theta[:e, e]).max(axis=0)
        segments, e = [], self.n
        y = int((ended[e] + self.last).argmax()) if e else 0
        while e:
            starts = self._best_enter(ended, e)[:, y] + self.theta[:e, e, y]
            s = int(e - 1 - starts[::-1].argmax())
            segments.insert(0, (s, e, y))
            if s:
                y = int((ended[s] + self.transition[:, y]).argmax())
            e = s
        return segments

    def _best_enter(self, ended: np.ndarray, e: int) -> np.ndarray:
        moved = (ended[1:e, :, None] + self.transition).max(axis=1, initial=-np.inf)
        return np.concatenate([self.first[None], moved])

    def best_scores(self, n: int) -> np.ndarray:
        """Scores of the n best segmentations, highest first."""
        if self.n == 0:
            return np.zeros(1, REAL)
        enter, ended = [[[x] for x in self.first]], None
        for e in range(1, self.n + 1):
            ended = [
                sorted(x + self.theta[s, e, y] for s in range(e) for x in enter[s][y])[
                    : -n - 1 : -1
                ]
                for y in range(self.L)
            ]
            enter.append(
                [
                    sorted(x + self.transition[i, j] for i in range(self.L) for x in ended[i])[
                        : -n - 1 : -1
                    ]
                    for j in range(self.L)
                ]
            )
        top = sorted(x + self.last[y] for y in range(self.L) for x in ended[y])[: -n - 1 : -1]
        return np.array([x for x in top if x > -np.inf], REAL)

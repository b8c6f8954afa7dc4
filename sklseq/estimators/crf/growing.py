"""Training on a growing set of weights, for models that have many weights of unseen events.

With weights for all states or all label pairs, most weights belong to a feature and labels that
never occur together, and are almost 0. If f is the objective, -log p + l2 · ‖w‖², and E are weights
that are 0, training them too can lower f + l1 · ‖w‖₁ by at most

    Σ_{k ∈ E} max(0, |∂f/∂w_k| - l1)² / (4 · l2),

as f is strongly convex. So training begins with the weights of what occurs; one gradient in all
weights then shows which others matter, and these are added until the sum for the rest is a small
part of what ``tol`` allows. Along a path of penalties, the next problem begins with the last set.
"""

from copy import copy
from typing import Any

import numpy as np

from sklseq._lib.threads import spans
from sklseq.estimators.crf.monitor import Monitor
from sklseq.solvers import SolverResult, l1_norm

# Least number of weights, and largest fraction of them that may be in the first set.
MANY, FEW = 1 << 17, 0.5
# Weights that are left out may hold this fraction of what tol allows; the solver gets the rest.
SHARE = 0.25
# The first set is trained to a tolerance of FIRST, the next ones to at least 1 / STEP of the one
# before; all smaller than LEAST count as one. (450 sentences of CoNLL-2000 with all states and all
# pairs of tags or of words, tol = 1e-4 and 1e-3: with one more set between, 1.02 to 1.2 times as
# long.)
FIRST, STEP, LEAST = 0.2, 2000.0, 1e-12
# Weights whose bounds are computed at a time, in the cache.
PIECE = 1 << 15


def first_set(problem: Any) -> np.ndarray | None:
    """Mask of the weights that a ``CRFProblem`` trains first; None if it trains all at once.

    They are the weights of what occurs in training, and those that are not 0 at the start; if the
    problem continues a growth, the last set of this.
    """
    source, n = problem.source, problem.scores.n_weights
    if not source.can_grow or n < MANY:
        return None
    if problem.validation is not None or problem.l2 == 0 or source.convexity(problem.l2) == 0:
        return None
    if problem.growth is not None:
        return problem.growth.kept | (problem.start != 0)
    if not problem.solver.warm_start or problem.scale is not None or problem.pairs:
        return None
    kept = problem.scores.mask_of(problem.seen) | (problem.start != 0)
    return kept if np.count_nonzero(kept) <= FEW * n else None


def tolerances(tol: float) -> list[float]:
    """Tolerances of the sets: falling by equal factors of at most ``STEP``, the last is ``tol``."""
    if tol >= FIRST:
        return [tol]
    end = max(tol, LEAST)
    n = int(np.ceil(np.log(FIRST / end) / np.log(STEP) - 1e-9))
    return [*np.geomspace(FIRST, end, n + 1)[:-1].tolist(), tol]


def solve_growing(problem: Any, kept: np.ndarray) -> SolverResult:
    """Solve a ``CRFProblem`` that has ``f`` and ``threads``; ``kept``: see :func:`first_set`."""
    left = tolerances(problem.tol) if problem.growth is None else [problem.tol]
    problem.growth = growth = Growth(problem, kept)
    while True:
        last = len(left) == 1
        growth.train(left[0] * (1 - SHARE) if last else left[0])
        rest = growth.rest()
        ended = growth.n_iter >= problem.max_iter or growth.is_stopped
        if ended or (last and growth.gain <= SHARE * problem.tol * abs(growth.value)):
            del growth.part.f
            return growth.result()
        left = left[1:] or left
        growth.add(rest, SHARE / 2 * left[0] * abs(growth.value))


class Growth:
    """State of training: the weights trained so far, as a problem of their own, and their values.

    Parameters
    ----------
    problem : CRFProblem
        With all weights. If it has a ``growth``, of other penalties, this is continued.
    kept : bool ndarray
        The weights of the set; changed by :meth:`add`.

    Attributes
    ----------
    w : ndarray
        Values of all weights, 0 outside the set.
    value : float
        The objective, with all penalties.
    gain : float
        Bound of what training the weights outside the set can gain.
    """

    value = gain = np.inf

    def __init__(self, problem: Any, kept: np.ndarray):
        self.problem, self.kept, self.w = problem, kept, problem.start
        self.gradient = np.empty_like(self.w)
        self.n_iter, self.history, self.converged, self.message = 0, [], False, ""
        self.is_stopped = False
        before, self.n_before = problem.growth, 0
        self.starts = before is None
        if before is None:
            self.part = self._part(problem)
        else:
            if before.part.pairs:
                self.n_before = before.n_before + before.n_iter
            self.part = self._part(before.part)

    def _part(self, before: Any) -> Any:
        # The problem of the set; continues ``before``, that of a smaller set.
        problem = self.problem
        part = copy(before)
        part.l1, part.l2, part.threads = problem.l1, problem.l2, problem.threads
        part.ran, part.growth, part.pairs = problem.ran, None, []
        part.scores = problem.map_of(problem.scores.support_of(self.kept, problem.support))
        self.at = part.scores.places_in(problem.scores)
        part.f = problem.source.likelihood(part.scores, problem.l2, problem.threads)
        part.start = part.scores.new_vector()
        part.start[:] = self.w[self.at]
        if before is not problem:
            _move(part, before, before.scores.places_in(part.scores))
        part.report = Monitor(problem.tagger, part.attributes, part.value, None, ())
        part.report.done = self.n_iter
        return part

    def train(self, tol: float) -> None:
        """Train the set."""
        part, first = self.part, not self.history
        part.tol, part.max_iter = tol, self.problem.max_iter - self.n_iter
        part.n_before = self.n_before + self.n_iter
        result = part.solver.run(part) if first and self.starts else part.go_on()
        self.n_iter += result.n_iter
        self.history += result.history if first else result.history[1:]
        self.converged, self.message = result.converged, result.message
        self.is_stopped = part.report.is_stopped
        self.w[self.at] = result.w

    def rest(self) -> np.ndarray:
        """For each weight outside the set, a bound of what training it can gain; 0 in the set."""
        problem, rest = self.problem, self.gradient
        self.value = problem.f.value_and_gradient(self.w, rest) + l1_norm(self.w, problem.l1)
        rest = rest.astype(np.float64, copy=False)
        for a, b in spans(len(rest), 1 + len(rest) // PIECE):
            part = np.abs(rest[a:b], out=rest[a:b])
            part -= problem.l1
            np.maximum(part, 0, out=part)
            np.square(part, out=part)
            part /= 4 * problem.l2
        rest[self.at] = 0
        self.gain = float(rest.sum())
        return rest

    def add(self, rest: np.ndarray, allowed: float) -> None:
        """Add the weights of largest ``rest`` until that of the others sums to ``allowed``."""
        some = np.flatnonzero(rest > allowed / len(rest))  # the others sum to less
        some = some[np.argsort(rest[some])]
        total = self.gain - rest[some].sum() + np.cumsum(rest[some])
        self.kept[some[np.searchsorted(total, allowed, side="right") :]] = True
        self.part = self._part(self.part)

    def result(self) -> SolverResult:
        """The result in all weights."""
        missing = self.gain > SHARE * self.problem.tol * abs(self.value)
        self.history[-1] = self.value
        converged = self.is_stopped or (self.converged and not missing)
        return SolverResult(self.w, self.value, self.n_iter, converged, self.history, self.message)


def _move(part: Any, before: Any, to: np.ndarray) -> None:
    # Scale and pairs of ``before`` for the weights and penalty of ``part``: those of ``before`` are
    # at ``to``, and new ones get the least scale, and 0 in the pairs. The pairs take the place of
    # second derivatives, which take as long as several evaluations and save few iterations here.
    # (450 sentences of CoNLL-2000 with all states and pairs, tol = 1e-4: 0.7 to 0.8 of the time.)
    n = len(part.start)
    part.curvature = None
    if before.scale is not None:
        part.scale = np.full(n, before.scale.min(), dtype=before.scale.dtype)
        part.scale[to] = before.scale
    for pair in before.pairs_for(part.l2):
        wide = np.zeros((2, n), dtype=pair[0].dtype)
        wide[:, to] = pair
        part.pairs.append((wide[0], wide[1]))

"""Training of a semi-Markov CRF: problem, solvers and fitted attributes."""

from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib.callbacks import iteration_hook
from sklseq._lib.threads import Threads
from sklseq.estimators.semicrf.segment_program import label_limits
from sklseq.estimators.semicrf.segment_source import SegmentSource
from sklseq.estimators.trained_weights import (
    fitted_attributes,
    previous_weights,
    trained_support,
)
from sklseq.estimators.validation import check_magnitude
from sklseq.inference.chain.linear_chain import repeatable_generator
from sklseq.objectives.scores.score_map import Support
from sklseq.objectives.scores.transition_features import triples_of_pairs
from sklseq.objectives.segment.parallel_columns import merge_parallel_columns
from sklseq.objectives.segment.partial_segments import (
    PartialSegmentLogLikelihood,
    with_stretches,
)
from sklseq.objectives.segment.segment_hinge import SegmentHinge, token_loss, with_token_cells
from sklseq.objectives.segment.segment_likelihood import (
    GoldSegments,
    SegmentData,
    SegmentLogLikelihood,
    SegmentScores,
    segment_support,
)
from sklseq.solvers import SolverResult, bcfw, lbfgs


class SegmentProblem:
    """The loss of one training set, and its minimisation.

    Attributes
    ----------
    scores : SegmentScores
    start : ndarray
        Initial weights of the solver, which overwrites them.
    """

    def __init__(self, segmenter: Any, source: SegmentSource):
        self.segmenter, self.source, self.classes = segmenter, source, source.classes
        self.l1, self.l2 = float(segmenter.l1), float(segmenter.l2)
        self.longest = source.longest(segmenter.max_segment_length)
        self.potentials, self.stretches = source.trained, None
        if source.has_unknown:
            check_partial(segmenter)
        self.columns = source.transition_columns(segmenter.transition_features)
        allowed = None
        if segmenter.constraints is not None:
            check_constraints(source.has_unknown)
            allowed = source.allowed(segmenter.constraints)
        if segmenter.loss != "log":
            self.potentials = with_token_cells(self.potentials)
        if segmenter.loss == "hinge":
            check_magnitude(self.potentials, "loss='hinge'", 1e50)
        self.data = self._data()
        self.scores = SegmentScores(self.data, self._support(), allowed)
        self.start = self.scores.new_vector()
        if segmenter.warm_start and hasattr(segmenter, "coef_"):
            labels, intercept = self.classes, source.of_tokens
            self.start = previous_weights(
                segmenter, self.scores, labels, source.vectorizer, intercept
            )
            self.start *= getattr(segmenter, "temperature_", 1.0)
        self.after_iteration = iteration_hook(segmenter, self.attributes)

    def _data(self) -> SegmentData:
        source, potentials = self.source, self.potentials
        limits = label_limits(self.classes, self.longest, self.segmenter.outside)
        basis = merge_parallel_columns(potentials.rows) if self.l1 == 0 else None
        gold = GoldSegments(*source.segments[:3], source.codes)
        if source.is_partial:
            potentials, gold, self.stretches = with_stretches(potentials, gold)
        return SegmentData(potentials, gold, len(self.classes), limits, basis, self.columns)

    def _support(self) -> Support:
        segmenter, seen, n_labels = self.segmenter, None, len(self.classes)
        if not (segmenter.all_possible_states and segmenter.all_possible_transitions):
            seen = segment_support(self.data, n_labels)
            if self.stretches is not None:
                seen = self.stretches.support(seen)
        support = trained_support(segmenter, seen, n_labels)
        return support if self.columns is None else support._replace(triples=self._triples())

    def _triples(self) -> np.ndarray:
        # Only triples seen in training, also with all_possible_transitions: all would be too many.
        starts, n_labels = self.data.starts, len(self.classes)
        columns = np.unique(starts.rows.indices)
        if len(columns) == 0 and self._is_filled():
            hint = "" if self.source.potentials.feature_names is None else ", such as '^start:'"
            raise ValueError(
                "transition_features chooses no column of a potential of one step that is active "
                "for all segments which start there (OPEN_END, OPEN_BOTH); choose columns of such "
                f"potentials{hint}."
            )
        return triples_of_pairs(starts, columns, self.data.pairs, n_labels)

    def _is_filled(self) -> bool:
        # Whether columns of transition features have nonzero values; columns that are 0 in the
        # training data are not an error and get no weights.
        return sparse.csr_matrix(self.potentials.rows)[:, self.columns].count_nonzero() > 0

    def solve(self) -> SolverResult:
        return SOLVERS[self.segmenter.loss](self)

    def report(self, k: int, value: float, w: np.ndarray | SegmentHinge) -> bool:
        """Print and run callbacks after iteration k; return whether to stop."""
        if self.segmenter.verbose and not np.isnan(value):
            print(f"[SemiCRFSegmenter] iteration {k}: objective {value:.6f}")
        return self.after_iteration(k, value, w)

    def attributes(self, w: np.ndarray | SegmentHinge) -> dict:
        """The attributes of a fitted segmenter with weights w (an object for the hinge loss)."""
        w = w.vector() if isinstance(w, SegmentHinge) else w
        segmenter, potentials, source = self.segmenter, self.potentials, self.source
        names, n = source.potentials.feature_names, source.potentials.shape[1]
        attributes = {} if names is None else {"feature_names_in_": names}
        attributes |= fitted_attributes(self.scores, w, self.classes, source.vectorizer)
        coef, of_pairs = attributes["coef_"], attributes["transition_coef_"]
        return attributes | {
            "coef_": np.ascontiguousarray(coef[:n]),
            "intercept_": coef[n] if source.of_tokens else np.zeros(len(self.classes)),
            "transition_coef_": None if of_pairs is None else of_pairs[:n],
            "n_features_in_": n,
            "max_segment_length_": self.longest,
            "n_potentials_": potentials.n_potentials,
            "max_span_": max(1, int((potentials.stop - potentials.start).max(initial=1))),
            "_fitted_parameters": {"loss": segmenter.loss, "outside": segmenter.outside},
        }


def check_partial(segmenter: Any) -> None:
    """Raise if a parameter needs all segments to be known."""
    if segmenter.loss != "log" or segmenter.calibrate is not None:
        wrong = f"loss={segmenter.loss!r}"
        if segmenter.loss == "log":
            wrong = f"calibrate={segmenter.calibrate!r}"
        raise ValueError(
            f"{wrong} needs all segments, and y has stretches of unknown segments (label None); "
            "use loss='log' and calibrate=None."
        )


def check_constraints(has_unknown: bool) -> None:
    """Raise if y has unknown segments, which constraints in training do not support."""
    if has_unknown:
        raise ValueError(
            "constraints do not support unknown segments in y (label None); use constraints=None, "
            "and valid= of predict instead."
        )


# Proved excess over the minimum at which training stops, in units of tol. The true excess is a half
# to a fifth of it (six corpora). With the softmax-margin it is at most 0.8 tol on 330 generated
# problems and on corpora; with 3 in place of 2, it is up to 1.3 tol, for 7 % fewer evaluations.
# (Likelihood: 0 to 13 % fewer iterations than with the bound by the last gradient and estimates.)
GAPS = {"log": 1, "softmax-margin": 2}


def descend(problem: SegmentProblem) -> SolverResult:
    """L-BFGS on the (softmax-margin) likelihood."""
    segmenter, scores, data = problem.segmenter, problem.scores, problem.data
    loss, gap = None, GAPS[segmenter.loss]
    if segmenter.loss == "softmax-margin":
        loss = token_loss(data, scores.n_labels)
    with Threads(segmenter.n_jobs) as threads:
        weights = problem.source.weights
        convexity, stretches = 2 * problem.l2, problem.stretches
        if stretches is None:
            likelihood = SegmentLogLikelihood(scores, data, weights, segmenter.l2, threads, loss)
            scale, alike = likelihood.solver_scale(), scores.largest is None
        else:
            convexity, gap, args = 0.0, 0, (weights, segmenter.l2, threads)
            likelihood = PartialSegmentLogLikelihood(scores, data, stretches, *args)
            scale, alike = scores.scale(problem.l2), True
        return lbfgs(
            likelihood, problem.start, l1=problem.l1, tol=float(segmenter.tol),
            max_iter=int(segmenter.max_iter), threads=threads, callback=problem.report,
            scale=scale, convexity=convexity, gap=gap,
            of_constants=partial(scores.step_of_constants, l1=problem.l1, l2=problem.l2)
            if problem.l1 and problem.source.of_tokens
            else None,
            diagonal=None if alike else likelihood.diagonal,
        )  # fmt: skip


# Duality gap at which training with the hinge loss stops, in units of tol. Smaller gaps change F1
# by less than 0.1 points and take half as long again (five corpora).
GAP = 50


def separate(problem: SegmentProblem) -> SolverResult:
    """Block-coordinate Frank-Wolfe on the dual of the hinge loss."""
    segmenter = problem.segmenter
    result = bcfw(
        SegmentHinge(problem.scores, problem.data, problem.source.weights, segmenter.l2),
        rng=repeatable_generator(segmenter.random_state), tol=GAP * float(segmenter.tol),
        max_iter=int(segmenter.max_iter), n_steps=20, n_known_passes=5,
        callback=problem.report,
    )  # fmt: skip
    return result._replace(history=[row[1] for row in result.history])


SOLVERS = {"log": descend, "softmax-margin": descend, "hinge": separate}

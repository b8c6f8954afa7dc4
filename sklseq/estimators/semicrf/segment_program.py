"""Scores of segmentations by a fitted segmenter, and their sums."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sklseq._lib.estimator import fitted_parameter
from sklseq._lib.threads import Threads
from sklseq.data.segment_potentials import SegmentPotentials
from sklseq.estimators.semicrf.segment_source import (
    label_limits,
    read_potentials,
    scores_of_rows,
    with_queries,
)
from sklseq.estimators.validation import other_width
from sklseq.estimators.weights import check_weights
from sklseq.inference.segment.segmentations import (
    SegmentPlan,
    SegmentTransitions,
    SegmentWorkspace,
    check_segmentations,
)
from sklseq.objectives.segment.segment_starts import transitions_of_starts


def potentials_of(segmenter: Any, X: Any) -> SegmentPotentials:
    """Return X as potentials of as many features as a fitted segmenter has weights for."""
    check_weights(segmenter)
    potentials, _ = read_potentials(X, segmenter.vectorizer_)
    wrong = potentials.shape[1] != segmenter.n_features_in_
    if wrong and not (potentials.n_potentials == 0 and potentials.shape[1] == 0):
        origin = f"{type(segmenter).__name__} was fitted with"
        raise other_width(potentials.shape[1], segmenter.n_features_in_, origin)
    return potentials


def limits_of(segmenter: Any) -> np.ndarray:
    """Return the largest number of steps of a segment of each label, 0 for any."""
    outside = fitted_parameter(segmenter, "outside")
    return label_limits(segmenter.classes_, segmenter.max_segment_length_, outside)


def program_of(segmenter: Any, X: SegmentPotentials, asked: Any = None) -> tuple:
    """Return (plan, padded scores of its cells, transitions) of sequences."""
    (scores, row, rows), spans = scores_of(segmenter, X), X
    if asked is not None:  # the spans asked for are added as potentials of score 0
        scores, spans = with_queries(X, scores if row is None else scores[row], asked)
        row = None
    plan = SegmentPlan(spans, len(segmenter.classes_), limits_of(segmenter))
    chain = SegmentTransitions(segmenter.transition_, segmenter.start_, segmenter.end_, rows=rows)
    return plan, plan.cell_scores(scores, row), chain


def scores_of(segmenter: Any, X: SegmentPotentials, continued: bool = False) -> tuple:
    """Return scores of distinct potentials, the number of each among them, and of transitions.

    None in place of the numbers: each potential has its own. ``continued``: there are steps before
    those of X.
    """
    scores, row = scores_of_rows(X, segmenter.coef_, segmenter.intercept_)
    pairs = segmenter.transition_coef_
    dtype = segmenter.transition_.dtype if pairs is None else pairs.dtype
    weights = segmenter.transition_.astype(dtype, copy=False), pairs
    rows = transitions_of_starts(X, *weights, continued)
    ends = segmenter.start_, segmenter.end_
    entries = () if rows is None else (rows.score,)
    if any(np.isnan(x).any() for x in (scores, weights[0], *ends, *entries)):
        raise ValueError(
            "coef_, intercept_, transition_, start_, end_ or transition_coef_ holds NaN; fit "
            "again, or load the model again."
        )
    return scores, row, rows


def map_blocks(plan: SegmentPlan, work: Callable, n_jobs: int | None) -> list:
    """Return ``work(a, b)`` for runs a to b - 1 of the sequences, in threads."""
    with Threads(n_jobs) as threads:
        return threads.map(lambda block: work(*block), plan.blocks(threads.n))


def segment_sums(
    plan: SegmentPlan, psi: np.ndarray, chain: SegmentTransitions, n_jobs: int | None = None
) -> tuple:
    """Return (plan, log Z, marginals of cells, of steps) of the results of :func:`program_of`."""
    L, log_z = plan.n_labels, np.zeros(plan.n_sequences)
    marginals, tokens = np.empty((plan.n_cells, L)), np.empty((plan.steps[-1], L))

    def forward_backward(a: int, b: int) -> None:
        work = SegmentWorkspace(plan, [(a, b)])
        cells, steps = (slice(o[a], o[b]) for o in (plan.cells, plan.steps))
        F, t = work.forward_backward(psi[cells], a, b, chain, np.ones(b - a), log_z[a:b])
        marginals[cells], tokens[steps] = F[:, :L], t[:, :L]

    map_blocks(plan, forward_backward, n_jobs)
    check_segmentations(log_z)
    return plan, log_z, marginals, tokens


def asked_cells(plan: SegmentPlan, offsets: np.ndarray, sequence: np.ndarray) -> np.ndarray:
    """Cells of the segments asked for, the last potentials of each sequence."""
    return plan.cell_of[offsets[1:][sequence] + np.arange(len(sequence))]

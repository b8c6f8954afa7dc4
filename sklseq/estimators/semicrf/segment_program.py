"""Potentials of X, scores of segmentations by a fitted segmenter, and their sums."""

from collections.abc import Callable
from typing import Any

import numpy as np

from sklseq._lib.estimator import fitted_parameter
from sklseq._lib.ragged import offsets_of
from sklseq._lib.threads import Threads
from sklseq.data.segment_potentials import OPEN_BOTH, SegmentPotentials
from sklseq.data.types import SequencesLike
from sklseq.estimators.validation import other_width, read_sequences
from sklseq.estimators.weights import are_scores, check_weights
from sklseq.inference.segment.segmentations import (
    SegmentPlan,
    SegmentSpans,
    SegmentTransitions,
    SegmentWorkspace,
    as_spans,
    check_segmentations,
)
from sklseq.objectives.segment.segment_starts import transitions_of_starts


def read_potentials(X: SequencesLike, vectorizer=None, *, fit: bool = False):
    """Return X as ``(SegmentPotentials, vectorizer)``; rows of tokens are potentials of kind 3."""
    if isinstance(X, SegmentPotentials):
        as_spans(X)
        return X, None
    rows, vectorizer = read_sequences(X, vectorizer, fit=fit)
    return SegmentPotentials.from_tokens(rows), vectorizer


def potentials_of(segmenter: Any, X: Any) -> SegmentPotentials:
    """Return X as potentials of as many features as a fitted segmenter has weights for."""
    check_weights(segmenter)
    potentials, _ = read_potentials(X, segmenter.vectorizer_)
    wrong = potentials.shape[1] != segmenter.n_features_in_
    if wrong and not (potentials.n_potentials == 0 and potentials.shape[1] == 0):
        origin = f"{type(segmenter).__name__} was fitted with"
        raise other_width(potentials.shape[1], segmenter.n_features_in_, origin)
    return potentials


def label_limits(classes: np.ndarray, longest: int, outside: str | None) -> np.ndarray:
    """Return the largest number of steps of a segment of each label, 0 for any."""
    return np.where(classes == outside, 1, longest).astype(np.int64)


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
    if not all(map(are_scores, (scores, weights[0], *ends, *entries))):
        raise ValueError(
            "coef_, intercept_, transition_, start_, end_ or transition_coef_ holds NaN or "
            "infinity, or scores are infinite; fit again, or load the model again."
        )
    return scores, row, rows


def scores_of_rows(
    X: SegmentPotentials, coef: np.ndarray, intercept: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return scores of distinct potentials and the number of each potential among them.

    The number is None if each potential has its own scores.
    """
    if X.n_potentials == 0:
        return np.zeros((0, coef.shape[1])), None
    if not intercept.any():
        return X.rows @ coef, X.row
    if not _are_tokens(X):
        raise ValueError(
            "The segmenter was fitted on rows of tokens, which have an intercept, and X is "
            "SegmentPotentials; pass rows of tokens, or fit on SegmentPotentials."
        )
    return X.rows @ coef + intercept, X.row


def _are_tokens(X: SegmentPotentials) -> bool:
    # Whether the potentials are those of ``SegmentPotentials.from_tokens``, one of each step.
    if X.n_potentials != X.n_steps or not np.array_equal(X.row, np.arange(X.rows.shape[0])):
        return False
    steps = np.repeat(X.offsets[:-1], np.diff(X.offsets)) + X.start
    one = (X.kind == OPEN_BOTH) & (X.stop - X.start == 1) & (steps == np.arange(X.n_steps))
    return bool(one.all()) and np.array_equal(np.diff(X.offsets), X.lengths)


def with_queries(X: Any, scores: np.ndarray, asked: tuple) -> tuple[np.ndarray, SegmentSpans]:
    """Append exact potentials of score 0 to each sequence; their marginals are the answers.

    ``X``: spans, whose potentials have ``scores``; ``asked``: sequence, start, stop and code of
    segments, in the order of sequences.
    """
    sequence, start, stop, _ = asked
    of = np.repeat(np.arange(len(X.lengths)), np.diff(X.offsets))
    order = np.argsort(np.concatenate([of, sequence]), kind="stable")
    columns = [
        np.concatenate([old, new])[order]
        for old, new in ((X.kind, np.zeros_like(start)), (X.start, start), (X.stop, stop))
    ]
    counts = np.bincount(sequence, minlength=len(X.lengths))
    offsets = X.offsets + offsets_of(counts)
    scores = np.concatenate([scores, np.zeros((len(start), scores.shape[1]))])[order]
    return scores, SegmentSpans(X.lengths, offsets, *columns)


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

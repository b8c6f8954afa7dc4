"""Temperature of a segmenter: the divisor of weights that calibrates its probabilities."""

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold

from sklseq._lib.callbacks import without_callbacks
from sklseq.data.constraints import constraints_of_part
from sklseq.data.segment_labels import read_queries
from sklseq.estimators.semicrf.segment_program import (
    asked_cells,
    potentials_of,
    program_of,
    segment_sums,
)
from sklseq.estimators.semicrf.segment_source import SegmentSource
from sklseq.inference.segment.segmentations import SegmentPlan, SegmentTransitions

# Logarithms of temperatures are searched between -log(MOST) and log(MOST), first at 0 and ±FIRST,
# until a step is shorter than ACCURACY.
MOST, FIRST, ACCURACY, MOST_STEPS = 8.0, 0.35, 0.02, 12
LEAST = 1e-12


class HeldOut(NamedTuple):
    """Segments predicted for sequences by models that were not trained on them.

    Attributes
    ----------
    plan : SegmentPlan
    psi : ndarray of shape (n_cells, width)
        Scores of the cells of its sequences.
    chain : SegmentTransitions
    n_jobs : int or None
    cell, code : ndarray of shape (n_segments,)
        Cell that is one predicted segment, and the segment's label.
    right : bool ndarray of shape (n_segments,)
    weights : ndarray of shape (n_segments,)
    """

    plan: SegmentPlan
    psi: np.ndarray
    chain: SegmentTransitions
    n_jobs: int | None
    cell: np.ndarray
    code: np.ndarray
    right: np.ndarray
    weights: np.ndarray

    def losses(self, temperature: float, smoothed: tuple[float, float]) -> float:
        """Log loss of all segments; ``smoothed``: targets of (right, wrong) segments."""
        chain = divided(self.chain, temperature)
        marginals = segment_sums(self.plan, self.psi / temperature, chain, self.n_jobs)[2]
        p = np.clip(marginals[self.cell, self.code], LEAST, 1 - LEAST)
        target = np.where(self.right, *smoothed)
        return -float(self.weights @ (target * np.log(p) + (1 - target) * np.log1p(-p)))


def divided(chain: SegmentTransitions, temperature: float) -> SegmentTransitions:
    """Transition, start and end scores divided by a temperature."""
    L, rows = chain.n_labels, chain.rows
    if rows is not None:
        rows = copy(rows)
        rows.shared, rows.score = rows.shared / temperature, rows.score / temperature
    ends = chain.boundary[:, :L] / temperature
    return SegmentTransitions(chain.score[:L, :L] / temperature, *ends, rows=rows)


def best_temperature(parts: list[HeldOut], accuracy: float = ACCURACY) -> float:
    """Return the T that minimises the log loss of the probabilities of held-out segments.

    With p_k(T) the probability of predicted segment k if its model's weights are divided by T, and
    t_k = 1 - 1 / (n₊ + 2) if it is right, 1 / (n₋ + 2) if it is wrong (n₊ and n₋ are the weights of
    right and of wrong ones; Platt 1999),

        T = argmin -Σ_k weight_k · (t_k log p_k(T) + (1 - t_k) log(1 - p_k(T))).
    """
    n_right = sum(float(part.weights[part.right].sum()) for part in parts)
    n_wrong = sum(float(part.weights[~part.right].sum()) for part in parts)
    if n_right + n_wrong == 0:
        return 1.0
    smoothed = 1 - 1 / (n_right + 2), 1 / (n_wrong + 2)

    def loss(log_t: float) -> float:
        return sum(part.losses(np.exp(log_t), smoothed) for part in parts)

    return float(np.exp(_least(loss, accuracy)))


def _least(f: Callable[[float], float], accuracy: float) -> float:
    """Minimum of f between -log(MOST) and log(MOST), by parabolas through three points.

    The last step is shorter than ``accuracy``, its error much smaller.
    """
    limit, x = np.log(MOST), FIRST
    known = {t: f(t) for t in (-x, 0.0, x)}
    best = 0.0
    for _ in range(MOST_STEPS):
        points = sorted(known)
        k = min(range(len(points)), key=lambda k: known[points[k]])
        best = points[k]
        if k in (0, len(points) - 1):  # twice as far
            new = float(np.clip(2 * best, -limit, limit))
        else:
            new = _vertex(*((t, known[t]) for t in points[k - 1 : k + 2]))
        if abs(new - best) < accuracy:
            return new
        known[new] = f(new)
    return min(known, key=lambda t: known[t])


def _vertex(a: tuple, b: tuple, c: tuple) -> float:
    # Where the parabola through three points, the lowest in the middle, is least.
    left, right = b[0] - a[0], c[0] - b[0]
    down, up = (a[1] - b[1]) / left, (c[1] - b[1]) / right
    if down + up <= 0:
        return b[0]
    return b[0] + (down * right - up * left) / (2 * (down + up))


def temperature_of_folds(segmenter: Any, source: SegmentSource, fitted: dict) -> float:
    """Return the best temperature of models of training folds, for the sequences left out.

    The models start from ``fitted``, the attributes of the model of all sequences.
    """
    y = _segments_by_sequence(source)
    folds = KFold(segmenter.calibrate, shuffle=True, random_state=0)
    return best_temperature(
        [_held_out(segmenter, source, fitted, y, *fold) for fold in folds.split(y)]
    )


def _segments_by_sequence(source: SegmentSource) -> list:
    segments = source.segments
    rows = list(zip(*(column.tolist() for column in segments[1:])))
    cuts = np.searchsorted(segments.sequence, np.arange(len(source.potentials) + 1))
    return [rows[a:b] for a, b in zip(cuts[:-1], cuts[1:])]


def _held_out(segmenter: Any, source: SegmentSource, fitted: dict, y: list, train, test) -> HeldOut:
    X, weights = source.given, source.weights
    columns = source.transition_columns(segmenter.transition_features)  # numbers: X has no names
    model = without_callbacks(clone(segmenter))  # those of the whole fit do not watch its parts
    model.set_params(calibrate=None, verbose=0, transition_features=columns, warm_start=False)
    seen = np.isin(source.classes, [label for s in train for _, _, label in y[s]])
    if seen.all():
        vars(model).update(fitted, vectorizer_=None)  # rows are numbers by now
        model.set_params(warm_start=True)
    if segmenter.constraints is not None:
        pairs = constraints_of_part(list(segmenter.constraints), source.classes, seen)
        model.set_params(constraints=pairs)
    model.fit(X[train], [y[s] for s in train], weights[train])
    found = model.predict(X[test])
    known = (set(y[s]) for s in test)
    right = [segment in true for true, segments in zip(known, found) for segment in segments]
    sizes = [len(segments) for segments in found]
    potentials = potentials_of(model, X[test])
    asked = read_queries(found, potentials.lengths, model.classes_.tolist())
    program = program_of(model, potentials, asked)
    return HeldOut(
        *program, model.n_jobs, asked_cells(program[0], potentials.offsets, asked[0]), asked[3],
        np.array(right, dtype=bool), np.repeat(weights[test], sizes),
    )  # fmt: skip

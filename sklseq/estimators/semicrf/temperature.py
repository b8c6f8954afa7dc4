"""Temperature of a segmenter: the divisor of weights that calibrates its probabilities."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.base import clone
from sklearn.model_selection import KFold

from sklseq.data.constraints import constraints_of_part
from sklseq.data.segment_potentials import SegmentPotentials
from sklseq.data.sequences import Sequences
from sklseq.estimators.semicrf.segment_source import SegmentSource, divided_weights

# Temperatures are searched between 1 / MOST and MOST, with a relative error of 1 %.
MOST, ACCURACY = 8.0, 0.01
LEAST = 1e-12


class HeldOut(NamedTuple):
    """Predictions of a model for sequences that it was not trained on."""

    model: Any
    X: SegmentPotentials | Sequences
    segments: list
    right: np.ndarray  # whether each segment is right
    weights: np.ndarray

    def losses(self, temperature: float, smoothed: tuple[float, float]) -> float:
        """Log loss of all segments; ``smoothed``: targets of (right, wrong) segments."""
        scaled = copy(self.model)
        vars(scaled).update(divided_weights(vars(scaled), temperature))
        found = scaled.predict_segment_proba(self.X, self.segments)
        p = np.clip(np.concatenate([np.zeros(0), *found]), LEAST, 1 - LEAST)
        target = np.where(self.right, *smoothed)
        return -float(self.weights @ (target * np.log(p) + (1 - target) * np.log1p(-p)))


def fit_temperature(segmenter: Any, source: SegmentSource, fitted: dict) -> float:
    """Return the T that minimises the log loss of the probabilities of held-out segments.

    A model of each training fold predicts the sequences left out. With p_k(T) the probability of
    predicted segment k if its model's weights are divided by T, and t_k = 1 - 1 / (n₊ + 2) if it is
    right, 1 / (n₋ + 2) if it is wrong (n₊ right and n₋ wrong ones; Platt 1999),

        T = argmin -Σ_k t_k log p_k(T) + (1 - t_k) log(1 - p_k(T)).

    The models start from ``fitted``, the attributes of the model of all sequences.
    """
    y = _segments_by_sequence(source)
    folds = KFold(segmenter.calibrate, shuffle=True, random_state=0)
    parts = [_held_out(segmenter, source, fitted, y, *fold) for fold in folds.split(y)]
    right = np.concatenate([part.right for part in parts])
    n_right = int(right.sum())
    smoothed = 1 - 1 / (n_right + 2), 1 / (len(right) - n_right + 2)
    found = minimize_scalar(
        lambda log_t: sum(part.losses(np.exp(log_t), smoothed) for part in parts),
        bounds=(-np.log(MOST), np.log(MOST)), method="bounded", options={"xatol": ACCURACY},
    )  # fmt: skip
    return float(np.exp(found.x))


def _segments_by_sequence(source: SegmentSource) -> list:
    segments = source.segments
    rows = list(zip(*(column.tolist() for column in segments[1:])))
    cuts = np.searchsorted(segments.sequence, np.arange(len(source.potentials) + 1))
    return [rows[a:b] for a, b in zip(cuts[:-1], cuts[1:])]


def _held_out(segmenter: Any, source: SegmentSource, fitted: dict, y: list, train, test) -> HeldOut:
    X, weights = source.given, source.weights
    columns = source.transition_columns(segmenter.transition_features)  # numbers: X has no names
    model = clone(segmenter)
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
    weights = np.repeat(weights[test], sizes)
    return HeldOut(model, X[test], found, np.array(right, dtype=bool), weights)

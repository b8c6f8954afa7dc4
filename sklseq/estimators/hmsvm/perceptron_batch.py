"""Structured perceptron on one batch of sequences after another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sklseq.data.labels import classes_of_parts, encode_labels, read_labels
from sklseq.data.sequences import training_weights
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.hmsvm.margin_problem import MarginProblem
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.validation import (
    check_same_roles,
    other_width,
    read_sequences,
    warn_new_attributes,
)
from sklseq.inference.chain.linear_chain import as_generator
from sklseq.objectives.margin.hinge import StructuredHinge
from sklseq.objectives.scores.score_map import Weights, padded_view, without_forbidden

UPDATES = "_perceptron_updates"  # attribute with the state from which the next batch continues


class Updates(NamedTuple):
    """The perceptron after n sequences: w, and late = Σ_k k · (change of w after k sequences).

    The average of w after 1, …, n sequences is w - late / n; ``late`` is empty without averaging.
    Both hold the four parts of ``Weights``, and with transition features also their weights, in the
    order of ``triples``, see ``Support``.
    """

    n: int
    w: tuple[np.ndarray, ...]
    late: tuple[np.ndarray, ...]
    triples: np.ndarray | None = None

    def average(self) -> list[np.ndarray]:
        parts = [np.array(part) for part in self.w]
        for part, late in zip(parts, self.late):
            part -= late / max(self.n, 1)
        return parts

    def on(self, triples: np.ndarray | None) -> Updates:
        """Updates with further transition features, of weight 0."""
        if triples is None:
            return self
        at, wide = np.searchsorted(triples, self.triples), []
        for parts in (self.w, self.late):
            v = np.zeros(len(triples))
            if parts:
                v[at] = parts[4]
            wide.append((*parts[:4], v) if parts else ())
        return Updates(self.n, *wide, triples)


def fit_batch(
    tagger: Any,
    X: SequencesLike,
    y: LabelsLike,
    classes: ArrayLike | None,
    sample_weight: ArrayLike | None,
) -> dict:
    """The attributes of ``tagger`` after one pass over a batch."""
    updates = getattr(tagger, UPDATES, None)
    _check_batch(tagger, updates)
    classes = classes_of_parts(classes, getattr(tagger, "classes_", None))
    before = None if updates is None else Updates(*updates)
    known = None if before is None else before.triples
    source = _read(tagger, X, y, classes, sample_weight)
    if source is None:
        return {}
    problem = MarginProblem(tagger, source, triples=known)
    objective, triples = problem.objective, problem.support.triples
    if before is not None:
        check_same_roles(getattr(tagger, "_roles", None), problem.support.roles)
        before = before.on(triples)
        _start_from(objective, before.w)
    squares = np.zeros(len(objective.C))
    order = _generator(tagger.random_state, before).permutation(objective.blocks)
    mistakes = objective.mistakes(order, squares)
    after = _updates_after(objective, before, triples)
    return problem.attributes() | _averages(after, problem) | {
        UPDATES: tuple(after), "solver_": "perceptron",
        "n_iter_": getattr(tagger, "n_iter_", 0) + 1,
        "n_mistakes_": getattr(tagger, "n_mistakes_", 0) + mistakes,
        "radius_": max(getattr(tagger, "radius_", 0.0), float(squares.max(initial=0)) ** 0.5),
        "loss_curve_": np.append(getattr(tagger, "loss_curve_", np.zeros(0, int)), mistakes),
    }  # fmt: skip


def _averages(updates: Updates, problem: MarginProblem) -> dict:
    # The averaged weights, as attributes.
    X, parts = problem.source.X, updates.average()
    dtype = np.float32 if X.dtype == np.float32 else np.float64
    if updates.triples is not None:
        parts[4:] = [problem.objective.features.unpack(parts[4], X.shape[1])]
    names = ("coef_", "transition_", "start_", "end_", "transition_coef_")
    found = {name: part.astype(dtype, copy=False) for name, part in zip(names, parts)}
    return found | {"coef_": padded_view(found["coef_"])}


def _generator(seed: Any, before: Updates | None):
    # An integer seed gives a different generator for each batch.
    if seed is None or hasattr(seed, "permutation"):
        return as_generator(seed)
    return as_generator([int(seed), 0 if before is None else before.n])


def _check_batch(tagger: Any, updates: tuple | None) -> None:
    fitted, averages = hasattr(tagger, "classes_"), tagger.average in ("auto", True)
    if fitted and updates is None:
        raise ValueError(
            "partial_fit cannot go on from fit, which keeps the averaged weights only; train with "
            "partial_fit from the start, on a clone of this estimator."
        )
    if fitted and averages != bool(Updates(*updates).late):
        raise ValueError(
            "average must stay as in the first call of partial_fit, from which on sums for the "
            f"average are kept or not; got {tagger.average!r}."
        )


def _read(tagger: Any, X, y, classes, sample_weight) -> RowSource | None:
    # None: a later batch without rows of positive weight, which changes nothing.
    fitted, vectorizer = hasattr(tagger, "classes_"), getattr(tagger, "vectorizer_", None)
    rows, found = read_sequences(X, vectorizer, fit=not fitted)
    if fitted:
        warn_new_attributes(tagger, X)
    if fitted and rows.n_rows and rows.shape[1] != tagger.n_features_in_:
        origin = "the first call of partial_fit had"
        raise other_width(rows.shape[1], tagger.n_features_in_, origin)
    weights = training_weights(sample_weight, len(rows), zeros=fitted)
    if fitted and not weights @ rows.lengths:
        encode_labels(read_labels(y, rows), classes, rows.offsets)
        return None
    source = RowSource.of_rows(rows, y, weights, vectorizer if fitted else found, classes)
    source.given = rows, weights
    return source


def _start_from(objective: StructuredHinge, parts: tuple[np.ndarray, ...]) -> None:
    a, L, w = objective.kernel.arrays, objective.n_labels, Weights(*parts[:4])
    a["W"][:, :L] = w.coef[objective.source.order]
    a["score"][:L, :L] += without_forbidden(w.transition)
    a["score_t"][...] = a["score"].T
    a["start"][:L] += without_forbidden(w.start)
    a["end"][:L] += without_forbidden(w.end)
    if objective.features is not None:
        a["v"][:] = parts[4]


def _updates_after(
    objective: StructuredHinge, before: Updates | None, triples: np.ndarray | None
) -> Updates:
    n, w, late = 0 if before is None else before.n, tuple(objective.weights()), _late(objective)
    if triples is not None:
        w = *w, objective.kernel.arrays["v"].copy()
    if before is not None:  # changes of this batch come n sequences later
        for total, old, now, then in zip(late, before.late, w, before.w):
            moved = np.isfinite(now)
            total[moved] += old[moved] + n * (now[moved] - without_forbidden(then)[moved])
    return Updates(n + objective.n_updates, w, late, triples)


def _late(objective: StructuredHinge) -> tuple[np.ndarray, ...]:
    # Σ k · (change of w after k sequences) of this batch, in the user's order of features.
    a, L = objective.kernel.arrays, objective.n_labels
    if not objective.averaging:
        return ()
    coef = np.empty((len(objective.source.order), L))
    coef[objective.source.order] = a["late_W"][:, :L]
    ends = (a[name][:L].copy() for name in ("late_start", "late_end"))
    links = () if objective.features is None else (a["late_v"].copy(),)
    return coef, a["late_score"][:L, :L].copy(), *ends, *links

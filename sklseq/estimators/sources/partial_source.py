"""Training data in memory with some unknown labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import numpy as np

from sklseq._lib.checks import is_number
from sklseq._lib.threads import Threads
from sklseq.data.constraints import Constraints, PathCheck, possible_labels
from sklseq.data.labels import cut_rows, split_labels
from sklseq.data.partial_labels import AllowedLabels, PartialLabels
from sklseq.data.sequences import Sequences
from sklseq.data.types import LabelsLike
from sklseq.estimators.sources.source import RowSource
from sklseq.objectives.likelihood.gradient_plan import Plan
from sklseq.objectives.likelihood.partial import (
    EntropyLikelihood,
    PartialLogLikelihood,
    nothing_known,
)
from sklseq.objectives.likelihood.proportions import ProportionLikelihood, Proportions
from sklseq.objectives.likelihood.summary import Summary, summarise_rows
from sklseq.objectives.scores.score_map import ScoreMap, allowed_support
from sklseq.objectives.scores.transition_features import allowed_triples


class Unlabelled(NamedTuple):
    """Parameters of ``CRFTagger`` for terms of the objective that use rows without labels."""

    entropy_weight: float = 0.0
    label_proportions: Mapping[Any, Any] | None = None
    proportions_weight: float = 1.0

    @classmethod
    def of(cls, tagger: Any) -> Unlabelled:
        """Return the parameters of a tagger, checked."""
        weight, given = tagger.entropy_weight, tagger.label_proportions
        if given is not None:
            _check_proportions(given)
        if weight > 0 and given is not None:
            raise ValueError(
                f"entropy_weight={weight} and label_proportions exclude each other; use "
                "entropy_weight=0, or label_proportions=None."
            )
        unlabelled = cls(float(weight), given, float(tagger.proportions_weight))
        unlabelled.check_in_memory(tagger.gradient not in BY_BLOCKS, tagger.gradient)
        return unlabelled

    def check_in_memory(self, in_memory: bool, gradient: str = "auto") -> None:
        """Raise if a parameter is set and sequences are not in memory, or processed in blocks."""
        if self.parameter and not in_memory:
            found = "X holds blocks of rows or shards"
            if gradient in BY_BLOCKS:
                found = f"gradient is {gradient!r}"
            raise ValueError(
                f"{self.parameter} needs sequences in memory and gradient='auto'; {found}. "
                "Use entropy_weight=0 and label_proportions=None."
            )

    @property
    def parameter(self) -> str | None:
        """Name and value of the parameter that is set, or None."""
        if self.label_proportions is not None:
            return "label_proportions"
        return f"entropy_weight={self.entropy_weight}" if self.entropy_weight > 0 else None


NOTHING = Unlabelled()
# Values of ``gradient`` that process rows in blocks.
BY_BLOCKS = "checkpoint", "streaming", "emp"
ADAGRAD = (
    "solver={{solver!r}} updates weights after each labelled sequence, but {} uses sequences "
    "without labels; use solver='lbfgs' or 'auto'."
)


def _check_proportions(given: Any) -> None:
    if not isinstance(given, Mapping) or not given:
        raise ValueError(
            "label_proportions must be None or a dict of labels and their proportions, such as "
            f"{{'O': 0.9}}, or of columns and such dicts; got {given!r:.60}."
        )
    for column in (parts := [p for p in given.values() if isinstance(p, Mapping)]):
        _check_sum(column)
    if len(parts) < len(given):
        _check_sum({label: p for label, p in given.items() if not isinstance(p, Mapping)})


def _check_sum(given: Mapping[Any, Any]) -> None:
    if not given:
        raise ValueError("label_proportions of a column must have at least one label; got {}.")
    for label, p in given.items():
        if not is_number(p) or not 0 <= p <= 1:
            raise ValueError(
                f"label_proportions must lie between 0 and 1; the label {label!r} has {p!r}."
            )
    if (total := sum(given.values())) > 1 + 1e-6:
        raise ValueError(
            f"label_proportions must sum to 1 at most; got {float(total):.6g}. Divide them by "
            "their sum."
        )


class PartialSource(RowSource):
    """Sequences in memory; some rows have None or a set of labels. Fully labelled ones come first.

    Sequences without known labels are left out: their log p(Y | x) is 0 for any weights.
    """

    lacks: ClassVar[dict[str, str]] = {
        "dual": "solver={solver!r} needs a convex objective, and y has unknown labels or sets of "
        "labels; use solver='lbfgs', 'adagrad' or 'auto'.",
    }
    plan = Plan("forward-backward", None, 0, "some labels are unknown")

    labels: AllowedLabels
    unlabelled = NOTHING
    proportions: Proportions | None = None

    @classmethod
    def of_rows(
        cls, X: Sequences, y: LabelsLike, weights: np.ndarray, vectorizer: Any,
        unlabelled: Unlabelled = NOTHING,
    ) -> RowSource:  # fmt: skip
        """Check y; leave out sequences of weight 0, and sequences without known labels.

        If ``unlabelled`` has a parameter set, sequences without known labels are kept and come
        last. The result is a plain ``RowSource`` if every row of the sequences has a known label.
        """
        partial = PartialLabels.read(y, X)
        classes = np.unique(partial.labels_of(weights > 0))
        labels = partial.allowed(classes, new=True)
        known = has_row(~labels.unknown, X)
        kept = (weights > 0) & (known | ((unlabelled.parameter is not None) & (X.lengths > 0)))
        if not (kept & known).any():
            raise nothing_known()
        numbers, is_partial = np.flatnonzero(kept), has_row(labels.codes >= len(classes), X)
        numbers = numbers[np.argsort((is_partial * 1 + ~known)[numbers], kind="stable")]
        codes = np.concatenate(split_labels(labels.codes, X.offsets)[numbers])
        labels = labels._replace(codes=codes)
        kind = cls if is_partial[numbers].any() else RowSource
        source = kind(X[numbers], labels.codes, classes, weights[numbers], vectorizer)
        source.numbers, source.n_given = numbers, len(X)
        if isinstance(source, PartialSource):
            source.labels, source.unlabelled = labels, unlabelled
            if unlabelled.parameter:
                source.lacks = cls.lacks | {"adagrad": ADAGRAD.format(unlabelled.parameter)}
            if unlabelled.label_proportions is not None:
                given = unlabelled.label_proportions
                source.proportions = Proportions.read(given, source.X, classes, vectorizer)
        return source

    @property
    def choices(self) -> np.ndarray:
        """Entry of y for each code: a label or a set of labels."""
        return self.labels.choices(self.classes)

    @property
    def table(self) -> np.ndarray:
        return self.labels.table

    def summarise(self) -> Summary:
        X = self.X
        n = np.searchsorted(X.offsets, np.flatnonzero(~self.labels.unknown)[-1], side="right")
        codes = self.labels.codes[: X.offsets[n]]  # unlabelled ones allow all weights
        support = allowed_support(X[:n], self.labels._replace(codes=codes))
        return summarise_rows(X, self.classes, support)

    def check_constraints(self, allowed: Constraints) -> None:
        check = PathCheck(allowed, self.classes, self.labels.table)
        codes = list(cut_rows(self.labels.codes, self.X.offsets))
        for k in np.argsort(self.numbers):  # sequences with all labels come first in X
            check.follow(codes[k], lambda row, k=k: f"row {row} of sequence {self.numbers[k]}")
        if self.proportions is not None and not check.free:
            possible = possible_labels(allowed, self.X.offsets)
            self.proportions.check_possible(possible, self.labels.unknown, self.classes)

    def seen_triples(self, columns: np.ndarray) -> np.ndarray:
        return allowed_triples(self.X, columns, self.labels)

    def convexity(self, l2: float) -> float:
        return 0.0

    def row_curvature(self, likelihood: Any) -> list:
        return []

    def part(self, s: int) -> PartialSource:
        """Source of sequence s alone, with the label codes of all sequences."""
        plain = super().part(s)
        one = PartialSource(plain.X, plain.codes, plain.classes, plain.weights)
        one.labels = self.labels._replace(codes=plain.codes)
        return one

    def likelihood(self, scores: ScoreMap, l2: float, threads: Threads) -> PartialLogLikelihood:
        args = scores, self.labels, self.X.offsets, self.weights, l2, threads
        if self.proportions is not None:
            weight = self.unlabelled.proportions_weight
            return ProportionLikelihood(*args, self.proportions, weight)
        if self.unlabelled.entropy_weight > 0:
            return EntropyLikelihood(*args, self.unlabelled.entropy_weight)
        return PartialLogLikelihood(*args)


def has_row(rows: np.ndarray, X: Sequences) -> np.ndarray:
    """Whether the mask ``rows`` is true in some row of each sequence."""
    return np.bincount(np.repeat(np.arange(len(X)), X.lengths), rows, minlength=len(X)) > 0

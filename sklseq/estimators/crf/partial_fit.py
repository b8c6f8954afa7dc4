"""Training on one batch of sequences after another."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklseq.data.labels import check_constraints, encode_labels, read_classes, resolve_constraints
from sklseq.data.sequences import Sequences, read_labels
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.sparsify import dense_weights
from sklseq.estimators.validation import (
    check_not_empty,
    read_sequences,
    training_weights,
    warn_new_attributes,
)
from sklseq.inference.chain.linear_chain import as_generator
from sklseq.objectives.scores.score_map import ScoreMap, Weights, full_support

__all__ = ["PartialFitMixin"]

RATE = 1.0
# Sums of squares of weights that `fit` found: as if each had been moved this often.
FITTED = 100


class Batch(NamedTuple):
    """What `StochasticLikelihood` asks of a likelihood."""

    scores: ScoreMap
    y: np.ndarray
    offsets: np.ndarray
    weights: np.ndarray
    l2: float


class PartialFitMixin:
    """``partial_fit`` for taggers with an L1 and an L2 penalty."""

    def partial_fit(
        self,
        X: SequencesLike,
        y: LabelsLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ):
        """Go through one batch of sequences once, by the steps of ``solver="adagrad"``.

        All states and transitions are trained, whatever ``all_possible_states``: which ones occur
        cannot be known in advance. Goes on from the weights of an earlier call, or of :meth:`fit`.
        The penalties are those of all sequences seen so far together.

        Parameters
        ----------
        X : list of sequences
            Of columns that stay the same: arrays, CSR matrices or ``Sequences``, such as
            extractors with ``n_features=2**k`` give. Dicts and attribute lists only after
            :meth:`fit`, which learns their columns: attributes that come later are left out, with
            one warning.
        y : list of label sequences
        classes : array-like, optional
            All labels that can ever occur; needed in the first call.
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        self : estimator

        Raises
        ------
        ValueError
            If labels or columns are new, before anything changes.

        Notes
        -----
        Costs O(nnz · L + n_rows · L²), and O(n_features · L) a call: batches of a few hundred
        sequences make that small. Weights and sums are kept in float64 and float32.

        Examples
        --------
        >>> import numpy as np
        >>> from sklseq import CRFTagger
        >>> X, y = [np.eye(3), np.eye(3)[:2]], [["a", "b", "c"], ["a", "b"]]
        >>> tagger = CRFTagger()
        >>> for _ in range(20):
        ...     tagger = tagger.partial_fit(X, y, classes=["a", "b", "c"])
        >>> tagger.score(X, y)
        1.0
        """
        self._check_parameters()
        if self.early_stopping:
            raise ValueError(
                "partial_fit cannot set sequences aside (early_stopping=True); use "
                "early_stopping=False, or fit."
            )
        rows, classes = self._batch_of(X, classes)
        labels = read_labels(y, rows)
        codes = encode_labels(labels, classes, rows.offsets)
        weights = training_weights(sample_weight, len(rows))
        allowed = resolve_constraints(self.constraints, classes)
        check_constraints(codes, rows.offsets, *allowed, classes)
        scores = ScoreMap(
            rows, len(classes), self._everything(len(classes)), allowed, np.dtype(np.float64),
            as_it_is=True,
        )  # fmt: skip
        self._pass(Batch(scores, codes, rows.offsets, weights, float(self.l2)), classes)
        return self

    def _everything(self, n_labels: int):
        support = full_support(n_labels)
        return support._replace(
            start=support.start & self.boundaries, end=support.end & self.boundaries
        )

    def _batch_of(self, X: Any, classes: Any) -> tuple[Sequences, np.ndarray]:
        if hasattr(self, "coef_"):
            rows = self._read(X)
            warn_new_attributes(self, X)
            known = np.sort(self.classes_)
            if classes is not None and not np.array_equal(read_classes(classes), known):
                raise ValueError(
                    f"classes must stay those of the first call, {self.classes_.tolist()}; got "
                    f"{read_classes(classes).tolist()}."
                )
            classes = self.classes_
        elif classes is None:
            raise ValueError(
                "The first call of partial_fit needs classes: all labels that can ever occur."
            )
        else:
            rows, vectorizer = read_sequences(X, fit=True)
            if vectorizer is not None:
                raise ValueError(
                    "partial_fit needs columns that stay the same, which attributes of one batch "
                    "do not give; extract them with a fitted transformer, or one with "
                    "n_features=2**k."
                )
            classes = read_classes(classes)
        check_not_empty(rows)
        return Sequences(sparse.csr_matrix(rows.rows), rows.offsets), classes

    def _pass(self, batch: Batch, classes: np.ndarray) -> None:
        from sklseq.objectives.likelihood.stochastic import StochasticLikelihood

        before = getattr(self, "n_seen_", 0)
        stochastic = StochasticLikelihood(batch, float(self.l1), self._weights_before(batch.scores))
        if hasattr(self, "coef_") and not before:
            stochastic.squares = [x * np.float32(FITTED) for x in stochastic.squares]
        if before:
            stochastic.squares[0], stochastic.squares[2] = (x.copy() for x in self._squares)
        seed = [0 if self.random_state is None else self.random_state, before]
        if not isinstance(seed[0], int):
            seed = self.random_state
        order = as_generator(seed).permutation(stochastic.visited)
        loss = stochastic.descend(order, RATE, n_sequences=before + len(order))
        if not np.isfinite(stochastic.w).all():
            raise ValueError(
                "The steps of partial_fit diverged, and the weights are as before the call; "
                "scale the features, e.g. by PerToken(MaxAbsScaler())."
            )
        scores, vectorizer = batch.scores, getattr(self, "vectorizer_", None)
        for name, value in self._attributes(scores, stochastic.w, classes, vectorizer).items():
            setattr(self, name, value)
        self._squares = (stochastic.squares[0], stochastic.squares[2])
        self.n_seen_, self.n_iter_ = before + len(order), getattr(self, "n_iter_", 0) + 1
        self.objective_ = loss
        self.loss_curve_ = [*getattr(self, "loss_curve_", ()), loss]

    def _weights_before(self, scores: ScoreMap) -> np.ndarray:
        if not hasattr(self, "coef_"):
            return scores.new_vector()
        coef = dense_weights(self.coef_)
        return scores.pack(Weights(coef, self.transition_, self.start_, self.end_))

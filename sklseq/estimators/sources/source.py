"""Training data behind one protocol, and the source of rows in memory."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from sklseq._lib.threads import Threads
from sklseq.data.labels import Constraints, check_constraints, encode_labels, unique_labels
from sklseq.data.sequences import Sequences, read_labels, weighted_only
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.validation import check_not_empty, read_sequences, training_weights
from sklseq.objectives.likelihood.likelihood import LogLikelihood
from sklseq.objectives.likelihood.long import Plan
from sklseq.objectives.likelihood.stochastic import StochasticLikelihood
from sklseq.objectives.likelihood.summary import Summary, summarise_rows
from sklseq.objectives.scores.score_map import ScoreMap

__all__ = ["RowSource", "Source"]


class Source(AbstractContextManager):
    """Labelled sequences to train on, wherever they are; open while training runs.

    Attributes
    ----------
    vectorizer : DictFeatures or None
        Transformer of dicts and attribute lists; known after :meth:`summarise`.
    plan : Plan
        Computation of the gradient; known after :meth:`summarise`.
    error : exception class, or ()
        Raised where data cannot be read again in the midst of training.
    lacks : dict
        Solvers ("dual", "adagrad") and options ("early_stopping", "gradient") that the source
        does not support, with the message; ``{solver}`` and ``{gradient}`` are the parameters.
    cause : str
        Why data is worked on in blocks, ``{cause}`` of these messages.
    """

    vectorizer: Any = None
    plan: Plan
    error: Any = ()
    cause: str = ""
    lacks: ClassVar[dict[str, str]] = {}

    def __exit__(self, *_: object) -> None:
        pass

    def summarise(self) -> Summary:
        """Read all data once."""
        raise NotImplementedError

    def check_constraints(self, allowed: Constraints) -> None:
        """Raise if labels violate a constraint."""
        raise NotImplementedError

    def layout(self, summary: Summary, single_sequences: bool) -> tuple[Sequences, Summary]:
        """The rows that w is laid out for, and their summary.

        ``single_sequences``: whether the solver updates weights after each sequence, which needs
        sparse rows.
        """
        summary = summary.for_single_sequences() if single_sequences else summary
        return summary.layout(), summary

    def likelihood(self, scores: ScoreMap, l2: float, threads: Threads) -> Any:
        """The objective without its L1 term: a sum over all parts of the data."""
        raise NotImplementedError

    def convexity(self, l2: float) -> float:
        """m such that the objective minus m/2 · ‖w‖² is convex; 0 if it is not."""
        return 2 * l2

    def stochastic(self, likelihood: Any, l1: float, start: np.ndarray) -> Any:
        """The objective for steps after single sequences; ``start`` is overwritten."""
        raise NotImplementedError


class RowSource(Source):
    """Sequences in memory, packed into one matrix of rows.

    Parameters
    ----------
    X : Sequences
    codes : int32 ndarray of shape (n_rows,)
    classes : ndarray of shape (n_labels,)
    weights : ndarray of shape (n_sequences,), optional
    vectorizer : DictFeatures, optional

    Attributes
    ----------
    numbers : ndarray of shape (n_sequences,)
        Of the sequences, among all ``n_given`` of the user.
    """

    def __init__(self, X: Sequences, codes, classes, weights=None, vectorizer=None):
        self.X, self.codes, self.classes, self.vectorizer = X, codes, classes, vectorizer
        self.weights = np.ones(len(X)) if weights is None else weights
        self.numbers, self.n_given = np.arange(len(X)), len(X)

    @classmethod
    def read(cls, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None) -> RowSource:
        """Check X, y and weights as users give them; sequences of weight 0 are left out.

        ``source.given`` keeps the rows and weights of all sequences.
        """
        rows, vectorizer = read_sequences(X, fit=True)
        weights = training_weights(sample_weight, len(rows))
        source = cls.of_rows(rows, y, weights, vectorizer)
        source.given = rows, weights
        return source

    @classmethod
    def of_rows(cls, X: Sequences, y: LabelsLike, weights: np.ndarray, vectorizer: Any):
        """Check y; sequences of weight 0 are left out."""
        labels, given = read_labels(y, X), (np.flatnonzero(weights > 0), len(X))
        X, labels, weights = weighted_only(X, labels, weights)
        check_not_empty(X)
        classes = unique_labels(labels)
        codes = encode_labels(labels, classes, X.offsets)
        source = cls(X, codes, classes, weights, vectorizer)
        source.numbers, source.n_given = given
        return source

    @property
    def choices(self) -> np.ndarray:
        """What y holds for each code."""
        return self.classes

    def summarise(self) -> Summary:
        return summarise_rows(self.X, self.classes, self.codes)

    def check_constraints(self, allowed: Constraints) -> None:
        check_constraints(self.codes, self.X.offsets, *allowed, self.classes)

    def layout(self, summary: Summary, single_sequences: bool) -> tuple[Sequences, Summary]:
        if not single_sequences:
            return self.X, summary
        rows = Sequences(sparse.csr_matrix(self.X.rows), self.X.offsets)
        return rows, summary._replace(is_sparse=True, single=False)

    def likelihood(self, scores: ScoreMap, l2: float, threads: Threads) -> LogLikelihood:
        offsets, weights = self.X.offsets, self.weights
        return LogLikelihood(scores, self.codes, offsets, weights, l2, threads)

    def part(self, s: int) -> RowSource:
        """Sequence s alone, with the labels of all."""
        rows = slice(self.X.offsets[s], self.X.offsets[s + 1])
        return RowSource(self.X[s : s + 1], self.codes[rows], self.classes, self.weights[s : s + 1])

    def stochastic(self, likelihood: LogLikelihood, l1: float, start) -> StochasticLikelihood:
        return StochasticLikelihood(likelihood, l1, start)

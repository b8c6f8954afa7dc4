"""Training that ends when sequences set aside are labelled no better."""

from __future__ import annotations

import copy
import numbers

import numpy as np
from sklearn.base import BaseEstimator

from sklseq.data.sequences import Sequences
from sklseq.inference.chain.linear_chain import repeatable_generator

__all__ = ["EarlyStopping", "check_early_stopping"]


def check_early_stopping(estimator: BaseEstimator) -> None:
    """Refuse parameters of early stopping that mean nothing."""
    fraction, patience = estimator.validation_fraction, estimator.n_iter_no_change
    if not isinstance(fraction, numbers.Real) or not 0 < fraction < 1:
        raise ValueError(f"validation_fraction must lie between 0 and 1; got {fraction!r}.")
    if not isinstance(patience, numbers.Integral) or patience < 1:
        raise ValueError(f"n_iter_no_change must be an integer of at least 1; got {patience!r}.")


class EarlyStopping:
    """Keeps the weights of the iteration with the best validation score.

    Parameters
    ----------
    estimator : tagger with ``validation_fraction``, ``n_iter_no_change``, ``random_state``
    X : Sequences
    codes : ndarray of shape (n_rows,)
    classes : ndarray of shape (n_labels,)
    weights : float64 ndarray of shape (n_sequences,)

    Attributes
    ----------
    weights : ndarray
        Those given, with 0 for the sequences set aside.
    best : ndarray or None
        Weights w of the best iteration.
    scores : list of float
        Validation score of each iteration.
    """

    def __init__(self, estimator, X: Sequences, codes, classes, weights: np.ndarray):
        usable = np.flatnonzero((weights > 0) & (X.lengths > 0))
        n = int(np.ceil(estimator.validation_fraction * len(usable)))
        if n >= len(usable):
            raise ValueError(
                f"early_stopping=True with validation_fraction={estimator.validation_fraction} "
                f"needs at least 2 sequences with rows and weight, and leaves none of "
                f"{len(usable)} to train on; pass more, or use early_stopping=False."
            )
        rng = repeatable_generator(estimator.random_state)
        aside = np.sort(rng.permutation(usable)[:n])
        self.X, self.weights = X[aside], weights.copy()
        self.y = [classes[codes[X.offsets[s] : X.offsets[s + 1]]] for s in aside]
        self.sample_weight = weights[aside]
        self.weights[aside] = 0
        self.patience, self.scores, self.best = estimator.n_iter_no_change, [], None
        self.tagger = copy.copy(estimator)

    def stops(self, w: np.ndarray, attributes: dict) -> bool:
        """Whether this iteration is the last; ``attributes`` make a fitted tagger of w."""
        # The attribute lists of the user were turned into rows before.
        self.tagger.__dict__.update(attributes | {"vectorizer_": None})
        score = self.tagger.score(self.X, self.y, self.sample_weight)
        if not self.scores or score > max(self.scores):
            self.best = w.copy()
        self.scores.append(score)
        return len(self.scores) - 1 - int(np.argmax(self.scores)) >= self.patience

"""Early stopping by the score of validation sequences."""

import copy
from typing import Any, Self

import numpy as np

from sklseq.inference.chain.linear_chain import repeatable_generator


class EarlyStopping:
    """Keep the weights of the iteration with the best validation score.

    Parameters
    ----------
    estimator : tagger with ``validation_fraction``, ``n_iter_no_change``, ``random_state``
    lengths : ndarray of shape (n_sequences,)
    weights : float64 ndarray of shape (n_sequences,)
    given : (numbers, n, split), optional
        Positions of these sequences among the n sequences of the user, or the shards that hold
        them among n shards, and the name of what is split; by default all sequences.

    Attributes
    ----------
    aside : ndarray
        Numbers of the sequences set aside.
    X, y, sample_weight
        Data of the sequences set aside, for ``score`` of the tagger.
    best : ndarray or None
        Weights w of the best iteration.
    scores : list of float
        Validation score of each iteration.
    """

    X: Any
    y: Any
    sample_weight: np.ndarray

    def __init__(self, estimator, lengths: np.ndarray, weights: np.ndarray, given=None):
        usable = np.flatnonzero((weights > 0) & (lengths > 0))
        part = estimator.validation_fraction
        if hasattr(part, "split"):
            n = len(lengths)
            numbers, *of = (np.arange(n), n, "sequences") if given is None else given
            aside = usable[np.isin(numbers[usable], _first_test_part(part, *of))]
        else:
            rng = repeatable_generator(estimator.random_state)
            aside = np.sort(rng.permutation(usable)[: int(np.ceil(part * len(usable)))])
        if not 0 < len(aside) < len(usable):
            raise ValueError(
                f"early_stopping=True with validation_fraction={part} needs at least 2 sequences "
                f"with rows and weight, and sets {len(aside)} of {len(usable)} aside, which leaves "
                "none to validate or to train on; pass more, or use early_stopping=False."
            )
        self.aside = aside
        self.patience, self.scores, self.best = estimator.n_iter_no_change, [], None
        self.tagger = copy.copy(estimator)

    @classmethod
    def of_source(cls, estimator: Any, source: Any) -> Self:
        """Set sequences of a ``Source`` aside."""
        given = source.numbers, source.n_given, source.split
        validation = cls(estimator, source.lengths, source.weights, given)
        validation.sample_weight = source.weights[validation.aside]
        validation.X, validation.y = source.set_aside(validation.aside)
        return validation

    def stops(self, w: np.ndarray, attributes: dict) -> bool:
        """Whether training stops now; ``attributes`` are those of a tagger with weights w."""
        # X holds rows, also if the user gave dicts: they must not be vectorized again.
        self.tagger.__dict__.update(attributes | {"vectorizer_": None})
        score = self.tagger.score(self.X, self.y, self.sample_weight)
        if not self.scores or score > max(self.scores):
            self.best = w.copy()
        self.scores.append(score)
        return len(self.scores) - 1 - int(np.argmax(self.scores)) >= self.patience


def _first_test_part(splitter: Any, n: int, split: str) -> np.ndarray:
    parts = next(iter(splitter.split(np.zeros(n))), None)
    if parts is None:
        raise ValueError(
            f"validation_fraction={splitter!r:.60} sets none of the {split} aside; give a splitter "
            "with a test part."
        )
    train, test = parts
    n_split = len(train) + len(test)
    if n_split != n:
        raise ValueError(
            f"validation_fraction={splitter!r:.60} splits {n_split} {split}, and X has {n}; give "
            f"a splitter of all {split} of X."
        )
    return test

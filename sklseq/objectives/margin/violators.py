"""Working set of segmentations of one sequence."""

from __future__ import annotations

import numpy as np

__all__ = ["WorkingSet"]

# More segmentations without mass than this are dropped.
SPARE = 10
NO_FEATURES = np.zeros(0, dtype=np.int64), np.zeros(0)


class WorkingSet:
    """A mixture of segmentations, with the inner products of their features.

    Attributes
    ----------
    fired : list of int64 ndarray
        Active (cell, label) pairs of each segmentation, as cell · n_labels + label; none for an
        empty sequence, else at least one.
    chain : ndarray of shape (k, n_labels + 2, n_labels)
        Its transitions, then its first and last label.
    loss, alpha : ndarray of shape (k,)
        ``alpha`` sums to one.
    gram : ndarray of shape (k, k)
        Inner products of features.
    features : list of (int64 ndarray, ndarray)
        Places in w and values of the features that are not those of the truth, minus these.
    """

    def __init__(self, fired: np.ndarray, chain: np.ndarray, square: float):
        """Start with the true segmentation, whose loss is 0."""
        self.fired, self.chain = [fired], chain[None]
        self.loss, self.alpha = np.zeros(1), np.ones(1)
        self.gram = np.array([[square]])
        self.number = {fired.tobytes(): 0}
        self.features = [NO_FEATURES]

    def find(self, fired: np.ndarray) -> int:
        """The number of a segmentation, or -1."""
        return self.number.get(fired.tobytes(), -1)

    def add(
        self, fired: np.ndarray, chain: np.ndarray, loss: float, products: np.ndarray,
        features: tuple[np.ndarray, np.ndarray] = NO_FEATURES,
    ) -> None:  # fmt: skip
        """Add one without mass; ``products`` are its inner products with all, itself the last."""
        k = len(self.fired)
        self.number[fired.tobytes()] = k
        self.fired.append(fired)
        self.features.append(features)
        self.chain = np.concatenate([self.chain, chain[None]])
        self.loss, self.alpha = np.append(self.loss, loss), np.append(self.alpha, 0.0)
        gram = np.empty((k + 1, k + 1))
        gram[:k, :k] = self.gram
        gram[k] = gram[:, k] = products
        self.gram = gram

    def values(self, psi: np.ndarray) -> np.ndarray:
        """Σ psi[cell, label] over the active pairs of each segmentation."""
        if psi.size == 0:
            return np.zeros(len(self.fired))
        begins = np.cumsum([0, *map(len, self.fired[:-1])])
        return np.add.reduceat(psi.ravel()[np.concatenate(self.fired)], begins)

    def forget(self) -> None:
        """Drop segmentations without mass, if they are many; the truth stays."""
        spare = self.alpha == 0
        spare[0] = False
        if spare.sum() <= SPARE:
            return
        kept = np.flatnonzero(~spare)
        self.fired = [self.fired[k] for k in kept]
        self.features = [self.features[k] for k in kept]
        self.chain, self.loss = self.chain[kept], self.loss[kept]
        self.alpha, self.gram = self.alpha[kept], self.gram[np.ix_(kept, kept)]
        self.number = {fired.tobytes(): k for k, fired in enumerate(self.fired)}

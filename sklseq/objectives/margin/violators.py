"""Working set of segmentations of one sequence, and exact steps in it."""

from __future__ import annotations

import numpy as np

__all__ = ["WorkingSet"]

# More segmentations without mass than this are dropped.
SPARE = 10


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
    """

    def __init__(self, fired: np.ndarray, chain: np.ndarray, square: float):
        """Start with the true segmentation, whose loss is 0."""
        self.fired, self.chain = [fired], chain[None]
        self.loss, self.alpha = np.zeros(1), np.ones(1)
        self.gram = np.array([[square]])
        self.number = {fired.tobytes(): 0}

    def find(self, fired: np.ndarray) -> int:
        """The number of a segmentation, or -1."""
        return self.number.get(fired.tobytes(), -1)

    def add(self, fired: np.ndarray, chain: np.ndarray, loss: float, products: np.ndarray) -> None:
        """Add one without mass; ``products`` are its inner products with all, itself the last."""
        k = len(self.fired)
        self.number[fired.tobytes()] = k
        self.fired.append(fired)
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

    def exchange(self, gain: np.ndarray, ratio: float, n_steps: int, accuracy: float) -> np.ndarray:
        """Exact pairwise steps: from the mass of smallest to the segmentation of largest gain.

        ``gain`` is loss plus score of each, and falls by ratio · gram · (change of alpha).
        Steps end when its spread has fallen to a fraction ``accuracy``. Returns the change of
        alpha.
        """
        alpha, gram = self.alpha.copy(), self.gram
        first = 0.0
        for _ in range(n_steps):
            up = int(gain.argmax())
            down = int(np.where(alpha > 0, gain, np.inf).argmin())
            spread = gain[up] - gain[down]
            if spread <= accuracy * first:
                break
            first = first or spread
            square = gram[up, up] - 2 * gram[up, down] + gram[down, down]
            whole = ratio * square * alpha[down] <= spread
            step = alpha[down] if whole else spread / (ratio * square)
            alpha[up] += step
            alpha[down] = 0.0 if whole else alpha[down] - step
            gain = gain - ratio * step * (gram[up] - gram[down])
        change, self.alpha = alpha - self.alpha, alpha
        return change

    def forget(self) -> None:
        """Drop segmentations without mass, if they are many; the truth stays."""
        spare = self.alpha == 0
        spare[0] = False
        if spare.sum() <= SPARE:
            return
        kept = np.flatnonzero(~spare)
        self.fired = [self.fired[k] for k in kept]
        self.chain, self.loss = self.chain[kept], self.loss[kept]
        self.alpha, self.gram = self.alpha[kept], self.gram[np.ix_(kept, kept)]
        self.number = {fired.tobytes(): k for k, fired in enumerate(self.fired)}

"""Block-diagonal initial Hessian for L-BFGS."""

from __future__ import annotations

import numpy as np
from scipy import linalg


class BlockMetric:
    """A matrix B: the identity, except for one positive definite block for each group of weights.

    Parameters
    ----------
    at : ndarray of shape (n,)
        Positions of the weights in w.
    slots : ndarray of shape (n,)
        Group · size + row in the block of the group, for each of these weights; rows of a block
        without a weight are ignored.
    blocks : ndarray of shape (n_groups, size, size)

    Notes
    -----
    Memory: twice the blocks. Each change of the free weights of a group costs size³ / 3.
    """

    def __init__(self, at: np.ndarray, slots: np.ndarray, blocks: np.ndarray):
        self.at, self.slots, self.blocks = at, slots, blocks
        self.is_free = np.zeros(blocks.shape[:2], dtype=bool)
        self.factors = np.broadcast_to(np.eye(blocks.shape[1]), blocks.shape).copy()

    def change(self, rows: np.ndarray, free: np.ndarray | None = None) -> np.ndarray:
        """Entries at ``at`` of B⁻¹ z - z, for vectors z with the entries ``rows`` at ``at``.

        With ``free``, a boolean mask of all weights, B is restricted to the free weights; the other
        entries of z count as 0, and are 0 in the result.
        """
        here = np.ones(len(self.at), dtype=bool) if free is None else free[self.at]
        self._factorise(here)
        groups, size = self.is_free.shape
        given = np.zeros((len(rows), groups * size))
        given[:, self.slots] = rows * here
        answer = given.reshape(len(rows), groups, size).transpose(1, 2, 0).copy()
        for factor, part in zip(self.factors, answer):
            part[:] = linalg.cho_solve((factor, True), part, check_finite=False)
        answer = answer.transpose(2, 0, 1).reshape(given.shape)
        return (answer - given)[:, self.slots]

    def _factorise(self, here: np.ndarray) -> None:
        # Update the Cholesky factors of groups whose free weights have changed.
        is_free = np.zeros(self.is_free.size, dtype=bool)
        is_free[self.slots] = here
        is_free = is_free.reshape(self.is_free.shape)
        for k in np.flatnonzero((is_free != self.is_free).any(axis=1)):
            mask = is_free[k]
            block = np.where(mask & mask[:, None], self.blocks[k], np.eye(len(mask)))
            self.factors[k] = linalg.cholesky(block, lower=True, check_finite=False)
        self.is_free = is_free

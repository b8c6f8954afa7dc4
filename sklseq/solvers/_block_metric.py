"""Block-diagonal initial Hessian for L-BFGS."""

import numpy as np

from sklseq._lib.cpu import load_kernel
from sklseq._lib.threads import Threads

_vectors = load_kernel("sklseq.solvers._vectors")


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
    Memory: at most twice the blocks. Each change of the free weights of a group costs n³ / 3 for n
    free weights.
    """

    def __init__(self, at: np.ndarray, slots: np.ndarray, blocks: np.ndarray):
        self.at = at
        number, row = np.divmod(slots, blocks.shape[1])
        members = (np.flatnonzero(number == k) for k in range(len(blocks)))
        self.groups = [
            _Group(here, block[np.ix_(row[here], row[here])])
            for here, block in zip(members, blocks)
            if len(here)
        ]

    def change(
        self, rows: np.ndarray, free: np.ndarray | None = None, threads: Threads | None = None
    ) -> np.ndarray:
        """Entries at ``at`` of B⁻¹ z - z, for vectors z with the entries ``rows`` at ``at``.

        With ``free``, a boolean mask of all weights, B is restricted to the free weights; the other
        entries of z count as 0, and are 0 in the result.
        """
        here = np.ones(len(self.at), dtype=bool) if free is None else free[self.at]
        rows = np.ascontiguousarray(rows, dtype=np.float64)
        out = np.zeros(rows.shape)
        (threads or Threads(1)).map(lambda group: group.change(rows, here, out), self.groups)
        return out

    def matrix(self) -> np.ndarray:
        """B in the order of ``at``, if all these weights are in one group."""
        (group,) = self.groups
        return group.block


class _Group:
    # ``block`` is of the weights with the numbers ``here``.
    def __init__(self, here: np.ndarray, block: np.ndarray):
        self.here, self.block = here, block
        # The free weights, their numbers, and the factor of their part of the block.
        self.is_free, self.at = np.zeros(len(here), dtype=bool), here[:0]
        self.factor = np.zeros((0, 0))

    def change(self, rows: np.ndarray, is_free: np.ndarray, out: np.ndarray) -> None:
        is_free = is_free[self.here]
        if not np.array_equal(is_free, self.is_free):
            kept = np.flatnonzero(is_free)
            self.factor = np.zeros((len(kept), len(kept)))
            if not _vectors.factorise_block(self.block, kept, self.factor):
                raise np.linalg.LinAlgError("A block of second derivatives is not positive.")
            self.is_free, self.at = is_free, self.here[kept]
        work = np.empty((len(rows), len(self.at)))
        _vectors.change_by_block(self.factor, self.at, rows, work, out)

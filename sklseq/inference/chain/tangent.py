"""Directional derivatives of marginals with respect to scores, for whole or partial sequences.

The recursions are in ``_tangent.pyx``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from sklseq._lib.cpu import load_kernel
from sklseq.inference.chain.expectation import BlockChain, FilteredBlock
from sklseq.inference.chain.linear_chain import (
    Transitions,
    Workspace,
    _chain,
    check_paths,
    longest_first,
    sums_are_batched,
)

_tangent = load_kernel("sklseq.inference.kernels._tangent")


# Scores of a block for derivatives: the cache must hold seven arrays of it. The least number of
# rows is for float64; twice as many in float32 take as much memory.
BLOCK_SCORES, LEAST_ROWS = 3 << 13, 512
# Rows whose products are summed in the type of the scores.
SUMMED_ROWS = 2048


def tangent_rows(width: int, dtype: np.dtype) -> int:
    """Number of rows of a block for derivatives, with ``width`` scores each."""
    return max(BLOCK_SCORES // width, LEAST_ROWS * 8 // dtype.itemsize)


class Direction:
    """Padded change of transition, start and end scores; finite even for forbidden transitions.

    Parameters
    ----------
    chain : Transitions
        Exponentiated, without ``pairs``.
    transition, start, end : ndarray, optional
        By default 0.
    """

    def __init__(self, chain: Transitions, transition=0.0, start=0.0, end=0.0):
        L, W = chain.n_labels, chain.width
        self.chain, self.score = chain, np.zeros((W, W))
        self.start, self.end = np.zeros((2, W), dtype=chain.dtype)
        self.score[:L, :L], self.start[:L], self.end[:L] = transition, start, end
        self.product = (chain.E * self.score).astype(chain.dtype)  # E dscore
        self.product_t = np.ascontiguousarray(self.product.T)
        self.is_still = not self.product.any()  # as for the weight of a feature of rows
        self.one = np.empty_like(self.product)

    def after(self, alpha: np.ndarray, out: np.ndarray) -> np.ndarray:
        """alpha (E dscore), for rows of alpha."""
        return self._products(alpha, self.product, out)

    def ahead(self, u: np.ndarray, out: np.ndarray) -> np.ndarray:
        """(E dscore) u, for rows of u."""
        return self._products(u, self.product_t, out)

    def _products(self, rows: np.ndarray, matrix: np.ndarray, out: np.ndarray) -> np.ndarray:
        if self.is_still:
            out[:] = 0
            return out
        return np.matmul(rows, matrix, out=out)

    def add_row_products(self, a: np.ndarray, b: np.ndarray, sums: np.ndarray) -> None:
        """Add a'b, for rows of a and b, to ``sums``, shape (width, width)."""
        for t in range(0, len(a), SUMMED_ROWS):
            sums += np.matmul(a[t : t + SUMMED_ROWS].T, b[t : t + SUMMED_ROWS], out=self.one)


class Filtered(NamedTuple):
    """Forward-backward results of a block of whole sequences: the input of derivatives.

    Attributes
    ----------
    alpha, u, r, mu : ndarray of shape (n_rows, width)
        As in ``_tangent.pyx``. u is 0 in the first row of a sequence; alpha, u and r are 0 in
        sequences computed in the log domain.
    order : ndarray or None
        Argument of the kernels.
    in_logs : list of (rows, log_alpha)
        The sequences computed in the log domain.
    """

    alpha: np.ndarray
    u: np.ndarray
    r: np.ndarray
    mu: np.ndarray
    order: np.ndarray | None
    in_logs: list

    def copy(self) -> Filtered:
        return Filtered(*(x.copy() for x in self[:4]), self.order, self.in_logs)

    @property
    def nbytes(self) -> int:
        """Bytes of the four arrays."""
        return 4 * self.mu.nbytes


class TangentWorkspace(Workspace):
    """Scratch arrays for derivatives on up to ``n_rows`` rows at a time.

    Attributes
    ----------
    products : ndarray of shape (width, width)
        Derivatives of pair marginals of scaled sequences, divided by E and without dscore xi,
        times weights, added up.
    exact_tangents : ndarray of shape (width, width)
        Those of sequences in the log domain, with all terms.
    pairs : ndarray of shape (width, width), or None
        Pair marginals of scaled sequences at the weights, xi, divided by E, times weights, added
        up. Set to None if they are not needed.
    """

    def __init__(self, n_rows: int, width: int, dtype: DTypeLike = np.float64):
        super().__init__(n_rows, width, np.dtype(dtype))
        self.psi, self.r, self.A, self.U = (np.zeros_like(self.e) for _ in range(4))
        self.products, self.exact_tangents = np.zeros((2, width, width))
        self.small = np.zeros((3, width))
        self.pairs: np.ndarray | None = np.zeros((width, width))
        self.in_logs: list = []

    def filter(
        self, psi: np.ndarray, offsets: np.ndarray, chain: Transitions, log_z: np.ndarray
    ) -> Filtered:
        """Forward-backward; the result is views of arrays of this workspace and of ``psi``."""
        n, self.in_logs = len(psi), []
        self.forward_backward(psi, offsets, None, chain, log_z)
        check_paths(log_z)
        alpha, u, r = self.alpha[:n], self.e[:n], self.r[:n]
        for at, _ in self.in_logs:
            alpha[at] = u[at] = r[at] = self.inverse_c[at, None] = 0
        _tangent.finish_filter(u, r, self.inverse_c[:n], offsets)
        order = longest_first(offsets) if sums_are_batched(chain, len(log_z)) else None
        return Filtered(alpha, u, r, psi, order, self.in_logs)

    def keep_factors(self, n: int) -> None:
        self.r[:n] = self.e[:n]

    def keep_logs(self, rows: slice, log_alpha: np.ndarray) -> None:
        self.in_logs.append((rows, log_alpha))

    def tangents(
        self, rows: Filtered, dpsi: np.ndarray, offsets: np.ndarray, weights: np.ndarray,
        direction: Direction,
    ) -> None:  # fmt: skip
        """Turn a change of the scores, ``dpsi``, into weights times that of marginals, in place.

        Weighted changes of pair marginals are added to this workspace, and unless ``pairs`` is
        None, the weighted pair marginals.
        """
        chain, L, n = direction.chain, direction.chain.n_labels, len(dpsi)
        alpha, u, r, mu, order, in_logs = rows
        A, U = self.A[:n], self.U[:n]
        _chain.fold_boundaries(dpsi, offsets, direction.start, direction.end)
        changes = [dpsi[at].astype(np.float64) for at, _ in in_logs]
        direction.after(alpha[:-1], out=A[1:])
        _tangent.forward_scaled(alpha, r, chain.E, offsets, order, A, dpsi, True, L)
        direction.ahead(u[1:], out=U[:-1])  # 0 in last rows, as u is in first rows
        U[-1:] = 0
        _tangent.backward_scaled(alpha, r, u, mu, chain.E_t, offsets, order, A, U, dpsi, True, L)
        for (at, log_alpha), change in zip(in_logs, changes):
            weight = float(weights[np.searchsorted(offsets, at.start, side="right") - 1])
            dpsi[at] = self._in_logs(log_alpha, change, direction, weight)
        if (weights != 1).any():
            of_row = np.repeat(weights, np.diff(offsets)).astype(dpsi.dtype)[:, None]
            u = u * of_row
            U *= of_row
            dpsi *= of_row
        direction.add_row_products(A[:-1], u[1:], self.products)
        direction.add_row_products(alpha[:-1], U[1:], self.products)
        if self.pairs is not None:
            direction.add_row_products(alpha[:-1], u[1:], self.pairs)

    def pair_tangents(self, direction: Direction, pairs: np.ndarray) -> np.ndarray:
        """Derivatives of pair marginals, given ``pairs``, as this workspace has them."""
        sums = self.products + direction.score * pairs
        return direction.chain.E * sums + self.exact_tangents

    def _in_logs(self, log_alpha, dpsi, direction: Direction, weight: float) -> np.ndarray:
        # The derivatives of marginals of one sequence.
        T, L = log_alpha.shape
        before = np.full((T + 1, L), -np.inf)
        before[1:] = log_alpha
        score = direction.chain.score.astype(np.float64, copy=False)
        F, args = np.zeros((T + 1, len(score))), (score, direction.score)
        _tangent.forward_log(before, *args, dpsi, F, self.small, True, L)
        p = np.zeros(F.shape[1])
        p[:L] = np.exp(log_alpha[-1] - log_alpha[-1].max())
        S = seed(p / p.sum(), F[-1])
        _tangent.backward_log(
            before, *args, dpsi, F, S, self.exact_tangents, self.small, weight, True, L
        )
        return dpsi


def seed(p: np.ndarray, F: np.ndarray) -> np.ndarray:
    """The marginals of the last row and their derivatives, up to a multiple, from p and F."""
    return np.stack([p, p * F])


class BlockTangents:
    """Directional derivatives of :class:`BlockChain` over one sequence in blocks of rows.

    Results of the recursions are in buffers of ``bc``, which the next block overwrites.
    """

    def __init__(self, bc: BlockChain, direction: Direction):
        self.bc, self.direction = bc, direction
        self.of_factors: FilteredBlock | None = None  # the block of the factors in the buffer "r"
        self.small = np.zeros((3, bc.width))

    def forward(
        self, block: FilteredBlock, dpsi: np.ndarray, before: np.ndarray, out: np.ndarray
    ) -> np.ndarray:
        """Run the forward recursion over a block; ``dpsi`` is changed.

        Parameters
        ----------
        block : FilteredBlock
        dpsi : ndarray of shape (n, width)
            Change of the scores, with start and end.
        before : ndarray of shape (width,)
            F of the row before, where F = A / alpha is the derivative of log alpha, up to a
            constant in each row.
        out : ndarray of shape (n + 1, width)
            Overwritten by A of the row before and of the rows; if ``block.in_logs``, by F.

        Returns
        -------
        ndarray of shape (width,)
            F of the last row.
        """
        chain, n, L = self.bc.chain, len(dpsi), self.bc.n_labels
        if block.in_logs:
            out[:], out[0] = 0, before
            _tangent.forward_log(
                block.alpha, chain.score, self.direction.score, dpsi, out, self.small, block.first,
                L,
            )  # fmt: skip
            return out[-1].copy()
        alpha, A = block.alpha[1:], out[1:]
        out[0] = block.alpha[0] * before
        self.direction.after(block.alpha[:-1], out=A)
        if not block.first:
            A[0] += out[0] @ chain.E
        _tangent.forward_scaled(
            alpha, self._factors(block), chain.E, np.array([0, n]), None, A, dpsi, block.first, L
        )
        return _quotient(A[-1], alpha[-1])

    def _factors(self, block: FilteredBlock) -> np.ndarray:
        # r of the rows of a block.
        alpha = block.alpha[1:]
        r = self.bc.buffer("r", *alpha.shape)
        if self.of_factors is not block:
            np.multiply(alpha, block.inverse, out=r)
            self.of_factors = block
        return r

    def backward(
        self, block: FilteredBlock, dpsi: np.ndarray, A: np.ndarray, S: np.ndarray,
        xi: np.ndarray | None,
    ):  # fmt: skip
        """Return derivatives of pair marginals; ``dpsi`` is overwritten by those of marginals.

        Of blocks in scaled arithmetic, dscore xi is left out.

        Parameters
        ----------
        block : FilteredBlock
        dpsi, A : ndarray
            As they are after :meth:`forward`, A being its ``out``.
        S : ndarray of shape (2, width)
            Marginals of the last row and their derivatives; overwritten by those of the row before.
        xi : ndarray of shape (width, width), or None
            Sums of pair marginals of blocks in scaled arithmetic; overwritten by those with the
            block. None: they are not needed.
        """
        chain, n, L = self.bc.chain, len(dpsi), self.bc.n_labels
        if block.in_logs:
            pairs = np.zeros_like(self.direction.score)
            _tangent.backward_log(
                block.alpha, chain.score, self.direction.score, dpsi, A, S, pairs, self.small, 1.0,
                block.first, L,
            )  # fmt: skip
            return pairs
        alpha, shape, last, buffer = block.alpha[1:], dpsi.shape, S.copy(), self.bc.buffer
        out = buffer("mu", n, 1, shape[1])
        sums = {"out": out, "sums": xi is not None}
        _, marginals, pairs = self.bc.backward(block, S[:1], 0, n, np.ones(1), **sums)
        if xi is not None:
            xi += pairs[:, 0]
        mu, u = marginals[:, 0], buffer("q", *shape)  # which the line before has filled
        U = buffer("U", *shape)
        self.direction.ahead(u[1:], out=U[:-1])
        U[-1] = _quotient(last[1] - _quotient(A[-1], alpha[-1]) * last[0], alpha[-1])
        _tangent.backward_scaled(
            alpha, self._factors(block), u, mu, chain.E_t, np.array([0, n]), None, A[1:], U, dpsi,
            block.first, L,
        )  # fmt: skip
        if not block.first:
            dbeta = chain.E @ U[0] + self.direction.product @ u[0]
            S[1] = _quotient(A[0], block.alpha[0]) * S[0] + block.alpha[0] * dbeta
        products = np.zeros_like(self.direction.score)
        self.direction.add_row_products(A[:-1], u, products)
        self.direction.add_row_products(block.alpha[:-1], U, products)
        return chain.E * products


def _quotient(A: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    return np.divide(A, alpha, out=np.zeros_like(A), where=alpha > 0)

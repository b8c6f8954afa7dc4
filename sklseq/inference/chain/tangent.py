"""Directional derivatives of marginals with respect to scores, for whole or partial sequences.

The recursions are in ``_tangent.pyx``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sklseq._lib.cpu import load_kernel
from sklseq.inference.chain.expectation import BlockChain, FilteredBlock
from sklseq.inference.chain.linear_chain import Transitions, Workspace, _chain, check_paths

_tangent = load_kernel("sklseq.inference.kernels._tangent")


class Direction:
    """Padded change of transition, start and end scores; finite even for forbidden transitions.

    Parameters
    ----------
    chain : Transitions
        Exponentiated, in float64, without ``pairs``.
    transition, start, end : ndarray, optional
        By default 0.
    """

    def __init__(self, chain: Transitions, transition=0.0, start=0.0, end=0.0):
        L, W = chain.n_labels, chain.width
        self.chain, self.score = chain, np.zeros((W, W))
        self.start, self.end = np.zeros((2, W))
        self.score[:L, :L], self.start[:L], self.end[:L] = transition, start, end
        self.product = chain.E * self.score  # E dscore
        self.product_t = np.ascontiguousarray(self.product.T)

    def pair_sums(
        self, alpha: np.ndarray, u: np.ndarray, A: np.ndarray, U: np.ndarray
    ) -> np.ndarray:
        """Derivatives of pair marginals, summed over t.

        Row t of ``alpha`` and ``A`` belongs to the row before that of ``u`` and ``U``, which are 0
        in the first row of a sequence.
        """
        sums = self.chain.E * (A.T @ u + alpha.T @ U)
        sums += self.product * (alpha.T @ u)
        return sums


class Filtered(NamedTuple):
    """Forward-backward results of a block of whole sequences: the input of derivatives.

    Attributes
    ----------
    alpha, u, r, mu : ndarray of shape (n_rows, width)
        As in ``_tangent.pyx``. u is 0 in the first row of a sequence; alpha, u and r are 0 in
        sequences computed in the log domain.
    in_logs : list of (rows, log_alpha)
        The sequences computed in the log domain.
    """

    alpha: np.ndarray
    u: np.ndarray
    r: np.ndarray
    mu: np.ndarray
    in_logs: list

    def copy(self) -> Filtered:
        """A copy of the arrays."""
        return Filtered(*(x.copy() for x in self[:4]), self.in_logs)

    @property
    def nbytes(self) -> int:
        """Bytes of the four arrays."""
        return 4 * self.mu.nbytes


class TangentWorkspace(Workspace):
    """Scratch arrays for derivatives on up to ``n_rows`` rows at a time, in float64.

    Attributes
    ----------
    pair_tangents : ndarray of shape (width, width)
        Derivatives of pair marginals, times weights, added up.
    """

    def __init__(self, n_rows: int, width: int):
        super().__init__(n_rows, width, np.dtype(np.float64))
        self.r, self.A, self.U = (np.zeros_like(self.e) for _ in range(3))
        self.pair_tangents, self.small = np.zeros((width, width)), np.zeros((3, width))
        self.in_logs: list = []

    def filter(
        self, psi: np.ndarray, offsets: np.ndarray, chain: Transitions, log_z: np.ndarray
    ) -> Filtered:
        """Forward-backward; the result is views of arrays of this workspace and of ``psi``."""
        n, self.in_logs = len(psi), []
        self.forward_backward(psi, offsets, None, chain, log_z)
        check_paths(log_z)
        alpha, u, r = self.alpha[:n], self.e[:n], self.r[:n]
        u[offsets[:-1][np.diff(offsets) > 0]] = 0
        for at, _ in self.in_logs:
            alpha[at] = u[at] = r[at] = self.inverse_c[at, None] = 0
        _tangent.multiply_rows(r, self.inverse_c[:n])
        return Filtered(alpha, u, r, psi, self.in_logs)

    def keep_factors(self, n: int) -> None:
        self.r[:n] = self.e[:n]

    def keep_logs(self, rows: slice, log_alpha: np.ndarray) -> None:
        self.in_logs.append((rows, log_alpha))

    def tangents(
        self, rows: Filtered, dpsi: np.ndarray, offsets: np.ndarray, weights: np.ndarray,
        direction: Direction,
    ) -> None:  # fmt: skip
        """Turn a change of the scores, ``dpsi``, into weights times that of marginals, in place.

        Weighted changes of pair marginals are added to ``pair_tangents``.
        """
        chain, L, n, small = direction.chain, direction.chain.n_labels, len(dpsi), self.small
        alpha, u, r, mu, in_logs = rows
        A, U = self.A[:n], self.U[:n]
        _chain.fold_boundaries(dpsi, offsets, direction.start, direction.end)
        changes = [dpsi[at].copy() for at, _ in in_logs]
        np.matmul(alpha[:-1], direction.product, out=A[1:])
        np.matmul(u, direction.product_t, out=U)
        _tangent.forward_scaled(alpha, r, chain.E, offsets, A, dpsi, small, True, L)
        small[0] = 0
        _tangent.backward_scaled(alpha, u, r, mu, chain.E_t, offsets, A, U, dpsi, small, True, L)
        for (at, log_alpha), change in zip(in_logs, changes):
            weight = float(weights[np.searchsorted(offsets, at.start, side="right") - 1])
            dpsi[at] = self._in_logs(log_alpha, change, direction, weight)
        if (weights != 1).any():
            of_row = np.repeat(weights, np.diff(offsets))[:, None]
            u = u * of_row
            U *= of_row
            dpsi *= of_row
        self.pair_tangents += direction.pair_sums(alpha[:-1], u[1:], A[:-1], U[1:])

    def _in_logs(self, log_alpha, dpsi, direction: Direction, weight: float) -> np.ndarray:
        # The derivatives of marginals of one sequence.
        T, L = log_alpha.shape
        before = np.full((T + 1, L), -np.inf)
        before[1:] = log_alpha
        F, args = np.zeros((T + 1, len(direction.score))), (direction.chain.score, direction.score)
        _tangent.forward_log(before, *args, dpsi, F, self.small, True, L)
        p = np.zeros(F.shape[1])
        p[:L] = np.exp(log_alpha[-1] - log_alpha[-1].max())
        S = seed(p / p.sum(), F[-1])
        _tangent.backward_log(
            before, *args, dpsi, F, S, self.pair_tangents, self.small, weight, True, L
        )
        return dpsi


def seed(p: np.ndarray, F: np.ndarray) -> np.ndarray:
    """The marginals of the last row and their derivatives, up to a multiple, from p and F."""
    return np.stack([p, p * F])


class BlockTangents:
    """Directional derivatives of :class:`BlockChain` over one sequence in blocks of rows.

    Parameters
    ----------
    bc : BlockChain
    direction : Direction
    """

    def __init__(self, bc: BlockChain, direction: Direction):
        self.bc, self.direction = bc, direction
        self.small = np.zeros((3, bc.width))

    def forward(self, block: FilteredBlock, dpsi: np.ndarray, before: np.ndarray):
        """F of the rows of a block from ``before``, F of the row before; ``dpsi`` is changed.

        F = A / alpha is the derivative of log alpha, up to a constant in each row.

        Returns
        -------
        ndarray of shape (n + 1, width)
            Row 0 is ``before``.
        """
        chain, n, L = self.bc.chain, len(dpsi), self.bc.n_labels
        F = np.zeros((n + 1, self.bc.width))
        F[0] = before
        if block.in_logs:
            _tangent.forward_log(
                block.alpha, chain.score, self.direction.score, dpsi, F, self.small, block.first, L
            )
            return F
        alpha = block.alpha[1:]
        A = block.alpha[:-1] @ self.direction.product
        self.small[0] = block.alpha[0] * before
        _tangent.forward_scaled(
            alpha, alpha * block.inverse, chain.E, np.array([0, n]), A, dpsi, self.small,
            block.first, L,
        )  # fmt: skip
        np.divide(A, alpha, out=F[1:], where=alpha > 0)
        return F

    def backward(self, block: FilteredBlock, dpsi: np.ndarray, F: np.ndarray, S: np.ndarray):
        """Return derivatives of pair marginals; ``dpsi`` is overwritten by those of marginals.

        Parameters
        ----------
        block : FilteredBlock
        dpsi, F : ndarray
            As they are after :meth:`forward`.
        S : ndarray of shape (2, width)
            Marginals of the last row and their derivatives; overwritten by those of the row before.
        """
        chain, n, L = self.bc.chain, len(dpsi), self.bc.n_labels
        if block.in_logs:
            pairs = np.zeros_like(self.direction.score)
            _tangent.backward_log(
                block.alpha, chain.score, self.direction.score, dpsi, F, S, pairs, self.small, 1.0,
                block.first, L,
            )  # fmt: skip
            return pairs
        alpha, inverse, last = block.alpha[1:], block.inverse, S.copy()
        _, marginals, _ = self.bc.backward(block, S[:1], 0, n, np.ones(1))
        mu = marginals[:, 0]
        u = mu * inverse
        U = u @ self.direction.product_t
        self.small[0] = 0
        np.divide(last[1] - F[-1] * last[0], alpha[-1], out=self.small[0], where=alpha[-1] > 0)
        A = F[1:] * alpha
        _tangent.backward_scaled(
            alpha, u, alpha * inverse, mu, chain.E_t, np.array([0, n]), A, U, dpsi, self.small,
            block.first, L,
        )  # fmt: skip
        if block.first:
            u[0] = 0
        else:
            S[1] = F[0] * S[0] + block.alpha[0] * self.small[0]
        before = block.alpha[:-1]
        return self.direction.pair_sums(before, u, F[:-1] * before, U)

"""Prediction of kernel models: rows are scored by their kernels with support rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib.estimator import fitted_parameter
from sklseq._lib.threads import Threads
from sklseq.data.labels import cut_rows
from sklseq.data.sequences import check_finite
from sklseq.data.types import SequencesLike
from sklseq.estimators.base import BaseTagger
from sklseq.estimators.kernel_functions import BLOCK, RowKernel
from sklseq.inference.chain.linear_chain import row_blocks
from sklseq.inference.chain.max_marginals import max_marginals

__all__ = ["KernelTagger"]


class KernelTagger(BaseTagger):
    """A tagger that scores rows by ``coef_``, or without it by kernels with ``support_vectors_``.

    The scores of a row are its kernels with the support rows times ``dual_coef_``; the kernel is
    that of the parameters ``kernel``, ``degree`` and ``coef0`` as the last fit had them, and of
    ``gamma_``. With "precomputed", a row holds its kernels, ``support_`` being the columns, or all
    that there are.
    """

    def decision_function(self, X: SequencesLike) -> list[np.ndarray]:
        """How far the best labeling with each label at each row is below the best of all.

        With F(x, y) the score of a labeling, the entry of row t and label j is

            max_{y: y_t = j} F(x, y) - max_y F(x, y) ≤ 0.

        The label of 0 is that of :meth:`predict`, if no other labeling scores the same; its margin
        at this row is the distance to the second largest entry.

        Parameters
        ----------
        X : list of sequences
            In memory.

        Returns
        -------
        list of ndarray of shape (n_steps, n_labels)
            One array for each sequence, columns as in ``classes_``; -inf for a label that
            ``constraints`` forbid there.

        Notes
        -----
        See :func:`~sklseq.inference.max_marginals`, which costs O(n_rows · n_labels²) time.
        """
        emission, transition, start, end, offsets = self.potentials(X)
        scores = max_marginals(emission, transition, offsets, start=start, end=end)
        scores -= scores.max(axis=1, keepdims=True)
        return list(cut_rows(scores.astype(emission.dtype, copy=False), offsets))

    def _widths(self) -> set[int]:
        if hasattr(self, "coef_") or fitted_parameter(self, "kernel") != "precomputed":
            return super()._widths()
        return super()._widths() | {len(self.support_)}

    def _blocks(self, X, work) -> None:
        # Without coef_, rows are scored by their kernels with the support rows.
        if hasattr(self, "coef_"):
            super()._blocks(X, work)
            return
        check_finite(X)

        def run(block: tuple[int, int]) -> None:
            a, b = block
            first, last = X.offsets[a], X.offsets[b]
            work(a, b, self._score_rows(X.rows[first:last]), X.offsets[a : b + 1] - first, None)

        with Threads(self.n_jobs) as threads:
            threads.map(run, row_blocks(X.offsets))

    def _score_rows(self, rows: Any) -> np.ndarray:
        if hasattr(self, "coef_"):
            return super()._score_rows(rows)
        chain, L, n = self._chain(), len(self.classes_), rows.shape[0]
        function, degree, coef0 = (
            fitted_parameter(self, name) for name in ("kernel", "degree", "coef0")
        )
        kernel = RowKernel(function, getattr(self, "gamma_", 1.0), int(degree), float(coef0))
        psi = np.zeros((n, chain.width), dtype=chain.dtype)
        step = BLOCK // max(len(self.support_), 1)  # 0 for more support rows than BLOCK
        for a in range(0, n if len(self.support_) else 0, max(step, 1)):
            part = rows[a : a + max(step, 1)]
            psi[a : a + part.shape[0], :L] = self._support_kernel(kernel, part) @ self.dual_coef_
        return psi

    def _support_kernel(self, kernel: RowKernel, rows) -> np.ndarray:
        if kernel.kernel == "precomputed":
            is_chosen = rows.shape[1] != self.n_features_in_
            chosen = rows if is_chosen else rows[:, self.support_]
            return chosen.toarray() if sparse.issparse(chosen) else chosen
        return kernel(rows, self.support_vectors_)

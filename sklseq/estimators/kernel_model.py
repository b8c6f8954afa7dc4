"""Base class of kernel taggers: rows are scored by their kernels with support rows."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.estimator import fitted_parameter
from sklseq.data.labels import cut_rows
from sklseq.data.sequences import Sequences, first_not_finite
from sklseq.data.types import SequencesLike
from sklseq.estimators.base import BaseTagger
from sklseq.estimators.kernel_functions import BLOCK, RowKernel
from sklseq.inference.chain.max_marginals import max_marginals
from sklseq.objectives.scores.score_map import padded_rows


class KernelTagger(BaseTagger):
    """A tagger that scores rows by ``coef_``, or without it by kernels with ``support_vectors_``.

    The scores of a row are its kernels with the support rows times ``dual_coef_``. The kernel has
    the parameters ``kernel``, ``degree`` and ``coef0`` of the last fit, and ``gamma_``. With
    "precomputed", a row of X holds kernel values with all training rows (``support_`` selects the
    columns) or with the support rows only.
    """

    def decision_function(self, X: SequencesLike) -> list[np.ndarray]:
        """Score of the best labeling with each label at each row, minus that of the best of all.

        With F(x, y) the score of a labeling, the entry of row t and label j is

            max_{y: y_t = j} F(x, y) - max_y F(x, y) ≤ 0.

        The label with entry 0 is that of :meth:`predict`, unless several labelings tie; its margin
        at this row is its distance to the second largest entry.

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
        emission, transition, start, end, offsets = self._relative_potentials(X)
        scores = max_marginals(emission, transition, offsets, start=start, end=end)
        scores -= scores.max(axis=1, keepdims=True)
        return list(cut_rows(scores.astype(emission.dtype, copy=False), offsets))

    def _widths(self) -> set[int]:
        if hasattr(self, "coef_") or fitted_parameter(self, "kernel") != "precomputed":
            return super()._widths()
        return super()._widths() | {len(self.support_)}

    def _design(self, X: Sequences) -> tuple[Any, np.ndarray]:
        if hasattr(self, "coef_"):
            return super()._design(X)
        none = np.empty((0, len(self.classes_)), dtype=self.transition_.dtype)
        return _KernelScores(X.rows, self._support_scores), padded_rows(none)

    def _support_scores(self, rows: Any, out: np.ndarray) -> None:
        # Kernels with the support rows times dual_coef_.
        L, n = len(self.classes_), rows.shape[0]
        function, degree, coef0 = (
            fitted_parameter(self, name) for name in ("kernel", "degree", "coef0")
        )
        kernel = RowKernel(function, getattr(self, "gamma_", 1.0), int(degree), float(coef0))
        out[:] = 0
        if not len(self.support_):
            return
        step = max(1, BLOCK // len(self.support_))
        for a in range(0, n, step):
            part = rows[a : a + step]
            out[a : a + part.shape[0], :L] = self._support_kernel(kernel, part) @ self.dual_coef_

    def _support_kernel(self, kernel: RowKernel, rows) -> np.ndarray:
        if kernel.kernel == "precomputed":
            is_chosen = rows.shape[1] != self.n_features_in_
            chosen = rows if is_chosen else rows[:, self.support_]
            return chosen.toarray() if sparse.issparse(chosen) else chosen
        return kernel(rows, self.support_vectors_)


class _KernelScores(NamedTuple):
    # Scores of rows by their kernels, a design of ``ScoredRows``.
    rows: Any
    of_rows: Callable[[Any, np.ndarray], None]

    def scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> None:
        self.of_rows(self.rows[first:last], out)

    def checked_scores(self, W: np.ndarray, first: int, last: int, out: np.ndarray) -> bool:
        """Whether the rows are finite, and so ``out`` is filled."""
        finite = first_not_finite(self.rows[first:last]) is None
        if finite:
            self.scores(W, first, last, out)
        return finite

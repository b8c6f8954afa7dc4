"""What ``solver="auto"`` of a hidden Markov SVM stands for."""

from typing import Any

import numpy as np
from scipy import sparse

from sklseq.data.sequences import Sequences, made_of_ones
from sklseq.estimators.kernel_functions import fits
from sklseq.objectives.margin.hinge import StructuredHinge

# Length of sequences, on average over rows, from which "auto" is "smoothing": an update of "bcfw"
# changes the weight of one labeling of a whole sequence, and long sequences need many updates. With
# sparse rows of more columns than MANY, L-BFGS needs ten times as many iterations, and "bcfw" is
# faster for any length where it divides sequences.
LONG, LONG_SPARSE, MANY = 200, 1000, 1000
# Largest number of columns times labels, of dense and of sparse rows, and smallest number of rows,
# with which "auto" is "smoothing" for any lengths: few weights need few iterations of L-BFGS, and
# "bcfw" needs more passes for larger C.
FEW_WEIGHTS, FEW_SPARSE, MANY_ROWS = 40, 400, 1000
# C times the largest mean square of a column from which "auto" is "smoothing": "bcfw" then needs
# thousands of passes, and often ends far from the minimum. Of more columns than MANY, such as
# text, C counts as at most 1: a large C alone is no reason there.
UNSCALED = 100
# Dense columns, or columns times labels, up to which "auto" may give up "bcfw": with more,
# "smoothing" may need thousands of iterations.
FEW_COLUMNS, MOST_WEIGHTS = 100, 2000
# Evaluations of "smoothing" that m weights need, OF_ANY + OF_ROOT √m; and those that take as long
# as one update of each row by "bcfw", EVALUATIONS + OF_LENGTH times the rows of a mean sequence.
OF_ANY, OF_ROOT, EVALUATIONS, OF_LENGTH = 60, 2.5, 0.6, 0.01


def choose_solver(tagger: Any, X: Sequences, n_labels: int) -> str:
    """Return ``solver``, or the one that "auto" starts with."""
    is_large = X.is_sparse and X.shape[1] > MANY and tagger.kernel == "linear"
    least = LONG_SPARSE if is_large else LONG
    reason = _no_smoothing(tagger)
    if tagger.solver == "smoothing" and reason:
        raise ValueError(f"solver='smoothing' cannot have {reason}; use solver='bcfw'.")
    if tagger.solver != "auto":
        return tagger.solver
    is_divided = is_large and tagger.slack != "l2"
    is_long = float(X.lengths @ X.lengths) >= least * X.n_rows and not is_divided
    if tagger.kernel != "linear" and not fits(X.n_rows, tagger.cache_size):
        return "bcfw"
    wins = is_long
    if tagger.kernel == "linear":
        few = X.shape[1] * n_labels <= (FEW_SPARSE if X.is_sparse else FEW_WEIGHTS)
        wins |= few and X.n_rows >= MANY_ROWS
        C = tagger.C if X.shape[1] <= MANY else min(tagger.C, 1)
        wins = wins or C * _mean_square(X.rows) >= UNSCALED
    return "smoothing" if wins and not reason else "bcfw"


def may_change(tagger: Any, X: Sequences, n_labels: int) -> bool:
    """Whether "auto" may give up "bcfw" for "smoothing"."""
    if tagger.solver != "auto" or tagger.kernel != "linear" or _no_smoothing(tagger):
        return False
    few = not X.is_sparse and X.shape[1] <= FEW_COLUMNS
    return X.n_rows >= MANY_ROWS and (few or X.shape[1] * n_labels <= MOST_WEIGHTS)


class Outlook:
    """What "bcfw" has left to do, by how fast its duality gap has fallen."""

    def __init__(self, objective: StructuredHinge, tol: float):
        self.objective, self.tol = objective, tol
        self.n_rows = max(len(objective.y), 1)
        n_weights = len(objective.source.order) * objective.n_labels
        self.of_smoothing = OF_ANY + OF_ROOT * np.sqrt(n_weights)
        mean_length = self.n_rows / max(len(objective.C), 1)
        self.of_update = EVALUATIONS + OF_LENGTH * mean_length
        self.work, self.n_updates = 0.0, objective.n_updates
        self.points: list[tuple[float, float]] = []  # (updates of each row, log of relative gap)

    def note(self) -> None:
        """To be called after each pass."""
        objective, pieces = self.objective, self.objective.pieces
        rows = (pieces.stop - pieces.first)[objective.blocks].mean() if len(objective.blocks) else 0
        self.work += (objective.n_updates - self.n_updates) * rows / self.n_rows
        self.n_updates = objective.n_updates

    def is_bad(self) -> bool:
        """Whether "smoothing" will be faster; to be called when the gap has been measured."""
        primal, dual = self.objective.measured
        if not primal > dual > 0 or not np.isfinite(primal):
            return False
        # Relative to the dual: while the primal is far above it, gap / primal hardly falls from 1.
        now, last = self.work, float(np.log((primal - dual) / dual))
        last = min([last] + [gap for _, gap in self.points])  # the gap may rise for a while
        self.points.append((now, last))
        before = [point for point in self.points if point[0] <= now / 2]
        if not before:
            return False
        work, gap = before[-1]
        per_update = (gap - last) / (now - work)
        left = max(last - np.log(self.tol), 0)
        return bool(self.of_update * left > self.of_smoothing * per_update)


def _mean_square(rows: Any) -> float:
    # The largest mean square of a column.
    if made_of_ones(rows):
        return 1.0  # at most
    if sparse.issparse(rows):
        squares = np.bincount(rows.indices, np.square(rows.data, dtype=np.float64))
    else:
        squares = np.einsum("ij,ij->j", rows, rows, dtype=np.float64)
    return float(squares.max(initial=0.0)) / max(rows.shape[0], 1)


def _no_smoothing(tagger: Any) -> str:
    # The first parameter that "smoothing" does not support, or "".
    reasons = {
        "C=inf": np.isinf(float(tagger.C)),
        "loss='zero_one'": isinstance(tagger.loss, str) and tagger.loss == "zero_one",
        "transition_scale=0": tagger.transition_scale == 0,
        "average=True": tagger.average is True,
        "warm_start=True": tagger.warm_start,
    }
    return next((name for name, holds in reasons.items() if holds), "")

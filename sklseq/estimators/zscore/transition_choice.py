"""Choice of transitions by sequences left out."""

import numpy as np
from sklearn.base import clone

from sklseq.data.sequences import Sequences
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.zscore.part import Part
from sklseq.estimators.zscore.zscore_problem import ZScoreProblem, resolve_l2
from sklseq.objectives.zscore.moments import PairRule

# What is tried. The first is taken unless another is better by more than a standard error.
RULES = [
    *(PairRule("information", w) for w in (0.07, 0.05, 0.1, 0.03, 0.15, 0.2, 0.0, 0.3, 0.4, 0.6)),
    *(PairRule("covariance", w) for w in (None, 0.2, 0.5, 1.0, 2.0, 5.0)),
]
N_FOLDS = 5
ENOUGH = 100  # rows; of fewer, those left out say too little
# Up to FEW rows, or FEW_WIDE of more than WIDE columns, or FEW_KERNEL with a kernel, whose cost is
# quadratic or cubic in rows, all folds are left out; of more rows, a part is trained on: FRACTION
# of all rows, and at least TRAINED of FEW.
FEW, FEW_WIDE, FEW_KERNEL, WIDE = 10_000, 4_000, 1_250, 1_000
FRACTION, TRAINED = 1 / 8, 0.6
# Rows of the part that is decoded: DECODED / n_labels² within these limits.
DECODED, LEAST, MOST = 2_000_000, 2_500, 10_000


def choose_rule(problem: ZScoreProblem) -> PairRule:
    """Return the transitions with the least loss on rows that weights were not trained on."""
    if problem.source.X.n_rows < ENOUGH:
        return problem.rule
    if np.count_nonzero(problem.source.X.lengths) < N_FOLDS:
        problem = _in_pieces(problem)
    folds = _folds(problem)
    if not folds:
        return problem.rule
    loss = np.concatenate([losses(problem, *fold) for fold in folds], axis=1)
    best = int(np.argmin(loss.sum(axis=1)))
    gain = loss[0] - loss[best]
    return RULES[best if gain.sum() > np.sqrt(np.square(gain).sum()) else 0]


def losses(problem: ZScoreProblem, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Losses of shape (n_rules, n_rows) on the sequences ``test``, trained on ``train``."""
    part = Part(problem, train, test)
    left = part.left_out(resolve_l2(problem.tagger, problem.sample.n_labels))
    rows = part.rows(test)
    truth, weights = problem.sample.y[rows], problem.sample.row_weights[rows]
    cost = 1.0 - np.eye(problem.sample.n_labels) if problem.cost is None else problem.cost
    return np.array([weights * cost[truth, part.decode(left, rule)] for rule in RULES])


def _folds(problem: ZScoreProblem) -> list[tuple[np.ndarray, np.ndarray]]:
    # Pairs (train, test) of numbers of sequences, in an order drawn once and for all.
    lengths = problem.source.X.lengths
    order = np.random.default_rng(0).permutation(np.flatnonzero(lengths))
    if len(order) < 2:
        return []
    few = FEW_WIDE if problem.source.X.shape[1] > WIDE else FEW
    few = few if problem.space is None else FEW_KERNEL
    n_rows, ends = lengths.sum(), np.cumsum(lengths[order])
    if n_rows <= few:
        parts = [order[k::N_FOLDS] for k in range(min(N_FOLDS, len(order)))]
        return [(np.setdiff1d(order, part), part) for part in parts]
    n_train = max(FRACTION * n_rows, TRAINED * few)
    n_test = np.clip(DECODED / problem.sample.n_labels**2, LEAST, MOST)
    a, b = np.searchsorted(ends, [n_train, n_train + n_test]) + 1
    return [(order[:a], order[a : max(b, a + 1)])] if a < len(order) else []


def _in_pieces(problem: ZScoreProblem) -> ZScoreProblem:
    # The problem of a few long sequences, cut into pieces.
    source, bounds = problem.source, problem.source.X.offsets
    size = max(1, -(-int(bounds[-1]) // N_FOLDS))
    starts = [np.arange(a, b, size) for a, b in zip(bounds, bounds[1:])]
    weights = np.repeat(source.weights, [len(at) for at in starts])
    X = Sequences(source.X.rows, np.append(np.concatenate(starts), bounds[-1]))
    pieces = RowSource(X, source.codes, source.classes, weights)
    tagger = clone(problem.tagger).set_params(constraints=None)  # pieces may start anywhere
    space = problem.space
    return ZScoreProblem(tagger, pieces, space.gram if space and space.is_exact else None)

"""Conversion of z-score weights to a CRF: best multiple, then iterations of L-BFGS."""

import warnings
from typing import Any

import numpy as np
from scipy.optimize import brentq
from sklearn.exceptions import ConvergenceWarning

from sklseq._lib.callbacks import is_stopped
from sklseq.data.labels import encode_labels, read_labels, split_labels
from sklseq.data.sequences import Sequences, row_positions
from sklseq.estimators.sources.source import RowSource
from sklseq.estimators.zscore.kernel_space import KernelSpace
from sklseq.inference.chain.linear_chain import forward_backward
from sklseq.inference.chain.path_scores import row_scores
from sklseq.objectives.scores.score_map import observed_support

ROWS = 50_000  # largest number of rows for the estimate of a scale, which need not be exact
LARGEST = 2.0**30
PRECISION = 0.01
# The z-score has weights of all states and transitions, also of those that do not occur in y.
ALL_WEIGHTS = {"all_possible_states": True, "all_possible_transitions": True}


class Ray:
    """The derivative of a CRF's objective f(k) along k · w,

        f'(k) = Σ_s ω_s (E w·φ_s(y) - w·φ_s(ȳ)) + 2 · l2 · k ‖w‖² + l1 ‖w‖₁,

    where E is the expectation under the CRF with weights k · w. f' increases, as f is convex.

    Parameters
    ----------
    crf : CRFTagger
        Has the weights w; weights that its training drops count as 0.
    X : Sequences
    codes : ndarray of shape (n_rows,)
    weights : ndarray of shape (n_sequences,)
    square : float, optional
        Squared norm of the state weights, if it differs from that of ``coef_``.
    """

    def __init__(
        self, crf, X: Sequences, codes: np.ndarray, weights: np.ndarray,
        square: float | None = None,
    ):  # fmt: skip
        coef, transition = np.asarray(crf.coef_, float), crf.transition_.astype(float)
        seen = observed_support(X, codes, coef.shape[1])
        if not crf.all_possible_states:
            dropped = np.ones(coef.size, dtype=bool)
            dropped[seen.pairs] = False
            coef = np.where(dropped.reshape(coef.shape), 0, coef)
        if not crf.all_possible_transitions:
            transition = np.where(seen.transition | ~np.isfinite(transition), transition, 0)
        square = np.square(coef).sum() if square is None else square
        self.scores = transition, crf.start_.astype(float), crf.end_.astype(float)
        self.finite = [np.where(np.isfinite(x), x, 0) for x in self.scores]
        self.ridge = 2 * crf.l2 * (square + sum(np.square(x).sum() for x in self.finite))
        self.slope = crf.l1 * (np.abs(coef).sum() + sum(np.abs(x).sum() for x in self.finite))
        # A sample: every k-th sequence represents k sequences.
        chosen = np.arange(0, len(X), 1 + X.n_rows // ROWS)
        part, kept = X[chosen], np.repeat(np.isin(np.arange(len(X)), chosen), X.lengths)
        self.offsets = part.offsets
        self.emission = np.asarray(part.rows @ coef)
        fraction = weights[chosen].sum() / weights.sum()
        self.weights = weights[chosen] / fraction if fraction > 0 else weights[chosen]
        self.row_weights = np.repeat(self.weights, part.lengths)
        self.first, self.last, _ = row_positions(self.offsets)
        of_rows = row_scores(self.emission, *self.finite, self.offsets, codes[kept])
        self.observed = float(self.row_weights @ of_rows)

    def derivative(self, k: float) -> float:
        """f'(k)."""
        transition, start, end = (k * x for x in self.scores)
        found = forward_backward(
            k * self.emission, transition, self.offsets, start=start, end=end, weights=self.weights
        )
        p, weights, (transition, start, end) = found.marginals, self.row_weights, self.finite
        expected = weights @ np.einsum("tj,tj->t", p, self.emission)
        expected += np.vdot(found.pairwise, transition)
        expected += weights[self.first] @ (p[self.first] @ start)
        expected += weights[self.last] @ (p[self.last] @ end)
        return float(expected) - self.observed + k * self.ridge + self.slope


def best_scale(crf, X: Sequences, y, weights: np.ndarray, square: float | None = None) -> float:
    """Return k > 0 such that k times the weights of ``crf`` nearly minimise its objective.

    Returns 1 if no multiple is better than zero. Costs some ten forward-backward passes over every
    k-th sequence, about 50,000 rows unless sequences are longer.
    """
    codes = encode_labels(read_labels(y, X), crf.classes_, X.offsets)
    ray = Ray(crf, X, codes, weights, square)
    low, high = 0.0, 1.0
    while ray.derivative(high) < 0 and high < LARGEST:
        low, high = high, 2 * high
    while low == 0 and ray.derivative(high / 2) >= 0:
        high /= 2
        if high < 1 / LARGEST:
            return 1.0
    low = max(low, high / 2)
    if ray.derivative(high) <= 0:
        return high
    return float(brentq(ray.derivative, low, high, rtol=PRECISION))


CHAIN = ("coef_", "transition_", "start_", "end_")


def as_crf(
    tagger: Any, source: RowSource, fitted: dict[str, Any], space: KernelSpace | None = None
) -> dict[str, Any]:
    """Return attributes of the CRF of best multiple, after ``refine`` iterations of L-BFGS.

    With a kernel, the CRF has weights in the kernel's space: the coefficients A of the support rows
    have the squared norm tr AᵀKA, and scores of rows replace the rows.

    Parameters
    ----------
    tagger : ZScoreTagger
    source : RowSource
    fitted : dict
        Attributes of the weights of largest z-score.
    space : KernelSpace, optional
        Given with a kernel, which excludes ``refine``.
    """
    from sklseq.estimators.crf.crf_tagger import CRFTagger  # not to load a model

    crf = CRFTagger(
        l2=1.0 if tagger.l2 is None else tagger.l2, constraints=tagger.constraints,
        solver="lbfgs", tol=0.0, warm_start=True, max_iter=max(int(tagger.refine), 1),
        n_jobs=tagger.n_jobs, **ALL_WEIGHTS,
    )  # fmt: skip
    y = split_labels(source.classes[source.codes], source.X.offsets)
    if space is not None:
        return _scaled_kernels(crf, source, fitted, space, y)
    for name in (*CHAIN, "classes_", "n_features_in_"):
        setattr(crf, name, fitted[name])
    crf.vectorizer_ = None  # of rows
    scale = best_scale(crf, source.X, y, source.weights)
    crf.coef_, crf.transition_ = scale * crf.coef_, scale * crf.transition_
    if tagger.refine and not is_stopped(tagger):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            crf.fit(source.X, y, source.weights)
    return {"scale_": scale} | {name: getattr(crf, name) for name in CHAIN}


def _scaled_kernels(crf, source: RowSource, fitted: dict, space: KernelSpace, y) -> dict[str, Any]:
    coef, L = fitted["dual_coef_"], len(source.classes)
    scores = np.zeros((source.X.n_rows, L)) if L == 1 else space.training_scores(coef)
    for name in ("transition_", "start_", "end_", "classes_"):
        setattr(crf, name, fitted[name])
    crf.coef_ = np.eye(L)
    square = float(np.vdot(coef, scores[space.support]))
    scale = best_scale(crf, source.X.with_rows(scores), y, source.weights, square)
    return {"scale_": scale, "dual_coef_": scale * coef, "transition_": scale * crf.transition_}

"""Learning curves: the objective after each iteration of training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from sklseq.display._common import estimator_with, new_axes, without_frame

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008), without yellow, which is hard to see in lines.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
DASHES = ("-", "--", "-.", ":")


class Curve(NamedTuple):
    """Curve of one fit: its name, the objective at each iteration, its lower bound and scores."""

    name: str
    at: np.ndarray
    objective: np.ndarray
    unit: str
    bound: np.ndarray | None  # lower bound of the objective
    scores: np.ndarray | None  # of the validation sequences


class LossCurveDisplay:
    """Objective of training after each iteration.

    With ``early_stopping``, the scores of the validation sequences have a second axis; for margin
    taggers the dual objective, a lower bound, is drawn too.

    Parameters
    ----------
    estimators : dict of str to estimator
        Fitted; each gives a curve.

    Attributes
    ----------
    curves : list of tuple
        For each estimator ``(name, at, objective, unit, bound, scores)``.
    ax_ : matplotlib Axes
        Axes of the last plot.
    score_ax_ : matplotlib Axes or None
        Axes of the scores, if there are any.
    figure_ : matplotlib Figure

    Raises
    ------
    ValueError
        If an estimator has no ``loss_curve_``: it is not fitted, or its training is not iterative.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklseq import CRFTagger
    >>> from sklseq.display import LossCurveDisplay
    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]]
    >>> display = LossCurveDisplay.from_estimator(CRFTagger().fit(X, y))
    >>> curve = display.curves[0]
    >>> len(curve.objective) == len(curve.at), bool(curve.objective[-1] < curve.objective[0])
    (True, True)
    >>> figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
    >>> display = display.plot(ax)
    """

    ax_: Axes
    score_ax_: Axes | None

    def __init__(self, estimators: dict[str, Any]):
        if not estimators:
            raise ValueError("LossCurveDisplay needs at least one estimator.")
        self.curves = [_curve(name, each) for name, each in estimators.items()]

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, *, name: str | None = None
    ) -> LossCurveDisplay:
        """Curve of one fitted estimator; ``LossCurveDisplay({...})`` compares several.

        Parameters
        ----------
        estimator : tagger, segmenter, or pipeline or search that ends in one
        name : str, optional
            Name in the legend; by default that of the class.

        Returns
        -------
        LossCurveDisplay
        """
        fitted = estimator_with("loss_curve_", estimator, "LossCurveDisplay")
        return cls({name or type(fitted).__name__: fitted})

    def plot(self, ax: Axes | None = None, *, above_lowest: bool = False) -> LossCurveDisplay:
        """Draw the curves; the axis is logarithmic if objectives fall to less than a tenth.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        above_lowest : bool, default=False
            Whether to show the difference to the lowest objective of all curves, which separates
            nearly equal curves.

        Returns
        -------
        LossCurveDisplay
            The display itself.
        """
        ax = new_axes(self, ax)
        self.score_ax_ = None
        values = np.concatenate([curve.objective for curve in self.curves])
        lowest = float(values.min())
        for k, curve in enumerate(self.curves):
            self._plot_curve(curve, k, lowest if above_lowest else None)
        ax.set_xlabel(" or ".join(dict.fromkeys(curve.unit for curve in self.curves)))
        ax.set_ylabel("objective above the lowest" if above_lowest else "objective")
        falls = lowest > 0 and values.max() > 10 * lowest
        ax.set_yscale("log" if above_lowest or falls else "linear")
        without_frame(ax)
        self._legend()
        return self

    def _plot_curve(self, curve: Curve, k: int, lowest: float | None) -> None:
        color, dash = COLORS[k % len(COLORS)], DASHES[k % len(DASHES)]
        style: dict[str, Any] = {"color": color, "linestyle": dash}
        if len(curve.at) <= 40:
            style |= {"marker": "o", "markersize": 3}
        y = curve.objective if lowest is None else curve.objective - lowest
        seen = slice(None) if lowest is None else y > 0
        self.ax_.plot(curve.at[seen], y[seen], label=curve.name, **style)
        if curve.bound is not None and lowest is None:
            name = f"{curve.name}, bound"
            self.ax_.plot(curve.at, curve.bound, color=color, alpha=0.6, linestyle=":", label=name)
        if curve.scores is not None:
            self._plot_scores(curve.name, curve.scores, color)

    def _plot_scores(self, name: str, scores: np.ndarray, color: str) -> None:
        if self.score_ax_ is None:
            self.score_ax_ = self.ax_.twinx()
            self.score_ax_.set_ylabel("validation score (thin, ×)")
            self.score_ax_.spines[["top", "left"]].set_visible(False)
        at = np.arange(1, len(scores) + 1)
        label = f"{name}, score"
        self.score_ax_.plot(
            at, scores, label=label, color=color, linewidth=0.8, marker="x", markersize=4, alpha=0.8
        )

    def _legend(self) -> None:
        # The legend is above the axes, so that it covers no curve.
        axes = [ax for ax in (self.ax_, self.score_ax_) if ax is not None]
        drawn = [pair for ax in axes for pair in zip(*ax.get_legend_handles_labels())]
        handles, labels = [handle for handle, _ in drawn], [label for _, label in drawn]
        if len(handles) > 1:
            n = 3 if max(map(len, labels)) < 20 else 2
            self.ax_.legend(
                handles, labels, frameon=False, ncols=n, loc="lower left", bbox_to_anchor=(0, 1.0)
            )


def _curve(name: str, estimator: Any) -> Curve:
    estimator = estimator_with("loss_curve_", estimator, "LossCurveDisplay")
    history = np.asarray(estimator.loss_curve_, dtype=float)
    if history.ndim == 2:  # passes, primal and dual objective, gap
        return Curve(name, history[:, 0], history[:, 1], "pass", history[:, 2], None)
    n = getattr(estimator, "n_iter_", -1)
    scores = getattr(estimator, "validation_scores_", None)
    if len(history) == n + 1:
        at, unit = np.arange(n + 1.0), "iteration"
    else:
        at, unit = np.arange(1.0, len(history) + 1), "evaluation"
    scores = None if scores is None else np.asarray(scores, dtype=float)
    return Curve(name, at, history, unit, None, scores)

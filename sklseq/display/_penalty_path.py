"""Scores of a search over penalties, with the spread over folds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from sklseq._lib.checks import is_number
from sklseq.data.types import ArrayLike
from sklseq.display._common import new_axes, without_frame
from sklseq.display._loss import COLORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class PenaltyPathDisplay:
    """Mean score of cross-validation along a penalty; bars show the standard error over folds.

    Parameters
    ----------
    values : array-like of shape (n_values,)
        Penalties.
    scores : array-like of shape (n_folds, n_values) or (n_folds, n_curves, n_values)
    name : str, default="penalty"
        Name of the penalty.
    best : (curve, value), optional
        Positions of the chosen point, which is marked.
    curves : list of str, optional
        Names of the curves, if there are several.

    Attributes
    ----------
    values : ndarray of shape (n_values,)
    mean, error : ndarray of shape (n_curves, n_values)
        Mean score, and its standard error over folds: their standard deviation / √n_folds.
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure

    Raises
    ------
    ValueError
        If scores, values, best and curves do not match, or an estimator has no scores of a search.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklseq import CRFTaggerCV
    >>> from sklseq.display import PenaltyPathDisplay
    >>> X, y = [[["a"], ["b"]], [["b"], ["a"]]] * 2, [["A", "B"], ["B", "A"]] * 2
    >>> search = CRFTaggerCV(l2s=[0.1, 1.0], cv=2).fit(X, y)
    >>> display = PenaltyPathDisplay.from_estimator(search)
    >>> display.name, display.mean.shape
    ('l2', (1, 2))
    >>> figure, ax = plt.subplots(figsize=(5, 3.5), layout="constrained")
    >>> display = display.plot(ax)
    """

    ax_: Axes

    def __init__(
        self,
        values: ArrayLike,
        scores: ArrayLike,
        *,
        name: str = "penalty",
        best: tuple[int, int] | None = None,
        curves: list[str] | None = None,
    ):
        self.values, given = _as_floats("values", values), _as_floats("scores", scores)
        if self.values.ndim != 1:
            raise ValueError(f"values must be a list of numbers; got shape {self.values.shape}.")
        scores = given[:, None] if given.ndim == 2 else given
        if scores.ndim != 3 or not scores.size or scores.shape[2] != len(self.values):
            raise ValueError(
                f"scores must have one column for each of the {len(self.values)} values, and a row "
                f"for each fold; got shape {given.shape}."
            )
        _check_best(best, scores.shape[1:])
        if curves is not None and (isinstance(curves, str) or len(curves) != scores.shape[1]):
            raise ValueError(f"curves must hold {scores.shape[1]} names; got {curves!r}.")
        self.mean = scores.mean(axis=0)
        self.error = scores.std(axis=0, ddof=int(len(scores) > 1)) / np.sqrt(len(scores))
        self.name, self.best, self.curves = name, best, curves

    @classmethod
    def from_estimator(cls, estimator: BaseEstimator) -> PenaltyPathDisplay:
        """Scores of a fitted ``CRFTaggerCV`` or ``HMSVMTaggerCV``, or a pipeline that ends in one.

        The horizontal axis is C or l2, or l1 if only ``l1s`` has several values.

        Parameters
        ----------
        estimator : estimator

        Returns
        -------
        PenaltyPathDisplay
        """
        search: Any = estimator[-1] if isinstance(estimator, Pipeline) else estimator
        if not hasattr(search, "scores_"):
            raise ValueError(
                f"PenaltyPathDisplay needs a fitted search with scores_, such as CRFTaggerCV; this "
                f"{type(search).__name__} has none."
            )
        if hasattr(search, "Cs_"):
            at = int(np.flatnonzero(search.Cs_ == search.C_)[0])
            return cls(search.Cs_, search.scores_, name="C", best=(0, at))
        l1s, l2s, scores, names = search.l1s_, search.l2s_, search.scores_, ["l1", "l2"]
        best = [int(np.flatnonzero(x == x_)[0]) for x, x_ in ((l1s, search.l1_), (l2s, search.l2_))]
        if len(l2s) == 1 < len(l1s):
            l1s, l2s, scores, names, best = l2s, l1s, scores.swapaxes(1, 2), names[::-1], best[::-1]
        curves = [f"{names[0]} = {value:g}" for value in l1s] if len(l1s) > 1 else None
        return cls(l2s, scores, name=names[1], best=(best[0], best[1]), curves=curves)

    def plot(self, ax: Axes | None = None) -> PenaltyPathDisplay:
        """Draw a curve of mean scores with error bars; the best point is a star.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        PenaltyPathDisplay
            The display itself.
        """
        ax = new_axes(self, ax)
        order = np.argsort(self.values)
        for k, (mean, error) in enumerate(zip(self.mean, self.error)):
            ax.errorbar(
                self.values[order], mean[order], error[order], capsize=2, elinewidth=0.8,
                marker="o", markersize=3, color=COLORS[k % len(COLORS)],
                label=None if self.curves is None else self.curves[k],
            )  # fmt: skip
        if self.best is not None:
            k, at = self.best
            ax.plot(
                self.values[at], self.mean[k, at], marker="*", markersize=13, linestyle="none",
                color=COLORS[k % len(COLORS)], label=f"best: {self.name} = {self.values[at]:.3g}",
            )  # fmt: skip
        self._scale(ax)
        ax.set_xlabel(self.name)
        ax.set_ylabel("score, mean and standard error over folds")
        without_frame(ax)
        if ax.get_legend_handles_labels()[1]:  # above the axes, where it covers no curve
            ax.legend(frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1.0))
        return self

    def _scale(self, ax: Axes) -> None:
        # Logarithmic; linear below the smallest positive value if 0 is among the values.
        positive = self.values[self.values > 0]
        if len(positive) and (self.values == 0).any():
            ax.set_xscale("symlog", linthresh=positive.min())
        elif len(positive):
            ax.set_xscale("log")


def _as_floats(name: str, given: ArrayLike) -> np.ndarray:
    try:
        return np.asarray(given, float)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name} must be an array of numbers; got {given!r}.") from None


def _check_best(best: Any, shape: tuple[int, ...]) -> None:
    if best is None:
        return
    pair = np.asarray(best, dtype=object)
    whole = pair.shape == (2,) and all(is_number(k, whole=True) for k in pair)
    if not whole or not all(0 <= k < n for k, n in zip(pair, shape)):
        raise ValueError(
            f"best must be a position (curve, value) below ({shape[0]}, {shape[1]}); got {best!r}."
        )

"""Heat map of transition weights."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from sklseq._lib.checks import check_names
from sklseq.data.types import ArrayLike
from sklseq.display._common import HeatMap, estimator_with, new_axes, write_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class TransitionsDisplay:
    """Weights of transitions, starts and ends as a heat map.

    Orange cells have negative weights, violet cells positive ones, white cells 0; forbidden
    transitions are hatched. Both colours are distinct with any colour vision, and cells of small
    maps have numbers.

    Parameters
    ----------
    transition : array-like of shape (n_labels, n_labels)
        From the label of the row to that of the column; -inf if forbidden.
    labels : array-like of shape (n_labels,)
    start, end : array-like of shape (n_labels,), optional
        Weights of first and last labels, shown if one is not 0.

    Attributes
    ----------
    transition, labels, start, end
        As given, as arrays.
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure

    Raises
    ------
    ValueError
        If the shapes do not match.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklseq import CRFTagger
    >>> from sklseq.display import TransitionsDisplay
    >>> tagger = CRFTagger().fit([[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]])
    >>> display = TransitionsDisplay.from_estimator(tagger)
    >>> display.transition.shape
    (2, 2)
    >>> figure, ax = plt.subplots(figsize=(4, 3), layout="constrained")
    >>> display = display.plot(ax)
    """

    def __init__(
        self,
        transition: ArrayLike,
        labels: Iterable[Hashable],
        *,
        start: ArrayLike | None = None,
        end: ArrayLike | None = None,
    ):
        self.transition = np.asarray(transition, dtype=float)
        self.labels = np.asarray(check_names(labels, "labels", "label"))
        n = len(self.labels)
        self.start, self.end = (
            np.zeros(n) if each is None else np.asarray(each, dtype=float) for each in (start, end)
        )
        shapes = self.transition.shape, self.start.shape, self.end.shape
        if shapes != ((n, n), (n,), (n,)):
            raise ValueError(
                f"transition, start and end must have the shapes {(n, n)}, {(n,)} and {(n,)}, as "
                f"there are {n} labels; got {', '.join(map(str, shapes))}."
            )

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, *, labels: Iterable[Hashable] | None = None
    ) -> TransitionsDisplay:
        """Weights of a fitted tagger or segmenter.

        Parameters
        ----------
        estimator : tagger, segmenter, or pipeline or search that ends in one
        labels : list of labels, optional
            The labels to show, in this order. By default all, sorted by type
            ("B-LOC" beside "I-LOC").

        Returns
        -------
        TransitionsDisplay

        Raises
        ------
        ValueError
            If the estimator has no transitions, or a label is unknown.
        """
        tagger = estimator_with("transition_", estimator, "TransitionsDisplay")
        known = list(tagger.classes_)
        labels = sorted(known, key=_by_type) if labels is None else labels
        labels = check_names(labels, "labels", "label")
        unknown = [label for label in labels if label not in known]
        if unknown or not labels:
            raise ValueError(f"labels must be some of {known}; got {labels}.")
        which = [known.index(label) for label in labels]
        return cls(
            tagger.transition_[np.ix_(which, which)],
            labels,
            start=tagger.start_[which],
            end=tagger.end_[which],
        )

    def plot(
        self, ax: Axes | None = None, *, cmap: str = "PuOr", values: bool | None = None
    ) -> TransitionsDisplay:
        """Draw the heat map.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        cmap : str, default="PuOr"
            A diverging map; its middle is weight 0.
        values : bool, optional
            Whether to write weights that do not round to 0 into the cells; by default if there
            are at most 16 labels.

        Returns
        -------
        TransitionsDisplay
            The display itself.
        """
        weights, rows, columns = self._table()
        n = max(weights.shape)
        side = float(np.clip(1.8 + 0.42 * n, 4.0, 11.0))
        ax = new_axes(self, ax, (side + 0.6, side))
        finite = np.abs(weights[np.isfinite(weights)])
        limit = float(finite.max(initial=0.0)) or 1.0
        shown = np.where(np.isfinite(weights), weights, np.nan)
        heat = HeatMap(ax, shown, rows, columns, cmap=cmap, vmin=-limit, vmax=limit)
        heat.colorbar("weight")
        if write_values(values, n):
            heat.write(np.where(np.abs(shown) >= 0.05, np.char.mod("%.1f", shown), ""))
        ax.set(xlabel="label", ylabel="previous label")
        return self

    def _table(self) -> tuple[np.ndarray, list[str], list[str]]:
        # Starts are an additional first row, ends a last column; their common cell has no value.
        names = [str(label) for label in self.labels]
        rows, columns, weights = names, names, self.transition
        if self.start.any() or self.end.any():
            weights = np.vstack([self.start, weights])
            weights = np.hstack([weights, np.append(np.nan, self.end)[:, None]])
            rows, columns = ["(start)", *names], [*names, "(end)"]
        return weights, rows, columns


def _by_type(label: Any) -> tuple[str, str]:
    prefix, dash, type_ = str(label).partition("-")
    return (type_, prefix) if dash else ("", prefix)

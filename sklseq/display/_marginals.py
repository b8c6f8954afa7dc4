"""Heat map of the marginal probabilities of labels in one sequence."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from sklseq._lib.checks import check_names, check_number
from sklseq.data.input_kinds import check_one_sequence
from sklseq.data.types import ArrayLike, MatrixLike, TokensLike
from sklseq.display._common import HeatMap, estimator_with, new_axes, tokens_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class MarginalsDisplay:
    """Probability of each label at each row of one sequence.

    Darker cells are more probable. A dot marks the predicted label, a ring the true label where
    it differs; the marks are distinct without colour.

    Parameters
    ----------
    proba : array-like of shape (n_steps, n_labels)
    labels : array-like of shape (n_labels,)
    tokens : list of str, optional
        Names of the rows; by default their numbers.
    y_pred, y_true : list of labels, optional
        Predicted and true label of each row.

    Attributes
    ----------
    proba, labels, tokens, y_pred, y_true
        As given.
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure

    Raises
    ------
    ValueError
        If the lengths do not match.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklseq import CRFTagger
    >>> from sklseq.display import MarginalsDisplay
    >>> tagger = CRFTagger().fit([[["a"], ["b"]], [["b"], ["a"]]], [["A", "B"], ["B", "A"]])
    >>> display = MarginalsDisplay.from_estimator(tagger, [["a"], ["b"]], tokens=["a", "b"])
    >>> display.proba.sum(axis=1).round(6)
    array([1., 1.])
    >>> figure, ax = plt.subplots(figsize=(3, 2.5), layout="constrained")
    >>> display = display.plot(ax)
    """

    def __init__(
        self,
        proba: ArrayLike,
        labels: Iterable[Hashable],
        *,
        tokens: Sequence[Any] | None = None,
        y_pred: Iterable[Hashable] | None = None,
        y_true: Iterable[Hashable] | None = None,
    ):
        self.proba = np.asarray(proba, dtype=float)
        self.labels = np.asarray(check_names(labels, "labels", "label"))
        if self.proba.ndim != 2 or self.proba.shape[1] != len(self.labels):
            raise ValueError(
                f"proba must have the shape (n_steps, {len(self.labels)}), as there are "
                f"{len(self.labels)} labels; got {self.proba.shape}."
            )
        n = len(self.proba)
        self.tokens = list(map(str, range(n) if tokens is None else tokens))
        self.y_pred, self.y_true = (None if y is None else list(y) for y in (y_pred, y_true))
        for name in ("tokens", "y_pred", "y_true"):
            _check_length(name, getattr(self, name), n)

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        x: MatrixLike | TokensLike,
        y: Iterable[Hashable] | None = None,
        *,
        tokens: Sequence[Any] | None = None,
    ) -> MarginalsDisplay:
        """Marginals and predictions of a fitted estimator for one sequence.

        Parameters
        ----------
        estimator : tagger, segmenter or pipeline
            With ``predict_proba``.
        x : one sequence
            An item of the list that ``predict`` takes.
        y : list of labels, optional
            True labels.
        tokens : list of str, optional
            By default the first column of ``x`` if it holds words, otherwise numbers.

        Returns
        -------
        MarginalsDisplay

        Raises
        ------
        ValueError
            If the estimator has no ``predict_proba``.
        """
        if not hasattr(estimator, "predict_proba"):
            raise ValueError(
                f"MarginalsDisplay needs predict_proba, which {type(estimator).__name__} lacks; "
                "train a CRFTagger."
            )
        check_one_sequence(x)
        (proba,), (predicted,) = estimator.predict_proba([x]), estimator.predict([x])
        labels = estimator_with("classes_", estimator, "MarginalsDisplay").classes_
        if len(predicted) and isinstance(predicted[0], tuple):  # segments
            predicted = _of_segments(predicted, len(proba), labels)
        y = None if y is None else list(y)
        _check_length("y", y, len(proba))
        if tokens is None:
            try:
                tokens = tokens_of(x)
            except ValueError:
                tokens = None
        return cls(proba, labels, tokens=tokens, y_pred=predicted, y_true=y)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        start: int = 0,
        stop: int | None = None,
        cmap: str = "Blues",
    ) -> MarginalsDisplay:
        """Draw the heat map.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        start, stop : int, optional
            Rows to show; by default the first 40.
        cmap : str, default="Blues"

        Returns
        -------
        MarginalsDisplay
            The display itself.
        """
        check_number("start", start, whole=True)
        check_number("stop", stop, whole=True, optional=True)
        rows = range(len(self.proba))[start : start + 40 if stop is None else stop]
        size = (
            float(np.clip(2.4 + 0.3 * len(rows), 4.5, 14)),
            float(np.clip(1.4 + 0.28 * len(self.labels), 2.4, 9)),
        )
        ax = new_axes(self, ax, size)
        names = [str(label) for label in self.labels]
        tokens = [self.tokens[t] for t in rows]
        heat = HeatMap(ax, self.proba[rows].T, names, tokens, cmap=cmap, vmin=0, vmax=1)
        heat.colorbar("probability")
        self._mark(ax, rows)
        return self

    def _mark(self, ax: Any, rows: range) -> None:
        code = {label: k for k, label in enumerate(self.labels.tolist())}

        def scatter(y: list, chosen: Iterable[bool], name: str, **style: Any) -> None:
            at = [(k, code[y[t]]) for k, (t, ok) in enumerate(zip(rows, chosen)) if ok]
            if at:
                ax.scatter(*zip(*at), label=name, zorder=3, **style)
                ax.legend(frameon=False, ncols=2, loc="lower left", bbox_to_anchor=(0, 1.0))

        pred, true = self.y_pred, self.y_true
        if pred is not None:
            known = (pred[t] in code for t in rows)
            scatter(
                pred, known, "predicted", s=14, color="#E69F00", edgecolor="black", linewidth=0.5
            )
        if true is not None:
            wrong = (true[t] in code and (pred is None or pred[t] != true[t]) for t in rows)
            scatter(true, wrong, "right" if pred is None else "right instead", s=60,
                    facecolor="none", edgecolor="#D55E00", linewidth=1.6)  # fmt: skip


def _check_length(name: str, values: list | None, n: int) -> None:
    if values is not None and len(values) != n:
        raise ValueError(f"{name} must have one entry per row, {n}; got {len(values)}.")


def _of_segments(segments: Any, n: int, labels: np.ndarray) -> list:
    known = set(labels.tolist())
    outside = next((label for label in ("O", "") if label in known), "O")
    out = [outside] * n
    for start, stop, label in segments:
        out[start:stop] = [label] * (stop - start)
    return out

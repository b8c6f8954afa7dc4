"""Confusion matrix of spans: right, of another type, with other bounds, or missed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from sklearn.base import BaseEstimator

from sklseq._lib.checks import check_names, counted
from sklseq.data.labels import as_label_sequences, cut_rows
from sklseq.data.segment_labels import read_triple
from sklseq.data.strict_spans import check_mode, read_spans
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.display._common import HeatMap, new_axes, write_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BOUNDS, NOTHING = "other bounds", "nothing"


class SpanConfusionDisplay:
    """Confusion matrix of whole spans.

    A true span counts in the column of the type predicted for exactly its rows; in "other bounds"
    if only other predicted spans overlap it; otherwise in "nothing". The two last rows count
    predicted spans whose rows are not exactly those of a true span: the last but one counts spans
    that overlap a true span, the last one the others.

    Parameters
    ----------
    counts : ndarray of int, shape (n_types + 2, n_types + 2)
        Rows: true; columns: predicted. The last but one is "other bounds", the last "nothing".
    types : list of str
        Types of the spans.

    Attributes
    ----------
    counts, types
        As given.
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklseq.display import SpanConfusionDisplay
    >>> y_true = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "O"]]
    >>> y_pred = [["B-PER", "O", "O", "B-LOC"], ["B-PER", "B-PER"]]
    >>> display = SpanConfusionDisplay.from_predictions(y_true, y_pred)
    >>> display.types
    ['LOC', 'PER']
    >>> display.counts
    array([[1, 1, 0, 0],
           [0, 0, 1, 0],
           [0, 1, 0, 0],
           [0, 1, 0, 0]])
    >>> figure, ax = plt.subplots(figsize=(4.5, 3.5), layout="constrained")
    >>> display = display.plot(ax)
    """

    def __init__(self, counts: ArrayLike, types: list[str]):
        self.counts = np.asarray(counts)
        self.types = list(map(str, check_names(types, "types", "span type")))
        n = len(self.types) + 2
        if self.counts.shape != (n, n):
            raise ValueError(
                f"counts must have the shape {(n, n)}, one row and column for each type "
                f"and two more; got {self.counts.shape}."
            )

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: SequencesLike,
        y: LabelsLike,
        *,
        types: Iterable[str] | None = None,
        outside: str = "O",
        mode: str = "conlleval",
        scheme: str | None = None,
    ) -> SpanConfusionDisplay:
        """Confusion matrix of the predictions of an estimator.

        Parameters
        ----------
        estimator : tagger, segmenter or pipeline
            Fitted; ``predict`` gives labels in IOB2, IOBES or BILOU, or segments.
        X : list of sequences
        y : list of label sequences, or of lists of (start, stop, type)
        types, outside, mode, scheme
            See :meth:`from_predictions`.

        Returns
        -------
        SpanConfusionDisplay
        """
        return cls.from_predictions(
            y, estimator.predict(X), types=types, outside=outside, mode=mode, scheme=scheme
        )

    @classmethod
    def from_predictions(
        cls,
        y_true: LabelsLike,
        y_pred: LabelsLike,
        *,
        types: Iterable[str] | None = None,
        outside: str = "O",
        mode: str = "conlleval",
        scheme: str | None = None,
    ) -> SpanConfusionDisplay:
        """Confusion matrix of true and predicted labels or segments.

        Parameters
        ----------
        y_true, y_pred : list of label sequences, or of lists of (start, stop, type)
        types : list of str, optional
            The types to show, in this order; spans of other types are omitted. By default all
            types, the most frequent first.
        outside : str, default="O"
            Label and type of rows that belong to no span.
        mode : {"conlleval", "strict"}, default="conlleval"
            Whether broken spans of labels are read, as conlleval does, or only valid spans of
            `scheme`.
        scheme : {"iob1", "iob2", "ioe1", "ioe2", "iobes", "bilou"} or None, default=None
            Meaning of the prefixes; required for ``mode="strict"``.

        Returns
        -------
        SpanConfusionDisplay

        Raises
        ------
        ValueError
            If the numbers or the lengths of sequences differ.
        """
        check_mode(mode, scheme)
        true: list[list] = [list(x) for x in y_true]
        predicted: list[list] = [list(x) for x in y_pred]
        if len(true) != len(predicted):
            raise ValueError(
                f"y_true and y_pred must hold the same number of sequences; got {len(true)} and "
                f"{len(predicted)}."
            )
        for s, pair in enumerate(zip(true, predicted)):
            _check_lengths(s, *pair)
        sides = ((true, "y_true"), (predicted, "y_pred"))
        pairs = list(zip(*(_spans(y, outside, scheme, name) for y, name in sides)))
        if types is None:
            types = _by_frequency(pairs)
        types = check_names(types, "types", "span type")
        code = {type_: k for k, type_ in enumerate(types)}
        counts = np.zeros((len(code) + 2, len(code) + 2), dtype=np.int64)
        for pair in pairs:
            one, other = ([x for x in spans if x[2] in code] for spans in pair)
            _count(one, other, code, counts)
        return cls(counts, types)

    def plot(
        self,
        ax: Axes | None = None,
        *,
        normalize: bool = True,
        cmap: str = "Blues",
        values: bool | None = None,
    ) -> SpanConfusionDisplay:
        """Draw the matrix.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        normalize : bool, default=True
            Whether colours show the fraction of each row, so that rare types are visible; the
            numbers are always counts.
        cmap : str, default="Blues"
        values : bool, optional
            Whether to write the counts into the cells; by default up to 16 types.

        Returns
        -------
        SpanConfusionDisplay
            The display itself.
        """
        n = len(self.counts)
        side = float(np.clip(2.2 + 0.45 * n, 4.2, 11.0))
        ax = new_axes(self, ax, (side + 0.8, side))
        total = self.counts.sum(axis=1, keepdims=True)
        shown = self.counts / np.maximum(total, 1) if normalize else self.counts.astype(float)
        vmax = 1.0 if normalize else max(float(shown.max()), 1.0)
        rows = [f"{type_} ({k})" for type_, k in zip(self.types, total[:, 0].tolist())]
        # These cells have no meaning: a span is neither true nor predicted there.
        shown[-2:, -2:] = np.nan
        heat = HeatMap(
            ax, shown, [*rows, BOUNDS, NOTHING], [*self.types, BOUNDS, NOTHING],
            cmap=cmap, vmin=0, vmax=vmax,
        )  # fmt: skip
        heat.colorbar("fraction of the row" if normalize else "spans")
        if write_values(values, n):
            heat.write(np.where(self.counts, self.counts.astype(str), ""))
        for line in (ax.axhline, ax.axvline):
            line(n - 2.5, color="0.4", linewidth=1.2)
        ax.set(xlabel="predicted as", ylabel="true (number)")
        return self


def _check_lengths(s: int, true: list, predicted: list) -> None:
    of_labels = [len(x) for x in (true, predicted) if _are_labels(x)]
    if len(of_labels) == 2 and of_labels[0] != of_labels[1]:
        raise ValueError(
            f"Sequence {s} has {counted(of_labels[0], 'label')} in y_true but {of_labels[1]} in "
            "y_pred."
        )


def _are_labels(x: list) -> bool:
    return bool(x) and isinstance(x[0], str)


def _spans(
    y: list[list], outside: str, scheme: str | None, name: str
) -> list[list[tuple[int, int, str]]]:
    # Spans of each sequence, of labels or of segments.
    flat, offsets = as_label_sequences([x if _are_labels(x) else [] for x in y], name)
    found = read_spans(flat.astype(np.str_), offsets, scheme, name, outside)
    sequence = np.searchsorted(offsets, found.start, side="right") - 1
    start, stop = ((at - offsets[sequence]).tolist() for at in (found.start, found.stop))
    triples = list(zip(start, stop, map(found.types.__getitem__, found.type.tolist())))
    of_labels = cut_rows(triples, np.searchsorted(sequence, np.arange(len(y) + 1)))
    return [
        one if not x or _are_labels(x) else _read_segments(x, s, name, outside)
        for s, (x, one) in enumerate(zip(y, of_labels))
    ]


def _read_segments(x: list, s: int, name: str, outside: str) -> list[tuple[int, int, str]]:
    triples = (read_triple(one, s, k, name) for k, one in enumerate(x))
    return [triple for triple in triples if triple[2] != outside]


def _by_frequency(pairs: list) -> list[str]:
    count = Counter(type_ for true, _ in pairs for _, _, type_ in true)
    count.update({type_: 0 for _, predicted in pairs for _, _, type_ in predicted})
    return sorted(count, key=lambda type_: (-count[type_], type_))


def _count(true: list, predicted: list, code: dict[str, int], counts: np.ndarray) -> None:
    bounds, nothing = len(code), len(code) + 1
    at = {span[:2]: code[span[2]] for span in predicted}
    for start, stop, type_ in true:
        found = at.get((start, stop))
        if found is None:
            found = bounds if _overlaps(start, stop, predicted) else nothing
        counts[code[type_], found] += 1
    exact = {span[:2] for span in true}
    for start, stop, type_ in predicted:
        if (start, stop) not in exact:
            counts[bounds if _overlaps(start, stop, true) else nothing, code[type_]] += 1


def _overlaps(start: int, stop: int, spans: list) -> bool:
    return any(a < stop and start < b for a, b, _ in spans)

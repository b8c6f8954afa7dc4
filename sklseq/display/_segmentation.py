"""Segments in colour, as HTML and as a plot, and F1 of each type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import BaseEstimator

from sklseq._lib.checks import check_number, counted
from sklseq._lib.ragged import offsets_of
from sklseq.data.segment_labels import labels_to_segments, segments_to_labels
from sklseq.data.tables import first_column
from sklseq.data.types import LabelsLike, SequencesLike
from sklseq.display._common import (
    MARK,
    ROW,
    lay_out,
    new_axes,
    rgb,
    style_of,
    tokens_of,
    write_words,
)
from sklseq.metrics import span_precision_recall_fscore_support

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Segments = list[tuple[int, int, str]]
# Type or "", words, segment.
_Piece = tuple[str, list[str], tuple[int, int, str] | None]


class SegmentationDisplay:
    """Sequences of tokens with their segments in colour.

    A notebook shows it as HTML; :meth:`plot` draws the same with matplotlib, :meth:`plot_f1` the
    F1 of each type of segment. Colours are distinct with any colour vision, and every segment also
    has the name of its type.

    Parameters
    ----------
    tokens : list of list of str
    segments : list of segmentations
        For each sequence a list of (start, stop, type), half-open, or its IOB2 labels.
    true : list of segmentations, optional
        The true segments, shown below.
    outside : str, default="O"
        Label and type of rows that belong to no segment.

    Attributes
    ----------
    tokens, outside
        As given.
    segments, true : list of list of (start, stop, type)
        Without segments of type ``outside``; ``true`` may be None.
    types : list of str
        Types of all segments, sorted: their colours in order.
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure

    Raises
    ------
    ValueError
        If there is not one segmentation per sequence, or one does not fit its sequence.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklseq.display import SegmentationDisplay
    >>> display = SegmentationDisplay([["J.", "Doe", "in", "Rome"]],
    ...                               [[(0, 2, "person"), (3, 4, "city")]])
    >>> display.types
    ['city', 'person']
    >>> print(display.as_text())
    [person J. Doe] in [city Rome]
    >>> figure, ax = plt.subplots(figsize=(3, 0.8), layout="constrained")
    >>> display = display.plot(ax, width=30)
    """

    def __init__(
        self,
        tokens: Iterable[Sequence[Any]],
        segments: Iterable[Iterable[Any]],
        true: Iterable[Iterable[Any]] | None = None,
        *,
        outside: str = "O",
    ):
        self.tokens = [list(map(str, first_column(sequence))) for sequence in tokens]
        self.outside = outside
        self.segments = self._segments(segments, "segments")
        self.true = None if true is None else self._segments(true, "true")
        every = [s for several in (self.segments, self.true or []) for seq in several for s in seq]
        self.types = sorted({type_ for _, _, type_ in every})

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: SequencesLike,
        y: LabelsLike | None = None,
        *,
        outside: str = "O",
    ) -> SegmentationDisplay:
        """Segments that an estimator predicts.

        Parameters
        ----------
        estimator : segmenter, tagger or pipeline
            Fitted; ``predict`` gives segments, or IOB2 or IOBES labels.
        X : list of sequences
            Lists of str, or mappings or rows whose first column is shown.
        y : list of segmentations, optional
            The true segments.
        outside : str, default="O"

        Returns
        -------
        SegmentationDisplay
        """
        return cls([tokens_of(x) for x in X], estimator.predict(X), y, outside=outside)

    def as_text(self) -> str:
        """Return the tokens with segments in brackets, one sequence per line.

        Returns
        -------
        str
        """
        return "\n".join(
            " ".join(
                f"[{type_} {' '.join(words)}]" if type_ else " ".join(words)
                for type_, words, _ in pieces
            )
            for pieces in self._pieces(self.segments)
        )

    def _repr_html_(self) -> str:
        """HTML with all colours inline; text is escaped."""
        rows = []
        for s, pieces in enumerate(self._pieces(self.segments)):
            right = None if self.true is None else set(self.true[s])
            rows.append(f'<div style="{ROW}{_FONT}">{self._html(pieces, right)}</div>')
            if self.true is not None and right != set(self.segments[s]):
                true = self._html(next(self._pieces([self.true[s]], s)), None)
                rows.append(f'<div style="{ROW}{_FONT}{_TRUTH}"><small>true: </small>{true}</div>')
        return "\n".join(rows)

    def plot(self, ax: Axes | None = None, *, width: int = 90) -> SegmentationDisplay:
        """Draw the sequences, with ``width`` letters in a line.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        width : int, default=90

        Returns
        -------
        SegmentationDisplay
            The display itself. With ``true``, its segments are the bars below the text.
        """
        check_number("width", width, 1, whole=True)
        texts = ((" ".join(tokens), self._spans(s)) for s, tokens in enumerate(self.tokens))
        lines, bottom = lay_out(texts, width, 0.5)
        size = (0.07 * (width + 2), 0.4 + 0.42 * bottom)  # a letter of 8 points is 0.067 wide
        ax = new_axes(self, ax, size)
        for y, line in lines:
            # Predicted segments, which have names, come before the true ones.
            starts = [begin for (_, below, _), begin, *_ in line.marks if not below]
            for mark, limit in zip(line.marks, chain(starts[1:], repeat(width + 1))):
                self._draw(ax, y, mark, limit)
            write_words(ax, y, line)
        ax.set(xlim=(-1, width + 1), ylim=(bottom - 0.3, -0.8))
        ax.axis("off")
        return self

    def plot_f1(self, ax: Axes | None = None) -> SegmentationDisplay:
        """Draw F1, precision and recall of each type, the most frequent one first.

        Parameters
        ----------
        ax : matplotlib Axes, optional

        Returns
        -------
        SegmentationDisplay
            The display itself.

        Raises
        ------
        ValueError
            If the true segments are not known, or there are no segments at all.
        """
        if self.true is None:
            raise ValueError("plot_f1 needs the true segments; give them as true= or y=.")
        if not self.types:
            raise ValueError("plot_f1 needs segments; there are none, true or predicted.")
        y_true, y_pred = (
            [
                segments_to_labels(segments, len(tokens))
                for segments, tokens in zip(several, self.tokens)
            ]
            for several in (self.true, self.segments)
        )
        scores = span_precision_recall_fscore_support(
            y_true, y_pred, average=None, labels=self.types
        )
        precision, recall, f1, support = map(np.asarray, scores)
        order = np.argsort(support, kind="stable")
        ax = new_axes(self, ax, (6, 1.0 + 0.32 * len(self.types)))
        at = np.arange(len(order))
        ax.barh(at, 100 * f1[order], color="#56B4E9", height=0.7, label="F1")
        ax.plot(100 * precision[order], at, "o", color="#D55E00", label="precision")
        ax.plot(100 * recall[order], at, "D", mfc="none", color="k", label="recall")
        ax.set_yticks(at, [f"{self.types[k]} ({support[k]})" for k in order])
        ax.set(xlabel="segments (%)", xlim=(0, 104))
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.45, 1.0))
        return self

    # --- Input

    def _segments(self, several: Any, name: str) -> list[Segments]:
        several = list(several)
        if len(several) != len(self.tokens):
            raise ValueError(
                f"{name} must have one segmentation per sequence; got {len(several)} for "
                f"{len(self.tokens)} sequences."
            )
        pairs = enumerate(zip(several, self.tokens))
        return [
            self._read(segments, len(tokens), f"{name} of sequence {s}")
            for s, (segments, tokens) in pairs
        ]

    def _read(self, segments: Any, n: int, where: str) -> Segments:
        """Check the segments or labels of one sequence; return segments, without `outside`."""
        segments = list(segments)
        if segments and isinstance(segments[0], str):
            if len(segments) != n:
                raise ValueError(
                    f"{where} has {counted(len(segments), 'label')} for {counted(n, 'token')}."
                )
            return labels_to_segments(segments, None, outside=self.outside)
        try:
            segments_to_labels(segments, n)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from None
        segments = sorted((int(i), int(j), str(type_)) for i, j, type_ in segments)
        return [segment for segment in segments if segment[2] != self.outside]

    # --- Layout

    def _pieces(self, several: list[Segments], first: int = 0) -> Iterator[list[_Piece]]:
        """Segments of each sequence and the words between them, as triples."""
        for tokens, segments in zip(self.tokens[first:], several):
            at = 0
            pieces: list[_Piece] = []
            for segment in [*segments, (len(tokens), len(tokens), "")]:
                start, stop, type_ = segment
                if start > at:
                    pieces.append(("", tokens[at:start], None))
                if stop > start:
                    pieces.append((type_, tokens[start:stop], segment))
                at = stop
            yield pieces

    def _html(self, pieces: list, right: set | None) -> str:
        out = []
        for type_, words, segment in pieces:
            text = escape(" ".join(words))
            if not type_:
                out.append(f"<span>{text}</span>")
                continue
            color, border, _ = style_of(self.types, type_)
            wrong = right is not None and segment not in right
            name = f"{escape(type_)}{' ✗' if wrong else ''}"
            out.append(
                f'<mark style="color:#111;{MARK}background:{_lighter(color)};'
                f'border-bottom:3px {border} {color}">{text} '
                f'<small style="color:#444"><b>{name}</b></small></mark>'
            )
        return " ".join(out)

    def _spans(self, s: int) -> Iterator[tuple[int, int, tuple[str, bool, bool]]]:
        """Characters of the segments of a sequence; (type, whether it is true, whether wrong)."""
        at = offsets_of([len(word) + 1 for word in self.tokens[s]]).tolist()
        true = [] if self.true is None else self.true[s]
        for start, stop, type_ in self.segments[s]:
            wrong = self.true is not None and (start, stop, type_) not in true
            yield at[start], at[stop] - 1, (type_, False, wrong)
        for start, stop, type_ in true:
            yield at[start], at[stop] - 1, (type_, True, False)

    def _draw(self, ax: Any, y: float, mark: tuple, limit: int) -> None:
        # ``limit``: the column where the name of the segment has to end.
        from matplotlib.patches import Rectangle

        (type_, below, wrong), begin, end, first = mark
        color, _, hatch = style_of(self.types, type_)
        corner, length = begin - 0.3, end - begin + 0.6
        if below:
            ax.add_patch(Rectangle((corner, y + 0.30), length, 0.1, color=color, lw=0))
            return
        ax.add_patch(
            Rectangle((corner, y - 0.28), length, 0.56, facecolor=_lighter(color), hatch=hatch,
                      edgecolor=color, lw=1.6 if wrong else 0.6,
                      linestyle="--" if wrong else "-")
        )  # fmt: skip
        name = (type_ + " ✗" * wrong)[: int(1.4 * (limit - begin))] if first else ""
        ax.text(begin, y - 0.31, name, fontsize=5.5, va="bottom", color="#222222")


_FONT, _TRUTH = "font-family:sans-serif;", "opacity:0.9;margin-left:2em;"


def _lighter(color: str) -> str:
    """The colour mixed with 60 % white, so that black letters are readable."""
    return "#" + "".join(f"{int(255 - 0.4 * (255 - part)):02x}" for part in rgb(color))

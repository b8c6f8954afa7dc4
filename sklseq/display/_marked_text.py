"""Texts with marked fields and their probabilities, as HTML and as a plot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from sklearn.base import BaseEstimator

from sklseq._lib.checks import check_number
from sklseq.data.types import SequencesLike
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
from sklseq.inspection import extract

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sklseq.inspection import Field

# Opacity of the background of a field of probability 0 and 1. Text has the colour of the page, so
# that it is readable on light and dark pages.
FAINT, STRONG = 0.08, 0.45


class SpansDisplay:
    """Texts with marked fields, whose colour is stronger for more probable fields.

    A notebook shows it as HTML, on light and dark pages; :meth:`plot` draws the same with
    matplotlib. Each field has the name of its label and its probability, so colour is not needed
    to read it.

    Parameters
    ----------
    texts : list of str
    fields : list of list of Field
        For each text its fields (label, text, start, stop, probability), such as those of
        :func:`sklseq.inspection.extract` with ``texts=``: start and stop count characters, stop is
        not included. A probability may be None.

    Attributes
    ----------
    texts : list of str
    fields : list of list of (label, text, start, stop, probability)
        In the order of their starts.
    labels : list
        Labels of all fields, sorted as strings; their colours are in this order.
    ax_ : matplotlib Axes
        Axes of the last plot.
    figure_ : matplotlib Figure

    Raises
    ------
    ValueError
        If there is not one list of fields for each text, or a field overlaps another, is empty or
        is not inside its text.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> from sklseq.display import SpansDisplay
    >>> display = SpansDisplay(["Ann Lee sings"], [[("NAME", "Ann Lee", 0, 7, 0.98)]])
    >>> print(display.as_text())
    [NAME 98 % Ann Lee] sings
    >>> figure, ax = plt.subplots(figsize=(3, 0.8), layout="constrained")
    >>> display = display.plot(ax, width=30)
    """

    def __init__(self, texts: Iterable[str], fields: Iterable[Iterable[Field | tuple]]):
        self.texts = [str(text) for text in texts]
        self.fields = [sorted(map(tuple, one), key=lambda field: field[2]) for one in fields]
        if len(self.fields) != len(self.texts):
            raise ValueError(
                f"fields must have one list for each text; got {len(self.fields)} lists for "
                f"{len(self.texts)} texts."
            )
        for s, (text, one) in enumerate(zip(self.texts, self.fields)):
            _check_fields(s, text, one)
        self.labels = sorted({field[0] for one in self.fields for field in one}, key=str)

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, X: SequencesLike, *, texts: Sequence[str] | None = None
    ) -> SpansDisplay:
        """Fields that a fitted model finds.

        Parameters
        ----------
        estimator : Pipeline, search or estimator
            Fitted, with a tagger or segmenter at the end.
        X : list of sequences
            As for ``predict``.
        texts : list of str, optional
            The raw strings. By default the tokens of each sequence joined by spaces.

        Returns
        -------
        SpansDisplay
        """
        if texts is None:
            texts = [" ".join(tokens_of(x)) for x in X]
        return cls(texts, extract(estimator, X, texts=texts))

    def as_text(self) -> str:
        """Return the texts with fields in brackets, one text per line.

        Returns
        -------
        str
        """
        return "\n".join(
            "".join(f"[{_caption(field)} {text}]" if field else text for text, field in pieces)
            for pieces in map(_pieces, self.texts, self.fields)
        )

    def _repr_html_(self) -> str:
        """HTML with all colours inline; text is escaped."""
        rows = []
        for pieces in map(_pieces, self.texts, self.fields):
            inside = "".join(
                self._mark(text, field) if field else f"<span>{escape(text)}</span>"
                for text, field in pieces
            )
            rows.append(f'<div style="{ROW}white-space:pre-wrap;">{inside}</div>')
        return "\n".join(rows)

    def plot(self, ax: Axes | None = None, *, width: int = 80) -> SpansDisplay:
        """Draw the texts, with at most ``width`` characters in a line of more than one word.

        Parameters
        ----------
        ax : matplotlib Axes, optional
        width : int, default=80

        Returns
        -------
        SpansDisplay
            The display itself.
        """
        check_number("width", width, 1, whole=True)
        spans = ([(field[2], field[3], field) for field in fields] for fields in self.fields)
        lines, bottom = lay_out(zip(self.texts, spans), width, 0.4)
        columns = max([width, *(len(line.text) for _, line in lines)])
        ax = new_axes(self, ax, (0.07 * (columns + 2), 0.2 + 0.45 * bottom))
        for y, line in lines:
            ends = [mark[1] for mark in line.marks[1:]] + [columns]
            for (field, begin, end, first), limit in zip(line.marks, ends):
                self._draw(ax, field, begin, end, y)
                if first:
                    name = _fitting(field, int(1.4 * (limit - begin)))
                    ax.text(begin, y - 0.31, name, fontsize=5.5, va="bottom")
            write_words(ax, y, line)
        ax.set(xlim=(-1, columns + 1), ylim=(bottom - 0.4, -0.8))
        ax.axis("off")
        return self

    def _mark(self, text: str, field: tuple) -> str:
        color, border, _ = style_of(self.labels, field[0])
        shade = ",".join(map(str, (*rgb(color), f"{_opacity(field):.2f}")))
        return (
            f'<mark style="color:inherit;{MARK}background:rgba({shade});'
            f'border-bottom:3px {border} {color}">{escape(text)} '
            f"<small><b>{escape(_caption(field))}</b></small></mark>"
        )

    def _draw(self, ax: Any, field: tuple, begin: int, end: int, y: float) -> None:
        from matplotlib.patches import Rectangle

        color, *_ = style_of(self.labels, field[0])
        corner, size = (begin - 0.3, y - 0.28), (end - begin + 0.6, 0.56)
        ax.add_patch(Rectangle(corner, *size, color=color, alpha=_opacity(field), lw=0))
        ax.add_patch(Rectangle((begin - 0.3, y + 0.24), size[0], 0.06, color=color, lw=0))


def _check_fields(s: int, text: str, fields: list[tuple]) -> None:
    at = 0
    for _, _, start, stop, *_ in fields:
        if not at <= start < stop <= len(text):
            raise ValueError(
                f"fields of text {s}: [{start}, {stop}) must begin at {at} or later, after the "
                f"previous field, hold a character and end at {len(text)} or before."
            )
        at = stop


def _pieces(text: str, fields: list[tuple]) -> Iterator[tuple[str, tuple | None]]:
    """Parts of a text in order, each with its field or None."""
    at = 0
    for field in fields:
        if field[2] > at:
            yield text[at : field[2]], None
        yield text[field[2] : field[3]], field
        at = field[3]
    if at < len(text):
        yield text[at:], None


def _caption(field: tuple) -> str:
    label, _, _, _, probability = field
    return f"{label}" if probability is None else f"{label} {100 * probability:.0f} %"


def _fitting(field: tuple, n: int) -> str:
    """Caption of at most n characters: without the probability, or cut, if it is longer."""
    caption = _caption(field)
    return caption if len(caption) <= n else f"{field[0]}"[:n]


def _opacity(field: tuple) -> float:
    probability = 1.0 if field[4] is None else field[4]
    return FAINT + (STRONG - FAINT) * probability

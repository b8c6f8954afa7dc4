"""Common parts of displays: axes, estimators inside pipelines, heat maps, lines of marked text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from sklseq.data.tables import first_column
from sklseq.estimators.unwrap import last_step

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito (2008): distinct with any colour vision.
COLORS = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999")
# If there are more types than colours, borders (HTML) and hatching (plots) tell them apart.
BORDERS, HATCHES = ("solid", "dashed", "dotted", "double"), ("", "///", "...", "xxx")
# Largest number of rows or columns at which cells show their numbers by default.
MAX_WRITTEN = 16


def estimator_with(attribute: str, estimator: BaseEstimator, why: str) -> Any:
    """Return the last step of a model, or the estimator inside it, that has the attribute."""
    found: Any = last_step(estimator)[0]
    while not hasattr(found, attribute):
        inner = getattr(found, "estimator_", getattr(found, "estimator", None))
        if inner is None:
            raise ValueError(
                f"{why} needs a fitted estimator with {attribute}; this {type(found).__name__} "
                "has none."
            )
        found = last_step(inner)[0]
    return found


def new_axes(display: Any, ax: Axes | None, size: tuple[float, float] | None = None) -> Any:
    """``ax``, or new axes; set as attributes of the display."""
    if ax is None:
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=size, layout="constrained")
    display.ax_, display.figure_ = ax, ax.figure
    return ax


def tokens_of(sequence: Any) -> list[str]:
    """Words of a raw sequence: its strings, or its first column."""
    column = first_column(sequence)
    if isinstance(sequence, Mapping) and (
        isinstance(column, str) or not isinstance(column, Iterable)
    ):
        raise ValueError(
            f"X must be a list of sequences; its first item is a row, {sequence!r:.60}. Wrap "
            "a single sequence in a list: [X]."
        )
    sequence = list(column)
    first = sequence[0] if len(sequence) else ""
    if isinstance(first, Mapping):
        return [str(next(iter(row.values()))) for row in sequence]
    if isinstance(first, str):
        return [str(word) for word in sequence]
    if isinstance(first, (list, tuple)):
        return [str(row[0]) for row in sequence]
    raise ValueError(
        f"X must hold tokens to show them; a row is a {type(first).__name__}. Use "
        "SegmentationDisplay(tokens, segments)."
    )


def without_frame(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)


class HeatMap:
    """A heat map with named rows and columns, and thin white lines between its cells.

    Parameters
    ----------
    ax : matplotlib Axes
    values : ndarray of shape (n_rows, n_columns)
        NaN is hatched.
    rows, columns : list of str
    vmin, vmax, cmap
        As in matplotlib.
    """

    def __init__(self, ax, values, rows, columns, *, cmap, vmin, vmax):
        self.ax, self.values = ax, values
        shown = np.ma.masked_invalid(values)
        ax.set_facecolor("0.93")
        self.image = ax.imshow(shown, cmap=cmap, vmin=vmin, vmax=vmax, aspect="auto")
        for i, j in zip(*np.nonzero(shown.mask)) if shown.mask is not np.ma.nomask else ():
            ax.add_patch(_hatched(j, i))
        ax.set_xticks(np.arange(len(columns)), columns)
        ax.set_yticks(np.arange(len(rows)), rows)
        if max(map(len, columns), default=0) * len(columns) > 40:
            ax.tick_params(axis="x", rotation=90)
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        if values.size <= 60 * 60:
            for edges, line in ((len(columns), ax.axvline), (len(rows), ax.axhline)):
                for k in range(1, edges):
                    line(k - 0.5, color="white", linewidth=0.8)

    def colorbar(self, label: str) -> None:
        bar = self.ax.figure.colorbar(self.image, ax=self.ax, label=label, fraction=0.05, pad=0.02)
        bar.outline.set_visible(False)

    def write(self, texts: np.ndarray) -> None:
        """Write a text in each cell, black or white for contrast."""
        for (i, j), value in np.ndenumerate(self.values):
            if not np.isfinite(value) or not texts[i, j]:
                continue
            red, green, blue, _ = self.image.cmap(self.image.norm(value))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            color = "white" if dark else "black"
            self.ax.text(j, i, texts[i, j], ha="center", va="center", fontsize=7, color=color)


def _hatched(j: int, i: int) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, hatch="////", edgecolor="0.7", lw=0)


def write_values(values: bool | None, n: int) -> bool:
    """Whether to write numbers: ``values`` if given, otherwise if ``n`` is at most MAX_WRITTEN."""
    return n <= MAX_WRITTEN if values is None else values


# Styles of HTML; each part of a mark that is broken across lines has its own border.
ROW = "line-height:2.1;margin:0.3em 0;"
MARK = (
    "padding:0.15em 0.25em;border-radius:0.25em;"
    "-webkit-box-decoration-break:clone;box-decoration-break:clone;"
)


def style_of(types: list, type_: Any) -> tuple[str, str, str]:
    """Colour, border and hatching of a type among others."""
    turn, k = divmod(types.index(type_), len(COLORS))
    return COLORS[k], BORDERS[turn % len(BORDERS)], HATCHES[turn % len(HATCHES)]


def rgb(color: str) -> tuple[int, ...]:
    """Red, green and blue of a colour, from 0 to 255."""
    return tuple(int(color[k : k + 2], 16) for k in (1, 3, 5))


class Line(NamedTuple):
    """A line of a text, and what is marked in it: (span, first column, end, whether it begins)."""

    text: str
    marks: list[tuple[Any, int, int, bool]]


def lines_of(text: str, spans: Iterable[tuple[int, int, Any]], width: int) -> Iterator[Line]:
    """Lines of a text with at most ``width`` characters, or one word.

    ``spans``: (first character, end, anything).
    """
    spans = list(spans)
    for first, last in _breaks(text, width):
        line = text[first:last].rstrip()
        last = first + len(line)
        yield Line(line, [
            (span, max(start, first) - first, min(stop, last) - first, start >= first)
            for start, stop, span in spans if start < last and stop > first
        ])  # fmt: skip


def lay_out(
    texts: Iterable[tuple[str, Iterable[tuple[int, int, Any]]]], width: int, gap: float
) -> tuple[list[tuple[float, Line]], float]:
    """Each line of several texts with its place, ``gap`` lines between texts; the place below.

    ``texts``: pairs of a text and its spans, as :func:`lines_of` takes them.
    """
    placed: list[tuple[float, Line]] = []
    for s, (text, spans) in enumerate(texts):
        first = len(placed) + gap * s
        placed += [(first + k, line) for k, line in enumerate(lines_of(text, spans, width))]
    return placed, placed[-1][0] + 1 if placed else 1


def write_words(ax: Any, y: float, line: Line) -> None:
    for column, word in words_of(line.text):
        ax.text(column, y, word, family="monospace", fontsize=8, va="center")


def words_of(line: str) -> Iterator[tuple[int, str]]:
    at = 0
    for word in line.split():
        at = line.index(word, at)
        yield at, word
        at += len(word)


def _breaks(text: str, width: int) -> list[tuple[int, int]]:
    """Ranges of characters of the lines: broken at line ends and before words beyond the width."""
    lines, at = [], 0
    for line in re.findall("[^\n]*\n|[^\n]+", text):
        first = at
        for column, word in words_of(line):
            if at + column + len(word) - first > width and at + column > first:
                lines.append((first, at + column))
                first = at + column
        lines.append((first, at + len(line)))
        at += len(line)
    return lines

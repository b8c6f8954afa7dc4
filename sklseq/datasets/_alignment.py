"""Alignment of spans of characters, as in BRAT and in JSON of annotation tools, to tokens."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

from sklseq._lib.checks import check_choice
from sklseq.data.characters import as_items, as_range, find_tokens, token_ranges
from sklseq.data.tables import is_list

Span = tuple[int, int, str]


def token_offsets(text: str, tokens: Iterable[str]) -> list[tuple[int, int]]:
    """Find tokens in the text that they were cut from.

    Parameters
    ----------
    text : str
    tokens : iterable of str
        In the order of the text. Text between tokens is skipped.

    Returns
    -------
    list of (start, stop)
        The characters ``text[start:stop]`` of each token.

    Raises
    ------
    ValueError
        If a token does not occur after the previous one.
    TypeError
        If `text` or a token is not a string.

    Examples
    --------
    >>> from sklseq.datasets import token_offsets
    >>> token_offsets("New York, Ohio", ["New", "York", ",", "Ohio"])
    [(0, 3), (4, 8), (8, 9), (10, 14)]
    """
    return find_tokens(text, tokens)


def align_spans(
    spans: Iterable[Span], offsets: Sequence[tuple[int, int]], *, partial: str = "error"
) -> list[Span]:
    """Turn spans of characters into spans of tokens.

    Parameters
    ----------
    spans : iterable of (start, stop, type)
        The characters ``text[start:stop]`` of each span.
    offsets : sequence of (start, stop)
        The characters of each token, in order, as :func:`token_offsets` finds them.
    partial : {"error", "expand", "drop"}, default="error"
        A span that begins or ends inside a token: raise an error, take the whole token, or leave
        the span out.

    Returns
    -------
    list of (start, stop, type)
        The tokens ``tokens[start:stop]`` of each span. White space at the ends of a span is
        ignored.

    Raises
    ------
    ValueError
        If a span has no token, or has a part of one and ``partial="error"``; if a span is not
        integers 0 ≤ start < stop and a type, or `offsets` are not in order.

    Notes
    -----
    The inverse, for spans that a model predicts, is
    ``[(offsets[a][0], offsets[b - 1][1], type) for a, b, type in spans]``. Cost
    O(spans log tokens).

    Examples
    --------
    >>> from sklseq.datasets import align_spans, token_offsets
    >>> text, tokens = "Ann from New York", ["Ann", "from", "New", "York"]
    >>> align_spans([(0, 3, "PER"), (9, 17, "LOC")], token_offsets(text, tokens))
    [(0, 1, 'PER'), (2, 4, 'LOC')]
    """
    check_choice("partial", partial, ("error", "expand", "drop"))
    ranges = token_ranges(offsets, "offsets")
    starts, stops = [a for a, _ in ranges], [b for _, b in ranges]
    aligned = []
    for first, last, type_ in _as_spans(spans):
        start, stop = bisect_right(stops, first), bisect_left(starts, last)
        if start >= stop:
            raise ValueError(
                f"No token is inside the span {(first, last, type_)!r}; remove the span, or cut "
                "the text into other tokens."
            )
        whole = starts[start] >= first and stops[stop - 1] <= last
        if not whole and partial == "error":
            raise ValueError(
                f"The span {(first, last, type_)!r} begins or ends inside a token (characters "
                f"{starts[start]} to {stops[stop - 1]} are whole tokens); cut the text into other "
                "tokens, or pass partial='expand' or 'drop'."
            )
        if whole or partial == "expand":
            aligned.append((start, stop, type_))
    return aligned


def _as_spans(spans: Any) -> list[Span]:
    found = []
    for i, span in enumerate(as_items(spans, "spans")):
        if not is_list(span) or len(span := list(span)) != 3:
            raise ValueError(f"Item {i} of spans must be (start, stop, type); got {span!r:.40}.")
        first, last = as_range(span[0], span[1], f"Item {i} of spans")
        if first == last:
            raise ValueError(f"Item {i} of spans, {tuple(span)!r:.40}, has no characters.")
        found.append((first, last, span[2]))
    return found

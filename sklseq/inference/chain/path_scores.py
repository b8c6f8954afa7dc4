"""Scores of given labelings."""

import numpy as np

from sklseq.data.sequences import row_positions
from sklseq.inference.chain.row_transitions import RowTransitions, pair_scores


def row_scores(
    emission: np.ndarray | None, transition: np.ndarray | RowTransitions, start: np.ndarray,
    end: np.ndarray, offsets: np.ndarray, y: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """Terms of each row in F(x, y): emission_t(y_t), the transition to it or the start, the end.

    ``emission``: None stands for zeros. ``y`` holds label codes; a row of the code -1, an unknown
    label, has the score -inf.
    """
    first, last, after = row_positions(offsets)
    scores = np.zeros(len(y))
    if emission is not None:
        scores += emission[np.arange(len(y)), y]
    scores[first] += start[y[first]]
    scores[after] += pair_scores(transition, after, y[after - 1], y[after])
    scores[last] += end[y[last]]
    scores[y < 0] = -np.inf  # whatever was read for the code -1
    return scores


def path_scores(
    emission: np.ndarray | None, transition: np.ndarray | RowTransitions, start: np.ndarray,
    end: np.ndarray, offsets: np.ndarray, y: np.ndarray,
) -> np.ndarray:  # fmt: skip
    """F(x, y) of each sequence, the sum of its :func:`row_scores`."""
    n, of_rows = len(offsets) - 1, row_scores(emission, transition, start, end, offsets, y)
    if n == 1:  # in half of the time
        return of_rows.sum(keepdims=True)
    return np.bincount(np.repeat(np.arange(n), np.diff(offsets)), of_rows, minlength=n)

"""Potentials of the rows that a stream or a block adds, in the form that beams take."""

from typing import Any

import numpy as np

from sklseq.data.types import SequencesLike
from sklseq.inference.chain.linear_chain import Transitions
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.objectives.scores.scored_rows import Potentials


def chain_of(potentials: Potentials) -> Transitions:
    """Return transitions for the compiled functions, in the precision of the emission scores."""
    dtype, scores = potentials.emission.dtype, potentials.transition
    rows = scores.astype(dtype) if isinstance(scores, RowTransitions) else None
    shared = scores if rows is None else rows.shared
    chain = Transitions(shared, potentials.start, potentials.end, dtype)
    chain.rows = rows
    return chain


def in_tokens(latency: np.ndarray, delay: int, offsets: np.ndarray) -> np.ndarray:
    """Return latencies in tokens, of latencies in rows that are known ``delay`` tokens late.

    The last rows of a sequence, which are at ``offsets``, are known when it ends.
    """
    to_end = np.repeat(offsets[1:], np.diff(offsets)) - 1 - np.arange(len(latency))
    return np.minimum(latency + delay, to_end)


def potentials_of_parts(tagger: Any, X: SequencesLike, continued: list) -> Potentials:
    """Return ``tagger.potentials(X)``; ``continued``: whether a sequence continues earlier rows."""
    if getattr(tagger, "transition_coef_", None) is None:
        return tagger.potentials(X)
    return tagger.potentials(X, continued=np.array(continued, dtype=bool))


def entries_for(beam: Any, potentials: Potentials) -> tuple | None:
    """Return checked transition scores of single rows, in the form that beams take."""
    rows = potentials.transition
    if not isinstance(rows, RowTransitions):
        return None
    # With emission scores up to ``beam.largest``, sums do not overflow.
    most = 0.01 * float(np.finfo(rows.score.dtype).max)
    fit = (np.abs(rows.score) <= most) | (rows.score == -np.inf)
    if not fit.all():
        raise ValueError(
            f"Features are too large: a transition has the score {rows.score[np.argmin(fit)]}; "
            f"scores must be from -{most:.3g} to {most:.3g} or -inf. Scale the features as in "
            "training, or drop the item."
        )
    return rows.for_kernels(rows.score.astype(np.float64), beam.width)


def check_emission_only(tagger: Any) -> None:
    """Raise if the model has transition features, which emission scores alone do not include."""
    if getattr(tagger, "transition_coef_", None) is not None:
        raise ValueError(
            "push_potentials takes emission scores, and the transition scores of a model with "
            "transition features depend on the row; push the items themselves."
        )

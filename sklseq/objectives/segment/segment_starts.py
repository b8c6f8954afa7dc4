"""Transition features of segmentations: features of the steps at which segments start.

For a segment of label j that starts at step t, after one of label i, transition features f add

    Σ_f x_t(f) · v(f, i, j)

to the score (Sarawagi 2006, §2: θ_t(i, j)). x_t(f) is the sum of feature f over the potentials of
the span [t, t + 1) that are active for every segment that starts at t, of kind OPEN_END or
OPEN_BOTH. First segments have no such term.
"""

from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import offsets_of
from sklseq.data.segment_potentials import OPEN_END, SegmentPotentials
from sklseq.data.sequences import Sequences
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.objectives.scores.row_entries import ranked_columns
from sklseq.objectives.scores.transition_features import TransitionFeatures


def rows_of_starts(X: SegmentPotentials, columns: np.ndarray) -> Sequences:
    """x_t of all steps t, with zeros outside of ``columns``; zeros that X stores are stored."""
    is_open = X.kind & OPEN_END > 0  # the bit that OPEN_END and OPEN_BOTH have in common
    active = np.flatnonzero((X.stop - X.start == 1) & is_open)
    steps = offsets_of(X.lengths)
    of = np.repeat(np.arange(len(X)), np.diff(X.offsets))[active]
    rows = sparse.csr_matrix(X.rows)[X.row[active]]
    rank = np.full(X.shape[1], -1)
    rank[columns] = columns
    indptr, column, data = ranked_columns(rows.indptr, rows.indices, rows.data, rank, zeros=True)
    step = np.repeat(steps[of] + X.start[active], np.diff(indptr))
    # Products of sparse matrices would leave zeros out.
    entries = sparse.coo_matrix((data, (step, column)), shape=(X.n_steps, X.shape[1]))
    return Sequences(entries.tocsr(), steps)


def pairs_of_starts(gold: Any, steps: np.ndarray, n_labels: int) -> np.ndarray:
    """i · n_labels + j for each step at which a true segment of label j follows one of label i.

    It is -1 at all other steps, and where one of the two segments is unknown. ``steps`` are the
    first steps of all sequences, and the number of all steps.
    """
    pairs = np.full(int(steps[-1]), -1, dtype=np.int64)
    known = gold.label >= 0
    follows = (gold.sequence[1:] == gold.sequence[:-1]) & known[1:] & known[:-1]
    after = np.flatnonzero(follows) + 1
    at = steps[gold.sequence[after]] + gold.start[after]
    pairs[at] = gold.label[after - 1] * n_labels + gold.label[after]
    return pairs


def transitions_of_starts(
    X: SegmentPotentials,
    transition: np.ndarray,
    coef: sparse.csr_matrix | None,
    continued: bool = False,
) -> RowTransitions | None:
    """Scores of transitions into single steps by ``coef``, a model's ``transition_coef_``.

    None if no step has transition features. ``continued``: sequences have steps before their first
    one, so this one has scores too.
    """
    if coef is None or X.n_potentials == 0:
        return None
    rows = rows_of_starts(X, np.flatnonzero(np.diff(coef.indptr)))
    features = TransitionFeatures.of_coef(rows, coef, len(transition))
    shared = np.ascontiguousarray(transition)
    if continued:
        parts = np.ones(len(X), dtype=bool)
        return features.entries_of_parts(coef.data, shared, rows.offsets, parts)[0]
    return features.entries(coef.data, shared, 0, rows.offsets)[0]

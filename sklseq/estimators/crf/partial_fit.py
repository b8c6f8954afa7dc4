"""``CRFTagger.partial_fit``: one pass of stochastic steps over a batch of sequences."""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
from scipy import sparse

from sklseq._lib.ragged import offsets_of
from sklseq.data.column_roles import with_transition_features
from sklseq.data.constraints import Constraints, PathCheck, resolve_constraints
from sklseq.data.input_kinds import blocks_of
from sklseq.data.label_blocks import item_blocks
from sklseq.data.labels import (
    PartialLabelError,
    as_label_sequences,
    check_counts,
    check_lengths,
    classes_of_parts,
    cut_rows,
    different_lengths,
    encode_labels,
)
from sklseq.data.partial_labels import AllowedLabels, PartialLabels
from sklseq.data.row_blocks import BLOCK_ROWS, with_last
from sklseq.data.sequences import (
    STATE,
    TRANSITION,
    Sequences,
    canonical,
    check_not_empty,
    training_weights,
    weighted_only,
)
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.trained_weights import fitted_attributes, trained_support
from sklseq.estimators.validation import check_same_roles, other_width, read_sequences
from sklseq.estimators.weights import dense_weights
from sklseq.inference.chain.linear_chain import as_generator
from sklseq.objectives.likelihood.stochastic import Batch, StochasticLikelihood
from sklseq.objectives.scores.score_map import ScoreMap, Support, Weights, without_forbidden
from sklseq.objectives.scores.transition_features import (
    allowed_triples,
    possible_triples,
    triples_of,
)

RATE = 1.0
# Initial sums of squared gradients: of new weights, and of weights from `fit`, which move less.
FIRST_SQUARE, FITTED = 1.0, 100.0
# Rows of the pieces into which a sequence in blocks is cut; each piece is one update.
PIECE_ROWS = 256
ENDED = object()


@dataclass
class Place:
    """Position of a block of rows in its sequence.

    Attributes
    ----------
    sequence, row : int
        Numbers of the sequence and of the first row.
    is_last : bool
        Whether the sequence ends with the block.
    possible : bytes or None
        Labels that constraints allow at the row before, as :meth:`PathCheck.follow` returns them.
    """

    sequence: int
    row: int = 0
    is_last: bool = False
    possible: bytes | None = None


def fit_batch(
    tagger: Any,
    rows: Sequences | None,
    X: SequencesLike,
    y: LabelsLike,
    classes: ArrayLike | None,
    sample_weight: ArrayLike | None,
    squares: tuple | None,
    place: Place | None = None,
) -> dict:
    """Return the attributes of ``tagger`` after one pass over a batch.

    ``rows`` is X as the fitted tagger reads it, or None before the first call; ``squares`` are the
    sums of squared gradients of earlier batches. With ``place``, the sequences are pieces of a
    block at this position, and y has its labels; pieces have no first and last labels.
    """
    classes = classes_of_parts(classes, None if rows is None else tagger.classes_)
    fitted = rows is not None
    if not fitted:
        rows = _first_rows(X)
        check_not_empty(rows)
    roles = _roles(tagger, rows)
    rows = Sequences(canonical(sparse.csr_matrix(rows.rows)), rows.offsets)
    weights = training_weights(sample_weight, len(rows), zeros=fitted)
    allowed = resolve_constraints(tagger.constraints, classes)
    labels = _read_codes(y, rows, classes, place)
    _check_labels(labels, rows, allowed, classes, place)
    if place is not None:
        anything = np.ones(len(classes), dtype=bool)
        allowed = allowed._replace(start=anything, end=anything)
    if len(labels.table) > len(classes):
        weights = weights * (np.diff(offsets_of(~labels.unknown)[rows.offsets]) > 0)
    if fitted and not weights @ rows.lengths:
        return {}
    # Rows of weight 0 would count for the scales of the columns.
    rows, codes, weights = weighted_only(rows, labels.codes, weights)
    labels = labels._replace(codes=codes)
    support = trained_support(tagger, None, len(classes), tagger.boundaries and place is None)
    if roles is not None:
        support = _with_triples(tagger, support, roles, rows, labels, squares)
    scores = ScoreMap(rows, len(classes), support, allowed, np.dtype(np.float64), as_it_is=True)
    penalties = labels.penalties(scores.width, np.float64)
    batch = Batch(
        scores, float(tagger.l2), labels.codes, rows.offsets, weights, penalties=penalties
    )
    return _attributes_after(tagger, batch, classes, squares)


def fit_blocks(
    tagger: Any, X: Any, y: LabelsLike, classes: ArrayLike | None, sample_weight: ArrayLike | None
) -> dict:
    """Return the attributes of ``tagger`` after one pass over sequences in blocks."""
    later, losses = copy(tagger), []
    weights = training_weights(sample_weight, len(X), zeros=hasattr(tagger, "coef_"))
    for weight, rows, labels, place in _pieces(X, y, weights):
        fitted = hasattr(later, "coef_")
        if fitted and rows.shape[1] != later.n_features_in_:
            raise other_width(rows.shape[1], later.n_features_in_, "CRFTagger was fitted with")
        given = rows if fitted else None, rows, labels, classes, np.full(len(rows), weight)
        squares = getattr(later, "_squares", None)
        found = fit_batch(later, *given, squares, place)
        vars(later).update(found)
        losses += [found["objective_"]] if found else []
    if not losses and hasattr(tagger, "coef_"):
        return {}
    if not losses:
        raise ValueError("X must hold at least one row of positive weight; got 0.")
    allowed = resolve_constraints(tagger.constraints, later.classes_)
    for name, mask in (("start_", allowed.start), ("end_", allowed.end)):
        weights = without_forbidden(getattr(tagger, name, np.zeros(len(mask))))
        setattr(later, name, np.where(mask, weights, -np.inf).astype(later.coef_.dtype))
    later.n_iter_, later.objective_ = getattr(tagger, "n_iter_", 0) + 1, sum(losses)
    later.loss_curve_ = [*getattr(tagger, "loss_curve_", ()), later.objective_]
    return vars(later)


def _pieces(X: Any, y: LabelsLike, weights: np.ndarray) -> Iterator:
    # (weight, rows cut into pieces, labels, place) of each block of each sequence.
    sources = blocks_of(X)
    check_counts(len(sources), len(y))
    for s, (source, weight) in enumerate(zip(sources, weights)):
        place, name = Place(s), f"sequence {s}"
        labels = chain.from_iterable(map(_items, item_blocks(y[s], name)))
        blocks = source.read(BLOCK_ROWS, name) if weight > 0 else iter(())
        for rows, place.is_last in with_last(blocks):
            own = list(islice(labels, rows.shape[0]))
            if len(own) < rows.shape[0]:
                raise different_lengths(s, "more", place.row + len(own))
            offsets = np.append(np.arange(0, len(own), PIECE_ROWS), len(own))
            yield weight, Sequences(rows, offsets), own, place
            place.row += len(own)
        if weight > 0 and next(labels, ENDED) is not ENDED:
            raise different_lengths(s, place.row, "more")


def _items(labels: Any) -> list:
    return labels.tolist() if hasattr(labels, "tolist") else list(labels)


def _roles(tagger: Any, rows: Sequences) -> np.ndarray | None:
    # Roles of the columns of a batch, or None if it has no transition features.
    vectorizer = getattr(tagger, "vectorizer_", None)
    names = vectorizer and vectorizer.get_feature_names_out
    roles = with_transition_features(tagger.transition_features, rows.shape[1], rows.roles, names)
    if hasattr(tagger, "coef_"):
        check_same_roles(getattr(tagger, "_roles", None), roles)
    return roles


def _with_triples(
    tagger: Any, support: Support, roles: np.ndarray, rows: Sequences, labels: AllowedLabels,
    squares: tuple | None,
) -> Support:  # fmt: skip
    # ``support`` with weights of transition features, for label pairs seen so far or for all.
    columns, L = np.flatnonzero(roles & TRANSITION), labels.n_labels
    if tagger.all_possible_transitions:
        triples = possible_triples(columns, support.transition)
    else:
        triples = allowed_triples(rows, columns, labels)
    if hasattr(tagger, "coef_"):
        triples = np.union1d(triples, triples_of(tagger.transition_coef_))
    if squares is not None:
        triples = np.union1d(triples, squares[2])
    pairs, state = None, roles & STATE > 0
    if not state.all():
        pairs = (np.flatnonzero(state)[:, None] * L + np.arange(L)).reshape(-1)
    return support._replace(pairs=pairs, triples=triples, roles=roles)


def _read_codes(
    y: LabelsLike, rows: Sequences, classes: np.ndarray, place: Place | None
) -> AllowedLabels:
    # The table has more rows than labels only if some labels of y are unknown.
    y, X = (y, rows) if place is None else ([y], Sequences(rows.rows, [0, rows.n_rows]))
    y = list(y) if isinstance(y, Iterator) else y  # read twice
    first = (0, 0) if place is None else (place.sequence, place.row)
    try:
        flat = as_label_sequences(y, first=first)[0]
    except PartialLabelError:
        return PartialLabels.read(y, X, first=first).allowed(classes, first=first)
    check_lengths(X.lengths, np.array([len(one) for one in y]))
    codes = encode_labels(flat, classes, X.offsets, first=first)
    return AllowedLabels(codes, np.eye(len(classes), dtype=bool))


def _check_labels(
    labels: AllowedLabels, rows: Sequences, allowed: Constraints, classes: np.ndarray,
    place: Place | None,
) -> None:  # fmt: skip
    # Check constraints: of whole sequences, or of the pieces as a continuation of earlier rows.
    check = PathCheck(allowed, classes, labels.table)
    if place is None:
        for s, codes in enumerate(cut_rows(labels.codes, rows.offsets)):
            check.follow(codes, lambda row, s=s: f"row {row} of sequence {s}")
        return
    where = f"of sequence {place.sequence}"
    place.possible = check.follow(
        labels.codes, lambda row: f"row {place.row + row} {where}", place.possible, place.is_last
    )


def _first_rows(X: SequencesLike) -> Sequences:
    rows, vectorizer = read_sequences(X, fit=True)
    if vectorizer is not None:
        raise ValueError(
            "partial_fit needs the same columns in each batch, which attributes of one batch do "
            "not determine; extract them with a fitted transformer, or one with n_features=2**k."
        )
    return rows


def _attributes_after(
    tagger: Any, batch: Batch, classes: np.ndarray, squares: tuple | None
) -> dict:
    fitted, scores = hasattr(tagger, "coef_"), batch.scores
    start, before = scores.new_vector(), getattr(tagger, "n_seen_", 0)
    if fitted:
        coef = dense_weights(tagger.coef_)
        weights = Weights(coef, tagger.transition_, tagger.start_, tagger.end_)
        start = scores.pack(weights, tagger.transition_coef_)
    first_square = FITTED if fitted else FIRST_SQUARE
    stochastic = StochasticLikelihood(batch, float(tagger.l1), start, first_square)
    if squares is not None:
        stochastic.squares[0], stochastic.squares[2] = (x.copy() for x in squares[:2])
    if scores.features is not None:
        _set_squares_of_triples(tagger, stochastic, squares)
    seed = tagger.random_state
    if seed is None or isinstance(seed, int):
        seed = [seed or 0, before]
    order = as_generator(seed).permutation(stochastic.sequences)
    loss = stochastic.descend(order, RATE, n_sequences=before + len(order))
    if not np.isfinite(stochastic.w).all():
        raise ValueError(
            "The steps of partial_fit diverged, and the weights are as before the call; "
            "scale the features, e.g. by PerToken(MaxAbsScaler())."
        )
    vectorizer, features = getattr(tagger, "vectorizer_", None), scores.features
    state, _, chain, of_triples = stochastic.squares
    of_features = () if features is None else (features.triples, of_triples)
    return fitted_attributes(scores, stochastic.w, classes, vectorizer) | {
        "_squares": (state, chain, *of_features),
        "n_seen_": before + len(order),
        "n_iter_": getattr(tagger, "n_iter_", 0) + 1,
        "solver_": "adagrad",
        "objective_": loss,
        "loss_curve_": [*getattr(tagger, "loss_curve_", ()), loss],
    }


def _set_squares_of_triples(
    tagger: Any, stochastic: StochasticLikelihood, squares: tuple | None
) -> None:
    # Sums of earlier batches; new weights start as in `_attributes_after`, and weights that
    # constraints forbid by now are dropped.
    triples, of_triples = stochastic.scores.features.triples, stochastic.squares[3]
    of_triples[:] = FIRST_SQUARE
    known = sums = np.zeros(0, dtype=np.int64)
    if squares is not None:
        known, sums = squares[2:]
    elif hasattr(tagger, "coef_"):
        known = triples_of(tagger.transition_coef_)
        sums = np.full(len(known), FITTED)
    kept = np.isin(known, triples)
    of_triples[np.searchsorted(triples, known[kept])] = sums[kept]


def squares_of_columns(squares: tuple, kept: np.ndarray, n_labels: int) -> tuple:
    """Sums of squared gradients restricted to the columns ``kept``, with their new numbers."""
    state, chain, *of_triples = squares
    if of_triples:
        feature, pair = np.divmod(of_triples[0], n_labels**2)
        stays, number = kept[feature], np.cumsum(kept) - 1
        triples = number[feature[stays]] * n_labels**2 + pair[stays]
        of_triples = [triples, of_triples[1][stays]]
    return state[kept], chain, *of_triples

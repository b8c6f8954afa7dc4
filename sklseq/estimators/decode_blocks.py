"""Decoding sequences in blocks: Viterbi's labels, as soon as nothing can change them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sklseq.data.labels import find_codes
from sklseq.data.row_blocks import BLOCK_ROWS, RowBlocks, blocks_of, label_blocks
from sklseq.data.sequences import Sequences, check_sample_weight
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.inference.chain.online_rules import OnlineRule, _online, new_beam, no_path
from sklseq.objectives.scores.design import score_rows

__all__ = ["decode_blocks", "predict_blocks", "score_blocks"]


def decode_blocks(tagger: Any, source: RowBlocks, number: int = 0) -> Iterator[np.ndarray]:
    """Label codes of one sequence, in arrays of any length, as they become final.

    A label leaves when all paths that are still alive have it, so labels are those of Viterbi's
    algorithm; only rows on which they differ are held.
    """
    L, where = len(tagger.classes_), f"sequence {number}"
    beam = new_beam(tagger._chain(), OnlineRule(strategy="closure"))
    n = 0
    for rows in source.read(BLOCK_ROWS, where):
        _check_width(tagger, rows, where)
        psi = _scores(tagger, rows)
        dead = _online.push_rows(beam, psi[:, :L])
        if dead >= 0:
            raise no_path(f"row {n + dead} of {where}")
        n += len(psi)
        yield beam.take_codes()
    if n and not beam.end_sequence():
        raise no_path(f"row {n - 1} of {where}", at_end=True)
    yield beam.take_codes()


def _check_width(tagger: Any, rows: Any, where: str) -> None:
    if rows.shape[1] != tagger.n_features_in_:
        raise ValueError(
            f"{where.capitalize()} has {rows.shape[1]} features, but {type(tagger).__name__} was "
            f"fitted with {tagger.n_features_in_}; extract them with the same fitted transformer."
        )


def _scores(tagger: Any, rows: Any) -> np.ndarray:
    W = tagger._state_rows()
    psi = np.empty((rows.shape[0], W.shape[1]), dtype=W.dtype)
    design = score_rows(Sequences(rows, [0, rows.shape[0]]), W.dtype)
    design.scores(W, 0, rows.shape[0], psi)  # finite: seen when they were read
    return psi


def predict_blocks(tagger: Any, X: SequencesLike) -> np.ndarray:
    """Labels of each sequence of X, shape (n_sequences,), dtype object."""
    answers = np.empty(len(X), dtype=object)
    for s, source in enumerate(blocks_of(X)):
        labels = [tagger.classes_[codes] for codes in decode_blocks(tagger, source, s)]
        answers[s] = np.concatenate(labels)
    return answers


def score_blocks(tagger: Any, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike) -> float:
    """Share of rows whose label is right; neither rows nor labels are kept."""
    sources, labels = blocks_of(X), label_blocks(y, len(X))
    weights = check_sample_weight(sample_weight, len(sources))
    right = total = 0.0
    for s, (source, truth, weight) in enumerate(zip(sources, labels, weights)):
        take, n, same = truth.reader(f"sequence {s}"), 0, 0
        for codes in decode_blocks(tagger, source, s):
            known = find_codes(take(len(codes)), tagger.classes_)
            if len(known) < len(codes):
                raise _different(s, "more", n + len(known))
            n, same = n + len(codes), same + int((known == codes).sum())
        if len(take(1)):
            raise _different(s, n, "more")
        right, total = right + weight * same, total + weight * n
    if not total > 0:
        raise ValueError("score needs at least one row of positive weight.")
    return float(right / total)


def _different(s: int, n_rows: Any, n_labels: Any) -> ValueError:
    return ValueError(
        f"Sequence {s} has {n_rows} rows in X but {n_labels} labels in y; each row needs one label."
    )

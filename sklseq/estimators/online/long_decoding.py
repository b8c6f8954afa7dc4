"""Online decoding of sequences in blocks, with one block in memory."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from sklseq.data.input_kinds import blocks_of
from sklseq.data.row_blocks import BLOCK_ROWS, RowBlocks
from sklseq.data.types import SequencesLike
from sklseq.estimators.online.row_potentials import entries_for, in_tokens, potentials_of_parts
from sklseq.inference.chain.linear_chain import Transitions
from sklseq.inference.chain.online_rules import (
    OnlinePaths,
    OnlineRule,
    new_beam,
    no_path,
    push_scores,
)
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.objectives.scores.scored_rows import Potentials


def decode_long(
    tagger: Any, X: SequencesLike, chain: Transitions, rule: OnlineRule, delay: int
) -> Iterator[OnlinePaths]:
    """Yield the labels of each sequence in the form of ``decode_block``; it is read once.

    ``delay``: rows that features look ahead; that many last rows are known only at the end.
    """
    for s, source in enumerate(blocks_of(X)):
        found = [*_decode(tagger, source, s, new_beam(chain, rule), delay)]
        paths = OnlinePaths(*(np.concatenate(column) for column in zip(*found)))
        ends = np.array([0, len(paths.labels)])
        yield paths._replace(latency=in_tokens(paths.latency, delay, ends))


def _decode(tagger: Any, source: RowBlocks, s: int, beam: Any, delay: int) -> Iterator[OnlinePaths]:
    where, held = f"sequence {s}", None
    for rows in source.read(BLOCK_ROWS, where):
        scores = potentials_of_parts(tagger, [rows], [held is not None])
        scores = scores if held is None else _joined(held, scores)
        n = max(0, len(scores.emission) - delay)
        yield _push(beam, _part(scores, 0, n), where)
        held = _part(scores, n, len(scores.emission))
    if held is not None:
        yield _push(beam, held, where, last=True)
        if not beam.end_sequence():
            raise no_path(f"row {beam.n_rows - 1} of {where}", at_end=True)
    yield _taken(beam)


def _part(scores: Potentials, first: int, last: int) -> Potentials:
    rows = scores.transition
    rows = rows.part(first, last) if isinstance(rows, RowTransitions) else rows
    return scores._replace(emission=scores.emission[first:last], transition=rows)


def _joined(a: Potentials, b: Potentials) -> Potentials:
    rows = a.transition
    rows = rows.followed_by(b.transition) if isinstance(rows, RowTransitions) else rows
    return a._replace(emission=np.concatenate([a.emission, b.emission]), transition=rows)


def _push(beam: Any, scores: Potentials, where: str, last: bool = False) -> OnlinePaths:
    rows = entries_for(beam, scores)
    push_scores(beam, scores.emission, rows, held=last, where=f" of {where}")
    return _taken(beam)


def _taken(beam: Any) -> OnlinePaths:
    codes, confidence, latency = beam.take_arrays()
    return OnlinePaths(codes, latency, confidence)

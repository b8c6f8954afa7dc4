"""Chains and segmentations to ask about: tables of supports, scores, lengths and ways of working.

``chain(k)`` and ``segmentation(k)`` go through all supports and scores in turn; the rest is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from unittest import mock

import numpy as np

from sklseq.inference import SegmentSpans
from sklseq.inference.chain import sparse_transitions as pairs

from .reference import EPS, Chain, Segmentation

__all__ = ["ChainCase", "SegmentCase", "chain", "long_chain", "segmentation"]


# ---------------------------------------------------------------------- which transitions

# Each takes (rng, L) and gives a boolean matrix: which label may follow which.


def _banded(rng, L):
    return np.abs(np.subtract.outer(np.arange(L), np.arange(L))) <= 1


def _periodic(rng, L):
    period = np.arange(L) % min(L, int(rng.integers(2, 4)))
    return period[None, :] == (period[:, None] + 1) % (period.max() + 1)


def _blocks(rng, L):
    block = np.sort(rng.integers(0, 2 + L // 4, L))
    return block[:, None] == block


def _reducible(rng, L):
    # Any transitions, but each label has one that follows.
    support = rng.random((L, L)) < rng.choice([0.2, 0.5])
    support[np.arange(L), rng.integers(0, L, L)] = True
    return support


SUPPORTS: dict[str, Callable] = {
    "all": lambda rng, L: np.ones((L, L), dtype=bool),
    "left-right": lambda rng, L: np.triu(np.ones((L, L), dtype=bool)),
    "periodic": _periodic,
    "banded": _banded,
    "block-diagonal": _blocks,
    "permutation": lambda rng, L: np.eye(L, dtype=bool)[rng.permutation(L)],
    "reducible": _reducible,
}


# ---------------------------------------------------------------------- which scores


class Recipe(NamedTuple):
    """How scores are drawn.

    Attributes
    ----------
    draw : function of (rng, *shape)
    drift : (float, float)
        Evidence a row for the second label, in the first part of the rows and in the others.
    sticky : float
        Added to transitions from a label to itself.
    holes : float
        Share of emission scores that are -inf.
    unscored : float
        Share of transitions that score 0.
    unlikely : float
        Taken from transitions from other labels to the second one, which is not the first of a
        sequence: their factors underflow.
    exact : bool
        Whether sums of scores have no rounding, so that ties are ties.
    """

    draw: Callable
    drift: tuple[float, float] = (0.0, 0.0)
    sticky: float = 0.0
    holes: float = 0.0
    unscored: float = 0.0
    unlikely: float = 0.0
    exact: bool = False


def _normal(scale: float) -> Callable:
    return lambda rng, *shape: scale * rng.standard_normal(shape)


SCORES: dict[str, Recipe] = {
    "mild": Recipe(_normal(1)),
    "tiny": Recipe(_normal(1e-6)),
    "large": Recipe(_normal(30)),
    "huge": Recipe(_normal(1000)),
    "ties": Recipe(lambda rng, *shape: rng.integers(-1, 2, shape).astype(float), exact=True),
    "zeros": Recipe(lambda rng, *shape: np.zeros(shape), exact=True),
    "drift": Recipe(_normal(0.3), drift=(-8.0, 8.0), sticky=2.0),
    "steep drift": Recipe(_normal(1), drift=(-60.0, 60.0)),
    "unlikely": Recipe(_normal(1), drift=(0.0, 60.0), unlikely=900.0),
    "holes": Recipe(_normal(1), holes=0.3),
    "unscored": Recipe(_normal(2), unscored=0.9),
}

LENGTHS = [(1,), (0,), (2, 0, 1), (25,), (3, 9, 1, 0, 30, 7, 7), (8, 8, 8, 8, 8), (120,), (260,)]
MANY_LABELS = [1, 2, 2, 3, 4, 5, 9, 17, 33]
# Lists of pairs are for many labels: with fewer, kernels do not have them.
LEAST_LISTED = 9
BLOCK_ROWS = [1, 2, 8, 16, 64, 4096]
# Around the number of rows after which marginals are renormalised, and far beyond it.
LONG = [(10, 63, 64, 65), (1000,), (2500, 1), (700, 300)]
LABELS_OF_LONG = [2, 4, 9, 17]


# ---------------------------------------------------------------------- chains


class Case:
    """What chains and segmentations have in common; ``seed`` is of what questions draw."""

    seed: int

    @cached_property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    @property
    def n_labels(self) -> int:
        return len(self.transition)

    def slack_of(self, n: int, slack: float | None = None) -> float:
        """Tolerance of a sum of n numbers, whose errors are of either sign."""
        return (self.slack if slack is None else slack) * np.sqrt(max(n, 1))

    def worked_on(self):
        """Within, it is worked on as the case wants it."""
        return nullcontext()


@dataclass
class ChainCase(Case):
    """Chains with their boundaries, and how they are worked on.

    Attributes
    ----------
    name : str
    emission, transition, offsets
        As :func:`sklseq.inference.forward_backward` takes them.
    start, end : ndarray or None
    recipe : Recipe
    listed : bool
        Whether transitions are worked on as lists of pairs, however many there are.
    block_rows : int
        Rows of a block where sequences come in blocks.
    """

    name: str
    emission: np.ndarray
    transition: np.ndarray
    offsets: np.ndarray
    start: np.ndarray | None
    end: np.ndarray | None
    recipe: Recipe
    listed: bool = False
    block_rows: int = 8
    seed: int = 0

    @cached_property
    def chains(self) -> list[Chain]:
        """The slow answers, one a sequence."""
        bounds = zip(self.offsets[:-1], self.offsets[1:])
        ends = (self.transition, self.start, self.end)
        return [Chain(self.emission[a:b], *ends) for a, b in bounds]

    @property
    def arguments(self) -> tuple[tuple, dict]:
        return (self.emission, self.transition, self.offsets), {
            "start": self.start,
            "end": self.end,
        }

    @property
    def longest(self) -> int:
        return int(np.diff(self.offsets).max(initial=0))

    @property
    def slack(self) -> float:
        """Tolerance of a score and of a probability.

        What is rounded is at most ``size``, at each row again, or a factor of a probability. In
        float64 the errors of n rows are of either sign and add up as √n. float32 is the precision
        of the scores and factors; they are added up in float64.
        """
        return self.slack_in(self.emission.dtype)

    def slack_in(self, dtype) -> float:
        """:attr:`slack` of arithmetic in another type."""
        times = 1.0 if dtype == np.float32 else 4 * np.sqrt(self.longest)
        eps = float(np.finfo(dtype).eps) + EPS
        return times * eps * (self.longest + self.size)

    @property
    def one_sign(self) -> float:
        """Factor of the tolerance for sums of errors of one sign.

        In float32, transitions are rounded once and used at each row, and Viterbi adds up in
        float32: 21 of 1.1 million answers for 13,000 cases differed by one to five times ``slack``.
        """
        return 8.0 if self.emission.dtype == np.float32 else 1.0

    @cached_property
    def impossible(self) -> bool:
        """Whether a sequence has no allowed path, so that every question is refused."""
        return any(chain.log_z == -np.inf for chain in self.chains)

    @cached_property
    def size(self) -> float:
        """A bound of the magnitudes of scores of paths, and of their log-sums."""
        a_row = _largest(self.emission) + _largest(self.transition) + np.log(self.n_labels)
        ends = [scores for scores in (self.start, self.end) if scores is not None]
        return self.longest * a_row + sum(map(_largest, ends))

    @contextmanager
    def worked_on(self) -> Iterator[None]:
        """Within, transitions are listed if this case wants it."""
        always = dict.fromkeys(pairs.LIMITS, (1.0, 0.0)) if self.listed else {}
        least = 0 if self.listed else pairs.LIST_ROWS
        with mock.patch.dict(pairs.LIMITS, always), mock.patch.object(pairs, "LIST_ROWS", least):
            yield


def _largest(scores: np.ndarray) -> float:
    finite = np.abs(scores[scores > -np.inf])
    return float(finite.max(initial=0))


def chain(k: int) -> ChainCase:
    """Chain number k."""
    rng = np.random.default_rng([k, 1])
    L, lengths = int(rng.choice(MANY_LABELS)), LENGTHS[rng.integers(len(LENGTHS))]
    if any(SCORES[_names(k)[1]].drift):
        L, lengths = max(2, min(L, 5)), (260,)
    dtype = (np.float64, np.float32)[int(rng.integers(2))]
    return _chain(k, rng, L, lengths, dtype)


def long_chain(k: int) -> ChainCase:
    """Long chain number k, in single precision."""
    rng = np.random.default_rng([k, 3])
    L, lengths = int(rng.choice(LABELS_OF_LONG)), LONG[rng.integers(len(LONG))]
    return _chain(k, rng, L, lengths, np.float32)


def _names(k: int) -> tuple[str, str]:
    # Of the support and of the scores.
    return list(SUPPORTS)[k % len(SUPPORTS)], list(SCORES)[k // len(SUPPORTS) % len(SCORES)]


def _chain(k: int, rng, L: int, lengths: tuple, dtype) -> ChainCase:
    support, recipe = _names(k)
    scores = SCORES[recipe]
    boundaries = ("none", "scored", "forbidding")[int(rng.integers(3))]
    listed = L >= LEAST_LISTED and rng.random() < 0.7
    block_rows = int(rng.choice(BLOCK_ROWS))
    transition = np.where(SUPPORTS[support](rng, L), _transitions(rng, scores, L), -np.inf)
    start, end = _boundaries(rng, scores, L, boundaries)
    emission = _emission(rng, scores, lengths, transition)
    name = (
        f"chain {k}: {support}, {recipe}, {L} labels, lengths {lengths}, boundaries {boundaries}, "
        f"{dtype.__name__}, {'lists' if listed else 'matrix'}, blocks of {block_rows}"
    )
    offsets = np.cumsum([0, *lengths])
    rounded = [x if x is None else x.astype(dtype) for x in (emission, transition, start, end)]
    return ChainCase(name, *rounded[:2], offsets, *rounded[2:], scores, listed, block_rows, k)


def _transitions(rng, recipe: Recipe, L: int) -> np.ndarray:
    scores = recipe.draw(rng, L, L) + recipe.sticky * np.eye(L)
    scores[rng.random((L, L)) < recipe.unscored] = 0
    scores[np.arange(L) != 1, min(1, L - 1)] -= recipe.unlikely
    return scores


def _boundaries(rng, recipe: Recipe, L: int, kind: str) -> tuple:
    if kind == "none" and not recipe.unlikely:
        return None, None
    start, end = recipe.draw(rng, L), recipe.draw(rng, L)
    if kind == "forbidding" and L > 1:
        start[rng.integers(L)] = end[rng.integers(L)] = -np.inf
    if recipe.unlikely and L > 1:
        start[1] = -np.inf
    return start, end


def _emission(rng, recipe: Recipe, lengths: tuple, transition: np.ndarray) -> np.ndarray:
    n, L = sum(lengths), len(transition)
    emission = recipe.draw(rng, n, L)
    if any(recipe.drift):
        emission[:, 1] += np.where(np.arange(n) < 0.6 * n, *recipe.drift)
    if recipe.holes:
        emission[rng.random((n, L)) < recipe.holes] = -np.inf
        _open_a_path(rng, emission, lengths, transition)
    return emission


def _open_a_path(rng, emission: np.ndarray, lengths: tuple, transition: np.ndarray) -> None:
    # One path through the holes of each sequence; in one case of eight, of all but the first.
    offsets = np.cumsum([0, *lengths])
    for s, (a, b) in enumerate(zip(offsets[:-1], offsets[1:])):
        if s == 0 and rng.random() < 1 / 8:
            continue
        label = int(rng.integers(len(transition)))
        for t in range(a, b):
            emission[t, label] = max(emission[t, label], -1.0)
            label = int(rng.choice(np.flatnonzero(transition[label] > -np.inf)))


# ---------------------------------------------------------------------- segmentations

# Each takes (rng, n) and gives rows (kind, start, stop) of potentials of n steps, n > 0.


def _anything(rng, n):
    H = int(rng.integers(0, 4 * n))
    start = rng.integers(0, n, H)
    return np.column_stack([rng.integers(0, 4, H), start, rng.integers(start, n) + 1])


def _tokens(rng, n):
    kinds = [kind for kind in range(4) if rng.random() < 0.5] or [3]
    return np.array([(kind, t, t + 1) for kind in kinds for t in range(n) if rng.random() < 0.9])


def _longest_spans(rng, n):
    return np.array([(kind, 0, n) for kind in range(4)] + [(3, t, t + 1) for t in range(n)])


def _every_segment(rng, n):
    return np.array([(0, i, j) for i in range(n) for j in range(i + 1, n + 1)])


POTENTIALS: dict[str, Callable] = {
    "anything": _anything,
    "tokens": _tokens,
    "longest spans": _longest_spans,
    "every segment": _every_segment,
    "nothing": lambda rng, n: np.zeros((0, 3)),
}
# Longest segments, of (rng, L).
MAX_LENGTHS: dict[str, Callable] = {
    "any": lambda rng, L: None,
    "one number": lambda rng, L: int(rng.integers(1, 5)),
    "each label": lambda rng, L: rng.integers(0, 4, L),
    "tokens": lambda rng, L: 1,
}
STEPS = [(4,), (1,), (0,), (7,), (3, 0, 5, 1), (11,), (6, 6, 6, 2)]


@dataclass
class SegmentCase(Case):
    """Sequences to segment: arguments of :func:`sklseq.inference.segment_forward_backward`."""

    name: str
    spans: SegmentSpans
    scores: np.ndarray
    transition: np.ndarray
    start: np.ndarray | None
    end: np.ndarray | None
    max_length: object
    recipe: Recipe
    seed: int = 0

    def sequence(self, n: int, columns, scores: np.ndarray) -> Segmentation:
        """The slow answers of n steps with these potentials."""
        limits = np.broadcast_to(0 if self.max_length is None else self.max_length, self.n_labels)
        return Segmentation(n, columns, scores, self.transition, self.start, self.end, limits)

    def own(self, s: int) -> tuple:
        """(kind, start, stop) of the potentials of sequence s, and their positions."""
        at = slice(*self.spans.offsets[s : s + 2])
        return (self.spans.kind[at], self.spans.start[at], self.spans.stop[at]), at

    @cached_property
    def sequences(self) -> list[Segmentation]:
        found = []
        for s, n in enumerate(self.spans.lengths.tolist()):
            columns, at = self.own(s)
            found.append(self.sequence(n, columns, self.scores[at]))
        return found

    @property
    def arguments(self) -> tuple[tuple, dict]:
        boundaries = {"start": self.start, "end": self.end, "max_length": self.max_length}
        return (self.spans, self.scores, self.transition), boundaries

    @cached_property
    def impossible(self) -> bool:
        """Whether a sequence has no allowed segmentation."""
        return any(sequence.log_z == -np.inf for sequence in self.sequences)

    @cached_property
    def slack(self) -> float:
        """Tolerance of a score and of a probability: see :attr:`ChainCase.slack`."""
        n = int(self.spans.lengths.max(initial=0))
        parts = (self.transition, self.start, self.end)
        size = sum(n * _largest(part) for part in parts if part is not None)
        size += np.abs(np.where(self.scores > -np.inf, self.scores, 0)).sum()
        eps = float(np.finfo(np.float64).eps) + EPS
        return 4 * eps * (n + size + n * np.log(2 * self.n_labels))


def segmentation(k: int) -> SegmentCase:
    """Segmentation problem number k."""
    rng = np.random.default_rng([k, 2])
    potentials = list(POTENTIALS)[k % len(POTENTIALS)]
    recipe = list(SCORES)[k // len(POTENTIALS) % len(SCORES)]
    support, limit = rng.choice(list(SUPPORTS)), rng.choice(list(MAX_LENGTHS))
    L, lengths = int(rng.choice([1, 2, 3, 5])), STEPS[rng.integers(len(STEPS))]
    boundaries = ("none", "scored", "forbidding")[int(rng.integers(3))]
    scores = SCORES[recipe]
    transition = np.where(SUPPORTS[support](rng, L), _transitions(rng, scores, L), -np.inf)
    spans = _spans(rng, POTENTIALS[potentials], lengths)
    of_potentials = scores.draw(rng, len(spans.kind), L)
    of_potentials[rng.random(of_potentials.shape) < scores.holes / 2] = -np.inf
    max_length = MAX_LENGTHS[limit](rng, L)
    name = (
        f"segmentation {k}: {potentials}, {support}, {recipe}, {L} labels, steps {lengths}, "
        f"longest segments {limit}, boundaries {boundaries}"
    )
    ends = _boundaries(rng, scores, L, boundaries)
    return SegmentCase(name, spans, of_potentials, transition, *ends, max_length, scores, k)


def _spans(rng, draw: Callable, lengths: tuple) -> SegmentSpans:
    parts = [draw(rng, n).reshape(-1, 3) if n else np.zeros((0, 3)) for n in lengths]
    flat = np.concatenate(parts).astype(np.int64)
    offsets = np.cumsum([0, *map(len, parts)])
    return SegmentSpans(np.array(lengths), offsets, *flat.T)

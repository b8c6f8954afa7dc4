"""The log-likelihood of sequences of any length, and the choice of its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from sklseq._blocks import LabelBlocks, blocks_of, label_blocks, one_shot_error
from sklseq._labels import unique_labels
from sklseq._sequences import Sequences, check_sample_weight
from sklseq.inference.chain import _chain, check_paths
from sklseq.inference.expectation import BlockChain
from sklseq.objectives._passes import TAIL, Checkpoints, Counts, OnePass, Stored, StoredOnce
from sklseq.objectives._scores import ScoreMap
from sklseq.objectives._survey import BlockSequence, Survey, survey, survey_labels

__all__ = [
    "GRADIENTS",
    "LongData",
    "LongLogLikelihood",
    "Plan",
    "memory_told",
    "plan_gradient",
]

GRADIENTS = ("auto", "forward-backward", "checkpoint", "emp")
BLOCK_ROWS = 4096
LEAST_ROWS = 64


class Plan(NamedTuple):
    """How gradients are computed.

    Attributes
    ----------
    gradient : "forward-backward", "checkpoint" or "emp"
    passes : class of ``_passes.py``, or None
        None: packed sequences, ``_likelihood.py``.
    block_rows : int
        Rows worked on at a time.
    why : str
        For the user.
    keep : float
        Bytes that checkpointing may keep of the last rows.
    """

    gradient: str
    passes: type | None
    block_rows: int
    why: str
    keep: float = 0.0


def plan_gradient(
    gradient: str, n_rows: int, n_labels: int, *, packed: bool, random_access: bool, budget: float
) -> Plan:
    """Choose the gradient, and how it is done.

    Parameters
    ----------
    gradient : str
        One of ``GRADIENTS``.
    n_rows : int
        Of the longest sequence.
    n_labels : int
    packed : bool
        Whether X is in memory as one matrix, rather than in blocks.
    random_access : bool
        Whether all sequences can be read from any row on.
    budget : float
        Bytes that may be kept for the rows of a sequence.

    Returns
    -------
    Plan
    """
    factor = 8.0 * n_rows * _chain.padded_width(n_labels)
    kept = (4 if packed else 2) * factor
    why = f"forward-backward keeps {_size(kept)}, of {_size(budget)} allowed"
    if gradient == "auto":
        gradient = "forward-backward" if kept <= budget else "emp"
    elif gradient == "checkpoint" and not random_access:
        raise ValueError(
            "gradient='checkpoint' reads blocks from the last to the first, but X can only be read "
            "from the beginning; use gradient='emp', or pass an array, a memory map or a .npy file."
        )
    if gradient == "forward-backward" and packed:
        return Plan(gradient, None, n_rows, why)
    case = Stored if 2 * factor <= budget else StoredOnce
    passes = {"emp": OnePass, "checkpoint": Checkpoints, "forward-backward": case}[gradient]
    block_rows, keep = _block_rows(budget, n_labels)
    return Plan(gradient, passes, block_rows, why, keep)


def _block_rows(budget: float, n_labels: int) -> tuple[int, float]:
    # So many that what is computed of them stays within the budget; what they leave of it.
    width = _chain.padded_width(n_labels)
    a_row, fixed = 8.0 * width * 7, 16.0 * TAIL * n_labels * width
    n = int(min(BLOCK_ROWS, (budget - fixed) // a_row))
    if n < LEAST_ROWS:
        raise ValueError(
            f"working_memory allows {_size(budget)}, but a block of {LEAST_ROWS} rows needs "
            f"{_size(LEAST_ROWS * a_row + fixed)}; raise it: "
            "sklearn.set_config(working_memory=<MiB>)."
        )
    return n, budget - n * a_row - fixed


def _size(n_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000 or unit == "GB":
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    raise AssertionError


@contextmanager
def memory_told(plan: Plan) -> Iterator[None]:
    """Say what to do where memory runs out."""
    try:
        yield
    except MemoryError as error:
        raise MemoryError(
            f"gradient={plan.gradient!r} ran out of memory ({plan.why}); use gradient='emp', whose "
            "memory does not grow with the sequence, on rows in blocks if X itself is too large."
        ) from error


class LongData(NamedTuple):
    """Training data in blocks.

    Attributes
    ----------
    sources : list of RowBlocks
    survey : Survey
    weights : ndarray of shape (n_sequences,)
    plan : Plan
    """

    sources: list
    survey: Survey
    weights: np.ndarray
    plan: Plan

    @classmethod
    def read(cls, sources: list, y: Any, sample_weight: Any, plan: Callable) -> LongData:
        """Look at X and y once: labels first, then rows and labels."""
        labels = label_blocks(y, len(sources))
        weights = check_sample_weight(sample_weight, len(sources))
        _check_repeatable(sources, labels)
        classes, lengths = survey_labels(labels)
        random_access = all(source.random_access for source in sources)
        plan = plan(lengths.max(), len(classes), packed=False, random_access=random_access)
        found = survey(sources, labels, classes, weights, plan.block_rows)
        return cls(sources, found, weights, plan)

    @classmethod
    def packed(cls, X: Sequences, flat: np.ndarray, weights: np.ndarray, plan: Plan) -> LongData:
        """Sequences in memory, with their checked labels end to end."""
        sources, cuts = blocks_of(X), zip(X.offsets[:-1], X.offsets[1:])
        labels = [LabelBlocks(flat[a:b]) for a, b in cuts]
        found = survey(sources, labels, unique_labels(flat), weights, plan.block_rows)
        return cls(sources, found, weights, plan)


def _check_repeatable(sources: list, labels: list) -> None:
    for s, (rows, one) in enumerate(zip(sources, labels)):
        for name, source in ((f"X[{s}]", rows), (f"y[{s}]", one)):
            if source.one_shot:
                raise one_shot_error(
                    name,
                    "the solvers 'lbfgs' and 'owlqn' read X once or twice an evaluation, some "
                    "hundred times in all, and fit reads X and y before that to look at them",
                )


class LongLogLikelihood:
    """f(w) = -Σ_s weight_s · log p(y_s | x_s) + l2 · ‖w‖²₂, on sequences in blocks.

    The value and gradient of ``LogLikelihood``, written as

        f(w) = Σ_s weight_s log Z_s - w · observed + l2 · ‖w‖²,
        ∇f   = Σ_s weight_s E_s[features] - observed + 2 · l2 · w:

    observed counts never change, so labels are read once, in :func:`survey`; expected ones are
    the work of a pass (``_passes.py``).

    Parameters
    ----------
    scores : ScoreMap
        Of ``survey.layout()``: the layout of w, no rows.
    data : LongData
    l2 : float

    Notes
    -----
    An evaluation reads each source ``plan.passes.n_reads`` times. Sums are in float64.
    """

    def __init__(self, scores: ScoreMap, data: LongData, l2: float):
        self.scores, self.weights, self.l2 = scores, data.weights, float(l2)
        self.passes = data.plan.passes
        self.sequences = [
            BlockSequence(source, s, data.plan.block_rows, int(n), data.plan.keep)
            for s, (source, n) in enumerate(zip(data.sources, data.survey.lengths))
        ]
        self.observed = self._pack(data.survey.observed)
        self.n_evaluations = 0

    def value_and_gradient(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """f(w); its gradient is written into ``gradient``."""
        log_z, counts = self._expect(w)
        check_paths(log_z)
        wide = w.astype(np.float64)
        gradient[:] = self._pack(counts) - self.observed + 2 * self.l2 * wide
        self.n_evaluations += 1
        return float(self.weights @ log_z - wide @ self.observed + self.l2 * (wide @ wide))

    def _expect(self, w: np.ndarray) -> tuple[np.ndarray, Counts]:
        scores, log_z = self.scores, np.zeros(len(self.sequences))
        W = scores.design.unpack(scores.state(w)).astype(np.float64)
        bc = BlockChain(scores.chain(w))
        counts = Counts(scores.n_features, scores.width)
        for s, sequence in enumerate(self.sequences):
            if sequence.n_rows:
                log_z[s] = self.passes(bc, W, counts, self.weights[s]).run(sequence)
        return log_z, counts

    def _pack(self, counts: Counts) -> np.ndarray:
        # As scores.pack, but in float64 whatever the weights are.
        L = self.scores.n_labels
        gradient = np.empty(self.scores.n_weights)
        self.scores.state(gradient)[:] = self.scores.design.pack(counts.state)
        self.scores.store_chain(gradient, counts.pairs[:L, :L], counts.start, counts.end)
        return gradient

"""Inference over segmentations: best, n best, log Z and marginals of every potential, samples.

The input is a set of potentials: the segments for which each is active, and its scores. Recursions
are in ``_segments.pyx`` and ``_segment_best.pyx``, the order in which they process a sequence in
``_segment_plan.pyx``, their specification in ``tests/segment_reference.py``. If all potentials are
of single tokens, ``_segment_tokens.pyx`` and ``_segment_tokens_best.pyx`` replace the first two.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.checks import check_number
from sklseq._lib.cpu import load_kernel
from sklseq._lib.ragged import offsets_of
from sklseq.data.segment_potentials import OPEN_BOTH, SegmentPotentials, check_spans
from sklseq.data.sequences import as_numbers
from sklseq.data.types import ArrayLike, RandomState
from sklseq.inference.chain.large_scores import has_large, take_out_row_maxima
from sklseq.inference.chain.linear_chain import _chain as _linear_chain
from sklseq.inference.chain.linear_chain import (
    as_generator,
    check_scores,
    check_sums,
    check_transition,
    check_weights,
    longest_first,
    row_blocks,
)
from sklseq.inference.chain.row_transitions import RowTransitions, TransitionLike

_plan = load_kernel("sklseq.inference.kernels._segment_plan")
_sums = load_kernel("sklseq.inference.kernels._segments")
_best = load_kernel("sklseq.inference.kernels._segment_best")
_token_sums = load_kernel("sklseq.inference.kernels._segment_tokens")
_token_best = load_kernel("sklseq.inference.kernels._segment_tokens_best")

# Size of a block: numbers in its rows of states, or steps if all potentials are of single tokens.
# The potentials of a block then stay in the second-level cache.
BLOCK_NUMBERS = 1 << 16
BLOCK_STEPS = 1536
# Steps after which groups of starts that are kept apart become so small that they underflow.
LONG = 500
NEVER = np.iinfo(np.int64).max // 4  # number of steps that stands for "no limit"


class SegmentSpans(NamedTuple):
    """The segments for which each potential is active, of a set of sequences.

    Attributes
    ----------
    lengths : ndarray of shape (n_sequences,)
        Steps of each sequence.
    offsets : ndarray of shape (n_sequences + 1,)
        Potentials of sequence s are ``offsets[s]:offsets[s + 1]``.
    kind, start, stop : ndarray of shape (n_potentials,)
        As in :class:`sklseq.SegmentPotentials`, which can be used in place of this class.
    """

    lengths: np.ndarray
    offsets: np.ndarray
    kind: np.ndarray
    start: np.ndarray
    stop: np.ndarray


def as_spans(spans: Any) -> SegmentSpans:
    """The spans as checked integers, which kernels use as indices without further checks.

    Arrays of :class:`SegmentPotentials` are writable, so they are checked at each call.
    """
    if isinstance(spans, SegmentPotentials):
        spans.check_rows()
    elif not all(hasattr(spans, name) for name in SegmentSpans._fields):
        raise ValueError(
            f"spans must be a SegmentSpans or a SegmentPotentials; got {type(spans).__name__}."
        )
    return SegmentSpans(*check_spans(*(getattr(spans, name) for name in SegmentSpans._fields)))


class SegmentMarginals(NamedTuple):
    """Answer of :func:`segment_forward_backward`.

    Attributes
    ----------
    log_z : ndarray of shape (n_sequences,)
        Logarithm of the sum over all segmentations of exp(score); 0 for an empty sequence.
    potentials : ndarray of shape (n_potentials, n_labels)
        Probability of a segment of each label for which the potential is active.
    tokens : ndarray of shape (n_steps, n_labels)
        Probability that each step lies in a segment of each label.
    transition : ndarray of shape (n_labels, n_labels)
        Expected number of segments i followed by j, summed over all sequences.
    start, end : ndarray of shape (n_labels,)
        Expected number of first and last segments of each label.
    """

    log_z: np.ndarray
    potentials: np.ndarray
    tokens: np.ndarray
    transition: np.ndarray
    start: np.ndarray
    end: np.ndarray


class SegmentPlan:
    """The order in which recursions process potentials, arranged once for all evaluations.

    Parameters
    ----------
    spans : SegmentSpans, SegmentPotentials, or anything with their attributes
    n_labels : int
    max_length : int, array-like of shape (n_labels,), or None
        The longest segment of each label; 0 in an array means any length.

    Attributes
    ----------
    cell_of : ndarray of shape (n_potentials,)
        Cell of each potential: potentials of the same kind, start and stop are one cell.
    n_states : int
        Number of groups of starts, summed over steps: the cost of an evaluation is
        n_states · n_labels + n_steps · n_labels². It is at most n · m, where m is the longest span
        of a potential.
    lost : ndarray of shape (n_cells,), or None
        What :meth:`cell_scores` has taken out of the scores of cells; None: nothing.
    lost_at_ends : float
        The same of start and end scores, see :func:`planned`.

    Notes
    -----
    If no label has a longest length, starts are kept apart only as long as a later potential
    distinguishes them: Sarawagi (2006, §3.1) with any number of groups instead of one.
    """

    lost: np.ndarray | None = None
    lost_at_ends = 0.0

    def __init__(self, spans: Any, n_labels: int, max_length: Any = None):
        self.n_labels, self.width = n_labels, _linear_chain.padded_width(n_labels)
        spans = as_spans(spans)
        self.steps = offsets_of(spans.lengths)
        self._join(spans)
        self._limit(max_length)
        self._arrange()
        self.token_kinds, self.token_cells = self._of_tokens()

    @property
    def n_states(self) -> int:
        return len(self.mask)

    @property
    def n_cells(self) -> int:
        return len(self.kind)

    @property
    def n_sequences(self) -> int:
        return len(self.steps) - 1

    def _join(self, spans: Any) -> None:
        sequence = np.repeat(np.arange(len(spans.lengths)), np.diff(spans.offsets))
        kind, start, stop = spans.kind, spans.start, spans.stop
        # Potentials are sorted by stop, then by decreasing start: the order in which steps read
        # them. The sort key is at most 4 n² for n steps in all.
        longest = int((stop - start).max(initial=0)) + 1
        key = ((self.steps[sequence] + stop) * longest + stop - start) * 4 + kind
        self.order = np.argsort(key, kind="stable")
        key = key[self.order]
        new = np.ones(len(key), dtype=bool)
        np.not_equal(key[1:], key[:-1], out=new[1:])
        self.first = np.flatnonzero(new)
        self.cell_of = np.empty(len(self.order), dtype=np.int64)
        self.cell_of[self.order] = np.cumsum(new) - 1
        of_cell = self.order[self.first]
        self.kind = kind[of_cell].astype(np.int8)
        self.start, self.stop = start[of_cell], stop[of_cell]
        counts = np.bincount(sequence[of_cell], minlength=len(spans.lengths))
        self.cells = offsets_of(counts)

    def _limit(self, max_length: Any) -> None:
        L = self.n_labels
        limits = np.zeros(L, dtype=np.int64)
        if max_length is not None:
            limits[:] = max_length
        longest = int(np.diff(self.steps).max(initial=1))
        self.limits = limits = np.minimum(limits, longest)  # longer segments do not fit anyway
        finite = limits[limits > 0]
        self.longest = int(finite.max(initial=0))
        self.drop = int(self.longest) if len(finite) == L else NEVER
        self.at_limit = np.zeros(self.longest + 1, dtype=np.int32)
        self.at_limit[finite] = 1
        self.masks = np.zeros((self.longest + 1, self.width))
        self.masks[:, :L] = (limits == 0) | (np.arange(self.longest + 1)[:, None] < limits)
        with np.errstate(divide="ignore"):
            self.log_masks = np.log(self.masks)

    def _arrange(self) -> None:
        # A longest length of 1 needs no states of its own: older starts cannot have these labels.
        self.kept_apart = self.longest if self.longest > 1 else 0
        n = int(self.steps[-1])
        self.step_states = np.zeros(n + 1, dtype=np.int64)
        self.entry = np.zeros(n, dtype=np.int64)
        for fill in (False, True):
            size = int(self.step_states[-1])
            self.first_cell, self.last_cell = np.zeros((2, size), dtype=np.int64)
            self.target = np.full(size, -1, dtype=np.int64)
            self.mask = np.zeros(size, dtype=np.int32)
            self.most = _plan.arrange(self, fill)
        self.states = self.step_states[self.steps]
        self.largest = int(np.diff(self.states).max(initial=0))
        self.run = np.zeros(size, dtype=np.int32)
        if self.width <= 8:  # longer rows do not fit registers: no gain
            _plan.find_runs(self)
        self.unreached = None  # cells of segments that are too long: no state reads them
        if self.drop < NEVER:
            seen = np.zeros(self.n_cells + 1, dtype=np.int64)
            np.add.at(seen, self.first_cell, 1)
            np.add.at(seen, self.last_cell, -1)
            self.unreached = np.cumsum(seen[:-1]) == 0

    def _of_tokens(self) -> tuple[np.ndarray | None, np.ndarray | None]:
        # For ``_segment_tokens.pyx``, if all potentials are of single tokens: the kinds of cells of
        # each step, one bit for each kind, and its first cell.
        if self.longest > 1 or (self.stop - self.start != 1).any():
            return None, None
        at = np.repeat(self.steps[:-1], np.diff(self.cells)) + self.start
        n = int(self.steps[-1])
        kinds = np.bincount(at, np.left_shift(1, self.kind), minlength=n).astype(np.uint8)
        return kinds, offsets_of(np.bincount(at, minlength=n))[:-1]

    def longest_cell(self, s: int) -> int:
        """The largest number of steps that a cell of sequence s spans."""
        own = slice(self.cells[s], self.cells[s + 1])
        return int((self.stop[own] - self.start[own]).max(initial=0))

    def magnitude_bound(self, s: int, psi: np.ndarray) -> float:
        """Largest sum of magnitudes of the cells around one boundary between steps of sequence s.

        See the notes of ``_segments.pyx``.
        """
        own = slice(self.cells[s], self.cells[s + 1])
        start, stop, n = self.start[own], self.stop[own], int(self.steps[s + 1] - self.steps[s])
        size = np.where(stop - start > 1, np.abs(psi).max(axis=1, initial=0), 0)
        if not np.isfinite(size).all():
            return np.inf
        change = [np.bincount(at, size, n + 1) for at in (start + 1, stop)]
        return float(np.cumsum(change[0] - change[1]).max(initial=0))

    def blocks(self, n_threads: int = 1) -> list[tuple[int, int]]:
        """Runs of sequences that are processed in one call, several for each thread."""
        cuts, most = self.states, BLOCK_NUMBERS // self.width
        if self.token_kinds is not None:
            cuts, most = self.steps, BLOCK_STEPS
        if n_threads > 1:
            most = min(most, max(int(cuts[-1]) // (4 * n_threads), 256))
        return row_blocks(cuts, most)

    def cell_matrix(self, n_rows: int, row: np.ndarray | None = None) -> sparse.csr_matrix:
        """CSR matrix (n_cells, n_rows) whose product with rows of potentials is the rows of cells.

        Potential p has row ``row[p]``; by default, row p.
        """
        at = self.order if row is None else row[self.order]
        ends = np.append(self.first, len(at))
        return sparse.csr_matrix((np.ones(len(at)), at, ends), (self.n_cells, n_rows))

    def cell_scores(self, scores: np.ndarray, row: np.ndarray | None = None) -> np.ndarray:
        """Padded scores of cells from those of potentials, which are ``scores[row]``.

        Large scores lose a constant if their cell is a step: one segment contains it, so that the
        scores of all segmentations lose the same.
        """
        psi, L = np.zeros((self.n_cells, self.width)), self.n_labels
        if self.n_cells:
            large = has_large(scores)
            if large:  # before the potentials of a cell are added up, and after it
                scores, row = scores.copy() if row is None else scores[row], None
                self.lost = np.zeros(self.n_cells)
                self._take_out(scores, self.cell_of)
            psi[:, :L] = self.cell_matrix(len(scores), row) @ scores
            if large:
                self._take_out(psi[:, :L], np.arange(self.n_cells))
        return psi

    def _take_out(self, scores: np.ndarray, cell: np.ndarray) -> None:
        # Of rows of scores, those of cells that are steps.
        assert self.lost is not None
        is_step = (self.kind == OPEN_BOTH) & (self.stop - self.start == 1)
        rows = np.flatnonzero(is_step[cell])
        of_steps = scores[rows]
        np.add.at(self.lost, cell[rows], take_out_row_maxima(of_steps))
        scores[rows] = of_steps

    def lost_in_all(self) -> np.ndarray:
        """What the scores of all segmentations of each sequence have lost."""
        if self.lost is None and self.lost_at_ends == 0:
            return np.zeros(self.n_sequences)
        lost = np.zeros(self.n_cells) if self.lost is None else self.lost
        ends = np.where(np.diff(self.steps) > 0, self.lost_at_ends, 0)
        bounds = zip(self.cells[:-1], self.cells[1:], ends)
        return np.array([math.fsum([*lost[a:b], end]) for a, b, end in bounds])


class SegmentTransitions:
    """Padded transition, start and end scores; with ``sums`` also their exponentials.

    ``rows`` has the scores of transitions into segments that start at single steps of the plan, and
    the array ``expected`` to which forward-backward adds; its shared scores are ``transition``.
    """

    def __init__(
        self, transition: np.ndarray, start: np.ndarray, end: np.ndarray, sums: bool = True,
        rows: RowTransitions | None = None,
    ):  # fmt: skip
        L, self.rows = len(transition), rows
        self.n_labels, self.width = L, _linear_chain.padded_width(L)
        self.score = np.full((self.width, self.width), -np.inf)
        self.score[:L, :L] = transition
        self.score_t = np.ascontiguousarray(self.score.T)
        self.boundary = np.full((2, self.width), -np.inf)
        self.boundary[:, :L] = start, end
        if sums:
            self._exponentiate()

    def _exponentiate(self) -> None:
        L = self.n_labels
        entries = np.zeros(0) if self.rows is None else self.rows.score
        scores = [self.score[:L, :L].ravel(), self.boundary[:, :L].ravel(), entries]
        scores = np.concatenate(scores)
        # If an exponential is not a normal number, all sequences are computed in the log domain.
        self.is_normal = bool((np.abs(scores[scores > -np.inf]) < 690).all())
        self.E, self.ends = np.zeros_like(self.score), np.zeros_like(self.boundary)
        if self.is_normal:
            np.exp(self.score, out=self.E)
            np.exp(self.boundary, out=self.ends)
            self.entries = np.exp(entries)
        self.E_t = np.ascontiguousarray(self.E.T)

    def entries_of_scores(self) -> tuple | None:
        """Scores of single steps for kernels, with memory that kernels overwrite."""
        return None if self.rows is None else self.rows.for_kernels(self.rows.score, self.width)

    def entries_of_factors(self) -> tuple | None:
        """Exponentials of the scores of single steps for kernels."""
        return None if self.rows is None else self.rows.for_kernels(self.entries, self.width)

    def into(self, steps: np.ndarray) -> np.ndarray:
        """Scores (n, n_labels, n_labels) of transitions into segments that start at ``steps``."""
        if self.rows is not None:
            return self.rows.take(steps)
        L = self.n_labels
        return np.broadcast_to(self.score[:L, :L], (len(steps), L, L))


class Batch(NamedTuple):
    """Scores of consecutive sequences of a plan, and arrays for the results.

    Attributes
    ----------
    a : int
        The first sequence.
    psi : ndarray of shape (n_cells, width)
        Padded scores of their cells.
    weights, log_z : ndarray of shape (n_sequences,)
    F : ndarray of shape (n_cells, width)
        Marginals of the cells.
    tokens : ndarray of shape (n_steps, width)
        Marginals of labels at steps.
    """

    a: int
    psi: np.ndarray
    weights: np.ndarray
    log_z: np.ndarray
    F: np.ndarray
    tokens: np.ndarray

    def sequence(self, plan: SegmentPlan, s: int) -> Batch:
        """The s-th sequence alone."""
        a = self.a + s
        cells = slice(*(plan.cells[a : a + 2] - plan.cells[self.a]))
        steps = slice(*(plan.steps[a : a + 2] - plan.steps[self.a]))
        one = slice(s, s + 1)
        return Batch(
            a, self.psi[cells], self.weights[one], self.log_z[one], self.F[cells],
            self.tokens[steps],
        )  # fmt: skip


class SegmentWorkspace:
    """Scratch arrays for blocks of sequences of a plan, and sums over all processed sequences."""

    def __init__(self, plan: SegmentPlan, blocks: list[tuple[int, int]]):
        self.plan, width = plan, plan.width
        cells = max((plan.cells[b] - plan.cells[a] for a, b in blocks), default=0)
        steps = max((plan.steps[b] - plan.steps[a] for a, b in blocks), default=0)
        self.F = np.empty((cells, width))
        self.psi = np.empty((cells, width))
        self.alpha, self.u, self.tokens = np.empty((3, steps, width))
        self.factor = np.empty(steps)
        of_tokens = plan.token_kinds is not None
        self.G = np.empty((max(steps, plan.largest) if of_tokens else plan.largest, width))
        # Rows of a step and pointers to some of them, or pair marginals.
        self.scratch = np.empty((max(6 + 3 * plan.most, width + 3), width))
        self.orders: dict = {}
        self.pairwise = np.zeros((2, width, width))  # [0] is to be multiplied by E
        self.ends = np.zeros((2, width))

    def clear(self) -> None:
        self.pairwise[:] = 0
        self.ends[:] = 0

    def forward_backward(
        self, psi: np.ndarray, a: int, b: int, chain: SegmentTransitions, weights: np.ndarray,
        log_z: np.ndarray,
    ) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
        """log Z of sequences a to b - 1, from the scores ``psi`` of their cells.

        Returns the padded marginals of their cells and of their steps: views that the next call
        overwrites. Expected transitions, starts and ends, times the sequences' weights, are added
        up in this workspace.
        """
        n = int(self.plan.steps[b] - self.plan.steps[a])
        batch = Batch(a, psi, weights, log_z, self.F[: len(psi)], self.tokens[:n])
        if n == 0:
            log_z[:] = 0
        elif not self._of_tokens(batch, chain):
            drop = b == a + 1 and self.plan.longest_cell(a) > LONG and self._may_drop(batch)
            self._scaled(batch, chain, drop=drop)
            for s in np.flatnonzero(np.isnan(log_z)):
                self._again(batch.sequence(self.plan, int(s)), chain)
        return batch.F, batch.tokens

    def _of_tokens(self, batch: Batch, chain: SegmentTransitions) -> bool:
        # Use the kernel for potentials of single tokens, if it applies. Returns whether the results
        # are exact; if not, sums have not changed.
        if self.plan.token_kinds is None or not chain.is_normal or chain.rows is not None:
            return False
        a, b = batch.a, batch.a + len(batch.log_z)
        if (a, b) not in self.orders:  # kept for later evaluations
            self.orders[a, b] = longest_first(self.plan.steps[a : b + 1])
        return _token_sums.forward_backward_tokens(self.plan, chain, self, batch, self.orders[a, b])

    def _scaled(self, batch: Batch, chain: SegmentTransitions, drop: bool = False) -> None:
        plan, a, b = self.plan, batch.a, batch.a + len(batch.log_z)
        if chain.is_normal:
            _sums.forward_backward_scaled(plan, chain, self, batch, drop)
        else:
            batch.log_z[:] = np.where(np.diff(plan.steps[a : b + 1]) > 0, np.nan, 0)
        if plan.unreached is not None:
            batch.F[plan.unreached[plan.cells[a] : plan.cells[b]]] = 0

    def _again(self, one: Batch, chain: SegmentTransitions) -> None:
        # Repeat one sequence: leave out small numbers if allowed, otherwise use the log domain.
        if self._may_drop(one):
            self._scaled(one, chain, drop=True)
        if np.isnan(one.log_z[0]):
            self._log_domain(one, chain)

    def _may_drop(self, one: Batch) -> bool:
        # Whether small numbers may be left out: see the notes of ``_segments.pyx``.
        return self.plan.longest <= 1 and self.plan.magnitude_bound(one.a, one.psi) <= _sums.REACH

    def _log_domain(self, one: Batch, chain: SegmentTransitions) -> None:
        one.log_z[0], log_G, log_alpha = log_forward(self.plan, one.a, one.psi, chain)
        if one.log_z[0] == -np.inf:
            return
        one.F[:] = 0
        one.tokens[:] = 0
        _sums.backward_log(
            self.plan, chain, one.a, one, log_G, log_alpha, self.pairwise[1], self.ends
        )

    def transition_sum(self, chain: SegmentTransitions) -> np.ndarray:
        """Expected transitions since :meth:`clear`, shape (n_labels, n_labels)."""
        L = chain.n_labels
        return (self.pairwise[0] * chain.E + self.pairwise[1])[:L, :L]


def log_forward(plan: SegmentPlan, s: int, psi: np.ndarray, chain: SegmentTransitions):
    """(log Z, log G, log alpha) of sequence s from the scores of its cells."""
    log_G = np.empty((plan.states[s + 1] - plan.states[s], plan.n_labels))
    log_alpha = np.empty((plan.steps[s + 1] - plan.steps[s], plan.n_labels))
    return _sums.forward_log(plan, chain, s, psi, log_G, log_alpha), log_G, log_alpha


def segment_forward_backward(
    spans: SegmentSpans | SegmentPotentials,
    scores: ArrayLike,
    transition: TransitionLike,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    max_length: int | ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> SegmentMarginals:
    """log Z over all segmentations, and the marginals of every potential.

    A segmentation of n steps into segments [t_k, t_{k+1}) of labels y_k has the score

        s = start(y_1) + Σ_k transition(y_{k-1}, y_k) + Σ_k Σ_p scores[p, y_k] + end(y_last),

    where p runs over the potentials active for segment k (see :class:`sklseq.SegmentPotentials`).

    Parameters
    ----------
    spans : SegmentPotentials or SegmentSpans
        The segments for which each potential is active. Features, if any, are ignored.
    scores : array-like of shape (n_potentials, n_labels)
        Score of each potential for each label; -inf forbids.
    transition : array-like of shape (n_labels, n_labels), or RowTransitions
        Score of a segment of label i followed by one of label j; -inf forbids. Scores that depend
        on the step at which the second segment starts: an array of shape (n_steps, n_labels,
        n_labels), where matrix t is for segments that start at step t (those of first steps of
        sequences are ignored); or a :class:`RowTransitions`, if few of them differ. Expected
        transitions of its entries are added to its ``expected``, unless that is None.
    start, end : array-like of shape (n_labels,), optional
        Scores of the first and the last segment's label.
    max_length : int or array-like of shape (n_labels,), optional
        Longest segment, for all labels or for each (0: any length). By default any length.
    weights : array-like of shape (n_sequences,), optional
        Weight of each sequence in ``transition``, ``start`` and ``end``. By default 1.

    Returns
    -------
    SegmentMarginals
        Named tuple ``(log_z, potentials, tokens, transition, start, end)``.

    Raises
    ------
    ValueError
        If shapes do not fit, a score is NaN or +inf, or a sequence has no allowed segmentation.

    Notes
    -----
    Cost O(n · n_labels² + (V + H) · n_labels) time for H potentials and V ≤ n · m group states,
    where m is the longest span of a potential: it does not depend on the length of segments. Memory
    O(V · n_labels) of the largest sequence beside input and output. The recursion is scaled, and
    proven exact or redone in the log domain. A step with its own transitions costs in addition the
    number of its entries, or n_labels² for their expectations.

    References
    ----------
    S. Sarawagi (2006), "Efficient inference on sequence segmentation models", Proc. 23rd ICML,
    §3.1, §3.2. Marginals are derivatives of log Z here; nothing is divided by β.

    Examples
    --------
    Two steps have two segmentations; with one label and no potentials, both score 0:

    >>> import numpy as np
    >>> from sklseq.inference import SegmentSpans, segment_forward_backward
    >>> none = np.zeros(0, dtype=int)
    >>> spans = SegmentSpans(np.array([2]), np.array([0, 0]), none, none, none)
    >>> answer = segment_forward_backward(spans, np.zeros((0, 1)), [[0.0]])
    >>> np.exp(answer.log_z), answer.transition
    (array([2.]), array([[0.5]]))
    """
    plan, psi, chain = checked_input(spans, scores, transition, start, end, max_length)
    S, L = plan.n_sequences, plan.n_labels
    weights = np.ones(S) if weights is None else check_weights(weights, S)
    log_z, tokens = np.zeros(S), np.empty((plan.steps[-1], L))
    marginals, blocks = np.empty((plan.n_cells, L)), plan.blocks()
    work = SegmentWorkspace(plan, blocks)
    for a, b in blocks:
        cells, steps = (slice(o[a], o[b]) for o in (plan.cells, plan.steps))
        F, t = work.forward_backward(psi[cells], a, b, chain, weights[a:b], log_z[a:b])
        marginals[cells], tokens[steps] = F[:, :L], t[:, :L]
    check_segmentations(log_z)
    log_z += plan.lost_in_all()
    first, last = work.ends[:, :L]
    return SegmentMarginals(
        log_z, marginals[plan.cell_of], tokens, work.transition_sum(chain), first, last
    )


def segment_viterbi(
    spans: SegmentSpans | SegmentPotentials,
    scores: ArrayLike,
    transition: TransitionLike,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    max_length: int | ArrayLike | None = None,
) -> tuple[list[np.ndarray], np.ndarray]:
    """Best segmentation of each sequence, and its score.

    Among segmentations of equal score, the one whose last segment has the lowest label is chosen,
    then the one whose last segment starts latest; further ties are decided by the segment before
    it, and so on.

    Parameters
    ----------
    spans, scores, transition, start, end, max_length
        As in :func:`segment_forward_backward`.

    Returns
    -------
    segments : list of ndarray of shape (n_segments, 3)
        Rows (start, stop, label), in order.
    scores : ndarray of shape (n_sequences,)

    Raises
    ------
    ValueError
        As in :func:`segment_forward_backward`.

    Notes
    -----
    Cost as :func:`segment_forward_backward`.

    References
    ----------
    S. Sarawagi (2006), "Efficient inference on sequence segmentation models", Proc. 23rd ICML,
    §3.1, "Most likely segmentation".

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import SegmentSpans, segment_viterbi
    >>> spans = SegmentSpans(*map(np.array, ([3], [0, 1], [0], [0], [2])))
    >>> segment_viterbi(spans, [[1.0, 2.0]], np.zeros((2, 2)))
    ([array([[0, 2, 1],
           [2, 3, 0]])], array([2.]))
    """
    plan, psi, chain = checked_input(spans, scores, transition, start, end, max_length)
    segments, best = best_segments(plan, psi, chain)
    check_segmentations(best)
    return segments, best + plan.lost_in_all()


class BestSegments:
    """Arrays for the best segmentations of sequences a to b - 1 of a plan."""

    def __init__(self, plan: SegmentPlan, a: int, b: int):
        self.a, self.steps = a, plan.steps[a : b + 1]
        self.found = np.empty((self.steps[-1] - self.steps[0], 3), dtype=np.int64)
        self.counts, self.scores = np.zeros(b - a, dtype=np.int64), np.zeros(b - a)

    def part(self, i: int, j: int) -> BestSegments:
        """The same arrays for sequences a + i to a + j - 1."""
        one = object.__new__(BestSegments)
        one.a, one.steps = self.a + i, self.steps[i : j + 1]
        one.found = self.found[self.steps[i] - self.steps[0] : self.steps[j] - self.steps[0]]
        one.counts, one.scores = self.counts[i:j], self.scores[i:j]
        return one

    def as_list(self) -> list[np.ndarray]:
        first = self.steps[:-1] - self.steps[0]
        return [self.found[i:j] for i, j in zip(first.tolist(), (first + self.counts).tolist())]


class BestPrefixes(BestSegments):
    """BestSegments with the last segment first, and the best prefixes of the last sequence.

    Attributes
    ----------
    G, origin : ndarray of shape (n_states, width)
        Scores of prefixes with an open segment, and the start of that segment.
    alpha, best_start : ndarray of shape (n_steps, width)
        Scores of prefixes whose last segment ends at a step, and the start of that segment.
    """

    def __init__(
        self, plan: SegmentPlan, psi: np.ndarray, chain: SegmentTransitions, a: int, b: int
    ):
        super().__init__(plan, a, b)
        longest = int(np.diff(self.steps).max(initial=0))
        self.G, self.origin = np.empty((2, plan.largest, plan.width))
        self.alpha, self.best_start = np.empty((2, longest, plan.width))
        self.top = np.empty(longest)
        if longest:
            _best.viterbi(plan, chain, psi, self)


def best_segments(
    plan: SegmentPlan, psi: np.ndarray, chain: SegmentTransitions, a: int = 0, b: int | None = None
) -> tuple[list[np.ndarray], np.ndarray]:
    """Best segmentations and their scores, from the padded scores of cells of sequences a to b - 1.

    The score -inf marks a sequence without an allowed segmentation.
    """
    b = plan.n_sequences if b is None else b
    if plan.token_kinds is None or chain.rows is not None:
        best = BestPrefixes(plan, psi, chain, a, b)
        return [rows[::-1].copy() for rows in best.as_list()], best.scores
    # Blocks of rows that fit the cache.
    best = BestSegments(plan, a, b)
    parts = [best.part(i, j) for i, j in row_blocks(best.steps)]
    longest = max((len(part.found) for part in parts), default=0)
    scratch, top = np.empty((3, longest + 1, plan.width)), np.empty(longest)
    for part in parts:
        if len(part.found):
            part.scratch, part.top = scratch, top
            own = psi[plan.cells[part.a] - plan.cells[a] :]
            _token_best.viterbi_tokens(plan, chain, own, part, longest_first(part.steps))
    return best.as_list(), best.scores


def segment_nbest(
    spans: SegmentSpans | SegmentPotentials,
    scores: ArrayLike,
    transition: TransitionLike,
    n: int = 10,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    max_length: int | ArrayLike | None = None,
) -> list[tuple[list[np.ndarray], np.ndarray]]:
    """The ``n`` best segmentations of each sequence, best first.

    Parameters
    ----------
    spans, scores, transition
        As in :func:`segment_forward_backward`.
    n : int, default=10
    start, end, max_length
        As in :func:`segment_forward_backward`.

    Returns
    -------
    list of (segmentations, scores), one a sequence
        k arrays of rows (start, stop, label), and k scores that do not increase; k is n, or the
        number of allowed segmentations if there are fewer.

    Raises
    ------
    ValueError
        As in :func:`segment_forward_backward`, or if ``n`` is not positive.

    Notes
    -----
    The n best prefixes of every group of starts and of every end of a segment are kept. The cost is
    at most that of :func:`segment_viterbi` times n log n.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import SegmentSpans, segment_nbest
    >>> spans = SegmentSpans(*map(np.array, ([2], [0, 1], [0], [0], [2])))
    >>> segmentations, scores = segment_nbest(spans, [[1.0]], [[0.0]], n=5)[0]
    >>> [s.tolist() for s in segmentations], scores
    ([[[0, 2, 0]], [[0, 1, 0], [1, 2, 0]]], array([1., 0.]))
    """
    check_number("n, the number of segmentations,", n, 1, whole=True)
    plan, psi, chain = checked_input(spans, scores, transition, start, end, max_length)
    answers = []
    for s in range(plan.n_sequences):
        answers.append(nbest_of_sequence(plan, s, psi, chain, int(n)))
        if not answers[-1][0]:
            check_segmentations(np.array([-np.inf]), s)
    lost = plan.lost_in_all()
    return [(found, scores + x) for (found, scores), x in zip(answers, lost)]


def nbest_of_sequence(plan, s, psi, chain, n) -> tuple[list[np.ndarray], np.ndarray]:
    """n best segmentations of one sequence, from the scores of all cells."""
    T = plan.steps[s + 1] - plan.steps[s]
    if T == 0:
        return [np.zeros((0, 3), dtype=np.int64)], np.zeros(1)
    segments = np.empty((n, T, 3), dtype=np.int64)
    counts, scores = np.zeros(n, dtype=np.int64), np.empty(n)
    own = psi[plan.cells[s] : plan.cells[s + 1]]
    found = _best.nbest_sequence(plan, chain, s, own, segments, counts, scores)
    return [x[:k][::-1].copy() for x, k in zip(segments[:found], counts)], scores[:found]


def segment_sample(
    spans: SegmentSpans | SegmentPotentials,
    scores: ArrayLike,
    transition: TransitionLike,
    n_samples: int = 1,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    max_length: int | ArrayLike | None = None,
    random_state: RandomState = None,
) -> list[list[np.ndarray]]:
    """Segmentations drawn from p ∝ exp(score), exactly and independently.

    Parameters
    ----------
    spans, scores, transition
        As in :func:`segment_forward_backward`.
    n_samples : int, default=1
        Number of segmentations for each sequence.
    start, end, max_length
        As in :func:`segment_forward_backward`.
    random_state : int, Generator, RandomState or None

    Returns
    -------
    list of n_samples arrays of rows (start, stop, label), one list a sequence

    Raises
    ------
    ValueError
        As in :func:`segment_forward_backward`, or if ``n_samples`` is negative.

    Notes
    -----
    One forward pass in the log domain, then backward sampling in O(n · m) for each sample.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import SegmentSpans, segment_sample
    >>> spans = SegmentSpans(*map(np.array, ([3], [0, 1], [0], [0], [2])))
    >>> segment_sample(spans, [[50.0]], [[0.0]], n_samples=1, random_state=0)[0]
    [array([[0, 2, 0],
           [2, 3, 0]])]
    """
    check_number("n_samples", n_samples, whole=True)
    plan, psi, chain = checked_input(spans, scores, transition, start, end, max_length)
    uniform = as_generator(random_state).random
    return [
        samples_of_sequence(plan, s, psi, chain, n_samples, uniform)
        for s in range(plan.n_sequences)
    ]


def samples_of_sequence(plan, s, psi, chain, n_samples, uniform) -> list[np.ndarray]:
    """Draws from one sequence, given the scores of all cells."""
    T = int(plan.steps[s + 1] - plan.steps[s])
    if T == 0:
        return [np.zeros((0, 3), dtype=np.int64)] * n_samples
    own = psi[plan.cells[s] : plan.cells[s + 1]]
    log_z, log_G, log_alpha = log_forward(plan, s, own, chain)
    check_segmentations(np.array([log_z]), s)
    segments, drawn = np.empty((T, 3), dtype=np.int64), []
    for _ in range(n_samples):
        count = _sums.sample_log(
            plan, chain, s, own, log_G, log_alpha, uniform(3 * T + 2), segments
        )
        drawn.append(segments[:count][::-1].copy())
    return drawn


def check_segmentations(log_z: np.ndarray, first: int = 0) -> None:
    """Raise if a sequence has no allowed segmentation; ``first`` is the number of the first one."""
    bad = np.flatnonzero(log_z == -np.inf)
    if bad.size:
        raise ValueError(
            f"Sequence {bad[0] + first} has no allowed segmentation: each one contains a score of "
            "-inf or a segment that is too long. Allow more transitions or longer segments."
        )


def checked_input(spans, scores, transition, start, end, max_length):
    """Check the arguments; return (plan, padded scores of its cells, transitions)."""
    spans = as_spans(spans)
    return planned(spans, *checked_scores(spans, scores, transition, start, end, max_length))


def planned(spans, scores, transition, ends, rows, limits):
    """Return (plan, padded scores of its cells, transitions) of checked arguments."""
    plan = SegmentPlan(spans, len(limits), limits)
    for k, of_labels in enumerate(ends):  # every segmentation has one start and one end
        if has_large(of_labels):
            top = np.maximum(of_labels.max(), np.finfo(np.float64).min)
            ends[k], plan.lost_at_ends = of_labels - top, plan.lost_at_ends + float(top)
    return plan, plan.cell_scores(scores), SegmentTransitions(transition, *ends, rows=rows)


def checked_scores(spans, scores, transition, start, end, max_length):
    """Check scores; return (scores, shared transitions, (start, end), rows, limits of labels)."""
    n_steps = int(spans.lengths.sum())
    if not isinstance(transition, RowTransitions):
        transition = as_numbers(transition, "transition")
    L = transition.shape[-1] if transition.ndim in (2, 3) else 0
    if L == 0:
        raise ValueError(
            "transition must have shape (n_labels, n_labels) or (n_steps, n_labels, n_labels), of "
            f"at least one label; got {transition.shape}."
        )
    transition, rows = check_transition(transition, n_steps, L, np.float64)
    entries = None if rows is None else rows.score
    ends = [
        np.zeros(L) if x is None else check_scores(x, name, (L,), np.float64)
        for x, name in ((start, "start"), (end, "end"))
    ]
    scores = check_scores(scores, "scores", (len(spans.kind), L), np.float64)
    check_sums(
        2 * n_steps + len(scores) + 2, scores=scores, transition=transition, start=ends[0],
        end=ends[1], entries=entries,
    )  # fmt: skip
    limits = np.zeros(L, dtype=np.int64)
    limits[:] = 0 if max_length is None else _check_max_length(max_length, L)
    return scores, transition, ends, rows, limits


def _check_max_length(max_length: Any, n_labels: int) -> Any:
    limits = np.asarray(max_length)
    single = limits.ndim == 0
    if (
        limits.dtype.kind not in "iu"
        or limits.shape not in ((), (n_labels,))
        or (limits < (1 if single else 0)).any()
    ):
        raise ValueError(
            f"max_length must be a positive integer, or {n_labels} integers of at least 0 (0: any "
            f"length), one a label; got {max_length!r}."
        )
    return max_length

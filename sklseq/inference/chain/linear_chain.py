"""Inference on a linear chain: best path, n best, log Z and marginals, samples.

All functions take potentials: emission scores, transition scores, offsets. The recursions are in
``_chain.pyx``, their specification in ``tests/reference.py``.
"""

from __future__ import annotations

import math
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sklseq._lib.checks import check_number
from sklseq._lib.cpu import load_kernel
from sklseq.data.sequences import as_numbers, check_offsets
from sklseq.data.types import ArrayLike, RandomState
from sklseq.inference.chain.halves import SharedRows, best_path_in_parts, sums_by_halves
from sklseq.inference.chain.large_scores import (
    LARGE,
    has_large,
    take_out_constants,
    take_out_of_sequences,
)
from sklseq.inference.chain.row_transitions import (
    RowTransitions,
    TransitionLike,
    has_set_matrices,
    row_scores,
    write_scores,
)
from sklseq.inference.chain.sparse_transitions import (
    ListedFactors,
    PairLists,
    find_pairs,
    least_sum,
    positive_factors,
)

if TYPE_CHECKING:  # its import takes long, and exported models need no threads
    from sklseq._lib.threads import Threads

_chain = load_kernel("sklseq.inference.kernels._chain")

# Rows of a batch of sequences: BATCH_SCORES scores, within these bounds; few enough for the cache,
# many enough for Python, which takes some 25 µs for a batch. In that time no other thread runs
# Python, and one that waits wakes up late. Several threads therefore take batches of twice the size
# for up to MOST_LABELS_DOUBLED labels (an evaluation of CoNLL-2002 by two threads is 1.65 times as
# fast as by one with 2048 rows in a batch, 1.9 times with 4096), if each has BATCHES_PER_THREAD of
# them or more.
BATCH_ROWS, MOST_BATCH_ROWS, BATCH_SCORES = 2048, 8192, 1 << 15
MOST_LABELS_DOUBLED, BATCHES_PER_THREAD = 32, 8

# Labels, and sequences in a block, from which on kernels process the sequences of a block batched,
# so that each row of the matrix is loaded once for several sequences. Measured against one sequence
# at a time, with one thread, sequences of 25 rows and float64: sums are 1.05 times as fast with 9
# labels, 1.3 with 22, 1.8 with 100 and 2.3 with 400; maxima 1.2, 1.3, 1.6 and 1.6. Fewer sequences
# gain nothing, except sums with at least MANY_LABELS labels: 1.1 with 16, 1.4 with 100 (pair
# marginals are then a product of matrices). Rows of up to 4 labels stay in registers in both ways.
# A portable x86-64 build has too few registers for batched float64 sums (0.87): it never uses them.
BATCHED_LABELS = 5
BATCHED_SEQUENCES = 4
MANY_LABELS = 16


class Marginals(NamedTuple):
    """Answer of :func:`forward_backward`.

    Attributes
    ----------
    log_z : ndarray of shape (n_sequences,)
        Logarithm of the sum over all label paths of exp(score); 0 for an empty sequence.
    marginals : ndarray of shape (n_rows, n_labels)
        Probability of each label at each row.
    pairwise : ndarray of shape (n_labels, n_labels)
        Expected number of transitions i → j, summed over the rows of all sequences. (Expected
        numbers for single entries of a RowTransitions are added to its ``expected``.)
    """

    log_z: np.ndarray
    marginals: np.ndarray
    pairwise: np.ndarray


class Transitions:
    """Transition, start and end scores, prepared for the kernels (padded, exponentiated).

    Parameters
    ----------
    transition : array-like of shape (n_labels, n_labels)
        Score of label i followed by j; -inf forbids.
    start, end : array-like of shape (n_labels,) or None
        Scores of the first and the last label; None means 0.
    dtype : numpy dtype, float32 or float64
    pairs : PairLists, optional
        Sparse transitions: those whose score is not the common score of their column, if few.

    Attributes
    ----------
    rows : RowTransitions or None
        Scores of single rows, of the same type as the others.
    lost : ndarray of shape (n_rows, 6), or an empty tuple
        What scores of each row have lost, see ``large_scores.py``.
    shift : ndarray of shape (n_sequences,), or 0
        What the scores of all paths of each sequence have lost.
    """

    rows: RowTransitions | None = None
    lost: np.ndarray | tuple[()] = ()
    shift: np.ndarray | float = 0.0

    def __init__(
        self, transition: np.ndarray, start=None, end=None, dtype=np.float64,
        pairs: PairLists | None = None,
    ):  # fmt: skip
        self.dtype, self.pairs = np.dtype(dtype), pairs
        self.n_labels = len(transition)
        self.width = _chain.padded_width(self.n_labels)
        self.score = self._padded(transition, -np.inf)
        zeros = np.zeros(self.n_labels)
        self.start = self._padded(zeros if start is None else start, 0)
        self.end = self._padded(zeros if end is None else end, 0)
        self.has_ends = bool(self.start.any() or self.end.any())

    @cached_property
    def score_t(self) -> np.ndarray:
        """``score`` transposed, for the traceback of best paths."""
        return np.ascontiguousarray(self.score.T)

    def _padded(self, scores: Any, fill: float) -> np.ndarray:
        scores = np.asarray(scores)
        padded = np.full((self.width,) * scores.ndim, fill, dtype=self.dtype)
        padded[(slice(self.n_labels),) * scores.ndim] = scores
        return padded

    def exponentiate(self, highest: float = -np.inf) -> Transitions:
        """Fill ``top``, ``check``, and ``E`` and ``E_t`` or ``listed``, for scaled recursions.

        ``highest``: the largest score of entries of single rows. Sequences with scores far above
        ``top`` are computed in the log domain, which is slower.
        """
        L = self.n_labels
        top = max(float(self.score.max()), highest)
        self.top = 0.0 if top == -np.inf else top
        if self.pairs is not None:
            limits = _chain.FLOOR[self.dtype], _chain.MIX[self.dtype]
            self.listed = ListedFactors.of(self.pairs, self.score, self.top, *limits)
            self.check = self.listed.least < limits[1]
            return self
        self.factors = np.empty((2, self.width, self.width), dtype=self.dtype)
        self.E, self.E_t = self.factors
        self.E[:] = positive_factors(self.score - self.dtype.type(self.top))
        self.E_t[:] = self.E.T
        self.check = bool(self.E[:L, :L].min() < _chain.MIX[self.dtype])
        return self

    def find_pairs(self, n_rows: int, question: str = "sums") -> None:
        """Fill ``pairs`` if sparse transitions are faster for a question on ``n_rows`` rows."""
        L = self.n_labels
        if self.rows is None or len(self.rows.score) <= n_rows * L:
            self.pairs = find_pairs(self.score[:L, :L], self.dtype, question, n_rows=n_rows)

    def part(self, first: int, last: int) -> Transitions:
        """The transitions of rows ``first`` to ``last - 1``."""
        if self.rows is None:
            return self
        chain = copy(self)
        chain.rows = self.rows.part(first, last)
        return chain

    def fold_boundaries(self, psi: np.ndarray, offsets: np.ndarray) -> None:
        """Add start and end scores to the first and last row of each sequence, in place."""
        if self.has_ends:
            _chain.fold_boundaries(psi, offsets, self.start, self.end)

    def without_ends(self) -> Transitions:
        """A copy without start and end scores, for rows to which they have been added."""
        chain = copy(self)
        chain.start, chain.end = np.zeros_like(self.start), np.zeros_like(self.end)
        chain.has_ends = False
        return chain

    def pad_rows(self, emission: np.ndarray) -> np.ndarray:
        """A padded, writable copy of emission scores."""
        psi = np.zeros((len(emission), self.width), dtype=self.dtype)
        psi[:, : self.n_labels] = emission
        return psi


class Workspace:
    """Scratch arrays for :meth:`forward_backward` on up to ``n_rows`` rows at a time.

    ``pairs``: those of the chains for which it will be used.

    Attributes
    ----------
    threads : Threads or None
        Two threads that work together on a sequence that is alone in its block; set by the caller.
    """

    threads: Threads | None = None

    def __init__(self, n_rows: int, width: int, dtype: np.dtype, pairs: PairLists | None = None):
        self.e = np.empty((n_rows, width), dtype=dtype)
        self.alpha = np.empty((n_rows, width), dtype=dtype)
        self.inverse_c = np.empty(n_rows, dtype=dtype)
        self.shift = np.empty(n_rows, dtype=dtype)
        # Sums of pair marginals: `pairwise` from scaled recursions, to be multiplied by E, for all
        # pairs or for sparse transitions; `exact` from the log domain, None if there are none.
        if pairs is None:
            self.scratch = np.empty((width, width), dtype=dtype)
            self.pairwise = np.zeros((width, width))
        else:
            self.scratch = np.empty(80 * pairs.n_labels)
            self.pairwise = np.zeros(len(pairs))
        self.exact = self.row_pairs = None
        # Factors of entries of single rows, and their numbers in the lists.
        self.factors, self.numbers = np.empty(0, dtype=dtype), np.empty(0, dtype=np.int32)
        # alpha and u, the rows of one set of entries after those of another.
        self.by_set: np.ndarray | None = None

    def forget(self) -> None:
        """Reset the sums of pair marginals."""
        self.pairwise[:] = 0
        self.exact = self.row_pairs = None

    def forward_backward(
        self, psi: np.ndarray, offsets: np.ndarray, weights: np.ndarray | None,
        chain: Transitions, log_z: np.ndarray, rows: RowTransitions | None = None,
    ) -> None:  # fmt: skip
        """Turn scores ``psi`` (padded) into marginals, in place; log Z goes into ``log_z``.

        Pair marginals, times the sequence's weight, are added up in this workspace; if ``weights``
        is None, none are computed. log Z is -inf if no path is allowed, and the marginals of that
        sequence are then undefined. ``rows``: scores of these rows, to whose ``expected``
        expectations are added.
        """
        n, L, n_sequences = len(psi), chain.n_labels, len(log_z)
        chain.fold_boundaries(psi, offsets)
        plain = chain.pairs is None and rows is None
        if plain and self.threads is not None and n_sequences == 1 and n > 1:
            weight = None if weights is None else weights[0]
            log_z[0] = sums_by_halves(psi, weight, chain, self, self.threads, L >= MANY_LABELS)
        else:
            self._scaled(psi, offsets, weights, chain, log_z, rows)
        for s in np.isnan(log_z).nonzero()[0]:
            at = slice(offsets[s], offsets[s + 1])
            log_alpha = np.empty((at.stop - at.start, L))
            if self.exact is None:
                self.exact = np.zeros((chain.width, chain.width))
            own = None if rows is None else rows.part(at.start, at.stop)
            alone = np.array([0, len(log_alpha)])
            shift = take_out_of_sequences(psi[at, :L], alone, chain.score[:L, :L], own)
            log_z[s] = shift.sum() + _chain.forward_backward_log(
                psi[at], chain.score, 0.0 if weights is None else weights[s], self.exact,
                log_alpha, row_scores(rows, at.start, at.stop, chain.width),
            )  # fmt: skip
            self.keep_logs(at, log_alpha)

    def _scaled(self, psi, offsets, weights, chain: Transitions, log_z, rows) -> None:
        # Scaled recursions in one thread; log_z of sequences that need the log domain becomes NaN.
        n, L, n_sequences = len(psi), chain.n_labels, len(log_z)
        _chain.scale_rows(psi, self.e[:n], self.shift[:n], L)
        self.keep_factors(n)
        kernel, factors = self._factors(rows, chain)
        if factors is not None and factors[-1] is None:
            log_z[:] = np.where(np.diff(offsets), np.nan, 0)
        elif chain.pairs is not None or (rows is None and sums_are_batched(chain, n_sequences)):
            order = longest_first(offsets)
            _chain.forward_backward_batch(psi, offsets, order, chain, self, weights, log_z, factors)
        else:
            counts = np.zeros(n_sequences) if weights is None else weights
            kernel(psi, offsets, chain, self, counts, log_z, factors)

    def keep_factors(self, n: int) -> None:
        """Called with ``e`` of n rows, before it is overwritten; for subclasses."""

    def keep_logs(self, rows: slice, log_alpha: np.ndarray) -> None:
        """Called with log alpha of a sequence computed in the log domain; for subclasses."""

    def _factors(self, rows: RowTransitions | None, chain: Transitions) -> tuple:
        # (kernel for sequences one by one, factors of entries in the form that kernels take); as in
        # `row_factors`, the last factor is None where one is too large.
        if rows is None:
            return _chain.forward_backward, None
        if chain.pairs is not None:
            return None, self._listed_factors(rows, chain)
        if self.row_pairs is None:
            self.row_pairs = np.zeros((chain.width, chain.width))
        if has_set_matrices(rows, chain.width):
            if self.by_set is None:
                self.by_set = np.empty((2, *self.e.shape), dtype=chain.dtype)
            matrices, *bounds = self._set_factors(rows, chain)
            return _chain.forward_backward_by_sets, (rows, matrices, check_of(chain, *bounds))
        write_scores(rows)
        factors = self._memory_of_factors(len(rows.score))
        return _chain.forward_backward, row_factors(rows, chain, factors)

    def _listed_factors(self, rows: RowTransitions, chain: Transitions) -> tuple:
        # (entries, factors, numbers in the lists, sums of listed pairs in their rows, a copy of the
        # factors of listed pairs, floor of sums, whether condition 2 has to be checked)
        listed, n, dtype = chain.listed, len(rows.score), chain.dtype
        if self.row_pairs is None:
            self.row_pairs = np.zeros(len(listed.factors))
        if len(self.numbers) < n:
            self.factors, self.numbers = np.empty(2 * n), np.empty(2 * n, np.int32)
        entries = rows, self.factors[:n], self.numbers[:n]
        least, positive, largest = _chain.listed_factors(
            rows, rows.score, chain.top, listed.rows, *entries[1:]
        )
        check = check_of(chain, least, largest)
        positive = min(positive, listed.positive)
        floor = least_sum(_chain.FLOOR[dtype], chain.n_labels, positive, max(largest, 1.0))
        sums = self.row_pairs, listed.factors.copy()
        return *entries, *sums, floor if check else 0.0, check

    def _set_factors(self, rows: RowTransitions, chain: Transitions) -> tuple:
        # (matrices, smallest and largest factor)
        if rows.factors is not None and rows.factors.top == chain.top:
            return rows.factors.matrices, rows.factors.least, rows.factors.largest
        write_scores(rows)
        shape = len(rows.indptr) - 1, chain.n_labels, chain.width
        matrices = self._memory_of_factors(math.prod(shape)).reshape(shape)
        return matrices, *_chain.set_factors(rows, rows.score, chain.top, chain.E, matrices)

    def _memory_of_factors(self, n: int) -> np.ndarray:
        if len(self.factors) < n:
            self.factors = np.empty(2 * n, dtype=self.e.dtype)
        return self.factors[:n]

    def pairwise_sum(self, chain: Transitions) -> np.ndarray:
        """Pair marginals summed since the last :meth:`forget`, shape (n_labels, n_labels).

        If the chain has ``pairs``, the sums of other pairs are 0.
        """
        L, pairs = chain.n_labels, chain.pairs
        if pairs is None:
            sums = (self.pairwise * chain.E)[:L, :L]
        else:
            sums = np.zeros((L, L))
            of_rows = 0.0 if self.row_pairs is None else self.row_pairs
            sums[pairs.i, pairs.j] = self.pairwise * chain.listed.factors + of_rows
        if pairs is None and self.row_pairs is not None:
            sums += self.row_pairs[:L, :L].T
        return sums if self.exact is None else sums + self.exact[:L, :L]


def row_factors(rows: RowTransitions, chain: Transitions, factors: np.ndarray) -> tuple:
    """Entries for scaled recursions, and whether condition 2 has to be checked.

    The last is None if a factor is too large for them. ``factors`` is memory for the factors.
    """
    bounds = _chain.row_factors(rows.score, chain.top, factors)
    return *rows.for_kernels(factors, chain.width), check_of(chain, *bounds)


def check_of(chain: Transitions, least: float, largest: float) -> bool | None:
    """Whether condition 2 has to be checked, given the extreme factors of entries.

    None: a factor is too large for scaled recursions.
    """
    check = chain.check or least < _chain.MIX[chain.dtype] or largest > 1
    return check if largest <= _chain.LARGEST[chain.dtype] else None


def is_batched(n_labels: int, n_sequences: int) -> bool:
    """Whether batched kernels are faster for the sequences of a block."""
    return n_labels >= BATCHED_LABELS and n_sequences >= BATCHED_SEQUENCES


def sums_are_batched(chain: Transitions, n_sequences: int) -> bool:
    """Whether batched kernels are faster for sums over the sequences of a block."""
    L = chain.n_labels
    return _chain.BATCHED_SUMS[chain.dtype] and (L >= MANY_LABELS or is_batched(L, n_sequences))


def longest_first(offsets: np.ndarray) -> np.ndarray:
    """Sequences from the longest to the shortest in row 0 of an array (3, n_sequences).

    Kernels use the other two rows as scratch memory.
    """
    order = np.empty((3, len(offsets) - 1), dtype=np.intp)
    order[0] = np.argsort(offsets[:-1] - offsets[1:], kind="stable")
    return order


def batch_rows(width: int, n_rows: int = 0, n_threads: int = 1) -> int:
    """Number of rows of a batch, of ``n_rows`` with ``width`` scores each."""
    rows = min(max(BATCH_SCORES // width, BATCH_ROWS), MOST_BATCH_ROWS)
    if n_threads > 1:
        most = 2 * rows if width <= MOST_LABELS_DOUBLED else rows
        rows = max(BATCH_ROWS, min(most, n_rows // (BATCHES_PER_THREAD * n_threads)))
    return rows


def row_blocks(offsets: np.ndarray, block_rows: int = BATCH_ROWS) -> list[tuple[int, int]]:
    """Cut sequences into runs ``(first, last)`` of at most about ``block_rows`` rows each."""
    blocks, first, n = [], 0, len(offsets) - 1
    while first < n:
        last = int(np.searchsorted(offsets, offsets[first] + block_rows, side="right")) - 1
        last = min(max(last, first + 1), n)
        blocks.append((first, last))
        first = last
    return blocks


def forward_backward(
    emission: ArrayLike,
    transition: TransitionLike,
    offsets: ArrayLike | None = None,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    weights: ArrayLike | None = None,
) -> Marginals:
    """log Z, label marginals and summed pair marginals of linear chains.

    With s(y) = start(y_1) + Σ_t emission_t(y_t) + Σ_t transition(y_{t-1}, y_t) + end(y_T),

        log Z = log Σ_y exp s(y),  μ_t(j) = p(y_t = j),  ξ(i, j) = Σ_t p(y_{t-1} = i, y_t = j),
        p(y) = exp(s(y) - log Z).

    Parameters
    ----------
    emission : array-like of shape (n_rows, n_labels)
        Scores of each label at each row, of all sequences one after the other; -inf forbids.
    transition : array-like of shape (n_labels, n_labels), or RowTransitions
        Scores of label i followed by j; -inf forbids. Scores that differ from row to row: an array
        of shape (n_rows, n_labels, n_labels), where matrix t is for the step from row t - 1 to row
        t (those of first rows of sequences are ignored, but must be finite or -inf); or a
        :class:`RowTransitions`, if few of them differ. For padded batches see :func:`from_padded`.
    offsets : array-like of shape (n_sequences + 1,), optional
        Sequence s is rows ``offsets[s]:offsets[s + 1]``. By default all rows are one sequence.
    start, end : array-like of shape (n_labels,), optional
        Scores of the first and of the last label.
    weights : array-like of shape (n_sequences,), optional
        Weight of each sequence in ``pairwise``; may be negative. By default 1.

    Returns
    -------
    Marginals
        Named tuple ``(log_z, marginals, pairwise)``. float32 emissions give float32 marginals.

    Raises
    ------
    ValueError
        If shapes do not fit, a score is NaN or +inf, or a sequence has no allowed path.

    Notes
    -----
    Cost O(n_rows · n_labels²) time; memory of a fixed number of rows beside input and output.
    The recursion is scaled (Rabiner 1989, §V.A) and proven exact or redone in the log domain.

    References
    ----------
    L. R. Rabiner (1989), "A tutorial on hidden Markov models", Proc. IEEE 77(2), §III.A, §V.A.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import forward_backward
    >>> log_z, marginals, pairwise = forward_backward(np.zeros((3, 2)), np.zeros((2, 2)))
    >>> np.exp(log_z), marginals[0], float(pairwise.sum())
    (array([8.]), array([0.5, 0.5]), 2.0)
    """
    emission, chain, offsets = check_chain(emission, transition, offsets, start, end)
    chain.find_pairs(len(emission))
    if chain.pairs is not None and (chain.rows is not None or chain.pairs.free.any()):
        chain.pairs = None  # ``pairwise`` needs all pairs, not only sparse transitions
    chain.exponentiate(-np.inf if chain.rows is None else chain.rows.score.max(initial=-np.inf))
    n_sequences = len(offsets) - 1
    weights = np.ones(n_sequences) if weights is None else check_weights(weights, n_sequences)
    psi = chain.pad_rows(emission)
    log_z = np.zeros(n_sequences)
    blocks = row_blocks(offsets, batch_rows(chain.width))
    largest = max((offsets[b] - offsets[a] for a, b in blocks), default=0)
    work = Workspace(int(largest), chain.width, chain.dtype, chain.pairs)
    for a, b in blocks:
        first, last = offsets[a], offsets[b]
        rows = None if chain.rows is None else chain.rows.part(first, last)
        local = offsets[a : b + 1] - first
        work.forward_backward(psi[first:last], local, weights[a:b], chain, log_z[a:b], rows)
    check_paths(log_z)
    log_z += chain.shift
    return Marginals(log_z, psi[:, : chain.n_labels].copy(), work.pairwise_sum(chain))


def viterbi(
    emission: ArrayLike,
    transition: TransitionLike,
    offsets: ArrayLike | None = None,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Best label path of linear chains, and its score.

    argmax_y start(y_1) + Σ_t emission_t(y_t) + Σ_t transition(y_{t-1}, y_t) + end(y_T);
    ties go to the lowest label, decided from the last row backwards.

    Parameters
    ----------
    emission, transition, offsets, start, end
        As in :func:`forward_backward`.

    Returns
    -------
    labels : ndarray of shape (n_rows,), int32
    scores : ndarray of shape (n_sequences,), float64
        0 for an empty sequence. float32 potentials are added up in float32.

    Raises
    ------
    ValueError
        As in :func:`forward_backward`.

    Notes
    -----
    Cost O(n_rows · n_labels²) time, O(n_rows · n_labels) memory.

    References
    ----------
    L. R. Rabiner (1989), "A tutorial on hidden Markov models", Proc. IEEE 77(2), §III.B.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import viterbi
    >>> viterbi(np.array([[1.0, 0.0], [0.0, 0.5], [1.0, 0.0]]), np.eye(2))
    (array([0, 0, 0], dtype=int32), array([4.]))
    """
    emission, chain, offsets = check_chain(emission, transition, offsets, start, end, best=True)
    chain.find_pairs(len(emission), "maxima")
    psi = chain.pad_rows(emission)
    labels, scores = best_paths(psi, offsets, chain, chain.rows)
    check_paths(scores)
    return labels, scores + chain.shift


def best_paths(
    psi: np.ndarray, offsets: np.ndarray, chain: Transitions, rows: RowTransitions | None = None,
    shared: SharedRows | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Viterbi on padded scores, which are overwritten; -inf marks a sequence without a path.

    ``rows``: transition scores of these rows. ``shared``: for a sequence that is alone.
    """
    labels = np.zeros(len(psi), dtype=np.int32)
    scores = np.zeros(len(offsets) - 1)
    chain.fold_boundaries(psi, offsets)
    lists = None if chain.pairs is None else chain.pairs.scores(chain.score)
    if lists is None and rows is None and shared is not None and len(scores) == 1:
        scores[0] = best_path_in_parts(psi, chain, labels, shared)
        return labels, scores
    if lists is None and (rows is not None or not is_batched(chain.n_labels, len(scores))):
        own = row_scores(rows, 0, len(psi), chain.width)
        _chain.best_paths(psi, offsets, chain, labels, scores, None, None, own)
        return labels, scores
    for a, b in row_blocks(offsets):
        at, local = slice(offsets[a], offsets[b]), offsets[a : b + 1] - offsets[a]
        own = row_scores(rows, at.start, at.stop, chain.width)
        order = longest_first(local)
        _chain.best_paths(psi[at], local, chain, labels[at], scores[a:b], order, lists, own)
    return labels, scores


def nbest(
    emission: ArrayLike,
    transition: TransitionLike,
    offsets: ArrayLike | None = None,
    n: int = 10,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The ``n`` best label paths of each sequence, best first.

    Parameters
    ----------
    emission, transition, offsets
        As in :func:`forward_backward`.
    n : int, default=10
        Number of paths.
    start, end
        As in :func:`forward_backward`.

    Returns
    -------
    list of (labels, scores), one a sequence
        ``labels`` of shape (k, n_steps), int32; ``scores`` of shape (k,), not increasing, added up
        in float64 (``viterbi`` adds float32 in float32).
        k is n, or the number of allowed paths where there are fewer.

    Raises
    ------
    ValueError
        As in :func:`forward_backward`, or if ``n`` is not positive.

    Notes
    -----
    Every cell of the trellis keeps its n best prefixes, merged from the sorted lists of its
    predecessors. Cost O(n_rows · n_labels² · n) time, O(T · n_labels · n) memory, T the longest
    sequence.

    References
    ----------
    N. Seshadri, C.-E. W. Sundberg (1994), "List Viterbi decoding algorithms with applications",
    IEEE Trans. Communications 42, §III (the parallel algorithm).

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import nbest
    >>> labels, scores = nbest(np.array([[0.0, 1.0], [0.0, 3.0]]), np.zeros((2, 2)), n=3)[0]
    >>> labels.tolist(), scores.tolist()
    ([[1, 1], [0, 1], [1, 0]], [4.0, 3.0, 1.0])
    """
    check_number("n, the number of paths,", n, 1, whole=True)
    emission, chain, offsets = check_chain(emission, transition, offsets, start, end)
    answers = [nbest_of_one(one, int(n)) for one in PlainScores(emission, chain, offsets)]
    check_paths(np.array([0.0 if len(scores) else -np.inf for _, scores in answers]))
    shifts = np.zeros(len(answers)) + chain.shift
    return [(labels, scores + x) for (labels, scores), x in zip(answers, shifts)]


def nbest_of_one(one: tuple, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The n best label paths of one item of :class:`PlainScores`, and their scores."""
    psi, score, rows = one
    T, L = psi.shape
    if T == 0:
        return np.zeros((1, 0), dtype=np.int32), np.zeros(1)
    n = min(n, L ** min(T, 64))  # there are L ** T paths
    labels, scores = np.zeros((n, T), dtype=np.int32), np.zeros(n)
    delta, pointers = np.empty((2, L, n)), np.empty((T, L, n), dtype=np.int32)
    heads = np.empty(min(n, L)), np.empty(min(n, L), dtype=np.intp)
    found = _chain.nbest_sequence(
        psi, score, delta, pointers, *heads, np.zeros(L), labels, scores, rows
    )
    return labels[:found], scores[:found]


def sample(
    emission: ArrayLike,
    transition: TransitionLike,
    offsets: ArrayLike | None = None,
    n_samples: int = 1,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    random_state: RandomState = None,
) -> np.ndarray:
    """Label paths drawn from p(y) ∝ exp(score of y), exactly and independently.

    Parameters
    ----------
    emission, transition, offsets
        As in :func:`forward_backward`.
    n_samples : int, default=1
        Number of paths for each sequence.
    start, end
        As in :func:`forward_backward`.
    random_state : int, Generator, RandomState or None
        Source of randomness; an int makes the answer reproducible.

    Returns
    -------
    ndarray of shape (n_samples, n_rows), int32

    Raises
    ------
    ValueError
        As in :func:`forward_backward`, or if ``n_samples`` is negative.

    Notes
    -----
    Forward filtering, backward sampling, in the log domain: cost O(n_rows · n_labels²) once and
    O(n_rows · n_labels) a sample.

    References
    ----------
    S. L. Scott (2002), "Bayesian methods for hidden Markov models", JASA 97(457), §2.1.2.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import sample
    >>> sample(np.zeros((4, 2)), np.array([[0, -np.inf], [-np.inf, 0]]), random_state=3)
    array([[1, 1, 1, 1]], dtype=int32)
    """
    check_number("n_samples", n_samples, whole=True)
    emission, chain, offsets = check_chain(emission, transition, offsets, start, end)
    uniform = as_generator(random_state).random
    labels = np.zeros((int(n_samples), len(emission)), dtype=np.int32)
    log_z = np.zeros(len(offsets) - 1)
    for s, (psi, score, rows) in enumerate(PlainScores(emission, chain, offsets)):
        uniforms = uniform((len(labels), len(psi)))
        if not len(psi):
            continue
        log_alpha, drawn = np.empty_like(psi), np.empty((len(labels), len(psi)), np.int32)
        log_z[s] = _chain.log_forward_sequence(psi, score, log_alpha, rows)
        if len(labels) and log_z[s] > -np.inf:
            _chain.sample_sequence(log_alpha, score, uniforms, drawn, rows)
            labels[:, offsets[s] : offsets[s + 1]] = drawn
    check_paths(log_z)
    return labels


def as_generator(random_state) -> np.random.Generator | np.random.RandomState:
    """Accept what scikit-learn accepts, and NumPy's Generator."""
    if isinstance(random_state, (np.random.Generator, np.random.RandomState)):
        return random_state
    try:
        return np.random.default_rng(random_state)
    except (TypeError, ValueError):
        raise ValueError(
            "random_state must be None, an integer of at least 0, a Generator or a RandomState; "
            f"got {random_state!r:.60}."
        ) from None


def repeatable_generator(random_state) -> np.random.Generator | np.random.RandomState:
    """:func:`as_generator`, with seed 0 for None, so that results are reproducible."""
    return as_generator(0 if random_state is None else random_state)


def check_paths(log_z: np.ndarray, first: int = 0, known: bool = False) -> None:
    """Raise if a sequence has no allowed path; ``first`` is the number of the first one.

    ``known``: whether the user has given some of the labels.
    """
    if len(log_z) == 1 and log_z[0] > -np.inf:  # without the overhead of array operations
        return
    bad = np.flatnonzero(log_z == -np.inf)
    if bad.size:
        raise ValueError(
            f"Sequence {bad[0] + first} has no allowed label path: every path contains a score "
            "of -inf. "
            + ("Correct its labels in known, or allow" if known else "Allow")
            + " more transitions or start and end labels."
        )


class PlainScores:
    """Scores for the kernels of single sequences: unpadded, float64.

    Item s is (psi, score, rows) of sequence s: ``rows`` are scores of its single rows as kernels
    read them, or None.

    Attributes
    ----------
    psi : ndarray of shape (n_rows, n_labels)
        Emission scores; start and end scores are added to the first and last row of each sequence.
    score : ndarray of shape (n_labels, n_labels)
    rows : RowTransitions or None
    """

    def __init__(self, emission: np.ndarray, chain: Transitions, offsets: np.ndarray):
        self.offsets, L, psi = offsets, chain.n_labels, chain.pad_rows(emission)
        chain.fold_boundaries(psi, offsets)
        self.psi = np.ascontiguousarray(psi[:, :L], dtype=np.float64)
        self.score = np.ascontiguousarray(chain.score[:L, :L], dtype=np.float64)
        self.rows = None if chain.rows is None else chain.rows.astype(np.float64)

    @classmethod
    def of_potentials(cls, emission, transition, start, end, offsets) -> PlainScores:
        """Scores of a model, which need no check; scores of paths may lose a constant."""
        rows = transition if isinstance(transition, RowTransitions) else None
        chain = Transitions(transition if rows is None else rows.shared, start, end, emission.dtype)
        chain.rows = rows
        if has_large(emission):
            emission, chain = take_out_constants(emission, chain, offsets)
        return cls(emission, chain, offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, s: int) -> tuple:
        if not 0 <= s < len(self):
            raise IndexError(s)
        a, b = self.offsets[s], self.offsets[s + 1]
        return self.psi[a:b], self.score, row_scores(self.rows, a, b, len(self.score))


def check_chain(emission, transition, offsets, start, end, online=False, before=None, best=False):
    """Check scores; return (emission, chain, offsets), without large constants.

    ``online``: as given, within the limits of online decoding. ``before``: if the first row has a
    transition too, the labels allowed before it. ``best``: for Viterbi's recursion, which takes out
    maxima of prefixes itself.
    """
    emission = as_numbers(emission, "emission")
    dtype = np.float32 if emission.dtype == np.float32 else np.float64
    emission = check_scores(emission, "emission", (None, None), dtype)
    L = emission.shape[1]
    if L == 0:
        raise ValueError("emission must have at least one column (label); got 0.")
    transition, rows = check_transition(transition, len(emission), L, dtype)
    start = None if start is None else check_scores(start, "start", (L,), dtype)
    end = None if end is None else check_scores(end, "end", (L,), dtype)
    offsets = check_offsets([0, len(emission)] if offsets is None else offsets, len(emission))
    chain = Transitions(transition, start, end, dtype)
    chain.rows = rows
    if online:
        return emission, chain, offsets
    given = {
        "emission": emission, "transition": transition, "start": start, "end": end,
        "entries": None if rows is None else rows.score,
    }  # fmt: skip
    large = check_sums(2 * len(emission) + 2, **given)
    if best and dtype == np.float32:
        # Ties as in online decoding. Only maxima on no allowed path mislead the recursion much.
        forbid = any(x is not None and x.min(initial=0) == -np.inf for x in given.values())
        large = large if forbid else large - {"emission"}
    if large:
        emission, chain = take_out_constants(emission, chain, offsets, before)
    return emission, chain, offsets


def check_transition(transition: Any, n_rows: int, L: int, dtype: Any) -> tuple:
    """The shared scores, shape (L, L), and a RowTransitions or None."""
    if not isinstance(transition, RowTransitions):
        transition = as_numbers(transition, "transition")
        if transition.ndim != 3:
            return check_scores(transition, "transition", (L, L), dtype), None
        rows = RowTransitions.from_dense(
            check_scores(transition, "transition", (n_rows, L, L), dtype)
        )
        return rows.shared, rows
    if transition.shape != (n_rows, L, L):
        raise ValueError(
            f"transition must have as many rows and labels as the other scores, shape "
            f"{(n_rows, L, L)}; got {transition.shape}."
        )
    rows = transition.astype(dtype)
    check_scores(rows.score, "score of transition", (len(rows.score),), dtype)
    return check_scores(rows.shared, "shared of transition", (L, L), dtype), rows


def check_sums(n_terms: int, **scores) -> set[str]:
    """Raise if a sum of ``n_terms`` differences of scores can overflow, or of three in their type.

    Returns the names of those so large that sums with them should lose their constants.
    """
    large = set()
    for name, x in scores.items():
        if x is None:
            continue
        largest = 0.99 / 2 * min(np.finfo(x.dtype).max / 3, np.finfo(np.float64).max / n_terms)
        size = max(x.max(initial=0), -x.min(initial=0))
        if size > largest and (wrong := (np.abs(x) > largest) & (x > -np.inf)).any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"Scores must be from -{largest:.3g} to {largest:.3g}, so that sums of {x.dtype} "
                f"do not overflow, or -inf (forbidden); {name} has {x[where]} at {where}."
            )
        if size > LARGE and has_large(x):
            large.add(name)
    return large


def check_scores(scores, name: str, shape: tuple, dtype) -> np.ndarray:
    scores = as_numbers(scores, name).astype(dtype, copy=False)
    if scores.ndim != len(shape) or any(w not in (None, n) for w, n in zip(shape, scores.shape)):
        wanted = "(n_rows, n_labels)" if None in shape else shape
        raise ValueError(f"{name} must have shape {wanted}; got {scores.shape}.")
    if not (scores < np.inf).all():
        where = tuple(int(i) for i in np.argwhere(~(scores < np.inf))[0])
        raise ValueError(
            f"{name} must be finite or -inf (forbidden); got {scores[where]} at {where}."
        )
    return scores


def check_weights(weights, n_sequences: int) -> np.ndarray:
    weights = np.ascontiguousarray(as_numbers(weights, "weights"), dtype=np.float64)
    got = None if weights.shape == (n_sequences,) else f"shape {weights.shape}"
    if got is None and not np.isfinite(weights).all():
        s = int(np.argmin(np.isfinite(weights)))
        got = f"{weights[s]} for sequence {s}"
    if got is not None:
        raise ValueError(
            f"weights must be {n_sequences} finite numbers, one a sequence; got {got}."
        )
    return weights

"""Expected features and entropy in one pass, and forward-backward in blocks of rows.

The recursions are in ``_expectation.pyx``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from sklseq._lib.cpu import load_kernel
from sklseq.data.row_blocks import with_last
from sklseq.data.types import ArrayLike, MatrixLike
from sklseq.inference.chain.large_scores import exact_sum
from sklseq.inference.chain.linear_chain import (
    PlainScores,
    Transitions,
    _chain,
    check_chain,
    check_paths,
    row_factors,
)
from sklseq.inference.chain.row_transitions import RowTransitions, TransitionLike, row_scores

_expectation = load_kernel("sklseq.inference.kernels._expectation")

# Relative difference up to which entries of conditional marginals count as equal. It is smaller
# than rounding errors of forward-backward, but large enough to be reached in spite of rounding.
AGREE = 1e-13


class ExpectedFeatures(NamedTuple):
    """Answer of :func:`expected_features`.

    Attributes
    ----------
    log_z : ndarray of shape (n_sequences,)
    mean : ndarray of shape (n_sequences, n_features)
        Expectation of each feature under p(y).
    covariance : ndarray of shape (n_sequences, n_features, n_features), or None
        Only with ``order=2``.
    entropy : ndarray of shape (n_sequences,)
        -Σ_y p(y) log p(y), in nats.
    """

    log_z: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray | None
    entropy: np.ndarray


def expected_features(
    emission: ArrayLike,
    transition: TransitionLike,
    offsets: ArrayLike | None = None,
    *,
    row_features: MatrixLike | None = None,
    pair_features: MatrixLike | None = None,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
    order: int = 1,
) -> ExpectedFeatures:
    """log Z and the expectation of additive features, in one forward pass.

    For features that add up over rows and neighbouring labels,

        F(y) = Σ_t f(t, y_t) + Σ_t g(y_{t-1}, y_t),

    computes E F(y) under p(y) ∝ exp(score of y), the entropy, and with ``order=2`` the covariance.

    Parameters
    ----------
    emission, transition, offsets
        As in :func:`forward_backward`. With ``order=1``, emission may be an iterator of blocks of
        rows of one sequence, of any length; ``row_features``, if given, must then be an iterator
        of blocks with the same rows. Blocks are copied, so a reader may fill the same array again.
    row_features : array of shape (n_rows, n_labels, n_features), optional
        f; or a sparse matrix of shape (n_rows · n_labels, n_features) with f(t, j) in row
        t · n_labels + j.
    pair_features : array of shape (n_labels, n_labels, n_features), optional
        g; or a sparse matrix of shape (n_labels², n_features) with g(i, j) in row i · n_labels + j.
    start, end
        As in :func:`forward_backward`.
    order : {1, 2}, default=1
        2 adds the covariance of the features.

    Returns
    -------
    ExpectedFeatures
        Named tuple ``(log_z, mean, covariance, entropy)``.

    Raises
    ------
    ValueError
        As in :func:`forward_backward`; if features do not fit the scores or are not finite.

    Notes
    -----
    Cost O(n_rows · n_labels² · n_features), times n_features again for ``order=2``. Memory
    O(n_labels · n_features ** order) beside input and output, for any length. Marginals and pair
    marginals are cheaper with :func:`forward_backward` if they fit into memory.

    References
    ----------
    V. M. Ilić, D. I. Mančev, B. T. Todorović, M. S. Stanković (2010), "Gradient computation in
    linear-chain conditional random fields using the entropy message passing algorithm",
    arXiv:1011.1478, Algorithm 2.

    Z. Li, J. Eisner (2009), "First- and second-order expectation semirings", EMNLP.

    D. Hernando, V. Crespi, G. Cybenko (2005), "Efficient computation of the hidden Markov model
    entropy for a given observation sequence", IEEE Trans. Information Theory 51(7).

    Examples
    --------
    How often does the label change, in three rows without any preference?

    >>> import numpy as np
    >>> from sklseq.inference import expected_features
    >>> change = (1 - np.eye(2))[:, :, None]
    >>> free = np.zeros((3, 2)), np.zeros((2, 2))
    >>> answer = expected_features(*free, pair_features=change, order=2)
    >>> answer.mean[0], answer.covariance[0], np.exp(answer.entropy)
    (array([1.]), array([[0.5]]), array([8.]))
    """
    if order not in (1, 2):
        raise ValueError(f"order must be 1 or 2; got {order!r}.")
    if isinstance(emission, Iterator):
        if order == 2 or offsets is not None:
            raise ValueError(
                "emission is an iterator of blocks, which allows only order=1 without offsets; "
                "leave both out, or pass an array."
            )
        given = transition, start, end
        return _expect_blocks(emission, row_features, _Blocks(given, pair_features))
    emission, chain, offsets = check_chain(emission, transition, offsets, start, end)
    n, L = emission.shape
    row = _features(row_features, "row_features", (n, L))
    pair = _features(pair_features, "pair_features", (L, L))
    row, pair = _same_number(row, pair, n, L)
    plain = PlainScores(emission.astype(np.float64), _double(chain), offsets)
    M = row.shape[1]
    pair, factors = _rows(pair, 0, L * L), _factors(plain.score)
    answers = [
        _expect(scores, factors, _rows(row, a * L, b * L), pair, M, order)
        for scores, a, b in zip(plain, offsets[:-1], offsets[1:])
    ]
    log_z, mean, covariance, h = (list(x) for x in zip(*answers)) if answers else ([],) * 4
    log_z = np.array(log_z, dtype=np.float64)
    check_paths(log_z)
    log_z += chain.shift
    if order == 2:
        covariance = np.reshape(covariance, (len(log_z), M, M))
    return ExpectedFeatures(
        log_z, np.reshape(mean, (len(log_z), M)), covariance if order == 2 else None, np.array(h)
    )


def entropy(
    emission: ArrayLike,
    transition: TransitionLike,
    offsets: ArrayLike | None = None,
    *,
    start: ArrayLike | None = None,
    end: ArrayLike | None = None,
) -> np.ndarray:
    """Entropy of the label paths of each sequence, in nats.

    H = -Σ_y p(y) log p(y),  p(y) ∝ exp(score of y).

    Parameters
    ----------
    emission, transition, offsets, start, end
        As in :func:`expected_features`: emission may be an iterator of blocks of one sequence.

    Returns
    -------
    ndarray of shape (n_sequences,)

    Raises
    ------
    ValueError
        As in :func:`forward_backward`.

    Notes
    -----
    One pass, O(n_rows · n_labels²) time: the expectation semiring with the single feature -log p.
    It adds conditional entropies, which are not negative, so unlike log Z - E[score] it has no
    cancellation.

    References
    ----------
    D. Hernando, V. Crespi, G. Cybenko (2005), "Efficient computation of the hidden Markov model
    entropy for a given observation sequence", IEEE Trans. Information Theory 51(7).

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import entropy
    >>> np.exp(entropy(np.zeros((3, 2)), np.zeros((2, 2))))
    array([8.])
    """
    return expected_features(emission, transition, offsets, start=start, end=end).entropy


def _double(chain: Transitions) -> Transitions:
    L = chain.n_labels
    double = Transitions(chain.score[:L, :L], chain.start[:L], chain.end[:L], np.float64)
    double.rows = None if chain.rows is None else chain.rows.astype(np.float64)
    return double


def _features(features: Any, name: str, shape: tuple) -> sparse.csr_matrix | None:
    # Features as a CSR matrix with one row for each (row, label) or (label, label).
    if features is None:
        return None
    if not sparse.issparse(features):
        features = np.asarray(features, dtype=np.float64)
        if features.ndim != 3 or features.shape[:2] != shape:
            raise ValueError(
                f"{name} must have shape ({shape[0]}, {shape[1]}, n_features); "
                f"got {features.shape}."
            )
        features = features.reshape(-1, features.shape[2])
    elif features.shape[0] != shape[0] * shape[1]:
        raise ValueError(
            f"A sparse {name} must have {shape[0]} · {shape[1]} rows; got {features.shape[0]}."
        )
    features = sparse.csr_matrix(features, dtype=np.float64, copy=True)
    features.sum_duplicates()
    features.eliminate_zeros()
    if not np.isfinite(features.data).all():
        raise ValueError(f"{name} must be finite; it holds NaN or infinity.")
    return features


def _same_number(row, pair, n: int, L: int):
    if row is not None and pair is not None and row.shape[1] != pair.shape[1]:
        raise ValueError(
            f"row_features and pair_features must have the same number of features; "
            f"got {row.shape[1]} and {pair.shape[1]}."
        )
    M = next((x.shape[1] for x in (row, pair) if x is not None), 0)
    row = sparse.csr_matrix((n * L, M)) if row is None else row
    return row, sparse.csr_matrix((L * L, M)) if pair is None else pair


def _rows(features: sparse.csr_matrix, first: int, last: int) -> tuple:
    # (indptr, indices, data) of some rows of a CSR matrix, in the types of the kernels.
    ptr = features.indptr[first : last + 1].astype(np.int64)
    entries = slice(ptr[0], ptr[-1])
    return ptr - ptr[0], features.indices[entries].astype(np.intc), features.data[entries]


def _factors(score: np.ndarray) -> tuple[np.ndarray, float]:
    # E = exp(score - top) and -E log E, at most 1; and top, the largest score.
    top = float(score.max())
    top = top if top > -np.inf else 0.0
    E = np.exp(score - top)
    return np.stack([E, np.multiply(E, top - score, out=np.zeros_like(E), where=E > 0)]), top


def _expect(scores: tuple, factors: tuple, row, pair, M: int, order: int):
    # (log Z, mean, covariance, entropy) of one sequence. `scores`: an item of PlainScores.
    psi, score, rows = scores
    T, L = psi.shape
    square = (M, M) if order == 2 else (0, 0)
    if T == 0:
        return 0.0, np.zeros(M), np.zeros(square), 0.0
    h, work = np.zeros((2, L, M)), np.zeros((9, max(L, M)))
    C = np.zeros((2, L, *square) if order == 2 else (0, 0, 0, 0))
    log_z = _expectation.expectation_sequence(psi, score, *factors, row, pair, h, C, work, rows)
    h, p = h[T % 2], np.exp(work[0, :L])
    mean, H = p @ h, _entropy(work[0, :L], work[1, :L])
    if order == 1:
        return log_z, mean, None, H
    apart = h - mean
    covariance = np.einsum("j,jmn->mn", p, C[T % 2]) + (p[:, None] * apart).T @ apart
    return log_z, mean, covariance, H


def _entropy(log_p: np.ndarray, H: np.ndarray) -> float:
    # Of a path, from log p of its last label and the entropy H given that label.
    p, at = np.exp(log_p), log_p > -np.inf
    return float(p[at] @ (H[at] - log_p[at]))


def _expect_blocks(emission: Iterator, row_features: Iterator | None, state: _Blocks):
    if row_features is not None and not isinstance(row_features, Iterator):
        raise ValueError("row_features must be an iterator of blocks, because emission is one.")
    for (psi, features), last in with_last(_in_step(emission, row_features)):
        state.add(psi, features, last)
    return state.answer()


def _in_step(emission: Iterator, row_features: Iterator | None) -> Iterator[tuple[Any, Any]]:
    # Blocks of scores and of features. Copies, as a reader may fill the same memory again.
    if row_features is None:
        yield from ((deepcopy(psi), None) for psi in emission)
        return
    blocks = itertools.zip_longest(map(deepcopy, emission), map(deepcopy, row_features))
    for k, (psi, features) in enumerate(blocks):
        if psi is None or features is None:
            names = ("emission", "row_features") if psi is None else ("row_features", "emission")
            raise ValueError(
                f"{names[0]} ends before block {k} of {names[1]}; give both in the same blocks."
            )
        yield psi, features


def entropy_of_blocks(blocks: Iterable, shared: np.ndarray) -> float:
    """Entropy of the label paths of one sequence.

    Parameters
    ----------
    blocks : iterable of (ndarray of shape (n, n_labels), RowTransitions or None)
        Scores of rows, those of starts and ends included, and transition scores of these rows.
    shared : ndarray of shape (n_labels, n_labels)
        Transition scores of rows without their own.
    """
    state = _Blocks((shared, None, None), None)
    for psi, rows in blocks:
        state.add(psi, None, False, rows)
    return float(state.answer().entropy[0])


class _Blocks:
    """Expectations given the last label, updated block by block over one sequence.

    Each block but the first gets an additional first row that stands for all rows before it. Its
    scores are the logarithm of the filter, its features the expectations given its label. The
    entropy is an additional feature.
    """

    def __init__(self, given: tuple, pair_features: Any):
        self.given, self.pair_features = given, pair_features
        # log Z is log_z and what scores have lost: large numbers of either sign, not rounded.
        self.n, self.log_z, self.lost = 0, 0.0, []
        self.log_p, self.h, self.H = np.zeros(1), np.zeros((1, 0)), np.zeros(1)

    def add(
        self, emission: Any, features: Any, last: bool, rows: RowTransitions | None = None
    ) -> None:
        """Add a block; ``rows``: transition scores of its rows, in place of the shared ones."""
        transition, start, end = self.given
        transition = transition if rows is None else rows
        ends = (None if self.n else start), (end if last else None)
        before = self.log_p > -np.inf if self.n else None
        emission, chain, offsets = check_chain(emission, transition, None, *ends, before=before)
        T, L = emission.shape
        if T == 0:
            raise ValueError(f"The block that begins at row {self.n} has no rows; leave it out.")
        row = _features(features, "row_features", (T, L))
        pair = _features(self.pair_features, "pair_features", (L, L))
        row, pair = _same_number(row, pair, T, L)
        self.lost = exact_sum([*self.lost, *np.ravel(chain.lost)])
        plain = PlainScores(emission.astype(np.float64), _double(chain), offsets)
        psi, score, rows = plain.psi, plain.score, None if rows is None else chain.rows
        if self.n:
            psi = np.concatenate([self.log_p[None], psi])
            row = sparse.vstack([self.h, row], format="csr")
            if rows is not None:  # the additional row has no entries
                entries = rows.i, rows.j, rows.score
                rows = RowTransitions.unchecked(score, np.append(0, rows.indptr), *entries)
        row = sparse.hstack([row, self._entropies(len(psi), L)], format="csr")
        pair = sparse.hstack([pair, sparse.csr_matrix((L * L, 1))], format="csr")
        self._run(psi, score, row, pair, row_scores(rows, 0, len(psi), L))
        self.n += T

    def _entropies(self, T: int, L: int) -> sparse.csr_matrix:
        H = self.H if self.n else np.zeros(L)
        return sparse.csr_matrix(
            (H, (np.arange(L), np.zeros(L, dtype=int))), shape=(T * L, 1), dtype=np.float64
        )

    def _run(self, psi, score, row, pair, rows) -> None:
        (T, L), M = psi.shape, row.shape[1]
        h, work = np.zeros((2, L, M)), np.zeros((9, max(L, M)))
        given = _rows(row, 0, T * L), _rows(pair, 0, L * L)
        log_z = _expectation.expectation_sequence(
            psi, score, *_factors(score), *given, h, np.zeros((0, 0, 0, 0)), work, rows
        )
        self.log_z += log_z
        check_paths(np.array([self.log_z]))
        h = h[T % 2]
        self.log_p, self.h, self.H = work[0, :L].copy(), h[:, :-1], work[1, :L] + h[:, -1]

    def answer(self) -> ExpectedFeatures:
        mean, H = np.exp(self.log_p) @ self.h, _entropy(self.log_p, self.H)
        log_z = np.array([math.fsum([*self.lost, self.log_z])])
        return ExpectedFeatures(log_z, mean[None], None, np.array([H]))


# ---------------------------------------------------------------------- blocks of rows


class BlockEntries(Protocol):
    """Transition scores of the rows of a block, computed only when they are needed.

    They may take more memory than the block.

    Attributes
    ----------
    rows : RowTransitions or None
        The scores after :meth:`fill`; None if no row has its own.
    """

    rows: RowTransitions | None

    def fill(self) -> None:
        """Make ``rows``."""

    def with_expected(self, R: int = 1) -> RowTransitions | None:
        """``rows`` with R · n_entries zeros in ``expected``, for expectations given each of R
        distributions."""

    def clear(self) -> None:
        """Free the memory of ``rows``."""


class FilteredBlock(NamedTuple):
    """Result of the forward recursion over a block of rows: the input of the backward recursion.

    Attributes
    ----------
    alpha : ndarray of shape (n + 1, width)
        p(y_t | rows up to t); row 0 is for the row before the block. Logarithms if ``in_logs``.
    inverse : ndarray of shape (n, width) or None
        1 / p(y_t | rows before t), up to a factor; unused if ``in_logs``. If None, it is computed
        from ``alpha`` when needed.
    first : bool
        Whether the block begins the sequence.
    in_logs : bool
    entries : BlockEntries, or None
    """

    alpha: np.ndarray
    inverse: np.ndarray | None
    first: bool
    in_logs: bool
    entries: BlockEntries | None = None

    def last(self, L: int) -> np.ndarray:
        """Logarithms of the filter at the last row, from which the next block starts."""
        with np.errstate(divide="ignore"):
            row = self.alpha[-1] if self.in_logs else np.log(self.alpha[-1])
        return np.where(np.arange(len(row)) < L, row, -np.inf)

    def alive(self, L: int) -> np.ndarray:
        """1 for each label in which an allowed path ends, else 0, shape (width,).

        This includes labels whose probability underflows, since later rows may make them likely.
        """
        return (self.last(L) > -np.inf).astype(np.float64)

    def probabilities(self, L: int) -> np.ndarray:
        """The filter at the last row, shape (width,)."""
        return np.exp(self.last(L))


class BlockChain:
    """Forward and backward recursions over one sequence in blocks of rows.

    Parameters
    ----------
    chain : Transitions
    highest : float
        As in :meth:`Transitions.exponentiate`.
    """

    def __init__(self, chain: Transitions, highest: float = -np.inf):
        self.chain = chain = _double(chain).exponentiate(highest)
        self.width, self.n_labels = chain.width, chain.n_labels
        self._buffers: dict[str, np.ndarray] = {}
        self._filled: BlockEntries | None = None

    def buffer(self, name: str, *shape: int) -> np.ndarray:
        """A reusable buffer: newly allocated pages for each block cost as much as a recursion."""
        n = math.prod(shape)
        if name not in self._buffers or len(self._buffers[name]) < n:
            self._buffers[name] = np.empty(n)
        return self._buffers[name][:n].reshape(shape)

    def filter(
        self, psi: np.ndarray, before: np.ndarray | None, alpha=None, inverse=None, back=True,
        entries: BlockEntries | None = None,
    ):  # fmt: skip
        """Forward recursion over the scores ``psi`` of a block, including start and end scores.

        Parameters
        ----------
        psi : ndarray of shape (n, width)
        before : ndarray of shape (width,) or None
            ``last`` of the block before; None: the block begins the sequence.
        alpha, inverse : ndarray, optional
            Output arrays.
        back : bool, default=True
            Whether ``inverse`` is computed, for a backward recursion that will follow.
        entries : BlockEntries, optional

        Returns
        -------
        block : FilteredBlock
        log_z : float
            Contribution of the block to log Z; -inf if no path is allowed.
        """
        chain, L, n, first = self.chain, self.n_labels, len(psi), before is None
        alpha = np.empty((n + 1, self.width)) if alpha is None else alpha
        rows = self._fill(entries)
        factors = None if rows is None else self._factors(rows)
        check = chain.check if factors is None else factors[-1]
        if back and inverse is None:
            inverse = np.empty((n, self.width))
        e, shift = self.buffer("e", n, self.width), self.buffer("shift", n)
        _chain.scale_rows(psi, e, shift, L)
        alpha[0] = 0 if first else np.exp(before)
        small = not first and (before[before > -np.inf] < _expectation.SMALLEST_LOG).any()
        log_c = np.nan
        if check is not None and not (small and check):
            log_c = _expectation.filter_scaled(
                psi, e, chain.E, alpha, self.buffer("inverse_c", n), inverse, first, L, check,
                factors,
            )  # fmt: skip
        lost = entries is not None and not check and self._lost(psi[-1, :L], alpha[-1, :L])
        if not (np.isnan(log_c) or lost):
            log_c += float(shift.sum()) + (n - first) * chain.top
            return FilteredBlock(alpha, inverse, first, False, entries), log_c
        alpha[0] = -np.inf if first else before
        scores = None if rows is None else rows.for_kernels(rows.score, self.width)
        scratch = np.empty(self.width)
        log_z = _expectation.filter_log(psi, chain.score, alpha, scratch, first, L, scores)
        return FilteredBlock(alpha, inverse, first, True, entries), log_z

    def _lost(self, psi: np.ndarray, alpha: np.ndarray) -> bool:
        # Whether an allowed label has no accurate alpha at the last row of a block whose transition
        # factors are all positive: those of the next block may forbid the other labels.
        return bool((alpha[psi > -np.inf] < _chain.FLOOR[self.chain.dtype]).any())

    def _fill(self, entries: BlockEntries | None) -> RowTransitions | None:
        # Entries of one block are kept: its backward recursion often follows directly, in parts.
        if self._filled is not entries:
            if self._filled is not None:
                self._filled.clear()
            if entries is not None:
                entries.fill()
            self._filled = entries
        return None if entries is None else entries.rows

    def _factors(self, rows: RowTransitions) -> tuple:
        return row_factors(rows, self.chain, self.buffer("factors", len(rows.score)))

    def backward(
        self, block: FilteredBlock, S, lo: int, hi: int, live, agree: float = 0.0, out=None,
        sums: bool = True,
    ):  # fmt: skip
        """Backward recursion from row hi - 1 to row lo of a block.

        Parameters
        ----------
        block : FilteredBlock
        S : ndarray of shape (R, width)
            R distributions of the label at row hi - 1; overwritten by those at row reached - 1.
        lo, hi : int
        live : ndarray of shape (R,)
            0 for rows of S that are ignored.
        agree : float
            Stop at the row where the R distributions agree up to this relative difference.
        out : ndarray of shape (hi - lo, R, width), optional
            Buffer for the marginals.
        sums : bool, default=True
            Whether pair marginals are summed.

        Returns
        -------
        reached : int
            Rows ``reached:hi`` are processed.
        marginals : ndarray of shape (hi - reached, R, width)
        pairs : ndarray of shape (width, R, width)
            [i, r, j]: sum over these rows of the pair marginals of i and j given r; undefined
            without ``sums``. Those of single rows are in ``block.entries``.

        Notes
        -----
        Unless ``block.in_logs``, the buffer "q" holds marginals / p(y_t | rows before t) up to a
        factor, 0 in the first row of the sequence.
        """
        chain, R, rows = self.chain, len(S), self._fill(block.entries)
        marginals = np.empty((hi - lo, R, self.width)) if out is None else out
        pairs = np.zeros((self.width, R, self.width))
        if block.entries is not None:
            block.entries.with_expected(R)
        if block.in_logs:
            scores = None if rows is None else rows.for_kernels(rows.score, self.width)
            marginals[:], scratch = 0, np.zeros((R + self.n_labels, self.width))
            reached = _expectation.backward_log(
                S, block.alpha, chain.score, live, marginals, pairs, scratch, block.first, lo,
                self.n_labels, agree, scores,
            )  # fmt: skip
            return reached, marginals[reached - lo :], pairs
        q, of_rows = self.buffer("q", *marginals.shape), None
        if rows is not None:
            of_rows = self._factors(rows), np.zeros(pairs.shape)
        inverse = block.inverse
        if inverse is None:
            inverse = self._inverse(block, None if of_rows is None else of_rows[0])
        reached = _expectation.backward_scaled(
            S, block.alpha, inverse, chain.E_t, live, marginals, q, block.first, lo,
            self.n_labels, agree, of_rows,
        )  # fmt: skip
        if not sums:
            return reached, marginals[reached - lo :], pairs
        q = q[reached - lo :].reshape(hi - reached, -1)
        np.matmul(block.alpha[reached:hi].T, q, out=pairs.reshape(self.width, -1))
        pairs *= chain.E[:, None]
        if of_rows is not None:
            pairs += of_rows[1]
        return reached, marginals[reached - lo :], pairs

    def _inverse(self, block: FilteredBlock, factors: tuple | None) -> np.ndarray:
        # `inverse` of a block that was filtered with back=False.
        predicted = block.alpha[:-1] @ self.chain.E
        if factors is not None:
            _expectation.predict_rows(block.alpha, self.chain.E, predicted, self.n_labels, factors)
        with np.errstate(divide="ignore", over="ignore"):
            inverse = 1 / predicted
        if block.first:
            inverse[0] = 1
        inverse[block.alpha[1:] == 0] = 0
        return inverse

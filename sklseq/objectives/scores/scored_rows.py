"""Inference with fixed weights in blocks of sequences: potentials, best paths, sums over paths."""

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.threads import BufferPool, Threads, in_parts, n_threads
from sklseq.data.labels import cut_rows
from sklseq.data.partial_labels import AllowedLabels
from sklseq.data.sequences import Sequences, check_finite
from sklseq.inference.chain.halves import SharedRows
from sklseq.inference.chain.large_scores import (
    has_large,
    take_out_of_sequences,
    take_out_row_maxima,
)
from sklseq.inference.chain.linear_chain import (
    Transitions,
    Workspace,
    batch_rows,
    best_paths,
    check_paths,
    row_blocks,
)
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.objectives.scores.transition_features import TransitionFeatures


class Potentials(NamedTuple):
    """Scores of a linear chain: the input of all decoders.

    Attributes
    ----------
    emission : ndarray of shape (n_rows, n_labels)
    transition : ndarray of shape (n_labels, n_labels), or RowTransitions
        RowTransitions for models with transition features.
    start, end : ndarray of shape (n_labels,)
    offsets : ndarray of shape (n_sequences + 1,)
    """

    emission: np.ndarray
    transition: np.ndarray | RowTransitions
    start: np.ndarray
    end: np.ndarray
    offsets: np.ndarray


class TransitionWeights(NamedTuple):
    """Transition, start and end weights of a fitted linear chain.

    Attributes
    ----------
    transition : ndarray of shape (n_labels, n_labels)
    start, end : ndarray of shape (n_labels,)
    coef : CSR matrix of shape (n_features, n_labels²), or None
        Weights of transition features.
    """

    transition: np.ndarray
    start: np.ndarray
    end: np.ndarray
    coef: sparse.csr_matrix | None = None

    def without_entries(self, n_rows: int) -> RowTransitions:
        """Transition scores of ``n_rows`` rows without transition features."""
        indptr, none = np.zeros(n_rows + 1, dtype=np.int64), np.zeros(0, dtype=np.int32)
        score = none.astype(self.transition.dtype)
        return RowTransitions.unchecked(self.transition, indptr, none, none, score)

    def entries_of_parts(self, X: Sequences, continued: np.ndarray) -> RowTransitions | None:
        """Transition scores of rows with transition features; None if no row has any.

        ``continued``: whether each sequence of X continues one whose earlier rows are not given.
        """
        features = TransitionFeatures.of_coef(X, self.coef, len(self.start))
        given = self.coef.data, self.transition
        return features.entries_of_parts(*given, X.offsets, continued)[0]


class ScoredRows:
    """The rows of X with the weights of a fitted linear chain, scored in blocks of sequences.

    Parameters
    ----------
    X : Sequences
    design : object with ``checked_scores(W, first, last, out)``
        As ``score_rows(X)`` returns it.
    W : ndarray of shape (any, width)
        Weights as the design takes them; a design with its own weights uses only the type and
        width of W.
    weights : TransitionWeights
    allowed : AllowedLabels or None
        The labels that are allowed at each row; None: all.
    n_jobs : int or None
        Number of threads.

    Attributes
    ----------
    relative : bool
        Whether :meth:`potentials` and :meth:`sums` subtract the maxima of rows with large scores.
        Differences between scores and log Z then keep their digits. Set by the caller;
        :meth:`potentials` sets it to False if there are no large scores.
    """

    relative = False

    def __init__(
        self, X: Sequences, design: Any, W: np.ndarray, weights: TransitionWeights,
        allowed: AllowedLabels | None, n_jobs: int | None,
    ):  # fmt: skip
        self.X, self.design, self.W, self.weights = X, design, W, weights
        self.allowed, self.n_jobs = allowed, n_jobs
        rows = batch_rows(W.shape[1], X.n_rows, n_threads(n_jobs))
        self.runs = row_blocks(X.offsets, rows)
        self.most_rows = int(max((X.offsets[b] - X.offsets[a] for a, b in self.runs), default=0))

    def best_paths(self, keep: Callable) -> None:
        """Call ``keep(a, b, codes, offsets, threads)`` with the best paths of sequences a to b - 1.

        ``threads``: those that work on these together; None: one thread.
        """
        chain, entries = self._chain("maxima")
        L = chain.n_labels

        def decode(a, b, psi, offsets, shared):
            rows, _ = entries(self.X.offsets[a], offsets)
            inner, together = chain, shared
            if self.allowed is not None and has_large(psi[:, :L]):
                # Labels that cannot go on to known ones must not be the maxima of rows.
                chain.fold_boundaries(psi, offsets)
                take_out_of_sequences(psi[:, :L], offsets, chain.score[:L, :L], rows)
                inner, together = chain.without_ends(), None
            codes, scores = best_paths(psi, offsets, inner, rows, together)
            check_paths(scores, a, self.allowed is not None)
            keep(a, b, codes, offsets, None if shared is None else shared.threads)

        self._map(decode)

    def likeliest(self, keep: Callable) -> None:
        """Call ``keep`` as :meth:`best_paths` does, with the most probable label of each row."""

        def choose(a, b, marginals, offsets, threads):
            codes = np.empty(len(marginals), dtype=np.intp)
            choice = lambda part: marginals[part].argmax(axis=1, out=codes[part])  # noqa: E731
            in_parts(threads, choice, len(codes))
            keep(a, b, codes, offsets, threads)

        self.sums(choose)

    def labels(self, decode: str, keep: Callable) -> None:
        """:meth:`best_paths` for "path", :meth:`likeliest` for "marginal"."""
        (self.best_paths if decode == "path" else self.likeliest)(keep)

    def codes(self, decode: str = "path") -> np.ndarray:
        """:meth:`labels` of all rows."""
        found, at = np.empty(self.X.n_rows, dtype=np.int32), self.X.offsets

        def keep(a, b, codes, *_):
            found[at[a] : at[b]] = codes

        self.labels(decode, keep)
        return found

    def marginals(self, out: np.ndarray) -> list[np.ndarray]:
        """Write label marginals into ``out``; return views of it, one for each sequence."""
        at, of_sequences = self.X.offsets, [out] * len(self.X)

        def keep(a, b, marginals, _, threads):
            mine = out[at[a] : at[b]]
            in_parts(threads, lambda part: np.copyto(mine[part], marginals[part]), len(mine))
            of_sequences[a:b] = cut_rows(out, at[a : b + 1])

        self.sums(keep)
        return of_sequences

    def sums(self, keep: Callable | None = None) -> np.ndarray:
        """log Z of each sequence.

        Calls ``keep(a, b, marginals, offsets, threads)`` with the label marginals of sequences a to
        b - 1, which the next call overwrites; ``threads`` as in :meth:`best_paths`.
        """
        chain, entries = self._chain("sums")
        chain.exponentiate()
        at, log_z, L = self.X.offsets, np.zeros(len(self.X)), chain.n_labels
        pool = BufferPool(lambda: Workspace(self.most_rows, chain.width, chain.dtype, chain.pairs))

        def forward_backward(a, b, psi, offsets, shared):
            threads = None if shared is None else shared.threads
            rows, highest = entries(at[a], offsets)
            if self.relative:
                take_out_row_maxima(psi[:, :L])
            scaled = chain if rows is None else copy(chain).exponentiate(highest)
            with pool.buffer() as work:
                work.threads = threads
                work.forward_backward(psi, offsets, None, scaled, log_z[a:b], rows)
            check_paths(log_z[a:b], a, self.allowed is not None)
            if keep is not None:
                keep(a, b, psi[:, :L], offsets, threads)

        self._map(forward_backward)
        return log_z

    def potentials(self, continued: np.ndarray | None = None) -> Potentials:
        """Scores of all rows; ``continued`` as in :meth:`TransitionWeights.entries_of_parts`."""
        transition, start, end, coef = self.weights
        X, L = self.X, len(start)
        emission = np.empty((X.n_rows, L), dtype=transition.dtype)

        def keep(a, b, psi, *_):
            emission[X.offsets[a] : X.offsets[b]] = psi[:, :L]

        self._map(keep)
        if self.relative:
            self.relative = has_large(emission)
            take_out_row_maxima(emission)
        if coef is not None:
            continued = np.zeros(len(X), dtype=bool) if continued is None else continued
            entries = self.weights.entries_of_parts(X, continued)
            transition = self.weights.without_entries(X.n_rows) if entries is None else entries
        return Potentials(emission, transition, start, end, X.offsets)

    def _chain(self, question: str) -> tuple[Transitions, Callable]:
        # The chain, and a function of a first row and of offsets counted from it. It returns the
        # transition scores of rows with transition features, or None, and the largest of these.
        transition, start, end, coef = self.weights
        chain = Transitions(transition, start, end, transition.dtype)
        chain.find_pairs(self.X.n_rows, question)
        if coef is None:
            return chain, lambda *_: (None, -np.inf)
        features = TransitionFeatures.of_coef(self.X, coef, chain.n_labels)
        return chain, partial(features.entries, coef.data, chain.score)

    def _map(self, work: Callable) -> None:
        """Call ``work(a, b, psi, offsets, shared)`` for each block of sequences a to b - 1.

        ``psi`` are their padded scores, which the next call overwrites. ``shared``: for one long
        sequence, which several threads work on together.
        """
        at, W = self.X.offsets, self.W
        pool = BufferPool(lambda: np.empty((self.most_rows, W.shape[1]), dtype=W.dtype))

        def run(block: tuple[int, int], threads: Threads | None = None) -> None:
            a, b = block
            first = int(at[a])
            with pool.buffer() as buffer:
                psi, shared = buffer[: at[b] - first], None
                score = lambda i, j: self._score(psi[i:j], first + i)  # noqa: E731
                in_parts(threads, lambda part: score(part.start, part.stop), len(psi))
                if threads is not None:
                    shared = SharedRows(threads, score)
                work(a, b, psi, at[a : b + 1] - first, shared)

        with Threads(self.n_jobs) as threads:
            shared = [block for block in self.runs if threads.share(at, block)]
            alone = [block for block in self.runs if block not in shared] if shared else self.runs
            threads.map(run, alone)
            for block in shared:
                run(block, threads)

    def _score(self, psi: np.ndarray, first: int) -> None:
        last = first + len(psi)
        if len(psi) and not self.design.checked_scores(self.W, first, last, psi):
            check_finite(self.X, self.W.dtype)
        if self.allowed is not None:
            self.allowed.restrict(psi, first)

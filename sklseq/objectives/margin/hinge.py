"""Structured hinge loss of a linear chain, its dual, and their gap.

For sequence i with true labeling y_i and F(x, y) = w · φ(x, y), the slack is that of the most
violated path,

    ξ_i = max(0, max_{y ≠ y_i} loss(y_i, y) + F(x_i, y) - F(x_i, y_i)),

and the primal problem min_w ½‖w‖² + Σ_i C_i ξ_i (slack L1), or … + Σ_i C_i ξ_i² (L2), or with all
ξ_i = 0 (hard margin). With w = Σ_i Σ_y α_iy (φ(x_i, y_i) - φ(x_i, y)), the dual is

    max_{α ≥ 0}  Σ_iy α_iy loss(y_i, y) - ½‖w‖²,

subject to Σ_y α_iy ≤ C_i for slack L1, and with a term - Σ_i (Σ_y α_iy)² / 4C_i for slack L2.

Both values are known during training; their gap bounds the distance of the primal from its minimum.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklseq._lib.aligned import aligned_zeros
from sklseq._lib.cpu import load_kernel
from sklseq._lib.ragged import offsets_of
from sklseq._lib.threads import Threads
from sklseq.data.constraints import Constraints
from sklseq.objectives.margin.gram_threads import GramThreads
from sklseq.objectives.margin.pieces import (
    Pieces,
    SupportPaths,
    WrongRows,
    cut,
    regroup,
    spread,
    whole_sequences,
    widened,
)
from sklseq.objectives.margin.separable import (
    chain_differences,
    link_differences,
    path_gram,
    smallest_contradiction,
    state_differences,
)
from sklseq.objectives.scores.design import without_zeros
from sklseq.objectives.scores.score_map import Weights
from sklseq.objectives.scores.transition_features import TransitionFeatures

_margin = load_kernel("sklseq.objectives.margin._margin")
_known_paths = load_kernel("sklseq.objectives.margin._known_paths")

LANES = 8
N_TESTED = 300  # paths tested for contradictions; their Gram matrix is stored
EPSILON = float(np.finfo(np.float64).eps) / 2
ROUNDING = 1e-10  # fraction of the largest margin, far above the effect of the order of sums


class PathLoss(NamedTuple):
    """Loss of a wrong path: ``offset + Σ_t cost[y_t, path_t]``; that of the true path is 0.

    Attributes
    ----------
    cost : ndarray of shape (n_labels, n_labels)
        True labels in rows; 0 on the diagonal.
    offset : float
        1 for the zero-one loss, whose cost is 0; else 0.
    """

    cost: np.ndarray
    offset: float

    @property
    def least(self) -> float:
        """The smallest loss of a wrong path; inf if there is one label only."""
        wrong = self.cost[~np.eye(len(self.cost), dtype=bool)]
        return self.offset + float(wrong.min(initial=np.inf))


class Margin(NamedTuple):
    """Definition of the margin.

    Attributes
    ----------
    loss : PathLoss
    slack : {"l1", "l2", "hard"}
    allowed : Constraints
        Paths that are allowed.
    scale, boundary : float
        Values of the features of transitions, and of those of the first and last label.
        Transition features of rows are multiplied by ``scale``.
    """

    loss: PathLoss
    slack: str
    allowed: Constraints
    scale: float = 1.0
    boundary: float = 1.0


class Certificate(NamedTuple):
    """Primal and dual objective at one point; the optimum lies between them."""

    primal: float
    dual: float

    @property
    def gap(self) -> float:
        return self.primal - self.dual


def padded(n_labels: int) -> int:
    """Number of labels that the kernel computes with."""
    return (n_labels + LANES - 1) // LANES * LANES


class LinearRows(NamedTuple):
    """CSR arrays for the kernel; columns from the most to the least frequent."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray
    order: np.ndarray  # the user's column at each place

    def matrix(self) -> sparse.csr_matrix:
        data = self.data if len(self.data) else np.ones(len(self.indices))
        shape = (len(self.indptr) - 1, len(self.order))
        return sparse.csr_matrix((data, self.indices, self.indptr), shape=shape)


def linear_rows(rows) -> LinearRows:
    """Rows arranged for the linear kernel: dense as CSR with every entry, sparse without zeros."""
    n, m = rows.shape
    if not sparse.issparse(rows):
        dense = np.ascontiguousarray(rows, dtype=np.float64)
        indices = np.tile(np.arange(m, dtype=np.int32), n)
        indptr = np.arange(n + 1, dtype=np.int64) * m
        return LinearRows(indptr, indices, dense.reshape(-1), np.arange(m))
    rows = without_zeros(rows)
    counts = np.bincount(rows.indices, minlength=m)
    order = np.argsort(-counts, kind="stable")
    rank = np.empty(m, dtype=np.int32)
    rank[order] = np.arange(m, dtype=np.int32)
    ones = bool((rows.data == 1).all())
    data = np.zeros(0) if ones else np.ascontiguousarray(rows.data, dtype=np.float64)
    return LinearRows(rows.indptr.astype(np.int64), rank[rows.indices], data, order)


class StructuredHinge:
    """The dual problem of this module, for solvers that update one sequence at a time.

    Parameters
    ----------
    source : LinearRows, float64 ndarray (n_rows, n_rows), or kernels computed on demand
        Rows; their Gram matrix; or an object with ``gram(rows)``, the kernels between up to
        ``n_block`` rows, and ``block(rows)``, the kernels of up to ``n_part`` rows with all rows.
        Such an object makes the solver update the sequences of ``n_block`` rows ``1 + n_sweeps``
        times before it computes the kernels of the rows whose coefficients have changed.
    offsets : int64 ndarray of shape (n_sequences + 1,)
    y : int ndarray of shape (n_rows,)
        Label codes.
    C : ndarray of shape (n_sequences,)
        Weight of each slack; 0 leaves a sequence out.
    margin : Margin
    averaging : {0, 1, 2}
        Average of the iterates: 0 none, 1 with equal weights, 2 with weight k for the k-th.
    n_own : int
        For the linear kernel, the number of inner products between rows of the same sequence that
        may be stored, T² for each sequence. Without them, a further step on a sequence costs as
        much as the first.
    features : TransitionFeatures, optional
        Transition features of all rows.
    threads : Threads, optional
        By default one. With a Gram matrix, several update different blocks at the same time, see
        ``GramThreads``; not with a hard margin or averages.

    Attributes
    ----------
    blocks : ndarray
        Numbers of the sequences with a positive C and at least one row.
    measured : Certificate
        The last one that was asked for.
    violations : ndarray
        The largest violation of each sequence, by which slacks were measured last.
    """

    def __init__(
        self, source, offsets, y, C, margin: Margin, averaging: int = 0, n_own: int = 0,
        features: TransitionFeatures | None = None, threads: Threads | None = None,
    ):  # fmt: skip
        self.loss, self.slack, allowed, self.scale, self.boundary = margin
        self.offsets, self.y, self.C, self.averaging = offsets, y, C, averaging
        L = self.n_labels = len(self.loss.cost)
        self.source, self.is_linear = source, isinstance(source, LinearRows)
        self.features = features
        self.is_whole = self.is_linear or isinstance(source, np.ndarray)
        self.gram = source if isinstance(source, np.ndarray) else np.zeros((0, 0))
        width = padded(L)
        cost, score = np.zeros((L, width)), np.full((width, width), -np.inf)
        cost[:, :L] = self.loss.cost
        score[:L, :L] = np.where(allowed.transition, 0, -np.inf)
        start, end = np.full((2, width), -np.inf)
        start[:L], end[:L] = (np.where(mask, 0, -np.inf) for mask in (allowed.start, allowed.end))
        self.kernel = _margin.HingeBlocks(self, cost, score, start, end, n_own)
        self._settled, self._contradiction, self.disputed = None, np.zeros(0, dtype=int), None
        self.whole = whole_sequences(offsets)
        self._bind(self.whole)
        self.sequences = self.blocks
        self.gram_threads = None
        if threads is not None and threads.n > 1:
            self._engage(cost, threads)

    def _engage(self, cost: np.ndarray, threads: Threads) -> None:
        # Lets threads train. A hard margin may have steps without an end, and averages need the
        # order of all steps.
        def copy() -> Any:
            a = self.kernel.arrays
            return _margin.HingeBlocks(self, cost, a["score"], a["start"], a["end"], 0)

        has_gram = self.is_whole and not self.is_linear
        if has_gram and not self.averaging and self.slack != "hard":
            self.gram_threads = GramThreads(self.kernel, copy, threads, self.offsets)

    def _bind(self, pieces: Pieces) -> None:
        # Go on with these blocks, which have no paths yet.
        self.pieces = pieces
        C = self.C_of_blocks = self.C if pieces is self.whole else self.C[pieces.owner]
        self.blocks = np.flatnonzero((C > 0) & (pieces.first < pieces.stop))
        self.kernel.bind_blocks(pieces, C)
        if not self.is_linear:
            self.kernel.bind_gram(self.gram, self.kernel.arrays["S"], pieces.first)

    @property
    def inseparable(self) -> np.ndarray:
        """Numbers of sequences for which a hard margin is proved impossible; may be empty."""
        if self.kernel.unbounded >= 0:
            return self.pieces.owner[[self.kernel.unbounded]]
        return self._contradiction

    @property
    def n_updates(self) -> int:
        """Updates of blocks so far."""
        if self.gram_threads is None:
            return self.kernel.count
        return sum(worker.count for worker in self.gram_threads.workers)

    # ------------------------------------------------------------------ for solvers

    def most_violated(self, s: int) -> tuple[np.ndarray, float]:
        """The wrong path of sequence s of largest loss + F, and its violation of the margin."""
        return self.kernel.most_violated(s)

    def optimize(
        self, order: np.ndarray, gaps: np.ndarray, n_steps: int = 1, accuracy: float = 0.0,
        n_searches: int = 1,
    ) -> None:  # fmt: skip
        """Exact steps on each sequence of ``order``.

        Parameters
        ----------
        order : int64 ndarray
        gaps : ndarray of shape (n_sequences,)
            Receives the contribution of each sequence to the gap before its steps.
        n_steps : int
            Largest number of steps after each search for the most violated path.
        accuracy : float
            Steps on a sequence end when the spread of violations has fallen to this fraction of
            its first value; searches end when the gap has.
        n_searches : int
        """
        self.kernel.bind_own()
        if self.gram_threads is not None:
            self._run_threads(order, gaps, n_steps, accuracy, n_searches)
            return
        for run in self._at_hand(order):
            self._optimize(run, gaps, n_steps, accuracy, n_searches)
            for _ in range(0 if self.is_whole else self.source.n_sweeps):
                self._optimize(run, np.empty_like(gaps), n_steps, accuracy, n_searches)

    def _optimize(self, order, gaps, *effort) -> None:
        done, (n_steps, accuracy, n_searches) = 0, effort
        while done < len(order) and self.kernel.unbounded < 0:
            done += self.kernel.optimize(order[done:], n_steps, accuracy, gaps, n_searches)
            if done < len(order) and self.kernel.unbounded < 0:
                self.kernel.grow()

    def prepared(self) -> AbstractContextManager:
        """Context for calls of ``optimize`` that follow one another closely."""
        self.kernel.bind_own()
        return nullcontext() if self.gram_threads is None else self.gram_threads.assembled()

    def _run_threads(self, order, gaps, n_steps, accuracy, n_searches) -> None:
        a, (first, stop) = self.kernel.arrays, self.pieces[1:3]
        if len(order) and a["size"][order].max() == len(a["alpha"]):
            self.kernel.grow()
        # A step changes two cells of a row and of a transition, of starts and of ends.
        rows, steps = stop - first, n_steps * n_searches
        most = rows * (self.n_labels + 4 * steps) + 4 * steps
        self.gram_threads.run(order, most, n_steps, accuracy, gaps, n_searches)

    def _at_hand(self, order: np.ndarray) -> Iterator[np.ndarray]:
        # Yields runs of `order` while the kernels of their rows are bound; all of `order` with a
        # Gram matrix.
        if self.is_whole:
            yield order
            return
        S, coef = self.kernel.arrays["S"], self.kernel.arrays["coef"]
        for run in self._runs(order):
            rows = spread(self.offsets[run], np.diff(self.offsets)[run])[0]
            place = np.zeros(len(self.C), np.int64)
            place[run] = np.cumsum(np.diff(self.offsets)[run]) - np.diff(self.offsets)[run]
            before, gram = coef[rows], self.source.gram(rows)
            self.kernel.bind_gram(gram, np.ascontiguousarray(S[:, rows]), place)
            try:
                yield run
            finally:
                self.kernel.bind_gram(self.gram, S, self.offsets[:-1])
                self._add_scores(rows, coef[rows] - before)

    def _runs(self, order: np.ndarray) -> list[np.ndarray]:
        # Runs of `order` of at most n_block rows, or of one longer sequence.
        rows = np.cumsum(np.diff(self.offsets)[order])
        cuts, first = [0], 0
        while cuts[-1] < len(order):
            last = int(np.searchsorted(rows, first + self.source.n_block, side="right"))
            cuts.append(max(last, cuts[-1] + 1))
            first = rows[cuts[-1] - 1]
        return [order[a:b] for a, b in zip(cuts, cuts[1:])]

    def _add_scores(self, rows: np.ndarray, change: np.ndarray) -> None:
        # S += changeᵀ @ kernels of these rows with all
        moved = np.flatnonzero(change.any(axis=1))
        for a in range(0, len(moved), self.source.n_part):
            part = moved[a : a + self.source.n_part]
            block = self.source.block(rows[part])
            self.kernel.arrays["S"] += change[part].T.astype(block.dtype) @ block

    def _score_rows(self) -> None:
        # S = coefᵀ @ Gram matrix
        S, coef = self.kernel.arrays["S"], self.kernel.arrays["coef"]
        if self.is_whole:
            np.matmul(coef.T, self.source, out=S)
            return
        S[...] = 0
        self._add_scores(np.arange(len(coef)), coef)

    @contextmanager
    def known_paths(self, order: np.ndarray) -> Iterator[Any]:
        """Context manager: the ``KnownPaths`` of these blocks, for updates without searches."""
        self.kernel.bind_own()
        paths = _known_paths.KnownPaths(self, order)
        try:
            yield paths
        finally:
            paths.store()

    def chain_norm(self) -> np.ndarray:
        """Squared values of the features of the scores in the kernel's array ``chain``."""
        a, width = self.kernel.arrays, padded(self.n_labels)
        norm = np.full(len(a["chain"]), self.scale**2)
        norm[width**2 : width**2 + 2 * width] = self.boundary**2
        return norm

    def mistakes(self, order: np.ndarray, squares: np.ndarray) -> int:
        """One pass of the perceptron; see the kernel."""
        return sum(self.kernel.mistakes(run, squares) for run in self._at_hand(order))

    def rescale(self, ratio: float) -> None:
        """Multiply C by ``ratio``, and all α by the k of the largest dual objective,

            k · Σ_ip α_ip loss_ip - k²/2 · (‖w‖² + [slack "l2"] Σ_i (Σ_p α_ip)² / (2 C_i)),

        where slack "l1" bounds Σ_p α_ip by C_i, so that k ≤ ``ratio``. Averages of iterates
        cannot be rescaled.
        """
        self.C *= ratio  # the kernel reads this array, or that of pieces
        if self.pieces is not self.whole:
            self.C_of_blocks *= ratio
        self._multiply_dual(ratio)

    def _multiply_dual(self, most: float) -> None:
        loss, mass = self._mass_and_loss()[:, self.blocks]
        C, a = self.C_of_blocks[self.blocks], self.kernel.arrays
        square = self.squared_norm() + (self.slack == "l2") * float((mass**2 / (2 * C)).sum())
        k = float(loss.sum()) / square if square > 0 else 1.0
        k = min(k, most) if self.slack == "l1" else k
        states = ("W",) if self.is_linear else ("coef", "S")
        for name in ("alpha", "score", "score_t", "start", "end", "v", *states):
            a[name] *= k
        self._forget_threads()

    def _forget_threads(self) -> None:
        if self.gram_threads is not None:
            self.gram_threads.forget()

    def start_from(self, paths: SupportPaths, allowed: Constraints) -> None:
        """Start from the α of an earlier training on the same rows, with any C and loss.

        Paths that are now forbidden, equal to the true one or in sequences of weight 0 are left
        out. The α of a block are scaled down to the sum C_i where they exceed it, then all α are
        multiplied as by :meth:`rescale`.

        Parameters
        ----------
        paths : SupportPaths
            Sorted by sequence; their loss is not used.
        allowed : Constraints
        """
        paths = paths.select(self._usable(paths, allowed))
        wrong, pieces = paths.wrong_rows(self.y), self.whole
        if not len(wrong.row):
            return
        if self.can_divide:
            free = np.bincount(wrong.row, minlength=len(self.y)) > 0
            pieces = cut(self.offsets, widened(free, self.offsets))
        self._regroup(wrong, pieces)
        most = self._limit_alpha() if self.slack == "l1" else np.inf
        self._add_weights(self.support_paths())
        self._multiply_dual(most)

    def _limit_alpha(self) -> float:
        # Scales α down to sums of at most C_i. Returns the factor that all may still grow by.
        C, mass = self.C_of_blocks, self._mass_and_loss()[1]
        limit = np.divide(C, mass, out=np.full(len(mass), np.inf), where=mass > 0)
        self.kernel.arrays["alpha"] *= np.minimum(limit, 1)
        return float(np.maximum(limit, 1).min())

    def _usable(self, paths: SupportPaths, allowed: Constraints) -> np.ndarray:
        # Numbers of paths that are allowed, wrong, and of blocks.
        (path, rows), labels, n = paths.rows(), paths.labels, len(paths.alpha)
        first, last, y = paths.bounds[:-1], paths.bounds[1:] - 1, np.append(self.y, 0)
        begins = np.zeros(len(y), dtype=bool)  # whether a sequence does, or all have ended
        begins[self.offsets] = True
        before = np.append(0, labels)[:-1]
        before[first] = y[rows[first] - 1]
        follows = allowed.transition[before, labels]
        barred = ~np.where(begins[rows], allowed.start[labels], follows)
        follows = allowed.transition[labels[last], y[rows[last] + 1]]
        free = np.where(begins[rows[last] + 1], allowed.end[labels[last]], follows)
        free &= np.bincount(path, barred, n) == 0
        wrong = np.bincount(path, labels != y[rows], n) > 0
        return np.flatnonzero(wrong & free & np.isin(paths.sequence, self.blocks))

    def _hold(self, paths: WrongRows) -> None:
        # Makes these paths, of the blocks that are bound, the working sets.
        (piece, alpha, path, row, label), pieces = paths, self.pieces
        size = np.bincount(piece, minlength=len(pieces.first))
        while len(self.kernel.arrays["alpha"]) <= size.max(initial=0):
            self.kernel.grow()
        a, slot = self.kernel.arrays, spread(np.zeros_like(size), size)[0]
        cost = self.loss.cost[self.y[row], label]
        a["size"][:] = size
        a["alpha"][slot, piece] = alpha
        a["loss"][slot, piece] = self.loss.offset + np.bincount(path, cost, len(slot))
        rows, of_path = spread(pieces.first[piece], (pieces.stop - pieces.first)[piece])
        a["paths"][slot[of_path], rows] = self.y[rows]
        a["paths"][slot[path], row] = label

    def _add_weights(self, paths: SupportPaths) -> None:
        # w += Σ α_ip (φ(x_i, y_i) - φ(x_i, p))
        a, L, data = self.kernel.arrays, self.n_labels, (paths, self.y)
        states = np.stack([part.T @ paths.alpha for part in state_differences(*data, L)], axis=1)
        if self.is_linear:
            a["W"][:, :L] += self.source.matrix().T @ states
        else:
            a["coef"][:, :L] += states
            self._score_rows()
        scales = (self.scale, self.boundary)
        parts = chain_differences(*data, L, *scales)
        pairs, start, end = (part.T @ paths.alpha for part in parts)
        a["score"][:L, :L] += self.scale * pairs.reshape(L, L)
        a["score_t"][...] = a["score"].T
        a["start"][:L] += self.boundary * start
        a["end"][:L] += self.boundary * end
        if self.features is not None:
            links = link_differences(*data, self.features)
            a["v"] += self.scale**2 * (links.T @ paths.alpha)
        self._forget_threads()

    def certificate(self) -> Certificate:
        """Primal and dual objective of the average of iterates, or of the last iterate.

        Costs one pass over the data.
        """
        with self.as_settled():
            self.measured = self.last_certificate()
        return self.measured

    def last_certificate(self) -> Certificate:
        """Primal and dual objective of the last iterate."""
        half = 0.5 * self.squared_norm()
        dual = self._dual(half)
        if self.gram_threads is not None:
            self.gram_threads.adapt(dual)
        self.violations = self._worst()
        C, xi = self.C[self.sequences], np.maximum(self.violations, 0)
        if self.slack == "l1":
            return Certificate(half + float(C @ xi), dual)
        if self.slack == "l2":
            return Certificate(half + float(C @ xi**2), dual)
        # w violates margins by at most max ξ, so w / (1 - max ξ / least loss) violates none.
        factor = 1 - xi.max(initial=0) / self.loss.least if xi.max(initial=0) > 0 else 1.0
        return Certificate(half / factor**2 if factor > 0 else np.inf, dual)

    def rounding(self) -> float:
        """Bound, to first order, of the rounding error of the primal objective last measured.

        A violation is a difference of sums of scores, of which each has an error of at most the
        number of its terms times the sum of their sizes times the unit roundoff.
        """
        a, lengths = self.kernel.arrays, np.diff(self.offsets)
        chain = [a[name][np.isfinite(a[name])] for name in ("score", "start", "end")]
        of_step = sum(float(np.abs(part).max(initial=0)) for part in chain)
        if self.features is not None:
            entries, _, values = self.features.rows
            of_row = np.abs(values).max(initial=0) * np.diff(entries).max(initial=0)
            of_step += float(np.abs(a["v"]).max(initial=0) * of_row)
        of_step += float(self.loss.cost.max()) + self.loss.offset
        sizes, relative = self._row_sizes()
        owner = np.repeat(np.arange(len(lengths)), lengths)
        sizes = np.bincount(owner, sizes, len(lengths))
        of_sums = EPSILON * lengths * (sizes + lengths * of_step)
        error = 2 * (relative * sizes + of_sums)[self.sequences]
        error[self.violations < -error] = 0  # no violation, whatever the rounding
        if self.slack == "hard":
            return float(2 * self.measured.primal * error.max(initial=0) / self.loss.least)
        C = self.C[self.sequences]
        if self.slack == "l1":
            return float(C @ error)
        # Of the squares: at most 2 (Σ C ξ²)^½ (Σ C error²)^½ + Σ C error²
        square = float(C @ error**2)
        return 2 * np.sqrt(max(self.measured.primal, 0) * square) + square

    def _row_sizes(self) -> tuple[np.ndarray, float]:
        # Sums of the sizes of the terms of each row's largest score; their relative errors.
        a = self.kernel.arrays
        if self.is_linear:
            largest = np.maximum(a["W"].max(axis=1, initial=0), -a["W"].min(axis=1, initial=0))
            n_terms = int(np.diff(self.source.indptr).max(initial=0))
            # SciPy's `abs` would add up repeated entries in the caller's arrays.
            rows = self.source._replace(data=np.abs(self.source.data)).matrix()
            return rows @ largest, EPSILON * n_terms
        relative = EPSILON if self.is_whole else float(np.finfo(np.float32).eps) / 2
        return np.abs(a["S"]).max(axis=0, initial=0), relative

    def _dual(self, half: float) -> float:
        # The dual objective, of half = ½‖w‖²
        loss, mass = self._mass_and_loss()
        dual = float(loss.sum()) - half
        if self.slack == "l2":
            used = self.sequences  # slacks are those of whole sequences
            dual -= float((mass[used] ** 2 / (4 * self.C[used])).sum())
        return dual

    def _worst(self) -> np.ndarray:
        # Largest violation of each of `sequences`; `disputed` becomes where its path errs.
        worst, self.disputed = np.zeros(len(self.C)), np.zeros(len(self.y), np.uint8)
        if self.gram_threads is None:
            self.kernel.largest_violations(self.whole, self.sequences, worst, self.disputed)
        else:
            self.gram_threads.largest_violations(self.whole, self.sequences, worst, self.disputed)
        return worst[self.sequences]

    # ------------------------------------------------------------------ pieces

    @property
    def can_divide(self) -> bool:
        """Whether slacks add up over pieces of sequences, of which paths can be put together."""
        additive = self.loss.offset == 0 and self.slack in ("l1", "hard")
        return bool(additive and not self.averaging and self.is_linear)

    def divide(self, longest: int, shift: int) -> None:
        """Make the blocks pieces around the rows that paths dispute; the weights stay.

        Paths are those of the weights that were last measured; if none were, of these.

        Parameters
        ----------
        longest : int
            Number of free rows of a piece that is cut where no path with α > 0 errs, every
            ``longest`` + 1 rows.
        shift : int
            Moves these cuts.
        """
        if self.disputed is None:
            self._worst()
        paths, active = self.support_paths().wrong_rows(self.y), np.zeros(len(self.y), dtype=bool)
        active[paths.row] = True
        free = widened(active | self.disputed.astype(bool), self.offsets)
        at = np.arange(len(free)) + shift
        free &= active | (at % (longest + 1) != 0)
        self._regroup(paths, cut(self.offsets, free))

    def _regroup(self, paths: WrongRows, pieces: Pieces) -> None:
        paths = regroup(paths, pieces)
        self._bind(pieces)
        self._hold(paths)

    def find_contradiction(self) -> bool:
        """Return whether the paths of largest α prove that no hard margin exists.

        If so, `inseparable` names the sequences.
        """
        paths = self.support_paths()
        if self.slack != "hard" or not len(paths.alpha):
            return False
        paths = paths.select(np.sort(np.argsort(-paths.alpha)[:N_TESTED]))
        source = self.source.matrix() if self.is_linear else self.kernels_of
        scales = (self.scale, self.boundary)
        data = paths, self.y, self.n_labels
        gram = path_gram(*data, source, scales, self.features)
        self._contradiction = smallest_contradiction(gram, paths.loss, paths.sequence)
        return len(self._contradiction) > 0

    def kernels_of(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Kernels of rows a with rows b."""
        return self.source[np.ix_(a, b)] if self.is_whole else self.source.between(a, b)

    def _mass_and_loss(self) -> np.ndarray:
        # (2, n_sequences): Σ_p α loss and Σ_p α of each sequence
        if self._settled is not None:
            return self._settled
        a = self.kernel.arrays
        held = np.arange(len(a["alpha"]))[:, None] < a["size"]
        alpha = np.where(held, a["alpha"], 0)
        return np.stack([(alpha * a["loss"]).sum(axis=0), alpha.sum(axis=0)])

    def squared_norm(self) -> float:
        """‖w‖²."""
        a = self.kernel.arrays
        states = a["W"] if self.is_linear else a["coef"]
        other = states if self.is_linear else a["S"].T
        total = float(np.einsum("ij,ij->", states, other))
        for name, scale in (
            ("score", self.scale),
            ("start", self.boundary),
            ("end", self.boundary),
            ("v", self.scale),
        ):
            if scale > 0:
                total += float(np.square(a[name][np.isfinite(a[name])]).sum()) / scale**2
        return total

    def settle(self, last_is_right: bool = False) -> None:
        """Replace the weights by the average of all iterates.

        Parameters
        ----------
        last_is_right : bool
            Whether the perceptron's last weights make no mistake. They are then added to the
            average, as further passes would add them, until the average makes no mistake.
        """
        if not self.averaging or self.n_updates == 0 or self._settled is not None:
            return
        n = float(self.n_updates)
        total = n if self.averaging == 1 else 0.5 * n * (n + 1)
        self._settled = self._mass_and_loss() - self.kernel.arrays["late_sums"] / total
        last = self._copy_states() if last_is_right else {}
        self._subtract_late(1 / total)
        while last_is_right and self._errs():
            self._restore_states(last)
            total *= 2
            if total > 2.0**53:  # the average equals the last iterate up to rounding
                return
            self._subtract_late(1 / total)

    @contextmanager
    def as_settled(self) -> Iterator[None]:
        """Context manager: the weights are the average of all iterates so far inside."""
        if not self.averaging or self._settled is not None:
            yield
            return
        before = self._copy_states()
        self.settle()
        try:
            yield
        finally:
            self._settled = None
            self._restore_states(before)

    def _copy_states(self) -> dict[str, np.ndarray]:
        states = ["W"] if self.is_linear else ["coef", "S"]
        names = ("score", "score_t", "start", "end", "v", *states)
        return {name: self.kernel.arrays[name].copy() for name in names}

    def _restore_states(self, states: dict[str, np.ndarray]) -> None:
        for name, value in states.items():
            self.kernel.arrays[name][...] = value

    def _subtract_late(self, fraction: float) -> None:
        # Subtract from the weights this fraction of Σ change · number of updates before it.
        a = self.kernel.arrays
        for name in ("score", "start", "end", "v", "W" if self.is_linear else "coef"):
            a[name] -= a[f"late_{name}"] * fraction
        a["score_t"][...] = a["score"].T
        if not self.is_linear:
            self._score_rows()

    def _errs(self) -> bool:
        # Whether a wrong path scores as high as the true one less its loss, up to the rounding by
        # which the sums of ``predict`` may differ from those of training.
        worst = self._worst()
        margins = worst[np.isfinite(worst)]
        return bool((margins >= -ROUNDING * np.abs(margins).max(initial=0)).any())

    # ------------------------------------------------------------------ results

    def weights(self) -> Weights:
        """Weights in the user's order; without a linear kernel, ``coef`` is by rows of X."""
        a, L = self.kernel.arrays, self.n_labels
        if self.is_linear:
            # In the layout for kernels, so that predictions need no copy.
            rows = aligned_zeros(a["W"].size, np.float64).reshape(a["W"].shape)
            rows[self.source.order] = a["W"]
            coef = rows[:, :L]
        else:
            coef = a["coef"][:, :L].copy()
        return Weights(coef, a["score"][:L, :L].copy(), a["start"][:L].copy(), a["end"][:L].copy())

    def triples(self) -> sparse.csr_matrix | None:
        """Scores of transition features, see ``ScoreMap.unpack_triples``."""
        if self.features is None:
            return None
        return self.features.unpack(self.kernel.arrays["v"], len(self.source.order))

    def support_paths(self) -> SupportPaths:
        """The paths of all working sets, with the labels of their pieces."""
        a, pieces = self.kernel.arrays, self.pieces
        size, lengths = a["size"], pieces.stop - pieces.first
        slot, piece = spread(np.zeros_like(size), size)
        rows, path = spread(pieces.first[piece], lengths[piece])
        alpha, loss = a["alpha"][slot, piece], a["loss"][slot, piece]
        owner, first, bounds = pieces.owner[piece], pieces.first[piece], offsets_of(lengths[piece])
        return SupportPaths(owner, first, alpha, loss, bounds, a["paths"][slot[path], rows])

    def support_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows with coefficients other than 0, and these, of shape (n_support, n_labels):

            Σ_p α_ip ([y_it = j] - [p_t = j]).

        With the linear kernel, coefficients of the working sets, also if iterates are averaged.
        """
        paths, L = self.support_paths().wrong_rows(self.y), self.n_labels
        if self.is_linear:
            rows, place = np.unique(paths.row, return_inverse=True)
            cells = L * place + np.stack([self.y[paths.row], paths.label])
            alpha = paths.alpha[paths.path]
            coef = np.bincount(cells.ravel(), np.append(alpha, -alpha), L * len(rows))
            coef = coef.reshape(-1, L)
        else:
            # Rows where all paths equal the true labels have rounding errors only.
            has_paths = len(paths.alpha) and self._settled is None
            rows = np.unique(paths.row) if has_paths else np.arange(len(self.y))
            coef = self.kernel.arrays["coef"][rows, :L]
        used = (coef != 0).any(axis=1)
        return rows[used], coef[used]

"""Dual of the regularised conditional likelihood, for ascent one sequence at a time."""

from __future__ import annotations

import numpy as np

from sklseq._lib.cpu import load_kernel
from sklseq._lib.threads import spans
from sklseq._lib.tiny import TINY
from sklseq.data.sequences import row_positions
from sklseq.inference.chain.sparse_transitions import most_listed
from sklseq.objectives.likelihood.lattice import LatticeState, in_pieces
from sklseq.objectives.likelihood.likelihood import LogLikelihood, squared_norm

_ascent = load_kernel("sklseq.objectives.likelihood._ascent")

# Start: theta of the observed labels, and the first eta, which halves theta. (Larger first steps
# overshot in measurements, smaller ones made little of the first pass.) n threads divide it by n,
# because the weights of a thread change n times too much in the first pass.
CONFIDENCE, FIRST_STEP = 5.0, 0.5


def dual_bytes(
    y: np.ndarray, offsets: np.ndarray, n_labels: int, all_pairs: bool, by_row: bool = False
) -> int:
    """Bytes of the dual variables; with transition features, at most.

    Parameters
    ----------
    y : ndarray of shape (n_rows,)
        Label codes.
    offsets : ndarray of shape (n_sequences + 1,)
    n_labels : int
    all_pairs : bool
        Whether all transitions have a weight, or only those that occur.
    by_row : bool, default=False
        Whether rows have transition features.
    """
    n_pairs = n_entries = n_labels**2
    if not all_pairs:
        after = row_positions(offsets)[2]
        seen = len(np.unique(y[after - 1].astype(np.int64) * n_labels + y[after]))
        listed = seen <= most_listed(n_labels, np.float64, "updates")
        n_pairs, n_entries = seen if listed else n_pairs, seen
    return 8 * (len(y) * (n_labels + by_row * n_entries) + (len(offsets) - 1) * n_pairs)


class DualLikelihood(LatticeState):
    """D(mu) = Σ_s weight_s · H(mu_s) - l2 · ‖w(mu)‖²₂, with max D = min f of `LogLikelihood`.

    mu_s are the marginals of a distribution over the label paths of sequence s, H its entropy, and

        w(mu) = 1/(2 · l2) · Σ_s weight_s · (features of y_s - features expected under mu_s).

    Each distribution is a chain with potentials theta_s. One update moves these towards the scores
    of the present weights, theta ← theta + eta · (A w - theta), which is a step of exponentiated
    gradient ascent (Collins, Globerson, Koo, Carreras, Bartlett 2008, §4), and updates w by the
    change of the marginals. Pair potentials of a sequence start equal for all its rows, so they
    stay equal: theta takes n_rows · L + n_sequences · L² numbers. If few transitions have a weight,
    only these are stored and counted in place of L², as the others always score 0. eta is chosen
    for each sequence from the curvature at its last update, and a step that lowers D is undone; the
    paper has one eta, halved on failure. Where a row has transition features, each pair of labels
    that has a weight with one of them has a number of its own, which is added to that of the pair.

    With an L1 penalty, w(mu) is this sum soft-thresholded at l1 / (2 · l2), and everything else is
    unchanged (the dual of the elastic net; Shalev-Shwartz, Zhang 2014, §1).

    f(w(mu)) - D(mu) is never negative, and bounds the excess of f(w(mu)) over the minimum.

    Parameters
    ----------
    primal : LogLikelihood
        With sparse rows, in float64, and l2 > 0.
    l1 : float, default=0.0
        Weight of the penalty l1 · ‖w‖₁, which ``primal`` does not have.
    w : ndarray, optional
        Zeros; overwritten.

    Notes
    -----
    An update costs O(nnz · L + T · L² + L²), and one exponential per label and row. Memory:
    8 · (n_rows · L + n_sequences · L²) bytes beside the rows, with L² as above, and 8 for each row
    and pair of labels that has a weight with a transition feature of the row.

    Several threads start a pass from the same w. Each ascends the dual of its sequences with lam /
    sigma in place of lam = 2 · l2, so that w_k changes sigma times too much; then

        w ← w + Σ_k (w_k - w) / sigma,

    which is the w of all marginals (with L1, the same for u). With sigma = n threads, D does not
    fall (Ma, Smith, Jaggi, Jordan, Richtárik, Takáč 2015: CoCoA+). From the second pass on, sigma =
    ‖Σ_k (w_k - w)‖² / Σ_k ‖w_k - w‖² of the previous pass, the smallest value that would have been
    enough there. Two threads need 1.3 times as many passes as one (measured).
    Memory: as much as w for each thread, twice that with L1.
    """

    def __init__(self, primal: LogLikelihood, l1: float = 0.0, w: np.ndarray | None = None):
        super().__init__(primal, w)
        self.lam = 2.0 * primal.l2
        self.threshold = l1 / self.lam
        self.y = primal.y
        self._start(primal.y)
        self.scratch = self.new_scratch()
        self.value, self.sigma = 0.0, 0.0

    def _start(self, y: np.ndarray) -> None:
        # mu has all mass on the observed paths, so w = 0 and D = 0.
        n, L = len(self.weights), self.scores.n_labels
        # One allocation for both: large ones are returned to the system when they are freed.
        self.mu, self.theta = np.zeros((2, len(y), L), np.float32)
        self.mu[np.arange(len(y)), y] = 1
        self.theta[np.arange(len(y)), y] = CONFIDENCE
        pairs = self.pairs
        n_pairs = L * L if pairs is None else len(pairs)
        self.pair_mu, self.pair_theta = np.zeros((2, n, n_pairs), np.float32)
        for a, b in spans(n, 16):  # so that temporaries stay small
            offsets, codes = (
                self.offsets[a : b + 1] - self.offsets[a],
                y[slice(*self.offsets[[a, b]])],
            )
            _, _, after = row_positions(offsets)
            owner = a + np.repeat(np.arange(b - a), np.diff(offsets))
            pair = codes[after - 1].astype(np.intp) * L + codes[after]
            if pairs is not None:
                pair = np.searchsorted(pairs.i * L + pairs.j, pair)
            pair += owner[after] * n_pairs
            np.add.at(self.pair_mu.reshape(-1), pair, np.float32(1))
        self.entropy, self.gap = np.zeros((2, n))
        n_threads = len(self.shares(self.sequences))
        self.eta, self.seen = np.full(n, FIRST_STEP / n_threads), np.zeros(n, np.uint8)
        # theta and mu of the entries of rows with transition features; the kernel sets their start.
        self.first_entry = np.zeros_like(self.offsets)
        if self.links is not None:
            self.first_entry = self.features.before[self.offsets]
        self.of_entries = np.empty((2, self.first_entry[-1] + 1), np.float32)
        self.u = None
        if self.threshold > 0:
            parts = *self.dense_and_sparse(), self.chain, self.v
            self.u = tuple(np.zeros_like(x) for x in parts)

    def ascend(self, order: np.ndarray) -> int:
        """Update on each sequence of ``order``; return the number of steps that were undone."""
        W, w = self.dense_and_sparse()
        shares = self.shares(order)
        if len(shares) == 1:
            gain, rejected = _ascent.ascend(self, order, W, w)
        else:
            gain, rejected = None, self._ascend_apart(shares, W, w)
        self.store(W)
        if gain is None:
            self.value = self.weights @ self.entropy - self.lam / 2 * squared_norm(self.w)
        else:
            self.value += gain
        return rejected

    def _ascend_apart(self, shares: list[np.ndarray], W: np.ndarray, w: np.ndarray) -> int:
        # Each thread updates on a part of the sequences, then the weights are merged.
        n, arrays = len(shares), {"copies": [W, w, self.chain, self.v]}
        sigma = self.sigma or n
        if self.u is not None:
            arrays["u"] = list(self.u)

        def run(k: int) -> tuple[int, DualLikelihood]:
            other = self.member(k, arrays)
            other.chain, other.v = other.copies[2:]
            other.lam = self.lam / sigma
            return _ascent.ascend(other, shares[k], *other.copies[:2])[1], other

        rejected, others = zip(*self.threads.map(run, range(n)))
        moved = arrays.get("u", arrays["copies"])
        copies = [one.copies if self.u is None else one.u for one in others]
        sums = []
        for at, x in enumerate(moved):
            of_threads = [one[at] for one in copies]
            sums += in_pieces(self.threads, lambda *pieces: _merge(sigma, *pieces), x, *of_threads)
        for x, u in zip(arrays["copies"], self.u or ()):
            x[:] = np.sign(u) * np.maximum(np.abs(u) - self.threshold, 0)
        joint, apart = np.sum(sums, axis=0)
        self.sigma = min(max(joint / max(apart, TINY), 1.0), n)
        return sum(rejected)


def _merge(sigma: float, w: np.ndarray, *copies: np.ndarray) -> tuple[float, float]:
    # Merge as in `DualLikelihood`; return ‖sum of steps‖² and the sum of ‖step‖².
    steps = [one - w for one in copies]
    joint = sum(steps)
    w += joint / sigma
    return float(joint @ joint), sum(float(step @ step) for step in steps)

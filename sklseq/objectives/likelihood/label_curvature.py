"""Blocks of the Hessian of the likelihood for frequent features: initial Hessian of L-BFGS."""

from typing import NamedTuple

import numpy as np

from sklseq._lib.threads import BufferPool
from sklseq._lib.tiny import TINY
from sklseq.data.sequences import Sequences, as_csr
from sklseq.inference.chain.linear_chain import BATCH_ROWS, Transitions
from sklseq.objectives.likelihood.likelihood import (
    Block,
    LogLikelihood,
    SumOfParts,
    ThreadBuffers,
)
from sklseq.objectives.scores.design import _linear, without_zeros
from sklseq.objectives.scores.score_map import ScoreMap

# Most rows of the sample, and largest total number of entries of the blocks. (Training takes as
# long with an eighth of CoNLL-2002's rows as with all; a fifth of letters costs 1 iteration more of
# 14.) If only some features have blocks, fewer rows do: one in PART, but SOME_ROWS. (450 sentences
# of CoNLL-2000: 0.93 to 0.98 of the time.)
ROWS, ROOM = 8_000, 1 << 20
SOME_ROWS, PART = 2_000, 5
# Blocks have all features if these are at most FEW, otherwise the MOST most frequent ones. Of few
# rows, fewer features, so that factorising blocks costs less than an evaluation: the L · n³ / 3
# operations are at most OPERATIONS for each row. (10,000 rows of six corpora, four penalties each:
# 0.54 to 1.10 of the time, together with smaller samples for the block of transitions.)
FEW, MOST, OPERATIONS = 350, 200, 2000
# Transition, start and end weights have a block if they are at most MOST_OF_CHAIN (on CoNLL-2000,
# which has more, a block saved no iterations). It consists of differences of the gradient for steps
# of length STEP, on a sample of rows in blocks of at least LEAST_ROWS, at the cost of about PASSES
# evaluations.
MOST_OF_CHAIN, PASSES, STEP, LEAST_ROWS = 100, 2, 1e-3, 256
# Multiples of the identity added to blocks, as some features are rare in the sample, and to that of
# transitions, which is nearly singular: adding a_i - a_j to the weight of i → j changes the scores
# of first and last rows only. (With 0.001 for transitions, a tenth of NCBI disease with l1 = 0.1
# and l2 = 0.001 takes twice the iterations of a run without this block to within 0.01; with 0.1,
# protein chains with l2 = 1 take 11 iterations in place of 6.)
LEAST, LEAST_OF_CHAIN = 0.1, 0.01
# Rows with p (1 - p) below this for a label are left out of its block.
CERTAIN = 1e-3


class LabelCurvature(NamedTuple):
    """Blocks Σ_t x_t x_tᵀ p_t(j) (1 - p_t(j)) over frequent features, one for each label j.

    Features in x are divided by their largest magnitude, so that no block overflows. There is one
    more block for transitions, first and last labels, if these are few.

    Attributes
    ----------
    at : ndarray of shape (n,)
        Positions in w of the weights of these features.
    slots : ndarray of shape (n,)
        Label · n_frequent + number of the feature, for each of these weights.
    sizes : ndarray of shape (n,)
        Largest magnitude of the feature, for each of these weights.
    blocks : ndarray of shape (n_labels or one more, n_frequent, n_frequent)
    least : ndarray
        Multiple of the identity to add to each block.
    """

    at: np.ndarray
    slots: np.ndarray
    sizes: np.ndarray
    blocks: np.ndarray
    least: np.ndarray


def n_in_blocks(n_features: int, n_labels: int, n_rows: int) -> int:
    """Number of features that have blocks."""
    most = n_features if n_features <= FEW else MOST
    affordable = 1 + int(np.cbrt(3 * OPERATIONS * n_rows / n_labels))
    return min(most, int(np.sqrt(ROOM / n_labels)), affordable)


def has_chain_block(scores: ScoreMap, n_rows: int) -> bool:
    """Whether there is a block for transitions, first and last labels."""
    most = min(MOST_OF_CHAIN, n_in_blocks(scores.n_features, scores.n_labels, n_rows))
    return scores.features is None and scores.n_weights - scores.n_state <= most


def label_curvature(f: LogLikelihood, X: Sequences, w: np.ndarray) -> LabelCurvature:
    """Estimate blocks of the Hessian of ``f`` at w, without penalties, from a sample of rows.

    Covariances between different labels, and between labels of different rows, are neglected.

    Parameters
    ----------
    f : LogLikelihood
        The likelihood of the sparse rows X.
    X : Sequences
    w : ndarray
    """
    L = f.scores.n_labels
    rows, p = _sampled(f, X, w)
    rows = without_zeros(X.rows[rows])
    frequent = np.argsort(-np.bincount(rows.indices, minlength=rows.shape[1]), kind="stable")
    frequent = frequent[: n_in_blocks(len(frequent), L, X.n_rows)]
    sizes, rows = feature_sizes(f.scores)[frequent], rows[:, frequent]
    rows.data = rows.data / sizes[rows.indices]
    blocks = _blocks(f, rows, np.where(p > CERTAIN, p, 0), X.n_rows / max(len(p), 1))
    at, slots = _places(f.scores, frequent)
    least = np.full(L, LEAST)
    found = LabelCurvature(at, slots, sizes[slots % len(frequent)], blocks, least)
    if has_chain_block(f.scores, X.n_rows):
        return _with_chain(found, f.scores.n_state, _chain_curvature(f, X, w))
    return found


def _blocks(f: LogLikelihood, rows, p: np.ndarray, factor: float) -> np.ndarray:
    # factor · Σ_t x_t x_tᵀ p_t(j) for each label j: of all labels at once, as products of features
    # are the same for all.
    kept, L, n = np.flatnonzero(p.any(axis=1)), f.scores.n_labels, rows.shape[1]
    rows, weights = as_csr(rows[kept]), np.zeros((len(kept), f.scores.width))
    rows.sum_duplicates()
    weights[:, :L] = p[kept]
    grams, blocks, parts = np.zeros((n, n, f.scores.width)), np.empty((L, n, n)), f.threads.n

    def fill(part: int) -> None:
        given = rows.indptr, rows.indices, rows.data, weights
        _linear.label_grams(*given, grams, part, parts)
        _linear.unfold_grams(grams, factor, blocks, part, parts)

    f.threads.map(fill, range(parts))
    return blocks


def _with_chain(found: LabelCurvature, first: int, chain: np.ndarray) -> LabelCurvature:
    # ``chain`` is the block of the weights from ``first`` on.
    at, slots, sizes, blocks, least = found
    L, size, _ = blocks.shape
    block, here = np.zeros((1, size, size)), np.arange(len(chain))
    block[0, : len(chain), : len(chain)] = chain
    return LabelCurvature(
        np.append(at, first + here), np.append(slots, L * size + here),
        np.append(sizes, np.ones(len(chain))), np.concatenate([blocks, block]),
        np.append(least, LEAST_OF_CHAIN),
    )  # fmt: skip


def _chain_curvature(f: LogLikelihood, X: Sequences, w: np.ndarray) -> np.ndarray:
    # Hessian of the chain weights: differences of the gradient of some sequences.
    scores, c = f.scores, f.scores.n_weights - f.scores.n_state
    blocks = f.blocks(min(BATCH_ROWS, max(LEAST_ROWS, PASSES * X.n_rows // (2 * c))))
    blocks = blocks[:: max(1, min(c // PASSES, len(blocks) // 2))]
    W, here, chains = scores.design.weights(scores.state(w)), w.copy(), [scores.chain(w)]
    for k in range(scores.n_state, scores.n_weights):
        here[k] = w[k] + STEP
        chains.append(scores.chain(here))
        here[k] = w[k]
    buffers = iter(f.buffers)
    pool = BufferPool(lambda: next(buffers))

    def count(block: Block) -> np.ndarray:
        with pool.buffer() as work:
            return _expected_counts(f, W, chains, block, work)

    counts = sum(f.threads.map(count, blocks))
    H = (counts[1:] - counts[0]) / STEP
    values, vectors = np.linalg.eigh((H + H.T) / 2)
    H = (vectors * np.maximum(values, 0)) @ vectors.T  # negative values are errors
    return H * (X.n_rows / max(sum(len(block.y) for block in blocks), 1))


def _expected_counts(
    f: LogLikelihood, W, chains: list[Transitions], block: Block, work: ThreadBuffers
) -> np.ndarray:
    # Expected counts of transitions, first and last labels in a block, a row for each chain.
    scores, counts = f.scores, np.empty((len(chains), f.scores.n_weights - f.scores.n_state))
    padded, psi = np.empty(scores.n_weights), work.psi[: block.last - block.first]
    emission = np.empty_like(psi)
    scores.design.scores(W, block.first, block.last, emission)
    for chain, row in zip(chains, counts):
        work.forget()
        work.ends[:] = 0
        psi[:] = emission
        f.compare(psi, block, chain, work, counts=True)
        start, end = work.ends[:, : scores.n_labels]
        scores.store_chain(padded, work.pairwise_sum(chain), start, end)
        row[:] = padded[scores.n_state :]
    return counts


def diagonal_curvature(f: LogLikelihood, w: np.ndarray) -> np.ndarray:
    """Second derivatives Σ_t x_t(f)² p_t(j) (1 - p_t(j)) + 2 · l2 of f in each state weight at w.

    Covariances between rows are neglected; other weights have infinity.
    """
    scores, squared = f.scores, f.scores.design.squared()
    chain, W = scores.chain(w), scores.design.weights(scores.state(w))

    def add_run(job: tuple[list[Block], ThreadBuffers]) -> None:
        blocks, work = job
        work.clear()
        for block in blocks:
            psi, _ = f.residuals(W, chain, block, work)
            psi[:] = _variances(psi, np.repeat(block.weights, np.diff(block.offsets))[:, None])
            squared.collect(psi, block.first, work.buffer)

    f.threads.map(add_run, zip(f.runs, f.buffers))
    buffers = [work.buffer for work, _ in zip(f.buffers, f.runs)]
    return scores.diagonal(squared, f.residual, buffers, 2 * f.l2, f.threads)


def diagonal_of_parts(f: SumOfParts, w: np.ndarray) -> np.ndarray:
    """The same, of data in parts, each of which is without a penalty."""
    return sum(f.each_part(lambda part: diagonal_curvature(part, w))) + 2 * f.l2


def _variances(residual: np.ndarray, weight: np.ndarray) -> np.ndarray:
    # weight · p (1 - p) of residuals ± weight · p, or ± weight · (1 - p) for the given label.
    size = np.abs(residual)
    return size * np.maximum(1 - size / np.maximum(weight, TINY), 0)


def feature_sizes(scores: ScoreMap) -> np.ndarray:
    """Largest magnitude of each feature, by which its column is divided; 1 if it has none."""
    if scores.largest is None:
        return np.ones(scores.n_features)
    return np.where(scores.largest > 0, scores.largest, 1.0)


def _sampled(f: LogLikelihood, X: Sequences, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Numbers of some rows, and weight · p (1 - p) of their labels.
    scores = f.scores
    chain, W, work = scores.chain(w), scores.design.weights(scores.state(w)), f.buffers[0]
    all_blocks, rows, p = f.blocks(BATCH_ROWS), [], []
    wanted = min(ROWS, ROOM // scores.n_labels)
    if n_in_blocks(scores.n_features, scores.n_labels, X.n_rows) < scores.n_features:
        wanted = min(wanted, max(SOME_ROWS, X.n_rows // PART))
    for block in all_blocks[:: max(1, X.n_rows // wanted)]:
        psi, _ = f.residuals(W, chain, block, work)
        some = slice(None, None, 1 + len(psi) // wanted)  # a long block is thinned out
        weight = np.repeat(block.weights, np.diff(block.offsets))[some, None]
        rows.append(np.arange(block.first, block.last)[some])
        p.append(_variances(psi[some, : scores.n_labels].astype(np.float64), weight))
    return np.concatenate(rows), np.concatenate(p)


def _places(scores: ScoreMap, frequent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # Positions of the weights of these features in w, and their slots.
    L, rows = scores.n_labels, np.zeros((scores.n_features, scores.width), np.int32)
    rows[frequent, :L] = np.arange(len(frequent))[:, None] + len(frequent) * np.arange(L) + 1
    packed = scores.design.pack(rows)
    at = np.flatnonzero(packed)
    return at, packed[at].astype(np.intp) - 1

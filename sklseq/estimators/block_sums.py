"""Marginals, log-likelihood and entropy of sequences in blocks."""

import pickle
from collections.abc import Iterable, Iterator
from tempfile import SpooledTemporaryFile
from typing import Any, NamedTuple

import numpy as np

from sklseq.data.input_kinds import blocks_of
from sklseq.data.label_blocks import label_blocks
from sklseq.data.labels import different_lengths, find_codes
from sklseq.data.row_blocks import BLOCK_ROWS, RowBlocks, with_last
from sklseq.data.types import LabelsLike, SequencesLike
from sklseq.estimators.decode_blocks import BlockDecoder
from sklseq.estimators.validation import check_room
from sklseq.inference.chain.expectation import BlockChain, FilteredBlock, entropy_of_blocks
from sklseq.inference.chain.large_scores import take_out_row_maxima
from sklseq.inference.chain.linear_chain import check_paths
from sklseq.inference.chain.row_transitions import RowTransitions, pair_scores

# Bytes of blocks between the passes that are in memory; more are in a temporary file.
IN_MEMORY = 1 << 26


class KeptEntries:
    """Transition scores of a block kept in memory, with the methods of ``BlockEntries``."""

    def __init__(self, rows: RowTransitions):
        self.rows = rows.astype(np.float64)

    def fill(self) -> None:
        """Do nothing: the entries are in memory."""

    def clear(self) -> None:
        """Do nothing: the entries stay in memory."""

    def with_expected(self, R: int = 1) -> RowTransitions:
        """Return ``rows``, as no expectations of kept blocks are needed."""
        return self.rows


class KeptBlock(NamedTuple):
    """A block between the forward and the backward pass.

    Attributes
    ----------
    first, last : int
        Its rows are first to last - 1.
    before : ndarray of shape (width,) or None
        ``FilteredBlock.last`` of the block before.
    in_logs : bool
    kept : ndarray of shape (last - first, n_labels)
        The filter at its rows, then their marginals.
    entries : BlockEntries, or None
        Transition scores of its rows.
    """

    first: int
    last: int
    before: np.ndarray | None
    in_logs: bool
    kept: np.ndarray
    entries: KeptEntries | None


class BlockSums:
    """Sums over all label paths of sequences in blocks, each of which is read once."""

    def __init__(self, decoder: BlockDecoder):
        self.decoder, self.L = decoder, len(decoder.classes)

    def predict_proba(self, X: SequencesLike, out: np.ndarray | None, dtype: Any) -> list:
        """Label marginals of each sequence; views of ``out`` if it is given.

        The filter p(y_t | rows up to t) is stored where the marginals will be. The backward pass
        needs only the filter and reads no row of X.
        """
        answers, n = [], 0
        for s, source in enumerate(blocks_of(X)):
            chain, place = BlockChain(self.decoder.chain), None if out is None else out[n:]
            S = np.zeros((1, chain.width))
            spans = list(self._filter(chain, source, s, S, place))
            for span, marginals in self._backward(chain, reversed(spans), S):
                span.kept[:] = marginals
            length = spans[-1].last if spans else 0
            if place is None:
                parts = [span.kept.astype(dtype, copy=False) for span in spans]
                answers.append(np.concatenate(parts) if parts else np.zeros((0, self.L), dtype))
            else:
                answers.append(place[:length])
            n += length
        check_room(out, self.L, n)
        return answers

    def likeliest(self, source: RowBlocks, s: int) -> Iterator[np.ndarray]:
        """Codes of the most probable label of each row of sequence s, block by block.

        The first ones are known when all rows are read; memory holds one block, and the codes.
        """
        chain = BlockChain(self.decoder.chain)
        S, starts, codes = np.zeros((1, chain.width)), [], []
        code_type, dtype = np.min_scalar_type(self.L), self.decoder.chain.dtype
        with SpooledTemporaryFile(IN_MEMORY) as file:
            for span in self._filter(chain, source, s, S):
                starts.append(file.tell())
                pickle.dump(span, file, pickle.HIGHEST_PROTOCOL)
            for _, marginals in self._backward(chain, _loaded(file, reversed(starts)), S):
                given = marginals.astype(dtype, copy=False)  # with the ties of predict_proba
                codes.append(given.argmax(axis=1).astype(code_type))
        yield from reversed(codes)

    def _backward(
        self, chain: BlockChain, spans: Iterable[KeptBlock], S: np.ndarray
    ) -> Iterator[tuple[KeptBlock, np.ndarray]]:
        # Label marginals of blocks, the last one first; the next block overwrites them.
        for span in spans:
            block = self._filtered(chain, span)
            n = span.last - span.first
            buffer = chain.buffer("marginals", n, 1, chain.width)
            _, marginals, _ = chain.backward(block, S, 0, n, np.ones(1), out=buffer, sums=False)
            yield span, marginals[:, 0, : self.L]

    def _filter(
        self, chain: BlockChain, source: RowBlocks, s: int, S: np.ndarray,
        out: np.ndarray | None = None,
    ) -> Iterator[KeptBlock]:  # fmt: skip
        # The forward pass; S becomes the distribution of the last label.
        before, n = None, 0
        for psi, entries in self._scores(chain, source, s):
            buffer = chain.buffer("alpha", len(psi) + 1, chain.width)
            block, part = chain.filter(psi, before, alpha=buffer, back=False, entries=entries)
            check_paths(np.array([part]), s)
            last = n + len(psi)
            if out is not None and last > len(out):
                raise ValueError(
                    f"out has too few rows: {len(out)} are left for sequence {s}, which has more; "
                    "make an array with one row for each row of X."
                )
            kept = np.empty((len(psi), self.L)) if out is None else out[n:last]
            kept[:] = block.alpha[1:, : self.L]
            S[0] = block.probabilities(self.L)
            after = block.last(self.L)  # before the next user of the buffers
            yield KeptBlock(n, last, before, block.in_logs, kept, entries)
            before, n = after, last

    def _filtered(self, chain: BlockChain, span: KeptBlock) -> FilteredBlock:
        # The block with the values of alpha that the forward pass computed.
        alpha = chain.buffer("alpha", len(span.kept) + 1, chain.width)
        alpha[:] = -np.inf if span.in_logs else 0
        alpha[1:, : self.L] = span.kept
        if span.before is not None:
            alpha[0] = span.before if span.in_logs else np.exp(span.before)
        return FilteredBlock(alpha, None, span.before is None, span.in_logs, span.entries)

    def _scores(
        self, chain: BlockChain, source: RowBlocks, s: int
    ) -> Iterator[tuple[np.ndarray, KeptEntries | None]]:
        # Padded scores of each block, start and end folded in, and transition scores of its rows.
        where, first = f"sequence {s}", True
        for rows, last in with_last(source.read(BLOCK_ROWS, where)):
            psi = np.zeros((rows.shape[0], chain.width))
            psi[:, : self.L] = self.decoder.scores(rows, where)[:, : self.L]
            if first:
                psi[0] += chain.chain.start
            if last:
                psi[-1] += chain.chain.end
            take_out_row_maxima(psi[:, : self.L])  # answers are not absolute scores
            entries = self.decoder.entries(rows, first)
            yield psi, None if entries is None else KeptEntries(entries)
            first = False

    def log_proba(self, X: SequencesLike, y: LabelsLike) -> np.ndarray:
        """log p(y_s | x_s) of each sequence; neither rows nor labels are kept in memory."""
        sources, labels = blocks_of(X), label_blocks(y, len(X))
        return np.array(
            [
                self._log_proba(source, truth.reader(f"sequence {s}"), s)
                for s, (source, truth) in enumerate(zip(sources, labels))
            ],
            dtype=np.float64,
        )

    def _log_proba(self, source: RowBlocks, take: Any, s: int) -> float:
        chain, before, total, n, previous = BlockChain(self.decoder.chain), None, 0.0, 0, None
        for psi, entries in self._scores(chain, source, s):
            codes = find_codes(take(len(psi)), self.decoder.classes)
            if len(codes) < len(psi):
                raise different_lengths(s, "more", n + len(codes))
            total += self._score(chain, psi, codes, previous, entries)
            buffer = chain.buffer("alpha", len(psi) + 1, chain.width)
            block, part = chain.filter(psi, before, alpha=buffer, back=False, entries=entries)
            check_paths(np.array([part]), s)
            total -= part
            before, previous, n = block.last(self.L), codes[-1], n + len(psi)
        if len(take(1)):
            raise different_lengths(s, n, "more")
        return min(total, 0.0)  # a sum above 0 is rounding

    def _score(
        self, chain: BlockChain, psi: np.ndarray, codes: np.ndarray, previous: Any, entries: Any
    ) -> float:
        # Score of the labels of a block, with the transition to its first label.
        if (codes < 0).any():
            return -np.inf
        pairs = codes if previous is None else np.concatenate([[max(previous, 0)], codes])
        score = psi[np.arange(len(codes)), codes].sum()
        transition = chain.chain.score if entries is None else entries.rows
        rows = np.arange(len(codes) - len(pairs) + 1, len(codes))
        return float(score + pair_scores(transition, rows, pairs[:-1], pairs[1:]).sum())

    def entropy(self, X: SequencesLike) -> np.ndarray:
        """Entropy of the label paths of each sequence, in nats."""
        chain = BlockChain(self.decoder.chain)
        shared = chain.chain.score[: self.L, : self.L]
        answers = [
            entropy_of_blocks(
                (
                    (psi[:, : self.L], None if entries is None else entries.rows)
                    for psi, entries in self._scores(chain, source, s)
                ),
                shared,
            )
            for s, source in enumerate(blocks_of(X))
        ]
        return np.array(answers, dtype=np.float64)


def _loaded(file: Any, starts: Iterable[int]) -> Iterator[KeptBlock]:
    for at in starts:
        file.seek(at)
        yield pickle.load(file)


class MarginalDecoder(BlockDecoder):
    """A ``BlockDecoder`` that gives the most probable label of each row."""

    __slots__ = ()

    def decode(self, source: RowBlocks, number: int = 0) -> Iterator[np.ndarray]:
        """Label codes of one sequence, in arrays of any length, after its last row is read."""
        yield np.zeros(0, dtype=np.intp)
        yield from BlockSums(self).likeliest(source, number)

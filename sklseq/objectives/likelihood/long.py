"""Log-likelihood of sequences of any length, and the choice of its gradient."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from sklseq.data.label_blocks import LabelBlocks
from sklseq.data.partial_blocks import CodedLabels
from sklseq.data.partial_labels import AllowedLabels
from sklseq.data.row_blocks import BLOCK_ROWS, one_shot_error
from sklseq.inference.chain.expectation import BlockChain
from sklseq.inference.chain.linear_chain import _chain, check_paths
from sklseq.objectives.likelihood.block_sequence import AllowedSequence, BlockSequence
from sklseq.objectives.likelihood.block_summary import (
    SeenTriples,
    summarise_blocks,
    summarise_labels,
)
from sklseq.objectives.likelihood.long_hessian import LongHessian
from sklseq.objectives.likelihood.partial import nothing_known
from sklseq.objectives.likelihood.passes import (
    TAIL,
    Checkpoints,
    Counts,
    OnePass,
    PendingTooLarge,
    Stored,
    StoredOnce,
)
from sklseq.objectives.likelihood.short import batches
from sklseq.objectives.likelihood.summary import Summary
from sklseq.objectives.scores.score_map import ScoreMap, support_of_codes
from sklseq.objectives.scores.transition_features import (
    BlockFeatures,
    TransitionFeatures,
    triples_of_codes,
)

GRADIENTS = ("auto", "forward-backward", "checkpoint", "streaming", "emp")
LEAST_ROWS = 64
# Bytes that forward-backward may keep for rows in blocks if "auto" is to choose it: users of blocks
# are short of memory, and streaming takes as long (10⁷ rows of two labels: 16 s both).
BLOCKS_KEPT = 1 << 27


class Plan(NamedTuple):
    """Choice of the gradient's computation.

    Attributes
    ----------
    gradient : "forward-backward", "checkpoint" or "streaming"
    passes : class of ``passes.py``, or None
        None for packed sequences, which ``likelihood.py`` processes.
    block_rows : int
        Rows worked on at a time.
    why : str
        Reason, for the user.
    keep : float
        Bytes that checkpointing may keep for the last rows, and "streaming" for deferred rows.
    or_checkpoint : bool
        Whether checkpointing replaces "streaming" if that does more work or lacks memory.
    """

    gradient: str
    passes: type | None
    block_rows: int
    why: str
    keep: float = 0.0
    or_checkpoint: bool = False


def plan_gradient(
    gradient: str, n_rows: int, n_labels: int, *, packed: bool, random_access: bool, budget: float
) -> Plan:
    """Choose the computation of the gradient.

    Parameters
    ----------
    gradient : str
        One of ``GRADIENTS``; "emp" is "streaming".
    n_rows : int
        Rows of the longest sequence.
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
    allowed = budget if packed else min(budget, BLOCKS_KEPT)
    why = f"forward-backward keeps {_size(kept)}, of {_size(allowed)} allowed"
    or_checkpoint = False
    if gradient == "auto":
        gradient, or_checkpoint = _choose(kept <= allowed, n_labels, random_access, budget)
        why += "; checkpointing where labels rarely change" * or_checkpoint
    elif gradient == "checkpoint" and not random_access:
        raise ValueError(
            "gradient='checkpoint' reads blocks from the last to the first, but X can only be read "
            "from the beginning; use gradient='streaming', or pass an array, a memory map or a "
            ".npy file."
        )
    gradient = "streaming" if gradient == "emp" else gradient
    if gradient == "forward-backward" and packed:
        return Plan(gradient, None, n_rows, why)
    case = Stored if 2 * factor <= budget else StoredOnce
    passes = {"streaming": OnePass, "checkpoint": Checkpoints, "forward-backward": case}[gradient]
    block_rows, keep = _fit_block(gradient, n_labels, budget)
    return Plan(gradient, passes, block_rows, why, keep, or_checkpoint)


def _choose(fits: bool, n_labels: int, random_access: bool, budget: float) -> tuple[str, bool]:
    # The computation for gradient="auto", and whether checkpointing may replace it; ``fits``:
    # whether forward-backward does.
    if fits:
        return "forward-backward", False
    streams = _least("streaming", n_labels) <= budget
    if streams or not random_access:
        return "streaming", random_access
    return "checkpoint", False


def _fit_block(gradient: str, n_labels: int, budget: float) -> tuple[int, float]:
    # Rows of a block, and bytes left for what ``Plan.keep`` names.
    if budget < (needed := _least(gradient, n_labels)):
        raise ValueError(
            f"working_memory allows {_size(budget)}, but a block of {LEAST_ROWS} rows needs "
            f"{_size(needed)} with gradient={gradient!r}; raise it: "
            "sklearn.set_config(working_memory=<MiB>)."
        )
    a_row, fixed = _sizes(gradient, n_labels)
    block_rows = min(BLOCK_ROWS, int((budget - fixed) // a_row))
    return block_rows, budget - fixed - block_rows * _sizes("checkpoint", n_labels)[0]


def _least(gradient: str, n_labels: int) -> float:
    # Memory of the smallest block.
    a_row, fixed = _sizes(gradient, n_labels)
    return LEAST_ROWS * a_row + fixed


def _sizes(gradient: str, n_labels: int) -> tuple[float, float]:
    # Memory of a block: (bytes for each row, fixed number of bytes).
    width = _chain.padded_width(n_labels)
    a_row = 8.0 * width * 7
    if gradient != "streaming":
        return a_row, 0.0
    # Deferred rows take the same again. The fixed part holds, given each last label, marginals of
    # the last TAIL rows, and pair marginals of these rows, of the rows so far and of earlier rows.
    return 2 * a_row, 8.0 * width * width * (2 * TAIL + 3 * width)


def _size(n_bytes: float) -> str:
    power = next((k for k in range(3) if n_bytes < 1000 ** (k + 1)), 3)
    return f"{n_bytes / 1000**power:.3g} {('B', 'kB', 'MB', 'GB')[power]}"


@contextmanager
def explain_memory_error(plan: Plan) -> Iterator[None]:
    """Replace a MemoryError in the context by one with advice."""
    try:
        yield
    except PendingTooLarge as error:
        raise MemoryError(
            f"With gradient='streaming' {error}; raise it: "
            "sklearn.set_config(working_memory=<MiB>), or use gradient='checkpoint' on rows that "
            "can be read from anywhere."
        ) from error
    except MemoryError as error:
        raise MemoryError(
            f"gradient={plan.gradient!r} ran out of memory ({plan.why}); use gradient='streaming', "
            "whose memory does not grow with the sequence, on rows in blocks if X itself is too "
            "large."
        ) from error


class LongData(NamedTuple):
    """Training data in blocks.

    Attributes
    ----------
    sequences : list of BlockSequence
        Sequences of positive weight; ``number`` is the position among all sequences.
    summary : Summary
    observed : Counts
        Weighted counts of all features under the true labels.
    weights : ndarray of shape (n_sequences,)
    plan : Plan
    labels : CodedLabels, or None
        Labels of all sequences, if some are unknown; ``observed`` then has the counts of sequences
        without ``codes`` only.
    again : callable(weights) -> LongData
        Reads all data again, with other weights.
    y : list of LabelBlocks
        Labels of ``sequences``, each of which is one of ``values``.
    values : ndarray
        The classes, or the numbers of codes.
    """

    sequences: list
    summary: Summary
    observed: Counts
    weights: np.ndarray
    plan: Plan
    labels: CodedLabels | None = None
    again: Callable[[np.ndarray], LongData] | None = None
    y: Sequence[LabelBlocks] = ()
    values: np.ndarray = np.zeros(0)

    def seen_triples(self, columns: np.ndarray) -> np.ndarray:
        """Triples (column, label, next label) that y allows, sorted; reads all data once."""
        keys, _ = self._triples(columns)
        return triples_of_codes(keys, self._table)

    def observed_triples(self, features: TransitionFeatures) -> np.ndarray:
        """Observed count of each weight of transition features; reads all data once."""
        keys, sums = self._triples(features.columns)
        L, n = len(self.summary.classes), len(self._table)
        column, pair = np.divmod(keys, n**2)
        triples = (column * L + pair // n) * L + pair % n
        at = np.searchsorted(features.triples, triples)
        found = np.append(features.triples, -1)[at] == triples
        found &= (pair // n < L) & (pair % n < L)
        observed = np.zeros(features.n_weights)
        observed[at[found]] = sums[found]
        return observed

    @property
    def _table(self) -> np.ndarray:
        labels, L = self.labels, len(self.summary.classes)
        return np.eye(L, dtype=bool) if labels is None else labels.table

    def _triples(self, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        # Sorted keys (column · n_codes + code) · n_codes + next code; and weighted sums of the
        # column's values in sequences with known labels.
        found = SeenTriples(self.values, columns, self.summary.n_features)
        for sequence, labels in zip(self.sequences, self.y):
            weight = 0.0 if sequence.codes is not None else self.weights[sequence.number]
            found.add(sequence, labels.reader(sequence.where), weight)
        return found.keys, found.sums

    def without(self, numbers: np.ndarray) -> LongData:
        """Data without some sequences, with the same summary; the others are read once."""
        assert self.again is not None
        weights = self.weights.copy()
        weights[numbers] = 0
        return self.again(weights)._replace(summary=self.summary)

    @classmethod
    def read(cls, sources: list, labels: list, weights: np.ndarray, plan: Callable) -> LongData:
        """Read ``LabelBlocks``, make the plan, then read ``RowBlocks`` and labels once.

        ``plan(longest, n_labels, packed=, random_access=)`` returns a ``Plan``.
        """
        _check_repeatable(sources, labels)
        classes, lengths = summarise_labels(labels, weights)
        random_access = all(source.random_access for source in sources)
        plan = plan(lengths.max(), len(classes), packed=False, random_access=random_access)
        return cls.of_blocks(sources, labels, lengths, classes, weights, plan)

    @classmethod
    def of_codes(
        cls, sources: list, y: CodedLabels, weights: np.ndarray, plan: Callable | Plan
    ) -> LongData:
        """Read rows once, with labels as codes, of which some may be unknown; see :meth:`read`.

        Sequences without any known label are left out.
        """
        _check_repeatable(sources, [])
        n_labels = len(y.classes)
        weights = weights * [bool((codes != n_labels).any()) for codes in y.codes]
        if not weights.any():
            raise nothing_known()
        lengths = np.array([len(codes) for codes in y.codes])
        if not isinstance(plan, Plan):
            random_access = all(source.random_access for source in sources)
            plan = plan(lengths.max(), n_labels, packed=False, random_access=random_access)
        labels = [LabelBlocks(codes, s) for s, codes in enumerate(y.codes)]
        return cls.of_blocks(sources, labels, lengths, y.classes, weights, plan, y)

    @classmethod
    def of_blocks(
        cls, sources, labels, lengths, classes, weights, plan: Plan,
        coded: CodedLabels | None = None,
    ) -> LongData:  # fmt: skip
        """Read rows and labels once, given the lengths and the classes.

        ``labels`` have values of ``classes``, or codes of ``coded``.
        """

        def again(weights: np.ndarray) -> LongData:
            return cls.of_blocks(sources, labels, lengths, classes, weights, plan, coded)

        kept = np.flatnonzero(weights).tolist()
        sequences = [
            BlockSequence(sources[s], s, plan.block_rows, int(lengths[s]), plan.keep) for s in kept
        ]
        own = [labels[s] for s in kept]
        partial, values = None, classes
        if coded is not None:
            for sequence in sequences:
                codes = coded.codes[sequence.number]
                sequence.codes = codes if (codes >= len(classes)).any() else None
            partial = coded if any(x.codes is not None for x in sequences) else None
            values = np.arange(len(classes if partial is None else coded.table))
        observed_weights = weights[kept] * [sequence.codes is None for sequence in sequences]
        summary, observed = summarise_blocks(sequences, own, values, observed_weights)
        summary = summary._replace(classes=classes)
        if partial is not None:
            support = support_of_codes(summary.support, partial.table, len(classes))
            summary, observed = summary._replace(support=support), observed.of_labels(len(classes))
        return cls(sequences, summary, observed, weights, plan, partial, again, own, values)


def _check_repeatable(sources: list, labels: list) -> None:
    for name, given in (("X", sources), ("y", labels)):
        for s, source in enumerate(given):
            if source.one_shot:
                raise one_shot_error(
                    f"{name}[{s}]",
                    "solver 'lbfgs' reads X once or twice per evaluation, some hundred times in "
                    "all, and fit reads X and y once before that",
                )


class LongLogLikelihood:
    """f(w) = -Σ_s weight_s · log p(y_s | x_s) + l2 · ‖w‖²₂, on sequences in blocks.

    Value and gradient are those of ``LogLikelihood``, written as

        f(w) = Σ_s weight_s log Z_s - w · observed + l2 · ‖w‖²,
        ∇f   = Σ_s weight_s E_s[features] - observed + 2 · l2 · w:

    observed counts never change, so labels are read once, by :func:`summarise_blocks`; a pass of
    ``passes.py`` computes the expected counts. For a sequence with unknown labels, a second pass
    computes log Z and the expected counts of the labelings that y allows, which replace the
    observed ones (``PartialLogLikelihood``). Its codes stay in memory, 1 or 2 bytes per row.

    Parameters
    ----------
    scores : ScoreMap
        Made from ``data.summary.layout()``: the layout of w, without rows.
    data : LongData
    l2 : float

    Notes
    -----
    An evaluation reads sequences longer than a block ``passes.n_reads`` times, the others once.
    Sums are in float64.
    """

    def __init__(self, scores: ScoreMap, data: LongData, l2: float):
        self.scores, self.weights, self.l2 = scores, data.weights, float(l2)
        self.passes, self.or_checkpoint = data.plan.passes, data.plan.or_checkpoint
        self.sequences = data.sequences
        short = [x for x in self.sequences if 0 < x.n_rows <= data.plan.block_rows]
        self.long = [x for x in self.sequences if x.n_rows > data.plan.block_rows]
        self.batches = [
            batch
            for partial in (False, True)
            for batch in batches(
                [x for x in short if (x.codes is not None) == partial],
                self.weights, data.plan.block_rows,
            )
        ]  # fmt: skip
        self.penalties, self.allowed = None, {}
        if data.labels is not None:
            labels = AllowedLabels(np.zeros(0, dtype=np.int32), data.labels.table)
            self.penalties = labels.penalties(scores.width, np.float64)
            partial = [x for x in self.long if x.codes is not None]
            self.allowed = {x.number: AllowedSequence(x, self.penalties) for x in partial}
        budget = data.plan.keep / 2
        for batch in self.batches:
            budget -= batch.keep(budget)
        for sequence in self.long:
            sequence.keep -= data.plan.keep / 2 - budget
        observed, self.features = data.observed, None
        if scores.features is not None:
            self.features = scores.features.in_double()
            observed.triples = data.observed_triples(self.features)[None]
        self.observed = self.pack(observed)
        self.n_evaluations = 0

    def value_and_gradient(self, w: np.ndarray, gradient: np.ndarray) -> float:
        """Return f(w); write its gradient into ``gradient``."""
        log_z, counts = self._expect(w)
        check_paths(log_z)
        wide = w.astype(np.float64)
        gradient[:] = self.pack(counts) - self.observed + 2 * self.l2 * wide
        self.n_evaluations += 1
        return float(self.weights @ log_z - wide @ self.observed + self.l2 * (wide @ wide))

    def value(self, w: np.ndarray) -> float:
        """f(w), at the cost of value and gradient."""
        return self.value_and_gradient(w, np.empty_like(w))

    def hessian(self, w: np.ndarray, max_bytes: float = 0.0) -> LongHessian:
        """Products with the Hessian at w; ``max_bytes`` is not used."""
        if self.penalties is not None:
            raise ValueError(
                "Products with the Hessian of rows in blocks need the label of every row; pass "
                "sequences in memory, or label them."
            )
        return LongHessian(self, w)

    def _expect(self, w: np.ndarray) -> tuple[np.ndarray, Counts]:
        if not self.or_checkpoint:
            return self._expect_by(self.passes, w)
        try:
            answer = self._expect_by(self.passes, w)
        except PendingTooLarge:
            self.passes, self.or_checkpoint = Checkpoints, False
            return self._expect_by(self.passes, w)
        # Checkpointing repeats the forward recursion at all rows. It replaces streaming if this
        # repeated more.
        n_repeated = sum(sequence.n_repeated for sequence in self.long)
        if n_repeated > sum(sequence.n_rows for sequence in self.long):
            self.passes, self.or_checkpoint = Checkpoints, False
        return answer

    def _expect_by(self, passes: type, w: np.ndarray) -> tuple[np.ndarray, Counts]:
        scores, log_z = self.scores, np.zeros(len(self.weights))
        W = scores.design.unpack(scores.state(w)).astype(np.float64)
        bc, features = self._chain(w)
        counts = self._zeros()
        for batch in self.batches:
            log_z[batch.numbers] = batch.run(bc, W, counts, features=features)
        for sequence in self.long:
            one = passes(bc, W, counts, self.weights[sequence.number], features)
            log_z[sequence.number] = one.run(sequence)
        if self.penalties is not None:
            check_paths(log_z)
            self._subtract_allowed(passes, (bc, W), features, log_z, counts)
        if features is not None:
            self.features.highest = features.highest
        return log_z, counts

    def _chain(self, w: np.ndarray) -> tuple[BlockChain, BlockFeatures | None]:
        scores, features = self.scores, self.features
        chain = scores.chain(w)
        if features is None:
            return BlockChain(chain), None
        bc = BlockChain(chain, features.highest)
        return bc, BlockFeatures(features, chain.v, bc.chain.score, scores.n_features)

    def _zeros(self) -> Counts:
        n_triples = 0 if self.features is None else self.features.n_weights
        return Counts(self.scores.n_features, self.scores.width, n_triples)

    def _subtract_allowed(
        self, passes: type, model: tuple, features: BlockFeatures | None, log_z, counts: Counts
    ) -> None:
        # Subtract log Z and expected counts of the labelings that y allows. model: (BlockChain, W).
        fewer, allowed = self._zeros(), np.zeros_like(log_z)
        for batch in self.batches:
            if (codes := batch.codes) is not None:
                penalties = self.penalties[codes]
                allowed[batch.numbers] = batch.run(*model, fewer, penalties, features)
        for number, sequence in self.allowed.items():
            one = passes(*model, fewer, self.weights[number], features)
            allowed[number] = one.run(sequence)
        log_z -= allowed
        counts.add(fewer, -1.0)

    def pack(self, counts: Counts) -> np.ndarray:
        """Like ``scores.pack``, but always in float64."""
        L = self.scores.n_labels
        gradient = np.empty(self.scores.n_weights)
        self.scores.state(gradient)[:] = self.scores.design.pack(counts.state)
        self.scores.store_chain(gradient, counts.pairs[:L, :L], counts.start, counts.end)
        if self.features is not None:
            self.scores.triples(gradient)[:] = counts.triples[0]
        return gradient

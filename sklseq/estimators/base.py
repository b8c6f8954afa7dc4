"""Base of all taggers: reading X and y, decoding, score, tags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.estimator import LabellerBase
from sklseq._lib.threads import BufferPool, Threads, spans
from sklseq.data.labels import (
    LabelLists,
    PartialLabelError,
    cut_rows,
    encode_labels,
    find_codes,
)
from sklseq.data.partial_labels import AllowedLabels, PartialLabels
from sklseq.data.row_blocks import RowBlocks, in_blocks
from sklseq.data.segment_labels import Span
from sklseq.data.sequences import (
    Sequences,
    check_finite,
    check_sample_weight,
    read_labels,
)
from sklseq.data.span_rules import SpanRules, find_by_rules, named_spans, span_rules
from sklseq.data.types import ArrayLike, LabelsLike, MatrixLike, SequencesLike, ValidLike
from sklseq.estimators.label_output import (
    LabelOutputMixin,
    as_chosen,
    chosen_labels,
    cut_labels,
    gives_lists,
)
from sklseq.estimators.validation import (
    check_handle_invalid,
    check_room,
    in_shards,
    other_width,
    read_sequences,
)
from sklseq.estimators.weights import dense_weights
from sklseq.inference.chain.linear_chain import (
    Transitions,
    Workspace,
    best_paths,
    check_paths,
    is_shared,
    nbest,
    row_blocks,
    viterbi,
)
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.inference.chain.sparse_transitions import find_pairs
from sklseq.objectives.scores.design import score_rows
from sklseq.objectives.scores.score_map import padded_rows
from sklseq.objectives.scores.transition_features import TransitionFeatures

__all__ = [
    "BaseTagger",
    "Potentials",
]


class Potentials(NamedTuple):
    """Scores of a linear chain: everything that decoding needs of a model.

    Attributes
    ----------
    emission : ndarray of shape (n_rows, n_labels)
    transition : ndarray of shape (n_labels, n_labels), or RowTransitions
        The second of models with transition features.
    start, end : ndarray of shape (n_labels,)
    offsets : ndarray of shape (n_sequences + 1,)
    """

    emission: np.ndarray
    transition: np.ndarray | RowTransitions
    start: np.ndarray
    end: np.ndarray
    offsets: np.ndarray


def most_rows(X: Sequences, blocks: list[tuple[int, int]]) -> int:
    """Rows of the largest of these runs of sequences."""
    return int(max((X.offsets[b] - X.offsets[a] for a, b in blocks), default=0))


class BaseTagger(LabelOutputMixin, LabellerBase, BaseEstimator):
    """A linear chain of linear scores; subclasses train ``coef_``, ``transition_`` and the ends."""

    # No ClassifierMixin: with it, GridSearchCV stratifies ragged labels and fails.

    transition_coef_: Any = None  # of models without transition features
    _roles: Any = None  # of columns, with transition features: batches must have the same

    def __getstate__(self):
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_rows"}

    def _read(self, X: Any, finite: bool = True) -> Sequences:
        check_is_fitted(self, "classes_")
        X, _ = read_sequences(X, self.vectorizer_, finite=finite)
        if X.n_rows == 0 and X.shape[1] == 0:
            return X
        if X.shape[1] not in self._widths():
            origin = f"{type(self).__name__} was fitted with"
            raise other_width(X.shape[1], self.n_features_in_, origin)
        return X

    def _widths(self) -> set[int]:
        # Numbers of columns that X may have.
        return {self.n_features_in_}

    def _state_rows(self) -> np.ndarray:
        # coef_ with padded rows, cached as long as coef_ is the same array.
        cached = self.__dict__.get("_rows")
        if cached is None or cached[0] is not self.coef_:
            cached = (self.coef_, padded_rows(dense_weights(self.coef_)))
            self._rows = cached
        return cached[1]

    def _chain(self, question: str = "", n_rows: int = 0) -> Transitions:
        # question: "sums" or "maxima" where the caller can use sparse transitions.
        scores, dtype = (self.transition_, self.start_, self.end_), self.transition_.dtype
        pairs = None
        if question and self.transition_coef_ is None:
            pairs = find_pairs(self.transition_, dtype, question, n_rows=n_rows)
        return Transitions(*scores, dtype, pairs)

    def _entries(self, X: Sequences, chain: Transitions) -> Callable:
        # Function of a row and offsets from there: transition scores of rows with transition
        # features, or None, and the largest one.
        coef = self.transition_coef_
        if coef is None:
            return lambda *_: (None, -np.inf)
        return partial(self._transition_features(X).entries, coef.data, chain.score)

    def _transition_features(self, X: Sequences) -> TransitionFeatures:
        return TransitionFeatures.of_coef(X, self.transition_coef_, len(self.classes_))

    def _blocks(self, X: Sequences, work) -> None:
        """``work(a, b, psi, offsets, threads)`` on the padded scores of sequences a to b - 1.

        The next call overwrites ``psi``. ``threads``: those that may work on it, or None.
        """
        W, design = self._state_rows(), None
        if X.n_rows:
            design = score_rows(X, W.dtype)
        blocks = row_blocks(X.offsets)
        pool = BufferPool(lambda: np.empty((most_rows(X, blocks), W.shape[1]), dtype=W.dtype))

        def score(psi: np.ndarray, first: int) -> None:
            if design is not None and not design.checked_scores(W, first, first + len(psi), psi):
                check_finite(X)

        def run(block: tuple[int, int], threads: Threads | None = None):
            a, b = block
            first, last = X.offsets[a], X.offsets[b]
            with pool.buffer() as buffer:
                psi = buffer[: last - first]
                if threads is None:
                    score(psi, first)
                else:
                    parts = spans(len(psi), threads.n)
                    threads.map(lambda at: score(psi[slice(*at)], first + at[0]), parts)
                work(a, b, psi, X.offsets[a : b + 1] - first, threads)

        with Threads(self.n_jobs) as threads:
            shared = [block for block in blocks if is_shared(X.offsets, block, threads.n)]
            threads.map(run, [block for block in blocks if block not in shared])
            for block in shared:
                run(block, threads)

    def potentials(self, X: SequencesLike, *, continued: ArrayLike | None = None) -> Potentials:
        """Scores of each label at each row, and of transitions, starts and ends.

        Parameters
        ----------
        X : list of sequences
        continued : array-like of bool, shape (n_sequences,), optional
            Whether a row comes before the first row given of each sequence. Its transition features
            then count, as those of all but first rows do.

        Returns
        -------
        Potentials
        """
        X = self._read(X, finite=False)
        L = len(self.classes_)
        emission = np.empty((X.n_rows, L), dtype=self.transition_.dtype)

        def keep(a, b, psi, *_):
            emission[X.offsets[a] : X.offsets[b]] = psi[:, :L]

        self._blocks(X, keep)
        transition = self.transition_
        if self.transition_coef_ is not None:
            parts = np.zeros(len(X), dtype=bool) if continued is None else np.asarray(continued)
            features, given = self._transition_features(X), (self.transition_coef_.data, transition)
            transition, _ = features.entries_of_parts(*given, X.offsets, parts)
            transition = self._no_entries(X.n_rows) if transition is None else transition
        return Potentials(emission, transition, self.start_, self.end_, X.offsets)

    def _no_entries(self, n_rows: int) -> RowTransitions:
        # Transitions of rows without transition features.
        indptr, none = np.zeros(n_rows + 1, dtype=np.int64), np.zeros(0, dtype=np.int32)
        score = none.astype(self.transition_.dtype)
        return RowTransitions.unchecked(self.transition_, indptr, none, none, score)

    def predict(
        self,
        X: SequencesLike,
        known: LabelsLike | None = None,
        *,
        valid: ValidLike | None = None,
        handle_invalid: str = "error",
    ) -> list[list[Any]]:
        """The best label path of each sequence (Viterbi); ties go to the first label.

        Parameters
        ----------
        X : list of sequences
            Also in blocks of rows, see :class:`RowBlocks`: labels are the same, and beside them
            only a block and the undecided rows are held. Or :class:`Shards`, of which one is held
            at a time; or a Dask bag of sequences, or a list of delayed X.
        known : list of label sequences, optional
            Labels that are known: at each row one, None (unknown) or a set of possible labels. The
            path is the best of those that agree with it. Needs X in memory.
        valid : "once", collection of types, callable or None, default=None
            Which label paths are valid; the best valid one of each sequence is found exactly.
            "once": each span type occurs at most once; of labels without prefixes such as "B-",
            each but "O" in at most one run. A collection: each of these types does; others are
            free. A function: called with the labels of one sequence as a list, best path first,
            until it returns True. Needs X in memory.
        handle_invalid : {"error", "best"}, default="error"
            What a sequence without a valid path leads to: an error for all of X, or the best path
            of all for this sequence, which is not valid.

        Returns
        -------
        list of list
            The labels of each sequence, str, int or bool; after ``set_output(predict="array")`` an
            object array of arrays. For a bag a bag of lists, for a list of delayed X a list of
            delayed answers.

        Raises
        ------
        ValueError
            If ``valid`` is none of these, or a sequence has no valid path (with a function: none
            among its 4,096 best; without: or the search is too large) and ``handle_invalid`` is
            "error".

        Notes
        -----
        With labels of k types that the best paths repeat, "once" costs up to 2^k times as much as
        plain decoding, and only for the sequences with repeated labels.
        """
        check_handle_invalid(handle_invalid)
        shards, blocks = in_shards(X), in_blocks(X)
        if (shards or blocks) and (known is not None or valid is not None):
            name = "valid" if known is None else "known"
            raise ValueError(
                f"{name} needs sequences in memory; pass arrays, or leave {name} out of predict."
            )
        if shards:
            check_is_fitted(self, "classes_")
            from sklseq.estimators.sources.shard_answers import predict_shards

            return predict_shards(self.predict, X)
        if blocks:
            decoded = self._block_decoder().predict(X)
            return as_chosen(self, (chosen_labels(self, codes) for codes in decoded))
        X = self._read(X, finite=False)
        if valid is not None:
            codes = self._valid_rows(X, known, valid, handle_invalid)
            return cut_labels(self, codes, X.offsets)
        found = LabelLists([None] * len(X))

        def keep(a, b, codes, offsets):
            found[a:b] = cut_labels(self, codes, offsets)  # while others compute

        self._decode(X, known, keep)
        return found if gives_lists(self) else np.asarray(found)

    def _decode(self, X: Sequences, known: LabelsLike | None, keep: Callable) -> None:
        # ``keep(a, b, codes, offsets)``: label codes of sequences a to b - 1.
        allowed = self._allowed(known, X)
        chain = self._chain("maxima", X.n_rows)
        entries = self._entries(X, chain)

        def decode(a, b, psi, offsets, threads):
            allowed.restrict(psi, X.offsets[a])
            rows, _ = entries(X.offsets[a], offsets)
            codes, scores = best_paths(psi, offsets, chain, rows, threads)
            check_paths(scores, a, known is not None)
            keep(a, b, codes, offsets)

        self._blocks(X, decode)

    def _valid_rows(
        self, X: Sequences, known: LabelsLike | None, valid: ValidLike, handle_invalid: str
    ) -> np.ndarray:
        if known is not None:
            self._decode(X, known, lambda *_: None)  # its error names known
        allowed, potentials = self._allowed(known, X), self.potentials(X)
        allowed.restrict(potentials.emission, 0)
        return self._valid_codes(potentials, valid, handle_invalid)

    def _valid_codes(
        self, potentials: Potentials, valid: ValidLike, handle_invalid: str
    ) -> np.ndarray:
        from sklseq.estimators.valid_paths import valid_paths  # not for a deployed model

        return valid_paths(potentials, self.classes_, valid, handle_invalid)

    def predict_blocks(self, x: MatrixLike) -> Iterator[list[Any]]:
        """The labels of one sequence of any length, while it is read.

        Parameters
        ----------
        x : RowBlocks, or an argument of it: an iterator or function that yields blocks, …

        Returns
        -------
        iterator of list
            The labels of :meth:`predict`, as soon as no later row can change them.
        """
        decoder = self._block_decoder()
        x = x if isinstance(x, RowBlocks) else RowBlocks(x)
        return (chosen_labels(self, codes) for codes in decoder.decode(x))

    def _block_decoder(self):
        from sklseq.estimators.decode_blocks import BlockDecoder  # not for a deployed model

        check_is_fitted(self, "classes_")
        name, score, chain = type(self).__name__, self._score_rows, self._chain()
        given = name, self.classes_, self.n_features_in_, score, chain
        if self.transition_coef_ is None:
            return BlockDecoder(*given)
        chain.rows = self._no_entries(0)
        return BlockDecoder(*given, self._entries_of_part)

    def _entries_of_part(self, rows: Any, first: bool) -> RowTransitions | None:
        # Of rows of one sequence, with the first one or not.
        features = self._transition_features(Sequences(rows, [0, rows.shape[0]]))
        given = self.transition_coef_.data, self.transition_
        offsets = np.array([0, rows.shape[0]])
        return features.entries_of_parts(*given, offsets, np.array([not first]))[0]

    def _score_rows(self, rows: Any) -> np.ndarray:
        # The padded scores of finite rows.
        W, n = self._state_rows(), rows.shape[0]
        psi = np.empty((n, W.shape[1]), dtype=W.dtype)
        score_rows(Sequences(rows, [0, n]), W.dtype).scores(W, 0, n, psi)
        return psi

    def predict_spans(
        self,
        X: SequencesLike,
        *,
        scheme: str | None = None,
        valid: ValidLike | None = None,
        handle_invalid: str = "error",
    ) -> list[list[Span]]:
        """The spans of the best label path of each sequence.

        Parameters
        ----------
        X : list of sequences
        scheme : {"iob1", "iob2", "ioe1", "ioe2", "iobes", "bilou", "runs"} or None, default=None
            A labelling scheme: only its valid spans count, as with ``mode="strict"`` of the
            metrics. "runs": rows of one label that follow one another are a span, unless the label
            is "O". None: as conlleval reads them, if all labels have the form of span labels
            ("B-x", "I-x", ..., "O"), else "runs".
        valid, handle_invalid
            As in :meth:`predict`.

        Returns
        -------
        list of list of Span
            (start, stop, label, probability), in order. The probability of a :class:`CRFTagger` is
            that of its ``predict_segment_proba``; other models have None.

        Raises
        ------
        ValueError
            If a label of the model does not belong to the scheme.

        Examples
        --------
        >>> from sklseq import CRFTagger
        >>> X, y = [[["Ann"], ["Lee"], ["sings"]]], [["B-PER", "I-PER", "O"]]
        >>> for span in CRFTagger(l2=0.01).fit(X, y).predict_spans(X)[0]:
        ...     print(span.start, span.stop, span.label, round(span.probability, 1))
        0 2 PER 1.0
        """
        check_handle_invalid(handle_invalid)
        potentials = self.potentials(X)
        rules = span_rules(self.classes_, scheme)
        emission, transition, start, end, offsets = potentials
        if valid is None:
            codes, _ = viterbi(emission, transition, offsets, start=start, end=end)
        else:
            codes = self._valid_codes(potentials, valid, handle_invalid)
        spans = find_by_rules(codes, offsets, rules)
        proba = self._span_probabilities(potentials, spans, rules)
        return named_spans(rules, spans, offsets, proba)

    def _span_probabilities(
        self, potentials: Potentials, spans: tuple, rules: SpanRules
    ) -> np.ndarray | None:
        return None

    def predict_nbest(self, X: SequencesLike, n: int = 10) -> list:
        """The ``n`` best label paths of each sequence, with their scores or log-probabilities.

        Parameters
        ----------
        X : list of sequences
        n : int, default=10

        Returns
        -------
        list of (labels, scores)
            k label lists, best first, and ``scores`` of shape (k,); k is n, or the number of
            allowed paths if that is smaller. The scores of a :class:`CRFTagger` are
            log-probabilities. After ``set_output(predict="array")``, ``labels`` is an array of
            shape (k, n_steps).
        """
        X = self._read(X)
        emission, transition, start, end, offsets = self.potentials(X)
        paths = nbest(emission, transition, offsets, n, start=start, end=end)
        log_z = self._log_normalisers(X)
        return [(chosen_labels(self, codes), s - z) for (codes, s), z in zip(paths, log_z)]

    def _log_normalisers(self, X: Sequences) -> np.ndarray:
        return np.zeros(len(X))  # scores are no log-probabilities

    def _probabilities(self, X: Any, known: LabelsLike | None, out: Any = None) -> list[np.ndarray]:
        # Label marginals of each sequence, views of ``out`` if it is given.
        X = self._read(X, finite=False)
        check_room(out, len(self.classes_), X.n_rows)
        if out is None:
            out = np.empty((X.n_rows, len(self.classes_)), dtype=self.transition_.dtype)
        of_sequences: list = [None] * len(X)
        self._marginals(X, out, of_sequences, known)
        return of_sequences

    def _marginals(
        self, X: Sequences, marginals: np.ndarray | None = None, of_sequences: list | None = None,
        known: LabelsLike | None = None,
    ) -> np.ndarray:  # fmt: skip
        """log Z of each sequence; label marginals are written into ``marginals``, and views of
        those of each sequence into ``of_sequences``. ``known``: as in :meth:`predict`."""
        allowed = self._allowed(known, X)
        chain = self._chain("sums", X.n_rows).exponentiate()
        entries = self._entries(X, chain)
        log_z, L = np.zeros(len(X)), len(self.classes_)
        n_rows = most_rows(X, row_blocks(X.offsets))
        pool = BufferPool(lambda: Workspace(n_rows, chain.width, chain.dtype, chain.pairs))

        def forward_backward(a, b, psi, offsets, threads):
            allowed.restrict(psi, X.offsets[a])
            rows, highest = entries(X.offsets[a], offsets)
            scaled = chain if rows is None else copy(chain).exponentiate(highest)
            with pool.buffer() as work:
                work.threads = threads
                work.forward_backward(psi, offsets, None, scaled, log_z[a:b], rows)
            check_paths(log_z[a:b], a, known is not None)
            if marginals is not None:
                marginals[X.offsets[a] : X.offsets[b]] = psi[:, :L]
            if of_sequences is not None:
                of_sequences[a:b] = cut_rows(marginals, X.offsets[a : b + 1])

        self._blocks(X, forward_backward)
        return log_z

    def _allowed(self, known: LabelsLike | None, X: Sequences) -> AllowedLabels:
        if known is None:
            return AllowedLabels.all(len(self.classes_))
        return PartialLabels.read(known, X, "known").allowed(self.classes_)

    def _encode(self, y: Any, X: Sequences) -> np.ndarray:
        return encode_labels(read_labels(y, X), self.classes_, X.offsets)

    def score(
        self, X: SequencesLike, y: LabelsLike | None = None, sample_weight: ArrayLike | None = None
    ) -> float:
        """Fraction of rows whose predicted label is right.

        Parameters
        ----------
        X : list of sequences
            Or :class:`Shards`, a Dask bag or delayed shards, as in ``fit``.
        y : list of label sequences
            Rows of a label that training did not have count as wrong. Rows of unknown label, None
            or NaN, do not count; a set of labels makes each of them right.
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        float
        """
        if in_shards(X):
            check_is_fitted(self, "classes_")
            from sklseq.estimators.sources.shard_answers import count_right_of_shards

            right, total = count_right_of_shards(self._count_right, X, y, sample_weight)
        elif in_blocks(X):
            right, total = self._block_decoder().count_right(X, y, sample_weight)
        else:
            right, total = self._count_right(X, y, sample_weight)
        if not total > 0:
            raise ValueError("score needs at least one row of positive weight and known label.")
        return right / total

    def _count_right(self, X: Any, y: Any, sample_weight: Any) -> tuple[float, float]:
        # Weight of the rows whose predicted label is right, and of all.
        X = self._read(X)
        try:
            truth = find_codes(read_labels(y, X), self.classes_)
        except PartialLabelError:
            truth = PartialLabels.read(y, X).allowed(self.classes_, new=True)
        weights = np.repeat(check_sample_weight(sample_weight, len(X)), X.lengths)
        predicted = np.empty(X.n_rows, dtype=np.int32)

        def keep(a, b, codes, _):
            predicted[X.offsets[a] : X.offsets[b]] = codes

        self._decode(X, None, keep)
        if isinstance(truth, AllowedLabels):
            weights[truth.unknown] = 0
            right = truth.table[truth.codes, predicted]
        else:
            right = truth == predicted
        return float(weights @ right), float(weights.sum())

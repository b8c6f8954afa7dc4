"""Base class of all taggers: reading of X and y, decoding, score, tags."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from sklseq._lib.estimator import LabellerBase
from sklseq.data.input_kinds import in_blocks, in_shards, storage_of
from sklseq.data.labels import PartialLabelError, encode_labels, find_codes, read_labels
from sklseq.data.partial_labels import AllowedLabels, PartialLabels
from sklseq.data.row_blocks import RowBlocks
from sklseq.data.segment_labels import Span
from sklseq.data.sequences import Sequences, check_sample_weight
from sklseq.data.span_rules import SpanRules, find_by_rules, named_spans, span_rules
from sklseq.data.types import ArrayLike, LabelsLike, MatrixLike, SequencesLike, ValidLike
from sklseq.estimators.label_output import (
    LabelOutputMixin,
    as_chosen,
    best_labels,
    chosen_labels,
    cut_labels,
)
from sklseq.estimators.validation import (
    check_flags,
    check_handle_invalid,
    check_room,
    nothing_to_score,
    other_width,
    read_sequences,
    refuse_options,
)
from sklseq.estimators.weights import PaddedWeights, check_no_nan, check_weights, in_padded_rows
from sklseq.inference.chain.linear_chain import Transitions, nbest, viterbi
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.objectives.scores.design import score_rows
from sklseq.objectives.scores.scored_rows import Potentials, ScoredRows, TransitionWeights


class BaseTagger(LabelOutputMixin, LabellerBase, BaseEstimator):
    """A linear chain of linear scores; subclasses train ``coef_``, ``transition_`` and the ends."""

    # No ClassifierMixin: with it, GridSearchCV stratifies ragged labels and fails.

    transition_coef_: Any = None  # None without transition features
    _roles: Any = None  # roles of columns, which all batches of partial_fit must share

    def __setattr__(self, name: str, value: Any) -> None:
        # Changes of coef_ in place have to change the rows that compiled functions read.
        super().__setattr__(name, in_padded_rows(value) if name == "coef_" else value)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "coef_" in vars(self):
            self.coef_ = self.coef_  # in padded rows

    def __getstate__(self):
        state = super().__getstate__()
        return {name: value for name, value in state.items() if name != "_rows"}

    def _read(self, X: Any, finite: bool = True) -> Sequences:
        check_weights(self)
        X, _ = read_sequences(X, self.vectorizer_, finite=finite)
        if X.shape[1] not in self._widths() and (X.n_rows or X.shape[1]):
            origin = f"{type(self).__name__} was fitted with"
            raise other_width(X.shape[1], self.n_features_in_, origin)
        return X

    def _widths(self) -> set[int]:
        # Numbers of columns that X may have.
        return {self.n_features_in_}

    def _state_rows(self) -> np.ndarray:
        # coef_ with padded rows, kept as long as coef_ has not changed.
        cached = self.__dict__.get("_rows")
        if cached is None or not cached.are_of(self.coef_):
            cached = self._rows = PaddedWeights(self.coef_)
        return cached.rows

    def _transition_weights(self) -> TransitionWeights:
        names = "transition_", "start_", "end_", "transition_coef_"
        given = {name: getattr(self, name) for name in names}
        check_no_nan(**given)
        dtype = self.coef_.dtype if hasattr(self, "coef_") else self.transition_.dtype
        of_type = (w if w is None else w.astype(dtype, copy=False) for w in given.values())
        return TransitionWeights(*of_type)

    def _design(self, X: Sequences) -> tuple[Any, np.ndarray]:
        # The object that scores the rows of X, and the weights that it takes.
        W = self._state_rows()
        return score_rows(X, W), W

    def _scored(self, X: Sequences, known: LabelsLike | None = None) -> ScoredRows:
        (design, W), allowed = self._design(X), None
        if known is not None:
            allowed = PartialLabels.read(known, X, "known").allowed(self.classes_)
        return ScoredRows(X, design, W, self._transition_weights(), allowed, self.n_jobs)

    def _relative_potentials(self, X: SequencesLike) -> Potentials:
        # Without the maxima of rows with large scores, for questions about differences.
        rows = self._scored(self._read(X))
        rows.relative = True
        return rows.potentials()

    def potentials(self, X: SequencesLike, *, continued: ArrayLike | None = None) -> Potentials:
        """Scores of each label at each row, and of transitions, starts and ends.

        Parameters
        ----------
        X : list of sequences
            Memory maps of any size are read whole.
        continued : array-like of bool or of 0 and 1, shape (n_sequences,), optional
            Whether the first row given of each sequence continues earlier rows. Its transition
            features then have weight, as in all rows but the first of a sequence.

        Returns
        -------
        Potentials

        Raises
        ------
        ValueError
            If ``continued`` has another shape or other values.
        """
        X = self._read(X, finite=False)
        if continued is not None:
            continued = check_flags("continued", continued, len(X))
        return self._scored(X).potentials(continued)

    def predict(
        self,
        X: SequencesLike,
        known: LabelsLike | None = None,
        *,
        valid: ValidLike | None = None,
        handle_invalid: str = "error",
    ) -> list[list[Any]]:
        """The best label path of each sequence (Viterbi); ties go to the first label.

        A :class:`CRFTagger` with ``decode="marginal"`` gives the most probable label of each row.

        Parameters
        ----------
        X : list of sequences
            Also in blocks of rows, see :class:`RowBlocks`: labels are the same, and memory holds
            them, one block and the undecided rows. Or :class:`Shards`, of which one is in memory
            at a time; or a Dask bag of sequences, or a list of delayed X.
        known : list of label sequences, optional
            Labels that are known: at each row one, None (unknown) or a set of possible labels. The
            path is the best of those that agree with it. Needs X in memory: no blocks, shards or
            memory maps of 256 MB or more.
        valid : "once", collection of types, callable or None, default=None
            Which label paths are valid; the best valid one of each sequence is found exactly.
            "once": each span type occurs at most once; labels without prefixes such as "B-" occur
            in at most one run each, except "O". A collection: each of these types occurs at most
            once. A function: called with the labels of one sequence as a list, best path first,
            until it returns True. Needs X in memory, like ``known``.
        handle_invalid : {"error", "best"}, default="error"
            Result for a sequence without a valid path: "error" raises an error for all of X;
            "best" gives this sequence its best path, which is not valid.

        Returns
        -------
        list of list
            The labels of each sequence, str, int or bool; after ``set_output(predict="array")`` an
            object array of arrays. For a bag a bag of lists, for a list of delayed X a list of
            delayed answers.

        Raises
        ------
        ValueError
            If ``valid`` has another form. If ``handle_invalid`` is "error", and a sequence has no
            valid path (a function: none among its 4,096 best paths) or the search is too large.

        Notes
        -----
        With labels of k types that the best paths repeat, "once" costs up to 2^k times as much as
        plain decoding, and only for the sequences with repeated labels. The search is too large if
        n_steps · n_labels · 2^k exceeds 2^26; near this limit it takes one sequence about 1 s with
        16 labels and 6 s with 64.
        """
        check_handle_invalid(handle_invalid)
        decode = self._decoding(valid)
        storage = storage_of(X)
        if storage != "memory":
            return self._predict_stored(X, storage, known=known, valid=valid)
        X = self._read(X, finite=False)
        rows = self._scored(X, known)
        if valid is None:
            return best_labels(self, rows, decode)
        codes = self._valid_codes(rows.codes(), rows.potentials(), valid, handle_invalid)
        return cut_labels(self, codes, X.offsets)

    def _decoding(self, valid: ValidLike | None = None) -> str:
        # How labels are found, "path" or "marginal"; raises if ``valid`` needs the other.
        return "path"

    def _predict_stored(self, X: Any, storage: str, **options: Any) -> Any:
        # Labels of sequences in "shards" or "blocks".
        check_weights(self)
        refuse_options("predict", **options)
        if storage == "shards":
            from sklseq.estimators.sources.shard_dispatch import predict_shards  # only for shards

            return predict_shards(self.predict, X)
        decoded = self._block_decoder().predict(X)
        return as_chosen(self, (chosen_labels(self, codes) for codes in decoded))

    def _valid_codes(
        self, best: np.ndarray, potentials: Potentials, valid: ValidLike, handle_invalid: str
    ) -> np.ndarray:
        from sklseq.estimators.valid_paths import valid_paths  # not for a deployed model

        return valid_paths(best, potentials, self.classes_, valid, handle_invalid)

    def predict_blocks(self, x: MatrixLike) -> Iterator[list[Any]]:
        """Labels of one sequence of any length, while it is read.

        Parameters
        ----------
        x : RowBlocks, or an argument of it: an iterator or function that yields blocks, …

        Returns
        -------
        iterator of list
            The labels of :meth:`predict`, as soon as no later row can change them; those of
            ``decode="marginal"`` after the last row.
        """
        decoder = self._block_decoder()
        x = x if isinstance(x, RowBlocks) else RowBlocks(x)
        return (chosen_labels(self, codes) for codes in decoder.decode(x))

    def _block_decoder(self):
        from sklseq.estimators.decode_blocks import BlockDecoder  # not for a deployed model

        check_weights(self)
        weights = self._transition_weights()
        chain = Transitions(*weights[:3], weights.transition.dtype)
        given = type(self).__name__, self.classes_, self.n_features_in_, self._score_rows, chain
        if weights.coef is None:
            return BlockDecoder(*given)
        chain.rows = weights.without_entries(0)

        def entries(rows: Any, first: bool) -> RowTransitions | None:
            X = Sequences(rows, [0, rows.shape[0]])
            return weights.entries_of_parts(X, np.array([not first]))

        return BlockDecoder(*given, entries)

    def _score_rows(self, rows: Any) -> np.ndarray:
        # The padded scores of finite rows.
        n = rows.shape[0]
        design, W = self._design(Sequences(rows, [0, n]))
        psi = np.empty((n, W.shape[1]), dtype=W.dtype)
        design.scores(W, 0, n, psi)
        return psi

    def predict_spans(
        self,
        X: SequencesLike,
        *,
        scheme: str | None = None,
        valid: ValidLike | None = None,
        handle_invalid: str = "error",
    ) -> list[list[Span]]:
        """The spans of the labels that :meth:`predict` gives each sequence.

        Parameters
        ----------
        X : list of sequences
            Memory maps of any size are read whole.
        scheme : {"iob1", "iob2", "ioe1", "ioe2", "iobes", "bilou", "runs"} or None, default=None
            A labelling scheme: only its valid spans count, as with ``mode="strict"`` of the
            metrics. "runs": successive rows with the same label are a span, unless the label is
            "O". None: the rules of conlleval if all labels are span labels ("B-x", "I-x", ...,
            "O"), otherwise "runs".
        valid, handle_invalid
            As in :meth:`predict`.

        Returns
        -------
        list of list of Span
            (start, stop, label, probability), in order. A :class:`CRFTagger` computes the
            probability by ``predict_segment_proba``; other models have None.

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
        decode, rows = self._decoding(valid), self._scored(self._read(X, finite=False))
        potentials, rules = rows.potentials(), span_rules(self.classes_, scheme)
        emission, transition, start, end, offsets = potentials
        if decode == "path":
            codes, _ = viterbi(emission, transition, offsets, start=start, end=end)
        else:
            codes = rows.codes(decode)
        if valid is not None:
            codes = self._valid_codes(codes, potentials, valid, handle_invalid)
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
            Memory maps of any size are read whole.
        n : int, default=10

        Returns
        -------
        list of (labels, scores)
            k label lists, best first, and ``scores`` of shape (k,); k is n, or the number of
            allowed paths if that is smaller. The scores of a :class:`CRFTagger` are
            log-probabilities. After ``set_output(predict="array")``, ``labels`` is an array of
            shape (k, n_steps).
        """
        rows = self._scored(self._read(X))
        rows.relative = self._scores_are_relative
        emission, transition, start, end, offsets = rows.potentials()
        paths = nbest(emission, transition, offsets, n, start=start, end=end)
        log_z = self._log_normalisers(rows)
        return [(chosen_labels(self, codes), s - z) for (codes, s), z in zip(paths, log_z)]

    _scores_are_relative = False

    def _log_normalisers(self, rows: ScoredRows) -> np.ndarray:
        return np.zeros(len(rows.X))  # scores are not log-probabilities

    def _probabilities(self, X: Any, known: LabelsLike | None, out: Any = None) -> list[np.ndarray]:
        # Label marginals of each sequence, views of ``out`` if it is given.
        X = self._read(X, finite=False)
        check_room(out, len(self.classes_), X.n_rows)
        if out is None:
            out = np.empty((X.n_rows, len(self.classes_)), dtype=self.transition_.dtype)
        return self._scored(X, known).marginals(out)

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
            Rows whose label was not in training count as wrong. Rows of unknown label, None or NaN,
            do not count; if y has a set of labels, each label of the set is right, and the row
            counts even if these are all labels.
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        float
        """
        if in_shards(X):
            check_weights(self)
            # Only for shards.
            from sklseq.estimators.sources.shard_dispatch import count_right_of_shards

            right, total = count_right_of_shards(self._count_right, X, y, sample_weight)
        else:
            right, total = self._count_right(X, y, sample_weight)
        if not total > 0:
            raise nothing_to_score()
        return right / total

    def _count_right(self, X: Any, y: Any, sample_weight: Any) -> tuple[float, float]:
        # Weight of the rows whose predicted label is right, and of all rows.
        if in_blocks(X):
            return self._block_decoder().count_right(X, y, sample_weight)
        X = self._read(X)
        weights = np.repeat(check_sample_weight(sample_weight, len(X)), X.lengths)
        try:
            truth = find_codes(read_labels(y, X), self.classes_)
        except PartialLabelError:
            partial = PartialLabels.read(y, X)
            truth = partial.allowed(self.classes_, new=True)
            weights[partial.counts == 0] = 0  # sets of all labels count
        predicted = self._scored(X).codes(self._decoding())
        if isinstance(truth, AllowedLabels):
            right = truth.table[truth.codes, predicted]
        else:
            right = truth == predicted
        return float(weights @ right), float(weights.sum())

"""Online decoder: labels while data arrive, with a chosen trade-off of latency and accuracy."""

from __future__ import annotations

import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin
from sklearn.frozen import FrozenEstimator
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing
from sklearn.utils.validation import check_is_fitted

from sklseq._lib.available import missing_if
from sklseq._lib.callbacks import CallbackSupportMixin, fit_of_part, with_callbacks
from sklseq._lib.checks import check_number
from sklseq._lib.estimator import LabellerBase, clone_part, fitted_parameter
from sklseq._lib.ragged import offsets_of, ranges
from sklseq._lib.threads import Threads, check_n_jobs
from sklseq.data.input_kinds import in_blocks
from sklseq.data.labels import (
    PartialLabelError,
    as_label_sequences,
    check_lengths,
    cut_rows,
    find_codes,
    split_labels,
)
from sklseq.data.partial_labels import PartialLabels
from sklseq.data.samples import not_a_table
from sklseq.data.segment_labels import labels_of_segments
from sklseq.data.sequences import Sequences, check_sample_weight
from sklseq.data.types import ArrayLike, LabelsLike, SequencesLike
from sklseq.estimators.label_output import LabelOutputMixin, as_chosen, cut_labels
from sklseq.estimators.online.items import check_items
from sklseq.estimators.online.pipelines import (
    StreamModel,
    decodes_segments,
    last_part,
    look_ahead,
    tagger_of,
    trial_look_ahead,
)
from sklseq.estimators.online.pool import StreamPool
from sklseq.estimators.online.row_potentials import chain_of, in_tokens
from sklseq.estimators.online.sources import emissions_of, emissions_of_async
from sklseq.estimators.online.stream import Emission, OnlineStream
from sklseq.estimators.unwrap import last_step
from sklseq.estimators.validation import nothing_to_score
from sklseq.inference.chain.linear_chain import BATCH_ROWS, best_paths, row_blocks
from sklseq.inference.chain.online_rules import OnlinePaths, OnlineRule, decode_block
from sklseq.metrics import token_accuracy
from sklseq.objectives.scores.scored_rows import Potentials

if TYPE_CHECKING:
    from sklseq.estimators.online.segment_stream import SegmentStream


class OnlineDecoding(NamedTuple):
    """Result of :meth:`~sklseq.OnlineDecoder.decode`: each field has an array for each sequence.

    Attributes
    ----------
    labels : ndarray of objects
        The label of each row.
    times : ndarray of objects
        For each label, the number (from 0) of the row that had just arrived when the label became
        final.
    confidence : ndarray of objects
        Probability that each label is right, given all rows that had arrived by then, as
        :class:`Emission` explains it; NaN if the estimator is a segmenter.
    """

    labels: np.ndarray
    times: np.ndarray
    confidence: np.ndarray


class LatencyReport(NamedTuple):
    """Result of :meth:`~sklseq.OnlineDecoder.latency_report`.

    Attributes
    ----------
    n_rows : int
        Number of tokens (rows of features).
    mean : float
        Mean latency: the number of tokens that arrive after a token until its label is final,
        including the tokens that features look ahead.
    quantiles : dict
        Latency at 0.5, 0.9, 0.99, 0.999 and 1.
    histogram : ndarray of shape (largest latency + 1,)
        Number of tokens at each latency.
    share_above_10 : float
        Fraction of the tokens with a latency above 10.
    disagreement : float
        Fraction of the labels that differ from those of Viterbi's algorithm on whole sequences.
    """

    n_rows: int
    mean: float
    quantiles: dict
    histogram: np.ndarray
    share_above_10: float
    disagreement: float

    def __str__(self) -> str:
        quantiles = ", ".join(f"{100 * q:g} %: {v:g}" for q, v in self.quantiles.items())
        return (
            f"tokens        {self.n_rows:,}\n"
            f"latency       mean {self.mean:.3f} tokens; {quantiles}\n"
            f"above 10      {100 * self.share_above_10:.3f} %\n"
            f"disagreement  {100 * self.disagreement:.3f} % with Viterbi"
        )


def _of_segments(decoder: OnlineDecoder) -> str | None:
    # Why methods that label rows are missing: the name of a segmenter; None for a tagger.
    estimator = getattr(decoder, "estimator_", decoder.estimator)
    if estimator is None or not decodes_segments(last := last_part(estimator)):
        return None
    return (
        f"{type(last).__name__} labels segments, for which there are only fit, decode, predict, "
        "score and segment_stream; other methods need a tagger."
    )


def _of_rows(decoder: OnlineDecoder) -> str | None:
    # Why a stream of segments is missing, or None.
    if _of_segments(decoder) is not None:
        return None
    estimator = getattr(decoder, "estimator_", decoder.estimator)
    name = "CRFTagger" if estimator is None else type(last_part(estimator)).__name__
    return f"{name} labels tokens, not segments; use stream() for it."


class OnlineDecoder(
    LabelOutputMixin, CallbackSupportMixin, MetaEstimatorMixin, LabellerBase, BaseEstimator
):
    """Label a sequence while it is still arriving.

    A tagger labels a sequence after its end. This meta-estimator uses the scores of a tagger and
    emits each label as soon as it is certain enough. With the default strategy, this is when

        M_T(t₀) ≤ latency_cost · (T + 1 - t₀),

    where T is the newest row, t₀ the oldest row without a label and M_T(t₀) the uncertainty of its
    label. An emitted label never changes.

    Parameters
    ----------
    estimator : estimator, default=None
        A tagger with ``potentials(X)``, or a pipeline that ends in one. Default: ``CRFTagger()``.
        A ``SemiCRFSegmenter`` needs ``strategy="closure"`` or ``lag``. An estimator in
        ``FrozenEstimator`` is used as it is, and the decoder needs no ``fit``.
    strategy : {"step", "window", "closure", "chunk", "viterbi"}, default="step"
        The rule that decides when labels are emitted; see :func:`sklseq.inference.decode_online`.
        "closure" waits until a label is certain, "chunk" decodes fixed windows, and "viterbi"
        waits for the end of the sequence.
    latency_cost : float, default=0.01
        λ for "step" and "window": the uncertainty that is accepted for each row of waiting. With 0
        and without ``max_latency``, the labels are those of the tagger, each as early as it is
        certain.
    uncertainty : {"error", "entropy", "ambiguity"} or callable, default="error"
        The uncertainty M for "step".
    belief : {"forward", "viterbi"}, default="forward"
        The source of the distribution over labels: the forward filter, which sums over all paths,
        or the scores of best paths.
    window_size : int, default=None
        The number of rows that "chunk" decodes together.
    max_latency : int, default=None
        The largest number of rows that a label may wait, with any strategy. It includes the rows
        that the features look ahead.
    lag : int, default=None
        Fixed lag: each label is emitted exactly that many rows later. Replaces ``strategy``.
    restart : {"conflict", "always"}, default="conflict"
        What happens to paths that contradict an emitted label. "conflict" keeps them unless a later
        label is forbidden after the emitted one, so that evidence adds up over rows. "always" drops
        them at once, as in the paper: a state that lasts is then never left if no single row says
        enough against it, but spans stay whole at latencies near 0.
    early : bool, default=True
        Whether "step", "window" and "closure" also use the transitions into the next row: the best
        predecessor of each of its labels is known before the row arrives. Labels are then emitted
        about one row earlier. False: only rows up to T count, and the factor of ``latency_cost`` is
        (T - t₀), which with ``belief="viterbi", restart="always"`` gives the paper's rules. Models
        with transition features always have False, since transitions into the next row are unknown.
        A decoder that was pickled by an earlier version has False.
    decide : {"map", "marginal"}, default="map"
        The label that is emitted: "map" that of the best path, "marginal" the label of least
        expected cost under the marginal distribution, given the rows so far. "marginal" makes the
        fewest errors on single labels; the emitted labels need not form an allowed path, and
        ``restart`` has no effect.
    label_costs : array-like of shape (n_labels, n_labels), default=None
        For "marginal": the cost of emitting each label (column) where another label (row) is
        right, in the order of ``classes_``. None: 1 for each wrong label.
    n_jobs : int, default=None
        Number of threads that decode different sequences.

    Attributes
    ----------
    estimator_ : estimator
        The fitted tagger or pipeline.
    n_features_in_ : int
        Number of features of the estimator.
    classes_ : ndarray of shape (n_labels,)
        Labels, sorted.

    Raises
    ------
    ValueError
        If a parameter is wrong, a step of the pipeline has no ``receptive_field``, or
        ``max_latency`` or ``lag`` is below the number of rows that features look ahead.
    TypeError
        If the estimator has no potentials.

    Notes
    -----
    The attribute ``receptive_field`` of a step of a pipeline gives the number of tokens before and
    after a token on which its row depends. If features look two tokens ahead, each row is known two
    tokens late, which adds two to the latency of its label. The rule itself counts rows.

    Cost O(n_labels²) for each row, and again for each pending row when labels are emitted. See
    :func:`sklseq.inference.decode_online` for the algorithm, and how it differs from the paper.

    References
    ----------
    M. Narasimhan, P. Viola, M. Shilman (2006), "Online decoding of Markov models under latency
    constraints", ICML.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import CRFTagger, OnlineDecoder
    >>> from sklseq.features import TemplateFeatures
    >>> X = [["he", "sleeps", "and", "she", "sings"], ["she", "runs"]]
    >>> y = [["N", "V", "C", "N", "V"], ["N", "V"]]
    >>> tagger = make_pipeline(TemplateFeatures(["w[0]"], bos_eos=False), CRFTagger(l2=0.1))
    >>> decoder = OnlineDecoder(tagger, latency_cost=0.1).fit(X, y)
    >>> decoder.decode([["she", "sleeps"]]).times[0]
    array([0, 1])
    >>> stream = decoder.stream()
    >>> for word in ["he", "sings", "and"]:
    ...     print(word, [(e.position, e.label) for e in stream.push(word)])
    he [(0, 'N')]
    sings [(1, 'V')]
    and []
    >>> [e.label for e in stream.flush()]
    ['C']
    """

    def __init__(
        self,
        estimator: BaseEstimator | None = None,
        *,
        strategy: str = "step",
        latency_cost: float = 0.01,
        uncertainty: str | Callable = "error",
        belief: str = "forward",
        window_size: int | None = None,
        max_latency: int | None = None,
        lag: int | None = None,
        restart: str = "conflict",
        early: bool = True,
        decide: str = "map",
        label_costs: ArrayLike | None = None,
        n_jobs: int | None = None,
    ):
        self.estimator = estimator
        self.strategy = strategy
        self.latency_cost = latency_cost
        self.uncertainty = uncertainty
        self.belief = belief
        self.window_size = window_size
        self.max_latency = max_latency
        self.lag = lag
        self.restart = restart
        self.early = early
        self.decide = decide
        self.label_costs = label_costs
        self.n_jobs = n_jobs

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A decoder pickled by an earlier version decodes as before.
        super().__setstate__({"early": False, "decide": "map", "label_costs": None, **state})

    # ------------------------------------------------------------------ training

    @with_callbacks(max_subtasks=lambda decoder: 1)
    def fit(self, X: SequencesLike, y: LabelsLike, **fit_params: Any) -> OnlineDecoder:
        """Train the estimator; a ``FrozenEstimator`` is not changed.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences
        **fit_params
            Passed to the estimator's ``fit``; with scikit-learn's metadata routing, what the
            estimator requests by ``set_fit_request``.

        Returns
        -------
        OnlineDecoder
            The decoder itself.
        """
        self._rule()
        check_n_jobs(self.n_jobs)
        estimator = _default() if self.estimator is None else clone_part(self, "estimator")
        look_ahead(estimator, fitted=False)
        if decodes_segments(tagger_of(estimator)[1]):
            self._check_rule_of_segments()
        if self.max_latency is not None or self.lag is not None:
            self._rule(trial_look_ahead(estimator, X))
        if get_config()["enable_metadata_routing"]:
            fit_params = process_routing(self, "fit", **fit_params).estimator.fit
        with fit_of_part(self, estimator):
            fitted = estimator.fit(X, y, **fit_params)
        tagger = tagger_of(fitted)[1]
        if self.label_costs is not None:
            self._rule().cost_array(len(tagger.classes_))
        self.estimator_ = fitted
        return self

    def get_metadata_routing(self) -> MetadataRouter:
        """Routing of the metadata of ``fit`` to the estimator.

        Returns
        -------
        MetadataRouter
        """
        to_estimator = MethodMapping().add(caller="fit", callee="fit")
        router = MetadataRouter(owner=self).add_self_request(self)
        estimator = _default() if self.estimator is None else self.estimator
        return router.add(estimator=estimator, method_mapping=to_estimator)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "estimator_") or isinstance(self.estimator, FrozenEstimator)

    def _fitted(self) -> Any:
        # The trained estimator, or the frozen one.
        check_is_fitted(self)
        if hasattr(self, "estimator_"):
            return self.estimator_
        check_is_fitted(self.estimator)
        return self.estimator

    @property
    def classes_(self) -> np.ndarray:
        return tagger_of(self._fitted())[1].classes_

    @property
    def n_features_in_(self) -> int:
        return self._fitted().n_features_in_

    def _check_rule_of_segments(self) -> None:
        if self.strategy != "closure" and self.lag is None:
            raise ValueError(
                "A segmenter needs strategy='closure', which emits a segment when all survivor "
                f"paths share it, or lag; got strategy={self.strategy!r}."
            )
        if self.decide != "map":
            raise ValueError(
                f"decide={self.decide!r} needs the marginals of a tagger; a segmenter has none "
                'online. Use decide="map".'
            )

    def _rule(self, delay: int = 0) -> OnlineRule:
        # The rule of the beam; features use up ``delay`` rows of max_latency.
        names = (*OnlineRule._fields, "lag")
        rule = OnlineRule.checked(**{name: getattr(self, name) for name in names})
        return rule.behind(delay, "max_latency" if self.lag is None else "lag")

    # ------------------------------------------------------------------ whole sequences

    def _tagger(self) -> tuple[list, Any, tuple[int, int]]:
        # Transformers, tagger, and numbers of tokens that features look back and ahead.
        estimator = self._fitted()
        transformers, tagger = tagger_of(estimator)
        return transformers, tagger, look_ahead(estimator)

    def _decode_segments(self, X: Any) -> OnlineDecoding:
        # IOB2 labels; labels of a segment are emitted together, when all survivor paths contain it.
        from sklseq.estimators.online.segment_stream import labels_in_time  # start-up

        self._rule()
        self._check_rule_of_segments()
        transformers, segmenter = tagger_of(self._fitted())
        (_, delay) = look_ahead(self._fitted())
        rule = self._rule(delay)
        for _, transformer in transformers:
            X = transformer.transform(X)
        max_span = getattr(transformers[-1][1], "max_span", None) if transformers else None
        labels, times = labels_in_time(segmenter, X, max_span, rule, delay)
        offsets = offsets_of([len(t) for t in times])
        times = [np.minimum(t + delay, len(t) - 1) for t in times]
        empty = np.zeros(0, dtype=np.int64)
        columns = (
            np.concatenate([np.zeros(0, dtype=np.str_), *labels]),
            np.concatenate([empty, *times]),
            np.full(offsets[-1], np.nan),
        )
        return OnlineDecoding(*(split_labels(column, offsets) for column in columns))

    def _decode(
        self,
        potentials: Potentials,
        delay: int,
        confidence: bool = False,
        shares: np.ndarray | None = None,
    ) -> tuple[OnlinePaths, np.ndarray]:
        # Paths, and the latency including the rows that features look ahead, up to the end.
        rule, chain = self._rule(delay), chain_of(potentials)
        emission, offsets = potentials.emission, potentials.offsets

        def decode(block: tuple[int, int]) -> OnlinePaths:
            a, b = block
            rows = slice(offsets[a], offsets[b])
            cuts = offsets[a : b + 1] - offsets[a]
            part, given = None if shares is None else shares[rows], chain.part(*offsets[[a, b]])
            return decode_block(emission[rows], cuts, given, rule, a, confidence, part, delay)

        with Threads(self.n_jobs) as threads:
            blocks = threads.map(decode, row_blocks(offsets, 16 * BATCH_ROWS))
        if not blocks:
            blocks = [OnlinePaths(np.zeros(0, int), np.zeros(0, np.int64), np.zeros(0))]
        paths = OnlinePaths(*(np.concatenate(parts) for parts in zip(*blocks)))
        return paths, in_tokens(paths.latency, delay, offsets)

    def decode(self, X: SequencesLike) -> OnlineDecoding:
        """Labels of whole sequences, and the time at which a stream would emit each label.

        Parameters
        ----------
        X : list of sequences
            Also in blocks of rows, see :class:`RowBlocks`. Each block is read once; memory holds
            the result, one block and the rows without a label. A segmenter does not read blocks.

        Returns
        -------
        OnlineDecoding
            Named tuple ``(labels, times, confidence)``, each an object array of one array per
            sequence. The latency of label t is ``times[s][t] - t``.
        """
        if decodes_segments(tagger_of(self._fitted())[1]):
            return self._decode_segments(X)
        if in_blocks(X):
            return self._decode_blocks(X)
        potentials, delay = potentials_and_delay(self, X)
        paths, latency = self._decode(potentials, delay, confidence=True)
        offsets = potentials.offsets
        position = ranges(0, np.diff(offsets))
        columns = (self.classes_[paths.labels], position + latency, paths.confidence)
        return OnlineDecoding(*(split_labels(column, offsets) for column in columns))

    def _decode_blocks(self, X: SequencesLike) -> OnlineDecoding:
        from sklseq.estimators.online.long_decoding import decode_long  # not for a deployed model

        transformers, tagger, (_, delay) = self._tagger()
        for _, transformer in transformers:
            X = transformer.transform(X)
        answer = OnlineDecoding(*(np.empty(len(X), dtype=object) for _ in range(3)))
        chain = chain_of(tagger.potentials([]))
        for s, paths in enumerate(decode_long(tagger, X, chain, self._rule(delay), delay)):
            times = np.arange(len(paths.labels)) + paths.latency
            found = self.classes_[paths.labels], times, paths.confidence
            for column, values in zip(answer, found):
                column[s] = values
        return answer

    def set_output(self, *, predict: str | None = None, transform: str | None = None) -> Self:
        """Choose the form of predicted labels.

        Parameters
        ----------
        predict : {"list", "array"} or None, default=None
            As for :class:`CRFTagger`. Without a choice here, that of the tagger holds.
        transform : {"default", None}, default=None
            Form of :meth:`transform`, which is always ``Sequences``.

        Returns
        -------
        self : estimator
        """
        if transform not in (None, "default"):
            raise ValueError(not_a_table("The output of OnlineDecoder.transform"))
        return super().set_output(predict=predict)

    def predict(self, X: SequencesLike) -> list[list[Any]]:
        """Labels of whole sequences as a stream would give them.

        Parameters
        ----------
        X : list of sequences
            Also in blocks of rows, as in :meth:`decode`.

        Returns
        -------
        list of list
            The labels of each sequence; after ``set_output(predict="array")`` of this object or of
            the tagger an object array of arrays.
        """
        tagger = tagger_of(self._fitted())[1]
        # The estimator whose `set_output` holds.
        chooser = self if "predict" in getattr(self, "_sklearn_output_config", {}) else tagger
        if decodes_segments(tagger):
            return as_chosen(chooser, self._decode_segments(X).labels)
        if in_blocks(X):
            return as_chosen(chooser, self._decode_blocks(X).labels)
        potentials, delay = potentials_and_delay(self, X)
        paths, _ = self._decode(potentials, delay)
        return cut_labels(chooser, paths.labels, potentials.offsets)

    @missing_if(_of_segments)
    def predict_proba(self, X: SequencesLike) -> list[np.ndarray]:
        """Distribution of each label, given the rows that had arrived when it was emitted.

        With ``lag=k`` it is the fixed-lag smoothing distribution p(y_t | x_1, ..., x_{t+k}). The
        entry of the emitted label is its confidence.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of ndarray of shape (n_rows, n_labels)
            Columns in the order of ``classes_``.
        """
        potentials, delay = potentials_and_delay(self, X)
        shares = np.empty(potentials.emission.shape)
        self._decode(potentials, delay, shares=shares)
        return list(cut_rows(shares, potentials.offsets))

    @missing_if(_of_segments)
    def transform(self, X: SequencesLike) -> Sequences:
        """Confidence and latency of each row, as features for another model.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        Sequences
            Dense rows of n_labels + 1 columns: the confidence in the column of the emitted label,
            0 in those of other labels, and the latency.
        """
        potentials, delay = potentials_and_delay(self, X)
        paths, latency = self._decode(potentials, delay, confidence=True)
        n, L = potentials.emission.shape
        rows = np.zeros((n, L + 1))
        rows[np.arange(n), paths.labels] = paths.confidence
        rows[:, L] = latency
        return Sequences(rows, potentials.offsets)

    @missing_if(_of_segments)
    def get_feature_names_out(self, input_features: Iterable[str] | None = None) -> np.ndarray:
        """Names of the columns of :meth:`transform`.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str objects
        """
        return np.array([*(f"label={c}" for c in self.classes_), "latency"], dtype=object)

    def score(
        self, X: SequencesLike, y: LabelsLike, sample_weight: ArrayLike | None = None
    ) -> float:
        """Fraction of rows whose emitted label is right.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences
            As for the tagger: rows of unknown label, None or NaN, do not count, and each label of a
            set is right. For a segmenter also lists of (start, stop, label): each row then has an
            IOB2 label.
        sample_weight : array-like of shape (n_sequences,), optional

        Returns
        -------
        float
        """
        labels = self.predict(X)
        y = self._labels_of(y, labels)
        try:
            return token_accuracy(y, labels, sample_weight=sample_weight)
        except PartialLabelError:
            return _known_accuracy(y, labels, sample_weight)

    def _labels_of(self, y: Any, labels: Any) -> Any:
        # IOB2 labels, if the estimator is a segmenter and y holds segments.
        segmenter = tagger_of(self._fitted())[1]
        if not decodes_segments(segmenter):
            return y
        lengths = np.array([len(x) for x in labels], dtype=np.int64)
        return labels_of_segments(y, lengths, fitted_parameter(segmenter, "outside"))

    @missing_if(_of_segments)
    def latency_report(self, X: SequencesLike) -> LatencyReport:
        """Latency of the labels, and their disagreement with Viterbi's algorithm.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        LatencyReport
        """
        potentials, delay = potentials_and_delay(self, X)
        paths, latency = self._decode(potentials, delay)
        return report_of(latency, paths.labels != viterbi_of(potentials))

    # ------------------------------------------------------------------ streams

    @missing_if(_of_segments)
    def stream(
        self,
        checkpoint: dict | None = None,
        *,
        max_wait: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> OnlineStream:
        """A new stream on the fitted model: empty, or continued from a checkpoint.

        Any number of streams can share the model. A stream may be used in one thread at a time; a
        call during another call of the same stream raises RuntimeError. A stream keeps the model
        and the parameters that the decoder had when it was made.

        Parameters
        ----------
        checkpoint : dict, optional
            Result of :meth:`~sklseq.online.OnlineStream.checkpoint` of a stream of this decoder.
        max_wait : float, optional
            Longest time that a label waits, in seconds or the units of ``clock``. The stream
            commits overdue labels when an item is pushed and when
            :meth:`~sklseq.online.OnlineStream.tick` is called, which the caller does at
            ``stream.deadline``.
        clock : callable, default=time.monotonic
            Returns the time, which never goes back.

        Returns
        -------
        OnlineStream

        Raises
        ------
        ValueError
            If the checkpoint is of another model or other parameters, or has an invalid field.
            Weights are compared by a checksum, computed once for the arrays that training made:
            numbers written into them later are not noticed. An ``uncertainty`` function is compared
            by its qualified name, nested functions and lambdas also by their code. If ``max_wait``
            is not a number of at least 0, or ``clock`` is not callable.
        """
        return OnlineStream(self._stream_model(), checkpoint, max_wait, clock)

    @missing_if(_of_segments)
    def pool(self) -> StreamPool:
        """An empty pool on the fitted model, for many streams at once.

        Returns
        -------
        StreamPool
        """
        return StreamPool(self._stream_model())

    @missing_if(_of_rows)
    def segment_stream(self) -> SegmentStream:
        """A new stream of a fitted segmenter: it reads tokens and returns final segments.

        Returns
        -------
        SegmentStream

        Raises
        ------
        AttributeError
            If the estimator is not a segmenter.
        """
        from sklseq.estimators.online.segment_stream import SegmentStream  # start-up: segments only

        estimator = self._fitted()
        self._check_rule_of_segments()
        before, after = look_ahead(estimator)
        return SegmentStream(StreamModel(estimator, before, after, self._rule(after)))

    def _stream_model(self) -> StreamModel:
        _, _, (before, after) = self._tagger()
        return StreamModel(self._fitted(), before, after, self._rule(after))

    @missing_if(_of_segments)
    def iter(self, source: Iterable) -> Iterator[Emission]:
        """Labels of the items of ``source``, as they become final.

        Parameters
        ----------
        source : iterable
            Items of one sequence, which may have no end, in the form of
            :meth:`~sklseq.online.OnlineStream.push`. Columns (a dict, a data frame) are not
            allowed.

        Yields
        ------
        Emission
            One for each item, in order.
        """
        stream = self.stream()
        check_items(source, "iter")
        return emissions_of(stream, source)

    @missing_if(_of_segments)
    def aiter(
        self,
        source: AsyncIterable,
        *,
        max_wait: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> AsyncIterator[Emission]:
        """Labels of the items of an asynchronous source, as they become final.

        The next item is taken when the caller asks for the next label, so a slow caller slows the
        source, and labels may then come after their deadline.

        Parameters
        ----------
        source : asynchronous iterable
            Items of one sequence, which may have no end, in the form of
            :meth:`~sklseq.online.OnlineStream.push`.
        max_wait : float, optional
            Longest time that a label waits for later items, in seconds. An overdue label is
            committed (:meth:`~sklseq.online.OnlineStream.commit`) also if no item arrives. The
            event loop needs some additional time to wake up.
        clock : callable, default=time.monotonic
            As in :meth:`stream`; ``time`` of the event loop if that is another clock.

        Yields
        ------
        Emission
            One for each item, in order.

        Raises
        ------
        TypeError
            If ``source`` is not asynchronous.

        Examples
        --------
        >>> import asyncio
        >>> from sklseq import CRFTagger, OnlineDecoder
        >>> decoder = OnlineDecoder(CRFTagger()).fit([[["a"], ["b"]]] * 3, [["x", "y"]] * 3)
        >>> async def source():
        ...     for item in (["a"], ["b"]):
        ...         await asyncio.sleep(0)
        ...         yield item
        >>> async def labels():
        ...     return [e.label async for e in decoder.aiter(source(), max_wait=0.1)]
        >>> asyncio.run(labels())
        ['x', 'y']
        """
        if not hasattr(source, "__aiter__"):
            raise TypeError(
                f"aiter takes an asynchronous iterable; got {type(source).__name__}. Use iter."
            )
        return emissions_of_async(self.stream(max_wait=max_wait, clock=clock), source, clock)


def viterbi_of(potentials: Potentials) -> np.ndarray:
    """Return codes of the best paths of whole sequences."""
    chain = chain_of(potentials)
    psi = chain.pad_rows(potentials.emission)
    return best_paths(psi, potentials.offsets, chain, chain.rows)[0]


def report_of(latency: np.ndarray, wrong: np.ndarray) -> LatencyReport:
    """Return the report on the latency and errors of all rows."""
    if len(latency) == 0:
        raise ValueError("X holds no rows; a report needs at least one.")
    levels = (0.5, 0.9, 0.99, 0.999, 1.0)
    quantiles = np.quantile(latency, levels, method="inverted_cdf")
    return LatencyReport(
        len(latency),
        float(latency.mean()),
        dict(zip(levels, quantiles.tolist())),
        np.bincount(latency),
        float((latency > 10).mean()),
        float(wrong.mean()),
    )


# ---------------------------------------------------------------------- scorers


def potentials_and_delay(decoder: OnlineDecoder, X: Any) -> tuple[Potentials, int]:
    """Return potentials of sequences, and the number of items that features look ahead."""
    transformers, tagger, (_, delay) = decoder._tagger()
    for _, transformer in transformers:
        X = transformer.transform(X)
    return tagger.potentials(X), delay


def _decoder_of(estimator: Any, X: Any, scorer: str) -> tuple[OnlineDecoder, Any]:
    # The decoder at the end of a pipeline, and X transformed by the steps before it.
    last, X = last_step(estimator, X)
    if not isinstance(last, OnlineDecoder):
        raise TypeError(
            f"{scorer} needs an OnlineDecoder, or a pipeline that ends in one; got "
            f"{type(last).__name__}. Put OnlineDecoder around the tagger or its pipeline."
        )
    return last, X


def _mean_latency(times: np.ndarray) -> float:
    n_rows = sum(map(len, times))
    if n_rows == 0:
        raise ValueError("X holds no rows; a mean latency needs at least one.")
    return sum(float((t - np.arange(len(t))).sum()) for t in times) / n_rows


def neg_mean_latency(
    estimator: BaseEstimator, X: SequencesLike, y: LabelsLike | None = None
) -> float:
    """Scorer for searches: minus the mean latency of labels, so that the largest score is the best.

    The latency of a label is the number of rows that arrive after its row until it is final.

    Parameters
    ----------
    estimator : OnlineDecoder, or pipeline that ends in one
        Fitted.
    X : list of sequences
    y : ignored

    Returns
    -------
    float
    """
    decoder, X = _decoder_of(estimator, X, "neg_mean_latency")
    return -_mean_latency(decoder.decode(X).times)


class _LatencyScorer:
    def __init__(self, price: float, metric: Callable):
        self.price, self.metric = price, metric

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        decoder, X = _decoder_of(estimator, X, "make_latency_scorer")
        decoding = decoder.decode(X)
        mean = _mean_latency(decoding.times)
        return (
            float(self.metric(decoder._labels_of(y, decoding.labels), decoding.labels))
            - self.price * mean
        )

    def __repr__(self) -> str:
        metric = getattr(self.metric, "__name__", None) or repr(self.metric)
        return f"make_latency_scorer(price={self.price}, metric={metric})"


def make_latency_scorer(price: float = 0.01, metric: Callable = token_accuracy) -> Callable:
    """Scorer for model selection: ``metric(y, labels) - price · mean latency``.

    Parameters
    ----------
    price : float, default=0.01
        Cost of one row of mean latency, in units of the metric.
    metric : callable, default=token_accuracy
        Function of true and predicted label sequences; larger is better.

    Returns
    -------
    callable
        Called as ``scorer(estimator, X, y)``; the estimator may be a pipeline that ends in an
        :class:`~sklseq.OnlineDecoder`.

    Raises
    ------
    ValueError
        If ``price`` is not a finite number of at least 0, or ``metric`` is not callable.

    Examples
    --------
    >>> from sklearn.model_selection import GridSearchCV
    >>> from sklseq import CRFTagger, OnlineDecoder
    >>> from sklseq.online import make_latency_scorer
    >>> search = GridSearchCV(
    ...     OnlineDecoder(CRFTagger()), {"latency_cost": [0.01, 0.1]},
    ...     scoring=make_latency_scorer(price=0.001),
    ... )
    """
    check_number("price", price)
    if not callable(metric):
        raise ValueError(
            f"metric must be a function of true and predicted label sequences; got {metric!r}."
        )
    return _LatencyScorer(float(price), metric)


def _default() -> Any:
    from sklseq.estimators.crf.crf_tagger import CRFTagger  # not imported to decode only

    return CRFTagger()


def _known_accuracy(y: Any, labels: Any, sample_weight: ArrayLike | None) -> float:
    # As score of a tagger: rows of unknown label do not count, all labels of a set are right.
    predicted, offsets = as_label_sequences(labels)
    partial, classes = PartialLabels.read(y), np.unique(predicted)
    lengths = np.diff(offsets)
    check_lengths(lengths, np.diff(partial.offsets))
    weights = np.repeat(check_sample_weight(sample_weight, len(lengths)), lengths)
    weights = weights * (partial.counts > 0)
    if not weights.any():
        raise nothing_to_score()
    truth = partial.allowed(classes, new=True)
    right = truth.table[truth.codes, find_codes(predicted, classes)]
    return float(weights @ right / weights.sum())

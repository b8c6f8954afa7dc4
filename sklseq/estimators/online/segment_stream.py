"""Stream of segments of a sequence whose tokens arrive one by one."""

from copy import copy
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.alone import alone
from sklseq._lib.estimator import fitted_parameter
from sklseq._lib.owned import owned
from sklseq.estimators.online.items import list_items, numbered_from, one_sequence
from sklseq.estimators.online.pipelines import StreamModel, tagger_of
from sklseq.estimators.online.segment_steps import StepScorer
from sklseq.estimators.semicrf.segment_program import potentials_of
from sklseq.estimators.semicrf.semicrf_segmenter import (
    SemiCRFSegmenter,
    labels_of_rows,
    rule_of_segments,
    scores_of_steps,
)
from sklseq.inference.chain.online_rules import OnlineRule
from sklseq.inference.segment.segment_closure import SegmentRule, allowed, closures


class SegmentEmission(NamedTuple):
    """A segment that became final.

    Attributes
    ----------
    start, stop : int
        Positions of its first token and of the token after its last one, counted from 0.
    label : label
    latency : int
        Number of tokens after its last token that had arrived when it became final.
    """

    start: int
    stop: int
    label: Any
    latency: int


def _rule_of(segmenter: SemiCRFSegmenter, max_span: int | None, rule: OnlineRule) -> SegmentRule:
    most = -1 if rule.max_latency is None else rule.max_latency
    return rule_of_segments(segmenter, max_span, rule.strategy == "closure", most)


def labels_in_time(
    segmenter: SemiCRFSegmenter, X: Any, max_span: int | None, rule: OnlineRule, held: int
) -> tuple[list, list]:
    """Return IOB2 labels of whole sequences, and the newest known step when each was emitted.

    ``held``: number of last steps that become known only at the end of the sequence.
    """
    X = potentials_of(segmenter, X)
    steps = scores_of_steps(segmenter, X, max_span)
    answers = closures(_rule_of(segmenter, max_span, rule), steps, X.lengths, held)
    return labels_of_rows(segmenter, answers)


class SegmentStream:
    """Segments of tokens as they arrive; :meth:`~sklseq.OnlineDecoder.segment_stream` makes it.

    With ``strategy="closure"`` a segment is emitted when no continuation can change it. If a token
    is still pending after ``max_latency`` or ``lag`` further tokens, the first segment of the best
    segmentation so far is emitted, which ends at the newest token or before. Later segments are
    decoded given its label. Segments of the outside label are left out. A call that fails changes
    nothing. A stream can be pickled together with its model, but has no checkpoints. A call during
    another call of the same stream raises RuntimeError.

    Parameters
    ----------
    model : StreamModel

    Attributes
    ----------
    n_seen : int
        Number of tokens pushed.
    n_pending : int
        Number of tokens without a final segment.

    Notes
    -----
    The cost of a push does not grow with the number of earlier tokens: it only computes potentials
    that the new token completes, from the tokens that they depend on.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklseq import OnlineDecoder, SemiCRFSegmenter
    >>> from sklseq.features import SegmentFeatures
    >>> X = [["by", "Ann", "Lee"], ["Ann", "said"]] * 3
    >>> y = [[(1, 3, "name")], [(0, 1, "name")]] * 3
    >>> model = make_pipeline(SegmentFeatures(length=False), SemiCRFSegmenter())
    >>> decoder = OnlineDecoder(model, strategy="closure", max_latency=4).fit(X, y)
    >>> stream = decoder.segment_stream()
    >>> for token in ["by", "Ann", "Lee"]:
    ...     print(token, [(e.start, e.stop, e.label) for e in stream.push(token)])
    by []
    Ann []
    Lee []
    >>> [(e.start, e.stop, e.label) for e in stream.flush()]
    [(1, 3, 'name')]
    """

    def __init__(self, model: StreamModel):
        self._model = model
        self._transformers, self._segmenter = tagger_of(model.estimator)
        last = self._transformers[-1][1] if self._transformers else None
        self._max_span = getattr(last, "max_span", None)
        self._rule = _rule_of(self._segmenter, self._max_span, model.rule)
        self._labels = self._segmenter.classes_.tolist()
        self._outside = fitted_parameter(self._segmenter, "outside")
        self._beam = self._rule.beam()
        self._scorer = StepScorer.of(self._transformers, self._segmenter)
        self._lock = Lock()
        self._begin()

    def _begin(self) -> None:
        self._beam.reset()
        self._tokens: list = []  # the last tokens, on which later potentials depend
        self.n_seen = 0

    @alone
    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_beam": self._beam.state(), "_scorer": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _beam=state["_rule"].beam(), _lock=Lock())
        self._scorer = StepScorer.of(self._transformers, self._segmenter)
        self._beam.restore(state["_beam"])

    @alone
    def reset(self) -> None:
        """Forget the sequence; the next token is the first of another sequence."""
        self._begin()

    @property
    def n_pending(self) -> int:
        return self.n_seen - self._beam.first

    def __repr__(self) -> str:
        return f"<SegmentStream: {self.n_seen} tokens, {self.n_pending} pending>"

    def push(self, item: Any) -> list[SegmentEmission]:
        """Take one token; return the segments that became final.

        Parameters
        ----------
        item : token, dict or tuple

        Returns
        -------
        list of SegmentEmission
        """
        return self.push_many([item])

    @alone
    def push_many(self, items: Any) -> list[SegmentEmission]:
        """Take several tokens at once: the same segments, faster.

        Parameters
        ----------
        items : list of tokens

        Returns
        -------
        list of SegmentEmission
        """
        tokens = [owned(item) for item in list_items(items)]
        if not tokens:
            return []
        window, n_seen = self._tokens + tokens, self.n_seen + len(tokens)
        found = self._push(window, n_seen, max(0, n_seen - self._model.after), settles=True)
        self._tokens, self.n_seen = window[-self._n_kept :] if self._n_kept else [], n_seen
        return self._emissions(found)

    @alone
    def commit(self) -> list[SegmentEmission]:
        """Make all pending segments final now, those of the best segmentation so far.

        Returns
        -------
        list of SegmentEmission
        """
        return self._all(ended=False)

    @alone
    def flush(self) -> list[SegmentEmission]:
        """End the sequence; return its pending segments. The next token begins another sequence.

        Returns
        -------
        list of SegmentEmission
        """
        found = self._all(ended=True)
        self._begin()
        return found

    @property
    def provisional(self) -> list[SegmentEmission]:
        """List of :class:`SegmentEmission` of the pending tokens, as ``flush`` would return now."""
        return copy(self)._all(ended=True)

    def _all(self, ended: bool) -> list[SegmentEmission]:
        # The best segmentation of all pending tokens, which leave.
        if self.n_pending == 0:
            return []
        state = self._beam.state(stored=False)
        end = self._rule.end if ended else None
        try:
            if self._beam.n < self.n_seen:
                self._push(self._tokens, self.n_seen, self.n_seen, settles=False)
            found = allowed(self._beam.best(end, True))
        except BaseException:
            self._beam.restore(state)
            raise
        return self._emissions(np.insert(found, 3, self.n_seen - 1 - self._model.after, axis=1))

    def _push(self, window: list, n_seen: int, known: int, settles: bool) -> np.ndarray:
        # Add the steps up to ``known`` to the beam. The window ends with the newest token.
        n, base, part = self._beam.n, n_seen - len(window), None
        known = max(n, known)
        if self._scorer is not None:
            part = self._scorer.part(window, base, n, known)
        part = self._part(window, base, n, known) if part is None else part
        return allowed(self._beam.push(*part, settles))

    def _part(self, window: list, base: int, n: int, known: int) -> tuple:
        # Steps n to known - 1, from the potentials of the whole window.
        X = one_sequence(window)
        with numbered_from(lambda s, t: f"{base + t} of the stream"):
            for _, transformer in self._transformers:
                X = transformer.transform(X)
            X = potentials_of(self._segmenter, X)
            steps = scores_of_steps(self._segmenter, X, self._max_span, continued=base > 0)
        return steps.part(n - base, known - base, base)

    @property
    def _n_kept(self) -> int:
        # The number of tokens on which potentials of later steps depend.
        return self._model.before + self._rule.max_span - 1 + self._model.after

    def _emissions(self, found: np.ndarray) -> list[SegmentEmission]:
        # Of rows (start, stop, label, newest known step).
        labels, after = self._labels, self._model.after
        return [
            SegmentEmission(i, j, labels[k], t + 1 + after - j)
            for i, j, k, t in found.tolist()
            if labels[k] != self._outside
        ]

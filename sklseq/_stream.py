"""Streams: one sequence whose items come one by one, on a model that does not change."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline

from sklseq._sequences import Sequences
from sklseq.inference.chain import Transitions
from sklseq.inference.online import OnlineRule, _online, new_beam, no_path

__all__ = ["Emission", "OnlineStream", "StreamModel", "look_ahead", "tagger_of"]


class Emission(NamedTuple):
    """A label that became final.

    Attributes
    ----------
    position : int
        Number of the item in its sequence, from 0.
    label : label
    confidence : float
        Belief, when the label left, that it is the one of the best path of the whole sequence.
    latency : int
        Items that had arrived after this one.
    """

    position: int
    label: Any
    confidence: float
    latency: int


# ---------------------------------------------------------------------- models


def _inner(estimator: Any) -> Any:
    # What a FrozenEstimator freezes, what a search has found or is going to fit.
    while True:
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "refit") and hasattr(estimator, "estimator"):
            estimator = getattr(estimator, "best_estimator_", estimator.estimator)
        else:
            return estimator


def _steps(estimator: Any, prefix: str = "") -> list[tuple[str, Any]]:
    # (name, estimator) of all steps, those of pipelines inside pipelines too.
    estimator = _inner(estimator)
    if not isinstance(estimator, Pipeline):
        return [(prefix or type(estimator).__name__, estimator)]
    steps = []
    for name, step in estimator.steps:
        if step is not None and not (isinstance(step, str) and step == "passthrough"):
            steps += _steps(step, f"{prefix}__{name}" if prefix else name)
    return steps


def tagger_of(estimator: Any) -> tuple[list[tuple[str, Any]], Any]:
    """(transformers with names, tagger) of a tagger or a pipeline that ends in one."""
    *transformers, (_, tagger) = _steps(estimator)
    if not (callable(getattr(tagger, "potentials", None)) or decodes_segments(tagger)):
        raise TypeError(
            f"OnlineDecoder needs an estimator with potentials(X), such as CRFTagger, or a "
            f"pipeline that ends in one; {type(tagger).__name__} has none."
        )
    return transformers, tagger


def decodes_segments(tagger: Any) -> bool:
    """Whether it is a segmenter, which knows itself when a segment is certain."""
    return callable(getattr(tagger, "decode_closure", None))


def look_ahead(estimator: Any, *, fitted: bool = True) -> tuple[int, int]:
    """Tokens before and after a token on which its row depends: the sum over all transformers.

    Before fitting it only checks that all of them will tell.
    """
    fields = [_field_of(name, step, fitted) for name, step in tagger_of(estimator)[0]]
    return sum(before for before, _ in fields), sum(after for _, after in fields)


def _field_of(name: str, transformer: Any, fitted: bool) -> tuple[int, int]:
    transformer = _inner(transformer)
    if isinstance(transformer, FeatureUnion):
        parts = [
            look_ahead_of_steps(f"{name}__{part}", step, fitted)
            for part, step in transformer.transformer_list
            if not (isinstance(step, str) and step in ("drop", "passthrough"))
        ]
        return max((b for b, _ in parts), default=0), max((a for _, a in parts), default=0)
    known = hasattr(type(transformer), "receptive_field")
    if not known and "receptive_field" not in vars(transformer):
        raise ValueError(
            f"Step {name!r} ({type(transformer).__name__}) does not say on which tokens a row "
            "depends, so it may need the whole sequence. Use extractors of sklseq.features, or "
            "give it an attribute receptive_field = (tokens before, tokens after)."
        )
    if not fitted:
        return 0, 0
    field = transformer.receptive_field
    if field is None or not np.isfinite(field).all():
        raise ValueError(
            f"Step {name!r} ({type(transformer).__name__}) needs the whole sequence "
            f"(receptive_field is {field}), so labels cannot leave before its end. Leave it out."
        )
    return int(field[0]), int(field[1])


def look_ahead_of_steps(name: str, estimator: Any, fitted: bool) -> tuple[int, int]:
    """Receptive field of a transformer, or of a pipeline of transformers."""
    fields = [_field_of(step, inner, fitted) for step, inner in _steps(estimator, name)]
    return sum(before for before, _ in fields), sum(after for _, after in fields)


class StreamModel(NamedTuple):
    """What streams of one decoder share; nothing in it changes.

    Attributes
    ----------
    estimator : fitted tagger or pipeline
    before, after : int
        Tokens around a token on which its row depends.
    rule : OnlineRule
    """

    estimator: Any
    before: int
    after: int
    rule: OnlineRule


# ---------------------------------------------------------------------- streams


class OnlineStream:
    """One sequence that arrives item by item; :meth:`~sklseq.OnlineDecoder.stream` makes it.

    Items are what the model's sequences consist of: tokens, tuples or dicts of tokens for a
    pipeline of extractors; feature dicts, collections of attributes, arrays or sparse rows for a
    tagger alone. A stream holds the pending labels, and of the items only those that features
    of later ones may look back at. A failed call changes nothing.

    Parameters
    ----------
    model : StreamModel

    Attributes
    ----------
    n_seen : int
        Items pushed.
    n_emitted : int
        Labels that are final.
    n_pending : int
        Items without a label.
    nbytes : int
        Memory of the pending labels, in bytes.
    """

    def __init__(self, model: StreamModel):
        self._model = model
        self._transformers, self._tagger = tagger_of(model.estimator)
        _, transition, start, end, _ = empty = self._tagger.potentials([])
        self._chain = Transitions(transition, start, end, empty.emission.dtype)
        self._classes = self._tagger.classes_.tolist()
        self._beam = new_beam(self._chain, model.rule)
        self._measured = callable(model.rule.uncertainty)
        self._forbids = not all(np.isfinite(scores).all() for scores in (transition, start, end))
        self._begin()

    def _begin(self) -> None:
        self._items: list = []  # the last items: up to `before`, then those that wait for `after`
        self._n_waiting = 0
        self._ended = False

    # ------------------------------------------------------------------ input

    def push(self, item: Any) -> list[Emission]:
        """Take one item; return the labels that became final.

        Parameters
        ----------
        item : token, dict, tuple, array or sparse row

        Returns
        -------
        list of Emission
            In order of position; often empty, sometimes several.
        """
        return self.push_many([item])

    def push_many(self, items: Any) -> list[Emission]:
        """Take several items at once: the same labels, faster.

        Parameters
        ----------
        items : list, 2-D array or sparse matrix
            Items as for :meth:`push`; rows of a matrix.

        Returns
        -------
        list of Emission
        """
        self._check_open()
        if isinstance(items, (str, bytes)) or not hasattr(items, "__iter__"):
            raise ValueError(
                f"push_many takes a list of items or a matrix; got {type(items).__name__}. "
                "Use push for a single item."
            )
        n = items.shape[0] if hasattr(items, "shape") else len(items := list(items))
        if n == 0:
            return []
        if not self._transformers:
            return self._push_scores(self._scores(items, 0, n))
        return self._push_tokens([_own(item) for item in items])

    def _push_tokens(self, items: list) -> list[Emission]:
        # Rows of tokens that have seen all they look ahead at; the window is no wider than that.
        window = self._items + items
        waiting = self._n_waiting + len(items)
        ready, skip = max(0, waiting - self._model.after), len(window) - waiting
        # Even if no row is ready: a token that features cannot read is refused now, not later.
        scores = self._scores(window, skip, skip + ready)
        emissions = self._push_scores(scores) if ready else []
        self._n_waiting = waiting - ready
        self._items = window[max(0, len(window) - self._n_waiting - self._model.before) :]
        return emissions

    def push_potentials(self, emission: Any) -> list[Emission]:
        """Take the label scores of one row, or of several: for models of your own, and for speed.

        Parameters
        ----------
        emission : array-like of shape (n_labels,) or (n_rows, n_labels)

        Returns
        -------
        list of Emission
        """
        if self._ended or self._n_waiting:
            self._check_open()
            raise ValueError(
                "push_potentials cannot follow items whose features are still waiting for later "
                "ones; use it for a whole sequence, or not at all."
            )
        if type(emission) is not np.ndarray or emission.dtype != np.float64:
            emission = np.asarray(emission, dtype=np.float64)
        if emission.ndim != 1:
            return self._push_scores(self._checked(emission))
        beam, before = self._beam, None
        if self._measured:
            before = beam.state()
        try:
            if not beam.push(emission):
                raise no_path(f"row {beam.n_rows}")
        except BaseException:
            if before is not None:
                beam.set_state(before)
            raise
        return beam.take(self._classes, Emission, 0) if beam.n_queued else []

    def flush(self) -> list[Emission]:
        """End the sequence; return the labels of all items that are pending.

        Returns
        -------
        list of Emission
        """
        self._check_open()
        before = self._beam.state() if self._n_waiting else None
        try:
            return self._finish()
        except BaseException:
            if before is not None:
                self._beam.set_state(before)
            raise

    def reset(self) -> None:
        """Forget the sequence, pending items included: the next item is the first of another."""
        self._beam.reset()
        self._begin()

    def _check_open(self) -> None:
        if self._ended:
            raise ValueError(
                "This stream was flushed: its sequence is over. Call reset() to start another."
            )

    # ------------------------------------------------------------------ what is known

    @property
    def n_emitted(self) -> int:
        return self._beam.n_emitted

    @property
    def n_seen(self) -> int:
        return self._beam.n_rows + self._n_waiting

    @property
    def n_pending(self) -> int:
        return self._beam.n_pending + self._n_waiting

    @property
    def nbytes(self) -> int:
        return self._beam.nbytes

    @property
    def provisional(self) -> list[Emission]:
        """The labels that pending items would get if the sequence ended now."""
        if self._ended:
            return []
        copy = self.__class__.__new__(self.__class__)
        copy.__setstate__(self.__getstate__(), self)
        return copy._finish()

    def __repr__(self) -> str:
        state = "flushed" if self._ended else f"{self.n_pending} pending"
        return f"<OnlineStream: {self.n_seen} items, {self.n_emitted} labels emitted, {state}>"

    # ------------------------------------------------------------------ inside

    def _scores(self, items: Any, first: int, last: int) -> np.ndarray:
        # Emission scores of rows first to last - 1 of a window of the sequence.
        X = _one_sequence(items)
        for _, transformer in self._transformers:
            X = transformer.transform(X)
        if self._transformers and (first or last < len(items)):
            X = Sequences(X.rows[first:last], [0, last - first])
        return self._tagger.potentials(X).emission

    def _checked(self, emission: np.ndarray) -> np.ndarray:
        L = len(self._classes)
        if emission.ndim != 2 or emission.shape[1] != L:
            raise ValueError(
                f"emission must have {L} columns, one a label; got shape {emission.shape}."
            )
        bad = np.argwhere(~(emission < np.inf))
        if len(bad):
            t, j = bad[0]
            raise ValueError(
                f"Scores must be finite or -inf (forbidden); label {j} of row "
                f"{self._beam.n_rows + t} has {emission[t, j]}."
            )
        return emission

    def _push_scores(self, emission: np.ndarray) -> list[Emission]:
        # One row is taken or refused as a whole. Several can be refused half-way where something
        # is forbidden, and a measure that somebody wrote can fail anywhere: then all is put back.
        beam, before = self._beam, None
        forbidden = self._forbids or not np.isfinite(emission).all()
        if self._measured or (len(emission) > 1 and forbidden):
            before = beam.state()
        try:
            dead = _online.push_rows(beam, emission)
            if dead >= 0:
                raise no_path(f"row {beam.n_rows}")
        except BaseException:
            if before is not None:
                beam.set_state(before)
            raise
        delay = self._model.after if self._transformers else 0
        return beam.take(self._classes, Emission, delay)

    def _finish(self) -> list[Emission]:
        emissions = []
        n, beam = self._n_waiting, self._beam
        if n:
            skip = len(self._items) - n
            # These rows came late, but no later than the end.
            for emission in self._push_scores(self._scores(self._items, skip, skip + n)):
                emissions.append(emission)
        n_seen = beam.n_rows
        if not beam.end_sequence():
            raise no_path(f"row {n_seen - 1}", at_end=True)
        emissions += beam.take(self._classes, Emission, 0)
        emissions = [e._replace(latency=min(e.latency, n_seen - 1 - e.position)) for e in emissions]
        self._items, self._n_waiting, self._ended = [], 0, True
        return emissions

    # ------------------------------------------------------------------ pickling

    def __getstate__(self) -> dict:
        return {
            "model": self._model,
            "beam": self._beam.state(),
            "items": list(self._items),
            "n_waiting": self._n_waiting,
            "ended": self._ended,
        }

    def __setstate__(self, state: dict, like: OnlineStream | None = None) -> None:
        if like is None:
            self.__init__(state["model"])
        else:  # a copy shares what never changes
            for name in (
                "_model",
                "_transformers",
                "_tagger",
                "_chain",
                "_classes",
                "_forbids",
                "_measured",
            ):
                setattr(self, name, getattr(like, name))
            self._beam = new_beam(self._chain, self._model.rule)
        self._beam.set_state(state["beam"])
        self._items, self._n_waiting = list(state["items"]), state["n_waiting"]
        self._ended = state["ended"]


def _own(item: Any) -> Any:
    # A token that its owner may change later.
    return item.copy() if isinstance(item, (dict, list, np.ndarray)) else item


def _one_sequence(items: Any) -> Any:
    # X of one sequence: arrays and sparse rows as a matrix, everything else as a list.
    if isinstance(items, list) and sparse.issparse(items[0]):
        rows = [item if item.ndim == 2 else item.reshape(1, -1) for item in items]
        items = rows[0] if len(rows) == 1 else sparse.vstack(rows, format="csr")
    elif isinstance(items, list):
        numeric = isinstance(items[0], np.ndarray) and items[0].dtype.kind in "biuf"
        if not numeric or len({np.shape(item) for item in items}) > 1:
            return [items]
        items = np.stack(items)
    if items.ndim != 2:
        raise ValueError(f"Rows must form a 2-D matrix; got shape {items.shape}.")
    return Sequences(items, [0, items.shape[0]])

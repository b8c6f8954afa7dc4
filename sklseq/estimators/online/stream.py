"""Streams: one sequence whose items come one by one, on a model that does not change."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from functools import wraps
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import FeatureUnion, Pipeline

from sklseq.data.sequences import Sequences
from sklseq.data.types import ArrayLike, SequencesLike
from sklseq.estimators.base import Potentials
from sklseq.estimators.online.checkpoints import (
    check_identity,
    check_state,
    name_of,
    weights_checksum,
)
from sklseq.inference.chain.linear_chain import Transitions
from sklseq.inference.chain.online_rules import OnlineRule, _online, find_unfit, new_beam, no_path

__all__ = [
    "Emission",
    "OnlineStream",
    "StreamModel",
    "check_items",
    "decodes_segments",
    "inner_estimator",
    "look_ahead",
    "tagger_of",
    "trial_look_ahead",
]


class Emission(NamedTuple):
    """A label that became final.

    Attributes
    ----------
    position : int
        Number of the item in its sequence, from 0.
    label : label
    confidence : float
        Probability that the label is right, given all items that had arrived when it left: the
        marginal that ``predict_proba`` would give if the rows so far were the sequence (when the
        sequence has ended, that it does give). Right means what it says in training data, whatever
        the best path has; labels that left before are no evidence. It is as good as the
        probabilities of the tagger: those of ``CRFTagger`` can be checked against data (see the
        manual), while scores of margins, as of ``HMSVMTagger``, are not log-probabilities.
    latency : int
        Items that had arrived after this one.
    """

    position: int
    label: Any
    confidence: float
    latency: int


# ---------------------------------------------------------------------- models


def inner_estimator(estimator: BaseEstimator) -> Any:
    """What a FrozenEstimator freezes, what a search has found or is going to fit."""
    while True:
        if isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "refit") and hasattr(estimator, "estimator"):
            estimator = getattr(estimator, "best_estimator_", estimator.estimator)
        else:
            return estimator


def _steps(estimator: Any, prefix: str = "") -> list[tuple[str, Any]]:
    # (name, estimator) of all steps, those of pipelines inside pipelines too.
    estimator = inner_estimator(estimator)
    if not isinstance(estimator, Pipeline):
        return [(prefix or type(estimator).__name__, estimator)]
    steps = []
    for name, step in estimator.steps:
        if step is not None and not (isinstance(step, str) and step == "passthrough"):
            steps += _steps(step, f"{prefix}__{name}" if prefix else name)
    return steps


def tagger_of(estimator: BaseEstimator) -> tuple[list[tuple[str, Any]], Any]:
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


def look_ahead(estimator: BaseEstimator, *, fitted: bool = True) -> tuple[int, int]:
    """Tokens before and after a token on which its row depends: the sum over all transformers.

    Before fitting it only checks that all of them will tell.
    """
    fields = [_field_of(name, step, fitted) for name, step in tagger_of(estimator)[0]]
    return sum(before for before, _ in fields), sum(after for _, after in fields)


def trial_look_ahead(estimator: BaseEstimator, X: SequencesLike) -> int:
    """Tokens that features look ahead, before training: copies of them see one sequence.

    How far they look can depend on the names of the columns, which one sequence tells. 0 if that
    cannot be tried; training then says why.
    """
    if isinstance(estimator, FrozenEstimator):
        return look_ahead(estimator)[1]
    after = 0
    try:
        rows = X[:1]
        for name, transformer in tagger_of(estimator)[0]:
            transformer = clone(transformer).fit(rows)
            after += _field_of(name, transformer, fitted=True)[1]
            rows = transformer.transform(rows)
    except Exception:
        pass
    return after


def _field_of(name: str, transformer: Any, fitted: bool) -> tuple[int, int]:
    transformer = inner_estimator(transformer)
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


def look_ahead_of_steps(name: str, estimator: BaseEstimator, fitted: bool) -> tuple[int, int]:
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


# Transitions of the models that streams are on, by their contents: equal ones are kept once.
_CHAINS: WeakValueDictionary = WeakValueDictionary()


def shared_chain(empty: Potentials) -> tuple[bytes, Transitions]:
    """(fingerprint, transitions), the same object for all models that have the same."""
    scores = [np.ascontiguousarray(x) for x in empty[1:4]]
    dtype = empty.emission.dtype
    fingerprint = hashlib.sha256(repr((dtype.str, len(scores[0]))).encode())
    for x in scores:
        fingerprint.update(x.dtype.str.encode() + x.tobytes())
    key = fingerprint.digest()
    chain = _CHAINS.get(key)
    if chain is None:
        chain = _CHAINS[key] = Transitions(*scores, dtype)
    return key, chain


# ---------------------------------------------------------------------- streams


def check_items(items: Any, method: str) -> None:
    """Refuse what iterates over something else than the items of one sequence."""
    if isinstance(items, (str, bytes)) or not hasattr(items, "__iter__"):
        raise ValueError(
            f"{method} takes a list of items or a matrix; got {type(items).__name__}. "
            "Use push for a single item."
        )
    if isinstance(items, Mapping):
        raise ValueError(
            f"{method} takes items one after another; got a dict of {list(items)[:3]}. Of columns "
            "x, give rows: [dict(zip(x, row)) for row in zip(*x.values())]; one item goes to push."
        )
    if hasattr(items, "columns"):
        raise ValueError(
            f"{method} takes items one after another; got a {type(items).__name__}, which iterates "
            "over its columns. Give its rows: a list of dicts, or its values as a matrix."
        )
    if isinstance(items, Sequences):
        raise ValueError(
            f"{method} takes the items of one sequence; got {len(items)} sequences. Give one of "
            "them, X[s]."
        )


@contextmanager
def _numbered_from(first: int) -> Iterator[None]:
    # Errors about row t of a window, which is "sequence 0" there, name row first + t of the stream.
    try:
        yield
    except (ValueError, TypeError) as error:
        message = re.sub(
            r"\b(row|token) (\d+) of sequence 0( of X)?\b",
            lambda found: f"{found[1]} {first + int(found[2])} of the stream",
            str(error),
            flags=re.IGNORECASE,
        )
        if message == str(error) or type(error) not in (ValueError, TypeError):
            raise
        raise type(error)(message) from error


def _alone(method: Callable) -> Callable:
    # The beam is not to be read or changed while it changes: neither by another thread, nor by a
    # measure or a transformer that it has called.
    @wraps(method)
    def call(self, *args, **kwargs):
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                f"the stream is busy: {method.__name__} was called while another call of it was "
                "running. Use a stream in one thread at a time, and not in its own uncertainty "
                "function."
            )
        try:
            return method(self, *args, **kwargs)
        finally:
            self._lock.release()

    return call


class OnlineStream:
    """One sequence that arrives item by item; :meth:`~sklseq.OnlineDecoder.stream` makes it.

    Items are what the model's sequences consist of: tokens, tuples or dicts of tokens for a
    pipeline of extractors; feature dicts, collections of attributes, arrays or sparse rows for a
    tagger alone. A stream holds the pending labels, and of the items only the tokens that features
    of later ones may look back at. A failed call changes nothing. A call while another call of the
    same stream runs, in another thread or in the ``uncertainty`` function, raises RuntimeError.

    Parameters
    ----------
    model : StreamModel
    checkpoint : dict, optional
        Of a stream that this one continues.

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

    def __init__(self, model: StreamModel, checkpoint: dict | None = None):
        self._model = model
        self._transformers, self._tagger = tagger_of(model.estimator)
        self._fingerprint, self._chain = shared_chain(self._tagger.potentials([]))
        self._classes = self._tagger.classes_.tolist()
        self._beam = new_beam(self._chain, model.rule)
        self._measured = callable(model.rule.uncertainty)
        self._lock = Lock()
        self._begin()
        if checkpoint is not None:
            self._restore(checkpoint)

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

    @_alone
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
        check_items(items, "push_many")
        n = items.shape[0] if hasattr(items, "shape") else len(items := list(items))
        if n == 0:
            return []
        items = self._read_items(items)
        if not self._transformers:
            return self._push_scores(self._scores(items, 0, n), features=True)
        return self._push_tokens([_own(item) for item in items])

    def _push_tokens(self, items: list) -> list[Emission]:
        # Rows of tokens that have seen all they look ahead at; the window is no wider than that.
        window = self._items + items
        waiting = self._n_waiting + len(items)
        ready, skip = max(0, waiting - self._model.after), len(window) - waiting
        # Even if no row is ready: a token that features cannot read is refused now, not later.
        scores = self._scores(window, skip, skip + ready)
        emissions = self._push_scores(scores, features=True) if ready else []
        self._n_waiting = waiting - ready
        self._items = window[max(0, len(window) - self._n_waiting - self._model.before) :]
        return emissions

    @_alone
    def push_potentials(self, emission: ArrayLike) -> list[Emission]:
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
            return self._push_scores(emission)
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

    @_alone
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

    @_alone
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
        """List of :class:`Emission` of the pending items, as ``flush`` would return it now."""
        if self._ended:
            return []
        return copy(self)._finish()

    def __repr__(self) -> str:
        state = "flushed" if self._ended else f"{self.n_pending} pending"
        return f"<OnlineStream: {self.n_seen} items, {self.n_emitted} labels emitted, {state}>"

    # ------------------------------------------------------------------ inside

    def _read_items(self, items: Any) -> Any:
        # One row an item; numbers, if the tagger takes no other features, as a matrix.
        numbers = not self._transformers and getattr(self._tagger, "vectorizer_", self) is None
        if not isinstance(items, list) and not (numbers and items.dtype == object):
            return items
        for k, item in enumerate(items):
            if getattr(item, "ndim", 1) == 2 and not (sparse.issparse(item) and item.shape[0] == 1):
                raise ValueError(
                    f"Item {self.n_seen + k} of the stream is a matrix of shape {item.shape}; push "
                    "takes one item, push_many the rows of a matrix."
                )
        if not numbers:
            return items
        width, name = self._tagger.n_features_in_, type(self._tagger).__name__
        rows = [_numbers_of(item) for item in items]
        for k, row in enumerate(rows):
            if row is None or row.shape[-1] != width:
                raise ValueError(
                    f"Item {self.n_seen + k} of the stream must be {width} numbers, as the rows "
                    f"{name} was fitted on: an array or list of them, or a sparse row; got "
                    f"{_short(items[k])}."
                )
        if any(map(sparse.issparse, rows)):
            return sparse.vstack([sparse.csr_array(row.reshape(1, -1)) for row in rows], "csr")
        return np.stack(rows)

    def _scores(self, items: Any, first: int, last: int) -> np.ndarray:
        # Emission scores of rows first to last - 1 of a window of the sequence.
        number = self.n_seen - len(self._items)
        with _numbered_from(number):
            X = _one_sequence(items)
            for _, transformer in self._transformers:
                X = transformer.transform(X)
        if self._transformers and (first or last < len(items)):
            X = Sequences(X.rows[first:last], [0, last - first])
        with _numbered_from(number + first), np.errstate(over="ignore", invalid="ignore"):
            return self._tagger.potentials(X).emission

    def _checked(self, emission: np.ndarray, features: bool) -> np.ndarray:
        L = len(self._classes)
        if emission.ndim != 2 or emission.shape[1] != L:
            raise ValueError(
                f"emission must have {L} columns, one a label; got shape {emission.shape}."
            )
        unfit = find_unfit(self._beam, emission)
        if unfit is not None and features:
            raise ValueError(
                f"Item {self._beam.n_rows + unfit[0]} of the stream has features that are too "
                f"large: the score of label {self._classes[unfit[1]]!r} is {emission[unfit]}. "
                "Scale the features as in training, or drop the item."
            )
        if unfit is not None:
            raise ValueError(self._beam.unfit(emission[unfit], unfit[1], unfit[0]))
        return emission

    def _push_scores(self, emission: np.ndarray, features: bool = False) -> list[Emission]:
        # One row is taken or refused as a whole. Several can be refused half-way, and a measure
        # that somebody wrote can fail anywhere: then all is put back.
        emission = self._checked(emission, features)
        beam, before = self._beam, None
        if self._measured or len(emission) > 1:
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
            scores = self._scores(self._items, skip, skip + n)
            emissions += self._push_scores(scores, features=True)
        n_seen = beam.n_rows
        if not beam.end_sequence():
            raise no_path(f"row {n_seen - 1}", at_end=True)
        emissions += beam.take(self._classes, Emission, 0)
        emissions = [e._replace(latency=min(e.latency, n_seen - 1 - e.position)) for e in emissions]
        self._items, self._n_waiting, self._ended = [], 0, True
        return emissions

    # ------------------------------------------------------------------ pickling

    @_alone
    def checkpoint(self) -> dict:
        """What this stream knows beside the model: to be stored, and continued elsewhere.

        It holds numbers, arrays and the items that features still look at: some hundred bytes
        where a pickled stream holds the model. ``decoder.stream(checkpoint)`` goes on from it.

        Returns
        -------
        dict

        Examples
        --------
        >>> import pickle
        >>> from sklseq import CRFTagger, OnlineDecoder
        >>> X, y = [[["a"], ["b"], ["a"]]], [["x", "y", "x"]]
        >>> decoder = OnlineDecoder(CRFTagger(), lag=1).fit(X, y)
        >>> stream = decoder.stream()
        >>> stream.push(["a"])
        []
        >>> stored = pickle.dumps(stream.checkpoint())
        >>> stream = decoder.stream(pickle.loads(stored))
        >>> [(e.position, e.label) for e in stream.push(["b"])]
        [(0, 'x')]
        """
        return {"of": self._identity(), **self._state()}

    def _restore(self, checkpoint: dict) -> None:
        check_identity(checkpoint, self._identity())
        check_state(checkpoint, self._state(), self._model, len(self._classes))
        self._set_state(checkpoint)

    def _identity(self) -> dict:
        # What has to be equal where a checkpoint is continued.
        rule = self._model.rule
        if self._measured:
            rule = rule._replace(uncertainty=name_of(rule.uncertainty))
        return {
            "transitions": self._fingerprint,
            "weights": weights_checksum(self._tagger),
            "labels": list(self._classes),
            "look-ahead": (self._model.before, self._model.after),
            "parameters": tuple(rule),
        }

    def _state(self) -> dict:
        return {
            "beam": self._beam.state(),
            "items": list(self._items),
            "n_waiting": self._n_waiting,
            "ended": self._ended,
        }

    def _set_state(self, state: dict) -> None:
        self._beam.set_state(state["beam"])
        self._items, self._n_waiting = list(state["items"]), state["n_waiting"]
        self._ended = state["ended"]

    @_alone
    def __getstate__(self) -> dict:
        return {"model": self._model, **self._state()}

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["model"])
        self._set_state(state)

    @_alone
    def __copy__(self) -> OnlineStream:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))  # the model, which never changes, is shared
        twin._lock = Lock()
        twin._beam = new_beam(self._chain, self._model.rule)
        twin._set_state(self._state())
        return twin


def _own(item: Any) -> Any:
    # A token that its owner may change later.
    return item.copy() if isinstance(item, (dict, list, np.ndarray)) else item


def _numbers_of(item: Any) -> Any:
    # One row of numbers, dense or sparse, or None.
    if not sparse.issparse(item):
        if isinstance(item, (str, bytes)) or not hasattr(item, "__len__"):
            return None
        try:
            item = np.asarray(item)
        except ValueError:  # of different lengths
            return None
        if item.ndim != 1:
            return None
    return item if item.dtype.kind in "biuf" else None


def _short(item: Any) -> str:
    if hasattr(item, "dtype"):
        return f"{type(item).__name__} of {item.dtype}, shape {item.shape}"
    text = repr(item)
    return text if len(text) <= 60 else f"{type(item).__name__} {text[:50]}..."


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

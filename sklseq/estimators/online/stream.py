"""Stream: online decoding of one sequence whose items arrive one by one."""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from itertools import takewhile
from threading import Lock
from typing import Any, NamedTuple, Self
from weakref import WeakValueDictionary

import numpy as np

from sklseq._lib.alone import alone
from sklseq._lib.checks import check_number, is_number
from sklseq._lib.owned import owned
from sklseq.data.sequences import Sequences
from sklseq.data.types import ArrayLike
from sklseq.estimators.online.checkpoints import (
    check_checkpoint,
    name_of,
    weights_checksum,
)
from sklseq.estimators.online.items import (
    list_items,
    n_items,
    numbered_from,
    one_sequence,
    read_items,
    takes_numbers,
)
from sklseq.estimators.online.pipelines import StreamModel, tagger_of
from sklseq.estimators.online.row_potentials import (
    chain_of,
    check_emission_only,
    entries_for,
    potentials_of_parts,
)
from sklseq.inference.chain.linear_chain import Transitions
from sklseq.inference.chain.online_rules import new_beam, no_path, push_scores
from sklseq.objectives.scores.scored_rows import Potentials


class Emission(NamedTuple):
    """A label that became final.

    Attributes
    ----------
    position : int
        Number of the item in its sequence, from 0.
    label : label
    confidence : float
        Probability that the label is right, given all items that had arrived when it was emitted:
        the marginal of ``predict_proba`` for a sequence that ends with the newest row. It is not
        conditional on labels emitted before. It is as good as the probabilities of the tagger:
        those of ``CRFTagger`` can be checked on data (see the manual), while scores of margin
        models such as ``HMSVMTagger`` are not log-probabilities.
    latency : int
        Number of items that had arrived after this item.
    """

    position: int
    label: Any
    confidence: float
    latency: int


# Transitions of the models of all streams by fingerprint, so that equal ones are stored once.
_CHAINS: WeakValueDictionary = WeakValueDictionary()


def shared_chain(empty: Potentials) -> tuple[bytes, Transitions]:
    """Return (fingerprint, transitions); models with equal transitions share one object."""
    new, dtype = chain_of(empty), empty.emission.dtype
    shared = empty.transition if new.rows is None else new.rows.shared
    scores = [np.ascontiguousarray(x) for x in (shared, empty.start, empty.end)]
    by_rows = () if new.rows is None else ("by row",)
    fingerprint = hashlib.sha256(repr((dtype.str, len(scores[0]), *by_rows)).encode())
    for x in scores:
        fingerprint.update(x.dtype.str.encode() + x.tobytes())
    key = fingerprint.digest()
    chain = _CHAINS.get(key)
    if chain is None:
        chain = _CHAINS[key] = new
    return key, chain


# ---------------------------------------------------------------------- streams


class OnlineStream:
    """One sequence that arrives item by item; :meth:`~sklseq.OnlineDecoder.stream` makes it.

    Items are the elements of the model's sequences: tokens, tuples or dicts of tokens for a
    pipeline of extractors; feature dicts, collections of attributes, arrays or sparse rows for a
    tagger alone. A stream stores the pending labels and those items that features of later items
    need. It copies them, so the caller may reuse dicts, lists, sets and arrays. A call that fails
    changes nothing. A call during another call of the same stream, in another thread or in the
    ``uncertainty`` function, raises RuntimeError. A pickled stream or a checkpoint has no clock:
    pass ``max_wait`` to :meth:`~sklseq.OnlineDecoder.stream` together with the checkpoint; the
    waiting time of pending labels then starts again.

    Parameters
    ----------
    model : StreamModel
    checkpoint : dict, optional
        State of a stream, from which this stream continues.
    max_wait : float, optional
        Longest time that a label waits, in the units of ``clock``.
    clock : callable, default=time.monotonic
        Returns the time, which never goes back. It is called by each push and :meth:`tick`.

    Attributes
    ----------
    n_seen : int
        Number of items pushed.
    n_emitted : int
        Number of final labels.
    n_pending : int
        Number of items without a label.
    nbytes : int
        Memory of the pending labels, in bytes.
    deadline : float or None
        Time by which the oldest pending label must be emitted, if ``max_wait`` is given.
    """

    def __init__(
        self,
        model: StreamModel,
        checkpoint: dict | None = None,
        max_wait: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        check_number("max_wait", max_wait, optional=True)
        if not callable(clock):
            raise ValueError(f"clock must be a function that returns the time; got {clock!r}.")
        self._model = model
        self._transformers, self._tagger = tagger_of(model.estimator)
        self._fingerprint, self._chain = shared_chain(self._tagger.potentials([]))
        self._classes = self._tagger.classes_.tolist()
        self._beam = new_beam(self._chain, model.rule)
        self._measured = callable(model.rule.uncertainty)
        self._lock = Lock()
        self._max_wait, self._clock = max_wait, clock
        self._begin()
        if checkpoint is not None:
            self._restore(checkpoint)
            self._arrivals.extend([] if max_wait is None else [self._now()] * self.n_pending)

    def _begin(self) -> None:
        self._arrivals: deque[float] = deque()  # times of the pending items, if there is max_wait
        self._items: list = []  # up to `before` items, then items whose rows depend on later items
        self._n_waiting = 0
        self._ended = False

    # ------------------------------------------------------------------ input

    def push(self, item: Any) -> list[Emission]:
        """Take one item; return the labels that became final.

        Parameters
        ----------
        item : token, dict, tuple, array or sparse row
            The next item of the sequence, of the kind that the sequences of ``fit`` hold.

        Returns
        -------
        list of Emission
            The labels, in order of position: often none, sometimes several.
        """
        return self.push_many([item])

    @alone
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
        return self._in_time(self._push_items, items)

    def _push_items(self, items: Any) -> list[Emission]:
        items = list_items(items)
        n = n_items(items)
        if n == 0:
            return []
        numbers = not self._transformers and takes_numbers(self._tagger)
        items = read_items(items, self.n_seen, numbers, self._tagger)
        if not self._transformers:
            return self._push_features(self._scores(items, 0, n))
        return self._push_tokens([owned(item) for item in items])

    def _push_tokens(self, items: list) -> list[Emission]:
        # Push rows whose later tokens are known, from a window of the tokens that they depend on.
        window = self._items + items
        waiting = self._n_waiting + len(items)
        ready, skip = max(0, waiting - self._model.after), len(window) - waiting
        # Computed also if no row is ready, so that an invalid token raises its error now.
        scores = self._scores(window, skip, skip + ready)
        emissions = self._push_features(scores) if ready else []
        self._n_waiting = waiting - ready
        self._items = window[max(0, len(window) - self._n_waiting - self._model.before) :]
        return emissions

    @alone
    def push_potentials(self, emission: ArrayLike) -> list[Emission]:
        """Take the label scores of one or several rows, computed by a model of your own.

        Parameters
        ----------
        emission : array-like of shape (n_labels,) or (n_rows, n_labels)

        Returns
        -------
        list of Emission
        """
        check_emission_only(self._tagger)
        if self._ended or self._n_waiting:
            self._check_open()
            raise ValueError(
                "push_potentials cannot follow items whose features depend on later "
                "items; use it for a whole sequence, or not at all."
            )
        return self._in_time(self._push_rows, emission)

    def _push_rows(self, emission: ArrayLike) -> list[Emission]:
        if type(emission) is not np.ndarray or emission.dtype != np.float64:
            emission = np.asarray(emission, dtype=np.float64)
        if emission.ndim != 1:
            return self._push_scores(emission)
        if self._measured and len(emission) == len(self._classes):
            return self._push_scores(emission[None])
        beam = self._beam
        if not beam.push(emission):
            raise no_path(f"row {beam.n_rows}")
        return beam.take(self._classes, Emission, 0) if beam.n_queued else []

    @alone
    def flush(self) -> list[Emission]:
        """End the sequence; return the labels of all items that are pending.

        Returns
        -------
        list of Emission
        """
        self._check_open()
        with self._restored_on_error(self._n_waiting > 0):
            emissions = self._finish()
        self._arrivals.clear()
        return emissions

    @alone
    def commit(self, n: int | None = None) -> list[Emission]:
        """Make the oldest pending labels final now, for example because the source has paused.

        The labels are those of the path of the likeliest label of the newest row (the best path
        with ``belief="viterbi"``); the sequence continues. With ``restart="always"``, later labels
        are those of the best path with the committed labels. With ``restart="conflict"`` this holds
        only if a later label could not follow them.

        An item whose features depend on later items is labelled as if the sequence ended. Features
        of later items are not affected.

        Parameters
        ----------
        n : int, optional
            Number of labels, from 0 to ``n_pending``; default: all.

        Returns
        -------
        list of Emission

        Raises
        ------
        ValueError
            If n is not such a number, or the emitted labels leave no allowed path.
        """
        self._check_open()
        most = self.n_pending
        n = most if n is None else n
        if not is_number(n, whole=True) or not 0 <= n <= most:
            raise ValueError(
                f"n must be an integer from 0 to {most}, the number of pending labels, "
                f"or None for all of them; got {n!r}."
            )
        with self._restored_on_error(n > 0):
            return self._commit(n)

    @alone
    def tick(self) -> list[Emission]:
        """Commit the labels that have waited for ``max_wait``; call it at ``deadline``.

        Each push does this for earlier items, too. Without ``max_wait`` it does nothing.

        Returns
        -------
        list of Emission

        Examples
        --------
        >>> from sklseq import CRFTagger, OnlineDecoder
        >>> X, y = [[["a"], ["b"], ["a"]]], [["x", "y", "x"]]
        >>> decoder = OnlineDecoder(CRFTagger(), lag=5).fit(X, y)
        >>> now = 0.0
        >>> stream = decoder.stream(max_wait=0.1, clock=lambda: now)
        >>> stream.push(["a"])
        []
        >>> now = stream.deadline
        >>> [(e.position, e.label, e.latency) for e in stream.tick()]
        [(0, 'x', 0)]
        """
        return [] if self._ended else self._in_time(lambda: [])

    @alone
    def reset(self) -> None:
        """Forget the sequence and its pending items; the next item starts another sequence."""
        self._beam.reset()
        self._begin()

    def _check_open(self) -> None:
        if self._ended:
            raise ValueError(
                "This stream was flushed: its sequence is over. Call reset() to start another."
            )

    # ------------------------------------------------------------------ state

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
    def deadline(self) -> float | None:
        return self._arrivals[0] + self._max_wait if self._arrivals else None

    @property
    def provisional(self) -> list[Emission]:
        """List of :class:`Emission` of the pending items, as ``flush`` would return it now."""
        if self._ended:
            return []
        return copy(self)._finish()

    def provisional_proba(self) -> np.ndarray:
        """Distributions of the labels of the pending items, if the input ended now.

        These equal ``predict_proba`` of the model for all items so far. The entry of each label of
        :attr:`provisional` is its confidence.

        Returns
        -------
        ndarray of shape (n_pending, n_labels)
            Columns in the order of ``classes_``.
        """
        shares = np.zeros((self.n_pending, len(self._classes)))
        if len(shares):
            twin = copy(self)
            twin._beam.share(shares, self.n_emitted)
            twin._finish()
        return shares

    def __repr__(self) -> str:
        state = "flushed" if self._ended else f"{self.n_pending} pending"
        return f"<OnlineStream: {self.n_seen} items, {self.n_emitted} labels emitted, {state}>"

    # ------------------------------------------------------------------ time

    def _now(self) -> float:
        now = self._clock()
        if not is_number(now) or now != now:
            raise ValueError(f"clock must return a number; it returned {now!r}.")
        return float(now)

    def _in_time(self, push: Callable, *args: Any) -> list[Emission]:
        # Labels emitted by ``push``, and all labels that have waited for max_wait by now.
        if self._max_wait is None:
            return push(*args)
        now, n_seen = self._now(), self.n_seen
        # What arrives now is due as well if a sum with max_wait is rounded to now.
        is_due = now + self._max_wait <= now or (self._arrivals and self.deadline <= now)
        with self._restored_on_error(is_due):
            emissions = push(*args)
            self._arrivals.extend([now] * (self.n_seen - n_seen))
            self._leave(len(emissions))
            due = sum(1 for _ in takewhile(lambda t: t + self._max_wait <= now, self._arrivals))
            return emissions + self._commit(due)

    def _leave(self, n: int) -> None:
        for _ in range(min(n, len(self._arrivals))):
            self._arrivals.popleft()

    def _commit(self, n: int) -> list[Emission]:
        beam, n_seen = self._beam, self.n_seen
        rows = max(0, n - beam.n_pending)
        if rows:
            self._push_waiting(rows)
        if n and not beam.commit_oldest(n):
            raise no_path(f"row {beam.n_rows - 1}")
        emissions = beam.take(self._classes, Emission, 0)
        self._leave(len(emissions))
        return [e._replace(latency=n_seen - 1 - e.position) for e in emissions]

    def _push_waiting(self, n: int) -> None:
        # Push rows of the first n items whose features depend on later items, as if the sequence
        # ended. All their labels are emitted now, after the last of these rows is known.
        skip = len(self._items) - self._n_waiting
        scores = self._scores(self._items, skip, skip + n)
        self._push_features(scores, held=True)
        self._n_waiting -= n
        self._items = self._items[max(0, skip + n - self._model.before) :]

    # ------------------------------------------------------------------ inside

    def _scores(self, items: Any, first: int, last: int) -> Potentials:
        # Scores of rows first to last - 1 of a window of the sequence, which are the next of the
        # beam.
        number = self.n_seen - len(self._items)
        with self._numbered_from(number):
            X = one_sequence(items)
            for _, transformer in self._transformers:
                X = transformer.transform(X)
        if self._transformers and (first or last < len(items)):
            X = Sequences(X.rows[first:last], [0, last - first])
        with self._numbered_from(number + first), np.errstate(over="ignore", invalid="ignore"):
            return potentials_of_parts(self._tagger, X, [self._beam.n_rows > 0])

    def _numbered_from(self, first: int) -> Any:
        return numbered_from(lambda s, t: f"{first + t} of the stream")

    def _push_features(self, scores: Potentials, held: bool = False) -> list[Emission]:
        rows = entries_for(self._beam, scores)
        return self._push_scores(scores.emission, held, rows, self._classes)

    def _push_scores(
        self,
        emission: np.ndarray,
        held: bool = False,
        rows: tuple | None = None,
        labels: list | None = None,
    ) -> list[Emission]:
        beam, L = self._beam, len(self._classes)
        if emission.ndim != 2 or emission.shape[1] != L:
            raise ValueError(
                f"emission must have {L} columns, one for each label; got shape {emission.shape}."
            )
        push_scores(beam, emission, rows, held=held, labels=labels)
        return beam.take(self._classes, Emission, self._model.after if self._transformers else 0)

    @contextmanager
    def _restored_on_error(self, needed: bool) -> Iterator[None]:
        # Restore the state after an error, if ``needed``; otherwise errors do not change the state.
        before = (self._state(), self._arrivals.copy()) if needed else None
        try:
            yield
        except BaseException:
            if before is not None:
                self._set_state(before[0])
                self._arrivals = before[1]
            raise

    def _finish(self) -> list[Emission]:
        beam = self._beam
        if self._n_waiting:
            self._push_waiting(self._n_waiting)
        n_seen = beam.n_rows
        if not beam.end_sequence():
            raise no_path(f"row {n_seen - 1}", at_end=True)
        self._items, self._n_waiting, self._ended = [], 0, True
        return beam.take(self._classes, Emission, 0)

    # ------------------------------------------------------------------ pickling

    @alone
    def checkpoint(self) -> dict:
        """State of this stream without the model, to be stored and continued elsewhere.

        It holds numbers, arrays and the items that features still need: some hundred bytes, while a
        pickled stream contains the model. ``decoder.stream(checkpoint)`` continues from it.

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
        state = self._state()
        return {"of": self._identity(), **state, "items": owned(state["items"])}

    def _restore(self, checkpoint: dict) -> None:
        new = {"of": self._identity(), **self._state()}
        check_checkpoint(checkpoint, new, self._model)
        self._set_state({**checkpoint, "items": owned(checkpoint["items"])})

    def _identity(self) -> dict:
        # Fields that must be equal in the decoder that continues a checkpoint.
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

    @alone
    def __getstate__(self) -> dict:
        return {"model": self._model, **self._state()}

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["model"])
        self._set_state(state)

    @alone
    def __copy__(self) -> Self:
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))  # the model is shared, as it never changes
        twin._lock = Lock()
        twin._arrivals = self._arrivals.copy()
        twin._beam = new_beam(self._chain, self._model.rule)
        twin._set_state(self._state())
        return twin

"""Pool of many streams of one model, whose items are processed together."""

from collections.abc import Hashable, Iterable
from threading import Lock
from typing import Any, NamedTuple

import numpy as np

from sklseq._lib.alone import alone
from sklseq._lib.checks import check_number
from sklseq._lib.owned import owned
from sklseq._lib.ragged import offsets_of, ranges
from sklseq.data.sequences import Sequences
from sklseq.data.types import ArrayLike
from sklseq.estimators.online.checkpoints import check_checkpoint
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
    check_emission_only,
    entries_for,
    potentials_of_parts,
)
from sklseq.estimators.online.stream import OnlineStream, shared_chain
from sklseq.inference.chain.online_rules import _online, new_beam, no_path, refused


class PoolLabels(NamedTuple):
    """Labels that became final in one call of a :class:`StreamPool`: one entry for each label.

    Attributes
    ----------
    ids : list
        Streams of the call, without repetition.
    stream : ndarray of int
        Number of the label's stream in ``ids``. Increasing; positions of a stream increase too.
    position : ndarray of int64
        Number of the item in its stream, from 0.
    label : ndarray
        Labels, of the type of ``classes_``.
    confidence : ndarray of float
    latency : ndarray of int64
        As in :class:`Emission`.
    """

    ids: list
    stream: np.ndarray
    position: np.ndarray
    label: np.ndarray
    confidence: np.ndarray
    latency: np.ndarray


_ALL = 2**62  # labels: more than can be pending

# A stream between two calls: the slot of its beam's state, the last items (items that features of
# later items look back at, then items whose rows depend on later items), and the number of the
# latter.
_Tail = tuple[int, list, int]


class _Rows(NamedTuple):
    # Rows whose features are known: emission scores, offsets by stream, the streams after these
    # rows, and transition scores of the rows in the form that beams take.
    ids: list
    tails: list[_Tail]
    emission: np.ndarray
    offsets: np.ndarray
    entries: tuple | None = None


class StreamPool:
    """Many streams of one model; :meth:`~sklseq.OnlineDecoder.pool` makes it.

    Each call takes items of any number of streams, computes their features and scores together,
    and returns the labels that became final as arrays. Labels, positions, confidences and latencies
    equal those of one :class:`OnlineStream` per stream. A stream is named by any hashable value,
    begins with its first item and ends with :meth:`flush`. A failed call changes nothing. A call
    during another call raises RuntimeError.

    Parameters
    ----------
    model : StreamModel

    Attributes
    ----------
    ids : list
        Names of the streams that have begun and not ended.
    nbytes : int
        Memory of the states of all streams, in bytes, without their items.

    Notes
    -----
    A state takes 44 · n_labels + 40 bytes, and 20 · n_labels for each pending row (n_labels rounded
    up to a multiple of 8).

    Examples
    --------
    >>> from sklseq import CRFTagger, OnlineDecoder
    >>> X, y = [[["a"], ["b"], ["a"]]], [["x", "y", "x"]]
    >>> pool = OnlineDecoder(CRFTagger(), lag=1).fit(X, y).pool()
    >>> len(pool.push_many(["first", "second"], [["a"], ["b"]]).label)
    0
    >>> labels = pool.push_many(["second", "first", "third"], [["a"], ["b"], ["a"]])
    >>> [(labels.ids[s], str(label)) for s, label in zip(labels.stream, labels.label)]
    [('second', 'y'), ('first', 'x')]
    >>> pool.flush().label.tolist()
    ['y', 'x', 'x']
    >>> len(pool)
    0
    """

    def __init__(self, model: StreamModel):
        self._model = model
        self._transformers, self._tagger = tagger_of(model.estimator)
        self._new = OnlineStream(model)  # to compare checkpoints with; it never gets items
        self._beam = new_beam(shared_chain(self._tagger.potentials([]))[1], model.rule)
        self._states = _online.BeamStates()
        self._streams: dict[Hashable, _Tail] = {}
        self._free: list[int] = []
        self._lock = Lock()

    # ------------------------------------------------------------------ input

    def push(self, id: Hashable, item: Any) -> PoolLabels:
        """Take one item of one stream.

        Parameters
        ----------
        id : hashable
        item : token, dict, tuple, array or sparse row

        Returns
        -------
        PoolLabels
        """
        return self.push_many([id], [item])

    @alone
    def push_many(self, ids: Iterable[Hashable], items: Any) -> PoolLabels:
        """Take items of any streams; a stream whose id is new begins.

        Parameters
        ----------
        ids : list of hashable
            The stream of each item; items of the same stream are taken in order.
        items : list, 2-D array or sparse matrix
            Items in the form of :meth:`OnlineStream.push_many`.

        Returns
        -------
        PoolLabels
        """
        items, ids = list_items(items), _read_ids(ids, in_order=True)
        n = n_items(items)
        if n != len(ids):
            raise ValueError(f"push_many needs one id for each item; got {len(ids)} and {n}.")
        if self._transformers:
            items = [owned(item) for item in items]
            rows = self._rows_of_tokens(_grouped(ids, items), self._model.after)
        else:
            rows = self._rows_of_features(_grouped(ids, range(n)), items)
        return self._advance(rows, delay=self._model.after if self._transformers else 0)

    @alone
    def push_potentials(self, ids: Iterable[Hashable], emission: ArrayLike) -> PoolLabels:
        """Take the label scores of rows of any streams.

        Parameters
        ----------
        ids : list of hashable
            The stream of each row.
        emission : array-like of shape (n_rows, n_labels)

        Returns
        -------
        PoolLabels
        """
        check_emission_only(self._tagger)
        ids, emission = _read_ids(ids, in_order=True), np.asarray(emission, dtype=np.float64)
        if emission.shape != (len(ids), self._beam.n_labels):
            raise ValueError(
                f"emission must have {len(ids)} rows, one for each id, and {self._beam.n_labels} "
                f"columns, one for each label; got shape {emission.shape}."
            )
        groups = _grouped(ids, range(len(ids)))
        for id in groups:
            if id in self._streams and self._streams[id][2]:
                raise ValueError(
                    f"push_potentials cannot follow items of stream {id!r} whose features depend "
                    "on later items; use it for a whole sequence, or not at all."
                )
        tails = [(slot, [], 0) for slot, _, _ in self._tails(groups)]
        which, offsets = _places(groups)
        return self._advance(_Rows(list(groups), tails, emission[which], offsets))

    @alone
    def commit(self, ids: Iterable[Hashable] | None = None, n: int | None = None) -> PoolLabels:
        """Make the oldest pending labels final now, as :meth:`OnlineStream.commit`.

        Parameters
        ----------
        ids : list of hashable, optional
            Default: all.
        n : int, optional
            Largest number of labels for each stream; default: all.

        Returns
        -------
        PoolLabels
        """
        check_number("n", n, whole=True, optional=True)
        n = None if n is None else min(n, _ALL)
        ids = self._open(ids)
        ready = []
        for slot, _, n_waiting in (self._streams[id] for id in ids):
            known = n_waiting if n is None else max(0, n - self._states.n_pending(slot))
            ready.append(min(n_waiting, known))
        return self._advance(self._late_rows(ids, ready), [_ALL if n is None else n] * len(ids))

    @alone
    def flush(self, ids: Iterable[Hashable] | None = None) -> PoolLabels:
        """End streams and forget them; the labels of all their pending items become final.

        Parameters
        ----------
        ids : list of hashable, optional
            Default: all.

        Returns
        -------
        PoolLabels
        """
        ids = self._open(ids)
        labels = self._end(ids, keep=False)
        self._forget(ids)
        return labels

    @alone
    def provisional(self, ids: Iterable[Hashable] | None = None) -> PoolLabels:
        """Labels of the pending items, as :meth:`flush` would give them now.

        Parameters
        ----------
        ids : list of hashable, optional
            Default: all.

        Returns
        -------
        PoolLabels
        """
        return self._end(self._open(ids), keep=True)

    @alone
    def drop(self, ids: Iterable[Hashable]) -> None:
        """Forget streams, pending items included.

        Parameters
        ----------
        ids : list of hashable
        """
        self._forget(self._open(ids))

    # ------------------------------------------------------------------ state

    @property
    def ids(self) -> list:
        return list(self._streams)

    @property
    def nbytes(self) -> int:
        return self._states.nbytes

    def __len__(self) -> int:
        return len(self._streams)

    def __contains__(self, id: object) -> bool:
        return id in self._streams

    def __repr__(self) -> str:
        return f"<StreamPool: {len(self)} streams, {self.nbytes:,} bytes>"

    # ------------------------------------------------------------------ rows

    def _open(self, ids: Iterable[Hashable] | None) -> list:
        ids = list(self._streams if ids is None else dict.fromkeys(_read_ids(ids)))
        for id in ids:
            if id not in self._streams:
                raise ValueError(
                    f"No stream {id!r} is open: it has not begun, or it was flushed. Push its "
                    "first item, or leave it out."
                )
        return ids

    def _tails(self, ids: Iterable[Hashable]) -> list[_Tail]:
        # New streams get free slots, which `_keep` then removes from the end of the list.
        tails = [self._streams.get(id) for id in ids]
        n_new = tails.count(None)
        if len(self._free) < n_new:
            n = len(self._states)
            self._states.grow(n + max(8, n, n_new))
            self._free = [*range(n, len(self._states)), *self._free]
        free = reversed(self._free)
        return [(next(free), [], 0) if tail is None else tail for tail in tails]

    def _rows_of_tokens(self, groups: dict[Hashable, Any], after: int) -> _Rows:
        # Rows whose later tokens are known, from windows of the tokens that they depend on.
        before, windows, tails, first, ready = self._model.before, [], [], [], []
        for (slot, kept, n_waiting), new in zip(self._tails(groups), groups.values()):
            window = [*kept, *new]
            n_waiting += len(new)
            n_ready = n_waiting - after if n_waiting > after else 0
            first.append(len(window) - n_waiting)
            ready.append(n_ready)
            n_waiting -= n_ready
            cut = len(window) - n_waiting - before
            tails.append((slot, window[cut if cut > 0 else 0 :], n_waiting))
            windows.append(window)
        return self._rows(list(groups), tails, windows, first, ready)

    def _rows(
        self, ids: list, tails: list[_Tail], windows: list, first: list, ready: list
    ) -> _Rows:
        # Rows first[k] to first[k] + ready[k] - 1 of the window of stream k.
        offsets = offsets_of(ready)
        emission, entries = np.empty((0, self._beam.n_labels)), None
        if windows:
            X: Any = windows
            with numbered_from(lambda s, t: self._place(ids[s], t - first[s])):
                for _, transformer in self._transformers:
                    X = transformer.transform(X)
            which = ranges(X.offsets[:-1] + first, ready)
            if len(which):
                X = Sequences(X.rows[which], offsets)
                with numbered_from(lambda s, t: self._place(ids[s], t)), np.errstate(over="ignore"):
                    emission, entries = self._scores(X, tails)
        return _Rows(ids, tails, emission, offsets, entries)

    def _scores(self, X: Any, tails: list[_Tail]) -> tuple[np.ndarray, tuple | None]:
        # Emission scores and transition scores of the next rows of streams.
        continued = [self._states.n_rows(slot) > 0 for slot, _, _ in tails]
        scores = potentials_of_parts(self._tagger, X, continued)
        return scores.emission, entries_for(self._beam, scores)

    def _rows_of_features(self, groups: dict[Hashable, Any], items: Any) -> _Rows:
        which, offsets = _places(groups)
        tails = self._tails(groups)
        emission, entries = np.empty((0, self._beam.n_labels)), None
        if which:
            numbers = takes_numbers(self._tagger)
            items = items[which] if hasattr(items, "shape") else [items[k] for k in which]
            items = read_items(items, 0, numbers, self._tagger)
            ids = list(groups)

            def place(s: int, t: int) -> str:
                at = offsets[s] + t
                k = int(np.searchsorted(offsets, at, side="right")) - 1
                return self._place(ids[k], at - offsets[k])

            with numbered_from(place), np.errstate(over="ignore", invalid="ignore"):
                emission, entries = self._scores(self._sequences(items, offsets), tails)
        return _Rows(list(groups), tails, emission, offsets, entries)

    def _sequences(self, items: Any, offsets: np.ndarray) -> Any:
        # One sequence for each stream if transition scores need it, otherwise one of all items.
        X = one_sequence(items)
        if getattr(self._tagger, "transition_coef_", None) is None:
            return X
        if isinstance(X, Sequences):
            return Sequences(X.rows, offsets)
        return [items[a:b] for a, b in zip(offsets[:-1], offsets[1:])]

    def _place(self, id: Hashable, t: int) -> str:
        # Position of row t of a call in its stream, for messages.
        slot = self._streams[id][0] if id in self._streams else -1
        return f"{self._states.n_rows(slot) + t} of stream {id!r}"

    # ------------------------------------------------------------------ labels

    def _advance(
        self, rows: _Rows, goals: list[int] | None = None, delay: int = 0, keep: bool = False
    ) -> PoolLabels:
        # goals: number of labels of each stream to emit; -1: the stream ends.
        counts = np.zeros((len(rows.ids), 3), dtype=np.int64)
        slots = np.array([slot for slot, _, _ in rows.tails], dtype=np.int64)
        wanted = np.array([0] * len(slots) if goals is None else goals, dtype=np.int64)
        dead = _online.advance_states(
            self._beam, self._states, slots, rows.emission, rows.offsets, wanted, counts, keep,
            rows.entries,
        )  # fmt: skip
        if dead is not None:
            k, t = dead
            raise self._refused(rows, k, t, at_end=wanted[k] < 0)
        if not keep:
            self._keep(rows)
        codes, confidence, latency = self._beam.take_arrays()
        n, first, n_rows = counts.T
        stream = np.repeat(np.arange(len(n)), n)
        position = ranges(first, n)
        latency += delay
        if goals is not None:  # labels are emitted now, whatever is pending
            n_seen = n_rows + [n_waiting for _, _, n_waiting in rows.tails]
            latency = n_seen[stream] - 1 - position
        label = self._tagger.classes_[codes]
        return PoolLabels(rows.ids, stream, position, label, confidence, latency)

    def _refused(self, rows: _Rows, k: int, t: int, at_end: bool) -> ValueError:
        # The error for row t of the k-th stream; at_end: after its last row the stream ends.
        if t == rows.offsets[k + 1] - rows.offsets[k]:
            return no_path(f"row {self._place(rows.ids[k], t - 1)}", at_end)
        scores, labels = rows.emission[rows.offsets[k] + t], self._tagger.classes_
        return refused(self._beam, scores, f"row {self._place(rows.ids[k], t)}", labels)

    def _keep(self, rows: _Rows) -> None:
        n_before = len(self._streams)
        self._streams.update(zip(rows.ids, rows.tails))
        del self._free[len(self._free) - (len(self._streams) - n_before) :]

    def _end(self, ids: list, keep: bool) -> PoolLabels:
        ready = [self._streams[id][2] for id in ids]
        return self._advance(self._late_rows(ids, ready), [-1] * len(ids), keep=keep)

    def _late_rows(self, ids: list, ready: list[int]) -> _Rows:
        # Rows of the first items whose features depend on later items, as if the sequence ended.
        tails, windows, first, before = [], [], [], self._model.before
        for id, n_ready in zip(ids, ready):
            slot, items, n_waiting = self._streams[id]
            skip = len(items) - n_waiting
            kept = items[max(0, skip + n_ready - before) :]
            tails.append((slot, kept if n_ready else items, n_waiting - n_ready))
            windows.append(items)
            first.append(skip)
        late = [k for k, n_ready in enumerate(ready) if n_ready]  # other streams need no windows
        some = [[column[k] for k in late] for column in (ids, tails, windows, first, ready)]
        offsets = offsets_of(ready)
        return self._rows(*some)._replace(ids=ids, tails=tails, offsets=offsets)

    def _forget(self, ids: list) -> None:
        slots = [self._streams.pop(id)[0] for id in ids]
        self._states.forget(self._beam, np.array(slots, dtype=np.int64))
        self._free += slots

    # ------------------------------------------------------------------ pickling

    @alone
    def checkpoint(self, id: Hashable) -> dict:
        """State of one stream without the model, in the form of :meth:`OnlineStream.checkpoint`.

        ``decoder.stream(checkpoint)`` continues it as a single stream, :meth:`restore` in a pool.

        Parameters
        ----------
        id : hashable

        Returns
        -------
        dict
        """
        (id,) = self._open([id])
        state = self._checkpoint(id, self._new.checkpoint()["of"])
        return {**state, "items": owned(state["items"])}

    def _checkpoint(self, id: Hashable, of: dict) -> dict:
        slot, items, n_waiting = self._streams[id]
        beam = self._beam if self._states.load(self._beam, slot) else self._new._beam
        state = {"items": items, "n_waiting": n_waiting, "ended": False}
        return {"of": of, "beam": beam.state(), **state}

    @alone
    def restore(self, id: Hashable, checkpoint: dict) -> None:
        """Begin a stream in the state of a checkpoint; a stream with this id is replaced.

        Parameters
        ----------
        id : hashable
        checkpoint : dict
            Result of :meth:`checkpoint` or :meth:`OnlineStream.checkpoint`.

        Raises
        ------
        ValueError
            If the checkpoint is invalid, or of another model or a flushed stream.
        """
        (id,) = _read_ids([id])
        check_checkpoint(checkpoint, self._new.checkpoint(), self._model)
        if checkpoint["ended"]:
            raise ValueError("The stream of this checkpoint was flushed: its sequence is over.")
        ((slot, _, _),) = self._tails([id])
        tail = slot, owned(checkpoint["items"]), checkpoint["n_waiting"]
        self._beam.set_state(checkpoint["beam"])
        self._states.store(self._beam, slot)
        self._keep(_Rows([id], [tail], np.empty(0), np.zeros(1)))

    @alone
    def __getstate__(self) -> dict:
        of = self._new.checkpoint()["of"]
        streams = {id: self._checkpoint(id, of) for id in self._streams}
        return {"model": self._model, "streams": streams}

    def __setstate__(self, state: dict) -> None:
        self.__init__(state["model"])
        for id, checkpoint in state["streams"].items():
            self.restore(id, checkpoint)


def _read_ids(ids: Any, in_order: bool = False) -> list:
    # ``in_order``: the ids belong to items in the same order.
    if in_order and isinstance(ids, (set, frozenset)):
        raise ValueError(
            "ids must be a list, in the order of the items; got a set, which has none."
        )
    if isinstance(ids, (str, bytes)) or not isinstance(ids, Iterable):
        raise ValueError(f"ids must be a list of the names of streams; got {ids!r}.")
    ids = list(ids)
    try:
        wrong = [id for id in set(ids) if id != id]
    except TypeError:
        wrong = [id for id in ids if not isinstance(id, Hashable)]
    if wrong:
        raise ValueError(
            "The name of a stream must be hashable and equal to itself, such as a string or a "
            f"number; got {wrong[0]!r}."
        )
    return ids


def _grouped(ids: list, items: Any) -> dict[Hashable, Any]:
    # The items of each stream, in the order in which streams are first named.
    groups: dict[Hashable, Any] = dict(zip(ids, zip(items)))
    if len(groups) < len(ids):
        groups = {id: [] for id in groups}
        for id, item in zip(ids, items):
            groups[id].append(item)
    return groups


def _places(groups: dict[Hashable, Any]) -> tuple[list[int], np.ndarray]:
    # The numbers of all items, stream by stream, and offsets.
    offsets = offsets_of(list(map(len, groups.values())))
    return [k for places in groups.values() for k in places], offsets

"""Decoding of exported models with NumPy alone.

:func:`sklseq.deployment.export` writes a file; :func:`load` reads it. Neither SciPy nor
scikit-learn is imported. Imports in functions: only streams need online decoding.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from copy import copy
from importlib import import_module
from threading import Lock
from typing import Any, cast

import numpy as np

from sklseq._lib.aligned import aligned_zeros
from sklseq._lib.alone import alone
from sklseq._lib.cpu import load_kernel
from sklseq._lib.index_types import index_type
from sklseq._lib.model_file import read_model
from sklseq._lib.owned import owned
from sklseq.data.labels import as_label_sequences, check_lengths, cut_rows, find_codes
from sklseq.data.span_rules import find_by_rules, named_spans, span_rules
from sklseq.data.types import LabelsLike, TokensLike
from sklseq.features._packed_rows import PackedRows
from sklseq.inference.chain.large_scores import take_out_row_maxima
from sklseq.inference.chain.linear_chain import Transitions, Workspace, best_paths, check_paths
from sklseq.inference.chain.path_scores import path_scores
from sklseq.inference.chain.row_transitions import RowTransitions
from sklseq.objectives.scores.list_sums import list_sums
from sklseq.objectives.scores.row_entries import RowEntries, pair_support, ranked_columns

__all__ = ["Decoder", "Stream", "load"]

_linear = load_kernel("sklseq.objectives.scores._linear")

# Modules of the transforms, loaded when a model has them.
_TRANSFORMS = {
    "DictFeatures": "_dict_transform.DictTransform",
    "LexiconFeatures": "_lexicon_transform.LexiconTransform",
    "TemplateFeatures": "_template_transform.TemplateTransform",
    "TokenFeatures": "_token_transform.TokenTransform",
    "WindowFeatures": "_window_transform.WindowTransform",
}


def load(path: str | os.PathLike[str]) -> Decoder:
    """Read an exported model.

    Parameters
    ----------
    path : str or path
        A file of :func:`sklseq.deployment.export`.

    Returns
    -------
    Decoder

    Raises
    ------
    ValueError
        If the file is not an exported model, is damaged or cut off, or is of a newer version.
    TypeError
        If ``path`` is not a string or path.
    OSError
        If it cannot be read.

    Notes
    -----
    The file holds data, not code. Its checksum detects damage, but not numbers that were changed
    on purpose: load files of people you trust. Cost O(size of the file).

    Examples
    --------
    >>> import os, tempfile
    >>> from sklseq import CRFTagger
    >>> from sklseq.deployment import export
    >>> from sklseq.runtime import load
    >>> tagger = CRFTagger().fit([[{"w": "the"}, {"w": "cat"}]], [["D", "N"]])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.sklseq")
    ...     export(tagger, path)
    ...     decoder = load(path)
    >>> decoder.predict_single([{"w": "the"}, {"w": "cat"}])
    ['D', 'N']
    """
    return Decoder(read_model(path))


class Decoder:
    """A model that labels sequences; made by :func:`load`.

    Sequences have the form of those that the exported model was fitted on: feature dicts or
    attributes for a single tagger, tokens for a pipeline. Several threads may use one decoder. It
    can be pickled, with the content of the file; nothing changes it, so that a copy is the decoder
    itself.

    Parameters
    ----------
    model : dict
        Content of the file.

    Attributes
    ----------
    classes_ : list
        Labels, in the order of the columns of :meth:`predict_proba`.
    columns_ : list of str or None
        Names of the columns of tokens that a pipeline reads; None for a model that reads feature
        dicts or attributes.
    """

    def __init__(self, model: dict[str, Any]):
        self._model = model  # for pickles: extractors hold tables that have none
        self.classes_: list = model["classes"]
        self.columns_: list[str] | None = model.get("columns")
        self._rules = span_rules(np.array(self.classes_))
        self._probabilistic: bool = model["probabilistic"]
        self._by_marginals = model.get("decode") == "marginal"
        self._field: tuple[Any, Any] = tuple(model["receptive_field"])
        self._features = _features_of(model["features"])
        ends = model["transition"], model["start"], model["end"]
        self._chain = Transitions(*ends, ends[0].dtype)
        if self._probabilistic:
            self._chain.exponentiate()  # now, as several threads may use the decoder
        self._W = _state_weights(model, self._chain)
        pairs = model.get("pairs")
        self._pairs = None if pairs is None else _PairWeights(pairs, len(self._W), self._chain)
        self._stream_chain = self._chain if self._pairs is None else self._pairs.chain_of_streams()
        self._no_values = np.zeros(0, self._W.dtype)
        number = "double" if self._W.dtype == np.float64 else "float"
        self._types: dict[type, str] = {np.int32: f"int|{number}", np.int64: f"long long|{number}"}

    def __repr__(self) -> str:
        n_features = len(self._W)
        return f"<Decoder: {len(self.classes_)} labels, {n_features} features>"

    def __reduce__(self) -> tuple:
        return type(self), (self._model,)

    def __copy__(self) -> Decoder:
        return self

    def __deepcopy__(self, memo: dict) -> Decoder:
        return self

    def predict_single(self, x: Mapping[str, Sequence[Any]] | Sequence[Any]) -> list:
        """The labels of one sequence.

        Parameters
        ----------
        x : sequence

        Returns
        -------
        list
            The labels that the exported model predicts.
        """
        return self.predict([x])[0]

    def predict(self, X: TokensLike) -> list[list]:
        """The labels of each sequence.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of list
            The labels that the exported model predicts.
        """
        codes, offsets = self._codes(X)
        labels = list(map(self.classes_.__getitem__, codes.tolist()))
        return [labels] if len(offsets) == 2 else list(cut_rows(labels, offsets))

    def _codes(self, X: TokensLike) -> tuple[np.ndarray, np.ndarray]:
        """Indices in `classes_` of the predicted labels of all rows; offsets of the sequences."""
        psi, offsets, entries = self._scores(X)
        if self._by_marginals:
            self._sums(psi, offsets, entries)
            return psi[:, : self._chain.n_labels].argmax(axis=1), offsets
        codes, scores = best_paths(psi, offsets, self._chain, entries)
        check_paths(scores)
        return codes, offsets

    def predict_proba(self, X: TokensLike) -> list[np.ndarray]:
        """Marginal probability of each label at each token.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of ndarray of shape (n_tokens, n_labels)
        """
        psi, offsets, entries = self._scores(X)
        self._sums(psi, offsets, entries)
        return list(cut_rows(psi[:, : self._chain.n_labels].copy(), offsets))

    def _sums(
        self, psi: np.ndarray, offsets: np.ndarray, entries: RowTransitions | None
    ) -> np.ndarray:
        """Return log Z of each sequence; replace scores by marginals, in place."""
        if not self._probabilistic:
            raise ValueError(
                "The exported model has no probabilities: its scores maximise a margin or a "
                "z-score. Export a CRFTagger, or use predict."
            )
        chain = self._chain
        if entries is not None:
            chain = copy(chain).exponentiate(float(entries.score.max()))
        log_z = np.zeros(len(offsets) - 1)
        work = Workspace(len(psi), chain.width, chain.dtype)
        work.forward_backward(psi, offsets, None, chain, log_z, entries)
        check_paths(log_z)
        return log_z

    def predict_log_proba_sequence(self, X: TokensLike, y: LabelsLike) -> np.ndarray:
        """log p(y_s | x_s) of whole label sequences.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences
            One label for each token; the result is -inf for sequences with unknown labels.

        Returns
        -------
        ndarray of shape (n_sequences,)
        """
        flat, cuts = as_label_sequences(y)
        psi, offsets, entries = self._scores(X)
        check_lengths(np.diff(offsets), np.diff(cuts))
        codes = find_codes(flat, self.classes_)
        take_out_row_maxima(psi[:, : len(self.classes_)])
        chain = self._chain
        transition = chain.score if entries is None else entries
        scores = path_scores(psi, transition, chain.start, chain.end, offsets, codes)
        log_z = self._sums(psi, offsets, entries)
        return np.minimum(scores - log_z, 0.0)  # a sum above 0 is rounding

    @property
    def attributes(self) -> list[str]:
        """Names of the attributes, if the model reads feature dicts or attributes."""
        names = getattr(self._features, "vocabulary_", None)
        if names is None:
            raise ValueError("The model reads tokens, and its file has no names of attributes.")
        return list(names)

    @property
    def state_features(self) -> dict[tuple[str, Any], float]:
        """Weights of (attribute, label) that are not zero."""
        names, W = self.attributes, self._W
        pairs = zip(*(x.tolist() for x in np.nonzero(W)))
        return {(names[i], self.classes_[j]): float(W[i, j]) for i, j in pairs}

    @property
    def transition_features(self) -> dict[tuple[Any, Any], float]:
        """Weights of (label, next label) that are not zero; -inf if forbidden."""
        scores = self._chain.score[: len(self.classes_), : len(self.classes_)]
        pairs = zip(*(x.tolist() for x in np.nonzero(scores)))
        return {(self.classes_[i], self.classes_[j]): float(scores[i, j]) for i, j in pairs}

    def predict_spans(self, X: TokensLike) -> list[list[tuple[int, int, str]]]:
        """Spans of the predicted labels of each sequence.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of list of (start, stop, type)
            Spans without the row ``stop``, those of :meth:`sklseq.CRFTagger.predict_spans`. Labels
            such as ``"B-PER"``, ``"I-PER"`` and ``"S-PER"`` are read by the rules of conlleval: an
            ``"I-"`` label that does not continue a span of its type begins one. Of models with
            other labels, each run of equal labels is a span, unless the label is ``"O"``.
        """
        codes, offsets = self._codes(X)
        found = named_spans(self._rules, find_by_rules(codes, offsets, self._rules), offsets)
        return [[(start, stop, type_) for start, stop, type_, _ in spans] for spans in found]

    def stream(self, **rule: Any) -> Stream:
        """Start a sequence whose items arrive one by one.

        Parameters
        ----------
        **rule
            Parameters of :class:`sklseq.OnlineDecoder` that decide when labels are emitted:
            ``strategy``, ``latency_cost``, ``lag`` and so on. By default ``strategy="closure"``:
            a label is emitted when no later item can change it.

        Returns
        -------
        Stream
        """
        return Stream(self, **rule)

    def _scores(self, X: Any) -> tuple[np.ndarray, np.ndarray, RowTransitions | None]:
        rows = self._features.packed_rows(X)
        W = None if rows.lists is None else list_sums(rows, rows.lists, self._W)
        if W is None:
            rows, W = rows.plain(), self._W
        values = rows.values
        values = self._no_values if values is None else values.astype(W.dtype, copy=False)
        n, kind = rows.n_rows, index_type(len(rows.indices))
        psi = np.empty((n, self._chain.width), dtype=W.dtype)
        indptr, indices = rows.indptr.astype(kind), rows.indices.astype(kind, copy=False)
        kernel = _linear.gather_rows[self._types[kind]]  # dispatch by arguments takes 1 µs
        kernel(indptr, indices, values, W, psi, 0, n)
        return psi, rows.offsets, None if self._pairs is None else self._pairs.entries(rows.plain())


class Stream:
    """One sequence that arrives item by item; :meth:`Decoder.stream` makes it.

    It can be copied and pickled between calls, with its model. Items are stored as copies: dicts,
    lists and arrays may be filled again. A call during another call of the same stream raises
    RuntimeError.

    Parameters
    ----------
    decoder : Decoder
    **rule
        As in :meth:`Decoder.stream`.

    Attributes
    ----------
    n_seen : int
        Items of the sequence so far.
    """

    def __init__(self, decoder: Decoder, **rule: Any):
        from sklseq.inference.chain.online_rules import OnlineRule

        self._decoder, after = decoder, decoder._field[1]
        if max(decoder._field) == float("inf"):
            raise ValueError(
                "The model reads the first or last item of a sequence (%x[@1,0]), so it is not "
                "decoded item by item; use predict on whole sequences."
            )
        allowed = ("lag", *OnlineRule._fields)
        for name in rule:
            if name not in allowed:
                raise TypeError(f"{name!r} is not a parameter of a stream; they are {allowed}.")
        checked = OnlineRule.checked(**{"strategy": "closure", **rule})
        self._rule = checked.behind(after, "lag" if "lag" in rule else "max_latency")
        self._lock = Lock()
        self._start()

    def _start(self) -> None:
        from sklseq.inference.chain.online_rules import new_beam

        self._beam = new_beam(self._decoder._stream_chain, self._rule)
        self._items: list = []  # items on which features of unscored items depend
        self._first = self.n_seen = 0  # number of the first of `_items`

    @alone
    def __getstate__(self) -> dict[str, Any]:
        changing = {"_beam": self._beam.state(), "_items": list(self._items)}
        return {name: x for name, x in vars(self).items() if name != "_lock"} | changing

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._decoder, self._rule = state["_decoder"], state["_rule"]
        self._lock = Lock()
        self._start()
        self._beam.set_state(state["_beam"])
        self._items, self._first, self.n_seen = state["_items"], state["_first"], state["n_seen"]

    @alone
    def push(self, item: Any) -> list:
        """Read the next item.

        Parameters
        ----------
        item : item of a sequence
            A feature dict or collection of attributes, a token, or a tuple or dict of tokens.

        Returns
        -------
        list
            Labels that became final, in the order of their items.

        Raises
        ------
        ValueError
            If the item has not the form that the model reads, or no label is allowed there; the
            stream is unchanged.
        """
        before, after = self._decoder._field
        items = [*self._items, owned(item)]
        scores = self._decoder._scores([items])
        self._score(scores, self.n_seen + 1 - after)
        self._items, self.n_seen = items, self.n_seen + 1  # after all that can raise
        # The first row of a window has no transitions to it.
        keep = max(0, self.n_seen - after - max(before, self._decoder._pairs is not None))
        del self._items[: keep - self._first]
        self._first = max(self._first, keep)
        return self._taken()

    @alone
    def finish(self) -> list:
        """End the sequence; the next item begins another.

        Returns
        -------
        list
            The remaining labels.

        Raises
        ------
        ValueError
            If no path of labels is allowed; the stream is unchanged.
        """
        from sklseq.inference.chain.online_rules import no_path

        n, before = self.n_seen, self._beam.state()
        try:
            if n > self._beam.n_rows:
                self._score(self._decoder._scores([self._items]), n, held=True)
            if n and not self._beam.end_sequence():
                raise no_path(f"row {n - 1}", at_end=True)
        except BaseException:
            self._beam.set_state(before)
            raise
        labels = self._taken()
        self._start()
        return labels

    def _score(self, scores: tuple, stop: int, held: bool = False) -> None:
        # Push the scores of the unscored items before stop; the other items are context. held:
        # their labels are emitted when the sequence ends.
        from sklseq.inference.chain.online_rules import push_scores

        done = self._beam.n_rows
        if stop <= done:
            return
        new, (psi, _, entries) = slice(done - self._first, stop - self._first), scores
        if entries is not None:
            entries = entries.part(new.start, new.stop)
            entries = entries.for_kernels(entries.score.astype(np.float64), self._beam.width)
        labels = self._decoder.classes_
        push_scores(self._beam, psi[new, : len(labels)], entries, held=held, labels=labels)

    def _taken(self) -> list:
        return list(map(self._decoder.classes_.__getitem__, self._beam.take_codes().tolist()))


class _Steps:
    """Extractors in series, as in a Pipeline."""

    def __init__(self, steps: list):
        self.steps = steps

    def packed_rows(self, X: Any) -> PackedRows:
        for step in self.steps:
            X = step.packed_rows(X)
        return cast(PackedRows, X)


class _Union:
    """Extractors in parallel, as in a FeatureUnion."""

    def __init__(self, parts: list):
        self.parts = parts

    def packed_rows(self, X: Any) -> PackedRows:
        rows = self.parts[0].packed_rows(X)
        for part in self.parts[1:]:
            rows = rows.beside(part.packed_rows(X))
        return cast(PackedRows, rows)


def _features_of(part: Any) -> Any:
    """The extractor that a model file describes, or None."""
    if part is None:
        return None
    if part["class"] in ("Pipeline", "FeatureUnion"):
        inner = [_features_of(p) for p in part["parts"]]
        return _Steps(inner) if part["class"] == "Pipeline" else _Union(inner)
    module, _, name = _TRANSFORMS[part["class"]].partition(".")
    transform = getattr(import_module(f"sklseq.features.{module}"), name)()
    state = dict(part["state"])
    if "extractor_" in state:
        state["extractor_"] = _features_of(state["extractor_"])
    vars(transform).update(state)
    if hasattr(transform, "names_table"):
        transform.names_table()  # built now rather than in the first call
    return transform


class _PairWeights:
    """Weights of transition features for pairs of labels."""

    def __init__(self, stored: dict[str, Any], n_features: int, chain: Transitions):
        self.chain, self.values = chain, stored["values"].astype(chain.dtype)
        self.support = pair_support(stored["counts"], stored["pairs"], chain.n_labels)
        self.rank = np.full(n_features, -1, dtype=np.int32)
        self.rank[stored["columns"]] = np.arange(len(stored["columns"]))

    def chain_of_streams(self) -> Transitions:
        """Transitions for streams, in which they differ from row to row."""
        chain, L = copy(self.chain), self.chain.n_labels
        none = np.zeros(0, dtype=np.int32)
        start = np.zeros(1, dtype=np.int64)
        shared = np.ascontiguousarray(chain.score[:L, :L])
        chain.rows = RowTransitions.unchecked(shared, start, none, none, none.astype(chain.dtype))
        return chain

    def entries(self, rows: PackedRows) -> RowTransitions | None:
        """Transition scores of rows; None if none of them has a transition feature."""
        values = np.ones(len(rows.indices)) if rows.values is None else rows.values
        chosen = ranked_columns(rows.indptr, rows.indices, values, self.rank)
        entries = RowEntries(chosen, self.support, self.chain.n_labels)
        buffers = entries.buffers([(0, rows.n_rows)], self.values.dtype)
        return entries.fill(self.values, self.chain.score, 0, rows.offsets, buffers)


def _state_weights(model: dict[str, Any], chain: Transitions) -> np.ndarray:
    """Return padded rows of state weights, from an array or from nonzero entries."""
    coef, n_features = model["coef"], model["n_features"]
    values = coef["values"].astype(chain.dtype)
    if coef["scale"] is not None:
        labels = np.tile(np.arange(chain.n_labels), n_features)
        labels = labels if coef["labels"] is None else coef["labels"]
        values = values.ravel() * coef["scale"].astype(chain.dtype)[labels]
    W = aligned_zeros(n_features * chain.width, chain.dtype).reshape(n_features, chain.width)
    if coef["labels"] is None:
        W[:, : chain.n_labels] = values.reshape(n_features, chain.n_labels)
    else:
        W[np.repeat(np.arange(n_features), coef["counts"]), coef["labels"]] = values
    return W

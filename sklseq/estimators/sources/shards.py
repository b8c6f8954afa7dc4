"""Labelled data in shards (files, functions or tuples), read one at a time."""

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import get_config

from sklseq.data.labels import PartialLabelError, read_labels, split_labels, without_unused
from sklseq.data.partial_labels import PartialLabels
from sklseq.data.sequences import Sequences, as_sequences, check_sample_weight, weighted_only
from sklseq.data.store import read_stored, stored_size
from sklseq.data.types import LabelsLike, PathLike
from sklseq.estimators.sources.partial_source import has_row
from sklseq.estimators.validation import read_sequences
from sklseq.objectives.likelihood.summary import LabelledRows

UNITS = {"": 1, "B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


class ShardError(ValueError):
    """A shard cannot be read, or differs in form from the others; the message names it."""


class Shards:
    """Labelled sequences in parts (shards), of which few are in memory at a time.

    It replaces both X and y: ``CRFTagger().fit(Shards(paths))``, ``tagger.score(Shards(…))``,
    ``tagger.predict(Shards(…))``. Iterating over it gives (X, y) of each shard in turn.

    Parameters
    ----------
    sources : list, or str or path of a folder
        Each item is

        - the path of a file that :meth:`Sequences.save` wrote, with labels: read through a memory
          map;
        - a function without arguments that returns ``(X, y)`` or ``(X, y, sample_weight)``, the
          same at each call, in the forms that ``fit`` accepts; arrays are copied;
        - such a tuple itself.

        The path of a folder selects its ``.npz`` files in the order of their names.
    max_memory : int or str, optional
        The memory that training may use for weights, vectors of the solver and shards, in bytes or
        as text such as ``"500MB"`` or ``"2GiB"``. Default: scikit-learn's
        ``get_config()["working_memory"]`` MiB.

    Raises
    ------
    TypeError, ValueError
        If ``sources`` or ``max_memory`` has none of these forms.
    ShardError
        When a shard is read that is missing, truncated or differs in width from the others. It is
        a ValueError and names the shard.

    Notes
    -----
    ``fit`` reads each shard once for a summary of labels and features, and once more for transition
    features that have weights only for the pairs of labels they occur with. At the next reading it
    keeps as many shards as ``max_memory`` allows; it reads the others again at each evaluation of
    the objective. Dicts and attribute lists are vectorised at each reading. To avoid this cost,
    save the output of ``DictFeatures`` or another extractor and use it as the shards.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq import CRFTagger, Shards
    >>> def read_day(day):
    ...     rows = np.random.default_rng(day).normal(size=(20, 10, 3))
    ...     return rows, (rows[:, :, 0] > 0).astype(int)
    >>> shards = Shards([lambda day=day: read_day(day) for day in range(3)], max_memory="100MB")
    >>> tagger = CRFTagger().fit(shards)
    >>> tagger.score(shards) > 0.95
    True
    """

    def __init__(self, sources: Sequence[Any] | PathLike, *, max_memory: int | str | None = None):
        if isinstance(sources, (str, os.PathLike)):
            folder, sources = sources, sorted(Path(sources).glob("*.npz"))
            if not sources:
                raise ValueError(
                    f"Shards needs a folder with .npz files, as Sequences.save writes them; "
                    f"{os.fspath(folder)!r} has none. For a single file, give a list of it."
                )
        if not isinstance(sources, (list, tuple)):
            raise TypeError(
                "Shards needs a list of files, functions or (X, y) tuples, or a folder; got "
                f"{type(sources).__name__}. Make a list of an iterator."
            )
        if not sources:
            raise ValueError("Shards needs at least one shard; got none.")
        self.sources = list(sources)
        for k, source in enumerate(self.sources):
            pair = isinstance(source, tuple) and len(source) in (2, 3)
            if not (pair or callable(source) or isinstance(source, (str, os.PathLike))):
                raise TypeError(
                    f"Shard {k} must be the path of a file, a function that returns (X, y), or "
                    f"(X, y) itself; got {type(source).__name__}."
                )
        self.max_memory = as_bytes(max_memory)

    @property
    def n_shards(self) -> int:
        """Number of shards."""
        return len(self.sources)

    def __repr__(self) -> str:
        return f"<Shards: {self.n_shards} shards, max_memory={self.max_memory:.3g} bytes>"

    def __iter__(self) -> Iterator[tuple]:
        for k in range(self.n_shards):
            yield self.read(k)[:2]

    def read(self, k: int) -> tuple:
        """One shard.

        Parameters
        ----------
        k : int

        Returns
        -------
        X, y, sample_weight
            ``y`` and ``sample_weight`` may be None.
        """
        with named(k, self.sources[k]):
            source = self.sources[k]
            if isinstance(source, (str, os.PathLike)):
                X, y = Sequences.load(source, return_y=True)
                return X, y, read_stored(source).weights
            return split_content(source() if callable(source) else source)

    def to_delayed(self) -> list:
        """Delayed shards for Dask: ``CRFTagger().fit(shards.to_delayed())`` trains on its cluster.

        All workers must find the files under the same paths.

        Returns
        -------
        list of dask.delayed.Delayed
        """
        from dask import delayed

        one = delayed(_read_one, pure=False)
        return [one(source, k) for k, source in enumerate(self.sources)]

    def labelled(self, k: int) -> LabelledRows:
        """One shard with labels as codes, the form for training."""
        with named(k, self.sources[k]):
            source = self.sources[k]
            if isinstance(source, (str, os.PathLike)):
                return read_file(source)
            return _owned(read_content(source())) if callable(source) else read_content(source)

    def file_size(self, k: int) -> int:
        """Size of the file of one shard in bytes; 0 if the shard is not a file."""
        with named(k, self.sources[k]):
            source = self.sources[k]
            return stored_size(source) if isinstance(source, (str, os.PathLike)) else 0


def _read_one(source: Any, k: int) -> Any:
    # Read one source on a worker, in the form that ``read_content`` takes.
    with named(k, source):
        if isinstance(source, (str, os.PathLike)):
            return read_file(source)
        return source() if callable(source) else source


def shard_name(k: int, source: Any = None) -> str:
    file = f" ({os.fspath(source)!r})" if isinstance(source, (str, os.PathLike)) else ""
    return f"Shard {k}{file}"


@contextmanager
def named(k: int, source: Any = None) -> Iterator[None]:
    """Add the name of shard k to errors inside the context."""
    try:
        yield
    except (ShardError, MemoryError):
        raise
    except Exception as error:
        kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
        raise ShardError(f"{shard_name(k, source)}: {kind}{error}") from error


def split_content(content: Any) -> tuple:
    """Return (X, y, sample_weight) from the tuple that a function or a worker returned."""
    if not isinstance(content, tuple) or len(content) not in (2, 3):
        raise ValueError(
            f"a shard must be a tuple (X, y) or (X, y, sample_weight); got "
            f"{type(content).__name__}."
        )
    return (*content, None)[:3]


def read_content(content: Any) -> LabelledRows:
    """Return a shard in the form for training; dicts are vectorised for this shard alone."""
    if isinstance(content, LabelledRows):
        return content
    X, y, weights = split_content(content)
    rows, vectorizer = read_sequences(X, fit=True)
    weights = check_sample_weight(weights, len(rows))
    names = None if vectorizer is None else list(vectorizer.vocabulary_)
    try:
        labels = read_labels(y, rows)
    except PartialLabelError:
        return _partially_labelled(rows, names, y, weights)
    rows, labels, weights = weighted_only(rows, labels, weights)
    classes, codes = np.unique(labels, return_inverse=True)
    return LabelledRows(rows, names, classes, codes.astype(np.int32), weights)


def _owned(rows: LabelledRows) -> LabelledRows:
    # A shard that is kept must not share memory that its function may fill again.
    vectorised = rows.attributes is not None  # which made new arrays
    X = rows.X if vectorised else deepcopy(rows.X)
    return rows._replace(X=X, weights=rows.weights.copy())


def _partially_labelled(
    X: Sequences, names: list | None, y: LabelsLike, weights: np.ndarray
) -> LabelledRows:
    # Leave out sequences of weight 0, and sequences without known labels.
    partial, kept = PartialLabels.read(y, X), np.flatnonzero(weights > 0)
    if len(kept) < len(X):
        y, X, weights = [*y], X[kept], weights[kept]
        partial = PartialLabels.read([y[s] for s in kept])
    classes, codes, table = partial.coded()
    order = np.flatnonzero(has_row(codes != len(classes), X))
    order = order[np.argsort(has_row(codes >= len(classes), X)[order], kind="stable")]
    codes = np.concatenate([codes[:0], *split_labels(codes, X.offsets)[order]])
    return LabelledRows(X[order], names, classes, codes, weights[order], table)


def read_file(path: PathLike) -> LabelledRows:
    """Return a saved shard in the form for training."""
    stored = read_stored(path)
    if stored.codes is None:
        raise ValueError("it holds no labels; save them too: X.save(path, y).")
    X = as_sequences(Sequences(stored.rows, stored.offsets, stored.roles))
    weights = check_sample_weight(stored.weights, len(X))
    if stored.table is not None:
        return _partially_labelled(
            X, None, split_labels(stored.items[stored.codes], X.offsets), weights
        )
    X, codes, weights = weighted_only(X, stored.codes, weights)
    classes, codes = without_unused(stored.classes, codes)
    return LabelledRows(X, None, classes, codes, weights)


def as_bytes(size: Any) -> float:
    """Return a size in bytes; None stands for scikit-learn's working memory."""
    if size is None:
        return get_config()["working_memory"] * 2.0**20
    if isinstance(size, str):
        found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([a-zA-Z]*)\s*", size)
        if found and found[2].upper() in UNITS and float(found[1]) > 0:
            return float(found[1]) * UNITS[found[2].upper()]
    if isinstance(size, (int, float, np.number)) and not isinstance(size, bool) and size > 0:
        return float(size)
    raise ValueError(
        f"max_memory must be a number of bytes above 0, or a string as '500MB' or '2GiB'; got "
        f"{size!r}."
    )

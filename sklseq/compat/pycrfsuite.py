"""Tagger and Trainer with the interface of python-crfsuite.

>>> from sklseq.compat import pycrfsuite

Imports in functions: a tagger is loaded without SciPy and scikit-learn.
"""

import contextlib
import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import numpy as np

from sklseq import runtime
from sklseq._lib.checks import is_number
from sklseq._lib.model_file import MAGIC, file_name
from sklseq._lib.owned import owned
from sklseq.runtime import Decoder

__all__ = ["CRFSUITE_VERSION", "CRFSuiteError", "ItemSequence", "ParsedDump", "Tagger", "Trainer"]

CRFSUITE_VERSION = "0.12.2"  # version whose files and objective are supported
# Items that are not collections, or whose order in a list would differ between processes.
_NOT_LISTED = (str, bytes, Mapping, set, frozenset)
_SWITCHES = {"true": 1.0, "false": 0.0}

# Parameters of CRFsuite's training, with its defaults. Those below the line are settings of
# CRFsuite's solvers, which the solvers of CRFTagger do not use.
_COMMON = {
    "feature.minfreq": 0.0, "feature.possible_states": False,
    "feature.possible_transitions": False,
}  # fmt: skip
_DEFAULTS: dict[str, dict[str, Any]] = {
    "lbfgs": {
        **_COMMON, "c1": 0.0, "c2": 1.0, "max_iterations": 2147483647,
        # ---
        "num_memories": 6, "epsilon": 1e-5, "period": 10, "delta": 1e-5,
        "linesearch": "MoreThuente", "max_linesearch": 20,
    },
    "l2sgd": {
        **_COMMON, "c2": 1.0, "max_iterations": 1000,
        # ---
        "period": 10, "delta": 1e-6, "calibration.eta": 0.1, "calibration.rate": 2.0,
        "calibration.samples": 1000.0, "calibration.candidates": 10, "calibration.max_trials": 20,
    },
}  # fmt: skip


class CRFSuiteError(RuntimeError, ValueError):
    """Error of a tagger: no model is open, or a label is unknown.

    python-crfsuite raises a RuntimeError or a ValueError; a program may catch either.

    Parameters
    ----------
    message : str
    """

    def __init__(self, message: str):
        super().__init__(message)


class ParsedDump(NamedTuple):
    """Content of a model.

    Attributes
    ----------
    labels, attributes : dict of str to str
        Number of each label or attribute, as a string.
    transitions : dict of (label, next label) to float
    state_features : dict of (attribute, label) to float
    """

    labels: dict[str, str]
    attributes: dict[str, str]
    transitions: dict[tuple[str, str], float]
    state_features: dict[tuple[str, str], float]


class ItemSequence:
    """Sequence of items that is checked once for several calls.

    Parameters
    ----------
    xseq : list of dicts, or of collections of attributes
    """

    def __init__(self, xseq: Iterable[Any]):
        self.xseq = _items(xseq)
        for number, item in enumerate(self.xseq):
            if isinstance(item, (str, bytes)) or not isinstance(item, Iterable):
                raise TypeError(
                    f"Item {number} of xseq must be a dict or a collection of strings; got "
                    f"{item!r:.40} ({type(item).__name__})."
                )
            if isinstance(item, (list, tuple)) and any(isinstance(x, Mapping) for x in item):
                raise TypeError(
                    f"Item {number} of xseq must be a dict or a collection of strings; got a "
                    f"{type(item).__name__} of dicts, which is a sequence: give one sequence."
                )

    def __len__(self) -> int:
        return len(self.xseq)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.xseq)

    def items(self) -> list[dict[str, float]]:
        """The attributes of each item, with their weights.

        An attribute that occurs twice in an item is listed once, with its last weight, but
        :class:`Tagger` counts it twice, both as in python-crfsuite.

        Returns
        -------
        list of dict
        """
        from sklseq.features import DictFeatures

        features = DictFeatures()
        split = [list(_one_by_one(item)) for item in self.xseq]
        found = features.inverse_transform(features.fit_transform(split))
        return [{k: v for one in item for k, v in one.items()} for item in found]


def _one_by_one(item: Any) -> Iterator[Any]:
    """Yield items that hold one attribute of this item each."""
    if not isinstance(item, Mapping):
        yield from ([attribute] for attribute in item)
        return
    for key, value in item.items():
        inner = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
        yield from ({key: one} for one in (_one_by_one(value) if inner else [value]))


def _items(xseq: Any, deep: bool = True) -> list:
    # Copies: callers may reuse what they gave. Not ``deep``: without what dicts hold, in half of
    # the time.
    if isinstance(xseq, ItemSequence):
        return xseq.xseq
    is_list = type(xseq) is list  # before the checks of abstract classes, which are slow
    if not is_list and (isinstance(xseq, (str, bytes, Mapping)) or not isinstance(xseq, Iterable)):
        raise TypeError(
            f"xseq must be a list of items or an ItemSequence; got {xseq!r:.40} "
            f"({type(xseq).__name__})."
        )
    if deep:
        return [_own(item) for item in xseq]
    return [item.copy() if type(item) is dict else _own(item) for item in xseq]


def _own(item: Any) -> Any:
    # A copy of an item; collections, which may be iterators, are listed.
    is_listed = isinstance(item, Iterable) and not isinstance(item, _NOT_LISTED)
    return owned(list(item) if is_listed else item)


class Tagger:
    """Tagger with a model of CRFsuite or one that :func:`sklseq.deployment.export` wrote.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklseq.compat import pycrfsuite
    >>> trainer = pycrfsuite.Trainer(verbose=False)
    >>> trainer.append([{"w": "the"}, {"w": "cat"}], ["D", "N"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.crfsuite")
    ...     trainer.train(path)
    ...     tagger = pycrfsuite.Tagger()
    ...     with tagger.open(path):
    ...         tagger.tag([{"w": "the"}, {"w": "cat"}])
    ['D', 'N']
    """

    def __init__(self) -> None:
        self._decoder: Decoder | None = None
        self._marginals: np.ndarray | None
        self._forget([])

    @classmethod
    def of(cls, decoder: Decoder) -> Self:
        """Make a tagger from a loaded model.

        Parameters
        ----------
        decoder : Decoder

        Returns
        -------
        Tagger
        """
        tagger = cls()
        tagger._decoder = decoder
        return tagger

    def _forget(self, items: list) -> None:
        self._sequence, self._marginals = items, None

    def open(self, name: str | os.PathLike[str]) -> contextlib.closing[Self]:
        """Read a model file.

        Parameters
        ----------
        name : str or path

        Returns
        -------
        context manager
            Which closes the model.
        """
        with open(file_name(name), "rb") as file:
            begin = file.read(len(MAGIC))
        _check_begin(begin, os.fspath(name))
        self._decoder = runtime.load(name) if begin == MAGIC else _of_crfsuite(name)
        self._forget([])
        return contextlib.closing(self)

    def open_inmemory(self, value: bytes) -> contextlib.closing[Self]:
        """Read the content of a model file.

        Parameters
        ----------
        value : bytes

        Returns
        -------
        context manager
            Which closes the model.
        """
        if not isinstance(value, bytes):
            raise ValueError(f"value must be the bytes of a model file; got {value!r:.40}.")
        _check_begin(value, "value")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model")
            with open(path, "wb") as file:
                file.write(value)
            return self.open(path)

    def close(self) -> None:
        """Forget the model."""
        self._decoder = None

    def _opened(self) -> Decoder:
        if self._decoder is None:
            raise CRFSuiteError("The tagger is not opened: call open or open_inmemory first.")
        return self._decoder

    def labels(self) -> list[str]:
        """The labels of the model.

        Returns
        -------
        list of str
        """
        return list(self._opened().classes_)

    def set(self, xseq: Iterable[Any]) -> None:
        """Set the sequence for :meth:`tag`, :meth:`probability` and :meth:`marginal`.

        Parameters
        ----------
        xseq : list of items, or ItemSequence
        """
        self._opened()
        self._forget(_items(xseq))

    def tag(self, xseq: Iterable[Any] | None = None) -> list[str]:
        """The best labels of a sequence.

        Parameters
        ----------
        xseq : list of items, or ItemSequence, default=None
            None: the sequence that was set, or tagged last.

        Returns
        -------
        list of str
        """
        decoder = self._opened()
        if xseq is not None:
            self._forget(_items(xseq, deep=False))
        return decoder.predict_single(self._sequence)

    def marginal(self, y: str, pos: int) -> float:
        """Marginal probability of a label.

        Parameters
        ----------
        y : str
        pos : int
            Number of the item, from 0.

        Returns
        -------
        float
            0 if no sequence, or an empty one, is set.
        """
        decoder, n = self._opened(), len(self._sequence)
        if not n:
            return 0.0
        if not is_number(pos) or pos not in range(n):
            raise ValueError(f"pos must be a position of the {n} items; got {pos}.")
        self._check_labels([y])
        if self._marginals is None:
            self._marginals = decoder.predict_proba([self._sequence])[0]
        return float(self._marginals[int(pos), decoder.classes_.index(y)])

    def probability(self, yseq: Iterable[str]) -> float:
        """Probability of a label sequence.

        Parameters
        ----------
        yseq : list of str

        Returns
        -------
        float
            0 if no sequence, or an empty one, is set.
        """
        decoder, labels, n = self._opened(), list(yseq), len(self._sequence)
        if not n:
            return 0.0
        if len(labels) != n:
            raise ValueError(f"yseq must have a label for each of {n} items; got {len(labels)}.")
        self._check_labels(labels)
        return float(np.exp(decoder.predict_log_proba_sequence([self._sequence], [labels])[0]))

    def _check_labels(self, labels: list[str]) -> None:
        known = self._opened().classes_
        for label in labels:
            if label not in known:
                raise CRFSuiteError(
                    f"{label!r} is not a label of the model, whose labels are {known}."
                )

    def info(self) -> ParsedDump:
        """Labels, attributes and weights of the model.

        Returns
        -------
        ParsedDump
        """
        decoder = self._opened()
        return ParsedDump(
            {label: str(k) for k, label in enumerate(decoder.classes_)},
            {name: str(k) for k, name in enumerate(decoder.attributes)},
            decoder.transition_features,
            decoder.state_features,
        )


def _check_begin(content: bytes, name: Any) -> None:
    if not content.startswith((b"lCRF", MAGIC)):
        raise ValueError(
            f"{name} is neither a model file of CRFsuite nor one that sklseq.deployment.export "
            f"wrote: it begins with {content[:8]!r}. Give the model file."
        )


def _of_crfsuite(path: Any) -> Decoder:
    from sklseq.deployment import describe
    from sklseq.estimators.crf.crfsuite_model import read_crfsuite_model

    return Decoder(describe(read_crfsuite_model(path)))


class Trainer:
    """Trainer of a CRF on sequences that are appended one by one; writes a file of CRFsuite.

    The objective is CRFsuite's; :class:`sklseq.CRFTagger` minimises it. "l2sgd" has the same
    objective with ``c1 = 0``. CRFsuite's perceptron, "pa" and "arow" are not offered.

    Parameters
    ----------
    algorithm : {"lbfgs", "l2sgd"}, default=None
        None: "lbfgs".
    params : dict, default=None
        As in :meth:`set_params`.
    verbose : bool, default=True
        Whether the objective is printed after each iteration.

    Notes
    -----
    ``c1``, ``c2``, ``max_iterations``, ``feature.possible_states`` and
    ``feature.possible_transitions`` have an effect. The others are settings of CRFsuite's solvers:
    they are stored without effect. ``feature.minfreq`` must be at most 1. CRFsuite leaves out pairs
    of attribute and label whose values add up to less than it; here they keep their weights.
    """

    def __init__(
        self,
        algorithm: str | None = None,
        params: Mapping[str, Any] | None = None,
        verbose: bool = True,
    ):
        self.verbose = verbose
        self.clear()
        self.select(algorithm or "lbfgs")
        self.set_params(params or {})

    def select(self, algorithm: str, type: str = "crf1d") -> None:
        """Choose the algorithm; its parameters get their defaults.

        Parameters
        ----------
        algorithm : {"lbfgs", "l2sgd"}
        type : {"crf1d"}
        """
        if algorithm not in _DEFAULTS or type != "crf1d":
            raise ValueError(
                f"algorithm must be one of {tuple(_DEFAULTS)}, and type 'crf1d'; got "
                f"{algorithm!r}, {type!r}. For margins and perceptrons see sklseq.HMSVMTagger."
            )
        self.algorithm = algorithm
        self._params = dict(_DEFAULTS[algorithm])

    def append(self, xseq: Iterable[Any], yseq: Iterable[str], group: int = 0) -> None:
        """Add a sequence to the training data.

        Parameters
        ----------
        xseq : list of items, or ItemSequence
        yseq : list of str
        group : int, default=0
            A number that :meth:`train` can name as ``holdout``.
        """
        items = _items(xseq)
        labels = [label.decode() if isinstance(label, bytes) else label for label in yseq]
        if len(items) != len(labels):
            raise ValueError(
                f"xseq and yseq must be equally long; got {len(items)} items and {len(labels)} "
                "labels."
            )
        for label in labels:
            if not isinstance(label, str):
                raise TypeError(
                    f"yseq must be a list of strings; got the label {label!r:.40} "
                    f"({type(label).__name__})."
                )
        self._data.append((items, labels, int(group)))

    def clear(self) -> None:
        """Forget the training data."""
        self._data: list[tuple[list, list, int]] = []

    def params(self) -> list[str]:
        """Names of the parameters of the algorithm.

        Returns
        -------
        list of str
        """
        return list(self._params)

    def get_params(self) -> dict[str, Any]:
        """All parameters.

        Returns
        -------
        dict
        """
        return dict(self._params)

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Set several parameters.

        Parameters
        ----------
        params : dict
            If one value is invalid, no parameter is set.
        """
        before = dict(self._params)
        try:
            for name, value in params.items():
                self.set(name, value)
        except ValueError:
            self._params = before
            raise

    def get(self, name: str) -> str | float | bool:
        """The value of a parameter.

        Parameters
        ----------
        name : str

        Returns
        -------
        str, number or bool
        """
        self._check_name(name)
        value: str | float | bool = self._params[name]
        return value

    def set(self, name: str, value: str | float | bool) -> None:
        """Set a parameter.

        Parameters
        ----------
        name : str
        value : str, number or bool
            Numbers may be strings; switches may be "true" and "false", in any case.
            (python-crfsuite reads "true" as False, without an error.)
        """
        self._check_name(name)
        kind = type(_DEFAULTS[self.algorithm][name])
        if kind is str:
            if not isinstance(value, str):
                raise ValueError(f"{name} must be a string; got {value!r}.")
            self._params[name] = value
            return
        switch = _SWITCHES.get(str(value).lower()) if kind is bool else None
        try:
            number = float(value) if switch is None else switch
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(
                f"{name} must be a {'switch' if kind is bool else 'number'}; got {value!r}."
            )
        self._params[name] = kind(number)

    def _check_name(self, name: str) -> None:
        if name not in self._params:
            raise ValueError(
                f"{name!r} is not a parameter of {self.algorithm!r}; they are {self.params()}."
            )

    def train(self, model: str | os.PathLike[str], holdout: int = -1) -> None:
        """Train, and write the model file.

        Parameters
        ----------
        model : str or path
            No file is written for "".
        holdout : int, default=-1
            The ``group`` of :meth:`append` whose sequences are not used in training; -1: none.
        """
        from sklseq.estimators.crf.crfsuite_writer import write_crfsuite_model

        kept = [(x, y) for x, y, group in self._data if group != holdout]
        tagger = self._tagger().fit([x for x, _ in kept], [y for _, y in kept])
        if os.fspath(model):
            write_crfsuite_model(tagger, model)

    def _tagger(self) -> Any:
        given = self._params
        if given["feature.minfreq"] > 1:
            raise ValueError(
                "feature.minfreq, a count of pairs of attribute and label, is not supported; use a "
                "Pipeline of sklseq.features.DictFeatures(min_count=...) and CRFTagger."
            )
        return crf_tagger(
            l1=given.get("c1", 0.0),
            l2=given["c2"],
            all_possible_states=given["feature.possible_states"],
            all_possible_transitions=given["feature.possible_transitions"],
            max_iter=min(int(given["max_iterations"]), 100_000),
            verbose=int(self.verbose),
        )


def crf_tagger(**parameters: Any) -> Any:
    """Return a CRFTagger with the objective and the accuracy of CRFsuite."""
    from sklseq.estimators.crf.crf_tagger import CRFTagger

    return CRFTagger(boundaries=False, tol=1e-4, **parameters)

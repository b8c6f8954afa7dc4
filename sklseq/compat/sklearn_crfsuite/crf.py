"""CRF with the interface of that of sklearn-crfsuite."""

import os
import tempfile
from collections.abc import Iterable
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklseq.compat.pycrfsuite import Tagger, crf_tagger
from sklseq.data.labels import LabelLists
from sklseq.deployment import describe
from sklseq.estimators.crf.crfsuite_writer import write_crfsuite_model
from sklseq.runtime import Decoder

# Parameters of sklearn-crfsuite that are not supported, and alternatives.
_NOT_OFFERED = {
    "min_freq": "count with sklseq.features.DictFeatures(min_count=...) before CRFTagger",
    **dict.fromkeys(
        ("pa_type", "c", "error_sensitive", "averaging", "variance", "gamma"),
        "for margins and perceptrons see sklseq.HMSVMTagger",
    ),
    "model_filename": "write crf.model_ with sklseq.write_crfsuite_model",
    "trainer_cls": "use verbose=True to see the training",
}
# What is made of the model when first used, and is neither pickled nor kept by another fit.
_LOADED = ("_decoder", "tagger_")


class CRF(BaseEstimator):
    """Conditional random field with the methods of ``sklearn_crfsuite.CRF``.

    Parameters
    ----------
    algorithm : {"lbfgs", "l2sgd", None}, default="lbfgs"
        For both, :class:`sklseq.CRFTagger` minimises the objective of CRFsuite.
    c1, c2 : float, default=None
        Weights of the L1 and the squared L2 penalty. None: 0 and 1.
    max_iterations : int, default=None
        None: until convergence, at most 100,000.
    all_possible_states, all_possible_transitions : bool, default=False
        Whether pairs that do not occur in the training data have weights.
    verbose : bool, default=False
    num_memories, epsilon, period, delta, linesearch, max_linesearch, calibration_eta, \
calibration_rate, calibration_samples, calibration_candidates, calibration_max_trials, \
keep_tempfiles : default=None
        Settings of CRFsuite's solvers, accepted without effect.
    min_freq, pa_type, c, error_sensitive, averaging, variance, gamma, model_filename, \
trainer_cls : default=None
        Not supported: ``fit`` raises for values other than None, except ``min_freq=0``, which is
        the default of CRFsuite.

    Attributes
    ----------
    model_ : CRFTagger

    Notes
    -----
    Before ``fit``, ``tagger_``, ``classes_`` and the other results raise NotFittedError; in
    sklearn-crfsuite they are None.

    Examples
    --------
    >>> from sklseq.compat.sklearn_crfsuite import CRF
    >>> X, y = [[{"w": "the"}, {"w": "cat"}]], [["D", "N"]]
    >>> crf = CRF(c2=0.1).fit(X, y)
    >>> crf.predict(X), sorted(crf.state_features_)
    ([['D', 'N']], [('w:cat', 'N'), ('w:the', 'D')])
    """

    def __init__(
        self,
        algorithm: str | None = "lbfgs",
        *,
        c1: float | None = None,
        c2: float | None = None,
        max_iterations: int | None = None,
        all_possible_states: bool = False,
        all_possible_transitions: bool = False,
        verbose: bool = False,
        num_memories: int | None = None,
        epsilon: float | None = None,
        period: int | None = None,
        delta: float | None = None,
        linesearch: str | None = None,
        max_linesearch: int | None = None,
        calibration_eta: float | None = None,
        calibration_rate: float | None = None,
        calibration_samples: float | None = None,
        calibration_candidates: int | None = None,
        calibration_max_trials: int | None = None,
        keep_tempfiles: bool | None = None,
        min_freq: float | None = None,
        pa_type: int | None = None,
        c: float | None = None,
        error_sensitive: bool | None = None,
        averaging: bool | None = None,
        variance: float | None = None,
        gamma: float | None = None,
        model_filename: str | None = None,
        trainer_cls: type | None = None,
    ):
        self.algorithm = algorithm
        self.c1 = c1
        self.c2 = c2
        self.max_iterations = max_iterations
        self.all_possible_states = all_possible_states
        self.all_possible_transitions = all_possible_transitions
        self.verbose = verbose
        self.num_memories = num_memories
        self.epsilon = epsilon
        self.period = period
        self.delta = delta
        self.linesearch = linesearch
        self.max_linesearch = max_linesearch
        self.calibration_eta = calibration_eta
        self.calibration_rate = calibration_rate
        self.calibration_samples = calibration_samples
        self.calibration_candidates = calibration_candidates
        self.calibration_max_trials = calibration_max_trials
        self.keep_tempfiles = keep_tempfiles
        self.min_freq = min_freq
        self.pa_type = pa_type
        self.c = c
        self.error_sensitive = error_sensitive
        self.averaging = averaging
        self.variance = variance
        self.gamma = gamma
        self.model_filename = model_filename
        self.trainer_cls = trainer_cls

    def fit(
        self,
        X: Iterable[Iterable[Any]],
        y: Iterable[Iterable[str]],
        X_dev: Iterable[Iterable[Any]] | None = None,
        y_dev: Iterable[Iterable[str]] | None = None,
    ) -> Self:
        """Train on labelled sequences.

        Parameters
        ----------
        X : list of sequences of feature dicts or attributes
        y : list of label sequences
        X_dev, y_dev : as X and y, optional
            CRFsuite reports scores on these sequences; here they are ignored.

        Returns
        -------
        CRF
            The estimator itself.
        """
        if self.algorithm not in ("lbfgs", "l2sgd", None):
            raise ValueError(
                f"algorithm must be 'lbfgs' or 'l2sgd'; got {self.algorithm!r}. For margins and "
                "perceptrons see sklseq.HMSVMTagger."
            )
        for name, instead in _NOT_OFFERED.items():
            value = getattr(self, name)
            if value is not None and (name, value) != ("min_freq", 0):
                raise ValueError(f"{name}={value!r} is not offered; leave it None, and {instead}.")
        if (X_dev is None) != (y_dev is None):
            raise ValueError("X_dev and y_dev must be given together; pass both or neither.")
        model = crf_tagger(
            l1=0.0 if self.c1 is None else self.c1,
            l2=1.0 if self.c2 is None else self.c2,
            all_possible_states=self.all_possible_states,
            all_possible_transitions=self.all_possible_transitions,
            max_iter=100_000 if self.max_iterations is None else self.max_iterations,
            verbose=int(self.verbose),
        ).fit([list(x) for x in X], [list(labels) for labels in y])
        for name in _LOADED:
            self.__dict__.pop(name, None)
        self.model_ = model
        return self

    @cached_property
    def _decoder(self) -> Decoder:
        check_is_fitted(self, "model_")
        return Decoder(describe(self.model_))

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in super().__getstate__().items() if k not in _LOADED}

    def predict(self, X: Iterable[Iterable[Any]]) -> list[list[str]]:
        """The best labels of each sequence.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of list of str
            NumPy reads it as an object array of lists.
        """
        return LabelLists(self._decoder.predict([list(x) for x in X]))

    def predict_single(self, xseq: Iterable[Any]) -> list[str]:
        """The best labels of one sequence.

        Parameters
        ----------
        xseq : list of items

        Returns
        -------
        list of str
        """
        return self._decoder.predict_single(list(xseq))

    def predict_marginals(self, X: Iterable[Iterable[Any]]) -> list[list[dict[str, float]]]:
        """Marginal probabilities of the labels of each item.

        Parameters
        ----------
        X : list of sequences

        Returns
        -------
        list of list of dict from label to float
        """
        names = self._decoder.classes_
        return LabelLists(
            [dict(zip(names, row)) for row in marginals.tolist()]
            for marginals in self._decoder.predict_proba([list(x) for x in X])
        )

    def predict_marginals_single(self, xseq: Iterable[Any]) -> list[dict[str, float]]:
        """Marginal probabilities of the labels of each item of one sequence.

        Parameters
        ----------
        xseq : list of items

        Returns
        -------
        list of dict from label to float
        """
        return self.predict_marginals([xseq])[0]

    def score(self, X: Iterable[Iterable[Any]], y: Iterable[Iterable[str]]) -> float:
        """Fraction of items whose label is right.

        Parameters
        ----------
        X : list of sequences
        y : list of label sequences

        Returns
        -------
        float
        """
        truth = [label for labels in y for label in labels]
        found = [label for labels in self.predict(X) for label in labels]
        if len(truth) != len(found) or not truth:
            raise ValueError(f"X and y must be equally long; got {len(found)} and {len(truth)}.")
        return float(np.mean([a == b for a, b in zip(truth, found)]))

    @cached_property
    def tagger_(self) -> Tagger:
        """Tagger of the model with the interface of python-crfsuite; it keeps the sequence set."""
        return Tagger.of(self._decoder)

    @property
    def classes_(self) -> list[str]:
        """Labels."""
        check_is_fitted(self, "model_")
        return self.model_.classes_.tolist()

    @property
    def attributes_(self) -> list[str]:
        """Attributes."""
        return self._decoder.attributes

    @property
    def num_attributes_(self) -> int:
        """Number of attributes."""
        return len(self.attributes_)

    @property
    def size_(self) -> int:
        """Size of the model as a file of CRFsuite, in bytes."""
        check_is_fitted(self, "model_")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model")
            write_crfsuite_model(self.model_, path)
            return os.path.getsize(path)

    @property
    def state_features_(self) -> dict[tuple[str, str], float]:
        """Weights of (attribute, label)."""
        return self._decoder.state_features

    @property
    def transition_features_(self) -> dict[tuple[str, str], float]:
        """Weights of (label, next label)."""
        return self._decoder.transition_features

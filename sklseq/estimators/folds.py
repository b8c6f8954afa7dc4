"""Checks of the folds and scores of searches over penalties."""

import inspect
import math
import numbers
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from sklseq._lib.checks import is_number
from sklseq._lib.signatures import takes
from sklseq.data.segment_potentials import SegmentPotentials
from sklseq.data.sequences import Sequences
from sklseq.data.tables import list_sequences
from sklseq.metrics import SCORERS, get_scorer

Fold = tuple[NDArray[np.intp], NDArray[np.intp]]


def as_list(X: Any) -> Any:
    """Return X in a form that can be divided into folds: packed, or a list of sequences."""
    return X if isinstance(X, (Sequences, SegmentPotentials)) else list_sequences(X)


def take(sequences: Any, which: Iterable[int]) -> Any:
    """Select sequences, or labels of sequences, by number."""
    if isinstance(sequences, (Sequences, SegmentPotentials)):
        return sequences[np.asarray(which)]
    return [sequences[s] for s in which]


def of_positive_weight(X: Any, y: Any, weights: Any) -> tuple[Any, Any, Any]:
    """Return X, y and the weights, checked or None, without sequences of weight 0."""
    if weights is None or weights.all():
        return X, y, weights
    kept = np.flatnonzero(weights)
    return take(as_list(X), kept), take(y, kept), weights[kept]


def read_folds(
    cv: Any, y: np.ndarray, rows: np.ndarray, test_rows: np.ndarray, **params: Any
) -> list[Fold]:
    """Return (train, test) of each fold, as numbers of sequences.

    ``cv``: None for 5 folds, or one for each sequence if there are fewer.
    ``rows``, ``test_rows``: for each sequence, whether it has rows to train and to test on.
    ``params``: metadata of the splitter.
    """
    _check_cv(cv)
    splitter = check_cv(_number_of_folds(cv, len(rows)))
    for k, fold in enumerate(getattr(splitter, "cv", ())):  # a list of folds
        _check_pair(k, fold)
    if "Stratified" in type(splitter).__name__:
        raise ValueError(
            f"cv={splitter} needs one class for each sample, and a sequence of labels has none; "
            "use KFold or GroupKFold."
        )
    try:
        folds = list(splitter.split(np.zeros((len(rows), 1)), y, **params))
    except ValueError as error:
        if "groups" in str(error) and params.get("groups") is None:
            raise ValueError(f"cv={splitter} needs groups; call fit(X, y, groups=...).") from error
        raise ValueError(f"cv={splitter} cannot divide {len(rows)} sequences: {error}") from error
    if not folds:
        raise ValueError(f"cv must give at least one pair (train, test); got {cv!r}.")
    return [_read_fold(k, fold, rows, test_rows) for k, fold in enumerate(folds)]


def _check_cv(cv: Any) -> None:
    whole = is_number(cv, whole=True)
    listed = isinstance(cv, Iterable) and not isinstance(cv, str)
    if isinstance(cv, str) or not (cv is None or whole or listed or hasattr(cv, "split")):
        raise ValueError(
            "cv must be a number of folds, a splitter or a list of pairs (train, test); got "
            f"{cv!r}."
        )


def _number_of_folds(cv: Any, n: int) -> Any:
    # 5 or fewer if cv is None; other values of cv as they are.
    if isinstance(cv, numbers.Integral) and not 2 <= cv <= n:
        raise ValueError(
            f"cv={cv} must be at least 2 and at most the number of sequences, {n}; change it, or "
            "cut long sequences into pieces."
        )
    if cv is None and n < 2:
        raise ValueError(
            f"cv=None needs at least 2 sequences to make folds; got {n}. Cut long sequences into "
            "pieces."
        )
    return min(5, n) if cv is None else cv


def _check_pair(k: int, fold: Any) -> None:
    if not isinstance(fold, (tuple, list)) or len(fold) != 2:
        raise ValueError(
            "cv must give pairs (train, test) of lists of numbers of sequences; fold "
            f"{k} is {fold!r}."
        )


def _read_fold(k: int, fold: Fold, rows: np.ndarray, test_rows: np.ndarray) -> Fold:
    train = _read_part(f"training part of fold {k}", fold[0], rows)
    return train, _read_part(f"test part of fold {k}", fold[1], test_rows)


def _read_part(what: str, part: Any, rows: np.ndarray) -> NDArray[np.intp]:
    n = len(rows)
    try:
        chosen = np.asarray(part)
    except ValueError:  # rows of different length
        chosen = np.zeros(())
    if chosen.dtype == np.bool_ and chosen.shape == (n,):
        chosen = np.flatnonzero(chosen)
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise ValueError(
            f"The {what} of cv must be a list of numbers of sequences from 0 to {n - 1}; got "
            f"{part!r}."
        )
    if len(wrong := chosen[(chosen < 0) | (chosen >= n)]):
        raise ValueError(
            f"The {what} of cv must hold numbers of sequences from 0 to {n - 1}; got {wrong[0]}."
        )
    chosen = chosen.astype(np.intp)
    if not rows[chosen].any():
        raise ValueError(
            f"The {what} of cv must hold a sequence with rows and a weight above 0; its "
            f"{len(chosen)} sequences have none."
        )
    return chosen


def read_scorer(scoring: Any, *other: str) -> Callable[..., float] | None:
    """Return the scorer that ``scoring`` names; None for None and for the names in ``other``."""
    if scoring is None or (isinstance(scoring, str) and scoring in other):
        return None
    names = (*other, *SCORERS)
    if not callable(scoring) and not (isinstance(scoring, str) and scoring in names):
        raise ValueError(
            f"scoring must be None, a scorer of labels or one of {names}; got {scoring!r}."
        )
    if callable(scoring) and not takes(scoring, 3):
        raise ValueError(
            f"scoring must be a function of an estimator, X and y; {scoring!r} does not take three "
            "arguments. Convert a metric by sklearn.metrics.make_scorer."
        )
    return scoring if callable(scoring) else get_scorer(scoring)


def scorer_weights(scorer: Callable[..., float] | None, weights: dict[str, Any]) -> dict[str, Any]:
    """Return ``weights`` if the scorer has an argument sample_weight, else {}, with a warning."""
    if scorer is None or not weights:
        return weights
    try:
        arguments = inspect.signature(getattr(scorer, "_score_func", scorer)).parameters
    except (TypeError, ValueError):  # no signature
        return weights
    if "sample_weight" in arguments or any(a.kind == a.VAR_KEYWORD for a in arguments.values()):
        return weights
    warnings.warn(
        f"scoring={scorer!r} has no argument sample_weight, so scores are not weighted.",
        UserWarning,
        stacklevel=4,
    )
    return {}


def read_number(score: Any) -> float:
    if not isinstance(score, numbers.Real) and getattr(score, "shape", None) != ():
        raise ValueError(f"scoring must return a number, got {score!r}.")
    return float(score)


def check_finite(name: str, scores: dict[str, float], scored: dict[str, bool]) -> None:
    """Warn about points whose mean score is not finite; raise if no point has a finite one.

    ``scored``: whether a point was scored in all folds that it entered.
    """
    if not any(map(math.isfinite, scores.values())):
        raise ValueError(
            f"{name} found no finite score: scoring must return a finite number for some "
            "penalties; test it on one fitted tagger."
        )
    if wrong := [point for point, finite in scored.items() if not finite]:
        warnings.warn(
            f"{name}: scores are not finite at {'; '.join(wrong)}; these penalties are not chosen.",
            UserWarning,
            stacklevel=4,
        )

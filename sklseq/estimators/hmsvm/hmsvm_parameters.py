"""What the parameters of HMSVMTagger mean, and which are refused."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from sklseq._lib.estimator import check_plain_parameters
from sklseq.data.labels import resolve_loss
from sklseq.estimators.hmsvm.kernel_functions import NAMES
from sklseq.estimators.validation import check_n_jobs
from sklseq.objectives.margin.hinge import PathLoss

__all__ = ["EFFORT", "PASSES", "check_parameters", "choose_solver", "path_loss"]

PASSES = {"bcfw": 1000, "working_set": 1000, "perceptron": 10}
# Effort of "bcfw" on a sequence, and on all of them between two passes. With the linear kernel,
# what costs is to read the scores of a sequence: it pays to search more than once while they are at
# hand, and to go over the paths at hand, which are wrong in few rows. With others, it is to bring
# the scores of all rows up to date, once a visit: more steps, fewer visits.
EFFORT = {
    "linear": {"n_steps": 3, "n_searches": 3, "n_revisits": 4},
    "other": {"n_steps": 20, "n_searches": 1, "n_revisits": 0},
}


def choose_solver(solver: str, kernel: str | Callable[..., Any]) -> tuple[str, dict[str, int]]:
    """The solver that ``solver`` names, and the effort of "bcfw"."""
    name = "bcfw" if solver == "auto" else solver
    return name, EFFORT["linear" if kernel == "linear" else "other"]


def check_parameters(tagger: Any) -> None:
    """Raise on a parameter of HMSVMTagger that is bad whatever the data."""
    check_plain_parameters(tagger)
    if not isinstance(tagger.C, numbers.Real) or not tagger.C > 0:
        raise ValueError(
            f"C must be a number above 0 (np.inf for a hard margin); got {tagger.C!r}."
        )
    for name in ("tol", "transition_scale", "cache_size"):
        value = getattr(tagger, name)
        if not isinstance(value, numbers.Real) or not 0 <= value < np.inf:
            raise ValueError(f"{name} must be a finite number of at least 0; got {value!r}.")
    if tagger.max_iter is not None and (
        not isinstance(tagger.max_iter, numbers.Integral) or tagger.max_iter < 1
    ):
        raise ValueError(
            f"max_iter must be None or an integer of at least 1; got {tagger.max_iter!r}."
        )
    for name, choices in (
        ("slack", ("l1", "l2")),
        ("solver", ("auto", *PASSES)),
        ("average", ("auto", True, False)),
    ):
        if getattr(tagger, name) not in choices:
            raise ValueError(f"{name} must be one of {choices}; got {getattr(tagger, name)!r}.")
    if tagger.solver == "working_set" and tagger.average is True:
        raise ValueError(
            "average=True needs solver='bcfw' or 'perceptron'; got 'working_set', whose last "
            "weights are its best."
        )
    check_n_jobs(tagger.n_jobs)
    _check_kernel(tagger)


def _check_kernel(tagger: Any) -> None:
    if not callable(tagger.kernel) and tagger.kernel not in NAMES:
        raise ValueError(f"kernel must be one of {NAMES} or a callable; got {tagger.kernel!r}.")
    if isinstance(tagger.gamma, numbers.Real):
        if not 0 < tagger.gamma < np.inf:
            raise ValueError(f"gamma must be above 0 and finite; got {tagger.gamma!r}.")
    elif tagger.gamma not in ("scale", "auto"):
        raise ValueError(f"gamma must be 'scale', 'auto' or a number; got {tagger.gamma!r}.")
    if not isinstance(tagger.degree, numbers.Integral) or tagger.degree < 1:
        raise ValueError(f"degree must be an integer of at least 1; got {tagger.degree!r}.")
    if not isinstance(tagger.coef0, numbers.Real) or not 0 <= tagger.coef0 < np.inf:
        raise ValueError(
            "coef0 must be finite and not negative, lest the kernel be indefinite; got "
            f"{tagger.coef0!r}."
        )


def path_loss(tagger: Any, classes: np.ndarray, labels: np.ndarray) -> PathLoss:
    """What ``loss`` and ``class_weight`` mean for these labels."""
    zero_one = isinstance(tagger.loss, str) and tagger.loss == "zero_one"
    if isinstance(tagger.loss, str) and tagger.loss not in ("hamming", "zero_one"):
        raise ValueError(f"loss must be 'hamming', 'zero_one' or a matrix; got {tagger.loss!r}.")
    if tagger.loss is None:
        raise ValueError("loss must be 'hamming', 'zero_one' or a matrix; got None.")
    if zero_one and tagger.class_weight is not None:
        raise ValueError(
            "class_weight weighs wrong labels, which loss='zero_one' does not count; use "
            "loss='hamming' or a matrix, or sample_weight."
        )
    if zero_one:
        return PathLoss(np.zeros((len(classes), len(classes))), 1.0)
    by_class = np.ones(len(classes))
    if tagger.class_weight is not None:
        by_class = compute_class_weight(tagger.class_weight, classes=classes, y=labels)
    if not (np.isfinite(by_class).all() and (by_class >= 0).all()):
        raise ValueError(f"class_weight must be finite and not negative; got {by_class}.")
    loss = PathLoss(by_class[:, None] * resolve_loss(tagger.loss, classes), 0.0)
    if np.isinf(tagger.C) and loss.least == 0:
        raise ValueError(
            "A hard margin (C=inf) needs a loss above 0 for every wrong labeling; got a matrix or "
            "class_weight with 0 between different labels. Give a finite C."
        )
    return loss

"""Readers and checks of the arguments of `fit` and `predict`, and of parameters."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from sklseq._lib.checks import check_choice, check_number
from sklseq.data.input_kinds import check_in_memory
from sklseq.data.sequences import (
    Sequences,
    as_numbers,
    is_sparse,
    pack,
    read_form,
)
from sklseq.data.types import SequencesLike

ATTRIBUTES_WARNED = "_new_attributes_warned"  # set once warn_new_attributes has warned


LARGEST_PENALTY = 1e100


def read_sequences(
    X: SequencesLike, vectorizer: Any = None, *, fit: bool = False, finite: bool = True
) -> tuple:
    """Return any input form as ``(Sequences, vectorizer)``; dicts and attributes need a vectorizer.

    ``finite=False``: do not check for NaN and infinity, as computing scores does it.
    """
    check_in_memory(X)
    form, sequences = read_form(X)
    if fit and form in ("dicts", "attributes"):
        from sklseq.features import DictFeatures  # not for rows of numbers

        vectorizer = DictFeatures()
        return vectorizer.fit_transform(sequences), vectorizer
    if form in ("dicts", "attributes") or (form == "empty" and vectorizer is not None):
        if vectorizer is None:
            raise ValueError(
                f"X holds {form}, but this estimator was fitted on arrays; pass rows of features."
            )
        return vectorizer.transform(sequences), vectorizer
    if vectorizer is not None and not fit and form != "packed":
        raise ValueError(
            "X holds arrays, but this estimator was fitted on feature dicts or attributes; "
            "pass those."
        )
    return pack(form, sequences, finite=finite), None


def refuse_roles(X: Sequences) -> Sequences:
    """Return X; raise if its columns have roles. For estimators without transition features."""
    if X.roles is not None:
        raise ValueError(
            "X gives transition features, such as those of B lines of a template, which only "
            "CRFTagger and HMSVMTagger train; leave them out, or train one of these."
        )
    return X


def check_same_roles(before: np.ndarray | None, now: np.ndarray | None) -> None:
    """Raise unless the columns of all batches have the same roles; None: no transition features."""
    if before is None and now is None:
        return
    words = ["with" if roles is not None else "without" for roles in (now, before)]
    found = f"{words[0]} transition features, but training began {words[1]} them"
    if words[0] == words[1]:
        found = "with other columns as transition features than training began with"
    if not np.array_equal(before, now):
        raise ValueError(
            f"partial_fit got X {found}; transition_features and the columns of X must stay as "
            "they were."
        )


def other_width(n_features: int, expected: int, origin: str, what: str = "X") -> ValueError:
    """Return the error for rows with another number of features than in training."""
    return ValueError(
        f"{what} has {n_features} features, but {origin} {expected}; extract them with the same "
        "fitted transformer."
    )


def check_magnitude(X: Any, what: str, limit: float = 0.0) -> None:
    """Raise where squares or cubes of features would overflow."""
    values = X.rows.data if is_sparse(X.rows) else X.rows
    limit = limit or (1e15 if X.dtype == np.float32 else 1e50)
    top = max(float(values.max()), -float(values.min())) if values.size else 0.0
    if top > limit:
        raise ValueError(
            f"X holds a feature of magnitude {top:.3g}; {what} multiplies features by each other, "
            f"so at most {limit:.0e} is allowed for {X.dtype}. Scale the features, e.g. by "
            "PerToken(MaxAbsScaler())."
        )


def check_numbers(
    estimator: Any, *names: str, least: float = 0, most: float = np.inf, whole: bool = False
) -> None:
    """:func:`check_number` of parameters of an estimator."""
    for name in names:
        check_number(name, getattr(estimator, name), least, most, whole=whole)


def check_flags(name: str, values: Any, n_sequences: int) -> np.ndarray:
    """Return one bool for each sequence; raise unless values are booleans, 0 or 1."""
    flags = as_numbers(values, name)
    wrong = flags[(flags != 0) & (flags != 1)]
    if flags.shape != (n_sequences,) or wrong.size:
        got = f"the value {wrong[0]}" if wrong.size else f"shape {flags.shape}"
        raise ValueError(
            f"{name} must hold one boolean, 0 or 1, for each sequence of X, shape "
            f"({n_sequences},); got {got}."
        )
    return flags.astype(bool)


def check_choices(estimator: Any, **allowed: tuple) -> None:
    """Raise unless each parameter is one of the values allowed for it."""
    for name, choices in allowed.items():
        check_choice(name, getattr(estimator, name), choices)


def read_class_weight(
    class_weight: Any, classes: np.ndarray, codes: np.ndarray, weights: np.ndarray,
    positive: bool = False,
) -> np.ndarray | None:  # fmt: skip
    """Return the weight of each label, checked; None without ``class_weight``.

    "balanced" gives all labels of y the same sum over rows of ``weights`` times this weight.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, Mapping):
        _check_labels_weighed(class_weight, classes.tolist())
    elif not (isinstance(class_weight, str) and class_weight == "balanced"):
        raise ValueError(
            "class_weight must be None, 'balanced' or a dict of weights by label; got "
            f"{class_weight!r}."
        )
    by_label = class_weight
    if isinstance(class_weight, str):
        sums = np.bincount(codes, weights, len(classes))
        factors = sums.sum() / np.where(sums > 0, len(classes) * sums, np.inf)
        by_label = dict(zip(classes.tolist(), factors.tolist()))
    # Not by the function of scikit-learn, which takes the label "1" for 1.
    by_class = np.array([by_label.get(label, 1) for label in classes.tolist()], dtype=float)
    allowed = by_class > 0 if positive else by_class >= 0
    if not (np.isfinite(by_class).all() and allowed.all()):
        least = "above 0" if positive else "not negative"
        raise ValueError(f"class_weight must be finite and {least}; got {by_class}.")
    return by_class


def _check_labels_weighed(by_label: Mapping, labels: list) -> None:
    """Refuse unknown labels, unless all known ones have a weight, as scikit-learn does."""
    unknown = [label for label in by_label if label not in labels]
    if unknown and not set(labels) <= set(by_label):
        shown = ", ".join(map(repr, labels[:8])) + (", ..." if len(labels) > 8 else "")
        raise ValueError(
            f"class_weight has the label {unknown[0]!r}, which y does not have; remove it, or "
            f"use the labels of y, {shown}. Labels of sequences of weight 0 do not count."
        )


def check_handle_invalid(handle_invalid: Any) -> None:
    if not isinstance(handle_invalid, str) or handle_invalid not in ("error", "best"):
        raise ValueError(f"handle_invalid must be 'error' or 'best'; got {handle_invalid!r}.")


def refuse_options(method: str, **given: Any) -> None:
    """Raise if an option of a method is given that needs sequences in memory."""
    for name, value in given.items():
        if value is not None:
            raise ValueError(
                f"{name} needs sequences in memory; pass arrays, or leave {name} out of {method}."
            )


def nothing_to_score() -> ValueError:
    """Return the error of ``score`` on data of which no row counts."""
    return ValueError("score needs at least one row of positive weight and known label.")


def check_room(out: Any, n_labels: int, n_rows: int | None = None) -> None:
    """Raise unless probabilities can be written to ``out``."""
    if out is None:
        return
    ok = isinstance(out, np.ndarray) and out.dtype == np.float64 and out.flags.writeable
    if not ok or out.ndim != 2 or out.shape[1] != n_labels:
        raise ValueError(
            f"out must be a writeable float64 array or memory map of shape (n_rows, {n_labels}); "
            f"got {getattr(out, 'dtype', type(out).__name__)} of shape {np.shape(out)}."
        )
    if n_rows is not None and len(out) != n_rows:
        raise ValueError(
            f"out has {len(out)} rows, and X has {n_rows}; make an array of {n_rows} rows."
        )


def warn_one_label(classes: np.ndarray) -> None:
    if len(classes) == 1:
        warnings.warn(
            f"y holds one label only ({classes.tolist()[0]!r:.60}); every prediction will be that "
            "label.",
            UserWarning,
            stacklevel=3,
        )


def warn_new_attributes(
    estimator: BaseEstimator, X: SequencesLike, which: str = "that training did not begin with"
) -> None:
    """Warn once that ``partial_fit`` leaves out new attributes, with the reason ``which``."""
    vectorizer = getattr(estimator, "vectorizer_", None)
    if (
        vectorizer is None
        or hasattr(estimator, ATTRIBUTES_WARNED)
        or not len(X)
        or isinstance(X, Sequences)
    ):
        return
    known, seen = vectorizer.vocabulary_, clone(vectorizer).fit(X).vocabulary_
    new = [name for name in seen if name not in known]
    if new:
        setattr(estimator, ATTRIBUTES_WARNED, True)
        warnings.warn(
            f"partial_fit leaves out attributes {which}, such as {new[0]!r}"
            f" ({len(new)} in this call; this warns once). Extract columns that stay "
            "the same, e.g. by DictFeatures(n_features=2**k), or by one fitted on all data.",
            UserWarning,
            stacklevel=4,
        )

"""Columns of transition features, chosen by number or name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from sklseq.data.sequences import STATE, TRANSITION

__all__ = ["with_transition_features"]

FORMS = (
    "names, column numbers, a mask, a regular expression or a function from a name to True or False"
)


def with_transition_features(
    chosen: Any, n_features: int, roles: np.ndarray | None, names: Callable[[], np.ndarray] | None
) -> np.ndarray | None:
    """Roles of columns, the chosen ones being transition features too.

    Parameters
    ----------
    chosen : None, list, array, str, re.Pattern or callable
        The parameter ``transition_features`` of an estimator.
    n_features : int
    roles : ndarray of shape (n_features,) or None
        ``Sequences.roles`` so far.
    names : callable, or None
        Gives the names of the columns; None: they have none.
    """
    if chosen is None:
        return roles
    mask = _chosen_mask(chosen, n_features, names)
    roles = np.full(n_features, STATE, dtype=np.uint8) if roles is None else roles.copy()
    roles[mask] |= TRANSITION
    return roles


def _chosen_mask(chosen: Any, n: int, names: Callable[[], np.ndarray] | None) -> np.ndarray:
    numbers = None
    if not isinstance(chosen, (str, re.Pattern)) and not callable(chosen):
        numbers = _as_list(chosen)
    if numbers is not None and numbers.dtype.kind in "bui":
        return _by_number(numbers, n)
    if names is None:
        raise ValueError(
            f"transition_features={chosen!r:.60} chooses columns by name, and X has no names; give "
            "column numbers, or give the parameter to the extractor."
        )
    known = names()
    if numbers is not None:
        return _by_name(numbers, known)
    select = chosen
    if isinstance(chosen, (str, re.Pattern)):
        try:
            select = re.compile(chosen).search
        except re.error as error:
            raise ValueError(
                f"transition_features={chosen!r} is no regular expression ({error}); give a list "
                "for names."
            ) from None
    mask = np.array([bool(select(name)) for name in known], dtype=bool)
    if not mask.any():
        raise ValueError(
            f"transition_features={chosen!r:.60} chooses none of the {n} columns of X; names are "
            f"such as {str(known[0])!r}."
        )
    return mask


def _as_list(chosen: Any) -> np.ndarray:
    try:
        given = np.asarray(chosen if isinstance(chosen, np.ndarray) else list(chosen))
    except (TypeError, ValueError):
        given = np.zeros((), dtype=object)
    if given.ndim != 1 or given.dtype.kind not in "buiUO" or not given.size:
        raise ValueError(f"transition_features must be None, or {FORMS}; got {chosen!r:.60}.")
    return given


def _by_number(numbers: np.ndarray, n: int) -> np.ndarray:
    if numbers.dtype == bool:
        if len(numbers) != n:
            raise ValueError(
                f"transition_features is a mask of {len(numbers)} columns, and X has {n}."
            )
        return numbers
    if numbers.min() < 0 or numbers.max() >= n:
        raise ValueError(
            f"transition_features must hold column numbers from 0 to {n - 1}; got "
            f"{numbers.tolist()!r:.60}."
        )
    return np.isin(np.arange(n), numbers)


def _by_name(wanted: np.ndarray, known: np.ndarray) -> np.ndarray:
    missing = sorted({str(name) for name in wanted} - {str(name) for name in known})
    if missing:
        raise ValueError(
            f"transition_features names {missing[0]!r}, which is no column of X; for groups of "
            "columns give a regular expression, such as '^w='."
        )
    return np.isin(known.astype(str), wanted.astype(str))

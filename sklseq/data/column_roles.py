"""Choice of the columns that are transition features, by number, name or rule."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from sklseq.data.sequences import STATE, TRANSITION

FORMS = (
    "names, column numbers, a mask, a regular expression or a function from a name to True or False"
)


def with_transition_features(
    chosen: Any, n_features: int, roles: np.ndarray | None, names: Callable[[], np.ndarray] | None
) -> np.ndarray | None:
    """Return the roles of columns, with the chosen ones as transition features too; None: no column
    is.

    ``chosen`` is the parameter ``transition_features`` of an estimator, ``roles`` are those of
    ``Sequences`` so far. ``names()`` returns the names of the columns; None if they have no names.
    A ValueError is raised if ``chosen`` has another form, or chooses no column.
    """
    if chosen is not None:
        mask = _chosen_mask(chosen, n_features, names)
        roles = np.full(n_features, STATE, dtype=np.uint8) if roles is None else roles.copy()
        roles[mask] |= TRANSITION
    return roles if roles is not None and (roles & TRANSITION).any() else None


def roles_by_name(chosen: Any, names: np.ndarray) -> np.ndarray:
    """Return the roles of further columns, which ``chosen`` may choose by name, not by number."""
    listed = None if _is_rule(chosen) else _as_list(chosen)
    mask = np.zeros(len(names), dtype=bool)
    if listed is None:
        mask = _by_rule(chosen, names)
    elif listed.dtype.kind == "U":
        mask = np.isin(names.astype(str), listed)
    return np.where(mask, STATE | TRANSITION, STATE).astype(np.uint8)


def _is_rule(chosen: Any) -> bool:
    return callable(chosen) or (isinstance(chosen, (str, re.Pattern)) and chosen != "")


def _chosen_mask(chosen: Any, n: int, names: Callable[[], np.ndarray] | None) -> np.ndarray:
    listed = None if _is_rule(chosen) else _as_list(chosen)
    if listed is not None and listed.dtype.kind in "bui":
        mask, hint = _by_number(listed, n), f"column numbers are 0 to {n - 1}"
    elif names is None:
        raise ValueError(
            f"transition_features={chosen!r:.60} chooses columns by name, and X has no names; give "
            "column numbers, or give the parameter to the extractor."
        )
    else:
        known = names()
        mask = _by_rule(chosen, known) if listed is None else _by_name(listed, known)
        hint = _looks(known)
    if not mask.any():
        raise ValueError(
            f"transition_features={chosen!r:.60} chooses none of the {n} columns of X; {hint}, and "
            "None means no transition features."
        )
    return mask


def _by_rule(chosen: Any, known: np.ndarray) -> np.ndarray:
    if callable(chosen):
        return np.array([_answer(chosen, name) for name in known], dtype=bool)
    try:
        pattern = re.compile(chosen)
    except re.error as error:
        raise ValueError(
            f"transition_features={chosen!r} is not a regular expression ({error}); give a list "
            "for names."
        ) from None
    if isinstance(pattern.pattern, bytes):
        raise _wrong_form(chosen)
    return np.array([pattern.search(name) is not None for name in known], dtype=bool)


def _answer(function: Callable, name: Any) -> bool:
    try:
        answer = function(name)
    except Exception as error:
        raise ValueError(
            f"The function transition_features failed for the column {name!r}: "
            f"{type(error).__name__}: {error}."
        ) from error
    if not isinstance(answer, (bool, np.bool_)):
        raise ValueError(
            "The function transition_features must return True or False for the name of a column; "
            f"got {answer!r:.60} for {name!r}."
        )
    return bool(answer)


def _wrong_form(chosen: Any) -> ValueError:
    return ValueError(f"transition_features must be None, or {FORMS}; got {chosen!r:.60}.")


def _as_list(chosen: Any) -> np.ndarray:
    # Kinds are checked item by item: NumPy would convert [0, True] and [0, "a"] to one kind.
    try:
        is_plain = isinstance(chosen, np.ndarray) and chosen.dtype != object
        given = chosen if is_plain else list(chosen)
        array = np.asarray(given) if len(given) else np.zeros(0, dtype=int)
    except (TypeError, ValueError):
        raise _wrong_form(chosen) from None
    kinds = {array.dtype.kind} if is_plain else {np.asarray(k).dtype.kind for k in given}
    is_one = kinds <= {"i", "u"} or kinds in ({"b"}, {"U"})
    if array.ndim != 1 or not is_one or isinstance(chosen, bytes):
        raise _wrong_form(chosen)
    return array


def _by_number(numbers: np.ndarray, n: int) -> np.ndarray:
    if numbers.dtype == bool:
        if len(numbers) != n:
            raise ValueError(
                f"transition_features is a mask of {len(numbers)} columns, and X has {n}."
            )
        return numbers
    if ((numbers < 0) | (numbers >= n)).any():
        raise ValueError(
            f"transition_features must hold column numbers from 0 to {n - 1}; got "
            f"{numbers.tolist()!r:.60}."
        )
    return np.isin(np.arange(n), numbers)


def _by_name(wanted: np.ndarray, known: np.ndarray) -> np.ndarray:
    missing = sorted({str(name) for name in wanted} - {str(name) for name in known})
    if missing:
        raise ValueError(
            f"transition_features names {missing[0]!r}, which is not a column of X; "
            f"{_looks(known)}, and a regular expression chooses groups of them."
        )
    return np.isin(known.astype(str), wanted.astype(str))


def _looks(known: np.ndarray) -> str:
    return f"names look like {str(known[0])!r}" if len(known) else "X has no columns"

"""Constraints: the transitions, first labels and last labels that a model allows."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sklseq._lib.ragged import ranges
from sklseq.data.labels import first_cut, locate
from sklseq.data.span_labels import (
    SCHEMES,
    did_you_mean,
    foreign_label,
    scheme_letters,
    split_prefix,
)
from sklseq.data.types import ConstraintsLike

Place = Callable[[int], str]


class Constraints(NamedTuple):
    """Allowed transitions, first labels and last labels."""

    transition: NDArray[np.bool_]  # (L, L) label i may be followed by label j
    start: NDArray[np.bool_]  # (L,) may be the first label
    end: NDArray[np.bool_]  # (L,) may be the last label


def allowed_transitions(
    classes: ArrayLike, scheme: str, *, outside: str = "O", place: Place | None = None
) -> Constraints:
    """Constraints of a scheme, "iob2", "iobes" or "bilou", on sequences of these labels.

    A ValueError names the first label of another form; ``place`` returns " at row ... of sequence
    ..." for the index of a label, for this message. With x the type and O any row outside,

    * IOB2: I-x only after B-x or I-x, so never first.
    * IOBES: I-x and E-x only after B-x or I-x, so never first; only I-x and E-x after B-x or I-x,
      so neither is last. BILOU is the same with L for E and U for S.

    Examples
    --------
    >>> transition, start, end = allowed_transitions(["B-x", "I-x", "O"], "iob2")
    >>> transition.astype(int)
    array([[1, 1, 1],
           [1, 1, 1],
           [1, 0, 1]])
    >>> start.tolist(), end.tolist()
    ([True, False, True], [True, True, True])
    """
    first, inner, last, single = scheme_letters(scheme)
    labels = np.asarray(classes, dtype=object).tolist()
    if (k := first_cut([label for label in labels if isinstance(label, str)])) is not None:
        raise ValueError(f"Label {labels[k]!r} of classes ends in a NUL character: rename it.")
    parts = [split_prefix(label, SCHEMES[scheme], outside) for label in labels]
    if None in parts:
        foreign = parts.index(None)
        where = "" if place is None else place(foreign)
        raise ValueError(foreign_label(labels[foreign], scheme, outside, where))
    letters = np.array([letter for letter, _ in parts], dtype=np.str_)
    types = np.array([type_ for _, type_ in parts], dtype=np.str_)
    opens = np.isin(letters, ["", first, single])  # may follow a complete span
    goes_on = np.isin(letters, [first, inner])  # its span may continue
    complete = np.isin(letters, ["", last, single])  # its span may end here
    same_type = types[:, None] == types[None, :]
    transition = np.where(opens, complete[:, None], goes_on[:, None] & same_type)
    return Constraints(transition, opens, complete)


def resolve_constraints(
    constraints: ConstraintsLike | None, classes: ArrayLike, place: Place | None = None
) -> Constraints:
    """Turn the `constraints` parameter of an estimator into new masks.

    ``constraints``: None forbids nothing; a name is that of :func:`allowed_transitions`, also for
    ``place``; a list of tuples has the forbidden pairs, see :func:`forbid_pairs`; a mask
    (n_labels, n_labels) of booleans, 0 and 1 is true where the label of the row may be followed by
    the label of the column, and allows all first and last labels. A ValueError names what is wrong.
    """
    n_labels = len(np.asarray(classes))
    if isinstance(constraints, str):
        if constraints not in SCHEMES:
            raise ValueError(
                f"constraints must be None, {', '.join(map(repr, SCHEMES))}, a list of forbidden "
                f"pairs or a mask of shape ({n_labels}, {n_labels}); got {constraints!r:.60}."
                + did_you_mean(constraints)
            )
        return allowed_transitions(classes, constraints, place=place)
    if are_pairs(constraints):
        return forbid_pairs(constraints, classes)
    shape = n_labels, n_labels
    mask = np.ones(shape, bool) if constraints is None else _check_mask(constraints, n_labels)
    return Constraints(mask, np.ones(n_labels, bool), np.ones(n_labels, bool))


def are_pairs(constraints: Any) -> bool:
    """Whether ``constraints`` is a list of pairs, and not a mask made of tuples of booleans."""
    if not isinstance(constraints, (list, tuple, set, frozenset)):
        return False
    if not all(isinstance(pair, tuple) for pair in constraints):
        return False
    values = [x for pair in constraints for x in pair]
    return not values or not all(isinstance(x, (bool, np.bool_)) for x in values)


def forbid_pairs(forbidden: Iterable[Any], classes: ArrayLike) -> Constraints:
    """Constraints that forbid the pairs (label, next label).

    (None, label) forbids a first label, (label, None) a last one. A ValueError names the first
    entry that is not a pair of labels.
    """
    labels = np.asarray(classes).tolist()
    L, number = len(labels), {label: k for k, label in enumerate([*labels, None])}
    allowed = np.ones((L + 1, L + 1), dtype=bool)  # last row: starts, last column: ends
    for pair in forbidden:
        if not isinstance(pair, tuple) or len(pair) != 2 or pair == (None, None):
            raise ValueError(
                "constraints as a list must be a list of forbidden pairs (label, next label), None "
                f"standing for the beginning and the end; got {pair!r:.60}."
            )
        unknown = [x for x in pair if not isinstance(x, Hashable) or x not in number]
        if unknown:
            raise ValueError(
                f"constraints names {unknown[0]!r:.60}, which is not a label; labels are "
                f"{', '.join(f'{label!r:.60}' for label in labels)}. Labels of sequences of weight "
                "0 do not count."
            )
        allowed[number[pair[0]], number[pair[1]]] = False
    return Constraints(allowed[:L, :L].copy(), allowed[L, :L].copy(), allowed[:L, L].copy())


def constraints_of_part(constraints: Any, classes: ArrayLike, seen: NDArray[np.bool_]) -> Any:
    """Return the parameter ``constraints`` for data in which only some labels are ``seen``."""
    if constraints is None or isinstance(constraints, str):
        return constraints
    if are_pairs(constraints):
        known = {None, *np.asarray(classes)[seen].tolist()}
        return [pair for pair in constraints if known.issuperset(pair)]
    return resolve_constraints(constraints, classes).transition[np.ix_(seen, seen)]


def _check_mask(given: ArrayLike, n_labels: int) -> NDArray[np.bool_]:
    try:
        mask = np.array(given)
    except ValueError:  # rows of different length
        mask = np.array(None)
    is_mask = mask.dtype.kind in "biuf" and ((mask == 0) | (mask == 1)).all()
    if not is_mask or mask.shape != (n_labels, n_labels):
        raise ValueError(
            f"constraints given as a mask must be boolean, or 0 and 1, of shape ({n_labels}, "
            f"{n_labels}), one row and one column per label in the order of classes_; got dtype "
            f"{mask.dtype}, shape {mask.shape}. Labels of sequences of weight 0 do not count. A "
            "list of forbidden pairs needs tuples (label, next label)."
        )
    return mask.astype(bool)


def check_constraints(
    codes: NDArray[np.integer],
    offsets: NDArray[np.integer],
    allowed: Constraints,
    classes: ArrayLike,
) -> None:
    """Raise a ValueError that names the first training label that violates a constraint.

    Parameters
    ----------
    codes : ndarray of int, shape (n_rows,)
        Labels of all sequences, as indices into `classes`.
    offsets : ndarray of int, shape (n_sequences + 1,)
    allowed : Constraints
    classes : array-like of shape (L,)
    """
    _raise_violation(first_violation(codes, offsets, allowed, np.asarray(classes).tolist()))


def _raise_violation(broken: str | None, otherwise: str = "") -> None:
    if broken:
        raise ValueError(
            f"Training labels violate `constraints`: {broken}. Correct the labels, or loosen "
            f"`constraints`{otherwise}."
        )


# As partial labels may lack one that must stand beside another.
NAME_ALL = "; if y lacks labels, such as a B- beside an I-, give the set of all in place of None"


class PathCheck:
    """Check that some labeling satisfies both the constraints and the partial labels.

    Parameters
    ----------
    allowed : Constraints
    classes : array-like of shape (n_labels,)
    table : bool ndarray of shape (n_codes, n_labels)
        The labels that each code allows.
    known : bool, default=False
        Whether no label is unknown. Errors then give no advice on unknown ones.
    """

    def __init__(
        self, allowed: Constraints, classes: ArrayLike, table: NDArray[np.bool_],
        known: bool = False,
    ):  # fmt: skip
        self.allowed, self.table = allowed, table
        self.names = np.asarray(classes).tolist()
        self.free = all(mask.all() for mask in allowed)
        self.advice = "" if known else NAME_ALL
        # Cache of masks, as bytes: (possible labels of the previous row, code) to possible labels.
        self.step: dict[tuple[bytes | None, int], bytes] = {}

    def follow(
        self, codes: NDArray[np.integer], place: Place, before: bytes | None = None,
        is_end: bool = True,
    ) -> bytes | None:  # fmt: skip
        """Raise a ValueError that names the first row at which no labeling is possible.

        ``place(row)``: name of a row. ``before``: the result for earlier rows of the sequence.
        ``is_end``: whether the sequence ends here. Cost O(n_rows), and O(n_labels²) for each
        distinct pair of possible labels and code.
        """
        if self.free:
            return None
        possible, row = before, -1
        for row, code in enumerate(codes.data):
            found = self.step.get((possible, code))
            if found is None:
                found = self.step[possible, code] = self._reached(possible, code)
            if not found:
                broken = self._describe(possible, self.table[code], place(row))
                _raise_violation(broken, self.advice)
            possible = found
        if is_end and possible is not None and not (_mask(possible) & self.allowed.end).any():
            only = self._only(_mask(possible))
            what = "each labeling that y allows is forbidden"
            what = what if only is None else f"{only} may not be the last label"
            _raise_violation(f"{what}, at {place(row)}", self.advice)
        return possible

    def _reached(self, possible: bytes | None, code: int) -> bytes:
        reached = self.allowed.start
        if possible is not None:
            reached = self.allowed.transition[_mask(possible)].any(axis=0)
        reached = reached & self.table[code]
        return reached.tobytes() if reached.any() else b""

    def _describe(self, possible: bytes | None, labels: NDArray[np.bool_], place: str) -> str:
        label = self._only(labels)
        if label is not None and possible is None:
            return f"{label} may not be the first label, at {place}"
        before = None if possible is None else self._only(_mask(possible))
        if label is not None and before is not None:
            return f"{label} may not follow {before} at {place}"
        if label is not None:
            return f"{label} may follow none of the labels that y allows before it, at {place}"
        return f"each labeling that y allows is forbidden, at {place}"

    def _only(self, labels: NDArray[np.bool_]) -> str | None:
        # The label, if the mask holds only one.
        at = np.flatnonzero(labels)
        return f"{self.names[at[0]]!r:.60}" if len(at) == 1 else None


def _mask(labels: bytes | None) -> NDArray[np.bool_]:
    return np.frombuffer(labels or b"", dtype=np.bool_)


def possible_labels(allowed: Constraints, offsets: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Whether some allowed labeling of the whole sequence has each label at each row.

    Returns a mask of shape (n_rows, n_labels). A label is possible where allowed transitions lead
    to it from a first label, and from it to a last one: this depends on the numbers of rows before
    it and after it alone.
    """
    lengths = np.diff(offsets)
    before = ranges(0, lengths)
    after = np.repeat(lengths, lengths) - 1 - before
    n = int(lengths.max(initial=0))
    ahead = _reachable(allowed.start, allowed.transition, n)
    return ahead[before] & _reachable(allowed.end, allowed.transition.T, n)[after]


def _reachable(labels: NDArray[np.bool_], step: NDArray[np.bool_], n: int) -> NDArray[np.bool_]:
    # Labels that are reached from ``labels`` in 0, ..., n - 1 steps.
    found = np.empty((n, len(labels)), dtype=bool)
    for t in range(n):
        found[t] = labels
        labels = step[labels].any(axis=0)
        if (labels == found[t]).all():
            found[t:] = labels
            break
    return found


def violates(seen: Any, allowed: Constraints) -> bool:
    """Whether a transition, first or last label of a summary, as for `check_seen`, is forbidden."""
    return any((getattr(seen, name) & ~mask).any() for name, mask in allowed._asdict().items())


def check_seen(seen: Any, allowed: Constraints, classes: ArrayLike, where: str = "") -> None:
    """Raise a ValueError if a transition, first or last label of a summary violates a constraint.

    ``seen`` has the fields of ``Constraints``, True for those that occur; ``where`` is appended to
    the description of the label.
    """
    names = np.asarray(classes).tolist()
    for i, j in np.argwhere(seen.transition & ~allowed.transition):
        _raise_violation(f"{names[j]!r:.60} may not follow {names[i]!r:.60}{where}")
    for j in np.flatnonzero(seen.start & ~allowed.start):
        _raise_violation(f"{names[j]!r:.60} may not come first{where}")
    for j in np.flatnonzero(seen.end & ~allowed.end):
        _raise_violation(f"{names[j]!r:.60} may not come last{where}")


def first_violation(
    codes: NDArray[np.integer],
    offsets: NDArray[np.integer],
    allowed: Constraints,
    labels: list[Any],
) -> str | None:
    """Describe the first row whose label is not allowed there; None if there is none."""
    filled = offsets[:-1] < offsets[1:]
    first, last = offsets[:-1][filled], offsets[1:][filled] - 1
    reached = np.ones(len(codes), dtype=bool)  # allowed after the previous label, or as first label
    reached[1:] = allowed.transition[codes[:-1], codes[1:]]
    reached[first] = allowed.start[codes[first]]
    fits = reached.copy()
    fits[last] &= allowed.end[codes[last]]
    if fits.all():
        return None
    row = int(np.argmin(fits))
    label, where = labels[codes[row]], locate(offsets, row)
    if reached[row]:
        return f"{label!r:.60} may not be the last label, at {where}"
    if row in first:
        return f"{label!r:.60} may not be the first label, at {where}"
    return f"{label!r:.60} may not follow {labels[codes[row - 1]]!r:.60} at {where}"

"""Loss of margin taggers: the cost of each wrong label, by pairs of labels."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sklseq._lib.signatures import takes


def resolve_loss(loss: Any, classes: np.ndarray, other: str | None = None) -> np.ndarray | None:
    """Return `loss` of a margin tagger as a matrix (n_labels, n_labels); rows are true labels.

    Parameters
    ----------
    loss : "hamming", matrix, dict, callable or None
        A dict has costs by (true label, wrong label), 1 for missing pairs; a callable takes both
        labels and returns the cost.
    classes : ndarray of shape (n_labels,)
    other : str or None
        Other name that the estimator allows besides "hamming", for messages.
    """
    L = len(classes)
    if loss is None and other is None:
        return None
    if isinstance(loss, str) and loss == "hamming":
        return 1.0 - np.eye(L)
    costs = _costs_of_pairs(loss, classes)
    try:
        if costs is None or isinstance(costs, str):
            raise TypeError
        cost = np.array(costs, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"loss must be 'hamming', {other!r}, a matrix, a dict of costs by (true label, wrong "
            f"label), or a callable of these two that returns them; got {loss!r}."
        ) from None
    if cost.shape != (L, L):
        raise ValueError(
            f"loss given as a matrix must have one row and one column per label, ({L}, {L}); "
            f"got shape {cost.shape}. Labels of sequences of weight 0 do not count; a dict or a "
            "callable fits any labels."
        )
    if not np.isfinite(cost).all() or (cost < 0).any() or np.diag(cost).any():
        bad = ~np.isfinite(cost) | (cost < 0) | (np.eye(L, dtype=bool) & (cost != 0))
        i, j = np.argwhere(bad)[0]
        names = classes.tolist()
        raise ValueError(
            "loss must be finite, not negative, and 0 on the diagonal, where the label is right; "
            f"for the true label {names[i]!r} and the answer {names[j]!r} it is {cost[i, j]:.6g}."
        )
    return cost


def _costs_of_pairs(loss: Any, classes: np.ndarray) -> Any:
    labels = classes.tolist()
    if isinstance(loss, Mapping):
        for pair in loss:
            _check_pair(pair, classes)
        return [[loss.get((a, b), float(a != b)) for b in labels] for a in labels]
    if callable(loss) and takes(loss, 2):
        return [[_cost(loss, a, b) if a != b else 0.0 for b in labels] for a in labels]
    return loss


def _cost(loss: Any, true: Any, wrong: Any) -> float:
    try:
        cost = loss(true, wrong)
    except KeyError as error:
        raise ValueError(
            f"The loss function has no cost for the true label {true!r} and the answer {wrong!r}: "
            f"it raised KeyError({error})."
        ) from error
    if not isinstance(cost, (bool, int, float, np.number, np.bool_)):
        raise ValueError(
            f"The loss function must return a number; got {cost!r} for the true label {true!r} "
            f"and the answer {wrong!r}."
        )
    return float(cost)


def _check_pair(pair: Any, classes: np.ndarray) -> None:
    # Labels missing in y are ignored, as a fold may lack some; labels of another type are errors.
    strings = classes.dtype.kind in "UST"
    pairs = isinstance(pair, tuple) and len(pair) == 2
    if not pairs or any(isinstance(label, str) != strings for label in pair):
        raise ValueError(
            "loss given as a dict must have keys (true label, wrong label), with labels such as "
            f"{classes.tolist()[0]!r}; got {pair!r}."
        )

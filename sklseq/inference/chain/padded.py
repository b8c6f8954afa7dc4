"""Conversion between packed rows and padded batches, the form of deep-learning packages."""

from typing import NamedTuple

import numpy as np

from sklseq._lib.ragged import offsets_of
from sklseq.data.sequences import as_numbers, check_offsets
from sklseq.data.types import ArrayLike


class PackedScores(NamedTuple):
    """Answer of :func:`from_padded`: the first arguments of the functions of this module.

    Attributes
    ----------
    emission : ndarray of shape (n_rows, n_labels)
        Rows of all sequences, one sequence after the other, without padding.
    transition : ndarray of shape (n_labels, n_labels) or (n_rows, n_labels, n_labels)
    offsets : int64 ndarray of shape (n_sequences + 1,)
        Sequence s is rows ``offsets[s]:offsets[s + 1]``.
    """

    emission: np.ndarray
    transition: np.ndarray
    offsets: np.ndarray


def from_padded(
    emission: ArrayLike,
    transition: ArrayLike,
    *,
    lengths: ArrayLike | None = None,
    mask: ArrayLike | None = None,
) -> PackedScores:
    """Scores of a padded batch as packed rows.

    Parameters
    ----------
    emission : array-like of shape (n_sequences, n_steps, n_labels)
        Scores of each label at each row; rows beyond the end of a sequence are ignored.
    transition : array-like
        Of shape (n_labels, n_labels): scores of label i followed by j. Or of shape (n_sequences,
        n_steps, n_labels, n_labels): ``transition[s, t, i, j]`` is the score of label i at row
        t - 1 followed by j at row t; those of row 0 are ignored, but must be finite or -inf.
    lengths : array-like of int, shape (n_sequences,), optional
        Numbers of rows. By default all rows belong to their sequence.
    mask : array-like of bool, shape (n_sequences, n_steps), optional
        Alternative to ``lengths``: True for the rows of each sequence, which must come first.

    Returns
    -------
    PackedScores
        Named tuple ``(emission, transition, offsets)``, for calls such as ``viterbi(*packed)``.

    Raises
    ------
    ValueError
        If shapes do not fit, or rows of a sequence follow padding.

    Notes
    -----
    The ``log_potentials`` of torch-struct, of shape (n_sequences, n_steps - 1, n_labels, n_labels)
    and indexed [next label, label], are ``transition[:, 1:].transpose(0, 1, 3, 2)``, with all
    emission scores 0.

    Examples
    --------
    >>> import numpy as np
    >>> from sklseq.inference import from_padded, to_padded, viterbi
    >>> emission = np.array([[[1.0, 0], [0, 1], [0, 1]], [[0, 1], [9, 9], [9, 9]]])
    >>> packed = from_padded(emission, np.zeros((2, 2)), lengths=[3, 1])
    >>> labels, scores = viterbi(*packed)
    >>> to_padded(labels, packed.offsets, fill=-1)
    array([[ 0,  1,  1],
           [ 1, -1, -1]], dtype=int32)
    """
    emission = as_numbers(emission, "emission")
    if emission.ndim != 3:
        raise ValueError(
            "emission of a padded batch must have shape (n_sequences, n_steps, n_labels); got "
            f"{emission.shape}."
        )
    kept = _rows_kept(emission.shape[:2], lengths, mask)
    transition = as_numbers(transition, "transition")
    wanted = *emission.shape, emission.shape[2]
    if transition.ndim == 4 and transition.shape == wanted:
        transition = transition[kept]
    elif transition.shape != wanted[2:]:
        raise ValueError(
            f"transition must have shape {wanted[2:]} or {wanted}; got {transition.shape}."
        )
    offsets = offsets_of(kept.sum(axis=1))
    return PackedScores(emission[kept], transition, offsets)


def _rows_kept(shape: tuple, lengths: ArrayLike | None, mask: ArrayLike | None) -> np.ndarray:
    # Whether each row belongs to its sequence.
    n, T = shape
    if lengths is not None and mask is not None:
        raise ValueError("lengths and mask exclude each other; give one of them.")
    if mask is not None:
        mask = np.asarray(mask)
        if mask.shape != shape or mask.dtype != np.bool_:
            raise ValueError(
                f"mask must be a bool array of shape {shape}; got {mask.dtype} of shape "
                f"{mask.shape}."
            )
        late = (mask[:, 1:] & ~mask[:, :-1]).any(axis=1)
        if late.any():
            raise ValueError(
                f"mask must be True for the first rows of each sequence; sequence "
                f"{int(late.argmax())} has a row after padding. Move padding to the end."
            )
        return mask
    lengths = np.full(n, T) if lengths is None else as_numbers(lengths, "lengths")
    if lengths.shape != (n,) or lengths.dtype.kind not in "iu":
        raise ValueError(
            f"lengths must be {n} integers; got {lengths.dtype} of shape {lengths.shape}."
        )
    wrong = (lengths < 0) | (lengths > T)
    if wrong.any():
        s = int(wrong.argmax())
        raise ValueError(f"lengths must be from 0 to {T}; got {lengths[s]} for sequence {s}.")
    return np.arange(T) < lengths[:, None]


def to_padded(values: ArrayLike, offsets: ArrayLike, fill: float = 0) -> np.ndarray:
    """Numbers of packed rows as a padded batch.

    Parameters
    ----------
    values : array-like of shape (n_rows, ...)
        Labels or marginals, for example.
    offsets : array-like of shape (n_sequences + 1,)
    fill : number, default=0
        Value of padding; the type of ``values`` must be able to hold it: no NaN for integers.

    Returns
    -------
    ndarray of shape (n_sequences, n_steps, ...)
        n_steps is the number of rows of the longest sequence.

    Raises
    ------
    ValueError
        If offsets do not fit the rows, or the type of ``values`` does not hold ``fill``.

    Examples
    --------
    >>> from sklseq.inference import to_padded
    >>> to_padded([1, 2, 3], [0, 1, 3])
    array([[1, 0],
           [2, 3]])
    """
    values = as_numbers(values, "values")
    if values.ndim == 0:
        raise ValueError("values must have one entry for each row; got a single number.")
    lengths = np.diff(check_offsets(offsets, len(values)))
    T = int(lengths.max(initial=0))
    padding = _as_type(fill, values.dtype)
    padded = np.full((len(lengths), T, *values.shape[1:]), padding, dtype=values.dtype)
    padded[np.arange(T) < lengths[:, None]] = values
    return padded


def _as_type(fill: float, dtype: np.dtype) -> np.ndarray:
    # `fill` as a number of `dtype`, which must hold it exactly or, for floats, up to rounding.
    given = as_numbers(fill, "fill")
    if given.ndim:
        raise ValueError(f"fill must be one number; got an array of shape {given.shape}.")
    with np.errstate(invalid="ignore", over="ignore"):
        number = given.astype(dtype)
    if dtype.kind == "f":
        held = np.isfinite(number) == np.isfinite(given)
    else:
        held = number == given
    if not held:
        raise ValueError(
            f"fill must be a number that the type of values, {dtype}, holds; got {fill!r}. Choose "
            "another, or convert values first."
        )
    return number

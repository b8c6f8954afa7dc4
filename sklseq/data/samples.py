"""Base of containers of sequences: indexing, joining by columns and pickling for scikit-learn.

scikit-learn slices X by samples in ``train_test_split`` and ``GridSearchCV``, and joins blocks of
columns, each multiplied by a number, in ``FeatureUnion``.
"""

import numbers
from collections.abc import Iterator
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike

One = TypeVar("One")  # one sequence


class Samples(Generic[One]):
    """Sequences whose features are the columns of ``rows``, indexed by sequence.

    A subclass defines ``_one`` (a sequence), ``_take`` (some sequences), ``_joined`` (blocks of
    columns) and ``_with_values`` (the same sequences with other values in ``rows``).
    """

    __slots__ = ()
    rows: Any
    roles: Any

    @property
    def shape(self) -> tuple[int, int]:
        return len(self), self.rows.shape[1]

    @property
    def ndim(self) -> int:
        return 2

    @property
    def dtype(self) -> np.dtype:
        return self.rows.dtype

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[One]:
        return map(self._one, range(len(self)))

    @overload
    def __getitem__(self, key: int | np.integer) -> One: ...
    @overload
    def __getitem__(self, key: slice | tuple | ArrayLike) -> Self: ...
    def __getitem__(self, key):
        """One sequence for an int; a container of the same type for any other index."""
        if isinstance(key, tuple):  # scikit-learn indexes samples as X[key, ...]
            if len(key) != 2 or not (key[1] is Ellipsis or key[1] == slice(None)):
                raise IndexError(
                    f"{type(self).__name__} are indexed by sequence only; select columns of .rows "
                    "instead."
                )
            key = key[0]
        if isinstance(key, numbers.Integral):
            return self._one(range(len(self))[key])
        if isinstance(key, slice):
            return self._take(range(len(self))[key])
        return self._take(_positions(key, len(self)))

    def __mul__(self, factor: Any) -> Self:
        if not isinstance(factor, numbers.Real):
            return NotImplemented
        return self._with_values(self.rows * factor)

    __rmul__ = __mul__

    def __array_function__(self, func, types, args, kwargs):
        # FeatureUnion calls np.hstack (scikit-learn < 1.9) or np.concatenate(axis=1); no other
        # NumPy function is supported.
        if func is np.hstack or (func is np.concatenate and kwargs.get("axis", 0) == 1):
            return self._joined(args[0])
        return NotImplemented

    def __array__(self, dtype=None, copy=None):
        raise TypeError(not_a_table(type(self).__name__))

    def __getstate__(self):
        return {name: getattr(self, name) for name in self.__slots__}

    def __setstate__(self, state):
        for name, value in ({"roles": None} | state).items():
            setattr(self, name, value)

    def _one(self, s: int) -> One:
        raise NotImplementedError

    def _take(self, which: range | np.ndarray) -> Self:
        raise NotImplementedError

    def _with_values(self, rows: Any) -> Self:
        raise NotImplementedError

    @classmethod
    def _joined(cls, blocks: list) -> Self:
        raise NotImplementedError


def not_a_table(name: str) -> str:
    """Error message for containers that scikit-learn, pandas or NumPy would convert."""
    return (
        f"{name} cannot become one array or table, because its sequences differ in length: tools "
        "of scikit-learn that read a table cannot take it; for a FeatureUnion or ColumnTransformer "
        "of extractors, use set_output(transform='default')."
    )


def _positions(key: Any, n: int) -> np.ndarray:
    # Indices of the sequences that a mask or an integer array selects from n.
    key = np.asarray(key)
    if key.dtype == bool:
        if key.shape != (n,):
            raise IndexError(f"A mask over {n} sequences must have that length; got {key.shape}.")
        return np.flatnonzero(key)
    if key.size == 0:
        return np.zeros(0, dtype=np.intp)
    if key.dtype.kind not in "iu" or key.ndim != 1:
        raise IndexError(
            "Sequences are indexed by int, slice, 1-D integer array or mask; "
            f"got {key.dtype} of shape {key.shape}."
        )
    if key.min() < -n or key.max() >= n:
        raise IndexError(f"Sequence index out of range for {n} sequences.")
    key = key.astype(np.intp)  # n may be too large for the type
    return np.where(key < 0, key + n, key)

"""Function with the name of that of ``sklearn_crfsuite.utils``.

>>> from sklseq.compat.sklearn_crfsuite.utils import flatten
"""

from collections.abc import Iterable
from itertools import chain
from typing import Any

__all__ = ["flatten"]


def flatten(y: Iterable[Iterable[Any]]) -> list:
    """Join lists.

    Parameters
    ----------
    y : list of lists

    Returns
    -------
    list

    Examples
    --------
    >>> from sklseq.compat.sklearn_crfsuite.utils import flatten
    >>> flatten([["a", "b"], ["c"]])
    ['a', 'b', 'c']
    """
    return list(chain.from_iterable(y))

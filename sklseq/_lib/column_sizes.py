"""Scale factors for columns of different units."""

import numpy as np

# Ratio of the largest to the smallest column size above which columns are scaled.
UNITS = 1e4


def column_sizes(squares: np.ndarray) -> np.ndarray:
    """Powers of 2 to divide columns by, from sums of squares; 1 if the sizes differ little.

    Without a ridge, a solver would treat small columns as rounding errors of large ones.
    """
    size = np.sqrt(squares)
    size[~(size > 0)] = 1
    if size.max(initial=1) <= UNITS * size.min(initial=1):
        return np.ones(len(size))
    return np.exp2(np.round(np.log2(size)))

"""Integer type of column numbers and row starts."""

import numpy as np

LARGEST = int(np.iinfo(np.int32).max)


def index_type(largest: int) -> type:
    """int32 if it holds ``largest``, otherwise int64."""
    return np.int32 if largest <= LARGEST else np.int64

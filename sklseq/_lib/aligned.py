"""Arrays that start at a cache line."""

import numpy as np


def aligned_zeros(n: int, dtype: np.dtype) -> np.ndarray:
    """Zeros that start at a cache line, so that padded rows lie in as few lines as possible."""
    itemsize = np.dtype(dtype).itemsize
    memory = np.zeros(n * itemsize + 64, dtype=np.uint8)
    start = -memory.ctypes.data % 64
    return memory[start : start + n * itemsize].view(dtype)
